//! Memory and devices: intermediates, copies between devices and files, parts of buffers, borrowed
//! memory, and code for another CPU.

mod common;

use picograd::compiler::device::Buffer;
use picograd::device::memory;
use picograd::exec::ScheduleItem;
use picograd::schedule::{PlannedMemory, Request};
use picograd::{DType, Device, Error, Tensor, exec};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the allocations of the host. Buffers of the CPU have their own allocator and counters.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Serializes the tests: the counters of memory are process-wide.
static ALONE: Mutex<()> = Mutex::new(());

/// The available devices with separate memory.
fn remote() -> Vec<&'static str> {
    let is_here = |d: &&str| Device::get(d).inspect_err(|e| eprintln!("skipped {d}: {e}")).is_ok();
    ["CL", "WEBGPU", "CUDA"].into_iter().filter(is_here).collect()
}

const MIB: usize = 1 << 20;

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 % 251 + i / 9973) as u8).collect()
}

#[test]
fn file_loads_make_one_copy() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let bytes = content(64 * MIB + 5);
    let folder = common::TempDir::new();
    let file = folder.file("file");
    std::fs::write(&file, &bytes).unwrap();
    let mapped = Tensor::from_file(&file).unwrap();
    for device in ["INTERP"].into_iter().chain(remote()) {
        // The device is initialized before anything is counted.
        Tensor::new([1u8, 2]).to(device).realize().unwrap();
        memory::reset_peak();
        let (buffers, own) = (memory::live_bytes(), LIVE.load(Ordering::Relaxed));
        PEAK.store(own, Ordering::Relaxed);
        let there = mapped.to(device).realize().unwrap();
        let (buffers, own) = (memory::peak_bytes() - buffers, PEAK.load(Ordering::Relaxed) - own);
        let expected = if device == "INTERP" { bytes.len() } else { 0 };
        assert_eq!(buffers, expected, "{device}: the only copy is the buffer");
        // A file is read in pieces of 16 MiB. WebGPU's queue has memory of the library.
        assert!(own < 17 * MIB || device == "WEBGPU", "{device}: {own} further bytes on the host");
        assert!(there.to_vec::<u8>().unwrap() == bytes, "{device}");
    }
}

#[test]
fn file_slices_load_on_every_device() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let bytes = content(20 * MIB);
    let folder = common::TempDir::new();
    let file = folder.file("parts");
    std::fs::write(&file, &bytes).unwrap();
    let whole = Buffer::of_file(&file).unwrap();
    for device in ["INTERP"].into_iter().chain(remote()) {
        for (at, dtype, len) in [
            (1, DType::U8, 17 * MIB),
            (3, DType::I16, 5),
            (5, DType::I32, 2 * MIB + 1),
            (2, DType::BOOL, 3 * MIB + 3),
            (7, DType::U8, 0),
        ] {
            let part = whole.part_of_file(at, dtype, len);
            // SAFETY: the verifier accepts the graph, and it has no custom kernels.
            let there =
                unsafe { Tensor::from_uop_unchecked(part.node(), part.device_name().clone()) }
                    .to(device)
                    .realize()
                    .unwrap();
            let expected = &bytes[at..at + len * dtype.itemsize()];
            let expected: Vec<u8> = if dtype == DType::BOOL {
                expected.iter().map(|b| (*b != 0) as u8).collect()
            } else {
                expected.to_vec()
            };
            let got: Vec<u8> = match dtype {
                DType::U8 => there.to_vec::<u8>().unwrap(),
                DType::I16 => {
                    there.to_vec::<i16>().unwrap().into_iter().flat_map(i16::to_ne_bytes).collect()
                }
                DType::I32 => {
                    there.to_vec::<i32>().unwrap().into_iter().flat_map(i32::to_ne_bytes).collect()
                }
                _ => there.to_vec::<bool>().unwrap().into_iter().map(u8::from).collect(),
            };
            assert!(got == expected, "{len} × {dtype} from {at} on {device}");
        }
    }
}

