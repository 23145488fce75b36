//! Tests of the store: what is put is got, damage and missing folders are harmless, many may write at once, and any of them may be killed.

use super::file::FORMAT;
use super::*;
use crate::runtime::testing::{Random, TempDir};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn put(store: &Store, key: Key, value: &[u8]) {
    store.put(&[Entry { key, kind: Kind::Compiler, device: "TEST", value }]);
}

fn get(store: &Store, key: Key) -> Option<Vec<u8>> {
    store.get(&[key]).remove(0)
}

fn entries(store: &Store) -> usize {
    store.contents().unwrap().of(&Kind::ALL).0
}

#[test]
fn the_hash_is_the_published_one() {
    assert_eq!(hash128(b""), 0);
    let fox = b"The quick brown fox jumps over the lazy dog";
    assert_eq!(hash128(fox), 0xe34b_bc7b_bc07_1b6c_7a43_3ca9_c49a_9347);
    assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
    assert_ne!(Key::of(&[b"a"]), Key::of(&[b"a", b""]));
    // No version is given what another made.
    assert_ne!(Key::of_version("0.1.0", &[b"a"]), Key::of_version("0.1.1", &[b"a"]));
}

#[test]
fn each_bit_of_the_input_changes_half_of_the_hash() {
    let mut random = Random(1);
    for len in [1, 7, 8, 9, 15, 16, 17, 100] {
        let data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let flips: u32 = (0..len * 8)
            .map(|bit| {
                let mut other = data.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                (hash128(&data) ^ hash128(&other)).count_ones()
            })
            .sum();
        let mean = f64::from(flips) / (len * 8) as f64;
        assert!((54.0..74.0).contains(&mean), "length {len}: {mean} bits of 128");
    }
}

