//! In-place writes: an output may be stored in the memory of a donated input, whose content is dead
//! after this run.
//!
//! ```text
//! out[i] = a[i] * 2, a donated   =>   a[i] = a[i] * 2
//! ```

use super::assign_ranges::{RangeAssignment, buffer_param};
use super::fuse::{self, KernelGroup};
use super::order::{accesses, has_order};
use super::{BufferInfo, Role};
use crate::ir::{Arg, Op, UOp, toposort};
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
        let is_free = has_equal_layout(&buffers[number], &buffers[input])
            && !is_live(ranged, numbers, number, input)
            && !donated.iter().any(|d| d.input == input);
        let Some(writer) = elementwise_writer(groups, number, input).filter(|_| is_free) else {
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
fn has_equal_layout(output: &Option<BufferInfo>, input: &Option<BufferInfo>) -> bool {
    matches!((output, input), (Some(a), Some(b))
        if a.dtype == b.dtype && a.len == b.len && a.device == b.device && a.role == Role::Output)
}

/// Returns true if the content of an input must survive the run: the input is itself an output, or
/// a copy or a custom kernel reads it. The same holds for an output that these read, or that is
/// requested twice.
fn is_live(
    ranged: &RangeAssignment,
    numbers: &[Option<usize>],
    number: usize,
    input: usize,
) -> bool {
    numbers.contains(&Some(input))
        || ranged.copies_and_customs().any(|b| b.1.contains(&input) || b.1.contains(&number))
        || numbers.iter().filter(|n| **n == Some(number)).count() > 1
}

/// Returns the one group that stores `number`, if no group needs both the old and the new content.
fn elementwise_writer(groups: &[KernelGroup], number: usize, input: usize) -> Option<usize> {
    let writer = groups.iter().position(|g| g.writes().any(|n| n == number))?;
    let creators = groups.iter().filter(|g| g.update.is_none()).flat_map(|g| g.writes());
    let in_parts = creators.filter(|n| *n == number).count() > 1;
    let reads_both = |(i, g): (usize, &KernelGroup)| {
        i != writer && g.reads.contains(&input) && g.reads.contains(&number)
    };
    let is_safe = !in_parts
        && reads_elementwise(&groups[writer], number, input)
        && !groups.iter().enumerate().any(reads_both);
    is_safe.then_some(writer)
}

/// Returns true if a group loads `input` only at the index of its store to `number` in the same
/// iteration, and not in a reduce.
fn reads_elementwise(g: &KernelGroup, number: usize, input: usize) -> bool {
    let store = g.stores.iter().find(|s| s.buffer == number).expect("the group writes it");
    let loads = |u: &UOp| u.op() == Op::Load && fuse::loaded(u) == input;
    toposort(g.values()).iter().all(|u| match u.op() {
        Op::Load if loads(u) => *u.expect_load().place.index == store.index,
        Op::Reduce => !u.operand().toposort().iter().any(loads),
        _ => true,
    })
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
