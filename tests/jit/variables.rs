//! Symbolic dimensions: the same values as with literal sizes, and one set of kernels for all
//! values.

use super::alone;
use picograd::exec::ScheduleItem;
use picograd::heuristic;
use picograd::lower::Program;
use picograd::nn::Layer;
use picograd::opt::Kernel;
use picograd::render::{Cuda, Renderer, Wgsl};
use picograd::target::Target;
use picograd::tensor::{Attention, keepdim};
use picograd::{DType, Device, SymInt, Tensor, Variable, compile, device, opt};
use std::rc::Rc;

const MAX: i64 = 9;

pub(super) fn data(shape: &[usize], device: &str) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 16.0).collect();
    Tensor::new(values).reshape(shape).to(device).realize().unwrap()
}

fn bound(n: i64) -> SymInt {
    Variable::new("n", 1, MAX).unwrap().bind(n).unwrap()
}

/// The value of a lazy tensor by the reference evaluator.
pub(super) fn plain(t: &Tensor) -> Vec<f32> {
    let read =
        |s: &picograd::ir::StorageRef| picograd::compiler::device::Buffer::of(s).read().unwrap();
    picograd::reference::evaluate(&[t.uop()], &read).remove(0).to_vec()
}

/// Compares slices to a variable with slices to its value.
fn agree(name: &str, device: &str, f: impl Fn(&dyn Fn(&Tensor) -> Tensor) -> Tensor) {
    let mut compiled = Vec::new();
    for n in [4, 1, MAX] {
        let before = device::counters().compiled;
        let symbolic = f(&|x| x.i(..bound(n)));
        let got = symbolic.to_vec::<f32>().unwrap();
        compiled.push(device::counters().compiled - before);
        let numbers = f(&|x| x.i(..n));
        assert_eq!(symbolic.shape(), numbers.shape(), "{name} on {device} for {n}");
        let expected = plain(&numbers);
        assert_eq!(got.len(), expected.len(), "{name} on {device} for {n}");
        for (a, b) in got.iter().zip(&expected) {
            assert!(
                (a - b).abs() <= 1e-5 * b.abs().max(1.0),
                "{name} on {device} for {n}: {got:?} and {expected:?}"
            );
        }
    }
    assert!(
        compiled[1..].iter().all(|c| *c == 0),
        "{name} on {device} was compiled again: {compiled:?}"
    );
}

fn everywhere(name: &str, f: impl Fn(&dyn Fn(&Tensor) -> Tensor, &str) -> Tensor) {
    for device in picograd::testing::devices() {
        agree(name, device, |cut| f(cut, device));
    }
}

#[test]
fn symbolic_elementwise_ops_match_literal_sizes() {
    let _alone = alone();
    everywhere("add", |cut, d| cut(&data(&[12, 5], d)) * 2.0 + cut(&data(&[9, 5], d)));
    everywhere("one axis", |cut, d| cut(&data(&[9], d)).exp());
    everywhere("broadcast", |cut, d| cut(&data(&[9, 4], d)) + data(&[4], d) + data(&[1, 4], d));
    everywhere("product of both", |cut, d| cut(&data(&[9], d)).unsqueeze(1) * cut(&data(&[9], d)));
    everywhere("moved", |cut, d| {
        cut(&data(&[9, 2, 6], d)).permute([2, 0, 1]).reshape([3, 2, -1, 2]).flip([0]).contiguous()
    });
    everywhere("many axes", |cut, d| {
        cut(&data(&[9, 2, 3, 4, 5], d)).permute([4, 0, 3, 2, 1]) + data(&[5, 1, 4, 3, 2], d)
    });
    everywhere("cast", |cut, d| cut(&data(&[9, 2], d)).cast(DType::I32).cast(DType::F32));
}

