//! Gradients: parameters, `backward`, `gradient`, `detach`, `no_grad`.

use crate::autograd::{device_of, gradients, leaves};
use crate::error::Result;
use crate::exec::{Capture, Event};
use crate::ir::{Arg, Gradient, Op, UOp, typed};
use crate::shape::{Dims, Movement};
use crate::tensor::{Inner, Tensor};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Live parameters by number.
static PARAMS: Mutex<Option<FxHashMap<u64, Weak<Inner>>>> = Mutex::new(None);
static NEXT_PARAM: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OFF: Cell<bool> = const { Cell::new(false) };
    /// Tensors that the next optimizer step on this thread realizes with its results.
    static WITH_STEP: RefCell<Vec<Weak<Inner>>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// True inside [`no_grad`] on this thread.
pub(in crate::tensor) fn is_off() -> bool {
    OFF.get()
}

/// Runs a function whose results do not require gradients: for evaluation and for updates of
/// parameters.
///
/// ```
/// use picograd::{Tensor, no_grad};
/// let w = Tensor::new([2.0f32]).as_param();
/// assert!((&w * 3.0).requires_grad());
/// assert!(!no_grad(|| &w * 3.0).requires_grad());
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    /// Restores the old state, also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            OFF.set(self.0);
        }
    }
    let _restore = Restore(OFF.replace(true));
    f()
}

/// Wraps a node in a new leaf; returns its number.
pub(in crate::tensor) fn leaf(node: UOp) -> (UOp, u64) {
    let number = NEXT_PARAM.fetch_add(1, Ordering::Relaxed);
    (node.leaf(number), number)
}

/// Registers a tensor that the next optimizer step on this thread realizes together with its own
/// results.
pub(crate) fn realize_with_step(t: &Tensor) {
    WITH_STEP.with_borrow_mut(|list| {
        list.retain(|w| w.strong_count() > 0 && !std::ptr::eq(w.as_ptr(), Arc::as_ptr(&t.0)));
        list.push(Arc::downgrade(&t.0));
    });
}

/// Takes the registered tensors that are still alive.
pub(crate) fn take_step_list() -> Vec<Tensor> {
    WITH_STEP.take().iter().filter_map(Weak::upgrade).map(Tensor).collect()
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(number) = self.param {
            lock(&PARAMS).as_mut().and_then(|map| map.remove(&number));
        }
    }
}

impl Tensor {
    fallible! {
        /// Creates a parameter: a tensor whose gradient [`backward`](Self::backward) accumulates.
        /// Gradients stop there. A parameter stays one when [`assign`](Self::assign) changes its
        /// value. Dtypes other than floats are an error.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let w = Tensor::new([1.0f32, 2.0]).as_param();
        /// (&w * &w).sum(..).backward();
        /// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn as_param | try_as_param(&self) -> Tensor {
            reject_dtype!(!self.dtype().is_float(), "expected floats, got {}", self.dtype());
            let (leaf, number) = leaf(self.raw());
            let param = Tensor::new_inner(leaf, self.device(), Some(number));
            lock(&PARAMS).get_or_insert_default().insert(number, Arc::downgrade(&param.0));
            Ok(param)
        }

