//! From a graph to a list: the linear program. A value is placed in the innermost loop of the ranges that it depends on, so whatever does
//! not change inside a loop is computed outside it, and several reduces over one row become loops that follow each other.
//!
//! In comes a kernel whose ranges are all loops; out comes a list in which operands precede users, loops are opened and closed in order,
//! reduces are accumulators, and guarded stores stand in `If`s.

use super::decompose::plain;
use crate::dtype::DType;
use crate::ir::{Arg, Fold, Op, Src, ToSrc, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// A loop, by its place in the order of nesting. The whole program is the place 0.
type Block = usize;

struct Loops {
    /// The ranges, outer before inner; entry `i` is block `i + 1`.
    ranges: Vec<UOp>,
    place: FxHashMap<u32, Block>,
    parent: Vec<Block>,
}

impl Loops {
    fn of(order: &[UOp]) -> Loops {
        let mut ranges: Vec<UOp> = Vec::new();
        let sink = order.last().expect("a kernel has a sink");
        for s in sink.src() {
            ranges.extend(s.src()[2..].iter().filter(|r| r.op() == Op::Range).cloned());
        }
        for u in order.iter().rev().filter(|u| u.op() == Op::Reduce) {
            ranges.extend(u.src()[1..].iter().cloned());
        }
        let mut seen = FxHashSet::default();
        ranges.retain(|r| seen.insert(r.range_id()));
        let place: FxHashMap<u32, Block> = ranges.iter().enumerate().map(|(i, r)| (r.range_id(), i + 1)).collect();
        // What each loop must be inside of: the other loops of every value that depends on it, and of whatever closes it.
        let mut inside: Vec<BTreeSet<Block>> = vec![BTreeSet::new(); ranges.len() + 1];
        let mut relate = |blocks: &BTreeSet<Block>| {
            let list: Vec<Block> = blocks.iter().copied().collect();
            for w in list.windows(2) {
                inside[w[1]].insert(w[0]);
            }
        };
        for u in order {
            let mut blocks: BTreeSet<Block> = u.ranges().iter().filter_map(|id| place.get(&id).copied()).collect();
            let closed = match u.op() {
                Op::Reduce => &u.src()[1..],
                Op::Store => &u.src()[2..],
                _ => &[],
            };
            blocks.extend(closed.iter().filter(|r| r.op() == Op::Range).map(|r| place[&r.range_id()]));
            relate(&blocks);
        }
        let mut parent = vec![0; ranges.len() + 1];
        // A loop that must be inside two others has them inside each other; the nearest is its parent.
        for b in (1..=ranges.len()).rev() {
            let list: Vec<Block> = inside[b].iter().copied().collect();
            for w in list.windows(2) {
                inside[w[1]].insert(w[0]);
            }
            parent[b] = list.last().copied().unwrap_or(0);
        }
        Loops { ranges, place, parent }
    }

    fn depth(&self, mut b: Block) -> usize {
        let mut d = 0;
        while b != 0 {
            b = self.parent[b];
            d += 1;
        }
        d
    }

    /// The deeper of two blocks, one of which must be inside the other.
    fn deeper(&self, a: Block, b: Block) -> Block {
        if self.depth(a) >= self.depth(b) { a } else { b }
    }

    /// The blocks from the outside in.
    fn path(&self, mut b: Block) -> Vec<Block> {
        let mut path = vec![b];
        while b != 0 {
            b = self.parent[b];
            path.push(b);
        }
        path.reverse();
        path
    }

    fn of_node(&self, u: &UOp) -> Block {
        u.ranges().iter().filter_map(|id| self.place.get(&id).copied()).max().unwrap_or(0)
    }
}

/// Something to put down in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Item {
    /// A value or effect, by its place in the graph's order.
    Node(usize),
    /// The accumulator of the reduce at that place, set to its start.
    Start(usize),
    /// A step of the reduce at that place.
    Step(usize),
    /// A loop.
    Loop(Block),
}

