//! Text-in, text-out tests: `tests/filetests/<pass>/*.uop` have graphs and the expected result of a
//! pass. `BLESS=1 cargo test --test filetests` writes the current results to the files; read the
//! diff.
//!
//! The first line of a file describes it. Lines of `---` separate cases; a case is a comment, the
//! graph, a line `=>` and the result. In directories of rule tables the comment lists the rules
//! that the case tests, or `stays` for a graph that must not change; the file `pass.uop` of such a
//! directory has cases of the pass that applies the table.
//!
//! The first line of a case of a pass says what it shows. Comments of the form `; target: cuda` and
//! `; opts: UPCAST:0:4` set the target and the Opts. The result is the graph after the pass,
//! `; unchanged`, or the error of an Opt that does not apply. Where a scheduler pass does not see
//! the graph of the case, because passes run before it, the result shows its input too.
//!
//! Each directory, and each file of `opt`, has a case in which the pass changes its input. The test
//! is its own process, so that every rule that fires, fires because of a case.

use picograd::compile::pipeline;
use picograd::dtype::DType;
use picograd::ir::{
    Arg, DeviceName, Loop, Op, Src, UOp, parse, parse_program, print, print_program,
};
use picograd::opt::{self, Kernel, OptOp};
use picograd::pass::Stage;
use picograd::render::{Clang, Cuda, Llvm, Metal, OpenCl, Renderer, Wgsl};
use picograd::rewrite::{Rules, traced};
use picograd::schedule::{DeviceTraits, KernelLimits, Nontemporal, PlanRequest};
use picograd::target::{Target, Tuning};
use picograd::{autograd, heuristic, lower, schedule, symbolic, tables};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A rule table as a function.
type Rewrite = fn(&UOp) -> UOp;

/// Directories of rule tables, with the function applied to the graphs of each.
const TABLES: &[(&str, Rewrite)] = &[
    ("gradient", gradient),
    ("prepare", prepare),
    ("reduce_simplify", reduce_simplify),
    ("symbolic", symbolic::simplify),
    ("decompose", decompose),
];

/// The gradients of the leaves of the graph, with the second operand of the sink as the upstream
/// gradient.
fn gradient(u: &UOp) -> UOp {
    let [y, seed] = u.src() else { panic!("a sink of a result and its gradient") };
    let found = autograd::gradients(y, seed.clone(), &autograd::leaves(y)).expect("a gradient");
    UOp::sink(found.into_iter().flatten().collect::<Vec<_>>())
}

fn prepare(u: &UOp) -> UOp {
    Rules::new(&[&schedule::PREPARE]).fixpoint(u, &mut Tuning::MEASURED.schedule.clone())
}

fn reduce_simplify(u: &UOp) -> UOp {
    Rules::new(&[&schedule::REDUCE_SIMPLIFY]).fixpoint(u, &mut ())
}

/// Decomposes for C, which has f64 and no float narrower than f32.
fn decompose(u: &UOp) -> UOp {
    Rules::new(&[&lower::DECOMPOSE]).fixpoint(u, &mut Target::c(0))
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

/// The result of a pass on a case.
enum Outcome {
    /// The text of a changed graph.
    Changed(String),
    /// The graph is unchanged.
    Unchanged,
    /// The reason why an Opt does not apply.
    Refused(String),
}

impl Outcome {
    /// The result of a pass on a graph or program, from both as text.
    fn of(before: &str, after: String) -> Outcome {
        if after == before { Outcome::Unchanged } else { Outcome::Changed(after) }
    }

    /// The result as a file shows it.
    fn text(&self) -> String {
        match self {
            Outcome::Changed(text) => text.clone(),
            Outcome::Unchanged => "; unchanged\n".into(),
            Outcome::Refused(why) => format!("; error: {why}\n"),
        }
    }
}

/// The outcomes of the cases of a directory or file.
#[derive(Clone, Copy, Default)]
struct Tally {
    changed: usize,
    refused: usize,
}

/// Settings of a case, as comments.
const SETTINGS: [&str; 8] =
    ["target", "opts", "language", "devices", "donated", "limits", "nontemporal", "loop"];

/// A case of a pass: the text before `=>`, and the settings in its comments.
struct Case<'a> {
    text: &'a str,
}

