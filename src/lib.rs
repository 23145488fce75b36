//! picograd
pub mod dtype;
pub mod error;
pub mod ir;
pub mod rewrite;
pub mod schedule;
pub mod shape;
pub mod symbolic;
pub mod tables;
pub mod target;
