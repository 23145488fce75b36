//! Realization: replaces the graph of a tensor by a buffer with its elements.
//!
//! `holders` maps nodes to the live tensors that contain them. When tensors are realized, the
//! graphs of all others that contain them are changed to read the buffers, so that nothing is
//! computed twice. `holders` also tells whether anything still reads the old content of a buffer:
//! an assignment writes in place only if nothing does. A tensor that was created from another one
//! before an assignment keeps the old value.
//!
//! Values that a later plan may compare with a result of this one (`retained`) are stored too,
//! because a second computation could round differently.

use super::holders::{self, Region};
use super::in_place::Locked;
use super::{Inner, Tensor};
use crate::autograd::decision_operands;
use crate::device::{Buffer, Device};
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::{self, Capture, ScheduleItem};
use crate::ir::{
    Arg, DeviceName, Group, Op, Rounding, Src, Storage, StorageRef, ToSrc, UOp, typed, walk_values,
};
use crate::schedule::{Layout, Plan, Request};
use crate::shape::{Movement, SymInt};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard};

/// Lock of a realization: in-place writes are decided and performed under it.
pub(super) static RUNNING: Mutex<()> = Mutex::new(());

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the name of the default device.
pub(super) fn default_device() -> DeviceName {
    Device::default_name()
}

/// One-dimensional node over new storage with these bytes.
pub(super) fn buffer(bytes: &[u8], dtype: DType, device: &DeviceName) -> Result<UOp> {
    let on = |device: &DeviceName| Buffer::from_bytes(device, dtype, bytes).map(|b| b.node());
    match device.each() {
        [one] => on(one),
        each => Ok(UOp::shards(each.iter().map(on).collect::<Result<Src>>()?, device, None)),
    }
}

/// Returns the node under reshapes and marks, which has the same elements.
pub(super) fn base(u: &UOp) -> &UOp {
    let mut base = u;
    while base.op() == Op::Reshape || base.op().is(Group::Mark) || is_all(base) {
        base = base.operand();
    }
    base
}

/// Returns true for a slice of the whole runtime size of an axis, with the layout of its operand.
pub(super) fn is_all(u: &UOp) -> bool {
    u.as_slice().is_some_and(|s| s.part.start.as_number() == Some(0) && u.shape() == s.x.shape())
}

/// Returns the storage of a node that is a whole buffer of any shape; on several devices the
/// storage of each shard.
pub(super) fn storages(u: &UOp) -> Option<SmallVec<[&StorageRef; 1]>> {
    let u = base(u);
    match u.op() {
        Op::Shards => u.src().iter().map(|part| base(part).arg().storage()).collect(),
        _ => Some(smallvec::smallvec![u.arg().storage()?]),
    }
}

/// Returns true if the elements are stored.
pub(super) fn is_stored(u: &UOp) -> bool {
    storages(u).is_some()
}

/// Replacement of a realized node: its buffer, and the graph that gradients follow.
pub(super) fn stand_in(u: &UOp, buffer: &UOp) -> UOp {
    let mut value = if buffer.shape() == u.shape() {
        buffer.clone()
    } else {
        buffer.moved(Movement::Reshape(u.shape().clone()))
    };
    for (axis, extent) in u.extents().iter().enumerate() {
        if let Some(extent) = extent {
            value = value.sliced(axis, SymInt::number(0), extent.clone());
        }
    }
    match u.op() {
        Op::Leaf => u.with_src([value].to_src()),
        _ if u.requires_grad() => typed::Computed::build(u.dtype(), Arg::None, value, u.clone()),
        _ => value,
    }
}

/// Message for a node whose content was overwritten.
pub(super) const OVERWRITTEN: &str =
    "a tensor reads memory that was overwritten by an assignment or by a run that failed";

