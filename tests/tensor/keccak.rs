//! Digests against those of Python's hashlib, for messages around the length of a block.

use picograd::Tensor;
use picograd::tensor::Keccak;

fn message(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i % 251) as u8).collect()
}

fn digest(bytes: Vec<u8>, kind: Keccak) -> (usize, String) {
    let n = bytes.len();
    let out = Tensor::from_vec(bytes, [n]).keccak(kind).to_vec::<u8>().unwrap();
    (out.len(), out[..8].iter().map(|b| format!("{b:02x}")).collect())
}

#[test]
fn every_variant_matches_hashlib() {
    let table = [
        (Keccak::Sha3_224, 28, "6b4e03423667dbb7", "e642824c3f8cf24a"),
        (Keccak::Sha3_256, 32, "a7ffc6f8bf1ed766", "3a985da74fe225b2"),
        (Keccak::Sha3_384, 48, "0c63a75b845e4f7d", "ec01498288516fc9"),
        (Keccak::Sha3_512, 64, "a69f73cca23a9ac5", "b751850b1a57168a"),
        (Keccak::Shake128, 16, "7f9c2ba4e88f827d", "5881092dd818bf5c"),
    ];
    for (kind, length, empty, abc) in table {
        assert_eq!(digest(Vec::new(), kind), (length, empty.to_string()), "{kind:?} of nothing");
        assert_eq!(digest(b"abc".to_vec(), kind), (length, abc.to_string()), "{kind:?} of abc");
    }
}

#[test]
fn messages_around_a_block_match_hashlib() {
    for (n, expected) in
        [(135, "fded8fd9d6551c60"), (136, "cf3ccff92480a291"), (300, "4be64d77dff18f21")]
    {
        assert_eq!(digest(message(n), Keccak::Sha3_256).1, expected, "{n} bytes");
    }
}

#[test]
fn rows_are_hashed_independently() {
    let rows = Tensor::new([*b"abc", *b"abd"]).keccak(Keccak::Shake128);
    assert_eq!(rows.shape(), [2, 16]);
    let rows = rows.to_rows::<u8>().unwrap();
    assert_eq!(rows[0][..2], [0x58, 0x81]);
    assert_eq!(rows[1], Tensor::new(*b"abd").keccak(Keccak::Shake128).to_vec::<u8>().unwrap());
    assert!(Tensor::new([1, 2]).try_keccak(Keccak::Sha3_256).is_err());
    assert!(Tensor::from(1u8).try_keccak(Keccak::Sha3_256).is_err());
}

/// The digests are those of the same tree of `hashlib.shake_128(block).digest(16)`, computed in
/// Python.
#[test]
fn tensor_hashes_match_hashlib() {
    let hash = |t: Tensor| {
        t.hash().to_vec::<u8>().unwrap().iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    assert_eq!(hash(Tensor::new([1.0f32, -2.5, 3.25])), "ee19d1780282a6536533f2b41e869190");
    assert_eq!(
        hash(Tensor::from_vec(message((1 << 20) + 1), [(1 << 20) + 1])),
        "d9d43ff5bce56703643a024a139bfb00"
    );
}
