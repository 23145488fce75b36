//! The generator is one for the process, so everything that needs a known state is in one test.

use picograd::dtype::Element;
use picograd::{DType, Tensor};

fn values<T: Element>(t: Tensor) -> Vec<T> {
    t.to_vec().unwrap()
}

fn mean_and_variance(x: &[f32]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().map(|&v| v as f64).sum::<f64>() / n;
    (mean, x.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n)
}

#[test]
fn numbers_follow_the_seed_and_the_law() {
    // Seed 0, counter (0, 0): the first known answer of Random123 is 6b200159, whose top 24 bits are 6b2001.
    Tensor::manual_seed(0);
    let first: Vec<f32> = values(Tensor::rand([4]));
    assert_eq!(first[0], 0x6b2001 as f32 / 16777216.0);

    // The next call goes on where the last one ended, whatever the shapes are.
    let second: Vec<f32> = values(Tensor::rand([2, 2]));
    assert_ne!(first, second);
    Tensor::manual_seed(0);
    assert_eq!(values::<f32>(Tensor::rand([8])), [first.clone(), second].concat());
    Tensor::manual_seed(1);
    assert_ne!(values::<f32>(Tensor::rand([4])), first);
    Tensor::manual_seed(1 << 32);
    assert_ne!(values::<f32>(Tensor::rand([4])), first);

    // A tensor is drawn once: reading it again gives the same.
    let x = Tensor::rand([3]);
    assert_eq!(values::<f32>(x.clone()), values::<f32>(x));

    let even: Vec<f32> = values(Tensor::rand([20000]));
    assert!(even.iter().all(|v| (0.0..1.0).contains(v)));
    let (mean, variance) = mean_and_variance(&even);
    assert!((mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.002, "{mean} {variance}");

    let normal: Vec<f32> = values(Tensor::randn([20000]));
    let (mean, variance) = mean_and_variance(&normal);
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    let beyond = normal.iter().filter(|v| v.abs() > 2.0).count() as f64 / 20000.0;
    assert!((beyond - 0.0455).abs() < 0.006, "{beyond}");

    let dice: Vec<i32> = values(Tensor::randint([6000], 1, 7));
    for face in 1..7 {
        let seen = dice.iter().filter(|&&d| d == face).count();
        assert!((850..1150).contains(&seen), "{seen} times {face}");
    }
    let wide: Vec<i32> = values(Tensor::randint([100], i32::MIN, i32::MAX));
    assert!(wide.iter().any(|&v| v < 0) && wide.iter().any(|&v| v > 0));

    let spread: Vec<f32> = values(Tensor::uniform([1000], -3.0, 5.0));
    assert!(spread.iter().all(|v| (-3.0..5.0).contains(v)) && spread.iter().any(|&v| v < -2.0) && spread.iter().any(|&v| v > 4.0));
    let (mean, variance) = mean_and_variance(&values(Tensor::normal([5000], 10.0, 2.0)));
    assert!((mean - 10.0).abs() < 0.15 && (variance - 4.0).abs() < 0.4, "{mean} {variance}");

    let bound = |t: Tensor| values::<f32>(t).into_iter().fold(0f32, |m, v| m.max(v.abs()));
    let near = |t: Tensor, b: f32| {
        let m = bound(t);
        assert!(m <= b && m > 0.8 * b, "{m} of {b}")
    };
    near(Tensor::glorot_uniform([30, 20]), (6f32 / 50.0).sqrt());
    near(Tensor::kaiming_uniform([30, 2, 5, 2], 0.0), (6f32 / 20.0).sqrt());
    near(Tensor::scaled_uniform([10, 10]), 0.1);
    let (_, variance) = mean_and_variance(&values(Tensor::kaiming_normal([50, 40], 0.0)));
    assert!((variance - 0.05).abs() < 0.01, "{variance}");

    let like = Tensor::zeros([2, 3]).cast(DType::F64).rand_like();
    assert_eq!((like.shape(), like.dtype()), (vec![2, 3], DType::F64));
    assert_eq!(Tensor::new([1, 2]).randn_like().dtype(), DType::F32);

    let dropped: Vec<f32> = values(Tensor::ones([4000]).dropout(0.25));
    assert!(dropped.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    let zeros = dropped.iter().filter(|&&v| v == 0.0).count();
    assert!((900..1100).contains(&zeros), "{zeros}");
    assert_eq!(values::<f32>(Tensor::ones([3]).dropout(1.0)), [0.0; 3]);
    assert_eq!(Tensor::rand([0, 2]).shape(), [0, 2]);
}

#[test]
fn a_second_call_is_the_same_graph_over_another_buffer() {
    let ops = |t: Tensor| t.uop().toposort().iter().map(|u| u.op()).collect::<Vec<_>>();
    assert_eq!(ops(Tensor::rand([3])), ops(Tensor::rand([3])));
}
