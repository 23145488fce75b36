//! picograd
pub mod error;
pub mod runtime;
