//! Single launches and copies: run, counted, profiled and printed (`DEBUG=2`).

use super::bind::bind_copy;
use crate::compile::Compiled;
use crate::device::limits::zeroed;
use crate::device::memory::HostBuffer;
use crate::device::usage::Usage;
use crate::device::{Buffer, Counters, Device, Memory, MemoryRef, count, profile};
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::lower::Launch;
use std::time::{Duration, Instant};

/// Runs a kernel on checked memory, counts and prints it.
///
/// # Safety
/// As for [`Executable::run`](crate::device::Executable::run): the memory was bound to this
/// program.
pub(super) unsafe fn run_kernel(
    c: &Compiled,
    device: &DeviceName,
    memory: &[MemoryRef],
    launch: &Launch,
    debug: u8,
) -> Result<Duration> {
    let watch = profile::watch();
    // SAFETY: the caller's promise.
    let time = unsafe { c.executable.run(memory, launch) }?;
    if let Some(watch) = watch {
        watch.kernel(device, &c.program.name, time, *launch, &c.program.estimate);
    }
    let e = c.program.estimate;
    let total = count(
        device,
        &Counters { kernels: 1, flops: e.flops, bytes: e.bytes, time, ..Counters::default() },
    );
    if debug >= 2 {
        show_kernel(device, c, memory.len(), time, total.kernels, total.time);
    }
    Ok(time)
}

/// Checks a copy of all elements of a buffer, makes it, counts and prints it.
pub(super) fn run_copy(to: &Buffer, from: &Buffer, debug: u8) -> Result<Duration> {
    bind_copy(to, from)?;
    let (device, other, bytes) = (to.device_name(), from.device_name(), to.bytes());
    let mut span = profile::span(|| "copy".into());
    span.note("bytes", || bytes.into());
    span.note("to", || device.as_str().into());
    span.note("from", || other.as_str().into());
    let (start, watch) = (Instant::now(), profile::watch());
    copy(to, from)?;
    // A copy within a device is asynchronous.
    if env::config()?.times_kernels() {
        Device::named(device)?.synchronize()?;
    }
    let time = start.elapsed();
    if let Some(watch) = watch {
        watch.copy(device, other, bytes);
    }
    let total = count(device, &Counters { copies: 1, ..Counters::default() });
    if debug >= 2 {
        let label = format!("copy {bytes} bytes, {device} <- {other}");
        eprintln!("*** {:8} {:4} {label:46} tm {}", "", total.copies, micros(time));
    }
    Ok(time)
}

/// Copies a whole buffer to another of the same dtype and length.
pub(crate) fn copy_buffer(to: &Buffer, from: &Buffer) -> Result<()> {
    let _alone = crate::device::buffer::lock_for_kernel();
    run_copy(to, from, env::config()?.debug).map(drop)
}

/// Bytes per chunk of a copy through the host, between devices without a direct copy: a multiple of
/// every element size.
const CHUNK_BYTES: usize = 16 << 20;

/// Copies between any two kinds of memory.
fn copy(to: &Buffer, from: &Buffer) -> Result<()> {
    let bytes = to.bytes();
    let (t, f) = (to.place(), from.place());
    match (t.memory, f.memory) {
        (Memory::Host(th), Memory::Host(fh)) => {
            let (to, from) = (host_range(th, t.offset, bytes), host_range(fh, f.offset, bytes));
            // SAFETY: both are at least that long, and a copy's memories are different ones.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
            Ok(())
        }
        (Memory::Host(th), Memory::Disk(file)) => {
            let out = host_range(th, t.offset, bytes);
            // SAFETY: the memory is at least that long, and while a copy runs nobody else reads or
            // writes it.
            file.read(f.offset, to.dtype(), unsafe { std::slice::from_raw_parts_mut(out, bytes) })
        }
        (Memory::Host(th), Memory::Remote(r)) => {
            let out = host_range(th, t.offset, bytes);
            // SAFETY: as above.
            r.read(f.offset, unsafe { std::slice::from_raw_parts_mut(out, bytes) })
        }
        (Memory::Remote(r), Memory::Host(fh)) => {
            let from = host_range(fh, f.offset, bytes);
            // SAFETY: the memory is at least that long, and nobody writes to it while a copy runs.
            r.write(t.offset, unsafe { std::slice::from_raw_parts(from, bytes) })
        }
        (Memory::Remote(r), Memory::Remote(from))
            if r.copy_from(t.offset..t.offset + bytes, &**from, f.offset)? =>
        {
            Ok(())
        }
        (Memory::Remote(r), Memory::Remote(from)) => {
            // Through the host, one chunk at a time.
            let mut piece = zeroed(bytes.min(CHUNK_BYTES))?;
            for at in (0..bytes).step_by(CHUNK_BYTES) {
                let piece = &mut piece[..CHUNK_BYTES.min(bytes - at)];
                from.read(f.offset + at, piece)?;
                r.write(t.offset + at, piece)?;
            }
            Ok(())
        }
        (Memory::Remote(r), Memory::Disk(file)) => {
            file.read_chunks(f.offset, to.dtype(), bytes, &mut |at, piece| {
                r.write(t.offset + at, piece)
            })
        }
        (Memory::Disk(_), _) => Err(Error::Device("a copy to DISK: files are read-only".into())),
        (Memory::Null, _) => Ok(()),
        (_, Memory::Null) => {
            Err(Error::Device("NULL runs no kernels, so its buffers have no values to copy".into()))
        }
    }
}

/// Returns the start of a range of host memory, which is checked to be inside it.
fn host_range(memory: &HostBuffer, offset: usize, bytes: usize) -> *mut u8 {
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.len());
    assert!(inside, "a copy of {bytes} bytes exceeds its buffer");
    memory.ptr().wrapping_add(offset)
}

/// Returns the position of a device's counters, which are added if they are missing.
pub(super) fn counters_of(all: &mut Vec<(DeviceName, Counters)>, device: &DeviceName) -> usize {
    all.iter().position(|d| d.0 == *device).unwrap_or_else(|| {
        all.push((device.clone(), Counters::default()));
        all.len() - 1
    })
}

/// Formats a time with its unit.
pub(super) fn micros(t: Duration) -> String {
    let us = t.as_secs_f64() * 1e6;
    if us < 1e4 { format!("{us:8.2} us") } else { format!("{:8.2} ms", us / 1e3) }
}

/// Prints the line of a launch.
fn show_kernel(
    device: &DeviceName,
    c: &Compiled,
    args: usize,
    time: Duration,
    number: u64,
    total: Duration,
) {
    let (name, color) = (&c.program.name, env::config().is_ok_and(|c| c.color));
    // Escape sequences have no width, so the padding is computed from the plain name.
    let shown = if color { &c.program.colored } else { name };
    let pad = " ".repeat(40usize.saturating_sub(name.len()));
    let (s, e) = (time.as_secs_f64().max(1e-9), c.program.estimate);
    let held = Usage::of(device).now().0 as f64 / 1e9;
    eprintln!(
        "*** {:8} {number:4} {shown}{pad} arg {args:2} mem {held:6.2} GB tm {}/{:9.2} ms ({:8.2} \
         GFLOPS {:7.1} GB/s)",
        device.as_str(),
        micros(time),
        total.as_secs_f64() * 1e3,
        e.flops / s / 1e9,
        e.bytes / s / 1e9
    );
}
