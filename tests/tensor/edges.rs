//! Edge cases with PyTorch's result: masked rows, ties, empty tensors, roots of zero, invalid
//! weights and targets.

use crate::{check, close};
use picograd::nn::Layer;
use picograd::tensor::{Attention, Conv, CrossEntropy, Pool, Reduction};
use picograd::{Tensor, Variable, nn};

/// A query whose keys are all masked gives 0 with finite gradients, as in PyTorch.
#[test]
fn a_query_without_keys_gives_zero() {
    let inf = f32::NEG_INFINITY;
    for kind in ["bool", "float"] {
        let q = Tensor::new([[1f32, 0.5], [0.25, -1.0], [2.0, 1.0]]).as_param();
        let k = Tensor::new([[0.5f32, 1.0], [-1.0, 0.25]]).as_param();
        let v = Tensor::new([[1f32, 2.0], [3.0, -4.0]]).as_param();
        let mask = match kind {
            "bool" => Tensor::new([[true, false], [false, false], [true, true]]),
            _ => Tensor::new([[0f32, inf], [inf, inf], [0.0, 0.0]]),
        };
        let y = q.scaled_dot_product_attention(&k, &v, Attention::new().mask(&mask));
        let out = y.to_vec::<f32>().unwrap();
        assert_eq!(&out[..4], &[1.0, 2.0, 0.0, 0.0], "{kind}");
        assert!(out.iter().all(|v| v.is_finite()));
        let grads = y.square().sum(..).gradient(&[&q, &k, &v]);
        let of = |i: usize| grads[i].to_vec::<f32>().unwrap();
        assert!(
            (0..3).all(|i| of(i).iter().all(|g| g.is_finite())),
            "{kind}: {:?}",
            (of(0), of(1), of(2))
        );
        assert_eq!(&of(0)[..4], &[0.0; 4], "{kind}: queries with one key or none have no gradient");
        // The second gradient is finite too.
        let again = grads[0].square().sum(..).gradient(&[&k]);
        assert!(again[0].to_vec::<f32>().unwrap().iter().all(|g| g.is_finite()));
    }
    let layer = nn::MultiHeadAttention::new(4, 2);
    let x = Tensor::arange(0f32, 12.0, 1.0).reshape([1, 3, 4]) * 0.1;
    let none = Tensor::new([[true, true, true], [false, false, false], [true, false, true]]);
    let y = layer.attend(&x, &x, &x, Some(&none));
    assert!(y.to_vec::<f32>().unwrap().iter().all(|v| v.is_finite()));
    y.sum(..).backward();
    for p in nn::Module::parameters(&layer) {
        assert!(p.grad().unwrap().to_vec::<f32>().unwrap().iter().all(|g| g.is_finite()));
    }
    let _ = nn::ReLU.forward(&y);
}

#[test]
fn gradients_of_ties_go_to_the_returned_index() {
    let x = Tensor::new([1f32, 3.0, 3.0, 2.0, 3.0]).as_param();
    let (values, places) = x.cummax(0);
    check(&places, &[5], &[0, 1, 2, 2, 4]);
    let g = (values * Tensor::new([1f32, 10.0, 100.0, 1000.0, 10000.0])).sum(..).gradient(&[&x]);
    check(&g[0], &[5], &[1f32, 10.0, 1100.0, 0.0, 10000.0]);
    let (values, places) = x.cummin(0);
    check(&places, &[5], &[0, 0, 0, 0, 0]);
    check(&values.sum(..).gradient(&[&x])[0], &[5], &[5f32, 0.0, 0.0, 0.0, 0.0]);
    let nan = Tensor::new([1f32, f32::NAN, 3.0]).as_param();
    check(&nan.cummax(0).0.sum(..).gradient(&[&nan])[0], &[3], &[1f32, 2.0, 0.0]);
    let pooled = Tensor::ones([1, 1, 2, 2]).as_param();
    let y = pooled.max_pool2d(2, Pool::new());
    check(&y.sum(..).gradient(&[&pooled])[0], &[1, 1, 2, 2], &[1f32, 0.0, 0.0, 0.0]);
}

