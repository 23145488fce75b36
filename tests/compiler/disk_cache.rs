//! The disk cache: a second process compiles nothing that the first one compiled, on every device
//! that has a compiler.

use crate::common::{self, TempDir};
use picograd::{Device, Tensor, device};
use std::path::Path;

/// Computes several kernels in several plans. The second kind of process has them in other plans,
/// some alone.
fn work(kind: &str) -> picograd::Result<Vec<f32>> {
    let x = Tensor::arange(0.0f32, 192.0, 1.0).reshape([12, 16]).realize()?;
    let w = Tensor::full([16, 8], 0.25f32).contiguous().realize()?;
    let (product, soft, sum) = (x.matmul(&w).contiguous(), (&x / 100.0).softmax(-1), x.sum(0));
    if kind == "together" {
        Tensor::realize_many(&[&product, &soft, &sum])?;
    } else {
        sum.realize()?;
        Tensor::realize_many(&[&soft, &product])?;
    }
    Ok([product.to_vec::<f32>()?, soft.to_vec::<f32>()?, sum.to_vec::<f32>()?].concat())
}

/// The body of the child process of the test below.
#[test]
fn child_process() {
    let Ok(kind) = std::env::var("PICO_TEST_KIND") else { return };
    let sum: f64 = work(&kind).unwrap().iter().map(|x| f64::from(*x)).sum();
    let c = device::counters();
    println!("made {} kept {} sum {sum}", c.compiled, c.from_cache);
}

/// The number of kernels that a child process loaded, how many were cache hits, and its result.
fn process(device: &str, kind: &str, folder: &Path) -> (u64, u64, String) {
    let out = common::child("disk_cache::child_process")
        .envs([("DEV", device), ("PICO_TEST_KIND", kind)])
        .env("PICO_CACHE", folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let line =
        text.lines().find_map(|l| l.split("made ").nth(1)).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split(' ').collect();
    (words[0].parse().unwrap(), words[2].parse().unwrap(), words[4].to_string())
}

#[test]
fn a_second_process_compiles_nothing() {
    for device in ["CPU:CLANG", "CPU:LLVM", "CL", "CUDA"] {
        if let Err(e) = Device::get(device) {
            eprintln!("skipped {device}: {e}");
            continue;
        }
        let folder = TempDir::new();
        let (made, kept, sum) = process(device, "together", &folder.0);
        assert!(
            made >= 5 && kept == 0,
            "{device}: {made} kernels, {kept} cache hits in an empty cache"
        );
        assert_eq!(
            process(device, "together", &folder.0),
            (made, made, sum.clone()),
            "{device}: all are cache hits"
        );
        // Kernels are found independently of their plans.
        assert_eq!(
            process(device, "apart", &folder.0),
            (made, made, sum.clone()),
            "{device}: all are cache hits in another order"
        );
        // A corrupt cache costs only time.
        for file in
            std::fs::read_dir(&folder.0).unwrap().map(|f| f.unwrap().path()).filter(|f| f.is_file())
        {
            if file.file_name().is_some_and(|n| n != "secret") {
                let mut bytes = std::fs::read(&file).unwrap();
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                std::fs::write(&file, bytes).unwrap();
            }
        }
        assert_eq!(process(device, "apart", &folder.0), (made, 0, sum.clone()));
        assert_eq!(process(device, "together", &folder.0), (made, made, sum));
    }
}
