//! Special functions: expm1, hypot, erfinv, lgamma and digamma. Narrow floats are computed in `f32`
//! and rounded once. Gradients are those of the pieces, except that the gradient of `lgamma` is
//! `digamma`; they are finite wherever the true gradient is. `scripts/special.py` computes the
//! coefficients.

use super::elementwise::pair;
use super::inverse::{rounded, rounded_wide, with_slope};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::broadcast::Operand;
use std::f64::consts::PI;

/// Relative error 6.4e-9, around 2.5.
const ERFINV_F32: [f64; 10] = [
    1.5014093604503287,
    0.24664027905463662,
    -0.004177392875203149,
    -0.001252726391773229,
    0.00021834938623976644,
    -4.9724196894547514e-06,
    -3.4639852676333717e-06,
    4.6813134805534123e-07,
    2.3335967195708105e-08,
    -8.931925970244222e-09,
];
/// Relative error 2.2e-8, around 3.218033988749895.
const ERFINV_ROOT_F32: [f64; 10] = [
    3.0517570455246177,
    1.0049037618226178,
    0.005749551286084498,
    -0.004087736780362341,
    0.0027503989546096346,
    -0.0018778606605616033,
    0.001111576806093357,
    -0.00036293083207893594,
    -9.875248444953246e-05,
    9.431827465736428e-05,
];
/// Relative error 4.6e-18, around 3.0.
const ERFINV_F64: [f64; 25] = [
    1.6235420064648298,
    0.2416304041661583,
    -0.005738135221005623,
    -0.0008361817769094964,
    0.00019506132441192065,
    -1.2716422638199853e-05,
    -1.748002092989648e-06,
    4.499854247615572e-07,
    -2.368873021118504e-08,
    -5.46717846812532e-09,
    1.110799899853498e-09,
    -3.1425785137828936e-11,
    -1.732952481239926e-11,
    2.6990332675037463e-12,
    6.449389855187572e-15,
    -5.294269265981523e-14,
    6.293734713664434e-15,
    2.7567170138166916e-16,
    -1.5731123503391285e-16,
    1.2748590953505583e-17,
    1.6568902070326583e-18,
    -3.860192377004801e-19,
    5.9949571622188915e-21,
    4.22831964711441e-21,
    -2.9904502432726886e-22,
];
/// Relative error 2.3e-19, around 3.224744871391589.
const ERFINV_ROOT_F64: [f64; 23] = [
    3.0585011531198494,
    1.0049803395892911,
    0.005664938731675933,
    -0.0040139756396035935,
    0.0027139513636038064,
    -0.0018375017247990733,
    0.0010163876984153291,
    -0.0003582320627971037,
    7.119451416248349e-06,
    8.066366605554483e-05,
    -5.0641287142906e-05,
    1.1369542762639126e-05,
    4.327908999094084e-06,
    -4.5099508282010695e-06,
    1.4695326403430713e-06,
    8.528072855823578e-08,
    -2.9940353228687735e-07,
    1.3641063246654146e-07,
    -1.7810920489132252e-08,
    -1.689576492833929e-08,
    1.107804253711855e-08,
    -7.867696359259365e-10,
    -9.433010833705193e-10,
];
/// Relative error 1.5e-17, around 5.05.
const ERFINV_TAIL_F64: [f64; 19] = [
    4.90042105144364,
    1.010285017597772,
    -0.00016985809149340308,
    -0.0002003120066802735,
    7.124031542245362e-05,
    -1.837453613912565e-05,
    4.193853753803148e-06,
    -9.070860240222449e-07,
    2.0161905521548853e-07,
    -5.493197748316719e-08,
    2.1821840910471057e-08,
    -1.120746129974107e-08,
    5.805888104528111e-09,
    -2.6311132048940673e-09,
    1.0483309310240927e-09,
    -3.868291027600667e-10,
    7.745384761724364e-11,
    2.8907082659821915e-11,
    -1.5439278197208344e-11,
];
/// Relative error 1.9e-9, around 1.125.
const LGAMMA_1_F32: [f64; 11] = [
    -0.48018547300831665,
    0.7335424952474371,
    -0.3158060560936815,
    0.18866169193276822,
    -0.12817167242521532,
    0.09312535822208208,
    -0.07030617810025026,
    0.05284956520115415,
    -0.041638110744238725,
    0.04474789788060533,
    -0.03631415400950727,
];
/// Relative error 5.3e-10, around 2.0.
const LGAMMA_2_F32: [f64; 10] = [
    0.4227843350004583,
    0.3224670334689425,
    -0.0673522814721006,
    0.020580799471518252,
    -0.007386174155633413,
    0.002890795321559696,
    -0.0011858600344983208,
    0.0005065171429518161,
    -0.0002538170956727826,
    0.00011347281994554691,
];
/// Relative error 3.7e-18, around 1.125.
const LGAMMA_1_F64: [f64; 22] = [
    -0.48018547300831665,
    0.7335424776996944,
    -0.315806041645415,
    0.18866417564909105,
    -0.12817371733791294,
    0.0930276677801276,
    -0.0702257572215238,
    0.05439836599857146,
    -0.04291278598738227,
    0.0343157589734731,
    -0.027733275080192674,
    0.02260570864601384,
    -0.0185591507083317,
    0.015325879912428874,
    -0.012687275053521373,
    0.010576526854555386,
    -0.009135332231103828,
    0.007675417569197702,
    -0.0049631378584356995,
    0.004180958153536031,
    -0.008038306062609522,
    0.006837511584303814,
];
/// Relative error 3.0e-19, around 2.0.
const LGAMMA_2_F64: [f64; 20] = [
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319814,
    0.02058080842778457,
    -0.0073855510286681535,
    0.002890510330738737,
    -0.0011927539120010226,
    0.0005096695248853096,
    -0.00022315475074520367,
    9.945750909889392e-05,
    -4.4926351103833334e-05,
    2.050726741605779e-05,
    -9.438458716242811e-06,
    4.374374916915131e-06,
    -2.0449201467015115e-06,
    9.578663334114758e-07,
    -4.303558760359961e-07,
    2.0304806751615227e-07,
    -1.3412819758517287e-07,
    6.379047507619774e-08,
];

