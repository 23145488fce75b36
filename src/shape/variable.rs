//! Symbolic dimensions. A [`Variable`] has a name and bounds; bound to a value it is a [`SymInt`],
//! which supports addition, subtraction and multiplication. Programs depend on names and bounds
//! only, so that one program serves all values.
//!
//! A `SymInt` is a sum of multiples of variables and a constant, so that equal sums compare equal,
//! and their bounds are exact.

use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

/// The largest value of a variable: kernels read it as `i32`.
const MAX_VALUE: i64 = i32::MAX as i64;

/// The largest partial sum of a size or an index. Kernels multiply indices by strides in 64 bits,
/// and no memory has that number of elements.
const MAX_SUM: i128 = 1 << 47;

/// A size or an index with a name and bounds, which is bound to a value at run time.
///
/// ```
/// use picograd::Variable;
/// let n = Variable::new("n", 1, 1024)?;
/// assert_eq!(n.bind(37)?.value(), 37);
/// assert_eq!(n.bind(2000).unwrap_err().to_string(), "bind: n is 2000, outside 1..=1024");
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Variable {
    name: Arc<str>,
    min: i64,
    max: i64,
}

fn wrong<T>(op: &'static str, msg: String) -> Result<T> {
    Err(Error::Shape { op, msg })
}

impl Variable {
    /// Returns a variable between `min` and `max`, both included. Its name has letters, digits and
    /// `_`, and does not begin with a digit; sizes and indices are not negative.
    pub fn new(name: &str, min: i64, max: i64) -> Result<Variable> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || !name.chars().all(word)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return wrong(
                "variable",
                format!("{name:?} is not a name: expected letters, digits and `_`, no digit first"),
            );
        }
        if min > max || min < 0 || max > MAX_VALUE {
            return wrong(
                "variable",
                format!(
                    "invalid bounds {min}..={max} of {name}: \
                     expected 0 <= min <= max <= {MAX_VALUE}"
                ),
            );
        }
        Ok(Variable { name: name.into(), min, max })
    }
    /// Returns the variable with a value, or an error if the value is outside its bounds.
    pub fn bind(&self, value: i64) -> Result<SymInt> {
        if !(self.min..=self.max).contains(&value) {
            return wrong(
                "bind",
                format!("{} is {value}, outside {}..={}", self.name, self.min, self.max),
            );
        }
        Ok(SymInt {
            terms: smallvec::smallvec![Term {
                variable: self.clone(),
                value: Some(value),
                times: 1
            }],
            plus: 0,
            wrapped: false,
        })
    }
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the smallest value.
    pub fn min(&self) -> i64 {
        self.min
    }
    /// Returns the largest value.
    pub fn max(&self) -> i64 {
        self.max
    }
    /// Returns the name as payload of nodes.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..={}]", self.name, self.min, self.max)
    }
}

/// A multiple of a variable in a sum.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) variable: Variable,
    /// The value; none in a graph that is planned for all values.
    pub(crate) value: Option<i64>,
    /// The coefficient; not zero.
    pub(crate) times: i64,
}

/// A size or an index that may change from run to run: a bound [`Variable`], or a sum of multiples
/// of variables.
///
/// ```
/// use picograd::Variable;
/// let n = Variable::new("n", 1, 1024)?.bind(37)?;
/// let next = &n * 2 + 1;
/// assert_eq!((next.value(), next.min(), next.max()), (75, 3, 2049));
/// assert_eq!(format!("{n} {next}"), "n=37 2*n+1=75");
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SymInt {
    /// The multiples of variables, in the order of names.
    terms: SmallVec<[Term; 1]>,
    plus: i64,
    /// True if an operation overflowed `i64`: numbers are modulo 2^64.
    wrapped: bool,
}

