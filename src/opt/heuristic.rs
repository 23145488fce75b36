//! Which optimisations to apply without search. It is meant to be right and reasonable on every
//! target; tuning it is work of its own.

use super::grid::grid;
use super::{
    Kernel, Opt, OptOp, cut, extent, gated, is_output, is_symbolic, kernel, packed, product, reuse,
    slot,
};
use crate::ir::{AxisKind, Op, UOp};
use crate::target::Target;

/// Kernels below this many operations are not worth waking threads for.
const WORTH_THREADS: usize = 32_768;

/// Bytes of values that are kept for a later loop, at most: they should be in a near cache still.
const KEPT_BYTES: usize = 256 << 10;

/// A lane that is loaded on its own and put into a vector, in loads of whole vectors.
const LANE: f64 = 2.0;
/// The same for a lane that is loaded under a condition of its own. Measured on a convolution.
const GUARDED_LANE: f64 = 6.0;

/// A lane that is stored on its own, in stores of whole vectors.
const STORED_LANE: f64 = 4.0;

/// Good optimisations for a kernel on a target.
pub fn heuristic(kernel: &Kernel, target: &Target) -> Kernel {
    if target.grid {
        return grid(kernel, target);
    }
    let k = loops(kernel, target);
    // In the end, because what is kept depends on how many rows are computed together.
    let is_near = reuse::reuse(&k.ast, target).is_some_and(|keeps| keeps.bytes <= KEPT_BYTES);
    if is_near { k.apply(&Opt::new(OptOp::Reuse, 0, 0), target).unwrap_or(k) } else { k }
}

/// How a CPU goes through the axes.
fn loops(kernel: &Kernel, target: &Target) -> Kernel {
    if let Some(staged) = product::panels(kernel, target) {
        return staged;
    }
    let mut k = kernel.clone();
    let lanes = if target.vector_bytes >= 4 { target.vector_bytes / 4 } else { 4 };
    if let Some((tiled, copied)) = tile(&k, target) {
        k = tiled;
        threads(&mut k, target);
        packed::copy(&mut k, &copied, target);
        return k;
    }
    // Vector lanes: along the axis in which stores are contiguous; for a reduce without one, or
    // whose loads would be of lanes far apart, along the axis in which its loads are.
    let reduce = fastest_reduce(&k);
    let outputs = fastest_output(&k).filter(|axis| reduce.is_none() || !scatters(&k, *axis));
    let (mut rows, mut across) = (false, Vec::new());
    let upcast = outputs.and_then(|axis| {
        let size = extent(&k.axes()[axis]);
        divisor(size, lanes).map(|amount| Opt::new(OptOp::Upcast, axis, amount))
    });
    match upcast {
        Some(opt) => {
            try_apply(&mut k, opt, target);
            across = upcasts(&k);
            rows = reduce.is_some()
                && fastest_reduce(&k).is_some_and(|axis| together(&mut k, axis, ROWS, 3, target));
        }
        None => {
            if let Some(axis) = reduce {
                let r = k.axes()[axis].clone();
                let amount = if together(&mut k, axis, STREAMS, 1, target) {
                    divisor(extent(&r), lanes)
                } else {
                    steps(extent(&r), lanes)
                };
                if let (Some(amount), Some(axis)) = (amount, k.axes().iter().position(|x| *x == r))
                {
                    try_apply(&mut k, Opt::new(OptOp::Unroll, axis, amount), target);
                }
            } else {
                chains(&mut k, target);
            }
        }
    }
    // Each further reduce of a row is vectorised on its own.
    for _ in 0..if reduce.is_some() { 4 } else { 0 } {
        let Some(axis) = fastest_reduce(&k) else { break };
        let r = k.axes()[axis].clone();
        let Some(amount) =
            (if rows { divisor(extent(&r), lanes) } else { steps(extent(&r), lanes) })
        else {
            break;
        };
        if across.iter().any(|a| shares_node(&k.ast, a, &r))
            || !try_apply(&mut k, Opt::new(OptOp::Unroll, axis, amount), target)
        {
            break;
        }
    }
    threads(&mut k, target);
    k
}

/// Scans that a thread runs side by side: each waits for its last addition, which takes about as
/// many cycles.
const CHAINS: usize = 4;

/// Several scans at a time, where there are enough rows for all threads.
fn chains(k: &mut Kernel, target: &Target) {
    if !k.ast.toposort().iter().any(|u| u.op() == Op::Scan) {
        return;
    }
    let axes = k.axes();
    let Some(axis) = (0..axes.len()).rev().find(|i| is_output(&axes[*i])) else { return };
    if let Some(amount) = divisor(cut(&axes[axis]) / target.threads.max(1), CHAINS) {
        try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target);
    }
}

