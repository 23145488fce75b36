//! Gradient checkpointing: the backward pass rematerializes intermediates.
//!
//! The result is a `Call` of the inputs and of all parameters used inside. Its gradient rebuilds
//! the forward graph over copies of the inputs and differentiates that. The copies depend on the
//! upstream gradient, so that the rebuilt graph shares no node with the forward pass and runs when
//! the backward pass reaches it.

use super::gradient::{constant_like, is_off, leaf};
use crate::autograd::{gradients, leaves};
use crate::error::Result;
use crate::ir::{Arg, Gradient, Op, UOp, substitute_all, typed};
use crate::tensor::{Tensor, intern_device};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Computes a part of a network without keeping its intermediates for the gradient; the backward
/// pass rematerializes them from the inputs. It trades one more forward pass for memory. Values and
/// gradients of every order equal those of `f(inputs)`, including random numbers.
///
/// Pass activations as inputs, because those that `f` captures are kept. Parameters need not be
/// passed: they are stored anyway, and get their gradients. Assignments inside happen once, in the
/// forward pass.
///
/// With inputs on several devices `f` is called without checkpointing.
///
/// ```
/// use picograd::{Tensor, checkpoint};
/// use picograd::nn::{Layer, Linear, Module};
/// let layers: Vec<Linear> = (0..4).map(|_| Linear::new(8, 8)).collect();
/// let mut x = Tensor::ones([2, 8]);
/// for pair in layers.chunks(2) {
///     x = checkpoint(&[&x], |x| pair[1].try_forward(&pair[0].try_forward(&x[0])?.tanh()))?;
/// }
/// x.sum(..).backward();
/// assert!(layers.parameters().iter().all(|p| p.grad().is_some()));
/// # Ok::<(), picograd::Error>(())
/// ```
pub fn checkpoint(
    inputs: &[&Tensor],
    f: impl FnOnce(&[Tensor]) -> Result<Tensor>,
) -> Result<Tensor> {
    let nodes: Vec<UOp> = inputs.iter().map(|t| t.uop()).collect();
    if is_off() || inputs.iter().any(|t| t.device().is_multi_device()) {
        return f(&inputs.iter().map(|t| t.copy()).collect::<Vec<_>>());
    }
    // Placeholders of the inputs: leaves with their values.
    let args: Vec<UOp> = nodes
        .iter()
        .map(|u| if u.dtype().is_float() { leaf(u.unary(Op::Detach)).0 } else { u.clone() })
        .collect();
    let given: Vec<Tensor> = inputs.iter().zip(&args).map(|(t, u)| t.with_uop(u.clone())).collect();
    let value = f(&given)?;
    let inside = value.uop();
    let used = leaves(&inside);
    let params: Vec<UOp> = used.iter().filter(|l| !args.contains(l)).cloned().collect();
    let reaches = |i: usize| used.contains(&args[i]) && nodes[i].requires_grad();
    if !inside.dtype().is_float() || (params.is_empty() && !(0..nodes.len()).any(reaches)) {
        return Ok(value.with_uop(inside.unary(Op::Detach)));
    }
    let origin = inside.as_computed().map_or(&inside, |c| c.origin).clone();
    let devices: Vec<_> = inputs.iter().map(|t| t.device()).collect();
    let used: Vec<UOp> = nodes.into_iter().chain(params.iter().cloned()).collect();
    let gradient = move |g: &UOp, now: &[UOp]| {
        let again = Rebuild { origin: &origin, args: &args, params: &params };
        again.gradients(g, now, &|i, u: &UOp| {
            u.copied_after(intern_device(devices[i]), &g.unary(Op::Detach))
        })
    };
    Ok(value.with_uop(typed::Call::build(
        value.dtype(),
        Arg::Gradient(Gradient::new(Arc::new(gradient))),
        inside.unary(Op::Detach),
        used,
    )))
}

/// Forward graph to rebuild.
struct Rebuild<'a> {
    origin: &'a UOp,
    args: &'a [UOp],
    params: &'a [UOp],
}

impl Rebuild<'_> {
    /// Gradients by the inputs and the parameters; `copy` copies an input.
    fn gradients(
        &self,
        g: &UOp,
        now: &[UOp],
        copy: &dyn Fn(usize, &UOp) -> UOp,
    ) -> Result<Vec<UOp>> {
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut back: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut targets = Vec::new();
        for (i, arg) in self.args.iter().enumerate() {
            if arg.op() != Op::Leaf {
                targets.push(arg.clone());
                continue;
            }
            let copied = copy(i, &now[i]);
            // A leaf during differentiation, then replaced by the copy, so that the gradient is
            // differentiable.
            let place = leaf(copied.unary(Op::Detach)).0;
            map.insert(arg.clone(), place.clone());
            back.insert(place.clone(), copied);
            targets.push(place);
        }
        for (param, now) in self.params.iter().zip(&now[self.args.len()..]) {
            map.insert(param.clone(), now.clone());
            targets.push(now.clone());
        }
        let root = substitute_all(std::slice::from_ref(self.origin), &map).remove(0);
        let found = gradients(&root, g.clone(), &targets)?;
        let all: Vec<UOp> = found
            .into_iter()
            .zip(now)
            .map(|(found, u)| found.unwrap_or_else(|| constant_like(u, 0)))
            .collect();
        Ok(substitute_all(&all, &back))
    }
}