/// Polynomial Σ c·t^k.
pub(super) fn polynomial(t: &Tensor, coefficients: &[f64]) -> Tensor {
    let (last, rest) = coefficients.split_last().expect("a polynomial");
    rest.iter().rev().fold(t.literal(*last), |p, &c| p * t + c)
}

/// Taylor series for |x| < 1, where `exp(x) - 1` would cancel. The branch that is not taken has a
/// harmless argument.
pub(super) fn expm1(x: &Tensor) -> Result<Tensor> {
    let near = x.abs().try_lt(1.0)?;
    let small = near.try_where_(x, 0.0)?;
    // 1/2!, 1/3!, … down to the precision of the dtype.
    let terms = if x.dtype() == DType::F64 { 19 } else { 12 };
    let series: Vec<f64> = (2..=terms)
        .scan(1.0, |f, k| {
            *f *= k as f64;
            Some(1.0 / *f)
        })
        .collect();
    // A product keeps -0.
    let series = &small * (&small * polynomial(&small, &series) + 1.0);
    near.try_where_(series, near.try_where_(1.0, x)?.exp() - 1.0)
}

/// x·P(-log(1-x²)); the logarithm of the product (1-x)(1+x) is accurate near 1.
fn erfinv(x: &Tensor) -> Result<Tensor> {
    let inside = x.abs().try_lt(1.0)?;
    let safe = inside.try_where_(x, 0.0)?;
    let w = -((1.0 - &safe) * (&safe + 1.0)).log();
    let piece =
        |w: &Tensor, low: f64, high: f64, p: &[f64]| polynomial(&(w - (low + high) / 2.0), p);
    let double = x.dtype() == DType::F64;
    let limit = if double { 6.0 } else { 5.0 };
    let central = w.try_lt(limit)?;
    let near = central.try_where_(&w, 0.0)?;
    let root = central.try_where_(limit, &w)?.sqrt();
    let factor = if double {
        let tail = root.try_gt(4.0)?;
        let (a, b) = (tail.try_where_(4.0, &root)?, tail.try_where_(&root, 4.0)?);
        let far = tail.try_where_(
            piece(&b, 4.0, 6.1, &ERFINV_TAIL_F64),
            piece(&a, 6f64.sqrt(), 4.0, &ERFINV_ROOT_F64),
        )?;
        central.try_where_(piece(&near, 0.0, 6.0, &ERFINV_F64), far)?
    } else {
        central.try_where_(
            piece(&near, 0.0, 5.0, &ERFINV_F32),
            piece(&root, 5f64.sqrt(), 4.2, &ERFINV_ROOT_F32),
        )?
    };
    // Infinite at 1 and -1, NaN beyond. As a product, the gradient is likewise.
    let end = x.abs().try_eq(1.0)?.try_where_(x.literal(f64::INFINITY), f64::NAN)?;
    let end = x.try_mul(inside.try_where_(1.0, end)?)?;
    inside.try_where_(safe.try_mul(factor)?, end)
}

/// Σ B₂ₖ/(2k(2k-1))·x^(1-2k), the remainder of Stirling's formula for log Γ from 8 on.
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

