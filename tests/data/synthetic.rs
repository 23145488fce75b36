//! Synthetic digits and shapes: reproducible, every class present, no two equal.

use picograd::nn::data::{ArrayDataset, Dataset, digits, shapes};

/// FNV-1a of all bytes.
fn hash(data: &ArrayDataset) -> u64 {
    let bytes = data.arrays().iter().flat_map(|a| a.bytes());
    bytes
        .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// A change of these hashes changes every training run on synthetic data; it must be intended.
#[test]
fn seed_gives_the_same_images_on_every_machine() {
    let hashes = [
        hash(&digits(0, 500)),
        hash(&digits(1, 500)),
        hash(&shapes(0, 200)),
        hash(&shapes(1, 200)),
    ];
    assert_eq!(
        hashes,
        [3835511615185844533, 12073504288232042119, 6162960975867873742, 2641992705692548798]
    );
}

#[test]
fn an_image_depends_only_on_seed_and_index() {
    let (few, many) = (digits(9, 70), digits(9, 1000));
    let (few_shapes, many_shapes) = (shapes(9, 3), shapes(9, 300));
    for i in 0..70 {
        assert_eq!(few.get(i).unwrap(), many.get(i).unwrap());
    }
    assert_eq!(few_shapes.get(2).unwrap(), many_shapes.get(2).unwrap());
    assert_eq!(digits(9, 0).len(), 0);
    assert_eq!(digits(9, 1).arrays()[0].shape(), [1, 28, 28]);
}

#[test]
fn every_class_is_present_and_inside_the_image() {
    for data in [digits(3, 2000), shapes(3, 2000)] {
        let [images, labels] = data.arrays() else { panic!("images and labels") };
        let size = images.bytes().len() / 2000;
        let mut counts = [0; 10];
        labels.bytes().iter().for_each(|l| counts[*l as usize] += 1);
        assert!(counts.iter().all(|c| (140..260).contains(c)), "{counts:?}");
        let mut seen = std::collections::HashSet::new();
        assert!(images.bytes().chunks(size).all(|i| seen.insert(i)), "no two images are alike");
    }
    // A digit has bright pixels, hardly any of them at the border.
    let data = digits(4, 2000);
    let mut border = 0u64;
    for image in data.arrays()[0].bytes().chunks(784) {
        let ink = image.iter().filter(|p| **p > 120).count();
        assert!((8..400).contains(&ink), "{ink} bright pixels");
        border += (0..28)
            .map(|i| u64::from(image[i] > 120) + u64::from(image[27 * 28 + i] > 120))
            .sum::<u64>();
    }
    assert!(border < 2000 * 2, "{border} bright pixels at the top and bottom of 2000 images");
}

/// Accuracy on `test` of softmax regression, trained by gradient descent with momentum.
fn linear(train: &ArrayDataset, test: &ArrayDataset) -> f64 {
    let features = |d: &ArrayDataset| {
        d.arrays()[0].bytes().iter().map(|b| f32::from(*b) / 255.0).collect::<Vec<f32>>()
    };
    let (x, y) = (features(train), train.arrays()[1].bytes());
    let (mut w, mut momentum) = (vec![0f32; 785 * 10], vec![0f32; 785 * 10]);
    let scores = |w: &[f32], image: &[f32]| {
        let mut z: [f32; 10] = w[7840..].try_into().unwrap();
        for (p, row) in image.iter().zip(w.chunks_exact(10)) {
            z.iter_mut().zip(row).for_each(|(z, w)| *z += p * w);
        }
        z
    };
    for step in 0..25 * y.len() / 100 {
        let mut grad = vec![0f32; 785 * 10];
        for k in 0..100 {
            let i = (step * 100 + k) * 7919 % y.len();
            let image = &x[i * 784..(i + 1) * 784];
            let z = scores(&w, image);
            let top = z.iter().copied().fold(f32::MIN, f32::max);
            let mut e = z.map(|v| (v - top).exp());
            let sum: f32 = e.iter().sum();
            e.iter_mut().for_each(|v| *v /= sum * 100.0);
            e[y[i] as usize] -= 0.01;
            for (p, row) in image.iter().chain(&[1.0]).zip(grad.chunks_exact_mut(10)) {
                row.iter_mut().zip(&e).for_each(|(g, e)| *g += p * e);
            }
        }
        for ((w, m), g) in w.iter_mut().zip(&mut momentum).zip(&grad) {
            *m = 0.9 * *m + g;
            *w -= 0.05 * *m;
        }
    }
    let (x, y) = (features(test), test.arrays()[1].bytes());
    let right = |(image, label): &(&[f32], &u8)| {
        let z = scores(&w, image);
        (0..10).max_by(|a, b| z[*a].total_cmp(&z[*b])) == Some(usize::from(**label))
    };
    x.chunks_exact(784).zip(y).filter(right).count() as f64 / y.len() as f64
}

/// The digits are neither trivial nor noise.
#[test]
fn synthetic_digits_are_not_linearly_separable() {
    let share = linear(&digits(10, 4000), &digits(11, 2000));
    assert!((0.75..0.92).contains(&share), "{share}");
}
