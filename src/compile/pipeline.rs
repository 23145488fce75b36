//! The pipeline from tensor graph to source text: the list of all passes, and lowering.

use super::{choose_opts, render};
use crate::device::profile::{self, Span};
use crate::dtype::DType;
use crate::env::{self, Config};
use crate::error::{Error, Result};
use crate::ir::{self, UOp};
use crate::lower::{self, Program};
use crate::opt::{self, Kernel};
use crate::pass::{self, PassInfo, PassTimes};
use crate::schedule;
use crate::target::Target;
use std::sync::OnceLock;

/// Returns all passes in the order in which they run.
pub fn passes() -> Vec<PassInfo> {
    let scheduling = schedule::passes().map(|p| p.info);
    let optimizing = choose_opts::passes().map(|p| p.info);
    let lowering = lower::PASSES.iter().map(|p| p.info);
    let rendering = render::passes().map(|p| p.info);
    scheduling.into_iter().chain(optimizing).chain(lowering).chain(rendering).collect()
}

/// Checks that `PRINT_AFTER` names a pass.
pub fn check_print_after(config: &Config) -> Result<()> {
    let Some(name) = &config.print_after else { return Ok(()) };
    let names: Vec<&str> = passes().iter().map(|p| p.name).collect();
    match names.contains(&name.as_str()) {
        true => Ok(()),
        false => Err(Error::Env(format!(
            "PRINT_AFTER={name}: there is no such pass; the passes are {}",
            names.join(", ")
        ))),
    }
}

/// Returns the Markdown table of passes in `docs/add-a-pass.md`.
#[cfg(feature = "testing")]
pub fn doc_table() -> String {
    let mut text = String::from("| pass | produces | what it does |\n|---|---|---|\n");
    for p in passes() {
        text.push_str(&format!("| `{}` | {} | {} |\n", p.name, p.stage.name(), p.doc));
    }
    text
}

/// Returns the settings, whose `PRINT_AFTER` names a pass.
pub(super) fn config() -> Result<&'static Config> {
    static CHECKED: OnceLock<Result<()>> = OnceLock::new();
    let config = env::config()?;
    CHECKED.get_or_init(|| check_print_after(config)).clone()?;
    Ok(config)
}

/// Adds the time of each pass to an event of the trace.
pub(crate) fn note_times(span: &mut Span, times: &PassTimes) {
    for (pass, time) in times {
        span.note(pass, || format!("{:.1} us", time.as_secs_f64() * 1e6).into());
    }
}

/// Returns an error if the kernel computes in a dtype that the target lacks.
pub(crate) fn check_dtypes(ast: &UOp, target: &Target) -> Result<()> {
    // Narrower floats than a target has are computed in f32; 64-bit dtypes would lose digits in
    // any other.
    if let Some(u) = ast.toposort().iter().find(|u| target.lacks(u.dtype())) {
        let scalar = u.dtype().scalar();
        let less = if scalar.is_float() { DType::F32 } else { DType::I32 };
        let msg = format!(
            "{} on this device does not compute in {scalar}; cast to {less}, or use another device",
            target.name
        );
        return Err(Error::DType { op: "realize", msg });
    }
    Ok(())
}

/// Lowers a kernel with its Opts, and prints and verifies the result of each pass as the settings
/// say.
pub fn lowered(kernel: &Kernel, target: &Target) -> Result<Program> {
    let config = config()?;
    let mut span = profile::span(|| format!("lower {}", kernel.name()).into());
    span.note("opts", || opt::show(&kernel.opts).into());
    check_dtypes(&kernel.ast, target)?;
    if config.debug >= 3 && !kernel.opts.is_empty() {
        let name = if config.color { kernel.colored_name() } else { kernel.name() };
        eprintln!("{name} {}", opt::show(&kernel.opts));
    }
    if config.debug >= 5 {
        eprintln!("{}", ir::print(&kernel.ast));
    }
    let program =
        lower::lower(&kernel.ast, target, &mut |pass, state| pass::observe(config, pass, state));
    note_times(&mut span, &program.times);
    if config.debug >= 6 {
        eprintln!("{}", ir::print_program(&program.uops));
    }
    Ok(program)
}
