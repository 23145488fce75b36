//! The machine of the CPU backends: cores, caches, clock rate and the rates of a core. CPUID
//! describes the processor; what it does not report is read below `/sys`, where Linux describes it,
//! or has the fixed value of [`Machine::cpu`].

use super::cpuid::{self, Description};
use super::pool;
use crate::target::{CoreRates, Machine};
use std::env::consts::ARCH;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Returns the machine of this process, with vector registers of `vector_bytes`.
pub(super) fn detect(vector_bytes: usize) -> Machine {
    static FOUND: OnceLock<(Machine, Option<Description>)> = OnceLock::new();
    let (found, processor) = FOUND.get_or_init(|| {
        let mut machine = read(Path::new("/sys/devices/system/cpu/cpu0"));
        let processor = cpuid::read();
        if let Some(processor) = &processor {
            add_caches(&mut machine, processor);
        }
        (machine, processor)
    });
    of_vectors(found, processor.as_ref(), vector_bytes)
}

/// Returns the machine with what depends on the width of vectors. arm64 has 32 registers.
fn of_vectors(machine: &Machine, processor: Option<&Description>, vector_bytes: usize) -> Machine {
    let fixed = Machine::cpu(vector_bytes);
    let rates = processor
        .map_or(fixed.rates, |p| CoreRates::find(p.vendor, p.family, p.model, vector_bytes));
    let vector_registers = match ARCH {
        "aarch64" => 32,
        _ => fixed.vector_registers,
    };
    Machine { vector_registers, mask_registers: fixed.mask_registers, rates, ..*machine }
}

/// Replaces the caches by those that CPUID reports.
fn add_caches(machine: &mut Machine, processor: &Description) {
    for (level, cache) in processor.caches.iter().enumerate() {
        if let Some(cache) = cache {
            machine.cache_bytes[level] = cache.bytes;
            machine.cache_threads[level] = cache.sharers;
            machine.line_bytes = cache.line_bytes;
        }
    }
}

/// Reads the description of a core.
fn read(cpu: &Path) -> Machine {
    let mut machine =
        Machine { detected: true, cores: pool::cores().threads(), ..Machine::cpu(64) };
    machine.nontemporal_stores = cfg!(target_arch = "x86_64");
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
            if let Some(sharers) = file("shared_cpu_list").and_then(|list| length_of(&list)) {
                machine.cache_threads[level - 1] = sharers;
            }
        }
    }
    if let Some(khz) = text(&cpu.join("cpufreq/cpuinfo_max_freq")).and_then(|n| n.parse().ok()) {
        machine.clock_khz = khz;
    }
    machine
}

/// Returns the number of processors of a list such as `0-3,8`.
fn length_of(list: &str) -> Option<usize> {
    list.split(',')
        .map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (from.parse::<usize>().ok()?, to.parse::<usize>().ok()?);
            Some(to.checked_sub(from)? + 1)
        })
        .sum()
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
            let files = [
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", if level == "2" { "0-1,8" } else { "0" }),
            ];
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
        assert_eq!(machine.cache_threads, [1, 3, Machine::cpu(64).cache_threads[2]]);
        let unknown = read(Path::new("/nowhere"));
        assert_eq!(unknown.cache_bytes, Machine::cpu(64).cache_bytes);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(length_of("0"), Some(1));
        assert_eq!(length_of("0-3,8"), Some(5));
        for text in ["", "3-1", "a"] {
            assert_eq!(length_of(text), None, "{text}");
        }
    }

    #[test]
    fn caches_of_cpuid_replace_those_of_sys() {
        let mut machine = read(Path::new("/nowhere"));
        let l2 = cpuid::Cache { bytes: 2 << 20, line_bytes: 64, sharers: 2 };
        let processor = Description {
            vendor: crate::target::Vendor::Amd,
            family: 0x19,
            model: 0x11,
            caches: [None, Some(l2), None],
        };
        add_caches(&mut machine, &processor);
        let fixed = Machine::cpu(64);
        assert_eq!(machine.cache_bytes, [fixed.cache_bytes[0], 2 << 20, fixed.cache_bytes[2]]);
        assert_eq!(machine.cache_threads[1], 2);
        let [wide, narrow] = [64, 32].map(|bytes| of_vectors(&machine, Some(&processor), bytes));
        assert_eq!((wide.vector_registers, wide.mask_registers, wide.rates.fmas), (32, 8, 1.0));
        let registers = if ARCH == "aarch64" { 32 } else { 16 };
        assert_eq!((narrow.vector_registers, narrow.mask_registers), (registers, 0));
        assert_eq!(narrow.rates.fmas, 2.0);
    }
}
