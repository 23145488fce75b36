//! Winograd convolution F(4 × 4, 3 × 3): 36 products per tile of 16 outputs instead of 144.
//!
//! Tiles of the input and of the weight are transformed to 6 × 6, multiplied elementwise, summed
//! over channels and transformed to 4 × 4. The three intermediates are stored. Transformed values
//! are up to a hundred times the originals, so about two decimal digits of `f32` are lost, and one
//! infinite input makes its tile NaN.

use super::conv::{Window, resize_axis, windows};
use super::matmul::sum_of_products;
use crate::dtype::sum_acc;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::broadcast::{Operand, promote_operands};

/// Outputs along each side of a tile.
const TILE: usize = 4;

/// Input transform.
const INPUT: [[f64; 6]; 6] = [
    [4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
    [0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
    [0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
    [0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
    [0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
    [0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
];
/// Weight transform, times 24.
const WEIGHT: [[f64; 3]; 6] = [
    [6.0, 0.0, 0.0],
    [-4.0, -4.0, -4.0],
    [-4.0, 4.0, -4.0],
    [1.0, 2.0, 4.0],
    [1.0, -2.0, 4.0],
    [0.0, 0.0, 24.0],
];
/// Output transform.
const OUTPUT: [[f64; 6]; 4] = [
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    [0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
    [0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
    [0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
];

/// Returns true if the method applies to these windows and tensors.
pub(super) fn supports(x: &Tensor, weight: &Tensor, list: &[Window]) -> bool {
    let three = |w: &Window| *w == Window { kernel: 3, stride: 1, dilation: 1 };
    list.len() == 2
        && list.iter().all(three)
        && x.dtype().is_float()
        && weight.dtype().is_float()
        && !x.device().is_multi_device()
}

/// Convolves a padded `[batch, channels, h, w]` with `[outputs, channels / groups, 3, 3]` to
/// `[batch, outputs, h - 2, w - 2]`.
pub(super) fn winograd(x: &Tensor, weight: &Tensor, groups: usize) -> Result<Tensor> {
    let dtype = promote_operands(&[Operand::from(x), Operand::from(weight)]);
    let acc = sum_acc(dtype);
    let (xs, ws) = (x.dims(), weight.dims());
    let (batch, channels, outputs) = (xs[0], ws[1], ws[0] / groups);
    let window = Window { kernel: 3, stride: 1, dilation: 1 };
    let (rows, columns) = (window.count(xs[2])?, window.count(xs[3])?);
    let (down, across) = (rows.div_ceil(TILE), columns.div_ceil(TILE));
    // The last tiles may exceed the axis.
    let x =
        resize_axis(&resize_axis(x, 2, down * TILE + 2)?, 3, across * TILE + 2)?.try_cast(acc)?;
    let tiles = windows(&x, &[Window { kernel: TILE + 2, stride: TILE, dilation: 1 }; 2])?;
    let tiles = transform(&tiles, &INPUT, 1.0)?;
    let weight = transform(&weight.try_cast(acc)?, &WEIGHT, 1.0 / 24.0)?;
    // [batch, groups, 1, down, across, 6, 6, channels] · [groups, outputs, 1, 1, 6, 6, channels]
    let tiles = tiles
        .shaped([batch, groups, 1, channels, down, across, 6, 6])?
        .permuted([0, 1, 2, 4, 5, 6, 7, 3])?
        .contiguous();
    let weight = weight
        .shaped([groups, outputs, channels, 1, 1, 6, 6])?
        .permuted([0, 1, 3, 4, 5, 6, 2])?
        .contiguous();
    let products = sum_of_products(&tiles, &weight, 1)?.contiguous();
    transform(&products, &OUTPUT, 1.0)?
        .permuted([0, 1, 2, 3, 5, 4, 6])?
        .shaped([batch, ws[0], down * TILE, across * TILE])?
        .slice_axis(2, 0, rows)?
        .slice_axis(3, 0, columns)?
        .try_cast(dtype)
}

/// `m · x · mᵀ · scale²` for the matrices of the last two axes.
fn transform<const R: usize, const C: usize>(
    x: &Tensor,
    m: &[[f64; C]; R],
    scale: f64,
) -> Result<Tensor> {
    let m = Tensor::new(m.map(|row| row.map(|v| v * scale)))
        .try_cast(x.dtype())?
        .try_to(x.device().as_str())?;
    m.try_matmul(x)?.try_matmul(&m.try_transpose(0, 1)?)
}
