//! Data: samples by number, batches of them, and sets that are read, fetched or drawn.
//!
//! | file | what it holds |
//! |---|---|
//! | `array` | [`Array`]: numbers of the host |
//! | `dataset` | [`Dataset`], and [`ArrayDataset`] of arrays in memory |
//! | `loader` | [`DataLoader`]: shuffled batches, made ahead by threads |
//! | `rng` | [`Random`]: the same numbers on every machine |

mod array;
mod dataset;
mod digits;
mod draw;
mod loader;
mod rng;

pub use array::Array;
pub use dataset::{ArrayDataset, Dataset, Mapped, Subset};
pub use digits::digits;
pub use loader::{Batches, DataLoader};
pub use rng::Random;
