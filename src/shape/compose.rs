//! Composition of two views.
//!
//! The upper view maps indices to flat positions in the shape of the lower one, which splits each
//! position into coordinates. The composition is a view if every coordinate is an affine function
//! of the upper index, and if the upper indices that the lower mask does not hide are a box. Both
//! are decided exactly for a grouping of the lower axes: the coordinates of the first open position
//! and of the next one along each upper axis determine the only affine candidate, which is right if
//! its extremes are inside each axis, because positions and in-range coordinates correspond one to
//! one. A reshape is the case of a contiguous upper view.
//!
//! The grouping matters: adjacent axes that are merged let positions carry from one into the other,
//! while separate axes keep a mask of one of them a mask of one axis. Therefore several groupings
//! are tried, the finest first.

use super::{Ranges, Strides, View};
use smallvec::SmallVec;

/// An axis of the lower view, or several merged ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) size: i128,
    pub(super) stride: i128,
    /// The range `lo..hi` that the mask does not hide.
    pub(super) lo: i128,
    pub(super) hi: i128,
}

impl Axis {
    fn is_open(&self) -> bool {
        self.lo == 0 && self.hi == self.size
    }
}

/// The rule by which adjacent axes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum MergeRule {
    /// No axes are merged.
    Never,
    /// Axes that are adjacent in memory and not masked.
    Unmasked,
    /// Axes whose union has one stride and one open range.
    Masked,
}

/// The axes of a view in row-major order, without those of size 1.
pub(super) type Axes = SmallVec<[Axis; 4]>;

/// Returns the axes of a view, merged by a rule, and the offset for their strides. The view maps an
/// index.
pub(super) fn axes_of(view: &View, join: MergeRule) -> (Axes, i128) {
    let mut axes = Axes::new();
    let mut offset = view.offset() as i128;
    let open = view.unmasked_ranges();
    for (axis, &size) in view.shape().iter().enumerate().filter(|(_, s)| **s != 1) {
        let (lo, hi) = (open[axis].0 as i128, open[axis].1 as i128);
        let size = size as i128;
        let stride = view.strides()[axis] as i128;
        let next = Axis { size, stride, lo, hi };
        let Some(last) = axes.last_mut() else {
            axes.push(next);
            continue;
        };
        let follows = last.stride == stride * size && next.is_open();
        if join == MergeRule::Masked && last.hi - last.lo == 1 {
            // One index of the left axis is open, so the union is the right axis at that index. The
            // left stride is 0, because views are canonical.
            let start = last.lo * size;
            offset -= start * stride;
            *last = Axis { size: last.size * size, stride, lo: start + lo, hi: start + hi };
        } else if follows
            && (join == MergeRule::Masked || (join == MergeRule::Unmasked && last.is_open()))
        {
            *last = Axis { size: last.size * size, stride, lo: last.lo * size, hi: last.hi * size };
        } else {
            axes.push(next);
        }
    }
    (axes, offset)
}

/// Returns the view that maps as `upper` and then `lower`, if one is found.
pub(super) fn compose(lower: &View, upper: &View) -> Option<View> {
    if lower.maps_nothing() || upper.maps_nothing() {
        return Some(View::fully_masked(upper.shape().into()));
    }
    if lower.is_contiguous() {
        return Some(upper.clone());
    }
    let mut tried = None;
    for join in [MergeRule::Never, MergeRule::Unmasked, MergeRule::Masked] {
        let grouped = axes_of(lower, join);
        if tried.as_ref() == Some(&grouped) {
            continue;
        }
        if let Some(view) = compose_grouped(&grouped.0, grouped.1, upper) {
            return Some(view);
        }
        tried = Some(grouped);
    }
    None
}

/// Returns the coordinates of a flat position.
fn unravel(axes: &[Axis], mut position: i128) -> SmallVec<[i128; 4]> {
    let mut coords = SmallVec::from_elem(0, axes.len());
    for (coord, axis) in coords.iter_mut().zip(axes).rev() {
        *coord = position % axis.size;
        position /= axis.size;
    }
    coords
}

