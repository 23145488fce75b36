//! Machine code of C, LLVM and `CPU:X86` against the definition of every op: each op on each dtype
//! at several vector widths, over values with all special cases, bit for bit.

use crate::common::TempDir;
use picograd::codegen::{self, Isa, Level};
use picograd::compiler::dtype;
use picograd::device::Device;
use picograd::device::host::code::NativeCode;
use picograd::device::host::elf::Code;
use picograd::device::host::llvm;
use picograd::dtype::{Const, DType, Scalar};
use picograd::ir::{Arg, AxisKind, Op, UOp, eval};
use picograd::render::{Clang, Llvm, Renderer};
use picograd::target::Target;
use smallvec::smallvec;
use std::ffi::{CString, c_long, c_void};
use std::path::Path;

/// The length of all buffers: a multiple of every number of lanes under test.
const N: usize = 480;

/// True for floats stored as bits, which have only conversions and selects.
const SMALL: [Scalar; 4] = [Scalar::F16, Scalar::BF16, Scalar::F8E4M3, Scalar::F8E5M2];

fn is_small(t: DType) -> bool {
    SMALL.contains(&t.scalar)
}

/// Values at which arithmetic is most likely to fail.
fn edges(t: DType) -> Vec<Const> {
    if t.is_bool() {
        return vec![Const::Bool(false), Const::Bool(true)];
    }
    let ints = [
        0,
        1,
        -1,
        2,
        -2,
        3,
        7,
        100,
        -128,
        127,
        128,
        255,
        256,
        32767,
        -32768,
        65535,
        65536,
        i32::MAX as i64,
        i32::MIN as i64,
    ];
    let wide = [
        u32::MAX as i64,
        1 << 32,
        i64::MAX,
        i64::MIN,
        i64::MAX - 1,
        (1 << 53) + 1,
        -(1 << 40) + 12345,
        0x4010_0000_0000_0001,
    ];
    if t.is_int() {
        return ints.iter().chain(&wide).map(|v| Const::Int(*v).normalize(t)).collect();
    }
    #[rustfmt::skip]
    let floats = [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.999, 1e-3, 1e10, -1e10, 1e30, 1e-30,
        1e-40, -1e-42, 1e300, 1e-310, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 127.5, 128.0,
        -128.5, -129.0, 255.5, 256.0, -0.99, 32767.9, 65504.0, 65519.9, 65520.0, 448.0, 464.0,
        465.0, 57344.0, 61440.0, 61441.0, 2147483647.0, 2147483648.0, -2147483648.0, -2147483904.0,
        4294967295.0, 4294967296.0, 9.223372036854775e18, 9.223372036854776e18,
        -9.223372036854776e18, 1.8446744073709552e19, 1.844674407370955e19, 5.9604645e-8,
        2.9802322e-8, 2.98023260e-8, 6.1e-5, 0.001953125, 0.0009765625, 0.000976563, 0.015625,
        0.0146, 1.5258789e-5, 7.62939453125e-6, 1.175494e-38, f32::MIN_POSITIVE as f64,
        f32::MAX as f64, f64::MAX, 1.00390625, 1.01171875, 1.0048828125,
        1.0009765625 / 2.0 * 3.0,
    ];
    floats.iter().map(|v| Const::Float(*v).cast(DType::F64, t)).collect()
}

/// A repeatable mixture of edges and random bits. `salt` makes the operands differ.
fn values(t: DType, salt: u64) -> Vec<Const> {
    let edges = edges(t);
    let mut state = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (t.scalar as u64) << 7 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..N)
        .map(|i| match (salt, i % 4) {
            (0, 0 | 1) => edges[i / 2 % edges.len()],
            (_, 3) => Const::from_bits(next(), t),
            _ => edges[next() as usize % edges.len()],
        })
        .map(|c| {
            if let Const::Float(v) = c
                && v.is_nan()
            {
                Const::Float(f64::NAN)
            } else {
                c
            }
        })
        .collect()
}

