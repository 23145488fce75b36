//! Mixed precision: operations that profit from narrow floats are cast to them, and those that lose
//! too much precision to `f32`. The lists are PyTorch's.
//!
//! The setting belongs to the thread and to a scope. Only the operation that a user calls is cast,
//! not those that it is composed of; `fallible!` counts the nesting depth.

use super::{Operand, Tensor};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::Op;
use std::cell::Cell;

#[derive(Clone, Copy)]
struct State {
    dtype: Option<DType>,
    /// Nesting depth of operations being built.
    depth: u32,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State { dtype: None, depth: 0 }) };
}

/// Restores the old state, also after a panic.
pub(crate) struct Restore(State);
impl Drop for Restore {
    fn drop(&mut self) {
        STATE.set(self.0);
    }
}

/// Runs a function with mixed precision: matrix products, convolutions and attention compute in a
/// narrow float dtype, `bf16` or `f16`, and sums, exponentials, norms and losses in `f32`. Other
/// operations keep their dtypes and promote as usual. Parameters stay in `f32`: their casts are
/// part of the graph, and their gradients are `f32`.
///
/// The setting belongs to this thread and ends with the function. Nested calls of `autocast` and
/// [`no_autocast`] override it. It takes effect while the graph is built, so that it may be inside
/// a [`Jit`](crate::Jit) or around it. `f64` and integers are not cast.
///
/// Cast to the narrow dtype: `matmul`, `linear`, `einsum`, `conv2d`, `conv_transpose2d`,
/// `scaled_dot_product_attention`, the layers `PReLU`, `RNN`, `GRU`, `LSTM` and their cells.
///
/// Cast to `f32`: `exp`, `expm1`, `log`, `log2`, `log10`, `log1p`, `pow`, `rsqrt`, `reciprocal`,
/// `tan`, `acos`, `asin`, `cosh`, `sinh`, `erfinv`, `softplus`, `softmax`, `softmin`,
/// `log_softmax`, `logsumexp`, `layernorm`, `rmsnorm`, `norm`, `matrix_norm`, `normalize`, `sum`,
/// `prod`, `cumsum`, `cumprod`, `cdist`, `cosine_similarity`, `interpolate`, all losses, the layers
/// `LayerNorm`, `LayerNorm2d`, `GroupNorm` and `RMSNorm`.
///
/// A `dot` of two vectors promotes. The layers `BatchNorm` and `InstanceNorm` return the dtype of
/// their input. The lists are those of PyTorch 2.15 for CUDA (`ATen/autocast_mode.h`).
///
/// `binary_crossentropy` is an error inside, as in PyTorch, because its gradient overflows narrow
/// floats; use `binary_crossentropy_logits`. A [`GradScaler`](crate::nn::optim::GradScaler) keeps
/// `f16` gradients from underflowing.
///
/// ```
/// use picograd::{DType, Tensor, autocast, no_autocast};
/// let (x, w) = (Tensor::ones([2, 3]), Tensor::ones([3, 4]));
/// autocast(DType::BF16, || {
///     let y = x.matmul(&w);
///     assert_eq!((y.dtype(), y.relu().dtype()), (DType::BF16, DType::BF16));
///     assert_eq!(y.softmax(-1).dtype(), DType::F32);
///     assert_eq!(no_autocast(|| x.matmul(&w)).dtype(), DType::F32);
/// });
/// assert_eq!(x.matmul(&w).dtype(), DType::F32);
/// ```
///
/// Panics if the dtype is neither `bf16` nor `f16`.
#[track_caller]
pub fn autocast<T>(dtype: DType, f: impl FnOnce() -> T) -> T {
    assert!(
        matches!(dtype, DType::BF16 | DType::F16),
        "autocast: expected bf16 or f16, got {dtype}"
    );
    scoped(Some(dtype), f)
}

/// Runs a function without [`autocast`].
///
/// ```
/// use picograd::{DType, Tensor, autocast, no_autocast};
/// let x = Tensor::ones([2, 2]);
/// assert_eq!(autocast(DType::F16, || no_autocast(|| x.matmul(&x))).dtype(), DType::F32);
/// ```
pub fn no_autocast<T>(f: impl FnOnce() -> T) -> T {
    scoped(None, f)
}

fn scoped<T>(dtype: Option<DType>, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(STATE.replace(State { dtype, depth: 0 }));
    f()
}

/// Increments the nesting depth while the guard lives.
pub(crate) fn enter() -> Restore {
    let old = STATE.get();
    STATE.set(State { depth: old.depth + 1, ..old });
    Restore(old)
}

/// Narrow dtype, if autocast is on and the nesting depth is at most `depth`.
fn active(depth: u32) -> Option<DType> {
    let state = STATE.get();
    state.dtype.filter(|_| state.depth <= depth)
}

/// Casts the input of a layer on the narrow list.
pub(crate) fn narrow_layer(x: &Tensor) -> Tensor {
    match active(0) {
        Some(dtype) if matches!(x.dtype(), DType::F32 | DType::BF16 | DType::F16) => x.cast(dtype),
        _ => x.clone(),
    }
}

/// Returns true if autocast is on for a layer.
pub(crate) fn is_on() -> bool {
    active(0).is_some()
}

/// Input of an operation on the `f32` list, if it has to be cast; for methods of `fallible!`.
pub(super) fn wide(x: &Tensor) -> Option<Tensor> {
    active(1).and_then(|_| widened(x))
}

/// [`wide`] for infallible methods.
pub(super) fn plain_wide(x: &Tensor) -> Option<Tensor> {
    active(0).and_then(|_| widened(x))
}

/// [`wide`] for methods that are one op.
pub(super) fn unary_wide(x: &Tensor, op: Op) -> Option<Tensor> {
    let listed = matches!(op, Op::Exp | Op::Log | Op::Log2 | Op::Rsqrt | Op::Tan);
    if listed { plain_wide(x) } else { None }
}

/// Operand of an operation on the `f32` list whose input was cast.
pub(super) fn wide_operand(operand: Operand) -> Operand {
    match operand {
        Operand::Tensor(t) => Operand::Tensor(widened(&t).unwrap_or(t)),
        number => number,
    }
}

fn widened(x: &Tensor) -> Option<Tensor> {
    matches!(x.dtype(), DType::BF16 | DType::F16).then(|| x.float())
}

/// Inputs of an operation on the narrow list, if one has to be cast.
pub(super) fn narrow<const N: usize>(inputs: [&Tensor; N]) -> Option<[Tensor; N]> {
    let dtype = active(1)?;
    let other = |x: &Tensor| {
        matches!(x.dtype(), DType::F32 | DType::BF16 | DType::F16) && x.dtype() != dtype
    };
    if !inputs.iter().any(|x| other(x)) {
        return None;
    }
    Some(inputs.map(|x| if other(x) { x.cast(dtype) } else { x.clone() }))
}

/// [`narrow`] for any number of inputs.
pub(super) fn narrow_all(inputs: &[&Tensor]) -> Option<Vec<Tensor>> {
    active(1)?;
    Some(inputs.iter().map(|x| narrow([x]).map_or_else(|| (*x).clone(), |[x]| x)).collect())
}

/// Returns the error under autocast for an operation that is unsafe in narrow floats.
pub(super) fn reject(op: &str, instead: &str) -> Result<()> {
    match active(1) {
        Some(dtype) => {
            refuse!(
                Gradient,
                "{op} is not safe under autocast to {dtype}: its gradient leaves the range; use \
                 {instead}, or no_autocast"
            )
        }
        None => Ok(()),
    }
}
