//! Gradients: every rule by finite differences, first and second order, and what a user can do
//! wrong.

mod api;
mod ops;
mod realized;
