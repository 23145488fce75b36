//! The elements of the base that a tracker accesses, and whether two trackers have one in common.
//!
//! The elements of one view are `low + Σ step·i` over a box, so that two views overlap if a bounded
//! sum of steps can be a target. The search tries the coarsest steps first and is pruned by bounds,
//! by divisibility, and where the remaining steps reach every multiple of their divisor. The
//! strides of tensors give a few search nodes. Small stacks of several views are enumerated.

use super::tracker::unravel;
use super::{ShapeTracker, View, gcd};
use smallvec::SmallVec;

/// The largest number of elements of a stack of several views that are enumerated.
const ENUMERATE: usize = 1 << 12;
/// The largest number of search nodes: 16 for each element of the largest enumerated stack. The
/// strides of tensors take about one per axis.
const SEARCH: usize = 16 * ENUMERATE;

/// The elements `low + Σ step·i`, `0 <= i <= count`, with positive steps.
struct Footprint {
    low: i128,
    high: i128,
    terms: SmallVec<[(i128, i128); 8]>,
}

impl Footprint {
    /// Returns the elements that `view` accesses; it must map some.
    fn of(view: &View) -> Footprint {
        let offset = view.offset() as i128;
        let (mut low, mut high, mut terms) = (offset, offset, SmallVec::new());
        for (&stride, &(first, end)) in view.strides().iter().zip(&view.unmasked_ranges()) {
            let (stride, first, last) = (stride as i128, first as i128, end as i128 - 1);
            low += (stride * first).min(stride * last);
            high += (stride * first).max(stride * last);
            if stride != 0 && first != last {
                terms.push((stride.abs(), last - first));
            }
        }
        Footprint { low, high, terms }
    }

    /// Returns true if both access a common element; none if the search is cut off.
    fn intersects(&self, other: &Footprint) -> Option<bool> {
        // a.low + Σ a = b.low + Σ b, with the terms of b counted from their high end to have one
        // sign.
        let terms = self.terms.iter().chain(&other.terms).copied().collect();
        search(&Sums::new(terms).0, other.high - self.low, &mut { SEARCH })
    }
}

/// A step of a bounded sum, and facts about the sums of it and the finer steps.
struct Term {
    step: i128,
    count: i128,
    /// The largest sum of this and the finer steps.
    reach: i128,
    /// The common divisor of these sums.
    divisor: i128,
    /// True if every multiple of the divisor up to `reach` is a sum.
    gapless: bool,
}

/// The sums `Σ step·i`, `0 <= i <= count`, coarsest step first.
struct Sums(SmallVec<[Term; 8]>);

impl Sums {
    fn new(mut terms: SmallVec<[(i128, i128); 8]>) -> Sums {
        terms.sort_unstable();
        let mut sums: SmallVec<[Term; 8]> = SmallVec::new();
        // Equal steps become one with a larger count, which makes the comparison of two views of
        // one base cheap.
        terms.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        for (step, count) in terms {
            let (reach, divisor, gapless) = match sums.last() {
                None => (0, step, true),
                Some(t) => (
                    t.reach,
                    t.divisor,
                    t.gapless && step % t.divisor == 0 && step <= t.reach + t.divisor,
                ),
            };
            sums.push(Term {
                step,
                count,
                reach: reach + step * count,
                divisor: gcd(step, divisor),
                gapless,
            });
        }
        sums.reverse();
        Sums(sums)
    }
}

/// Returns true if `target` is a sum of the terms; none if the budget of search nodes is used up.
fn search(terms: &[Term], target: i128, budget: &mut usize) -> Option<bool> {
    let Some((term, finer)) = terms.split_first() else {
        return Some(target == 0);
    };
    if target < 0 || target > term.reach || target % term.divisor != 0 {
        return Some(false);
    }
    if term.gapless {
        return Some(true);
    }
    let rest = finer.first().map_or(0, |t| t.reach);
    let least = ((target - rest + term.step - 1).div_euclid(term.step)).max(0);
    let most = (target / term.step).min(term.count);
    for i in least..=most {
        if *budget == 0 {
            return None;
        }
        *budget -= 1;
        match search(finer, target - i * term.step, budget) {
            Some(false) => {}
            found => return found,
        }
    }
    Some(false)
}

