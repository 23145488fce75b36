//! A lowered kernel, and the estimate of its work.

use super::{Launch, Variables};
use crate::ir::{Access, Arg, Op, UOp, toposort_until};
use crate::kernel::extent;
use crate::pass::PassTimes;
use crate::symbolic::{Linear, gcd};
use rustc_hash::FxHashMap;

/// A linear program, ready to be rendered.
#[derive(Clone, Debug)]
pub struct Program {
    /// The kernel's name: a C identifier.
    pub name: String,
    /// The name with each extent in the colour of its axis kind.
    pub colored: String,
    /// The instructions.
    pub uops: Vec<UOp>,
    /// The shape of the launch, at the upper bounds of variables.
    pub launch: Launch,
    /// The parts of the launch that depend on variables.
    pub variables: Variables,
    /// The arguments by slot.
    pub args: Vec<UOp>,
    /// The slots of the arguments that it writes.
    pub writes: Vec<usize>,
    /// The work of one run.
    pub estimate: Estimate,
    /// The time of each pass that ran.
    pub times: PassTimes,
}

/// The work of one run of a kernel, counted in its program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Arithmetic operations on floats.
    pub flops: f64,
    /// Instructions, including loads, stores and index arithmetic: a measure of the time of an
    /// unoptimized kernel.
    pub steps: f64,
    /// Bytes of memory traffic: for each buffer the bytes of all accesses, at most its size.
    pub bytes: f64,
}

/// Returns the slots of the arguments that a kernel stores to.
pub(super) fn writes(args: &[UOp], ast: &UOp) -> Vec<usize> {
    let stored = |arg: &UOp| ast.src().iter().any(|s| s.expect_store().place.buffer == arg);
    (0..args.len()).filter(|slot| stored(&args[*slot])).collect()
}

/// Returns the mean extent of a loop: the last chunk of an axis may be shorter.
fn mean_extent(r: &UOp) -> f64 {
    let most = extent(r) as f64;
    let uses = r.expect_range().extent.toposort();
    let Some(Arg::Special { extent: chunks, .. }) =
        uses.iter().find(|u| u.op() == Op::Special).map(UOp::arg)
    else {
        return most;
    };
    let least = r.expect_range().extent.vmin().max(0) as f64;
    most - (most - least) / *chunks as f64
}

/// Returns the fraction of the accesses at an index that reach an element for the first time: below
/// 1 where the last tile of an axis overlaps the one before it. The start of such a tile is
/// `min(o * tile, last)`, so that `last + tile` of `o_max * tile + tile` iterations are distinct.
fn distinct_fraction(index: &UOp) -> f64 {
    // The extents of ranges are not part of the index.
    let nodes = toposort_until([index], |u| u.op() == Op::Range);
    let starts = nodes.iter().filter_map(|u| {
        let min = u.as_min()?;
        let (last, most) = (min.y.as_int()? as f64, min.x.vmax() as f64);
        let start = Linear::of(min.x)?;
        let tile = start.terms.iter().fold(start.constant, |all, (_, by)| gcd(all, *by)) as f64;
        (tile > 0.0 && last > 0.0 && most > last).then(|| (last + tile) / (most + tile))
    });
    starts.product()
}

/// Returns the lanes of an access whose mask is not false for every iteration: `lanes < n` has n.
fn accessed_lanes(access: &Access<'_>) -> usize {
    let counted = || {
        let below = access.place.mask?.as_lt()?;
        let (lanes, end) = (below.x.as_vectorize()?, below.y.as_int()?);
        let numbers = lanes.lanes.iter().map(UOp::as_int).collect::<Option<Vec<i64>>>()?;
        Some(numbers.iter().filter(|n| **n < end).count())
    };
    counted().unwrap_or(access.lanes as usize)
}

/// Counts the work of a program by walking its loops.
pub(super) fn estimate(uops: &[UOp], args: &[UOp]) -> Estimate {
    let mut times = vec![1.0f64];
    let (mut flops, mut steps) = (0.0, 0.0);
    let mut launches = 1.0;
    let mut accesses: FxHashMap<u64, f64> = FxHashMap::default();
    let overlaps = uops.iter().any(|u| u.op() == Op::Min && u.dtype().is_signed_int());
    let distinct = |index: &UOp| if overlaps { distinct_fraction(index) } else { 1.0 };
    for u in uops {
        let now = *times.last().expect("the program itself");
        if u.op().is_alu() || matches!(u.op(), Op::Load | Op::Store) {
            steps += now;
        }
        if let Some(access) = u.as_access() {
            *accesses.entry(access.place.buffer.id()).or_default() +=
                now * accessed_lanes(&access) as f64 * distinct(access.place.index);
        }
        match u.op() {
            Op::Range => times.push(now * mean_extent(u)),
            Op::EndRange => drop(times.pop()),
            Op::Special => {
                if let Arg::Special { extent, .. } = u.arg() {
                    launches *= *extent as f64;
                }
            }
            Op::Wmma => {
                if let Arg::Wmma { core, .. } = u.arg() {
                    flops += now * 2.0 * core.dims.iter().product::<usize>() as f64
                        / core.threads() as f64;
                }
            }
            op if op.is_alu() && u.dtype().is_float() => {
                flops += now * u.dtype().lanes as f64 * if op == Op::Fma { 2.0 } else { 1.0 };
            }
            _ => {}
        }
    }
    let bytes = args
        .iter()
        .map(|a| match a.arg() {
            Arg::Global { len, .. } => {
                let most = accesses.get(&a.id()).map_or(f64::INFINITY, |n| n * launches);
                most.min(*len as f64) * a.dtype().itemsize() as f64
            }
            _ => 0.0,
        })
        .sum();
    Estimate { flops: flops * launches, steps: steps * launches, bytes }
}
