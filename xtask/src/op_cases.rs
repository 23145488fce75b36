//! The cases of `cargo xtask bench ops`: name, inputs at a size, and the call.
//! `benches/peers/ops.py` has the PyTorch calls of the same names; inputs are described here only.

use picograd::nn::{GRU, LSTM, Module};
use picograd::tensor::{Attention, Conv, Interpolate, PadMode, Pool, Reduction, Scatter};
use picograd::{DType, Result, Tensor};

/// An input: its values and its shape.
pub enum Input {
    /// Normal random numbers.
    Float(Vec<usize>),
    /// Random numbers from 0.1 to 0.9.
    Unit(Vec<usize>),
    /// Random integers below a limit.
    Int(Vec<usize>, usize),
    /// Random bools.
    Bool(Vec<usize>),
}

impl Input {
    /// Returns the description that the peer reads.
    pub fn as_json(&self) -> String {
        match self {
            Input::Float(shape) => format!("[\"float\",{shape:?}]"),
            Input::Unit(shape) => format!("[\"unit\",{shape:?}]"),
            Input::Int(shape, below) => format!("[\"int\",{shape:?},{below}]"),
            Input::Bool(shape) => format!("[\"bool\",{shape:?}]"),
        }
    }
    /// Returns the tensor, in memory.
    pub fn tensor(&self) -> Result<Tensor> {
        match self {
            Input::Float(shape) => Tensor::randn(&shape[..]),
            Input::Unit(shape) => Tensor::uniform(&shape[..], 0.1, 0.9),
            Input::Int(shape, below) => Tensor::randint(&shape[..], 0, *below as i32),
            Input::Bool(shape) => Tensor::rand(&shape[..]).lt(0.5),
        }
        .contiguous()
        .realize()
    }
}

/// An op to measure.
pub struct Case {
    /// The name, which the peer knows as well.
    pub name: &'static str,
    /// The inputs at a size.
    pub inputs: fn(usize) -> Vec<Input>,
    /// The call.
    pub run: fn(&[Tensor]) -> Result<Vec<Tensor>>,
    /// The sizes that the inputs are built for.
    pub sizes: [usize; 3],
    /// True if the gradient of the sum of all float outputs is measured too.
    pub gradient: bool,
    /// True if the case is in the fixed sample of 40.
    pub sampled: bool,
    /// Other tensors that gradients are computed for, such as the weights of a layer.
    pub parameters: fn() -> Vec<Tensor>,
}

/// Element counts of most cases.
const ELEMENTS: [usize; 3] = [1_000, 100_000, 1_000_000];

fn flat(n: usize) -> Vec<Input> {
    vec![Input::Float(vec![n])]
}

fn unit(n: usize) -> Vec<Input> {
    vec![Input::Unit(vec![n])]
}

fn two(n: usize) -> Vec<Input> {
    vec![Input::Float(vec![n]), Input::Float(vec![n])]
}

fn two_units(n: usize) -> Vec<Input> {
    vec![Input::Unit(vec![n]), Input::Unit(vec![n])]
}

fn two_ints(n: usize) -> Vec<Input> {
    vec![Input::Int(vec![n], 1000), Input::Int(vec![n], 1000)]
}

/// Returns a matrix of `n` elements; a small one is ten times as wide as high.
fn matrix(n: usize) -> [usize; 2] {
    match n {
        0..=9_999 => [n / 100, 100],
        10_000..=999_999 => [n / 1000, 1000],
        _ => [1000, n / 1000],
    }
}

fn rows(n: usize) -> Vec<Input> {
    vec![Input::Float(matrix(n).to_vec())]
}

fn square(n: usize) -> Vec<Input> {
    vec![Input::Float(vec![n, n])]
}

fn two_squares(n: usize) -> Vec<Input> {
    vec![Input::Float(vec![n, n]), Input::Float(vec![n, n])]
}

/// Images of 16 channels.
fn images(n: usize) -> Vec<Input> {
    vec![Input::Float(vec![4, 16, n, n])]
}

fn classes(n: usize) -> Vec<Input> {
    let [rows, classes] = matrix(n);
    vec![Input::Float(vec![rows, classes]), Input::Int(vec![rows], classes)]
}

fn sequence(steps: usize) -> Vec<Input> {
    vec![Input::Float(vec![steps, 16, 64])]
}

