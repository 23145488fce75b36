//! In-place writes: an output may be stored in the memory of a donated input, whose content is dead
//! after this run.
//!
//! ```text
//! out[i] = a[i] * 2, a donated   =>   a[i] = a[i] * 2
//! ```

use super::fuse::{self, BufferStore, KernelGroup};
use super::order::{accesses, has_order};
use super::ranges::{RangeAssignment, buffer_param};
use super::{BufferInfo, Role};
use crate::ir::typed::Where;
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
/// only at the index that it writes, and every other reader can run before. `numbers` has the
/// buffer of each output, and `reuse` the input that may be donated to it.
pub fn donate_buffers(
    groups: &mut [KernelGroup],
    ranged: &RangeAssignment,
    numbers: &mut [Option<usize>],
    reuse: &[Option<usize>],
    buffers: &mut [Option<BufferInfo>],
) -> Vec<InPlace> {
    let mut donated: Vec<InPlace> = Vec::new();
    for (o, input) in reuse.iter().enumerate().take(numbers.len()) {
        let (Some(number), Some(input)) = (numbers[o], *input) else { continue };
        let is_free = has_equal_form(&buffers[number], &buffers[input])
            && !is_live(ranged, numbers, number, input)
            && !donated.iter().any(|d| d.input == input);
        let Some(writer) = writer_in_step(groups, number, input).filter(|_| is_free) else {
            continue;
        };
        let reads = |i: &usize| *i != writer && groups[*i].reads.contains(&input);
        let readers = (0..groups.len()).filter(reads).collect();
        donated.push(InPlace { input, writer, readers });
        let before = groups.to_vec();
        rename(groups, number, input);
        if has_order(&accesses(groups, ranged), &donated) {
            numbers[o] = Some(input);
            buffers[number] = None;
        } else {
            donated.pop();
            groups.clone_from_slice(&before);
        }
    }
    donated
}

/// Returns true if an output and an input have the same dtype, length and device.
fn has_equal_form(output: &Option<BufferInfo>, input: &Option<BufferInfo>) -> bool {
    matches!((output, input), (Some(a), Some(b))
        if a.dtype == b.dtype && a.len == b.len && a.device == b.device && a.role == Role::Output)
}

/// Returns true if an input keeps its content: it is itself an output, or a copy or a custom kernel
/// reads it. The same holds for an output that these read, or that is requested twice.
fn is_live(
    ranged: &RangeAssignment,
    numbers: &[Option<usize>],
    number: usize,
    input: usize,
) -> bool {
    numbers.contains(&Some(input))
        || ranged.between().any(|b| b.1.contains(&input) || b.1.contains(&number))
        || numbers.iter().filter(|n| **n == Some(number)).count() > 1
}

/// Returns the one group that stores `number`, if no group needs both the old and the new content.
fn writer_in_step(groups: &[KernelGroup], number: usize, input: usize) -> Option<usize> {
    let writer = groups.iter().position(|g| g.writes().any(|n| n == number))?;
    let creators = groups.iter().filter(|g| g.update.is_none()).flat_map(|g| g.writes());
    let in_parts = creators.filter(|n| *n == number).count() > 1;
    let reads_both = |(i, g): (usize, &KernelGroup)| {
        i != writer && g.reads.contains(&input) && g.reads.contains(&number)
    };
    let is_safe = !in_parts
        && reads_in_step(&groups[writer], number, input)
        && !groups.iter().enumerate().any(reads_both);
    is_safe.then_some(writer)
}

/// Returns true if a group loads `input` only at the index of its store to `number` in the same
/// iteration, and not in a reduce.
fn reads_in_step(g: &KernelGroup, number: usize, input: usize) -> bool {
    let store = g.stores.iter().find(|s| s.buffer == number).expect("the group writes it");
    let loads = |u: &UOp| u.op() == Op::Load && fuse::loaded(u) == input;
    toposort(g.values()).iter().all(|u| match u.op() {
        Op::Load if loads(u) => *u.expect_load().place.index == store.index,
        Op::Reduce => !u.operand().toposort().iter().any(loads),
        _ => true,
    })
}

