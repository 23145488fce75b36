//! Tests of the verifier of tensor graphs: good graphs, and one that breaks each rule.

use super::*;
use crate::dtype::Const;
use crate::ir::{DeviceName, Fold};
use crate::shape::Movement;
use crate::verify::tensor;

fn param(slot: usize, len: usize, dtype: DType) -> UOp {
    node(Op::Param, dtype, Src::new(), Arg::Param { slot, len, device: DeviceName::new("CPU") })
}
fn moved(x: &UOp, op: Op, m: Movement) -> UOp {
    node(op, x.dtype(), [x.clone()].to_src(), Arg::Movement(Box::new(m)))
}
fn reduce(x: &UOp, axes: &[usize]) -> UOp {
    x.reduced(Fold::Add, axes.iter().copied())
}
fn raw(op: Op, dtype: DType, src: &[&UOp]) -> UOp {
    node(op, dtype, src.iter().map(|s| (*s).clone()).collect::<Src>(), Arg::None)
}

#[test]
fn valid_graphs_pass() {
    let x = moved(&param(0, 6, DType::F32), Op::Reshape, Movement::reshape([2, 3]));
    let y = moved(&x, Op::Permute, Movement::permute([1, 0]));
    let z = moved(
        &moved(&y, Op::Pad, Movement::pad([(1, 0), (0, 0)])),
        Op::Shrink,
        Movement::shrink([(1, 4), (0, 2)]),
    );
    let sum = reduce(&(&(&y + &z) * 2.0f32), &[0, 1]);
    let masked = y.lt(0.0f32).select(&(&y * -1.0f32), &y);
    let out = raw(Op::Contiguous, DType::F32, &[&masked]);
    let copy = node(Op::Copy, DType::F32, [sum].to_src(), Arg::Device(DeviceName::new("CUDA")));
    let iota = node(Op::Iota, DType::I32, Src::new(), Arg::Iota { len: 4 });
    let bits =
        (&iota.cast(DType::U32) << 3i32).bitcast(DType::F32).unary(Op::Detach).unary(Op::Exp);
    let var = node(Op::Var, DType::I32, Src::new(), Arg::Var { name: "n".into(), min: 1, max: 9 });
    tensor(&UOp::sink([out, copy, bits, &iota + &var].to_src())).unwrap();
    let flip = moved(&x, Op::Flip, Movement::flip([true, false]));
    tensor(&moved(
        &moved(&flip, Op::Reshape, Movement::reshape([1, 6])),
        Op::Expand,
        Movement::expand([4, 6]),
    ))
    .unwrap();
}

#[test]
fn dtypes_are_checked() {
    let (f, i, b) = (param(0, 4, DType::F32), param(1, 4, DType::I32), param(2, 4, DType::BOOL));
    let d = param(3, 4, DType::F64);
    refused(tensor(&raw(Op::Add, DType::F32, &[&f, &d])), "operands have one dtype");
    refused(
        tensor(&raw(Op::Add, DType::F64, &[&f, &f])),
        "the result has the dtype of the operands",
    );
    refused(tensor(&raw(Op::Lt, DType::F32, &[&f, &f])), "the result of a comparison is a bool");
    refused(
        tensor(&raw(Op::Where, DType::F32, &[&i, &f, &f])),
        "the condition of a where is a bool",
    );
    refused(tensor(&raw(Op::Where, DType::F32, &[&b, &f, &d])), "both values of a where");
    refused(
        tensor(&raw(Op::Shl, DType::I32, &[&i, &i.cast(DType::U8)])),
        "operands have one dtype",
    );
    refused(tensor(&raw(Op::Shl, DType::F32, &[&f, &f])), "the op is for integers");
    refused(tensor(&raw(Op::Sqrt, DType::I32, &[&i])), "the op is for floats");
    refused(tensor(&raw(Op::And, DType::F32, &[&f, &f])), "integers and bools");
    refused(tensor(&raw(Op::Bitcast, DType::F64, &[&f])), "a bitcast keeps the width");
    refused(tensor(&raw(Op::Contiguous, DType::F64, &[&f])), "keeps the dtype");
    refused(tensor(&f.cast(DType::VOID)), "computes on values");
    refused(tensor(&param(0, 4, DType::INDEX)), "the dtype of one element");
    refused(
        tensor(&node(Op::Const, DType::U8, Src::new(), Arg::Const(Const::Int(300)))),
        "a literal is a value of its dtype",
    );
    refused(tensor(&node(Op::Iota, DType::BOOL, Src::new(), Arg::Iota { len: 3 })), "an iota");
    refused(
        tensor(&node(
            Op::Var,
            DType::I32,
            Src::new(),
            Arg::Var { name: "n".into(), min: 3, max: 2 },
        )),
        "min=3 is above max=2",
    );
}

