//! Source text of kernels in every language, against `tests/golden/<case>.txt`, which has a section
//! per language. `BLESS=1` rewrites the files.

use picograd::dtype::{Const, DType};
use picograd::error::Error;
use picograd::ir::{Arg, AxisKind, Op, SpecialKind, Src, UOp};
use picograd::render::{Clang, Cuda, Llvm, Metal, OpenCl, Renderer, Wgsl};
use picograd::target::Target;
use smallvec::smallvec;
use std::path::Path;

/// A builder of linear programs; each method adds a node and returns it.
#[derive(Default)]
struct Program(Vec<UOp>);

impl Program {
    /// Adds a node after its operands.
    fn add(&mut self, u: UOp) -> UOp {
        for n in u.toposort() {
            if n.op() != Op::Const && !self.0.contains(&n) {
                self.0.push(n);
            }
        }
        u
    }
    fn node(&mut self, op: Op, dtype: DType, src: impl Into<Src>, arg: Arg) -> UOp {
        self.add(UOp::new(op, dtype, src, arg))
    }
    fn arg(&mut self, dtype: DType, slot: usize, len: usize) -> UOp {
        self.node(Op::DefineGlobal, dtype, smallvec![], Arg::Global { slot, len })
    }
    fn local(&mut self, dtype: DType, len: usize) -> UOp {
        self.node(Op::DefineShared, dtype, smallvec![], Arg::Shared { id: 0, len })
    }
    fn special(&mut self, kind: SpecialKind, dim: u8, extent: usize) -> UOp {
        self.node(Op::Special, DType::I32, smallvec![], Arg::Special { kind, dim, extent })
    }
    fn range(&mut self, id: u32, extent: i64) -> UOp {
        self.node(
            Op::Range,
            DType::I32,
            smallvec![UOp::constant(extent, DType::I32)],
            Arg::Range { id, kind: AxisKind::Loop, lanes: false },
        )
    }
    fn end(&mut self, range: &UOp) {
        self.node(Op::EndRange, DType::VOID, smallvec![range.clone()], Arg::None);
    }
    fn load(&mut self, buf: &UOp, idx: &UOp, lanes: u16) -> UOp {
        let index =
            UOp::new(Op::Index, buf.dtype(), smallvec![buf.clone(), idx.clone()], Arg::None);
        self.node(Op::Load, buf.dtype().vec(lanes), smallvec![index], Arg::None)
    }
    fn gated_load(&mut self, buf: &UOp, idx: &UOp, valid: &UOp, alt: f64) -> UOp {
        let index = UOp::new(
            Op::Index,
            buf.dtype(),
            smallvec![buf.clone(), idx.clone(), valid.clone()],
            Arg::None,
        );
        let alt = UOp::constant(alt, buf.dtype());
        self.node(Op::Load, buf.dtype(), smallvec![index, alt], Arg::None)
    }
    fn store(&mut self, buf: &UOp, idx: &UOp, value: &UOp) {
        let index =
            UOp::new(Op::Index, buf.dtype(), smallvec![buf.clone(), idx.clone()], Arg::None);
        self.node(Op::Store, DType::VOID, smallvec![index, value.clone()], Arg::None);
    }
    fn acc(&mut self, id: u32, init: &UOp) -> UOp {
        self.node(Op::DefineAcc, init.dtype(), smallvec![init.clone()], Arg::Acc(id))
    }
    fn assign(&mut self, acc: &UOp, value: &UOp) -> UOp {
        self.node(Op::Assign, acc.dtype(), smallvec![acc.clone(), value.clone()], Arg::None)
    }
}

fn int(v: i64) -> UOp {
    UOp::constant(v, DType::I32)
}

/// The outermost axis of a case: a workgroup on a GPU, a loop in C.
fn outer(p: &mut Program, gpu: bool, extent: usize) -> UOp {
    p.special(if gpu { SpecialKind::Group } else { SpecialKind::Thread }, 0, extent)
}

/// `CONST` and `ADD`, built by hand.
fn const_add(_: bool) -> Vec<UOp> {
    let one = UOp::constant(1.0, DType::F32);
    let add = &one + &one;
    vec![one, add]
}

fn special(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let kind = if gpu { SpecialKind::Group } else { SpecialKind::Thread };
    p.special(kind, 0, 16);
    p.special(kind, 1, 16);
    p.0
}

