//! A proof that a program stays inside its buffers, from interval bounds and from the masks and
//! conditions of accesses.
//!
//! An index is a sum of multiples of terms. A condition `x < c` bounds such a sum, and an index
//! that contains a multiple of the sum inherits the bound. The proof is exact: a node whose
//! arithmetic may wrap is a term of its own, of which only the dtype is known.

use super::accumulators::accumulator_bounds;
use super::{Verdict, broken};
use crate::dtype::Scalar;
use crate::ir::bounds::{fits, meet, plus, product};
use crate::ir::typed::{If, Index, Range, Where};
use crate::ir::{Access, Arg, Bounds, Op, Src, UOp, dependents, toposort_until};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::LazyCell;

/// Proves for every load and store that its elements are in its buffer, and that no 32-bit index
/// arithmetic overflows. The error lists the unproven nodes; lowering must mask those accesses or
/// compute with wider integers.
pub fn in_bounds(uops: &[UOp]) -> Result<(), String> {
    if uops.iter().any(|u| matches!(u.arg(), Arg::Special { extent: 0, .. })) {
        return Ok(());
    }
    let mut open: Vec<&UOp> = Vec::new();
    let mut wrong: Vec<String> = Vec::new();
    let accumulators = LazyCell::new(|| accumulator_bounds(uops));
    for u in uops {
        match u.op() {
            Op::Range | Op::If => open.push(u),
            Op::EndRange | Op::EndIf => drop(open.pop()),
            // A loop without iterations accesses nothing.
            Op::Load | Op::Store
                if !open.iter().filter_map(|r| r.as_range()).any(|r| r.extent.vmax() <= 0) =>
            {
                let known = || accumulators.as_slice();
                wrong.extend(access(u, &open, &[]).or_else(|_| access(u, &open, known())).err());
            }
            _ => {}
        }
    }
    let mut seen = FxHashSet::default();
    for u in uops {
        let roots: &[UOp] = match (u.op(), u.src()) {
            (Op::Index, [_, index_and_mask @ ..]) => index_and_mask,
            (Op::Range | Op::If, src) => src,
            _ => &[],
        };
        // Conditions may compute with data, which may wrap; so may an index before it is clamped.
        let of_data = |n: &UOp| matches!(n.op(), Op::Load | Op::DefineAcc | Op::Assign);
        for (i, root) in roots.iter().enumerate() {
            let mut order = toposort_until([root], of_data);
            let mut data = dependents(&order, of_data);
            if u.op() == Op::Index && i == 0 {
                let clamps = |n: &UOp| {
                    matches!(n.op(), Op::Max | Op::Min)
                        && n.src().iter().any(|s| s.op() == Op::Const)
                };
                order = toposort_until([root], |n| of_data(n) || clamps(n));
                data.clear();
            }
            for n in order
                .iter()
                .filter(|n| n.dtype().scalar == Scalar::I32 && !data.contains(&n.id()) && wraps(n))
            {
                if seen.insert(n.id()) {
                    wrong.push(broken("32-bit index arithmetic does not overflow", n));
                }
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("in bounds: {}", wrong.join("\n"))) }
}

/// Proves for every load and store of a kernel without Opts that its elements are in its buffer
/// wherever its own mask is true. Conditions around an access do not count, because Opts may remove
/// them.
pub fn kernel_in_bounds(root: &UOp) -> Result<(), String> {
    let order = root.toposort();
    let is_symbolic = |u: &&UOp| u.as_range().is_some_and(|r| r.extent.as_int().is_none());
    let symbolic: Vec<&UOp> = order.iter().filter(is_symbolic).collect();
    let mut wrong: Vec<String> = Vec::new();
    for (u, at) in order.iter().filter_map(|u| Some((u, u.as_access()?))) {
        // An access is inside the loops of the ranges that its index depends on.
        let open: Vec<&UOp> =
            symbolic.iter().copied().filter(|r| at.place.index.uses_range(r.range_id())).collect();
        wrong.extend(access(u, &open, &[]).err());
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("in bounds: {}", wrong.join("\n"))) }
}

