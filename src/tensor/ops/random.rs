//! Counter-based random numbers, which depend on the seed, the number of draws and the index of the
//! element only: they are the same on every device and in every order.
//!
//! Each element has its own counter, which threefry2x32 with 20 rounds (Salmon et al., "Parallel
//! random numbers: as easy as 1, 2, 3", 2011) maps to two 32-bit words. Key and first counter are a
//! small buffer, not constants, so that later calls reuse the kernel.

use super::create::iota;
use super::elementwise::pair;
use super::gather::gather_at;
use crate::dtype::{DType, as_bytes};
use crate::error::Result;
use crate::exec::{Capture, Draw, Event};
use crate::ir::{DeviceName, UOp};
use crate::shape::checked_numel;
use crate::tensor::realize::{buffer, default_device, storages};
use crate::tensor::{Shape, Sizes, Tensor, keepdim, or_panic};
use std::sync::Mutex;

/// Seed, and counter of the next element.
static STATE: Mutex<(u64, u64)> = Mutex::new((0, 0));

/// One threefry2x32 block of 20 rounds on `u32` nodes: two words of counter under two words of key.
fn threefry2x32(key: [&UOp; 2], counter: [&UOp; 2]) -> [UOp; 2] {
    const ROTATIONS: [[i64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    // Parity constant of the key schedule.
    let third = key[0] ^ key[1] ^ 0x1BD1_1BDAi64;
    let keys = [key[0], key[1], &third];
    let (mut a, mut b) = (counter[0] + key[0], counter[1] + key[1]);
    for group in 0..5 {
        for turn in ROTATIONS[group % 2] {
            a = &a + &b;
            b = ((&b << turn) | (&b >> (32 - turn))) ^ &a;
        }
        a = &a + keys[(group + 1) % 3];
        b = &b + keys[(group + 2) % 3] + (group as i64 + 1);
    }
    [a, b]
}

/// Seed and counter of the next draw, as little-endian words; advances the counter by `numbers`.
pub(in crate::tensor) fn next_words(numbers: u64) -> [u32; 4] {
    let mut state = STATE.lock().unwrap_or_else(|e| e.into_inner());
    let (seed, first) = *state;
    state.1 = first.wrapping_add(numbers);
    [seed as u32, (seed >> 32) as u32, first as u32, (first >> 32) as u32]
}

/// Two random words for each of `numel` elements, as `u32` tensors of one axis.
fn words(numel: usize, device: &DeviceName) -> Result<[Tensor; 2]> {
    let halves = next_words(numel as u64);
    let start = buffer(as_bytes(&halves), DType::U32, device)?;
    let storages = storages(&start).into_iter().flatten().map(|s| s.storage.id()).collect();
    Capture::note(Event::Draw(Draw { storages, numbers: numel as u64 }));
    let start = Tensor::from_uop(start, device.clone());
    let word = |i: usize| start.slice_axis(0, i, i + 1)?.expanded([numel]);
    let (low, high) = (word(2)?, word(3)?);
    // 64-bit counter: carries from the lower word, and adds the upper word of the index.
    let place = iota(numel);
    let x = low.try_add(place.try_cast(DType::U32)?)?;
    let mut y = high.try_add(x.try_lt(low)?)?;
    if place.dtype() == DType::I64 {
        y = y.try_add(place.try_rshift(32)?.try_cast(DType::U32)?)?;
    }
    let (k0, k1) = (word(0)?, word(1)?);
    let out = threefry2x32([&k0.uop(), &k1.uop()], [&x.uop(), &y.uop()]);
    Ok(out.map(|w| Tensor::from_uop(w, device.clone())))
}

/// Multiples of 2⁻²⁴ in [0, 1), from the top 24 bits, which `f32` holds exactly.
fn to_unit(word: &Tensor) -> Result<Tensor> {
    word.try_rshift(8)?.try_cast(DType::F32)?.try_mul(1.0 / (1u64 << 24) as f64)
}

/// Random words of a shape, mapped to a tensor.
fn draw(
    shape: &Shape,
    device: &DeviceName,
    f: impl FnOnce([Tensor; 2]) -> Result<Tensor>,
) -> Result<Tensor> {
    let dims = shape.sizes("random")?.shape("random")?;
    let numbers = f(words(checked_numel("random", &dims)?, device)?)?;
    shape.slice_symbolic("random", numbers.shaped(dims)?, |_| true)
}

pub(super) fn uniform(shape: &Shape, device: &DeviceName) -> Result<Tensor> {
    draw(shape, device, |[word, _]| to_unit(&word))
}

fn normal(shape: &Shape, device: &DeviceName) -> Result<Tensor> {
    draw(shape, device, |[a, b]| {
        // Box-Muller transform. 1-u is never 0.
        let radius = ((1.0 - to_unit(&a)?).log() * -2.0).sqrt();
        radius.try_mul((to_unit(&b)? * std::f64::consts::TAU).cos())
    })
}

/// Fan-in and fan-out of a weight: input and output channels times the kernel size.
pub(crate) fn fans(op: &'static str, shape: &Sizes) -> Result<(f64, f64)> {
    let shape = shape.shape(op)?;
    if shape.len() < 2 {
        return wrong_shape!(op, "expected the shape of a weight, two axes or more, got {shape:?}");
    }
    let window: usize = shape[2..].iter().product();
    Ok(((shape[1] * window) as f64, (shape[0] * window) as f64))
}

impl Tensor {
    /// Seeds the generator. The same calls after the same seed give the same numbers on any device.
    ///
    /// ```
    /// use picograd::Tensor;
    /// Tensor::manual_seed(42);
    /// let x = Tensor::rand([3]).to_vec::<f32>()?;
    /// Tensor::manual_seed(42);
    /// assert_eq!(Tensor::rand([3]).to_vec::<f32>()?, x);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn manual_seed(seed: u64) {
        Tensor::set_rng_state((seed, 0));
    }

    /// Returns the state of the generator: seed and number of draws.
    /// [`set_rng_state`](Self::set_rng_state) restores it, so that an interrupted training with
    /// dropout continues identically.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let state = Tensor::rng_state();
    /// let x = Tensor::rand([3]).to_vec::<f32>()?;
    /// Tensor::set_rng_state(state);
    /// assert_eq!(Tensor::rand([3]).to_vec::<f32>()?, x);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn rng_state() -> (u64, u64) {
        *STATE.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Restores a state from [`rng_state`](Self::rng_state).
    ///
    /// ```
    /// use picograd::Tensor;
    /// Tensor::set_rng_state((7, 0));
    /// assert_eq!(Tensor::rng_state(), (7, 0));
    /// ```
    pub fn set_rng_state(state: (u64, u64)) {
        Capture::note(Event::Seed);
        *STATE.lock().unwrap_or_else(|e| e.into_inner()) = state;
    }

    fallible! {
        /// 32 random bits per element, as `u32`.
        ///
        /// ```
        /// use picograd::{DType, Tensor};
        /// assert_eq!(Tensor::random_bits([2, 3]).dtype(), DType::U32);
        /// ```
        pub fn random_bits | try_random_bits(shape: impl Into<Shape>) -> Tensor {
            draw(&shape.into(), &default_device(), |[word, _]| Ok(word))
        }

        /// 64 random bits for each counter of this tensor under a key, both `u64`, by threefry2x32
        /// with 20 rounds. The lower half is the first word.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([0u64, 1, 2]).threefry(&Tensor::new([42u64])).shape(), [3]);
        /// let y = Tensor::new([0u64]).threefry(&Tensor::new([0u64]));
        /// assert_eq!(y.to_vec::<u64>()?, [0x99ba4efe_6b200159]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn threefry | try_threefry(&self, key: &Tensor) -> Tensor {
            if let Some(other) = [self, key].map(Tensor::dtype).iter().find(|d| **d != DType::U64) {
                return dtype_error!("expected counters and keys of u64, got {other}");
            }
            let pair = pair("threefry", self.into(), key.into())?;
            let halves = |t: &Tensor| {
                let u = t.uop();
                [u.cast(DType::U32), (u >> 32).cast(DType::U32)]
            };
            let ([k0, k1], [c0, c1]) = (halves(&pair.y), halves(&pair.x));
            let [low, high] = threefry2x32([&k0, &k1], [&c0, &c1]).map(|w| w.cast(DType::U64));
            Ok(pair.x.with_uop(low | (high << 32)))
        }

        /// Random permutation of 0..n, in `i32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let mut x = Tensor::randperm(5).to_vec::<i32>()?;
        /// x.sort();
        /// assert_eq!(x, [0, 1, 2, 3, 4]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn randperm | try_randperm(n: usize) -> Tensor {
            Tensor::try_random_bits([n])?.try_argsort(0, false)
        }

        /// Samples `samples` indices along the last axis of a vector or matrix, with probabilities
        /// in proportion to the elements, in `i32`. Without `replacement` indices do not repeat,
        /// and those of weight 0 come last.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([0.0f32, 3.0, 0.0]);
        /// assert_eq!(x.multinomial(2, true).to_vec::<i32>()?, [1, 1]);
        /// assert_eq!(x.multinomial(1, false).to_vec::<i32>()?, [1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn multinomial | try_multinomial(&self, samples: usize, replacement: bool) -> Tensor {
            let dims = self.dims();
            let Some(&n) = dims.last().filter(|&&n| n > 0 && dims.len() <= 2) else {
                return shape_error!("expected weights along one axis or two, got {dims:?}");
            };
            if !replacement && samples > n {
                return shape_error!(
                    "cannot draw {samples} distinct indices from {n}; expected at most {n}, or \
                     replacement"
                );
            }
            check_weights(self, n, if replacement { 1 } else { samples })?;
            let weights = self.as_wide_float();
            if !replacement {
                // Exponential arrival times with these rates (Efraimidis and Spirakis, 2006). 1-u
                // is never 0.
                let times = (1.0 - uniform(&Shape::from(&dims), self.device())?).log().try_neg()?;
                let ever = weights.try_gt(0)?;
                let times = ever
                    .try_where_(times.try_div(ever.try_where_(&weights, 1.0)?)?, f64::INFINITY)?;
                return Ok(times.try_topk(samples, -1, false, true)?.1);
            }
            let sums = weights.try_cumsum(-1)?;
            let mut shape = dims.clone();
            shape[dims.len() - 1] = samples;
            let drawn = uniform(&Shape::from(&shape), self.device())?.try_mul(sums.slice_axis(
                dims.len() - 1,
                n - 1,
                n,
            )?)?;
            // The index is the number of sums at or below the draw. A draw that was rounded up to
            // the last sum takes the last index of positive weight.
            let passed = count_at_most(&sums.contiguous(), &drawn.contiguous())?;
            let last = weights.try_gt(0)?.try_where_(iota(n), 0)?.try_max(keepdim(-1))?;
            passed.try_minimum(last)
        }

        /// Uniform distribution over [0, 1), in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert!(Tensor::rand([100]).to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn rand | try_rand(shape: impl Into<Shape>) -> Tensor {
            uniform(&shape.into(), &default_device())
        }

        /// Standard normal distribution, in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert!(Tensor::randn([1000]).mean(..).item::<f32>()?.abs() < 0.2);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn randn | try_randn(shape: impl Into<Shape>) -> Tensor {
            normal(&shape.into(), &default_device())
        }

        /// Uniformly distributed integers in `low..high`, in `i32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::randint([100], 1, 7).to_vec::<i32>()?;
        /// assert!(x.iter().all(|x| (1..7).contains(x)));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn randint | try_randint(shape: impl Into<Shape>, low: i32, high: i32) -> Tensor {
            reject_shape!(low >= high, "the range {low}..{high} is empty; expected low below high");
            let span = (high as i64 - low as i64) as u32;
            draw(&shape.into(), &default_device(), |[word, _]| {
                word.try_modulo(span)?.try_cast(DType::I32)?.try_add(low)
            })
        }

        /// Uniform distribution over [low, high), in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::uniform([100], 2.0, 3.0).to_vec::<f32>()?;
        /// assert!(x.iter().all(|x| (2.0..=3.0).contains(x)));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn uniform | try_uniform(shape: impl Into<Shape>, low: f64, high: f64) -> Tensor {
            Ok(uniform(&shape.into(), &default_device())? * (high - low) + low)
        }

        /// Normal distribution, in `f32`.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert!((Tensor::normal([1000], 5.0, 0.1).mean(..).item::<f32>()? - 5.0).abs() < 0.1);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn normal | try_normal(shape: impl Into<Shape>, mean: f64, std: f64) -> Tensor {
            Ok(normal(&shape.into(), &default_device())? * std + mean)
        }

        /// Uniform distribution over ±1/√numel.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::scaled_uniform([8, 4]).shape(), [8, 4]);
        /// ```
        pub fn scaled_uniform | try_scaled_uniform(shape: impl Into<Sizes>) -> Tensor {
            let shape = shape.into();
            let bound = (checked_numel("scaled_uniform", &shape.shape("scaled_uniform")?)? as f64)
                .powf(-0.5);
            Tensor::try_uniform(shape.0.as_slice(), -bound, bound)
        }

        /// Initialization of Glorot and Bengio (2010): uniform over ±√(6/(fan_in + fan_out)).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::glorot_uniform([8, 4]).shape(), [8, 4]);
        /// ```
        pub fn glorot_uniform | try_glorot_uniform(shape: impl Into<Sizes>) -> Tensor {
            let shape = shape.into();
            let (inputs, outputs) = fans("glorot_uniform", &shape)?;
            let bound = (6.0 / (inputs + outputs)).sqrt();
            Tensor::try_uniform(shape.0.as_slice(), -bound, bound)
        }

        /// Initialization of He et al. (2015) for a leaky ReLU of slope `a`: uniform over ±√(6/((1
        /// + a²)·fan_in)).
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::kaiming_uniform([8, 4], 0.0).shape(), [8, 4]);
        /// ```
        pub fn kaiming_uniform | try_kaiming_uniform(shape: impl Into<Sizes>, a: f64) -> Tensor {
            let shape = shape.into();
            let (inputs, _) = fans("kaiming_uniform", &shape)?;
            let bound = (6.0 / ((1.0 + a * a) * inputs)).sqrt();
            Tensor::try_uniform(shape.0.as_slice(), -bound, bound)
        }

        /// [`kaiming_uniform`](Self::kaiming_uniform) as a normal distribution of the same
        /// variance.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::kaiming_normal([8, 4], 0.0).shape(), [8, 4]);
        /// ```
        pub fn kaiming_normal | try_kaiming_normal(shape: impl Into<Sizes>, a: f64) -> Tensor {
            let shape = shape.into();
            let (inputs, _) = fans("kaiming_normal", &shape)?;
            Tensor::try_normal(shape.0.as_slice(), 0.0, (2.0 / ((1.0 + a * a) * inputs)).sqrt())
        }

        /// Dropout: zeroes elements with probability `p` and scales the others by 1/(1-p).
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::ones([100]).dropout(0.5).to_vec::<f32>()?;
        /// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn dropout | try_dropout(&self, p: f64) -> Tensor {
            reject_shape!(!(0.0..=1.0).contains(&p), "expected a probability, got {p}");
            if p == 0.0 {
                return Ok(self.copy());
            }
            let kept = self
                .match_extents(uniform(&Shape::from(&self.dims()), self.device())?)
                .try_ge(p)?;
            let x = self.as_wide_float();
            let scaled = if p < 1.0 { x * (1.0 / (1.0 - p)) } else { x };
            kept.try_where_(scaled, 0.0)?.try_cast(self.as_float().dtype())
        }
    }

    /// Uniform distribution over [0, 1) with this tensor's shape and device, and its dtype if that
    /// is a float.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// let x = Tensor::zeros([2, 3]).half().rand_like();
    /// assert_eq!((x.shape(), x.dtype()), (vec![2, 3], DType::F16));
    /// ```
    pub fn rand_like(&self) -> Tensor {
        let x = or_panic(uniform(&Shape::from(&self.dims()), self.device()));
        self.match_extents(x).cast(self.as_float().dtype())
    }
    /// Standard normal distribution with this tensor's shape and device, and its dtype if that is a
    /// float.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// let x = Tensor::zeros([2, 3]).half().randn_like();
    /// assert_eq!((x.shape(), x.dtype()), (vec![2, 3], DType::F16));
    /// ```
    pub fn randn_like(&self) -> Tensor {
        let x = or_panic(normal(&Shape::from(&self.dims()), self.device()));
        self.match_extents(x).cast(self.as_float().dtype())
    }
}

