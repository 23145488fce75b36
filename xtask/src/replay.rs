//! `cargo xtask replay REV`: compiles the corpus with the code of a revision and with that of the
//! working tree, and prints the kernels that differ. A refactoring that changes no kernel has no
//! difference.
//!
//! Kernels are compared by source text, launch sizes and Opts, after the names of kernels, buffers
//! and variables have been numbered in order of appearance: renaming is no difference. With
//! `--ignore-opts` only text and launch sizes are compared: a new kind of Opt for what lowering
//! decided before is no difference then.

use crate::suite::cargo;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

const USAGE: &str = "cargo xtask replay REV [--show N] [--ignore-opts] [TARGET…]
  REV            the revision to compare the working tree with
  --show N       prints N differing kernels of each target (3)
  --ignore-opts  compares source text and launch sizes, and not the lists of Opts
  TARGET         some of C, LLVM, CUDA, OPENCL, WGSL, METAL (all)";

/// The targets and the devices that compile for them.
const TARGETS: [(&str, &str); 6] = [
    ("C", "NULL"),
    ("LLVM", "NULL:LLVM"),
    ("CUDA", "NULL:CUDA"),
    ("OPENCL", "NULL:OPENCL"),
    ("WGSL", "NULL:WGSL"),
    ("METAL", "NULL:METAL"),
];

/// Returns the command.
pub fn run(words: &[String]) -> Result<(), String> {
    let (mut rev, mut show, mut with_opts, mut targets) = (None, 3, true, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let upper = word.to_uppercase();
        if word == "--show" {
            show = words.next().and_then(|n| n.parse().ok()).ok_or(USAGE)?;
        } else if word == "--ignore-opts" {
            with_opts = false;
        } else if rev.is_none() {
            rev = Some(word.clone());
        } else {
            targets.push(*TARGETS.iter().find(|t| t.0 == upper).ok_or(USAGE)?);
        }
    }
    let rev = rev.ok_or(USAGE)?;
    if targets.is_empty() {
        targets.extend(TARGETS);
    }
    let root =
        fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).map_err(|e| e.to_string())?;
    let commit = git(&root, &["rev-parse", "--verify", &format!("{rev}^{{commit}}")])?;
    let folder = root.join("target/replay");
    let before = dumps_of_commit(&root, &folder, &commit, &targets)?;
    let now = folder.join("now");
    let program = build(&root, &root.join("target"))?;
    compile(&program, &root, &now, &targets)?;
    let mut differing = 0;
    for (target, _) in targets {
        let read = |folder: &Path| {
            fs::read_to_string(folder.join(target)).map_err(|e| format!("{target}: {e}"))
        };
        let report = compare(&read(&before)?, &read(&now)?, with_opts);
        println!("{target}: {} kernels, {} differ", report.kernels, report.different.len());
        report.different.iter().take(show).for_each(|d| println!("{d}"));
        differing += report.different.len();
    }
    match differing {
        0 => Ok(()),
        n => Err(format!("{n} kernels differ from {rev}")),
    }
}

/// Returns the dumps of a commit, compiled now if an earlier replay did not.
fn dumps_of_commit(
    root: &Path,
    folder: &Path,
    commit: &str,
    targets: &[(&str, &str)],
) -> Result<PathBuf, String> {
    let dumps = folder.join(commit);
    let missing: Vec<_> = targets.iter().filter(|t| !dumps.join(t.0).exists()).copied().collect();
    if missing.is_empty() {
        return Ok(dumps);
    }
    let tree = folder.join("tree");
    let tree_path = tree.to_str().ok_or("the path of the working tree is not UTF-8")?;
    if tree.exists() {
        git(root, &["worktree", "remove", "--force", tree_path])?;
    }
    git(root, &["worktree", "add", "--detach", tree_path, commit])?;
    let compiled = build(&tree, &folder.join("build"))
        .and_then(|program| compile(&program, &tree, &dumps, &missing));
    git(root, &["worktree", "remove", "--force", tree_path])?;
    compiled.map(|()| dumps)
}

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let out = Command::new("git")
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|e| format!("git: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if out.status.success() {
        Ok(text(&out.stdout))
    } else {
        Err(format!("git {}: {}", args.join(" "), text(&out.stderr)))
    }
}