/// Proves an access inside open ranges and conditionals, with the bounds of other nodes.
fn access(u: &UOp, open: &[&UOp], known: &[(UOp, Bounds)]) -> Verdict {
    let memory = u.as_access().and_then(|a| Some((a, a.place.buffer.memory_len()? as i128)));
    let Some((Access { place: Index { index, mask, .. }, lanes }, len)) = memory else {
        return Err(broken("an index is of global or shared memory", u));
    };
    let Lanes { index, mask, lanes } = Lanes::of(index, mask, lanes);
    let mut facts = Facts::default();
    for o in open {
        if let Some(If { cond, .. }) = o.as_if() {
            facts.assume(cond, true);
        }
        // The counter is below the extent: tighter than its bounds if the extent is no literal.
        if let Some(Range { extent, .. }) = o.as_range()
            && extent.as_int().is_none()
        {
            facts.assume(&o.lt(extent), true);
        }
    }
    if let Some(mask) = mask {
        facts.assume(&mask, true);
    }
    known.iter().for_each(|(node, bounds)| facts.narrow(node, *bounds));
    match prove(&index, facts, len, lanes) {
        None => Ok(()),
        Some((lo, hi)) => {
            let rule = format!(
                "an access is inside its buffer of {len} (proven: elements {lo} to {})",
                hi + lanes - 1
            );
            Err(broken(&rule, u))
        }
    }
}

/// Returns true if `lanes` elements from `index` on are proven to lie in a buffer of `len` elements
/// wherever the mask is true.
pub fn is_proven_inside(index: &UOp, mask: &UOp, len: usize, lanes: u16) -> bool {
    let mut facts = Facts::default();
    let Lanes { index, mask, lanes } = Lanes::of(index, Some(mask), lanes);
    if let Some(mask) = mask {
        facts.assume(&mask, true);
    }
    prove(&index, facts, len as i128, lanes).is_none()
}

/// The claim about an access that is to be proven.
struct Lanes {
    index: UOp,
    mask: Option<UOp>,
    /// The adjacent elements.
    lanes: i128,
}

impl Lanes {
    /// Returns the access of one lane, with a variable for its number, where each lane has a mask.
    fn of(index: &UOp, mask: Option<&UOp>, lanes: u16) -> Lanes {
        let count = i64::from(lanes);
        let number = || UOp::variable("lane".into(), 0, count - 1, index.dtype());
        let of_lanes = mask.filter(|m| m.dtype().lanes > 1);
        match of_lanes.and_then(|m| Some((lane_of(m, &number())?, number()))) {
            Some((mask, lane)) => Lanes { index: index + &lane, mask: Some(mask), lanes: 1 },
            None => {
                let mask = mask.filter(|m| m.dtype().lanes == 1).cloned();
                Lanes { index: index.clone(), mask, lanes: lanes.into() }
            }
        }
    }
}

/// Returns the lane of a mask with the number `lane`, a variable: of a vector whose lanes differ,
/// only multiples of the number are known.
fn lane_of(u: &UOp, lane: &UOp) -> Option<UOp> {
    if u.dtype().lanes == 1 {
        return Some(u.clone());
    }
    let src = u.src();
    match u.op() {
        Op::Const => Some(u.lane(0)),
        Op::Vectorize if src.iter().all(|s| s == u.operand()) => Some(u.operand().clone()),
        Op::Vectorize => {
            let numbers = src.iter().map(UOp::as_int).collect::<Option<Vec<i64>>>()?;
            let step = numbers[1].checked_sub(numbers[0])?;
            let regular = numbers.windows(2).all(|w| w[1].checked_sub(w[0]) == Some(step));
            let scale = UOp::constant(step, lane.dtype());
            let start = UOp::constant(numbers[0], lane.dtype());
            (regular && u.dtype().scalar() == lane.dtype()).then(|| lane * scale + start)
        }
        op if op.is_alu() => {
            let lanes: Option<Src> = src.iter().map(|s| lane_of(s, lane)).collect();
            Some(u.retyped(u.dtype().scalar(), lanes?))
        }
        _ => None,
    }
}

