//! The registry of devices: names, what is there, what is not and why. A device is opened when it is first asked for.

use super::buffer::{Memory, Place};
use super::cpu::Cpu;
use super::{interp_device, null};
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::lower::{Launch, Program};
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// What a device does for the executor.
pub trait Backend: Send + Sync {
    /// What its kernels may use.
    fn target(&self) -> &Target;
    /// A line about it for people: compiler, version, threads.
    fn describe(&self) -> String;
    /// Memory of so many bytes.
    fn allocate(&self, bytes: usize) -> Result<Memory>;
    /// A program made ready to run.
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>>;
    /// Several programs made ready at once, which a device may do in less time than one after the other. `keep` says whether they may come from
    /// the store on disk, and go into it.
    fn compile_many(&self, programs: &[&Program], _keep: bool) -> Result<Vec<Arc<dyn Executable>>> {
        programs.iter().map(|p| self.compile(p)).collect()
    }
    /// A text of the user's in the device's language made ready. The program has its name, its arguments and its launch, and no nodes.
    fn compile_source(&self, program: &Program, _text: &str) -> Result<Arc<dyn Executable>> {
        Err(Error::Device(format!("kernel {}: the device runs no source; write the kernel as nodes", program.name)))
    }
    /// Waits until everything that was asked for is done.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// A compiled kernel.
pub trait Executable: Send + Sync {
    /// Runs it on memory, slot by slot, and says how long it took. A device that does not wait for its kernels says zero, unless `DEBUG=2` wants times.
    fn run(&self, args: &[Place], launch: &Launch) -> Result<Duration>;
    /// Runs it, waits until it is done, and says how long it took.
    fn timed(&self, args: &[Place], launch: &Launch) -> Result<Duration> {
        self.run(args, launch)
    }
    /// The source, where there is one.
    fn source(&self) -> Option<&str> {
        None
    }
    /// The machine code, where there is some.
    fn machine_code(&self) -> Option<&[u8]> {
        None
    }
    /// Did it come from the store on disk, without a compiler?
    fn was_kept(&self) -> bool {
        false
    }
}

/// An opened device.
#[derive(Clone)]
pub struct Device {
    name: DeviceName,
    backend: Arc<dyn Backend>,
}

/// What opens the device of a number.
type Open = fn(usize) -> Result<Arc<dyn Backend>>;
/// The kinds of device, best first, each with its renderers, best first; a kind with one way to compute has a renderer without a name.
const KINDS: [(&str, &[(&str, Open)]); 6] = [
    ("CUDA", &[("", |n| Ok(Arc::new(super::cuda::CudaDevice::open(n)?)))]),
    ("CPU", &[("LLVM", |_| Ok(Arc::new(Cpu::llvm()?))), ("CLANG", |_| Ok(Arc::new(Cpu::clang()?)))]),
    ("CL", &[("", |n| Ok(Arc::new(super::cl::Cl::open(n)?)))]),
    ("WEBGPU", &[("", webgpu)]),
    ("INTERP", &[("", |_| Ok(Arc::new(interp_device::InterpDevice::new())))]),
    ("NULL", &[("", |_| Ok(Arc::new(null::Null::new())))]),
];

#[cfg(feature = "webgpu")]
fn webgpu(index: usize) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(super::webgpu::WebGpu::open(index)?))
}
/// The crate behind it is larger than all others together, so it is there for those who ask for it.
#[cfg(not(feature = "webgpu"))]
fn webgpu(_: usize) -> Result<Arc<dyn Backend>> {
    let how = "build it with `--features webgpu`, as in `cargo run --release --features webgpu --bin pico -- devices`";
    Err(Error::Device(format!("this program was built without WebGPU; {how}")))
}

static OPEN: LazyLock<Mutex<FxHashMap<DeviceName, Device>>> = LazyLock::new(Mutex::default);

impl Device {
    /// The device that a user means by `cpu`, `CPU:CLANG`, `cpu:1`, `interp` …: opened, under its canonical name. `cpu` alone is the renderer that `DEV` names,
    /// or the best that works.
    ///
    /// ```
    /// use picograd::Device;
    /// assert_eq!(Device::get("interp:0").unwrap().name().as_str(), "INTERP");
    /// assert!(Device::get("abacus").unwrap_err().to_string().contains("CUDA, CPU, CL, WEBGPU, INTERP, NULL"));
    /// ```
    pub fn get(name: &str) -> Result<Device> {
        Device::named(&canonical(name)?)
    }

    /// The device of a canonical name.
    pub fn named(name: &DeviceName) -> Result<Device> {
        let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(d) = open.get(name) {
            return Ok(d.clone());
        }
        let config = env::config()?;
        // A name that came from `DEV` as it was written has not been looked at yet.
        let parts = Parts::of(name.as_str())?;
        let backend = match parts.renderer {
            Some((_, opener)) => opener(parts.index)?,
            None => default_renderer(parts.kind, parts.renderers)?.1(parts.index)?,
        };
        let device = Device { name: name.clone(), backend };
        if config.debug >= 1 {
            eprintln!("opened {name}: {}", device.backend.describe());
        }
        open.insert(name.clone(), device.clone());
        Ok(device)
    }

    /// The device that tensors are made on when none is named: `DEV`, or the CPU, or the interpreter where it has no compiler. A `DEV` that does not exist is kept as it was
    /// written; the first thing that is computed on it gives the error.
    pub fn default_name() -> DeviceName {
        static NAME: std::sync::OnceLock<DeviceName> = std::sync::OnceLock::new();
        let wanted = env::config().ok().and_then(|c| c.device.clone());
        let choose = || match wanted {
            Some(dev) => canonical(&dev).unwrap_or_else(|_| DeviceName::new(&dev)),
            None if Parts::of("CPU").and_then(|cpu| default_renderer(cpu.kind, cpu.renderers)).is_ok() => DeviceName::new("CPU"),
            None => DeviceName::new("INTERP"),
        };
        NAME.get_or_init(choose).clone()
    }

