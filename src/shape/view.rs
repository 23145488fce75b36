//! Strided, masked views of a flat array.
//!
//! A view maps an index of its shape to `offset + Σ index·stride`, or to no element where it is
//! masked (the value is zero there). The result of every movement op but reshape is one view, that
//! of reshape if strides and mask allow it.
//!
//! **Invariant:** views are canonical, so that most equal maps compare equal. An axis with one
//! unmasked index has stride 0; a mask that hides nothing is absent; a view that maps no index has
//! strides and offset 0, and an empty range for each axis unless it has no elements. Unmasked
//! indices are mapped inside the array below.

use super::compose::compose;
use super::{Dims, Movement, Ranges, Strides, checked_numel};
use crate::error::Result;
use std::fmt;

/// A strided, masked view, in canonical form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    shape: Dims,
    strides: Strides,
    offset: isize,
    mask: Option<Ranges>,
}

/// Returns the row-major strides of `shape`: 0 for axes of size 1, and for all axes if there are no
/// elements.
fn row_major(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(0, shape.len());
    if shape.contains(&0) {
        return strides;
    }
    let mut step = 1;
    for (stride, &size) in strides.iter_mut().zip(shape).rev() {
        if size != 1 {
            *stride = step;
            step *= size as isize;
        }
    }
    strides
}

impl View {
    /// Returns the view of a whole array in row-major order.
    ///
    /// # Panics
    /// An index cannot count the elements; `checked_numel` checks it.
    pub fn contiguous(shape: &[usize]) -> View {
        checked_numel("view", shape).unwrap_or_else(|e| panic!("{e}"));
        View { shape: Dims::from_slice(shape), strides: row_major(shape), offset: 0, mask: None }
    }

    /// Returns the view of `shape` that maps no index.
    pub(super) fn fully_masked(shape: Dims) -> View {
        let mask = (!shape.contains(&0)).then(|| Ranges::from_elem((0, 0), shape.len()));
        View { strides: Strides::from_elem(0, shape.len()), shape, offset: 0, mask }
    }

    /// Returns the canonical view with these parts; none if its offset overflows. `mask` has a
    /// range for each axis.
    pub(super) fn canonical(
        shape: Dims,
        mut strides: Strides,
        mut offset: isize,
        mask: Ranges,
    ) -> Option<View> {
        if shape.contains(&0) || mask.iter().any(|&(lo, hi)| lo >= hi) {
            return Some(View::fully_masked(shape));
        }
        for (stride, &(lo, hi)) in strides.iter_mut().zip(&mask) {
            if hi - lo == 1 {
                offset = offset.checked_add(stride.checked_mul(lo as isize)?)?;
                *stride = 0;
            }
        }
        let hides = mask.iter().zip(&shape).any(|(&range, &size)| range != (0, size));
        Some(View { shape, strides, offset, mask: hides.then_some(mask) })
    }

    /// Returns the size of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the stride of each axis, in elements of the array below.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Returns the position of index zero. It may be outside the array below if index zero is
    /// masked.
    pub fn offset(&self) -> isize {
        self.offset
    }

    /// Returns the range `(start, end)` of each axis outside of which elements are zero; none
    /// without a mask.
    pub fn mask(&self) -> Option<&[(usize, usize)]> {
        self.mask.as_deref()
    }

    /// Returns the number of elements, including masked ones.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if no index maps to an element: the view is empty, or masks all its elements.
    pub fn maps_nothing(&self) -> bool {
        // A mask of rank 0 has no ranges and hides everything, because it would be absent
        // otherwise.
        let hidden = |mask: &Ranges| mask.iter().all(|&(lo, hi)| lo >= hi);
        self.shape.contains(&0) || self.mask.as_ref().is_some_and(hidden)
    }

    /// Returns true if the elements are contiguous in row-major order from the start of the array
    /// below.
    pub fn is_contiguous(&self) -> bool {
        self.offset == 0 && self.is_dense()
    }

    /// Returns true if the elements are contiguous in row-major order from the offset.
    pub(super) fn is_dense(&self) -> bool {
        self.mask.is_none() && self.strides == row_major(&self.shape)
    }

