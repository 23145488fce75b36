//! Pools of every small kernel, stride, padding and rounding against loops over the windows; the
//! gradient goes to the returned index.

use picograd::Tensor;
use picograd::tensor::Pool;

/// The pooling of one axis.
#[derive(Clone, Copy, Debug)]
struct How {
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil: bool,
}

impl How {
    /// The number of windows, by the rule of PyTorch: the last one starts inside the input or the
    /// padding before it.
    fn count(self) -> usize {
        let (size, stride) = (self.size as isize, self.stride as isize);
        let span = (self.dilation * (self.kernel - 1)) as isize + 1;
        let room = size + 2 * self.padding as isize - span;
        let count = (room + if self.ceil { stride - 1 } else { 0 }).div_euclid(stride) + 1;
        let past = self.ceil && (count - 1) * stride >= size + self.padding as isize;
        (count - past as isize).max(0) as usize
    }
    /// The indices of a window that are inside the input.
    fn window(self, i: usize) -> Vec<usize> {
        let at = |k: usize| {
            (i * self.stride + k * self.dilation)
                .checked_sub(self.padding)
                .filter(|&p| p < self.size)
        };
        (0..self.kernel).filter_map(at).collect()
    }
    fn pool(self) -> Pool {
        let pool =
            Pool::new().stride([self.stride]).padding([self.padding]).dilation([self.dilation]);
        if self.ceil { pool.ceil_mode() } else { pool }
    }
}

fn every() -> Vec<How> {
    let mut all = Vec::new();
    for size in [1, 2, 3, 5, 7] {
        for (kernel, dilation) in [(1, 1), (2, 1), (3, 1), (2, 2)] {
            for stride in 1..=3 {
                for padding in 0..=kernel / 2 {
                    all.extend([false, true].map(|ceil| How {
                        size,
                        kernel,
                        stride,
                        padding,
                        dilation,
                        ceil,
                    }));
                }
            }
        }
    }
    // A window inside the padding has no index to return, so it is excluded.
    all.retain(|h| (0..h.count()).all(|w| !h.window(w).is_empty()));
    all
}

/// Numbers with ties, a NaN and infinities.
fn numbers(n: usize, salt: usize) -> Vec<f32> {
    let list =
        [1.0, 3.0, 3.0, -2.0, 3.0, f32::NEG_INFINITY, 0.5, 3.0, f32::NAN, 1.0, f32::INFINITY];
    (0..n).map(|i| list[(i * 3 + salt) % (list.len() - 4 * (salt % 2))]).collect()
}

/// The index of the maximum: the first of equal elements, or the first NaN.
fn best(x: &[f32], window: &[usize]) -> usize {
    let mut at = window[0];
    for &p in window {
        if x[at].is_nan() {
            break;
        }
        if x[p] > x[at] || x[p].is_nan() {
            at = p;
        }
    }
    at
}

/// Those with a window at least.
fn with_windows() -> impl Iterator<Item = How> {
    every().into_iter().filter(|h| h.count() > 0)
}

/// Without a window a pool is an error that names it, with and without partial windows.
#[test]
fn pools_without_a_window_are_errors() {
    let none: Vec<How> = every().into_iter().filter(|h| h.count() == 0).collect();
    for how in &none {
        let (x, kernel) = (Tensor::zeros([1, 1, how.size]), [how.kernel]);
        for (name, e) in [
            ("max_pool2d", x.try_max_pool2d(kernel, how.pool()).err()),
            ("max_pool2d_with_indices", x.try_max_pool2d_with_indices(kernel, how.pool()).err()),
            ("avg_pool2d", x.try_avg_pool2d(kernel, how.pool()).err()),
        ] {
            let e = e.unwrap_or_else(|| panic!("{name} accepts {how:?}")).to_string();
            assert!(e.contains(&format!("{name}: a window of ")), "{how:?}: {e}");
        }
    }
    let ceil = none.iter().filter(|h| h.ceil).count();
    assert!(ceil >= 5 && none.len() > 2 * ceil, "{ceil} of {}", none.len());
}

/// A partial window lacks less than a stride: PyTorch's numbers.
#[test]
fn a_partial_window_lacks_less_than_a_stride() {
    let count = |size: usize, kernel: usize, stride: usize| {
        let how = Pool::new().stride([stride]).ceil_mode();
        let y = Tensor::zeros([1, 1, size]).try_max_pool2d([kernel], how);
        y.map(|y| y.size(2)).ok()
    };
    assert_eq!([count(1, 3, 1), count(1, 3, 2), count(2, 3, 1)], [None; 3]);
    assert_eq!([count(1, 3, 3), count(2, 3, 2), count(2, 3, 3)], [Some(1); 3]);
    assert_eq!([count(4, 3, 2), count(5, 3, 2), count(6, 3, 2)], [Some(2), Some(2), Some(3)]);
    assert_eq!([count(4, 2, 3), count(5, 2, 3), count(3, 1, 4)], [Some(2), Some(2), Some(1)]);
    let e = Tensor::zeros([1, 0]).try_max_pool2d([2], Pool::new().padding(1)).unwrap_err();
    assert!(e.to_string().contains("a pooled axis of [1, 0] has no elements"), "{e}");
}

