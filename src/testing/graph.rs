//! The generator. Nodes are added one at a time and evaluated at once, so a node whose values would be of no use (not finite, too large to
//! stay finite, or known only vaguely) is refused or tamed before anything is built on it.

use super::bounds::{Bound, Traced, epsilon, trace};
use super::case::{Case, HERE, THERE, param};
use super::rng::Rng;
use crate::dtype::{Const, DType, Scalar, write};
use crate::ir::{Arg, DeviceName, Fold, Group, Op, Src, ToSrc, UOp};
use crate::reference::Value;
use crate::shape::{Dims, Movement};

/// Elements of a tensor, at most.
const MOST: usize = 2000;
/// Elements of most tensors.
const USUAL: usize = 200;
/// Axes, at most.
const RANK: usize = 4;

const FLOATS: [DType; 6] = [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64];
const INTS: [DType; 8] = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
const FOLDS: [Fold; 4] = [Fold::Add, Fold::Mul, Fold::Max, Fold::Min];
const UNARY: [Op; 14] = [
    Op::Sqrt,
    Op::Trunc,
    Op::Rsqrt,
    Op::Exp,
    Op::Exp2,
    Op::Log,
    Op::Log2,
    Op::Sin,
    Op::Cos,
    Op::Tan,
    Op::Tanh,
    Op::Sigmoid,
    Op::Erf,
    Op::Detach,
];

/// A node with its values.
#[derive(Clone)]
struct Made {
    uop: UOp,
    traced: Traced,
}

impl Made {
    fn shape(&self) -> &Dims {
        &self.traced.value.shape
    }
    fn dtype(&self) -> DType {
        self.uop.dtype()
    }
}

struct Builder {
    rng: Rng,
    pool: Vec<Made>,
    inputs: Vec<Vec<u8>>,
    /// Are infinities, NaN and values at the limits wanted?
    special: bool,
    /// Sizes that occur again and again, so that shapes meet.
    sizes: Vec<usize>,
    /// Dtypes of this graph, so that operands meet.
    dtypes: Vec<DType>,
}

/// The case of a seed: 3 to 40 ops.
pub fn random_case(seed: u64) -> Case {
    let mut rng = Rng::new(seed ^ 0x70_69_63_6f_67_72_61_64);
    let special = rng.once_in(25);
    let sizes = (0..4).map(|_| size(&mut rng)).collect();
    let mut dtypes = vec![if rng.once_in(2) { DType::F32 } else { rng.pick(&FLOATS) }];
    for _ in 0..rng.below(3) {
        dtypes.push(if rng.once_in(2) { rng.pick(&INTS) } else { rng.pick(DType::ALL) });
    }
    let mut b = Builder { rng, pool: Vec::new(), inputs: Vec::new(), special, sizes, dtypes };
    for _ in 0..1 + b.rng.below(3) {
        let (dtype, shape) = (b.dtype(), b.shape());
        b.leaf(dtype, &shape);
    }
    let most = if b.rng.once_in(4) { 36 } else { 14 };
    let ops = 3 + b.rng.below(most);
    for _ in 0..ops {
        b.grow();
    }
    let outputs = b.outputs();
    Case { outputs, inputs: b.inputs }
}

fn size(rng: &mut Rng) -> usize {
    match rng.below(24) {
        0 => 0,
        1..=3 => 1,
        4..=14 => 2 + rng.below(4),
        15..=20 => 4 + rng.below(9),
        _ => rng.pick(&[16, 17, 24, 31, 32]),
    }
}

fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The greatest magnitude that a value may have without spoiling what is built on it.
fn limit(dtype: DType) -> f64 {
    match dtype.scalar {
        Scalar::F8E4M3 => 64.0,
        Scalar::F8E5M2 | Scalar::F16 => 256.0,
        _ => 4096.0,
    }
}

impl Builder {
    fn dtype(&mut self) -> DType {
        if self.rng.once_in(8) { self.rng.pick(DType::ALL) } else { self.rng.pick(&self.dtypes.clone()) }
    }

    fn shape(&mut self) -> Dims {
        let rank = self.rng.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
        let mut shape: Dims = (0..rank)
            .map(|_| {
                let n = if self.rng.once_in(3) { size(&mut self.rng) } else { self.rng.pick(&self.sizes.clone()) };
                if n == 0 && !self.rng.once_in(3) { 2 } else { n }
            })
            .collect();
        let most = if self.rng.once_in(8) { MOST } else { USUAL };
        while numel(&shape) > most {
            let i = self.rng.below(shape.len());
            shape[i] = (shape[i] / 2).max(1);
        }
        shape
    }

