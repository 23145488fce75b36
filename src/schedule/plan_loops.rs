//! Loops in plans. The body of a loop is planned once, like any graph; the memory of each of its
//! slots depends on the iteration.
//!
//! The elements of an iteration and its stacked outputs are parts of the stacks, at an offset. A
//! carry alternates between two buffers: an iteration writes one and the next reads it. A carry
//! that is also stacked is written to the stack alone, and read from the part of the iteration
//! before. No iteration copies anything.
//!
//! ```text
//! scan(|h, x| (h·W + x, h·W + x))
//! ->  for t in 0..T:  kernel(ys[t], t == 0 ? first : ys[t-1], W, xs[t])
//! ```

use super::assign_ranges::CustomNode;
use super::{BufferInfo, Command, DeviceTraits, Plan, PlanRequest, Role, SlotRef, UNPLACED, plan};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{DeviceName, Loop, UOp};
use rustc_hash::FxHashSet;
use std::fmt;

/// A loop of a plan.
#[derive(Clone, Debug)]
pub struct Repeat<P = UOp> {
    /// Commands of one iteration, over the slots of the body.
    pub body: Vec<Command<P>>,
    /// Number of iterations.
    pub count: usize,
    /// True if the last element comes first.
    pub reverse: bool,
    /// Memory of each slot of the body; `None` for a slot that no command names.
    pub(super) binds: Vec<Option<Bind>>,
    /// Slots of the surrounding plan that the loop reads.
    pub reads: Vec<usize>,
    /// Slots that it writes, its intermediates included.
    pub writes: Vec<usize>,
}

/// Memory of a body slot, as slots of the surrounding plan.
#[derive(Clone, Debug)]
pub(super) enum Bind {
    /// The same bytes in every iteration: slot and offset.
    Fixed(usize, usize),
    /// One part of a stack per iteration.
    Each(Stack),
    /// A carry before the iteration.
    Before { first: usize, then: Carried },
    /// A carry after the iteration.
    After { then: Carried, last: usize },
}

/// A slot with a part of equal size for every iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    slot: usize,
    /// Bytes of one part.
    bytes: usize,
}

/// Memory of a carry between iterations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carried {
    /// Two buffers in alternation.
    DoubleBuffer([usize; 2]),
    /// The stack of all values.
    Stack(Stack),
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.slot)
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Carried::{DoubleBuffer, Stack};
        match self {
            Bind::Fixed(slot, offset) => write!(f, "{slot} at byte {offset}"),
            Bind::Before { first, then: DoubleBuffer([a, b]) } => {
                write!(f, "{first}, then {a} and {b} in turn")
            }
            Bind::Before { first, then: Stack(stack) } => {
                write!(f, "{first}, then the {stack} of the iteration before")
            }
            Bind::After { then: DoubleBuffer([a, b]), last } => {
                write!(f, "{a} and {b} in turn, and {last} in the last iteration")
            }
            Bind::Each(stack) | Bind::After { then: Stack(stack), .. } => {
                write!(f, "{stack} for each iteration")
            }
        }
    }
}

impl<P> Repeat<P> {
    /// Maps a view of a body slot in an iteration to a view of the surrounding plan's memory.
    pub(crate) fn resolve(&self, iteration: usize, r: SlotRef) -> SlotRef {
        let (slot, offset) = self.memory(iteration, r.slot);
        SlotRef { slot, offset: offset + r.offset, ..r }
    }

    /// Maps a body slot in an iteration to a slot of the surrounding plan and an offset.
    fn memory(&self, iteration: usize, slot: usize) -> (usize, usize) {
        let part = |stack: &Stack, i: usize| {
            (stack.slot, stack.bytes * if self.reverse { self.count - 1 - i } else { i })
        };
        match self.binds[slot].as_ref().expect("a command names slots that exist") {
            Bind::Fixed(n, offset) => (*n, *offset),
            Bind::Each(stack) => part(stack, iteration),
            Bind::Before { first, .. } if iteration == 0 => (*first, 0),
            Bind::Before { then: Carried::DoubleBuffer(two), .. } => (two[(iteration - 1) % 2], 0),
            Bind::Before { then: Carried::Stack(stack), .. } => part(stack, iteration - 1),
            Bind::After { then: Carried::DoubleBuffer(_), last } if iteration + 1 == self.count => {
                (*last, 0)
            }
            Bind::After { then: Carried::DoubleBuffer(two), .. } => (two[iteration % 2], 0),
            Bind::After { then: Carried::Stack(stack), .. } => part(stack, iteration),
        }
    }

