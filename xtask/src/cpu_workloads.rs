//! The workloads of `cargo xtask bench cpu`, as data: a name, the amount of work, and a function
//! that prepares a run. Names and shapes are those of `benches/peers` and
//! `benches/reference_kernels`.

use crate::{kernels, models};
use picograd::compile::clear_programs;
use picograd::exec::ExecItem;
use picograd::nn::optim::{Adam, Optimizer};
use picograd::nn::{Layer, Module};
use picograd::tensor::{Attention, Conv, Reduction};
use picograd::{DType, Result, Tensor, no_grad};

/// The amount of work, which decides unit and roofline of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Operations of f32.
    Flops(f64),
    /// Operations of f64.
    DoubleFlops(f64),
    /// Bytes, of which almost all are read.
    Read(f64),
    /// Bytes that are read and written.
    Copied(f64),
    /// Operations of a model that is measured in milliseconds.
    Model(f64),
    /// Bytes of the weights of a model that is measured in milliseconds.
    Weights(f64),
}

impl Work {
    pub fn unit(self) -> &'static str {
        match self {
            Work::Flops(_) | Work::DoubleFlops(_) => "GFLOP/s",
            Work::Read(_) | Work::Copied(_) => "GB/s",
            Work::Model(_) | Work::Weights(_) => "ms",
        }
    }
    /// Returns the figure of a run in its unit.
    pub fn value(self, seconds: f64) -> f64 {
        match self {
            Work::Flops(n) | Work::DoubleFlops(n) | Work::Read(n) | Work::Copied(n) => {
                n / seconds / 1e9
            }
            Work::Model(_) | Work::Weights(_) => seconds * 1e3,
        }
    }
}

/// A function that runs a prepared workload once.
pub type Run = Box<dyn FnMut() -> Result<()>>;

/// A workload.
pub struct Workload {
    pub name: &'static str,
    pub work: Work,
    pub prepare: fn() -> Result<Run>,
}

/// Operations of a training step of `mnist_step`: each layer once forward and twice backward, the
/// first only once.
const MNIST_FLOPS: f64 =
    2.0 * 512.0 * (2.0 * 460_800.0 + 3.0 * (10_240_000.0 + 1_179_648.0 + 1_327_104.0 + 5_760.0));
/// Operations of ResNet-50 on one image.
const RESNET50_FLOPS: f64 = 2.0 * 4_089_184_256.0;
/// Weights of GPT-2 small that each token of a prefill is multiplied with: the logits use the
/// embedding table for the last token only.
const GPT2_LAYERS: f64 = models::GPT2_WEIGHTS - models::GPT2_TABLE;
/// Elements of the arrays of elementwise work.
const LONG: usize = 16 << 20;

/// Returns a workload whose run computes a tensor again from the same inputs.
macro_rules! tensor {
    ($name:literal, $work:expr, $build:expr) => {
        Workload { name: $name, work: $work, prepare: || prepare($build) }
    };
}

/// Returns all workloads in the order of the output.
pub fn all() -> Vec<Workload> {
    [products(), streams(), networks()].into_iter().flatten().collect()
}

fn products() -> Vec<Workload> {
    let cube = |n: f64| Work::Flops(2.0 * n * n * n);
    vec![
        tensor!("matmul_512", cube(512.0), || product(&[512, 512], &[512, 512])),
        tensor!("matmul_1024", cube(1024.0), || product(&[1024, 1024], &[1024, 1024])),
        tensor!("matmul_2048", cube(2048.0), || product(&[2048, 2048], &[2048, 2048])),
        tensor!("matmul_1000", cube(1000.0), || product(&[1000, 1000], &[1000, 1000])),
        tensor!("matmul_127x129x131", Work::Flops(2.0 * 127.0 * 129.0 * 131.0), || {
            product(&[127, 129], &[129, 131])
        }),
        tensor!("matmul_f64_1024", Work::DoubleFlops(2.0 * 1024.0f64.powi(3)), || {
            let [a, b] = [(); 2].map(|()| random_of(&[1024, 1024], DType::F64));
            Ok(a?.matmul(&b?))
        }),
        tensor!("linear_64x768x3072", Work::Flops(2.0 * 64.0 * 768.0 * 3072.0), || {
            Ok(random(&[64, 768])?.linear(&random(&[3072, 768])?, None))
        }),
        tensor!("gemv_4096", Work::Read(4.0 * 4096.0 * 4096.0), || {
            product(&[1, 4096], &[4096, 4096])
        }),
        tensor!("gemv_out_in_4096", Work::Read(4.0 * 4096.0 * 4096.0), || {
            Ok(random(&[1, 4096])?.linear(&random(&[4096, 4096])?, None))
        }),
        tensor!("bmm_8x512x64", Work::Flops(2.0 * 8.0 * 512.0 * 512.0 * 64.0), || {
            product(&[8, 512, 64], &[8, 64, 512])
        }),
        tensor!("attention_8x8x512x64", Work::Flops(2.0 * 64.0 * 512.0 * 512.0 * 64.0), || {
            let [q, k, v] = [(); 3].map(|()| random(&[8, 8, 512, 64]));
            Ok(q?.scaled_dot_product_attention(&k?, &v?, Attention::new().causal()))
        }),
    ]
}

