//! Every `try_` method with arguments that make no sense: negative, zero, huge, NaN. Each call is an `Ok` or an `Err`, never a panic, and
//! takes no more than moments. `PICO_FUZZ_CALLS` says how many calls each method gets, `PICO_FUZZ_SEED` where they begin.

use picograd::ir::Op;
use picograd::nn::data::Random;
use picograd::tensor::{
    Attention, BinaryCrossEntropy, Conv, CrossEntropy, Interpolate, Keccak, PadMode, Pool, Reduction, Rounding, Scatter, keepdim, step,
};
use picograd::{DType, Error, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Draws arguments.
struct Draw(Random);

const HUGE: [usize; 12] = [
    i32::MAX as usize,
    1 << 31,
    u32::MAX as usize,
    1 << 32,
    1 << 47,
    1 << 61,
    1 << 62,
    isize::MAX as usize - 1,
    isize::MAX as usize,
    1 << 63,
    usize::MAX - 1,
    usize::MAX,
];
const FLOATS: [f64; 12] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 1e300, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
const REDUCTIONS: [Reduction; 4] = [Reduction::Mean, Reduction::Sum, Reduction::None, Reduction::BatchMean];

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }
    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
    /// A size.
    fn n(&mut self) -> usize {
        if self.below(3) == 0 { self.pick(&HUGE) } else { self.below(6) }
    }
    /// A signed size or an axis.
    fn s(&mut self) -> isize {
        match self.below(8) {
            0 => self.pick(&HUGE) as isize,
            1 => (self.pick(&HUGE) as isize).wrapping_neg(),
            2 => self.pick(&[isize::MIN, isize::MIN + 1, -5, -4]),
            _ => self.below(7) as isize - 3,
        }
    }
    fn f(&mut self) -> f64 {
        self.pick(&FLOATS)
    }
    fn ns(&mut self) -> Vec<usize> {
        (0..self.below(5)).map(|_| self.n()).collect()
    }
    fn ss(&mut self) -> Vec<isize> {
        (0..self.below(5)).map(|_| self.s()).collect()
    }
    fn pairs(&mut self) -> Vec<(usize, usize)> {
        (0..self.below(5)).map(|_| (self.n(), self.n())).collect()
    }
    /// One or two numbers for each spatial axis.
    fn spatial(&mut self) -> Vec<usize> {
        (0..1 + self.below(3)).map(|_| self.n()).collect()
    }
    fn shape(&mut self) -> Vec<usize> {
        (0..self.below(5)).map(|_| self.below(5)).collect()
    }
    fn dtype(&mut self) -> DType {
        let floats = [DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16];
        let others = [DType::I32, DType::I64, DType::U8, DType::BOOL, DType::U64, DType::I8];
        if self.below(3) > 0 { self.pick(&floats) } else { self.pick(&others) }
    }
    /// A tensor of a few elements.
    fn small(&mut self) -> Tensor {
        let (shape, dtype) = (self.shape(), self.dtype());
        Tensor::ones(shape).cast(dtype)
    }
    /// A tensor, which may have as many elements as can be counted.
    fn t(&mut self) -> Tensor {
        if self.below(6) > 0 {
            return self.small();
        }
        let shape = self.pick(&[
            vec![1usize << 31],
            vec![1usize << 62],
            vec![1 << 20, 1 << 20],
            vec![2, 3, 1 << 31, 1 << 20],
            vec![1, 1, 1 << 30, 1 << 30],
            vec![0, 1usize << 62],
        ]);
        Tensor::ones(shape).cast(self.dtype())
    }
    /// Indices, in or out of range.
    fn index(&mut self) -> Tensor {
        let shape = self.shape();
        let value = self.s() as i64;
        Tensor::full(shape, value).cast(if self.coin() { DType::I64 } else { DType::I32 })
    }
    fn pool(&mut self) -> Pool {
        let mut pool = Pool::new();
        if self.coin() {
            pool = pool.stride(self.spatial());
        }
        if self.coin() {
            pool = pool.padding(&self.pairs()[..]);
        }
        if self.coin() {
            pool = pool.dilation(self.spatial());
        }
        if self.coin() { pool.ceil_mode() } else { pool }
    }
    fn conv(&mut self) -> Conv {
        let mut conv = Conv::new();
        if self.coin() {
            conv = conv.stride(self.spatial());
        }
        if self.coin() {
            conv = conv.padding(&self.pairs()[..]);
        }
        if self.coin() {
            conv = conv.dilation(self.spatial());
        }
        if self.coin() {
            conv = conv.groups(self.n());
        }
        if self.coin() { conv.output_padding(self.spatial()) } else { conv }
    }
    /// A tensor of rank 4, as pooling and convolutions take it.
    fn image(&mut self) -> Tensor {
        if self.below(4) == 0 {
            return self.t();
        }
        let shape: Vec<usize> = (0..3 + self.below(2)).map(|_| 1 + self.below(5)).collect();
        Tensor::ones(shape)
    }
    fn classes(&mut self) -> CrossEntropy {
        let how = CrossEntropy::new().reduction(self.pick(&REDUCTIONS)).label_smoothing(self.f());
        let how = if self.coin() { how.ignore_index(self.s() as i64) } else { how };
        if self.below(3) == 0 { how.weight(&self.t()) } else { how }
    }
    fn binary(&mut self) -> BinaryCrossEntropy {
        let how = BinaryCrossEntropy::new().reduction(self.pick(&REDUCTIONS));
        if self.below(3) == 0 { how.weight(&self.t()).pos_weight(&self.t()) } else { how }
    }
}

