//! The ops that the generator adds: single ones, and patterns of several.

use super::{
    Builder, FOLDS, Generated, MAX_ELEMENTS, RANK, UNARY, USUAL_ELEMENTS, merged, numel, size,
};
use crate::dtype::{Const, DType};
use crate::ir::{Combine, DeviceName, Fold, Op, UOp};
use crate::shape::{Dims, Movement, Ranges};
use crate::testing::case::{OTHER_DEVICE, TESTED_DEVICE};

/// Returns the binary ops of a dtype; some are listed twice to be picked more often.
fn binary_ops(dtype: DType) -> &'static [Op] {
    use Op::*;
    if dtype.is_float() {
        &[Add, Add, Mul, Mul, Div, Mod, Max, Min, Pow, Lt, Eq, Ne]
    } else if dtype.is_bool() {
        &[Add, Mul, Max, Min, And, Or, Xor, Lt, Eq, Ne]
    } else {
        &[Add, Mul, IDiv, Mod, Max, Min, Pow, Pow, Shl, Shl, Shr, Shr, And, Or, Xor, Lt, Eq, Ne]
    }
}

impl Builder {
    /// Adds an op or a pattern of several. Useless results are dropped.
    pub(super) fn grow(&mut self) {
        for _ in 0..6 {
            let made = match self.rng.below(36) {
                0..=3 => self.grow_unary(),
                4..=11 => self.grow_binary(),
                12 => self.grow_select(),
                13..=14 => self.grow_cast(),
                15..=19 => self.grow_movement(),
                20..=22 => self.grow_reduce(),
                23..=25 => self.grow_row(),
                26 => self.grow_product(),
                27 => self.grow_leaf(),
                28 => self.grow_windows(),
                29 => self.grow_border(),
                30 => self.grow_fma(),
                31..=32 => self.grow_indexed(),
                33 => self.grow_scan(),
                34 => self.grow_cat(),
                _ => self.grow_bits(),
            };
            if let Some(m) = made
                && !self.pool.iter().any(|p| p.uop == m.uop)
            {
                self.pool.push(m);
                return;
            }
        }
    }

    fn float(&mut self) -> Option<Generated> {
        let x = self.any();
        if x.dtype().is_float() {
            return Some(x);
        }
        self.pick(|m| m.dtype().is_float())
    }

    fn grow_unary(&mut self) -> Option<Generated> {
        let op = self.rng.pick(&UNARY);
        if op == Op::Detach {
            let x = self.any();
            return self.unary(op, &x);
        }
        let x = self.float()?;
        let x = match op {
            _ if self.special => x,
            Op::Sqrt | Op::Rsqrt | Op::Log | Op::Log2 => self.positive(&x)?,
            Op::Exp | Op::Exp2 => self.bound_values(&x, 4.0)?,
            Op::Tan => self.bound_values(&x, 1.0)?,
            _ => x,
        };
        self.unary(op, &x)
    }

    fn grow_binary(&mut self) -> Option<Generated> {
        let x = self.any();
        let y = self.partner(&x)?;
        let dtype = x.dtype();
        let op = self.rng.pick(binary_ops(dtype));
        let (x, mut y) =
            if dtype.is_float() && !self.special { self.tame_operands(op, x, y)? } else { (x, y) };
        if matches!(op, Op::Shl | Op::Shr) && !self.rng.once_in(4) {
            let mask = Const::Int(self.rng.below(dtype.bits() as usize) as i64);
            y = self.binary(Op::And, &y, &self.constant(mask, dtype))?;
        }
        if op == Op::Mod && dtype.is_float() && self.rng.once_in(2) {
            return self.fmod(&x, &y);
        }
        // Subtraction is an addition of the negative.
        if op == Op::Add && !dtype.is_bool() && self.rng.once_in(3) {
            let minus = self.constant(Const::Int(-1).cast(DType::I64, dtype), dtype);
            y = self.binary(Op::Mul, &y, &minus)?;
        }
        if self.rng.once_in(2) {
            self.binary(op, &x, &y)
        } else {
            self.binary(op, &y, &x).or_else(|| self.binary(op, &x, &y))
        }
    }

