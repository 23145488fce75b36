//! Loops in plans. The body of a loop is planned once, like any graph; which memory each of its
//! buffers is, depends on the run.
//!
//! The elements of a run and what is stacked of it are parts of the stacks, at an offset. A carry
//! is written to one of two buffers in turn, and read from the other in the next run; where it is
//! stacked too, it is written there alone, and read from the part of the run before. No run copies
//! anything.
//!
//! ```text
//! scan(|h, x| (h·W + x, h·W + x))     for t in 0..T:  kernel(ys[t], t == 0 ? first : ys[t-1], W, xs[t])
//! ```

use super::ranges::UserKernel;
use super::{BufferInfo, KernelLimits, Plan, Role, Step, UNPLACED, plan};
use crate::dtype::DType;
use crate::ir::{Arg, DeviceName, Loop, Op, UOp};
use rustc_hash::FxHashSet;

/// A loop of a plan.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// One run.
    pub plan: Plan,
    /// How many runs.
    pub count: usize,
    /// Whether the last element comes first.
    pub reverse: bool,
    /// Which memory each buffer of a run is.
    binds: Vec<Option<Bind>>,
    /// Buffers of the plan around it that it reads.
    pub reads: Vec<usize>,
    /// Those that it writes, its temporaries among them.
    pub writes: Vec<usize>,
}

/// Memory of a run, by buffers of the plan around it.
#[derive(Clone, Debug)]
enum Bind {
    /// The same in each run, from a byte on.
    Fixed(usize, usize),
    /// A part for each run.
    Each(usize),
    /// A carry before the run.
    Before { first: usize, then: Carried },
    /// A carry after the run.
    After { then: Carried, last: usize },
}

/// Where carries are between runs.
#[derive(Clone, Copy, Debug)]
enum Carried {
    /// In one of two buffers, in turn.
    Turns([usize; 2]),
    /// In the stack of all.
    Stack(usize),
}

impl Repeat {
    /// The buffer of the plan around it that a buffer of a run is, and from which byte on.
    pub(crate) fn memory(&self, run: usize, buffer: usize) -> (usize, usize) {
        let info = &self.plan.buffers[buffer];
        let bytes = info.len * info.dtype.itemsize();
        let part = |run: usize| bytes * if self.reverse { self.count - 1 - run } else { run };
        match self.binds[buffer].as_ref().expect("a step names buffers that exist") {
            Bind::Fixed(n, offset) => (*n, *offset),
            Bind::Each(n) => (*n, part(run)),
            Bind::Before { first, .. } if run == 0 => (*first, 0),
            Bind::Before { then: Carried::Turns(two), .. } => (two[(run - 1) % 2], 0),
            Bind::Before { then: Carried::Stack(n), .. } => (*n, part(run - 1)),
            Bind::After { then: Carried::Turns(_), last } if run + 1 == self.count => (*last, 0),
            Bind::After { then: Carried::Turns(two), .. } => (two[run % 2], 0),
            Bind::After { then: Carried::Stack(n), .. } => (*n, part(run)),
        }
    }
}

impl Repeat {
    /// Every buffer of the plan around it that a buffer of a run is in some run, with the last byte
    /// that it begins at.
    pub(crate) fn reach(&self, buffer: usize) -> Vec<(usize, usize)> {
        // Runs 0, 1 and 2 see each kind of memory before and after a run, and both turns; the last
        // sees what it alone writes. A part of a stack is furthest in the first run or in the last
        // one.
        let mut runs = vec![0, 1, 2, self.count.saturating_sub(1)];
        runs.retain(|run| *run < self.count);
        let mut all: Vec<(usize, usize)> = Vec::new();
        for (n, offset) in runs.into_iter().map(|run| self.memory(run, buffer)) {
            match all.iter_mut().find(|a| a.0 == n) {
                Some(known) => known.1 = known.1.max(offset),
                None => all.push((n, offset)),
            }
        }
        all
    }
}

/// A buffer of a plan from a byte on, as one thing that runs sees it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The buffer.
    pub buffer: usize,
    /// The byte where it begins.
    pub offset: usize,
    /// Element dtype.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
}

/// One thing that runs, a kernel or a copy, with its memory: the arguments of a kernel, or target
/// and source of a copy.
pub struct Launch<'a> {
    /// The step.
    pub step: &'a Step,
    /// Its memory.
    pub pieces: Vec<Piece>,
}

