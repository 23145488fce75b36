//! The small floats: every code, every tie, and nothing rounded twice.

use half::{bf16, f16};

use super::super::float::{BRAIN, E4M3, E5M2, HALF, Layout};
use super::super::float::{f8e4m3_to_f32, f8e5m2_to_f32, f32_to_f8e4m3, f32_to_f8e5m2};
use super::super::{Const, DType, Scalar, round_f64};
use super::samples;

#[test]
fn every_code_of_the_small_floats_round_trips() {
    for code in 0..=255u8 {
        assert_eq!(f32_to_f8e4m3(f8e4m3_to_f32(code)), code);
        assert_eq!(f32_to_f8e5m2(f8e5m2_to_f32(code)), code);
        // The second type is the upper byte of a half, which gives its values independently.
        let half = f16::from_bits((code as u16) << 8).to_f32();
        assert!(f8e5m2_to_f32(code) == half || (half.is_nan() && f8e5m2_to_f32(code).is_nan()));
    }
    for code in 0..=u16::MAX {
        let (h, b) = (f16::from_bits(code), bf16::from_bits(code));
        assert_eq!(Const::from(h), Const::Float(h.to_f64()));
        assert_eq!(Const::from(b), Const::Float(b.to_f64()));
    }
    for &t in DType::ALL.iter().filter(|t| t.bits() <= 16 && !t.is_bool()) {
        for code in 0..1u64 << t.bits() {
            let c = Const::from_bits(code, t);
            assert_eq!(c.to_bits(t), code, "{t} {c}");
            assert_eq!(c.normalize(t), c, "{t} {c}");
        }
    }
}

/// Returns the code of the nearest value by looking at all of them, ties to the even code. The
/// first code past the finite ones stands for where the next binade step would be, which is where
/// overflow begins.
fn nearest(x: f64, layout: Layout, last_finite: u8) -> u8 {
    let value = |code: u8| {
        if code > last_finite {
            2.0 * layout.decode(last_finite as u64) - layout.decode(last_finite as u64 - 1)
        } else {
            layout.decode(code as u64)
        }
    };
    let magnitude = x.abs();
    let code = if magnitude >= value(last_finite + 1) {
        last_finite + 1
    } else {
        let distance = |code: u8| (value(code) - magnitude).abs();
        (0..=last_finite + 1)
            .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
            .unwrap()
    };
    code | ((x.is_sign_negative() as u8) << 7)
}

#[test]
fn fp8_rounds_to_the_nearest() {
    for (layout, last, scalar) in [(E4M3, 0x7eu8, Scalar::F8E4M3), (E5M2, 0x7b, Scalar::F8E5M2)] {
        let mut xs = vec![0.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY];
        for code in 0..=last as u64 {
            let (a, b) = (layout.decode(code), layout.decode(code + 1));
            let b = if code == last as u64 { 2.0 * a - layout.decode(code - 1) } else { b };
            let tie = (a + b) / 2.0;
            xs.extend([a, a.next_up(), a.next_down(), tie, tie.next_up(), tie.next_down()]);
        }
        // Random mantissas over exponents from far below the smallest subnormal to past overflow.
        let random = samples(20_000).map(|r| ((1023 - 30 + (r >> 52) % 50) << 52) | (r >> 12));
        xs.extend(random.map(f64::from_bits));
        for x in xs.into_iter().flat_map(|x| [x, -x]) {
            let want = nearest(x, layout, last);
            assert_eq!(layout.encode(x), want as u64, "{x:e} in {scalar}");
            let rounded = Const::Float(round_f64(x, scalar));
            assert_eq!(rounded, Const::Float(layout.decode(want as u64)), "{x:e} in {scalar}");
        }
    }
    assert_eq!((f32_to_f8e4m3(464.0), f32_to_f8e4m3(464.1)), (0x7e, 0x7f));
    assert_eq!((f32_to_f8e5m2(61439.0), f32_to_f8e5m2(61440.0)), (0x7b, 0x7c));
    assert_eq!(f32_to_f8e4m3(f32::NEG_INFINITY), 0xff);
    assert_eq!((f32_to_f8e4m3(f32::NAN), f32_to_f8e5m2(f32::NAN)), (0x7f, 0x7e));
}

#[test]
fn halves_round_like_the_half_crate() {
    // From f32 the half crate rounds once, so it is a fair judge there.
    let check = |x: f32| {
        for x in [x, -x, x.next_up(), x.next_down()] {
            assert_eq!(HALF.encode(x as f64), f16::from_f32(x).to_bits() as u64, "{x:e}");
            assert_eq!(BRAIN.encode(x as f64), bf16::from_f32(x).to_bits() as u64, "{x:e}");
        }
    };
    for code in 0..0x7c00u16 {
        let a = f16::from_bits(code).to_f32();
        let b = if code == 0x7bff { 65536.0 } else { f16::from_bits(code + 1).to_f32() };
        check(a);
        check((a + b) / 2.0);
    }
    for code in 0..0x7f80u32 {
        check(f32::from_bits(code << 16));
        check(f32::from_bits((code << 16) | 0x8000));
    }
    samples(200_000).map(|r| f32::from_bits(r as u32)).filter(|x| !x.is_nan()).for_each(check);
}

#[test]
fn rounding_happens_once() {
    // Just past a tie by less than f32 can hold: going through f32 first would fall back on the tie
    // and then to even.
    for (layout, scalar, ulp) in
        [(HALF, Scalar::F16, 2f64.powi(-10)), (BRAIN, Scalar::BF16, 2f64.powi(-7))]
    {
        let past = 1.0 + ulp / 2.0 + 2f64.powi(-40);
        assert_eq!(round_f64(past, scalar), 1.0 + ulp);
        assert_eq!(round_f64(1.0 + ulp / 2.0, scalar), 1.0);
        assert_eq!(layout.encode(-past), layout.encode(past) | layout.encode(-0.0));
    }
    // The same from a long integer, which f64 would round onto the tie.
    let tie = (1i64 << 62) + (1 << 54);
    let to_bf16 = |i: i64, t: DType| Const::Int(i).cast(t, DType::BF16).as_f64(DType::BF16);
    assert_eq!(to_bf16(tie, DType::I64), 2f64.powi(62));
    assert_eq!(to_bf16(tie + 1, DType::I64), 2f64.powi(62) + 2f64.powi(55));
    assert_eq!(to_bf16(-tie - 1, DType::I64), -(2f64.powi(62) + 2f64.powi(55)));
    assert_eq!(to_bf16(i64::MIN, DType::I64), -(2f64.powi(63)));
    assert_eq!(to_bf16(i64::MIN, DType::U64), 2f64.powi(63));
    assert_eq!(to_bf16(-1, DType::U64), 2f64.powi(64));
    let long = (1i64 << 54) + (1 << 30) + 1;
    assert_eq!(Const::Int(long).cast(DType::I64, DType::F32), Const::Float(long as f32 as f64));
    assert_ne!(long as f32, long as f64 as f32);
}
