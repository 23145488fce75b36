//! Metal Shading Language. To be compiled without fast math, so that division and square roots
//! are correctly rounded.

use super::dialect::{Alu, Dialect, KernelSource, KernelText, Words, XYZW, storage};
use super::prelude::Cx;
use super::value::Operand;
use super::vector::gpu_operators;
use crate::dtype::{DType, Scalar};
use crate::ir::{Op, SpecialKind};
use crate::target::Target;

/// Renders Metal Shading Language. Buffers must start at multiples of 16 bytes, except after
/// [`unaligned`](Metal::unaligned).
#[derive(Clone, Debug)]
pub struct Metal {
    target: Target,
    aligned: bool,
}

impl Metal {
    /// Makes a renderer for any Apple GPU.
    pub const fn new() -> Metal {
        Metal::with(Target::metal())
    }
    /// Makes a renderer for a GPU with these limits.
    pub const fn with(target: Target) -> Metal {
        Metal { target, aligned: true }
    }
    /// Accepts buffers that start at any element: vectors are read and written lane by lane.
    pub fn unaligned(self) -> Metal {
        Metal { aligned: false, ..self }
    }
}

impl Default for Metal {
    fn default() -> Metal {
        Metal::new()
    }
}

const WORDS: Words = Words {
    signed: ["char", "short", "int", "long"],
    unsigned: ["uchar", "ushort", "uint", "ulong"],
    boolean: "bool",
    truth: ["false", "true"],
    long: "L",
    special32: ["INFINITY", "NAN"],
    special64: None,
    helper: "static inline",
    global: "device ",
    shared: "threadgroup ",
    shared_array: "threadgroup __attribute__((aligned(16))) ",
    barrier: Some("threadgroup_barrier(mem_flags::mem_threadgroup);"),
    wrap_by_cast: true,
};

impl Dialect for Metal {
    fn target(&self) -> &Target {
        &self.target
    }
    fn words(&self) -> &Words {
        &WORDS
    }

    fn vector_type(&self, cx: &mut Cx, dtype: DType) -> Option<String> {
        let element = cx.scalar_type(dtype.scalar).ok()?;
        (2..=4).contains(&dtype.lanes).then(|| format!("{element}{}", dtype.lanes))
    }
    fn build(&self, cx: &mut Cx, dtype: DType, lanes: &[String]) -> String {
        let name = self.vector_type(cx, dtype).unwrap_or_default();
        if lanes.iter().all(|l| *l == lanes[0]) {
            format!("{name}({})", lanes[0])
        } else {
            format!("{name}({})", lanes.join(","))
        }
    }
    fn lane(&self, _: DType, vector: &str, lane: usize) -> String {
        format!("{vector}.{}", XYZW[lane])
    }

    fn is_aligned(&self) -> bool {
        self.aligned
    }
    fn unaligned_variant(&self) -> Option<Self> {
        Some(self.clone().unaligned())
    }
    fn vector_alu(&self, cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
        gpu_operators(cx, alu)
    }

    fn reinterpret(&self, cx: &mut Cx, value: &str, _: Scalar, to: Scalar) -> String {
        format!("as_type<{}>({value})", cx.scalar_type(storage(to)).unwrap_or_default())
    }
    fn half(&self) -> [Option<&'static str>; 2] {
        [Some("return float(as_type<half>(x));"), Some("return as_type<ushort>(half(x));")]
    }
    fn function(&self, _: &mut Cx, op: Op, _: Scalar) -> Option<String> {
        Some(if op == Op::Sqrt { "precise::sqrt".to_string() } else { op.name().to_lowercase() })
    }
    fn position(&self, kind: SpecialKind, dim: usize, _: &[usize]) -> Option<String> {
        let axis = XYZW.get(dim).filter(|_| dim < 3)?;
        match kind {
            SpecialKind::Group => Some(format!("gid.{axis}")),
            SpecialKind::Local => Some(format!("lid.{axis}")),
            SpecialKind::Thread => None,
        }
    }
    fn build_struct(&self, name: &str, lanes: &str) -> String {
        format!("{name}{{{{{lanes}}}}}")
    }
    fn kernel(&self, _items: &[String], k: &KernelText) -> KernelSource {
        let cx = Cx::new(self);
        let mut params: Vec<String> = k
            .args
            .iter()
            .map(|(slot, dtype, _)| {
                format!("device {}* data{slot}", cx.element_type(*dtype).unwrap_or_default())
            })
            .collect();
        params.push("uint3 gid [[threadgroup_position_in_grid]]".to_string());
        params.push("uint3 lid [[thread_position_in_threadgroup]]".to_string());
        let mut prelude =
            vec!["#include <metal_stdlib>".to_string(), "using namespace metal;".to_string()];
        if k.multiplies {
            prelude.push("#pragma clang fp contract(off)".to_string());
        }
        KernelSource {
            prelude,
            parts: vec![
                "kernel void ".to_string(),
                format!("({}) {{\n{}}}\n", params.join(", "), k.body),
            ],
        }
    }
}
