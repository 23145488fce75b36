//! Elementwise arithmetic, comparisons, math and activations.

use super::{check, close};
use picograd::ir::Op;
use picograd::{DType, Tensor};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

#[test]
fn arithmetic_matches_hand_computed_values() {
    let (x, y) = (Tensor::new([7, -7, 5]), Tensor::new([2, 2, 0]));
    check(&(&x + &y), &[3], &[9, -5, 5]);
    check(&(&x - &y), &[3], &[5, -9, 5]);
    check(&(&x * &y), &[3], &[14, -14, 0]);
    check(&x.idiv(&y), &[3], &[3, -4, 0]);
    check(&(&x % &y), &[3], &[1, 1, 0]);
    check(&(&x / &y), &[3], &[3.5, -3.5, INF]);
    check(&(10 - &x), &[3], &[3, 17, 5]);
    check(&(1.0 / Tensor::new([2f32, 4.0])), &[2], &[0.5f32, 0.25]);
    check(&-&x, &[3], &[-7, 7, -5]);
    check(&Tensor::new([1u8]).neg(), &[1], &[255u8]);
    check(&(Tensor::new([5.5f32, -5.5]) % 2.0), &[2], &[1.5f32, 0.5]);
    check(&Tensor::new([5.5f32, -5.5]).idiv(2.0), &[2], &[2f32, -3.0]);
    check(&(Tensor::new([true, false]) + Tensor::new([true, false])), &[2], &[true, false]);
}

#[test]
fn powers_match_hand_computed_values() {
    check(&Tensor::new([2, -3, 0]).pow(3), &[3], &[8, -27, 0]);
    check(&Tensor::new([2, 1, -1]).pow(-1), &[3], &[0, 1, -1]);
    check(&Tensor::new([3]).pow(5), &[1], &[243]);
    check(&Tensor::new([2f32, 9.0]).pow(0.5), &[2], &[std::f32::consts::SQRT_2, 3.0]);
    check(&Tensor::new([2f32, NAN]).pow(0), &[2], &[1f32, 1.0]);
    check(&Tensor::new([-2f32]).pow(2), &[1], &[4f32]);
    close(&Tensor::new([0.0f32, 3.0, -1.0]).exp10(), &[1.0, 1000.0, 0.1], 1e-6);
}

#[test]
fn bit_ops_match_hand_computed_values() {
    let (x, y) = (Tensor::new([0b1100, -1]), Tensor::new([0b1010, 1]));
    check(&(&x & &y), &[2], &[0b1000, 1]);
    check(&(&x | &y), &[2], &[0b1110, -1]);
    check(&(&x ^ &y), &[2], &[0b0110, -2]);
    check(&!&x, &[2], &[!0b1100, 0]);
    check(&(&x << 2), &[2], &[0b110000, -4]);
    check(&(&x >> 1), &[2], &[0b110, -1]);
    check(&!Tensor::new([true, false]), &[2], &[false, true]);
    check(&Tensor::new([0x3f800000u32]).bitcast(DType::F32), &[1], &[1f32]);
}

#[test]
fn comparisons_with_nan_are_false() {
    let (x, y) = (Tensor::new([1f32, 2.0, 2.0, NAN]), Tensor::new([2f32, 2.0, 1.0, 1.0]));
    check(&x.lt(&y), &[4], &[true, false, false, false]);
    check(&x.le(&y), &[4], &[true, true, false, false]);
    check(&x.gt(&y), &[4], &[false, false, true, false]);
    check(&x.ge(&y), &[4], &[false, true, true, false]);
    check(&x.eq(&y), &[4], &[false, true, false, false]);
    check(&x.ne(&y), &[4], &[true, false, true, true]);
    check(&Tensor::new([1u64, u64::MAX]).le(Tensor::new([u64::MAX, 1])), &[2], &[true, false]);
    check(&Tensor::new([false, true]).lt(true), &[2], &[true, false]);
}

