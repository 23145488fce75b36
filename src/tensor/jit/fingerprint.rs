//! The fingerprint of a call: the graphs that it computed, their inputs, and the host data in them.

use super::args::Leaf;
use super::observe::{Observed, add_values, given_values};
use crate::device::{Buffer, Memory};
use crate::error::{Error, Result};
use crate::ir::UOp;
use crate::schedule::Values;
use crate::tensor::realize::storages;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::sync::Arc;

/// The fingerprint of a call.
pub(super) struct Fingerprint {
    runs: Vec<(UOp, Vec<Input>)>,
    /// Variables that are no arguments, with their values.
    values: Vec<(Arc<str>, i64)>,
    /// Contents of results and changed tensors at the end.
    ends: Vec<(usize, Vec<Input>)>,
    draws: Vec<u64>,
    given: Vec<String>,
}

/// An input of a graph.
#[derive(Clone, PartialEq)]
enum Input {
    Argument(usize, usize),
    /// A tensor from outside, by address: it is alive.
    Outside(usize, usize),
    Draw(usize),
    /// The result of a run, by its number and that of the output.
    Made(usize, usize),
    /// A storage that was freed.
    Gone,
    /// Host data of the function: dtype, elements, and a hash.
    Host(String, u64),
}

/// Difference of two calls.
pub(super) enum Difference {
    None,
    /// The same operations with other numbers in them; the message says which.
    Values(String),
    /// Other operations.
    Other,
}

/// The fingerprint of host data. Files are not read, and `NULL` has no content.
fn made_of_host(buffer: &Buffer) -> Result<Input> {
    let mut hasher = FxHasher::default();
    if matches!(buffer.place().memory, Memory::Host(_) | Memory::Remote(_)) {
        hasher.write(&buffer.read()?);
    }
    Ok(Input::Host(format!("{} × {}", buffer.size(), buffer.dtype()), hasher.finish()))
}

fn compare_inputs(before: &[Input], now: &[Input]) -> Difference {
    if before.len() != now.len() {
        return Difference::Other;
    }
    let mut found = Difference::None;
    for (x, y) in before.iter().zip(now) {
        match (x, y) {
            (Input::Gone, _) | (_, Input::Gone) => return Difference::Other,
            (x, y) if x == y => {}
            (Input::Host(what, _), Input::Host(same, _)) if what == same => {
                let msg = format!(
                    "the function creates {what} from host data that differs from the call \
                     before; {PASS}"
                );
                found = Difference::Values(msg);
            }
            _ => return Difference::Other,
        }
    }
    found
}

const PASS: &str = "pass what changes from call to call as an argument, or keep it in a tensor";

impl Fingerprint {
    /// The fingerprint of an observed call and its results.
    pub(super) fn of(observed: &Observed, results: &[UOp]) -> Result<Fingerprint> {
        let mut known: FxHashMap<u64, Input> = FxHashMap::default();
        for (id, (tensor, part)) in &observed.outside {
            known.insert(*id, Input::Outside(tensor.as_ptr() as usize, *part));
        }
        let mut given = Vec::new();
        for (i, g) in observed.given.iter().enumerate() {
            match g {
                Leaf::Host(value) => given.push(value.clone()),
                Leaf::Variable(bound) => given.push(bound.unbound().text()),
                Leaf::Length(n) => given.push(format!("a list of {n}")),
                Leaf::Tensor(own) => {
                    given.push(super::described_for_all(own));
                    for (part, s) in storages(&own.raw()).into_iter().flatten().enumerate() {
                        known.insert(s.storage.id(), Input::Argument(i, part));
                    }
                }
            }
        }
        for (i, draw) in observed.capture.draws.iter().enumerate() {
            draw.storages.iter().for_each(|id| drop(known.insert(*id, Input::Draw(i))));
        }
        let mut runs = Vec::new();
        for (r, run) in observed.capture.runs.iter().enumerate() {
            let mut inputs = Vec::new();
            for input in &run.inputs {
                inputs.push(match (known.get(&input.id), &input.own) {
                    (Some(known), _) => known.clone(),
                    (None, Some(own)) => {
                        known.entry(input.id).or_insert(made_of_host(own)?).clone()
                    }
                    (None, None) => Input::Gone,
                });
            }
            for (o, id) in run.outputs.iter().enumerate() {
                if let Some(id) = id {
                    known.entry(*id).or_insert(Input::Made(r, o));
                }
            }
            runs.push((run.graph.clone(), inputs));
        }
        // Contents of changed tensors and results.
        let mut ends = Vec::new();
        let changed = observed.changed.iter().map(|t| (t.id(), t.raw()));
        for (tensor, node) in changed.chain(results.iter().map(|u| (0, u.clone()))) {
            let mut holds = Vec::new();
            for s in storages(&node).into_iter().flatten() {
                holds.push(match known.get(&s.storage.id()) {
                    Some(known) => known.clone(),
                    None => made_of_host(&Buffer::of(s))?,
                });
            }
            ends.push((tensor, holds));
        }
        let passed = given_values(&observed.given)?;
        let mut all = passed.clone();
        // Stored values are sliced by variables without a run.
        let held =
            observed.changed.iter().map(|t| t.raw()).chain(results.iter().cloned()).map(|node| {
                let mut values = Values::default();
                add_values(&mut values, &node).map(|()| values)
            });
        for values in observed.capture.runs.iter().map(|r| Ok((*r.values).clone())).chain(held) {
            let values = values?;
            if let Some((name, a, b)) = all.differing(&values) {
                return Err(Error::Jit(format!(
                    "the variable {name} is {a} and {b} in one call; a captured function has one \
                     value of each, so give the other a name of its own"
                )));
            }
            all.complete(&values);
        }
        let values = all
            .iter()
            .filter(|(name, _)| passed.get(name).is_none())
            .map(|(n, v)| (n.clone(), v))
            .collect();
        let draws = observed.capture.draws.iter().map(|d| d.numbers).collect();
        Ok(Fingerprint { runs, values, ends, draws, given })
    }