impl View {
    /// Returns the bounds of the elements of the array below that positions `first..=last` of this
    /// view access. They are exact for all positions of the view.
    fn extent_of(&self, first: usize, last: usize) -> Option<(usize, usize)> {
        if self.maps_nothing() {
            return None;
        }
        // Both ends share leading coordinates; after the first different one, any are possible.
        let (from, to) = (unravel(self.shape(), first), unravel(self.shape(), last));
        let (mut low, mut high) = (self.offset() as i128, self.offset() as i128);
        let mut shared = true;
        for (axis, &(mut lo, mut end)) in self.unmasked_ranges().iter().enumerate() {
            if shared {
                (lo, end) = (lo.max(from[axis]), end.min(to[axis] + 1));
                shared = from[axis] == to[axis];
            }
            if lo >= end {
                return None;
            }
            let stride = self.strides()[axis] as i128;
            let ends = (stride * lo as i128, stride * (end as i128 - 1));
            low += ends.0.min(ends.1);
            high += ends.0.max(ends.1);
        }
        Some((low as usize, high as usize))
    }
}

impl ShapeTracker {
    /// Returns the lowest and highest element of the base that is accessed; none if there is none.
    /// Exact for one view and for small stacks of several; else bounds of the accessed elements.
    pub fn extent(&self) -> Option<(usize, usize)> {
        if self.views().len() > 1 && self.numel() <= ENUMERATE {
            return self.touched().fold(None, |found, at| match found {
                None => Some((at, at)),
                Some((low, high)) => Some((at.min(low), at.max(high))),
            });
        }
        self.bounds()
    }

    /// Returns the bounds of the accessed elements, computed from view to view.
    pub(super) fn bounds(&self) -> Option<(usize, usize)> {
        let last = self.numel().checked_sub(1)?;
        self.views()
            .iter()
            .rev()
            .try_fold((0, last), |(first, last), view| view.extent_of(first, last))
    }

    /// Returns the accessed elements in order of the index, with repetitions.
    fn touched(&self) -> impl Iterator<Item = usize> {
        (0..self.numel()).filter_map(|i| self.index_of(&unravel(self.shape(), i)))
    }

    /// Returns true if this tracker and `other`, over the same base, may access a common element.
    ///
    /// `false` is exact. `true` is exact for two single views, unless the search is cut off, and
    /// for small stacks of several views.
    ///
    /// ```
    /// use picograd::compiler::shape::{Movement, ShapeTracker};
    /// let base = ShapeTracker::new(&[4, 4]);
    /// let left = base.apply(&Movement::shrink([(0, 4), (0, 2)]))?;
    /// let right = base.apply(&Movement::shrink([(0, 4), (2, 4)]))?;
    /// assert!(!left.overlaps(&right));
    /// assert!(left.overlaps(&base.apply(&Movement::permute([1, 0]))?));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn overlaps(&self, other: &ShapeTracker) -> bool {
        let (Some(mine), Some(theirs)) = (self.extent(), other.extent()) else {
            return false;
        };
        if mine.1 < theirs.0 || theirs.1 < mine.0 {
            return false;
        }
        match (self.single(), other.single()) {
            (Some(a), Some(b)) => Footprint::of(a).intersects(&Footprint::of(b)).unwrap_or(true),
            (Some(one), None) => other.intersects_view(one),
            (None, Some(one)) => self.intersects_view(one),
            (None, None) if self.numel().max(other.numel()) <= ENUMERATE => {
                let mut mine: Vec<usize> = self.touched().collect();
                mine.sort_unstable();
                other.touched().any(|at| mine.binary_search(&at).is_ok())
            }
            (None, None) => true,
        }
    }

    /// Returns true if a stack of several views may access an element of one view.
    fn intersects_view(&self, view: &View) -> bool {
        let Footprint { low, terms, .. } = Footprint::of(view);
        let sums = Sums::new(terms);
        let mut budget = SEARCH;
        self.numel() > ENUMERATE
            || self
                .touched()
                .any(|at| search(&sums.0, at as i128 - low, &mut budget).unwrap_or(true))
    }
}
