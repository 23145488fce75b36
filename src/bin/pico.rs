//! The `pico` command: what this machine offers, and the store of what was compiled and tuned.
//!
//! In come words; out come lines for people. A closed pipe ends it quietly; a command that it does
//! not know ends it with code 2.

use picograd::Device;
use picograd::device::registry::canonical;
use picograd::disk_cache;
use picograd::disk_cache::EntryKind;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

const USAGE: &str = "\
usage: pico COMMAND

  devices        each kind of device: what is there, or why not and what to do
  cache          where compiled programs and tuned optimisations are kept, and how many
  cache clear    delete them; `cache clear programs` and `cache clear opts` delete one kind
  --help         this text
  --version      the version

docs/env.md lists the environment variables.
";

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|w| w.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut out = io::stdout().lock();
    let done = match words.as_slice() {
        ["devices"] => devices(&mut out),
        ["cache"] => cache(&mut out),
        ["cache", "clear"] => return clear(&mut out, &EntryKind::ALL),
        ["cache", "clear", "programs"] => return clear(&mut out, &EntryKind::PROGRAMS),
        ["cache", "clear", "opts"] => return clear(&mut out, &[EntryKind::Opts]),
        ["--help" | "-h" | "help"] => out.write_all(USAGE.as_bytes()),
        ["--version" | "-V" | "version"] => writeln!(out, "pico {}", env!("CARGO_PKG_VERSION")),
        [] => return wrong("a command is missing"),
        words => return wrong(&format!("there is no command `{}`", words.join(" "))),
    };
    finish(done, &mut out)
}

/// How it ended.
fn finish(done: io::Result<()>, out: &mut impl Write) -> ExitCode {
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
    } else if std::env::var_os("DEV").is_none() {
        let why = Device::default().err().map_or(String::new(), |e| format!(": {e}"));
        writeln!(out, "\nthe default device cannot be used{why}")
    } else {
        let set = std::env::var("DEV").unwrap_or_default();
        let why = canonical(&set).err().map_or(String::new(), |e| format!("\n{e}"));
        writeln!(out, "\nDEV={set} asks for {default}, which is not in the list.{why}")
    }
}

/// Where the store is, how full it is, and what it holds, by device.
fn cache(out: &mut impl Write) -> io::Result<()> {
    let store = disk_cache::global();
    let Some(path) = store.dir() else {
        return writeln!(out, "there is no cache: {}", store.why_off().unwrap_or("no folder"));
    };
    let contents = match store.contents() {
        Ok(contents) => contents,
        Err(why) => {
            return writeln!(out, "folder    {}\nit cannot be read now: {why}", path.display());
        }
    };
    writeln!(out, "folder    {}", path.display())?;
    writeln!(out, "size      {} of at most {}", bytes(contents.bytes), bytes(store.limit()))?;
    for (title, kind, with) in
        [("programs", EntryKind::Program, Some(EntryKind::Object)), ("opts", EntryKind::Opts, None)]
    {
        let (all, size) =
            contents.of(&[Some(kind), with].into_iter().flatten().collect::<Vec<_>>());
        let entries = if with.is_some() { contents.of(&[kind]).0 } else { all };
        writeln!(out, "{title:9} {entries}, {}", bytes(size))?;
        for ((_, device), (n, _)) in contents.entries.iter().filter(|((k, _), _)| *k == kind) {
            writeln!(out, "  {device:11} {n}")?;
        }
    }
    if contents.corrupt > 0 {
        writeln!(out, "set aside {}, damaged or not written by you", contents.corrupt)?;
    }
    if contents.lost_writes > 0 {
        writeln!(
            out,
            "lost      {} writes: the disk was full, or could not be written to",
            contents.lost_writes
        )?;
    }
    Ok(())
}

fn clear(out: &mut impl Write, kinds: &[EntryKind]) -> ExitCode {
    let store = disk_cache::global();
    let said = match (store.dir(), store.clear(kinds)) {
        (None, _) => writeln!(out, "there is no cache: {}", store.why_off().unwrap_or("no folder")),
        (Some(path), Ok((entries, freed))) => {
            writeln!(out, "deleted {entries} entries, {}, from {}", bytes(freed), path.display())
        }
        (Some(path), Err(why)) => {
            complain(&format!("pico: nothing is deleted from {}: {why}\n", path.display()));
            return ExitCode::FAILURE;
        }
    };
    finish(said, out)
}

fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
