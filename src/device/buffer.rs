//! Buffers: memory on a device with a dtype and a length. The graph holds them as [`Storage`]; the
//! last handle frees the memory.

use super::disk::DiskFile;
use super::kind::{MemorySpace, memory_space};
use super::limits::zeroed;
use super::memory::HostBuffer;
use super::registry::Device;
use super::usage::{LiveBytes, Usage};
use super::{disk, limits, profile};
use crate::dtype::{DType, Element, as_bytes};
use crate::error::{Error, Result};
use crate::ir::{Arg, DeviceName, Op, Src, Storage, StorageRef, UOp};
use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockWriteGuard};

/// Memory of a device.
pub enum Memory {
    /// Host memory: of the CPU and the interpreter.
    Host(HostBuffer),
    /// Memory behind a driver, such as that of a GPU.
    Remote(Box<dyn Remote>),
    /// A file, which kernels cannot access.
    Disk(DiskFile),
    /// No memory, for the device that runs no kernels.
    Null,
}

/// Device memory that the host cannot access. Operations on it run after all earlier operations of
/// its device.
pub trait Remote: Any + Send + Sync {
    /// Copies bytes from an offset on to the host, and waits for the copy.
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()>;
    /// Copies bytes of the host to an offset. The caller may change or free them afterwards.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Copies bytes of another memory, from an offset on, to a range of bytes, not through the
    /// host. Returns `false`, and does nothing, if there is no such path.
    fn copy_from(&self, to: Range<usize>, from: &dyn Remote, from_offset: usize) -> Result<bool>;
}

impl dyn Remote {
    /// Downcasts to the memory of a backend.
    pub(in crate::device) fn downcast<M: Remote>(&self) -> Option<&M> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Lock between kernels, which write buffers, and the host, which reads them.
static ACCESS: RwLock<()> = RwLock::new(());

/// Returns the lock that is held while a kernel runs.
pub(crate) fn lock_for_kernel() -> RwLockWriteGuard<'static, ()> {
    ACCESS.write().unwrap_or_else(|e| e.into_inner())
}

/// An allocation, with the state that all buffers in it share.
struct Block {
    id: u64,
    memory: Memory,
    version: AtomicU64,
    /// Counts the memory towards its device until it is freed.
    _taken: LiveBytes,
}

struct Inner {
    id: u64,
    device: DeviceName,
    dtype: DType,
    len: usize,
    block: Arc<Block>,
    /// Byte offset in the block.
    offset: usize,
}

/// A location in device memory: the argument of a kernel.
#[derive(Clone, Copy)]
pub struct MemoryRef<'a> {
    /// The memory.
    pub(crate) memory: &'a Memory,
    /// Byte offset in it.
    pub(crate) offset: usize,
}

impl<'a> MemoryRef<'a> {
    /// Downcasts to the memory of a backend.
    pub(in crate::device) fn remote<M: Remote>(&self) -> Option<&'a M> {
        let Memory::Remote(remote) = self.memory else { return None };
        remote.downcast()
    }
}

