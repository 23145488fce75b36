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
fn valid_kernels_pass() {
    let (out, x) = (UOp::define_global(0, 4, DType::F32), UOp::define_global(1, 12, DType::F32));
    let (r, k) = (loops(4), range(1, UOp::int(3), AxisKind::Reduce));
    let sum = reduce(&x.at(&(&(&r * 3i64) + &k)).load(), std::slice::from_ref(&k));
    kernel(&sink(out.at(&r).store(&sum, std::slice::from_ref(&r)))).unwrap();
    // Padded, masked, converted, in lanes.
    let valid = r.ge(1i64);
    let masked = node(
        Op::Load,
        DType::F32,
        [masked(&x, &(&r + -1i64), &valid), f32c(0.0)].to_src(),
        Arg::None,
    );
    let value = masked.unary(Op::Exp).cast(DType::F16).cast(DType::F32);
    kernel(&sink(out.at(&r).store(&value, std::slice::from_ref(&r)))).unwrap();
    // Through shared memory, with lowered indices.
    let tmp = UOp::define_shared(0, 4, DType::F32);
    let l = special(SpecialKind::Local, 0, 4);
    let put = tmp.at(&l).store(x.at(&l).load(), &[]);
    let barrier = node(Op::Barrier, DType::VOID, [put].to_src(), Arg::None);
    let get = node(Op::Load, DType::F32, [tmp.at(i32c(0)), barrier].to_src(), Arg::None);
    kernel(&sink(out.at(&l).store(&get, &[]))).unwrap();
}

#[test]
fn scans_close_an_ordered_range() {
    let (out, x) = (UOp::define_global(0, 12, DType::F32), UOp::define_global(1, 12, DType::F32));
    let (r, k) = (loops(4), range(1, UOp::int(3), AxisKind::Ordered));
    let at = &(&r * 3i64) + &k;
    let arg = || Arg::Reduce { fold: Fold::Add, axes: Default::default() };
    let scan =
        |along: &UOp| node(Op::Scan, DType::F32, [x.at(&at).load(), along.clone()].to_src(), arg());
    kernel(&sink(out.at(&at).store(scan(&k), &[r.clone(), k.clone()]))).unwrap();
    // The accumulator is initialized before its loop, so that no other loop may be inside.
    refused(kernel(&sink(out.at(&at).store(scan(&k), &[k.clone(), r.clone()]))), "the innermost");
    refused(
        kernel(&sink(out.at(&at).store(scan(&r), &[k.clone(), r.clone()]))),
        "along one ordered range",
    );
    let bare = node(Op::Scan, DType::F32, [x.at(&at).load()].to_src(), arg());
    refused(kernel(&sink(out.at(&at).store(&bare, &[r, k]))), "along one ordered range");
}

#[test]
fn ranges_are_closed_once() {
    let (out, x) = (UOp::define_global(0, 4, DType::F32), UOp::define_global(1, 12, DType::F32));
    let r = loops(4);
    let at = out.at(&r);
    refused(
        kernel(&sink(at.store(f32c(0.0), &[]))),
        "every range is closed by a store or a reduction above its users (range 0 is not)",
    );
    let twin = range(0, UOp::int(5), AxisKind::Loop);
    let both = x.at(&(&r + &twin)).load();
    refused(kernel(&sink(at.store(&both, &[r.clone(), twin]))), "a number belongs to one range");
    let plain = reduce(&x.at(&r).load(), std::slice::from_ref(&r));
    refused(
        kernel(&sink(out.at(UOp::int(0)).store(&plain, &[]))),
        "a reduction is over ranges of a reduction kind",
    );
    let constant = reduce(&f32c(1.0), &[UOp::int(3)]);
    refused(
        kernel(&sink(at.store(&constant, std::slice::from_ref(&r)))),
        "a reduction is over ranges of a reduction kind",
    );
    let axes = node(
        Op::Reduce,
        DType::F32,
        [f32c(1.0)].to_src(),
        Arg::Reduce { fold: Fold::Max, axes: [0].as_slice().into() },
    );
    refused(kernel(&sink(at.store(&axes, std::slice::from_ref(&r)))), "ranges and no axes");
    refused(kernel(&sink(at.store(f32c(0.0), &[r.clone(), UOp::int(1)]))), "a store closes ranges");
    let float = range(1, f32c(3.0), AxisKind::Loop);
    refused(kernel(&sink(at.store(f32c(0.0), &[r, float]))), "a range counts in the integer dtype");
}

#[test]
fn accesses_are_checked() {
    let out = UOp::define_global(0, 4, DType::F32);
    let r = loops(4);
    let closed = [r.clone()];
    let at = out.at(&r);
    refused(
        kernel(&sink(at.store(UOp::constant(1, DType::I32), &closed))),
        "a stored value has the dtype of its buffer",
    );
    let wide = node(Op::Load, DType::F64, [at.clone()].to_src(), Arg::None);
    refused(
        kernel(&sink(at.store(wide.cast(DType::F32), &closed))),
        "a load has the dtype of its buffer",
    );
    let bare = node(Op::Load, DType::F32, [f32c(0.0)].to_src(), Arg::None);
    refused(kernel(&sink(at.store(&bare, &closed))), "a load reads an index");
    refused(
        kernel(&sink(out.at(f32c(0.0)).store(f32c(0.0), &[]))),
        "an index is an integer scalar",
    );
    refused(
        kernel(&sink(out.at(UOp::int(0).splat(4)).store(f32c(0.0), &[]))),
        "an index is an integer scalar",
    );
    refused(
        kernel(&sink(masked(&out, &r, &r).store(f32c(0.0), &closed))),
        "the mask of an index is a bool",
    );
    refused(
        kernel(&sink(f32c(0.0).at(&r).store(f32c(0.0), &closed))),
        "an index is of global or shared memory",
    );
    let alt = node(
        Op::Load,
        DType::F32,
        [masked(&out, &r, &r.lt(2i64)), UOp::int(0)].to_src(),
        Arg::None,
    );
    refused(kernel(&sink(at.store(&alt, &closed))), "alternative value of a masked load");
    let twin = UOp::define_global(0, 5, DType::F32).at(&r).load();
    refused(kernel(&sink(at.store(&twin, &closed))), "a number belongs to one range, one slot");
    refused(
        kernel(&sink(UOp::define_global(0, 4, DType::F32.vec(4)).at(&r).store(f32c(0.0), &closed))),
        "the dtype of one element",
    );
}

#[test]
fn kernel_ops_are_checked() {
    let (out, r) = (UOp::define_global(0, 4, DType::F32), loops(4));
    let at = out.at(&r);
    let param = node(
        Op::Param,
        DType::F32,
        Src::new(),
        Arg::Param { slot: 0, len: 4, device: crate::ir::DeviceName::new("CPU") },
    );
    let contiguous = node(Op::Contiguous, DType::F32, [f32c(1.0)].to_src(), Arg::None);
    for x in [param, contiguous, f32c(1.0).unary(Op::Detach)] {
        refused(kernel(&sink(at.store(&x, std::slice::from_ref(&r)))), "not allowed in this stage");
    }
    refused(kernel(&f32c(0.0)), "the root of a kernel is a sink");
    refused(kernel(&sink(f32c(0.0))), "sink of a kernel are stores");
    let mixed = node(Op::Add, DType::F32, [f32c(1.0), UOp::int(1)].to_src(), Arg::None);
    refused(kernel(&sink(at.store(&mixed, &[r]))), "operands have one dtype");
}
