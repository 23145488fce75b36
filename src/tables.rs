//! Every rule table of the crate in one list, for the tests that each rule has a name of its own
//! and fires somewhere.

use crate::rewrite::{Rule, RuleInfo};
use crate::{autograd, lower, schedule, symbolic};

/// All rules of the crate. A table that is not here is not tested.
pub fn all_rules() -> Vec<&'static RuleInfo> {
    let mut all = Vec::new();
    symbolic::tables().into_iter().for_each(|t| add(&mut all, t));
    add(&mut all, &autograd::GRADIENTS);
    add(&mut all, &schedule::PREPARE);
    add(&mut all, &schedule::SIMPLIFY_REDUCES);
    add(&mut all, &schedule::MERGE_RANGES);
    add(&mut all, &lower::DECOMPOSE);
    all
}

fn add<C>(all: &mut Vec<&'static RuleInfo>, table: &'static [Rule<C>]) {
    all.extend(table.iter().map(|r| &r.info));
}
