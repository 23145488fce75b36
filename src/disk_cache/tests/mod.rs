//! Tests of the disk cache: stored values are found, damage and missing folders are harmless, many
//! processes may write at once, and any of them may be killed.

use crate::device::testing::{Random, TempDir};
mod processes;

use crate::disk_cache::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

fn put(cache: &DiskCache, key: CacheKey, value: &[u8]) {
    cache.put(&[CacheEntry { key, kind: EntryKind::Compiler, device: "TEST", value }]);
}

fn get(cache: &DiskCache, key: CacheKey) -> Option<Vec<u8>> {
    cache.get(&[key]).remove(0)
}

fn path_of(cache: &DiskCache, key: CacheKey) -> PathBuf {
    cache.dir().unwrap().join(key.to_string())
}

fn entries(cache: &DiskCache) -> usize {
    cache.contents().unwrap().of(&EntryKind::ALL).0
}

#[test]
fn keys_depend_on_all_parts() {
    assert_eq!(
        format!("{:032x}", hash128(b"").swap_bytes()),
        "af1349b9f5f9a1a6a0404dea36dcc949",
        "the published hash of nothing"
    );
    assert_ne!(CacheKey::of(&[b"ab", b"c"]), CacheKey::of(&[b"a", b"bc"]));
    assert_ne!(CacheKey::of(&[b"a"]), CacheKey::of(&[b"a", b""]));
    // Versions do not share entries.
    assert_ne!(CacheKey::of_version("0.1.0", &[b"a"]), CacheKey::of_version("0.1.1", &[b"a"]));
}