/// The pass. The arguments are those of the kernel: one that simplification has left without a use keeps its slot.
pub fn linearize(ast: &UOp, args: &[UOp]) -> Vec<UOp> {
    let order = ast.toposort();
    let loops = Loops::of(&order);
    let number: FxHashMap<u64, usize> = order.iter().enumerate().map(|(i, u)| (u.id(), i)).collect();

    // The block of each item.
    let mut block: Vec<Block> = vec![0; order.len()];
    for (i, u) in order.iter().enumerate() {
        let mut b = loops.of_node(u);
        for s in u.src() {
            let from = block[number[&s.id()]];
            // A reduce leaves the loops that it closes.
            if u.op() != Op::Reduce && s.op() != Op::Range {
                b = loops.deeper(b, from);
            }
        }
        match u.op() {
            Op::Range => b = loops.place.get(&u.range_id()).copied().unwrap_or(0),
            Op::Reduce => {
                let outermost = u.src()[1..].iter().map(|r| loops.place[&r.range_id()]).min().unwrap_or(0);
                b = loops.deeper(b, loops.parent[outermost]);
            }
            // A store is in all the loops that it closes.
            Op::Store => {
                for r in u.src()[2..].iter().filter(|r| r.op() == Op::Range) {
                    b = loops.deeper(b, loops.place[&r.range_id()]);
                }
            }
            Op::Sink => b = 0,
            _ => {}
        }
        block[i] = b;
    }
    let step_block = |i: usize| -> Block {
        let closing = order[i].src()[1..].iter().map(|r| loops.place[&r.range_id()]).max().unwrap_or(0);
        loops.deeper(closing, block[number[&order[i].src()[0].id()]])
    };

    // Which item must come before which, in the block where their paths part.
    let mut before: FxHashMap<Block, Vec<(Item, Item)>> = FxHashMap::default();
    let mut members: FxHashMap<Block, BTreeSet<Item>> = FxHashMap::default();
    let mut place = |item: Item, b: Block| {
        members.entry(b).or_default().insert(item);
        let mut b = b;
        while b != 0 {
            members.entry(loops.parent[b]).or_default().insert(Item::Loop(b));
            b = loops.parent[b];
        }
    };
    let mut edge = |(a, at): (Item, Block), (z, to): (Item, Block)| {
        let (p, q) = (loops.path(at), loops.path(to));
        let common = p.iter().zip(&q).take_while(|(x, y)| x == y).count();
        let here = p[common - 1];
        let first = if common < p.len() { Item::Loop(p[common]) } else { a };
        let second = if common < q.len() { Item::Loop(q[common]) } else { z };
        if first != second {
            before.entry(here).or_default().push((first, second));
        }
    };
    for (i, u) in order.iter().enumerate() {
        if matches!(u.op(), Op::Const | Op::Sink | Op::Range) {
            continue;
        }
        place(Item::Node(i), block[i]);
        let operand = |s: &UOp| (Item::Node(number[&s.id()]), block[number[&s.id()]]);
        if u.op() == Op::Reduce {
            let step = step_block(i);
            place(Item::Start(i), block[i]);
            place(Item::Step(i), step);
            edge((Item::Start(i), block[i]), (Item::Step(i), step));
            if !matches!(u.src()[0].op(), Op::Const | Op::Range) {
                edge(operand(&u.src()[0]), (Item::Step(i), step));
            }
            edge((Item::Step(i), step), (Item::Node(i), block[i]));
        } else {
            for s in u.src().iter().filter(|s| !matches!(s.op(), Op::Const | Op::Range)) {
                edge(operand(s), (Item::Node(i), block[i]));
            }
        }
    }

    let mut emit = Emit { order: &order, loops: &loops, number: &number, new: FxHashMap::default(), list: Vec::new(), accs: 0 };
    emit.arguments(args);
    emit.block(0, &members, &before);
    emit.list
}

struct Emit<'a> {
    order: &'a [UOp],
    loops: &'a Loops,
    number: &'a FxHashMap<u64, usize>,
    /// What each node has become in the list.
    new: FxHashMap<usize, UOp>,
    list: Vec<UOp>,
    accs: u32,
}

