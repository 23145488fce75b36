//! Output axes that the tile of an Opt does not divide: the last tile overlaps the one before it,
//! or the axis is padded and lanes past its end are masked.

use super::super::facts::KernelFacts;
use super::super::{power_of_two_divisor, splittable_extent};
use crate::ir::{Op, UOp};
use crate::kernel::{self, Access, extent, index_stride};
use crate::opt::{Kernel, Opt, OptOp, is_output, reuse};
use crate::target::Target;

/// The cover of an axis by tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The tile divides the axis.
    Divides,
    /// The last tile overlaps the one before it.
    Overlaps,
    /// The axis is padded to a multiple of the tile.
    Pads,
}

/// Tiles along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// The elements of a tile.
    pub size: usize,
    /// The cover of the axis.
    pub fit: Fit,
}

impl Tiles {
    /// Returns the fraction of the computed elements that are elements of the axis, each once.
    pub fn efficiency(self, r: &UOp) -> f64 {
        let size = splittable_extent(r);
        size as f64 / size.next_multiple_of(self.size) as f64
    }

    /// Applies the Opts that make tiles of an axis copies of kind Upcast.
    pub fn upcast(self, k: &mut Kernel, r: &UOp, target: &Target) -> Option<()> {
        if self.size < 2 {
            return Some(());
        }
        let axis = k.axis_of(r)?;
        let opts: &[Opt] = match self.fit {
            Fit::Divides => &[Opt::new(OptOp::Upcast, axis, self.size)],
            Fit::Pads => {
                &[Opt::new(OptOp::PadTo, axis, self.size), Opt::new(OptOp::Upcast, axis, self.size)]
            }
            // The elements of a tile are the axis after that of the tiles.
            Fit::Overlaps => &[
                Opt::new(OptOp::Overlap, axis, self.size),
                Opt::new(OptOp::Upcast, axis + 1, self.size),
            ],
        };
        *k = opts.iter().try_fold(k.clone(), |k, opt| k.apply(opt, target)).ok()?;
        Some(())
    }
}

/// Returns the vectors of up to `most` lanes along an output axis: a power of two that divides it
/// if no other covers it in fewer vectors.
pub(super) fn vectors(facts: &KernelFacts, r: &UOp, most: usize, target: &Target) -> Option<Tiles> {
    let size = splittable_extent(r);
    let divisor = power_of_two_divisor(size, most);
    let exact = divisor.map(|size| Tiles { size, fit: Fit::Divides });
    // The greatest power of two up to `most`.
    let widest = 1 << most.max(1).ilog2();
    if divisor == Some(widest) || size < 3 || widest < 2 || target.grid || !is_output(r) {
        return exact;
    }
    // Values are stored for reuse only where all loops cover the same elements once.
    if !facts.reduces.is_empty() && reuse::reuse(&facts.kernel.ast, target).is_some() {
        return exact;
    }
    let overlapping = Tiles { size: widest, fit: Fit::Overlaps };
    // Some CPUs execute a full vector as two halves: then half vectors without waste are faster.
    let halves = divisor == Some(widest / 2)
        && overlapping.efficiency(r) < target.tuning.cpu.overlap_efficiency;
    if halves {
        return exact;
    }
    if size > widest && overlaps(facts, r, widest, target) {
        return Some(overlapping);
    }
    let padded = size.next_power_of_two().min(widest);
    let vectors = |lanes: usize| size.div_ceil(lanes);
    if vectors(padded) < divisor.map_or(size, vectors) && is_maskable(facts, r, target) {
        return Some(Tiles { size: padded, fit: Fit::Pads });
    }
    exact
}

/// Returns true if `OVERLAP` applies to an axis and leaves all indices linear in it.
pub(super) fn overlaps(facts: &KernelFacts, r: &UOp, tile: usize, target: &Target) -> bool {
    let linear = |a: &Access| index_stride(a.node.expect_access().place.index, r).is_some();
    let masked = |a: &Access| a.is_masked(r);
    let all = facts.accesses();
    let axis = facts.kernel.axis_of(r);
    all.iter().all(|a| linear(a) && !masked(a))
        && axis.is_some_and(|axis| {
            facts.kernel.apply(&Opt::new(OptOp::Overlap, axis, tile), target).is_ok()
        })
}

/// Returns true if all accesses along an axis are of one element or may have a mask for each lane.
fn is_maskable(facts: &KernelFacts, r: &UOp, target: &Target) -> bool {
    let lanes = |a: &Access| {
        kernel::stride(&a.node, r) == Some(0) && !a.is_masked(r) || a.has_unit_stride(r, target)
    };
    facts.accesses().iter().all(lanes)
}

/// Returns the padded extent of the only reduction of a kernel along which its loads are
/// contiguous, if full vectors cover it in fewer iterations than its divisors.
pub(super) fn padded_reduce(
    facts: &KernelFacts,
    r: &UOp,
    lanes: usize,
    target: &Target,
) -> Option<usize> {
    let size = splittable_extent(r);
    let widest = 1 << lanes.max(1).ilog2();
    let padded = size.next_power_of_two().min(widest);
    let divisor = power_of_two_divisor(size, lanes).unwrap_or(1);
    let [reduce] = facts.reduces.as_slice() else { return None };
    let alone = reduce.closed_ranges().contains(r) && reduce.op() == Op::Reduce;
    let worth = size >= 3 && padded > divisor && !size.is_multiple_of(padded);
    let reused = || reuse::reuse(&facts.kernel.ast, target).is_some();
    (alone && worth && !target.grid && !reused() && is_maskable_load(facts, r, target))
        .then_some(padded)
}

fn is_maskable_load(facts: &KernelFacts, r: &UOp, target: &Target) -> bool {
    let loads = || facts.accesses().iter().filter(|a| a.node.uses_range(r.range_id()));
    loads().all(|a| a.node.op() == Op::Load && a.has_unit_stride(r, target)) && extent(r) > 2
}