    /// Float operands for which the result of a binary op is finite.
    fn tame_operands(
        &mut self,
        op: Op,
        x: Generated,
        y: Generated,
    ) -> Option<(Generated, Generated)> {
        Some(match op {
            Op::Div | Op::Mod => {
                let y = self.positive(&y)?;
                let negate = self.rng.once_in(2);
                let minus = self.number(-1.0, y.dtype());
                (x, if negate { self.binary(Op::Mul, &y, &minus)? } else { y })
            }
            Op::Pow => {
                let x = self.bound_values(&x, 4.0)?;
                (self.positive(&x)?, self.bound_values(&y, 3.0)?)
            }
            Op::Mul => (self.bound_values(&x, 32.0)?, self.bound_values(&y, 32.0)?),
            _ => (x, y),
        })
    }

    /// Returns the remainder of truncating division: that of the magnitudes, with the sign of the
    /// dividend.
    fn fmod(&mut self, x: &Generated, y: &Generated) -> Option<Generated> {
        let minus = self.number(-1.0, x.dtype());
        let size = |made: &mut Self, t: &Generated| {
            let negative = made.binary(Op::Mul, t, &minus)?;
            made.binary(Op::Max, t, &negative)
        };
        let (a, b) = (size(self, x)?, size(self, y)?);
        let rest = self.binary(Op::Mod, &a, &b)?;
        let negative = self.binary(Op::Mul, &rest, &minus)?;
        let below = self.binary(Op::Lt, x, &self.number(0.0, x.dtype()))?;
        self.evaluate(below.uop.select(&negative.uop, &rest.uop), &[&below, &negative, &rest])
    }

    fn condition(&mut self, shape: &Dims) -> Option<Generated> {
        if let (true, Some(c)) =
            (self.rng.once_in(2), self.pick(|m| m.dtype().is_bool() && m.shape() == shape))
        {
            return Some(c);
        }
        let x = self.any();
        let x = self.conform(&x, shape)?;
        if x.dtype().is_bool() {
            return Some(x);
        }
        let y = self.partner(&x)?;
        let op = self.rng.pick(&[Op::Lt, Op::Lt, Op::Eq, Op::Ne]);
        self.binary(op, &x, &y)
    }

    fn grow_select(&mut self) -> Option<Generated> {
        let x = self.any();
        let y = self.partner(&x)?;
        let c = self.condition(&x.shape().clone())?;
        let (x, y) = if self.rng.once_in(2) { (x, y) } else { (y, x) };
        self.evaluate(c.uop.select(&x.uop, &y.uop), &[&c, &x, &y])
    }

    fn grow_scan(&mut self) -> Option<Generated> {
        let x = self.pick(|m| !m.shape().is_empty())?;
        let (axis, fold) = (self.rng.below(x.shape().len()), self.rng.pick(&FOLDS));
        self.evaluate(x.uop.scanned(fold, axis), &[&x])
    }

    /// Tensors concatenated along an axis, sometimes many, which are concatenated in groups.
    fn grow_cat(&mut self) -> Option<Generated> {
        let x = self.pick(|m| !m.shape().is_empty())?;
        let axis = self.rng.below(x.shape().len());
        let most = if self.rng.once_in(6) { 60 } else { 10 };
        let mut parts = vec![x.clone()];
        for _ in 0..1 + self.rng.below(most) {
            let y = self.partner(&x)?;
            let y = self.conform(&y, &x.shape().clone())?;
            let start = self.rng.below(x.shape()[axis] + 1);
            let range = |(a, &n): (usize, &usize)| if a == axis { (start, n) } else { (0, n) };
            parts.push(self.moved(&y, Movement::shrink(x.shape().iter().enumerate().map(range)))?);
        }
        let uop = UOp::cat(parts.iter().map(|p| p.uop.clone()).collect(), axis);
        self.evaluate(uop, &parts.iter().collect::<Vec<_>>())
    }

    fn grow_fma(&mut self) -> Option<Generated> {
        let x = self.float()?;
        let x = self.bound_values(&x, 32.0)?;
        let y = self.partner(&x)?;
        let y = self.bound_values(&y, 32.0)?;
        let z = self.partner(&x)?;
        self.evaluate(x.uop.fma(&y.uop, &z.uop), &[&x, &y, &z])
    }

    fn grow_cast(&mut self) -> Option<Generated> {
        let x = self.any();
        let to = if self.rng.once_in(2) { self.rng.pick(DType::ALL) } else { self.dtype() };
        let x = if x.dtype().is_int() && to.is_float() && !self.special {
            // Large integers give large floats.
            let small = self.constant(Const::Int(17), x.dtype());
            self.binary(Op::Mod, &x, &small)?
        } else {
            x
        };
        self.cast(&x, to)
    }