/// Narrows the loops of a kernel that changes only a part of a donated buffer, as an assignment to
/// a slice does, to that part.
pub fn narrow(groups: &mut [KernelGroup], donated: &[InPlace]) {
    for (i, g) in groups.iter_mut().enumerate().filter(|(_, g)| g.update.is_none()) {
        let in_place = |number: usize| donated.iter().any(|d| d.writer == i && d.input == number);
        // A value that is read and written back unchanged needs no store.
        g.stores.retain(|s| !(in_place(s.buffer) && is_old(s, &s.value)));
        let in_order = g.ranges.iter().any(|r| r.range_kind() == AxisKind::Ordered);
        if in_order || g.stores.is_empty() || !g.stores.iter().all(|s| in_place(s.buffer)) {
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
            s.index = simplify(&s.index.substitute(&map));
            s.value = simplify(&value.substitute(&map));
        }
        g.refresh();
    }
}

/// For each range of a kernel, the first iteration that writes and the number of them.
type Part = Vec<(UOp, UOp)>;

/// Returns the new value of a store and the part that it changes, if the part is a box within the
/// ranges and all other elements keep the old value.
fn written_part(store: &BufferStore, ranges: &[UOp]) -> Option<(UOp, Part)> {
    let Where { cond: mask, x: yes, y: no, .. } = store.value.as_where()?;
    let is_old = |u: &UOp| is_old(store, u);
    // With the operands exchanged, a mask of one clause holds where the clause does not.
    let (new, negated) = if is_old(no) { (yes, false) } else { (no, true) };
    let inside = conjuncts(mask);
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
        // A symbolic length is that of the whole range.
        let fixed = len.terms.is_empty()
            && len.constant > 0
            && start.bounds().0 >= 0
            && end.bounds().1 <= extent.vmin();
        let whole = start.terms.is_empty() && start.constant == 0 && end == Linear::of(extent)?;
        (fixed || whole).then(|| (start.build(), len.build()))
    });
    Some((new.clone(), part.collect::<Option<_>>()?))
}

/// Returns true if a value is an unmasked load of the element that the store writes.
fn is_old(store: &BufferStore, u: &UOp) -> bool {
    u.as_load().is_some_and(|load| {
        fuse::loaded(u) == store.buffer
            && load.place.mask.is_none()
            && *load.place.index == store.index
    })
}

/// Returns the clauses of a conjunction, also of one in the form `a ? b : false`.
fn conjuncts(u: &UOp) -> Vec<UOp> {
    let split = |clause: UOp| match clause.as_where() {
        Some(Where { cond, x, y, .. }) if y.is_int(0) => [conjuncts(cond), conjuncts(x)].concat(),
        _ => vec![clause],
    };
    clauses(u).into_iter().flat_map(split).collect()
}

/// Replaces a buffer by another of the same size in all groups.
fn rename(groups: &mut [KernelGroup], from: usize, to: usize) {
    for g in groups.iter_mut().filter(|g| g.reads.contains(&from) || g.writes().any(|n| n == from))
    {
        for s in &mut g.stores {
            if s.buffer == from {
                s.buffer = to;
            }
            let placeholder = |u: UOp| match u.arg() {
                Arg::Param { slot, len, .. } if *slot == from => {
                    Some((u.clone(), buffer_param(to, *len, u.dtype())))
                }
                _ => None,
            };
            let map: FxHashMap<UOp, UOp> =
                toposort([&s.index, &s.value].into_iter().chain(&g.update))
                    .into_iter()
                    .filter_map(placeholder)
                    .collect();
            (s.index, s.value) = (s.index.substitute(&map), s.value.substitute(&map));
            g.update = g.update.take().map(|mask| mask.substitute(&map));
        }
        if g.reads.remove(&from) {
            g.reads.insert(to);
        }
    }
}
