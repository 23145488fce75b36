//! Rewriting: rule tables (`rules!`), the engine that applies them, and a trace of
//! what it did.

mod engine;
mod rules;
mod trace;

pub use engine::Rules;
#[cfg(not(feature = "testing"))]
pub(crate) use rules::rules;
#[cfg(feature = "testing")]
pub use rules::rules;
pub use rules::{IntoRewrite, Rule, RuleInfo};
pub use trace::{Step, traced};
