//! Tests of the bounds proof: accesses that are proven, and accesses that must not be.

use super::*;
use crate::verify::in_bounds;

fn loops(id: u32, extent: i32) -> UOp {
    range(id, i32c(extent), AxisKind::Loop)
}
/// Returns the program of a store inside the loops that its index uses.
fn put(buf: &UOp, idx: &UOp) -> Vec<UOp> {
    let mut list = buf.at(idx).store(f32c(0.0), &[]).toposort();
    let ends: Vec<UOp> =
        list.iter().rev().filter(|u| u.op() == Op::Range).map(UOp::end_range).collect();
    list.extend(ends);
    list
}
fn get(buf: &UOp, idx: &UOp, valid: &UOp) -> Vec<UOp> {
    let alt = UOp::constant(0.0, buf.dtype());
    let mut list =
        node(Op::Load, buf.dtype(), [masked(buf, idx, valid), alt].to_src(), Arg::None).toposort();
    let ends: Vec<UOp> =
        list.iter().rev().filter(|u| u.op() == Op::Range).map(UOp::end_range).collect();
    list.extend(ends);
    list
}

#[test]
fn indices_stay_in_bounds() {
    let x = UOp::define_global(0, 12, DType::F32);
    let (i, j) = (loops(0, 3), loops(1, 4));
    in_bounds(&put(&x, &(&(&i * 4i32) + &j))).unwrap();
    refused(
        in_bounds(&put(&x, &(&(&i * 4i32) + &(&j + 1i32)))),
        "its buffer of 12 (proven: elements 1 to 12)",
    );
    refused(
        in_bounds(&put(&x, &(&i + -1i32))),
        "an access is inside its buffer of 12 (proven: elements -1 to 1)",
    );
    in_bounds(&put(&x, &(&(&i * 4i32) + &j).binary(Op::CMod, 12i32))).unwrap();
    // Lanes count.
    let v = |at: i32| {
        vec![
            x.clone(),
            x.at(i32c(at)),
            node(Op::Load, DType::F32.vec(4), [x.at(i32c(at))].to_src(), Arg::None),
        ]
    };
    in_bounds(&v(8)).unwrap();
    refused(in_bounds(&v(9)), "inside its buffer of 12 (proven: elements 9 to 12)");
    // A loop without iterations accesses nothing.
    in_bounds(&put(&UOp::define_global(0, 0, DType::F32), &loops(0, 0))).unwrap();
    refused(in_bounds(&put(&UOp::define_global(0, 0, DType::F32), &i32c(0))), "inside its buffer");
}

#[test]
fn masks_of_lanes_bound_each_lane() {
    let x = UOp::define_global(0, 13, DType::F32);
    let i = loops(0, 4);
    let numbers = UOp::vectorize((0..4).map(i32c).collect::<Src>());
    // Lane `l` is accessed where `4 * i + l < end`.
    let before = |end: i32| numbers.binary(Op::Lt, (&(&i * -4i32) + end).splat(4));
    let load = |mask: &UOp| {
        let alt = UOp::constant(0.0, DType::F32.vec(4));
        let src = [masked(&x, &(&i * 4i32), mask), alt].to_src();
        let mut list = node(Op::Load, DType::F32.vec(4), src, Arg::None).toposort();
        list.push(i.end_range());
        list
    };
    in_bounds(&load(&before(13))).unwrap();
    refused(in_bounds(&load(&before(14))), "inside its buffer of 13 (proven: elements 0 to 13)");
    // One more condition per lane does not hide the first.
    let odd = UOp::vectorize((0..4).map(|l| i32c(l % 2)).collect::<Src>());
    let is_odd = odd.binary(Op::Lt, UOp::constant(1i64, DType::I32.vec(4)));
    refused(in_bounds(&load(&is_odd)), "inside its buffer");
}

