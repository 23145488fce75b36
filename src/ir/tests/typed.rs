//! Tests of the typed views: operands and payload by name.

use super::random::{Rng, nodes};
use crate::dtype::DType;
use crate::ir::op::viewed;
use crate::ir::typed::{Index, Load, Range, Reduce, Store};
use crate::ir::{Arg, AxisKind, Fold, Op, OpSet, ToSrc, UOp};

/// Ops whose first operand is a typed view, and ops with a payload that text cannot hold.
const SPECIAL: &[Op] =
    &[Op::Load, Op::Store, Op::EndRange, Op::Buffer, Op::Kernel, Op::Loop, Op::Source];

#[test]
fn a_view_has_the_operands_of_its_node() {
    let mut seen = OpSet::NONE;
    for seed in 0..400 {
        for u in nodes(&mut Rng::new(seed + 1), 40) {
            for &op in Op::ALL.iter().filter(|op| **op != u.op()) {
                assert_eq!(viewed(op, &u), None, "{op:?} of {u:?}");
            }
            if SPECIAL.contains(&u.op()) {
                continue;
            }
            let operands = viewed(u.op(), &u).unwrap_or_else(|| panic!("no view of {u:?}"));
            assert!(u.src().starts_with(&operands), "{u:?}");
            // A random `Index` may have more operands than the mask.
            assert!(operands.len() == u.src().len() || u.op() == Op::Index, "{u:?}");
            seen = seen.or(OpSet::of(u.op()));
        }
    }
    for &op in Op::ALL.iter().filter(|op| !SPECIAL.contains(op)) {
        assert!(seen.has(op), "{op:?} was not tested");
    }
}

#[test]
fn a_load_has_place_alternative_and_order() {
    let buffer = UOp::define_global(1, 8, DType::F32);
    let r = UOp::range(8, 0, AxisKind::Global);
    let mask = r.lt(4);
    let place = UOp::masked_index(&buffer, &r, Some(mask.clone()));
    let alt = UOp::constant(0.0, DType::F32);
    let first = UOp::barrier([buffer.at(0).store(1.0, &[])].to_src());

    let u = place.load_or(&alt);
    let Load { place: Index { buffer: b, index, mask: m, .. }, alt: a, after, .. } =
        u.expect_load();
    assert_eq!((b, index, m, a, after), (&buffer, &r, Some(&mask), Some(&alt), &[][..]));

    // An operand without a value is no alternative.
    let u = buffer.at(&r).load_after(&first);
    let Load { place, alt, after, .. } = u.expect_load();
    assert_eq!((place.mask, alt, after), (None, None, &[first][..]));
    assert_eq!(place.node, &buffer.at(&r));

    // A load of anything but an index has no view.
    let broken = UOp::new(Op::Load, DType::F32, [buffer.clone()].to_src(), Arg::None);
    assert!(broken.as_load().is_none());
}

#[test]
fn stores_reduces_and_ranges_have_names() {
    let out = UOp::define_global(0, 4, DType::F32);
    let input = UOp::define_global(1, 12, DType::F32);
    let (i, k) = (UOp::range(4, 0, AxisKind::Global), UOp::range(3, 1, AxisKind::Reduce));
    let body = input.at(&i * 3 + &k).load();
    let sum = body.fold(Fold::Add, std::slice::from_ref(&k));
    let store = out.at(&i).store(&sum, std::slice::from_ref(&i));

    let Store { place, value, ranges, .. } = store.expect_store();
    assert_eq!((place.buffer, value, ranges), (&out, &sum, &[i.clone()][..]));
    let Reduce { fold, axes, body: b, ranges, .. } = value.expect_reduce();
    assert_eq!((fold, axes, b, ranges), (Fold::Add, &[][..], &body, &[k.clone()][..]));
    let Range { extent, id, kind, .. } = k.expect_range();
    assert_eq!((extent.as_int(), id, kind), (Some(3), 1, AxisKind::Reduce));
    assert_eq!(k.end_range().expect_end_range().range.id, 1);
    assert_eq!(body.as_access().map(|a| (a.place.buffer, a.lanes)), Some((&input, 1)));
    assert_eq!(out.as_define_global().map(|g| (g.slot, g.len)), Some((0, 4)));
}

#[test]
#[should_panic(expected = "expected a node of the op Load")]
fn an_unexpected_op_panics() {
    UOp::int(3).expect_load();
}
