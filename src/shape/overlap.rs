//! Which elements of the base a tracker touches, and whether two trackers share one.
//!
//! For one view the touched elements are `low + Σ step·i` over a box, so two views share an element
//! when a bounded sum of steps meets a target. That search goes coarse step first and is cut by
//! bounds, by divisibility, and as soon as what is left reaches every multiple of its divisor;
//! strides as tensors have them leave it a handful of nodes. A stack of several views is enumerated
//! while it is small.

use super::tracker::unravel;
use super::{ShapeTracker, View, gcd};
use smallvec::SmallVec;

/// The most elements of a stack of several views that are looked at one by one.
const ENUMERATE: usize = 1 << 12;
/// The most nodes that one question may search: 16 for each element of the largest stack that is
/// enumerated, where tensors' strides take about one per axis.
const SEARCH: usize = 16 * ENUMERATE;

/// The elements `low + Σ step·i`, `0 <= i <= count`, with positive steps.
struct Touched {
    low: i128,
    high: i128,
    terms: SmallVec<[(i128, i128); 8]>,
}

impl Touched {
    /// The elements that `view` accesses; it must map some.
    fn of(view: &View) -> Touched {
        let offset = view.offset() as i128;
        let (mut low, mut high, mut terms) = (offset, offset, SmallVec::new());
        for (&stride, &(first, end)) in view.strides().iter().zip(&view.open()) {
            let (stride, first, last) = (stride as i128, first as i128, end as i128 - 1);
            low += (stride * first).min(stride * last);
            high += (stride * first).max(stride * last);
            if stride != 0 && first != last {
                terms.push((stride.abs(), last - first));
            }
        }
        Touched { low, high, terms }
    }

    /// True if both access a common element; `None` when the search is cut off.
    fn meets(&self, other: &Touched) -> Option<bool> {
        // a.low + Σ a = b.low + Σ b, with the terms of b counted from their high end to have one
        // sign.
        let terms = self.terms.iter().chain(&other.terms).copied().collect();
        search(&Sums::new(terms).0, other.high - self.low, &mut { SEARCH })
    }
}

/// One step of a bounded sum, and what it and the finer steps after it can make together.
struct Term {
    step: i128,
    count: i128,
    /// The greatest sum from here on.
    reach: i128,
    /// The divisor of every sum from here on.
    divisor: i128,
    /// Whether every multiple of the divisor up to `reach` is a sum.
    gapless: bool,
}

/// The sums `Σ step·i`, `0 <= i <= count`, coarsest step first.
struct Sums(SmallVec<[Term; 8]>);

impl Sums {
    fn new(mut terms: SmallVec<[(i128, i128); 8]>) -> Sums {
        terms.sort_unstable();
        let mut sums: SmallVec<[Term; 8]> = SmallVec::new();
        // Equal steps are one longer run, which is what makes two views of one base cheap to
        // compare.
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

/// Whether `target` is a sum of the terms, or `None` when the budget of nodes is spent.
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
    /// The lowest and highest element of the array below that positions `first..=last` of this view
    /// may touch: all of them lie between the two, and for the positions of a whole view both are
    /// touched.
    fn extent_of(&self, first: usize, last: usize) -> Option<(usize, usize)> {
        if self.is_nothing() {
            return None;
        }
        // Both ends share their leading coordinates; after the first that differs, anything may
        // stand.
        let (from, to) = (unravel(self.shape(), first), unravel(self.shape(), last));
        let (mut low, mut high) = (self.offset() as i128, self.offset() as i128);
        let mut shared = true;
        for (axis, &(mut lo, mut end)) in self.open().iter().enumerate() {
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
    /// The lowest and highest element of the base that is touched, or `None` when none is.
    ///
    /// Exact for one view, and for a stack of several with up to a few thousand elements; beyond
    /// that, bounds around what is touched.
    pub fn extent(&self) -> Option<(usize, usize)> {
        if self.views().len() > 1 && self.numel() <= ENUMERATE {
            return self.touched().fold(None, |found, at| match found {
                None => Some((at, at)),
                Some((low, high)) => Some((at.min(low), at.max(high))),
            });
        }
        self.bounds()
    }

    /// Bounds around the touched elements, passed down from view to view.
    pub(super) fn bounds(&self) -> Option<(usize, usize)> {
        let last = self.numel().checked_sub(1)?;
        self.views()
            .iter()
            .rev()
            .try_fold((0, last), |(first, last), view| view.extent_of(first, last))
    }

    /// The touched elements in order of the index, repeats included.
    fn touched(&self) -> impl Iterator<Item = usize> {
        (0..self.numel()).filter_map(|i| self.index_of(&unravel(self.shape(), i)))
    }

    /// Whether some element of the base is touched by this tracker and by `other`, a tracker over
    /// the same base.
    ///
    /// `false` is always right. `true` is exact for two single views, unless their strides are so
    /// odd that the search is cut off, and for stacks of several views with up to a few thousand
    /// elements; otherwise it means "perhaps".
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
            (Some(a), Some(b)) => Touched::of(a).meets(&Touched::of(b)).unwrap_or(true),
            (Some(one), None) => other.meets_view(one),
            (None, Some(one)) => self.meets_view(one),
            (None, None) if self.numel().max(other.numel()) <= ENUMERATE => {
                let mut mine: Vec<usize> = self.touched().collect();
                mine.sort_unstable();
                other.touched().any(|at| mine.binary_search(&at).is_ok())
            }
            (None, None) => true,
        }
    }

    /// Whether a stack of several views shares an element with one view.
    fn meets_view(&self, view: &View) -> bool {
        let Touched { low, terms, .. } = Touched::of(view);
        let sums = Sums::new(terms);
        let mut budget = SEARCH;
        self.numel() > ENUMERATE
            || self
                .touched()
                .any(|at| search(&sums.0, at as i128 - low, &mut budget).unwrap_or(true))
    }
}