#[test]
fn logic_and_where_match_hand_computed_values() {
    let (x, y) = (Tensor::new([0, 2, 0, 3]), Tensor::new([0f32, 0.0, 1.0, NAN]));
    check(&x.logical_and(&y), &[4], &[false, false, false, true]);
    check(&x.logical_or(&y), &[4], &[false, true, true, true]);
    check(&x.logical_xor(&y), &[4], &[false, true, true, false]);
    check(&x.logical_not(), &[4], &[true, false, true, false]);
    check(&x.where_(1, 0.5), &[4], &[0.5f32, 1.0, 0.5, 1.0]);
    check(&x.masked_fill(&x.eq(0), -1), &[4], &[-1, 2, -1, 3]);
    check(&Tensor::from(true).where_(&x, 9), &[4], &[0, 2, 0, 3]);
    check(&Tensor::new([[true], [false]]).where_(Tensor::new([1, 2]), 0), &[2, 2], &[1, 2, 0, 0]);
}

#[test]
fn extremes_propagate_nan() {
    let x = Tensor::new([1f32, NAN, -3.0]);
    close(&x.maximum(0.0), &[1.0, f64::NAN, 0.0], 0.0);
    close(&x.minimum(0.0), &[0.0, f64::NAN, -3.0], 0.0);
    close(&x.clamp(-1, 0.5), &[0.5, f64::NAN, -1.0], 0.0);
    check(&Tensor::new([1, 5]).clip(2, 4), &[2], &[2, 4]);
}

#[test]
fn sign_ops_match_hand_computed_values() {
    let x = Tensor::new([-2f32, -0.0, 0.0, 3.0, NAN]);
    close(&x.abs(), &[2.0, 0.0, 0.0, 3.0, f64::NAN], 0.0);
    let zero = x.abs().to_vec::<f32>().unwrap()[1];
    assert!(zero.is_sign_positive());
    close(&x.sign(), &[-1.0, 0.0, 0.0, 1.0, f64::NAN], 0.0);
    check(&Tensor::new([-5, 0, 5]).sign(), &[3], &[-1, 0, 1]);
    check(&Tensor::new([0u8, 200]).sign(), &[2], &[0u8, 1]);
    check(&Tensor::new([i32::MIN, -1]).abs(), &[2], &[i32::MIN, 1]);
    check(&Tensor::new([200u8]).abs(), &[1], &[200u8]);
    let signs = Tensor::new([1f32, 1.0, -1.0]).copysign(&Tensor::new([-0.0f32, 2.0, 3.0]));
    check(&signs, &[3], &[-1f32, 1.0, 1.0]);
}

#[test]
fn rounding_ties_go_to_even() {
    let x = Tensor::new([-2.5f32, -1.5, -0.5, -0.2, 0.5, 1.5, 2.5, 2.7, 1e9, INF]);
    check(&x.trunc(), &[10], &[-2f32, -1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 1e9, INF]);
    check(&x.floor(), &[10], &[-3f32, -2.0, -1.0, -1.0, 0.0, 1.0, 2.0, 2.0, 1e9, INF]);
    check(&x.ceil(), &[10], &[-2f32, -1.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 1e9, INF]);
    check(&x.round(), &[10], &[-2f32, -2.0, 0.0, 0.0, 0.0, 2.0, 2.0, 3.0, 1e9, INF]);
    check(&Tensor::new([3]).floor(), &[1], &[3]);
    let zeros = x.i(2..4);
    for f in [Tensor::round, Tensor::ceil, Tensor::trunc] {
        assert!(
            f(&zeros).to_vec::<f32>().unwrap().iter().all(|z| z.is_sign_negative()),
            "a negative zero keeps its sign"
        );
    }
}

#[test]
fn float_classes_are_recognized() {
    let x = Tensor::new([1f32, INF, -INF, NAN]);
    check(&x.isnan(), &[4], &[false, false, false, true]);
    check(&x.isinf(), &[4], &[false, true, true, false]);
    check(&x.isfinite(), &[4], &[true, false, false, false]);
    check(&Tensor::new([1]).isinf(), &[1], &[false]);
    check(&Tensor::new([448f32, 1.0]).cast(DType::F8E4M3).isinf(), &[2], &[false, false]);
}

