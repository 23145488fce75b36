//! Memory of a GPU. Allocations, copies and frees are ordered by its stream, so that memory is not
//! reused while a kernel uses it.
//!
//! Copies between host and GPU go through pinned memory in two halves: the GPU copies one while the
//! host copies the other.

use super::driver::{Address, Driver, PoolAccess, number};
use super::gpu::{Event, Gpu};
use crate::device::allocator::check_range;
use crate::device::backend::lock;
use crate::device::buffer::Remote;
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of one half of the staging memory. At 4 MiB the start of a copy is a hundredth of it.
const HALF: usize = 4 << 20;

/// A buffer of a GPU.
pub(super) struct CudaMemory {
    pub gpu: Arc<Gpu>,
    pub address: Address,
    len: usize,
}

impl CudaMemory {
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<CudaMemory> {
        let mut address = 0;
        // An address of zero would be indistinguishable from no buffer.
        let bytes = len.max(1);
        let mut allocate = || {
            // SAFETY: writes one address.
            gpu.ask(|d| unsafe {
                match gpu.pool {
                    Some(_) => (d.cuMemAllocAsync)(&mut address, bytes, gpu.stream),
                    None => (d.cuMemAlloc_v2)(&mut address, bytes),
                }
            })
        };
        let mut code = allocate()?;
        if code == number::OUT_OF_MEMORY {
            // Memory that the driver caches is released first.
            gpu.synchronize()?;
            if let Some(pool) = gpu.pool {
                // SAFETY: the pool is the GPU's own.
                gpu.call("emptying the pool", |d| unsafe { (d.cuMemPoolTrimTo)(pool, 0) })?;
            }
            code = allocate()?;
        }
        match code {
            0 => {
                gpu.held.fetch_add(len, Ordering::Relaxed);
                Ok(CudaMemory { gpu: gpu.clone(), address, len })
            }
            number::OUT_OF_MEMORY => {
                let held = gpu.held.load(Ordering::Relaxed);
                Err(Error::OutOfMemory {
                    device: format!("{} ({} bytes in all)", gpu.name, gpu.total()),
                    asked: len,
                    held,
                })
            }
            code => Err(Error::Device(format!(
                "{}: {len} bytes of memory: {}",
                gpu.name,
                gpu.driver.explain(code)
            ))),
        }
    }

    /// Returns the address of a byte range, which must be inside the buffer.
    fn at(&self, offset: usize, bytes: usize) -> Address {
        check_range(&(offset..offset + bytes), self.len);
        self.address + offset as Address
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        self.gpu.held.fetch_sub(self.len, Ordering::Relaxed);
        // SAFETY: the address came from the same allocator and is not used again; pending
        // operations run first. The synchronous way to free waits for the GPU. Memory of a lost GPU
        // is gone anyway.
        let _ = self.gpu.ask(|d| unsafe {
            match self.gpu.pool {
                Some(_) => (d.cuMemFreeAsync)(self.address, self.gpu.stream),
                None => (d.cuMemFree_v2)(self.address),
            }
        });
    }
}

/// Pinned host memory for copies, in two halves. It lives as long as the process.
pub(super) struct Staging {
    start: *mut u8,
    /// Set when a half is free to be written by the host, or full for it to read.
    done: [Event; 2],
}
// SAFETY: the memory belongs to the owner of the value.
unsafe impl Send for Staging {}

impl Staging {
    /// Uses the staging memory of a GPU, which is allocated at the first use.
    fn with<T>(gpu: &Gpu, f: impl FnOnce(&Staging) -> Result<T>) -> Result<T> {
        let mut staging = lock(&gpu.staging);
        match &*staging {
            Some(s) => f(s),
            None => f(staging.insert(Staging::new(gpu)?)),
        }
    }

    fn new(gpu: &Gpu) -> Result<Staging> {
        let mut start = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        gpu.call("allocating staging memory", |d| unsafe {
            (d.cuMemHostAlloc)(&mut start, 2 * HALF, 0)
        })?;
        let done =
            [gpu.event(number::EVENT_DISABLE_TIMING)?, gpu.event(number::EVENT_DISABLE_TIMING)?];
        Ok(Staging { start: start.cast(), done })
    }

    fn half(&self, i: usize) -> *mut u8 {
        // SAFETY: both halves are inside the allocation.
        unsafe { self.start.add(i % 2 * HALF) }
    }

    fn wait(&self, gpu: &Gpu, i: usize) -> Result<()> {
        // SAFETY: the event lives as long as the process.
        gpu.call("a copy", |d| unsafe { (d.cuEventSynchronize)(self.done[i % 2].0) })
    }
}

