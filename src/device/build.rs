//! What the compilers share: kernels from the store or made anew, several kernels in one text, and
//! the sources that were refused.

use super::disk_cache;
use super::disk_cache::{CacheKey, CompiledObject};
use super::registry::Purpose;
use crate::error::Result;
use crate::lower::Program;
use crate::render::Renderer;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much of what the compiler says goes into an error.
const MESSAGE_LINES: usize = 12;
/// How many refused sources are kept in the cache folder.
pub(in crate::device) const KEEP_FAILED: usize = 50;

/// Loaded code, and the object to keep of it.
pub(in crate::device) type CompiledModule<C> = (C, Option<Vec<u8>>);

/// A compiler of a device, as far as the store and the division of work need to know it.
pub(in crate::device) trait ModuleCompiler: Sync {
    /// What an object becomes when it is loaded.
    type Code: Send + Sync;
    /// The device, for people who look at the store.
    fn device(&self) -> &str;
    /// What writes the texts.
    fn renderer(&self) -> &dyn Renderer;
    /// What a kernel's own lines begin with, after types and helpers.
    fn start(&self) -> &str;
    /// Of so many kernels, how many go into one text, and how many texts are compiled beside each
    /// other.
    fn division(&self, kernels: usize) -> (usize, usize);
    /// The key of what this text gives: everything that decides it.
    fn key(&self, source: &str) -> CacheKey;
    /// Code of a text, and the object to keep, where the compiler hands it out. The name is for
    /// messages.
    fn make(&self, text: &str, name: &str, purpose: Purpose) -> Result<CompiledModule<Self::Code>>;
    /// An object made ready to run. The name is for messages.
    fn load(&self, object: &[u8], name: &str) -> Result<Self::Code>;
}

/// A kernel in loaded code.
pub(in crate::device) struct CompiledKernel<C> {
    /// The code, which it may share with others.
    pub code: Arc<C>,
    /// Its name there.
    pub symbol: String,
    /// Its own text.
    pub source: String,
    /// Did it come from the store?
    pub kept: bool,
}

/// Kernels from the store, or where it has them not from the compiler, and then kept; from the
/// compiler alone where they are not to be kept. The store is opened once to look and once to
/// write.
pub(in crate::device) fn build<M: ModuleCompiler>(
    maker: &M,
    programs: &[&Program],
    purpose: Purpose,
) -> Result<Vec<CompiledKernel<M::Code>>> {
    let sources = programs
        .iter()
        .map(|p| maker.renderer().render(short(&p.name), &p.uops))
        .collect::<Result<Vec<_>>>()?;
    let keys: Vec<CacheKey> = sources.iter().map(|s| maker.key(s)).collect();
    let mut built: Vec<Option<CompiledKernel<M::Code>>> =
        (0..programs.len()).map(|_| None).collect();
    let mut loaded: FxHashMap<*const Vec<u8>, Option<Arc<M::Code>>> = FxHashMap::default();
    let store = (purpose == Purpose::Cached).then(disk_cache::global);
    let found = store.map_or_else(Vec::new, |s| s.programs(&keys));
    for (i, kept) in found.iter().enumerate().filter_map(|(i, k)| Some((i, k.as_ref()?))) {
        // Whole, yet not loadable: perhaps from a compiler that changed under the same version.
        // CompiledObject anew it may be good.
        let load = || maker.load(&kept.object, &programs[i].name).ok().map(Arc::new);
        if let Some(code) = loaded.entry(Arc::as_ptr(&kept.object)).or_insert_with(load) {
            let (code, symbol) = (code.clone(), kept.symbol.clone());
            built[i] =
                Some(CompiledKernel { code, symbol, source: sources[i].clone(), kept: true });
        }
    }
    // One text is compiled once, however many kernels it is.
    let mut first: FxHashMap<CacheKey, usize> = FxHashMap::default();
    let (mut missing, mut twins): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
    for i in (0..programs.len()).filter(|i| built[*i].is_none()) {
        match first.entry(keys[i]) {
            Entry::Occupied(other) => twins.push((i, *other.get())),
            Entry::Vacant(free) => {
                free.insert(i);
                missing.push(i);
            }
        }
    }
    let (together, beside) = maker.division(missing.len());
    let groups: Vec<&[usize]> = missing.chunks(together.max(1)).collect();
    let make = |group: &[usize]| -> Result<(CompiledModule<M::Code>, Vec<String>)> {
        let (text, symbols) = match group {
            [one] => (sources[*one].clone(), vec![short(&programs[*one].name).to_string()]),
            many => joined(
                maker.renderer(),
                maker.start(),
                &many.iter().map(|i| programs[*i]).collect::<Vec<_>>(),
            )?,
        };
        Ok((
            maker.make(
                &text,
                if let [one] = group { &programs[*one].name } else { "many" },
                purpose,
            )?,
            symbols,
        ))
    };
    let mut fresh = Vec::new();
    for (group, made) in groups.iter().zip(side_by_side(&groups, beside, make)) {
        let ((code, object), symbols) = made?;
        let code = Arc::new(code);
        for (i, symbol) in group.iter().zip(&symbols) {
            let (code, symbol) = (code.clone(), symbol.clone());
            built[*i] =
                Some(CompiledKernel { code, symbol, source: sources[*i].clone(), kept: false });
        }
        fresh.extend(object.map(|object| CompiledObject {
            object,
            kernels: group.iter().map(|i| keys[*i]).zip(symbols).collect(),
        }));
    }
    for (i, other) in twins {
        built[i] = built[other].as_ref().map(|b| CompiledKernel {
            code: b.code.clone(),
            symbol: b.symbol.clone(),
            source: b.source.clone(),
            kept: false,
        });
    }
    if let Some(store) = store {
        store.put_programs(maker.device(), &fresh);
    }
    Ok(built.into_iter().flatten().collect())
}

