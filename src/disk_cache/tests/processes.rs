//! Several processes on one folder: concurrent writes, killed writers, read-only and full disks.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The work of a process that the tests below start: the folder and the task are in its
/// environment.
#[test]
fn child_process() {
    let Some(dir) = std::env::var_os("PICO_TEST_STORE") else { return };
    let cache = DiskCache::at(Path::new(&dir));
    match std::env::var("PICO_TEST_DO").unwrap().as_str() {
        "race" => race(&cache),
        // In a read-only folder, existing entries can still be read.
        "read-only" => {
            assert_eq!(right(&cache, 20), 20);
            put(&cache, key(20), &value(20));
            assert_eq!((cache.stats().failed_writes, get(&cache, key(20))), (1, None));
        }
        "full" => {
            let big: Vec<u8> = value(79).repeat(2000);
            put(&cache, CacheKey(1), &big);
            assert_eq!(cache.stats().failed_writes, 1);
            assert_eq!((get(&cache, CacheKey(1)), right(&cache, 20)), (None, 20));
            assert_eq!(cache.contents().unwrap().failed_writes, 1);
        }
        other => panic!("{other}"),
    }
}

fn command(dir: &Path, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "disk_cache::tests::processes::child_process",
        "--test-threads=1",
        "--nocapture",
    ]);
    command.env("PICO_TEST_STORE", dir).env("PICO_TEST_DO", what).stdout(Stdio::null());
    command
}

/// Reads and writes the same keys as others, a batch at a time.
fn race(cache: &DiskCache) {
    for round in 0..8 {
        for start in (0..60).step_by(10) {
            let keys: Vec<u64> = (start..start + 10).collect();
            let found = cache.get(&keys.iter().map(|n| key(*n)).collect::<Vec<_>>());
            let mut new = Vec::new();
            for (n, v) in keys.into_iter().zip(found) {
                match v {
                    Some(v) if (n + round) % 7 != 0 => assert_eq!(v, value(n)),
                    _ => new.push((key(n), value(n))),
                }
            }
            let entries: Vec<CacheEntry> = new
                .iter()
                .map(|(k, v)| CacheEntry {
                    key: *k,
                    kind: EntryKind::Object,
                    device: "TEST",
                    value: v,
                })
                .collect();
            cache.put(&entries);
        }
    }
    assert_eq!(cache.stats().corrupt, 0);
}

fn racer(dir: &Path) -> Child {
    command(dir, "race").spawn().unwrap()
}

#[test]
fn threads_and_processes_write_the_same_keys() {
    let tmp = TempDir::new("race");
    let mut children = [racer(tmp.path()), racer(tmp.path())];
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| race(&DiskCache::at(tmp.path())));
        }
    });
    assert!(children.iter_mut().all(|c| c.wait().unwrap().success()));
    let cache = DiskCache::at(tmp.path());
    assert_eq!((right(&cache, 60), entries(&cache)), (60, 60));
    let names: Vec<_> = fs::read_dir(tmp.path())
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        names.iter().filter(|n| n.len() != 32).collect::<Vec<_>>(),
        ["secret"],
        "nothing else is left in the folder"
    );
}

#[test]
fn a_killed_writer_leaves_complete_entries() {
    let tmp = TempDir::new("kill");
    let mut random = Random(9);
    let mut found = 0;
    for i in 0..40 {
        let mut child = racer(tmp.path());
        // Some processes run for a while before they are killed.
        let begun = Instant::now();
        while i % 8 == 0
            && right(&DiskCache::at(tmp.path()), 60) == 0
            && begun.elapsed() < Duration::from_secs(30)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_micros(2000 + random.below(60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let cache = DiskCache::at(tmp.path());
        found += right(&cache, 60);
        put(&cache, CacheKey(i), b"written after it");
        assert!(get(&cache, CacheKey(i)).is_some());
        assert_eq!(cache.stats().corrupt, 0);
        let names: Vec<_> = fs::read_dir(tmp.path())
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(names.iter().all(|n| !n.ends_with(".corrupt")), "a kill damages no entry");
        assert!(
            names.iter().all(|n| !n.starts_with(".new-")),
            "the first write removes what was left: {names:?}"
        );
        if i % 8 == 7 {
            cache.clear(&EntryKind::ALL).unwrap();
        }
    }
    assert!(found > 0, "no writer lived long enough to write");
}

#[test]
fn a_folder_that_cannot_be_written_to_can_be_read() {
    let tmp = TempDir::new("readonly");
    let dir = tmp.path().join("store");
    filled(&dir);
    let mut child = command(&dir, "read-only");
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        // Root may write everywhere, so that another user has to try, with a copy of this program
        // that it can access.
        let nobody = 65534;
        let program = tmp.path().join("tests");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for p in fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).chain([dir.clone()]) {
            std::os::unix::fs::chown(p, Some(nobody), Some(nobody)).unwrap();
        }
        let mut other = Command::new(&program);
        other
            .args(child.get_args())
            .envs(child.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .stdout(Stdio::null())
            .current_dir("/");
        other.uid(nobody).gid(nobody);
        child = other;
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).unwrap();
    // Copies of this process that other tests make may hold the new program open for a moment.
    let mut done = child.status();
    for _ in 0..100 {
        if !done.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        done = child.status();
    }
    let done = done.unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(done.success());
}

#[test]
fn a_full_disk_is_not_an_error() {
    let tmp = TempDir::new("full");
    let cache = filled(tmp.path());
    let mut child = command(tmp.path(), "full");
    // SAFETY: two system calls are made between fork and exec.
    unsafe {
        child.pre_exec(|| {
            // Files of this process end at 1 MiB: a write past that fails, as on a full disk.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        })
    };
    assert!(child.status().unwrap().success());
    assert_eq!(right(&cache, 20), 20);
    put(&cache, CacheKey(1), b"x");
    assert!(get(&cache, CacheKey(1)).is_some() && cache.stats().failed_writes == 0);
}
