//! Functions: traced graphs that are applied to other tensors.

use super::gradient::leaf;
use crate::error::Result;
use crate::ir::{DeviceName, Src, UOp, print, substitute_all};
use crate::shape::Movement;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots of arguments are unique, so that a function can be called while another is traced.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

/// Traced graph with arguments, from [`Tensor::callify`].
#[derive(Clone)]
pub struct Function {
    /// Placeholder node of each argument, and its device.
    inputs: Vec<(UOp, &'static DeviceName)>,
    /// Tensors, which keep the storage that they read.
    outputs: Vec<Tensor>,
}

impl Tensor {
    /// Traces `f`: runs it once on placeholders with the shapes, dtypes and devices of `examples`,
    /// and keeps the graph. [`Function::call`] applies that graph to other arguments without
    /// running `f`.
    ///
    /// Nothing is computed: reading a value inside is an error, and branches on shapes are decided
    /// here. Other tensors that `f` uses keep their present value, and random numbers are drawn
    /// once. Gradients flow to arguments whose example requires one (an
    /// [`as_param`](Self::as_param), or what depends on it) and to parameters that `f` uses.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let example = Tensor::zeros([3]);
    /// let norm =
    ///     Tensor::callify(&[&example], |x| Ok(vec![&x[0] / x[0].square().sum(..).sqrt()]))?;
    /// let x = Tensor::new([3.0f32, 0.0, 4.0]);
    /// assert_eq!(norm.call(&[&x])?[0].to_vec::<f32>()?, [0.6, 0.0, 0.8]);
    /// assert!(norm.call(&[&Tensor::zeros([2])]).is_err()); // expected shape [3]
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn callify(
        examples: &[&Tensor],
        f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<Function> {
        let inputs: Vec<(UOp, &'static DeviceName)> = examples
            .iter()
            .enumerate()
            .map(|(i, t)| Ok((argument(i, t)?, t.device())))
            .collect::<Result<_>>()?;
        let args: Vec<Tensor> =
            inputs.iter().map(|(u, device)| Tensor::new_inner(u.clone(), device, None)).collect();
        // An output may be an argument itself, or be assigned to later.
        let outputs = f(&args)?.iter().map(Tensor::copy).collect();
        Ok(Function { inputs, outputs })
    }
}

/// Placeholder node for an argument like this tensor.
fn argument(i: usize, like: &Tensor) -> Result<UOp> {
    let device = like.device();
    if device.is_multi_device() {
        return refuse!(
            Device,
            "callify: argument {i} is on {device}; expected one device (shard it inside the \
             function)"
        );
    }
    like.require_static("callify", 0..like.ndim())?;
    let slot = NEXT_SLOT.fetch_add(1, Ordering::Relaxed);
    let whole = UOp::param(slot, like.numel(), like.dtype(), device);
    let node = whole.moved(Movement::Reshape(like.dims()));
    Ok(if like.uop().requires_grad() { leaf(node).0 } else { node })
}

impl Function {
    /// Applies the graph to arguments; returns lazy tensors.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let example = Tensor::zeros([2]).as_param();
    /// let cube = Tensor::callify(&[&example], |x| Ok(vec![&x[0] * &x[0] * &x[0]]))?;
    /// let x = Tensor::new([1.0f32, 2.0]).as_param();
    /// cube.call(&[&x])?[0].sum(..).backward();
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [3.0, 12.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn call(&self, args: &[&Tensor]) -> Result<Vec<Tensor>> {
        let (expected, given) = (self.inputs.len(), args.len());
        if expected != given {
            return wrong_shape!("function", "expected {expected} arguments, got {given}");
        }
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (i, (arg, (input, device))) in args.iter().zip(&self.inputs).enumerate() {
            let node = arg.uop();
            arg.require_static("function", 0..arg.ndim())?;
            let (wanted, given) = (input.shape(), node.shape());
            if wanted != given {
                return wrong_shape!(
                    "function",
                    "expected argument {i} of shape {wanted:?}, got {given:?}"
                );
            }
            let (wanted, given) = (input.dtype(), node.dtype());
            if wanted != given {
                return wrong_dtype!("function", "expected argument {i} of {wanted}, got {given}");
            }
            let given = arg.device();
            if given != *device {
                return refuse!(Device, "function: expected argument {i} on {device}, got {given}");
            }
            if node.requires_grad() && !input.requires_grad() {
                return refuse!(
                    Gradient,
                    "function: argument {i} requires a gradient, but its example did not; give \
                     callify a parameter as the example"
                );
            }
            map.insert(input.clone(), node);
        }
        let outputs: Vec<UOp> = self.outputs.iter().map(Tensor::uop).collect();
        let nodes = self.outputs.iter().zip(substitute_all(&outputs, &map));
        Ok(nodes.map(|(t, node)| t.with_uop(node)).collect())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outputs: Src = self.outputs.iter().map(Tensor::uop).collect();
        f.write_str(&print(&UOp::sink(outputs)))
    }
}