#[test]
fn symbolic_reductions_match_literal_sizes() {
    let _alone = alone();
    for axes in [vec![0isize], vec![1], vec![0, 1]] {
        everywhere("sum", |cut, d| cut(&data(&[9, 40], d)).sum(&axes[..]));
        everywhere("mean", |cut, d| cut(&data(&[9, 40], d)).mean(&axes[..]));
        everywhere("max", |cut, d| cut(&data(&[9, 40], d)).max(&axes[..]));
        everywhere("min", |cut, d| cut(&data(&[9, 40], d)).min(&axes[..]));
        everywhere("prod", |cut, d| cut(&data(&[9, 4], d)).prod(&axes[..]));
        everywhere("var", |cut, d| cut(&data(&[9, 40], d)).var(&axes[..], 0));
    }
    everywhere("argmax", |cut, d| cut(&data(&[9, 3], d)).argmax(0).cast(DType::F32));
    agree("long", "CPU", |cut| cut(&data(&[9, 1 << 12], "CPU")).sum(..));
}

#[test]
fn softmax_norms_and_losses_match_literal_sizes() {
    let _alone = alone();
    everywhere("softmax over it", |cut, d| cut(&data(&[9, 3], d)).softmax(0));
    everywhere("softmax along another axis", |cut, d| cut(&data(&[9, 24], d)).softmax(-1));
    everywhere("logsumexp", |cut, d| cut(&data(&[9, 3], d)).logsumexp(0));
    everywhere("layernorm", |cut, d| cut(&data(&[9, 8], d)).layernorm(-1, 1e-5));
    everywhere("a sum that is stored and read again", |cut, d| {
        let sums = cut(&data(&[9, 8], d)).sum(1).contiguous();
        &sums / sums.sum(0)
    });
    everywhere("mean squared", |cut, d| {
        cut(&data(&[9, 8], d))
            .mse_loss(&cut(&data(&[9, 8], d).exp()), picograd::tensor::Reduction::Mean)
    });
}

#[test]
fn symbolic_matmuls_match_literal_sizes() {
    let _alone = alone();
    everywhere("rows", |cut, d| cut(&data(&[9, 16], d)).matmul(&data(&[16, 24], d)));
    everywhere("columns", |cut, d| data(&[8, 16], d).matmul(&cut(&data(&[9, 16], d)).t()));
    everywhere("the sum", |cut, d| cut(&data(&[9, 16], d)).t().matmul(&cut(&data(&[9, 24], d))));
    everywhere("rows and columns", |cut, d| {
        cut(&data(&[9, 16], d)).matmul(&cut(&data(&[9, 16], d)).t())
    });
    everywhere("a batch", |cut, d| cut(&data(&[9, 4, 8], d)).matmul(&data(&[8, 4], d)));
    everywhere("causal attention", |cut, d| {
        let x = cut(&data(&[9, 8], d));
        x.scaled_dot_product_attention(&x, &x, Attention::new().causal())
    });
}

#[test]
fn two_variables_and_their_sums_are_sizes() {
    let _alone = alone();
    let (n, m) = (Variable::new("n", 1, 6).unwrap(), Variable::new("m", 0, 5).unwrap());
    let (x, mut first) = (data(&[12, 11], "CPU"), None);
    for (a, b) in [(2, 3), (1, 0), (6, 5), (3, 1), (5, 4)] {
        let (n, m) = (n.bind(a).unwrap(), m.bind(b).unwrap());
        let before = device::counters().compiled;
        let part = x.i((m.clone()..&m + &n, ..&n + &m)).exp();
        let got = [part.sum(0), part.sum(1), part.mean(..).unsqueeze(0)]
            .map(|t| t.to_vec::<f32>().unwrap());
        let compiled = device::counters().compiled - before;
        assert!(first.is_none() || compiled == 0, "{compiled} kernels were compiled again");
        first = Some(());
        assert_eq!(part.shape(), [a as usize, (a + b) as usize]);
        let part = x.i((b..b + a, ..a + b)).exp();
        let expected = [part.sum(0), part.sum(1), part.mean(..).unsqueeze(0)].map(|t| plain(&t));
        for (g, e) in got.iter().flatten().zip(expected.iter().flatten()) {
            assert!((g - e).abs() <= 1e-5 * e.abs(), "{a} {b}: {got:?} {expected:?}");
        }
        // The variable itself is an operand.
        assert_eq!((Tensor::from(&n) * 10 + &m).item::<i32>().unwrap() as i64, a * 10 + b);
    }
}