/// Updates of a table with a tenth as many rows.
fn updates(n: usize) -> Vec<Input> {
    let table = n / 10;
    vec![Input::Float(vec![table]), Input::Int(vec![n], table), Input::Float(vec![n])]
}

/// Updates of a table of a million rows.
fn sparse_updates(n: usize) -> Vec<Input> {
    const TABLE: usize = 1_000_000;
    vec![Input::Float(vec![TABLE]), Input::Int(vec![n], TABLE), Input::Float(vec![n])]
}

/// The table of cases: a name, inputs, sizes, `grad` or `plain`, the call on the inputs `x`.
macro_rules! cases {
    ($(
        $name:ident($inputs:expr, $sizes:expr, $gradient:ident $(, $sampled:ident)?)
            |$x:ident| $call:expr;
    )*) => {
        vec![$(Case {
            name: stringify!($name),
            inputs: $inputs,
            run: |$x| Ok($call),
            sizes: $sizes,
            gradient: stringify!($gradient) == "grad",
            sampled: !stringify!($($sampled)?).is_empty(),
            parameters: Vec::new,
        }),*]
    };
}

/// Returns every case.
pub fn all() -> Vec<Case> {
    [elementwise(), binary(), reductions(), movement(), products(), indexed(), training()]
        .into_iter()
        .flatten()
        .collect()
}

fn elementwise() -> Vec<Case> {
    cases! {
        abs(flat, ELEMENTS, grad) |x| vec![x[0].abs()];
        acos(unit, ELEMENTS, grad) |x| vec![x[0].acos()];
        asin(unit, ELEMENTS, grad) |x| vec![x[0].asin()];
        asinh(flat, ELEMENTS, grad) |x| vec![x[0].asinh()];
        atan(flat, ELEMENTS, grad) |x| vec![x[0].atan()];
        atanh(unit, ELEMENTS, grad) |x| vec![x[0].atanh()];
        ceil(flat, ELEMENTS, plain) |x| vec![x[0].ceil()];
        floor(flat, ELEMENTS, plain) |x| vec![x[0].floor()];
        round(flat, ELEMENTS, plain) |x| vec![x[0].round()];
        trunc(flat, ELEMENTS, plain) |x| vec![x[0].trunc()];
        sign(flat, ELEMENTS, plain) |x| vec![x[0].sign()];
        sin(flat, ELEMENTS, grad) |x| vec![x[0].sin()];
        cos(flat, ELEMENTS, grad) |x| vec![x[0].cos()];
        tan(flat, ELEMENTS, grad) |x| vec![x[0].tan()];
        sinh(flat, ELEMENTS, grad) |x| vec![x[0].sinh()];
        cosh(flat, ELEMENTS, grad) |x| vec![x[0].cosh()];
        tanh(flat, ELEMENTS, grad, sampled) |x| vec![x[0].tanh()];
        exp(flat, ELEMENTS, grad, sampled) |x| vec![x[0].exp()];
        exp2(flat, ELEMENTS, grad) |x| vec![x[0].exp2()];
        log(unit, ELEMENTS, grad) |x| vec![x[0].log()];
        log2(unit, ELEMENTS, grad) |x| vec![x[0].log2()];
        log10(unit, ELEMENTS, grad) |x| vec![x[0].log10()];
        log1p(unit, ELEMENTS, grad) |x| vec![x[0].log1p()];
        sqrt(unit, ELEMENTS, grad) |x| vec![x[0].sqrt()];
        rsqrt(unit, ELEMENTS, grad) |x| vec![x[0].rsqrt()];
        reciprocal(unit, ELEMENTS, grad) |x| vec![x[0].reciprocal()];
        square(flat, ELEMENTS, grad) |x| vec![x[0].square()];
        neg(flat, ELEMENTS, plain) |x| vec![x[0].neg()];
        erf(flat, ELEMENTS, grad) |x| vec![x[0].erf()];
        sigmoid(flat, ELEMENTS, grad) |x| vec![x[0].sigmoid()];
        relu(flat, ELEMENTS, grad, sampled) |x| vec![x[0].relu()];
        relu6(flat, ELEMENTS, grad) |x| vec![x[0].relu6()];
        leaky_relu(flat, ELEMENTS, grad) |x| vec![x[0].leaky_relu(0.01)];
        elu(flat, ELEMENTS, grad) |x| vec![x[0].elu(1.0)];
        selu(flat, ELEMENTS, grad) |x| vec![x[0].selu()];
        celu(flat, ELEMENTS, grad) |x| vec![x[0].celu(1.0)];
        gelu(flat, ELEMENTS, grad, sampled) |x| vec![x[0].gelu()];
        gelu_tanh(flat, ELEMENTS, grad) |x| vec![x[0].gelu_tanh()];
        silu(flat, ELEMENTS, grad, sampled) |x| vec![x[0].silu()];
        mish(flat, ELEMENTS, grad) |x| vec![x[0].mish()];
        softplus(flat, ELEMENTS, grad) |x| vec![x[0].softplus(1.0)];
        softsign(flat, ELEMENTS, grad) |x| vec![x[0].softsign()];
        hardswish(flat, ELEMENTS, grad) |x| vec![x[0].hardswish()];
        hardsigmoid(flat, ELEMENTS, grad) |x| vec![x[0].hardsigmoid()];
        logsigmoid(flat, ELEMENTS, grad) |x| vec![x[0].logsigmoid()];
        isnan(flat, ELEMENTS, plain) |x| vec![x[0].isnan()];
        isfinite(flat, ELEMENTS, plain) |x| vec![x[0].isfinite()];
        to_i32(flat, ELEMENTS, plain) |x| vec![x[0].cast(DType::I32)];
        to_f16(flat, ELEMENTS, plain) |x| vec![x[0].cast(DType::F16)];
        to_bf16(flat, ELEMENTS, plain) |x| vec![x[0].cast(DType::BF16)];
    }
}

