//! The items of each block, and the dependencies that order them. Input: the placement of a kernel.
//! Output: the nodes, accumulator steps and loops of each block.

use super::{Block, LoopMasks, Placement, Terms, bodies, initial_value};
use crate::ir::{Op, UOp};

/// An entry of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Item {
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
pub(super) struct Items {
    /// Number of nodes of the graph.
    pub(super) nodes: usize,
    pub(super) members: Vec<Vec<Item>>,
    /// Dependencies between items of one block, by number: the first precedes the second.
    pub(super) edges: Vec<(u32, u32)>,
}

impl Items {
    /// Collects the items of a kernel.
    pub(super) fn of(placement: &Placement, terms: &Terms, masks: &LoopMasks) -> Items {
        let loops = &placement.loops;
        let mut items = Items {
            nodes: placement.order.len(),
            members: vec![Vec::new(); loops.parent.len()],
            edges: Vec::new(),
        };
        for (i, u) in placement.order.iter().enumerate() {
            let is_item = !matches!(u.op(), Op::Const | Op::Sink | Op::Range | Op::DefineAcc);
            if !is_item || terms.fused.contains(&u.id()) {
                continue;
            }
            items.place(Item::Node(i), placement.block[i]);
            if matches!(u.op(), Op::Reduce | Op::Scan) {
                items.reduction(i, placement, terms, masks);
            } else {
                items.operands(u.src(), (Item::Node(i), placement.block[i]), placement);
            }
        }
        // A loop begins after its extent is computed.
        for b in 1..loops.parent.len() {
            let extent = std::slice::from_ref(loops.ranges[b - 1].expect_range().extent);
            items.operands(extent, (Item::Loop(b), loops.parent[b]), placement);
        }
        // Loops that are not empty, each in its parent. Parents have smaller numbers.
        for b in (1..loops.parent.len()).rev() {
            if !items.members[b].is_empty() {
                items.place(Item::Loop(b), loops.parent[b]);
            }
        }
        items
    }

    /// Adds the initialization and the update of the accumulator of a reduction or a scan.
    fn reduction(&mut self, i: usize, placement: &Placement, terms: &Terms, masks: &LoopMasks) {
        let (u, loops) = (&placement.order[i], &placement.loops);
        let update = (Item::Step(i), placement.update_block(u));
        // The accumulator of a scan is initialized before its loop.
        let start = match u.as_scan() {
            Some(scan) => loops.parent[loops.of_range(&scan.ranges[0])],
            None => placement.block[i],
        };
        let start = (Item::Start(i), start);
        self.place(start.0, start.1);
        self.place(update.0, update.1);
        self.edge(placement, start, update);
        if let Some(value) = initial_value(u) {
            self.operands(std::slice::from_ref(value), start, placement);
        }
        if let Some(mask) = masks.around(update.1, loops) {
            self.operands(std::slice::from_ref(mask), update, placement);
        }
        for body in bodies(u).map(|b| terms.value(b)) {
            let fused = terms.fused.contains(&body.id());
            let operands = if fused { body.src() } else { std::slice::from_ref(body) };
            self.operands(operands, update, placement);
        }
        self.edge(placement, update, (Item::Node(i), placement.block[i]));
    }

    pub(super) fn number(&self, item: Item) -> usize {
        match item {
            Item::Node(i) => i,
            Item::Start(i) => self.nodes + i,
            Item::Step(i) => 2 * self.nodes + i,
            Item::Loop(b) => 3 * self.nodes + b,
        }
    }

    pub(super) fn item(&self, number: usize) -> Item {
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

    /// Orders the nodes before an item. Constants and ranges are no items.
    fn operands(&mut self, nodes: &[UOp], item: (Item, Block), placement: &Placement) {
        for s in nodes.iter().filter(|s| !matches!(s.op(), Op::Const | Op::Range)) {
            let n = placement.number_of(s);
            self.edge(placement, (Item::Node(n), placement.block[n]), item);
        }
    }

    /// Orders the first item before the second, in the innermost block that contains both.
    fn edge(
        &mut self,
        placement: &Placement,
        (mut a, mut at): (Item, Block),
        (mut z, mut to): (Item, Block),
    ) {
        let loops = &placement.loops;
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

    /// Returns the nodes that no loop and no update of an accumulator uses. The edges are sorted.
    pub(super) fn unused_in_loops(&self) -> Vec<bool> {
        let mut unused = vec![true; self.nodes];
        for &(from, to) in self.edges.iter().rev() {
            if let Item::Node(n) = self.item(from as usize) {
                unused[n] &= match self.item(to as usize) {
                    Item::Node(user) => unused[user],
                    Item::Start(_) => true,
                    Item::Step(_) | Item::Loop(_) => false,
                };
            }
        }
        unused
    }
}
