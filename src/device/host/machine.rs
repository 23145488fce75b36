//! The machine of the CPU backends: cores, caches and clock rate, as Linux describes them below
//! `/sys`. What Linux does not report has the fixed value of [`Machine::cpu`].

use super::pool;
use crate::target::Machine;
use std::env::consts::ARCH;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Returns the machine of this process, with vector registers of `vector_bytes`: 32 on arm64.
pub(super) fn detect(vector_bytes: usize) -> Machine {
    static FOUND: OnceLock<Machine> = OnceLock::new();
    let cpu0 = Path::new("/sys/devices/system/cpu/cpu0");
    let found = FOUND.get_or_init(|| read(cpu0));
    let vector_registers = match ARCH {
        "aarch64" => 32,
        _ => Machine::cpu(vector_bytes).vector_registers,
    };
    Machine { vector_registers, ..*found }
}

/// Reads the description of a core.
fn read(cpu: &Path) -> Machine {
    let mut machine = Machine { detected: true, cores: pool::threads(), ..Machine::cpu(64) };
    for index in 0..8 {
        let file = |name: &str| text(&cpu.join(format!("cache/index{index}/{name}")));
        let level = file("level").and_then(|level| level.parse::<usize>().ok());
        let is_data = file("type").is_some_and(|kind| kind != "Instruction");
        if let (Some(level @ 1..=3), true) = (level, is_data) {
            if let Some(bytes) = file("size").and_then(|size| bytes_of(&size)) {
                machine.cache_bytes[level - 1] = bytes;
            }
            if let Some(line) = file("coherency_line_size").and_then(|n| n.parse().ok()) {
                machine.line_bytes = line;
            }
        }
    }
    if let Some(khz) = text(&cpu.join("cpufreq/cpuinfo_max_freq")).and_then(|n| n.parse().ok()) {
        machine.clock_khz = khz;
    }
    machine
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// Returns the bytes of a size such as `48K` or `2M`.
fn bytes_of(size: &str) -> Option<usize> {
    let digits = size.trim_end_matches(['K', 'M']);
    let unit = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(bytes_of("48K"), Some(48 << 10));
        assert_eq!(bytes_of("2M"), Some(2 << 20));
        assert_eq!(bytes_of("512"), Some(512));
        for text in ["", "0K", "K", "2G", "99999999999999999999K"] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
    }

    #[test]
    fn caches_are_those_of_the_description() {
        let folder = tempfile::tempdir().unwrap();
        let write = |index: usize, level: &str, kind: &str, size: &str| {
            let cache = folder.path().join(format!("cache/index{index}"));
            fs::create_dir_all(&cache).unwrap();
            let files = [("level", level), ("type", kind), ("size", size)];
            for (name, value) in files.into_iter().chain([("coherency_line_size", "128")]) {
                fs::write(cache.join(name), format!("{value}\n")).unwrap();
            }
        };
        write(0, "1", "Data", "48K");
        write(1, "1", "Instruction", "64K");
        write(2, "2", "Unified", "2048K");
        let machine = read(folder.path());
        assert!(machine.detected);
        let l3 = Machine::cpu(64).cache_bytes[2];
        assert_eq!((machine.cache_bytes, machine.line_bytes), ([48 << 10, 2 << 20, l3], 128));
        let unknown = read(Path::new("/nowhere"));
        assert_eq!(unknown.cache_bytes, Machine::cpu(64).cache_bytes);
    }
}
