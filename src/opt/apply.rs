//! How each optimisation changes the kernel.

use super::{Kernel, Opt, OptOp, reuse, stage, tensor_core};
use crate::error::{Error, Result};
use crate::ir::{Arg, AxisKind, LoadHint, Op, Src, UOp, next_range, toposort};
use crate::kernel::{closing, extent, is_symbolic, pad_range, replace_range, tiles};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Most values that upcasts and unrolls together may make of one.
const MOST_COPIES: usize = 2048;

/// Rounds in which the parts of a shared reduce are folded, at most: three at a time of 729.
const ROUNDS: usize = 5;

impl Kernel {
    /// The kernel after one optimisation, or why it does not apply.
    pub fn apply(&self, opt: &Opt, target: &Target) -> Result<Kernel> {
        let refuse = |msg: String| Err(Error::Opt { opt: opt.to_string(), msg });
        let done = |ast: UOp, locals: bool| {
            let mut opts = self.opts.clone();
            opts.push(*opt);
            let next = Kernel { ast, opts, locals };
            match next.local_bytes(target) {
                Ok(bytes) if bytes <= target.local_bytes => Ok(next),
                Ok(bytes) => {
                    let msg = format!(
                        "local memory of {} bytes is too small for {bytes}",
                        target.local_bytes
                    );
                    Err(Error::Opt { opt: opt.to_string(), msg })
                }
                Err(msg) => Err(Error::Opt { opt: opt.to_string(), msg }),
            }
        };
        if opt.op == OptOp::NoLocals {
            if self
                .axes()
                .iter()
                .any(|r| matches!(r.range_kind(), AxisKind::Local | AxisKind::Group))
            {
                return refuse("the kernel has workgroup threads already".into());
            }
            return done(self.ast.clone(), false);
        }
        let together = matches!(
            opt.op,
            OptOp::Stage
                | OptOp::Tc
                | OptOp::Prefetch
                | OptOp::Reuse
                | OptOp::Group
                | OptOp::GroupTop
        );
        if together
            && (self.axes().iter().any(|r| r.range_kind() == AxisKind::Ordered)
                || self.writes_at_indices())
        {
            return refuse(
                "the kernel updates memory in order, and nothing is copied or shared inside it"
                    .into(),
            );
        }
        if self.opts.iter().any(|o| o.op == OptOp::Reuse) {
            return refuse(
                "what is kept depends on all other optimisations, so nothing comes after it".into(),
            );
        }
        if opt.op == OptOp::Reuse {
            return match reuse::reuse(&self.ast, target) {
                Some(k) => done(k.ast, self.locals),
                None => refuse(
                    "nothing that is worth it is computed in a reduce and again in a later loop"
                        .into(),
                ),
            };
        }
        let axes = self.axes();
        let Some(r) = axes.get(opt.axis) else {
            return refuse(format!("there is no axis {} among {}", opt.axis, axes.len()));
        };
        let (kind, size) = (r.range_kind(), extent(r));
        let amount = if opt.amount == 0 { size } else { opt.amount };
        let product = |kinds: &[AxisKind]| -> usize {
            axes.iter().filter(|a| kinds.contains(&a.range_kind())).map(extent).product()
        };
        let output = matches!(kind, AxisKind::Global | AxisKind::Loop);
        // What is copied or computed for many steps at once is as long as the program says.
        let whole = match opt.op {
            OptOp::PadTo | OptOp::Swap => false,
            OptOp::Stage | OptOp::Tc => axes.iter().any(is_symbolic),
            _ => is_symbolic(r),
        };
        if whole {
            return refuse(format!(
                "an axis that ends where a variable says is not cut; PADTO makes it one of {size}"
            ));
        }
        let divides = |what: &str| -> Result<()> {
            if amount < 2 || size % amount != 0 {
                return Err(Error::Opt {
                    opt: opt.to_string(),
                    msg: format!("{what} of {amount} does not divide the axis of {size}"),
                });
            }
            Ok(())
        };
        match opt.op {
            OptOp::Upcast | OptOp::Unroll => {
                let right = if opt.op == OptOp::Upcast { output } else { kind == AxisKind::Reduce };
                if !right {
                    return refuse(format!("axis {} is of kind {kind:?}", opt.axis));
                }
                divides("an amount")?;
                let kind =
                    if opt.op == OptOp::Upcast { AxisKind::Upcast } else { AxisKind::Unroll };
                let ast = self.split(r, amount, kind, false);
                if copies(&ast) > MOST_COPIES {
                    return refuse(format!("more than {MOST_COPIES} copies"));
                }
                done(ast, self.locals)
            }
            OptOp::Local | OptOp::Group | OptOp::GroupTop => {
                let local = opt.op == OptOp::Local;
                if !(if local { output } else { kind == AxisKind::Reduce }) {
                    return refuse(format!("axis {} is of kind {kind:?}", opt.axis));
                }
                if !target.grid || !self.locals {
                    return refuse("no workgroup threads here".into());
                }
                if !local && self.folds_what_it_writes() {
                    return refuse(
                        "a thread of the group could fold what another has written: the kernel is \
                         in place"
                            .into(),
                    );
                }
                divides("an amount")?;
                let top = opt.op == OptOp::GroupTop;
                if let Some(g) = self.free_group(r, amount) {
                    return done(self.split_to(r, g, top), self.locals);
                }
                let threads = product(&[AxisKind::Local, AxisKind::Group]) * amount;
                if threads > target.local_max {
                    return refuse(format!("{threads} threads are more than {}", target.local_max));
                }
                let kind = if local { AxisKind::Local } else { AxisKind::Group };
                done(self.split(r, amount, kind, top), self.locals)
            }
            OptOp::Thread => {
                if !output || target.threads < 2 || amount > target.threads {
                    return refuse(format!(
                        "no division over {amount} threads of an axis of kind {kind:?}; there are \
                         {}",
                        target.threads
                    ));
                }
                if axes.iter().any(|a| a.range_kind() == AxisKind::Thread) {
                    return refuse("one axis is divided over threads already".into());
                }
                divides("a number of threads")?;
                done(self.split(r, amount, AxisKind::Thread, true), self.locals)
            }
            OptOp::Swap => {
                let Some(other) = axes.get(opt.amount) else {
                    return refuse(format!("there is no axis {}", opt.amount));
                };
                if !output || other.range_kind() != kind || other == r {
                    return refuse(
                        "only two different output loops of one kind change places".into(),
                    );
                }
                done(swap(&self.ast, r, other), self.locals)
            }
            OptOp::PadTo => {
                if !matches!(kind, AxisKind::Global | AxisKind::Loop | AxisKind::Reduce) {
                    return refuse(format!("axis {} is of kind {kind:?}", opt.axis));
                }
                if amount < 2 || (size % amount == 0 && !is_symbolic(r)) {
                    return refuse(format!("the axis of {size} needs no padding to {amount}"));
                }
                // Padding to more than four times the size is work for nothing.
                let padded = size.div_ceil(amount) * amount;
                if padded > size * 4 {
                    return refuse(format!("an axis of {size} would become {padded}"));
                }
                done(pad_range(&self.ast, r, padded), self.locals)
            }
            OptOp::Split => {
                // Where the launch has all positions of an output axis, its order is not a loop's.
                if !(kind == AxisKind::Reduce || (output && !target.grid)) {
                    return refuse(format!(
                        "axis {} is of kind {kind:?}, which is no loop",
                        opt.axis
                    ));
                }
                divides("an amount")?;
                if amount == size {
                    return refuse(format!("an axis of {size} is not cut by {amount}"));
                }
                done(self.split(r, amount, kind, false), self.locals)
            }
            OptOp::Stage => match stage::mark(self, r, opt.amount, target) {
                Ok(ast) => done(ast, self.locals),
                Err(why) => refuse(why),
            },
            OptOp::Tc => {
                let ways = tensor_core::ways(self, r, target);
                let Some(way) = ways.get(opt.amount) else {
                    return refuse(match ways.len() {
                        0 => format!(
                            "axis {} is not that of a sum of products that a tensor core of the \
                             target has",
                            opt.axis
                        ),
                        n => format!("there are {n} ways, and the first is 0"),
                    });
                };
                let threads = product(&[AxisKind::Local, AxisKind::Group]) * way.core.threads();
                if !target.grid || !self.locals || threads > target.local_max {
                    return refuse(format!("no workgroup of {threads} threads here"));
                }
                done(tensor_core::apply(&self.ast, way), self.locals)
            }
            OptOp::Prefetch => {
                if !target.grid || kind != AxisKind::Reduce {
                    return refuse(format!(
                        "axis {} is of kind {kind:?}, or no loop of a thread in a workgroup",
                        opt.axis
                    ));
                }
                let order = self.ast.toposort();
                let loads =
                    order.iter().filter(|u| u.op() == Op::Load && u.uses_range(r.range_id()));
                let ahead = |u: &UOp| {
                    let id = Some(r.range_id());
                    let hint = match u.arg() {
                        Arg::None => LoadHint { stage_at: None, prefetch_in: id },
                        Arg::LoadHint(LoadHint { stage_at, prefetch_in: None })
                            if *stage_at == id =>
                        {
                            LoadHint { stage_at: id, prefetch_in: id }
                        }
                        _ => return None,
                    };
                    Some((
                        u.clone(),
                        UOp::new(
                            Op::Load,
                            u.dtype(),
                            u.src().iter().cloned().collect::<Src>(),
                            Arg::LoadHint(hint),
                        ),
                    ))
                };
                let map: FxHashMap<UOp, UOp> = loads.filter_map(ahead).collect();
                if map.is_empty() {
                    return refuse("nothing is loaded in the loop".into());
                }
                done(self.ast.substitute(&map), self.locals)
            }
            OptOp::Reuse | OptOp::NoLocals => unreachable!("handled above"),
        }
    }

