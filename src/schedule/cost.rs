//! The cost model that decides whether a value is rematerialized wherever it is used, or stored
//! once and read back. The unit is one simple arithmetic instruction on one element.

use crate::ir::typed::Where;
use crate::ir::{Arg, Fold, Group, Op, UOp};
use crate::symbolic::clauses;
use crate::target::Machine;
use rustc_hash::FxHashMap;

/// The machine that plans are made for. It is one for all devices, so that a plan depends on the
/// graph alone.
const MACHINE: Machine = Machine::cpu(64);
/// Writing one element and reading it back.
pub const STORE: f64 = MACHINE.store_cost;
/// Starting a kernel.
pub const LAUNCH: f64 = MACHINE.launch_cost;
/// A value of at most this cost is always rematerialized: a load with a conversion, a relu, a
/// negation.
pub const FREE: f64 = 4.0;
/// The least number of outputs of a tile. Inside a reduce a value is computed once per tile, not
/// once per output.
pub const TILE: f64 = 8.0;
/// The longest row, in bytes, that one kernel reads more than once: half of the L2 cache.
pub const ROW_BYTES: usize = MACHINE.l2_bytes / 2;
/// A kernel with fewer outputs than this leaves threads idle.
pub const FEW_OUTPUTS: f64 = 16.0;
/// The largest cost of a value inside an ordered loop, which has one thread.
pub const IN_ORDER: f64 = 32.0;
/// Work that is worth distributing over threads.
pub const WORTH_SPREADING: f64 = 131_072.0;
/// Work on one row that is worth a kernel of its own, when there are few rows.
pub const LONG_ROW: f64 = 1_048_576.0;

/// The most indices that one node is computed at. A node with more is stored, because expressions
/// would grow from level to level of a graph.
pub const MOST_DEMANDS: usize = 32;
/// The most nodes that one kernel evaluates. Compilers take more than linear time over a function;
/// kernels of models stay far below.
pub const MOST_EVALUATIONS: usize = 2048;

/// Returns the cost of one evaluation of the op, without its operands.
pub fn of_op(u: &UOp) -> f64 {
    // Lowering expands a float remainder into many instructions.
    if u.op() == Op::Mod && u.dtype().is_float() { 120.0 } else { u.op().cost().into() }
}

/// Returns for each node the cost of all its elements, each computed once, from the stored values
/// under it.
pub fn totals(order: &[UOp], stored: &dyn Fn(&UOp) -> bool) -> FxHashMap<u64, f64> {
    // The cost of all elements for a user: one load each if they are stored.
    let mut price: FxHashMap<u64, f64> = FxHashMap::default();
    let mut total: FxHashMap<u64, f64> = FxHashMap::default();
    for u in order {
        let n = u.numel() as f64;
        let under: f64 = u.src().iter().map(|s| price[&s.id()]).sum();
        let cost = match u.op() {
            // A selected element is one load.
            Op::Reduce if selects(u) => under / operand_len(u) * n + n * 4.0,
            Op::Reduce => under + u.operand().numel() as f64,
            // A repeated value is loop-invariant where it is repeated, and hoisted.
            Op::Expand => 0.0,
            // Only the elements of the result are computed.
            Op::Shrink | Op::Slice => under * n / operand_len(u),
            Op::Buffer | Op::Param | Op::Output => n,
            _ => under + n * of_op(u),
        };
        price.insert(u.id(), if stored(u) { n } else { cost });
        total.insert(u.id(), cost);
    }
    total
}

/// Returns the number of elements of the operand, at least 1.
fn operand_len(u: &UOp) -> f64 {
    u.operand().numel().max(1) as f64
}

/// Returns true if a reduction selects one element, as `reduce_simplify` recognizes it: then it is
/// a load and no loop.
pub fn selects(u: &UOp) -> bool {
    if !matches!(u.arg(), Arg::Reduce { fold: Fold::Add, axes } if axes.len() == 1) {
        return false;
    }
    let under = |u: &UOp, through: &dyn Fn(&UOp) -> bool| {
        let mut u = u.clone();
        while through(&u) {
            u = u.operand().clone();
        }
        u
    };
    let choice = under(u.operand(), &|u| u.op() == Op::Cast);
    let Some(Where { cond, y: zero, .. }) = choice.as_where() else { return false };
    let base = |u: &UOp| under(u, &|u| u.op().is(Group::Movement));
    let is_place =
        |u: &UOp| under(u, &|u| u.op().is(Group::Movement) || u.op() == Op::Cast).op() == Op::Iota;
    let compares = |c: &UOp| base(c).op() == Op::Eq && base(c).src().iter().any(is_place);
    base(zero).as_const().is_some_and(|c| c.is_zero()) && clauses(&base(cond)).iter().any(compares)
}
