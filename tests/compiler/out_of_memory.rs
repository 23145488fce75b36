//! A process with an address space of 2 GiB: an allocation that does not fit is an error that names
//! the limit, and the next small operation works.

use crate::common;
use picograd::io::{
    StateDict, npy_load, npy_load_bytes, npy_save, npy_to_bytes, npz_load, npz_load_bytes,
    npz_save, npz_to_bytes, safe_load, safe_load_bytes, safe_to_bytes,
};
use picograd::nn::data::{Array, idx_load_bytes};
use picograd::{DType, Error, Tensor};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// The address space that `ulimit -v` leaves, in bytes.
const LIMIT: u64 = 2 << 30;

/// A size beyond the address space, and a size of which two copies are beyond it.
const HUGE: usize = 3 << 30;
const HALF: usize = 1200 << 20;

/// A size of which three copies are beyond the address space.
const THIRD: usize = 700 << 20;

fn small_op_works() {
    let x = Tensor::new([1.0f32, 2.0, 3.0]);
    assert_eq!((&x * 2.0 + 1.0).to_vec::<f32>().unwrap(), [3.0, 5.0, 7.0]);
}

fn refused<T>(what: &str, done: Result<T, Error>) {
    match done {
        Err(e @ Error::OutOfMemory { .. }) => {
            assert!(e.to_string().contains("RLIMIT_AS is 2147483648 bytes"), "{what}: {e}")
        }
        Err(e) => panic!("{what}: another error: {e}"),
        Ok(_) => panic!("{what}: succeeded, expected an out-of-memory error"),
    }
    small_op_works();
    println!("refused {what}");
}

/// The header of an `.npy` file with `bytes` bytes of data.
fn npy_head(bytes: usize) -> Vec<u8> {
    let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({bytes},), }}");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.bytes());
    out
}

/// A sparse file with this header and length.
fn sparse(path: &Path, head: &[u8], bytes: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(head).unwrap();
    file.set_len((head.len() + bytes) as u64).unwrap();
}

