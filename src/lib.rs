//! picograd
pub mod dtype;
pub mod error;
