//! Random numbers whose distribution is given by a tensor. They have no gradient.

use super::create::iota;
use super::random::uniform;
use crate::error::Result;
use crate::ir::Fold;
use crate::shape::Dims;
use crate::tensor::{Shape, Tensor};

/// Rate from which rejection is used instead of inversion.
const REJECTION: f64 = 10.0;
/// Terms of the inversion: at a rate of 10 a count of 40 or more has a probability of 1e-12, and
/// uniform numbers are multiples of 6e-8.
const TERMS: usize = 40;
/// Attempts of the rejection, each of which succeeds with a probability of at least 0.85: all fail
/// once in 1e13 draws.
const TRIES: usize = 16;

fn uniform_like(like: &Tensor, shape: &Dims) -> Result<Tensor> {
    uniform(&Shape::from(shape), like.device())?.try_cast(like.dtype())
}

/// Returns the number of partial sums of the probabilities below a uniform number.
fn by_inversion(rate: &Tensor) -> Result<Tensor> {
    let u = uniform_like(rate, &rate.dims())?.contiguous();
    let mut term = (-rate).exp();
    let mut sum = term.clone();
    let mut count = rate.zeros_like();
    for k in 1..=TERMS {
        count = count.try_add(u.try_ge(&sum)?.try_cast(rate.dtype())?)?;
        term = term.try_mul(rate)? / k as f64;
        sum = sum.try_add(&term)?;
    }
    Ok(count.contiguous())
}

/// Logarithm of the probability of a count, without the cancellation of λ, k·log λ and log k!
/// (Loader, 2000): -½log(2πk) - δ(k) - λ·φ((k-λ)/λ) with φ(t) = (1+t)log(1+t) - t.
fn log_probability(k: &Tensor, rate: &Tensor) -> Result<Tensor> {
    let none = k.try_le(0.0)?;
    let n = none.try_where_(1.0, k)?;
    let t = n.try_sub(rate)?.try_div(rate)?;
    let small = t.abs().try_lt(0.1)?;
    let near = small.try_where_(&t, 0.0)?;
    // t²/2 - t³/6 + t⁴/12 - …
    let series = (2..12).rev().fold(t.literal(0.0), |p, j| {
        let sign = if j % 2 == 0 { 1.0 } else { -1.0 };
        p * &near + sign / (j * (j - 1)) as f64
    });
    let series = series.try_mul(near.square())?;
    let far = small.try_where_(0.5, &t)?;
    let far = (&far + 1.0) * far.log1p() - &far;
    let deviance = rate.try_mul(small.try_where_(series, far)?)?;
    // Stirling's remainder as a continued fraction.
    let rest = 1.0 / (&n * 12.0 + 2.0 / (&n * 5.0 + 53.0 / (&n * 42.0)));
    let some = -(&n * std::f64::consts::TAU).log() * 0.5 - rest - deviance;
    none.try_where_(-rate, some)
}

/// Transformed rejection (Hörmann, 1993, PTRS): several attempts in parallel, of which the first
/// success is taken.
fn by_rejection(rate: &Tensor) -> Result<Tensor> {
    let shape: Dims = [TRIES].into_iter().chain(rate.dims()).collect();
    let (u, v) = (uniform_like(rate, &shape)? - 0.5, 1.0 - uniform_like(rate, &shape)?);
    let b = rate.sqrt() * 2.53 + 0.931;
    let a = &b * 0.02483 - 0.059;
    let alpha = 1.1328 / (&b - 3.4) + 1.1239;
    let edge = 0.5 - u.abs();
    let safe = edge.try_maximum(1e-7)?;
    let k = ((&a * 2.0 / &safe + &b) * &u + rate + 0.43).floor();
    let inside =
        k.try_ge(0.0)?.try_bitwise_and(edge.try_ge(0.013)?.try_bitwise_or(v.try_le(&edge)?)?)?;
    let height = (v * alpha).log() - (&a / safe.square() + &b).log();
    let accepted = inside.try_bitwise_and(height.try_le(log_probability(&k, rate)?)?)?;
    // Stored, so that the reductions do not rematerialize the attempts.
    let tries = accepted.try_where_(&k, -1.0)?.contiguous();
    let order = iota(TRIES).try_reshape([vec![TRIES], vec![1; rate.ndim()]].concat())?;
    let first = tries.try_ge(0.0)?.try_where_(&order, TRIES as i64)?.reduce_axes(Fold::Min, 0)?;
    // At most one attempt has the index of the first success.
    let chosen = order.try_eq(&first)?.try_where_(&tries, 0.0)?.reduce_axes(Fold::Add, 0)?;
    first.try_lt(TRIES as i64)?.try_where_(chosen, rate.floor())
}

impl Tensor {
    fallible! {
        /// Bernoulli samples 0 and 1 in the dtype of this tensor, whose elements are the
        /// probabilities of 1. Elements from 1 on always give 1; elements up to 0 and NaN give 0.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([0.0f32, 1.0]).bernoulli().to_vec::<f32>()?, [0.0, 1.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn bernoulli | try_bernoulli(&self) -> Tensor {
            let u = self.match_extents(uniform(&Shape::from(&self.dims()), self.device())?);
            u.try_lt(self.as_wide_float().detach())?.try_cast(self.as_float().dtype())
        }

        /// Poisson samples with the rates of this tensor, in its dtype. A rate that is negative,
        /// infinite or NaN gives NaN.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let counts = Tensor::full([1000], 4.0f32).poisson();
        /// let mean = counts.mean(..).item::<f32>()?;
        /// assert!((mean - 4.0).abs() < 0.5);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn poisson | try_poisson(&self) -> Tensor {
            self.require_static("poisson", 0..self.ndim())?;
            let rate = self.as_wide_float().detach();
            let known = rate.try_ge(0.0)?.try_bitwise_and(rate.try_lt(f64::INFINITY)?)?;
            let large = rate.try_ge(REJECTION)?;
            let small = large.try_bitwise_or(known.logical_not())?.try_where_(1.0, &rate)?;
            let few = by_inversion(&small)?;
            let large_rate = large.try_bitwise_and(&known)?.try_where_(&rate, REJECTION)?;
            let many = by_rejection(&large_rate)?;
            let counts = large.try_where_(many, few)?;
            known.try_where_(counts, f64::NAN)?.try_cast(self.as_float().dtype())
        }
    }
}
