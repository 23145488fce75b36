//! Capture of an observed call as a replay plan: every buffer becomes a slot, and each slot gets an
//! origin for its memory at a replay.

use super::args::{JitOut, Leaf};
use super::observe::{Observed, Owners};
use super::{JitStats, described_for_all};
use crate::device::{Buffer, Memory};
use crate::dtype::DType;
use crate::env;
use crate::error::Result;
use crate::exec::capture::Run;
use crate::exec::{BoundCommand, Capture, ReplayPlan, Slot, copy_buffer};
use crate::ir::{DeviceName, ToSrc, UOp, map_symints, walk_values};
use crate::schedule::{Command, Role, SlotRef, Values};
use crate::shape::SymInt;
use crate::tensor::realize::storages;
use crate::tensor::{Inner, Tensor};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

/// Captured function.
pub(super) struct Captured<R> {
    pub plan: ReplayPlan,
    /// Expected arguments.
    pub signature: Vec<Signature>,
    /// Origin of the given slots, in their order.
    pub sources: Vec<Source>,
    /// Used tensors from outside the function.
    pub outside: Vec<Outside>,
    /// Memory for the values of variables, with their names in order.
    pub variables: Vec<(Buffer, Vec<Arc<str>>)>,
    /// Values at the capture, for variables that are not arguments.
    pub values: Values,
    /// Memory of each RNG draw, and its number of elements.
    pub draws: Vec<(Vec<Buffer>, u64)>,
    /// Tensors that a replay changes.
    pub changed: Vec<(Tensor, Template)>,
    pub results: Vec<(Template, &'static DeviceName)>,
    /// Tensors from outside that are captured as literals.
    pub literal: Vec<(Weak<Inner>, UOp)>,
    /// Result with placeholder tensors.
    pub shape: R,
    pub copies: u64,
}

/// Tensor from outside the function.
pub(super) struct Outside {
    pub tensor: Tensor,
    /// Axis of its shards.
    pub axis: Option<usize>,
    /// Device, dtype and elements of each shard.
    pub parts: Vec<(DeviceName, DType, usize)>,
}

pub(super) enum Signature {
    /// Tensor: the shards have a device, a dtype and a number of elements.
    Tensor {
        shape: Vec<usize>,
        dtype: DType,
        device: &'static DeviceName,
        axis: Option<usize>,
        parts: Vec<(DeviceName, DType, usize)>,
        /// Symbolic sizes of the axes, unbound.
        extents: Vec<Option<SymInt>>,
        shown: String,
    },
    /// Expression of variables, unbound.
    Variable(SymInt),
    Length(usize),
    Host(String),
}

/// Origin of the memory of a given slot.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Argument { leaf: usize, part: usize },
    Outside { tensor: usize, part: usize, written: bool },
}

/// Node with holes for memory.
pub(super) struct Template {
    node: UOp,
    parts: Vec<Hole>,
}

/// Hole for memory in a node.
struct Hole {
    node: UOp,
    at: SlotRef,
    /// True for memory that the plan keeps.
    copied: bool,
}

impl Template {
    /// Fills in the memory of the slots.
    pub(super) fn filled(&self, buffers: &[Buffer], values: &Values) -> Result<UOp> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for hole in &self.parts {
            let whole = &buffers[hole.at.slot];
            let SlotRef { offset, dtype, len, .. } = hole.at;
            let same = offset == 0 && (whole.dtype(), whole.size()) == (dtype, len);
            let buffer = if same { whole.clone() } else { whole.bytes_from(offset, dtype, len) };
            let buffer = if hole.copied { copied(&buffer)? } else { buffer };
            map.insert(hole.node.clone(), buffer.node());
        }
        let node = self.node.substitute(&map);
        let now = |b: &SymInt| b.rebound(&|name| values.get(name));
        Ok(if node.extents().is_empty() { node } else { map_symints(&[node], &now).remove(0) })
    }
}

/// Copies a buffer. Files are read-only and are not copied.
fn copied(buffer: &Buffer) -> Result<Buffer> {
    if matches!(buffer.place().memory, Memory::Disk(_)) {
        return Ok(buffer.clone());
    }
    let copy = Buffer::new(buffer.device_name(), buffer.dtype(), buffer.size())?;
    copy_buffer(&copy, buffer)?;
    Ok(copy)
}

