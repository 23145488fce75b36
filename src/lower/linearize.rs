//! Orders a kernel graph as a linear program. Input: a kernel whose ranges are loops or the parts
//! of CPU threads. Output: a list in which operands precede users, loops are opened and closed in
//! order, reductions are accumulators, masked stores are inside an `If`, and index integers have a
//! width: 32 bits if every one of them fits, else 64.
//!
//! A value is placed in the innermost loop of the ranges that it depends on, so loop-invariant
//! values are hoisted, and several reductions over one row become consecutive loops.

use super::decompose::plain;
use super::fma::{add_product, is_product};
use super::loop_masks;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Fold, IdSet, Op, RangeSet, SpecialKind, Src, ToSrc, UOp};
use crate::kernel::{extent, masked_term};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A loop, by its number in nesting order. Block 0 is the whole program.
pub(super) type Block = usize;

pub(super) struct Loops {
    /// The ranges, outer before inner; entry `i` is block `i + 1`.
    ranges: Vec<UOp>,
    place: FxHashMap<u32, Block>,
    pub(super) parent: Vec<Block>,
    depth: Vec<usize>,
}

impl Loops {
    fn of(order: &[UOp]) -> Loops {
        let mut ranges: Vec<UOp> = Vec::new();
        let sink = order.last().expect("a kernel has a sink");
        for s in sink.src() {
            ranges.extend(closed(s).cloned());
        }
        // Stores inside a kernel fill shared memory.
        for u in order.iter().rev().filter(|u| matches!(u.op(), Op::Reduce | Op::Store)) {
            ranges.extend(closed(u).cloned());
        }
        let mut seen = FxHashSet::default();
        ranges.retain(|r| seen.insert(r.range_id()));
        let place: FxHashMap<u32, Block> =
            ranges.iter().enumerate().map(|(i, r)| (r.range_id(), i + 1)).collect();
        // The loops that each loop must be inside of: the other loops of every value that depends
        // on it, and of the node that closes it.
        let mut inside: Vec<BTreeSet<Block>> = vec![BTreeSet::new(); ranges.len() + 1];
        let mut relate = |blocks: &BTreeSet<Block>| {
            let list: Vec<Block> = blocks.iter().copied().collect();
            for w in list.windows(2) {
                inside[w[1]].insert(w[0]);
            }
        };
        // Many nodes use and close the same ranges.
        let mut known: FxHashSet<(&RangeSet, SmallVec<[Block; 8]>)> = FxHashSet::default();
        for u in order {
            let closed: SmallVec<[Block; 8]> = closed(u).map(|r| place[&r.range_id()]).collect();
            if known.insert((u.ranges(), closed.clone())) {
                relate(
                    &closed
                        .into_iter()
                        .chain(u.ranges().iter().filter_map(|id| place.get(&id).copied()))
                        .collect(),
                );
            }
        }
        let mut parent = vec![0; ranges.len() + 1];
        // Two loops that enclose a third enclose each other; the innermost is its parent.
        for b in (1..=ranges.len()).rev() {
            let list: Vec<Block> = inside[b].iter().copied().collect();
            for w in list.windows(2) {
                inside[w[1]].insert(w[0]);
            }
            parent[b] = list.last().copied().unwrap_or(0);
        }
        // Parents have smaller numbers than their children.
        let mut depth = vec![0; parent.len()];
        for b in 1..parent.len() {
            depth[b] = depth[parent[b]] + 1;
        }
        Loops { ranges, place, parent, depth }
    }

    /// Returns the deeper of two blocks, one of which is inside the other.
    fn deeper(&self, a: Block, b: Block) -> Block {
        if self.depth[a] >= self.depth[b] { a } else { b }
    }

    fn of_node(&self, u: &UOp) -> Block {
        u.ranges().iter().filter_map(|id| self.place.get(&id).copied()).max().unwrap_or(0)
    }
}

/// Returns the terms that a reduction combines per iteration: one, or after `unroll` several, which
/// follow its ranges.
pub(super) fn bodies(u: &UOp) -> impl Iterator<Item = &UOp> {
    std::iter::once(&u.src()[0]).chain(u.src()[1..].iter().filter(|s| s.op() != Op::Range))
}

