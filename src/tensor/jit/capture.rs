//! From what was written down to a tape: every buffer becomes a slot, and it is decided where the
//! memory of each slot comes from at a replay.

use super::args::{JitOut, Leaf};
use super::observe::{Observed, Owners};
use super::{JitStats, described_for_all};
use crate::device::{Buffer, Memory};
use crate::dtype::DType;
use crate::env;
use crate::error::{Error, Result};
use crate::exec::record::Run;
use crate::exec::{Slot, SlotRef, Tape, TapeStep, copy_buffer};
use crate::ir::{Arg, DeviceName, Op, Src, ToSrc, UOp, map_symints, walk_values};
use crate::schedule::{Launch, Piece, Role, Step, Values};
use crate::shape::SymInt;
use crate::tensor::realize::storages;
use crate::tensor::{Inner, Tensor};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

/// A captured function.
pub(super) struct Captured<R> {
    pub tape: Tape,
    /// What each argument has to be.
    pub signature: Vec<Signature>,
    /// The memory of the given slots, in their order.
    pub sources: Vec<Source>,
    /// Tensors around the function that it uses.
    pub outside: Vec<Outside>,
    /// The memory of variables' values: which, in their order.
    pub variables: Vec<(Buffer, Vec<Arc<str>>)>,
    /// The values of variables when it was captured, for those that no argument has.
    pub values: Values,
    /// The memory of each draw of random numbers, and how many it draws.
    pub draws: Vec<(Vec<Buffer>, u64)>,
    /// Tensors that a replay gives another value.
    pub changed: Vec<(Tensor, Template)>,
    pub results: Vec<(Template, &'static DeviceName)>,
    /// Tensors around the function that were made of literals alone, and are captured as those.
    pub literal: Vec<(Weak<Inner>, UOp)>,
    /// The result with empty tensors in it.
    pub shape: R,
    pub copies: u64,
}

/// A tensor around the function.
pub(super) struct Outside {
    pub tensor: Tensor,
    /// The axis of its parts.
    pub axis: Option<usize>,
    /// Its parts: device, dtype and elements of each.
    pub parts: Vec<(DeviceName, DType, usize)>,
}

pub(super) enum Signature {
    /// A tensor; its parts have a device, a dtype and elements, and those over several devices an
    /// axis.
    Tensor {
        shape: Vec<usize>,
        dtype: DType,
        device: &'static DeviceName,
        axis: Option<usize>,
        parts: Vec<(DeviceName, DType, usize)>,
        /// How much of each axis is there, for all values of variables.
        extents: Vec<Option<SymInt>>,
        shown: String,
    },
    /// A sum of variables, without values.
    Variable(SymInt),
    Length(usize),
    Host(String),
}

/// Where the memory of a given slot is from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Argument { leaf: usize, part: usize },
    Outside { tensor: usize, part: usize, written: bool },
}

/// A node in which memory is still to be filled in.
pub(super) struct Template {
    node: UOp,
    parts: Vec<Hole>,
}

/// The place of memory in a node.
struct Hole {
    node: UOp,
    at: SlotRef,
    dtype: DType,
    len: usize,
    /// The tape's own is not given away.
    copied: bool,
}

impl Template {
    /// The node over the memory of slots.
    pub(super) fn filled(&self, buffers: &[Buffer], values: &Values) -> Result<UOp> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for hole in &self.parts {
            let whole = &buffers[hole.at.slot];
            let same =
                hole.at.offset == 0 && (whole.dtype(), whole.size()) == (hole.dtype, hole.len);
            let buffer = if same {
                whole.clone()
            } else {
                whole.bytes_from(hole.at.offset, hole.dtype, hole.len)
            };
            let buffer = if hole.copied { copied(&buffer)? } else { buffer };
            map.insert(hole.node.clone(), buffer.node());
        }
        let node = self.node.substitute(&map);
        let now = |b: &SymInt| b.rebound(&|name| values.get(name));
        Ok(if node.extents().is_empty() { node } else { map_symints(&[node], &now).remove(0) })
    }
}

