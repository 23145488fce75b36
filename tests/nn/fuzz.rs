//! Layers, optimizers and schedules with invalid sizes, dtypes and numbers. A function that returns
//! a `Result` gives `Ok` or `Err`, never a panic. A layer whose constructor panics is skipped: a
//! constructor without a `Result` may refuse its sizes. `PICO_FUZZ_CALLS` sets the number of calls
//! of each, `PICO_FUZZ_SEED` the first seed.

use super::common::EDGE_FLOATS;
use picograd::nn::optim::*;
use picograd::nn::{Layer, Module};
use picograd::tensor::Interpolate;
use picograd::testing::Rng;
use picograd::{DType, Result, Tensor, nn};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sizes whose weights do not fit the memory of any machine.
const HUGE: [usize; 6] =
    [1 << 40, (1 << 40) + 1, 1 << 47, 1 << 62, isize::MAX as usize, usize::MAX];

/// A generator of arguments.
struct Draw(Rng);

impl Draw {
    /// A size, mostly a small one.
    fn n(&mut self) -> usize {
        if self.0.once_in(12) {
            self.0.pick(&HUGE)
        } else {
            self.0.pick(&[0, 1, 1, 2, 2, 2, 3, 4, 4, 6])
        }
    }
    fn axis(&mut self) -> isize {
        if self.0.once_in(8) {
            self.0.pick(&[isize::MIN, isize::MAX, 7, -9])
        } else {
            self.0.below(6) as isize - 3
        }
    }
    fn f(&mut self) -> f64 {
        self.0.pick(&EDGE_FLOATS)
    }
    fn coin(&mut self) -> bool {
        self.0.once_in(2)
    }
    fn spatial(&mut self) -> Vec<usize> {
        (0..1 + self.0.below(3)).map(|_| self.n()).collect()
    }
    fn dtype(&mut self) -> DType {
        let rare = [
            DType::F64,
            DType::F16,
            DType::BF16,
            DType::I32,
            DType::I64,
            DType::U8,
            DType::BOOL,
            DType::I8,
        ];
        if self.0.once_in(3) { self.0.pick(&rare) } else { DType::F32 }
    }
    /// An input of any rank, small or of the largest sizes, with non-finite numbers.
    fn x(&mut self) -> Tensor {
        let shape: Vec<usize> = match self.0.below(10) {
            0 => self.0.pick(&[
                vec![1usize << 62],
                vec![1 << 20, 1 << 20],
                vec![2, 2, 1 << 40],
                vec![0, 1 << 62],
                vec![1, 2, 1 << 30, 1 << 30],
            ]),
            _ => (0..self.0.below(6)).map(|_| self.0.pick(&[0, 1, 2, 2, 2, 3, 4, 4, 6])).collect(),
        };
        let value = if self.0.once_in(4) { self.f() } else { 1.0 };
        Tensor::full(shape, value).cast(self.dtype())
    }
    /// Indices, in or out of range.
    fn index(&mut self) -> Tensor {
        let shape: Vec<usize> = (0..self.0.below(4)).map(|_| self.0.below(4)).collect();
        let value = self.0.pick(&[0i64, 1, 2, -1, 100, i64::MIN, i64::MAX]);
        Tensor::full(shape, value).cast(self.0.pick(&[
            DType::I64,
            DType::I32,
            DType::U8,
            DType::F32,
            DType::BOOL,
        ]))
    }
}

/// One call: constructs a layer or an optimizer and uses it.
type Call = fn(&mut Draw) -> Result<()>;

/// Runs a layer on an input, and computes the result if it is small.
fn run(d: &mut Draw, make: impl FnOnce(&mut Draw) -> Forward) -> Result<()> {
    let Ok(layer) = catch_unwind(AssertUnwindSafe(|| make(d))) else { return Ok(()) };
    let x = d.x();
    compute(&layer(&x)?)
}

