//! Kernels to compiled programs, once each: optimize, lower, render, compile.

use super::beam::Beam;
use super::build::{CompiledKernel, compile_program, compile_programs, compile_source};
use super::choose_opts::{Policy, choose_opts};
use super::pipeline::{self, lowered};
use crate::codegen;
use crate::device::{Counters, Device, Executable, Purpose, count, profile};
use crate::env::{self, Config};
use crate::error::{Error, Result};
use crate::ir::{Arg, DeviceName, Source, UOp};
use crate::lower::{self, Estimate, Launch, Program};
use crate::opt::{self, Kernel, Opt};
use crate::pass::PassTimes;
use crate::render::Rendered;
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// A kernel that is ready to run, with its program and source.
pub struct Compiled {
    /// The applied Opts.
    pub opts: Vec<Opt>,
    /// The linear program.
    pub program: Program,
    /// The code.
    pub executable: Arc<dyn Executable>,
    /// Its source text; `None` on a device that runs linear programs themselves.
    pub rendered: Option<Rendered>,
    /// True if the code was loaded from the disk cache, without a compiler.
    pub from_cache: bool,
    /// Time of each pass that ran, from `choose_opts` to `render`.
    pub times: PassTimes,
    /// Time in the device's renderer and compiler; of kernels that were compiled together, the
    /// mean.
    pub compile_time: Duration,
}

impl Compiled {
    /// Makes the compiled program of a kernel that was optimized in `optimizing`.
    fn new(
        opts: Vec<Opt>,
        program: Program,
        kernel: CompiledKernel,
        optimizing: PassTimes,
        compile_time: Duration,
    ) -> Compiled {
        let CompiledKernel { executable, rendered, from_cache, times: rendering } = kernel;
        let mut times = optimizing;
        times.extend(program.times.iter().copied().chain(rendering));
        Compiled { opts, program, executable, rendered, from_cache, times, compile_time }
    }
}

/// The policy that chooses Opts.
#[derive(Clone)]
pub enum OptPolicy {
    /// By the settings: the heuristic, beam search under `BEAM=n`, or none under `NOOPT=1`.
    Default,
    /// No Opts.
    Nothing,
    /// By a function of the kernel and the target, which returns the kernel with its Opts.
    By(Rc<Chooser>),
}

/// A function that returns a kernel with its Opts.
pub type Chooser = dyn Fn(&Kernel, &Target) -> Kernel;

thread_local! {
    static OPT_POLICY: RefCell<OptPolicy> = const { RefCell::new(OptPolicy::Default) };
}

/// Runs `f` with another way to choose Opts on this thread.
pub fn with_opt_policy<T>(choice: OptPolicy, f: impl FnOnce() -> T) -> T {
    struct Restore(OptPolicy);
    impl Drop for Restore {
        fn drop(&mut self) {
            OPT_POLICY.set(self.0.clone());
        }
    }
    let _restore = Restore(OPT_POLICY.replace(choice));
    f()
}

/// The number of programs at which the cache is cleared, as the schedule cache is.
const MAX_PROGRAMS: usize = 16_384;

type Key = (UOp, DeviceName, bool);
static PROGRAMS: LazyLock<Mutex<FxHashMap<Key, Arc<Compiled>>>> = LazyLock::new(Mutex::default);

fn lock() -> std::sync::MutexGuard<'static, FxHashMap<Key, Arc<Compiled>>> {
    PROGRAMS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the number of cached programs.
#[cfg(feature = "testing")]
pub fn programs() -> usize {
    lock().len()
}

/// Returns the programs in the cache, in no particular order.
#[cfg(feature = "testing")]
pub fn compiled_programs() -> Vec<Arc<Compiled>> {
    lock().values().cloned().collect()
}

/// Clears the program cache; programs in use stay alive.
#[cfg(feature = "testing")]
pub fn clear_programs() {
    lock().clear();
}

/// A kernel to compile: its cache key, the kernel with its Opts, and the time of the passes that
/// chose them.
struct Chosen {
    key: Key,
    kernel: Kernel,
    times: PassTimes,
}

/// A cached program, or a kernel to compile.
enum CacheLookup {
    Hit(Arc<Compiled>),
    Miss(Chosen),
}

fn choose(ast: &UOp, device: &Device, config: &Config) -> Result<CacheLookup> {
    let choice = OPT_POLICY.with_borrow(Clone::clone);
    let plain = match &choice {
        OptPolicy::Default => Some(config.noopt),
        OptPolicy::Nothing => Some(true),
        OptPolicy::By(_) => None,
    };
    if let Some(noopt) = plain
        && let Some(c) = lock().get(&(ast.clone(), device.code_device(), noopt))
    {
        return Ok(CacheLookup::Hit(c.clone()));
    }
    let policy = match &choice {
        OptPolicy::By(chooser) => Policy::By(&**chooser),
        _ if plain == Some(true) => Policy::Nothing,
        _ if config.beam > 0 => {
            Policy::Beam(Beam { width: config.beam, seconds: config.beam_seconds })
        }
        _ => Policy::Heuristic,
    };
    let (kernel, times) = choose_opts(ast, device, policy)?;
    // A kernel that was optimized by hand is its own key: its AST contains the Opts.
    let key = match plain {
        Some(noopt) => (ast.clone(), device.code_device(), noopt),
        None => (kernel.ast.clone(), device.code_device(), true),
    };
    if plain.is_none()
        && let Some(c) = lock().get(&key)
    {
        return Ok(CacheLookup::Hit(c.clone()));
    }
    Ok(CacheLookup::Miss(Chosen { key, kernel, times }))
}

