//! Rewriting: rule tables ([`rules!`](crate::rules)), the engine that applies them, and traces of
//! the rules that fired.

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