    pub(super) fn compare(&self, now: &Fingerprint) -> Difference {
        let other = |a: &String, b: &String| {
            Difference::Values(format!(
                "an argument was {a} at the call before and is {b} now; have a Jit for each"
            ))
        };
        if self.given.len() != now.given.len() {
            let (a, b) = (self.given.len(), now.given.len());
            return Difference::Values(format!(
                "there were {a} arguments at the call before, and now there are {b}; have a Jit \
                 for each number"
            ));
        }
        if let Some((a, b)) = self.given.iter().zip(&now.given).find(|(a, b)| a != b) {
            return other(a, b);
        }
        if self.runs.len() != now.runs.len()
            || self.draws != now.draws
            || self.ends.len() != now.ends.len()
        {
            return Difference::Other;
        }
        if self.values.iter().map(|v| &v.0).ne(now.values.iter().map(|v| &v.0)) {
            return Difference::Other;
        }
        if let Some(((name, a), (_, b))) =
            self.values.iter().zip(&now.values).find(|(a, b)| a.1 != b.1)
        {
            return Difference::Values(format!(
                "the variable {name} was {a} at the call before and is {b} now; pass it to the \
                 function as an argument"
            ));
        }
        let mut found = Difference::None;
        for ((tensor, holds), (now_tensor, now_holds)) in self.ends.iter().zip(&now.ends) {
            match compare_inputs(holds, now_holds) {
                Difference::None if tensor == now_tensor => {}
                Difference::Values(what) if tensor == now_tensor => {
                    found = Difference::Values(what)
                }
                _ => return Difference::Other,
            }
        }
        for ((a, reads), (b, now_reads)) in self.runs.iter().zip(&now.runs) {
            match compare_inputs(reads, now_reads) {
                Difference::None => {}
                Difference::Other => return Difference::Other,
                values => found = values,
            }
            if a != b {
                let (xs, ys) = (a.toposort(), b.toposort());
                let alike = |x: &UOp, y: &UOp| {
                    (x.op(), x.dtype(), x.src().len()) == (y.op(), y.dtype(), y.src().len())
                };
                if xs.len() != ys.len() || !xs.iter().zip(&ys).all(|(x, y)| alike(x, y)) {
                    return Difference::Other;
                }
                let Some((x, y)) = xs.iter().zip(&ys).find(|(x, y)| x.arg() != y.arg()) else {
                    return Difference::Other;
                };
                let msg = format!(
                    "the function is not the same at each call: {:?} of {:?} was {:?} at the call \
                     before; {PASS}",
                    x.op(),
                    y.arg(),
                    x.arg()
                );
                found = Difference::Values(msg);
            }
        }
        found
    }
}
