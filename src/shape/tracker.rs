//! A stack of views over a base array: what a chain of movement ops does, in as few views as can
//! say it.
//!
//! **Invariant:** no two neighbouring views of the stack compose (as far as `compose` can see), and
//! a tracker that maps nothing is one view.

use super::compose::compose;
use super::{Dims, Movement, Strides, View, checked_numel};
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
    /// The whole of a base of this shape.
    ///
    /// # Panics
    /// Where the sizes are beyond what an index can hold: see [`ShapeTracker::try_new`].
    #[track_caller]
    pub fn new(shape: &[usize]) -> ShapeTracker {
        Self::try_new(shape).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The whole of a base of this shape, or an error where the sizes are beyond what an index can
    /// hold.
    pub fn try_new(shape: &[usize]) -> Result<ShapeTracker> {
        Ok(ShapeTracker {
            base: checked_numel("shape", shape)?,
            views: smallvec![View::contiguous(shape)],
        })
    }

    fn top(&self) -> &View {
        &self.views[self.views.len() - 1]
    }

    /// The one view that says all, where there is one.
    pub(super) fn single(&self) -> Option<&View> {
        match self.views.as_slice() {
            [view] => Some(view),
            _ => None,
        }
    }

    /// Sizes per axis.
    pub fn shape(&self) -> &[usize] {
        self.top().shape()
    }

    /// The number of elements, hidden ones included.
    pub fn numel(&self) -> usize {
        self.top().numel()
    }

    /// The number of elements of the base.
    pub fn base_numel(&self) -> usize {
        self.base
    }

    /// The stack, from the base up.
    pub fn views(&self) -> &[View] {
        &self.views
    }

    /// The tracker after one more op, or an error where the op does not apply to the shape.
    pub fn apply(&self, movement: &Movement) -> Result<ShapeTracker> {
        let shape = movement.apply_shape(self.shape())?;
        let mut views = self.views.clone();
        match self.top().moved(movement, shape.clone()) {
            Some(view) => *views.last_mut().expect("a tracker has a view") = view,
            None => {
                let fresh = View::contiguous(self.shape()).moved(movement, shape);
                // Its offset is within the elements of the result, and those were counted by
                // `apply_shape`.
                views.push(fresh.expect("any op on a contiguous view is one view"));
            }
        }
        Ok(ShapeTracker { base: self.base, views }.simplify())
    }

    /// `upper`, a tracker over the elements of this one, seen as a tracker over this one's base.
    ///
    /// # Panics
    /// Where the base of `upper` has another number of elements than this tracker.
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

    /// The same map in fewer views, where the top ones compose. Every method here returns trackers
    /// that are simplified already.
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

    /// True if this is the whole base in order. False for a stack of several views.
    pub fn is_contiguous(&self) -> bool {
        self.numel() == self.base && self.single().is_some_and(View::is_contiguous)
    }

    /// The range of the base that this is, in order, without gaps and with nothing hidden: then a
    /// buffer can be shared and not copied. A stack of several views is taken not to be one; a
    /// tracker without elements is `0..0`.
    pub fn contiguous_slice(&self) -> Option<Range<usize>> {
        let view = self.single().filter(|v| v.is_dense())?;
        let start = view.offset() as usize;
        Some(start..start + view.numel())
    }

    /// Where `index` lies in the base, or `None` where it is hidden.
    ///
    /// # Panics
    /// Where `index` is not an index of the shape.
    pub fn index_of(&self, index: &[usize]) -> Option<usize> {
        let mut position = self.top().index_of(index)? as usize;
        for view in self.views.iter().rev().skip(1) {
            position = view.index_of(&unravel(view.shape(), position))? as usize;
        }
        Some(position)
    }

    /// The stride of each axis in the base, where one view says all. They hold for the elements
    /// that no mask hides.
    pub fn real_strides(&self) -> Option<Strides> {
        self.single().map(|view| view.strides().into())
    }
}

/// The index of the element at a row-major position.
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
