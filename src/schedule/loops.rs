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

use super::ranges::UserKernel;
use super::{BufferInfo, Command, KernelLimits, Plan, Role, SlotRef, UNPLACED, plan};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Arg, DeviceName, Loop, Op, UOp};
use rustc_hash::FxHashSet;

/// A loop of a plan.
#[derive(Clone, Debug)]
pub struct Repeat<P = UOp> {
    /// Commands of one iteration, over the slots of the body.
    pub body: Vec<Command<P>>,
    /// Iterations.
    pub count: usize,
    /// True if the last element comes first.
    pub reverse: bool,
    /// Memory of each slot of the body.
    binds: Vec<Option<Bind>>,
    /// Slots of the surrounding plan that the loop reads.
    pub reads: Vec<usize>,
    /// Slots that it writes, its intermediates included.
    pub writes: Vec<usize>,
}

/// Memory of a body slot, as a slot of the surrounding plan.
#[derive(Clone, Debug)]
enum Bind {
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
struct Stack {
    slot: usize,
    /// Bytes of one part.
    bytes: usize,
}

/// Memory of a carry between iterations.
#[derive(Clone, Copy, Debug)]
enum Carried {
    /// Two buffers in alternation.
    DoubleBuffer([usize; 2]),
    /// The stack of all values.
    Stack(Stack),
}

impl<P> Repeat<P> {
    /// The view of the surrounding plan's memory that a view of a body slot is in an iteration.
    pub(crate) fn resolve(&self, iteration: usize, r: SlotRef) -> SlotRef {
        let (slot, offset) = self.memory(iteration, r.slot);
        SlotRef { slot, offset: offset + r.offset, ..r }
    }

    /// Slot of the surrounding plan, and offset, of a body slot in an iteration.
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

