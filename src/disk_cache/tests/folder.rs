//! The folder of the cache, and the limit of its size.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn files_of_earlier_versions_are_deleted() {
    let tmp = TempDir::new("earlier");
    let cache = DiskCache::at(tmp.path());
    LEGACY_FILES.iter().for_each(|name| fs::write(tmp.path().join(name), "old").unwrap());
    put(&cache, CacheKey(1), b"x");
    assert!(
        LEGACY_FILES.iter().all(|name| !tmp.path().join(name).exists())
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
        assert!(cache.disabled_reason().is_some(), "{}", dir.display());
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
    let pass = |seconds: u64| cache.test_clock_offset.fetch_add(seconds, Ordering::Relaxed);
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
fn the_folder_size_is_bounded() {
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