/// The content of a buffer in memory of its own. Files are not written.
fn copied(buffer: &Buffer) -> Result<Buffer> {
    if matches!(buffer.place().memory, Memory::Disk(_)) {
        return Ok(buffer.clone());
    }
    let copy = Buffer::new(buffer.device_name(), buffer.dtype(), buffer.size())?;
    copy_buffer(&copy, buffer)?;
    Ok(copy)
}

/// Slots while they are found.
struct Slots {
    slots: Vec<Slot>,
    /// Where the memory of a storage is.
    by_id: FxHashMap<u64, SlotRef>,
    sources: Vec<Source>,
    outside: Vec<Outside>,
    /// The tensors of storages from before that no step has named yet.
    before: Owners,
    /// The numbers of tensors from before.
    numbers: FxHashMap<*const Inner, usize>,
}

impl Slots {
    fn add(&mut self, slot: Slot) -> usize {
        self.slots.push(slot);
        self.slots.len() - 1
    }
    /// Where a storage is. One that is not known is the function's own, made from numbers of the
    /// host, and is copied.
    fn of(
        &mut self,
        id: u64,
        size: (&DeviceName, DType, usize),
        own: Option<&Buffer>,
    ) -> Result<SlotRef> {
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
                let msg = "the function uses a tensor from before that was dropped while it ran; \
                           keep it, or make it an argument";
                return Err(Error::Jit(msg.into()));
            }
        };
        let at = SlotRef { slot, offset: 0 };
        self.by_id.insert(id, at);
        Ok(at)
    }

    /// The places of the buffers of a run's plan.
    fn of_run(&mut self, run: &Run) -> Result<Vec<Option<SlotRef>>> {
        let mut places: Vec<Option<SlotRef>> = Vec::with_capacity(run.pieces.len());
        for piece in &run.pieces {
            let Some(piece) = piece else {
                places.push(None);
                continue;
            };
            let temporary = || Slot::Temporary { device: piece.device.clone(), bytes: piece.bytes };
            places.push(Some(match piece.role {
                Role::Input(i) => {
                    let input = &run.inputs[i];
                    self.of(input.id, (&input.device, input.dtype, input.len), input.own.as_ref())?
                }
                // Whether somebody keeps it is known at the end.
                Role::Output => {
                    let at = SlotRef { slot: self.add(temporary()), offset: 0 };
                    self.by_id.insert(piece.id, at);
                    at
                }
                Role::Temporary { .. } | Role::Values => {
                    SlotRef { slot: self.add(temporary()), offset: 0 }
                }
            }));
        }
        // A part of a buffer is a storage of its own.
        for (id, output) in run.outputs.iter().zip(&run.plan.outputs) {
            let (Some(id), Some(output)) = (id, output) else { continue };
            if let (Some(part), Some(whole)) = (&output.part, places[output.buffer]) {
                let offset =
                    whole.offset + part.start * run.plan.buffers[output.buffer].dtype.itemsize();
                self.by_id.insert(*id, SlotRef { slot: whole.slot, offset });
            }
        }
        Ok(places)
    }

    /// The value of a tensor with holes in place of its memory. What was made for it is its own.
    fn template(&mut self, value: &UOp) -> Result<Template> {
        let mut found: Vec<(UOp, u64, Buffer)> = Vec::new();
        walk_values(std::slice::from_ref(value), |u| {
            if let Some(s) = u.arg().storage() {
                found.push((u.clone(), s.storage.id(), Buffer::of(s)));
            }
        });
        let (mut map, mut parts) = (FxHashMap::default(), Vec::new());
        for (i, (node, id, buffer)) in found.into_iter().enumerate() {
            let at =
                self.of(id, (buffer.device_name(), buffer.dtype(), buffer.size()), Some(&buffer))?;
            if let Slot::Temporary { device, bytes } = &self.slots[at.slot] {
                let whole = at.offset == 0 && *bytes == buffer.bytes();
                let (dtype, len) =
                    if whole { (buffer.dtype(), buffer.size()) } else { (DType::U8, *bytes) };
                self.slots[at.slot] = Slot::Fresh { device: device.clone(), dtype, len };
            }
            let arg =
                Arg::Param { slot: i, len: buffer.size(), device: buffer.device_name().clone() };
            let hole = UOp::new(Op::Param, node.dtype(), Src::new(), arg);
            map.insert(node, hole.clone());
            let copied = matches!(self.slots[at.slot], Slot::Own(_));
            parts.push(Hole { node: hole, at, dtype: buffer.dtype(), len: buffer.size(), copied });
        }
        Ok(Template { node: value.substitute(&map), parts })
    }
}