/// Adds two arrays, one element per iteration.
fn add_scalar(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a, b) =
        (p.arg(DType::F32, 0, 16), p.arg(DType::F32, 1, 16), p.arg(DType::F32, 2, 16));
    let at = outer(&mut p, gpu, 16);
    let (x, y) = (p.load(&a, &at, 1), p.load(&b, &at, 1));
    p.store(&out, &at, &(x + y));
    p.0
}

/// Stores a sum of constants to every element.
fn store_constant(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let out = p.arg(DType::F32, 0, 16);
    let at = outer(&mut p, gpu, 16);
    let half = UOp::constant(0.5, DType::F32);
    let sum = p.add(&half + &half);
    p.store(&out, &at, &sum);
    p.0
}

/// Adds two arrays, four elements per iteration.
fn add_float4(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a, b) =
        (p.arg(DType::F32, 0, 16), p.arg(DType::F32, 1, 16), p.arg(DType::F32, 2, 16));
    let at = if gpu { p.special(SpecialKind::Local, 0, 4) } else { outer(&mut p, gpu, 4) };
    let idx = p.add(at << 2);
    let (x, y) = (p.load(&a, &idx, 4), p.load(&b, &idx, 4));
    p.store(&out, &idx, &(x + y));
    p.0
}

/// Adds two arrays without known alignment, with a vector width that no language has.
fn add_unaligned(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 64), p.arg(DType::F32, 1, 65));
    let at = outer(&mut p, gpu, 4);
    let idx = p.add(&at * 4);
    let x = p.load(&a, &(&idx + 1), 4);
    p.store(&out, &idx, &(&x * &x));
    let idx = p.add(at * 5 + 20);
    let y = p.load(&a, &idx, 5);
    p.store(&out, &idx, &(&y + &y));
    p.0
}

fn reduce(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 16), p.arg(DType::F32, 1, 512));
    let row = outer(&mut p, gpu, 16);
    let acc = p.acc(0, &UOp::constant(0.0, DType::F32));
    let col = p.range(0, 32);
    let x = p.load(&a, &(&row * 32 + &col), 1);
    let sum = p.assign(&acc, &(&acc + &x));
    p.end(&col);
    let mean = &sum * (1.0f32 / 32.0);
    p.store(&out, &row, &(&mean + -1.0f32));
    p.0
}

/// Two accumulators of which the second reads the old value of the first, and a loop-invariant
/// product.
fn two_accumulators(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 2), p.arg(DType::F32, 1, 8));
    let at = outer(&mut p, gpu, 1);
    let zero = UOp::constant(0.0, DType::F32);
    let (first, second) = (p.acc(0, &zero), p.acc(1, &zero));
    let scale = p.load(&a, &at, 1);
    let squared = p.add(&scale * &scale);
    let r = p.range(0, 8);
    let x = p.load(&a, &r, 1);
    let before = p.add(&first * 2.0f32);
    let one = p.assign(&first, &(&first + &x));
    let two = p.assign(&second, &(&second + before * &squared));
    p.end(&r);
    p.store(&out, &int(0), &one);
    p.store(&out, &int(1), &two);
    p.0
}

fn gated_load(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 16), p.arg(DType::F32, 1, 12));
    let at = outer(&mut p, gpu, 16);
    let inside = at.ge(2).and(at.lt(14));
    let x = p.gated_load(&a, &(&at + -2), &inside, f64::NEG_INFINITY);
    p.store(&out, &at, &x);
    p.0
}

fn gated_store(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 10), p.arg(DType::F32, 1, 16));
    let at = outer(&mut p, gpu, 16);
    let x = p.load(&a, &at, 1);
    let inside = p.add(at.lt(10));
    let open = p.node(Op::If, DType::VOID, smallvec![inside], Arg::None);
    p.store(&out, &at, &x.binary(Op::Max, 0.0f32));
    p.node(Op::EndIf, DType::VOID, smallvec![open], Arg::None);
    p.0
}

/// A workgroup sum through shared memory.
fn local_reduce(_: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 8), p.arg(DType::F32, 1, 128));
    let temp = p.local(DType::F32, 16);
    let (group, local) =
        (p.special(SpecialKind::Group, 0, 8), p.special(SpecialKind::Local, 0, 16));
    let x = p.load(&a, &(&group * 16 + &local), 1);
    p.store(&temp, &local, &x);
    let barrier = p.node(Op::Barrier, DType::VOID, smallvec![], Arg::None);
    let first = p.add(local.equals(0));
    let open = p.node(Op::If, DType::VOID, smallvec![first], Arg::None);
    let acc = p.acc(0, &UOp::constant(0.0, DType::F32));
    let r = p.range(0, 16);
    let index = UOp::new(Op::Index, DType::F32, smallvec![temp, r.clone()], Arg::None);
    let y = p.node(Op::Load, DType::F32, smallvec![index, barrier], Arg::None);
    let sum = p.assign(&acc, &(&acc + y));
    p.end(&r);
    p.store(&out, &group, &sum);
    p.node(Op::EndIf, DType::VOID, smallvec![open], Arg::None);
    p.0
}

