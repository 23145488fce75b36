//! The memory plan: temporaries share memory when their lifetimes do not meet.

use crate::ir::DeviceName;

/// A buffer that lives from one item to another.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Bytes.
    pub size: usize,
    /// Where.
    pub device: DeviceName,
    /// The item that writes it first.
    pub first: usize,
    /// The item that reads it last.
    pub last: usize,
}

/// Gives each lifetime a block. Returns for each the number of its block, and the blocks' sizes and devices.
/// Blocks of like size are taken again first, so that a large one is not spent on a small buffer.
pub fn plan(lives: &[Lifetime]) -> (Vec<usize>, Vec<(usize, DeviceName)>) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|&i| (lives[i].first, i));
    let mut blocks: Vec<(usize, DeviceName)> = Vec::new();
    let mut busy_until: Vec<usize> = Vec::new();
    let mut place = vec![0; lives.len()];
    for i in order {
        let l = &lives[i];
        // A block is free when its last reader comes before the first writer.
        let best = (0..blocks.len())
            .filter(|&b| busy_until[b] < l.first && blocks[b].1 == l.device)
            .min_by_key(|&b| (blocks[b].0 < l.size, blocks[b].0.abs_diff(l.size), b));
        let b = best.unwrap_or_else(|| {
            blocks.push((0, l.device.clone()));
            busy_until.push(0);
            blocks.len() - 1
        });
        blocks[b].0 = blocks[b].0.max(l.size);
        busy_until[b] = l.last;
        place[i] = b;
    }
    (place, blocks)
}
