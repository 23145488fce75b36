//! What networks are made of and trained with. State is names with tensors, and files of them; data is samples, and batches of them.

pub mod data;
pub mod state;
