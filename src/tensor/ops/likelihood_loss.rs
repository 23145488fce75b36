//! Negative log likelihoods of Poisson and normal distributions. Narrow floats are computed in
//! `f32` and rounded once. Options and defaults are PyTorch's.

use crate::tensor::{Reduction, Tensor};
use std::f64::consts::PI;

/// Options of [`Tensor::poisson_nll_loss`]. Converts from a [`Reduction`].
///
/// ```
/// use picograd::{Tensor, tensor::PoissonNll};
/// let (rate, count) = (Tensor::new([2.0f32]), Tensor::new([0.0f32]));
/// let loss = rate.poisson_nll_loss(&count, PoissonNll::new().log_input(false).full());
/// assert_eq!(loss.item::<f32>()?, 2.0);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoissonNll {
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
}

setters! { PoissonNll;
    /// Logarithms of rates as input, no constant term, eps 1e-8, mean.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::PoissonNll};
    /// let x = Tensor::new([0.0f32]);
    /// assert_eq!(x.poisson_nll_loss(&x, PoissonNll::new()).item::<f32>()?, 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new = PoissonNll { log_input: true, full: false, eps: 1e-8, reduction: Reduction::Mean };
    /// Selects whether the input holds logarithms of rates, or rates.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::PoissonNll};
    /// let (x, t) = (Tensor::new([3.0f32]), Tensor::new([0.0f32]));
    /// assert_eq!(x.poisson_nll_loss(&t, PoissonNll::new().log_input(false)).item::<f32>()?, 3.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    log_input(log_input: bool) log_input = log_input;
    /// Adds Stirling's approximation of the log factorial for targets above 1.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::PoissonNll};
    /// let (x, t) = (Tensor::new([0.0f32]), Tensor::new([5.0f32]));
    /// let loss = x.poisson_nll_loss(&t, PoissonNll::new().full()).item::<f32>()?;
    /// assert!((loss - 1.0 - 120f32.ln()).abs() < 0.02);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    full() full = true;
    /// Constant added to a rate before its logarithm.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::PoissonNll};
    /// let (x, t) = (Tensor::new([0.0f32]), Tensor::new([1.0f32]));
    /// let how = PoissonNll::new().log_input(false).eps(1.0);
    /// assert_eq!(x.poisson_nll_loss(&t, how).item::<f32>()?, 0.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    eps(eps: f64) eps = eps;
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{PoissonNll, Reduction, Tensor};
    /// let x = Tensor::zeros([3]);
    /// let y = x.poisson_nll_loss(&x, PoissonNll::new().reduction(Reduction::None));
    /// assert_eq!(y.shape(), [3]);
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
}

/// Options of [`Tensor::gaussian_nll_loss`]. Converts from a [`Reduction`].
///
/// ```
/// use picograd::tensor::{GaussianNll, Reduction, Tensor};
/// let (x, t, var) = (Tensor::zeros([2]), Tensor::ones([2]), Tensor::ones([2]));
/// let how = GaussianNll::new().full().reduction(Reduction::Sum);
/// let loss = x.gaussian_nll_loss(&t, &var, how).item::<f32>()?;
/// assert!((loss - 1.0 - std::f32::consts::TAU.ln()).abs() < 1e-5);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GaussianNll {
    full: bool,
    eps: f64,
    reduction: Reduction,
}

setters! { GaussianNll;
    /// No constant term, eps 1e-6, mean.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GaussianNll};
    /// let (x, var) = (Tensor::zeros([2]), Tensor::ones([2]));
    /// assert_eq!(x.gaussian_nll_loss(&x, &var, GaussianNll::new()).item::<f32>()?, 0.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new = GaussianNll { full: false, eps: 1e-6, reduction: Reduction::Mean };
    /// Adds the constant `log(2π)/2`.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GaussianNll};
    /// let (x, var) = (Tensor::zeros([2]), Tensor::ones([2]));
    /// let loss = x.gaussian_nll_loss(&x, &var, GaussianNll::new().full()).item::<f32>()?;
    /// assert!((loss - 0.9189385).abs() < 1e-6);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    full() full = true;
    /// Lower bound of variances.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::GaussianNll};
    /// let (x, var) = (Tensor::zeros([2]), Tensor::zeros([2]));
    /// assert_eq!(x.gaussian_nll_loss(&x, &var, GaussianNll::new().eps(1.0)).item::<f32>()?, 0.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    eps(eps: f64) eps = eps;
    /// Sets the reduction.
    ///
    /// ```
    /// use picograd::tensor::{GaussianNll, Reduction, Tensor};
    /// let x = Tensor::ones([3]);
    /// let each = x.gaussian_nll_loss(&x, &x, GaussianNll::new().reduction(Reduction::None));
    /// assert_eq!(each.shape(), [3]);
    /// ```
    reduction(reduction: Reduction) reduction = reduction;
}

