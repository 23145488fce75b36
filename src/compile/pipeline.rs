//! The pipeline from tensor graph to source text: the list of all passes, and the observer that
//! prints and verifies the result of each.

use crate::device::profile;
use crate::dtype::DType;
use crate::env::{self, Config};
use crate::error::{Error, Result};
use crate::ir::{self, UOp};
use crate::lower::{self, Program};
use crate::opt::{self, Kernel};
use crate::pass::{self, PassInfo, Stage, State};
use crate::schedule;
use crate::target::Target;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The optimizer.
pub const CHOOSE_OPTS: PassInfo = PassInfo {
    name: "choose_opts",
    stage: Stage::Kernel,
    doc: "Chooses Opts by the heuristic, by `BEAM` or from the disk cache, and applies them.",
};

/// The renderer of the device.
pub const RENDER: PassInfo = PassInfo {
    name: "render",
    stage: Stage::Text,
    doc: "Writes the linear program as source text of the device's language.",
};

/// Returns all passes in the order in which they run.
pub fn passes() -> Vec<PassInfo> {
    let scheduling = schedule::passes().map(|p| p.info);
    let lowering = lower::PASSES.iter().map(|p| p.info);
    scheduling.into_iter().chain([CHOOSE_OPTS]).chain(lowering).chain([RENDER]).collect()
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

/// An optimized kernel, as the state of the pass `choose_opts`.
struct Optimized<'a>(&'a UOp);

impl State for Optimized<'_> {
    fn nodes(&self, _: Stage) -> Cow<'_, [UOp]> {
        Cow::Borrowed(std::slice::from_ref(self.0))
    }
}

/// Prints the state after a pass if `PRINT_AFTER` names it, and verifies it.
fn observe(config: &Config, pass: &PassInfo, state: &dyn State) {
    pass::print_after(config, pass, state);
    pass::verify_after(config, pass, state);
}

/// Returns an error if the kernel computes in a dtype that the target lacks.
pub(crate) fn computable(ast: &UOp, target: &Target) -> Result<()> {
    // Narrower floats than a target has are computed in f32; 64-bit dtypes would lose digits in
    // any other.
    if let Some(u) = ast.toposort().iter().find(|u| target.lacks(u.dtype())) {
        let scalar = u.dtype().scalar();
        let less = if scalar.is_float() { DType::F32 } else { DType::I32 };
        let msg = format!(
            "{} on this device does not compute in {scalar}; cast to {less}, or use another device",
            target.name
        );
        return Err(Error::DType { op: u.op().name(), msg });
    }
    Ok(())
}

/// Lowers a kernel with its Opts, and prints and verifies the result of each pass as the settings
/// say.
pub fn lowered(kernel: &Kernel, target: &Target) -> Result<Program> {
    static CHECKED: OnceLock<Result<()>> = OnceLock::new();
    let config = env::config()?;
    CHECKED.get_or_init(|| check_print_after(config)).clone()?;
    let mut span = profile::span(|| format!("lower {}", kernel.name()).into());
    span.note("optimisations", || opt::show(&kernel.opts).into());
    computable(&kernel.ast, target)?;
    if config.debug >= 3 && !kernel.opts.is_empty() {
        let name = if config.color { kernel.colored_name() } else { kernel.name() };
        eprintln!("{name} {}", opt::show(&kernel.opts));
    }
    if config.debug >= 5 {
        eprintln!("{}", ir::print(&kernel.ast));
    }
    observe(config, &CHOOSE_OPTS, &Optimized(&kernel.ast));
    let program =
        lower::lower(&kernel.ast, target, &mut |pass, state| observe(config, pass, state));
    for (pass, time) in &program.times {
        span.note(pass, || format!("{:.1} us", time.as_secs_f64() * 1e6).into());
    }
    if config.debug >= 6 {
        eprintln!("{}", ir::print_program(&program.uops));
    }
    Ok(program)
}
