//! State: names with tensors, and the files that keep them.

mod dict;

pub use dict::StateDict;
