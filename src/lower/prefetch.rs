//! Software pipelining of loads: an iteration of a loop computes while the data of the next one is
//! being loaded. A marked load becomes a load of the first iteration before the loop and a load of
//! the next iteration inside it, held in an accumulator. The last iteration loads its own data
//! again.
//!
//! ```text
//! for i { y = load(x[i]); use(y) }
//! =>
//! acc = load(x[0]); for i { next = load(x[min(i + 1, n - 1)]); use(acc); acc = next }
//! ```

use crate::ir::{Arg, IdSet, Op, Src, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Prefetches the marked loads of a linear program. A load that depends on data or on written
/// buffers stays where it is.
pub(super) fn prefetch(mut list: Vec<UOp>) -> Vec<UOp> {
    while let Some(id) = list.iter().find_map(marked) {
        list = in_loop(&list, id);
    }
    list
}

/// Returns the number of the loop in which a load is prefetched.
fn marked(u: &UOp) -> Option<u32> {
    match u.arg() {
        Arg::LoadHint(hint) => hint.prefetch_in,
        _ => None,
    }
}

/// Returns the load without its mark.
fn unmarked(load: &UOp) -> UOp {
    load.with_arg(Arg::None)
}

/// A loop of a linear program whose loads are prefetched.
struct Pipeline<'a> {
    begin: usize,
    end: usize,
    iterations: i64,
    /// The loads that move.
    loads: Vec<&'a UOp>,
}

impl<'a> Pipeline<'a> {
    /// Returns the loop of this number; `None` if there is none, or its extent is not constant.
    fn of(list: &'a [UOp], id: u32) -> Option<Pipeline<'a>> {
        let begin = list.iter().position(|u| u.as_range().is_some_and(|r| r.id == id))?;
        let range = &list[begin];
        let closes = |u: &UOp| u.as_end_range().is_some_and(|end| end.range.node == range);
        let end = list.iter().position(closes)?;
        let iterations = range.expect_range().extent.as_int()?;
        let stores = list.iter().filter_map(UOp::as_store);
        let written: FxHashSet<u64> = stores.map(|store| store.place.buffer.id()).collect();
        // Loads of the loop itself, not of a loop or conditional inside it.
        let (mut loads, mut depth) = (Vec::new(), 0);
        for u in &list[begin + 1..end] {
            match u.op() {
                Op::Range | Op::If => depth += 1,
                Op::EndRange | Op::EndIf => depth -= 1,
                _ if depth == 0 && marked(u) == Some(id) && is_movable(u, range, &written) => {
                    loads.push(u)
                }
                _ => {}
            }
        }
        Some(Pipeline { begin, end, iterations, loads })
    }
}

/// Returns true if the value of the load does not depend on when the load executes: its buffer is
/// read-only, and its index and mask depend on the loop alone, not on data.
fn is_movable(u: &UOp, range: &UOp, written: &FxHashSet<u64>) -> bool {
    let buffer = u.expect_load().place.buffer;
    let data = |n: &UOp| matches!(n.op(), Op::Load | Op::DefineAcc | Op::Assign | Op::Barrier);
    let order = crate::ir::toposort(u.src());
    buffer.op() == Op::DefineGlobal
        && !written.contains(&buffer.id())
        && !order.iter().any(data)
        && order.contains(range)
}

/// The rewritten program.
#[derive(Default)]
struct Rewritten {
    list: Vec<UOp>,
    listed: FxHashSet<u64>,
    /// The nodes of each open region.
    regions: Vec<Vec<u64>>,
    /// The nodes of regions that ended. A node is listed once, so these cannot be defined again.
    ended: FxHashSet<u64>,
    /// True if a value is needed whose region ended.
    conflicts: bool,
    /// The new form of each node that changed.
    new: FxHashMap<u64, UOp>,
}

impl Rewritten {
    /// Lists a node.
    fn push(&mut self, u: UOp) {
        match u.op() {
            Op::Range | Op::If => self.regions.push(Vec::new()),
            Op::EndRange | Op::EndIf => {
                self.ended.extend(self.regions.pop().unwrap_or_default());
            }
            _ => {
                self.listed.insert(u.id());
                self.regions.last_mut().into_iter().for_each(|r| r.push(u.id()));
            }
        }
        self.list.push(u);
    }

