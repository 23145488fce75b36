//! Documents that are made from tables, or show text IR, are held to the code. `BLESS=1 cargo test --test docs` rewrites the generated parts.

use picograd::ir;

const BEGIN: &str = "<!-- begin: made by ir::doc_table, do not edit -->\n";
const END: &str = "<!-- end -->\n";

fn path() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/docs/ir.md").into()
}

#[test]
fn the_table_of_ops_is_what_the_code_says() {
    let doc = std::fs::read_to_string(path()).expect("docs/ir.md");
    let (head, rest) = doc.split_once(BEGIN).expect("docs/ir.md has the marker where the table begins");
    let (table, tail) = rest.split_once(END).expect("docs/ir.md has the marker where the table ends");
    if table == ir::doc_table() {
        return;
    }
    if std::env::var("BLESS").is_ok_and(|v| v == "1") {
        std::fs::write(path(), format!("{head}{BEGIN}{}{END}{tail}", ir::doc_table())).expect("docs/ir.md is writable");
    } else {
        panic!("docs/ir.md is not what ir::doc_table() makes; BLESS=1 cargo test --test docs rewrites it");
    }
}

#[test]
fn the_examples_are_text_ir() {
    let doc = std::fs::read_to_string(path()).expect("docs/ir.md");
    let block = |kind: &str| -> &str {
        let (_, rest) = doc.split_once(&format!("```{kind}\n")).expect("docs/ir.md has the example");
        rest.split_once("```").expect("the example ends").0
    };
    let graph = block("uop");
    assert_eq!(ir::print(&ir::parse(graph).expect("the graph parses")), graph);
    let program = block("uop-program");
    assert_eq!(ir::print_program(&ir::parse_program(program).expect("the program parses")), program);
}