#[test]
fn the_extent_of_a_shorter_last_chunk_is_a_bound() {
    let chunk = UOp::special(SpecialKind::Thread, 0, 4, DType::I32);
    let extent = |len: i32, size: i32| i32c(len).binary(Op::Min, i32c(size) - &chunk * len);
    let at = |len: i32, size: i32| {
        let r = range(0, extent(len, size), AxisKind::Loop);
        &chunk * len + r
    };
    let x = UOp::define_global(0, 10, DType::F32);
    in_bounds(&put(&x, &at(3, 10))).unwrap();
    refused(in_bounds(&put(&x, &at(3, 11))), "inside its buffer of 10");
    refused(in_bounds(&put(&x, &(at(3, 10) + 1i32))), "inside its buffer of 10");
    // Rows of seven elements, the last of which is at 69.
    let j = loops(1, 7);
    let rows = UOp::define_global(0, 70, DType::F32);
    in_bounds(&put(&rows, &(at(3, 10) * 7i32 + &j))).unwrap();
    refused(in_bounds(&put(&rows, &(at(3, 10) * 7i32 + &j + 1i32))), "inside its buffer of 70");
    // Two axes that are one in memory.
    in_bounds(&put(&x, &(at(3, 10).binary(Op::CDiv, 2i32) * 2i32 + 1i32))).unwrap();
}

#[test]
fn masks_bound_indices() {
    let x = UOp::define_global(0, 12, DType::F32);
    let (i, j) = (loops(0, 5), loops(1, 6));
    // A padded image: rows 1..4 and columns 1..5 are inside, and both conditions are needed.
    let at = &(&(&i * 4i32) + &j) + -5i32;
    let (row, col) = (i.ge(1i32).and(i.lt(4i32)), j.ge(1i32).and(j.lt(5i32)));
    in_bounds(&get(&x, &at, &row.and(&col))).unwrap();
    refused(in_bounds(&get(&x, &at, &row)), "inside its buffer");
    refused(in_bounds(&get(&x, &at, &col)), "inside its buffer");
    refused(in_bounds(&get(&x, &at, &i.lt(4i32).and(&col))), "inside its buffer");
    // A condition on a sum, with the index a multiple of the sum beside something else.
    let sum = &i + &(&j * 2i32);
    let twice = &(&i * 2i32) + &(&j * 4i32);
    in_bounds(&get(&x, &twice, &sum.lt(6i32))).unwrap();
    refused(
        in_bounds(&get(&x, &twice, &sum.lt(7i32))),
        "inside its buffer of 12 (proven: elements 0 to 12)",
    );
    // Conditions on the shifted coordinates themselves.
    let (y, z) = (&i + -1i32, &j + -1i32);
    let inside = y.ge(0i32).and(y.lt(3i32)).and(z.ge(0i32)).and(z.lt(4i32));
    in_bounds(&get(&x, &(&(&y * 4i32) + &z), &inside)).unwrap();
    in_bounds(&get(&x, &at, &inside)).unwrap();
    // Two coordinates that are sums of several loops, their four bounds in any order.
    let (a, b, c, d) = (loops(2, 3), loops(3, 2), loops(4, 4), loops(5, 2));
    let (y, z) = (&(&a - &b) + &loops(6, 2), &(&c - &d) + &loops(7, 2));
    let bounds = [y.ge(0i32), y.lt(3i32), z.ge(0i32), z.lt(4i32)];
    let flat =
        &(&(&(&(&(&a * 4i32) - &(&b * 4i32)) + &(&loops(6, 2) * 4i32)) + &c) - &d) + &loops(7, 2);
    for order in
        [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 2, 3, 0], [2, 1, 0, 3], [3, 0, 2, 1]]
    {
        let all = order[1..].iter().fold(bounds[order[0]].clone(), |all, i| all.and(&bounds[*i]));
        in_bounds(&get(&x, &flat, &all)).unwrap();
        let some = order[2..].iter().fold(bounds[order[1]].clone(), |all, i| all.and(&bounds[*i]));
        refused(in_bounds(&get(&x, &flat, &some)), "inside its buffer");
    }
    // Bounds of parts of the coordinates beside those of the coordinates: the tighter ones decide.
    let part = |p: &UOp, lo: i32, hi: i32| p.ge(lo).and(p.lt(hi));
    let (ab, cd) = (part(&(&a - &b), -1, 3), part(&(&c - &d), -1, 3));
    in_bounds(&get(&x, &flat, &ab.and(&cd).and(part(&y, 0, 3)).and(part(&z, 0, 4)))).unwrap();
    in_bounds(&get(&x, &flat, &part(&z, 0, 4).and(part(&y, 0, 3)).and(&cd).and(&ab))).unwrap();
    refused(in_bounds(&get(&x, &flat, &ab.and(&cd).and(part(&y, 0, 3)))), "inside its buffer");
    // A bound inside a quotient.
    let q = (&i * 30i32).binary(Op::CDiv, 8i32);
    in_bounds(&get(&x, &q, &i.lt(4i32))).unwrap();
    refused(in_bounds(&get(&x, &q, &i.lt(5i32))), "inside its buffer");
    // Equal to a literal, the literal on the left, and never.
    in_bounds(&get(&x, &(&i * 3i32), &i.equals(3i32))).unwrap();
    in_bounds(&get(&x, &(&(&i * 3i32) + -3i32), &i32c(0).lt(&i))).unwrap();
    in_bounds(&get(&x, &(&i + 100i32), &i.lt(0i32))).unwrap();
    // Or says nothing of either side.
    refused(in_bounds(&get(&x, &(&i * 4i32), &i.lt(3i32).or(j.lt(1i32)))), "inside its buffer");
}