/// Loads, computes and stores each dtype, through f32 if it has no arithmetic.
fn every_dtype(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let at = outer(&mut p, gpu, 16);
    for (slot, t) in DType::ALL.iter().enumerate().filter(|(_, t)| **t != DType::F64) {
        let buf = p.arg(*t, slot, 16);
        let x = p.load(&buf, &at, 1);
        let y = if t.is_bool() {
            x.not()
        } else if t.is_float() && *t != DType::F32 {
            (x.cast(DType::F32) + 1.0f32).cast(*t)
        } else {
            x + if t.is_float() { Const::Float(1.0) } else { Const::Int(1) }
        };
        p.store(&buf, &at, &y);
    }
    p.0
}

fn casts(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let at = outer(&mut p, gpu, 16);
    let source = p.arg(DType::F32, 0, 16);
    let x = p.load(&source, &at, 1);
    for (i, t) in [DType::I8, DType::U32, DType::I64, DType::BOOL].iter().enumerate() {
        let out = p.arg(*t, i + 1, 16);
        p.store(&out, &at, &x.cast(*t));
    }
    let out = p.arg(DType::U32, 5, 16);
    p.store(&out, &at, &x.bitcast(DType::U32));
    p.0
}

fn vector_select(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, mask, a, b) = (
        p.arg(DType::F32, 0, 64),
        p.arg(DType::BOOL, 1, 64),
        p.arg(DType::F32, 2, 64),
        p.arg(DType::F32, 3, 64),
    );
    let at = outer(&mut p, gpu, 16);
    let idx = p.add(at * 4);
    let (x, y) = (p.load(&a, &idx, 4), p.load(&b, &idx, 4));
    let less = p.add(x.lt(&y));
    p.store(&mask, &idx, &less);
    p.store(&out, &idx, &less.not().select(&x, &(&y * 2.0f32)));
    p.0
}

fn vector_lanes(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 64), p.arg(DType::F32, 1, 64));
    let at = outer(&mut p, gpu, 16);
    let idx = p.add(at * 4);
    let x = p.load(&a, &idx, 4);
    let sum = p.add(x.lane(0) + x.lane(1) + (x.lane(2) + x.lane(3)));
    p.store(&out, &idx, &(&x * &sum.splat(4)));
    let two = UOp::new(Op::Vectorize, DType::F32.vec(2), smallvec![x.lane(3), sum], Arg::None);
    p.store(&out, &idx, &two);
    p.0
}

/// Warp shuffles of scalars, vectors, and values narrower than a register.
fn shuffle(_: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a, b) =
        (p.arg(DType::F32, 0, 64), p.arg(DType::F32, 1, 64), p.arg(DType::BOOL, 2, 16));
    let at = p.special(SpecialKind::Local, 0, 16);
    let other = |p: &mut Program, x: &UOp, bits| {
        p.node(Op::Shuffle, x.dtype(), smallvec![x.clone()], Arg::Shuffle(bits))
    };
    let idx = p.add(&at * 4);
    let (v, c) = (p.load(&a, &idx, 4), p.load(&b, &at, 1));
    let (w, d) = (other(&mut p, &v, 8), other(&mut p, &c, 1));
    p.store(&out, &idx, &(&v + &w));
    p.store(&b, &at, &c.or(&d));
    p.0
}

/// Data arithmetic wraps; index arithmetic cannot overflow.
fn int_wrap(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a, b) = (p.arg(DType::I32, 0, 64), p.arg(DType::I32, 1, 64), p.arg(DType::I8, 2, 64));
    let at = outer(&mut p, gpu, 16);
    let idx = p.add(&at * 4 + 1);
    let (x, y) = (p.load(&a, &idx, 1), p.load(&b, &idx, 1));
    p.store(&out, &idx, &(&x * 3 - &x));
    p.store(&out, &at, &(-&x + 5 + -7 + (&x << 3)));
    p.store(&b, &at, &(&y * &y));
    p.store(&out, &int(3), &x.const_like(i32::MIN as i64));
    p.0
}