/// Builds a linear program: one loop with loads at the top and any number of stored values.
struct Builder {
    lanes: u16,
    list: Vec<UOp>,
    /// The content of each argument before the run; `None` for an output.
    args: Vec<(DType, Option<Vec<Const>>)>,
    idx: UOp,
    outputs: Vec<(usize, UOp)>,
    leaves: Vec<(UOp, usize)>,
}

impl Builder {
    fn new(lanes: u16) -> Builder {
        let extent = UOp::constant((N / lanes as usize) as i64, DType::I32);
        let range = UOp::new(
            Op::Range,
            DType::I32,
            smallvec![extent],
            Arg::Range { id: 0, kind: AxisKind::Loop, lanes: false },
        );
        let idx = &range * lanes as i64;
        Builder {
            lanes,
            list: vec![range, idx.clone()],
            args: Vec::new(),
            idx,
            outputs: Vec::new(),
            leaves: Vec::new(),
        }
    }
    fn arg(&mut self, t: DType, values: Option<Vec<Const>>) -> (usize, UOp) {
        let slot = self.args.len();
        let global = UOp::new(Op::DefineGlobal, t, smallvec![], Arg::Global { slot, len: N });
        self.list.insert(0, global.clone());
        let index = UOp::new(Op::Index, t, smallvec![global, self.idx.clone()], Arg::None);
        self.list.push(index.clone());
        self.args.push((t, values));
        (slot, index)
    }
    fn load(&mut self, t: DType, values: Vec<Const>) -> UOp {
        let (slot, index) = self.arg(t, Some(values));
        let load = UOp::new(Op::Load, t.vec(self.lanes), smallvec![index], Arg::None);
        self.list.push(load.clone());
        self.leaves.push((load.clone(), slot));
        load
    }
    fn store(&mut self, value: UOp) {
        for u in value.toposort() {
            if !self.list.contains(&u) && u.op() != Op::Const {
                self.list.push(u);
            }
        }
        let (slot, index) = self.arg(value.dtype().scalar(), None);
        self.list.push(UOp::new(
            Op::Store,
            DType::VOID,
            smallvec![index, value.clone()],
            Arg::None,
        ));
        self.outputs.push((slot, value));
    }
    fn finish(&mut self) {
        let range = self.list.iter().find(|u| u.op() == Op::Range).unwrap().clone();
        self.list.push(UOp::new(Op::EndRange, DType::VOID, smallvec![range], Arg::None));
    }
}

