//! IDX and CIFAR files, and their directories.

use crate::common::TempDir;
use flate2::Compression;
use flate2::write::GzEncoder;
use picograd::nn::data::{
    Dataset, Split, cifar10, cifar10_load_bytes, fashion_mnist, idx_load, idx_load_bytes, mnist,
};
use std::io::Write;

/// An IDX file of u8.
pub fn idx(sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|s| out.extend(s.to_be_bytes()));
    out.extend(data);
    out
}

pub fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn idx_files_of_every_dtype_are_read() {
    let folder = TempDir::new();
    for (name, bytes) in
        [("a", idx(&[2, 3], &[1, 2, 3, 4, 5, 6])), ("a.gz", gz(&idx(&[2, 3], &[1, 2, 3, 4, 5, 6])))]
    {
        std::fs::write(folder.file(name), &bytes).unwrap();
        let a = idx_load(folder.file(name)).unwrap();
        assert_eq!((a.shape(), a.bytes()), (&[2, 3][..], &[1, 2, 3, 4, 5, 6][..]));
    }
    let of = |kind: u8, data: &[u8]| {
        let mut file = idx(&[2], data);
        file[2] = kind;
        idx_load_bytes(&file)
    };
    assert_eq!(of(0x09, &[255, 1]).unwrap().to_vec::<i8>().unwrap(), [-1, 1]);
    assert_eq!(of(0x0b, &[1, 0, 0, 2]).unwrap().to_vec::<i16>().unwrap(), [256, 2]);
    assert_eq!(
        of(0x0c, &[0, 0, 0, 1, 255, 255, 255, 255]).unwrap().to_vec::<i32>().unwrap(),
        [1, -1]
    );
    assert_eq!(
        of(0x0d, &[0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0]).unwrap().to_vec::<f32>().unwrap(),
        [1.0, -2.0]
    );
    let doubles: Vec<u8> = [1.5f64, -3.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    assert_eq!(of(0x0e, &doubles).unwrap().to_vec::<f64>().unwrap(), [1.5, -3.0]);
    assert!(of(0x0a, &[0, 0]).unwrap_err().to_string().contains("unknown dtype 0x0a"));
}

#[test]
fn malformed_idx_files_are_refused() {
    let good = idx(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    let huge = idx(&[u32::MAX, u32::MAX, u32::MAX], &[1]);
    let large = idx(&[40_000, 1_000], &[1]);
    for (bytes, why) in [
        (good[..13].to_vec(), "does not take the 1 bytes"),
        ([good.as_slice(), &[7]].concat(), "does not take the 7 bytes"),
        (good[..9].to_vec(), "its sizes"),
        (vec![0, 0], "its header"),
        (vec![1, 0, 8, 0], "two zeros"),
        (huge, "more elements than an index"),
        (large.clone(), "is larger than the file"),
        (gz(&large), "is larger than the file"),
        (gz(&good)[..20].to_vec(), "its"),
        (gz(&good[..13]), "does not take the 1 bytes"),
        (gz(&[good.as_slice(), &[7]].concat()), "does not take the 7 bytes"),
        (vec![0x1f, 0x8b], "its header"),
    ] {
        let e = idx_load_bytes(&bytes).unwrap_err().to_string();
        assert!(e.contains(why), "{e:?} does not say {why:?}");
    }
    assert!(idx_load("/no/such/file").unwrap_err().to_string().contains("/no/such/file"));
}

#[test]
fn mnist_is_read_from_a_directory() {
    let folder = TempDir::new();
    let e = mnist(Some(&folder.0), Split::Test).unwrap_err().to_string();
    for part in [
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
        "https://",
        folder.0.to_str().unwrap(),
    ] {
        assert!(e.contains(part), "{e:?} does not name {part}");
    }
    let e = fashion_mnist(Some(&folder.0), Split::Train).unwrap_err().to_string();
    assert!(e.contains("fashion-mnist") && e.contains("zalandoresearch"), "{e}");
    // Unpacked files are accepted by their shape.
    let images: Vec<u8> = (0..10_000 * 784).map(|i| (i % 255) as u8).collect();
    let labels: Vec<u8> = (0..10_000).map(|i| (i % 10) as u8).collect();
    std::fs::write(folder.file("t10k-images-idx3-ubyte"), idx(&[10_000, 28, 28], &images)).unwrap();
    std::fs::write(folder.file("t10k-labels-idx1-ubyte"), idx(&[10_000], &labels)).unwrap();
    let data = mnist(Some(&folder.0), Split::Test).unwrap();
    assert_eq!((data.len(), data.get(13).unwrap()[1].bytes()), (10_000, &[3][..]));
    std::fs::write(folder.file("t10k-labels-idx1-ubyte"), idx(&[10_000], &[200; 10_000])).unwrap();
    assert!(mnist(Some(&folder.0), Split::Test).unwrap_err().to_string().contains("labels 0 to 9"));
    std::fs::write(folder.file("t10k-labels-idx1-ubyte"), idx(&[9], &[1; 9])).unwrap();
    assert!(
        mnist(Some(&folder.0), Split::Test).unwrap_err().to_string().contains("<Array u8 [9]>")
    );
    // Gzipped files must have the published checksum.
    std::fs::remove_file(folder.file("t10k-labels-idx1-ubyte")).unwrap();
    std::fs::write(folder.file("t10k-labels-idx1-ubyte.gz"), vec![7; 4_542]).unwrap();
    let e = mnist(Some(&folder.0), Split::Test).unwrap_err().to_string();
    assert!(e.contains("SHA-256") && e.contains("f7ae60f9"), "{e}");
}

#[test]
fn cifar_is_read_from_a_folder() {
    let folder = TempDir::new();
    let e = cifar10(Some(&folder.0), Split::Train).unwrap_err().to_string();
    for part in ["cifar-10-binary.tar.gz", "https://", folder.0.to_str().unwrap()] {
        assert!(e.contains(part), "{e:?} does not name {part}");
    }
    let mut file = vec![5u8; 10_000 * 3073];
    file[3073] = 9;
    file[3073 + 1 + 1024] = 77;
    std::fs::create_dir(folder.file("cifar-10-batches-bin")).unwrap();
    std::fs::write(folder.file("cifar-10-batches-bin/test_batch.bin"), &file).unwrap();
    let data = cifar10(Some(&folder.0), Split::Test).unwrap();
    assert_eq!(
        (data.arrays()[0].shape(), data.arrays()[1].bytes()[1]),
        (&[10_000, 3, 32, 32][..], 9)
    );
    assert_eq!(data.get(1).unwrap()[0].bytes()[1024], 77, "the first pixel of green");
    std::fs::write(folder.file("cifar-10-batches-bin/test_batch.bin"), &file[..3073]).unwrap();
    assert!(
        cifar10(Some(&folder.0), Split::Test)
            .unwrap_err()
            .to_string()
            .contains("3073 bytes, expected 30730000")
    );
    assert_eq!(cifar10_load_bytes(&file[..2 * 3073]).unwrap().len(), 2);
    assert!(cifar10_load_bytes(&file[..3000]).unwrap_err().to_string().contains("record size"));
    file[0] = 10;
    assert!(
        cifar10_load_bytes(&file[..3073])
            .unwrap_err()
            .to_string()
            .contains("record 0 has the label 10")
    );
    std::fs::write(folder.file("cifar-10-binary.tar.gz"), b"short").unwrap();
    assert!(
        cifar10(Some(&folder.0), Split::Train)
            .unwrap_err()
            .to_string()
            .contains("5 bytes, expected 170052171")
    );
}
