//! Cases of movement, gather, scatter and creation.

use crate::cases::How::{Cast, Exact, Once, Steps};
use crate::cases::{Case, cases};
use picograd::Tensor;
use picograd::tensor::{NewAxis, PadMode, Scatter, step};

const PAD: &[(usize, usize)] = &[(1, 0), (2, 1)];

/// A copy that an assignment may change.
fn own(x: &Tensor) -> Tensor {
    x.contiguous()
}

pub const CASES: &[Case] = cases! {
    Exact, "reshape", |x|
        if x[0].numel() == 0 { x[0].reshape([3, 0]) } else { x[0].reshape([3, -1]) };
    Exact, "view", |x| x[0].view(-1);
    Exact, "expand", |x| x[0].expand([2, 4, 3]);
    Exact, "permute", |x| x[0].permute([2, 0, 1]);
    Exact, "transpose", |x| x[0].transpose(0, -1);
    Exact, "t", |x| x[0].t();
    Exact, "pad", |x| x[0].pad(PAD);
    Exact, "pad_with", |x| x[0].pad_with(PAD, 1);
    Exact, "pad_mode.reflect", |x| x[0].pad_mode(PAD, PadMode::Reflect);
    Exact, "pad_mode.replicate", |x| x[0].pad_mode(&[(1, 3), (2, 1)], PadMode::Replicate);
    Exact, "pad_mode.circular", |x| x[0].pad_mode(PAD, PadMode::Circular);
    Exact, "pad_to", |x| x[0].pad_to([4, 4]);
    Exact, "shrink", |x| x[0].shrink(&[(1, 2), (0, 2), (0, 2)][..x[0].ndim()]);
    Exact, "shrink_to", |x| x[0].shrink_to([1, 2]);
    Exact, "flip", |x| x[0].flip(-1);
    Exact, "flip.all", |x| x[0].flip(..);
    Exact, "squeeze", |x| x[0].squeeze(..);
    Exact, "squeeze.1", |x| x[0].squeeze(1);
    Exact, "unsqueeze", |x| x[0].unsqueeze(-1);
    Exact, "flatten", |x| x[0].flatten(1, -1);
    Exact, "unflatten", |x| x[0].unflatten(1, [2, -1]);
    Exact, "cat", |x| Tensor::cat(x, 0);
    Exact, "cat.last", |x| Tensor::cat(x, -1);
    Exact, "stack", |x| Tensor::stack(x, 1);
    Exact, "repeat", |x| x[0].repeat([2, 1, 2]);
    Exact, "repeat_interleave", |x| x[0].repeat_interleave(2, -1);
    Exact, "split", |x| x[0].split(2, -1);
    Exact, "split.sizes", |x| x[0].split([1, 3], 0);
    Exact, "chunk", |x| x[0].chunk(2, 0);
    Exact, "roll", |x| x[0].roll(2, -1);
    Exact, "roll.back", |x| x[0].roll(-1, 0);
    Exact, "diagonal", |x| x[0].diagonal(1, 0, 1);
    Exact, "diagonal.below", |x| x[0].diagonal(-1, -2, -1);
    Exact, "diag", |x| x[0].diag();
    Exact, "unfold", |x| x[0].unfold(0, 3, 2);
    Exact, "rearrange", |x| x[0].rearrange("a (b c) d -> a b d c", &[("c", 3)]);
    Exact, "rearrange.join", |x| x[0].rearrange("a b c -> b (a c)", &[]);
    Exact, "tril", |x| x[0].tril(0);
    Exact, "tril.up", |x| x[0].tril(1);
    Exact, "triu", |x| x[0].triu(0);
    Exact, "triu.down", |x| x[0].triu(-1);
    Exact, "meshgrid", |x| Tensor::meshgrid(x);
    Exact, "one_hot", |x| x[0].one_hot(4);
    Exact, "full_like", |x| x[0].full_like(1);
    Exact, "const_like", |x| x[0].const_like(1);
    Exact, "copy", |x| x[0].copy();
    Exact, "zeros_like", |x| x[0].zeros_like();
    Exact, "ones_like", |x| x[0].ones_like();
    Exact, "contiguous", |x| x[0].t().contiguous();
    Exact, "contiguous_backward", |x| x[0].contiguous_backward() * 2;
    Once, "detach", |x| x[0].detach() * &x[0];
    Exact, "sequential", |x| x[0].sequential(&[&Tensor::relu, &|x| x * 2]);
    Exact, "to", |x| x[0].to("INTERP");
    Cast, "zeros", |_| Tensor::zeros([2, 3]);
    Cast, "ones", |_| Tensor::ones([2, 3]);
    Cast, "full", |_| Tensor::full([2, 3], 2.5f32);
    Cast, "arange", |_|
        vec![Tensor::arange(1, 8, 2), Tensor::arange(5, -3, -2), Tensor::arange(0.5f32, 3.0, 0.5)];
    Once, "linspace", |_|
        vec![
            Tensor::linspace(-1.0, 2.0, 5),
            Tensor::linspace(3.0, 1.0, 4),
            Tensor::linspace(2.0, 5.0, 1),
        ];
    Cast, "eye", |_| vec![Tensor::eye(2, 3), Tensor::eye(3, 3)];

    Exact, "i.view", |x| x[0].i((0, 1..3, -1));
    Exact, "i.steps", |x| x[0].i((.., step(0..3, 2)));
    Exact, "i.new", |x| x[0].i((.., NewAxis, -2..));
    Exact, "i.tensor", |x| x[0].i(&x[1]);
    Exact, "i.pair", |x| x[0].i((&x[1], 0..3, &x[2]));
    Exact, "i.mask", |x| x[0].i(&x[1]);
    Exact, "set", |x| { let y = own(&x[0]); y.set((1.., 0), &x[1]).unwrap(); y };
    Exact, "set.tensor", |x| { let y = own(&x[0]); y.set(&x[1], &x[2]).unwrap(); y };
    Exact, "gather", |x| x[0].gather(0, &x[1]);
    Exact, "gather.last", |x| x[0].gather(-1, &x[1]);
    Exact, "index_select", |x| x[0].index_select(1, &x[1]);
    Exact, "scatter", |x| x[0].scatter(0, &x[1], &x[2]);
    Exact, "scatter.value", |x| x[0].scatter(1, &x[1], 1);
    Once, "scatter_reduce.sum", |x| x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Sum, true);
    Once, "scatter_reduce.sum.alone", |x| x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Sum, false);
    Once, "scatter_reduce.prod", |x| x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Prod, true);
    Once, "scatter_reduce.prod.alone", |x|
        x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Prod, false);
    Steps(2.0), "scatter_reduce.mean", |x|
        x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Mean, true);
    Steps(2.0), "scatter_reduce.mean.alone", |x|
        x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Mean, false);
    Exact, "scatter_reduce.amax", |x| x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Amax, true);
    Exact, "scatter_reduce.amax.alone", |x|
        x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Amax, false);
    Exact, "scatter_reduce.amin", |x| x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Amin, true);
    Exact, "scatter_reduce.amin.alone", |x|
        x[0].scatter_reduce(0, &x[1], &x[2], Scatter::Amin, false);
    Exact, "nonzero", |x| x[0].nonzero(None);
    Exact, "masked_select", |x| x[0].masked_select(&x[1], None);
};
