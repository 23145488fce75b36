//! Application of rules to a graph, to a fixpoint or in a single walk. Both are iterative and
//! memoized.

use super::Rule;
use crate::ir::{IdSet, Op, OpSet, Src, UOp, toposort, visit, walk};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rules gathered from tables and indexed by the op of their root. The order of tables and rules
/// must not matter.
pub struct Rules<C: 'static> {
    by_op: Vec<Vec<Entry<C>>>,
    /// The bit that marks nodes as fixpoints of this set; 0 if fixpoints are not cached.
    fixpoint_bit: u32,
}

/// A rule, and the operand ops that it needs, which reject most nodes early.
struct Entry<C: 'static> {
    needs: OpSet,
    rule: &'static Rule<C>,
}

impl<C> Rules<C> {
    /// Returns the rules of the tables.
    pub fn new(tables: &[&'static [Rule<C>]]) -> Rules<C> {
        let mut by_op: Vec<Vec<Entry<C>>> = Op::ALL.iter().map(|_| Vec::new()).collect();
        for rule in tables.iter().flat_map(|t| t.iter()) {
            for &op in Op::ALL.iter().filter(|op| rule.roots.has(**op)) {
                by_op[op as usize].push(Entry { needs: rule.needs, rule });
            }
        }
        Rules { by_op, fixpoint_bit: 0 }
    }

    /// As [`new`](Rules::new), for rules that depend only on the graph under the node, and for a
    /// set that lives as long as the process. Nodes cache that they are fixpoints of it, so that
    /// simplifying a simplified graph takes no time.
    pub fn pure(tables: &[&'static [Rule<C>]]) -> Rules<C> {
        static SETS: AtomicU32 = AtomicU32::new(0);
        // Sets beyond the 32nd have no bit and are applied without the cache.
        let fixpoint_bit = 1u32.checked_shl(SETS.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        Rules { fixpoint_bit, ..Rules::new(tables) }
    }

    /// Applies one rule at the root; returns the result and the rule.
    #[inline]
    pub fn step(&self, u: &UOp, cx: &mut C) -> Option<(UOp, &'static Rule<C>)> {
        let rules = &self.by_op[u.op() as usize];
        if rules.is_empty() {
            return None;
        }
        visit(1);
        let kids = u.src().iter().fold(OpSet::NONE, |s, k| s.or(OpSet::of(k.op())));
        for Entry { needs, rule } in rules {
            if kids.superset(*needs)
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
        let one = |root: &UOp, cx: &mut C| {
            self.fixpoint_all(std::slice::from_ref(root), cx)
                .pop()
                .expect("one root in, one root out")
        };
        if root.is_fixpoint(self.fixpoint_bit) {
            return root.clone();
        }
        // A node whose operands are fixpoints needs no walk.
        if self.fixpoint_bit == 0 || !root.src().iter().all(|s| s.is_fixpoint(self.fixpoint_bit)) {
            return one(root, cx);
        }
        match self.step(root, cx) {
            Some((next, _)) => one(&next, cx),
            None => {
                root.mark_fixpoint(self.fixpoint_bit);
                root.clone()
            }
        }
    }

    /// As [`fixpoint`](Rules::fixpoint), for several graphs that share nodes.
    pub fn fixpoint_all(&self, roots: &[UOp], cx: &mut C) -> Vec<UOp> {
        let mut memo = Memo { fixpoint_bit: self.fixpoint_bit, ..Memo::default() };
        // More steps than a terminating set takes, so that an endless set panics.
        let mut budget: usize = 1_000_000;
        let mut extended = false;
        let mut stack: Vec<Frame> = Vec::with_capacity(16);
        for root in roots {
            memo.visit(root, &mut stack);
            while let Some(top) = stack.last_mut() {
                if let Some(s) = top.node.src().get(top.operand) {
                    top.operand += 1;
                    if !memo.is_done(s) {
                        let s = s.clone();
                        stack.push(Frame::new(s));
                    }
                    continue;
                }
                if let Some(next) = &top.becomes {
                    let done = memo.result(next);
                    memo.set(&top.node, done);
                    stack.pop();
                    continue;
                }
                let new = memo.rebuilt(&top.node);
                let now = new.as_ref().unwrap_or(&top.node);
                let Some((next, rule)) = self.step(now, cx) else {
                    if let Some(new) = new {
                        memo.set_unchanged(&new);
                        memo.set(&top.node, new);
                    } else {
                        memo.set_unchanged(&top.node);
                    }
                    stack.pop();
                    continue;
                };
                budget -= 1;
                if budget == 0 && !extended {
                    // A large graph may need several steps per node. Its size is counted only here.
                    (budget, extended) = (toposort(roots).len().saturating_mul(64), true);
                }
                let info = &rule.info;
                assert!(
                    budget > 0,
                    "rules do not terminate: last {} at {}:{} on {now:?}",
                    info.name,
                    info.file,
                    info.line
                );
                top.becomes = Some(next.clone());
                memo.visit(&next, &mut stack);
            }
        }
        roots.iter().map(|r| memo.result(r)).collect()
    }

    /// Applies rules in one walk, operands first. Results of rules are not visited again.
    pub fn once(&self, root: &UOp, cx: &mut C) -> UOp {
        // The memo has only the nodes that changed.
        let mut memo = Memo::default();
        walk(
            [root],
            |_| false,
            |u| {
                let new = memo.rebuilt(u);
                match self.step(new.as_ref().unwrap_or(u), cx) {
                    Some((next, _)) => memo.set(u, next),
                    None => new.into_iter().for_each(|new| memo.set(u, new)),
                }
            },
        );
        memo.result(root)
    }
}

/// A node in progress: its operands are visited in order, then the node itself.
struct Frame {
    node: UOp,
    /// The next operand.
    operand: usize,
    /// The replacement by a rule, whose result is that of the node.
    becomes: Option<UOp>,
}

impl Frame {
    fn new(node: UOp) -> Frame {
        Frame { node, operand: 0, becomes: None }
    }
}

/// The results of the nodes that were visited.
#[derive(Default)]
struct Memo {
    /// Nodes whose result is known.
    done: IdSet,
    /// The results that differ from their node.
    replaced: FxHashMap<u64, UOp>,
    /// The bit of the rule set; nodes that have it are unchanged and need no entry.
    fixpoint_bit: u32,
}

impl Memo {
    #[inline]
    fn is_done(&self, u: &UOp) -> bool {
        u.is_fixpoint(self.fixpoint_bit) || self.done.has(u.id())
    }
    fn visit(&self, u: &UOp, stack: &mut Vec<Frame>) {
        if !self.is_done(u) {
            stack.push(Frame::new(u.clone()));
        }
    }
    #[inline]
    fn changed(&self, u: &UOp) -> Option<&UOp> {
        if self.replaced.is_empty() || u.is_fixpoint(self.fixpoint_bit) {
            None
        } else {
            self.replaced.get(&u.id())
        }
    }
    fn result(&self, u: &UOp) -> UOp {
        self.changed(u).unwrap_or(u).clone()
    }
    /// Returns the node over the results of its operands, if one of them changed.
    fn rebuilt(&self, u: &UOp) -> Option<UOp> {
        let operands = u.src();
        let first = operands.iter().position(|s| self.changed(s).is_some())?;
        let same = operands[..first].iter().cloned();
        Some(u.with_src(
            same.chain(operands[first..].iter().map(|s| self.result(s))).collect::<Src>(),
        ))
    }
    /// Records that the node is its own result.
    fn set_unchanged(&mut self, u: &UOp) {
        if self.fixpoint_bit != 0 {
            u.mark_fixpoint(self.fixpoint_bit);
        } else {
            self.done.insert(u.id());
        }
    }
    fn set(&mut self, u: &UOp, new: UOp) {
        self.done.insert(u.id());
        if new != *u {
            self.replaced.insert(u.id(), new);
        }
    }
}
