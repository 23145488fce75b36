//! `cargo xtask package`: builds the tests and benchmarks of a device as programs that need neither
//! cargo nor the sources, into `target/device`. They are release builds without symbols; `run.sh`
//! there runs all of them.

use crate::parallel::field;
use crate::suite::cargo;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The suites that run on the device that `DEV` names.
const SUITES: [&str; 7] =
    ["ops", "autograd", "semantics", "random_graphs", "tensor_cores", "kernel_kinds", "jit"];

const RUN: &str = r#"#!/bin/sh
# Tests and measures a device: ./run.sh [DEVICE]. PICO_GRAPHS says how many random graphs.
cd "$(dirname "$0")" || exit 1
export DEV="${1:-CUDA}" PICO_GRAPHS="${PICO_GRAPHS:-2000}" PICO_CACHE="${PICO_CACHE:-$PWD/cache}"
./pico devices
failed=""
for suite in kernel_kinds jit tensor_cores random_graphs semantics autograd ops; do
  echo "== $suite on $DEV"
  # Tests that read the sources are skipped.
  ./$suite --skip ops_page_matches --skip every_public || failed="$failed $suite"
done
echo "== bench gpu"
./xtask bench gpu || failed="$failed bench"
if [ -n "$failed" ]; then echo "FAILED:$failed"; exit 1; fi
echo "all tests passed"
"#;

/// Builds the directory.
pub fn run() -> Result<(), String> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/device"));
    let mut programs: Vec<(String, PathBuf)> = Vec::new();
    let mut args = vec!["test", "--release", "--no-run", "--package", "picograd"];
    SUITES.iter().for_each(|s| args.extend(["--test", s]));
    programs.extend(built(&args, &SUITES)?);
    programs.extend(built(&["build", "--release", "--workspace", "--bins"], &["pico", "xtask"])?);
    let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    for (name, from) in programs {
        let to = folder.join(name);
        // A running program cannot be overwritten, only replaced.
        let _ = fs::remove_file(&to);
        fs::copy(&from, &to).map_err(|e| failed(&from, e))?;
        match Command::new("strip").arg(&to).status() {
            Ok(status) if status.success() => {}
            _ => eprintln!("failed to run strip: {} keeps its symbols", to.display()),
        }
        println!(
            "{} ({:.1} MB)",
            to.display(),
            fs::metadata(&to).map_or(0, |m| m.len()) as f64 / 1e6
        );
    }
    let script = folder.join("run.sh");
    fs::write(&script, RUN).map_err(|e| failed(&script, e))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .map_err(|e| failed(&script, e))?;
    println!("{}", script.display());
    Ok(())
}

/// Builds, and finds the programs of these names in cargo's messages.
fn built(args: &[&str], names: &[&str]) -> Result<Vec<(String, PathBuf)>, String> {
    let mut command = cargo(args);
    let output =
        command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("failed to run cargo: {e}"))?;
    if !output.status.success() {
        return Err("the build failed".into());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let find = |name: &&str| {
        // The name of the artifact comes after that of its package.
        let mine = |line: &&str| {
            line.split_once("\"target\":")
                .and_then(|(_, t)| field(t, "name"))
                .is_some_and(|n| n == **name)
        };
        let program = said.lines().filter(mine).find_map(|l| field(l, "executable"));
        Ok((
            name.to_string(),
            PathBuf::from(
                program.ok_or_else(|| format!("cargo reported no executable for {name}"))?,
            ),
        ))
    };
    names.iter().map(find).collect()
}
