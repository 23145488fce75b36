//! Replay of a captured function: resolves the memory of the call, copies shared tensors that are
//! written in place, runs the plan, and updates the changed tensors.

use super::args::{JitArg, JitOut, Leaf, tensors_of};
use super::capture::{Captured, Outside, Signature, unbound_extents};
use super::described_for_all;
use super::observe::{add_values, given_values};
use crate::device::{Buffer, profile};
use crate::error::Result;
use crate::exec::{self, BufferType, Source, Template};
use crate::ir::{DeviceName, StorageRef, UOp};
use crate::schedule::{VariableValues, layout};
use crate::tensor::ops::random;
use crate::tensor::realize::{OVERWRITTEN, RUNNING, is_stored, lock, realize_all, storages};
use crate::tensor::{Tensor, holders};
use rustc_hash::FxHashMap;
use std::sync::{Arc, MutexGuard, RwLockWriteGuard};

/// Locks on the tensors that a replay writes in place. They are held from the decision that nothing
/// else reads the memory until the tensors have their new values. Otherwise another thread could
/// take a node in between, whose memory is then overwritten.
#[derive(Default)]
struct Locked<'a> {
    /// By [`Tensor::id`].
    guards: FxHashMap<usize, RwLockWriteGuard<'a, UOp>>,
    running: Option<MutexGuard<'a, ()>>,
    /// Tensors with a new node, and their old nodes. They are dropped after the locks are released,
    /// because a drop may run a user's destructors.
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
    /// Returns the node of a tensor, which may be locked.
    fn node(&self, t: &Tensor) -> UOp {
        self.guards.get(&t.id()).map_or_else(|| t.raw(), |guard| (**guard).clone())
    }
    /// Replaces the node of a tensor.
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
        span.note("steps", || self.plan.replay.len().into());
        let mut leaves = Vec::with_capacity(self.signature.len());
        args.visit(&mut |leaf| leaves.push(leaf));
        self.check(&leaves)?;
        let of_arguments = given_values(&leaves)?;
        let outside: Vec<Tensor> = self.outside.iter().map(|o| o.tensor.clone()).collect();
        let mut locked = self.lock_stored(&tensors_of(&leaves), &outside)?;
        let given = self.given_memory(&leaves, &mut locked)?;
        let values = self.values_now(of_arguments, &locked)?;
        self.plan.write_inputs(&values, random::next_words)?;
        // All memory is allocated before anything is written.
        let mut replay = self.plan.replay.bind(&given)?;
        let ran = replay.run(&values);
        // The old content is lost even if the replay failed.
        for (source, buffer) in self.plan.sources.iter().zip(&given) {
            if matches!(source, Source::Outside { written: true, .. }) {
                buffer.overwritten();
            }
        }
        ran?;
        for (t, template) in &self.changed {
            locked.set(t, template.filled(replay.slots(), &values)?);
            lock(&t.0.reusable_storage).clear();
        }
        let filled = |(template, device): &(Template, &'static DeviceName)| {
            Ok(Tensor::new_inner(template.filled(replay.slots(), &values)?, device, None))
        };
        let mut results = self.results.iter().map(filled).collect::<Result<Vec<_>>>()?.into_iter();
        drop(locked);
        Ok(self.shape.renewed(&mut || results.next().expect("a tensor for each result")))
    }

    /// Realizes the arguments and the tensors from outside, and locks those that are written.
    fn lock_stored<'a>(&self, arguments: &[&Tensor], outside: &'a [Tensor]) -> Result<Locked<'a>> {
        let all = || arguments.iter().copied().chain(outside);
        loop {
            let lazy: Vec<&Tensor> = all().filter(|t| !is_stored(&t.raw())).collect();
            if !lazy.is_empty() {
                realize_all(&lazy)?;
                continue;
            }
            let mut locked = Locked::default();
            locked.running = Some(lock(&RUNNING));
            for source in &self.plan.sources {
                if let Source::Outside { tensor, written: true, .. } = source {
                    let t = &outside[*tensor];
                    let guard = || t.0.uop.write().unwrap_or_else(|e| e.into_inner());
                    locked.guards.entry(t.id()).or_insert_with(guard);
                }
            }
            // Another thread may have assigned in between.
            if all().all(|t| is_stored(&locked.node(t))) {
                return Ok(locked);
            }
        }
    }

    /// Returns the memory of the given slots. A tensor that is written in place gets memory of its
    /// own.
    fn given_memory(&mut self, leaves: &[Leaf], locked: &mut Locked<'_>) -> Result<Vec<Buffer>> {
        let memory = |source: &Source| match source {
            Source::Argument { leaf, part } => match &leaves[*leaf] {
                Leaf::Tensor(t) => memory_of(&locked.node(t), *part),
                Leaf::Host(_) | Leaf::Length(_) | Leaf::Variable(_) => {
                    unreachable!("the arguments were checked")
                }
            },
            Source::Outside { tensor, part, .. } => self.outside[*tensor].memory(locked, *part),
        };
        let mut given = self.plan.sources.iter().map(memory).collect::<Result<Vec<Buffer>>>()?;
        self.check_parts(&given)?;
        for i in 0..self.plan.sources.len() {
            if let Source::Outside { tensor, part, written: true } = self.plan.sources[i] {
                self.own(i, tensor, part, &mut given, locked)?;
            }
        }
        Ok(given)
    }

    /// Checks that the arguments match the captured ones.
    fn check(&self, leaves: &[Leaf]) -> Result<()> {
        let mut i = 0;
        for (leaf, s) in leaves.iter().zip(&self.signature) {
            match (leaf, s) {
                (Leaf::Tensor(t), s @ Signature::Tensor { .. }) => check_tensor(i, t, s)?,
                (Leaf::Host(now), Signature::Host(then)) if now == then => {}
                (Leaf::Host(now), Signature::Host(then)) => {
                    return refuse!(
                        Jit,
                        "argument {i} was {then} when the function was captured and is {now} now; \
                         make it a tensor, or use a separate Jit for each value"
                    );
                }
                (Leaf::Variable(bound), Signature::Variable(then)) if bound.unbound() == *then => {}
                (Leaf::Variable(bound), Signature::Variable(then)) => {
                    let (now, then) = (bound.unbound().text(), then.text());
                    return refuse!(
                        Jit,
                        "argument {i} is {now}, but the function was captured with {then}; use a \
                         Jit for each"
                    );
                }
                (Leaf::Length(now), Signature::Length(then)) if now == then => continue,
                (Leaf::Length(now), Signature::Length(then)) => {
                    return refuse!(
                        Jit,
                        "the list at argument {i} has length {now}, but had {then} when the \
                         function was captured; use a Jit for each length"
                    );
                }
                _ => {
                    return refuse!(
                        Jit,
                        "argument {i} has another kind (tensor, variable, number or list) than \
                         when the function was captured"
                    );
                }
            }
            i += 1;
        }
        if leaves.len() != self.signature.len() {
            return refuse!(
                Jit,
                "the number of arguments differs from that of the captured call; use a \
                 separate Jit for each number"
            );
        }
        Ok(())
    }

    /// Checks that the memory of each argument has the captured device, dtype and length. The
    /// tensor was checked before, but a lazy one has been computed since, and may have moved.
    fn check_parts(&self, given: &[Buffer]) -> Result<()> {
        for (source, buffer) in self.plan.sources.iter().zip(given) {
            if let Source::Argument { leaf, part } = source
                && let Signature::Tensor { parts, .. } = &self.signature[*leaf]
                && parts.get(*part) != Some(&BufferType::of(buffer))
            {
                return refuse!(
                    Jit,
                    "the memory of an argument, {buffer:?}, differs in device, dtype or length \
                     from the captured call; use a separate Jit for each"
                );
            }
        }
        Ok(())
    }

    /// Returns the values of variables: those of the arguments, and for other variables the
    /// captured ones. A tensor from outside with another value is an error.
    fn values_now(
        &self,
        mut values: VariableValues,
        locked: &Locked<'_>,
    ) -> Result<VariableValues> {
        values.complete(&self.plan.values);
        self.outside.iter().try_for_each(|o| add_values(&mut values, &locked.node(&o.tensor)))?;
        Ok(values)
    }

    /// Copies the memory of a tensor that is written in place, if anything else reads it.
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
        let alone = node.has_no_other_user(2)
            && Arc::strong_count(&storage.storage) == 1
            && given[i].is_unshared(2)
            && given[i].is_writable();
        if alone && !shared {
            return Ok(());
        }
        let old = &given[i];
        let new = Buffer::new(old.device_name(), old.dtype(), old.size())?;
        exec::copy_buffer(&new, old)?;
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        map.insert(old.node(), new.node());
        locked.set(t, node.substitute(&map));
        given[i] = new;
        self.copies += 1;
        Ok(())
    }
}