type Call = fn(&mut Draw) -> Result<(), Error>;

/// The calls, by name.
macro_rules! calls {
    ($($name:ident: |$d:ident| $call:expr;)*) => {
        const CALLS: &[(&str, Call)] = &[$((stringify!($name), |$d| { $call.map(drop) })),*];
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
    try_i: |d| match d.below(4) {
        0 => d.t().try_i(d.s()),
        1 => d.t().try_i(d.s()..d.s()),
        2 => d.t().try_i((d.s(), d.s()..)),
        _ => d.t().try_i((.., step(d.s()..d.s(), d.s()))),
    };
    try_as_param: |d| d.t().try_as_param();
    try_backward: |d| d.small().try_backward();
    try_gradient: |d| d.small().try_gradient(&[&d.small(), &d.t()]);
    try_new: |d| Tensor::try_new(vec![vec![1.0f32; d.below(4)], vec![2.0; d.below(4)]]);
    try_from_vec: |d| Tensor::try_from_vec(vec![1i32; d.below(9)], d.ss());
    try_from_slice: |d| Tensor::try_from_slice(&vec![1i32; d.below(9)], d.ss());
    try_from_bytes: |d| Tensor::try_from_bytes(&vec![1; d.below(40)], d.pick(&[DType::F32, DType::VOID, DType::BOOL, DType::U64]), d.ss());
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
    try_sort: |d| d.small().try_sort(d.s(), d.coin());
    try_argsort: |d| d.small().try_argsort(d.s(), d.coin());
    try_topk: |d| d.small().try_topk(d.n(), d.s(), d.coin(), d.coin());
    try_max_pool2d: |d| d.image().try_max_pool2d(d.spatial(), d.pool());
    try_max_pool2d_with_indices: |d| d.image().try_max_pool2d_with_indices(d.spatial(), d.pool());
    try_max_unpool2d: |d| {
        let size = if d.coin() { Some([d.n(), d.n()]) } else { None };
        d.image().try_max_unpool2d(&d.index(), d.spatial(), d.pool(), size)
    };
    try_avg_pool2d: |d| d.image().try_avg_pool2d(d.spatial(), d.pool());
    try_hash: |d| d.small().try_hash();
    try_keccak: |d| d.small().try_keccak(d.pick(&[Keccak::Sha3_256, Keccak::Shake128]));
    try_gather: |d| d.t().try_gather(d.s(), &d.index());
    try_index_select: |d| d.t().try_index_select(d.s(), &d.index());
    try_scatter: |d| d.small().try_scatter(d.s(), &d.index(), d.t());
    try_scatter_reduce: |d| {
        let how = d.pick(&[Scatter::Sum, Scatter::Prod, Scatter::Mean, Scatter::Amax, Scatter::Amin]);
        d.small().try_scatter_reduce(d.s(), &d.index(), d.t(), how, d.coin())
    };
    try_nonzero: |d| d.small().try_nonzero(Some(d.n()));
    try_masked_select: |d| d.small().try_masked_select(&d.small(), Some(d.n()));
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
    try_split: |d| d.small().try_split(d.ss(), d.s());
    try_chunk: |d| d.small().try_chunk(d.n(), d.s());
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
        let formula = d.pick(&["ij,jk->ik", "i,i", "->", "", "ij->", "...i,i->...", "ii->i", "a->b", "ij,jk->ikk", "éé", "i->ii", ",", "ijklmn->n"]);
        Tensor::try_einsum(formula, &[&d.t(), &d.t()][..d.below(3)])
    };
    try_rearrange: |d| {
        let formula = d.pick(&["a b -> b a", "(a b) -> a b", "a b c -> (a b c)", "a ->", "", "((", "a a -> a", "... -> ...", "a (b c) -> b a c"]);
        d.t().try_rearrange(formula, &[("a", d.n()), ("b", d.n())][..d.below(3)])
    };
    try_conv2d: |d| d.image().try_conv2d(&d.image(), d.conv());
    try_conv_transpose2d: |d| d.image().try_conv_transpose2d(&d.image(), d.conv());
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
    try_cast: |d| d.t().try_cast(d.pick(&[DType::F32, DType::VOID, DType::BOOL, DType::F8E4M3, DType::INDEX]));
    try_bitcast: |d| d.t().try_bitcast(d.pick(&[DType::F32, DType::VOID, DType::BOOL, DType::U8, DType::U64]));
    try_pad_mode: |d| d.small().try_pad_mode(&d.pairs(), d.pick(&[PadMode::Reflect, PadMode::Replicate, PadMode::Circular]));
    try_interpolate: |d| {
        let mode = d.pick(&[Interpolate::Nearest, Interpolate::NearestExact, Interpolate::Linear]);
        d.image().try_interpolate(d.ss(), mode, d.coin())
    };
    try_to: |d| d.t().try_to(d.pick(&["INTERP", "", ":", "CPU:99999999999999999999", "NULL", "DISK", "INTERP+", "+", "INTERP:1"]));
    try_cumsum: |d| d.t().try_cumsum(d.s());
    try_cumprod: |d| d.small().try_cumprod(d.s());
    try_cummax: |d| d.small().try_cummax(d.s());
    try_cummin: |d| d.small().try_cummin(d.s());
    try_logcumsumexp: |d| d.small().try_logcumsumexp(d.s());
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
    try_multinomial: |d| d.small().try_multinomial(d.n(), d.coin());
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
    try_sparse_categorical_crossentropy: |d| d.t().try_sparse_categorical_crossentropy(&d.index(), d.classes());
    try_binary_crossentropy: |d| d.t().try_binary_crossentropy(&d.t(), d.binary());
    try_binary_crossentropy_logits: |d| d.t().try_binary_crossentropy_logits(&d.t(), d.binary());
    try_mse_loss: |d| d.t().try_mse_loss(&d.t(), d.pick(&REDUCTIONS));
    try_l1_loss: |d| d.t().try_l1_loss(&d.t(), d.pick(&REDUCTIONS));
    try_huber_loss: |d| d.t().try_huber_loss(&d.t(), d.f(), d.pick(&REDUCTIONS));
    try_smooth_l1_loss: |d| d.t().try_smooth_l1_loss(&d.t(), d.f(), d.pick(&REDUCTIONS));
    try_kl_div: |d| d.t().try_kl_div(&d.t(), d.coin(), d.pick(&REDUCTIONS));
    try_cosine_similarity: |d| d.t().try_cosine_similarity(&d.t(), d.s(), d.f());
    try_cosine_embedding_loss: |d| d.t().try_cosine_embedding_loss(&d.t(), &d.t(), d.f(), d.pick(&REDUCTIONS));
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// What one call may take. It only builds a graph.
const MOST: Duration = Duration::from_secs(10);

/// The call that runs now, and since when.
static NOW: Mutex<Option<(&str, u64, Instant)>> = Mutex::new(None);

/// Ends the process where a call does not come back, and says which.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            if let Some((name, n, since)) = *NOW.lock().unwrap()
                && since.elapsed() > 6 * MOST
            {
                eprintln!("{name}, call {n} does not come back");
                std::process::exit(1);
            }
        }
    });
}

