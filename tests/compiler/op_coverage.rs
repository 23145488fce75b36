//! Every op of a linear program has a case in the interpreter and text in every language: each
//! elementwise op in every dtype that the table of ops allows, the others in a program. A failure
//! names the file that lacks the op. `tests/autograd/ops.rs` does the same for gradients.

use picograd::device::interp::{Interp, Memory};
use picograd::dtype::{Const, DType};
use picograd::ir::{AxisKind, Group, Op, ToSrc, UOp, eval, parse_program};
use picograd::render::{Clang, Cuda, Llvm, Metal, OpenCl, Renderer, Wgsl};
use picograd::target::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An elementwise op with the dtypes of its operands and its result. The condition of a `Where` is
/// a bool.
#[derive(Clone, Copy, Debug)]
struct Form {
    op: Op,
    from: DType,
    to: DType,
}

/// Every elementwise op in every dtype. Marks are removed before scheduling.
fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for &op in Op::ALL.iter().filter(|op| op.is_alu() && !op.is(Group::Mark)) {
        for &from in DType::ALL.iter().filter(|t| op.on().has(**t)) {
            let results: Vec<DType> = match op {
                Op::Cast => DType::ALL.to_vec(),
                Op::Bitcast => {
                    DType::ALL.iter().copied().filter(|to| to.bits() == from.bits()).collect()
                }
                _ if op.is(Group::Comparison) => vec![DType::BOOL],
                _ => vec![from],
            };
            forms.extend(results.into_iter().map(|to| Form { op, from, to }));
        }
    }
    forms
}

/// A kernel that applies the op to elements of its inputs.
fn kernel(form: Form) -> UOp {
    let Form { op, from, to } = form;
    let r = UOp::range(8, 0, AxisKind::Global);
    let load = |slot: usize, dtype| UOp::define_global(slot, 8, dtype).at(&r).load();
    let operands = (0..op.arity()).map(|i| match (op, i) {
        (Op::Where, 0) => load(1, DType::BOOL),
        _ => load(i + 1, from),
    });
    let value = UOp::new(op, to, operands.collect::<Vec<_>>(), picograd::ir::Arg::None);
    let out = UOp::define_global(0, 8, to);
    UOp::sink([out.at(&r).store(&value, std::slice::from_ref(&r))].to_src())
}

/// A language: its renderer, and the files with the text of casts, of elementwise ops on floats, of
/// those on integers and bools, and of the other ops.
struct Language {
    renderer: Box<dyn Renderer>,
    files: [&'static str; 4],
}

fn languages() -> Vec<Language> {
    let language = |renderer: Box<dyn Renderer>, files| Language { renderer, files };
    let c_family = |own| {
        ["src/render/cstyle/cast.rs", own, "src/render/cstyle/expr.rs", "src/render/cstyle/mod.rs"]
    };
    let llvm = [
        "src/render/llvm/cast.rs",
        "src/render/llvm/alu.rs",
        "src/render/llvm/alu.rs",
        "src/render/llvm/mod.rs",
    ];
    let wgsl = [
        "src/render/wgsl/cast.rs",
        "src/render/wgsl/exact.rs",
        "src/render/wgsl/alu.rs",
        "src/render/wgsl/mod.rs",
    ];
    vec![
        language(Box::new(Clang::new(Target::c(64))), c_family("src/render/cstyle/clang.rs")),
        language(Box::new(OpenCl::new()), c_family("src/render/cstyle/opencl.rs")),
        language(Box::new(Cuda::new("sm_90")), c_family("src/render/cstyle/cuda.rs")),
        language(Box::new(Metal::new()), c_family("src/render/cstyle/metal.rs")),
        language(Box::new(Llvm::new(Target::llvm(64))), llvm),
        language(Box::new(Wgsl::new()), wgsl),
    ]
}

impl Language {
    /// The file with the text of an elementwise op.
    fn file(&self, form: Form) -> &'static str {
        let [casts, floats, bits, _] = self.files;
        match form.op {
            Op::Cast | Op::Bitcast => casts,
            _ if form.from.is_float() => floats,
            _ => bits,
        }
    }
    /// The reason why the language has no text for a program, if it has none.
    fn refuses(&self, uops: impl FnOnce() -> Vec<UOp>) -> Option<String> {
        let render = || self.renderer.render("kernel", &uops()).map(|_| ()).err();
        match catch_unwind(AssertUnwindSafe(render)) {
            Ok(error) => error.map(|e| e.to_string()),
            Err(_) => Some("panic".to_string()),
        }
    }
}

/// Fails with all messages.
#[track_caller]
fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_op_has_a_definition_in_every_dtype() {
    let mut failures = Vec::new();
    for Form { op, from, to } in forms() {
        let one = Const::Int(1).cast(DType::I64, from);
        let first = if op == Op::Where { Const::Bool(true) } else { one };
        let args = [first, one, one];
        let value = catch_unwind(|| eval::alu(op, to, from, &args[..op.arity()]));
        if value.is_err() {
            failures.push(format!("src/ir/eval.rs has no case for {op:?} of {from} to {to}"));
        }
    }
    report(&failures);
}