impl Remote for CudaMemory {
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let (from, len) = (self.at(offset, out.len()), out.len());
        Staging::with(&self.gpu, |staging| {
            let ask = |i: usize| -> Result<()> {
                let (to, at, size) =
                    (staging.half(i).cast::<c_void>(), i * HALF, HALF.min(len - i * HALF));
                let gpu = &self.gpu;
                // SAFETY: the piece is inside the buffer and not longer than the half. Other uses
                // of the half are earlier in the stream.
                let copy = |d: &Driver| unsafe {
                    (d.cuMemcpyDtoHAsync_v2)(to, from + at as Address, size, gpu.stream)
                };
                gpu.call("copying to the host", copy)?;
                gpu.record(staging.done[i % 2])
            };
            let pieces = len.div_ceil(HALF);
            (0..pieces.min(2)).try_for_each(ask)?;
            for (i, piece) in out.chunks_mut(HALF).enumerate() {
                staging.wait(&self.gpu, i)?;
                // SAFETY: the GPU has filled the half as far as the piece is long.
                unsafe {
                    std::ptr::copy_nonoverlapping(staging.half(i), piece.as_mut_ptr(), piece.len())
                };
                if i + 2 < pieces {
                    ask(i + 2)?;
                }
            }
            Ok(())
        })
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.at(offset, bytes.len());
        Staging::with(&self.gpu, |staging| {
            for (i, piece) in bytes.chunks(HALF).enumerate() {
                staging.wait(&self.gpu, i)?;
                // SAFETY: the GPU is done with the half, and the piece is not longer.
                unsafe {
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), staging.half(i), piece.len())
                };
                let (from, at) = (staging.half(i).cast::<c_void>(), i * HALF);
                // SAFETY: the piece is inside the buffer, and the half stays as it is until the
                // event is set.
                self.gpu.call("copying from the host", |d| unsafe {
                    (d.cuMemcpyHtoDAsync_v2)(to + at as Address, from, piece.len(), self.gpu.stream)
                })?;
                self.gpu.record(staging.done[i % 2])?;
            }
            Ok(())
        })
    }

    fn copy_from(&self, to: Range<usize>, from: &dyn Remote, from_offset: usize) -> Result<bool> {
        let Some(from) = from.downcast::<CudaMemory>() else { return Ok(false) };
        let bytes = to.len();
        let (to, start) = (self.at(to.start, bytes), from.at(from_offset, bytes));
        let (gpu, other) = (&self.gpu, &from.gpu);
        if Arc::ptr_eq(gpu, other) {
            // SAFETY: both places are inside their buffers.
            gpu.call("a copy", |d| unsafe {
                (d.cuMemcpyDtoDAsync_v2)(to, start, bytes, gpu.stream)
            })?;
            return Ok(true);
        }
        if !reaches(gpu, other)? {
            return Ok(false);
        }
        // The copy runs after all earlier operations of the other GPU, and its later ones run after
        // the copy.
        let wait = |waiting: &Gpu, on: &Gpu| -> Result<()> {
            on.record(on.peer_event)?;
            // SAFETY: the handles live as long as the process. The wait is for the event as it is
            // recorded now.
            waiting.call("waiting for another GPU", |d| unsafe {
                (d.cuStreamWaitEvent)(waiting.stream, on.peer_event.0, 0)
            })
        };
        wait(gpu, other)?;
        // SAFETY: both places are inside their buffers, of these contexts.
        gpu.call("copying between GPUs", |d| unsafe {
            (d.cuMemcpyPeerAsync)(to, gpu.context, start, other.context, bytes, gpu.stream)
        })?;
        wait(other, gpu)?;
        Ok(true)
    }
}

/// Enables peer access of a GPU to the memory of another. `false` if there is no direct path.
fn reaches(gpu: &Gpu, other: &Gpu) -> Result<bool> {
    let mut can = 0;
    // SAFETY: writes one number.
    gpu.call("querying peer access", |d| unsafe {
        (d.cuDeviceCanAccessPeer)(&mut can, gpu.number, other.number)
    })?;
    let Some(pool) = other.pool.filter(|_| can == 1) else { return Ok(false) };
    let access = PoolAccess {
        location_kind: number::LOCATION_DEVICE,
        location: gpu.number,
        flags: number::READ_WRITE,
    };
    // SAFETY: reads the one struct; giving access twice is no error.
    other.call("enabling peer access", |d| unsafe { (d.cuMemPoolSetAccess)(pool, &access, 1) })?;
    Ok(true)
}
