//! Random numbers for shuffling and synthetic images. This module and the drawing code use only
//! integer operations, additions, products and square roots, so that a seed gives the same bits on
//! every machine.

/// A random stream (splitmix64), identified by a seed and a stream number.
#[derive(Clone, Debug)]
pub struct Random(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// Creates a stream. Streams of different numbers are independent.
    ///
    /// ```
    /// use picograd::nn::data::Random;
    /// assert_eq!(Random::new(42, 7).bits(), Random::new(42, 7).bits());
    /// assert_ne!(Random::new(42, 7).bits(), Random::new(42, 8).bits());
    /// ```
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
            ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// Returns 64 random bits.
    ///
    /// ```
    /// use picograd::nn::data::Random;
    /// let mut random = Random::new(42, 0);
    /// assert_ne!(random.bits(), random.bits());
    /// ```
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns an integer below `n`, uniformly distributed. `n` must not be zero.
    ///
    /// ```
    /// use picograd::nn::data::Random;
    /// let mut random = Random::new(42, 0);
    /// assert!(random.below(6) < 6);
    /// ```
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        // Rejects values above the largest multiple of `n`, which would bias the result.
        let rest = (u64::MAX % n + 1) % n;
        loop {
            let bits = self.bits();
            if bits <= u64::MAX - rest {
                return (bits % n) as usize;
            }
        }
    }

    /// Returns a number from `low` to `high`, uniformly distributed.
    ///
    /// ```
    /// use picograd::nn::data::Random;
    /// let mut random = Random::new(42, 0);
    /// assert!((1.0..=2.0).contains(&random.within(1.0, 2.0)));
    /// ```
    pub fn within(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.bits() >> 40) as f32 / (1u32 << 24) as f32)
    }

    /// Returns an approximately normal number of this standard deviation, at most 3.5 times it: a
    /// sum of four uniform numbers.
    ///
    /// ```
    /// use picograd::nn::data::Random;
    /// let mut random = Random::new(42, 0);
    /// assert!(random.normal(2.0).abs() <= 7.0);
    /// ```
    pub fn normal(&mut self, deviation: f32) -> f32 {
        let sum: f32 = (0..4).map(|_| self.within(-1.0, 1.0)).sum();
        sum * deviation * 0.866_025_4
    }

    /// Returns the integers below `n` in a random order.
    ///
    /// ```
    /// use picograd::nn::data::Random;
    /// let mut random = Random::new(42, 0);
    /// let mut all = random.permutation(5);
    /// all.sort();
    /// assert_eq!(all, [0, 1, 2, 3, 4]);
    /// ```
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let mut r = Random::new(1, 2);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[r.below(7)] += 1);
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
        let draws: Vec<f32> = (0..100_000).map(|_| r.normal(2.0)).collect();
        let mean = draws.iter().sum::<f32>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.03 && (variance - 4.0).abs() < 0.1, "{mean} {variance}");
    }

    #[test]
    fn permutations_differ_by_seed_and_stream_and_have_every_number() {
        let of = |seed, stream| Random::new(seed, stream).permutation(100);
        assert_eq!(of(1, 2), of(1, 2));
        assert!(of(1, 2) != of(1, 3) && of(1, 2) != of(2, 2) && of(1, 2) != of(2, 1));
        let mut sorted = of(5, 6);
        sorted.sort();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert!(Random::new(0, 0).permutation(0).is_empty());
    }
}
