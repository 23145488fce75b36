//! Mixed precision: operations that gain from narrow floats get them, and those that lose too many
//! digits get `f32`. The lists are PyTorch's.
//!
//! The setting belongs to the thread and to a scope. Only the operation that a user calls is cast;
//! what it is made of runs as if there were no autocast. `fallible!` counts the depth for that.

use super::{Operand, Tensor};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ir::Op;
use std::cell::Cell;

#[derive(Clone, Copy)]
struct State {
    dtype: Option<DType>,
    /// How many operations are being built inside each other.
    depth: u32,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State { dtype: None, depth: 0 }) };
}

/// Puts the old state back, after a panic too.
pub(crate) struct Restore(State);
impl Drop for Restore {
    fn drop(&mut self) {
        STATE.set(self.0);
    }
}

/// Runs a function in which matrix products, convolutions and attention take and give a narrow
/// float dtype, `bf16` or `f16`, while sums, exponentials, norms and losses take and give `f32`;
/// all other operations keep the dtype that they are given, and promote as always. Parameters stay
/// in `f32`: their casts are part of the graph, and their gradients are `f32` again.
///
/// The setting belongs to this thread and ends with the function. Inside, another `autocast` sets
/// another dtype for its own scope, and [`no_autocast`] none. It is decided while the graph is
/// built, so it may stand inside a [`Jit`](crate::Jit) or around it. `f64` and integers are left
/// alone.
///
/// | to the narrow dtype | to `f32` |
/// |---|---|
/// | `matmul`, `linear`, `einsum`, `conv2d`, `conv_transpose2d`, `scaled_dot_product_attention`, the layers `PReLU`, `RNN`, `GRU`, `LSTM` and their cells | `exp`, `expm1`, `log`, `log2`, `log10`, `log1p`, `pow`, `rsqrt`, `reciprocal`, `tan`, `acos`, `asin`, `cosh`, `sinh`, `erfinv`, `softplus`, `softmax`, `softmin`, `log_softmax`, `logsumexp`, `layernorm`, `rmsnorm`, `norm`, `matrix_norm`, `normalize`, `sum`, `prod`, `cumsum`, `cumprod`, `cdist`, `cosine_similarity`, `interpolate`, all losses, the layers `LayerNorm`, `LayerNorm2d`, `GroupNorm` and `RMSNorm` |
///
/// A `dot` of two vectors promotes. The layers `BatchNorm` and `InstanceNorm` give the dtype of
/// their input. The lists are those of PyTorch 2.15 for CUDA (`ATen/autocast_mode.h`).
///
/// `binary_crossentropy` is an error inside, as in PyTorch: its gradient leaves the range of narrow
/// floats; `binary_crossentropy_logits` does not. A [`GradScaler`](crate::nn::optim::GradScaler)
/// keeps gradients of `f16` from vanishing.
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
/// let y = autocast(DType::F16, || no_autocast(|| x.matmul(&x)));
/// assert_eq!(y.dtype(), DType::F32);
/// ```
pub fn no_autocast<T>(f: impl FnOnce() -> T) -> T {
    scoped(None, f)
}

fn scoped<T>(dtype: Option<DType>, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(STATE.replace(State { dtype, depth: 0 }));
    f()
}

/// Counts an operation that is made of others, for as long as the guard lives.
pub(crate) fn enter() -> Restore {
    let old = STATE.get();
    STATE.set(State { depth: old.depth + 1, ..old });
    Restore(old)
}

/// The narrow dtype, if autocast is on and no more operations than these are being built.
fn active(depth: u32) -> Option<DType> {
    let state = STATE.get();
    state.dtype.filter(|_| state.depth <= depth)
}

/// The input of a layer of the narrow list, where it has to be cast.
pub(crate) fn narrow_layer(x: &Tensor) -> Tensor {
    match active(0) {
        Some(dtype) if matches!(x.dtype(), DType::F32 | DType::BF16 | DType::F16) => x.cast(dtype),
        _ => x.clone(),
    }
}

/// Whether autocast is on for what a layer does.
pub(crate) fn is_on() -> bool {
    active(0).is_some()
}

/// The input of an operation of the `f32` list, where it has to be cast: in a method of
/// `fallible!`.
pub(super) fn wide(x: &Tensor) -> Option<Tensor> {
    active(1).and_then(|_| widened(x))
}

/// The same in a method that cannot fail.
pub(super) fn plain_wide(x: &Tensor) -> Option<Tensor> {
    active(0).and_then(|_| widened(x))
}

/// The same for a method that is one op.
pub(super) fn unary_wide(x: &Tensor, op: Op) -> Option<Tensor> {
    if matches!(op, Op::Exp | Op::Log | Op::Log2 | Op::Rsqrt | Op::Tan) {
        plain_wide(x)
    } else {
        None
    }
}

/// The operand of an operation of the `f32` list, as it goes with an input that was cast.
pub(super) fn wide_operand(operand: Operand) -> Operand {
    match operand {
        Operand::Tensor(t) => Operand::Tensor(widened(&t).unwrap_or(t)),
        number => number,
    }
}

fn widened(x: &Tensor) -> Option<Tensor> {
    matches!(x.dtype(), DType::BF16 | DType::F16).then(|| x.float())
}

/// The inputs of an operation of the narrow list, where one has to be cast.
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

/// As [`narrow`], of any number of inputs.
pub(super) fn narrow_all(inputs: &[&Tensor]) -> Option<Vec<Tensor>> {
    active(1)?;
    Some(inputs.iter().map(|x| narrow([x]).map_or_else(|| (*x).clone(), |[x]| x)).collect())
}

/// An error, where autocast is on, for an operation that is not safe in narrow floats.
pub(super) fn banned(op: &str, instead: &str) -> Result<()> {
    match active(1) {
        Some(dtype) => {
            let msg = format!(
                "{op} is not safe under autocast to {dtype}: its gradient leaves the range; use \
                 {instead}, or no_autocast"
            );
            Err(Error::Gradient(msg))
        }
        None => Ok(()),
    }
}
