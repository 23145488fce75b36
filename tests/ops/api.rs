//! Cases of statistics, special functions, histograms, indexed writes, vector products and images.

use crate::cases::How::{Cast, Exact, Once, Steps, Wide};
use crate::cases::{Case, cases};
use picograd::tensor::{
    Conv, GridMode, GridPadding, GridSample, Interpolate, MatrixNorm, Quantile, keepdim,
};
use picograd::{DType, Tensor};

const INF: f64 = f64::INFINITY;

fn sampled(x: &[Tensor], mode: GridMode, padding: GridPadding, align: bool) -> Tensor {
    let how = GridSample::new().mode(mode).padding(padding);
    x[0].grid_sample(&x[1], if align { how.align_corners() } else { how })
}

fn strided() -> Conv {
    Conv::new().dilation([1, 2]).padding([1, 0]).stride([2, 1])
}

pub const CASES: &[Case] = cases! {
    Wide(4.0), "expm1", |x| x[0].expm1();
    Wide(8.0), "erfinv", |x| x[0].erfinv();
    Wide(16.0), "lgamma", |x| x[0].lgamma();
    Wide(16.0), "digamma", |x| x[0].digamma();
    Once, "hypot", |x| x[0].hypot(&x[1]);
    Once, "softshrink", |x| x[0].softshrink(0.375);
    Exact, "hardshrink", |x| x[0].hardshrink(0.375);
    Wide(4.0), "tanhshrink", |x| x[0].tanhshrink();
    Exact, "threshold", |x| x[0].threshold(0.375, 2.0);
    Exact, "nan_to_num", |x| x[0].nan_to_num(1.5, Some(2.0), Some(-2.0));
    Wide(4.0), "norm.two", |x| x[0].norm(2.0, -1);
    Wide(4.0), "norm.one", |x| x[0].norm(1.0, -1);
    Wide(8.0), "norm.three", |x| x[0].norm(3.0, -1);
    Wide(8.0), "norm.half", |x| x[0].norm(0.5, -1);
    Exact, "norm.inf", |x| x[0].norm(INF, -1);
    Exact, "norm.ninf", |x| x[0].norm(-INF, -1);
    Exact, "norm.zero", |x| x[0].norm(0.0, -1);
    Wide(8.0), "norm.minus", |x| x[0].norm(-1.5, -1);
    Wide(4.0), "norm.all", |x| x[0].norm(2.0, ..);
    Wide(4.0), "norm.fro", |x| x[0].norm(2.0, keepdim([-2, -1]));
    Wide(4.0), "matrix_norm.fro", |x| x[0].matrix_norm(MatrixNorm::Frobenius, [-2, -1]);
    Wide(4.0), "matrix_norm.fro.axes", |x| x[0].matrix_norm(MatrixNorm::Frobenius, keepdim([2, 0]));
    Wide(64.0), "matrix_norm.nuc", |x| x[0].matrix_norm(MatrixNorm::Nuclear, [-2, -1]);
    Wide(64.0), "matrix_norm.nuc.axes", |x| x[0].matrix_norm(MatrixNorm::Nuclear, keepdim([2, 0]));
    Wide(4.0), "matrix_norm.one", |x| x[0].matrix_norm(1.0, [-2, -1]);
    Wide(4.0), "matrix_norm.one.axes", |x| x[0].matrix_norm(1.0, keepdim([2, 0]));
    Wide(64.0), "matrix_norm.two", |x| x[0].matrix_norm(2.0, [-2, -1]);
    Wide(64.0), "matrix_norm.two.axes", |x| x[0].matrix_norm(2.0, keepdim([2, 0]));
    Wide(4.0), "matrix_norm.inf", |x| x[0].matrix_norm(INF, [-2, -1]);
    Wide(4.0), "matrix_norm.inf.axes", |x| x[0].matrix_norm(INF, keepdim([2, 0]));
    Wide(4.0), "matrix_norm.minus_one", |x| x[0].matrix_norm(-1.0, [-2, -1]);
    Wide(4.0), "matrix_norm.minus_one.axes", |x| x[0].matrix_norm(-1.0, keepdim([2, 0]));
    Wide(64.0), "matrix_norm.minus_two", |x| x[0].matrix_norm(-2.0, [-2, -1]);
    Wide(64.0), "matrix_norm.minus_two.axes", |x| x[0].matrix_norm(-2.0, keepdim([2, 0]));
    Wide(4.0), "matrix_norm.minus_inf", |x| x[0].matrix_norm(-INF, [-2, -1]);
    Wide(4.0), "matrix_norm.minus_inf.axes", |x| x[0].matrix_norm(-INF, keepdim([2, 0]));
    Once, "nansum", |x| x[0].nansum(-1);
    Once, "nanmean", |x| x[0].nanmean(-1);
    Once, "nanmean.all", |x| x[0].nanmean(..);
    Exact, "count_nonzero", |x| x[0].count_nonzero(-1);
    Exact, "amax", |x| x[0].amax([0, -1]);
    Exact, "amin", |x| x[0].amin([0, -1]);
    Exact, "max_with_index.last", |x| x[0].max_with_index(-1);
    Exact, "max_with_index.keep", |x| x[0].max_with_index(keepdim(0));
    Exact, "max_with_index.all", |x| x[0].max_with_index(..);
    Exact, "min_with_index.last", |x| x[0].min_with_index(-1);
    Exact, "min_with_index.keep", |x| x[0].min_with_index(keepdim(0));
    Exact, "min_with_index.all", |x| x[0].min_with_index(..);
    Exact, "median.last", |x| x[0].median(-1);
    Exact, "median.keep", |x| x[0].median(keepdim(0));
    Exact, "median.all", |x| x[0].median(..);
    Exact, "kthvalue.last", |x| x[0].kthvalue(2, -1);
    Exact, "kthvalue.keep", |x| x[0].kthvalue(1, keepdim(0));
    Exact, "mode.last", |x| x[0].mode(-1);
    Exact, "mode.keep", |x| x[0].mode(keepdim(0));
    Wide(4.0), "quantile.linear", |x| x[0].quantile(0.3, -1, Quantile::Linear);
    Exact, "quantile.lower", |x| x[0].quantile(0.3, -1, Quantile::Lower);
    Exact, "quantile.higher", |x| x[0].quantile(0.3, -1, Quantile::Higher);
    Wide(4.0), "quantile.midpoint", |x| x[0].quantile(0.3, -1, Quantile::Midpoint);
    Exact, "quantile.nearest", |x| x[0].quantile(0.3, -1, Quantile::Nearest);
    Wide(4.0), "quantile.several", |x| x[0].quantile(&x[1], keepdim(0), Quantile::Linear);
    Wide(4.0), "quantile.all", |x| x[0].quantile(0.75, .., Quantile::Linear);
    Once, "diff", |x| x[0].diff(1, -1, None, None);
    Steps(4.0), "diff.twice", |x| x[0].diff(2, 0, None, None);
    Once, "diff.joined", |x| x[0].diff(1, -1, Some(&x[1]), Some(&x[2]));
    Exact, "unique", |x| x[0].unique(None);
    Exact, "bincount", |x| x[0].bincount(None, 0);
    Exact, "bincount.long", |x| x[0].bincount(None, 6);
    Once, "bincount.weights", |x| x[0].bincount(Some(&x[1]), 0).cast(x[1].dtype());
    Exact, "histc", |x| x[0].histc(4, -2.0, 2.0);
    Exact, "histc.own", |x| x[0].histc(5, 0.0, 0.0);
    Exact, "searchsorted.left", |x| x[0].searchsorted(&x[1], false, None);
    Exact, "searchsorted.right", |x| x[0].searchsorted(&x[1], true, None);
    Exact, "searchsorted.sorter.left", |x| x[0].searchsorted(&x[2], false, Some(&x[1]));
    Exact, "searchsorted.sorter.right", |x| x[0].searchsorted(&x[2], true, Some(&x[1]));
    Exact, "bucketize.left", |x| x[0].bucketize(&x[1], false);
    Exact, "bucketize.right", |x| x[0].bucketize(&x[1], true);
    Exact, "isin", |x| x[0].isin(&x[1]);
    Once, "index_add", |x| x[0].index_add(0, &x[1], &x[2], 1);
    Steps(4.0), "index_add.last", |x| x[0].index_add(-1, &x[1], &x[2], 2);
    Exact, "index_put", |x| x[0].index_put(&[&x[1], &x[2]], &x[3], false);
    Once, "index_put.add", |x| x[0].index_put(&[&x[1], &x[2]], &x[3], true);
    Exact, "index_put.mask", |x| x[0].index_put(&[&x[1]], &x[2], false);
    Exact, "masked_scatter", |x| x[0].masked_scatter(&x[1], &x[2]);
    Exact, "movedim", |x| x[0].movedim(0, -1);
    Exact, "movedim.two", |x| x[0].movedim([0, 1], [2, 0]);
    Exact, "narrow", |x| x[0].narrow(-1, 1, 2);
    Exact, "narrow.end", |x| x[0].narrow(0, -2, 2);
    Exact, "select", |x| x[0].select(-1, -2);
    Exact, "roll.two", |x| x[0].roll([2, -1], [0, 1]);
    Exact, "roll.flat", |x| x[0].roll(2, ());
    Cast, "bitcast.narrow", |x| x[0].bitcast(DType::U8);
    Cast, "bitcast.wide", |x| x[0].bitcast(DType::I64);
    Exact, "outer", |x| x[0].outer(&x[1]);
    Once, "trace", |x| x[0].trace();
    Wide(4.0), "cross", |x| x[0].cross(&x[1], -1);
    Wide(4.0), "cross.first", |x| x[0].cross(&x[1], 0);
    Exact, "kron", |x| x[0].kron(&x[1]);
    Wide(4.0), "tensordot.lists", |x| x[0].tensordot(&x[1], ([1, 2], [1, 0]));
    Wide(4.0), "tensordot.one", |x| x[0].tensordot(&x[1], 1);
    Wide(4.0), "tensordot.none", |x| x[0].tensordot(&x[1], 0);
    Wide(8.0), "tensordot.two", |x| x[0].tensordot(&x[1], 2);
    Wide(4.0), "cdist.two", |x| x[0].cdist(&x[1], 2.0);
    Wide(4.0), "cdist.one", |x| x[0].cdist(&x[1], 1.0);
    Wide(4.0), "cdist.inf", |x| x[0].cdist(&x[1], INF);
    Wide(8.0), "cdist.three", |x| x[0].cdist(&x[1], 3.0);
    Exact, "cdist.zero", |x| x[0].cdist(&x[1], 0.0);
    Exact, "pixel_shuffle", |x| x[0].pixel_shuffle(2);
    Exact, "pixel_unshuffle", |x| x[0].pixel_unshuffle(2);
    Exact, "unfold2d", |x| x[0].unfold2d([2, 2], Conv::new());
    Exact, "unfold2d.all", |x| x[0].unfold2d([3, 2], strided());
    Once, "fold2d", |x| x[0].fold2d([3, 3], 2, Conv::new());
    Once, "fold2d.all", |x| x[0].fold2d([4, 5], [3, 2], strided());
    Once, "fold2d.apart", |x| x[0].fold2d([5, 4], [1, 2], Conv::new().stride([2, 3]));
    Wide(8.0), "grid_sample.bilinear.zeros", |x|
        sampled(x, GridMode::Linear, GridPadding::Zeros, false);
    Wide(8.0), "grid_sample.bilinear.zeros.align", |x|
        sampled(x, GridMode::Linear, GridPadding::Zeros, true);
    Wide(8.0), "grid_sample.bilinear.border", |x|
        sampled(x, GridMode::Linear, GridPadding::Border, false);
    Wide(8.0), "grid_sample.bilinear.border.align", |x|
        sampled(x, GridMode::Linear, GridPadding::Border, true);
    Wide(8.0), "grid_sample.bilinear.reflection", |x|
        sampled(x, GridMode::Linear, GridPadding::Reflection, false);
    Wide(8.0), "grid_sample.bilinear.reflection.align", |x|
        sampled(x, GridMode::Linear, GridPadding::Reflection, true);
    Exact, "grid_sample.nearest.zeros", |x|
        sampled(x, GridMode::Nearest, GridPadding::Zeros, false);
    Exact, "grid_sample.nearest.zeros.align", |x|
        sampled(x, GridMode::Nearest, GridPadding::Zeros, true);
    Exact, "grid_sample.nearest.border", |x|
        sampled(x, GridMode::Nearest, GridPadding::Border, false);
    Exact, "grid_sample.nearest.border.align", |x|
        sampled(x, GridMode::Nearest, GridPadding::Border, true);
    Exact, "grid_sample.nearest.reflection", |x|
        sampled(x, GridMode::Nearest, GridPadding::Reflection, false);
    Exact, "grid_sample.nearest.reflection.align", |x|
        sampled(x, GridMode::Nearest, GridPadding::Reflection, true);
    Wide(16.0), "grid_sample.bicubic.zeros", |x|
        sampled(x, GridMode::Cubic, GridPadding::Zeros, false);
    Wide(16.0), "grid_sample.bicubic.zeros.align", |x|
        sampled(x, GridMode::Cubic, GridPadding::Zeros, true);
    Wide(16.0), "grid_sample.bicubic.border", |x|
        sampled(x, GridMode::Cubic, GridPadding::Border, false);
    Wide(16.0), "grid_sample.bicubic.border.align", |x|
        sampled(x, GridMode::Cubic, GridPadding::Border, true);
    Wide(16.0), "grid_sample.bicubic.reflection", |x|
        sampled(x, GridMode::Cubic, GridPadding::Reflection, false);
    Wide(16.0), "grid_sample.bicubic.reflection.align", |x|
        sampled(x, GridMode::Cubic, GridPadding::Reflection, true);
    Wide(8.0), "grid_sample.coarse.bilinear", |x|
        sampled(x, GridMode::Linear, GridPadding::Zeros, false);
    Exact, "grid_sample.coarse.nearest", |x|
        sampled(x, GridMode::Nearest, GridPadding::Zeros, false);
    Wide(16.0), "grid_sample.coarse.bicubic", |x|
        sampled(x, GridMode::Cubic, GridPadding::Zeros, false);
    Wide(8.0), "grid_sample.solid", |x| sampled(x, GridMode::Linear, GridPadding::Zeros, false);
    Wide(32.0), "interpolate.bicubic", |x| x[0].interpolate([3, 6], Interpolate::Cubic, false);
    Wide(32.0), "interpolate.bicubic.corners", |x|
        x[0].interpolate([3, 6], Interpolate::Cubic, true);
    Wide(32.0), "interpolate.bilinear.antialias", |x|
        x[0].interpolate([2, 3], Interpolate::LinearAntialias, false);
    Wide(32.0), "interpolate.bicubic.antialias", |x|
        x[0].interpolate([2, 3], Interpolate::CubicAntialias, false);
    Wide(32.0), "interpolate.bilinear.antialias.corners", |x|
        x[0].interpolate([2, 3], Interpolate::LinearAntialias, true);
    Wide(32.0), "interpolate.bicubic.antialias.corners", |x|
        x[0].interpolate([2, 3], Interpolate::CubicAntialias, true);
};
