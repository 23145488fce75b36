//! Three-dimensional layers, upsampling and normalized weights against PyTorch.

use super::{assert_finite_close, check, fixture};
use picograd::io::StateDict;
use picograd::nn::*;
use picograd::tensor::Interpolate;
use picograd::{Jit, Tensor};
use std::sync::LazyLock;

static ALL: LazyLock<StateDict> =
    LazyLock::new(|| fixture(include_bytes!("../fixtures/nn/layers_more.safetensors")));

#[track_caller]
fn layer(name: &str, layer: impl Layer) {
    check(&ALL, name, &layer, |x| vec![layer.forward(&x[0])]);
}

#[test]
fn volume_convolutions_match_pytorch() {
    layer("conv3d", Conv3d::new(2, 3, [3, 2, 1]).stride([1, 2, 1]).padding([1, 0, 0]));
    layer("conv3d_groups", Conv3d::new(4, 2, 2).groups(2).dilation([1, 1, 2]).bias(false));
    layer(
        "conv_transpose3d",
        ConvTranspose3d::new(2, 4, 2).groups(2).stride([2, 1, 2]).output_padding([1, 0, 0]),
    );
    layer("conv_transpose3d_pad", ConvTranspose3d::new(2, 2, 3).padding(1).dilation([2, 1, 1]));
    let wrong =
        Conv3d::new(2, 3, 2).try_forward(&Tensor::zeros([1, 2, 4, 4])).unwrap_err().to_string();
    assert_eq!(wrong, "Conv3d: expected [batch, 2, depth, height, width], got [1, 2, 4, 4]");
}

#[test]
fn upsampling_matches_pytorch() {
    layer("upsample_nearest", Upsample::scale(2.0));
    layer("upsample_size", Upsample::size([5, 3]));
    layer("upsample_linear", Upsample::scale(3.0).mode(Interpolate::Linear));
    layer("upsample_bilinear", Upsample::size([5, 7]).mode(Interpolate::Linear).align_corners());
    layer("upsample_trilinear", Upsample::scale([2.0, 1.0, 2.0]).mode(Interpolate::Linear));
    layer(
        "upsample_recompute",
        Upsample::scale(1.7).recompute_scale_factor().mode(Interpolate::Linear),
    );
    let e = |layer: Upsample, shape: &[usize]| {
        layer.try_forward(&Tensor::zeros(shape)).unwrap_err().to_string()
    };
    assert!(e(Upsample::scale(2.0), &[2, 3]).contains("expected [batch, channels, …]"));
    assert!(
        e(Upsample::size([2, 3]), &[1, 1, 4]).contains("2 sizes or factors for 1 spatial axes")
    );
    for factor in [f64::NAN, -1.0, 0.0, 1e30] {
        assert!(
            e(Upsample::scale(factor), &[1, 1, 4]).starts_with("Upsample: a factor of"),
            "{factor}"
        );
    }
    assert!(e(Upsample::scale(1.3), &[1, 1, 4]).contains("recompute_scale_factor()"));
}

#[test]
fn weight_norm_matches_pytorch() {
    layer("weight_norm", WeightNorm::new(Linear::new(3, 4)));
    layer("weight_norm_dim", WeightNorm::new(Conv2d::new(2, 3, 2)).dim(1));
    layer("weight_norm_all", WeightNorm::new(Conv1d::new(2, 3, 2).bias(false)).dim(None));
    let plain = Linear::new(3, 4);
    let before = plain.weight.copy();
    let norm = WeightNorm::new(plain);
    let x = Tensor::randn([5, 3]).realize().unwrap();
    let y = norm.forward(&x).realize().unwrap();
    let plain = norm.remove().unwrap();
    assert_finite_close("the weight", &plain.weight, &before, 1e-6);
    assert_finite_close("the output", &plain.forward(&x), &y, 1e-6);
}

#[test]
fn spectral_norm_matches_pytorch() {
    layer("spectral_norm", SpectralNorm::new(Linear::new(3, 4)));
    let norm = SpectralNorm::new(Conv2d::new(2, 3, 2).bias(false)).n_power_iterations(3);
    check(&ALL, "spectral_norm_conv", &norm, |x| vec![norm.forward(&x[0]), norm.forward(&x[1])]);
    layer("spectral_norm_transpose", SpectralNorm::new(ConvTranspose2d::new(2, 3, 2)));
    let norm = SpectralNorm::new(Linear::new(3, 4));
    norm.eval();
    layer("spectral_norm_eval", norm);
}

#[test]
fn spectral_norm_iterates_in_a_captured_function() {
    let weight = Tensor::new([[2.0f32, 1.0], [0.0, 1.5]]);
    let layers = [0, 1].map(|_| {
        let linear = Linear::new(2, 2).bias(false);
        linear.weight.assign(weight.copy()).unwrap();
        let norm = SpectralNorm::new(linear);
        norm.named_buffers()
            .iter()
            .for_each(|(_, t)| t.assign(Tensor::new([0.6f32, 0.8])).unwrap());
        norm
    });
    let x = Tensor::new([[1.0f32, -1.0]]);
    let mut captured = Jit::new(|x: Tensor| layers[1].try_forward(&x));
    for _ in 0..5 {
        let (a, b) = (layers[0].forward(&x), captured.call(x.clone()).unwrap());
        assert_finite_close("one call", &b, &a, 1e-6);
    }
    let buffers = |i: usize| {
        layers[i]
            .named_buffers()
            .iter()
            .map(|(_, t)| t.to_vec::<f32>().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(buffers(0), buffers(1));
}

/// Mean pools with options, and convolutions of one sample without a batch axis; the values are
/// those of PyTorch.
#[test]
fn mean_pool_options_and_single_samples_match_pytorch() {
    let x = Tensor::new([[[[1.0f32, 2.0], [3.0, 6.0]]]]);
    let y = AvgPool2d::new(2).stride(1).padding(1).exclude_padding().forward(&x);
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 1.5, 2.0, 2.0, 3.0, 4.0, 3.0, 4.5, 6.0]);
    assert_eq!(AvgPool2d::new(2).divisor_override(3).forward(&x).to_vec::<f32>().unwrap(), [4.0]);
    assert!(AvgPool1d::new(2).divisor_override(0).try_forward(&x).is_err());
    let x = Tensor::arange(0f32, 50.0, 1.0).reshape([2, 5, 5]);
    let (conv, back) = (Conv2d::new(2, 3, 3), ConvTranspose2d::new(2, 3, 3));
    for (one, many) in [
        (conv.forward(&x), conv.forward(&x.unsqueeze(0))),
        (back.forward(&x), back.forward(&x.unsqueeze(0))),
    ] {
        assert_eq!(one.to_vec::<f32>().unwrap(), many.squeeze(0).to_vec::<f32>().unwrap());
    }
}