/// Every op of linear programs on the dtype, alone and in the forms that the renderer abbreviates.
fn expressions(b: &mut Builder, t: DType) -> Vec<UOp> {
    let lanes = b.lanes;
    let (x, y, z) = (b.load(t, values(t, 0)), b.load(t, values(t, 1)), b.load(t, values(t, 2)));
    let condition = b.load(DType::BOOL, values(DType::BOOL, 3));
    let mut out = vec![condition.select(&x, &y)];
    for to in DType::ALL.iter().filter(|to| **to != t) {
        out.push(x.cast(*to));
        // All bits survive except those of a bool other than 0 and 1, and the payload of a NaN.
        if to.bits() == t.bits() {
            out.push(x.bitcast(*to));
        }
    }
    if is_small(t) {
        return out;
    }
    for op in [Op::Lt, Op::Eq, Op::Ne] {
        out.push(x.binary(op, &y));
        out.push(x.binary(op, &y).not());
        out.push(x.binary(op, &y).select(&x, &z));
        out.push(x.binary(op, x.const_like(1)));
    }
    if t.is_bool() {
        for op in [Op::Add, Op::Mul, Op::Max, Op::Min, Op::And, Op::Or, Op::Xor] {
            out.push(x.binary(op, &y));
            out.push(x.binary(op, &y).select(&y, &z));
            out.push(x.binary(op, true));
        }
        return out;
    }
    for op in [Op::Add, Op::Mul, Op::Max, Op::Min] {
        out.push(x.binary(op, &y));
        out.push(x.binary(op, x.const_like(3)));
        out.push(x.const_like(-3).binary(op, &x));
        out.push(x.binary(op, &x));
        out.push(x.binary(op, &y).binary(op, &z));
    }
    out.extend([
        -&x,
        &x - &y,
        -&x + &y,
        -&(&x - &y),
        &x + -1,
        x.const_like(2) - &y,
        -(-&x),
        -&x - &y,
    ]);
    if t.is_float() {
        out.extend([
            x.binary(Op::Div, &y),
            x.unary(Op::Sqrt),
            x.unary(Op::Trunc),
            x.fma(&y, &z),
            &x * &y + &z,
        ]);
        for v in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 1e-40, 1e-310, 0.1, -1e30] {
            out.push(x.binary(Op::Add, x.const_like(v)));
            out.push(condition.select(x.const_like(v), &y));
        }
        if t == DType::F64 {
            for op in
                [Op::Exp, Op::Exp2, Op::Log, Op::Log2, Op::Sin, Op::Cos, Op::Tan, Op::Tanh, Op::Erf]
            {
                out.push(x.unary(op));
            }
            out.push(x.binary(Op::Pow, &y));
        }
        return out;
    }
    for op in [Op::And, Op::Or, Op::Xor] {
        out.push(x.binary(op, &y));
        out.push(x.binary(op, x.const_like(5)));
    }
    out.push(x.not());
    // Lowering proves that shift counts are below the width and that divisions cannot trap.
    let bits = t.bits() as i64;
    let counts =
        values(t, 4).into_iter().map(|c| Const::Int(c.as_i64().unwrap() & (bits - 1))).collect();
    let divisors = values(t, 5)
        .into_iter()
        .map(|c| if matches!(c.as_i64(), Some(0 | -1)) { Const::Int(3) } else { c })
        .collect();
    let (count, divisor) = (b.load(t, counts), b.load(t, divisors));
    for op in [Op::Shl, Op::Shr] {
        out.push(x.binary(op, &count));
        out.push(x.binary(op, x.const_like(bits - 1)));
        out.push(x.binary(op, x.const_like(3)));
    }
    for op in [Op::CDiv, Op::CMod] {
        out.push(x.binary(op, &divisor));
        out.push(x.binary(op, x.const_like(7)));
    }
    for v in [t.min_value(), t.max_value()] {
        out.push(x.binary(Op::Add, x.const_like(v)));
        out.push(x.binary(Op::Lt, x.const_like(v)));
    }
    if lanes > 1 {
        // Lanes extracted and recombined in another order.
        let picked: Vec<UOp> = (0..lanes).map(|l| x.lane((l * 7 + 1) % lanes)).collect();
        let first = x.lane(0);
        out.push(UOp::new(
            Op::Vectorize,
            t.vec(lanes),
            picked.into_iter().collect::<picograd::ir::Src>(),
            Arg::None,
        ));
        out.push(first.splat(lanes).binary(Op::Add, &y));
        let reversed = Arg::Lanes((0..lanes).rev().collect());
        out.push(UOp::new(Op::Gep, t.vec(lanes), smallvec![x.binary(Op::Add, &y)], reversed));
    }
    out
}

/// The value of a node at each lane of one step of the loop.
fn expect(
    u: &UOp,
    leaves: &[(UOp, usize)],
    inputs: &[Vec<Const>],
    base: usize,
    lane: usize,
) -> Const {
    match (u.op(), u.arg()) {
        (Op::Vectorize, _) => return expect(&u.src()[lane], leaves, inputs, base, 0),
        (Op::Gep, Arg::Lanes(picked)) => {
            return expect(&u.src()[0], leaves, inputs, base, picked[lane] as usize);
        }
        (Op::Load, _) => {
            let (_, slot) = leaves.iter().find(|(l, _)| l == u).unwrap();
            return inputs[*slot][base + lane];
        }
        (Op::Const, Arg::Const(c)) => return *c,
        _ => {}
    }
    let args: Vec<Const> = u.src().iter().map(|s| expect(s, leaves, inputs, base, lane)).collect();
    eval::alu(u.op(), u.dtype(), u.operand_dtype(), &args)
}

/// The machine code of several kernels.
enum Object {
    /// A shared object compiled from C files.
    Shared(*mut c_void),
    Loaded(Vec<(String, Code)>),
    Assembled(Vec<(String, NativeCode)>),
}

