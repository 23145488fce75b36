//! What tests on every device share: which devices there are, tensors on them from values, and the comparison of values bit by bit.
#![allow(dead_code)] // Each test uses some of it.

use picograd::dtype::{Const, DType, write};
use picograd::ir::UOp;
use picograd::reference::{self, Value};
use picograd::runtime::Buffer;
use picograd::{Device, Tensor};

/// Every device that computes and is there. A new kind of device joins by being in the registry.
pub fn devices() -> Vec<String> {
    let computes = Device::list().into_iter().filter(|(name, _)| name != "NULL");
    let there = computes.filter(|(name, found)| found.as_ref().inspect_err(|e| eprintln!("skipped on {name}: {e}")).is_ok());
    there.map(|(name, _)| name).collect()
}

/// Values as the bytes of a buffer.
pub fn bytes(values: &[Const], dtype: DType) -> Vec<u8> {
    let mut out = vec![0; values.len() * dtype.itemsize()];
    for (c, place) in values.iter().zip(out.chunks_exact_mut(dtype.itemsize())) {
        write(*c, dtype, place);
    }
    out
}

/// A tensor that reads its values from memory of the device, so that no rule can know them.
pub fn stored(values: &[Const], dtype: DType, shape: &[usize], device: &str) -> Tensor {
    let t = Tensor::from_bytes(&bytes(values, dtype), dtype, shape).to(device);
    if values.is_empty() { t } else { t.realize().unwrap() }
}

/// A literal of rank 0, which rules do know.
pub fn literal(value: Const, dtype: DType, device: &str) -> Tensor {
    Tensor::from_uop(UOp::constant(value, dtype), Device::get(device).unwrap().name().clone())
}

/// What the graph evaluator makes of tensors that are not computed yet.
pub fn evaluated(tensors: &[Tensor]) -> Vec<Vec<Const>> {
    let roots: Vec<UOp> = tensors.iter().map(|t| t.uop()).collect();
    let values = reference::evaluate(&roots, &|s| Buffer::of(s).read().unwrap());
    values.into_iter().map(|v| v.data).collect()
}

/// What the device makes of a tensor.
pub fn computed(t: &Tensor) -> Vec<Const> {
    Value::from_bytes(&t.to_bytes().unwrap(), t.dtype()).data
}

/// The first places where two lists differ, with what was expected and what came; NaNs are all alike, zeros are not.
pub fn differences(expected: &[Const], got: &[Const]) -> Vec<(usize, Const, Const)> {
    assert_eq!(expected.len(), got.len(), "the number of elements");
    expected.iter().zip(got).enumerate().filter(|(_, (e, g))| e != g).map(|(i, (e, g))| (i, *e, *g)).take(4).collect()
}