impl Case<'_> {
    /// Checks that the first line says what the case shows, and that settings are known.
    fn check_comments(&self) {
        let comments: Vec<&str> =
            self.text.lines().map_while(|l| l.strip_prefix("; ")).collect::<Vec<_>>();
        let is_setting = |l: &str| SETTINGS.iter().any(|s| l.starts_with(&format!("{s}: ")));
        let described = comments.first().is_some_and(|l| !is_setting(l));
        assert!(described, "the first line must say what the case shows:\n{}", self.text);
        let unknown = comments.iter().skip(1).find(|l| !is_setting(l));
        assert!(unknown.is_none(), "unknown setting {unknown:?} in\n{}", self.text);
    }

    fn setting(&self, name: &str) -> Option<&str> {
        let comments = self.text.lines().filter_map(|l| l.strip_prefix("; "));
        comments.filter_map(|l| l.split_once(": ")).find(|(key, _)| *key == name).map(|(_, v)| v)
    }

    /// The target: C with vectors of 16 bytes unless the case sets another.
    fn target(&self) -> Target {
        match self.setting("target").unwrap_or("c") {
            "c" => Target::c(16),
            "avx512" => Target::c(64),
            "cuda" => Target::cuda().with_tensor_cores(true, true),
            "opencl" => Target::opencl(),
            "metal" => Target::metal(),
            "wgsl" => Target::wgsl(),
            "interp" => Target::interp(),
            other => panic!("unknown target {other}"),
        }
    }

    fn graph(&self) -> UOp {
        parse(self.text).unwrap_or_else(|e| panic!("{e} in\n{}", self.text))
    }

    fn program(&self) -> Vec<UOp> {
        parse_program(self.text).unwrap_or_else(|e| panic!("{e} in\n{}", self.text))
    }

    /// The kernel with the Opts of the case.
    fn optimized(&self) -> Outcome {
        let opts = opt::parse(self.setting("opts").unwrap_or_default()).expect("a list of Opts");
        let graph = self.graph();
        match Kernel::new(graph.clone()).apply_all(&opts, &self.target()) {
            Ok(kernel) => Outcome::of(&print(&graph), print(&kernel.ast)),
            Err(e) => Outcome::Refused(e.to_string()),
        }
    }

    /// The result of a pass.
    fn run(&self, pass: &str) -> Outcome {
        let target = self.target();
        match pass {
            "opt" => self.optimized(),
            "choose_opts" => {
                let graph = self.graph();
                let kernel = heuristic::choose(&Kernel::new(graph.clone()), &target);
                match Outcome::of(&print(&graph), print(&kernel.ast)) {
                    Outcome::Changed(text) => {
                        Outcome::Changed(format!("; {}\n{text}", opt::show(&kernel.opts)))
                    }
                    other => other,
                }
            }
            "render" => {
                let renderer: Box<dyn Renderer> = match self.setting("language").unwrap_or("c") {
                    "c" => Box::new(Clang::new(target)),
                    "llvm" => Box::new(Llvm::new(target)),
                    "cuda" => Box::new(Cuda::new("sm_80")),
                    "opencl" => Box::new(OpenCl::new()),
                    "metal" => Box::new(Metal::new()),
                    "wgsl" => Box::new(Wgsl::new()),
                    other => panic!("unknown language {other}"),
                };
                let rendered = renderer.render("kernel", &self.program());
                Outcome::Changed(rendered.expect("a renderable program").text())
            }
            _ if schedule::passes().iter().any(|p| p.info.name == pass) => self.scheduled(pass),
            _ => self.lowered(pass, &target),
        }
    }

    /// The state of the scheduler before and after a pass. The graph is that of one output or a
    /// `Sink` of several; `; devices:` lists their devices, `; donated:` the input whose memory
    /// each may overwrite, and `; limits:` the maximum number of buffers of a kernel and the
    /// threads that saturate the device. `; nontemporal:` has the least bytes of an output whose
    /// stores may bypass the caches, and the distance to its reader. With `; loop:` the graph is
    /// the body of a loop, whose outputs are requested.
    fn scheduled(&self, pass: &str) -> Outcome {
        let root = self.graph();
        let outputs = match self.setting("loop") {
            Some(counts) => looped(&root, counts),
            None if root.op() == Op::Sink => root.src().to_vec(),
            None => vec![root],
        };
        let list = |name: &str| -> Vec<&str> {
            self.setting(name).map_or_else(Vec::new, |v| v.split(' ').collect())
        };
        let mut devices: Vec<DeviceName> =
            list("devices").into_iter().map(DeviceName::new).collect();
        devices.resize_with(outputs.len(), || DeviceName::new("CPU"));
        let mut donated: Vec<Option<usize>> =
            list("donated").iter().map(|v| v.parse().ok()).collect();
        donated.resize(outputs.len().max(4), None);
        let traits = match list("limits").as_slice() {
            [buffers, threads] => DeviceTraits {
                limits: KernelLimits {
                    buffers: buffers.parse().expect("a number of buffers"),
                    bytes: usize::MAX,
                },
                threads: threads.parse().expect("a number of threads"),
                ..DeviceTraits::UNKNOWN
            },
            _ => DeviceTraits::UNKNOWN,
        };
        let nontemporal = match list("nontemporal").as_slice() {
            [least, distance] => Some(Nontemporal {
                least_bytes: least.parse().expect("bytes"),
                distance: distance.parse().expect("bytes"),
            }),
            _ => None,
        };
        let traits = DeviceTraits { nontemporal, ..traits };
        let slots = outputs.iter().flat_map(UOp::toposort).filter_map(|u| Some(u.as_param()?.slot));
        let request = PlanRequest {
            outputs: &outputs,
            devices: &devices,
            donated: &donated,
            inputs: slots.max().map_or(0, |slot| slot + 1),
            traits_of: &|_| traits,
        };
        let texts = schedule::texts_of(pass, &request).expect("a pass of the scheduler");
        let (before, graph) = (texts.before, outputs.iter().map(print).collect::<String>());
        match Outcome::of(&before, texts.after) {
            Outcome::Changed(after) if before != graph => Outcome::Changed(both(&before, &after)),
            other => other,
        }
    }

    fn lowered(&self, name: &str, target: &Target) -> Outcome {
        let pass = lower::PASSES.iter().find(|p| p.info.name == name);
        let stage = pass.unwrap_or_else(|| panic!("unknown pass {name}")).info.stage;
        // The input of the passes after `linearize` is a program.
        let (before, mut state) = match stage {
            Stage::Program => {
                let program = self.program();
                (print_program(&program), lower::Lowering::of_program(program, target))
            }
            _ => (print(&self.graph()), lower::Lowering::new(&self.graph(), target)),
        };
        Outcome::of(&before, state.run_pass(name).expect("a pass of lowering"))
    }
}