impl Object {
    /// Compiles with LLVM; `None` if it is not available.
    fn by_llvm(programs: &[Rendered]) -> Option<Object> {
        let llvm = llvm::Llvm::find().inspect_err(|e| eprintln!("skipped: {e}")).ok()?;
        // SAFETY: the renderer wrote the text.
        let object = |p: &Rendered| unsafe { llvm.compile(&p.source, &p.name) }.unwrap();
        let load = |p: &Rendered| (p.name.clone(), Code::load(&object(p)).unwrap());
        Some(Object::Loaded(programs.iter().map(load).collect()))
    }
    fn by_x86(programs: &[(String, Builder)], isa: Isa) -> Object {
        let load = |(name, program): &(String, Builder)| {
            let kernel = codegen::assemble(name, &program.list, isa, true, None).unwrap();
            (name.clone(), NativeCode::load(&kernel).unwrap())
        };
        Object::Assembled(programs.iter().map(load).collect())
    }
    fn by_cc(programs: &[Rendered], dir: &Path) -> Object {
        let so = dir.join("kernels.so");
        let mut command =
            std::process::Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_string()));
        command.args([
            "-std=c11",
            "-O2",
            "-march=native",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fwrapv",
            "-w",
            "-shared",
            "-fPIC",
        ]);
        for Rendered { name, source, .. } in programs {
            let file = dir.join(format!("{name}.c"));
            std::fs::write(&file, source).unwrap();
            command.arg(file);
        }
        let out = command.arg("-o").arg(&so).arg("-lm").output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr).chars().take(4000).collect::<String>()
        );
        let path = CString::new(so.to_str().unwrap()).unwrap();
        // SAFETY: the object was compiled from our own source and runs no code when opened.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Object::Shared(handle)
    }
    fn entry(&self, name: &str) -> *const c_void {
        let entry = format!("{name}_entry");
        match self {
            Object::Shared(handle) => {
                let symbol = CString::new(entry).unwrap();
                // SAFETY: the handle is open and the name ends in a null byte.
                unsafe { libc::dlsym(*handle, symbol.as_ptr()) }
            }
            Object::Loaded(list) => {
                let code = &list.iter().find(|(n, _)| n == name).unwrap().1;
                code.symbol(&entry).map_or(std::ptr::null(), |p| p.cast())
            }
            Object::Assembled(list) => {
                list.iter().find(|(n, _)| n == name).unwrap().1.entry().cast()
            }
        }
    }
    fn call(&self, name: &str, bufs: &mut [Vec<u8>]) {
        let pointers: Vec<*mut c_void> = bufs.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let entry = self.entry(name);
        assert!(!entry.is_null());
        // SAFETY: the entry has this type by the renderer's contract, and every buffer holds as
        // many elements as the kernel touches.
        unsafe {
            let entry: extern "C" fn(*const *mut c_void, c_long, *mut c_void) =
                std::mem::transmute(entry);
            entry(pointers.as_ptr(), 0, std::ptr::null_mut());
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Object::Shared(handle) = self {
            // SAFETY: the handle is open, and no function of the object is running.
            unsafe { libc::dlclose(*handle) };
        }
    }
}

/// A program, its name and its text.
struct Rendered {
    name: String,
    source: String,
    program: Builder,
}

/// A program for each dtype at a number of lanes.
fn programs(lanes: u16) -> Vec<(String, Builder)> {
    let program = |t: &DType| {
        let mut program = Builder::new(lanes);
        for e in expressions(&mut program, *t) {
            program.store(e);
        }
        program.finish();
        (format!("every_{t}"), program)
    };
    DType::ALL.iter().map(program).collect()
}

/// The programs in a language.
fn rendered(lanes: u16, renderer: &dyn Renderer) -> Vec<Rendered> {
    let text = |name: &str, p: &Builder| renderer.render(name, &p.list).unwrap().text();
    let programs = programs(lanes).into_iter();
    programs.map(|(name, p)| Rendered { source: text(&name, &p), name, program: p }).collect()
}

