//! Observation of a call: its arguments, what it runs, and the tensors from outside that it uses
//! and changes. Live tensors are listed before the call and compared afterwards.

use super::args::{JitArg, JitOut, Leaf, tensors_of};
use super::{described, described_for_all};
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::exec::Capture;
use crate::exec::capture::Mode;
use crate::exec::fingerprint::{FinalValue, Fingerprint, Origin, RecordedCall};
use crate::ir::{UOp, walk_values};
use crate::schedule::VariableValues;
use crate::tensor::holders::live;
use crate::tensor::realize::{is_stored, realize_all, storages};
use crate::tensor::{Inner, Tensor};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Weak};

/// Tensor and shard of each storage.
pub(super) type Owners = FxHashMap<u64, (Weak<Inner>, usize)>;

/// Observations of a call.
pub(super) struct Observed {
    /// Arguments, with the tensors that the function got: the caller's memory under new storage
    /// ids.
    pub given: Vec<Leaf>,
    pub capture: Capture,
    /// Storages of tensors from outside, with the tensor and the shard.
    pub outside: Owners,
    /// Tensors from outside that were assigned to.
    pub changed: Vec<Tensor>,
    /// Literal tensors from outside that the function used. The capture is valid until one changes.
    pub literal: Vec<(Weak<Inner>, UOp)>,
    /// True if the function used lazy tensors with data.
    pub lazy: bool,
}

impl Observed {
    /// Fingerprint of the call with these results.
    pub(super) fn fingerprint(&self, results: &[UOp]) -> Result<Fingerprint> {
        let mut origins: FxHashMap<u64, Origin> = FxHashMap::default();
        for (id, (tensor, part)) in &self.outside {
            origins.insert(*id, Origin::Outside(tensor.as_ptr() as usize, *part));
        }
        let mut given = Vec::new();
        for (i, leaf) in self.given.iter().enumerate() {
            given.push(match leaf {
                Leaf::Host(value) => value.clone(),
                Leaf::Variable(bound) => bound.unbound().text(),
                Leaf::Length(n) => format!("a list of {n}"),
                Leaf::Tensor(own) => {
                    let ids = ids(&own.raw()).into_iter().enumerate();
                    origins.extend(ids.map(|(part, id)| (id, Origin::Argument(i, part))));
                    described_for_all(own)
                }
            });
        }
        let end = |(tensor, node): (usize, UOp)| {
            let mut values = VariableValues::default();
            add_values(&mut values, &node)?;
            let storages = storages(&node).into_iter().flatten().cloned().collect();
            Ok(FinalValue { tensor, storages, values })
        };
        let changed = self.changed.iter().map(|t| (t.id(), t.raw()));
        let final_values = changed.chain(results.iter().map(|u| (0, u.clone())));
        let final_values = final_values.map(end).collect::<Result<_>>()?;
        let passed = given_values(&self.given)?;
        Fingerprint::of(&self.capture, RecordedCall { origins, given, passed, final_values })
    }
}

/// State of a tensor before a call.
struct Before {
    tensor: Weak<Inner>,
    /// Graph of a lazy tensor; `None` for a stored one, which is not kept alive.
    lazy: Option<UOp>,
    /// Identity of the gradient.
    grad: Option<usize>,
}

/// Returns the values of the variables in arguments.
pub(super) fn given_values(given: &[Leaf]) -> Result<VariableValues> {
    let mut values = VariableValues::default();
    for g in given {
        match g {
            Leaf::Tensor(t) => add_values(&mut values, &t.raw())?,
            Leaf::Variable(bound) => values.insert_symint(bound)?,
            Leaf::Host(_) | Leaf::Length(_) => {}
        }
    }
    Ok(values)
}

/// Adds the values of a tensor's symbolic dimensions.
pub(super) fn add_values(values: &mut VariableValues, node: &UOp) -> Result<()> {
    node.extents().iter().flatten().try_for_each(|bound| values.insert_symint(bound))
}

/// Realizes the arguments; returns them as new tensors over the same memory.
fn given(args: &impl JitArg) -> Result<Vec<Leaf>> {
    let mut leaves = Vec::new();
    args.visit(&mut |leaf| leaves.push(leaf));
    realize_all(&tensors_of(&leaves))?;
    let given = |leaf: Leaf| match leaf {
        Leaf::Tensor(t) => {
            Leaf::Tensor(Tensor::new_inner(renamed(t.raw().unmarked()), t.device(), None))
        }
        other => other,
    };
    Ok(leaves.into_iter().map(given).collect())
}

/// Returns the value of a stored tensor under new storage ids.
fn renamed(node: &UOp) -> UOp {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    walk_values(std::slice::from_ref(node), |u| {
        if let Some(s) = u.arg().storage() {
            map.insert(u.clone(), Buffer::of(s).renamed().node());
        }
    });
    node.substitute(&map)
}

/// Ids of the storages of a node.
fn ids(node: &UOp) -> Vec<u64> {
    storages(node).into_iter().flatten().map(|s| s.storage.id()).collect()
}

