//! Where a graph becomes values. In comes a tensor; out come its elements, or the tensor itself
//! with a buffer in place of its graph.
//!
//! `holders` knows which live tensors contain which nodes. When some are realized, the graphs of
//! all others that contain them are changed to read the buffers, so nothing is computed twice. It
//! also tells whether anyone still reads the old content of a buffer: only if nobody does may an
//! assignment write it in place. A tensor that was made from another before an assignment keeps the
//! old value, always.
//!
//! What a later plan may compare with a result of this one (`retained`) is kept too: computed again
//! it could be rounded differently.

use super::broadcast::{Operand, has_data, unify};
use super::holders::{self, Region};
use super::in_place::Locked;
use super::{Inner, Tensor, wrong_dtype, wrong_shape};
use crate::device::registry::canonical;
use crate::device::{Buffer, Device, limits};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::exec::{self, ScheduleItem};
use crate::ir::{
    Arg, DeviceName, Fold, Group, Op, Rounding, Src, StorageRef, ToSrc, UOp, rectified, walk_values,
};
use crate::schedule::{Layout, Plan, Request};
use crate::shape::{Movement, SymInt};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard};

/// One realization at a time: which buffers may be written in place is decided and done under it.
pub(super) static RUNNING: Mutex<()> = Mutex::new(());

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// The device of tensors that name none.
pub(super) fn default_device() -> DeviceName {
    Device::default_name()
}

/// A one-dimensional node over new storage with these bytes.
pub(super) fn buffer(bytes: &[u8], dtype: DType, device: &DeviceName) -> Result<UOp> {
    let on = |device: &DeviceName| Buffer::from_bytes(device, dtype, bytes).map(|b| b.node());
    match &device.each()[..] {
        [one] => on(one),
        each => Ok(UOp::shards(each.iter().map(on).collect::<Result<Src>>()?, device, None)),
    }
}

/// The node under reshapes and marks: it has the same elements.
fn base(u: &UOp) -> &UOp {
    let mut base = u;
    while base.op() == Op::Reshape || base.op().is(Group::Mark) || is_all(base) {
        base = base.operand();
    }
    base
}

/// Is a node all that is there of an axis, which lies as the node under it does?
pub(super) fn is_all(u: &UOp) -> bool {
    u.as_slice().is_some_and(|s| s.part.start.as_number() == Some(0) && u.shape() == s.x.shape())
}

/// The storage of a node that is a whole buffer under some shape; of one over several devices that
/// of each part.
pub(super) fn storages(u: &UOp) -> Option<SmallVec<[&StorageRef; 1]>> {
    let u = base(u);
    match u.op() {
        Op::Shards => u.src().iter().map(|part| base(part).arg().storage()).collect(),
        _ => Some(smallvec::smallvec![u.arg().storage()?]),
    }
}

/// Are the elements in memory as they are?
pub(super) fn is_stored(u: &UOp) -> bool {
    storages(u).is_some()
}

/// What takes the place of a node whose elements are known: the buffer, and beside it whatever
/// gradients need of the node.
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
        _ if u.requires_grad() => {
            UOp::new(Op::Computed, u.dtype(), [value, u.clone()].to_src(), Arg::None)
        }
        _ => value,
    }
}

/// Calls `f` on the storages that values of these nodes are read from. A graph that names a content
/// which is no longer there must not be computed: the answer would be silently wrong. One with the
/// argument of a function has no value yet.
fn read_by(nodes: &[UOp], mut f: impl FnMut(&StorageRef)) -> Result<()> {
    let mut wrong = None;
    walk_values(nodes, |u| match u.arg() {
        Arg::Storage(s) => {
            if s.is_stale() {
                wrong = Some(
                    "a tensor reads memory that has been overwritten since, by an assignment or \
                     by a run that failed half way",
                );
            }
            f(s);
        }
        Arg::Param { .. } => {
            wrong = Some(
                "an argument of callify or scan has no value while its function is written down; \
                 read what comes out of it",
            )
        }
        _ => {}
    });
    match wrong {
        Some(msg) => Err(Error::Device(msg.into())),
        None => Ok(()),
    }
}

/// A content of a memory.
fn content(s: &StorageRef) -> (u64, u64) {
    (s.storage.memory_id(), s.version)
}

