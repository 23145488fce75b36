//! Interrupted saves: a killed process, a full disk, files in use.

use crate::common::{self, TempDir};
use picograd::Tensor;
use picograd::io::{StateDict, npy_load, npy_save, safe_load, safe_save};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A state of about 1 MB whose every element is `n`.
fn state(n: i32) -> StateDict {
    StateDict::from_iter([
        ("a", Tensor::from_vec(vec![n; 200_000], [200_000])),
        ("b", Tensor::from_vec(vec![n; 50_000], [50, 1000])),
    ])
}

/// This test binary as a child process that runs one test in another role.
fn child(test: &str, role: &str, value: &std::path::Path) -> Command {
    let mut command = common::child(test);
    command.env(role, value).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn a_killed_save_leaves_a_complete_file() {
    if let Some(path) = std::env::var_os("SAVE_UNTIL_KILLED") {
        for n in 1.. {
            safe_save(&path, &state(n), &[]).unwrap();
        }
    }
    let folder = TempDir::new();
    let path = folder.file("model.safetensors");
    safe_save(&path, &state(0), &[]).unwrap();
    let mut last = 0;
    let mut cut_off = 0;
    for round in 0..20u64 {
        let mut saver =
            child("saving::a_killed_save_leaves_a_complete_file", "SAVE_UNTIL_KILLED", &path)
                .spawn()
                .unwrap();
        // Kills the child at a different moment of its save in each round.
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        let start = Instant::now();
        while std::fs::metadata(&path).unwrap().modified().unwrap() == before
            && start.elapsed() < Duration::from_secs(30)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 1733 % 12_000));
        saver.kill().unwrap();
        assert_eq!(
            saver.wait().unwrap().signal(),
            Some(libc::SIGKILL),
            "the child saved until it was killed"
        );
        let loaded = safe_load(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let a = loaded.get("a").unwrap().to_vec::<i32>().unwrap();
        let b = loaded.get("b").unwrap().to_vec::<i32>().unwrap();
        last = a[0];
        assert!(
            last > 0 && a.iter().chain(&b).all(|v| *v == last),
            "round {round}: a mixture of two saves"
        );
        cut_off += folder.names().iter().filter(|n| n.ends_with(".tmp")).count();
        folder
            .names()
            .iter()
            .filter(|n| n.ends_with(".tmp"))
            .for_each(|n| std::fs::remove_file(folder.file(n)).unwrap());
    }
    assert!(cut_off > 0, "no kill of 20 came in the middle of a save (the last was number {last})");
}

#[test]
fn a_full_disk_keeps_the_old_file() {
    if let Some(path) = std::env::var_os("SAVE_WITHOUT_ROOM") {
        let e = safe_save(&path, &state(2), &[]).unwrap_err().to_string();
        let e2 = npy_save(&path, &Tensor::full([1 << 20], 2)).unwrap_err().to_string();
        std::process::exit(if e.contains("model") && e.contains("arge") && e2 == e {
            42
        } else {
            1
        });
    }
    let folder = TempDir::new();
    let path = folder.file("model.safetensors");
    safe_save(&path, &state(1), &[]).unwrap();
    let old = std::fs::read(&path).unwrap();
    let mut command = child("saving::a_full_disk_keeps_the_old_file", "SAVE_WITHOUT_ROOM", &path);
    command.env("DEV", "INTERP");
    // SAFETY: both calls may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(
                libc::RLIMIT_FSIZE,
                &libc::rlimit { rlim_cur: 300_000, rlim_max: 300_000 },
            );
            Ok(())
        });
    }
    assert_eq!(command.status().unwrap().code(), Some(42));
    assert!(std::fs::read(&path).unwrap() == old, "the old file stays");
    assert_eq!(folder.names(), ["model.safetensors"], "nothing is left behind");
}

#[test]
fn saving_over_an_open_file_keeps_its_tensors() {
    let folder = TempDir::new();
    let path = folder.file("model.safetensors");
    safe_save(&path, &state(1), &[]).unwrap();
    let on_disk = safe_load(&path).unwrap();
    // Saves the tensors of the open file, one of them replaced.
    let mut next = on_disk.clone();
    next.insert("b", Tensor::full([3], 9));
    safe_save(&path, &next, &[]).unwrap();
    assert!(on_disk.get("b").unwrap().to_vec::<i32>().unwrap().iter().all(|v| *v == 1));
    let again = safe_load(&path).unwrap();
    assert_eq!(again.get("b").unwrap().to_vec::<i32>().unwrap(), [9, 9, 9]);
    assert_eq!(
        again.get("a").unwrap().to_bytes().unwrap(),
        on_disk.get("a").unwrap().to_bytes().unwrap()
    );
}

