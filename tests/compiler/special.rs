//! Accuracy of the special functions on the devices, against 60-digit values of
//! `tests/fixtures/make_special.py`. The bounds are those of docs/semantics.md.

use crate::common::devices;
use picograd::testing::lacks;
use picograd::{DType, Tensor};
use std::collections::BTreeMap;

/// A function, its documented error bound in ulp, and the numbers other than the result whose ulp
/// count if they are larger.
struct Bound {
    name: &'static str,
    units: f64,
    or: Or,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Or {
    Result,
    One,
    Operand,
}

/// The names in the fixture and in the table of docs/semantics.md.
const NAMES: [(&str, &str); 7] = [
    ("expm1", "expm1"),
    ("hypot", "hypot"),
    ("logaddexp", "logaddexp"),
    ("erfinv", "erfinv"),
    ("lgamma", "lgamma above 0"),
    ("lgamma_below", "lgamma below 0"),
    ("digamma", "digamma"),
];

/// The bounds of the table in docs/semantics.md.
fn bounds() -> Vec<Bound> {
    let page = include_str!("../../docs/semantics.md");
    let (_, rest) = page.split_once("| function | ulp | of |\n|---|---|---|\n").expect("the table");
    let mut bounds = Vec::new();
    for line in rest.lines().take_while(|l| l.starts_with('|')) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, units, of] = columns[..] else { panic!("a row has three columns: {line}") };
        let or = match of {
            "the result" => Or::Result,
            "the result, or 1" => Or::One,
            "the result, or the larger operand" => Or::Operand,
            other => panic!("unknown: {other}"),
        };
        for documented in names.split(", ") {
            let name = NAMES.iter().find(|n| n.1 == documented);
            let (name, _) = name.unwrap_or_else(|| panic!("{documented} is not measured"));
            bounds.push(Bound { name, units: units.parse().expect("a number"), or });
        }
    }
    assert_eq!(bounds.len(), NAMES.len(), "a function has no bound in docs/semantics.md");
    bounds
}

struct Point {
    args: Vec<f64>,
    expected: f64,
}

/// The points by function name and precision (true for f64).
fn points() -> BTreeMap<(&'static str, bool), Vec<Point>> {
    let mut all: BTreeMap<(&str, bool), Vec<Point>> = BTreeMap::new();
    for line in include_str!("../fixtures/special.txt").lines() {
        let words: Vec<&'static str> = line.split(' ').collect();
        let double = words[1] == "f64";
        let number = |w: &&str| {
            let bits: u64 = w.parse().expect("bits");
            if double { f64::from_bits(bits) } else { f32::from_bits(bits as u32) as f64 }
        };
        let args = words[2..words.len() - 1].iter().map(number).collect();
        let expected = words[words.len() - 1].parse().expect("a result");
        all.entry((words[0], double)).or_default().push(Point { args, expected });
    }
    all
}

/// The spacing of floats at a number.
fn unit(x: f64, double: bool) -> f64 {
    let (digits, least) = if double { (52, -1022) } else { (23, -126) };
    2f64.powi((x.abs().log2().floor() as i32).max(least) - digits)
}

fn called(name: &str, x: &[Tensor]) -> Tensor {
    match name {
        "expm1" => x[0].expm1(),
        "hypot" => x[0].hypot(&x[1]),
        "logaddexp" => x[0].logaddexp(&x[1]),
        "erfinv" => x[0].erfinv(),
        "lgamma" | "lgamma_below" => x[0].lgamma(),
        "digamma" => x[0].digamma(),
        other => panic!("unknown function {other}"),
    }
}

#[test]
fn special_functions_keep_their_bounds() {
    let mut failures = Vec::new();
    let all = points();
    for device in devices() {
        for bound in &bounds() {
            for double in [false, true] {
                if double && lacks(&device, [DType::F64]) {
                    continue;
                }
                let list = &all[&(bound.name, double)];
                let inputs: Vec<Tensor> = (0..list[0].args.len())
                    .map(|i| {
                        let x = Tensor::from_vec(
                            list.iter().map(|p| p.args[i]).collect::<Vec<f64>>(),
                            [list.len()],
                        );
                        let x = if double {
                            x
                        } else {
                            Tensor::from_vec(
                                list.iter().map(|p| p.args[i] as f32).collect::<Vec<f32>>(),
                                [list.len()],
                            )
                        };
                        x.to(&device)
                    })
                    .collect();
                let y = called(bound.name, &inputs);
                let y: Vec<f64> = if double {
                    y.to_vec().unwrap()
                } else {
                    y.to_vec::<f32>().unwrap().iter().map(|&v| v as f64).collect()
                };
                let off = |p: &Point, y: f64| {
                    let least = match bound.or {
                        Or::Result => 0.0,
                        Or::One => 1.0,
                        Or::Operand => p.args.iter().copied().fold(f64::MIN, f64::max).abs(),
                    };
                    (y - p.expected).abs() / unit(p.expected.abs().max(least), double)
                };
                let (at, worst) = list
                    .iter()
                    .zip(&y)
                    .map(|(p, &y)| (p, if y.is_nan() { f64::INFINITY } else { off(p, y) }))
                    .max_by(|a, b| a.1.total_cmp(&b.1))
                    .expect("some points");
                println!(
                    "| {} | {device} | {} | {worst:.2} | {} |",
                    bound.name,
                    if double { "f64" } else { "f32" },
                    bound.units
                );
                if worst > bound.units {
                    failures.push(format!(
                        "{} of {:?} on {device} is off by {worst} units",
                        bound.name, at.args
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