/// Returns the loops that a node closes.
fn closed(u: &UOp) -> impl Iterator<Item = &UOp> {
    let list = match u.op() {
        Op::Reduce => &u.src()[1..],
        Op::Store => &u.src()[2..],
        _ => &[],
    };
    list.iter().filter(|r| r.op() == Op::Range && r.range_kind() != AxisKind::Thread)
}

/// An entry of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Item {
    /// A value or effect, by its position in the topological order.
    Node(usize),
    /// The initialization of the accumulator of the reduction at that position.
    Start(usize),
    /// The update of the accumulator of the reduction at that position.
    Step(usize),
    /// A loop.
    Loop(Block),
}

/// The items of each block, and their dependencies.
struct Items {
    /// Number of nodes of the graph.
    nodes: usize,
    members: Vec<Vec<Item>>,
    /// Dependencies between items of one block, by number: the first precedes the second.
    edges: Vec<(u32, u32)>,
}

impl Items {
    fn number(&self, item: Item) -> usize {
        match item {
            Item::Node(i) => i,
            Item::Start(i) => self.nodes + i,
            Item::Step(i) => 2 * self.nodes + i,
            Item::Loop(b) => 3 * self.nodes + b,
        }
    }
    fn item(&self, number: usize) -> Item {
        let (kind, i) = (number / self.nodes, number % self.nodes);
        match kind {
            0 => Item::Node(i),
            1 => Item::Start(i),
            2 => Item::Step(i),
            _ => Item::Loop(number - 3 * self.nodes),
        }
    }
    /// Adds an item to a block.
    fn place(&mut self, item: Item, b: Block) {
        self.members[b].push(item);
    }
    /// Orders the first item before the second, in the innermost block that contains both.
    fn edge(
        &mut self,
        loops: &Loops,
        (mut a, mut at): (Item, Block),
        (mut z, mut to): (Item, Block),
    ) {
        while at != to {
            if loops.depth[at] >= loops.depth[to] {
                (a, at) = (Item::Loop(at), loops.parent[at]);
            } else {
                (z, to) = (Item::Loop(to), loops.parent[to]);
            }
        }
        if a != z {
            self.edges.push((self.number(a) as u32, self.number(z) as u32));
        }
    }
}

