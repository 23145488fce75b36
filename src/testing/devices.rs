//! The devices under test: the one that `DEV` names, or the interpreter and the CPU. An unavailable
//! device is skipped with a message; if `PICO_REQUIRE` names it, that is a failure.

use crate::device::Device;
use crate::device::kind::{MemorySpace, is_null, kind_of, memory_space};
use crate::dtype::DType;
use crate::env;
use crate::ir::DeviceName;
use std::sync::{Mutex, OnceLock};

/// Returns the available devices under test.
pub fn devices() -> &'static [&'static str] {
    static DEVICES: OnceLock<Vec<&'static str>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        match env::config().unwrap_or_else(|e| panic!("{e}")).device.as_deref() {
            Some(dev) => is_available(dev).then_some(dev).into_iter().collect(),
            None => ["INTERP", "CPU"].into_iter().filter(|d| is_available(d)).collect(),
        }
    })
}

/// Returns true if the device is available. If not, prints the reason once.
///
/// # Panics
/// The device is not available, and `PICO_REQUIRE` names it.
pub fn is_available(device: &str) -> bool {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Err(why) = Device::get(device) else { return true };
    assert!(!is_required(device), "PICO_REQUIRE names {device}, which is not available: {why}");
    let mut said = SAID.lock().unwrap_or_else(|e| e.into_inner());
    if !said.iter().any(|d| d == device) {
        said.push(device.to_string());
        eprintln!("skipped on {device}: {why}");
    }
    false
}

/// Returns true if `PICO_REQUIRE` names the device or its kind.
pub fn is_required(device: &str) -> bool {
    let required = env::var("PICO_REQUIRE").unwrap_or_default();
    required
        .split(',')
        .map(str::trim)
        .any(|r| r.eq_ignore_ascii_case(device) || r.eq_ignore_ascii_case(kind(device)))
}

/// Returns true if the device compiles so slowly that it runs a part of the cases.
pub fn is_slow(device: &str) -> bool {
    kind_of(device).is_some_and(|k| k.compiles_slowly)
}

/// Returns true if the device lacks one of the dtypes. Tests skip such cases and print how many.
pub fn lacks(device: &str, dtypes: impl IntoIterator<Item = DType>) -> bool {
    let Ok(device) = Device::get(device) else { return false };
    dtypes.into_iter().any(|d| device.target().lacks(d))
}

fn kind(device: &str) -> &'static str {
    kind_of(device).map_or("", |k| k.name)
}

/// Returns true if the device interprets kernels.
pub(super) fn is_interpreter(device: &str) -> bool {
    kind_of(device).is_some_and(|k| k.is_interpreter)
}

/// Returns true if the device runs machine code in memory of the host.
pub(super) fn is_cpu(device: &str) -> bool {
    kind_of(device).is_some_and(|k| k.memory == MemorySpace::Host && !k.is_interpreter)
}

/// Returns true if the device compiles kernels and runs nothing.
pub fn runs_nothing(device: &DeviceName) -> bool {
    is_null(device)
}

/// Returns the cargo feature that the code of the device is a part of.
pub fn feature_of(device: &str) -> Option<&'static str> {
    kind_of(device)?.feature
}

/// Returns true if the device has memory of its own.
pub fn has_own_memory(device: &DeviceName) -> bool {
    memory_space(device) == Some(MemorySpace::Device)
}

/// Returns true if the default device lacks one of the dtypes. Prints that the test is skipped.
pub fn is_skipped(test: &str, dtypes: &[DType]) -> bool {
    let device = Device::default_name();
    let spared = lacks(device.as_str(), dtypes.iter().copied());
    if spared {
        eprintln!("skipped on {device}, which lacks a dtype of {dtypes:?}: {test}");
    }
    spared
}

/// Another device for copies: of the same kind if its memory is on the host, else the interpreter.
pub(super) fn second_device(device: &DeviceName) -> DeviceName {
    match memory_space(device) {
        Some(MemorySpace::Host) => DeviceName::new(&format!("{}:1", device.as_str())),
        _ => DeviceName::new("INTERP"),
    }
}

/// Returns the number of random graphs of a test: `PICO_GRAPHS`, or 2,000, or 200 on slow devices.
pub fn graphs() -> u64 {
    let asked = env::var("PICO_GRAPHS").filter(|v| !v.is_empty());
    let asked =
        asked.map(|v| v.parse().unwrap_or_else(|_| panic!("PICO_GRAPHS={v}: expected a number")));
    asked.unwrap_or(if devices().iter().any(|d| is_slow(d)) { 200 } else { 2000 })
}
