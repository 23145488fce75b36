//! Instruction scheduling and register pressure. In: a machine program. Out: the same with the
//! instructions of blocks that need more vector registers than there are in an order that needs
//! fewer, and with values that are loaded again instead of kept.
//!
//! ```text
//! before:  a0 = load; a1 = load; …; b0 = load; b1 = load; fma a0, b0; fma a0, b1; fma a1, b0; …
//! after:   b0 = load; b1 = load; a0 = load; fma a0, b0; fma a0, b1; a1 = load; fma a1, b0; …
//! ```
//!
//! The first of these orders that fits is used: the present one; loads directly before their first
//! user; greedily the instruction that adds the fewest live registers, among equals one whose
//! operands are needed the least often after it. Where none fits, the best of them is used, and
//! what can be loaded again is: constants first, then loads, the one with the farthest next use.
//!
//! **Invariant:** registers are defined before they are used, loads do not pass stores, and between
//! an instruction that sets the flags and one that reads them none changes them.

use super::mir::{Base, Inst, Machine, MachineBlock, Terminator};
use super::rematerialize::rematerialize;
use regalloc2::{Operand, OperandConstraint, OperandKind, RegClass, VReg};
use rustc_hash::FxHashMap;

/// Blocks of more instructions keep their order.
const MOST: usize = 4000;

/// Blocks of more instructions are not ordered greedily: that takes time that grows with the square
/// of their number.
const MOST_GREEDY: usize = 600;

/// Schedules the blocks of a program for a number of vector registers. Returns true if anything
/// changed.
pub(super) fn schedule_instructions(machine: &mut Machine, registers: usize) -> bool {
    let outside = OutsideUses::new(machine);
    let mut changed = false;
    for b in 0..machine.blocks.len() {
        let graph = Graph::new(&machine.blocks[b], &outside);
        let Some(graph) = graph else { continue };
        let mut best = (graph.pressure(&graph.original()), graph.original());
        if best.0 <= registers {
            continue;
        }
        changed = true;
        let orders: [&dyn Fn() -> Vec<usize>; 2] = [&|| graph.sunk(), &|| graph.greedy()];
        let tried = if graph.insts.len() <= MOST_GREEDY { 2 } else { 1 };
        for order in &orders[..tried] {
            let order = order();
            let pressure = graph.pressure(&order);
            if pressure < best.0 {
                best = (pressure, order);
            }
            if best.0 <= registers {
                break;
            }
        }
        let insts = std::mem::take(&mut machine.blocks[b].insts);
        let mut insts: Vec<Option<Inst>> = insts.into_iter().map(Some).collect();
        machine.blocks[b].insts = best.1.iter().filter_map(|i| insts[*i].take()).collect();
        if best.0 > registers {
            rematerialize(machine, b, &outside, best.0, registers);
        }
    }
    changed
}

/// The uses of each register in the program.
pub(super) struct OutsideUses {
    all: Vec<u32>,
}

impl OutsideUses {
    fn new(machine: &Machine) -> OutsideUses {
        let mut all = vec![0; machine.vregs];
        for block in &machine.blocks {
            for v in block.insts.iter().flat_map(Inst::used) {
                all[v.vreg()] += 1;
            }
            if let Terminator::Jump(_, args) = &block.end {
                args.iter().for_each(|v| all[v.vreg()] += 1);
            }
        }
        OutsideUses { all }
    }
    /// Returns true if there are more uses than these.
    pub fn more_than(&self, v: VReg, here: u32) -> bool {
        self.all.get(v.vreg()).is_some_and(|all| *all > here)
    }
}

/// A vector register as the graph of a block sees it.
struct Value {
    /// The number of uses by instructions of the block.
    uses: u32,
    /// True if it stays live to the end of the block.
    stays: bool,
    /// True if it is live at the start.
    enters: bool,
}

/// The dependences of the instructions of a block.
struct Graph<'a> {
    insts: &'a [Inst],
    /// The instructions that have to come before each.
    before: Vec<Vec<u32>>,
    /// Loads of vector registers from memory, which can be placed directly before their users.
    is_load: Vec<bool>,
    /// The vector registers that each instruction reads, and how often.
    reads: Vec<Vec<(usize, u32)>>,
    /// The vector registers that each instruction writes.
    writes: Vec<Vec<usize>>,
    values: Vec<Value>,
    /// The instruction that defines each value.
    definer: Vec<Option<u32>>,
}

