//! Models for the benchmarks, built through the public `Tensor` methods with their real shapes. For
//! benchmarks of the compiler, weights are buffers of the NULL device: they have a size and no
//! bytes. Every call creates new buffers, so no two graphs share a node that reads one.

use picograd::compiler::device::Buffer;
use picograd::tensor::{Attention, Conv, Pool};
use picograd::{DType, Device, Result, SymInt, Tensor, Variable};
use std::cell::{Cell, RefCell};

/// Returns a new f32 buffer.
fn input(shape: &[usize]) -> Tensor {
    let device = Device::default_name();
    let buffer =
        Buffer::new(&device, DType::F32, shape.iter().product()).expect("NULL allocates any size");
    // SAFETY: the graph is one that the verifier accepts, without custom kernels.
    unsafe { Tensor::from_uop_unchecked(buffer.node(), device) }.reshape(shape)
}

/// Elements of the GPT-2 small weights that a token is multiplied with, and of its embedding table.
pub const GPT2_WEIGHTS: f64 = 12.0 * 12.0 * 768.0 * 768.0 + GPT2_TABLE;
/// Elements of the embedding table.
pub const GPT2_TABLE: f64 = 50_257.0 * 768.0;

/// Returns the forward pass of GPT-2 small over 64 tokens on NULL, with the logits of all
/// positions.
pub fn gpt2() -> Tensor {
    gpt2_of(&input, 64, false, &attend_cached(&input, 0))
}

/// Returns the logits of the next token on the default device, for some tokens after others in a
/// cache. All weights have the same value.
pub fn gpt2_next(tokens: usize, past: usize) -> Tensor {
    gpt2_of(&filled, tokens, true, &attend_cached(&filled, past))
}

/// Returns a tensor of equal values on the default device.
fn filled(shape: &[usize]) -> Tensor {
    Tensor::full(shape, 0.01f32).contiguous().realize().expect("the weights fit in memory")
}

/// Weights that the first pass through a model creates and later passes reuse. All have the same
/// value.
#[derive(Default)]
pub struct Weights {
    made: RefCell<Vec<Tensor>>,
    next_index: Cell<usize>,
}

impl Weights {
    /// Returns the next weight.
    pub fn next(&self, shape: &[usize]) -> Tensor {
        let (mut made, i) = (self.made.borrow_mut(), self.next_index.get());
        self.next_index.set(i + 1);
        if i == made.len() {
            made.push(
                Tensor::full(shape, 0.01f32)
                    .contiguous()
                    .realize()
                    .expect("the weights fit in memory"),
            );
        }
        assert_eq!(made[i].shape(), shape, "every pass requests the same shapes");
        made[i].clone()
    }
    /// Returns the number of elements of all weights.
    pub fn elements(&self) -> usize {
        self.made.borrow().iter().map(Tensor::numel).sum()
    }
}

/// Returns the logits of the next token after one given token and others in a cache.
pub fn gpt2_with(weights: &Weights, token: &Tensor, past: usize) -> Tensor {
    // The first weight is the token.
    weights.next_index.set(1);
    let first = Cell::new(true);
    let input =
        |shape: &[usize]| if first.replace(false) { token.clone() } else { weights.next(shape) };
    gpt2_of(&input, 1, true, &attend_cached(&input, past))
}

/// Keys and values of the tokens so far, for each layer: `[longest, heads, head width]`, filled up
/// to a position.
pub struct Cache {
    layers: Vec<[Tensor; 2]>,
    place: Variable,
}

impl Cache {
    /// Returns an empty cache.
    pub fn new(longest: usize) -> Result<Cache> {
        let empty = || Tensor::zeros([longest, HEADS, WIDTH / HEADS]).contiguous().realize();
        let layers = (0..LAYERS).map(|_| Ok([empty()?, empty()?])).collect::<Result<_>>()?;
        Ok(Cache { layers, place: Variable::new("place", 0, longest as i64 - 1)? })
    }
    /// Returns the position of a token, as a bound variable.
    pub fn at(&self, place: usize) -> Result<SymInt> {
        self.place.bind(place as i64)
    }
}

