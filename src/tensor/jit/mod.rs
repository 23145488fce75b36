//! Functions of tensors that run twice and are replayed from then on: without graph building and
//! scheduling, with memory planned over the whole call.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | arguments and results |
//! | `observe` | an observed call: what it ran, and which tensors from outside it used and changed |
//! | `capture` | from a record to a replay plan |
//! | `replay` | the plan on the memory of another call |

mod args;
mod capture;
mod observe;
mod replay;

pub use args::{JitArg, JitOut, Leaf};

use super::Tensor;
use crate::device::profile;
use crate::env;
use crate::error::{Error, Result};
use crate::exec::Capture;
use crate::exec::capture::Mode;
use crate::exec::fingerprint::{Difference, Fingerprint};
use crate::schedule::PlannedMemory;
use capture::Captured;
use observe::observe;
use std::marker::PhantomData;

/// A captured function. The first call runs it, the second runs it and captures what it does, and
/// from the third on the capture is replayed: one list of kernels over planned memory, and on CUDA
/// one graph launch.
///
/// Training steps work as inference does: parameters, the state of optimizers, running statistics
/// and all other tensors that the function assigns to are changed by a replay as by a call, and
/// random numbers go on where they are.
///
/// ```
/// use picograd::{
///     Jit, Tensor,
///     nn::{
///         Layer, Linear, Module,
///         optim::{Optimizer, SGD},
///     },
///     tensor::Reduction,
/// };
/// Tensor::manual_seed(0);
/// let net = Linear::new(1, 1);
/// let mut optimizer = Optimizer::new(net.parameters(), SGD::new(0.1))?;
/// let mut step = Jit::new(|(x, y): (Tensor, Tensor)| {
///     let loss = net.forward(&x).mse_loss(&y, Reduction::Mean);
///     loss.backward();
///     optimizer.step()?;
///     Ok(loss)
/// });
/// let x = Tensor::new([[0.0f32], [1.0], [2.0]]);
/// let y = &x * 3.0 + 1.0;
/// let first = step.call((x.clone(), y.clone()))?.item::<f32>()?;
/// for _ in 0..200 {
///     step.call((x.clone(), y.clone()))?;
/// }
/// assert!(step.is_captured() && step.call((x, y))?.item::<f32>()? < first / 100.0);
/// # Ok::<(), picograd::Error>(())
/// ```
///
/// # What may be kept
/// - **Results** are computed when `call` returns, own their memory, and are not touched by later
///   calls. No gradient goes through a call.
/// - **Arguments** come into the function as plain values: an assignment to one inside does not
///   reach the caller's tensor. Passing one tensor twice, or one that the function also uses by
///   itself, is fine: what a call writes is kept apart from what it was given.
/// - **Tensors around the function** are read as they are at each call. One that was not computed
///   before the first call is computed after it, and one that is assigned to between calls is seen.
/// - Tensors that the function makes and leaves somewhere without returning them keep what they had
///   when it was captured.
///
/// # What is an error
/// Reading a value inside (`item`, `to_vec`, printing), or the number that a variable is: it would
/// be the value of one call for all. An argument of another shape, dtype or device, or another
/// number. A function that does something else at each call, because a number of the host that it
/// uses has changed: pass it as a tensor. Gradients that are left on parameters. The message names
/// which.
///
/// [Variables](crate::Variable) among the arguments may have another value at each call. Inside
/// they are computed with; their values, and sizes that they are, are not read.
///
/// A number of the host that changes *later* cannot be seen by a function that is not run: what
/// changes between calls has to be an argument or a tensor, as the learning rate of an
/// [`Optimizer`](crate::nn::optim::Optimizer) is.
///
/// A `Jit` inside the function of another is a plain call, and is captured with the outer one.
/// `JIT=0` runs the function at each call, `JIT=2` replays without graphs of devices.
pub struct Jit<A, R, F> {
    f: F,
    phase: Phase<R>,
    args: PhantomData<fn(A) -> R>,
}

enum Phase<R> {
    /// Not called yet.
    New,
    /// Called: the fingerprint of the call, and how often it differed from the call before.
    PoolWindows(Fingerprint, usize),
    Ready(Box<Captured<R>>),
}

/// Differing calls after which a function is not captured.
const MOST_TRIES: usize = 8;

/// Statistics of a captured function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitStats {
    /// Kernels and copies of a replay.
    pub steps: usize,
    /// Memory of its intermediates.
    pub memory: PlannedMemory,
    /// Tensors that replays copied before writing in place, because something else held them.
    pub copies: u64,
}

impl<A: JitArg, R: JitOut, F: FnMut(A) -> Result<R>> Jit<A, R, F> {
    /// A function, not yet called.
    ///
    /// ```
    /// use picograd::{Jit, Tensor};
    /// let mut double = Jit::new(|x: Tensor| Ok(x * 2.0));
    /// for i in 0..4 {
    ///     assert_eq!(double.call(Tensor::new([i as f32]))?.item::<f32>()?, 2.0 * i as f32);
    /// }
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(f: F) -> Jit<A, R, F> {
        Jit { f, phase: Phase::New, args: PhantomData }
    }

