//! `docs/semantics.md`, row by row, on every device and by the reference evaluator; then brute
//! force over special values. Bit for bit, except NaNs.

mod brute;
#[path = "../common/mod.rs"]
mod common;
mod table;

use common::{computed, devices, differences, evaluated, literal, stored};
use picograd::Tensor;
use picograd::dtype::{Const, DType};
use picograd::testing::lacks;
use std::collections::BTreeMap;
use table::{Arg, Given, Row, call, rows};

/// Computed rows with their expected values; failures are collected.
#[derive(Default)]
struct Checks {
    tensors: Vec<Tensor>,
    expected: Vec<(String, DType, Vec<Const>)>,
    failures: Vec<String>,
}

impl Checks {
    fn add(&mut self, what: String, t: Tensor, dtype: DType, expected: Vec<Const>) {
        if t.dtype() != dtype {
            self.failures.push(format!("{what}: the dtype is {}, expected {dtype}", t.dtype()));
            return;
        }
        self.tensors.push(t);
        self.expected.push((what, dtype, expected));
    }

    fn compare(&mut self, way: &str, i: usize, got: &[Const]) {
        let (what, _, expected) = &self.expected[i];
        for (at, e, g) in differences(expected, got) {
            self.failures.push(format!("{way}: {what} at {at}: {g}, expected {e}"));
        }
    }

    /// Compares with the evaluator, then the device; many tensors at once share kernels.
    fn run(mut self, way: &str) -> Vec<String> {
        for (i, got) in evaluated(&self.tensors).iter().enumerate() {
            self.compare(&format!("evaluator, {way}"), i, got);
        }
        for chunk in self.tensors.chunks(24) {
            Tensor::realize_many(&chunk.iter().collect::<Vec<_>>()).unwrap();
        }
        for i in 0..self.tensors.len() {
            let got = computed(&self.tensors[i]);
            self.compare(way, i, &got);
        }
        self.failures
    }
}

fn table_rows() -> Vec<Row> {
    rows(include_str!("../../docs/semantics.md"))
}

/// The rows whose dtypes a device supports.
fn rows_on(device: &str) -> Vec<Row> {
    let (kept, left_out): (Vec<Row>, Vec<Row>) =
        table_rows().into_iter().partition(|r| !lacks(device, r.dtypes()));
    if !left_out.is_empty() {
        eprintln!(
            "{} of {} rows skipped on {device}, which does not compute in one of their dtypes",
            left_out.len(),
            left_out.len() + kept.len()
        );
    }
    kept
}

