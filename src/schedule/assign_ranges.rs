//! Range assignment. Input: the outputs of a prepared tensor graph. Output: stores over ranges,
//! which become kernels.
//!
//! The graph is walked from outputs to inputs. Each consumer of a node uses it at index expressions
//! over the ranges of the consumer's kernel; a movement op only rewrites those expressions, and a
//! reduce opens ranges of its own. A node that is used at different indices, or evaluated many
//! times, is either rematerialized for each use or stored by a kernel of its own, whichever the
//! cost model estimates as cheaper. Then `build` makes the expressions from inputs to outputs.

use super::build::build;
use super::cost::{self, Costs};
use super::{lower_cats, scan, scatter};
use crate::dtype::DType;
use crate::ir::typed::Reduce;
use crate::ir::{AxisKind, Group, Moved, Op, UOp, toposort, visit};
use crate::shape::movement_index;
use crate::symbolic::simplify;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::ops::Range;

pub(super) type Indices = SmallVec<[UOp; 4]>;

/// A use of a node: the indices, the mask, the kernel and the loops around it.
#[derive(Clone)]
pub(super) struct Use {
    kernel: usize,
    pub(super) at: Indices,
    pub(super) mask: UOp,
    /// The loops around the evaluation, outermost first, without those inside which it does not
    /// change.
    pub(super) loops: SmallVec<[UOp; 6]>,
    /// Number of evaluations of the consumer: more than the product of `loops` if the value serves
    /// many iterations of an inner loop.
    evaluations: f64,
    /// Ranges that a reduce opens for this use.
    pub(super) opened: SmallVec<[UOp; 4]>,
    /// For each operand, the index of the use that this one became.
    pub(super) operands: SmallVec<[usize; 3]>,
}

/// A store over ranges, before stores are fused into kernels.
pub struct PendingStore {
    /// The tensor-graph node.
    pub node: UOp,
    /// Id of its buffer: inputs first, then stored values, producers before consumers.
    pub buffer: usize,
    /// The output's ranges, outermost first.
    pub ranges: Vec<UOp>,
    /// The value of an element, over placeholders for buffers.
    pub value: UOp,
    /// The flat index that it is stored at.
    pub index: UOp,
    /// Mask of a store that updates what an earlier store of the same buffer wrote: the updates of
    /// a scatter.
    pub update: Option<UOp>,
}

/// Stores and copies of a graph, over ranges and numbered buffers.
#[derive(Default)]
pub struct RangeAssignment {
    /// One per stored node, producers before users.
    pub stored: Vec<PendingStore>,
    /// Copies between devices: destination buffer, source buffer, and first element of the source.
    pub copies: Vec<(usize, usize, usize)>,
    /// By destination of a copy, the buffers whose writers it waits for.
    pub waits: FxHashMap<usize, Vec<usize>>,
    /// Custom kernels, and loops.
    pub customs: Vec<CustomNode>,
    /// The buffer numbers of nodes that have one.
    pub buffer_ids: FxHashMap<u64, usize>,
    /// Number of buffers.
    pub count: usize,
    /// First unused range id.
    pub next_range: u32,
    /// The costs that decided what is stored.
    pub costs: Costs,
}

/// A custom kernel, or a loop, in a plan.
pub struct CustomNode {
    /// Its node.
    pub node: UOp,
    /// Buffers that it writes: its outputs in order, including unread ones.
    pub writes: Vec<usize>,
    /// The buffers of its inputs.
    pub reads: Vec<usize>,
}

impl RangeAssignment {
    /// Returns the buffers that copies, custom kernels and loops write, each with the buffers that
    /// they read.
    pub fn copies_and_customs(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let copies = self.copies.iter().map(|(to, from, _)| {
            (*to, self.waits.get(to).map_or(std::slice::from_ref(from), |w| w))
        });
        copies.chain(self.customs.iter().flat_map(|c| c.writes.iter().map(|w| (*w, &c.reads[..]))))
    }
}