/// Slots of a capture.
struct Slots {
    slots: Vec<Slot>,
    /// Slot and offset of each storage.
    by_id: FxHashMap<u64, (usize, usize)>,
    sources: Vec<Source>,
    outside: Vec<Outside>,
    /// Tensors from outside, by storage.
    before: Owners,
    /// Numbers of the tensors from outside.
    numbers: FxHashMap<*const Inner, usize>,
}

impl Slots {
    fn add(&mut self, slot: Slot) -> usize {
        self.slots.push(slot);
        self.slots.len() - 1
    }
    /// Slot and offset of a storage. An unknown storage holds host data of the function and is
    /// copied.
    fn of(
        &mut self,
        id: u64,
        size: (&DeviceName, DType, usize),
        own: Option<&Buffer>,
    ) -> Result<(usize, usize)> {
        if let Some(at) = self.by_id.get(&id) {
            return Ok(*at);
        }
        let tensor = self.before.get(&id).and_then(|(weak, part)| Some((weak.upgrade()?, *part)));
        let slot = match (tensor, own) {
            (Some((inner, part)), _) => {
                let key = Arc::as_ptr(&inner);
                let next = self.outside.len();
                let number = *self.numbers.entry(key).or_insert(next);
                if number == next {
                    let tensor = Tensor(inner);
                    self.outside.push(Outside {
                        axis: tensor.shard_axis(),
                        tensor,
                        parts: Vec::new(),
                    });
                }
                let parts = &mut self.outside[number].parts;
                let one = (size.0.clone(), size.1, size.2);
                while parts.len() <= part {
                    parts.push(one.clone());
                }
                parts[part] = one;
                self.sources.push(Source::Outside { tensor: number, part, written: false });
                self.add(Slot::Given)
            }
            (None, Some(own)) => self.add(Slot::Own(copied(own)?)),
            (None, None) => {
                return refuse!(
                    Jit,
                    "the function uses a tensor from before that was dropped while it ran; \
                           keep it, or make it an argument"
                );
            }
        };
        self.by_id.insert(id, (slot, 0));
        Ok((slot, 0))
    }

    /// Slot and offset of each slot of a run's plan; `None` for a slot that no command names.
    fn of_run(&mut self, run: &Run) -> Result<Vec<Option<(usize, usize)>>> {
        let mut places = Vec::with_capacity(run.plan.buffers.len());
        for info in &run.plan.buffers {
            if info.dtype == DType::VOID {
                places.push(None);
                continue;
            }
            places.push(Some(match info.role {
                Role::Input(i) => {
                    let input = &run.inputs[i];
                    self.of(input.id, (&input.device, input.dtype, input.len), input.own.as_ref())?
                }
                // An output is an intermediate unless a result or a changed tensor holds it.
                Role::Output | Role::Temporary { .. } | Role::Values => {
                    let (device, bytes) = (info.device.clone(), info.len * info.dtype.itemsize());
                    (self.add(Slot::Temporary { device, bytes }), 0)
                }
            }));
        }
        for (id, output) in run.outputs.iter().zip(&run.plan.outputs) {
            let (Some(id), Some(output)) = (id, output) else { continue };
            let Some((slot, offset)) = places[output.buffer] else { continue };
            let start = output.part.as_ref().map_or(0, |part| part.start);
            let skipped = start * run.plan.buffers[output.buffer].dtype.itemsize();
            self.by_id.insert(*id, (slot, offset + skipped));
        }
        Ok(places)
    }

    /// Marks the tensors from outside that commands write.
    fn mark_written(&mut self, commands: &[BoundCommand]) {
        let written: FxHashSet<usize> = commands.iter().flat_map(Command::written_slots).collect();
        let given = (0..self.slots.len()).filter(|i| matches!(self.slots[*i], Slot::Given));
        for (source, slot) in self.sources.iter_mut().zip(given) {
            if let Source::Outside { written: is_written, .. } = source {
                *is_written |= written.contains(&slot);
            }
        }
    }