#[test]
fn failed_saves_report_why_and_links_are_followed() {
    let folder = TempDir::new();
    let t = Tensor::new([1.0f32]);
    let e = npy_save(folder.file("no/such/folder.npy"), &t).unwrap_err().to_string();
    assert!(e.contains("folder.npy"), "{e}");
    std::fs::create_dir(folder.file("taken")).unwrap();
    assert!(npy_save(folder.file("taken"), &t).is_err());
    npy_save(folder.file("real.npy"), &t).unwrap();
    std::os::unix::fs::symlink("real.npy", folder.file("link.npy")).unwrap();
    npy_save(folder.file("link.npy"), &Tensor::new([2.0f32])).unwrap();
    assert_eq!(npy_load(folder.file("real.npy")).unwrap().to_vec::<f32>().unwrap(), [2.0]);
    assert!(std::fs::symlink_metadata(folder.file("link.npy")).unwrap().is_symlink());
    assert_eq!(folder.names(), ["link.npy", "real.npy", "taken"]);
    // An error of a computation occurs before the file is created.
    let null = StateDict::from_iter([("a", Tensor::new([1.0f32]).to("NULL"))]);
    assert!(safe_save(folder.file("real.npy"), &null, &[]).is_err());
    assert!(npy_load(folder.file("real.npy")).is_ok());
}

/// A child process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn saves_remove_stale_temporary_files() {
    if let Some(path) = std::env::var_os("SAVE_UNTIL_KILLED_AGAIN") {
        for n in 1.. {
            safe_save(&path, &state(n), &[]).unwrap();
        }
    }
    let folder = TempDir::new();
    let path = folder.file("model.safetensors");
    // Content is written while the process holds the lock.
    let written = |n: &String| {
        n.ends_with(".tmp") && std::fs::metadata(folder.file(n)).is_ok_and(|m| m.len() > 0)
    };
    let left = || folder.names().into_iter().filter(written).collect::<Vec<_>>();
    let whole = || {
        let loaded = safe_load(&path).unwrap();
        let all = [loaded.get("a"), loaded.get("b")]
            .map(|t| t.unwrap().to_vec::<i32>().unwrap())
            .concat();
        assert!(all.len() == 250_000 && all.iter().all(|v| *v == all[0]), "a mixture of two saves");
        all[0]
    };
    let saver =
        child("saving::saves_remove_stale_temporary_files", "SAVE_UNTIL_KILLED_AGAIN", &path)
            .spawn()
            .unwrap();
    let mut saver = Killed(saver);
    let pid = saver.0.id() as libc::pid_t;
    let start = Instant::now();
    loop {
        while left().is_empty() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut status = 0;
        // SAFETY: the child is not waited for yet, so the number is its own; the status is written
        // to a local.
        unsafe {
            libc::kill(pid, libc::SIGSTOP);
            libc::waitpid(pid, &mut status, libc::WUNTRACED);
        }
        assert!(libc::WIFSTOPPED(status), "the child saves until it is killed");
        if !left().is_empty() || start.elapsed() > Duration::from_secs(60) {
            break;
        }
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }
    let cut_off = left();
    // A save that is stopped midway does not change the target, and keeps its temporary file while
    // its process lives.
    if path.exists() {
        assert!(whole() > 0);
    }
    safe_save(&path, &state(0), &[]).unwrap();
    let kept = left();
    saver.0.kill().unwrap();
    assert_eq!(saver.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_eq!(cut_off.len(), 1, "the child was not stopped in the middle of a save");
    assert_eq!(kept, cut_off, "the file of a process that lives stays");
    assert_eq!((left(), whole()), (cut_off, 0), "a kill removes and moves nothing");
    safe_save(&path, &state(-1), &[]).unwrap();
    assert_eq!((folder.names(), whole()), (vec!["model.safetensors".to_string()], -1));
}
