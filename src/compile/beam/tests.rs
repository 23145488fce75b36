//! Tests of the search: its result is valid, correct and cached; candidates that hang, fault or
//! compute other values are dropped; the time limit is respected.

use crate::compile::beam::*;
use crate::device::testing::TempDir;
use crate::device::{Memory, MemoryRef};
use crate::exec::ScheduleItem;
use crate::lower::Launch;
use crate::{DType, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the CPU, if it compiles.
fn cpu() -> Option<Device> {
    Device::get("CPU").inspect_err(|e| eprintln!("skipped: {e}")).ok()
}

/// Returns the kernel that computes a tensor.
fn kernel_of(t: &Tensor) -> Kernel {
    match t.schedule().unwrap().pop() {
        Some(ScheduleItem::Kernel { ast, .. }) => Kernel::new(ast),
        other => panic!("{other:?}"),
    }
}

fn stored(shape: [usize; 2], device: &Device) -> Tensor {
    Tensor::rand(shape).cast(DType::F32).to(device.name().as_str()).contiguous().realize().unwrap()
}

/// The behaviour of a bad executable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bad {
    Hangs,
    Faults,
    Refuses,
    Panics,
    Lies,
}

struct Wrapped {
    inner: Option<Arc<dyn Executable>>,
    bad: Option<Bad>,
}

impl Executable for Wrapped {
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        match self.bad {
            Some(Bad::Hangs) => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            // SAFETY: none: the address is nobody's, which is the point. It only runs in a copy of
            // this process.
            Some(Bad::Faults) => unsafe {
                std::ptr::without_provenance_mut::<u8>(8).write_volatile(1)
            },
            Some(Bad::Refuses) => return Err(Error::Device("refused".into())),
            Some(Bad::Panics) => std::panic::resume_unwind(Box::new("a panic of the test")),
            Some(Bad::Lies) | None => {}
        }
        let time = self.inner.as_ref().map_or(Ok(Duration::ZERO), |e| {
            // SAFETY: the caller's promise.
            unsafe { e.run(args, launch) }
        })?;
        if self.bad == Some(Bad::Lies)
            && let Memory::Host(h) = args[0].memory
        {
            // SAFETY: the first output of the kernels of these tests has more than four bytes.
            unsafe { h.ptr().cast::<f32>().write(1234.5) };
        }
        // Without the check of values, a wrong kernel would be chosen.
        Ok(if self.bad.is_some() { Duration::from_nanos(1) } else { time })
    }
    fn machine_code(&self) -> Option<&[u8]> {
        Some(&[])
    }
}

#[cfg(unix)]
#[test]
fn endless_candidates_are_stopped() {
    let bads = [
        None,
        Some(Bad::Faults),
        None,
        Some(Bad::Hangs),
        Some(Bad::Refuses),
        None,
        Some(Bad::Panics),
        Some(Bad::Faults),
        None,
    ];
    let wrapped: Vec<Wrapped> = bads.iter().map(|bad| Wrapped { inner: None, bad: *bad }).collect();
    let candidates: Vec<(&dyn Executable, Launch)> =
        wrapped.iter().map(|w| (w as &dyn Executable, Launch::default())).collect();
    let _alone = buffer::lock_for_kernel();
    let far = Instant::now() + Duration::from_secs(600);
    let runs = trial::run_in_fork(&candidates, &[], Duration::from_secs(3), far);
    let expected = bads.map(|bad| match bad {
        None | Some(Bad::Lies) => FirstRun::Ended(Duration::ZERO),
        Some(Bad::Faults) => FirstRun::Died,
        Some(Bad::Hangs) => FirstRun::Slow,
        Some(Bad::Refuses | Bad::Panics) => FirstRun::Refused,
    });
    assert_eq!(runs, expected);
    // After the time limit nothing is waited for.
    let start = Instant::now();
    let runs = trial::run_in_fork(
        &candidates[3..6],
        &[],
        Duration::from_secs(600),
        start + Duration::from_millis(50),
    );
    assert!(runs == [FirstRun::Slow; 3] && start.elapsed() < Duration::from_secs(60));
    assert!(trial::run_in_fork(&[], &[], Duration::ZERO, far).is_empty());
}