/// Calls a function, and realizes its results and the tensors that it assigns to.
pub(super) fn observe<A: JitArg, R: JitOut>(
    args: &A,
    f: &mut impl FnMut(A) -> Result<R>,
    mode: Mode,
) -> Result<(R, Observed)> {
    let given = given(args)?;
    let own: Vec<Tensor> = tensors_of(&given).into_iter().cloned().collect();
    let (before, outside) = list_outside(&own);
    let known = outside.keys().copied().chain(own.iter().flat_map(|t| ids(&t.raw()))).collect();
    let watched = before.iter().filter_map(|b| b.lazy.as_ref()).map(UOp::id).collect();
    let mut own = own.into_iter();
    let args = args.with_tensors(&mut || own.next().expect("a tensor for each"));
    let (done, capture) = Capture::record(mode, known, watched, || run(args, f, &before));
    // Printing turns an error into text and continues.
    if let Some(what) = &capture.read {
        return Err(Error::Jit(what.clone()));
    }
    let (result, changed) = done?;
    let gradients_changed = capture.gradients_changed.iter().copied().collect();
    before
        .iter()
        .filter(|b| b.among(&gradients_changed).is_some())
        .try_for_each(Before::check_gradient)?;
    if capture.seeded {
        return refuse!(
            Jit,
            "manual_seed or set_rng_state is called inside a captured function; call it outside"
        );
    }
    // Used lazy tensors with data are realized, so that the next call finds them in memory.
    let used = before
        .iter()
        .filter(|b| b.lazy.as_ref().is_some_and(|node| capture.used.contains(&node.id())));
    let (lazy, literal): (Vec<&Before>, Vec<&Before>) =
        used.partition(|b| b.lazy.as_ref().is_some_and(UOp::has_data));
    let tensors: Vec<Tensor> = lazy.iter().filter_map(|b| b.now()).collect();
    realize_all(&tensors.iter().collect::<Vec<_>>())?;
    let literal =
        literal.iter().filter_map(|b| Some((b.tensor.clone(), b.lazy.clone()?))).collect();
    let lazy = !lazy.is_empty();
    Ok((result, Observed { given, capture, outside, changed, literal, lazy }))
}

/// Runs the function under a capture; returns its realized results and the changed tensors.
fn run<A, R: JitOut>(
    args: A,
    f: &mut impl FnMut(A) -> Result<R>,
    before: &[Before],
) -> Result<(R, Vec<Tensor>)> {
    let result = f(args)?;
    if Capture::current(|c| c.has_read_variable) == Some(true) {
        return refuse!(
            Jit,
            "the value of a variable, or a size that depends on one, is read inside the function, \
             where it would be constant for all calls; compute with the variable itself, as in \
             `x / &n`"
        );
    }
    let assigned = Capture::current(|c| c.assigned.iter().copied().collect());
    let assigned = assigned.unwrap_or_default();
    let changed: Vec<Tensor> = before.iter().filter_map(|b| b.among(&assigned)).collect();
    let mut wanted: Vec<Tensor> = Vec::new();
    result.each(&mut |t| wanted.push(t.clone()));
    wanted.extend(changed.iter().cloned());
    realize_all(&wanted.iter().collect::<Vec<_>>())?;
    // Results are new tensors: no gradient passes through a call, and a later assignment to a
    // result does not change a tensor of the function.
    let mut values = Vec::new();
    result.each(&mut |t| {
        values.push(Tensor::new_inner(t.raw().unmarked().clone(), t.device(), None))
    });
    let mut values = values.into_iter();
    Ok((result.renewed(&mut || values.next().expect("a value for each")), changed))
}

/// Lists the live tensors, and the owner of each storage. A tensor that shares a storage gets new
/// storage ids.
fn list_outside(own: &[Tensor]) -> (Vec<Before>, Owners) {
    let own: FxHashSet<*const Inner> = own.iter().map(|t| Arc::as_ptr(&t.0)).collect();
    let mut outside: Owners = FxHashMap::default();
    let mut before = Vec::new();
    for t in live().iter().filter(|t| !own.contains(&Arc::as_ptr(&t.0))) {
        let mut node = t.raw();
        if ids(&node).iter().any(|id| outside.contains_key(id))
            && !storages(&node).into_iter().flatten().any(|s| s.is_stale())
        {
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
    /// Returns the tensor, if its id is in the set.
    fn among(&self, ids: &FxHashSet<usize>) -> Option<Tensor> {
        if ids.contains(&(self.tensor.as_ptr() as usize)) { self.now() } else { None }
    }
    /// Checks that the gradient of a parameter is unchanged: replays would not update it.
    fn check_gradient(&self) -> Result<()> {
        let Some(t) = self.now() else { return Ok(()) };
        if t.grad().map(|g| g.id()) == self.grad {
            return Ok(());
        }
        let what = if self.grad.is_none() {
            "leaves a gradient on"
        } else {
            "changes an existing gradient of"
        };
        refuse!(
            Jit,
            "the function {what} the parameter {}; have backward and the optimizer's step inside \
             the function, or return gradients as tensors",
            described(&t)
        )
    }
}
