//! Shape trackers: the effect of a chain of movement ops as a stack of views over a base array.
//!
//! **Invariant:** `compose` merges no two adjacent views of the stack, and a tracker that maps no
//! index is one view.

use super::compose::compose;
use super::{Dims, Movement, View, checked_numel};
use crate::error::Result;
use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::ops::Range;

/// The position in its base of each element of a moved tensor.
///
/// ```
/// use picograd::compiler::shape::{Movement, ShapeTracker};
/// let st = ShapeTracker::new(&[3]).apply(&Movement::pad([(1, 1)]))?;
/// assert_eq!(st.index_of(&[0]), None);
/// assert_eq!(st.index_of(&[1]), Some(0));
/// assert_eq!(st.to_string(), "base 3: [5] strides [1] offset -1 mask [1..4]");
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShapeTracker {
    /// The number of elements of the base.
    base: usize,
    /// From the base up; at least one.
    views: SmallVec<[View; 1]>,
}

impl ShapeTracker {
    /// Creates the identity view of a base of this shape.
    ///
    /// # Panics
    /// An index cannot count the elements: see [`ShapeTracker::try_new`].
    #[track_caller]
    pub fn new(shape: &[usize]) -> ShapeTracker {
        Self::try_new(shape).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Creates the identity view of a base of this shape, or returns an error if an index cannot
    /// count the elements.
    pub fn try_new(shape: &[usize]) -> Result<ShapeTracker> {
        Ok(ShapeTracker {
            base: checked_numel("shape", shape)?,
            views: smallvec![View::contiguous(shape)],
        })
    }

    fn top(&self) -> &View {
        &self.views[self.views.len() - 1]
    }

    /// Returns the only view, if the stack has one.
    pub(super) fn single(&self) -> Option<&View> {
        match self.views.as_slice() {
            [view] => Some(view),
            _ => None,
        }
    }

    /// Returns the size of each axis.
    pub fn shape(&self) -> &[usize] {
        self.top().shape()
    }

    /// Returns the number of elements, including masked ones.
    pub fn numel(&self) -> usize {
        self.top().numel()
    }

    /// Returns the number of elements of the base.
    #[cfg(test)]
    pub fn base_numel(&self) -> usize {
        self.base
    }

    /// Returns the views, from the base up.
    pub fn views(&self) -> &[View] {
        &self.views
    }

    /// Returns the tracker after a movement op, or an error if the op does not apply to the shape.
    pub fn apply(&self, movement: &Movement) -> Result<ShapeTracker> {
        let shape = movement.apply_shape(self.shape())?;
        let mut views = self.views.clone();
        match self.top().moved(movement, shape.clone()) {
            Some(view) => *views.last_mut().expect("a tracker has a view") = view,
            None => {
                let fresh = View::contiguous(self.shape()).moved(movement, shape);
                // Its offset is within the elements of the result, which `apply_shape` has counted.
                views.push(fresh.expect("any op on a contiguous view is one view"));
            }
        }
        Ok(ShapeTracker { base: self.base, views }.simplify())
    }

    /// Returns the composition with `upper`, a tracker over the elements of this one.
    ///
    /// # Panics
    /// The number of elements of the base of `upper` is not that of this tracker.
    #[track_caller]
    pub fn then(&self, upper: &ShapeTracker) -> ShapeTracker {
        let (below, above) = (self.numel(), upper.base);
        assert_eq!(below, above, "a tracker over {above} elements is put on one of {below}");
        let mut result = self.clone();
        for view in &upper.views {
            result.views.push(view.clone());
            result = result.simplify();
        }
        result
    }

    /// Merges the top views that compose. The other methods return simplified trackers.
    pub fn simplify(mut self) -> ShapeTracker {
        while let [.., lower, upper] = self.views.as_slice() {
            let Some(one) = compose(lower, upper) else {
                break;
            };
            self.views.truncate(self.views.len() - 2);
            self.views.push(one);
        }
        self
    }

    /// Returns true if this is the whole base in order. False for a stack of several views.
    pub fn is_contiguous(&self) -> bool {
        self.numel() == self.base && self.single().is_some_and(View::is_contiguous)
    }

    /// Returns the range of the base that has the elements in order, without gaps or masks, so that
    /// a buffer can be shared; `0..0` without elements. None for a stack of several views.
    pub fn contiguous_slice(&self) -> Option<Range<usize>> {
        let view = self.single().filter(|v| v.is_dense())?;
        let start = view.offset() as usize;
        Some(start..start + view.numel())
    }

    /// Returns the position of `index` in the base; none if it is masked.
    ///
    /// # Panics
    /// `index` is not an index of the shape.
    pub fn index_of(&self, index: &[usize]) -> Option<usize> {
        let mut position = self.top().index_of(index)? as usize;
        for view in self.views.iter().rev().skip(1) {
            position = view.index_of(&unravel(view.shape(), position))? as usize;
        }
        Some(position)
    }
}

/// Returns the index of the element at a row-major position.
pub(super) fn unravel(shape: &[usize], mut position: usize) -> Dims {
    let mut index = Dims::from_elem(0, shape.len());
    for (i, &size) in index.iter_mut().zip(shape).rev() {
        *i = position % size;
        position /= size;
    }
    index
}

impl fmt::Display for ShapeTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "base {}: ", self.base)?;
        for (i, view) in self.views.iter().enumerate() {
            let gap = if i > 0 { " | " } else { "" };
            write!(f, "{gap}{view}")?;
        }
        Ok(())
    }
}
