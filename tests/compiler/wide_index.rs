//! Views past 2³¹ elements: indices are 64-bit exactly when they must be.

use crate::common;
use picograd::compile::OptPolicy;
use picograd::dtype::DType;
use picograd::exec::ScheduleItem;
use picograd::ir::{Op, UOp};
use picograd::{Device, Tensor, compile};

/// The dtypes of the index arithmetic of a tensor's kernels.
fn index_widths(t: &Tensor, device: &str) -> Vec<DType> {
    let device = Device::get(device).unwrap();
    let mut widths: Vec<DType> = Vec::new();
    for item in t.schedule().unwrap() {
        let ScheduleItem::Kernel { ast, .. } = item else { continue };
        let c = compile::compiled(&ast, &device).unwrap();
        widths.extend(
            c.program.uops.iter().filter(|u| u.op() == Op::Index).map(|u: &UOp| u.src()[1].dtype()),
        );
    }
    widths.sort();
    widths.dedup();
    widths
}

/// Three billion elements over a buffer of three. Only a few are read, so that little is computed.
#[test]
fn views_of_three_billion_elements_are_exact() {
    let rows = 1_000_000_000usize;
    let x = Tensor::new([1i32, 2, 3]).to("INTERP");
    let huge = x.reshape([1, 3]).expand([rows, 3]).reshape([rows * 3]);
    assert_eq!(huge.numel(), 3_000_000_000);
    for start in [0usize, 1_499_999_998, 2_147_483_646, 2_999_999_993] {
        let expected: Vec<i32> = (start..start + 7).map(|i| (i % 3) as i32 + 1).collect();
        let got = huge.shrink(&[(start, start + 7)]).to_vec::<i32>().unwrap();
        assert_eq!(got, expected, "from {start}");
    }
    // Index values past 32 bits, on every device and without Opts.
    for device in common::devices() {
        let device = device.as_str();
        let at = Tensor::arange(0i64, 3_000_000_000, 1)
            .to(device)
            .shrink(&[(2_999_999_990, 2_999_999_999)]);
        let got =
            compile::with_opt_policy(OptPolicy::Nothing, || (&at * 2).to_vec::<i64>()).unwrap();
        assert_eq!(
            got,
            (2_999_999_990..2_999_999_999i64).map(|i| i * 2).collect::<Vec<_>>(),
            "{device}"
        );
    }
}

#[test]
fn indices_are_wide_only_where_needed() {
    let small = Tensor::new([1.0f32; 64]);
    assert_eq!(index_widths(&(&small + 1.0), "INTERP"), [DType::I32]);
    // A store past 2³¹ elements, lowered for the device that runs nothing.
    let huge = small.to("NULL").reshape([64, 1]).expand([64, 50_000_000]) + 1.0;
    assert_eq!(index_widths(&huge, "NULL"), [DType::I64]);
}