#[test]
fn a_realized_symbolic_tensor_can_be_read_and_printed() {
    let _alone = alone();
    let x = data(&[8, 3], "CPU");
    for n in [2usize, 5] {
        let n = Variable::new("rows", 1, 6).unwrap().bind(n as i64).unwrap();
        let y = (x.i(..&n) * 2.0).realize().unwrap();
        let rows = n.value() as usize;
        assert_eq!(format!("{y:?}"), format!("<Tensor f32 [rows={rows}, 3] on CPU: Buffer>"));
        assert_eq!(
            (y.shape(), y.max_shape(), y.numel(), y.size(0)),
            (vec![rows, 3], vec![6, 3], rows * 3, rows)
        );
        assert_eq!(y.to_rows::<f32>().unwrap().len(), rows);
        assert_eq!(y.to_string().lines().count(), rows);
        let expected = (x.i(..rows) * 2.0 + 1.0).sum(0).to_vec::<f32>().unwrap();
        assert_eq!((&y + 1.0).sum(0).to_vec::<f32>().unwrap(), expected);
        let there = (y.to("INTERP") + 1.0).sum(0);
        assert_eq!(there.to_vec::<f32>().unwrap(), expected);
        y.assign(&y - 1.0).unwrap();
        assert_eq!(
            y.sum(..).item::<f32>().unwrap(),
            (x.i(..rows) * 2.0 - 1.0).sum(..).item::<f32>().unwrap()
        );
    }
}

#[test]
fn variables_are_valid_shape_sizes() {
    let _alone = alone();
    let n = Variable::new("n", 1, MAX).unwrap();
    let mut compiled = Vec::new();
    for v in [4, 1, MAX] {
        let (b, rows) = (n.bind(v).unwrap(), v as usize);
        let before = device::counters().compiled;
        let ones = Tensor::ones((&b, 3, 2));
        assert_eq!((ones.shape(), ones.max_shape()), (vec![rows, 3, 2], vec![MAX as usize, 3, 2]));
        assert_eq!(ones.sum(..).item::<f32>().unwrap(), 6.0 * v as f32);
        assert_eq!(ones.reshape((&b, -1)).sum(1).to_vec::<f32>().unwrap(), vec![6.0; rows]);
        assert_eq!(ones.view((b.clone(), 2, 3usize)).shape(), [rows, 2, 3]);
        assert_eq!(Tensor::full((2, &b + 1), 7).to_vec::<i32>().unwrap(), vec![7; 2 * (rows + 1)]);
        let line = Tensor::new([[5.0f32], [6.0]]).expand((2, &b));
        assert_eq!(line.to_rows::<f32>().unwrap(), [vec![5.0; rows], vec![6.0; rows]]);
        assert_eq!(
            Tensor::new([1.0f32, 2.0]).expand((&b, -1)).sum(0).to_vec::<f32>().unwrap(),
            [v as f32, 2.0 * v as f32]
        );
        let x = data(&[MAX as usize, 3], "CPU");
        let part = x.shrink_to((&b, 2));
        assert_eq!(
            (part.shape(), part.to_vec::<f32>().unwrap()),
            (vec![rows, 2], plain(&x.i((..v, ..2))))
        );
        compiled.push(device::counters().compiled - before);
        // Random numbers, and ops without a kernel.
        let drawn = [
            Tensor::rand((&b, 2)),
            Tensor::randn((2, &b)),
            Tensor::uniform(&b, 1.0, 2.0),
            Tensor::zeros((&b, 2)),
            Tensor::empty((&b,)),
        ];
        assert_eq!(drawn.map(|t| t.numel()), [2 * rows, 2 * rows, rows, 2 * rows, rows]);
        assert!(
            Tensor::randint((&b, 2), 3, 5)
                .to_vec::<i32>()
                .unwrap()
                .iter()
                .all(|x| (3..5).contains(x))
        );
        assert_eq!(Tensor::random_bits(b).numel(), rows);
    }
    assert!(
        compiled[1..].iter().all(|c| *c == 0),
        "one set of kernels serves all values: {compiled:?}"
    );
    let (five, x) = (n.bind(5).unwrap(), data(&[9, 6], "CPU"));
    refused(x.try_reshape((&five, 2, 3)), &["reshape: expected size n=5 along axis 0, got 9"]);
    refused(x.i(..&five).try_reshape((&five + 1, 2, 3)), &["reshape"]);
    refused(
        x.i(..&five).try_reshape((n.bind(4).unwrap(), 6)),
        &["expected size n=4 along axis 0, got n=5"],
    );
    refused(x.try_expand((&five, 6)), &["expand: expected size n=5 along axis 0, got 9"]);
    refused(x.try_shrink_to((&five * 2, 6)), &["0..18 is not within axis 0 of [9, 6]"]);
    refused(Tensor::try_zeros((&five - 1, 2)), &["zeros", "at least one element"]);
}

