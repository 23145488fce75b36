//! First and second gradients against central differences in f64, for every case with a gradient.
//! The reference evaluator computes values with perturbed inputs: a graph is built once and
//! evaluated many times, without a compiler.

use crate::cases::{Case, GROUPS};
use crate::check::{Layout, input, total};
use crate::fixture::{Array, Block, blocks};
use picograd::compiler::device::Buffer;
use picograd::ir::{Arg, StorageRef, UOp, toposort};
use picograd::reference::evaluate;
use picograd::{DType, Tensor};

const STEP: f64 = 1e-5;

/// Moves the numbers away from corners and ties, where differences are not the gradient.
fn aside(a: &Array) -> Array {
    let data =
        a.data.iter().enumerate().map(|(i, x)| x + 0.0123 * (1 + i * 5 % 7) as f64).collect();
    Array { shape: a.shape.clone(), data }
}

/// The buffer that a tensor reads.
fn storage(t: &Tensor) -> StorageRef {
    let found = toposort([&t.uop()]).into_iter().find_map(|u| match u.arg() {
        Arg::Storage(s) => Some(s.clone()),
        _ => None,
    });
    found.expect("an input reads storage")
}

/// The values of graphs, with replaced contents of some buffers.
fn values(roots: &[UOp], moved: &[(StorageRef, Vec<f64>)]) -> Vec<Vec<f64>> {
    let read = |s: &StorageRef| match moved.iter().find(|(place, _)| place == s) {
        Some((_, data)) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        None => Buffer::of(s).read().expect("storage can be read"),
    };
    evaluate(roots, &read)
        .into_iter()
        .map(|v| v.data.iter().map(|c| c.as_f64(v.dtype)).collect())
        .collect()
}

/// The gradient of each input, zeros if there is none.
fn gradient(y: Option<&Tensor>, by: &[Tensor]) -> Vec<Tensor> {
    let one = |p: &Tensor| match y.map(|y| y.try_gradient(&[p])) {
        Some(Ok(mut g)) => g.remove(0),
        Some(Err(e)) if e.to_string().contains("does not depend") => p.zeros_like(),
        None => p.zeros_like(),
        Some(Err(e)) => panic!("{e}"),
    };
    by.iter().map(one).collect()
}

fn check(case: &Case, block: &Block, wrong: &mut Vec<String>) {
    let mut moved: Vec<(StorageRef, Vec<f64>)> = Vec::new();
    let mut params = Vec::new();
    let mut inputs = Vec::new();
    for (fixed, a) in &block.inputs {
        let a = if fixed.is_none() { aside(a) } else { a.clone() };
        let t = input(
            &a,
            fixed.unwrap_or(DType::F64),
            Layout::Plain,
            Tensor::zeros(()).device().as_str(),
        );
        if fixed.is_none() {
            moved.push((storage(&t), a.data));
            params.push(t.as_param());
        }
        inputs.push(if fixed.is_none() { params[params.len() - 1].clone() } else { t });
    }
    let Some(first) = total(&(case.call)(&inputs)) else { return };
    let slopes = gradient(Some(&first), &params);
    let second = total(&slopes);
    let curves = gradient(second.as_ref(), &params);
    let zero = Tensor::new(0.0f64);
    let roots = [first.uop(), second.as_ref().unwrap_or(&zero).uop()];
    let found = values(&slopes.iter().chain(&curves).map(|t| t.uop()).collect::<Vec<_>>(), &moved);
    for k in 0..params.len() {
        for (i, (&first, &second)) in found[k].iter().zip(&found[params.len() + k]).enumerate() {
            let at = |by: f64| {
                let mut other = moved.clone();
                other[k].1[i] += by;
                values(&roots, &other)
            };
            let (above, below) = (at(STEP), at(-STEP));
            for (order, got) in [first, second].into_iter().enumerate() {
                let slope = (above[order][0] - below[order][0]) / (2.0 * STEP);
                // NaN fails the comparison.
                let near = (got - slope).abs() <= 1e-6 + 1e-5 * slope.abs();
                if !near {
                    wrong.push(format!(
                        "{}, order {}: by element {i} of input {k} {got}, and the slope is {slope}",
                        block.label(),
                        order + 1
                    ));
                    return;
                }
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    let all = blocks();
    let mut wrong = Vec::new();
    for case in GROUPS.iter().copied().flatten() {
        for block in all.iter().filter(|b| b.name == case.name && !b.grads.is_empty() && !b.rough) {
            check(case, block, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
