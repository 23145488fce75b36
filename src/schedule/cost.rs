//! The cost model that decides whether a value is rematerialized wherever it is used, or stored
//! once and read back. The unit is one simple arithmetic instruction on one element.

use crate::ir::typed::Where;
use crate::ir::{Arg, Fold, Group, Op, UOp};
use crate::symbolic::clauses;
use crate::target::{Machine, ScheduleTuning, Target, Tuning};
use rustc_hash::FxHashMap;

/// The thresholds of decisions that are made before a device is known.
pub const TUNING: ScheduleTuning = Costs::FIXED.tuning;

/// The costs of a device, as its target has them. They are equal for all devices today, so that the
/// same graph has the same kernels everywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Cost of writing one element and reading it back.
    pub store: f64,
    /// Cost of launching a kernel.
    pub launch: f64,
    /// Measured thresholds of the scheduler.
    pub tuning: ScheduleTuning,
}

impl Costs {
    /// The costs without a device.
    pub const FIXED: Costs = Costs::new(&Machine::cpu(64), &Tuning::MEASURED);

    const fn new(machine: &Machine, tuning: &Tuning) -> Costs {
        let (store, launch) = (machine.store_cost, machine.launch_cost);
        Costs { store, launch, tuning: tuning.schedule }
    }

    /// Returns the costs of a target.
    pub const fn of(target: &Target) -> Costs {
        Costs::new(&target.machine, &target.tuning)
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs::FIXED
    }
}

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
