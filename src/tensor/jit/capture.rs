//! Capture of an observed call: its commands as a plan for replays, and the tensors that a replay
//! reads, changes and returns.

use super::args::{JitOut, Leaf};
use super::observe::Observed;
use super::{JitStats, described_for_all};
use crate::device::Buffer;
use crate::dtype::DType;
use crate::env;
use crate::error::Result;
use crate::exec::{BufferType, CaptureBuilder, CapturedPlan, Template};
use crate::ir::{DeviceName, StorageRef, ToSrc, UOp};
use crate::shape::SymInt;
use crate::tensor::realize::storages;
use crate::tensor::{Inner, Tensor};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Weak;

/// Captured function.
pub(super) struct Captured<R> {
    pub plan: CapturedPlan,
    /// Expected arguments.
    pub signature: Vec<Signature>,
    /// Used tensors from outside the function.
    pub outside: Vec<Outside>,
    /// Tensors that a replay changes.
    pub changed: Vec<(Tensor, Template)>,
    pub results: Vec<(Template, &'static DeviceName)>,
    /// Tensors from outside that are captured as literals.
    pub literal: Vec<(Weak<Inner>, UOp)>,
    /// Result with placeholder tensors.
    pub shape: R,
    pub copies: u64,
}

/// Tensor from outside the function.
pub(super) struct Outside {
    pub tensor: Tensor,
    /// Axis of its shards.
    pub axis: Option<usize>,
    /// Memory of each shard.
    pub parts: Vec<BufferType>,
}

pub(super) enum Signature {
    Tensor {
        shape: Vec<usize>,
        dtype: DType,
        device: &'static DeviceName,
        axis: Option<usize>,
        /// Memory of each shard.
        parts: Vec<BufferType>,
        /// Symbolic sizes of the axes, unbound.
        extents: Vec<Option<SymInt>>,
        shown: String,
    },
    /// Expression of variables, unbound.
    Variable(SymInt),
    Length(usize),
    Host(String),
}

/// Symbolic sizes of the axes of a tensor, unbound.
pub(super) fn unbound_extents(t: &Tensor) -> Vec<Option<SymInt>> {
    t.raw().extents().iter().map(|e| e.as_ref().map(SymInt::unbound)).collect()
}

/// Returns the value of a tensor without its graph; a parameter remains a parameter.
fn without_history(node: &UOp) -> UOp {
    match node.as_leaf() {
        Some(leaf) => node.with_src([leaf.x.unmarked().clone()].to_src()),
        None => node.unmarked().clone(),
    }
}

/// Adds slots for the arguments; returns their signature.
fn arguments(given: Vec<Leaf>, builder: &mut CaptureBuilder) -> Vec<Signature> {
    let signature = |(leaf, given): (usize, Leaf)| match given {
        Leaf::Host(value) => Signature::Host(value),
        Leaf::Variable(bound) => Signature::Variable(bound.unbound()),
        Leaf::Length(n) => Signature::Length(n),
        Leaf::Tensor(own) => {
            let node = own.raw();
            let all: Vec<StorageRef> = storages(&node).into_iter().flatten().cloned().collect();
            builder.add_argument(leaf, &all);
            Signature::Tensor {
                shape: own.dims().to_vec(),
                dtype: own.dtype(),
                device: own.device(),
                axis: own.shard_axis(),
                parts: all.iter().map(|s| BufferType::of(&Buffer::of(s))).collect(),
                extents: unbound_extents(&own),
                shown: described_for_all(&own),
            }
        }
    };
    given.into_iter().enumerate().map(signature).collect()
}

impl<R: JitOut> Captured<R> {
    /// Captures an observed call and its result.
    pub(super) fn new(observed: Observed, result: &R, graphs: bool) -> Result<Captured<R>> {
        let Observed { given, capture, outside, changed, literal, .. } = observed;
        // The tensors from outside that the plan uses, by id.
        let used: RefCell<FxHashMap<usize, Tensor>> = RefCell::default();
        let find_owner = |storage: u64| {
            let (tensor, part) = outside.get(&storage)?;
            let tensor = Tensor(tensor.upgrade()?);
            let id = tensor.id();
            used.borrow_mut().insert(id, tensor);
            Some((id, *part))
        };
        let mut builder = CaptureBuilder::new(&find_owner);
        let signature = arguments(given, &mut builder);
        builder.add_commands(&capture)?;
        let template =
            |t: Tensor| builder.template(&without_history(&t.raw())).map(|template| (t, template));
        let changed: Vec<(Tensor, Template)> =
            changed.into_iter().map(template).collect::<Result<_>>()?;
        let mut values = Vec::new();
        result.each(&mut |t| values.push((t.raw(), t.device())));
        let of_result = |(node, device): (UOp, _)| Ok((builder.template(&node)?, device));
        let results: Vec<(Template, &'static DeviceName)> =
            values.into_iter().map(of_result).collect::<Result<_>>()?;
        // Stored, so that no other function captures it as a literal.
        let empty = Tensor::zeros(()).contiguous().realize()?;
        let shape = result.renewed(&mut || empty.clone());
        let (plan, outside) = builder.into_plan(graphs)?;
        if env::config()?.debug >= 1 {
            eprintln!("jit: captured {} commands | {}", plan.replay.len(), plan.replay.memory());
        }
        let outside = outside.into_iter().map(|o| {
            let tensor = used.borrow()[&o.tensor].clone();
            Outside { axis: tensor.shard_axis(), tensor, parts: o.parts }
        });
        let outside = outside.collect();
        Ok(Captured { plan, signature, outside, changed, results, literal, shape, copies: 0 })
    }

    /// Returns true if a tensor that was captured as a literal has changed.
    pub(super) fn is_stale(&self) -> bool {
        self.literal
            .iter()
            .any(|(tensor, node)| tensor.upgrade().is_some_and(|t| Tensor(t).raw() != *node))
    }

    pub(super) fn stats(&self) -> JitStats {
        let plan = &self.plan.replay;
        JitStats { steps: plan.len(), memory: plan.memory(), copies: self.copies }
    }
}
