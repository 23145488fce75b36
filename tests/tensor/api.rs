//! Order statistics, histograms, searches and indexed writes at sizes beyond the fixtures, random
//! results, and errors of misuse.

use super::{check, close};
use picograd::error::Result;
use picograd::tensor::{Conv, GridSample, Interpolate, Quantile};
use picograd::{DType, Tensor};

/// Unsorted numbers from 0 to `most`.
fn mixed(n: usize, most: u32) -> Vec<i32> {
    (0..n as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 7) as i32 % most as i32).collect()
}

fn said<T>(r: Result<T>) -> String {
    match r {
        Ok(_) => panic!("no error"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn unique_of_many_matches_a_map() {
    let data = mixed(1000, 37);
    let x = Tensor::from_vec(data.clone(), [20, 50]);
    let mut expected = std::collections::BTreeMap::new();
    data.iter().for_each(|&v| *expected.entry(v).or_insert(0i32) += 1);
    let (values, inverse, counts) = x.unique(None);
    let list: Vec<i32> = values.to_vec().unwrap();
    assert_eq!(list, expected.keys().copied().collect::<Vec<_>>());
    assert_eq!(counts.to_vec::<i32>().unwrap(), expected.values().copied().collect::<Vec<_>>());
    assert_eq!(inverse.shape(), [20, 50]);
    let back: Vec<i32> =
        inverse.to_vec::<i32>().unwrap().iter().map(|&i| list[i as usize]).collect();
    assert_eq!(back, data);
}

#[test]
fn unique_with_a_size_is_lazy() {
    let (values, inverse, counts) = Tensor::new([3, 1, 3]).unique(Some(4));
    check(&values, &[4], &[1, 3, 0, 0]);
    check(&inverse, &[3], &[1, 0, 1]);
    check(&counts, &[4], &[1, 2, 0, 0]);
    // NaNs are not equal to each other.
    assert_eq!(Tensor::new([f32::NAN, 1.0, f32::NAN]).unique(None).0.shape(), [3]);
    // Values have a gradient, which goes to the first of equal elements.
    let x = Tensor::new([3.0f32, 1.0, 3.0]).as_param();
    let slope = (x.unique(None).0 * Tensor::new([2.0f32, 5.0])).sum(..).gradient(&[&x]);
    check(&slope[0], &[3], &[5.0f32, 2.0, 0.0]);
}

#[test]
fn searches_of_many_match_binary_search() {
    for n in [1, 2, 3, 7, 8, 9, 100, 257] {
        let mut sorted = mixed(n, 40);
        sorted.sort_unstable();
        let asked = mixed(64, 44);
        let (s, v) = (Tensor::from_vec(sorted.clone(), [n]), Tensor::from_vec(asked.clone(), [64]));
        let expected = |right: bool| -> Vec<i32> {
            asked
                .iter()
                .map(|&a| {
                    sorted.iter().filter(|&&x| if right { x <= a } else { x < a }).count() as i32
                })
                .collect()
        };
        check(&s.searchsorted(&v, false, None), &[64], &expected(false));
        check(&s.searchsorted(&v, true, None), &[64], &expected(true));
        let inside: Vec<bool> = asked.iter().map(|a| sorted.contains(a)).collect();
        check(&v.isin(&s), &[64], &inside);
    }
}

#[test]
fn searchsorted_accepts_a_sorter() {
    for n in [1, 2, 7, 100, 257] {
        let (rows, values) =
            (Tensor::from_vec(mixed(2 * n, 40), [2, n]), Tensor::from_vec(mixed(66, 44), [2, 33]));
        let (sorted, sorter) = rows.sort(-1, false);
        for right in [false, true] {
            let expected = sorted.searchsorted(&values, right, None).to_vec::<i32>().unwrap();
            check(&rows.searchsorted(&values, right, Some(&sorter)), &[2, 33], &expected);
            // Any integer dtype, and indices from the end.
            check(
                &rows.searchsorted(&values, right, Some(&(sorter.long() - n as i64))),
                &[2, 33],
                &expected,
            );
        }
    }
    let (x, values) = (Tensor::new([3.0f32, f32::NAN, 1.0]), Tensor::new([2.0f32, f32::NAN]));
    check(&x.searchsorted(&values, false, Some(&x.argsort(0, false))), &[2], &[1, 3]);
}

#[test]
fn a_sorter_has_indices_of_the_sequence() {
    let (x, v) = (Tensor::new([3.0f32, 5.0, 1.0]), Tensor::new([0.5f32]));
    for bad in [[2, 0, 3], [-4, 0, 1]] {
        let error = x.try_searchsorted(&v, false, Some(&Tensor::new(bad))).unwrap_err().to_string();
        assert!(
            error.starts_with("searchsorted: index") && error.contains("3 elements"),
            "{error}"
        );
    }
    // Lazy indices are not checked: an index out of range reads 0, which is below 0.5.
    let computed = Tensor::new([7, 7, 7]) + 0;
    check(&x.searchsorted(&v, false, Some(&computed)), &[1], &[3]);
}

#[test]
fn a_search_is_one_kernel() {
    let s = Tensor::from_vec(mixed(1000, 99), [1000]).realize().unwrap();
    let v = Tensor::from_vec(mixed(64, 99), [64]).realize().unwrap();
    assert_eq!(s.searchsorted(&v, false, None).schedule().unwrap().len(), 1);
    let order = s.argsort(0, false).realize().unwrap();
    assert_eq!(s.searchsorted(&v, false, Some(&order)).schedule().unwrap().len(), 1);
}

#[test]
fn order_statistics_match_a_sort() {
    let data: Vec<f32> = mixed(999, 500).iter().map(|&v| v as f32 / 8.0).collect();
    let x = Tensor::from_vec(data.clone(), [3, 333]);
    let rows: Vec<Vec<f32>> = data.chunks(333).map(|r| r.to_vec()).collect();
    let sorted: Vec<Vec<f32>> = rows
        .iter()
        .map(|r| {
            let mut r = r.clone();
            r.sort_by(f32::total_cmp);
            r
        })
        .collect();
    let (median, index) = x.median(1);
    check(&median, &[3], &sorted.iter().map(|r| r[166]).collect::<Vec<_>>());
    let index: Vec<i32> = index.to_vec().unwrap();
    assert!((0..3).all(|i| rows[i][index[i] as usize] == sorted[i][166]));
    check(&x.kthvalue(10, 1).0, &[3], &sorted.iter().map(|r| r[9]).collect::<Vec<_>>());
    check(
        &x.quantile(0.25, 1, Quantile::Linear),
        &[3],
        &sorted.iter().map(|r| r[83]).collect::<Vec<_>>(),
    );
    let mode = |r: &[f32]| {
        *r.iter()
            .max_by_key(|&&v| (r.iter().filter(|&&w| w == v).count(), -(v * 8.0) as i32))
            .unwrap()
    };
    check(&x.mode(1).0, &[3], &sorted.iter().map(|r| mode(r)).collect::<Vec<_>>());
}

#[test]
fn extreme_gradients_go_to_the_returned_index() {
    let x = Tensor::new([[1.0f32, 3.0, 3.0], [f32::NAN, 2.0, f32::NAN]]).as_param();
    let (values, index) = x.max_with_index(1);
    assert_eq!(index.to_vec::<i32>().unwrap(), [1, 0]);
    assert!(values.to_vec::<f32>().unwrap()[1].is_nan());
    let slope = (values * Tensor::new([2.0f32, 5.0])).sum(..).gradient(&[&x]);
    check(&slope[0], &[2, 3], &[0.0f32, 2.0, 0.0, 5.0, 0.0, 0.0]);
    // The same for a computed sum, independent of earlier realizations.
    let y =
        Tensor::from_vec((0..48).map(|i| (i * 37 % 19) as f32 / 7.0).collect::<Vec<f32>>(), [6, 8])
            .as_param();
    let product = y.matmul(&y.t());
    let (top, _) = product.max_with_index(1);
    let before = top.sum(..).gradient(&[&y]).remove(0).to_vec::<f32>().unwrap();
    Tensor::realize_many(&[&top, &product]).unwrap();
    let after = top.sum(..).gradient(&[&y]).remove(0).to_vec::<f32>().unwrap();
    assert_eq!(before, after);
}

#[test]
fn indexed_writes_of_many_add_up() {
    let (n, m) = (500, 23);
    let (place, value) = (mixed(n, m as u32), mixed(n, 100));
    let mut expected = vec![0i32; m];
    place.iter().zip(&value).for_each(|(&p, &v)| expected[p as usize] += v);
    let (place, value) = (Tensor::from_vec(place, [n]), Tensor::from_vec(value, [n]));
    let zeros = Tensor::full([m], 0);
    check(&zeros.index_add(0, &place, &value, 1), &[m], &expected);
    check(&zeros.index_put(&[&place], &value, true), &[m], &expected);
    check(&place.bincount(Some(&value), 0).int(), &[m], &expected);
    // An index out of range writes nothing, also along several axes.
    let (rows, cols) = (Tensor::new([0, 5, 0]), Tensor::new([0, 0, -9]));
    check(&Tensor::full([2, 2], 0).index_put(&[&rows, &cols], 7, true), &[2, 2], &[7, 0, 0, 0]);
    check(&Tensor::full([2, 2], 0).index_put(&[&rows, &cols], 7, false), &[2, 2], &[7, 0, 0, 0]);
    check(
        &Tensor::new([1, 2]).masked_scatter(&Tensor::new([true, true]), &Tensor::new([9])),
        &[2],
        &[9, 0],
    );
}

#[test]
fn histograms_count_every_element_once() {
    let data: Vec<f32> = mixed(2000, 1000).iter().map(|&v| v as f32 / 100.0).collect();
    let x = Tensor::from_vec(data.clone(), [2000]);
    let counts: Vec<f32> = x.histc(8, 0.0, 8.0).to_vec().unwrap();
    let expected: Vec<f32> = (0..8)
        .map(|i| {
            data.iter()
                .filter(|&&v| v >= i as f32 && (v < i as f32 + 1.0 || i == 7 && v == 8.0))
                .count() as f32
        })
        .collect();
    assert_eq!(counts, expected);
    assert_eq!(x.histc(10, 0.0, 0.0).sum(..).item::<f32>().unwrap(), 2000.0);
}

#[test]
fn fold_sums_overlapping_windows() {
    let x = Tensor::from_vec(mixed(2 * 3 * 6 * 7, 9), [2, 3, 6, 7]);
    let how = || Conv::new().padding(1).stride([2, 1]).dilation([1, 2]);
    let ones = x.ones_like();
    let back = |t: &Tensor| t.unfold2d([3, 2], how()).fold2d([6, 7], [3, 2], how());
    // Each element is counted once per window that contains it.
    assert_eq!(back(&x).to_vec::<i32>().unwrap(), (&x * back(&ones)).to_vec::<i32>().unwrap());
    // A product of columns is a convolution.
    let w = Tensor::from_vec(mixed(4 * 3 * 6, 5), [4, 3, 3, 2]);
    let product = w.reshape([4, 18]).matmul(&x.unfold2d([3, 2], how()));
    assert_eq!(product.to_vec::<i32>().unwrap(), x.conv2d(&w, how()).to_vec::<i32>().unwrap());
}

#[test]
fn random_counts_follow_their_distribution() {
    const N: usize = 20000;
    for rate in [0.0f32, 0.3, 4.0, 9.99, 10.0, 35.5, 1000.0, 250_000.0] {
        let x: Vec<f32> = Tensor::full([N], rate).poisson().to_vec().unwrap();
        assert!(x.iter().all(|v| *v >= 0.0 && v.fract() == 0.0), "counts at {rate}");
        let mean = x.iter().map(|&v| v as f64).sum::<f64>() / N as f64;
        let variance = x.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / N as f64;
        let rate = rate as f64;
        // Within six standard deviations of the mean and of the variance.
        assert!((mean - rate).abs() <= 6.0 * (rate / N as f64).sqrt(), "mean {mean} at {rate}");
        let spread = ((rate + 2.0 * rate * rate) / N as f64).sqrt();
        assert!((variance - rate).abs() <= 6.0 * spread, "variance {variance} at {rate}");
    }
    // The frequency of each count: a rate of 12 uses rejection, 6 inversion.
    for rate in [6.0f64, 12.0] {
        let x: Vec<f32> = Tensor::full([N], rate as f32).poisson().to_vec().unwrap();
        let mut p = (-rate).exp();
        for k in 0..30 {
            let seen = x.iter().filter(|&&v| v == k as f32).count() as f64;
            let expected = p * N as f64;
            assert!(
                (seen - expected).abs() <= 6.0 * expected.sqrt() + 3.0,
                "{k} at {rate}: {seen}, expected {expected}"
            );
            p *= rate / (k + 1) as f64;
        }
    }
    let odd: Vec<f32> = Tensor::new([-1.0f32, f32::NAN, f32::INFINITY]).poisson().to_vec().unwrap();
    assert!(odd.iter().all(|v| v.is_nan()));
    let coins: Vec<f32> = Tensor::full([N], 0.3f32).bernoulli().to_vec().unwrap();
    let heads = coins.iter().sum::<f32>() as f64 / N as f64;
    assert!(coins.iter().all(|c| *c == 0.0 || *c == 1.0) && (heads - 0.3).abs() < 0.02, "{heads}");
    assert_eq!(Tensor::new([0.5f64]).bernoulli().dtype(), DType::F64);
    check(&Tensor::new([f32::NAN, -1.0, 2.0]).bernoulli(), &[3], &[0.0f32, 0.0, 1.0]);
    assert_eq!(Tensor::zeros([0, 3]).poisson().shape(), [0, 3]);
}

#[test]
fn narrow_floats_are_rounded_once() {
    // Sums of squares beyond the range of f16.
    let x = Tensor::full([300], 200.0f32).half();
    close(&x.norm(2.0, ..).float(), &[3464.0], 1e-3);
    assert_eq!(x.norm(2.0, ..).dtype(), DType::F16);
    let far = Tensor::new([[300.0f32, 400.0]]).half();
    close(&far.cdist(&Tensor::new([[0.0f32, 0.0]]).half(), 2.0).float(), &[500.0], 1e-3);
}

#[test]
fn misuse_errors_name_the_method() {
    let (x, v) = (Tensor::zeros([2, 3]), Tensor::zeros([3]));
    let empty = Tensor::zeros([2, 0]);
    let index = Tensor::new([0, 1]);
    let all = [
        ("norm", said(x.try_norm(f64::NAN, 0))),
        ("norm", said(empty.try_norm(f64::INFINITY, 1))),
        ("max_with_index", said(empty.try_max_with_index(1))),
        ("max_with_index", said(Tensor::zeros([2, 3, 4]).try_max_with_index([0, 1]))),
        ("amin", said(empty.try_amin(1))),
        ("median", said(empty.try_median(1))),
        ("mode", said(empty.try_mode(-1))),
        ("kthvalue", said(x.try_kthvalue(0, 1))),
        ("kthvalue", said(x.try_kthvalue(4, 1))),
        ("quantile", said(x.try_quantile(1.5, 1, Quantile::Linear))),
        ("quantile", said(x.try_quantile(f64::NAN, 1, Quantile::Linear))),
        ("quantile", said(x.try_quantile(&x, 1, Quantile::Linear))),
        ("quantile", said(empty.try_quantile(0.5, 1, Quantile::Lower))),
        ("diff", said(x.try_diff(1, 2, None, None))),
        ("diff", said(x.try_diff(1, 0, Some(&v), None))),
        ("matrix_norm", said(x.try_matrix_norm(3.0, ..))),
        ("matrix_norm", said(x.try_matrix_norm(f64::NAN, ..))),
        ("matrix_norm", said(x.try_matrix_norm(1.0, 0))),
        ("matrix_norm", said(x.try_matrix_norm(1.0, [0, 0]))),
        ("matrix_norm", said(v.try_matrix_norm(1.0, ..))),
        ("matrix_norm", said(Tensor::zeros([0, 3]).try_matrix_norm(-2.0, ..))),
        ("matrix_norm", said(Tensor::zeros([0, 3]).try_matrix_norm(-f64::INFINITY, ..))),
        ("matrix_norm", said(Tensor::zeros([3, 0]).try_matrix_norm(-1.0, ..))),
        ("bincount", said(x.try_bincount(None, 0))),
        ("bincount", said(v.try_bincount(None, 0))),
        ("bincount", said(Tensor::new([-1, 2]).try_bincount(None, 0))),
        ("bincount", said(Tensor::new([1, 2]).try_bincount(Some(&v), 0))),
        ("bincount", said(Tensor::new([i64::MAX]).try_bincount(None, 0))),
        ("histc", said(x.try_histc(0, 0.0, 1.0))),
        ("histc", said(x.try_histc(3, 2.0, 1.0))),
        ("histc", said(x.try_histc(3, f64::NAN, 1.0))),
        ("searchsorted", said(x.try_searchsorted(&Tensor::zeros([3, 3]), false, None))),
        ("searchsorted", said(Tensor::zeros(()).try_searchsorted(&x, false, None))),
        ("searchsorted", said(v.try_searchsorted(&v, false, Some(&index)))),
        ("searchsorted", said(v.try_searchsorted(&v, false, Some(&v)))),
        ("bucketize", said(x.try_bucketize(&x, false))),
        ("index_add", said(x.try_index_add(0, &x, &x, 1))),
        ("index_add", said(x.try_index_add(0, &index, &v, 1))),
        ("index_add", said(x.try_index_add(0, &index, &x.int(), 1))),
        ("index_add", said(x.try_index_add(0, &index.float(), &x, 1))),
        ("index_put", said(x.try_index_put(&[], 1, true))),
        ("index_put", said(x.try_index_put(&[&index, &index, &index], 1, true))),
        ("index_put", said(x.try_index_put(&[&v.bool()], 1, true))),
        ("index_put", said(x.try_index_put(&[&index], Tensor::zeros([4]), true))),
        ("masked_scatter", said(x.try_masked_scatter(&x, &x))),
        ("masked_scatter", said(x.try_masked_scatter(&Tensor::zeros([5]).bool(), &x))),
        ("movedim", said(x.try_movedim([0, 1], [0]))),
        ("movedim", said(x.try_movedim(0, 2))),
        ("narrow", said(x.try_narrow(1, 2, 2))),
        ("narrow", said(x.try_narrow(1, -4, 1))),
        ("narrow", said(x.try_narrow(1, isize::MIN, usize::MAX))),
        ("select", said(x.try_select(1, 3))),
        ("select", said(x.try_select(1, isize::MIN))),
        ("roll", said(x.try_roll([1, 2], 0))),
        ("outer", said(x.try_outer(&v))),
        ("trace", said(v.try_trace())),
        ("cross", said(Tensor::zeros([2]).try_cross(&Tensor::zeros([2]), 0))),
        ("cross", said(x.try_cross(&v, -1))),
        ("tensordot", said(x.try_tensordot(&x, 1))),
        ("tensordot", said(x.try_tensordot(&x, 3))),
        ("tensordot", said(x.try_tensordot(&x, ([0], [0, 1])))),
        ("cdist", said(x.try_cdist(&Tensor::zeros([2, 4]), 2.0))),
        ("cdist", said(x.try_cdist(&x, -1.0))),
        ("pixel_shuffle", said(Tensor::zeros([3, 2, 2]).try_pixel_shuffle(2))),
        ("pixel_shuffle", said(Tensor::zeros([3, 2, 2]).try_pixel_shuffle(0))),
        ("pixel_shuffle", said(Tensor::zeros([3, 2, 2]).try_pixel_shuffle(usize::MAX))),
        ("pixel_unshuffle", said(Tensor::zeros([3, 2, 3]).try_pixel_unshuffle(2))),
        ("unfold2d", said(x.try_unfold2d(2, Conv::new()))),
        ("unfold2d", said(Tensor::zeros([1, 1, 2, 2]).try_unfold2d(3, Conv::new()))),
        ("fold2d", said(Tensor::zeros([1, 4, 3]).try_fold2d([3, 3], 2, Conv::new()))),
        ("fold2d", said(Tensor::zeros([1, 4, 4]).try_fold2d((), 2, Conv::new()))),
        (
            "grid_sample",
            said(
                Tensor::zeros([1, 1, 2, 2])
                    .try_grid_sample(&Tensor::zeros([1, 1, 1, 3]), GridSample::new()),
            ),
        ),
        (
            "grid_sample",
            said(
                Tensor::zeros([1, 1, 0, 2])
                    .try_grid_sample(&Tensor::zeros([1, 1, 1, 2]), GridSample::new()),
            ),
        ),
        ("interpolate", said(x.try_interpolate(0, Interpolate::Cubic, false))),
    ];
    for (name, message) in all {
        assert!(message.starts_with(&format!("{name}: ")), "{name} says: {message}");
    }
}

#[test]
fn huge_arguments_are_errors() {
    let x = Tensor::zeros([4]);
    let _ = x.try_diff(usize::MAX, 0, None, None);
    let _ = x.try_kthvalue(usize::MAX, 0);
    let _ = x.try_histc(usize::MAX, 0.0, 1.0);
    let _ = x.int().try_bincount(None, usize::MAX);
    let _ = x.try_unique(Some(usize::MAX));
    let _ = x.try_roll(isize::MIN, 0);
    let _ = x.try_narrow(0, isize::MAX, usize::MAX);
    let _ = x.try_norm(f64::MAX, 0);
    let _ = Tensor::zeros([1, 1, 2, 2]).try_pixel_unshuffle(usize::MAX);
    let _ = Tensor::zeros([1, 1, 2, 2])
        .try_unfold2d(usize::MAX >> 1, Conv::new().padding(usize::MAX >> 2));
    let _ = Tensor::zeros([1, 1, 2, 2]).try_unfold2d(2, Conv::new().dilation(usize::MAX >> 1));
    let _ = Tensor::zeros([1, 1, 2, 2]).try_unfold2d(3, Conv::new().dilation(usize::MAX));
    let _ = Tensor::zeros([1, 1, 2, 2]).try_unfold2d(2, Conv::new().padding(usize::MAX));
    let _ = Tensor::zeros([1, 4, 1]).try_fold2d([2, 2], 2, Conv::new().padding(usize::MAX));
    let _ = Tensor::zeros([1, 4, 1]).try_fold2d([usize::MAX >> 1, 1], 2, Conv::new());
    let _ = Tensor::zeros([1, 4, 1]).try_fold2d([2, 2], 2, Conv::new().stride(usize::MAX >> 1));
    let _ = Tensor::zeros([1, 1, 2, 2]).try_interpolate(
        [1usize << 40, 1 << 20],
        Interpolate::Cubic,
        false,
    );
    let _ = Tensor::zeros([1, 1, 2, 2]).try_interpolate(
        1usize << 40,
        Interpolate::LinearAntialias,
        false,
    );
    let wide = Tensor::zeros([1]).expand([1usize << 31]);
    let _ = wide.try_kron(&wide);
    let _ = wide.try_outer(&wide);
}

/// In sequences sorted by `sort`, NaN is the largest, and a searched NaN is at the end.
#[test]
fn sorted_sequences_may_end_in_nan() {
    let nan = f32::NAN;
    let values = Tensor::new([0.0f32, 3.0, 6.0, f32::NEG_INFINITY, f32::INFINITY, nan]);
    for nans in 1..6 {
        let mut sequence = vec![1.0f32, 3.0, 5.0];
        sequence.resize(3 + nans, nan);
        let (n, sorted) = (sequence.len() as i32, Tensor::from_slice(&sequence, [sequence.len()]));
        for right in [false, true] {
            let expected = [0, if right { 2 } else { 1 }, 3, 0, 3, n];
            check(&sorted.searchsorted(&values, right, None), &[6], &expected);
            check(&values.bucketize(&sorted, right), &[6], &expected);
        }
    }
    // `isin` searches a sorted list.
    let list: Vec<f32> = (0..20).map(|i| i as f32).chain([nan; 20]).collect();
    let list = Tensor::from_slice(&list, [40]);
    check(
        &Tensor::new([0.0f32, 3.0, 19.0, 20.0, nan]).isin(&list),
        &[5],
        &[true, true, true, false, false],
    );
}

#[test]
fn weights_are_counted_in_wide_floats() {
    let x = Tensor::new([0, 0]);
    let counted = x.bincount(Some(&Tensor::new([100i8, 100])), 0);
    assert_eq!(counted.dtype(), DType::F64);
    check(&counted, &[1], &[200.0f64]);
    for (dtype, sum) in [
        (DType::F32, DType::F32),
        (DType::BOOL, DType::F64),
        (DType::F16, DType::F64),
        (DType::I64, DType::F64),
    ] {
        assert_eq!(x.bincount(Some(&Tensor::ones([2]).cast(dtype)), 0).dtype(), sum, "{dtype}");
    }
}

/// Ranges and their errors match PyTorch 2.15.
#[test]
fn histogram_ranges_match_pytorch() {
    let x = Tensor::new([1.0f32, 2.0, 3.0]);
    check(&x.histc(4, 2.0, 2.0), &[4], &[1.0f32, 0.0, 1.0, 1.0]);
    check(&Tensor::new([5.0f32]).histc(4, 3.0, 3.0), &[4], &[0.0f32, 0.0, 1.0, 0.0]);
    check(&Tensor::new([1.0f32, f32::NAN]).histc(2, 0.0, 2.0), &[2], &[0.0f32, 1.0]);
    for bad in [f32::NAN, f32::INFINITY] {
        let e = said(Tensor::new([1.0f32, bad]).try_histc(4, 0.0, 0.0));
        assert!(e.starts_with("histc: the range of the elements is not finite"), "{e}");
    }
}

#[test]
fn diff_of_order_zero_is_the_tensor() {
    let (x, more) = (Tensor::new([1, 2, 3]), Tensor::new([0]));
    check(&x.diff(0, 0, Some(&more), Some(&more)), &[3], &[1, 2, 3]);
}

#[test]
fn host_classes_of_one_hot_are_checked() {
    for bad in [3, -1] {
        let e = said(Tensor::new([0, bad]).try_one_hot(3));
        assert_eq!(e, format!("one_hot: the target at 1 is {bad}; expected a class from 0 to 2"));
        // Lazy targets are not checked.
        check(&(Tensor::new([0, bad]) + 0).one_hot(3), &[2, 3], &[1, 0, 0, 0, 0, 0]);
    }
}

/// Axis 0 or -1 of a tensor of rank 0, as in PyTorch.
#[test]
fn a_scalar_accepts_axis_zero_and_minus_one() {
    let x = Tensor::new(3.0f32);
    for axis in [0, -1] {
        for y in [
            x.sum(axis),
            x.mean(axis),
            x.max(axis),
            x.cumsum(axis),
            x.cummax(axis).0,
            x.logcumsumexp(axis),
            x.logsumexp(axis),
            x.sort(axis, false).0,
            x.topk(1, axis, true, true).0,
            x.median(axis).0,
            x.quantile(0.5, axis, Quantile::Linear),
        ] {
            check(&y, &[], &[3.0f32]);
        }
        check(&x.softmax(axis), &[], &[1.0f32]);
        check(&x.log_softmax(axis), &[], &[0.0f32]);
        for y in [x.argmax(axis), x.argsort(axis, false), x.cummin(axis).1, x.median(axis).1] {
            check(&y, &[], &[0]);
        }
    }
    for e in [
        said(x.try_sum(1)),
        said(x.try_sort(-2, false)),
        said(x.try_cumsum(1)),
        said(x.try_softmax(1)),
    ] {
        assert!(e.contains("is out of range: a tensor of shape [] has no axes"), "{e}");
    }
}

#[test]
fn quantiles_accept_a_symbolic_axis() {
    let x = Tensor::new([[3f32, 1.0, 2.0], [9.0, 7.0, 8.0], [4.0, 6.0, 5.0], [0.0, 0.0, 0.0]]);
    let n = picograd::Variable::new("rows_of_quantiles", 1, 4).unwrap();
    for rows in [1, 3] {
        let part = x.shrink_to((&n.bind(rows).unwrap(), 3));
        let middle = part.quantile(0.25, 1, Quantile::Linear);
        assert_eq!(middle.to_vec::<f32>().unwrap(), [1.5f32, 7.5, 4.5][..rows as usize]);
    }
}

/// Results for NaN coordinates match PyTorch 2.15.
#[test]
fn nan_coordinates_match_pytorch() {
    use picograd::tensor::{GridMode, GridPadding};
    let x = Tensor::arange(0f32, 12.0, 1.0).reshape([1, 1, 3, 4]);
    let point = Tensor::new([[[[f32::NAN, 0.0]]]]);
    for padding in [GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection] {
        let at = |mode| {
            x.grid_sample(&point, GridSample::new().mode(mode).padding(padding))
                .item::<f32>()
                .unwrap()
        };
        assert!(at(GridMode::Cubic).is_nan());
        if padding == GridPadding::Zeros {
            assert!(at(GridMode::Linear).is_nan() && at(GridMode::Nearest) == 0.0);
        } else {
            assert_eq!((at(GridMode::Linear), at(GridMode::Nearest)), (4.0, 4.0));
        }
    }
    let solid = Tensor::zeros([1, 1, 2, 2, 2])
        .try_grid_sample(&Tensor::zeros([1, 1, 1, 1, 3]), GridSample::new().mode(GridMode::Cubic));
    assert!(said(solid).contains("two spatial axes"));
}

#[test]
fn samples_without_a_batch_are_accepted() {
    let x = Tensor::arange(0f32, 16.0, 1.0).reshape([1, 4, 4]);
    let batch = x.unsqueeze(0);
    let w = Tensor::ones([1, 1, 2, 2]);
    let same = |one: Tensor, many: Tensor| {
        assert_eq!([&[1], one.shape().as_slice()].concat(), many.shape());
        assert_eq!(one.to_vec::<f32>().unwrap(), many.to_vec::<f32>().unwrap());
    };
    same(x.conv2d(&w, Conv::new()), batch.conv2d(&w, Conv::new()));
    same(x.conv_transpose2d(&w, Conv::new()), batch.conv_transpose2d(&w, Conv::new()));
    let columns = batch.unfold2d([2, 2], Conv::new());
    same(x.unfold2d([2, 2], Conv::new()), columns.clone());
    same(
        columns.squeeze(0).fold2d([4, 4], [2, 2], Conv::new()),
        columns.fold2d([4, 4], [2, 2], Conv::new()),
    );
    // With one spatial axis, the batch axis is optional.
    let line = Tensor::arange(0f32, 8.0, 1.0).reshape([1, 8]);
    same(
        line.conv2d(&Tensor::ones([1, 1, 3]), Conv::new()),
        line.unsqueeze(0).conv2d(&Tensor::ones([1, 1, 3]), Conv::new()),
    );
}

#[test]
fn decompositions_accept_empty_matrices() {
    for (shape, u, s, v) in [
        (vec![0, 0], vec![0, 0], vec![0], vec![0, 0]),
        (vec![2, 0, 0], vec![2, 0, 0], vec![2, 0], vec![2, 0, 0]),
        (vec![0, 3], vec![0, 0], vec![0], vec![0, 3]),
        (vec![3, 0], vec![3, 0], vec![0], vec![0, 0]),
    ] {
        let (a, b, c) = Tensor::zeros(shape.as_slice()).svd();
        assert_eq!((a.shape(), b.shape(), c.shape()), (u, s, v), "svd of {shape:?}");
        assert_eq!(a.to_vec::<f32>().unwrap().len() + b.to_vec::<f32>().unwrap().len(), 0);
    }
}
