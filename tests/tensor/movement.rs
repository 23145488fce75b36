//! Movement ops: the same elements under other shapes.

use super::{check, ramp};
use picograd::Tensor;

fn grid() -> Tensor {
    Tensor::arange(0, 6, 1).reshape([2, 3])
}

#[test]
fn reshapes_take_many_kinds_of_lists() {
    let x = Tensor::arange(0, 6, 1);
    let (rows, shape) = (2usize, vec![3i64, 2]);
    assert_eq!(x.reshape([rows, 3]).shape(), [2, 3]);
    assert_eq!(x.reshape([-1, 2]).shape(), [3, 2]);
    assert_eq!(x.reshape(&shape).shape(), [3, 2]);
    assert_eq!(x.reshape(shape).shape(), [3, 2]);
    assert_eq!(x.reshape(&[6usize, 1][..]).shape(), [6, 1]);
    assert_eq!(x.reshape(-1).shape(), [6]);
    assert_eq!(x.view([1, 6]).shape(), [1, 6]);
    assert!(Tensor::ones([1, 1]).reshape(()).shape().is_empty());
    assert_eq!(Tensor::zeros([0, 3]).reshape([3, 0]).shape(), [3, 0]);
}

#[test]
fn identity_movement_is_free() {
    let x = grid();
    assert_eq!(x.reshape([2, 3]).uop(), x.uop());
    assert_eq!(x.permute([0, 1]).uop(), x.uop());
    assert_eq!(x.pad(&[(0, 0), (0, 0)]).uop(), x.uop());
}

#[test]
fn movement_ops_match_hand_computed_values() {
    check(&Tensor::new([[1], [2]]).expand([2, 2, 2]), &[2, 2, 2], &[1, 1, 2, 2, 1, 1, 2, 2]);
    check(&grid().permute([1, 0]), &[3, 2], &[0, 3, 1, 4, 2, 5]);
    check(&grid().transpose(0, -1), &[3, 2], &[0, 3, 1, 4, 2, 5]);
    check(&grid().t(), &[3, 2], &[0, 3, 1, 4, 2, 5]);
    check(&Tensor::new([5]).t(), &[1], &[5]);
    check(&grid().shrink(&[(1, 2), (0, 2)]), &[1, 2], &[3, 4]);
    check(&grid().flip(0), &[2, 3], &[3, 4, 5, 0, 1, 2]);
    check(&grid().flip(..), &[2, 3], &[5, 4, 3, 2, 1, 0]);
    check(&Tensor::new([1, 2]).pad_with(&[(1, 2)], -1), &[5], &[-1, 1, 2, -1, -1]);
    check(
        &Tensor::new([1f32]).pad_with(&[(1, 0)], f64::NEG_INFINITY),
        &[2],
        &[f32::NEG_INFINITY, 1.0],
    );
}

#[test]
fn squeeze_and_unsqueeze_change_only_the_shape() {
    let x = Tensor::ones([1, 2, 1, 3]);
    assert_eq!(x.squeeze(..).shape(), [2, 3]);
    assert_eq!(x.squeeze(0).shape(), [2, 1, 3]);
    assert_eq!(x.squeeze([0, 2]).shape(), [2, 3]);
    assert_eq!(x.squeeze(1).shape(), [1, 2, 1, 3]);
    assert_eq!(grid().unsqueeze(0).shape(), [1, 2, 3]);
    assert_eq!(grid().unsqueeze(-1).shape(), [2, 3, 1]);
    assert_eq!(grid().unsqueeze(2).shape(), [2, 3, 1]);
    assert_eq!(Tensor::from(1).unsqueeze(-1).shape(), [1]);
    assert_eq!(x.flatten(0, -1).shape(), [6]);
    assert_eq!(x.flatten(1, 2).shape(), [1, 2, 3]);
    assert_eq!(Tensor::from(1).flatten(0, -1).shape(), [1]);
    assert_eq!(Tensor::ones([4, 3]).unflatten(0, [2, -1]).shape(), [2, 2, 3]);
}

#[test]
fn cat_and_stack_join_tensors() {
    let x = grid();
    check(&Tensor::cat(&[x.clone(), x.i(0..1)], 0), &[3, 3], &[0, 1, 2, 3, 4, 5, 0, 1, 2]);
    check(
        &Tensor::cat(&[x.clone(), Tensor::new([[7], [8]]), x.i((.., 0..0))], -1),
        &[2, 4],
        &[0, 1, 2, 7, 3, 4, 5, 8],
    );
    check(&Tensor::cat(&[Tensor::new([1]), Tensor::new([0.5f32])], 0), &[2], &[1f32, 0.5]);
    check(&Tensor::stack(&[Tensor::new([1, 2]), Tensor::new([3, 4])], 0), &[2, 2], &[1, 2, 3, 4]);
    check(&Tensor::stack(&[Tensor::new([1, 2]), Tensor::new([3, 4])], -1), &[2, 2], &[1, 3, 2, 4]);
}

#[test]
fn joins_keep_every_bit() {
    let x = Tensor::new([-0.0f32]);
    let bits: Vec<f32> = Tensor::cat(&[x.clone(), x], 0).to_vec().unwrap();
    assert!(bits.iter().all(|b| b.to_bits() == (-0.0f32).to_bits()));
}

#[test]
fn repeat_split_and_chunk_match_hand_computed_values() {
    check(&Tensor::new([[1], [2]]).repeat([1, 2]), &[2, 2], &[1, 1, 2, 2]);
    check(&Tensor::new([1, 2]).repeat([2, 1]), &[2, 2], &[1, 2, 1, 2]);
    check(&Tensor::new([1, 2]).repeat_interleave(2, 0), &[4], &[1, 1, 2, 2]);
    check(&grid().repeat_interleave(2, 0), &[4, 3], &[0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    let shapes = |pieces: Vec<Tensor>| pieces.iter().map(|t| t.shape()).collect::<Vec<_>>();
    assert_eq!(shapes(grid().split(2, 1)), [[2, 2], [2, 1]]);
    assert_eq!(shapes(grid().split([1, 2], -1)), [[2, 1], [2, 2]]);
    assert_eq!(shapes(ramp(&[7]).chunk(3, 0)), [[3], [3], [1]]);
    check(&grid().split([1, 2], -1)[1], &[2, 2], &[1, 2, 4, 5]);
}

#[test]
fn roll_and_diagonal_match_hand_computed_values() {
    check(&grid().roll(1, 1), &[2, 3], &[2, 0, 1, 5, 3, 4]);
    check(&grid().roll(-1, 1), &[2, 3], &[1, 2, 0, 4, 5, 3]);
    check(&grid().roll(7, 0), &[2, 3], &[3, 4, 5, 0, 1, 2]);
    check(&grid().diagonal(0, 0, 1), &[2], &[0, 4]);
    check(&grid().t().diagonal(0, 0, 1), &[2], &[0, 4]);
    check(&ramp(&[3, 3]).diagonal(0, 0, 1), &[3], &[0f32, 4.0, 8.0]);
    check(&Tensor::new([1, 2]).diag(), &[2, 2], &[1, 0, 0, 2]);
}
