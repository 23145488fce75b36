//! Captured functions: a function of tensors runs twice and is replayed afterwards, without graph
//! building and scheduling, with memory planned over the whole call.
//!
//! Records, plans and replays are in [`exec`](crate::exec), which knows buffers alone. Here is what
//! needs [`Tensor`]: arguments and results are tensors, and a call is compared with all live ones.
//!
//! | file | contents |
//! |---|---|
//! | `args` | arguments and results |
//! | `observe` | observation of a call: its record, used and changed tensors from outside |
//! | `capture` | an observation as a captured plan with its tensors |
//! | `replay` | the memory of the tensors of another call, for a run of the plan |

mod args;
mod capture;
mod observe;
mod replay;

pub use args::{JitArg, JitOut, Leaf};

use super::Tensor;
use crate::device::profile;
use crate::env;
use crate::error::Result;
use crate::exec::Capture;
use crate::exec::capture::Mode;
use crate::exec::fingerprint::{Difference, Fingerprint};
use crate::schedule::PlannedMemory;
use capture::Captured;
use observe::{Observed, observe};
use std::marker::PhantomData;

/// Captured function. The first call runs it, the second runs it and captures its commands, and
/// later calls replay the capture: one list of kernels over planned memory, and on CUDA one graph
/// launch.
///
/// Training steps can be captured: a replay updates parameters, optimizer state, running statistics
/// and all other tensors that the function assigns to, as a call does, and continues the sequence
/// of random numbers.
///
/// ```
/// use picograd::nn::optim::{Optimizer, SGD};
/// use picograd::nn::{Layer, Linear, Module};
/// use picograd::{Jit, Tensor, tensor::Reduction};
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
/// # Tensors
/// - **Results** are computed when `call` returns, own their memory, and are not changed by later
///   calls. No gradient passes through a call.
/// - **Arguments** are plain values inside the function: an assignment to one does not reach the
///   caller's tensor. A tensor may be passed twice, or also be used directly by the function: a
///   call does not write to the memory of its arguments.
/// - **Tensors from outside** are read at each call. A lazy one is computed after the first call.
///   An assignment between calls is visible to the next call.
/// - Tensors that the function creates and stores elsewhere without returning them keep the value
///   of the captured call.
///
/// # Errors
/// - Reading a value inside (`item`, `to_vec`, printing), or the value of a variable: it would be
///   constant for all calls.
/// - An argument of another shape, dtype or device, or another number.
/// - A function that behaves differently at each call, because it depends on a host number that has
///   changed: pass the number as a tensor.
/// - Gradients that are left on parameters.
///
/// [Variables](crate::Variable) among the arguments may have another value at each call.
///
/// A host number that changes *after* the capture is not detected, because the function is not run:
/// pass such values as arguments or tensors, as the learning rate of an
/// [`Optimizer`](crate::nn::optim::Optimizer) is.
///
/// A `Jit` inside the function of another is called, and is captured with the outer one. `JIT=0`
/// runs the function at each call, and `JIT=2` replays without device graphs.
pub struct Jit<A, R, F> {
    f: F,
    phase: Phase<R>,
    args: PhantomData<fn(A) -> R>,
}

enum Phase<R> {
    /// Not called yet.
    New,
    /// Called: the fingerprint of the call, and the number of calls that differed from the
    /// previous.
    Called(Fingerprint, usize),
    Ready(Box<Captured<R>>),
}

/// Number of differing calls after which capturing is an error.
const MAX_TRIES: usize = 8;

/// Statistics of a captured function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitStats {
    /// Number of kernels and copies of a replay.
    pub steps: usize,
    /// Memory of the intermediates.
    pub memory: PlannedMemory,
    /// Number of tensors that replays copied before an in-place write, because they were shared.
    pub copies: u64,
}

impl<A: JitArg, R: JitOut, F: FnMut(A) -> Result<R>> Jit<A, R, F> {
    /// Wraps a function.
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

    /// Calls the function, or replays its capture.
    ///
    /// ```
    /// use picograd::{Jit, Tensor};
    /// let mut sum = Jit::new(|x: Tensor| Ok(x.sum(..)));
    /// for _ in 0..3 {
    ///     assert_eq!(sum.call(Tensor::new([1.0f32, 2.0]))?.item::<f32>()?, 3.0);
    /// }
    /// assert!(sum.call(Tensor::new([1.0f32, 2.0, 3.0])).is_err()); // captured with f32 [2]
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn call(&mut self, args: A) -> Result<R> {
        // Captured with the outer function.
        if Capture::is_active() {
            return (self.f)(args);
        }
        // A tensor that was captured as a literal may have been assigned to.
        if matches!(&self.phase, Phase::Ready(captured) if captured.is_stale()) {
            self.phase = Phase::New;
        }
        if let Phase::Ready(captured) = &mut self.phase {
            return captured.replay(&args);
        }
        let jit = env::config()?.jit;
        let capture = jit > 0 && matches!(self.phase, Phase::Called(..));
        let _span = profile::span(|| if capture { "capture" } else { "call" }.into());
        let mode = match &self.phase {
            _ if jit == 0 => Mode::AssignmentsOnly,
            Phase::New => Mode::Record,
            _ => Mode::Capture,
        };
        let (result, observed) = observe(&args, &mut self.f, mode)?;
        if jit > 0 {
            self.advance(observed, &result, jit == 1)?;
        }
        Ok(result)
    }

    /// Captures an observed call that equals the previous one; otherwise keeps its fingerprint.
    fn advance(&mut self, observed: Observed, result: &R, graphs: bool) -> Result<()> {
        let mut results = Vec::new();
        result.each(&mut |t| results.push(t.raw()));
        let fingerprint = observed.fingerprint(&results)?;
        let Phase::Called(before, tries) = &self.phase else {
            self.phase = Phase::Called(fingerprint, 0);
            return Ok(());
        };
        let (difference, mut tries) = (before.compare(&fingerprint), *tries);
        // A call that had to realize tensors from outside does not count.
        if matches!(difference, Difference::None) && !observed.lazy {
            // If the call cannot be captured, for example for lack of memory, the next one tries
            // again.
            match Captured::new(observed, result, graphs) {
                Ok(captured) => {
                    self.phase = Phase::Ready(Box::new(captured));
                    return Ok(());
                }
                Err(e) if env::config()?.debug >= 1 => eprintln!("jit: not captured: {e}"),
                Err(_) => {}
            }
        } else if !observed.lazy && !matches!(difference, Difference::Values(_)) {
            tries += 1;
        }
        if tries > MAX_TRIES {
            return refuse!(
                Jit,
                "the function did something different in each of {tries} calls, so there is \
                 nothing to replay; a Jit is for functions that always do the same"
            );
        }
        self.phase = Phase::Called(fingerprint, tries);
        match difference {
            Difference::Values(what) => refuse!(Jit, "{what}"),
            _ => Ok(()),
        }
    }

    /// Returns true if the next call is a replay.
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

    /// Drops the capture, so that the next call is a first call with any arguments.
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

/// Describes a tensor in messages, with unbound sizes.
fn described_for_all(t: &Tensor) -> String {
    let node = t.raw();
    let size = |(axis, n): (usize, &usize)| {
        node.extent(axis).map_or(n.to_string(), |e| e.unbound().text())
    };
    let sizes: Vec<String> = node.shape().iter().enumerate().map(size).collect();
    format!("{} [{}] on {}", t.dtype(), sizes.join(", "), t.device())
}

/// Describes a tensor in messages.
fn described(t: &Tensor) -> String {
    format!("{} {:?} on {}", t.dtype(), t.shape(), t.device())
}
