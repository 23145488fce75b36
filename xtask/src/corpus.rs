//! `cargo xtask corpus FILE`: compiles a fixed set of workloads for the default device, which is
//! one of the `NULL` devices, and writes every kernel with its Opts, launch sizes and source text
//! to a file. `cargo xtask replay` compares two of these files.

use crate::{cpu_workloads, kernels, models, op_cases, resnet};
use picograd::compile::Compiled;
use picograd::nn::optim::{Adam, Optimizer, SGD};
use picograd::nn::{Layer, Module};
use picograd::tensor::{Attention, Conv, Reduction};
use picograd::testing::{self, random_case};
use picograd::{DType, Device, Result, Tensor, compile, opt};
use std::fmt::Write as _;
use std::sync::Arc;

/// Random tensor graphs in the corpus.
const GRAPHS: u64 = 300;

/// Compiles all workloads and writes their kernels to a file.
pub fn run(words: &[String]) -> std::result::Result<(), String> {
    let [file] = words else { return Err("usage: DEV=NULL:CUDA cargo xtask corpus FILE".into()) };
    let device = Device::default_name();
    if !testing::runs_nothing(&device) {
        return Err(format!(
            "the corpus is compiled for a device that runs nothing, as DEV=NULL:CUDA; this is \
             {device}"
        ));
    }
    let mut dump = Dump::default();
    models_and_steps(&mut dump);
    single_ops(&mut dump);
    random_graphs(&mut dump);
    std::fs::write(file, dump.text).map_err(|e| format!("{file}: {e}"))
}

/// The text of the file: a line `# NAME` per workload, then its kernels.
#[derive(Default)]
struct Dump {
    text: String,
}

impl Dump {
    /// Runs a workload and adds the kernels that it compiled. A workload that the device cannot
    /// run, as one of f64 on WGSL, adds its error.
    fn add(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        compile::clear_programs();
        Tensor::manual_seed(0);
        writeln!(self.text, "# {name}").expect("a string takes all text");
        if let Err(e) = work() {
            writeln!(self.text, "! {}", e.to_string().replace('\n', " "))
                .expect("a string takes all text");
        }
        let mut texts: Vec<String> = compile::compiled_programs().iter().map(kernel).collect();
        texts.sort_unstable();
        self.text.extend(texts);
    }
    /// Realizes tensors and adds their kernels.
    fn tensors(&mut self, name: &str, build: impl FnOnce() -> Result<Vec<Tensor>>) {
        self.add(name, || Tensor::realize_many(&build()?.iter().collect::<Vec<_>>()));
    }
}

/// One kernel: a line with its name, one with launch sizes and Opts, and the source, indented.
fn kernel(c: &Arc<Compiled>) -> String {
    let launch = &c.program.launch;
    let mut text = format!("@ {}\n", c.program.name);
    let opts = opt::show(&c.opts);
    writeln!(
        text,
        "grid {:?} local {:?} threads {} opts {opts}",
        launch.grid, launch.local, launch.chunks
    )
    .expect("a string takes all text");
    let source = c.rendered.as_ref().map_or_else(|| "no source".to_string(), |r| r.text());
    for line in source.lines() {
        writeln!(text, " {line}").expect("a string takes all text");
    }
    text
}

/// Networks, training steps, and the kernels of `bench gpu`.
fn models_and_steps(dump: &mut Dump) {
    dump.tensors("gpt2", || Ok(vec![models::gpt2()]));
    dump.tensors("gpt2_decode", || Ok(vec![models::gpt2_next(1, 64)]));
    dump.tensors("llama_decode", || Ok(vec![models::llama_next(1, 64)]));
    dump.tensors("resnet50", || Ok(vec![models::resnet50()]));
    dump.tensors("mnist_gradients", kernels::mnist_gradients);
    dump.add("mnist_step", || {
        let mut step = cpu_workloads::mnist_step()?;
        step()?.realize()?;
        step()?.realize().map(drop)
    });
    dump.add("resnet50_step", || {
        let net = resnet::ResNet50::new();
        let mut optimizer = Optimizer::new(net.parameters(), SGD::new(0.1).momentum(0.9))?;
        let (x, y) = (input(&[2, 3, 224, 224], DType::F32)?, input(&[2], DType::I32)?);
        net.forward(&x).cross_entropy(&y, Reduction::Mean).backward();
        optimizer.step()
    });
    dump.add("linear_adam_step", || {
        let net = picograd::seq![picograd::nn::Linear::new(64, 10)];
        let mut optimizer = Optimizer::new(net.parameters(), Adam::new(1e-3))?;
        let (x, y) = (input(&[32, 64], DType::F32)?, input(&[32, 10], DType::F32)?);
        net.forward(&x).mse_loss(&y, Reduction::Mean).backward();
        optimizer.step()
    });
    for (name, dtype) in [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::BF16)] {
        for n in [64, 1000, 1024, 4096] {
            dump.tensors(&format!("matmul_{name}_{n}"), || {
                Ok(vec![input(&[n, n], dtype)?.matmul(&input(&[n, n], dtype)?)])
            });
        }
        dump.tensors(&format!("gemv_{name}"), || {
            Ok(vec![input(&[4096, 4096], dtype)?.matmul(&input(&[4096], dtype)?)])
        });
        dump.tensors(&format!("conv_{name}"), || {
            let (x, w) = (input(&[128, 64, 56, 56], dtype)?, input(&[64, 64, 3, 3], dtype)?);
            Ok(vec![x.conv2d(&w, Conv::new().padding(1))])
        });
        for causal in [false, true] {
            dump.tensors(&format!("attention_{name}_{causal}"), || {
                let [q, k, v] =
                    [(); 3].map(|()| input(&[4, 16, 1024, 128], dtype).map(|t| t.as_param()));
                let (q, k, v) = (q?, k?, v?);
                let how = if causal { Attention::new().causal() } else { Attention::new() };
                let y = q.scaled_dot_product_attention(&k, &v, how);
                let mut all = y.sum(..).gradient(&[&q, &k, &v]);
                all.push(y);
                Ok(all)
            });
        }
    }
}

/// Returns a tensor that is a buffer.
fn input(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::zeros(shape).cast(dtype).contiguous().realize()
}

/// The cases of `bench ops` at every size, with and without gradients.
fn single_ops(dump: &mut Dump) {
    for case in op_cases::all() {
        for size in case.sizes {
            for gradient in [false, true] {
                if gradient && !case.gradient {
                    continue;
                }
                let name = format!("{}{}@{size}", case.name, if gradient { ".grad" } else { "" });
                dump.add(&name, || crate::ops::prepare(&case, size, gradient)?());
            }
        }
    }
}

/// Random tensor graphs of the fuzzer.
fn random_graphs(dump: &mut Dump) {
    let device = Device::default_name();
    for seed in 0..GRAPHS {
        let case = random_case(seed);
        dump.tensors(&format!("random_graph_{seed}"), || {
            let nodes = case.place(&device, &device)?;
            // SAFETY: random cases are graphs that the verifier accepts, without custom kernels.
            Ok(nodes
                .into_iter()
                .map(|node| unsafe { Tensor::from_uop_unchecked(node, device.clone()) })
                .collect())
        });
    }
}
