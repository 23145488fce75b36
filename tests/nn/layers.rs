//! Every layer against PyTorch: outputs, gradients of inputs and parameters, buffers, and state
//! dicts.

use super::{check, fixture};
use picograd::Tensor;
use picograd::io::StateDict;
use picograd::nn::*;
use std::sync::LazyLock;

static ALL: LazyLock<StateDict> =
    LazyLock::new(|| fixture(include_bytes!("../fixtures/nn/layers.safetensors")));

#[track_caller]
fn layer(name: &str, layer: impl Layer) {
    check(&ALL, name, &layer, |x| vec![layer.forward(&x[0])]);
}

#[test]
fn linear_and_embedding_match_pytorch() {
    layer("linear", Linear::new(3, 4));
    layer("linear_no_bias", Linear::new(3, 4).bias(false));
    layer("embedding", Embedding::new(7, 3).padding_idx(2));
}

#[test]
fn convolutions_match_pytorch() {
    layer("conv1d", Conv1d::new(2, 3, 3).stride(2).padding(1).dilation(2));
    layer("conv2d", Conv2d::new(2, 3, [3, 2]).stride([1, 2]).padding([1, 0]));
    layer("conv2d_groups", Conv2d::new(4, 6, 3).groups(2).bias(false));
    layer("conv_transpose1d", ConvTranspose1d::new(2, 3, 3).stride(2).padding(1).output_padding(1));
    layer(
        "conv_transpose2d",
        ConvTranspose2d::new(4, 6, 3).groups(2).stride(2).padding(1).dilation([1, 2]),
    );
}

#[test]
fn batch_norms_match_pytorch() {
    layer("batch_norm_2d", BatchNorm::new(3));
    layer("batch_norm_1d", BatchNorm::new(3).eps(1e-3).momentum(0.3));
    let norm = BatchNorm::new(3).momentum(None).affine(false);
    check(&ALL, "batch_norm_mean", &norm, |x| vec![norm.forward(&x[0]), norm.forward(&x[1])]);
    let norm = BatchNorm::new(3);
    norm.eval();
    layer("batch_norm_eval", norm);
    let norm = BatchNorm::new(2).track_running_stats(false);
    norm.eval();
    layer("batch_norm_untracked", norm);
}

#[test]
fn other_norms_match_pytorch() {
    layer("layer_norm", LayerNorm::new(5));
    layer("layer_norm_two", LayerNorm::new([3, 5]).eps(1e-2));
    layer("layer_norm_2d", LayerNorm2d::new(3));
    layer("group_norm", GroupNorm::new(2, 4));
    layer("instance_norm", InstanceNorm::new(3).affine(true));
    layer("instance_norm_plain", InstanceNorm::new(3));
    layer("rms_norm", RMSNorm::new(5));
}

#[test]
fn attention_matches_pytorch() {
    layer("attention", MultiHeadAttention::new(8, 2));
    layer("attention_causal", MultiHeadAttention::new(8, 4).bias(false).causal());
    let cross = MultiHeadAttention::new(8, 2);
    check(&ALL, "attention_cross", &cross, |x| {
        vec![cross.attend(&x[0], &x[1], &x[2], Some(&x[3]))]
    });
    layer("block_pre", TransformerBlock::new(8, 2, 12));
    layer("block_post", TransformerBlock::new(8, 2, 12).post_norm().activation(Tensor::relu));
}

#[test]
fn grouped_query_attention_repeats_heads() {
    let (few, many) = (MultiHeadAttention::new(8, 4).kv_heads(2), MultiHeadAttention::new(8, 4));
    assert_eq!(few.in_proj_weight.shape(), [8 + 2 * 4, 8]);
    // Each key head, two rows, equals two heads of the other layer.
    let rows = |from: usize, to: usize| few.in_proj_weight.shrink(&[(from, to), (0, 8)]);
    let twice = |t: Tensor| t.reshape([2, 1, 2, 8]).expand([2, 2, 2, 8]).reshape([8, 8]);
    many.in_proj_weight
        .assign(Tensor::cat(&[rows(0, 8), twice(rows(8, 12)), twice(rows(12, 16))], 0))
        .unwrap();
    many.out_proj.weight.assign(few.out_proj.weight.detach()).unwrap();
    let x = Tensor::randn([2, 5, 8]);
    super::assert_finite_close("grouped heads", &few.forward(&x), &many.forward(&x), 1e-5);
}

#[test]
fn attention_dropout_applies_only_in_training() {
    let attention = MultiHeadAttention::new(8, 2).dropout(0.5);
    let x = Tensor::randn([2, 5, 8]).realize().unwrap();
    let run = || attention.forward(&x).to_vec::<f32>().unwrap();
    assert_ne!(run(), run());
    attention.eval();
    assert_eq!(run(), run());
}

