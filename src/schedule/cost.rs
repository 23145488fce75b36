//! The cost model that decides whether a value is rematerialized wherever it is used, or stored
//! once and read back. The unit is one simple arithmetic instruction on one element.

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
    /// Thresholds.
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

/// Different indices that one node is computed at. A node that is wanted at more is stored: past
/// this, expressions grow from level to level of a graph.
pub const MOST_DEMANDS: usize = 32;
/// Nodes that one kernel evaluates. Compilers take more than linear time over a function; kernels
/// of models stay far below.
pub const MOST_EVALUATIONS: usize = 2048;

/// What one evaluation of the op costs, apart from its operands.
pub fn of_op(u: &UOp) -> f64 {
    // Lowering expands a float remainder into many instructions.
    if u.op() == Op::Mod && u.dtype().is_float() { 120.0 } else { u.op().cost().into() }
}

/// For each node the cost of all its elements, each computed once, from what is stored under it.
pub fn totals(order: &[UOp], stored: &dyn Fn(&UOp) -> bool) -> FxHashMap<u64, f64> {
    // What a user pays for all elements: a load each where they are stored.
    let mut price: FxHashMap<u64, f64> = FxHashMap::default();
    let mut total: FxHashMap<u64, f64> = FxHashMap::default();
    for u in order {
        let n = u.numel() as f64;
        let under: f64 = u.src().iter().map(|s| price[&s.id()]).sum();
        let cost = match u.op() {
            // What is selected is read and nothing else.
            Op::Reduce if selects(u) => under / (u.src()[0].numel().max(1) as f64) * n + n * 4.0,
            Op::Reduce => under + u.src()[0].numel() as f64,
            // What is repeated does not change inside the loop that repeats it, so it is computed
            // outside; whether it is computed at all or stored is decided where it is made.
            Op::Expand => 0.0,
            // Only the part that is looked at is computed.
            Op::Shrink | Op::Slice => under * n / (u.src()[0].numel().max(1) as f64),
            Op::Buffer | Op::Param | Op::Output => n,
            _ => under + n * of_op(u),
        };
        price.insert(u.id(), if stored(u) { n } else { cost });
        total.insert(u.id(), cost);
    }
    total
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
            u = u.src()[0].clone();
        }
        u
    };
    let choice = under(&u.src()[0], &|u| u.op() == Op::Cast);
    let (Op::Where, [condition, _, zero]) = (choice.op(), choice.src()) else { return false };
    let base = |u: &UOp| under(u, &|u| u.op().is(Group::Movement));
    let is_place =
        |u: &UOp| under(u, &|u| u.op().is(Group::Movement) || u.op() == Op::Cast).op() == Op::Iota;
    let compares = |c: &UOp| base(c).op() == Op::Eq && base(c).src().iter().any(is_place);
    base(zero).as_const().is_some_and(|c| c.is_zero())
        && clauses(&base(condition)).iter().any(compares)
}
