//! The cost model that decides whether a value is rematerialized wherever it is used, or stored
//! once and read back. The unit is one simple arithmetic instruction on one element.

use super::reduce_simplify::selects;
use crate::ir::{Op, UOp};
use crate::kernel::expanded_cost;
use crate::target::{Machine, ScheduleTuning, Target, Tuning};
use rustc_hash::FxHashMap;

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

/// Maximum number of indices that one node is computed at. A node with more is stored, because
/// expressions would grow from level to level of a graph.
pub const MAX_USES: usize = 32;
/// Maximum number of nodes that one kernel evaluates. Compilers take more than linear time over a
/// function; kernels of models stay far below.
pub const MAX_EVALUATIONS: usize = 2048;

/// The cost of a load at a computed index, with the mask that keeps it inside its buffer: two
/// comparisons, a choice and the load.
const SELECTED_LOAD: f64 = 4.0;

/// Returns the cost of one evaluation of the op, without its operands.
pub fn of_op(u: &UOp) -> f64 {
    expanded_cost(u).unwrap_or(u.op().cost()).into()
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
            Op::Reduce if selects(u) => under / operand_len(u) * n + n * SELECTED_LOAD,
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