#[test]
fn entries_round_trip() {
    let tmp = TempDir::new("store");
    let cache = DiskCache::at(&tmp.path().join("a/b"));
    let (k, l) = (CacheKey::of(&[b"k"]), CacheKey::of(&[b"l"]));
    assert_eq!((get(&cache, k), cache.contents().unwrap()), (None, DiskCacheContents::default()));
    put(&cache, k, b"value");
    put(&cache, l, b"");
    assert_eq!(cache.get(&[k, CacheKey(3), l]), [Some(b"value".to_vec()), None, Some(Vec::new())]);
    put(&cache, k, b"newer");
    assert_eq!(get(&DiskCache::at(cache.dir().unwrap()), k).as_deref(), Some(&b"newer"[..]));
    assert_eq!(cache.stats(), DiskCacheStats { hits: 2, misses: 2, corrupt: 0, failed_writes: 0 });
    let contents = cache.contents().unwrap();
    assert_eq!(contents.entries[&(EntryKind::Compiler, "TEST".to_string())].0, 2);
    assert!(contents.bytes > 5 && contents.bytes < 1000, "{contents:?}");
    for file in [path_of(&cache, k), cache.dir().unwrap().join("secret")] {
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::metadata(cache.dir().unwrap()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn one_kind_is_cleared_and_the_others_stay() {
    let tmp = TempDir::new("clear");
    let cache = DiskCache::at(tmp.path());
    assert_eq!(cache.clear(&EntryKind::ALL), Ok((0, 0)), "there is nothing yet");
    cache.put_programs(
        "CPU:LLVM",
        &[CompiledObject {
            object: vec![1; 5000],
            kernels: vec![(CacheKey(1), "a".into()), (CacheKey(2), "b".into())],
        }],
    );
    cache.put(&[CacheEntry {
        key: CacheKey(3),
        kind: EntryKind::Opts,
        device: "CPU:LLVM",
        value: b"UPCAST:0:4",
    }]);
    let contents = cache.contents().unwrap();
    assert_eq!(
        [&[EntryKind::Program][..], &[EntryKind::Object], &[EntryKind::Opts], &EntryKind::PROGRAMS]
            .map(|k| contents.of(k).0),
        [2, 1, 1, 3]
    );
    fs::write(tmp.path().join("mine.txt"), "not the cache's").unwrap();
    assert_eq!(cache.clear(&[EntryKind::Opts]).unwrap().0, 1);
    assert!(get(&cache, CacheKey(3)).is_none() && cache.programs(&[CacheKey(1)])[0].is_some());
    let (deleted, bytes) = cache.clear(&EntryKind::PROGRAMS).unwrap();
    assert!(deleted == 3 && bytes > 5000, "{deleted} {bytes}");
    let left = cache.contents().unwrap();
    assert_eq!((left.bytes, left.entries.len()), (0, 0));
    put(&cache, CacheKey(4), b"after");
    assert_eq!(get(&cache, CacheKey(4)).as_deref(), Some(&b"after"[..]));
    assert!(tmp.path().join("mine.txt").exists());
}

#[test]
fn kernels_share_an_object_and_are_found_one_by_one() {
    let tmp = TempDir::new("programs");
    let cache = DiskCache::at(tmp.path());
    let group = CompiledObject {
        object: vec![7; 100],
        kernels: vec![(CacheKey(1), "k0_a".into()), (CacheKey(2), "k1_b".into())],
    };
    let alone = CompiledObject { object: vec![8; 50], kernels: vec![(CacheKey(5), "c".into())] };
    cache.put_programs("CPU:CLANG", &[group, alone]);
    let found = cache.programs(&[CacheKey(2), CacheKey(9), CacheKey(1), CacheKey(5)]);
    let kept = |n: usize| found[n].clone().unwrap();
    assert!(found[1].is_none() && Arc::ptr_eq(&kept(0).object, &kept(2).object));
    assert_eq!(
        (kept(0).symbol, kept(2).symbol, kept(3).symbol),
        ("k1_b".into(), "k0_a".into(), "c".into())
    );
    assert_eq!((*kept(0).object == [7; 100], *kept(3).object == [8; 50]), (true, true));
    // Without its object a program is not there.
    fs::remove_file(path_of(&cache, CacheKey(hash128(&[7; 100])))).unwrap();
    let found = cache.programs(&[CacheKey(1), CacheKey(2), CacheKey(5)]);
    assert!(found[0].is_none() && found[1].is_none() && found[2].is_some());
    // Values that do not decode to a program.
    for value in [
        &b"short"[..],
        b"",
        &[0, 255, 255, 255, 255],
        &[9, 0, 0, 0, 0],
        &[0, 1, 0, 0, 0, b'a', 1, 2],
    ] {
        put(&cache, CacheKey(1), value);
        assert_eq!(cache.programs(&[CacheKey(1)]), [None]);
    }
}

/// Fills a cache with distinguishable values.
fn filled(dir: &Path) -> DiskCache {
    let cache = DiskCache::at(dir);
    let values: Vec<(CacheKey, Vec<u8>)> = (0..20).map(|n| (key(n), value(n))).collect();
    let entries: Vec<CacheEntry> = values
        .iter()
        .map(|(k, v)| CacheEntry { key: *k, kind: EntryKind::Object, device: "TEST", value: v })
        .collect();
    cache.put(&entries);
    cache
}

/// The n-th key of the tests below.
fn key(n: u64) -> CacheKey {
    CacheKey::of(&[&n.to_le_bytes()])
}

/// The value of the n-th key.
fn value(n: u64) -> Vec<u8> {
    let mut random = Random(n);
    (0..(n as usize * 37) % 3000).map(|_| random.next() as u8).collect()
}

/// Every value that is found is the right one. Returns how many were found.
fn right(cache: &DiskCache, count: u64) -> usize {
    let found = cache.get(&(0..count).map(key).collect::<Vec<_>>());
    found
        .into_iter()
        .enumerate()
        .filter_map(|(n, v)| Some((n, v?)))
        .map(|(n, v)| assert_eq!(v, value(n as u64)))
        .count()
}

#[test]
fn damaged_files_are_renamed_to_corrupt() {
    let tmp = TempDir::new("damage");
    let cache = filled(tmp.path());
    let path = path_of(&cache, key(7));
    let good = fs::read(&path).unwrap();
    let mut random = Random(3);
    let mut bad: Vec<Vec<u8>> = vec![
        vec![],
        b"PICO".to_vec(),
        vec![0; 4096],
        (0..100_000).map(|_| random.next() as u8).collect(),
    ];
    // Truncated anywhere, longer, every bit before the value flipped, and some of the value's.
    bad.extend((0..good.len()).map(|n| good[..n].to_vec()));
    bad.push([&good[..], &[0]].concat());
    let head = good.len() - value(7).len();
    let bits = (0..head * 8).chain((0..200).map(|_| random.below(good.len() * 8)));
    bad.extend(bits.map(|bit| {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    }));
    let count = bad.len();
    for bytes in bad {
        fs::write(&path, &bytes).unwrap();
        assert_eq!(
            (get(&cache, key(7)), path.exists()),
            (None, false),
            "a file of {} bytes",
            bytes.len()
        );
        assert_eq!(fs::read(path.with_file_name(format!("{}.corrupt", key(7)))).unwrap(), bytes);
    }
    assert_eq!((cache.stats().corrupt, cache.contents().unwrap().corrupt), (count, 1));
    put(&cache, key(7), &value(7));
    assert_eq!((right(&cache, 20), cache.stats().failed_writes), (20, 0));
    cache.clear(&EntryKind::ALL).unwrap();
    assert_eq!(cache.contents().unwrap(), DiskCacheContents::default());
}

/// The MAC can be checked only after reading all of a file, so that too long files are not read.
#[test]
fn too_long_files_are_renamed_unread() {
    let tmp = TempDir::new("long");
    let cache = DiskCache::at(tmp.path());
    let key = CacheKey::of(&[b"k"]);
    put(&cache, key, b"value");
    let path = path_of(&cache, key);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(get(&cache, key), None);
    assert_eq!(cache.stats().corrupt, 1);
    assert!(!path.exists());
    put(&cache, key, b"again");
    assert_eq!(get(&cache, key).as_deref(), Some(&b"again"[..]));
}

/// An entry of a writer without the secret: complete and well-formed.
#[test]
fn foreign_entries_are_refused() {
    let (mine, theirs) = (TempDir::new("mine"), TempDir::new("theirs"));
    let (cache, other) = (filled(mine.path()), filled(theirs.path()));
    assert_ne!(cache.folder.as_ref().unwrap().secret, other.folder.as_ref().unwrap().secret);
    fs::copy(path_of(&other, key(3)), path_of(&cache, key(3))).unwrap();
    // One of our entries under another name.
    fs::copy(path_of(&cache, key(4)), path_of(&cache, key(5))).unwrap();
    assert_eq!((get(&cache, key(3)), get(&cache, key(5)), cache.stats().corrupt), (None, None, 2));
    // A link, even to a valid entry; a pipe; a folder; a file that others can write to.
    let aside = mine.path().join("aside");
    fs::rename(path_of(&cache, key(6)), &aside).unwrap();
    std::os::unix::fs::symlink(&aside, path_of(&cache, key(6))).unwrap();
    fs::remove_file(path_of(&cache, key(7))).unwrap();
    assert!(Command::new("mkfifo").arg(path_of(&cache, key(7))).status().unwrap().success());
    fs::remove_file(path_of(&cache, key(8))).unwrap();
    fs::create_dir(path_of(&cache, key(8))).unwrap();
    for (n, mode) in [(9, 0o620), (10, 0o602), (11, 0o666)] {
        fs::set_permissions(path_of(&cache, key(n)), fs::Permissions::from_mode(mode)).unwrap();
    }
    for n in 6..12 {
        assert_eq!(get(&cache, key(n)), None, "{n}");
    }
    assert_eq!(cache.stats().corrupt, 8);
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(path_of(&cache, key(12)), Some(65534), None).unwrap();
        assert_eq!(get(&cache, key(12)), None);
    }
    assert!(get(&cache, key(13)).is_some());
}

#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    let tmp = TempDir::new("group");
    for mode in [0o770, 0o707, 0o777, 0o720, 0o702] {
        let dir = tmp.path().join(format!("{mode:o}"));
        assert!(DiskCache::at(&dir).why_off().is_none());
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        assert!(
            DiskCache::at(&dir).why_off().is_some_and(|w| w.contains("other users can write")),
            "{mode:o}"
        );
    }
    for mode in [0o700, 0o750, 0o755] {
        let dir = tmp.path().join(format!("{mode:o}"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(DiskCache::at(&dir).why_off(), None, "{mode:o}");
    }
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        let dir = tmp.path().join("foreign");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
        assert!(DiskCache::at(&dir).why_off().is_some_and(|w| w.contains("another user")));
    }
}

#[test]
fn a_lost_or_public_secret_invalidates_entries() {
    let tmp = TempDir::new("secret");
    let secret = tmp.path().join("secret");
    let damages: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&secret).unwrap(),
        &|| fs::write(&secret, "short").unwrap(),
        &|| fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap(),
        &|| {
            fs::rename(&secret, tmp.path().join("moved")).unwrap();
            std::os::unix::fs::symlink(tmp.path().join("moved"), &secret).unwrap();
        },
    ];
    for damage in damages {
        assert_eq!(right(&filled(tmp.path()), 20), 20);
        damage();
        let cache = DiskCache::at(tmp.path());
        assert_eq!((cache.why_off(), right(&cache, 20)), (None, 0));
        assert_eq!(fs::symlink_metadata(&secret).unwrap().mode() & 0o7777, 0o600);
    }
}