    /// Every slot of the surrounding plan that a body slot is in some iteration, with the largest
    /// offset.
    pub(crate) fn reach(&self, slot: usize) -> Vec<(usize, usize)> {
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

    /// The same loop with other programs.
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

/// Plans a loop: its command, and the copies that follow it. `asked` are its outputs that are read.
/// Slots for its intermediates are added to `buffers`.
pub fn repeat(
    k: &UserKernel,
    l: &Loop,
    asked: &FxHashSet<usize>,
    device: &DeviceName,
    buffers: &mut Vec<Option<BufferInfo>>,
    room: &dyn Fn(&DeviceName) -> KernelLimits,
) -> Vec<Command> {
    let kept: Vec<usize> =
        (0..l.body.src().len()).filter(|i| *i < l.carries || asked.contains(i)).collect();
    let (plan, numbers) = body(l, &kept, device, room);
    // The stack that holds a carry of all iterations.
    let stack_of = |carry: usize| {
        (l.carries..kept.len()).find(|j| numbers[*j] == numbers[carry]).map(|j| k.writes[kept[j]])
    };
    let mut new = |dtype: DType, len: usize| {
        buffers.push(Some(BufferInfo { dtype, len, device: device.clone(), role: UNPLACED }));
        buffers.len() - 1
    };
    let bytes_of = |n: usize| plan.buffers[n].len * plan.buffers[n].dtype.itemsize();
    let mut binds: Vec<Option<Bind>> = vec![None; plan.buffers.len()];
    let mut own: Vec<usize> = Vec::new();
    let mut copies: Vec<Command> = Vec::new();
    let mut carried: Vec<Carried> = Vec::new();
    for (i, &last) in k.writes.iter().enumerate().take(l.carries) {
        let (dtype, len) = (l.body.src()[i].dtype(), l.body.src()[i].numel());
        let then = match stack_of(i) {
            Some(stack) => {
                if asked.contains(&i) {
                    let start = if l.reverse { 0 } else { (l.count - 1) * len };
                    let to = SlotRef { slot: last, offset: 0, dtype, len };
                    let offset = start * dtype.itemsize();
                    copies.push(Command::Copy { to, from: SlotRef { slot: stack, offset, ..to } });
                }
                Carried::Stack(Stack { slot: stack, bytes: len * dtype.itemsize() })
            }
            None => {
                // Every iteration but the last writes an intermediate.
                let two = [0, 1].map(|i| if l.count > i + 1 { new(dtype, len) } else { last });
                own.extend(two.into_iter().filter(|n| *n != last).chain([last]));
                Carried::DoubleBuffer(two)
            }
        };
        binds[numbers[i]] = Some(Bind::After { then, last });
        carried.push(then);
    }
    for (j, &i) in kept.iter().enumerate().skip(l.carries) {
        own.push(k.writes[i]);
        // A stack that holds a carry is bound already.
        let stack = Stack { slot: k.writes[i], bytes: bytes_of(numbers[j]) };
        binds[numbers[j]].get_or_insert(Bind::Each(stack));
    }
    let arenas: Vec<usize> = plan.arenas.iter().map(|(bytes, _)| new(DType::U8, *bytes)).collect();
    own.extend(&arenas);
    for (n, info) in plan.buffers.iter().enumerate().filter(|(_, info)| info.dtype != DType::VOID) {
        match info.role {
            Role::Input(i) if i < l.carries => {
                binds[n] = Some(Bind::Before { first: k.reads[i], then: carried[i] })
            }
            Role::Input(i) if l.is_element(i) => {
                binds[n] = Some(Bind::Each(Stack { slot: k.reads[i], bytes: bytes_of(n) }))
            }
            Role::Input(i) => binds[n] = Some(Bind::Fixed(k.reads[i], 0)),
            Role::Temporary { arena, offset } => {
                binds[n] = Some(Bind::Fixed(arenas[arena], offset))
            }
            Role::Output | Role::Values => {}
        }
    }
    let mut commands = vec![Command::Repeat(Box::new(Repeat {
        body: plan.commands,
        count: l.count,
        reverse: l.reverse,
        binds,
        reads: k.reads.clone(),
        writes: own,
    }))];
    commands.extend(copies);
    commands
}

/// The plan of one iteration, and the slot of each output. Every output has a slot of its own,
/// except that a stack may hold a carry. An output that is an input is copied.
fn body(
    l: &Loop,
    kept: &[usize],
    device: &DeviceName,
    room: &dyn Fn(&DeviceName) -> KernelLimits,
) -> (Plan, Vec<usize>) {
    let inputs = l
        .body
        .toposort()
        .iter()
        .filter_map(|u| if let Arg::Param { slot, .. } = u.arg() { Some(slot + 1) } else { None })
        .max();
    let mut outputs: Vec<UOp> = kept.iter().map(|i| l.body.src()[*i].clone()).collect();
    loop {
        let devices = vec![device.clone(); outputs.len()];
        let plan = plan(&outputs, &devices, &vec![None; outputs.len()], inputs.unwrap_or(0), room);
        let mut numbers: Vec<usize> = Vec::new();
        let mut wrong: Vec<usize> = Vec::new();
        for (i, o) in plan.outputs.iter().enumerate() {
            let o = o.as_ref().expect("a loop makes no value without elements");
            // A carry shares its slot with one stack at most.
            let before = numbers.iter().enumerate().filter(|(_, n)| **n == o.buffer).map(|b| b.0);
            let before: Vec<usize> = before.collect();
            let shared = match before[..] {
                [] => false,
                [carry] => carry >= l.carries || i < l.carries,
                _ => true,
            };
            if shared || o.part.is_some() || plan.buffers[o.buffer].role != Role::Output {
                wrong.push(i);
            }
            numbers.push(o.buffer);
        }
        if wrong.is_empty() {
            return (plan, numbers);
        }
        wrong.into_iter().for_each(|i| outputs[i] = outputs[i].copied(device));
    }
}

/// Outputs of a loop that are read.
pub fn asked(nodes: &[UOp], of: &UOp) -> FxHashSet<usize> {
    let number = |u: &UOp| match u.arg() {
        Arg::Output(i) if u.op() == Op::Output && u.operand() == of => Some(*i),
        _ => None,
    };
    nodes.iter().filter_map(number).collect()
}
