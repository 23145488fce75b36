//! Special functions: eˣ-1, the hypotenuse, the inverse error function, the gamma function's logarithm
//! and its derivative. Narrow floats are computed in `f32` and rounded once. Gradients are those of the
//! pieces, and finite wherever the true gradient is finite. `scripts/special.py` makes the coefficients.

use super::broadcast::Operand;
use super::elementwise::pair;
use super::{Tensor, or_panic};
use crate::dtype::DType;
use crate::error::Result;
use std::f64::consts::PI;

/// Relative error 6.4e-9, around 2.5.
const ERFINV_F32: [f64; 10] = [
    1.5014093604503288,
    0.24664027905463663,
    -0.0041773928752031487,
    -0.0012527263917732291,
    0.00021834938623976643,
    -4.9724196894547512e-6,
    -3.4639852676333716e-6,
    4.6813134805534122e-7,
    2.3335967195708106e-8,
    -8.9319259702442215e-9,
];
/// Relative error 2.2e-8, around 3.2180339887498949.
const ERFINV_ROOT_F32: [f64; 10] = [
    3.0517570455246176,
    1.0049037618226178,
    0.0057495512860844983,
    -0.0040877367803623412,
    0.0027503989546096348,
    -0.0018778606605616034,
    0.001111576806093357,
    -0.00036293083207893596,
    -9.8752484449532462e-5,
    9.4318274657364277e-5,
];
/// Relative error 4.6e-18, around 3.0.
const ERFINV_F64: [f64; 25] = [
    1.6235420064648299,
    0.24163040416615831,
    -0.0057381352210056227,
    -0.00083618177690949646,
    0.00019506132441192065,
    -1.2716422638199853e-5,
    -1.748002092989648e-6,
    4.4998542476155719e-7,
    -2.3688730211185042e-8,
    -5.4671784681253198e-9,
    1.1107998998534979e-9,
    -3.1425785137828934e-11,
    -1.7329524812399259e-11,
    2.6990332675037463e-12,
    6.4493898551875717e-15,
    -5.294269265981523e-14,
    6.2937347136644334e-15,
    2.7567170138166915e-16,
    -1.5731123503391285e-16,
    1.2748590953505582e-17,
    1.6568902070326583e-18,
    -3.8601923770048012e-19,
    5.9949571622188915e-21,
    4.2283196471144097e-21,
    -2.9904502432726884e-22,
];
/// Relative error 2.3e-19, around 3.224744871391589.
const ERFINV_ROOT_F64: [f64; 23] = [
    3.0585011531198496,
    1.0049803395892911,
    0.0056649387316759332,
    -0.0040139756396035932,
    0.0027139513636038062,
    -0.0018375017247990732,
    0.0010163876984153291,
    -0.00035823206279710374,
    7.119451416248349e-6,
    8.0663666055544831e-5,
    -5.0641287142905999e-5,
    1.1369542762639127e-5,
    4.3279089990940837e-6,
    -4.5099508282010696e-6,
    1.4695326403430714e-6,
    8.5280728558235774e-8,
    -2.9940353228687736e-7,
    1.3641063246654147e-7,
    -1.7810920489132251e-8,
    -1.6895764928339292e-8,
    1.1078042537118551e-8,
    -7.8676963592593648e-10,
    -9.4330108337051932e-10,
];
/// Relative error 1.5e-17, around 5.05.
const ERFINV_TAIL_F64: [f64; 19] = [
    4.9004210514436405,
    1.0102850175977721,
    -0.00016985809149340307,
    -0.00020031200668027352,
    7.124031542245362e-5,
    -1.8374536139125649e-5,
    4.193853753803148e-6,
    -9.0708602402224486e-7,
    2.0161905521548853e-7,
    -5.493197748316719e-8,
    2.1821840910471058e-8,
    -1.1207461299741069e-8,
    5.8058881045281103e-9,
    -2.6311132048940674e-9,
    1.0483309310240926e-9,
    -3.8682910276006672e-10,
    7.7453847617243641e-11,
    2.8907082659821914e-11,
    -1.5439278197208342e-11,
];
/// Relative error 1.9e-9, around 1.125.
const LGAMMA_1_F32: [f64; 11] = [
    -0.48018547300831666,
    0.73354249524743714,
    -0.3158060560936815,
    0.18866169193276822,
    -0.12817167242521533,
    0.093125358222082074,
    -0.070306178100250258,
    0.052849565201154147,
    -0.041638110744238723,
    0.044747897880605333,
    -0.036314154009507272,
];
/// Relative error 5.3e-10, around 2.0.
const LGAMMA_2_F32: [f64; 10] = [
    0.4227843350004583,
    0.32246703346894252,
    -0.0673522814721006,
    0.020580799471518253,
    -0.0073861741556334129,
    0.0028907953215596959,
    -0.0011858600344983208,
    0.00050651714295181611,
    -0.00025381709567278261,
    0.00011347281994554691,
];
/// Relative error 3.7e-18, around 1.125.
const LGAMMA_1_F64: [f64; 22] = [
    -0.48018547300831666,
    0.73354247769969437,
    -0.315806041645415,
    0.18866417564909104,
    -0.12817371733791294,
    0.093027667780127596,
    -0.070225757221523806,
    0.054398365998571459,
    -0.04291278598738227,
    0.034315758973473104,
    -0.027733275080192675,
    0.022605708646013838,
    -0.0185591507083317,
    0.015325879912428875,
    -0.012687275053521373,
    0.010576526854555386,
    -0.0091353322311038291,
    0.007675417569197702,
    -0.0049631378584356997,
    0.004180958153536031,
    -0.0080383060626095222,
    0.0068375115843038142,
];
/// Relative error 3.0e-19, around 2.0.
const LGAMMA_2_F64: [f64; 20] = [
    0.42278433509846714,
    0.32246703342411322,
    -0.067352301053198139,
    0.020580808427784569,
    -0.0073855510286681537,
    0.002890510330738737,
    -0.0011927539120010226,
    0.00050966952488530961,
    -0.00022315475074520367,
    9.9457509098893916e-5,
    -4.4926351103833331e-5,
    2.0507267416057788e-5,
    -9.4384587162428112e-6,
    4.3743749169151307e-6,
    -2.0449201467015115e-6,
    9.5786633341147577e-7,
    -4.3035587603599612e-7,
    2.0304806751615228e-7,
    -1.3412819758517286e-7,
    6.3790475076197737e-8,
];

