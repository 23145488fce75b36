//! Rematerialization. In: a block that needs more vector registers than there are. Out: the same
//! with values that are loaded again before their next use instead of kept: first constants that
//! are defined before the block, those with the fewest uses, then loads of the block, the one with
//! the farthest next use.
//!
//! ```text
//! before:  c = constant │ loop: x = fma …, c            c is live all the time
//! after:   loop: d = constant; x = fma …, d             a memory operand, once it is folded
//! ```

use super::mir::{Base, Inst, Machine, MachineBlock};
use super::schedule_instructions::OutsideUses;
use regalloc2::{Operand, OperandKind, RegClass, VReg};
use rustc_hash::{FxHashMap, FxHashSet};

/// Loads values of a block again that needs this many registers.
pub(super) fn rematerialize(
    machine: &mut Machine,
    b: usize,
    outside: &OutsideUses,
    needs: usize,
    registers: usize,
) {
    // Accumulators that do not fit spill in any case; to load all else again only adds to that.
    let is_vector = |v: &&VReg| v.class() == RegClass::Float;
    if machine.blocks[b].params.iter().filter(is_vector).count() >= registers {
        return;
    }
    let excess = needs.saturating_sub(registers);
    let constants = entering_constants(machine, b);
    // A constant needs a register again where it is used, unless it becomes a memory operand.
    let chosen: Vec<&Constant> = constants.iter().take(excess + 1).collect();
    let mut insts = Vec::with_capacity(machine.blocks[b].insts.len());
    for mut inst in std::mem::take(&mut machine.blocks[b].insts) {
        for constant in &chosen {
            if inst.used().any(|v| v == constant.register) {
                let fresh = VReg::new(machine.vregs, RegClass::Float);
                machine.vregs += 1;
                insts.push(renamed(&constant.load, constant.register, fresh));
                inst = renamed(&inst, constant.register, fresh);
            }
        }
        insts.push(inst);
    }
    machine.blocks[b].insts = insts;
    if chosen.len() <= excess {
        reload(machine, b, outside, registers);
    }
}

/// A constant that is defined before a block.
struct Constant {
    register: VReg,
    uses: usize,
    load: Inst,
}

/// Returns the constants that a block uses, those with the fewest uses first.
fn entering_constants(machine: &Machine, b: usize) -> Vec<Constant> {
    let mut uses: FxHashMap<VReg, usize> = FxHashMap::default();
    for v in machine.blocks[b].insts.iter().flat_map(Inst::used) {
        *uses.entry(v).or_default() += 1;
    }
    let others = machine.blocks.iter().enumerate().filter(|(i, _)| *i != b);
    let loads = others.flat_map(|(_, block)| &block.insts).filter(|i| is_constant(i));
    let mut found: Vec<Constant> = loads
        .filter_map(|load| {
            let register = load.defined()?;
            let uses = *uses.get(&register)?;
            Some(Constant { register, uses, load: load.clone() })
        })
        .collect();
    found.sort_by_key(|c| (c.uses, c.register.vreg()));
    found
}

fn is_constant(inst: &Inst) -> bool {
    inst.is_plain_load()
        && inst.mem.is_some_and(|mem| mem.base == Base::Pool)
        && inst.defined().is_some_and(|v| v.class() == RegClass::Float)
}

/// Returns an instruction with one register for another.
fn renamed(inst: &Inst, from: VReg, to: VReg) -> Inst {
    let rename = |o: &Operand| match o.vreg() == from {
        true => Operand::new(to, o.constraint(), o.kind(), o.pos()),
        false => *o,
    };
    Inst { ops: inst.ops.iter().map(rename).collect(), ..inst.clone() }
}

/// The state of a walk over a block that loads values again.
struct Reload<'a> {
    /// The positions of the uses of each register, the last one first.
    uses: FxHashMap<VReg, Vec<usize>>,
    /// The loads of the block by register, with their position.
    loads: FxHashMap<VReg, (usize, Inst)>,
    /// The number of stores before each position.
    stores: Vec<usize>,
    /// The registers that are live, in the order of their definitions.
    live: Vec<VReg>,
    /// Those that are defined before the block: they are live in the next iteration of a loop.
    entering: FxHashSet<VReg>,
    /// The register that holds the value of another now; none after it was given up.
    now: FxHashMap<VReg, Option<VReg>>,
    outside: &'a OutsideUses,
}

