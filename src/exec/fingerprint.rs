//! The fingerprint of a call: the graphs that it computed, their inputs, and the host data in them.

use super::capture::{Capture, RecordedPlan};
use crate::device::{Buffer, Memory};
use crate::error::{Error, Result};
use crate::ir::{StorageRef, UOp};
use crate::schedule::VariableValues;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::sync::Arc;

/// The fingerprint of a call.
pub(crate) struct Fingerprint {
    runs: Vec<(UOp, Vec<Origin>)>,
    /// Variables that are no arguments, with their values.
    values: Vec<(Arc<str>, i64)>,
    /// Contents of results and changed tensors at the end.
    final_values: Vec<(usize, Vec<Origin>)>,
    draws: Vec<u64>,
    given: Vec<String>,
}

/// A recorded call, with what its record does not have.
pub(crate) struct RecordedCall {
    /// Origins of the storages of arguments and of tensors from outside, by id.
    pub origins: FxHashMap<u64, Origin>,
    /// The arguments, as messages name them.
    pub given: Vec<String>,
    /// Values of the variables among the arguments.
    pub passed: VariableValues,
    /// Results and changed tensors.
    pub final_values: Vec<FinalValue>,
}

/// The value of a result or a changed tensor after a call.
pub(crate) struct FinalValue {
    /// The id of a changed tensor; 0 for a result.
    pub tensor: usize,
    /// Its memory, by shard.
    pub storages: Vec<StorageRef>,
    /// Values of its symbolic dimensions.
    pub values: VariableValues,
}

/// The origin of a storage that a call reads or leaves.
#[derive(Clone, PartialEq)]
pub(crate) enum Origin {
    /// An argument, by number and shard.
    Argument(usize, usize),
    /// A tensor from outside, by address (it is alive) and shard.
    Outside(usize, usize),
    /// An RNG draw.
    Draw(usize),
    /// The result of a run, by its number and that of the output.
    RunOutput(usize, usize),
    /// A storage that was freed.
    Freed,
    /// Host data of the function: dtype, elements, and a hash.
    Host(String, u64),
}

/// The difference between two calls.
pub(crate) enum Difference {
    /// The calls are equal.
    None,
    /// The same operations with other values; the message names them.
    Values(String),
    /// Other operations.
    Other,
}

/// Returns the origin of host data. Files are not read, and `NULL` has no content.
fn host_origin(buffer: &Buffer) -> Result<Origin> {
    let mut hasher = FxHasher::default();
    if matches!(buffer.place().memory, Memory::Host(_) | Memory::Remote(_)) {
        hasher.write(&buffer.read()?);
    }
    Ok(Origin::Host(format!("{} × {}", buffer.size(), buffer.dtype()), hasher.finish()))
}

fn compare_origins(before: &[Origin], now: &[Origin]) -> Difference {
    if before.len() != now.len() {
        return Difference::Other;
    }
    let mut found = Difference::None;
    for (x, y) in before.iter().zip(now) {
        match (x, y) {
            (Origin::Freed, _) | (_, Origin::Freed) => return Difference::Other,
            (x, y) if x == y => {}
            (Origin::Host(what, _), Origin::Host(same, _)) if what == same => {
                let msg = format!(
                    "the function creates {what} from host data that differs from the \
                     previous call; {ADVICE}"
                );
                found = Difference::Values(msg);
            }
            _ => return Difference::Other,
        }
    }
    found
}

const ADVICE: &str =
    "pass values that change between calls as arguments, or store them in a tensor";

impl Fingerprint {
    /// Returns the fingerprint of a recorded call.
    pub(crate) fn of(capture: &Capture, call: RecordedCall) -> Result<Fingerprint> {
        let values = own_values(capture, &call)?;
        let RecordedCall { origins: mut known, given, final_values, .. } = call;
        for (i, draw) in capture.draws.iter().enumerate() {
            known.extend(draw.storages.iter().map(|id| (*id, Origin::Draw(i))));
        }
        let mut runs = Vec::new();
        for (number, run) in capture.runs.iter().enumerate() {
            runs.push((run.graph.clone(), origins_of(number, run, &mut known)?));
        }
        let origin = |s: &StorageRef| match known.get(&s.storage.id()) {
            Some(known) => Ok(known.clone()),
            None => host_origin(&Buffer::of(s)),
        };
        let end =
            |e: &FinalValue| Ok((e.tensor, e.storages.iter().map(origin).collect::<Result<_>>()?));
        let final_values = final_values.iter().map(end).collect::<Result<_>>()?;
        let draws = capture.draws.iter().map(|d| d.numbers).collect();
        Ok(Fingerprint { runs, values, final_values, draws, given })
    }

