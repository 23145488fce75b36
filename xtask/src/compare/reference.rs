//! The reference kernels of `benches/reference_kernels`: builds them with the C compiler into
//! `target/` and starts them.

use super::worker::Worker;
use picograd::compiler::target::Target;
use std::path::Path;
use std::process::Command;

/// The name of their column.
pub const NAME: &str = "reference";

/// Compilers in order of preference, where `CC` names none.
const COMPILERS: [&str; 9] =
    ["clang", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "gcc", "cc"];

/// Builds and starts the kernels for the threads and the vectors of a target.
pub fn start(target: &Target) -> Result<Worker, String> {
    let level = level(target.vector_bytes)?;
    let compiler = compiler()?;
    let sources = Path::new("benches/reference_kernels");
    let mut files: Vec<_> = std::fs::read_dir(sources)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| format!("{}: {e}", sources.display()))?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    files.sort();
    let program = Path::new("target").join(format!("reference_kernels-{level}"));
    std::fs::create_dir_all("target").map_err(|e| format!("target: {e}"))?;
    let built = Command::new(&compiler)
        .args(["-O2", &format!("-march={level}"), "-o"])
        .arg(&program)
        .args(&files)
        .args(["-lpthread", "-lm"])
        .output()
        .map_err(|e| format!("{compiler}: {e}"))?;
    if !built.status.success() {
        let errors = String::from_utf8_lossy(&built.stderr);
        return Err(format!("{compiler} failed: {}", errors.lines().next().unwrap_or_default()));
    }
    eprintln!("reference kernels: {compiler} -O2 -march={level}");
    let mut command = Command::new(program);
    command.arg(picograd::device::host::pool::threads().to_string());
    Worker::start(NAME, command)
}

/// Returns the architecture that has vectors of this size.
fn level(vector_bytes: usize) -> Result<&'static str, String> {
    match vector_bytes {
        64.. => Ok("native"),
        32 => Ok("x86-64-v3"),
        n => Err(format!("it needs vectors of 32 bytes at least, and the target has {n}")),
    }
}

/// Returns the compiler that `CC` names, or the first one that runs.
fn compiler() -> Result<String, String> {
    if let Some(cc) = std::env::var("CC").ok().filter(|cc| !cc.is_empty()) {
        return Ok(cc);
    }
    let runs = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let found = COMPILERS.iter().find(runs);
    found.map(|name| name.to_string()).ok_or_else(|| "no C compiler is installed".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_vectors() {
        assert_eq!((level(64).unwrap(), level(32).unwrap()), ("native", "x86-64-v3"));
        assert!(level(16).unwrap_err().contains("32 bytes"));
    }
}
