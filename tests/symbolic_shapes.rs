//! Axes whose size is a variable: the same numbers as with numbers for sizes, and one set of kernels for all values.

use picograd::tensor::Attention;
use picograd::{Bound, DType, Tensor, Variable, exec};

const MAX: i64 = 9;

fn data(shape: &[usize], device: &str) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 16.0).collect();
    Tensor::new(values).reshape(shape).to(device).realize().unwrap()
}

fn bound(n: i64) -> Bound {
    Variable::new("n", 1, MAX).unwrap().bind(n).unwrap()
}

/// Both ways of cutting, by a variable and by its value.
fn agree(name: &str, device: &str, f: impl Fn(&dyn Fn(&Tensor) -> Tensor) -> Tensor) {
    let mut compiled = Vec::new();
    for n in [4, 1, 2, 7, MAX, 3] {
        let before = exec::counters().compiled;
        let symbolic = f(&|x| x.i(..bound(n)));
        let got = symbolic.to_vec::<f32>().unwrap();
        compiled.push(exec::counters().compiled - before);
        let numbers = f(&|x| x.i(..n));
        assert_eq!(symbolic.shape(), numbers.shape(), "{name} on {device} for {n}");
        let expected = numbers.to_vec::<f32>().unwrap();
        assert_eq!(got.len(), expected.len(), "{name} on {device} for {n}");
        for (a, b) in got.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{name} on {device} for {n}: {got:?} and {expected:?}");
        }
    }
    assert!(compiled[1..].iter().all(|c| *c == 0), "{name} on {device} was compiled again: {compiled:?}");
}

fn everywhere(name: &str, f: impl Fn(&dyn Fn(&Tensor) -> Tensor, &str) -> Tensor) {
    for device in ["CPU", "INTERP"] {
        agree(name, device, |cut| f(cut, device));
    }
}

#[test]
fn elementwise() {
    everywhere("add", |cut, d| cut(&data(&[12, 5], d)) * 2.0 + cut(&data(&[9, 5], d)));
    everywhere("one axis", |cut, d| cut(&data(&[9], d)).exp());
    everywhere("broadcast", |cut, d| cut(&data(&[9, 4], d)) + data(&[4], d) + data(&[1, 4], d));
    everywhere("product of both", |cut, d| cut(&data(&[9], d)).unsqueeze(1) * cut(&data(&[9], d)));
    everywhere("moved", |cut, d| cut(&data(&[9, 2, 6], d)).permute([2, 0, 1]).reshape([3, 2, 9, 2]).flip([0]).contiguous());
    everywhere("cast", |cut, d| cut(&data(&[9, 2], d)).cast(DType::I32).cast(DType::F32));
}

#[test]
fn reduces() {
    for axes in [vec![0isize], vec![1], vec![0, 1]] {
        everywhere("sum", |cut, d| cut(&data(&[9, 40], d)).sum(&axes[..]));
        everywhere("mean", |cut, d| cut(&data(&[9, 40], d)).mean(&axes[..]));
        everywhere("max", |cut, d| cut(&data(&[9, 40], d)).max(&axes[..]));
        everywhere("min", |cut, d| cut(&data(&[9, 40], d)).min(&axes[..]));
        everywhere("prod", |cut, d| cut(&data(&[9, 4], d)).prod(&axes[..]));
        everywhere("var", |cut, d| cut(&data(&[9, 40], d)).var(&axes[..], 0));
    }
    everywhere("argmax", |cut, d| cut(&data(&[9, 3], d)).argmax(0).cast(DType::F32));
    everywhere("long", |cut, d| cut(&data(&[9, 1 << 16], d)).sum(..));
}
