//! picograd
pub mod dtype;
pub mod error;
pub mod ir;
pub mod lower;
pub mod math;
pub mod opt;
pub mod rewrite;
pub mod runtime;
pub mod schedule;
pub mod shape;
pub mod symbolic;
pub mod target;