/// Functions match their f64 definitions.
#[test]
fn functions_match_f64_definitions() {
    let points = [-3.0f32, -1.0, -1e-3, 0.0, 1e-6, 0.3, 1.0, 2.5, 10.0];
    let x = Tensor::new(points);
    let each = |f: fn(f64) -> f64| points.map(|p| f(p as f64));
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    close(&x.sqrt(), &each(f64::sqrt), 1e-6);
    close(&x.abs().rsqrt(), &each(|v| 1.0 / v.abs().sqrt()), 1e-6);
    close(&x.exp(), &each(f64::exp), 1e-6);
    close(&x.exp2(), &each(f64::exp2), 1e-6);
    close(&x.log(), &each(f64::ln), 1e-6);
    close(&x.log2(), &each(f64::log2), 1e-6);
    close(&x.log10(), &each(f64::log10), 1e-6);
    close(&x.sin(), &each(f64::sin), 1e-6);
    close(&x.cos(), &each(f64::cos), 1e-6);
    close(&x.tan(), &each(f64::tan), 1e-6);
    close(&x.tanh(), &each(f64::tanh), 1e-6);
    close(&x.sinh(), &each(f64::sinh), 1e-6);
    close(&x.cosh(), &each(f64::cosh), 1e-6);
    close(&x.sigmoid(), &each(sigmoid), 1e-6);
    close(&x.square(), &each(|v| v * v), 1e-6);
    close(&x.reciprocal(), &each(|v| 1.0 / v), 1e-6);
    close(&Tensor::new([0.5f32, -1.0]).erf(), &[0.5204998778130465, -0.8427007929497149], 1e-6);
    close(&Tensor::new([4, 9]).sqrt(), &[2.0, 3.0], 0.0);
    // The hyperbolic sine is accurate near zero.
    let small: f32 = Tensor::new([1e-6f32]).sinh().item().unwrap();
    assert!((small - 1e-6).abs() < 1e-12);
}

#[test]
fn activations_match_f64_definitions() {
    let points = [-8.0f32, -3.0, -1.0, -1e-4, 0.0, 0.5, 2.0, 5.0, 9.0];
    let x = Tensor::new(points);
    let each = |f: fn(f64) -> f64| points.map(|p| f(p as f64));
    close(&x.relu(), &each(|v| v.max(0.0)), 0.0);
    close(&x.relu6(), &each(|v| v.clamp(0.0, 6.0)), 0.0);
    close(&x.leaky_relu(0.1), &each(|v| if v < 0.0 { 0.1 * v } else { v }), 1e-6);
    close(&x.elu(2.0), &each(|v| if v < 0.0 { 2.0 * v.exp_m1() } else { v }), 1e-6);
    close(&x.celu(2.0), &each(|v| if v < 0.0 { 2.0 * (v / 2.0).exp_m1() } else { v }), 1e-6);
    close(
        &x.selu(),
        &each(|v| 1.0507009873554805 * if v < 0.0 { 1.6732632423543772 * v.exp_m1() } else { v }),
        1e-6,
    );
    close(&x.silu(), &each(|v| v / (1.0 + (-v).exp())), 1e-6);
    close(&x.swish(), &each(|v| v / (1.0 + (-v).exp())), 1e-6);
    close(
        &x.gelu_tanh(),
        &each(|v| 0.5 * v * (1.0 + (0.7978845608028654 * (v + 0.044715 * v * v * v)).tanh())),
        1e-6,
    );
    close(
        &Tensor::new([1f32, -1.0, 0.0]).gelu(),
        &[0.8413447460685429, -0.15865525393145707, 0.0],
        1e-6,
    );
    close(&x.quick_gelu(), &each(|v| v / (1.0 + (-1.702 * v).exp())), 1e-6);
    close(&x.softplus(1.0), &each(|v| v.exp().ln_1p()), 1e-6);
    close(&x.softplus(3.0), &each(|v| (3.0 * v).exp().ln_1p() / 3.0), 1e-6);
    close(&x.mish(), &each(|v| v * v.exp().ln_1p().tanh()), 1e-6);
    close(&x.logsigmoid(), &each(|v| -(-v).exp().ln_1p()), 1e-6);
    close(&x.softsign(), &each(|v| v / (1.0 + v.abs())), 1e-6);
    close(&x.hardtanh(), &each(|v| v.clamp(-1.0, 1.0)), 0.0);
    close(&x.hardsigmoid(), &each(|v| (v / 6.0 + 0.5).clamp(0.0, 1.0)), 1e-6);
    close(&x.hardswish(), &each(|v| v * (v / 6.0 + 0.5).clamp(0.0, 1.0)), 1e-6);
    // Tails that a naive formula rounds to zero: e⁻³⁰ is far below the spacing of f32 at 1.
    let tail: f32 = Tensor::new([-30f32]).softplus(1.0).item().unwrap();
    assert!((tail as f64 / (-30f64).exp() - 1.0).abs() < 1e-5, "{tail}");
    assert!(Tensor::new([NAN]).relu().item::<f32>().unwrap().is_nan());
    assert!(Tensor::new([-0.0f32]).relu().item::<f32>().unwrap().is_sign_negative());
    check(&Tensor::new([-2, 2]).relu(), &[2], &[0, 2]);
}