/// The body of the child process of the test below, which has little memory.
#[test]
#[ignore = "run by the test of this file"]
fn child_process() {
    let Some(folder) = std::env::var_os("OOM_FOLDER") else { return };
    let folder = Path::new(&folder);
    small_op_works();
    // A constant tensor takes no memory until it is read or stored.
    let huge = Tensor::full([HUGE], 1u8);
    refused("to_vec", huge.to_vec::<u8>());
    refused("to_bytes", huge.to_bytes());
    refused("realize", huge.contiguous().realize());
    refused("f64", Tensor::zeros([HUGE / 8]).cast(DType::F64).to_vec::<f64>());
    // The tensor fits, but not the copy for the reader.
    let half = Tensor::full([HALF], 1u8).contiguous().realize().unwrap();
    refused("the copy of to_vec", half.to_vec::<u8>());
    refused("a second tensor", (&half + 1u8).realize());
    refused("safe_to_bytes", safe_to_bytes(&StateDict::from_iter([("x", half.clone())]), &[]));
    drop(half);
    picograd::device::memory::clear_cache();
    // The tensor and one copy fit, but not the written file.
    let third = Tensor::full([THIRD], 1u8).contiguous().realize().unwrap();
    let state = StateDict::from_iter([("x", third.clone())]);
    refused("npy_to_bytes", npy_to_bytes(&third));
    refused("npz_to_bytes", npz_to_bytes(&state, false));
    npy_save(folder.join("third.npy"), &third).unwrap();
    npz_save(folder.join("third.npz"), &state, false).unwrap();
    drop((third, state));
    picograd::device::memory::clear_cache();
    // Rows of one byte take 56 bytes each, and each piece is a tensor.
    refused("to_rows", Tensor::full([40_000_000, 1], 1u8).to_rows::<u8>());
    picograd::device::memory::clear_cache();
    refused("split", Tensor::ones([1usize << 31]).try_split(1usize, 0));
    refused("chunk", Tensor::ones([1 << 24]).try_chunk(usize::MAX, 0));
    // The caller holds the bytes; a second copy does not fit.
    let bytes = vec![0u8; HALF];
    refused("try_from_bytes", Tensor::try_from_bytes(&bytes, DType::U8, [HALF]));
    refused("try_from_slice", Tensor::try_from_slice(&bytes, [HALF]));
    refused("Array::new", Array::new(&bytes, &[HALF]));
    let bytes = match Tensor::try_from_vec(bytes, [HALF]) {
        Err(e) => {
            println!("refused try_from_vec: {e}");
            vec![0u8; HALF]
        }
        Ok(_) => panic!("try_from_vec: succeeded, expected an out-of-memory error"),
    };
    drop(bytes);
    // Eight bytes per number, because each number is checked.
    let wide = vec![0u64; HALF / 8];
    refused("try_new", Tensor::try_new(&wide));
    drop(wide);
    // Files larger than memory.
    let path = folder.join("huge.npy");
    sparse(&path, &npy_head(HUGE), HUGE);
    refused("npy_load", npy_load(&path));
    let mut file = npy_head(HALF);
    file.resize(file.len() + HALF, 0);
    refused("npy_load_bytes", npy_load_bytes(&file));
    drop(file);
    let path = folder.join("huge.npz");
    sparse(&path, b"PK\x03\x04", HUGE);
    refused("npz_load", npz_load(&path));
    let header =
        format!("{{\"x\":{{\"dtype\":\"U8\",\"shape\":[{HUGE}],\"data_offsets\":[0,{HUGE}]}}}}");
    let path = folder.join("huge.safetensors");
    sparse(&path, &[&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat(), HUGE);
    let state = safe_load(&path).unwrap();
    refused("a tensor of a file", state.require("x").unwrap().to("CPU").realize());
    refused("reading DISK", state.require("x").unwrap().to_vec::<u8>());
    let header = header.replace(&HUGE.to_string(), &HALF.to_string());
    let mut file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    file.resize(file.len() + HALF, 0);
    refused("safe_load_bytes", safe_load_bytes(&file));
    drop(file);
    // A few megabytes that inflate beyond the address space.
    let bomb = std::fs::read(folder.join("bomb.npz")).unwrap();
    assert!(bomb.len() < 8 << 20);
    refused("npz_load_bytes of a bomb", npz_load_bytes(&bomb));
    // An archive that fits once, but not four times.
    let loaded = npz_load_bytes(&std::fs::read(folder.join("large.npz")).unwrap()).unwrap();
    assert_eq!(loaded.require("x").unwrap().shape(), [600 << 20]);
    drop(loaded);
    let idx = std::fs::read(folder.join("bomb.idx.gz")).unwrap();
    let e = idx_load_bytes(&idx).unwrap_err().to_string();
    assert!(e.contains("RLIMIT_AS"), "{e}");
    small_op_works();
    println!("passed");
}

/// A deflated stream of a header and `mebibytes` MiB of zeros. All but the first MiB have the same
/// compressed bytes.
fn deflated(head: &[u8], mebibytes: usize) -> Vec<u8> {
    let mut deflate = flate2::Compress::new(flate2::Compression::best(), false);
    let zeros = vec![0u8; 1 << 20];
    let mut pack = |bytes: &[u8], flush| {
        let mut out = Vec::with_capacity(1 << 16);
        let before = deflate.total_in();
        deflate.compress_vec(bytes, &mut out, flush).unwrap();
        assert_eq!(deflate.total_in() - before, bytes.len() as u64);
        out
    };
    let mut out = pack(head, flate2::FlushCompress::Sync);
    out.extend(pack(&zeros, flate2::FlushCompress::Sync));
    let again = pack(&zeros, flate2::FlushCompress::Sync);
    (1..mebibytes).for_each(|_| out.extend(&again));
    out.extend(pack(&[], flate2::FlushCompress::Finish));
    out
}

/// An archive of one array of zeros, made by replacing the content of a small one.
fn npz_of_zeros(mebibytes: usize) -> Vec<u8> {
    let small = npz_to_bytes(&StateDict::from_iter([("x", Tensor::zeros([1]))]), true).unwrap();
    let bytes = mebibytes << 20;
    let packed = deflated(&npy_head(bytes), mebibytes);
    let (mut crc, mut zeros) = (flate2::Crc::new(), flate2::Crc::new());
    crc.update(&npy_head(bytes));
    zeros.update(&vec![0; 1 << 20]);
    (0..mebibytes).for_each(|_| crc.combine(&zeros));
    let size = (npy_head(bytes).len() + bytes) as u32;
    // The local header has 30 bytes and the name; then follow the data, the directory and its end
    // record.
    let name = 5;
    let mut out = small[..30 + name].to_vec();
    let directory_at =
        u32::from_le_bytes(small[small.len() - 6..small.len() - 2].try_into().unwrap()) as usize;
    let mut rest = small[directory_at..].to_vec();
    let fields = |at: usize, out: &mut Vec<u8>| {
        out[at..at + 4].copy_from_slice(&crc.sum().to_le_bytes());
        out[at + 4..at + 8].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        out[at + 8..at + 12].copy_from_slice(&size.to_le_bytes());
    };
    fields(14, &mut out);
    fields(16, &mut rest);
    out.extend(&packed);
    let end = rest.len() - 6;
    rest[end..end + 4].copy_from_slice(&(out.len() as u32).to_le_bytes());
    out.extend(rest);
    out
}

#[test]
fn out_of_memory_names_the_limit() {
    let folder = std::env::temp_dir().join(format!("picograd-oom-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bomb.npz"), npz_of_zeros(3 << 10)).unwrap();
    std::fs::write(folder.join("large.npz"), npz_of_zeros(600)).unwrap();
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let idx = deflated(&[0, 0, 8, 1, 0xc0, 0, 0, 0], 3 << 10);
    std::fs::write(folder.join("bomb.idx.gz"), [&gzip[..], &idx].concat()).unwrap();
    {
        let device = "CPU";
        let mut command = common::child("out_of_memory::child_process");
        command
            .env("OOM_FOLDER", &folder)
            .env("PICO_CACHE", "off")
            .env("DEV", device)
            .env("MALLOC_ARENA_MAX", "2");
        // SAFETY: only one system call runs between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
                libc::setrlimit(libc::RLIMIT_AS, &limit);
                Ok(())
            })
        };
        let out = command.output().unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(
            out.status.success() && text.contains("passed"),
            "{device} exited with {}:\n{text}",
            out.status
        );
    }
    let _ = std::fs::remove_dir_all(&folder);
}
