//! The reference evaluator: the tensor graph computed op by op on the host, without scheduling. It
//! is the oracle of all later stages.
//!
//! Input: roots of a tensor graph and a function that reads storage. Output: values in row-major
//! order. Movement ops are index loops that do not use the shape algebra, so that its mistakes
//! show; arithmetic is `ir::eval`.
//!
//! **Invariant:** a reduction combines values in row-major order, with one rounding per step.
//! Floats below 32 bits are computed in f32 and rounded once at the end.

mod indexed;
mod movement;
mod reduce;
#[cfg(test)]
mod tests;

use crate::dtype::{Const, DType, Element, read, write};
use crate::ir::{Arg, Group, Loop, Op, StorageRef, UOp, eval, toposort};
use crate::shape::Dims;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A computed tensor: its elements in row-major order, each in normal form for the dtype.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The size of each axis.
    pub shape: Dims,
    /// The elements in row-major order.
    pub data: Vec<Const>,
}

impl Value {
    /// Returns the one-dimensional value of these bytes of a buffer.
    pub fn from_bytes(bytes: &[u8], dtype: DType) -> Value {
        let data: Vec<Const> =
            bytes.chunks_exact(dtype.itemsize()).map(|b| read(b, dtype)).collect();
        Value { dtype, shape: Dims::from_slice(&[data.len()]), data }
    }
    /// Returns the bytes of the elements in a buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = self.dtype.itemsize();
        let mut bytes = vec![0; size * self.data.len()];
        for (c, out) in self.data.iter().zip(bytes.chunks_exact_mut(size)) {
            write(*c, self.dtype, out);
        }
        bytes
    }
    /// Returns the elements as Rust numbers. Panics if `T` is of another dtype.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert!(T::DTYPE == self.dtype, "a value of {} was read as {}", self.dtype, T::DTYPE);
        self.data.iter().map(|c| T::from_const(*c)).collect()
    }
}

/// Returns the values of the roots. `read` returns the bytes of a storage.
pub fn evaluate(roots: &[UOp], read: &dyn Fn(&StorageRef) -> Vec<u8>) -> Vec<Value> {
    evaluate_with_params(roots, read, &|slot| {
        panic!("input {slot} of an abstracted graph has no value here")
    })
}

/// As [`evaluate`], for abstracted graphs: `param` returns the bytes of an input.
pub fn evaluate_with_params(
    roots: &[UOp],
    read: &dyn Fn(&StorageRef) -> Vec<u8>,
    param: &dyn Fn(usize) -> Vec<u8>,
) -> Vec<Value> {
    let order = toposort(roots);
    let mut uses: FxHashMap<u64, usize> = FxHashMap::default();
    for u in order.iter().flat_map(|u| u.src()).chain(roots) {
        *uses.entry(u.id()).or_default() += 1;
    }
    let mut values: FxHashMap<u64, Value> = FxHashMap::default();
    // The values of loops, which have several outputs.
    let mut loops: FxHashMap<u64, Vec<Value>> = FxHashMap::default();
    for u in &order {
        let value = match u.arg() {
            Arg::Loop(l) => {
                loops.insert(
                    u.id(),
                    looped(l, &u.src().iter().map(|s| &values[&s.id()]).collect::<Vec<_>>()),
                );
                Value { dtype: u.dtype(), shape: Dims::new(), data: vec![] }
            }
            Arg::Output(i) => {
                loops.get(&u.operand().id()).expect("custom kernels are not evaluated")[*i].clone()
            }
            Arg::Storage(s) => leaf(u, &read(s)),
            Arg::Param { slot, .. } => leaf(u, &param(*slot)),
            _ => node(u, &u.src().iter().map(|s| &values[&s.id()]).collect::<Vec<_>>()),
        };
        debug_assert_eq!(&value.shape, u.shape(), "the shape of {u:?}");
        values.insert(u.id(), value);
        // The last user of an operand frees it.
        for s in u.src() {
            let left = uses.get_mut(&s.id()).expect("an operand has a user");
            *left -= 1;
            if *left == 0 {
                values.remove(&s.id());
            }
        }
    }
    roots.iter().map(|r| values[&r.id()].clone()).collect()
}

