//! Environment variables: one table row each, with name, accepted values, documentation, type and
//! parser. The row generates the field of [`Config`] and the line of `docs/env.md`.
//!
//! A value that a variable does not accept is an error that says what it accepts.
//!
//! **Invariant:** [`var`] and [`var_os`] are the only functions of the crate that read the
//! environment.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The documentation of a variable.
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The values that it accepts.
    pub takes: &'static str,
    /// Its effect, and its default.
    pub doc: &'static str,
}

/// Maximum number of threads of the CPU device. A larger value is taken for a typing error.
pub const MAX_THREADS: usize = 1024;

/// The file of `PROFILE=1`.
const TRACE: &str = "picograd.trace.json";

/// A variable with its value.
struct Raw<'a> {
    name: &'a str,
    value: Option<String>,
}

impl Raw<'_> {
    /// Parses a value that is set and not empty; `None` from `parse` is an error.
    fn parse<T>(&self, takes: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.value.as_deref().filter(|v| !v.is_empty()) else { return Ok(None) };
        let wrong = || Error::Env(format!("{}={value}: expected {takes}", self.name));
        parse(value).ok_or_else(wrong).map(Some)
    }

    fn flag(&self, default: bool) -> Result<bool> {
        let parse = |v: &str| match v {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        Ok(self.parse("0 or 1", parse)?.unwrap_or(default))
    }

    fn number(&self, default: f64, takes: &str, valid: impl Fn(f64) -> bool) -> Result<f64> {
        let parse = |v: &str| v.trim().parse().ok().filter(|n| valid(*n));
        Ok(self.parse(takes, parse)?.unwrap_or(default))
    }

    fn text(self) -> Result<Option<String>> {
        Ok(self.value.filter(|v| !v.is_empty()))
    }
}