impl Outside {
    /// Current memory of a shard.
    fn memory(&self, locked: &Locked<'_>, part: usize) -> Result<Buffer> {
        let (node, on) = (locked.node(&self.tensor), self.tensor.device());
        let buffer = memory_of(&node, part)?;
        let axis = if on.is_multi_device() { layout(&node, on).and_then(|l| l.axis) } else { None };
        if axis != self.axis || self.parts[part] != BufferType::of(&buffer) {
            let BufferType { device, dtype, len } = &self.parts[part];
            return refuse!(
                Jit,
                "a tensor that the function uses is {} {:?} on {on} now, but shard {part} was \
                 {dtype} × {len} on {device} when it was captured; call reset() to capture again",
                node.dtype(),
                node.shape()
            );
        }
        Ok(buffer)
    }
}

/// Checks that a tensor argument has the captured shape, dtype, device and sharding.
fn check_tensor(i: usize, t: &Tensor, signature: &Signature) -> Result<()> {
    let Signature::Tensor { shape, dtype, device, axis, extents, shown, .. } = signature else {
        unreachable!("the signature of a tensor")
    };
    let alike = t.dtype() == *dtype && t.device() == *device && t.dims()[..] == shape[..];
    if alike && t.shard_axis() == *axis && unbound_extents(t) == *extents {
        return Ok(());
    }
    let along = |axis: Option<usize>| axis.map_or(String::new(), |a| format!(" along axis {a}"));
    let (now, of_now, of_then) = (described_for_all(t), along(t.shard_axis()), along(*axis));
    refuse!(
        Jit,
        "argument {i} is {now}{of_now}, but the function was captured with {shown}{of_then}; use \
         a separate Jit for each"
    )
}

/// Returns the storage of a shard.
fn nth(node: &UOp, part: usize) -> Result<&StorageRef> {
    let Some(parts) = storages(node) else {
        return refuse!(Jit, "a tensor was assigned to while a replay was about to read it");
    };
    match parts.get(part) {
        Some(storage) => Ok(storage),
        None => refuse!(
            Jit,
            "a tensor is not on the devices that it was captured on; call reset() to capture again"
        ),
    }
}

/// Current memory of a shard of a stored node.
fn memory_of(node: &UOp, part: usize) -> Result<Buffer> {
    let storage = nth(node, part)?;
    if storage.is_stale() { refuse!(Device, "{OVERWRITTEN}") } else { Ok(Buffer::of(storage)) }
}
