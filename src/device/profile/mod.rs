//! What ran when, for `PROFILE`: a trace that Perfetto and Chrome open. In come spans of the host,
//! kernels and copies of devices, and the memory of their buffers; out comes a file, when the
//! process ends or when [`write`] is called.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | how events are noted, and when they are written |
//! | `json` | how they are written |
//!
//! Without `PROFILE` nothing is noted: each place where something could be asks once whether it is
//! on. There is a most of events, and what comes after is counted and said, so that a long run
//! takes no more memory than a short one.

mod json;

use super::files;
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::lower::{Estimate, Launch};
use rustc_hash::FxHashSet;
use serde_json::Value;
use std::borrow::Cow;
use std::cell::Cell;
use std::io::Write;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// So many events are kept: 150 to 300 MB, and about as much as a viewer takes.
const MOST: usize = 1_000_000;

/// Writes the events up to now into a file; `PROFILE` says where all of them go when the process
/// ends. Without `PROFILE` there are none, which is an error.
///
/// ```
/// use picograd::profile;
/// # let without = std::env::var("PROFILE").is_err();
/// # if without {
/// let error = profile::write("here.json").unwrap_err(); // of a process without PROFILE=1
/// assert!(error.to_string().contains("PROFILE=1"));
/// # }
/// ```
pub fn write(path: impl AsRef<Path>) -> Result<()> {
    match profile() {
        Some(profile) => profile.write(path.as_ref()),
        None => Err(Error::Env(
            "nothing is recorded: run the program with PROFILE=1 to have a trace to write".into(),
        )),
    }
}

/// The recording of a process.
struct Profile {
    start: Instant,
    path: PathBuf,
    /// A copy of the process, as a fork makes, has nothing to write.
    process: u32,
    events: Mutex<Events>,
}

/// What was noted.
#[derive(Default)]
struct Events {
    list: Vec<Event>,
    /// Events that came after the most, and when the first of them began.
    dropped: usize,
    dropped_from: u64,
    /// The names of threads and devices, by number.
    threads: Vec<String>,
    devices: Vec<DeviceName>,
    names: FxHashSet<Arc<str>>,
}

/// Something that was going on for a time, in nanoseconds since the start.
struct Event {
    track: Track,
    name: Arc<str>,
    start: u64,
    time: u64,
    detail: Detail,
}

/// Where an event is shown. The numbers are of threads and of devices.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Track {
    Host(u32),
    Kernels(u32),
    Copies(u32),
    Memory(u32),
}

/// What is told of an event beside its name and time.
enum Detail {
    Kernel { launch: Launch, flops: f64, bytes: f64 },
    Copy { bytes: usize },
    Memory { live: usize },
    Notes(Vec<(&'static str, Value)>),
}

/// The recording, where `PROFILE` asks for one.
fn profile() -> Option<&'static Profile> {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    extern "C" fn at_exit() {
        // Nothing may unwind from here.
        let _ = catch_unwind(|| {
            if let Some(profile) = PROFILE.get().and_then(Option::as_ref) {
                profile.finish();
            }
        });
    }
    PROFILE.get_or_init(|| Profile::begin(at_exit)).as_ref()
}

/// Standard error may be closed, which is no reason to panic.
fn say(text: std::fmt::Arguments) {
    let _ = writeln!(std::io::stderr(), "picograd: {text}");
}

