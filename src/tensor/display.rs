//! Formatting. `Display` computes the values and lays them out like NumPy; `Debug` shows the lazy
//! node without computing.

use super::Tensor;
use crate::dtype::{Const, DType, Scalar, read, round_f64};
use crate::ir::Op;
use std::fmt;

/// Number of elements above which only the edges are shown.
const SUMMARY_OVER: usize = 1000;
/// Elements shown at each edge.
const EDGE: usize = 3;
/// Maximum columns of a row.
const WIDTH: usize = 75;
/// Maximum digits after the point.
const DIGITS: usize = 8;

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uop = self.uop();
        // A reshaped buffer, or its symbolic slice, is shown as a buffer.
        let mut under = &uop;
        while matches!(under.op(), Op::Reshape | Op::Slice)
            && (under.op() == Op::Reshape || super::realize::is_all(under))
        {
            under = under.operand();
        }
        let op = if under.op() == Op::Buffer { Op::Buffer } else { uop.op() };
        write!(
            f,
            "<Tensor {} {} on {}: {op:?}>",
            uop.dtype(),
            super::variable::format_shape(&uop),
            self.device()
        )
    }
}

impl fmt::Display for Tensor {
    /// Formats the values, which are computed now, or the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self.to_bytes() {
            Ok(bytes) => bytes,
            Err(e) => {
                return write!(
                    f,
                    "<Tensor {} {:?} on {}: {e}>",
                    self.dtype(),
                    self.dims(),
                    self.device()
                );
            }
        };
        let dtype = self.dtype();
        let elements: Vec<Const> =
            bytes.chunks_exact(dtype.itemsize()).map(|b| read(b, dtype)).collect();
        f.write_str(&render(&elements, dtype, &self.shape()))
    }
}

fn render(elements: &[Const], dtype: DType, shape: &[usize]) -> String {
    if shape.is_empty() {
        return Style::of(elements, dtype).text(elements[0], dtype);
    }
    let summary = elements.len() > SUMMARY_OVER;
    let mut places = Vec::new();
    shown(shape, summary, 0, &mut places);
    let picked: Vec<Const> = places.iter().map(|&i| elements[i]).collect();
    let style = Style::of(&picked, dtype);
    let texts: Vec<String> = picked.iter().map(|c| style.text(*c, dtype)).collect();
    let width = texts.iter().map(|t| t.len()).max().unwrap_or(0);
    let texts = texts.into_iter().map(|t| format!("{t:>width$}"));
    let mut out = String::new();
    layout(shape, summary, 0, &mut texts.into_iter(), &mut out);
    out
}

/// Returns the indices of an axis that are shown; `None` is the gap.
fn visible(size: usize, summary: bool) -> Vec<Option<usize>> {
    if !summary || size <= 2 * EDGE {
        return (0..size).map(Some).collect();
    }
    (0..EDGE).map(Some).chain([None]).chain((size - EDGE..size).map(Some)).collect()
}

/// Row-major indices of the shown elements.
fn shown(shape: &[usize], summary: bool, base: usize, out: &mut Vec<usize>) {
    let Some((&size, rest)) = shape.split_first() else { return out.push(base) };
    let stride: usize = rest.iter().product();
    for i in visible(size, summary).into_iter().flatten() {
        shown(rest, summary, base + i * stride, out);
    }
}

fn layout(
    shape: &[usize],
    summary: bool,
    depth: usize,
    texts: &mut impl Iterator<Item = String>,
    out: &mut String,
) {
    out.push('[');
    let (size, rest) = (shape[0], &shape[1..]);
    // One column of indentation per open bracket.
    let indent = " ".repeat(depth + 1);
    let mut column = depth + 1;
    for (n, item) in visible(size, summary).into_iter().enumerate() {
        let text = match item {
            None => Some("...".to_string()),
            Some(_) if rest.is_empty() => texts.next(),
            Some(_) => None,
        };
        if !rest.is_empty() {
            if n > 0 {
                // Blank lines separate the blocks of higher axes.
                out.push_str(&"\n".repeat(rest.len()));
                out.push_str(&indent);
            }
            match text {
                Some(gap) => out.push_str(&gap),
                None => layout(rest, summary, depth + 1, texts, out),
            }
            continue;
        }
        let text = text.expect("a text per element");
        if n > 0 && column + 1 + text.len() > WIDTH {
            out.push('\n');
            out.push_str(&indent);
            column = depth + 1;
        } else if n > 0 {
            out.push(' ');
            column += 1;
        }
        column += text.len();
        out.push_str(&text);
    }
    out.push(']');
}

/// Common format of all elements, which aligns them.
enum Style {
    /// Integers and bools.
    Plain,
    /// Digits after the point.
    Fixed(usize),
    /// Digits of the mantissa after the point.
    Scientific(usize),
}

impl Style {
    fn of(elements: &[Const], dtype: DType) -> Style {
        if !dtype.is_float() {
            return Style::Plain;
        }
        let finite: Vec<f64> = elements
            .iter()
            .map(|c| c.as_f64(dtype))
            .filter(|x| x.is_finite() && *x != 0.0)
            .collect();
        let large = finite.iter().any(|x| x.abs() >= 1e8);
        let small = finite.iter().any(|x| x.abs() < 1e-4);
        if large || small {
            return Style::Scientific(
                finite.iter().map(|&x| mantissa_digits(x, dtype)).max().unwrap_or(0),
            );
        }
        let digits = |x: f64| {
            let mantissa = mantissa_digits(x, dtype);
            (mantissa as i32 - exponent(x, mantissa)).clamp(0, DIGITS as i32) as usize
        };
        Style::Fixed(finite.iter().map(|&x| digits(x)).max().unwrap_or(0))
    }

    fn text(&self, c: Const, dtype: DType) -> String {
        let x = match (c, dtype.scalar) {
            (Const::Float(x), _) => x,
            (Const::Int(i), Scalar::U64) => return (i as u64).to_string(),
            _ => return c.to_string(),
        };
        if !x.is_finite() {
            return x.to_string().to_lowercase();
        }
        match *self {
            Style::Plain => c.to_string(),
            Style::Scientific(digits) => format!("{x:.digits$e}"),
            Style::Fixed(digits) => {
                let text = format!("{x:.digits$}");
                // Blanks replace trailing zeros and keep the points aligned.
                let short = if digits == 0 {
                    format!("{text}.")
                } else {
                    text.trim_end_matches('0').to_string()
                };
                format!("{short:<0$}", text.len() + (digits == 0) as usize)
            }
        }
    }
}

/// Fewest digits after the mantissa's point that round-trip in the dtype, up to the limit.
fn mantissa_digits(x: f64, dtype: DType) -> usize {
    let same = |digits: &usize| {
        let text = format!("{x:.0$e}", *digits);
        text.parse::<f64>().is_ok_and(|y| round_f64(y, dtype.scalar) == x)
    };
    (0..DIGITS).find(same).unwrap_or(DIGITS)
}

/// Decimal exponent after rounding the mantissa to `digits`.
fn exponent(x: f64, digits: usize) -> i32 {
    let text = format!("{x:.digits$e}");
    text.rsplit_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0)
}
