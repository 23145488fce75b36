//! OpenCL C. Divisions and square roots of f32 are correctly rounded only under
//! `-cl-fp32-correctly-rounded-divide-sqrt`.

use super::dialect::{Address, Alu, Dialect, KernelSource, KernelText, Words, XYZW, storage};
use super::prelude::Cx;
use super::value::Operand;
use super::vector::gpu_operators;
use crate::dtype::{DType, Scalar};
use crate::ir::{Op, SpecialKind};
use crate::target::Target;

/// Renders OpenCL C.
#[derive(Clone, Debug)]
pub struct OpenCl {
    target: Target,
}

impl OpenCl {
    /// Makes a renderer for a device with `double`.
    pub const fn new() -> OpenCl {
        OpenCl::with(Target::opencl())
    }
    /// Makes a renderer for a device with these capabilities.
    pub const fn with(target: Target) -> OpenCl {
        OpenCl { target }
    }
}

impl Default for OpenCl {
    fn default() -> OpenCl {
        OpenCl::new()
    }
}

const WORDS: Words = Words {
    signed: ["char", "short", "int", "long"],
    unsigned: ["uchar", "ushort", "uint", "ulong"],
    boolean: "bool",
    truth: ["false", "true"],
    long: "L",
    special32: ["INFINITY", "NAN"],
    special64: Some(["(double)INFINITY", "(double)NAN"]),
    helper: "static inline",
    global: "__global ",
    shared: "__local ",
    shared_array: "__attribute__((aligned(16))) __local ",
    barrier: Some("barrier(CLK_LOCAL_MEM_FENCE);"),
    wrap_by_cast: true,
};

impl Dialect for OpenCl {
    fn target(&self) -> &Target {
        &self.target
    }
    fn words(&self) -> &Words {
        &WORDS
    }

    fn vector_type(&self, cx: &mut Cx, dtype: DType) -> Option<String> {
        // OpenCL has no vectors of bools: bytes of 0 and 1 are used instead.
        let element = cx.element_type(dtype).ok()?;
        matches!(dtype.lanes, 2 | 3 | 4 | 8 | 16).then(|| format!("{element}{}", dtype.lanes))
    }
    fn build(&self, cx: &mut Cx, dtype: DType, lanes: &[String]) -> String {
        let name = self.vector_type(cx, dtype).unwrap_or_default();
        if lanes.iter().all(|l| *l == lanes[0]) {
            format!("({name})({})", lanes[0])
        } else {
            format!("({name})({})", lanes.join(","))
        }
    }
    fn lane(&self, dtype: DType, vector: &str, lane: usize) -> String {
        if dtype.lanes <= 4 {
            format!("{vector}.{}", XYZW[lane])
        } else {
            format!("{vector}.s{lane:x}")
        }
    }

    fn load(&self, _: &mut Cx, place: &Address, dtype: DType) -> Option<String> {
        (!dtype.is_bool()).then(|| format!("vload{}(0,{})", dtype.lanes, place.address()))
    }
    fn store(&self, _: &mut Cx, place: &Address, dtype: DType, value: &str) -> Option<String> {
        (!dtype.is_bool()).then(|| format!("vstore{}({value},0,{});", dtype.lanes, place.address()))
    }
    fn vector_alu(&self, cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
        gpu_operators(cx, alu)
    }

    fn reinterpret(&self, cx: &mut Cx, value: &str, _: Scalar, to: Scalar) -> String {
        format!("as_{}({value})", cx.scalar_type(storage(to)).unwrap_or_default())
    }
    fn half(&self) -> [Option<&'static str>; 2] {
        [
            Some("return vload_half(0,(const half*)&x);"),
            Some("ushort r; vstore_half_rte(x,0,(half*)&r); return r;"),
        ]
    }
    fn function(&self, _: &mut Cx, op: Op, _: Scalar) -> Option<String> {
        Some(op.name().to_lowercase())
    }
    fn position(&self, kind: SpecialKind, dim: usize, _: &[usize]) -> Option<String> {
        match kind {
            _ if dim > 2 => None,
            SpecialKind::Group => Some(format!("get_group_id({dim})")),
            SpecialKind::Local => Some(format!("get_local_id({dim})")),
            SpecialKind::Thread => None,
        }
    }
    fn kernel(&self, _items: &[String], k: &KernelText) -> KernelSource {
        let cx = Cx::new(self);
        let buffer = |(slot, dtype, _): &(usize, DType, bool)| {
            format!("__global {}* data{slot}", cx.element_type(*dtype).unwrap_or_default())
        };
        // A buffer may begin anywhere in its memory, and OpenCL has no pointers on the host: the
        // offset is another argument, in elements.
        let params: Vec<String> = k
            .args
            .iter()
            .map(buffer)
            .chain(k.args.iter().map(|(slot, _, _)| format!("ulong at{slot}")))
            .collect();
        let starts: String =
            k.args.iter().map(|(slot, _, _)| format!("  data{slot} += at{slot};\n")).collect();
        let mut prelude = Vec::new();
        if k.multiplies {
            prelude.push("#pragma OPENCL FP_CONTRACT OFF".to_string());
        }
        if k.doubles {
            prelude.push("#pragma OPENCL EXTENSION cl_khr_fp64 : enable".to_string());
        }
        let [x, y, z] = k.local;
        let size = if x * y * z > 1 {
            format!("__attribute__((reqd_work_group_size({x},{y},{z}))) ")
        } else {
            String::new()
        };
        KernelSource {
            prelude,
            parts: vec![
                format!("__kernel {size}void "),
                format!("({}) {{\n{starts}{}}}\n", params.join(", "), k.body),
            ],
        }
    }
}