#[test]
fn like_constructors_keep_symbolic_sizes() {
    let _alone = alone();
    let default = Device::default().unwrap();
    let (x, n) = (data(&[8, 6], default.name().as_str()), Variable::new("n", 1, 8).unwrap());
    for v in [5, 8, 1] {
        let (p, rows) = (x.i(..n.bind(v).unwrap()), v as usize);
        assert_eq!(p.ones_like().sum(0).to_vec::<f32>().unwrap(), [v as f32; 6]);
        assert_eq!((p.rand_like().shape(), p.randn_like().shape()), (vec![rows, 6], vec![rows, 6]));
        assert!(p.rand_like().sum(..).item::<f32>().unwrap() < 6.0 * v as f32);
        assert_eq!(p.cast(DType::I32).isinf().shape(), [rows, 6]);
        let y = p.contiguous().realize().unwrap();
        y.assign(2.0).unwrap();
        assert_eq!((y.shape(), y.sum(..).item::<f32>().unwrap()), (vec![rows, 6], 12.0 * v as f32));
        let dropped = p.ones_like().dropout(0.5);
        assert_eq!(dropped.shape(), [rows, 6]);
        assert!(dropped.to_vec::<f32>().unwrap().iter().all(|d| *d == 0.0 || *d == 2.0));
        let numbers = x.i(..v);
        assert_eq!(
            p.pad_with(&[(0, 0), (1, 2)], 3.0).to_vec::<f32>().unwrap(),
            plain(&numbers.pad_with(&[(0, 0), (1, 2)], 3.0))
        );
        assert_eq!(p.triu(1).to_vec::<f32>().unwrap(), plain(&numbers.triu(1)));
        assert_eq!(
            p.cumsum(1).to_vec::<f32>().unwrap(),
            numbers.cumsum(1).to_vec::<f32>().unwrap()
        );
        let line = x.i((.., 0)).contiguous().i(..n.bind(v).unwrap());
        assert_eq!(
            line.argmax(..).item::<i32>().unwrap(),
            x.i((..v, 0)).argmax(..).item::<i32>().unwrap()
        );
        // Layers accept it as batch size or length.
        let (embedding, attention) =
            (picograd::nn::Embedding::new(8, 4), picograd::nn::MultiHeadAttention::new(6, 2));
        let places = Tensor::arange(0, 8, 1).i(..n.bind(v).unwrap());
        assert_eq!(
            embedding.forward(&places).to_vec::<f32>().unwrap(),
            embedding.forward(&Tensor::arange(0, v, 1)).to_vec::<f32>().unwrap()
        );
        let [a, b] = [p.unsqueeze(0), numbers.unsqueeze(0)]
            .map(|x| attention.attend(&x, &x, &x, None).to_vec::<f32>().unwrap());
        assert!(
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5),
            "{a:?} {b:?}"
        );
    }
    // A variable with a single possible value is a number.
    let one = Variable::new("one", 1, 1).unwrap().bind(1).unwrap();
    assert_eq!((x.i(..&one) + &x).shape(), [8, 6]);
    let all = Variable::new("all", 8, 8).unwrap().bind(8).unwrap();
    assert_eq!((x.i(..&all) + &x).to_vec::<f32>().unwrap(), plain(&(&x + &x)));
    // A variable beyond 32 bits has a wider dtype.
    let large = n.bind(3).unwrap() * 5_000_000_000;
    assert_eq!(Tensor::from(&large).item::<i64>().unwrap(), 15_000_000_000);
    // Label smoothing divides by the runtime number of classes.
    let how = || picograd::tensor::CrossEntropy::new().label_smoothing(0.1);
    let columns = |x: Tensor| x.t().contiguous();
    let p = columns(x.softmax(1).i(..n.bind(5).unwrap()));
    let q = columns(x.softmax(1).i(..5));
    let [a, b] = [&p, &q].map(|p| p.cross_entropy(p, how()).item::<f32>().unwrap());
    assert!((a - b).abs() < 1e-5, "{a} {b}");
}

