//! Every elementwise op has a definition for the interpreter and text in every language. A failure
//! names the file that lacks the op. `tests/autograd/ops.rs` does the same for gradients.

use picograd::dtype::{Const, DType};
use picograd::ir::{AxisKind, Group, Op, ToSrc, UOp, eval};
use picograd::render::{Clang, Cuda, Llvm, Metal, OpenCl, Renderer, Wgsl};
use picograd::target::Target;
use std::panic::catch_unwind;

/// The elementwise ops of users. Markers are removed before scheduling, and only lowering creates
/// machine division.
fn elementwise() -> impl Iterator<Item = Op> {
    let groups = |op: &Op| [Group::Unary, Group::Binary, Group::Ternary].iter().any(|g| op.is(*g));
    let made = |op: &Op| !op.is(Group::Mark) && !matches!(op, Op::CDiv | Op::CMod);
    Op::ALL.iter().copied().filter(move |op| groups(op) && made(op))
}

fn dtype(op: Op) -> DType {
    match op {
        Op::IDiv | Op::Shl | Op::Shr | Op::And | Op::Or | Op::Xor => DType::I32,
        _ => DType::F32,
    }
}

/// A kernel that applies the op to elements of its inputs.
fn kernel(op: Op) -> UOp {
    let t = dtype(op);
    let r = UOp::range(8, 0, AxisKind::Global);
    let load = |slot: usize| UOp::define_global(slot, 8, t).at(&r).load();
    let value = match op {
        Op::Where => load(1).lt(load(2)).select(load(1), &load(2)),
        Op::Fma => load(1).fma(&load(2), &load(3)),
        _ if op.is(Group::Unary) => load(1).unary(op),
        _ => load(1).binary(op, load(2)),
    };
    let out = UOp::define_global(0, 8, value.dtype());
    UOp::sink([out.at(&r).store(&value, std::slice::from_ref(&r))].to_src())
}

#[test]
fn every_op_is_defined_for_the_interpreter() {
    for op in elementwise() {
        let (t, one) = (dtype(op), Const::Int(1).cast(DType::I64, dtype(op)));
        let out = if op.is(Group::Comparison) { DType::BOOL } else { t };
        let first = if op == Op::Where { Const::Bool(true) } else { one };
        let args = [first, one, one];
        let value = catch_unwind(|| eval::alu(op, out, t, &args[..op.arity()]));
        assert!(value.is_ok(), "{op:?} has no case in src/ir/eval.rs");
    }
}

#[test]
fn every_op_has_text_in_every_language() {
    let renderers: [(&str, &str, Box<dyn Renderer>); 6] = [
        ("C", "src/render/cstyle", Box::new(Clang::new(Target::c(8, 64)))),
        ("LLVM", "src/render/llvm/alu.rs", Box::new(Llvm::new(Target::llvm(8, 64)))),
        ("OpenCL", "src/render/cstyle", Box::new(OpenCl::new())),
        ("CUDA", "src/render/cstyle", Box::new(Cuda::new("sm_90"))),
        ("Metal", "src/render/cstyle", Box::new(Metal::new())),
        ("WGSL", "src/render/wgsl/alu.rs", Box::new(Wgsl::new())),
    ];
    for op in elementwise() {
        for (language, file, renderer) in &renderers {
            let program = picograd::lower::lower(&kernel(op), renderer.target(), &mut |_, _| {});
            if let Err(e) = renderer.render("kernel", &program.uops) {
                panic!(
                    "{op:?} has no text in {language}: add it to {file}, or decompose it in \
                     src/lower/transcendental.rs: {e}"
                );
            }
        }
    }
}