#[test]
fn conditions_bound_indices() {
    let x = UOp::define_global(0, 4, DType::F32);
    let l = special(SpecialKind::Local, 0, 8);
    let (c, at) = (l.lt(4i32), x.at(&l));
    let open = open_if(&c);
    let put = at.store(f32c(0.0), &[]);
    let head = [x.clone(), l.clone(), c, at.clone(), open.clone()];
    in_bounds(&[&head[..], &[put.clone(), end_if(&open)]].concat()).unwrap();
    // After the region the condition no longer holds.
    refused(
        in_bounds(&[&head[..], &[end_if(&open), put]].concat()),
        "inside its buffer of 4 (proven: elements 0 to 7)",
    );
}

#[test]
fn selects_bound_each_side() {
    let x = UOp::define_global(0, 4, DType::F32);
    let l = special(SpecialKind::Local, 0, 8);
    in_bounds(&put(&x, &l.lt(4i32).select(&l, &i32c(0)))).unwrap();
    in_bounds(&put(&x, &(l.lt(4i32).select(&l, &(&l + -4i32))))).unwrap();
    refused(in_bounds(&put(&x, &l.lt(5i32).select(&l, &i32c(0)))), "inside its buffer");
    refused(in_bounds(&put(&x, &l.lt(4i32).select(i32c(0), &l))), "inside its buffer");
}

#[test]
fn loaded_indices_need_masks() {
    let (x, ids) = (UOp::define_global(0, 10, DType::F32), UOp::define_global(1, 4, DType::I32));
    let id = ids.at(i32c(0)).load();
    refused(in_bounds(&put(&x, &id)), "inside its buffer");
    in_bounds(&get(&x, &id, &id.ge(0i32).and(id.lt(10i32)))).unwrap();
    // Doubled, it can wrap in 32 bits, also where the mask is true for the wrapped product.
    let twice = &id * 2i32;
    refused(
        in_bounds(&get(&x, &twice, &twice.ge(0i32).and(twice.lt(10i32)))),
        "32-bit index arithmetic does not overflow",
    );
    // Brought within bounds afterwards, it may.
    in_bounds(&put(&x, &twice.binary(Op::Max, i32c(0)).binary(Op::Min, i32c(9)))).unwrap();
    let wide = &id.cast(DType::I64) * 2i64;
    in_bounds(&get(&x, &wide, &wide.ge(0i64).and(wide.lt(10i64)))).unwrap();
    // A bound on a product that may have wrapped says nothing of its factor.
    let long = UOp::define_global(2, 1, DType::I64).at(i32c(0)).load();
    let product = &long * 4i64;
    let closed = product.ge(0i64).and(product.lt(40i64));
    refused(in_bounds(&get(&x, &long, &closed)), "inside its buffer");
}