/// Calls `f` on the storages that the nodes read. A graph that reads overwritten content is an
/// error, because its value would be wrong. A graph with the argument of a traced function has no
/// value.
pub(super) fn read_by(nodes: &[UOp], mut f: impl FnMut(&StorageRef)) -> Result<()> {
    let mut wrong = None;
    walk_values(nodes, |u| match u.arg() {
        Arg::Storage(s) => {
            if s.is_stale() {
                wrong = Some(OVERWRITTEN);
            }
            f(s);
        }
        Arg::Param { .. } => {
            wrong = Some(
                "an argument of callify or scan has no value while its function is recorded; read \
                 the results of the function",
            )
        }
        _ => {}
    });
    wrong.map_or(Ok(()), |msg| refuse!(Device, "{msg}"))
}

/// Returns the identity of a content: memory and version.
fn content(s: &StorageRef) -> (u64, u64) {
    (s.storage.memory_id(), s.version)
}

/// Node and the nodes under its reshapes and marks, which have the same elements. Shards
/// (`in_parts`) would be split elsewhere under a reshape.
fn same_elements(node: &UOp, in_parts: bool) -> impl Iterator<Item = &UOp> {
    let is_mark = move |u: &UOp| u.op().is(Group::Mark) || (u.op() == Op::Reshape && !in_parts);
    std::iter::successors(Some(node), move |&u| is_mark(u).then(|| u.operand()))
        .filter(|u| !matches!(u.op(), Op::Const | Op::Var))
}

/// Returns the values that this run computes and that a later plan may compare with its results or
/// decide by again, and which would be rounded differently in a second computation:
///
/// - stored values to decide by (`Contiguous`), if a live tensor reads them after this run, so that
///   gradients that are realized one after the other take the same branch;
/// - values that gradients decide by, if a holder of a result of this run also holds them, for
///   example in the graph of the gradient of that result;
/// - live parameters that have not been computed before, because the next run needs them too.
fn retained(device: &DeviceName, tensors: &[&Tensor], nodes: &[UOp]) -> Vec<UOp> {
    let mut candidates: FxHashSet<UOp> = FxHashSet::default();
    walk_values(nodes, |u| match (u.op(), u.arg()) {
        (Op::Leaf, _) if base(u).view().is_none_or(|v| v.0.op() != Op::Const) => {
            candidates.extend([u.clone()])
        }
        (Op::Contiguous, Arg::None) if u.rounding() == Rounding::SameInPlan => {
            candidates.extend([u.clone()])
        }
        _ if u.requires_grad() => {
            candidates.extend(decision_operands(u).iter().filter_map(UOp::to_materialize))
        }
        _ => {}
    });
    let keys: FxHashSet<&UOp> =
        nodes.iter().flat_map(|u| same_elements(u, device.is_multi_device())).collect();
    candidates.retain(|u| !keys.contains(u) && !is_stored(u));
    if candidates.is_empty() || device.is_multi_device() {
        return vec![];
    }
    let on = devices(nodes);
    candidates.retain(|u| on.get(&u.id()).is_none_or(|d| d == device));
    if candidates.is_empty() {
        return vec![];
    }
    let wanted: FxHashSet<*const Inner> = tensors.iter().map(|t| Arc::as_ptr(&t.0)).collect();
    let is_other = |t: &Tensor| !wanted.contains(&Arc::as_ptr(&t.0));
    let others = holders::region(keys.iter().copied());
    let others = others.tensors.iter().filter(|(t, _)| is_other(t)).map(|(_, u)| u);
    // A result that gradients follow keeps its graph, for the realized tensors and for others that
    // contain the same value, such as a tensor whose detached value is realized.
    let is_followed = |u: &UOp| u.requires_grad() && u.op() != Op::Leaf;
    let kept = nodes.iter().filter(|u| is_followed(u));
    let region = holders::region(&candidates);
    let of = |op: Op| candidates.iter().filter(|u| u.op() == op).collect::<FxHashSet<&UOp>>();
    let (leaves, stored) = (of(Op::Leaf), of(Op::Contiguous));
    let live = || region.tensors.iter().filter(|(t, _)| is_other(t)).map(|(_, u)| u);
    let mut found: FxHashSet<UOp> = live().filter(|u| leaves.contains(u)).cloned().collect();
    region.walk(
        live(),
        |u| keys.contains(u),
        |u| found.extend(stored.contains(u).then(|| u.clone())),
    );
    let decided = |u: &UOp| candidates.contains(u) && u.op() != Op::Leaf;
    region.walk(
        others.chain(kept),
        |u| keys.contains(u) && !is_followed(u),
        |u| found.extend(decided(u).then(|| u.clone())),
    );
    let mut found: Vec<UOp> = found.into_iter().collect();
    found.sort_by_key(UOp::id);
    found
}