/// Returns the memory in which the elements of a node are contiguous: the buffer of a node, or a
/// range of an existing buffer.
pub fn contiguous_memory(u: &UOp) -> (UOp, Option<Range<usize>>) {
    let mut u = u;
    loop {
        if let Some((base, seen)) = u.view() {
            if seen.is_contiguous() {
                u = base;
                continue;
            }
            return match seen.contiguous_slice() {
                Some(part) if is_in_memory(base) => (base.clone(), Some(part)),
                _ => (u.clone(), None),
            };
        }
        // A contiguous view of stored memory is not stored again.
        if u.op() == Op::Contiguous {
            let x = u.operand();
            match x.view() {
                None if is_in_memory(x) => return (x.clone(), None),
                Some((base, seen))
                    if is_in_memory(base)
                        && (seen.is_contiguous() || seen.contiguous_slice().is_some()) =>
                {
                    u = x;
                    continue;
                }
                _ => {}
            }
        }
        return (u.clone(), None);
    }
}

/// Returns true if the node is in memory without a generated kernel.
fn is_in_memory(u: &UOp) -> bool {
    matches!(u.op(), Op::Param | Op::Buffer | Op::Copy | Op::Output)
}

/// Returns the node whose whole buffer has the elements contiguously: an argument of a custom
/// kernel.
pub(super) fn contiguous_node(u: &UOp) -> UOp {
    match contiguous_memory(u) {
        (node, None) => node,
        (_, Some(_)) => u.clone(),
    }
}

/// Returns the placeholder of a node's buffer in kernel expressions.
pub fn placeholder(u: &UOp, number: usize) -> UOp {
    if u.op() == Op::Param { u.clone() } else { buffer_param(number, u.numel(), u.dtype()) }
}

/// Returns the placeholder of a numbered buffer in kernel expressions.
pub(super) fn buffer_param(slot: usize, len: usize, dtype: DType) -> UOp {
    UOp::param(slot, len, dtype, &crate::ir::DeviceName::new(""))
}

/// Cache of index expressions through movement ops: from the op and its indices to the operand, the
/// simplified indices of the operand, and the mask. Successive walks repeat most queries.
#[derive(Default)]
pub(super) struct IndexCache(FxHashMap<(u64, Indices), (UOp, Indices, UOp)>);

impl IndexCache {
    pub(super) fn of(&mut self, u: &UOp, at: &Indices) -> &(UOp, Indices, UOp) {
        self.0.entry((u.id(), at.clone())).or_insert_with(|| {
            let (x, at, mask) = moved(u, at);
            (x, at.iter().map(simplify).collect(), mask)
        })
    }
}

pub(super) struct Walk<'a> {
    moves: &'a mut IndexCache,
    uses: FxHashMap<u64, Vec<Use>>,
    /// The number of each use, by node, kernel, indices and mask.
    known: FxHashMap<(u64, usize, Indices, UOp), usize>,
    /// Evaluations in each kernel.
    sizes: Vec<usize>,
    next_range: u32,
    kernels: usize,
}