    fn grow_bits(&mut self) -> Option<Generated> {
        let x = self.any();
        let to: Vec<DType> = DType::ALL
            .iter()
            .copied()
            .filter(|t| t.bits() == x.dtype().bits() && *t != x.dtype())
            .collect();
        if to.is_empty() {
            return None;
        }
        let to = self.rng.pick(&to);
        let bits = self.evaluate(x.uop.bitcast(to), &[&x]);
        // The bits of integers are seldom useful floats: then the bits of 1.0 are set in them.
        match bits {
            Some(b) => Some(b),
            None if x.dtype().is_int() && to.is_float() => {
                let one = self.number(1.0, to);
                let Const::Float(v) = one.traced.value.data[0] else { return None };
                let bits = Const::Float(v).to_bits(to) as i64;
                let int = |v: i64| self.constant(Const::Int(v).normalize(x.dtype()), x.dtype());
                let low = self.binary(Op::And, &x, &int(3))?;
                let set = self.binary(Op::Or, &low, &int(bits))?;
                self.evaluate(set.uop.bitcast(to), &[&set])
            }
            None => None,
        }
    }

    fn grow_movement(&mut self) -> Option<Generated> {
        let x = self.any();
        let shape = x.shape().clone();
        let n = shape.len();
        let m = match self.rng.below(6) {
            0 => Movement::Reshape(self.reshaped(&shape)),
            1 => {
                let x = if shape.contains(&1) {
                    x.clone()
                } else {
                    self.pick(|m| m.shape().contains(&1))?
                };
                let to = x
                    .shape()
                    .iter()
                    .map(|&s| if s == 1 { size(&mut self.rng) } else { s })
                    .collect();
                return self.moved(&x, Movement::Expand(to));
            }
            2 if n > 1 => {
                let mut axes: Dims = (0..n).collect();
                (1..n).for_each(|i| axes.swap(i, self.rng.below(i + 1)));
                Movement::Permute(axes)
            }
            3 if n > 0 => {
                let around = (0..n).map(|_| {
                    if self.rng.once_in(2) {
                        (self.rng.below(4), self.rng.below(4))
                    } else {
                        (0, 0)
                    }
                });
                Movement::Pad(around.collect())
            }
            4 if n > 0 => {
                let part = shape.iter().map(|&s| {
                    if s == 0 || self.rng.once_in(3) {
                        return (0, s);
                    }
                    let start = self.rng.below(s);
                    let end = start + 1 + self.rng.below(s - start);
                    if self.rng.once_in(40) { (start, start) } else { (start, end) }
                });
                Movement::Shrink(part.collect())
            }
            _ if n > 0 => Movement::Flip((0..n).map(|_| self.rng.once_in(2)).collect()),
            _ => return None,
        };
        self.moved(&x, m)
    }

    /// Another shape of the same number of elements: axes merged, split, and ones inserted or
    /// removed.
    fn reshaped(&mut self, shape: &Dims) -> Dims {
        let mut s = shape.clone();
        for _ in 0..1 + self.rng.below(3) {
            match self.rng.below(4) {
                0 if s.len() > 1 => {
                    s = merged(&s, self.rng.below(s.len() - 1));
                }
                1 if !s.is_empty() && s.len() < RANK => {
                    let i = self.rng.below(s.len());
                    let divisors: Vec<usize> =
                        (2..s[i]).filter(|d| s[i].is_multiple_of(*d)).collect();
                    if !divisors.is_empty() {
                        let d = self.rng.pick(&divisors);
                        s[i] /= d;
                        s.insert(i, d);
                    }
                }
                2 if s.len() < RANK => s.insert(self.rng.below(s.len() + 1), 1),
                _ => {
                    if let Some(i) = s.iter().position(|n| *n == 1) {
                        s.remove(i);
                    }
                }
            }
        }
        s
    }

