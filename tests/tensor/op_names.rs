//! Every `try_` method names itself in its errors, not an op that it uses.

use picograd::tensor::{Attention, Conv, Interpolate, PadMode, Pool, Reduction, Rounding, Scatter};
use picograd::{DType, Error, Tensor};

macro_rules! refused {
    ($count:ident; $($name:ident: $call:expr;)*) => { $(
        let op = match $call.map(|_| ()) {
            Err(Error::Shape { op, .. } | Error::Index { op, .. } | Error::DType { op, .. }) => op,
            other => panic!("{} gave {other:?}", stringify!($name)),
        };
        assert_eq!(op, stringify!($name), "the error of {}", stringify!($call));
        $count += 1;
    )* };
}

#[test]
fn errors_name_the_called_method() {
    let x = Tensor::zeros([2, 3]);
    let bad = Tensor::zeros([4, 5]);
    let bools = Tensor::new([[true, false, true], [true, true, false]]);
    let ints = Tensor::new([[0, 1, 2], [2, 1, 0]]);
    let none = Tensor::zeros([2, 0]);
    let image = Tensor::zeros([1, 2, 4, 4]);
    let mut count = 0;
    refused! { count;
        add: x.try_add(&bad);
        sub: x.try_sub(&bad);
        mul: x.try_mul(&bad);
        div: x.try_div(&bad);
        idiv: x.try_idiv(&bad);
        modulo: bools.try_modulo(&bools);
        fmod: x.try_fmod(&bad);
        div_rounded: bools.try_div_rounded(&bools, Rounding::Trunc);
        pow: x.try_pow(&bad);
        maximum: x.try_maximum(&bad);
        minimum: x.try_minimum(&bad);
        bitwise_and: x.try_bitwise_and(&x);
        bitwise_or: x.try_bitwise_or(&x);
        bitwise_xor: x.try_bitwise_xor(&x);
        bitwise_not: x.try_bitwise_not();
        lshift: x.try_lshift(&x);
        rshift: x.try_rshift(&x);
        neg: bools.try_neg();
        eq: x.try_eq(&bad);
        ne: x.try_ne(&bad);
        lt: x.try_lt(&bad);
        le: x.try_le(&bad);
        gt: x.try_gt(&bad);
        ge: x.try_ge(&bad);
        logical_and: x.try_logical_and(&bad);
        logical_or: x.try_logical_or(&bad);
        logical_xor: x.try_logical_xor(&bad);
        masked_fill: x.try_masked_fill(&bad, 1.0);
        clamp: x.try_clamp(&bad, 1.0);
        clip: x.try_clip(&bad, 1.0);
        lerp: x.try_lerp(&bad, 0.5);
        copysign: x.try_copysign(&bad);
        logaddexp: x.try_logaddexp(&bad);
        isclose: x.try_isclose(&bad, 0.0, 0.0);
        allclose: x.try_allclose(&bad, 0.0, 0.0);
        atan2: x.try_atan2(&bad);
        matmul: x.try_matmul(&bad);
        dot: x.try_dot(&bad);
        linear: x.try_linear(&bad, None);
        linear: x.try_linear(&Tensor::zeros([7, 3]), Some(&Tensor::zeros([6])));
        einsum: Tensor::try_einsum("ij,jk->ik", &[&x, &bad]);
        reshape: x.try_reshape([4]);
        view: x.try_view([4]);
        expand: x.try_expand([2, 4]);
        permute: x.try_permute([0, 0]);
        transpose: x.try_transpose(0, 5);
        t: Tensor::zeros([2, 2, 2]).try_t();
        pad: x.try_pad(&[(1, 1)]);
        pad_with: x.try_pad_with(&[(1, 1)], 1.0);
        pad_mode: x.try_pad_mode(&[(1, 1)], PadMode::Reflect);
        shrink: x.try_shrink(&[(0, 9), (0, 1)]);
        flip: x.try_flip(4);
        squeeze: x.try_squeeze(4);
        unsqueeze: x.try_unsqueeze(9);
        flatten: x.try_flatten(0, 9);
        unflatten: x.try_unflatten(1, [2, 2]);
        cat: Tensor::try_cat(&[x.clone(), bad.clone()], 0);
        stack: Tensor::try_stack(&[x.clone(), bad.clone()], 0);
        repeat: x.try_repeat([2]);
        repeat_interleave: x.try_repeat_interleave(2, 7);
        split: x.try_split([1, 5], 1);
        chunk: x.try_chunk(0, 1);
        roll: x.try_roll(1, 7);
        diagonal: x.try_diagonal(0, 0, 0);
        diag: Tensor::zeros([2, 2, 2]).try_diag();
        unfold: x.try_unfold(0, 9, 1);
        pad_to: x.try_pad_to([1, 1]);
        shrink_to: x.try_shrink_to([9, 9]);
        tril: Tensor::zeros([3]).try_tril(0);
        triu: Tensor::zeros([3]).try_triu(0);
        one_hot: x.try_one_hot(3);
        gather: x.try_gather(0, &x);
        index_select: x.try_index_select(7, &Tensor::new([0]));
        scatter: x.try_scatter(0, &x, 1.0);
        scatter_reduce: x.try_scatter_reduce(9, &ints, 1.0, Scatter::Sum, true);
        masked_select: x.try_masked_select(&Tensor::zeros([7]), None);
        interpolate: image.try_interpolate([0, 0], Interpolate::Nearest, false);
        qr: Tensor::zeros([3]).try_qr();
        svd: Tensor::zeros([3]).try_svd();
        sum: x.try_sum(7);
        prod: x.try_prod(7);
        max: x.try_max(7);
        max: none.try_max(1);
        min: x.try_min(7);
        mean: x.try_mean(7);
        var: x.try_var(7, 0);
        std: x.try_std(7, 0);
        var_mean: x.try_var_mean(7, 0);
        std_mean: x.try_std_mean(7, 0);
        any: x.try_any(7);
        all: x.try_all(7);
        argmax: none.try_argmax(1);
        argmin: x.try_argmin([0, 0]);
        usum: Tensor::try_usum(&[&x, &bad]);
        uprod: Tensor::try_uprod(&[]);
        cumsum: x.try_cumsum(7);
        cumprod: x.try_cumprod(7);
        cummax: x.try_cummax(7);
        cummin: x.try_cummin(7);
        logcumsumexp: x.try_logcumsumexp(7);
        sort: x.try_sort(7, false);
        argsort: x.try_argsort(7, false);
        topk: x.try_topk(9, 1, true, true);
        softmax: x.try_softmax(7);
        softmin: x.try_softmin(7);
        softmin: Tensor::zeros([0]).try_softmin(7);
        log_softmax: x.try_log_softmax(7);
        logsumexp: x.try_logsumexp(7);
        layernorm: x.try_layernorm(7, 0.0);
        rmsnorm: x.try_rmsnorm(7, 0.0);
        batchnorm: x.try_batchnorm(None, None, &bad, &bad);
        normalize: x.try_normalize(2.0, 7, 0.0);
        normalize: none.try_normalize(f64::INFINITY, 1, 0.0);
        glu: x.try_glu(1);
        conv2d: image.try_conv2d(&bad, Conv::new());
        conv_transpose2d: image.try_conv_transpose2d(&bad, Conv::new());
        conv_transpose2d: image.try_conv_transpose2d(
            &Tensor::zeros([2, 2, 2, 2]),
            Conv::new().bias(&Tensor::zeros([9])),
        );
        max_pool2d: x.try_max_pool2d(2, Pool::new());
        max_pool2d_with_indices: image.try_max_pool2d_with_indices(9, Pool::new());
        avg_pool2d: image.try_avg_pool2d(9, Pool::new());
        max_unpool2d: image.try_max_unpool2d(&ints, 2, Pool::new(), None);
        adaptive_avg_pool2d: none.try_adaptive_avg_pool2d([2]);
        adaptive_max_pool2d: none.try_adaptive_max_pool2d([2]);
        scaled_dot_product_attention:
            x.try_scaled_dot_product_attention(&bad, &bad, Attention::new());
        scaled_dot_product_attention: x.try_scaled_dot_product_attention(
            &x,
            &x,
            Attention::new().mask(&Tensor::zeros([9, 9])),
        );
        scaled_dot_product_attention:
            x.try_scaled_dot_product_attention(&x, &x, Attention::new().dropout(2.0));
        cross_entropy: x.try_cross_entropy(&bad, Reduction::Mean);
        nll_loss: x.try_nll_loss(&bad, Reduction::Mean);
        sparse_categorical_crossentropy:
            x.try_sparse_categorical_crossentropy(&bad, Reduction::Mean);
        binary_crossentropy: x.try_binary_crossentropy(&bad, Reduction::Mean);
        binary_crossentropy_logits: x.try_binary_crossentropy_logits(&bad, Reduction::Mean);
        mse_loss: x.try_mse_loss(&bad, Reduction::Mean);
        l1_loss: x.try_l1_loss(&bad, Reduction::Mean);
        huber_loss: x.try_huber_loss(&bad, 1.0, Reduction::Mean);
        smooth_l1_loss: x.try_smooth_l1_loss(&bad, 0.0, Reduction::Mean);
        kl_div: x.try_kl_div(&bad, false, Reduction::Mean);
        cosine_similarity: x.try_cosine_similarity(&bad, 1, 0.0);
        cosine_embedding_loss: x.try_cosine_embedding_loss(&bad, &bad, 0.0, Reduction::Mean);
        cosine_embedding_loss: x.try_cosine_embedding_loss(&x, &bad, 0.0, Reduction::Mean);
        multinomial: Tensor::zeros([2, 2, 2]).try_multinomial(1, true);
        dropout: x.try_dropout(2.0);
        bitcast: x.try_bitcast(DType::BOOL);
        from_vec: Tensor::try_from_vec(vec![1f32, 2.0], [3]);
        from_bytes: Tensor::try_from_bytes(&[1, 2, 3], DType::F32, [1]);
        zeros: Tensor::try_zeros([-1]);
        ones: Tensor::try_ones([-1]);
        full: Tensor::try_full([-1], 1f32);
        rand: Tensor::try_rand([-1]);
        randn: Tensor::try_randn([-1]);
        randint: Tensor::try_randint([2], 5, 5);
        i: x.try_i(9);
    }
    assert!(count > 130, "{count}");
}
