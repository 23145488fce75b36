//! Sizes and places with names. A [`Variable`] is a name with the least and the greatest value that
//! it may have; bound to a value it is a [`SymInt`], which may be added to, subtracted from and
//! multiplied. What is compiled knows the bounds and the name alone, so that one program serves all
//! values.
//!
//! A bound is a sum of variables, each times a number, and a number: in this form equal bounds are
//! equal, and their least and greatest values are exact.

use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

/// The greatest value that a variable may have: kernels read them as `i32`.
const MOST: i64 = i32::MAX as i64;

/// The greatest partial sum of a size or place. Kernels multiply places by strides in 64 bits, and
/// no memory holds that number of elements.
const MOST_SUM: i128 = 1 << 47;

/// A named integer with bounds, as a size or an index; its value is bound at run time.
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

thread_local! {
    /// Values that this thread has read as numbers.
    static VALUE_READS: Cell<u64> = const { Cell::new(0) };
}

/// The number of values of variables that this thread has read.
pub(crate) fn value_reads() -> u64 {
    VALUE_READS.get()
}

fn wrong<T>(op: &'static str, msg: String) -> Result<T> {
    Err(Error::Shape { op, msg })
}

impl Variable {
    /// A variable between `min` and `max`, both included. Its name is letters, digits and `_`, and
    /// begins with no digit; sizes and places are not negative.
    pub fn new(name: &str, min: i64, max: i64) -> Result<Variable> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || !name.chars().all(word)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return wrong(
                "variable",
                format!("{name:?} is no name of letters, digits and `_` that begins with no digit"),
            );
        }
        if min > max || min < 0 || max > MOST {
            return wrong(
                "variable",
                format!(
                    "{name} cannot be within {min}..={max}: the bounds ascend, from 0 to {MOST} \
                     at most"
                ),
            );
        }
        Ok(Variable { name: name.into(), min, max })
    }
    /// The variable with a value. One outside its bounds is an error.
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The least value.
    pub fn min(&self) -> i64 {
        self.min
    }
    /// The greatest value.
    pub fn max(&self) -> i64 {
        self.max
    }
    /// The name as nodes hold it.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..={}]", self.name, self.min, self.max)
    }
}

/// A variable of a sum.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) variable: Variable,
    /// Its value; none in a graph that is planned for all values.
    pub(crate) value: Option<i64>,
    /// The coefficient; not zero.
    pub(crate) times: i64,
}

/// A symbolic dimension or index: a bound [`Variable`], or a linear expression of some. One set of
/// kernels serves all values.
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
    /// In the order of their names.
    terms: SmallVec<[Term; 1]>,
    plus: i64,
    /// An operation on it has left `i64`: numbers in it are modulo 2^64.
    wrapped: bool,
}

impl SymInt {
    /// A number.
    pub(crate) fn number(plus: i64) -> SymInt {
        SymInt { terms: SmallVec::new(), plus, wrapped: false }
    }
    /// A sum, from terms in any order.
    fn sum(terms: impl IntoIterator<Item = Term>, plus: i64, mut wrapped: bool) -> SymInt {
        let mut all: SmallVec<[Term; 1]> = SmallVec::new();
        for t in terms {
            match all.iter_mut().find(|a| (&a.variable, a.value) == (&t.variable, t.value)) {
                Some(a) => a.times = noted(a.times.overflowing_add(t.times), &mut wrapped),
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
    /// The number, where no variable is in it.
    pub(crate) fn as_number(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.plus)
    }
    /// The same with other values: those that a function has for names.
    pub(crate) fn rebound(&self, value: &dyn Fn(&str) -> Option<i64>) -> SymInt {
        SymInt::sum(
            self.terms
                .iter()
                .map(|t| Term { value: value(t.variable.name()).or(t.value), ..t.clone() }),
            self.plus,
            self.wrapped,
        )
    }
    /// The same without values: what is planned for all of them.
    pub(crate) fn unbound(&self) -> SymInt {
        SymInt::sum(
            self.terms.iter().map(|t| Term { value: None, ..t.clone() }),
            self.plus,
            self.wrapped,
        )
    }
    /// A term is less than 2^95, and a list of terms has less than 2^32.
    fn total(&self, of: impl Fn(&Term) -> i64) -> i128 {
        self.terms
            .iter()
            .fold(self.plus.into(), |sum, t| sum + i128::from(t.times) * i128::from(of(t)))
    }
    /// The least and the greatest value. One of 64 bits where the sum can leave them.
    fn range(&self) -> (i64, i64) {
        let least = self.total(|t| if t.times > 0 { t.variable.min } else { t.variable.max });
        let greatest = self.total(|t| if t.times > 0 { t.variable.max } else { t.variable.min });
        match (i64::try_from(least), i64::try_from(greatest)) {
            (Ok(least), Ok(greatest)) if !self.wrapped => (least, greatest),
            _ => (i64::MIN, i64::MAX),
        }
    }
    /// Refuses what cannot be a size or a place: a sum of which a part, in any order, may be
    /// greater than 2^47 or less than -2^47.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let reach = |t: &Term| i128::from(t.times).abs() * i128::from(t.variable.max);
        let reach = self.terms.iter().fold(i128::from(self.plus).abs(), |sum, t| sum + reach(t));
        if self.wrapped || reach > MOST_SUM {
            let msg = format!(
                "{self} is no size or place: a part of the sum can be greater than 2^47; use \
                 smaller factors and bounds"
            );
            return wrong(op, msg);
        }
        Ok(())
    }
    /// The value now. A sum that leaves 64 bits wraps, as sums of `i64` tensors do, and is refused
    /// as a size or a place. Without a value, as in a graph that was planned for all values, it is
    /// the greatest. Inside a captured function that is an error of the [`Jit`](crate::Jit): it
    /// would be the value of one call for all.
    pub fn value(&self) -> i64 {
        if !self.terms.is_empty() {
            VALUE_READS.set(VALUE_READS.get() + 1);
        }
        self.now()
    }
    /// The same, for what makes no number of it that a graph would keep.
    pub(crate) fn now(&self) -> i64 {
        self.total(|t| t.value.unwrap_or(if t.times > 0 { t.variable.max } else { t.variable.min }))
            as i64
    }
    /// The least value that it can have; `i64::MIN` for a sum that can leave 64 bits.
    pub fn min(&self) -> i64 {
        self.range().0
    }
    /// The greatest value that it can have; `i64::MAX` for a sum that can leave 64 bits.
    pub fn max(&self) -> i64 {
        self.range().1
    }
    /// In text IR: `2*n[1..1024]=37 + 1`.
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

/// The expression and its value, as in `n+1=38`.
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
            write!(f, "={}", self.now())
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

/// The result of an operation, and in `wrapped` whether it left `i64`.
fn noted((result, left): (i64, bool), wrapped: &mut bool) -> i64 {
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
                let mut by = |n: i64| noted(n.overflowing_mul(other), &mut wrapped);
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

/// How many steps of each axis are there: of an axis that a variable is the size of, the sum that
/// it is; none for a whole axis. Empty where all are whole.
pub type Extents = Box<[Option<SymInt>]>;

/// The extents after a movement op on a shape with some, or why it cannot be done without knowing
/// the values.
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
                "axis {axis}, whose size is {size}, cannot be {what}: its layout is that of the \
                 greatest size, {}",
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