impl SymInt {
    /// Returns the constant of a number.
    pub(crate) fn number(plus: i64) -> SymInt {
        SymInt { terms: SmallVec::new(), plus, wrapped: false }
    }
    /// Returns the sum of terms in any order.
    fn sum(terms: impl IntoIterator<Item = Term>, plus: i64, mut wrapped: bool) -> SymInt {
        let mut all: SmallVec<[Term; 1]> = SmallVec::new();
        for t in terms {
            match all.iter_mut().find(|a| (&a.variable, a.value) == (&t.variable, t.value)) {
                Some(a) => {
                    a.times = record_overflow(a.times.overflowing_add(t.times), &mut wrapped)
                }
                None => all.push(t),
            }
        }
        all.retain(|t| t.times != 0);
        all.sort_by(|a, b| {
            (&a.variable.name, a.variable.min, a.variable.max, a.value).cmp(&(
                &b.variable.name,
                b.variable.min,
                b.variable.max,
                b.value,
            ))
        });
        SymInt { terms: all, plus, wrapped }
    }
    pub(crate) fn terms(&self) -> &[Term] {
        &self.terms
    }
    pub(crate) fn plus(&self) -> i64 {
        self.plus
    }
    /// Returns the value, if no variable is in the sum.
    pub(crate) fn as_number(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.plus)
    }
    /// Returns the sum with the values that a function returns for names.
    pub(crate) fn rebound(&self, value: &dyn Fn(&str) -> Option<i64>) -> SymInt {
        SymInt::sum(
            self.terms
                .iter()
                .map(|t| Term { value: value(t.variable.name()).or(t.value), ..t.clone() }),
            self.plus,
            self.wrapped,
        )
    }
    /// Returns the sum without values, for plans of all values.
    pub(crate) fn unbound(&self) -> SymInt {
        SymInt::sum(
            self.terms.iter().map(|t| Term { value: None, ..t.clone() }),
            self.plus,
            self.wrapped,
        )
    }
    /// Returns the sum of the terms for values of the variables. It does not overflow: a term is
    /// less than 2^95, and there are less than 2^32.
    fn total(&self, of: impl Fn(&Term) -> i64) -> i128 {
        self.terms
            .iter()
            .fold(self.plus.into(), |sum, t| sum + i128::from(t.times) * i128::from(of(t)))
    }
    /// Returns the bounds; those of `i64` if the sum can overflow.
    fn range(&self) -> (i64, i64) {
        let least = self.total(|t| if t.times > 0 { t.variable.min } else { t.variable.max });
        let greatest = self.total(|t| if t.times > 0 { t.variable.max } else { t.variable.min });
        match (i64::try_from(least), i64::try_from(greatest)) {
            (Ok(least), Ok(greatest)) if !self.wrapped => (least, greatest),
            _ => (i64::MIN, i64::MAX),
        }
    }
    /// Checks that the sum can be a size or an index: no partial sum, in any order, is outside
    /// ±2^47.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let reach = |t: &Term| i128::from(t.times).abs() * i128::from(t.variable.max);
        let reach = self.terms.iter().fold(i128::from(self.plus).abs(), |sum, t| sum + reach(t));
        if self.wrapped || reach > MAX_SUM {
            let msg = format!(
                "{self} cannot be a size or an index: a partial sum can exceed 2^47; use \
                 smaller factors and bounds"
            );
            return wrong(op, msg);
        }
        Ok(())
    }
    /// Returns the value in this run; the upper bound in a graph that is planned for all values.
    /// The public method, `value`, is in `src/tensor/variable.rs`: it reports the read to a JIT
    /// capture.
    pub(crate) fn bound_value(&self) -> i64 {
        self.total(|t| t.value.unwrap_or(if t.times > 0 { t.variable.max } else { t.variable.min }))
            as i64
    }
    /// Returns the lower bound; `i64::MIN` for a sum that can overflow.
    pub fn min(&self) -> i64 {
        self.range().0
    }
    /// Returns the upper bound; `i64::MAX` for a sum that can overflow.
    pub fn max(&self) -> i64 {
        self.range().1
    }
    /// Returns the sum in text IR: `2*n[1..1024]=37 + 1`.
    pub(crate) fn text(&self) -> String {
        let term = |t: &Term| {
            let times = if t.times == 1 { String::new() } else { format!("{}*", t.times) };
            let value = t.value.map_or(String::new(), |v| format!("={v}"));
            format!("{times}{}[{}..{}]{value}", t.variable.name, t.variable.min, t.variable.max)
        };
        let mut parts: Vec<String> = self.terms.iter().map(term).collect();
        if self.plus != 0 || parts.is_empty() {
            parts.push(self.plus.to_string());
        }
        parts.join(" + ")
    }
    /// Parses the output of [`text`](Self::text).
    pub(crate) fn from_text(text: &str) -> Option<SymInt> {
        let (mut terms, mut plus) = (Vec::new(), 0i64);
        for part in text.split(" + ") {
            if let Ok(number) = part.parse::<i64>() {
                plus = plus.checked_add(number)?;
                continue;
            }
            let (times, rest) = part
                .split_once('*')
                .map_or(Some((1, part)), |(k, rest)| Some((k.parse::<i64>().ok()?, rest)))?;
            let (name, rest) = rest.split_once('[')?;
            let (bounds, value) = rest.split_once(']')?;
            let (min, max) = bounds.split_once("..")?;
            let variable = Variable::new(name, min.parse().ok()?, max.parse().ok()?).ok()?;
            let value = if value.is_empty() {
                None
            } else {
                Some(value.strip_prefix('=')?.parse::<i64>().ok()?)
            };
            if value.is_some_and(|v| !(variable.min..=variable.max).contains(&v)) {
                return None;
            }
            terms.push(Term { variable, value, times });
        }
        Some(SymInt::sum(terms, plus, false))
    }
}

