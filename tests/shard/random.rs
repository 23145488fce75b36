//! Random graphs with some sharded leaves, against the reference evaluator.

use super::devices;
use picograd::compiler::device::Buffer;
use picograd::reference::evaluate;
use picograd::{DType, Tensor};

/// A seeded generator of small numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

/// A tensor of integers, sharded or replicated.
fn leaf(rng: &mut Rng, shape: &[usize], names: &[String]) -> Tensor {
    let values: Vec<i32> = (0..shape.iter().product()).map(|_| rng.below(9) as i32 - 4).collect();
    let axis = rng.below(shape.len() + 1);
    let x = Tensor::from_slice(&values, shape)
        .shard(names, (axis < shape.len()).then_some(axis as isize));
    if rng.below(2) == 0 { x.realize().unwrap() } else { x }
}

/// A random graph of integers, whose sums do not depend on the order, so that results are compared
/// exactly.
fn grow(rng: &mut Rng, names: &[String]) -> Tensor {
    let shape: Vec<usize> = (0..1 + rng.below(3)).map(|_| 1 + rng.below(6)).collect();
    let mut x = leaf(rng, &shape, names);
    for _ in 0..3 + rng.below(8) {
        let shape = x.shape();
        let axis = rng.below(shape.len().max(1)) as isize;
        x = match rng.below(13) {
            0 => &x + leaf(rng, &shape, names),
            1 => &x * leaf(rng, &shape, names),
            2 => x.lt(leaf(rng, &shape, names)).where_(&x, leaf(rng, &shape, names) * 2),
            3 if !shape.is_empty() => x.sum(picograd::tensor::keepdim(axis)),
            4 if !shape.is_empty() => x.max(picograd::tensor::keepdim(axis)) + &x,
            5 => {
                let mut order: Vec<usize> = (0..shape.len()).collect();
                (1..order.len()).for_each(|i| order.swap(i, rng.below(i + 1)));
                x.permute(&order.iter().map(|&a| a as isize).collect::<Vec<_>>()[..])
            }
            6 if !shape.is_empty() => x.flip(axis),
            7 => x.pad(&shape.iter().map(|_| (rng.below(3), rng.below(3))).collect::<Vec<_>>()),
            8 => {
                let range = |&n: &usize, rng: &mut Rng| {
                    let start = rng.below(n);
                    (start, start + 1 + rng.below(n - start))
                };
                x.shrink(&shape.iter().map(|n| range(n, rng)).collect::<Vec<_>>())
            }
            9 => {
                // A reshape to one axis or to factors of it.
                let n: usize = shape.iter().product();
                let factor =
                    (1..=n).filter(|f| n.is_multiple_of(*f)).nth(rng.below(3)).unwrap_or(1);
                if rng.below(2) == 0 {
                    x.reshape([factor, n / factor])
                } else {
                    x.reshape([n / factor, 1, factor])
                }
            }
            10 => {
                let sizes: Vec<usize> =
                    shape.iter().map(|&n| if n == 1 { 1 + rng.below(4) } else { n }).collect();
                x.expand(sizes)
            }
            11 => {
                x.contiguous()
                    + Tensor::arange(0, shape.last().copied().unwrap_or(1) as i64, 1)
                        .cast(DType::I32)
                        .reshape([shape.last().copied().unwrap_or(1)])
            }
            _ => x.cast(DType::I64).cast(DType::I32) & 63,
        };
    }
    x
}

#[test]
fn random_sharded_graphs_match_the_reference() {
    let mut kinds = [0; 2];
    for seed in 1..=300u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let names = devices(2 + rng.below(3));
        let x = grow(&mut rng, &names);
        let read = |s: &picograd::ir::StorageRef| Buffer::of(s).read().unwrap();
        let want = evaluate(&[x.uop()], &read).remove(0).to_vec::<i32>();
        kinds[x.shard_axis().is_some() as usize] += 1;
        assert_eq!(
            x.to_vec::<i32>().unwrap(),
            want,
            "seed {seed}: {:?} over {}",
            x.shape(),
            names.len()
        );
    }
    assert!(kinds.iter().all(|n| *n > 50), "sharded and replicated results: {kinds:?}");
}
