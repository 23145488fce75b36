//! Tensor cores: a sum of products whose factors each depend on one of two output axes is made of
//! small products of matrices, each by a warp.
//!
//! The two output axes and the axis of the sum are cut by the sizes of the core. Its threads become
//! two axes of the workgroup. The registers of the factors are ranges, which the product closes and
//! lowering writes out; those of the outputs are stores of their own. All that is left of the three
//! axes can be optimised further, and it matters what was done before: an axis that was upcast by 8
//! and then cut has 8 neighbours in memory in the same register of 8 products.

use super::heuristic::fastest_output;
use super::{Kernel, Opt, OptOp, axis_of, extent, is_output, is_symbolic};
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Coordinate, Fold, Op, Src, TensorCore, UOp, next_range};
use crate::kernel::closing;
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// A way to use a tensor core: which, for which sums, and on which axes.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub core: &'static TensorCore,
    /// The sums, each with the factor that depends on `m` and the one that depends on `n`.
    pub sums: Vec<(UOp, [UOp; 2])>,
    pub m: UOp,
    pub n: UOp,
    pub k: UOp,
}

/// The ways in which a reduce axis can be that of a tensor core, in a fixed order: by core, then by
/// the axis of its rows, then by that of its columns.
pub(super) fn ways(kernel: &Kernel, k: &UOp, target: &Target) -> Vec<Way> {
    let fits = |w: &Way| {
        [&w.m, &w.n, &w.k].iter().zip(w.core.dims).all(|(r, size)| extent(r).is_multiple_of(size))
    };
    pairs(kernel, k, target).into_iter().filter(fits).collect()
}

/// The same, also where the sizes of the axes are no multiples of the core's.
fn pairs(kernel: &Kernel, k: &UOp, target: &Target) -> Vec<Way> {
    if target.tensor_cores.is_empty() || k.range_kind() != AxisKind::Reduce {
        return Vec::new();
    }
    let order = kernel.ast.toposort();
    let sums: Vec<&UOp> =
        order.iter().filter(|u| u.op() == Op::Reduce && u.src()[1..].contains(k)).collect();
    let other_stores = kernel.ast.src().iter().any(|s| s.op() != Op::Store);
    if sums.is_empty()
        || other_stores
        || order.iter().any(|u| u.op() == Op::Wmma)
        || kernel.folds_what_it_writes()
    {
        return Vec::new();
    }
    let closed = |r: &UOp| kernel.ast.src().iter().all(|s| s.src()[2..].contains(r));
    let outputs: Vec<UOp> =
        kernel.axes().into_iter().filter(|r| is_output(r) && closed(r)).collect();
    let mut ways = Vec::new();
    for core in target.tensor_cores {
        let Some(factors) =
            sums.iter().map(|u| factors(u, core)).collect::<Option<Vec<[UOp; 2]>>>()
        else {
            continue;
        };
        for m in &outputs {
            for n in outputs.iter().filter(|r| *r != m) {
                // The factor that depends on m and not on n, and the other way round.
                let uses = |f: &UOp, yes: &UOp, no: &UOp| {
                    f.uses_range(yes.range_id())
                        && !f.uses_range(no.range_id())
                        && f.uses_range(k.range_id())
                };
                let sided = |[x, y]: &[UOp; 2]| {
                    [[x, y], [y, x]]
                        .into_iter()
                        .find(|[a, b]| uses(a, m, n) && uses(b, n, m))
                        .map(|[a, b]| [a.clone(), b.clone()])
                };
                let Some(sided) = factors.iter().map(sided).collect::<Option<Vec<[UOp; 2]>>>()
                else {
                    continue;
                };
                let sums = sums.iter().map(|u| (*u).clone()).zip(sided).collect();
                ways.push(Way { core, sums, m: m.clone(), n: n.clone(), k: k.clone() });
            }
        }
    }
    ways
}

/// The factors of a sum of products, in the dtype that the core takes.
fn factors(sum: &UOp, core: &TensorCore) -> Option<[UOp; 2]> {
    let Arg::Reduce { fold: Fold::Add, .. } = sum.arg() else { return None };
    let mut product = &sum.src()[0];
    // Past the end of an axis that was made longer both factors are zero, if they are what loads
    // give there.
    if let (Op::Where, [_, x, other]) = (product.op(), product.src())
        && is_zero(other)
    {
        let zero = |f: &UOp| {
            let load = if f.op() == Op::Cast { &f.src()[0] } else { f };
            load.op() == Op::Load
                && load.src()[0].src().len() == 3
                && load.src().get(1).is_some_and(is_zero)
        };
        product = Some(x).filter(|x| x.src().iter().all(zero))?;
    }
    let factor = |f: &UOp| -> Option<UOp> {
        let f = match core.input == core.output {
            true => f,
            false => Some(f).filter(|f| f.op() == Op::Cast).map(|f| &f.src()[0])?,
        };
        let right =
            f.dtype().scalar == core.input && !f.toposort().iter().any(|u| u.op() == Op::Reduce);
        right.then(|| f.clone())
    };
    match (product.op(), product.src()) {
        (Op::Mul, [x, y])
            if sum.dtype().scalar == core.output
                && sum.src().iter().all(|s| s.dtype().lanes == 1) =>
        {
            Some([factor(x)?, factor(y)?])
        }
        _ => None,
    }
}

