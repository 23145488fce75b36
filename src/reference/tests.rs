//! Tests of the reference evaluator against values computed by hand.

use super::*;
use crate::dtype::as_bytes;
use crate::ir::{DeviceName, Fold, Storage, ToSrc};
use crate::shape::Movement;
use std::any::Any;
use std::sync::Arc;

/// Storage without memory; the reader of the test returns the bytes.
struct Named(u64, usize, DeviceName);

impl crate::ir::arg::sealed::Sealed for Named {}

impl Storage for Named {
    fn id(&self) -> u64 {
        self.0
    }
    fn device(&self) -> &DeviceName {
        &self.2
    }
    fn len(&self) -> usize {
        self.1
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn no_storage(_: &StorageRef) -> Vec<u8> {
    panic!("these graphs read no storage")
}

fn run(u: &UOp) -> Value {
    evaluate(std::slice::from_ref(u), &no_storage).pop().unwrap()
}

fn iota(len: usize) -> UOp {
    UOp::iota(len, DType::I32)
}

fn grid(rows: usize, cols: usize) -> UOp {
    iota(rows * cols).moved(Movement::reshape([rows, cols]))
}

fn reduce(u: &UOp, fold: Fold, axes: &[usize]) -> UOp {
    u.reduced(fold, axes.iter().copied())
}

/// Shape and elements of an i32 graph.
#[track_caller]
fn check(u: &UOp, shape: &[usize], expected: &[i32]) {
    let value = run(u);
    assert_eq!(value.shape.as_slice(), shape);
    assert_eq!(value.to_vec::<i32>(), expected);
}

#[test]
fn leaves_have_their_values() {
    check(&UOp::constant(7i64, DType::I32), &[], &[7]);
    check(&iota(4), &[4], &[0, 1, 2, 3]);
}

#[test]
fn storage_is_read_through_the_reader() {
    let device = DeviceName::new("CPU");
    let storage = StorageRef::new(Arc::new(Named(5, 3, device.clone())));
    let buffer = UOp::new(Op::Buffer, DType::F32, [].to_src(), Arg::Storage(storage));
    let read = |s: &StorageRef| {
        assert_eq!(s.storage.id(), 5);
        as_bytes(&[1.5f32, -2.0, 0.25]).to_vec()
    };
    let value = evaluate(&[&buffer * 2.0], &read).pop().unwrap();
    assert_eq!(value.to_vec::<f32>(), [3.0, -4.0, 0.5]);
    let param =
        UOp::new(Op::Param, DType::F32, [].to_src(), Arg::Param { slot: 1, len: 2, device });
    let value =
        evaluate_with_params(&[param], &no_storage, &|slot| as_bytes(&[slot as f32, 9.0]).to_vec())
            .pop()
            .unwrap();
    assert_eq!(value.to_vec::<f32>(), [1.0, 9.0]);
    assert_eq!(Value::from_bytes(&value.to_bytes(), DType::F32), value);
}

#[test]
fn movement_ops_match_hand_computed_values() {
    check(&grid(2, 3), &[2, 3], &[0, 1, 2, 3, 4, 5]);
    check(&grid(2, 1).moved(Movement::expand([2, 3])), &[2, 3], &[0, 0, 0, 1, 1, 1]);
    check(&grid(2, 3).moved(Movement::permute([1, 0])), &[3, 2], &[0, 3, 1, 4, 2, 5]);
    check(&grid(1, 2).moved(Movement::pad([(1, 0), (0, 1)])), &[2, 3], &[0, 0, 0, 0, 1, 0]);
    check(&grid(2, 3).moved(Movement::shrink([(1, 2), (0, 2)])), &[1, 2], &[3, 4]);
    check(&grid(2, 3).moved(Movement::flip([false, true])), &[2, 3], &[2, 1, 0, 5, 4, 3]);
}

#[test]
fn three_axes_are_permuted() {
    let x = iota(24).moved(Movement::reshape([2, 3, 4]));
    let value = run(&x.moved(Movement::permute([2, 0, 1])));
    assert_eq!(value.shape.as_slice(), [4, 2, 3]);
    // Result [3, 1, 2] is input [1, 2, 3].
    assert_eq!(value.data[3 * 6 + 3 + 2], Const::Int(12 + 8 + 3));
}

#[test]
fn reductions_match_hand_computed_values() {
    check(&reduce(&grid(2, 3), Fold::Add, &[1]), &[2, 1], &[3, 12]);
    check(&reduce(&grid(2, 3), Fold::Add, &[0]), &[1, 3], &[3, 5, 7]);
    check(&reduce(&grid(2, 3), Fold::Add, &[0, 1]), &[1, 1], &[15]);
    check(&reduce(&grid(2, 3), Fold::Mul, &[1]), &[2, 1], &[0, 60]);
    check(&reduce(&grid(2, 3), Fold::Max, &[0]), &[1, 3], &[3, 4, 5]);
    check(&reduce(&grid(2, 3), Fold::Min, &[1]), &[2, 1], &[0, 3]);
}

#[test]
fn a_reduce_of_nothing_is_the_identity() {
    check(&reduce(&grid(0, 2), Fold::Add, &[0]), &[1, 2], &[0, 0]);
    check(&reduce(&grid(0, 2), Fold::Max, &[0]), &[1, 2], &[i32::MIN, i32::MIN]);
}

#[test]
fn half_sums_are_rounded_once() {
    // 2048 is where f16 can no longer count by ones; the sum is made in f32.
    let ones = UOp::constant(1.0, DType::F16).moved(Movement::reshape([1]));
    let many = ones.moved(Movement::expand([3000]));
    assert_eq!(run(&reduce(&many, Fold::Add, &[0])).data, [Const::Float(3000.0)]);
    assert_eq!(run(&reduce(&many.cast(DType::F32), Fold::Add, &[0])).data, [Const::Float(3000.0)]);
}

#[test]
fn elementwise_ops_match_hand_computed_values() {
    check(&(&iota(3) + &iota(3)), &[3], &[0, 2, 4]);
    check(&(&UOp::constant(10i64, DType::I32) + &iota(3)), &[3], &[10, 11, 12]);
    let picked = iota(3).lt(1i64).select(5i64, &iota(3));
    check(&picked, &[3], &[5, 1, 2]);
    check(&iota(3).cast(DType::F32).bitcast(DType::I32), &[3], &[0, 0x3f80_0000, 0x4000_0000]);
    let scalar = &UOp::constant(2i64, DType::I32) + &UOp::constant(3i64, DType::I32);
    check(&scalar, &[], &[5]);
}

#[test]
fn stored_and_copied_values_are_equal() {
    let x = grid(2, 2);
    for (op, arg) in [
        (Op::Contiguous, Arg::None),
        (Op::Detach, Arg::None),
        (Op::Copy, Arg::Device(DeviceName::new("CPU"))),
    ] {
        check(&UOp::new(op, DType::I32, [x.clone()].to_src(), arg), &[2, 2], &[0, 1, 2, 3]);
    }
}

#[test]
fn shards_are_concatenated() {
    let devices = DeviceName::new("CPU+CPU:1");
    let (a, b) = (grid(2, 1), grid(2, 2));
    check(&UOp::shards([a.clone(), b].to_src(), &devices, Some(1)), &[2, 3], &[0, 0, 1, 1, 2, 3]);
    check(&UOp::shards([grid(0, 1), a.clone()].to_src(), &devices, Some(0)), &[2, 1], &[0, 1]);
    check(&UOp::shards([a.clone(), a].to_src(), &devices, None), &[2, 1], &[0, 1]);
}

#[test]
fn roots_may_repeat_and_may_feed_each_other() {
    let x = iota(2);
    let y = &x + 1i64;
    let values = evaluate(&[y.clone(), x.clone(), y], &no_storage);
    assert_eq!(
        values.iter().map(|v| v.to_vec::<i32>()).collect::<Vec<_>>(),
        [[1, 2], [0, 1], [1, 2]]
    );
}

#[test]
fn a_long_chain_is_walked_without_recursion_and_in_little_memory() {
    let mut u = iota(2);
    for _ in 0..20_000 {
        u = &u + 1i64;
    }
    check(&u, &[2], &[20_000, 20_001]);
}
