//! Accuracy of the special functions on the devices, against 60-digit values of
//! `tests/fixtures/make_special.py`. The bounds are those of the methods' documentation.

use crate::common::devices;
use picograd::testing::lacks;
use picograd::{DType, Tensor};
use std::collections::BTreeMap;

/// The functions and their error bounds in ulp of the result, or of 1 if the result is smaller and
/// `absolute` is set.
struct Bound {
    name: &'static str,
    units: f64,
    absolute: bool,
}

const BOUNDS: [Bound; 6] = [
    Bound { name: "expm1", units: 4.0, absolute: false },
    Bound { name: "hypot", units: 4.0, absolute: false },
    Bound { name: "erfinv", units: 8.0, absolute: false },
    Bound { name: "lgamma", units: 8.0, absolute: false },
    Bound { name: "lgamma_below", units: 16.0, absolute: true },
    Bound { name: "digamma", units: 16.0, absolute: true },
];

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
        for bound in &BOUNDS {
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
                    let least = if bound.absolute { 1.0 } else { 0.0 };
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