#[test]
fn copies_leave_neighbouring_elements() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let devices: Vec<&str> = ["INTERP"].into_iter().chain(remote()).collect();
    let x = Tensor::arange(0i32, 1000, 1).to("INTERP").realize().unwrap();
    for from in &devices {
        let there = x.to(from).realize().unwrap();
        for to in &devices {
            // The middle of a buffer, aligned neither to a vector nor to a word of a binding.
            let part = there.shrink(&[(3, 998)]).to(to);
            assert_eq!(
                (&part + 1).to_vec::<i32>().unwrap(),
                (4..999).collect::<Vec<i32>>(),
                "{from} to {to}"
            );
            let bytes = there
                .cast(DType::U8)
                .realize()
                .unwrap()
                .shrink(&[(5, 12)])
                .to(to)
                .to_vec::<u8>()
                .unwrap();
            assert_eq!(bytes, [5, 6, 7, 8, 9, 10, 11], "{from} to {to}");
        }
    }
}

#[test]
fn borrowed_memory_is_read_in_place() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let numbers: std::sync::Arc<[f32]> = (0..MIB).map(|i| i as f32).collect();
    let (buffers, own) = (memory::live_bytes(), LIVE.load(Ordering::Relaxed));
    let lent = Buffer::borrowed(Device::get("INTERP").unwrap().name(), numbers.clone()).unwrap();
    assert!(
        memory::live_bytes() == buffers && LIVE.load(Ordering::Relaxed) - own < 4096,
        "nothing was copied"
    );
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    let x = unsafe { Tensor::from_uop_unchecked(lent.node(), lent.device_name().clone()) };
    assert_eq!(x.shrink(&[(5, 8)]).to_vec::<f32>().unwrap(), [5.0, 6.0, 7.0]);
    // A slice of a buffer keeps the whole buffer alive.
    let part = lent.part(10..12);
    drop((lent, x));
    assert_eq!(std::sync::Arc::strong_count(&numbers), 2);
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    let kept = unsafe { Tensor::from_uop_unchecked(part.node(), part.device_name().clone()) };
    assert_eq!(kept.to_vec::<f32>().unwrap(), [10.0, 11.0]);
    drop((part, kept));
    assert_eq!(
        std::sync::Arc::strong_count(&numbers),
        1,
        "dropping the tensor releases the memory"
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_for_another_cpu_is_equivalent() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let values = |device: &str| {
        let x = Tensor::arange(0f32, 1000.0, 1.0).to(device);
        (&x * 0.37 + 1.0).sin().to_vec::<f32>().unwrap()
    };
    for renderer in ["X86", "LLVM", "CLANG"] {
        let Ok(native) = Device::get(&format!("CPU:{renderer}:native")) else { continue };
        let other = Device::get(&format!("cpu:{renderer}:X86-64-v2")).unwrap();
        assert_eq!(other.target().vector_bytes, 16);
        assert_ne!((native.name(), native.describe()), (other.name(), other.describe()));
        assert_eq!(values(native.name().as_str()), values(other.name().as_str()));
    }
}

/// Tensors that need more buffers than most devices can bind: sums, concatenations, sums of
/// products, and two outputs.
fn of_many_buffers(device: &str) -> Vec<Tensor> {
    let many = |n: usize, seed: i64| -> Vec<Tensor> {
        let one = |i: usize| {
            (0..60).map(|k| ((k * (i as i64 * 7 + seed)) % 23 - 11) as f32).collect::<Vec<f32>>()
        };
        (0..n).map(|i| Tensor::from_vec(one(i), [5, 12]).to(device).realize().unwrap()).collect()
    };
    let sum = |list: &[Tensor]| list[1..].iter().fold(list[0].clone(), |a, b| a + b * 0.5);
    let (a, b) = (many(70, 1), many(40, 3));
    let rows = Tensor::cat(&a, 0);
    let product = (sum(&a[..40]) * sum(&b)).sum(0);
    let inside =
        (sum(&b).reshape([5, 12, 1]) * sum(&a[30..]).permute([1, 0]).reshape([1, 12, 5])).sum(1);
    let largest = b.iter().fold(a[0].max(1), |m, t| m.maximum(t.max(1)));
    vec![sum(&a), rows, product, inside, largest]
}

