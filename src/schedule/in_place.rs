//! In-place writes: an output may be stored in the memory of a donated input, whose content is dead
//! after this run.

use super::fuse::{self, KernelGroup};
use super::order::{accesses, has_order};
use super::ranges::RangeAssignment;
use super::{BufferInfo, Role};
use crate::ir::{Arg, AxisKind, Op, UOp, toposort};
use crate::symbolic::{Linear, as_bound, clauses, simplify};
use rustc_hash::FxHashMap;

/// An output that is written into the memory of an input.
pub struct InPlace {
    /// The input.
    pub input: usize,
    /// The group that writes it.
    pub writer: usize,
    /// Groups that read the old content, and so must run before.
    pub readers: Vec<usize>,
}

/// Assigns donated buffers to outputs if no live value is lost: the writer reads the old content
/// only at the index that it writes, and every other reader can run before.
pub fn donate_buffers(
    groups: &mut [KernelGroup],
    ranged: &RangeAssignment,
    numbers: &mut [Option<usize>],
    reuse: &[Option<usize>],
    buffers: &mut [Option<BufferInfo>],
) -> Vec<InPlace> {
    let mut taken: Vec<InPlace> = Vec::new();
    for o in 0..numbers.len() {
        let (Some(number), Some(input)) = (numbers[o], reuse.get(o).copied().flatten()) else {
            continue;
        };
        let fits = matches!((&buffers[number], &buffers[input]), (Some(a), Some(b))
            if a.dtype == b.dtype && a.len == b.len && a.device == b.device && a.role == Role::Output);
        let Some(writer) = groups.iter().position(|g| g.writes().any(|n| n == number)) else {
            continue;
        };
        let in_parts = groups
            .iter()
            .flat_map(|g| g.stores.iter().filter(|_| g.update.is_none()))
            .filter(|s| s.0 == number)
            .count()
            > 1;
        // An input that is itself an output keeps its content, and so does one that a copy or a
        // user kernel reads.
        let wanted = numbers.contains(&Some(input))
            || ranged.between().any(|b| b.1.contains(&input) || b.1.contains(&number));
        let twice = taken.iter().any(|t| t.input == input)
            || numbers.iter().filter(|n| **n == Some(number)).count() > 1;
        if !fits || wanted || twice || in_parts || !reads_in_step(&groups[writer], number, input) {
            continue;
        }
        // A group cannot read both the old and the new content.
        if groups
            .iter()
            .enumerate()
            .any(|(i, g)| i != writer && g.reads.contains(&input) && g.reads.contains(&number))
        {
            continue;
        }
        let readers = (0..groups.len())
            .filter(|&i| i != writer && groups[i].reads.contains(&input))
            .collect();
        taken.push(InPlace { input, writer, readers });
        let before = groups.to_vec();
        rename(groups, number, input);
        if has_order(&accesses(groups, ranged), &taken) {
            numbers[o] = Some(input);
            buffers[number] = None;
        } else {
            taken.pop();
            groups.clone_from_slice(&before);
        }
    }
    taken
}

/// True if a group loads `input` only at the index of its store to `number` in the same iteration,
/// and not in a reduce.
fn reads_in_step(g: &KernelGroup, number: usize, input: usize) -> bool {
    let index =
        g.stores.iter().find(|s| s.0 == number).map(|s| s.1.clone()).expect("the group writes it");
    let loads = |u: &UOp| u.op() == Op::Load && fuse::loaded(u) == input;
    toposort(g.stores.iter().map(|s| &s.2)).iter().all(|u| match u.op() {
        Op::Load if loads(u) => *u.expect_load().place.index == index,
        Op::Reduce => !u.operand().toposort().iter().any(loads),
        _ => true,
    })
}

/// Narrows the loops of a kernel that changes only a part of a donated buffer, as an assignment to
/// a slice does, to that part.
pub fn narrow(groups: &mut [KernelGroup], taken: &[InPlace]) {
    for (i, g) in groups.iter_mut().enumerate().filter(|(_, g)| g.update.is_none()) {
        let in_place = |number: usize| taken.iter().any(|t| t.writer == i && t.input == number);
        // A value that is read and written back unchanged needs no store.
        g.stores
            .retain(|(number, index, value)| !(in_place(*number) && is_old(*number, index, value)));
        let in_order = g.ranges.iter().any(|r| r.range_kind() == AxisKind::Ordered);
        if in_order || g.stores.is_empty() || !g.stores.iter().all(|s| in_place(s.0)) {
            continue;
        }
        let parts: Vec<Option<(UOp, Part)>> =
            g.stores.iter().map(|s| written_part(s, &g.ranges)).collect();
        let Some(Some((_, part))) = parts.first().cloned() else { continue };
        if !parts.iter().all(|p| p.as_ref().is_some_and(|p| p.1 == part)) {
            continue;
        }
        let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut ranges = Vec::new();
        for (r, (start, len)) in g.ranges.iter().zip(&part) {
            let inner = UOp::range(len, r.range_id(), r.range_kind());
            map.insert(r.clone(), if len.is_int(1) { start.clone() } else { start + &inner });
            if !len.is_int(1) {
                ranges.push(inner);
            }
        }
        g.ranges = ranges;
        for (s, p) in g.stores.iter_mut().zip(parts) {
            let value = p.expect("every store has a part").0;
            (s.1, s.2) = (simplify(&s.1.substitute(&map)), simplify(&value.substitute(&map)));
        }
        g.refresh();
    }
}

