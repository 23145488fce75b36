//! Elementwise ops as expressions. One function serves scalars, and with fewer casts the vectors
//! that a language has operators for.

use super::cast::{bitcast, cast};
use super::dialect::{Alu, Text, storage};
use super::literal::{below_zero, is_ones, literal};
use super::prelude::Cx;
use super::value::{Form, Operand, minus, operands};
use crate::dtype::{Const, DType, Scalar};
use crate::ir::{Group, Op};

/// Returns the result of an op on scalars. `index` is true if its integers cannot overflow.
pub(super) fn scalar(cx: &mut Cx, alu: &Alu, index: bool) -> Result<Operand, String> {
    let (op, dtype, from) = (alu.op, alu.dtype.scalar(), alu.from.scalar());
    let [x] = operands(alu.args);
    let plain = |text: Text| text.map(Operand::plain);
    match op {
        Op::Detach => return Ok(x.clone()),
        Op::Cast => return plain(cast(cx, from.scalar, dtype.scalar, &x.text)),
        Op::Bitcast => return plain(bitcast(cx, from.scalar, dtype.scalar, &x.text)),
        Op::Where => {
            let (dialect, [cond, x, y]) = (cx.dialect, operands(alu.args));
            return Ok(Operand::plain(dialect.select(
                cx,
                dtype.scalar,
                &cond.text,
                [&x.text, &y.text],
            )));
        }
        _ => {}
    }
    cx.scalar_type(from.scalar)?;
    if op.is(Group::Comparison) {
        let [x, y] = operands(alu.args);
        return Ok(comparison(op, from, &x.text, &y.text));
    }
    if dtype.is_bool() {
        return boolean(op, alu.args, from);
    }
    if dtype.is_float() {
        float(cx, alu, dtype.scalar)
    } else {
        integer(cx, op, dtype, alu.args, index)
    }
}

/// Returns `x < y`, `x == y` or `x != y`.
pub(super) fn comparison(op: Op, from: DType, x: &str, y: &str) -> Operand {
    let sign = match op {
        Op::Lt => "<",
        Op::Eq => "==",
        _ => "!=",
    };
    // `!(x<y)` is `x>=y` only without NaN.
    let form = if op == Op::Lt && from.is_float() {
        Form::Plain
    } else {
        Form::Compared { op, x: x.to_string(), y: y.to_string() }
    };
    Operand::with_form(format!("({x}{sign}{y})"), form)
}

/// Returns the negation of a comparison.
pub(super) fn negated_comparison(form: &Form) -> Option<String> {
    let Form::Compared { op, x, y } = form else { return None };
    let sign = match op {
        Op::Lt => ">=",
        Op::Eq => "!=",
        _ => "==",
    };
    Some(format!("({x}{sign}{y})"))
}

fn boolean(op: Op, args: &[Operand], from: DType) -> Result<Operand, String> {
    let [x, y] = operands(args);
    let sign = match op {
        Op::Add | Op::Or | Op::Max => "|",
        Op::Mul | Op::And | Op::Min => "&",
        Op::Xor => {
            for (x, y) in [(x, y), (y, x)] {
                if is_ones(y, from.scalar) {
                    return Ok(Operand::plain(
                        negated_comparison(&x.form).unwrap_or_else(|| format!("(!{})", x.text)),
                    ));
                }
            }
            "!="
        }
        _ => return Err(format!("{op:?} is not an op on bools")),
    };
    Ok(Operand::plain(format!("({}{sign}{})", x.text, y.text)))
}

fn float(cx: &mut Cx, alu: &Alu, scalar: Scalar) -> Result<Operand, String> {
    let (op, args) = (alu.op, alu.args);
    match op {
        Op::Add | Op::Mul | Op::Div => {
            Ok(arithmetic(cx, op, scalar, args).expect("floats have these operators"))
        }
        Op::Max | Op::Min => extreme(cx, op, scalar, args),
        _ => {
            let dialect = cx.dialect;
            let name = dialect.function(cx, op, scalar);
            let name = name.ok_or_else(|| format!("the language has no {op:?} on {scalar}"))?;
            let args: Vec<&str> = args.iter().map(|a| a.text.as_str()).collect();
            Ok(Operand::plain(format!("{name}({})", args.join(","))))
        }
    }
}

/// Returns the maximum or the minimum, by a helper because each operand is written twice.
fn extreme(cx: &mut Cx, op: Op, scalar: Scalar, args: &[Operand]) -> Result<Operand, String> {
    let (name, sign) =
        if op == Op::Max { (format!("max_{scalar}"), ">") } else { (format!("min_{scalar}"), "<") };
    let dtype = DType { scalar, lanes: 1 };
    cx.helper(&name, dtype, |cx| {
        let ty = cx.scalar_type(scalar)?;
        // NaN wins, and adding +0 makes a zero result +0.
        let zero = if scalar == Scalar::F64 { "0.0" } else { "0.0f" };
        let body = if dtype.is_float() {
            format!("return (a{sign}b||a!=a?a:b)+{zero};")
        } else {
            format!("return a{sign}b?a:b;")
        };
        Ok((format!("{ty} a, {ty} b"), body))
    })?;
    let [x, y] = operands(args);
    Ok(Operand::plain(format!("{name}({},{})", x.text, y.text)))
}

