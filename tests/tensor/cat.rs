//! Concatenation of few and of many tensors: values, gradients, and cost.

use crate::check;
use picograd::{DType, Tensor};

fn ramp(start: usize, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_vec((start..start + n).map(|i| i as i32).collect::<Vec<_>>(), shape)
}

#[test]
fn cat_joins_many_along_every_axis() {
    for n in [2usize, 5, 9, 29, 100, 800] {
        for axis in 0..3usize {
            // Sizes from 0 to 3 along the axis.
            let shape = |i: usize| -> Vec<usize> {
                (0..3).map(|a| if a == axis { (i * 7 + 1) % 4 } else { 2 }).collect()
            };
            let parts: Vec<Tensor> = (0..n).map(|i| ramp(i * 100, &shape(i))).collect();
            let total: usize = (0..n).map(|i| shape(i)[axis]).sum();
            let out = Tensor::cat(&parts, axis as isize);
            let mut expected = Vec::new();
            let outer: usize = shape(0)[..axis].iter().product();
            for o in 0..outer {
                for i in 0..n {
                    let row: usize = shape(i)[axis..].iter().product();
                    expected.extend((0..row).map(|k| (i * 100 + o * row + k) as i32));
                }
            }
            let dims: Vec<usize> = (0..3).map(|a| if a == axis { total } else { 2 }).collect();
            check(&out, &dims, &expected);
            // The result as an operand, and operands computed by the same kernels.
            check(&(&out + 1), &dims, &expected.iter().map(|v| v + 1).collect::<Vec<_>>());
            let scaled: Vec<Tensor> = parts.iter().map(|p| p * 2).collect();
            check(
                &Tensor::cat(&scaled, axis as isize),
                &dims,
                &expected.iter().map(|v| v * 2).collect::<Vec<_>>(),
            );
        }
    }
}

