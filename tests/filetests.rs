//! Text-in, text-out tests: `tests/filetests/<pass>/*.uop` have graphs and the expected result of a
//! pass. `BLESS=1 cargo test --test filetests` writes the current results to the files; read the
//! diff.
//!
//! A file starts with a line about itself. Lines of `---` separate cases; a case is a comment with
//! the rules that it tests (or `stays` for a graph that must not change), the graph, a line `=>`
//! and the result. The test is its own process, so that every rule that fires, fires because of a
//! case.

use picograd::ir::{UOp, parse, print};
use picograd::rewrite::{Rules, traced};
use picograd::target::Target;
use picograd::{autograd, lower, schedule, symbolic, tables};
use std::path::{Path, PathBuf};

type Stage = fn(&UOp) -> UOp;

/// The folders, and what is done to a graph in each.
const STAGES: &[(&str, Stage)] = &[
    ("gradient", gradient),
    ("prepare", prepare),
    ("simplify_reduces", simplify_reduces),
    ("symbolic", symbolic::simplify),
    ("decompose", decompose),
];

/// The gradients by the leaves of the graph, with the graph's last parameter as the gradient of the
/// root.
fn gradient(u: &UOp) -> UOp {
    let [y, seed] = u.src() else { panic!("a sink of a result and its gradient") };
    let found = autograd::gradients(y, seed.clone(), &autograd::leaves(y)).expect("a gradient");
    UOp::sink(found.into_iter().flatten().collect::<Vec<_>>())
}

fn prepare(u: &UOp) -> UOp {
    Rules::new(&[&schedule::PREPARE]).fixpoint(u, &mut ())
}

fn simplify_reduces(u: &UOp) -> UOp {
    Rules::new(&[&schedule::SIMPLIFY_REDUCES, &schedule::MERGE_RANGES]).fixpoint(u, &mut ())
}

/// For C, which has doubles and no narrower float than f32.
fn decompose(u: &UOp) -> UOp {
    Rules::new(&[&lower::DECOMPOSE]).fixpoint(u, &mut Target::c(1, 0))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|e| e.expect("a readable folder").path())
        .filter(|p| p.extension().is_some_and(|e| e == "uop"))
        .collect();
    files.sort();
    files
}

/// Runs the cases of a file and returns its text as it should be.
fn run(file: &Path, text: &str, stage: Stage) -> String {
    let mut parts = text.split("---\n");
    let mut out = vec![parts.next().unwrap_or_default().to_string()];
    for case in parts {
        let input = case.split("=>\n").next().unwrap_or_default();
        let graph = parse(input).unwrap_or_else(|e| panic!("{}: {e} in\n{input}", file.display()));
        let (result, steps) = traced(|| stage(&graph));
        let named = input.lines().next().and_then(|l| l.strip_prefix(';')).unwrap_or_default();
        for rule in named.split_whitespace() {
            let holds = if rule == "stays" {
                result == graph
            } else {
                steps.iter().any(|s| s.rule == rule)
            };
            assert!(holds, "{}: not so: {rule} on\n{input}{steps:#?}", file.display());
        }
        out.push(format!("{input}=>\n{}", print(&result)));
    }
    out.join("---\n")
}

#[test]
fn stages_make_what_the_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let bless = std::env::var_os("BLESS").is_some_and(|v| v == "1");
    let mut wrong = Vec::new();
    for &(name, stage) in STAGES {
        for file in files(&root.join(name)) {
            let text = std::fs::read_to_string(&file)
                .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let now = run(&file, &text, stage);
            if bless && now != text {
                std::fs::write(&file, &now).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            } else if now != text {
                let line = now.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
                wrong.push(format!(
                    "{}:{}: {:?} came out",
                    file.display(),
                    line + 1,
                    now.lines().nth(line).unwrap_or("the end")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 writes the files anew", wrong.join("\n"));
    let idle: Vec<String> = tables::all_rules()
        .iter()
        .filter(|r| r.fired() == 0)
        .map(|r| format!("{} at {}:{}", r.name, r.file, r.line))
        .collect();
    assert!(
        idle.is_empty(),
        "no case in tests/filetests makes these rules fire:\n{}",
        idle.join("\n")
    );
}
