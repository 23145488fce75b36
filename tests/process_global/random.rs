//! Random numbers. The generator is process-wide, so no other test may draw meanwhile.

use crate::common::{as_f64, assert_close};
use crate::serial;
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
fn random_numbers_follow_seed_and_distribution() {
    let _guard = serial();
    // Seed 0, counter (0, 0): the first known answer of Random123 is 6b200159, whose top 24 bits
    // are 6b2001.
    Tensor::manual_seed(0);
    let first: Vec<f32> = values(Tensor::rand([4]));
    assert_eq!(first[0], 0x6b2001 as f32 / 16777216.0);

    // The next call continues where the last one ended, for all shapes.
    let second: Vec<f32> = values(Tensor::rand([2, 2]));
    assert_ne!(first, second);
    Tensor::manual_seed(0);
    assert_eq!(values::<f32>(Tensor::rand([8])), [first.clone(), second].concat());
    Tensor::manual_seed(1);
    assert_ne!(values::<f32>(Tensor::rand([4])), first);
    Tensor::manual_seed(1 << 32);
    assert_ne!(values::<f32>(Tensor::rand([4])), first);

    // A random tensor is drawn once: reading it again gives the same values.
    let x = Tensor::rand([3]);
    assert_eq!(values::<f32>(x.clone()), values::<f32>(x));
    // A function with random numbers draws when it is created.
    let drawn = Tensor::callify(&[], |_| Ok(vec![Tensor::rand([3])])).unwrap();
    let call = || values::<f32>(drawn.call(&[]).unwrap().remove(0));
    assert_eq!(call(), call());

    let even: Vec<f32> = values(Tensor::rand([20000]));
    assert!(even.iter().all(|v| (0.0..1.0).contains(v)));
    let (mean, variance) = mean_and_variance(&even);
    assert!(
        (mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.002,
        "{mean} {variance}"
    );

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
    assert!(
        spread.iter().all(|v| (-3.0..5.0).contains(v))
            && spread.iter().any(|&v| v < -2.0)
            && spread.iter().any(|&v| v > 4.0)
    );
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
    a_second_call_reuses_the_graph();
    known_answers();
    orders_and_samples();
    attention_that_forgets();
}

/// One block of threefry2x32 with 20 rounds on host integers.
fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let [mut a, mut b] = [counter[0].wrapping_add(key[0]), counter[1].wrapping_add(key[1])];
    for round in 0..20 {
        a = a.wrapping_add(b);
        b = b.rotate_left([13, 15, 26, 6, 17, 29, 16, 24][round % 8]) ^ a;
        if round % 4 == 3 {
            let group = round / 4 + 1;
            a = a.wrapping_add(keys[group % 3]);
            b = b.wrapping_add(keys[(group + 1) % 3]).wrapping_add(group as u32);
        }
    }
    [a, b]
}

/// Checks every distribution against its random words, on every device.
fn known_answers() {
    let words: Vec<[u32; 2]> = (0..6).map(|i| threefry([77, 5], [i, 0])).collect();
    let unit = |w: u32| (w >> 8) as f32 / 16777216.0;
    for (device, found) in picograd::Device::list() {
        if device.starts_with("NULL") || found.is_err() {
            continue;
        }
        let drawn = |f: &dyn Fn() -> Tensor| {
            Tensor::manual_seed(77 | 5 << 32);
            f().to(&device)
        };
        assert_eq!(
            values::<u32>(drawn(&|| Tensor::random_bits([6]))),
            words.iter().map(|w| w[0]).collect::<Vec<_>>()
        );
        assert_eq!(
            values::<f32>(drawn(&|| Tensor::rand([6]))),
            words.iter().map(|w| unit(w[0])).collect::<Vec<_>>()
        );
        let dice: Vec<i32> = words.iter().map(|w| (w[0] % 10) as i32 - 3).collect();
        assert_eq!(values::<i32>(drawn(&|| Tensor::randint([6], -3, 7))), dice);
        let normal = words.iter().map(|w| {
            (-2.0 * (1.0 - unit(w[0]) as f64).ln()).sqrt()
                * (std::f64::consts::TAU * unit(w[1]) as f64).cos()
        });
        let got = as_f64(&drawn(&|| Tensor::randn([6])));
        assert_close("randn", &got, &normal.collect::<Vec<_>>(), 1e-5);
        let mut order: Vec<i32> = (0..6).collect();
        order.sort_by_key(|&i| words[i as usize][0]);
        assert_eq!(values::<i32>(drawn(&|| Tensor::randperm(6))), order);
    }
}