#[test]
fn every_opt_preserves_values() {
    let _alone = alone();
    let target = Device::get("INTERP").unwrap().target().clone();
    let graphs: [fn(&Tensor) -> Tensor; 6] = [
        |x| x.sum(0),
        |x| x.sum(1),
        |x| x.softmax(0),
        |x| x + 1.0,
        |x| x.matmul(&x.t()),
        |x| x.t().matmul(x),
    ];
    let stored = data(&[9, 16], "INTERP");
    for graph in graphs {
        let fresh = || graph(&stored.i(..bound(5)));
        let expected = fresh().to_vec::<f32>().unwrap();
        let items = fresh().schedule().unwrap();
        let Some(ScheduleItem::Kernel { ast, .. }) = items.last() else { panic!("a kernel") };
        let next = heuristic::actions(&Kernel::new(ast.clone()), &target);
        let padded = |k: &&Kernel| k.opts[0].op == opt::OptOp::PadTo;
        let longer: Vec<Kernel> =
            next.iter().filter(padded).flat_map(|k| heuristic::actions(k, &target)).collect();
        assert!(
            next.iter().any(|k| padded(&k)) && !longer.is_empty(),
            "a symbolic axis can be padded, and then split"
        );
        for k in next.iter().chain(&longer).step_by(3) {
            let (opts, used) = (k.opts.clone(), Rc::new(std::cell::Cell::new(0)));
            let count = used.clone();
            let chooser = move |k: &Kernel, t: &Target| match k.apply_all(&opts, t) {
                Ok(optimized) => {
                    count.set(count.get() + 1);
                    optimized
                }
                // The Opt applies to another kernel of the graph.
                Err(_) => k.clone(),
            };
            let got = compile::with_opt_policy(compile::OptPolicy::By(Rc::new(chooser)), || {
                fresh().to_vec::<f32>().unwrap()
            });
            assert!(used.get() > 0, "{} was applied to no kernel", opt::show(&k.opts));
            for (a, b) in got.iter().zip(&expected) {
                assert!(
                    (a - b).abs() <= 1e-5 * b.abs().max(1.0),
                    "{}: {got:?} and {expected:?}",
                    opt::show(&k.opts)
                );
            }
        }
    }
}

#[test]
fn gpu_launch_sizes_use_runtime_values() {
    let _alone = alone();
    let n = Variable::new("n", 1, 1024).unwrap().bind(37).unwrap();
    let x = Tensor::zeros([1024, 64]).contiguous().to("NULL").realize().unwrap();
    let program = |t: &Tensor, target: &Target| {
        let items = t.schedule().unwrap();
        let Some(ScheduleItem::Kernel { ast, buffers, .. }) = items.last() else {
            panic!("a kernel")
        };
        let program =
            compile::lowered(&heuristic::choose(&Kernel::new(ast.clone()), target), target)
                .unwrap();
        assert_eq!((buffers.len(), program.variables.names.len()), (program.args.len(), 1));
        program
    };
    let launch =
        |p: &Program| p.variables.launch(&p.launch, &|name| (name == "n").then_some(37)).grid;
    // One row per workgroup.
    let rows = program(&(x.i(..&n) + 1.0), &Target::cuda());
    assert_eq!(
        (launch(&rows), rows.launch.grid.contains(&1024)),
        ([37, 1, 1], true),
        "{:?}",
        rows.launch
    );
    // The sum of a column ends at the runtime size, which the kernel reads from its last argument.
    let x = Tensor::zeros([1024, 1 << 15]).contiguous().to("NULL").realize().unwrap();
    let ends_at_the_value = |text: &str| {
        let loops: Vec<&str> = text.lines().filter(|l| l.contains("for (")).collect();
        assert!(
            text.contains("data2")
                && !loops.is_empty()
                && !loops.iter().any(|l| l.contains("1024")),
            "{text}"
        );
    };
    let columns = program(&x.i(..&n).sum(0), &Target::cuda());
    ends_at_the_value(&Cuda::new("sm_90").render("columns", &columns.uops).unwrap().text());
    // With few rows, threads share each one.
    let few = program(&x.i((.., ..64)).i(..&n).sum(0), &Target::cuda());
    assert!(few.launch.local.iter().product::<usize>() >= 256, "{:?}", few.launch);
    ends_at_the_value(
        &Wgsl::default()
            .render("columns", &program(&x.i(..&n).sum(0), &Target::wgsl()).uops)
            .unwrap()
            .text(),
    );
    // A single axis has its upper bound and a mask, so that threads can share it.
    let line = program(
        &(x.reshape([32 << 20]).i(..Variable::new("n", 1, 50_000).unwrap().bind(37).unwrap())
            + 1.0),
        &Target::cuda(),
    );
    assert_eq!((line.launch.local[0], line.variables.grid.len()), (256, 0), "{:?}", line.launch);
    super::common::compile_for_cuda(&[rows, columns, few, line]);
}

