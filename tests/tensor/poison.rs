//! An infinity or a NaN in one element leaves independent outputs and gradients unchanged, bit for
//! bit. A product with a mask of zeros and ones fails here, because 0·∞ is NaN.

use picograd::nn::Layer;
use picograd::tensor::{
    Attention, BinaryCrossEntropy, Conv, CrossEntropy, GridMode, GridPadding, GridSample,
    Interpolate, Pool, Quantile, Reduction, Scatter,
};
use picograd::{DType, Tensor, nn};

struct Case {
    name: &'static str,
    shape: &'static [usize],
    call: fn(&Tensor) -> Tensor,
}

const fn case(name: &'static str, shape: &'static [usize], call: fn(&Tensor) -> Tensor) -> Case {
    Case { name, shape, call }
}

fn without(index: i64) -> CrossEntropy {
    CrossEntropy::new().ignore_index(index)
}

fn places(list: &[i32]) -> Tensor {
    Tensor::from_slice(list, [list.len()])
}

/// Points between the elements of an image, some of them outside.
fn grid() -> Tensor {
    Tensor::new([[[[-0.9f32, -0.4], [0.3, 0.35], [0.8, -1.15], [-1.7, 1.9], [0.1, 0.6]]]])
}

const CASES: &[Case] = &[
    case("adaptive_avg_pool2d", &[1, 1, 5, 5], |x| x.adaptive_avg_pool2d(3)),
    case("adaptive_avg_pool2d.one", &[2, 7], |x| x.adaptive_avg_pool2d([3])),
    case("adaptive_max_pool2d", &[1, 1, 5, 5], |x| x.adaptive_max_pool2d(3)),
    case("AdaptiveAvgPool3d", &[1, 3, 3, 3], |x| nn::AdaptiveAvgPool3d::new(2).forward(x)),
    case("avg_pool2d", &[1, 1, 5, 5], |x| {
        x.avg_pool2d(3, Pool::new().stride(2).padding(1).exclude_padding())
    }),
    case("max_pool2d", &[1, 1, 5, 5], |x| x.max_pool2d(2, Pool::new().stride(1))),
    case("interpolate.up", &[1, 1, 4], |x| x.interpolate(8, Interpolate::Linear, true)),
    case("interpolate.corners", &[1, 1, 4, 4], |x| {
        x.interpolate([7, 7], Interpolate::Linear, true)
    }),
    case("interpolate.nearest", &[1, 1, 4], |x| x.interpolate(6, Interpolate::Nearest, false)),
    case("interpolate.cubic", &[1, 1, 5], |x| x.interpolate(10, Interpolate::Cubic, false)),
    case("interpolate.antialiased", &[1, 1, 7], |x| {
        x.interpolate(3, Interpolate::LinearAntialias, false)
    }),
    case("interpolate.antialiased_corners", &[1, 1, 7], |x| {
        x.interpolate(3, Interpolate::LinearAntialias, true)
    }),
    case("interpolate.antialiased_same", &[1, 1, 4, 4], |x| {
        x.interpolate([4, 4], Interpolate::LinearAntialias, true)
    }),
    case("interpolate.antialiased_cubic", &[1, 1, 9], |x| {
        x.interpolate(4, Interpolate::CubicAntialias, true)
    }),
    case("grid_sample", &[1, 1, 3, 4], |x| x.grid_sample(&grid(), GridSample::new())),
    case("grid_sample.border", &[1, 1, 3, 4], |x| {
        x.grid_sample(&grid(), GridSample::new().padding(GridPadding::Border))
    }),
    case("grid_sample.nearest", &[1, 1, 3, 4], |x| {
        x.grid_sample(&grid(), GridSample::new().mode(GridMode::Nearest))
    }),
    case("grid_sample.cubic", &[1, 1, 6, 6], |x| {
        x.grid_sample(&grid(), GridSample::new().mode(GridMode::Cubic))
    }),
    case("unfold2d", &[1, 1, 3, 3], |x| x.unfold2d(2, Conv::new().padding(1))),
    case("fold2d", &[1, 4, 2], |x| x.fold2d([2, 3], 2, Conv::new())),
    case("fold2d.apart", &[1, 2, 3], |x| x.fold2d([5, 4], [1, 2], Conv::new().stride([2, 3]))),
    case("tril", &[3, 3], |x| x.tril(0)),
    case("triu", &[3, 3], |x| x.triu(1)),
    case("masked_fill", &[6], |x| {
        x.masked_fill(&Tensor::new([true, false, true, false, true, false]), 2.0)
    }),
    case("where", &[4], |x| Tensor::new([true, false, true, false]).where_(x, x.flip(0))),
    case("gather", &[4, 3], |x| x.gather(0, &Tensor::new([[0, 2, 3], [1, 1, 2]]))),
    case("index_select", &[4, 3], |x| x.index_select(0, &places(&[3, 1]))),
    case("scatter", &[4], |x| Tensor::zeros([6]).scatter(0, &places(&[5, 0, 3, 2]), x)),
    case("index_add", &[4], |x| Tensor::zeros([4]).index_add(0, &places(&[0, 1, 0, 2]), x, 2.0)),
    case("index_add.table", &[4], |x| {
        x.index_add(0, &places(&[0, 2, 0]), &Tensor::new([1f32, 2.0, 3.0]), 1.0)
    }),
    case("index_put", &[4], |x| Tensor::zeros([5]).index_put(&[&places(&[0, 4, 0, 2])], x, true)),
    case("masked_scatter", &[4], |x| {
        Tensor::zeros([5]).masked_scatter(&Tensor::new([true, false, true, false, true]), x)
    }),
    case("masked_scatter.table", &[4], |x| {
        let mask = Tensor::new([true, false, false, true]);
        x.masked_scatter(&mask, &Tensor::new([1f32, 2.0, 3.0, 4.0]))
    }),
    case("quantile", &[3, 4], |x| x.quantile(0.4, 1, Quantile::Linear)),
    case("quantile.exact", &[3, 5], |x| x.quantile(0.5, 1, Quantile::Linear)),
    case("quantile.several", &[4, 3], |x| {
        x.quantile(Tensor::new([0f32, 0.25, 1.0]), 0, Quantile::Midpoint)
    }),
    case("median", &[3, 5], |x| x.median(1).0),
    case("cumsum", &[3, 4], |x| x.cumsum(1)),
    case("cummax", &[3, 4], |x| x.cummax(1).0),
    case("softmax", &[3, 4], |x| x.softmax(1)),
    case("log_softmax", &[3, 4], |x| x.log_softmax(1)),
    case("logsumexp", &[3, 4], |x| x.logsumexp(1)),
    case("layernorm", &[3, 4], |x| x.layernorm(1, 1e-5)),
    case("normalize", &[3, 4], |x| x.normalize(2.0, 1, 1e-12)),
    case("std", &[3, 4], |x| x.std(1, 1)),
    case("max", &[3, 4], |x| x.max(1)),
    case("sort", &[2, 4], |x| x.sort(1, false).0),
    case("relu", &[5], |x| x.relu()),
    case("clamp", &[5], |x| x.clamp(-1.0, 1.0)),
    case("maximum", &[2, 3], |x| x.maximum(0.25)),
    case("silu", &[5], |x| x.silu()),
    case("gelu", &[5], |x| x.gelu()),
    case("mish", &[5], |x| x.mish()),
    case("softplus", &[5], |x| x.softplus(1.0)),
    case("cross_entropy.each", &[3, 4], |x| x.cross_entropy(&places(&[0, 1, 2]), Reduction::None)),
    case("cross_entropy.ignored", &[3, 4], |x| {
        x.cross_entropy(&places(&[0, 1, 2]), without(1).reduction(Reduction::None))
    }),
    case("cross_entropy.ignored_last", &[3, 4], |x| {
        x.cross_entropy(&places(&[0, 1, -100]), Reduction::None)
    }),
    case("cross_entropy.mean", &[3, 4], |x| x.cross_entropy(&places(&[0, 1, 2]), without(1))),
    case("cross_entropy.sum", &[3, 4], |x| {
        x.cross_entropy(&places(&[0, 1, 2]), without(2).reduction(Reduction::Sum))
    }),
    case("cross_entropy.smooth", &[3, 4], |x| {
        x.cross_entropy(&places(&[0, 1, 2]), without(1).label_smoothing(0.1))
    }),
    case("cross_entropy.weights", &[3, 4], |x| {
        x.cross_entropy(&places(&[0, 1, 2]), without(1).weight(&Tensor::new([1f32, 2.0, 0.5, 3.0])))
    }),
    case("cross_entropy.pixels", &[2, 3, 2], |x| {
        x.cross_entropy(&Tensor::new([[0, 1], [2, 1]]), without(1))
    }),
    case("cross_entropy.none_left", &[2, 3], |x| {
        x.cross_entropy(&places(&[1, 1]), without(1).reduction(Reduction::Sum))
    }),
    case("sparse_categorical_crossentropy", &[3, 4], |x| {
        x.sparse_categorical_crossentropy(&places(&[0, 1, 2]), without(1))
    }),
    case("nll_loss.ignored", &[3, 4], |x| x.nll_loss(&places(&[0, 1, 2]), without(1))),
    case("nll_loss.smooth", &[3, 4], |x| {
        x.nll_loss(&places(&[0, 1, 2]), without(1).label_smoothing(0.1))
    }),
    case("nll_loss.weights", &[3, 4], |x| {
        x.nll_loss(&places(&[0, 1, 2]), without(1).weight(&Tensor::new([1f32, 2.0, 0.5, 3.0])))
    }),
    case("kl_div", &[3, 4], |x| x.kl_div(&Tensor::full([3, 4], 0.25f32), false, Reduction::None)),
    case("binary_crossentropy_logits", &[6], |x| {
        let y = Tensor::new([0f32, 1.0, 0.0, 1.0, 0.5, 0.25]);
        x.binary_crossentropy_logits(&y, BinaryCrossEntropy::new().reduction(Reduction::None))
    }),
    case("scatter_reduce.amax", &[6], |x| {
        Tensor::zeros([3]).scatter_reduce(0, &places(&[0, 1, 2, 0, 1, 2]), x, Scatter::Amax, true)
    }),
    case("scatter_reduce.mean", &[6], |x| {
        Tensor::zeros([3]).scatter_reduce(0, &places(&[0, 1, 2, 0, 1, 2]), x, Scatter::Mean, true)
    }),
    case("embedding", &[5, 3], |x| x.index_select(0, &places(&[4, 0, 0, 2]))),
    case("groupnorm", &[2, 4, 2], |x| nn::GroupNorm::new(2, 4).forward(x)),
    case("batched_matmul", &[3, 2, 2], |x| x.matmul(&(x * 0.5))),
    case("conv1d.batch", &[3, 1, 4], |x| x.conv2d(&Tensor::new([[[1f32, 2.0]]]), Conv::new())),
    case("var", &[4, 3], |x| x.var(1, 1)),
    case("min", &[3, 4], |x| x.min(1)),
    case("topk", &[3, 4], |x| x.topk(2, 1, true, true).0),
    case("diagonal", &[4, 4], |x| x.diagonal(0, 0, 1)),
    case("nll_loss", &[3, 4], |x| x.nll_loss(&places(&[0, 1, 2]), Reduction::None)),
    case("binary_crossentropy", &[4], |x| {
        let y = Tensor::new([0f32, 1.0, 0.0, 1.0]);
        x.sigmoid().binary_crossentropy(&y, BinaryCrossEntropy::new().reduction(Reduction::None))
    }),
    case("huber_loss", &[4], |x| x.huber_loss(&Tensor::zeros([4]), 1.0, Reduction::None)),
    case("attention.query", &[3, 4], |x| {
        let k = Tensor::arange(0f32, 12.0, 1.0).reshape([3, 4]) * 0.1;
        // Every query has at least two keys: the softmax over one key is 1 for every finite score,
        // and NaN for an infinite one.
        let seen = Tensor::new([[true, true, false], [false, true, true], [true, true, true]]);
        x.scaled_dot_product_attention(&k, &k, Attention::new().mask(&seen))
    }),
    case("pad", &[3], |x| x.pad(&[(1, 2)])),
    case("unfold", &[6], |x| x.unfold(0, 2, 2)),
    case("prod", &[3, 3], |x| x.prod(1)),
    case("matmul.rows", &[3, 2], |x| x.matmul(&Tensor::new([[1f32, 2.0], [3.0, 4.0]]))),
];

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 + 3) % 11) as f32 * 0.17 - 0.8).collect()
}

