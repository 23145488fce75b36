//! Dead code elimination. In: a machine program. Out: the same without instructions and block
//! parameters whose results nothing reads.
//!
//! ```text
//! before:  v1 = add v0, 4; v2 = kcmp v3, v4; store v0
//! after:   store v0
//! ```

use super::mir::{Inst, Machine, Terminator};
use regalloc2::{OperandKind, VReg};

/// What defines a virtual register.
#[derive(Clone, Copy)]
enum Definition {
    None,
    /// An instruction of a block.
    Inst(u32, u32),
    /// A parameter of a block.
    Param(u32, u32),
}

/// Removes what has no effect.
pub(super) fn remove_dead_code(machine: &mut Machine) {
    // A comparison is found dead once the results that it decides are gone.
    while remove(machine) {}
}

/// Returns true if comparisons were removed, whose operands may be dead now.
fn remove(machine: &mut Machine) -> bool {
    let live = live_registers(machine);
    let is_live = |v: &VReg| live[v.vreg()];
    let kept: Vec<Vec<bool>> =
        machine.blocks.iter().map(|b| b.params.iter().map(is_live).collect()).collect();
    let mut again = false;
    for block in &mut machine.blocks {
        let mut reads_flags = matches!(block.end, Terminator::Branch(..));
        let mut keep: Vec<bool> = Vec::with_capacity(block.insts.len());
        for inst in block.insts.iter().rev() {
            let mut live = has_effect(inst) || defined(inst).any(|v| is_live(&v));
            if inst.only_sets_flags() {
                again |= !reads_flags;
                live = std::mem::take(&mut reads_flags);
            }
            reads_flags |= live && inst.reads_flags();
            keep.push(live);
        }
        let mut keep = keep.into_iter().rev();
        block.insts.retain(|_| keep.next().unwrap_or(true));
        block.params.retain(is_live);
        if let Terminator::Jump(to, args) = &mut block.end {
            let mut kept = kept[*to].iter();
            args.retain(|_| *kept.next().unwrap_or(&true));
        }
    }
    again
}

/// Returns true for an instruction that does more than to compute its results.
fn has_effect(inst: &Inst) -> bool {
    inst.is_store() || inst.callee.is_some() || defined(inst).next().is_none() || inst.is_entry()
}

fn defined(inst: &Inst) -> impl Iterator<Item = VReg> {
    inst.ops.iter().filter(|o| o.kind() == OperandKind::Def).map(|o| o.vreg())
}

/// Returns for each virtual register if something with an effect depends on it.
fn live_registers(machine: &Machine) -> Vec<bool> {
    let mut definitions = vec![Definition::None; machine.vregs];
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); machine.blocks.len()];
    let mut rest: Vec<VReg> = Vec::new();
    for (b, block) in machine.blocks.iter().enumerate() {
        for (i, param) in block.params.iter().enumerate() {
            definitions[param.vreg()] = Definition::Param(b as u32, i as u32);
        }
        for (i, inst) in block.insts.iter().enumerate() {
            for v in defined(inst) {
                definitions[v.vreg()] = Definition::Inst(b as u32, i as u32);
            }
            if has_effect(inst) {
                rest.extend(inst.used());
            }
        }
        if let Terminator::Jump(to, _) = block.end {
            before[to].push(b);
        }
    }
    let mut live = vec![false; machine.vregs];
    while let Some(v) = rest.pop() {
        if std::mem::replace(&mut live[v.vreg()], true) {
            continue;
        }
        match definitions[v.vreg()] {
            Definition::None => {}
            Definition::Inst(b, i) => {
                rest.extend(machine.blocks[b as usize].insts[i as usize].used());
            }
            Definition::Param(b, i) => {
                for from in &before[b as usize] {
                    if let Terminator::Jump(_, args) = &machine.blocks[*from].end {
                        rest.push(args[i as usize]);
                    }
                }
            }
        }
    }
    live
}
