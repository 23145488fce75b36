//! Repository checks: import direction, file headers, lengths of files and lines, unique rule
//! names, examples of public functions, and links in the docs.

use picograd::compile::pipeline;
use picograd::rewrite::RuleInfo;
use picograd::tables;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The modules of `src/` in data-flow order. A file may use modules of earlier lines, and its own.
const MODULES: &[&[&str]] = &[
    &["error", "os"],
    &["env"],
    &["dtype", "shape"],
    &["ir"],
    &["rewrite"],
    &["symbolic"],
    &["math", "reference", "target", "verify"],
    &["kernel", "pass"],
    &["autograd", "schedule", "opt", "lower"],
    &["heuristic"],
    &["tables"],
    &["render"],
    &["codegen"],
    &["disk_cache"],
    &["device"],
    &["compile"],
    &["exec"],
    &["testing"],
    &["tensor"],
    &["io"],
    &["nn"],
    &["compiler"],
    &["bin"],
];

/// Re-exports of the crate root, and their modules.
const AT_ROOT: &[(&str, &str)] = &[
    ("DType", "dtype"),
    ("Device", "device"),
    ("Error", "error"),
    ("Result", "error"),
    ("Tensor", "tensor"),
    ("rules", "rewrite"),
];

/// The longest allowed file. Past 600 lines it is usually two.
const MAX_LINES: usize = 600;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a directory with one of these extensions, sorted.
pub fn files(folder: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(dir) = folders.pop() {
        let Ok(list) = std::fs::read_dir(&dir) else { continue };
        for path in list.map(|e| e.expect("a readable folder").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| endings.iter().any(|x| e == *x)) {
                let text = std::fs::read_to_string(&path)
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                found
                    .push((path.strip_prefix(root()).expect("below the root").to_path_buf(), text));
            }
        }
    }
    found.sort();
    found
}

pub fn sources() -> Vec<(PathBuf, String)> {
    ["src", "tests", "examples", "derive/src", "xtask/src"]
        .iter()
        .flat_map(|folder| files(folder, &["rs"]))
        .collect()
}

fn level(room: &str) -> Option<usize> {
    MODULES.iter().position(|line| line.contains(&room))
}

/// The code of a file, without comments and without the unit tests at its end.
pub fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end]
        .lines()
        .map(|l| l.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The first names of the paths that begin with the prefix: `a` and `b` of `crate::a::x` and of
/// `crate::{a, b::y}`.
fn names_after<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        // Only at the start of a path; `$crate::` is another prefix than `crate::`.
        if code[..at].ends_with(|c: char| is_name(c) || c == ':' || c == '$') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(rest.split(|c| !is_name(c)).next().unwrap_or_default());
            continue;
        };
        let mut depth = 0;
        for part in list.split_inclusive(['{', '}', ',']) {
            if depth == 0 {
                names.extend(
                    part.trim_start().split(|c| !is_name(c)).next().filter(|n| !n.is_empty()),
                );
            }
            depth += part.ends_with('{') as i32 - part.ends_with('}') as i32;
            if depth < 0 {
                break;
            }
        }
    }
    names
}

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for (path, text) in files("src", &["rs"]) {
        let parts: Vec<&str> = path.iter().map(|p| p.to_str().expect("names are text")).collect();
        let file = parts[parts.len() - 1];
        let test = parts.contains(&"tests") || file.ends_with("tests.rs") || file == "testing.rs";
        if parts == ["src", "lib.rs"] || test {
            continue;
        }
        let room = parts[1].trim_end_matches(".rs");
        let Some(own) = level(room) else {
            wrong.push(format!(
                "{}: the module {room} is not in the list of tests/compiler/tidy.rs",
                path.display()
            ));
            continue;
        };
        // Macros that `compiler` exports name its items, which are public where they expand.
        let code = code(&text).replace("$crate::compiler::", "");
        // One `super::` per level leads to the crate root.
        let depth = parts.len() - 1 - (file == "mod.rs") as usize;
        let up = "super::".repeat(depth);
        let mut names = names_after(&code, "crate::");
        names.extend(names_after(&code, "$crate::"));
        names.extend(names_after(&code, &up).into_iter().filter(|n| level(n).is_some()));
        if room == "bin" {
            names.clear();
        }
        for name in names {
            let used = AT_ROOT.iter().find(|(n, _)| *n == name).map_or(name, |(_, room)| room);
            match level(used) {
                _ if used == room => {}
                Some(l) if l < own => {}
                Some(_) => wrong.push(format!(
                    "{}: {room} uses {used}, which does not come before it",
                    path.display()
                )),
                None => wrong.push(format!(
                    "{}: uses crate::{name}, which tests/compiler/tidy.rs does not know",
                    path.display()
                )),
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "imports against the data flow:\n{}", wrong.join("\n"));
}

#[test]
fn paths_are_found_in_code() {
    let code = "use crate::{error::{Error, Result}, ir, shape::Dims};\nlet x = \
                crate::opt::color(k); mycrate::no; a::crate::no;";
    assert_eq!(names_after(code, "crate::"), ["error", "ir", "shape", "opt"]);
    assert_eq!(
        names_after("use super::super::{lower, super_x};", "super::super::"),
        ["lower", "super_x"]
    );
}

#[test]
fn every_file_has_a_header() {
    for (path, text) in sources() {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//! ") && first.len() > 20,
            "{}: the first line must be a `//!` header, got {first:?}",
            path.display()
        );
    }
}