impl Walk<'_> {
    /// Returns a range over the runtime size of an axis of a node.
    pub(super) fn range(&mut self, u: &UOp, axis: usize, kind: AxisKind) -> UOp {
        let id = self.next_range;
        self.next_range += 1;
        match u.extent(axis) {
            // Simplified now, so that expressions that are simplified later have the same range.
            Some(extent) => UOp::range(simplify(&UOp::from_symint(extent, DType::INDEX)), id, kind),
            None => UOp::range(u.shape()[axis] as i64, id, kind),
        }
    }

    /// Returns an evaluation over these ranges by a new kernel.
    pub(super) fn new_kernel_use(
        &mut self,
        at: Indices,
        ranges: &[UOp],
        evaluations: usize,
    ) -> Use {
        self.kernels += 1;
        self.sizes.push(0);
        let loops = ranges.iter().cloned().collect();
        Use { loops, ..Use::new(self.kernels - 1, at, evaluations as f64) }
    }

    /// Adds a use of an operand at the indices of its consumer.
    pub(super) fn add_use_at(&mut self, u: &UOp, d: &Use) -> usize {
        let at = if u.shape().is_empty() { Indices::new() } else { d.at.clone() };
        self.add_use(u, at, d.mask.clone(), &d.loops, d.evaluations, d.kernel)
    }

    /// Adds a use of a node and returns its number; equal uses are one.
    fn add_use(
        &mut self,
        u: &UOp,
        at: Indices,
        mask: UOp,
        loops: &[UOp],
        evaluations: f64,
        kernel: usize,
    ) -> usize {
        let mut open = mask.ranges().clone();
        at.iter().for_each(|i| open.union(i.ranges()));
        let mut loops: SmallVec<[UOp; 6]> = loops.iter().cloned().collect();
        while loops.last().is_some_and(|r| !open.has(r.range_id())) {
            loops.pop();
        }
        visit(1);
        let list = self.uses.entry(u.id()).or_default();
        let i = *self.known.entry((u.id(), kernel, at.clone(), mask.clone())).or_insert(list.len());
        if i < list.len() {
            list[i].evaluations += evaluations;
            if loops.len() < list[i].loops.len() {
                list[i].loops = loops;
            }
            return i;
        }
        list.push(Use { mask, loops, ..Use::new(kernel, at, evaluations) });
        list.len() - 1
    }

    /// Returns the ranges of an evaluation over all axes of a node, and its indices. An axis of
    /// size one has no range.
    pub(super) fn axis_ranges(
        &mut self,
        u: &UOp,
        kind: impl Fn(usize) -> AxisKind,
    ) -> (Indices, Vec<UOp>) {
        let mut ranges = Vec::new();
        let at = (0..u.shape().len())
            .map(|axis| {
                if u.shape()[axis] == 1 {
                    return UOp::int(0);
                }
                ranges.push(self.range(u, axis, kind(axis)));
                ranges[ranges.len() - 1].clone()
            })
            .collect();
        (at, ranges)
    }
}

impl Use {
    /// Returns an unmasked use outside all loops.
    fn new(kernel: usize, at: Indices, evaluations: f64) -> Use {
        let (opened, operands) = (SmallVec::new(), SmallVec::new());
        let (mask, loops) = (UOp::truth(true), SmallVec::new());
        Use { kernel, at, mask, loops, evaluations, opened, operands }
    }
}

fn iterations(loops: &[UOp]) -> f64 {
    loops.iter().map(|r| r.expect_range().extent.vmax() as f64).product()
}

/// Assigns ranges and builds the stores. `inputs` is the number of inputs, whose buffer numbers
/// come first.
pub fn assign(outputs: &[UOp], inputs: usize, costs: Costs) -> RangeAssignment {
    let order = toposort(outputs);
    let mut forced: FxHashSet<u64> = outputs.iter().map(|o| contiguous_memory(o).0.id()).collect();
    for u in &order {
        match u.op() {
            Op::Contiguous if contiguous_memory(u).0 == *u => drop(forced.insert(u.id())),
            Op::Scan | Op::Scatter | Op::Cat => drop(forced.insert(u.id())),
            Op::Copy => {
                forced.insert(u.id());
                forced.insert(contiguous_memory(u.operand()).0.id());
            }
            Op::Kernel | Op::Loop => forced.extend(u.src().iter().map(|s| contiguous_node(s).id())),
            _ => {}
        }
    }
    // The cost of a node depends on which of its operands are stored, which is decided after it.
    // The first walk assumes that none are; each further one uses the decisions of the last. Three
    // walks reach a fixpoint in nearly all graphs, and any outcome is correct.
    let mut assumed: FxHashSet<u64> = forced.clone();
    let mut moves = IndexCache::default();
    let mut decided = decide(&order, &forced, &assumed, &costs, &mut moves);
    for _ in 0..2 {
        let stored: FxHashSet<u64> =
            decided.stored.keys().copied().chain(forced.iter().copied()).collect();
        if stored == assumed {
            break;
        }
        assumed = stored;
        decided = decide(&order, &forced, &assumed, &costs, &mut moves);
    }
    RangeAssignment { costs, ..build(&order, inputs, decided, &mut moves) }
}

