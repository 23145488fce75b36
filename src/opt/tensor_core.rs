//! `TC`: a sum of products whose factors each depend on one of two output axes is computed by
//! tensor cores, as small products of matrices, each by a warp.
//!
//! The two output axes and the axis of the sum are split by the sizes of the core. Its threads
//! become two axes of the workgroup. The registers of the factors are ranges, which the product
//! closes and the pass `write_fragments` replaces; those of the outputs are stores of their own.
//! Other Opts apply to what remains of the three axes. The order matters: an axis that was upcast
//! by 8 before it is split has 8 adjacent elements in the same register of 8 products.

use super::apply::{Applied, OptRequest};
use super::{Kernel, OptOp, is_output};
use crate::dtype::DType;
use crate::ir::typed::Reduce;
use crate::ir::{
    Arg, AxisKind, Coordinate, Fold, Op, Src, TensorCore, UOp, next_range, rebuild_all,
};
use crate::kernel::extent;
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Applies `TC`.
pub(super) fn tensor_core(q: &OptRequest) -> Applied {
    q.check_unordered()?;
    let r = q.axis_of_constants()?;
    let mappings = mappings(q.kernel, r, q.target);
    let Some(mapping) = mappings.get(q.opt.amount) else {
        return Err(match mappings.len() {
            0 => format!(
                "axis {} is not the reduction axis of a sum of products that a tensor core of the \
                 target computes",
                q.opt.axis
            ),
            n => format!("the amount selects one of {n} mappings, from 0 on"),
        });
    };
    let threads = q.threads() * mapping.core.threads();
    if !q.target.grid || q.kernel.has(OptOp::NoLocals) || threads > q.target.local_max {
        return Err(format!(
            "no workgroup of {threads} threads: NOLOCALS forbids it, or the target has at most {}",
            q.target.local_max
        ));
    }
    Ok(build(&q.kernel.ast, mapping))
}

/// A mapping of a kernel to a tensor core: the core, the sums and the axes.
#[derive(Clone, Debug)]
pub(crate) struct TensorCoreMapping {
    pub core: &'static TensorCore,
    /// The sums, each with the factor that depends on `m` and the one that depends on `n`.
    pub sums: Vec<(UOp, [UOp; 2])>,
    pub m: UOp,
    pub n: UOp,
    pub k: UOp,
}

/// Returns the mappings of a reduction axis to tensor cores, in a fixed order: by core, then by the
/// axis of its rows, then by that of its columns.
pub(crate) fn mappings(kernel: &Kernel, k: &UOp, target: &Target) -> Vec<TensorCoreMapping> {
    let fits = |w: &TensorCoreMapping| {
        [&w.m, &w.n, &w.k].iter().zip(w.core.dims).all(|(r, size)| extent(r).is_multiple_of(size))
    };
    all_mappings(kernel, k, target).into_iter().filter(fits).collect()
}

/// Returns all mappings, including those whose axes have extents that are not multiples of the
/// core's sizes.
pub(crate) fn all_mappings(kernel: &Kernel, k: &UOp, target: &Target) -> Vec<TensorCoreMapping> {
    if target.tensor_cores.is_empty() || k.range_kind() != AxisKind::Reduce {
        return Vec::new();
    }
    let order = kernel.ast.toposort();
    let sums: Vec<&UOp> =
        order.iter().filter(|u| u.op() == Op::Reduce && u.closed_ranges().contains(k)).collect();
    let other_stores = kernel.ast.src().iter().any(|s| s.op() != Op::Store);
    if sums.is_empty()
        || other_stores
        || order.iter().any(|u| u.op() == Op::Wmma)
        || kernel.reduces_what_it_writes()
    {
        return Vec::new();
    }
    let closed = |r: &UOp| kernel.ast.src().iter().all(|s| s.closed_ranges().contains(r));
    let outputs: Vec<UOp> =
        kernel.axes().into_iter().filter(|r| is_output(r) && closed(r)).collect();
    let mut mappings = Vec::new();
    for core in target.tensor_cores {
        let Some(factors) =
            sums.iter().map(|u| factors(u, core)).collect::<Option<Vec<[UOp; 2]>>>()
        else {
            continue;
        };
        for m in &outputs {
            for n in outputs.iter().filter(|r| *r != m) {
                // One factor depends on m and not on n, the other one on n and not on m.
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
                mappings.push(TensorCoreMapping {
                    core,
                    sums,
                    m: m.clone(),
                    n: n.clone(),
                    k: k.clone(),
                });
            }
        }
    }
    mappings
}