    fn axes(&mut self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).filter(|_| self.rng.once_in(2)).collect();
        if axes.is_empty() && rank > 0 {
            axes.push(self.rng.below(rank));
        }
        axes
    }

    /// Returns a gather or a scatter. Some indices are out of range or repeat.
    fn grow_indexed(&mut self) -> Option<Generated> {
        let x = self.pick(|m| !m.shape().is_empty())?;
        let axis = self.rng.below(x.shape().len());
        let n = x.shape()[axis];
        let mut shape = x.shape().clone();
        shape[axis] = size(&mut self.rng);
        let index = self.pick(|m| !m.dtype().is_bool() && numel(m.shape()) > 0)?;
        let index = self.conform(&index, &shape)?;
        let wide = self.rng.pick(&[DType::I32, DType::I32, DType::I64]);
        let whole =
            if index.dtype().is_float() { self.bound_values(&index, 100.0)? } else { index };
        let whole = self.cast(&whole, wide)?;
        // From one before the first index to one after the last.
        let places =
            self.binary(Op::Mod, &whole, &self.constant(Const::Int(n as i64 + 2), wide))?;
        let places = self.binary(Op::Add, &places, &self.constant(Const::Int(-1), wide))?;
        if self.rng.once_in(2) {
            return self.evaluate(x.uop.gathered(&places.uop, axis), &[&x, &places]);
        }
        let value = self.any();
        let value = self.conform(&value, &shape)?;
        let value = self.cast(&value, x.dtype())?;
        // Indices repeat, which `SetDistinct` does not allow.
        let combine = Some(self.rng.pick(&Combine::ALL))
            .filter(|c| *c != Combine::SetDistinct)
            .unwrap_or(Combine::Set);
        let value = if combine == Combine::Mul && x.dtype().is_float() && !self.special {
            self.bound_values(&value, 1.0)?
        } else {
            value
        };
        self.evaluate(
            x.uop.scattered(&places.uop, &value.uop, combine, axis),
            &[&x, &places, &value],
        )
    }

    fn grow_reduce(&mut self) -> Option<Generated> {
        let x = self.any();
        if x.shape().is_empty() {
            return None;
        }
        let axes = self.axes(x.shape().len());
        let fold = self.rng.pick(&FOLDS);
        let x = if fold == Fold::Mul && x.dtype().is_float() && !self.special {
            // Near one, so that products stay finite.
            let near = self.bound_values(&x, 1.0)?;
            let near = self.binary(Op::Mul, &near, &self.number(0.25, x.dtype()))?;
            self.binary(Op::Add, &near, &self.number(1.0, x.dtype()))?
        } else {
            x
        };
        let r = self.reduce(&x, fold, &axes)?;
        if self.rng.once_in(3) {
            let kept: Dims =
                (0..r.shape().len()).filter(|a| !axes.contains(a)).map(|a| r.shape()[a]).collect();
            return self.moved(&r, Movement::Reshape(kept));
        }
        Some(r)
    }

    /// Returns a reduction that is expanded and combined with its operand, as in softmax and
    /// layernorm.
    fn grow_row(&mut self) -> Option<Generated> {
        let x = self.any();
        if x.shape().is_empty() || numel(x.shape()) == 0 {
            return None;
        }
        let axes = self.axes(x.shape().len());
        let fold = self.rng.pick(&[Fold::Add, Fold::Max, Fold::Min]);
        let r = self.reduce(&x, fold, &axes)?;
        let r = if self.rng.once_in(3) && x.dtype().is_float() { self.positive(&r)? } else { r };
        let back = self.moved(&r, Movement::Expand(x.shape().clone()))?;
        let ops: &[Op] = if x.dtype().is_float() {
            &[Op::Add, Op::Mul, Op::Div, Op::Max]
        } else if x.dtype().is_bool() {
            &[Op::Xor, Op::And]
        } else {
            &[Op::Add, Op::Mul, Op::IDiv, Op::Mod, Op::Min]
        };
        let op = self.rng.pick(ops);
        let back = if op == Op::Div && !self.special { self.positive(&back)? } else { back };
        let y = self.binary(op, &x, &back)?;
        if self.rng.once_in(2) && y.dtype().is_float() {
            let e = self.bound_values(&y, 4.0)?;
            let e = self.unary(Op::Exp, &e)?;
            let sum = self.reduce(&e, Fold::Add, &axes)?;
            let sum = self.moved(&sum, Movement::Expand(e.shape().clone()))?;
            return self.binary(Op::Div, &e, &sum);
        }
        Some(y)
    }

    /// Returns a matrix product of movement, multiplication and sum.
    fn grow_product(&mut self) -> Option<Generated> {
        let a =
            self.pick(|m| m.shape().len() == 2 && !m.dtype().is_bool() && numel(m.shape()) > 0)?;
        let (rows, inner) = (a.shape()[0], a.shape()[1]);
        let columns = 1 + self.rng.below((MAX_ELEMENTS / (rows * inner).max(1)).clamp(1, 12));
        let a = self.bound_values(&a, 4.0)?;
        let b = match self.pick(|m| {
            m.dtype() == a.dtype()
                && m.shape().len() == 2
                && m.shape()[0] == inner
                && m.shape()[1] <= columns
        }) {
            Some(b) => self.bound_values(&b, 4.0)?,
            None => {
                let shape = Dims::from_slice(&[inner, columns]);
                self.leaf(a.dtype(), &shape)
            }
        };
        let columns = b.shape()[1];
        let whole = Dims::from_slice(&[rows, inner, columns]);
        let left = self.moved(&a, Movement::reshape([rows, inner, 1]))?;
        let left = self.moved(&left, Movement::Expand(whole.clone()))?;
        let right = self.moved(&b, Movement::reshape([1, inner, columns]))?;
        let right = self.moved(&right, Movement::Expand(whole))?;
        let products = self.binary(Op::Mul, &left, &right)?;
        let sum = self.reduce(&products, Fold::Add, &[1])?;
        self.moved(&sum, Movement::reshape([rows, columns]))
    }

    /// Overlapping windows of an axis, as in convolution and pooling.
    fn grow_windows(&mut self) -> Option<Generated> {
        let x = self.pick(|m| {
            (1..=3).contains(&m.shape().len())
                && m.shape().last().is_some_and(|n| *n > 1)
                && numel(m.shape()) <= USUAL_ELEMENTS
        })?;
        let rank = x.shape().len();
        let n = x.shape()[rank - 1];
        let k = 2 + self.rng.below((n - 1).min(4));
        // The axis is repeated and cut into rows of n + 1 elements, so that row i begins at i.
        let lead: Dims = x.shape()[..rank - 1].into();
        let with = |tail: &[usize]| -> Dims { lead.iter().chain(tail).copied().collect() };
        let y = self.moved(&x, Movement::Reshape(with(&[1, n])))?;
        let y = self.moved(&y, Movement::Expand(with(&[k + 1, n])))?;
        let y = self.moved(&y, Movement::Reshape(with(&[(k + 1) * n])))?;
        let whole = |tail: &[(usize, usize)]| -> Ranges {
            lead.iter().map(|&s| (0, s)).chain(tail.iter().copied()).collect()
        };
        let y = self.moved(&y, Movement::Shrink(whole(&[(0, k * (n + 1))])))?;
        let y = self.moved(&y, Movement::Reshape(with(&[k, n + 1])))?;
        let y = self.moved(&y, Movement::Shrink(whole(&[(0, k), (0, n + 1 - k)])))?;
        if self.rng.once_in(3) {
            return Some(y);
        }
        let fold = self.rng.pick(&[Fold::Add, Fold::Max, Fold::Min]);
        self.reduce(&y, fold, &[rank - 1])
    }

    fn grow_leaf(&mut self) -> Option<Generated> {
        match self.rng.below(3) {
            0 => {
                let (dtype, shape) = (self.dtype(), self.shape());
                if dtype.is_bool() {
                    return None;
                }
                let len = numel(&shape).min(if dtype.is_float() { 60 } else { MAX_ELEMENTS });
                let iota = self.evaluate(UOp::iota(len, dtype), &[])?;
                if numel(&shape) == numel(iota.shape()) {
                    self.moved(&iota, Movement::Reshape(shape))
                } else {
                    Some(iota)
                }
            }
            1 => {
                let dtype = self.dtype();
                let c = self.literal(dtype);
                let shape = self.shape();
                self.conform(&c, &shape)
            }
            _ if self.inputs.len() < 6 => {
                let (dtype, shape) = (self.dtype(), self.shape());
                self.leaf(dtype, &shape);
                None
            }
            _ => None,
        }
    }

    /// Returns a value that is stored, or copied to another device and back.
    fn grow_border(&mut self) -> Option<Generated> {
        let x = self.any();
        if !self.rng.once_in(3) {
            return self.unary(Op::Contiguous, &x);
        }
        let copy = |b: &Builder, x: &Generated, to: &str| {
            b.evaluate(x.uop.copied(&DeviceName::new(to)), &[x])
        };
        let mut y = copy(self, &x, OTHER_DEVICE)?;
        if self.rng.once_in(2) && !x.dtype().is_bool() {
            let c = self.literal(x.dtype());
            y = self.binary(Op::Add, &y, &c)?;
        }
        copy(self, &y, TESTED_DEVICE)
    }
}