/// The longest line of code and prose, as in rustfmt.toml.
const MAX_COLUMNS: usize = 100;

/// Files and directories with longer lines, with the reason.
const WIDE_FILES: &[(&str, &str)] = &[
    ("src/lower/decompose.rs", "a rule table in aligned columns"),
    ("src/schedule/prepare.rs", "a rule table in aligned columns"),
];

/// The files with code or prose: sources, scripts, manifests and pages.
fn text_files() -> Vec<(PathBuf, String)> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(root().join(name));
        (PathBuf::from(name), text.unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    let mut found: Vec<_> = [".ci/run", "Cargo.toml", ".cargo/config.toml"].map(read).into();
    for folder in ["src", "tests", "examples", "derive", "xtask", "benches", "scripts"] {
        found.extend(files(folder, &["rs", "py", "sh", "toml"]));
    }
    found.extend(documents());
    found
}

/// True if the line fits without one URL.
fn fits(line: &str) -> bool {
    let length = line.chars().count();
    let url = line.find("http://").or(line.find("https://")).map_or(0, |at| {
        line[at..].chars().take_while(|c| !c.is_whitespace() && !")>\"".contains(*c)).count()
    });
    length <= MAX_COLUMNS || url > 0 && length - url <= MAX_COLUMNS
}

/// The numbers of the lines that are too long. Rows of tables and code blocks of Markdown are
/// exempt: a row cannot be wrapped, and blocks contain output.
fn long_lines(path: &Path, text: &str) -> Vec<usize> {
    let markdown = path.extension().is_some_and(|e| e == "md");
    let (mut fenced, mut found) = (false, Vec::new());
    for (i, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let table =
            |l: &str| l.starts_with('|') || l.starts_with("//! |") || l.starts_with("/// |");
        fenced ^= markdown && start.starts_with("```");
        if !(fits(line) || table(start) || markdown && fenced) {
            found.push(i + 1);
        }
    }
    found
}

#[test]
fn lines_fit_in_100_columns() {
    let exempt = |path: &Path| WIDE_FILES.iter().any(|(file, _)| path.starts_with(file));
    let mut wrong = Vec::new();
    for (path, text) in text_files().into_iter().filter(|(path, _)| !exempt(path)) {
        wrong.extend(long_lines(&path, &text).iter().map(|i| format!("{}:{i}", path.display())));
    }
    assert!(wrong.is_empty(), "lines over {MAX_COLUMNS} columns:\n{}", wrong.join("\n"));
}

#[test]
fn long_lines_are_found_in_code_and_prose() {
    let long = "x".repeat(101);
    let url = format!("see https://{long} for it");
    assert_eq!(
        long_lines(Path::new("a.rs"), &format!("{long}\n{url}\n//! | {long}\n// {long}")),
        [1, 4]
    );
    let page = format!("{long}\n| {long} |\n```\n{long}\n```\n{url}\n{long}");
    assert_eq!(long_lines(Path::new("a.md"), &page), [1, 7]);
    assert!(fits(&"é".repeat(100)));
}

#[test]
fn no_file_is_too_long() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(
            lines <= MAX_LINES,
            "{} has {lines} lines, expected at most {MAX_LINES}",
            path.display()
        );
    }
}

