//! Tests of the verifier of kernels: good kernels, and one that breaks each rule.

use super::*;
use crate::ir::Fold;
use crate::verify::kernel;

fn reduce(x: &UOp, ranges: &[UOp]) -> UOp {
    let src: Src = [x.clone()].into_iter().chain(ranges.iter().cloned()).collect();
    node(Op::Reduce, x.dtype(), src, Arg::Reduce { fold: Fold::Add, axes: Default::default() })
}
fn loops(n: i64) -> UOp {
    range(0, UOp::int(n), AxisKind::Loop)
}
fn sink(x: UOp) -> UOp {
    UOp::sink([x].to_src())
}

#[test]
fn good() {
    let (out, x) = (global(0, 4, DType::F32), global(1, 12, DType::F32));
    let (r, k) = (loops(4), range(1, UOp::int(3), AxisKind::Reduce));
    let sum = reduce(&load(&index(&x, &(&(&r * 3i64) + &k))), std::slice::from_ref(&k));
    kernel(&sink(store(&index(&out, &r), &sum, std::slice::from_ref(&r)))).unwrap();
    // Padded, masked, converted, in lanes.
    let valid = r.ge(1i64);
    let masked = node(
        Op::Load,
        DType::F32,
        [masked(&x, &(&r + -1i64), &valid), f32c(0.0)].to_src(),
        Arg::None,
    );
    let value = masked.unary(Op::Exp).cast(DType::F16).cast(DType::F32);
    kernel(&sink(store(&index(&out, &r), &value, std::slice::from_ref(&r)))).unwrap();
    // Through shared memory, with lowered indices.
    let tmp = shared(0, 4, DType::F32);
    let l = special(SpecialKind::Local, 0, 4);
    let put = store(&index(&tmp, &l), &load(&index(&x, &l)), &[]);
    let barrier = node(Op::Barrier, DType::VOID, [put].to_src(), Arg::None);
    let get = node(Op::Load, DType::F32, [index(&tmp, &i32c(0)), barrier].to_src(), Arg::None);
    kernel(&sink(store(&index(&out, &l), &get, &[]))).unwrap();
}

#[test]
fn scans() {
    let (out, x) = (global(0, 12, DType::F32), global(1, 12, DType::F32));
    let (r, k) = (loops(4), range(1, UOp::int(3), AxisKind::Ordered));
    let at = &(&r * 3i64) + &k;
    let arg = || Arg::Reduce { fold: Fold::Add, axes: Default::default() };
    let scan = |along: &UOp| {
        node(Op::Scan, DType::F32, [load(&index(&x, &at)), along.clone()].to_src(), arg())
    };
    kernel(&sink(store(&index(&out, &at), &scan(&k), &[r.clone(), k.clone()]))).unwrap();
    // The accumulator is initialized before its loop, so that no other loop may be inside.
    refused(
        kernel(&sink(store(&index(&out, &at), &scan(&k), &[k.clone(), r.clone()]))),
        "the innermost",
    );
    refused(
        kernel(&sink(store(&index(&out, &at), &scan(&r), &[k.clone(), r.clone()]))),
        "along one ordered range",
    );
    let bare = node(Op::Scan, DType::F32, [load(&index(&x, &at))].to_src(), arg());
    refused(kernel(&sink(store(&index(&out, &at), &bare, &[r, k]))), "along one ordered range");
}