/// Vectors of a reduce's steps that are folded before they meet what was folded before: one fold is
/// waited for in place of several.
const VECTORS: usize = 4;

/// How many steps of a reduce become vectors at a time.
fn steps(size: usize, lanes: usize) -> Option<usize> {
    let many = lanes * VECTORS;
    if size.is_multiple_of(many) && size >= 2 * many { Some(many) } else { divisor(size, lanes) }
}

/// Would lanes along an output axis be far apart in the loads of the largest reduce?
fn scatters(k: &Kernel, axis: usize) -> bool {
    let axis = &k.axes()[axis];
    let (all, _) = kernel::accesses(&k.ast);
    let often = all.iter().filter(|a| a.node.op() == Op::Load).map(|a| a.times).fold(0.0, f64::max);
    let mut loads = all.iter().filter(|a| a.node.op() == Op::Load && a.times == often).peekable();
    often > 1.0
        && loads.peek().is_some()
        && loads.all(|a| a.node.uses_range(axis.range_id()) && a.parts(axis, 2) > 1)
}

/// The axes that are copies of outputs.
fn upcasts(k: &Kernel) -> Vec<UOp> {
    k.axes().into_iter().filter(|a| a.range_kind() == AxisKind::Upcast).collect()
}

/// Outputs that are computed together where each reads a stream of its own, and rows that are
/// reduced and then used.
const STREAMS: usize = 8;
const ROWS: usize = 4;

/// Memory answers several streams faster than one: outputs whose reduce over an axis reads at
/// different places are computed together, if the kernel has not more than so many reduces.
fn together(k: &mut Kernel, reduce: usize, most: usize, reduces: usize, target: &Target) -> bool {
    let (axes, order) = (k.axes(), k.ast.toposort());
    let r = &axes[reduce];
    let output = |a: &UOp| is_output(a) && shares_node(&k.ast, a, r);
    let lanes = |a: &UOp| a.range_kind() == AxisKind::Upcast && shares_node(&k.ast, a, r);
    if order.iter().filter(|u| u.op() == Op::Reduce).count() > reduces || axes.iter().any(lanes) {
        return false;
    }
    let Some(axis) = (0..axes.len()).rev().find(|i| output(&axes[*i])) else { return false };
    // As many are left as there are threads.
    match divisor(cut(&axes[axis]) / target.threads.max(1), most) {
        Some(amount) => try_apply(k, Opt::new(OptOp::Upcast, axis, amount), target),
        None => false,
    }
}

/// The axes of a register tile, by range number, with how much of each is in it.
struct Tile {
    /// The axis of the vector lanes and their number.
    lanes: (UOp, usize),
    /// Further copies of outputs.
    copies: Vec<(UOp, usize)>,
    /// Machine loads for one operation on one element.
    cost: f64,
}

