//! The line search of L-BFGS: from a descent direction to a point on it that meets the strong Wolfe
//! conditions, which are sufficient decrease of the loss and of its slope.

use crate::error::Result;

/// The loss at a distance along the direction.
#[derive(Clone)]
pub(super) struct Point {
    pub t: f64,
    pub loss: f64,
    pub grad: Vec<f64>,
    /// The derivative along the direction.
    pub slope: f64,
}

/// A line search with `most` evaluations after the first.
pub(super) struct LineSearch<F> {
    /// The point at distance 0.
    pub start: Point,
    pub most: usize,
    /// The largest absolute element of the direction.
    pub size: f64,
    /// The change of a parameter below which the search ends.
    pub tolerance: f64,
    /// Returns the point at a distance.
    pub evaluate: F,
}

/// The result of bracketing.
enum Bracket {
    /// A point that meets the conditions.
    Found(Point),
    /// Two points that enclose a minimum, or all that the evaluations allowed.
    Ends(Point, Point),
}

impl<F: FnMut(f64) -> Result<Point>> LineSearch<F> {
    /// Returns a point that meets the conditions, or the best evaluated one. The first evaluation
    /// is at the distance `first`.
    pub(super) fn run(mut self, first: f64) -> Result<Point> {
        let mut tries = 0;
        match self.bracket(first, &mut tries)? {
            Bracket::Found(point) => Ok(point),
            Bracket::Ends(a, b) if a.loss > b.loss => self.zoom(b, a, tries),
            Bracket::Ends(a, b) => self.zoom(a, b, tries),
        }
    }

    /// Returns true if the loss does not decrease sufficiently.
    fn is_too_high(&self, p: &Point) -> bool {
        p.loss > self.start.loss + 1e-4 * p.t * self.start.slope
    }

    /// Returns true if the slope decreases sufficiently.
    fn is_flat(&self, p: &Point) -> bool {
        p.slope.abs() <= -0.9 * self.start.slope
    }

    /// Moves forward until two points enclose a minimum.
    fn bracket(&mut self, first: f64, tries: &mut usize) -> Result<Bracket> {
        let (mut last, mut now) = (self.start.clone(), (self.evaluate)(first)?);
        loop {
            if *tries == self.most {
                return Ok(Bracket::Ends(self.start.clone(), now));
            }
            if self.is_too_high(&now) || (*tries > 1 && now.loss >= last.loss) {
                return Ok(Bracket::Ends(last, now));
            }
            if self.is_flat(&now) {
                return Ok(Bracket::Found(now));
            }
            if now.slope >= 0.0 {
                return Ok(Bracket::Ends(last, now));
            }
            let bounds = (now.t + 0.01 * (now.t - last.t), now.t * 10.0);
            let next = (self.evaluate)(cubic_minimum(&last, &now, bounds))?;
            last = std::mem::replace(&mut now, next);
            *tries += 1;
        }
    }

    /// Narrows the interval between two points, of which `low` has the lower loss.
    fn zoom(mut self, mut low: Point, mut high: Point, mut tries: usize) -> Result<Point> {
        let mut near_end = false;
        while tries < self.most && (high.t - low.t).abs() * self.size >= self.tolerance {
            let now = (self.evaluate)(trial(&low, &high, &mut near_end))?;
            tries += 1;
            if self.is_too_high(&now) || now.loss >= low.loss {
                high = now;
                if low.loss > high.loss {
                    std::mem::swap(&mut low, &mut high);
                }
                continue;
            }
            if self.is_flat(&now) {
                return Ok(now);
            }
            if now.slope * (high.t - low.t) >= 0.0 {
                high = low;
            }
            low = now;
        }
        Ok(low)
    }
}

/// Returns the next distance between two points, by cubic interpolation. The second one in a row
/// that is near an end is moved away from it.
fn trial(low: &Point, high: &Point, near_end: &mut bool) -> f64 {
    let (start, end) = (low.t.min(high.t), low.t.max(high.t));
    let t = cubic_minimum(low, high, (start, end));
    let margin = 0.1 * (end - start);
    let is_near = (end - t).min(t - start) < margin;
    let moves = is_near && (*near_end || t >= end || t <= start);
    *near_end = is_near && !moves;
    match moves {
        true if (t - end).abs() < (t - start).abs() => end - margin,
        true => start + margin,
        false => t,
    }
}

/// Returns the minimum of the cubic through two points with their slopes, clamped to bounds.
fn cubic_minimum(a: &Point, b: &Point, bounds: (f64, f64)) -> f64 {
    let (a, b) = if a.t <= b.t { (a, b) } else { (b, a) };
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    // Negated, so that NaN also selects the middle.
    if square.is_nan() || square < 0.0 {
        return (bounds.0 + bounds.1) / 2.0;
    }
    let d2 = square.sqrt();
    let t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2));
    t.max(bounds.0).min(bounds.1)
}
