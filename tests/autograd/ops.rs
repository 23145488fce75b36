//! Each op of the tensor graph, and its second gradient, against central differences in f64. An op
//! with neither a rule nor a zero derivative fails.

use picograd::ir::{Arg, Combine, Fold, Group, Op, ToSrc, UOp};
use picograd::shape::Movement;
use picograd::testing::is_skipped;
use picograd::{DType, Device, Tensor, autograd};

/// Numbers that are never close to each other, to zero or to a whole number.
fn numbers(n: usize, salt: usize) -> Vec<f64> {
    (0..n)
        .map(|i| ((i * 7919 + salt * 104729 + 13) % 997) as f64 / 997.0 * 3.0 - 1.5 + 0.00137)
        .collect()
}

/// Positive numbers away from zero.
fn positive(v: Vec<f64>) -> Vec<f64> {
    v.into_iter().map(|x| x.abs() + 0.3).collect()
}

fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
    Tensor::new(values.to_vec()).reshape(shape)
}

/// The sum with a distinct weight for each element, so that swapped elements are detected.
fn weighted(y: &Tensor) -> Tensor {
    let w = tensor(&numbers(y.numel(), 5), &y.shape());
    (y * w).sum(..)
}

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Tensor;

fn value(f: Function, inputs: &[(Vec<f64>, Vec<usize>)]) -> f64 {
    let tensors: Vec<Tensor> = inputs.iter().map(|(v, s)| tensor(v, s).as_param()).collect();
    f(&tensors).item::<f64>().unwrap()
}

/// The gradient of a scalar function by each input, against differences.
fn against_differences(name: &str, f: Function, inputs: &[(Vec<f64>, Vec<usize>)]) {
    let params: Vec<Tensor> = inputs.iter().map(|(v, s)| tensor(v, s).as_param()).collect();
    let y = f(&params);
    let grads = match y.try_gradient(&params.iter().collect::<Vec<_>>()) {
        Ok(grads) => grads,
        Err(e) => panic!("{name}: {e}"),
    };
    let eps = 1e-5;
    for (k, grad) in grads.iter().enumerate() {
        assert_eq!(grad.shape(), params[k].shape(), "{name}: the shape of gradient {k}");
        let grad = grad.to_vec::<f64>().unwrap();
        for (i, g) in grad.iter().enumerate() {
            let moved = |by: f64| {
                let mut other = inputs.to_vec();
                other[k].0[i] += by;
                value(f, &other)
            };
            let slope = (moved(eps) - moved(-eps)) / (2.0 * eps);
            let close = (g - slope).abs() <= 1e-5 + 1e-4 * slope.abs();
            assert!(
                close,
                "{name}: by element {i} of input {k} the gradient is {g}, and the slope {slope}"
            );
        }
    }
}

/// Checks the first and second gradient of a function of tensors.
fn check(name: &str, f: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[(Vec<f64>, Vec<usize>)]) {
    against_differences(name, &|x| weighted(&f(x)), inputs);
    let second = |x: &[Tensor]| {
        let y = weighted(&f(x));
        let grads = y.gradient(&x.iter().collect::<Vec<_>>());
        grads
            .iter()
            .zip(x)
            .map(|(g, x)| weighted(&(g * g * 0.5 + g * x + x * x)))
            .reduce(|a, b| a + b)
            .unwrap()
    };
    against_differences(&format!("{name}, second order"), &second, inputs);
}

fn graph(x: &Tensor, f: impl Fn(UOp) -> UOp) -> Tensor {
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    unsafe { Tensor::from_uop_unchecked(f(x.uop()), x.device().clone()) }
}