#[test]
fn failing_candidates_are_skipped() {
    let Some(device) = cpu() else { return };
    let (a, b) = (stored([32, 48], &device), stored([48, 64], &device));
    let kernel = kernel_of(&a.matmul(&b));
    let (made, bad) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrap = |inner: Arc<dyn Executable>| -> Arc<dyn Executable> {
        let kinds = [
            (3, Bad::Hangs),
            (5, Bad::Faults),
            (6, Bad::Refuses),
            (8, Bad::Lies),
            (11, Bad::Faults),
            (12, Bad::Lies),
            (14, Bad::Panics),
        ];
        let n = made.fetch_add(1, Ordering::Relaxed);
        let bad = kinds.iter().find(|k| k.0 == n).map(|k| {
            bad.fetch_add(1, Ordering::Relaxed);
            k.1
        });
        Arc::new(Wrapped { inner: Some(inner), bad })
    };
    let found = search(&kernel, &device, Beam { width: 1, seconds: 20.0 }, &wrap).unwrap().unwrap();
    assert_eq!(bad.load(Ordering::Relaxed), 7, "all of them were tried: {found:?}");
    assert!(found.time > Duration::from_nanos(1), "a liar was chosen: {found:?}");
    assert!(found.time <= found.heuristic && found.tried > 15, "{found:?}");
    assert!(kernel.apply_all(&found.opts, device.target()).is_ok(), "{found:?}");
}

#[test]
fn tuned_kernels_keep_values() {
    for name in ["CPU:CLANG", "CPU:LLVM", "INTERP"] {
        let Ok(device) = Device::get(name) else { continue };
        let x = stored([12, 40], &device);
        for t in [x.softmax(-1), (&x * 2.0 + 1.0).relu(), x.sum(0)] {
            let item = t.schedule().unwrap().pop().unwrap();
            let found = item.tune(Beam { width: 2, seconds: 0.4 }).unwrap().unwrap();
            let pinned = item.compile_with(&found.opts).unwrap();
            pinned.run().unwrap();
            let ScheduleItem::Kernel { buffers, .. } = &item else { panic!("{item}") };
            let got: Vec<f32> =
                crate::dtype::element::from_bytes(&buffers[0].buffer.read().unwrap());
            let expected = t.to_vec::<f32>().unwrap();
            assert!(
                got.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4)
                    && got.len() == expected.len(),
                "{name}: {}",
                opt::show(&found.opts)
            );
        }
    }
}

#[test]
fn the_time_limit_is_respected() {
    let Some(device) = cpu() else { return };
    let (a, b) = (stored([128, 128], &device), stored([128, 128], &device));
    let kernel = kernel_of(&a.matmul(&b));
    let hang = |inner: Arc<dyn Executable>| -> Arc<dyn Executable> {
        Arc::new(Wrapped { inner: Some(inner), bad: Some(Bad::Hangs) })
    };
    for wrap in [&hang as Wrap, &|e| e] {
        let start = Instant::now();
        let found =
            search(&kernel, &device, Beam { width: 4, seconds: 0.5 }, wrap).unwrap().unwrap();
        // Lowering and compiling one batch may be begun before the end.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(kernel.apply_all(&found.opts, device.target()).is_ok());
    }
}

#[test]
fn null_devices_are_not_searched() {
    let device = Device::get("NULL").unwrap();
    let x = Tensor::zeros([8, 8]).to("NULL").contiguous();
    let kernel = kernel_of(&(x + 1.0));
    assert_eq!(search(&kernel, &device, Beam { width: 2, seconds: 1.0 }, &|e| e).unwrap(), None);
}

#[test]
fn cached_results_need_as_wide_a_search() {
    let tmp = TempDir::new("opts");
    let store = DiskCache::at(tmp.path());
    let device = Device::get("INTERP").unwrap();
    let kernel = kernel_of(&(stored([8, 8], &device) + 1.0));
    let key = key(&kernel.ast, &device);
    assert_eq!(load_tuned(&store, key, 1), None);
    let opts = opt::parse("UPCAST:0:4 LOCAL:0:2").unwrap();
    let time = Duration::from_micros(3);
    let found = Tuned { opts: opts.clone(), time, heuristic: time, tried: 9, took: time };
    store_tuned(&store, key, &device, 4, &found);
    assert_eq!(
        (load_tuned(&store, key, 4), load_tuned(&store, key, 1), load_tuned(&store, key, 5)),
        (Some(opts.clone()), Some(opts), None)
    );
    store_tuned(&store, key, &device, 1, &Tuned { opts: Vec::new(), ..found });
    assert_eq!(load_tuned(&store, key, 1), Some(Vec::new()), "nothing may be the best");
    assert_eq!(store.contents().unwrap().entries[&(EntryKind::Opts, "INTERP".to_string())].0, 1);
    // An invalid entry is ignored.
    for text in ["", "4", "x\nUPCAST:0:4", "4\nUPCAST:0"] {
        store.put(&[CacheEntry {
            key,
            kind: EntryKind::Opts,
            device: "INTERP",
            value: text.as_bytes(),
        }]);
        assert_eq!(load_tuned(&store, key, 1), None, "{text:?}");
    }
    let other = kernel_of(&(stored([8, 8], &device) + 2.0));
    assert_ne!(key, super::key(&other.ast, &device));
}
