//! The pass `choose_opts`. Input: a kernel as the scheduler made it. Output: the kernel with the
//! Opts of a policy.
//!
//! **Invariant:** only the heuristic and the beam search add Opts to a list; a list that is given
//! is applied as it is.

use super::beam::{self, Beam};
use super::pipeline;
use super::programs::Chooser;
use crate::device::{Device, profile};
use crate::error::{Error, Result};
use crate::heuristic;
use crate::ir::UOp;
use crate::opt::{self, Kernel, Opt};
use crate::pass::{self, Pass, PassTimes, Stage, State};
use std::borrow::Cow;

/// The source of a kernel's Opts.
#[derive(Clone, Copy)]
pub(super) enum Policy<'a> {
    /// No Opts.
    Nothing,
    /// The heuristic.
    Heuristic,
    /// The beam search, or its result in the disk cache.
    Beam(Beam),
    /// A function of the kernel and the target.
    By(&'a Chooser),
    /// A given list.
    Given(&'a [Opt]),
}

/// A kernel whose Opts are chosen.
pub struct Choosing<'a> {
    device: &'a Device,
    policy: Policy<'a>,
    kernel: Result<Kernel>,
}

impl State for Choosing<'_> {
    fn nodes(&self, _: Stage) -> Cow<'_, [UOp]> {
        Cow::Borrowed(self.kernel.as_ref().map_or(&[], |k| std::slice::from_ref(&k.ast)))
    }
}

/// Returns the passes in order.
pub fn passes<'a>() -> [Pass<Choosing<'a>>; 1] {
    pass::passes![
        choose_opts: Kernel, |_| true, run,
            "Chooses Opts by the heuristic, by `BEAM` or from the disk cache, and applies them.";
    ]
}

/// Chooses the Opts of a kernel by a policy, and applies them.
pub(super) fn choose_opts(
    ast: &UOp,
    device: &Device,
    policy: Policy,
) -> Result<(Kernel, PassTimes)> {
    let config = pipeline::config()?;
    let kernel = Kernel::new(ast.clone());
    let mut span = profile::span(|| format!("optimize {}", kernel.name()).into());
    let mut state = Choosing { device, policy, kernel: Ok(kernel) };
    let times =
        pass::run(&passes(), &mut state, &mut |pass, state| pass::observe(config, pass, state));
    pipeline::note_times(&mut span, &times);
    Ok((state.kernel?, times))
}

fn run(s: &mut Choosing) {
    if let Ok(kernel) = &s.kernel {
        s.kernel = applied(kernel, s.device, s.policy);
    }
}

/// Returns the kernel with the Opts of the policy.
fn applied(kernel: &Kernel, device: &Device, policy: Policy) -> Result<Kernel> {
    let target = device.target();
    match policy {
        Policy::Nothing => Ok(kernel.clone()),
        Policy::Heuristic => Ok(heuristic::choose(kernel, target)),
        Policy::Beam(beam) => beam::tuned(kernel, device, beam),
        Policy::Given(opts) => kernel.apply_all(opts, target),
        Policy::By(chooser) => {
            // The Opts alone determine the program. The chooser may use tensor cores that round,
            // which the default target lists on request.
            let chosen = chooser(kernel, target);
            let cores = target.clone().with_tensor_cores(true, true);
            let applied = [target, &cores].map(|t| kernel.apply_all(&chosen.opts, t));
            let applied = match applied {
                [Ok(k), _] if k.ast == chosen.ast => k,
                [_, other] => other?,
            };
            if applied.ast != chosen.ast {
                let msg = "the function that chooses Opts returned another kernel than its Opts, \
                           applied to the given kernel, make";
                return Err(Error::Opt { opt: opt::show(&chosen.opts), msg: msg.into() });
            }
            Ok(applied)
        }
    }
}
