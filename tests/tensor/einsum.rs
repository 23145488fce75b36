//! `einsum` and `rearrange` against loops, and padding modes.

use super::{check, ramp};
use picograd::tensor::PadMode;
use picograd::{DType, Tensor};
use std::collections::BTreeMap;

/// The sum over all values of all letters, by loops. The terms have no `...`.
fn oracle(terms: &[&str], out: &str, operands: &[(Vec<usize>, Vec<f32>)]) -> Vec<f32> {
    let mut sizes: BTreeMap<char, usize> = BTreeMap::new();
    for (term, (shape, _)) in terms.iter().zip(operands) {
        term.chars().zip(shape).for_each(|(c, &n)| {
            let known = sizes.entry(c).or_insert(n);
            *known = n.max(*known);
        });
    }
    let letters: Vec<char> = sizes.keys().copied().collect();
    let total: usize = sizes.values().product();
    let at = |term: &str, shape: &[usize], values: &BTreeMap<char, usize>| {
        term.chars().zip(shape).fold(0, |p, (c, &n)| p * n + if n == 1 { 0 } else { values[&c] })
    };
    let out_shape: Vec<usize> = out.chars().map(|c| sizes[&c]).collect();
    let mut result = vec![0f32; out_shape.iter().product()];
    for i in 0..total {
        let mut rest = i;
        let values: BTreeMap<char, usize> = letters
            .iter()
            .map(|c| {
                let v = rest % sizes[c];
                rest /= sizes[c];
                (*c, v)
            })
            .collect();
        let product: f32 = terms
            .iter()
            .zip(operands)
            .map(|(t, (shape, data))| data[at(t, shape, &values)])
            .product();
        result[at(out, &out_shape, &values)] += product;
    }
    result
}

#[track_caller]
fn agree(formula: &str, shapes: &[&[usize]]) {
    let (left, out) = formula.split_once("->").unwrap();
    let terms: Vec<&str> = left.split(',').collect();
    let data: Vec<(Vec<usize>, Vec<f32>)> = shapes
        .iter()
        .enumerate()
        .map(|(k, s)| {
            (
                s.to_vec(),
                (0..s.iter().product::<usize>()).map(|i| ((i * 5 + k) % 7) as f32 - 3.0).collect(),
            )
        })
        .collect();
    let tensors: Vec<Tensor> = data.iter().map(|(s, d)| Tensor::from_vec(d.clone(), s)).collect();
    let got = Tensor::einsum(formula, &tensors.iter().collect::<Vec<_>>());
    assert_eq!(got.to_vec::<f32>().unwrap(), oracle(&terms, out, &data), "{formula}");
}