/// The number of nested selects in an index that are split into cases.
const CASES: usize = 6;

/// Proves an index; if that fails, returns the bounds that were found.
fn prove(idx: &UOp, facts: Facts, len: i128, lanes: i128) -> Option<Bounds> {
    prove_cases(idx, facts, len, lanes, &[])
}

/// Proves an index where the conditions of selects around it are assumed.
fn prove_cases(
    idx: &UOp,
    mut facts: Facts,
    len: i128,
    lanes: i128,
    assumed: &[(UOp, bool)],
) -> Option<Bounds> {
    let (lo, hi) = facts.bounds(idx);
    // Contradicting bounds mean that the access never happens.
    if facts.impossible || lo > hi || (lo >= 0 && hi.saturating_add(lanes) <= len) {
        return None;
    }
    let order = toposort_until([idx], |n| n.op() == Op::Load);
    let mut choices = order.iter().rev().filter(|n| n.dtype().is_int()).filter_map(UOp::as_where);
    let Some(Where { node, cond, x, y }) = choices.next().filter(|_| assumed.len() < CASES) else {
        return Some((lo, hi));
    };
    for (truth, side) in [(true, x), (false, y)] {
        let map = FxHashMap::from_iter([(node.clone(), side.clone())]);
        // The conditions of selects around this one depend on it too.
        let around = assumed.iter().map(|(c, truth)| (c.substitute(&map), *truth));
        let assumed: Vec<(UOp, bool)> = around.chain([(cond.clone(), truth)]).collect();
        let mut facts = facts.clone();
        assumed.iter().for_each(|(c, truth)| facts.assume(c, *truth));
        if let Some(bad) = prove_cases(&idx.substitute(&map), facts, len, lanes, &assumed) {
            return Some(bad);
        }
    }
    None
}

/// Returns the bounds of an operation on unlimited integers; none for ops that cannot overflow.
fn exact(u: &UOp) -> Option<Bounds> {
    let (x, y) = u.as_binary()?;
    match u.op() {
        Op::Add => Some(plus(x.bounds(), y.bounds())),
        Op::Mul => Some(product(x.bounds(), y.bounds())),
        Op::Shl if y.bounds().0 >= 0 && y.bounds().1 < 63 => {
            Some(product(x.bounds(), (1 << y.bounds().0, 1 << y.bounds().1)))
        }
        Op::Shl => Some((i128::MIN, i128::MAX)),
        _ => None,
    }
}

/// Returns true if the node's result may differ from that of exact arithmetic.
fn wraps(u: &UOp) -> bool {
    u.dtype().is_int() && exact(u).is_some_and(|b| !fits(b, u.dtype()))
}

/// A sum of multiples of terms, exact.
#[derive(Clone, Default)]
struct Sum {
    terms: Vec<(UOp, i128)>,
    constant: i128,
}

