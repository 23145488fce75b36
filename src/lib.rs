//! picograd
pub mod error;
pub mod math;
