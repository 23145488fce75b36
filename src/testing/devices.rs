//! The devices that results are tested on: what `DEV` names, or else those of the host. One that is
//! not there is left out, and that is said; one that `PICO_REQUIRE` names has to be there.

use crate::device::Device;
use crate::device::kind::{MemorySpace, compiles_slowly, kind_of, memory_space};
use crate::dtype::DType;
use crate::env;
use crate::ir::DeviceName;
use std::sync::{Mutex, OnceLock};

/// Every device under test that is there.
pub fn devices() -> &'static [&'static str] {
    static DEVICES: OnceLock<Vec<&'static str>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        match env::config().unwrap_or_else(|e| panic!("{e}")).device.as_deref() {
            Some(dev) => there(dev).then_some(dev).into_iter().collect(),
            None => ["INTERP", "CPU:CLANG", "CPU:LLVM"].into_iter().filter(|d| there(d)).collect(),
        }
    })
}

/// Is the device there? If not, it is said why, once, and where `PICO_REQUIRE` names it that is the
/// end.
pub fn there(device: &str) -> bool {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Err(why) = Device::get(device) else { return true };
    assert!(!is_required(device), "PICO_REQUIRE names {device}, and it is not there: {why}");
    let mut said = SAID.lock().unwrap_or_else(|e| e.into_inner());
    if !said.iter().any(|d| d == device) {
        said.push(device.to_string());
        eprintln!("skipped on {device}: {why}");
    }
    false
}

/// Does `PICO_REQUIRE` name a device, or its kind?
pub fn is_required(device: &str) -> bool {
    let required = env::var("PICO_REQUIRE").unwrap_or_default();
    required
        .split(',')
        .map(str::trim)
        .any(|r| r.eq_ignore_ascii_case(device) || r.eq_ignore_ascii_case(kind(device)))
}

/// True if the device compiles so slowly that it gets a part of the work.
pub fn is_slow(device: &str) -> bool {
    compiles_slowly(device)
}

/// Is there a dtype among these that the device does not compute in, as it says itself? What needs
/// one is left out on it, and the test says how often.
pub fn lacks(device: &str, dtypes: impl IntoIterator<Item = DType>) -> bool {
    let Ok(device) = Device::get(device) else { return false };
    dtypes.into_iter().any(|d| device.target().lacks(d))
}

fn kind(device: &str) -> &'static str {
    kind_of(device).map_or("", |k| k.name)
}

/// Does the default device not compute in one of these dtypes? Then that is said, and a test of
/// them is left out.
pub fn is_spared(test: &str, dtypes: &[DType]) -> bool {
    let device = Device::default_name();
    let spared = lacks(device.as_str(), dtypes.iter().copied());
    if spared {
        eprintln!("left out on {device}, which does not compute in {dtypes:?}: {test}");
    }
    spared
}

/// Another device, for copies: of the same kind where they share programs, the interpreter
/// otherwise.
pub(super) fn beside(device: &DeviceName) -> DeviceName {
    match memory_space(device) {
        Some(MemorySpace::Host) => DeviceName::new(&format!("{}:1", device.as_str())),
        _ => DeviceName::new("INTERP"),
    }
}

/// How many random graphs are run: `PICO_GRAPHS`, or 2,000, or 200 on slow devices.
pub fn graphs() -> u64 {
    let asked = env::var("PICO_GRAPHS").filter(|v| !v.is_empty());
    let asked =
        asked.map(|v| v.parse().unwrap_or_else(|_| panic!("PICO_GRAPHS={v}: it takes a number")));
    asked.unwrap_or(if devices().iter().any(|d| is_slow(d)) { 200 } else { 2000 })
}