/// Σ c·t^k.
fn polynomial(t: &Tensor, coefficients: &[f64]) -> Tensor {
    let (last, rest) = coefficients.split_last().expect("a polynomial");
    rest.iter().rev().fold(t.literal(*last), |p, &c| p * t + c)
}

/// The result of a function that is computed in wide floats, in the dtype that it is to have.
fn rounded(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Tensor {
    or_panic(f(&x.as_wide_float()).and_then(|y| y.try_cast(x.as_float().dtype())))
}

/// Taylor's series up to 1, where `exp(x) - 1` would cancel; a choice by `where`, whose other side has a
/// harmless argument.
fn expm1(x: &Tensor) -> Result<Tensor> {
    let near = x.abs().try_lt(1.0)?;
    let small = near.try_where_(x, 0.0)?;
    // 1/2!, 1/3!, … until they are nothing beside the first.
    let terms = if x.dtype() == DType::F64 { 19 } else { 12 };
    let series: Vec<f64> = (2..=terms)
        .scan(1.0, |f, k| {
            *f *= k as f64;
            Some(1.0 / *f)
        })
        .collect();
    // As a product, which keeps -0.
    let series = &small * (&small * polynomial(&small, &series) + 1.0);
    near.try_where_(series, near.try_where_(1.0, x)?.exp() - 1.0)
}

/// x·P(-log(1-x²)); the logarithm is of a product, which loses nothing near 1.
fn erfinv(x: &Tensor) -> Result<Tensor> {
    let inside = x.abs().try_lt(1.0)?;
    let safe = inside.try_where_(x, 0.0)?;
    let w = -((1.0 - &safe) * (&safe + 1.0)).log();
    let piece = |w: &Tensor, low: f64, high: f64, p: &[f64]| polynomial(&(w - (low + high) / 2.0), p);
    let double = x.dtype() == DType::F64;
    let limit = if double { 6.0 } else { 5.0 };
    let central = w.try_lt(limit)?;
    let near = central.try_where_(&w, 0.0)?;
    let root = central.try_where_(limit, &w)?.sqrt();
    let factor = if double {
        let tail = root.try_gt(4.0)?;
        let (a, b) = (tail.try_where_(4.0, &root)?, tail.try_where_(&root, 4.0)?);
        let far = tail.try_where_(piece(&b, 4.0, 6.1, &ERFINV_TAIL_F64), piece(&a, 6f64.sqrt(), 4.0, &ERFINV_ROOT_F64))?;
        central.try_where_(piece(&near, 0.0, 6.0, &ERFINV_F64), far)?
    } else {
        central.try_where_(piece(&near, 0.0, 5.0, &ERFINV_F32), piece(&root, 5f64.sqrt(), 4.2, &ERFINV_ROOT_F32))?
    };
    // At 1 and -1 it is infinite, beyond and for NaN it is NaN.
    let side = x.try_lt(0.0)?.try_where_(x.literal(f64::NEG_INFINITY), f64::INFINITY)?;
    let end = x.abs().try_eq(1.0)?.try_where_(side, f64::NAN)?;
    inside.try_where_(safe.try_mul(factor)?, end)
}

/// Σ B₂ₖ/(2k(2k-1))·x^(1-2k), what Stirling's formula leaves of log Γ from 8 on.
fn stirling_rest(x: &Tensor) -> Tensor {
    const SERIES: [f64; 10] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360360.0,
        1.0 / 156.0,
        -3617.0 / 122400.0,
        43867.0 / 244188.0,
        -174611.0 / 125400.0,
    ];
    let terms = if x.dtype() == DType::F64 { SERIES.len() } else { 3 };
    let inverse = x.reciprocal();
    &inverse * polynomial(&inverse.square(), &SERIES[..terms])
}

