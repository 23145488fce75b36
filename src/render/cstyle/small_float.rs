//! Conversions of the floats that are held as bits (f16, bf16, fp8), as helper functions of integer
//! arithmetic that every language of the family has: to the nearest, ties to even, with subnormals,
//! also on hardware that flushes subnormals of `float`.

use super::dialect::{Text, storage};
use super::prelude::Cx;
use crate::dtype::{Const, DType, Scalar};
use crate::render::facts::{Layout, layout};

/// The parts that differ between a function of scalars and the same function of vectors.
struct HelperTypes {
    lanes: u16,
    /// The float and the unsigned integer that the work is done in, and the type of the code.
    wide: DType,
    work: DType,
    code: DType,
}

impl HelperTypes {
    fn new(wide: DType, small: DType) -> HelperTypes {
        let work = if wide.bits() == 64 { DType::U64 } else { DType::U32 };
        let code = DType { scalar: storage(small.scalar), lanes: wide.lanes };
        HelperTypes { lanes: wide.lanes, wide, work: work.vec(wide.lanes), code }
    }
    fn bits(&self, cx: &mut Cx, x: &str) -> Text {
        self.reinterpret(cx, x, self.wide, self.work)
    }
    fn float(&self, cx: &mut Cx, x: &str) -> Text {
        self.reinterpret(cx, x, self.work, self.wide)
    }
    fn reinterpret(&self, cx: &mut Cx, x: &str, from: DType, to: DType) -> Text {
        let dialect = cx.dialect;
        if self.lanes == 1 {
            Ok(dialect.reinterpret(cx, x, from.scalar, to.scalar))
        } else {
            Ok(format!("({})({x})", cx.ty(to)?))
        }
    }
    fn convert(&self, cx: &mut Cx, x: &str, to: DType) -> Text {
        let ty = cx.ty(to)?;
        Ok(if self.lanes == 1 {
            format!("({ty}){x}")
        } else {
            format!("__builtin_convertvector({x},{ty})")
        })
    }
    fn select(&self, cx: &mut Cx, condition: &str, x: &str, y: &str) -> Text {
        if self.lanes == 1 {
            Ok(format!("({condition}?{x}:{y})"))
        } else {
            super::clang_vector::select(cx, self.work, condition, x, y)
        }
    }
    /// Returns an integer of the working type in every lane.
    fn int(&self, cx: &mut Cx, value: u64) -> Text {
        let text = if self.work.bits() == 64 {
            format!("{value:#x}u{}", cx.dialect.words().long)
        } else {
            format!("{value:#x}u")
        };
        if self.lanes == 1 {
            Ok(text)
        } else {
            cx.build(self.work, &vec![text; self.lanes as usize])
        }
    }
}

/// Returns `x`, of a small float, as f32. Vectors are for C alone.
pub(super) fn decode(cx: &mut Cx, small: DType, x: &str) -> Text {
    let name = format!("{small}_to_{}", DType::F32.vec(small.lanes));
    let wide = DType::F32.vec(small.lanes);
    cx.helper(&name, wide, |cx| {
        let kit = HelperTypes::new(wide, small);
        let params = format!("{} x", cx.ty(kit.code)?);
        if let (Some(body), Scalar::F16, 1) = (cx.dialect.half()[0], small.scalar, small.lanes) {
            return Ok((params, body.to_string()));
        }
        let u = cx.ty(kit.work)?;
        let widened = kit.convert(cx, "x", kit.work)?;
        let l = layout(small.scalar);
        if small.scalar == Scalar::BF16 {
            let value = kit.float(cx, "u<<16")?;
            return Ok((params, format!("{u} u = {widened}; return {value};")));
        }
        // A code shifted to the position of a float's exponent and mantissa lacks only the
        // difference of the biases. A subnormal gets the exponent of the least normal number, which
        // is then subtracted: both steps are exact, and neither has a subnormal operand.
        let drop = 23 - l.mantissa;
        let rebase = u64::from(127 - l.bias) << 23;
        let least = u64::from(128 - l.bias) << 23;
        let f = cx.ty(wide)?;
        let raised = kit.float(cx, &format!("(m<<{drop})|{least:#x}u"))?;
        let base = super::literal::scalar(
            cx,
            Const::Float(f32::from_bits(least as u32) as f64),
            Scalar::F32,
        )?;
        let special =
            if l.has_inf { format!("(n+{rebase:#x}u)") } else { kit.int(cx, 0x7fc0_0000)? };
        let lifted = kit.bits(cx, "s")?;
        let number = kit.select(cx, &format!("(m<{:#x}u)", 1 << l.mantissa), &lifted, "n")?;
        let magnitude = kit.select(cx, &format!("(m>={:#x}u)", l.over), &special, &number)?;
        let value = kit.float(
            cx,
            &format!("{magnitude}|((u&{:#x}u)<<{})", 1u64 << (l.bits - 1), 32 - l.bits),
        )?;
        let mask = (1u64 << (l.bits - 1)) - 1;
        Ok((
            params,
            format!(
                "{u} u = {widened}; {u} m = u&{mask:#x}u; {u} n = (m<<{drop})+{rebase:#x}u; {f} s \
                 = {raised}-{base}; return {value};"
            ),
        ))
    })?;
    Ok(format!("{name}({x})"))
}