fn binary() -> Vec<Case> {
    fn row_of(n: usize) -> Vec<Input> {
        let [rows, columns] = matrix(n);
        vec![Input::Float(vec![rows, columns]), Input::Float(vec![columns])]
    }
    fn choice(n: usize) -> Vec<Input> {
        vec![Input::Bool(vec![n]), Input::Float(vec![n]), Input::Float(vec![n])]
    }
    fn masked(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![n]), Input::Bool(vec![n])]
    }
    cases! {
        add(two, ELEMENTS, grad, sampled) |x| vec![&x[0] + &x[1]];
        sub(two, ELEMENTS, grad) |x| vec![&x[0] - &x[1]];
        mul(two, ELEMENTS, grad) |x| vec![&x[0] * &x[1]];
        div(two_units, ELEMENTS, grad) |x| vec![&x[0] / &x[1]];
        pow(two_units, ELEMENTS, grad) |x| vec![x[0].pow(&x[1])];
        maximum(two, ELEMENTS, grad) |x| vec![x[0].maximum(&x[1])];
        minimum(two, ELEMENTS, grad) |x| vec![x[0].minimum(&x[1])];
        atan2(two, ELEMENTS, grad) |x| vec![x[0].atan2(&x[1])];
        fmod(two, ELEMENTS, plain) |x| vec![x[0].fmod(&x[1])];
        modulo(two, ELEMENTS, plain) |x| vec![x[0].modulo(&x[1])];
        copysign(two, ELEMENTS, plain) |x| vec![x[0].copysign(&x[1])];
        logaddexp(two, ELEMENTS, grad) |x| vec![x[0].logaddexp(&x[1])];
        lerp(two, ELEMENTS, grad) |x| vec![x[0].lerp(&x[1], 0.25)];
        lt(two, ELEMENTS, plain) |x| vec![x[0].lt(&x[1])];
        eq(two_ints, ELEMENTS, plain) |x| vec![x[0].eq(&x[1])];
        bitwise_and(two_ints, ELEMENTS, plain) |x| vec![x[0].bitwise_and(&x[1])];
        int_add(two_ints, ELEMENTS, plain) |x| vec![&x[0] + &x[1]];
        int_floor_div(two_ints, ELEMENTS, plain) |x| vec![x[0].idiv(&(&x[1] + 1))];
        clamp(flat, ELEMENTS, grad) |x| vec![x[0].clamp(-0.5, 0.5)];
        masked_fill(masked, ELEMENTS, grad) |x| vec![x[0].masked_fill(&x[1], 0.0)];
        select_where(choice, ELEMENTS, grad) |x| vec![x[0].where_(&x[1], &x[2])];
        add_row(row_of, ELEMENTS, grad) |x| vec![&x[0] + &x[1]];
    }
}

