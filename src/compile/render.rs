//! The pass `render`. Input: a linear program. Output: its source text in the language of a device.

use super::pipeline;
use crate::device::Purpose;
use crate::device::module::entry_name;
use crate::error::Result;
use crate::ir::UOp;
use crate::lower::Program;
use crate::pass::{self, Pass, PassInfo, PassTimes, Stage, State};
use crate::render::{Rendered, Renderer};
use std::borrow::Cow;

/// A program that is rendered.
pub struct Rendering<'a> {
    renderer: &'a dyn Renderer,
    program: &'a Program,
    /// True if buffers may start at any element.
    unaligned: bool,
    rendered: Option<Result<Rendered>>,
}

impl State for Rendering<'_> {
    fn nodes(&self, stage: Stage) -> Cow<'_, [UOp]> {
        Cow::Borrowed(if stage == Stage::Text { &[] } else { &self.program.uops })
    }

    fn text(&self, _: &PassInfo) -> String {
        let rendered = self.rendered.as_ref().and_then(|r| r.as_ref().ok());
        rendered.map(Rendered::text).unwrap_or_default()
    }
}

/// Returns the passes in order.
pub fn passes<'a>() -> [Pass<Rendering<'a>>; 1] {
    pass::passes![
        render: Text, |_| true, run,
            "Writes the linear program as source text of the device's language.";
    ]
}

fn run(r: &mut Rendering) {
    let (name, uops) = (entry_name(&r.program.name), &r.program.uops);
    r.rendered = Some(match r.unaligned {
        true => r.renderer.render_unaligned(name, uops),
        false => r.renderer.render(name, uops),
    });
}

/// Renders a program, for aligned buffers or for any. Candidates of a search are not printed.
pub(super) fn render(
    renderer: &dyn Renderer,
    program: &Program,
    unaligned: bool,
    purpose: Purpose,
) -> Result<(Rendered, PassTimes)> {
    let config = pipeline::config()?;
    let mut state = Rendering { renderer, program, unaligned, rendered: None };
    let times = pass::run(&passes(), &mut state, &mut |pass, state| {
        if purpose != Purpose::Measure {
            pass::observe(config, pass, state);
        }
    });
    Ok((state.rendered.expect("the pass always runs")?, times))
}
