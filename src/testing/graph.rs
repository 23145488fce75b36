//! The generator of random graphs. Each node is evaluated when it is added, so that a node whose
//! values are useless (not finite, too large, or with wide bounds) is rejected or tamed.

mod grow;

use super::bounds::{Bound, BoundedValue, epsilon, evaluate_bounded};
use super::case::{Case, param};
use super::rng::Rng;
use crate::dtype::{Const, DType, Scalar, write};
use crate::ir::{Fold, Group, Op, UOp};
use crate::reference::Value;
use crate::shape::{Dims, Movement, Ranges};

/// The largest number of elements of a tensor.
const MAX_ELEMENTS: usize = 2000;
/// The number of elements of a long row.
const LONG: usize = 1 << 15;
/// The largest number of elements of most tensors.
const USUAL_ELEMENTS: usize = 200;
/// The largest number of axes.
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

/// A node with its values and bounds.
#[derive(Clone)]
struct Generated {
    uop: UOp,
    traced: BoundedValue,
}

impl Generated {
    fn shape(&self) -> &Dims {
        &self.traced.value.shape
    }
    fn dtype(&self) -> DType {
        self.uop.dtype()
    }
}

struct Builder {
    rng: Rng,
    pool: Vec<Generated>,
    inputs: Vec<Vec<u8>>,
    /// True if inputs have infinities, NaN and extreme values.
    special: bool,
    /// The largest number of elements of a tensor.
    most: usize,
    /// The sizes of most axes, so that shapes agree.
    sizes: Vec<usize>,
    /// The dtypes of most tensors, so that operands agree.
    dtypes: Vec<DType>,
}

/// Returns the random case of a seed, of 3 to 40 ops.
pub fn random_case(seed: u64) -> Case {
    let mut rng = Rng::new(seed ^ 0x7069_636f_6772_6164);
    let special = rng.once_in(25);
    // A few cases have rows so long that the scheduler splits them. They are slow.
    let long = rng.once_in(250);
    let sizes = (0..4).map(|_| size(&mut rng)).collect();
    let mut dtypes = vec![if rng.once_in(2) { DType::F32 } else { rng.pick(&FLOATS) }];
    for _ in 0..rng.below(3) {
        dtypes.push(if rng.once_in(2) { rng.pick(&INTS) } else { rng.pick(DType::ALL) });
    }
    let most = if long { LONG * 2 } else { MAX_ELEMENTS };
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
        _ => rng.pick(&[13, 16, 17, 24, 31, 32, 127, 1000]),
    }
}

/// Returns a shape with axis `i` and the next one merged.
fn merged(shape: &Dims, i: usize) -> Dims {
    let mut s = shape.clone();
    let n = s.remove(i + 1);
    s[i] *= n;
    s
}

fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Returns the largest magnitude of values on which more ops are built.
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
        let most = if self.rng.once_in(8) { MAX_ELEMENTS } else { USUAL_ELEMENTS };
        while numel(&shape) > most {
            let i = self.rng.below(shape.len());
            shape[i] = (shape[i] / 2).max(1);
        }
        shape
    }

    /// Evaluates a node; none if its values are useless.
    fn evaluate(&self, uop: UOp, src: &[&Generated]) -> Option<Generated> {
        let operands: Vec<&BoundedValue> = src.iter().map(|m| &m.traced).collect();
        let made = Generated { traced: evaluate_bounded(&uop, &operands), uop };
        self.is_useful(&made).then_some(made)
    }

    fn is_useful(&self, m: &Generated) -> bool {
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

    fn any(&mut self) -> Generated {
        // New nodes are used more often, so that graphs are deep.
        let n = self.pool.len();
        let i =
            if self.rng.once_in(2) { n - 1 - self.rng.below(n.min(4)) } else { self.rng.below(n) };
        self.pool[i].clone()
    }

    fn pick(&mut self, wanted: impl Fn(&Generated) -> bool) -> Option<Generated> {
        let list: Vec<usize> = (0..self.pool.len()).filter(|&i| wanted(&self.pool[i])).collect();
        if list.is_empty() { None } else { Some(self.pool[self.rng.pick(&list)].clone()) }
    }

    /// Returns an input of a shape with random content.
    fn leaf(&mut self, dtype: DType, shape: &Dims) -> Generated {
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
        let base = Generated { traced: BoundedValue::exact(Value::from_bytes(&bytes, dtype)), uop };
        self.inputs.push(bytes);
        let made =
            self.moved(&base, Movement::Reshape(shape.clone())).expect("a leaf is is_useful");
        self.pool.push(made.clone());
        made
    }

    fn literal(&mut self, dtype: DType) -> Generated {
        let style = self.rng.below(4);
        let c = value(&mut self.rng, dtype, style, self.special);
        self.constant(c, dtype)
    }

    fn constant(&self, c: Const, dtype: DType) -> Generated {
        let uop = UOp::literal(c, dtype);
        Generated { traced: evaluate_bounded(&uop, &[]), uop }
    }

    fn number(&self, v: f64, dtype: DType) -> Generated {
        self.constant(Const::Float(v).cast(DType::F64, dtype), dtype)
    }

    /// Returns the value after a movement op, if the movement fits.
    fn moved(&self, x: &Generated, m: Movement) -> Option<Generated> {
        let shape = m.apply_shape(x.shape()).ok()?;
        if numel(&shape) > self.most {
            return None;
        }
        if shape == *x.shape() && matches!(m, Movement::Reshape(_) | Movement::Expand(_)) {
            return Some(x.clone());
        }
        self.evaluate(x.uop.moved(m), &[x])
    }

    fn unary(&self, op: Op, x: &Generated) -> Option<Generated> {
        self.evaluate(x.uop.unary(op), &[x])
    }

    fn binary(&self, op: Op, x: &Generated, y: &Generated) -> Option<Generated> {
        self.evaluate(x.uop.binary(op, &y.uop), &[x, y])
    }

    fn cast(&self, x: &Generated, to: DType) -> Option<Generated> {
        if x.dtype() == to { Some(x.clone()) } else { self.evaluate(x.uop.cast(to), &[x]) }
    }

    fn reduce(&self, x: &Generated, fold: Fold, axes: &[usize]) -> Option<Generated> {
        self.evaluate(x.uop.reduced(fold, axes.iter().copied()), &[x])
    }

    /// Returns a tensor of a shape from another one by random movements. The shape may be larger or
    /// smaller in every axis.
    fn conform(&mut self, x: &Generated, shape: &Dims) -> Option<Generated> {
        if x.shape() == shape {
            return Some(x.clone());
        }
        if numel(x.shape()) == numel(shape) && self.rng.once_in(2) {
            return self.moved(x, Movement::Reshape(shape.clone()));
        }
        if shape.is_empty() {
            let n = numel(x.shape());
            let x = self.moved(x, Movement::reshape([n]))?;
            let i = self.rng.below(n.max(1));
            let x = self.moved(&x, Movement::shrink([(i, i + 1)]))?;
            return self.moved(&x, Movement::Reshape(Dims::new()));
        }
        let x = self.with_rank(x, shape)?;
        let have = |x: &Generated| x.shape().clone().into_iter().zip(shape.clone());
        let cut: Ranges = have(&x)
            .map(|(have, want)| {
                if have <= want || have == 1 {
                    return (0, have);
                }
                let start = self.rng.below(have - want + 1);
                (start, start + want)
            })
            .collect();
        let is_cut = cut.iter().zip(x.shape()).any(|(c, n)| *c != (0, *n));
        let x = if is_cut { self.moved(&x, Movement::Shrink(cut))? } else { x };
        let grown = have(&x).map(|(have, want)| if have == 1 { want } else { have });
        let x = self.moved(&x, Movement::expand(grown))?;
        let around: Ranges = have(&x)
            .map(|(have, want)| {
                let before = self.rng.below(want - have + 1);
                (before, want - have - before)
            })
            .collect();
        let is_padded = around.iter().any(|a| *a != (0, 0));
        if is_padded { self.moved(&x, Movement::Pad(around)) } else { Some(x) }
    }

    /// Returns a tensor with the number of axes of a shape, which is not zero: axes are merged or
    /// inserted.
    fn with_rank(&mut self, x: &Generated, shape: &Dims) -> Option<Generated> {
        let mut x = x.clone();
        while x.shape().len() > shape.len() {
            let i = self.rng.below(x.shape().len() - 1);
            x = self.moved(&x, Movement::Reshape(merged(x.shape(), i)))?;
        }
        if x.shape().len() == shape.len() {
            return Some(x);
        }
        let mut s = x.shape().clone();
        while s.len() < shape.len() {
            // At a random position if the sizes differ from those of the shape, else in front.
            let at = (0..s.len())
                .find(|&i| s[i] != 1 && s[i] != shape[i + shape.len() - s.len()])
                .map_or(0, |_| self.rng.below(s.len() + 1));
            s.insert(at, 1);
        }
        self.moved(&x, Movement::Reshape(s))
    }

    /// Returns a second operand for `x`: of its dtype, and of its shape or a literal.
    fn partner(&mut self, x: &Generated) -> Option<Generated> {
        let (dtype, shape) = (x.dtype(), x.shape().clone());
        match self.rng.below(8) {
            0 => Some(self.literal(dtype)),
            1 if self.inputs.len() < 6 => Some(self.leaf(dtype, &shape)),
            2 => self.pick(|m| m.dtype() == dtype && *m.shape() == shape),
            _ => {
                let y = self.any();
                let y = self.conform(&y, &shape)?;
                self.cast(&y, dtype)
            }
        }
    }

    /// Returns the value limited to ±`most` by one of several ops.
    fn bound_values(&mut self, x: &Generated, most: f64) -> Option<Generated> {
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

    /// Returns a float of at least 1/4, which is safe as a divisor and for logarithms.
    fn positive(&mut self, x: &Generated) -> Option<Generated> {
        let quarter = self.number(0.25, x.dtype());
        match self.rng.below(3) {
            0 => {
                let square = self.bound_values(x, 8.0)?;
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

    /// Returns the outputs: nodes without users, and sometimes others.
    fn outputs(&mut self) -> Vec<UOp> {
        let used: Vec<UOp> = crate::ir::toposort(self.pool.iter().map(|m| &m.uop))
            .iter()
            .flat_map(|u| u.src().to_vec())
            .collect();
        let varied =
            |m: &Generated| m.traced.value.data.iter().any(|c| *c != m.traced.value.data[0]);
        let mut ends: Vec<Generated> =
            self.pool.iter().filter(|m| !used.contains(&m.uop)).cloned().collect();
        // The last nodes have the largest graphs. Constant outputs test little.
        ends.reverse();
        let fine: Vec<Generated> = ends.iter().filter(|m| varied(m)).cloned().collect();
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

/// Returns a random value of an input: a small number on a grid, a small number, or random bits.
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
            // Multiples of 1/8, of which sums and products are often exact.
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

/// Returns true if the generator makes the op, for the test of its coverage.
pub fn makes(op: Op) -> bool {
    op.is_alu() && !matches!(op, Op::CDiv | Op::CMod | Op::Ldexp)
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
