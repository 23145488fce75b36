//! Inputs that are copied once into the order in which lanes use them, such as the weights of a
//! convolution, whose channels have no unit stride. Where an input is small and used often enough,
//! the copy is cheap, and one vector load replaces a load per lane.

use super::super::{argument, try_apply};
use crate::dtype::DType;
use crate::ir::UOp;
use crate::kernel::{Access, extent};
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Returns true if the input of a load is small and used often enough to be packed as a whole.
pub(super) fn is_profitable(axes: &[UOp], load: &Access, target: &Target) -> bool {
    let is_masked = load.node.expect_access().place.mask.is_some();
    if is_masked || load.node.dtype() != DType::F32 || argument(&load.node).is_none() {
        return false;
    }
    let (used, others): (Vec<&UOp>, Vec<&UOp>) =
        axes.iter().partition(|r| load.node.uses_range(r.range_id()));
    let size = |list: &[&UOp]| list.iter().map(|r| extent(r)).fold(1usize, usize::saturating_mul);
    let outputs: Vec<&UOp> = others.into_iter().filter(|r| is_output(r)).collect();
    size(&used).saturating_mul(4) <= target.stored_bytes().min(target.shared_bytes)
        && size(&outputs) >= target.tuning.cpu.pack_uses * target.threads.max(1)
}

/// Stages arguments at the outermost output loop.
pub(super) fn pack(k: &mut Kernel, slots: &[usize], target: &Target) {
    for slot in slots {
        if let Some(axis) = k.axes().iter().position(is_output) {
            try_apply(k, Opt::new(OptOp::Stage, axis, *slot), target);
        }
    }
}
