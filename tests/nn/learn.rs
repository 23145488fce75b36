//! Small networks that learn.

use super::fill;
use picograd::nn::optim::{Adam, AdamW, Optimizer, SGD};
use picograd::nn::{
    BatchNorm, Conv2d, Embedding, Flatten, LSTM, Layer, Linear, Module, ReLU, TransformerBlock,
};
use picograd::tensor::{Pool, Reduction, Scatter};
use picograd::{Tensor, no_grad, seq};

#[test]
fn a_small_network_learns_xor() {
    let net = seq![Linear::new(2, 8), Tensor::tanh, Linear::new(8, 1)];
    fill(&net, 1);
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(0.1)).unwrap();
    let x = Tensor::new([[0.0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]);
    let y = Tensor::new([[0.0f32], [1.0], [1.0], [0.0]]);
    for _ in 0..100 {
        let loss = net.forward(&x).binary_crossentropy_logits(&y, Reduction::Mean);
        loss.backward();
        optimizer.step().unwrap();
    }
    let out = no_grad(|| net.forward(&x).sigmoid()).to_vec::<f32>().unwrap();
    assert!(out.iter().zip([0.0, 1.0, 1.0, 0.0]).all(|(p, y)| (p - y).abs() < 0.1), "{out:?}");
}

#[test]
fn conv_with_batch_norm_learns_lines() {
    // Rows and columns of a 4 by 4 image.
    let image = |i: usize| {
        (0..16).map(move |p| (if i < 4 { p / 4 == i } else { p % 4 == i - 4 }) as u8 as f32)
    };
    let x = Tensor::from_vec((0..8).flat_map(image).collect::<Vec<f32>>(), [8, 1, 4, 4]);
    let y = Tensor::new([0, 0, 0, 0, 1, 1, 1, 1]);
    let net = seq![
        Conv2d::new(1, 4, 3).padding(1),
        BatchNorm::new(4),
        ReLU,
        Flatten::new(),
        Linear::new(64, 2)
    ];
    fill(&net, 2);
    let mut optimizer = Optimizer::new(net.parameters(), SGD::new(0.1).momentum(0.9)).unwrap();
    for _ in 0..20 {
        net.forward(&x).cross_entropy(&y, Reduction::Mean).backward();
        optimizer.step().unwrap();
    }
    net.eval();
    let right = net.forward(&x).argmax(1).eq(&y).sum(..).item::<i32>().unwrap();
    assert_eq!(right, 8);
}

/// A value that is compared with its own maximum must be computed once: float sums in two orders
/// differ.
#[test]
fn gradient_of_max_over_sums_is_exact() {
    let conv = Conv2d::new(3, 4, 3).padding(1);
    let x = Tensor::randn([5, 3, 8, 8]).realize().unwrap();
    Tensor::realize_many(&conv.parameters().iter().collect::<Vec<_>>()).unwrap();
    conv.forward(&x).max_pool2d(2, Pool::new()).sum(..).backward();
    // Each of the 5·4·4 windows of a channel gives a gradient of one to its maximum.
    let bias = conv.bias.as_ref().unwrap();
    assert_eq!(bias.grad().unwrap().to_vec::<f32>().unwrap(), [80.0; 4]);
    // Each of the 5·4 target elements of a channel gives one to its extreme.
    for how in [Scatter::Amax, Scatter::Amin] {
        bias.set_grad(None);
        let y = conv.forward(&x).reshape([20, 64]);
        let index = (Tensor::arange(0, 64, 1) % 4).expand([20, 64]);
        Tensor::zeros([20, 4]).scatter_reduce(1, &index, &y, how, false).sum(..).backward();
        assert_eq!(bias.grad().unwrap().to_vec::<f32>().unwrap(), [20.0; 4], "{how:?}");
    }
}

#[test]
fn sequences_are_learned_by_rnn_and_attention() {
    #[derive(Module)]
    struct Model<B> {
        table: Embedding,
        place: Tensor,
        body: B,
        head: Linear,
    }
    impl<B: Layer> Model<B> {
        fn forward(&self, x: &Tensor) -> Tensor {
            self.head.forward(&self.body.forward(&(self.table.forward(x) + &self.place)))
        }
    }
    fn learn(body: impl Layer) -> f32 {
        let place = Tensor::zeros([6, 8]).as_param();
        let model = Model { table: Embedding::new(5, 8), place, body, head: Linear::new(8, 5) };
        fill(&model, 3);
        let mut optimizer = Optimizer::new(model.parameters(), AdamW::new(0.03)).unwrap();
        // Each token depends on the tokens before it.
        let x = Tensor::new([[0, 1, 2, 3, 4, 0], [2, 3, 4, 0, 1, 2]]);
        let y = Tensor::new([[0, 0, 1, 2, 3, 4], [2, 2, 3, 4, 0, 1]]);
        let mut last = f32::NAN;
        for _ in 0..60 {
            let loss = model.forward(&x).sparse_categorical_crossentropy(&y, Reduction::Mean);
            loss.backward();
            optimizer.step().unwrap();
            last = loss.item().unwrap();
        }
        last
    }
    let (lstm, block) =
        (learn(LSTM::new(8, 8).batch_first()), learn(TransformerBlock::new(8, 2, 16).causal()));
    assert!(lstm < 0.3 && block < 0.3, "losses {lstm} and {block}");
}
