//! Rewriting: rule tables ([`rules!`](crate::compiler::rewrite::rules)), the engine that applies
//! them, and traces of the rules that fired.

mod engine;
mod rules;
mod trace;

pub use engine::Rules;
pub use rules::{IntoRewrite, Rule, RuleInfo, rules};
pub use trace::{Step, traced};
