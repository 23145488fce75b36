//! Lazy tensors: handles on graphs of operations.
//!
//! Methods check their arguments and add [`UOp`] nodes to a graph; nothing is computed. Reading
//! values (`to_vec`, `item`, `realize`, printing) runs the graph.
//!
//! | file | contents |
//! |---|---|
//! | `args`, `broadcast` | argument types; promotion and broadcasting of operands |
//! | `variable` | symbolic dimensions |
//! | `realize`, `read`, `assign` | realization, reading, assignment |
//! | `holders`, `in_place` | tensors by node; locks of in-place writes |
//! | `display` | formatting |
//! | `autocast` | mixed precision |
//! | `custom` | custom kernels |
//! | `shard` | tensors on several devices |
//! | `jit` | capture and replay of functions |
//! | `grad/{gradient,checkpoint,function}` | gradients; rematerialization; traced functions |
//! | `ops/{create,random,distribution}` | creation, random numbers, distributions |
//! | `ops/{movement,concat,pad}` | movement ops, concatenation and splitting, padding modes |
//! | `ops/{index,advanced}` | indexing |
//! | `ops/{gather,put,histogram}` | gather and scatter, counts and search |
//! | `ops/{elementwise,operators,compare,cast}` | arithmetic, operators, comparisons, dtypes |
//! | `ops/{math,inverse,special,compensated}` | elementwise functions |
//! | `ops/{activation,shrinkage}` | activation functions |
//! | `ops/{reduce,norm,statistics}` | reductions, softmax, normalization, order statistics |
//! | `ops/{scan,loops}` | cumulative reductions, loops over an axis |
//! | `ops/{sort,radix,bitonic}` | sorting |
//! | `ops/{matmul,einsum,vector,attention}` | matrix and vector products, attention |
//! | `ops/{conv,winograd,pool,adaptive}` | convolution and pooling |
//! | `ops/{interpolate,resample,grid}` | resampling of images |
//! | `ops/{loss,cross_entropy,margin_loss,likelihood_loss,ctc}` | losses |
//! | `ops/{linalg,solve,svd,matrix_norm}` | decompositions, linear systems, matrix norms |
//! | `ops/keccak` | hashes |
//!
//! Misuse panics at the caller's line with a message that names the operation, the shapes and the
//! dtypes. Each such method `x` has a `try_x` that returns an error instead. Methods that read a
//! device always return a `Result`.
//!
//! ```
//! use picograd::Tensor;
//! let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
//! let y = (&x * 2.0 + 1.0).sum(0);
//! assert_eq!(y.to_vec::<f32>()?, [10.0, 14.0]);
//! assert!(x.try_reshape([3, 3]).is_err());
//! # Ok::<(), picograd::Error>(())
//! ```

use crate::dtype::{Const, DType};
use crate::error::Result;
use crate::ir::{DeviceName, Op, StorageRef, UOp};
use crate::shape::{Dims, Movement, moved_extents};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

/// Defines fallible methods once: `pub fn x | try_x(…) -> T { … }`, with a body of type
/// `Result<T>`, defines `try_x` with that body, and `x`, which panics at its caller with the
/// error's message. Shape, index and dtype errors of the body are attributed to `x`, so that
/// helpers need not know its name.
macro_rules! fallible {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident | $try_name:ident $(<$t:ident: $bound:path>)?
            ($(&$self:ident)? $(,)? $($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block
    )*) => { $(
        $(#[$meta])*
        #[track_caller]
        pub fn $name$(<$t: $bound>)?($(&$self,)? $($arg: $ty),*) -> $ret {
            $crate::tensor::or_panic(Self::$try_name($($self,)? $($arg),*))
        }
        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name))]
        #[doc = "), with misuse as an error in place of a panic."]
        pub fn $try_name$(<$t: $bound>)?($(&$self,)? $($arg: $ty),*)
            -> $crate::error::Result<$ret>
        {
            let _operation = $crate::tensor::autocast::enter();
            let checked = move || -> $crate::error::Result<$ret> { $body };
            checked().map_err(|e| e.of_op(stringify!($name).trim_end_matches('_')))
        }
    )* };
}

