//! Casts, bits and bytes of constants, and constants as values: equality, order, text.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::super::{Const, DType, read, write};
use super::{everything, samples};

const FLOATS: [DType; 6] =
    [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn float_casts_match_their_definition() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (x, t, want) in [
        (300.7, DType::U8, Const::Int(255)),
        (-3.9, DType::U8, Const::Int(0)),
        (-3.9, DType::I8, Const::Int(-3)),
        (-300.0, DType::I8, Const::Int(-128)),
        (inf, DType::I16, Const::Int(32767)),
        (-inf, DType::I64, Const::Int(i64::MIN)),
        (inf, DType::U64, Const::Int(-1)),
        (1e19, DType::U64, Const::Int(10_000_000_000_000_000_000u64 as i64)),
        (1e19, DType::INDEX, Const::Int(i64::MAX)),
        (nan, DType::I32, Const::Int(0)),
        (nan, DType::U64, Const::Int(0)),
        (nan, DType::BOOL, Const::Bool(true)),
        (-0.0, DType::BOOL, Const::Bool(false)),
        (1e-300, DType::BOOL, Const::Bool(true)),
        (65519.0, DType::F16, Const::Float(65504.0)),
        (65520.0, DType::F16, Const::Float(inf)),
        (-1e39, DType::F32, Const::Float(-inf)),
        (1e39, DType::BF16, Const::Float(inf)),
        (1e39, DType::F8E5M2, Const::Float(inf)),
        (500.0, DType::F8E4M3, Const::Float(nan)),
        (-inf, DType::F8E4M3, Const::Float(nan)),
        (-1e-300, DType::F8E4M3, Const::Float(-0.0)),
        (2f64.powi(-24), DType::F16, Const::Float(2f64.powi(-24))),
        (2f64.powi(-25), DType::F16, Const::Float(0.0)),
        (0.1, DType::F32, Const::Float(0.1f32 as f64)),
    ] {
        assert_eq!(Const::Float(x).cast(DType::F64, t), want, "{x} to {t}");
    }
    for t in FLOATS {
        assert_eq!(Const::Float(-nan).cast(DType::F64, t), Const::Float(nan));
        assert_eq!(Const::Float(-0.0).cast(DType::F64, t), Const::Float(-0.0));
    }
}

#[test]
fn integer_casts_match_their_definition() {
    for (i, from, to, want) in [
        (300, DType::I32, DType::U8, Const::Int(44)),
        (200, DType::U8, DType::I8, Const::Int(-56)),
        (-1, DType::I8, DType::U16, Const::Int(65535)),
        (-1, DType::I8, DType::U64, Const::Int(-1)),
        (-1, DType::U64, DType::I32, Const::Int(-1)),
        (1 << 32, DType::I64, DType::I32, Const::Int(0)),
        (1 << 32, DType::I64, DType::BOOL, Const::Bool(true)),
        (0, DType::I64, DType::BOOL, Const::Bool(false)),
        (-1, DType::I64, DType::F32, Const::Float(-1.0)),
        (-1, DType::U64, DType::F32, Const::Float(2f64.powi(64))),
        (-1, DType::U64, DType::F64, Const::Float(2f64.powi(64))),
        (-1, DType::U64, DType::F16, Const::Float(f64::INFINITY)),
        (2049, DType::I32, DType::F16, Const::Float(2048.0)),
        (2051, DType::I32, DType::F16, Const::Float(2052.0)),
        (-17, DType::I32, DType::F8E4M3, Const::Float(-16.0)),
    ] {
        assert_eq!(Const::Int(i).cast(from, to), want, "{i} from {from} to {to}");
    }
    for &t in DType::ALL {
        assert!(Const::Bool(true).cast(DType::BOOL, t).is_one());
        assert!(Const::Bool(false).cast(DType::BOOL, t).is_zero());
    }
    assert_eq!(Const::Int(-1).as_f64(DType::U64), 2f64.powi(64));
    assert_eq!(Const::Int(-1).as_f64(DType::INDEX), -1.0);
}

/// Returns the values that sit on the edges of some dtype.
fn edge_values(t: DType) -> Vec<Const> {
    let ints = [0, 1, -1, 127, 128, 255, 256, 65535, 1 << 31, 1 << 53, i64::MIN, i64::MAX];
    let floats = [-0.0, 0.1, -2.5, 448.0, 65504.0, 1e-7, 1e30, 1e300, f64::INFINITY, f64::NAN];
    let ints = ints.into_iter().map(Const::Int);
    ints.chain(floats.map(Const::Float)).map(|c| c.normalize(t)).collect()
}