/// How much of each axis is there, for all values of variables.
pub(super) fn unbound_extents(t: &Tensor) -> Vec<Option<SymInt>> {
    t.raw().extents().iter().map(|e| e.as_ref().map(SymInt::unbound)).collect()
}

/// The value of a tensor without what gradients would follow; a parameter stays one.
fn without_history(node: &UOp) -> UOp {
    match node.op() {
        Op::Leaf => node.with_src([node.src()[0].unmarked().clone()].to_src()),
        _ => node.unmarked().clone(),
    }
}

impl<R: JitOut> Captured<R> {
    /// From a call that was observed, and what it returned.
    pub(super) fn new(observed: Observed, result: &R, graphs: bool) -> Result<Captured<R>> {
        let Observed { given, recording, outside, changed, literal, .. } = observed;
        let mut slots = Slots {
            slots: Vec::new(),
            by_id: FxHashMap::default(),
            sources: Vec::new(),
            outside: Vec::new(),
            before: outside,
            numbers: FxHashMap::default(),
        };
        let mut signature = Vec::new();
        for (leaf, g) in given.into_iter().enumerate() {
            match g {
                Leaf::Host(value) => signature.push(Signature::Host(value)),
                Leaf::Variable(bound) => signature.push(Signature::Variable(bound.unbound())),
                Leaf::Length(n) => signature.push(Signature::Length(n)),
                Leaf::Tensor(own) => {
                    let node = own.raw();
                    let all = storages(&node).unwrap_or_default();
                    let part = |s: &&crate::ir::StorageRef| {
                        (s.storage.device().clone(), Buffer::of(s).dtype(), s.storage.len())
                    };
                    let parts = all.iter().map(part).collect();
                    let (dtype, device, axis) = (own.dtype(), own.device(), own.shard_axis());
                    let (shape, extents, shown) =
                        (own.dims().to_vec(), unbound_extents(&own), described_for_all(&own));
                    signature.push(Signature::Tensor {
                        shape,
                        dtype,
                        device,
                        axis,
                        parts,
                        extents,
                        shown,
                    });
                    for (part, s) in all.into_iter().enumerate() {
                        let slot = slots.add(Slot::Given);
                        slots.sources.push(Source::Argument { leaf, part });
                        slots.by_id.insert(s.storage.id(), SlotRef { slot, offset: 0 });
                    }
                }
            }
        }
        let draws: FxHashMap<u64, usize> = recording
            .draws
            .iter()
            .enumerate()
            .flat_map(|(i, d)| d.storages.iter().map(move |id| (*id, i)))
            .collect();
        let mut drawn: Vec<(Vec<Buffer>, u64)> =
            recording.draws.iter().map(|d| (Vec::new(), d.numbers)).collect();
        let mut steps: Vec<TapeStep> = Vec::new();
        let (mut variables, mut at_capture) =
            (Vec::<(Buffer, Vec<Arc<str>>)>::new(), Values::default());
        let mut of_variables: FxHashMap<(DeviceName, Vec<Arc<str>>), usize> = FxHashMap::default();
        for run in &recording.runs {
            at_capture.complete(&run.values);
            // The seed and counter of a draw are written anew at each replay, into memory of the
            // tape.
            for input in &run.inputs {
                let (Some(draw), false) =
                    (draws.get(&input.id), slots.by_id.contains_key(&input.id))
                else {
                    continue;
                };
                let buffer = Buffer::new(&input.device, DType::U32, input.len)?;
                drawn[*draw].0.push(buffer.clone());
                let slot = slots.add(Slot::Own(buffer));
                slots.by_id.insert(input.id, SlotRef { slot, offset: 0 });
            }
            let places = slots.of_run(run)?;
            let at = |p: &Piece| {
                let whole = places[p.buffer].expect("a step names buffers that exist");
                SlotRef { offset: whole.offset + p.offset, ..whole }
            };
            for (Launch { step, pieces }, compiled) in
                run.plan.launches().into_iter().zip(&run.compiled)
            {
                steps.push(match (step, compiled, &pieces[..]) {
                    (Step::Kernel { buffers, device, .. }, Some(compiled), _) => {
                        let written = step.writes();
                        let writes =
                            (0..buffers.len()).filter(|i| written.contains(&buffers[*i])).collect();
                        let mut args: Vec<SlotRef> = pieces.iter().map(at).collect();
                        // The values of its variables come after all others.
                        let names = &compiled.program.variables.names;
                        if !names.is_empty() {
                            let slot = match of_variables.entry((device.clone(), names.clone())) {
                                Entry::Occupied(e) => *e.get(),
                                Entry::Vacant(e) => {
                                    let buffer = Buffer::new(device, DType::I32, names.len())?;
                                    variables.push((buffer.clone(), names.clone()));
                                    *e.insert(slots.add(Slot::Own(buffer)))
                                }
                            };
                            args.push(SlotRef { slot, offset: 0 });
                        }
                        TapeStep::Kernel {
                            compiled: compiled.clone(),
                            device: device.clone(),
                            args,
                            writes,
                        }
                    }
                    (Step::Copy { .. }, _, [to, from]) => {
                        TapeStep::Copy { to: at(to), from: at(from), dtype: to.dtype, len: to.len }
                    }
                    _ => unreachable!("a kernel that ran was compiled, and loops were written out"),
                });
            }
        }
        let template =
            |t: Tensor| slots.template(&without_history(&t.raw())).map(|template| (t, template));
        let changed: Vec<(Tensor, Template)> =
            changed.into_iter().map(template).collect::<Result<_>>()?;
        let mut values = Vec::new();
        result.each(&mut |t| values.push((t.raw(), t.device())));
        let results: Vec<(Template, &'static DeviceName)> = values
            .iter()
            .map(|(node, device)| Ok((slots.template(node)?, *device)))
            .collect::<Result<_>>()?;
        for slot in Tape::written(&steps) {
            let given = slots.slots[..slot].iter().filter(|s| matches!(s, Slot::Given)).count();
            if let (Slot::Given, Some(Source::Outside { written, .. })) =
                (&slots.slots[slot], slots.sources.get_mut(given))
            {
                *written = true;
            }
        }
        // In memory, so that it is no literal that other functions would be taken to use.
        let empty = Tensor::zeros(()).contiguous().realize()?;
        let shape = result.renewed(&mut || empty.clone());
        let Slots { slots, sources, outside, .. } = slots;
        let tape = Tape::new(slots, steps, graphs)?;
        if env::config()?.debug >= 1 {
            eprintln!("jit captured {} steps; {}", tape.len(), tape.memory());
        }
        Ok(Captured {
            tape,
            signature,
            sources,
            outside,
            variables,
            values: at_capture,
            draws: drawn,
            changed,
            results,
            literal,
            shape,
            copies: 0,
        })
    }

    /// Has a tensor that was captured as a literal become something else?
    pub(super) fn is_stale(&self) -> bool {
        self.literal
            .iter()
            .any(|(tensor, node)| tensor.upgrade().is_some_and(|t| Tensor(t).raw() != *node))
    }

    pub(super) fn stats(&self) -> JitStats {
        JitStats { steps: self.tape.len(), memory: self.tape.memory(), copies: self.copies }
    }
}
