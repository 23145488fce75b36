//! Cost of scheduling in visits of nodes: it grows with the graph, not with tensor sizes or the
//! number of live tensors.

use crate::serial;
use crate::visit_cases::CASES;
use picograd::Tensor;
use picograd::ir::visits;

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

/// The cost of scheduling a graph: the visits, and the nodes of the graph.
#[derive(Clone, Copy, Debug)]
struct Cost {
    visits: u64,
    nodes: u64,
}

impl Cost {
    fn of(y: &Tensor) -> Cost {
        let nodes = y.uop().toposort().len() as u64;
        Cost { visits: visited(|| drop(y.schedule().unwrap())), nodes }
    }
    fn each(self) -> f64 {
        self.visits as f64 / self.nodes as f64
    }
}

/// Maximum growth of a graph from 1,000 to 10,000,000 elements. A tree has 2.3 times as many
/// levels, and a sorting network the square of that.
const MAX_GROWTH: u64 = 6;

/// Maximum growth of the visits of a node. A long sum is split into three kernels in place of one,
/// and an odd length is padded in each. The elements grow by 10,000, the sides of a matrix by 100.
const MAX_EACH: f64 = 10.0;

/// Returns the reason why the costs at increasing sizes grow with the size.
fn growth(costs: &[Cost]) -> Option<String> {
    let (first, last) = (costs[0], costs[costs.len() - 1]);
    let grows = last.each() > MAX_EACH * first.each() || last.nodes > MAX_GROWTH * first.nodes;
    grows.then(|| format!("{costs:?}"))
}

/// Scheduling an op and its gradient visits each node of the graph a bounded number of times, and
/// the graph does not grow with the elements.
#[test]
fn scheduling_does_not_grow_with_sizes() {
    let _guard = serial();
    let mut wrong = Vec::new();
    for (name, op) in CASES {
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        for n in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
            let x = input(n);
            let y = op(&x);
            forward.push(Cost::of(&y));
            if y.requires_grad() {
                let gradient = y.sum(..).gradient(&[&x]).remove(0);
                backward.push(Cost::of(&gradient));
            }
        }
        eprintln!("{name}: {forward:?}, {backward:?}");
        wrong.extend(growth(&forward).map(|why| format!("{name}: {why}")));
        if !backward.is_empty() {
            wrong.extend(growth(&backward).map(|why| format!("gradient of {name}: {why}")));
        }
    }
    assert!(CASES.len() > 120, "{} cases", CASES.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
