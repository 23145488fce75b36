//! Values over several devices. Input: outputs whose graphs may have `Shards`. Output: one graph
//! per device for each of them, with copies where a shard needs values of other devices. No
//! `Shards` is left, so the rest of the scheduler sees single devices.
//!
//! The graph is walked once, operands first. A value is on one device, sharded along an axis, or
//! replicated. Elementwise ops are computed shard by shard. A reduction over the sharded axis
//! reduces each shard and then the results in the order of the devices, so that it is
//! deterministic. A movement op that shards cannot be computed with gets a replicated operand.

use crate::dtype::DType;
use crate::ir::typed::Shards;
use crate::ir::{Arg, DeviceName, Fold, Op, Src, ToSrc, UOp, toposort, unmarked};
use crate::shape::{Dims, Movement};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;

/// Layout of the shards of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The devices of the shards.
    pub devices: DeviceName,
    /// The sharded axis; `None` for a replicated output.
    pub axis: Option<usize>,
    /// The shape of each shard.
    pub shapes: Vec<Dims>,
}

/// The outputs as shards, in the order of outputs and devices.
pub struct Sharded {
    /// The shards of all outputs.
    pub shards: Vec<UOp>,
    /// Device of each shard.
    pub devices: Vec<DeviceName>,
    /// Layout of each output that is on several devices.
    pub layouts: Vec<Option<Layout>>,
}

/// Splits outputs into shards. An output that is requested on several devices and made of no inputs
/// is replicated.
pub fn shard(outputs: &[UOp], devices: &[DeviceName]) -> Sharded {
    let order = toposort(outputs);
    if !devices.iter().any(|d| d.is_multi_device()) && order.iter().all(|u| u.op() != Op::Shards) {
        return Sharded {
            shards: outputs.to_vec(),
            devices: devices.to_vec(),
            layouts: vec![None; outputs.len()],
        };
    }
    let values = values(&order);
    let mut sharded = Sharded { shards: Vec::new(), devices: Vec::new(), layouts: Vec::new() };
    for (o, name) in outputs.iter().zip(devices) {
        let value = &values[&o.id()];
        if !name.is_multi_device() {
            sharded.shards.push(match value {
                Value::One { node, .. } => node.clone(),
                Value::Many(many) => many.gather_on(name),
            });
            sharded.devices.push(name.clone());
            sharded.layouts.push(None);
            continue;
        }
        let each: Rc<[DeviceName]> = name.each().into();
        let many = match value {
            Value::Many(many) if many.devices == each => many.clone(),
            Value::One { node, placed: false } => Many {
                parts: each.iter().map(|d| stored_on(node, d)).collect(),
                devices: each.clone(),
                split: None,
            },
            _ => Many { parts: value.parts(&each, None), devices: each.clone(), split: None },
        };
        let layout = Layout {
            devices: name.clone(),
            axis: many.split.as_ref().map(|s| s.axis),
            shapes: many.parts.iter().map(|p| p.shape().clone()).collect(),
        };
        sharded.shards.extend(many.parts);
        sharded.devices.extend(each.iter().cloned());
        sharded.layouts.push(Some(layout));
    }
    sharded
}

/// Returns the layout of a value that is requested on several devices.
pub fn layout(node: &UOp, devices: &DeviceName) -> Option<Layout> {
    let node = node.unmarked();
    match node.arg() {
        Arg::Shards { devices: has, axis } if has == devices => Some(Layout {
            devices: has.clone(),
            axis: *axis,
            shapes: node.src().iter().map(|p| p.shape().clone()).collect(),
        }),
        _ => shard(&unmarked(std::slice::from_ref(node), |_| None), std::slice::from_ref(devices))
            .layouts
            .pop()
            .flatten(),
    }
}

/// Returns the boundaries of `n` elements over several devices: the first shards are longer by one
/// if they are not all equal.
pub fn even_bounds(n: usize, pieces: usize) -> Vec<usize> {
    (0..=pieces).map(|i| n / pieces * i + i.min(n % pieces)).collect()
}

/// A node on its devices.
#[derive(Clone)]
enum Value {
    /// On one device. A value without inputs is not placed: each user computes it on its own
    /// device.
    One { node: UOp, placed: bool },
    /// On several devices.
    Many(Many),
}