/// log Γ for numbers above zero: polynomials around its zeros 1 and 2, from 2.5 to 8 moved down to them,
/// below 0.75 moved up, from 8 on Stirling's formula.
fn lgamma_positive(x: &Tensor) -> Result<Tensor> {
    let double = x.dtype() == DType::F64;
    let (one, two): (&[f64], &[f64]) = if double { (&LGAMMA_1_F64, &LGAMMA_2_F64) } else { (&LGAMMA_1_F32, &LGAMMA_2_F32) };
    let far = x.try_ge(8.0)?;
    let big = far.try_where_(x, 8.0)?;
    // (x-½)(log x - 1) stays infinite at infinity, where (x-½)·log x - x would be NaN.
    let stirling = (&big - 0.5) * (big.log() - 1.0) + (0.5 * std::f64::consts::TAU.ln() - 0.5) + stirling_rest(&big);
    let mut z = far.try_where_(2.0, x)?;
    let mut product = z.ones_like();
    let low = z.try_lt(0.75)?;
    for _ in 0..6 {
        let high = z.try_ge(2.5)?;
        z = high.try_where_(&z - 1.0, &z)?;
        product = high.try_where_(&product * &z, &product)?;
    }
    let moved = low.try_where_(&z, &product)?;
    z = low.try_where_(&z + 1.0, &z)?;
    let first = z.try_lt(1.5)?;
    let (a, b) = (first.try_where_(&z, 1.0)?, first.try_where_(2.0, &z)?);
    let near_one = (&a - 1.0) * polynomial(&(&a - 1.125), one);
    let near_two = (&b - 2.0) * polynomial(&(&b - 2.0), two);
    let base = first.try_where_(near_one, near_two)?;
    // log Γ(x) = log Γ(x+1) - log x, and the other way round.
    let log = moved.log();
    let near = low.try_where_(&base - &log, &base + &log)?;
    far.try_where_(stirling, near)
}

/// The distance from the nearest whole number.
fn fraction(x: &Tensor) -> Tensor {
    x - x.detach().round()
}

fn lgamma(x: &Tensor) -> Result<Tensor> {
    let below = x.try_lt(0.0)?;
    let size = x.abs();
    let positive = lgamma_positive(&size)?;
    // |Γ(x)·Γ(-x)| = π/|x·sin πx|; at whole numbers there is a pole.
    let part = fraction(x);
    let pole = part.try_eq(0)?.try_bitwise_or(x.isfinite().logical_not())?;
    let usual = below.try_bitwise_and(pole.logical_not())?;
    let part = usual.try_where_(part, 0.5)?;
    let size = usual.try_where_(size, 1.0)?;
    // The logarithms apart: the product of size and sine can underflow.
    let sine = (part * PI).sin().abs();
    let reflected = PI.ln() - size.log() - sine.log() - &positive;
    let y = usual.try_where_(reflected, positive)?;
    below.try_bitwise_and(pole)?.try_where_(f64::INFINITY, y)
}