#[test]
fn no_call_panics() {
    let (calls, seed) = (number("PICO_FUZZ_CALLS", 150), number("PICO_FUZZ_SEED", 14));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    watch();
    let mut wrong = Vec::new();
    let (mut good, mut bad) = (0u64, 0u64);
    for (number, (name, call)) in CALLS.iter().enumerate() {
        for n in 0..calls {
            let of_call = number as u64 * 1_000_003 + n;
            let start = Instant::now();
            *NOW.lock().unwrap() = Some((name, n, start));
            let done = catch_unwind(AssertUnwindSafe(|| call(&mut Draw(Random::new(seed, of_call)))));
            let took = start.elapsed();
            match done {
                Ok(Ok(())) => good += 1,
                Ok(Err(_)) => bad += 1,
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
                    wrong.push(format!("{name}, call {n}: {text}"));
                }
            }
            if took > MOST {
                wrong.push(format!("{name}, call {n}: took {took:?}"));
            }
            // One failure of a method is enough to see.
            if wrong.last().is_some_and(|w| w.starts_with(&format!("{name},"))) {
                break;
            }
        }
    }
    *NOW.lock().unwrap() = None;
    std::panic::set_hook(hook);
    eprintln!("{} methods, {good} calls gave a tensor and {bad} an error", CALLS.len());
    assert!(wrong.is_empty(), "{} methods panic or hang:\n{}", wrong.len(), wrong.join("\n"));
    assert!(good * 10 > good + bad, "most arguments are refused at once: {good} of {}", good + bad);
}

/// A new method is fuzzed too.
#[test]
fn every_try_method_is_called() {
    let mut names: Vec<String> = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tensor")).unwrap().map(|f| f.unwrap().path()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for line in text.lines().map(str::trim).filter(|l| l.starts_with("pub fn ")) {
            let word = |w: &str| w.split(['(', '<']).next().unwrap_or_default().to_string();
            names.extend(line.split(' ').map(word).filter(|w| w.starts_with("try_")));
        }
    }
    assert!(names.len() > 150, "{} names were found", names.len());
    let missing: Vec<&String> = names.iter().filter(|n| CALLS.iter().all(|c| c.0 != n.as_str())).collect();
    assert!(missing.is_empty(), "not in the list of this file: {missing:?}");
}
