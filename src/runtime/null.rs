//! The device that runs nothing: kernels are lowered and rendered as for the CPU, and then dropped. For measuring the compiler.

use super::buffer::{Memory, Place};
use super::device::{Backend, Executable};
use crate::error::Result;
use crate::lower::{Launch, Program};
use crate::render::{Clang, Renderer};
use crate::target::Target;
use std::sync::Arc;
use std::time::Duration;

/// The device.
pub struct Null(Clang);

impl Null {
    /// It is always there. The target does not depend on the machine, so that figures can be compared.
    pub fn new() -> Null {
        Null(Clang::new(Target::c(8, 64)))
    }
}

impl Default for Null {
    fn default() -> Null {
        Null::new()
    }
}

impl Backend for Null {
    fn target(&self) -> &Target {
        self.0.target()
    }
    fn describe(&self) -> String {
        "lowers and renders C, runs nothing".into()
    }
    fn allocate(&self, _bytes: usize) -> Result<Memory> {
        Ok(Memory::Null)
    }
    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Rendered(self.0.render(&program.name, &program.uops)?)))
    }
}

struct Rendered(String);

impl Executable for Rendered {
    fn run(&self, _args: &[Place], _launch: &Launch) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
    fn source(&self) -> Option<&str> {
        Some(&self.0)
    }
}
