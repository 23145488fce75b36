//! Sums of multiples: the canonical form of index arithmetic. `4*(a+b) + a` and `a*5 + b*4` are one
//! node after [`Linear`] has seen them. All arithmetic is checked; where it would overflow there is
//! no form and the expression stays as it is.

use crate::ir::{Op, UOp};
use smallvec::SmallVec;

/// `Σ coefficient·term + constant`, terms distinct, non-constant and in canonical order, no
/// coefficient zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Terms with their coefficients.
    pub terms: Vec<(UOp, i64)>,
    /// The rest.
    pub constant: i64,
}

/// The order of operands: by the ranges they depend on, outermost first, then by structure;
/// literals last.
pub fn rank(u: &UOp) -> (bool, u32, Op, u64) {
    (u.op() == Op::Const, u.ranges().iter().next().unwrap_or(u32::MAX), u.op(), u.key())
}

impl Linear {
    /// The form of an expression of index dtype.
    pub fn of(u: &UOp) -> Option<Linear> {
        let mut out = Linear { terms: Vec::new(), constant: 0 };
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

    /// Drops zeros and sorts.
    pub fn normalize(&mut self) {
        self.terms.retain(|(_, c)| *c != 0);
        // A list of ranks costs more than the ranks of a few terms taken twice.
        match self.terms.len() {
            0 | 1 => {}
            2..=4 => self.terms.sort_by_key(|(t, _)| rank(t)),
            _ => self.terms.sort_by_cached_key(|(t, _)| rank(t)),
        }
    }

    /// The coefficient of a term.
    pub fn coefficient(&self, term: &UOp) -> i64 {
        self.terms.iter().find(|(t, _)| t == term).map_or(0, |(_, c)| *c)
    }

    /// As an expression.
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

    /// Bounds of the whole.
    pub fn bounds(&self) -> (i128, i128) {
        self.terms.iter().fold(
            (self.constant as i128, self.constant as i128),
            |(lo, hi), (t, c)| {
                let (a, b) =
                    (t.vmin().saturating_mul(*c as i128), t.vmax().saturating_mul(*c as i128));
                (lo.saturating_add(a.min(b)), hi.saturating_add(a.max(b)))
            },
        )
    }

    /// Is the sum's true value in 64 bits, whatever the terms are? Where it is not, the expression
    /// may wrap and its value not be the sum.
    pub fn fits(&self) -> bool {
        let (lo, hi) = self.bounds();
        lo >= i64::MIN as i128 && hi <= i64::MAX as i128
    }

    /// The terms whose coefficient `g` divides, divided by it, and the rest with the constant.
    pub fn split(&self, g: i64) -> (Linear, Linear) {
        let (mut quotient, mut rest) = (
            Linear { terms: vec![], constant: 0 },
            Linear { terms: vec![], constant: self.constant },
        );
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

/// Greatest common divisor of magnitudes.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