/// Declares the variables. A row with a field becomes part of [`Config`]; one without is read by
/// [`var`] where it is used, because its reader must work without valid settings.
macro_rules! variables {
    ($($name:literal takes $takes:literal: $doc:literal
        $(=> $(#[$meta:meta])* $field:ident: $ty:ty = $parse:expr)?;)*) => {
        /// The table. `docs/env.md` is generated from it.
        pub const VARIABLES: &[Variable] =
            &[$(Variable { name: $name, takes: $takes, doc: $doc }),*];

        /// The settings of a process.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($($(#[$meta])* #[doc = concat!("`", $name, "`")] pub $field: $ty,)?)*
        }

        impl Config {
            /// Reads the settings through a function from names to values.
            pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
                Ok(Config {
                    $($($field: {
                        let parse: fn(Raw) -> Result<$ty> = $parse;
                        parse(Raw { name: $name, value: get($name) })?
                    },)?)*
                })
            }
        }
    };
}

variables! {
    "DEBUG" takes "0 to 7":
        "What is printed. 1: opened devices, the size of each schedule and cache hits. 2: a line \
         per kernel and copy. 3: applied Opts. 4: source text. 5: the kernel after the \
         optimizer. 6: the linear program. 7: disassembly."
        => debug: u8 = |v| {
            let takes = "a number from 0 to 7; docs/debug.md lists what each prints";
            Ok(v.parse(takes, |v| v.parse().ok().filter(|d| *d <= 7))?.unwrap_or(0))
        };
    "DEV" takes "DEVICE[:RENDERER][:ARCH][:NUMBER]":
        "The default device, such as `CUDA`, `CUDA:1`, `CL`, `CPU`, `CPU:LLVM`, \
         `CPU:CLANG:x86-64-v3`, `CUDA:sm_80`, `INTERP`, `NULL` or `NULL:CUDA`. Default: the CPU. \
         ARCH is the architecture that code is generated for: on the CPU `native` or a level of \
         x86-64 or arm64, on CUDA `sm_NN`; default: that of the device. Device tests run on it."
        => device: Option<String> = |v| v.text();
    "PROFILE" takes "0, 1 or a file that ends in `.json`":
        "Writes a trace for Perfetto or Chrome when the process ends: 1 into \
         `picograd.trace.json`. Each kernel is then waited for and timed, those of a `Jit` too."
        => profile: Option<PathBuf> = |v| {
            let parse = |v: &str| match v {
                "0" => Some(None),
                "1" => Some(Some(PathBuf::from(TRACE))),
                file => file.ends_with(".json").then(|| Some(PathBuf::from(file))),
            };
            Ok(v.parse("0, 1 or a file that ends in .json", parse)?.flatten())
        };
    "NOOPT" takes "0 or 1":
        "1 applies no Opts: each kernel is the plain loop nest."
        => noopt: bool = |v| v.flag(false);
    "BEAM" takes "0 to 64":
        "Above 0, Opts are chosen by beam search of that width, which times candidates on the \
         device; the disk cache stores the result for each kernel. Default: 0, the heuristic."
        => beam: usize = |v| {
            let valid = |n: f64| n.fract() == 0.0 && (0.0..=64.0).contains(&n);
            Ok(v.number(0.0, "an integer from 0 to 64", valid)? as usize)
        };
    "JIT" takes "0, 1 or 2":
        "0 runs the function of a `Jit` at each call; 2 replays it kernel by kernel, without graph \
         launches. Default: 1."
        => jit: u8 = |v| Ok(v.number(1.0, "0, 1 or 2", |n| [0.0, 1.0, 2.0].contains(&n))? as u8);
    "BEAM_SECONDS" takes "a number of seconds":
        "The time limit of `BEAM` for one kernel. Default: 10."
        => beam_seconds: f64 = |v| {
            v.number(10.0, "a number of seconds above 0, as in 2.5", |n| n > 0.0 && n < 1e6)
        };
    "TC" takes "0 or 1":
        "0 uses no tensor cores. By default they are used for products of f16 and bf16 on devices \
         that have them."
        => tensor_cores: bool = |v| v.flag(true);
    "ALLOW_TF32" takes "0 or 1":
        "1 uses tensor cores for products of f32 too, whose operands are then rounded to 11 \
         significant bits."
        => allow_tf32: bool = |v| v.flag(false);
    "WINO" takes "0 or 1":
        "1 computes 3 × 3 convolutions of stride 1 by Winograd's method: a quarter of the \
         products, and about two decimal digits of an f32 less. `Conv::winograd` sets it for one \
         layer."
        => winograd: bool = |v| v.flag(false);
    "SPEC" takes "0 or 1":
        "1 verifies the graph after each pass in release builds too; debug builds always do."
        => verify: bool = |v| v.flag(cfg!(debug_assertions));
    "PRINT_AFTER" takes "the name of a pass":
        "Prints the IR after that pass; the error of an unknown name lists the passes."
        => print_after: Option<String> = |v| v.text();
    "THREADS" takes "1 to 1024":
        "Threads of the CPU device; no program and no result depends on it. Default: the physical \
         cores in the affinity mask, at most the CPU quota of the cgroups."
        => threads: Option<usize> = |v| {
            let valid = |n: &usize| (1..=MAX_THREADS).contains(n);
            let takes = format!("a number from 1 to {MAX_THREADS}");
            v.parse(&takes, |v| v.trim().parse().ok().filter(valid))
        };
    "PICO_LLVM" takes "a file, or `off`":
        "The shared library of LLVM, 15 to 21, of `CPU:LLVM`; a file makes `CPU:LLVM` the default \
         of the CPU. Default: the newest that is found.";
    "CC" takes "a program":
        "The C compiler of `CPU:CLANG`. Default: clang, else cc or gcc.";
    "PICO_NVRTC" takes "a file, or `off`":
        "The shared library of NVRTC, the compiler of `CUDA`. By default it is looked for in the \
         system, in CUDA's folders, and among Python's packages.";
    "PICO_CACHE" takes "a folder, or `off`":
        "The folder of the disk cache, which stores compiled kernels and tuned Opts between \
         processes. Default: `picograd` in the user's cache folder.";
    "PICO_CACHE_SIZE" takes "a number of MiB":
        "The size limit of the disk cache; beyond it, the least recently used entries are deleted. \
         Default: 512."
        => cache_size: Option<u64> = |v| {
            let takes = "a number of MiB, as in 512; PICO_CACHE=off turns the disk cache off";
            v.parse(takes, |v| v.trim().parse().ok().filter(|n| *n > 0))
        };
    "PICO_DATA" takes "a folder":
        "The folder of datasets and other downloads. Default: `picograd-data` in the user's cache \
         folder.";
    "GUARD" takes "0 or 1":
        "1 places each host buffer against an inaccessible page, so that a kernel that accesses \
         memory out of bounds faults."
        => guard: bool = |v| v.flag(false);
    "PICO_REQUIRE" takes "devices or `NVRTC`, separated by commas":
        "For tests: one of these that is not available is a failure; others are skipped.";
    "PICO_GRAPHS" takes "a number":
        "For tests: the number of random graphs. Default: 2,000, and 200 on devices that compile \
         slowly.";
    "NO_COLOR" takes "anything":
        "If set, output has no colours."
        => color: bool = |v| Ok(v.value.is_none_or(|v| v.is_empty()));
}

/// System variables that the crate reads. They are not in the table.
const SYSTEM: &[&str] = &[
    "PATH",
    "HOME",
    "XDG_CACHE_HOME",
    "LOCALAPPDATA",
    "CUDA_PATH",
    "CUDA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
];

impl Config {
    /// Returns true if each kernel is synchronized and timed, because its time is printed.
    pub fn times_kernels(&self) -> bool {
        self.debug >= 2 || self.profile.is_some()
    }
}

/// Returns the value of a variable of the table or the system, for readers that must work without
/// valid settings: the thread pool, the allocator, the disk cache, and searches for compilers.
pub(crate) fn var(name: &str) -> Option<String> {
    var_os(name)?.into_string().ok()
}

/// Returns the same, for values that need not be Unicode, such as paths.
pub(crate) fn var_os(name: &str) -> Option<OsString> {
    debug_assert!(
        SYSTEM.contains(&name) || VARIABLES.iter().any(|v| v.name == name),
        "{name} is not in the table of src/env.rs"
    );
    std::env::var_os(name)
}

/// Returns the settings of this process, read once.
pub fn config() -> Result<&'static Config> {
    static CONFIG: OnceLock<Result<Config>> = OnceLock::new();
    CONFIG.get_or_init(|| Config::read(&var)).as_ref().map_err(Clone::clone)
}