#[test]
fn ranges() {
    let (out, x) = (global(0, 4, DType::F32), global(1, 12, DType::F32));
    let r = loops(4);
    let at = index(&out, &r);
    refused(
        kernel(&sink(store(&at, &f32c(0.0), &[]))),
        "every range is closed by a store or a reduction above its users (range 0 is not)",
    );
    let twin = range(0, UOp::int(5), AxisKind::Loop);
    let both = load(&index(&x, &(&r + &twin)));
    refused(kernel(&sink(store(&at, &both, &[r.clone(), twin]))), "a number belongs to one range");
    let plain = reduce(&load(&index(&x, &r)), std::slice::from_ref(&r));
    refused(
        kernel(&sink(store(&index(&out, &UOp::int(0)), &plain, &[]))),
        "a reduction is over ranges of a reduction kind",
    );
    let constant = reduce(&f32c(1.0), &[UOp::int(3)]);
    refused(
        kernel(&sink(store(&at, &constant, std::slice::from_ref(&r)))),
        "a reduction is over ranges of a reduction kind",
    );
    let axes = node(
        Op::Reduce,
        DType::F32,
        [f32c(1.0)].to_src(),
        Arg::Reduce { fold: Fold::Max, axes: [0].as_slice().into() },
    );
    refused(kernel(&sink(store(&at, &axes, std::slice::from_ref(&r)))), "ranges and no axes");
    refused(
        kernel(&sink(store(&at, &f32c(0.0), &[r.clone(), UOp::int(1)]))),
        "a store closes ranges",
    );
    let float = range(1, f32c(3.0), AxisKind::Loop);
    refused(
        kernel(&sink(store(&at, &f32c(0.0), &[r, float]))),
        "a range counts in the integer dtype",
    );
}

#[test]
fn memory() {
    let out = global(0, 4, DType::F32);
    let r = loops(4);
    let closed = [r.clone()];
    let at = index(&out, &r);
    refused(
        kernel(&sink(store(&at, &UOp::constant(1, DType::I32), &closed))),
        "a stored value has the dtype of its buffer",
    );
    let wide = node(Op::Load, DType::F64, [at.clone()].to_src(), Arg::None);
    refused(
        kernel(&sink(store(&at, &wide.cast(DType::F32), &closed))),
        "a load has the dtype of its buffer",
    );
    let bare = node(Op::Load, DType::F32, [f32c(0.0)].to_src(), Arg::None);
    refused(kernel(&sink(store(&at, &bare, &closed))), "a load reads an index");
    refused(
        kernel(&sink(store(&index(&out, &f32c(0.0)), &f32c(0.0), &[]))),
        "an index is an integer scalar",
    );
    refused(
        kernel(&sink(store(&index(&out, &UOp::int(0).splat(4)), &f32c(0.0), &[]))),
        "an index is an integer scalar",
    );
    refused(
        kernel(&sink(store(&masked(&out, &r, &r), &f32c(0.0), &closed))),
        "the mask of an index is a bool",
    );
    refused(
        kernel(&sink(store(&index(&f32c(0.0), &r), &f32c(0.0), &closed))),
        "an index is of global or shared memory",
    );
    let alt = node(
        Op::Load,
        DType::F32,
        [masked(&out, &r, &r.lt(2i64)), UOp::int(0)].to_src(),
        Arg::None,
    );
    refused(kernel(&sink(store(&at, &alt, &closed))), "alternative value of a masked load");
    let twin = load(&index(&global(0, 5, DType::F32), &r));
    refused(kernel(&sink(store(&at, &twin, &closed))), "a number belongs to one range, one slot");
    refused(
        kernel(&sink(store(&index(&global(0, 4, DType::F32.vec(4)), &r), &f32c(0.0), &closed))),
        "the dtype of one element",
    );
}

#[test]
fn ops() {
    let (out, r) = (global(0, 4, DType::F32), loops(4));
    let at = index(&out, &r);
    let param = node(
        Op::Param,
        DType::F32,
        Src::new(),
        Arg::Param { slot: 0, len: 4, device: crate::ir::DeviceName::new("CPU") },
    );
    let contiguous = node(Op::Contiguous, DType::F32, [f32c(1.0)].to_src(), Arg::None);
    for x in [param, contiguous, f32c(1.0).unary(Op::Detach)] {
        refused(
            kernel(&sink(store(&at, &x, std::slice::from_ref(&r)))),
            "not allowed in this stage",
        );
    }
    refused(kernel(&f32c(0.0)), "the root of a kernel is a sink");
    refused(kernel(&sink(f32c(0.0))), "sink of a kernel are stores");
    let mixed = node(Op::Add, DType::F32, [f32c(1.0), UOp::int(1)].to_src(), Arg::None);
    refused(kernel(&sink(store(&at, &mixed, &[r]))), "operands have one dtype");
}
