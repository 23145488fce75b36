//! Creation of tensors from numbers, nested lists, bytes and functions.

use super::check;
use half::{bf16, f16};
use picograd::dtype::{F8E4M3, F8E5M2};
use picograd::{DType, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn tensors_hold_every_element_type() {
    macro_rules! each {
        ($($t:ty, $dtype:ident, $one:expr;)*) => { $({
            let one: $t = $one;
            assert_eq!(Tensor::from(one).dtype(), DType::$dtype);
            check(&Tensor::from(one), &[], &[one]);
            check(&Tensor::new([one, one]), &[2], &[one, one]);
            check(&Tensor::full([2], one), &[2], &[one, one]);
        })* };
    }
    each! {
        bool, BOOL, true;
        i8, I8, -7; i16, I16, -7; i32, I32, -7; i64, I64, i64::MIN;
        u8, U8, 200; u16, U16, 7; u32, U32, u32::MAX; u64, U64, u64::MAX;
        F8E4M3, F8E4M3, F8E4M3::from_f32(1.5); F8E5M2, F8E5M2, F8E5M2::from_f32(1.5);
        f16, F16, f16::from_f32(1.5); bf16, BF16, bf16::from_f32(1.5); f32, F32, 0.1; f64, F64, 0.1;
    }
}

#[test]
fn nested_lists_become_tensors() {
    check(&Tensor::new([[1, 2], [3, 4]]), &[2, 2], &[1, 2, 3, 4]);
    check(&Tensor::new([[[1u8], [2]]]), &[1, 2, 1], &[1u8, 2]);
    check(&Tensor::new([[[[1i64, 2]]]]), &[1, 1, 1, 2], &[1i64, 2]);
    check(&Tensor::from(vec![vec![1.0f32], vec![2.0]]), &[2, 1], &[1.0f32, 2.0]);
    check(&Tensor::from(&[1, 2][..]), &[2], &[1, 2]);
    check(&Tensor::from(vec![[1, 2], [3, 4]]), &[2, 2], &[1, 2, 3, 4]);
    check::<i32>(&Tensor::from(Vec::<i32>::new()), &[0], &[]);
    check(&Tensor::from_vec(vec![1, 2, 3, 4], [2, -1]), &[2, 2], &[1, 2, 3, 4]);
    check(&Tensor::from_slice(&[1, 2], [2, 1]), &[2, 1], &[1, 2]);
    check(&Tensor::from_bytes(&[1, 0, 2, 0], DType::U16, 2), &[2], &[1u16, 2]);
}

#[test]
fn constant_tensors_have_their_value() {
    check(&Tensor::zeros([2, 1]), &[2, 1], &[0f32, 0.0]);
    check(&Tensor::ones(3), &[3], &[1f32, 1.0, 1.0]);
    check(&Tensor::full((), 4u8), &[], &[4u8]);
    check::<f32>(&Tensor::zeros([0, 3]), &[0, 3], &[]);
    let x = Tensor::new([[1i16, 2]]);
    check(&x.zeros_like(), &[1, 2], &[0i16, 0]);
    check(&x.ones_like(), &[1, 2], &[1i16, 1]);
    check(&x.full_like(-3), &[1, 2], &[-3i16, -3]);
}

#[test]
fn arange_and_linspace_count() {
    check(&Tensor::arange(0, 5, 1), &[5], &[0, 1, 2, 3, 4]);
    check(&Tensor::arange(2i64, 9, 3), &[3], &[2i64, 5, 8]);
    check(&Tensor::arange(3, 3, 1), &[0], &[0i32; 0]);
    check(&Tensor::arange(5, 0, 1), &[0], &[0i32; 0]);
    check(&Tensor::arange(0u8, 250, 100), &[3], &[0u8, 100, 200]);
    check(&Tensor::arange(u64::MAX - 2, u64::MAX, 1), &[2], &[u64::MAX - 2, u64::MAX - 1]);
    check(&Tensor::arange(1.0f64, 0.0, -0.5), &[2], &[1.0, 0.5]);
    check(&Tensor::linspace(-1.0, 1.0, 3), &[3], &[-1f32, 0.0, 1.0]);
    check(&Tensor::linspace(2.0, 5.0, 1), &[1], &[2f32]);
    let ends: Vec<f32> = Tensor::linspace(0.1, 0.7, 50).to_vec().unwrap();
    assert_eq!((ends[0], ends[49]), (0.1, 0.7));
}

#[test]
fn eye_and_triangles_have_their_elements() {
    check(&Tensor::eye(2, 3), &[2, 3], &[1f32, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let x = Tensor::arange(1, 10, 1).reshape([3, 3]);
    check(&x.tril(0), &[3, 3], &[1, 0, 0, 4, 5, 0, 7, 8, 9]);
    check(&x.tril(-1), &[3, 3], &[0, 0, 0, 4, 0, 0, 7, 8, 0]);
    check(&x.triu(1), &[3, 3], &[0, 2, 3, 0, 0, 6, 0, 0, 0]);
    // Diagonals beyond the range of i32 do not wrap.
    let (all, none) = ([1, 2, 3, 4, 5, 6, 7, 8, 9], [0; 9]);
    for far in [3, 1 << 32, i64::MAX] {
        check(&x.tril(far), &[3, 3], &all);
        check(&x.triu(far), &[3, 3], &none);
        check(&x.tril(-far), &[3, 3], &none);
        check(&x.triu(-far), &[3, 3], &all);
    }
    check(&Tensor::full([2, 2], true).triu(0), &[2, 2], &[true, true, false, true]);
    let grid = Tensor::meshgrid(&[Tensor::new([1, 2]), Tensor::new([3, 4])]);
    check(&grid[0], &[2, 2], &[1, 1, 2, 2]);
    check(&grid[1], &[2, 2], &[3, 4, 3, 4]);
    check(&Tensor::new([1u8, 0]).one_hot(2), &[2, 2], &[0, 1, 1, 0]);
}

#[test]
fn borrowed_memory_is_never_written() {
    /// An owner that records its drop.
    struct Owner(Vec<i32>, Arc<AtomicBool>);
    impl AsRef<[i32]> for Owner {
        fn as_ref(&self) -> &[i32] {
            &self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let x = Tensor::from_blob(Owner(vec![1, 2, 3, 4, 5, 6], dropped.clone()), [2, -1]);
    check(&(&x * 2), &[2, 3], &[2, 4, 6, 8, 10, 12]);
    check(&x.i(1), &[3], &[4, 5, 6]);
    let y = x.copy();
    drop(x);
    assert!(!dropped.load(Ordering::Relaxed), "a tensor still reads the memory");
    drop(y);
    assert!(dropped.load(Ordering::Relaxed), "nothing reads the memory");

    // An assignment allocates new memory, although nothing else reads the tensor.
    let shared: Arc<[f32]> = Arc::from([1.0, 2.0]);
    let x = Tensor::from_blob(shared.clone(), [2]);
    for _ in 0..3 {
        x.assign(&x + 1.0).unwrap();
        x.realize().unwrap();
    }
    check(&x, &[2], &[4f32, 5.0]);
    assert_eq!(shared[..], [1.0, 2.0]);
    check(&Tensor::from_blob([true, false], [2]).logical_not(), &[2], &[false, true]);
    check(&Tensor::from_blob(Vec::<f64>::new(), [0]), &[0], &[0f64; 0]);
    check(&Tensor::from_blob(shared, [2]).to("interp"), &[2], &[1f32, 2.0]);
    let wrong = Tensor::try_from_blob(vec![1, 2, 3], [2]).unwrap_err().to_string();
    assert_eq!(wrong, "from_blob: 3 elements given for shape [2], which has 2");
}

#[test]
fn invalid_urls_are_errors() {
    let wrong = Tensor::from_url("ftp://x").unwrap_err().to_string();
    assert!(wrong.contains("expected https://, http:// or file://"), "{wrong}");
    assert!(Tensor::from_url("file:///no/such/file").is_err());
}
