//! Creation of tensors from Rust numbers, files and rules. Tensors from rules (`full`, `arange`,
//! `eye`) take no memory until they are stored.

use super::cross_entropy::check_classes;
use crate::device::{Buffer, limits};
use crate::dtype::{Const, DType, Element, F8E4M3, F8E5M2, as_bytes};
use crate::error::Result;
use crate::ir::UOp;
use crate::shape::{Dims, checked_numel};
use crate::tensor::broadcast::{Operand, broadcast_to, cast_uop};
use crate::tensor::realize::{buffer, default_device};
use crate::tensor::{Shape, Sizes, Tensor, or_panic};
use half::{bf16, f16};

/// Source of a tensor: a number, or arrays, slices and `Vec`s of them, nested to any depth.
pub trait Data {
    /// Rust type of an element; its dtype is the tensor's.
    type Elem: Element;
    /// Appends the sizes of this level and the nested ones. Uneven nesting is an error.
    fn sizes(&self, out: &mut Vec<usize>) -> Result<()>;
    /// Appends the elements in row-major order.
    fn elements(&self, out: &mut Vec<Self::Elem>);
}

macro_rules! numbers {
    ($($t:ty)*) => { $(
        impl Data for $t {
            type Elem = $t;
            fn sizes(&self, _: &mut Vec<usize>) -> Result<()> { Ok(()) }
            fn elements(&self, out: &mut Vec<$t>) { out.push(*self) }
        }
    )* };
}
numbers! { bool i8 i16 i32 i64 u8 u16 u32 u64 F8E4M3 F8E5M2 f16 bf16 f32 f64 }

impl<D: Data> Data for [D] {
    type Elem = D::Elem;
    fn sizes(&self, out: &mut Vec<usize>) -> Result<()> {
        out.push(self.len());
        let Some((first, rest)) = self.split_first() else { return Ok(()) };
        let start = out.len();
        first.sizes(out)?;
        for (i, item) in rest.iter().enumerate() {
            let mut sizes = Vec::new();
            item.sizes(&mut sizes)?;
            if sizes != out[start..] {
                return wrong_shape!(
                    "new",
                    "uneven nesting: item 0 has shape {:?} and item {} has {sizes:?}",
                    &out[start..],
                    i + 1
                );
            }
        }
        Ok(())
    }
    fn elements(&self, out: &mut Vec<D::Elem>) {
        self.iter().for_each(|d| d.elements(out));
    }
}

/// Sources that delegate to another one.
macro_rules! delegates {
    ($(($($generics:tt)*) $t:ty, |$this:ident| $inner:expr;)*) => { $(
        impl<$($generics)*> Data for $t {
            type Elem = D::Elem;
            fn sizes(&self, out: &mut Vec<usize>) -> Result<()> {
                let $this = self;
                $inner.sizes(out)
            }
            fn elements(&self, out: &mut Vec<D::Elem>) {
                let $this = self;
                $inner.elements(out)
            }
        }
    )* };
}
delegates! {
    (D: Data, const N: usize) [D; N], |list| list.as_slice();
    (D: Data) Vec<D>, |list| list.as_slice();
    (D: Data + ?Sized) &D, |data| (**data);
}

impl<D: Data> From<D> for Tensor {
    /// Same as [`Tensor::new`]; uneven nesting panics.
    #[track_caller]
    fn from(data: D) -> Tensor {
        Tensor::new(data)
    }
}

/// Scalar constant on the default device.
fn scalar(value: Const, dtype: DType) -> Tensor {
    Tensor::from_uop(UOp::constant(value, dtype), default_device())
}

/// Returns `0 … n-1`, in `i32` if `n` fits and in `i64` otherwise.
pub(in crate::tensor) fn iota(n: usize) -> Tensor {
    let node = UOp::iota(n, index_dtype(n));
    Tensor::from_uop(node, default_device())
}