        /// Adds the gradient of this tensor, which must have one element, to the
        /// [`grad`](Self::grad) of every live parameter that it depends on. Gradients are lazy like
        /// all tensors, and fuse with their consumers.
        ///
        /// The tensor is detached afterwards, so that its graph can be freed. Use
        /// [`gradient`](Self::gradient) to differentiate more than once.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let w = Tensor::new([3.0f32]).as_param();
        /// (&w * 2.0).sum(..).backward();
        /// (&w * 5.0).sum(..).backward();
        /// assert_eq!(w.grad().unwrap().item::<f32>()?, 7.0);
        /// assert!(Tensor::ones([1]).sum(..).try_backward().is_err()); // depends on no parameter
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn backward | try_backward(&self) -> () {
            let root = self.raw();
            if self.numel() != 1 {
                return shape_error!(
                    "expected one element, got shape {:?}; reduce it first, or use gradient",
                    self.dims()
                );
            }
            let leaves = leaves(&root);
            if leaves.is_empty() {
                return refuse!(
                    Gradient,
                    "backward of a tensor that depends on no parameter; mark what is trained with \
                     as_param()"
                );
            }
            let found = gradients(&root, constant_like(&root, 1), &leaves)?;
            for (leaf, grad) in leaves.iter().zip(found) {
                let (Arg::Leaf(number), Some(grad)) = (leaf.arg(), grad) else { continue };
                let param = lock(&PARAMS).as_ref().and_then(|map| map.get(number)?.upgrade());
                let Some(param) = param.map(Tensor) else { continue };
                let grad = param.grad_of(grad)?.detach();
                let sum = match param.grad() {
                    Some(old) => old.try_add(&grad)?,
                    None => grad,
                };
                param.set_grad(Some(sum));
            }
            if !self.is_param() {
                self.set_uop(root.unary(Op::Detach));
            }
            realize_with_step(self);
            Ok(())
        }
    }

    /// Gradients of this tensor, which must have one element, by each target. They are
    /// differentiable themselves. Targets are parameters, or tensors between a parameter and this
    /// one; equal expressions are the same target. Panics where
    /// [`try_gradient`](Self::try_gradient) returns an error.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]).as_param();
    /// let dx = (&x * &x * &x).sum(..).gradient(&[&x]).remove(0);
    /// let ddx = dx.sum(..).gradient(&[&x]).remove(0);
    /// assert_eq!(dx.to_vec::<f32>()?, [3.0, 12.0]);
    /// assert_eq!(ddx.to_vec::<f32>()?, [6.0, 12.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    #[track_caller]
    pub fn gradient(&self, targets: &[&Tensor]) -> Vec<Tensor> {
        crate::tensor::or_panic(self.try_gradient(targets))
    }

    /// [`gradient`](Self::gradient) that returns an error for more than one element, or for a
    /// target that this tensor does not depend on.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]).as_param();
    /// assert!(x.try_gradient(&[&x]).is_err());
    /// ```
    pub fn try_gradient(&self, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.gradient_with(&self.one_weight()?, targets)
    }

    /// Upstream gradient of a tensor of one element.
    fn one_weight(&self) -> Result<Tensor> {
        if self.numel() != 1 {
            return wrong_shape!(
                "gradient",
                "expected one element, got shape {:?}; reduce it first, or give gradient_with an \
                 upstream gradient",
                self.dims()
            );
        }
        Ok(self.with_uop(constant_like(&self.raw(), 1)))
    }

    /// [`gradient`](Self::gradient) with `None` for targets that this tensor does not depend on, as
    /// `allow_unused` of PyTorch.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let (x, y) = (Tensor::new([3.0f32]).as_param(), Tensor::new([1.0f32]).as_param());
    /// let found = x.square().sum(..).gradient_allow_unused(&[&x, &y]);
    /// assert_eq!(found[0].as_ref().unwrap().item::<f32>()?, 6.0);
    /// assert!(found[1].is_none());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    #[track_caller]
    pub fn gradient_allow_unused(&self, targets: &[&Tensor]) -> Vec<Option<Tensor>> {
        crate::tensor::or_panic(self.try_gradient_allow_unused(targets))
    }

    /// [`gradient_allow_unused`](Self::gradient_allow_unused) that returns an error for more than
    /// one element, or for a target that depends on no parameter.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]).as_param();
    /// assert!(x.try_gradient_allow_unused(&[&x]).is_err());
    /// ```
    pub fn try_gradient_allow_unused(&self, targets: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
        self.gradients_with(&self.one_weight()?, targets)
    }

    /// Vector-Jacobian product: gradients with `weight` as the upstream gradient.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]).as_param();
    /// let g = (&x * &x).gradient_with(&Tensor::new([1.0f32, 10.0]), &[&x])?;
    /// assert_eq!(g[0].to_vec::<f32>()?, [2.0, 40.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn gradient_with(&self, weight: &Tensor, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        let found = self.gradients_with(weight, targets)?.into_iter().enumerate();
        let missing = |i: usize| refuse!(Gradient, "the tensor does not depend on target {i}");
        found.map(|(i, g)| g.map_or_else(|| missing(i), Ok)).collect()
    }

    /// [`gradient_with`](Self::gradient_with), with `None` for targets that this tensor does not
    /// depend on.
    fn gradients_with(&self, weight: &Tensor, targets: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
        if !self.dtype().is_float() {
            return wrong_dtype!("gradient", "expected a tensor of floats, got {}", self.dtype());
        }
        if weight.dims() != self.dims() || weight.dtype() != self.dtype() {
            let (w, t) = (weight.dims(), self.dims());
            return wrong_shape!(
                "gradient",
                "expected an upstream gradient of {} {t:?}, got {} {w:?}",
                self.dtype(),
                weight.dtype()
            );
        }
        let root = self.raw();
        // The graph may hold several values of a parameter; another tensor is one node.
        let mut nodes: Vec<UOp> = Vec::new();
        let mut counts = Vec::new();
        let leaves = leaves(&root);
        for (i, t) in targets.iter().enumerate() {
            let before = nodes.len();
            if t.is_frozen() {
                return refuse!(Gradient, "target {i} is frozen; unfreeze() it before it is used");
            }
            match t.0.param {
                Some(number) => {
                    nodes.extend(leaves.iter().filter(|l| *l.arg() == Arg::Leaf(number)).cloned())
                }
                // A realized tensor that requires no gradient does not lead back here, so that a
                // part of the gradient would be missing.
                None if !t.requires_grad() => {
                    return refuse!(
                        Gradient,
                        "target {i} is no parameter and depends on none; mark it with as_param() \
                         before it is used"
                    );
                }
                None => nodes.push(t.raw()),
            }
            counts.push(nodes.len() - before);
        }
        let mut found = gradients(&root, weight.raw(), &nodes)?.into_iter();
        targets
            .iter()
            .zip(counts)
            .map(|(t, count)| {
                let parts = found.by_ref().take(count).flatten();
                let sum = parts.reduce(|a, b| a.binary(Op::Add, b));
                sum.map(|sum| t.grad_of(sum)).transpose()
            })
            .collect()
    }

    /// Gradient on the device, and with the shards, of this tensor.
    fn grad_of(&self, grad: UOp) -> Result<Tensor> {
        if self.is_param() && self.device().is_multi_device() {
            return self.with_uop(grad).try_shard_like(self);
        }
        // A graph without storage is computed on the device of its consumer.
        let elsewhere =
            |u: &UOp| !u.has_data() && device_of(&grad).is_some_and(|d| d != *self.device());
        let grad = if elsewhere(&self.raw()) { grad.copied(self.device()) } else { grad };
        Ok(self.with_uop(grad))
    }

    /// Calls `forward` with a custom gradient: `grad` takes the upstream gradient and the inputs,
    /// and returns one gradient per input, of its shape and dtype. Gradients of integer inputs are
    /// ignored. Higher derivatives differentiate `grad`.
    ///
    /// All parameters have to be among the inputs: a result that depends on another one is an
    /// error.
    ///
    /// ```
    /// use picograd::Tensor;
    /// // Rounds with the gradient of the identity.
    /// let x = Tensor::new([0.4f32, 1.7]).as_param();
    /// let y = Tensor::call(&[&x], |x| Ok(x[0].round()), |g, _| Ok(vec![g.clone()]))?;
    /// (&y * &y).sum(..).backward();
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.0, 4.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn call(
        inputs: &[&Tensor],
        forward: impl FnOnce(&[Tensor]) -> Result<Tensor>,
        grad: impl Fn(&Tensor, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        let nodes: Vec<UOp> = inputs.iter().map(|t| t.uop()).collect();
        let value = forward(&inputs.iter().map(|t| t.detach()).collect::<Vec<_>>())?;
        if value.requires_grad() && !is_off() {
            return refuse!(
                Gradient,
                "call: the result depends on a parameter that is not among the inputs; add \
                       it to them"
            );
        }
        if !nodes.iter().any(|u| u.requires_grad()) {
            return Ok(value.copy());
        }
        if !value.dtype().is_float() {
            return wrong_dtype!("call", "expected a result of floats, got {}", value.dtype());
        }
        let (device, devices) =
            (value.device().clone(), inputs.iter().map(|t| t.device().clone()).collect::<Vec<_>>());
        let gradient = move |g: &UOp, nodes: &[UOp]| {
            let upstream = Tensor::from_uop(g.clone(), device.clone());
            let inputs: Vec<Tensor> = nodes
                .iter()
                .zip(&devices)
                .map(|(u, d)| Tensor::from_uop(u.clone(), d.clone()))
                .collect();
            Ok(grad(&upstream, &inputs)?.iter().map(|t| t.raw()).collect())
        };
        Ok(value.with_uop(typed::Call::build(
            value.dtype(),
            Arg::Gradient(Gradient::new(Arc::new(gradient))),
            value.uop(),
            nodes,
        )))
    }

    /// Gradient that [`backward`](Self::backward) accumulated for this parameter.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let w = Tensor::new([3.0f32]).as_param();
    /// assert!(w.grad().is_none());
    /// w.square().sum(..).backward();
    /// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn grad(&self) -> Option<Tensor> {
        lock(&self.0.grad).clone()
    }
    /// Replaces the gradient; `None` clears it.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let w = Tensor::new([3.0f32]).as_param();
    /// w.set_grad(Some(Tensor::new([1.0f32])));
    /// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn set_grad(&self, grad: Option<Tensor>) {
        Capture::note(Event::SetGrad(self.id()));
        // The old one is dropped outside the lock.
        let _old = std::mem::replace(&mut *lock(&self.0.grad), grad);
    }
    /// Returns true for a parameter, as [`as_param`](Self::as_param) creates them.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let w = Tensor::new([3.0f32]).as_param();
    /// assert!(w.is_param() && !(&w * 2.0).is_param());
    /// ```
    pub fn is_param(&self) -> bool {
        self.0.param.is_some()
    }
    /// Returns true if the tensor depends on a parameter through differentiable ops.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let w = Tensor::new([3.0f32]).as_param();
    /// assert!((&w * 2.0).requires_grad());
    /// assert!(!w.int().requires_grad());
    /// ```
    pub fn requires_grad(&self) -> bool {
        !self.is_frozen() && self.raw().requires_grad()
    }
    /// Returns true if a parameter is treated as a constant.
    pub(in crate::tensor) fn is_frozen(&self) -> bool {
        self.0.frozen.load(Ordering::Relaxed)
    }
    /// Treats a parameter as a constant in what is computed from it, or as a parameter again.
    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.0.frozen.store(frozen && self.is_param(), Ordering::Relaxed);
    }
    /// Same value without gradient.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let w = Tensor::new([3.0f32]).as_param();
    /// (&w * w.detach()).sum(..).backward();
    /// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn detach(&self) -> Tensor {
        self.with_uop(self.raw().unary(Op::Detach))
    }
    /// Same value, whose gradient is stored when it is computed: a fusion boundary in the backward
    /// pass.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let w = Tensor::new([3.0f32]).as_param();
    /// w.contiguous_backward().square().sum(..).backward();
    /// assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn contiguous_backward(&self) -> Tensor {
        let uop = self.uop();
        self.with_uop(uop.unary(Op::ContiguousBackward))
    }
}

/// Constant in the shape and dtype of a node.
pub(super) fn constant_like(u: &UOp, value: i64) -> UOp {
    let constant = u.const_like(value);
    if u.shape().is_empty() {
        return constant;
    }
    constant
        .moved(Movement::Reshape(Dims::from_elem(1, u.shape().len())))
        .moved(Movement::Expand(u.shape().clone()))
}
