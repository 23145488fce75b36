//! picograd
pub mod dtype;
pub mod env;
pub mod error;
pub mod exec;
pub mod ir;
pub mod lower;
pub mod math;
pub mod opt;
pub mod render;
pub mod rewrite;
pub mod runtime;
pub mod schedule;
pub mod shape;
pub mod symbolic;
pub mod target;
pub mod verify;

pub use runtime::Device;
