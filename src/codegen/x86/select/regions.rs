//! Loops and conditional regions: blocks, with a parameter for each accumulator that changes.
//!
//! ```text
//! before:  … jump body(0, acc)
//! body:    (i, acc) … compare i + 1, extent; branch again, after
//! again:   jump body(i + 1, new acc)
//! after:   …
//! ```

use super::memory::Address;
use super::{Done, Place, Scope, Select, Value};
use crate::codegen::mir::{Inst, MachineBlock, Terminator};
use crate::codegen::x86::inst::{Cond, R32, R64};
use crate::codegen::x86::rows_general as g;
use crate::dtype::DType;
use crate::ir::typed::Range;
use crate::ir::{Op, UOp};
use regalloc2::VReg;

/// An open loop or conditional region.
pub(super) struct Region {
    /// The node that opened it.
    pub opened: UOp,
    pub(super) scope: Scope,
    /// The first block of a loop's body; of a condition, the block before it.
    block: usize,
    /// The block before the region.
    pub entry: usize,
    /// The counter of a loop.
    counter: Option<VReg>,
    /// The accumulators of a loop that have parameters; before a conditional region, all.
    accs: Vec<(u32, Value)>,
    /// Registers that a loop advances, in the order of its parameters after the accumulators: each
    /// with its start and the bytes of a step.
    pub advanced: Vec<(VReg, VReg, i64)>,
    /// Those of them that start at 0, by step.
    pub offsets: Vec<(i64, VReg)>,
    /// True if a conditional region is around a loop, because its trip count may be zero.
    masked: bool,
}

impl Region {
    /// Returns the counter of a loop.
    pub fn counter(&self) -> Option<VReg> {
        self.counter
    }
    /// Returns the first block of a loop's body.
    pub fn body(&self) -> usize {
        self.block
    }
}

impl Select {
    /// Adds a block and makes it the current one.
    fn begin(&mut self) -> usize {
        let depth = self.open.iter().filter(|r| r.counter.is_some()).count() as u32;
        let (params, insts) = (Vec::new(), Vec::new());
        let end = Terminator::Return;
        self.blocks.push(MachineBlock { params, insts, end, depth, of_loop: None });
        self.current = self.blocks.len() - 1;
        self.current
    }

    /// Returns the registers of a value that a block parameter can hold, in the form that all
    /// values of the dtype have.
    pub(super) fn held(&mut self, x: &Value) -> Vec<VReg> {
        match (&x.place, x.dtype.lanes) {
            (Place::Mask { .. }, _) => self.mask_of(x, 1).to_vec(),
            (Place::Const(_), 2..) if x.dtype.is_bool() => self.mask_of(x, 1).to_vec(),
            (Place::Vector(regs), _) => regs.to_vec(),
            (Place::Const(_), _) if in_vector(x.dtype) => self.regs(x).to_vec(),
            _ => vec![self.reg(x)],
        }
    }
    /// Returns fresh registers for a value of the dtype, and the value in them.
    fn parameter(&mut self, dtype: DType, count: usize) -> (Vec<VReg>, Value) {
        if dtype.lanes > 1 && dtype.is_bool() {
            let make = |s: &mut Self| if s.isa.masks() { s.mask() } else { s.float() };
            let regs: Vec<VReg> = (0..count).map(|_| make(self)).collect();
            let place = Place::Mask { size: 1, regs: regs.iter().copied().collect() };
            return (regs, Value { place, dtype });
        }
        if in_vector(dtype) {
            let regs: Vec<VReg> = (0..count).map(|_| self.float()).collect();
            let value = Value::vector(regs.iter().copied(), dtype);
            return (regs, value);
        }
        let reg = self.int();
        (vec![reg], Value::general(reg, dtype))
    }

