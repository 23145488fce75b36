//! Traces of rewrites: the rules that fired, and the nodes before and after.

use crate::ir::UOp;
use std::cell::RefCell;

/// One rewrite.
#[derive(Clone, Debug)]
pub struct Step {
    /// The name of the rule.
    pub rule: &'static str,
    /// The node before.
    pub before: UOp,
    /// The node after.
    pub after: UOp,
}

thread_local! {
    static TRACE: RefCell<Option<Vec<Step>>> = const { RefCell::new(None) };
}

pub(super) fn record(rule: &'static str, before: &UOp, after: &UOp) {
    TRACE.with_borrow_mut(|t| {
        if let Some(steps) = t {
            steps.push(Step { rule, before: before.clone(), after: after.clone() });
        }
    });
}

/// Runs `f` and returns its value, and its rewrites on this thread.
pub fn traced<T>(f: impl FnOnce() -> T) -> (T, Vec<Step>) {
    let outer = TRACE.replace(Some(Vec::new()));
    let value = f();
    let steps = TRACE.replace(outer).unwrap_or_default();
    (value, steps)
}
