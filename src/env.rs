//! Every environment variable, in one table. The table is read once; a value that a variable does
//! not take is an error that says what it takes.

use crate::error::{Error, Result};
use std::path::PathBuf;
use std::sync::OnceLock;

/// A variable: its name, what it takes, and what it does.
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// The table. `docs/env.md` is made from it.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "DEBUG",
        takes: "0 to 7",
        doc: "How much to show. 1: devices opened, size of each schedule and cache hits. 2: a \
              line for each kernel and copy. 3: optimisations applied. 4: source. 5: kernel AST. \
              6: linear UOps. 7: disassembly.",
    },
    Variable {
        name: "DEV",
        takes: "DEVICE[:RENDERER[:ARCH]][:NUMBER]",
        doc: "The default device, such as `CUDA`, `CUDA:1`, `CL`, `CPU`, `CPU:LLVM`, \
              `CPU:CLANG:x86-64-v3`, `CUDA:sm_80`, `INTERP`, `NULL` or `NULL:CUDA`. Without it \
              the CPU. ARCH is what code is made for: on the CPU `native` or a level of x86-64, \
              on CUDA `sm_NN`; without it what the device is. Tests of results run on it.",
    },
    Variable {
        name: "PROFILE",
        takes: "0, 1 or a file that ends in `.json`",
        doc: "Writes what ran when into a file that Perfetto and Chrome open, when the process \
              ends: 1 into `picograd.trace.json`. Each kernel is then waited for and timed, those \
              of a `Jit` too.",
    },
    Variable {
        name: "NOOPT",
        takes: "0 or 1",
        doc: "1 applies no optimisation: each kernel is the plain loop nest.",
    },
    Variable {
        name: "BEAM",
        takes: "0 to 64",
        doc: "Above 0, optimisations are searched by timing candidates on the device, so many \
              kernels wide, once for each kernel: the store keeps what was found. 0, and without \
              it, a heuristic chooses.",
    },
    Variable {
        name: "PICO_QUICK",
        takes: "0 or 1",
        doc: "1 lets the compiler of `CPU:CLANG` take less time for slower code. `cargo xtask \
              test` sets it for the tests of results that have kernels of every kind.",
    },
    Variable {
        name: "JIT",
        takes: "0, 1 or 2",
        doc: "0 runs the function of a `Jit` at each call; 2 replays it without graphs of \
              devices, kernel by kernel. Without it 1.",
    },
    Variable {
        name: "BEAM_SECONDS",
        takes: "a number of seconds",
        doc: "How long `BEAM` searches for one kernel. Without it 10.",
    },
    Variable {
        name: "TC",
        takes: "0 or 1",
        doc: "0 uses no tensor cores. Without it they are used for products of f16 and bf16 on \
              devices that have them.",
    },
    Variable {
        name: "ALLOW_TF32",
        takes: "0 or 1",
        doc: "1 uses tensor cores for products of f32 as well, whose operands are rounded to 11 \
              binary digits for it.",
    },
    Variable {
        name: "WINO",
        takes: "0 or 1",
        doc: "1 computes convolutions of 3 × 3 at stride 1 by Winograd's method: a quarter of the \
              products, and about two digits of an f32 less. `Conv::winograd` says it for one.",
    },
    Variable {
        name: "SPEC",
        takes: "0 or 1",
        doc: "1 verifies the graph after each pass also in release builds; debug builds always do.",
    },
    Variable {
        name: "PRINT_AFTER",
        takes: "the name of a pass",
        doc: "Prints each kernel after that pass. [add-a-pass.md](add-a-pass.md) lists the passes.",
    },
    Variable {
        name: "THREADS",
        takes: "1 to 1024",
        doc: "Threads of the CPU device. Without it as many as there are cores.",
    },
    Variable {
        name: "PICO_LLVM",
        takes: "a file, or `off`",
        doc: "The shared library of LLVM, 15 or later, of `CPU:LLVM`. Without it the newest from \
              21 to 15 that is found.",
    },
    Variable {
        name: "CC",
        takes: "a program",
        doc: "The C compiler of `CPU:CLANG`. Without it clang if there is one, else cc or gcc.",
    },
    Variable {
        name: "PICO_NVRTC",
        takes: "a file, or `off`",
        doc: "The shared library of NVRTC, the compiler of `CUDA`. Without it what the system \
              finds, then CUDA's folders, then Python's packages.",
    },
    Variable {
        name: "PICO_CACHE",
        takes: "a folder, or `off`",
        doc: "Where the store is: what is compiled and tuned is kept there between runs. Without \
              it `picograd` in the user's cache folder.",
    },
    Variable {
        name: "PICO_CACHE_SIZE",
        takes: "a number of MiB",
        doc: "How much the store may hold; past it, what was not used for longest goes first. \
              Without it 512.",
    },
    Variable {
        name: "PICO_DATA",
        takes: "a folder",
        doc: "Where data sets and other downloads are looked for, and fetched to where there is a \
              network. Without it `picograd-data` in the user's cache folder.",
    },
    Variable {
        name: "GUARD",
        takes: "0 or 1",
        doc: "1 puts each host buffer against a page that cannot be touched, so that a kernel \
              that leaves its buffer faults.",
    },
    Variable {
        name: "PICO_REQUIRE",
        takes: "kinds of device, with commas between",
        doc: "For tests: where one of these is not there, that is a failure; otherwise what is \
              not there is skipped.",
    },
    Variable {
        name: "PICO_GRAPHS",
        takes: "a number",
        doc: "For tests: how many random graphs are run. Without it 2,000, and 200 on devices \
              that take long to compile.",
    },
    Variable { name: "NO_COLOR", takes: "anything", doc: "If set, no colours." },
];