fn reductions() -> Vec<Case> {
    cases! {
        sum(flat, ELEMENTS, grad, sampled) |x| vec![x[0].sum(..)];
        sum_rows(rows, ELEMENTS, grad) |x| vec![x[0].sum(1)];
        sum_columns(rows, ELEMENTS, grad, sampled) |x| vec![x[0].sum(0)];
        mean(flat, ELEMENTS, grad) |x| vec![x[0].mean(..)];
        prod_rows(rows, ELEMENTS, grad) |x| vec![x[0].prod(1)];
        max_rows(rows, ELEMENTS, grad, sampled) |x| vec![x[0].max(1)];
        min_columns(rows, ELEMENTS, grad) |x| vec![x[0].min(0)];
        max(flat, ELEMENTS, grad) |x| vec![x[0].max(..)];
        var_rows(rows, ELEMENTS, grad) |x| vec![x[0].var(1, 1)];
        std_rows(rows, ELEMENTS, grad) |x| vec![x[0].std(1, 1)];
        argmax_rows(rows, ELEMENTS, plain, sampled) |x| vec![x[0].argmax(1)];
        argmin_rows(rows, ELEMENTS, plain) |x| vec![x[0].argmin(1)];
        any_rows(rows, ELEMENTS, plain) |x| vec![x[0].gt(3.0).any(1)];
        logsumexp_rows(rows, ELEMENTS, grad) |x| vec![x[0].logsumexp(1)];
        cumsum(flat, ELEMENTS, grad, sampled) |x| vec![x[0].cumsum(0)];
        cumsum_rows(rows, ELEMENTS, grad) |x| vec![x[0].cumsum(1)];
        cumsum_columns(rows, ELEMENTS, grad) |x| vec![x[0].cumsum(0)];
        cumprod(unit, ELEMENTS, plain) |x| vec![x[0].cumprod(0)];
        cummax(flat, ELEMENTS, plain, sampled) |x| { let (v, i) = x[0].cummax(0); vec![v, i] };
        cummax_rows(rows, ELEMENTS, grad) |x| { let (v, i) = x[0].cummax(1); vec![v, i] };
        cummin_columns(rows, ELEMENTS, plain) |x| { let (v, i) = x[0].cummin(0); vec![v, i] };
        logcumsumexp(flat, ELEMENTS, plain) |x| vec![x[0].logcumsumexp(0)];
        softmax(rows, ELEMENTS, grad, sampled) |x| vec![x[0].softmax(-1)];
        softmax_columns(rows, ELEMENTS, grad) |x| vec![x[0].softmax(0)];
        log_softmax(rows, ELEMENTS, grad) |x| vec![x[0].log_softmax(-1)];
        layernorm(rows, ELEMENTS, grad, sampled) |x| vec![x[0].layernorm(-1, 1e-5)];
        rmsnorm(rows, ELEMENTS, grad) |x| vec![x[0].rmsnorm(-1, 1e-5)];
        normalize(rows, ELEMENTS, grad) |x| vec![x[0].normalize(2.0, -1, 1e-12)];
    }
}

