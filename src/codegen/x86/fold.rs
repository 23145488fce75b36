//! Load folding. In: a machine program. Out: the same with loads as memory operands of their only
//! user, if it is in the same block with no store in between, and with broadcasts of loads as one
//! instruction.
//!
//! ```text
//! before:  v1 = movss [v0]; v2 = broadcastss v1; v3 = movups [v4]; v6 = addps v3, v5
//! after:   v2 = broadcastss [v0]; v6 = addps v5, [v4]
//! ```

use super::inst::{Form, Memory, Row};
use super::rows_float as f;
use super::rows_general as g;
use super::rows_int as p;
use super::rows_move as m;
use crate::codegen::mir::{Base, Inst, Machine, Terminator};
use regalloc2::{Operand, OperandConstraint, OperandKind, VReg};

/// Instructions on two registers whose order does not matter, after the result.
static COMMUTATIVE: &[&Row] = &[
    &f::ADDPS,
    &f::ADDPD,
    &f::MULPS,
    &f::MULPD,
    &f::ANDPS,
    &f::ORPS,
    &f::XORPS,
    &f::FMADD231PS,
    &f::FMADD231PD,
    &p::PADDB,
    &p::PADDW,
    &p::PADDD,
    &p::PADDQ,
    &p::PMULLW,
    &p::PMULLD,
    &p::PMULLQ,
    &p::PAND,
    &p::POR,
    &p::PXOR,
];

/// Predicates of comparisons that do not depend on the order: equal, unordered, not equal.
const SYMMETRIC: [i64; 3] = [0, 3, 4];

/// Folds the loads of a program.
pub(super) fn fold_loads(machine: &mut Machine) {
    let uses = uses(machine);
    // The block and the position of the definition of each register.
    let mut places = vec![(u32::MAX, 0); machine.vregs];
    for (b, block) in machine.blocks.iter_mut().enumerate() {
        let mut folds = Folds {
            gone: vec![false; block.insts.len()],
            stores: Vec::with_capacity(block.insts.len()),
            insts: &mut block.insts,
        };
        let mut stores = 0;
        for i in 0..folds.insts.len() {
            let inst = &folds.insts[i];
            folds.stores.push(stores);
            stores += u32::from(inst.is_store() || inst.callee.is_some());
            let defined = inst.ops.iter().filter(|o| o.kind() == OperandKind::Def);
            for v in defined.map(|o| o.vreg().vreg()) {
                places[v] = (b as u32, i as u32);
            }
            let single = |v: VReg| {
                let (of, at) = places[v.vreg()];
                (of == b as u32 && uses[v.vreg()] == 1).then_some(at as usize)
            };
            folds.fold(i, single);
        }
        let mut gone = std::mem::take(&mut folds.gone).into_iter();
        block.insts.retain(|_| !gone.next().unwrap_or(false));
    }
}

/// The folds of a block.
struct Folds<'a> {
    insts: &'a mut Vec<Inst>,
    /// Loads that are folded.
    gone: Vec<bool>,
    /// The number of stores before each instruction.
    stores: Vec<u32>,
}

impl Folds<'_> {
    /// Folds a load into an instruction. `single` returns where a register is defined in this
    /// block, if it has one use.
    fn fold(&mut self, i: usize, single: impl Fn(VReg) -> Option<usize>) {
        let first = self.insts[i].used().next().and_then(&single);
        if let Some(at) = first.filter(|at| self.is_movable(*at, i))
            && let Some(row) = broadcast_of(&self.insts[at], &self.insts[i])
        {
            let load = self.insts[at].clone();
            let inst = &mut self.insts[i];
            (inst.row, inst.code) = (row, row.code(inst.form));
            take(inst, 1, &load, false);
            self.gone[at] = true;
            return;
        }
        for (operand, swaps) in operands(&self.insts[i]).into_iter().flatten() {
            let at = single(self.insts[i].ops[operand].vreg());
            let Some(at) = at.filter(|at| self.is_movable(*at, i)) else { continue };
            let Some(broadcast) = fits(&self.insts[at], &self.insts[i]) else { continue };
            let load = self.insts[at].clone();
            let inst = &mut self.insts[i];
            if swaps {
                inst.ops.swap(1, 2);
            }
            take(inst, inst.last_register(), &load, broadcast);
            self.gone[at] = true;
            return;
        }
    }

    /// Returns true for a load that may be done later, at an instruction.
    fn is_movable(&self, at: usize, to: usize) -> bool {
        let load = &self.insts[at];
        let is_constant = load.mem.is_some_and(|mem| mem.base == Base::Pool);
        load.is_plain_load() && (is_constant || self.stores[at] == self.stores[to])
    }
}

