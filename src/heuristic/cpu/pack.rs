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
        && size(&outputs) >= MIN_PACKS * target.tuning.cpu.pack_uses
}

/// The chunks that a packed input has to be worth, at least: each chunk packs it.
const MIN_PACKS: usize = 2;

/// Returns the maximum number of chunks of a kernel that packs arguments: each chunk packs them, so
/// that a chunk has several times the uses that make packing worth it, if that leaves enough chunks
/// for all threads.
pub(super) fn max_chunks(k: &Kernel, slots: &[usize], target: &Target) -> usize {
    let (axes, tuning) = (k.axes(), &target.tuning.cpu);
    let order = k.ast.toposort();
    let packed = |u: &&UOp| argument(u).is_some_and(|slot| slots.contains(&slot));
    let uses = |load: &UOp| {
        let others =
            axes.iter().filter(|r| !load.uses_range(r.range_id()) && !r.range_kind().is_reduce());
        others.map(extent).fold(1usize, usize::saturating_mul)
    };
    let uses = order.iter().filter(packed).map(uses).min().unwrap_or(usize::MAX) / tuning.pack_uses;
    (uses / 4).max(uses.min(tuning.reference_threads)).max(MIN_PACKS)
}

/// Stages arguments at the outermost output loop.
pub(super) fn pack(k: &mut Kernel, slots: &[usize], target: &Target) {
    for slot in slots {
        if let Some(axis) = k.axes().iter().position(is_output) {
            try_apply(k, Opt::new(OptOp::Stage, axis, *slot), target);
        }
    }
}
