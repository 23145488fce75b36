//! The contract between a backend and `src/compile`: text in, modules of kernels out.
//!
//! `src/compile` renders kernels, looks them up in the disk cache, puts the missing ones into
//! modules, lets the backend compile and load those, and takes one [`Executable`] per kernel.

use super::backend::{Executable, Purpose};
use crate::disk_cache::{CacheKey, DiskCache, save_failed_source};
use crate::error::{Error, Result};
use crate::lower::Program;
use crate::render::Renderer;
use std::sync::Arc;

/// Lines of a compiler's message that go into an error.
const MESSAGE_LINES: usize = 12;

/// The compiler of a backend.
pub trait ModuleCompiler: Sync {
    /// Device and compiler, as `pico cache` shows them.
    fn label(&self) -> &str;
    /// Returns the renderer of its language.
    fn renderer(&self) -> &dyn Renderer;
    /// Divides kernels into modules.
    fn batching(&self, _kernels: usize) -> Batching {
        Batching { per_module: 1, parallel_modules: 1 }
    }
    /// Returns the key of the object that this source compiles to: a hash of everything that
    /// determines it. `None` if the compiler returns no objects.
    fn cache_key(&self, _source: &str) -> Option<CacheKey> {
        None
    }
    /// Compiles a module and loads it. `name` is for messages.
    fn compile_module(&self, text: &str, name: &str, purpose: Purpose) -> Result<CompiledModule>;
    /// Loads the object of an earlier compilation. `name` is for messages.
    fn load(&self, _object: &[u8], name: &str) -> Result<Arc<dyn LoadedModule>> {
        Err(Error::Device(format!("kernel {name}: the device loads no objects")))
    }
    /// Returns the module for a user's kernel text: with a wrapper that calls it, if one is needed.
    /// The program has a name, arguments and launch sizes, and no nodes.
    fn user_module(&self, program: &Program, _text: &str) -> Result<String> {
        Err(no_user_text(program))
    }
}

/// Returns the error of a device that compiles no text of users.
pub(crate) fn no_user_text(program: &Program) -> Error {
    Error::Device(format!(
        "kernel {}: the device runs no source; write the kernel as nodes",
        program.name
    ))
}

/// The division of kernels into modules.
pub struct Batching {
    /// Kernels per module.
    pub per_module: usize,
    /// Modules that are compiled in parallel.
    pub parallel_modules: usize,
}

/// A module that was just compiled.
pub struct CompiledModule {
    /// The module, ready to run.
    pub loaded: Arc<dyn LoadedModule>,
    /// Its object for the disk cache, if the compiler returns it.
    pub object: Option<Vec<u8>>,
}

/// Code of one or more kernels, ready to run.
pub trait LoadedModule: Send + Sync {
    /// Makes one of its kernels executable.
    fn kernel(self: Arc<Self>, kernel: KernelInfo) -> Result<Arc<dyn Executable>>;
}

/// Compiles the variant of a kernel for unaligned buffers.
pub type CompileVariant = Box<dyn Fn() -> Result<Arc<dyn Executable>> + Send + Sync>;

/// A kernel of a module.
pub struct KernelInfo<'a> {
    /// Its name in the module.
    pub symbol: &'a str,
    /// Its program.
    pub program: &'a Program,
    /// Its own source text, for messages.
    pub source: &'a str,
    /// The variant for buffers that do not start at a multiple of 16 bytes, such as slices of
    /// others; `None` if the kernel runs on any buffer. Most kernels never need it, so that it is
    /// rendered and compiled at the first launch that does.
    pub unaligned: Option<CompileVariant>,
}

/// Returns a kernel name that every driver accepts. PoCL makes a file path of the name, and aborts
/// the process if that path is too long.
pub(crate) fn entry_name(name: &str) -> &str {
    name.get(..64).unwrap_or(name)
}

/// Returns the error of a source that a compiler rejects. The source is saved in the cache folder,
/// so that the error can name a file.
pub(crate) fn rejected(
    cache: &DiskCache,
    name: &str,
    source: &str,
    extension: &str,
    why: &str,
) -> Error {
    Error::Compile {
        msg: format!("kernel {name}: {why}"),
        source_at: save_failed_source(source, name, extension, cache.dir()),
    }
}

/// Returns the first lines of a compiler's message.
pub(crate) fn first_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().take(MESSAGE_LINES + 1).collect();
    if lines.len() > MESSAGE_LINES {
        lines[MESSAGE_LINES] = "…";
    }
    // Compilers quote sources, whose control characters must not reach a terminal.
    lines.join("\n").chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}
