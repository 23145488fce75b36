//! Tests of the disk cache: what is put is got, damage and missing folders are harmless, and many may write at once.

use super::*;
use crate::runtime::testing::{Random, TempDir};

#[test]
fn the_hash_is_the_published_one() {
    assert_eq!(hash128(b""), 0);
    let fox = b"The quick brown fox jumps over the lazy dog";
    assert_eq!(hash128(fox), 0xe34b_bc7b_bc07_1b6c_7a43_3ca9_c49a_9347);
    assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
    assert_ne!(Key::of(&[b"a"]), Key::of(&[b"a", b""]));
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
    let tmp = TempDir::new("cache");
    let cache = Cache::at(&tmp.path().join("a/b"));
    let (k, l) = (Key::of(&[b"k"]), Key::of(&[b"l"]));
    assert_eq!(cache.get(k), None);
    cache.put(k, b"object");
    cache.put(l, b"");
    assert_eq!((cache.get(k).as_deref(), cache.get(l).as_deref()), (Some(&b"object"[..]), Some(&b""[..])));
    cache.put(k, b"newer");
    assert_eq!(Cache::at(cache.dir().unwrap()).get(k).as_deref(), Some(&b"newer"[..]));
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.hits, stats.misses, stats.failed_writes), (2, 2, 1, 0));
    cache.remove(l);
    assert_eq!(cache.stats().entries, 1);
    fs::write(cache.dir().unwrap().join("mine.txt"), "not the cache's").unwrap();
    cache.clear();
    assert_eq!(cache.stats().entries, 0);
    assert!(cache.dir().unwrap().join("mine.txt").exists());
}

#[test]
fn corrupt_entries_are_absent_and_deleted() {
    let tmp = TempDir::new("corrupt");
    let cache = Cache::at(tmp.path());
    let key = Key::of(&[b"kernel"]);
    let path = cache.entry(key).unwrap();
    cache.put(key, b"some bytes of an object");
    let good = fs::read(&path).unwrap();
    let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
    bad.push([&good[..], b"x"].concat());
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        bad.push(flipped);
    }
    let count = bad.len();
    for bytes in bad {
        fs::write(&path, bytes).unwrap();
        assert_eq!(cache.get(key), None);
        assert!(!path.exists());
    }
    assert_eq!(cache.stats().corrupt, count);
    // A whole entry of another key, under this name.
    cache.put(Key(7), b"other");
    fs::rename(cache.entry(Key(7)).unwrap(), &path).unwrap();
    assert_eq!(cache.get(key), None);
    cache.put(key, b"again");
    assert_eq!(cache.get(key).as_deref(), Some(&b"again"[..]));
}

#[test]
fn no_folder_means_no_cache_and_no_error() {
    let tmp = TempDir::new("nodir");
    let file = tmp.path().join("file");
    fs::write(&file, "").unwrap();
    let open = tmp.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    for dir in [file.join("below-a-file"), file.clone(), PathBuf::from("/proc/picograd"), open] {
        let cache = Cache::at(&dir);
        assert!(cache.why_off().is_some(), "{}", dir.display());
        cache.put(Key(1), b"x");
        assert_eq!(cache.get(Key(1)), None);
        cache.clear();
        assert_eq!(cache.stats().entries, 0);
    }
    // A folder that goes away later.
    let gone = tmp.path().join("gone");
    let cache = Cache::at(&gone);
    fs::remove_dir(&gone).unwrap();
    cache.put(Key(1), b"x");
    assert_eq!((cache.get(Key(1)), cache.stats().failed_writes), (None, 1));
}

#[test]
fn the_environment_names_the_folder() {
    let tmp = TempDir::new("env");
    let base = tmp.path().to_str().unwrap().to_string();
    let dir = |vars: &[(&str, &str)]| {
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let cache = Cache::from_env(&|name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()));
        cache.dir().map(|d| d.strip_prefix(&base).unwrap().to_str().unwrap().to_string())
    };
    let at = |s: &str| format!("{base}/{s}");
    assert_eq!(dir(&[]), None);
    assert_eq!(dir(&[("HOME", "")]), None);
    assert_eq!(dir(&[("HOME", &at("h"))]).as_deref(), Some("h/.cache/picograd"));
    assert_eq!(dir(&[("HOME", &at("h")), ("XDG_CACHE_HOME", &at("x"))]).as_deref(), Some("x/picograd"));
    assert_eq!(dir(&[("HOME", &at("h")), ("PICO_CACHE", &at("p"))]).as_deref(), Some("p"));
    for off in ["", "0", "off"] {
        assert_eq!(dir(&[("HOME", &at("h")), ("PICO_CACHE", off)]), None);
    }
}

