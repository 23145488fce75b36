//! Tests of the bottom-up rebuild.

use crate::ir::{Op, UOp, rebuild_all};

#[test]
fn each_shared_node_is_rebuilt_once() {
    let shared = UOp::int(1) + UOp::int(2);
    let roots = [&shared * &shared, shared.lt(7)];
    let mut calls = 0;
    let new = rebuild_all(&roots, |u, src| {
        calls += 1;
        assert_eq!(u.src().len(), src.len());
        (*u == shared).then(|| UOp::int(5))
    });
    assert_eq!(new, [UOp::int(5) * UOp::int(5), UOp::int(5).lt(7)]);
    // 1, 2, their sum, the product, 7 and the comparison.
    assert_eq!(calls, 6);
}

#[test]
fn new_operands_reach_the_users() {
    let x = UOp::int(3);
    let graph = (&x + 1) * (&x + 1);
    let new = graph.rebuild(|u, src| match u.op() {
        Op::Add => Some(src[0].binary(Op::Max, &src[1])),
        _ if *u == x => Some(UOp::int(4)),
        _ => None,
    });
    let max = UOp::int(4).binary(Op::Max, 1i64);
    assert_eq!(new, &max * &max);
}

#[test]
fn an_unchanged_graph_stays_the_same_node() {
    let graph = (UOp::int(3) + 1) * 2;
    assert_eq!(graph.rebuild(|_, _| None), graph);
}