impl Emit<'_> {
    fn push(&mut self, u: UOp) {
        self.list.push(u);
    }

    /// Kernel arguments come first.
    fn arguments(&mut self, args: &[UOp]) {
        for a in args {
            if let Some(&i) = self.number.get(&a.id()) {
                self.new.insert(i, a.clone());
            }
            self.push(a.clone());
        }
    }

    /// Puts down a block. Loops nest as deep as a kernel has axes, so recursion is bounded.
    fn block(&mut self, b: Block, members: &FxHashMap<Block, BTreeSet<Item>>, before: &FxHashMap<Block, Vec<(Item, Item)>>) {
        let items: Vec<Item> = members.get(&b).into_iter().flatten().copied().collect();
        let mut waits: FxHashMap<Item, usize> = items.iter().map(|i| (*i, 0)).collect();
        let mut next: FxHashMap<Item, Vec<Item>> = FxHashMap::default();
        let mut seen = FxHashSet::default();
        for (a, z) in before.get(&b).into_iter().flatten() {
            if seen.insert((*a, *z)) {
                *waits.get_mut(z).expect("both ends are in the block") += 1;
                next.entry(*a).or_default().push(*z);
            }
        }
        // Among items that are ready: the order of the graph, effects on memory last.
        let urgency = |i: &Item| -> (u8, usize, Item) {
            match i {
                Item::Node(n) if self.order[*n].op() == Op::Store => (2, *n, *i),
                Item::Node(n) | Item::Step(n) => (0, *n, *i),
                // An accumulator is set right before its loop.
                Item::Start(n) => (1, *n, *i),
                Item::Loop(b) => (1, usize::MAX / 2 + *b, *i),
            }
        };
        let mut ready: BTreeSet<(u8, usize, Item)> = waits.iter().filter(|(_, n)| **n == 0).map(|(i, _)| urgency(i)).collect();
        let mut left = items.len();
        let mut sequence = Vec::with_capacity(items.len());
        while let Some(first) = ready.pop_first() {
            left -= 1;
            sequence.push(first.2);
            for z in next.get(&first.2).into_iter().flatten() {
                let n = waits.get_mut(z).expect("both ends are in the block");
                *n -= 1;
                if *n == 0 {
                    ready.insert(urgency(z));
                }
            }
        }
        assert!(left == 0, "loops wait for each other in {:?}", self.order.last());
        for item in sequence {
            match item {
                Item::Node(i) => self.node(i),
                Item::Start(i) => self.start(i),
                Item::Step(i) => self.step(i),
                Item::Loop(l) => {
                    let range = self.loops.ranges[l - 1].clone();
                    let i = self.number[&range.id()];
                    self.new.insert(i, range.clone());
                    self.push(range.clone());
                    self.block(l, members, before);
                    self.push(UOp::new(Op::EndRange, DType::VOID, [range].to_src(), Arg::None));
                }
            }
        }
    }

    fn operand(&self, s: &UOp) -> UOp {
        match s.op() {
            Op::Const | Op::Range => s.clone(),
            _ => self.new[&self.number[&s.id()]].clone(),
        }
    }

    fn node(&mut self, i: usize) {
        if self.new.contains_key(&i) && self.order[i].op() != Op::Reduce {
            return;
        }
        let u = self.order[i].clone();
        match u.op() {
            // The value of a reduce is what its accumulator holds after the last step. The bounds of a reduce are not those of an accumulator, of which nothing is
            // known; where a place depends on them they are put down, so that it can be seen to lie inside its buffer.
            Op::Reduce if u.dtype().is_int() && self.is_place(&u) => {
                let (lo, hi) = u.bounds();
                let bound = |b: i128| UOp::constant(b as i64, u.dtype());
                let least = self.new[&i].binary(Op::Max, bound(lo));
                let both = least.binary(Op::Min, bound(hi));
                self.push(least);
                self.push(both.clone());
                self.new.insert(i, both);
            }
            Op::Reduce => {}
            Op::Store => {
                let (place, value) = (self.operand(&u.src()[0]), self.operand(&u.src()[1]));
                let valid = place.src().get(2).cloned();
                let open = valid.map(|v| UOp::new(Op::If, DType::VOID, [v].to_src(), Arg::None));
                let at = plain(&place);
                if let Some(open) = &open {
                    self.push(open.clone());
                    self.push(at.clone());
                }
                let store = UOp::new(Op::Store, DType::VOID, [at, value].to_src(), Arg::None);
                self.push(store.clone());
                if let Some(open) = open {
                    self.push(UOp::new(Op::EndIf, DType::VOID, [open].to_src(), Arg::None));
                }
                self.new.insert(i, store);
            }
            _ => {
                let src: Src = u.src().iter().map(|s| self.operand(s)).collect();
                let new = u.with_src(src);
                // The place of a guarded store is put down inside its `If`.
                let guarded = new.op() == Op::Index && new.src().len() > 2 && !self.is_loaded(i);
                if !guarded {
                    self.push(new.clone());
                }
                self.new.insert(i, new);
            }
        }
    }

    /// Does a place in memory depend on this node?
    fn is_place(&self, u: &UOp) -> bool {
        self.order.iter().filter(|n| n.op() == Op::Index).any(|n| n.src()[1].toposort().contains(u))
    }

    /// Does a load use this place?
    fn is_loaded(&self, i: usize) -> bool {
        let place = &self.order[i];
        self.order[i..].iter().any(|u| u.op() == Op::Load && u.src()[0] == *place)
    }

    fn start(&mut self, i: usize) {
        let u = &self.order[i];
        let fold = fold_of(u);
        let init = UOp::new(Op::Const, u.dtype(), Src::new(), Arg::Const(fold.identity(u.dtype())));
        let acc = UOp::new(Op::DefineAcc, u.dtype(), [init].to_src(), Arg::Acc(self.accs));
        self.accs += 1;
        self.new.insert(i, acc.clone());
        self.push(acc);
    }

    fn step(&mut self, i: usize) {
        let u = self.order[i].clone();
        let acc = self.new[&i].clone();
        let value = acc.binary(fold_of(&u).op(), self.operand(&u.src()[0]));
        let assign = UOp::new(Op::Assign, u.dtype(), [acc, value.clone()].to_src(), Arg::None);
        self.push(value);
        self.push(assign.clone());
        self.new.insert(i, assign);
    }
}

fn fold_of(u: &UOp) -> Fold {
    match u.arg() {
        Arg::Reduce { fold, .. } => *fold,
        _ => panic!("a reduce without a payload: {u:?}"),
    }
}
