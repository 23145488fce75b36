//! Interning from many threads: equal structure is one node while a handle exists, and is freed
//! with the last one.

use crate::serial;
use picograd::Tensor;
use picograd::dtype::DType;
use picograd::ir::{Op, UOp};
use std::sync::Barrier;

const THREADS: usize = 8;

/// Checks that no more nodes live than before. There may be fewer: the thread of an earlier test
/// frees its thread-locals after it gave up its turn.
fn assert_freed(before: usize) {
    let live = UOp::live();
    assert!(live <= before, "{live} nodes, {before} before");
}

/// A graph with shared parts, determined by the seed.
fn graph(seed: i64, size: i64) -> UOp {
    (0..size).fold(UOp::int(seed), |x, i| (&x * (i + 2)) + (&x % (i + 3)))
}

#[test]
fn equal_structure_is_one_node() {
    let _guard = serial();
    let before = UOp::live();
    let start = Barrier::new(THREADS);
    let graphs: Vec<Vec<UOp>> = std::thread::scope(|s| {
        let work = || {
            start.wait();
            (0..200).map(|seed| graph(seed, 20)).collect()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| s.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for other in &graphs[1..] {
        assert_eq!(&graphs[0], other);
        assert!(graphs[0].iter().zip(other).all(|(a, b)| a.id() == b.id() && a.key() == b.key()));
    }
    drop(graphs);
    assert_freed(before);
}

#[test]
fn nodes_can_be_dropped_and_created_concurrently() {
    let _guard = serial();
    let before = UOp::live();
    let start = Barrier::new(THREADS);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                start.wait();
                for i in 0..20_000 {
                    // All threads create and drop the same few graphs, so nodes are freed and
                    // created again continually.
                    let (a, b) = (graph(i % 3, 3), graph(i % 3, 3));
                    assert_eq!(a, b);
                    assert_eq!(a.bounds(), b.bounds());
                }
            });
        }
    });
    assert_freed(before);
}

#[test]
fn nodes_are_freed_across_threads() {
    let _guard = serial();
    let before = UOp::live();
    let (send, receive) = std::sync::mpsc::channel::<UOp>();
    std::thread::scope(|s| {
        s.spawn(move || {
            for i in 0..50_000 {
                send.send(graph(i % 100, 4)).unwrap();
            }
        });
        for u in receive {
            assert_eq!(u.op(), Op::Add);
        }
    });
    assert_freed(before);
}

#[test]
fn different_nodes_are_not_equal() {
    let _guard = serial();
    let x = UOp::constant(1, DType::I32);
    assert_ne!(x, UOp::constant(1, DType::I64));
    assert_ne!(x, x.splat(4));
    assert_ne!(&x + 1i32, &x * 1i32);
    assert_ne!(UOp::constant(0.0, DType::F32), UOp::constant(-0.0, DType::F32));
    assert_eq!(UOp::constant(f64::NAN, DType::F32), UOp::constant(-f64::NAN, DType::F32));
}

/// Each function holds the previous tensor, so the last one holds all of them.
#[test]
fn dropping_a_chain_of_calls_does_not_recurse() {
    let _guard = serial();
    let before = UOp::live();
    let mut x = Tensor::new([1.0f32]).as_param();
    for _ in 0..20_000 {
        let held = x.clone();
        x = Tensor::call(&[&x], |x| Ok(&x[0] + 1.0), move |g, _| Ok(vec![g * &held])).unwrap();
    }
    drop(x);
    assert_freed(before);
}

#[test]
fn parameters_and_their_graphs_are_freed() {
    let _guard = serial();
    let step = || {
        let w = Tensor::new([1.0f32, 2.0]).as_param();
        let loss = w.square().exp().sum(..);
        loss.item::<f32>().unwrap();
        loss.backward();
        w.grad().unwrap().realize().unwrap();
    };
    // The first step leaves kernels in the caches.
    step();
    picograd::schedule::clear_cache();
    let before = UOp::live();
    (0..3).for_each(|_| step());
    picograd::schedule::clear_cache();
    assert_freed(before);
}
