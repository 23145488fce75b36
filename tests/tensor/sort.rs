//! Sorting against the standard library: lengths at which the algorithm changes, ties, NaNs and
//! signed zeros, all dtypes, any axis, on each CPU device.

use super::check;
use picograd::dtype::Element;
use picograd::{DType, Device, Tensor, Variable};
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

/// Values and indices of a stable sort; NaN is the largest, and zeros are equal.
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
        assert_eq!(
            values.to_bytes().unwrap(),
            picograd::compiler::dtype::as_bytes(&v),
            "{n} of {}",
            T::DTYPE
        );
    }
}

#[test]
fn sorts_of_short_lengths_match_a_stable_sort() {
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
fn nan_and_zeros_sort_stably() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    agree(vec![nan, -0.0, inf, 0.0, -inf, nan, 0.0, -0.0, 1.0, nan, -inf]);
    agree(vec![nan, nan, nan]);
    agree(vec![-inf, nan, -inf]);
    agree(vec![f64::NAN, 1e300, -0.0, 0.0, 5e-324]);
}

#[test]
fn long_axes_sort_stably() {
    agree(noise(3001, 1 << 20));
}

#[test]
fn any_axis_can_be_sorted() {
    let x = Tensor::new([[[3, 1], [2, 5]], [[0, 9], [7, 4]]]);
    check(&x.sort(1, false).0, &[2, 2, 2], &[2, 1, 3, 5, 0, 4, 7, 9]);
    check(&x.sort(-3, true).1, &[2, 2, 2], &[0, 1, 1, 0, 1, 0, 0, 1]);
    check(&x.transpose(0, 2).argsort(0, false), &[2, 2, 2], &[1, 0, 0, 1, 0, 1, 1, 0]);
    let (values, places) = Tensor::zeros([0, 3]).sort(0, false);
    assert_eq!((values.shape(), places.shape()), (vec![0, 3], vec![0, 3]));
    assert_eq!((values.numel(), places.dtype()), (0, DType::I32));
    assert!(values.to_vec::<f32>().unwrap().is_empty());
    assert!(Tensor::zeros([0, 3]).sort(1, true).0.to_vec::<f32>().unwrap().is_empty());
    assert_eq!(
        Tensor::zeros([2]).try_sort(1, false).unwrap_err().to_string(),
        "sort: axis 1 is outside [2], whose axes are -1..=0"
    );
    assert!(Tensor::from(1).try_sort(1, false).is_err());
}

#[test]
fn topk_matches_a_stable_sort() {
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
    assert_eq!(e.to_string(), "topk: k is 4, but axis 1 of [2, 3] has size 3");
    let rows = Tensor::new([[f32::NAN, 1.0, 2.0], [5.0, -1.0, 7.0]]).topk(2, 1, true, false);
    check(&rows.1, &[2, 2], &[0, 2, 2, 0]);
}

/// The default device.
const HERE: &str = "here";

/// The first `k` of each row along an axis, of values and indices, against the oracle.
#[track_caller]
fn agree_first<T: Element + PartialOrd>(
    x: &[T],
    shape: [usize; 3],
    axis: usize,
    k: usize,
    largest: bool,
    device: &str,
) {
    let t = Tensor::from_vec(x.to_vec(), shape);
    let t = if device == HERE { t } else { t.to(device) };
    let (values, places) = t.topk(k, axis as isize, largest, true);
    Tensor::realize_many(&[&values, &places]).unwrap();
    let (n, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let outer: usize = shape[..axis].iter().product();
    let (mut v, mut p) = (vec![x[0]; outer * k * inner], vec![0; outer * k * inner]);
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let row: Vec<T> = (0..n).map(|j| x[(o * n + j) * inner + i]).collect();
        let (values, places) = oracle(&row, largest);
        for j in 0..k {
            (v[(o * k + j) * inner + i], p[(o * k + j) * inner + i]) = (values[j], places[j]);
        }
    }
    let case = format!("{k} of axis {axis} of {shape:?} {}, largest {largest}, {device}", T::DTYPE);
    assert_eq!(places.to_vec::<i32>().unwrap(), p, "{case}");
    assert_eq!(values.to_bytes().unwrap(), picograd::compiler::dtype::as_bytes(&v), "{case}");
}

/// Floats with many ties, NaNs, infinities and zeros of both signs.
fn floats(n: usize, most: u32) -> Vec<f32> {
    let special = [f32::NAN, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN, 1e-40, -1e-40];
    let value = |(i, x): (usize, &i32)| if x % 11 == 0 { special[i % 8] } else { *x as f32 * 0.5 };
    noise(n, most).iter().enumerate().map(value).collect()
}

#[test]
fn sorts_match_around_algorithm_thresholds() {
    for n in [127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 2500] {
        agree(floats(n, 1 << 16));
        agree(noise(n, 9));
        agree(vec![7u32; n]);
    }
}