    /// Opens a loop, which is tested at its end. One whose trip count may be zero is in a
    /// conditional region.
    pub(super) fn open_loop(&mut self, u: &UOp) -> Done {
        let Some(Range { extent, .. }) = u.as_range() else {
            return Err("it has no number".to_string());
        };
        let masked = extent.vmin() < 1;
        if masked {
            let extent = self.value(extent)?;
            let extent = self.wide(&extent);
            self.flags(&g::TEST, R64, &[extent, extent], 0);
            self.open_condition(u, Cond::G);
        }
        let zero = self.general_constant(0);
        let (mut args, counter) = (vec![zero], self.int());
        let (mut params, mut accs) = (vec![counter], Vec::new());
        for acc in self.changed.get(&u.id()).cloned().unwrap_or_default() {
            // An accumulator that is defined inside is set again in each iteration.
            let Some(before) = self.accs.get(&acc).cloned() else { continue };
            let held = self.held(&before);
            let (regs, inside) = self.parameter(before.dtype, held.len());
            args.extend(held);
            params.extend(regs);
            self.accs.insert(acc, inside.clone());
            accs.push((acc, inside));
        }
        let before = self.current;
        self.open.push(Region {
            opened: u.clone(),
            scope: Scope::default(),
            block: 0,
            entry: before,
            counter: Some(counter),
            accs,
            advanced: Vec::new(),
            offsets: Vec::new(),
            masked,
        });
        let block = self.begin();
        self.blocks[before].end = Terminator::Jump(block, args);
        self.blocks[block].params = params;
        let region = self.open.last_mut().expect("just opened");
        region.block = block;
        let place = Place::General { reg: counter, wide: true };
        region.scope.values.insert(u.id(), Value { place, dtype: u.dtype() });
        Ok(())
    }

    /// Closes the loop of a range.
    pub(super) fn close_loop(&mut self, range: &UOp) -> Done {
        let extent = self.value(range.operand())?;
        let is_open = |r: &super::regions::Region| r.opened == *range && r.counter.is_some();
        if !self.open.last().is_some_and(is_open) {
            return Err(format!("{range:?} is not the innermost open block"));
        }
        let region = self.open.last().expect("it is open");
        let (block, counter, masked) =
            (region.block, region.counter.expect("a loop"), region.masked);
        let (accs, advanced) = (region.accs.clone(), region.advanced.clone());
        let mut args = Vec::new();
        for (acc, _) in &accs {
            let value = self.accs[acc].clone();
            args.extend(self.held(&value));
        }
        let mut next = Vec::new();
        for (register, _, step) in &advanced {
            next.push(self.add_constant(*register, *step));
        }
        args.extend(&next);
        let count = self.add_constant(counter, 1);
        args.insert(0, count);
        let cond = self.test_end(&extent, count, &next, &LoopEnd { block, counter, advanced });
        let latch = self.current;
        if latch == block {
            self.blocks[block].of_loop = range.as_range().map(|r| r.id);
        }
        let again = self.begin();
        self.blocks[again].end = Terminator::Jump(block, args);
        self.open.pop();
        let after = self.begin();
        self.blocks[latch].end = Terminator::Branch(cond, again, after);
        for (acc, _) in accs {
            if !self.extremes.is_fixed_after(acc) {
                continue;
            }
            let value = self.accs[&acc].clone();
            let fixed = self.with_constant(Op::Add, &value, 0.0);
            self.accs.insert(acc, fixed);
        }
        if masked { self.close_masked(range) } else { Ok(()) }
    }

    /// Compares the counter of a loop with its extent. Where only the comparison would use the
    /// counter, a register that advances takes its place.
    fn test_end(&mut self, extent: &Value, count: VReg, next: &[VReg], end: &LoopEnd) -> Cond {
        let constant = extent.as_int().and_then(|v| i32::try_from(v).ok());
        let Some(extent) = constant else {
            let extent = self.wide(extent);
            self.flags(&g::CMP, R64, &[count, extent], 0);
            return Cond::L;
        };
        let total = |step: i64| step.checked_mul(i64::from(extent)).map(i32::try_from);
        let level = self.open.len() - 1;
        if !self.is_counted(end.block, end.counter, count) {
            let offsets = self.open[level].offsets.clone();
            for (at, (register, start, step)) in end.advanced.iter().enumerate() {
                let Some(Ok(bytes)) = total(*step) else { continue };
                if offsets.iter().any(|(_, o)| o == register) {
                    self.flags(&g::CMP_I, R64, &[next[at]], i64::from(bytes));
                } else {
                    let place = Address::at(*start, i64::from(bytes));
                    let last = self.at_level(level, |s| s.load_general(&g::LEA, R64, place));
                    self.flags(&g::CMP, R64, &[next[at], last], 0);
                }
                return Cond::Ne;
            }
        }
        self.flags(&g::CMP_I, R64, &[count], i64::from(extent));
        Cond::L
    }