#[test]
fn recurrent_layers_match_pytorch() {
    let rnn = RNN::new(3, 4).num_layers(2).bidirectional();
    check(&ALL, "rnn", &rnn, |x| <[Tensor; 2]>::from(rnn.run(&x[0], Some(&x[1]))).to_vec());
    let rnn = RNN::new(3, 4).relu().bias(false);
    check(&ALL, "rnn_relu", &rnn, |x| <[Tensor; 2]>::from(rnn.run(&x[0], None)).to_vec());
    let gru = GRU::new(3, 4).num_layers(2).batch_first();
    check(&ALL, "gru", &gru, |x| <[Tensor; 2]>::from(gru.run(&x[0], Some(&x[1]))).to_vec());
    let gru = GRU::new(3, 4).bidirectional();
    check(&ALL, "gru_both", &gru, |x| <[Tensor; 2]>::from(gru.run(&x[0], None)).to_vec());
    let lstm = LSTM::new(3, 4).num_layers(2).bidirectional().batch_first();
    check(&ALL, "lstm", &lstm, |x| {
        let (y, (h, c)) = lstm.run(&x[0], Some((&x[1], &x[2])));
        vec![y, h, c]
    });
}

#[test]
fn recurrent_cells_match_pytorch() {
    let cell = RNNCell::new(3, 4);
    check(&ALL, "rnn_cell", &cell, |x| vec![cell.forward(&x[0], Some(&x[1]))]);
    let cell = GRUCell::new(3, 4);
    check(&ALL, "gru_cell", &cell, |x| vec![cell.forward(&x[0], Some(&x[1]))]);
    let cell = LSTMCell::new(3, 4);
    check(&ALL, "lstm_cell", &cell, |x| {
        <[Tensor; 2]>::from(cell.forward(&x[0], Some((&x[1], &x[2])))).to_vec()
    });
}

#[test]
fn pools_match_pytorch() {
    layer("max_pool1d", MaxPool1d::new(3).stride(2).padding(1));
    layer("max_pool2d", MaxPool2d::new(2).ceil_mode());
    layer("avg_pool1d", AvgPool1d::new(2));
    layer("avg_pool2d", AvgPool2d::new(3).stride(2).padding(1));
    layer("adaptive_avg_pool2d", AdaptiveAvgPool2d::new([2, 3]));
}

#[test]
fn activations_match_pytorch() {
    layer("prelu", PReLU::new(3));
    layer("ReLU", ReLU);
    layer("ReLU6", ReLU6);
    layer("SELU", SELU);
    layer("GELU", GELU);
    layer("SiLU", SiLU);
    layer("Mish", Mish);
    layer("Sigmoid", Sigmoid);
    layer("LogSigmoid", LogSigmoid);
    layer("Tanh", Tanh);
    layer("Softsign", Softsign);
    layer("Hardtanh", Hardtanh);
    layer("Hardsigmoid", Hardsigmoid);
    layer("Hardswish", Hardswish);
    layer("LeakyReLU", LeakyReLU(0.2));
    layer("ELU", ELU(0.7));
    layer("CELU", CELU(0.7));
    layer("Softplus", Softplus(2.0));
    layer("Softmax", Softmax(1));
    layer("LogSoftmax", LogSoftmax(1));
    layer("Softmin", Softmin(1));
}

