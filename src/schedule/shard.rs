//! Values over several devices. In come outputs whose graphs may hold `Shards`; out come the graphs
//! of their parts, each of one device, with copies where a part needs what is elsewhere. After it
//! no `Shards` is left, so the rest of the scheduler knows single devices alone.
//!
//! The graph is walked once, operands first. A value is on one device, or it has a part on each of
//! several: pieces along an axis, or the whole on each. What is elementwise goes piece by piece; a
//! fold over the axis of the pieces folds each piece and then the results, in the order of the
//! devices, so that it is the same in every run and on every device; a movement that would tear
//! pieces apart is given the whole.

use crate::dtype::DType;
use crate::ir::{Arg, DeviceName, Fold, Op, Src, ToSrc, UOp, toposort, unmarked};
use crate::shape::{Dims, Movement};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;

/// Layout of the shards of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The devices of the parts.
    pub devices: DeviceName,
    /// The axis that they are pieces along; without one each is the whole.
    pub axis: Option<usize>,
    /// The shape of each part.
    pub shapes: Vec<Dims>,
}

/// The outputs in parts: the node and the device of each part, and for each output over several
/// devices how its parts lie. Outputs come in order, and the parts of one beside each other.
pub struct Sharded {
    /// The parts.
    pub parts: Vec<UOp>,
    /// Device of each shard.
    pub devices: Vec<DeviceName>,
    /// For each output over several devices, how it lies.
    pub layouts: Vec<Option<Layout>>,
}