/// Returns how often each virtual register is used.
pub(super) fn uses(machine: &Machine) -> Vec<u32> {
    let mut uses = vec![0; machine.vregs];
    for block in &machine.blocks {
        for v in block.insts.iter().flat_map(Inst::used) {
            uses[v.vreg()] += 1;
        }
        if let Terminator::Jump(_, args) = &block.end {
            args.iter().for_each(|v| uses[v.vreg()] += 1);
        }
    }
    uses
}

/// Returns the instruction that loads and broadcasts.
fn broadcast_of(load: &Inst, inst: &Inst) -> Option<&'static Row> {
    if inst.mem.is_some() || inst.masking.is_some() {
        return None;
    }
    let single = load.is(&m::LOAD_SS) || (load.is(&g::LOAD) && load.form == super::inst::R32);
    let double = load.is(&m::LOAD_SD) || (load.is(&g::LOAD) && load.form == super::inst::R64);
    let row = if single && (inst.is(&m::BROADCASTSS) || inst.is(&m::PBROADCASTD_R)) {
        &m::LOAD_BROADCASTSS
    } else if double && (inst.is(&m::BROADCASTSD) || inst.is(&m::PBROADCASTQ_R)) {
        &m::LOAD_BROADCASTSD
    } else {
        return None;
    };
    row.has(inst.form).then_some(row)
}

/// Returns the operands that may be in memory, and true for one that is exchanged with the last.
fn operands(inst: &Inst) -> [Option<(usize, bool)>; 2] {
    let is_candidate = inst.row.memory == Memory::Last
        && inst.mem.is_none()
        && inst.form != Form::Legacy
        && inst.callee.is_none()
        && inst.row.codes[3] != inst.row.codes[2];
    if !is_candidate {
        return [None, None];
    }
    let last = inst.last_register();
    // One that only clears its result has no operands.
    if last >= inst.ops.len() {
        return [None, None];
    }
    let compares = [&f::KCMPPS, &f::KCMPPD, &f::CMPPS, &f::CMPPD].iter().any(|r| inst.is(r));
    let is_commutative =
        COMMUTATIVE.iter().any(|r| inst.is(r)) || (compares && SYMMETRIC.contains(&inst.imm));
    [Some((last, false)), (is_commutative && last == 2).then_some((1, true))]
}

/// Returns whether a load can be the memory operand of an instruction, and true if it broadcasts.
fn fits(load: &Inst, inst: &Inst) -> Option<bool> {
    let letter = inst.row.operands.bytes().rfind(|l| *l != b'i')?;
    let width = match letter {
        b'w' => inst.form.bytes(),
        b'h' => inst.form.bytes() / 2,
        b'q' => inst.form.bytes() / 4,
        b'e' => inst.form.bytes() / 8,
        b'x' => 16,
        _ => return None,
    };
    let element = match () {
        () if load.is(&m::MOVUPS) => return (load.form.bytes() == width).then_some(false),
        () if load.is(&m::LOAD_SD) => return (width == 8).then_some(false),
        () if load.is(&m::LOAD_SS) => return (width == 4).then_some(false),
        () if load.is(&m::LOAD_BROADCASTSS) => "b32",
        () if load.is(&m::LOAD_BROADCASTSD) => "b64",
        () => return None,
    };
    let same = letter == b'w' && inst.form >= Form::Evex16 && load.form == inst.form;
    (same && format!("{:?}", inst.code).contains(element)).then_some(true)
}

/// Replaces a register by the memory operand of a load.
fn take(inst: &mut Inst, operand: usize, load: &Inst, broadcast: bool) {
    inst.ops.remove(operand);
    for o in &mut inst.ops {
        if let OperandConstraint::Reuse(at) = o.constraint()
            && at > operand
        {
            *o = Operand::reg_reuse_def(o.vreg(), at - 1);
        }
    }
    inst.ops.extend(load.ops[1..].iter().copied());
    inst.mem = load.mem.map(|mem| crate::codegen::mir::Mem { broadcast, ..mem });
}
