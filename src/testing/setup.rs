//! Setups: the device on which a case is run, and the Opts of its kernels.

use super::devices::{devices, is_slow};
use crate::error::Error;
use crate::opt::Opt;
use std::fmt;
use std::str::FromStr;

/// The policy that chooses the Opts of the kernels of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum SetupOpts {
    /// The heuristic.
    Default,
    /// No Opts.
    Nothing,
    /// Up to six random Opts, from this seed.
    Random(u64),
    /// The given Opts of each kernel.
    Given(Vec<Vec<Opt>>),
}

/// The device and the options of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The device.
    pub device: &'static str,
    /// The policy that chooses Opts.
    pub choose: SetupOpts,
    /// True if inputs are donated to outputs, as by an assignment.
    pub in_place: bool,
    /// True if the C compiler optimizes less to save time.
    pub quick: bool,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.device)?;
        if self.in_place {
            f.write_str("in place ")?;
        }
        if self.quick {
            f.write_str("compiled quickly ")?;
        }
        match &self.choose {
            SetupOpts::Default => f.write_str("with the heuristic"),
            SetupOpts::Nothing => f.write_str("without Opts"),
            SetupOpts::Random(seed) => write!(f, "with random Opts of seed {seed}"),
            SetupOpts::Given(kernels) => {
                f.write_str("with")?;
                for (i, opts) in kernels.iter().enumerate() {
                    let opts: Vec<String> = opts.iter().map(|o| o.to_string()).collect();
                    write!(f, " kernel {i}: [{}]", opts.join(" "))?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Setup {
    type Err = Error;
    /// Parses the output of `Display`, after any text.
    fn from_str(text: &str) -> Result<Setup, Error> {
        let bad = || Error::Parse {
            line: 1,
            msg: format!("{text:?} is not a setup, as in `CPU with kernel 0: [UPCAST:0:4]`"),
        };
        let named = |d: &&&str| text.split_whitespace().any(|w| w == **d);
        let device = *["INTERP", "CPU", "CPU:CLANG", "CPU:LLVM", "CPU:X86"]
            .iter()
            .chain(devices())
            .find(named)
            .ok_or_else(bad)?;
        let choose = if text.contains("with the heuristic") {
            SetupOpts::Default
        } else if text.contains("without Opts") {
            SetupOpts::Nothing
        } else if let Some((_, seed)) = text.split_once("of seed ") {
            SetupOpts::Random(seed.trim().parse().map_err(|_| bad())?)
        } else {
            let kernels = text.split("kernel ").skip(1).map(|k| {
                let list =
                    k.split_once('[').and_then(|(_, rest)| rest.split_once(']')).ok_or_else(bad)?.0;
                list.split_whitespace().map(str::parse).collect()
            });
            SetupOpts::Given(kernels.collect::<Result<_, Error>>()?)
        };
        Ok(Setup {
            device,
            choose,
            in_place: text.contains("in place"),
            quick: text.contains("compiled quickly"),
        })
    }
}

/// Returns the setups of the case of a seed; on a slow device one of them, in turns.
pub fn setups(seed: u64) -> Vec<Setup> {
    let mut list = Vec::new();
    for &device in devices() {
        let all = [SetupOpts::Default, SetupOpts::Nothing, SetupOpts::Random(seed)];
        let turn = (seed / 2 % 3) as usize;
        for choose in if is_slow(device) { &all[turn..=turn] } else { &all[..] } {
            let choose = choose.clone();
            // Half of the random setups donate their inputs.
            let in_place = seed % 2 == 1 && matches!(choose, SetupOpts::Random(_));
            // Every fourth pair of cases is compiled as for users.
            let quick = !(seed / 2).is_multiple_of(4) && device == "CPU:CLANG";
            list.push(Setup { device, choose, in_place, quick });
        }
    }
    list
}
