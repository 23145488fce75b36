//! MNIST and Fashion-MNIST: images of 28 × 28 pixels in ten classes, 60,000 for training and 10,000
//! for testing.

use super::fetch::{DatasetFolder, Remote};
use super::{ArrayDataset, idx};
use crate::error::Result;
use std::path::Path;

/// The part of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Samples for training.
    Train,
    /// Samples for evaluation.
    Test,
}

/// The images and labels of the training and the test split.
const NAMES: [[&str; 2]; 2] = [
    ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"],
    ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"],
];

/// A published dataset.
struct Published {
    set: &'static str,
    base: &'static str,
    /// Length and SHA-256 of each file of [`NAMES`].
    files: [[(u64, &'static str); 2]; 2],
}

const MNIST: Published = Published {
    set: "mnist",
    base: "https://ossci-datasets.s3.amazonaws.com/mnist/",
    files: [
        [
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ],
        [
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ],
    ],
};

const FASHION: Published = Published {
    set: "fashion-mnist",
    base: "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    files: [
        [
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ],
        [
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ],
    ],
};

/// MNIST, as images `[n, 28, 28]` and labels `[n]`, both u8.
///
/// With a folder, the files are read from there, gzipped or not. Without one, they are downloaded
/// once into the folder that `PICO_DATA` names (see `docs/env.md`), which needs the feature
/// `download`. Gzipped files without the published SHA-256 are refused.
pub fn mnist(folder: Option<&Path>, split: Split) -> Result<ArrayDataset> {
    load(&MNIST, folder, split)
}

/// Fashion-MNIST: images of clothing in the format of [`mnist`], found in the same way.
pub fn fashion_mnist(folder: Option<&Path>, split: Split) -> Result<ArrayDataset> {
    load(&FASHION, folder, split)
}

fn load(data: &Published, folder: Option<&Path>, split: Split) -> Result<ArrayDataset> {
    let part = split as usize;
    let files = [0, 1].map(|i| {
        let (bytes, sha256) = data.files[part][i];
        Remote { name: NAMES[part][i], base: data.base, bytes, sha256 }
    });
    let place = DatasetFolder::new(data.set, folder)?;
    let mut arrays = Vec::new();
    for remote in &files {
        // Checksums are published for the gzipped files only; of others the shape is checked.
        let plain = place.folder.join(remote.name.trim_end_matches(".gz"));
        arrays.push(if plain.is_file() {
            idx::idx_load(&plain)?
        } else {
            idx::parse(
                &place.folder.join(remote.name).display().to_string(),
                &place.bytes(remote, &files)?,
            )?
        });
    }
    let n = if split == Split::Train { 60_000 } else { 10_000 };
    let labels = &arrays[1];
    if arrays[0].shape() != [n, 28, 28]
        || labels.shape() != [n]
        || labels.bytes().iter().any(|l| *l > 9)
    {
        let msg = format!(
            "{} has {n} images of 28 × 28 pixels with labels 0 to 9, got {:?} and {labels:?}",
            data.set, arrays[0]
        );
        return Err(place.wrong(msg));
    }
    ArrayDataset::new(arrays)
}
