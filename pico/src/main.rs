//! The `pico` command: lists the devices of this machine, and shows and clears the disk cache.
//!
//! A closed pipe ends it without an error; an unknown command ends it with exit code 2.

use picograd::Device;
use picograd::compiler::device::canonical;
use picograd::compiler::disk_cache::{self, EntryKind};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

const USAGE: &str = "\
usage: pico COMMAND

  devices        list each kind of device, or why it is not available and how to get it
  cache          show the disk cache: its folder, compiled programs and tuned Opts
  cache clear    delete its entries; `cache clear programs` and `cache clear opts` delete one kind
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
        ["cache"] => show_cache(&mut out),
        ["cache", "clear"] => return clear(&mut out, &EntryKind::ALL),
        ["cache", "clear", "programs"] => return clear(&mut out, &EntryKind::PROGRAMS),
        ["cache", "clear", "opts"] => return clear(&mut out, &[EntryKind::Opts]),
        ["--help" | "-h" | "help"] => out.write_all(USAGE.as_bytes()),
        ["--version" | "-V" | "version"] => writeln!(out, "pico {}", env!("CARGO_PKG_VERSION")),
        [] => return usage_error("a command is missing"),
        words => return usage_error(&format!("there is no command `{}`", words.join(" "))),
    };
    exit_code(done, &mut out)
}

/// Flushes the output and converts its result to an exit code.
fn exit_code(done: io::Result<()>, out: &mut impl Write) -> ExitCode {
    match done.and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            print_error(&format!("pico: {e}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard error, which may be closed as well.
fn print_error(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn usage_error(what: &str) -> ExitCode {
    print_error(&format!("pico: {what}\n\n{USAGE}"));
    ExitCode::from(2)
}

/// Prints a line per kind of device, with the reason and the remedy if it is not available.
fn devices(out: &mut impl Write) -> io::Result<()> {
    let default = Device::default_name();
    let list = Device::list();
    for (name, found) in &list {
        let mark = if canonical(name).is_ok_and(|n| n == default) { "*" } else { " " };
        match found {
            Ok(what) => {
                writeln!(out, "{mark} {name:10} {what}")?;
                let machine = Device::get(name).ok().map(|d| d.target().machine);
                if let Some(machine) = machine.filter(|m| m.detected) {
                    writeln!(out, "             {machine}")?;
                }
            }
            Err(why) => {
                let why = why.to_string();
                let mut lines = why.strip_prefix("device: ").unwrap_or(&why).lines();
                writeln!(
                    out,
                    "{mark} {name:10} not available: {}",
                    lines.next().unwrap_or_default()
                )?;
                lines.try_for_each(|l| writeln!(out, "             {l}"))?;
            }
        }
    }
    if list.iter().any(|(name, _)| canonical(name).is_ok_and(|n| n == default)) {
        writeln!(out, "\n* is the default device; DEV=<name> chooses another.")
    } else if std::env::var_os("DEV").is_none() {
        let why = Device::default().err().map_or(String::new(), |e| format!(": {e}"));
        writeln!(out, "\nthe default device cannot be used{why}")
    } else {
        let set = std::env::var("DEV").unwrap_or_default();
        let why = canonical(&set).err().map_or(String::new(), |e| format!("\n{e}"));
        writeln!(out, "\nDEV={set} names {default}, which is not in the list.{why}")
    }
}

/// Prints the folder of the disk cache, its size, and its entries by device.
fn show_cache(out: &mut impl Write) -> io::Result<()> {
    let cache = disk_cache::global();
    let Some(path) = cache.dir() else {
        return writeln!(
            out,
            "there is no disk cache: {}",
            cache.disabled_reason().unwrap_or("no folder")
        );
    };
    let contents = match cache.contents() {
        Ok(contents) => contents,
        Err(why) => {
            return writeln!(out, "folder    {}\nthe folder cannot be read: {why}", path.display());
        }
    };
    writeln!(out, "folder    {}", path.display())?;
    writeln!(out, "size      {} of at most {}", bytes(contents.bytes), bytes(cache.limit()))?;
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
        writeln!(out, "corrupt   {}, damaged or not written by you", contents.corrupt)?;
    }
    if contents.failed_writes > 0 {
        writeln!(
            out,
            "failed    {} writes: the disk was full or read-only",
            contents.failed_writes
        )?;
    }
    Ok(())
}

fn clear(out: &mut impl Write, kinds: &[EntryKind]) -> ExitCode {
    let cache = disk_cache::global();
    let said = match (cache.dir(), cache.clear(kinds)) {
        (None, _) => {
            writeln!(
                out,
                "there is no disk cache: {}",
                cache.disabled_reason().unwrap_or("no folder")
            )
        }
        (Some(path), Ok((entries, freed))) => {
            writeln!(out, "deleted {entries} entries, {}, from {}", bytes(freed), path.display())
        }
        (Some(path), Err(why)) => {
            print_error(&format!("pico: cannot delete from {}: {why}\n", path.display()));
            return ExitCode::FAILURE;
        }
    };
    exit_code(said, out)
}

fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
