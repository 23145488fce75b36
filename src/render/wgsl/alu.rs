//! Elementwise ops as expressions, lane by lane.

use super::text::ty;
use super::{Lanes, Text, WgslWriter};
use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Group, Op, UOp};
use crate::render::facts::is_small;

/// An op with the scalar dtypes of its operands and its result.
struct Alu {
    op: Op,
    from: DType,
    to: DType,
}

impl WgslWriter<'_> {
    pub(super) fn alu(&mut self, u: &UOp) -> Result<Lanes, String> {
        let (op, dtype, src) = (u.op(), u.dtype(), u.src());
        let from = u.operand_dtype();
        if op == Op::Detach {
            return self.held(u.operand());
        }
        let mut args = src.iter().map(|s| self.lanes(s)).collect::<Result<Vec<Lanes>, _>>()?;
        if matches!(op, Op::Shl | Op::Shr)
            && let ([_, amount], [_, lanes]) = (src, &mut args[..])
        {
            *lanes = counts(amount, lanes);
        }
        // The compiler computes expressions of literals itself, and rejects an overflow. A name
        // hides a literal from it.
        if src.iter().all(|s| s.as_const().is_some()) {
            let first = args.first_mut().expect("an elementwise op has an operand");
            *first = vec![self.define("lit", &first[0].clone()); first.len()];
        }
        let alu = Alu { op, from: from.scalar(), to: dtype.scalar() };
        let negates = |i: usize| src[i].as_const() == Some(Const::Float(-1.0));
        (0..dtype.lanes as usize)
            .map(|lane| {
                let x: Vec<&str> = args.iter().map(|a| a[lane].as_str()).collect();
                let text = match op {
                    Op::Mul
                        if dtype.is_float()
                            && src.len() == 2
                            && (negates(0) || negates(1))
                            && !is_small(dtype.scalar) =>
                    {
                        self.exact_call("hidden", &[&format!("-{}", x[negates(0) as usize])])
                    }
                    _ => self.expression(&alu, &x)?,
                };
                Ok(self.define(
                    if matches!(op, Op::Cast | Op::Bitcast) { "cast" } else { "alu" },
                    &text,
                ))
            })
            .collect()
    }

    fn expression(&mut self, alu: &Alu, x: &[&str]) -> Text {
        let (op, from, to) = (alu.op, alu.from, alu.to);
        match op {
            Op::Cast => return self.cast(from.scalar, to.scalar, x[0]),
            Op::Bitcast => return self.bitcast(from.scalar, to.scalar, x[0]),
            Op::Where => return Ok(format!("select({}, {}, {})", x[2], x[1], x[0])),
            _ => {}
        }
        ty(from.scalar)?;
        if op.is(Group::Comparison) {
            return Ok(match op {
                _ if from.is_float() => self.compare(op, x),
                Op::Lt => format!("{} < {}", x[0], x[1]),
                Op::Eq => format!("{} == {}", x[0], x[1]),
                _ => format!("{} != {}", x[0], x[1]),
            });
        }
        if to.is_bool() {
            let sign = match op {
                Op::Add | Op::Or | Op::Max => "|",
                Op::Mul | Op::And | Op::Min => "&",
                Op::Xor => "!=",
                _ => return Err(format!("{op:?} is not an op on bools")),
            };
            return Ok(format!("{} {sign} {}", x[0], x[1]));
        }
        if to.is_float() { self.float(op, x) } else { integer(op, to, x) }
    }
}

/// Returns shift counts, which are unsigned. Only their low bits are used: one past the width is an
/// error, even if the result is not used.
fn counts(u: &UOp, lanes: &[String]) -> Lanes {
    let mask = u.dtype().bits() - 1;
    match u.as_int() {
        Some(count) => vec![format!("{}u", count & i64::from(mask)); lanes.len()],
        None => lanes.iter().map(|x| format!("(u32({x})&{mask}u)")).collect(),
    }
}

/// Returns an op on integers. Results of less than 32 bits are extended again.
fn integer(op: Op, dtype: DType, x: &[&str]) -> Text {
    let text = match op {
        Op::Add => format!("{}+{}", x[0], x[1]),
        Op::Mul => format!("{}*{}", x[0], x[1]),
        Op::CDiv => format!("{}/{}", x[0], x[1]),
        Op::CMod => format!("{}%{}", x[0], x[1]),
        Op::And => format!("{}&{}", x[0], x[1]),
        Op::Or => format!("{}|{}", x[0], x[1]),
        Op::Xor => format!("{}^{}", x[0], x[1]),
        Op::Max => format!("select({1}, {0}, {0} > {1})", x[0], x[1]),
        Op::Min => format!("select({1}, {0}, {0} < {1})", x[0], x[1]),
        Op::Shl => format!("{}<<{}", x[0], x[1]),
        Op::Shr => format!("{}>>{}", x[0], x[1]),
        _ => return Err(format!("WGSL has no {op:?} on integers")),
    };
    Ok(if matches!(op, Op::Add | Op::Mul | Op::Shl | Op::CDiv) {
        narrowed(dtype.scalar, &text)
    } else {
        text
    })
}

/// Returns a value of 32 bits as one of a narrower integer, extended again.
pub(super) fn narrowed(scalar: Scalar, text: &str) -> String {
    match scalar {
        Scalar::I8 => format!("(({text})<<24u)>>24u"),
        Scalar::I16 => format!("(({text})<<16u)>>16u"),
        Scalar::U8 => format!("({text})&0xffu"),
        Scalar::U16 => format!("({text})&0xffffu"),
        _ => text.to_string(),
    }
}