/// Value and gradient do not depend on earlier realizations.
#[test]
fn pools_of_lazy_and_realized_values_agree() {
    let w = Tensor::arange(0f32, 36.0, 1.0).reshape([6, 6]) * 0.137;
    let grad = |first: bool| {
        let x = (Tensor::arange(0f32, 36.0, 1.0).reshape([6, 6]) * 0.0713).sin().as_param();
        let product = x.matmul(&w).reshape([1, 1, 6, 6]);
        let y = product.max_pool2d(2, Pool::new());
        let (values, _) = product.reshape([6, 6]).cummax(1);
        if first {
            Tensor::realize_many(&[&y, &product, &values]).unwrap();
        }
        (y.sum(..) + values.sum(..)).gradient(&[&x])[0].to_vec::<f32>().unwrap()
    };
    let (lazy, computed) = (grad(false), grad(true));
    assert!(lazy.iter().any(|g| *g != 0.0));
    lazy.iter()
        .zip(&computed)
        .for_each(|(a, b)| assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} and {b}"));
}

#[test]
fn gradients_of_zero_roots_and_empty_axes_are_finite() {
    let flat = Tensor::full([3], 2f32).as_param();
    check(&flat.std(.., 1).gradient(&[&flat])[0], &[3], &[0f32; 3]);
    assert_eq!(flat.std(.., 1).item::<f32>().unwrap(), 0.0);
    let rows = Tensor::new([[2f32, 2.0], [1.0, 3.0]]).as_param();
    close(&rows.std(1, 0).sum(..).gradient(&[&rows])[0], &[0.0, 0.0, -0.5, 0.5], 1e-6);
    let inf = f32::NEG_INFINITY;
    check(&Tensor::zeros([2, 0]).logsumexp(1), &[2], &[inf; 2]);
    check(&Tensor::zeros([2, 0]).logsumexp(..), &[], &[inf]);
    check::<f32>(&Tensor::zeros([0, 2]).logsumexp(1), &[0], &[]);
    check::<f32>(&Tensor::zeros([2, 0]).logcumsumexp(1), &[2, 0], &[]);
    check::<f32>(&Tensor::zeros([0, 2]).logcumsumexp(1), &[0, 2], &[]);
    check::<f32>(&Tensor::zeros([0, 3]).cummax(1).0, &[0, 3], &[]);
    check(&Tensor::new([inf, inf]).logsumexp(0), &[], &[inf]);
    // At p = 0 and p = 1, loss and gradient are finite.
    let p = Tensor::new([0f32, 1.0, 0.0, 1.0]).as_param();
    let loss = p.binary_crossentropy(&Tensor::new([0f32, 1.0, 1.0, 0.0]), Reduction::Sum);
    assert_eq!(loss.item::<f32>().unwrap(), 200.0);
    assert!(loss.gradient(&[&p])[0].to_vec::<f32>().unwrap().iter().all(|g| g.is_finite()));
}

#[test]
fn transposed_convolutions_without_output_are_errors() {
    let (x, w) = (Tensor::ones([1, 1, 1, 1]), Tensor::ones([1, 1, 2, 2]));
    let e = x.try_conv_transpose2d(&w, Conv::new().padding(1)).unwrap_err().to_string();
    assert!(e.starts_with("conv_transpose2d: ") && e.contains("leaves axis 2 empty"), "{e}");
    check::<f32>(&Tensor::ones([0, 1, 2, 2]).conv_transpose2d(&w, Conv::new()), &[0, 1, 3, 3], &[]);
    let none = x.conv_transpose2d(&Tensor::ones([1, 0, 2, 2]), Conv::new());
    check::<f32>(&none, &[1, 0, 2, 2], &[]);
}