fn compose_grouped(axes: &[Axis], offset: i128, upper: &View) -> Option<View> {
    let mut open: SmallVec<[(i128, i128); 4]> =
        upper.unmasked_ranges().iter().map(|&(lo, hi)| (lo as i128, hi as i128 - 1)).collect();
    let strides = upper.strides();
    let first = open
        .iter()
        .zip(strides)
        .fold(upper.offset() as i128, |sum, (&(lo, _), &s)| sum + lo * s as i128);
    let origin = unravel(axes, first);

    // The change of each lower coordinate per step along each upper axis.
    let steps: SmallVec<[SmallVec<[i128; 4]>; 4]> = open
        .iter()
        .zip(strides)
        .map(|(&(lo, last), &stride)| {
            if lo == last || stride == 0 {
                return SmallVec::from_elem(0, axes.len());
            }
            let neighbour = unravel(axes, first + stride as i128);
            neighbour.iter().zip(&origin).map(|(n, o)| n - o).collect()
        })
        .collect();
    for (d, axis) in axes.iter().enumerate() {
        let (mut least, mut most) = (origin[d], origin[d]);
        for (step, &(lo, last)) in steps.iter().zip(&open) {
            let reach = step[d] * (last - lo);
            least += reach.min(0);
            most += reach.max(0);
        }
        if least < 0 || most >= axis.size {
            return None;
        }
    }

    // The coordinates of upper index zero.
    let zero: SmallVec<[i128; 4]> = (0..axes.len())
        .map(|d| origin[d] - open.iter().zip(&steps).map(|(&(lo, _), s)| lo * s[d]).sum::<i128>())
        .collect();
    for (d, axis) in axes.iter().enumerate().filter(|(_, a)| !a.is_open()) {
        let slope: SmallVec<[i128; 4]> = steps.iter().map(|s| s[d]).collect();
        if !restrict(&mut open, &slope, axis.lo - zero[d], axis.hi - zero[d])? {
            return Some(View::fully_masked(upper.shape().into()));
        }
    }

    let dot = |coords: &[i128]| coords.iter().zip(axes).map(|(c, a)| c * a.stride).sum::<i128>();
    let offset = isize::try_from(offset + dot(&zero)).ok()?;
    let strides: Option<Strides> = steps.iter().map(|s| isize::try_from(dot(s)).ok()).collect();
    let mask: Ranges = open.iter().map(|&(lo, last)| (lo as usize, last as usize + 1)).collect();
    View::canonical(upper.shape().into(), strides?, offset, mask)
}

/// Narrows the box `open` (inclusive ranges) to the indices for which `Σ slope·index` is in
/// `lo..hi`. `Some(false)` if there are none, `None` if they are not recognized as a box.
fn restrict(open: &mut [(i128, i128)], slope: &[i128], mut lo: i128, mut hi: i128) -> Option<bool> {
    // Indices count from the end at which their term is least, so that terms are not negative.
    let mut terms: SmallVec<[usize; 4]> = SmallVec::new();
    let mut reach = 0;
    for (k, &s) in slope.iter().enumerate() {
        let (first, last) = open[k];
        let least = s * if s > 0 { first } else { last };
        lo -= least;
        hi -= least;
        if s != 0 && first != last {
            terms.push(k);
            reach += s.abs() * (last - first);
        }
    }
    // Coarse terms first: the order in which a long axis is split into digits.
    terms.sort_by_key(|&k| -slope[k].abs());
    for k in terms {
        if lo <= 0 && reach < hi {
            return Some(true);
        }
        let (step, steps) = (slope[k].abs(), open[k].1 - open[k].0);
        reach -= step * steps;
        // The indices for which the sum fits for all rests in 0..=reach, and for some rest.
        let all = (ceil_div(lo, step).max(0), (hi - 1 - reach).div_euclid(step).min(steps));
        let some = (ceil_div(lo - reach, step).max(0), (hi - 1).div_euclid(step).min(steps));
        if some.0 > some.1 {
            return Some(false);
        }
        let narrow = |open: &mut (i128, i128), (a, b): (i128, i128)| {
            *open = if slope[k] > 0 { (open.0 + a, open.0 + b) } else { (open.1 - b, open.1 - a) };
        };
        if all == some {
            narrow(&mut open[k], all);
            return Some(true);
        }
        if some.0 != some.1 {
            return None;
        }
        narrow(&mut open[k], some);
        lo -= step * some.0;
        hi -= step * some.0;
    }
    Some(lo <= 0 && hi > 0)
}

fn ceil_div(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}
