//! The interpreter as a device.

use super::{Interp, Options};
use crate::device::backend::{Backend, Executable};
use crate::device::buffer::{Memory, MemoryRef};
use crate::device::memory::HostBuffer;
use crate::device::module::ModuleCompiler;
use crate::device::{interp, limits};
use crate::env;
use crate::error::{Error, Result};
use crate::lower::{Launch, Program};
use crate::target::Target;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The device.
pub struct InterpDevice(Target);

impl InterpDevice {
    /// Creates the device, which is always available.
    pub fn new() -> InterpDevice {
        // Invalid settings are an error when something is compiled.
        let (any, rounding) =
            env::config().map_or((true, false), |c| (c.tensor_cores, c.allow_tf32));
        InterpDevice(Target::interp().with_tensor_cores(any, rounding))
    }
}

impl Backend for InterpDevice {
    fn target(&self) -> &Target {
        &self.0
    }
    fn describe(&self) -> String {
        "interprets linear programs and checks every access; slow".into()
    }
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        HostBuffer::new(bytes).map(Memory::Host)
    }
    fn compiler(&self) -> Option<&dyn ModuleCompiler> {
        None
    }
    fn load_program(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(InterpKernel(Interp::compile(&program.uops)?)))
    }
}

struct InterpKernel(Interp);

impl Executable for InterpKernel {
    unsafe fn run(&self, args: &[MemoryRef], launch: &Launch) -> Result<Duration> {
        let start = Instant::now();
        let memory = args.iter().map(|p| match p.memory {
            // SAFETY: the executor runs one kernel at a time on a buffer, and waits for it.
            Memory::Host(h) => Ok(unsafe {
                interp::Memory::from_raw(h.ptr().wrapping_add(p.offset), h.len() - p.offset)
            }),
            Memory::Remote(_) | Memory::Disk(_) | Memory::Null => {
                Err(Error::Device("the interpreter was given memory of another device".into()))
            }
        });
        let memory = memory.collect::<Result<Vec<_>>>()?;
        let launch =
            interp::InterpLaunch { grid: launch.grid, local: launch.local, chunks: launch.chunks };
        // The history for race detection takes about 48 bytes per element.
        let bytes = memory.iter().map(|m| m.len()).fold(0usize, usize::saturating_add);
        let races = cfg!(debug_assertions) && limits::check(bytes.saturating_mul(48)).is_ok();
        self.0.run_with(&memory, launch, &Options { races, vars: &[] })?;
        Ok(start.elapsed())
    }
}
