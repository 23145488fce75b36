//! Other sizes of the same picture. In comes a tensor and sizes for its last axes; out comes one
//! whose elements are read, or mixed from two neighbours, axis by axis.

use super::create::iota;
use super::gather::select_at;
use super::resample;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{Dims, Movement, checked_numel};
use crate::tensor::{Sizes, Tensor, autocast, wrong_shape};

/// How [`Tensor::interpolate`] makes an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interpolate {
    /// The element at or before the place, where places begin at the borders of elements.
    Nearest,
    /// The nearest element, where places are the middles of elements.
    NearestExact,
    /// A mix of the two neighbours along each axis: linear, bilinear, trilinear.
    Linear,
    /// A cubic through four neighbours along each axis, with the coefficient -0.75: bicubic.
    Cubic,
    /// As [`Interpolate::Linear`], with the filter widened when the size shrinks, so that every
    /// element counts.
    LinearAntialias,
    /// As [`Interpolate::Cubic`] with the coefficient -0.5 and a filter that is widened when the
    /// size shrinks.
    CubicAntialias,
}

impl Interpolate {
    /// Whether elements are mixed, which makes floats of integers.
    fn mixes(self) -> bool {
        !matches!(self, Interpolate::Nearest | Interpolate::NearestExact)
    }
}

/// `size` elements of one axis of `x`.
fn resize_axis(
    x: &Tensor,
    axis: usize,
    size: usize,
    mode: Interpolate,
    align: bool,
) -> Result<Tensor> {
    let (n, rank) = (x.dims()[axis], x.ndim());
    match mode {
        Interpolate::Cubic => return resample::cubic(x, axis, size, align),
        Interpolate::LinearAntialias => {
            return resample::antialiased(x, axis, size, align, resample::Filter::Triangle);
        }
        Interpolate::CubicAntialias => {
            return resample::antialiased(x, axis, size, align, resample::Filter::Cubic);
        }
        Interpolate::Nearest | Interpolate::NearestExact | Interpolate::Linear => {}
    }
    // Places are fractions of whole numbers, so that no rounding can choose the wrong neighbour.
    let most =
        (n as i128 + 1).checked_mul(size as i128 + 1).and_then(|places| places.checked_mul(2));
    let Some(most) = most.and_then(|most| i64::try_from(most).ok()) else {
        return wrong_shape(
            "interpolate",
            format!("from {n} to {size} elements: the places between are more than can be counted"),
        );
    };
    let sizes: Dims =
        x.dims().iter().enumerate().map(|(a, d)| if a == axis { size } else { *d }).collect();
    checked_numel("interpolate", &sizes)?;
    let wide = i32::try_from(most).is_err();
    let i = iota(size).try_cast(if wide { DType::I64 } else { DType::I32 })?;
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
    let share =
        share.movement(Movement::reshape((0..rank).map(|a| if a == axis { size } else { 1 })))?;
    let (a, b) = (at(&first)?, at(&(&first + 1).try_minimum(n - 1)?)?);
    // At a share of 0 there is one element alone: the other may be infinite.
    let both = a.try_mul(1.0 - &share)?.try_add(b.try_mul(&share)?)?;
    share.try_eq(0)?.try_where_(a, both)
}

impl Tensor {
    fallible! {
        /// The last axes at other sizes, one for each size that is given. With `align_corners` the
        /// first and last elements stay at the ends; otherwise elements are squares whose borders
        /// stay. All modes but the nearest ones make floats of integers.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Interpolate};
        /// let x = Tensor::new([[[1.0f32, 2.0, 4.0]]]);
        /// assert_eq!(
        ///     x.interpolate(6, Interpolate::Nearest, false).to_vec::<f32>()?,
        ///     [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
        /// );
        /// assert_eq!(
        ///     x.interpolate(5, Interpolate::Linear, true).to_vec::<f32>()?,
        ///     [1.0, 1.5, 2.0, 3.0, 4.0]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn interpolate | try_interpolate(
            &self,
            size: impl Into<Sizes>,
            mode: Interpolate,
            align_corners: bool,
        ) -> Tensor {
            if let Some(x) = autocast::wide(self) {
                return x.try_interpolate(size, mode, align_corners);
            }
            const OP: &str = "interpolate";
            let (size, dims) = (size.into().shape(OP)?, self.dims());
            if size.len() > dims.len() {
                return wrong_shape(
                    OP,
                    format!("sizes {size:?} for the last axes of {dims:?}, which has fewer"),
                );
            }
            if align_corners && !mode.mixes() {
                return wrong_shape(
                    OP,
                    format!(
                        "corners are aligned in linear and cubic modes alone, and this is {mode:?}"
                    ),
                );
            }
            let first = dims.len() - size.len();
            if dims[first..].contains(&0) || size.contains(&0) {
                return wrong_shape(
                    OP,
                    format!(
                        "from {dims:?} to {size:?}: there is nothing to choose from, or nothing \
                         to make"
                    ),
                );
            }
            let mut x = if mode.mixes() { self.as_wide_float() } else { self.copy() };
            for (i, &n) in size.iter().enumerate() {
                x = resize_axis(&x, first + i, n, mode, align_corners)?;
            }
            if mode.mixes() { x.try_cast(self.as_float().dtype()) } else { Ok(x) }
        }
    }
}