/// The decisions of a walk: which nodes are stored, and the uses of all nodes.
pub(super) struct Decided {
    /// Uses of each node, and the first unused range id.
    pub(super) uses: FxHashMap<u64, Vec<Use>>,
    pub(super) next_range: u32,
    /// The ranges of stored nodes.
    pub(super) stored: FxHashMap<u64, Vec<UOp>>,
    /// For a stored node one evaluation over its own ranges; its uses become loads.
    pub(super) evaluated: FxHashMap<u64, Vec<Use>>,
}

/// Decides in one walk from outputs to inputs which nodes are stored. Costs take the nodes in
/// `assumed` as stored.
fn decide(
    order: &[UOp],
    forced: &FxHashSet<u64>,
    assumed: &FxHashSet<u64>,
    costs: &Costs,
    moves: &mut IndexCache,
) -> Decided {
    let totals = cost::totals(order, &|u| assumed.contains(&u.id()));
    let mut walk = Walk {
        moves,
        uses: FxHashMap::default(),
        known: FxHashMap::default(),
        sizes: Vec::new(),
        next_range: 0,
        kernels: 0,
    };
    let mut stored: FxHashMap<u64, Vec<UOp>> = FxHashMap::default();
    let mut evaluated: FxHashMap<u64, Vec<Use>> = FxHashMap::default();
    let mut outputs_of_kernel: Vec<f64> = Vec::new();
    for u in order.iter().rev() {
        let is_forced = forced.contains(&u.id());
        // Leaves are read in place; a literal is stored only if it is an output, or is copied to
        // another device.
        let leaf = is_in_memory(u) || (matches!(u.op(), Op::Const | Op::Var) && !is_forced);
        let uses = walk.uses.get(&u.id()).map(|d| d.as_slice()).unwrap_or(&[]);
        if leaf || u.numel() == 0 || (uses.is_empty() && !is_forced) {
            continue;
        }
        let store = is_forced
            || must_store(u, uses, &walk.sizes)
            || should_store(u, uses, &totals, &outputs_of_kernel, costs);
        let evals = if store {
            let (at, ranges) = walk.axis_ranges(u, |axis| scan::range_kind(u, axis));
            outputs_of_kernel.push(u.numel() as f64);
            let own = walk.new_kernel_use(at, &ranges, u.numel());
            stored.insert(u.id(), ranges);
            vec![own]
        } else {
            uses.to_vec()
        };
        let evals = evaluate(u, evals, &mut walk, &mut outputs_of_kernel);
        evals.iter().for_each(|d| walk.sizes[d.kernel] += 1);
        evaluated.insert(u.id(), evals);
    }
    Decided { uses: walk.uses, next_range: walk.next_range, stored, evaluated }
}

/// Adds the uses of a node's operands in its evaluations, and returns these. A scatter and a cat
/// have further ones, each in a kernel of its own.
fn evaluate(
    u: &UOp,
    mut evals: Vec<Use>,
    walk: &mut Walk,
    outputs_of_kernel: &mut Vec<f64>,
) -> Vec<Use> {
    match u.op() {
        Op::Cat => {
            evals = lower_cats::propagate(u, walk);
            outputs_of_kernel.extend(u.src().iter().map(|s| s.numel() as f64));
        }
        Op::Scatter => {
            scatter::propagate(u, &mut evals, walk);
            outputs_of_kernel.push(u.expect_scatter().index.numel() as f64);
        }
        _ => evals.iter_mut().for_each(|d| propagate(u, d, walk)),
    }
    evals
}

/// Returns the operand of a movement op, its indices, and the mask. A flat buffer is reached
/// through all movement ops at once, by strides; any other node through one op.
fn moved(u: &UOp, at: &[UOp]) -> (UOp, Indices, UOp) {
    let (base, seen) = u.view().expect("a movement op is a view");
    if base.shape().len() == 1 {
        let (index, mask) = seen.expr(at);
        return (base.clone(), smallvec::smallvec![index], mask);
    }
    let Moved { x, movement } = u.as_movement().expect("a movement op has a movement");
    let (at, mask) = movement_index(movement, x.shape(), at);
    (x.clone(), at, mask)
}