/// A reference-counted handle to device memory.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Buffer {
    /// Allocates `len` elements with unspecified values.
    pub fn new(device: &DeviceName, dtype: DType, len: usize) -> Result<Buffer> {
        let bytes = bytes_of(device, dtype, len)?;
        let opened = Device::named(device)?;
        let memory = opened.backend().allocate(bytes)?;
        Ok(Buffer::with(opened.usage(), device, dtype, len, memory))
    }

    /// Allocates memory filled with these bytes, which are whole elements. It does not need a
    /// working device, so that a tensor can be created before its device is opened.
    pub fn from_bytes(device: &DeviceName, dtype: DType, bytes: &[u8]) -> Result<Buffer> {
        let in_host = || HostBuffer::new(bytes.len()).map(Memory::Host);
        let mut memory = match memory_space(device) {
            Some(MemorySpace::Null) => Memory::Null,
            Some(MemorySpace::Host) => in_host()?,
            _ => Device::named(device)
                .map_or_else(|_| in_host(), |d| d.backend().allocate(bytes.len()))?,
        };
        match &mut memory {
            Memory::Host(h) => {
                h.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                if dtype.is_bool() {
                    as_bools(h.as_mut_slice());
                }
            }
            // Kernels assume that every bool is 0 or 1, also where it is part of an index.
            Memory::Remote(r) if dtype.is_bool() && bytes.iter().any(|b| *b > 1) => {
                let mut bools = zeroed(bytes.len())?;
                bools.copy_from_slice(bytes);
                as_bools(&mut bools);
                upload(&**r, device, 0, &bools)?
            }
            Memory::Remote(r) => upload(&**r, device, 0, bytes)?,
            Memory::Disk(_) | Memory::Null => {}
        }
        Ok(Buffer::with(
            Usage::of(device),
            device,
            dtype,
            bytes.len() / dtype.itemsize().max(1),
            memory,
        ))
    }

    /// Allocates `len` elements, filled by a function that receives all of their bytes. Like
    /// [`from_bytes`](Buffer::from_bytes), it does not need a working device.
    pub(crate) fn filled(
        device: &DeviceName,
        dtype: DType,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Buffer> {
        let bytes = bytes_of(device, dtype, len)?;
        if memory_space(device) != Some(MemorySpace::Host) {
            let mut all = zeroed(bytes)?;
            fill(&mut all)?;
            return Buffer::from_bytes(device, dtype, &all);
        }
        let mut memory = HostBuffer::new(bytes)?;
        fill(memory.as_mut_slice())?;
        if dtype.is_bool() {
            as_bools(memory.as_mut_slice());
        }
        Ok(Buffer::with(Usage::of(device), device, dtype, len, Memory::Host(memory)))
    }

    /// Wraps elements of the caller: without a copy on a device that computes in host memory, as a
    /// copy elsewhere.
    pub fn borrowed<T: Element>(
        device: &DeviceName,
        elements: impl AsRef<[T]> + Send + Sync + 'static,
    ) -> Result<Buffer> {
        if memory_space(device) != Some(MemorySpace::Host) {
            return Buffer::from_bytes(device, T::DTYPE, as_bytes(elements.as_ref()));
        }
        let memory = HostBuffer::borrowed(elements);
        Ok(Buffer::with(
            Usage::of(device),
            device,
            T::DTYPE,
            memory.len() / T::DTYPE.itemsize(),
            Memory::Host(memory),
        ))
    }

    /// Returns true if kernels may write to it: borrowed memory is read-only.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(&self.0.block.memory, Memory::Host(h) if h.is_borrowed())
    }

    /// Wraps the bytes of a file without reading them; see `disk`.
    pub fn of_file(path: &std::path::Path) -> Result<Buffer> {
        let file = DiskFile::open(path)?;
        let device = disk::device();
        Ok(Buffer::with(Usage::of(&device), &device, DType::U8, file.len(), Memory::Disk(file)))
    }

    fn with(
        usage: &'static Usage,
        device: &DeviceName,
        dtype: DType,
        len: usize,
        memory: Memory,
    ) -> Buffer {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let bytes = match &memory {
            Memory::Host(h) if !h.is_borrowed() => h.len(),
            Memory::Remote(_) => len * dtype.itemsize(),
            Memory::Host(_) | Memory::Disk(_) | Memory::Null => 0,
        };
        let block = Arc::new(Block {
            id,
            memory,
            version: AtomicU64::new(0),
            _taken: LiveBytes::new(usage, bytes),
        });
        Buffer(Arc::new(Inner { id, device: device.clone(), dtype, len, block, offset: 0 }))
    }

    /// Returns the buffer behind a node's storage.
    pub fn of(storage: &StorageRef) -> Buffer {
        storage
            .storage
            .as_any()
            .downcast_ref::<Buffer>()
            .expect("all storage of the graph is made here")
            .clone()
    }

    /// Returns the buffer as a node of the tensor graph.
    pub fn node(&self) -> UOp {
        UOp::new(
            Op::Buffer,
            self.0.dtype,
            Src::new(),
            Arg::Storage(StorageRef::new(Arc::new(self.clone()))),
        )
    }

    /// Records that the content was overwritten in place: nodes that name the old one are stale.
    pub(crate) fn overwritten(&self) {
        self.0.block.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Element dtype.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// Returns the number of elements.
    pub fn size(&self) -> usize {
        self.0.len
    }
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len * self.0.dtype.itemsize()
    }
    /// Returns the location of its first byte.
    pub fn place(&self) -> MemoryRef<'_> {
        MemoryRef { memory: &self.0.block.memory, offset: self.0.offset }
    }
    /// Returns a view of a range of its elements, in the same memory.
    pub fn part(&self, range: Range<usize>) -> Buffer {
        assert!(
            range.start <= range.end && range.end <= self.0.len,
            "{range:?} is not inside {self:?}"
        );
        self.view(self.0.offset + range.start * self.0.dtype.itemsize(), self.0.dtype, range.len())
    }
    /// Returns a view of a file as `len` elements of a dtype, from the byte `at` on, which may be
    /// unaligned because the bytes are copied before use.
    pub fn part_of_file(&self, at: usize, dtype: DType, len: usize) -> Buffer {
        let end = len.checked_mul(dtype.itemsize()).and_then(|bytes| bytes.checked_add(at));
        assert!(
            end.is_some_and(|end| end <= self.bytes()),
            "{len} × {dtype} from byte {at} on are not inside {self:?}"
        );
        assert!(matches!(self.0.block.memory, Memory::Disk(_)), "{self:?} is not a file");
        self.view(self.0.offset + at, dtype, len)
    }
    fn view(&self, offset: usize, dtype: DType, len: usize) -> Buffer {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Buffer(Arc::new(Inner {
            id,
            device: self.0.device.clone(),
            dtype,
            len,
            block: self.0.block.clone(),
            offset,
        }))
    }
    /// Returns a view of `len` elements of a dtype from a byte offset on.
    pub(crate) fn bytes_from(&self, offset: usize, dtype: DType, len: usize) -> Buffer {
        assert!(
            offset + len * dtype.itemsize() <= self.bytes(),
            "{len} × {dtype} from byte {offset} on are not inside {self:?}"
        );
        self.view(self.0.offset + offset, dtype, len)
    }
    /// Returns the same memory under another id, so that a graph distinguishes the two.
    pub(crate) fn renamed(&self) -> Buffer {
        self.view(self.0.offset, self.0.dtype, self.0.len)
    }
    /// Returns the id of its allocation, and its byte range in it.
    pub(crate) fn span(&self) -> (u64, Range<usize>) {
        (self.0.block.id, self.0.offset..self.0.offset + self.bytes())
    }
    /// Returns true if no other buffer shares its memory and this one has at most `handles`
    /// handles.
    pub(crate) fn is_unshared(&self, handles: usize) -> bool {
        Arc::strong_count(&self.0) <= handles && Arc::strong_count(&self.0.block) == 1
    }
    /// Replaces the content. Graphs that contain the buffer read the new one.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), self.bytes(), "the content of {self:?}");
        let _alone = lock_for_kernel();
        match &self.0.block.memory {
            Memory::Host(h) => {
                // SAFETY: the buffer is inside its memory, and the lock excludes all other readers
                // and writers.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        bytes.as_ptr(),
                        h.ptr().add(self.0.offset),
                        bytes.len(),
                    )
                };
                Ok(())
            }
            Memory::Remote(r) => upload(&**r, &self.0.device, self.0.offset, bytes),
            Memory::Disk(_) | Memory::Null => Ok(()),
        }
    }
    /// Returns the device of its memory.
    pub fn device_name(&self) -> &DeviceName {
        &self.0.device
    }

    /// Copies the content to the host.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut span = profile::span(|| "read".into());
        span.note("bytes", || self.bytes().into());
        span.note("device", || self.0.device.as_str().into());
        let _reading = ACCESS.read().unwrap_or_else(|e| e.into_inner());
        match &self.0.block.memory {
            // SAFETY: no kernel runs while the lock is held, and nothing else writes to a buffer
            // that has been handed out.
            Memory::Host(h) => limits::copied(unsafe {
                &h.as_slice()[self.0.offset..self.0.offset + self.bytes()]
            }),
            Memory::Disk(m) => {
                let mut out = zeroed(self.bytes())?;
                m.read(self.0.offset, self.0.dtype, &mut out)?;
                Ok(out)
            }
            Memory::Remote(r) => {
                let mut out = zeroed(self.bytes())?;
                r.read(self.0.offset, &mut out)?;
                Ok(out)
            }
            Memory::Null => Err(Error::Device(
                "NULL runs nothing, so its tensors have no values; use another DEV to see them"
                    .into(),
            )),
        }
    }
}