fn movement() -> Vec<Case> {
    fn pieces(n: usize) -> Vec<Input> {
        (0..n).map(|_| Input::Float(vec![100])).collect()
    }
    fn pair(n: usize) -> Vec<Input> {
        rows(n).into_iter().chain(rows(n)).collect()
    }
    const SQUARES: [usize; 3] = [32, 256, 1024];
    const PIECES: [usize; 3] = [20, 200, 500];
    cases! {
        transpose(square, SQUARES, plain, sampled) |x| vec![x[0].t().contiguous()];
        permute_channels_last(images, [8, 32, 128], plain)
            |x| vec![x[0].permute([0, 2, 3, 1]).contiguous()];
        flip(rows, ELEMENTS, plain) |x| vec![x[0].flip(1).contiguous()];
        roll(rows, ELEMENTS, plain) |x| vec![x[0].roll(3, 1).contiguous()];
        repeat(rows, ELEMENTS, grad) |x| vec![x[0].repeat([2, 2]).contiguous()];
        repeat_interleave(rows, ELEMENTS, grad) |x| vec![x[0].repeat_interleave(2, 1).contiguous()];
        pad(rows, ELEMENTS, grad) |x| vec![x[0].pad(&[(1, 1), (2, 2)]).contiguous()];
        pad_reflect(images, [8, 32, 128], grad)
            |x| {
                let padding = [(0, 0), (0, 0), (1, 1), (2, 2)];
                vec![x[0].pad_mode(&padding, PadMode::Reflect).contiguous()]
            };
        expand(flat, [1_000, 10_000, 100_000], grad)
            |x| vec![x[0].unsqueeze(0).expand([10, x[0].numel()]).contiguous()];
        cat_two(pair, ELEMENTS, grad) |x| vec![Tensor::cat(x, 0)];
        cat_two_columns(pair, ELEMENTS, grad) |x| vec![Tensor::cat(x, 1)];
        cat_many(pieces, PIECES, grad, sampled) |x| vec![Tensor::cat(x, 0)];
        stack_many(pieces, PIECES, grad, sampled) |x| vec![Tensor::stack(x, 0)];
        split_sum(rows, ELEMENTS, grad)
            |x| { let parts = x[0].chunk(2, 1); vec![&parts[0] + &parts[1]] };
        tril(square, SQUARES, grad) |x| vec![x[0].tril(0).contiguous()];
        triu(square, SQUARES, grad) |x| vec![x[0].triu(1).contiguous()];
        diagonal(square, SQUARES, grad) |x| vec![x[0].diagonal(0, 0, 1).contiguous()];
        unfold(flat, ELEMENTS, grad) |x| vec![x[0].unfold(0, 8, 4).contiguous()];
        shrink(square, SQUARES, grad)
            |x| { let n = x[0].size(0); vec![x[0].shrink(&[(1, n - 1), (1, n - 1)]).contiguous()] };
    }
}

fn products() -> Vec<Case> {
    fn vector(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![n, n]), Input::Float(vec![n])]
    }
    fn batch(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![8, n, 64]), Input::Float(vec![8, 64, n])]
    }
    fn layer(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![32, n]), Input::Float(vec![n, n]), Input::Float(vec![n])]
    }
    fn conv(n: usize, channels: usize, per: usize, k: usize) -> Vec<Input> {
        vec![Input::Float(vec![4, channels, n, n]), Input::Float(vec![channels, per, k, k])]
    }
    fn heads(n: usize) -> Vec<Input> {
        (0..3).map(|_| Input::Float(vec![2, 4, n, 64])).collect()
    }
    const IMAGES: [usize; 3] = [8, 28, 56];
    const SQUARES: [usize; 3] = [32, 256, 1024];
    cases! {
        matmul(two_squares, SQUARES, grad, sampled) |x| vec![x[0].matmul(&x[1])];
        matmul_transposed(two_squares, SQUARES, plain) |x| vec![x[0].matmul(&x[1].t())];
        matvec(vector, SQUARES, grad, sampled) |x| vec![x[0].matmul(&x[1])];
        bmm(batch, [16, 64, 256], grad, sampled) |x| vec![x[0].matmul(&x[1])];
        dot(two, ELEMENTS, grad) |x| vec![x[0].dot(&x[1])];
        linear(layer, SQUARES, grad, sampled) |x| vec![x[0].linear(&x[1], Some(&x[2]))];
        einsum_bij(batch, [16, 64, 256], plain)
            |x| vec![Tensor::einsum("bij,bjk->bik", &[&x[0], &x[1]])];
        conv2d_3x3(|n| conv(n, 32, 32, 3), IMAGES, grad, sampled)
            |x| vec![x[0].conv2d(&x[1], Conv::new().padding(1))];
        conv2d_1x1(|n| conv(n, 64, 64, 1), IMAGES, grad) |x| vec![x[0].conv2d(&x[1], Conv::new())];
        conv2d_depthwise(|n| conv(n, 32, 1, 3), IMAGES, grad)
            |x| vec![x[0].conv2d(&x[1], Conv::new().padding(1).groups(32))];
        conv2d_stride2(|n| conv(n, 32, 32, 3), IMAGES, grad)
            |x| vec![x[0].conv2d(&x[1], Conv::new().padding(1).stride(2))];
        conv_transpose2d(|n| conv(n, 32, 32, 3), IMAGES, grad)
            |x| vec![x[0].conv_transpose2d(&x[1], Conv::new().stride(2))];
        attention(heads, [16, 128, 512], grad, sampled)
            |x| vec![x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new())];
        attention_causal(heads, [16, 128, 512], grad)
            |x| vec![x[0].scaled_dot_product_attention(&x[1], &x[2], Attention::new().causal())];
        max_pool2d(images, IMAGES, grad, sampled) |x| vec![x[0].max_pool2d(2, Pool::new())];
        max_pool2d_overlapping(images, IMAGES, grad)
            |x| vec![x[0].max_pool2d(3, Pool::new().stride(2))];
        avg_pool2d(images, IMAGES, grad) |x| vec![x[0].avg_pool2d(2, Pool::new())];
        interpolate_nearest(images, IMAGES, grad)
            |x| {
                let n = 2 * x[0].size(2);
                vec![x[0].interpolate([n, n], Interpolate::Nearest, false)]
            };
        interpolate_bilinear(images, IMAGES, grad, sampled)
            |x| {
                let n = 2 * x[0].size(2);
                vec![x[0].interpolate([n, n], Interpolate::Linear, false)]
            };
        qr(square, [8, 16, 64], plain, sampled) |x| { let (q, r) = x[0].qr(); vec![q, r] };
        svd(square, [8, 16, 64], plain) |x| { let (u, s, v) = x[0].svd(); vec![u, s, v] };
    }
}