#[test]
fn invalid_inputs_name_the_layer() {
    let e = |layer: &dyn Layer, shape: &[usize]| {
        layer.try_forward(&Tensor::zeros(shape)).unwrap_err().to_string()
    };
    assert_eq!(e(&Linear::new(3, 4), &[]), "Linear: expected […, 3], got []");
    assert_eq!(
        e(&Conv1d::new(2, 3, 3), &[3, 9]),
        "Conv1d: expected [batch, 2, length], got [3, 9]"
    );
    assert_eq!(e(&BatchNorm::new(3), &[4, 2]), "BatchNorm: expected [batch, 3, …], got [4, 2]");
    assert_eq!(
        e(&BatchNorm::new(3), &[1, 3]),
        "BatchNorm: expected two elements or more per channel in training, got [1, 3]"
    );
    assert_eq!(e(&LayerNorm::new([3, 5]), &[5]), "LayerNorm: expected […, 3, 5], got [5]");
    assert_eq!(e(&GroupNorm::new(2, 4), &[4]), "GroupNorm: expected [batch, 4, …], got [4]");
    assert_eq!(
        e(&InstanceNorm::new(4), &[1, 4]),
        "InstanceNorm: expected [batch, 4, length, …], got [1, 4]"
    );
    assert_eq!(
        e(&LayerNorm2d::new(4), &[1, 4, 2]),
        "LayerNorm2d: expected [batch, 4, height, width], got [1, 4, 2]"
    );
    assert_eq!(e(&RMSNorm::new(4), &[]), "RMSNorm: expected […, 4], got []");
    assert_eq!(
        e(&MultiHeadAttention::new(4, 2), &[2, 4]),
        "MultiHeadAttention: expected [batch, length, 4], got [2, 4]"
    );
    assert_eq!(
        e(&GRU::new(3, 4).batch_first(), &[2, 3]),
        "GRU: expected [batch, length, 3], got [2, 3]"
    );
    assert_eq!(
        e(&LSTM::new(3, 4), &[0, 2, 3]),
        "LSTM: a sequence of no steps, [0, 2, 3], has no last state"
    );
    assert_eq!(
        e(&MaxPool2d::new(2), &[4]),
        "MaxPool2d: expected […, channels, height, width], got [4]"
    );
    assert_eq!(e(&Embedding::new(4, 2), &[4]), "Embedding: expected integers, got f32");
    assert_eq!(e(&Flatten::new(), &[4]), "Flatten: expected a batch axis and others, got [4]");
    assert_eq!(e(&PReLU::new(3), &[2, 4]), "PReLU: expected [batch, 3, …], got [2, 4]");
    let wrong = GRUCell::new(3, 4)
        .try_forward(&Tensor::zeros([2, 3]), Some(&Tensor::zeros([3, 4])))
        .unwrap_err();
    assert_eq!(wrong.to_string(), "GRUCell: expected a state of [2, 4], got [3, 4]");
}

#[test]
fn empty_batches_are_accepted() {
    assert!(Linear::new(3, 4).forward(&Tensor::zeros([0, 3])).to_vec::<f32>().unwrap().is_empty());
    assert_eq!(Conv2d::new(1, 2, 3).forward(&Tensor::zeros([0, 1, 4, 4])).shape(), [0, 2, 2, 2]);
    assert_eq!(
        Embedding::new(3, 2).forward(&Tensor::zeros([0]).cast(picograd::DType::I32)).shape(),
        [0, 2]
    );
}

#[test]
fn orthogonal_weights_are_orthogonal() {
    for shape in [[6, 3, 1], [2, 3, 2], [4, 2, 2]] {
        let w = init::orthogonal(shape, 2.0).realize().unwrap();
        let m = w.reshape([shape[0], shape[1] * shape[2]]);
        let (product, n) = if m.size(0) <= m.size(1) {
            (m.matmul(&m.t()), m.size(0))
        } else {
            (m.t().matmul(&m), m.size(1))
        };
        super::assert_finite_close(
            "the product with the transpose",
            &product,
            &(Tensor::eye(n, n) * 4.0),
            1e-5,
        );
    }
}

#[test]
fn weights_start_within_their_bounds() {
    let spread = |t: &Tensor| {
        let x = t.to_vec::<f32>().unwrap();
        x.iter().fold(0f32, |m, x| m.max(x.abs()))
    };
    let bounds = [
        (&Linear::new(100, 200).weight, 0.1),
        (&Conv2d::new(4, 50, 5).weight, 0.1),
        (&MultiHeadAttention::new(48, 4).in_proj_weight, (6f32 / 192.0).sqrt()),
        (&init::xavier_uniform([50, 100], 1.0), 0.2),
        (&init::kaiming_uniform([50, 96], init::Fan::In, init::Gain::Relu), 0.25),
        (&init::kaiming_uniform([96, 50], init::Fan::Out, init::Gain::Relu), 0.25),
    ]
    .map(|(t, bound)| (spread(t), bound));
    for (spread, bound) in bounds {
        assert!(spread <= bound && spread > 0.97 * bound, "{spread} of {bound}");
    }
    let std = |t: Tensor| t.std(.., 1).item::<f32>().unwrap();
    for (got, expected) in [
        (std(init::xavier_normal([100, 100], 2.0)), 0.2),
        (std(init::kaiming_normal([100, 100], init::Fan::In, 1.0)), 0.1),
        (std(Embedding::new(100, 100).weight.detach()), 1.0),
        // The standard deviation of a normal distribution truncated at two deviations.
        (std(init::trunc_normal([100, 100], 1.0, 0.5, 0.0, 2.0)), 0.4398),
    ] {
        assert!((got / expected - 1.0).abs() < 0.03, "{got} for {expected}");
    }
}
