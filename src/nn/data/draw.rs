//! Drawing for synthetic datasets: strokes on a float canvas, under a random distortion.

use super::{Array, ArrayDataset, Random};
use crate::dtype::DType;

/// A point; y points down.
pub(super) type Point = (f32, f32);

/// A map of the unit square to a canvas: affine, plus a smooth field of random displacements.
pub(super) struct Distortion {
    /// Coefficients of x and y, in pixels.
    axes: [Point; 2],
    centre: Point,
    field: [[Point; GRID]; GRID],
}

/// Points of the displacement field per side.
const GRID: usize = 4;

/// Strength of a distortion.
pub(super) struct DistortionStrength {
    /// Width and height in pixels.
    pub size: Point,
    /// Largest relative change of the size.
    pub stretch: f32,
    /// Standard deviation of the rotation, in radians.
    pub turn: f32,
    /// Standard deviation of the slant.
    pub slant: f32,
    /// Largest shift in pixels.
    pub shift: f32,
    /// Standard deviation of the displacement field, relative to the size.
    pub bend: f32,
}

impl Distortion {
    pub(super) fn random(r: &mut Random, middle: f32, a: &DistortionStrength) -> Distortion {
        let (w, h) = (
            a.size.0 * (1.0 + r.within(-a.stretch, a.stretch)),
            a.size.1 * (1.0 + r.within(-a.stretch, a.stretch)),
        );
        // Sine and cosine from the tangent of the half angle: library functions differ between
        // machines in the last bit.
        let t = r.normal(a.turn) / 2.0;
        let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
        let slant = r.normal(a.slant);
        let axes = [(w * cos, w * sin), (h * (slant * cos - sin), h * (slant * sin + cos))];
        let centre = (middle + r.within(-a.shift, a.shift), middle + r.within(-a.shift, a.shift));
        let mut field = [[(0.0, 0.0); GRID]; GRID];
        field.iter_mut().flatten().for_each(|p| *p = (r.normal(a.bend), r.normal(a.bend)));
        Distortion { axes, centre, field }
    }

    /// Maps a point of the unit square to pixels.
    pub(super) fn apply(&self, (x, y): Point) -> Point {
        let cell = |v: f32| {
            let v = v.clamp(0.0, 1.0) * (GRID - 1) as f32;
            let i = (v as usize).min(GRID - 2);
            let f = v - i as f32;
            (i, f * f * (3.0 - 2.0 * f))
        };
        let ((i, fx), (j, fy)) = (cell(x), cell(y));
        let mix = |a: Point, b: Point, f: f32| (a.0 + (b.0 - a.0) * f, a.1 + (b.1 - a.1) * f);
        let top = mix(self.field[j][i], self.field[j][i + 1], fx);
        let bottom = mix(self.field[j + 1][i], self.field[j + 1][i + 1], fx);
        let (dx, dy) = mix(top, bottom, fy);
        let (u, v) = (x + dx - 0.5, y + dy - 0.5);
        let [ax, ay] = self.axes;
        (self.centre.0 + u * ax.0 + v * ay.0, self.centre.1 + u * ax.1 + v * ay.1)
    }
}

/// A square canvas; the value of a pixel is its coverage, from 0 to 1.
pub(super) struct Canvas {
    pub size: usize,
    pub ink: Vec<f32>,
}

impl Canvas {
    pub(super) fn new(size: usize) -> Canvas {
        Canvas { size, ink: vec![0.0; size * size] }
    }

    /// Draws a line with round ends.
    pub(super) fn line(&mut self, a: Point, b: Point, radius: f32) {
        let reach = radius + 1.0;
        let span = |p: f32, q: f32| {
            let low = (p.min(q) - reach).max(0.0) as usize;
            let high = (p.max(q) + reach).clamp(0.0, self.size as f32) as usize;
            low..(high + 1).min(self.size)
        };
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let scale = 1.0 / (dx * dx + dy * dy).max(1e-9);
        for y in span(a.1, b.1) {
            for x in span(a.0, b.0) {
                let (px, py) = (x as f32 + 0.5 - a.0, y as f32 + 0.5 - a.1);
                let t = ((px * dx + py * dy) * scale).clamp(0.0, 1.0);
                let (ex, ey) = (px - t * dx, py - t * dy);
                let ink = (radius + 0.5 - (ex * ex + ey * ey).sqrt()).clamp(0.0, 1.0);
                let pixel = &mut self.ink[y * self.size + x];
                *pixel = pixel.max(ink);
            }
        }
    }
}

/// Points on a Catmull-Rom spline through control points.
pub(super) fn smooth(points: &[Point]) -> Vec<Point> {
    const STEPS: usize = 6;
    let at = |i: isize| points[i.clamp(0, points.len() as isize - 1) as usize];
    let mut out = vec![points[0]];
    for i in 0..points.len() as isize - 1 {
        let [p, q, r, s] = [at(i - 1), at(i), at(i + 1), at(i + 2)];
        for step in 1..=STEPS {
            let t = step as f32 / STEPS as f32;
            let axis = |p: f32, q: f32, r: f32, s: f32| {
                q + 0.5
                    * t
                    * (r - p + t * (2.0 * p - 5.0 * q + 4.0 * r - s + t * (3.0 * (q - r) + s - p)))
            };
            out.push((axis(p.0, q.0, r.0, s.0), axis(p.1, q.1, r.1, s.1)));
        }
    }
    out
}

/// Generates `n` images with labels. Each has its own random stream, so that an image depends
/// neither on the threads nor on `n`.
pub(super) fn dataset(
    seed: u64,
    n: usize,
    shape: &[usize],
    draw: impl Fn(&mut Random, &mut [u8]) -> u8 + Sync,
) -> ArrayDataset {
    let pixels: usize = shape.iter().product();
    let (mut images, mut labels) = (vec![0u8; n * pixels], vec![0u8; n]);
    let threads = std::thread::available_parallelism().map_or(1, |t| t.get()).min(n / 64 + 1);
    let share = n.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (t, (images, labels)) in
            images.chunks_mut(share * pixels).zip(labels.chunks_mut(share)).enumerate()
        {
            let draw = &draw;
            scope.spawn(move || {
                for (i, (image, label)) in images.chunks_exact_mut(pixels).zip(labels).enumerate() {
                    *label = draw(&mut Random::new(seed, (t * share + i) as u64), image);
                }
            });
        }
    });
    let fits = "the lengths match the shapes";
    let images = Array::from_bytes(images, DType::U8, &[&[n], shape].concat()).expect(fits);
    let labels = Array::from_bytes(labels, DType::U8, &[n]).expect(fits);
    ArrayDataset::new(vec![images, labels]).expect("both have n rows")
}
