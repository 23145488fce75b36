//! The list of all rule tables, for the tests that rule names are unique and that every rule fires.

use crate::rewrite::{Rule, RuleInfo};
use crate::{autograd, lower, schedule, symbolic};

/// Returns all rules of the crate. `tests/compiler/tidy.rs` checks that no table is missing.
pub fn all_rules() -> Vec<&'static RuleInfo> {
    let mut all = Vec::new();
    symbolic::tables().into_iter().for_each(|t| add(&mut all, t));
    add(&mut all, &autograd::GRADIENTS);
    add(&mut all, &schedule::PREPARE);
    add(&mut all, &schedule::REDUCE_SIMPLIFY);
    add(&mut all, &schedule::MERGE_RANGES);
    add(&mut all, &lower::DECOMPOSE);
    all
}

fn add<C>(all: &mut Vec<&'static RuleInfo>, table: &'static [Rule<C>]) {
    all.extend(table.iter().map(|r| &r.info));
}
