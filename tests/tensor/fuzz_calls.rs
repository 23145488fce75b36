//! The `try_` methods that `fuzz.rs` calls, each with arguments from a [`Draw`].

use crate::fuzz::{Draw, HUGE, REDUCTIONS};
use picograd::ir::Op;
use picograd::tensor::{
    Attention, Ctc, GaussianNll, GridMode, GridPadding, GridSample, Interpolate, Keccak,
    MatrixNorm, MultiMargin, PadMode, PoissonNll, Quantile, Rounding, Scatter, TripletMargin,
    keepdim, step,
};
use picograd::{DType, Error, Tensor};

/// A call with generated arguments.
type Call = fn(&mut Draw) -> Result<(), Error>;

/// The calls, by name.
macro_rules! calls {
    ($($name:ident: |$d:ident| $call:expr;)*) => {
        pub(crate) const CALLS: &[(&str, Call)] =
            &[$((stringify!($name), |$d| { $call.map(drop) })),*];
    };
}

calls! {
    try_sum: |d| d.t().try_sum(d.ss());
    try_prod: |d| d.t().try_prod(keepdim(d.ss()));
    try_max: |d| d.t().try_max(d.s());
    try_min: |d| d.t().try_min(d.ss());
    try_mean: |d| d.t().try_mean(d.ss());
    try_var: |d| d.t().try_var(d.ss(), d.n());
    try_std: |d| d.t().try_std(d.ss(), d.n());
    try_var_mean: |d| d.t().try_var_mean(d.ss(), d.n());
    try_std_mean: |d| d.t().try_std_mean(d.ss(), d.n());
    try_usum: |d| Tensor::try_usum(&[&d.t(), &d.t(), &d.t()][..d.below(4)]);
    try_uprod: |d| Tensor::try_uprod(&[&d.t(), &d.t(), &d.t()][..d.below(4)]);
    try_any: |d| d.t().try_any(d.ss());
    try_all: |d| d.t().try_all(d.ss());
    try_argmax: |d| d.t().try_argmax(d.s());
    try_argmin: |d| d.t().try_argmin(d.ss());
    try_i: |d| match d.below(6) {
        0 => d.t().try_i(d.s()),
        1 => d.t().try_i(d.s()..d.s()),
        3 => d.t().try_i(d.s()..=d.s()),
        4 => d.t().try_i(..=isize::MAX),
        2 => d.t().try_i((d.s(), d.s()..)),
        _ => d.t().try_i((.., step(d.s()..d.s(), d.s()))),
    };
    try_as_param: |d| d.t().try_as_param();
    try_backward: |d| d.small().try_backward();
    try_gradient: |d| d.small().try_gradient(&[&d.small(), &d.t()]);
    try_new: |d| Tensor::try_new(vec![vec![1.0f32; d.below(4)], vec![2.0; d.below(4)]]);
    try_from_vec: |d| Tensor::try_from_vec(vec![1i32; d.below(9)], d.ss());
    try_from_slice: |d| Tensor::try_from_slice(&vec![1i32; d.below(9)], d.ss());
    try_from_bytes: |d|
        Tensor::try_from_bytes(
            &vec![1; d.below(40)],
            d.pick(&[DType::F32, DType::VOID, DType::BOOL, DType::U64]),
            d.ss(),
        );
    try_full: |d| Tensor::try_full(d.ns(), d.f());
    try_zeros: |d| Tensor::try_zeros(d.ss());
    try_ones: |d| Tensor::try_ones(d.ns());
    try_empty: |d| Tensor::try_empty(d.ss());
    try_invalids: |d| Tensor::try_invalids(d.ss());
    try_from_blob: |d| Tensor::try_from_blob(vec![1i32; d.below(9)], d.ss());
    try_arange: |d| match d.below(3) {
        0 => Tensor::try_arange(d.f(), d.f(), d.f()),
        1 => Tensor::try_arange(d.s() as i64, d.s() as i64, d.s() as i64),
        _ => Tensor::try_arange(d.n() as u8, d.n() as u8, d.n() as u8),
    };
    try_linspace: |d| Tensor::try_linspace(d.f(), d.f(), d.n());
    try_eye: |d| Tensor::try_eye(d.n(), d.n());
    try_meshgrid: |d| Tensor::try_meshgrid(&[d.t(), d.t(), d.t()][..d.below(4)]);
    try_one_hot: |d| d.t().try_one_hot(d.n());
    try_tril: |d| d.t().try_tril(d.s() as i64);
    try_triu: |d| d.t().try_triu(d.s() as i64);
    try_sort: |d| d.t().try_sort(d.s(), d.coin());
    try_argsort: |d| d.t().try_argsort(d.s(), d.coin());
    try_topk: |d| d.t().try_topk(d.n(), d.s(), d.coin(), d.coin());
    try_max_pool2d: |d| d.image().try_max_pool2d(d.spatial(), d.pool());
    try_max_pool2d_with_indices: |d| d.image().try_max_pool2d_with_indices(d.spatial(), d.pool());
    try_max_unpool2d: |d| {
        let size = if d.coin() { Some([d.n(), d.n()]) } else { None };
        let x = d.image();
        let index = if d.below(3) == 0 { d.index() } else { Tensor::full(x.shape(), d.s() as i64) };
        x.try_max_unpool2d(&index, d.spatial(), d.pool(), size)
    };
    try_avg_pool2d: |d| d.image().try_avg_pool2d(d.spatial(), d.pool());
    try_hash: |d| d.small().try_hash();
    try_keccak: |d| d.t().try_keccak(d.pick(&[Keccak::Sha3_256, Keccak::Shake128]));
    try_gather: |d| d.t().try_gather(d.s(), &d.index());
    try_index_select: |d| d.t().try_index_select(d.s(), &d.index());
    try_scatter: |d| d.t().try_scatter(d.s(), &d.index(), d.t());
    try_scatter_reduce: |d| {
        let how =
            d.pick(&[Scatter::Sum, Scatter::Prod, Scatter::Mean, Scatter::Amax, Scatter::Amin]);
        d.t().try_scatter_reduce(d.s(), &d.index(), d.t(), how, d.coin())
    };
    try_nonzero: |d| d.t().try_nonzero(Some(d.n()));
    try_masked_select: |d| d.t().try_masked_select(&d.t(), Some(d.n()));
    try_matmul: |d| d.t().try_matmul(&d.t());
    try_dot: |d| d.t().try_dot(&d.t());
    try_linear: |d| d.t().try_linear(&d.t(), Some(&d.t()));
    try_scaled_dot_product_attention: |d| {
        let how = Attention::new().scale(d.f());
        let how = if d.coin() { how.causal() } else { how.mask(&d.t()) };
        let how = if d.coin() { how.grouped() } else { how };
        d.t().try_scaled_dot_product_attention(&d.t(), &d.t(), how)
    };
    try_reshape: |d| d.t().try_reshape(d.ss());
    try_view: |d| d.t().try_view(d.ss());
    try_expand: |d| d.t().try_expand(d.ss());
    try_permute: |d| d.t().try_permute(d.ss());
    try_transpose: |d| d.t().try_transpose(d.s(), d.s());
    try_t: |d| d.t().try_t();
    try_pad: |d| d.t().try_pad(&d.pairs());
    try_pad_with: |d| d.t().try_pad_with(&d.pairs(), d.f());
    try_shrink: |d| d.t().try_shrink(&d.pairs());
    try_flip: |d| d.t().try_flip(d.ss());
    try_squeeze: |d| d.t().try_squeeze(d.ss());
    try_unsqueeze: |d| d.t().try_unsqueeze(d.s());
    try_flatten: |d| d.t().try_flatten(d.s(), d.s());
    try_unflatten: |d| d.t().try_unflatten(d.s(), d.ss());
    try_cat: |d| Tensor::try_cat(&[d.t(), d.t(), d.t()][..d.below(4)], d.s());
    try_stack: |d| Tensor::try_stack(&[d.t(), d.t(), d.t()][..d.below(4)], d.s());
    try_repeat: |d| d.t().try_repeat(d.ss());
    try_repeat_interleave: |d| d.t().try_repeat_interleave(d.n(), d.s());
    try_split: |d|
        if d.coin() { d.t().try_split(d.ss(), d.s()) } else { d.t().try_split(d.n(), d.s()) };
    try_chunk: |d| d.t().try_chunk(d.n(), d.s());
    try_roll: |d| d.t().try_roll(d.s(), d.s());
    try_diagonal: |d| d.t().try_diagonal(d.s(), d.s(), d.s());
    try_diag: |d| d.t().try_diag();
    try_unfold: |d| d.t().try_unfold(d.s(), d.n(), d.n());
    try_pad_to: |d| d.t().try_pad_to(d.ss());
    try_shrink_to: |d| d.t().try_shrink_to(d.ss());
    try_alu: |d| {
        let op = d.pick(&[Op::Add, Op::Where, Op::Add, Op::Exp, Op::Load, Op::Sink, Op::Shl]);
        d.t().try_alu(op, &[&d.t(), &d.t()][..d.below(3)])
    };
    try_add: |d| d.t().try_add(d.t());
    try_sub: |d| d.t().try_sub(d.f());
    try_mul: |d| d.t().try_mul(d.s() as i64);
    try_div: |d| d.t().try_div(d.f());
    try_idiv: |d| d.t().try_idiv(d.s() as i64);
    try_modulo: |d| d.t().try_modulo(d.f());
    try_div_rounded: |d| d.t().try_div_rounded(d.f(), d.pick(&[Rounding::Trunc, Rounding::Floor]));
    try_fmod: |d| d.t().try_fmod(d.f());
    try_pow: |d| d.t().try_pow(d.f());
    try_maximum: |d| d.t().try_maximum(d.t());
    try_minimum: |d| d.t().try_minimum(d.f());
    try_bitwise_and: |d| d.t().try_bitwise_and(d.s() as i64);
    try_bitwise_or: |d| d.t().try_bitwise_or(d.t());
    try_bitwise_xor: |d| d.t().try_bitwise_xor(d.t());
    try_lshift: |d| d.t().try_lshift(d.s() as i64);
    try_rshift: |d| d.t().try_rshift(d.s() as i64);
    try_bitwise_not: |d| d.t().try_bitwise_not();
    try_neg: |d| d.t().try_neg();
    try_qr: |d| d.small().try_qr();
    try_svd: |d| d.small().try_svd();
    try_newton_schulz: |d| d.small().try_newton_schulz(d.n(), (d.f(), d.f(), d.f()), d.f());
    try_einsum: |d| {
        let formula = d.pick(&[
            "ij,jk->ik",
            "i,i",
            "->",
            "",
            "ij->",
            "...i,i->...",
            "ii->i",
            "a->b",
            "ij,jk->ikk",
            "éé",
            "i->ii",
            ",",
            "ijklmn->n",
        ]);
        Tensor::try_einsum(formula, &[&d.t(), &d.t()][..d.below(3)])
    };
    try_rearrange: |d| {
        let formula = d.pick(&[
            "a b -> b a",
            "(a b) -> a b",
            "a b c -> (a b c)",
            "a ->",
            "",
            "((",
            "a a -> a",
            "... -> ...",
            "a (b c) -> b a c",
        ]);
        d.t().try_rearrange(formula, &[("a", d.n()), ("b", d.n())][..d.below(3)])
    };
    try_conv2d: |d| {
        let (x, w) = d.filtered();
        x.try_conv2d(&w, d.conv())
    };
    try_conv_transpose2d: |d| {
        let (x, w) = d.filtered();
        x.try_conv_transpose2d(&w, d.conv())
    };
    try_eq: |d| d.t().try_eq(d.t());
    try_ne: |d| d.t().try_ne(d.f());
    try_lt: |d| d.t().try_lt(d.f());
    try_le: |d| d.t().try_le(d.s() as i64);
    try_gt: |d| d.t().try_gt(d.t());
    try_ge: |d| d.t().try_ge(d.t());
    try_logical_and: |d| d.t().try_logical_and(d.t());
    try_logical_or: |d| d.t().try_logical_or(d.t());
    try_logical_xor: |d| d.t().try_logical_xor(d.t());
    try_where_: |d| d.t().try_where_(d.t(), d.f());
    try_masked_fill: |d| d.t().try_masked_fill(&d.t(), d.f());
    try_atan2: |d| d.t().try_atan2(&d.t());
    try_cast: |d|
        d.t().try_cast(
            d.pick(&[DType::F32, DType::VOID, DType::BOOL, DType::F8E4M3, DType::INDEX]),
        );
    try_bitcast: |d|
        d.t().try_bitcast(d.pick(&[DType::F32, DType::VOID, DType::BOOL, DType::U8, DType::U64]));
    try_pad_mode: |d|
        d.t().try_pad_mode(
            &d.pairs(),
            d.pick(&[PadMode::Reflect, PadMode::Replicate, PadMode::Circular]),
        );
    try_interpolate: |d| {
        let mode = d.pick(&[
            Interpolate::Nearest,
            Interpolate::NearestExact,
            Interpolate::Linear,
            Interpolate::Cubic,
            Interpolate::LinearAntialias,
            Interpolate::CubicAntialias,
        ]);
        d.image().try_interpolate(d.ss(), mode, d.coin())
    };
    try_to: |d|
        d.t().try_to(d.pick(&[
            "INTERP",
            "",
            ":",
            "CPU:99999999999999999999",
            "NULL",
            "DISK",
            "INTERP+",
            "+",
            "INTERP:1",
        ]));
    try_cumsum: |d| d.t().try_cumsum(d.s());
    try_cumprod: |d| d.t().try_cumprod(d.s());
    try_cummax: |d| d.t().try_cummax(d.s());
    try_cummin: |d| d.t().try_cummin(d.s());
    try_logcumsumexp: |d| d.t().try_logcumsumexp(d.s());
    try_shard: |d| {
        let axis = if d.coin() { Some(d.s()) } else { None };
        d.t().try_shard(&["INTERP", "INTERP:1", "NULL"][..d.below(4)], axis)
    };
    try_shard_like: |d| d.t().try_shard_like(&d.t());
    try_clamp: |d| d.t().try_clamp(d.f(), d.f());
    try_clip: |d| d.t().try_clip(d.f(), d.f());
    try_lerp: |d| d.t().try_lerp(&d.t(), d.f());
    try_copysign: |d| d.t().try_copysign(&d.t());
    try_logaddexp: |d| d.t().try_logaddexp(d.f());
    try_isclose: |d| d.t().try_isclose(&d.t(), d.f(), d.f());
    try_allclose: |d| d.t().try_allclose(&d.t(), d.f(), d.f());
    try_random_bits: |d| Tensor::try_random_bits(d.ss());
    try_threefry: |d| d.t().try_threefry(&d.t());
    try_randperm: |d| Tensor::try_randperm(if d.coin() { d.below(50) } else { d.pick(&HUGE) });
    try_multinomial: |d| d.t().try_multinomial(d.n(), d.coin());
    try_rand: |d| Tensor::try_rand(d.ss());
    try_randn: |d| Tensor::try_randn(d.ss());
    try_randint: |d| Tensor::try_randint(d.ns(), d.s() as i32, d.s() as i32);
    try_uniform: |d| Tensor::try_uniform(d.ns(), d.f(), d.f());
    try_normal: |d| Tensor::try_normal(d.ns(), d.f(), d.f());
    try_scaled_uniform: |d| Tensor::try_scaled_uniform(d.ns());
    try_glorot_uniform: |d| Tensor::try_glorot_uniform(d.ns());
    try_kaiming_uniform: |d| Tensor::try_kaiming_uniform(d.ns(), d.f());
    try_kaiming_normal: |d| Tensor::try_kaiming_normal(d.ns(), d.f());
    try_dropout: |d| d.t().try_dropout(d.f());
    try_softmax: |d| d.t().try_softmax(d.s());
    try_softmin: |d| d.t().try_softmin(d.s());
    try_log_softmax: |d| d.t().try_log_softmax(d.s());
    try_logsumexp: |d| d.t().try_logsumexp(d.ss());
    try_layernorm: |d| d.t().try_layernorm(d.ss(), d.f());
    try_rmsnorm: |d| d.t().try_rmsnorm(d.ss(), d.f());
    try_batchnorm: |d| d.t().try_batchnorm(Some(&d.t()), None, &d.t(), &d.t());
    try_normalize: |d| d.t().try_normalize(d.f(), d.ss(), d.f());
    try_glu: |d| d.t().try_glu(d.s());
    try_cross_entropy: |d| d.t().try_cross_entropy(&d.t(), d.classes());
    try_nll_loss: |d| d.t().try_nll_loss(&d.index(), d.classes());
    try_sparse_categorical_crossentropy: |d|
        d.t().try_sparse_categorical_crossentropy(&d.index(), d.classes());
    try_binary_crossentropy: |d| d.t().try_binary_crossentropy(&d.t(), d.binary());
    try_binary_crossentropy_logits: |d| d.t().try_binary_crossentropy_logits(&d.t(), d.binary());
    try_mse_loss: |d| d.t().try_mse_loss(&d.t(), d.pick(&REDUCTIONS));
    try_l1_loss: |d| d.t().try_l1_loss(&d.t(), d.pick(&REDUCTIONS));
    try_huber_loss: |d| d.t().try_huber_loss(&d.t(), d.f(), d.pick(&REDUCTIONS));
    try_smooth_l1_loss: |d| d.t().try_smooth_l1_loss(&d.t(), d.f(), d.pick(&REDUCTIONS));
    try_kl_div: |d| d.t().try_kl_div(&d.t(), d.coin(), d.pick(&REDUCTIONS));
    try_cosine_similarity: |d| d.t().try_cosine_similarity(&d.t(), d.s(), d.f());
    try_cosine_embedding_loss: |d|
        d.t().try_cosine_embedding_loss(&d.t(), &d.t(), d.f(), d.pick(&REDUCTIONS));
    try_adaptive_avg_pool2d: |d| d.image().try_adaptive_avg_pool2d(d.spatial());
    try_adaptive_max_pool2d: |d| d.image().try_adaptive_max_pool2d(d.spatial());
    try_index_add: |d| {
        let (x, n) = (d.small(), d.below(3));
        let sizes: Vec<usize> =
            x.shape().iter().enumerate().map(|(i, &s)| if i == 0 { n } else { s }).collect();
        let source = if d.coin() { Tensor::ones(sizes).cast(x.dtype()) } else { d.t() };
        let index = if d.coin() { Tensor::full([n], d.s() as i64) } else { d.index() };
        x.try_index_add(if d.coin() { 0 } else { d.s() }, &index, &source, d.f())
    };
    try_index_put: |d| {
        let indices = [d.index(), if d.coin() { d.index() } else { d.small().bool() }, d.index()];
        let indices: Vec<&Tensor> = indices.iter().skip(d.below(3)).collect();
        d.t().try_index_put(&indices[..d.below(indices.len() + 1)], d.t(), d.coin())
    };
    try_masked_scatter: |d| d.t().try_masked_scatter(&d.t().bool(), &d.t());
    try_movedim: |d| match d.coin() {
        true => d.t().try_movedim(d.s(), d.s()),
        false => d.t().try_movedim(d.ss(), d.ss()),
    };
    try_narrow: |d| d.t().try_narrow(d.s(), d.s(), d.n());
    try_select: |d| d.t().try_select(d.s(), d.s());
    try_gradient_allow_unused: |d| d.small().try_gradient_allow_unused(&[&d.small(), &d.t()]);
    try_poisson_nll_loss: |d| {
        let how = PoissonNll::new().log_input(d.coin()).eps(d.f()).reduction(d.pick(&REDUCTIONS));
        d.t().try_poisson_nll_loss(&d.t(), if d.coin() { how.full() } else { how })
    };
    try_gaussian_nll_loss: |d| {
        let how = GaussianNll::new().eps(d.f()).reduction(d.pick(&REDUCTIONS));
        d.t().try_gaussian_nll_loss(&d.t(), &d.t(), if d.coin() { how.full() } else { how })
    };
    try_pixel_shuffle: |d| d.image().try_pixel_shuffle(d.n());
    try_pixel_unshuffle: |d| d.image().try_pixel_unshuffle(d.n());
    try_unfold2d: |d| d.image().try_unfold2d(d.spatial(), d.conv());
    try_fold2d: |d| {
        let (kernel, window) = (1 + d.below(2), 1 + d.below(2));
        match d.coin() {
            true => d.image().try_fold2d(d.ss(), d.spatial(), d.conv()),
            false => Tensor::ones([1, kernel * d.below(3), window]).try_fold2d(
                d.spatial(),
                [kernel],
                d.conv(),
            ),
        }
    };
    try_grid_sample: |d| {
        let how = GridSample::new().mode(d.pick(&[GridMode::Linear, GridMode::Nearest]));
        let how = how.padding(d.pick(&[
            GridPadding::Zeros,
            GridPadding::Border,
            GridPadding::Reflection,
        ]));
        let (x, how) = (d.image(), if d.coin() { how.align_corners() } else { how });
        let (batch, n) = (x.shape().first().copied().unwrap_or(0), x.ndim().saturating_sub(2));
        let sizes =
            [batch].into_iter().chain((0..n).map(|_| d.below(3))).chain([n]).collect::<Vec<_>>();
        x.try_grid_sample(&if d.below(4) == 0 { d.t() } else { Tensor::full(sizes, d.f()) }, how)
    };
    // Without a size it computes the tensor.
    try_unique: |d|
        if d.below(8) > 0 { d.t().try_unique(Some(d.n())) } else { d.small().try_unique(None) };
    try_bincount: |d| {
        let x = Tensor::full([d.below(4)], d.s() as i64).cast(d.dtype());
        x.try_bincount(if d.coin() { Some(&x) } else { None }, d.n())
    };
    try_histc: |d| d.t().try_histc(d.n(), d.f(), d.f());
    try_searchsorted: |d| {
        let (x, sorter) = (d.t(), d.index());
        x.try_searchsorted(&d.t(), d.coin(), d.pick(&[None, Some(&sorter), Some(&x)]))
    };
    try_bucketize: |d| d.t().try_bucketize(&d.t(), d.coin());
    try_isin: |d| d.t().try_isin(&d.small());
    try_outer: |d| d.t().try_outer(&d.t());
    try_trace: |d| d.t().try_trace();
    try_cross: |d| {
        let x = if d.coin() { Tensor::ones([3, 1 + d.below(3)]) } else { d.t() };
        x.try_cross(&if d.coin() { x.clone() } else { d.t() }, d.s())
    };
    try_kron: |d| d.t().try_kron(&d.t());
    try_tensordot: |d| match d.coin() {
        true => d.t().try_tensordot(&d.t(), d.n()),
        false => d.t().try_tensordot(&d.t(), (d.ss(), d.ss())),
    };
    try_cdist: |d|
        match d.coin() {
            true => d.t().try_cdist(&d.t(), d.f()),
            false => {
                let rows: [usize; 2] =
                    [d.pick(&[0, 2, 1 << 31, 1 << 61]), d.pick(&[0, 2, 1 << 31, 1 << 61])];
                Tensor::ones([rows[0], 2]).try_cdist(&Tensor::ones([rows[1], 2]), d.f())
            }
        };
    try_norm: |d| d.t().try_norm(d.f(), d.ss());
    try_matrix_norm: |d| {
        let order = d.f();
        let order = d.pick(&[
            MatrixNorm::Nuclear,
            MatrixNorm::Frobenius,
            order.into(),
            1.0.into(),
            (-2.0).into(),
            2.0.into(),
        ]);
        if d.coin() {
            d.square().try_matrix_norm(order, [-2, -1])
        } else {
            d.t().try_matrix_norm(order, d.ss())
        }
    };
    try_nansum: |d| d.t().try_nansum(d.ss());
    try_nanmean: |d| d.t().try_nanmean(d.ss());
    try_count_nonzero: |d| d.t().try_count_nonzero(d.ss());
    try_amax: |d| d.t().try_amax(d.ss());
    try_amin: |d| d.t().try_amin(keepdim(d.ss()));
    try_max_with_index: |d| d.t().try_max_with_index(d.s());
    try_min_with_index: |d| d.t().try_min_with_index(keepdim(d.ss()));
    try_median: |d| d.t().try_median(d.s());
    try_kthvalue: |d| d.t().try_kthvalue(d.n(), d.s());
    try_mode: |d| d.t().try_mode(d.s());
    try_quantile: |d| {
        let how = d.pick(&[
            Quantile::Linear,
            Quantile::Lower,
            Quantile::Higher,
            Quantile::Midpoint,
            Quantile::Nearest,
        ]);
        match d.coin() {
            true => d.t().try_quantile(d.f(), d.s(), how),
            false => d.t().try_quantile(d.t(), d.s(), how),
        }
    };
    try_diff: |d| {
        let (before, after) = (d.t(), d.t());
        d.t().try_diff(
            d.n(),
            d.s(),
            if d.coin() { Some(&before) } else { None },
            if d.coin() { Some(&after) } else { None },
        )
    };
    try_nan_to_num: |d|
        d.t().try_nan_to_num(
            d.f(),
            if d.coin() { Some(d.f()) } else { None },
            if d.coin() { Some(d.f()) } else { None },
        );
    try_hypot: |d| if d.coin() { d.t().try_hypot(d.t()) } else { d.t().try_hypot(d.f()) };
    try_triplet_margin_loss: |d| {
        let how =
            TripletMargin::new().margin(d.f()).p(d.f()).eps(d.f()).reduction(d.pick(&REDUCTIONS));
        d.t().try_triplet_margin_loss(&d.t(), &d.t(), if d.coin() { how.swap() } else { how })
    };
    try_margin_ranking_loss: |d|
        d.t().try_margin_ranking_loss(&d.t(), &d.t(), d.f(), d.pick(&REDUCTIONS));
    try_hinge_embedding_loss: |d|
        d.t().try_hinge_embedding_loss(&d.t(), d.f(), d.pick(&REDUCTIONS));
    try_soft_margin_loss: |d| d.t().try_soft_margin_loss(&d.t(), d.pick(&REDUCTIONS));
    try_multi_margin_loss: |d| {
        let how = MultiMargin::new().p(d.n()).margin(d.f()).reduction(d.pick(&REDUCTIONS));
        let how = if d.below(3) == 0 { how.weight(&d.t()) } else { how };
        match d.coin() {
            true => d.t().try_multi_margin_loss(&d.index(), how),
            false => {
                Tensor::ones([2, 3]).try_multi_margin_loss(&Tensor::full([2], d.s() as i64), how)
            }
        }
    };
    try_ctc_loss: |d| {
        let how = Ctc::new().blank(d.n()).reduction(d.pick(&REDUCTIONS));
        let how = if d.coin() { how.zero_infinity() } else { how };
        if d.below(3) == 0 {
            return d.t().try_ctc_loss(&d.index(), &d.index(), &d.index(), how).map(drop);
        }
        let frames = if d.below(4) == 0 { d.pick(&[1 << 31, 1 << 59]) } else { d.below(4) };
        let labels =
            if d.below(4) == 0 { d.pick(&[1 << 31, 1 << 60, 1 << 61]) } else { d.below(4) };
        let lengths = [Tensor::full([2], d.s() as i64), Tensor::full([2], d.s() as i64)];
        Tensor::ones([frames, 2, 1 + d.below(3)]).try_ctc_loss(
            &Tensor::full([2, labels], d.s() as i64),
            &lengths[0],
            &lengths[1],
            how,
        )
    };
    try_bernoulli: |d| d.t().try_bernoulli();
    try_poisson: |d| d.t().try_poisson();
    try_solve: |d| d.square().try_solve(&d.t());
    try_inverse: |d| d.square().try_inverse();
    try_det: |d| d.square().try_det();
    try_slogdet: |d| d.square().try_slogdet();
    try_cholesky: |d| d.square().try_cholesky(d.coin());
    try_eigh: |d| d.square().try_eigh();
    try_lstsq: |d| match d.coin() {
        true => d.small().try_lstsq(&d.small()),
        false => d.square().try_lstsq(&d.small()),
    };
    try_pinv: |d| d.square().try_pinv(if d.coin() { Some(d.f()) } else { None });
}
