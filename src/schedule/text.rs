//! The state of the scheduler as text, for `PRINT_AFTER` and filetests.

use super::Command;
use super::fuse::KernelGroup;
use super::passes::State;
use crate::ir::{self, UOp};

/// Returns the stores by kernel: one `Sink` of index and value per stored value, and after `fuse`
/// one per group.
pub(super) fn stores(s: &State) -> Vec<UOp> {
    if s.groups.is_empty() {
        let stored = s.ranged.stored.iter();
        return stored.map(|s| UOp::sink(vec![s.index.clone(), s.value.clone()])).collect();
    }
    let of_group = |g: &KernelGroup| {
        let stores = g.stores.iter().flat_map(|s| [s.index.clone(), s.value.clone()]);
        UOp::sink(stores.collect::<Vec<_>>())
    };
    s.groups.iter().map(of_group).collect()
}

/// Prints the stores by kernel with the inputs that they overwrite, then the planned loops.
pub(super) fn ranged(s: &State) -> String {
    let kernel = |(i, stores): (usize, UOp)| {
        let donated = s.in_place.iter().filter(|d| d.writer == i);
        let donated: String = donated.map(|d| format!(", overwrites input {}", d.input)).collect();
        format!("; kernel{donated}\n{}", ir::print(&stores))
    };
    let kernels: String = stores(s).into_iter().enumerate().map(kernel).collect();
    let planned = s.ranged.customs.iter().filter_map(|k| s.loops.get(&k.node.id()));
    kernels + &planned.flatten().map(|c| command(s, c)).collect::<String>()
}

/// Prints a command: its kind, the buffers with their roles, and the kernel or the body.
pub(super) fn command(s: &State, command: &Command) -> String {
    let slot = |n: usize| match &s.buffers[n] {
        Some(b) => format!("{n}: {} of {} {:?}", b.len, b.dtype, b.role),
        None => format!("{n}: unused"),
    };
    named(command, &slot)
}

/// Prints a command with a description of each slot.
fn named(command: &Command, slot: &dyn Fn(usize) -> String) -> String {
    let slots: Vec<String> = command.slots().into_iter().map(slot).collect();
    let slots = slots.join(", ");
    match command {
        Command::Launch { program, device, .. } => {
            format!("; launch on {} [{slots}]\n{}", device.as_str(), ir::print(program))
        }
        Command::Copy { .. } => format!("; copy [{slots}]\n"),
        Command::Repeat(repeat) => {
            let order = if repeat.reverse { ", from the last element to the first" } else { "" };
            let mut text = format!("; repeat {} times{order} [{slots}]\n", repeat.count);
            for (i, bind) in repeat.binds.iter().enumerate() {
                text.extend(bind.iter().map(|bind| format!(";   slot {i} is {bind}\n")));
            }
            let in_body = |n: usize| format!("slot {n}");
            text.extend(repeat.body.iter().map(|c| named(c, &in_body)));
            text + "; end\n"
        }
    }
}