/// Returns the logits of the next token after one given token, which is stored in the cache at its
/// position.
pub fn gpt2_cached(
    weights: &Weights,
    token: &Tensor,
    cache: &Cache,
    at: &SymInt,
) -> Result<Tensor> {
    weights.next_index.set(1);
    let first = Cell::new(true);
    let layer = Cell::new(0);
    let attend = |q: &Tensor, k: Tensor, v: Tensor| -> Tensor {
        let [keys, values] = &cache.layers[layer.replace(layer.get() + 1)];
        let row = |t: Tensor| t.reshape([HEADS, WIDTH / HEADS]);
        keys.set(at, row(k))
            .and_then(|()| values.set(at, row(v)))
            .expect("the place is in the cache");
        // [1, heads, tokens so far, head width]
        let so_far = |t: &Tensor| t.i(..at + 1).permute([1, 0, 2]).unsqueeze(0);
        q.scaled_dot_product_attention(&so_far(keys), &so_far(values), Attention::new())
    };
    let input =
        |shape: &[usize]| if first.replace(false) { token.clone() } else { weights.next(shape) };
    Ok(gpt2_of(&input, 1, true, &attend))
}

const LAYERS: usize = 12;
const WIDTH: usize = 768;
const HEADS: usize = 12;

/// Attention over the tokens in a full cache and the new ones.
fn attend_cached(
    input: &dyn Fn(&[usize]) -> Tensor,
    past: usize,
) -> impl Fn(&Tensor, Tensor, Tensor) -> Tensor {
    move |q, mut k, mut v| {
        let mut how = Attention::new();
        if past > 0 {
            [k, v] =
                [k, v].map(|new| Tensor::cat(&[input(&[1, HEADS, past, WIDTH / HEADS]), new], 2));
        } else {
            how = how.causal();
        }
        q.scaled_dot_product_attention(&k, &v, how)
    }
}

/// GPT-2 small. The rows of the embedding are an input; positions are added to them. `attend`
/// computes attention from queries, keys and values.
fn gpt2_of(
    input: &dyn Fn(&[usize]) -> Tensor,
    tokens: usize,
    last: bool,
    attend: &dyn Fn(&Tensor, Tensor, Tensor) -> Tensor,
) -> Tensor {
    const VOCABULARY: usize = 50_257;
    let norm = |x: &Tensor| x.layernorm(-1, 1e-5) * input(&[WIDTH]) + input(&[WIDTH]);
    let linear =
        |x: &Tensor, from: usize, to: usize| x.linear(&input(&[to, from]), Some(&input(&[to])));
    let mut x = input(&[1, tokens, WIDTH]) + input(&[tokens, WIDTH]);
    for _ in 0..LAYERS {
        let qkv = linear(&norm(&x), WIDTH, 3 * WIDTH);
        // [3, batch, heads, tokens, head width]
        let qkv = qkv.reshape([1, tokens, 3, HEADS, WIDTH / HEADS]).permute([2, 0, 3, 1, 4]);
        let [q, k, v] = [0, 1, 2].map(|i| qkv.i(i));
        let seen = attend(&q, k, v);
        x = x + linear(&seen.transpose(1, 2).reshape([1, tokens, WIDTH]), WIDTH, WIDTH);
        let inner = linear(&norm(&x), WIDTH, 4 * WIDTH).gelu_tanh();
        x = x + linear(&inner, 4 * WIDTH, WIDTH);
    }
    let x = if last { x.shrink(&[(0, 1), (tokens - 1, tokens), (0, WIDTH)]) } else { x };
    norm(&x).linear(&input(&[VOCABULARY, WIDTH]), None)
}