#[test]
fn entries_of_earlier_versions_are_deleted() {
    let tmp = TempDir::new("earlier");
    let cache = DiskCache::at(tmp.path());
    OLD.iter().for_each(|name| fs::write(tmp.path().join(name), "old").unwrap());
    put(&cache, CacheKey(1), b"x");
    assert!(
        OLD.iter().all(|name| !tmp.path().join(name).exists())
            && get(&cache, CacheKey(1)).is_some()
    );
}

#[test]
fn no_folder_means_no_cache_and_no_error() {
    let tmp = TempDir::new("nodir");
    let file = tmp.path().join("file");
    fs::write(&file, "").unwrap();
    let open = tmp.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for dir in [file.join("below-a-file"), file.clone(), PathBuf::from("/proc/picograd"), open] {
        let cache = DiskCache::at(&dir);
        assert!(cache.why_off().is_some(), "{}", dir.display());
        put(&cache, CacheKey(1), b"x");
        assert_eq!((get(&cache, CacheKey(1)), entries(&cache)), (None, 0));
        assert_eq!(cache.clear(&EntryKind::ALL), Ok((0, 0)));
    }
    // A folder that is deleted later, and a folder in place of an entry's file.
    let gone = tmp.path().join("gone");
    let cache = DiskCache::at(&gone);
    fs::remove_dir_all(&gone).unwrap();
    put(&cache, CacheKey(1), b"x");
    assert_eq!((get(&cache, CacheKey(1)), cache.stats().failed_writes), (None, 1));
    let taken = DiskCache::at(&tmp.path().join("taken"));
    fs::create_dir(path_of(&taken, CacheKey(1))).unwrap();
    put(&taken, CacheKey(1), b"x");
    assert_eq!((get(&taken, CacheKey(1)), taken.stats().failed_writes), (None, 1));
    assert!(taken.clear(&EntryKind::ALL).is_err());
}

