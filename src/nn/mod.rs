//! What networks are made of and trained with. State is names with tensors, and files of them; data is samples, and batches of them.

/// The examples of the page on data and state, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/data.md")]
pub struct DataPage;

pub mod data;
pub mod state;
