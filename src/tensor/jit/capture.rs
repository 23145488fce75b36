//! From what was written down to a tape: every buffer becomes a slot, and it is decided where the memory of each slot comes from at a replay.

use super::args::JitOut;
use super::observe::{Given, Observed, Owners};
use super::{JitStats, described_for_all};
use crate::dtype::DType;
use crate::env;
use crate::error::Result;
use crate::exec::record::Run;
use crate::exec::{At, Slot, Tape, TapeStep};
use crate::ir::{Arg, DeviceName, Op, Src, Storage, ToSrc, UOp, walk_values};
use crate::runtime::Buffer;
use crate::schedule::{Role, Step, Values};
use crate::shape::Bound;
use crate::tensor::realize::storages;
use crate::tensor::{Inner, Tensor};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

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
    /// The result with empty tensors in it.
    pub shape: R,
    pub copies: u64,
}

/// A tensor around the function.
pub(super) struct Outside {
    pub tensor: Tensor,
    /// Its parts: device, dtype and elements of each.
    pub parts: Vec<(DeviceName, DType, usize)>,
}

pub(super) enum Signature {
    /// A tensor, as it is whatever the values of its variables are.
    Tensor {
        shape: Vec<usize>,
        extents: Vec<Option<Bound>>,
        dtype: DType,
        device: &'static DeviceName,
        shown: String,
    },
    /// A sum of variables, without values.
    Variable(Bound),
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
    parts: Vec<(UOp, At, DType, usize)>,
}

impl Template {
    /// The node over the memory of slots.
    pub(super) fn filled(&self, buffers: &[Buffer], values: &Values) -> UOp {
        let part = |(hole, at, dtype, len): &(UOp, At, DType, usize)| {
            let whole = &buffers[at.slot];
            let same = at.offset == 0 && (whole.dtype(), whole.size()) == (*dtype, *len);
            let buffer = if same { whole.clone() } else { whole.bytes_from(at.offset, *dtype, *len) };
            (hole.clone(), buffer.node())
        };
        let node = self.node.substitute(&self.parts.iter().map(part).collect());
        if node.extents().is_empty() { node } else { rebound(&node, values) }
    }
}

/// A node with other values of its variables.
fn rebound(node: &UOp, values: &Values) -> UOp {
    let value = |name: &str| values.get(name);
    let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
    for u in node.toposort() {
        let new = u.with_src(u.src().iter().map(|s| done[&s.id()].clone()).collect::<Src>());
        let new = match u.arg() {
            Arg::Slice(part) => new.src()[0].sliced(part.axis, part.start.rebound(&value), part.len.rebound(&value)),
            _ => new,
        };
        done.insert(u.id(), new);
    }
    done[&node.id()].clone()
}

/// Slots while they are found.
struct Slots {
    slots: Vec<Slot>,
    /// Where the memory of a storage is.
    by_id: FxHashMap<u64, At>,
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
    /// Where a storage is. One that is not known is the function's own: made from numbers of the host.
    fn of(&mut self, id: u64, buffer: &dyn Fn() -> Buffer) -> At {
        if let Some(at) = self.by_id.get(&id) {
            return *at;
        }
        let tensor = self.before.get(&id).and_then(|(weak, part)| Some((weak.upgrade()?, *part)));
        let slot = match tensor {
            Some((inner, part)) => {
                let key = Arc::as_ptr(&inner);
                let next = self.outside.len();
                let number = *self.numbers.entry(key).or_insert(next);
                if number == next {
                    self.outside.push(Outside { tensor: Tensor(inner), parts: Vec::new() });
                }
                let parts = &mut self.outside[number].parts;
                let b = buffer();
                let one = (b.device_name().clone(), b.dtype(), b.size());
                while parts.len() <= part {
                    parts.push(one.clone());
                }
                parts[part] = one;
                self.sources.push(Source::Outside { tensor: number, part, written: false });
                self.add(Slot::Given)
            }
            None => self.add(Slot::Own(buffer())),
        };
        let at = At { slot, offset: 0 };
        self.by_id.insert(id, at);
        at
    }

