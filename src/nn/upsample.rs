//! Upsampling and downsampling of images as a layer.

use super::{Layer, Module, unexpected_input};
use crate::error::{Error, Result};
use crate::tensor::{Interpolate, Tensor};

/// [`Tensor::interpolate`] as a layer, over all axes after batch and channels; nearest-neighbour
/// mode unless another is set.
///
/// ```
/// use picograd::nn::{Layer, Upsample};
/// use picograd::tensor::{Interpolate, Tensor};
/// let x = Tensor::zeros([1, 3, 4, 6]);
/// assert_eq!(Upsample::scale(2.0).forward(&x).shape(), [1, 3, 8, 12]);
/// assert_eq!(
///     Upsample::size([5, 7]).mode(Interpolate::Linear).forward(&x).shape(),
///     [1, 3, 5, 7]
/// );
/// ```
#[derive(Module)]
pub struct Upsample {
    #[module(skip)]
    to: To,
    #[module(skip)]
    mode: Interpolate,
    align_corners: bool,
    recompute: bool,
}

enum To {
    Sizes(Vec<usize>),
    Factors(Vec<f64>),
}

/// Sizes or factors: one for all spatial axes, or one per axis.
pub trait PerAxis<T> {
    /// Returns the values as a list.
    fn list(self) -> Vec<T>;
}
impl<T: Copy> PerAxis<T> for T {
    fn list(self) -> Vec<T> {
        vec![self]
    }
}
impl<T: Copy, const N: usize> PerAxis<T> for [T; N] {
    fn list(self) -> Vec<T> {
        self.to_vec()
    }
}

impl Upsample {
    fn new(to: To) -> Upsample {
        Upsample { to, mode: Interpolate::Nearest, align_corners: false, recompute: false }
    }
    /// Interpolates to a size: one number for all spatial axes, or one per axis.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Upsample};
    /// assert_eq!(Upsample::size(9).forward(&Tensor::zeros([1, 1, 4, 4])).shape(), [1, 1, 9, 9]);
    /// ```
    pub fn size(size: impl PerAxis<usize>) -> Upsample {
        Upsample::new(To::Sizes(size.list()))
    }
    /// Scales the input's size: one factor for all spatial axes, or one per axis. A factor that
    /// gives no integral size is an error; [`recompute_scale_factor`](Self::recompute_scale_factor)
    /// allows it.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Upsample};
    /// let x = Tensor::zeros([1, 1, 4, 4]);
    /// assert_eq!(Upsample::scale([2.0, 0.5]).forward(&x).shape(), [1, 1, 8, 2]);
    /// assert!(Upsample::scale(1.3).try_forward(&x).is_err());
    /// ```
    pub fn scale(factor: impl PerAxis<f64>) -> Upsample {
        Upsample::new(To::Factors(factor.list()))
    }
    /// Sets the interpolation mode.
    ///
    /// ```
    /// use picograd::nn::{Layer, Upsample};
    /// use picograd::tensor::{Interpolate, Tensor};
    /// let x = Tensor::new([[[0.0f32, 2.0]]]);
    /// let y = Upsample::scale(2.0).mode(Interpolate::Linear).forward(&x);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.5, 1.5, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn mode(self, mode: Interpolate) -> Upsample {
        Upsample { mode, ..self }
    }
    /// Aligns the corner elements of input and output, in linear mode.
    ///
    /// ```
    /// use picograd::nn::{Layer, Upsample};
    /// use picograd::tensor::{Interpolate, Tensor};
    /// let x = Tensor::new([[[0.0f32, 2.0]]]);
    /// let y = Upsample::size(3).mode(Interpolate::Linear).align_corners().forward(&x);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn align_corners(self) -> Upsample {
        Upsample { align_corners: true, ..self }
    }
    /// Rounds sizes down and recomputes the factors from the sizes, as PyTorch's option of this
    /// name.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Upsample};
    /// let layer = Upsample::scale(1.3).recompute_scale_factor();
    /// assert_eq!(layer.forward(&Tensor::zeros([1, 1, 4])).shape(), [1, 1, 5]);
    /// ```
    pub fn recompute_scale_factor(self) -> Upsample {
        Upsample { recompute: true, ..self }
    }

    fn sizes(&self, spatial: &[usize]) -> Result<Vec<usize>> {
        let n = spatial.len();
        let given = match &self.to {
            To::Sizes(list) => list.len(),
            To::Factors(list) => list.len(),
        };
        if given != 1 && given != n {
            let msg = format!(
                "{given} sizes or factors for {n} spatial axes; give one for all, or one for each"
            );
            return Err(Error::Shape { op: "Upsample", msg });
        }
        match &self.to {
            To::Sizes(list) => Ok((0..n).map(|i| list[i % given]).collect()),
            To::Factors(list) => (0..n).map(|i| self.scaled(spatial[i], list[i % given])).collect(),
        }
    }
    fn scaled(&self, size: usize, factor: f64) -> Result<usize> {
        let scaled = size as f64 * factor;
        let wrong = |msg: String| Err(Error::Shape { op: "Upsample", msg });
        if !(scaled.is_finite() && scaled >= 1.0 && scaled < u32::MAX as f64) {
            return wrong(format!(
                "a factor of {factor} scales size {size} to {scaled}; expected 1 to 2³²"
            ));
        }
        if scaled.fract() != 0.0 && !self.recompute {
            return wrong(format!(
                "factor {factor} gives no integer size of {size}; use recompute_scale_factor() \
                 or size(…)"
            ));
        }
        Ok(scaled.floor() as usize)
    }
}

impl Layer for Upsample {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.ndim() < 3 {
            return unexpected_input(
                "Upsample",
                "[batch, channels, …] with one spatial axis or more",
                x,
            );
        }
        x.try_interpolate(self.sizes(&x.shape()[2..])?, self.mode, self.align_corners)
    }
}