/// Elements of one layer of a model of 7 billion parameters: four square products and three with
/// the inner width.
pub const LLAMA_LAYER: f64 = 4096.0 * (4.0 * 4096.0 + 3.0 * 11_008.0);

/// Layers of that shape on one token after others in a cache, in bf16 on the default device. All
/// weights have the same value.
pub fn llama_next(layers: usize, past: usize) -> Tensor {
    const WIDTH: usize = 4096;
    const INNER: usize = 11_008;
    const HEADS: usize = 32;
    let input = |shape: &[usize]| {
        Tensor::full(shape, 0.01f32)
            .cast(DType::BF16)
            .contiguous()
            .realize()
            .expect("the weights fit in memory")
    };
    let linear = |x: &Tensor, from: usize, to: usize| x.linear(&input(&[to, from]), None);
    let norm = |x: &Tensor| x.rmsnorm(-1, 1e-5) * input(&[WIDTH]);
    let mut x = input(&[1, 1, WIDTH]);
    for _ in 0..layers {
        let h = norm(&x);
        let heads = |t: Tensor| t.reshape([1, 1, HEADS, WIDTH / HEADS]).transpose(1, 2);
        let [q, k, v] = [0, 1, 2].map(|_| heads(linear(&h, WIDTH, WIDTH)));
        let [k, v] =
            [k, v].map(|new| Tensor::cat(&[input(&[1, HEADS, past, WIDTH / HEADS]), new], 2));
        let seen = q.scaled_dot_product_attention(&k, &v, Attention::new());
        x = x + linear(&seen.transpose(1, 2).reshape([1, 1, WIDTH]), WIDTH, WIDTH);
        let h = norm(&x);
        let inner = linear(&h, WIDTH, INNER).silu() * linear(&h, WIDTH, INNER);
        x = x + linear(&inner, INNER, WIDTH);
    }
    x
}

/// Returns the forward pass of ResNet-50 on one image of 3×224×224 on NULL, with batch norms in
/// inference mode: running means and variances are inputs.
pub fn resnet50() -> Tensor {
    resnet50_of(&input)
}

/// Returns the same on the default device. All inputs and weights have the same value.
pub fn resnet50_filled() -> Tensor {
    resnet50_of(&filled)
}

/// A way to create an input of a shape.
type Input<'a> = &'a dyn Fn(&[usize]) -> Tensor;

fn resnet50_of(input: Input) -> Tensor {
    let x = convolved(input, &input(&[1, 3, 224, 224]), 64, 7, 2).relu();
    let mut x = x.max_pool2d(3, Pool::new().stride(2).padding(1));
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            x = bottleneck(input, &x, width, stride, block == 0);
        }
    }
    x.mean([2, 3]).linear(&input(&[1000, 2048]), Some(&input(&[1000])))
}

/// Returns a bottleneck block: 1×1, 3×3, 1×1 and a shortcut; the first of a stage projects the
/// input to the new shape.
fn bottleneck(input: Input, x: &Tensor, width: usize, stride: usize, first: bool) -> Tensor {
    let y = convolved(input, x, width, 1, 1).relu();
    let y = convolved(input, &y, width, 3, stride).relu();
    let y = convolved(input, &y, 4 * width, 1, 1);
    let short = if first { convolved(input, x, 4 * width, 1, stride) } else { x.clone() };
    (y + short).relu()
}

/// Returns a convolution without bias, followed by batch norm.
fn convolved(input: Input, x: &Tensor, outputs: usize, kernel: usize, stride: usize) -> Tensor {
    let weight = input(&[outputs, x.size(1), kernel, kernel]);
    let y = x.conv2d(&weight, Conv::new().stride(stride).padding(kernel / 2));
    let [mean, variance, scale, shift] = [(); 4].map(|()| input(&[outputs, 1, 1]));
    (y - mean) * ((variance + 1e-5).rsqrt() * scale) + shift
}