/// log Γ for positive numbers: polynomials around its zeros 1 and 2, to which 2.5 to 8 is shifted
/// down and what is below 0.75 up, and Stirling's formula from 8 on.
fn lgamma_positive(x: &Tensor) -> Result<Tensor> {
    let double = x.dtype() == DType::F64;
    let (one, two): (&[f64], &[f64]) =
        if double { (&LGAMMA_1_F64, &LGAMMA_2_F64) } else { (&LGAMMA_1_F32, &LGAMMA_2_F32) };
    let far = x.try_ge(8.0)?;
    let big = far.try_where_(x, 8.0)?;
    // (x-½)(log x - 1) stays infinite at infinity, where (x-½)·log x - x would be NaN.
    let stirling = (&big - 0.5) * (big.log() - 1.0)
        + (0.5 * std::f64::consts::TAU.ln() - 0.5)
        + stirling_rest(&big);
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
    // log Γ(x) = log Γ(x+1) - log x, and vice versa.
    let log = moved.log();
    let near = low.try_where_(&base - &log, &base + &log)?;
    far.try_where_(stirling, near)
}

/// Difference to the nearest integer.
fn fraction(x: &Tensor) -> Tensor {
    x - x.detach().round()
}

fn lgamma(x: &Tensor) -> Result<Tensor> {
    let below = x.try_lt(0.0)?;
    let size = x.abs();
    let positive = lgamma_positive(&size)?;
    // |Γ(x)·Γ(-x)| = π/|x·sin πx|; integers are poles.
    let part = fraction(x);
    let pole = part.try_eq(0)?.try_bitwise_or(x.isfinite().logical_not())?;
    let usual = below.try_bitwise_and(pole.logical_not())?;
    let part = usual.try_where_(part, 0.5)?;
    let size = usual.try_where_(size, 1.0)?;
    // Separate logarithms, because the product of magnitude and sine can underflow.
    let sine = (part * PI).sin().abs();
    let reflected = PI.ln() - size.log() - sine.log() - &positive;
    let y = usual.try_where_(reflected, positive)?;
    below.try_bitwise_and(pole)?.try_where_(f64::INFINITY, y)
}

/// ψ for positive numbers: shifted up by 8, with Σ 1/(x+i) as one quotient, then the asymptotic
/// series.
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
    let positive = digamma_positive(
        &below.try_bitwise_and(pole.logical_not())?.try_where_(1.0 - &safe, &safe)?,
    )?;
    let turn = below.try_bitwise_and(pole.logical_not())?;
    let angle = turn.try_where_(part, 0.25)? * PI;
    let reflected = &positive - PI * angle.cos() / angle.sin();
    let y = turn.try_where_(reflected, positive)?;
    // At zero the sign selects the side; as a quotient, the gradient is infinite. At other poles
    // value and gradient are NaN.
    let at_zero = x.literal(-1.0).try_div(zero.try_where_(x, 1.0)?)?;
    let at_pole = x.try_mul(pole.try_where_(x.literal(f64::NAN), 1.0)?)?;
    zero.try_where_(at_zero, pole.try_where_(at_pole, y)?)
}

impl Tensor {
    /// eˣ-1, accurate near zero: within 4 ulp of the dtype.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1e-10f32, f32::NEG_INFINITY]).expm1();
    /// assert_eq!(y.to_vec::<f32>()?, [1e-10, -1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn expm1(&self) -> Tensor {
        rounded_wide(self, expm1)
    }
    /// Inverse error function; infinite at -1 and 1, NaN beyond. Within 8 ulp of the dtype.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([0.0f32, 1.0]).erfinv().to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn erfinv(&self) -> Tensor {
        rounded_wide(self, erfinv)
    }
    /// Logarithm of the absolute value of the gamma function; infinite at zero and negative
    /// integers. Within 8 ulp of the dtype above zero, and within 16 ulp of 1 or of the result
    /// below. The gradient is [`digamma`](Self::digamma).
    ///
    /// ```
    /// use picograd::Tensor;
    /// let y = Tensor::new([1.0f32, 2.0, 0.0]).lgamma();
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, f32::INFINITY]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn lgamma(&self) -> Tensor {
        rounded(self, |x| with_slope(x, lgamma, digamma))
    }
    /// Derivative of [`lgamma`](Self::lgamma): -∞ at 0, ∞ at -0, NaN at negative integers. Within
    /// 16 ulp of 1 or of the result.
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
        /// √(x²+y²) without intermediate overflow or underflow, within 4 ulp. Infinite if one
        /// operand is, even if the other is NaN. The gradient at the origin is 0.
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
            // NaN counts as the larger, so that it propagates.
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
