//! Reproducibility of values. The optimizer chooses the order of a float sum or product for each
//! kernel, so that two kernels can round it differently; every other op gives the same bits
//! everywhere. A value that is compared with itself (an element with the maximum over it), or that
//! decides more than once (the masks of a gradient), must be read from one buffer;
//! [`UOp::materialized`] inserts it.

use super::{Arg, Fold, Group, Op, Src, UOp};

/// The reproducibility of a value's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rounding {
    /// The same in every kernel and every plan.
    Same,
    /// The same in every kernel of a plan, because a `Contiguous` or a copy stores it; another plan
    /// can compute it again.
    SameInPlan,
    /// Two kernels can round it differently.
    Differs,
}

/// Returns the rounding of a node, from that of its operands.
pub(super) fn make_rounding(u: &UOp) -> Rounding {
    let under = |list: &[UOp]| list.iter().map(|s| s.rounding()).max().unwrap_or(Rounding::Same);
    match (u.op(), u.arg()) {
        (Op::Contiguous | Op::Copy | Op::Kernel | Op::Loop, _) => {
            under(u.src()).min(Rounding::SameInPlan)
        }
        (op, _) if op.is(Group::Mark) => u.operand().rounding(),
        (Op::Reduce, Arg::Reduce { fold: Fold::Add | Fold::Mul, .. }) if u.dtype().is_float() => {
            Rounding::Differs
        }
        _ => under(u.src()),
    }
}

impl UOp {
    /// Returns the node to store so that all kernels of a plan read the same bits of this one;
    /// `None` if they do anyway. It is below movement and simple elementwise ops: of windows the
    /// base is stored and not the windows.
    pub fn to_materialize(&self) -> Option<UOp> {
        self.path_to_materialize().map(|path| path[path.len() - 1].0.clone())
    }

    /// Returns the value, computed from a stored node if two kernels could round it differently.
    ///
    /// `max(windows(sum(x)))` becomes `max(windows(contiguous(sum(x))))`.
    pub fn materialized(&self) -> UOp {
        let Some(mut path) = self.path_to_materialize() else { return self.clone() };
        let Some((base, _)) = path.pop() else { return self.clone() };
        let mut value = base.unary(Op::Contiguous);
        while let Some((user, operand)) = path.pop() {
            let mut src: Src = user.src().iter().cloned().collect();
            src[operand] = value;
            value = user.with_src(src);
        }
        value
    }

    /// Returns the path to the node to store: nodes, and the positions of the next ones among their
    /// operands.
    fn path_to_materialize(&self) -> Option<Vec<(UOp, usize)>> {
        if self.rounding() != Rounding::Differs {
            return None;
        }
        let mut path: Vec<(UOp, usize)> = Vec::new();
        let mut u = self.clone();
        loop {
            let Some((base, _)) = u.view() else {
                match only_rounded(&u) {
                    Some(operand) => {
                        path.push((u.clone(), operand));
                        u = u.src()[operand].clone();
                        continue;
                    }
                    None => break,
                }
            };
            if base.numel() > self.numel() {
                break;
            }
            while u.op().is(Group::Movement) {
                path.push((u.clone(), 0));
                u = u.operand().clone();
            }
        }
        path.push((u, 0));
        Some(path)
    }
}

/// Returns the only operand of a cheap elementwise op that kernels can round differently.
fn only_rounded(u: &UOp) -> Option<usize> {
    let cheap =
        matches!(u.op(), Op::Add | Op::Mul | Op::Max | Op::Min | Op::Where | Op::Cast | Op::Detach)
            || u.op().is(Group::Comparison);
    let mut rounded = u.src().iter().enumerate().filter(|s| s.1.rounding() == Rounding::Differs);
    let (operand, s) = rounded.next().filter(|_| cheap)?;
    let fits = s.numel() == u.numel()
        && (u.op() != Op::Cast || s.dtype().itemsize() <= u.dtype().itemsize());
    (fits && rounded.next().is_none()).then_some(operand)
}