/// Realizes a result that is small enough.
fn compute(y: &Tensor) -> Result<()> {
    let graph = picograd::ir::toposort([&y.uop()]);
    if graph.iter().all(|u| u.shape().iter().product::<usize>() < 4096) && graph.len() < 400 {
        y.realize()?;
    }
    Ok(())
}

/// The `try_forward` of a layer.
type Forward = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

fn boxed(layer: impl Layer + 'static) -> Forward {
    Box::new(move |x| layer.try_forward(x))
}

macro_rules! plain {
    ($($name:literal $layer:expr;)*) => {
        [$(($name, (|d: &mut Draw| run(d, |_| boxed($layer))) as Call)),*]
    };
}

macro_rules! drawn {
    ($($name:literal |$d:ident| $layer:expr;)*) => {
        [$(($name, (|d: &mut Draw| run(d, |$d| boxed($layer))) as Call)),*]
    };
}

macro_rules! rules_of {
    ($($name:literal |$d:ident| $rule:expr;)*) => {
        [$(($name, (|d: &mut Draw| train(d, |$d| $rule)) as Call)),*]
    };
}

macro_rules! convs {
    ($($name:literal $layer:ident;)*) => { drawn! { $($name |d| {
        let layer = nn::$layer::new(d.n(), d.n(), d.spatial()).bias(d.coin());
        let layer = if d.coin() { layer.stride(d.spatial()) } else { layer };
        let layer = if d.coin() { layer.padding(d.n()) } else { layer };
        let layer = if d.coin() { layer.dilation(d.spatial()) } else { layer };
        if d.0.once_in(3) { layer.groups(d.n()) } else { layer }
    };)* } };
}

macro_rules! pools {
    ($($name:literal $layer:ident;)*) => { drawn! { $($name |d| {
        let layer = nn::$layer::new(d.spatial());
        let layer = if d.coin() { layer.stride(d.spatial()) } else { layer };
        let layer = if d.coin() { layer.padding(d.n()) } else { layer };
        let layer = if d.coin() { layer.dilation(d.spatial()) } else { layer };
        if d.coin() { layer.ceil_mode() } else { layer }
    };)* } };
}

macro_rules! recurrent {
    ($($name:literal $layer:ident $cell:ident;)*) => { [$(
        (concat!($name, "Cell"), (|d: &mut Draw| {
            let made =
                catch_unwind(AssertUnwindSafe(|| nn::$cell::new(d.n(), d.n()).bias(d.coin())));
            let Ok(cell) = made else { return Ok(()) };
            let (x, state) = (d.x(), d.x());
            compute(&cell.try_forward(&x, d.coin().then_some(&state))?)
        }) as Call),
        ($name, (|d: &mut Draw| {
            let made = catch_unwind(AssertUnwindSafe(|| {
                let layer = nn::$layer::new(d.n(), d.n()).num_layers(1 + d.0.below(2));
                let layer = layer.bias(d.coin()).dropout(d.f());
                let layer = if d.coin() { layer.bidirectional() } else { layer };
                if d.coin() { layer.batch_first() } else { layer }
            }));
            let Ok(layer) = made else { return Ok(()) };
            let (x, state) = (d.x(), d.x());
            let (y, _) = layer.try_run(&x, d.coin().then_some(&state))?;
            compute(&y)?;
            Layer::try_forward(&layer, &x).map(drop)
        }) as Call)
    ),*] };
}