/// An `Err` with a [shape error](crate::error::Error::Shape): the op, then a format string and its
/// arguments.
macro_rules! wrong_shape {
    ($op:expr, $($msg:tt)+) => {
        Err($crate::error::Error::Shape { op: $op, msg: format!($($msg)+) })
    };
}

/// An `Err` with an [index error](crate::error::Error::Index).
macro_rules! wrong_index {
    ($op:expr, $($msg:tt)+) => {
        Err($crate::error::Error::Index { op: $op, msg: format!($($msg)+) })
    };
}

/// An `Err` with a [dtype error](crate::error::Error::DType).
macro_rules! wrong_dtype {
    ($op:expr, $($msg:tt)+) => {
        Err($crate::error::Error::DType { op: $op, msg: format!($($msg)+) })
    };
}

/// [`wrong_shape!`] inside methods of [`fallible!`], which attributes the error to the method.
macro_rules! shape_error {
    ($($msg:tt)+) => { wrong_shape!("tensor", $($msg)+) };
}

/// [`wrong_index!`] inside methods of [`fallible!`].
macro_rules! index_error {
    ($($msg:tt)+) => { wrong_index!("tensor", $($msg)+) };
}

/// [`wrong_dtype!`] inside methods of [`fallible!`].
macro_rules! dtype_error {
    ($($msg:tt)+) => { wrong_dtype!("tensor", $($msg)+) };
}

/// Returns a [`shape_error!`] if a condition holds.
macro_rules! reject_shape {
    ($wrong:expr, $($msg:tt)+) => { if $wrong { return shape_error!($($msg)+); } };
}

/// Returns a [`dtype_error!`] if a condition holds.
macro_rules! reject_dtype {
    ($wrong:expr, $($msg:tt)+) => { if $wrong { return dtype_error!($($msg)+); } };
}

/// An `Err` with a kind of [`Error`](crate::error::Error) that is a message only.
macro_rules! refuse {
    ($kind:ident, $($msg:tt)+) => {
        Err($crate::error::Error::$kind(format!($($msg)+)))
    };
}

/// Returns the result of the same call on the input in `f32` where autocast requires it.
macro_rules! in_wide_dtype {
    ($self:ident.$method:ident($($arg:expr),*)) => {
        if let Some(x) = $crate::tensor::autocast::wide($self) {
            return x.$method($($arg),*);
        }
    };
}

/// Implements conversions by an expression: generics, source and closure.
macro_rules! conversions {
    ($name:ty: $(($($generics:tt)*) $from:ty, |$x:ident| $to:expr;)*) => { $(
        impl $($generics)* From<$from> for $name {
            fn from($x: $from) -> $name {
                $to
            }
        }
    )* };
}

