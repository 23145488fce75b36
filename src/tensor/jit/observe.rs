//! A call that is written down. Before it every live tensor is looked at, so that it can be told afterwards which of them the function used and changed.

use super::args::{JitArg, JitOut, Leaf};
use super::described;
use crate::error::{Error, Result};
use crate::exec::record::{self, Recording};
use crate::ir::{UOp, walk_values};
use crate::runtime::Buffer;
use crate::schedule::Values;
use crate::shape::Bound;
use crate::tensor::realize::{is_stored, live, realize_all, storages};
use crate::tensor::{Inner, Tensor};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Weak};

/// Storages with the tensor that has each, and the part of it.
pub(super) type Owners = FxHashMap<u64, (Weak<Inner>, usize)>;

/// An argument of a call.
pub(super) enum Given {
    /// The tensor that the function gets: the caller's memory under a name of its own.
    Tensor(Tensor),
    Variable(Bound),
    Host(String),
}

/// What a call did.
pub(super) struct Observed {
    pub given: Vec<Given>,
    pub recording: Recording,
    /// The storages of tensors that were there before, with the tensor and the part of it.
    pub outside: Owners,
    /// Tensors that were there before and were assigned to.
    pub changed: Vec<Tensor>,
    /// Were there tensors among those used that had not been computed?
    pub lazy: bool,
}

impl Observed {
    /// Was everything that the function used in memory, so that a replay finds it there?
    pub(super) fn is_whole(&self) -> bool {
        !self.lazy
    }
}

/// A tensor that is there before a call.
struct Before {
    tensor: Weak<Inner>,
    /// What it would have to be computed from; none for one in memory, which is not to be held.
    lazy: Option<UOp>,
    grad: Option<usize>,
}

/// The variables that arguments have values for.
pub(super) fn given_values(given: &[Given]) -> Result<Values> {
    let mut values = Values::default();
    for g in given {
        match g {
            Given::Tensor(t) => add_values(&mut values, &t.raw())?,
            Given::Variable(bound) => values.insert_bound(bound)?,
            Given::Host(_) => {}
        }
    }
    Ok(values)
}

/// Adds those of a tensor's axes.
pub(super) fn add_values(values: &mut Values, node: &UOp) -> Result<()> {
    node.extents().iter().flatten().try_for_each(|bound| values.insert_bound(bound))
}

/// The arguments, computed, as tensors of their own over the same memory.
pub(super) fn given(args: &impl JitArg) -> Result<Vec<Given>> {
    let mut leaves = Vec::new();
    args.visit(&mut |leaf| leaves.push(leaf));
    let tensors: Vec<&Tensor> = leaves.iter().filter_map(|l| if let Leaf::Tensor(t) = l { Some(t) } else { None }).collect();
    realize_all(&tensors)?;
    leaves
        .into_iter()
        .map(|leaf| match leaf {
            Leaf::Host(value) => Ok(Given::Host(value)),
            Leaf::Variable(value) => Ok(Given::Variable(value)),
            Leaf::Tensor(t) => Ok(Given::Tensor(Tensor::new_inner(renamed(t.raw().unmarked()), t.device(), None))),
        })
        .collect()
}

/// The value of a computed tensor over storages that no other tensor names.
fn renamed(node: &UOp) -> UOp {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    walk_values(std::slice::from_ref(node), |u| {
        if let Some(s) = u.arg().storage() {
            map.insert(u.clone(), Buffer::of(s).renamed().node());
        }
    });
    node.substitute(&map)
}

