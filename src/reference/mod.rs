//! The tensor graph computed the plain way, before any scheduling: the oracle that everything after
//! it is tested against.
//!
//! In come roots of a tensor graph and a way to read storage; out come values in row-major order.
//! Nothing is fused, planned or fast. Movement ops are index loops of their own, so a mistake in
//! the shape algebra cannot hide here; arithmetic is `ir::eval`, the one definition of it.
//!
//! **Invariant:** a reduce folds in row-major order of what it folds, one rounding per step, floats
//! narrower than f32 in f32 with one more rounding at the end.

mod indexed;
mod movement;
mod reduce;
#[cfg(test)]
mod tests;

use crate::dtype::{Const, DType, Element, read, write};
use crate::ir::{Arg, Group, Loop, Op, StorageRef, UOp, eval, toposort};
use crate::shape::{Dims, Movement};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A computed tensor: its elements in row-major order, each in normal form for the dtype.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The type of each element.
    pub dtype: DType,
    /// Sizes per axis.
    pub shape: Dims,
    /// The elements.
    pub data: Vec<Const>,
}

impl Value {
    /// The value that these bytes of a one-dimensional buffer hold.
    pub fn from_bytes(bytes: &[u8], dtype: DType) -> Value {
        let data: Vec<Const> =
            bytes.chunks_exact(dtype.itemsize()).map(|b| read(b, dtype)).collect();
        Value { dtype, shape: Dims::from_slice(&[data.len()]), data }
    }
    /// The elements as a buffer stores them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size = self.dtype.itemsize();
        let mut bytes = vec![0; size * self.data.len()];
        for (c, out) in self.data.iter().zip(bytes.chunks_exact_mut(size)) {
            write(*c, self.dtype, out);
        }
        bytes
    }
    /// The elements as Rust numbers. Panics if `T` is of another dtype.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert!(T::DTYPE == self.dtype, "a value of {} was read as {}", self.dtype, T::DTYPE);
        self.data.iter().map(|c| T::from_const(*c)).collect()
    }
}

/// The values of the roots. `read` gives the bytes of a storage.
pub fn evaluate(roots: &[UOp], read: &dyn Fn(&StorageRef) -> Vec<u8>) -> Vec<Value> {
    evaluate_with_params(roots, read, &|slot| {
        panic!("input {slot} of an abstracted graph has no value here")
    })
}

/// As [`evaluate`], for graphs whose buffers may have become inputs: `param` gives the bytes of a
/// slot.
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
    // Loops have several values, and are few.
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
            Arg::Output(i) => loops
                .get(&u.operand().id())
                .expect("a kernel of the user's is not evaluated here")[*i]
                .clone(),
            Arg::Storage(s) => leaf(u, &read(s)),
            Arg::Param { slot, .. } => leaf(u, &param(*slot)),
            _ => node(u, &u.src().iter().map(|s| &values[&s.id()]).collect::<Vec<_>>()),
        };
        debug_assert_eq!(&value.shape, u.shape(), "the shape of {u:?}");
        values.insert(u.id(), value);
        // The last user frees its operand.
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

/// The outputs of a loop, run by run.
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

/// One node from the values of its operands. Leaves that read memory are not among these nodes.
pub fn node(u: &UOp, src: &[&Value]) -> Value {
    match (u.op(), u.arg()) {
        (Op::Const, Arg::Const(c)) => {
            Value { dtype: u.dtype(), shape: Dims::new(), data: vec![*c] }
        }
        (Op::Iota, Arg::Iota { len }) => iota(u.dtype(), *len),
        (Op::Var, Arg::BoundVar { value, .. }) => Value {
            dtype: u.dtype(),
            shape: Dims::new(),
            data: vec![Const::Int(*value).cast(DType::I64, u.dtype())],
        },
        // All of the greatest length, of which a reduce takes what is there.
        (Op::Slice, Arg::Slice(part)) => {
            let (start, len) = (part.start.now() as usize, part.len.max() as usize);
            let range = |(axis, &n): (usize, &usize)| {
                if axis == part.axis { (start, start + len) } else { (0, n) }
            };
            movement::shrink(
                src[0],
                &src[0].shape.iter().enumerate().map(range).collect::<Vec<_>>(),
            )
        }
        (Op::Reduce, Arg::Reduce { fold, axes }) => {
            let there = |axis: usize| {
                u.operand().extent(axis).map_or(src[0].shape[axis], |e| e.now() as usize)
            };
            let ranges: Vec<(usize, usize)> = (0..src[0].shape.len())
                .map(|a| (0, if axes.contains(&a) { there(a) } else { src[0].shape[a] }))
                .collect();
            match u.operand().extents().is_empty() {
                true => reduce::reduce(src[0], *fold, axes),
                false => reduce::reduce(&movement::shrink(src[0], &ranges), *fold, axes),
            }
        }
        (Op::Gather | Op::Scatter, Arg::Gather { axis } | Arg::Scatter { axis, .. }) => {
            let operands = u.src();
            let there = |k: usize| {
                operands[k].extent(*axis).map_or(src[k].shape[*axis], |e| e.now() as usize)
            };
            match u.arg() {
                Arg::Scatter { combine, .. } => {
                    indexed::scatter(src, *combine, *axis, there(0), there(1))
                }
                _ => indexed::gather(src[0], src[1], *axis, there(0)),
            }
        }
        (Op::Scan, Arg::Reduce { fold, axes }) => reduce::scan(src[0], *fold, axes[0]),
        (Op::Cat, Arg::Cat { axis }) => movement::joined(src, *axis),
        (Op::Contiguous | Op::Copy, _) => src[0].clone(),
        (Op::Shards, Arg::Shards { axis, .. }) => {
            axis.map_or_else(|| src[0].clone(), |axis| movement::joined(src, axis))
        }
        (op, _) if op.is(Group::Mark) => src[0].clone(),
        (_, Arg::Movement(m)) => match &**m {
            Movement::Reshape(shape) => movement::reshape(src[0], shape),
            Movement::Expand(shape) => movement::expand(src[0], shape),
            Movement::Permute(axes) => movement::permute(src[0], axes),
            Movement::Pad(padding) => movement::pad(src[0], padding),
            Movement::Shrink(ranges) => movement::shrink(src[0], ranges),
            Movement::Flip(flags) => movement::flip(src[0], flags),
        },
        (op, _) if op.is_alu() => elementwise(u, src),
        (op, _) => panic!("{op:?} has no place in a tensor graph"),
    }
}

fn iota(dtype: DType, len: usize) -> Value {
    let data = (0..len).map(|i| Const::Int(i as i64).cast(DType::I64, dtype)).collect();
    Value { dtype, shape: Dims::from_slice(&[len]), data }
}

/// Operands have one shape, and an operand of rank 0 goes with any.
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