/// Returns the devices of the nodes below these.
fn devices(nodes: &[UOp]) -> FxHashMap<u64, DeviceName> {
    let mut on: FxHashMap<u64, DeviceName> = FxHashMap::default();
    walk_values(nodes, |u| {
        let under = || u.src().iter().find_map(|s| on.get(&s.id()));
        let here = u.own_device().or_else(under).cloned();
        on.extend(here.map(|d| (u.id(), d)));
    });
    on
}

/// Returns the requests for tensors, with donated buffers that no other tensor reads, and the
/// readers of that memory.
fn requests(tensors: &[&Tensor], nodes: &[UOp]) -> Result<(Vec<Request>, Option<Region>)> {
    let wanted: FxHashSet<*const Inner> = tensors.iter().map(|t| Arc::as_ptr(&t.0)).collect();
    let homes: Vec<(u64, u64)> = tensors
        .iter()
        .flat_map(|t| lock(&t.0.reusable_storage).iter().map(content).collect::<Vec<_>>())
        .collect();
    let mut read: FxHashSet<(u64, u64)> = FxHashSet::default();
    let readers = (!homes.is_empty()).then(|| holders::readers(homes.iter().copied()));
    if let Some(readers) = &readers {
        // A result whose gradient follows a graph keeps reading it after this run.
        let reads_on = |t: &Tensor, u: &UOp| {
            !wanted.contains(&Arc::as_ptr(&t.0)) || (u.requires_grad() && u.op() != Op::Leaf)
        };
        let roots = readers.tensors.iter().filter(|(t, u)| reads_on(t, u)).map(|(_, u)| u);
        readers.walk(roots, |_| false, |u| read.extend(u.arg().storage().map(content)));
    }
    // Slices of one memory are separate inputs of a plan, which does not see that they overlap.
    let mut inputs: FxHashMap<u64, FxHashSet<u64>> = FxHashMap::default();
    let all_new = homes.is_empty();
    read_by(nodes, |s| {
        if !all_new {
            inputs.entry(s.storage.memory_id()).or_default().insert(s.storage.id());
        }
    })?;
    let alone = |s: &StorageRef| {
        inputs
            .get(&s.storage.memory_id())
            .is_none_or(|ids| ids.len() == 1 && ids.contains(&s.storage.id()))
    };
    let of = tensors.iter().zip(nodes).map(|(t, node)| {
        let free = |s: &StorageRef| {
            !s.is_stale()
                && Capture::may_overwrite(s.storage.id())
                && !read.contains(&content(s))
                && alone(s)
        };
        let reuse = lock(&t.0.reusable_storage)
            .iter()
            .map(|s| (free(s) && Buffer::of(s).is_writable()).then(|| s.clone()))
            .collect();
        Request { node: node.clone(), device: t.device().clone(), reuse }
    });
    Ok((of.collect(), readers))
}

/// Realizes tensors together, so that shared values are computed once. Each keeps its result,
/// unless another thread assigned to it in between. Returns the new nodes.
pub(super) fn realize_all(tensors: &[&Tensor]) -> Result<Vec<UOp>> {
    let _running = lock(&RUNNING);
    realize_running(tensors)
}

/// [`realize_all`] under the lock [`RUNNING`].
pub(super) fn realize_running(tensors: &[&Tensor]) -> Result<Vec<UOp>> {
    let mut devices: Vec<&DeviceName> = tensors.iter().map(|t| t.device()).collect();
    devices.sort();
    devices.dedup();
    // A value without data is one node for all devices, so that each device has its own run.
    for device in devices {
        let here: Vec<&Tensor> = tensors.iter().copied().filter(|t| t.device() == device).collect();
        realize_on(device, &here)?;
    }
    // Read again, because another thread may have assigned since the run.
    Ok(tensors.iter().map(|t| t.raw()).collect())
}

