//! Executes instructions for all threads of a workgroup at once. Element `l` of value `v` in thread
//! `t` is at `v.at * threads + t * lanes + l`, so that an elementwise op runs over one stretch of
//! the register file whatever the number of threads and lanes.

mod access;

use super::compile::{Instr, Int, MemoryAccess, Size};
use super::shadow::{Shadow, SharedMemory};
use super::{
    Fault, FaultLocation, Interp, InterpLaunch, Memory, Options, ThreadPosition, alu, warp,
};
use crate::dtype::{Const, DType};
use crate::ir::{SpecialKind, TensorCore};
use crate::target::Target;
use std::cell::Cell;

/// Threads per warp, as in CUDA.
const WARP: usize = Target::interp().warp;

/// An open loop or masked region.
#[derive(Clone, Copy, Default)]
struct Frame {
    counter: i64,
    trips: i64,
    /// The mask level outside.
    level: usize,
    /// True if all active threads have the same trip count.
    uniform: bool,
}

struct Machine<'a> {
    interp: &'a Interp,
    bufs: &'a [Memory<'a>],
    launch: InterpLaunch,
    /// Threads of a workgroup.
    width: usize,
    regs: Vec<u64>,
    frames: Vec<Frame>,
    /// The active threads, `width` entries per level. Level 0 has all of them and is not read.
    masks: Vec<bool>,
    level: usize,
    shared: Vec<SharedMemory>,
    /// Access histories of global and shared memory, if races are detected.
    shadows: Option<(Vec<Shadow>, Vec<Shadow>)>,
    epoch: u64,
    /// The epoch in which the current workgroup began.
    begin: u64,
    group: [usize; 3],
    chunk: usize,
}

