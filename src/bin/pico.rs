//! The `pico` command: what this machine offers, and the cache of compiled kernels.
//!
//! In come words; out come lines for people. A closed pipe ends it quietly; a command that it does not know ends it with code 2.

use picograd::Device;
use picograd::runtime::device::canonical;
use picograd::runtime::objcache;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

const USAGE: &str = "\
usage: pico COMMAND

  devices        each kind of device: what is there, or why not and what to do
  cache          the folder of compiled kernels, how many it holds and their size
  cache clear    delete them
  --help         this text
  --version      the version

docs/env.md lists the environment variables.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|w| w.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut out = io::stdout().lock();
    let done = match words.as_slice() {
        ["devices"] => devices(&mut out),
        ["cache"] => cache(&mut out),
        ["cache", "clear"] => clear(&mut out),
        ["--help" | "-h" | "help"] => out.write_all(USAGE.as_bytes()),
        ["--version" | "-V" | "version"] => writeln!(out, "pico {}", env!("CARGO_PKG_VERSION")),
        [] => return wrong("a command is missing"),
        words => return wrong(&format!("there is no command `{}`", words.join(" "))),
    };
    match done.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads us has seen enough.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            complain(&format!("pico: {e}\n"));
            ExitCode::FAILURE
        }
    }
}

/// To standard error, which may be closed as well.
fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn wrong(what: &str) -> ExitCode {
    complain(&format!("pico: {what}\n\n{USAGE}"));
    ExitCode::from(2)
}

/// A line per kind of device, and below those that are not there the reason and the way out.
fn devices(out: &mut impl Write) -> io::Result<()> {
    let default = Device::default_name();
    let list = Device::list();
    for (name, found) in &list {
        let mark = if canonical(name).is_ok_and(|n| n == default) { "*" } else { " " };
        match found {
            Ok(what) => writeln!(out, "{mark} {name:10} {what}")?,
            Err(why) => {
                let why = why.to_string();
                let mut lines = why.lines();
                writeln!(out, "{mark} {name:10} not there: {}", lines.next().unwrap_or_default())?;
                lines.try_for_each(|l| writeln!(out, "             {l}"))?;
            }
        }
    }
    if list.iter().any(|(name, _)| canonical(name).is_ok_and(|n| n == default)) {
        writeln!(out, "\n* is used where a program names none; DEV=<name> chooses another.")
    } else {
        let set = std::env::var("DEV").unwrap_or_default();
        writeln!(out, "\nDEV={set} asks for {default}, which is not in the list.")
    }
}

fn cache(out: &mut impl Write) -> io::Result<()> {
    let cache = objcache::global();
    let Some(dir) = cache.dir() else {
        return writeln!(out, "there is no cache: {}", cache.why_off().unwrap_or("no folder"));
    };
    let stats = cache.stats();
    writeln!(out, "folder   {}", dir.display())?;
    writeln!(out, "entries  {}", stats.entries)?;
    writeln!(out, "size     {}", bytes(stats.bytes))
}

fn clear(out: &mut impl Write) -> io::Result<()> {
    let cache = objcache::global();
    let Some(dir) = cache.dir() else {
        return writeln!(out, "there is no cache: {}", cache.why_off().unwrap_or("no folder"));
    };
    let before = cache.stats();
    cache.clear();
    let after = cache.stats();
    let (entries, freed) = (before.entries.saturating_sub(after.entries), before.bytes.saturating_sub(after.bytes));
    writeln!(out, "deleted {entries} entries, {}, from {}", bytes(freed), dir.display())?;
    if after.entries > 0 {
        writeln!(out, "{} entries are still there: they were written meanwhile, or may not be deleted", after.entries)?;
    }
    Ok(())
}

fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