/// [`realize_all`] for tensors of one device.
fn realize_on(device: &DeviceName, tensors: &[&Tensor]) -> Result<()> {
    // Each node is read once: another thread may assign.
    let (todo, old): (Vec<&Tensor>, Vec<UOp>) =
        tensors.iter().map(|t| (*t, t.raw())).filter(|(_, u)| !is_stored(u)).unzip();
    if todo.is_empty() {
        return Ok(());
    }
    let (mut requests, readers) = requests(&todo, &old)?;
    let kept = retained(device, &todo, &old);
    requests.extend(kept.iter().map(|node| request(node.clone(), device)));
    let locked = Locked::new(&todo, &old, &mut requests, &kept, readers);
    let (buffers, plan) = exec::realize(&requests)?;
    let values = outputs(&requests, buffers, &plan)?;
    let now = locked.exchange(&todo, old.clone(), &values);
    let mut computed: FxHashMap<UOp, &UOp> = FxHashMap::default();
    for (u, value) in kept.iter().zip(&values[old.len()..]) {
        computed.extend(u.as_contiguous().map(|c| (c.x.clone(), value)));
        computed.insert(u.clone(), value);
    }
    for ((old, layout), value) in old.iter().zip(&plan.layouts).zip(&values) {
        computed.extend(same_elements(old, layout.is_some()).map(|u| (u.clone(), value)));
    }
    let (map, before) = stand_ins(&computed);
    let mut done: FxHashSet<*const Inner> = FxHashSet::default();
    for (((t, old), now), value) in todo.iter().zip(&old).zip(&now).zip(&values) {
        // A literal is one node everywhere, but is stored only for this tensor.
        let new = map.get(old).cloned().unwrap_or_else(|| stand_in(old, value));
        // A tensor that was assigned to in between may contain computed nodes, like any other.
        if t.exchange(now, new) {
            lock(&t.0.reusable_storage).clear();
            done.insert(Arc::as_ptr(&t.0));
        }
    }
    // Searched after the exchange, because dropped graphs need no update.
    let region = before.unwrap_or_else(|| holders::region(computed.keys()));
    update_holders(device, &region, &done, map);
    Ok(())
}

/// Replacements of computed nodes, and the region of these nodes if gradients follow one of them:
/// then replacements contain other replacements.
fn stand_ins(computed: &FxHashMap<UOp, &UOp>) -> (FxHashMap<UOp, UOp>, Option<Region>) {
    if !computed.keys().any(|u| u.requires_grad() && u.op() != Op::Leaf) {
        let map = computed.iter().map(|(u, value)| (u.clone(), stand_in(u, value))).collect();
        return (map, None);
    }
    let region = holders::region(computed.keys());
    let new = region
        .rebuilt(computed.keys(), |u, new| computed.get(u).map(|value| stand_in(&new, value)));
    let map = computed.keys().map(|u| (u.clone(), new[&u.id()].clone())).collect();
    (map, Some(region))
}

/// Replaces computed nodes in the other tensors that contain them. On another device only nodes
/// with data are replaced: other nodes may be computed on any device.
fn update_holders(
    device: &DeviceName,
    region: &Region,
    done: &FxHashSet<*const Inner>,
    mut map: FxHashMap<UOp, UOp>,
) {
    let others = region.tensors.iter().filter(|(t, _)| !done.contains(&Arc::as_ptr(&t.0)));
    let (here, elsewhere): (Vec<_>, Vec<_>) = others.partition(|(t, _)| t.device() == device);
    let exchange = |tensors: &[&(Tensor, UOp)], map: &FxHashMap<UOp, UOp>| {
        let old: Vec<UOp> = tensors.iter().map(|(_, u)| u.clone()).collect();
        for (((t, _), old), new) in tensors.iter().zip(&old).zip(region.substitute(&old, map)) {
            if new != *old {
                t.exchange(old, new);
            }
        }
    };
    exchange(&here, &map);
    if !elsewhere.is_empty() {
        map.retain(|u, _| u.has_data());
        exchange(&elsewhere, &map);
    }
}

/// Returns the request for a node without donated buffers.
fn request(node: UOp, device: &DeviceName) -> Request {
    Request { node, device: device.clone(), reuse: vec![] }
}