    /// Returns the unmasked range of each axis.
    pub(super) fn unmasked_ranges(&self) -> Ranges {
        match &self.mask {
            Some(mask) => mask.clone(),
            None => self.shape.iter().map(|&size| (0, size)).collect(),
        }
    }

    /// Returns the position of `index` in the array below; none if it is masked.
    ///
    /// # Panics
    /// `index` is not an index of the shape.
    pub fn index_of(&self, index: &[usize]) -> Option<isize> {
        let inside =
            index.len() == self.shape.len() && index.iter().zip(&self.shape).all(|(i, s)| i < s);
        assert!(inside, "index {index:?} is outside {:?}", self.shape);
        if self.maps_nothing() {
            return None;
        }
        if let Some(mask) = &self.mask
            && index.iter().zip(mask).any(|(&i, &(lo, hi))| i < lo || i >= hi)
        {
            return None;
        }
        // The sum is in range, so partial sums may wrap.
        let step = |sum: isize, (&i, &stride): (&usize, &isize)| {
            sum.wrapping_add(stride.wrapping_mul(i as isize))
        };
        Some(index.iter().zip(&self.strides).fold(self.offset, step))
    }

    /// Returns the view after `movement`; none if the result is not one view; or an error if the op
    /// does not apply.
    ///
    /// The result is not one view for a reshape that merges axes that are not adjacent in memory or
    /// splits a mask into other than a box, and for an offset that overflows `isize`.
    ///
    /// ```
    /// use picograd::compiler::shape::{Movement, View};
    /// let view = View::contiguous(&[2, 3]).apply(&Movement::permute([1, 0]))?.unwrap();
    /// assert_eq!(view.strides(), [1, 3]);
    /// assert_eq!(view.apply(&Movement::reshape([6]))?, None);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn apply(&self, movement: &Movement) -> Result<Option<View>> {
        let shape = movement.apply_shape(&self.shape)?;
        Ok(self.moved(movement, shape))
    }

    /// Returns the view after a valid movement with its resulting shape; none if it is not one
    /// view.
    pub(super) fn moved(&self, movement: &Movement, shape: Dims) -> Option<View> {
        if self.maps_nothing() || shape.contains(&0) {
            return Some(View::fully_masked(shape));
        }
        let mut strides = self.strides.clone();
        let mut offset = self.offset;
        let mut mask = self.unmasked_ranges();
        match movement {
            Movement::Reshape(_) => return compose(self, &View::contiguous(&shape)),
            Movement::Expand(new) => {
                // An axis of size 1 has stride 0 and is not masked, because the view maps an index.
                for (axis, &size) in new.iter().enumerate() {
                    if size != self.shape[axis] {
                        mask[axis] = (0, size);
                    }
                }
            }
            Movement::Permute(axes) => {
                strides = axes.iter().map(|&a| self.strides[a]).collect();
                mask = axes.iter().map(|&a| mask[a]).collect();
            }
            Movement::Pad(padding) => {
                for (axis, &(before, _)) in padding.iter().enumerate() {
                    offset = offset.checked_sub(strides[axis].checked_mul(before as isize)?)?;
                    mask[axis] = (mask[axis].0 + before, mask[axis].1 + before);
                }
            }
            Movement::Shrink(ranges) => {
                for (axis, &(start, end)) in ranges.iter().enumerate() {
                    offset = offset.checked_add(strides[axis].checked_mul(start as isize)?)?;
                    let (lo, hi) = mask[axis];
                    mask[axis] = (lo.max(start) - start, hi.min(end).saturating_sub(start));
                }
            }
            Movement::Flip(flags) => {
                for axis in (0..flags.len()).filter(|&a| flags[a]) {
                    let size = self.shape[axis];
                    offset = offset.checked_add(strides[axis].checked_mul(size as isize - 1)?)?;
                    strides[axis] = -strides[axis];
                    mask[axis] = (size - mask[axis].1, size - mask[axis].0);
                }
            }
        }
        View::canonical(shape, strides, offset, mask)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} strides {:?}", self.shape, self.strides)?;
        if self.offset != 0 {
            write!(f, " offset {}", self.offset)?;
        }
        if let Some(mask) = &self.mask {
            f.write_str(" mask ")?;
            f.debug_list().entries(mask.iter().map(|&(lo, hi)| lo..hi)).finish()?;
        }
        Ok(())
    }
}