#[test]
fn kernels_respect_the_buffer_limit() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let expected: Vec<Vec<f32>> =
        of_many_buffers("CPU").iter().map(|t| t.to_vec().unwrap()).collect();
    for device in ["INTERP"].into_iter().chain(remote()) {
        let most = Device::get(device).unwrap().target().max_buffers;
        let values = of_many_buffers(device);
        let items: Vec<ScheduleItem> = values.iter().flat_map(|t| t.schedule().unwrap()).collect();
        let buffers = |i: &ScheduleItem| {
            if let ScheduleItem::Kernel { buffers, .. } = i { buffers.len() } else { 0 }
        };
        assert!(
            items.iter().all(|i| buffers(i) <= most),
            "{device} binds {most} buffers: {:?}",
            items.iter().map(buffers).collect::<Vec<_>>()
        );
        Tensor::realize_many(&values.iter().collect::<Vec<_>>()).unwrap();
        for (value, expected) in values.iter().zip(&expected) {
            assert_eq!(value.to_vec::<f32>().unwrap(), *expected, "{device}");
        }
    }
}

/// The planned memory of the intermediates of tensors computed together.
fn planned(tensors: &[&Tensor]) -> PlannedMemory {
    let request =
        |t: &&Tensor| Request { node: t.uop(), device: t.device().clone(), reuse: vec![] };
    // SAFETY: the graphs come from tensors, and nothing runs.
    unsafe { exec::schedule_unchecked(&tensors.iter().map(request).collect::<Vec<_>>()) }
        .unwrap()
        .plan
        .memory
}

/// Layers with relu between them, and the gradients of a loss with respect to their weights, from
/// the first layer on.
fn gradients_of_layers(device: &str, layers: usize, rows: usize, width: usize) -> Vec<Tensor> {
    let made = |shape: [usize; 2], seed: usize| {
        let numbers: Vec<f32> = (0..shape[0] * shape[1])
            .map(|i| ((i * 7 + seed * 13) % 11) as f32 / 16.0 - 0.3)
            .collect();
        Tensor::from_vec(numbers, shape).to(device).realize().unwrap()
    };
    let weights: Vec<Tensor> = (0..layers).map(|i| made([width, width], i).as_param()).collect();
    let y = weights.iter().fold(made([rows, width], 99), |x, w| x.matmul(w).relu());
    y.sum(..).gradient(&weights.iter().collect::<Vec<_>>())
}

/// Every layer stores only its result for the gradient: the gradient of relu uses its result, and
/// an upstream gradient is freed after those of the previous layer and of the weights, in any order
/// of targets.
#[test]
fn gradients_keep_one_value_for_each_layer() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let (layers, rows, width) = (12, 256, 64);
    let gradients = gradients_of_layers("NULL", layers, rows, width);
    let one = rows * width * 4;
    for turned in [false, true] {
        let mut list: Vec<&Tensor> = gradients.iter().collect();
        if turned {
            list.reverse();
        }
        let m = planned(&list);
        assert!(m.peak <= (layers + 2) * one, "{m:?}, where a value is {one} bytes");
        assert!(m.arena * 100 <= m.peak * 105, "{m:?}");
        assert!(m.separate > m.arena, "{m:?}");
    }
}

#[test]
fn values_do_not_depend_on_memory_offsets() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    // Separately, each gradient has its own plan; together they share one.
    let alone: Vec<Vec<f32>> =
        gradients_of_layers("CPU", 5, 12, 9).iter().map(|g| g.to_vec().unwrap()).collect();
    assert!(alone.iter().flatten().any(|v| *v != 0.0));
    for device in ["CPU", "INTERP"].into_iter().chain(remote()) {
        let together = gradients_of_layers(device, 5, 12, 9);
        Tensor::realize_many(&together.iter().collect::<Vec<_>>()).unwrap();
        for (a, b) in alone.iter().zip(together) {
            let b = b.to_vec::<f32>().unwrap();
            assert!(
                a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0)),
                "{device}: {a:?} {b:?}"
            );
        }
    }
}