    /// Returns true if the body of a loop uses its counter for more than the next one.
    fn is_counted(&self, block: usize, counter: VReg, count: VReg) -> bool {
        let uses = |inst: &Inst| {
            let is_next = inst.ops.iter().any(|o| o.vreg() == count);
            !is_next && inst.ops.iter().any(|o| o.vreg() == counter)
        };
        let passes = |end: &Terminator| match end {
            Terminator::Jump(_, args) => args.contains(&counter),
            _ => false,
        };
        self.blocks[block..].iter().any(|b| passes(&b.end) || b.insts.iter().any(uses))
    }

    /// Opens a region that runs if the scalar is true.
    pub(super) fn open_masked(&mut self, u: &UOp, condition: Value) {
        let reg = self.reg(&condition);
        self.flags(&g::TEST, R32, &[reg, reg], 0);
        self.open_condition(u, Cond::Ne);
    }

    /// Opens a region that runs if the flags meet the condition.
    fn open_condition(&mut self, u: &UOp, cond: Cond) {
        let before = self.accs.iter().map(|(acc, value)| (*acc, value.clone())).collect();
        let block = self.current;
        self.open.push(Region {
            opened: u.clone(),
            scope: Scope::default(),
            block,
            entry: block,
            counter: None,
            accs: before,
            advanced: Vec::new(),
            offsets: Vec::new(),
            masked: false,
        });
        let inside = self.begin();
        // The other successor is known when the region closes.
        self.blocks[block].end = Terminator::Branch(cond, inside, 0);
    }

    /// Closes a conditional region.
    pub(super) fn close_masked(&mut self, opened: &UOp) -> Done {
        let is_open = |r: &super::regions::Region| r.opened == *opened && r.counter.is_none();
        if !self.open.last().is_some_and(is_open) {
            return Err(format!("{opened:?} is not the innermost open block"));
        }
        let (from, accs) = {
            let region = self.open.last().expect("it is open");
            (region.block, region.accs.clone())
        };
        let inside = self.current;
        let (mut merged, mut args) = (Vec::new(), Vec::new());
        for (acc, before) in accs {
            let value = self.accs[&acc].clone();
            if !same(&value, &before) {
                args.extend(self.held(&value));
                merged.push((acc, before));
            }
        }
        self.open.pop();
        let outside = self.begin();
        let (mut others, mut params) = (Vec::new(), Vec::new());
        // Constants of this block are not defined on the other path.
        let constants = self.innermost().constants.clone();
        for (acc, before) in merged {
            let held = self.held(&before);
            let (regs, value) = self.parameter(before.dtype, held.len());
            others.extend(held);
            params.extend(regs);
            self.accs.insert(acc, value);
        }
        self.innermost().constants = constants;
        let after = self.begin();
        self.blocks[after].params = params;
        self.blocks[inside].end = Terminator::Jump(after, args);
        self.blocks[outside].end = Terminator::Jump(after, others);
        if let Terminator::Branch(_, _, no) = &mut self.blocks[from].end {
            *no = outside;
        }
        Ok(())
    }

    /// Adds a constant to a 64-bit register.
    pub(super) fn add_constant(&mut self, x: VReg, by: i64) -> VReg {
        if i32::try_from(by).is_ok() {
            return self.r(&g::ADD_I, R64, &[x], by);
        }
        let by = self.general_constant(by);
        self.r(&g::ADD, R64, &[x, by], 0)
    }
}

/// What the test at the end of a loop reads: its first block, its counter, and the registers that
/// it advances.
struct LoopEnd {
    block: usize,
    counter: VReg,
    advanced: Vec<(VReg, VReg, i64)>,
}

/// Returns true if values of a dtype are in vector registers: floats, and vectors.
pub(super) fn in_vector(dtype: DType) -> bool {
    dtype.lanes > 1 || (dtype.is_float() && !dtype.is_narrow_float())
}

/// Returns true if two values are in the same place.
fn same(x: &Value, y: &Value) -> bool {
    match (&x.place, &y.place) {
        (Place::Const(a), Place::Const(b)) => a == b,
        (Place::General { reg: a, .. }, Place::General { reg: b, .. }) => a == b,
        (Place::Vector(a), Place::Vector(b)) => a == b,
        (Place::Mask { regs: a, .. }, Place::Mask { regs: b, .. }) => a == b,
        _ => false,
    }
}