/// A value on several devices: sharded, or replicated without a split.
#[derive(Clone)]
struct Many {
    devices: Rc<[DeviceName]>,
    parts: Vec<UOp>,
    split: Option<Split>,
}

/// The shards along an axis: shard `i` has the elements from bound `i` to the next.
#[derive(Clone, PartialEq)]
struct Split {
    axis: usize,
    bounds: Vec<usize>,
}

impl Split {
    fn of(axis: usize, sizes: impl Iterator<Item = usize>) -> Split {
        let mut bounds = vec![0];
        sizes.for_each(|n| bounds.push(bounds[bounds.len() - 1] + n));
        Split { axis, bounds }
    }
    fn range(&self, i: usize) -> Range<usize> {
        self.bounds[i]..self.bounds[i + 1]
    }
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.bounds.windows(2).map(|w| w[0]..w[1])
    }
}

/// Returns each node on its devices.
fn values(order: &[UOp]) -> FxHashMap<u64, Value> {
    let mut values: FxHashMap<u64, Value> = FxHashMap::default();
    for u in order {
        let src: Vec<&Value> = u.src().iter().map(|s| &values[&s.id()]).collect();
        let value = if u.op() == Op::Shards { shards(u, &src) } else { placed(u, &src) };
        values.insert(u.id(), value);
    }
    values
}

/// Returns the operands of a `Shards`, each on its device.
fn shards(u: &UOp, src: &[&Value]) -> Value {
    let Shards { devices, axis, .. } = u.expect_shards();
    let devices: Rc<[DeviceName]> = devices.each().into();
    let part = |(value, device): (&&Value, &DeviceName)| match value {
        Value::One { node, placed: false } => stored_on(node, device),
        Value::One { node, .. } => node.clone(),
        Value::Many(many) => many.gather_on(device),
    };
    let parts: Vec<UOp> = src.iter().zip(devices.iter()).map(part).collect();
    let split = axis.map(|axis| Split::of(axis, parts.iter().map(|p| p.shape()[axis])));
    Value::Many(Many { devices, parts, split })
}

/// Stores a value without inputs on a device: otherwise it would be one node for all devices.
fn stored_on(node: &UOp, device: &DeviceName) -> UOp {
    node.contiguous_on(device)
}

/// Returns a node on its devices, from its operands.
fn placed(u: &UOp, src: &[&Value]) -> Value {
    let Some(devices) = src.iter().find_map(|v| v.devices()) else {
        let is_placed = |v: &&Value| matches!(v, Value::One { placed: true, .. });
        let has_device = matches!(u.arg(), Arg::Param { .. } | Arg::Storage(_) | Arg::Device(_));
        let nodes = src.iter().map(|v| match v {
            Value::One { node, .. } => node.clone(),
            Value::Many(_) => panic!("shard: an operand on several devices: {u:?}"),
        });
        let node = u.with_src(nodes.collect::<Src>());
        return Value::One { node, placed: has_device || src.iter().any(is_placed) };
    };
    match (u.op(), u.arg(), src) {
        (Op::Copy, Arg::Device(device), [Value::Many(x)]) => {
            Value::One { node: x.gather_on(device), placed: true }
        }
        (Op::Reduce, Arg::Reduce { fold, axes }, [Value::Many(x)]) => {
            Value::Many(x.reduced(u, *fold, axes))
        }
        (_, Arg::Movement(m), [Value::Many(x)]) => Value::Many(x.moved(m, u.shape())),
        _ => {
            let split = common_split(u, src, &devices);
            // The table of an op that is indexed along the sharded axis is replicated.
            let is_table = |i: usize| {
                i == 0 && split.as_ref().is_some_and(|s| Some(s.axis) == indexed_axis(u))
            };
            let part = |(i, v): (usize, &&Value)| {
                v.parts(&devices, if is_table(i) { None } else { split.as_ref() })
            };
            let operands: Vec<Vec<UOp>> = src.iter().enumerate().map(part).collect();
            let part =
                |i: usize| u.with_src(operands.iter().map(|o| o[i].clone()).collect::<Src>());
            Value::Many(Many { parts: (0..devices.len()).map(part).collect(), devices, split })
        }
    }
}

/// Returns the axis along which a gather or a scatter has indices.
fn indexed_axis(u: &UOp) -> Option<usize> {
    match u.arg() {
        Arg::Gather { axis } | Arg::Scatter { axis, .. } => Some(*axis),
        _ => None,
    }
}