/// Returns the factors of a sum of products, in the dtype that the core takes.
fn factors(sum: &UOp, core: &TensorCore) -> Option<[UOp; 2]> {
    let Reduce { body: mut product, fold: Fold::Add, .. } = sum.as_reduce()? else { return None };
    // Past the end of a padded axis, both factors are zero if their loads are masked.
    if let (Op::Where, [_, x, other]) = (product.op(), product.src())
        && is_zero(other)
    {
        let zero = |f: &UOp| {
            let load = f.as_cast().map_or(f, |c| c.x).as_load();
            load.is_some_and(|l| l.place.mask.is_some() && l.alt.is_some_and(is_zero))
        };
        product = Some(x).filter(|x| x.src().iter().all(zero))?;
    }
    let factor = |f: &UOp| -> Option<UOp> {
        let f = match core.input == core.output {
            true => f,
            false => f.as_cast()?.x,
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

/// An axis that is split by a size of the core.
struct AxisSplit {
    /// The outer range, unless the core takes the whole axis.
    outer: Option<UOp>,
    size: i64,
}

impl AxisSplit {
    fn new(r: &UOp, size: usize) -> AxisSplit {
        let rest = extent(r) / size;
        AxisSplit {
            outer: (rest > 1).then(|| UOp::range(rest as i64, r.range_id(), r.range_kind())),
            size: size as i64,
        }
    }
    /// Returns the position on the axis of the element in a thread's first register.
    fn place(&self, threads: &[UOp; 2], c: &Coordinate) -> UOp {
        let outer = self.outer.as_ref().map_or(UOp::int(0), |outer| outer * self.size);
        threads
            .iter()
            .zip(c.lanes)
            .filter(|(_, step)| *step != 0)
            .fold(outer, |place, (r, step)| place + r * step)
    }
    /// Returns the position of the element in any register.
    fn at(&self, threads: &[UOp; 2], c: &Coordinate, register: usize) -> UOp {
        self.place(threads, c) + c.of_register(register)
    }
}

/// Returns the kernel whose sums a tensor core computes.
fn build(ast: &UOp, mapping: &TensorCoreMapping) -> UOp {
    let TensorCoreMapping { core, sums, m, n, k } = mapping;
    let order = ast.toposort();
    let next = next_range(&order);
    let lanes = [next, next + 1];
    let threads = [0, 1].map(|i| UOp::range(core.lanes[i] as i64, lanes[i], AxisKind::Local));
    let [cut_m, cut_n, cut_k] =
        [(m, 0), (n, 1), (k, 2)].map(|(r, i)| AxisSplit::new(r, core.dims[i]));
    // The registers of A along its rows, and those of A and B along the sum.
    let (down, along) = (core.a.row.run(), core.a.column.run());
    let register = |(_, count): (i64, usize), id| UOp::range(count as i64, id, AxisKind::Upcast);
    let registers = [register(down, next + 2), register(along, next + 3)];
    let row = |c: &Coordinate, cut: &AxisSplit| cut.place(&threads, c) + &registers[0] * down.0;
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
        let ranges = ends(sum.closed_ranges(), &[(k, &cut_k)]);
        match ranges.is_empty() {
            true => product,
            false => sum.retyped(held, std::iter::once(product).chain(ranges).collect::<Src>()),
        }
    };
    let products: FxHashMap<u64, UOp> = sums.iter().map(|s| (s.0.id(), product(s))).collect();
    // Each register of the result has stores of its own.
    let stores = (0..core.c.registers()).flat_map(|register| {
        rebuild_all(ast.src(), |u, src| {
            if let Some(p) = products.get(&u.id()) {
                Some(p.lane(register as u16))
            } else if u == m {
                Some(cut_m.at(&threads, &core.c.row, register))
            } else if u == n {
                Some(cut_n.at(&threads, &core.c.column, register))
            } else if u.op() == Op::Store {
                let (values, ranges) = u.values_and_ranges();
                let values = src[..values.len()].iter().cloned();
                let ranges = ends(ranges, &[(m, &cut_m), (n, &cut_n)]);
                let src = values.chain(ranges).chain(threads.iter().cloned());
                Some(u.with_src(src.collect::<Src>()))
            } else {
                None
            }
        })
    });
    simplify(&ast.with_src(stores.collect::<Src>()))
}

/// Returns the ranges that a store or a reduction closes after the split of axes.
fn ends(closed: &[UOp], cuts: &[(&UOp, &AxisSplit)]) -> Vec<UOp> {
    let end = |r: &UOp| match cuts.iter().find(|(cut, _)| *cut == r) {
        Some((_, cut)) => cut.outer.clone(),
        None => Some(r.clone()),
    };
    closed.iter().filter_map(end).collect()
}