#[test]
fn a_buffer_frees_itself_with_its_last_handle() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "INTERP"].into_iter().chain(remote()) {
        let device = Device::get(device).unwrap();
        let before = device.memory().live;
        let whole = Buffer::new(device.name(), DType::F32, MIB).unwrap();
        assert_eq!(device.memory().live, before + 4 * MIB, "{}", device.name());
        let (again, part) = (whole.clone(), whole.part(3..5));
        // SAFETY: the verifier accepts the graph, and it has no custom kernels.
        let tensor = unsafe { Tensor::from_uop_unchecked(part.node(), device.name().clone()) };
        drop((whole, part));
        assert_eq!(
            device.memory().live,
            before + 4 * MIB,
            "{}: a tensor of a slice keeps the whole buffer alive",
            device.name()
        );
        drop(again);
        drop(tensor);
        assert_eq!(device.memory().live, before, "{}", device.name());
    }
}

#[test]
fn allocation_failure_is_recoverable() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for name in ["CPU", "INTERP"].into_iter().chain(remote()) {
        let device = Device::get(name).unwrap();
        let before = device.memory().live;
        let e = Buffer::new(device.name(), DType::U8, 40_000_000_000_000).unwrap_err();
        // The devices of the host share one memory limit.
        let whose = if name == "INTERP" { "CPU" } else { name };
        assert!(
            matches!(
                &e,
                Error::OutOfMemory { device, asked: 40_000_000_000_000, .. }
                    if device.starts_with(whose)
            ),
            "{name}: {e}"
        );
        assert_eq!(device.memory().live, before, "{name}");
        assert_eq!(
            (Tensor::new([1.0f32, 2.0]).to(name) + 1.0).to_vec::<f32>().unwrap(),
            [2.0, 3.0],
            "{name}"
        );
    }
}

/// Freed memory is cached for later buffers of any size, and returned to the driver if an
/// allocation would fail.
#[test]
fn freed_gpu_memory_is_reused() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    for name in remote().into_iter().filter(|d| *d == "CUDA") {
        let device = Device::get(name).unwrap();
        let tenth = device.memory().limit.unwrap() / 10;
        let some: Vec<Buffer> =
            (0..6).map(|_| Buffer::new(device.name(), DType::U8, tenth).unwrap()).collect();
        drop(some);
        Buffer::new(device.name(), DType::U8, 7 * tenth).unwrap();
    }
}

/// The body of the child process of the test below.
#[test]
fn child_process() {
    if std::env::var("PICO_TEST_MEMORY").is_ok() {
        let gradients = gradients_of_layers("INTERP", 4, 512, 16);
        Tensor::realize_many(&gradients.iter().collect::<Vec<_>>()).unwrap();
    }
}

#[test]
fn debug_prints_the_memory_of_intermediates() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    for v in picograd::env::VARIABLES {
        command.env_remove(v.name);
    }
    command
        .args(["--exact", "child_process", "--nocapture", "--test-threads=1"])
        .env("PICO_TEST_MEMORY", "1")
        .env("DEBUG", "1");
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    let line =
        text.lines().find(|l| l.contains("intermediates: ")).unwrap_or_else(|| panic!("{text}"));
    let memory = line.split(" | ").last().unwrap();
    // The planned bytes, the bytes without reuse, and the peak memory.
    let number = |w: &str| w.trim_start_matches('(').parse::<f64>().ok();
    let numbers: Vec<f64> = memory.split_whitespace().filter_map(number).collect();
    assert!(
        line.starts_with("scheduled")
            && numbers.len() == 3
            && numbers[1] > numbers[0]
            && numbers[0] >= numbers[2]
            && numbers[2] > 0.0,
        "{line}"
    );
}