    /// Lists a node, unless it is listed.
    fn list_once(&mut self, u: UOp) {
        self.conflicts |= self.ended.contains(&u.id());
        if !self.listed.contains(&u.id()) {
            self.push(u);
        }
    }

    /// Lists a value and its operands.
    fn put(&mut self, value: &UOp) {
        let is_open = |n: &UOp| matches!(n.op(), Op::Const | Op::Range);
        value.toposort().into_iter().filter(|n| !is_open(n)).for_each(|n| self.list_once(n));
    }

    /// Opens the loop. Returns the assignments at its end, of the data of the next iteration.
    fn open(&mut self, range: &UOp, pipeline: &Pipeline, next_acc: u32) -> Vec<UOp> {
        let at = |load: &UOp, iteration: &UOp| {
            let map = FxHashMap::from_iter([(range.clone(), iteration.clone())]);
            unmarked(load).substitute(&map)
        };
        let zero = UOp::constant(0i64, range.dtype());
        for (&load, number) in pipeline.loads.iter().zip(next_acc..) {
            let first = at(load, &zero);
            self.put(&first);
            let acc = first.define_acc(number);
            self.put(&acc);
            self.new.insert(load.id(), acc);
        }
        self.push(range.clone());
        let one = UOp::constant(1i64, range.dtype());
        // The last iteration loads its own data again.
        let last = UOp::constant(pipeline.iterations - 1, range.dtype());
        let next = (range + &one).binary(Op::Min, last);
        let update = |load: &&UOp| {
            let value = at(load, &next);
            self.put(&value);
            self.new[&load.id()].assign(&value)
        };
        pipeline.loads.iter().map(update).collect()
    }

    /// Lists an instruction on its new operands, without the mark of the loop `id`.
    fn copy(&mut self, u: &UOp, id: u32) {
        if self.new.contains_key(&u.id()) {
            return;
        }
        let src: Src = u.src().iter().map(|s| self.new.get(&s.id()).unwrap_or(s).clone()).collect();
        let new = if marked(u) == Some(id) { unmarked(&u.with_src(src)) } else { u.with_src(src) };
        if new != *u {
            self.new.insert(u.id(), new.clone());
        }
        self.list_once(new);
    }
}

/// Prefetches the loads of one loop. Where this needs a value that another region defines, the
/// loads stay where they are.
fn in_loop(list: &[UOp], id: u32) -> Vec<UOp> {
    let pipeline = Pipeline::of(list, id);
    let new = rewritten(list, id, pipeline.as_ref());
    used(if new.conflicts { rewritten(list, id, None).list } else { new.list })
}

/// Returns the program without the marks of a loop, whose loads are prefetched if there is a
/// pipeline.
fn rewritten(list: &[UOp], id: u32, pipeline: Option<&Pipeline>) -> Rewritten {
    let after = |u: &UOp| u.as_define_acc().map(|acc| acc.number + 1);
    let next_acc = list.iter().filter_map(after).max().unwrap_or(0);
    let (mut new, mut updates) = (Rewritten::default(), Vec::new());
    for (i, u) in list.iter().enumerate() {
        match pipeline {
            Some(pipeline) if i == pipeline.begin => {
                updates = new.open(u, pipeline, next_acc);
                continue;
            }
            Some(pipeline) if i == pipeline.end => {
                updates.drain(..).for_each(|update| new.push(update));
            }
            _ => {}
        }
        new.copy(u, id);
    }
    new
}

/// Removes instructions whose value is not used.
fn used(list: Vec<UOp>) -> Vec<UOp> {
    let mut needed = IdSet::default();
    let mut kept: Vec<UOp> = Vec::with_capacity(list.len());
    for u in list.into_iter().rev() {
        let idle =
            u.op().is_alu() || matches!(u.op(), Op::Index | Op::Load | Op::Vectorize | Op::Gep);
        if idle && !needed.has(u.id()) {
            continue;
        }
        for s in u.src() {
            needed.insert(s.id());
        }
        kept.push(u);
    }
    kept.reverse();
    kept
}
