//! C for gcc and clang. The text needs no header; it relies on `-fwrapv` (signed integers wrap) and
//! `-ffp-contract=off` (one rounding per op).

use super::clang_vector::{self, held};
use super::dialect::{Address, Alu, Dialect, KernelSource, KernelText, Words};
use super::prelude::Cx;
use super::value::Operand;
use crate::dtype::{DType, Scalar};
use crate::ir::{Op, SpecialKind};
use crate::kernel::SCRATCH_ALIGN;
use crate::target::Target;

/// Renders C: a function `NAME`, and an entry `NAME_entry(void* const* bufs, long chunk, void*
/// scratch)` that takes the buffers in slot order.
///
/// Compile it with `-std=c11 -ffp-contract=off -fno-math-errno -fwrapv`.
#[derive(Clone, Debug)]
pub struct Clang {
    target: Target,
}

impl Clang {
    /// Makes a renderer for a target made by [`Target::c`].
    pub const fn new(target: Target) -> Clang {
        Clang { target }
    }
}

const WORDS: Words = Words {
    signed: ["signed char", "short", "int", "long"],
    unsigned: ["unsigned char", "unsigned short", "unsigned int", "unsigned long"],
    boolean: "_Bool",
    truth: ["0", "1"],
    long: "L",
    special32: ["__builtin_inff()", "__builtin_nanf(\"\")"],
    special64: Some(["__builtin_inf()", "__builtin_nan(\"\")"]),
    helper: "INLINE",
    global: "",
    shared: "",
    shared_array: "",
    barrier: None,
    wrap_by_cast: false,
};

/// Declares the type of a vector and gives its name.
fn typedef(cx: &mut Cx, dtype: DType) -> String {
    let dtype = held(dtype);
    let name = dtype.to_string();
    let element = cx.scalar_type(dtype.scalar).expect("C has every scalar");
    cx.need(&name, || {
        format!("typedef {element} {name} __attribute__((vector_size({})));", dtype.itemsize())
    });
    name
}

/// Declares the type of the vector in memory, which is aligned as its scalars and may alias them.
fn typedef_in_memory(cx: &mut Cx, dtype: DType) -> String {
    let dtype = in_memory(dtype);
    let name = format!("{}_u", typedef(cx, dtype));
    let (element, align) =
        (cx.scalar_type(dtype.scalar).expect("C has every scalar"), dtype.scalar().itemsize());
    cx.need(&name, || {
        format!(
            "typedef {element} {name} __attribute__((vector_size({}),aligned({align}),may_alias));",
            dtype.itemsize()
        )
    });
    name
}

/// Bools are bytes in memory.
fn in_memory(dtype: DType) -> DType {
    if dtype.is_bool() { DType::U8.vec(dtype.lanes) } else { held(dtype) }
}

impl Dialect for Clang {
    fn target(&self) -> &Target {
        &self.target
    }
    fn words(&self) -> &Words {
        &WORDS
    }

    fn vector_type(&self, cx: &mut Cx, dtype: DType) -> Option<String> {
        // The size of a vector must be a power of two; other lane counts are structs.
        dtype.lanes.is_power_of_two().then(|| typedef(cx, dtype))
    }
    fn build(&self, cx: &mut Cx, dtype: DType, lanes: &[String]) -> String {
        let name = typedef(cx, dtype);
        let sign = if dtype.is_bool() { "-" } else { "" };
        if lanes.iter().all(|l| *l == lanes[0]) {
            let splat = format!("splat_{name}");
            let made = cx.helper(&splat, held(dtype), |cx| {
                let every = vec!["x"; dtype.lanes as usize].join(",");
                Ok((
                    format!("{} x", cx.scalar_type(held(dtype).scalar)?),
                    format!("return ({name}){{{every}}};"),
                ))
            });
            made.expect("C has every scalar");
            return format!("{splat}({sign}{})", lanes[0]);
        }
        let lanes: Vec<String> = lanes.iter().map(|l| format!("{sign}{l}")).collect();
        format!("({name}){{{}}}", lanes.join(","))
    }
    fn lane(&self, dtype: DType, vector: &str, lane: usize) -> String {
        if dtype.is_bool() { format!("({vector}[{lane}]!=0)") } else { format!("{vector}[{lane}]") }
    }

