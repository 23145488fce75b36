//! 80,000 mutated files: each gives an error or a valid value, never a panic and never a large
//! allocation. The allocator of this binary records the largest request.

use flate2::Compression;
use flate2::write::GzEncoder;
use picograd::device::memory;
use picograd::io::{
    StateDict, npy_load, npy_load_bytes, npy_to_bytes, npz_load, npz_load_bytes, npz_to_bytes,
    safe_load, safe_load_bytes, safe_load_metadata, safe_to_bytes,
};
use picograd::nn::data::{Array, Random, cifar10_load_bytes, idx_load, idx_load_bytes};
use picograd::{DType, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

struct Noting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// Serializes the tests of this file: they measure the process.
fn serial() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

const FILES: u64 = 10_000;
/// The largest allowed allocation. The files have a few kB, and only deflate may expand them a
/// thousandfold.
const MAX_BYTES: usize = 16 << 20;

const HUGE: [u64; 9] = [
    u64::MAX,
    i64::MAX as u64,
    1 << 63,
    1 << 62,
    u32::MAX as u64,
    i32::MAX as u64,
    1 << 31,
    0xffff_ffff_ffff_0000,
    100_000_000,
];

/// Mutates a valid file, with pieces of another one.
fn mutate(r: &mut Random, file: &[u8], other: &[u8]) -> Vec<u8> {
    let mut f = file.to_vec();
    // Headers are at the beginning or, in an archive, at the end: half of the changes are there.
    let place = |r: &mut Random, len: usize| match r.below(4) {
        0 => r.below(len.min(200)),
        1 => len - 1 - r.below(len.min(120)),
        _ => r.below(len),
    };
    for _ in 0..1 + r.below(3) {
        if f.is_empty() {
            return f;
        }
        let at = place(r, f.len());
        match r.below(9) {
            0 | 1 => f[at] ^= 1 << r.below(8),
            2 => f[at] = r.below(256) as u8,
            3 => f.truncate(at),
            4 => {
                // A length field becomes a huge number, in either byte order.
                let (n, width) = (HUGE[r.below(HUGE.len())], [1, 2, 4, 8][r.below(4)]);
                let bytes = if r.below(2) == 0 {
                    n.to_le_bytes()[..width].to_vec()
                } else {
                    n.to_be_bytes()[8 - width..].to_vec()
                };
                bytes.iter().zip(&mut f[at..]).for_each(|(b, place)| *place = *b);
            }
            5 => {
                // A number in text becomes another, possibly huge one.
                if let Some(digit) = (at..f.len()).find(|i| f[*i].is_ascii_digit()) {
                    let end = (digit..f.len()).find(|i| !f[*i].is_ascii_digit()).unwrap_or(f.len());
                    let n = if r.below(2) == 0 {
                        HUGE[r.below(HUGE.len())]
                    } else {
                        r.below(300) as u64
                    };
                    f.splice(digit..end, n.to_string().bytes());
                }
            }
            6 => {
                let from = r.below(other.len());
                let piece = &other[from..(from + 1 + r.below(64)).min(other.len())];
                let end = if r.below(2) == 0 { at } else { (at + piece.len()).min(f.len()) };
                f.splice(at..end, piece.iter().copied());
            }
            7 => {
                let end = (at + 1 + r.below(32)).min(f.len());
                let piece = f[at..end].to_vec();
                let to = r.below(f.len());
                f.splice(to..to, piece);
            }
            _ => drop(f.drain(at..(at + 1 + r.below(16)).min(f.len()))),
        }
    }
    f
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// Feeds mutants of the seeds to a reader that returns whether it accepted them.
fn campaign(what: &str, seeds: &[Vec<u8>], wrap: fn(Vec<u8>) -> Vec<u8>, read: fn(&[u8]) -> bool) {
    let _guard = serial();
    for seed in seeds {
        assert!(read(&wrap(seed.clone())), "{what}: the seed is not valid");
    }
    memory::clear_cache();
    memory::reset_peak();
    LARGEST.store(0, Ordering::Relaxed);
    let mut taken = 0;
    for i in 0..FILES {
        let mut r = Random::new(0xbad, i);
        let (file, other) = (&seeds[r.below(seeds.len())], &seeds[r.below(seeds.len())]);
        let mutant = wrap(mutate(&mut r, file, other));
        match catch_unwind(AssertUnwindSafe(|| read(&mutant))) {
            Ok(valid) => taken += valid as u64,
            Err(_) => panic!("{what}: mutant {i} panics: {:?}", String::from_utf8_lossy(&mutant)),
        }
        let largest = LARGEST.load(Ordering::Relaxed).max(memory::peak_bytes());
        assert!(
            largest < MAX_BYTES,
            "{what}: mutant {i} of {} bytes asks for {largest}",
            mutant.len()
        );
    }
    println!(
        "{what}: {taken} of {FILES} mutants are valid files, largest allocation {} bytes",
        LARGEST.load(Ordering::Relaxed)
    );
    assert!(taken < FILES, "{what}: no mutant was refused");
}

fn state() -> StateDict {
    StateDict::from_iter([
        ("layers.0.weight", Tensor::from_vec((0..60).map(|v| v as f32).collect(), [3, 20])),
        ("flags", Tensor::from_vec(vec![true, false, true], [3])),
        ("half", Tensor::from_vec(vec![1.5f32; 8], [2, 2, 2]).cast(DType::F16)),
        ("empty", Tensor::zeros([0, 4])),
        ("step", Tensor::new(7i64)),
    ])
}

/// A valid state: every tensor has the bytes that its shape and dtype say.
fn whole(state: &StateDict) -> bool {
    state
        .iter()
        .for_each(|(name, t)| assert_eq!(t.to_bytes().unwrap().len(), t.nbytes(), "{name}"));
    true
}

fn same(file: Vec<u8>) -> Vec<u8> {
    file
}

#[test]
fn mutated_safetensors_are_handled() {
    let seeds = [
        safe_to_bytes(&state(), &[("note", "12 words")]).unwrap(),
        safe_to_bytes(&StateDict::new(), &[]).unwrap(),
    ];
    campaign("safetensors", &seeds, same, |f| safe_load_bytes(f).is_ok_and(|s| whole(&s)));
}

#[test]
fn mutated_safetensors_on_disk_are_handled() {
    let seeds = [safe_to_bytes(&state(), &[("note", "12 words")]).unwrap()];
    campaign("safetensors on disk", &seeds, same, |f| {
        let path =
            std::env::temp_dir().join(format!("pico-hostile-{}.safetensors", std::process::id()));
        std::fs::write(&path, f).unwrap();
        let valid = safe_load(&path).is_ok_and(|s| whole(&s));
        assert_eq!(valid, safe_load_metadata(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
        valid
    });
}

fn arrays() -> Vec<Vec<u8>> {
    state().iter().map(|(_, t)| npy_to_bytes(t).unwrap()).collect()
}

/// True if shape and dtype are consistent. Reading an array in Fortran order needs a kernel, so
/// values are not read.
fn described(t: &Tensor) -> bool {
    t.shape().len() <= 64 && t.nbytes() <= MAX_BYTES
}

#[test]
fn mutated_npy_files_are_handled() {
    campaign("npy", &arrays(), same, |f| npy_load_bytes(f).is_ok_and(|t| described(&t)));
}

#[test]
fn mutated_npz_files_are_handled() {
    let seeds = [npz_to_bytes(&state(), false).unwrap(), npz_to_bytes(&state(), true).unwrap()];
    campaign("npz", &seeds, same, |f| {
        npz_load_bytes(f).is_ok_and(|s| s.iter().all(|(_, t)| described(t)))
    });
}

#[test]
fn mutated_idx_files_are_handled() {
    let mut plain = vec![0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28];
    plain.extend(vec![7; 3 * 28 * 28]);
    let mut floats = vec![0, 0, 0x0d, 1, 0, 0, 0, 4];
    floats.extend([0; 16]);
    let read = |f: &[u8]| {
        idx_load_bytes(f).is_ok_and(|a: Array| {
            a.shape().iter().product::<usize>() * a.dtype().itemsize() == a.bytes().len()
        })
    };
    campaign("idx", &[plain.clone(), floats.clone()], same, read);
    // Mutants inside a valid gzip layer, so that they reach the IDX reader, and mutants of that
    // layer.
    campaign("idx in gz", &[plain.clone(), floats.clone()], |f| gz(&f), read);
    campaign("gz of idx", &[gz(&plain), gz(&floats)], same, read);
}

#[test]
fn mutated_cifar_files_are_handled() {
    let file: Vec<u8> =
        (0..3073 * 2).map(|i| if i % 3073 == 0 { 3 } else { (i % 251) as u8 }).collect();
    campaign("cifar-10", &[file], same, |f| cifar10_load_bytes(f).is_ok());
}

/// Opening a pipe would wait for a writer, and a device file has no end.
#[test]
fn irregular_files_are_refused() {
    let folder = std::env::temp_dir().join(format!("pico-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), "/dev/zero".as_ref(), folder.as_path()] {
        let refused =
            |e: picograd::Error| assert!(e.to_string().contains("is not a regular file"), "{e}");
        refused(npy_load(path).map(drop).unwrap_err());
        refused(npz_load(path).map(drop).unwrap_err());
        refused(safe_load(path).map(drop).unwrap_err());
        refused(safe_load_metadata(path).map(drop).unwrap_err());
        refused(idx_load(path).map(drop).unwrap_err());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_load_frees_replaced_values() {
    let _guard = serial();
    let target = Tensor::from_vec(vec![1.0f32; 1 << 20], [1 << 20]);
    let bytes = safe_to_bytes(
        &StateDict::from_iter([("w", Tensor::from_vec(vec![2.0f32; 1 << 20], [1 << 20]))]),
        &[],
    )
    .unwrap();
    let before = memory::live_bytes();
    safe_load_bytes(&bytes).unwrap().load_into(&[("w".into(), target.clone())], true).unwrap();
    assert_eq!(memory::live_bytes(), before);
    assert_eq!(target.to_vec::<f32>().unwrap()[9], 2.0);
}

/// Loading reads only the header: memory is allocated once, when a tensor is moved to a device.
#[test]
fn file_tensors_use_no_memory_until_read() {
    let _guard = serial();
    let path = std::env::temp_dir().join(format!("pico-mapped-{}.safetensors", std::process::id()));
    // A sparse file of a gigabyte.
    let header = concat!(
        r#"{"a":{"dtype":"F32","shape":[250000000],"data_offsets":[0,1000000000]},"#,
        r#""b":{"dtype":"U8","shape":[5],"data_offsets":[1000000000,1000000005]}}"#
    );
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + 1_000_000_005).unwrap();
    let (live, _) = (memory::live_bytes(), LARGEST.store(0, Ordering::Relaxed));
    let loaded = safe_load(&path).unwrap();
    assert!(memory::live_bytes() == live && LARGEST.load(Ordering::Relaxed) < 100_000);
    memory::reset_peak();
    let part =
        loaded.get("a").unwrap().shrink(&[(200_000_000, 201_000_000)]).to("CPU").realize().unwrap();
    assert_eq!(memory::peak_bytes() - live, 4_000_000, "the bytes of the slice, once");
    assert!(LARGEST.load(Ordering::Relaxed) < 100_000, "no other allocation");
    assert_eq!(part.to_vec::<f32>().unwrap()[5], 0.0);
    assert_eq!(loaded.get("b").unwrap().to_vec::<u8>().unwrap(), [0; 5]);
    drop((loaded, part));
    std::fs::remove_file(&path).unwrap();
}
