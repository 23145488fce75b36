//! Cost of scheduling in visits of nodes: it grows with the graph, not with tensor sizes or the
//! number of live tensors.

use crate::serial;
use picograd::Tensor;
use picograd::ir::visits;
use picograd::tensor::{Pool, keepdim};

/// An input on a device that runs nothing.
fn input(n: usize) -> Tensor {
    Tensor::zeros([n]).to("null").contiguous().realize().unwrap().as_param()
}

/// The number of visits while `f` runs.
fn visited(f: impl FnOnce()) -> u64 {
    let before = visits();
    f();
    visits() - before
}

type Case = (&'static str, fn(&Tensor) -> Tensor);

fn square(x: &Tensor) -> Tensor {
    let n = x.numel().isqrt();
    x.i(..n * n).reshape([n, n])
}

const CASES: &[Case] = &[
    ("add", |x| x + 1.0),
    ("tanh", |x| x.tanh()),
    ("sum", |x| x.sum(..)),
    ("prod", |x| x.prod(..)),
    ("prod_rows", |x| square(x).prod(1)),
    ("max", |x| x.max(..)),
    ("mean", |x| x.mean(..)),
    ("var", |x| x.var(.., 1)),
    ("softmax", |x| x.softmax(-1)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("matmul", |x| square(x).matmul(&square(x).t())),
    ("max_pool2d", |x| {
        square(x)
            .reshape([1, 1, x.numel().isqrt(), x.numel().isqrt()])
            .max_pool2d(3, Pool::new().stride(2))
    }),
    ("cumsum", |x| x.cumsum(0)),
    ("max_rows", |x| square(x).max(keepdim(1))),
    ("flip", |x| x.flip(0)),
    ("pad", |x| x.pad(&[(1, 2)])),
    ("clamp", |x| x.clamp(-1.0, 1.0)),
    ("pow", |x| x.pow(3.0)),
];

/// The cost of an op and its gradient depends on its graph: ten thousand times the elements add at
/// most a level or two to a tree.
#[test]
fn scheduling_does_not_grow_with_sizes() {
    let _guard = serial();
    let mut wrong = Vec::new();
    for (name, op) in CASES {
        let cost = |n: usize| {
            let x = input(n);
            let y = op(&x);
            let forward = visited(|| drop(y.schedule().unwrap()));
            let gradient = y.sum(..).gradient(&[&x]).remove(0);
            let nodes = gradient.uop().toposort().len() as u64;
            (forward, visited(|| drop(gradient.schedule().unwrap())), nodes)
        };
        let costs: Vec<(u64, u64, u64)> =
            [1_000, 10_000, 100_000, 1_000_000, 10_000_000].map(cost).to_vec();
        eprintln!("{name}: {costs:?}");
        // Visits per node of the graph, whose depth is logarithmic for a tree.
        let each = |c: &(u64, u64, u64)| c.1 as f64 / c.2 as f64;
        let (first, last) = (&costs[0], &costs[costs.len() - 1]);
        if each(last) > 4.0 * each(first) || last.0 > 5 * first.0 || last.2 > 4 * first.2 {
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A realization visits equally many nodes with and without many other live tensors, lazy or
/// stored.
#[test]
fn realization_cost_ignores_other_tensors() {
    let _guard = serial();
    let step = || {
        let x = Tensor::new([1.0f32, 2.0, 3.0]);
        let (y, z) = (&x * 2.0, &x + 1.0);
        let total = (&y + &z).sum(..);
        Tensor::realize_many(&[&y, &z]).unwrap();
        x.assign(&x + 1.0).unwrap();
        assert_eq!(
            (x.to_vec::<f32>().unwrap(), total.item::<f32>().unwrap()),
            (vec![2.0, 3.0, 4.0], 21.0)
        );
    };
    step();
    let alone = visited(step);
    let stored: Vec<Tensor> = (0..20_000).map(|i| Tensor::new([i])).collect();
    let base = Tensor::new([1.0f32]);
    let lazy: Vec<Tensor> = (0..20_000).map(|i| &base * i as f64 + 1.0).collect();
    // The first realization visits new nodes; later ones do not.
    step();
    let beside: Vec<u64> = (0..3).map(|_| visited(step)).collect();
    drop((stored, lazy));
    assert!(
        beside.iter().all(|v| *v <= 2 * alone),
        "{alone} visits alone, {beside:?} with 40,000 live tensors"
    );
}

/// Reading many lazy tensors one by one visits each a constant number of times.
#[test]
fn reading_one_by_one_is_linear() {
    let _guard = serial();
    let cost = |n: usize| {
        let base = Tensor::new([1.0f32]);
        let list: Vec<Tensor> = (0..n).map(|i| &base + Tensor::new([i as f32])).collect();
        visited(|| list.iter().for_each(|t| drop(t.to_vec::<f32>().unwrap()))) / n as u64
    };
    let (few, many) = (cost(50), cost(400));
    assert!(many <= 2 * few, "{few} visits for each of 50, {many} for each of 400");
}

/// A stack of many tensors visits each a bounded number of times, and fewer if the plan is cached.
#[test]
fn a_stack_is_linear_in_its_tensors() {
    let _guard = serial();
    let cost = |n: usize| {
        let parts: Vec<Tensor> =
            (0..n).map(|i| Tensor::new([i as f32; 4]).realize().unwrap()).collect();
        let run = || drop(Tensor::stack(&parts, 0).realize().unwrap());
        (visited(run) as f64 / n as f64, visited(run) as f64 / n as f64)
    };
    let (few, many) = (cost(50), cost(1000));
    assert!(
        many.0 <= 2.0 * few.0,
        "planning visits {} times each of 50 tensors, {} times each of 1000",
        few.0,
        many.0
    );
    assert!(
        many.1 <= 8.0 && few.1 <= 8.0,
        "a run visits {} times each of 50 tensors, {} times each of 1000",
        few.1,
        many.1
    );
}

/// A chain of ops is split into kernels of bounded size, so compile time is linear in the chain.
#[test]
fn long_chains_are_split_into_kernels() {
    let _guard = serial();
    let kernels = |n: usize| {
        let x = Tensor::zeros([16]).to("null").contiguous().realize().unwrap();
        let y = (0..n).fold(x, |y, i| if i % 2 == 0 { &y * 1.5 } else { &y + 0.5 });
        let mut sizes = Vec::new();
        let visits = visited(|| {
            for item in y.schedule().unwrap() {
                if let picograd::exec::ScheduleItem::Kernel { ast, .. } = &item {
                    sizes.push(ast.toposort().len());
                }
            }
        });
        (visits as f64 / n as f64, sizes)
    };
    let (few, short) = kernels(1_000);
    let (many, long) = kernels(50_000);
    assert_eq!(short.len(), 1);
    assert!(long.len() >= 50_000 / 5_000 && long.len() <= 200, "{} kernels", long.len());
    assert!(long.iter().all(|size| *size <= 8_192), "{:?}", long.iter().max());
    assert!(many <= 4.0 * few, "{few} visits for each of 1,000 ops, {many} for each of 50,000");
}
