//! The pass `hint_stores`. Input: commands in order. Output: the same commands, in which the stores
//! of elements that are not read again soon have the hint `nontemporal`: their lines would leave
//! the caches before, and push out others.
//!
//! An output is not read again soon if the buffers that commands name before its next reader are
//! larger than a part of the last-level cache, or if the plan does not read it. A kernel that reads
//! what it writes has no hint, because the line is in a cache already.
//!
//! ```text
//! launch [1: 16777216 of f32, output; 0: …]   Store(data0[i], x)
//! ->                                          Store(data0[i], x) {nontemporal}
//! ```

use super::traits::Nontemporal;
use super::{BufferInfo, Command};
use crate::ir::{Arg, DeviceName, Op, Src, UOp};
use rustc_hash::FxHashSet;

/// Sets the hints of stores.
pub fn hint_stores(
    commands: &mut [Command],
    buffers: &[Option<BufferInfo>],
    sizes_of: &dyn Fn(&DeviceName) -> Option<Nontemporal>,
) {
    let bytes = |slot: usize| buffers[slot].as_ref().map_or(0, BufferInfo::bytes);
    for i in 0..commands.len() {
        let Command::Launch { device, args, writes, .. } = &commands[i] else { continue };
        let Some(sizes) = sizes_of(device) else { continue };
        let is_far = |at: &usize| {
            let slot = args[*at].slot;
            bytes(slot) > sizes.least_bytes
                && is_beyond(&commands[i..], slot, sizes.distance, &bytes)
        };
        let far: Vec<usize> = writes.iter().copied().filter(is_far).collect();
        if let (false, Command::Launch { program, .. }) = (far.is_empty(), &mut commands[i]) {
            *program = hinted(program, &far);
        }
    }
}

/// Returns true if the commands name buffers of more bytes than a distance, the first command
/// included, before one after it names the slot.
fn is_beyond(
    commands: &[Command],
    slot: usize,
    distance: usize,
    bytes: &dyn Fn(usize) -> usize,
) -> bool {
    let (mut seen, mut total) = (FxHashSet::default(), 0usize);
    for (i, command) in commands.iter().enumerate() {
        let slots = command.slots();
        if i > 0 && slots.contains(&slot) {
            return false;
        }
        let new = slots.into_iter().filter(|slot| seen.insert(*slot));
        total = total.saturating_add(new.map(bytes).sum());
        if total > distance {
            return true;
        }
    }
    true
}

/// Returns a kernel whose stores to these arguments have the hint.
fn hinted(kernel: &UOp, far: &[usize]) -> UOp {
    if kernel.op() != Op::Sink {
        return kernel.clone();
    }
    let order = kernel.toposort();
    let is_read =
        |buffer: &UOp| order.iter().any(|u| u.as_load().is_some_and(|l| l.place.buffer == buffer));
    let store = |u: &UOp| {
        let buffer = u.as_store().map(|s| s.place.buffer);
        let slot = |b: &&UOp| b.as_define_global().is_some_and(|b| far.contains(&b.slot));
        match buffer.filter(slot) {
            Some(buffer) if !is_read(buffer) => u.with_arg(Arg::StoreHint { nontemporal: true }),
            _ => u.clone(),
        }
    };
    kernel.with_src(kernel.src().iter().map(store).collect::<Src>())
}
