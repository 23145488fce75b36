//! Products by tensor cores: what the interpreter makes of them is what the plain loops make, whatever the shapes, the layouts in memory and the other optimisations.

mod common;

use picograd::dtype::DType;
use picograd::exec::{self, Choice, ScheduleItem, with_choice};
use picograd::ir::{Op, TensorCore};
use picograd::opt::{self, Kernel};
use picograd::render::{Cuda, Renderer};
use picograd::target::Target;
use picograd::{Device, Tensor};
use std::rc::Rc;

/// Whole numbers from -4 to 4: their products add up exactly in every order.
fn whole(shape: &[usize], seed: usize, dtype: DType) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 7 + i / 13 * 5 + seed * 3 + i * i % 11) % 9) as f32 - 4.0).collect();
    Tensor::from_vec(values, shape).cast(dtype).to("INTERP").contiguous().realize().unwrap()
}

/// The kernels of a tensor.
fn kernels(t: &Tensor) -> Vec<Kernel> {
    let of = |item: &ScheduleItem| match item {
        ScheduleItem::Kernel { ast, .. } => Some(Kernel::new(ast.clone())),
        _ => None,
    };
    t.schedule().unwrap().iter().filter_map(of).collect()
}

/// The target that has all tensor cores.
fn all_cores() -> Target {
    Target::interp().with_tensor_cores(true, true)
}

/// Computes a tensor with these optimisations of its one kernel and without any, compares, and compiles the same for CUDA.
fn check(make: impl Fn() -> Tensor, opts: &str) {
    let list = opt::parse(opts).unwrap();
    let values = |choice: Choice| with_choice(choice, || make().cast(DType::F32).to_vec::<f32>().unwrap());
    let applied = Rc::new(std::cell::Cell::new(0));
    let count = applied.clone();
    let by = move |k: &Kernel, _: &Target| match k.apply_all(&list, &all_cores()) {
        Ok(k) => {
            count.set(count.get() + 1);
            k
        }
        Err(_) => k.clone(),
    };
    let (got, expected) = (values(Choice::By(Rc::new(by))), values(Choice::Nothing));
    assert!(applied.get() > 0, "{opts} fits one kernel of {:?}: {:?}", make(), kernels(&make()).iter().map(|k| k.name()).collect::<Vec<_>>());
    assert!(got.iter().any(|v| *v != 0.0), "there is something to compare");
    assert_eq!(got, expected, "{opts}");
    let target = Target::cuda().with_tensor_cores(true, true);
    let programs: Vec<_> = kernels(&make())
        .iter()
        .filter_map(|k| k.apply_all(&opt::parse(opts).unwrap(), &target).ok())
        .map(|k| exec::lowered(&k, &target).unwrap())
        .collect();
    assert!(programs[0].uops.iter().any(|u| u.op() == Op::Wmma));
    common::compile_for_cuda(&programs);
}

#[test]
fn every_core_is_right() {
    for core in TensorCore::ALL {
        let dtype = DType { scalar: core.input, lanes: 1 };
        let [m, n, k] = core.dims;
        for (m, n, k) in [(m, n, k), (2 * m, 3 * n, 4 * k)] {
            let (a, b) = (whole(&[m, k], 1, dtype), whole(&[k, n], 2, dtype));
            check(|| a.matmul(&b), "TC:2:0");
        }
    }
    let _ = Device::get("INTERP").unwrap();
    let _ = Cuda::new("sm_90").target();
}
