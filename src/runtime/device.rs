//! The registry of devices: names, what is there, what is not and why. A device is opened when it is first asked for.

use super::buffer::{Memory, Place};
use super::{cc, interp_device, null};
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
    /// Several programs made ready at once, which a device may do in less time than one after the other.
    fn compile_many(&self, programs: &[&Program]) -> Result<Vec<Arc<dyn Executable>>> {
        programs.iter().map(|p| self.compile(p)).collect()
    }
    /// Waits until everything that was asked for is done.
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// A compiled kernel.
pub trait Executable: Send + Sync {
    /// Runs it on memory, slot by slot, and says how long it took.
    fn run(&self, args: &[Place], launch: &Launch) -> Result<Duration>;
    /// The source, where there is one.
    fn source(&self) -> Option<&str> {
        None
    }
    /// The machine code, where there is some.
    fn machine_code(&self) -> Option<&[u8]> {
        None
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
/// The kinds of device, best first, with what opens one.
const KINDS: [(&str, &[&str], Open); 4] = [
    ("CUDA", &[], |n| Ok(Arc::new(super::cuda::CudaDevice::open(n)?))),
    ("CPU", &["CLANG"], |_| Ok(Arc::new(super::cpu::Cpu::open()?))),
    ("INTERP", &[], |_| Ok(Arc::new(interp_device::InterpDevice::new()))),
    ("NULL", &[], |_| Ok(Arc::new(null::Null::new()))),
];

static OPEN: LazyLock<Mutex<FxHashMap<DeviceName, Device>>> = LazyLock::new(Mutex::default);

impl Device {
    /// The device that a user means by `cpu`, `CPU:CLANG`, `cpu:1`, `interp` …: opened, under its canonical name.
    ///
    /// ```
    /// use picograd::Device;
    /// assert_eq!(Device::get("cpu:clang").unwrap().name().as_str(), "CPU");
    /// assert!(Device::get("abacus").unwrap_err().to_string().contains("CUDA, CPU, INTERP, NULL"));
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
        canonical(name.as_str())?;
        let mut parts = name.as_str().split(':');
        let kind = parts.next().unwrap_or_default();
        let number = parts.find_map(|p| p.parse().ok()).unwrap_or(0);
        let (_, _, opener) = KINDS.iter().find(|k| k.0 == kind).ok_or_else(|| unknown(name.as_str()))?;
        let device = Device { name: name.clone(), backend: opener(number)? };
        if config.debug >= 1 {
            eprintln!("opened {name}: {}", device.backend.describe());
        }
        open.insert(name.clone(), device.clone());
        Ok(device)
    }

    /// The device that tensors are made on when none is named: `DEV`, or the best that works. A `DEV` that does not exist is kept as it was
    /// written; the first thing that is computed on it gives the error.
    pub fn default_name() -> DeviceName {
        static NAME: std::sync::OnceLock<DeviceName> = std::sync::OnceLock::new();
        let wanted = env::config().ok().and_then(|c| c.device.clone());
        let choose = || match wanted {
            Some(dev) => canonical(&dev).unwrap_or_else(|_| DeviceName::new(&dev)),
            None if Device::get("CUDA").is_ok() => DeviceName::new("CUDA"),
            None if cc::CCompiler::find().is_ok() => DeviceName::new("CPU"),
            None => DeviceName::new("INTERP"),
        };
        NAME.get_or_init(choose).clone()
    }

    /// Its canonical name.
    pub fn name(&self) -> &DeviceName {
        &self.name
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
    pub(crate) fn compile_many(&self, programs: &[&Program]) -> Result<Vec<Arc<dyn Executable>>> {
        self.backend.compile_many(programs)
    }

    /// Every kind of device: its name, and what it is or why it is not there.
    pub fn list() -> Vec<(String, Result<String>)> {
        KINDS.iter().map(|(name, _, _)| (name.to_string(), Device::get(name).map(|d| d.describe()))).collect()
    }
}

fn unknown(name: &str) -> Error {
    if name.eq_ignore_ascii_case("DISK") {
        let msg = "DISK is where tensors of files are: nothing is computed or stored there; bring the tensor to a device first, as in .to(\"CPU\")";
        return Error::Device(msg.into());
    }
    let known: Vec<&str> = KINDS.iter().map(|k| k.0).collect();
    Error::Device(format!("there is no device {name:?}; known are {}, as in DEV=CPU or Device::get(\"cpu\")", known.join(", ")))
}

/// `KIND`, or `KIND:n` for n > 0. A renderer in the name is checked and, being the kind's default, left out.
pub fn canonical(name: &str) -> Result<DeviceName> {
    let upper = name.trim().to_ascii_uppercase();
    let mut parts = upper.split(':');
    let kind = parts.next().unwrap_or_default();
    let (kind, renderers, _) = KINDS.iter().find(|k| k.0 == kind).ok_or_else(|| unknown(name))?;
    let mut index = 0usize;
    for part in parts {
        if let Ok(n) = part.parse::<usize>() {
            index = n;
        } else if !renderers.contains(&part) {
            let has = if renderers.is_empty() { "none".to_string() } else { renderers.join(", ") };
            return Err(Error::Device(format!("{name:?}: {kind} has no renderer {part:?}; it has {has}")));
        }
    }
    Ok(DeviceName::new(&if index == 0 { kind.to_string() } else { format!("{kind}:{index}") }))
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.describe())
    }
}