/// Unit tests of a directory are its `tests.rs`, or its `tests/` with a file per topic.
#[test]
fn unit_tests_of_a_directory_have_one_form() {
    for (path, _) in files("src", &["rs"]) {
        let folder = path.parent().expect("a file is in a folder");
        if path.file_name().is_some_and(|name| name == "tests.rs") {
            let both = root().join(folder).join("tests").exists();
            assert!(!both, "{} is beside a folder of tests", path.display());
        }
        if folder.file_name().is_some_and(|name| name == "tests") {
            let files = std::fs::read_dir(root().join(folder)).expect("a folder").count();
            let has_mod = root().join(folder).join("mod.rs").exists();
            assert!(has_mod && files > 1, "{} is one file, or has no mod.rs", folder.display());
        }
    }
}

#[test]
fn there_are_no_todos() {
    for (path, text) in sources() {
        for word in [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")] {
            assert!(!text.contains(word), "{} has {word}…)", path.display());
        }
    }
}

#[test]
fn rule_names_are_unique() {
    let mut seen: BTreeMap<&str, &RuleInfo> = BTreeMap::new();
    for r in tables::all_rules() {
        assert!(
            r.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
            "{} is not in snake case",
            r.name
        );
        if let Some(other) = seen.insert(r.name, r) {
            panic!(
                "two rules are named {}: {}:{} and {}:{}",
                r.name, r.file, r.line, other.file, other.line
            );
        }
    }
}

/// Rule tables outside the list are not tested, so every file with rules must be listed.
#[test]
fn rule_tables_are_listed() {
    let known: Vec<&str> = tables::all_rules().iter().map(|r| r.file).collect();
    for (path, text) in files("src", &["rs"]) {
        if code(&text).lines().any(|l| l.starts_with("rules! {")) {
            let name = path.to_str().expect("names are text");
            assert!(
                known.iter().any(|f| f.replace('\\', "/").ends_with(name)),
                "{name} has rules that tables::all_rules does not list"
            );
        }
    }
}

/// Every pass is a file of its name, in the directory of its stage.
#[test]
fn passes_are_files() {
    let mut seen = BTreeMap::new();
    for p in pipeline::passes() {
        assert!(seen.insert(p.name, ()).is_none(), "two passes are named {}", p.name);
        let folders = ["schedule", "compile", "lower"].map(|f| format!("src/{f}/{}", p.name));
        let mut places = folders.iter().flat_map(|f| [format!("{f}.rs"), format!("{f}/mod.rs")]);
        assert!(places.any(|f| root().join(f).exists()), "there is no file of the pass {}", p.name);
    }
}

/// Public functions without an example: they read published files, which tests do not have.
const NO_EXAMPLE: &[(&str, &[&str])] = &[
    ("src/nn/data/mnist.rs", &["mnist", "fashion_mnist"]),
    ("src/nn/data/cifar.rs", &["cifar10", "cifar10_load_bytes"]),
];

/// Macros that generate public functions from documented lines.
const TABLES: &[&str] = &["unary! {", "binary_methods! {", "casts! {", "setters! {"];

/// Public functions have an example in their doc comment, which runs as a doctest. The `try_`
/// variants that `fallible!` generates refer to it.
#[test]
fn public_functions_have_examples() {
    let (mut seen, mut without) = (0, Vec::new());
    for (path, text) in
        ["src/tensor", "src/nn", "src/io"].iter().flat_map(|folder| files(folder, &["rs"]))
    {
        let name = path.to_str().expect("names are text");
        let spared =
            NO_EXAMPLE.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, names)| *names);
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        let (mut doc, mut table) = (false, false);
        for line in text[..end].lines() {
            // A table generates a method from each line.
            let opens = TABLES.iter().any(|name| line.starts_with(name));
            table = (table || opens) && line != "}";
            let line = line.trim();
            let named = line.starts_with(|c: char| c.is_ascii_lowercase());
            let in_table = table && !opens && named && line.ends_with([';', '{']);
            let function = line
                .strip_prefix("pub fn ")
                .filter(|rest| !rest.starts_with('$'))
                .or(in_table.then_some(line));
            if let Some(rest) = function {
                let function: String =
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                seen += 1;
                if !doc && !spared.contains(&function.as_str()) {
                    without.push(format!("{name}: {function}"));
                }
            }
            // A macro passes on the attributes of the line that it expands.
            doc = (doc || line.starts_with("/// ```") || line.starts_with("$(#["))
                && (line.starts_with("///") || line.starts_with("#[") || line.starts_with("$(#["));
        }
    }
    assert!(seen > 500, "the scan of the sources found only {seen} functions");
    assert!(without.is_empty(), "without an example:\n{}", without.join("\n"));
}

pub fn documents() -> Vec<(PathBuf, String)> {
    let top = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "benches/peers/README.md",
    ];
    let read = |name: &&str| {
        (
            PathBuf::from(name),
            std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}")),
        )
    };
    top.iter().map(read).chain(files("docs", &["md"])).collect()
}

