//! What the compilers share: objects from the cache or made anew, several kernels in one text, and the sources that were refused.

use super::elf::Code;
use super::objcache::{Cache, Key};
use crate::error::Result;
use crate::lower::Program;
use crate::render::Renderer;
use rustc_hash::FxHashSet;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much of what the compiler says goes into an error.
const MESSAGE_LINES: usize = 12;
/// How many refused sources are kept in the cache folder.
pub(super) const KEEP_FAILED: usize = 50;

/// The object of a key, from the cache or made now and kept, loaded.
pub(super) fn build(cache: &Cache, key: Key, compile: impl FnOnce() -> Result<Vec<u8>>) -> Result<Code> {
    if let Some(object) = cache.get(key) {
        match Code::load(&object) {
            Ok(code) => return Ok(code),
            // Whole, yet not loadable: perhaps from a compiler that changed under the same version. Made anew it may be good.
            Err(_) => cache.remove(key),
        }
    }
    let object = compile()?;
    let code = Code::load(&object)?;
    cache.put(key, &object);
    Ok(code)
}

/// Several kernels as one text, and for each its name in it and its own text. A kernel's lines begin with `start`; before them stand types and
/// helpers, one on a line, and equal names mean equal lines.
pub(super) fn joined(renderer: &dyn Renderer, start: &str, programs: &[&Program]) -> Result<(String, Vec<(String, String)>)> {
    let mut seen: FxHashSet<String> = FxHashSet::default();
    let (mut prelude, mut kernels, mut names) = (String::new(), String::new(), Vec::new());
    for (i, program) in programs.iter().enumerate() {
        let name = format!("k{i}_{}", short(&program.name));
        let source = renderer.render(&name, &program.uops)?;
        let own = source.find(start).unwrap_or(0);
        for line in source[..own].lines().filter(|l| seen.insert(l.to_string())) {
            prelude.push_str(line);
            prelude.push('\n');
        }
        kernels.push_str(&source[own..]);
        names.push((name, source));
    }
    Ok((prelude + &kernels, names))
}

/// A name that drivers take. PoCL makes a path of it, and ends the process where that is longer than it has room for.
pub(super) fn short(name: &str) -> &str {
    name.get(..64).unwrap_or(name)
}

/// The first lines of what a compiler says.
pub(super) fn first_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().take(MESSAGE_LINES + 1).collect();
    if lines.len() > MESSAGE_LINES {
        lines[MESSAGE_LINES] = "…";
    }
    // What a compiler quotes from a source must not steer a terminal.
    lines.join("\n").chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// Keeps a source that was refused, for a look. `None` where it can be written nowhere.
pub(super) fn keep_source(src: &str, name: &str, ending: &str, cache: Option<&Path>) -> Option<PathBuf> {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(60).collect();
    let in_cache = cache.and_then(|dir| {
        let dir = dir.join("failed");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).ok()?;
        make_room(&dir);
        let file = dir.join(format!("{name}-{}{ending}", Key::of(&[src.as_bytes()])));
        fs::write(&file, src).ok()?;
        Some(file)
    });
    in_cache.or_else(|| {
        let (mut file, path) = create_unique(&std::env::temp_dir(), &format!("picograd-{name}"), ending).ok()?;
        file.write_all(src.as_bytes()).ok()?;
        Some(path)
    })
}

/// Deletes the oldest refused sources where there are many.
fn make_room(dir: &Path) {
    let Ok(list) = fs::read_dir(dir) else { return };
    let mut files: Vec<_> = list.flatten().filter_map(|f| Some((f.metadata().ok()?.modified().ok()?, f.path()))).collect();
    if files.len() >= KEEP_FAILED {
        files.sort();
        for (_, path) in &files[..=files.len() - KEEP_FAILED] {
            let _ = fs::remove_file(path);
        }
    }
}

/// A part of a file name that no other process or thread uses.
pub(super) fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos());
    format!("{}-{}-{nanos:08x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A new file of its own name, for its owner alone.
pub(super) fn create_unique(dir: &Path, stem: &str, ending: &str) -> std::io::Result<(File, PathBuf)> {
    let path = dir.join(format!("{stem}-{}{ending}", unique()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((file, path))
}
