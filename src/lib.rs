//! picograd
pub mod dtype;
pub mod error;
pub mod ir;
pub mod reference;
pub mod rewrite;
pub mod shape;
pub mod symbolic;
pub mod target;
pub mod tensor;

pub use dtype::DType;
pub use error::{Error, Result};
pub use tensor::Tensor;