/// One or two steps of an optimizer over parameters of odd shapes and dtypes.
fn train<R: Rule + 'static>(d: &mut Draw, rule: impl FnOnce(&mut Draw) -> R) -> Result<()> {
    let params: Vec<Tensor> = (0..d.0.below(3))
        .map(|_| {
            let shape: Vec<usize> = (0..d.0.below(4)).map(|_| d.0.below(4)).collect();
            Tensor::full(shape, d.0.pick(&[1.0, 0.0, f64::NAN, 3e38]))
                .cast(d.0.pick(&[DType::F32, DType::F32, DType::F16, DType::F64]))
                .as_param()
        })
        .collect();
    let Ok(rule) = catch_unwind(AssertUnwindSafe(|| rule(d))) else { return Ok(()) };
    let mut optimizer = Optimizer::new(params.clone(), rule)?;
    if d.0.once_in(3) {
        optimizer.set_lr(d.f())?;
    }
    for _ in 0..2 {
        for p in &params {
            if !d.0.once_in(4) {
                p.square().sum(..).try_backward()?;
            }
        }
        if d.0.once_in(3) {
            clip_grad_norm(&params, d.f())?;
            clip_grad_value(&params, d.f())?;
        }
        optimizer.step()?;
    }
    let state = optimizer.state_dict();
    optimizer.load_state_dict(&state)
}

/// Runs a schedule for a few steps, one of them huge.
fn scheduled(d: &mut Draw, schedule: impl Schedule + 'static) -> Result<()> {
    let p = Tensor::ones([2]).as_param();
    let mut optimizer = Optimizer::new([p], SGD::new(0.1))?;
    let mut scheduler = Scheduler::new(&mut optimizer, schedule)?;
    scheduler.step(&mut optimizer)?;
    scheduler.set_step(&mut optimizer, d.n())?;
    scheduler.step(&mut optimizer)
}

