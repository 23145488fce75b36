//! The memory planner: intermediates with disjoint lifetimes share arenas, one or more per device.
//! Input: the slots that each command names, or lifetimes. Output: an offset for each.
//!
//! Peak memory is a lower bound of any plan. First fit in order of decreasing size mostly reaches
//! it, or is a few percent above; then other orders are tried.

use crate::ir::DeviceName;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::fmt;

/// The numbers of the first and the last command that name a slot.
pub type Span = (usize, usize);

/// Lifetime of an intermediate.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Size in bytes.
    pub bytes: usize,
    /// Device whose memory it is in.
    pub device: DeviceName,
    /// Number of the command that names it first: it writes it.
    pub first: usize,
    /// Number of the command that names it last.
    pub last: usize,
}

/// Returns the span of each slot, in order of first use. `commands` has the slots that each command
/// names.
pub fn spans<I: IntoIterator<Item = usize>>(
    commands: impl Iterator<Item = I>,
) -> Vec<(usize, Span)> {
    let mut number: FxHashMap<usize, usize> = FxHashMap::default();
    let mut spans: Vec<(usize, Span)> = Vec::new();
    for (i, slots) in commands.enumerate() {
        for slot in slots {
            let at = *number.entry(slot).or_insert_with(|| {
                spans.push((slot, (i, i)));
                spans.len() - 1
            });
            spans[at].1.1 = i;
        }
    }
    spans
}

/// Returns the peak of live bytes.
pub fn peak(lives: impl Iterator<Item = (Span, usize)>) -> usize {
    // An operand is live while the result of the same command is written.
    let mut events: Vec<(usize, bool, usize)> = lives
        .flat_map(|((first, last), bytes)| [(first, false, bytes), (last, true, bytes)])
        .collect();
    events.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, ends, bytes) in events {
        if ends {
            now -= bytes;
        } else {
            now += bytes;
            most = most.max(now);
        }
    }
    most
}

/// Plans the memory of the slots that `intermediate` returns bytes and device for. Returns the slot
/// and the lifetime of each with the placements.
pub fn plan_slots<I: IntoIterator<Item = usize>>(
    commands: impl Iterator<Item = I>,
    intermediate: &dyn Fn(usize) -> Option<(usize, DeviceName)>,
    most: &dyn Fn(&DeviceName) -> usize,
) -> (Vec<usize>, Placement) {
    let (mut slots, mut lives) = (Vec::new(), Vec::new());
    for (slot, (first, last)) in spans(commands) {
        if let Some((bytes, device)) = intermediate(slot) {
            slots.push(slot);
            lives.push(Lifetime { bytes, device, first, last });
        }
    }
    (slots, plan(&lives, most))
}

impl Lifetime {
    fn overlaps(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
    fn commands(&self) -> usize {
        self.last - self.first + 1
    }
    /// Returns the bytes that it takes in an arena.
    fn aligned_bytes(&self) -> usize {
        self.bytes.next_multiple_of(ALIGN).max(ALIGN)
    }
}

/// Memory of the intermediates of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedMemory {
    /// Bytes without reuse, each intermediate in memory of its own.
    pub separate: usize,
    /// Bytes of all arenas.
    pub arena: usize,
    /// Peak of live bytes: the lower bound of any plan.
    pub peak: usize,
}

impl fmt::Display for PlannedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [separate, arena, peak] =
            [self.separate, self.arena, self.peak].map(|bytes| bytes as f64 / 1e6);
        write!(
            f,
            "intermediates: {arena:.2} MB ({separate:.2} MB without reuse, peak {peak:.2} MB)"
        )
    }
}

/// Offsets of lifetimes in arenas.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Arena and offset in it, by lifetime.
    pub at: Vec<(usize, usize)>,
    /// Bytes and device of each arena.
    pub arenas: Vec<(usize, DeviceName)>,
    /// Totals over all devices.
    pub memory: PlannedMemory,
}

