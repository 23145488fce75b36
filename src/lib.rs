//! picograd
pub mod error;
