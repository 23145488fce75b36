//! Indexing by integers, ranges and steps.

use super::{check, ramp};
use picograd::Tensor;
use picograd::tensor::{AxisIndex, NewAxis, step};

fn line() -> Tensor {
    Tensor::arange(0, 7, 1)
}

#[test]
fn integers_drop_their_axis() {
    let x = Tensor::arange(0, 24, 1).reshape([2, 3, 4]);
    check(&x.i((1, 2, 3)), &[], &[23]);
    check(&x.i((-1, -1, -1)), &[], &[23]);
    check(&x.i((0, 1)), &[4], &[4, 5, 6, 7]);
    check(&x.i(1usize).i(0), &[4], &[12, 13, 14, 15]);
    check(&x.i((.., 0)), &[2, 3], &[0, 4, 8, 12, 16, 20]);
    check(&x.i((1, .., 0)), &[3], &[12, 16, 20]);
}

#[test]
fn ranges_match_slices() {
    check(&line().i(1..3), &[2], &[1, 2]);
    check(&line().i(1..=3), &[3], &[1, 2, 3]);
    check(&line().i(5..), &[2], &[5, 6]);
    check(&line().i(..2), &[2], &[0, 1]);
    check(&line().i(..=2), &[3], &[0, 1, 2]);
    check(&line().i(..), &[7], &[0, 1, 2, 3, 4, 5, 6]);
    check(&line().i(-2..), &[2], &[5, 6]);
    check(&line().i(..-5), &[2], &[0, 1]);
    check(&line().i(-3..-1), &[2], &[4, 5]);
    check(&line().i(-3..=-1), &[3], &[4, 5, 6]);
    check(&line().i(..=-6), &[2], &[0, 1]);
    check(&line().i(3..3), &[0], &[0i32; 0]);
    check(&line().i(7..), &[0], &[0i32; 0]);
}

#[test]
fn steps_match_strided_slices() {
    check(&line().i(step(.., 2)), &[4], &[0, 2, 4, 6]);
    check(&line().i(step(1.., 3)), &[2], &[1, 4]);
    check(&line().i(step(.., 100)), &[1], &[0]);
    check(&line().i(step(.., -1)), &[7], &[6, 5, 4, 3, 2, 1, 0]);
    check(&line().i(step(.., -3)), &[3], &[6, 3, 0]);
    check(&line().i(step(..=4, -2)), &[3], &[4, 2, 0]);
    check(&line().i(step(3.., -2)), &[2], &[6, 4]);
    check(&line().i(step(-4..-1, -1)), &[3], &[5, 4, 3]);
    check(&line().i(step(2..2, -1)), &[0], &[0i32; 0]);
    check(&ramp(&[3, 4]).i((step(.., -2), step(1.., 2))), &[2, 2], &[9f32, 11.0, 1.0, 3.0]);
}

#[test]
fn dynamic_indices_and_new_axes_work() {
    let x = ramp(&[2, 3]);
    assert_eq!(x.i(NewAxis).shape(), [1, 2, 3]);
    assert_eq!(x.i((0, NewAxis, ..)).shape(), [1, 3]);
    assert_eq!(x.i((.., NewAxis)).shape(), [2, 3, 1]);
    assert_eq!(x.i((NewAxis, .., NewAxis, 0)).shape(), [1, 2, 1]);
    let picks = vec![AxisIndex::Index(1), AxisIndex::Slice { start: None, end: Some(2), step: 1 }];
    check(&x.i(picks), &[2], &[3f32, 4.0]);
}