    /// Its canonical name.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }
    /// The device whose code runs here too: all CPUs of one process are the same machine.
    pub(crate) fn code(&self) -> DeviceName {
        if sees_host(&self.name) { language(&self.name) } else { self.name.clone() }
    }
    /// What its kernels may use.
    pub fn target(&self) -> &Target {
        self.backend.target()
    }
    /// A line about it.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }
    /// Waits until everything that was asked of it is done. Reading a tensor does so by itself; this is for measuring.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Memory> {
        self.backend.allocate(bytes)
    }
    pub(crate) fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        self.backend.compile(program)
    }
    pub(crate) fn compile_source(&self, program: &Program, text: &str) -> Result<Arc<dyn Executable>> {
        self.backend.compile_source(program, text)
    }
    pub(crate) fn compile_many(&self, programs: &[&Program], keep: bool) -> Result<Vec<Arc<dyn Executable>>> {
        self.backend.compile_many(programs, keep)
    }

    /// Every kind of device with every renderer: its name, and what it is or why it is not there.
    pub fn list() -> Vec<(String, Result<String>)> {
        let name = |kind: &str, renderer: &str| if renderer.is_empty() { kind.to_string() } else { format!("{kind}:{renderer}") };
        let all = KINDS.iter().flat_map(|(kind, renderers)| renderers.iter().map(|(renderer, _)| name(kind, renderer)));
        all.map(|name| (name.clone(), Device::get(&name).map(|d| d.describe()))).collect()
    }
}

/// The name without a number: devices of one such name take the same source.
pub(crate) fn language(name: &DeviceName) -> DeviceName {
    match name.as_str().rsplit_once(':') {
        Some((kind, number)) if number.parse::<usize>().is_ok() => DeviceName::new(kind),
        _ => name.clone(),
    }
}

/// Do its kernels see the memory of the host? NULL looks at none.
pub(crate) fn sees_host(name: &DeviceName) -> bool {
    matches!(name.as_str().split(':').next(), Some("CPU" | "INTERP" | "NULL"))
}

fn unknown(name: &str) -> Error {
    if name.eq_ignore_ascii_case("DISK") {
        let msg = "DISK is where tensors of files are: nothing is computed or stored there; bring the tensor to a device first, as in .to(\"CPU\")";
        return Error::Device(msg.into());
    }
    let known: Vec<&str> = KINDS.iter().map(|k| k.0).collect();
    Error::Device(format!("there is no device {name:?}; known are {}, as in DEV=CPU or Device::get(\"cpu\")", known.join(", ")))
}

/// A name taken apart.
struct Parts {
    kind: &'static str,
    renderers: &'static [(&'static str, Open)],
    renderer: Option<(&'static str, Open)>,
    index: usize,
}

impl Parts {
    fn of(name: &str) -> Result<Parts> {
        let upper = name.trim().to_ascii_uppercase();
        let mut parts = upper.split(':');
        let kind = parts.next().unwrap_or_default();
        let (kind, renderers) = *KINDS.iter().find(|k| k.0 == kind).ok_or_else(|| unknown(name))?;
        let mut found = Parts { kind, renderers, renderer: None, index: 0 };
        for part in parts {
            if let Ok(n) = part.parse::<usize>() {
                found.index = n;
                continue;
            }
            let named = renderers.iter().find(|r| r.0 == part && !part.is_empty());
            found.renderer = Some(*named.ok_or_else(|| {
                let has: Vec<&str> = renderers.iter().map(|r| r.0).filter(|r| !r.is_empty()).collect();
                let has = if has.is_empty() { "none".to_string() } else { has.join(", ") };
                Error::Device(format!("{name:?}: {kind} has no renderer {part:?}; it has {has}"))
            })?);
        }
        Ok(found)
    }
}

/// The renderer of a kind where its name has none: what `DEV` names, or the first that works.
fn default_renderer(kind: &str, renderers: &'static [(&'static str, Open)]) -> Result<(&'static str, Open)> {
    let wanted = env::config()?.device.as_ref().and_then(|dev| Parts::of(dev).ok());
    if let Some(renderer) = wanted.filter(|w| w.kind == kind).and_then(|w| w.renderer) {
        return Ok(renderer);
    }
    if let [one] = renderers {
        return Ok(*one);
    }
    let mut missing = Vec::new();
    for (renderer, opener) in renderers {
        match opener(0) {
            Ok(_) => return Ok((*renderer, *opener)),
            Err(why) => missing.push(format!("{kind}:{renderer}: {why}")),
        }
    }
    Err(Error::Device(missing.join("\n")))
}

/// `KIND`, with `:RENDERER` where it is not the kind's default and `:n` for n > 0. So a device has one name.
pub fn canonical(name: &str) -> Result<DeviceName> {
    let parts = Parts::of(name)?;
    let mut text = parts.kind.to_string();
    if let Some((renderer, _)) = parts.renderer
        && !default_renderer(parts.kind, parts.renderers).is_ok_and(|r| r.0 == renderer)
    {
        text += &format!(":{renderer}");
    }
    if parts.index > 0 {
        text += &format!(":{}", parts.index);
    }
    Ok(DeviceName::new(&text))
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.describe())
    }
}
