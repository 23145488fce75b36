//! Two ways to apply rules to a graph, both iterative and memoised: to a fixpoint, and in a single walk.

use super::Rule;
use crate::ir::{Op, OpSet, Src, UOp, toposort};
use rustc_hash::FxHashMap;

/// Rules gathered from tables and indexed by the op of their root. The order of tables and rules must not matter.
pub struct Rules<C: 'static> {
    by_op: Vec<Vec<&'static Rule<C>>>,
}

impl<C> Rules<C> {
    /// All rules of the tables.
    pub fn new(tables: &[&'static [Rule<C>]]) -> Rules<C> {
        let mut by_op: Vec<Vec<&'static Rule<C>>> = Op::ALL.iter().map(|_| Vec::new()).collect();
        for rule in tables.iter().flat_map(|t| t.iter()) {
            for &op in Op::ALL.iter().filter(|op| rule.roots.has(**op)) {
                by_op[op as usize].push(rule);
            }
        }
        Rules { by_op }
    }

    /// One step at the root, with the rule that made it.
    #[inline]
    pub fn step(&self, u: &UOp, cx: &mut C) -> Option<(UOp, &'static Rule<C>)> {
        let rules = &self.by_op[u.op() as usize];
        if rules.is_empty() {
            return None;
        }
        let kids = u.src().iter().fold(OpSet::NONE, |s, k| s.or(OpSet::of(k.op())));
        for rule in rules {
            if kids.superset(rule.needs)
                && let Some(new) = (rule.apply)(u, cx)
                && new != *u
            {
                rule.info.count();
                super::trace::record(rule.info.name, u, &new);
                return Some((new, rule));
            }
        }
        None
    }

    /// Applies rules bottom-up until none applies anywhere.
    pub fn fixpoint(&self, root: &UOp, cx: &mut C) -> UOp {
        self.fixpoint_all(std::slice::from_ref(root), cx).pop().expect("one root in, one root out")
    }

    /// As [`fixpoint`](Rules::fixpoint), for several graphs that share nodes.
    pub fn fixpoint_all(&self, roots: &[UOp], cx: &mut C) -> Vec<UOp> {
        enum Task {
            Visit(UOp),
            Rebuild(UOp),
            /// The first becomes whatever the second became.
            Link(UOp, UOp),
        }
        let mut memo: FxHashMap<u64, UOp> = FxHashMap::default();
        let mut tasks: Vec<Task> = roots.iter().rev().cloned().map(Task::Visit).collect();
        // Far more steps than any sound set takes: a loop of rules ends in a message instead of a hang.
        let mut budget: usize = 1_000_000;
        let mut extended = false;
        while let Some(task) = tasks.pop() {
            match task {
                Task::Visit(u) => {
                    if memo.contains_key(&u.id()) {
                        continue;
                    }
                    let at = tasks.len();
                    tasks.push(Task::Rebuild(u.clone()));
                    for s in u.src() {
                        if !memo.contains_key(&s.id()) {
                            tasks.push(Task::Visit(s.clone()));
                        }
                    }
                    // First operand first.
                    tasks[at + 1..].reverse();
                }
                Task::Rebuild(u) => {
                    if memo.contains_key(&u.id()) {
                        continue;
                    }
                    let same = u.src().iter().all(|s| memo[&s.id()] == *s);
                    let new = if same { u.clone() } else { u.with_src(u.src().iter().map(|s| memo[&s.id()].clone()).collect::<Src>()) };
                    match self.step(&new, cx) {
                        Some((next, rule)) => {
                            budget -= 1;
                            if budget == 0 && !extended {
                                // A graph can be so large that a step or more for each node is right. Its size is counted only here.
                                (budget, extended) = (toposort(roots).len().saturating_mul(64), true);
                            }
                            assert!(
                                budget > 0,
                                "rules do not come to an end: last {} at {}:{} on {new:?}",
                                rule.info.name,
                                rule.info.file,
                                rule.info.line
                            );
                            tasks.push(Task::Link(u, next.clone()));
                            tasks.push(Task::Visit(next));
                        }
                        None => {
                            if !same {
                                memo.insert(new.id(), new.clone());
                            }
                            memo.insert(u.id(), new);
                        }
                    }
                }
                Task::Link(u, next) => {
                    let done = memo.get(&next.id()).cloned().unwrap_or_else(|| panic!("rules rewrite {u:?} in a circle"));
                    memo.insert(u.id(), done);
                }
            }
        }
        roots.iter().map(|r| memo[&r.id()].clone()).collect()
    }

    /// One walk, operands first. What a rule returns is not looked at again.
    pub fn once(&self, root: &UOp, cx: &mut C) -> UOp {
        let order = root.toposort();
        let mut memo: FxHashMap<u64, UOp> = FxHashMap::default();
        memo.reserve(order.len());
        for u in &order {
            let same = u.src().iter().all(|s| memo[&s.id()] == *s);
            let new = if same { u.clone() } else { u.with_src(u.src().iter().map(|s| memo[&s.id()].clone()).collect::<Src>()) };
            let new = self.step(&new, cx).map_or(new, |(n, _)| n);
            memo.insert(u.id(), new);
        }
        memo[&root.id()].clone()
    }
}