/// Returns the dtype of integers up to `n`: `i32`, or `i64` if they exceed it.
pub(super) fn index_dtype(n: impl TryInto<i32>) -> DType {
    if n.try_into().is_ok() { DType::I32 } else { DType::I64 }
}

impl Tensor {
    fallible! {
        /// Creates a tensor from a number or from nested arrays, slices and `Vec`s. The dtype
        /// follows the Rust type; a bare `1.0` is an `f64`.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
        /// assert_eq!((x.shape(), x.dtype()), (vec![2, 2], DType::F32));
        /// assert_eq!(Tensor::new(&vec![1u8, 2]).dtype(), DType::U8);
        /// assert!(Tensor::try_new(vec![vec![1], vec![2, 3]]).is_err());
        /// ```
        pub fn new | try_new(data: impl Data) -> Tensor {
            let mut sizes = Vec::new();
            data.sizes(&mut sizes)?;
            let mut elements = limits::vec(checked_numel("new", &sizes)?)?;
            data.elements(&mut elements);
            if sizes.is_empty() {
                let one = elements.first().map(|e| scalar_of(*e));
                return one.map_or_else(|| shape_error!("expected a number, got none"), Ok);
            }
            Tensor::try_from_vec(elements, sizes)
        }

        /// Creates a tensor of the given shape from elements in row-major order.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::from_vec(vec![1, 2, 3, 4, 5, 6], [2, 3]).shape(), [2, 3]);
        /// assert!(Tensor::try_from_vec(vec![1, 2, 3], [2, 2]).is_err());
        /// ```
        pub fn from_vec | try_from_vec(data: Vec<impl Element>, shape: impl Into<Sizes>) -> Tensor {
            from_slice("from_vec", &data, &shape.into())
        }

        /// Creates a tensor of the given shape from a slice of elements in row-major order.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::from_slice(&[1, 2, 3, 4], [2, 2]).t();
        /// assert_eq!(y.to_vec::<i32>()?, [1, 3, 2, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn from_slice | try_from_slice(
            data: &[impl Element], shape: impl Into<Sizes>,
        ) -> Tensor {
            from_slice("from_slice", data, &shape.into())
        }

