//! Matrix products on a GPU: a register tile for each thread, and tiles of both inputs in shared
//! memory.

use super::super::facts::KernelFacts;
use super::super::matmul::MatmulPattern;
use super::super::{apply_to, argument};
use crate::kernel::extent;
use crate::opt::{Kernel, Opt, OptOp, is_output};
use crate::target::Target;

/// Chooses a register tile for each of 16 × 16 threads, and stages tiles of both inputs.
pub(super) fn staged_tiles(facts: &KernelFacts, target: &Target) -> Option<Kernel> {
    let (p, tuning) = (MatmulPattern::of(facts)?, &target.tuning.gpu);
    let outputs: usize =
        facts.axes.iter().filter(|r| is_output(r)).map(extent).fold(1, usize::saturating_mul);
    let most = tuning.matmul_tiles.iter().find(|m| outputs >= m.0)?.1;
    let fits = |n: usize| {
        [&p.row, &p.column].iter().all(|r| extent(r).is_multiple_of(n * tuning.matmul_side))
    };
    let side = tuning.matmul_tiles.iter().map(|m| m.1).find(|n| *n <= most && fits(*n))?;
    tuning.matmul_steps.into_iter().find_map(|steps| {
        let mut k = facts.kernel.clone();
        for r in [&p.column, &p.row] {
            // Adjacent threads have adjacent vectors; further vectors are a workgroup apart.
            apply_to(&mut k, OptOp::Upcast, r, tuning.matmul_vector, target)?;
            apply_to(&mut k, OptOp::Local, r, tuning.matmul_side, target)?;
            apply_to(&mut k, OptOp::Upcast, r, side / tuning.matmul_vector, target)?;
        }
        let axis = k.axis_of(&p.inner)?;
        if extent(&p.inner) == steps {
            return None;
        }
        k = k.apply(&Opt::new(OptOp::Split, axis, steps), target).ok()?;
        for load in [&p.left, &p.right] {
            k = k.apply(&Opt::new(OptOp::Stage, axis, argument(load)?), target).ok()?;
        }
        if side == tuning.matmul_unrolled_tile {
            k = k.apply(&Opt::new(OptOp::Unroll, axis + 1, steps), target).ok()?;
        }
        Some(k)
    })
}