/// Returns the node of each request over its buffers.
fn outputs(requests: &[Request], buffers: Vec<Option<Buffer>>, plan: &Plan) -> Result<Vec<UOp>> {
    let mut buffers = buffers.into_iter();
    let value = |(r, layout): (&Request, &Option<Layout>)| {
        let mut parts = Src::new();
        for (i, device) in r.device.each().iter().enumerate() {
            let b = match buffers.next().flatten() {
                Some(b) => b,
                None => Buffer::from_bytes(device, r.node.dtype(), &[])?,
            };
            if r.reuse.get(i).into_iter().flatten().any(|s| s.storage.id() == Storage::id(&b)) {
                b.overwritten();
            }
            let shape = layout.as_ref().map(|l| Movement::Reshape(l.shapes[i].clone()));
            parts.push(shape.map_or_else(|| b.node(), |shape| b.node().moved(shape)));
        }
        Ok(match layout {
            Some(layout) => UOp::shards(parts, &layout.devices, layout.axis),
            None => parts.remove(0),
        })
    };
    requests.iter().zip(&plan.layouts).map(value).collect()
}

impl Tensor {
    /// Computes and stores the tensor. Returns a handle on it.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = (Tensor::arange(0, 3, 1) + 1).realize()?;
    /// assert_eq!(format!("{x:?}"), format!("<Tensor i32 [3] on {}: Buffer>", x.device()));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn realize(&self) -> Result<Tensor> {
        realize_all(&[self])?;
        Ok(self.clone())
    }

    /// Replaces the node if it is still the expected one.
    pub(super) fn exchange(&self, expected: &UOp, new: UOp) -> bool {
        let mut slot = self.0.uop.write().unwrap_or_else(|e| e.into_inner());
        let there = *slot == *expected;
        let _old = if there { std::mem::replace(&mut *slot, new) } else { new };
        drop(slot);
        if there {
            holders::note(self, false);
        }
        there
    }

    /// Computes several tensors together: shared values are computed once, and kernels with the
    /// same loops are fused.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::arange(0, 4, 1).cast(picograd::DType::F32);
    /// let (mean, max) = (x.mean(0), x.max(0));
    /// Tensor::realize_many(&[&mean, &max])?;
    /// assert_eq!((mean.item::<f32>()?, max.item::<f32>()?), (1.5, 3.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn realize_many(tensors: &[&Tensor]) -> Result<()> {
        realize_all(tensors).map(drop)
    }

    /// Schedule of [`realize`](Tensor::realize): the commands in order, with allocated memory. Each
    /// item can be printed, inspected, compiled and run separately. The tensor does not change.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = (Tensor::ones([4, 4]) * 2.0).sum(0);
    /// let items = y.schedule()?;
    /// assert_eq!(items.len(), 1);
    /// items[0].compile()?.run()?;
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn schedule(&self) -> Result<Vec<ScheduleItem>> {
        Tensor::schedule_many(&[self])
    }

    /// [`schedule`](Tensor::schedule) for several tensors together.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]);
    /// assert_eq!(Tensor::schedule_many(&[&(&x + 1.0), &(&x * 2.0)])?.len(), 1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn schedule_many(tensors: &[&Tensor]) -> Result<Vec<ScheduleItem>> {
        // No buffer is donated: running the items must not change any tensor.
        let nodes: Vec<UOp> = tensors.iter().map(|t| t.raw()).collect();
        read_by(&nodes, |_| {})?;
        let pairs = tensors.iter().zip(nodes);
        let requests: Vec<Request> = pairs.map(|(t, node)| request(node, t.device())).collect();
        Ok(exec::schedule(&requests)?.items)
    }

    /// Tensor that is stored in row-major order when it is realized: a boundary for fusion.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]]).t().contiguous().realize()?;
    /// assert_eq!(x.to_bytes()?[..8], [1, 0, 0, 0, 3, 0, 0, 0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn contiguous(&self) -> Tensor {
        let uop = self.uop();
        if is_stored(&uop) || uop.op() == Op::Contiguous {
            return self.copy();
        }
        self.with_uop(uop.contiguous())
    }
}
