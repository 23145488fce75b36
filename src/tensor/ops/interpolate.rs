//! Resizing of the last axes, axis by axis.

use super::create::{index_dtype, iota};
use super::gather::select_at;
use super::movement::spliced;
use super::resample::{Filter, antialiased, cubic};
use crate::error::Result;
use crate::shape::checked_numel;
use crate::tensor::{Sizes, Tensor};

/// Mode of [`Tensor::interpolate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpolate {
    /// Nearest element, by the floor of the scaled index.
    Nearest,
    /// Nearest element, by the centers of elements.
    NearestExact,
    /// Linear interpolation along each axis: linear, bilinear, trilinear.
    Linear,
    /// Cubic interpolation along each axis, with the coefficient -0.75: bicubic.
    Cubic,
    /// [`Interpolate::Linear`] with a filter that is widened when the size shrinks.
    LinearAntialias,
    /// [`Interpolate::Cubic`] with the coefficient -0.5 and a filter that is widened when the size
    /// shrinks.
    CubicAntialias,
}

impl Interpolate {
    /// Returns true if the mode averages elements and therefore returns floats.
    fn averages(self) -> bool {
        !matches!(self, Interpolate::Nearest | Interpolate::NearestExact)
    }
}

/// Resizes one axis of `x`.
fn resize_axis(
    x: &Tensor,
    axis: usize,
    size: usize,
    mode: Interpolate,
    align: bool,
) -> Result<Tensor> {
    let n = x.dims()[axis];
    match mode {
        Interpolate::Cubic => return cubic(x, axis, size, align),
        Interpolate::LinearAntialias => {
            return antialiased(x, axis, size, align, Filter::Triangle);
        }
        Interpolate::CubicAntialias => return antialiased(x, axis, size, align, Filter::Cubic),
        Interpolate::Nearest | Interpolate::NearestExact | Interpolate::Linear => {}
    }
    // Coordinates are integer fractions, so that rounding cannot select the wrong neighbour.
    let most = (n as i128 + 1).checked_mul(size as i128 + 1).and_then(|n| n.checked_mul(2));
    let Some(most) = most.and_then(|most| i64::try_from(most).ok()) else {
        return wrong_shape!(
            "interpolate",
            "from {n} to {size} elements: the coordinates overflow an index"
        );
    };
    checked_numel("interpolate", &spliced(&x.dims(), axis..axis + 1, &[size]))?;
    let i = iota(size).try_cast(index_dtype(most))?;
    let (above, below) = match mode {
        Interpolate::Nearest => (i * n, size),
        Interpolate::NearestExact => ((i * 2 + 1) * n, 2 * size),
        Interpolate::Linear if align => (i * n.saturating_sub(1), (size - 1).max(1)),
        _ => (((i * 2 + 1) * n - size).try_maximum(0)?, 2 * size),
    };
    let at = |place: &Tensor| select_at("interpolate", x, place, axis);
    let first = above.try_idiv(below)?.try_minimum(n - 1)?;
    if mode != Interpolate::Linear {
        return at(&first);
    }
    let share = above.try_modulo(below)?.try_cast(x.dtype())?.try_div(below as f64)?;
    let share = share.line_along(axis, x.ndim())?;
    let (a, b) = (at(&first)?, at(&(&first + 1).try_minimum(n - 1)?)?);
    // With weight 0 the other element is not read, because it may be infinite.
    let both = a.try_mul(1.0 - &share)?.try_add(b.try_mul(&share)?)?;
    share.try_eq(0)?.try_where_(a, both)
}

impl Tensor {
    fallible! {
        /// Resizes the last axes, one for each given size. With `align_corners` the centers of the
        /// first and last elements are kept; otherwise the borders. All modes but the nearest ones
        /// convert integers to floats.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Interpolate};
        /// let x = Tensor::new([[[1.0f32, 2.0, 4.0]]]);
        /// let z = x.interpolate(5, Interpolate::Linear, true);
        /// assert_eq!(z.to_vec::<f32>()?, [1.0, 1.5, 2.0, 3.0, 4.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn interpolate | try_interpolate(
            &self, size: impl Into<Sizes>, mode: Interpolate, align_corners: bool,
        ) -> Tensor {
            in_wide_dtype!(self.try_interpolate(size, mode, align_corners));
            let (size, dims) = (size.into().shape("interpolate")?, self.dims());
            if size.len() > dims.len() {
                let n = dims.len();
                return shape_error!("expected at most {n} sizes for {dims:?}, got {size:?}");
            }
            if align_corners && !mode.averages() {
                return shape_error!("align_corners requires a linear or cubic mode, got {mode:?}");
            }
            let first = dims.len() - size.len();
            if dims[first..].contains(&0) || size.contains(&0) {
                return shape_error!("from {dims:?} to {size:?}: sizes must not be 0");
            }
            let mut x = if mode.averages() { self.as_wide_float() } else { self.copy() };
            for (i, &n) in size.iter().enumerate() {
                x = resize_axis(&x, first + i, n, mode, align_corners)?;
            }
            if mode.averages() { x.try_cast(self.as_float().dtype()) } else { Ok(x) }
        }
    }
}