/// Adds a program to the cache.
fn insert(key: Key, c: &Arc<Compiled>) {
    let mut programs = lock();
    if programs.len() >= MAX_PROGRAMS {
        programs.clear();
    }
    programs.insert(key, c.clone());
}

/// Returns the program of any kernel on a device, compiled if it is not cached. The kernel is
/// verified first: one that is malformed, may access memory out of bounds or is given as source
/// text is an error.
pub fn compiled(ast: &UOp, device: &Device) -> Result<Arc<Compiled>> {
    let refused =
        |msg: String| Err(Error::Compile { msg: format!("compiled: {msg}"), source_at: None });
    if matches!(ast.arg(), Arg::Source(_)) {
        return refused(
            "source text cannot be proven safe; run it by CustomKernel::source and \
             Tensor::custom_kernel"
                .into(),
        );
    }
    // A search runs its candidates, so that accesses are proven before Opts are chosen.
    match lower::proven(ast) {
        Ok(ast) => planned(&ast, device),
        Err(e) => refused(e),
    }
}

/// Returns the program of a kernel of the scheduler, or of a source text whose safety the user
/// promised. Compiles it on a cache miss.
pub(crate) fn planned(ast: &UOp, device: &Device) -> Result<Arc<Compiled>> {
    let config = env::config()?;
    if let Arg::Source(source) = ast.arg() {
        return from_source(ast, source, device);
    }
    let Chosen { key, kernel, times } = match choose(ast, device, config)? {
        CacheLookup::Hit(c) => return Ok(c),
        CacheLookup::Miss(chosen) => chosen,
    };
    let c = Arc::new(compile(&kernel, device, config, times)?);
    insert(key, &c);
    Ok(c)
}

/// Returns the program of a custom kernel's source text.
fn from_source(ast: &UOp, source: &Source, device: &Device) -> Result<Arc<Compiled>> {
    let key = (ast.clone(), device.code_device(), true);
    if let Some(c) = lock().get(&key) {
        return Ok(c.clone());
    }
    let bytes = |a: &UOp| {
        if let Arg::Global { len, .. } = a.arg() {
            (len * a.dtype().itemsize()) as f64
        } else {
            0.0
        }
    };
    let program = Program {
        name: source.entry.to_string(),
        colored: source.entry.to_string(),
        uops: Vec::new(),
        launch: Launch {
            grid: source.grid,
            local: source.local,
            chunks: source.grid[0],
            scratch: 0,
        },
        variables: Default::default(),
        args: ast.src().to_vec(),
        writes: (0..source.outputs).collect(),
        estimate: Estimate { flops: 0.0, steps: 0.0, bytes: ast.src().iter().map(bytes).sum() },
        times: Default::default(),
    };
    let start = Instant::now();
    let kernel = compile_traced(&program.name, || compile_source(device, &program, &source.text))?;
    let time = start.elapsed();
    count_compiled(device, std::slice::from_ref(&kernel), time);
    let c = Arc::new(Compiled::new(Vec::new(), program, kernel, PassTimes::new(), time));
    insert(key, &c);
    Ok(c)
}

/// Returns the program of a kernel with these Opts, compiled on a cache miss. A list that does not
/// apply is an error.
pub(crate) fn compiled_with(ast: &UOp, opts: &[Opt], device: &Device) -> Result<Arc<Compiled>> {
    if let Arg::Source(source) = ast.arg() {
        return match opts {
            [] => from_source(ast, source, device),
            _ => Err(Error::Opt {
                opt: opt::show(opts),
                msg: "a kernel given as source text takes no Opts".into(),
            }),
        };
    }
    let (kernel, times) = choose_opts(ast, device, Policy::Given(opts))?;
    let key = (kernel.ast.clone(), device.code_device(), true);
    if let Some(c) = lock().get(&key) {
        return Ok(c.clone());
    }
    let c = Arc::new(compile(&kernel, device, env::config()?, times)?);
    insert(key, &c);
    Ok(c)
}