    /// Evaluates a node; nothing if its values are of no use.
    fn evaluate(&self, uop: UOp, src: &[&Made]) -> Option<Made> {
        let operands: Vec<&Traced> = src.iter().map(|m| &m.traced).collect();
        let made = Made { traced: trace(&uop, &operands), uop };
        self.healthy(&made).then_some(made)
    }

    fn healthy(&self, m: &Made) -> bool {
        if numel(m.shape()) > MOST {
            return false;
        }
        if self.special {
            return true;
        }
        let (most, eps) = (limit(m.dtype()), epsilon(m.dtype()));
        (0..m.traced.bounds.len()).all(|i| match (m.traced.bounds[i], m.traced.value.data[i]) {
            (Bound::Unknown, _) => false,
            (_, Const::Float(v)) => {
                let (lo, hi) = m.traced.interval(i).unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
                v.is_finite() && v.abs() <= most && hi - lo <= (v.abs() + 0.25) * eps.max(1e-5) * 64.0
            }
            _ => true,
        })
    }

    fn any(&mut self) -> Made {
        // What was made last is used more often, so graphs are deep.
        let n = self.pool.len();
        let i = if self.rng.once_in(2) { n - 1 - self.rng.below(n.min(4)) } else { self.rng.below(n) };
        self.pool[i].clone()
    }

    fn some(&mut self, wanted: impl Fn(&Made) -> bool) -> Option<Made> {
        let list: Vec<usize> = (0..self.pool.len()).filter(|&i| wanted(&self.pool[i])).collect();
        if list.is_empty() { None } else { Some(self.pool[self.rng.pick(&list)].clone()) }
    }

    /// An input with random content under a shape.
    fn leaf(&mut self, dtype: DType, shape: &Dims) -> Made {
        let rng = &mut self.rng;
        let style = rng.below(4);
        let mut bytes = Vec::new();
        for _ in 0..numel(shape) {
            let c = value(rng, dtype, style, self.special);
            let mut out = vec![0; dtype.itemsize()];
            write(c, dtype, &mut out);
            bytes.extend(out);
        }
        let slot = self.inputs.len();
        let uop = param(slot, numel(shape), dtype);
        let base = Made { traced: Traced::exact(Value::from_bytes(&bytes, dtype)), uop };
        self.inputs.push(bytes);
        let made = self.moved(&base, Movement::Reshape(shape.clone())).expect("a leaf is healthy");
        self.pool.push(made.clone());
        made
    }

    fn literal(&mut self, dtype: DType) -> Made {
        let style = self.rng.below(4);
        let c = value(&mut self.rng, dtype, style, self.special);
        self.constant(c, dtype)
    }

    fn constant(&self, c: Const, dtype: DType) -> Made {
        let uop = UOp::new(Op::Const, dtype, Src::new(), Arg::Const(c));
        Made { traced: trace(&uop, &[]), uop }
    }

    fn number(&self, v: f64, dtype: DType) -> Made {
        self.constant(Const::Float(v).cast(DType::F64, dtype), dtype)
    }

    /// A movement that fits, evaluated.
    fn moved(&self, x: &Made, m: Movement) -> Option<Made> {
        let shape = m.apply_shape(x.shape()).ok()?;
        if numel(&shape) > MOST {
            return None;
        }
        if shape == *x.shape() && matches!(m, Movement::Reshape(_) | Movement::Expand(_)) {
            return Some(x.clone());
        }
        let op = match m {
            Movement::Reshape(_) => Op::Reshape,
            Movement::Expand(_) => Op::Expand,
            Movement::Permute(_) => Op::Permute,
            Movement::Pad(_) => Op::Pad,
            Movement::Shrink(_) => Op::Shrink,
            Movement::Flip(_) => Op::Flip,
        };
        self.evaluate(UOp::new(op, x.dtype(), [x.uop.clone()].to_src(), Arg::Movement(m)), &[x])
    }

    fn unary(&self, op: Op, x: &Made) -> Option<Made> {
        self.evaluate(x.uop.unary(op), &[x])
    }