    /// Cuts a range: `outer * amount + inner`, or with `top` `inner * (size / amount) + outer`,
    /// where `inner` has the new kind.
    fn split(&self, r: &UOp, amount: usize, kind: AxisKind, top: bool) -> UOp {
        let next = next_range(&self.ast.toposort());
        self.split_to(r, UOp::range(amount as i64, next, kind), top)
    }

    /// Cuts a range so that its inner part is this one.
    fn split_to(&self, r: &UOp, inner: UOp, top: bool) -> UOp {
        let (size, amount, kind) = (extent(r), extent(&inner), inner.range_kind());
        let rest = size / amount;
        if rest == 1 {
            return replace_range(&self.ast, r, &inner, std::slice::from_ref(&inner));
        }
        let outer = UOp::range(rest as i64, r.range_id(), r.range_kind());
        let value =
            if top { &inner * rest as i64 + &outer } else { &outer * amount as i64 + &inner };
        // The divided part stands outside what is left of it, everything else inside.
        let order = if top && kind == AxisKind::Thread { [inner, outer] } else { [outer, inner] };
        replace_range(&self.ast, r, &value, &order)
    }

    /// Threads that share a reduce of as many parts, and have nothing to do where this range is
    /// open: its part can be theirs.
    fn free_group(&self, r: &UOp, amount: usize) -> Option<UOp> {
        let order = self.ast.toposort();
        let both = |g: &UOp| order.iter().any(|u| touches(u, r) && touches(u, g));
        self.axes()
            .into_iter()
            .find(|g| g.range_kind() == AxisKind::Group && extent(g) == amount && !both(g))
    }