    /// The places of the buffers of a run's plan.
    fn of_run(&mut self, run: &Run) -> Vec<Option<At>> {
        let memory = &run.scheduled.memory;
        let places: Vec<Option<At>> = memory
            .iter()
            .map(|arg| {
                let arg = arg.as_ref()?;
                let bytes = arg.len * arg.dtype.itemsize();
                Some(match arg.role {
                    Role::Input(i) => {
                        let s = &run.scheduled.inputs[i];
                        self.of(s.storage.id(), &|| Buffer::of(s))
                    }
                    // Whether somebody keeps it is known at the end.
                    Role::Output => {
                        let slot = self.add(Slot::Temporary { device: arg.buffer.device_name().clone(), bytes });
                        let at = At { slot, offset: 0 };
                        self.by_id.insert(arg.buffer.id(), at);
                        at
                    }
                    Role::Temporary(_) | Role::Values => {
                        At { slot: self.add(Slot::Temporary { device: arg.buffer.device_name().clone(), bytes }), offset: 0 }
                    }
                })
            })
            .collect();
        // A part of a buffer is a storage of its own.
        for (buffer, output) in run.scheduled.outputs.iter().zip(&run.scheduled.plan.outputs) {
            let (Some(buffer), Some(output)) = (buffer, output) else { continue };
            if let (Some(part), Some(whole)) = (&output.part, places[output.buffer]) {
                let offset = whole.offset + part.start * buffer.dtype().itemsize();
                self.by_id.insert(buffer.id(), At { slot: whole.slot, offset });
            }
        }
        places
    }

    /// The value of a tensor with holes in place of its memory. What was made for it is its own.
    fn template(&mut self, value: &UOp) -> Template {
        let mut found: Vec<(UOp, u64, Buffer)> = Vec::new();
        walk_values(std::slice::from_ref(value), |u| {
            if let Some(s) = u.arg().storage() {
                found.push((u.clone(), s.storage.id(), Buffer::of(s)));
            }
        });
        let (mut map, mut parts) = (FxHashMap::default(), Vec::new());
        for (i, (node, id, buffer)) in found.into_iter().enumerate() {
            let at = self.of(id, &|| buffer.clone());
            if let Slot::Temporary { device, bytes } = &self.slots[at.slot] {
                let whole = at.offset == 0 && *bytes == buffer.bytes();
                let (dtype, len) = if whole { (buffer.dtype(), buffer.size()) } else { (DType::U8, *bytes) };
                self.slots[at.slot] = Slot::Fresh { device: device.clone(), dtype, len };
            }
            let arg = Arg::Param { slot: i, len: buffer.size(), device: buffer.device_name().clone() };
            let hole = UOp::new(Op::Param, node.dtype(), Src::new(), arg);
            map.insert(node, hole.clone());
            parts.push((hole, at, buffer.dtype(), buffer.size()));
        }
        Template { node: value.substitute(&map), parts }
    }
}