/// Adds the uses of a node's operands in one evaluation.
fn propagate(u: &UOp, d: &mut Use, walk: &mut Walk) {
    match u.op() {
        op if op.is(Group::Movement) => {
            let (x, at, mask) = walk.moves.of(u, &d.at).clone();
            let mask = simplify(&d.mask.and(&mask));
            let k = walk.add_use(&x, at, mask, &d.loops, d.evaluations, d.kernel);
            d.operands.push(k);
        }
        Op::Slice => {
            let part = u.expect_slice().part;
            let mut at = d.at.clone();
            at[part.axis] =
                simplify(&(&at[part.axis] + UOp::from_symint(&part.start, DType::INDEX)));
            let k =
                walk.add_use(u.operand(), at, d.mask.clone(), &d.loops, d.evaluations, d.kernel);
            d.operands.push(k);
        }
        Op::Reduce => {
            let Reduce { body: x, axes, .. } = u.expect_reduce();
            let mut at = d.at.clone();
            for &a in axes {
                at[a] = if x.shape()[a] == 1 {
                    UOp::int(0)
                } else {
                    let r = walk.range(x, a, AxisKind::Reduce);
                    d.opened.push(r.clone());
                    r
                };
            }
            let mut loops = d.loops.clone();
            loops.extend(d.opened.iter().cloned());
            let evaluations = iterations(&loops);
            let k = walk.add_use(x, at, d.mask.clone(), &loops, evaluations, d.kernel);
            d.operands.push(k);
        }
        _ => {
            for x in u.src() {
                let k = walk.add_use_at(x, d);
                d.operands.push(k);
            }
        }
    }
}

/// Returns true if a node is stored regardless of cost, because rematerializing it would make
/// compile time grow faster than the graph: uses double from level to level of a tree, and a long
/// chain would be one kernel.
fn must_store(u: &UOp, uses: &[Use], sizes: &[usize]) -> bool {
    let can_be_stored = u.op().is_alu() || u.op() == Op::Reduce;
    can_be_stored
        && (uses.len() > cost::MAX_USES
            || uses.iter().any(|d| sizes[d.kernel] >= cost::MAX_EVALUATIONS))
}

/// Returns true if storing a node is cheaper than rematerializing it by the model of `cost`.
fn should_store(
    u: &UOp,
    uses: &[Use],
    totals: &FxHashMap<u64, f64>,
    outputs_of_kernel: &[f64],
    Costs { store, launch, tuning }: &Costs,
) -> bool {
    if u.op().is(Group::Movement)
        || matches!(u.op(), Op::Iota | Op::Const | Op::Var | Op::Slice | Op::Contiguous | Op::Sink)
    {
        return false;
    }
    let n = u.numel() as f64;
    let total = totals[&u.id()];
    if scatter::stores_before_updates(u, uses, total / n, tuning.ordered_work) {
        return true;
    }
    if u.op() == Op::Reduce {
        let x = u.operand();
        let row_bytes = x.numel() / u.numel().max(1) * x.dtype().itemsize();
        // An inner loop uses the value and reads its row again: the row has to fit in a cache.
        let broadcast = uses.iter().any(|d| d.evaluations > iterations(&d.loops));
        if broadcast && row_bytes > tuning.row_bytes {
            return true;
        }
        // Many reduces in a kernel of few outputs would run on few threads.
        let narrow = n >= tuning.few_outputs
            && uses.iter().any(|d| outputs_of_kernel[d.kernel] < tuning.few_outputs);
        // Each thread repeats a reduce that few rows share. For long rows that is slower than two
        // more kernels.
        let shared = broadcast && uses.iter().any(|d| iterations(&d.loops) < tuning.few_outputs);
        if (narrow && total > tuning.distributed_work) || (shared && total / n > tuning.row_work) {
            return true;
        }
    }
    let each = total / n;
    if each <= tuning.free_work && u.op() != Op::Reduce {
        return false;
    }
    let evaluations: f64 = uses
        .iter()
        .map(|d| {
            let i = iterations(&d.loops);
            let in_reduce = d.loops.last().is_some_and(|r| r.range_kind() == AxisKind::Reduce);
            if in_reduce && i > n { n + (i - n) / tuning.tile_outputs } else { i }
        })
        .sum();
    (evaluations - n) * each > n * store + launch
}