    fn binary(&self, op: Op, x: &Made, y: &Made) -> Option<Made> {
        self.evaluate(x.uop.binary(op, &y.uop), &[x, y])
    }

    fn cast(&self, x: &Made, to: DType) -> Option<Made> {
        if x.dtype() == to { Some(x.clone()) } else { self.evaluate(x.uop.cast(to), &[x]) }
    }

    fn reduce(&self, x: &Made, fold: Fold, axes: &[usize]) -> Option<Made> {
        let uop = UOp::new(Op::Reduce, x.dtype(), [x.uop.clone()].to_src(), Arg::Reduce { fold, axes: axes.into() });
        self.evaluate(uop, &[x])
    }

    /// A tensor of this shape from another one, by whichever movements do it; the shape may be larger or smaller in every axis.
    fn conform(&mut self, x: &Made, shape: &Dims) -> Option<Made> {
        if x.shape() == shape {
            return Some(x.clone());
        }
        if numel(x.shape()) == numel(shape) && self.rng.once_in(2) {
            return self.moved(x, Movement::Reshape(shape.clone()));
        }
        let mut x = x.clone();
        if shape.is_empty() {
            let n = numel(x.shape());
            x = self.moved(&x, Movement::reshape([n]))?;
            let i = self.rng.below(n.max(1));
            x = self.moved(&x, Movement::shrink([(i, i + 1)]))?;
            return self.moved(&x, Movement::Reshape(Dims::new()));
        }
        while x.shape().len() > shape.len() {
            // Two axes become one.
            let i = self.rng.below(x.shape().len() - 1);
            let mut s = x.shape().clone();
            let n = s.remove(i + 1);
            s[i] *= n;
            x = self.moved(&x, Movement::Reshape(s))?;
        }
        if x.shape().len() < shape.len() {
            let mut s = x.shape().clone();
            while s.len() < shape.len() {
                // New axes go where they let the sizes agree, else in front.
                let at = (0..s.len()).find(|&i| s[i] != 1 && s[i] != shape[i + shape.len() - s.len()]).map_or(0, |_| self.rng.below(s.len() + 1));
                s.insert(at, 1);
            }
            x = self.moved(&x, Movement::Reshape(s))?;
        }
        let cut: crate::shape::Ranges = x
            .shape()
            .iter()
            .zip(shape)
            .map(|(&have, &want)| {
                if have <= want || have == 1 {
                    (0, have)
                } else {
                    let start = self.rng.below(have - want + 1);
                    (start, start + want)
                }
            })
            .collect();
        if cut.iter().zip(x.shape()).any(|(c, n)| *c != (0, *n)) {
            x = self.moved(&x, Movement::Shrink(cut))?;
        }
        let grown: Dims = x.shape().iter().zip(shape).map(|(&have, &want)| if have == 1 { want } else { have }).collect();
        x = self.moved(&x, Movement::Expand(grown))?;
        let around: crate::shape::Ranges = x
            .shape()
            .iter()
            .zip(shape)
            .map(|(&have, &want)| {
                let before = self.rng.below(want - have + 1);
                (before, want - have - before)
            })
            .collect();
        if around.iter().any(|a| *a != (0, 0)) {
            x = self.moved(&x, Movement::Pad(around))?;
        }
        Some(x)
    }

    /// An operand for an op with `x`: of its dtype, and of its shape or a literal.
    fn partner(&mut self, x: &Made) -> Option<Made> {
        let (dtype, shape) = (x.dtype(), x.shape().clone());
        match self.rng.below(8) {
            0 => Some(self.literal(dtype)),
            1 if self.inputs.len() < 6 => Some(self.leaf(dtype, &shape)),
            2 => self.some(|m| m.dtype() == dtype && *m.shape() == shape),
            _ => {
                let y = self.any();
                let y = self.conform(&y, &shape)?;
                self.cast(&y, dtype)
            }
        }
    }

    /// The value brought into ±`most` in one of several ways.
    fn tame(&mut self, x: &Made, most: f64) -> Option<Made> {
        let largest = x.traced.value.data.iter().filter_map(|c| if let Const::Float(v) = c { Some(v.abs()) } else { None }).fold(0.0, f64::max);
        if !x.dtype().is_float() || largest <= most {
            return Some(x.clone());
        }
        match self.rng.below(3) {
            0 => self.binary(Op::Mul, x, &self.number(2.0f64.powi((most / largest).log2().floor() as i32), x.dtype())),
            1 => {
                let low = self.binary(Op::Min, x, &self.number(most, x.dtype()))?;
                self.binary(Op::Max, &low, &self.number(-most, x.dtype()))
            }
            _ => self.unary(Op::Tanh, x),
        }
    }