impl Sum {
    fn add(&mut self, u: &UOp, k: i128) {
        let mut stack = vec![(u, k)];
        while let Some((u, k)) = stack.pop() {
            match (u.op(), u.as_binary()) {
                (Op::Const, _) => {
                    self.constant = self.constant.saturating_add(u.vmin().saturating_mul(k))
                }
                (Op::Add, Some((x, y))) if !wraps(u) => stack.extend([(y, k), (x, k)]),
                (Op::Mul, Some((x, c))) if c.op() == Op::Const && !wraps(u) => {
                    stack.push((x, k.saturating_mul(c.vmin())))
                }
                (Op::Mul, Some((c, x))) if c.op() == Op::Const && !wraps(u) => {
                    stack.push((x, k.saturating_mul(c.vmin())))
                }
                (Op::Shl, Some((x, c))) if c.op() == Op::Const && !wraps(u) => {
                    stack.push((x, k.saturating_mul(1 << c.vmin())))
                }
                _ => {
                    let keeps = |x: &UOp| {
                        x.dtype().is_int() && u.dtype().is_int() && fits(x.bounds(), u.dtype())
                    };
                    match u.as_cast().map(|cast| cast.x).filter(|x| keeps(x)) {
                        Some(x) => stack.push((x, k)),
                        None => self.add_term(u, k),
                    }
                }
            }
        }
        self.terms.retain(|(_, k)| *k != 0);
    }
    fn add_term(&mut self, t: &UOp, k: i128) {
        match self.terms.iter_mut().find(|(x, _)| x == t) {
            Some((_, c)) => *c = c.saturating_add(k),
            None => self.terms.push((t.clone(), k)),
        }
    }
    /// Returns true if another sum has the same terms, in any order.
    fn is_same(&self, other: &Sum) -> bool {
        self.terms.len() == other.terms.len() && self.terms.iter().all(|t| other.terms.contains(t))
    }
    /// This sum minus a multiple of another.
    fn less(&self, other: &Sum, q: i128) -> Sum {
        let mut out = self.clone();
        for (t, k) in &other.terms {
            out.add_term(t, -k.saturating_mul(q));
        }
        out.terms.retain(|(_, k)| *k != 0);
        out
    }
}

/// The facts that hold at an access.
#[derive(Clone, Default)]
struct Facts {
    /// Bounds of sums without a constant.
    sums: Vec<(Sum, Bounds)>,
    /// Bounds of nodes that are compared with a literal, and of terms of sums.
    nodes: FxHashMap<UOp, Bounds>,
    /// True if the access never happens.
    impossible: bool,
}

impl Facts {
    /// Adds the fact that a condition is true, or false.
    fn assume(&mut self, cond: &UOp, truth: bool) {
        let mut stack = vec![(cond.clone(), truth)];
        while let Some((c, truth)) = stack.pop() {
            match (c.op(), c.as_binary()) {
                (Op::And | Op::Mul, Some((x, y))) if c.dtype().is_bool() && truth => {
                    stack.extend([(x.clone(), true), (y.clone(), true)])
                }
                (Op::Or | Op::Add, Some((x, y))) if c.dtype().is_bool() && !truth => {
                    stack.extend([(x.clone(), false), (y.clone(), false)])
                }
                (Op::Xor, Some((x, one))) if one.as_int().is_some() => {
                    stack.push((x.clone(), truth ^ one.is_int(1)))
                }
                (Op::Const, _) => self.impossible |= c.is_int(1) != truth,
                (Op::Lt, Some((x, y))) if x.dtype().is_int() => {
                    self.bound(x, y, if truth { (i128::MIN, -1) } else { (0, i128::MAX) })
                }
                (Op::Eq, Some((x, y))) if x.dtype().is_int() && truth => self.bound(x, y, (0, 0)),
                (Op::Ne, Some((x, y))) if x.dtype().is_int() && !truth => self.bound(x, y, (0, 0)),
                _ => {}
            }
        }
    }