/// More threads than this is a typing mistake.
pub const MOST_THREADS: usize = 1024;

/// The file of `PROFILE=1`.
const TRACE: &str = "picograd.trace.json";

/// The settings of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `DEBUG`.
    pub debug: u8,
    /// `PROFILE`: where the trace goes.
    pub profile: Option<PathBuf>,
    /// `DEV`.
    pub device: Option<String>,
    /// `NOOPT`.
    pub noopt: bool,
    /// `PICO_QUICK`.
    pub quick: bool,
    /// `BEAM`.
    pub beam: usize,
    /// `BEAM_SECONDS`.
    pub beam_seconds: f64,
    /// `JIT`.
    pub jit: u8,
    /// `TC`.
    pub tensor_cores: bool,
    /// `ALLOW_TF32`.
    pub allow_tf32: bool,
    /// `WINO`.
    pub winograd: bool,
    /// `SPEC`, or a debug build.
    pub verify: bool,
    /// `PRINT_AFTER`.
    pub print_after: Option<String>,
    /// May colours be used?
    pub color: bool,
}

impl Config {
    /// Is each kernel waited for and timed, because somebody wants to see the time?
    pub fn times_kernels(&self) -> bool {
        self.debug >= 2 || self.profile.is_some()
    }

    /// Reads settings through a function from names to values.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        let flag = |name: &str, default: bool| -> Result<bool> {
            match get(name).as_deref() {
                None | Some("") => Ok(default),
                Some("0") => Ok(false),
                Some("1") => Ok(true),
                Some(other) => Err(Error::Env(format!("{name}={other}: it takes 0 or 1"))),
            }
        };
        let debug = match get("DEBUG").as_deref() {
            None | Some("") => 0,
            Some(v) => v.parse().ok().filter(|d| *d <= 7).ok_or_else(|| {
                Error::Env(format!(
                    "DEBUG={v}: it takes a number from 0 to 7; docs/debug.md says what each shows"
                ))
            })?,
        };
        // These are read where they are used, also by programs that never ask for settings; here a
        // wrong one is found out.
        flag("GUARD", false)?;
        if let Some(v) = get("THREADS").filter(|v| {
            !v.is_empty() && !v.trim().parse().is_ok_and(|n: usize| (1..=MOST_THREADS).contains(&n))
        }) {
            return Err(Error::Env(format!(
                "THREADS={v}: it takes a number from 1 to {MOST_THREADS}"
            )));
        }
        if let Some(v) = get("PICO_CACHE_SIZE")
            .filter(|v| !v.is_empty() && !v.trim().parse().is_ok_and(|n: u64| n > 0))
        {
            return Err(Error::Env(format!(
                "PICO_CACHE_SIZE={v}: it takes a number of MiB, as in 512; PICO_CACHE=off turns \
                 the store off"
            )));
        }
        let number = |name: &str, default: f64, right: fn(f64) -> bool, takes: &str| match get(name)
            .filter(|v| !v.is_empty())
        {
            None => Ok(default),
            Some(v) => {
                let number = v.trim().parse::<f64>().ok().filter(|n| right(*n));
                number.ok_or_else(|| Error::Env(format!("{name}={v}: it takes {takes}")))
            }
        };
        let beam = number(
            "BEAM",
            0.0,
            |n| n.fract() == 0.0 && (0.0..=64.0).contains(&n),
            "a whole number from 0 to 64",
        )? as usize;
        let beam_seconds = number(
            "BEAM_SECONDS",
            10.0,
            |n| n > 0.0 && n < 1e6,
            "a number of seconds above 0, as in 2.5",
        )?;
        let jit = number("JIT", 1.0, |n| [0.0, 1.0, 2.0].contains(&n), "0, 1 or 2")? as u8;
        let profile = match get("PROFILE").as_deref() {
            None | Some("" | "0") => None,
            Some("1") => Some(PathBuf::from(TRACE)),
            Some(file) if file.ends_with(".json") => Some(PathBuf::from(file)),
            Some(other) => {
                return Err(Error::Env(format!(
                    "PROFILE={other}: it takes 0, 1 or a file that ends in .json"
                )));
            }
        };
        Ok(Config {
            debug,
            profile,
            device: get("DEV").filter(|v| !v.is_empty()),
            noopt: flag("NOOPT", false)?,
            quick: flag("PICO_QUICK", false)?,
            beam,
            beam_seconds,
            jit,
            tensor_cores: flag("TC", true)?,
            allow_tf32: flag("ALLOW_TF32", false)?,
            winograd: flag("WINO", false)?,
            verify: flag("SPEC", cfg!(debug_assertions))?,
            print_after: get("PRINT_AFTER").filter(|v| !v.is_empty()),
            color: get("NO_COLOR").is_none_or(|v| v.is_empty()),
        })
    }
}