/// Returns the split of the first sharded operand, if the op can be computed shard by shard along
/// it; `None` if every operand is replicated.
fn common_split(u: &UOp, src: &[&Value], devices: &Rc<[DeviceName]>) -> Option<Split> {
    let split_of = |v: &&Value| match v {
        Value::Many(m) if m.devices == *devices => m.split.clone(),
        _ => None,
    };
    let mut splits = src.iter().filter_map(split_of);
    match u.arg() {
        _ if u.op().is_alu() || u.op() == Op::Contiguous => splits.next(),
        // A scan or a cat is computed shard by shard along other axes than its own.
        Arg::Reduce { axes, .. } => splits.next().filter(|s| !axes.contains(&s.axis)),
        Arg::Cat { axis } => splits.next().filter(|s| s.axis != *axis),
        // So is an indexed op. Where the indices of a gather are sharded along its axis, each
        // device reads the whole table.
        _ => {
            let along = indexed_axis(u)?;
            src.iter().enumerate().find_map(|(i, v)| {
                let is_index = u.op() == Op::Gather && i == 1;
                split_of(v).filter(|s| s.axis != along || is_index)
            })
        }
    }
}

impl Value {
    fn devices(&self) -> Option<Rc<[DeviceName]>> {
        match self {
            Value::One { .. } => None,
            Value::Many(many) => Some(many.devices.clone()),
        }
    }
    /// Returns the value on each of the devices, with this split. A value of rank 0 has none.
    fn parts(&self, devices: &Rc<[DeviceName]>, split: Option<&Split>) -> Vec<UOp> {
        let cut = |node: &UOp, i: usize| match split {
            Some(s) if !node.shape().is_empty() => narrowed(node, s.axis, s.range(i)),
            _ => node.clone(),
        };
        match self {
            Value::One { node, placed: true } => {
                devices.iter().enumerate().map(|(i, d)| cut(node, i).copied(d)).collect()
            }
            Value::One { node, placed: false } => {
                (0..devices.len()).map(|i| cut(node, i)).collect()
            }
            Value::Many(many) if many.devices == *devices && many.split.as_ref() == split => {
                many.parts.clone()
            }
            Value::Many(many) if many.devices == *devices && many.split.is_none() => {
                many.parts.iter().enumerate().map(|(i, p)| cut(p, i)).collect()
            }
            Value::Many(many) => {
                let piece = |i: usize| match split {
                    Some(s) if !many.parts[0].shape().is_empty() => {
                        many.narrowed(s.axis, s.range(i)).gather_on(&devices[i])
                    }
                    _ => many.gather_on(&devices[i]),
                };
                (0..devices.len()).map(piece).collect()
            }
        }
    }
}

impl Many {
    /// Replicates the value.
    fn replicated(&self) -> Many {
        let parts = Value::Many(self.clone()).parts(&self.devices, None);
        Many { devices: self.devices.clone(), parts, split: None }
    }
    /// Gathers the value on one device.
    fn gather_on(&self, device: &DeviceName) -> UOp {
        let bring = |i: usize| self.copied_to(&self.parts[i], i, device);
        let Some(split) = &self.split else {
            return bring(self.devices.iter().position(|d| d == device).unwrap_or(0));
        };
        let full: Vec<usize> =
            (0..self.parts.len()).filter(|&i| !split.range(i).is_empty()).collect();
        match full[..] {
            [] => self.parts[0].clone(),
            [i] => bring(i),
            _ => concatenated(&full.into_iter().map(bring).collect::<Vec<_>>(), split.axis),
        }
    }
    /// Returns the elements of a range of an axis, each on the device that has it.
    fn narrowed(&self, axis: usize, range: Range<usize>) -> Many {
        let inside = |i: usize| match &self.split {
            Some(s) if s.axis == axis => {
                let piece = s.range(i);
                let place = |x: usize| x.clamp(piece.start, piece.end) - piece.start;
                place(range.start)..place(range.end)
            }
            _ => range.clone(),
        };
        let parts: Vec<UOp> =
            self.parts.iter().enumerate().map(|(i, p)| narrowed(p, axis, inside(i))).collect();
        self.with(parts, self.split.as_ref().map(|s| s.axis))
    }
    /// Returns a node of device `i` on another device.
    fn copied_to(&self, node: &UOp, i: usize, device: &DeviceName) -> UOp {
        if self.devices[i] == *device { node.clone() } else { node.copied(device) }
    }
    /// Returns other shards on the same devices.
    fn with(&self, parts: Vec<UOp>, axis: Option<usize>) -> Many {
        let split = axis.map(|axis| Split::of(axis, parts.iter().map(|p| p.shape()[axis])));
        Many { devices: self.devices.clone(), parts, split }
    }

