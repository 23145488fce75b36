//! Synthetic color images in place of CIFAR-10: ten kinds of shape with random colors, textures and
//! backgrounds.

use super::draw::dataset;
use super::{ArrayDataset, Random};

/// Width and height in pixels.
const SIDE: usize = 32;

/// True for points inside a shape, which lies within [-1, 1] on both axes.
type Inside = fn(f32, f32) -> bool;

const SHAPES: [Inside; 10] = [
    // A disc, a square, a triangle, a ring.
    |u, v| u * u + v * v < 0.7,
    |u, v| u.abs().max(v.abs()) < 0.72,
    |u, v| v < 0.7 && u.abs() < (v + 0.85) * 0.55,
    |u, v| (0.2..0.75).contains(&(u * u + v * v)),
    // A plus, a cross, a frame.
    |u, v| u.abs().min(v.abs()) < 0.24 && u.abs().max(v.abs()) < 0.85,
    |u, v| (u + v).abs().min((u - v).abs()) < 0.34 && u.abs().max(v.abs()) < 0.75,
    |u, v| (0.42..0.8).contains(&u.abs().max(v.abs())),
    // Half a disc, two bars, a star.
    |u, v| u * u + (v - 0.4) * (v - 0.4) < 0.7 && v < 0.4,
    |u, v| u.abs() < 0.85 && (v.abs() - 0.48).abs() < 0.2,
    |u, v| (u.abs().sqrt() + v.abs().sqrt()) < 1.0,
];

/// Generates `n` synthetic images in the format of CIFAR-10: images `[n, 3, 32, 32]` and labels
/// `[n]`, both u8. The class is the shape; color, texture, position, size and angle are independent
/// of it. An image depends only on the seed and its index.
///
/// Accuracy after training on 20,000 images: a linear model reaches 12 %; three convolutions (16,
/// 32 and 64 channels, 3 × 3, with batch norm) and a linear layer reach 90 % after two epochs and
/// 97 % after four.
///
/// ```
/// use picograd::nn::data::{Dataset, shapes};
/// let data = shapes(0, 10);
/// assert_eq!(data.arrays()[0].shape(), [10, 3, 32, 32]);
/// ```
pub fn shapes(seed: u64, n: usize) -> ArrayDataset {
    dataset(seed, n, &[3, SIDE, SIDE], draw)
}

/// A color with stripes.
struct Paint {
    color: [f32; 3],
    /// Stripes per pixel along x and y, and their amplitude.
    stripes: (f32, f32, f32),
    phase: f32,
}

impl Paint {
    fn random(r: &mut Random) -> Paint {
        let color = [(); 3].map(|()| r.within(0.05, 0.95));
        Paint {
            color,
            stripes: (r.within(-0.25, 0.25), r.within(-0.25, 0.25), r.within(0.0, 0.25)),
            phase: r.within(0.0, 1.0),
        }
    }

    fn at(&self, x: f32, y: f32) -> [f32; 3] {
        let t = x * self.stripes.0 + y * self.stripes.1 + self.phase;
        // A triangle wave from -1 to 1.
        let wave = 4.0 * (t - t.floor() - 0.5).abs() - 1.0;
        self.color.map(|c| c + wave * self.stripes.2)
    }
}

fn draw(r: &mut Random, image: &mut [u8]) -> u8 {
    let label = r.below(SHAPES.len());
    let inside = SHAPES[label];
    let back = Paint::random(r);
    let front = loop {
        let paint = Paint::random(r);
        let contrast =
            paint.color.iter().zip(&back.color).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if contrast > 0.35 {
            break paint;
        }
    };
    let radius = r.within(8.0, 14.0);
    let room = 16.0 - radius * 0.8;
    let (cx, cy) = (16.0 + r.within(-room, room), 16.0 + r.within(-room, room));
    // Sine and cosine from the tangent of the half angle, for the same bits on every machine.
    let t = r.normal(0.12) / 2.0;
    let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
    let noise = r.within(0.0, 0.1);
    for y in 0..SIDE {
        for x in 0..SIDE {
            // Four samples per pixel.
            let cover: f32 = [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)]
                .iter()
                .map(|(dx, dy)| {
                    let (px, py) = ((x as f32 + dx - cx) / radius, (y as f32 + dy - cy) / radius);
                    inside(px * cos + py * sin, py * cos - px * sin) as u8 as f32 / 4.0
                })
                .sum();
            let (f, b) = (front.at(x as f32, y as f32), back.at(x as f32, y as f32));
            for c in 0..3 {
                let value = f[c] * cover + b[c] * (1.0 - cover) + r.normal(noise);
                image[(c * SIDE + y) * SIDE + x] = (value.clamp(0.0, 1.0) * 255.0 + 0.5) as u8;
            }
        }
    }
    label as u8
}
