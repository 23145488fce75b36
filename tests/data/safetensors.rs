//! safetensors: files of Python, round trips of every dtype, laziness, and malformed headers.

use crate::common::TempDir;
use crate::fixture;
use picograd::io::{
    StateDict, npy_save, npz_save, safe_load, safe_load_bytes, safe_load_metadata, safe_save,
    safe_to_bytes,
};
use picograd::{DType, Tensor};

pub const DTYPES: [(&str, DType); 15] = [
    ("f64", DType::F64),
    ("f32", DType::F32),
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("f8e4m3", DType::F8E4M3),
    ("f8e5m2", DType::F8E5M2),
    ("i64", DType::I64),
    ("i32", DType::I32),
    ("i16", DType::I16),
    ("i8", DType::I8),
    ("u64", DType::U64),
    ("u32", DType::U32),
    ("u16", DType::U16),
    ("u8", DType::U8),
    ("bool", DType::BOOL),
];

/// Values of the fixtures for a dtype, as floats.
pub fn values(dtype: DType) -> Vec<f64> {
    let all = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0];
    all.iter()
        .map(|v: &f64| {
            if dtype.is_bool() {
                (*v != 0.0) as i32 as f64
            } else if dtype.is_unsigned() {
                v.abs()
            } else {
                *v
            }
        })
        .collect()
}

fn floats(t: &Tensor) -> Vec<f64> {
    t.to(picograd::Device::default_name().as_str()).cast(DType::F64).to_vec().unwrap()
}

/// One tensor of each dtype, an empty one and one of rank 0.
pub fn every_dtype() -> StateDict {
    let of = |(name, dtype): (&'static str, DType)| {
        (name, Tensor::from_vec(values(dtype), [2, 3]).cast(dtype))
    };
    let mut s: StateDict = DTYPES.into_iter().map(of).collect();
    s.insert("empty", Tensor::zeros([0, 4]));
    s.insert("scalar", Tensor::new(7.5f32));
    s
}

#[test]
fn files_of_the_python_library_are_read() {
    let path = fixture("all.safetensors");
    let on_disk = safe_load(&path).unwrap();
    let in_memory = safe_load_bytes(&std::fs::read(&path).unwrap()).unwrap();
    for state in [&on_disk, &in_memory] {
        assert_eq!(state.len(), DTYPES.len() + 3);
        for (name, dtype) in DTYPES {
            let t = state.require(name).unwrap();
            assert_eq!((t.dtype(), t.shape()), (dtype, vec![2, 3]));
            assert_eq!(floats(t), values(dtype), "{name}");
        }
        assert_eq!(state.get("empty").unwrap().shape(), [0, 4]);
        assert_eq!(floats(state.get("scalar").unwrap()), [7.5]);
        assert_eq!(floats(state.get("layers.0.weight").unwrap()), [0.0, 1.0, 2.0, 3.0]);
    }
    let meta = safe_load_metadata(&path).unwrap();
    assert_eq!((meta.len(), meta["note"].as_str()), (2, "a \"quoted\" line\nand a second, ü"));
}

#[test]
fn safetensors_files_round_trip() {
    let folder = TempDir::new();
    let path = folder.file("all.safetensors");
    let state = every_dtype();
    safe_save(&path, &state, &[("note", "a \"quoted\" line\nand a second, ü")]).unwrap();
    let loaded = safe_load(&path).unwrap();
    let names = |s: &StateDict| s.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    assert_eq!(names(&loaded), names(&state), "the order is kept");
    for (name, t) in &state {
        let l = loaded.require(name).unwrap();
        assert_eq!(
            (l.dtype(), l.shape(), l.to_bytes().unwrap()),
            (t.dtype(), t.shape(), t.to_bytes().unwrap()),
            "{name}"
        );
    }
    assert_eq!(safe_load_metadata(&path).unwrap()["note"], "a \"quoted\" line\nand a second, ü");
    assert_eq!(
        std::fs::read(&path).unwrap(),
        safe_to_bytes(&state, &[("note", "a \"quoted\" line\nand a second, ü")]).unwrap()
    );
    assert_eq!(folder.names(), ["all.safetensors"], "nothing is left behind");
    // Files for `tests/fixtures/make_state.py check FOLDER`.
    if let Ok(out) = std::env::var("KEEP_STATE") {
        let out = std::path::Path::new(&out);
        safe_save(
            out.join("all.safetensors"),
            &state,
            &[("note", "a \"quoted\" line\nand a second, ü")],
        )
        .unwrap();
        let numpy: StateDict =
            state.iter().filter(|(n, _)| !n.contains("f8") && n != "bf16").cloned().collect();
        npz_save(out.join("stored.npz"), &numpy, false).unwrap();
        npz_save(out.join("deflated.npz"), &numpy, true).unwrap();
        npy_save(out.join("f32.npy"), numpy.get("f32").unwrap()).unwrap();
    }
}

