//! Every kind of operation, forward and backward, with every sharding of its inputs.

use super::{assert_close, devices, tensor};
use picograd::tensor::{Conv, CrossEntropy, Pool};
use picograd::{DType, Tensor};

/// The tolerance: sums over shards have another order than on one device.
const TOLERANCE: f32 = 2e-6;

/// All shardings of a tensor of a rank.
fn splits(rank: usize) -> Vec<Option<isize>> {
    std::iter::once(None).chain((0..rank as isize).map(Some)).collect()
}

/// The value of a function, and the gradients of a weighted sum of its elements.
fn run(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    params: &[Tensor],
    inputs: &[Tensor],
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let y = f(inputs);
    let weights =
        Tensor::arange(0, y.numel() as i64, 1).cast(DType::F32).reshape(y.shape()) * 0.01 + 0.5;
    let value = y.detach().to_vec::<f32>().unwrap();
    let grads = (y * weights).sum(..).gradient(&params.iter().collect::<Vec<_>>());
    (value, grads.iter().map(|g| g.to_vec::<f32>().unwrap()).collect())
}

/// Compares one device with several, for every combination of shard axes.
fn check(name: &str, shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Tensor) {
    let base: Vec<Tensor> =
        shapes.iter().enumerate().map(|(i, s)| tensor(s, i as u64 + 7)).collect();
    let params: Vec<Tensor> = base.iter().map(|t| t.as_param()).collect();
    let (value, grads) = run(&f, &params, &params);
    let mut choices: Vec<Vec<Option<isize>>> = vec![vec![]];
    for s in shapes {
        choices = choices
            .iter()
            .flat_map(|c| splits(s.len()).into_iter().map(|x| [c.clone(), vec![x]].concat()))
            .collect();
    }
    for (k, choice) in choices.iter().enumerate() {
        let names = devices(if k % 2 == 0 { 4 } else { 3 });
        let what = format!("{name} split along {choice:?} over {}", names.len());
        // A parameter that is sharded later, or a sharded parameter.
        let (params, inputs): (Vec<Tensor>, Vec<Tensor>) = if k % 3 == 0 {
            let params: Vec<Tensor> = base.iter().map(|t| t.as_param()).collect();
            let inputs =
                params.iter().zip(choice).map(|(p, axis)| p.shard(&names, *axis)).collect();
            (params, inputs)
        } else {
            let params: Vec<Tensor> = base
                .iter()
                .zip(choice)
                .map(|(t, axis)| t.shard(&names, *axis).as_param())
                .collect();
            (params.clone(), params)
        };
        let (got, got_grads) = run(&f, &params, &inputs);
        assert_close(&what, &got, &value, TOLERANCE);
        for (i, (g, w)) in got_grads.iter().zip(&grads).enumerate() {
            assert_close(&format!("{what}, gradient {i}"), g, w, TOLERANCE);
        }
    }
}

#[test]
fn sharded_elementwise_ops_match_one_device() {
    check("add and mul", &[&[6, 5], &[6, 5]], |x| (&x[0] + &x[1]) * &x[0] + 2.0);
    check("where", &[&[6, 5], &[6, 5]], |x| x[0].lt(0.1).where_(&x[0], &x[1] * 3.0));
    check("broadcast", &[&[6, 5], &[5]], |x| (&x[0] * &x[1]).tanh());
    check("broadcast of a column", &[&[6, 5], &[6, 1]], |x| (&x[0] - &x[1]).exp());
    check("cast", &[&[10]], |x| {
        x[0].cast(DType::F64).cast(DType::F32) + x[0].cast(DType::I32).cast(DType::F32)
    });
    check("a number", &[&[], &[7]], |x| &x[0] * &x[1]);
    check("contiguous", &[&[4, 3]], |x| (x[0].t().contiguous() * 2.0).t());
}