#[test]
fn binary_functions_match_hand_computed_values() {
    let (x, y) = (Tensor::new([0f32, 1000.0, -INF, INF]), Tensor::new([0f32, 999.0, -INF, 0.0]));
    close(
        &x.logaddexp(&y),
        &[std::f64::consts::LN_2, 1000.3132616875182, f64::NEG_INFINITY, f64::INFINITY],
        1e-6,
    );
    check(&Tensor::new([0f32, 10.0]).lerp(&Tensor::new([1f32, 20.0]), 0.5), &[2], &[0.5f32, 15.0]);
    let near = Tensor::new([1f32, 2.0, INF, NAN]).isclose(
        &Tensor::new([1.000001f32, 2.1, INF, NAN]),
        1e-5,
        1e-8,
    );
    check(&near, &[4], &[true, false, true, false]);
    check(&Tensor::ones([3]).allclose(&Tensor::ones([3]), 0.0, 0.0), &[], &[true]);
}

#[test]
fn casts_truncate_saturate_and_wrap() {
    check(&Tensor::new([2.9f32, -2.9, NAN, 1e20]).cast(DType::I32), &[4], &[2, -2, 0, i32::MAX]);
    check(&Tensor::new([300, -1]).cast(DType::U8), &[2], &[44u8, 255]);
    check(&Tensor::new([0f32, 0.1, NAN]).cast(DType::BOOL), &[3], &[false, true, true]);
    check(&Tensor::full([2], u64::MAX).cast(DType::F32), &[2], &[18446744073709551615f32; 2]);
}

#[test]
fn alu_applies_ops_by_name() {
    let (x, y) = (Tensor::new([[1.0f32, -4.0]]), Tensor::new([[2], [3]]));
    check(&x.alu(Op::Add, &[&y]), &[2, 2], &[3f32, -2.0, 4.0, -1.0]);
    check(&x.alu(Op::Lt, &[&Tensor::new(0.0f32)]), &[1, 2], &[false, true]);
    check(&x.alu(Op::Fma, &[&x, &x]), &[1, 2], &[2f32, 12.0]);
    check(&x.lt(0).alu(Op::Where, &[&Tensor::new(0), &y]), &[2, 2], &[2, 0, 3, 0]);
    check(&y.alu(Op::Shl, &[&y]), &[2, 1], &[8, 24]);
    let e = |t: &Tensor, op: Op, others: &[&Tensor]| t.try_alu(op, others).unwrap_err().to_string();
    assert_eq!(e(&x, Op::Add, &[]), "alu: Add expected 2 operands, got 1");
    assert_eq!(e(&y, Op::Sqrt, &[]), "alu: Sqrt expected floats, got i32");
    assert_eq!(e(&x, Op::IDiv, &[&y]), "alu: IDiv expected integers, got f32");
    assert_eq!(e(&x, Op::Where, &[&y, &y]), "alu: expected a bool condition of Where, got f32");
    for op in [Op::Detach, Op::Cast, Op::CDiv, Op::Load, Op::Reduce] {
        assert_eq!(
            e(&x, op, &[&y]),
            format!("alu: {op:?} is not an elementwise op of the tensor graph")
        );
    }
    assert!(e(&x, Op::Add, &[&Tensor::zeros([3, 3])]).contains("do not broadcast"));
    assert_eq!(
        (y.ufix(true).dtype(), y.ufix(1.5).dtype(), x.ufix(2).dtype()),
        (DType::I32, DType::F32, DType::F32)
    );
    check(&Tensor::new([200u8]).ufix(300), &[], &[44u8]);
}
