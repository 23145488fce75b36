//! `LOCAL`, `GROUP`, `GROUPTOP`, `ORDER` and `NOLOCALS`: threads of a workgroup along output axes,
//! reductions that threads share, and the order of threads.

use super::apply::{Applied, OptRequest};
use super::split::{split, split_by, touches};
use super::{Kernel, OptOp, is_output};
use crate::ir::{AxisKind, UOp, toposort};
use crate::kernel::{extent, thread_order, warp_last, with_thread_order};

/// Applies `LOCAL`.
pub(super) fn local(q: &OptRequest) -> Applied {
    let r = q.constant_axis()?;
    q.check_kind(is_output(r), "an output axis")?;
    check_workgroup(q)?;
    threads(q, r, AxisKind::Local, false)
}

/// Applies `GROUP`.
pub(super) fn group(q: &OptRequest) -> Applied {
    grouped(q, false)
}

/// Applies `GROUPTOP`.
pub(super) fn group_top(q: &OptRequest) -> Applied {
    grouped(q, true)
}

fn grouped(q: &OptRequest, top: bool) -> Applied {
    q.check_unordered()?;
    let r = q.constant_axis()?;
    q.check_kind(r.range_kind() == AxisKind::Reduce, "a reduction axis")?;
    check_workgroup(q)?;
    if q.kernel.reduces_what_it_writes() {
        return Err("the kernel reduces a buffer that it writes in place, so a thread could read \
                    what another has written"
            .into());
    }
    threads(q, r, AxisKind::Group, top)
}

/// Makes part of an axis threads: those of a group that are idle there, or new ones.
fn threads(q: &OptRequest, r: &UOp, kind: AxisKind, top: bool) -> Applied {
    let (ast, amount) = (&q.kernel.ast, q.divisor()?);
    if let Some(g) = q.kernel.idle_group(r, amount) {
        return Ok(split_by(ast, r, g, top));
    }
    check_threads(q, amount)?;
    Ok(split(ast, r, amount, kind, top))
}

/// Applies `NOLOCALS`.
pub(super) fn no_locals(q: &OptRequest) -> Applied {
    if q.axes.iter().any(|r| r.range_kind().is_workgroup()) {
        return Err("the kernel has workgroup threads already".into());
    }
    Ok(q.kernel.ast.clone())
}

/// Applies `ORDER`.
pub(super) fn order(q: &OptRequest) -> Applied {
    let r = q.axis()?;
    q.check_kind(r.range_kind().is_workgroup(), "an axis of workgroup threads")?;
    let mut threads = thread_order(&q.kernel.ast);
    let (position, count) = (q.opt.amount, threads.len());
    if position >= count {
        return Err(format!("there is no position {position} in the order of {count} thread axes"));
    }
    threads.retain(|t| t != r);
    threads.insert(position, r.clone());
    let wanted = threads.clone();
    warp_last(&q.kernel.ast, &mut threads);
    if threads != wanted {
        return Err("the threads of a tensor core must come last".into());
    }
    Ok(with_thread_order(&q.kernel.ast, &threads))
}

fn check_workgroup(q: &OptRequest) -> Result<(), String> {
    if !q.target.grid {
        return Err("the target has no workgroups".into());
    }
    if q.kernel.has(OptOp::NoLocals) {
        return Err("NOLOCALS allows no workgroup threads".into());
    }
    Ok(())
}

fn check_threads(q: &OptRequest, amount: usize) -> Result<(), String> {
    let (threads, most) = (q.threads() * amount, q.target.local_max);
    if threads > most {
        return Err(format!("{threads} threads are more than the {most} of a workgroup"));
    }
    Ok(())
}

impl Kernel {
    /// Returns threads that share another reduction of as many parts and are idle where this range
    /// is open: they can share this one too.
    fn idle_group(&self, r: &UOp, amount: usize) -> Option<UOp> {
        let order = self.ast.toposort();
        let both = |g: &UOp| order.iter().any(|u| touches(u, r) && touches(u, g));
        self.axes()
            .into_iter()
            .find(|g| g.range_kind() == AxisKind::Group && extent(g) == amount && !both(g))
    }

    /// Returns true if a reduction reads a buffer that the kernel writes.
    pub(crate) fn reduces_what_it_writes(&self) -> bool {
        let written: Vec<&UOp> =
            self.ast.src().iter().map(|s| s.expect_store().place.buffer).collect();
        let order = self.ast.toposort();
        let reads_written =
            |u: &UOp| u.as_load().is_some_and(|l| written.contains(&l.place.buffer));
        if !order.iter().any(reads_written) {
            return false;
        }
        toposort(order.iter().filter_map(UOp::as_reduce).map(|r| r.body)).iter().any(reads_written)
    }
}