/// Kernels read variables as `i32`, and sizes and places are not negative.
#[test]
fn variables_have_bounds() {
    let most = i64::from(i32::MAX);
    for (min, max) in [(-1, 2), (0, most + 1), (i64::MIN, i64::MAX)] {
        let arg = Arg::Var { name: "n".into(), min, max };
        refused(tensor(&node(Op::Var, DType::I64, Src::new(), arg)), "integer with bounds");
        let arg = Arg::BoundVar { name: "n".into(), min, max, value: 1 };
        refused(tensor(&node(Op::Var, DType::I64, Src::new(), arg)), "integer with bounds");
    }
    tensor(&node(
        Op::Var,
        DType::I64,
        Src::new(),
        Arg::BoundVar { name: "n".into(), min: 0, max: most, value: most },
    ))
    .unwrap();
    refused(
        tensor(&node(
            Op::Var,
            DType::I64,
            Src::new(),
            Arg::BoundVar { name: "n".into(), min: 0, max: 3, value: 4 },
        )),
        "value=4 is outside 0..=3",
    );
}

#[test]
fn shapes_are_checked() {
    let (x, y) = (param(0, 4, DType::F32), param(1, 5, DType::F32));
    refused(tensor(&(&x + &y)), "operands have one shape");
    refused(
        tensor(&moved(&x, Op::Reshape, Movement::reshape([5]))),
        "the payload fits the operands (reshape: [4] has 4",
    );
    refused(tensor(&moved(&x, Op::Expand, Movement::reshape([4]))), "expected expand, not reshape");
    refused(tensor(&raw(Op::Flip, DType::F32, &[&x])), "payload that the table of ops declares");
    refused(tensor(&reduce(&x, &[1])), "axes of a tensor of rank 1");
    let square = moved(&x, Op::Reshape, Movement::reshape([2, 2]));
    refused(tensor(&reduce(&square, &[1, 0])), "not ascending axes");
    refused(tensor(&reduce(&square, &[0, 0])), "not ascending axes");
    refused(tensor(&raw(Op::Reduce, DType::F32, &[&x])), "payload that the table of ops declares");
    refused(tensor(&raw(Op::Scan, DType::F32, &[&x])), "payload that the table of ops declares");
    refused(tensor(&x.scanned(Fold::Add, 7)), "axes of a tensor of rank 1");
    refused(tensor(&raw(Op::Cat, DType::F32, &[&x, &x])), "payload that the table of ops declares");
    refused(tensor(&UOp::cat([x.clone(), x.cast(DType::F16)].to_src(), 0)), "have its dtype");
}

#[test]
fn tensor_ops_are_checked() {
    let x = param(0, 4, DType::F32);
    refused(tensor(&UOp::define_global(0, 4, DType::F32)), "not allowed in a tensor graph");
    refused(tensor(&range(0, UOp::int(3), AxisKind::Loop)), "not allowed in a tensor graph");
    refused(tensor(&f32c(1.0).splat(4)), "no vectors");
    refused(tensor(&raw(Op::Copy, DType::F32, &[&x])), "payload that the table of ops declares");
    let two = DeviceName::new("CPU+CPU:1");
    tensor(&UOp::shards([x.clone(), param(1, 3, DType::F32)].to_src(), &two, Some(0))).unwrap();
    refused(
        tensor(&UOp::shards([x.clone(), param(1, 3, DType::F32)].to_src(), &two, None)),
        "differ in their axis alone",
    );
    refused(tensor(&UOp::shards([x.clone()].to_src(), &two, None)), "a device for each part");
    refused(
        tensor(&UOp::shards([x.clone(), param(1, 4, DType::I32)].to_src(), &two, None)),
        "one dtype",
    );
    refused(
        tensor(&UOp::shards([x.clone(), x.clone()].to_src(), &two, Some(1))),
        "axis 1 is out of range for rank 1",
    );
    refused(tensor(&raw(Op::Shards, DType::F32, &[&x])), "payload that the table of ops declares");
    refused(tensor(&raw(Op::Kernel, DType::VOID, &[&x])), "payload that the table of ops declares");
    refused(
        tensor(&node(Op::Output, DType::F32, [x.clone()].to_src(), Arg::Output(0))),
        "an output is of a kernel or a loop",
    );
    let sink = UOp::sink([x].to_src());
    refused(tensor(&UOp::sink([sink].to_src())), "only the root is a sink");
    refused(
        tensor(&UOp::sink([node(Op::Barrier, DType::VOID, Src::new(), Arg::None)].to_src())),
        "not allowed",
    );
}
