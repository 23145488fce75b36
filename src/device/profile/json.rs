//! Writes the trace as JSON in the Chrome trace event format: one process for the host with its
//! threads, and one for each device with its kernels, copies and memory curve. Times are in
//! microseconds.

use super::{Detail, Event, Events, Track};
use serde_json::{Value, json};
use std::io::{Result, Write};

/// Process number of the host. Devices follow.
const HOST: u32 = 1;

/// First thread number of device tracks, above every thread number of the host.
const DEVICE_TRACKS: u32 = 1_000_000;

/// Writes all events, in the order in which they began, one per line.
pub(super) fn write(events: &Events, out: &mut dyn Write) -> Result<()> {
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"), "dropped events": events.dropped,
    });
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[")?;
    // An enclosing span comes before those inside it.
    let mut order: Vec<&Event> = events.list.iter().collect();
    order.sort_by_key(|e| (e.start, std::cmp::Reverse(e.time)));
    let mut separator = "\n";
    for value in metadata(events).into_iter().chain(order.into_iter().map(event)) {
        write!(out, "{separator}{value}")?;
        separator = ",\n";
    }
    writeln!(out, "\n]}}")
}

/// Returns the names of processes and threads, and the notice of dropped events.
fn metadata(events: &Events) -> Vec<Value> {
    let mut list = vec![name("process", (HOST, 0), "host")];
    for (i, thread) in events.threads.iter().enumerate() {
        list.push(name("thread", place(Track::Host(i as u32)), thread));
    }
    for (i, device) in (0..).zip(&events.devices) {
        let (process, _) = place(Track::Kernels(i));
        list.push(name("process", (process, 0), device.as_str()));
        for (track, text) in [(Track::Kernels(i), "kernels"), (Track::Copies(i), "copies")] {
            if events.list.iter().any(|e| e.track == track) {
                list.push(name("thread", place(track), text));
            }
        }
    }
    if events.dropped > 0 {
        let text = format!("{} events were dropped from here on", events.dropped);
        list.push(json!({
            "ph": "i", "s": "g", "pid": HOST, "tid": 0,
            "ts": micros(events.dropped_from), "name": text,
        }));
    }
    list
}

/// Process and thread number of a track.
fn place(track: Track) -> (u32, u32) {
    match track {
        Track::Host(thread) => (HOST, 1 + thread),
        Track::Kernels(d) | Track::Memory(d) => (HOST + 1 + d, DEVICE_TRACKS + 2 * d),
        Track::Copies(d) => (HOST + 1 + d, DEVICE_TRACKS + 2 * d + 1),
    }
}

/// Returns the event that names a process or a thread.
fn name(kind: &str, (process, thread): (u32, u32), name: &str) -> Value {
    let kind = format!("{kind}_name");
    json!({"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}})
}

fn event(e: &Event) -> Value {
    let ((process, thread), start) = (place(e.track), micros(e.start));
    if let Detail::Memory { live } = e.detail {
        let args = json!({ "live": live });
        return json!({"ph": "C", "pid": process, "name": &*e.name, "ts": start, "args": args});
    }
    let category = match e.track {
        Track::Host(_) => "host",
        Track::Kernels(_) => "kernel",
        Track::Copies(_) => "copy",
        Track::Memory(_) => "memory",
    };
    let args = match &e.detail {
        Detail::Notes(notes) => {
            notes.iter().map(|(what, note)| (what.to_string(), note.clone())).collect()
        }
        Detail::Copy { bytes } => {
            json!({"bytes": bytes, "GB/s": rate(*bytes as f64, e.time)})
        }
        Detail::Kernel { launch, flops, bytes } => {
            let size = |n: [usize; 3]| n.map(|n| n.to_string()).join(" × ");
            json!({
                "grid": size(launch.grid), "local": size(launch.local), "chunks": launch.chunks,
                "flops": number(*flops), "bytes": number(*bytes),
                "GFLOP/s": rate(*flops, e.time), "GB/s": rate(*bytes, e.time),
            })
        }
        Detail::Memory { .. } => json!({}),
    };
    json!({
        "ph": "X", "pid": process, "tid": thread, "ts": start, "dur": micros(e.time),
        "name": &*e.name, "cat": category, "args": args,
    })
}

/// Returns a number; null if it is not finite. Whole numbers are written without a fraction.
fn number(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 1e15 { (n as i64).into() } else { n.into() }
}

/// Billions per second; 0 for an empty span.
fn rate(n: f64, nanos: u64) -> Value {
    number(if nanos == 0 { 0.0 } else { (n / nanos as f64 * 1e3).round() / 1e3 })
}

/// Nanoseconds as microseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