impl Plan {
    /// All that runs, in order, with loops written out.
    pub fn launches(&self) -> Vec<Launch<'_>> {
        self.steps.iter().flat_map(|step| self.launches_of(step)).collect()
    }
    /// All that runs for one step, with loops written out.
    pub(crate) fn launches_of<'a>(&'a self, step: &'a Step) -> Vec<Launch<'a>> {
        let mut all = Vec::new();
        self.add_launches(std::slice::from_ref(step), &|n| (n, 0), &mut all);
        all
    }
    fn add_launches<'a>(
        &'a self,
        steps: &'a [Step],
        memory: &dyn Fn(usize) -> (usize, usize),
        all: &mut Vec<Launch<'a>>,
    ) {
        let piece = |n: &usize| {
            let (buffer, offset) = memory(*n);
            Piece { buffer, offset, dtype: self.buffers[*n].dtype, len: self.buffers[*n].len }
        };
        for step in steps {
            match step {
                Step::Kernel { buffers, .. } => {
                    all.push(Launch { step, pieces: buffers.iter().map(piece).collect() })
                }
                Step::Copy { to, from, start } => {
                    let (to, mut from) = (piece(to), piece(from));
                    from.offset += start * to.dtype.itemsize();
                    from.len = to.len;
                    all.push(Launch { step, pieces: vec![to, from] });
                }
                Step::Loop(repeat) => {
                    for run in 0..repeat.count {
                        let inner = |n: usize| {
                            let (buffer, offset) = repeat.memory(run, n);
                            let (outer, start) = memory(buffer);
                            (outer, start + offset)
                        };
                        repeat.plan.add_launches(&repeat.plan.steps, &inner, all);
                    }
                }
            }
        }
    }
    /// Every kernel once, those of loops too.
    pub fn kernels(&self) -> Vec<(&UOp, &DeviceName)> {
        let mut all = Vec::new();
        for step in &self.steps {
            match step {
                Step::Kernel { ast, device, .. } => all.push((ast, device)),
                Step::Copy { .. } => {}
                Step::Loop(repeat) => all.extend(repeat.plan.kernels()),
            }
        }
        all
    }
}

/// Plans a loop: the step, with what has to be copied after it. `asked` are its outputs that
/// somebody reads; buffers for what is in between are added.
pub fn repeat(
    k: &UserKernel,
    l: &Loop,
    asked: &FxHashSet<usize>,
    device: &DeviceName,
    buffers: &mut Vec<Option<BufferInfo>>,
    room: &dyn Fn(&DeviceName) -> KernelLimits,
) -> Vec<Step> {
    let kept: Vec<usize> =
        (0..l.body.src().len()).filter(|i| *i < l.carries || asked.contains(i)).collect();
    let (plan, numbers) = body(l, &kept, device, room);
    // For each carry the stack that has all of it.
    let stack_of = |carry: usize| {
        (l.carries..kept.len()).find(|j| numbers[*j] == numbers[carry]).map(|j| k.writes[kept[j]])
    };
    let mut new = |dtype: DType, len: usize| {
        buffers.push(Some(BufferInfo { dtype, len, device: device.clone(), role: UNPLACED }));
        buffers.len() - 1
    };
    let mut binds: Vec<Option<Bind>> = vec![None; plan.buffers.len()];
    let mut own: Vec<usize> = Vec::new();
    let mut copies: Vec<Step> = Vec::new();
    let mut carried: Vec<Carried> = Vec::new();
    for (i, &last) in k.writes.iter().enumerate().take(l.carries) {
        let (dtype, len) = (l.body.src()[i].dtype(), l.body.src()[i].numel());
        let then = match stack_of(i) {
            Some(stack) => {
                if asked.contains(&i) {
                    let start = if l.reverse { 0 } else { (l.count - 1) * len };
                    copies.push(Step::Copy { to: last, from: stack, start });
                }
                Carried::Stack(stack)
            }
            None => {
                // Runs but the last write between.
                let two =
                    [0, 1].map(|turn| if l.count > turn + 1 { new(dtype, len) } else { last });
                own.extend(two.into_iter().filter(|n| *n != last).chain([last]));
                Carried::Turns(two)
            }
        };
        binds[numbers[i]] = Some(Bind::After { then, last });
        carried.push(then);
    }
    for (j, &i) in kept.iter().enumerate().skip(l.carries) {
        own.push(k.writes[i]);
        // What is a carry too has its place.
        binds[numbers[j]].get_or_insert(Bind::Each(k.writes[i]));
    }
    let arenas: Vec<usize> = plan.arenas.iter().map(|(bytes, _)| new(DType::U8, *bytes)).collect();
    own.extend(&arenas);
    for (n, info) in plan.buffers.iter().enumerate().filter(|(_, info)| info.dtype != DType::VOID) {
        match info.role {
            Role::Input(i) if i < l.carries => {
                binds[n] = Some(Bind::Before { first: k.reads[i], then: carried[i] })
            }
            Role::Input(i) if l.is_element(i) => binds[n] = Some(Bind::Each(k.reads[i])),
            Role::Input(i) => binds[n] = Some(Bind::Fixed(k.reads[i], 0)),
            Role::Temporary { arena, offset } => {
                binds[n] = Some(Bind::Fixed(arenas[arena], offset))
            }
            Role::Output | Role::Values => {}
        }
    }
    let mut steps = vec![Step::Loop(Box::new(Repeat {
        plan,
        count: l.count,
        reverse: l.reverse,
        binds,
        reads: k.reads.clone(),
        writes: own,
    }))];
    steps.extend(copies);
    steps
}

/// The plan of a run, and the buffer of each output. Each has one of its own, but for a stack that
/// has a carry. What comes out as it went in is copied.
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
            // A carry has one stack at most that stands for it.
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

/// The outputs of loops that somebody reads.
pub fn asked(nodes: &[UOp], of: &UOp) -> FxHashSet<usize> {
    let number = |u: &UOp| match u.arg() {
        Arg::Output(i) if u.op() == Op::Output && u.src()[0] == *of => Some(*i),
        _ => None,
    };
    nodes.iter().filter_map(number).collect()
}
