//! The six movement ops as data. A shape goes in, the shape after the op comes out, and whatever a
//! user can get wrong about the op is an [`Error`] from here: no other file of this module
//! validates.

use super::{Dims, Flags, Ranges, checked_numel};
use crate::error::{Error, Result};
use std::fmt;

/// An op that moves elements without computing on them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Movement {
    /// The same elements in row-major order under another shape.
    Reshape(Dims),
    /// Axes of size 1 repeated to the given sizes; the other axes keep theirs.
    Expand(Dims),
    /// Axis `i` of the result is axis `p[i]` of the input.
    Permute(Dims),
    /// `(before, after)` zeros added to each axis.
    Pad(Ranges),
    /// `start..end` of each axis kept.
    Shrink(Ranges),
    /// The axes marked `true` reversed.
    Flip(Flags),
}

impl Movement {
    /// A [`Movement::Reshape`] to these sizes.
    pub fn reshape(shape: impl IntoIterator<Item = usize>) -> Self {
        Movement::Reshape(shape.into_iter().collect())
    }

    /// A [`Movement::Expand`] to these sizes.
    pub fn expand(shape: impl IntoIterator<Item = usize>) -> Self {
        Movement::Expand(shape.into_iter().collect())
    }

    /// A [`Movement::Permute`] by these axes.
    pub fn permute(axes: impl IntoIterator<Item = usize>) -> Self {
        Movement::Permute(axes.into_iter().collect())
    }

    /// A [`Movement::Pad`] by `(before, after)` per axis.
    pub fn pad(padding: impl IntoIterator<Item = (usize, usize)>) -> Self {
        Movement::Pad(padding.into_iter().collect())
    }

    /// A [`Movement::Shrink`] to `(start, end)` per axis.
    pub fn shrink(ranges: impl IntoIterator<Item = (usize, usize)>) -> Self {
        Movement::Shrink(ranges.into_iter().collect())
    }

    /// A [`Movement::Flip`] of the axes marked `true`.
    pub fn flip(flags: impl IntoIterator<Item = bool>) -> Self {
        Movement::Flip(flags.into_iter().collect())
    }

    /// The name of the op, as in errors and prints.
    pub fn name(&self) -> &'static str {
        match self {
            Movement::Reshape(_) => "reshape",
            Movement::Expand(_) => "expand",
            Movement::Permute(_) => "permute",
            Movement::Pad(_) => "pad",
            Movement::Shrink(_) => "shrink",
            Movement::Flip(_) => "flip",
        }
    }

    /// The shape after the op, or why the op does not apply to `shape`.
    ///
    /// ```
    /// use picograd::compiler::shape::Movement;
    /// assert_eq!(Movement::pad([(1, 2), (0, 0)]).apply_shape(&[3, 4])?.as_slice(), [6, 4]);
    /// let wrong = Movement::reshape([5]).apply_shape(&[2, 3]).unwrap_err();
    /// assert_eq!(wrong.to_string(), "reshape: [2, 3] has 6 elements and [5] has 5");
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn apply_shape(&self, shape: &[usize]) -> Result<Dims> {
        let op = self.name();
        let wrong = |msg: String| Err(Error::Shape { op, msg });
        let outside = |msg: String| Err(Error::Index { op, msg });
        let rank = |given: usize| {
            if given == shape.len() {
                return Ok(());
            }
            let msg = format!("{given} axes given for {shape:?}, which has {}", shape.len());
            Err(Error::Shape { op, msg })
        };
        // The input is checked too: a caller may bring a shape that no tracker has seen.
        let numel = checked_numel(op, shape)?;
        match self {
            Movement::Reshape(new) => {
                let after = checked_numel(op, new)?;
                if after != numel {
                    return wrong(format!(
                        "{shape:?} has {numel} elements and {new:?} has {after}"
                    ));
                }
                Ok(new.clone())
            }
            Movement::Expand(new) => {
                rank(new.len())?;
                if let Some(axis) = (0..shape.len()).find(|&i| shape[i] != 1 && shape[i] != new[i])
                {
                    return wrong(format!(
                        "{shape:?} to {new:?}: axis {axis} has size {}, and only an axis of size \
                         1 expands",
                        shape[axis]
                    ));
                }
                checked_numel(op, new)?;
                Ok(new.clone())
            }
            Movement::Permute(axes) => {
                rank(axes.len())?;
                for (i, &axis) in axes.iter().enumerate() {
                    if axis >= shape.len() {
                        return outside(format!("axis {axis} of {axes:?} is outside {shape:?}"));
                    }
                    if axes[..i].contains(&axis) {
                        return wrong(format!(
                            "axis {axis} comes twice in {axes:?}, for {shape:?}"
                        ));
                    }
                }
                Ok(axes.iter().map(|&a| shape[a]).collect())
            }
            Movement::Pad(padding) => {
                rank(padding.len())?;
                let mut new = Dims::with_capacity(shape.len());
                for (&size, &(before, after)) in shape.iter().zip(padding) {
                    match size.checked_add(before).and_then(|s| s.checked_add(after)) {
                        Some(padded) => new.push(padded),
                        None => {
                            return wrong(format!(
                                "{padding:?} around {shape:?} is more than an index can count"
                            ));
                        }
                    }
                }
                checked_numel(op, &new)?;
                Ok(new)
            }
            Movement::Shrink(ranges) => {
                rank(ranges.len())?;
                for (axis, (&size, &(start, end))) in shape.iter().zip(ranges).enumerate() {
                    if start > end || end > size {
                        return outside(format!(
                            "{start}..{end} is not within axis {axis} of {shape:?}"
                        ));
                    }
                }
                Ok(ranges.iter().map(|&(start, end)| end - start).collect())
            }
            Movement::Flip(flags) => {
                rank(flags.len())?;
                Ok(Dims::from_slice(shape))
            }
        }
    }
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Movement::Reshape(dims) | Movement::Expand(dims) | Movement::Permute(dims) => {
                write!(f, "{dims:?}")
            }
            Movement::Pad(padding) => write!(f, "{padding:?}"),
            Movement::Shrink(ranges) => {
                f.debug_list().entries(ranges.iter().map(|&(s, e)| s..e)).finish()
            }
            Movement::Flip(flags) => {
                let axes = flags.iter().enumerate().filter(|(_, f)| **f).map(|(i, _)| i);
                f.debug_list().entries(axes).finish()
            }
        }
    }
}