/// Alignment of intermediates: more than any vector or buffer binding needs.
const ALIGN: usize = 256;

/// Maximum number of comparisons of two lifetimes per plan, about ten milliseconds; a single try
/// may exceed it.
const MAX_COMPARISONS: usize = 4_000_000;

/// Maximum number of orders that are tried.
const MAX_ORDERS: usize = 24;

/// Places each lifetime in an arena. `most` is the largest size of an arena of a device; a larger
/// intermediate gets a larger one.
pub fn plan(lives: &[Lifetime], most: &dyn Fn(&DeviceName) -> usize) -> Placement {
    let mut places = Placement { at: vec![(0, 0); lives.len()], ..Placement::default() };
    let mut devices: Vec<&DeviceName> = lives.iter().map(|l| &l.device).collect();
    devices.sort();
    devices.dedup();
    for device in devices {
        let numbers: Vec<usize> =
            (0..lives.len()).filter(|&i| lives[i].device == *device).collect();
        let here: Vec<&Lifetime> = numbers.iter().map(|&i| &lives[i]).collect();
        let longest = here.iter().map(|l| l.aligned_bytes()).max().unwrap_or(ALIGN);
        let most = (most(device) / ALIGN * ALIGN).max(longest);
        let bound = peak(here.iter().map(|l| ((l.first, l.last), l.aligned_bytes())));
        let offsets = arrange(&here, most, bound);
        let first = places.arenas.len();
        for ((&i, life), offset) in numbers.iter().zip(&here).zip(offsets) {
            let arena = first + offset / most;
            while places.arenas.len() <= arena {
                places.arenas.push((0, device.clone()));
            }
            places.at[i] = (arena, offset % most);
            places.arenas[arena].0 =
                places.arenas[arena].0.max(offset % most + life.aligned_bytes());
        }
        places.memory.separate += here.iter().map(|l| l.aligned_bytes()).sum::<usize>();
        places.memory.arena += places.arenas[first..].iter().map(|a| a.0).sum::<usize>();
        places.memory.peak += bound;
    }
    places
}

/// Returns the offsets of the best of several orders, or of the first that reaches the bound.
fn arrange(lives: &[&Lifetime], most: usize, bound: usize) -> Vec<usize> {
    let tries = (MAX_COMPARISONS / (lives.len() * lives.len()).max(1)).clamp(1, MAX_ORDERS);
    let by = |key: fn(&Lifetime) -> (usize, usize)| {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&i| (Reverse(key(lives[i])), lives[i].first, i));
        order
    };
    let starts = [
        by(|l| (l.aligned_bytes(), l.commands())),
        by(|l| (l.aligned_bytes().saturating_mul(l.commands()), 0)),
        by(|l| (l.commands(), l.aligned_bytes())),
    ];
    let (mut best, mut least) = (Vec::new(), usize::MAX);
    let mut left = tries;
    for mut order in starts {
        for _ in 0..MAX_ORDERS / 3 {
            if left == 0 || least <= bound {
                return best;
            }
            left -= 1;
            let offsets = first_fit(lives, &order, most);
            let top = |i: usize| offsets[i] + lives[i].aligned_bytes();
            let size = (0..lives.len()).map(top).max().unwrap_or(0);
            // Lifetimes at the top are placed first in the next try.
            let (high, low): (Vec<usize>, Vec<usize>) =
                order.iter().partition(|&&i| top(i) == size);
            order = high.into_iter().chain(low).collect();
            if size < least {
                (best, least) = (offsets, size);
            }
        }
    }
    best
}