/// The state before and after a pass. A pass that only places or donates buffers changes comments;
/// then the graphs are left out.
fn both(before: &str, after: &str) -> String {
    let is_comment = |l: &&str| l.starts_with(';');
    let graphs =
        |text: &str| text.lines().filter(|l| !is_comment(l)).collect::<Vec<_>>().join("\n");
    let comments = |text: &str| text.lines().filter(is_comment).map(|l| format!("{l}\n")).collect();
    let [before, after] = match graphs(before) == graphs(after) {
        true => [comments(before), comments(after)],
        false => [before.to_string(), after.to_string()],
    };
    format!("; before\n{before}; after\n{after}")
}

/// The outputs of a loop. `body` is a `Sink` of the carries after an iteration, then the stacked
/// values; its `Param`s are the carries, the elements, and the captures. `counts` has the number of
/// iterations, of carries and of elements, and `reverse` for a loop from the last element.
fn looped(body: &UOp, counts: &str) -> Vec<UOp> {
    let (counts, reverse) = match counts.strip_suffix(" reverse") {
        Some(counts) => (counts, true),
        None => (counts, false),
    };
    let counts: Vec<usize> =
        counts.split(' ').map(|n| n.parse().expect("a number")).collect::<Vec<_>>();
    let [count, carries, elements] = counts[..] else { panic!("three numbers: {counts:?}") };
    let body = Loop { body: body.clone(), count, reverse, carries, elements };
    let mut params: Vec<UOp> =
        body.body.toposort().into_iter().filter(|u| u.op() == Op::Param).collect();
    params.sort_by_key(|u| u.expect_param().slot);
    let operand = |u: &UOp| match u.arg() {
        Arg::Param { slot, len, device } if body.is_element(*slot) => {
            u.with_arg(Arg::Param { slot: *slot, len: len * count, device: device.clone() })
        }
        _ => u.clone(),
    };
    let src: Src = params.iter().map(operand).collect();
    let dtypes: Vec<DType> = body.outputs().into_iter().map(|o| o.0).collect();
    let node = UOp::new(Op::Loop, DType::VOID, src, Arg::Loop(body.into()));
    let output = |(i, dtype): (usize, DType)| {
        UOp::new(Op::Output, dtype, std::iter::once(node.clone()).collect::<Src>(), Arg::Output(i))
    };
    dtypes.into_iter().enumerate().map(output).collect()
}

