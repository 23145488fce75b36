//! Tests of the text form, and the random graphs that they share.

mod parse;
mod print;
pub(super) mod random;
mod rebuild;
mod typed;
