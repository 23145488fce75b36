//! A replay: finds the memory of this call, copies shared tensors that are written in place, runs
//! the plan, and sets the new values of tensors.

use super::args::{JitArg, JitOut, Leaf};
use super::capture::{Captured, Outside, Signature, Source, Template, unbound_extents};
use super::described_for_all;
use super::observe::{add_values, given_values};
use crate::device::{Buffer, profile};
use crate::error::{Error, Result};
use crate::exec;
use crate::ir::{DeviceName, StorageRef, UOp};
use crate::schedule::{Values, layout};
use crate::tensor::ops::random;
use crate::tensor::realize::{RUNNING, is_stored, lock, realize_all, storages};
use crate::tensor::{Tensor, holders};
use rustc_hash::FxHashMap;
use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

/// The tensors that a replay writes in place, locked from where it is decided that nobody else
/// reads their memory until they have their new values. Another thread that took the node of one in
/// between would be left with memory that is overwritten, and where it assigns what it made of
/// that, so would be every later reader of the tensor.
#[derive(Default)]
struct Locked<'a> {
    /// By [`Tensor::id`].
    guards: FxHashMap<usize, RwLockWriteGuard<'a, UOp>>,
    running: Option<MutexGuard<'a, ()>>,
    /// Tensors with another node than before, and that node. It goes after the locks: it may hold
    /// what the user's code drops.
    exchanged: Vec<(Tensor, UOp)>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.guards.clear();
        self.exchanged.iter().for_each(|(t, _)| holders::note(t, false));
        self.running = None;
    }
}

impl Locked<'_> {
    /// The node of a tensor, which may be one of those that are locked.
    fn node(&self, t: &Tensor) -> UOp {
        self.guards.get(&t.id()).map_or_else(|| t.raw(), |guard| (**guard).clone())
    }
    /// Exchanges the node of a tensor.
    fn set(&mut self, t: &Tensor, node: UOp) {
        match self.guards.get_mut(&t.id()) {
            Some(guard) => self.exchanged.push((t.clone(), std::mem::replace(&mut **guard, node))),
            None => t.set_uop(node),
        }
    }
}