        /// Creates a tensor from the little-endian bytes of its elements.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// let y = Tensor::from_bytes(&[1, 0, 2, 1], DType::U16, [2]);
        /// assert_eq!(y.to_vec::<u16>()?, [1, 258]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn from_bytes | try_from_bytes(
            bytes: &[u8], dtype: DType, shape: impl Into<Sizes>,
        ) -> Tensor {
            let shape = shape.into().shape("from_bytes")?;
            if !DType::ALL.contains(&dtype) {
                let all = DType::ALL.iter().map(DType::to_string).collect::<Vec<_>>().join(", ");
                return dtype_error!("a tensor cannot hold {dtype}; expected one of {all}");
            }
            let needed = checked_numel("from_bytes", &shape)?.checked_mul(dtype.itemsize());
            if needed != Some(bytes.len()) {
                let needed = needed.map_or("too many to count".to_string(), |n| n.to_string());
                let given = bytes.len();
                return shape_error!(
                    "{given} bytes given for {dtype} of shape {shape:?}, which needs {needed}"
                );
            }
            let device = default_device();
            Tensor::from_uop(buffer(bytes, dtype, &device)?, device).shaped(shape)
        }

        /// Tensor filled with one value, in the dtype of the value.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::full([2, 2], 7i32).to_vec::<i32>()?, [7, 7, 7, 7]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn full | try_full(shape: impl Into<Shape>, value: impl Element) -> Tensor {
            filled("full", &shape.into(), scalar_of(value))
        }

        /// Tensor filled with zeros, in `f32`; use `full` or `cast` for other dtypes.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::zeros([2]).to_vec::<f32>()?, [0.0, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn zeros | try_zeros(shape: impl Into<Shape>) -> Tensor {
            filled("zeros", &shape.into(), scalar_of(0f32))
        }

        /// Tensor filled with ones, in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::ones([2]).to_vec::<f32>()?, [1.0, 1.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn ones | try_ones(shape: impl Into<Shape>) -> Tensor {
            filled("ones", &shape.into(), scalar_of(1f32))
        }

        /// Tensor of unspecified elements, in `f32`, to be assigned.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::empty([2]);
        /// x.assign(5.0)?;
        /// assert_eq!(x.to_vec::<f32>()?, [5.0, 5.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn empty | try_empty(shape: impl Into<Shape>) -> Tensor {
            filled("empty", &shape.into(), scalar_of(0f32))
        }

        /// Alias of [`empty`](Self::empty).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::invalids([2]);
        /// x.assign(Tensor::new([1.0f32, 2.0]))?;
        /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn invalids | try_invalids(shape: impl Into<Shape>) -> Tensor {
            Tensor::try_empty(shape)
        }

        /// Creates a tensor over existing memory, such as a `Vec` or an `Arc<[f32]>`, which the
        /// tensor keeps alive. Devices that compute in host memory read it without a copy.
        /// Assignments to the tensor never write to it.
        ///
        /// ```
        /// use picograd::Tensor;
        /// use std::sync::Arc;
        /// let shared: Arc<[f32]> = Arc::from([1.0, 2.0, 3.0, 4.0]);
        /// let x = Tensor::from_blob(shared.clone(), [2, 2]);
        /// assert_eq!(x.sum(0).to_vec::<f32>()?, [4.0, 6.0]);
        /// x.assign(0.0)?;
        /// x.realize()?;
        /// assert_eq!(shared[..], [1.0, 2.0, 3.0, 4.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn from_blob | try_from_blob<T: Element>(
            data: impl AsRef<[T]> + Send + Sync + 'static, shape: impl Into<Sizes>,
        ) -> Tensor {
            let device = default_device();
            let buffer = Buffer::borrowed(&device, data)?;
            let shape = given_shape("from_blob", buffer.size(), &shape.into())?;
            Tensor::from_uop(buffer.node(), device).shaped(shape)
        }

        /// Returns the values from `start` up to but excluding `end`, with spacing `step`, in the
        /// dtype of the arguments.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::arange(5, 0, -2).to_vec::<i32>()?, [5, 3, 1]);
        /// assert_eq!(Tensor::arange(0f32, 1.0, 0.25).to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn arange | try_arange<T: Element>(start: T, end: T, step: T) -> Tensor {
            arange(T::DTYPE, start.to_const(), end.to_const(), step.to_const())
        }

        /// Returns `steps` evenly spaced values from `start` to `end`, inclusive, in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::linspace(0.0, 1.0, 5).to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn linspace | try_linspace(start: f64, end: f64, steps: usize) -> Tensor {
            checked_numel("linspace", &[steps])?;
            let delta = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
            let i = iota(steps).cast(DType::F32);
            // Each half starts at its own end, so that both end points are exact.
            let up = &i * delta + start;
            let down = (&i * -1.0 + (steps as f64 - 1.0)) * -delta + end;
            i.lt(steps.div_ceil(2) as f64).try_where_(up, down)
        }

        /// Identity matrix of `rows` × `cols`, in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::eye(2, 3).to_vec::<f32>()?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn eye | try_eye(rows: usize, cols: usize) -> Tensor {
            checked_numel("eye", &[rows, cols])?;
            iota(rows).try_unsqueeze(-1)?.try_eq(iota(cols))?.try_cast(DType::F32)
        }

        /// Coordinate grids: the i-th result holds the i-th input along axis i, broadcast along the
        /// others.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let grid = Tensor::meshgrid(&[Tensor::new([1, 2]), Tensor::new([3, 4, 5])]);
        /// assert_eq!(grid[0].to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
        /// assert_eq!(grid[1].to_vec::<i32>()?, [3, 4, 5, 3, 4, 5]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn meshgrid | try_meshgrid(axes: &[Tensor]) -> Vec<Tensor> {
            let mut shape = Vec::new();
            for t in axes {
                let [n] = t.dims()[..] else {
                    let dims = t.dims();
                    return shape_error!("expected tensors of one axis, got {dims:?}");
                };
                shape.push(n);
            }
            let grid = |(i, t): (usize, &Tensor)| t.line_along(i, shape.len())?.try_expand(&shape);
            axes.iter().enumerate().map(grid).collect()
        }

        /// One-hot encoding along a new last axis, in `i32`. An integer outside `0..classes` is an
        /// error if the tensor is in host memory; otherwise its row is zero.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([2, 0]).one_hot(3).to_vec::<i32>()?, [0, 0, 1, 1, 0, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn one_hot | try_one_hot(&self, classes: usize) -> Tensor {
            reject_dtype!(!self.dtype().is_int(), "expected integers, got {}", self.dtype());
            checked_numel("one_hot", &[&self.dims()[..], &[classes]].concat())?;
            checked_numel("one_hot", &[classes])?;
            check_classes(self, classes, None)?;
            self.try_unsqueeze(-1)?.try_eq(iota(classes))?.try_cast(DType::I32)
        }

        /// Lower triangle of the last two axes, with zeros elsewhere. A positive `diagonal`
        /// includes as many diagonals above the main one.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::full([2, 3], 1).tril(0).to_vec::<i32>()?, [1, 0, 0, 1, 1, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn tril | try_tril(&self, diagonal: i64) -> Tensor {
            let (offset, diagonal) = self.diagonal_offsets(diagonal)?;
            offset.try_le(diagonal)?.try_where_(self, 0)?.try_cast(self.dtype())
        }

        /// Upper triangle of the last two axes, with zeros elsewhere. A positive `diagonal`
        /// excludes as many diagonals from the main one on.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::full([2, 2], 1).triu(0).to_vec::<i32>()?, [1, 1, 0, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn triu | try_triu(&self, diagonal: i64) -> Tensor {
            let (offset, diagonal) = self.diagonal_offsets(diagonal)?;
            offset.try_ge(diagonal)?.try_where_(self, 0)?.try_cast(self.dtype())
        }
    }

    /// Returns the bytes of a file, as `u8` on the device `DISK`. They take no memory until they
    /// are copied to another device. `device::disk` describes files that change meanwhile.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let path = std::env::temp_dir().join(format!("doc-{}.bin", std::process::id()));
    /// std::fs::write(&path, [1u8, 2, 3, 4]).unwrap();
    /// let bytes = Tensor::from_file(&path)?;
    /// assert_eq!((bytes.device().as_str(), bytes.shape()), ("DISK", vec![4]));
    /// assert_eq!((bytes.shrink(&[(1, 3)]).to("CPU") * 2).to_vec::<u8>()?, [4, 6]);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn from_file(path: impl AsRef<std::path::Path>) -> Result<Tensor> {
        let file = Buffer::of_file(path.as_ref())?;
        Ok(Tensor::from_uop(file.node(), file.device_name().clone()))
    }

    /// Returns the column index minus the row index over the last two axes, and a diagonal within
    /// their range, which the dtype of the indices can hold.
    fn diagonal_offsets(&self, diagonal: i64) -> Result<(Tensor, i64)> {
        let dims = self.dims();
        let [.., rows, columns] = dims[..] else {
            return shape_error!("expected two axes or more, got {dims:?}");
        };
        let at = dims.len() - 2;
        let offset = self.iota_along(at + 1)?.try_sub(self.iota_along(at)?)?;
        Ok((offset, diagonal.clamp(-(rows as i64), columns as i64)))
    }

    /// Tensor filled with one value, with this tensor's shape, dtype and device.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u8, 2]).full_like(7).to_vec::<u8>()?, [7, 7]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn full_like(&self, value: impl Into<Operand>) -> Tensor {
        let uop = match value.into() {
            Operand::Scalar(c, _) => UOp::constant(c, self.dtype()),
            Operand::Tensor(t) => cast_uop(&t.uop(), self.dtype()),
        };
        let value = self.with_uop(uop);
        self.match_extents(or_panic(filled("full_like", &Shape::from(&self.dims()), value)))
    }
    /// Alias of [`full_like`](Self::full_like).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).const_like(3).to_vec::<i32>()?, [3, 3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn const_like(&self, value: impl Into<Operand>) -> Tensor {
        self.full_like(value)
    }
    /// Tensor of unspecified elements with this tensor's shape, dtype and device.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// assert_eq!(Tensor::new([1u8, 2]).empty_like().dtype(), DType::U8);
    /// ```
    pub fn empty_like(&self) -> Tensor {
        self.zeros_like()
    }
    /// Tensor filled with zeros, with this tensor's shape, dtype and device.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1, 2]).zeros_like().to_vec::<i32>()?, [0, 0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0)
    }
    /// Tensor filled with ones, with this tensor's shape, dtype and device.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([5, 2]).ones_like().to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1)
    }
}