pub(super) fn run(
    interp: &Interp,
    bufs: &[Memory<'_>],
    launch: InterpLaunch,
    options: &Options<'_>,
) -> Result<(), Fault> {
    let width = launch.local.iter().product::<usize>();
    let shadows = options.races.then(|| {
        let globals = interp.globals.iter().map(|g| Shadow::new(g.len, true)).collect();
        (globals, interp.shared.iter().map(|len| Shadow::new(*len, false)).collect())
    });
    let mut m = Machine {
        interp,
        bufs,
        launch,
        width,
        regs: vec![0; interp.lanes * width],
        frames: vec![Frame::default(); interp.depth],
        masks: vec![true; (interp.depth + 1) * width],
        level: 0,
        shared: interp.shared.iter().map(|len| SharedMemory::new(*len)).collect(),
        shadows,
        epoch: 0,
        begin: 0,
        group: [0; 3],
        chunk: 0,
    };
    for c in &interp.consts {
        m.fill(c.at, c.lanes, c.bits);
    }
    for v in &interp.vars {
        let given = options.vars.iter().find(|(name, _)| *name == v.name);
        let Some((_, value)) = given else {
            return Err(Fault::Launch(format!("variable {} has no value", v.name)));
        };
        if !(v.min..=v.max).contains(value) {
            return Err(Fault::Launch(format!(
                "variable {} is {value}, outside {}..={}",
                v.name, v.min, v.max
            )));
        }
        m.fill(v.at, 1, Const::Int(*value).cast(DType::I64, v.dtype).to_bits(v.dtype));
    }
    if width == 0 {
        return Ok(());
    }
    for chunk in 0..launch.chunks {
        for z in 0..launch.grid[2] {
            for y in 0..launch.grid[1] {
                for x in 0..launch.grid[0] {
                    (m.group, m.chunk) = ([x, y, z], chunk);
                    m.epoch += 1;
                    m.begin = m.epoch;
                    m.workgroup()?;
                }
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn int(bits: u64, wide: bool) -> i64 {
    if wide { bits as i64 } else { bits as u32 as i32 as i64 }
}

#[inline(always)]
fn bytes<const N: usize>(cells: &[Cell<u8>]) -> [u8; N] {
    let cells: &[Cell<u8>; N] =
        cells.first_chunk().expect("checked: the buffer holds its elements");
    std::array::from_fn(|i| cells[i].get())
}

#[inline(always)]
fn read(memory: &[Cell<u8>], size: Size, at: usize) -> u64 {
    match size {
        Size::Bool => (memory[at].get() != 0) as u64,
        Size::B1 => memory[at].get() as u64,
        Size::B2 => u16::from_le_bytes(bytes(&memory[at * 2..])) as u64,
        Size::B4 => u32::from_le_bytes(bytes(&memory[at * 4..])) as u64,
        Size::B8 => u64::from_le_bytes(bytes(&memory[at * 8..])),
    }
}

#[inline(always)]
fn write(memory: &[Cell<u8>], size: Size, at: usize, bits: u64) {
    let n = match size {
        Size::Bool | Size::B1 => 1,
        Size::B2 => 2,
        Size::B4 => 4,
        Size::B8 => 8,
    };
    for (cell, byte) in memory[at * n..][..n].iter().zip(bits.to_le_bytes()) {
        cell.set(byte);
    }
}

impl Machine<'_> {
    fn fill(&mut self, at: u32, lanes: u32, bits: u64) {
        let w = self.width;
        self.regs[at as usize * w..][..lanes as usize * w].fill(bits);
    }

    #[inline(always)]
    fn active(&self, t: usize) -> bool {
        self.level == 0 || self.masks[self.level * self.width + t]
    }

    fn local_id(&self, t: usize) -> [usize; 3] {
        let [x, y, _] = self.launch.local;
        [t % x, t / x % y, t / x / y]
    }

    fn thread_position(&self, t: usize) -> ThreadPosition {
        ThreadPosition { group: self.group, local: self.local_id(t), chunk: self.chunk }
    }

    #[cold]
    fn location(&self, a: &MemoryAccess, index: i64, t: usize, pc: usize) -> Box<FaultLocation> {
        let buffer = format!("{} {}", if a.global { "global" } else { "shared" }, a.buf);
        Box::new(FaultLocation {
            node: format!("{:?}", self.interp.nodes[pc]),
            buffer,
            index,
            thread: self.thread_position(t),
        })
    }

    /// Runs all instructions for one workgroup.
    fn workgroup(&mut self) -> Result<(), Fault> {
        let interp = self.interp;
        let (code, w) = (interp.code.as_slice(), self.width);
        let mut pc = 0;
        while let Some(instr) = code.get(pc) {
            match instr {
                Instr::Fast { f, out, src, lanes } => {
                    let n = *lanes as usize * w;
                    let (past, here) = self.regs.split_at_mut(*out as usize * w);
                    // A value's register is after those of its operands, which are thus all in the
                    // first part.
                    let [a, b, c] = *src;
                    f(
                        &mut here[..n],
                        &past[a as usize * w..],
                        &past[b as usize * w..],
                        &past[c as usize * w..],
                    );
                }
                Instr::Slow { op, dtype, from, arity, out, src } => {
                    let n = dtype.lanes as usize * w;
                    let (past, here) = self.regs.split_at_mut(*out as usize * w);
                    let src = src.map(|s| &past[s as usize * w..]);
                    alu::slow(*op, *dtype, *from, *arity as usize, &mut here[..n], src);
                }
                Instr::Load { access, out, mask } => self.load(access, *out, *mask, pc)?,
                Instr::Store { access, value, mask } => self.store(access, *value, *mask, pc)?,
                Instr::Set { out, value, lanes } => self.set(*out, *value, *lanes as usize),
                Instr::Range { out, extent, frame, end } => {
                    if !self.enter_loop(*out, *extent, *frame) {
                        pc = *end as usize;
                    }
                }
                Instr::EndRange { out, extent, frame, begin } => {
                    if self.next_iteration(*out, *extent, *frame) {
                        pc = *begin as usize;
                    }
                }
                Instr::If { cond, frame, end } => {
                    if !self.enter_masked(*cond, *frame) {
                        pc = *end as usize;
                    }
                }
                Instr::EndIf { frame } => self.level = self.frames[*frame as usize].level,
                Instr::Barrier => self.barrier(pc)?,
                Instr::Special { out, kind, dim } => self.special(*out, *kind, *dim as usize),
                Instr::Vectorize { out, src } => self.vectorize(*out, src),
                Instr::Wmma { core, out, src } => self.wmma(core, *out, *src, pc)?,
                Instr::Shuffle { out, src, lanes, bits } => {
                    self.shuffle(*out, *src, *lanes as usize, *bits, pc)?
                }
                Instr::Gep { out, src, lanes, picks } => {
                    self.pick_lanes(*out, *src, *lanes as usize, picks)
                }
            }
            pc += 1;
        }
        Ok(())
    }

    /// Writes an accumulator in active threads.
    fn set(&mut self, out: u32, value: u32, lanes: usize) {
        let w = self.width;
        let (out, value) = (out as usize * w, value as usize * w);
        if self.level == 0 {
            return self.regs.copy_within(value..value + lanes * w, out);
        }
        for t in (0..w).filter(|t| self.masks[self.level * w + t]) {
            self.regs.copy_within(value + t * lanes..value + (t + 1) * lanes, out + t * lanes);
        }
    }

    /// Starts a loop. `false` if no thread runs an iteration.
    fn enter_loop(&mut self, out: u32, extent: Int, frame: u32) -> bool {
        let (least, most) = self.trip_counts(extent);
        self.frames[frame as usize] =
            Frame { counter: 0, trips: most, level: self.level, uniform: least == most };
        if most <= 0 {
            return false;
        }
        if least != most {
            self.level += 1;
            self.mask_trips(frame, extent);
        }
        self.fill(out, 1, 0);
        true
    }

    /// Starts the next iteration of a loop. `false` after the last one.
    fn next_iteration(&mut self, out: u32, extent: Int, frame: u32) -> bool {
        let f = &mut self.frames[frame as usize];
        f.counter += 1;
        let (counter, level, uniform) = (f.counter, f.level, f.uniform);
        if counter >= f.trips {
            self.level = level;
            return false;
        }
        if !uniform {
            self.mask_trips(frame, extent);
        }
        self.fill(out, 1, counter as u64 & if extent.wide { u64::MAX } else { u32::MAX as u64 });
        true
    }

    /// Starts a masked region. `false` if no thread is active in it.
    fn enter_masked(&mut self, cond: u32, frame: u32) -> bool {
        let w = self.width;
        self.frames[frame as usize].level = self.level;
        let (mut any, mut all) = (false, true);
        for t in 0..w {
            let on = self.active(t) && self.regs[cond as usize * w + t] != 0;
            self.masks[(self.level + 1) * w + t] = on;
            any |= on;
            all &= on;
        }
        self.level += usize::from(any && !all);
        any
    }

    /// Joins scalars or vectors, each a register and its lanes, to a vector.
    fn vectorize(&mut self, out: u32, src: &[(u32, u32)]) {
        let w = self.width;
        let total: usize = src.iter().map(|(_, lanes)| *lanes as usize).sum();
        let (past, here) = self.regs.split_at_mut(out as usize * w);
        let mut first = 0;
        for (s, lanes) in src {
            let (from, lanes) = (*s as usize * w, *lanes as usize);
            for t in 0..w {
                here[t * total + first..t * total + first + lanes]
                    .copy_from_slice(&past[from + t * lanes..from + (t + 1) * lanes]);
            }
            first += lanes;
        }
    }

    /// Picks lanes of a vector of `lanes` lanes.
    fn pick_lanes(&mut self, out: u32, src: u32, lanes: usize, picks: &[u32]) {
        let w = self.width;
        let (past, here) = self.regs.split_at_mut(out as usize * w);
        for t in 0..w {
            for (l, p) in picks.iter().enumerate() {
                here[t * picks.len() + l] = past[src as usize * w + t * lanes + *p as usize];
            }
        }
    }

    /// Writes the index of the group, of the thread in its group, or of the chunk.
    fn special(&mut self, out: u32, kind: SpecialKind, dim: usize) {
        for t in 0..self.width {
            self.regs[out as usize * self.width + t] = match kind {
                SpecialKind::Group => self.group[dim],
                SpecialKind::Local => self.local_id(t)[dim],
                SpecialKind::Thread => self.chunk,
            } as u64;
        }
    }

    /// Runs a barrier, which all threads must reach.
    fn barrier(&mut self, pc: usize) -> Result<(), Fault> {
        if let Some(t) = (0..self.width).find(|t| !self.active(*t)) {
            return Err(Fault::DivergentBarrier(self.absent_thread(t, pc)));
        }
        self.epoch += 1;
        Ok(())
    }

    /// Returns the location of a barrier, with a thread that does not reach it.
    #[cold]
    fn absent_thread(&self, t: usize, pc: usize) -> Box<FaultLocation> {
        let node = format!("{:?}", self.interp.nodes[pc]);
        Box::new(FaultLocation {
            node,
            buffer: String::new(),
            index: 0,
            thread: self.thread_position(t),
        })
    }

    /// Computes the matrix product of each warp; consecutive threads form a warp.
    fn wmma(&mut self, core: &TensorCore, out: u32, src: [u32; 3], pc: usize) -> Result<(), Fault> {
        let w = self.width;
        if !w.is_multiple_of(core.threads()) {
            let msg = format!(
                "a workgroup of {w} threads is not a multiple of the warp size {}",
                core.threads()
            );
            return Err(Fault::Launch(msg));
        }
        if let Some(t) = (0..w).find(|t| !self.active(*t)) {
            return Err(Fault::DivergentBarrier(self.absent_thread(t, pc)));
        }
        let (past, here) = self.regs.split_at_mut(out as usize * w);
        for first in (0..w).step_by(core.threads()) {
            warp::product(core, first, &mut here[..], src.map(|s| &past[s as usize * w..]));
        }
        Ok(())
    }

    /// Runs a warp shuffle. Reading the value of an inactive thread is undefined, and thus a fault.
    fn shuffle(
        &mut self,
        out: u32,
        src: u32,
        lanes: usize,
        bits: usize,
        pc: usize,
    ) -> Result<(), Fault> {
        let w = self.width;
        if let Some(t) = (0..w).find(|t| t ^ bits >= w) {
            let msg = format!(
                "thread {t} shuffles with thread {}, but the workgroup has {w} threads",
                t ^ bits
            );
            return Err(Fault::Launch(msg));
        }
        // As in CUDA, a workgroup is a number of whole warps, or a part of one.
        if bits >= WARP || (w > WARP && !w.is_multiple_of(WARP)) {
            return Err(Fault::Launch(format!(
                "a shuffle over {bits} threads in a workgroup of {w} leaves a warp of {WARP}"
            )));
        }
        if let Some(t) = (0..w).find(|t| !self.active(*t)) {
            return Err(Fault::DivergentBarrier(self.absent_thread(t, pc)));
        }
        let (past, here) = self.regs.split_at_mut(out as usize * w);
        let from = &past[src as usize * w..];
        for t in 0..w {
            let other = t ^ bits;
            here[t * lanes..(t + 1) * lanes]
                .copy_from_slice(&from[other * lanes..(other + 1) * lanes]);
        }
        Ok(())
    }

    /// Returns the minimum and the maximum trip count of the active threads.
    fn trip_counts(&self, extent: Int) -> (i64, i64) {
        let at = extent.at as usize * self.width;
        (0..self.width).filter(|t| self.active(*t)).fold((i64::MAX, i64::MIN), |(lo, hi), t| {
            // A negative trip count means no trips.
            let n = int(self.regs[at + t], extent.wide).max(0);
            (lo.min(n), hi.max(n))
        })
    }

    /// Updates the mask of a loop whose threads have different trip counts.
    fn mask_trips(&mut self, frame: u32, extent: Int) {
        let (w, f) = (self.width, self.frames[frame as usize]);
        for t in 0..w {
            let outside = f.level == 0 || self.masks[f.level * w + t];
            let n = int(self.regs[extent.at as usize * w + t], extent.wide);
            self.masks[(f.level + 1) * w + t] = outside && f.counter < n;
        }
    }
}