    /// Returns the difference of a call from this one.
    pub(crate) fn compare(&self, now: &Fingerprint) -> Difference {
        if let Some(what) = self.argument_difference(now) {
            return Difference::Values(what);
        }
        let names = |f: &Fingerprint| f.values.iter().map(|v| v.0.clone()).collect::<Vec<_>>();
        if self.runs.len() != now.runs.len()
            || self.draws != now.draws
            || self.final_values.len() != now.final_values.len()
            || names(self) != names(now)
        {
            return Difference::Other;
        }
        let mut values = self.values.iter().zip(&now.values);
        if let Some(((name, a), (_, b))) = values.find(|(a, b)| a.1 != b.1) {
            return Difference::Values(format!(
                "the variable {name} was {a} in the previous call and is {b} now; pass it to the \
                 function as an argument"
            ));
        }
        let mut found = Difference::None;
        for ((tensor, holds), (now_tensor, now_holds)) in
            self.final_values.iter().zip(&now.final_values)
        {
            match compare_origins(holds, now_holds) {
                _ if tensor != now_tensor => return Difference::Other,
                Difference::None => {}
                Difference::Other => return Difference::Other,
                values => found = values,
            }
        }
        for ((a, reads), (b, now_reads)) in self.runs.iter().zip(&now.runs) {
            for difference in [compare_origins(reads, now_reads), compare_graphs(a, b)] {
                match difference {
                    Difference::None => {}
                    Difference::Other => return Difference::Other,
                    values => found = values,
                }
            }
        }
        found
    }

    /// Returns the message for arguments that differ.
    fn argument_difference(&self, now: &Fingerprint) -> Option<String> {
        let (a, b) = (self.given.len(), now.given.len());
        if a != b {
            return Some(format!(
                "the previous call had {a} arguments and this one has {b}; use a separate Jit \
                 for each number of arguments"
            ));
        }
        let (a, b) = self.given.iter().zip(&now.given).find(|(a, b)| a != b)?;
        Some(format!("an argument was {a} in the previous call and is {b} now; use a Jit for each"))
    }
}

/// Returns the origins of the inputs of a run, and adds those of its outputs.
fn origins_of(
    number: usize,
    run: &RecordedPlan,
    known: &mut FxHashMap<u64, Origin>,
) -> Result<Vec<Origin>> {
    let mut origins = Vec::new();
    for input in &run.inputs {
        origins.push(match (known.get(&input.id), &input.own) {
            (Some(known), _) => known.clone(),
            (None, Some(own)) => known.entry(input.id).or_insert(host_origin(own)?).clone(),
            (None, None) => Origin::Freed,
        });
    }
    for (o, id) in run.outputs.iter().enumerate() {
        if let Some(id) = id {
            known.entry(*id).or_insert(Origin::RunOutput(number, o));
        }
    }
    Ok(origins)
}

/// Returns the variables that are no arguments, with their values. Values that no run computes may
/// be sliced by variables too.
fn own_values(capture: &Capture, call: &RecordedCall) -> Result<Vec<(Arc<str>, i64)>> {
    let mut all = call.passed.clone();
    let of_runs = capture.runs.iter().map(|r| &*r.values);
    for values in of_runs.chain(call.final_values.iter().map(|e| &e.values)) {
        if let Some((name, a, b)) = all.differing(values) {
            return Err(Error::Jit(format!(
                "the variable {name} is {a} and {b} in one call, and a captured function has one \
                 value per variable; use two variables with different names"
            )));
        }
        all.complete(values);
    }
    let own = all.iter().filter(|(name, _)| call.passed.get(name).is_none());
    Ok(own.map(|(n, v)| (n.clone(), v)).collect())
}

/// Returns the difference of two planned graphs.
fn compare_graphs(before: &UOp, now: &UOp) -> Difference {
    if before == now {
        return Difference::None;
    }
    let (xs, ys) = (before.toposort(), now.toposort());
    let alike =
        |x: &UOp, y: &UOp| (x.op(), x.dtype(), x.src().len()) == (y.op(), y.dtype(), y.src().len());
    if xs.len() != ys.len() || !xs.iter().zip(&ys).all(|(x, y)| alike(x, y)) {
        return Difference::Other;
    }
    let Some((x, y)) = xs.iter().zip(&ys).find(|(x, y)| x.arg() != y.arg()) else {
        return Difference::Other;
    };
    Difference::Values(format!(
        "the function differs from the previous call: an operation `{:?}` has {:?} and had {:?}; \
         {ADVICE}",
        x.op(),
        y.arg(),
        x.arg()
    ))
}