/// Returns the text of an op with operators, before casts: `(x+y)`, `(x-y)`, `(-x)`. Operands of
/// vectors may be scalars of the same type.
pub(super) fn arithmetic(cx: &Cx, op: Op, scalar: Scalar, args: &[Operand]) -> Option<Operand> {
    let [x, y] = operands(args);
    fn text(o: &Operand) -> &str {
        if o.text.is_empty() { o.splat().unwrap_or_default() } else { &o.text }
    }
    let either = [(x, y), (y, x)];
    let sign = match op {
        Op::Add => {
            for (x, y) in either {
                if let Form::Negated(y) = &y.form {
                    return Some(Operand::plain(format!("({})", minus(text(x), y))));
                }
                if let Some(y) = below_zero(cx, y, scalar) {
                    return Some(Operand::plain(format!("({})", minus(text(x), &y))));
                }
            }
            "+"
        }
        Op::Mul => {
            for (x, y) in either {
                if is_ones(y, scalar) && x.literal.is_none() {
                    let x = text(x);
                    return Some(Operand::with_form(
                        format!("({})", minus("", x)),
                        Form::Negated(x.to_string()),
                    ));
                }
            }
            "*"
        }
        Op::Xor => {
            for (x, y) in either {
                if is_ones(y, scalar) {
                    return Some(Operand::plain(format!("(~{})", text(x))));
                }
            }
            "^"
        }
        Op::Div | Op::CDiv => "/",
        Op::CMod => "%",
        Op::And => "&",
        Op::Or => "|",
        _ => return None,
    };
    Some(Operand::plain(format!("({}{sign}{})", text(x), text(y))))
}

fn integer(
    cx: &mut Cx,
    op: Op,
    dtype: DType,
    args: &[Operand],
    index: bool,
) -> Result<Operand, String> {
    let scalar = dtype.scalar;
    let ty = cx.scalar_type(scalar)?;
    if matches!(op, Op::Max | Op::Min) {
        return extreme(cx, op, scalar, args);
    }
    // Signed overflow is undefined without -fwrapv: such arithmetic uses the unsigned type.
    let wraps = matches!(op, Op::Add | Op::Mul | Op::Shl);
    let by_cast = cx.dialect.words().wrap_by_cast && dtype.is_signed_int() && dtype.bits() >= 32;
    if by_cast && wraps && !index {
        return wrapping(cx, op, scalar, args);
    }
    let result = operation(cx, op, scalar, args)?;
    // Narrow integers are computed as int.
    let negates = op == Op::Xor && args.iter().any(|a| is_ones(a, scalar));
    let grows = wraps || op == Op::CDiv || negates;
    if dtype.bits() < 32 && grows {
        return Ok(Operand { text: format!("(({ty}){})", result.text), ..result });
    }
    Ok(result)
}

/// Returns an op with an operator on integers of a type.
fn operation(cx: &Cx, op: Op, scalar: Scalar, args: &[Operand]) -> Result<Operand, String> {
    let sign = match op {
        Op::Shl => "<<",
        Op::Shr => ">>",
        _ => {
            let result = arithmetic(cx, op, scalar, args);
            return result.ok_or_else(|| format!("the language has no {op:?} on {scalar}"));
        }
    };
    let [x, y] = operands(args);
    Ok(Operand::plain(format!("({}{sign}{})", x.text, count(cx, y, scalar)?)))
}

/// Returns an op on signed integers, computed as unsigned ones.
fn wrapping(cx: &Cx, op: Op, scalar: Scalar, args: &[Operand]) -> Result<Operand, String> {
    let through = if storage(scalar) == Scalar::I64 { Scalar::U64 } else { Scalar::U32 };
    let (ty, unsigned) = (cx.scalar_type(scalar)?, cx.scalar_type(through)?);
    let converted = |a: &Operand| {
        if let (Op::Add, Some(x)) = (op, below_zero(cx, a, scalar)) {
            return Ok(Operand::with_form(a.text.clone(), Form::Negated(x)));
        }
        Ok(match (a.literal, &a.form) {
            (Some(c), _) => literal(cx, c, DType { scalar: through, lanes: 1 })?,
            (None, Form::Negated(x)) => Operand::with_form(
                format!("({unsigned}){}", a.text),
                Form::Negated(format!("({unsigned}){x}")),
            ),
            (None, Form::Wrapped(x)) => Operand::plain(x.clone()),
            _ => Operand::plain(format!("({unsigned}){}", a.text)),
        })
    };
    let unsigned_args = args.iter().map(converted).collect::<Result<Vec<_>, String>>()?;
    let result = operation(cx, op, through, &unsigned_args)?;
    // A negated value is remembered as it was before the casts.
    let form = match &result.form {
        Form::Negated(_) => {
            let [x, y] = operands(args);
            Form::Negated(if is_ones(x, scalar) { y } else { x }.text.clone())
        }
        _ => Form::Wrapped(result.text.clone()),
    };
    Ok(Operand::with_form(format!("(({ty}){})", result.text), form))
}

/// Returns a shift count. A count outside the width is undefined in C, even if the result is not
/// used, so only its low bits are used.
pub(super) fn count(cx: &Cx, y: &Operand, scalar: Scalar) -> Text {
    let mask = i64::from(scalar.bits()) - 1;
    match y.literal {
        Some(Const::Int(v)) => super::literal::scalar(cx, Const::Int(v & mask), Scalar::I32),
        _ => Ok(format!("({}&{mask})", y.text)),
    }
}