/// How much of each axis is there, for all values of variables.
pub(super) fn unbound_extents(t: &Tensor) -> Vec<Option<Bound>> {
    t.raw().extents().iter().map(|e| e.as_ref().map(Bound::unbound)).collect()
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
        let Observed { given, recording, outside, changed, .. } = observed;
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
                Given::Host(value) => signature.push(Signature::Host(value)),
                Given::Variable(bound) => signature.push(Signature::Variable(bound.unbound())),
                Given::Tensor(own) => {
                    let shape = own.dims().to_vec();
                    let (extents, shown) = (unbound_extents(&own), described_for_all(&own));
                    signature.push(Signature::Tensor { shape, extents, dtype: own.dtype(), device: own.device(), shown });
                    for (part, s) in storages(&own.raw()).into_iter().flatten().enumerate() {
                        let slot = slots.add(Slot::Given);
                        slots.sources.push(Source::Argument { leaf, part });
                        slots.by_id.insert(s.storage.id(), At { slot, offset: 0 });
                    }
                }
            }
        }
        let draws: FxHashMap<u64, usize> =
            recording.draws.iter().enumerate().flat_map(|(i, d)| d.storages.iter().map(move |id| (*id, i))).collect();
        let mut drawn: Vec<(Vec<Buffer>, u64)> = recording.draws.iter().map(|d| (Vec::new(), d.numbers)).collect();
        let mut steps: Vec<TapeStep> = Vec::new();
        let (mut variables, mut values) = (Vec::<(Buffer, Vec<Arc<str>>)>::new(), Values::default());
        let mut of_variables: FxHashMap<(DeviceName, Vec<Arc<str>>), usize> = FxHashMap::default();
        for run in &recording.runs {
            values.complete(&run.scheduled.values);
            // The seed and counter of a draw are written anew at each replay, into memory of the tape.
            for s in &run.scheduled.inputs {
                let id = s.storage.id();
                let (Some(draw), false) = (draws.get(&id), slots.by_id.contains_key(&id)) else { continue };
                let buffer = Buffer::new(s.storage.device(), DType::U32, s.storage.len())?;
                drawn[*draw].0.push(buffer.clone());
                let slot = slots.add(Slot::Own(buffer));
                slots.by_id.insert(id, At { slot, offset: 0 });
            }
            let places = slots.of_run(run);
            let at = |n: &usize| places[*n].expect("a step names buffers that exist");
            for (step, compiled) in run.scheduled.plan.steps.iter().zip(&run.compiled) {
                steps.push(match (step, compiled) {
                    (Step::Kernel { buffers, device, .. }, Some(compiled)) => {
                        let written = step.writes();
                        let writes = (0..buffers.len()).filter(|i| written.contains(&buffers[*i])).collect();
                        let mut args: Vec<At> = buffers.iter().map(at).collect();
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
                            args.push(At { slot, offset: 0 });
                        }
                        TapeStep::Kernel { compiled: compiled.clone(), device: device.clone(), args, writes }
                    }
                    (Step::Copy { to, from, start }, _) => {
                        let info = &run.scheduled.plan.buffers[*to];
                        let from = at(from);
                        let from = At { offset: from.offset + start * info.dtype.itemsize(), ..from };
                        TapeStep::Copy { to: at(to), from, dtype: info.dtype, len: info.len }
                    }
                    (Step::Kernel { .. }, None) => unreachable!("a kernel that ran was compiled"),
                });
            }
        }
        let changed: Vec<(Tensor, Template)> =
            changed.into_iter().map(|t| (t.clone(), slots.template(&without_history(&t.raw())))).collect();
        let mut results = Vec::new();
        result.each(&mut |t| results.push((slots.template(&t.raw()), t.device())));
        for slot in Tape::written(&steps) {
            let given = slots.slots[..slot].iter().filter(|s| matches!(s, Slot::Given)).count();
            if let (Slot::Given, Some(Source::Outside { written, .. })) = (&slots.slots[slot], slots.sources.get_mut(given)) {
                *written = true;
            }
        }
        let empty = Tensor::zeros(());
        let shape = result.renewed(&mut || empty.clone());
        let Slots { slots, sources, outside, .. } = slots;
        let tape = Tape::new(slots, steps, graphs)?;
        if env::config()?.debug >= 1 {
            let m = tape.memory();
            let mb = |bytes: usize| bytes as f64 / 1e6;
            eprintln!(
                "jit captured {} steps; values between them: {:.2} MB apart, {:.2} MB planned, {:.2} MB at the most at one time",
                tape.len(),
                mb(m.separate),
                mb(m.arena),
                mb(m.peak)
            );
        }
        Ok(Captured { tape, signature, sources, outside, variables, values, draws: drawn, changed, results, shape, copies: 0 })
    }

    pub(super) fn stats(&self) -> JitStats {
        JitStats { steps: self.tape.len(), memory: self.tape.memory(), copies: self.copies }
    }
}