/// Bandwidth-bound work. Each operand counts once.
fn streams() -> Vec<Workload> {
    let long = LONG as f64;
    let rows = 4096.0 * 1024.0;
    vec![
        tensor!("fma_relu_16M", Work::Copied(12.0 * long), || {
            Ok((random(&[LONG])? * random(&[LONG])? + 1.5).relu())
        }),
        tensor!("gelu_4M", Work::Copied(2.0 * long), || Ok(random(&[LONG / 4])?.gelu_tanh())),
        tensor!("sum_16M", Work::Read(4.0 * long), || Ok(random(&[LONG])?.sum(..))),
        tensor!("softmax_4096x1024", Work::Copied(8.0 * rows), || {
            Ok(random(&[4096, 1024])?.softmax(-1))
        }),
        tensor!("layernorm_4096x1024", Work::Copied(8.0 * rows), || {
            let x = random(&[4096, 1024])?;
            Ok(x.layernorm(-1, 1e-5) * random(&[1024])? + random(&[1024])?)
        }),
        tensor!("transpose_4096", Work::Copied(8.0 * 4096.0 * 4096.0), || {
            Ok(random(&[4096, 4096])?.transpose(0, 1).contiguous())
        }),
    ]
}

fn networks() -> Vec<Workload> {
    let k3 = 2.0 * 64.0 * 64.0 * 9.0 * 56.0 * 56.0;
    let k5 = 2.0 * 32.0 * 32.0 * 25.0 * 24.0 * 24.0;
    vec![
        tensor!("conv_1x64x56_k3", Work::Flops(k3), || {
            let (x, w) = (random(&[1, 64, 56, 56])?, random(&[64, 64, 3, 3])?);
            Ok(x.conv2d(&w, Conv::new().padding(1)))
        }),
        tensor!("conv_32x1x28_k5", Work::Flops(k5), || {
            Ok(random(&[32, 1, 28, 28])?.conv2d(&random(&[32, 1, 5, 5])?, Conv::new()))
        }),
        Workload { name: "mnist_step", work: Work::Model(MNIST_FLOPS), prepare: mnist },
        tensor!("gpt2_decode", Work::Weights(4.0 * models::GPT2_WEIGHTS), || {
            Ok(no_grad(|| models::gpt2_next(1, 64)))
        }),
        tensor!(
            "gpt2_prefill64",
            Work::Model(2.0 * (64.0 * GPT2_LAYERS + models::GPT2_TABLE)),
            || Ok(no_grad(|| models::gpt2_next(64, 0)))
        ),
        tensor!("resnet50", Work::Model(RESNET50_FLOPS), || {
            Ok(no_grad(models::resnet50_filled))
        }),
    ]
}

fn mnist() -> Result<Run> {
    let mut step = mnist_step()?;
    clear_programs();
    Ok(Box::new(move || step()?.item::<f32>().map(drop)))
}

/// Returns a function that runs one training step and returns the loss.
pub fn mnist_step() -> Result<impl FnMut() -> Result<Tensor>> {
    Ok(mnist_training()?.0)
}

/// Returns the same, with the number of parameters.
pub fn mnist_training() -> Result<(impl FnMut() -> Result<Tensor>, usize)> {
    let net = kernels::mnist();
    let parameters = net.num_parameters();
    let (x, y) = (
        random(&[512, 1, 28, 28])?,
        (random(&[512])? * 10.0).cast(DType::I32).contiguous().realize()?,
    );
    let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
    let step = move || {
        let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean);
        loss.backward();
        optimizer.step()?;
        Ok(loss)
    };
    Ok((step, parameters))
}

fn product(a: &[usize], b: &[usize]) -> Result<Tensor> {
    Ok(random(a)?.matmul(&random(b)?))
}

fn random(shape: &[usize]) -> Result<Tensor> {
    random_of(shape, DType::F32)
}

fn random_of(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::rand(shape).cast(dtype).contiguous().realize()
}

/// Compiles the kernels of a tensor. They are then alone in the program cache, without those that
/// computed its inputs.
fn prepare(build: impl FnOnce() -> Result<Tensor>) -> Result<Run> {
    let t = build()?;
    clear_programs();
    let items = t.schedule()?.iter().map(|i| i.compile()).collect::<Result<Vec<ExecItem>>>()?;
    Ok(Box::new(move || {
        let _alive = &t;
        items.iter().try_for_each(|i| i.run().map(drop))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_and_models_in_milliseconds() {
        assert_eq!(Work::Flops(4e9).value(2.0), 2.0);
        assert_eq!(Work::Read(4e9).value(0.5), 8.0);
        assert_eq!((Work::Model(1.0).value(0.25), Work::Model(1.0).unit()), (250.0, "ms"));
    }

    #[test]
    fn names_are_unique_words() {
        let all = all();
        for (i, w) in all.iter().enumerate() {
            assert!(w.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{}", w.name);
            assert!(all[..i].iter().all(|other| other.name != w.name), "{} twice", w.name);
        }
    }
}
