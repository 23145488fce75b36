//! The plans of a [`Capture`] as one plan for replays: every buffer becomes a slot, and each slot
//! gets an origin for its memory at a replay.

use super::capture::{Capture, RecordedPlan};
use super::command::BoundCommand;
use super::launch::copy_buffer;
use super::memory::SlotMemory;
use super::replay::{ReplayPlan, Slot};
use crate::device::{Buffer, Memory};
use crate::dtype::{DType, as_bytes};
use crate::error::{Error, Result};
use crate::ir::{DeviceName, StorageRef, UOp, map_symints, walk_values};
use crate::schedule::{Command, Role, SlotRef, VariableValues};
use crate::shape::SymInt;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Device, dtype and length of a buffer, which are equal at each replay.
#[derive(Clone, PartialEq)]
pub(crate) struct BufferType {
    /// Device whose memory it is in.
    pub device: DeviceName,
    /// Element dtype.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
}

impl BufferType {
    /// Returns the type of a buffer.
    pub fn of(buffer: &Buffer) -> BufferType {
        let (dtype, len) = (buffer.dtype(), buffer.size());
        BufferType { device: buffer.device_name().clone(), dtype, len }
    }
}

/// Origin of the memory of a given slot.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// An argument, by number and shard.
    Argument { leaf: usize, part: usize },
    /// A tensor from outside the function, by number and shard.
    Outside { tensor: usize, part: usize, written: bool },
}

/// A tensor from outside the function that its commands use.
pub(crate) struct OutsideMemory {
    /// Id of the tensor.
    pub tensor: usize,
    /// Memory of each shard.
    pub parts: Vec<BufferType>,
}

/// The commands of a capture, with the origins of their memory.
pub(crate) struct CapturedPlan {
    /// The commands.
    pub replay: ReplayPlan,
    /// Origin of the given slots, in their order.
    pub sources: Vec<Source>,
    /// Values of variables at the capture, for those that are not arguments.
    pub values: VariableValues,
    filled: Filled,
}

/// Memory that a replay fills before it runs.
#[derive(Default)]
struct Filled {
    /// Values of variables: memory and names.
    variables: Vec<(Buffer, Vec<Arc<str>>)>,
    /// Seed and counter of each RNG draw, one buffer per device, and its number of elements.
    draws: Vec<(Vec<Buffer>, u64)>,
}

impl CapturedPlan {
    /// Writes the values of variables, and the seeds and counters of random numbers:
    /// `next_words` draws as many numbers as it is given.
    pub fn write_inputs(
        &self,
        values: &VariableValues,
        next_words: impl Fn(u64) -> [u32; 4],
    ) -> Result<()> {
        for (buffer, names) in &self.filled.variables {
            let value = |name: &Arc<str>| values.get(name).expect("a captured value") as i32;
            let numbers: Vec<i32> = names.iter().map(value).collect();
            buffer.write(as_bytes(&numbers))?;
        }
        for (buffers, numbers) in &self.filled.draws {
            let words = next_words(*numbers);
            buffers.iter().try_for_each(|b| b.write(as_bytes(&words)))?;
        }
        Ok(())
    }
}