fn indexed() -> Vec<Case> {
    fn picks(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![n]), Input::Int(vec![n], n)]
    }
    fn picked_rows(n: usize) -> Vec<Input> {
        let [rows, columns] = matrix(n);
        vec![Input::Float(vec![rows, columns]), Input::Int(vec![rows], rows)]
    }
    fn tokens(rows: usize) -> Vec<Input> {
        vec![Input::Float(vec![rows, 256]), Input::Int(vec![8192.min(rows)], rows)]
    }
    fn masked(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![n]), Input::Bool(vec![n])]
    }
    fn indices(n: usize) -> Vec<Input> {
        vec![Input::Int(vec![n / 100], 100)]
    }
    fn words(rows: usize) -> Vec<Input> {
        vec![Input::Float(vec![rows, 50257])]
    }
    const UPDATES: [usize; 3] = [10_000, 100_000, 1_000_000];
    cases! {
        gather(picks, ELEMENTS, grad, sampled) |x| vec![x[0].gather(0, &x[1])];
        index_select(picked_rows, ELEMENTS, grad) |x| vec![x[0].index_select(0, &x[1])];
        take_rows(picked_rows, ELEMENTS, grad) |x| vec![x[0].i(&x[1])];
        embedding(tokens, [1_000, 10_000, 50_257], grad, sampled)
            |x| vec![x[0].index_select(0, &x[1])];
        one_hot(indices, ELEMENTS, plain) |x| vec![x[0].one_hot(100)];
        scatter(updates, UPDATES, plain, sampled) |x| vec![x[0].scatter(0, &x[1], &x[2])];
        scatter_sum(updates, UPDATES, grad, sampled)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Sum, true)];
        scatter_mean(updates, UPDATES, plain)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Mean, true)];
        scatter_amax(updates, UPDATES, plain, sampled)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Amax, true)];
        scatter_prod(updates, UPDATES, plain)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Prod, true)];
        nonzero(masked, ELEMENTS, plain, sampled) |x| vec![x[1].try_nonzero(None)?];
        masked_select(masked, ELEMENTS, plain, sampled)
            |x| vec![x[0].try_masked_select(&x[1], None)?];
        sort(flat, [1_000, 10_000, 1_000_000], plain, sampled)
            |x| { let (v, i) = x[0].sort(0, false); vec![v, i] };
        sort_rows(rows, ELEMENTS, plain) |x| { let (v, i) = x[0].sort(1, false); vec![v, i] };
        argsort(flat, [1_000, 10_000, 1_000_000], plain) |x| vec![x[0].argsort(0, true)];
        topk_50(words, [1, 8, 64], plain, sampled)
            |x| { let (v, i) = x[0].topk(50, 1, true, true); vec![v, i] };
        topk_rows(rows, ELEMENTS, grad)
            |x| { let (v, i) = x[0].topk(10, 1, true, true); vec![v, i] };
        multinomial(|n| vec![Input::Unit(vec![n])], [100, 1_000, 50_257], plain, sampled)
            |x| vec![x[0].multinomial(10, false)];
        randperm(flat, [1_000, 100_000, 1_000_000], plain, sampled)
            |x| vec![Tensor::randperm(x[0].numel())];
        rand(flat, ELEMENTS, plain, sampled) |x| vec![Tensor::rand(x[0].numel())];
        randn(flat, ELEMENTS, plain) |x| vec![Tensor::randn(x[0].numel())];
        randint(flat, ELEMENTS, plain) |x| vec![Tensor::randint(x[0].numel(), 0, 100)];
        scatter_million(sparse_updates, UPDATES, plain) |x| vec![x[0].scatter(0, &x[1], &x[2])];
        scatter_sum_million(sparse_updates, UPDATES, grad)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Sum, true)];
        scatter_mean_million(sparse_updates, UPDATES, plain)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Mean, true)];
        scatter_amax_million(sparse_updates, UPDATES, plain)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Amax, true)];
        scatter_prod_million(sparse_updates, UPDATES, plain)
            |x| vec![x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Prod, true)];
    }
}

