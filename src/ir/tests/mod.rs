//! Tests of the text form, the typed views and rebuilds, on random graphs.

mod parse;
mod print;
pub(super) mod random;
mod rebuild;
mod typed;
