//! Vectors in languages that have operators for them, and ops lane by lane for the rest.

use super::dialect::{Alu, Text, is_small};
use super::expr::{arithmetic, scalar};
use super::literal::is_ones;
use super::prelude::Cx;
use super::value::{Form, Operand};
use crate::dtype::DType;
use crate::ir::{Group, Op};

/// Returns the value as a whole vector, which is built here if it is a list of lanes.
pub(super) fn as_vector(cx: &mut Cx, x: &Operand, dtype: DType) -> Text {
    match &x.lanes {
        Some(lanes) if x.text.is_empty() => cx.build(dtype, lanes),
        _ => Ok(x.text.clone()),
    }
}

/// Returns the same for a value without other uses.
pub(super) fn into_vector(cx: &mut Cx, x: Operand, dtype: DType) -> Text {
    if x.lanes.is_some() && x.text.is_empty() { as_vector(cx, &x, dtype) } else { Ok(x.text) }
}

/// Returns the operands of an operator: one of the two may stay a scalar if its type is surely that
/// of a lane.
pub(super) fn vector_operands(
    cx: &mut Cx,
    args: &[Operand],
    dtype: DType,
) -> Result<Vec<Operand>, String> {
    let mut free = dtype.bits() >= 32 && !dtype.is_bool() && !is_small(dtype.scalar);
    let all = args.iter().all(|a| a.splat().is_some());
    args.iter()
        .map(|a| match (a.splat(), &a.form) {
            (Some(x), Form::Plain) if free && !all => {
                free = false;
                Ok(Operand { text: x.to_string(), lanes: None, ..a.clone() })
            }
            _ => Ok(Operand { text: as_vector(cx, a, dtype)?, ..a.clone() }),
        })
        .collect()
}

/// Returns an op with an operator on whole vectors.
pub(super) fn operators(cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
    // -1 and all ones do not appear in the text, so they are not built.
    let plain = |a: &Operand| {
        a.literal.is_some() && matches!(alu.op, Op::Mul | Op::Xor) && is_ones(a, alu.dtype.scalar)
    };
    if let Some(i) = alu.args.iter().position(plain)
        && alu.args.len() == 2
        && alu.args[1 - i].literal.is_none()
    {
        let mut args = alu.args.to_vec();
        match as_vector(cx, &args[1 - i], alu.dtype) {
            Ok(text) => args[1 - i].text = text,
            Err(e) => return Some(Err(e)),
        }
        return arithmetic(cx, alu.op, alu.dtype.scalar, &args).map(Ok);
    }
    match vector_operands(cx, alu.args, alu.dtype) {
        // A negative literal would be subtracted as a scalar `int`, whose type may not be that of a
        // narrow lane.
        Ok(mut args) => {
            if alu.dtype.bits() < 32 {
                args.iter_mut().for_each(|a| a.literal = None);
            }
            arithmetic(cx, alu.op, alu.dtype.scalar, &args).map(Ok)
        }
        Err(e) => Some(Err(e)),
    }
}

/// Returns the ops that OpenCL and Metal have operators for on vectors. Signed integers go lane by
/// lane, through unsigned ones.
pub(super) fn gpu_operators(cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>> {
    let dtype = alu.dtype;
    let has = match alu.op {
        Op::Add | Op::Mul if dtype.is_float() => !is_small(dtype.scalar),
        Op::Div => true,
        Op::Add | Op::Mul => dtype.is_unsigned() && dtype.bits() >= 32,
        Op::And | Op::Or | Op::Xor => dtype.is_int(),
        _ => false,
    };
    if has && !is_small(dtype.scalar) { operators(cx, alu) } else { None }
}

/// Returns the dtype of operand `i`.
fn operand_dtype(alu: &Alu, i: usize) -> DType {
    if alu.op == Op::Where && i == 0 { DType::BOOL.vec(alu.dtype.lanes) } else { alu.from }
}

/// Returns the op on each lane. `lane` gives the text of a lane of an operand.
pub(super) fn lanes(
    cx: &mut Cx,
    alu: &Alu,
    index: bool,
    lane: impl Fn(&mut Cx, usize, usize) -> String,
) -> Result<Vec<String>, String> {
    (0..alu.dtype.lanes as usize)
        .map(|l| {
            let args: Vec<Operand> = alu
                .args
                .iter()
                .enumerate()
                .map(|(i, a)| Operand { literal: a.literal, ..Operand::plain(lane(cx, i, l)) })
                .collect();
            Ok(scalar(
                cx,
                &Alu {
                    op: alu.op,
                    dtype: alu.dtype.scalar(),
                    from: alu.from.scalar(),
                    args: &args,
                },
                index,
            )?
            .text)
        })
        .collect()
}

/// Returns true if the op is long on each lane, so that a loop is better than unrolled lanes. Short
/// ones are unrolled, because compilers then make one vector instruction of them.
fn is_heavy(alu: &Alu) -> bool {
    let long = alu.op == Op::Cast && (is_small(alu.dtype.scalar) || is_small(alu.from.scalar));
    !alu.dtype.is_bool()
        && (long || alu.op.is(Group::Transcendental) || matches!(alu.op, Op::CDiv | Op::CMod))
}

/// Returns the op as a call of a helper function that does it lane by lane.
pub(super) fn lanes_in_helper(cx: &mut Cx, alu: &Alu) -> Text {
    let name = match alu.op {
        Op::Cast => format!("{}_to_{}", alu.from, alu.dtype),
        Op::Bitcast => format!("{}_as_{}", alu.from, alu.dtype),
        op => format!("{}_{}", op.name().to_lowercase(), alu.from),
    };
    cx.helper(&name, alu.dtype, |cx| {
        let mut params = Vec::new();
        for (i, p) in ["x", "y", "z"].iter().take(alu.args.len()).enumerate() {
            params.push(format!("{} {p}", cx.ty(operand_dtype(alu, i))?));
        }
        // A literal in one call is not one in the next.
        let args = vec![Operand::plain(""); alu.args.len()];
        let general = Alu { args: &args, ..*alu };
        let body = if is_heavy(alu) {
            let one = Alu { dtype: alu.dtype.scalar(), from: alu.from.scalar(), ..general };
            let text = lanes(cx, &one, false, |cx, i, _| {
                cx.lane_at(operand_dtype(alu, i), ["x", "y", "z"][i], "i")
            })?;
            let (ty, lane) = (cx.ty(alu.dtype)?, cx.lane_at(alu.dtype, "r", "i"));
            format!(
                "{ty} r; for (int i = 0; i < {}; i++) {lane} = {}; return r;",
                alu.dtype.lanes, text[0]
            )
        } else {
            let lanes = lanes(cx, &general, false, |cx, i, l| {
                cx.lane(operand_dtype(alu, i), ["x", "y", "z"][i], l)
            })?;
            format!("return {};", cx.build(alu.dtype, &lanes)?)
        };
        Ok((params.join(", "), body))
    })?;
    let args: Vec<String> = alu
        .args
        .iter()
        .enumerate()
        .map(|(i, a)| as_vector(cx, a, operand_dtype(alu, i)))
        .collect::<Result<_, _>>()?;
    Ok(format!("{name}({})", args.join(",")))
}