#[test]
fn stacks_accept_computed_operands() {
    for n in [3usize, 10, 64] {
        let x = Tensor::from_vec((0..n * 6).map(|i| i as f32).collect::<Vec<_>>(), [n, 2, 3]);
        let rows: Vec<Tensor> = (0..n).map(|i| x.i(i as isize).sum(0)).collect();
        check(&Tensor::stack(&rows, 0), &[n, 3], &x.sum(1).to_vec::<f32>().unwrap());
        // Rows that are stored separately, and a row that occurs twice.
        let both: Vec<Tensor> = rows.iter().chain(&rows).map(|r| r + 1.0).collect();
        let out = Tensor::stack(&both, 1);
        Tensor::realize_many(&[&out, &both[0], &both[n]]).unwrap();
        let plus = (x.sum(1) + 1.0).t();
        let expected = Tensor::cat(&[plus.clone(), plus], 1);
        check(&out, &[3, 2 * n], &expected.to_vec::<f32>().unwrap());
        check(
            &both[0],
            &[3],
            &rows[0].to_vec::<f32>().unwrap().iter().map(|v| v + 1.0).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn cat_keeps_bits_and_dtypes() {
    let parts: Vec<Tensor> = (0..12)
        .map(|i| if i % 2 == 0 { Tensor::new([-0.0f32]) } else { Tensor::new([f32::NAN]) })
        .collect();
    let bits = Tensor::cat(&parts, 0).bitcast(DType::U32).to_vec::<u32>().unwrap();
    assert!(bits.iter().step_by(2).all(|b| *b == 1 << 31), "{bits:x?}");
    let mixed: Vec<Tensor> =
        (0..12).map(|i| if i < 11 { Tensor::new([true]) } else { Tensor::new([300i16]) }).collect();
    assert_eq!(Tensor::cat(&mixed, 0).dtype(), DType::I16);
    check(&Tensor::cat(&mixed, 0).i(-1), &[], &[300i16]);
}

#[test]
fn operands_get_their_slice_of_the_gradient() {
    for n in [3usize, 12, 40] {
        let parts: Vec<Tensor> = (0..n)
            .map(|i| Tensor::full([2, 1 + i % 3], i as f32).realize().unwrap().as_param())
            .collect();
        let y = Tensor::cat(&parts, 1);
        let total = y.shape()[1];
        let w = Tensor::from_vec((0..2 * total).map(|i| i as f32).collect::<Vec<_>>(), [2, total]);
        let grads = (&y.square() * &w).sum(..).gradient(&parts.iter().collect::<Vec<_>>());
        let mut start = 0;
        for (i, g) in grads.iter().enumerate() {
            let size = 1 + i % 3;
            let expected: Vec<f32> = (0..2)
                .flat_map(|r| {
                    (0..size).map(move |k| 2.0 * i as f32 * (r * total + start + k) as f32)
                })
                .collect();
            check(g, &[2, size], &expected);
            start += size;
        }
    }
}

#[test]
fn views_and_consumers_of_a_cat_read_its_values() {
    let parts: Vec<Tensor> = (0..20).map(|i| ramp(i * 4, &[4])).collect();
    let all = Tensor::cat(&parts, 0);
    check(&all.reshape([4, 20]).t().contiguous().i((0, ..)), &[4], &[0, 20, 40, 60]);
    // A slice with the shape of an operand, next to another operand.
    check(&(all.i(4..8) + all.i(8..12)), &[4], &[12, 14, 16, 18]);
    check(&Tensor::cat(&[all.clone(), all.flip(0)], 0).sum(..), &[], &[80 * 79]);
    check(
        &Tensor::cat(&parts.iter().map(|p| p + &all.i(0..4)).collect::<Vec<_>>(), 0).i(76..80),
        &[4],
        &[76, 78, 80, 82],
    );
    // An assignment to an operand: the old content is still needed.
    let x = ramp(0, &[40]).realize().unwrap();
    let turned: Vec<Tensor> = (0..10).map(|i| x.i(36 - 4 * i..40 - 4 * i)).collect();
    x.assign(Tensor::cat(&turned, 0)).unwrap();
    check(&x.i(0..8), &[8], &[36, 37, 38, 39, 32, 33, 34, 35]);
}

#[test]
fn kernel_counts_of_cat_stay_small() {
    let schedule = |n: usize| {
        let parts: Vec<Tensor> = (0..n).map(|i| ramp(i, &[16])).collect();
        let parts: Vec<Tensor> = parts.iter().map(|p| p.realize().unwrap()).collect();
        Tensor::stack(&parts, 0).schedule().unwrap()
    };
    assert_eq!(schedule(3).len(), 1);
    assert_eq!(schedule(20).len(), 1);
    let (hundred, thousand) = (schedule(100).len(), schedule(1000).len());
    assert!(hundred <= 6 && thousand <= 60, "{hundred} and {thousand} kernels");
}

/// Many operands of several dtypes, some of them empty, through both implementations: values, dtype
/// and gradients.
#[test]
fn cat_promotes_many_dtypes() {
    let part = |i: usize| match i % 4 {
        0 => Tensor::full([2, i % 3], i as i32),
        1 => Tensor::full([2, i % 3], i as f32 + 0.5).realize().unwrap().as_param(),
        2 => Tensor::zeros([2, 0]),
        _ => Tensor::full([2, 1], true),
    };
    for n in [6usize, 90] {
        let parts: Vec<Tensor> = (0..n).map(part).collect();
        let all = Tensor::cat(&parts, 1);
        assert_eq!(all.dtype(), DType::F32);
        let row: Vec<f32> = (0..n)
            .flat_map(|i| match i % 4 {
                0 => vec![i as f32; i % 3],
                1 => vec![i as f32 + 0.5; i % 3],
                2 => vec![],
                _ => vec![1.0],
            })
            .collect();
        check(&all, &[2, row.len()], &[row.clone(), row.clone()].concat());
        let params: Vec<&Tensor> = parts.iter().filter(|p| p.is_param() && p.numel() > 0).collect();
        for (g, p) in all.square().sum(..).gradient(&params).iter().zip(&params) {
            check(
                g,
                &p.shape(),
                &p.to_vec::<f32>().unwrap().iter().map(|v| 2.0 * v).collect::<Vec<_>>(),
            );
        }
    }
}

#[test]
fn errors_name_the_op() {
    let (a, b) = (Tensor::zeros([2, 3]), Tensor::zeros([2, 4]));
    let says = |e: picograd::Error, what: &str| assert!(e.to_string().starts_with(what), "{e}");
    says(Tensor::try_cat(&[], 0).unwrap_err(), "cat: expected one tensor or more");
    says(Tensor::try_stack(&[], 0).unwrap_err(), "stack: expected one tensor or more");
    says(
        Tensor::try_cat(&[a.clone(), b.clone()], 0).unwrap_err(),
        "cat: [2, 3] and [2, 4] differ outside axis 0",
    );
    says(
        Tensor::try_stack(&[a.clone(), b], 0).unwrap_err(),
        "stack: shapes [2, 3] and [2, 4] differ",
    );
    let on = |device: &str| Tensor::zeros([2, 3]).to(device).contiguous().realize().unwrap();
    says(
        Tensor::try_stack(&[on("null"), on("interp")], 0).unwrap_err(),
        "device: stack: one operand is on NULL",
    );
}
