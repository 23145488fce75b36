//! Tests of the text form, and the random graphs that they share.

mod parse;
mod print;
mod random;
mod rebuild;
mod typed;