impl Tensor {
    fallible! {
        /// Poisson negative log likelihood of counts, of these rates or logarithms of rates:
        /// `exp(x) - target·x`, without the log factorial unless [`PoissonNll::full`] is set.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, t) = (Tensor::new([0.0f32, 1.0]), Tensor::new([2.0f32, 0.0]));
        /// let each = x.poisson_nll_loss(&t, Reduction::None).to_vec::<f32>()?;
        /// assert!(each[0] == 1.0 && (each[1] - 1f32.exp()).abs() < 1e-6);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn poisson_nll_loss | try_poisson_nll_loss(
            &self, target: &Tensor, options: impl Into<PoissonNll>,
        ) -> Tensor {
            in_wide_dtype!(self.try_poisson_nll_loss(target, options));
            let (options, x, t) = (options.into(), self.as_wide_float(), self.target(target)?);
            let mut each = match options.log_input {
                true => x.exp().try_sub(t.try_mul(&x)?)?,
                false => x.try_sub(t.try_mul((&x + options.eps).log())?)?,
            };
            if options.full {
                let large = t.try_gt(1.0)?;
                // Replaced targets have a finite logarithm and gradient.
                let t = large.try_where_(t, 1.0)?;
                let stirling =
                    t.try_mul(t.log())?.try_sub(&t)?.try_add((&t * (2.0 * PI)).log() * 0.5)?;
                each = each.try_add(large.try_where_(stirling, 0.0)?)?;
            }
            self.reduced(&each, options.reduction)
        }

        /// Gaussian negative log likelihood of targets under these means and the variances `var`:
        /// `(log var + (x - target)²/var)/2`. There is a variance per element, or one per vector of
        /// the last axis, with or without an axis of size 1. Variances are at least eps, and keep
        /// their gradient there.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Reduction};
        /// let (x, t) = (Tensor::zeros([1, 2]), Tensor::new([[2.0f32, 0.0]]));
        /// let each = x.gaussian_nll_loss(&t, &Tensor::new([1.0f32]), Reduction::None);
        /// assert_eq!(each.to_vec::<f32>()?, [2.0, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn gaussian_nll_loss | try_gaussian_nll_loss(
            &self, target: &Tensor, var: &Tensor, options: impl Into<GaussianNll>,
        ) -> Tensor {
            in_wide_dtype!(self.try_gaussian_nll_loss(target, var, options));
            let (options, x, t) = (options.into(), self.as_wide_float(), self.target(target)?);
            if options.eps.is_nan() || options.eps <= 0.0 {
                return shape_error!("expected eps above 0, got {}", options.eps);
            }
            let (dims, given) = (self.dims(), var.dims());
            let lead = &dims[..dims.len().saturating_sub(1)];
            let var = if given == dims || (!dims.is_empty() && given[..] == [lead, &[1]].concat()) {
                var.clone()
            } else if given[..] == *lead {
                var.try_unsqueeze(-1)?
            } else {
                return shape_error!(
                    "expected variances of the shape of the means {dims:?}, or with the last axis \
                     of size 1 or removed, got {given:?}"
                );
            };
            // The gradient passes a variance at the bound, so that it can grow again.
            let eps = options.eps;
            let var = Tensor::call(
                &[&var.try_cast(x.dtype())?],
                |v| v[0].try_maximum(eps),
                |upstream, _| Ok(vec![upstream.clone()]),
            )?;
            let mut each = var.log().try_add(x.try_sub(t)?.square().try_div(&var)?)? * 0.5;
            if options.full {
                each = each + 0.5 * (2.0 * PI).ln();
            }
            self.reduced(&each, options.reduction)
        }
    }
}
