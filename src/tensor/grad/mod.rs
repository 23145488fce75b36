//! Gradients: `gradient` and `backward`, checkpointing, and functions with a custom gradient.

pub(super) mod checkpoint;
pub(super) mod function;
pub(super) mod gradient;