fn training() -> Vec<Case> {
    fn targets(n: usize) -> Vec<Input> {
        vec![Input::Float(vec![n]), Input::Unit(vec![n])]
    }
    thread_local! {
        static LSTM_LAYER: LSTM = LSTM::new(64, 64);
        static GRU_LAYER: GRU = GRU::new(64, 64);
    }
    const STEPS: [usize; 3] = [16, 64, 128];
    let mut cases = cases! {
        cross_entropy(classes, ELEMENTS, grad, sampled)
            |x| vec![x[0].cross_entropy(&x[1], Reduction::Mean)];
        nll_loss(classes, ELEMENTS, grad) |x| vec![x[0].nll_loss(&x[1], Reduction::Mean)];
        mse_loss(two, ELEMENTS, grad) |x| vec![x[0].mse_loss(&x[1], Reduction::Mean)];
        l1_loss(two, ELEMENTS, grad) |x| vec![x[0].l1_loss(&x[1], Reduction::Mean)];
        huber_loss(two, ELEMENTS, grad) |x| vec![x[0].huber_loss(&x[1], 1.0, Reduction::Mean)];
        smooth_l1_loss(two, ELEMENTS, grad)
            |x| vec![x[0].smooth_l1_loss(&x[1], 1.0, Reduction::Mean)];
        bce_logits(targets, ELEMENTS, grad)
            |x| vec![x[0].binary_crossentropy_logits(&x[1], Reduction::Mean)];
        cosine_similarity(|n| rows(n).into_iter().chain(rows(n)).collect(), ELEMENTS, grad)
            |x| vec![x[0].cosine_similarity(&x[1], 1, 1e-8)];
        lstm(sequence, STEPS, grad, sampled)
            |x| LSTM_LAYER.with(|l| { let (y, (h, c)) = l.run(&x[0], None); vec![y, h, c] });
        gru(sequence, STEPS, grad)
            |x| GRU_LAYER.with(|l| { let (y, h) = l.run(&x[0], None); vec![y, h] });
    };
    for case in &mut cases {
        case.parameters = match case.name {
            "lstm" => || LSTM_LAYER.with(Module::parameters),
            "gru" => || GRU_LAYER.with(Module::parameters),
            _ => continue,
        };
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::all;
    use std::collections::BTreeSet;

    fn read(file: &str) -> String {
        let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    #[test]
    fn the_docs_count_the_cases() {
        let cases = all();
        let counted = |test: fn(&super::Case) -> bool| cases.iter().filter(|c| test(c)).count();
        let (sampled, gradients) = (counted(|c| c.sampled), counted(|c| c.gradient));
        assert_eq!(sampled, 40);
        let text = read("docs/bench.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            format!("measures {} ops, {gradients} of them also with their gradient", cases.len()),
            format!("`--sample` runs a fixed sample of {sampled} ops"),
        ] {
            assert!(text.contains(&words), "docs/bench.md does not say: {words}");
        }
    }

    #[test]
    fn the_peer_has_every_case() {
        let names: BTreeSet<&str> = all().iter().map(|c| c.name).collect();
        assert_eq!(names.len(), all().len(), "a name is in the table twice");
        let text = read("benches/peers/ops.py");
        let missing: Vec<&&str> =
            names.iter().filter(|name| !text.contains(&format!("\"{name}\""))).collect();
        assert!(missing.is_empty(), "benches/peers/ops.py has no {missing:?}");
    }
}