/// Takes outputs apart. An output that is asked for on several devices and is on none is put on
/// each as a whole.
pub fn shard(outputs: &[UOp], devices: &[DeviceName]) -> Sharded {
    let order = toposort(outputs);
    if !devices.iter().any(|d| d.is_several()) && order.iter().all(|u| u.op() != Op::Shards) {
        return Sharded {
            parts: outputs.to_vec(),
            devices: devices.to_vec(),
            layouts: vec![None; outputs.len()],
        };
    }
    let values = values(&order);
    let mut sharded = Sharded { parts: Vec::new(), devices: Vec::new(), layouts: Vec::new() };
    for (o, name) in outputs.iter().zip(devices) {
        let value = &values[&o.id()];
        if !name.is_several() {
            let node = match value {
                Value::One { node, .. } => node.clone(),
                Value::Many(many) => many.on(name),
            };
            sharded.parts.push(node);
            sharded.devices.push(name.clone());
            sharded.layouts.push(None);
            continue;
        }
        let each: Rc<[DeviceName]> = name.each().into();
        let many = match value {
            Value::Many(many) if many.devices == each => many.clone(),
            Value::One { node, placed: false } => Many {
                parts: each.iter().map(|d| made(node, d)).collect(),
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
        sharded.parts.extend(many.parts);
        sharded.devices.extend(each.iter().cloned());
        sharded.layouts.push(Some(layout));
    }
    sharded
}

/// Layout of a value that is requested on several devices.
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

/// Boundaries of `n` elements over several devices: the first shards are longer by one if they
/// are not all equal.
pub fn even(n: usize, pieces: usize) -> Vec<usize> {
    (0..=pieces).map(|i| n / pieces * i + i.min(n % pieces)).collect()
}

/// A node taken apart.
#[derive(Clone)]
enum Value {
    /// On one device; one that is made of nothing is on none, and goes wherever it is used.
    One { node: UOp, placed: bool },
    /// On several.
    Many(Many),
}

#[derive(Clone)]
struct Many {
    devices: Rc<[DeviceName]>,
    parts: Vec<UOp>,
    split: Option<Split>,
}

/// Pieces along an axis: piece `i` has the elements from bound `i` to the next.
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

/// Every node taken apart.
fn values(order: &[UOp]) -> FxHashMap<u64, Value> {
    let mut values: FxHashMap<u64, Value> = FxHashMap::default();
    for u in order {
        let src: Vec<&Value> = u.src().iter().map(|s| &values[&s.id()]).collect();
        let value = if u.op() == Op::Shards { shards(u, &src) } else { apart(u, &src) };
        values.insert(u.id(), value);
    }
    values
}

/// The parts of a `Shards`, each on its device.
fn shards(u: &UOp, src: &[&Value]) -> Value {
    let Arg::Shards { devices, axis } = u.arg() else { panic!("shards without devices: {u:?}") };
    let devices: Rc<[DeviceName]> = devices.each().into();
    let part = |(value, device): (&&Value, &DeviceName)| match value {
        Value::One { node, placed: false } => made(node, device),
        Value::One { node, .. } => node.clone(),
        Value::Many(many) => many.on(device),
    };
    let parts: Vec<UOp> = src.iter().zip(devices.iter()).map(part).collect();
    let split = axis.map(|axis| Split::of(axis, parts.iter().map(|p| p.shape()[axis])));
    Value::Many(Many { devices, parts, split })
}

/// A value without inputs, stored on a device: otherwise it would be one node for all devices.
fn made(node: &UOp, device: &DeviceName) -> UOp {
    UOp::new(Op::Contiguous, node.dtype(), [node.clone()].to_src(), Arg::Device(device.clone()))
}

/// A node from its operands.
fn apart(u: &UOp, src: &[&Value]) -> Value {
    let Some(devices) = src.iter().find_map(|v| v.devices()) else {
        let placed = |v: &&Value| matches!(v, Value::One { placed: true, .. });
        let here = matches!(u.arg(), Arg::Param { .. } | Arg::Storage(_) | Arg::Device(_));
        let nodes = src.iter().map(|v| match v {
            Value::One { node, .. } => node.clone(),
            Value::Many(_) => panic!("on several devices: {u:?}"),
        });
        return Value::One {
            node: u.with_src(nodes.collect::<Src>()),
            placed: here || src.iter().any(placed),
        };
    };
    match (u.op(), u.arg(), src) {
        (Op::Copy, Arg::Device(device), [Value::Many(x)]) => {
            Value::One { node: x.on(device), placed: true }
        }
        (Op::Reduce, Arg::Reduce { fold, axes }, [Value::Many(x)]) => {
            Value::Many(x.reduced(u, *fold, axes))
        }
        (_, Arg::Movement(m), [Value::Many(x)]) => Value::Many(x.moved(m, u.shape())),
        _ => {
            // Elementwise: as the first operand in pieces is; where there is none, on each device.
            // Anything else gets the whole of everything.
            let pieces = |v: &&Value| match v {
                Value::Many(m) if m.devices == devices => m.split.clone(),
                _ => None,
            };
            let along = match u.arg() {
                Arg::Gather { axis } | Arg::Scatter { axis, .. } => Some(*axis),
                _ => None,
            };
            // Reads and writes at indices go piece by piece along the other axes; where the indices
            // of a read are in pieces, each device reads the whole table.
            let reads = |i: usize| u.op() == Op::Gather && i == 1;
            let apart =
                |(i, v): (usize, &&Value)| pieces(v).filter(|s| Some(s.axis) != along || reads(i));
            // A scan or a cat goes piece by piece along other axes than its own.
            let split = match u.arg() {
                _ if u.op().is_alu() || u.op() == Op::Contiguous => src.iter().find_map(pieces),
                Arg::Reduce { axes, .. } => {
                    src.iter().find_map(pieces).filter(|s| !axes.contains(&s.axis))
                }
                Arg::Cat { axis } => src.iter().find_map(pieces).filter(|s| s.axis != *axis),
                _ if along.is_some() => src.iter().enumerate().find_map(apart),
                _ => None,
            };
            let table = |i: usize| i == 0 && split.as_ref().is_some_and(|s| Some(s.axis) == along);
            let part = |(i, v): (usize, &&Value)| {
                v.parts(&devices, if table(i) { None } else { split.as_ref() })
            };
            let operands: Vec<Vec<UOp>> = src.iter().enumerate().map(part).collect();
            let part =
                |i: usize| u.with_src(operands.iter().map(|o| o[i].clone()).collect::<Src>());
            Value::Many(Many { parts: (0..devices.len()).map(part).collect(), devices, split })
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
    /// The value on each of the devices, in these pieces. A value of rank 0 is never in pieces.
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
                        many.narrowed(s.axis, s.range(i)).on(&devices[i])
                    }
                    _ => many.on(&devices[i]),
                };
                (0..devices.len()).map(piece).collect()
            }
        }
    }
}

