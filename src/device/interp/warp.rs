//! Matrix products of a warp, on the registers that hold the elements of each thread.

use crate::dtype::{Const, DType, Fma, Scalar};
use crate::ir::{Fragment, TensorCore};

/// The matrix product of the warp whose threads begin at `first`: C plus the exact products of A
/// and B in order along k, each rounded to C's dtype as it is added. Element `r` of thread `t` is
/// at `t * registers + r` of its matrix.
pub(super) fn product(core: &TensorCore, first: usize, out: &mut [u64], [a, b, c]: [&[u64]; 3]) {
    let [m, n, k] = core.dims;
    let matrix =
        |from: &[u64], f: &Fragment, scalar: Scalar, [rows, columns]: [usize; 2]| -> Vec<f32> {
            let dtype = DType { scalar, lanes: 1 };
            let mut all = vec![0.0; rows * columns];
            for thread in 0..core.threads() {
                for r in 0..f.registers() {
                    let bits = from[(first + thread) * f.registers() + r];
                    let value = Const::from_bits(bits, dtype).as_f64(dtype) as f32;
                    all[f.row.at(core, thread, r) * columns + f.column.at(core, thread, r)] =
                        if core.rounds { rounded(value) } else { value };
                }
            }
            all
        };
    let (a, b) = (matrix(a, &core.a, core.input, [m, k]), matrix(b, &core.b, core.input, [k, n]));
    for thread in 0..core.threads() {
        for r in 0..core.c.registers() {
            let (row, column) = (core.c.row.at(core, thread, r), core.c.column.at(core, thread, r));
            let place = (first + thread) * core.c.registers() + r;
            let start = f32::from_bits(c[place] as u32);
            let sum = (0..k).fold(start, |sum, i| a[row * k + i].fma(b[i * n + column], sum));
            out[place] = u64::from(sum.to_bits());
        }
    }
}

/// Rounds to 11 binary digits, ties away from zero.
fn rounded(x: f32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + (1 << 12)) & !((1 << 13) - 1)) } else { x }
}