impl<'a> Graph<'a> {
    /// Returns the graph of a block; none if its order cannot change.
    fn new(block: &'a MachineBlock, outside: &OutsideUses) -> Option<Graph<'a>> {
        let insts = &block.insts[..];
        let fixed = |o: &Operand| matches!(o.constraint(), OperandConstraint::FixedReg(_));
        let is_bound = |i: &Inst| i.callee.is_some() || i.is_entry() || i.ops.iter().any(fixed);
        if insts.len() < 8 || insts.len() > MOST || insts.iter().any(is_bound) {
            return None;
        }
        let mut graph = Graph {
            insts,
            before: vec![Vec::new(); insts.len()],
            is_load: Vec::with_capacity(insts.len()),
            reads: Vec::with_capacity(insts.len()),
            writes: Vec::with_capacity(insts.len()),
            values: Vec::new(),
            definer: Vec::new(),
        };
        graph.add_values(block, outside);
        graph.add_order();
        Some(graph)
    }

    fn add_values(&mut self, block: &MachineBlock, outside: &OutsideUses) {
        let mut numbers: FxHashMap<VReg, usize> = FxHashMap::default();
        let mut definer: FxHashMap<VReg, u32> = FxHashMap::default();
        let in_block = |v: VReg, values: &mut Vec<Value>, numbers: &mut FxHashMap<VReg, usize>| {
            *numbers.entry(v).or_insert_with(|| {
                values.push(Value { uses: 0, stays: false, enters: false });
                values.len() - 1
            })
        };
        for v in block.params.iter().filter(|v| v.class() == RegClass::Float) {
            let at = in_block(*v, &mut self.values, &mut numbers);
            self.values[at].enters = true;
        }
        for (i, inst) in self.insts.iter().enumerate() {
            let (mut reads, mut writes): (Vec<(usize, u32)>, Vec<usize>) = Default::default();
            for o in &inst.ops {
                let (v, is_def) = (o.vreg(), o.kind() == OperandKind::Def);
                if is_def {
                    definer.insert(v, i as u32);
                } else if let Some(from) = definer.get(&v) {
                    self.before[i].push(*from);
                }
                if v.class() != RegClass::Float {
                    continue;
                }
                let known = numbers.contains_key(&v);
                let at = in_block(v, &mut self.values, &mut numbers);
                if is_def {
                    writes.push(at);
                    continue;
                }
                self.values[at].uses += 1;
                if !known {
                    // Defined before the block: in a loop it stays for the next iteration.
                    (self.values[at].enters, self.values[at].stays) = (true, true);
                }
                match reads.iter_mut().find(|(of, _)| *of == at) {
                    Some((_, times)) => *times += 1,
                    None => reads.push((at, 1)),
                }
            }
            let from_memory = inst.is_load() && reads.is_empty() && !writes.is_empty();
            self.is_load.push(from_memory && !inst.touches_flags());
            self.reads.push(reads);
            self.writes.push(writes);
        }
        self.definer = vec![None; self.values.len()];
        for (v, at) in &numbers {
            let value = &mut self.values[*at];
            value.stays |= outside.more_than(*v, value.uses);
            self.definer[*at] = definer.get(v).copied();
        }
    }

    /// Adds the order of accesses to memory, of the flags, and of what ends the kernel.
    fn add_order(&mut self) {
        let (mut store, mut loads): (Option<u32>, Vec<u32>) = (None, Vec::new());
        let mut flags: Option<u32> = None;
        for (i, inst) in self.insts.iter().enumerate() {
            let at = i as u32;
            if inst.is_store() {
                self.before[i].append(&mut loads);
                self.before[i].extend(store.replace(at));
            } else if inst.mem.is_some_and(|mem| mem.base != Base::Pool) && inst.is_load() {
                self.before[i].extend(store);
                loads.push(at);
            }
            if inst.touches_flags() {
                self.before[i].extend(flags.replace(at));
            }
            if inst.ops.is_empty() {
                // It changes all registers, at the end.
                self.before[i] = (0..at).collect();
            }
        }
    }

    fn original(&self) -> Vec<usize> {
        (0..self.insts.len()).collect()
    }

    /// Adds an instruction with those that have to come before it.
    fn add(&self, i: usize, done: &mut [bool], order: &mut Vec<usize>) {
        if done[i] {
            return;
        }
        // Iteration instead of recursion: chains can be long.
        let mut rest = vec![(i, 0)];
        while let Some((i, next)) = rest.pop() {
            if done[i] {
                continue;
            }
            match self.before[i].get(next) {
                Some(before) => {
                    rest.push((i, next + 1));
                    rest.push((*before as usize, 0));
                }
                None => {
                    done[i] = true;
                    order.push(i);
                }
            }
        }
    }

    /// Returns the order with each load directly before its first user.
    fn sunk(&self) -> Vec<usize> {
        let (mut done, mut order) = (vec![false; self.insts.len()], Vec::new());
        let others = (0..self.insts.len()).filter(|i| !self.is_load[*i]);
        others.for_each(|i| self.add(i, &mut done, &mut order));
        self.original().into_iter().for_each(|i| self.add(i, &mut done, &mut order));
        order
    }

    /// Returns the order of the greedy choice.
    fn greedy(&self) -> Vec<usize> {
        let n = self.insts.len();
        let mut uses: Vec<u32> = self.values.iter().map(|v| v.uses).collect();
        let (mut done, mut order) = (vec![false; n], Vec::with_capacity(n));
        // Instructions other than loads that wait for a number of others.
        let mut waits = vec![0u32; n];
        let mut after: Vec<Vec<u32>> = vec![Vec::new(); n];
        for i in (0..n).filter(|i| !self.is_load[*i]) {
            for before in self.before[i].iter().filter(|b| !self.is_load[**b as usize]) {
                waits[i] += 1;
                after[*before as usize].push(i as u32);
            }
        }
        let mut ready: Vec<usize> =
            (0..n).filter(|i| !self.is_load[*i] && waits[*i] == 0).collect();
        while !ready.is_empty() {
            let chosen = (0..ready.len()).min_by_key(|at| self.cost(ready[*at], &uses, &done));
            let i = ready.swap_remove(chosen.unwrap_or(0));
            self.add(i, &mut done, &mut order);
            for (value, times) in &self.reads[i] {
                uses[*value] -= times;
            }
            for next in &after[i] {
                waits[*next as usize] -= 1;
                if waits[*next as usize] == 0 {
                    ready.push(*next as usize);
                }
            }
        }
        self.original().into_iter().for_each(|i| self.add(i, &mut done, &mut order));
        order
    }

    /// Returns the registers that an instruction adds, the least number of remaining uses of what
    /// it reads and is live already, and its position.
    fn cost(&self, i: usize, uses: &[u32], done: &[bool]) -> (i32, u32, usize) {
        let (mut adds, mut rest) = (self.writes[i].len() as i32, u32::MAX);
        for (value, times) in &self.reads[i] {
            let ends = uses[*value] <= *times && !self.values[*value].stays;
            let is_live = self.definer[*value].is_none_or(|by| done[by as usize]);
            match (is_live, ends) {
                (true, true) => adds -= 1,
                (true, false) if !self.values[*value].enters => rest = rest.min(uses[*value]),
                (true, false) => {}
                (false, ends) => adds += i32::from(!ends),
            }
        }
        (adds, rest, i)
    }

    /// Returns how many vector registers an order needs at most.
    fn pressure(&self, order: &[usize]) -> usize {
        let mut uses: Vec<u32> = self.values.iter().map(|v| v.uses).collect();
        let enters = |v: &&Value| v.enters && (v.stays || v.uses > 0);
        let mut live = self.values.iter().filter(enters).count();
        let mut most = live;
        for i in order {
            for (value, times) in &self.reads[*i] {
                uses[*value] -= times;
                if uses[*value] == 0 && !self.values[*value].stays {
                    live -= 1;
                }
            }
            live += self.writes[*i].len();
            most = most.max(live);
            let unused = |v: &&usize| uses[**v] == 0 && !self.values[**v].stays;
            live -= self.writes[*i].iter().filter(unused).count();
        }
        most
    }
}