/// Builds the corpus program of a tree and returns its path.
fn build(tree: &Path, target: &Path) -> Result<PathBuf, String> {
    let mut command =
        cargo(&["build", "--release", "--quiet", "--package", "xtask", "--target-dir"]);
    let status =
        command.arg(target).current_dir(tree).status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        Ok(target.join("release/xtask"))
    } else {
        Err(format!("{} does not build", tree.display()))
    }
}

/// Runs the corpus program for each target, two at a time.
fn compile(
    program: &Path,
    tree: &Path,
    folder: &Path,
    targets: &[(&str, &str)],
) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for pair in targets.chunks(2) {
        let mut running = Vec::new();
        for (target, device) in pair {
            let (file, partial) = (folder.join(target), folder.join(format!("{target}.partial")));
            let child = Command::new(program)
                .arg("corpus")
                .arg(&partial)
                .env("DEV", device)
                .current_dir(tree)
                .stdin(Stdio::null())
                .spawn()
                .map_err(|e| format!("{}: {e}", program.display()))?;
            running.push((target, child, partial, file));
        }
        for (target, mut child, partial, file) in running {
            let ended = child.wait().is_ok_and(|status| status.success());
            if !ended || fs::rename(&partial, &file).is_err() {
                return Err(format!("the corpus does not compile for {target}"));
            }
        }
    }
    Ok(())
}

/// How two dumps differ.
struct Report {
    /// Kernels of the second dump.
    kernels: usize,
    /// The differing kernels, each as it is printed.
    different: Vec<String>,
}

/// A workload's kernels, numbered and in order, and its error if it has one.
type Workloads = BTreeMap<String, Vec<String>>;

fn parse(dump: &str, with_opts: bool) -> Workloads {
    let mut workloads = Workloads::new();
    for part in dump.split("\n# ").map(|p| p.trim_start_matches("# ")) {
        let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
        let mut kernels: Vec<String> = Vec::new();
        for text in format!("\n{rest}").split("\n@ ").filter(|t| !t.trim().is_empty()) {
            let (kernel, body) = text.split_once('\n').unwrap_or((text, ""));
            let body = if with_opts { body.to_string() } else { without_opts(body) };
            kernels.push(numbered(kernel, body.trim_end()));
        }
        kernels.sort_unstable();
        workloads.insert(name.to_string(), kernels);
    }
    workloads
}

/// Returns a kernel's text without the Opts, which end its first line.
fn without_opts(body: &str) -> String {
    let (launch, source) = body.split_once('\n').unwrap_or((body, ""));
    let sizes = launch.split_once(" opts ").map_or(launch, |(sizes, _)| sizes);
    format!("{sizes}\n{source}")
}

/// Compares two dumps as sets of kernels per workload.
fn compare(before: &str, now: &str, with_opts: bool) -> Report {
    let (mut before, now) = (parse(before, with_opts), parse(now, with_opts));
    let mut report = Report { kernels: now.values().map(Vec::len).sum(), different: Vec::new() };
    for (name, kernels) in now {
        let Some(old) = before.remove(&name) else {
            report.different.push(format!("{name}: not in the corpus of the revision"));
            continue;
        };
        let (gone, new) = unmatched(old, kernels);
        for i in 0..gone.len().max(new.len()) {
            report.different.push(format!("{name}\n{}", difference(gone.get(i), new.get(i))));
        }
    }
    report
        .different
        .extend(before.keys().map(|name| format!("{name}: only in the corpus of the revision")));
    report
}

/// Returns the elements of each sorted list that the other lacks.
fn unmatched(old: Vec<String>, new: Vec<String>) -> (Vec<String>, Vec<String>) {
    let mut counts: BTreeMap<String, isize> = BTreeMap::new();
    old.into_iter().for_each(|k| *counts.entry(k).or_default() -= 1);
    new.into_iter().for_each(|k| *counts.entry(k).or_default() += 1);
    let side = |sign: isize| {
        let times = |(k, n): (&String, &isize)| vec![k.clone(); (n * sign).max(0) as usize];
        counts.iter().flat_map(times).collect::<Vec<_>>()
    };
    (side(-1), side(1))
}

