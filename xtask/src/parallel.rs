//! Runs test binaries in parallel. `cargo test` runs them one by one, and the last long test of
//! each leaves most cores idle; two at a time keep them busy. The doctests count as one binary.
//! Input: the arguments of `cargo test`. Output: the text of each binary, printed when it ends, and
//! true if all passed.

use crate::suite::cargo;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Binaries that run at a time. Each has its own threads.
const PARALLEL_BINARIES: usize = 2;

/// The slowest binaries, in starting order: a slow one that starts last would leave a core idle.
const LONG: [&str; 14] = [
    "random_graphs",
    "random_realizations",
    "compiler",
    "ops",
    "tensor",
    "semantics",
    "shard",
    "nn",
    "tensor_cores",
    DOCUMENTS,
    "process_global",
    "autograd",
    "picograd",
    "data",
];

/// The name of the doctests here. They have no binary of their own: cargo builds and runs them.
const DOCUMENTS: &str = "documents";

/// A test binary.
#[derive(Debug, PartialEq)]
struct Binary {
    name: String,
    /// Empty for the doctests.
    executable: String,
    /// The working directory that its tests expect, as with `cargo test`: that of the package.
    folder: String,
}

/// Returns the first string field of a name in a JSON message of cargo.
pub fn field(line: &str, name: &str) -> Option<String> {
    let rest = line.split_once(&format!("\"{name}\":\""))?.1;
    Some(rest.split_once('"')?.0.to_string())
}

impl Binary {
    /// Returns the test binary that a message of cargo describes, if any.
    fn of(line: &str) -> Option<Binary> {
        let field = |name: &str| field(line, name);
        let profile = line.split_once("\"profile\":{")?.1.split_once('}')?.0;
        if !line.contains("\"reason\":\"compiler-artifact\"") || !profile.contains("\"test\":true")
        {
            return None;
        }
        let folder = Path::new(&field("manifest_path")?).parent()?.to_string_lossy().into_owned();
        // The target's name comes after the manifest path, and no earlier field has that key.
        Some(Binary { name: field("name")?, executable: field("executable")?, folder })
    }

    /// Runs the binary. Returns its output, and true if its tests passed.
    fn run(&self) -> (String, bool) {
        let start = Instant::now();
        println!("     started {}", self.name);
        let mut command = if self.name == DOCUMENTS {
            cargo(&["test", "--quiet", "--workspace", "--doc"])
        } else {
            let mut command = Command::new(&self.executable);
            command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
            command
        };
        let done = command.output();
        let (text, passed) = match done {
            Ok(done) => {
                let how = if done.status.success() {
                    String::new()
                } else {
                    format!("{}: {}\n", self.name, done.status)
                };
                let text = [&done.stdout[..], &done.stderr, how.as_bytes()].concat();
                (String::from_utf8_lossy(&text).into_owned(), done.status.success())
            }
            Err(e) => (format!("failed to run {}: {e}\n", self.executable), false),
        };
        (
            format!("     Running {} ({:.1} s)\n{text}", self.name, start.elapsed().as_secs_f64()),
            passed,
        )
    }
}

/// Builds what `cargo test` with these arguments would run, and runs it, with the doctests if
/// `documents` is set.
pub fn run(args: &[&str], documents: bool) -> bool {
    let mut build = cargo(args);
    let built = build
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output();
    let mut binaries: Vec<Binary> = match built {
        Ok(built) if built.status.success() => {
            String::from_utf8_lossy(&built.stdout).lines().filter_map(Binary::of).collect()
        }
        Ok(_) => return false,
        Err(e) => {
            println!("failed to run cargo: {e}");
            return false;
        }
    };
    if binaries.is_empty() {
        println!("cargo built no test binary");
        return false;
    }
    if documents {
        binaries.push(Binary {
            name: DOCUMENTS.into(),
            executable: String::new(),
            folder: String::new(),
        });
    }
    binaries.sort_by_key(|b| LONG.iter().position(|l| *l == b.name).unwrap_or(LONG.len()));
    binaries.reverse();
    let (waiting, failed) = (Mutex::new(binaries), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap_or_else(|e| e.into_inner()).pop();
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL_BINARIES {
            scope.spawn(|| {
                while let Some(binary) = next() {
                    let (text, passed) = binary.run();
                    // One write per binary, so that outputs do not interleave.
                    let _ = std::io::stdout().lock().write_all(text.as_bytes());
                    if !passed {
                        failed.lock().unwrap_or_else(|e| e.into_inner()).push(binary.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    failed.is_empty()
}

#[test]
fn test_binaries_are_parsed() {
    let line = |test: bool| {
        let target = r#""target":{"kind":["test"],"name":"assign","doctest":false,"test":true}"#;
        let profile = format!(r#""profile":{{"opt_level":"1","test":{test}}}"#);
        let package = r#""package_id":"path+file:///p#picograd@0.1.0""#;
        let manifest = r#""manifest_path":"/p/Cargo.toml""#;
        let files = r#""filenames":["/p/target/debug/deps/assign-1"]"#;
        let executable = r#""executable":"/p/target/debug/deps/assign-1""#;
        let reason = r#""reason":"compiler-artifact""#;
        let fields = [reason, package, manifest, target, &profile, files, executable];
        format!("{{{}}}", fields.join(","))
    };
    let expected = Binary {
        name: "assign".into(),
        executable: "/p/target/debug/deps/assign-1".into(),
        folder: "/p".into(),
    };
    assert_eq!(Binary::of(&line(true)), Some(expected));
    assert_eq!(Binary::of(&line(false)), None, "an example is built and has no tests");
    assert_eq!(Binary::of(r#"{"reason":"build-finished","success":true}"#), None);
}