/// Returns the Markdown table of `docs/env.md`.
#[cfg(feature = "testing")]
pub fn doc_table() -> String {
    let mut text = String::from("| variable | takes | effect |\n|---|---|---|\n");
    for v in VARIABLES {
        text.push_str(&format!("| `{}` | {} | {} |\n", v.name, v.takes, v.doc));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Config::read(&move |n| pairs.iter().find(|p| p.0 == n).map(|p| p.1.clone()))
    }

    #[test]
    fn invalid_values_name_the_accepted_ones() {
        let c =
            read(&[("DEBUG", "4"), ("NOOPT", "1"), ("DEV", "INTERP"), ("NO_COLOR", "1")]).unwrap();
        assert_eq!(
            (c.debug, c.noopt, c.device.as_deref(), c.color),
            (4, true, Some("INTERP"), false)
        );
        assert_eq!(read(&[("DEBUG", "")]).unwrap().debug, 0);
        for bad in ["8", "-1", "two", "2.5"] {
            let e = read(&[("DEBUG", bad)]).unwrap_err().to_string();
            assert!(e.contains(&format!("DEBUG={bad}")) && e.contains("0 to 7"), "{e}");
        }
        assert!(read(&[("NOOPT", "yes")]).unwrap_err().to_string().contains("0 or 1"));
    }

    #[test]
    fn search_and_cache_settings_are_bounded() {
        let c = read(&[("BEAM", "4"), ("BEAM_SECONDS", "0.5")]).unwrap();
        assert_eq!((c.beam, c.beam_seconds, read(&[]).unwrap().beam), (4, 0.5, 0));
        for (name, bad) in [
            ("BEAM", "-1"),
            ("BEAM", "65"),
            ("BEAM", "2.5"),
            ("BEAM_SECONDS", "0"),
            ("BEAM_SECONDS", "nan"),
            ("BEAM_SECONDS", "x"),
        ] {
            assert!(
                read(&[(name, bad)])
                    .unwrap_err()
                    .to_string()
                    .contains(&format!("{name}={bad}: expected "))
            );
        }
        for bad in ["0", "-1", "1 GB"] {
            assert!(
                read(&[("PICO_CACHE_SIZE", bad)])
                    .unwrap_err()
                    .to_string()
                    .contains("a number of MiB")
            );
        }
    }

    #[test]
    fn switches_take_0_or_1() {
        let c = read(&[("TC", "0"), ("ALLOW_TF32", "1")]).unwrap();
        assert!(
            !c.tensor_cores
                && c.allow_tf32
                && read(&[]).unwrap().tensor_cores
                && !read(&[]).unwrap().allow_tf32
        );
        assert!(read(&[("TC", "2")]).unwrap_err().to_string().contains("TC=2: expected 0 or 1"));
        assert_eq!(
            (
                read(&[("WINO", "1")]).unwrap().winograd,
                read(&[]).unwrap().winograd,
                read(&[("WINO", "2")]).is_err()
            ),
            (true, false, true)
        );
    }

    #[test]
    fn profile_takes_a_switch_or_a_json_file() {
        let profile = |v: &str| read(&[("PROFILE", v)]).map(|c| (c.times_kernels(), c.profile));
        assert_eq!([profile("").unwrap(), profile("0").unwrap()], [(false, None), (false, None)]);
        assert_eq!(profile("1").unwrap(), (true, Some(TRACE.into())));
        assert_eq!(profile("a b/c.json").unwrap(), (true, Some("a b/c.json".into())));
        for bad in ["2", "yes", "trace.txt", "json"] {
            assert!(
                profile(bad).unwrap_err().to_string().contains(&format!(
                    "PROFILE={bad}: expected 0, 1 or a file that ends in .json"
                ))
            );
        }
    }

    #[test]
    fn only_env_reads_the_environment() {
        fn visit(dir: &std::path::Path, found: &mut Vec<String>) {
            for file in std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()) {
                let name = file.to_string_lossy().into_owned();
                if file.is_dir() {
                    visit(&file, found);
                } else if !["env.rs", "tests.rs"].iter().any(|e| name.ends_with(e))
                    && !name.contains("/tests/")
                {
                    let text = std::fs::read_to_string(&file).unwrap();
                    let code = text.split("#[cfg(test)]").next().unwrap();
                    let reads = code.lines().filter(|l| !l.trim().starts_with("//"));
                    if reads.into_iter().any(|l| l.contains("std::env::var")) {
                        found.push(name);
                    }
                }
            }
        }
        let mut found = Vec::new();
        visit(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert!(found.is_empty(), "use env::var in {found:?}");
    }
}