    /// Value of a tensor with holes in place of its memory. Intermediates in it become results.
    fn template(&mut self, value: &UOp) -> Result<Template> {
        let mut found: Vec<(UOp, u64, Buffer)> = Vec::new();
        walk_values(std::slice::from_ref(value), |u| {
            if let Some(s) = u.arg().storage() {
                found.push((u.clone(), s.storage.id(), Buffer::of(s)));
            }
        });
        let (mut map, mut parts) = (FxHashMap::default(), Vec::new());
        for (i, (node, id, buffer)) in found.into_iter().enumerate() {
            let (slot, offset) =
                self.of(id, (buffer.device_name(), buffer.dtype(), buffer.size()), Some(&buffer))?;
            if let Slot::Temporary { device, bytes } = &self.slots[slot] {
                let whole = offset == 0 && *bytes == buffer.bytes();
                let (dtype, len) =
                    if whole { (buffer.dtype(), buffer.size()) } else { (DType::U8, *bytes) };
                self.slots[slot] = Slot::Fresh { device: device.clone(), dtype, len };
            }
            let hole = UOp::param(i, buffer.size(), node.dtype(), buffer.device_name());
            map.insert(node, hole.clone());
            let copied = matches!(self.slots[slot], Slot::Own(_));
            let at = SlotRef { slot, offset, dtype: buffer.dtype(), len: buffer.size() };
            parts.push(Hole { node: hole, at, copied });
        }
        Ok(Template { node: value.substitute(&map), parts })
    }
}

/// Symbolic sizes of the axes of a tensor, unbound.
pub(super) fn unbound_extents(t: &Tensor) -> Vec<Option<SymInt>> {
    t.raw().extents().iter().map(|e| e.as_ref().map(SymInt::unbound)).collect()
}

/// Value of a tensor without its graph; a parameter remains a parameter.
fn without_history(node: &UOp) -> UOp {
    match node.as_leaf() {
        Some(leaf) => node.with_src([leaf.x.unmarked().clone()].to_src()),
        None => node.unmarked().clone(),
    }
}

/// Memory that a replay fills before it runs.
#[derive(Default)]
struct Filled {
    /// Values of variables: memory and names.
    variables: Vec<(Buffer, Vec<Arc<str>>)>,
    of_variables: FxHashMap<(DeviceName, Vec<Arc<str>>), usize>,
    /// Seed and counter of each RNG draw, one buffer per device, and its number of elements.
    draws: Vec<(Vec<Buffer>, u64)>,
}

/// Adds slots for the arguments; returns their signature.
fn arguments(given: Vec<Leaf>, slots: &mut Slots) -> Vec<Signature> {
    let mut signature = Vec::new();
    for (leaf, g) in given.into_iter().enumerate() {
        signature.push(match g {
            Leaf::Host(value) => Signature::Host(value),
            Leaf::Variable(bound) => Signature::Variable(bound.unbound()),
            Leaf::Length(n) => Signature::Length(n),
            Leaf::Tensor(own) => {
                let node = own.raw();
                let all = storages(&node).unwrap_or_default();
                let part = |s: &&crate::ir::StorageRef| {
                    (s.storage.device().clone(), Buffer::of(s).dtype(), s.storage.len())
                };
                let parts = all.iter().map(part).collect();
                for (part, s) in all.into_iter().enumerate() {
                    let slot = slots.add(Slot::Given);
                    slots.sources.push(Source::Argument { leaf, part });
                    slots.by_id.insert(s.storage.id(), (slot, 0));
                }
                Signature::Tensor {
                    shape: own.dims().to_vec(),
                    dtype: own.dtype(),
                    device: own.device(),
                    axis: own.shard_axis(),
                    parts,
                    extents: unbound_extents(&own),
                    shown: described_for_all(&own),
                }
            }
        });
    }
    signature
}

/// Commands of a run over the slots of the capture.
fn commands_of(run: &Run, slots: &mut Slots, filled: &mut Filled) -> Result<Vec<BoundCommand>> {
    let places = slots.of_run(run)?;
    let moved = |r: &SlotRef| {
        let (slot, offset) = places[r.slot].expect("a command names slots that have memory");
        SlotRef { slot, offset: offset + r.offset, ..*r }
    };
    let mut commands = Vec::with_capacity(run.commands.len());
    for command in &run.commands {
        commands.push(match command {
            Command::Launch { program, device, args, writes } => {
                let mut new = Vec::with_capacity(args.len());
                for r in args {
                    new.push(if r.slot < places.len() {
                        moved(r)
                    } else {
                        let names = &program.program.variables.names;
                        SlotRef { slot: filled.slot(device, names, slots)?, ..*r }
                    });
                }
                Command::Launch {
                    program: program.clone(),
                    device: device.clone(),
                    args: new,
                    writes: writes.clone(),
                }
            }
            Command::Copy { to, from } => Command::Copy { to: moved(to), from: moved(from) },
            Command::Repeat(_) => unreachable!("a capture unrolls loops"),
        });
    }
    Ok(commands)
}

