//! CUDA C. One rounding per op needs `--fmad=false`; all other options have their defaults.

use super::dialect::{Alu, Dialect, Element, KernelSource, KernelText, Words, XYZW, storage};
use super::prelude::Cx;
use super::value::Operand;
use crate::dtype::{DType, Scalar};
use crate::ir::{Op, SpecialKind, TensorCore};
use crate::target::{Machine, Target};

/// Renders CUDA C for NVRTC, without headers. Buffers must start at multiples of 16 bytes, except
/// after [`unaligned`](Cuda::unaligned).
#[derive(Clone, Debug)]
pub struct Cuda {
    target: Target,
    arch: String,
    aligned: bool,
}

impl Cuda {
    /// Makes a renderer for an architecture such as `sm_90`.
    pub fn new(arch: &str) -> Cuda {
        let number = arch.trim_start_matches(|c: char| !c.is_ascii_digit());
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let cores = number[..digits].parse().is_ok_and(|n: u32| n >= TENSOR_CORES);
        Cuda {
            target: Target::cuda().with_tensor_cores(cores, false),
            arch: arch.to_string(),
            aligned: true,
        }
    }
    /// Disables tensor cores, or enables those that round f32 too; see
    /// [`Target::with_tensor_cores`].
    pub fn with_tensor_cores(self, any: bool, rounding: bool) -> Cuda {
        Cuda { target: self.target.with_tensor_cores(any, rounding), ..self }
    }
    /// Renders kernels that are chosen for this machine.
    pub(crate) fn with_machine(self, machine: Machine) -> Cuda {
        Cuda { target: Target { machine, ..self.target }, ..self }
    }
    /// Accepts buffers that start at any element: vectors are read and written lane by lane.
    pub fn unaligned(self) -> Cuda {
        Cuda { aligned: false, ..self }
    }
    /// Returns the architecture that the text is to be compiled for.
    pub fn arch(&self) -> &str {
        &self.arch
    }
}

const WORDS: Words = Words {
    signed: ["signed char", "short", "int", "long long"],
    unsigned: ["unsigned char", "unsigned short", "unsigned int", "unsigned long long"],
    boolean: "bool",
    truth: ["false", "true"],
    long: "LL",
    special32: ["INFINITY", "NAN"],
    special64: Some(["(double)INFINITY", "(double)NAN"]),
    helper: "static __device__ __forceinline__",
    global: "",
    shared: "",
    shared_array: "__shared__ __align__(16) ",
    barrier: Some("__syncthreads();"),
    wrap_by_cast: true,
};

/// The first architecture with the tensor cores that are declared.
const TENSOR_CORES: u32 = 80;

/// Threads of a warp.
const WARP: usize = Target::cuda().warp;

/// Returns true if vectors of the dtype are held as words of two lanes, as tensor cores and memory
/// accesses take them.
fn in_words(dtype: DType) -> bool {
    matches!(dtype.scalar, Scalar::F16 | Scalar::BF16) && matches!(dtype.lanes, 4 | 8)
}

/// Returns the word of two lanes.
fn word(lo: &str, hi: &str) -> String {
    format!("((unsigned int)({lo})|((unsigned int)({hi})<<16))")
}

/// Returns the prefix of CUDA's vector types and of their constructors.
fn vector_stem(scalar: Scalar) -> &'static str {
    match storage(scalar) {
        Scalar::I8 => "char",
        Scalar::Bool | Scalar::U8 => "uchar",
        Scalar::I16 => "short",
        Scalar::U16 => "ushort",
        Scalar::I32 => "int",
        Scalar::U32 => "uint",
        Scalar::U64 => "ulonglong",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
        _ => "longlong",
    }
}

impl Dialect for Cuda {
    fn target(&self) -> &Target {
        &self.target
    }
    fn words(&self) -> &Words {
        &WORDS
    }

    fn vector_type(&self, _: &mut Cx, dtype: DType) -> Option<String> {
        if in_words(dtype) {
            return Some(format!("uint{}", dtype.lanes / 2));
        }
        (2..=4)
            .contains(&dtype.lanes)
            .then(|| format!("{}{}", vector_stem(dtype.scalar), dtype.lanes))
    }
    fn build(&self, _: &mut Cx, dtype: DType, lanes: &[String]) -> String {
        if in_words(dtype) {
            let words: Vec<String> = lanes.chunks(2).map(|w| word(&w[0], &w[1])).collect();
            return format!("make_uint{}({})", words.len(), words.join(","));
        }
        format!("make_{}{}({})", vector_stem(dtype.scalar), dtype.lanes, lanes.join(","))
    }
    fn lane(&self, dtype: DType, vector: &str, lane: usize) -> String {
        if in_words(dtype) {
            let shift = if lane.is_multiple_of(2) { "" } else { ">>16" };
            return format!("((unsigned short)({vector}.{}{shift}))", XYZW[lane / 2]);
        }
        format!("{vector}.{}", XYZW[lane])
    }

