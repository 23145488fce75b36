//! Sorting against the standard library's sort, for lengths around powers of two, with ties, NaNs and signed zeros.

use super::check;
use picograd::dtype::Element;
use picograd::{DType, Tensor};
use std::cmp::Ordering;

/// A sequence without a pattern, from a linear congruential generator.
fn noise(n: usize, most: u32) -> Vec<i32> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) % most
    };
    (0..n).map(|_| next() as i32 - most as i32 / 2).collect()
}

/// Values and places by a stable sort; NaN is the greatest, zeros are equal.
fn oracle<T: Element + PartialOrd>(x: &[T], descending: bool) -> (Vec<T>, Vec<i32>) {
    let mut places: Vec<i32> = (0..x.len() as i32).collect();
    places.sort_by(|&a, &b| {
        let (a, b) = (x[a as usize], x[b as usize]);
        let order = a.partial_cmp(&b).unwrap_or_else(|| {
            let nan = |v: &T| v.partial_cmp(v).is_none();
            if nan(&a) && nan(&b) {
                Ordering::Equal
            } else if nan(&a) {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        });
        if descending { order.reverse() } else { order }
    });
    (places.iter().map(|&i| x[i as usize]).collect(), places)
}

fn agree<T: Element + PartialOrd>(x: Vec<T>) {
    let n = x.len();
    let t = Tensor::from_vec(x.clone(), [n]);
    for descending in [false, true] {
        let (values, places) = t.sort(0, descending);
        Tensor::realize_many(&[&values, &places]).unwrap();
        let (v, p) = oracle(&x, descending);
        assert_eq!(places.to_vec::<i32>().unwrap(), p, "{n} of {}", T::DTYPE);
        assert_eq!(values.to_bytes().unwrap(), picograd::dtype::as_bytes(&v), "{n} of {}", T::DTYPE);
    }
}

#[test]
fn every_length_and_every_kind() {
    for n in [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 100] {
        agree(noise(n, 7));
        agree(noise(n, 1000).iter().map(|&x| x as f32 * 0.25).collect::<Vec<_>>());
    }
    agree(noise(20, 200).iter().map(|&x| x as i8).collect::<Vec<_>>());
    agree(noise(20, 200).iter().map(|&x| x as u64).collect::<Vec<_>>());
    agree(noise(20, 2).iter().map(|&x| x == 0).collect::<Vec<_>>());
    agree(noise(20, 200).iter().map(|&x| half::f16::from_f32(x as f32)).collect::<Vec<_>>());
    agree(vec![i32::MAX, 3, i32::MAX, i32::MIN, i32::MAX]);
    agree(vec![255u8, 0, 255]);
}

#[test]
fn nan_infinities_and_zeros() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    agree(vec![nan, -0.0, inf, 0.0, -inf, nan, 0.0, -0.0, 1.0, nan, -inf]);
    agree(vec![nan, nan, nan]);
    agree(vec![-inf, nan, -inf]);
    agree(vec![f64::NAN, 1e300, -0.0, 0.0, 5e-324]);
}

#[test]
fn a_long_axis() {
    agree(noise(3001, 1 << 20));
}

#[test]
fn axes() {
    let x = Tensor::new([[[3, 1], [2, 5]], [[0, 9], [7, 4]]]);
    check(&x.sort(1, false).0, &[2, 2, 2], &[2, 1, 3, 5, 0, 4, 7, 9]);
    check(&x.sort(-3, true).1, &[2, 2, 2], &[0, 1, 1, 0, 1, 0, 0, 1]);
    check(&x.transpose(0, 2).argsort(0, false), &[2, 2, 2], &[1, 0, 0, 1, 0, 1, 1, 0]);
    let (values, places) = Tensor::zeros([0, 3]).sort(0, false);
    assert_eq!((values.shape(), places.shape()), (vec![0, 3], vec![0, 3]));
    assert_eq!((values.numel(), places.dtype()), (0, DType::I32));
    assert_eq!(values.to_vec::<f32>().unwrap(), []);
    assert_eq!(Tensor::zeros([0, 3]).sort(1, true).0.to_vec::<f32>().unwrap(), []);
    assert_eq!(Tensor::zeros([2]).try_sort(1, false).unwrap_err().to_string(), "sort: axis 1 is outside [2], whose axes are -1..=0");
    assert!(Tensor::from(1).try_sort(0, false).is_err());
}

#[test]
fn the_first_of_many() {
    let x = noise(300, 50);
    for k in [0, 1, 2, 5, 16, 17, 300] {
        for largest in [false, true] {
            let (values, places) = Tensor::from_vec(x.clone(), [300]).topk(k, 0, largest, true);
            Tensor::realize_many(&[&values, &places]).unwrap();
            let (v, p) = oracle(&x, largest);
            check(&values, &[k], &v[..k]);
            check(&places, &[k], &p[..k]);
        }
    }
    let e = Tensor::zeros([2, 3]).try_topk(4, 1, true, true).unwrap_err();
    assert_eq!(e.to_string(), "topk: the first 4 of axis 1 of [2, 3], which has 3");
    let rows = Tensor::new([[f32::NAN, 1.0, 2.0], [5.0, -1.0, 7.0]]).topk(2, 1, true, false);
    check(&rows.1, &[2, 2], &[0, 2, 2, 0]);
}

/// A step is a kernel, of values and places together; of few elements up to three steps are.
#[test]
fn kernels_of_a_sort() {
    let count = |(values, places): (Tensor, Tensor)| Tensor::schedule_many(&[&values, &places]).unwrap().len();
    let x = |n: usize| Tensor::from_vec(noise(n, 1 << 20), [n]);
    let n = count(x(1 << 12).sort(0, false));
    assert!(n <= 79, "{n} kernels for 78 steps");
    let n = count(x(64).sort(0, false));
    assert!(n <= 14, "{n} kernels for 21 steps");
    let n = count(x(8).sort(0, false));
    assert!(n <= 2, "{n} kernels for 6 steps");
    // Runs of 4 by three steps; ten times the better half and two steps.
    let n = count(x(1 << 12).topk(4, 0, true, true));
    assert!(n <= 3 + 10 * 2, "{n} kernels");
}