/// For each range of a kernel, the first iteration that writes and the number of them.
type Part = Vec<(UOp, UOp)>;

/// The new value of a store and the part that it changes, if the part is a box within the ranges
/// and all other elements keep the old value.
fn written_part((number, index, value): &(usize, UOp, UOp), ranges: &[UOp]) -> Option<(UOp, Part)> {
    let (Op::Where, [inside, yes, no]) = (value.op(), value.src()) else { return None };
    let is_old = |u: &UOp| is_old(*number, index, u);
    // The other way around, with a condition of one clause, it holds where the clause does not.
    let (new, negated) = if is_old(no) { (yes, false) } else { (no, true) };
    let inside = conditions(inside);
    if (negated && (!is_old(yes) || inside.len() > 1)) || inside.is_empty() {
        return None;
    }
    let mut bounds: Vec<(Option<Linear>, Option<Linear>)> = vec![(None, None); ranges.len()];
    for clause in inside {
        // `r + a < limit` or `r + a >= limit`, where no range is in `a`.
        let (sum, is_upper, limit) = as_bound(&clause)?;
        let is_upper = is_upper != negated;
        let sum = Linear::of(&sum)?;
        let at = ranges.iter().position(|r| sum.coefficient(r) == 1)?;
        let mut bound = Linear { terms: vec![], constant: limit };
        bound.add_scaled(&sum, -1)?;
        bound.add_term(&ranges[at], 1)?;
        bound.normalize();
        let is_fixed =
            |t: &UOp| t.ranges().is_empty() && !t.toposort().iter().any(|u| u.op() == Op::Load);
        if !bound.terms.iter().all(|(t, _)| is_fixed(t)) {
            return None;
        }
        let side = if is_upper { &mut bounds[at].1 } else { &mut bounds[at].0 };
        // Masks are simplified: of two that remain neither is known to be the tighter one.
        if side.replace(bound).is_some() {
            return None;
        }
    }
    let part = ranges.iter().zip(bounds).map(|(r, (start, end))| {
        let start = start.unwrap_or(Linear { terms: vec![], constant: 0 });
        let extent = r.expect_range().extent;
        let end = end.or_else(|| Linear::of(extent))?;
        let mut len = end.clone();
        len.add_scaled(&start, -1)?;
        len.normalize();
        // A length that is no number is that of a range as it was.
        let fixed = len.terms.is_empty()
            && len.constant > 0
            && start.bounds().0 >= 0
            && end.bounds().1 <= extent.vmin();
        let all = start.terms.is_empty() && start.constant == 0 && end == Linear::of(extent)?;
        (fixed || all).then(|| (start.build(), len.build()))
    });
    Some((new.clone(), part.collect::<Option<_>>()?))
}

/// True if a value is an unmasked load of the buffer at the index.
fn is_old(number: usize, index: &UOp, u: &UOp) -> bool {
    u.as_load().is_some_and(|load| {
        fuse::loaded(u) == number && load.place.mask.is_none() && load.place.index == index
    })
}

/// The clauses of a conjunction, in whatever form it came about: `a ? b : false` is `a & b`.
fn conditions(u: &UOp) -> Vec<UOp> {
    let apart = |c: UOp| match (c.op(), c.src()) {
        (Op::Where, [a, b, no]) if no.is_int(0) => {
            conditions(a).into_iter().chain(conditions(b)).collect()
        }
        _ => vec![c],
    };
    clauses(u).into_iter().flat_map(apart).collect()
}

/// Replaces a buffer by another of the same size in all groups.
fn rename(groups: &mut [KernelGroup], from: usize, to: usize) {
    for g in groups
        .iter_mut()
        .filter(|g| g.reads.contains(&from) || g.stores.iter().any(|s| s.0 == from))
    {
        for s in &mut g.stores {
            if s.0 == from {
                s.0 = to;
            }
            let placeholder = |u: UOp| match u.arg() {
                Arg::Param { slot, len, device } if *slot == from => {
                    let arg = Arg::Param { slot: to, len: *len, device: device.clone() };
                    Some((u.clone(), u.with_arg(arg)))
                }
                _ => None,
            };
            let map: FxHashMap<UOp, UOp> = toposort([&s.1, &s.2].into_iter().chain(&g.update))
                .into_iter()
                .filter_map(placeholder)
                .collect();
            (s.1, s.2) = (s.1.substitute(&map), s.2.substitute(&map));
            g.update = g.update.take().map(|inside| inside.substitute(&map));
        }
        if g.reads.remove(&from) {
            g.reads.insert(to);
        }
    }
}