/// Asserts that the result is an error whose message contains each part.
fn refused(result: picograd::Result<Tensor>, parts: &[&str]) {
    let message = result.expect_err("an error").to_string();
    assert!(parts.iter().all(|p| message.contains(p)), "{message:?} lacks one of {parts:?}");
}

#[test]
fn invalid_requests_are_errors() {
    let _alone = alone();
    let new =
        |name: &str, min: i64, max: i64| Variable::new(name, min, max).map(|_| Tensor::from(0));
    refused(new("2n", 1, 2), &["\"2n\"", "expected letters, digits and `_`, no digit first"]);
    refused(new("", 1, 2), &["\"\" is not a name"]);
    refused(new("n", 3, 2), &["invalid bounds 3..=2 of n"]);
    refused(new("n", -1, 2), &["invalid bounds -1..=2 of n"]);
    refused(new("n", 1, 1 << 40), &["expected 0 <= min <= max <= 2147483647"]);
    let n = Variable::new("n", 1, 8).unwrap();
    refused(n.bind(9).map(Tensor::from), &["bind: n is 9, outside 1..=8"]);
    refused(n.bind(0).map(Tensor::from), &["bind: n is 0, outside 1..=8"]);

    let (five, x) = (n.bind(5).unwrap(), data(&[8, 6], "CPU"));
    let part = x.i(..&five);
    refused(
        x.try_i((.., ..&five)),
        &["i: axis 1 of [8, 6]", "length n=5 (within 1..=8)", "within 0..6"],
    );
    refused(x.try_i(..&five - 1), &["at least one element"]);
    refused(x.try_i(&five..), &["the length of `n=5..` differs for each value", "expected an end"]);
    refused(x.try_i((&five, &five, &five)), &["3 indices for [8, 6], which has 2 axes"]);
    refused(part.try_i(..&five), &["axis 0 of [8, 6]", "symbolic size n=5 and cannot be sliced"]);
    refused(part.try_add(&x), &["add: shapes [n=5, 6] and [8, 6]", "n=5 and 8"]);
    refused(part.try_add(x.i(..n.bind(4).unwrap())), &["sizes n=5 and n=4"]);
    refused(part.try_add(x.i(..&five + 0).i((.., ..3))), &["do not broadcast"]);
    refused(
        part.try_reshape([-1]),
        &["reshape: axis 0 of symbolic size n=5 cannot be merged or split"],
    );
    refused(part.try_reshape([5, 2, 3]), &["upper bounds [8, 6] (max_shape)"]);
    refused(part.try_flip([0]), &["reversed"]);
    refused(part.try_i(0), &["cut"]);
    refused(part.try_pad(&[(1, 0), (0, 0)]), &["padded"]);
    refused(part.try_cumsum(0), &["cumsum: axis 0", "needs a number"]);
    refused(
        part.reshape([1, 1, 8, 6]).try_avg_pool2d([8, 6], picograd::tensor::Pool::new()),
        &["avg_pool2d: axis 2", "needs a number"],
    );
    refused(part.try_hash(), &["hash: axis 0"]);
    refused(picograd::nn::BatchNorm::new(6).try_forward(&part), &["BatchNorm in training: axis 0"]);
    refused(x.copy().replace(&part).map(|_| x.clone()), &["f32 [8, 6] by f32 [n=5, 6]"]);
    refused(
        part.try_shard(&["CPU:0", "CPU:1"], 1),
        &["shard: axis 0 of [n=5, 6] has the symbolic size n=5"],
    );
    refused(x.shard(&["CPU:0", "CPU:1"], 0).try_i(..&five), &["a symbolic slice of a tensor on"]);
    refused(
        Tensor::callify(&[&part], |x| Ok(vec![x[0].clone()])).map(|_| x.clone()),
        &["callify", "n=5"],
    );
    let (q, k) = (part.t(), part.t());
    refused(q.try_scaled_dot_product_attention(&k, &k, Attention::new()), &["needs a number"]);
    refused(x.copy().set(..&five, 0).map(|_| x.clone()), &["the symbolic length n=5"]);

    // Two values, or two variables, of one name in one realization.
    let both = |a: &Tensor, b: &Tensor| Tensor::realize_many(&[a, b]).map(|_| x.clone());
    refused(
        both(&part.sum(0), &x.i(..n.bind(4).unwrap()).sum(0)),
        &["realize: variable n has the values 5 and 4", "two names"],
    );
    let other = Variable::new("n", 1, 6).unwrap().bind(5).unwrap();
    refused(
        both(&part.sum(0), &x.i(..other).sum(0)),
        &["variable n has the bounds 1..=8 and 1..=6"],
    );

    // An error only if the gradient is needed: a slice by a variable may be a constant.
    let w = x.i(..3).copy().as_param();
    let at = Variable::new("at", 0, 5).unwrap().bind(2).unwrap();
    let g = (&w * x.i(at.clone()..&at + 3)).sum(..).gradient(&[&w]).remove(0);
    assert_eq!(g.to_vec::<f32>().unwrap(), x.i(2..5).to_vec::<f32>().unwrap());
    let w = x.copy().as_param();
    refused(
        w.i(..&five).sum(..).try_gradient(&[&w]).map(|g| g[0].clone()),
        &["has a symbolic size, which gradients do not support"],
    );
}