#[test]
fn overflow_is_not_proven() {
    let x = UOp::define_global(0, usize::MAX / 2, DType::F32);
    let r = loops(0, 70_000);
    refused(in_bounds(&put(&x, &(&r * 70_000i32))), "32-bit index arithmetic does not overflow");
    in_bounds(&put(&x, &(&r * 30_000i32))).unwrap();
    let long = range(0, UOp::constant(70_000, DType::I64), AxisKind::Loop);
    in_bounds(&put(&x, &(&long * 70_000i64))).unwrap();
    // Arithmetic on data in a condition may wrap.
    let v = UOp::define_global(1, 1, DType::I32).at(i32c(0)).load();
    in_bounds(&get(&x, &r, &(&v + 1i32).lt(5i32))).unwrap();
}

#[test]
fn quotients_are_bounded() {
    let x = UOp::define_global(0, 2, DType::F32);
    let (a, b) = (loops(0, 2), loops(1, 2));
    // 4a + 2b + 1 is below 6 where 2a + b is below 3.
    let at = (&(&a * 4i32) + &(&b * 2i32) + 1i32).binary(Op::IDiv, i32c(3));
    in_bounds(&get(&x, &at, &(&(&a * 2i32) + &b).lt(3i32))).unwrap();
    refused(in_bounds(&get(&x, &at, &(&(&a * 2i32) + &b).lt(4i32))), "inside its buffer");
}

#[test]
fn symbolic_extents_are_bounded() {
    let x = UOp::define_global(0, 9, DType::F32);
    let n = node(Op::Var, DType::I32, Src::new(), Arg::Var { name: "n".into(), min: 1, max: 9 });
    let r = range(0, n.clone(), AxisKind::Loop);
    in_bounds(&put(&x, &r)).unwrap();
    // From the end: n - 1 - r is inside because r < n.
    let back = &(&n + -1i32) + &(&r * -1i32);
    in_bounds(&put(&x, &back)).unwrap();
    refused(
        in_bounds(&put(&x, &(&back + -1i32))),
        "inside its buffer of 9 (proven: elements -1 to 7)",
    );
}

/// A program that counts the true elements of a mask, and reads at the count.
fn counted(len: usize, extent: i32, last: i32, fold: fn(&UOp, &UOp) -> UOp) -> Vec<UOp> {
    let (data, mask) = (
        UOp::define_global(0, len, DType::F32),
        UOp::define_global(1, extent as usize, DType::BOOL),
    );
    let acc = node(Op::DefineAcc, DType::I32, [i32c(0)].to_src(), Arg::Acc(0));
    let i = range(0, i32c(extent), AxisKind::Ordered);
    let one = mask.at(&i).load().cast(DType::I32);
    let next = node(Op::Assign, DType::I32, [acc, fold(&acc_of(), &one)].to_src(), Arg::None);
    let load = data.at((&next + last).binary(Op::Max, 0i32)).load();
    let mut list = load.toposort();
    list.push(i.end_range());
    list
}

fn acc_of() -> UOp {
    node(Op::DefineAcc, DType::I32, [i32c(0)].to_src(), Arg::Acc(0))
}

/// The scheduler drops a mask that the bounds of a scan imply; the accumulator has the same ones.
#[test]
fn accumulators_are_bounded_by_their_loops() {
    in_bounds(&counted(4, 4, -1, |acc, one| acc + one)).unwrap();
    refused(
        in_bounds(&counted(4, 4, 0, |acc, one| acc + one)),
        "inside its buffer of 4 (proven: elements 0 to 4)",
    );
    refused(in_bounds(&counted(3, 4, -1, |acc, one| acc + one)), "elements 0 to 3");
    in_bounds(&counted(9, 4, 0, |acc, one| acc + &(one * 2i32))).unwrap();
    in_bounds(&counted(2, 4, 0, |acc, one| acc.binary(Op::Max, one.clone()))).unwrap();
    // What is no sum with the old value has the bounds of its dtype.
    refused(in_bounds(&counted(4, 4, -1, |acc, one| &(acc * 2i32) + one)), "elements 0 to 2147483");
    refused(in_bounds(&counted(4, 4, -1, |acc, one| &(acc + acc) + one)), "elements 0 to 2147483");
}
