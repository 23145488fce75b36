//! CPU architectures by name: this machine's own, and the levels of x86-64 and arm64 that compilers
//! agree on.
//! In: a name. Out: the features that code for it may use, or an error with the names that work
//! here.
//!
//! **Invariant:** no code is generated for features that this CPU lacks, because it would end the
//! process.

use crate::codegen::{Isa, Level};
use crate::error::{Error, Result};

/// The name of the CPU of this machine, with all its features.
pub(in crate::device) const NATIVE: &str = "native";

/// A CPU architecture to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) struct Arch {
    /// Its name in compiler flags.
    pub name: &'static str,
    /// Bytes of its widest vector register.
    pub vector_bytes: usize,
    /// True if it has a fused multiply-add instruction. Without it, the C library computes `fma`
    /// slowly.
    pub fma: bool,
}

#[cfg(target_arch = "x86_64")]
const LEVELS: &[Arch] = &[
    Arch { name: "x86-64", vector_bytes: 16, fma: false },
    Arch { name: "x86-64-v2", vector_bytes: 16, fma: false },
    Arch { name: "x86-64-v3", vector_bytes: 32, fma: true },
    Arch { name: "x86-64-v4", vector_bytes: 64, fma: true },
];
#[cfg(target_arch = "aarch64")]
const LEVELS: &[Arch] = &[
    Arch { name: "armv8-a", vector_bytes: 16, fma: true },
    Arch { name: "armv8.2-a", vector_bytes: 16, fma: true },
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const LEVELS: &[Arch] = &[];

/// Returns LLVM's CPU and features for a level. LLVM has the levels of x86-64 as CPUs, and those of
/// arm64 as features.
pub(in crate::device) fn llvm_names(level: &str) -> (&str, &'static str) {
    match level {
        "armv8-a" => ("generic", ""),
        "armv8.2-a" => ("generic", "+v8.2a"),
        cpu => (cpu, ""),
    }
}

/// Checks that this is one of the names.
pub(in crate::device) fn check_name(name: &str) -> std::result::Result<(), String> {
    if name == NATIVE || LEVELS.iter().any(|a| a.name == name) {
        Ok(())
    } else {
        Err(format!("its ARCHs are {}", names(|_| true)))
    }
}

/// Returns the names whose level passes a test.
fn names(fits: impl Fn(&Arch) -> bool) -> String {
    let levels = LEVELS.iter().filter(|a| fits(a)).map(|a| a.name);
    [NATIVE].into_iter().chain(levels).collect::<Vec<_>>().join(", ")
}

impl Arch {
    /// Returns the architecture of a name, which this machine must support; its own if there is
    /// none.
    pub fn find(name: Option<&str>) -> Result<Arch> {
        let Some(name) = name.filter(|n| *n != NATIVE) else { return Ok(native()) };
        match LEVELS.iter().find(|a| a.name == name) {
            Some(level) if supports(level) => Ok(*level),
            _ => Err(Error::Device(format!(
                "this machine cannot run code for {name:?}; it supports {}",
                names(supports)
            ))),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn native() -> Arch {
    use std::arch::is_x86_feature_detected as has;
    // Some CPUs have the registers of a level and lack other features of it.
    let vector_bytes = match (has!("avx512f"), has!("avx2")) {
        (true, _) => 64,
        (_, true) => 32,
        _ => 16,
    };
    Arch { name: NATIVE, vector_bytes, fma: has!("fma") }
}
#[cfg(not(target_arch = "x86_64"))]
fn native() -> Arch {
    Arch { name: NATIVE, vector_bytes: 16, fma: true }
}

/// Returns the instructions of this machine: its highest level, and features beyond it.
pub(in crate::device) fn native_isa() -> Isa {
    let levels = Level::ALL.into_iter().rev();
    let level =
        levels.into_iter().find(|l| LEVELS.iter().any(|a| a.name == l.name() && supports(a)));
    Isa { vbmi: has_vbmi(), ..Isa::of(level.unwrap_or(Level::V1)) }
}

#[cfg(target_arch = "x86_64")]
fn has_vbmi() -> bool {
    std::arch::is_x86_feature_detected!("avx512vbmi")
}
#[cfg(not(target_arch = "x86_64"))]
fn has_vbmi() -> bool {
    false
}

/// Returns true if this machine has every feature of a level.
#[cfg(target_arch = "x86_64")]
fn supports(level: &Arch) -> bool {
    use std::arch::is_x86_feature_detected as has;
    let v2 = || {
        has!("cmpxchg16b")
            && has!("popcnt")
            && has!("sse3")
            && has!("ssse3")
            && has!("sse4.1")
            && has!("sse4.2")
    };
    let v3 = || {
        v2() && has!("avx2")
            && has!("bmi1")
            && has!("bmi2")
            && has!("f16c")
            && has!("fma")
            && has!("lzcnt")
            && has!("movbe")
    };
    let v4 = || {
        v3() && has!("avx512f")
            && has!("avx512bw")
            && has!("avx512cd")
            && has!("avx512dq")
            && has!("avx512vl")
    };
    match level.name {
        "x86-64" => true,
        "x86-64-v2" => v2(),
        "x86-64-v3" => v3(),
        _ => v4(),
    }
}
#[cfg(target_arch = "aarch64")]
fn supports(level: &Arch) -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    match level.name {
        "armv8-a" => true,
        _ => has!("crc") && has!("lse") && has!("rdm") && has!("dpb"),
    }
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn supports(_: &Arch) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_list_what_there_is() {
        assert_eq!(Arch::find(None).unwrap(), Arch::find(Some("native")).unwrap());
        let e = check_name("z80").unwrap_err();
        assert!(e.starts_with("its ARCHs are native"), "{e}");
        for level in LEVELS {
            check_name(level.name).unwrap();
            match Arch::find(Some(level.name)) {
                Ok(found) => {
                    assert!(found == *level && native().vector_bytes >= level.vector_bytes)
                }
                Err(e) => {
                    let lowest = format!("it supports native, {}", LEVELS[0].name);
                    assert!(e.to_string().contains(&lowest), "{e}")
                }
            }
        }
        assert!(Arch::find(Some("z80")).is_err());
    }
}