#[test]
fn max_pools_match_loops() {
    let mut cases = 0;
    for (i, how) in with_windows().enumerate() {
        let values = numbers(how.size, i);
        let x = Tensor::from_slice(&values, [1, 1, how.size]).as_param();
        let (y, places) = x.max_pool2d_with_indices([how.kernel], how.pool());
        let want: Vec<usize> = (0..how.count()).map(|w| best(&values, &how.window(w))).collect();
        assert_eq!(y.shape(), [1, 1, how.count()], "{how:?}");
        assert_eq!(
            places.to_vec::<i32>().unwrap(),
            want.iter().map(|&p| p as i32).collect::<Vec<_>>(),
            "{how:?} {values:?}"
        );
        let same =
            |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
        let greatest: Vec<f32> = want.iter().map(|&p| values[p]).collect();
        assert!(same(&y.to_vec::<f32>().unwrap(), &greatest), "{how:?}");
        let pooled = x.max_pool2d([how.kernel], how.pool());
        assert!(same(&pooled.to_vec::<f32>().unwrap(), &greatest), "{how:?}");
        // Weights distinguish the windows.
        let weights: Vec<f32> = (0..want.len()).map(|w| 1.0 + w as f32).collect();
        let seed = Tensor::from_slice(&weights, [1, 1, weights.len()]);
        let g = pooled.gradient_with(&seed, &[&x]).unwrap().swap_remove(0);
        let mut expected = vec![0f32; how.size];
        want.iter().zip(&weights).for_each(|(&p, w)| expected[p] += w);
        assert_eq!(g.to_vec::<f32>().unwrap(), expected, "the gradient of {how:?} over {values:?}");
        cases += 1;
    }
    println!("{cases} cases");
    assert!(cases > 150);
}

#[test]
fn mean_pools_match_loops() {
    for how in with_windows() {
        let values: Vec<f32> = (0..how.size).map(|i| (i * 7 % 5) as f32).collect();
        let x = Tensor::from_slice(&values, [1, 1, how.size]);
        let sums: Vec<f32> =
            (0..how.count()).map(|w| how.window(w).iter().map(|&p| values[p]).sum()).collect();
        let inside: Vec<usize> = (0..how.count()).map(|w| how.window(w).len()).collect();
        let got = x.avg_pool2d([how.kernel], how.pool().exclude_padding()).to_vec::<f32>().unwrap();
        let want: Vec<f32> = sums.iter().zip(&inside).map(|(s, &n)| s / n as f32).collect();
        assert_eq!(got, want, "{how:?}");
        // The mean counts padding, but not the part of a window beyond it.
        let end = how.size + 2 * how.padding;
        let counted =
            |w: usize| (0..how.kernel).filter(|k| w * how.stride + k * how.dilation < end).count();
        let got = x.avg_pool2d([how.kernel], how.pool()).to_vec::<f32>().unwrap();
        let want: Vec<f32> = sums.iter().enumerate().map(|(w, s)| s / counted(w) as f32).collect();
        assert_eq!(got, want, "{how:?}");
    }
}

/// One number as kernel size is ambiguous for three axes; a list pools as many axes as it has
/// sizes.
#[test]
fn kernel_sizes_set_the_pooled_axes() {
    let x = Tensor::arange(0f32, 24.0, 1.0).reshape([2, 3, 4]);
    for e in [
        x.try_max_pool2d(2, Pool::new()),
        x.try_avg_pool2d(2, Pool::new()),
        x.try_adaptive_avg_pool2d(2),
    ] {
        assert!(e.unwrap_err().to_string().contains("expected [N, C, H, W]"));
    }
    assert_eq!(x.max_pool2d([2], Pool::new()).shape(), [2, 3, 2]);
    assert_eq!(x.max_pool2d([2, 2], Pool::new()).shape(), [2, 1, 2]);
    assert_eq!(x.max_pool2d([2, 2, 2], Pool::new()).shape(), [1, 1, 2]);
    assert_eq!(x.reshape([1, 2, 3, 4]).max_pool2d(2, Pool::new()).shape(), [1, 2, 1, 2]);
    assert!(x.reshape([1, 1, 2, 3, 4]).try_max_pool2d(2, Pool::new()).is_err());
    assert!(x.try_max_pool2d([1, 1, 1, 1], Pool::new()).is_err());
    let seven = Tensor::zeros([1, 1, 7, 7]);
    assert_eq!(seven.max_pool2d(3, Pool::new().stride(2).ceil_mode()).shape(), [1, 1, 3, 3]);
}

/// Windows `⌊i·size/n⌋ .. ⌈(i+1)·size/n⌉` of every size up to 9 into every number up to 9.
#[test]
fn adaptive_pools_match_loops() {
    for size in 1..=9usize {
        for n in 1..=9usize {
            let values: Vec<f64> = (0..size).map(|i| ((i * 5 + 2) % 7) as f64 * 0.1).collect();
            let x = Tensor::from_slice(&values, [1, size]);
            let window = |i: usize| &values[i * size / n..((i + 1) * size).div_ceil(n)];
            let means: Vec<f64> =
                (0..n).map(|i| window(i).iter().sum::<f64>() / window(i).len() as f64).collect();
            let got = x.adaptive_avg_pool2d([n]).to_vec::<f64>().unwrap();
            assert!(
                got.iter().zip(&means).all(|(g, w)| (g - w).abs() <= 1e-15),
                "{size} into {n}: {got:?}, expected {means:?}"
            );
            let greatest: Vec<f64> =
                (0..n).map(|i| window(i).iter().copied().fold(f64::MIN, f64::max)).collect();
            assert_eq!(
                x.adaptive_max_pool2d([n]).to_vec::<f64>().unwrap(),
                greatest,
                "{size} into {n}"
            );
        }
    }
}