#[test]
fn long_rows_sort_in_every_dtype() {
    for n in [300, 1100] {
        let x = noise(n, 1 << 20);
        agree(x.iter().map(|&x| x % 5 == 0).collect::<Vec<_>>());
        agree(x.iter().map(|&x| x as i8).collect::<Vec<_>>());
        agree(x.iter().map(|&x| x as u8).collect::<Vec<_>>());
        agree(x.iter().map(|&x| x as i16).collect::<Vec<_>>());
        agree(x.iter().map(|&x| x as u16).collect::<Vec<_>>());
        agree(x.iter().map(|&x| x.wrapping_mul(4099)).collect::<Vec<i32>>());
        agree(x.iter().map(|&x| (x as u32).wrapping_mul(4099)).collect::<Vec<u32>>());
        agree(
            x.iter()
                .map(|&x| (x as i64 % 50).wrapping_mul(0x1234_5678_9abc_def1))
                .collect::<Vec<i64>>(),
        );
        agree(
            x.iter()
                .map(|&x| (x as u64 % 50).wrapping_mul(0x9abc_def1_1234_5678))
                .collect::<Vec<u64>>(),
        );
        // Devices that compute narrow floats in f32 may lose the sign of a NaN.
        let narrow: Vec<f32> =
            floats(n, 3000).into_iter().map(|x| if x.is_nan() { f32::NAN } else { x }).collect();
        agree(narrow.iter().map(|&x| half::f16::from_f32(x)).collect::<Vec<_>>());
        agree(narrow.iter().map(|&x| half::bf16::from_f32(x)).collect::<Vec<_>>());
        agree(floats(n, 1 << 20).iter().map(|&x| x as f64 * 1e-60).collect::<Vec<_>>());
        for dtype in [DType::F8E4M3, DType::F8E5M2] {
            let t = Tensor::from_vec(floats(n, 700), [n]).cast(dtype).realize().unwrap();
            let expected = oracle(&t.cast(DType::F32).to_vec::<f32>().unwrap(), true).1;
            check(&t.argsort(0, true), &[n], &expected);
        }
    }
}

/// Selection of `k` elements from blocks of keys: many counts, ties within and between blocks, any
/// axis.
#[test]
fn topk_of_long_rows_matches_a_stable_sort() {
    for (n, most) in [(500, 3), (1000, 1 << 20), (5000, 4), (5000, 1 << 20)] {
        for k in [0, 1, 7, 50, n] {
            for largest in [false, true] {
                agree_first(&noise(2 * n, most), [2, 1, n], 2, k, largest, HERE);
            }
        }
        agree_first(&floats(n, most), [1, n, 1], 1, 20, true, HERE);
        agree_first(&floats(n, most), [1, n, 1], 1, 20, false, HERE);
    }
    agree_first(&noise(3 * 700 * 2, 50), [3, 700, 2], 1, 9, true, HERE);
    agree_first(&floats(700 * 2 * 3, 900), [700, 2, 3], 0, 700, false, HERE);
    // Rows that differ only in the last, partial block, and narrow keys next to padding.
    let mut last = vec![0u8; 5001];
    (last[4999], last[5000]) = (1, 255);
    agree_first(&last, [1, 1, 5001], 2, 5, true, HERE);
    agree_first(&vec![255u8; 5001], [1, 1, 5001], 2, 5, false, HERE);
    agree_first(&vec![f64::NAN; 5003], [1, 1, 5003], 2, 3, false, HERE);
}

#[test]
fn topk_accepts_computed_rows() {
    let x = noise(2 * 5001, 1 << 12);
    let t = Tensor::from_vec(x.clone(), [2, 5001]);
    for largest in [false, true] {
        let places = (&t * &t).topk(9, 1, largest, true).1;
        let square = |row: &[i32]| row.iter().map(|x| x * x).collect::<Vec<_>>();
        let expected: Vec<i32> =
            x.chunks(5001).flat_map(|row| oracle(&square(row), largest).1[..9].to_vec()).collect();
        check(&places, &[2, 9], &expected);
    }
    // Sampling without replacement draws no index twice, and none of weight zero.
    let weights = Tensor::from_vec((0..6001).map(|i| (i % 3) as f32).collect::<Vec<_>>(), [6001]);
    let mut drawn = weights.multinomial(40, false).to_vec::<i32>().unwrap();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 40);
    assert!(drawn.iter().all(|i| (0..6001).contains(i) && i % 3 != 0));
}

#[test]
fn random_rows_sort_on_each_cpu_device() {
    let mut sizes = noise(64, 1600).into_iter().map(|x| x.unsigned_abs() as usize);
    let mut size = move || sizes.next().expect("there are enough");
    for device in ["INTERP", "CPU:CLANG", "CPU:LLVM", "CPU:X86"]
        .into_iter()
        .filter(|d| Device::get(d).is_ok())
    {
        for round in 0..6 {
            let (rows, n) = (1 + size() % 3, 1 + size() * (1 + 7 * (round / 5)));
            let k = if round < 3 { n } else { n.min(1 + size() % 40) };
            let most = [2, 100, 1 << 22][round % 3];
            agree_first(&noise(rows * n, most), [rows, n, 1], 1, k, round % 2 == 0, device);
            agree_first(&floats(rows * n, most), [1, rows, n], 2, k, round % 2 == 1, device);
        }
    }
}

