//! Bitcasts between all dtypes, against the same bytes on the host.

use crate::common::devices;
use picograd::testing::lacks;
use picograd::{DType, Tensor};

/// Bytes that cover every value, without a pattern that repeats at the width of a dtype.
fn bytes(n: usize) -> Vec<u8> {
    (0..n as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ i as u8).collect()
}

#[test]
fn every_pair_of_dtypes_shares_its_bytes() {
    let numbers: Vec<DType> = DType::ALL.iter().copied().filter(|d| !d.is_bool()).collect();
    let mut checked = 0;
    for device in devices() {
        for &from in &numbers {
            let data = bytes(3 * 5 * 8);
            let count = data.len() / from.itemsize();
            let x = Tensor::from_bytes(&data, from, [3, count / 3]).to(&device).realize().unwrap();
            let mut all = Vec::new();
            for &to in &numbers {
                if lacks(&device, [from, to]) {
                    continue;
                }
                let y = x.bitcast(to);
                assert_eq!(y.shape(), [3, 40 / to.itemsize()], "{from} to {to}");
                all.push((to, y));
            }
            all.retain(|(_, y)| !lacks(&device, y.uop().toposort().iter().map(|u| u.dtype())));
            Tensor::realize_many(&all.iter().map(|(_, y)| y).collect::<Vec<_>>()).unwrap();
            for (to, y) in all {
                // Float kernels may change the payload of a NaN; integers keep every bit.
                let (got, dtype) = (y.to_bytes().unwrap(), to);
                let same = |i: usize| {
                    let (a, b) = (
                        &got[i * dtype.itemsize()..][..dtype.itemsize()],
                        &data[i * dtype.itemsize()..][..dtype.itemsize()],
                    );
                    a == b || dtype.is_float() && is_nan(a, dtype) && is_nan(b, dtype)
                };
                let wrong = (0..got.len() / dtype.itemsize()).find(|&i| !same(i));
                assert_eq!(wrong, None, "{from} to {to} on {device}");
                checked += 1;
            }
        }
    }
    assert!(checked >= numbers.len() * numbers.len(), "only {checked} pairs were checked");
}

fn is_nan(bytes: &[u8], dtype: DType) -> bool {
    picograd::compiler::dtype::read(bytes, dtype).as_f64(dtype).is_nan()
}

#[test]
fn bitcast_fuses_with_what_uses_it() {
    let x = Tensor::from_bytes(&bytes(64), DType::U8, [16, 4]).realize().unwrap();
    let y = x.bitcast(DType::U32).rshift(3) + 1;
    assert_eq!(y.schedule().unwrap().len(), 1);
    let y = (x.bitcast(DType::U16) + 1).bitcast(DType::U8) + 1;
    assert_eq!(y.schedule().unwrap().len(), 1);
}

#[test]
fn misuse_errors_name_the_fix() {
    let x = Tensor::from_bytes(&bytes(6), DType::U8, [2, 3]);
    let said = |r: picograd::error::Result<Tensor>| r.unwrap_err().to_string();
    assert_eq!(
        said(x.try_bitcast(DType::U16)),
        "bitcast: u8 to u16 requires a multiple of 2 as the last size, got [2, 3]"
    );
    assert!(said(Tensor::new(1.0f32).try_bitcast(DType::U8)).contains("reshape to [1]"));
    assert!(said(x.try_bitcast(DType::BOOL)).contains("use cast"));
    assert_eq!(Tensor::from_bytes(&[], DType::U8, [0, 4]).bitcast(DType::F32).shape(), [0, 1]);
    assert_eq!(Tensor::from_bytes(&[], DType::F32, [2, 0]).bitcast(DType::U8).shape(), [2, 0]);
    // A bitcast has no gradient.
    assert!(!Tensor::new([1.0f32, 2.0]).as_param().bitcast(DType::F64).requires_grad());
}
