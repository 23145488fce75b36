//! Keys, values and kinds of entries.

use super::*;
use std::os::unix::fs::MetadataExt;

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
