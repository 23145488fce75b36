//! picograd
pub mod dtype;
pub mod env;
pub mod error;
pub mod exec;
pub mod ir;
pub mod lower;
pub mod math;
pub mod opt;
pub mod reference;
pub mod render;
pub mod rewrite;
pub mod runtime;
pub mod schedule;
pub mod shape;
pub mod symbolic;
pub mod target;
pub mod tensor;
pub mod testing;
pub mod verify;

pub use dtype::DType;
pub use error::{Error, Result};
pub use runtime::Device;
pub use tensor::Tensor;