#[test]
fn what_is_put_is_got() {
    let tmp = TempDir::new("store");
    let store = Store::at(&tmp.path().join("a/b"));
    let (k, l) = (Key::of(&[b"k"]), Key::of(&[b"l"]));
    assert_eq!((get(&store, k), store.contents().unwrap()), (None, Contents::default()));
    put(&store, k, b"value");
    put(&store, l, b"");
    assert_eq!(store.get(&[k, Key(3), l]), [Some(b"value".to_vec()), None, Some(Vec::new())]);
    put(&store, k, b"newer");
    assert_eq!(get(&Store::at(store.dir().unwrap()), k).as_deref(), Some(&b"newer"[..]));
    assert_eq!(store.stats(), Stats { hits: 2, misses: 2, corrupt: 0, failed_writes: 0 });
    let contents = store.contents().unwrap();
    assert_eq!(contents.entries[&(Kind::Compiler, "TEST".to_string())].0, 2);
    assert!(contents.bytes > 5 && contents.bytes < 1000 && contents.file_bytes > contents.bytes, "{contents:?}");
    assert_eq!(fs::metadata(store.path().unwrap()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn one_kind_is_cleared_and_the_others_stay() {
    let tmp = TempDir::new("clear");
    let store = Store::at(tmp.path());
    assert_eq!(store.clear(&Kind::ALL), Ok((0, 0)), "there is nothing yet");
    store.put_programs("CPU:LLVM", &[Made { object: vec![1; 5000], kernels: vec![(Key(1), "a".into()), (Key(2), "b".into())] }]);
    store.put(&[Entry { key: Key(3), kind: Kind::Opts, device: "CPU:LLVM", value: b"UPCAST:0:4" }]);
    let contents = store.contents().unwrap();
    assert_eq!([&[Kind::Program][..], &[Kind::Object], &[Kind::Opts], &Kind::PROGRAMS].map(|k| contents.of(k).0), [2, 1, 1, 3]);
    fs::write(tmp.path().join("mine.txt"), "not the store's").unwrap();
    assert_eq!(store.clear(&[Kind::Opts]).unwrap().0, 1);
    assert!(get(&store, Key(3)).is_none() && store.programs(&[Key(1)])[0].is_some());
    let (deleted, bytes) = store.clear(&Kind::PROGRAMS).unwrap();
    assert!(deleted == 3 && bytes > 5000, "{deleted} {bytes}");
    let left = store.contents().unwrap();
    assert_eq!((left.bytes, left.entries.len()), (0, 0));
    put(&store, Key(4), b"after");
    assert_eq!(get(&store, Key(4)).as_deref(), Some(&b"after"[..]));
    assert!(tmp.path().join("mine.txt").exists());
}

#[test]
fn kernels_share_an_object_and_are_found_one_by_one() {
    let tmp = TempDir::new("programs");
    let store = Store::at(tmp.path());
    let group = Made { object: vec![7; 100], kernels: vec![(Key(1), "k0_a".into()), (Key(2), "k1_b".into())] };
    let alone = Made { object: vec![8; 50], kernels: vec![(Key(5), "c".into())] };
    store.put_programs("CPU:CLANG", &[group, alone]);
    let found = store.programs(&[Key(2), Key(9), Key(1), Key(5)]);
    let kept = |n: usize| found[n].clone().unwrap();
    assert!(found[1].is_none() && Arc::ptr_eq(&kept(0).object, &kept(2).object));
    assert_eq!((kept(0).symbol, kept(2).symbol, kept(3).symbol), ("k1_b".into(), "k0_a".into(), "c".into()));
    assert_eq!((*kept(0).object == [7; 100], *kept(3).object == [8; 50]), (true, true));
    // Without its object a program is not there.
    let object = Key(hash128(&[7; 100]));
    store
        .place
        .as_ref()
        .unwrap()
        .write(|t| Tables::open(t).and_then(|mut tables| tables.remove(object).and_then(|()| tables.close())))
        .unwrap();
    let found = store.programs(&[Key(1), Key(2), Key(5)]);
    assert!(found[0].is_none() && found[1].is_none() && found[2].is_some());
    // A value that is no program's.
    put(&store, Key(1), b"short");
    assert_eq!(store.programs(&[Key(1)]), [None]);
}

/// Fills a store with values that can be told from each other.
fn filled(dir: &Path) -> Store {
    let store = Store::at(dir);
    let values: Vec<(Key, Vec<u8>)> = (0..20).map(|n| (key(n), value(n))).collect();
    let entries: Vec<Entry> = values.iter().map(|(k, v)| Entry { key: *k, kind: Kind::Object, device: "TEST", value: v }).collect();
    store.put(&entries);
    store
}

/// The n-th key of the tests below.
fn key(n: u64) -> Key {
    Key::of(&[&n.to_le_bytes()])
}

/// The value of the n-th key.
fn value(n: u64) -> Vec<u8> {
    let mut random = Random(n);
    (0..(n as usize * 37) % 3000).map(|_| random.next() as u8).collect()
}

/// Every value that is found is the right one. Returns how many were found.
fn right(store: &Store, count: u64) -> usize {
    let found = store.get(&(0..count).map(key).collect::<Vec<_>>());
    found.into_iter().enumerate().filter_map(|(n, v)| Some((n, v?))).map(|(n, v)| assert_eq!(v, value(n as u64))).count()
}

#[test]
fn a_damaged_file_never_gives_a_wrong_value_and_is_of_use_again() {
    let tmp = TempDir::new("damage");
    let store = filled(tmp.path());
    let path = store.path().unwrap().to_path_buf();
    let good = fs::read(&path).unwrap();
    let mut random = Random(3);
    let mut bad: Vec<Vec<u8>> = vec![vec![], b"PICO".to_vec(), vec![0; 4096], (0..100_000).map(|_| random.next() as u8).collect()];
    // Cut off, down to a part of the first page.
    bad.extend([10, 63, 300, 4096, 5000, good.len() / 2, good.len() - 4096, good.len() - 1].map(|n| good[..n].to_vec()));
    // One byte of what is in use, or a run of them.
    let used: Vec<usize> = (0..good.len()).filter(|i| good[*i] != 0).collect();
    for _ in 0..200 {
        let mut flipped = good.clone();
        let (at, run) = (used[random.below(used.len())], if random.below(2) == 0 { 1 } else { 200 });
        flipped.iter_mut().skip(at).take(run).for_each(|b| *b = random.next() as u8);
        bad.push(flipped);
    }
    for bytes in bad {
        fs::write(&path, &bytes).unwrap();
        right(&store, 20);
        put(&store, Key(1), b"again");
        assert_eq!(get(&store, Key(1)).as_deref(), Some(&b"again"[..]), "a file of {} bytes", bytes.len());
        right(&store, 20);
    }
    assert_eq!(store.stats().failed_writes, 0);
}

#[test]
fn a_file_that_is_none_of_ours_is_set_aside() {
    let tmp = TempDir::new("aside");
    let aside = tmp.path().join("store.redb.corrupt");
    let store = filled(tmp.path());
    fs::write(store.path().unwrap(), "not a store at all").unwrap();
    assert_eq!(right(&store, 20), 0);
    assert!(!store.path().unwrap().exists(), "who reads does not begin a new one");
    assert_eq!(fs::read_to_string(&aside).unwrap(), "not a store at all");
    put(&store, Key(1), b"x");
    assert_eq!(get(&store, Key(1)).as_deref(), Some(&b"x"[..]));
    // One of another version.
    store
        .place
        .as_ref()
        .unwrap()
        .write(|t| t.open_table(file::STATE).map_err(trouble)?.insert("format", FORMAT + 1).map(drop).map_err(trouble))
        .unwrap();
    let theirs = fs::read(store.path().unwrap()).unwrap();
    assert_eq!(get(&store, Key(1)), None);
    assert_eq!(fs::read(&aside).unwrap(), theirs);
    put(&store, Key(2), b"y");
    assert_eq!((entries(&store), get(&store, Key(2)).as_deref()), (1, Some(&b"y"[..])));
    store.clear(&Kind::ALL).unwrap();
    assert!(!aside.exists());
}

#[test]
fn a_value_that_changed_is_absent() {
    let tmp = TempDir::new("changed");
    let store = filled(tmp.path());
    let rows: [&[u8]; 4] = [b"", b"0123456789", &[0; 40], &[&checksum_of(4)[..], &value(5)].concat()];
    for (n, row) in rows.iter().enumerate() {
        let place = store.place.as_ref().unwrap();
        place.write(|t| t.open_table(file::VALUES).map_err(trouble)?.insert(key(n as u64 + 5).0, *row).map(drop).map_err(trouble)).unwrap();
    }
    assert_eq!((right(&store, 20), store.stats().corrupt), (16, 4));
}

fn checksum_of(n: u64) -> [u8; 16] {
    tables::checksum(key(n), &value(n))
}

#[test]
fn no_folder_means_no_store_and_no_error() {
    let tmp = TempDir::new("nodir");
    let file = tmp.path().join("file");
    fs::write(&file, "").unwrap();
    let open = tmp.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for dir in [file.join("below-a-file"), file.clone(), PathBuf::from("/proc/picograd"), open] {
        let store = Store::at(&dir);
        assert!(store.why_off().is_some(), "{}", dir.display());
        put(&store, Key(1), b"x");
        assert_eq!((get(&store, Key(1)), entries(&store)), (None, 0));
        assert_eq!(store.clear(&Kind::ALL), Ok((0, 0)));
    }
    // A folder that goes away later, and one where something else has the name of the file.
    let gone = tmp.path().join("gone");
    let store = Store::at(&gone);
    fs::remove_dir(&gone).unwrap();
    put(&store, Key(1), b"x");
    assert_eq!((get(&store, Key(1)), store.stats().failed_writes), (None, 1));
    let taken = Store::at(&tmp.path().join("taken"));
    fs::create_dir(taken.path().unwrap()).unwrap();
    put(&taken, Key(1), b"x");
    assert_eq!((get(&taken, Key(1)), taken.stats().failed_writes), (None, 1));
    assert!(taken.clear(&Kind::ALL).is_err() && taken.contents().is_err());
}

#[test]
fn the_environment_names_the_folder_and_the_size() {
    let tmp = TempDir::new("env");
    let base = tmp.path().to_str().unwrap().to_string();
    let store = |vars: &[(&str, &str)]| {
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Store::from_env(&|name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    };
    let dir = |vars: &[(&str, &str)]| store(vars).dir().map(|d| d.strip_prefix(&base).unwrap().to_str().unwrap().to_string());
    let at = |s: &str| format!("{base}/{s}");
    assert_eq!(dir(&[]), None);
    assert_eq!(dir(&[("HOME", "")]), None);
    assert_eq!(dir(&[("HOME", &at("h"))]).as_deref(), Some("h/.cache/picograd"));
    assert_eq!(dir(&[("HOME", &at("h")), ("XDG_CACHE_HOME", &at("x"))]).as_deref(), Some("x/picograd"));
    assert_eq!(dir(&[("HOME", &at("h")), ("PICO_CACHE", &at("p"))]).as_deref(), Some("p"));
    for off in ["", "0", "off"] {
        assert_eq!(dir(&[("HOME", &at("h")), ("PICO_CACHE", off)]), None);
    }
    let limit = |size: &str| store(&[("PICO_CACHE", &at("p")), ("PICO_CACHE_SIZE", size)]).limit();
    assert_eq!((limit("3"), limit("")), (3 << 20, 512 << 20));
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let tmp = TempDir::new("size");
    let store = Store { limit: 10_000, ..Store::at(tmp.path()) };
    let pass = |seconds: u64| store.later.fetch_add(seconds, Ordering::Relaxed);
    for i in 0..9u64 {
        put(&store, Key(i.into()), &[0; 904]);
        pass(5000);
    }
    // A hit is a use, so the oldest entry survives when it was asked for.
    assert!(get(&store, Key(0)).is_some());
    pass(5000);
    put(&store, Key(100), &[0; 904]);
    assert_eq!((entries(&store), store.contents().unwrap().bytes), (10, 10_000), "as much as there is room for");
    put(&store, Key(101), &[0; 904]);
    assert_eq!((entries(&store), store.contents().unwrap().bytes), (8, 8_000));
    assert!([0, 4, 8, 100, 101].iter().all(|k| get(&store, Key(*k)).is_some()) && [1, 2, 3].iter().all(|k| get(&store, Key(*k)).is_none()));
    // What is larger than all is not kept; what replaces itself takes no more room.
    put(&store, Key(200), &[0; 10_000]);
    assert_eq!((get(&store, Key(200)), store.stats().failed_writes, entries(&store)), (None, 1, 8));
    (0..5).for_each(|_| put(&store, Key(100), &[1; 904]));
    assert_eq!(store.contents().unwrap().bytes, 8_000);
}

#[test]
fn the_file_does_not_grow_without_end() {
    let tmp = TempDir::new("grow");
    let store = Store { limit: 1 << 20, ..Store::at(tmp.path()) };
    let mut random = Random(5);
    for i in 0..60u64 {
        let value: Vec<u8> = (0..200_000).map(|_| random.next() as u8).collect();
        put(&store, Key(i.into()), &value);
    }
    let contents = store.contents().unwrap();
    assert!(contents.bytes <= 1 << 20 && contents.file_bytes < 18 << 20, "{contents:?}");
    store.clear(&Kind::ALL).unwrap();
    assert!(store.contents().unwrap().file_bytes < 4 << 20, "{:?}", store.contents());
}

#[test]
fn a_file_that_is_taken_is_waited_for_and_then_left_alone() {
    let tmp = TempDir::new("busy");
    let store = filled(tmp.path());
    let taken = redb::Database::open(store.path().unwrap()).unwrap();
    let start = Instant::now();
    assert_eq!(right(&store, 20), 0);
    assert!(start.elapsed() >= Duration::from_millis(200) && start.elapsed() < Duration::from_secs(10));
    // Not again and again.
    let start = Instant::now();
    (0..10).for_each(|_| put(&store, Key(1), b"x"));
    assert!(start.elapsed() < Duration::from_millis(1900), "{:?}", start.elapsed());
    assert_eq!((store.stats().misses, store.stats().failed_writes), (20, 10));
    assert!(store.contents().unwrap_err().contains("another process") && store.clear(&Kind::ALL).is_err());
    // It is free again before patience ends.
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            drop(taken);
        });
        // On a busy machine the time may be up before; then somebody else tries.
        assert!((0..20).any(|_| right(&Store::at(tmp.path()), 20) == 20));
    });
    assert_eq!(right(&store, 20), 20);
}