/// Compiles kernels together, which takes less time than one by one. Kernels that fail here are
/// left to [`compiled`], which returns the error.
pub fn compile_together<'a>(
    kernels: impl Iterator<Item = (&'a UOp, &'a DeviceName)>,
) -> Result<()> {
    let config = env::config()?;
    // `DEBUG=4` prints the source of single kernels.
    if config.debug >= 4 {
        return Ok(());
    }
    let mut fresh: Vec<(Device, Chosen, Program, Duration)> = Vec::new();
    let mut seen: FxHashSet<(UOp, DeviceName)> = FxHashSet::default();
    for (ast, name) in kernels {
        let device = Device::named(name)?;
        // Before Opts are chosen, by a search of many seconds if `BEAM` is set.
        if !seen.insert((ast.clone(), device.code_device())) {
            continue;
        }
        let CacheLookup::Miss(chosen) = choose(ast, &device, config)? else { continue };
        let start = Instant::now();
        let program = lowered(&chosen.kernel, device.target())?;
        fresh.push((device, chosen, program, start.elapsed()));
    }
    while let Some((device, ..)) = fresh.first() {
        let device = device.clone();
        let (list, rest): (Vec<_>, Vec<_>) =
            fresh.into_iter().partition(|f| f.0.code_device() == device.code_device());
        fresh = rest;
        let start = Instant::now();
        let mut span = profile::span(|| format!("compile {} kernels", list.len()).into());
        span.note("kernels", || {
            list.iter().map(|f| f.2.name.as_str()).collect::<Vec<_>>().join(", ").into()
        });
        let programs: Vec<&Program> = list.iter().map(|f| &f.2).collect();
        let Ok(kernels) = compile_programs(&device, &programs, Purpose::Cached) else { continue };
        span.note("from the disk cache", || kernels.iter().filter(|k| k.from_cache).count().into());
        drop(span);
        let took = start.elapsed();
        let each = took / list.len() as u32;
        let before = list.iter().map(|f| total(&f.1.times) + f.3).sum::<Duration>();
        count_compiled(&device, &kernels, took + before);
        for ((_, chosen, program, _), kernel) in list.into_iter().zip(kernels) {
            let c = Compiled::new(chosen.kernel.opts, program, kernel, chosen.times, each);
            insert(chosen.key, &Arc::new(c));
        }
    }
    Ok(())
}

/// Returns the time of all passes.
fn total(times: &PassTimes) -> Duration {
    times.iter().map(|t| t.1).sum()
}

/// Counts compiled programs of a device, and their compile time.
fn count_compiled(device: &Device, made: &[CompiledKernel], compile_time: Duration) {
    let from_cache = made.iter().filter(|k| k.from_cache).count() as u64;
    count(
        device.name(),
        &Counters { compiled: made.len() as u64, from_cache, compile_time, ..Counters::default() },
    );
}

/// Compiles one kernel inside a span of the profile.
fn compile_traced(
    name: &str,
    compile: impl FnOnce() -> Result<CompiledKernel>,
) -> Result<CompiledKernel> {
    let mut span = profile::span(|| format!("compile {name}").into());
    let kernel = compile()?;
    pipeline::note_times(&mut span, &kernel.times);
    span.note("from the disk cache", || usize::from(kernel.from_cache).into());
    Ok(kernel)
}

fn compile(
    kernel: &Kernel,
    device: &Device,
    config: &Config,
    optimizing: PassTimes,
) -> Result<Compiled> {
    let start = Instant::now();
    let program = lowered(kernel, device.target())?;
    let lowering = start.elapsed();
    let start = Instant::now();
    let made = compile_traced(&program.name, || compile_program(device, &program))?;
    let compiling = start.elapsed();
    let time = total(&optimizing) + lowering + compiling;
    count_compiled(device, std::slice::from_ref(&made), time);
    if config.debug >= 4 {
        let rendered = made.rendered.as_ref().map(Rendered::text);
        if let Some(text) = rendered.or_else(|| device.backend().listing(&program)) {
            eprintln!("{text}");
        }
    }
    if config.debug >= 7
        && let Some(code) = made.executable.machine_code()
    {
        eprintln!("{}", disassembly(code));
    }
    Ok(Compiled::new(kernel.opts.clone(), program, made, optimizing, compiling))
}

/// Disassembles machine code of this machine: on another than x86-64 by the system's `objdump`, or
/// as bytes if there is none.
fn disassembly(code: &[u8]) -> String {
    if cfg!(target_arch = "x86_64") {
        return codegen::disassemble(code);
    }
    let run = || -> Option<String> {
        let path = std::env::temp_dir().join(format!(
            "picograd-{}-{:p}.bin",
            std::process::id(),
            code.as_ptr()
        ));
        std::fs::write(&path, code).ok()?;
        let out = std::process::Command::new("objdump")
            .args(["-D", "-b", "binary", "-m", "aarch64"])
            .arg(&path)
            .output();
        let _ = std::fs::remove_file(&path);
        let out = out.ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    run().unwrap_or_else(|| {
        let lines: Vec<String> = code
            .chunks(16)
            .map(|c| c.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "))
            .collect();
        format!("(install binutils for objdump to see instructions)\n{}", lines.join("\n"))
    })
}
