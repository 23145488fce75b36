//! Gradients: every rule against finite differences to the second order, and the errors of misuse.

mod api;
mod ops;
mod realized;

#[path = "../common/mod.rs"]
mod common;
