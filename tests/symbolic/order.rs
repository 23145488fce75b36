//! The order of rules does not matter: each table is applied as it is, reversed and shuffled, to
//! random expressions, to random tensor graphs and to the inputs of `tests/filetests`.

use super::check::same_value;
use super::random::{Gen, Rng};
use picograd::dtype::DType;
use picograd::ir::{Op, UOp, parse, print};
use picograd::rewrite::{Rule, Rules};
use picograd::symbolic::tables;
use picograd::target::{Target, Tuning};
use picograd::{autograd, lower, schedule, testing};
use std::path::Path;

/// The rules of tables in other orders: reversed, and shuffled with three seeds.
fn orders<C>(tables: &[&'static [Rule<C>]]) -> Vec<Rules<C>> {
    let rules: Vec<&'static [Rule<C>]> =
        tables.iter().flat_map(|t| t.iter()).map(std::slice::from_ref).collect();
    let reversed: Vec<_> = rules.iter().copied().rev().collect();
    let shuffled = (1..4).map(|seed| {
        let (rng, mut order) = (&mut Rng(seed), rules.clone());
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        order
    });
    std::iter::once(reversed).chain(shuffled).map(|order| Rules::new(&order)).collect()
}

/// Asserts that the tables give each graph the same result in every order.
fn same_results<C: Clone>(what: &str, tables: &[&'static [Rule<C>]], graphs: &[UOp], context: &C) {
    assert!(graphs.len() > 5, "{what}: only {} graphs", graphs.len());
    let (rules, orders) = (Rules::new(tables), orders(tables));
    let mut changed = 0;
    for u in graphs {
        let expected = rules.fixpoint(u, &mut context.clone());
        changed += (expected != *u) as usize;
        for other in &orders {
            let got = other.fixpoint(u, &mut context.clone());
            assert!(
                got == expected,
                "{what}:\n{}=>\n{}or\n{}",
                print(u),
                print(&expected),
                print(&got)
            );
        }
    }
    assert!(changed * 4 > graphs.len(), "{what}: only {changed} graphs were rewritten");
}

/// The input graphs of a directory of `tests/filetests`.
fn inputs(pass: &str) -> Vec<UOp> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests").join(pass);
    let entries = std::fs::read_dir(&folder).expect("a folder of cases");
    let mut files: Vec<_> = entries.map(|e| e.expect("a readable folder").path()).collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file of cases");
        for case in text.split("---\n").skip(1) {
            let input = case.split("=>\n").next().unwrap_or_default();
            found.push(parse(input).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
        }
    }
    found
}

/// The outputs of random tensor graphs.
fn random_graphs(count: u64) -> Vec<UOp> {
    (0..count).map(|seed| UOp::sink(testing::random_case(seed).outputs)).collect()
}

#[test]
fn filetests_have_one_result_in_every_order() {
    let reduces: [&[_]; 2] = [&schedule::REDUCE_SIMPLIFY, &schedule::MERGE_RANGES];
    same_results("symbolic", &tables(), &inputs("symbolic"), &());
    same_results("prepare", &[&schedule::PREPARE], &inputs("prepare"), &Tuning::MEASURED.schedule);
    same_results("reduce_simplify", &reduces, &inputs("reduce_simplify"), &());
    let graphs = inputs("decompose");
    for target in [Target::c(0), Target::interp(), Target::cuda(), Target::opencl()] {
        same_results(target.name, &[&lower::DECOMPOSE], &graphs, &target);
    }
}

#[test]
fn random_graphs_are_prepared_alike_in_every_order() {
    same_results("prepare", &[&schedule::PREPARE], &random_graphs(400), &Tuning::MEASURED.schedule);
}

/// At most one gradient rule applies to a node, or all that apply agree.
#[test]
fn gradients_are_equal_in_every_order() {
    let table: [&[_]; 1] = [&autograd::GRADIENTS];
    let (rules, orders) = (Rules::new(&table), orders(&table));
    let mut seen = 0;
    for graph in inputs("gradient").into_iter().chain(random_graphs(200)) {
        for u in graph.toposort().into_iter().filter(|u| u.op() != Op::Sink) {
            // The upstream gradient has the shape and the dtype of the node.
            let expected = rules.step(&u, &mut u.clone()).map(|(new, _)| new);
            seen += expected.is_some() as usize;
            for other in &orders {
                let got = other.step(&u, &mut u.clone()).map(|(new, _)| new);
                assert!(got == expected, "{}", print(&u));
            }
        }
    }
    assert!(seen > 1000, "only {seen} nodes have a gradient");
}

/// Every order ends, keeps values and gives a fixpoint. Normal forms differ in one of some hundred
/// random expressions: a node whose bounds are one value is a literal in one order, and in another
/// was replaced by an operand with these bounds.
#[test]
fn expressions_keep_their_value_in_every_order() {
    let (rules, orders) = (Rules::new(&tables()), orders(&tables()));
    let (mut count, mut different) = (0, 0);
    for dtypes in [
        &[DType::INDEX][..],
        &[DType::I32],
        &[DType::U8, DType::INDEX],
        &[DType::F32],
        &[DType::BOOL, DType::INDEX],
        &[DType::F16, DType::I8, DType::F32],
    ] {
        let rng = &mut Rng(1);
        for k in 0..1000 {
            let dtype = if k % 4 == 0 { DType::BOOL } else { dtypes[0] };
            let u = Gen::new(rng, dtypes).expr(dtype, 4);
            let usual = rules.fixpoint(&u, &mut ());
            for other in &orders {
                let result = other.fixpoint(&u, &mut ());
                count += 1;
                if result != usual {
                    different += 1;
                    same_value(rng, &u, &result, None, 24);
                    assert!(other.fixpoint(&result, &mut ()) == result, "{}", print(&u));
                }
            }
        }
    }
    assert!(different * 100 < count, "{different} of {count} normal forms differ");
}
