//! Tested operations and dtypes: generates docs/ops.md, and fails for a public method without a
//! test.

use crate::cases::{Case, GROUPS};
use crate::check::runs;
use crate::fixture::blocks;
use picograd::DType;
use std::collections::{BTreeMap, BTreeSet};

/// Public methods without a case here, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "describes the tensor, computes nothing",
        "device shape max_shape dtype ndim numel max_numel size element_size nbytes \
         is_floating_point uop schedule schedule_many",
    ),
    (
        "used by every case",
        "realize realize_many to_bytes from_bytes as_param backward grad requires_grad is_param",
    ),
    (
        "the gradient API: tests/autograd",
        "gradient gradient_with gradient_allow_unused set_grad call",
    ),
    (
        "conversion from and to host values: tests/tensor/create.rs, tests/tensor/realize.rs, and \
         the examples of the methods",
        "new from_vec from_slice from_blob from_file from_url to_vec to_rows data item",
    ),
    (
        "in-place changes: tests/compiler/assign.rs, and the examples of the methods",
        "assign replace to_ empty empty_like invalids",
    ),
    ("several devices: tests/shard", "shard shard_ shard_like devices shard_axis"),
    ("custom kernels: tests/compiler/custom_kernel.rs", "custom_kernel"),
    ("traced functions: tests/tensor/callify.rs", "callify"),
    ("loops in the graph: tests/tensor/loops.rs", "scan"),
    ("ops by name: tests/tensor/elementwise.rs", "alu ufix"),
    ("hashes: known answers in tests/tensor/keccak.rs", "keccak hash"),
    (
        "random numbers: known answers in tests/process_global/random.rs, their distribution there \
         and in tests/tensor/api.rs",
        "manual_seed random_bits threefry randperm multinomial rand randn randint uniform normal \
         scaled_uniform glorot_uniform kaiming_uniform kaiming_normal dropout rand_like \
         randn_like bernoulli poisson rng_state set_rng_state",
    ),
];

/// The names of all public methods of `Tensor`, from the sources: `pub fn` at the depth of an `impl
/// Tensor`, or in a macro there.
fn public() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left = vec![root.join("src/tensor"), root.join("src/io")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(path)
                    .expect("the sources")
                    .map(|entry| entry.expect("a file").path()),
            );
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let mut inside = false;
        let mut table = false;
        for line in text.lines() {
            // Only lines at the left margin open or close an `impl`.
            if line.starts_with("impl") {
                inside = line.starts_with("impl Tensor ");
            }
            let opens = ["unary! {", "binary_methods! {", "casts! {"].contains(&line);
            table = (table || opens) && line != "}";
            inside &= line != "}";
            let line = line.trim();
            if table
                && let Some((name, rest)) = line.split_once(' ')
                && rest.ends_with(';')
                && !name.starts_with('/')
            {
                names.insert(name.to_string());
            }
            if inside && let Some(rest) = line.strip_prefix("pub fn ") {
                let name: String =
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if !name.is_empty() && !name.starts_with("try_") {
                    names.insert(name);
                }
            }
        }
    }
    names
}

#[test]
fn every_public_method_is_tested() {
    let tested: BTreeSet<&str> = GROUPS.iter().copied().flatten().map(Case::op).collect();
    let elsewhere: BTreeSet<&str> =
        ELSEWHERE.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
    let both: Vec<&&str> = tested.intersection(&elsewhere).collect();
    assert!(both.is_empty(), "{both:?} have cases, but are in the list of methods without one");
    let names = public();
    assert!(names.len() > 200, "the scan of the sources found only {} methods", names.len());
    let missing: Vec<&String> = names
        .iter()
        .filter(|n| !tested.contains(n.as_str()) && !elsewhere.contains(n.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "{missing:?} have no case in tests/ops, and are not in its list of methods that are \
         tested elsewhere"
    );
    let gone: Vec<&&str> =
        tested.iter().chain(&elsewhere).filter(|n| !names.contains(**n)).collect();
    assert!(gone.is_empty(), "{gone:?} are not public methods");
}

#[test]
fn every_block_of_the_fixture_has_a_case() {
    let known: BTreeSet<&str> = GROUPS.iter().copied().flatten().map(|c| c.name).collect();
    let unknown: BTreeSet<String> =
        blocks().into_iter().map(|b| b.name).filter(|n| !known.contains(n.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are only in the fixture");
    assert_eq!(
        known.len(),
        GROUPS.iter().map(|g| g.len()).sum::<usize>(),
        "a name is in the tables twice"
    );
}

/// The table of docs/ops.md: how each operation is tested in each dtype.
fn table() -> String {
    let mut rows: BTreeMap<&str, BTreeMap<DType, bool>> = BTreeMap::new();
    let mut sloped: BTreeSet<&str> = BTreeSet::new();
    let all = blocks();
    for case in GROUPS.iter().copied().flatten() {
        for block in all.iter().filter(|b| b.name == case.name) {
            if !block.grads.is_empty() && !block.rough {
                sloped.insert(case.op());
            }
            for (dtype, backward) in runs(case, block) {
                *rows.entry(case.op()).or_default().entry(dtype).or_default() |= backward;
            }
        }
    }
    let mut text = String::from("| operation | oracle |");
    DType::ALL.iter().for_each(|d| text += &format!(" {d} |"));
    text += "\n|---|---|";
    DType::ALL.iter().for_each(|_| text += ":-:|");
    for (op, row) in &rows {
        text += &format!(
            "\n| `{op}` | {} |",
            if sloped.contains(op) { "PyTorch, slopes" } else { "PyTorch" }
        );
        for d in DType::ALL {
            text += match row.get(d) {
                None => "  |",
                Some(false) => " ✓ |",
                Some(true) => " ✓∂ |",
            };
        }
    }
    text += "\n\n| other methods | oracle |\n|---|---|";
    for (why, names) in ELSEWHERE {
        let names: Vec<String> = names.split_whitespace().map(|n| format!("`{n}`")).collect();
        text += &format!("\n| {} | {why} |", names.join(", "));
    }
    text + "\n"
}

#[test]
fn ops_page_matches_the_tests() {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/ops.md");
    const BEGIN: &str = "<!-- begin: made by tests/ops, do not edit -->\n";
    const END: &str = "<!-- end -->\n";
    let made = table();
    println!("{made}");
    let page = std::fs::read_to_string(FILE).unwrap_or_else(|e| panic!("{FILE}: {e}"));
    let (head, rest) = page.split_once(BEGIN).expect("docs/ops.md has a begin marker");
    let (now, tail) = rest.split_once(END).expect("docs/ops.md has an end marker");
    if now == made {
        return;
    }
    if std::env::var("BLESS").is_ok_and(|v| v == "1") {
        std::fs::write(FILE, format!("{head}{BEGIN}{made}{END}{tail}"))
            .unwrap_or_else(|e| panic!("{FILE}: {e}"));
    } else {
        panic!("docs/ops.md differs from the tests; BLESS=1 cargo test --test ops rewrites it");
    }
}
