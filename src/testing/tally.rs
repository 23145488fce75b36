//! The coverage of a run of random cases.

use super::bounds::{Bound, BoundedValue};
use super::case::Case;
use crate::dtype::{Const, DType};
use crate::ir::{Op, toposort};
use std::collections::BTreeMap;

/// Counts over the cases of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of cases.
    pub cases: usize,
    /// Cases whose outputs are all finite, and not all constant.
    pub useful: usize,
    /// The numbers of output elements that are compared by bits, by bounds, and not at all.
    pub elements: [usize; 3],
    /// The number of nodes of each op and dtype (of the first operand).
    pub covered: BTreeMap<(Op, DType), usize>,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of times each Opt was applied, by name.
    pub opts: BTreeMap<&'static str, usize>,
    /// The number of runs per device that were skipped because the device lacks a dtype.
    pub left_out: BTreeMap<&'static str, usize>,
}

impl Tally {
    /// Adds a case.
    pub fn add(&mut self, case: &Case, expected: &[BoundedValue]) {
        self.cases += 1;
        let finite = |t: &BoundedValue| {
            t.value.data.iter().all(|c| !matches!(c, Const::Float(v) if !v.is_finite()))
                && !t.bounds.contains(&Bound::Unknown)
        };
        let varied = |t: &BoundedValue| t.value.data.iter().any(|c| *c != t.value.data[0]);
        self.useful += (expected.iter().all(finite) && expected.iter().any(varied)) as usize;
        for b in expected.iter().flat_map(|t| &t.bounds) {
            self.elements[match b {
                Bound::Exact => 0,
                Bound::Within(..) => 1,
                Bound::Unknown => 2,
            }] += 1;
        }
        for u in toposort(&case.outputs) {
            self.nodes += 1;
            // The dtype of the table, not of the index.
            let read = if u.op() == Op::Gather { u.src().first() } else { u.src().last() };
            let dtype = read.map_or(u.dtype(), |s| s.dtype());
            *self.covered.entry((u.op(), dtype)).or_default() += 1;
        }
    }
    /// Adds the counts of another run.
    pub fn join(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.useful += other.useful;
        self.nodes += other.nodes;
        for (a, b) in self.elements.iter_mut().zip(other.elements) {
            *a += b;
        }
        for (k, n) in &other.covered {
            *self.covered.entry(*k).or_default() += n;
        }
        for (mine, others) in [(&mut self.opts, &other.opts), (&mut self.left_out, &other.left_out)]
        {
            for (k, n) in others {
                *mine.entry(k).or_default() += n;
            }
        }
    }
    /// Returns the share of cases whose outputs are finite and vary.
    pub fn share(&self) -> f64 {
        self.useful as f64 / self.cases.max(1) as f64
    }
}