/// Checks the op alone, at inputs where it is smooth. Returns `false` for an op that is not a
/// function of floats.
fn check_op(op: Op) -> bool {
    let six = |salt| (numbers(6, salt), vec![2, 3]);
    let name = format!("{op:?}");
    match op {
        Op::Sqrt | Op::Rsqrt | Op::Log | Op::Log2 => check(
            &name,
            &|x| graph(&x[0], |u| u.unary(op)),
            &[(positive(numbers(6, 1)), vec![2, 3])],
        ),
        Op::Exp | Op::Exp2 | Op::Sin | Op::Cos | Op::Tan | Op::Tanh | Op::Sigmoid | Op::Erf => {
            let inputs = numbers(6, 1).into_iter().map(|v| v * 0.9).collect();
            check(&name, &|x| graph(&x[0], |u| u.unary(op)), &[(inputs, vec![2, 3])])
        }
        Op::Trunc => check(&name, &|x| x[0].trunc() * &x[0] + x[0].square(), &[six(1)]),
        Op::Add | Op::Mul | Op::Max | Op::Min => {
            check(&name, &|x| graph(&x[0], |u| u.binary(op, x[1].uop())), &[six(1), six(2)])
        }
        Op::Div => check(
            &name,
            &|x| graph(&x[0], |u| u.binary(op, x[1].uop())),
            &[six(1), (positive(numbers(6, 2)), vec![2, 3])],
        ),
        // Away from integer quotients.
        Op::Mod => {
            let (x, y) =
                (vec![7.3, -4.1, 2.9, 5.2, -8.6, 0.4], vec![2.0, 1.5, -1.7, 3.1, 2.5, 1.1]);
            check(
                &name,
                &|x| graph(&x[0], |u| u.binary(op, x[1].uop())),
                &[(x, vec![2, 3]), (y, vec![2, 3])],
            )
        }
        Op::Pow => check(
            &name,
            &|x| graph(&x[0], |u| u.binary(op, x[1].uop())),
            &[(positive(numbers(6, 1)), vec![2, 3]), six(2)],
        ),
        Op::Ldexp => check(
            &name,
            &|x| graph(&x[0], |u| u.binary(op, x[1].trunc().uop())) * &x[1],
            &[six(1), six(2)],
        ),
        Op::Where => check(&name, &|x| x[0].lt(0.1).where_(&x[1], &x[0] * 2.0), &[six(1), six(2)]),
        Op::Fma => check(
            &name,
            &|x| graph(&x[0], |u| u.fma(&x[1].uop(), &x[2].uop())),
            &[six(1), six(2), six(3)],
        ),
        Op::Lt | Op::Eq | Op::Ne => check(
            &name,
            &|x| graph(&x[0], |u| u.binary(op, x[1].uop())).cast(DType::F64) + &x[0] * &x[1],
            &[six(1), six(2)],
        ),
        Op::Cast => {
            check(
                "Cast to f32",
                &|x| x[0].cast(DType::I32).cast(DType::F64) + &x[0] * &x[0],
                &[six(1)],
            );
            let y = Tensor::new([1.5f64, 2.0]).as_param();
            let g = y.cast(DType::F32).square().sum(..).gradient(&[&y]).remove(0);
            assert_eq!(g.to_vec::<f64>().unwrap(), [3.0, 4.0]);
        }
        Op::Reshape => check(&name, &|x| x[0].reshape([3, 2]).square(), &[six(1)]),
        Op::Expand => {
            check(&name, &|x| x[0].expand([4, 2, 3]).square(), &[(numbers(6, 1), vec![1, 2, 3])])
        }
        Op::Permute => {
            check(&name, &|x| x[0].permute([2, 0, 1]).square(), &[(numbers(24, 1), vec![2, 3, 4])])
        }
        Op::Pad => check(
            &name,
            &|x| graph(&x[0], |u| u.moved(Movement::pad([(1, 0), (2, 3)]))).square(),
            &[six(1)],
        ),
        Op::Shrink => check(
            &name,
            &|x| graph(&x[0], |u| u.moved(Movement::shrink([(1, 2), (0, 2)]))).square(),
            &[six(1)],
        ),
        Op::Flip => check(&name, &|x| x[0].flip([0, 1]).square(), &[six(1)]),
        Op::Reduce => {
            for fold in [Fold::Add, Fold::Mul, Fold::Max, Fold::Min] {
                for axes in [vec![1], vec![0, 2], vec![0, 1, 2]] {
                    let f = |x: &[Tensor]| {
                        graph(&x[0], |u| u.reduced(fold, axes.iter().copied())).square()
                    };
                    check(
                        &format!("Reduce {fold:?} {axes:?}"),
                        &f,
                        &[(numbers(12, 3), vec![2, 3, 2])],
                    );
                }
            }
        }
        Op::Scan => {
            for fold in [Fold::Add, Fold::Mul, Fold::Max, Fold::Min] {
                // The gradient has one block of rows, or several and a partial one.
                for (axis, shape) in [(1, vec![2, 3, 2]), (0, vec![5, 2]), (1, vec![1, 35])] {
                    let f = |x: &[Tensor]| graph(&x[0], |u| u.scanned(fold, axis)).square();
                    check(
                        &format!("Scan {fold:?} {axis} {shape:?}"),
                        &f,
                        &[(numbers(shape.iter().product(), 3), shape)],
                    );
                }
            }
            // A running product with zeros.
            let mut holes = numbers(6, 2);
            (holes[1], holes[4]) = (0.0, 0.0);
            check(
                "Scan Mul of zeros",
                &|x| graph(&x[0], |u| u.scanned(Fold::Mul, 0)).square(),
                &[(holes, vec![6])],
            );
        }
        Op::Cat => {
            let f = |x: &[Tensor]| {
                graph(&x[0], |u| UOp::cat([u.clone(), x[1].uop(), u.clone()].to_src(), 1)).square()
            };
            check(&name, &f, &[six(1), (numbers(4, 2), vec![2, 2])]);
        }
        Op::Gather => {
            let index = Tensor::new([[2, 0], [2, -1], [1, 3], [0, 2]]);
            for (axis, index) in [(0, index.clone()), (1, index.t())] {
                let f = |x: &[Tensor]| graph(&x[0], |u| u.gathered(&index.uop(), axis)).square();
                let shape = if axis == 0 { vec![3, 2] } else { vec![2, 3] };
                check(&format!("Gather {axis}"), &f, &[(numbers(6, 1), shape)]);
            }
        }
        Op::Scatter => {
            // Indices that occur twice, never, and out of range.
            let index = Tensor::new([[2, 0], [2, -1], [0, 3], [0, 2]]);
            let distinct = Tensor::new([[2, 0], [1, -1], [-1, 3], [0, 2]]);
            for combine in Combine::ALL {
                let index = if combine == Combine::SetDistinct { &distinct } else { &index };
                for (axis, index) in [(0, index.clone()), (1, index.t())] {
                    let f = |x: &[Tensor]| {
                        graph(&x[0], |u| u.scattered(&index.uop(), &x[1].uop(), combine, axis))
                            .square()
                    };
                    let (a, b) =
                        if axis == 0 { (vec![3, 2], vec![4, 2]) } else { (vec![2, 3], vec![2, 4]) };
                    check(
                        &format!("Scatter {combine:?} {axis}"),
                        &f,
                        &[(numbers(6, 1), a), (numbers(8, 2), b)],
                    );
                }
            }
        }
        Op::Contiguous => check(&name, &|x| (&x[0] * 2.0).contiguous().square(), &[six(1)]),
        Op::ContiguousBackward => {
            check(&name, &|x| (&x[0] * 2.0).contiguous_backward().square(), &[six(1)])
        }
        Op::Copy => check(
            &name,
            &|x| x[0].to("INTERP").square().to(Device::default_name().as_str()),
            &[six(1)],
        ),
        Op::Shards => {
            for axis in [None, Some(0), Some(1)] {
                let f = |x: &[Tensor]| {
                    x[0].shard(&["INTERP", "INTERP:1"], axis)
                        .square()
                        .to(Device::default_name().as_str())
                };
                check(&format!("Shards {axis:?}"), &f, &[six(1)]);
            }
        }
        // These stop the gradient; `api` tests it.
        Op::Detach | Op::Leaf => {}
        Op::Call => check(
            &name,
            &|x| {
                Tensor::call(&[&x[0]], |x| Ok(x[0].square()), |g, x| Ok(vec![g * &x[0] * 2.0]))
                    .unwrap()
            },
            &[six(1)],
        ),
        Op::Computed => {
            let x = Tensor::new([1.0f64, 2.0]).as_param();
            let h = &x * &x;
            let y = (&h * 3.0).sum(..);
            h.realize().unwrap();
            assert_eq!(y.gradient(&[&x])[0].to_vec::<f64>().unwrap(), [6.0, 12.0]);
        }
        Op::Relu => {
            check(&name, &|x| x[0].relu().square(), &[six(1)]);
            let edges = [-1.0, -0.0, 0.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            let x = Tensor::new(edges).as_param();
            let g = x.relu().sum(..).gradient(&[&x])[0].to_vec::<f64>().unwrap();
            assert_eq!(g, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
        }
        _ => return false,
    }
    true
}

/// Ops of the tensor graph that have no operand, or whose result and operands are no floats.
const NO_GRADIENT: &[Op] = &[
    Op::Const,
    Op::Buffer,
    Op::Param,
    Op::Var,
    // A symbolic slice has no gradient; `tests/jit/variables.rs` tests the error.
    Op::Slice,
    Op::Iota,
    Op::Sink,
    Op::IDiv,
    Op::CDiv,
    Op::CMod,
    Op::Shl,
    Op::Shr,
    Op::And,
    Op::Or,
    Op::Xor,
    // A custom kernel is inside a call, which defines the gradient.
    Op::Kernel,
    // The gradient of a loop is a loop: `tests/tensor/loops.rs` compares both with the unrolled
    // form.
    Op::Loop,
    Op::Output,
    // A bitcast has no gradient; the error is tested below.
    Op::Bitcast,
];

#[test]
fn every_tensor_op_has_a_gradient_and_every_rule_fires() {
    if is_skipped("every_tensor_op_has_a_gradient_and_every_rule_fires", &[DType::F64]) {
        return;
    }
    for &op in Op::ALL {
        let in_graph =
            op.is_alu() || op.is(Group::Movement) || op.is(Group::Mark) || op <= Op::Computed;
        if !in_graph || NO_GRADIENT.contains(&op) {
            continue;
        }
        assert!(
            check_op(op),
            "{op:?} has no gradient check: add a row to src/autograd/rules.rs and a case here, or \
             list it among the ops without a gradient"
        );
    }
    let idle: Vec<&str> =
        autograd::GRADIENTS.iter().filter(|r| r.info.fired() == 0).map(|r| r.info.name).collect();
    assert!(idle.is_empty(), "{idle:?} never fired");
}

#[test]
fn an_op_without_a_gradient_is_an_error() {
    let x = Tensor::new([1.0f32, 2.0]).as_param();
    let bits = graph(&x, |u| {
        UOp::new(Op::Bitcast, DType::I32, [u].to_src(), Arg::None).bitcast(DType::F32)
    });
    // The integers in between have no gradient, so the result does not depend on the parameter, and
    // requesting its gradient is an error.
    let e = bits.sum(..).try_gradient(&[&x]).unwrap_err().to_string();
    assert!(e.contains("the operation Bitcast is not differentiable"), "{e}");
    let e = bits.sum(..).try_backward().unwrap_err().to_string();
    assert!(e.contains("the operation Bitcast is not differentiable"), "{e}");
}

#[test]
fn scalar_operands_sum_their_gradient() {
    if is_skipped("scalar_operands_sum_their_gradient", &[DType::F64]) {
        return;
    }
    check(
        "scalar",
        &|x| graph(&x[0], |u| u.binary(Op::Mul, x[1].uop())),
        &[(numbers(6, 1), vec![2, 3]), (numbers(1, 2), vec![])],
    );
    check(
        "scalar first",
        &|x| graph(&x[1], |u| u.binary(Op::Div, x[0].uop())),
        &[(positive(numbers(6, 1)), vec![2, 3]), (numbers(1, 2), vec![])],
    );
}

#[test]
fn gradients_of_products_with_zeros_match_differences() {
    if is_skipped("gradients_of_products_with_zeros_match_differences", &[DType::F64]) {
        return;
    }
    for zeros in [vec![], vec![1], vec![0, 2]] {
        let mut v = numbers(5, 4);
        zeros.iter().for_each(|&z| v[z] = 0.0);
        check(&format!("prod with zeros at {zeros:?}"), &|x| x[0].prod(..), &[(v, vec![5])]);
    }
}

#[test]
fn ties_share_the_gradient() {
    let x = Tensor::new([1.0f32, 3.0, 3.0]).as_param();
    assert_eq!(x.max(..).gradient(&[&x])[0].to_vec::<f32>().unwrap(), [0.0, 0.5, 0.5]);
    let y = Tensor::new([1.0f32, 4.0, 3.0]);
    assert_eq!(x.maximum(&y).sum(..).gradient(&[&x])[0].to_vec::<f32>().unwrap(), [0.5, 0.0, 0.5]);
    let z = Tensor::new([-1.0f32, 0.0, 2.0]).as_param();
    assert_eq!(z.relu().sum(..).gradient(&[&z])[0].to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0]);
}

#[test]
fn gradients_of_powers_at_zero_are_finite() {
    if is_skipped("gradients_of_powers_at_zero_are_finite", &[DType::F64]) {
        return;
    }
    let x = Tensor::new([0.0f64, 0.0, 2.0]).as_param();
    let y = Tensor::new([0.0f64, 2.0, 0.0]).as_param();
    let g = x.pow(&y).sum(..).gradient(&[&x, &y]);
    assert_eq!(g[0].to_vec::<f64>().unwrap(), [0.0, 0.0, 0.0]);
    assert_eq!(g[1].to_vec::<f64>().unwrap(), [0.0, 0.0, 2f64.ln()]);
}