/// Defines the methods of an options struct: `new`, with the default values if they are not
/// derived, and methods that replace a field: `name(argument: Type) field = value`.
macro_rules! setters {
    ($options:ident; $(#[$new:meta])* new $(= $default:expr)?; $(
        $(#[$meta:meta])* $name:ident($($arg:ident: $ty:ty)?) $field:ident = $value:expr;
    )*) => {
        $(impl Default for $options {
            fn default() -> $options {
                $default
            }
        })?
        impl $options {
            $(#[$new])*
            pub fn new() -> $options {
                $options::default()
            }
            $(
                $(#[$meta])*
                pub fn $name(self $(, $arg: $ty)?) -> $options {
                    $options { $field: $value, ..self }
                }
            )*
        }
    };
}

mod args;
mod assign;
pub(crate) mod autocast;
mod broadcast;
mod custom;
mod display;
mod grad;
mod holders;
mod in_place;
mod jit;
mod ops;
mod read;
mod realize;
mod shard;
mod variable;

pub use args::{Axes, Int, Shape, Sides, Size, Sizes, Spatial, keepdim};
pub use autocast::{autocast, no_autocast};
pub use broadcast::Operand;
pub use custom::CustomKernel;
pub use grad::checkpoint::checkpoint;
pub use grad::function::Function;
pub use grad::gradient::no_grad;
pub(crate) use grad::gradient::{realize_with_step, take_step_list};
pub use jit::{Jit, JitArg, JitOut, JitStats, Leaf};
pub use ops::attention::Attention;
pub use ops::conv::Conv;
pub use ops::create::Data;
pub use ops::cross_entropy::CrossEntropy;
pub use ops::ctc::Ctc;
pub use ops::elementwise::Rounding;
pub use ops::gather::Scatter;
pub use ops::grid::{GridMode, GridPadding, GridSample};
pub use ops::index::{AxisIndex, Indices, NewAxis, ToAxisIndex, step};
pub use ops::interpolate::Interpolate;
pub use ops::keccak::Keccak;
pub use ops::likelihood_loss::{GaussianNll, PoissonNll};
pub use ops::loops::Scanned;
pub use ops::loss::{BinaryCrossEntropy, Reduction};
pub use ops::margin_loss::{MultiMargin, TripletMargin};
pub use ops::matrix_norm::MatrixNorm;
pub use ops::pad::PadMode;
pub use ops::pool::Pool;
pub(crate) use ops::random::fans;
pub use ops::statistics::Quantile;
pub use ops::vector::DotAxes;

/// Lazy multi-dimensional array. Dtype, rank and device are values, not types. A clone is another
/// handle on the same tensor.
///
/// ```
/// use picograd::{DType, Tensor};
/// let x = Tensor::zeros([2, 3]);
/// assert_eq!((x.shape(), x.dtype(), x.numel()), (vec![2, 3], DType::F32, 6));
/// assert_eq!(format!("{x:?}"), format!("<Tensor f32 [2, 3] on {}: Expand>", x.device()));
/// ```
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    /// Node that computes the tensor; realization and assignment replace it.
    uop: RwLock<UOp>,
    /// Device; only in-place moves change it.
    device: RwLock<&'static DeviceName>,
    /// Storage of the value before an assignment, which the new value may reuse: one per device.
    reusable_storage: Mutex<Vec<StorageRef>>,
    /// Number of a parameter, whose node is a `Leaf` of that number.
    param: Option<u64>,
    /// True while a parameter is treated as a constant.
    frozen: AtomicBool,
    /// Gradient that `backward` accumulated.
    grad: Mutex<Option<Tensor>>,
}

impl Tensor {
    /// Wraps a node as a tensor on a device. The graph is not checked.
    ///
    /// # Safety
    /// [`verify::tensor`](crate::verify::tensor) has to accept the graph. Custom kernels in it have
    /// to stay inside their buffers, and each buffer has to hold valid values of its dtype: a bool
    /// is 0 or 1.
    ///
    /// ```
    /// use picograd::{DType, Tensor, compiler::ir::UOp};
    /// let device = Tensor::zeros([1]).device().clone();
    /// // SAFETY: the graph is one literal.
    /// let two = unsafe { Tensor::from_uop_unchecked(UOp::constant(2i64, DType::I32), device) };
    /// assert_eq!(two.item::<i32>()?, 2);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub unsafe fn from_uop_unchecked(uop: UOp, device: DeviceName) -> Tensor {
        Tensor::from_uop(uop, device)
    }
    /// Wraps a valid node as a tensor on a device.
    pub(crate) fn from_uop(uop: UOp, device: DeviceName) -> Tensor {
        Tensor::new_inner(uop, intern_device(&device), None)
    }
    fn new_inner(uop: UOp, device: &'static DeviceName, param: Option<u64>) -> Tensor {
        let (uop, device) = (RwLock::new(uop), RwLock::new(device));
        let tensor = Tensor(Arc::new(Inner {
            uop,
            device,
            reusable_storage: Mutex::default(),
            param,
            frozen: AtomicBool::new(false),
            grad: Mutex::default(),
        }));
        holders::note(&tensor, true);
        tensor
    }
    /// Returns the node that computes the tensor, detached inside [`no_grad`].
    ///
    /// ```
    /// use picograd::{Tensor, compiler::ir::Op};
    /// assert_eq!((Tensor::new([1, 2]) + 1).uop().op(), Op::Add);
    /// ```
    pub fn uop(&self) -> UOp {
        let uop = self.raw();
        if uop.requires_grad() && (grad::gradient::is_off() || self.is_frozen()) {
            uop.unary(Op::Detach)
        } else {
            uop
        }
    }
    /// Node without regard to [`no_grad`].
    fn raw(&self) -> UOp {
        holders::note_thread();
        // A panic between lock and unlock cannot leave a half-written handle.
        self.0.uop.read().unwrap_or_else(|e| e.into_inner()).clone()
    }
    /// Replaces the node, for every handle on this tensor.
    fn set_uop(&self, uop: UOp) {
        // Dropped after the lock is released, because the old graph may run a user's destructors.
        let _old =
            std::mem::replace(&mut *self.0.uop.write().unwrap_or_else(|e| e.into_inner()), uop);
        holders::note(self, false);
    }
    /// Returns the device that computes and stores the tensor.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2]).to("interp").device().as_str(), "INTERP");
    /// ```
    pub fn device(&self) -> &'static DeviceName {
        *self.0.device.read().unwrap_or_else(|e| e.into_inner())
    }
    /// Returns the identity of the tensor among live ones, shared by its handles.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
    /// Returns the sizes per axis; symbolic ones as their runtime size.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).shape(), [2, 3]);
    /// ```
    pub fn shape(&self) -> Vec<usize> {
        variable::runtime_sizes(&self.uop()).to_vec()
    }
    /// Element type.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// assert_eq!(Tensor::new([1u8, 2]).dtype(), DType::U8);
    /// ```
    pub fn dtype(&self) -> DType {
        self.uop().dtype()
    }
    /// Returns the number of axes.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).ndim(), 2);
    /// ```
    pub fn ndim(&self) -> usize {
        self.uop().shape().len()
    }
    /// Returns the number of elements.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).numel(), 6);
    /// ```
    pub fn numel(&self) -> usize {
        variable::runtime_sizes(&self.uop()).iter().product()
    }
    /// Returns the size of an axis; negative axes count from the end. Panics if there is no such
    /// axis.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::zeros([2, 3]);
    /// assert_eq!((x.size(0), x.size(-1)), (2, 3));
    /// ```
    #[track_caller]
    pub fn size(&self, axis: isize) -> usize {
        or_panic(self.dim("size", axis))
    }
    /// Returns the bytes per element.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).element_size(), 4);
    /// ```
    pub fn element_size(&self) -> usize {
        self.dtype().itemsize()
    }
    /// Returns the bytes of all elements.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).nbytes(), 24);
    /// ```
    pub fn nbytes(&self) -> usize {
        self.numel() * self.element_size()
    }
    /// Returns true if the elements are floats.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert!(Tensor::zeros([2]).is_floating_point() && !Tensor::new([1]).is_floating_point());
    /// ```
    pub fn is_floating_point(&self) -> bool {
        self.dtype().is_float()
    }
    /// Upper bounds of the sizes, which determine the memory layout: the shape, except for symbolic
    /// dimensions.
    ///
    /// ```
    /// use picograd::{Tensor, Variable};
    /// let x = Tensor::zeros([8, 3]);
    /// let part = x.i(..Variable::new("n", 1, 6)?.bind(2)?);
    /// assert_eq!((part.shape(), part.max_shape()), (vec![2, 3], vec![6, 3]));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn max_shape(&self) -> Vec<usize> {
        self.dims().to_vec()
    }
    /// Upper bound of the number of elements.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3]).max_numel(), 6);
    /// ```
    pub fn max_numel(&self) -> usize {
        self.uop().numel()
    }
    /// Copy of the present value. Unlike a `clone`, which is another handle on the same tensor, it
    /// does not see later assignments.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1, 2]);
    /// let copy = x.copy();
    /// x.assign(0)?;
    /// assert_eq!(copy.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn copy(&self) -> Tensor {
        self.with_uop(self.uop())
    }

    /// Tensor of another node on the same device.
    fn with_uop(&self, uop: UOp) -> Tensor {
        Tensor::new_inner(uop, self.device(), None)
    }
    /// Upper bounds of the sizes.
    fn dims(&self) -> Dims {
        self.uop().shape().clone()
    }
    fn dim(&self, op: &'static str, axis: isize) -> Result<usize> {
        let uop = self.uop();
        let axis = resolve_axis(op, axis, uop.shape())?;
        Ok(uop.extent(axis).map_or(uop.shape()[axis], |e| e.value() as usize))
    }
    /// Scalar constant of this tensor's dtype.
    fn literal(&self, value: impl Into<Const>) -> Tensor {
        self.with_uop(self.uop().const_like(value))
    }
    /// Applies a movement op; one without effect adds no node.
    fn movement(&self, m: Movement) -> Result<Tensor> {
        let uop = self.uop();
        if let (Movement::Reshape(to), false) = (&m, uop.extents().is_empty())
            && to.iter().product::<usize>() != uop.numel()
        {
            let (from, bounds) = (variable::format_shape(&uop), uop.shape());
            return wrong_shape!(
                "reshape",
                "{from} to {to:?}; expected sizes for the upper bounds {bounds:?} (max_shape)"
            );
        }
        let shape = m.apply_shape(uop.shape())?;
        moved_extents(&m, uop.shape(), uop.extents())?;
        let idle = match &m {
            Movement::Permute(axes) => axes.iter().enumerate().all(|(i, &a)| i == a),
            Movement::Flip(flags) => {
                flags.iter().zip(&shape).all(|(&flip, &size)| !flip || size <= 1)
            }
            _ => shape == *uop.shape(),
        };
        if idle {
            return Ok(self.copy());
        }
        Ok(self.with_uop(uop.moved(m)))
    }
}

