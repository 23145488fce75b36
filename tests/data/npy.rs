//! npy and npz: arrays of NumPy in every memory order, and the refused ones.

use crate::fixture;
use crate::safetensors::{DTYPES, every_dtype, values};
use picograd::io::{
    StateDict, npy_load, npy_load_bytes, npy_to_bytes, npz_load, npz_load_bytes, npz_to_bytes,
};
use picograd::{DType, Tensor};

fn floats(t: &Tensor) -> Vec<f64> {
    t.cast(DType::F64).to_vec().unwrap()
}

#[test]
fn numpy_archives_are_read_in_every_order() {
    for file in ["stored.npz", "deflated.npz"] {
        let state = npz_load(fixture(file)).unwrap();
        let mut seen = 0;
        for (short, dtype) in [
            ("b1", DType::BOOL),
            ("i1", DType::I8),
            ("i2", DType::I16),
            ("i4", DType::I32),
            ("i8", DType::I64),
            ("u1", DType::U8),
            ("u2", DType::U16),
            ("u4", DType::U32),
            ("u8", DType::U64),
            ("f2", DType::F16),
            ("f4", DType::F32),
            ("f8", DType::F64),
        ] {
            for order in ["little", "big", "fortran"] {
                let Some(t) = state.get(&format!("{order}_{short}")) else { continue };
                assert_eq!((t.dtype(), t.shape()), (dtype, vec![2, 3]));
                assert_eq!(floats(t), values(dtype), "{file}: {order} {short}");
                seen += 1;
            }
        }
        assert_eq!((seen, state.len()), (12 + 12 + 9, 36));
        assert_eq!(state.get("empty").unwrap().shape(), [0, 4]);
        assert_eq!(state.get("scalar").unwrap().item::<f32>().unwrap(), 7.5);
        assert_eq!(state.get("vector").unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4]);
    }
    let large = npz_load(fixture("zip64.npz")).unwrap();
    assert_eq!(
        (large.len(), large.get("vector").unwrap().to_vec::<i32>().unwrap()),
        (2, vec![0, 1, 2, 3, 4])
    );
    for version in 1..=3 {
        let t = npy_load(fixture(&format!("version{version}.npy"))).unwrap();
        assert_eq!(t.to_vec::<f32>().unwrap(), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
    }
}

#[test]
fn objects_complex_and_records_are_refused() {
    for (file, why) in [
        ("object.npy", "pickled"),
        ("complex.npy", "\"<c8\" is not supported"),
        ("record.npy", "several fields"),
    ] {
        let e = npy_load(fixture(file)).unwrap_err().to_string();
        assert!(e.contains(why) && e.contains(file), "{e}");
    }
    for dtype in [DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        let e = npy_to_bytes(&Tensor::zeros([2]).cast(dtype)).unwrap_err().to_string();
        assert!(e.contains("cast to f32"), "{e}");
    }
    assert!(npy_load("/no/such/file.npy").unwrap_err().to_string().contains("/no/such/file.npy"));
}

#[test]
fn npy_and_npz_files_round_trip() {
    let all = every_dtype();
    let numpy: StateDict = all.iter().filter(|(_, t)| npy_to_bytes(t).is_ok()).cloned().collect();
    assert_eq!(numpy.len(), DTYPES.len() - 3 + 2);
    for (name, t) in &numpy {
        let bytes = npy_to_bytes(t).unwrap();
        let back = npy_load_bytes(&bytes).unwrap();
        assert_eq!(
            (back.dtype(), back.shape(), back.to_bytes().unwrap()),
            (t.dtype(), t.shape(), t.to_bytes().unwrap()),
            "{name}"
        );
        assert_eq!((bytes.len() - t.nbytes()) % 64, 0, "the data is aligned");
    }
    for compress in [false, true] {
        let bytes = npz_to_bytes(&numpy, compress).unwrap();
        let back = npz_load_bytes(&bytes).unwrap();
        assert_eq!(back.len(), numpy.len());
        for (name, t) in &numpy {
            assert_eq!(
                back.require(name).unwrap().to_bytes().unwrap(),
                t.to_bytes().unwrap(),
                "{name}"
            );
        }
        assert_eq!(
            bytes,
            npz_to_bytes(&numpy, compress).unwrap(),
            "equal contents give equal archives"
        );
    }
    let views = Tensor::arange(0, 6, 1).reshape([2, 3]).transpose(0, 1);
    assert_eq!(
        npy_load_bytes(&npy_to_bytes(&views).unwrap()).unwrap().to_vec::<i32>().unwrap(),
        [0, 3, 1, 4, 2, 5]
    );
    assert_eq!(npz_load_bytes(&npz_to_bytes(&StateDict::new(), false).unwrap()).unwrap().len(), 0);
}

/// A file with this header and data.
fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.bytes());
    out.extend(data);
    out
}