/// What a process does that is started by the tests below: the folder and what to do are in its environment.
#[test]
fn child() {
    let Some(dir) = std::env::var_os("PICO_TEST_STORE") else { return };
    let store = Store::at(Path::new(&dir));
    match std::env::var("PICO_TEST_DO").unwrap().as_str() {
        "race" => race(&store),
        // Where nothing can be written, what is there can still be read.
        "read-only" => {
            assert_eq!(right(&store, 20), 20);
            put(&store, key(20), &value(20));
            assert_eq!((store.stats().failed_writes, get(&store, key(20))), (1, None));
        }
        "full" => {
            let big: Vec<u8> = value(79).repeat(2000);
            put(&store, Key(1), &big);
            assert_eq!(store.stats().failed_writes, 1);
            assert_eq!((get(&store, Key(1)), right(&store, 20)), (None, 20));
        }
        other => panic!("{other}"),
    }
}

fn command(dir: &Path, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "runtime::store::tests::child", "--test-threads=1", "--nocapture"]);
    command.env("PICO_TEST_STORE", dir).env("PICO_TEST_DO", what).stdout(Stdio::null());
    command
}

/// Reads and writes the same keys as others, a batch at a time.
fn race(store: &Store) {
    for round in 0..8 {
        for start in (0..60).step_by(10) {
            let keys: Vec<u64> = (start..start + 10).collect();
            let found = store.get(&keys.iter().map(|n| key(*n)).collect::<Vec<_>>());
            let mut new = Vec::new();
            for (n, v) in keys.into_iter().zip(found) {
                match v {
                    Some(v) if (n + round) % 7 != 0 => assert_eq!(v, value(n)),
                    _ => new.push((key(n), value(n))),
                }
            }
            let entries: Vec<Entry> = new.iter().map(|(k, v)| Entry { key: *k, kind: Kind::Object, device: "TEST", value: v }).collect();
            store.put(&entries);
        }
    }
    assert_eq!(store.stats().corrupt, 0);
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
            s.spawn(|| race(&Store::at(tmp.path())));
        }
    });
    assert!(children.iter_mut().all(|c| c.wait().unwrap().success()));
    let store = Store::at(tmp.path());
    // Somebody who waited too long wrote nothing; the next one did.
    assert!(right(&store, 60) > 30 && entries(&store) == right(&store, 60));
    let names: Vec<_> = fs::read_dir(tmp.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(names, ["store.redb"], "nothing else is left in the folder");
}