impl Many {
    /// The same on each device.
    fn whole(&self) -> Many {
        let parts = Value::Many(self.clone()).parts(&self.devices, None);
        Many { devices: self.devices.clone(), parts, split: None }
    }
    /// The whole on one device.
    fn on(&self, device: &DeviceName) -> UOp {
        let bring = |i: usize| {
            if self.devices[i] == *device {
                self.parts[i].clone()
            } else {
                self.parts[i].copied(device)
            }
        };
        let Some(split) = &self.split else {
            return bring(self.devices.iter().position(|d| d == device).unwrap_or(0));
        };
        let full: Vec<usize> =
            (0..self.parts.len()).filter(|&i| !split.range(i).is_empty()).collect();
        match full[..] {
            [] => self.parts[0].clone(),
            [i] => bring(i),
            _ => joined(&full.into_iter().map(bring).collect::<Vec<_>>(), split.axis),
        }
    }
    /// The elements of a range of an axis, where they are.
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
    /// Other parts on the same devices.
    fn with(&self, parts: Vec<UOp>, axis: Option<usize>) -> Many {
        let split = axis.map(|axis| Split::of(axis, parts.iter().map(|p| p.shape()[axis])));
        Many { devices: self.devices.clone(), parts, split }
    }

    /// A fold over axes.
    fn reduced(&self, u: &UOp, fold: Fold, axes: &[usize]) -> Many {
        let each = |parts: &[UOp]| {
            parts.iter().map(|p| p.reduced(fold, axes.iter().copied())).collect::<Vec<_>>()
        };
        let Some(split) = self.split.as_ref().filter(|s| axes.contains(&s.axis)) else {
            return self.with(each(&self.parts), self.split.as_ref().map(|s| s.axis));
        };
        // Narrow floats are folded in f32, and rounded once at the end, as on one device.
        let wide =
            if u.dtype().is_float() && u.dtype().bits() < 32 { DType::F32 } else { u.dtype() };
        let parts: Vec<UOp> = self.parts.iter().map(|p| p.cast(wide)).collect();
        let partial = each(&parts);
        // An empty piece adds nothing; where all are empty, what a fold over nothing is.
        let full: Vec<usize> = (0..parts.len()).filter(|&i| !split.range(i).is_empty()).collect();
        if full.is_empty() {
            return self.with(partial.iter().map(|p| p.cast(u.dtype())).collect(), None);
        }
        let total = |device: &DeviceName| {
            let bring = |&i: &usize| {
                if self.devices[i] == *device {
                    partial[i].clone()
                } else {
                    partial[i].copied(device)
                }
            };
            let sum = full
                .iter()
                .map(bring)
                .reduce(|a, b| a.binary(fold.op(), b))
                .expect("one piece at least");
            sum.cast(u.dtype())
        };
        self.with(self.devices.iter().map(total).collect(), None)
    }

