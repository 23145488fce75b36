//! Tests of shapes: random chains against brute force (`fuzz`), the number of views of chains
//! (`merging`), and errors (`errors`). Shared here: random chains, and arrays of base indices that
//! are moved element by element.

mod errors;
mod fuzz;
mod merging;

use super::tracker::unravel;
use super::{Dims, Movement, ShapeTracker};
use crate::testing::Rng;

/// The largest number of elements of an array, because brute force is slow.
const LARGEST: usize = 160;

/// Returns a random shape, seldom with an axis of size 0.
pub(super) fn random_shape(rng: &mut Rng) -> Dims {
    let mut shape: Dims = (0..rng.below(5)).map(|_| 1 + rng.below(6)).collect();
    if rng.once_in(40) && !shape.is_empty() {
        let axis = rng.below(shape.len());
        shape[axis] = 0;
    }
    while shape.iter().product::<usize>() > LARGEST {
        shape.pop();
    }
    shape
}

/// Returns a random op that applies to `shape`.
pub(super) fn random_movement(rng: &mut Rng, shape: &[usize]) -> Movement {
    let numel: usize = shape.iter().product();
    loop {
        let movement = match rng.below(7) {
            0 | 1 => Movement::Reshape(random_factors(rng, numel)),
            2 => Movement::expand(shape.iter().map(|&s| match (s, rng.below(30)) {
                (1, 0) => 0,
                (1, _) => 1 + rng.below(4),
                (s, _) => s,
            })),
            3 => {
                let mut axes: Dims = (0..shape.len()).collect();
                for i in (1..axes.len()).rev() {
                    axes.swap(i, rng.below(i + 1));
                }
                Movement::Permute(axes)
            }
            4 => Movement::pad(shape.iter().map(|_| match rng.below(3) {
                0 => (rng.below(3), rng.below(3)),
                _ => (0, 0),
            })),
            5 => Movement::shrink(shape.iter().map(|&s| {
                if s == 0 || rng.below(2) == 0 {
                    return (0, s);
                }
                let start = rng.below(s);
                let least = if rng.once_in(30) { 0 } else { 1 };
                (start, start + (least + rng.below(s - start)).min(s - start))
            })),
            _ => Movement::flip(shape.iter().map(|_| rng.below(2) == 0)),
        };
        let after = movement.apply_shape(shape).unwrap_or_else(|e| panic!("{e}"));
        if after.len() <= 6 && after.iter().product::<usize>() <= LARGEST {
            return movement;
        }
    }
}

/// Returns a random shape of `numel` elements.
fn random_factors(rng: &mut Rng, mut numel: usize) -> Dims {
    let mut shape = Dims::new();
    if numel == 0 {
        shape.extend((0..rng.below(3)).map(|_| 1 + rng.below(4)));
        shape.insert(rng.below(shape.len() + 1), 0);
        return shape;
    }
    while numel > 1 {
        let divisors: Vec<usize> = (2..=numel).filter(|&d| numel.is_multiple_of(d)).collect();
        let size = divisors[rng.below(divisors.len())];
        shape.push(size);
        numel /= size;
    }
    if rng.once_in(4) {
        shape.insert(rng.below(shape.len() + 1), 1);
    }
    shape
}

/// An array of indices into its base, `None` where it was padded.
#[derive(Clone)]
pub(super) struct Brute {
    pub(super) shape: Dims,
    pub(super) data: Vec<Option<usize>>,
}

impl Brute {
    pub(super) fn new(shape: &[usize]) -> Brute {
        let data = (0..shape.iter().product()).map(Some).collect();
        Brute { shape: shape.into(), data }
    }

    fn at(&self, index: &[usize]) -> Option<usize> {
        let flat = index.iter().zip(&self.shape).fold(0, |flat, (i, s)| flat * s + i);
        self.data[flat]
    }

    /// Returns the array after an op, element by element, as the op is defined.
    pub(super) fn apply(&self, movement: &Movement) -> Brute {
        let shape = movement.apply_shape(&self.shape).unwrap_or_else(|e| panic!("{e}"));
        if let Movement::Reshape(_) = movement {
            let data = self.data.clone();
            return Brute { shape, data };
        }
        let element = |i: usize| {
            let out = unravel(&shape, i);
            let mut index = out.clone();
            for axis in 0..out.len() {
                let size = self.shape[axis];
                match movement {
                    Movement::Reshape(_) => unreachable!("done above"),
                    Movement::Expand(_) => index[axis] = if size == 1 { 0 } else { out[axis] },
                    Movement::Permute(axes) => index[axes[axis]] = out[axis],
                    Movement::Pad(padding) => {
                        let from_start = out[axis].checked_sub(padding[axis].0)?;
                        index[axis] = if from_start < size {
                            from_start
                        } else {
                            return None;
                        };
                    }
                    Movement::Shrink(ranges) => index[axis] = ranges[axis].0 + out[axis],
                    Movement::Flip(flags) => {
                        index[axis] = if flags[axis] { size - 1 - out[axis] } else { out[axis] }
                    }
                }
            }
            self.at(&index)
        };
        let data = (0..shape.iter().product()).map(element).collect();
        Brute { shape, data }
    }

    /// Returns the range of the base that has these elements in order, if there is one.
    pub(super) fn slice(&self) -> Option<std::ops::Range<usize>> {
        let Some(first) = self.data.first() else {
            return Some(0..0);
        };
        let start = (*first)?;
        let in_order = self.data.iter().enumerate().all(|(i, &at)| at == Some(start + i));
        in_order.then(|| start..start + self.data.len())
    }

    pub(super) fn extent(&self) -> Option<(usize, usize)> {
        let touched = || self.data.iter().flatten().copied();
        touched().min().zip(touched().max())
    }

    pub(super) fn overlaps(&self, other: &Brute) -> bool {
        self.data.iter().flatten().any(|at| other.data.contains(&Some(*at)))
    }
}

/// A random chain: its base shape and its ops, and the resulting tracker and array.
pub(super) struct Chain {
    pub(super) base: Dims,
    pub(super) ops: Vec<Movement>,
    pub(super) tracker: ShapeTracker,
    pub(super) brute: Brute,
}

impl Chain {
    pub(super) fn random(rng: &mut Rng, base: &[usize], length: usize) -> Chain {
        let mut chain = Chain {
            base: base.into(),
            ops: Vec::new(),
            tracker: ShapeTracker::new(base),
            brute: Brute::new(base),
        };
        for _ in 0..length {
            let op = random_movement(rng, chain.tracker.shape());
            chain.tracker = chain.tracker.apply(&op).unwrap_or_else(|e| panic!("{e}"));
            chain.brute = chain.brute.apply(&op);
            chain.ops.push(op);
        }
        chain
    }

    /// Returns the chain as text.
    pub(super) fn story(&self) -> String {
        let ops: Vec<String> = self.ops.iter().map(|op| op.to_string()).collect();
        format!("{:?} -> {} -> {}", self.base, ops.join(" -> "), self.tracker)
    }
}
