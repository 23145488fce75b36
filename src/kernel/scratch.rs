//! Scratch memory of the threads of a CPU. On a target without a grid, the arrays of `DefineShared`
//! follow each other in one block of memory, which each thread has for itself and which a kernel
//! gets a pointer to.

use crate::ir::{Op, UOp};

/// The alignment of the block, and of each array in it: a cache line, and the widest vector.
pub const SCRATCH_ALIGN: usize = 64;

/// The arrays that were placed so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScratchLayout {
    bytes: usize,
}

impl ScratchLayout {
    /// Returns the offset in bytes of the next array. The arrays of a program are placed in the
    /// order of its list.
    pub fn place(&mut self, array: &UOp) -> usize {
        let (at, len) = (self.bytes, array.expect_define_shared().len);
        let bytes = len.saturating_mul(array.dtype().itemsize());
        self.bytes = at.saturating_add(bytes.div_ceil(SCRATCH_ALIGN).saturating_mul(SCRATCH_ALIGN));
        at
    }

    /// Returns the bytes of all arrays of a linear program.
    pub fn bytes_of(program: &[UOp]) -> usize {
        let mut layout = ScratchLayout::default();
        for array in program.iter().filter(|u| u.op() == Op::DefineShared) {
            layout.place(array);
        }
        layout.bytes
    }
}