/// Outputs, and the gradient of each output by itself: `[outputs, inputs]`.
fn run(case: &Case, values: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let x = Tensor::from_slice(values, case.shape).as_param();
    let y = (case.call)(&x);
    let out = y.cast(DType::F32).to_vec::<f32>().unwrap();
    let flat = y.reshape([out.len()]);
    let mut rows = Vec::new();
    for i in 0..out.len() {
        rows.extend(flat.i(i as isize).gradient(&[&x])[0].to_vec::<f32>().unwrap());
    }
    (out, rows)
}

#[test]
fn independent_outputs_are_not_poisoned() {
    let mut checked = 0;
    for case in CASES {
        let n: usize = case.shape.iter().product();
        let clean = numbers(n);
        let (out, rows) = run(case, &clean);
        // The ends, and two elements in between.
        for at in [0, n / 3, n / 2, n - 1] {
            // An output depends on the element if it changes with it or has a gradient there.
            let moved: Vec<Vec<f32>> = [40.0, -40.0]
                .map(|by| {
                    let mut other = clean.clone();
                    other[at] += by;
                    run(case, &other).0
                })
                .to_vec();
            let depends = |i: usize| {
                moved.iter().any(|m| m[i].to_bits() != out[i].to_bits()) || rows[i * n + at] != 0.0
            };
            // The gradient of an element that shares an output with the poisoned one is 0 times
            // that output.
            let coupled =
                |j: usize| j == at || (0..out.len()).any(|i| depends(i) && rows[i * n + j] != 0.0);
            for poison in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                let mut values = clean.clone();
                values[at] = poison;
                let (got, got_rows) = run(case, &values);
                for i in (0..out.len()).filter(|&i| !depends(i)) {
                    assert_eq!(
                        got[i].to_bits(),
                        out[i].to_bits(),
                        "{}: output {i} with {poison} at {at} is {}, was {}",
                        case.name,
                        got[i],
                        out[i]
                    );
                    for j in (0..n).filter(|&j| !coupled(j)) {
                        let (g, w) = (got_rows[i * n + j], rows[i * n + j]);
                        assert!(
                            g == w,
                            "{}: the gradient of output {i} by {j} with {poison} at {at} is {g}, \
                             was {w}",
                            case.name
                        );
                        checked += 1;
                    }
                }
            }
        }
    }
    println!("{checked} gradients");
    assert!(checked > 30_000, "{checked}");
}

/// Dropout selects: a dropped infinity or NaN is 0, and so is its gradient.
#[test]
fn dropped_elements_are_zeros() {
    for poison in [f32::INFINITY, f32::NAN] {
        let x = Tensor::full([1000], poison).contiguous().realize().unwrap().as_param();
        let y = x.dropout(0.5);
        let g = y.sum(..).gradient(&[&x]).remove(0);
        Tensor::realize_many(&[&y, &g]).unwrap();
        let (y, g) = (y.to_vec::<f32>().unwrap(), g.to_vec::<f32>().unwrap());
        let dropped = y.iter().filter(|&&v| v == 0.0).count();
        assert!((300..700).contains(&dropped), "{dropped} of 1000");
        for (y, g) in y.iter().zip(g) {
            assert_eq!(g, if *y == 0.0 { 0.0 } else { 2.0 }, "the gradient at {y}");
            assert!(*y == 0.0 || y.to_bits() == poison.to_bits() || y.is_nan() == poison.is_nan());
        }
    }
}