    /// A movement, to a shape.
    fn moved(&self, m: &Movement, shape: &Dims) -> Many {
        let Some(split) = &self.split else {
            return self.with(self.parts.iter().map(|p| apply(p, m.clone())).collect(), None);
        };
        let axis = split.axis;
        // The movement of a piece, which has its own size along the axis.
        let each = |to: usize, of: &dyn Fn(usize, &UOp) -> Movement| {
            self.with(
                self.parts.iter().enumerate().map(|(i, p)| apply(p, of(i, p))).collect(),
                Some(to),
            )
        };
        match m {
            Movement::Permute(p) => each(
                p.iter().position(|&a| a == axis).expect("a permutation has every axis"),
                &|_, _| m.clone(),
            ),
            Movement::Expand(sizes) if self.len() == sizes[axis] => {
                each(axis, &|i, _| Movement::Expand(with_size(sizes, axis, split.range(i).len())))
            }
            Movement::Shrink(ranges) => {
                let (start, end) = ranges[axis];
                let here = self.narrowed(axis, start..end);
                let rest = |p: &UOp| {
                    let size = p.shape()[axis];
                    apply(
                        p,
                        Movement::shrink(
                            ranges
                                .iter()
                                .enumerate()
                                .map(|(a, &r)| if a == axis { (0, size) } else { r }),
                        ),
                    )
                };
                self.with(here.parts.iter().map(rest).collect(), Some(axis))
            }
            // The first piece gets what comes before, and the last what comes after.
            Movement::Pad(sides) => each(axis, &|i, _| {
                let (before, after) = sides[axis];
                let mine = (
                    if i == 0 { before } else { 0 },
                    if i + 1 == self.parts.len() { after } else { 0 },
                );
                Movement::pad(
                    sides.iter().enumerate().map(|(a, &s)| if a == axis { mine } else { s }),
                )
            }),
            Movement::Flip(flags) if !flags[axis] => each(axis, &|_, _| m.clone()),
            // The pieces stay as long as they are, and each gets its elements from the other end.
            Movement::Flip(_) => {
                let n = self.len();
                let piece = |(i, r): (usize, Range<usize>)| {
                    apply(
                        &self.narrowed(axis, n - r.end..n - r.start).on(&self.devices[i]),
                        m.clone(),
                    )
                };
                self.with(split.ranges().enumerate().map(piece).collect(), Some(axis))
            }
            Movement::Reshape(_) => match self.reshaped_axis(shape) {
                Some((to, inner)) => {
                    let outer: usize = self.parts[0].shape()[axis + 1..].iter().product();
                    each(to, &|i, _| {
                        Movement::Reshape(with_size(
                            shape,
                            to,
                            split.range(i).len() * outer / inner,
                        ))
                    })
                }
                None => self.whole().moved(m, shape),
            },
            Movement::Expand(_) => self.whole().moved(m, shape),
        }
    }

    /// The size along the axis of the pieces.
    fn len(&self) -> usize {
        self.split.as_ref().map_or(0, |s| s.bounds[self.parts.len()])
    }

    /// The axis of another shape that the pieces are pieces along too, and how many elements stand
    /// behind one place of it.
    fn reshaped_axis(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let split = self.split.as_ref()?;
        let old = self.parts[0].shape();
        let before: usize = old[..split.axis].iter().product();
        let behind: usize = old[split.axis + 1..].iter().product();
        if before * behind * self.len() == 0 {
            return None;
        }
        // Axes of size one do not count, so the last that has as much before it is the one.
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

/// A movement; what moves nothing adds no node.
fn apply(u: &UOp, m: Movement) -> UOp {
    let idle = match &m {
        Movement::Reshape(s) | Movement::Expand(s) => s == u.shape(),
        Movement::Pad(sides) => sides.iter().all(|s| *s == (0, 0)),
        Movement::Shrink(ranges) => ranges.iter().zip(u.shape()).all(|(r, n)| *r == (0, *n)),
        Movement::Permute(_) | Movement::Flip(_) => false,
    };
    if idle { u.clone() } else { u.moved(m) }
}

/// A range of an axis. Nothing is repeated or copied that is cut off after.
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

/// Values one after the other along an axis. A choice keeps every bit, where a sum with zeros would
/// turn -0 into 0.
fn joined(pieces: &[UOp], axis: usize) -> UOp {
    let total: usize = pieces.iter().map(|p| p.shape()[axis]).sum();
    let shape = with_size(pieces[0].shape(), axis, total);
    let counts = if total <= i32::MAX as usize { DType::I32 } else { DType::I64 };
    let place = UOp::new(Op::Iota, counts, Src::new(), Arg::Iota { len: total });
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
    all.expect("one piece at least")
}
