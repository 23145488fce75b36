//! `BEAM=n`: kernels are tuned once, results are correct, and the next process uses the tuned Opts
//! without a search.

use picograd::exec::ExecItem;
use picograd::{DType, Device, Tensor, device};
use std::path::Path;
use std::process::Command;

/// The body of the child process of the test below.
#[test]
fn child_process() {
    if std::env::var("PICO_TEST_BEAM").is_err() {
        return;
    }
    let x =
        Tensor::arange(0.0f32, 24.0 * 32.0, 1.0).reshape([24, 32]).contiguous().realize().unwrap();
    let w = Tensor::full([32, 16], 0.5f32).contiguous().realize().unwrap();
    let y = x.matmul(&w).relu().to_vec::<f32>().unwrap();
    let expected =
        (0..24 * 16).map(|i| (0..32).map(|k| (i / 16 * 32 + k) as f32 * 0.5).sum::<f32>());
    assert!(y.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs()));
    let c = device::counters();
    println!("made {} kept {} searched {}", c.compiled, c.from_cache, c.searched);
}

/// The counts that a child process prints, and its standard error.
fn process(device: &str, folder: &Path, settings: &[(&str, &str)]) -> ([u64; 3], String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for v in picograd::env::VARIABLES {
        command.env_remove(v.name);
    }
    command
        .args(["--exact", "beam::child_process", "--nocapture", "--test-threads=1"])
        .env("PICO_CACHE", folder)
        .env("PICO_TEST_BEAM", "1");
    let out = command.env("DEV", device).envs(settings.iter().copied()).output().unwrap();
    let (text, err) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    assert!(out.status.success(), "{text}{err}");
    let line =
        text.lines().find_map(|l| l.split("made ").nth(1)).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split(' ').collect();
    ([words[0], words[2], words[4]].map(|w| w.parse().unwrap()), err)
}

#[test]
fn a_kernel_is_searched_for_once() {
    for device in ["CPU:X86", "CPU:CLANG", "CPU:LLVM"] {
        if let Err(e) = Device::get(device) {
            eprintln!("skipped {device}: {e}");
            continue;
        }
        let folder = std::env::temp_dir().join(format!(
            "picograd-beam-{}-{}",
            device.replace(':', "-"),
            std::process::id()
        ));
        let beam = [("BEAM", "2"), ("BEAM_SECONDS", "0.7"), ("DEBUG", "1")];
        let ([made, _, searched], err) = process(device, &folder, &beam);
        assert!(
            made >= 2 && searched == made,
            "{device}: {made} kernels and {searched} searches\n{err}"
        );
        assert_eq!(
            err.lines().filter(|l| l.starts_with("beam ") && l.contains("heuristic")).count()
                as u64,
            searched,
            "{err}"
        );
        let (again, err) = process(device, &folder, &beam);
        // CPU:X86 stores Opts, and generates the code again.
        let from_cache = if device == "CPU:X86" { 0 } else { made };
        assert_eq!(again, [made, from_cache, 0], "{device}: all are cache hits\n{err}");
        assert!(!err.contains("beam "), "{err}");
        // Without BEAM the tuned Opts are not used, and another beam width is another entry.
        assert_eq!(process(device, &folder, &[]).0[2], 0);
        assert_eq!(process(device, &folder, &[("BEAM", "3"), ("BEAM_SECONDS", "0.1")]).0[2], made);
        // The progress of a search is printed only on a terminal.
        let (_, err) = process(device, &folder, &[("BEAM", "4"), ("BEAM_SECONDS", "0.1")]);
        assert!(!err.contains("beam "), "{err}");
        let _ = std::fs::remove_dir_all(&folder);
    }
}

#[test]
fn an_item_runs_with_a_given_opt_list() {
    use picograd::opt;
    let x = Tensor::rand([16, 24])
        .cast(DType::F32)
        .contiguous()
        .realize()
        .unwrap()
        .to("INTERP")
        .realize()
        .unwrap();
    let item = (&x * 3.0).sum(1).schedule().unwrap().pop().unwrap();
    let pinned = item.compile_with(&opt::parse("UPCAST:0:4 UNROLL:1:8").unwrap()).unwrap();
    assert_eq!(opt::show(&pinned.compiled().unwrap().opts), "UPCAST:0:4 UNROLL:1:8");
    assert_eq!(pinned.compiled().unwrap().program.name, "r_4_3_4_8");
    let lanes = |item: &ExecItem| {
        let uops = &item.compiled().unwrap().program.uops;
        let computed = uops.iter().filter(|u| u.op().is_alu() && u.dtype().is_float());
        computed.map(|u| u.dtype().lanes).max().unwrap()
    };
    assert_eq!(lanes(&pinned), 1);
    pinned.run().unwrap();
    let vectors = item.compile_with(&opt::parse("UPCAST:0:4 UNROLL:1:8 VECTORIZE:3").unwrap());
    assert_eq!(lanes(&vectors.unwrap()), 4);
    assert!(item.compile_with(&[]).unwrap().compiled().unwrap().opts.is_empty());
    for (list, says) in [
        ("UPCAST:0:5", "does not divide the axis of 16"),
        ("THREAD:1:2", "of kind Reduce, not an output axis"),
        ("UNROLL:0:4", "axis 0 is of kind"),
    ] {
        let e = item.compile_with(&opt::parse(list).unwrap()).err().unwrap().to_string();
        assert!(e.contains(list) && e.contains(says), "{e}");
    }
    for text in ["UPCAST:0", "upcast:0:4", "UPCAST:0:4:1", "FASTER:0:1", "UPCAST:-1:4"] {
        let e = opt::parse(text).unwrap_err().to_string();
        assert!(e.contains(text) && e.contains("UPCAST:1:4"), "{e}");
    }
}