/// ψ for numbers above zero: moved up by 8, with Σ 1/(x+i) as one quotient, then the asymptotic series.
fn digamma_positive(x: &Tensor) -> Result<Tensor> {
    const SERIES: [f64; 9] = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
        -3617.0 / 8160.0,
        43867.0 / 14364.0,
    ];
    let terms = if x.dtype() == DType::F64 { SERIES.len() } else { 3 };
    let near = x.try_lt(8.0)?;
    let small = near.try_where_(x, 1.0)?;
    let (mut product, mut slope) = (small.clone(), small.ones_like());
    for i in 1..8 {
        let factor = &small + i as f64;
        slope = &slope * &factor + &product;
        product = product * factor;
    }
    let y = near.try_where_(&small + 8.0, x)?;
    let inverse = y.reciprocal();
    let square = inverse.square();
    let series = y.log() - &inverse * 0.5 - &square * polynomial(&square, &SERIES[..terms]);
    near.try_where_(&series - slope / product, &series)
}

fn digamma(x: &Tensor) -> Result<Tensor> {
    let below = x.try_lt(0.0)?;
    // ψ(x) = ψ(1-x) - π/tan πx.
    let part = fraction(x);
    let pole = below.try_bitwise_and(part.try_eq(0)?.try_bitwise_or(x.isinf())?)?;
    let zero = x.try_eq(0.0)?;
    let odd = pole.try_bitwise_or(&zero)?;
    let safe = odd.try_where_(1.0, x)?;
    let positive = digamma_positive(&below.try_bitwise_and(pole.logical_not())?.try_where_(1.0 - &safe, &safe)?)?;
    let turn = below.try_bitwise_and(pole.logical_not())?;
    let angle = turn.try_where_(part, 0.25)? * PI;
    let reflected = &positive - PI * angle.cos() / angle.sin();
    let y = turn.try_where_(reflected, positive)?;
    // At zero the side that its sign says.
    let at_zero = x.signbit().try_where_(x.literal(f64::INFINITY), f64::NEG_INFINITY)?;
    zero.try_where_(at_zero, pole.try_where_(f64::NAN, y)?)
}

impl Tensor {
    /// eˣ-1, exact also near zero: within 4 units in the last place of the dtype.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1e-10f32, f32::NEG_INFINITY]).expm1();
    /// assert_eq!(y.to_vec::<f32>()?, [1e-10, -1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn expm1(&self) -> Tensor {
        rounded(self, expm1)
    }
    /// The inverse of the error function; infinite at -1 and 1, NaN beyond. Within 8 units in the last
    /// place of the dtype.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([0.0f32, 1.0]).erfinv();
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn erfinv(&self) -> Tensor {
        rounded(self, erfinv)
    }
    /// The logarithm of the absolute value of the gamma function; infinite at zero and at negative whole
    /// numbers. Above zero within 8 units in the last place of the dtype, below zero within 16 units of
    /// the last place of 1 or of the result. The gradient is [`digamma`](Self::digamma).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1.0f32, 2.0, 0.0]).lgamma().to_vec::<f32>()?, [0.0, 0.0, f32::INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn lgamma(&self) -> Tensor {
        rounded(self, lgamma)
    }
    /// The derivative of [`lgamma`](Self::lgamma): -∞ at 0, ∞ at -0, NaN at negative whole numbers.
    /// Within 16 units of the last place of 1 or of the result.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32]).digamma().item::<f32>()?;
    /// assert!((y + 0.5772157).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn digamma(&self) -> Tensor {
        rounded(self, digamma)
    }

    fallible! {
        /// √(x²+y²) without overflow or underflow on the way, within 4 units in the last place. Infinite
        /// if one of both is, also beside NaN. At the origin the gradient is 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([3.0f32, 3e30]);
        /// assert_eq!(x.hypot(&Tensor::new([4.0f32, 4e30])).to_vec::<f32>()?, [5.0, 5e30]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn hypot | try_hypot(&self, other: impl Into<Operand>) -> Tensor {
            let pair = pair("hypot", self.into(), other.into())?;
            let (x, y) = (pair.x.as_wide_float().abs(), pair.y.as_wide_float().abs());
            // A NaN counts as the greater, so that it is not lost beside zero.
            let steep = x.try_lt(&y)?.try_bitwise_or(y.isnan())?;
            let (high, low) = (steep.try_where_(&y, &x)?, steep.try_where_(&x, &y)?);
            let infinite = x.isinf().try_bitwise_or(y.isinf())?;
            let safe = high.try_ne(0)?.try_bitwise_and(infinite.logical_not())?;
            let ratio = safe.try_where_(&low, 0.0)?.try_div(safe.try_where_(&high, 1.0)?)?;
            let size = safe.try_where_(&high, 0.0)?.try_mul((ratio.square() + 1.0).sqrt())?;
            infinite.try_where_(f64::INFINITY, size)?.try_cast(pair.x.as_float().dtype())
        }
    }
}
