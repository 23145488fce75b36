//! Loads and stores of the interpreter: bounds checks, masks of accesses and of lanes, and the
//! record of accesses for the detection of races.

use super::super::Fault;
use super::super::compile::{Mask, MemoryAccess};
use super::super::shadow::AccessContext;
use super::{Machine, int, read, write};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

impl Machine<'_> {
    /// Returns the index of the first of some elements of an access, after the bounds check.
    #[inline(always)]
    fn element(
        &self,
        a: &MemoryAccess,
        lanes: &Range<usize>,
        t: usize,
        pc: usize,
    ) -> Result<usize, Fault> {
        let index = int(self.regs[a.idx.at as usize * self.width + t], a.idx.wide);
        let index = index.wrapping_add(lanes.start as i64);
        if index as u64 > a.len as u64 || a.len as u64 - (index as u64) < lanes.len() as u64 {
            return Err(Fault::OutOfBounds {
                at: self.location(a, index, t, pc),
                lanes: lanes.len(),
                len: a.len,
            });
        }
        Ok(index as usize)
    }

    /// Returns the lanes of an access that a thread executes, as runs: all or none under one mask,
    /// each on its own where it has a mask.
    fn unmasked(
        &self,
        a: &MemoryAccess,
        mask: Option<Mask>,
        t: usize,
    ) -> SmallVec<[Range<usize>; 1]> {
        let lanes = a.lanes as usize;
        let on = |at: usize| self.regs[at] != 0;
        match mask {
            None => smallvec![0..lanes],
            Some(Mask { at, of_lanes: false }) => {
                let on = on(at as usize * self.width + t);
                if on { smallvec![0..lanes] } else { SmallVec::new() }
            }
            Some(Mask { at, of_lanes: true }) => {
                let first = at as usize * self.width + t * lanes;
                (0..lanes).filter(|l| on(first + l)).map(|l| l..l + 1).collect()
            }
        }
    }

    pub(super) fn load(
        &mut self,
        a: &MemoryAccess,
        out: u32,
        mask: Option<(Mask, u32)>,
        pc: usize,
    ) -> Result<(), Fault> {
        let (w, lanes) = (self.width, a.lanes as usize);
        for t in 0..w {
            if !self.active(t) {
                continue;
            }
            let out = out as usize * w + t * lanes;
            if let Some((_, alt)) = mask {
                let alt = alt as usize * w + t * lanes;
                self.regs.copy_within(alt..alt + lanes, out);
            }
            for run in self.unmasked(a, mask.map(|m| m.0), t) {
                self.load_lanes(a, run, out, t, pc)?;
            }
        }
        Ok(())
    }

    /// Loads adjacent lanes in one thread.
    #[inline(always)]
    fn load_lanes(
        &mut self,
        a: &MemoryAccess,
        lanes: Range<usize>,
        out: usize,
        t: usize,
        pc: usize,
    ) -> Result<(), Fault> {
        let bufs = self.bufs;
        let at = self.element(a, &lanes, t, pc)?;
        if self.shadows.is_some() {
            for l in 0..lanes.len() {
                self.record_access(a, at + l, None, t, pc)?;
            }
        }
        let out = out + lanes.start;
        if a.global {
            let memory = bufs[a.buf as usize].0;
            for (l, r) in self.regs[out..out + lanes.len()].iter_mut().enumerate() {
                *r = read(memory, a.size, at + l);
            }
            return Ok(());
        }
        let memory = &self.shared[a.buf as usize];
        for l in 0..lanes.len() {
            if memory.written[at + l] < self.begin {
                return Err(Fault::Uninitialized(self.location(a, (at + l) as i64, t, pc)));
            }
            self.regs[out + l] = memory.lanes[at + l];
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        a: &MemoryAccess,
        value: u32,
        mask: Option<Mask>,
        pc: usize,
    ) -> Result<(), Fault> {
        let (w, lanes) = (self.width, a.lanes as usize);
        for t in 0..w {
            if !self.active(t) {
                continue;
            }
            let value = value as usize * w + t * lanes;
            for run in self.unmasked(a, mask, t) {
                self.store_lanes(a, run, value, t, pc)?;
            }
        }
        Ok(())
    }

    /// Stores adjacent lanes in one thread.
    #[inline(always)]
    fn store_lanes(
        &mut self,
        a: &MemoryAccess,
        lanes: Range<usize>,
        value: usize,
        t: usize,
        pc: usize,
    ) -> Result<(), Fault> {
        let bufs = self.bufs;
        let at = self.element(a, &lanes, t, pc)?;
        let value = value + lanes.start;
        if self.shadows.is_some() {
            for l in 0..lanes.len() {
                self.record_access(a, at + l, Some(self.regs[value + l]), t, pc)?;
            }
        }
        if a.global {
            let memory = bufs[a.buf as usize].0;
            for (l, r) in self.regs[value..value + lanes.len()].iter().enumerate() {
                write(memory, a.size, at + l, *r);
            }
            return Ok(());
        }
        let memory = &mut self.shared[a.buf as usize];
        for l in 0..lanes.len() {
            memory.lanes[at + l] = self.regs[value + l];
            memory.written[at + l] = self.epoch;
        }
        Ok(())
    }

    /// Records an access of one element; a write if there is a value.
    #[cold]
    fn record_access(
        &mut self,
        a: &MemoryAccess,
        at: usize,
        value: Option<u64>,
        t: usize,
        pc: usize,
    ) -> Result<(), Fault> {
        let now = AccessContext { epoch: self.epoch, begin: self.begin, thread: t as u32 };
        let Some((globals, shared)) = &mut self.shadows else { return Ok(()) };
        let shadow =
            if a.global { &mut globals[a.buf as usize] } else { &mut shared[a.buf as usize] };
        let race = match value {
            Some(v) => shadow.write(at, v, now),
            None => shadow.read(at, now),
        };
        match race {
            None => Ok(()),
            Some(what) => Err(Fault::Race { at: self.location(a, at as i64, t, pc), what }),
        }
    }
}