#[test]
fn sort_accepts_a_symbolic_axis_elsewhere() {
    let x = Tensor::new([[3f32, 1.0, 2.0], [9.0, 7.0, 8.0], [4.0, 6.0, 5.0], [0.0, 0.0, 0.0]]);
    let n = Variable::new("rows_to_sort", 1, 4).unwrap();
    for rows in [1, 3] {
        let part = x.shrink_to((&n.bind(rows).unwrap(), 3));
        let (values, places) = part.sort(1, false);
        assert_eq!(
            values.to_vec::<f32>().unwrap(),
            [1f32, 2.0, 3.0, 7.0, 8.0, 9.0, 4.0, 5.0, 6.0][..3 * rows as usize]
        );
        assert_eq!(
            places.to_vec::<i32>().unwrap(),
            [1, 2, 0, 1, 2, 0, 0, 2, 1][..3 * rows as usize]
        );
        let (values, _) = part.topk(2, 1, true, true);
        assert_eq!(
            values.to_vec::<f32>().unwrap(),
            [3f32, 2.0, 9.0, 8.0, 6.0, 5.0][..2 * rows as usize]
        );
        assert_eq!(
            part.argsort(1, true).to_vec::<i32>().unwrap(),
            [0, 2, 1, 0, 2, 1, 1, 2, 0][..3 * rows as usize]
        );
    }
    let e = x.shrink_to((&n.bind(2).unwrap(), 3)).try_sort(0, false).unwrap_err().to_string();
    assert!(e.starts_with("sort: ") && e.contains("needs a number"), "{e}");
}

#[test]
fn host_weights_and_targets_are_checked() {
    let refused = |t: &Tensor, samples: usize, replacement: bool, text: &str| {
        let e = t.try_multinomial(samples, replacement).unwrap_err().to_string();
        assert!(e.starts_with("multinomial: ") && e.contains(text), "{e}");
    };
    refused(&Tensor::new([0f32, 0.0]), 1, true, "row 0 has 0 weights above zero");
    refused(&Tensor::new([[1f32, 1.0], [0.0, 0.0]]), 1, true, "row 1 has 0 weights above zero");
    refused(&Tensor::new([-1f32, 2.0]), 1, true, "the weight at 0 is -1");
    refused(&Tensor::new([1f32, f32::NAN]), 1, false, "the weight at 1 is NaN");
    refused(
        &Tensor::new([1f32, 0.0, 3.0]),
        3,
        false,
        "row 0 has 2 weights above zero, and 3 are drawn",
    );
    refused(&Tensor::zeros([3]), 1, true, "row 0 has 0 weights above zero");
    assert_eq!(Tensor::new([0f32, 2.0]).multinomial(3, true).to_vec::<i32>().unwrap(), [1, 1, 1]);

    let logits = Tensor::zeros([2, 3]);
    for bad in [3, -1, 7] {
        let target = Tensor::new([0, bad]);
        let e = logits.try_cross_entropy(&target, Reduction::Mean).unwrap_err().to_string();
        assert_eq!(
            e,
            format!("cross_entropy: the target at 1 is {bad}; expected a class from 0 to 2")
        );
        let e = logits.try_nll_loss(&target, Reduction::Mean).unwrap_err().to_string();
        assert!(e.starts_with("nll_loss: the target at 1"), "{e}");
        let e = logits
            .try_sparse_categorical_crossentropy(&target, Reduction::Mean)
            .unwrap_err()
            .to_string();
        assert!(e.starts_with("sparse_categorical_crossentropy: the target at 1"), "{e}");
        assert!(
            logits.try_cross_entropy(&target, CrossEntropy::new().ignore_index(bad as i64)).is_ok()
        );
    }
    assert!(logits.try_cross_entropy(&Tensor::new([0, -100]), Reduction::Mean).is_ok());
    assert!(logits.try_cross_entropy(&Tensor::full([2], 5i32), Reduction::Mean).is_err());
}
