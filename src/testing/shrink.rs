//! Shrinking: replaces a failing case by smaller ones as long as they fail in the same way.

use super::bounds::BoundedValue;
use super::case::Case;
use super::run::{Failure, check, chosen};
use super::setup::{Setup, SetupOpts};
use crate::dtype::{Const, DType};
use crate::ir::{Arg, Op, UOp, rebuild_all, substitute_all, toposort};
use crate::shape::{Dims, Movement};
use rustc_hash::FxHashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// A failure, and how to reproduce it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of the original case.
    pub seed: u64,
    /// The smallest case found.
    pub case: Case,
    /// The setup of the run.
    pub setup: Setup,
    /// The failure of the smallest case.
    pub failure: Failure,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "; seed {} on {}", self.seed, self.setup)?;
        for line in self.failure.to_string().lines().take(40) {
            writeln!(f, "; {line}")?;
        }
        f.write_str(&self.case.text())
    }
}

/// Returns the failure of a case, if it is of a kind.
fn fails(case: &Case, setup: &Setup, kind: &str) -> Option<Failure> {
    // The reference evaluator panics on some invalid cases, such as reductions over missing axes.
    let expected =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.expected())).ok()?;
    fails_with(case, &expected, setup, kind)
}

fn fails_with(
    case: &Case,
    expected: &[BoundedValue],
    setup: &Setup,
    kind: &str,
) -> Option<Failure> {
    check(case, expected, setup).err().filter(|f| f.kind() == kind)
}

/// Shrinks a failing case within a time limit.
pub fn shrink(seed: u64, case: &Case, setup: &Setup, failure: &Failure, limit: Duration) -> Report {
    let (start, kind) = (Instant::now(), failure.kind());
    let mut best =
        Report { seed, case: case.clone(), setup: setup.clone(), failure: failure.clone() };
    let mut again = true;
    while again && start.elapsed() < limit {
        again = false;
        for smaller in candidates(&best.case) {
            if start.elapsed() > limit {
                break;
            }
            if let Some(failure) = fails(&smaller, &best.setup, &kind) {
                best.case = smaller;
                best.failure = failure;
                again = true;
                break;
            }
        }
    }
    fewer_opts(&mut best, &kind);
    best.case = renumbered(&best.case);
    best
}

/// Replaces the policy by its Opts, and removes those that the failure does not need.
fn fewer_opts(best: &mut Report, kind: &str) {
    let Ok(mut given) = chosen(&best.case, &best.setup) else { return };
    let with = |given: &Vec<Vec<_>>| Setup {
        choose: SetupOpts::Given(given.clone()),
        ..best.setup.clone()
    };
    if fails(&best.case, &with(&given), kind).is_none() {
        return;
    }
    for kernel in 0..given.len() {
        let mut i = 0;
        while i < given[kernel].len() {
            let mut fewer = given.clone();
            fewer[kernel].remove(i);
            if fails(&best.case, &with(&fewer), kind).is_some() {
                given = fewer;
            } else {
                i += 1;
            }
        }
    }
    let setup = with(&given);
    if let Some(failure) = fails(&best.case, &setup, kind) {
        best.setup = setup;
        best.failure = failure;
    }
}

/// Returns the case without unused inputs, the others renumbered.
fn renumbered(case: &Case) -> Case {
    let mut inputs = Vec::new();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in toposort(&case.outputs) {
        if let Arg::Param { slot, len, .. } = u.arg() {
            map.insert(u.clone(), super::case::param(inputs.len(), *len, u.dtype()));
            inputs.push(case.inputs[*slot].clone());
        }
    }
    Case { outputs: substitute_all(&case.outputs, &map), inputs }
}

/// Smaller cases, the smallest first as far as known.
fn candidates(case: &Case) -> Vec<Case> {
    let with = |outputs: Vec<UOp>| Case { outputs, inputs: case.inputs.clone() };
    let mut list = Vec::new();
    if case.outputs.len() > 1 {
        list.extend(case.outputs.iter().map(|o| with(vec![o.clone()])));
        list.extend((0..case.outputs.len()).map(|i| {
            let mut outputs = case.outputs.clone();
            outputs.remove(i);
            with(outputs)
        }));
    }
    // An operand of an output instead of it.
    for (i, o) in case.outputs.iter().enumerate() {
        for s in o.src() {
            let mut outputs = case.outputs.clone();
            outputs[i] = s.clone();
            list.push(with(outputs));
        }
    }
    // A node replaced by a simpler one; late nodes first, because that removes most.
    let order = toposort(&case.outputs);
    for u in order.iter().rev() {
        for new in simpler(u) {
            let outputs = substitute_all(&case.outputs, &FxHashMap::from_iter([(u.clone(), new)]));
            if !outputs.contains(u) || outputs != case.outputs {
                list.push(with(outputs));
            }
        }
    }
    // Shorter axes: a size that occurs in inputs and movements, everywhere at once.
    let mut sizes: Vec<usize> =
        order.iter().flat_map(|u| u.shape().to_vec()).filter(|n| *n > 1).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for &size in sizes.iter().rev() {
        for to in [1, 2, size / 2, size - 1] {
            if (1..size).contains(&to) {
                list.extend(resized(case, size, to));
            }
        }
    }
    // Plainer content.
    for (i, bytes) in case.inputs.iter().enumerate() {
        if bytes.iter().any(|b| *b != 0) {
            let mut inputs = case.inputs.clone();
            inputs[i] = vec![0; bytes.len()];
            list.push(Case { outputs: case.outputs.clone(), inputs });
        }
    }
    let size = case.size();
    list.retain(|c| {
        c.size() < size
            || c.inputs != case.inputs
            || (c.size() == size && c.outputs != case.outputs && weight(c) < weight(case))
    });
    list
}