    /// Returns a reduction over axes.
    fn reduced(&self, u: &UOp, fold: Fold, axes: &[usize]) -> Many {
        let each = |parts: &[UOp]| {
            parts.iter().map(|p| p.reduced(fold, axes.iter().copied())).collect::<Vec<_>>()
        };
        let Some(split) = self.split.as_ref().filter(|s| axes.contains(&s.axis)) else {
            return self.with(each(&self.parts), self.split.as_ref().map(|s| s.axis));
        };
        // Narrow floats are reduced in f32, and rounded once at the end, as on one device.
        let wide =
            if u.dtype().is_float() && u.dtype().bits() < 32 { DType::F32 } else { u.dtype() };
        let parts: Vec<UOp> = self.parts.iter().map(|p| p.cast(wide)).collect();
        let partial = each(&parts);
        // An empty shard adds nothing; if all are empty, each has the value of an empty reduction.
        let full: Vec<usize> = (0..parts.len()).filter(|&i| !split.range(i).is_empty()).collect();
        if full.is_empty() {
            return self.with(partial.iter().map(|p| p.cast(u.dtype())).collect(), None);
        }
        let total = |device: &DeviceName| {
            let each = full.iter().map(|&i| self.copied_to(&partial[i], i, device));
            let sum = each.reduce(|a, b| a.binary(fold.op(), b));
            sum.expect("at least one shard has elements").cast(u.dtype())
        };
        self.with(self.devices.iter().map(total).collect(), None)
    }

    /// Returns the result of a movement op, of this shape.
    fn moved(&self, m: &Movement, shape: &Dims) -> Many {
        let Some(Split { axis, .. }) = self.split else {
            return self.with(self.parts.iter().map(|p| apply(p, m.clone())).collect(), None);
        };
        match m {
            Movement::Permute(p) => {
                let to = p.iter().position(|&a| a == axis);
                self.each(to.expect("a permutation has every axis"), |_, _| m.clone())
            }
            Movement::Expand(sizes) if self.len() == sizes[axis] => {
                self.each(axis, |_, n| Movement::Expand(with_size(sizes, axis, n)))
            }
            Movement::Shrink(ranges) => {
                let (start, end) = ranges[axis];
                let kept = self.narrowed(axis, start..end);
                kept.each(axis, |_, n| {
                    let range = |(a, &r)| if a == axis { (0, n) } else { r };
                    Movement::shrink(ranges.iter().enumerate().map(range))
                })
            }
            Movement::Pad(sides) => self.padded(axis, sides),
            Movement::Flip(flags) if !flags[axis] => self.each(axis, |_, _| m.clone()),
            Movement::Flip(_) => self.flipped(axis, m),
            Movement::Reshape(_) => match self.reshaped_axis(shape) {
                Some((to, inner)) => {
                    let outer: usize = self.parts[0].shape()[axis + 1..].iter().product();
                    self.each(to, |_, n| Movement::Reshape(with_size(shape, to, n * outer / inner)))
                }
                None => self.replicated().moved(m, shape),
            },
            Movement::Expand(_) => self.replicated().moved(m, shape),
        }
    }

    /// Moves each shard by `of` its number and its size along the sharded axis, which becomes axis
    /// `to`.
    fn each(&self, to: usize, of: impl Fn(usize, usize) -> Movement) -> Many {
        let sizes = self.split.iter().flat_map(Split::ranges).map(|r| r.len());
        let parts = self.parts.iter().zip(sizes).enumerate();
        self.with(parts.map(|(i, (p, n))| apply(p, of(i, n))).collect(), Some(to))
    }