#[test]
fn sharded_movement_matches_one_device() {
    check("reshape that splits", &[&[8, 6]], |x| x[0].reshape([2, 4, 3, 2]) * 2.0);
    check("reshape that merges", &[&[4, 3, 5]], |x| x[0].reshape([12, 5]).reshape([60]) * 2.0);
    check("reshape across", &[&[10, 3]], |x| x[0].reshape([6, 5]) * x[0].reshape([6, 5]));
    check("reshape with ones", &[&[1, 9, 1]], |x| x[0].reshape([9]).reshape([3, 1, 3]) + 1.0);
    check("permute", &[&[4, 3, 5]], |x| x[0].permute([2, 0, 1]) * 3.0);
    check("expand", &[&[1, 5, 1]], |x| x[0].expand([3, 5, 4]) * 3.0);
    check("pad", &[&[5, 6]], |x| x[0].pad(&[(1, 2), (3, 0)]) * 3.0);
    check("shrink", &[&[10, 7]], |x| x[0].shrink(&[(2, 9), (1, 4)]) * 3.0);
    check("flip", &[&[10, 3]], |x| x[0].flip([0, 1]) * &x[0]);
    check("cat", &[&[3, 4], &[5, 4]], |x| Tensor::cat(x, 0) * 2.0);
    check("roll and a stride", &[&[9, 4]], |x| x[0].roll(2, 0) * &x[0]);
    check("slices", &[&[9, 4]], |x| x[0].i((2..7, ..)) * x[0].i((4..9, ..)));
}

#[test]
fn sharded_reductions_match_one_device() {
    check("sum", &[&[10, 3]], |x| x[0].sum(0));
    check("sum of all", &[&[3, 5]], |x| x[0].sum(..));
    check("mean and var", &[&[7, 4]], |x| x[0].mean(1) + x[0].var(1, 1));
    check("max", &[&[10, 3]], |x| x[0].max(0));
    check("min", &[&[3, 4]], |x| x[0].min(1));
    check("prod", &[&[3, 5]], |x| x[0].prod(0));
    check("softmax", &[&[5, 6]], |x| x[0].softmax(1));
    check("log_softmax of a column", &[&[6, 3]], |x| x[0].log_softmax(0));
    check("layernorm", &[&[4, 6]], |x| x[0].layernorm(-1, 1e-5));
    check("cumsum", &[&[6, 3]], |x| x[0].cumsum(0));
}

#[test]
fn sharded_products_match_one_device() {
    check("matmul", &[&[6, 5], &[5, 7]], |x| x[0].matmul(&x[1]));
    check("batched matmul", &[&[3, 4, 5], &[3, 5, 2]], |x| x[0].matmul(&x[1]));
    check("chain", &[&[4, 6], &[6, 8], &[8, 3]], |x| x[0].matmul(&x[1]).relu().matmul(&x[2]));
}

#[test]
fn sharded_convolutions_match_one_device() {
    check("conv2d", &[&[4, 3, 5, 5], &[6, 3, 3, 3]], |x| {
        x[0].conv2d(&x[1], Conv::new().padding(1))
    });
    check("max_pool2d", &[&[4, 2, 6, 6]], |x| x[0].max_pool2d(2, Pool::new()));
}

#[test]
fn sharded_losses_and_indexing_match_one_device() {
    let classes = Tensor::new([0, 2, 1, 2, 0, 1]).realize().unwrap();
    check("cross entropy", &[&[6, 3]], |x| {
        let target = if x[0].device().is_multi_device() {
            classes.shard(&x[0].devices(), 0)
        } else {
            classes.clone()
        };
        x[0].cross_entropy(&target, CrossEntropy::new()).reshape([1])
    });
    let rows = Tensor::new([4, 0, 4, 2]).realize().unwrap();
    check("index_select", &[&[6, 3]], |x| {
        let rows = if x[0].device().is_multi_device() {
            rows.shard(&x[0].devices(), None)
        } else {
            rows.clone()
        };
        x[0].index_select(0, &rows) * 2.0
    });
    check("masked", &[&[6, 3]], |x| x[0].tril(0) * 2.0);
}
