//! Broadcasting and promotion of operands.

use super::check;
use half::f16;
use picograd::{DType, Tensor};

#[test]
fn shapes_broadcast() {
    let (column, row) = (Tensor::new([[10], [20]]), Tensor::new([1, 2, 3]));
    check(&(&column + &row), &[2, 3], &[11, 12, 13, 21, 22, 23]);
    check(&(&row + Tensor::from(5)), &[3], &[6, 7, 8]);
    check(&(Tensor::full((), 5).realize().unwrap() + &row), &[3], &[6, 7, 8]);
    check::<f32>(&(Tensor::zeros([0, 3]) + Tensor::ones([1, 3])), &[0, 3], &[]);
    assert!((Tensor::from(1) + Tensor::from(2)).shape().is_empty());
}

#[test]
fn dtypes_promote() {
    let of = |dtype: DType| Tensor::ones([2]).cast(dtype);
    let sum = |a, b| (of(a) + of(b)).dtype();
    assert_eq!(sum(DType::I32, DType::F16), DType::F16);
    assert_eq!(sum(DType::U8, DType::I8), DType::I16);
    assert_eq!(sum(DType::F16, DType::BF16), DType::F32);
    assert_eq!(sum(DType::BOOL, DType::U8), DType::U8);
}

#[test]
fn bare_numbers_are_weak() {
    let of = |dtype: DType| Tensor::ones([2]).cast(dtype);
    assert_eq!((of(DType::F16) + 1.5).dtype(), DType::F16);
    assert_eq!((of(DType::F64) + 1.5f32).dtype(), DType::F64);
    assert_eq!((of(DType::U8) + 1).dtype(), DType::U8);
    assert_eq!((of(DType::U8) + 1.5).dtype(), DType::F32);
    assert_eq!((of(DType::BOOL) + 1).dtype(), DType::I32);
    assert_eq!((of(DType::BF16) * true).dtype(), DType::BF16);
    assert_eq!((1 + of(DType::I16)).dtype(), DType::I16);
    // A tensor of rank 0 is not weak.
    assert_eq!((of(DType::F16) + Tensor::from(1.5f32)).dtype(), DType::F32);
    check(&(Tensor::new([f16::from_f32(1.0)]) + 0.1), &[1], &[f16::from_f32(1.1)]);
}

#[test]
fn constants_follow_the_other_operand() {
    let x = Tensor::new([1.0f32, 2.0]).to("NULL");
    assert_eq!((Tensor::ones([2]) + &x).device().as_str(), "NULL");
    assert_eq!((&x + Tensor::ones([2])).device().as_str(), "NULL");
    let wrong = x.try_add(Tensor::new([1.0f32, 2.0])).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "device: add: one operand is on NULL and another on CPU; move one with .to(…) or .shard(…)"
    );
}

#[test]
fn tensors_can_be_sent_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Tensor>();
    let x = Tensor::new([1, 2, 3]);
    let sums: Vec<i32> = std::thread::scope(|s| {
        let sums: Vec<_> = (0..4)
            .map(|i| {
                s.spawn({
                    let x = &x;
                    move || (x + i).sum(..).item::<i32>().unwrap()
                })
            })
            .collect();
        sums.into_iter().map(|h| h.join().unwrap()).collect()
    });
    assert_eq!(sums, [6, 9, 12, 15]);
}
