//! picograd
pub mod error;
pub mod shape;