    /// Does a reduce read a buffer that the kernel writes?
    pub(super) fn folds_what_it_writes(&self) -> bool {
        let written: Vec<&UOp> = self.ast.src().iter().map(|s| &s.src()[0].src()[0]).collect();
        let order = self.ast.toposort();
        if !order.iter().any(|u| u.op() == Op::Load && written.contains(&&u.src()[0].src()[0])) {
            return false;
        }
        let bodies: Vec<&UOp> =
            order.iter().filter(|u| u.op() == Op::Reduce).map(|u| &u.src()[0]).collect();
        toposort(bodies)
            .iter()
            .any(|u| u.op() == Op::Load && written.contains(&&u.src()[0].src()[0]))
    }

    /// The local memory that the kernel takes, or why it cannot be built: tiles of staged loads,
    /// values that are kept, and a part for each thread and each copy of a shared reduce, in each
    /// round.
    fn local_bytes(&self, target: &Target) -> std::result::Result<usize, String> {
        let mut total = 0usize;
        if self.opts.iter().any(|o| o.op == OptOp::Stage) {
            total =
                tiles(&self.ast, target)?.iter().map(|t| t.bytes()).fold(0, usize::saturating_add);
        }
        if self.opts.last().is_some_and(|o| o.op == OptOp::Reuse) {
            let of = |u: &UOp| {
                if let Arg::Shared { len, .. } = u.arg() {
                    len.saturating_mul(u.dtype().itemsize())
                } else {
                    0
                }
            };
            total = self.ast.toposort().iter().map(of).fold(total, usize::saturating_add);
        }
        let axes = self.axes();
        let of_kind = |kinds: &[AxisKind]| -> Vec<&UOp> {
            axes.iter().filter(|a| kinds.contains(&a.range_kind())).collect()
        };
        let groups = of_kind(&[AxisKind::Group]);
        if groups.is_empty() {
            return Ok(total);
        }
        let threads: usize =
            of_kind(&[AxisKind::Local, AxisKind::Group]).into_iter().map(extent).product();
        let bytes = |u: &UOp| {
            let copies: usize = of_kind(&[AxisKind::Upcast])
                .into_iter()
                .filter(|a| u.uses_range(a.range_id()))
                .map(extent)
                .product();
            ROUNDS * u.dtype().itemsize().max(4) * threads * copies
        };
        let shared =
            |u: &&UOp| u.op() == Op::Reduce && u.src()[1..].iter().any(|r| groups.contains(&r));
        Ok(self.ast.toposort().iter().filter(shared).map(bytes).fold(total, usize::saturating_add))
    }
}

