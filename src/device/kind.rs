//! The table of device kinds, and device names: `KIND[:RENDERER][:ARCH][:NUMBER]`.
//!
//! **Invariant:** a device has one canonical name, and everything that depends on the kind of a
//! device is a column of [`KINDS`].

use super::backend::Backend;
use super::host::arch;
use super::host::cpu::Cpu;
use super::host::platform;
use super::host::x86::X86;
use super::{disk, host, interp, null};
use crate::env;
use crate::error::{Error, Result};
use crate::ir::DeviceName;
use std::sync::Arc;

/// Opens the device with a number, for an architecture, or for its own if none is given.
type Open = fn(usize, Option<&str>) -> Result<Arc<dyn Backend>>;
/// Checks the name of an architecture. `Err` lists the valid ones.
type CheckArch = fn(&str) -> std::result::Result<(), String>;

/// The location of the buffers of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemorySpace {
    /// Host memory, which all devices of such kinds share.
    Host,
    /// Memory of the device, behind a driver.
    Device,
    /// No memory: the device runs no kernels.
    Null,
    /// Files, which are read and never written.
    File,
}

/// A renderer with its compiler, for a kind of device.
pub(crate) struct RendererKind {
    /// Its name; empty if the kind has one renderer only.
    pub name: &'static str,
    /// Opens a device that uses it.
    pub open: Open,
    /// True if the environment requests this one, so that it is the default and no other replaces
    /// it if it fails.
    is_requested: fn() -> bool,
}

/// A kind of device.
pub(crate) struct DeviceKind {
    /// Its name, the first part of device names.
    pub name: &'static str,
    /// Its renderers, by descending priority; none if it has no kernels.
    pub renderers: &'static [RendererKind],
    /// The location of its buffers.
    pub memory: MemorySpace,
    /// True if compilation takes so long that tests run a part of their cases: PoCL takes 0.1 s per
    /// kernel, lavapipe 0.02 s.
    #[cfg_attr(not(feature = "testing"), expect(dead_code))]
    pub compiles_slowly: bool,
    /// True if its kernels are interpreted instead of compiled.
    #[cfg_attr(not(feature = "testing"), expect(dead_code))]
    pub is_interpreter: bool,
    /// Cargo feature that its code is a part of.
    #[cfg_attr(not(feature = "testing"), expect(dead_code))]
    pub feature: Option<&'static str>,
    check_arch: CheckArch,
}

impl DeviceKind {
    /// Returns a kind without optional properties.
    const fn new(
        name: &'static str,
        renderers: &'static [RendererKind],
        memory: MemorySpace,
    ) -> DeviceKind {
        DeviceKind {
            name,
            renderers,
            memory,
            compiles_slowly: false,
            is_interpreter: false,
            feature: None,
            check_arch: no_arch,
        }
    }
}

const fn renderer(name: &'static str, open: Open) -> RendererKind {
    RendererKind { name, open, is_requested: || false }
}

/// The kinds of device, by descending priority.
pub(crate) const KINDS: &[DeviceKind] = &[
    DeviceKind {
        check_arch: super::cuda::is_arch,
        ..DeviceKind::new(
            "CUDA",
            &[renderer("", |n, arch| Ok(Arc::new(super::cuda::CudaDevice::open(n, arch)?)))],
            MemorySpace::Device,
        )
    },
    DeviceKind::new("METAL", &[renderer("", |n, _| metal(n))], MemorySpace::Device),
    DeviceKind {
        check_arch: arch::check_name,
        ..DeviceKind::new(
            "CPU",
            &[
                renderer("X86", |_, arch| Ok(Arc::new(X86::open(arch)?))),
                RendererKind {
                    name: "LLVM",
                    open: |_, arch| Ok(Arc::new(Cpu::llvm(arch)?)),
                    is_requested: super::host::llvm::is_named,
                },
                renderer("CLANG", |_, arch| Ok(Arc::new(Cpu::clang(arch)?))),
            ],
            MemorySpace::Host,
        )
    },
    DeviceKind {
        compiles_slowly: true,
        ..DeviceKind::new(
            "CL",
            &[renderer("", |n, _| Ok(Arc::new(super::cl::Cl::open(n)?)))],
            MemorySpace::Device,
        )
    },
    DeviceKind {
        compiles_slowly: true,
        feature: Some("webgpu"),
        ..DeviceKind::new("WEBGPU", &[renderer("", |n, _| webgpu(n))], MemorySpace::Device)
    },
    DeviceKind {
        is_interpreter: true,
        ..DeviceKind::new(
            "INTERP",
            &[renderer("", |_, _| Ok(Arc::new(interp::device::InterpDevice::new())))],
            MemorySpace::Host,
        )
    },
    DeviceKind::new(
        "NULL",
        &[
            renderer("", |_, _| Ok(null::Null::c())),
            renderer("LLVM", |_, _| Ok(null::Null::llvm())),
            renderer("X86", |_, _| Ok(Arc::new(null::NullX86::new()))),
            renderer("CUDA", |_, _| Ok(null::Null::cuda())),
            renderer("OPENCL", |_, _| Ok(null::Null::opencl())),
            renderer("METAL", |_, _| Ok(null::Null::metal())),
            renderer("WGSL", |_, _| Ok(null::Null::wgsl())),
        ],
        MemorySpace::Null,
    ),
    DeviceKind::new(disk::NAME, &[], MemorySpace::File),
];

