//! Tests of the verifiers: good graphs pass, and each rule rejects a graph that breaks it.

mod bounds;
mod kernel;
mod program;
mod tensor;

use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, SpecialKind, Src, ToSrc, UOp};

/// Asserts that a verifier rejected the graph for this reason.
#[track_caller]
fn refused(verdict: Result<(), String>, reason: &str) {
    match verdict {
        Ok(()) => panic!("accepted, though {reason:?} is broken"),
        Err(e) => assert!(e.contains(reason), "refused, but not for {reason:?}: {e}"),
    }
}

fn node(op: Op, dtype: DType, src: impl Into<Src>, arg: Arg) -> UOp {
    UOp::new(op, dtype, src, arg)
}
fn masked(buf: &UOp, idx: &UOp, mask: &UOp) -> UOp {
    node(Op::Index, buf.dtype(), [buf.clone(), idx.clone(), mask.clone()].to_src(), Arg::None)
}
fn range(id: u32, extent: UOp, kind: AxisKind) -> UOp {
    node(Op::Range, extent.dtype(), [extent].to_src(), Arg::Range { id, kind, lanes: false })
}
fn special(kind: SpecialKind, dim: u8, extent: usize) -> UOp {
    node(Op::Special, DType::I32, Src::new(), Arg::Special { kind, dim, extent })
}
fn i32c(v: i32) -> UOp {
    UOp::constant(v, DType::I32)
}
fn f32c(v: f32) -> UOp {
    UOp::constant(v, DType::F32)
}
fn open_if(cond: &UOp) -> UOp {
    node(Op::If, DType::VOID, [cond.clone()].to_src(), Arg::None)
}
fn end_if(open: &UOp) -> UOp {
    node(Op::EndIf, DType::VOID, [open.clone()].to_src(), Arg::None)
}
