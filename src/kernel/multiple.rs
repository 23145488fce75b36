//! Proof that an index is a multiple of a number, from the form of its expression.

use crate::ir::{Op, UOp};

/// Returns true if the integer is a multiple of `n` for every value of its counters; false if that
/// is not obvious.
pub fn is_multiple(u: &UOp, n: i64) -> bool {
    is_multiple_within(u, n, 12)
}

fn is_multiple_within(u: &UOp, n: i64, depth: usize) -> bool {
    if n == 1 || depth == 0 {
        return n == 1;
    }
    let is_multiple = |u: &UOp, n: i64| is_multiple_within(u, n, depth - 1);
    match (u.op(), u.src()) {
        (Op::Const, _) => u.as_int().is_some_and(|v| v % n == 0),
        (Op::Add | Op::Max | Op::Min, src) => src.iter().all(|s| is_multiple(s, n)),
        (Op::Mul, src) => src.iter().any(|s| is_multiple(s, n)),
        (Op::Shl, [x, by]) => by.as_int().is_some_and(|v| {
            (0..62).contains(&v)
                && ((1i64 << v) % n == 0 || (n % (1i64 << v) == 0 && is_multiple(x, n >> v)))
        }),
        (Op::Cast, [x]) => x.dtype().is_int() && is_multiple(x, n),
        _ => false,
    }
}