    fn shuffle_lanes(
        &self,
        cx: &mut Cx,
        dtype: DType,
        [a, b]: &[String; 2],
        picked: &[u16],
    ) -> Option<String> {
        if picked.len() != dtype.lanes as usize || !picked.len().is_power_of_two() {
            return None;
        }
        // gcc has had the function of clang since version 12.
        cx.need("SHUFFLE", || {
            "#if defined(__clang__) || __GNUC__ >= 12\n#define SHUFFLE(m,a,b,...) \
             __builtin_shufflevector(a,b,__VA_ARGS__)\n#else\n#define SHUFFLE(m,a,b,...) \
             __builtin_shuffle(a,b,(m){__VA_ARGS__})\n#endif"
                .to_string()
        });
        let mask = typedef(cx, clang_vector::mask_of(dtype));
        let lanes: Vec<String> = picked.iter().map(u16::to_string).collect();
        Some(format!("SHUFFLE({mask},{a},{b},{})", lanes.join(",")))
    }

    fn load(&self, cx: &mut Cx, place: &Address, dtype: DType) -> Option<String> {
        // The type in memory has other attributes; gcc refuses to mix the two in a conditional.
        let vector = format!(
            "({})*(({}*)({}))",
            typedef(cx, in_memory(dtype)),
            typedef_in_memory(cx, dtype),
            place.address()
        );
        if !dtype.is_bool() {
            return Some(vector);
        }
        let (bytes, bools) = (typedef(cx, in_memory(dtype)), typedef(cx, dtype));
        Some(format!("__builtin_convertvector({vector}!=({bytes}){{0}},{bools})"))
    }
    fn store(&self, cx: &mut Cx, place: &Address, dtype: DType, value: &str) -> Option<String> {
        let pointer = format!("*(({}*)({}))", typedef_in_memory(cx, dtype), place.address());
        if !dtype.is_bool() {
            return Some(format!("{pointer} = {value};"));
        }
        Some(format!(
            "{pointer} = __builtin_convertvector(-{value},{});",
            typedef(cx, in_memory(dtype))
        ))
    }
    fn load_lanes(
        &self,
        cx: &mut Cx,
        place: &Address,
        dtype: DType,
        masks: &str,
        alt: &str,
    ) -> Option<String> {
        let (name, bools) =
            (format!("load_lanes_{dtype}"), typedef(cx, DType::BOOL.vec(dtype.lanes)));
        let element = cx.element_type(dtype).ok()?;
        let value = if dtype.is_bool() { "-(p[i] != 0)" } else { "p[i]" };
        let made = cx.helper(&name, held(dtype), |cx| {
            let (ty, n) = (cx.ty(held(dtype))?, dtype.lanes);
            let body = format!("for (int i = 0; i < {n}; i++) if (m[i]) x[i] = {value}; return x;");
            Ok((format!("const {element}* p, {bools} m, {ty} x"), body))
        });
        made.ok()?;
        Some(format!("{name}({},{masks},{alt})", place.address()))
    }
    fn store_lanes(
        &self,
        cx: &mut Cx,
        place: &Address,
        dtype: DType,
        masks: &str,
        value: &str,
    ) -> Option<String> {
        let (name, bools) =
            (format!("store_lanes_{dtype}"), typedef(cx, DType::BOOL.vec(dtype.lanes)));
        let element = cx.element_type(dtype).ok()?;
        let lane = if dtype.is_bool() { "x[i] != 0" } else { "x[i]" };
        // The result makes the helper a function like the others.
        let made = cx.helper(&name, DType::I32, |cx| {
            let (ty, n) = (cx.ty(held(dtype))?, dtype.lanes);
            let body = format!("for (int i = 0; i < {n}; i++) if (m[i]) p[i] = {lane}; return 0;");
            Ok((format!("{element}* p, {bools} m, {ty} x"), body))
        });
        made.ok()?;
        Some(format!("{name}({},{masks},{value});", place.address()))
    }
    fn vector_alu(&self, cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
        clang_vector::alu(cx, alu)
    }
    fn lanes_in_helpers(&self) -> bool {
        true
    }