impl<R: JitOut> Captured<R> {
    /// Replays the capture with these arguments.
    pub(super) fn replay(&mut self, args: &impl JitArg) -> Result<R> {
        let mut span = profile::span(|| "replay".into());
        span.note("steps", || self.plan.len().into());
        let mut leaves = Vec::with_capacity(self.signature.len());
        args.visit(&mut |leaf| leaves.push(leaf));
        self.check(&leaves)?;
        let tensors: Vec<&Tensor> = leaves
            .iter()
            .filter_map(|l| if let Leaf::Tensor(t) = l { Some(t) } else { None })
            .collect();
        let outside: Vec<Tensor> = self.outside.iter().map(|o| o.tensor.clone()).collect();
        let of_arguments = given_values(&leaves)?;
        let mut locked = Locked::default();
        loop {
            let lazy: Vec<&Tensor> =
                tensors.iter().copied().chain(&outside).filter(|t| !is_stored(&t.raw())).collect();
            if !lazy.is_empty() {
                realize_all(&lazy)?;
                continue;
            }
            locked.running = Some(lock(&RUNNING));
            for source in &self.sources {
                if let Source::Outside { tensor, written: true, .. } = source {
                    let t = &outside[*tensor];
                    locked
                        .guards
                        .entry(t.id())
                        .or_insert_with(|| t.0.uop.write().unwrap_or_else(|e| e.into_inner()));
                }
            }
            // Another thread may have assigned in between.
            if tensors.iter().copied().chain(&outside).all(|t| is_stored(&locked.node(t))) {
                break;
            }
            locked = Locked::default();
        }
        let mut given: Vec<Buffer> = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            given.push(match source {
                Source::Argument { leaf, part } => match &leaves[*leaf] {
                    Leaf::Tensor(t) => memory_of(&locked.node(t), *part)?,
                    Leaf::Host(_) | Leaf::Length(_) | Leaf::Variable(_) => {
                        unreachable!("the arguments were checked")
                    }
                },
                Source::Outside { tensor, part, .. } => {
                    self.outside[*tensor].memory(&locked, *part)?
                }
            });
        }
        self.check_parts(&given)?;
        for i in 0..self.sources.len() {
            if let Source::Outside { tensor, part, written: true } = self.sources[i] {
                self.own(i, tensor, part, &mut given, &mut locked)?;
            }
        }
        let values = self.values_now(of_arguments, &locked)?;
        for (buffer, names) in &self.variables {
            let numbers: Vec<i32> = names
                .iter()
                .map(|n| {
                    values.get(n).expect("every variable that was captured has a value") as i32
                })
                .collect();
            buffer.write(crate::dtype::as_bytes(&numbers))?;
        }
        for (buffers, numbers) in &self.draws {
            let words = random::next_words(*numbers);
            buffers.iter().try_for_each(|b| b.write(crate::dtype::as_bytes(&words)))?;
        }
        let written = self
            .sources
            .iter()
            .zip(&given)
            .filter(|(s, _)| matches!(s, Source::Outside { written: true, .. }))
            .map(|(_, b)| b);
        // All memory is allocated before anything is written.
        let buffers = self.plan.memory_for(&given)?;
        let ran = self.plan.replay(&buffers, &values);
        // The old content is lost even if the replay failed.
        written.for_each(Buffer::overwritten);
        ran?;
        for (t, template) in &self.changed {
            locked.set(t, template.filled(&buffers, &values)?);
            lock(&t.0.home).clear();
        }
        let filled = |(template, device): &(Template, &'static DeviceName)| {
            Ok(Tensor::new_inner(template.filled(&buffers, &values)?, device, None))
        };
        let mut results = self.results.iter().map(filled).collect::<Result<Vec<_>>>()?.into_iter();
        drop(locked);
        Ok(self.shape.renewed(&mut || results.next().expect("a tensor for each result")))
    }

    fn check(&self, leaves: &[Leaf]) -> Result<()> {
        let mut i = 0;
        for (leaf, s) in leaves.iter().zip(&self.signature) {
            match (leaf, s) {
                (
                    Leaf::Tensor(t),
                    Signature::Tensor { shape, dtype, device, axis, extents, shown, .. },
                ) => {
                    let alike =
                        t.dtype() == *dtype && t.device() == *device && t.dims()[..] == shape[..];
                    if !alike || t.shard_axis() != *axis || unbound_extents(t) != *extents {
                        let along = |axis: Option<usize>| {
                            axis.map_or(String::new(), |a| format!(" along axis {a}"))
                        };
                        return Err(Error::Jit(format!(
                            "argument {i} is {}{}, and the function was captured with {shown}{}; \
                             have a Jit for each",
                            described_for_all(t),
                            along(t.shard_axis()),
                            along(*axis)
                        )));
                    }
                }
                (Leaf::Host(now), Signature::Host(then)) if now == then => {}
                (Leaf::Host(now), Signature::Host(then)) => {
                    return Err(Error::Jit(format!(
                        "argument {i} was {then} when the function was captured and is {now} now; \
                         make it a tensor, or have a Jit for each value"
                    )));
                }
                (Leaf::Variable(bound), Signature::Variable(then)) if bound.unbound() == *then => {}
                (Leaf::Variable(bound), Signature::Variable(then)) => {
                    let (now, then) = (bound.unbound().text(), then.text());
                    return Err(Error::Jit(format!(
                        "argument {i} is {now}, and the function was captured with {then}; have a \
                         Jit for each"
                    )));
                }
                (Leaf::Length(now), Signature::Length(then)) if now == then => continue,
                (Leaf::Length(now), Signature::Length(then)) => {
                    let msg = format!(
                        "a list of {now}, from argument {i} on, was one of {then} when the \
                         function was captured; have a Jit for each"
                    );
                    return Err(Error::Jit(msg));
                }
                _ => {
                    return Err(Error::Jit(format!(
                        "argument {i} is of another kind (tensor, variable, number or list) than \
                         when the function was captured"
                    )));
                }
            }
            i += 1;
        }
        if leaves.len() != self.signature.len() {
            return Err(Error::Jit(
                "there are more or fewer arguments than the function was captured with; have a \
                 Jit for each number of them"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Checks that the memory of each argument is as it was when the function was captured: its
    /// device, its dtype and its length. The tensor was checked before, but what was lazy then is
    /// computed since, and may have been moved meanwhile.
    fn check_parts(&self, given: &[Buffer]) -> Result<()> {
        for (source, buffer) in self.sources.iter().zip(given) {
            if let Source::Argument { leaf, part } = source
                && let Signature::Tensor { parts, .. } = &self.signature[*leaf]
                && parts.get(*part).is_none_or(|(device, dtype, len)| {
                    (device, *dtype, *len) != (buffer.device_name(), buffer.dtype(), buffer.size())
                })
            {
                let msg = format!(
                    "the memory of an argument, {buffer:?}, differs in device, dtype or length \
                     from when the function was captured"
                );
                return Err(Error::Jit(format!("{msg}; have a Jit for each")));
            }
        }
        Ok(())
    }

    /// The values of variables: those of arguments, and of others those that they had when it was
    /// captured. A tensor around the function with another is an error.
    fn values_now(&self, mut values: Values, locked: &Locked<'_>) -> Result<Values> {
        values.complete(&self.values);
        self.outside.iter().try_for_each(|o| add_values(&mut values, &locked.node(&o.tensor)))?;
        Ok(values)
    }

    /// Gives a tensor that is written in place memory of its own: if something else reads the
    /// memory, the tensor gets a copy.
    fn own(
        &mut self,
        i: usize,
        tensor: usize,
        part: usize,
        given: &mut [Buffer],
        locked: &mut Locked<'_>,
    ) -> Result<()> {
        let block = given[i].span().0;
        let shared = given.iter().enumerate().any(|(j, b)| j != i && b.span().0 == block);
        let t = &self.outside[tensor].tensor;
        let node = locked.node(t);
        let storage = nth(&node, part)?;
        // Handles on the node: the tensor's and this one. On the buffer: the storage's and the
        // list's.
        let alone = node.is_held_alone(2)
            && Arc::strong_count(&storage.storage) == 1
            && given[i].is_alone(2)
            && given[i].is_writable();
        if alone && !shared {
            return Ok(());
        }
        let old = &given[i];
        let new = Buffer::new(old.device_name(), old.dtype(), old.size())?;
        exec::copy_buffer(&new, old)?;
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        map.insert(old.node(), new.node());
        let with_own = node.substitute(&map);
        locked.set(t, with_own);
        given[i] = new;
        self.copies += 1;
        Ok(())
    }
}

impl Outside {
    /// The current memory of a shard.
    fn memory(&self, locked: &Locked<'_>, part: usize) -> Result<Buffer> {
        let (node, on) = (locked.node(&self.tensor), self.tensor.device());
        let buffer = memory_of(&node, part)?;
        let (device, dtype, len) = &self.parts[part];
        let axis = if on.is_several() { layout(&node, on).and_then(|l| l.axis) } else { None };
        if axis != self.axis
            || (buffer.device_name(), buffer.dtype(), buffer.size()) != (device, *dtype, *len)
        {
            return Err(Error::Jit(format!(
                "a tensor that the function uses is {} {:?} on {on} now, and one part of it was \
                 {dtype} × {len} on {device} when it was captured; call reset() to capture again",
                node.dtype(),
                node.shape()
            )));
        }
        Ok(buffer)
    }
}

/// The storage of a shard.
fn nth(node: &UOp, part: usize) -> Result<&StorageRef> {
    let parts = storages(node).ok_or_else(|| {
        Error::Jit("a tensor was assigned to while a replay was about to read it".into())
    })?;
    parts.get(part).copied().ok_or_else(|| {
        Error::Jit(
            "a tensor is not over the devices that it was captured on; call reset() to capture \
             again"
                .into(),
        )
    })
}

fn memory_of(node: &UOp, part: usize) -> Result<Buffer> {
    let storage = nth(node, part)?;
    if storage.is_stale() {
        let msg = "a tensor reads memory that has been overwritten since, by an assignment or by \
                   a run that failed half way";
        return Err(Error::Device(msg.into()));
    }
    Ok(Buffer::of(storage))
}
