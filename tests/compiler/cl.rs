//! The device `CL` apart from arithmetic, which the device tests cover: offsets, order, copies
//! and limits.

use crate::common::kernels;
use picograd::target::Target;
use picograd::testing::is_available;
use picograd::{DType, Device, Error, Tensor, compile};

fn ramp(n: i64) -> Tensor {
    Tensor::arange(0, n, 1)
}

#[test]
fn unaligned_buffers_compute() {
    if !is_available("CL") {
        return;
    }
    for dtype in [DType::U8, DType::F16, DType::I32, DType::F64] {
        let x = ramp(100).cast(dtype).to("CL").realize().unwrap();
        for start in [1, 3, 17, 64, 99] {
            let part = x.shrink(&[(start, 100)]).realize().unwrap();
            let got = (&part + 1).cast(DType::I32).to_vec::<i32>().unwrap();
            assert_eq!(got, (start as i32 + 1..101).collect::<Vec<_>>(), "{dtype} from {start} on");
            assert_eq!(
                part.to("CPU").cast(DType::I32).to_vec::<i32>().unwrap(),
                (start as i32..100).collect::<Vec<_>>()
            );
        }
    }
}

/// Only readers of a result wait for its kernel, and freed memory goes to later kernels.
#[test]
fn kernels_run_in_order() {
    if !is_available("CL") {
        return;
    }
    let mut x = Tensor::zeros([1000]).to("CL").realize().unwrap();
    for _ in 0..50 {
        x = (&x * 2.0 + 1.0).modulo(1021.0).realize().unwrap();
    }
    let expected = (0..50).fold(0.0f32, |x, _| (x * 2.0 + 1.0) % 1021.0);
    assert_eq!(x.to_vec::<f32>().unwrap(), vec![expected; 1000]);
}

#[test]
fn copies_between_devices_keep_values() {
    if !is_available("CL") {
        return;
    }
    let x = ramp(1000).realize().unwrap();
    let back = (x.to("CL") * 3).to("INTERP").realize().unwrap();
    assert_eq!(
        (back + 1).to("CL").to_vec::<i64>().unwrap(),
        (0..1000).map(|i| i * 3 + 1).collect::<Vec<_>>()
    );
}

#[test]
fn a_missing_device_is_an_error() {
    if !is_available("CL") {
        return;
    }
    let e = Device::get("cl:99").unwrap_err().to_string();
    assert!(e.contains("there is no CL:99: OpenCL has "), "{e}");
    let e =
        Tensor::zeros(&[10_000_000_000_000usize][..]).to("CL").contiguous().realize().unwrap_err();
    assert!(
        matches!(
            &e,
            Error::OutOfMemory { device, asked: 40_000_000_000_000, .. } if device == "CL"
        ),
        "{e}"
    );
    assert_eq!((Tensor::ones([3]).to("CL") + 1.0).to_vec::<f32>().unwrap(), [2.0; 3]);
}

/// f32 cannot represent the number.
#[test]
fn no_double_precision_is_an_error() {
    let without = Target::opencl().without_f64();
    let x = Tensor::new([1.0f32, 2.0]).realize().unwrap();
    let inside = (x.cast(DType::F64) / 3.0).cast(DType::F32);
    for t in [&inside, &x.cast(DType::F64)] {
        let e = compile::lowered(&kernels(t)[0], &without).unwrap_err().to_string();
        assert!(e.contains("does not compute in f64"), "{e}");
        compile::lowered(&kernels(t)[0], &Target::opencl()).unwrap();
    }
    compile::lowered(&kernels(&(&x + 1.0))[0], &without).unwrap();
}

/// A value computed on one device and read on another is copied.
#[test]
fn graphs_over_two_devices_compute() {
    if !is_available("CL") {
        return;
    }
    let x = Tensor::new([1.0f32, 2.0, 3.0]).to("CL").realize().unwrap().as_param();
    let y = x.to("INTERP");
    let w = Tensor::new([2.0f32, 3.0, 4.0]).to("INTERP");
    (&y * &w).sum(..).backward();
    let g = x.grad().unwrap();
    Tensor::realize_many(&[&y.detach(), &g]).unwrap();
    assert_eq!(
        (y.to_vec::<f32>().unwrap(), g.to_vec::<f32>().unwrap()),
        (vec![1.0, 2.0, 3.0], vec![2.0, 3.0, 4.0])
    );
    // Equal graphs without inputs are one node on all devices.
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    let on = |device: &str| unsafe {
        Tensor::from_uop_unchecked(
            Tensor::arange(0i64, 5, 1).uop(),
            Device::get(device).unwrap().name().clone(),
        )
    };
    let (a, b, c) = (on("CL"), on("INTERP"), on("INTERP") * Tensor::new([3i64; 5]).to("INTERP"));
    Tensor::realize_many(&[&a, &b, &c]).unwrap();
    assert_eq!((&a + &a).to_vec::<i64>().unwrap(), [0, 2, 4, 6, 8]);
    assert_eq!(
        ((&b + &b).to_vec::<i64>().unwrap(), c.to_vec::<i64>().unwrap()),
        (vec![0, 2, 4, 6, 8], vec![0, 3, 6, 9, 12])
    );
}
