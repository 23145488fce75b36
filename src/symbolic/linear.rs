//! Linear forms: the canonical form of sums of index arithmetic, in which `4*(a+b) + a` and `a*5 +
//! b*4` are the same node. Arithmetic is checked; an expression whose form would overflow has none.

use crate::dtype::DType;
use crate::ir::bounds::{fits, plus, product};
use crate::ir::{Op, UOp};
use smallvec::SmallVec;

/// `Σ coefficient·term + constant`, terms distinct, non-constant and in canonical order, no
/// coefficient zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// The terms with their coefficients.
    pub terms: Vec<(UOp, i64)>,
    /// The constant.
    pub constant: i64,
}

/// Returns the canonical order of operands: by the ranges that they depend on, outermost first,
/// then by structure; literals last.
pub fn rank(u: &UOp) -> (bool, u32, Op, u64) {
    (u.op() == Op::Const, u.ranges().iter().next().unwrap_or(u32::MAX), u.op(), u.key())
}

impl Linear {
    /// Returns the form of an expression of index dtype.
    pub fn of(u: &UOp) -> Option<Linear> {
        let mut out = Linear::from(0);
        let mut stack: SmallVec<[(&UOp, i64); 8]> = smallvec::smallvec![(u, 1i64)];
        while let Some((u, k)) = stack.pop() {
            match (u.op(), u.src()) {
                (Op::Add, [x, y]) => {
                    stack.push((y, k));
                    stack.push((x, k));
                }
                (Op::Mul, [x, c]) if c.as_int().is_some() => {
                    stack.push((x, k.checked_mul(c.as_int()?)?))
                }
                _ => match u.as_int() {
                    Some(c) => out.constant = out.constant.checked_add(k.checked_mul(c)?)?,
                    None => out.add_term(u, k)?,
                },
            }
        }
        out.normalize();
        Some(out)
    }

    /// Adds a multiple of a term. [`normalize`](Linear::normalize) must follow.
    pub fn add_term(&mut self, term: &UOp, k: i64) -> Option<()> {
        match self.terms.iter_mut().find(|(t, _)| t == term) {
            Some((_, c)) => *c = c.checked_add(k)?,
            None => self.terms.push((term.clone(), k)),
        }
        Some(())
    }

    /// Adds a multiple of another form.
    pub fn add_scaled(&mut self, other: &Linear, k: i64) -> Option<()> {
        for (t, c) in &other.terms {
            self.add_term(t, c.checked_mul(k)?)?;
        }
        self.constant = self.constant.checked_add(other.constant.checked_mul(k)?)?;
        Some(())
    }

    /// Removes terms with coefficient zero and sorts.
    pub fn normalize(&mut self) {
        self.terms.retain(|(_, c)| *c != 0);
        // For few terms a list of ranks costs more than computing ranks twice.
        match self.terms.len() {
            0 | 1 => {}
            2..=4 => self.terms.sort_by_key(|(t, _)| rank(t)),
            _ => self.terms.sort_by_cached_key(|(t, _)| rank(t)),
        }
    }

    /// Returns the coefficient of a term.
    pub fn coefficient(&self, term: &UOp) -> i64 {
        self.terms.iter().find(|(t, _)| t == term).map_or(0, |(_, c)| *c)
    }

    /// Returns the form as an expression.
    pub fn build(&self) -> UOp {
        let mut sum: Option<UOp> = None;
        for (t, c) in &self.terms {
            let term = if *c == 1 { t.clone() } else { t * *c };
            sum = Some(match sum {
                Some(s) => s + term,
                None => term,
            });
        }
        match sum {
            Some(s) if self.constant == 0 => s,
            Some(s) => s + self.constant,
            None => UOp::int(self.constant),
        }
    }

    /// Returns the bounds of the sum.
    pub fn bounds(&self) -> (i128, i128) {
        let constant = (self.constant as i128, self.constant as i128);
        let term = |(t, c): &(UOp, i64)| product(t.bounds(), (*c as i128, *c as i128));
        self.terms.iter().map(term).fold(constant, plus)
    }

    /// Returns true if the sum fits 64 bits for all values of the terms. Otherwise the expression
    /// may wrap.
    pub fn fits(&self) -> bool {
        fits(self.bounds(), DType::INDEX)
    }

    /// Returns the terms with coefficients that are multiples of `g`, divided by it, and the rest
    /// with the constant.
    pub fn split(&self, g: i64) -> (Linear, Linear) {
        let (mut quotient, mut rest) = (Linear::from(0), Linear::from(self.constant));
        for (t, c) in &self.terms {
            if c % g == 0 {
                quotient.terms.push((t.clone(), c / g))
            } else {
                rest.terms.push((t.clone(), *c))
            }
        }
        (quotient, rest)
    }
}

impl From<i64> for Linear {
    fn from(constant: i64) -> Linear {
        Linear { terms: Vec::new(), constant }
    }
}

/// Returns the greatest common divisor of magnitudes.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