#[test]
fn every_elementwise_op_has_text_in_every_language_and_dtype() {
    let mut failures = Vec::new();
    for language in languages() {
        let target = language.renderer.target();
        for form in forms() {
            if target.lacks(form.from) || target.lacks(form.to) {
                continue;
            }
            let uops = || picograd::lower::lower(&kernel(form), target, &mut |_, _| {}).uops;
            if let Some(why) = language.refuses(uops) {
                let Form { op, from, to } = form;
                let (name, file) = (target.name, language.file(form));
                let lowering = if op.is(Group::Transcendental) {
                    "src/lower/transcendental.rs"
                } else {
                    "src/lower/decompose.rs"
                };
                failures.push(format!(
                    "{op:?} of {from} to {to} has no text in {name}: add it to {file}, or \
                     decompose it in {lowering}: {why}"
                ));
            }
        }
    }
    report(&failures);
}

/// A sum over a loop, stored under a condition.
const LOOP: &str = "
%0 = DefineGlobal f32 {slot=0 len=4}
%1 = DefineGlobal f32 {slot=1 len=8}
%2 = Special i32 {kind=KIND dim=0 extent=4}
%3 = DefineAcc f32x2 0.0:f32x2 {acc=0}
%4 = Range i32 8:i32 {id=0 kind=Loop}
  %5 = Index f32 %1, %4
  %6 = Load f32 %5
  %7 = Vectorize f32x2 %6, %6
  %8 = Add f32x2 %3, %7
  %9 = Assign f32x2 %3, %8
%10 = EndRange void %4
%11 = Lt bool %2, 2:i32
%12 = If void %11
  %13 = Index f32 %0, %2
  %14 = Gep f32 %9 {lanes [1]}
  %15 = Store void %13, %14
%16 = EndIf void %12
";

/// A value that the threads of a workgroup exchange through shared memory.
const SHARED: &str = "
%0 = DefineGlobal f32 {slot=0 len=4}
%1 = DefineShared f32 {id=0 len=4}
%2 = Special i32 {kind=Local dim=0 extent=4}
%3 = Index f32 %1, %2
%4 = Store void %3, 2.0:f32
%5 = Barrier void %4
%6 = Index f32 %1, 0:i32
%7 = Load f32 %6, %5
%8 = Index f32 %0, %2
%9 = Store void %8, %7
";

/// A value that the threads of a warp exchange.
const SHUFFLE: &str = "
%0 = DefineGlobal i32 {slot=0 len=32}
%1 = Special i32 {kind=Local dim=0 extent=32}
%2 = Shuffle i32 %1 {xor=16}
%3 = Index i32 %0, %1
%4 = Store void %3, %2
";

/// A product of matrices.
const WMMA: &str = "
%0 = DefineGlobal f32 {slot=0 len=128}
%1 = Special i32 {kind=Local dim=0 extent=32}
%2 = Vectorize f16x8 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16
%3 = Vectorize f16x4 1.0:f16, 1.0:f16, 1.0:f16, 1.0:f16
%4 = Wmma f32x4 %2, %3, 0.0:f32x4 {core=m16n8k16_f16_f32 lanes=[4,5]}
%5 = Mul i32 %1, 4:i32
%6 = Index f32 %0, %5
%7 = Store void %6, %4
";

/// The programs that a target runs, which together have every op of linear programs that it has.
fn programs(target: &Target) -> Vec<Vec<UOp>> {
    let mut texts = vec![LOOP.replace("KIND", if target.grid { "Group" } else { "Thread" })];
    let optional = [
        (target.grid, SHARED),
        (target.warp > 0, SHUFFLE),
        (!target.tensor_cores.is_empty(), WMMA),
    ];
    texts.extend(optional.iter().filter(|o| o.0).map(|o| o.1.to_string()));
    texts.iter().map(|text| parse_program(text).expect("a program")).collect()
}

/// The ops of linear programs that are not elementwise: those that the table of ops has behind
/// `DefineGlobal`, except for what lowering removes.
fn instructions() -> impl Iterator<Item = Op> {
    let all = Op::ALL.iter().copied().filter(|op| *op >= Op::DefineGlobal);
    all.filter(|op| !matches!(op, Op::Source | Op::Sink) && !op.is(Group::Mark) && !op.is_alu())
}

#[test]
fn the_programs_have_every_instruction() {
    let programs = programs(&Target::interp());
    for op in instructions() {
        let has = programs.iter().flatten().any(|u| u.op() == op);
        assert!(has, "tests/compiler/op_coverage.rs has no program with {op:?}");
    }
}

#[test]
fn every_instruction_runs_in_the_interpreter() {
    for uops in programs(&Target::interp()) {
        let run = || {
            let program = Interp::compile(&uops).map_err(|e| e.to_string())?;
            let mut bytes = vec![vec![0u8; 512]; 2];
            let count = uops.iter().filter(|u| u.op() == Op::DefineGlobal).count();
            let memory: Vec<Memory> =
                bytes.iter_mut().take(count).map(|b| Memory::new(b)).collect();
            let launch = program.launch();
            program
                .run(&memory, launch.grid, launch.local, launch.chunks)
                .map_err(|e| e.to_string())
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err("panic".to_string()));
        assert_eq!(
            result,
            Ok(()),
            "src/device/interp/compile.rs or machine.rs lacks an op of\n{}",
            picograd::ir::print_program(&uops)
        );
    }
}

#[test]
fn every_instruction_has_text_in_every_language() {
    let mut failures = Vec::new();
    for language in languages() {
        let (target, [.., file]) = (language.renderer.target(), language.files);
        for uops in programs(target) {
            let text = picograd::ir::print_program(&uops);
            if let Some(why) = language.refuses(|| uops) {
                failures.push(format!(
                    "{file} lacks an op of a program in {}: {why}\n{text}",
                    target.name
                ));
            }
        }
    }
    report(&failures);
}
