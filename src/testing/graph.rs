//! The generator. Nodes are added one at a time and evaluated at once, so a node whose values would
//! be of no use (not finite, too large to stay finite, or known only vaguely) is refused or tamed
//! before anything is built on it.

mod grow;

use super::bounds::{Bound, Traced, epsilon, trace};
use super::case::{Case, param};
use super::rng::Rng;
use crate::dtype::{Const, DType, Scalar, write};
use crate::ir::{Arg, Fold, Group, Op, Src, ToSrc, UOp};
use crate::reference::Value;
use crate::shape::{Dims, Movement};

/// Elements of a tensor, at most.
const MOST: usize = 2000;
/// Elements of a long row.
const LONG: usize = 1 << 15;
/// Elements of most tensors.
const USUAL: usize = 200;
/// Axes, at most.
const RANK: usize = 4;

const FLOATS: [DType; 6] =
    [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64];
const INTS: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
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
    /// Elements of a tensor, at most.
    most: usize,
    /// Sizes that occur again and again, so that shapes meet.
    sizes: Vec<usize>,
    /// Dtypes of this graph, so that operands meet.
    dtypes: Vec<DType>,
}

/// The case of a seed: 3 to 40 ops.
pub fn random_case(seed: u64) -> Case {
    let mut rng = Rng::new(seed ^ 0x7069_636f_6772_6164);
    let special = rng.once_in(25);
    // Rows so long that the scheduler splits them, now and then: they take their time.
    let long = rng.once_in(250);
    let sizes = (0..4).map(|_| size(&mut rng)).collect();
    let mut dtypes = vec![if rng.once_in(2) { DType::F32 } else { rng.pick(&FLOATS) }];
    for _ in 0..rng.below(3) {
        dtypes.push(if rng.once_in(2) { rng.pick(&INTS) } else { rng.pick(DType::ALL) });
    }
    let most = if long { LONG * 2 } else { MOST };
    let mut b = Builder { rng, pool: Vec::new(), inputs: Vec::new(), special, most, sizes, dtypes };
    if long {
        let (dtype, length) = (b.dtype(), LONG + b.rng.pick(&[0, 1, 8, 4096]));
        let shape = if b.rng.once_in(2) {
            Dims::from_slice(&[length])
        } else {
            Dims::from_slice(&[2, length / 2])
        };
        b.leaf(dtype, &shape);
        (0..4).for_each(|_| b.grow());
        let outputs = b.outputs();
        return Case { outputs, inputs: b.inputs };
    }
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
        if self.rng.once_in(8) {
            self.rng.pick(DType::ALL)
        } else {
            self.rng.pick(&self.dtypes.clone())
        }
    }

    fn shape(&mut self) -> Dims {
        let rank = self.rng.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
        let mut shape: Dims = (0..rank)
            .map(|_| {
                let n = if self.rng.once_in(3) {
                    size(&mut self.rng)
                } else {
                    self.rng.pick(&self.sizes.clone())
                };
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
        if numel(m.shape()) > self.most {
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
                v.is_finite()
                    && v.abs() <= most
                    && hi - lo <= (v.abs() + 0.25) * eps.max(1e-5) * 64.0
            }
            _ => true,
        })
    }

    fn any(&mut self) -> Made {
        // What was made last is used more often, so graphs are deep.
        let n = self.pool.len();
        let i =
            if self.rng.once_in(2) { n - 1 - self.rng.below(n.min(4)) } else { self.rng.below(n) };
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
        if numel(&shape) > self.most {
            return None;
        }
        if shape == *x.shape() && matches!(m, Movement::Reshape(_) | Movement::Expand(_)) {
            return Some(x.clone());
        }
        self.evaluate(x.uop.moved(m), &[x])
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
        let uop = UOp::new(
            Op::Reduce,
            x.dtype(),
            [x.uop.clone()].to_src(),
            Arg::Reduce { fold, axes: axes.into() },
        );
        self.evaluate(uop, &[x])
    }

    /// A tensor of this shape from another one, by whichever movements do it; the shape may be
    /// larger or smaller in every axis.
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
                let at = (0..s.len())
                    .find(|&i| s[i] != 1 && s[i] != shape[i + shape.len() - s.len()])
                    .map_or(0, |_| self.rng.below(s.len() + 1));
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
        let grown: Dims = x
            .shape()
            .iter()
            .zip(shape)
            .map(|(&have, &want)| if have == 1 { want } else { have })
            .collect();
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
        let largest = x
            .traced
            .value
            .data
            .iter()
            .filter_map(|c| if let Const::Float(v) = c { Some(v.abs()) } else { None })
            .fold(0.0, f64::max);
        if !x.dtype().is_float() || largest <= most {
            return Some(x.clone());
        }
        match self.rng.below(3) {
            0 => self.binary(
                Op::Mul,
                x,
                &self.number(2.0f64.powi((most / largest).log2().floor() as i32), x.dtype()),
            ),
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

    /// What is asked for: what nothing else uses, and now and then something from the middle.
    fn outputs(&mut self) -> Vec<UOp> {
        let used: Vec<UOp> = crate::ir::toposort(self.pool.iter().map(|m| &m.uop))
            .iter()
            .flat_map(|u| u.src().to_vec())
            .collect();
        let varied = |m: &Made| m.traced.value.data.iter().any(|c| *c != m.traced.value.data[0]);
        let mut ends: Vec<Made> =
            self.pool.iter().filter(|m| !used.contains(&m.uop)).cloned().collect();
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
            let odd = [
                0.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                1e-40,
                -1e-40,
                65504.0,
                448.0,
                1e30,
                -1e30,
                1e300,
            ];
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
        return rng.pick(&[
            dtype.min_value(),
            dtype.max_value(),
            Const::Int(0),
            Const::Int(1),
            Const::Int(-1).normalize(dtype),
        ]);
    }
    let v = match style {
        0 => rng.bits() as i64,
        1 => rng.below(200) as i64 - 100,
        _ => rng.below(17) as i64 - 8,
    };
    Const::Int(v).normalize(dtype)
}

/// Is the op one that the generator can make? For the test that counts what was covered.
pub fn makes(op: Op) -> bool {
    op.is_alu() && !matches!(op, Op::CDiv | Op::CMod)
        || op.is(Group::Movement)
        || matches!(
            op,
            Op::Reduce
                | Op::Scan
                | Op::Cat
                | Op::Gather
                | Op::Scatter
                | Op::Contiguous
                | Op::Copy
                | Op::Iota
        )
}