#[test]
fn file_tensors_are_read_lazily() {
    let folder = TempDir::new();
    let path = folder.file("big.safetensors");
    let state =
        StateDict::from_iter([("a", Tensor::arange(0, 1 << 20, 1)), ("b", Tensor::full([5], 3u8))]);
    safe_save(&path, &state, &[]).unwrap();
    let loaded = safe_load(&path).unwrap();
    let a = loaded.get("a").unwrap();
    assert_eq!(a.device().as_str(), "DISK");
    // Slices and reshapes read only their part.
    let rows = a.reshape([1024, 1024]).shrink(&[(3, 5), (0, 1024)]);
    let here = rows.to("CPU");
    assert_eq!(here.to_vec::<i32>().unwrap(), (3 * 1024..5 * 1024).collect::<Vec<i32>>());
    assert_eq!(rows.to_vec::<i32>().unwrap(), (3 * 1024..5 * 1024).collect::<Vec<i32>>());
    assert_eq!(here.schedule().unwrap().len(), 0, "it is stored now");
    // Computing on `DISK` is an error that names the fix.
    for e in [
        (a + 1).to_vec::<i32>().map(drop),
        a.sum(..).realize().map(drop),
        a.reshape([1024, 1024]).transpose(0, 1).to_bytes().map(drop),
    ] {
        let e = e.unwrap_err().to_string();
        assert!(e.contains("DISK") && e.contains(".to(\"CPU\")"), "{e}");
    }
    assert!(
        Tensor::zeros([1])
            .try_to("disk")
            .unwrap_err()
            .to_string()
            .contains("DISK holds tensors of files")
    );
    assert_eq!((a.to("CPU") + 1).max(..).item::<i32>().unwrap(), 1 << 20);
    // A truncated file is an error and does not kill the process.
    let loaded = safe_load(&path).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let target = Tensor::full([1 << 20], 7);
    for e in [
        loaded.get("a").unwrap().to_bytes().map(drop),
        loaded.get("b").unwrap().to("CPU").realize().map(drop),
        loaded.load_into(&[("a".into(), target.clone())], false),
    ] {
        let e = e.unwrap_err().to_string();
        assert!(e.contains("truncated to 4096 bytes"), "{e}");
    }
    assert_eq!(target.min(..).item::<i32>().unwrap(), 7, "a load that fails changes nothing");
}

/// A file with a given header and zeros as data.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.bytes());
    out.resize(out.len() + data, 0);
    out
}

