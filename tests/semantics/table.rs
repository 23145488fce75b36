//! The rows of `docs/semantics.md`: parsed, and called as methods of tensors.

use picograd::dtype::Const;
use picograd::tensor::Operand;
use picograd::{DType, Result, Tensor};

/// A parsed argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Values of a dtype. A single value broadcasts over the lists.
    Values { dtype: DType, values: Vec<Const>, list: bool },
    /// A number without a dtype.
    Bare(Const),
    /// A dtype to cast to.
    DType(DType),
}

/// A row of the page: a call and its result.
#[derive(Clone, Debug)]
pub struct Row {
    /// The call as written.
    pub text: String,
    /// The method name.
    pub name: String,
    /// The receiver and the arguments.
    pub args: Vec<Arg>,
    /// The dtype and elements of the result; `None` if the call is an error.
    pub result: Option<(DType, Vec<Const>)>,
}

/// Methods that reduce a list.
const FOLDS: [&str; 9] = ["sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin"];
/// Methods that sort a list; the second argument is true for descending order.
const ORDERS: [&str; 2] = ["sort", "argsort"];

impl Row {
    /// True for a reduction of a list.
    pub fn is_fold(&self) -> bool {
        FOLDS.contains(&self.name.as_str())
    }
    /// True for a sort of a list.
    pub fn is_order(&self) -> bool {
        ORDERS.contains(&self.name.as_str())
    }
    /// True for an elementwise method.
    pub fn is_elementwise(&self) -> bool {
        !self.is_fold() && !self.is_order()
    }
    /// Every dtype of the row.
    pub fn dtypes(&self) -> impl Iterator<Item = DType> {
        let of = |a: &Arg| match a {
            Arg::Values { dtype, .. } | Arg::DType(dtype) => Some(*dtype),
            Arg::Bare(_) => None,
        };
        self.args.iter().filter_map(of).chain(self.result.iter().map(|(dtype, _)| *dtype))
    }
    /// The key of rows that can be computed together: the method, and everything of the arguments
    /// but their values.
    pub fn signature(&self) -> String {
        let of = |a: &Arg| match a {
            Arg::Values { dtype, .. } => dtype.to_string(),
            other => format!("{other:?}"),
        };
        format!("{}({})", self.name, self.args.iter().map(of).collect::<Vec<_>>().join(", "))
    }
    /// The number of elements of an elementwise call.
    pub fn len(&self) -> usize {
        let of = |a: &Arg| match a {
            Arg::Values { values, .. } => values.len(),
            _ => 1,
        };
        self.args.iter().map(of).max().unwrap_or(1)
    }
    /// The arguments of the i-th element, each with one value.
    pub fn element(&self, i: usize) -> Vec<Arg> {
        let of = |a: &Arg| match a {
            Arg::Values { dtype, values, list } => Arg::Values {
                dtype: *dtype,
                values: vec![values[if values.len() == 1 { 0 } else { i }]],
                list: *list,
            },
            other => other.clone(),
        };
        self.args.iter().map(of).collect()
    }
}

/// The rows whose first column is a call in backticks.
pub fn rows(document: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in document.lines().filter(|l| l.starts_with("| `")) {
        let columns: Vec<&str> =
            line.trim_matches('|').split('|').map(|c| c.trim().trim_matches('`')).collect();
        let [call, result, _why] = columns[..] else { panic!("expected three columns: {line}") };
        rows.push(row(call, result).unwrap_or_else(|| panic!("cannot read the row {line}")));
    }
    rows
}

fn row(call: &str, result: &str) -> Option<Row> {
    let (name, rest) = call.split_once('(')?;
    let args =
        split(rest.strip_suffix(')')?).into_iter().map(argument).collect::<Option<Vec<Arg>>>()?;
    let result = match result {
        "error" => None,
        _ => match argument(result)? {
            Arg::Values { dtype, values, .. } => Some((dtype, values)),
            _ => return None,
        },
    };
    Some(Row { text: call.to_string(), name: name.to_string(), args, result })
}

/// Splits at commas that are not in brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

fn argument(text: &str) -> Option<Arg> {
    if let Ok(dtype) = text.parse::<DType>() {
        return Some(Arg::DType(dtype));
    }
    let Some((dtype, values)) = text.split_once(' ') else { return bare(text).map(Arg::Bare) };
    let dtype: DType = dtype.parse().ok()?;
    let list = values.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
    let items: Vec<&str> = match list {
        Some("") => Vec::new(),
        Some(inner) => inner.split(',').map(str::trim).collect(),
        None => vec![values],
    };
    let values = items.into_iter().map(|v| value(v, dtype)).collect::<Option<Vec<Const>>>()?;
    Some(Arg::Values { dtype, values, list: list.is_some() })
}

fn bare(text: &str) -> Option<Const> {
    match text {
        "true" | "false" => Some(Const::Bool(text == "true")),
        _ => text
            .parse::<i64>()
            .map(Const::Int)
            .ok()
            .or_else(|| text.parse::<f64>().map(Const::Float).ok()),
    }
}