fn calls() -> Vec<(&'static str, Call)> {
    let functions = plain! {
        "ReLU" nn::ReLU; "ReLU6" nn::ReLU6; "SELU" nn::SELU; "GELU" nn::GELU; "SiLU" nn::SiLU;
        "Mish" nn::Mish; "Sigmoid" nn::Sigmoid; "LogSigmoid" nn::LogSigmoid; "Tanh" nn::Tanh;
        "Softsign" nn::Softsign; "Hardtanh" nn::Hardtanh; "Hardsigmoid" nn::Hardsigmoid;
        "Hardswish" nn::Hardswish; "Sequential" nn::Sequential::new();
    };
    let layers = drawn! {
        "LeakyReLU" |d| nn::LeakyReLU(d.f());
        "ELU" |d| nn::ELU(d.f());
        "CELU" |d| nn::CELU(d.f());
        "Softplus" |d| nn::Softplus(d.f());
        "Softmax" |d| nn::Softmax(d.axis());
        "LogSoftmax" |d| nn::LogSoftmax(d.axis());
        "Softmin" |d| nn::Softmin(d.axis());
        "PReLU" |d| nn::PReLU::new(d.n());
        "Dropout" |d| { let layer = nn::Dropout::new(d.f()); if d.coin() { layer.eval() } layer };
        "Flatten" |d| nn::Flatten::new().axes(d.axis(), d.axis());
        "Linear" |d| nn::Linear::new(d.n(), d.n()).bias(d.coin());
        "BatchNorm" |d| {
            let layer = nn::BatchNorm::new(d.n()).eps(d.f()).momentum(if d.coin() {
                Some(d.f())
            } else {
                None
            });
            let layer = layer.affine(d.coin()).track_running_stats(d.coin());
            if d.coin() {
                layer.eval()
            }
            layer
        };
        "LayerNorm" |d| nn::LayerNorm::new(d.spatial()).eps(d.f()).affine(d.coin());
        "LayerNorm2d" |d| nn::LayerNorm2d::new(d.n()).eps(d.f()).affine(d.coin());
        "GroupNorm" |d| nn::GroupNorm::new(d.n(), d.n()).eps(d.f()).affine(d.coin());
        "InstanceNorm" |d| nn::InstanceNorm::new(d.n()).eps(d.f()).affine(d.coin());
        "RMSNorm" |d| nn::RMSNorm::new(d.n()).eps(d.f()).affine(d.coin());
        "AdaptiveAvgPool1d" |d| nn::AdaptiveAvgPool1d::new(d.spatial());
        "AdaptiveAvgPool2d" |d| nn::AdaptiveAvgPool2d::new(d.spatial());
        "AdaptiveAvgPool3d" |d| nn::AdaptiveAvgPool3d::new(d.spatial());
        "AdaptiveMaxPool1d" |d| nn::AdaptiveMaxPool1d::new(d.spatial());
        "AdaptiveMaxPool2d" |d| nn::AdaptiveMaxPool2d::new(d.spatial());
        "AdaptiveMaxPool3d" |d| nn::AdaptiveMaxPool3d::new(d.spatial());
        "MultiHeadAttention" |d| {
            let layer = nn::MultiHeadAttention::new(d.n(), d.n()).dropout(d.f()).bias(d.coin());
            let layer = if d.0.once_in(3) { layer.kv_heads(d.n()) } else { layer };
            if d.coin() { layer.causal() } else { layer }
        };
        "TransformerBlock" |d| {
            let layer = nn::TransformerBlock::new(d.n(), d.n(), d.n()).dropout(d.f());
            if d.coin() { layer.causal() } else { layer.post_norm() }
        };
        "Upsample.size" |d| {
            let modes = [Interpolate::Linear, Interpolate::Nearest, Interpolate::Cubic];
            let layer = if d.coin() {
                nn::Upsample::size([d.n(), d.n()])
            } else {
                nn::Upsample::size(d.n())
            };
            let layer = layer.mode(d.0.pick(&modes));
            if d.coin() { layer.align_corners() } else { layer }
        };
        "Upsample.scale" |d| {
            let layer = if d.coin() {
                nn::Upsample::scale([d.f(), d.f()])
            } else {
                nn::Upsample::scale(d.f())
            };
            if d.coin() { layer.recompute_scale_factor() } else { layer }
        };
        "WeightNorm" |d| nn::WeightNorm::new(nn::Linear::new(d.n(), d.n())).dim(d.axis());
        "SpectralNorm" |d|
            nn::SpectralNorm::new(nn::Linear::new(d.n(), d.n()))
                .dim(d.axis())
                .n_power_iterations(d.0.below(3))
                .eps(d.f());
    };
    let convs = convs! {
        "Conv1d" Conv1d; "Conv2d" Conv2d; "Conv3d" Conv3d; "ConvTranspose1d" ConvTranspose1d;
        "ConvTranspose2d" ConvTranspose2d; "ConvTranspose3d" ConvTranspose3d;
    };
    let pools = pools! {
        "AvgPool1d" AvgPool1d; "AvgPool2d" AvgPool2d; "AvgPool3d" AvgPool3d;
        "MaxPool1d" MaxPool1d; "MaxPool2d" MaxPool2d; "MaxPool3d" MaxPool3d;
    };
    let cells = recurrent! { "RNN" RNN RNNCell; "GRU" GRU GRUCell; };
    let optimizers = rules_of! {
        "SGD" |d| {
            let rule = SGD::new(d.f()).momentum(d.f()).dampening(d.f()).weight_decay(d.f());
            if d.coin() { rule.nesterov() } else { rule }
        };
        "LARS" |d| LARS::new(d.f());
        "Adam" |d| {
            let rule = Adam::new(d.f()).betas(d.f(), d.f()).eps(d.f()).weight_decay(d.f());
            if d.coin() { rule.amsgrad() } else { rule }
        };
        "AdamW" |d| AdamW::new(d.f()).betas(d.f(), d.f()).eps(d.f());
        "LAMB" |d| LAMB::new(d.f()).betas(d.f(), d.f());
        "Muon" |d| Muon::new(d.f()).momentum(d.f()).iterations(d.0.below(4)).weight_decay(d.f());
        "NAdam" |d| NAdam::new(d.f()).betas(d.f(), d.f());
        "RAdam" |d| RAdam::new(d.f()).betas(d.f(), d.f());
        "Adamax" |d| Adamax::new(d.f()).betas(d.f(), d.f());
        "RMSprop" |d| {
            let rule = RMSprop::new(d.f()).eps(d.f()).momentum(d.f());
            if d.coin() { rule.centered() } else { rule }
        };
        "Adagrad" |d| Adagrad::new(d.f()).eps(d.f());
        "Adadelta" |d| Adadelta::new(d.f()).eps(d.f());
    };
    let others: [(&'static str, Call); 12] = [
        ("Embedding", |d| {
            let made = catch_unwind(AssertUnwindSafe(|| {
                let layer = nn::Embedding::new(d.n(), d.n());
                if d.coin() { layer.padding_idx(d.n()) } else { layer }
            }));
            let Ok(layer) = made else { return Ok(()) };
            let index = if d.0.once_in(4) { d.x() } else { d.index() };
            compute(&layer.try_forward(&index)?)
        }),
        ("LSTMCell", |d| {
            let Ok(cell) =
                catch_unwind(AssertUnwindSafe(|| nn::LSTMCell::new(d.n(), d.n()).bias(d.coin())))
            else {
                return Ok(());
            };
            let (x, h, c) = (d.x(), d.x(), d.x());
            compute(&cell.try_forward(&x, d.coin().then_some((&h, &c)))?.0)
        }),
        ("LSTM", |d| {
            let Ok(layer) = catch_unwind(AssertUnwindSafe(|| {
                nn::LSTM::new(d.n(), d.n()).num_layers(1 + d.0.below(2))
            })) else {
                return Ok(());
            };
            let (x, h, c) = (d.x(), d.x(), d.x());
            compute(&layer.try_run(&x, d.coin().then_some((&h, &c)))?.0)
        }),
        ("MultiHeadAttention.attend", |d| {
            let Ok(layer) =
                catch_unwind(AssertUnwindSafe(|| nn::MultiHeadAttention::new(d.n(), d.n())))
            else {
                return Ok(());
            };
            let (q, k, v, mask) = (d.x(), d.x(), d.x(), d.x());
            compute(&layer.try_attend(&q, &k, &v, d.coin().then_some(&mask))?)
        }),
        ("TransformerBlock.masked", |d| {
            let Ok(layer) =
                catch_unwind(AssertUnwindSafe(|| nn::TransformerBlock::new(d.n(), d.n(), d.n())))
            else {
                return Ok(());
            };
            let (x, mask) = (d.x(), d.x());
            compute(&layer.try_forward_masked(&x, d.coin().then_some(&mask))?)
        }),
        ("Ema", |d| {
            let layer = nn::Linear::new(2, 2);
            let ema = nn::Ema::new(&layer, d.f())?;
            ema.update()
        }),
        ("LBFGS", |d| {
            let p = Tensor::full([2], d.0.pick(&[1.0, 0.0, f64::NAN])).cast(DType::F32).as_param();
            let mut optimizer = LBFGS::new([p.clone()])?
                .lr(d.f())
                .max_iter(d.0.below(3))
                .history_size(d.0.below(3));
            if d.coin() {
                optimizer = optimizer.strong_wolfe();
            }
            let q = p.clone();
            optimizer.step(|| Ok(q.square().sum(..))).map(drop)
        }),
        ("GradScaler", |d| {
            let p = Tensor::ones([2]).as_param();
            let mut optimizer = Optimizer::new([p.clone()], SGD::new(0.1))?;
            let steps = d.n() as u64;
            let mut scaler = GradScaler::new()
                .init_scale(d.f())
                .growth_factor(d.f())
                .backoff_factor(d.f())
                .growth_interval(steps)
                .enabled(d.coin());
            scaler.scale(&p.square().sum(..))?.try_backward()?;
            if d.coin() {
                scaler.unscale_(&optimizer)?;
            }
            scaler.step(&mut optimizer)?;
            scaler.update()?;
            scaler.get_scale().map(drop)
        }),
        ("Accumulate", |d| {
            let p = Tensor::ones([2]).as_param();
            let optimizer = Optimizer::new([p.clone()], SGD::new(0.1))?;
            let mut all = Accumulate::new(d.n())?;
            all.backward(&p.square().sum(..), &optimizer)?;
            all.backward(&Tensor::ones([1]), &optimizer).map(drop)
        }),
        ("schedules", |d| match d.0.below(5) {
            0 => {
                let s = catch_unwind(AssertUnwindSafe(|| Step::new(d.n(), d.f())));
                s.map_or(Ok(()), |s| scheduled(d, s))
            }
            1 => {
                let s = catch_unwind(AssertUnwindSafe(|| MultiStep::new(d.spatial(), d.f())));
                s.map_or(Ok(()), |s| scheduled(d, s))
            }
            2 => {
                let s = catch_unwind(AssertUnwindSafe(|| Ramp::new(d.f(), d.f(), d.n())));
                s.map_or(Ok(()), |s| scheduled(d, s))
            }
            3 => {
                let s = catch_unwind(AssertUnwindSafe(|| Cosine::new(d.n()).min_lr(d.f())));
                s.map_or(Ok(()), |s| scheduled(d, s))
            }
            _ => {
                let s = catch_unwind(AssertUnwindSafe(|| {
                    OneCycle::new(d.n()).rise(d.f()).start_div(d.f()).end_div(d.f())
                }));
                s.map_or(Ok(()), |s| scheduled(d, s))
            }
        }),
        ("Plateau", |d| {
            let p = Tensor::ones([2]).as_param();
            let mut optimizer = Optimizer::new([p], SGD::new(0.1))?;
            let made = catch_unwind(AssertUnwindSafe(|| {
                Plateau::new()
                    .factor(d.f())
                    .patience(d.n())
                    .threshold(d.f())
                    .cooldown(d.n())
                    .min_lr(d.f())
            }));
            let Ok(mut plateau) = made else { return Ok(()) };
            plateau.step(&mut optimizer, d.f())?;
            plateau.step(&mut optimizer, d.f())
        }),
        ("Module.state", |d| {
            let layer = nn::Linear::new(2, 2);
            let mut state = picograd::io::StateDict::new();
            state.insert("weight".to_string(), d.x());
            layer.load_state_dict(&state, d.coin())
        }),
    ];
    functions
        .into_iter()
        .chain(layers)
        .chain(convs)
        .chain(pools)
        .chain(cells)
        .chain(optimizers)
        .chain(others)
        .collect()
}

#[test]
fn no_layer_or_optimizer_panics() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let (times, seed) = (number("PICO_FUZZ_CALLS", 60), number("PICO_FUZZ_SEED", 14));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let calls = calls();
    let (mut good, mut bad, mut wrong) = (0, 0, Vec::new());
    for (i, (name, call)) in calls.iter().enumerate() {
        for n in 0..times {
            let mut draw =
                Draw(Rng::new(seed.wrapping_mul(0x9E37_79B9) ^ (i as u64 * 1_000_003 + n)));
            match catch_unwind(AssertUnwindSafe(|| call(&mut draw))) {
                Ok(Ok(())) => good += 1,
                Ok(Err(_)) => bad += 1,
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text
                        .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                        .unwrap_or_default();
                    wrong.push(format!("{name}, call {n}: {text}"));
                    // Only the first failure of each is reported.
                    break;
                }
            }
        }
    }
    std::panic::set_hook(hook);
    eprintln!("{} layers and optimizers: {good} calls succeeded, {bad} were errors", calls.len());
    assert!(wrong.is_empty(), "{} panic:\n{}", wrong.len(), wrong.join("\n"));
    assert!(good * 10 > good + bad, "only {good} of {} calls succeeded", good + bad);
}
