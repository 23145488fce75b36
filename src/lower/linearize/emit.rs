//! Emits the items of blocks as instructions.

use super::super::fma::add_product;
use super::super::loop_masks;
use super::items::{Item, Items};
use super::{Block, LoopMasks, Placement, Terms, bodies, fold_of, initial_value};
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, IdSet, Op, SpecialKind, Src, ToSrc, UOp};
use crate::kernel::extent;
use crate::target::Target;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The state of emission.
pub(super) struct Emit<'a> {
    placement: &'a Placement<'a>,
    terms: &'a Terms,
    masks: &'a LoopMasks,
    /// The mask of the open conditional around a loop.
    open_mask: Option<&'a UOp>,
    /// The dtype of index integers.
    width: DType,
    /// Places of loads.
    loaded: FxHashSet<u64>,
    /// True for nodes that no loop uses; empty if the target does not place them last.
    late: Vec<bool>,
    /// The instruction of each node.
    new: Vec<Option<UOp>>,
    pub(super) list: Vec<UOp>,
    listed: IdSet,
    accs: u32,
}

impl<'a> Emit<'a> {
    pub(super) fn new(
        placement: &'a Placement<'a>,
        terms: &'a Terms,
        masks: &'a LoopMasks,
    ) -> Emit<'a> {
        let order = placement.order;
        let loads = order.iter().filter(|u| u.op() == Op::Load);
        let fits = |u: &UOp| u.vmin() >= i32::MIN as i128 && u.vmax() <= i32::MAX as i128;
        let mut indices = order.iter().filter(|u| u.dtype().scalar() == DType::INDEX);
        Emit {
            placement,
            terms,
            masks,
            open_mask: None,
            width: if indices.all(fits) { DType::I32 } else { DType::I64 },
            loaded: loads.map(|u| u.expect_load().place.node.id()).collect(),
            late: Vec::new(),
            new: vec![None; order.len()],
            list: Vec::new(),
            listed: IdSet::default(),
            accs: 0,
        }
    }

    fn push(&mut self, u: UOp) {
        self.list.push(u);
    }

    /// Emits the kernel arguments, then the index of the CPU thread. Constants are not listed.
    pub(super) fn arguments(&mut self, args: &[UOp]) {
        for a in args {
            if let Some(&i) = self.placement.number.get(&a.id()) {
                self.new[i] = Some(a.clone());
            }
            self.push(a.clone());
        }
        for (i, u) in self.placement.order.iter().enumerate() {
            match u.arg() {
                Arg::Const(_) => {
                    let dtype = self.sized(u.dtype());
                    self.new[i] = Some(u.retyped(dtype, Src::new()));
                }
                Arg::Range { kind: AxisKind::Thread, .. } => {
                    let share = UOp::special(SpecialKind::Thread, 0, extent(u), self.width);
                    self.new[i] = Some(share.clone());
                    self.push(share);
                }
                _ => {}
            }
        }
    }

    /// Replaces the index dtype by the width of index integers.
    fn sized(&self, dtype: DType) -> DType {
        if dtype.scalar() == DType::INDEX { self.width.vec(dtype.lanes) } else { dtype }
    }

    /// Emits the whole program.
    pub(super) fn all(&mut self, items: &mut Items, target: &Target) {
        items.edges.sort_unstable();
        items.edges.dedup();
        // On a GPU, values that no loop uses are computed after the loops, so that they occupy no
        // registers there. With barriers, loads are issued early to overlap with the waiting.
        if target.grid && !self.placement.order.iter().any(|u| u.op() == Op::Barrier) {
            self.late = items.unused_in_loops();
        }
        let mut waits = vec![0u32; 3 * items.nodes + self.placement.loops.parent.len()];
        items.edges.iter().for_each(|e| waits[e.1 as usize] += 1);
        self.block(0, items, &mut waits);
    }

    /// Emits a block. Loops nest as deep as a kernel has axes, so recursion is bounded.
    fn block(&mut self, b: Block, items: &Items, waits: &mut [u32]) {
        for item in self.sequence(b, items, waits) {
            match item {
                Item::Node(i) => self.node(i),
                Item::Start(i) => self.start(i),
                Item::Step(i) => self.step(i),
                Item::Loop(l) => self.emit_loop(l, items, waits),
            }
        }
    }

    /// Returns the items of a block in the order of emission.
    fn sequence(&self, b: Block, items: &Items, waits: &mut [u32]) -> Vec<Item> {
        let members = &items.members[b];
        let mut ready: BinaryHeap<Reverse<(u8, usize, Item)>> = members
            .iter()
            .filter(|i| waits[items.number(**i)] == 0)
            .map(|i| Reverse(self.priority(*i)))
            .collect();
        let mut sequence = Vec::with_capacity(members.len());
        while let Some(Reverse((.., first))) = ready.pop() {
            sequence.push(first);
            let from = items.number(first) as u32;
            let edges = &items.edges[items.edges.partition_point(|e| e.0 < from)..];
            for &(_, z) in edges.iter().take_while(|e| e.0 == from) {
                waits[z as usize] -= 1;
                if waits[z as usize] == 0 {
                    ready.push(Reverse(self.priority(items.item(z as usize))));
                }
            }
        }
        assert!(
            sequence.len() == members.len(),
            "linearize: loops depend on each other in {:?}",
            self.placement.order.last()
        );
        sequence
    }

    /// Returns the priority of a ready item, the smallest first: topological order, then values
    /// that no loop uses, then stores.
    fn priority(&self, i: Item) -> (u8, usize, Item) {
        match i {
            Item::Node(n) => match self.placement.order[n].op() {
                Op::Store => (2, n, i),
                // Loads are issued before threads wait for each other.
                Op::Barrier => (1, n, i),
                _ if self.late.get(n) == Some(&true) => (1, usize::MAX / 4 * 3 + n, i),
                _ => (0, n, i),
            },
            Item::Step(n) => (0, n, i),
            // An accumulator is initialized right before its loop.
            Item::Start(n) => (1, n, i),
            Item::Loop(b) => (1, usize::MAX / 2 + b, i),
        }
    }

    /// Emits a loop, inside a conditional if it runs only where a mask holds.
    fn emit_loop(&mut self, l: Block, items: &Items, waits: &mut [u32]) {
        let mask = self.masks.0.get(&l);
        let open = mask.map(|mask| {
            let mask = self.operand(mask);
            self.open_if(&mask)
        });
        if mask.is_some() {
            self.open_mask = mask;
        }
        let old = &self.placement.loops.ranges[l - 1];
        let view = old.expect_range();
        // Without workgroups, an output axis is a loop.
        let kind = if view.kind == AxisKind::Global { AxisKind::Loop } else { view.kind };
        let range = UOp::range(self.operand(view.extent), view.id, kind);
        self.new[self.placement.number_of(old)] = Some(range.clone());
        self.push(range.clone());
        self.block(l, items, waits);
        self.push(range.end_range());
        if let Some(open) = open {
            self.close_if(open);
            self.open_mask = None;
        }
    }

    fn open_if(&mut self, mask: &UOp) -> UOp {
        let open = mask.open_if();
        self.push(open.clone());
        open
    }

    fn close_if(&mut self, open: UOp) {
        self.push(open.end_if());
    }

    fn now(&self, i: usize) -> &UOp {
        self.new[i].as_ref().expect("operands come before users")
    }

    fn operand(&self, s: &UOp) -> UOp {
        self.now(self.placement.number_of(s)).clone()
    }

    /// Emits a node.
    fn node(&mut self, i: usize) {
        let u = &self.placement.order[i];
        if self.new[i].is_some() && u.op() != Op::Reduce {
            return;
        }
        let new = match u.op() {
            Op::Reduce => self.reduced(i),
            Op::Store => self.store(u),
            Op::Load => self.load(u),
            _ => self.value(u),
        };
        self.new[i] = Some(new);
    }

    /// Emits the value of a reduction: that of its accumulator after the loop. An accumulator has
    /// no known bounds, so those of the reduction are emitted as a clamp where an index depends on
    /// it; the bounds proof needs them.
    fn reduced(&mut self, i: usize) -> UOp {
        let (u, acc) = (&self.placement.order[i], self.now(i).clone());
        if !u.dtype().is_int() || !self.is_in_index(u) {
            return acc;
        }
        let (lo, hi) = u.bounds();
        let bound = |b: i128| UOp::constant(b as i64, self.sized(u.dtype()));
        let least = acc.binary(Op::Max, bound(lo));
        let both = least.binary(Op::Min, bound(hi));
        self.push(least);
        self.push(both.clone());
        both
    }

    /// Returns true if an index depends on this node.
    fn is_in_index(&self, u: &UOp) -> bool {
        let mut places = self.placement.order.iter().filter_map(UOp::as_index);
        places.any(|place| place.index.toposort().contains(u))
    }

    /// Emits a store, inside a conditional if it is masked.
    fn store(&mut self, u: &UOp) -> UOp {
        let store = u.expect_store();
        let (place, value) = (self.operand(store.place.node), self.operand(store.value));
        let mask = place.expect_index().mask;
        let open = mask.filter(|m| m.dtype().lanes == 1).map(|mask| self.open_if(mask));
        let at = if mask.is_some_and(|m| m.dtype().lanes > 1) { place } else { place.unmasked() };
        // An unmasked load may have listed the same place.
        if open.is_some() && !self.listed.has(at.id()) {
            self.push(at.clone());
        }
        let store = u.with_src([at, value].to_src());
        self.push(store.clone());
        if let Some(open) = open {
            self.close_if(open);
        }
        store
    }

    /// Emits a load. The mask of the open conditional is not tested again.
    fn load(&mut self, u: &UOp) -> UOp {
        let place = u.expect_load().place;
        let (Some(mask), Some(open)) = (place.mask, self.open_mask) else { return self.value(u) };
        if !loop_masks::follows(mask, open) {
            return self.value(u);
        }
        let at = self.operand(place.node).unmasked();
        if self.listed.insert(at.id()) {
            self.push(at.clone());
        }
        let load = u.with_src([at].to_src());
        self.push(load.clone());
        load
    }

    /// Emits any other node.
    fn value(&mut self, u: &UOp) -> UOp {
        let src: Src = u.src().iter().map(|s| self.operand(s)).collect();
        let dtype = self.sized(u.dtype());
        if u.op() == Op::Cast && src[0].dtype() == dtype {
            return src[0].clone();
        }
        let new = if dtype == u.dtype() { u.with_src(src) } else { u.retyped(dtype, src) };
        // The place of a masked store is emitted inside its `If`.
        let one = |m: &UOp| m.dtype().lanes == 1;
        let in_if = new.as_index().is_some_and(|place| place.mask.is_some_and(one))
            && !self.loaded.contains(&u.id());
        // Two nodes may become equal when index integers get their width.
        if !in_if && self.listed.insert(new.id()) {
            self.push(new.clone());
        }
        new
    }

    /// Emits the initialization of an accumulator.
    fn start(&mut self, i: usize) {
        let u = &self.placement.order[i];
        let dtype = self.sized(u.dtype());
        let initial = initial_value(u).map(|value| self.operand(value));
        let identity = || UOp::literal(fold_of(u).identity(dtype), dtype);
        let acc = initial.unwrap_or_else(identity).define_acc(self.accs);
        self.accs += 1;
        self.new[i] = Some(acc.clone());
        self.push(acc);
    }

    /// Emits the update of an accumulator.
    fn step(&mut self, i: usize) {
        let u = &self.placement.order[i];
        let acc = self.now(i).clone();
        let mut value = acc.clone();
        for body in bodies(u) {
            let body = self.terms.value(body);
            value = match self.terms.fused.contains(&body.id()) {
                true => add_product(
                    &body.with_src(body.src().iter().map(|s| self.operand(s)).collect::<Src>()),
                    &value,
                ),
                false => value.binary(fold_of(u).op(), self.operand(body)),
            };
            self.push(value.clone());
        }
        let assign = acc.assign(&value);
        self.push(assign.clone());
        self.new[i] = Some(assign);
    }
}
