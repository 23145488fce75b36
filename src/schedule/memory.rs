//! The memory plan: values between steps share arenas, one for each device, where their lives do
//! not meet. In come lifetimes, out comes a place for each.
//!
//! The most that lives at one time is a bound that no plan is below. Placing the largest first,
//! each as low as those that it meets let it, is mostly at the bound or a few hundredths above;
//! where it is above, other orders are tried.

use crate::ir::DeviceName;
use std::cmp::Reverse;
use std::fmt;

/// A value that lives from one step to another.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Bytes.
    pub bytes: usize,
    /// Where.
    pub device: DeviceName,
    /// The step that writes it first.
    pub first: usize,
    /// The step that names it last.
    pub last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
    fn steps(&self) -> usize {
        self.last - self.first + 1
    }
    /// The room that it takes.
    fn room(&self) -> usize {
        self.bytes.next_multiple_of(ALIGN).max(ALIGN)
    }
}

/// What values between steps take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedMemory {
    /// Bytes of all values between steps, each in memory of its own.
    pub separate: usize,
    /// Bytes that they have together.
    pub arena: usize,
    /// The most that live at one time: no plan takes less.
    pub peak: usize,
}

impl fmt::Display for PlannedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [separate, arena, peak] =
            [self.separate, self.arena, self.peak].map(|bytes| bytes as f64 / 1e6);
        write!(
            f,
            "values between them: {separate:.2} MB apart, {arena:.2} MB planned, {peak:.2} MB at \
             the most at one time"
        )
    }
}

/// Where each lifetime is.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// For each the number of its arena, and the byte where it begins there.
    pub at: Vec<(usize, usize)>,
    /// Bytes and device of each arena.
    pub arenas: Vec<(usize, DeviceName)>,
    /// What that takes.
    pub memory: PlannedMemory,
}

/// Values begin at multiples of this, which is more than any vector or binding needs.
const ALIGN: usize = 256;

/// Comparisons of two lifetimes that a plan may take, some ten milliseconds, unless there are so
/// many values that one try takes more.
const EFFORT: usize = 4_000_000;

/// Orders that are tried at the most.
const TRIES: usize = 24;

/// Gives each lifetime a place. `most` says how long an arena of a device may be; one value that is
/// longer has a longer one.
pub fn plan(lives: &[Lifetime], most: &dyn Fn(&DeviceName) -> usize) -> Places {
    let mut places = Places { at: vec![(0, 0); lives.len()], ..Places::default() };
    let mut devices: Vec<&DeviceName> = lives.iter().map(|l| &l.device).collect();
    devices.sort();
    devices.dedup();
    for device in devices {
        let numbers: Vec<usize> =
            (0..lives.len()).filter(|&i| lives[i].device == *device).collect();
        let here: Vec<&Lifetime> = numbers.iter().map(|&i| &lives[i]).collect();
        let longest = here.iter().map(|l| l.room()).max().unwrap_or(ALIGN);
        let most = (most(device) / ALIGN * ALIGN).max(longest);
        let bound = most_at_once(&here);
        let offsets = arrange(&here, most, bound);
        let first = places.arenas.len();
        for ((&i, life), offset) in numbers.iter().zip(&here).zip(offsets) {
            let arena = first + offset / most;
            while places.arenas.len() <= arena {
                places.arenas.push((0, device.clone()));
            }
            places.at[i] = (arena, offset % most);
            places.arenas[arena].0 = places.arenas[arena].0.max(offset % most + life.room());
        }
        places.memory.separate += here.iter().map(|l| l.room()).sum::<usize>();
        places.memory.arena += places.arenas[first..].iter().map(|a| a.0).sum::<usize>();
        places.memory.peak += bound;
    }
    places
}

/// The most that lives at one time.
fn most_at_once(lives: &[&Lifetime]) -> usize {
    // What begins at a step is there before what ends at it goes.
    let mut events: Vec<(usize, bool, usize)> =
        lives.iter().flat_map(|l| [(l.first, false, l.room()), (l.last, true, l.room())]).collect();
    events.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, ends, room) in events {
        if ends {
            now -= room;
        } else {
            now += room;
            most = most.max(now);
        }
    }
    most
}