impl Profile {
    fn begin(at_exit: extern "C" fn()) -> Option<Profile> {
        let path = env::config().ok()?.profile.as_ref()?;
        // The program may go to another folder before it ends.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if let Some(why) = files::why_not(&path) {
            say(format_args!(
                "PROFILE: {} cannot be written: {why}; nothing is recorded",
                path.display()
            ));
            return None;
        }
        // SAFETY: the function lives as long as the process, takes nothing and does not unwind.
        if unsafe { libc::atexit(at_exit) } != 0 {
            say(format_args!(
                "PROFILE: nothing can be done at the end of this process; profile::write writes \
                 the trace"
            ));
        }
        Some(Profile {
            start: Instant::now(),
            path,
            process: std::process::id(),
            events: Mutex::default(),
        })
    }

    /// Writes all events at the end of the process.
    fn finish(&self) {
        if self.process != std::process::id() {
            return;
        }
        let path = self.path.display();
        match self.write(&self.path) {
            Ok(()) => {
                let events = self.events();
                let (list, dropped) = (events.list.len(), events.dropped);
                let less = if dropped > 0 {
                    format!(" and dropped the {dropped} after them")
                } else {
                    String::new()
                };
                say(format_args!(
                    "PROFILE: wrote {list} events{less} to {path}; open it at https://ui.perfetto.dev or in chrome://tracing"
                ));
            }
            Err(e) => say(format_args!("PROFILE: the trace is lost: {e}")),
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
        let events = self.events();
        files::write(path, |out| json::write(&events, out).map_err(failed))
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        // An event is added whole or not at all.
        self.events.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Notes what has just ended.
    fn note(&self, track: Track, name: &str, start: u64, time: u64, detail: Detail) {
        self.events().push(track, name, start, time, detail);
    }

    /// The number of this thread, which has one from its first event on.
    fn thread(&self) -> u32 {
        thread_local! {
            static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
        }
        NUMBER.get().unwrap_or_else(|| {
            let threads = &mut self.events().threads;
            let number = threads.len() as u32;
            threads.push(
                std::thread::current()
                    .name()
                    .map_or_else(|| format!("thread {number}"), str::to_string),
            );
            NUMBER.set(Some(number));
            number
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Events {
    fn push(&mut self, track: Track, name: &str, start: u64, time: u64, detail: Detail) {
        if self.list.len() >= MOST {
            self.dropped_from = if self.dropped == 0 { start } else { self.dropped_from };
            self.dropped += 1;
            return;
        }
        let name = self.names.get(name).cloned().unwrap_or_else(|| {
            let name: Arc<str> = name.into();
            self.names.insert(name.clone());
            name
        });
        self.list.push(Event { track, name, start, time, detail });
    }

    /// The number of a device.
    fn device(&mut self, device: &DeviceName) -> u32 {
        let number = self.devices.iter().position(|d| d == device).unwrap_or_else(|| {
            self.devices.push(device.clone());
            self.devices.len() - 1
        });
        number as u32
    }
}

/// Something that the host does, from now until it is dropped. Nothing is computed for it where
/// there is no recording.
#[must_use]
pub(crate) struct Span(Option<Open>);

struct Open {
    profile: &'static Profile,
    name: Cow<'static, str>,
    start: u64,
    notes: Vec<(&'static str, Value)>,
}

/// Begins something that the host does on this thread.
pub(crate) fn span(name: impl FnOnce() -> Cow<'static, str>) -> Span {
    Span(profile().map(|profile| Open {
        profile,
        name: name(),
        start: profile.now(),
        notes: Vec::new(),
    }))
}

impl Span {
    /// Tells something of it.
    pub fn note(&mut self, what: &'static str, value: impl FnOnce() -> Value) {
        if let Some(open) = &mut self.0 {
            open.notes.push((what, value()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(Open { profile, name, start, notes }) = self.0.take() {
            let time = profile.now() - start;
            profile.note(Track::Host(profile.thread()), &name, start, time, Detail::Notes(notes));
        }
    }
}

/// A watch that was started when a device was given something to do.
pub(crate) struct Watch {
    profile: &'static Profile,
    start: u64,
}

/// Starts a watch, where there is a recording.
pub(crate) fn watch() -> Option<Watch> {
    profile().map(|profile| Watch { profile, start: profile.now() })
}

impl Watch {
    /// Notes that a kernel has just ended, which took so long.
    pub fn kernel(
        &self,
        device: &DeviceName,
        name: &str,
        time: Duration,
        launch: Launch,
        estimate: &Estimate,
    ) {
        // It ended when it was waited for, or a little before. It did not begin before it was
        // started.
        let end = self.profile.now();
        let start = end.saturating_sub(nanos(time)).max(self.start);
        let mut events = self.profile.events();
        let track = Track::Kernels(events.device(device));
        events.push(
            track,
            name,
            start,
            end - start,
            Detail::Kernel { launch, flops: estimate.flops, bytes: estimate.bytes },
        );
    }

    /// Notes that a copy has just ended.
    pub fn copy(&self, to: &DeviceName, from: &DeviceName, bytes: usize) {
        let time = self.profile.now() - self.start;
        let mut events = self.profile.events();
        let track = Track::Copies(events.device(to));
        events.push(track, &format!("copy from {from}"), self.start, time, Detail::Copy { bytes });
    }
}

/// Notes how many bytes the buffers of a device take from now on.
pub(in crate::device) fn memory(device: &DeviceName, live: usize) {
    if let Some(profile) = profile() {
        let now = profile.now();
        let mut events = profile.events();
        let track = Track::Memory(events.device(device));
        events.push(track, "memory", now, 0, Detail::Memory { live });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of events, which has to be JSON.
    fn text(events: &Events) -> String {
        let mut bytes = Vec::new();
        json::write(events, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        text
    }

    #[test]
    fn names_and_notes_are_quoted() {
        let mut events = Events { threads: vec!["a \"thread\"".into()], ..Events::default() };
        let notes =
            vec![("path", "C:\\x\n\u{1}".into()), ("count", 3.into()), ("odd", f64::NAN.into())];
        events.push(Track::Host(0), "say \"hi\"\t日", 1500, 250, Detail::Notes(notes));
        let device = events.device(&DeviceName::new("CPU\\\"1"));
        let launch = Launch { grid: [2, 3, 1], local: [32, 1, 1], threads: 1 };
        events.push(
            Track::Kernels(device),
            "r_\"\\",
            2000,
            1000,
            Detail::Kernel { launch, flops: 5e3, bytes: f64::INFINITY },
        );
        events.push(Track::Copies(device), "copy", 4000, 0, Detail::Copy { bytes: 7 });
        events.push(Track::Memory(device), "memory", 4000, 0, Detail::Memory { live: 9 });
        let text = text(&events);
        for part in [
            r#""name":"say \"hi\"\t日""#,
            r#"{"count":3,"odd":null,"path":"C:\\x\n\u0001"}"#,
            r#""dur":0.25,"#,
            r#""ts":1.5}"#,
            r#""name":"r_\"\\""#,
            r#""name":"a \"thread\"""#,
            r#""name":"CPU\\\"1""#,
            r#"{"GB/s":null,"GFLOP/s":5,"bytes":null,"flops":5000,"grid":"2 × 3 × 1","local":"32 × 1 × 1","threads":1}"#,
            r#""live":9"#,
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn there_is_a_most_of_events_and_the_file_says_so() {
        let mut events = Events::default();
        let device = events.device(&DeviceName::new("CPU"));
        for i in 0..MOST + 3 {
            events.push(Track::Memory(device), "memory", i as u64, 0, Detail::Memory { live: i });
        }
        assert_eq!(
            (events.list.len(), events.dropped, events.dropped_from),
            (MOST, 3, MOST as u64)
        );
        events.list.truncate(1);
        let text = text(&events);
        assert!(
            text.contains(r#""dropped events":3"#)
                && text.contains("3 events were dropped from here on"),
            "{text}"
        );
        assert!(!self::text(&Events::default()).contains("were dropped"));
    }
}
