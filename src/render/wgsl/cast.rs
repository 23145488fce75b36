//! Conversions, exactly as [`Const::cast`](crate::dtype::Const::cast) defines them, by arithmetic
//! on bits.

use super::alu::narrowed;
use super::text::ty;
use super::{Text, WgslWriter};
use crate::dtype::{DType, Scalar};
use crate::render::facts::{is_small, layout, storage};

fn is_wide(scalar: Scalar) -> bool {
    matches!(storage(scalar), Scalar::I64 | Scalar::U64)
}

impl WgslWriter<'_> {
    /// Returns the value `x` converted.
    pub(super) fn cast(&mut self, from: Scalar, to: Scalar, x: &str) -> Text {
        let (source, target) = (DType { scalar: from, lanes: 1 }, DType { scalar: to, lanes: 1 });
        let (held, wanted) = (ty(from)?, ty(to)?);
        if from == to {
            return Ok(x.to_string());
        }
        if is_small(from) {
            let x = self.decode(from, x);
            return self.cast(Scalar::F32, to, &x);
        }
        if is_small(to) {
            if from != Scalar::F32 && (source.bits() > 16 || source.is_float()) {
                return Err(format!("{from} to {to}: it has to be lowered to f32"));
            }
            let x = self.cast(from, Scalar::F32, x)?;
            return Ok(self.encode(to, &x));
        }
        Ok(match (source.is_float(), target.is_float()) {
            (true, _) if target.is_bool() => format!("(bitcast<u32>({x})&0x7fffffffu) != 0u"),
            (false, _) if target.is_bool() => format!("{x} != {held}(0)"),
            (true, false) => self.saturate(to, x),
            (false, true) if is_wide(from) => {
                self.exact_call(if from == Scalar::U64 { "u64_to_f32" } else { "i64_to_f32" }, &[x])
            }
            (false, true) | (false, false) if source.is_bool() => {
                format!("select({wanted}(0), {wanted}(1), {x})")
            }
            (false, true) => format!("f32({x})"),
            _ if held == wanted => narrowed(to, x),
            _ if !is_wide(from) && !is_wide(to) => narrowed(to, &format!("bitcast<{wanted}>({x})")),
            _ if is_wide(from) && is_wide(to) => format!("{wanted}({x})"),
            // A widening to 64 bits extends the sign first; a narrowing drops the upper half first.
            _ if is_wide(to) => {
                let (grown, wide) =
                    if held == "i32" { ("to_i64", "i64") } else { ("to_u64", "u64") };
                let x = self.exact_call(grown, &[x]);
                if wide == wanted { x } else { format!("{wanted}({x})") }
            }
            _ => {
                let low = if held == "i64" {
                    format!("u32({x}&0xffffffffli)")
                } else {
                    format!("u32({x}&0xfffffffflu)")
                };
                narrowed(to, &if wanted == "i32" { format!("bitcast<i32>({low})") } else { low })
            }
        })
    }

    /// Returns the bits of `x` as another scalar of the same width.
    pub(super) fn bitcast(&mut self, from: Scalar, to: Scalar, x: &str) -> Text {
        if from.bits() != to.bits() {
            return Err(format!("bitcast from {from} to {to}: the widths differ"));
        }
        let (held, wanted) = (ty(from)?, ty(to)?);
        Ok(match (held, wanted) {
            _ if held == wanted => x.to_string(),
            ("bool", _) => format!("select({wanted}(0), {wanted}(1), {x})"),
            (_, "bool") => format!("{x} != {held}(0)"),
            _ if is_wide(from) => format!("{wanted}({x})"),
            // Small floats are held as unsigned integers.
            _ => {
                let narrow = if is_small(to) {
                    [Scalar::U8, Scalar::U16][(to.bits() == 16) as usize]
                } else {
                    to
                };
                narrowed(narrow, &format!("bitcast<{wanted}>({x})"))
            }
        })
    }

    /// Converts an f32 to an integer toward zero, and saturates; NaN is 0.
    fn saturate(&mut self, to: Scalar, x: &str) -> String {
        let dtype = DType { scalar: to, lanes: 1 };
        let bits = dtype.bits();
        let first = format!(
            "f32_to_{}",
            if is_wide(to) {
                if dtype.is_unsigned() { "u64" } else { "i64" }
            } else {
                ty(to).unwrap_or("i32")
            }
        );
        let whole = self.exact_call(&first, &[x]);
        match (bits < 32, dtype.is_unsigned()) {
            (false, _) => whole,
            (true, true) => format!("min({whole}, {}u)", (1u32 << bits) - 1),
            (true, false) => {
                format!("clamp({whole}, -{}i, {}i)", 1i64 << (bits - 1), (1i64 << (bits - 1)) - 1)
            }
        }
    }

    /// Returns a small float as f32.
    fn decode(&mut self, small: Scalar, x: &str) -> String {
        if small == Scalar::BF16 {
            return format!("bitcast<f32>({x}<<16u)");
        }
        let name = format!("{small}_to_f32");
        self.helper(&name, || {
            // A code moved to the place of a float's exponent and mantissa lacks only the
            // difference of the biases. A subnormal is a whole number of the smallest of them, and
            // both that number and their product are exact.
            let l = layout(small);
            let drop = 23 - l.mantissa;
            let rebase = (127 - l.bias) << 23;
            let least = (127 - l.bias + 1 - l.mantissa) << 23;
            let special =
                if l.has_inf { format!("n+{rebase:#x}u") } else { "0x7fc00000u".to_string() };
            format!(
                "fn {name}(u: u32) -> f32 {{ let m = u&{:#x}u; let n = (m<<{drop}u)+{rebase:#x}u; \
                 let s = bitcast<u32>(f32(m)*bitcast<f32>({least:#x}u)); let r = select(select(n, \
                 s, m < {:#x}u), {special}, m >= {:#x}u); return \
                 bitcast<f32>(r|((u&{:#x}u)<<{}u)); }}",
                (1u32 << (l.bits - 1)) - 1,
                1u32 << l.mantissa,
                l.over,
                1u32 << (l.bits - 1),
                32 - l.bits
            )
        });
        format!("{name}({x})")
    }

    /// Returns an f32 as a small float, to the nearest, ties to even.
    fn encode(&mut self, small: Scalar, x: &str) -> String {
        let name = format!("f32_to_{small}");
        self.helper(&name, || {
            let l = layout(small);
            let drop = 23 - l.mantissa;
            let half = (1u32 << (drop - 1)) - 1;
            let rounded = format!("((m>>{drop}u)&1u))>>{drop}u");
            let r = if l.bias == 127 {
                format!("let r = (m+{half:#x}u+{rounded};")
            } else {
                // Codes are in the order of their values, so rounding may carry into the exponent.
                // A subnormal is the mantissa moved down, rounded.
                let rebase = (127 - l.bias) << 23;
                let least = (127 - l.bias + 1) << 23;
                let shift = 128 - l.bias + drop;
                format!(
                    "let n = (m-{rebase:#x}u+{half:#x}u+{rounded}; let d = \
                     clamp({shift}u-(m>>23u), 1u, 31u); let f = (m&0x7fffffu)|0x800000u; let k = \
                     (f+((1u<<(d-1u))-1u)+((f>>d)&1u))>>d; let r = min(select(n, k, m < \
                     {least:#x}u), {:#x}u);",
                    l.over
                )
            };
            format!(
                "fn {name}(x: f32) -> u32 {{ let u = bitcast<u32>(x); let m = u&0x7fffffffu; {r} \
                 return select(r, {:#x}u, m > 0x7f800000u)|((u>>{}u)&{:#x}u); }}",
                l.over | 1 << (l.mantissa - 1),
                32 - l.bits,
                1u32 << (l.bits - 1)
            )
        });
        format!("{name}({x})")
    }
}
