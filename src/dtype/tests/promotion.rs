//! Promotion is the documented table, and the lattice that the docs say it is.

use super::super::{Const, DType, Weak, promote, promote_weak, sum_acc};
use super::everything;

const INTS: [DType; 9] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::INDEX,
];

#[test]
fn promote_table_in_the_docs_is_true() {
    let source = include_str!("../promote.rs");
    let rows: Vec<Vec<&str>> = source
        .lines()
        .skip_while(|l| *l != "/// ```text")
        .skip(1)
        .take_while(|l| *l != "/// ```")
        .map(|l| l.trim_start_matches("///").split_whitespace().collect())
        .collect();
    let name = |t: DType| t.name().strip_prefix("f8").unwrap_or(t.name());
    assert_eq!(rows.len(), 1 + DType::ALL.len());
    assert_eq!(rows[0], DType::ALL.iter().map(|&t| name(t)).collect::<Vec<_>>());
    for (row, &a) in rows[1..].iter().zip(DType::ALL) {
        let computed = DType::ALL.iter().map(|&b| name(promote(a, b)));
        assert_eq!(*row, std::iter::once(name(a)).chain(computed).collect::<Vec<_>>());
    }
}

/// The triples that the docs of `promote` name as exceptions.
fn is_exception(triple: [DType; 3]) -> bool {
    let has = |f: &dyn Fn(DType) -> bool| triple.iter().any(|t| f(*t));
    let mixed_64 = has(&|t| t == DType::U64)
        && has(&|t| t.is_signed_int() && t != DType::INDEX)
        && has(&|t| t.is_narrow_float());
    let mixed_8 = [DType::F8E4M3, DType::F8E5M2, DType::BF16].iter().all(|e| triple.contains(e));
    mixed_64 || mixed_8
}

#[test]
fn promote_is_a_join_but_for_the_named_exceptions() {
    let all = everything();
    let below = |a, b| promote(a, b) == b;
    let (mut unassociative, mut unmonotone) = (0, 0);
    for &a in &all {
        assert_eq!(promote(a, a), a);
        assert_eq!(promote(DType::VOID, a), a);
        for &b in &all {
            let ab = promote(a, b);
            assert_eq!(ab, promote(b, a));
            assert!(below(a, ab) && below(b, ab), "{a} {b} {ab}");
            for &c in &all {
                if promote(ab, c) != promote(a, promote(b, c)) {
                    assert!(is_exception([a, b, c]), "not associative: {a} {b} {c}");
                    unassociative += 1;
                }
                if below(a, b) && !below(promote(a, c), promote(b, c)) {
                    assert!(is_exception([a, b, c]), "not monotone: {a} {b} {c}");
                    unmonotone += 1;
                }
            }
        }
    }
    // The exceptions are real: a change that removes them should change the docs.
    assert!(unassociative > 0 && unmonotone > 0);
}

#[test]
fn promote_holds_every_value_of_both_integers() {
    let value = |c: Const, t: DType| match c {
        Const::Int(i) if t == DType::U64 => i as u64 as i128,
        c => c.as_i64().unwrap() as i128,
    };
    for &a in INTS.iter().chain([&DType::BOOL]) {
        for &b in &INTS {
            let p = promote(a, b);
            // An index has no width of its own to keep.
            if p.is_float() || a == DType::INDEX || b == DType::INDEX {
                continue;
            }
            for t in [a, b] {
                assert!(value(t.min_value(), t) >= value(p.min_value(), p), "{a} {b} {p}");
                assert!(value(t.max_value(), t) <= value(p.max_value(), p), "{a} {b} {p}");
            }
        }
    }
}

#[test]
fn promote_carries_lanes() {
    assert_eq!(promote(DType::I32.vec(4), DType::F16), DType::F16.vec(4));
    assert_eq!(promote(DType::I32, DType::F16.vec(4)), DType::F16.vec(4));
    assert_eq!(promote_weak(DType::I32.vec(4), Weak::Float), DType::F32.vec(4));
    assert_eq!(sum_acc(DType::F16.vec(4)), DType::F32.vec(4));
    assert!(std::panic::catch_unwind(|| promote(DType::I32.vec(4), DType::I32.vec(2))).is_err());
}

#[test]
fn weak_literals_keep_the_dtype() {
    for &t in DType::ALL {
        assert_eq!(promote_weak(t, Weak::Bool), t);
        assert_eq!(promote_weak(t, Weak::Int), if t.is_bool() { DType::I32 } else { t });
        assert_eq!(promote_weak(t, Weak::Float), if t.is_float() { t } else { DType::F32 });
        let acc = sum_acc(t);
        assert_eq!(sum_acc(acc), acc);
        assert!(acc.bits() >= 32 && acc.bits() >= t.bits());
    }
    assert_eq!(promote_weak(DType::INDEX, Weak::Int), DType::INDEX);
    for (t, acc) in [
        (DType::BOOL, DType::I32),
        (DType::I16, DType::I32),
        (DType::I64, DType::I64),
        (DType::U8, DType::U32),
        (DType::U64, DType::U64),
        (DType::BF16, DType::F32),
        (DType::F8E5M2, DType::F32),
        (DType::F64, DType::F64),
        (DType::INDEX, DType::INDEX),
    ] {
        assert_eq!(sum_acc(t), acc, "{t}");
    }
}