fn scalar_of<T: Element>(value: T) -> Tensor {
    scalar(value.to_const(), T::DTYPE)
}

fn filled(op: &'static str, shape: &Shape, value: Tensor) -> Result<Tensor> {
    let full = broadcast_to(op, &value, &shape.sizes(op)?.shape(op)?)?;
    shape.slice_symbolic(op, full, |_| true)
}

fn from_slice<T: Element>(op: &'static str, data: &[T], shape: &Sizes) -> Result<Tensor> {
    let shape = given_shape(op, data.len(), shape)?;
    let device = default_device();
    Tensor::from_uop(buffer(as_bytes(data), T::DTYPE, &device)?, device).shaped(shape)
}

/// Resolves a shape for `len` elements; one size may be -1.
fn given_shape(op: &'static str, len: usize, shape: &Sizes) -> Result<Dims> {
    let shape = shape.infer(op, &[len])?;
    let numel = checked_numel(op, &shape)?;
    if numel != len {
        return wrong_shape!(op, "{len} elements given for shape {shape:?}, which has {numel}");
    }
    Ok(shape)
}

fn arange(dtype: DType, start: Const, end: Const, step: Const) -> Result<Tensor> {
    if dtype.is_bool() {
        return wrong_dtype!("arange", "expected integers or floats, got bools");
    }
    let (a, b, s) = (start.as_f64(dtype), end.as_f64(dtype), step.as_f64(dtype));
    let bad = |why: &str| wrong_shape!("arange", "from {a} to {b} by {s}: {why}");
    if s == 0.0 || !s.is_finite() || !a.is_finite() || !b.is_finite() {
        return bad("the step must not be zero, and all must be finite");
    }
    let steps = match (start, end, step) {
        // Exact where `f64` would round.
        (Const::Int(x), Const::Int(y), Const::Int(z)) => {
            let wide = |v: i64| if dtype.is_unsigned() { v as u64 as i128 } else { v as i128 };
            let (gap, by) = ((wide(y) - wide(x)) * wide(z).signum(), wide(z).abs());
            ((gap.max(0) + by - 1) / by) as f64
        }
        _ => ((b - a) / s).ceil().max(0.0),
    };
    if steps >= isize::MAX as f64 {
        return bad("more elements than an index can count");
    }
    let i = iota(steps as usize);
    if (a, s) == (0.0, 1.0) {
        return i.try_cast(dtype);
    }
    // Narrow floats are computed in `f32` and rounded once; integers wrap correctly in any width.
    let wide = if dtype.is_float() && dtype.bits() < 32 { DType::F32 } else { dtype };
    let literal =
        |c: Const| Tensor::from_uop(UOp::constant(c.cast(dtype, wide), wide), default_device());
    (i.try_cast(wide)?.try_mul(literal(step))?).try_add(literal(start))?.try_cast(dtype)
}