/// Long expressions are split over lines, and a value with two uses has a name.
fn long_expression(gpu: bool) -> Vec<UOp> {
    let mut p = Program::default();
    let (out, a) = (p.arg(DType::F32, 0, 64), p.arg(DType::F32, 1, 64));
    let at = outer(&mut p, gpu, 16);
    let x = p.load(&a, &at, 1);
    let mut y = x.clone();
    for i in 1..12 {
        y = &y * &x + 0.125f32 * i as f32;
    }
    p.store(&out, &at, &y);
    p.0
}

type Case = (&'static str, fn(bool) -> Vec<UOp>);
const CASES: [Case; 18] = [
    ("const_add", const_add),
    ("special", special),
    ("add_scalar", add_scalar),
    ("store_constant", store_constant),
    ("add_float4", add_float4),
    ("add_unaligned", add_unaligned),
    ("reduce", reduce),
    ("two_accumulators", two_accumulators),
    ("gated_load", gated_load),
    ("gated_store", gated_store),
    ("local_reduce", local_reduce),
    ("shuffle", shuffle),
    ("every_dtype", every_dtype),
    ("casts", casts),
    ("vector_select", vector_select),
    ("vector_lanes", vector_lanes),
    ("int_wrap", int_wrap),
    ("long_expression", long_expression),
];

/// The languages in the order of the sections of a file.
fn languages() -> [(&'static str, Box<dyn Renderer>); 6] {
    [
        ("c", Box::new(Clang::new(Target::c(64)))),
        ("llvm", Box::new(Llvm::new(Target::llvm(64)))),
        ("cuda", Box::new(Cuda::new("sm_90"))),
        ("opencl", Box::new(OpenCl::new())),
        ("metal", Box::new(Metal::new())),
        ("wgsl", Box::new(Wgsl::new())),
    ]
}

/// The text of a program in a language; `None` if the program needs what the language lacks.
fn rendered(case: Case, language: &str, renderer: &dyn Renderer) -> Option<String> {
    let ((name, build), target) = (case, renderer.target());
    if name == "local_reduce" && !target.grid {
        return None;
    }
    let text = renderer.render(name, &build(target.grid));
    if name == "shuffle" && target.warp == 0 {
        assert!(text.is_err(), "{language} has no shuffles");
        return None;
    }
    Some(text.unwrap().text())
}

#[test]
fn texts_match_the_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut differ = Vec::new();
    for case in CASES {
        let mut text = String::new();
        for (language, renderer) in &languages() {
            if let Some(section) = rendered(case, language, renderer.as_ref()) {
                text.push_str(&format!("==== {language}\n{section}"));
            }
        }
        let path = folder.join(format!("{}.txt", case.0));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        if golden != text {
            let line = golden.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
            differ.push(format!(
                "{}:{} differs from the rendered text (BLESS=1 rewrites it):\n{text}",
                path.display(),
                line + 1
            ));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// naga parses and validates every case, including buffers in several bindings and folded grids.
#[cfg(feature = "webgpu")]
#[test]
fn wgsl_is_valid() {
    use picograd::render::Fma;
    use wgpu::naga::front::wgsl;
    use wgpu::naga::valid;
    let small = |fma| Wgsl::with(Target::wgsl(), 64, fma);
    let renderers = [Wgsl::new(), small(Fma::Native), small(Fma::Doubles)];
    let fused = |_: bool| {
        let mut p = Program::default();
        let (out, a) = (p.arg(DType::F32, 0, 4), p.arg(DType::F32, 1, 4));
        let x = p.load(&a, &int(0), 4);
        let y = p.node(Op::Fma, DType::F32.vec(4), smallvec![x.clone(), x.clone(), x], Arg::None);
        p.store(&out, &int(0), &y);
        p.0
    };
    let long = |gpu: bool| {
        let mut p = Program::default();
        let out = p.arg(DType::U8, 0, 300);
        let (x, y) =
            (p.special(SpecialKind::Group, 0, 100_000), p.special(SpecialKind::Group, 1, 3));
        assert!(gpu);
        let at = p.add(&x * 3 + &y);
        p.store(&out, &at, &UOp::constant(1i64, DType::U8));
        p.0
    };
    // Not every WGSL adapter has shuffles.
    let cases = CASES.iter().copied().filter(|c| c.0 != "shuffle");
    for (name, build) in cases.chain([("long", long as fn(bool) -> Vec<UOp>), ("products", fused)])
    {
        for renderer in &renderers {
            let text = renderer.render(name, &build(true)).unwrap().text();
            let module = wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(&text)));
            let capabilities = valid::Capabilities::SHADER_INT64 | valid::Capabilities::FLOAT64;
            let mut validator = valid::Validator::new(valid::ValidationFlags::all(), capabilities);
            validator
                .validate(&module)
                .unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(&text)));
        }
    }
}