/// Places lifetimes by first fit: each at the lowest offset that no overlapping one takes, and not
/// across the end of an arena.
fn first_fit(lives: &[&Lifetime], order: &[usize], most: usize) -> Vec<usize> {
    let mut offsets = vec![0; lives.len()];
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for (n, &i) in order.iter().enumerate() {
        let room = lives[i].aligned_bytes();
        taken.clear();
        taken.extend(
            order[..n]
                .iter()
                .filter(|&&j| lives[i].overlaps(lives[j]))
                .map(|&j| (offsets[j], offsets[j] + lives[j].aligned_bytes())),
        );
        taken.sort_unstable();
        let mut at = 0;
        let inside =
            |at: usize| if at % most + room > most { at.next_multiple_of(most) } else { at };
        for &(start, end) in &taken {
            if at + room <= start {
                break;
            }
            at = inside(at.max(end));
        }
        offsets[i] = at;
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(bytes: usize, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, device: DeviceName::new("CPU"), first, last }
    }

    fn planned(lives: &[Lifetime], most: usize) -> Placement {
        let places = plan(lives, &|_| most);
        for (i, a) in lives.iter().enumerate() {
            let (arena, start) = places.at[i];
            assert_eq!((start % ALIGN, &places.arenas[arena].1), (0, &a.device));
            assert!(start + a.bytes <= places.arenas[arena].0, "{i} exceeds its arena");
            for (j, b) in lives.iter().enumerate().skip(i + 1) {
                let (other, at) = places.at[j];
                let apart = arena != other || start + a.bytes <= at || at + b.bytes <= start;
                assert!(apart || !a.overlaps(b), "{i} and {j} of {lives:?} at {:?}", places.at);
            }
        }
        let arenas: usize = places.arenas.iter().map(|a| a.0).sum();
        assert_eq!(places.memory.arena, arenas);
        assert!(
            places.memory.peak <= arenas && arenas <= places.memory.separate,
            "{:?}",
            places.memory
        );
        places
    }

    #[test]
    fn overlapping_lifetimes_do_not_share_memory() {
        let places = planned(
            &[life(512, 0, 1), life(512, 2, 3), life(256, 1, 2), life(1024, 4, 4), life(256, 0, 4)],
            usize::MAX,
        );
        assert_eq!(places.memory, PlannedMemory { separate: 2560, arena: 1280, peak: 1280 });
        assert_eq!(plan(&[], &|_| 1).memory, PlannedMemory::default());
        // An empty intermediate is placed too.
        assert_eq!(planned(&[life(0, 0, 0), life(1, 0, 0)], usize::MAX).memory.arena, 2 * ALIGN);
    }

    #[test]
    fn arenas_are_per_device_and_within_the_largest_size() {
        let mut lives: Vec<Lifetime> = (0..10).map(|i| life(1000, i, i + 3)).collect();
        lives[3].device = DeviceName::new("INTERP");
        assert_eq!(planned(&lives, usize::MAX).arenas.len(), 2);
        let places = planned(&lives, 2048);
        assert!(
            places.arenas.len() > 2 && places.arenas.iter().all(|a| a.0 <= 2048),
            "{:?}",
            places.arenas
        );
        // An intermediate above the largest size gets an arena of its size.
        lives.push(life(5000, 0, 12));
        assert!(planned(&lives, 2048).arenas.iter().any(|a| a.0 >= 5000));
    }

    #[test]
    fn random_lifetimes_are_near_the_peak() {
        let mut state = 7u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let (mut bounds, mut arenas) = (0, 0);
        for round in 0..60 {
            let steps = 5 + below(60);
            let lives: Vec<Lifetime> = (0..5 + below(80))
                .map(|_| {
                    let first = below(steps);
                    // Few distinct sizes, as the layers of a network have, or arbitrary ones.
                    let bytes = if round % 2 == 0 { 4096 << below(8) } else { 1 + below(1 << 20) };
                    life(bytes, first, first + below(1 + steps / 2))
                })
                .collect();
            let m = planned(&lives, usize::MAX).memory;
            assert!(m.arena * 100 <= m.peak * 115, "{m:?}");
            (bounds, arenas) = (bounds + m.peak, arenas + m.arena);
        }
        assert!(arenas * 100 <= bounds * 103, "{arenas} bytes of arenas, peak {bounds}");
    }
}