impl From<&Tensor> for Tensor {
    /// Another handle on the same tensor.
    fn from(t: &Tensor) -> Tensor {
        t.clone()
    }
}

/// Interned device name; there are few, and they are never freed.
fn intern_device(name: &DeviceName) -> &'static DeviceName {
    static NAMES: Mutex<Vec<&'static DeviceName>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
    match names.iter().find(|n| **n == name) {
        Some(known) => known,
        None => {
            let known: &'static DeviceName = Box::leak(Box::new(name.clone()));
            names.push(known);
            known
        }
    }
}

/// Unwraps the value, or panics with the error's message at the caller's line.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("{e}"),
    }
}

/// Returns true for the axes 0 and -1 of a scalar, which are accepted as in PyTorch.
fn is_scalar_axis(axis: isize, shape: &[usize]) -> bool {
    shape.is_empty() && matches!(axis, 0 | -1)
}

/// Resolves an axis that may count from the end.
fn resolve_axis(op: &'static str, axis: isize, shape: &[usize]) -> Result<usize> {
    let rank = shape.len() as isize;
    let resolved = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&resolved) {
        return Ok(resolved as usize);
    }
    if rank == 0 {
        return wrong_index!(op, "axis {axis} is out of range: a tensor of shape [] has no axes");
    }
    wrong_index!(op, "axis {axis} is outside {shape:?}, whose axes are {}..={}", -rank, rank - 1)
}
