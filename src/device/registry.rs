//! The registry of opened devices. A device is opened when it is first used.

use super::backend::{Backend, SystemMemory, lock};
use super::kind::{self, NameParts, default_arch, default_renderer};
use super::profile;
use super::usage::{DeviceMemory, Usage};
use crate::env;
use crate::error::Result;
use crate::ir::DeviceName;
use crate::target::Target;
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, Mutex};

pub use super::kind::canonical;
pub(crate) use super::kind::{accepts_host_memory, is_null, language};

/// An opened device.
#[derive(Clone)]
pub struct Device {
    name: DeviceName,
    backend: Arc<dyn Backend>,
    usage: &'static Usage,
}

static OPEN: LazyLock<Mutex<FxHashMap<DeviceName, Device>>> = LazyLock::new(Mutex::default);

impl Device {
    /// Opens the device of a name such as `cpu`, `CPU:CLANG`, `cpu:1`, `cuda:1` or
    /// `cpu:llvm:x86-64-v3`. Case is ignored; renderer, architecture and number are optional. `cpu`
    /// alone has the renderer and the architecture that `DEV` names, or the best that works.
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

    /// Opens the device of a canonical name.
    pub fn named(name: &DeviceName) -> Result<Device> {
        let mut open = lock(&OPEN);
        if let Some(d) = open.get(name) {
            return Ok(d.clone());
        }
        let config = env::config()?;
        // A name that comes from `DEV` unchanged has not been checked yet.
        let parts = NameParts::parse(name.as_str())?;
        let mut span = profile::span(|| format!("open {name}").into());
        let renderer = parts.renderer.map_or_else(|| default_renderer(parts.kind), Ok)?;
        let arch = parts.arch.or_else(|| default_arch(parts.kind));
        let backend = (renderer.open)(parts.index, arch.as_deref())?;
        let device = Device { name: name.clone(), backend, usage: Usage::of(name) };
        span.note("about", || device.backend.describe().into());
        drop(span);
        if config.debug >= 1 {
            eprintln!("opened {name}: {}", device.backend.describe());
        }
        open.insert(name.clone(), device.clone());
        Ok(device)
    }

    /// Opens the default device of new tensors: `DEV`, or the CPU, or the interpreter if the CPU
    /// cannot run kernels. An error if `DEV` names a device that is not available.
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

    /// Returns the name of the default device of new tensors. If the CPU cannot run kernels, the
    /// reason is printed once on stderr. A `DEV` that does not exist is kept as it is; the first
    /// computation on it returns the error.
    pub fn default_name() -> DeviceName {
        static NAME: std::sync::OnceLock<DeviceName> = std::sync::OnceLock::new();
        let dev = env::config().ok().and_then(|c| c.device.clone());
        let choose = || match dev {
            Some(dev) => canonical(&dev).unwrap_or_else(|_| DeviceName::new(&dev)),
            None => {
                let (name, why) = kind::default_device();
                if let Some(why) = why {
                    eprintln!("picograd: {why}");
                }
                DeviceName::new(name)
            }
        };
        NAME.get_or_init(choose).clone()
    }

    /// Returns the devices that this process has opened, by name.
    ///
    /// ```
    /// use picograd::Device;
    /// let interp = Device::get("interp")?;
    /// assert!(Device::opened().iter().any(|d| d.name() == interp.name()));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn opened() -> Vec<Device> {
        let mut devices: Vec<Device> = lock(&OPEN).values().cloned().collect();
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        devices
    }

    /// Returns the memory of its buffers: live and peak bytes.
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
        let SystemMemory { held, limit } = self.backend.memory();
        DeviceMemory { live, peak, held, limit }
    }

    /// Its canonical name.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }
    /// Returns the device whose compiled code runs here too: all CPUs of a process are the same
    /// machine.
    pub(crate) fn code_device(&self) -> DeviceName {
        if accepts_host_memory(&self.name) { language(&self.name) } else { self.name.clone() }
    }
    /// Returns the target: what its kernels may use.
    pub fn target(&self) -> &Target {
        self.backend.target()
    }
    /// Describes it in one line.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }
    /// Waits until all launches and copies are done, which measurements need. Reading a tensor
    /// waits by itself.
    pub fn synchronize(&self) -> Result<()> {
        self.backend.synchronize()
    }
    /// Returns the bytes of its buffers.
    pub(in crate::device) fn usage(&self) -> &'static Usage {
        self.usage
    }
    /// Returns the backend: allocation, compilation and graph launches.
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns every kind of device with every renderer: its name, and its description or why it is
    /// not available.
    pub fn list() -> Vec<(String, Result<String>)> {
        let name = |kind: &str, renderer: &str| {
            if renderer.is_empty() { kind.to_string() } else { format!("{kind}:{renderer}") }
        };
        let all = kind::KINDS
            .iter()
            .flat_map(|kind| kind.renderers.iter().map(|r| name(kind.name, r.name)));
        all.map(|name| (name.clone(), Device::get(&name).map(|d| d.describe()))).collect()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.describe())
    }
}