impl Reload<'_> {
    fn new<'a>(block: &MachineBlock, outside: &'a OutsideUses) -> Reload<'a> {
        let mut uses: FxHashMap<VReg, Vec<usize>> = FxHashMap::default();
        let (mut loads, mut stores) = (FxHashMap::default(), vec![0]);
        let (mut live, mut entering) = (block.params.clone(), FxHashSet::default());
        let mut defined: FxHashSet<VReg> = block.params.iter().copied().collect();
        for (i, inst) in block.insts.iter().enumerate() {
            for o in &inst.ops {
                let (v, is_use) = (o.vreg(), o.kind() == OperandKind::Use);
                if is_use {
                    uses.entry(v).or_default().push(i);
                }
                if defined.insert(v) && is_use {
                    live.push(v);
                    entering.insert(v);
                }
            }
            if let Some(v) = inst.defined().filter(|_| inst.is_plain_load()) {
                loads.insert(v, (i, inst.clone()));
            }
            stores.push(stores[i] + usize::from(inst.is_store() || inst.callee.is_some()));
        }
        uses.values_mut().for_each(|list| list.reverse());
        live.retain(|v| v.class() == RegClass::Float);
        Reload { uses, loads, stores, live, entering, now: FxHashMap::default(), outside }
    }

    /// Returns the position of the next use after one, if the value can be loaded again there.
    fn reloadable(&self, v: VReg, after: usize) -> Option<usize> {
        let (at, load) = self.loads.get(&v)?;
        let next = *self.uses.get(&v)?.last()?;
        let is_same = is_constant(load) || self.stores[*at] == self.stores[next];
        (next > after && is_same && load.mem.is_some()).then_some(next)
    }

    /// Removes uses at a position, and registers that end there.
    fn pass(&mut self, inst: &Inst, i: usize, counts: &FxHashMap<VReg, u32>) {
        for v in inst.used() {
            let Some(uses) = self.uses.get_mut(&v) else { continue };
            while uses.last() == Some(&i) {
                uses.pop();
            }
            let here = counts.get(&v).copied().unwrap_or(0);
            let ends = uses.is_empty() && !self.outside.more_than(v, here);
            if ends && !self.entering.contains(&v) {
                self.live.retain(|l| *l != v);
            }
        }
    }
}

/// Loads values of a block again while more are live than there are registers.
fn reload(machine: &mut Machine, b: usize, outside: &OutsideUses, registers: usize) {
    let block = &mut machine.blocks[b];
    let mut state = Reload::new(block, outside);
    let counts: FxHashMap<VReg, u32> =
        state.uses.iter().map(|(v, list)| (*v, list.len() as u32)).collect();
    let mut insts = Vec::with_capacity(block.insts.len());
    for (i, inst) in std::mem::take(&mut block.insts).into_iter().enumerate() {
        let mut result = inst.clone();
        for v in inst.used() {
            match state.now.get(&v).copied() {
                None => {}
                Some(Some(now)) => result = renamed(&result, v, now),
                Some(None) => {
                    let fresh = VReg::new(machine.vregs, RegClass::Float);
                    machine.vregs += 1;
                    insts.push(renamed(&state.loads[&v].1, v, fresh));
                    state.now.insert(v, Some(fresh));
                    state.live.push(v);
                    result = renamed(&result, v, fresh);
                }
            }
        }
        state.pass(&inst, i, &counts);
        state.live.extend(inst.defined().filter(|v| v.class() == RegClass::Float));
        while state.live.len() > registers {
            let next = |v: &VReg| state.reloadable(*v, i).map(|next| (next, *v));
            let Some((_, v)) = state.live.iter().filter_map(next).max_by_key(|(n, _)| *n) else {
                break;
            };
            state.live.retain(|l| *l != v);
            state.now.insert(v, None);
        }
        insts.push(result);
    }
    machine.blocks[b].insts = insts;
}