/// Checks weights that are in host memory: finite, not negative, and enough of them above 0 in each
/// row.
fn check_weights(weights: &Tensor, n: usize, needed: usize) -> Result<()> {
    let Some(values) = weights.host_values() else { return Ok(()) };
    if let Some((i, w)) = values.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
        return shape_error!("the weight at {i} is {w}; expected finite weights of at least 0");
    }
    for (row, weights) in values.chunks_exact(n).enumerate() {
        let (some, needed) = (weights.iter().filter(|w| **w > 0.0).count(), needed.max(1));
        if some < needed {
            return shape_error!("row {row} has {some} weights above zero, and {needed} are drawn");
        }
    }
    Ok(())
}

/// Returns the number of ascending sums along the last axis at or below each number, by binary
/// search.
fn count_at_most(sums: &Tensor, numbers: &Tensor) -> Result<Tensor> {
    let axis = sums.ndim() - 1;
    let n = sums.dims()[axis];
    let mut count = numbers.literal(0).try_cast(DType::I32)?.try_expand(&numbers.dims())?;
    for step in (0..usize::BITS - n.leading_zeros()).rev().map(|bit| 1usize << bit) {
        let further = count.try_add(step)?;
        let sum = gather_at("multinomial", sums, &further.try_sub(1)?, axis)?;
        let passes = further.try_le(n)?.try_bitwise_and(sum.try_le(numbers)?)?;
        count = passes.try_where_(further, &count)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::eval::eval;
    use rustc_hash::FxHashMap;

    /// Known answers of the Random123 library, `kat_vectors`.
    #[test]
    fn threefry_gives_the_known_answers() {
        let check = |key: [u32; 2], counter: [u32; 2], expected: [i64; 2]| {
            let u = |x: u32| UOp::constant(x, DType::U32);
            let out = threefry2x32([&u(key[0]), &u(key[1])], [&u(counter[0]), &u(counter[1])]);
            let value = |n: &UOp| eval(n, &FxHashMap::default()).as_i64().unwrap();
            assert_eq!([value(&out[0]), value(&out[1])], expected);
        };
        check([0, 0], [0, 0], [0x6b200159, 0x99ba4efe]);
        check([u32::MAX; 2], [u32::MAX; 2], [0x1cb996fc, 0xbb002be7]);
        check([0x13198a2e, 0x03707344], [0x243f6a88, 0x85a308d3], [0xc4923a9c, 0x483df7a0]);
    }
}