/// Returns the size of a case: elements, nodes and operands.
fn weight(case: &Case) -> usize {
    toposort(&case.outputs).iter().map(|u| u.numel() + 1 + u.src().len()).sum()
}

/// Replacements of a node: an operand converted to its shape and dtype, or a literal.
fn simpler(u: &UOp) -> Vec<UOp> {
    let mut list = Vec::new();
    for s in u.src() {
        if s.dtype() == u.dtype() && s.shape() == u.shape() {
            list.push(s.clone());
        } else if s.shape() == u.shape() && u.op() != Op::Cast {
            list.push(s.cast(u.dtype()));
        } else if s.dtype() == u.dtype() && s.numel() == u.numel() && u.op() != Op::Reshape {
            list.push(s.moved(Movement::Reshape(u.shape().clone())));
        }
    }
    if !matches!(u.op(), Op::Const | Op::Param) && u.dtype() != DType::VOID {
        let one = Const::Int(1).cast(DType::I64, u.dtype());
        let literal = UOp::literal(one, u.dtype());
        if u.shape().is_empty() {
            list.push(literal);
        } else if !is_spread_literal(u) && u.op() != Op::Reshape {
            let ones: Dims = u.shape().iter().map(|_| 1).collect();
            let literal = literal.moved(Movement::Reshape(ones));
            list.push(literal.moved(Movement::Expand(u.shape().clone())));
        }
    }
    list
}

/// Returns true if the node is a literal expanded to a shape.
fn is_spread_literal(u: &UOp) -> bool {
    let under = u.as_expand().and_then(|e| e.x.as_reshape());
    under.is_some_and(|r| r.x.op() == Op::Const)
}

/// Returns the case with every axis of one size resized, if the graph is still valid.
fn resized(case: &Case, from: usize, to: usize) -> Option<Case> {
    let mut inputs = case.inputs.clone();
    let order = toposort(&case.outputs);
    let mut fits = true;
    let outputs = rebuild_all(&case.outputs, |u, src| {
        let size = |n: &usize| if *n == from { to } else { *n };
        let new = fits.then(|| resized_node(u, src, &order, &mut inputs, &size)).flatten();
        fits &= new.is_some();
        new
    });
    fits.then_some(Case { outputs, inputs })
}

/// Returns a node with resized operands; none if it is not valid.
fn resized_node(
    u: &UOp,
    src: &[UOp],
    order: &[UOp],
    inputs: &mut [Vec<u8>],
    size: &dyn Fn(&usize) -> usize,
) -> Option<UOp> {
    Some(match u.arg() {
        Arg::Param { slot, .. } => {
            // The length follows from the shape that the input is first given.
            let user = order.iter().find(|v| v.as_reshape().is_some_and(|r| r.x == u));
            let len = user.map_or(size(&u.numel()), |v| v.shape().iter().map(size).product());
            let bytes = len * u.dtype().itemsize();
            if bytes > inputs[*slot].len() {
                return None;
            }
            inputs[*slot].truncate(bytes);
            super::case::param(*slot, len, u.dtype())
        }
        Arg::Iota { len } => u.with_arg(Arg::Iota { len: size(len) }),
        Arg::Movement(m) => {
            let now = src[0].shape();
            let cut = |((a, b), n): (&(usize, usize), &usize)| ((*a).min(*n), (*b).min(*n));
            let m = match &**m {
                Movement::Reshape(d) => Movement::Reshape(d.iter().map(size).collect()),
                Movement::Expand(d) => Movement::Expand(d.iter().map(size).collect()),
                Movement::Shrink(r) => Movement::Shrink(r.iter().zip(now).map(cut).collect()),
                other => other.clone(),
            };
            m.apply_shape(now).ok()?;
            UOp::new(u.op(), u.dtype(), src, Arg::Movement(Box::new(m)))
        }
        _ => {
            let mut shapes = src.iter().map(|s| s.shape()).filter(|s| !s.is_empty());
            let first = shapes.next();
            if u.op().is_alu() && !shapes.all(|s| Some(s) == first) {
                return None;
            }
            u.with_src(src)
        }
    })
}
