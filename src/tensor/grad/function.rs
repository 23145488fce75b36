//! Functions: a graph that was written down once and is used for other tensors.

use super::gradient::leaf;
use crate::error::{Error, Result};
use crate::ir::{Arg, DeviceName, Op, Src, UOp, print, substitute_all};
use crate::shape::Movement;
use crate::tensor::{Tensor, wrong_dtype, wrong_shape};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No two arguments of functions are one node, so that a function can be called while another is
/// written down.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

/// A graph with arguments, as [`Tensor::callify`] makes it.
#[derive(Clone)]
pub struct Function {
    /// The node that stands for each argument, and its device.
    inputs: Vec<(UOp, &'static DeviceName)>,
    /// Tensors, so that what they read is not overwritten.
    outputs: Vec<Tensor>,
}

impl Tensor {
    /// Turns what `f` computes into a function: `f` is run once, on arguments that have the shapes,
    /// dtypes and devices of `examples` and no values, and the graph that it builds is kept.
    /// [`Function::call`] gives that graph other arguments, without running `f` again.
    ///
    /// Nothing is computed, and nothing can be read inside: a branch on a value is an error, a
    /// branch on a shape is decided here. Other tensors that `f` uses are kept as they are now;
    /// what is assigned to them later is not seen, and random numbers are drawn once. Gradients go
    /// through a function as through any graph, to arguments whose example had one (an
    /// [`as_param`](Self::as_param), or what is made of one) and to parameters that `f` uses.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let example = Tensor::zeros([3]);
    /// let norm =
    ///     Tensor::callify(&[&example], |x| Ok(vec![&x[0] / x[0].square().sum(..).sqrt()]))?;
    /// let x = Tensor::new([3.0f32, 0.0, 4.0]);
    /// assert_eq!(norm.call(&[&x])?[0].to_vec::<f32>()?, [0.6, 0.0, 0.8]);
    /// let short = norm.call(&[&Tensor::zeros([2])]).unwrap_err();
    /// assert_eq!(
    ///     short.to_string(),
    ///     "function: argument 0 has shape [2], and the function was made for [3]"
    /// );
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
        // What comes back may be an argument itself, or be assigned to later.
        let outputs = f(&args)?.iter().map(Tensor::copy).collect();
        Ok(Function { inputs, outputs })
    }
}

/// A node for an argument like this tensor, which has no value.
fn argument(i: usize, like: &Tensor) -> Result<UOp> {
    let device = like.device();
    if device.is_several() {
        let msg = format!(
            "callify: argument {i} is on {device}; an argument is on one device, and can be \
             sharded inside the function"
        );
        return Err(Error::Device(msg));
    }
    like.require_static("callify", 0..like.ndim())?;
    let arg = Arg::Param {
        slot: NEXT_SLOT.fetch_add(1, Ordering::Relaxed),
        len: like.numel(),
        device: device.clone(),
    };
    let node =
        UOp::new(Op::Param, like.dtype(), Src::new(), arg).moved(Movement::Reshape(like.dims()));
    Ok(if like.uop().requires_grad() { leaf(node).0 } else { node })
}

impl Function {
    /// What the function computes of these arguments: lazy tensors, as if its graph had been
    /// written out here.
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
        if args.len() != self.inputs.len() {
            return wrong_shape(
                "function",
                format!("{} arguments, and it was made for {}", args.len(), self.inputs.len()),
            );
        }
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        for (i, (arg, (input, device))) in args.iter().zip(&self.inputs).enumerate() {
            let node = arg.uop();
            arg.require_static("function", 0..arg.ndim())?;
            if node.shape() != input.shape() {
                return wrong_shape(
                    "function",
                    format!(
                        "argument {i} has shape {:?}, and the function was made for {:?}",
                        node.shape(),
                        input.shape()
                    ),
                );
            }
            if node.dtype() != input.dtype() {
                return wrong_dtype(
                    "function",
                    format!(
                        "argument {i} is of {}, and the function was made for {}",
                        node.dtype(),
                        input.dtype()
                    ),
                );
            }
            if arg.device() != *device {
                return Err(Error::Device(format!(
                    "function: argument {i} is on {}, and the function was made for {device}",
                    arg.device()
                )));
            }
            if node.requires_grad() && !input.requires_grad() {
                let msg = format!(
                    "function: argument {i} has a gradient, and the function was made for one \
                     without; give callify a parameter as its example"
                );
                return Err(Error::Gradient(msg));
            }
            map.insert(input.clone(), node);
        }
        let outputs: Vec<UOp> = self.outputs.iter().map(Tensor::uop).collect();
        Ok(self
            .outputs
            .iter()
            .zip(substitute_all(&outputs, &map))
            .map(|(t, node)| t.with_uop(node))
            .collect())
    }
}

/// The graph as text.
impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outputs: Src = self.outputs.iter().map(Tensor::uop).collect();
        f.write_str(&print(&UOp::sink(outputs)))
    }
}