/// Is the range open in a node, or closed by it?
fn touches(u: &UOp, r: &UOp) -> bool {
    u.uses_range(r.range_id()) || u.src().iter().skip(closing(u)).any(|s| s == r)
}

/// The most values that upcasts and unrolls make of one.
fn copies(ast: &UOp) -> usize {
    let order = ast.toposort();
    let marked: Vec<&UOp> = order
        .iter()
        .filter(|u| {
            u.op() == Op::Range && matches!(u.range_kind(), AxisKind::Upcast | AxisKind::Unroll)
        })
        .collect();
    let of = |u: &UOp| {
        marked.iter().filter(|r| touches(u, r)).map(|r| extent(r)).fold(1, usize::saturating_mul)
    };
    order.iter().map(of).max().unwrap_or(1)
}

fn swap(ast: &UOp, a: &UOp, b: &UOp) -> UOp {
    let stores: Src = ast
        .src()
        .iter()
        .map(|s| {
            let src: Src = s
                .src()
                .iter()
                .enumerate()
                .map(|(i, x)| {
                    if i < 2 {
                        x.clone()
                    } else if x == a {
                        b.clone()
                    } else if x == b {
                        a.clone()
                    } else {
                        x.clone()
                    }
                })
                .collect();
            s.with_src(src)
        })
        .collect();
    ast.with_src(stores)
}