/// The words of a text that are paths in the project, in backticks or not.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    const FOLDERS: [&str; 7] =
        ["src/", "tests/", "docs/", "xtask/", "benches/", "examples/", "scripts/"];
    let words = text.split(|c: char| c.is_whitespace() || "`()[],;:|\"'".contains(c));
    words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| FOLDERS.iter().any(|f| word.starts_with(f)))
        .filter(|word| !word.contains(['<', '*', '{', '…']) && !word.contains("MACHINE"))
}

/// Returns true for files that differ in their endings, named without them.
fn begins_a_file(path: &str) -> bool {
    let path = root().join(path);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let start = format!("{}.", name.to_string_lossy());
    std::fs::read_dir(folder).is_ok_and(|list| {
        list.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&start))
    })
}

#[test]
fn paths_are_found_in_prose() {
    let text = "See tests/ops/main.rs, `src/ir` (docs/ops.md). A/tests/x is none; src/<name>.rs \
                neither.\n| tests/a.rs |";
    let found: Vec<&str> = named_paths(text).collect();
    assert_eq!(found, ["tests/ops/main.rs", "src/ir", "docs/ops.md", "tests/a.rs"]);
}

/// Links inside the project, and paths in the text, name existing files.
#[test]
fn links_and_paths_in_docs_exist() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let folder = root().join(path.parent().expect("a file has a folder"));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !folder.join(file).exists() {
                wrong.push(format!("{}: a link to {link}, which does not exist", path.display()));
            }
        }
        for word in named_paths(&text) {
            if !root().join(word).exists() && !begins_a_file(word) {
                wrong.push(format!("{}: names {word}, which does not exist", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The guides name the files to change, and each of them exists.
#[test]
fn guides_name_existing_files() {
    for (path, text) in documents() {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("add-") {
            continue;
        }
        let words: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let is_file = |w: &&&str| {
            ["src/", "tests/", "docs/", "xtask/", "benches/", "examples/", "scripts/"]
                .iter()
                .any(|folder| w.starts_with(folder))
                && !w.contains(['<', '*', ' ', '{'])
        };
        let files: Vec<&&str> = words.iter().filter(is_file).collect();
        assert!(files.len() >= 5, "{}: names only {} files", path.display(), files.len());
        for file in files {
            assert!(root().join(file).exists(), "{}: {file} does not exist", path.display());
        }
    }
}

/// The guides that follow an example, and how code refers to the examples.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("docs/add-an-op.md", ["Op::Erf", "Op::Trunc"]),
    ("docs/add-an-opt.md", ["OptOp::Order", "OptOp::Vectorize"]),
];

/// Files that use an example and do not register it.
const USES: &[&str] = &["src/lower/remainder.rs"];

/// A guide names every file that refers to its examples.
#[test]
fn guides_are_complete() {
    let mut missing = Vec::new();
    for (guide, names) in EXAMPLES {
        let page = std::fs::read_to_string(root().join(guide)).expect("a guide");
        let mut seen = 0;
        for (path, text) in sources().into_iter().filter(|(path, _)| !path.ends_with("tidy.rs")) {
            let file = path.to_str().expect("names are text");
            if names.iter().any(|name| text.contains(name)) && !USES.contains(&file) {
                seen += 1;
                if !page.contains(&format!("`{file}`")) {
                    missing.push(format!("{guide}: does not name {file}"));
                }
            }
        }
        assert!(seen >= 5, "{guide}: only {seen} files refer to {names:?}");
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The examples are a package of their own, so Cargo does not discover them.
#[test]
fn examples_are_listed() {
    let list =
        std::fs::read_to_string(root().join("examples/Cargo.toml")).expect("examples/Cargo.toml");
    for entry in std::fs::read_dir(root().join("examples")).expect("examples") {
        let name =
            entry.expect("a readable folder").file_name().into_string().expect("names are text");
        assert!(
            !name.ends_with(".rs") || list.contains(&format!("path = \"{name}\"")),
            "examples/Cargo.toml does not list {name}"
        );
    }
}

#[test]
fn every_module_is_in_the_architecture_map() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for entry in std::fs::read_dir(root().join("src")).expect("src") {
        let name =
            entry.expect("a readable folder").file_name().into_string().expect("names are text");
        assert!(
            map.contains(&format!("`src/{name}`")) || name == "lib.rs",
            "ARCHITECTURE.md has no line for `src/{name}`"
        );
    }
}
