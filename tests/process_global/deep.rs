//! A chain of a million ops passes through every graph walk in linear time, on a stack of 256 KiB,
//! and is freed completely.

use crate::serial;
use picograd::dtype::DType;
use picograd::ir::{Arg, DeviceName, Op, Src, UOp, parse, print, print_part};
use picograd::rewrite::Rules;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

picograd::rules! {
    NOWHERE |u, cx: ()| {
        test_mul_zero: Mul[_, 0] => 0i64;
    }
}
picograd::rules! {
    EVERYWHERE |u, cx: ()| {
        test_add_to_xor: Add(x, y) => x ^ y;
    }
}

fn on_a_small_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let thread =
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(s, f).expect("a thread");
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

fn param(slot: usize) -> UOp {
    UOp::new(
        Op::Param,
        DType::I32,
        Src::new(),
        Arg::Param { slot, len: 4, device: DeviceName::new("CPU") },
    )
}

/// `x + y + y + …`, with two uses of each node, so that a walk without a memo takes exponential
/// time.
fn chain(x: UOp, n: usize) -> UOp {
    (0..n).fold(x, |x, i| if i % 2 == 0 { &x + &x } else { x + 1i32 })
}

fn everything(n: usize) -> Duration {
    let before = UOp::live();
    let start = Instant::now();
    let (x, y) = (param(0), param(1));
    let root = chain(x.clone(), n);
    assert_eq!(root.toposort().len(), n + 2);
    assert_eq!(root.shape().as_slice(), [4]);
    assert_eq!(root.bounds(), (i32::MIN as i128, i32::MAX as i128));
    assert!(root.ranges().is_empty());

    assert_eq!(Rules::new(&[&NOWHERE]).fixpoint(&root, &mut ()), root);
    let rules = Rules::new(&[&EVERYWHERE]);
    let xors = rules.fixpoint(&root, &mut ());
    assert!(xors.toposort().iter().all(|u| u.op() != Op::Add));
    assert_eq!(rules.once(&root, &mut ()), xors);

    let map = FxHashMap::from_iter([(x, y.clone())]);
    let other = root.substitute(&map);
    assert_eq!(other, chain(y, n));

    assert_eq!(print_part(&root, 10).lines().count(), 11);
    assert!(format!("{root:?}").len() < 250);

    drop((root, other, xors, map));
    assert!(UOp::live() <= before);
    start.elapsed()
}

#[test]
fn graphs_of_a_million_ops_take_linear_time() {
    let _guard = serial();
    on_a_small_stack(|| {
        everything(1000);
        // Four times the work, with a margin for cache effects. A quadratic walk would take sixteen
        // times as long; a busy machine gets another try.
        let linear = (0..3).any(|_| everything(250_000) * 8 > everything(1_000_000));
        assert!(
            linear,
            "a million ops take more than eight times as long as a quarter of a million"
        );
    });
}

#[test]
fn a_node_may_have_a_hundred_thousand_operands() {
    let _guard = serial();
    on_a_small_stack(|| {
        let before = UOp::live();
        let x = param(0);
        let wide = UOp::sink((0..100_000i32).map(|i| &x + i).collect::<Src>());
        assert!(wide.shape().is_empty() && wide.ranges().is_empty());
        wide.bounds();
        assert_eq!(Rules::new(&[&EVERYWHERE]).fixpoint(&wide, &mut ()).src().len(), 100_000);
        assert_eq!(parse(&print(&wide)).as_ref(), Ok(&wide));
        drop((x, wide));
        assert!(UOp::live() <= before);
    });
}