impl Filled {
    /// Slot with the values of these variables.
    fn slot(
        &mut self,
        device: &DeviceName,
        names: &[Arc<str>],
        slots: &mut Slots,
    ) -> Result<usize> {
        Ok(match self.of_variables.entry((device.clone(), names.to_vec())) {
            Entry::Occupied(e) => *e.get(),
            Entry::Vacant(e) => {
                let buffer = Buffer::new(device, DType::I32, names.len())?;
                self.variables.push((buffer.clone(), names.to_vec()));
                *e.insert(slots.add(Slot::Own(buffer)))
            }
        })
    }

    /// Adds slots for the seeds and counters that a run reads, which a replay writes.
    fn add_draws(
        &mut self,
        run: &Run,
        draws: &FxHashMap<u64, usize>,
        slots: &mut Slots,
    ) -> Result<()> {
        for input in &run.inputs {
            let (Some(draw), false) = (draws.get(&input.id), slots.by_id.contains_key(&input.id))
            else {
                continue;
            };
            let buffer = Buffer::new(&input.device, DType::U32, input.len)?;
            self.draws[*draw].0.push(buffer.clone());
            let slot = slots.add(Slot::Own(buffer));
            slots.by_id.insert(input.id, (slot, 0));
        }
        Ok(())
    }
}

/// Commands of all runs of a capture, the values of variables, and the memory that replays fill.
fn all_commands(
    capture: &Capture,
    slots: &mut Slots,
) -> Result<(Vec<BoundCommand>, Values, Filled)> {
    let ids = capture.draws.iter().enumerate();
    let ids = ids.flat_map(|(i, d)| d.storages.iter().map(move |id| (*id, i)));
    let draws: FxHashMap<u64, usize> = ids.collect();
    let mut filled = Filled {
        draws: capture.draws.iter().map(|d| (Vec::new(), d.numbers)).collect(),
        ..Filled::default()
    };
    let (mut commands, mut at_capture) = (Vec::new(), Values::default());
    for run in &capture.runs {
        at_capture.complete(&run.values);
        filled.add_draws(run, &draws, slots)?;
        commands.extend(commands_of(run, slots, &mut filled)?);
    }
    Ok((commands, at_capture, filled))
}

impl<R: JitOut> Captured<R> {
    /// Captures an observed call and its result.
    pub(super) fn new(observed: Observed, result: &R, graphs: bool) -> Result<Captured<R>> {
        let Observed { given, capture, outside, changed, literal, .. } = observed;
        let mut slots = Slots {
            slots: Vec::new(),
            by_id: FxHashMap::default(),
            sources: Vec::new(),
            outside: Vec::new(),
            before: outside,
            numbers: FxHashMap::default(),
        };
        let signature = arguments(given, &mut slots);
        let (commands, at_capture, filled) = all_commands(&capture, &mut slots)?;
        let template =
            |t: Tensor| slots.template(&without_history(&t.raw())).map(|template| (t, template));
        let changed: Vec<(Tensor, Template)> =
            changed.into_iter().map(template).collect::<Result<_>>()?;
        let mut values = Vec::new();
        result.each(&mut |t| values.push((t.raw(), t.device())));
        let of_result = |(node, device): (UOp, _)| Ok((slots.template(&node)?, device));
        let results: Vec<(Template, &'static DeviceName)> =
            values.into_iter().map(of_result).collect::<Result<_>>()?;
        slots.mark_written(&commands);
        // Stored, so that no other function captures it as a literal.
        let empty = Tensor::zeros(()).contiguous().realize()?;
        let shape = result.renewed(&mut || empty.clone());
        let Slots { slots, sources, outside, .. } = slots;
        let plan = ReplayPlan::new(slots, commands, graphs)?;
        if env::config()?.debug >= 1 {
            eprintln!("jit: captured {} commands | {}", plan.len(), plan.memory());
        }
        Ok(Captured {
            plan,
            signature,
            sources,
            outside,
            variables: filled.variables,
            values: at_capture,
            draws: filled.draws,
            changed,
            results,
            literal,
            shape,
            copies: 0,
        })
    }

    /// True if a tensor that was captured as a literal has changed.
    pub(super) fn is_stale(&self) -> bool {
        self.literal
            .iter()
            .any(|(tensor, node)| tensor.upgrade().is_some_and(|t| Tensor(t).raw() != *node))
    }

    pub(super) fn stats(&self) -> JitStats {
        JitStats { steps: self.plan.len(), memory: self.plan.memory(), copies: self.copies }
    }
}