/// Rejects every architecture: the compiler makes code for the device that it has.
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
/// Fails: `wgpu` is larger than all other dependencies together, so it is a feature.
#[cfg(not(feature = "webgpu"))]
fn webgpu(_: usize) -> Result<Arc<dyn Backend>> {
    let how = "build it with `--features webgpu`, as in `cargo run --release --features webgpu \
               --bin pico -- devices`";
    Err(Error::Device(format!("this program was built without WebGPU; {how}")))
}

/// Returns the kind that the first part of a device name names; `None` for unknown names.
pub(crate) fn kind_of(name: &str) -> Option<&'static DeviceKind> {
    let first = name.split(':').next().unwrap_or_default().trim();
    KINDS.iter().find(|k| k.name.eq_ignore_ascii_case(first))
}

/// Returns the memory space of a device; `None` for unknown names.
pub(crate) fn memory_space(name: &DeviceName) -> Option<MemorySpace> {
    Some(kind_of(name.as_str())?.memory)
}

/// Returns the name without a number: devices of one such name take the same source.
pub(crate) fn language(name: &DeviceName) -> DeviceName {
    match name.as_str().rsplit_once(':') {
        Some((kind, number)) if number.parse::<usize>().is_ok() => DeviceName::new(kind),
        _ => name.clone(),
    }
}

/// Returns true if kernels of the device accept host memory. `NULL` accesses none.
pub(crate) fn accepts_host_memory(name: &DeviceName) -> bool {
    matches!(memory_space(name), Some(MemorySpace::Host | MemorySpace::Null))
}

/// Returns true if the device runs nothing and has no memory.
pub(crate) fn is_null(name: &DeviceName) -> bool {
    memory_space(name) == Some(MemorySpace::Null)
}

/// Returns the kind that a name begins with, if it runs kernels.
fn kind_with_kernels(name: &str) -> Result<&'static DeviceKind> {
    match kind_of(name) {
        Some(kind) if !kind.renderers.is_empty() => Ok(kind),
        Some(kind) => Err(Error::Device(format!(
            "{} holds tensors of files: nothing is computed or stored there; copy the tensor to a \
             device first, as in .to(\"CPU\")",
            kind.name
        ))),
        None => {
            let with_kernels = KINDS.iter().filter(|k| !k.renderers.is_empty());
            let known: Vec<&str> = with_kernels.map(|k| k.name).collect();
            Err(Error::Device(format!(
                "unknown device {name:?}; expected {}, as in DEV=CPU or Device::get(\"cpu\")",
                known.join(", ")
            )))
        }
    }
}

/// The parts of a device name.
pub(crate) struct NameParts {
    pub kind: &'static DeviceKind,
    pub renderer: Option<&'static RendererKind>,
    pub arch: Option<String>,
    pub index: usize,
}

impl NameParts {
    pub fn parse(name: &str) -> Result<NameParts> {
        let wrong = |why: String| Error::Device(format!("{name:?}: {why}"));
        let mut parts: Vec<&str> = name.trim().split(':').collect();
        let kind = kind_with_kernels(name)?;
        parts.remove(0);
        let mut found = NameParts { kind, renderer: None, arch: None, index: 0 };
        let named = || kind.renderers.iter().filter(|r| !r.name.is_empty());
        // A number comes last; before it come a renderer, an architecture, or both in this order.
        if let Some(index) = parts.last().and_then(|p| p.parse().ok()) {
            found.index = index;
            parts.pop();
        }
        // The renderer may be empty if an architecture follows: `CUDA::sm_80`.
        if parts.len() == 2 && parts[0].is_empty() {
            parts.remove(0);
        }
        if let Some(renderer) =
            parts.first().and_then(|part| named().find(|r| r.name.eq_ignore_ascii_case(part)))
        {
            found.renderer = Some(renderer);
            parts.remove(0);
        }
        if let Some(part) = parts.first() {
            let arch = part.to_ascii_lowercase();
            (kind.check_arch)(&arch).map_err(|archs| {
                let has: Vec<&str> = named().map(|r| r.name).collect();
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
                "unexpected part {rest:?}; a name is DEVICE[:RENDERER][:ARCH][:NUMBER], as \
                 in CPU:LLVM:x86-64-v3 or CUDA:1"
            ))),
            None => Ok(found),
        }
    }
}

/// Returns the parts of `DEV`, if it names a device of this kind.
fn requested(kind: &DeviceKind) -> Option<NameParts> {
    let dev = env::config().ok()?.device.as_ref()?;
    NameParts::parse(dev).ok().filter(|w| w.kind.name == kind.name)
}

/// Returns the architecture of a kind if a name has none: that of `DEV`, or none.
pub(crate) fn default_arch(kind: &DeviceKind) -> Option<String> {
    requested(kind)?.arch
}

