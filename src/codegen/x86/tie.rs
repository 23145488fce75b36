//! The operand that a fused multiply-add overwrites. In: a machine program in its final order. Out:
//! the same with forms that overwrite an operand that ends there, so that none is copied: the
//! addend, otherwise a factor.
//!
//! ```text
//! before:  v3 = fmadd231 v0, v1, into v2      v2 is read again, v0 is not
//! after:   v3 = fmadd213 v1, v2, into v0      v0 = v1 * v0 + v2
//! ```

use super::inst::Row;
use super::rows_float as f;
use crate::codegen::mir::{Inst, Machine, MachineBlock, Terminator};
use regalloc2::{Operand, OperandKind, VReg};
use rustc_hash::FxHashMap;

/// Chooses the forms of all fused multiply-adds.
pub(super) fn tie_operands(machine: &mut Machine) {
    let uses = super::fold::uses(machine);
    for block in &mut machine.blocks {
        let is_fma = |i: &Inst| i.is(&f::FMADD231PS) || i.is(&f::FMADD231PD);
        if !block.insts.iter().any(is_fma) {
            continue;
        }
        let last = last_uses(block, &uses);
        for (at, inst) in block.insts.iter_mut().enumerate() {
            if is_fma(inst) && inst.masking.is_none() {
                let ends = |v: VReg| last.get(&v.vreg()) == Some(&at);
                tie(inst, ends);
            }
        }
    }
}

/// Returns the last use of registers that are defined and used in this block alone.
fn last_uses(block: &MachineBlock, uses: &[u32]) -> FxHashMap<usize, usize> {
    let mut local: FxHashMap<usize, (u32, usize)> = FxHashMap::default();
    for v in &block.params {
        local.insert(v.vreg(), (0, usize::MAX));
    }
    for (at, inst) in block.insts.iter().enumerate() {
        for v in inst.used() {
            if let Some((count, last)) = local.get_mut(&v.vreg()) {
                (*count, *last) = (*count + 1, at);
            }
        }
        for o in inst.ops.iter().filter(|o| o.kind() == OperandKind::Def) {
            local.insert(o.vreg().vreg(), (0, usize::MAX));
        }
    }
    if let Terminator::Jump(_, args) = &block.end {
        for v in args {
            local.remove(&v.vreg());
        }
    }
    let all_here = local.into_iter().filter(|(v, (count, _))| uses[*v] == *count);
    all_here.map(|(v, (_, last))| (v, last)).collect()
}

fn tie(inst: &mut Inst, ends: impl Fn(VReg) -> bool) {
    let double = inst.is(&f::FMADD231PD);
    let def = inst.ops[0].vreg();
    let rows = |single: &'static Row, other: &'static Row| if double { other } else { single };
    let (row, uses) = if inst.mem.is_some() {
        // factor, addend, then the other factor in memory
        let (a, c) = (inst.ops[1], inst.ops[2]);
        if ends(c.vreg()) || !ends(a.vreg()) || a.vreg() == c.vreg() {
            return;
        }
        (rows(&f::FMADD132PS, &f::FMADD132PD), vec![c, a])
    } else {
        let (a, b, c) = (inst.ops[1], inst.ops[2], inst.ops[3]);
        if ends(c.vreg()) || a.vreg() == c.vreg() || b.vreg() == c.vreg() {
            return;
        }
        let (factor, other) = match (ends(a.vreg()), ends(b.vreg())) {
            (true, _) => (a, b),
            (_, true) => (b, a),
            _ => return,
        };
        (rows(&f::FMADD213PS, &f::FMADD213PD), vec![other, c, factor])
    };
    let address = inst.ops.len() - inst.address_registers();
    let mut ops: smallvec::SmallVec<[Operand; 4]> = smallvec::SmallVec::new();
    ops.push(Operand::reg_reuse_def(def, uses.len()));
    ops.extend(uses);
    ops.extend(inst.ops[address..].iter().copied());
    (inst.ops, inst.row, inst.code) = (ops, row, row.code(inst.form));
}
