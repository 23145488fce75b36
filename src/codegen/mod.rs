//! Machine code: linear programs to instructions of a CPU. In: the list of UOps of a lowered
//! kernel, and an instruction set. Out: [`Assembled`], bytes that can be mapped and called.
//!
//! | file | contents |
//! |---|---|
//! | `isa` | levels and features |
//! | `address` | indices as sums of terms |
//! | `mir` | the machine program: blocks, virtual registers |
//! | `dead_code` | dead code elimination |
//! | `schedule_instructions` | instruction scheduling and register pressure |
//! | `rematerialize` | values that are loaded again |
//! | `verify` | the machine verifier |
//! | `allocate` | register allocation |
//! | `x86` | instructions, selection, encoding |
//! | `math` | functions that kernels call |
//!
//! This module knows instruction sets and no device: nothing here needs the CPU that it generates
//! code for.
//!
//! **Invariant:** the code depends on the program and the instruction set alone, except for the
//! addresses of the functions that it calls.

mod address;
mod allocate;
mod dead_code;
mod isa;
mod math;
mod mir;
mod rematerialize;
mod schedule_instructions;
mod verify;
mod x86;

pub use isa::{Isa, Level};
#[cfg(feature = "testing")]
pub use x86::listing;

use crate::error::{Error, Result};
use crate::ir::UOp;
use crate::target::CoreRates;

/// The machine code of a kernel: a function of the addresses of its buffers, the number of the
/// chunk and scratch memory, by the calling convention of Unix on x86-64.
#[derive(Debug)]
pub struct Assembled {
    /// The code, which begins with its entry.
    pub code: Vec<u8>,
    /// The constants, aligned to 64 bytes.
    pub constants: Vec<u8>,
    /// References to constants: the position of a displacement of 32 bits, the end of its
    /// instruction, and the offset of the constant.
    references: Vec<(usize, usize, usize)>,
    /// The instructions with the nodes that they come from, if requested.
    pub listing: Option<String>,
}

impl Assembled {
    /// Returns the code for constants at a distance from its start.
    pub fn code_with_constants_at(&self, at: usize) -> Vec<u8> {
        let mut code = self.code.clone();
        for (place, end, offset) in &self.references {
            let distance = (at + offset) as i64 - *end as i64;
            code[*place..place + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        code
    }
}

/// Assembles a kernel. `verify` checks the machine program and the allocation of registers; `list`
/// requests a listing, with cycles at these rates.
pub fn assemble(
    name: &str,
    uops: &[UOp],
    isa: Isa,
    verify: bool,
    list: Option<&CoreRates>,
) -> Result<Assembled> {
    x86::assemble(uops, isa, verify, list)
        .map_err(|why| Error::compile(format!("kernel {name}: X86: {why}")))
}

/// Returns the instructions of machine code as text.
pub fn disassemble(code: &[u8]) -> String {
    x86::disassemble(code)
}