/// The nodes under a node that have the same elements: itself, what is under reshapes and marks,
/// and what a rectifier tests. Under a reshape parts would not be cut where they are.
fn alike(node: &UOp, in_parts: bool) -> impl Iterator<Item = &UOp> {
    let is_mark = move |u: &UOp| u.op().is(Group::Mark) || (u.op() == Op::Reshape && !in_parts);
    std::iter::successors(
        Some(node),
        move |&u| if is_mark(u) { Some(u.operand()) } else { rectified(u) },
    )
    .filter(|u| !matches!(u.op(), Op::Const | Op::Var))
}

/// Values that this run computes and that a later plan may compare with its results, or decide by
/// once more: what is stored for that purpose, and what the gradients of results decide by.
/// Computed again they could be rounded differently. What is stored to be decided by is kept if any
/// live tensor reads it after this run: gradients that are realized one after the other take the
/// same side. What a gradient decides by is kept if anyone who gets a result of this run
/// holds it besides, be it as what the gradient of that result follows. So is the value of a live
/// parameter that has not been computed before: the next run needs it too.
fn retained(device: &DeviceName, tensors: &[&Tensor], nodes: &[UOp]) -> Vec<UOp> {
    let mut candidates: FxHashSet<UOp> = FxHashSet::default();
    walk_values(nodes, |u| match (u.op(), u.arg()) {
        (Op::Leaf, _) if base(u).view().is_none_or(|v| v.0.op() != Op::Const) => {
            candidates.extend([u.clone()])
        }
        (Op::Contiguous, Arg::None) if u.rounding() == Rounding::SameInPlan => {
            candidates.extend([u.clone()])
        }
        // A rectifier is what it is decided by.
        _ if u.requires_grad() && rectified(u).is_some_and(|y| y.to_materialize().is_some()) => {
            candidates.extend([u.clone()])
        }
        _ if u.requires_grad() => {
            candidates.extend(decides(u).iter().filter_map(UOp::to_materialize))
        }
        _ => {}
    });
    let keys: FxHashSet<&UOp> = nodes.iter().flat_map(|u| alike(u, device.is_several())).collect();
    candidates.retain(|u| !keys.contains(u) && !is_stored(u));
    if candidates.is_empty() || device.is_several() {
        return vec![];
    }
    // Most graphs have no candidate, and need not know where each node is.
    let mut on: FxHashMap<u64, DeviceName> = FxHashMap::default();
    walk_values(nodes, |u| {
        let here = match u.arg() {
            Arg::Storage(s) => Some(s.storage.device().clone()),
            Arg::Device(device) | Arg::Shards { devices: device, .. } => Some(device.clone()),
            _ => u.src().iter().find_map(|s| on.get(&s.id()).cloned()),
        };
        on.extend(here.map(|d| (u.id(), d)));
    });
    candidates.retain(|u| on.get(&u.id()).is_none_or(|d| d == device));
    if candidates.is_empty() {
        return vec![];
    }
    let wanted: FxHashSet<*const Inner> = tensors.iter().map(|t| Arc::as_ptr(&t.0)).collect();
    let is_other = |t: &Tensor| !wanted.contains(&Arc::as_ptr(&t.0));
    let others = holders::region(keys.iter().copied());
    let others = others.tensors.iter().filter(|(t, _)| is_other(t)).map(|(_, u)| u);
    // A result that gradients follow keeps its graph: for the realized tensors, and for others that
    // contain the same value, as one whose detached value was asked for.
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

/// The values that the gradient of a node decides by: the elements that an extreme is one of, the
/// sides of a maximum, the condition of a choice.
fn decides(u: &UOp) -> &[UOp] {
    let first = u.src().get(..1).unwrap_or_default();
    match (u.op(), u.arg()) {
        (Op::Reduce | Op::Scan, Arg::Reduce { fold: Fold::Max | Fold::Min, .. }) => first,
        (Op::Max | Op::Min, _) => u.src(),
        (Op::Where, _) => first,
        _ => &[],
    }
}

/// Requests for tensors, with memory to take over where no other tensor reads it, and what is made
/// of that memory.
fn requests(tensors: &[&Tensor], nodes: &[UOp]) -> Result<(Vec<Request>, Option<Region>)> {
    let wanted: FxHashSet<*const Inner> = tensors.iter().map(|t| Arc::as_ptr(&t.0)).collect();
    let homes: Vec<(u64, u64)> = tensors
        .iter()
        .flat_map(|t| lock(&t.0.home).iter().map(content).collect::<Vec<_>>())
        .collect();
    let mut read: FxHashSet<(u64, u64)> = FxHashSet::default();
    let readers = (!homes.is_empty()).then(|| holders::readers(homes.iter().copied()));
    if let Some(readers) = &readers {
        // A result that keeps what its gradient follows reads on after this run.
        let reads_on = |t: &Tensor, u: &UOp| {
            !wanted.contains(&Arc::as_ptr(&t.0)) || (u.requires_grad() && u.op() != Op::Leaf)
        };
        let roots = readers.tensors.iter().filter(|(t, u)| reads_on(t, u)).map(|(_, u)| u);
        readers.walk(roots, |_| false, |u| read.extend(u.arg().storage().map(content)));
    }
    // Parts of one memory are different inputs of a plan, which cannot see that they overlap.
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
                && exec::record::may_overwrite(s.storage.id())
                && !read.contains(&content(s))
                && alone(s)
        };
        let reuse = lock(&t.0.home)
            .iter()
            .map(|s| (free(s) && Buffer::of(s).is_writable()).then(|| s.clone()))
            .collect();
        Request { node: node.clone(), device: t.device().clone(), reuse }
    });
    Ok((of.collect(), readers))
}

