//! Counters per device: kernels, copies, time, compilation and memory of one device do not count
//! for another.

use crate::serial;
use picograd::compile::clear_programs;
use picograd::device::{Counters, DeviceMemory, counters, reset_counters};
use picograd::{Device, Jit, Tensor};
use std::time::Duration;

fn device(name: &str) -> Device {
    Device::get(name).unwrap()
}

/// Realized numbers on a device.
fn on(name: &str, len: usize) -> Tensor {
    Tensor::from_vec((0..len).map(|i| i as f32).collect::<Vec<_>>(), [len])
        .to(name)
        .realize()
        .unwrap()
}

#[test]
fn each_device_has_its_own_counters() {
    let _guard = serial();
    let (a, b, c) = (on("cpu:1", 64), on("cpu:2", 64), on("interp", 64));
    clear_programs();
    reset_counters();
    let (x, y) = ((&a * 2.0).sum(0).realize().unwrap(), (&b + 1.0).realize().unwrap());
    let z = (&c - 1.0).realize().unwrap();
    let w = (&z * 3.0).realize().unwrap();
    let [one, two, interp, cpu] = ["cpu:1", "cpu:2", "interp", "cpu"].map(|d| device(d).counters());
    assert_eq!([one.kernels, two.kernels, interp.kernels, cpu.kernels], [1, 1, 2, 0]);
    assert_eq!([one.copies, two.copies, interp.copies], [0; 3]);
    assert_eq!([one.bytes, two.bytes], [260.0, 512.0]);
    assert!(one.flops >= 64.0 && two.flops >= 64.0);
    for did in [one, two, interp] {
        assert!(
            did.compiled > 0 && did.compile_time > Duration::ZERO && did.time > Duration::ZERO,
            "{did:?}"
        );
        assert_eq!((did.schedules, did.schedule_hits), (0, 0), "plans belong to the process");
    }
    assert_eq!(cpu, Counters::default());
    let total = counters();
    assert_eq!((total.kernels, total.compiled), (4, one.compiled + two.compiled + interp.compiled));
    assert_eq!(total.compile_time, one.compile_time + two.compile_time + interp.compile_time);
    assert!(total.schedules == 4 && total.time == one.time + two.time + interp.time);
    // CPUs share compiled kernels, and a copy counts on its destination.
    let moved = x.to("cpu:2").realize().unwrap();
    let again = (on("cpu:2", 64) * 2.0).sum(0).realize().unwrap();
    let [after_one, after_two] = ["cpu:1", "cpu:2"].map(|d| device(d).counters());
    assert_eq!(
        (after_one, after_two.kernels, after_two.compiled),
        (one, two.kernels + 1, two.compiled)
    );
    assert!(after_two.copies >= 1);
    assert_eq!(again.item::<f32>().unwrap(), moved.item::<f32>().unwrap());
    reset_counters();
    assert_eq!(
        (device("cpu:2").counters(), counters()),
        (Counters::default(), Counters::default())
    );
    drop((y, w));
}

/// A replay is one list of kernels of several devices; each kernel counts on its own device.
#[test]
fn replays_count_for_each_device() {
    let _guard = serial();
    let mut f = Jit::new(|(a, b): (Tensor, Tensor)| {
        let a = (a.exp().sum(0) + 1.0).realize()?;
        let b = ((&b * 2.0).realize()? + 1.0).realize()?;
        Ok((a, b))
    });
    let args = (on("cpu:1", 100_000), on("cpu:2", 64));
    for _ in 0..2 {
        f.call(args.clone()).unwrap();
    }
    assert!(f.is_captured());
    for calls in [1, 5] {
        reset_counters();
        for _ in 0..calls {
            f.call(args.clone()).unwrap();
        }
        let (one, two) = (device("cpu:1").counters(), device("cpu:2").counters());
        assert_eq!(
            (one.kernels + two.kernels, two.kernels),
            (f.stats().unwrap().steps as u64 * calls, 2 * calls)
        );
        assert!(
            one.kernels >= calls
                && one.bytes >= 400_000.0 * calls as f64
                && two.bytes == 2.0 * 512.0 * calls as f64,
            "{one:?}\n{two:?}"
        );
        assert!(
            one.time > two.time && two.time > Duration::ZERO,
            "{:?} for 100,000 exponentials, {:?} for 64 sums",
            one.time,
            two.time
        );
        let total = counters();
        assert_eq!((total.kernels, total.time), (one.kernels + two.kernels, one.time + two.time));
        assert_eq!((total.compiled, total.schedules), (0, 0));
    }
}

/// The same for memory behind a driver, which caches freed memory.
#[test]
fn device_memory_behind_a_driver_is_counted() {
    let _guard = serial();
    for name in ["CL", "WEBGPU", "CUDA"] {
        let there = match Device::get(name) {
            Ok(device) => device,
            Err(why) => {
                eprintln!("skipped {name}: {why}");
                continue;
            }
        };
        let (before, kernels) = (there.memory().live, there.counters().kernels);
        let x = on(name, 100_000);
        let y = (&x + 1.0).realize().unwrap();
        let now = there.memory();
        assert_eq!((now.live - before, there.counters().kernels - kernels), (800_000, 1), "{name}");
        assert!(
            now.held >= now.live
                && now.peak >= now.live
                && now.limit.is_none_or(|limit| limit > now.held),
            "{name}: {now:?}"
        );
        drop((x, y));
        assert_eq!(there.memory().live, before, "{name}");
    }
}

#[test]
fn device_memory_follows_its_buffers() {
    let _guard = serial();
    let memory = |d: &str| -> DeviceMemory { device(d).memory() };
    let (before, other) = (memory("cpu:3"), memory("cpu:4"));
    assert_eq!((before.live, before.peak), (0, 0));
    let x = on("cpu:3", 1000);
    let y = (&x + 1.0).realize().unwrap();
    assert_eq!((memory("cpu:3").live, memory("cpu:4").live), (8000, other.live));
    // A handle on a slice holds the whole buffer, counted once.
    let handles = (y.clone(), y.reshape([10, 100]));
    assert_eq!(memory("cpu:3").live, 8000);
    drop(x);
    assert_eq!((memory("cpu:3").live, memory("cpu:3").peak), (4000, 8000));
    reset_counters();
    assert_eq!((memory("cpu:3").live, memory("cpu:3").peak), (4000, 4000));
    drop((y, handles));
    let after = memory("cpu:3");
    assert_eq!((after.live, after.peak), (0, 4000));
    assert!(after.limit.is_some_and(|limit| limit > after.held), "{after:?}");
    // Borrowed memory belongs to its owner, and a device that runs nothing has no memory.
    let lent = Tensor::from_blob(vec![1.0f32; 500], [500]);
    let cpu = memory("cpu").live;
    assert_eq!(lent.to_vec::<f32>().unwrap().len(), 500);
    assert!(memory("cpu").live <= cpu);
    let null = (Tensor::ones([100]).contiguous().to("null") + 1.0).realize().unwrap();
    assert_eq!((memory("null").live, memory("null").held, memory("null").limit), (0, 0, None));
    assert!(Device::opened().iter().any(|d| d.name().as_str() == "CPU:3") && null.shape() == [100]);
}