fn is_zero(u: &UOp) -> bool {
    u.as_const().is_some_and(|c| c.is_zero())
}

/// An axis that is cut by a size of the core.
struct Cut {
    /// What is left of it, if anything.
    outer: Option<UOp>,
    size: i64,
}

impl Cut {
    fn new(r: &UOp, size: usize) -> Cut {
        let rest = extent(r) / size;
        Cut {
            outer: (rest > 1).then(|| UOp::range(rest as i64, r.range_id(), r.range_kind())),
            size: size as i64,
        }
    }
    /// The place on the axis of what a thread holds in its first register.
    fn place(&self, threads: &[UOp; 2], c: &Coordinate) -> UOp {
        let outer = self.outer.as_ref().map_or(UOp::int(0), |outer| outer * self.size);
        threads
            .iter()
            .zip(c.lanes)
            .filter(|(_, step)| *step != 0)
            .fold(outer, |place, (r, step)| place + r * step)
    }
    /// The same in any of them.
    fn at(&self, threads: &[UOp; 2], c: &Coordinate, register: usize) -> UOp {
        self.place(threads, c) + c.of_register(register)
    }
}

/// The kernel with its sums made by a tensor core.
pub(super) fn apply(ast: &UOp, way: &Way) -> UOp {
    let Way { core, sums, m, n, k } = way;
    let order = ast.toposort();
    let next = next_range(&order);
    let lanes = [next, next + 1];
    let threads = [0, 1].map(|i| UOp::range(core.lanes[i] as i64, lanes[i], AxisKind::Local));
    let [cut_m, cut_n, cut_k] = [(m, 0), (n, 1), (k, 2)].map(|(r, i)| Cut::new(r, core.dims[i]));
    // The registers of A along its rows, and those of A and B along the sum.
    let (down, along) = (core.a.row.run(), core.a.column.run());
    let registers = [down, along]
        .into_iter()
        .zip(next + 2..)
        .map(|((_, count), id)| UOp::range(count as i64, id, AxisKind::Upcast));
    let registers: Vec<UOp> = registers.collect();
    let row = |c: &Coordinate, cut: &Cut| cut.place(&threads, c) + &registers[0] * down.0;
    let step = |c: &Coordinate| cut_k.place(&threads, c) + &registers[1] * along.0;
    let element = |x: &UOp, places: [(&UOp, UOp); 2]| {
        x.substitute(&places.into_iter().map(|(r, v)| (r.clone(), v)).collect())
    };
    let held = DType { scalar: core.output, lanes: core.c.registers() as u16 };
    let product = |(sum, [x, y]): &(UOp, [UOp; 2])| -> UOp {
        let a = element(x, [(m, row(&core.a.row, &cut_m)), (k, step(&core.a.column))]);
        let b = element(y, [(k, step(&core.b.row)), (n, cut_n.place(&threads, &core.b.column))]);
        let src = [a, b, UOp::constant(0.0, held)].into_iter().chain(registers.iter().cloned());
        let product = UOp::new(Op::Wmma, held, src.collect::<Src>(), Arg::Wmma { core, lanes });
        let ranges = ends(&sum.src()[1..], &[(k, &cut_k)]);
        match ranges.is_empty() {
            true => product,
            false => UOp::new(
                Op::Reduce,
                held,
                std::iter::once(product).chain(ranges).collect::<Src>(),
                sum.arg().clone(),
            ),
        }
    };
    let products: FxHashMap<u64, UOp> = sums.iter().map(|s| (s.0.id(), product(s))).collect();
    // What each register of the result is for is computed and stored on its own.
    let stores = (0..core.c.registers()).flat_map(|register| {
        let mut done: FxHashMap<u64, UOp> = FxHashMap::default();
        for u in &order {
            let new = if let Some(p) = products.get(&u.id()) {
                p.lane(register as u16)
            } else if u == m {
                cut_m.at(&threads, &core.c.row, register)
            } else if u == n {
                cut_n.at(&threads, &core.c.column, register)
            } else if u.op() == Op::Store {
                let values = u.src()[..closing(u)].iter().map(|s| done[&s.id()].clone());
                let ranges = ends(&u.src()[closing(u)..], &[(m, &cut_m), (n, &cut_n)]);
                u.with_src(values.chain(ranges).chain(threads.iter().cloned()).collect::<Src>())
            } else {
                u.with_src(u.src().iter().map(|s| done[&s.id()].clone()).collect::<Src>())
            };
            done.insert(u.id(), new);
        }
        ast.src().iter().map(|s| done[&s.id()].clone()).collect::<Vec<UOp>>()
    });
    simplify(&ast.with_src(stores.collect::<Src>()))
}

