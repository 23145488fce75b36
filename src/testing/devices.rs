//! The devices that results are tested on: what `DEV` names, or else the interpreter and the CPU. One that is not there is left out, and that is said;
//! one that `PICO_REQUIRE` names has to be there.

use crate::env;
use crate::runtime::Device;
use std::sync::OnceLock;

/// Every device under test that is there.
pub fn devices() -> &'static [&'static str] {
    static DEVICES: OnceLock<Vec<&'static str>> = OnceLock::new();
    DEVICES.get_or_init(|| match env::config().unwrap_or_else(|e| panic!("{e}")).device.as_deref() {
        Some(dev) => there(dev).then_some(dev).into_iter().collect(),
        None => ["INTERP", "CPU"].into_iter().filter(|d| there(d)).collect(),
    })
}

/// Is the device there? If not, it is said why, and where `PICO_REQUIRE` names it that is the end.
pub fn there(device: &str) -> bool {
    let Err(why) = Device::get(device) else { return true };
    assert!(!is_required(device), "PICO_REQUIRE names {device}, and it is not there: {why}");
    eprintln!("skipped on {device}: {why}");
    false
}

/// Does `PICO_REQUIRE` name the kind of a device?
pub fn is_required(device: &str) -> bool {
    let required = std::env::var("PICO_REQUIRE").unwrap_or_default();
    required.split(',').any(|r| r.trim().eq_ignore_ascii_case(&kind(device)))
}

/// Does a device take so long to compile that it gets a part of the work? PoCL takes some 0.1 s for a kernel.
pub fn is_slow(device: &str) -> bool {
    ["CL", "WEBGPU"].contains(&kind(device).as_str())
}

fn kind(device: &str) -> String {
    device.split(':').next().unwrap_or_default().trim().to_ascii_uppercase()
}

/// How many random graphs are run: `PICO_GRAPHS`, or 2,000, or 200 on slow devices.
pub fn graphs() -> u64 {
    let asked = std::env::var("PICO_GRAPHS").ok().filter(|v| !v.is_empty());
    let asked = asked.map(|v| v.parse().unwrap_or_else(|_| panic!("PICO_GRAPHS={v}: it takes a number")));
    asked.unwrap_or(if devices().iter().any(|d| is_slow(d)) { 200 } else { 2000 })
}
