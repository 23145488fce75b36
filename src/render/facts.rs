//! Facts that all renderers need: the layout of small floats, the integers that cannot overflow,
//! and valid function names.

use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::ir::{Op, UOp, dtype_bounds};
use crate::target::Target;
use rustc_hash::FxHashSet;

/// The error for a load or a store whose first operand is not an `Index`.
pub(super) fn not_an_index(u: &UOp) -> String {
    format!("its address is not an index but {:?}", u.operand())
}

/// The type that holds a scalar: small floats are held as their bits.
pub(super) fn storage(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::F16 | Scalar::BF16 => Scalar::U16,
        Scalar::F8E4M3 | Scalar::F8E5M2 => Scalar::U8,
        Scalar::Index => Scalar::I64,
        s => s,
    }
}

/// True for a float that is held as its bits and converted by integer arithmetic.
pub(super) fn is_small(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::F16 | Scalar::BF16 | Scalar::F8E4M3 | Scalar::F8E5M2)
}

/// The layout of a small float.
pub(super) struct Layout {
    pub mantissa: u32,
    pub bias: u32,
    pub bits: u32,
    /// The code of overflow: infinity, or NaN in a layout without infinity. Larger codes are NaNs.
    pub over: u64,
    pub has_inf: bool,
}

/// The layout of a small float.
pub(super) fn layout(scalar: Scalar) -> Layout {
    match scalar {
        Scalar::F16 => Layout { mantissa: 10, bias: 15, bits: 16, over: 0x7c00, has_inf: true },
        Scalar::BF16 => Layout { mantissa: 7, bias: 127, bits: 16, over: 0x7f80, has_inf: true },
        Scalar::F8E4M3 => Layout { mantissa: 3, bias: 7, bits: 8, over: 0x7f, has_inf: false },
        Scalar::F8E5M2 => Layout { mantissa: 2, bias: 15, bits: 8, over: 0x7c, has_inf: true },
        _ => unreachable!("{scalar} is not a small float"),
    }
}

/// The ids of integers that only serve addresses and loop bounds, and are computed from launch
/// positions and loop counters alone: they cannot overflow.
pub(super) fn counted(uops: &[UOp]) -> FxHashSet<u64> {
    let mut pure: FxHashSet<u64> = FxHashSet::default();
    let is_pure = |pure: &FxHashSet<u64>, u: &UOp| u.op() == Op::Const || pure.contains(&u.id());
    for u in uops {
        let counter = matches!(u.op(), Op::Range | Op::Special);
        if counter || (u.op().is_alu() && !wraps(u) && u.src().iter().all(|s| is_pure(&pure, s))) {
            pure.insert(u.id());
        }
    }
    let mut found: FxHashSet<u64> = FxHashSet::default();
    for u in uops.iter().rev() {
        let serves = match (u.op(), u.src()) {
            (Op::Index, [_, offset @ ..]) => offset,
            (Op::If | Op::Range, src) => src,
            (_, src) if found.contains(&u.id()) => src,
            _ => continue,
        };
        found.extend(serves.iter().filter(|s| is_pure(&pure, s)).map(UOp::id));
    }
    found
}

/// True if a sum or product of integers can overflow its dtype. A user's arithmetic on counters
/// may, and wraps then.
fn wraps(u: &UOp) -> bool {
    let [x, y] = u.src() else { return false };
    if !u.dtype().is_int() {
        return false;
    }
    let ((a, b), (c, d)) = (x.bounds(), y.bounds());
    let all = dtype_bounds(u.dtype());
    let leaves = |v: i128| v < all.0 || v > all.1;
    match u.op() {
        Op::Add => leaves(a.saturating_add(c)) || leaves(b.saturating_add(d)),
        Op::Mul => {
            [a.saturating_mul(c), a.saturating_mul(d), b.saturating_mul(c), b.saturating_mul(d)]
                .into_iter()
                .any(leaves)
        }
        _ => false,
    }
}

/// Checks the kernel's name, and returns the function that makes the renderer's errors.
pub(super) fn begin<'a>(
    target: &'a Target,
    name: &str,
) -> Result<impl Fn(String) -> Error + use<'a>> {
    let refuse = |msg: String| Error::Compile {
        msg: format!("{} renderer: {msg}", target.name),
        source_at: None,
    };
    if is_identifier(name) {
        Ok(refuse)
    } else {
        Err(refuse(format!("{name:?} is not a name for a function")))
    }
}

/// True if it is a valid function name.
fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