/// Runs the cases of a file of a pass and returns its text with the current results.
fn run_pass(text: &str, pass: &str, tally: &mut Tally) -> String {
    let mut parts = text.split("---\n");
    let mut out = vec![parts.next().unwrap_or_default().to_string()];
    for case in parts {
        let input = case.split("=>\n").next().unwrap_or_default();
        let case = Case { text: input };
        case.check_comments();
        let outcome = case.run(pass);
        match outcome {
            Outcome::Changed(_) => tally.changed += 1,
            Outcome::Refused(_) => tally.refused += 1,
            Outcome::Unchanged => {}
        }
        out.push(format!("{input}=>\n{}", outcome.text()));
    }
    out.join("---\n")
}

/// Runs the cases of a file of a rule table and returns its text with the current results.
fn run_table(file: &Path, text: &str, stage: fn(&UOp) -> UOp) -> String {
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
            assert!(holds, "{}: wrong list of rules: {rule} on\n{input}{steps:#?}", file.display());
        }
        out.push(format!("{input}=>\n{}", Outcome::of(&print(&graph), print(&result)).text()));
    }
    out.join("---\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests")
}

/// Compares the files of a directory with the current results, or writes these to the files.
fn compare(folder: &str, mut now: impl FnMut(&Path, &str) -> String, wrong: &mut Vec<String>) {
    let bless = std::env::var_os("BLESS").is_some_and(|v| v == "1");
    for file in files(&root().join(folder)) {
        let text =
            std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let now = now(&file, &text);
        if bless && now != text {
            std::fs::write(&file, &now).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        } else if now != text {
            let line = now.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
            wrong.push(format!(
                "{}:{}: the result is {:?}",
                file.display(),
                line + 1,
                now.lines().nth(line).unwrap_or("the end")
            ));
        }
    }
}

#[test]
fn every_pass_has_cases() {
    for pass in pipeline::passes() {
        let folder = root().join(pass.name);
        assert!(folder.is_dir(), "there is no tests/filetests/{}", pass.name);
        let cases = |f: &PathBuf| std::fs::read_to_string(f).is_ok_and(|t| t.contains("\n=>\n"));
        assert!(files(&folder).iter().any(cases), "tests/filetests/{} has no case", pass.name);
    }
    for op in OptOp::ALL {
        let file = root().join("opt").join(format!("{}.uop", op.name().to_lowercase()));
        assert!(file.exists(), "there is no {}", file.display());
    }
}

/// Describes the files of a pass that do not show it at work: without a case in which it changes
/// its input, or for an Opt without one that is refused.
fn check_tallies(pass: &str, files: &BTreeMap<PathBuf, Tally>, wrong: &mut Vec<String>) {
    if pass != "opt" {
        if files.values().all(|t| t.changed == 0) {
            wrong.push(format!("no case in tests/filetests/{pass} changes its input"));
        }
        return;
    }
    for (file, tally) in files {
        // NOLOCALS changes no graph; it makes later Opts errors.
        let changes = tally.changed > 0 || file.ends_with("nolocals.uop");
        if !changes || tally.refused == 0 {
            wrong.push(format!(
                "{}: one case in which the Opt applies and one in which it is refused are needed",
                file.display()
            ));
        }
    }
}

#[test]
fn results_are_those_of_the_files() {
    let mut wrong = Vec::new();
    let is_pass_file = |file: &Path| file.ends_with("pass.uop");
    for &(name, stage) in TABLES {
        let table = |file: &Path, text: &str| match is_pass_file(file) {
            true => text.to_string(),
            false => run_table(file, text, stage),
        };
        compare(name, table, &mut wrong);
    }
    for pass in pipeline::passes().into_iter().map(|p| p.name).chain(["opt"]) {
        let has_table = TABLES.iter().any(|t| t.0 == pass);
        let mut tallies: BTreeMap<PathBuf, Tally> = BTreeMap::new();
        let run = |file: &Path, text: &str| match has_table && !is_pass_file(file) {
            true => text.to_string(),
            false => run_pass(text, pass, tallies.entry(file.to_path_buf()).or_default()),
        };
        compare(pass, run, &mut wrong);
        check_tallies(pass, &tallies, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 writes the current results", wrong.join("\n"));
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