#[test]
fn the_environment_names_the_folder_and_the_size() {
    let tmp = TempDir::new("env");
    let base = tmp.path().to_str().unwrap().to_string();
    let cache = |vars: &[(&str, &str)]| {
        let vars: Vec<(String, String)> =
            vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        DiskCache::from_env(&|name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    };
    let dir = |vars: &[(&str, &str)]| {
        cache(vars).dir().map(|d| d.strip_prefix(&base).unwrap().to_str().unwrap().to_string())
    };
    let at = |s: &str| format!("{base}/{s}");
    assert_eq!(dir(&[]), None);
    assert_eq!(dir(&[("HOME", "")]), None);
    assert_eq!(dir(&[("HOME", &at("h"))]).as_deref(), Some("h/.cache/picograd"));
    assert_eq!(
        dir(&[("HOME", &at("h")), ("XDG_CACHE_HOME", &at("x"))]).as_deref(),
        Some("x/picograd")
    );
    assert_eq!(dir(&[("HOME", &at("h")), ("PICO_CACHE", &at("p"))]).as_deref(), Some("p"));
    for off in ["", "0", "off"] {
        assert_eq!(dir(&[("HOME", &at("h")), ("PICO_CACHE", off)]), None);
    }
    let limit = |size: &str| cache(&[("PICO_CACHE", &at("p")), ("PICO_CACHE_SIZE", size)]).limit();
    assert_eq!((limit("3"), limit("")), (3 << 20, 512 << 20));
}

#[test]
fn least_recently_used_entries_are_deleted_first() {
    let tmp = TempDir::new("size");
    let cache = DiskCache { limit: 10_000, ..DiskCache::at(tmp.path()) };
    let pass = |seconds: u64| cache.later.fetch_add(seconds, Ordering::Relaxed);
    for i in 0..9u64 {
        put(&cache, CacheKey(i.into()), &[0; 953]);
        pass(5000);
    }
    // A hit is a use, so that the oldest entry survives if it was read.
    assert!(get(&cache, CacheKey(0)).is_some());
    pass(5000);
    put(&cache, CacheKey(100), &[0; 953]);
    assert_eq!(
        (entries(&cache), cache.contents().unwrap().bytes),
        (10, 10_000),
        "as much as there is room for"
    );
    put(&cache, CacheKey(101), &[0; 953]);
    assert_eq!((entries(&cache), cache.contents().unwrap().bytes), (8, 8_000));
    assert!(
        [0, 4, 8, 100, 101].iter().all(|k| get(&cache, CacheKey(*k)).is_some())
            && [1, 2, 3].iter().all(|k| get(&cache, CacheKey(*k)).is_none())
    );
    // A value above the limit is not stored; replacing an entry takes no more space.
    put(&cache, CacheKey(200), &[0; 10_000]);
    assert_eq!(
        (get(&cache, CacheKey(200)), cache.stats().failed_writes, entries(&cache)),
        (None, 1, 8)
    );
    (0..5).for_each(|_| put(&cache, CacheKey(100), &[1; 953]));
    assert_eq!(cache.contents().unwrap().bytes, 8_000);
}

#[test]
fn the_folder_keeps_its_size_limit() {
    let tmp = TempDir::new("grow");
    let cache = DiskCache { limit: 1 << 20, ..DiskCache::at(tmp.path()) };
    let other = DiskCache { limit: 1 << 20, ..DiskCache::at(tmp.path()) };
    for i in 0..60u64 {
        put(if i % 3 == 0 { &other } else { &cache }, CacheKey(i.into()), &[i as u8; 200_000]);
    }
    // Entries of other processes are counted when the limit is reached, so that the size may double
    // for a while.
    assert!(cache.contents().unwrap().bytes <= 2 << 20);
    put(&DiskCache { limit: 1 << 20, ..DiskCache::at(tmp.path()) }, CacheKey(99), &[0; 200_000]);
    assert!(cache.contents().unwrap().bytes <= 1 << 20);
    cache.clear(&EntryKind::ALL).unwrap();
    assert_eq!(cache.contents().unwrap().bytes, 0);
}