/// If buffers may be unaligned, nothing is accessed through a pointer to vectors.
#[test]
fn unaligned_text_has_no_vectors_in_memory() {
    let program = add_float4(true);
    for (aligned, plain, pointer) in [
        (
            Cuda::new("sm_90").render("k", &program),
            Cuda::new("sm_90").unaligned().render("k", &program),
            "(float4*)",
        ),
        (
            Metal::new().render("k", &program),
            Metal::new().unaligned().render("k", &program),
            "(device float4*)",
        ),
    ] {
        let (aligned, plain) = (aligned.unwrap(), plain.unwrap());
        assert!(aligned.assumes_alignment && !plain.assumes_alignment);
        let (aligned, plain) = (aligned.text(), plain.text());
        assert!(aligned.contains(pointer) && !plain.contains(pointer), "{aligned}\n{plain}");
    }
}

/// On arm64, floats are selected as integers, maxima are instructions, and 64-bit integers become
/// f32 by one rounding.
#[test]
fn texts_for_arm64_avoid_what_llvm_changes() {
    let target = Target { vector_bytes: 16, ..Target::llvm(16) };
    let (other, arm64) = (Llvm::new(target.clone()), Llvm::for_arm64(target));
    let text = |renderer: &Llvm, program: &[UOp]| renderer.render("k", program).unwrap().text();
    let select = vector_select(false);
    assert!(text(&other, &select).contains(", <4 x float> "));
    assert!(!text(&arm64, &select).contains(", <4 x float> "));
    assert!(text(&arm64, &select).contains(", <4 x i32> "));
    let mut p = Program::default();
    let (out, x) = (p.arg(DType::F32, 0, 64), p.arg(DType::I64, 1, 64));
    let y = p.arg(DType::F32, 2, 64);
    let at = outer(&mut p, false, 16);
    let idx = p.add(at * 4);
    let (x, y) = (p.load(&x, &idx, 4).cast(DType::F32.vec(4)), p.load(&y, &idx, 4));
    let value = UOp::new(Op::Max, DType::F32.vec(4), smallvec![x, y], Arg::None);
    p.store(&out, &idx, &value);
    assert!(text(&other, &p.0).contains("sitofp <4 x i64>"));
    let text = text(&arm64, &p.0);
    assert!(!text.contains("sitofp") && text.contains("fptrunc <4 x double>"), "{text}");
    assert!(text.contains("@llvm.maximum.v4f32"), "{text}");
}

/// A node without text in a language is an error that names the node.
#[test]
fn unsupported_nodes_are_errors() {
    let x = UOp::constant(1.5, DType::F32);
    let half = UOp::constant(1.5, DType::F16);
    let double = UOp::constant(1.5, DType::F64);
    let grid = UOp::new(
        Op::Special,
        DType::I32,
        smallvec![],
        Arg::Special { kind: SpecialKind::Group, dim: 0, extent: 4 },
    );
    let c = Clang::new(Target::c(64));
    let llvm = Llvm::new(Target::llvm(64));
    let nodes = [
        (x.unary(Op::Exp), "Exp"),
        (&half + &half, "Add"),
        (int(7) / 2, "IDiv"),
        (grid, "Special"),
        (UOp::new(Op::Assign, DType::F32, smallvec![x.clone(), x.clone()], Arg::None), "Assign"),
        (UOp::new(Op::Store, DType::VOID, smallvec![x.clone(), x.clone()], Arg::None), "Store"),
        (-(&x * &x), "Mul"),
    ];
    let both = nodes
        .into_iter()
        .flat_map(|(node, op)| [(&c as &dyn Renderer, node.clone(), op), (&llvm, node, op)]);
    let metal = Metal::new();
    let cases = both.chain([(&metal as &dyn Renderer, &double + &double, "Add")]);
    for (renderer, node, op) in cases {
        match renderer.render("kernel", std::slice::from_ref(&node)) {
            Err(Error::Compile { msg, .. }) => assert!(msg.contains(op), "{msg}"),
            other => panic!("{node:?} gave {other:?}"),
        }
    }
    assert!(c.render("not a name", &[]).is_err() && llvm.render("", &[]).is_err());
}