/// A literal. An integer must fit its dtype; a decimal is the nearest number, rounded once.
fn value(text: &str, dtype: DType) -> Option<Const> {
    if dtype.is_bool() {
        return text.parse::<bool>().ok().map(Const::Bool);
    }
    if dtype.is_float() {
        // Parsing through f64 could round an f32 twice.
        let x = if dtype == DType::F32 {
            text.parse::<f32>().ok()? as f64
        } else {
            text.parse::<f64>().ok()?
        };
        return Some(Const::Float(x).cast(DType::F64, dtype));
    }
    let wide: i128 = text.parse().ok()?;
    let held = Const::Int(wide as i64).normalize(dtype);
    let back =
        held.as_i64().map(|v| if dtype == DType::U64 { v as u64 as i128 } else { v as i128 });
    (back == Some(wide)).then_some(held)
}

fn operand(c: Const) -> Operand {
    match c {
        Const::Bool(b) => b.into(),
        Const::Int(i) => i.into(),
        Const::Float(x) => x.into(),
    }
}

/// An argument of a call: a tensor, a number, or a dtype.
pub enum Given {
    /// A tensor or a number.
    Operand(Operand),
    /// A dtype.
    DType(DType),
}

impl Given {
    /// Converts a parsed argument; `tensor` creates tensors from values.
    pub fn new(arg: &Arg, tensor: impl FnOnce(DType, &[Const]) -> Tensor) -> Given {
        match arg {
            Arg::Values { dtype, values, .. } => Given::Operand(tensor(*dtype, values).into()),
            Arg::Bare(c) => Given::Operand(operand(*c)),
            Arg::DType(d) => Given::DType(*d),
        }
    }
}

/// Calls the method. Reductions and sorts are over axis 0.
pub fn call(name: &str, args: Vec<Given>) -> Result<Tensor> {
    let mut operands = Vec::new();
    let mut dtype = None;
    for arg in args {
        match arg {
            Given::Operand(o) => operands.push(o),
            Given::DType(d) => dtype = Some(d),
        }
    }
    let Operand::Tensor(x) = operands.remove(0) else { panic!("{name} is called on a tensor") };
    let mut operands = operands.into_iter();
    let mut next =
        || operands.next().unwrap_or_else(|| panic!("{name} was given too few arguments"));
    let tensor = |o: Operand| match o {
        Operand::Tensor(t) => t,
        Operand::Scalar(..) => panic!("{name} takes a tensor"),
    };
    let to = || dtype.expect("a dtype to cast to");
    let truth = |o: Operand| match o {
        Operand::Scalar(c, _) => c.is_true(),
        Operand::Tensor(_) => panic!("{name} takes a bare bool"),
    };
    match name {
        "add" => x.try_add(next()),
        "sub" => x.try_sub(next()),
        "mul" => x.try_mul(next()),
        "div" => x.try_div(next()),
        "idiv" => x.try_idiv(next()),
        "modulo" => x.try_modulo(next()),
        "fmod" => x.try_fmod(next()),
        "pow" => x.try_pow(next()),
        "maximum" => x.try_maximum(next()),
        "minimum" => x.try_minimum(next()),
        "eq" => x.try_eq(next()),
        "ne" => x.try_ne(next()),
        "lt" => x.try_lt(next()),
        "le" => x.try_le(next()),
        "gt" => x.try_gt(next()),
        "ge" => x.try_ge(next()),
        "bitwise_and" => x.try_bitwise_and(next()),
        "bitwise_or" => x.try_bitwise_or(next()),
        "bitwise_xor" => x.try_bitwise_xor(next()),
        "bitwise_not" => x.try_bitwise_not(),
        "lshift" => x.try_lshift(next()),
        "rshift" => x.try_rshift(next()),
        "neg" => x.try_neg(),
        "copysign" => x.try_copysign(&tensor(next())),
        "where" => x.try_where_(next(), next()),
        "clamp" => x.try_clamp(next(), next()),
        "cast" => x.try_cast(to()),
        "bitcast" => x.try_bitcast(to()),
        "abs" => Ok(x.abs()),
        "sign" => Ok(x.sign()),
        "relu" => Ok(x.relu()),
        "isnan" => Ok(x.isnan()),
        "isinf" => Ok(x.isinf()),
        "isfinite" => Ok(x.isfinite()),
        "trunc" => Ok(x.trunc()),
        "floor" => Ok(x.floor()),
        "ceil" => Ok(x.ceil()),
        "round" => Ok(x.round()),
        "sqrt" => Ok(x.sqrt()),
        "rsqrt" => Ok(x.rsqrt()),
        "exp" => Ok(x.exp()),
        "exp2" => Ok(x.exp2()),
        "log" => Ok(x.log()),
        "log2" => Ok(x.log2()),
        "sin" => Ok(x.sin()),
        "cos" => Ok(x.cos()),
        "tan" => Ok(x.tan()),
        "tanh" => Ok(x.tanh()),
        "sigmoid" => Ok(x.sigmoid()),
        "erf" => Ok(x.erf()),
        "sum" => x.try_sum(0),
        "prod" => x.try_prod(0),
        "max" => x.try_max(0),
        "min" => x.try_min(0),
        "mean" => x.try_mean(0),
        "any" => x.try_any(0),
        "all" => x.try_all(0),
        "argmax" => x.try_argmax(0),
        "argmin" => x.try_argmin(0),
        "sort" => Ok(x.try_sort(0, truth(next()))?.0),
        "argsort" => x.try_argsort(0, truth(next())),
        _ => panic!("unknown method {name}"),
    }
}
