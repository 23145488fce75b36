//! The registry of devices: names, what is there, what is not and why. A device is opened when it
//! is first asked for.

use super::buffer::{Memory, MemoryRef};
use super::host::arch;
use super::host::cpu::Cpu;
use super::module::ModuleCompiler;
use super::usage::{DeviceMemory, Usage};
use super::{interp, null, profile};
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use crate::lower::{Launch, Program};
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// What a device does for the executor.
pub(crate) trait Backend: Send + Sync {
    /// What its kernels may use.
    fn target(&self) -> &Target;
    /// A line about it for people: compiler, version, threads.
    fn describe(&self) -> String;
    /// Memory of so many bytes.
    fn allocate(&self, bytes: usize) -> Result<Memory>;
    /// The compiler of its language; `None` if it runs linear programs themselves, by
    /// [`interpret`](Self::interpret).
    fn compiler(&self) -> Option<&dyn ModuleCompiler>;
    /// Makes a linear program executable, on a device without a compiler.
    fn interpret(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Device(format!("kernel {}: the device interprets no programs", program.name)))
    }
    /// Kernels that are going to be run many times in this order, made ready for that. `meet` says
    /// whether two arguments, by their numbers, may be in the same memory. `None` where a device
    /// has no way that is better than running them one by one.
    fn graph(
        &self,
        _calls: &[Call],
        _meet: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Option<Box<dyn Graph>>> {
        Ok(None)
    }
    /// Bytes that it has taken from the system, in use or kept for the next buffers. Without a
    /// memory of its own it is the host's.
    fn held(&self) -> usize {
        super::memory::held_bytes()
    }
    /// Bytes that it may take at most, where that is known.
    fn limit(&self) -> Option<usize> {
        Some(super::memory::limit())
    }
    /// Waits until everything that was asked for is done.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// A kernel of a [`Graph`].
pub(crate) struct Call<'a> {
    /// The kernel.
    pub executable: &'a Arc<dyn Executable>,
    /// The numbers of its arguments among those of the graph.
    pub args: std::ops::Range<usize>,
    /// Those of its arguments that it writes, counted from its first.
    pub writes: &'a [usize],
}

/// Kernels that are started together.
pub(crate) trait Graph: Send {
    /// Runs all of them, with the memory of each argument by its number, and as a function says
    /// that each is started, which may depend on variables.
    ///
    /// # Safety
    /// As for [`Executable::run`], for each kernel.
    unsafe fn launch(&mut self, args: &[MemoryRef], launch: &dyn Fn(usize) -> Launch)
    -> Result<()>;
}

/// Addresses of buffers that the threads of kernels share.
pub(crate) struct Addresses(pub Vec<*mut u8>);
// SAFETY: kernels only read them; what is behind them is divided between the threads by the kernels
// themselves.
unsafe impl Sync for Addresses {}
// SAFETY: nothing of it is tied to a thread.
unsafe impl Send for Addresses {}

impl Addresses {
    /// Those from one on, as a kernel takes them.
    pub fn from(&self, first: usize) -> *const *mut u8 {
        self.0[first..].as_ptr()
    }
}

/// A kernel of the host as a function: addresses of its buffers, and the share of the work.
pub type HostFunction = unsafe extern "C" fn(*const *mut u8, libc::c_long);

/// What programs are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be run, now and by later processes: they come from the store on disk where it has them,
    /// and go into it.
    Cached,
    /// To be measured or compared as users run them, and dropped. The store does without them.
    Measure,
    /// To be run once. The store does without them, and a compiler that can take less time for
    /// slower code should.
    Once,
    /// A text that no renderer wrote: cached, and verified by a compiler that works in this
    /// process.
    UserText,
}

/// A compiled kernel.
pub trait Executable: Send + Sync {
    /// Runs it on memory, slot by slot, and says how long it took. A device that does not wait for
    /// its kernels says zero, unless `DEBUG=2` or `PROFILE` wants times.
    ///
    /// # Safety
    /// The kernel was made from a program whose indices are proven inside its arguments or masked,
    /// or from a text whose author promises it. The memory of each slot is as long as the program
    /// takes it to be, holds values of its dtype, is writable where the program writes it, and
    /// nobody else uses it meanwhile.
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration>;
    /// Runs it, waits until it is done, and says how long it took.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn timed(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        // SAFETY: the caller's promise.
        unsafe { self.run(args, launch) }
    }
    /// The machine code, where there is some.
    fn machine_code(&self) -> Option<&[u8]> {
        None
    }
    /// What runs it, where that is a function of this process. Whoever calls it keeps the promises
    /// of [`run`](Self::run): memory that is long enough, and every share once.
    fn entry(&self) -> Option<HostFunction> {
        None
    }
    /// For a device to find its own type again.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }
}