#[test]
fn einsum_formulas_match_loops() {
    agree("ij,jk->ik", &[&[2, 3], &[3, 4]]);
    agree("ij,jk->ki", &[&[2, 3], &[3, 4]]);
    agree("ij->ji", &[&[2, 3]]);
    agree("ij->", &[&[2, 3]]);
    agree("ij->j", &[&[2, 3]]);
    agree("ii->i", &[&[3, 3]]);
    agree("ii->", &[&[3, 3]]);
    agree("iji->j", &[&[3, 2, 3]]);
    agree("iij,jk->ik", &[&[2, 2, 3], &[3, 2]]);
    agree("i,j->ij", &[&[3], &[2]]);
    agree("i,i->", &[&[3], &[3]]);
    agree("i,i->i", &[&[3], &[3]]);
    agree("bhqd,bhkd->bhqk", &[&[2, 2, 3, 4], &[2, 2, 5, 4]]);
    agree("ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 2]]);
    agree("ij,kl,jl->ik", &[&[2, 3], &[4, 5], &[3, 5]]);
    agree("ij,k->j", &[&[2, 3], &[4]]);
    agree("ij,ij,ij->i", &[&[2, 3], &[2, 3], &[2, 3]]);
    agree("ij,jk->ik", &[&[2, 1], &[3, 4]]);
    agree("iiii->i", &[&[2, 2, 2, 2]]);
    agree(",ij->ij", &[&[], &[2, 2]]);
}

#[test]
fn ellipses_and_implied_outputs_match_matmul() {
    let (x, y) = (ramp(&[2, 3]), ramp(&[3, 2]));
    let product = x.matmul(&y).to_vec::<f32>().unwrap();
    check(&Tensor::einsum("ij, jk", &[&x, &y]), &[2, 2], &product);
    check(&Tensor::einsum("ba", &[&x]), &[3, 2], &[0f32, 3., 1., 4., 2., 5.]);
    check(&Tensor::einsum("ii", &[&ramp(&[2, 2])]), &[], &[3f32]);
    assert_eq!(
        Tensor::einsum("...ij,...jk->...ik", &[&ramp(&[4, 1, 2, 3]), &ramp(&[5, 3, 2])]).shape(),
        [4, 5, 2, 2]
    );
    let (a, b) = (ramp(&[4, 2, 3]), ramp(&[4, 3, 5]));
    check(
        &Tensor::einsum("...ij,...jk", &[&a, &b]),
        &[4, 2, 5],
        &a.matmul(&b).to_vec::<f32>().unwrap(),
    );
    assert_eq!(Tensor::einsum("i...->...i", &[&a]).shape(), [2, 3, 4]);
    assert_eq!(Tensor::einsum("...->...", &[&a]).shape(), [4, 2, 3]);
    check(
        &Tensor::einsum("b...,b...->...", &[&a, &a]),
        &[2, 3],
        &(&a * &a).sum(0).to_vec::<f32>().unwrap(),
    );
    let small = Tensor::full([3], 100i8);
    check(&Tensor::einsum("i,i->", &[&small, &small]), &[], &[30000]);
    assert_eq!(
        Tensor::einsum("i,i->", &[&x.i(0).cast(DType::F16), &x.i(0).cast(DType::F16)]).dtype(),
        DType::F16
    );
}

#[test]
fn invalid_formulas_are_errors() {
    let x = ramp(&[2, 3]);
    let says = |f: &str, n: usize| Tensor::try_einsum(f, &vec![&x; n]).unwrap_err().to_string();
    assert_eq!(
        says("ij,jk->ik", 1),
        "einsum: \"ij,jk->ik\": expected 2 tensors, one for each term, got 1"
    );
    assert_eq!(
        says("ijk->i", 1),
        "einsum: \"ijk->i\": \"ijk\" names 3 axes, but the tensor is [2, 3]"
    );
    assert_eq!(says("i->i", 1), "einsum: \"i->i\": \"i\" names 1 axes, but the tensor is [2, 3]");
    assert_eq!(says("ij->ii", 1), "einsum: \"ij->ii\": axis i is repeated in the result");
    assert_eq!(says("ij->k", 1), "einsum: \"ij->k\": k of the result is in no term");
    assert_eq!(says("i1->i", 1), "einsum: \"i1->i\": '1' is not an axis name; expected letters");
    assert_eq!(says("......", 1), "einsum: \"......\": `...` is repeated in \"......\"");
    assert_eq!(
        says("ii", 1),
        "einsum: \"ii\": \"ii\" repeats a name for axes of [2, 3] of sizes 2 and 3"
    );
    // An ellipsis may match no axis.
    check(&Tensor::einsum("ij->...", &[&x]), &[], &[15f32]);
}

#[test]
fn rearrange_matches_reshape_and_permute() {
    let x = ramp(&[2, 6, 3]);
    let go = |f: &str, s: &[(&str, usize)]| x.rearrange(f, s);
    assert_eq!(
        go("a b c -> c a b", &[]).to_vec::<f32>().unwrap(),
        x.permute([2, 0, 1]).to_vec::<f32>().unwrap()
    );
    let by_hand = x.reshape([2, 2, 3, 3]).permute([0, 2, 3, 1]).reshape([2, 9, 2]);
    check(
        &go("b (h d) n -> b (d n) h", &[("h", 2)]),
        &[2, 9, 2],
        &by_hand.to_vec::<f32>().unwrap(),
    );
    assert_eq!(go("b (h d) n -> b (d n) h", &[("d", 3)]).shape(), [2, 9, 2]);
    assert_eq!(go("b (h d) n -> b d n h", &[("d", 3), ("h", 2)]).shape(), [2, 3, 3, 2]);
    assert_eq!(go("a ... -> ... a", &[]).shape(), [6, 3, 2]);
    assert_eq!(go("... c -> c (...)", &[]).shape(), [3, 12]);
    assert_eq!(go("a b c -> a 1 b c 1", &[]).shape(), [2, 1, 6, 3, 1]);
    assert_eq!(ramp(&[2, 1, 3]).rearrange("a 1 c->(c a)", &[]).shape(), [6]);
    assert_eq!(ramp(&[2, 3]).rearrange("a b ... -> (a b ...)", &[]).shape(), [6]);
    assert_eq!(ramp(&[0, 3]).rearrange("(a b) c -> a (b c)", &[("b", 2)]).shape(), [0, 6]);
    let says = |f: &str, s: &[(&str, usize)]| x.try_rearrange(f, s).unwrap_err().to_string();
    assert_eq!(
        says("a b -> b a", &[]),
        "rearrange: \"a b -> b a\": the left side has 2 axes, but the tensor is [2, 6, 3]"
    );
    assert_eq!(
        says("a (b d) c -> a b c d", &[]),
        "rearrange: \"a (b d) c -> a b c d\": an axis of 6 is composed of b and d: give all sizes \
         but one"
    );
    assert_eq!(
        says("a (b d) c -> a b c d", &[("b", 4)]),
        "rearrange: \"a (b d) c -> a b c d\": an axis of 6 is composed of b and d: its sizes do \
         not divide it"
    );
    assert!(
        says("a b c -> a b", &[]).ends_with("expected the same names on both sides, each once")
    );
    assert!(says("a a c -> a c", &[]).ends_with("axis a is repeated on the left"));
    assert!(
        says("a b c -> a b c", &[("d", 1)])
            .ends_with("a size is given for d, which is not an axis")
    );
    assert!(says("a (b c -> a b c", &[]).ends_with("a parenthesis is not closed"));
    assert!(says("a b c", &[]).ends_with("expected `->`"));
    assert!(says("a 1 c -> a c", &[]).contains("an axis of 6"));
}

#[test]
fn pad_modes_match_loops() {
    let x = ramp(&[2, 3]);
    check(
        &x.pad_mode(&[(0, 1), (2, 2)], PadMode::Reflect),
        &[3, 7],
        &[2f32, 1., 0., 1., 2., 1., 0., 5., 4., 3., 4., 5., 4., 3., 2., 1., 0., 1., 2., 1., 0.],
    );
    check(
        &x.pad_mode(&[(1, 0), (0, 2)], PadMode::Replicate),
        &[3, 5],
        &[0f32, 1., 2., 2., 2., 0., 1., 2., 2., 2., 3., 4., 5., 5., 5.],
    );
    check(
        &x.pad_mode(&[(1, 0), (3, 1)], PadMode::Circular),
        &[3, 7],
        &[3f32, 4., 5., 3., 4., 5., 3., 0., 1., 2., 0., 1., 2., 0., 3., 4., 5., 3., 4., 5., 3.],
    );
    check(&x.pad_mode(&[(0, 0), (0, 0)], PadMode::Reflect), &[2, 3], &[0f32, 1., 2., 3., 4., 5.]);
    let says = |p: &[(usize, usize)], m| x.try_pad_mode(p, m).unwrap_err().to_string();
    assert_eq!(
        says(&[(2, 0), (0, 0)], PadMode::Reflect),
        "pad_mode: padding (2, 0) of axis 0 of [2, 3] exceeds its limit of 1"
    );
    assert!(x.try_pad_mode(&[(1, 1)], PadMode::Circular).is_err());
    assert!(x.try_pad_mode(&[(0, 3), (0, 0)], PadMode::Circular).is_err());
    assert!(Tensor::zeros([0]).try_pad_mode(&[(1, 0)], PadMode::Replicate).is_err());
    // The gradient is the number of uses of an element.
    let x = x.as_param();
    let g = x.pad_mode(&[(0, 0), (2, 1)], PadMode::Replicate).sum(..).gradient(&[&x]).remove(0);
    check(&g, &[2, 3], &[3f32, 1., 2., 3., 1., 2.]);
}

#[test]
fn diagonals_and_unfold_have_their_elements() {
    let x = ramp(&[2, 3, 4]);
    check(&x.diagonal(0, 1, 2), &[2, 3], &[0f32, 5., 10., 12., 17., 22.]);
    check(&x.diagonal(1, -2, -1), &[2, 3], &[1f32, 6., 11., 13., 18., 23.]);
    check(&x.diagonal(-2, 1, 2), &[2, 1], &[8f32, 20.]);
    check(&x.diagonal(0, 0, 2), &[3, 2], &[0f32, 13., 4., 17., 8., 21.]);
    check(&x.diagonal(0, 2, 0), &[3, 2], &[0f32, 13., 4., 17., 8., 21.]);
    assert_eq!(x.diagonal(9, 1, 2).shape(), [2, 0]);
    assert_eq!(x.diagonal(-9, 1, 2).shape(), [2, 0]);
    assert!(x.try_diagonal(0, 1, -2).is_err());
    check(&x.unfold(1, 2, 1).i((0, .., 1)), &[2, 4], &[4f32, 5., 6., 7., 8., 9., 10., 11.]);
    assert_eq!(x.unfold(0, 2, 1).shape(), [1, 3, 4, 2]);
    assert_eq!(x.unfold(2, 3, 4).shape(), [2, 3, 1, 3]);
    check(&ramp(&[7]).unfold(-1, 3, 2), &[3, 3], &[0f32, 1., 2., 2., 3., 4., 4., 5., 6.]);
    assert!(
        x.try_unfold(0, 3, 1).is_err()
            && x.try_unfold(0, 0, 1).is_err()
            && x.try_unfold(0, 1, 0).is_err()
    );
    assert_eq!(x.pad_to([4, -1, 5]).shape(), [4, 3, 5]);
    assert_eq!(x.shrink_to([1, -1, 2]).shape(), [1, 3, 2]);
    assert!(
        x.try_pad_to([1, -1, -1]).is_err()
            && x.try_shrink_to([3, -1, -1]).is_err()
            && x.try_pad_to([2]).is_err()
    );
}