#[test]
fn long_rows_sort_next_to_a_symbolic_axis() {
    let data = noise(4 * 200, 60);
    let x = Tensor::from_vec(data.clone(), [4, 200]);
    let n = Variable::new("long_rows_to_sort", 1, 4).unwrap();
    for rows in [1, 3] {
        let places =
            x.shrink_to((&n.bind(rows).unwrap(), 200)).argsort(1, true).to_vec::<i32>().unwrap();
        let expected: Vec<i32> =
            data.chunks(200).take(rows as usize).flat_map(|row| oracle(row, true).1).collect();
        assert_eq!(places, expected);
    }
}

#[test]
fn sorts_work_inside_scans_and_calls() {
    let n = 300;
    let data = noise(3 * n, 1000);
    let sorted: Vec<Vec<i32>> = data.chunks(n).map(|row| oracle(row, false).0).collect();
    let (start, xs) = (Tensor::full([n], 0), Tensor::from_vec(data.clone(), [3, n]));
    let (last, _) = Tensor::scan(&[&start], &[&xs], |carry, x| {
        let sum = &carry[0] + x[0].sort(0, false).0;
        Ok((vec![sum.clone()], vec![sum]))
    })
    .unwrap();
    let sums: Vec<i32> = (0..n).map(|i| sorted.iter().map(|row| row[i]).sum()).collect();
    check(&last[0], &[n], &sums);
    let f = Tensor::callify(&[&start], |x| Ok(vec![x[0].sort(0, false).0])).unwrap();
    for (row, expected) in data.chunks(n).zip(&sorted) {
        check(&f.call(&[&Tensor::from_vec(row.to_vec(), [n])]).unwrap()[0], &[n], expected);
    }
}

/// A gradient goes to the element at the index that the forward pass returns, for every algorithm.
#[test]
fn gradients_go_to_the_reported_indices() {
    for n in [5, 100, 300, 3000] {
        let weight: Vec<f32> = (0..n).map(|i| i as f32 + 1.0).collect();
        let x = Tensor::from_vec(floats(n, 40), [n]).as_param();
        let expected = |places: &Tensor| {
            let mut grad = vec![0f32; n];
            let places = places.to_vec::<i32>().unwrap();
            places.iter().zip(&weight).for_each(|(&p, w)| grad[p as usize] += w);
            grad
        };
        for (values, places) in
            [x.sort(0, false), x.sort(0, true), x.topk(3, 0, true, true), x.kthvalue(n / 2, 0)]
        {
            let weight = Tensor::from_vec(weight[..values.numel()].to_vec(), [values.numel()])
                .reshape(values.shape());
            let grad = (values * weight).sum(..).gradient(&[&x]).remove(0);
            check(&grad, &[n], &expected(&places));
        }
        // The second derivative of the sum of cubes of the three largest elements.
        let y = Tensor::from_vec((0..n).map(|i| (i * 7 % n) as f32).collect::<Vec<_>>(), [n])
            .as_param();
        let (top, places) = y.topk(3, 0, true, true);
        let first = (&top * &top * &top).sum(..).gradient(&[&y]).remove(0);
        let second = first.sum(..).gradient(&[&y]).remove(0).to_vec::<f32>().unwrap();
        let mut sixfold = vec![0f32; n];
        for (p, v) in places.to_vec::<i32>().unwrap().into_iter().zip(top.to_vec::<f32>().unwrap())
        {
            sixfold[p as usize] = 6.0 * v;
        }
        assert_eq!(second, sixfold);
    }
}

/// A CPU takes a kernel for the key words, one for the counts of all digits, one per digit (three),
/// and one for the values. A device of many threads takes the 78 steps of the sorting network, the
/// values, and the mask of pair halves, which is stored because too many steps read it to
/// rematerialize it.
#[test]
fn sort_takes_few_kernels() {
    let count = |(values, places): (Tensor, Tensor)| {
        Tensor::schedule_many(&[&values, &places]).unwrap().len()
    };
    let x = |n: usize| Tensor::from_vec(noise(n, 1 << 20), [n]);
    let device = Device::default().unwrap();
    let many_threads = device.target().grid && !device.target().chunks;
    assert_eq!(count(x(1 << 12).sort(0, false)), if many_threads { 80 } else { 6 });
    // Keys, ranks, indices and values.
    for n in [8, 64, 256] {
        let n = count(x(n).sort(0, false));
        assert!(n <= 4, "{n} kernels");
    }
}