/// An offset for each: the best of several orders, the first that is at the bound.
fn arrange(lives: &[&Lifetime], most: usize, bound: usize) -> Vec<usize> {
    let tries = (EFFORT / (lives.len() * lives.len()).max(1)).clamp(1, TRIES);
    let by = |key: fn(&Lifetime) -> (usize, usize)| {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&i| (Reverse(key(lives[i])), lives[i].first, i));
        order
    };
    let starts = [
        by(|l| (l.room(), l.steps())),
        by(|l| (l.room().saturating_mul(l.steps()), 0)),
        by(|l| (l.steps(), l.room())),
    ];
    let (mut best, mut least) = (Vec::new(), usize::MAX);
    let mut left = tries;
    for mut order in starts {
        for _ in 0..TRIES / 3 {
            if left == 0 || least <= bound {
                return best;
            }
            left -= 1;
            let offsets = in_order(lives, &order, most);
            let top = |i: usize| offsets[i] + lives[i].room();
            let size = (0..lives.len()).map(top).max().unwrap_or(0);
            // Those at the top go first next time: there is room for them below.
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

/// One after the other, each at the lowest place where nobody is that it meets, and not over the
/// end of an arena.
fn in_order(lives: &[&Lifetime], order: &[usize], most: usize) -> Vec<usize> {
    let mut offsets = vec![0; lives.len()];
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for (n, &i) in order.iter().enumerate() {
        let room = lives[i].room();
        taken.clear();
        taken.extend(
            order[..n]
                .iter()
                .filter(|&&j| lives[i].meets(lives[j]))
                .map(|&j| (offsets[j], offsets[j] + lives[j].room())),
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

    fn planned(lives: &[Lifetime], most: usize) -> Places {
        let places = plan(lives, &|_| most);
        for (i, a) in lives.iter().enumerate() {
            let (arena, start) = places.at[i];
            assert_eq!((start % ALIGN, &places.arenas[arena].1), (0, &a.device));
            assert!(start + a.bytes <= places.arenas[arena].0, "{i} leaves its arena");
            for (j, b) in lives.iter().enumerate().skip(i + 1) {
                let (other, at) = places.at[j];
                let apart = arena != other || start + a.bytes <= at || at + b.bytes <= start;
                assert!(apart || !a.meets(b), "{i} and {j} of {lives:?} at {:?}", places.at);
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
    fn those_that_meet_do_not_share_and_those_that_do_not_may() {
        let places = planned(
            &[life(512, 0, 1), life(512, 2, 3), life(256, 1, 2), life(1024, 4, 4), life(256, 0, 4)],
            usize::MAX,
        );
        assert_eq!(places.memory, PlannedMemory { separate: 2560, arena: 1280, peak: 1280 });
        assert_eq!(plan(&[], &|_| 1).memory, PlannedMemory::default());
        // Something without bytes has a place too.
        assert_eq!(planned(&[life(0, 0, 0), life(1, 0, 0)], usize::MAX).memory.arena, 2 * ALIGN);
    }

    #[test]
    fn every_device_has_arenas_of_its_own_and_none_is_too_long() {
        let mut lives: Vec<Lifetime> = (0..10).map(|i| life(1000, i, i + 3)).collect();
        lives[3].device = DeviceName::new("INTERP");
        assert_eq!(planned(&lives, usize::MAX).arenas.len(), 2);
        let places = planned(&lives, 2048);
        assert!(
            places.arenas.len() > 2 && places.arenas.iter().all(|a| a.0 <= 2048),
            "{:?}",
            places.arenas
        );
        // What is longer than an arena may be has one all the same.
        lives.push(life(5000, 0, 12));
        assert!(planned(&lives, 2048).arenas.iter().any(|a| a.0 >= 5000));
    }

    #[test]
    fn random_lives_are_near_the_bound() {
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
                    // Many of few sizes, as the layers of a network have them, or all kinds.
                    let bytes = if round % 2 == 0 { 4096 << below(8) } else { 1 + below(1 << 20) };
                    life(bytes, first, first + below(1 + steps / 2))
                })
                .collect();
            let m = planned(&lives, usize::MAX).memory;
            assert!(m.arena * 100 <= m.peak * 115, "{m:?}");
            (bounds, arenas) = (bounds + m.peak, arenas + m.arena);
        }
        assert!(arenas * 100 <= bounds * 103, "{arenas} bytes, where {bounds} live at once");
    }
}
