//! Other shapes of the same elements. Every method becomes some of the six movement ops, and `cat`
//! an op of its own.

use super::conv::{Window, windows};
use super::create::iota;
use crate::device::limits;
use crate::dtype::{DType, promote};
use crate::error::{Error, Result};
use crate::ir::{Src, UOp};
use crate::shape::{Dims, Movement, Ranges, checked_numel};
use crate::tensor::broadcast::{Operand, cast_uop, device_of};
use crate::tensor::{Axes, Shape, Sizes, Tensor, resolve_axis, wrong_shape};

/// Bytes that a tensor takes which is a part of another, with its node: 600 where a million were
/// made.
const PIECE: usize = 600;

/// The nodes of tensors, one after the other along an axis: `Tensor::cat` of tensors whose nodes
/// are at hand, as `op` of the user's. It is linear in their number and makes no tensor but the
/// result.
fn along(op: &'static str, tensors: &[Tensor], nodes: Vec<UOp>, axis: isize) -> Result<Tensor> {
    let Some(first) = nodes.first() else {
        return wrong_shape(op, "expected one tensor or more, got none");
    };
    let mut dims = first.shape().clone();
    let at = resolve_axis(op, axis, &dims)?;
    let mut total = 0usize;
    for u in &nodes {
        let other = u.shape();
        if other.len() != dims.len() || (0..dims.len()).any(|i| i != at && dims[i] != other[i]) {
            return wrong_shape(op, format!("{dims:?} and {other:?} differ outside axis {axis}"));
        }
        total = total.saturating_add(other[at]);
    }
    dims[at] = total;
    checked_numel(op, &dims)?;
    let dtype = nodes.iter().map(UOp::dtype).fold(DType::VOID, promote);
    let device = device_of(op, tensors.iter())?;
    let parts: Src = nodes
        .into_iter()
        .map(|u| if u.dtype() == dtype { u } else { cast_uop(&u, dtype) })
        .collect();
    if parts.iter().all(|u| u.extents().is_empty()) {
        return Ok(Tensor::new_inner(UOp::cat(parts, at), device, None));
    }
    // Beside an axis that ends at a variable each element is chosen from the operands.
    let place = iota(total)
        .movement(Movement::reshape((0..dims.len()).map(|i| if i == at { total } else { 1 })))?;
    let mut joined: Option<Tensor> = None;
    let mut end = 0;
    for u in parts {
        let (before, after) = (end, total - end - u.shape()[at]);
        end += u.shape()[at];
        let padding =
            Movement::pad((0..dims.len()).map(|i| if i == at { (before, after) } else { (0, 0) }));
        let padded = Tensor::new_inner(u, device, None).movement(padding)?;
        // A choice keeps every bit, where a sum with zeros would turn -0 into 0.
        joined = Some(match joined {
            None => padded,
            Some(left) => place.try_lt(before)?.try_where_(left, padded)?,
        });
    }
    Ok(joined.expect("one tensor at least"))
}

impl Tensor {
    fallible! {
        /// The same elements in row-major order under another shape. One size may be -1: what is
        /// left.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::arange(0, 6, 1);
        /// assert_eq!(x.reshape([2, -1]).shape(), [2, 3]);
        /// let wrong = x.try_reshape([4, 2]).unwrap_err();
        /// assert_eq!(wrong.to_string(), "reshape: [6] has 6 elements and [4, 2] has 8");
        /// ```
        pub fn reshape | try_reshape(&self, shape: impl Into<Shape>) -> Tensor {
            let shape = shape.into();
            shape.cut(
                "reshape",
                self.movement(Movement::Reshape(
                    shape.sizes("reshape")?.infer("reshape", &self.dims())?,
                ))?,
                |_| false,
            )
        }

        /// Another name of [`reshape`](Self::reshape).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2]]).view([2, 1]).to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn view | try_view(&self, shape: impl Into<Shape>) -> Tensor {
            self.try_reshape(shape)
        }

