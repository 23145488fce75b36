//! Generated tables and IR examples of the docs match the code. `BLESS=1 cargo test --test compiler
//! docs` rewrites the generated parts.

use picograd::compile::pipeline;
use picograd::{env, ir};

const END: &str = "<!-- end -->\n";

fn path(file: &str) -> String {
    format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// Checks the generated part of a page, between its markers.
fn generated(file: &str, by: &str, table: &str) {
    let begin = format!("<!-- begin: made by {by}, do not edit -->\n");
    let doc = std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let (head, rest) =
        doc.split_once(&begin).unwrap_or_else(|| panic!("{file} has no begin marker"));
    let (now, tail) = rest.split_once(END).unwrap_or_else(|| panic!("{file} has no end marker"));
    if now == table {
        return;
    }
    if std::env::var("BLESS").is_ok_and(|v| v == "1") {
        std::fs::write(path(file), format!("{head}{begin}{table}{END}{tail}"))
            .unwrap_or_else(|e| panic!("{file}: {e}"));
    } else {
        panic!(
            "{file} differs from the output of {by}(); BLESS=1 cargo test --test compiler docs \
             rewrites it"
        );
    }
}

#[test]
fn op_table_matches_the_code() {
    generated("docs/ir.md", "ir::doc_table", &ir::doc_table());
}

#[test]
fn env_table_matches_the_code() {
    generated("docs/env.md", "env::doc_table", &env::doc_table());
}

#[test]
fn pass_table_matches_the_code() {
    let table = pipeline::doc_table();
    generated("docs/add-a-pass.md", "compile::pipeline::doc_table", &table);
}

#[test]
fn ir_examples_parse_and_print() {
    let doc = std::fs::read_to_string(path("docs/ir.md")).expect("docs/ir.md");
    let block = |kind: &str| -> &str {
        let (_, rest) =
            doc.split_once(&format!("```{kind}\n")).expect("docs/ir.md has the example");
        rest.split_once("```").expect("the example ends").0
    };
    let graph = block("uop");
    assert_eq!(ir::print(&ir::parse(graph).expect("the graph parses")), graph);
    let program = block("uop-program");
    assert_eq!(
        ir::print_program(&ir::parse_program(program).expect("the program parses")),
        program
    );
}

/// The colours of docs/debug.md are those of the code.
#[test]
fn axis_colours_match_the_code() {
    let doc = std::fs::read_to_string(path("docs/debug.md")).expect("docs/debug.md");
    for kind in ir::AxisKind::ALL {
        let code = picograd::kernel::color(kind)
            .trim_start_matches("\x1b[")
            .trim_end_matches('m')
            .to_string();
        let line = doc
            .lines()
            .find(|l| l.starts_with(&format!("| `{kind:?}` |")))
            .unwrap_or_else(|| panic!("no line for {kind:?}"));
        assert!(
            line.contains(&format!("| {code} |")),
            "{kind:?} has colour {code}, but docs/debug.md has {line}"
        );
    }
}