/// Returns the renderer of a kind if a name has none: that of `DEV`, one that the environment
/// requests, or the first that works.
pub(crate) fn default_renderer(kind: &'static DeviceKind) -> Result<&'static RendererKind> {
    env::config()?;
    if let Some(renderer) = requested(kind).and_then(|w| w.renderer) {
        return Ok(renderer);
    }
    if let [one] = kind.renderers {
        return Ok(one);
    }
    if let Some(renderer) = kind.renderers.iter().find(|r| (r.is_requested)()) {
        return (renderer.open)(0, None).map(|_| renderer);
    }
    let mut missing = Vec::new();
    for renderer in kind.renderers {
        match (renderer.open)(0, None) {
            Ok(_) => return Ok(renderer),
            Err(why) => missing.push(format!("{}:{}: {why}", kind.name, renderer.name)),
        }
    }
    Err(Error::Device(missing.join("\n")))
}

/// Returns the canonical name: `KIND`, with `:RENDERER` and `:ARCH` if they differ from the kind's
/// default, and `:NUMBER` if it is above 0.
pub fn canonical(name: &str) -> Result<DeviceName> {
    let parts = NameParts::parse(name)?;
    let mut text = parts.kind.name.to_string();
    if let Some(renderer) = parts.renderer
        && !default_renderer(parts.kind).is_ok_and(|r| r.name == renderer.name)
    {
        text += &format!(":{}", renderer.name);
    }
    // Without an architecture, code is generated for the device itself: `native`.
    let native = |arch: Option<String>| arch.unwrap_or_else(|| arch::NATIVE.to_string());
    if let Some(arch) = parts.arch.filter(|a| *a != native(default_arch(parts.kind))) {
        text += &format!(":{arch}");
    }
    if parts.index > 0 {
        text += &format!(":{}", parts.index);
    }
    Ok(DeviceName::new(&text))
}

/// Returns the default device without `DEV`: the CPU, or the interpreter with the reason in one
/// sentence. `platform` is an error if the CPU cannot run generated machine code, `compiler` if no
/// compiler was found. If the environment requests a compiler that fails, the CPU stays the
/// default, so that the user sees the error.
fn default_kind(
    platform: std::result::Result<(), String>,
    compiler: impl FnOnce() -> Result<()>,
    requested: bool,
) -> (&'static str, Option<String>) {
    let slow = |why: &str| {
        let why = why.lines().next().unwrap_or_default();
        ("INTERP", Some(format!("the default device is INTERP, which is slow: {why}")))
    };
    match platform {
        Err(why) => slow(&why),
        Ok(()) => match compiler() {
            Err(_) if !requested => {
                slow("no compiler for the CPU was found, and `pico devices` says how to get one")
            }
            _ => ("CPU", None),
        },
    }
}

/// Returns the default device of this process without `DEV`, and why it is not the CPU.
pub(crate) fn default_device() -> (&'static str, Option<String>) {
    let cpu = kind_of("CPU").expect("the CPU is a kind of device");
    let requested = cpu.renderers.iter().any(|r| (r.is_requested)());
    let compiler = || default_renderer(cpu).map(drop);
    let platform =
        platform::check_cpu(std::env::consts::ARCH).and_then(|_| host::code::check_execution());
    default_kind(platform, compiler, requested)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::host::platform::check_cpu;

    #[test]
    fn the_default_device_works_or_says_why() {
        let none = || Err(Error::Device("no library\nno compiler".into()));
        let cpu = ("CPU", None);
        assert_eq!(default_kind(check_cpu("x86_64"), || Ok(()), false), cpu);
        assert_eq!(default_kind(check_cpu("x86_64"), none, true), cpu);
        for (arch, requested, reason) in [
            ("x86_64", false, "pico devices"),
            ("riscv64", false, "riscv64"),
            ("riscv64", true, "riscv64"),
        ] {
            let (name, why) = default_kind(check_cpu(arch), none, requested);
            let why = why.unwrap();
            assert!(name == "INTERP" && why.contains(reason) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn kinds_are_found_by_the_first_part_of_a_name() {
        let space = |n: &str| memory_space(&DeviceName::new(n));
        assert_eq!(space("CPU:LLVM:1"), Some(MemorySpace::Host));
        assert_eq!(space("NULL:CUDA"), Some(MemorySpace::Null));
        assert_eq!(space("CUDA:1"), Some(MemorySpace::Device));
        assert_eq!([space("DISK"), space("CPUX")], [Some(MemorySpace::File), None]);
    }

    #[test]
    fn a_device_has_one_name() {
        let name = |n: &str| canonical(n).unwrap().to_string();
        assert_eq!(
            [name("cuda:1"), name(" Cuda:0 "), name("CUDA:native:1"), name("cuda::sm_80:2")],
            ["CUDA:1", "CUDA", "CUDA:1", "CUDA:sm_80:2"]
        );
        assert_eq!([name("interp"), name("Null:0"), name("cl:3")], ["INTERP", "NULL", "CL:3"]);
        assert_eq!(language(&DeviceName::new("CUDA:sm_80:2")).as_str(), "CUDA:sm_80");
        // `DEV` changes the default renderer, so that the rest is for a process without it.
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