#[test]
fn the_folder_stays_within_its_size() {
    let tmp = TempDir::new("size");
    let cache = Cache { limit: 10_000, ..Cache::at(tmp.path()) };
    let long_ago = SystemTime::now() - Duration::from_secs(10_000);
    for i in 0..30u64 {
        cache.put(Key(i.into()), &[0; 948]);
        let file = File::options().write(true).open(cache.entry(Key(i.into())).unwrap()).unwrap();
        file.set_modified(long_ago + Duration::from_secs(i)).unwrap();
    }
    // A hit is a use, so the oldest entry survives when it was asked for.
    assert!(cache.get(Key(0)).is_some());
    let left_behind = tmp.path().join(".new-1-2-3");
    fs::write(&left_behind, "x").unwrap();
    File::options().write(true).open(&left_behind).unwrap().set_modified(long_ago).unwrap();
    fs::write(tmp.path().join(".new-4-5-6"), "x").unwrap();
    cache.sweep();
    assert_eq!((cache.stats().entries, cache.stats().bytes), (8, 8000));
    assert!(cache.get(Key(0)).is_some() && cache.get(Key(29)).is_some() && cache.get(Key(1)).is_none());
    assert!(!left_behind.exists() && tmp.path().join(".new-4-5-6").exists());
}

/// The object of the n-th key in the race below.
fn object(n: u64) -> Vec<u8> {
    let mut random = Random(n);
    (0..(n as usize * 37) % 3000).map(|_| random.next() as u8).collect()
}

fn race(dir: &Path) {
    let cache = Cache::at(dir);
    for round in 0..3 {
        for n in 0..60 {
            let key = Key::of(&[&u64::to_le_bytes(n)]);
            match cache.get(key) {
                Some(bytes) => assert_eq!(bytes, object(n)),
                None => cache.put(key, &object(n)),
            }
            if (n + round) % 7 == 0 {
                cache.put(key, &object(n));
            }
        }
    }
    assert_eq!((cache.stats().corrupt, cache.stats().failed_writes), (0, 0));
}

/// Run by `threads_and_processes_write_the_same_keys` in a process of its own, which names the folder.
#[test]
fn race_child() {
    if let Some(dir) = std::env::var_os("PICO_TEST_RACE") {
        race(Path::new(&dir));
    }
}

/// A process that writes the entries of the race, and reads them back.
fn racer(dir: &Path) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runtime::objcache::tests::race_child", "--test-threads=1"])
        .env("PICO_TEST_RACE", dir)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn threads_and_processes_write_the_same_keys() {
    let tmp = TempDir::new("race");
    let mut children = [racer(tmp.path()), racer(tmp.path())];
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| race(tmp.path()));
        }
    });
    assert!(children.iter_mut().all(|c| c.wait().unwrap().success()));
    assert_eq!(Cache::at(tmp.path()).stats().entries, 60);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 60, "nothing else is left in the folder");
}

#[test]
fn a_killed_writer_leaves_whole_entries_only() {
    let tmp = TempDir::new("kill");
    let mut random = Random(9);
    let mut found = 0;
    for _ in 0..25 {
        let mut child = racer(tmp.path());
        std::thread::sleep(Duration::from_micros(2000 + random.below(30_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let cache = Cache::at(tmp.path());
        for n in 0..60 {
            if let Some(bytes) = cache.get(Key::of(&[&u64::to_le_bytes(n)])) {
                assert_eq!(bytes, object(n));
                found += 1;
            }
        }
        assert_eq!(cache.stats().corrupt, 0);
        cache.clear();
    }
    assert!(found > 0, "no writer lived long enough to write");
}