    fn reinterpret(&self, cx: &mut Cx, value: &str, from: Scalar, to: Scalar) -> String {
        let name = format!("{from}_as_{to}");
        let made = cx.helper(&name, DType { scalar: to, lanes: 1 }, |cx| {
            let (f, t) = (cx.scalar_type(from)?, cx.scalar_type(to)?);
            Ok((format!("{f} x"), format!("{t} r; __builtin_memcpy(&r,&x,sizeof(r)); return r;")))
        });
        made.expect("C has every scalar");
        format!("{name}({value})")
    }
    fn function(&self, cx: &mut Cx, op: Op, scalar: Scalar) -> Option<String> {
        let name = op.name().to_lowercase();
        if matches!(op, Op::Fma | Op::Sqrt | Op::Trunc) {
            return Some(format!(
                "__builtin_{name}{}",
                if scalar == Scalar::F32 { "f" } else { "" }
            ));
        }
        // Functions of the C library, declared by hand. They are native for f64 only.
        let params = vec!["double"; op.arity()].join(", ");
        cx.need(&name, || format!("double {name}({params});"));
        Some(name)
    }
    fn position(&self, kind: SpecialKind, dim: usize, extents: &[usize]) -> Option<String> {
        if kind != SpecialKind::Thread {
            return None;
        }
        // One number counts through all dimensions, the first one fastest.
        let stride: usize = extents[..dim].iter().product();
        let outer = if stride == 1 { "chunk".to_string() } else { format!("(chunk/{stride})") };
        Some(if dim + 1 == extents.len() { outer } else { format!("({outer}%{})", extents[dim]) })
    }
    fn shared_array(&self, element: &str, name: &str, _len: usize, at: usize) -> String {
        let start = format!("__builtin_assume_aligned(scratch+{at},{SCRATCH_ALIGN})");
        format!("{element}* const restrict {name} = ({element}*){start};")
    }
    fn kernel(&self, items: &[String], k: &KernelText) -> KernelSource {
        let cx = Cx::new(self);
        let mut params = Vec::new();
        let mut args = Vec::new();
        for (slot, dtype, stored) in &k.args {
            let element = cx.element_type(*dtype).expect("C has every scalar");
            params.push(format!(
                "{}{element}* restrict data{slot}",
                if *stored { "" } else { "const " }
            ));
            args.push(format!("bufs[{slot}]"));
        }
        if k.threaded {
            params.push("const long chunk".to_string());
            args.push("chunk".to_string());
        }
        if k.scratch {
            params.push("char* restrict scratch".to_string());
            args.push("scratch".to_string());
        }
        let (params, args) = (
            if params.is_empty() { "void".to_string() } else { params.join(", ") },
            args.join(", "),
        );
        let inline = "#define INLINE static inline __attribute__((always_inline))";
        let has_helpers = items.iter().any(|item| item.contains(WORDS.helper));
        KernelSource {
            prelude: has_helpers.then(|| inline.to_string()).into_iter().collect(),
            parts: vec![
                "static void ".to_string(),
                format!("({params}) {{\n{}}}\nvoid ", k.body),
                "_entry(void* const* bufs, long chunk, void* scratch) { ".to_string(),
                format!("({args}); }}\n"),
            ],
        }
    }
}
