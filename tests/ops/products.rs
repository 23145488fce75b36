//! Cases of matmul, einsum, convolution, attention and matrix factorization.

use crate::cases::How::{Exact, Once, Steps, Wide};
use crate::cases::{Case, cases};
use picograd::Tensor;
use picograd::tensor::{Attention, Conv, Interpolate, Pool};

/// The factors of QR with positive signs, because signs are not unique.
fn qr(x: &Tensor) -> (Tensor, Tensor) {
    let (q, r) = x.qr();
    let s = r.diagonal(0, -2, -1).sign().detach();
    (q * s.unsqueeze(-2), r * s.unsqueeze(-1))
}

fn attend(x: &[Tensor], how: Attention) -> Tensor {
    x[0].scaled_dot_product_attention(&x[1], &x[2], how)
}

pub const CASES: &[Case] = cases! {
    Once, "matmul", |x| x[0].matmul(&x[1]);
    Once, "dot", |x| x[0].dot(&x[1]);
    Steps(8.0), "linear", |x| x[0].linear(&x[1], Some(&x[2]));
    Once, "linear.bare", |x| x[0].linear(&x[1], None);
    Once, "einsum.product", |x| Tensor::einsum("ij,jk->ik", &[&x[0], &x[1]]);
    Once, "einsum.trace", |x| Tensor::einsum("ii", &[&x[0]]);
    Exact, "einsum.turn", |x| Tensor::einsum("ij->ji", &[&x[0]]);
    Once, "einsum.batch", |x| Tensor::einsum("bij,bkj->bik", &[&x[0], &x[1]]);
    Once, "einsum.dots", |x| Tensor::einsum("...i,...i->...", &[&x[0], &x[1]]);
    Steps(32.0), "einsum.three", |x| Tensor::einsum("i,ij,j->", &[&x[0], &x[1], &x[2]]);
    Once, "conv2d", |x| x[0].conv2d(&x[1], Conv::new());
    Steps(8.0), "conv2d.bias", |x| x[0].conv2d(&x[1], Conv::new().stride(2).padding(1).bias(&x[2]));
    Once, "conv2d.dilation", |x| x[0].conv2d(&x[1], Conv::new().dilation(2).padding([1, 2]));
    Once, "conv2d.groups", |x| x[0].conv2d(&x[1], Conv::new().groups(2));
    Once, "conv2d.one", |x| x[0].conv2d(&x[1], Conv::new().stride(2).padding(1));
    Once, "conv2d.three", |x| x[0].conv2d(&x[1], Conv::new());
    Once, "conv_transpose2d", |x| x[0].conv_transpose2d(&x[1], Conv::new());
    Steps(8.0), "conv_transpose2d.bias", |x|
        x[0].conv_transpose2d(
            &x[1],
            Conv::new().stride(2).padding(1).output_padding(1).bias(&x[2]),
        );
    Once, "conv_transpose2d.dilation", |x| x[0].conv_transpose2d(&x[1], Conv::new().dilation(2));
    Once, "conv_transpose2d.groups", |x|
        x[0].conv_transpose2d(&x[1], Conv::new().groups(2).stride([2, 1]));
    Once, "conv_transpose2d.one", |x| x[0].conv_transpose2d(&x[1], Conv::new().stride(2));
    Exact, "max_pool2d", |x| x[0].max_pool2d(2, Pool::new());
    Exact, "max_pool2d.overlap", |x| x[0].max_pool2d(3, Pool::new().stride(1).padding(1));
    Exact, "max_pool2d.dilation", |x|
        x[0].max_pool2d(2, Pool::new().stride([1, 2]).dilation([2, 1]));
    Exact, "max_pool2d.ceil", |x| x[0].max_pool2d(2, Pool::new().ceil_mode());
    Exact, "max_pool2d_with_indices", |x|
        x[0].max_pool2d_with_indices(2, Pool::new().stride(1).padding(1));
    Exact, "max_unpool2d", |x| x[0].max_unpool2d(&x[1], 2, Pool::new(), None);
    Exact, "max_unpool2d.size", |x| x[0].max_unpool2d(&x[1], 2, Pool::new(), Some([5, 4]));
    Once, "avg_pool2d", |x| x[0].avg_pool2d(2, Pool::new());
    Wide(4.0), "avg_pool2d.padding", |x| x[0].avg_pool2d(3, Pool::new().stride(1).padding(1));
    Wide(4.0), "avg_pool2d.without", |x|
        x[0].avg_pool2d(3, Pool::new().stride(2).padding(1).exclude_padding());
    Once, "avg_pool2d.ceil", |x| x[0].avg_pool2d(2, Pool::new().ceil_mode());
    Exact, "interpolate.nearest", |x| x[0].interpolate([3, 6], Interpolate::Nearest, false);
    Exact, "interpolate.exact", |x| x[0].interpolate([3, 6], Interpolate::NearestExact, false);
    Wide(8.0), "interpolate.linear", |x| x[0].interpolate(5, Interpolate::Linear, false);
    Wide(8.0), "interpolate.bilinear", |x| x[0].interpolate([3, 6], Interpolate::Linear, false);
    Wide(8.0), "interpolate.corners", |x| x[0].interpolate([3, 6], Interpolate::Linear, true);
    Steps(8.0), "scaled_dot_product_attention", |x| attend(x, Attention::new());
    Steps(8.0), "scaled_dot_product_attention.causal", |x| attend(x, Attention::new().causal());
    Steps(8.0), "scaled_dot_product_attention.scale", |x| attend(x, Attention::new().scale(0.25));
    Steps(8.0), "scaled_dot_product_attention.seen", |x| attend(x, Attention::new().mask(&x[3]));
    Steps(8.0), "scaled_dot_product_attention.added", |x| attend(x, Attention::new().mask(&x[3]));
    Steps(8.0), "scaled_dot_product_attention.grouped", |x| attend(x, Attention::new().grouped());
    Wide(32.0), "qr", |x| qr(&x[0]);
    Wide(64.0), "svd", |x| { let (u, s, v) = x[0].svd(); (u.abs(), s, v.abs()) };
    Wide(64.0), "newton_schulz", |x| x[0].newton_schulz(2, (3.4445, -4.775, 2.0315), 1e-7);
};
