//! picograd
pub mod dtype;
pub mod error;
pub mod ir;
pub mod rewrite;
pub mod runtime;
pub mod shape;
pub mod symbolic;
pub mod target;
pub mod verify;