/// The sum and its value, as in `n+1=38`.
impl fmt::Display for SymInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, t) in self.terms.iter().enumerate() {
            let sign = if i > 0 && t.times > 0 { "+" } else { "" };
            match t.times {
                1 => write!(f, "{sign}{}", t.variable.name)?,
                -1 => write!(f, "-{}", t.variable.name)?,
                times => write!(f, "{sign}{times}*{}", t.variable.name)?,
            }
        }
        match (self.terms.is_empty(), self.plus) {
            (true, plus) => return write!(f, "{plus}"),
            (_, 0) => {}
            (_, plus) => write!(f, "{plus:+}")?,
        }
        if self.terms.iter().all(|t| t.value.is_some()) {
            write!(f, "={}", self.bound_value())
        } else {
            Ok(())
        }
    }
}
impl fmt::Debug for SymInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the result of an operation; sets `wrapped` if it overflowed.
fn record_overflow((result, left): (i64, bool), wrapped: &mut bool) -> i64 {
    *wrapped |= left;
    result
}

macro_rules! operators {
    ($($bound:ty),*) => { $(
        impl Add<i64> for $bound {
            type Output = SymInt;
            fn add(self, other: i64) -> SymInt {
                let (plus, left) = self.plus.overflowing_add(other);
                SymInt { terms: self.terms.clone(), plus, wrapped: self.wrapped || left }
            }
        }
        impl Sub<i64> for $bound {
            type Output = SymInt;
            fn sub(self, other: i64) -> SymInt {
                let (plus, left) = self.plus.overflowing_sub(other);
                SymInt { terms: self.terms.clone(), plus, wrapped: self.wrapped || left }
            }
        }
        impl Mul<i64> for $bound {
            type Output = SymInt;
            fn mul(self, other: i64) -> SymInt {
                let mut wrapped = self.wrapped;
                let mut by = |n: i64| record_overflow(n.overflowing_mul(other), &mut wrapped);
                let plus = by(self.plus);
                let term = |t: &Term| Term { times: by(t.times), ..t.clone() };
                let terms: SmallVec<[Term; 1]> = self.terms.iter().map(term).collect();
                SymInt::sum(terms, plus, wrapped)
            }
        }
        impl Add<&SymInt> for $bound {
            type Output = SymInt;
            fn add(self, other: &SymInt) -> SymInt {
                let (plus, left) = self.plus.overflowing_add(other.plus);
                let terms = self.terms.iter().chain(&other.terms).cloned();
                SymInt::sum(terms, plus, self.wrapped | other.wrapped | left)
            }
        }
        impl Sub<&SymInt> for $bound {
            type Output = SymInt;
            fn sub(self, other: &SymInt) -> SymInt { self + &(other * -1) }
        }
        impl Add<SymInt> for $bound {
            type Output = SymInt;
            fn add(self, other: SymInt) -> SymInt { self + &other }
        }
        impl Sub<SymInt> for $bound {
            type Output = SymInt;
            fn sub(self, other: SymInt) -> SymInt { self - &other }
        }
    )* };
}
operators!(SymInt, &SymInt);

/// The symbolic size of each axis; none for an axis of constant size. Empty if all sizes are
/// constant.
pub type Extents = Box<[Option<SymInt>]>;

/// Returns the symbolic sizes after a movement op, or an error if the op depends on their values.
pub fn moved_extents(
    m: &super::Movement,
    shape: &[usize],
    extents: &[Option<SymInt>],
) -> Result<Extents> {
    use super::Movement as M;
    if extents.is_empty() {
        return Ok(Extents::default());
    }
    let refuse = |axis: usize, what: &str| -> Result<Extents> {
        let size = extents[axis].as_ref().map_or(String::new(), |e| e.to_string());
        wrong(
            m.name(),
            format!(
                "axis {axis} of symbolic size {size} cannot be {what}: its layout is that of the \
                 upper bound, {}",
                shape[axis]
            ),
        )
    };
    let symbolic = || (0..shape.len()).filter(|&a| extents[a].is_some());
    match m {
        M::Reshape(to) => {
            let mut out = vec![None; to.len()];
            for a in symbolic() {
                let before: usize = shape[..a].iter().product();
                let same =
                    |&b: &usize| to[b] == shape[a] && to[..b].iter().product::<usize>() == before;
                match (0..to.len()).find(same) {
                    Some(b) if before > 0 => out[b] = extents[a].clone(),
                    _ => {
                        return refuse(
                            a,
                            &format!("merged or split, as reshaping {shape:?} to {to:?} would"),
                        );
                    }
                }
            }
            Ok(out.into())
        }
        M::Expand(_) => Ok(extents.into()),
        M::Permute(axes) => Ok(axes.iter().map(|&a| extents[a].clone()).collect()),
        M::Pad(by) => symbolic()
            .find(|&a| by[a] != (0, 0))
            .map_or(Ok(extents.into()), |a| refuse(a, "padded")),
        M::Shrink(to) => symbolic()
            .find(|&a| to[a] != (0, shape[a]))
            .map_or(Ok(extents.into()), |a| refuse(a, "cut")),
        M::Flip(flags) => {
            symbolic().find(|&a| flags[a]).map_or(Ok(extents.into()), |a| refuse(a, "reversed"))
        }
    }
}
