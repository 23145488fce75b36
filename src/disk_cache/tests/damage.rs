//! Damaged files, and files and folders of others.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

#[test]
fn a_damaged_file_never_gives_a_wrong_value_and_is_set_aside() {
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
fn a_file_that_is_too_long_is_set_aside_unread() {
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
fn entries_of_other_users_are_never_used() {
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
        assert!(DiskCache::at(&dir).disabled_reason().is_none());
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        assert!(
            DiskCache::at(&dir)
                .disabled_reason()
                .is_some_and(|w| w.contains("other users can write")),
            "{mode:o}"
        );
    }
    for mode in [0o700, 0o750, 0o755] {
        let dir = tmp.path().join(format!("{mode:o}"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(DiskCache::at(&dir).disabled_reason(), None, "{mode:o}");
    }
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        let dir = tmp.path().join("foreign");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
        assert!(DiskCache::at(&dir).disabled_reason().is_some_and(|w| w.contains("another user")));
    }
}

#[test]
fn nothing_is_read_without_a_private_secret() {
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
        assert_eq!((cache.disabled_reason(), right(&cache, 20)), (None, 0));
        assert_eq!(fs::symlink_metadata(&secret).unwrap().mode() & 0o7777, 0o600);
    }
}