/// The numbers of an encoding from a wide float to a small one.
struct Encoding {
    small: Layout,
    /// Bits of the mantissa, bias of the exponent, and bits of the wide float.
    mantissa: u32,
    bias: u32,
    width: u32,
    /// Bits of the mantissa that the small float lacks.
    drop: u32,
    /// Suffix of unsigned literals of the wide float's width.
    suffix: String,
}

impl Encoding {
    fn new(cx: &Cx, wide: DType, small: Scalar) -> Encoding {
        let small = layout(small);
        let is_double = wide.scalar == Scalar::F64;
        let (mantissa, bias, width) = if is_double { (52, 1023, 64) } else { (23, 127, 32) };
        let suffix =
            if is_double { format!("u{}", cx.dialect.words().long) } else { "u".to_string() };
        Encoding { drop: mantissa - small.mantissa, small, mantissa, bias, width, suffix }
    }

    /// Returns the statements that set `r` to the rounded code of the magnitude `m`.
    fn rounded(&self, cx: &mut Cx, kit: &HelperTypes, u: &str) -> Text {
        let Encoding { small: l, mantissa, bias, drop, suffix, .. } = self;
        let half = (1u64 << (drop - 1)) - 1;
        if *bias == l.bias {
            // bf16 from f32: the upper half, rounded.
            return Ok(format!("{u} r = (m+{half:#x}{suffix}+((m>>{drop})&1{suffix}))>>{drop}; "));
        }
        // Codes are in the order of their values, so rounding may carry into the exponent. A
        // subnormal is rounded by adding the power of two whose last digit is that of the least
        // subnormal.
        let rebase = u64::from(bias - l.bias) << mantissa;
        let least = u64::from(bias - l.bias + 1) << mantissa;
        let magic = u64::from(bias + 1 + mantissa - l.bias - l.mantissa) << mantissa;
        let value = match self.width {
            64 => f64::from_bits(magic),
            _ => f32::from_bits(magic as u32) as f64,
        };
        let magic_text = super::literal::scalar(cx, Const::Float(value), kit.wide.scalar)?;
        let positive = kit.float(cx, "m")?;
        let lifted = kit.bits(cx, &format!("({positive}+{magic_text})"))?;
        let is_subnormal = format!("(m<{least:#x}{suffix})");
        let code = kit.select(cx, &is_subnormal, &format!("({lifted}-{magic:#x}{suffix})"), "n")?;
        let over = kit.int(cx, l.over)?;
        let clamped = kit.select(cx, &format!("(r>{:#x}{suffix})", l.over), &over, "r")?;
        Ok(format!(
            "{u} n = (m-{rebase:#x}{suffix}+{half:#x}{suffix}+((m>>{drop})&1{suffix}))>>{drop}; \
             {u} r = {code}; r = {clamped}; "
        ))
    }
}

/// Returns `x`, of f32 or f64, as a small float. Vectors are for C and f32 alone.
pub(super) fn encode(cx: &mut Cx, wide: DType, small: Scalar, x: &str) -> Text {
    let small = DType { scalar: small, lanes: wide.lanes };
    let name = format!("{wide}_to_{small}");
    let result = DType { scalar: storage(small.scalar), lanes: wide.lanes };
    cx.helper(&name, result, |cx| {
        let kit = HelperTypes::new(wide, small);
        let params = format!("{} x", cx.ty(wide)?);
        if let (Some(body), Scalar::F16, DType::F32) = (cx.dialect.half()[1], small.scalar, wide) {
            return Ok((params, body.to_string()));
        }
        let encoding = Encoding::new(cx, wide, small.scalar);
        let Encoding { small: l, mantissa, bias, width, suffix, .. } = &encoding;
        let u = cx.ty(kit.work)?;
        let infinity = u64::from(2 * bias + 1) << mantissa;
        let (bits, sign) = (kit.bits(cx, "x")?, 1u64 << (l.bits - 1));
        let nan = kit.int(cx, l.over | 1 << (l.mantissa - 1))?;
        let is_nan = format!("(m>{infinity:#x}{suffix})");
        let magnitude = (1u64 << (width - 1)) - 1;
        let rounded = encoding.rounded(cx, &kit, &u)?;
        let kept = kit.select(cx, &is_nan, &nan, "r")?;
        let signed = format!("({kept}|((u>>{})&{sign:#x}{suffix}))", width - l.bits);
        let code = kit.convert(cx, &signed, kit.code)?;
        Ok((
            params,
            format!("{u} u = {bits}; {u} m = u&{magnitude:#x}{suffix}; {rounded}return {code};"),
        ))
    })?;
    Ok(format!("{name}({x})"))
}
