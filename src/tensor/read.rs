//! Reading: elements of tensors as host values.

use super::Tensor;
use super::realize::{RUNNING, base, is_stored, lock, read_by, realize_running, storages};
use super::shard::read_shards;
use super::variable::strip_padding;
use crate::device::kind::{MemorySpace, memory_space};
use crate::device::{Buffer, limits};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::exec::{Capture, Event};
use crate::ir::{Arg, Op};

impl Tensor {
    /// Returns the elements in row-major order. `T` is the Rust type of the dtype.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).to_vec::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let (has, asked) = (self.dtype(), T::DTYPE);
            let name = asked.name().to_uppercase();
            return wrong_dtype!(
                "to_vec",
                "a tensor of {has} read as {asked}; cast it first: .cast(DType::{name})"
            );
        }
        limits::elements(&self.to_bytes()?)
    }

    /// Little-endian bytes of the elements in row-major order.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u16, 258]).to_bytes()?, [1, 0, 2, 1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let what = || {
            format!(
                "the value of a tensor {} {:?} is read inside a captured function, where it is \
                 the same for all calls; return the tensor and read it after the call",
                self.dtype(),
                self.dims()
            )
        };
        if let Some(error) = Capture::note(Event::ReadValue(&what)) {
            return Err(error);
        }
        loop {
            // Held until the content is copied, so that no realization or replay writes it.
            let running = lock(&RUNNING);
            let uop = realize_running(&[self])?.swap_remove(0);
            // Another thread may have assigned in between; the new value has to be computed.
            let Some(storages) = storages(&uop) else { continue };
            let read =
                read_by(&[base(&uop).clone()], |_| {}).and_then(|()| match base(&uop).arg() {
                    Arg::Shards { axis: Some(axis), .. } => {
                        read_shards(base(&uop), *axis, &storages)
                    }
                    _ => Buffer::of(storages[0]).read().map(|bytes| strip_padding(bytes, &uop)),
                });
            drop(running);
            return read;
        }
    }

    /// Elements, if reading them is cheap: few in host memory, or one literal for all. `None`
    /// inside a captured function, which also has to be correct for other values.
    pub(super) fn host_values(&self) -> Option<Vec<f64>> {
        /// Maximum number of elements; 2¹⁸ take less than a millisecond.
        const MAX_ELEMENTS: usize = 1 << 18;
        let uop = self.uop();
        let mut node = base(&uop);
        while node.op() == Op::Expand {
            node = base(node.operand());
        }
        if let Some(c) = node.as_const() {
            return Some(vec![c.as_f64(self.dtype()); self.numel().min(MAX_ELEMENTS)]);
        }
        let stored = is_stored(&uop)
            && uop.extents().is_empty()
            && !self.device().is_multi_device()
            && memory_space(self.device()) == Some(MemorySpace::Host);
        if Capture::is_active() || !stored || self.numel() > MAX_ELEMENTS || self.dtype().lanes != 1
        {
            return None;
        }
        let (bytes, dtype) = (self.to_bytes().ok()?, self.dtype());
        if dtype == DType::F32 {
            let elements = bytes.as_chunks().0.iter();
            return Some(elements.map(|raw| f32::from_le_bytes(*raw) as f64).collect());
        }
        let element = |raw: &[u8]| {
            let mut bits = [0; 8];
            bits[..raw.len()].copy_from_slice(raw);
            crate::dtype::Const::from_bits(u64::from_le_bytes(bits), dtype).as_f64(dtype)
        };
        Some(bytes.chunks_exact(dtype.itemsize()).map(element).collect())
    }

    /// Alias of [`to_bytes`](Self::to_bytes).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u8, 2]).data()?, [1, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn data(&self) -> Result<Vec<u8>> {
        self.to_bytes()
    }

    /// Rows of a matrix.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).to_rows::<i32>()?, [[1, 2], [3, 4]]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_rows<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let [rows, cols] = self.shape()[..] else {
            let dims = self.dims();
            return wrong_shape!("to_rows", "expected a matrix, got {dims:?}; use to_vec");
        };
        let all = self.to_vec::<T>()?;
        // The vector of a short row takes more memory than its elements.
        let row = size_of::<Vec<T>>() + limits::heap_bytes(cols * size_of::<T>());
        limits::check(rows.saturating_mul(row))?;
        let mut out = limits::vec(rows)?;
        for r in 0..rows {
            let mut copy = Vec::new();
            copy.try_reserve_exact(cols)
                .map_err(|_| limits::out_of_memory(rows.saturating_mul(row)))?;
            copy.extend_from_slice(&all[r * cols..(r + 1) * cols]);
            out.push(copy);
        }
        Ok(out)
    }

    /// Returns the only element of a tensor of one element.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[7]]).item::<i32>()?, 7);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            let (shape, numel) = (self.shape(), self.numel());
            return wrong_shape!("item", "a tensor of shape {shape:?} has {numel} elements, not 1");
        }
        match self.to_vec()?[..] {
            [one, ..] => Ok(one),
            [] => refuse!(Device, "item: the tensor changed while it was read"),
        }
    }
}
