//! Files and data: files of other programs, malformed files, interrupted saves, loaders and
//! synthetic images.

mod dict;
mod files;
mod loader;
mod npy;
mod progress;
mod safetensors;
// Signals, and limits of processes.
#[cfg(unix)]
mod saving;
mod synthetic;

#[path = "../common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};

/// Path of a file that `tests/fixtures/make_state.py` wrote.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state").join(name)
}