    /// Returns every slot of the surrounding plan that a body slot maps to, with the largest offset
    /// in each.
    pub(crate) fn possible_slots(&self, slot: usize) -> Vec<(usize, usize)> {
        // Iterations 0, 1 and 2 see each kind of memory before and after an iteration, and both
        // buffers of a carry; the last one sees what it alone writes. A part of a stack is furthest
        // in the first or in the last iteration.
        let mut iterations = vec![0, 1, 2, self.count.saturating_sub(1)];
        iterations.retain(|i| *i < self.count);
        let mut all: Vec<(usize, usize)> = Vec::new();
        for (n, offset) in iterations.into_iter().map(|i| self.memory(i, slot)) {
            match all.iter_mut().find(|a| a.0 == n) {
                Some(known) => known.1 = known.1.max(offset),
                None => all.push((n, offset)),
            }
        }
        all
    }

    /// Returns the same loop with other programs.
    pub(super) fn try_map<Q>(
        &self,
        program: &mut dyn FnMut(&P, &DeviceName) -> Result<Q>,
    ) -> Result<Repeat<Q>> {
        Ok(Repeat {
            body: self.body.iter().map(|c| c.try_map(program)).collect::<Result<_>>()?,
            count: self.count,
            reverse: self.reverse,
            binds: self.binds.clone(),
            reads: self.reads.clone(),
            writes: self.writes.clone(),
        })
    }
}

/// Plans a loop: its command, and the copies that follow it. `used_outputs` are the indices of its
/// outputs that are read. Slots for its intermediates are added to `buffers`.
pub fn repeat(
    k: &CustomNode,
    l: &Loop,
    used_outputs: &FxHashSet<usize>,
    device: &DeviceName,
    buffers: &mut Vec<Option<BufferInfo>>,
    traits_of: &dyn Fn(&DeviceName) -> DeviceTraits,
) -> Vec<Command> {
    let outputs = l.outputs();
    let kept: Vec<usize> =
        (0..outputs.len()).filter(|i| *i < l.carries || used_outputs.contains(i)).collect();
    // The next iteration reads what the body writes.
    let in_body = |device: &DeviceName| DeviceTraits { nontemporal: None, ..traits_of(device) };
    let (plan, slots) = body(l, &kept, device, &in_body);
    let (binds, writes) = (vec![None; plan.buffers.len()], Vec::new());
    let mut memory = LoopMemory { k, l, device, buffers, binds, writes };
    let (mut carried, mut copies) = (Vec::new(), Vec::new());
    for ((i, &last), (dtype, shape)) in k.writes.iter().enumerate().zip(&outputs).take(l.carries) {
        let whole = SlotRef { slot: last, offset: 0, dtype: *dtype, len: shape.iter().product() };
        // The stack that holds the carries of all iterations.
        let stack = (l.carries..kept.len()).find(|j| slots[*j] == slots[i]);
        let stack = stack.map(|j| k.writes[kept[j]]);
        let then = memory.carried(whole, stack);
        if let Some(stack) = stack.filter(|_| used_outputs.contains(&i)) {
            copies.push(memory.copy_of_last(whole, stack));
        }
        memory.binds[slots[i]] = Some(Bind::After { then, last });
        carried.push(then);
    }
    for (&slot, &i) in slots.iter().zip(&kept).skip(l.carries) {
        memory.writes.push(k.writes[i]);
        // A stack that holds a carry is bound already.
        let stack = Stack { slot: k.writes[i], bytes: plan.buffers[slot].bytes() };
        memory.binds[slot].get_or_insert(Bind::Each(stack));
    }
    memory.bind_inputs(&plan, &carried);
    let LoopMemory { binds, writes, .. } = memory;
    let (body, reads) = (plan.commands, k.reads.clone());
    let repeat = Repeat { body, count: l.count, reverse: l.reverse, binds, reads, writes };
    std::iter::once(Command::Repeat(Box::new(repeat))).chain(copies).collect()
}

/// The memory of a loop, while its slots are bound.
struct LoopMemory<'a> {
    k: &'a CustomNode,
    l: &'a Loop,
    device: &'a DeviceName,
    /// Buffers of the surrounding plan.
    buffers: &'a mut Vec<Option<BufferInfo>>,
    binds: Vec<Option<Bind>>,
    /// Slots of the surrounding plan that the loop writes.
    writes: Vec<usize>,
}