#[track_caller]
fn report(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

/// Repeats values up to a length.
fn cycled(values: &[Const], len: usize) -> Vec<Const> {
    values.iter().copied().cycle().take(len).collect()
}

#[test]
fn the_table_has_enough_rows() {
    let rows = table_rows();
    let cells: usize = rows.iter().map(|r| if r.is_elementwise() { r.len() } else { 1 }).sum();
    println!("{} rows, {cells} cells", rows.len());
    assert!(rows.len() >= 200, "only {} rows", rows.len());
    for r in rows.iter().filter(|r| r.is_elementwise()) {
        let given = r.result.as_ref().map_or(r.len(), |(_, values)| values.len());
        assert_eq!(given, r.len(), "{}: the result has another length", r.text);
    }
}

/// Rows of the same method and dtypes are one stored tensor, of a length that vectors divide, and
/// of a prime length.
#[test]
fn elementwise_rows_hold_for_stored_values() {
    for device in devices() {
        let rows = rows_on(&device);
        let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
        for r in rows.iter().filter(|r| r.is_elementwise() && r.result.is_some()) {
            groups.entry(r.signature()).or_default().push(r);
        }
        for len in [64, 67] {
            let mut checks = Checks::default();
            for (signature, rows) in &groups {
                let (dtype, _) = rows[0].result.clone().unwrap();
                let results: Vec<Const> =
                    rows.iter().flat_map(|r| r.result.clone().unwrap().1).collect();
                assert!(results.len() <= 64, "{signature} has more cells than fit");
                let elements: Vec<Vec<Arg>> =
                    rows.iter().flat_map(|r| (0..r.len()).map(|i| r.element(i))).collect();
                let given = (0..elements[0].len()).map(|k| {
                    Given::new(&elements[0][k], |dtype, _| {
                        let values: Vec<Const> = elements.iter().map(|e| one(&e[k])).collect();
                        stored(&cycled(&values, len), dtype, &[len], &device)
                    })
                });
                let t = call(&rows[0].name, given.collect()).unwrap();
                checks.add(signature.clone(), t, dtype, cycled(&results, len));
            }
            report(checks.run(&format!("{device}, {len} elements")));
        }
    }
}

/// The single value of an argument.
fn one(arg: &Arg) -> Const {
    match arg {
        Arg::Values { values, .. } => values[0],
        other => panic!("{other:?} has no value"),
    }
}

/// Literals replace all tensors or some of them: constant folding must give what devices compute.
#[test]
fn elementwise_rows_hold_for_literals() {
    for device in devices() {
        let rows = rows_on(&device);
        let mut checks = [Checks::default(), Checks::default(), Checks::default()];
        for r in rows.iter().filter(|r| r.is_elementwise()) {
            let Some((dtype, results)) = &r.result else { continue };
            for (i, result) in results.iter().enumerate() {
                let args = r.element(i);
                let tensors = args.iter().filter(|a| matches!(a, Arg::Values { .. })).count();
                // Bit k of the mask says whether the k-th argument is a literal.
                for (checks, mask) in checks.iter_mut().zip([0b111, 0b110, 0b001]) {
                    if mask != 0b111 && tensors < 2 {
                        continue;
                    }
                    let given = args.iter().enumerate().map(|(k, a)| {
                        Given::new(a, |dtype, v| match mask >> k & 1 {
                            1 => literal(v[0], dtype, &device),
                            _ => stored(&[v[0], v[0]], dtype, &[2], &device),
                        })
                    });
                    let t = call(&r.name, given.collect()).unwrap();
                    let expected = vec![*result; t.numel()];
                    checks.add(format!("{} [{i}]", r.text), t, *dtype, expected);
                }
            }
        }
        let ways = ["literals", "a literal on the right", "a literal on the left"];
        report(
            checks
                .into_iter()
                .zip(ways)
                .flat_map(|(c, way)| c.run(&format!("{device}, {way}")))
                .collect(),
        );
    }
}

/// A list without storage: selects choose an element by its index.
fn listed(values: &[Const], dtype: DType, device: &str) -> Tensor {
    let place = Tensor::arange(0, values.len() as i32, 1).to(device);
    // SAFETY: the verifier accepts the graph, and it has no custom kernels.
    let first = unsafe {
        Tensor::from_uop_unchecked(literal(values[0], dtype, device).uop(), place.device().clone())
    };
    values.iter().enumerate().skip(1).fold(first.expand([values.len()]), |list, (i, v)| {
        place.eq(i as i32).where_(literal(*v, dtype, device), list)
    })
}

/// Reductions of a list: alone, as columns of a matrix, without storage, and repeated if that does
/// not change the result.
#[test]
fn reduction_rows_hold() {
    for device in devices() {
        let rows = rows_on(&device);
        let mut checks = Checks::default();
        for r in rows.iter().filter(|r| r.is_fold()) {
            let Some((dtype, result)) = &r.result else { continue };
            let [Arg::Values { dtype: from, values, .. }] = &r.args[..] else {
                panic!("{}: a reduction takes one list", r.text)
            };
            let fold = |t: Tensor| call(&r.name, vec![Given::Operand(t.into())]).unwrap();
            let n = values.len();
            checks.add(
                r.text.clone(),
                fold(stored(values, *from, &[n], &device)),
                *dtype,
                result.clone(),
            );
            let columns: Vec<Const> = values.iter().flat_map(|v| [*v; 16]).collect();
            checks.add(
                format!("{} in columns", r.text),
                fold(stored(&columns, *from, &[n, 16], &device)),
                *dtype,
                vec![result[0]; 16],
            );
            if n == 0 {
                continue;
            }
            checks.add(
                format!("{} of literals", r.text),
                fold(listed(values, *from, &device)),
                *dtype,
                result.clone(),
            );
            if ["max", "min", "any", "all", "argmax", "argmin"].contains(&r.name.as_str()) {
                for len in [64, 67] {
                    // The last element is that of the list for every length.
                    let long: Vec<Const> =
                        cycled(values, len - n).into_iter().chain(values.iter().copied()).collect();
                    checks.add(
                        format!("{} repeated", r.text),
                        fold(stored(&long, *from, &[len], &device)),
                        *dtype,
                        result.clone(),
                    );
                }
            }
        }
        report(checks.run(&device));
    }
}

/// Sorted lists: alone, as columns of a matrix, and without storage.
#[test]
fn sort_rows_hold() {
    for device in devices() {
        let rows = rows_on(&device);
        let mut checks = Checks::default();
        for r in rows.iter().filter(|r| r.is_order()) {
            let Some((dtype, result)) = &r.result else { continue };
            let [Arg::Values { dtype: from, values, .. }, Arg::Bare(down)] = &r.args[..] else {
                panic!("{}: expected a list and a bool", r.text)
            };
            let sorted = |t: Tensor| {
                call(&r.name, vec![Given::Operand(t.into()), Given::Operand(down.is_true().into())])
                    .unwrap()
            };
            let n = values.len();
            checks.add(
                r.text.clone(),
                sorted(stored(values, *from, &[n], &device)),
                *dtype,
                result.clone(),
            );
            let columns =
                |list: &[Const]| list.iter().flat_map(|v| [*v; 3]).collect::<Vec<Const>>();
            let side_by_side = sorted(stored(&columns(values), *from, &[n, 3], &device));
            checks.add(format!("{} in columns", r.text), side_by_side, *dtype, columns(result));
            if n > 0 {
                checks.add(
                    format!("{} of literals", r.text),
                    sorted(listed(values, *from, &device)),
                    *dtype,
                    result.clone(),
                );
            }
        }
        report(checks.run(&device));
    }
}

#[test]
fn misuse_is_an_error() {
    let rows = table_rows();
    for (device, r) in devices()
        .iter()
        .flat_map(|d| rows.iter().filter(|r| r.result.is_none()).map(move |r| (d, r)))
    {
        let tensor =
            |dtype: DType, values: &[Const]| stored(values, dtype, &[values.len()], device);
        let given = r.args.iter().map(|a| Given::new(a, tensor)).collect();
        match call(&r.name, given) {
            Ok(t) => panic!("{} gave {t:?}", r.text),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}
