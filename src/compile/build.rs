//! Programs to executables: render → disk cache lookup → batch → compile → disk cache store → load.
//!
//! **Invariant:** the disk cache never changes a result and never causes an error: an entry that is
//! missing, corrupt or not loadable is compiled again.

use crate::device::module::{
    Batching, CompileVariant, CompiledModule, KernelInfo, LoadedModule, ModuleCompiler,
    no_user_text,
};
use crate::device::{Device, Executable, Purpose};
use crate::disk_cache::{self, CacheKey, CompiledObject};
use crate::error::Result;
use crate::lower::Program;
use crate::pass::PassTimes;
use crate::render::{self, Rendered};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel that is ready to run.
pub(crate) struct CompiledKernel {
    /// The code.
    pub executable: Arc<dyn Executable>,
    /// Its source text; `None` on a device that runs linear programs themselves.
    pub rendered: Option<Rendered>,
    /// True if the code was loaded from the disk cache, without a compiler.
    pub from_cache: bool,
    /// Time of the passes that made the text.
    pub times: PassTimes,
}

/// Compiles one program for use now and in later processes.
pub(crate) fn compile_program(device: &Device, program: &Program) -> Result<CompiledKernel> {
    Ok(compile_programs(device, &[program], Purpose::Cached)?.swap_remove(0))
}

/// Compiles programs together, which takes less time than one after the other. With
/// [`Purpose::Cached`] they are looked up in the disk cache first and stored there afterwards; the
/// cache is opened once to read and once to write.
pub(crate) fn compile_programs(
    device: &Device,
    programs: &[&Program],
    purpose: Purpose,
) -> Result<Vec<CompiledKernel>> {
    let Some(compiler) = device.backend().compiler() else {
        let interpret = |p: &&Program| {
            let executable = device.backend().load_program(p)?;
            let times = PassTimes::new();
            Ok(CompiledKernel { executable, rendered: None, from_cache: false, times })
        };
        return programs.iter().map(interpret).collect();
    };
    let renderer = compiler.renderer();
    let render = |p: &&Program| super::render::render(renderer, p, false, purpose);
    let made = programs.iter().map(render).collect::<Result<Vec<_>>>()?;
    let (rendered, times): (Vec<Rendered>, Vec<PassTimes>) = made.into_iter().unzip();
    let sources: Vec<String> = rendered.iter().map(Rendered::text).collect();
    let loaded = load_or_compile(compiler, programs, &rendered, &sources, purpose)?;
    let kernel = |(i, (rendered, times)): (usize, (Rendered, PassTimes))| {
        let Loaded { module, symbol, from_cache } = &loaded[i];
        let unaligned = rendered.assumes_alignment.then(|| compile_unaligned(device, programs[i]));
        let info = KernelInfo { symbol, program: programs[i], source: &sources[i], unaligned };
        let executable = module.clone().kernel(info)?;
        let (rendered, from_cache) = (Some(rendered), *from_cache);
        Ok(CompiledKernel { executable, rendered, from_cache, times })
    };
    rendered.into_iter().zip(times).enumerate().map(kernel).collect()
}

/// A kernel in a loaded module.
#[derive(Clone)]
struct Loaded {
    module: Arc<dyn LoadedModule>,
    /// Its name there.
    symbol: String,
    from_cache: bool,
}

/// Loads kernels from the disk cache, and compiles the missing ones in modules of several.
fn load_or_compile(
    compiler: &dyn ModuleCompiler,
    programs: &[&Program],
    rendered: &[Rendered],
    sources: &[String],
    purpose: Purpose,
) -> Result<Vec<Loaded>> {
    let keys: Vec<Option<CacheKey>> = sources.iter().map(|s| compiler.cache_key(s)).collect();
    let cache = (purpose == Purpose::Cached).then(disk_cache::global);
    let mut loaded = cached(compiler, programs, &keys, cache);
    // Kernels of equal text are compiled once.
    let mut first: FxHashMap<&str, usize> = FxHashMap::default();
    let (mut missing, mut twins): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
    for i in (0..programs.len()).filter(|i| loaded[*i].is_none()) {
        match first.entry(&sources[i]) {
            Entry::Occupied(other) => twins.push((i, *other.get())),
            Entry::Vacant(free) => {
                free.insert(i);
                missing.push(i);
            }
        }
    }
    let Batching { per_module, parallel_modules } = compiler.batching(missing.len());
    let batches: Vec<&[usize]> = missing.chunks(per_module.max(1)).collect();
    let compile = |batch: &[usize]| -> Result<(CompiledModule, Vec<String>)> {
        if let [one] = batch {
            let name = &programs[*one].name;
            let module = compiler.compile_module(&sources[*one], name, purpose)?;
            return Ok((module, vec![rendered[*one].entry.clone()]));
        }
        let (text, entries) = render::module(batch.iter().map(|i| &rendered[*i]));
        Ok((compiler.compile_module(&text, "many", purpose)?, entries))
    };
    let mut objects = Vec::new();
    for (batch, result) in batches.iter().zip(parallel_map(&batches, parallel_modules, compile)) {
        let (CompiledModule { loaded: module, object }, entries) = result?;
        for (i, symbol) in batch.iter().zip(&entries) {
            let (module, symbol) = (module.clone(), symbol.clone());
            loaded[*i] = Some(Loaded { module, symbol, from_cache: false });
        }
        objects.extend(object.map(|object| CompiledObject {
            object,
            kernels: batch.iter().zip(entries).filter_map(|(i, e)| Some((keys[*i]?, e))).collect(),
        }));
    }
    for (i, other) in twins {
        loaded[i] = loaded[other].clone();
    }
    if let Some(cache) = cache {
        cache.put_programs(compiler.label(), &objects);
    }
    Ok(loaded.into_iter().flatten().collect())
}

