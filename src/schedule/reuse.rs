//! Writing in place: an output may be stored in the memory of an input whose content nobody needs after this run.

use super::kernels::{self, Group};
use super::order::has_order;
use super::ranges::Ranged;
use super::{BufferInfo, Role};
use crate::ir::{Arg, Op, UOp, toposort};
use rustc_hash::FxHashMap;

/// An output that is written into the memory of an input.
pub struct TakeOver {
    /// The input.
    pub input: usize,
    /// The group that writes it.
    pub writer: usize,
    /// Groups that read the old content, and so must run before.
    pub readers: Vec<usize>,
}

/// Lets outputs take over the memory of inputs where no value that is still needed is lost: the writer reads the old content only at the
/// index that it writes, and everyone else who reads it can come before.
pub fn take_over(
    groups: &mut [Group],
    ranged: &Ranged,
    numbers: &mut [Option<usize>],
    reuse: &[Option<usize>],
    buffers: &mut [Option<BufferInfo>],
) -> Vec<TakeOver> {
    let mut taken: Vec<TakeOver> = Vec::new();
    for o in 0..numbers.len() {
        let (Some(number), Some(input)) = (numbers[o], reuse.get(o).copied().flatten()) else { continue };
        let fits = matches!((&buffers[number], &buffers[input]), (Some(a), Some(b))
            if a.dtype == b.dtype && a.len == b.len && a.device == b.device && a.role == Role::Output);
        let Some(writer) = groups.iter().position(|g| g.writes().any(|n| n == number)) else { continue };
        // An input that is itself an output keeps its content, and so does one that a copy or a kernel of the user's reads.
        let wanted = numbers.contains(&Some(input)) || ranged.between().any(|b| b.1.contains(&input) || b.1.contains(&number));
        let twice = taken.iter().any(|t| t.input == input) || numbers.iter().filter(|n| **n == Some(number)).count() > 1;
        if !fits || wanted || twice || !reads_in_step(&groups[writer], number, input) {
            continue;
        }
        // A group that reads both the old and the new content would find them in one place.
        if groups.iter().enumerate().any(|(i, g)| i != writer && g.reads.contains(&input) && g.reads.contains(&number)) {
            continue;
        }
        let readers = (0..groups.len()).filter(|&i| i != writer && groups[i].reads.contains(&input)).collect();
        taken.push(TakeOver { input, writer, readers });
        let before = groups.to_vec();
        rename(groups, number, input);
        if has_order(groups, ranged, &taken) {
            numbers[o] = Some(input);
            buffers[number] = None;
        } else {
            taken.pop();
            groups.clone_from_slice(&before);
        }
    }
    taken
}

/// Does a group load a buffer only where it stores to another in the same iteration, and not inside a reduce?
fn reads_in_step(g: &Group, number: usize, input: usize) -> bool {
    let index = g.stores.iter().find(|s| s.0 == number).map(|s| s.1.clone()).expect("the group writes it");
    let loads = |u: &UOp| u.op() == Op::Load && kernels::loaded(u) == input;
    toposort(g.stores.iter().map(|s| &s.2)).iter().all(|u| match u.op() {
        Op::Load if loads(u) => u.src()[0].src()[1] == index,
        Op::Reduce => !u.src()[0].toposort().iter().any(loads),
        _ => true,
    })
}

/// Every mention of a buffer becomes one of another of the same size.
fn rename(groups: &mut [Group], from: usize, to: usize) {
    for g in groups.iter_mut().filter(|g| g.reads.contains(&from) || g.stores.iter().any(|s| s.0 == from)) {
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
            let map: FxHashMap<UOp, UOp> = s.2.toposort().into_iter().filter_map(placeholder).collect();
            s.2 = s.2.substitute(&map);
        }
        if g.reads.remove(&from) {
            g.reads.insert(to);
        }
    }
}