impl LoopMemory<'_> {
    /// Adds an intermediate to the surrounding plan.
    fn intermediate(&mut self, dtype: DType, len: usize) -> usize {
        let device = self.device.clone();
        self.buffers.push(Some(BufferInfo { dtype, len, device, role: UNPLACED }));
        self.buffers.len() - 1
    }

    /// Returns the memory of a carry between iterations. `last` is its memory after the loop.
    fn carried(&mut self, last: SlotRef, stack: Option<usize>) -> Carried {
        let SlotRef { slot: last, dtype, len, .. } = last;
        if let Some(slot) = stack {
            return Carried::Stack(Stack { slot, bytes: len * dtype.itemsize() });
        }
        // Every iteration but the last writes an intermediate.
        let count = self.l.count;
        let two = [0, 1].map(|i| if count > i + 1 { self.intermediate(dtype, len) } else { last });
        self.writes.extend(two.into_iter().filter(|n| *n != last).chain([last]));
        Carried::DoubleBuffer(two)
    }

    /// Returns the copy of a carry of the last iteration out of the stack that holds it.
    fn copy_of_last(&self, to: SlotRef, stack: usize) -> Command {
        let start = if self.l.reverse { 0 } else { (self.l.count - 1) * to.len };
        let offset = start * to.dtype.itemsize();
        Command::Copy { to, from: SlotRef { slot: stack, offset, ..to } }
    }

    /// Binds the inputs and the intermediates of the body.
    fn bind_inputs(&mut self, plan: &Plan, carried: &[Carried]) {
        let arenas: Vec<usize> =
            plan.arenas.iter().map(|(bytes, _)| self.intermediate(DType::U8, *bytes)).collect();
        self.writes.extend(&arenas);
        for (slot, info) in plan.buffers.iter().enumerate().filter(|(_, b)| b.is_used()) {
            self.binds[slot] = Some(match info.role {
                Role::Input(i) if i < self.l.carries => {
                    Bind::Before { first: self.k.reads[i], then: carried[i] }
                }
                Role::Input(i) if self.l.is_element(i) => {
                    Bind::Each(Stack { slot: self.k.reads[i], bytes: info.bytes() })
                }
                Role::Input(i) => Bind::Fixed(self.k.reads[i], 0),
                Role::Temporary { arena, offset } => Bind::Fixed(arenas[arena], offset),
                Role::Output | Role::Values => continue,
            });
        }
    }
}

/// Plans one iteration. Returns the plan and the slot of each output. Every output has a slot of
/// its own, except that a stack may hold a carry. An output that is an input is copied.
fn body(
    l: &Loop,
    kept: &[usize],
    device: &DeviceName,
    traits_of: &dyn Fn(&DeviceName) -> DeviceTraits,
) -> (Plan, Vec<usize>) {
    let params = l.body.toposort();
    let params = params.iter().filter_map(UOp::as_param);
    let inputs = params.map(|p| p.slot + 1).max().unwrap_or(0);
    let mut outputs: Vec<UOp> = kept.iter().filter_map(|i| l.body.src().get(*i)).cloned().collect();
    loop {
        let request = PlanRequest {
            outputs: &outputs,
            devices: &vec![device.clone(); outputs.len()],
            donated: &vec![None; outputs.len()],
            inputs,
            traits_of,
        };
        let plan = plan(&request);
        let mut slots: Vec<usize> = Vec::new();
        let mut wrong: Vec<usize> = Vec::new();
        for (i, o) in plan.outputs.iter().enumerate() {
            let o = o.as_ref().expect("a loop makes no value without elements");
            // A carry shares its slot with one stack at most.
            let mut before = slots.iter().enumerate().filter(|(_, n)| **n == o.buffer);
            let shared = match (before.next(), before.next()) {
                (None, _) => false,
                (Some((carry, _)), None) => carry >= l.carries || i < l.carries,
                _ => true,
            };
            if shared || o.part.is_some() || plan.buffers[o.buffer].role != Role::Output {
                wrong.push(i);
            }
            slots.push(o.buffer);
        }
        if wrong.is_empty() {
            return (plan, slots);
        }
        wrong.into_iter().for_each(|i| outputs[i] = outputs[i].copied(device));
    }
}

/// Returns the outputs of a loop that are read.
pub fn used_outputs(nodes: &[UOp], of: &UOp) -> FxHashSet<usize> {
    let outputs = nodes.iter().filter_map(UOp::as_output).filter(|output| output.of == of);
    outputs.map(|output| output.number).collect()
}
