//! Speed of the IR and the rewrite engine: creating nodes, walking them, and a pass in which no
//! rule matches.

use crate::bench::{Figure, clock};
use picograd::dtype::DType;
use picograd::ir::{Arg, AxisKind, Op, Src, ToSrc, UOp};
use picograd::rewrite::Rules;
use picograd::symbolic::{simplify, tables};
use std::hint::black_box;
use std::time::Duration;

/// Prints the figures.
pub fn figures() {
    let made = kernel(STEPS).toposort().len() as f64;
    let per_second = || made / best(|| time(|| kernel(STEPS))).as_secs_f64();
    Figure::new("intern_nodes", per_second(), "nodes/s").print();
    let graph = kernel(STEPS);
    let n = graph.toposort().len() as f64;
    Figure::new("intern_nodes_again", per_second(), "nodes/s").print();
    Figure::new("toposort", best(|| time(|| graph.toposort())).as_nanos() as f64 / n, "ns/node")
        .print();

    let rules = Rules::new(&tables());
    let simple = rules.fixpoint(&graph, &mut ());
    let n = simple.toposort().len() as f64;
    let idle = |f: &dyn Fn() -> UOp| best(|| time(f)).as_nanos() as f64 / n;
    Figure::new("fixpoint_idle", idle(&|| rules.fixpoint(&simple, &mut ())), "ns/node").print();
    Figure::new("once_idle", idle(&|| rules.once(&simple, &mut ())), "ns/node").print();
    simplify(&simple);
    Figure::new("simplify_simple", idle(&|| simplify(&simple)), "ns/node").print();
    Figure::new("simplify_conv_index", best(conv).as_nanos() as f64 / 1000.0, "us").print();
}

/// Returns the time of a function, without the drop of its result.
fn time<T>(f: impl FnOnce() -> T) -> Duration {
    let start = clock();
    let value = black_box(f());
    let took = clock() - start;
    drop(value);
    took
}

fn best(mut f: impl FnMut() -> Duration) -> Duration {
    (0..9).map(|_| f()).min().expect("nine runs")
}

/// Iterations of an unrolled loop; each creates eight nodes.
const STEPS: i64 = 25_000;

/// Loads, arithmetic, comparisons and selects over a few ranges, like an unrolled kernel. Nothing
/// in it can be simplified.
fn kernel(steps: i64) -> UOp {
    let buffer =
        UOp::new(Op::DefineGlobal, DType::F32, Src::new(), Arg::Global { slot: 0, len: 1 << 24 });
    let r: Vec<UOp> = (0..3).map(|i| UOp::range(64i64, i, AxisKind::Loop)).collect();
    let row = &r[0] * 4096i64 + &r[1] * 64i64;
    let inside = r[2].lt(8i64);
    let mut acc = UOp::constant(0.0, DType::F32);
    for i in 0..steps {
        let at = &row + (1 + i);
        let index = UOp::new(Op::Index, DType::F32, [buffer.clone(), at].to_src(), Arg::None);
        let load = UOp::new(Op::Load, DType::F32, [index].to_src(), Arg::None);
        let sum = acc + &load * 0.5f32;
        acc = inside.select(&sum, &load).binary(Op::Max, 0.25f32);
    }
    acc
}

/// Simplifies the index and the mask of a padded 3×3 convolution over a flattened output, like the
/// scheduler. The ranges have new ids each time, so that no cache has their facts.
fn conv() -> Duration {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(100);
    let id = NEXT.fetch_add(8, std::sync::atomic::Ordering::Relaxed);
    let r = |i: u32, n: i64| UOp::range(n, id % 60_000 + i, AxisKind::Loop);
    let (out, channel, ky, kx) = (r(0, 8 * 56 * 56), r(1, 64), r(2, 3), r(3, 3));
    time(|| {
        let (batch, y, x) = (&out / 3136i64, &(&out / 56i64) % 56i64, &out % 56i64);
        let (y, x) = (&y + &ky - 1i64, &x + &kx - 1i64);
        let valid = y.ge(0i64).and(y.lt(56i64)).and(x.ge(0i64)).and(x.lt(56i64));
        let flat = ((&batch * 64i64 + &channel) * 56i64 + &y) * 56i64 + &x;
        let again = &(&flat / 3136i64) * 3136i64 + &flat % 3136i64;
        [simplify(&flat), simplify(&again), simplify(&valid)]
    })
}
