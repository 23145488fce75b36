//! Pointers: the registers of an address. A sum of terms is added to the start of its buffer term
//! by term, outermost first. A loop that changes a sum advances a pointer; one without a loop
//! inside scales its counter instead where that is possible, or shares one offset between pointers
//! that advance by the same number of bytes.
//!
//! ```text
//! before:  x = load(Index(b, 4096·r0 + 64·r1))              in the loop r1, inside of r0
//! after:   r0: (…, p)   p starts at b, + 16384 at the end
//!          r1: (…, q)   q starts at p, + 256 at the end
//!                       load [q]
//! ```

use super::memory::{Address, AddressBase};
use super::{Select, Value};
use crate::codegen::address::prefix;
use crate::codegen::mir::{Inst, Terminator};
use crate::codegen::x86::inst::R64;
use crate::codegen::x86::rows_general as g;
use crate::ir::{Op, UOp};
use regalloc2::VReg;

/// The factors of an index in an address.
const SCALES: [i64; 4] = [1, 2, 4, 8];

/// A part of a sum: the number of open regions that define its term, and the term with the bytes
/// that it counts. The counter of a loop comes before the other terms of its body.
type Step = (usize, bool, UOp, i64);

impl Select {
    /// Returns the number of open regions around the definition of a value, and the position of the
    /// innermost.
    fn level(&self, u: &UOp) -> usize {
        if super::accumulator(u).is_some() {
            return self.open.len();
        }
        let defines = |r: &super::regions::Region| r.scope.values.contains_key(&u.id());
        self.open.iter().rposition(defines).map_or(0, |at| at + 1)
    }

    /// Emits code where a number of regions are open: at the end of the block that the next region
    /// leaves, or here.
    pub(super) fn at_level<T>(&mut self, level: usize, f: impl FnOnce(&mut Self) -> T) -> T {
        let Some(region) = self.open.get(level) else { return f(self) };
        let block = std::mem::replace(&mut self.current, region.entry);
        let at = self.current;
        // A branch reads the flags that the last comparison sets.
        let target = &mut self.blocks[at];
        let flags = match target.end {
            Terminator::Branch(..) => target.insts.iter().rposition(Inst::only_sets_flags),
            _ => None,
        };
        let flags = flags.map_or(Vec::new(), |flags| target.insts.split_off(flags));
        let result = f(self);
        self.blocks[at].insts.extend(flags);
        self.current = block;
        result
    }

    fn scope_at(&mut self, level: usize) -> &mut super::Scope {
        match level {
            0 => &mut self.scope,
            level => &mut self.open[level - 1].scope,
        }
    }

    /// Returns the address of a sum of terms from a start on.
    pub(super) fn sum_address(
        &mut self,
        buffer: &UOp,
        start: Address,
        terms: &[(UOp, i64)],
        bytes: i64,
    ) -> Result<Address, String> {
        let AddressBase::Register(mut base) = start.base else {
            return Err("its buffer has no address".to_string());
        };
        let mut steps: Vec<Step> = terms
            .iter()
            .map(|(u, by)| (self.level(u), u.op() != Op::Range, u.clone(), by.wrapping_mul(bytes)))
            .collect();
        steps.sort_by_key(|(level, other, ..)| (*level, *other));
        let terms: Vec<(UOp, i64)> = steps.iter().map(|(_, _, u, by)| (u.clone(), *by)).collect();
        let mut is_kept = true;
        for (i, (level, other, term, by)) in steps.iter().enumerate() {
            let key = prefix(buffer, &terms[..=i]);
            // An accumulator has another value later.
            is_kept &= super::accumulator(term).is_none();
            if let Some(pointer) = self.known(|s| s.pointers.get(&key)).filter(|_| is_kept) {
                base = pointer;
                continue;
            }
            let last = i + 1 == steps.len();
            let pointer = if *other {
                let index = self.scaled(term, *level, *by)?;
                let place = Address { index: Some(index), ..Address::at(base, 0) };
                if last {
                    return Ok(Address { disp: start.disp, ..place });
                }
                self.at_level(*level, |s| s.load_general(&g::LEA, R64, place))
            } else {
                if let Some(index) = self.loop_index(term, *level, *by).filter(|_| last) {
                    return Ok(Address { index: Some(index), base: start_at(base), ..start });
                }
                self.advance(*level, base, *by)
            };
            if is_kept {
                self.scope_at(*level).pointers.insert(key, pointer);
            }
            base = pointer;
        }
        Ok(Address { base: start_at(base), ..start })
    }

    /// Returns the index of an access that advances with a loop; none where a pointer is better.
    fn loop_index(&mut self, range: &UOp, level: usize, by: i64) -> Option<(VReg, u8)> {
        let counter = self.open[level - 1].counter()?;
        if SCALES.contains(&by) {
            return Some((counter, by as u8));
        }
        if !self.addresses.is_leaf(range) || !self.addresses.is_shared(range, by) {
            return None;
        }
        let known = self.open[level - 1].offsets.iter().find(|(stride, _)| *stride == by);
        if let Some((_, offset)) = known {
            return Some((*offset, 1));
        }
        let zero = self.at_level(level - 1, |s| s.general_constant(0));
        let offset = self.advance(level, zero, by);
        self.open[level - 1].offsets.push((by, offset));
        Some((offset, 1))
    }

    /// Returns a register that starts at a value and advances with a loop.
    fn advance(&mut self, level: usize, start: VReg, by: i64) -> VReg {
        let advanced = self.int();
        let region = &mut self.open[level - 1];
        region.advanced.push((advanced, start, by));
        let (entry, block) = (region.entry, region.body());
        self.blocks[block].params.push(advanced);
        if let Terminator::Jump(_, args) = &mut self.blocks[entry].end {
            args.push(start);
        }
        advanced
    }

    /// Returns a register and a scale whose product is a term in bytes.
    fn scaled(&mut self, term: &UOp, level: usize, by: i64) -> Result<(VReg, u8), String> {
        let is_kept = super::accumulator(term).is_none();
        let key = (term.id(), if SCALES.contains(&by) { 1 } else { by });
        let known = self.known(|s| s.products.get(&key)).filter(|_| is_kept);
        let scale = if key.1 == 1 { by as u8 } else { 1 };
        if let Some(reg) = known {
            return Ok((reg, scale));
        }
        let value = self.value(term)?;
        let reg = self.at_level(level, |s| s.product(&value, key.1));
        if is_kept {
            self.scope_at(level).products.insert(key, reg);
        }
        Ok((reg, scale))
    }

    fn product(&mut self, x: &Value, by: i64) -> VReg {
        let wide = self.wide(x);
        if by == 1 {
            return wide;
        }
        if by > 0 && by.count_ones() == 1 {
            return self.r(&g::SHL_I, R64, &[wide], i64::from(by.trailing_zeros()));
        }
        if i32::try_from(by).is_ok() {
            return self.r(&g::IMUL_I, R64, &[wide], by);
        }
        let by = self.general_constant(by);
        self.r(&g::IMUL, R64, &[wide, by], 0)
    }
}

/// Returns a register as a base.
fn start_at(register: VReg) -> AddressBase {
    AddressBase::Register(register)
}