#[test]
fn a_killed_writer_leaves_a_whole_store() {
    let tmp = TempDir::new("kill");
    let mut random = Random(9);
    let mut found = 0;
    for i in 0..40 {
        let mut child = racer(tmp.path());
        // Some are given the time that they need to begin.
        let begun = Instant::now();
        while i % 8 == 0 && right(&Store::at(tmp.path()), 60) == 0 && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_micros(2000 + random.below(60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Store::at(tmp.path());
        found += right(&store, 60);
        put(&store, Key(i), b"written after it");
        assert!(get(&store, Key(i)).is_some());
        assert_eq!(store.stats().corrupt, 0);
        assert!(!tmp.path().join("store.redb.corrupt").exists(), "a kill makes no store corrupt");
        if i % 8 == 7 {
            fs::remove_file(store.path().unwrap()).unwrap();
        }
    }
    assert!(found > 0, "no writer lived long enough to write");
}

#[test]
fn a_folder_that_cannot_be_written_to_can_be_read() {
    let tmp = TempDir::new("readonly");
    let dir = tmp.path().join("store");
    let path = filled(&dir).path().unwrap().to_path_buf();
    let mut child = command(&dir, "read-only");
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        // Root may write everywhere, so somebody else has to try, with a copy of this program that he can reach.
        let nobody = 65534;
        let program = tmp.path().join("tests");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for p in [&dir, &path] {
            std::os::unix::fs::chown(p, Some(nobody), Some(nobody)).unwrap();
        }
        let mut other = Command::new(&program);
        other.args(child.get_args()).envs(child.get_envs().filter_map(|(k, v)| Some((k, v?)))).stdout(Stdio::null()).current_dir("/");
        other.uid(nobody).gid(nobody);
        child = other;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
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
fn a_full_disk_is_no_error() {
    let tmp = TempDir::new("full");
    let store = filled(tmp.path());
    let mut child = command(tmp.path(), "full");
    // SAFETY: what is called between fork and exec are two system calls.
    unsafe {
        child.pre_exec(|| {
            // Files of this process end at 3 MiB: a write past that fails, as on a full disk.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 3 << 20, rlim_max: 3 << 20 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        })
    };
    assert!(child.status().unwrap().success());
    assert_eq!(right(&store, 20), 20);
    put(&store, Key(1), b"x");
    assert!(get(&store, Key(1)).is_some() && store.stats().failed_writes == 0);
}
