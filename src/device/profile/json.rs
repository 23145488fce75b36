//! The trace as JSON, in the format of Chrome's own tracing: a process for the host, with a thread
//! for each of its threads, and a process for each device, with its kernels, its copies and a curve
//! of its memory. Times are in microseconds.

use super::{Detail, Event, Events, Track, Value};
use crate::device::json::quoted;
use std::fmt::Display;
use std::io::{Result, Write};

/// The number of the host's process. Devices follow.
const HOST: u32 = 1;

/// Tracks of devices have numbers from here on, so that no thread of the host has the same.
const DEVICE_TRACKS: u32 = 1_000_000;

/// Writes all events, in the order in which they began.
pub(super) fn write(events: &Events, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"version\":{},",
        quoted(env!("CARGO_PKG_VERSION"))
    )?;
    writeln!(out, "\"dropped events\":{}}},\"traceEvents\":[", events.dropped)?;
    name(out, "process", HOST, 0, "host")?;
    for (i, thread) in events.threads.iter().enumerate() {
        name(out, "thread", HOST, place(Track::Host(i as u32)).1, thread)?;
    }
    for (i, device) in (0..).zip(&events.devices) {
        name(out, "process", place(Track::Kernels(i)).0, 0, device.as_str())?;
        for (track, text) in [(Track::Kernels(i), "kernels"), (Track::Copies(i), "copies")] {
            let (process, thread) = place(track);
            if events.list.iter().any(|e| e.track == track) {
                name(out, "thread", process, thread, text)?;
            }
        }
    }
    if events.dropped > 0 {
        let text = quoted(&format!("{} events were dropped from here on", events.dropped));
        writeln!(
            out,
            "{{\"ph\":\"i\",\"s\":\"g\",\"pid\":{HOST},\"tid\":0,\"ts\":{},\"name\":{text}}},",
            micros(events.dropped_from)
        )?;
    }
    // What is inside another comes after it.
    let mut order: Vec<&Event> = events.list.iter().collect();
    order.sort_by_key(|e| (e.start, std::cmp::Reverse(e.time)));
    order.into_iter().try_for_each(|e| event(out, e))?;
    // It takes the comma before it, and says again what is so anyway.
    writeln!(
        out,
        "{{\"ph\":\"M\",\"pid\":{HOST},\"tid\":0,\"name\":\"process_sort_index\",\"args\":{{\"\
         sort_index\":0}}}}\n]}}"
    )
}

/// The process and the thread of a track.
fn place(track: Track) -> (u32, u32) {
    match track {
        Track::Host(thread) => (HOST, 1 + thread),
        Track::Kernels(d) | Track::Memory(d) => (HOST + 1 + d, DEVICE_TRACKS + 2 * d),
        Track::Copies(d) => (HOST + 1 + d, DEVICE_TRACKS + 2 * d + 1),
    }
}

fn name(out: &mut dyn Write, what: &str, process: u32, thread: u32, name: &str) -> Result<()> {
    writeln!(
        out,
        "{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},\"name\":\"{what}_name\",\"args\":{{\"\
         name\":{}}}}},",
        quoted(name)
    )
}

fn event(out: &mut dyn Write, e: &Event) -> Result<()> {
    let ((process, thread), name, start) = (place(e.track), quoted(&e.name), micros(e.start));
    if let Detail::Memory { live } = e.detail {
        return writeln!(
            out,
            "{{\"ph\":\"C\",\"pid\":{process},\"name\":{name},\"ts\":{start},\"args\":{{\"live\":\
             {live}}}}},"
        );
    }
    let category = match e.track {
        Track::Host(_) => "host",
        Track::Kernels(_) => "kernel",
        Track::Copies(_) => "copy",
        Track::Memory(_) => "memory",
    };
    let time = micros(e.time);
    write!(
        out,
        "{{\"ph\":\"X\",\"pid\":{process},\"tid\":{thread},\"ts\":{start},\"dur\":{time},\"name\":\
         {name},\"cat\":\"{category}\",\"args\":{{"
    )?;
    let notes: Vec<String> = match &e.detail {
        Detail::Notes(notes) => notes.iter().map(|(what, value)| said(what, value)).collect(),
        Detail::Copy { bytes } => {
            vec![count("bytes", *bytes as f64), count("GB/s", rate(*bytes as f64, e.time))]
        }
        Detail::Kernel { launch, flops, bytes } => {
            let size = |n: [usize; 3]| Value::Text(n.map(|n| n.to_string()).join(" × "));
            vec![
                said("grid", &size(launch.grid)),
                said("local", &size(launch.local)),
                count("threads", launch.threads as f64),
                count("flops", *flops),
                count("bytes", *bytes),
                count("GFLOP/s", rate(*flops, e.time)),
                count("GB/s", rate(*bytes, e.time)),
            ]
        }
        Detail::Memory { .. } => Vec::new(),
    };
    writeln!(out, "{}}}}},", notes.join(","))
}

fn said(what: &str, value: &Value) -> String {
    match value {
        Value::Number(n) => count(what, *n),
        Value::Text(text) => format!("{}:{}", quoted(what), quoted(text)),
    }
}

fn count(what: &str, n: f64) -> String {
    // JSON has no other numbers.
    if n.is_finite() { format!("{}:{n}", quoted(what)) } else { format!("{}:null", quoted(what)) }
}

/// Billions in a second; of no time it is 0.
fn rate(n: f64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { (n / nanos as f64 * 1e3).round() / 1e3 }
}

/// Nanoseconds as microseconds, exactly.
fn micros(nanos: u64) -> impl Display {
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}