    /// Adds bounds of `x - y`.
    fn bound(&mut self, x: &UOp, y: &UOp, (lo, hi): Bounds) {
        for (node, other, sign) in [(x, y, 1), (y, x, -1)] {
            if other.op() == Op::Const && node.op() != Op::Const {
                let (lo, hi) =
                    if sign == 1 { (lo, hi) } else { (hi.saturating_neg(), lo.saturating_neg()) };
                self.narrow(
                    node,
                    (lo.saturating_add(other.vmin()), hi.saturating_add(other.vmin())),
                );
            }
        }
        let mut sum = Sum::default();
        sum.add(x, 1);
        sum.add(y, -1);
        // What is below the smaller of two values is below each: the counter of the loop of a chunk
        // is below `min(len, size - chunk·len)`.
        for ((choice, k), bounds) in choices(&sum, (lo, hi)) {
            let rest = sum.less(&Sum { terms: vec![(choice.clone(), k)], constant: 0 }, 1);
            for s in choice.src() {
                let mut sum = rest.clone();
                sum.add(s, k);
                self.bound_sum(sum, bounds);
            }
        }
        self.bound_sum(sum, (lo, hi));
    }

    /// Adds bounds of a sum.
    fn bound_sum(&mut self, mut sum: Sum, (lo, hi): Bounds) {
        let c = std::mem::take(&mut sum.constant);
        let (lo, hi) = (
            lo.saturating_sub(if lo == i128::MIN { 0 } else { c }),
            hi.saturating_sub(if hi == i128::MAX { 0 } else { c }),
        );
        if sum.terms.is_empty() {
            self.impossible |= lo > 0 || hi < 0;
            return;
        }
        // Both bounds of a sum are one fact, so that the sum is subtracted from an index once.
        match self.sums.iter_mut().find(|(s, _)| s.is_same(&sum)) {
            Some((_, known)) => {
                *known = meet(*known, (lo, hi));
                self.impossible |= known.0 > known.1;
            }
            None => self.sums.push((sum, (lo, hi))),
        }
    }

    fn of(&self, t: &UOp) -> Bounds {
        self.nodes.get(t).map_or(t.bounds(), |b| meet(*b, t.bounds()))
    }

    fn narrow(&mut self, t: &UOp, bounds: Bounds) {
        let known = self.of(t);
        let new = meet(known, bounds);
        if new.0 > new.1 {
            self.impossible = true;
        } else if new != known {
            self.nodes.insert(t.clone(), new);
        }
    }

    /// Returns the bounds of a sum from those of its terms.
    fn sum(&self, s: &Sum) -> Bounds {
        let term = |(t, k): &(UOp, i128)| product(self.of(t), (*k, *k));
        s.terms.iter().map(term).fold((s.constant, s.constant), plus)
    }

    /// Bounds each term of a bounded sum: by the bound minus the bounds of the other terms.
    fn propagate(&mut self) {
        for _ in 0..3 {
            for i in 0..self.sums.len() {
                let (s, (lo, hi)) = self.sums[i].clone();
                for (t, k) in &s.terms {
                    let rest = s.less(&Sum { terms: vec![(t.clone(), *k)], constant: 0 }, 1);
                    let (a, b) = self.sum(&rest);
                    // lo - b <= k·t <= hi - a
                    let (lo, hi) = (lo.saturating_sub(b), hi.saturating_sub(a));
                    let bounds = if *k > 0 {
                        (ceil(lo, *k), hi.div_euclid(*k))
                    } else {
                        (ceil(-hi.max(-i128::MAX), -k), (-lo.max(-i128::MAX)).div_euclid(-k))
                    };
                    self.narrow(t, bounds);
                }
            }
        }
    }

    fn stand_ins(&self) -> FxHashMap<UOp, UOp> {
        self.nodes.iter().filter_map(|(n, b)| Some((n.clone(), stand_in(n, *b)?))).collect()
    }

    /// Bounds each compared node by the facts about the compared nodes inside it.
    fn tighten(&mut self) {
        for n in self.nodes.keys().filter(|n| !n.src().is_empty()).cloned().collect::<Vec<_>>() {
            let mut others = self.stand_ins();
            others.remove(&n);
            let b = n.substitute(&others).bounds();
            self.narrow(&n, b);
        }
    }

