//! The `pico` command: output and exit codes.

use std::io::Read;
use std::process::{Command, Output, Stdio};

fn pico(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pico"));
    command.args(words);
    for v in picograd::env::VARIABLES {
        command.env_remove(v.name);
    }
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn help_and_version_are_printed() {
    let (code, out, _) = run(&mut pico(&["--help"]));
    assert!(code == Some(0) && out.starts_with("usage: pico") && out.contains("devices"), "{out}");
    let (code, out, _) = run(&mut pico(&["--version"]));
    assert_eq!((code, out.trim()), (Some(0), concat!("pico ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn unknown_arguments_exit_with_two() {
    for words in
        [&["dance"][..], &["cache", "eat"], &["cache", "clear", "all"], &["devices", "all"], &[]]
    {
        let (code, out, err) = run(&mut pico(words));
        assert!(
            code == Some(2) && out.is_empty() && err.contains("usage: pico"),
            "{words:?}: {code:?} {err}"
        );
    }
}

#[test]
fn devices_are_listed_with_remedies() {
    let (code, out, _) = run(&mut pico(&["devices"]));
    assert!(
        code == Some(0)
            && ["CPU:LLVM", "CPU:CLANG", "INTERP", "NULL"].iter().all(|d| out.contains(d))
            && out.contains("\n* is the default device"),
        "{out}"
    );
    // Without a compiler, the reason and the remedy are below the name.
    let (code, out, _) =
        run(pico(&["devices"]).env("PATH", "").env("PICO_LLVM", "off").env("PICO_CACHE", "off"));
    assert!(
        code == Some(0)
            && out.contains("CPU:LLVM   not available: ")
            && out.contains("CPU:CLANG  not available: "),
        "{out}"
    );
    assert!(out.contains("install") && out.contains("* CPU:X86"), "{out}");
    // A file that PICO_LLVM names and that is no library is an error; no other compiler is used.
    let (code, out, _) = run(pico(&["devices"])
        .env_remove("DEV")
        .env("PICO_LLVM", "/etc/hostname")
        .env("PICO_CACHE", "off"));
    assert!(
        code == Some(0)
            && out.contains("the default device cannot be used")
            && out.contains("PICO_LLVM=/etc/hostname: "),
        "{out}"
    );
    // The renderer that `DEV` names is the default of the CPU.
    let (_, out, _) = run(pico(&["devices"]).env("DEV", "CPU:CLANG"));
    assert!(out.contains("* CPU:CLANG") && out.contains("  CPU:LLVM"), "{out}");
    // So is the architecture.
    if cfg!(target_arch = "x86_64") {
        let (_, out, _) =
            run(pico(&["devices"]).env("DEV", "cpu:clang:x86-64-v2").env("PICO_LLVM", "off"));
        assert!(
            out.lines().any(|l| l.starts_with("* CPU:CLANG")
                && l.contains(" for x86-64-v2")
                && l.contains("vectors of 16 bytes")),
            "{out}"
        );
    }
    let (code, out, _) = run(pico(&["devices"]).env("DEV", "ABACUS"));
    assert!(
        code == Some(0) && out.contains("DEV=ABACUS names") && out.contains("expected CUDA, METAL"),
        "{out}"
    );
    let (_, out, _) = run(pico(&["devices"]).env("DEV", "CUDA:fermi"));
    assert!(out.contains("its ARCHs are native and sm_NN"), "{out}");
}

#[test]
fn the_cache_is_shown_and_cleared() {
    use picograd::disk_cache::{CacheEntry, CacheKey, DiskCache, EntryKind};
    let folder = std::env::temp_dir().join(format!("picograd-pico-{}", std::process::id()));
    let cache = DiskCache::at(&folder);
    let put = |key: u128, kind: EntryKind, device: &str, value: &[u8]| {
        // SAFETY: no process looks up these keys.
        unsafe { cache.put_unchecked(&[CacheEntry { key: CacheKey(key), kind, device, value }]) }
    };
    let show = || run(pico(&["cache"]).env("PICO_CACHE", &folder).env("PICO_CACHE_SIZE", "3"));
    let (code, out, _) = show();
    assert!(
        code == Some(0)
            && out.contains("size      0 bytes of at most 3.1 MB")
            && out.contains("programs  0, 0 bytes\n"),
        "{out}"
    );
    put(1, EntryKind::Program, "CPU:LLVM", &[7; 1000]);
    put(2, EntryKind::Program, "CPU:LLVM", &[7; 500]);
    put(4, EntryKind::Object, "CPU:LLVM", &[7; 500]);
    put(3, EntryKind::Opts, "CPU:CLANG", b"UPCAST:0:4");
    let (code, out, _) = show();
    assert!(
        code == Some(0) && out.starts_with(&format!("folder    {}\n", folder.display())),
        "{out}"
    );
    assert!(
        out.contains(
            "programs  2, 2.2 kB\n  CPU:LLVM    2\nopts      1, 62 bytes\n  CPU:CLANG   1\n"
        ),
        "{out}"
    );
    assert!(!out.contains("failed") && !out.contains("corrupt"), "{out}");
    let clear = |words: &[&str]| {
        run(pico(&[&["cache", "clear"], words].concat()).env("PICO_CACHE", &folder))
    };
    let (code, out, _) = clear(&["opts"]);
    assert!(code == Some(0) && out.starts_with("deleted 1 entries"), "{out}");
    let (code, out, _) = clear(&["programs"]);
    assert!(code == Some(0) && out.starts_with("deleted 3 entries"), "{out}");
    put(3, EntryKind::Opts, "CPU:CLANG", b"UPCAST:0:4");
    // Failed writes and corrupt entries are shown until everything is cleared.
    std::fs::create_dir(folder.join(CacheKey(9).to_string())).unwrap();
    put(9, EntryKind::Opts, "CPU:CLANG", b"UPCAST:0:4");
    std::fs::write(folder.join(format!("{}.corrupt", CacheKey(8))), "damaged").unwrap();
    std::fs::remove_dir(folder.join(CacheKey(9).to_string())).unwrap();
    let (_, out, _) = show();
    assert!(out.contains("failed    1 writes") && out.contains("corrupt   1, "), "{out}");
    let (code, out, _) = clear(&[]);
    assert!(
        code == Some(0)
            && out.starts_with("deleted 1 entries")
            && cache.contents().unwrap().bytes == 0,
        "{out}"
    );
    assert!(!show().1.contains("failed") && !show().1.contains("corrupt"));
    let (code, out, _) = run(pico(&["cache"]).env("PICO_CACHE", "off"));
    assert!(code == Some(0) && out.contains("there is no disk cache: PICO_CACHE"), "{out}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// A closed pipe does not panic.
#[test]
fn a_closed_pipe_does_not_panic() {
    for words in [&["devices"][..], &["cache"], &["--help"]] {
        let mut child = pico(words)
            .env("PICO_CACHE", "off")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() && err.is_empty(), "{words:?}: {status} {err}");
    }
}
