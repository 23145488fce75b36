//! Ops of every family, of a tensor with any number of elements, for the count of visits.

use picograd::nn::{GRU, LSTM};
use picograd::tensor::{
    Attention, Conv, Ctc, GridMode, GridSample, Interpolate, PadMode, Pool, Quantile, Reduction,
    Scatter, TripletMargin, keepdim,
};
use picograd::{DType, Device, Tensor};

/// A name, and the call on a tensor of one axis.
pub type Case = (&'static str, fn(&Tensor) -> Tensor);

/// The first elements of `x` as a square matrix.
fn square(x: &Tensor) -> Tensor {
    let n = x.numel().isqrt();
    x.i(..n * n).reshape([n, n])
}

/// The elements in this many rows.
fn in_rows(x: &Tensor, rows: usize) -> Tensor {
    x.reshape([rows, x.numel() / rows])
}

/// The elements in rows of this length.
fn rows_of(x: &Tensor, length: usize) -> Tensor {
    x.reshape([x.numel() / length, length])
}

/// An image of four channels.
fn image(x: &Tensor) -> Tensor {
    let n = (x.numel() / 4).isqrt();
    x.i(..4 * n * n).reshape([1, 4, n, n])
}

/// A batch of matrices of 8×8.
fn matrices(x: &Tensor) -> Tensor {
    let n = x.numel() / 64;
    x.i(..64 * n).reshape([n, 8, 8])
}

/// Stored integers on the device that runs nothing.
fn ints(n: usize) -> Tensor {
    Tensor::zeros([n]).cast(DType::I32).to("null").contiguous().realize().unwrap()
}

fn bools(n: usize) -> Tensor {
    Tensor::zeros([n]).cast(DType::BOOL).to("null").contiguous().realize().unwrap()
}

fn floats(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape).to("null").contiguous().realize().unwrap()
}

/// Indices into an axis of `n` elements, as many.
fn indices(x: &Tensor) -> Tensor {
    ints(x.numel())
}

fn updated(x: &Tensor, how: Scatter) -> Tensor {
    floats(&[x.numel() / 10]).scatter_reduce(0, &indices(x), x, how, true)
}

fn heads(x: &Tensor) -> Tensor {
    x.reshape([2, x.numel() / 20, 10])
}

fn resized(x: &Tensor, mode: Interpolate) -> Tensor {
    let x = image(x);
    let n = x.size(2);
    x.interpolate([n * 2 / 3, n * 3 / 2], mode, false)
}

fn sampled(x: &Tensor, mode: GridMode) -> Tensor {
    let x = image(x);
    let n = x.size(2);
    x.grid_sample(&floats(&[1, n, n, 2]), GridSample::new().mode(mode))
}

fn ctc(x: &Tensor, frames: usize) -> Tensor {
    let batch = x.numel() / frames / 10;
    let log_probs = x.reshape([frames, batch, 10]).log_softmax(2);
    let targets = ints(batch * 4).reshape([batch, 4]);
    log_probs.ctc_loss(&targets, &(ints(batch) + frames), &(ints(batch) + 4), Ctc::new())
}

/// Steps of five vectors of 50 elements, on the device of new layers.
fn sequence(x: &Tensor) -> Tensor {
    x.reshape([x.numel() / 250, 5, 50]).to(Device::default_name().as_str())
}

