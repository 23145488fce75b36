//! The six movement ops as data, their effect on shapes, and the validation of their arguments: no
//! other file of this module returns errors about movements.

use super::{Dims, Flags, Ranges, checked_numel};
use crate::error::{Error, Result};
use std::fmt;

/// An op that changes indices, not elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Movement {
    /// The same elements in row-major order, in another shape.
    Reshape(Dims),
    /// Axes of size 1 repeated to the given sizes; the other axes keep their size.
    Expand(Dims),
    /// Axis `i` of the result is axis `p[i]` of the input.
    Permute(Dims),
    /// `(before, after)` zeros added to each axis.
    Pad(Ranges),
    /// The interval `start..end` of each axis.
    Shrink(Ranges),
    /// The axes marked `true` reversed.
    Flip(Flags),
}

impl Movement {
    /// Returns a [`Movement::Reshape`] to these sizes.
    pub fn reshape(shape: impl IntoIterator<Item = usize>) -> Self {
        Movement::Reshape(shape.into_iter().collect())
    }

    /// Returns a [`Movement::Expand`] to these sizes.
    pub fn expand(shape: impl IntoIterator<Item = usize>) -> Self {
        Movement::Expand(shape.into_iter().collect())
    }

    /// Returns a [`Movement::Permute`] by these axes.
    pub fn permute(axes: impl IntoIterator<Item = usize>) -> Self {
        Movement::Permute(axes.into_iter().collect())
    }

    /// Returns a [`Movement::Pad`] by `(before, after)` per axis.
    pub fn pad(padding: impl IntoIterator<Item = (usize, usize)>) -> Self {
        Movement::Pad(padding.into_iter().collect())
    }

    /// Returns a [`Movement::Shrink`] to `(start, end)` per axis.
    pub fn shrink(ranges: impl IntoIterator<Item = (usize, usize)>) -> Self {
        Movement::Shrink(ranges.into_iter().collect())
    }

    /// Returns a [`Movement::Flip`] of the axes marked `true`.
    pub fn flip(flags: impl IntoIterator<Item = bool>) -> Self {
        Movement::Flip(flags.into_iter().collect())
    }

    /// Returns the name of the op in messages and text IR.
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

    /// Returns the shape after the op, or an error if the op does not apply to `shape`.
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
        // Of the operand too, because a caller may give any shape.
        let numel = checked_numel(op, shape)?;
        let axes = match self {
            Movement::Reshape(_) => shape.len(),
            Movement::Expand(d) | Movement::Permute(d) => d.len(),
            Movement::Pad(r) | Movement::Shrink(r) => r.len(),
            Movement::Flip(flags) => flags.len(),
        };
        if axes != shape.len() {
            let msg = format!("{axes} axes given for {shape:?}, which has {}", shape.len());
            return Err(Error::Shape { op, msg });
        }
        let new = match self {
            Movement::Reshape(new) => new.clone(),
            Movement::Expand(new) => expanded(new, shape)?,
            Movement::Permute(axes) => permuted(axes, shape)?,
            Movement::Pad(padding) => padded(padding, shape)?,
            Movement::Shrink(ranges) => shrunk(ranges, shape)?,
            Movement::Flip(_) => Dims::from_slice(shape),
        };
        let after = checked_numel(op, &new)?;
        if matches!(self, Movement::Reshape(_)) && after != numel {
            let msg = format!("{shape:?} has {numel} elements and {new:?} has {after}");
            return Err(Error::Shape { op, msg });
        }
        Ok(new)
    }
}

fn expanded(new: &Dims, shape: &[usize]) -> Result<Dims> {
    if let Some(axis) = (0..shape.len()).find(|&i| shape[i] != 1 && shape[i] != new[i]) {
        let msg = format!(
            "{shape:?} to {new:?}: axis {axis} has size {}, and only an axis of size 1 expands",
            shape[axis]
        );
        return Err(Error::Shape { op: "expand", msg });
    }
    Ok(new.clone())
}

fn permuted(axes: &Dims, shape: &[usize]) -> Result<Dims> {
    for (i, &axis) in axes.iter().enumerate() {
        if axis >= shape.len() {
            let msg = format!("axis {axis} of {axes:?} is outside {shape:?}");
            return Err(Error::Index { op: "permute", msg });
        }
        if axes[..i].contains(&axis) {
            let msg = format!("axis {axis} comes twice in {axes:?}, for {shape:?}");
            return Err(Error::Shape { op: "permute", msg });
        }
    }
    Ok(axes.iter().map(|&a| shape[a]).collect())
}

fn padded(padding: &Ranges, shape: &[usize]) -> Result<Dims> {
    let axis = |(&size, &(before, after)): (&usize, &(usize, usize))| {
        size.checked_add(before)?.checked_add(after)
    };
    let new: Option<Dims> = shape.iter().zip(padding).map(axis).collect();
    new.ok_or_else(|| Error::Shape {
        op: "pad",
        msg: format!("{padding:?} around {shape:?} is more than an index can count"),
    })
}

fn shrunk(ranges: &Ranges, shape: &[usize]) -> Result<Dims> {
    for (axis, (&size, &(start, end))) in shape.iter().zip(ranges).enumerate() {
        if start > end || end > size {
            let msg = format!("{start}..{end} is not within axis {axis} of {shape:?}");
            return Err(Error::Index { op: "shrink", msg });
        }
    }
    Ok(ranges.iter().map(|&(start, end)| end - start).collect())
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
