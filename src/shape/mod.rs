//! Shapes, and the movement ops that change them.
//!
//! Input: a shape and a chain of [`Movement`]s. Output: a [`ShapeTracker`], which tells whether a
//! view is a slice of its base and whether two views overlap, and index expressions for kernels.
//!
//! | file | contents |
//! |---|---|
//! | `movement` | the six movement ops as data, and the one place that validates them |
//! | `view` | one strided, masked view, in canonical form |
//! | `compose` | two views as one where possible; reshape has a contiguous upper view |
//! | `tracker` | a stack of views over a base |
//! | `variable` | symbolic dimensions: variables with bounds, and expressions of them |
//! | `overlap` | the elements of the base that a view reaches, and whether two views overlap |
//! | `expr` | the same maps as expressions, generic over the index type |
//!
//! **Invariant:** the product of the non-zero sizes of a shape fits an `isize`, so every flat index
//! and contiguous stride does.
//!
//! ```
//! use picograd::compiler::shape::{Movement, ShapeTracker};
//!
//! let base = ShapeTracker::new(&[4, 6]);
//! let row = base.apply(&Movement::shrink([(1, 3), (0, 6)]))?;
//! assert_eq!(row.contiguous_slice(), Some(6..18));
//!
//! // A transpose is not a slice, but an axis of it can be split by strides alone.
//! let split = base.apply(&Movement::permute([1, 0]))?.apply(&Movement::reshape([2, 3, 4]))?;
//! assert_eq!(split.views()[0].strides(), [3, 1, 6]);
//! assert_eq!(split.index_of(&[1, 2, 3]), Some(23));
//! # Ok::<(), picograd::Error>(())
//! ```

mod compose;
mod expr;
mod movement;
mod overlap;
mod tracker;
mod variable;
mod view;

#[cfg(test)]
mod tests;

pub use expr::{IndexExpr, movement_index};
pub use movement::Movement;
pub use tracker::ShapeTracker;
pub use variable::{Extents, SymInt, Variable, moved_extents};
pub use view::View;

use crate::error::{Error, Result};
use smallvec::SmallVec;

/// Sizes of axes, or a list of axes.
pub type Dims = SmallVec<[usize; 4]>;
/// Strides of axes, in elements.
pub type Strides = SmallVec<[isize; 4]>;
/// Pairs of axes: `(start, end)` of a shrink or a mask, `(before, after)` of a pad.
pub type Ranges = SmallVec<[(usize, usize); 4]>;
/// Flags of axes.
pub type Flags = SmallVec<[bool; 8]>;

/// Returns the number of elements of `shape`, or an error of `op` if an index cannot count them.
/// Axes of size zero are ignored in this check, because strides are products of the others.
pub fn checked_numel(op: &'static str, shape: &[usize]) -> Result<usize> {
    let nonzero = shape.iter().filter(|&&s| s != 0).try_fold(1usize, |n, &s| n.checked_mul(s));
    match nonzero {
        Some(n) if isize::try_from(n).is_ok() => Ok(if shape.contains(&0) { 0 } else { n }),
        _ => Err(Error::Shape {
            op,
            msg: format!("{shape:?} has more elements than an index can count"),
        }),
    }
}

/// Returns the greatest common divisor of two numbers that are not both zero, up to sign.
pub(crate) fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