/// An opened device.
#[derive(Clone)]
pub struct Device {
    name: DeviceName,
    backend: Arc<dyn Backend>,
    usage: &'static Usage,
}

/// What opens the device of a number, for an architecture, or for its own where none is named.
type Open = fn(usize, Option<&str>) -> Result<Arc<dyn Backend>>;
/// Is this the name of an architecture of a kind? `Err` says what would be.
type IsArch = fn(&str) -> std::result::Result<(), String>;

/// A kind of device.
struct DeviceKind {
    name: &'static str,
    /// Best first; a kind with one way to compute has a renderer without a name.
    renderers: &'static [(&'static str, Open)],
    is_arch: IsArch,
}

/// The kinds of device, best first.
const KINDS: &[DeviceKind] = &[
    DeviceKind {
        name: "CUDA",
        renderers: &[("", |n, arch| Ok(Arc::new(super::cuda::CudaDevice::open(n, arch)?)))],
        is_arch: super::cuda::is_arch,
    },
    DeviceKind { name: "METAL", renderers: &[("", |n, _| metal(n))], is_arch: no_arch },
    DeviceKind {
        name: "CPU",
        renderers: &[
            ("LLVM", |_, arch| Ok(Arc::new(Cpu::llvm(arch)?))),
            ("CLANG", |_, arch| Ok(Arc::new(Cpu::clang(arch)?))),
        ],
        is_arch: arch::is_known,
    },
    DeviceKind {
        name: "CL",
        renderers: &[("", |n, _| Ok(Arc::new(super::cl::Cl::open(n)?)))],
        is_arch: no_arch,
    },
    DeviceKind { name: "WEBGPU", renderers: &[("", |n, _| webgpu(n))], is_arch: no_arch },
    DeviceKind {
        name: "INTERP",
        renderers: &[("", |_, _| Ok(Arc::new(interp::device::InterpDevice::new())))],
        is_arch: no_arch,
    },
    DeviceKind {
        name: "NULL",
        renderers: &[
            ("", |_, _| Ok(null::Null::c())),
            ("LLVM", |_, _| Ok(null::Null::llvm())),
            ("CUDA", |_, _| Ok(null::Null::cuda())),
            ("OPENCL", |_, _| Ok(null::Null::opencl())),
            ("METAL", |_, _| Ok(null::Null::metal())),
            ("WGSL", |_, _| Ok(null::Null::wgsl())),
        ],
        is_arch: no_arch,
    },
];

/// The compilers of these make code for the device that they have, and nothing else.
fn no_arch(_: &str) -> std::result::Result<(), String> {
    Err("it has no ARCH".into())
}

#[cfg(target_os = "macos")]
fn metal(index: usize) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(super::metal::MetalDevice::open(index)?))
}
#[cfg(not(target_os = "macos"))]
fn metal(_: usize) -> Result<Arc<dyn Backend>> {
    Err(Error::Device("only on macOS".into()))
}

#[cfg(feature = "webgpu")]
fn webgpu(index: usize) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(super::webgpu::WebGpu::open(index)?))
}
/// The crate behind it is larger than all others together, so it is there for those who ask for it.
#[cfg(not(feature = "webgpu"))]
fn webgpu(_: usize) -> Result<Arc<dyn Backend>> {
    let how = "build it with `--features webgpu`, as in `cargo run --release --features webgpu \
               --bin pico -- devices`";
    Err(Error::Device(format!("this program was built without WebGPU; {how}")))
}

static OPEN: LazyLock<Mutex<FxHashMap<DeviceName, Device>>> = LazyLock::new(Mutex::default);