/// A random graph of ops on tensors of `[n, 6]`, and a reduction of it.
fn random_graph(seed: u64, cut: &dyn Fn(&Tensor) -> Tensor) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut t = cut(&data(&[9, 6], "CPU"));
    let other = cut(&data(&[11, 6], "CPU"));
    for _ in 0..2 + next(5) {
        t = match next(12) {
            0 => (&t * 0.25).exp(),
            1 => &t + &other,
            2 => &t - t.mean(keepdim(0)),
            3 => &t * t.max(keepdim(1)),
            4 => t.softmax(next(2) as isize),
            5 => t.permute([1, 0]).contiguous().permute([1, 0]),
            6 => t.matmul(&data(&[6, 6], "CPU")) * 0.1,
            7 => t.matmul(&other.t()).matmul(&other) * 0.01,
            8 => t.reshape([-1, 2, 3]).flip([2]).reshape([-1, 6]),
            9 => t.gt(0.1).where_(&t, &other),
            10 => t.contiguous(),
            _ => t.pad(&[(0, 0), (1, 2)]).i((.., 1..7)),
        };
    }
    match next(5) {
        0 => t.sum(0),
        1 => t.mean(..),
        2 => t.max(1),
        3 => t.var(0, 0),
        _ => t,
    }
}

#[test]
fn random_symbolic_graphs_match_literal_sizes() {
    let _alone = alone();
    let mut again = 0;
    for seed in 0..40 {
        for n in [4, 1, 9] {
            let before = device::counters().compiled;
            let got = random_graph(seed, &|x| x.i(..bound(n)));
            let got = (got.to_vec::<f32>().unwrap(), got.shape());
            if n != 4 {
                again += device::counters().compiled - before;
            }
            let expected = random_graph(seed, &|x| x.i(..n));
            assert_eq!(got.1, expected.shape(), "seed {seed} for {n}");
            for (a, b) in got.0.iter().zip(plain(&expected)) {
                assert!(
                    (a - b).abs() <= 2e-4 * b.abs().max(1.0),
                    "seed {seed} for {n}: {a} and {b}"
                );
            }
        }
    }
    assert_eq!(again, 0, "kernels were compiled again");
}