/// Orders a kernel as a linear program. `args` are the arguments of the kernel: one that
/// simplification removed from the graph keeps its slot.
pub fn linearize(ast: &UOp, args: &[UOp], target: &Target) -> Vec<UOp> {
    let order = ast.toposort();
    let loops = Loops::of(&order);
    let number: FxHashMap<u64, usize> =
        order.iter().enumerate().map(|(i, u)| (u.id(), i)).collect();

    // Stores in an ordered loop.
    let in_order = |s: &&UOp| {
        s.op() == Op::Store
            && s.src()[2..]
                .iter()
                .any(|r| r.op() == Op::Range && r.range_kind() == AxisKind::Ordered)
    };
    let updates: Vec<&UOp> = ast.src().iter().filter(in_order).collect();

    // The block of each item.
    let mut block: Vec<Block> = vec![0; order.len()];
    for (i, u) in order.iter().enumerate() {
        let mut b = loops.of_node(u);
        for s in u.src() {
            // The result of a reduction is outside the loops that it closes.
            if u.op() != Op::Reduce && s.op() != Op::Range {
                // A barrier after a store is outside the loops that the store closes.
                let from = if u.op() == Op::Barrier {
                    closed(s).map(|r| loops.place[&r.range_id()]).min()
                } else {
                    None
                };
                b = loops.deeper(
                    b,
                    from.map_or(block[number[&s.id()]], |outermost| loops.parent[outermost]),
                );
            }
        }
        match u.op() {
            Op::Range => b = loops.place.get(&u.range_id()).copied().unwrap_or(0),
            Op::Reduce => {
                let outermost = closed(u).map(|r| loops.place[&r.range_id()]).min().unwrap_or(0);
                b = loops.deeper(b, loops.parent[outermost]);
            }
            // A store is inside all the loops that it closes.
            Op::Store => {
                for r in closed(u) {
                    b = loops.deeper(b, loops.place[&r.range_id()]);
                }
            }
            // The load of an update is not loop-invariant, even where its index is: it stays inside
            // the ordered loop.
            Op::Load => {
                for r in updates
                    .iter()
                    .filter(|s| s.src()[0].src()[0] == u.src()[0].src()[0])
                    .flat_map(|s| closed(s))
                {
                    b = loops.deeper(b, loops.place[&r.range_id()]);
                }
            }
            Op::Sink => b = 0,
            _ => {}
        }
        block[i] = b;
    }
    let step_block = |i: usize| -> Block {
        if order[i].op() == Op::Scan {
            return block[i];
        }
        let closing = closed(&order[i]).map(|r| loops.place[&r.range_id()]).max().unwrap_or(0);
        bodies(&order[i]).fold(closing, |b, body| loops.deeper(b, block[number[&body.id()]]))
    };

    // Loops that run only where a mask holds, and the reductions in them.
    let reduces: Vec<(&UOp, Block)> = order
        .iter()
        .enumerate()
        .filter(|(_, u)| u.op() == Op::Reduce)
        .map(|(i, u)| (u, step_block(i)))
        .collect();
    let effects: Vec<Block> = order
        .iter()
        .zip(&block)
        .filter(|(u, _)| matches!(u.op(), Op::Store | Op::Barrier | Op::Shuffle | Op::Wmma))
        .map(|(_, b)| *b)
        .collect();
    let gated = loop_masks::of_loops(&loops, &reduces, &effects, |u| block[number[&u.id()]]);
    let inside = |mut b: Block| {
        while b > 0 && !gated.contains_key(&b) {
            b = loops.parent[b];
        }
        gated.get(&b)
    };

    // Products that only a sum uses are fused into its update; inside a loop that runs only where a
    // mask holds, a masked term is its value.
    let mut users = vec![0; order.len()];
    for s in order.iter().flat_map(|u| u.src()) {
        users[number[&s.id()]] += 1;
    }
    let mut fused: FxHashSet<u64> = FxHashSet::default();
    let mut terms: FxHashMap<u64, UOp> = FxHashMap::default();
    for (u, step) in &reduces {
        for body in bodies(u) {
            let only = |b: &UOp| users[number[&b.id()]] == 1;
            let mut term = body.clone();
            if inside(*step).is_some()
                && let Some((_, value)) = masked_term(fold_of(u), body)
            {
                terms.insert(body.id(), value.clone());
                if only(body) {
                    fused.insert(body.id());
                }
                term = value;
            }
            if (term == *body || only(body)) && only(&term) && is_product(fold_of(u), &term, target)
            {
                fused.insert(term.id());
            }
        }
    }

    let mut items = Items {
        nodes: order.len(),
        members: vec![Vec::new(); loops.parent.len()],
        edges: Vec::new(),
    };
    for (i, u) in order.iter().enumerate() {
        if matches!(u.op(), Op::Const | Op::Sink | Op::Range) || fused.contains(&u.id()) {
            continue;
        }
        items.place(Item::Node(i), block[i]);
        let operand = |s: &UOp| {
            let n = number[&s.id()];
            (Item::Node(n), block[n])
        };
        if matches!(u.op(), Op::Reduce | Op::Scan) {
            let step = step_block(i);
            // The accumulator of a scan is initialized before its loop.
            let start = if u.op() == Op::Scan {
                loops.parent[loops.place[&u.src()[1].range_id()]]
            } else {
                block[i]
            };
            items.place(Item::Start(i), start);
            items.place(Item::Step(i), step);
            items.edge(&loops, (Item::Start(i), start), (Item::Step(i), step));
            if let Some(condition) = inside(step).filter(|c| c.as_const().is_none()) {
                items.edge(&loops, operand(condition), (Item::Step(i), step));
            }
            for body in bodies(u).map(|b| terms.get(&b.id()).unwrap_or(b)) {
                let operands = if fused.contains(&body.id()) {
                    body.src()
                } else {
                    std::slice::from_ref(body)
                };
                for s in operands.iter().filter(|s| !matches!(s.op(), Op::Const | Op::Range)) {
                    items.edge(&loops, operand(s), (Item::Step(i), step));
                }
            }
            items.edge(&loops, (Item::Step(i), step), (Item::Node(i), block[i]));
        } else {
            for s in u.src().iter().filter(|s| !matches!(s.op(), Op::Const | Op::Range)) {
                items.edge(&loops, operand(s), (Item::Node(i), block[i]));
            }
        }
    }
    // A loop begins after its extent is computed.
    for b in 1..loops.parent.len() {
        let end = &loops.ranges[b - 1].src()[0];
        if end.op() != Op::Const {
            let n = number[&end.id()];
            items.edge(&loops, (Item::Node(n), block[n]), (Item::Loop(b), loops.parent[b]));
        }
    }
    // Loops that are not empty, each in its parent. Parents have smaller numbers.
    for b in (1..loops.parent.len()).rev() {
        if !items.members[b].is_empty() {
            items.place(Item::Loop(b), loops.parent[b]);
        }
    }
    let loaded = order.iter().filter(|u| u.op() == Op::Load).map(|u| u.src()[0].id()).collect();
    let new = vec![None; order.len()];
    let is_index = |u: &&UOp| u.dtype().scalar() == DType::INDEX;
    let fits = order
        .iter()
        .filter(is_index)
        .all(|u| u.vmin() >= i32::MIN as i128 && u.vmax() <= i32::MAX as i128);
    let width = if fits { DType::I32 } else { DType::I64 };
    let mut emit = Emit {
        order: &order,
        loops: &loops,
        number: &number,
        width,
        loaded,
        fused,
        terms,
        gated,
        gate: None,
        new,
        late: Vec::new(),
        list: Vec::new(),
        listed: IdSet::default(),
        accs: 0,
    };
    emit.arguments(args);
    emit.all(&mut items, target);
    emit.list
}