#[test]
fn malformed_headers_are_refused() {
    let good = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert!(safe_load_bytes(&with_header(good, 8)).is_ok());
    let more = good.replace("\"dtype\"", "\"unknown\":[{\"x\":null}],\"dtype\"");
    assert!(safe_load_bytes(&with_header(&more, 8)).is_ok(), "unknown fields are ignored");
    assert!(
        safe_load_bytes(&with_header(&format!("{good}   "), 8)).is_ok(),
        "padding with spaces is allowed"
    );
    let two = |a: &str, b: &str| {
        let entry = |at| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{at}}}"#);
        format!(r#"{{"a":{},"b":{}}}"#, entry(a), entry(b))
    };
    assert!(
        safe_load_bytes(&with_header(&two("[4,8]", "[0,4]"), 8)).is_ok(),
        "the order of names is not that of bytes"
    );
    let cases = [
        (with_header(good, 7), "0..8 are not inside the 7 bytes"),
        (with_header(good, 9), "end at byte 8 of 9"),
        (with_header(&two("[0,4]", "[2,6]"), 6), "overlaps"),
        (with_header(&two("[0,4]", "[5,9]"), 9), "gap"),
        (with_header(&two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), 8), "twice"),
        (with_header(&good.replace("[2]", "[3]"), 8), "f32 of shape [3] does not take the 8 bytes"),
        (
            with_header(&good.replace("[2]", "[4294967296,4294967296,4294967296]"), 8),
            "more elements than",
        ),
        (with_header(&good.replace("[2]", "[4611686018427387905,4]"), 8), "more elements than"),
        (
            with_header(&good.replace("[2]", "[-2]"), 8),
            "integer `-2`, expected u64 at line 1 column 31",
        ),
        (with_header(&good.replace("[2]", "[2.0]"), 8), "floating point `2.0`, expected u64"),
        (with_header(&good.replace("[0,8]", "[8,0]"), 8), "8..0 are not inside"),
        (with_header(&good.replace("[0,8]", "[0,18446744073709551615]"), 8), "are not inside"),
        (with_header(&good.replace("[0,8]", "[0,8,9]"), 8), "no data_offsets of two numbers"),
        (with_header(&good.replace("F32", "F33"), 8), "the dtype F33 is not supported"),
        (with_header(&good.replace("\"dtype\":\"F32\",", ""), 8), "tensor \"a\": no dtype"),
        (with_header("{}", 1), "end at byte 0 of 1"),
        (with_header(" {}", 0), "does not begin with {"),
        (with_header("[]", 0), "does not begin with {"),
        (with_header("", 0), "does not begin with {"),
        (with_header("{} x", 0), "trailing characters at line 1 column 4"),
        (with_header(r#"{"__metadata__":{"a":1}}"#, 0), "expected a string"),
        (u64::MAX.to_le_bytes().to_vec(), "a header of 18446744073709551615 bytes in a file of 8"),
        (9u64.to_le_bytes().to_vec(), "a header of 9 bytes in a file of 8"),
        (vec![0; 7], "7 bytes are too few"),
        (vec![], "0 bytes are too few"),
    ];
    let folder = TempDir::new();
    let path = folder.file("bad.safetensors");
    for (bytes, why) in cases {
        let e = safe_load_bytes(&bytes).unwrap_err().to_string();
        assert!(e.contains(why), "{e:?} does not say {why:?}");
        std::fs::write(&path, &bytes).unwrap();
        let e = safe_load(&path).unwrap_err().to_string();
        assert!(e.contains(why) && e.contains("bad.safetensors"), "{e:?} does not say {why:?}");
    }
    let deep = format!("{{\"a\":{{\"more\":{}", "[".repeat(100_000));
    assert!(
        safe_load_bytes(&with_header(&deep, 0)).unwrap_err().to_string().contains("its header")
    );
    let axes = vec!["1"; 65].join(",");
    let e = safe_load_bytes(&with_header(&good.replace("[2]", &format!("[{axes}]")), 8))
        .unwrap_err()
        .to_string();
    assert!(e.contains("65 axes"), "{e}");
}

#[test]
fn unsupported_dtypes_are_refused() {
    let state = StateDict::from_iter([("__metadata__", Tensor::zeros([1]))]);
    assert!(safe_to_bytes(&state, &[]).unwrap_err().to_string().contains("__metadata__"));
    assert!(
        safe_to_bytes(&StateDict::new(), &[("a", "1"), ("a", "2")])
            .unwrap_err()
            .to_string()
            .contains("twice")
    );
    assert_eq!(safe_load_bytes(&safe_to_bytes(&StateDict::new(), &[]).unwrap()).unwrap().len(), 0);
}

#[test]
fn nonzero_bytes_are_true() {
    let mut bytes = with_header(r#"{"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}"#, 3);
    let end = bytes.len();
    bytes[end - 3..].copy_from_slice(&[2, 0, 255]);
    let folder = TempDir::new();
    std::fs::write(folder.file("b"), &bytes).unwrap();
    for state in [safe_load_bytes(&bytes).unwrap(), safe_load(folder.file("b")).unwrap()] {
        assert_eq!(state.get("a").unwrap().to_bytes().unwrap(), [1, 0, 1]);
        assert_eq!(
            state.get("a").unwrap().to("CPU").cast(DType::I32).sum(..).item::<i32>().unwrap(),
            2
        );
    }
}