fn check_c(lanes: u16) {
    let programs = rendered(lanes, &Clang::new(Target::c(64)));
    let dir = TempDir::new();
    let object = Object::by_cc(&programs, &dir.0);
    programs.iter().for_each(|p| compare(&object, &p.name, &p.program));
}

fn check_llvm(lanes: u16) {
    let programs = rendered(lanes, &Llvm::new(Target::llvm(64)));
    let Some(object) = Object::by_llvm(&programs) else { return };
    programs.iter().for_each(|p| compare(&object, &p.name, &p.program));
}

/// Checks the code for a level of x86-64, if this machine has it.
fn check_x86(level: Level) {
    if let Err(why) = Device::get(&format!("CPU:X86:{}", level.name())) {
        eprintln!("skipped {}: {why}", level.name());
        return;
    }
    // Three lanes fill a register in part; 16 and 32 take several registers at the lower levels.
    for lanes in [1, 2, 3, 4, 8, 16, 32] {
        let programs = programs(lanes);
        let object = Object::by_x86(&programs, Isa::of(level));
        programs.iter().for_each(|(name, program)| compare(&object, name, program));
    }
}

/// Runs a program and compares every element of every output with the evaluator.
fn compare(object: &Object, name: &str, b: &Builder) {
    let lanes = b.lanes as usize;
    let mut bufs: Vec<Vec<u8>> = Vec::new();
    let mut inputs: Vec<Vec<Const>> = Vec::new();
    for (t, values) in &b.args {
        let size = t.itemsize();
        let mut bytes = vec![0xa5; N * size];
        for (i, (chunk, c)) in bytes.chunks_mut(size).zip(values.iter().flatten()).enumerate() {
            dtype::write(*c, *t, chunk);
            // Any nonzero byte counts as true.
            if t.is_bool() && c.is_true() {
                chunk[0] = [1, 2, 255][i % 3];
            }
        }
        bufs.push(bytes);
        inputs.push(values.clone().unwrap_or_default());
    }
    object.call(name, &mut bufs);
    let mut wrong = Vec::new();
    for (slot, u) in &b.outputs {
        let t = b.args[*slot].0;
        for i in 0..N {
            let (base, lane) = (i / lanes * lanes, i % lanes);
            let want = expect(u, &b.leaves, &inputs, base, lane);
            let bytes = &bufs[*slot][i * t.itemsize()..][..t.itemsize()];
            let got = dtype::read(bytes, t);
            if got != want || (t.is_bool() && bytes[0] > 1) {
                let args: Vec<Const> =
                    u.src().iter().map(|s| expect(s, &b.leaves, &inputs, base, lane)).collect();
                wrong.push(format!(
                    "data{slot} {u:?} of {:?}: {args:?} gave {got:?}, not {want:?} (element {i})",
                    u.src()
                ));
                break;
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{name}, {lanes} lanes: {} of {} wrong\n{}",
        wrong.len(),
        b.outputs.len(),
        wrong.join("\n")
    );
}

#[test]
fn c_computes_every_op_on_scalars() {
    check_c(1);
}
#[test]
fn c_computes_every_op_on_2_lanes() {
    check_c(2);
}
#[test]
fn c_computes_every_op_on_3_lanes() {
    check_c(3);
}
#[test]
fn c_computes_every_op_on_4_lanes() {
    check_c(4);
}
#[test]
fn c_computes_every_op_on_8_lanes() {
    check_c(8);
}
#[test]
fn c_computes_every_op_on_16_lanes() {
    check_c(16);
}
#[test]
fn x86_64_computes_every_op() {
    check_x86(Level::V1);
}
#[test]
fn x86_64_v2_computes_every_op() {
    check_x86(Level::V2);
}
#[test]
fn x86_64_v3_computes_every_op() {
    check_x86(Level::V3);
}
#[test]
fn x86_64_v4_computes_every_op() {
    check_x86(Level::V4);
}
#[test]
fn llvm_computes_every_op() {
    for lanes in [1, 2, 3, 4, 8, 16] {
        check_llvm(lanes);
    }
}
