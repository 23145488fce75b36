//! Simplification by exact rules, a file per topic. There are no fast-math rules.

mod identities;
mod index;
mod linear;
mod mask;

pub use identities::IDENTITIES;
pub use index::INDEX;
pub use linear::{Linear, gcd};
pub use mask::{MASKS, as_bound, clauses, simplify_mask, simplify_under};

use crate::ir::UOp;
use crate::rewrite::{Rule, Rules};
use std::sync::LazyLock;

/// Returns the tables of exact rules.
pub fn tables() -> [&'static [Rule<()>]; 3] {
    [&IDENTITIES, &INDEX, &MASKS]
}

static RULES: LazyLock<Rules<()>> = LazyLock::new(|| Rules::pure(&tables()));

/// Returns the exact rules as one set.
#[cfg(feature = "testing")]
pub fn rules() -> &'static Rules<()> {
    &RULES
}

/// Simplifies an expression by the exact rules.
pub fn simplify(u: &UOp) -> UOp {
    RULES.fixpoint(u, &mut ())
}