/// Calls a function and computes everything that it returns or assigns to. In a sealed call no value may be read inside.
pub(super) fn observe<A: JitArg, R: JitOut>(args: &A, f: &mut impl FnMut(A) -> Result<R>, sealed: bool) -> Result<(R, Observed)> {
    let given = given(args)?;
    let mut own = given.iter().filter_map(|g| if let Given::Tensor(own) = g { Some(own.clone()) } else { None });
    let args = args.with_tensors(&mut || own.next().expect("a tensor for each"));
    let (before, outside) = looked_at(&given);
    let (done, recording) = record::recorded(sealed, || -> Result<(R, Vec<Tensor>)> {
        let result = f(args)?;
        let assigned = record::assigned().into_iter().collect();
        let changed: Vec<Tensor> = before.iter().filter_map(|b| b.among(&assigned)).collect();
        let mut wanted: Vec<Tensor> = Vec::new();
        result.each(&mut |t| wanted.push(t.clone()));
        wanted.extend(changed.iter().cloned());
        realize_all(&wanted.iter().collect::<Vec<_>>())?;
        // No gradient goes through a call, and what is assigned to a result later is not assigned to a tensor of the function.
        let mut values = Vec::new();
        result.each(&mut |t| values.push(Tensor::new_inner(t.raw().unmarked().clone(), t.device(), None)));
        let mut values = values.into_iter();
        Ok((result.renewed(&mut || values.next().expect("a value for each")), changed))
    });
    let (result, changed) = done?;
    let graded = recording.graded.iter().copied().collect();
    before.iter().filter(|b| b.among(&graded).is_some()).try_for_each(Before::check_gradient)?;
    if recording.seeded {
        return Err(Error::Jit("manual_seed or set_rng_state is called inside a captured function; call it outside".into()));
    }
    let lazy = compute_used(&before, &recording)?;
    Ok((result, Observed { given, recording, outside, changed, lazy }))
}

/// Every live tensor as it is now, and whose storage is whose. Where several share one they get names of their own for it.
fn looked_at(given: &[Given]) -> (Vec<Before>, Owners) {
    let own: FxHashSet<*const Inner> =
        given.iter().filter_map(|g| if let Given::Tensor(t) = g { Some(Arc::as_ptr(&t.0)) } else { None }).collect();
    let mut outside: Owners = FxHashMap::default();
    let mut before = Vec::new();
    for t in live().iter().filter(|t| !own.contains(&Arc::as_ptr(&t.0))) {
        let ids = |node: &UOp| -> Vec<u64> { storages(node).into_iter().flatten().map(|s| s.storage.id()).collect() };
        let mut node = t.raw();
        if ids(&node).iter().any(|id| outside.contains_key(id)) && !storages(&node).into_iter().flatten().any(|s| s.is_stale()) {
            let other = renamed(&node);
            t.exchange(&node, other);
            node = t.raw();
        }
        for (part, id) in ids(&node).into_iter().enumerate() {
            outside.insert(id, (Arc::downgrade(&t.0), part));
        }
        let lazy = (!is_stored(&node)).then_some(node);
        before.push(Before { tensor: Arc::downgrade(&t.0), lazy, grad: t.grad().map(|g| g.id()) });
    }
    (before, outside)
}

impl Before {
    fn now(&self) -> Option<Tensor> {
        self.tensor.upgrade().map(Tensor)
    }
    /// Is it one of those whose numbers these are?
    fn among(&self, ids: &FxHashSet<usize>) -> Option<Tensor> {
        if ids.contains(&(self.tensor.as_ptr() as usize)) { self.now() } else { None }
    }
    /// A gradient that is left would be that of one call for all.
    fn check_gradient(&self) -> Result<()> {
        let Some(t) = self.now() else { return Ok(()) };
        if t.grad().map(|g| g.id()) == self.grad {
            return Ok(());
        }
        let what = if self.grad.is_none() { "leaves a gradient on" } else { "takes up or changes a gradient from outside on" };
        Err(Error::Jit(format!(
            "the function {what} the parameter {}; have backward and the optimizer's step inside the function, or return gradients as tensors",
            described(&t)
        )))
    }
}

/// Computes those tensors from before that the function used and that were not in memory, so that the next call finds them there. Were there some?
fn compute_used(before: &[Before], recording: &Recording) -> Result<bool> {
    let mut lazy: FxHashMap<u64, Vec<&Before>> = FxHashMap::default();
    before.iter().for_each(|b| b.lazy.iter().for_each(|node| lazy.entry(node.id()).or_default().push(b)));
    if lazy.is_empty() {
        return Ok(false);
    }
    let roots: Vec<UOp> = recording.runs.iter().flat_map(|r| r.roots.iter().cloned()).collect();
    let mut used: Vec<Tensor> = Vec::new();
    let mut any = false;
    walk_values(&roots, |u| {
        for b in lazy.get(&u.id()).into_iter().flatten() {
            any = true;
            used.extend(b.now());
        }
    });
    realize_all(&used.iter().collect::<Vec<_>>())?;
    Ok(any)
}
