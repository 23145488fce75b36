//! The profiler of `PROFILE`: records spans of the host, kernels and copies of devices, and the
//! memory of their buffers. It writes a trace for Perfetto and Chrome when the process ends or
//! [`write()`] is called.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | recording of events |
//! | `json` | output as JSON |
//!
//! Without `PROFILE` nothing is recorded, and the overhead is one check per event. The number of
//! events is limited, so that memory is bounded; the trace says how many were dropped.

mod json;

use super::backend::lock;
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

/// Maximum number of events: 150 to 300 MB, about the limit of the viewers.
const MAX_EVENTS: usize = 1_000_000;

/// Writes the events so far to a file. `PROFILE` names the file that is written when the process
/// ends. Without `PROFILE` nothing was recorded, which is an error.
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
            "profile::write: nothing is recorded; run the program with PROFILE=1".into(),
        )),
    }
}

/// The recording of a process.
struct Profile {
    start: Instant,
    path: PathBuf,
    /// Process that records. A forked child does not write the trace.
    process: u32,
    events: Mutex<Events>,
}

/// Recorded events.
#[derive(Default)]
struct Events {
    list: Vec<Event>,
    /// Events beyond the limit, and the start of the first of them.
    dropped: usize,
    dropped_from: u64,
    /// Names of threads and devices, by number.
    threads: Vec<String>,
    devices: Vec<DeviceName>,
    names: FxHashSet<Arc<str>>,
}

/// A span of time, in nanoseconds since the start of the recording.
struct Event {
    track: Track,
    name: Arc<str>,
    start: u64,
    time: u64,
    detail: Detail,
}

/// The track of an event, with the number of its thread or device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Track {
    Host(u32),
    Kernels(u32),
    Copies(u32),
    Memory(u32),
}

/// Details of an event besides name and time.
enum Detail {
    Kernel { launch: Launch, flops: f64, bytes: f64 },
    Copy { bytes: usize },
    Memory { live: usize },
    Notes(Vec<(&'static str, Value)>),
}

/// Returns the recording, if `PROFILE` is set.
fn profile() -> Option<&'static Profile> {
    static PROFILE: OnceLock<Option<Profile>> = OnceLock::new();
    extern "C" fn at_exit() {
        // Unwinding into C is undefined.
        let _ = catch_unwind(|| {
            if let Some(profile) = PROFILE.get().and_then(Option::as_ref) {
                profile.finish();
            }
        });
    }
    PROFILE.get_or_init(|| Profile::begin(at_exit)).as_ref()
}

/// Prints to stderr. A closed stderr is not an error.
fn print_line(text: std::fmt::Arguments) {
    let _ = writeln!(std::io::stderr(), "picograd: {text}");
}

impl Profile {
    fn begin(at_exit: extern "C" fn()) -> Option<Profile> {
        let path = env::config().ok()?.profile.as_ref()?;
        // The program may change its working directory before it ends.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if let Some(why) = files::write_obstacle(&path) {
            print_line(format_args!(
                "PROFILE: {} cannot be written: {why}; nothing is recorded",
                path.display()
            ));
            return None;
        }
        // SAFETY: the function lives as long as the process, takes nothing and does not unwind.
        if unsafe { libc::atexit(at_exit) } != 0 {
            print_line(format_args!(
                "PROFILE: cannot write at the end of this process; call profile::write"
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
                let less =
                    if dropped > 0 { format!(", dropped {dropped},") } else { String::new() };
                print_line(format_args!(
                    "PROFILE: wrote {list} events{less} to {path}; open it at \
                     https://ui.perfetto.dev or in chrome://tracing"
                ));
            }
            Err(e) => print_line(format_args!("PROFILE: the trace is lost: {e}")),
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let failed = |e: std::io::Error| Error::Io { path: path.to_path_buf(), msg: e.to_string() };
        let events = self.events();
        files::write(path, |out| json::write(&events, out).map_err(failed))
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        // A panic leaves no partial event.
        lock(&self.events)
    }

    /// Nanoseconds since the start.
    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Records an event that has just ended.
    fn note(&self, track: Track, name: &str, start: u64, time: u64, detail: Detail) {
        self.events().push(track, name, start, time, detail);
    }

    /// Returns the number of this thread, assigned at its first event.
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
        if self.list.len() >= MAX_EVENTS {
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

    /// Returns the number of a device.
    fn device(&mut self, device: &DeviceName) -> u32 {
        let number = self.devices.iter().position(|d| d == device).unwrap_or_else(|| {
            self.devices.push(device.clone());
            self.devices.len() - 1
        });
        number as u32
    }
}

/// A span of the host, which ends when it is dropped. Without a recording it computes nothing.
#[must_use]
pub(crate) struct Span(Option<Open>);

struct Open {
    profile: &'static Profile,
    name: Cow<'static, str>,
    start: u64,
    notes: Vec<(&'static str, Value)>,
}

/// Begins a span of this thread.
pub(crate) fn span(name: impl FnOnce() -> Cow<'static, str>) -> Span {
    Span(profile().map(|profile| Open {
        profile,
        name: name(),
        start: profile.now(),
        notes: Vec::new(),
    }))
}

impl Span {
    /// Adds a detail.
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

/// The start of a kernel or copy.
pub(crate) struct Watch {
    profile: &'static Profile,
    start: u64,
}

/// Starts timing a kernel or copy, if there is a recording.
pub(crate) fn watch() -> Option<Watch> {
    profile().map(|profile| Watch { profile, start: profile.now() })
}

impl Watch {
    /// Records a kernel that has just ended.
    pub fn kernel(
        &self,
        device: &DeviceName,
        name: &str,
        time: Duration,
        launch: Launch,
        estimate: &Estimate,
    ) {
        // The kernel ended at the end of the wait or shortly before, and began after its launch.
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

    /// Records a copy that has just ended.
    pub fn copy(&self, to: &DeviceName, from: &DeviceName, bytes: usize) {
        let time = self.profile.now() - self.start;
        let mut events = self.profile.events();
        let track = Track::Copies(events.device(to));
        events.push(track, &format!("copy from {from}"), self.start, time, Detail::Copy { bytes });
    }
}

/// Records the bytes of the live buffers of a device.
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

    /// Returns the text of events, checked to be JSON.
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
        let launch = Launch { grid: [2, 3, 1], local: [32, 1, 1], ..Launch::default() };
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
            r#"{"GB/s":null,"GFLOP/s":5,"bytes":null,"chunks":1,"flops":5000,"#,
            r#""grid":"2 × 3 × 1","local":"32 × 1 × 1"}"#,
            r#""live":9"#,
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn events_are_limited_and_the_trace_says_so() {
        let mut events = Events::default();
        let device = events.device(&DeviceName::new("CPU"));
        for i in 0..MAX_EVENTS + 3 {
            events.push(Track::Memory(device), "memory", i as u64, 0, Detail::Memory { live: i });
        }
        assert_eq!(
            (events.list.len(), events.dropped, events.dropped_from),
            (MAX_EVENTS, 3, MAX_EVENTS as u64)
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