    /// Returns a sum minus a multiple of a fact's sum, and the bounds of that multiple; none if
    /// they have no term in common.
    fn without(&self, sum: &Sum, fact: usize) -> Option<(Sum, Bounds)> {
        let (fact, bounds) = &self.sums[fact];
        let (term, of_fact) = &fact.terms[0];
        let (_, k) = sum.terms.iter().find(|(t, _)| t == term)?;
        (k % of_fact == 0).then(|| {
            let q = k / of_fact;
            (sum.less(fact, q), product(meet(*bounds, self.sum(fact)), (q, q)))
        })
    }

    /// Returns the bounds of an expression under the facts.
    fn bounds(&mut self, u: &UOp) -> Bounds {
        self.propagate();
        // Inside a term that is no sum, such as a quotient, bounded nodes become variables with
        // these bounds.
        let mut sum = Sum::default();
        sum.add(u, 1);
        self.tighten();
        let stand_ins = self.stand_ins();
        for (t, _) in &sum.terms {
            if !stand_ins.contains_key(t) {
                let b = t.substitute(&stand_ins).bounds();
                self.narrow(t, b);
            }
            // A fact may be about a part of the dividend.
            if let (Op::IDiv | Op::CDiv, Some((x, c))) = (t.op(), t.as_binary())
                && c.op() == Op::Const
                && c.vmin() > 0
            {
                let ((lo, hi), c) = (self.bounds(x), c.vmin());
                self.narrow(
                    t,
                    if t.op() == Op::IDiv {
                        (lo.div_euclid(c), hi.div_euclid(c))
                    } else {
                        (lo / c, hi / c)
                    },
                );
            }
        }
        let plain =
            if stand_ins.is_empty() { u.bounds() } else { u.substitute(&stand_ins).bounds() };
        let mut best = meet(meet(plain, u.bounds()), self.sum(&sum));
        // Subtracts each fact in turn from the sum, then greedily the facts that leave the
        // narrowest interval.
        for first in 0..self.sums.len() {
            let Some((mut rest, mut taken)) = self.without(&sum, first) else { continue };
            loop {
                let width_of = |(rest, taken): &(Sum, Bounds)| width(plus(self.sum(rest), *taken));
                let now = width(self.sum(&rest));
                let next = (0..self.sums.len())
                    .filter_map(|i| self.without(&rest, i))
                    .min_by_key(width_of);
                let Some((less, part)) = next.filter(|n| width_of(n) < now) else { break };
                (rest, taken) = (less, plus(taken, part));
            }
            best = meet(best, plus(self.sum(&rest), taken));
        }
        best
    }
}

/// Returns the minima and maxima in a bounded sum that may be replaced by each of their operands,
/// with the bounds that the sum then has: a minimum with a negative factor makes it smaller, and so
/// on.
fn choices(sum: &Sum, (lo, hi): Bounds) -> Vec<((UOp, i128), Bounds)> {
    let mut found = Vec::new();
    for (t, k) in sum.terms.iter().filter(|(t, _)| matches!(t.op(), Op::Min | Op::Max)) {
        let shrinks = (t.op() == Op::Min) == (*k < 0);
        match shrinks {
            true if hi < i128::MAX => found.push(((t.clone(), *k), (i128::MIN, hi))),
            false if lo > i128::MIN => found.push(((t.clone(), *k), (lo, i128::MAX))),
            _ => {}
        }
    }
    found
}

fn ceil(x: i128, y: i128) -> i128 {
    -(x.max(-i128::MAX).wrapping_neg().div_euclid(y))
}

fn width(b: Bounds) -> i128 {
    b.1.saturating_sub(b.0)
}

/// Returns a variable with the bounds of a node.
fn stand_in(u: &UOp, (lo, hi): Bounds) -> Option<UOp> {
    let (min, max) = (i64::try_from(lo).ok()?, i64::try_from(hi).ok()?);
    let name = format!("node{}", u.id()).into();
    Some(UOp::variable(name, min, max, u.dtype()))
}