/// Returns the outputs of a loop, iteration by iteration.
fn looped(l: &Loop, src: &[&Value]) -> Vec<Value> {
    let mut carries: Vec<Value> = src[..l.carries].iter().map(|v| (*v).clone()).collect();
    let mut outputs: Vec<Value> = l
        .outputs()
        .into_iter()
        .map(|(dtype, shape)| Value {
            dtype,
            data: vec![Const::Int(0); shape.iter().product()],
            shape,
        })
        .collect();
    for run in 0..l.count {
        let t = if l.reverse { l.count - 1 - run } else { run };
        let operand = |slot: usize| match slot {
            slot if slot < l.carries => carries[slot].to_bytes(),
            slot if l.is_element(slot) => {
                let bytes = src[slot].to_bytes();
                let each = bytes.len() / l.count;
                bytes[t * each..(t + 1) * each].to_vec()
            }
            slot => src[slot].to_bytes(),
        };
        let mut made =
            evaluate_with_params(l.body.src(), &|_| panic!("a body reads no storage"), &operand);
        for (out, value) in outputs[l.carries..].iter_mut().zip(&made[l.carries..]) {
            out.data[t * value.data.len()..(t + 1) * value.data.len()].copy_from_slice(&value.data);
        }
        made.truncate(l.carries);
        carries = made;
    }
    outputs.splice(..l.carries, carries);
    outputs
}

fn leaf(u: &UOp, bytes: &[u8]) -> Value {
    let value = Value::from_bytes(bytes, u.dtype());
    assert!(
        value.shape == *u.shape(),
        "storage of {} elements was read as {}",
        u.numel(),
        value.data.len()
    );
    value
}

/// Evaluates one node, which reads no memory, from the values of its operands.
pub fn node(u: &UOp, src: &[&Value]) -> Value {
    let scalar = |c: Const| Value { dtype: u.dtype(), shape: Dims::new(), data: vec![c] };
    match (u.op(), u.arg()) {
        (Op::Const, Arg::Const(c)) => scalar(*c),
        (Op::Var, Arg::BoundVar { value, .. }) => {
            scalar(Const::Int(*value).cast(DType::I64, u.dtype()))
        }
        (Op::Iota, Arg::Iota { len }) => iota(u.dtype(), *len),
        // The slice of the upper bound of its length; reductions read the runtime size.
        (Op::Slice, Arg::Slice(part)) => {
            let start = part.start.bound_value() as usize;
            let range = (start, start + part.len.max() as usize);
            movement::narrow(src[0], |axis| (axis == part.axis).then_some(range))
        }
        (Op::Reduce, Arg::Reduce { fold, axes }) if u.operand().extents().is_empty() => {
            reduce::reduce(src[0], *fold, axes)
        }
        (Op::Reduce, Arg::Reduce { fold, axes }) => {
            let range = |a: usize| axes.contains(&a).then(|| (0, runtime_size(u.operand(), a)));
            reduce::reduce(&movement::narrow(src[0], range), *fold, axes)
        }
        (Op::Gather, Arg::Gather { axis }) => {
            indexed::gather(src[0], src[1], *axis, runtime_size(u.operand(), *axis))
        }
        (Op::Scatter, Arg::Scatter { combine, axis }) => {
            let [size, count] = [0, 1].map(|k| runtime_size(&u.src()[k], *axis));
            indexed::scatter(src, *combine, *axis, size, count)
        }
        (Op::Scan, Arg::Reduce { fold, axes }) => reduce::scan(src[0], *fold, axes[0]),
        (Op::Cat, Arg::Cat { axis }) | (Op::Shards, Arg::Shards { axis: Some(axis), .. }) => {
            movement::concatenated(src, *axis)
        }
        (Op::Contiguous | Op::Copy | Op::Shards, _) => src[0].clone(),
        (op, _) if op.is(Group::Mark) => src[0].clone(),
        (_, Arg::Movement(m)) => movement::moved(src[0], m),
        (op, _) if op.is_alu() => elementwise(u, src),
        (op, _) => panic!("{op:?} is not an op of the tensor graph"),
    }
}

/// Returns the runtime size of an axis.
fn runtime_size(u: &UOp, axis: usize) -> usize {
    u.extent(axis).map_or(u.shape()[axis], |e| e.bound_value() as usize)
}

fn iota(dtype: DType, len: usize) -> Value {
    let data = (0..len).map(|i| Const::Int(i as i64).cast(DType::I64, dtype)).collect();
    Value { dtype, shape: Dims::from_slice(&[len]), data }
}

/// Evaluates an elementwise op. Operands have one shape or rank 0.
fn elementwise(u: &UOp, src: &[&Value]) -> Value {
    let shape = src.iter().map(|s| &s.shape).find(|s| !s.is_empty()).cloned().unwrap_or_default();
    for s in src {
        assert!(
            s.shape.is_empty() || s.shape == shape,
            "{:?} of shapes {:?} and {shape:?}",
            u.op(),
            s.shape
        );
    }
    let from = if u.op() == Op::Where { u.dtype() } else { src[0].dtype };
    let numel = shape.iter().product();
    let data = (0..numel)
        .map(|i| {
            let args: SmallVec<[Const; 3]> = src
                .iter()
                .map(|s| if s.shape.is_empty() { s.data[0] } else { s.data[i] })
                .collect();
            eval::alu(u.op(), u.dtype(), from, &args)
        })
        .collect();
    Value { dtype: u.dtype(), shape, data }
}
