//! picograd
pub mod dtype;
pub mod error;
pub mod shape;
