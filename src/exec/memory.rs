//! Memory of the slots that commands name, and views of it.

use crate::device::{Addresses, Buffer, Memory, MemoryRef};
use crate::schedule::SlotRef;
use std::borrow::Cow;

/// Memory of each slot of a plan; `None` for a slot that no command names.
pub(crate) struct SlotMemory(pub(crate) Vec<Option<Buffer>>);

impl SlotMemory {
    /// Returns the memory of a slot.
    pub(crate) fn buffer(&self, slot: usize) -> &Buffer {
        self.0[slot].as_ref().expect("a command names slots that have memory")
    }

    /// Returns the memory of a view, as a kernel takes it.
    pub(super) fn place(&self, view: &SlotRef) -> MemoryRef<'_> {
        let place = self.buffer(view.slot).place();
        MemoryRef { offset: place.offset + view.offset, ..place }
    }

    /// Returns a view as a buffer.
    pub(crate) fn view(&self, view: &SlotRef) -> Cow<'_, Buffer> {
        let whole = self.buffer(view.slot);
        if view.offset == 0 && (view.dtype, view.len) == (whole.dtype(), whole.size()) {
            return Cow::Borrowed(whole);
        }
        Cow::Owned(whole.bytes_from(view.offset, view.dtype, view.len))
    }

    /// Returns the start of a buffer in host memory; null if it is in other memory.
    pub(super) fn host_start(buffer: &Buffer) -> *mut u8 {
        match buffer.place() {
            MemoryRef { memory: Memory::Host(h), offset } => h.ptr().wrapping_add(offset),
            _ => std::ptr::null_mut(),
        }
    }

    /// Returns the start of each slot in host memory; null for a slot in other memory.
    pub(super) fn host_starts(&self) -> Addresses {
        let start_of =
            |b: &Option<Buffer>| b.as_ref().map_or(std::ptr::null_mut(), Self::host_start);
        Addresses(self.0.iter().map(start_of).collect())
    }
}