/// Loads the kernels that the disk cache has.
fn cached(
    compiler: &dyn ModuleCompiler,
    programs: &[&Program],
    keys: &[Option<CacheKey>],
    cache: Option<&disk_cache::DiskCache>,
) -> Vec<Option<Loaded>> {
    let mut loaded: Vec<Option<Loaded>> = vec![None; programs.len()];
    let keys: Option<Vec<CacheKey>> = keys.iter().copied().collect();
    let (Some(cache), Some(keys)) = (cache, keys) else { return loaded };
    let mut modules: FxHashMap<*const Vec<u8>, Option<Arc<dyn LoadedModule>>> =
        FxHashMap::default();
    let found = cache.programs(&keys);
    for (i, cached) in found.iter().enumerate().filter_map(|(i, c)| Some((i, c.as_ref()?))) {
        // An object that does not load may be of another build of the same compiler version: the
        // kernel is then compiled again.
        let load = || compiler.load(&cached.object, &programs[i].name).ok();
        if let Some(module) = modules.entry(Arc::as_ptr(&cached.object)).or_insert_with(load) {
            let (module, symbol) = (module.clone(), cached.symbol.clone());
            loaded[i] = Some(Loaded { module, symbol, from_cache: true });
        }
    }
    loaded
}

/// Compiles the source text of a custom kernel, in which it has the program's name.
pub(crate) fn compile_source(
    device: &Device,
    program: &Program,
    text: &str,
) -> Result<CompiledKernel> {
    let compiler = device.backend().source_compiler().ok_or_else(|| no_user_text(program))?;
    let text = compiler.user_module(program, text)?;
    let kernel = Rendered::user(text, &program.name);
    compile_text(compiler, program, kernel, &program.name)
}

/// Renders and compiles the variant of a kernel for unaligned buffers, when it is called.
fn compile_unaligned(device: &Device, program: &Program) -> CompileVariant {
    let (device, program) = (device.clone(), program.clone());
    Box::new(move || {
        let compiler = device.backend().compiler().ok_or_else(|| no_user_text(&program))?;
        let purpose = Purpose::Cached;
        let (rendered, _) = super::render::render(compiler.renderer(), &program, true, purpose)?;
        let entry = rendered.entry.clone();
        Ok(compile_text(compiler, &program, rendered, &entry)?.executable)
    })
}

/// Compiles one text as a module of its own, through the disk cache.
fn compile_text(
    compiler: &dyn ModuleCompiler,
    program: &Program,
    rendered: Rendered,
    symbol: &str,
) -> Result<CompiledKernel> {
    let source = rendered.text();
    // A custom kernel's text may contain several functions, so the name is part of the key.
    // "verified" distinguishes entries from those of versions that did not verify custom texts.
    let key = compiler.cache_key(&format!("verified\n{symbol}\n{source}"));
    let cache = disk_cache::global();
    let found = key.and_then(|key| cache.programs(&[key]).pop().flatten());
    let loaded = found.and_then(|c| compiler.load(&c.object, symbol).ok());
    let from_cache = loaded.is_some();
    let module = match loaded {
        Some(module) => module,
        None => {
            let module = compiler.compile_module(&source, symbol, Purpose::UserText)?;
            let object = module.object.zip(key).map(|(object, key)| CompiledObject {
                object,
                kernels: vec![(key, symbol.to_string())],
            });
            cache.put_programs(compiler.label(), object.as_slice());
            module.loaded
        }
    };
    let executable =
        module.kernel(KernelInfo { symbol, program, source: &source, unaligned: None })?;
    let times = PassTimes::new();
    Ok(CompiledKernel { executable, rendered: Some(rendered), from_cache, times })
}

/// Applies a function to each item on several threads, and returns the results in order.
fn parallel_map<P: Sync + ?Sized, T: Send>(
    items: &[&P],
    threads: usize,
    f: impl Fn(&P) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = std::iter::from_fn(|| {
            Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < items.len())
        });
        mine.map(|i| (i, f(items[i]))).collect::<Vec<_>>()
    };
    let mut done: Vec<(usize, T)> = std::thread::scope(|s| {
        // If the system refuses another thread, the existing ones do all the work.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(s, work).ok();
        let others: Vec<_> = (1..threads.min(items.len())).map_while(spawn).collect();
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