/// Lines around the first difference of two kernels.
fn difference(old: Option<&String>, new: Option<&String>) -> String {
    const LINES: usize = 6;
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (old, new),
        (Some(old), None) => {
            return format!("  only in the revision:\n- {}", old.replace('\n', "\n- "));
        }
        (None, Some(new)) => {
            return format!("  only in the working tree:\n+ {}", new.replace('\n', "\n+ "));
        }
        (None, None) => return String::new(),
    };
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let mut lines = vec![format!("  {}", new[0]), format!("  from line {same}:")];
    lines.extend(old.iter().skip(same).take(LINES).map(|l| format!("- {l}")));
    lines.extend(new.iter().skip(same).take(LINES).map(|l| format!("+ {l}")));
    lines.join("\n")
}

/// Types and functions of the languages whose names end with digits, without the digits.
static WORDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    "float double half int uint long ulong short ushort char uchar bool f i u e x v vec mat bf tf \
     fp exp log atan make_float make_int make_half make_uint make_double make_short make_char \
     make_uchar __half __nv_bfloat bfloat as_float as_int as_uint vload vstore convert_float sm_ m \
     n k b s p binary"
        .split_whitespace()
        .collect()
});

/// Returns a kernel's text with the names of the kernel, of buffers and of variables numbered in
/// order of appearance. A name is an identifier that ends with digits, or that LLVM marks with `%`
/// or `@`.
fn numbered(kernel: &str, text: &str) -> String {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let marked = matches!(c, '%' | '@');
        let start = usize::from(marked);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || (marked && c == '.');
        let end = rest[start..].find(|c: char| !is_word(c)).map_or(rest.len(), |n| n + start);
        if end == start {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let word = &rest[start..end];
        if is_name(word, marked, kernel) {
            let next = names.len();
            let number = *names.entry(word.to_string()).or_insert(next);
            out.push_str(&rest[..start]);
            out.push_str(&format!("name{number}"));
        } else {
            out.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    out
}

fn is_name(word: &str, marked: bool, kernel: &str) -> bool {
    if word == kernel || word.strip_suffix("_entry") == Some(kernel) {
        return true;
    }
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    if marked {
        return !word.starts_with("llvm.");
    }
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.len() < word.len() && !WORDS.contains(stem)
}

#[cfg(test)]
mod tests {
    use super::{compare, numbered};

    #[test]
    fn names_are_numbered_in_order_of_appearance() {
        let text = "static void r_4(float* data0, const float4* buffer7) {\n float val3 = \
                    buffer7[lidx0]*exp2(1.5e0f);\n}";
        let expected = "static void name0(float* name1, const float4* name2) {\n float name3 = \
                        name2[name4]*exp2(1.5e0f);\n}";
        assert_eq!(numbered("r_4", text), expected);
        assert_eq!(
            numbered("k", "%a.b = call float @llvm.fma.f32(float %x)"),
            "%name0 = call float @llvm.fma.f32(float %name1)"
        );
    }

    #[test]
    fn renamed_kernels_are_equal_and_changed_ones_are_listed() {
        let before =
            "# a\n@ r_1\ngrid 1\n int val0 = 1;\n@ r_2\ngrid 1\n int val0 = 2;\n# b\n! no f64\n";
        let renamed =
            "# a\n@ s_2\ngrid 1\n int alu1 = 2;\n@ s_1\ngrid 1\n int alu0 = 1;\n# b\n! no f64\n";
        assert!(compare(before, renamed, true).different.is_empty());
        let changed = renamed.replace("= 2", "= 3");
        let report = compare(before, &changed, true);
        assert_eq!((report.kernels, report.different.len()), (3, 1));
        assert!(
            report.different[0].contains("- ") && report.different[0].contains("int name0 = 3"),
            "{}",
            report.different[0]
        );
        assert_eq!(compare(before, "# a\n", true).different.len(), 3);
    }

    #[test]
    fn opts_are_compared_unless_ignored() {
        let before = "# a\n@ r_1\ngrid 1 opts LOCAL:0:4\n int val0 = 1;\n";
        let now = before.replace("LOCAL:0:4", "LOCAL:0:4 ORDER:1:0");
        assert_eq!(compare(before, &now, true).different.len(), 1);
        assert!(compare(before, &now, false).different.is_empty());
        assert_eq!(compare(before, &now.replace("= 1", "= 2"), false).different.len(), 1);
    }
}