/// What a store or a reduce closes when axes are cut.
fn ends(closed: &[UOp], cuts: &[(&UOp, &Cut)]) -> Vec<UOp> {
    let end = |r: &UOp| match cuts.iter().find(|(cut, _)| *cut == r) {
        Some((_, cut)) => cut.outer.clone(),
        None => Some(r.clone()),
    };
    closed.iter().filter_map(end).collect()
}

/// Outputs of a warp along m and n, at most: more do not fit into its registers.
const TILE: [usize; 2] = [64, 64];
/// Warps of a workgroup along m and n, at most.
const WARPS: [usize; 2] = [2, 2];
/// Warps below which most of a GPU would idle, so that smaller tiles are better.
const MANY_WARPS: usize = 512;

/// Good optimisations for a kernel whose main sum a tensor core can make; none where there is no
/// such core, or where most of its work would be for nothing.
pub(super) fn heuristic(kernel: &Kernel, main: &UOp, target: &Target) -> Option<Kernel> {
    if target.tensor_cores.is_empty() {
        return None;
    }
    // The longest axis, and of the outputs those that are longest and run along memory.
    let along = fastest_output(kernel).map(|i| kernel.axes()[i].clone());
    let all = main.src()[1..].iter().flat_map(|k| pairs(kernel, k, target));
    let way = all.max_by_key(|w| {
        // With more loads on their way at a time less is waited for.
        let long = extent(&w.k).is_multiple_of(w.core.dims[2]).then_some(w.core.dims[2]);
        let size = extent(&w.m).saturating_mul(extent(&w.n));
        (
            extent(&w.k),
            extent(&w.m).min(64),
            Some(&w.n) == along.as_ref(),
            size,
            long,
            Reverse(w.core.dims[2]),
        )
    })?;
    let axes = [&way.m, &way.n, &way.k];
    let padded = [0, 1, 2].map(|i| extent(axes[i]).next_multiple_of(way.core.dims[i]));
    let waste: f64 = axes.iter().zip(padded).map(|(r, p)| p as f64 / extent(r) as f64).product();
    if waste > 2.0 {
        return None;
    }
    let mut k = kernel.clone();
    let apply = |k: &mut Kernel, op: OptOp, r: &UOp, amount: usize| -> Option<()> {
        if amount > 1 {
            let axis = k
                .axes()
                .iter()
                .position(|x| x.range_id() == r.range_id() && x.range_kind() == r.range_kind())?;
            *k = k.apply(&Opt::new(op, axis, amount), target).ok()?;
        }
        Some(())
    };
    for (i, r) in axes.iter().enumerate().filter(|(i, r)| padded[*i] != extent(r) || is_symbolic(r))
    {
        apply(&mut k, OptOp::PadTo, r, way.core.dims[i])?;
    }
    // What a warp computes, as numbers of products along m and n. The longer side is made shorter
    // first.
    let most = |i: usize| divisor(padded[i] / way.core.dims[i], TILE[i] / way.core.dims[i]);
    let mut tile = [most(0), most(1)];
    let others: usize =
        kernel.axes().iter().filter(|r| is_output(r) && !axes.contains(r)).map(extent).product();
    let warps = |t: [usize; 2]| {
        others * (padded[0] / way.core.dims[0] / t[0]) * (padded[1] / way.core.dims[1] / t[1])
    };
    while warps(tile) < MANY_WARPS && tile != [1, 1] {
        let longer = usize::from(
            tile[1] * way.core.dims[1] >= tile[0] * way.core.dims[0] && tile[1] > 1 || tile[0] == 1,
        );
        tile[longer] /= 2;
    }
    // Before the axes are cut, so that what a thread holds of each lies side by side.
    for (i, r) in axes[..2].iter().enumerate() {
        apply(&mut k, OptOp::Upcast, r, tile[i])?;
    }
    let axis = axis_of(&k, &way.k)?;
    let same = |w: &Way| {
        w.core == way.core && [&w.m, &w.n].map(UOp::range_id) == [&way.m, &way.n].map(UOp::range_id)
    };
    let which = ways(&k, &k.axes()[axis], target).iter().position(same)?;
    k = k.apply(&Opt::new(OptOp::Tc, axis, which), target).ok()?;
    for (i, r) in axes[..2].iter().enumerate() {
        if let Some(axis) = axis_of(&k, r) {
            let amount = divisor(extent(&k.axes()[axis]), WARPS[i]);
            apply(&mut k, OptOp::Local, r, amount)?;
        }
    }
    // What is guarded is loaded one by one, which takes too many registers.
    if let Some(axis) =
        axis_of(&k, &way.k).filter(|axis| waste == 1.0 && extent(&k.axes()[*axis]) >= 4)
    {
        k = k.apply(&Opt::new(OptOp::Prefetch, axis, 0), target).ok()?;
    }
    Some(k)
}

/// The largest power of two up to `most` that divides.
fn divisor(size: usize, most: usize) -> usize {
    (1 << size.trailing_zeros().min(most.ilog2())).max(1)
}
