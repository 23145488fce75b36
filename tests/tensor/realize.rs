//! Realization: when values are computed, stored and replaced.

use super::check;
use picograd::Tensor;

#[test]
fn realize_replaces_only_the_graph() {
    let x = Tensor::arange(0, 6, 1).reshape([2, 3]) * 2;
    let (other, lazy) = (x.clone(), &x + 1);
    assert_eq!(format!("{x:?}"), "<Tensor i32 [2, 3] on CPU: Mul>");
    x.realize().unwrap();
    assert_eq!(format!("{other:?}"), "<Tensor i32 [2, 3] on CPU: Buffer>");
    check(&other, &[2, 3], &[0, 2, 4, 6, 8, 10]);
    check(&lazy, &[2, 3], &[1, 3, 5, 7, 9, 11]);
}

#[test]
fn to_moves_every_handle() {
    let x = Tensor::new([1.0f32, 2.0]).as_param();
    let (handle, before) = (x.clone(), &x * 1.0);
    x.square().sum(..).backward();
    x.to_("interp").unwrap();
    let here = Tensor::zeros([1]).device().as_str();
    assert_eq!([&x, &handle, &before].map(|t| t.device().as_str()), ["INTERP", "INTERP", here]);
    check(&before, &[2], &[1f32, 2.0]);
    assert!(x.is_param());
    check(&x.grad().unwrap(), &[2], &[2f32, 4.0]);
    (&x * 3.0).sum(..).backward();
    check(&x.grad().unwrap(), &[2], &[5f32, 7.0]);
    check(&handle.grad().unwrap(), &[2], &[5f32, 7.0]);
    assert!(x.to_("abacus").is_err());
    x.to_("INTERP").unwrap();
    check(&x, &[2], &[1f32, 2.0]);
}

#[test]
fn assign_replaces_the_value() {
    let x = Tensor::new([1f32, 2.0, 3.0]);
    x.assign(&x * 2.0).unwrap();
    check(&x, &[3], &[2f32, 4.0, 6.0]);
    x.assign(7).unwrap();
    check(&x, &[3], &[7f32, 7.0, 7.0]);
    let lazy = Tensor::zeros([2]);
    lazy.assign(Tensor::new([1, 2])).unwrap();
    check(&lazy, &[2], &[1f32, 2.0]);
    assert!(x.assign(Tensor::ones([2, 3])).is_err());
}

#[test]
fn to_copies_only_stored_values() {
    let x = Tensor::new([1, 2]);
    assert_eq!(x.to("CPU").uop(), x.uop());
    assert_eq!(format!("{:?}", x.to("NULL")), "<Tensor i32 [2] on NULL: Copy>");
    // A constant is not copied but created there.
    assert_eq!(format!("{:?}", Tensor::zeros([2]).to("NULL")), "<Tensor f32 [2] on NULL: Expand>");
}

#[test]
fn contiguous_and_detach_keep_values() {
    let x = Tensor::new([[1, 2], [3, 4]]);
    assert_eq!(x.contiguous().uop(), x.uop());
    check(&x.t().contiguous(), &[2, 2], &[1, 3, 2, 4]);
    check(&x.detach(), &[2, 2], &[1, 2, 3, 4]);
    assert_eq!(
        (x.size(-1), x.nbytes(), x.element_size(), x.is_floating_point()),
        (2, 16, 4, false)
    );
}