/// Node with holes for memory.
pub(crate) struct Template {
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
    pub fn filled(&self, memory: &SlotMemory, values: &VariableValues) -> Result<UOp> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for hole in &self.parts {
            let buffer = memory.view(&hole.at);
            let node = if hole.copied { copied(&buffer)?.node() } else { buffer.node() };
            map.insert(hole.node.clone(), node);
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

/// Returns the tensor from outside the function that holds a storage: its id and the shard. `None`
/// without such a tensor, or if it was dropped.
type FindOwner<'a> = &'a dyn Fn(u64) -> Option<(usize, usize)>;

/// The slots and commands of a capture, on the way to a [`CapturedPlan`].
pub(crate) struct CaptureBuilder<'a> {
    slots: Vec<Slot>,
    commands: Vec<BoundCommand>,
    values: VariableValues,
    filled: Filled,
    /// Slots with the values of variables.
    of_variables: FxHashMap<(DeviceName, Vec<Arc<str>>), usize>,
    /// Slot and offset of each storage.
    by_id: FxHashMap<u64, (usize, usize)>,
    sources: Vec<Source>,
    outside: Vec<OutsideMemory>,
    /// Numbers of the tensors from outside, by id.
    numbers: FxHashMap<usize, usize>,
    find_owner: FindOwner<'a>,
}

impl<'a> CaptureBuilder<'a> {
    /// Starts without slots and commands.
    pub fn new(find_owner: FindOwner<'a>) -> CaptureBuilder<'a> {
        CaptureBuilder {
            slots: Vec::new(),
            commands: Vec::new(),
            values: VariableValues::default(),
            filled: Filled::default(),
            of_variables: FxHashMap::default(),
            by_id: FxHashMap::default(),
            sources: Vec::new(),
            outside: Vec::new(),
            numbers: FxHashMap::default(),
            find_owner,
        }
    }

    fn add(&mut self, slot: Slot) -> usize {
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// Adds slots for the shards of an argument.
    pub fn add_argument(&mut self, leaf: usize, storages: &[StorageRef]) {
        for (part, s) in storages.iter().enumerate() {
            let slot = self.add(Slot::Given);
            self.sources.push(Source::Argument { leaf, part });
            self.by_id.insert(s.storage.id(), (slot, 0));
        }
    }

    /// Adds the commands of a capture.
    pub fn add_commands(&mut self, capture: &Capture) -> Result<()> {
        let ids = capture.draws.iter().enumerate();
        let ids = ids.flat_map(|(i, d)| d.storages.iter().map(move |id| (*id, i)));
        let draws: FxHashMap<u64, usize> = ids.collect();
        self.filled.draws = capture.draws.iter().map(|d| (Vec::new(), d.numbers)).collect();
        for recorded in &capture.runs {
            self.values.complete(&recorded.values);
            self.add_draws(recorded, &draws)?;
            let places = self.of_plan(recorded)?;
            for command in &recorded.commands {
                let command = self.moved(command, &places)?;
                self.commands.push(command);
            }
        }
        Ok(())
    }

    /// Adds slots for the seeds and counters that a plan reads, which a replay writes.
    fn add_draws(&mut self, recorded: &RecordedPlan, draws: &FxHashMap<u64, usize>) -> Result<()> {
        for input in &recorded.inputs {
            let (Some(draw), false) = (draws.get(&input.id), self.by_id.contains_key(&input.id))
            else {
                continue;
            };
            let BufferType { device, len, .. } = &input.buffer_type;
            let buffer = Buffer::new(device, DType::U32, *len)?;
            self.filled.draws[*draw].0.push(buffer.clone());
            let slot = self.add(Slot::Own(buffer));
            self.by_id.insert(input.id, (slot, 0));
        }
        Ok(())
    }

    /// Returns a command of a recorded plan over the slots of the capture. `places` are slot and
    /// offset of each slot of the plan; the slots beyond have values of variables.
    fn moved(
        &mut self,
        command: &BoundCommand,
        places: &[Option<(usize, usize)>],
    ) -> Result<BoundCommand> {
        let moved = |r: &SlotRef| {
            let (slot, offset) = places[r.slot].expect("a command names slots that have memory");
            SlotRef { slot, offset: offset + r.offset, ..*r }
        };
        Ok(match command {
            Command::Launch { program, device, args, writes } => {
                let names = &program.program.variables.names;
                let arg = |r: &SlotRef| match r.slot {
                    slot if slot < places.len() => Ok(moved(r)),
                    _ => Ok(SlotRef { slot: self.of_variables(device, names)?, ..*r }),
                };
                let args = args.iter().map(arg).collect::<Result<_>>()?;
                let (program, device) = (program.clone(), device.clone());
                Command::Launch { program, device, args, writes: writes.clone() }
            }
            Command::Copy { to, from } => Command::Copy { to: moved(to), from: moved(from) },
            Command::Repeat(_) => unreachable!("a capture unrolls loops"),
        })
    }

    /// Returns the slot with the values of these variables.
    fn of_variables(&mut self, device: &DeviceName, names: &[Arc<str>]) -> Result<usize> {
        let key = (device.clone(), names.to_vec());
        if let Some(slot) = self.of_variables.get(&key) {
            return Ok(*slot);
        }
        let buffer = Buffer::new(device, DType::I32, names.len())?;
        self.filled.variables.push((buffer.clone(), names.to_vec()));
        let slot = self.add(Slot::Own(buffer));
        self.of_variables.insert(key, slot);
        Ok(slot)
    }

    /// Returns slot and offset of a storage. An unknown storage holds host data of the function and
    /// is copied.
    fn of(
        &mut self,
        id: u64,
        buffer_type: &BufferType,
        own: Option<&Buffer>,
    ) -> Result<(usize, usize)> {
        if let Some(at) = self.by_id.get(&id) {
            return Ok(*at);
        }
        let slot = match ((self.find_owner)(id), own) {
            (Some((tensor, part)), _) => {
                let next = self.outside.len();
                let number = *self.numbers.entry(tensor).or_insert(next);
                if number == next {
                    self.outside.push(OutsideMemory { tensor, parts: Vec::new() });
                }
                let parts = &mut self.outside[number].parts;
                while parts.len() <= part {
                    parts.push(buffer_type.clone());
                }
                parts[part] = buffer_type.clone();
                self.sources.push(Source::Outside { tensor: number, part, written: false });
                self.add(Slot::Given)
            }
            (None, Some(own)) => self.add(Slot::Own(copied(own)?)),
            (None, None) => {
                let msg = "the function uses an outside tensor that was dropped while it ran; \
                           keep a handle on it, or pass it as an argument";
                return Err(Error::Jit(msg.into()));
            }
        };
        self.by_id.insert(id, (slot, 0));
        Ok((slot, 0))
    }

    /// Returns slot and offset of each slot of a recorded plan; `None` for a slot that no command
    /// names.
    fn of_plan(&mut self, recorded: &RecordedPlan) -> Result<Vec<Option<(usize, usize)>>> {
        let mut places = Vec::with_capacity(recorded.plan.buffers.len());
        for info in &recorded.plan.buffers {
            if info.dtype == DType::VOID {
                places.push(None);
                continue;
            }
            places.push(Some(match info.role {
                Role::Input(i) => {
                    let input = &recorded.inputs[i];
                    self.of(input.id, &input.buffer_type, input.own.as_ref())?
                }
                // An output is an intermediate unless a result or a changed tensor holds it.
                Role::Output | Role::Temporary { .. } | Role::Values => {
                    let (device, bytes) = (info.device.clone(), info.len * info.dtype.itemsize());
                    (self.add(Slot::Temporary { device, bytes }), 0)
                }
            }));
        }
        for (id, output) in recorded.outputs.iter().zip(&recorded.plan.outputs) {
            let (Some(id), Some(output)) = (id, output) else { continue };
            let Some((slot, offset)) = places[output.buffer] else { continue };
            let start = output.part.as_ref().map_or(0, |part| part.start);
            let skipped = start * recorded.plan.buffers[output.buffer].dtype.itemsize();
            self.by_id.insert(*id, (slot, offset + skipped));
        }
        Ok(places)
    }

    /// Returns the value of a tensor with holes in place of its memory. Intermediates in it become
    /// results.
    pub fn template(&mut self, value: &UOp) -> Result<Template> {
        let mut found: Vec<(UOp, u64, Buffer)> = Vec::new();
        walk_values(std::slice::from_ref(value), |u| {
            if let Some(s) = u.arg().storage() {
                found.push((u.clone(), s.storage.id(), Buffer::of(s)));
            }
        });
        let (mut map, mut parts) = (FxHashMap::default(), Vec::new());
        for (i, (node, id, buffer)) in found.into_iter().enumerate() {
            let of_buffer = BufferType::of(&buffer);
            let (slot, offset) = self.of(id, &of_buffer, Some(&buffer))?;
            let BufferType { device, dtype, len } = of_buffer;
            if let Slot::Temporary { device, bytes } = &self.slots[slot] {
                let whole = offset == 0 && *bytes == buffer.bytes();
                let (dtype, len) = if whole { (dtype, len) } else { (DType::U8, *bytes) };
                let fresh = BufferType { device: device.clone(), dtype, len };
                self.slots[slot] = Slot::Fresh(fresh);
            }
            let hole = UOp::param(i, len, node.dtype(), &device);
            map.insert(node, hole.clone());
            let copied = matches!(self.slots[slot], Slot::Own(_));
            parts.push(Hole { node: hole, at: SlotRef { slot, offset, dtype, len }, copied });
        }
        Ok(Template { node: value.substitute(&map), parts })
    }

    /// Returns the plan, and the tensors from outside that it uses. Without `graphs` kernels of a
    /// GPU are launched one by one.
    pub fn into_plan(mut self, graphs: bool) -> Result<(CapturedPlan, Vec<OutsideMemory>)> {
        self.mark_written();
        let CaptureBuilder { slots, commands, values, filled, sources, outside, .. } = self;
        let replay = ReplayPlan::new(slots, commands, graphs)?;
        Ok((CapturedPlan { replay, sources, values, filled }, outside))
    }

    /// Marks the tensors from outside that commands write.
    fn mark_written(&mut self) {
        let written = self.commands.iter().flat_map(Command::written_slots);
        let written: FxHashSet<usize> = written.collect();
        let given = (0..self.slots.len()).filter(|i| matches!(self.slots[*i], Slot::Given));
        for (source, slot) in self.sources.iter_mut().zip(given) {
            if let Source::Outside { written: is_written, .. } = source {
                *is_written |= written.contains(&slot);
            }
        }
    }
}