/// The same of one text that is there already, in which the kernel has this name: a user's, or a
/// second version of a kernel.
pub(in crate::device) fn build_text<M: ModuleCompiler>(
    maker: &M,
    text: String,
    name: &str,
) -> Result<CompiledKernel<M::Code>> {
    // A text has as many kernels as it has functions. Objects from before texts were verified have
    // other keys.
    let (store, key) = (disk_cache::global(), maker.key(&format!("verified\n{name}\n{text}")));
    let found = store.programs(&[key]).pop().flatten();
    let symbol = name.to_string();
    if let Some(code) = found.and_then(|kept| maker.load(&kept.object, name).ok()) {
        return Ok(CompiledKernel { code: Arc::new(code), symbol, source: text, kept: true });
    }
    let (code, object) = maker.make(&text, name, Purpose::Text)?;
    let made: Vec<CompiledObject> = object
        .map(|object| CompiledObject { object, kernels: vec![(key, symbol.clone())] })
        .into_iter()
        .collect();
    store.put_programs(maker.device(), &made);
    Ok(CompiledKernel { code: Arc::new(code), symbol, source: text, kept: false })
}

/// Does something with each part, on so many threads, and returns the results in order.
fn side_by_side<P: Sync + ?Sized, T: Send>(
    parts: &[&P],
    threads: usize,
    f: impl Fn(&P) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| {
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < parts.len())
        });
        mine.map(|i| (i, f(parts[i]))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, T)> = std::thread::scope(|s| {
        // Where the system has no more threads, those that there are do it all.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(s, work).ok();
        let others: Vec<_> = (1..threads.min(parts.len())).map_while(spawn).collect();
        let mine = work();
        mine.into_iter()
            .chain(
                others
                    .into_iter()
                    .flat_map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))),
            )
            .collect()
    });
    done.sort_by_key(|d| d.0);
    done.into_iter().map(|d| d.1).collect()
}

/// Several kernels as one text, and for each its name in it. A kernel's lines begin with `start`;
/// before them stand types and helpers, one on a line, and equal names mean equal lines.
pub(in crate::device) fn joined(
    renderer: &dyn Renderer,
    start: &str,
    programs: &[&Program],
) -> Result<(String, Vec<String>)> {
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
        names.push(name);
    }
    Ok((prelude + &kernels, names))
}

/// A name that drivers take. PoCL makes a path of it, and ends the process where that is longer
/// than it has room for.
pub(in crate::device) fn short(name: &str) -> &str {
    name.get(..64).unwrap_or(name)
}

/// The first lines of what a compiler says.
pub(in crate::device) fn first_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().take(MESSAGE_LINES + 1).collect();
    if lines.len() > MESSAGE_LINES {
        lines[MESSAGE_LINES] = "…";
    }
    // What a compiler quotes from a source must not steer a terminal.
    lines.join("\n").chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// Keeps a source that was refused, for a look. `None` where it can be written nowhere.
pub(in crate::device) fn keep_source(
    src: &str,
    name: &str,
    ending: &str,
    cache: Option<&Path>,
) -> Option<PathBuf> {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(60).collect();
    let in_cache = cache.and_then(|dir| {
        let dir = dir.join("failed");
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).ok()?;
        make_room(&dir);
        let file = dir.join(format!("{name}-{}{ending}", CacheKey::of(&[src.as_bytes()])));
        fs::write(&file, src).ok()?;
        Some(file)
    });
    in_cache.or_else(|| {
        let (mut file, path) =
            create_unique(&std::env::temp_dir(), &format!("picograd-{name}"), ending).ok()?;
        file.write_all(src.as_bytes()).ok()?;
        Some(path)
    })
}

/// Deletes the oldest refused sources where there are many.
fn make_room(dir: &Path) {
    let Ok(list) = fs::read_dir(dir) else { return };
    let mut files: Vec<_> = list
        .flatten()
        .filter_map(|f| Some((f.metadata().ok()?.modified().ok()?, f.path())))
        .collect();
    if files.len() >= KEEP_FAILED {
        files.sort();
        for (_, path) in &files[..=files.len() - KEEP_FAILED] {
            let _ = fs::remove_file(path);
        }
    }
}

/// A part of a file name that no other process or thread uses.
pub(in crate::device) fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.subsec_nanos());
    format!("{}-{}-{nanos:08x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A new file of its own name, for its owner alone.
pub(in crate::device) fn create_unique(
    dir: &Path,
    stem: &str,
    ending: &str,
) -> std::io::Result<(File, PathBuf)> {
    let path = dir.join(format!("{stem}-{}{ending}", unique()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((file, path))
}
