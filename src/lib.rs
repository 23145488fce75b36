//! picograd
pub mod dtype;
pub mod error;
pub mod ir;
pub mod render;
pub mod rewrite;
pub mod shape;
pub mod symbolic;
pub mod target;