/// The settings of this process.
pub fn config() -> Result<&'static Config> {
    static CONFIG: OnceLock<Result<Config>> = OnceLock::new();
    CONFIG
        .get_or_init(|| Config::read(&|name| std::env::var(name).ok()))
        .as_ref()
        .map_err(Clone::clone)
}

/// The Markdown table of `docs/env.md`.
pub fn doc_table() -> String {
    let mut text = String::from("| variable | takes | what it does |\n|---|---|---|\n");
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
    fn values_are_read_and_bad_ones_say_what_is_taken() {
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
                    .contains(&format!("{name}={bad}: it takes "))
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
        let c = read(&[("TC", "0"), ("ALLOW_TF32", "1")]).unwrap();
        assert!(
            !c.tensor_cores
                && c.allow_tf32
                && read(&[]).unwrap().tensor_cores
                && !read(&[]).unwrap().allow_tf32
        );
        assert!(read(&[("TC", "2")]).unwrap_err().to_string().contains("TC=2: it takes 0 or 1"));
        assert_eq!(
            (
                read(&[("WINO", "1")]).unwrap().winograd,
                read(&[]).unwrap().winograd,
                read(&[("WINO", "2")]).is_err()
            ),
            (true, false, true)
        );
        let profile = |v: &str| read(&[("PROFILE", v)]).map(|c| (c.times_kernels(), c.profile));
        assert_eq!([profile("").unwrap(), profile("0").unwrap()], [(false, None), (false, None)]);
        assert_eq!(profile("1").unwrap(), (true, Some(TRACE.into())));
        assert_eq!(profile("a b/c.json").unwrap(), (true, Some("a b/c.json".into())));
        for bad in ["2", "yes", "trace.txt", "json"] {
            assert!(
                profile(bad).unwrap_err().to_string().contains(&format!(
                    "PROFILE={bad}: it takes 0, 1 or a file that ends in .json"
                ))
            );
        }
    }
}