fn orders_and_samples() {
    Tensor::manual_seed(3);
    let mut order = values::<i32>(Tensor::randperm(1000));
    assert_ne!(order, (0..1000).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
    assert!(values::<i32>(Tensor::randperm(0)).is_empty());

    let weights = Tensor::new([1f32, 0.0, 3.0, 0.0]);
    let drawn = values::<i32>(weights.multinomial(4000, true));
    let count = |place: i32| drawn.iter().filter(|&&d| d == place).count();
    assert_eq!((count(1), count(3)), (0, 0));
    assert!((900..1100).contains(&count(0)), "{}", count(0));
    let both = Tensor::new([[1, 1, 0], [0, 1, 1]]).multinomial(2, false);
    let both = values::<i32>(both);
    assert_eq!((both[0] + both[1], both[2] + both[3]), (1, 3));
    let first: usize = (0..200)
        .filter(|_| values::<i32>(Tensor::new([1f32, 3.0]).multinomial(1, false))[0] == 1)
        .count();
    assert!((125..175).contains(&first), "{first} of 200");
    assert!(weights.try_multinomial(5, false).is_err());
    assert!(
        Tensor::from(1).try_multinomial(1, true).is_err()
            && Tensor::zeros([2, 0]).try_multinomial(1, true).is_err()
    );
}

fn attention_that_forgets() {
    use picograd::tensor::Attention;
    let (q, v, key) = (Tensor::zeros([1, 8]), Tensor::ones([63, 1]), Tensor::zeros([63, 8]));
    let all = q.scaled_dot_product_attention(&key, &v, Attention::new()).item::<f32>().unwrap();
    assert!((all - 1.0).abs() < 1e-6);
    let some = q
        .scaled_dot_product_attention(&key, &v, Attention::new().dropout(0.5))
        .item::<f32>()
        .unwrap();
    // Each of 63 weights of 1/63 is 0 or doubled, and no sum of those is 1.
    let kept = some * 63.0 / 2.0;
    assert!((kept - kept.round()).abs() < 1e-3 && (0.4..1.6).contains(&some), "{some}");
    assert!(q.try_scaled_dot_product_attention(&key, &v, Attention::new().dropout(1.5)).is_err());
}

fn a_second_call_reuses_the_graph() {
    let ops = |t: Tensor| t.uop().toposort().iter().map(|u| u.op()).collect::<Vec<_>>();
    assert_eq!(ops(Tensor::rand([3])), ops(Tensor::rand([3])));
}

/// The known answers of the Random123 library, `kat_vectors`, with the first word of each pair
/// below.
#[test]
fn threefry_matches_known_answers() {
    let _guard = serial();
    let counters = Tensor::new([0u64, u64::MAX, 0x85a308d3_243f6a88]);
    let keys = Tensor::new([0u64, u64::MAX, 0x03707344_13198a2e]);
    let expected = [0x99ba4efe_6b200159u64, 0xbb002be7_1cb996fc, 0x483df7a0_c4923a9c];
    assert_eq!(values::<u64>(counters.threefry(&keys)), expected);
    let grid = counters.reshape([3, 1]).threefry(&keys);
    assert_eq!((grid.shape(), values::<u64>(grid)[4]), (vec![3, 3], expected[1]));
    let wrong = Tensor::new([1i32]).try_threefry(&keys).unwrap_err().to_string();
    assert_eq!(wrong, "threefry: expected counters and keys of u64, got i32");
}
