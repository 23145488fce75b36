//! The state of the scheduler as text, for `PRINT_AFTER` and filetests.

use super::assign_ranges::CustomNode;
use super::fuse::KernelGroup;
use super::passes::State;
use super::{Command, Role};
use crate::ir::{self, Arg, UOp};

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

/// Prints the stores by kernel with the inputs that they overwrite, then loops: the commands of
/// those that are planned, and the bodies of the others.
pub(super) fn ranged(s: &State) -> String {
    let kernel = |(i, stores): (usize, UOp)| {
        let donated = s.in_place.iter().filter(|d| d.writer == i);
        let donated: String = donated.map(|d| format!(", overwrites input {}", d.input)).collect();
        format!("; kernel{donated}\n{}", ir::print(&stores))
    };
    let kernels: String = stores(s).into_iter().enumerate().map(kernel).collect();
    let custom = |k: &CustomNode| match s.loops.get(&k.node.id()) {
        Some(commands) => commands.iter().map(|c| command(s, c)).collect(),
        None => unplanned(k),
    };
    kernels + &s.ranged.customs.iter().map(custom).collect::<String>()
}

/// Prints a loop before it is planned; nothing for a custom kernel.
fn unplanned(k: &CustomNode) -> String {
    let Arg::Loop(l) = k.node.arg() else { return String::new() };
    let order = if l.reverse { ", from the last element to the first" } else { "" };
    let buffers = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "; loop of {} iterations{order}: reads buffers {}, writes {}\n{}",
        l.count,
        buffers(&k.reads),
        buffers(&k.writes),
        ir::print(&l.body)
    )
}

/// Prints a command: its kind, the buffers with their roles, and the kernel or the body.
pub(super) fn command(s: &State, command: &Command) -> String {
    let slot = |n: usize| match &s.buffers[n] {
        Some(b) => format!("{n}: {} of {}, {}", b.len, b.dtype, role(s, &b.role)),
        None => format!("{n}: unused"),
    };
    named(command, &slot)
}

/// Returns the purpose of a buffer, and the place of an intermediate once it has one.
fn role(s: &State, role: &Role) -> String {
    match role {
        Role::Input(i) => format!("input {i}"),
        Role::Output => "output".into(),
        Role::Temporary { .. } if s.placement.arenas.is_empty() => "intermediate".into(),
        Role::Temporary { arena, offset } => format!("arena {arena} at byte {offset}"),
        Role::Values => "values of variables".into(),
    }
}

/// Prints a command with a description of each slot.
fn named(command: &Command, slot: &dyn Fn(usize) -> String) -> String {
    let slots: Vec<String> = command.slots().into_iter().map(slot).collect();
    let slots = slots.join("; ");
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
