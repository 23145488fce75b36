//! Datasets, batches, and synthetic and published datasets.
//!
//! | file | contents |
//! |---|---|
//! | `array` | [`Array`]: numbers in host memory |
//! | `dataset` | [`Dataset`], and [`ArrayDataset`] of arrays in memory |
//! | `loader` | [`DataLoader`]: shuffled batches, prefetched by threads |
//! | `progress` | [`Progress`]: a progress bar on a terminal, lines in a log |
//! | `digits`, `shapes`, `draw` | [`digits`] and [`shapes`]: synthetic images, without a download |
//! | `mnist`, `cifar`, `idx` | [`mnist`], [`fashion_mnist`], [`cifar10`]: read or downloaded |
//! | `fetch` | files of published datasets: location, checksum, download |
//! | `rng` | [`Random`]: a reproducible random number generator |
//!
//! ```
//! use picograd::DType;
//! use picograd::nn::data::{DataLoader, digits};
//! let loader = DataLoader::new(digits(0, 256), 64)?.shuffle(1);
//! for batch in loader.epoch(0) {
//!     let [images, labels] = &batch?[..] else { unreachable!("digits have two arrays") };
//!     let x = images.cast(DType::F32) / 255.0;
//!     assert_eq!((x.shape(), labels.shape()), (vec![64, 28, 28], vec![64]));
//! }
//! # Ok::<(), picograd::Error>(())
//! ```

mod array;
mod cifar;
mod dataset;
mod digits;
mod draw;
mod fetch;
mod idx;
mod loader;
mod mnist;
mod progress;
mod rng;
mod shapes;

pub use array::Array;
pub use cifar::{cifar10, cifar10_load_bytes};
pub use dataset::{ArrayDataset, Dataset, Mapped, Subset};
pub use digits::digits;
pub use idx::{idx_load, idx_load_bytes};
pub use loader::{Batches, DataLoader};
pub use mnist::{Split, fashion_mnist, mnist};
pub use progress::{Progress, Style};
pub use rng::Random;
pub use shapes::shapes;