    fn is_aligned(&self) -> bool {
        self.aligned
    }
    fn unaligned_variant(&self) -> Option<Self> {
        Some(self.clone().unaligned())
    }
    fn vector_alu(&self, _: &mut Cx, _: &Alu) -> Option<Result<Operand, String>> {
        // The vector types are plain structs, without operators.
        None
    }

    fn reinterpret(&self, _: &mut Cx, value: &str, from: Scalar, to: Scalar) -> String {
        match (from, to) {
            (Scalar::F32, Scalar::I32) => format!("__float_as_int({value})"),
            (Scalar::F32, _) => format!("__float_as_uint({value})"),
            (Scalar::I32, _) => format!("__int_as_float({value})"),
            (Scalar::U32, _) => format!("__uint_as_float({value})"),
            (Scalar::F64, Scalar::U64) => {
                format!("((unsigned long long)__double_as_longlong({value}))")
            }
            (Scalar::F64, _) => format!("__double_as_longlong({value})"),
            (Scalar::U64, _) => format!("__longlong_as_double((long long)({value}))"),
            _ => format!("__longlong_as_double({value})"),
        }
    }
    /// Selects by an instruction where the assembler would lose a sign.
    ///
    /// The assembler of CUDA 13.0 turns a select between -0.0 and an integral value into a select
    /// of integers, and loses the sign. It does not if an instruction selects bits; a select of
    /// bits in C is turned back into one of numbers.
    fn select(&self, cx: &mut Cx, scalar: Scalar, condition: &str, [x, y]: [&str; 2]) -> String {
        let (name, ty, width, letter) = match scalar {
            Scalar::F32 => ("choose_f32", "float", "b32", "f"),
            Scalar::F64 => ("choose_f64", "double", "b64", "d"),
            _ => return format!("({condition}?{x}:{y})"),
        };
        if ![x, y].iter().any(|v| matches!(*v, "-0.0f" | "-0.0")) {
            return format!("({condition}?{x}:{y})");
        }
        cx.need(name, || {
            let code =
                format!("{{.reg .pred p; setp.ne.s32 p, %1, 0; selp.{width} %0, %2, %3, p;}}");
            let operands =
                format!(": \"={letter}\"(r) : \"r\"((int)c), \"{letter}\"(x), \"{letter}\"(y)");
            format!(
                "{} {ty} {name}(bool c, {ty} x, {ty} y) {{ {ty} r; asm(\"{code}\" {operands}); \
                 return r; }}",
                WORDS.helper
            )
        });
        format!("{name}({condition},{x},{y})")
    }
    fn fragment(&self, cx: &mut Cx, scalar: Scalar, elements: &[Element]) -> Option<Vec<String>> {
        let text = |e: &Element| match e {
            Element::Lane(vector, dtype, lane) => self.lane(*dtype, vector, *lane),
            Element::Value(text) => text.clone(),
        };
        if scalar == Scalar::F32 {
            cx.need("tf32", || {
                let code = "asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(x))";
                format!(
                    "{} unsigned int tf32(float x) {{ unsigned int r; {code}; return r; }}",
                    WORDS.helper
                )
            });
            return Some(elements.iter().map(|e| format!("tf32({})", text(e))).collect());
        }
        let pair = |w: &[Element]| match (&w[0], &w[1]) {
            (Element::Lane(x, dx, i), Element::Lane(y, dy, j))
                if in_words(*dx) && in_words(*dy) =>
            {
                let (wx, wy) = (XYZW[i / 2], XYZW[j / 2]);
                if (x, i / 2, i % 2, j % 2) == (y, j / 2, 0, 1) {
                    return format!("{x}.{wx}");
                }
                let bytes = |first: usize, half: usize| {
                    format!("{}{}", first + 2 * half + 1, first + 2 * half)
                };
                format!("__byte_perm({x}.{wx},{y}.{wy},0x{}{})", bytes(4, j % 2), bytes(0, i % 2))
            }
            (lo, hi) => word(&text(lo), &text(hi)),
        };
        Some(elements.chunks(2).map(pair).collect())
    }
    fn wmma(
        &self,
        cx: &mut Cx,
        core: &TensorCore,
        [a, b]: [&[String]; 2],
        c: &str,
    ) -> Option<String> {
        let name = format!("mma_{}", core.name);
        cx.need(&name, || {
            let inputs: Vec<String> = (0..a.len())
                .map(|i| format!("a{i}"))
                .chain((0..b.len()).map(|i| format!("b{i}")))
                .collect();
            let params: Vec<String> = inputs.iter().map(|p| format!("unsigned int {p}")).collect();
            let numbers = |from: usize, n: usize| {
                (from..from + n).map(|i| format!("%{i}")).collect::<Vec<_>>().join(",")
            };
            let (each_a, each_b) = (a.len() / core.steps, b.len() / core.steps);
            let step = |i: usize| {
                let (a, b) =
                    (numbers(4 + i * each_a, each_a), numbers(4 + a.len() + i * each_b, each_b));
                format!("{} {{%0,%1,%2,%3}}, {{{a}}}, {{{b}}}, {{%0,%1,%2,%3}};", core.instruction)
            };
            let code: Vec<String> = (0..core.steps).map(step).collect();
            let sums = XYZW.map(|l| format!("\"+f\"(c.{l})")).join(", ");
            let inputs: Vec<String> = inputs.iter().map(|p| format!("\"r\"({p})")).collect();
            let (head, params, inputs, code) =
                (WORDS.helper, params.join(", "), inputs.join(", "), code.join(" "));
            format!(
                "{head} float4 {name}(float4 c, {params}) {{ asm(\"{code}\" : {sums} : {inputs}); \
                 return c; }}"
            )
        });
        Some(format!("{name}({c},{},{})", a.join(","), b.join(",")))
    }
    fn shuffle(&self, value: &str, bits: usize, threads: usize) -> Option<String> {
        // The participating threads: a full warp, or all threads of a smaller workgroup.
        let mask = if threads < WARP { (1u32 << threads) - 1 } else { u32::MAX };
        Some(format!("__shfl_xor_sync({mask:#x},{value},{bits})"))
    }
    fn half(&self) -> [Option<&'static str>; 2] {
        [
            Some("float r; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)); return r;"),
            Some(
                "unsigned short r; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return \
                 r;",
            ),
        ]
    }
    fn function(&self, _: &mut Cx, op: Op, scalar: Scalar) -> Option<String> {
        Some(format!(
            "{}{}",
            op.name().to_lowercase(),
            if scalar == Scalar::F32 { "f" } else { "" }
        ))
    }
    fn position(&self, kind: SpecialKind, dim: usize, _: &[usize]) -> Option<String> {
        let axis = XYZW.get(dim).filter(|_| dim < 3)?;
        match kind {
            SpecialKind::Group => Some(format!("blockIdx.{axis}")),
            SpecialKind::Local => Some(format!("threadIdx.{axis}")),
            SpecialKind::Thread => None,
        }
    }
    fn build_struct(&self, name: &str, lanes: &str) -> String {
        format!("{name}{{{{{lanes}}}}}")
    }
    fn kernel(&self, items: &[String], k: &KernelText) -> KernelSource {
        let cx = Cx::new(self);
        let param = |(slot, dtype, stored): &(usize, DType, bool)| {
            let element = cx.element_type(*dtype).unwrap_or_default();
            format!("{}{element}* __restrict__ data{slot}", if *stored { "" } else { "const " })
        };
        let params: Vec<String> = k.args.iter().map(param).collect();
        let uses = |word: &str| items.iter().chain([&k.body]).any(|text| text.contains(word));
        let mut prelude = Vec::new();
        if uses("INFINITY") {
            prelude.push("#define INFINITY (__int_as_float(0x7f800000))".to_string());
        }
        if uses("NAN") {
            prelude.push("#define NAN (__int_as_float(0x7fffffff))".to_string());
        }
        let threads: usize = k.local.iter().product();
        // With 512 threads in flight each has 128 registers. With more registers per thread there
        // are too few threads to hide the latency of loads.
        let bounds = match 512 / threads {
            // The tile of a warp in a tensor-core product takes most registers.
            n @ 2..=4 if !k.tensor_cores => format!("{threads},{n}"),
            _ => threads.to_string(),
        };
        KernelSource {
            prelude,
            parts: vec![
                format!("extern \"C\" __global__ void __launch_bounds__({bounds}) "),
                format!("({}) {{\n{}}}\n", params.join(", "), k.body),
            ],
        }
    }
}