/// Returns the size in bytes of `len` elements.
fn bytes_of(device: &DeviceName, dtype: DType, len: usize) -> Result<usize> {
    let full = || Error::OutOfMemory {
        device: device.to_string(),
        asked: usize::MAX,
        held: super::memory::held_bytes(),
    };
    len.checked_mul(dtype.itemsize()).ok_or_else(full)
}

/// Replaces every nonzero byte by 1.
pub(crate) fn as_bools(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|b| *b = (*b != 0) as u8);
}

/// Writes bytes of the host into memory of a device.
fn upload(to: &dyn Remote, device: &DeviceName, offset: usize, bytes: &[u8]) -> Result<()> {
    let mut span = profile::span(|| "write".into());
    span.note("bytes", || bytes.len().into());
    span.note("device", || device.as_str().into());
    to.write(offset, bytes)
}

impl crate::ir::arg::sealed::Sealed for Buffer {}

impl Storage for Buffer {
    fn id(&self) -> u64 {
        self.0.id
    }
    fn device(&self) -> &DeviceName {
        &self.0.device
    }
    fn len(&self) -> usize {
        self.0.len
    }
    fn memory_id(&self) -> u64 {
        self.0.block.id
    }
    fn version(&self) -> u64 {
        self.0.block.version.load(Ordering::Acquire)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "buffer {} of {} × {} on {}", self.0.id, self.0.len, self.0.dtype, self.0.device)
    }
}