    /// Calls the function, or replays what it did.
    ///
    /// ```
    /// use picograd::{Jit, Tensor};
    /// let mut sum = Jit::new(|x: Tensor| Ok(x.sum(..)));
    /// for _ in 0..3 {
    ///     assert_eq!(sum.call(Tensor::new([1.0f32, 2.0]))?.item::<f32>()?, 3.0);
    /// }
    /// let long = sum.call(Tensor::new([1.0f32, 2.0, 3.0])).unwrap_err();
    /// assert_eq!(
    ///     long.to_string(),
    ///     "jit: argument 0 is f32 [3] on CPU, and the function was captured with f32 [2] on \
    ///      CPU; have a Jit for each"
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn call(&mut self, args: A) -> Result<R> {
        // Inside another one, this is a part of it.
        if Capture::is_active() {
            return (self.f)(args);
        }
        // A tensor that was a literal at the capture may have been assigned to.
        if matches!(&self.phase, Phase::Ready(captured) if captured.is_stale()) {
            self.phase = Phase::New;
        }
        if let Phase::Ready(captured) = &mut self.phase {
            return captured.replay(&args);
        }
        let jit = env::config()?.jit;
        let capture = jit > 0 && matches!(self.phase, Phase::PoolWindows(..));
        let _span = profile::span(|| if capture { "capture" } else { "call" }.into());
        let mode = match &self.phase {
            _ if jit == 0 => Mode::AssignmentsOnly,
            Phase::New => Mode::Record,
            _ => Mode::Capture,
        };
        let (result, observed) = observe(&args, &mut self.f, mode)?;
        if jit == 0 {
            return Ok(result);
        }
        let mut results = Vec::new();
        result.each(&mut |t| results.push(t.raw()));
        let fingerprint = observed.fingerprint(&results)?;
        let tries = match &self.phase {
            Phase::PoolWindows(before, tries) => {
                let difference = before.compare(&fingerprint);
                if let Difference::Values(what) = difference {
                    self.phase = Phase::PoolWindows(fingerprint, *tries);
                    return Err(Error::Jit(what));
                }
                if matches!(difference, Difference::None) && !observed.lazy {
                    // The call is done. If it cannot be captured, for example for lack of memory,
                    // the next call tries again.
                    match Captured::new(observed, &result, jit == 1) {
                        Ok(captured) => self.phase = Phase::Ready(Box::new(captured)),
                        Err(e) => {
                            if env::config()?.debug >= 1 {
                                eprintln!("jit: not captured: {e}");
                            }
                            self.phase = Phase::PoolWindows(fingerprint, *tries);
                        }
                    }
                    return Ok(result);
                }
                // A call that had to realize tensors from outside does not count.
                if observed.lazy { *tries } else { tries + 1 }
            }
            _ => 0,
        };
        if tries > MOST_TRIES {
            return Err(Error::Jit(format!(
                "the function has done something else at each of {tries} calls, so there is \
                 nothing to replay; a Jit is for functions that always do the same"
            )));
        }
        self.phase = Phase::PoolWindows(fingerprint, tries);
        Ok(result)
    }

    /// True if the next call is a replay.
    ///
    /// ```
    /// use picograd::{Jit, Tensor};
    /// let mut f = Jit::new(|x: Tensor| Ok(x + 1.0));
    /// f.call(Tensor::zeros([2]))?;
    /// assert!(!f.is_captured());
    /// f.call(Tensor::zeros([2]))?;
    /// assert!(f.is_captured());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn is_captured(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    /// Statistics of a replay, once the function is captured.
    ///
    /// ```
    /// use picograd::{Jit, Tensor};
    /// let mut softmax = Jit::new(|x: Tensor| Ok(x.softmax(-1)));
    /// assert!(softmax.stats().is_none());
    /// for _ in 0..2 {
    ///     softmax.call(Tensor::new([1.0f32, 2.0]))?;
    /// }
    /// assert_eq!(softmax.stats().unwrap().steps, 1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn stats(&self) -> Option<JitStats> {
        match &self.phase {
            Phase::Ready(captured) => Some(captured.stats()),
            _ => None,
        }
    }

    /// Drops the capture: the next call is a first call, and its arguments may differ.
    ///
    /// ```
    /// use picograd::{Jit, Tensor};
    /// let mut f = Jit::new(|x: Tensor| Ok(x.sum(..)));
    /// for shape in [[2, 3], [4, 5]] {
    ///     for _ in 0..3 {
    ///         f.call(Tensor::zeros(shape))?;
    ///     }
    ///     f.reset();
    /// }
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn reset(&mut self) {
        self.phase = Phase::New;
    }
}

/// A tensor in messages, with unbound sizes.
fn described_for_all(t: &Tensor) -> String {
    let node = t.raw();
    let size = |(axis, n): (usize, &usize)| {
        node.extent(axis).map_or(n.to_string(), |e| e.unbound().text())
    };
    let sizes: Vec<String> = node.shape().iter().enumerate().map(size).collect();
    format!("{} [{}] on {}", t.dtype(), sizes.join(", "), t.device())
}

/// A tensor in messages.
fn described(t: &Tensor) -> String {
    format!("{} {:?} on {}", t.dtype(), t.shape(), t.device())
}
