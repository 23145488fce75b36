//! Number of kernels of a graph; no kernel writes a buffer that nothing reads.

use crate::common::noise;
use picograd::exec::ScheduleItem;
use picograd::ir::Op;
use picograd::tensor::{Attention, Conv, keepdim};
use picograd::{DType, Tensor};

fn kernels(tensors: &[&Tensor]) -> usize {
    let items = Tensor::schedule_many(tensors).unwrap();
    assert!(
        items.iter().all(|i| matches!(i, ScheduleItem::Kernel { .. })),
        "only kernels expected"
    );
    no_dead_store(&items);
    items.len()
}

/// Every buffer that a kernel writes is an output or is read by a later kernel.
fn no_dead_store(items: &[ScheduleItem]) {
    for (i, item) in items.iter().enumerate() {
        let ScheduleItem::Kernel { ast, buffers, .. } = item else { continue };
        for b in &buffers[..ast.src().len()] {
            let read = items[i + 1..].iter().any(|later| match later {
                ScheduleItem::Kernel { ast, buffers, .. } => buffers[ast.src().len()..]
                    .iter()
                    .any(|x| format!("{:?}", x.buffer) == format!("{:?}", b.buffer)),
                ScheduleItem::Copy { .. } => false,
            });
            assert!(
                read || b.role == picograd::schedule::Role::Output,
                "kernel {i} writes a buffer that nothing reads: {item}"
            );
        }
    }
}

#[track_caller]
fn check(name: &str, most: usize, tensors: &[&Tensor]) {
    let n = kernels(tensors);
    assert_eq!(n, most, "{name}: {n} kernels, expected {most}");
}

#[test]
fn elementwise_chains_are_one_kernel() {
    let (a, b) = (noise(&[64, 32]), noise(&[64, 32]));
    check("relu(a*b+1)", 1, &[&(&a * &b + 1.0).relu()]);
    check("gelu", 1, &[&a.gelu()]);
    check("arange", 1, &[&Tensor::arange(0, 100, 1)]);
    check("cat", 1, &[&Tensor::cat(&[a.clone(), b.clone()], 0)]);
}

#[test]
fn products_fuse_their_epilogue() {
    let (a, b, c, d) = (noise(&[64, 48]), noise(&[48, 32]), noise(&[64, 20]), noise(&[20, 32]));
    let bias = noise(&[32]);
    check("a@b", 1, &[&a.matmul(&b)]);
    check("a@b+c@d", 1, &[&(a.matmul(&b) + c.matmul(&d))]);
    check("matmul+bias+gelu", 1, &[&(a.matmul(&b) + &bias).gelu()]);
    check("(a@b)@b.t", 2, &[&a.matmul(&b).matmul(&b.t())]);
    let (x, w, bias) = (noise(&[2, 8, 12, 12]), noise(&[16, 8, 3, 3]), noise(&[16]));
    check("conv2d+bias+relu", 1, &[&x.conv2d(&w, Conv::new().padding(1).bias(&bias)).relu()]);
}

#[test]
fn softmax_and_norms_of_rows_are_one_kernel() {
    let x = noise(&[64, 128]);
    check("softmax", 1, &[&x.softmax(-1)]);
    check("log_softmax", 1, &[&x.log_softmax(-1)]);
    check("logsumexp", 1, &[&x.logsumexp(-1)]);
    check("layernorm", 1, &[&x.layernorm(-1, 1e-5)]);
    check("rmsnorm", 1, &[&x.rmsnorm(-1, 1e-5)]);
    check("var", 1, &[&x.var(-1, 1)]);
    check("std", 1, &[&x.std(-1, 1)]);
    check("var of everything", 1, &[&noise(&[32, 10]).var([0, 1], 1)]);
    check("reduce, broadcast, reduce", 1, &[&(&x - x.sum(keepdim(1))).square().sum(1)]);
    check("softmax of few rows", 1, &[&noise(&[8, 8192]).softmax(-1)]);
    check("softmax of one row", 1, &[&noise(&[1, 1000]).softmax(-1)]);
    // A row of 1 MiB does not stay in a cache while it is read twice. Nothing runs on this device,
    // so it costs no memory.
    let long = Tensor::zeros([512, 1 << 18]).to("NULL").contiguous().realize().unwrap();
    check(
        "reduce, broadcast, reduce of long rows",
        2,
        &[&(&long - long.sum(keepdim(1))).square().sum(1)],
    );
}