impl Device {
    /// The device that a user means by `cpu`, `CPU:CLANG`, `cpu:1`, `cuda:1`, `cpu:llvm:x86-64-v3`
    /// …: opened, under its canonical name. The case of letters does not matter, and of
    /// renderer, architecture and number each may be left out. `cpu` alone is the renderer and the
    /// architecture that `DEV` names, or the best that works.
    ///
    /// ```
    /// use picograd::Device;
    /// assert_eq!(Device::get("interp:0").unwrap().name().as_str(), "INTERP");
    /// assert!(
    ///     Device::get("abacus")
    ///         .unwrap_err()
    ///         .to_string()
    ///         .contains("CUDA, METAL, CPU, CL, WEBGPU, INTERP, NULL")
    /// );
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
        let mut span = profile::span(|| format!("open {name}").into());
        let (_, opener) = parts.renderer.map_or_else(|| default_renderer(parts.kind), Ok)?;
        let backend =
            opener(parts.index, parts.arch.or_else(|| default_arch(parts.kind)).as_deref())?;
        let device = Device { name: name.clone(), backend, usage: Usage::of(name) };
        span.note("about", || device.backend.describe().into());
        drop(span);
        if config.debug >= 1 {
            eprintln!("opened {name}: {}", device.backend.describe());
        }
        open.insert(name.clone(), device.clone());
        Ok(device)
    }

    /// The device that tensors are made on when none is named: `DEV`, or the CPU, or the
    /// interpreter where it has no compiler. It is opened, and so an error where `DEV` names
    /// what is not there.
    ///
    /// ```
    /// use picograd::{Device, Tensor};
    /// assert_eq!(Device::default()?.name(), &Device::default_name());
    /// assert_eq!(Tensor::ones([2]).device(), Device::default()?.name());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    #[expect(
        clippy::should_implement_trait,
        reason = "there may be none, which the trait could not say"
    )]
    pub fn default() -> Result<Device> {
        Device::named(&Device::default_name())
    }

    /// The name of the device that tensors are made on when none is named. A `DEV` that does not
    /// exist is kept as it was written; the first thing that is computed on it gives the error.
    pub fn default_name() -> DeviceName {
        static NAME: std::sync::OnceLock<DeviceName> = std::sync::OnceLock::new();
        let wanted = env::config().ok().and_then(|c| c.device.clone());
        let choose = || match wanted {
            Some(dev) => canonical(&dev).unwrap_or_else(|_| DeviceName::new(&dev)),
            None if Parts::of("CPU").and_then(|cpu| default_renderer(cpu.kind)).is_ok() => {
                DeviceName::new("CPU")
            }
            None if super::host::llvm::is_named() => DeviceName::new("CPU"),
            None => DeviceName::new("INTERP"),
        };
        NAME.get_or_init(choose).clone()
    }

    /// The devices that this process has opened, by name.
    ///
    /// ```
    /// use picograd::Device;
    /// let interp = Device::get("interp")?;
    /// assert!(Device::opened().iter().any(|d| d.name() == interp.name()));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn opened() -> Vec<Device> {
        let mut devices: Vec<Device> =
            OPEN.lock().unwrap_or_else(|e| e.into_inner()).values().cloned().collect();
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        devices
    }

    /// The memory of its buffers now, and the most that it has been.
    ///
    /// ```
    /// use picograd::{Device, Tensor};
    /// let device = Device::get("cpu:7")?;
    /// let x = Tensor::new([1.0f32, 2.0]).to("cpu:7").realize()?;
    /// assert_eq!((device.memory().live, device.memory().peak), (8, 8));
    /// drop(x);
    /// assert_eq!((device.memory().live, device.memory().peak), (0, 8));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn memory(&self) -> DeviceMemory {
        let (live, peak) = self.usage.now();
        DeviceMemory { live, peak, held: self.backend.held(), limit: self.backend.limit() }
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
    /// Waits until everything that was asked of it is done. Reading a tensor does so by itself;
    /// this is for measuring.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }
    /// What its buffers take.
    pub(in crate::device) fn usage(&self) -> &'static Usage {
        self.usage
    }
    /// The backend: allocation, compilation and graph launches.
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Every kind of device with every renderer: its name, and what it is or why it is not there.
    pub fn list() -> Vec<(String, Result<String>)> {
        let name = |kind: &str, renderer: &str| {
            if renderer.is_empty() { kind.to_string() } else { format!("{kind}:{renderer}") }
        };
        let all = KINDS
            .iter()
            .flat_map(|kind| kind.renderers.iter().map(|(renderer, _)| name(kind.name, renderer)));
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

/// Whether it is the device that runs nothing and has no memory.
pub(crate) fn is_null(name: &DeviceName) -> bool {
    name.as_str().split(':').next() == Some("NULL")
}

fn unknown(name: &str) -> Error {
    if name.eq_ignore_ascii_case("DISK") {
        let msg = "DISK is where tensors of files are: nothing is computed or stored there; bring \
                   the tensor to a device first, as in .to(\"CPU\")";
        return Error::Device(msg.into());
    }
    let known: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
    Error::Device(format!(
        "there is no device {name:?}; known are {}, as in DEV=CPU or Device::get(\"cpu\")",
        known.join(", ")
    ))
}

/// A name taken apart.
struct Parts {
    kind: &'static DeviceKind,
    renderer: Option<(&'static str, Open)>,
    arch: Option<String>,
    index: usize,
}

impl Parts {
    fn of(name: &str) -> Result<Parts> {
        let wrong = |why: String| Error::Device(format!("{name:?}: {why}"));
        let mut parts: Vec<&str> = name.trim().split(':').collect();
        let kind = parts.remove(0);
        let kind = KINDS
            .iter()
            .find(|k| k.name.eq_ignore_ascii_case(kind))
            .ok_or_else(|| unknown(name))?;
        let mut found = Parts { kind, renderer: None, arch: None, index: 0 };
        let named = || kind.renderers.iter().filter(|r| !r.0.is_empty());
        // A number comes last; what is before it is a renderer, an architecture, or one after the
        // other.
        if let Some(index) = parts.last().and_then(|p| p.parse().ok()) {
            found.index = index;
            parts.pop();
        }
        // The place of the renderer may be empty where an architecture follows: `CUDA::sm_80`.
        if parts.len() == 2 && parts[0].is_empty() {
            parts.remove(0);
        }
        if let Some(renderer) =
            parts.first().and_then(|part| named().find(|r| r.0.eq_ignore_ascii_case(part)))
        {
            found.renderer = Some(*renderer);
            parts.remove(0);
        }
        if let Some(part) = parts.first() {
            let arch = part.to_ascii_lowercase();
            (kind.is_arch)(&arch).map_err(|archs| {
                let has: Vec<&str> = named().map(|r| r.0).collect();
                let has = if has.is_empty() { "none".to_string() } else { has.join(", ") };
                let what = if found.renderer.is_none() {
                    format!("no renderer {part:?}; it has {has}, and")
                } else {
                    format!("no ARCH {part:?};")
                };
                wrong(format!("{} has {what} {archs}", kind.name))
            })?;
            found.arch = Some(arch);
            parts.remove(0);
        }
        match parts.first() {
            Some(rest) => Err(wrong(format!(
                "{rest:?} is one part too many; a name is DEVICE[:RENDERER][:ARCH][:NUMBER], as \
                 in CPU:LLVM:x86-64-v3 or CUDA:1"
            ))),
            None => Ok(found),
        }
    }
}

/// What `DEV` says of a kind.
fn wanted(kind: &DeviceKind) -> Option<Parts> {
    let dev = env::config().ok()?.device.as_ref()?;
    Parts::of(dev).ok().filter(|w| w.kind.name == kind.name)
}

/// The architecture of a kind where its name has none: what `DEV` names, or none.
fn default_arch(kind: &DeviceKind) -> Option<String> {
    wanted(kind)?.arch
}

/// The renderer of a kind where its name has none: what `DEV` names, or the first that works.
fn default_renderer(kind: &'static DeviceKind) -> Result<(&'static str, Open)> {
    env::config()?;
    if let Some(renderer) = wanted(kind).and_then(|w| w.renderer) {
        return Ok(renderer);
    }
    if let [one] = kind.renderers {
        return Ok(*one);
    }
    let mut missing = Vec::new();
    for (renderer, opener) in kind.renderers {
        match opener(0, None) {
            Ok(_) => return Ok((*renderer, *opener)),
            // A library that the user names is not exchanged for another compiler behind his back.
            Err(why) if *renderer == "LLVM" && super::host::llvm::is_named() => return Err(why),
            Err(why) => missing.push(format!("{}:{renderer}: {why}", kind.name)),
        }
    }
    Err(Error::Device(missing.join("\n")))
}

/// `KIND`, with `:RENDERER` and `:ARCH` where they are not the kind's default and `:n` for n > 0.
/// So a device has one name.
pub fn canonical(name: &str) -> Result<DeviceName> {
    let parts = Parts::of(name)?;
    let mut text = parts.kind.name.to_string();
    if let Some((renderer, _)) = parts.renderer
        && !default_renderer(parts.kind).is_ok_and(|r| r.0 == renderer)
    {
        text += &format!(":{renderer}");
    }
    // What the device has by itself is what `native` means.
    let native = |arch: Option<String>| arch.unwrap_or_else(|| arch::NATIVE.to_string());
    if let Some(arch) = parts.arch.filter(|a| *a != native(default_arch(parts.kind))) {
        text += &format!(":{arch}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_name() {
        let name = |n: &str| canonical(n).unwrap().to_string();
        assert_eq!(
            [name("cuda:1"), name(" Cuda:0 "), name("CUDA:native:1"), name("cuda::sm_80:2")],
            ["CUDA:1", "CUDA", "CUDA:1", "CUDA:sm_80:2"]
        );
        assert_eq!([name("interp"), name("Null:0"), name("cl:3")], ["INTERP", "NULL", "CL:3"]);
        assert_eq!(language(&DeviceName::new("CUDA:sm_80:2")).as_str(), "CUDA:sm_80");
        // What `DEV` names is not written, so the rest is for a process without it.
        if env::config().unwrap().device.is_none() {
            assert_eq!([name("cpu:native"), name("CPU::native:2")], ["CPU", "CPU:2"]);
            if cfg!(target_arch = "x86_64") {
                assert_eq!(
                    [name("cpu:X86-64-V2"), name("cpu::x86-64-v2:1")],
                    ["CPU:x86-64-v2", "CPU:x86-64-v2:1"]
                );
            }
        }
    }
}