pub const CASES: &[Case] = &[
    // Elementwise.
    ("add", |x| x + 1.0),
    ("tanh", |x| x.tanh()),
    ("pow", |x| x.pow(3.0)),
    ("clamp", |x| x.clamp(-1.0, 1.0)),
    ("maximum", |x| x.maximum(x.flip(0))),
    ("where", |x| bools(x.numel()).where_(x, x.flip(0))),
    ("gelu", |x| x.gelu()),
    ("softplus", |x| x.softplus(1.0)),
    ("lgamma", |x| x.lgamma()),
    ("erfinv", |x| x.erfinv()),
    ("logaddexp", |x| x.logaddexp(x.flip(0))),
    ("lerp", |x| x.lerp(&x.flip(0), 0.25)),
    ("masked_fill", |x| x.masked_fill(&bools(x.numel()), 0.0)),
    ("nan_to_num", |x| x.nan_to_num(0.0, None, None)),
    ("cast", |x| x.cast(DType::F16)),
    // Reductions.
    ("sum", |x| x.sum(..)),
    ("sum_rows", |x| square(x).sum(1)),
    ("sum_columns", |x| square(x).sum(0)),
    ("prod", |x| x.prod(..)),
    ("prod_rows", |x| square(x).prod(1)),
    ("max", |x| x.max(..)),
    ("max_rows", |x| square(x).max(keepdim(1))),
    ("min_columns", |x| square(x).min(0)),
    ("mean", |x| x.mean(..)),
    ("var", |x| x.var(.., 1)),
    ("std_rows", |x| square(x).std(1, 1)),
    ("argmax", |x| x.argmax(0)),
    ("max_with_index", |x| square(x).max_with_index(1).0),
    ("any", |x| x.gt(1.0).any(..)),
    ("norm", |x| x.norm(2.0, ..)),
    ("norm3", |x| x.norm(3.0, ..)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("softmax", |x| x.softmax(-1)),
    ("log_softmax", |x| square(x).log_softmax(1)),
    ("nanmean", |x| x.nanmean(..)),
    ("count_nonzero", |x| x.count_nonzero(..)),
    // Scans.
    ("cumsum", |x| x.cumsum(0)),
    ("cumsum_rows", |x| square(x).cumsum(1)),
    ("cumprod", |x| x.cumprod(0)),
    ("cumprod_rows", |x| square(x).cumprod(1)),
    ("cummax", |x| x.cummax(0).0),
    ("cummin_columns", |x| square(x).cummin(0).0),
    ("logcumsumexp", |x| x.logcumsumexp(0)),
    ("diff", |x| x.diff(2, 0, None, None)),
    // Sorting and order statistics.
    ("sort", |x| x.sort(0, false).0),
    ("sort_rows", |x| square(x).sort(1, false).0),
    ("argsort", |x| x.argsort(0, true)),
    ("topk", |x| x.topk(10, 0, true, true).0),
    ("topk_rows", |x| rows_of(x, 100).topk(10, 1, true, true).0),
    ("median", |x| x.median(0).0),
    ("kthvalue", |x| x.kthvalue(7, 0).0),
    ("mode", |x| x.mode(0).0),
    ("quantile", |x| x.quantile(0.3, 0, Quantile::Linear)),
    ("quantile_rows", |x| square(x).quantile(0.5, 1, Quantile::Lower)),
    ("unique", |x| x.unique(Some(x.numel())).0),
    ("searchsorted", |x| x.searchsorted(&x.flip(0), false, None)),
    ("histc", |x| x.histc(100, 0.0, 1.0)),
    ("isin", |x| x.isin(&floats(&[10]))),
    // Indices.
    ("gather", |x| x.gather(0, &indices(x))),
    ("gather_rows", |x| square(x).gather(0, &square(&indices(x)))),
    ("index_select", |x| rows_of(x, 10).index_select(0, &ints(x.numel() / 10))),
    ("take", |x| x.i(indices(x))),
    ("embedding", |x| rows_of(x, 10).index_select(0, &ints(50))),
    ("scatter", |x| floats(&[x.numel() / 10]).scatter(0, &indices(x), x)),
    ("scatter_table", |x| x.scatter(0, &ints(x.numel() / 10), 1.0)),
    ("scatter_sum", |x| updated(x, Scatter::Sum)),
    ("scatter_prod", |x| updated(x, Scatter::Prod)),
    ("scatter_mean", |x| updated(x, Scatter::Mean)),
    ("scatter_amax", |x| updated(x, Scatter::Amax)),
    ("scatter_amin", |x| updated(x, Scatter::Amin)),
    ("index_add", |x| floats(&[x.numel() / 10]).index_add(0, &indices(x), x, 1.0)),
    ("index_put", |x| floats(&[x.numel() / 10]).index_put(&[&indices(x)], x, true)),
    ("masked_scatter", |x| floats(&[x.numel()]).masked_scatter(&bools(x.numel()), x)),
    ("masked_select", |x| x.masked_select(&bools(x.numel()), Some(x.numel()))),
    ("nonzero", |x| x.nonzero(Some(x.numel()))),
    ("one_hot", |x| indices(x).one_hot(100)),
    ("diagonal", |x| square(x).diagonal(0, 0, 1)),
    ("tril", |x| square(x).tril(0)),
    // Movement.
    ("flip", |x| x.flip(0)),
    ("pad", |x| x.pad(&[(1, 2)])),
    ("pad_reflect", |x| x.pad_mode(&[(3, 4)], PadMode::Reflect)),
    ("transpose", |x| square(x).t().contiguous()),
    ("roll", |x| x.roll(3, 0)),
    ("repeat", |x| x.repeat([2])),
    ("repeat_interleave", |x| x.repeat_interleave(2, 0)),
    ("unfold", |x| x.unfold(0, 8, 4)),
    ("cat", |x| Tensor::cat(&[x.clone(), x.flip(0)], 0)),
    ("cat_columns", |x| Tensor::cat(&[square(x), square(&x.flip(0))], 1)),
    ("cat_ten", |x| Tensor::cat(&in_rows(x, 10).chunk(10, 0), 1)),
    ("stack", |x| Tensor::stack(&[x.clone(), x.flip(0)], 1)),
    ("stack_ten", |x| Tensor::stack(&in_rows(x, 10).chunk(10, 0), 0)),
    ("split", |x| x.chunk(2, 0).remove(1)),
    ("pixel_shuffle", |x| image(x).pixel_shuffle(2)),
    // Products.
    ("matmul", |x| square(x).matmul(&square(x).t())),
    ("matvec", |x| square(x).matmul(&floats(&[x.numel().isqrt()]))),
    ("dot", |x| x.dot(&x.flip(0))),
    ("bmm", |x| matrices(x).matmul(&matrices(x))),
    ("einsum", |x| Tensor::einsum("bij,bjk->bik", &[&matrices(x), &matrices(x)])),
    ("outer", |x| x.i(..100).outer(x)),
    ("cdist", |x| rows_of(x, 10).cdist(&floats(&[20, 10]), 2.0)),
    ("conv2d", |x| image(x).conv2d(&floats(&[4, 4, 3, 3]), Conv::new().padding(1))),
    ("conv2d_1x1", |x| image(x).conv2d(&floats(&[4, 4, 1, 1]), Conv::new())),
    ("conv2d_groups", |x| image(x).conv2d(&floats(&[4, 1, 3, 3]), Conv::new().groups(4).stride(2))),
    ("conv2d_kernel", |x| {
        floats(&[1, 10, 8, 8])
            .conv2d(&rows_of(x, 10).reshape([x.numel() / 10, 10, 1, 1]), Conv::new())
    }),
    ("conv_transpose2d", |x| {
        image(x).conv_transpose2d(&floats(&[4, 4, 3, 3]), Conv::new().stride(2))
    }),
    ("unfold2d", |x| image(x).unfold2d(3, Conv::new())),
    ("fold2d", |x| {
        let n = (x.numel() / 16).isqrt();
        let columns = x.i(..16 * n * n).reshape([1, 16, n * n]);
        columns.fold2d([n + 1, n + 1], 2, Conv::new())
    }),
    // Attention and layers over time.
    ("attention", |x| {
        heads(x).scaled_dot_product_attention(&heads(x), &heads(x), Attention::new())
    }),
    ("attention_causal", |x| {
        heads(x).scaled_dot_product_attention(&heads(x), &heads(x), Attention::new().causal())
    }),
    ("lstm", |x| LSTM::new(50, 5).run(&sequence(x), None).0),
    ("gru", |x| GRU::new(50, 5).run(&sequence(x), None).0),
    // Pools and images.
    ("max_pool2d", |x| image(x).max_pool2d(2, Pool::new())),
    ("max_pool2d_overlapping", |x| image(x).max_pool2d(3, Pool::new().stride(2).ceil_mode())),
    ("max_pool2d_with_indices", |x| image(x).max_pool2d_with_indices(2, Pool::new()).0),
    ("avg_pool2d", |x| image(x).avg_pool2d(3, Pool::new().stride(2).padding(1))),
    ("adaptive_avg_pool2d", |x| image(x).adaptive_avg_pool2d(5)),
    ("adaptive_max_pool2d", |x| image(x).adaptive_max_pool2d(5)),
    ("interpolate_nearest", |x| resized(x, Interpolate::Nearest)),
    ("interpolate_linear", |x| resized(x, Interpolate::Linear)),
    ("interpolate_cubic", |x| resized(x, Interpolate::Cubic)),
    ("interpolate_antialiased", |x| resized(x, Interpolate::LinearAntialias)),
    ("grid_sample", |x| sampled(x, GridMode::Linear)),
    ("grid_sample_nearest", |x| sampled(x, GridMode::Nearest)),
    ("grid_sample_cubic", |x| sampled(x, GridMode::Cubic)),
    // Norms.
    ("layernorm", |x| square(x).layernorm(1, 1e-5)),
    ("layernorm_all", |x| x.layernorm(0, 1e-5)),
    ("rmsnorm", |x| square(x).rmsnorm(1, 1e-5)),
    ("normalize", |x| square(x).normalize(2.0, 1, 1e-12)),
    ("batchnorm", |x| {
        let x = image(x);
        let (mean, var) = (x.mean([0, 2, 3]), x.var([0, 2, 3], 0));
        x.batchnorm(None, None, &mean, &(var + 1e-5).rsqrt())
    }),
    // Losses.
    ("cross_entropy", |x| rows_of(x, 10).cross_entropy(&ints(x.numel() / 10), Reduction::Mean)),
    ("cross_entropy_wide", |x| in_rows(x, 10).cross_entropy(&ints(10), Reduction::Mean)),
    ("nll_loss", |x| rows_of(x, 10).nll_loss(&ints(x.numel() / 10), Reduction::Mean)),
    ("mse_loss", |x| x.mse_loss(&floats(&[x.numel()]), Reduction::Mean)),
    ("l1_loss", |x| x.l1_loss(&floats(&[x.numel()]), Reduction::Mean)),
    ("huber_loss", |x| x.huber_loss(&floats(&[x.numel()]), 1.0, Reduction::Mean)),
    ("kl_div", |x| x.kl_div(&floats(&[x.numel()]), false, Reduction::Mean)),
    ("binary_crossentropy", |x| {
        x.sigmoid().binary_crossentropy(&floats(&[x.numel()]), Reduction::Mean)
    }),
    ("binary_crossentropy_logits", |x| {
        x.binary_crossentropy_logits(&floats(&[x.numel()]), Reduction::Mean)
    }),
    ("cosine_similarity", |x| square(x).cosine_similarity(&square(&x.flip(0)), 1, 1e-8)),
    ("triplet_margin_loss", |x| {
        let other = floats(&[x.numel() / 10, 10]);
        rows_of(x, 10).triplet_margin_loss(&other, &(&other + 1.0), TripletMargin::new())
    }),
    ("multi_margin_loss", |x| {
        rows_of(x, 10).multi_margin_loss(&ints(x.numel() / 10), Reduction::Mean)
    }),
    ("ctc_loss_frames", |x| ctc(x, x.numel() / 100)),
    ("ctc_loss_batch", |x| ctc(x, 20)),
    // Linear algebra of many matrices.
    ("solve", |x| matrices(x).solve(&matrices(x))),
    ("inverse", |x| matrices(x).inverse()),
    ("det", |x| matrices(x).det()),
    ("cholesky", |x| matrices(x).cholesky(false)),
    ("qr", |x| matrices(x).qr().1),
    ("svd", |x| matrices(x).svd().1),
    ("eigh", |x| matrices(x).eigh().0),
    ("lstsq", |x| matrices(x).lstsq(&matrices(x))),
    ("matrix_norm", |x| matrices(x).matrix_norm(1.0, [1, 2])),
    // Random numbers.
    ("dropout", |x| x.dropout(0.5)),
    ("rand_like", |x| x.rand_like()),
    ("multinomial", |x| x.multinomial(10, false)),
];
