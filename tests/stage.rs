//! Staged loads: the same bits as without, on the interpreter with races looked for and on the compilers that are there.

use picograd::exec::ScheduleItem;
use picograd::opt::{self, Kernel};
use picograd::target::Target;
use picograd::tensor::Conv;
use picograd::{DType, Device, Tensor};

fn values(shape: &[usize], dtype: DType, device: &str) -> Tensor {
    let n: usize = shape.iter().product();
    let list: Vec<f32> = (0..n).map(|i| ((i * 7919 + 13) % 2003) as f32 / 64.0 - 15.0).collect();
    Tensor::from_vec(list, shape).cast(dtype).to(device).realize().unwrap()
}

/// What a tensor's one kernel computes with these optimisations.
fn with(t: &Tensor, opts: &str) -> picograd::Result<Vec<u8>> {
    let mut items = t.schedule()?;
    assert_eq!(items.len(), 1, "one kernel is expected");
    items.remove(0).lower_with(&opt::parse(opts)?)?.run()?;
    t.to_bytes()
}

fn program(t: &Tensor, opts: &str, target: &Target) -> Vec<String> {
    let schedule = t.schedule().unwrap();
    let ScheduleItem::Kernel { ast, .. } = &schedule[0] else { panic!("a kernel is expected") };
    let kernel = Kernel::new(ast.clone()).apply_all(&opt::parse(opts).unwrap(), target).unwrap();
    picograd::exec::lowered(&kernel, target).unwrap().uops.iter().map(|u| format!("{:?}", u.op())).collect()
}

/// The bits with the optimisations and without the staging among them.
#[track_caller]
fn same(make: impl Fn(&str) -> Tensor, devices: &[&str], opts: &str) {
    let unstaged: Vec<&str> = opts.split_whitespace().filter(|o| !o.starts_with("STAGE")).collect();
    for device in devices {
        if Device::get(device).is_err() {
            continue;
        }
        let expected = with(&make(device), &unstaged.join(" ")).unwrap();
        let got = with(&make(device), opts).unwrap();
        assert!(expected == got, "{device} {opts}: other bits than without staging");
    }
}

const CPUS: [&str; 2] = ["CPU:CLANG", "CPU:LLVM"];

fn matmul(m: usize, k: usize, n: usize, dtype: DType) -> impl Fn(&str) -> Tensor {
    move |d| values(&[m, k], dtype, d).matmul(&values(&[k, n], dtype, d))
}

#[test]
fn tiles_of_both_inputs_of_a_product() {
    let opts = "UPCAST:1:4 LOCAL:1:8 UPCAST:0:4 LOCAL:0:4 SPLIT:4:8 STAGE:4:1 STAGE:4:2";
    same(matmul(32, 64, 64, DType::F32), &["INTERP"], opts);
    let t = matmul(32, 64, 64, DType::F32)("INTERP");
    let ops = program(&t, opts, &Target::interp());
    assert_eq!(ops.iter().filter(|o| *o == "Barrier").count(), 2, "{ops:?}");
}

#[test]
fn panels_on_a_cpu() {
    same(matmul(32, 64, 128, DType::F32), &CPUS, "UPCAST:1:64 UPCAST:0:4 SWAP:0:1 THREAD:0:2 STAGE:0:2");
}