#[test]
fn independent_outputs_share_a_kernel() {
    let (x, y) = (noise(&[50, 20]), noise(&[30, 40]));
    check("x.sum()+y.sum()", 1, &[&(x.sum([0, 1]) + y.sum([0, 1]))]);
    let z = noise(&[50, 20]);
    check("two elementwise outputs", 1, &[&(&x * 2.0), &(&x + &z)]);
    check("one output from another", 1, &[&x.relu(), &(x.relu() * 3.0)]);
    check("mean and var", 1, &[&x.mean(1), &x.var(1, 1)]);
}

#[test]
fn a_full_sum_is_two_kernels() {
    let x = Tensor::zeros([1 << 24]).contiguous().realize().unwrap();
    let n = kernels(&[&x.sum(0)]);
    assert!(n <= 2, "{n} kernels");
}

#[test]
fn attention_is_three_kernels() {
    let [q, k, v] = [(); 3].map(|_| noise(&[2, 4, 32, 16]));
    let n = kernels(&[&q.scaled_dot_product_attention(&k, &v, Attention::new())]);
    assert!(n <= 3, "{n} kernels");
    let n = kernels(&[&q.scaled_dot_product_attention(&k, &v, Attention::new().causal())]);
    assert!(n <= 3, "{n} kernels");
}

#[test]
fn realized_values_are_not_recomputed() {
    let x = noise(&[4, 6]);
    check("a buffer", 0, &[&x]);
    check("a reshaped buffer", 0, &[&x.reshape([6, 4])]);
    check("an empty tensor", 0, &[&Tensor::zeros([0, 3])]);
    check("a transposed buffer", 1, &[&x.t()]);
    check("a sum over nothing", 1, &[&Tensor::zeros([0, 3]).sum(0)]);
    check("a cast to the same", 0, &[&x.cast(DType::F32)]);
}

/// A sum of products adds each product before rounding it (fma). A product and an addition written
/// by the user stay separate.
#[test]
fn sums_of_products_are_fused() {
    let x = |shape: &[usize]| Tensor::zeros(shape).contiguous().to("NULL").realize().unwrap();
    let (a, b) = (x(&[64, 48]), x(&[48, 32]));
    let count = |t: &Tensor, op: Op| -> usize {
        let items = t.schedule().unwrap();
        let of = |i: &ScheduleItem| {
            i.compile()
                .unwrap()
                .compiled()
                .unwrap()
                .program
                .uops
                .iter()
                .filter(|u| u.op() == op && u.dtype().is_float())
                .count()
        };
        items.iter().map(of).sum()
    };
    let product = a.matmul(&b);
    assert!(count(&product, Op::Fma) > 0 && count(&product, Op::Mul) == 0);
    let by_hand = &a * &a + 1.5;
    assert!(count(&by_hand, Op::Fma) == 0 && count(&by_hand, Op::Mul) > 0);
    // A sum of anything but a product is not contracted.
    let inside = (&a * &a + 1.5).sum(1);
    assert!(count(&inside, Op::Fma) == 0 && count(&inside, Op::Mul) > 0);
}

#[test]
fn long_dot_products_are_split_on_gpus() {
    let on = |device: &str| {
        let (a, b) = (noise(&[32, 2048]).to(device), noise(&[2048, 32]).to(device));
        Tensor::realize_many(&[&a, &b]).unwrap();
        (a.matmul(&b), a.matmul(&b.i((.., 0))))
    };
    let (product, vector) = on("INTERP");
    check("many threads", 2, &[&product]);
    check("a matrix by a vector: no element is reused", 1, &[&vector]);
    let (plain, _) = on("CPU");
    check("few threads", 1, &[&plain]);
    let (cut, whole) = (product.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
    assert!(
        cut.iter().zip(&whole).all(|(x, y)| (x - y).abs() < 1e-3),
        "{:?} {:?}",
        &cut[..4],
        &whole[..4]
    );
    assert!(whole.iter().any(|x| x.abs() > 1.0));
    // The partial sums of the gradient of convolution weights.
    let gradient = |device: &str| {
        let (x, w) =
            (noise(&[64, 16, 10, 10]).to(device), noise(&[16, 16, 3, 3]).to(device).as_param());
        x.conv2d(&w, Conv::new()).square().sum(..).gradient(&[&w]).remove(0)
    };
    let (found, expected) = (gradient("INTERP"), gradient("CPU"));
    let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    assert!(
        found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-4 * largest),
        "{:?} {:?}",
        &found[..4],
        &expected[..4]
    );
}