    /// A float that is safe to divide by or take the logarithm of: at least a quarter.
    fn positive(&mut self, x: &Made) -> Option<Made> {
        let quarter = self.number(0.25, x.dtype());
        match self.rng.below(3) {
            0 => {
                let square = self.tame(x, 8.0)?;
                let square = self.binary(Op::Mul, &square, &square)?;
                self.binary(Op::Add, &square, &quarter)
            }
            1 => {
                let minus = self.binary(Op::Mul, x, &self.number(-1.0, x.dtype()))?;
                let size = self.binary(Op::Max, x, &minus)?;
                self.binary(Op::Max, &size, &quarter)
            }
            _ => self.binary(Op::Max, x, &quarter),
        }
    }

    /// Adds one op, or a few that belong together. Whatever turns out unhealthy is dropped.
    fn grow(&mut self) {
        for _ in 0..6 {
            let made = match self.rng.below(32) {
                0..=3 => self.grow_unary(),
                4..=10 => self.grow_binary(),
                11..=12 => self.grow_select(),
                13..=14 => self.grow_cast(),
                15..=19 => self.grow_movement(),
                20..=22 => self.grow_reduce(),
                23..=25 => self.grow_row(),
                26 => self.grow_product(),
                27 => self.grow_leaf(),
                28 => self.grow_windows(),
                29 => self.grow_border(),
                30 => self.grow_fma(),
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

    fn float(&mut self) -> Option<Made> {
        let x = self.any();
        if x.dtype().is_float() {
            return Some(x);
        }
        self.some(|m| m.dtype().is_float())
    }

    fn grow_unary(&mut self) -> Option<Made> {
        let op = self.rng.pick(&UNARY);
        if op == Op::Detach {
            let x = self.any();
            return self.unary(op, &x);
        }
        let x = self.float()?;
        let x = match op {
            _ if self.special => x,
            Op::Sqrt | Op::Rsqrt | Op::Log | Op::Log2 => self.positive(&x)?,
            Op::Exp | Op::Exp2 => self.tame(&x, 4.0)?,
            Op::Tan => self.tame(&x, 1.0)?,
            _ => x,
        };
        self.unary(op, &x)
    }

    fn grow_binary(&mut self) -> Option<Made> {
        let x = self.any();
        let mut y = self.partner(&x)?;
        let dtype = x.dtype();
        let ops: &[Op] = if dtype.is_float() {
            &[Op::Add, Op::Add, Op::Mul, Op::Mul, Op::Div, Op::Max, Op::Min, Op::Pow, Op::Lt, Op::Eq, Op::Ne]
        } else if dtype.is_bool() {
            &[Op::Add, Op::Mul, Op::Max, Op::Min, Op::And, Op::Or, Op::Xor, Op::Lt, Op::Eq, Op::Ne]
        } else {
            &[
                Op::Add,
                Op::Mul,
                Op::IDiv,
                Op::Mod,
                Op::Max,
                Op::Min,
                Op::Pow,
                Op::Shl,
                Op::Shr,
                Op::And,
                Op::Or,
                Op::Xor,
                Op::Lt,
                Op::Eq,
                Op::Ne,
            ]
        };
        let op = self.rng.pick(ops);
        let mut x = x;
        if dtype.is_float() && !self.special {
            match op {
                Op::Div => {
                    y = self.positive(&y)?;
                    if self.rng.once_in(2) {
                        y = self.binary(Op::Mul, &y, &self.number(-1.0, dtype))?;
                    }
                }
                Op::Pow => {
                    x = self.tame(&x, 4.0)?;
                    x = self.positive(&x)?;
                    y = self.tame(&y, 3.0)?;
                }
                Op::Mul => {
                    x = self.tame(&x, 32.0)?;
                    y = self.tame(&y, 32.0)?;
                }
                _ => {}
            }
        }
        if matches!(op, Op::Shl | Op::Shr) && !self.rng.once_in(4) {
            let mask = Const::Int(self.rng.below(dtype.bits() as usize) as i64);
            y = self.binary(Op::And, &y, &self.constant(mask, dtype))?;
        }
        // Subtraction is an addition of the negative.
        if op == Op::Add && !dtype.is_bool() && self.rng.once_in(3) {
            let minus = self.constant(Const::Int(-1).cast(DType::I64, dtype), dtype);
            y = self.binary(Op::Mul, &y, &minus)?;
        }
        if self.rng.once_in(2) { self.binary(op, &x, &y) } else { self.binary(op, &y, &x).or_else(|| self.binary(op, &x, &y)) }
    }

    fn condition(&mut self, shape: &Dims) -> Option<Made> {
        if let (true, Some(c)) = (self.rng.once_in(2), self.some(|m| m.dtype().is_bool() && m.shape() == shape)) {
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

    fn grow_select(&mut self) -> Option<Made> {
        let x = self.any();
        let y = self.partner(&x)?;
        let c = self.condition(&x.shape().clone())?;
        let (x, y) = if self.rng.once_in(2) { (x, y) } else { (y, x) };
        let uop = UOp::new(Op::Where, x.dtype(), [c.uop.clone(), x.uop.clone(), y.uop.clone()].to_src(), Arg::None);
        self.evaluate(uop, &[&c, &x, &y])
    }

    fn grow_fma(&mut self) -> Option<Made> {
        let x = self.float()?;
        let x = self.tame(&x, 32.0)?;
        let y = self.partner(&x)?;
        let y = self.tame(&y, 32.0)?;
        let z = self.partner(&x)?;
        self.evaluate(x.uop.fma(&y.uop, &z.uop), &[&x, &y, &z])
    }

    fn grow_cast(&mut self) -> Option<Made> {
        let x = self.any();
        let to = if self.rng.once_in(2) { self.rng.pick(DType::ALL) } else { self.dtype() };
        let x = if x.dtype().is_int() && to.is_float() && !self.special {
            // Large integers would be out of every float's comfortable range.
            let small = self.constant(Const::Int(17), x.dtype());
            self.binary(Op::Mod, &x, &small)?
        } else {
            x
        };
        self.cast(&x, to)
    }

    fn grow_bits(&mut self) -> Option<Made> {
        let x = self.any();
        let to: Vec<DType> = DType::ALL.iter().copied().filter(|t| t.bits() == x.dtype().bits() && *t != x.dtype()).collect();
        if to.is_empty() {
            return None;
        }
        let to = self.rng.pick(&to);
        let bits = self.evaluate(x.uop.bitcast(to), &[&x]);
        // Bits of floats are large integers, bits of integers seldom good floats: a pattern is forced where need be.
        match bits {
            Some(b) => Some(b),
            None if x.dtype().is_int() && to.is_float() => {
                let one = self.number(1.0, to);
                let Const::Float(v) = one.traced.value.data[0] else { return None };
                let bits = Const::Float(v).to_bits(to) as i64;
                let low = self.binary(Op::And, &x, &self.constant(Const::Int(3).normalize(x.dtype()), x.dtype()))?;
                let set = self.binary(Op::Or, &low, &self.constant(Const::Int(bits).normalize(x.dtype()), x.dtype()))?;
                self.evaluate(set.uop.bitcast(to), &[&set])
            }
            None => None,
        }
    }

    fn grow_movement(&mut self) -> Option<Made> {
        let x = self.any();
        let shape = x.shape().clone();
        let n = shape.len();
        let m = match self.rng.below(6) {
            0 => Movement::Reshape(self.reshaped(&shape)),
            1 => {
                let x = if shape.contains(&1) { x.clone() } else { self.some(|m| m.shape().contains(&1))? };
                let to = x.shape().iter().map(|&s| if s == 1 { size(&mut self.rng) } else { s }).collect();
                return self.moved(&x, Movement::Expand(to));
            }
            2 if n > 1 => {
                let mut axes: Dims = (0..n).collect();
                (1..n).for_each(|i| axes.swap(i, self.rng.below(i + 1)));
                Movement::Permute(axes)
            }
            3 if n > 0 => {
                let around = (0..n).map(|_| if self.rng.once_in(2) { (self.rng.below(4), self.rng.below(4)) } else { (0, 0) });
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

    /// Another shape of as many elements: axes joined, split, and ones put in or taken out.
    fn reshaped(&mut self, shape: &Dims) -> Dims {
        let mut s = shape.clone();
        for _ in 0..1 + self.rng.below(3) {
            match self.rng.below(4) {
                0 if s.len() > 1 => {
                    let i = self.rng.below(s.len() - 1);
                    let n = s.remove(i + 1);
                    s[i] *= n;
                }
                1 if !s.is_empty() && s.len() < RANK => {
                    let i = self.rng.below(s.len());
                    let divisors: Vec<usize> = (2..s[i]).filter(|d| s[i] % d == 0).collect();
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

    fn grow_reduce(&mut self) -> Option<Made> {
        let x = self.any();
        if x.shape().is_empty() {
            return None;
        }
        let axes = self.axes(x.shape().len());
        let fold = self.rng.pick(&FOLDS);
        let x = if fold == Fold::Mul && x.dtype().is_float() && !self.special {
            // Near one, so that products of many stay in range.
            let near = self.tame(&x, 1.0)?;
            let near = self.binary(Op::Mul, &near, &self.number(0.25, x.dtype()))?;
            self.binary(Op::Add, &near, &self.number(1.0, x.dtype()))?
        } else {
            x
        };
        let r = self.reduce(&x, fold, &axes)?;
        if self.rng.once_in(3) {
            let kept: Dims = (0..r.shape().len()).filter(|a| !axes.contains(a)).map(|a| r.shape()[a]).collect();
            return self.moved(&r, Movement::Reshape(kept));
        }
        Some(r)
    }

    /// A reduce broadcast back over its own axis and used there: softmax, layernorm and their like.
    fn grow_row(&mut self) -> Option<Made> {
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
            let e = self.tame(&y, 4.0)?;
            let e = self.unary(Op::Exp, &e)?;
            let sum = self.reduce(&e, Fold::Add, &axes)?;
            let sum = self.moved(&sum, Movement::Expand(e.shape().clone()))?;
            return self.binary(Op::Div, &e, &sum);
        }
        Some(y)
    }

    /// A matrix product by movement, multiplication and sum.
    fn grow_product(&mut self) -> Option<Made> {
        let a = self.some(|m| m.shape().len() == 2 && !m.dtype().is_bool() && numel(m.shape()) > 0)?;
        let (rows, inner) = (a.shape()[0], a.shape()[1]);
        let columns = 1 + self.rng.below((MOST / (rows * inner).max(1)).clamp(1, 12));
        let a = self.tame(&a, 4.0)?;
        let b = match self.some(|m| m.dtype() == a.dtype() && m.shape().len() == 2 && m.shape()[0] == inner && m.shape()[1] <= columns) {
            Some(b) => self.tame(&b, 4.0)?,
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

    /// Overlapping windows of an axis, as convolution and pooling read them.
    fn grow_windows(&mut self) -> Option<Made> {
        let x = self.some(|m| (1..=3).contains(&m.shape().len()) && m.shape().last().is_some_and(|n| *n > 1) && numel(m.shape()) <= USUAL)?;
        let rank = x.shape().len();
        let n = x.shape()[rank - 1];
        let k = 2 + self.rng.below((n - 1).min(4));
        // Repeated k times and cut so that each repetition starts one later: row i of width n + 1 begins at i.
        let lead: Dims = x.shape()[..rank - 1].into();
        let with = |tail: &[usize]| -> Dims { lead.iter().chain(tail).copied().collect() };
        let y = self.moved(&x, Movement::Reshape(with(&[1, n])))?;
        let y = self.moved(&y, Movement::Expand(with(&[k + 1, n])))?;
        let y = self.moved(&y, Movement::Reshape(with(&[(k + 1) * n])))?;
        let whole = |tail: &[(usize, usize)]| -> crate::shape::Ranges { lead.iter().map(|&s| (0, s)).chain(tail.iter().copied()).collect() };
        let y = self.moved(&y, Movement::Shrink(whole(&[(0, k * (n + 1))])))?;
        let y = self.moved(&y, Movement::Reshape(with(&[k, n + 1])))?;
        let y = self.moved(&y, Movement::Shrink(whole(&[(0, k), (0, n + 1 - k)])))?;
        if self.rng.once_in(3) {
            return Some(y);
        }
        let fold = self.rng.pick(&[Fold::Add, Fold::Max, Fold::Min]);
        self.reduce(&y, fold, &[rank - 1])
    }

    fn grow_leaf(&mut self) -> Option<Made> {
        match self.rng.below(3) {
            0 => {
                let (dtype, shape) = (self.dtype(), self.shape());
                if dtype.is_bool() {
                    return None;
                }
                let uop = UOp::new(Op::Iota, dtype, Src::new(), Arg::Iota { len: numel(&shape).min(if dtype.is_float() { 60 } else { MOST }) });
                let iota = self.evaluate(uop, &[])?;
                if numel(&shape) == numel(iota.shape()) { self.moved(&iota, Movement::Reshape(shape)) } else { Some(iota) }
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

    /// A value that is stored, or goes to another device and back.
    fn grow_border(&mut self) -> Option<Made> {
        let x = self.any();
        if !self.rng.once_in(3) {
            let uop = UOp::new(Op::Contiguous, x.dtype(), [x.uop.clone()].to_src(), Arg::None);
            return self.evaluate(uop, &[&x]);
        }
        let copy = |b: &Builder, x: &Made, to: &str| {
            b.evaluate(UOp::new(Op::Copy, x.dtype(), [x.uop.clone()].to_src(), Arg::Device(DeviceName::new(to))), &[x])
        };
        let mut y = copy(self, &x, THERE)?;
        if self.rng.once_in(2) && !x.dtype().is_bool() {
            let c = self.literal(x.dtype());
            y = self.binary(Op::Add, &y, &c)?;
        }
        copy(self, &y, HERE)
    }

    /// What is asked for: what nothing else uses, and now and then something from the middle.
    fn outputs(&mut self) -> Vec<UOp> {
        let used: Vec<UOp> = crate::ir::toposort(self.pool.iter().map(|m| &m.uop)).iter().flat_map(|u| u.src().to_vec()).collect();
        let varied = |m: &Made| m.traced.value.data.iter().any(|c| *c != m.traced.value.data[0]);
        let mut ends: Vec<Made> = self.pool.iter().filter(|m| !used.contains(&m.uop)).cloned().collect();
        // The last ones are the largest. Constant ones are seldom worth a look.
        ends.reverse();
        let fine: Vec<Made> = ends.iter().filter(|m| varied(m)).cloned().collect();
        if !fine.is_empty() && !self.rng.once_in(20) {
            ends = fine;
        }
        let count = 1 + self.rng.below(4).saturating_sub(1);
        let mut outputs: Vec<UOp> = ends.iter().take(count).map(|m| m.uop.clone()).collect();
        if self.rng.once_in(4) {
            let m = self.any();
            outputs.push(m.uop);
        }
        let dull = !self.pool.iter().any(|m| outputs.contains(&m.uop) && varied(m));
        if dull && !self.rng.once_in(20) {
            outputs.extend(self.pool.iter().rev().find(|m| varied(m)).map(|m| m.uop.clone()));
        }
        outputs
    }
}

/// A value for an input: small numbers on a grid, small numbers off it, or whatever the bits say.
fn value(rng: &mut Rng, dtype: DType, style: usize, special: bool) -> Const {
    if dtype.is_bool() {
        return Const::Bool(rng.once_in(2));
    }
    if dtype.is_float() {
        if special && rng.once_in(6) {
            let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-40, -1e-40, 65504.0, 448.0, 1e30, -1e30, 1e300];
            return Const::Float(rng.pick(&odd)).cast(DType::F64, dtype);
        }
        let v = match style {
            // Multiples of an eighth: sums and products of a few are exact.
            0 | 1 => (rng.below(33) as f64 - 16.0) / 8.0,
            2 => rng.unit() * 4.0 - 2.0,
            _ => rng.below(9) as f64 - 4.0,
        };
        return Const::Float(v).cast(DType::F64, dtype);
    }
    if special && rng.once_in(4) {
        return rng.pick(&[dtype.min_value(), dtype.max_value(), Const::Int(0), Const::Int(1), Const::Int(-1).normalize(dtype)]);
    }
    let v = match style {
        0 => rng.next() as i64,
        1 => rng.below(200) as i64 - 100,
        _ => rng.below(17) as i64 - 8,
    };
    Const::Int(v).normalize(dtype)
}

/// Is the op one that the generator can make? For the test that counts what was covered.
pub fn makes(op: Op) -> bool {
    op.is_alu() && !matches!(op, Op::CDiv | Op::CMod) || op.is(Group::Movement) || matches!(op, Op::Reduce | Op::Contiguous | Op::Copy | Op::Iota)
}