        /// Axes of size 1 repeated, and new axes in front. A size of -1 stays as it is.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::new([[1], [2]]).expand([-1, 3]).to_vec::<i32>()?,
        ///     [1, 1, 1, 2, 2, 2]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn expand | try_expand(&self, shape: impl Into<Shape>) -> Tensor {
            let (shape, from) = (shape.into(), self.dims());
            let sizes = &shape.sizes("expand")?.0;
            let new = sizes.len().saturating_sub(from.len());
            let kept = |(i, &n): (usize, &isize)| {
                if n == -1 && i >= new { from[i - new] as isize } else { n }
            };
            let full = Sizes(sizes.iter().enumerate().map(kept).collect()).shape("expand")?;
            shape.cut(
                "expand",
                crate::tensor::broadcast::broadcast_to("expand", self, &full)?,
                |i| i < new || from[i - new] == 1,
            )
        }

        /// Axes in another order: axis `i` of the result is axis `axes[i]` of this.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).permute([-1, 0, 1]).shape(), [4, 2, 3]);
        /// ```
        pub fn permute | try_permute(&self, axes: impl Into<Sizes>) -> Tensor {
            self.movement(Movement::Permute(axes.into().axes("permute", &self.dims())?))
        }

        /// Two axes exchanged.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).transpose(0, -1).shape(), [4, 3, 2]);
        /// ```
        pub fn transpose | try_transpose(&self, a: isize, b: isize) -> Tensor {
            let dims = self.dims();
            let (a, b) =
                (resolve_axis("transpose", a, &dims)?, resolve_axis("transpose", b, &dims)?);
            let mut axes: Dims = (0..dims.len()).collect();
            axes.swap(a, b);
            self.movement(Movement::Permute(axes))
        }

        /// The transpose of a matrix.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).t().to_vec::<i32>()?, [1, 3, 2, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn t | try_t(&self) -> Tensor {
            if self.ndim() > 2 {
                return wrong_shape(
                    "t",
                    format!(
                        "expected two axes at most, got {:?}; use transpose(a, b)",
                        self.dims()
                    ),
                );
            }
            self.movement(Movement::permute((0..self.ndim()).rev()))
        }

        /// `(before, after)` zeros around each axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::new([[1, 2]]).pad(&[(0, 1), (1, 0)]).to_vec::<i32>()?,
        ///     [0, 1, 2, 0, 0, 0]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad | try_pad(&self, padding: &[(usize, usize)]) -> Tensor {
            self.movement(Movement::pad(padding.iter().copied()))
        }

        /// `(before, after)` of a value around each axis. The value takes this tensor's dtype.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::new([1, 2]).pad_with(&[(1, 2)], 9).to_vec::<i32>()?,
        ///     [9, 1, 2, 9, 9]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad_with | try_pad_with(
            &self,
            padding: &[(usize, usize)],
            value: impl Into<Operand>,
        ) -> Tensor {
            let padded = self.try_pad(padding)?;
            if padding.iter().all(|&p| p == (0, 0)) {
                return Ok(padded);
            }
            let inside = self
                .match_extents(Tensor::full((), true).try_expand(&self.dims())?)
                .try_pad(padding)?;
            inside.try_where_(padded, value)?.try_cast(self.dtype())
        }

        /// `start..end` of each axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2, 3, 4]).shrink(&[(1, 3)]).to_vec::<i32>()?, [2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn shrink | try_shrink(&self, ranges: &[(usize, usize)]) -> Tensor {
            self.movement(Movement::shrink(ranges.iter().copied()))
        }

        /// Axes reversed; `..` reverses all.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).flip(-1).to_vec::<i32>()?, [2, 1, 4, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn flip | try_flip(&self, axes: impl Into<Axes>) -> Tensor {
            let dims = self.dims();
            let (axes, _) = axes.into().resolve("flip", &dims)?;
            self.movement(Movement::flip((0..dims.len()).map(|axis| axes.contains(&axis))))
        }

        /// Axes of size 1 left out: those named, or with `..` all. A named axis of another size
        /// stays.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::zeros([1, 3, 1]);
        /// assert_eq!((x.squeeze(..).shape(), x.squeeze(0).shape()), (vec![3], vec![3, 1]));
        /// ```
        pub fn squeeze | try_squeeze(&self, axes: impl Into<Axes>) -> Tensor {
            let dims = self.dims();
            let (axes, _) = axes.into().resolve("squeeze", &dims)?;
            let kept =
                dims.iter().enumerate().filter(|&(axis, &size)| size != 1 || !axes.contains(&axis));
            self.movement(Movement::reshape(kept.map(|(_, &size)| size)))
        }

        /// A new axis of size 1, which will be `axis` of the result.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3]).unsqueeze(-1).shape(), [2, 3, 1]);
        /// ```
        pub fn unsqueeze | try_unsqueeze(&self, axis: isize) -> Tensor {
            let mut dims = self.dims();
            // The result has one axis more, so the end is a place too.
            let wider: Dims = dims.iter().copied().chain([1]).collect();
            let at = resolve_axis("unsqueeze", axis, &wider).map_err(|_| Error::Index {
                op: "unsqueeze",
                msg: format!(
                    "axis {axis} is outside the result of {dims:?}, whose axes are {}..={}",
                    -(wider.len() as isize),
                    dims.len()
                ),
            })?;
            dims.insert(at, 1);
            self.movement(Movement::Reshape(dims))
        }

        /// The axes from `start` to `end`, both included, made into one.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 3, 4]).flatten(1, -1).shape(), [2, 12]);
        /// ```
        pub fn flatten | try_flatten(&self, start: isize, end: isize) -> Tensor {
            let dims = self.dims();
            if dims.is_empty() {
                return self.movement(Movement::reshape([1]));
            }
            let (a, b) =
                (resolve_axis("flatten", start, &dims)?, resolve_axis("flatten", end, &dims)?);
            if a > b {
                return wrong_shape(
                    "flatten",
                    format!("axes {start} to {end} of {dims:?} are in descending order"),
                );
            }
            let joined: usize = dims[a..=b].iter().product();
            self.movement(Movement::reshape(
                dims[..a].iter().copied().chain([joined]).chain(dims[b + 1..].iter().copied()),
            ))
        }

        /// One axis made into several. One size may be -1.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2, 12]).unflatten(1, [3, -1]).shape(), [2, 3, 4]);
        /// ```
        pub fn unflatten | try_unflatten(&self, axis: isize, sizes: impl Into<Sizes>) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("unflatten", axis, &dims)?;
            let sizes = sizes.into().infer("unflatten", &dims[at..=at])?;
            if sizes.iter().product::<usize>() != dims[at] {
                return wrong_shape(
                    "unflatten",
                    format!(
                        "axis {axis} of {dims:?} has size {}, which is not {sizes:?}",
                        dims[at]
                    ),
                );
            }
            self.movement(Movement::reshape(
                dims[..at].iter().copied().chain(sizes).chain(dims[at + 1..].iter().copied()),
            ))
        }

        /// Tensors one after the other along an axis. Dtypes promote; the other sizes must agree.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (x, y) = (Tensor::new([1, 2]), Tensor::new([3]));
        /// assert_eq!(Tensor::cat(&[x, y], 0).to_vec::<i32>()?, [1, 2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn cat | try_cat(tensors: &[Tensor], axis: isize) -> Tensor {
            along("cat", tensors, tensors.iter().map(Tensor::uop).collect(), axis)
        }

        /// Tensors of one shape along a new axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::stack(&[Tensor::new([1, 2]), Tensor::new([3, 4])], 1).to_vec::<i32>()?,
        ///     [1, 3, 2, 4]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn stack | try_stack(tensors: &[Tensor], axis: isize) -> Tensor {
            let nodes: Vec<UOp> = tensors.iter().map(Tensor::uop).collect();
            let Some(dims) = nodes.first().map(|u| u.shape().clone()) else {
                return wrong_shape("stack", "expected one tensor or more, got none");
            };
            if let Some(other) = nodes.iter().find(|u| *u.shape() != dims) {
                return wrong_shape(
                    "stack",
                    format!("shapes {dims:?} and {:?} differ", other.shape()),
                );
            }
            // One after the other along the axis that the new one comes before, then cut: no node
            // for each tensor.
            let at = if axis < 0 { axis + dims.len() as isize + 1 } else { axis };
            if (0..dims.len() as isize).contains(&at)
                && nodes.iter().all(|u| u.extents().is_empty())
            {
                let (all, at) = (along("stack", tensors, nodes, at)?, at as usize);
                return all.movement(Movement::reshape(
                    dims[..at]
                        .iter()
                        .copied()
                        .chain([tensors.len()])
                        .chain(dims[at..].iter().copied()),
                ));
            }
            Tensor::try_cat(
                &tensors.iter().map(|t| t.try_unsqueeze(axis)).collect::<Result<Vec<_>>>()?,
                axis,
            )
        }

        /// The whole repeated along each axis. More counts than axes repeat along new axes in
        /// front.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::new([1, 2]).repeat([2, 2]).to_vec::<i32>()?,
        ///     [1, 2, 1, 2, 1, 2, 1, 2]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn repeat | try_repeat(&self, counts: impl Into<Sizes>) -> Tensor {
            let (counts, dims) = (counts.into().shape("repeat")?, self.dims());
            if counts.len() < dims.len() {
                return wrong_shape(
                    "repeat",
                    format!("{counts:?} has fewer counts than {dims:?} has axes"),
                );
            }
            let ones = std::iter::repeat_n(1, counts.len() - dims.len());
            let dims: Dims = ones.chain(dims).collect();
            self.movement(Movement::reshape(dims.iter().flat_map(|&n| [1, n])))?
                .movement(Movement::expand(counts.iter().zip(&dims).flat_map(|(&c, &n)| [c, n])))?
                .movement(Movement::reshape(counts.iter().zip(&dims).map(|(c, n)| c * n)))
        }

        /// Each slice along an axis repeated `count` times in place.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(
        ///     Tensor::new([1, 2]).repeat_interleave(2, 0).to_vec::<i32>()?,
        ///     [1, 1, 2, 2]
        /// );
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn repeat_interleave | try_repeat_interleave(
            &self,
            count: usize,
            axis: isize,
        ) -> Tensor {
            let dims = self.dims();
            let at = resolve_axis("repeat_interleave", axis, &dims)?;
            let mut wide = dims.clone();
            wide.insert(at + 1, count);
            checked_numel("repeat_interleave", &wide)?;
            let mut out = dims;
            out[at] = out[at].saturating_mul(count);
            self.try_unsqueeze(at as isize + 1)?
                .movement(Movement::Expand(wide))?
                .movement(Movement::Reshape(out))
        }

        /// Pieces along an axis. One size is that of every piece but perhaps the last; a list gives
        /// the size of each.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let sizes =
        ///     |pieces: Vec<Tensor>| pieces.iter().map(|t| t.numel()).collect::<Vec<_>>();
        /// let x = Tensor::arange(0, 5, 1);
        /// assert_eq!(sizes(x.split(2, 0)), [2, 2, 1]);
        /// assert_eq!(sizes(x.split([1, 4], 0)), [1, 4]);
        /// ```
        pub fn split | try_split(&self, sizes: impl Into<Sizes>, axis: isize) -> Vec<Tensor> {
            let (sizes, dims) = (sizes.into().shape("split")?, self.dims());
            let at = resolve_axis("split", axis, &dims)?;
            let mut sizes = sizes;
            if let [every] = sizes[..] {
                if every == 0 {
                    return wrong_shape(
                        "split",
                        format!("pieces of size 0 of axis {axis} of {dims:?}"),
                    );
                }
                limits::check(dims[at].div_ceil(every).saturating_mul(PIECE))?;
                sizes = (0..dims[at].max(1))
                    .step_by(every)
                    .map(|start| every.min(dims[at] - start))
                    .collect();
            }
            if sizes.iter().try_fold(0usize, |n, s| n.checked_add(*s)) != Some(dims[at]) {
                return wrong_shape(
                    "split",
                    format!(
                        "{sizes:?} does not add up to the {} of axis {axis} of {dims:?}",
                        dims[at]
                    ),
                );
            }
            let mut start = 0;
            let mut piece = |size: usize| {
                start += size;
                self.slice_axis(at, start - size, start)
            };
            sizes.into_iter().map(&mut piece).collect()
        }

        /// At most `chunks` pieces of equal size along an axis, the last perhaps shorter.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let sizes: Vec<usize> =
        ///     Tensor::zeros([5]).chunk(3, 0).iter().map(|t| t.numel()).collect();
        /// assert_eq!(sizes, [2, 2, 1]);
        /// ```
        pub fn chunk | try_chunk(&self, chunks: usize, axis: isize) -> Vec<Tensor> {
            let size = self.dim("chunk", axis)?;
            if chunks == 0 {
                return wrong_shape(
                    "chunk",
                    format!("0 pieces of axis {axis} of {:?}", self.dims()),
                );
            }
            self.try_split(size.div_ceil(chunks).max(1), axis)
        }

        /// The elements moved along axes, those pushed over the end coming back at the front: a
        /// shift for each axis. Without axes, `()`, the tensor is rolled as if it had one.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1, 2, 3]).roll(1, 0).to_vec::<i32>()?, [3, 1, 2]);
        /// let x = Tensor::new([[1, 2], [3, 4]]);
        /// assert_eq!(x.roll([1, 1], [0, 1]).to_vec::<i32>()?, [4, 3, 2, 1]);
        /// assert_eq!(x.roll(1, ()).to_vec::<i32>()?, [4, 1, 2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn roll | try_roll(
            &self,
            shifts: impl Into<Sizes>,
            axes: impl Into<Sizes>,
        ) -> Tensor {
            let (shifts, axes, dims) = (shifts.into().0, axes.into().0, self.dims());
            if axes.is_empty() && shifts.len() == 1 {
                let flat = self.movement(Movement::reshape([self.max_numel()]))?;
                return flat.try_roll(shifts[0], 0)?.movement(Movement::Reshape(dims));
            }
            if shifts.len() != axes.len() {
                return wrong_shape(
                    "roll",
                    format!(
                        "shifts {shifts:?} for axes {axes:?} of {dims:?}: there is one for each"
                    ),
                );
            }
            let mut x = self.copy();
            for (&shift, &axis) in shifts.iter().zip(&axes) {
                x = x.rolled(shift, resolve_axis("roll", axis, &dims)?)?;
            }
            Ok(x)
        }

        /// The diagonal of two axes, as the last axis of the result. It begins `offset` to the
        /// right of the first element, or below it if that is negative.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([[1, 2, 3], [4, 5, 6]]);
        /// assert_eq!(x.diagonal(0, 0, 1).to_vec::<i32>()?, [1, 5]);
        /// assert_eq!(x.diagonal(1, 0, 1).to_vec::<i32>()?, [2, 6]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn diagonal | try_diagonal(&self, offset: isize, a: isize, b: isize) -> Tensor {
            let dims = self.dims();
            let (a, b) = (resolve_axis("diagonal", a, &dims)?, resolve_axis("diagonal", b, &dims)?);
            if a == b {
                return wrong_shape("diagonal", format!("of axis {a} of {dims:?} with itself"));
            }
            let others = (0..dims.len()).filter(|&i| i != a && i != b);
            let rest: Dims = others.clone().map(|i| dims[i]).collect();
            let (down, right) = (
                offset.min(0).unsigned_abs().min(dims[a]),
                offset.max(0).unsigned_abs().min(dims[b]),
            );
            let n = (dims[a] - down).min(dims[b] - right);
            let last = |sizes: &[usize]| Movement::reshape(rest.iter().chain(sizes).copied());
            let mut square = self.movement(Movement::permute(others.chain([a, b])))?;
            square = square.slice_axis(rest.len(), down, down + n)?.slice_axis(
                rest.len() + 1,
                right,
                right + n,
            )?;
            if n == 0 {
                return square.movement(last(&[0]));
            }
            // Laid out in rows of one element more, the diagonal of a square is the first column;
            // the last row is filled up.
            let flat = square
                .movement(last(&[n * n]))?
                .movement(Movement::pad(rest.iter().map(|_| (0, 0)).chain([(0, n)])))?;
            flat.movement(last(&[n, n + 1]))?.slice_axis(rest.len() + 1, 0, 1)?.movement(last(&[n]))
        }

        /// A matrix with these elements on its diagonal; of a matrix its diagonal.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 2]).diag();
        /// assert_eq!(x.to_vec::<i32>()?, [1, 0, 0, 2]);
        /// assert_eq!(x.diag().to_vec::<i32>()?, [1, 2]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn diag | try_diag(&self) -> Tensor {
            let n = match self.dims()[..] {
                [n] => n,
                [_, _] => return self.try_diagonal(0, 0, 1),
                _ => {
                    return wrong_shape(
                        "diag",
                        format!("expected one axis or two, got {:?}", self.dims()),
                    );
                }
            };
            let wide =
                self.try_unsqueeze(-1)?.try_pad(&[(0, 0), (0, n)])?.try_reshape([n * (n + 1)])?;
            wide.try_shrink(&[(0, n * n)])?.try_reshape([n, n])
        }

        /// Windows of `size` elements along an axis, `step` apart: the axis counts the windows, and
        /// a new last axis holds their elements.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::arange(0, 5, 1).unfold(0, 3, 2);
        /// assert_eq!((x.shape(), x.to_vec::<i32>()?), (vec![2, 3], vec![0, 1, 2, 2, 3, 4]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn unfold | try_unfold(&self, axis: isize, size: usize, step: usize) -> Tensor {
            let at = resolve_axis("unfold", axis, &self.dims())?;
            if size == 0 || step == 0 {
                return wrong_shape("unfold", format!("windows of {size} elements, {step} apart"));
            }
            let last = self.ndim() - 1;
            let order = (0..=last).filter(|&i| i != at).chain([at]);
            let windows = windows(
                "unfold",
                &self.movement(Movement::permute(order))?,
                &[Window { kernel: size, stride: step, dilation: 1 }],
            )?;
            windows.movement(Movement::permute(
                (0..at).chain([last]).chain(at..last).chain([last + 1]),
            ))
        }

        /// Zeros after the end of each axis up to a shape; -1 leaves an axis as it is.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2]]).pad_to([2, -1]).to_vec::<i32>()?, [1, 2, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn pad_to | try_pad_to(&self, shape: impl Into<Sizes>) -> Tensor {
            let (dims, to) = (self.dims(), self.sizes_to("pad_to", &shape.into())?);
            if dims.iter().zip(&to).any(|(n, m)| n > m) {
                return wrong_shape("pad_to", format!("{dims:?} is longer than {to:?}"));
            }
            self.movement(Movement::pad(dims.iter().zip(&to).map(|(n, m)| (0, m - n))))
        }

        /// The beginning of each axis up to a shape; -1 leaves an axis as it is.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).shrink_to([-1, 1]).to_vec::<i32>()?, [1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn shrink_to | try_shrink_to(&self, shape: impl Into<Shape>) -> Tensor {
            let shape = shape.into();
            let to = self.sizes_to("shrink_to", shape.sizes("shrink_to")?)?;
            shape.cut(
                "shrink_to",
                self.movement(Movement::shrink(to.iter().map(|&m| (0, m))))?,
                |_| true,
            )
        }
    }

    /// One axis moved on by a shift.
    fn rolled(&self, shift: isize, at: usize) -> Result<Tensor> {
        let dims = self.dims();
        let size = dims[at];
        self.require_static("roll", [at])?;
        if size == 0 {
            return Ok(self.copy());
        }
        // A window of the tensor laid twice end to end.
        let start = (size - shift.rem_euclid(size as isize) as usize) % size;
        let twice = self.movement(Movement::reshape(
            dims[..at].iter().copied().chain([1]).chain(dims[at..].iter().copied()),
        ))?;
        let twice = twice.movement(Movement::expand(
            dims[..at].iter().copied().chain([2]).chain(dims[at..].iter().copied()),
        ))?;
        let twice = twice.try_flatten(at as isize, at as isize + 1)?;
        twice.slice_axis(at, start, start + size)
    }

    /// A size for each axis, with -1 for that of the axis itself.
    fn sizes_to(&self, op: &'static str, shape: &Sizes) -> Result<Dims> {
        let dims = self.dims();
        if shape.0.len() != dims.len() {
            return wrong_shape(
                op,
                format!("{:?} has {} sizes for the axes of {dims:?}", shape.0, shape.0.len()),
            );
        }
        Sizes(
            shape
                .0
                .iter()
                .zip(&dims)
                .map(|(&n, &own)| if n == -1 { own as isize } else { n })
                .collect(),
        )
        .shape(op)
    }

    /// `start..end` of one axis, the others whole.
    pub(in crate::tensor) fn slice_axis(
        &self,
        axis: usize,
        start: usize,
        end: usize,
    ) -> Result<Tensor> {
        let ranges: Ranges = self
            .dims()
            .iter()
            .enumerate()
            .map(|(i, &n)| if i == axis { (start, end) } else { (0, n) })
            .collect();
        self.movement(Movement::Shrink(ranges))
    }
}