/// A kernel with one nest of reduces that load from several places: lanes along one axis, and a
/// tile of outputs that share what they load. The tile is the one with the fewest loads for the
/// work whose accumulators fit in registers. With it come the arguments that should be copied.
fn tile(k: &Kernel, target: &Target) -> Option<(Kernel, Vec<usize>)> {
    let order = k.ast.toposort();
    let work = |u: &UOp| -> f64 { u.src()[1..].iter().map(|r| extent(r) as f64).product() };
    let reduces: Vec<&UOp> = order.iter().filter(|u| u.op() == Op::Reduce).collect();
    let main = *reduces.iter().max_by(|a, b| work(a).total_cmp(&work(b)))?;
    // Others beside it are fine if they are small, or loop with it.
    if reduces.iter().any(|u| u.src()[1..] != main.src()[1..] && work(u) * 8.0 > work(main)) {
        return None;
    }
    let (all, _) = kernel::accesses(&k.ast);
    let body = main.src()[0].toposort();
    let loads: Vec<&kernel::Access> =
        all.iter().filter(|a| a.node.op() == Op::Load && body.contains(&a.node)).collect();
    if loads.len() < 2 {
        return None;
    }
    let axes = k.axes();
    let small: Vec<bool> = loads.iter().map(|l| packed::is_worth(&axes, l, target)).collect();
    if let Some(tiled) = gated::tile(k, main, &loads, &small, target) {
        return Some(tiled);
    }
    let most_lanes = (target.vector_bytes / 4).max(2);
    // Some of the registers are left to what is loaded. C has no operation on vectors that
    // multiplies and adds, and clang does not find so many of them again.
    let most = if target.name == "C" { 20 } else { 25 };
    let budget = if target.vector_bytes >= 64 { most } else { 10 };
    // Copies along an axis that the reduce does not depend on would be copies of the same.
    let is_output = |r: &UOp| is_output(r) && main.uses_range(r.range_id());
    let outputs: Vec<&UOp> = axes.iter().filter(|r| is_output(r)).collect();
    let steps = work(main);
    let uses: Vec<Vec<bool>> = outputs
        .iter()
        .map(|r| loads.iter().map(|l| l.node.uses_range(r.range_id())).collect())
        .collect();
    let mut best: Option<Tile> = None;
    for v in axes.iter().filter(|r| is_output(r) || main.src()[1..].contains(r)) {
        let Some(lanes) = divisor(cut(v), most_lanes) else { continue };
        let parts: Vec<f64> = loads
            .iter()
            .zip(&small)
            .map(|(a, small)| load_cost(a, *small && is_output(v), v, lanes))
            .collect();
        // Lanes of a reduce are added up in the end; lanes of outputs may have to be stored one by
        // one.
        let ends: f64 = match v.range_kind() {
            AxisKind::Reduce => lanes as f64,
            _ => all
                .iter()
                .filter(|a| a.node.op() == Op::Store)
                .map(|a| store_cost(a, v, lanes))
                .sum(),
        };
        let sizes: Vec<usize> =
            outputs.iter().map(|r| if *r == v { cut(r) / lanes } else { cut(r) }).collect();
        each_tile(&sizes, budget, &mut |tile| {
            let count = |l: usize| {
                tile.iter().filter(|(axis, _)| uses[*axis][l]).map(|(_, n)| *n).product::<usize>()
                    as f64
            };
            let loaded: f64 = parts.iter().enumerate().map(|(l, p)| count(l) * p).sum();
            let copies = tile.iter().map(|(_, n)| *n).product::<usize>() as f64;
            let cost = (loaded / copies + 1.0 + ends / steps) / lanes as f64;
            if best.as_ref().is_none_or(|t| cost < t.cost) {
                let copies = tile.iter().map(|(axis, n)| (outputs[*axis].clone(), *n)).collect();
                best = Some(Tile { lanes: (v.clone(), lanes), copies, cost });
            }
        });
    }
    let best = best?;
    let copied = to_copy(&loads, &small, &best.lanes.0, best.lanes.1);
    let mut k = k.clone();
    let op =
        if best.lanes.0.range_kind() == AxisKind::Reduce { OptOp::Unroll } else { OptOp::Upcast };
    for (op, (r, amount)) in
        std::iter::once((op, best.lanes)).chain(best.copies.into_iter().map(|c| (OptOp::Upcast, c)))
    {
        // What is left of an axis keeps its number.
        let axis = k.axes().iter().position(|x| x.range_id() == r.range_id())?;
        k = k.apply(&Opt::new(op, axis, amount), target).ok()?;
    }
    Some((k, copied))
}

/// Machine loads for one load of lanes along an axis. Lanes that are loaded one by one must also be
/// put together, unless the input is copied first.
pub(super) fn load_cost(load: &kernel::Access, copied: bool, axis: &UOp, lanes: usize) -> f64 {
    match load.parts(axis, lanes) {
        n if n > 1 && !copied => n as f64 * if load.is_masked(axis) { GUARDED_LANE } else { LANE },
        _ => 1.0,
    }
}

/// The same for a store.
fn store_cost(store: &kernel::Access, axis: &UOp, lanes: usize) -> f64 {
    match store.parts(axis, lanes) {
        1 => 1.0,
        n => n as f64 * STORED_LANE,
    }
}

/// The arguments that lanes along an output axis need in another order.
pub(super) fn to_copy(
    loads: &[&kernel::Access],
    small: &[bool],
    axis: &UOp,
    lanes: usize,
) -> Vec<usize> {
    let apart = loads
        .iter()
        .zip(small)
        .filter(|(l, small)| is_output(axis) && **small && l.parts(axis, lanes) > 1);
    apart.filter_map(|(l, _)| slot(&l.node)).collect()
}

/// Of a tile: an axis by its place, and how much of it.
type Part = (usize, usize);