#[test]
fn malformed_headers_are_refused() {
    let read = |header: &str, data: &[u8]| npy_load_bytes(&with_header(header, data));
    let good = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }";
    assert_eq!(read(good, &[1, 0, 2, 0]).unwrap().to_vec::<i16>().unwrap(), [1, 2]);
    let other = "{\"shape\":(2L,1),\"fortran_order\":True,\"descr\":\">i2\"}\n";
    assert_eq!(read(other, &[0, 1, 0, 2]).unwrap().to_vec::<i16>().unwrap(), [1, 2]);
    assert_eq!(
        read("{'descr': '|b1', 'fortran_order': False, 'shape': ()}", &[7])
            .unwrap()
            .to_bytes()
            .unwrap(),
        [1]
    );
    for (header, why) in [
        (good.replace("(2,)", "(3,)"), "does not take the 4 bytes"),
        (good.replace("(2,)", "(9223372036854775807, 2)"), "more elements"),
        (good.replace("(2,)", "(99999999999999999999,)"), "has the size"),
        (good.replace("(2,)", "(-2,)"), "has the size"),
        (good.replace("(2,)", "(2"), "not a tuple"),
        (good.replace("(2,)", "[2]"), "not a tuple"),
        (good.replace("False", "0"), "neither True nor False"),
        (good.replace("<i2", "|O"), "pickled"),
        (good.replace("<i2", "<U4"), "not supported"),
        (good.replace("<i2", ""), "not supported"),
        (good.replace("'shape'", "'shap'"), "unknown key"),
        (good.replace("'shape'", "shape"), "not a string"),
        (good.replace("'shape': (2,), ", ""), "no shape"),
        (good.replace("'shape'", "'descr': '<i2', 'shape'"), "twice"),
        (good.replace(", 'shape'", " 'shape'"), "no comma"),
        (good.replace('}', ""), "not a dict"),
        (String::new(), "not a dict"),
    ] {
        let e = read(&header, &[1, 0, 2, 0]).unwrap_err().to_string();
        assert!(e.contains(why), "{header}: {e:?} does not say {why:?}");
    }
    for (bytes, why) in [
        (&b""[..], "does not begin"),
        (b"\x93NUMPY", "ends inside the header"),
        (b"\x93NUMPY\x04\x00\x00\x00", "version 4"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "ends inside the header"),
        (b"\x93NUMPY\x01\x00\x01\x00\xff", "not text"),
    ] {
        let e = npy_load_bytes(bytes).unwrap_err().to_string();
        assert!(e.contains(why), "{e:?} does not say {why:?}");
    }
}

#[test]
fn malformed_archives_are_refused() {
    let state = StateDict::from_iter([("a", Tensor::zeros([1000])), ("b", Tensor::zeros([10]))]);
    let bytes = npz_to_bytes(&state, true).unwrap();
    let directory = bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let change = |at: usize, to: &[u8]| {
        let mut b = bytes.clone();
        b[at..at + to.len()].copy_from_slice(to);
        npz_load_bytes(&b).unwrap_err().to_string()
    };
    for (at, to, why) in [
        (directory + 16, &[1u8, 2, 3, 4][..], "checksum"),
        (directory + 24, &[255, 255, 255, 0], "cannot have 16777215 bytes"),
        (directory + 24, &[1, 0, 0, 0], "declared 1 bytes"),
        (directory + 20, &[255, 255, 255, 127], "outside the file"),
        (directory + 42, &[255, 255, 255, 127], "outside the file"),
        (directory + 10, &[12, 0], "method 12"),
        (directory + 8, &[1, 0], "encrypted"),
        (directory + 46, b"b.npy", "another name"),
        (30, b"b.npy", "another name"),
        (directory + 46, &[255], "not UTF-8"),
        (directory, b"XX", "outside the file"),
        (bytes.len() - 22, b"XX", "no directory"),
        (bytes.len() - 6, &[255, 255, 255, 127], "lies outside the file"),
        (bytes.len() - 12, &[9, 0], "outside the file"),
        (bytes.len() - 12, &[1, 0], "declares 1 entries and contains more"),
        (bytes.len() - 12, &[0, 0], "declares 0 entries and contains more"),
        // An empty directory at its own end.
        (
            bytes.len() - 12,
            &[&[0; 6], &(bytes.len() as u32 - 22).to_le_bytes()[..]].concat(),
            "declares 0 entries",
        ),
        // The deflated data of the first entry.
        (35, &[255; 20], "invalid deflate stream"),
    ] {
        let e = change(at, to);
        assert!(e.contains(why), "{e:?} does not say {why:?}");
    }
    assert!(npz_load_bytes(&bytes[..bytes.len() - 1]).is_err());
    let mut twice = bytes;
    twice[30] = b'b';
    twice[directory + 46] = b'b';
    assert!(npz_load_bytes(&twice).unwrap_err().to_string().contains("twice"));
}

/// A 64-bit end record has priority over the 32-bit one, and is checked in the same way.
#[test]
fn malformed_zip64_archives_are_refused() {
    let bytes = std::fs::read(fixture("zip64.npz")).unwrap();
    let find = |signature: &[u8]| bytes.windows(4).position(|w| w == signature).unwrap();
    let (end, locator) = (find(b"PK\x06\x06"), find(b"PK\x06\x07"));
    let change = |changes: &[(usize, u64)]| {
        let mut b = bytes.clone();
        changes.iter().for_each(|(at, to)| b[*at..at + 8].copy_from_slice(&to.to_le_bytes()));
        npz_load_bytes(&b).map(|state| state.len()).map_err(|e| e.to_string())
    };
    assert_eq!(change(&[]), Ok(2));
    for (changes, why) in [
        (&[(end + 32, 0)][..], "declares 0 entries"),
        (&[(end + 32, 1)], "declares 1 entries"),
        (&[(end + 32, 3)], "outside the file"),
        (&[(end + 32, 0), (end + 48, end as u64)], "declares 0 entries"),
        (&[(end + 48, u64::MAX)], "lies outside the file"),
        (&[(end + 4, 43)], "no directory"),
        (&[(end + 4, u64::MAX)], "no directory"),
        (&[(locator + 8, 0)], "no directory"),
        (&[(locator + 8, u64::MAX)], "no directory"),
    ] {
        let e = change(changes).unwrap_err();
        assert!(e.contains(why), "{changes:?}: {e:?} does not say {why:?}");
    }
}