struct Emit<'a> {
    order: &'a [UOp],
    loops: &'a Loops,
    number: &'a FxHashMap<u64, usize>,
    /// The dtype of index integers.
    width: DType,
    /// Products that are fused into the update of a sum.
    fused: FxHashSet<u64>,
    /// The values of masked terms inside loops that run only where the mask holds.
    terms: FxHashMap<u64, UOp>,
    /// Loops that run only where a mask holds, and the mask of the open one.
    gated: FxHashMap<Block, UOp>,
    gate: Option<UOp>,
    /// Places of loads.
    loaded: FxHashSet<u64>,
    /// True for nodes that no loop uses; empty if the target does not place them last.
    late: Vec<bool>,
    /// The instruction of each node.
    new: Vec<Option<UOp>>,
    list: Vec<UOp>,
    listed: IdSet,
    accs: u32,
}

impl Emit<'_> {
    fn push(&mut self, u: UOp) {
        self.list.push(u);
    }

    /// Emits the kernel arguments, then the part of the CPU thread. Constants are not listed.
    fn arguments(&mut self, args: &[UOp]) {
        for a in args {
            if let Some(&i) = self.number.get(&a.id()) {
                self.new[i] = Some(a.clone());
            }
            self.push(a.clone());
        }
        for (i, u) in self.order.iter().enumerate() {
            match u.arg() {
                Arg::Const(_) => {
                    self.new[i] = Some(UOp::new(
                        Op::Const,
                        self.sized(u.dtype()),
                        Src::new(),
                        u.arg().clone(),
                    ))
                }
                Arg::Range { kind: AxisKind::Thread, .. } => {
                    let arg = Arg::Special { kind: SpecialKind::Thread, dim: 0, extent: extent(u) };
                    let share = UOp::new(Op::Special, self.width, Src::new(), arg);
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
    fn all(&mut self, items: &mut Items, target: &Target) {
        items.edges.sort_unstable();
        items.edges.dedup();
        // On a GPU, values that no loop uses are computed after the loops, so that they occupy no
        // registers there. With barriers, loads are issued early to overlap with the waiting.
        if target.grid && !self.order.iter().any(|u| u.op() == Op::Barrier) {
            self.late = vec![true; items.nodes];
            for &(from, to) in items.edges.iter().rev() {
                if let (Item::Node(n), needs) = (items.item(from as usize), items.item(to as usize))
                {
                    self.late[n] &= match needs {
                        Item::Node(user) => self.late[user],
                        Item::Start(_) => true,
                        Item::Step(_) | Item::Loop(_) => false,
                    };
                }
            }
        }
        let mut waits = vec![0u32; 3 * items.nodes + self.loops.parent.len()];
        items.edges.iter().for_each(|e| waits[e.1 as usize] += 1);
        self.block(0, items, &mut waits);
    }

    /// Emits a block. Loops nest as deep as a kernel has axes, so recursion is bounded.
    fn block(&mut self, b: Block, items: &Items, waits: &mut [u32]) {
        // Priority of ready items: topological order, then values that no loop uses, then stores.
        let urgency = |i: Item| -> (u8, usize, Item) {
            match i {
                Item::Node(n) if self.order[n].op() == Op::Store => (2, n, i),
                // Loads are issued before threads wait for each other.
                Item::Node(n) if self.order[n].op() == Op::Barrier => (1, n, i),
                Item::Node(n) if self.late.get(n) == Some(&true) => (1, usize::MAX / 4 * 3 + n, i),
                Item::Node(n) | Item::Step(n) => (0, n, i),
                // An accumulator is initialized right before its loop.
                Item::Start(n) => (1, n, i),
                Item::Loop(b) => (1, usize::MAX / 2 + b, i),
            }
        };
        let members = &items.members[b];
        let mut ready: BinaryHeap<Reverse<(u8, usize, Item)>> = members
            .iter()
            .filter(|i| waits[items.number(**i)] == 0)
            .map(|i| Reverse(urgency(*i)))
            .collect();
        let mut sequence = Vec::with_capacity(members.len());
        while let Some(Reverse((.., first))) = ready.pop() {
            sequence.push(first);
            let from = items.number(first) as u32;
            let edges = &items.edges[items.edges.partition_point(|e| e.0 < from)..];
            for &(_, z) in edges.iter().take_while(|e| e.0 == from) {
                waits[z as usize] -= 1;
                if waits[z as usize] == 0 {
                    ready.push(Reverse(urgency(items.item(z as usize))));
                }
            }
        }
        assert!(
            sequence.len() == members.len(),
            "linearize: loops depend on each other in {:?}",
            self.order.last()
        );
        for item in sequence {
            match item {
                Item::Node(i) => self.node(i),
                Item::Start(i) => self.start(i),
                Item::Step(i) => self.step(i),
                Item::Loop(l) => {
                    let open = self.gated.get(&l).cloned().map(|c| {
                        let open =
                            UOp::new(Op::If, DType::VOID, [self.operand(&c)].to_src(), Arg::None);
                        self.push(open.clone());
                        self.gate = Some(c);
                        open
                    });
                    let old = &self.loops.ranges[l - 1];
                    // Without workgroups, an output axis is a loop.
                    let kind = if old.range_kind() == AxisKind::Global {
                        AxisKind::Loop
                    } else {
                        old.range_kind()
                    };
                    let arg = Arg::Range { id: old.range_id(), kind, lanes: false };
                    let range = UOp::new(
                        Op::Range,
                        self.width,
                        [self.operand(&old.src()[0])].to_src(),
                        arg,
                    );
                    self.new[self.number[&old.id()]] = Some(range.clone());
                    self.push(range.clone());
                    self.block(l, items, waits);
                    self.push(UOp::new(Op::EndRange, DType::VOID, [range].to_src(), Arg::None));
                    if let Some(open) = open {
                        self.push(UOp::new(Op::EndIf, DType::VOID, [open].to_src(), Arg::None));
                        self.gate = None;
                    }
                }
            }
        }
    }

    fn now(&self, i: usize) -> &UOp {
        self.new[i].as_ref().expect("operands come before users")
    }

    fn operand(&self, s: &UOp) -> UOp {
        self.now(self.number[&s.id()]).clone()
    }

    fn node(&mut self, i: usize) {
        if self.new[i].is_some() && self.order[i].op() != Op::Reduce {
            return;
        }
        let u = self.order[i].clone();
        match u.op() {
            // The value of a reduction is that of its accumulator after the loop. An accumulator
            // has no known bounds, so those of the reduction are emitted as a clamp where an index
            // depends on it; the bounds proof needs them.
            Op::Reduce if u.dtype().is_int() && self.is_place(&u) => {
                let (lo, hi) = u.bounds();
                let bound = |b: i128| UOp::constant(b as i64, self.sized(u.dtype()));
                let least = self.now(i).binary(Op::Max, bound(lo));
                let both = least.binary(Op::Min, bound(hi));
                self.push(least);
                self.push(both.clone());
                self.new[i] = Some(both);
            }
            Op::Reduce => {}
            Op::Store => {
                let (place, value) = (self.operand(&u.src()[0]), self.operand(&u.src()[1]));
                let valid = place.src().get(2).cloned();
                let open = valid.map(|v| UOp::new(Op::If, DType::VOID, [v].to_src(), Arg::None));
                let at = plain(&place);
                if let Some(open) = &open {
                    self.push(open.clone());
                    // An unmasked load may have listed the same place.
                    if !self.listed.has(at.id()) {
                        self.push(at.clone());
                    }
                }
                let store = UOp::new(Op::Store, DType::VOID, [at, value].to_src(), Arg::None);
                self.push(store.clone());
                if let Some(open) = open {
                    self.push(UOp::new(Op::EndIf, DType::VOID, [open].to_src(), Arg::None));
                }
                self.new[i] = Some(store);
            }
            // The mask of the open conditional is not tested again.
            Op::Load
                if u.src()[0].src().get(2).is_some_and(|v| {
                    self.gate.as_ref().is_some_and(|g| loop_masks::follows(v, g))
                }) =>
            {
                let at = plain(&self.operand(&u.src()[0]));
                if self.listed.insert(at.id()) {
                    self.push(at.clone());
                }
                let new = u.with_src([at].to_src());
                self.push(new.clone());
                self.new[i] = Some(new);
            }
            _ => {
                let src: Src = u.src().iter().map(|s| self.operand(s)).collect();
                let dtype = self.sized(u.dtype());
                if u.op() == Op::Cast && src[0].dtype() == dtype {
                    self.new[i] = Some(src[0].clone());
                    return;
                }
                let new = if dtype == u.dtype() {
                    u.with_src(src)
                } else {
                    UOp::new(u.op(), dtype, src, u.arg().clone())
                };
                // The place of a masked store is emitted inside its `If`.
                let guarded =
                    new.op() == Op::Index && new.src().len() > 2 && !self.loaded.contains(&u.id());
                // Two nodes may become equal when index integers get their width.
                if !guarded && self.listed.insert(new.id()) {
                    self.push(new.clone());
                }
                self.new[i] = Some(new);
            }
        }
    }

    /// Returns true if an index depends on this node.
    fn is_place(&self, u: &UOp) -> bool {
        self.order.iter().filter(|n| n.op() == Op::Index).any(|n| n.src()[1].toposort().contains(u))
    }

    fn start(&mut self, i: usize) {
        let u = &self.order[i];
        let fold = fold_of(u);
        let dtype = self.sized(u.dtype());
        let init = UOp::new(Op::Const, dtype, Src::new(), Arg::Const(fold.identity(dtype)));
        let acc = UOp::new(Op::DefineAcc, dtype, [init].to_src(), Arg::Acc(self.accs));
        self.accs += 1;
        self.new[i] = Some(acc.clone());
        self.push(acc);
    }

    fn step(&mut self, i: usize) {
        let u = self.order[i].clone();
        let acc = self.now(i).clone();
        let mut value = acc.clone();
        for body in bodies(&u) {
            let body = self.terms.get(&body.id()).unwrap_or(body);
            value = match self.fused.contains(&body.id()) {
                true => add_product(
                    &body.with_src(body.src().iter().map(|s| self.operand(s)).collect::<Src>()),
                    &value,
                ),
                false => value.binary(fold_of(&u).op(), self.operand(body)),
            };
            self.push(value.clone());
        }
        let assign = UOp::new(Op::Assign, acc.dtype(), [acc, value].to_src(), Arg::None);
        self.push(assign.clone());
        self.new[i] = Some(assign);
    }
}

pub(super) fn fold_of(u: &UOp) -> Fold {
    match u.arg() {
        Arg::Reduce { fold, .. } => *fold,
        _ => panic!("a reduce or scan without a payload: {u:?}"),
    }
}