/// Computes tensors together, so that what they share is computed once. Each keeps its result,
/// unless it was assigned to meanwhile. Returns what each has become.
pub(super) fn realize_all(tensors: &[&Tensor]) -> Result<Vec<UOp>> {
    let _running = lock(&RUNNING);
    realize_running(tensors)
}

/// The part of [`realize_all`] under [`RUNNING`].
fn realize_running(tensors: &[&Tensor]) -> Result<Vec<UOp>> {
    let mut devices: Vec<&DeviceName> = tensors.iter().map(|t| t.device()).collect();
    devices.sort();
    devices.dedup();
    // A value without data is one node wherever it is wanted, so each device has its own run.
    for device in devices {
        let here: Vec<&Tensor> = tensors.iter().copied().filter(|t| t.device() == device).collect();
        realize_on(device, &here)?;
    }
    // Between the run and here another thread may have assigned: then the value is computed, but
    // the tensor is no longer that value.
    Ok(tensors.iter().map(|t| t.raw()).collect())
}

/// The part of [`realize_all`] for one device.
fn realize_on(device: &DeviceName, tensors: &[&Tensor]) -> Result<()> {
    // Each node is read once: another thread may assign.
    let (todo, old): (Vec<&Tensor>, Vec<UOp>) =
        tensors.iter().map(|t| (*t, t.raw())).filter(|(_, u)| !is_stored(u)).unzip();
    if todo.is_empty() {
        return Ok(());
    }
    let (mut requests, readers) = requests(&todo, &old)?;
    let kept = retained(device, &todo, &old);
    requests.extend(kept.iter().map(|node| Request {
        node: node.clone(),
        device: device.clone(),
        reuse: vec![],
    }));
    let locked = Locked::new(&todo, &old, &mut requests, &kept, readers);
    let (buffers, plan) = exec::realize(&requests)?;
    let values = outputs(&requests, buffers, &plan)?;
    let now = locked.exchange(&todo, old.clone(), &values);
    // What a `Contiguous` stores and what a rectifier tests are the same value.
    let tested = |u: &UOp| u.as_contiguous().map(|c| c.x).or_else(|| rectified(u)).cloned();
    let mut computed: FxHashMap<UOp, &UOp> = FxHashMap::default();
    for (u, value) in kept.iter().zip(&values[old.len()..]) {
        computed.extend(tested(u).map(|u| (u, value)));
        computed.insert(u.clone(), value);
    }
    for ((old, layout), value) in old.iter().zip(&plan.layouts).zip(&values) {
        computed.extend(alike(old, layout.is_some()).map(|u| (u.clone(), value)));
    }
    // What stands for each computed node. Behind one that gradients follow, others stand too.
    let followed = computed.keys().any(|u| u.requires_grad() && u.op() != Op::Leaf);
    let before = followed.then(|| holders::region(computed.keys()));
    let mut map: FxHashMap<UOp, UOp> = match &before {
        Some(region) => {
            let stand_ins = region.rebuilt(computed.keys(), |u, new| {
                computed.get(u).map(|value| stand_in(&new, value))
            });
            computed.keys().map(|u| (u.clone(), stand_ins[&u.id()].clone())).collect()
        }
        None => computed.iter().map(|(u, value)| (u.clone(), stand_in(u, value))).collect(),
    };
    let mut done: FxHashSet<*const Inner> = FxHashSet::default();
    for (((t, old), now), value) in todo.iter().zip(&old).zip(&now).zip(&values) {
        // A literal is one node wherever it stands, and only here it is in memory.
        let new = map.get(old).cloned().unwrap_or_else(|| stand_in(old, value));
        // One that was assigned to meanwhile may contain what was computed, as any other.
        if t.exchange(now, new) {
            lock(&t.0.home).clear();
            done.insert(Arc::as_ptr(&t.0));
        }
    }
    // A graph that nobody holds any more need not be looked at.
    let region = before.unwrap_or_else(|| holders::region(computed.keys()));
    // Whoever else contains what was computed reads it from now on; on another device only what has
    // data, and so can be nowhere else.
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
        map.retain(|u, _| has_data(u));
        exchange(&elsewhere, &map);
    }
    Ok(())
}

