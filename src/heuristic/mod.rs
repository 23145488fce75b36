//! The optimizer's policy: which Opts a kernel gets without a search, and which ones the beam
//! search may try.
//!
//! | file | contents |
//! |---|---|
//! | `cpu` | loops, register tiles, packed inputs and panels for targets without workgroups |
//! | `gpu` | workgroups, register tiles, staged tiles and tensor cores |
//! | `facts` | facts about a kernel that policies share |
//! | `matmul` | the pattern of a matrix product |
//! | `lanes` | the axes that become vector lanes |
//! | `threads` | the order of the threads of a workgroup |
//! | `actions` | the Opts that a search tries next |

mod actions;
mod cpu;
mod facts;
mod gpu;
mod lanes;
mod matmul;
mod threads;

pub use actions::actions;

use crate::ir::{AxisKind, UOp};
use crate::kernel::{self, extent, has_unit_stride_load, is_symbolic};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Chooses the Opts of a kernel on a target by estimated cost.
pub fn choose(kernel: &Kernel, target: &Target) -> Kernel {
    let choose = if target.grid { gpu::choose } else { cpu::choose };
    completed(&choose(kernel, target), target)
}

/// Adds the Opts that come last to a list that has none of them: the order of threads, and vector
/// lanes. Only policies complete lists; a given list is applied as it is.
pub fn completed(kernel: &Kernel, target: &Target) -> Kernel {
    lanes::vectorized(&threads::ordered(kernel, target), target)
}

/// Applies an Opt if it applies, and returns true if it did.
fn try_apply(k: &mut Kernel, opt: Opt, target: &Target) -> bool {
    match k.apply(&opt, target) {
        Ok(next) => {
            *k = next;
            true
        }
        Err(_) => false,
    }
}

/// Applies an Opt with this amount to the remaining part of an axis, whose range id is unchanged.
/// Does nothing if the amount is 1.
fn apply_to(k: &mut Kernel, op: OptOp, r: &UOp, amount: usize, target: &Target) -> Option<()> {
    if amount > 1 {
        let axis = k.axes().iter().position(|x| x.range_id() == r.range_id())?;
        *k = k.apply(&Opt::new(op, axis, amount), target).ok()?;
    }
    Some(())
}

/// Returns the largest power of two up to `most` that divides `size`, if that is 2 or more.
fn power_of_two_divisor(size: usize, most: usize) -> Option<usize> {
    let exponent = size.trailing_zeros().min(most.max(1).ilog2());
    (exponent > 0).then(|| 1 << exponent)
}

/// Returns the extent by which Opts may split a range: 1 if it is symbolic.
fn splittable_extent(r: &UOp) -> usize {
    if is_symbolic(r) { 1 } else { extent(r) }
}

/// Returns the number of the argument that a load reads.
fn argument(load: &UOp) -> Option<usize> {
    load.as_load()?.place.buffer.as_define_global().map(|b| b.slot)
}

/// Returns the output axis that has unit stride in every store.
fn unit_stride_output(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    let stores = |r: &UOp| k.ast.src().iter().all(|s| kernel::stride(s, r) == Some(1));
    axes.iter().position(|r| is_output(r) && !is_symbolic(r) && stores(r))
}

/// Returns a reduction axis that has unit stride in some load.
fn unit_stride_reduce(k: &Kernel) -> Option<usize> {
    let (axes, order) = (k.axes(), k.ast.toposort());
    let has_unit_stride = |r: &UOp| has_unit_stride_load(&order, r);
    axes.iter()
        .position(|r| r.range_kind() == AxisKind::Reduce && !is_symbolic(r) && has_unit_stride(r))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_are_powers_of_two_up_to_a_limit() {
        let cases = [(48, 16, Some(16)), (48, 20, Some(16)), (64, 20, Some(16)), (6, 8, Some(2))];
        for (size, most, expected) in cases {
            assert_eq!(power_of_two_divisor(size, most), expected, "{size} {most}");
        }
        assert_eq!(power_of_two_divisor(7, 8), None);
        assert_eq!(power_of_two_divisor(8, 1), None);
    }
}