/// Calls `f` with every tile of at most three axes and `budget` copies.
fn each_tile(sizes: &[usize], budget: usize, f: &mut dyn FnMut(&[Part])) {
    fn more(
        sizes: &[usize],
        from: usize,
        budget: usize,
        tile: &mut Vec<Part>,
        f: &mut dyn FnMut(&[Part]),
    ) {
        f(tile);
        if tile.len() == 3 {
            return;
        }
        for axis in from..sizes.len() {
            for n in (2..=budget.min(8)).filter(|n| sizes[axis].is_multiple_of(*n)) {
                tile.push((axis, n));
                more(sizes, axis + 1, budget / n, tile, f);
                tile.pop();
            }
        }
    }
    more(sizes, 0, budget, &mut Vec::new(), f);
}

pub(super) fn try_apply(k: &mut Kernel, opt: Opt, target: &Target) -> bool {
    match k.apply(&opt, target) {
        Ok(next) => {
            *k = next;
            true
        }
        Err(_) => false,
    }
}

/// The largest power of two up to `most` that divides.
pub(super) fn divisor(size: usize, most: usize) -> Option<usize> {
    let mut a = most.next_power_of_two();
    while a >= 2 {
        if size.is_multiple_of(a) {
            return Some(a);
        }
        a /= 2;
    }
    None
}

fn shares_node(ast: &UOp, a: &UOp, b: &UOp) -> bool {
    ast.toposort()
        .iter()
        .any(|u| u.op() == Op::Load && u.uses_range(a.range_id()) && u.uses_range(b.range_id()))
}

/// The output axis with stride one in every store.
pub(super) fn fastest_output(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    (0..axes.len()).find(|&i| {
        matches!(axes[i].range_kind(), AxisKind::Global | AxisKind::Loop)
            && !is_symbolic(&axes[i])
            && k.ast.src().iter().all(|s| kernel::step(&s.src()[0].src()[1], &axes[i]) == Some(1))
    })
}

/// A reduce axis with stride one in some load.
pub(super) fn fastest_reduce(k: &Kernel) -> Option<usize> {
    let axes = k.axes();
    let order = k.ast.toposort();
    (0..axes.len()).find(|&i| {
        axes[i].range_kind() == AxisKind::Reduce
            && !is_symbolic(&axes[i])
            && order.iter().any(|u| {
                u.op() == Op::Load && kernel::step(&u.src()[0].src()[1], &axes[i]) == Some(1)
            })
    })
}

/// Elements that are computed and elements that are folded. Reductions side by side add up; one
/// inside another runs for each of its elements.
fn work(k: &Kernel, axes: &[UOp]) -> usize {
    let (folded, outputs): (Vec<&UOp>, Vec<&UOp>) =
        axes.iter().partition(|r| r.range_kind().is_reduce());
    let of_one = |u: &UOp| {
        let inside = u.src()[0].ranges();
        folded
            .iter()
            .filter(|r| inside.has(r.range_id()))
            .map(|r| extent(r))
            .fold(1usize, usize::saturating_mul)
    };
    let order = k.ast.toposort();
    let reduces =
        order.iter().filter(|u| u.op() == Op::Reduce).map(of_one).fold(0, usize::saturating_add);
    outputs.into_iter().map(extent).fold(reduces.max(1), usize::saturating_mul)
}

/// Divides the outermost output axis that can be divided.
pub(super) fn threads(k: &mut Kernel, target: &Target) {
    let axes = k.axes();
    if target.threads < 2 || work(k, &axes) < WORTH_THREADS {
        return;
    }
    for (i, r) in axes
        .iter()
        .enumerate()
        .filter(|(_, r)| matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop))
    {
        if let Some(n) = (2..=target.threads).rev().find(|n| extent(r).is_multiple_of(*n))
            && try_apply(k, Opt::new(OptOp::Thread, i, n), target)
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ScheduleItem;

    #[test]
    fn reductions_side_by_side_add_up() {
        let x = crate::Tensor::ones([2, 32, 64])
            .contiguous()
            .realize()
            .unwrap()
            .to("interp")
            .realize()
            .unwrap();
        let (a, b) = (x.i(0), x.i(1));
        let three = a.square().sum(1) + b.square().sum(1) * (&a * &b).sum(1);
        let Some(ScheduleItem::Kernel { ast, .. }) = three.schedule().unwrap().pop() else {
            panic!("a kernel")
        };
        let k = Kernel::new(ast);
        assert_eq!(work(&k, &k.axes()), 32 * 3 * 64);
        let product = a.matmul(&b.t());
        let Some(ScheduleItem::Kernel { ast, .. }) = product.schedule().unwrap().pop() else {
            panic!("a kernel")
        };
        let k = Kernel::new(ast);
        assert_eq!(work(&k, &k.axes()), 32 * 32 * 64);
    }
}
