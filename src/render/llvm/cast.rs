//! Conversions, exactly as [`Const::cast`](crate::dtype::Const::cast) defines them. Small floats
//! are converted by integer arithmetic, except f16 from and to f32, which is one instruction.

use super::text::{literal, suffix, ty};
use super::{LlvmWriter, Text};
use crate::dtype::{Const, DType, Scalar};
use crate::render::facts::{is_small, layout, storage};

/// Returns a float or an integer, as many lanes as another dtype has.
fn like(dtype: DType, scalar: Scalar) -> DType {
    DType { scalar, lanes: dtype.lanes }
}

fn int(value: u64, dtype: DType) -> String {
    literal(Const::Int(value as i64), dtype)
}

impl LlvmWriter<'_> {
    /// Returns a conversion by one instruction.
    fn convert(&mut self, instruction: &str, from: DType, x: &str, to: DType) -> String {
        self.define("cast", &format!("{instruction} {} {x} to {}", ty(from), ty(to)))
    }

    /// Returns the value `x` converted.
    pub(super) fn cast(&mut self, from: DType, to: DType, x: &str) -> Text {
        if from == to {
            return Ok(x.to_string());
        }
        let f32s = like(from, Scalar::F32);
        if is_small(from.scalar) {
            let x = self.decode(from, x);
            return self.cast(f32s, to, &x);
        }
        if is_small(to.scalar) {
            return self.narrow(from, to, x);
        }
        let (narrows, widens) = (to.bits() < from.bits(), to.bits() > from.bits());
        let unsigned = from.is_unsigned() || from.is_bool();
        let instruction = match (from.is_float(), to.is_float()) {
            _ if from.scalar == Scalar::Void || to.scalar == Scalar::Void => {
                return Err("a void has no value".to_string());
            }
            (true, _) if to.is_bool() => {
                return Ok(self.binary("fcmp une", from, x, &literal(Const::Float(0.0), from)));
            }
            (false, _) if to.is_bool() => {
                return Ok(self.binary("icmp ne", from, x, &literal(Const::Int(0), from)));
            }
            (true, true) => {
                if narrows {
                    "fptrunc"
                } else {
                    "fpext"
                }
            }
            (true, false) => return Ok(self.saturate(from, to, x)),
            (false, true)
                if self.arm64
                    && from.bits() == 64
                    && from.lanes > 1
                    && to.scalar == Scalar::F32 =>
            {
                let odd = self.round_to_odd(from, x);
                return Ok(self.convert("fptrunc", like(from, Scalar::F64), &odd, to));
            }
            (false, true) if unsigned => "uitofp",
            (false, true) => "sitofp",
            (false, false) if from.is_bool() => "zext",
            (false, false) if narrows => "trunc",
            (false, false) if !widens => return Ok(x.to_string()),
            (false, false) if unsigned => "zext",
            (false, false) => "sext",
        };
        Ok(self.convert(instruction, from, x, to))
    }

    /// Rounds toward zero and saturates; NaN is 0.
    fn saturate(&mut self, from: DType, to: DType, x: &str) -> String {
        let sign = if to.is_unsigned() { 'u' } else { 's' };
        if from.lanes == 1 {
            return self.call(
                &format!("llvm.fpto{sign}i.sat.{}.{}", suffix(to), suffix(from)),
                &ty(to),
                vec![(ty(from), x.to_string())],
            );
        }
        // LLVM 19 scalarizes the intrinsic on vectors: 1e6 elements took 414 µs, and take 96 µs in
        // this form. Values outside are replaced before the conversion, which is undefined for
        // them. Both limits are powers of two, and exact.
        let limit = 2f64.powi((to.bits() - u32::from(!to.is_unsigned())) as i32);
        let least = if to.is_unsigned() { 0.0 } else { -limit };
        let (limit, least, zero) = (
            literal(Const::Float(limit), from),
            literal(Const::Float(least), from),
            literal(Const::Float(0.0), from),
        );
        let is_below_limit = self.binary("fcmp olt", from, x, &limit);
        let is_above_least = self.binary("fcmp oge", from, x, &least);
        let is_inside =
            self.binary("and", like(from, Scalar::Bool), &is_below_limit, &is_above_least);
        let inside = self.select("cast", from, &is_inside, x, &zero);
        let whole = self.convert(&format!("fpto{sign}i"), from, &inside, to);
        let is_above = self.binary("fcmp oge", from, x, &limit);
        let whole = self.select("cast", to, &is_above, &literal(to.max_value(), to), &whole);
        if to.is_unsigned() {
            return whole;
        }
        let is_below = self.binary("fcmp olt", from, x, &least);
        self.select("cast", to, &is_below, &literal(to.min_value(), to), &whole)
    }

    /// Returns the bits of `x` as another dtype of the same width.
    pub(super) fn bitcast(&mut self, from: DType, to: DType, x: &str) -> Text {
        if from.bits() != to.bits() {
            return Err(format!("bitcast from {from} to {to}: the widths differ"));
        }
        Ok(match () {
            _ if from.is_bool() && !to.is_bool() => self.convert("zext", from, x, to),
            _ if to.is_bool() && !from.is_bool() => self.binary(
                "icmp ne",
                from,
                x,
                &literal(Const::Int(0), like(from, storage(from.scalar))),
            ),
            _ => self.reinterpret(from, x, to),
        })
    }

    /// Returns the same bits as a value of another type.
    pub(super) fn reinterpret(&mut self, from: DType, x: &str, to: DType) -> String {
        if ty(from) == ty(to) { x.to_string() } else { self.convert("bitcast", from, x, to) }
    }

    /// Returns a small float as f32.
    fn decode(&mut self, small: DType, x: &str) -> String {
        let (f32s, u32s) = (like(small, Scalar::F32), like(small, Scalar::U32));
        if small.scalar == Scalar::F16 {
            let half = Self::half(small);
            let x = self.define("cast", &format!("bitcast {} {x} to {half}", ty(small)));
            return self.define("cast", &format!("fpext {half} {x} to {}", ty(f32s)));
        }
        let u = self.convert("zext", small, x, u32s);
        if small.scalar == Scalar::BF16 {
            let upper = self.binary("shl", u32s, &u, &int(16, u32s));
            return self.reinterpret(u32s, &upper, f32s);
        }
        // A code moved to the place of a float's exponent and mantissa lacks only the difference of
        // the biases. A subnormal gets the exponent of the least normal number, which is then taken
        // off again: both steps are exact.
        let l = layout(small.scalar);
        let rebase = int(u64::from(127 - l.bias) << 23, u32s);
        let least = u64::from(128 - l.bias) << 23;
        let m = self.binary("and", u32s, &u, &int((1 << (l.bits - 1)) - 1, u32s));
        let moved = self.binary("shl", u32s, &m, &int(u64::from(23 - l.mantissa), u32s));
        let n = self.binary("add", u32s, &moved, &rebase);
        let raised = self.binary("or", u32s, &moved, &int(least, u32s));
        let raised = self.reinterpret(u32s, &raised, f32s);
        let base = literal(Const::Float(f32::from_bits(least as u32) as f64), f32s);
        let lifted = self.binary("fsub", f32s, &raised, &base);
        let lifted = self.reinterpret(f32s, &lifted, u32s);
        let subnormal = self.binary("icmp ult", u32s, &m, &int(1 << l.mantissa, u32s));
        let number = self.select("cast", u32s, &subnormal, &lifted, &n);
        let special =
            if l.has_inf { self.binary("add", u32s, &n, &rebase) } else { int(0x7fc0_0000, u32s) };
        let over = self.binary("icmp uge", u32s, &m, &int(l.over, u32s));
        let magnitude = self.select("cast", u32s, &over, &special, &number);
        let sign = self.binary("and", u32s, &u, &int(1 << (l.bits - 1), u32s));
        let sign = self.binary("shl", u32s, &sign, &int(u64::from(32 - l.bits), u32s));
        let whole = self.binary("or", u32s, &magnitude, &sign);
        self.reinterpret(u32s, &whole, f32s)
    }

    /// Returns the name of LLVM's f16 vectors, which are only converted.
    fn half(dtype: DType) -> String {
        ty(like(dtype, Scalar::F32)).replace("float", "half")
    }

    /// Returns a number that is not small, as a small float, rounded once.
    fn narrow(&mut self, from: DType, to: DType, x: &str) -> Text {
        let (f32s, f64s) = (like(from, Scalar::F32), like(from, Scalar::F64));
        Ok(match from.scalar {
            Scalar::F32 if to.scalar == Scalar::F16 => {
                let half = Self::half(to);
                let x = self.define("cast", &format!("fptrunc {} {x} to {half}", ty(from)));
                self.define("cast", &format!("bitcast {half} {x} to {}", ty(to)))
            }
            Scalar::F32 | Scalar::F64 => self.encode(from, to, x),
            // Up to 16 bits an integer is exactly an f32, up to 32 bits exactly an f64.
            _ if from.bits() <= 16 => {
                let x = self.cast(from, f32s, x)?;
                self.narrow(f32s, to, &x)?
            }
            _ if from.bits() == 32 => {
                let x = self.cast(from, f64s, x)?;
                self.encode(f64s, to, &x)
            }
            _ => {
                let x = self.round_to_odd(from, x);
                self.encode(f64s, to, &x)
            }
        })
    }

    /// Returns an f32 or f64 as a small float, to the nearest, ties to even.
    fn encode(&mut self, wide: DType, to: DType, x: &str) -> String {
        let double = wide.scalar == Scalar::F64;
        let (mantissa, bias, width) = if double { (52u32, 1023u32, 64u32) } else { (23, 127, 32) };
        let work = like(wide, if double { Scalar::U64 } else { Scalar::U32 });
        let l = layout(to.scalar);
        let drop = mantissa - l.mantissa;
        let u = self.reinterpret(wide, x, work);
        let m = self.binary("and", work, &u, &int((1 << (width - 1)) - 1, work));
        let last = self.binary("lshr", work, &m, &int(u64::from(drop), work));
        let last = self.binary("and", work, &last, &int(1, work));
        // Codes are in the order of their values, so rounding may carry into the exponent.
        let rebase = u64::from(bias - l.bias) << mantissa;
        let half = ((1u64 << (drop - 1)) - 1).wrapping_sub(rebase);
        let up = self.binary("add", work, &m, &int(half, work));
        let up = self.binary("add", work, &up, &last);
        let mut r = self.binary("lshr", work, &up, &int(u64::from(drop), work));
        if rebase > 0 {
            // A subnormal is rounded by adding the power of two whose last place is that of the
            // least subnormal.
            let magic = u64::from(bias + 1 + mantissa - l.bias - l.mantissa) << mantissa;
            let value =
                if double { f64::from_bits(magic) } else { f32::from_bits(magic as u32) as f64 };
            let positive = self.reinterpret(work, &m, wide);
            let lifted = self.binary("fadd", wide, &positive, &literal(Const::Float(value), wide));
            let lifted = self.reinterpret(wide, &lifted, work);
            let code = self.binary("sub", work, &lifted, &int(magic, work));
            let subnormal = self.binary(
                "icmp ult",
                work,
                &m,
                &int(u64::from(bias - l.bias + 1) << mantissa, work),
            );
            r = self.select("cast", work, &subnormal, &code, &r);
            let over = self.binary("icmp ugt", work, &r, &int(l.over, work));
            r = self.select("cast", work, &over, &int(l.over, work), &r);
        }
        let nan =
            self.binary("icmp ugt", work, &m, &int(u64::from(2 * bias + 1) << mantissa, work));
        let kept = self.select("cast", work, &nan, &int(l.over | 1 << (l.mantissa - 1), work), &r);
        let sign = self.binary("lshr", work, &u, &int(u64::from(width - l.bits), work));
        let sign = self.binary("and", work, &sign, &int(1 << (l.bits - 1), work));
        let code = self.binary("or", work, &kept, &sign);
        self.convert("trunc", work, &code, to)
    }

    /// Returns a 64-bit integer as an f64 that rounds to any small float as the integer itself
    /// would: of more than 53 bits the low 11 are dropped, and the last remaining bit is set if one
    /// of them was (round to odd).
    fn round_to_odd(&mut self, from: DType, x: &str) -> String {
        let (u64s, f64s) = (like(from, Scalar::U64), like(from, Scalar::F64));
        let zero = int(0, u64s);
        let negative = if from.is_unsigned() {
            literal(Const::Bool(false), like(from, Scalar::Bool))
        } else {
            self.binary("icmp slt", from, x, &zero)
        };
        let turned = self.binary("sub", u64s, &zero, x);
        let m = self.select("cast", u64s, &negative, &turned, x);
        let low = self.binary("and", u64s, &m, &int(0x7ff, u64s));
        let low = self.binary("icmp ne", u64s, &low, &zero);
        let last = self.select("cast", u64s, &low, &int(0x800, u64s), &zero);
        let kept = self.binary("and", u64s, &m, &int(!0x7ff, u64s));
        let kept = self.binary("or", u64s, &kept, &last);
        let long = self.binary("icmp ugt", u64s, &m, &int((1 << 53) - 1, u64s));
        let m = self.select("cast", u64s, &long, &kept, &m);
        let f = self.convert("uitofp", u64s, &m, f64s);
        let minus = self.define("cast", &format!("fneg {} {f}", ty(f64s)));
        self.select("cast", f64s, &negative, &minus, &f)
    }
}