/// The value of each request, over its buffers.
fn outputs(requests: &[Request], buffers: Vec<Option<Buffer>>, plan: &Plan) -> Result<Vec<UOp>> {
    let mut buffers = buffers.into_iter();
    let value = |(r, layout): (&Request, &Option<Layout>)| {
        let mut parts = Src::new();
        for (i, device) in r.device.each().iter().enumerate() {
            let b = match buffers.next().flatten() {
                Some(b) => b,
                None => Buffer::from_bytes(device, r.node.dtype(), &[])?,
            };
            if r.reuse.get(i).is_some_and(|s| {
                s.as_ref().is_some_and(|s| s.storage.id() == crate::ir::Storage::id(&b))
            }) {
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
    /// Computes the tensor now and keeps the result. Returns another handle on it.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = (Tensor::arange(0, 3, 1) + 1).realize()?;
    /// assert_eq!(format!("{x:?}"), "<Tensor i32 [3] on CPU: Buffer>");
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn realize(&self) -> Result<Tensor> {
        realize_all(&[self])?;
        Ok(self.clone())
    }

    /// Exchanges the node if it is still the one that is expected.
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

    /// Computes several tensors together: what they share is computed once, and kernels with the
    /// same loops are joined.
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

    /// What [`realize`](Tensor::realize) would run, in order, with memory but not run: each item
    /// can be printed, looked into, lowered and run by hand. The tensor stays as it is.
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
        // No memory is taken over: running the items must not change any tensor.
        let nodes: Vec<UOp> = tensors.iter().map(|t| t.raw()).collect();
        read_by(&nodes, |_| {})?;
        let request = |(t, node): (&&Tensor, UOp)| Request {
            node,
            device: t.device().clone(),
            reuse: vec![],
        };
        let requests: Vec<Request> = tensors.iter().zip(nodes).map(request).collect();
        Ok(exec::schedule(&requests)?.items)
    }

    /// The elements in row-major order. `T` is the Rust type of the dtype.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).to_vec::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let (has, asked) = (self.dtype(), T::DTYPE);
            let name = asked.name().to_uppercase();
            return wrong_dtype(
                "to_vec",
                format!("a tensor of {has} read as {asked}; cast it first: .cast(DType::{name})"),
            );
        }
        limits::elements(&self.to_bytes()?)
    }

    /// The bytes of the elements in row-major order, little endian.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u16, 258]).to_bytes()?, [1, 0, 2, 1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let what = || {
            format!(
                "the value of a tensor {} {:?} is read inside a captured function: it would be \
                 that of one call for all; return the tensor and read it after the call",
                self.dtype(),
                self.dims()
            )
        };
        if let Some(what) = exec::record::note_read(what) {
            return Err(Error::Jit(what));
        }
        loop {
            // Until the content is copied, so that no other realization and no replay writes it in
            // between.
            let running = lock(&RUNNING);
            let uop = realize_running(&[self])?.swap_remove(0);
            // An assignment on another thread can come between; then there is something new to
            // compute.
            let Some(storages) = storages(&uop) else { continue };
            let read =
                read_by(&[base(&uop).clone()], |_| {}).and_then(|()| match base(&uop).arg() {
                    Arg::Shards { axis: Some(axis), .. } => {
                        super::shard::read_shards(base(&uop), *axis, &storages)
                    }
                    _ => Buffer::of(storages[0])
                        .read()
                        .map(|bytes| super::variable::strip_padding(bytes, &uop)),
                });
            drop(running);
            return read;
        }
    }

    /// The elements, where looking at them costs little: they lie in the memory of the host, or are
    /// all one literal, and are not too many. Not inside a captured function, which is for other
    /// values too.
    pub(super) fn at_hand(&self) -> Option<Vec<f64>> {
        /// Reading so many takes less than a millisecond.
        const MOST: usize = 1 << 18;
        let uop = self.uop();
        let mut node = base(&uop);
        while node.op() == Op::Expand {
            node = base(node.operand());
        }
        if let Some(c) = node.as_const() {
            return Some(vec![c.as_f64(self.dtype()); self.numel().min(MOST)]);
        }
        let host = |name: &str| name == "INTERP" || name.split(':').next() == Some("CPU");
        let stored = is_stored(&uop)
            && uop.extents().is_empty()
            && !self.device().is_several()
            && host(self.device().as_str());
        if exec::record::is_on() || !stored || self.numel() > MOST || self.dtype().lanes != 1 {
            return None;
        }
        let (bytes, dtype) = (self.to_bytes().ok()?, self.dtype());
        if dtype == DType::F32 {
            return Some(
                bytes.as_chunks().0.iter().map(|raw| f32::from_le_bytes(*raw) as f64).collect(),
            );
        }
        let element = |raw: &[u8]| {
            let mut bits = [0; 8];
            bits[..raw.len()].copy_from_slice(raw);
            crate::dtype::Const::from_bits(u64::from_le_bytes(bits), dtype).as_f64(dtype)
        };
        Some(bytes.chunks_exact(dtype.itemsize()).map(element).collect())
    }

    /// Another name of [`to_bytes`](Self::to_bytes).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u8, 2]).data()?, [1, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn data(&self) -> Result<Vec<u8>> {
        self.to_bytes()
    }

    /// The elements of a matrix, as a list of its rows.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).to_rows::<i32>()?, [[1, 2], [3, 4]]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_rows<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let [rows, cols] = self.shape()[..] else {
            return wrong_shape(
                "to_rows",
                format!(
                    "takes a matrix, and was given {:?}; to_vec gives all elements",
                    self.dims()
                ),
            );
        };
        let all = self.to_vec::<T>()?;
        // A row of few elements takes more for its vector than for them.
        let row = size_of::<Vec<T>>() + limits::heap_bytes(cols * size_of::<T>());
        limits::check(rows.saturating_mul(row))?;
        let mut out = limits::vec(rows)?;
        for r in 0..rows {
            let mut copy = Vec::new();
            copy.try_reserve_exact(cols)
                .map_err(|_| limits::out_of_memory(rows.saturating_mul(row)))?;
            copy.extend_from_slice(&all[r * cols..(r + 1) * cols]);
            out.push(copy);
        }
        Ok(out)
    }

    /// Puts another tensor in the place of this one, for every handle on it. Unlike
    /// [`assign`](Self::assign) it converts nothing: shape, dtype and device must be the same.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1, 2]);
    /// x.replace(&Tensor::new([3, 4]))?;
    /// assert_eq!(x.to_vec::<i32>()?, [3, 4]);
    /// assert!(x.replace(&Tensor::new([3])).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn replace(&self, other: &Tensor) -> Result<()> {
        let extents = |t: &Tensor| t.uop().extents().to_vec();
        if (self.dims(), self.dtype(), extents(self))
            != (other.dims(), other.dtype(), extents(other))
        {
            let shown =
                |t: &Tensor| format!("{} {}", t.dtype(), super::variable::format_shape(&t.uop()));
            return wrong_shape(
                "replace",
                format!("{} by {}; assign converts", shown(self), shown(other)),
            );
        }
        if self.device() != other.device() {
            return Err(Error::Device(format!(
                "replace: a tensor on {} by one on {}",
                self.device(),
                other.device()
            )));
        }
        self.assign(other)
    }

    /// The one element of a tensor that has one.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[7]]).item::<i32>()?, 7);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            return wrong_shape(
                "item",
                format!(
                    "a tensor of shape {:?} has {} elements, not 1",
                    self.shape(),
                    self.numel()
                ),
            );
        }
        self.to_vec()?
            .first()
            .copied()
            .ok_or_else(|| Error::Device("item: the tensor changed while it was read".into()))
    }

    /// Puts the value of another tensor in the place of this one, for every handle on it. The value
    /// is broadcast and cast to this tensor.
    ///
    /// It is lazy like everything else: the value is computed when it is asked for, into the memory
    /// of the old one if nobody reads that any more. Tensors that were made from this one before
    /// keep the old value.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]);
    /// let before = &x * 10.0;
    /// x.assign(&x + 1.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(before.to_vec::<f32>()?, [10.0, 20.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn assign(&self, value: impl Into<Operand>) -> Result<()> {
        let value: Operand = value.into();
        let unified = unify("assign", &[Operand::from(self), value])?;
        if unified.device != self.device() {
            return Err(Error::Device(format!(
                "assign: a value on {} to a tensor on {}",
                unified.device,
                self.device()
            )));
        }
        let new = self.with_uop(unified.src[1].clone());
        let new = self
            .match_extents(super::broadcast::broadcast_to("assign", &new, &self.dims())?)
            .try_cast(self.dtype())?;
        let new = if self.device().is_several() && has_data(&self.raw()) {
            new.try_shard_like(self)?
        } else {
            new
        };
        let old = self.raw();
        // A view or an unfinished value has no memory of its own to write, and a value that is
        // stored already has its own.
        let stored = is_stored(&new.raw());
        if let Some(s) = storages(&old) {
            *lock(&self.0.home) = if stored { vec![] } else { s.into_iter().cloned().collect() };
        }
        let new = new.raw();
        exec::record::note_assigned(self.id());
        self.set_uop(match self.0.param {
            Some(number) => UOp::new(Op::Leaf, new.dtype(), [new].to_src(), Arg::Leaf(number)),
            None => new,
        });
        Ok(())
    }

    fallible! {
        /// The tensor on another device. What reads no storage is not copied: it will be computed
        /// there. A tensor over several devices is brought together.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 2]).to("interp") + 1;
        /// assert_eq!(x.to_vec::<i32>()?, [2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn to | try_to(&self, device: &str) -> Tensor {
            if device == self.device().as_str() {
                return Ok(self.copy());
            }
            // The name of several devices, as a tensor over them has it.
            if device.contains('+') {
                return self.try_shard(&device.split('+').collect::<Vec<_>>(), None);
            }
            let device = canonical(device)?;
            if device == *self.device() {
                return Ok(self.copy());
            }
            let uop = self.uop();
            let copied = if has_data(&uop) { uop.copied(&device) } else { uop };
            Ok(Tensor::from_uop(copied, device))
        }
    }

    /// Moves this tensor to another device, as [`to`](Self::to) does, for every handle on it. A
    /// parameter stays the parameter that it is and takes its gradient along; what an optimizer
    /// keeps for it stays where it is, so optimizers are made after. What was made from it before
    /// is where it was.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1, 2]);
    /// x.to_("interp")?;
    /// assert_eq!((x.device().as_str(), x.to_vec::<i32>()?), ("INTERP", vec![1, 2]));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_(&self, device: &str) -> Result<()> {
        self.move_(|t| t.try_to(device))
    }
    /// Converts this tensor to another dtype, for every handle on it. A parameter stays one, and
    /// its gradient is converted too.
    pub(crate) fn cast_in_place(&self, dtype: DType) -> Result<()> {
        self.move_(|t| t.try_cast(dtype))
    }
    /// Exchanges the value, and the gradient of a parameter, for what a function makes of it
    /// elsewhere.
    pub(super) fn move_(&self, to: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        let grad = self.grad().map(|g| to(&g)).transpose()?;
        let (moved, node) = match self.0.param {
            Some(number) => {
                let moved = to(&self.detach())?;
                let node =
                    UOp::new(Op::Leaf, moved.dtype(), [moved.raw()].to_src(), Arg::Leaf(number));
                (moved, node)
            }
            None => {
                let moved = to(self)?;
                let node = moved.raw();
                (moved, node)
            }
        };
        exec::record::note_assigned(self.id());
        *self.0.device.write().unwrap_or_else(|e| e.into_inner()) = moved.device();
        self.set_uop(node);
        lock(&self.0.home).clear();
        self.set_grad(grad);
        Ok(())
    }

    /// The tensor stored in row-major order when it is computed: a border that fusion does not
    /// cross.
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
        self.with_uop(UOp::new(Op::Contiguous, uop.dtype(), [uop.clone()].to_src(), Arg::None))
    }
}