    /// Pads the value: the first shard before the sharded axis, and the last after it.
    fn padded(&self, axis: usize, sides: &[(usize, usize)]) -> Many {
        let last = self.parts.len() - 1;
        self.each(axis, |i, _| {
            let (before, after) = sides[axis];
            let own = (if i == 0 { before } else { 0 }, if i == last { after } else { 0 });
            Movement::pad(sides.iter().enumerate().map(|(a, &s)| if a == axis { own } else { s }))
        })
    }

    /// Flips the sharded axis. The sizes of the shards stay, and each gets its elements from the
    /// other end.
    fn flipped(&self, axis: usize, m: &Movement) -> Many {
        let n = self.len();
        let shard = |(i, r): (usize, Range<usize>)| {
            let elements = self.narrowed(axis, n - r.end..n - r.start).gather_on(&self.devices[i]);
            apply(&elements, m.clone())
        };
        let ranges = self.split.iter().flat_map(Split::ranges).enumerate();
        self.with(ranges.map(shard).collect(), Some(axis))
    }

    /// Returns the size of the sharded axis; 0 for a replicated value.
    fn len(&self) -> usize {
        self.split.as_ref().map_or(0, |s| s.bounds[self.parts.len()])
    }

    /// Returns the axis of another shape along which the shards remain shards, and the number of
    /// elements per position of it.
    fn reshaped_axis(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let split = self.split.as_ref()?;
        let old = self.parts[0].shape();
        let before: usize = old[..split.axis].iter().product();
        let behind: usize = old[split.axis + 1..].iter().product();
        if before * behind * self.len() == 0 {
            return None;
        }
        // Of the axes with as many elements before them, the one whose size is not 1.
        let to = (0..shape.len())
            .filter(|&a| shape[..a].iter().product::<usize>() == before)
            .find(|&a| shape[a] != 1)?;
        let inner: usize = shape[to + 1..].iter().product();
        split.bounds.iter().all(|b| (b * behind).is_multiple_of(inner)).then_some((to, inner))
    }
}

fn with_size(shape: &Dims, axis: usize, size: usize) -> Dims {
    let mut shape = shape.clone();
    shape[axis] = size;
    shape
}

/// Applies a movement; one that moves nothing adds no node.
fn apply(u: &UOp, m: Movement) -> UOp {
    let is_identity = match &m {
        Movement::Reshape(s) | Movement::Expand(s) => s == u.shape(),
        Movement::Pad(sides) => sides.iter().all(|s| *s == (0, 0)),
        Movement::Shrink(ranges) => ranges.iter().zip(u.shape()).all(|(r, n)| *r == (0, *n)),
        Movement::Permute(_) | Movement::Flip(_) => false,
    };
    if is_identity { u.clone() } else { u.moved(m) }
}

/// Returns a range of an axis. Elements outside it are neither repeated nor copied.
fn narrowed(u: &UOp, axis: usize, range: Range<usize>) -> UOp {
    if range == (0..u.shape()[axis]) {
        return u.clone();
    }
    match u.op() {
        Op::Expand if u.operand().shape()[axis] == 1 => {
            apply(u.operand(), Movement::Expand(with_size(u.shape(), axis, range.len())))
        }
        Op::Copy => u.with_src([u.operand().narrowed(axis, range)].to_src()),
        _ => u.narrowed(axis, range),
    }
}

/// Concatenates values along an axis by choosing each element. A sum with zeros would turn -0 into
/// 0.
fn concatenated(pieces: &[UOp], axis: usize) -> UOp {
    let total: usize = pieces.iter().map(|p| p.shape()[axis]).sum();
    let shape = with_size(pieces[0].shape(), axis, total);
    let counts = if total <= i32::MAX as usize { DType::I32 } else { DType::I64 };
    let place = UOp::iota(total, counts);
    let place =
        apply(&place, Movement::Reshape(with_size(&Dims::from_elem(1, shape.len()), axis, total)));
    let mut end = 0;
    let mut all: Option<UOp> = None;
    for p in pieces {
        let (before, size) = (end, p.shape()[axis]);
        let side = |a: usize| if a == axis { (before, total - before - size) } else { (0, 0) };
        let padded = apply(p, Movement::pad((0..shape.len()).map(side)));
        let left = |left: UOp| {
            apply(&place.lt(before as i64), Movement::Expand(shape.clone())).select(left, &padded)
        };
        all = Some(all.map_or_else(|| padded.clone(), left));
        end += size;
    }
    all.expect("at least one shard has elements")
}