#[test]
fn casts_give_normal_form_and_bytes_round_trip() {
    let mut buffer = [0u8; 9];
    for from in everything().into_iter().filter(|t| *t != DType::VOID) {
        for c in edge_values(from) {
            for to in everything().into_iter().filter(|t| *t != DType::VOID) {
                let cast = c.cast(from, to);
                assert_eq!(cast.normalize(to), cast, "{c} from {from} to {to}");
                if from.bits() == to.bits() && !to.is_bool() && !from.is_bool() {
                    let bits = c.bitcast(from, to).to_bits(to);
                    assert_eq!(bits, c.to_bits(from), "{c} from {from} to {to}");
                }
            }
            buffer.fill(0xa5);
            write(c, from, &mut buffer);
            assert_eq!(read(&buffer, from), c, "{c} in {from}");
            assert!(buffer[from.itemsize()..].iter().all(|b| *b == 0xa5));
        }
    }
    write(Const::Float(1.0), DType::F32, &mut buffer);
    assert_eq!(buffer[..4], [0, 0, 0x80, 0x3f]);
    // A constant of another kind than the dtype is put in normal form on the way.
    write(Const::Int(1), DType::F32, &mut buffer);
    assert_eq!(buffer[..4], [0, 0, 0x80, 0x3f]);
}

#[test]
fn bitcasts_keep_the_bits_of_a_nan() {
    // The patterns cover quiet and signalling NaNs of both signs.
    for bits in [0x7fa0_0001u32, 0xffc1_2345, 0x7f80_0001, 0xff80_0000] {
        let i = Const::from(bits as i32);
        assert_eq!(i.bitcast(DType::I32, DType::F32).bitcast(DType::F32, DType::I32), i);
    }
    assert_eq!(Const::Float(1.0).bitcast(DType::F32, DType::U32), Const::Int(0x3f80_0000));
    assert_eq!(Const::Int(2).bitcast(DType::U8, DType::BOOL), Const::Bool(true));
    let unlike = || Const::Int(0).bitcast(DType::I32, DType::I64);
    assert!(std::panic::catch_unwind(unlike).is_err());
}

#[test]
fn equality_hash_and_order_agree() {
    let hash = |c: Const| {
        let mut h = DefaultHasher::new();
        c.hash(&mut h);
        h.finish()
    };
    let sorted: Vec<Const> = vec![
        Const::Bool(false),
        Const::Bool(true),
        Const::Int(i64::MIN),
        Const::Int(-1),
        Const::Int(0),
        Const::Int(1),
        Const::Float(f64::NEG_INFINITY),
        Const::Float(-1.0),
        Const::Float(-0.0),
        Const::Float(0.0),
        Const::Float(1.0),
        Const::Float(f64::INFINITY),
        Const::Float(f64::NAN),
    ];
    for (i, a) in sorted.iter().enumerate() {
        for (j, b) in sorted.iter().enumerate() {
            assert_eq!(a.cmp(b), i.cmp(&j), "{a} {b}");
            assert_eq!(a == b, i == j);
            assert_eq!(hash(*a) == hash(*b), i == j);
        }
    }
    let other_nan = Const::Float(f64::from_bits(0xfff0_0000_0000_0001));
    assert_eq!(other_nan, Const::Float(f64::NAN));
    assert_eq!(hash(other_nan), hash(Const::Float(f64::NAN)));
    assert_eq!(BTreeSet::from([other_nan, Const::Float(f64::NAN)]).len(), 1);
}

#[test]
fn display_parses_back() {
    for (c, text) in [
        (Const::from(3), "3"),
        (Const::from(-3i64), "-3"),
        (Const::from(true), "true"),
        (Const::from(1.0), "1.0"),
        (Const::from(-0.0), "-0.0"),
        (Const::from(1e-30), "1e-30"),
        (Const::from(0.1f32), "0.10000000149011612"),
        (Const::from(f64::INFINITY), "inf"),
        (Const::from(f64::NEG_INFINITY), "-inf"),
        (Const::from(-f64::NAN), "nan"),
    ] {
        assert_eq!(c.to_string(), text);
    }
    for x in samples(20_000).map(f64::from_bits).chain([f64::MAX, 5e-324, 1e16, 123456789.0]) {
        let text = Const::Float(x).to_string();
        assert_eq!(Const::Float(text.parse().unwrap()), Const::Float(x), "{text}");
        assert!(text.contains(['.', 'e']) || text == "nan", "{text}");
    }
}

#[test]
fn constants_have_truth_and_integer_values() {
    assert!(Const::Float(-0.0).is_zero() && !Const::Float(f64::NAN).is_zero());
    assert!(Const::Float(f64::NAN).is_true() && !Const::Float(f64::NAN).is_one());
    assert!(Const::Bool(true).is_one() && Const::Int(1).is_one() && Const::Float(1.0).is_one());
    assert_eq!(Const::Bool(true).as_i64(), Some(1));
    assert_eq!(Const::Float(1.0).as_i64(), None);
    assert_eq!(Const::from(u64::MAX), Const::Int(-1));
}
