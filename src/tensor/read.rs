//! Elements of tensors as host values.

use super::Tensor;
use super::realize::{RUNNING, base, is_stored, lock, read_by, realize_running, storages};
use crate::device::{Buffer, limits};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::exec::Capture;
use crate::ir::{Arg, Op};

impl Tensor {
    /// The elements in row-major order. `T` is the Rust type of the dtype.
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

    /// The bytes of the elements in row-major order, little endian.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u16, 258]).to_bytes()?, [1, 0, 2, 1]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let what = || {
            format!(
                "the value of a tensor {} {:?} is read inside a captured function: it would be \
                 that of one call for all; return the tensor and read it after the call",
                self.dtype(),
                self.dims()
            )
        };
        if let Some(what) = Capture::current(|c| c.read_value(what)).flatten() {
            return Err(Error::Jit(what));
        }
        loop {
            // Until the content is copied, so that no other realization and no replay writes it in
            // between.
            let running = lock(&RUNNING);
            let uop = realize_running(&[self])?.swap_remove(0);
            // An assignment on another thread can come between; then there is something new to
            // compute.
            let Some(storages) = storages(&uop) else { continue };
            let read =
                read_by(&[base(&uop).clone()], |_| {}).and_then(|()| match base(&uop).arg() {
                    Arg::Shards { axis: Some(axis), .. } => {
                        super::shard::read_shards(base(&uop), *axis, &storages)
                    }
                    _ => Buffer::of(storages[0])
                        .read()
                        .map(|bytes| super::variable::strip_padding(bytes, &uop)),
                });
            drop(running);
            return read;
        }
    }

    /// The elements, if reading them is cheap: a few in host memory, or all one literal. `None`
    /// inside a captured function, which must work for other values too.
    pub(super) fn at_hand(&self) -> Option<Vec<f64>> {
        /// Elements that are read; 2¹⁸ take less than a millisecond.
        const MOST: usize = 1 << 18;
        let uop = self.uop();
        let mut node = base(&uop);
        while node.op() == Op::Expand {
            node = base(node.operand());
        }
        if let Some(c) = node.as_const() {
            return Some(vec![c.as_f64(self.dtype()); self.numel().min(MOST)]);
        }
        let host = |name: &str| name == "INTERP" || name.split(':').next() == Some("CPU");
        let stored = is_stored(&uop)
            && uop.extents().is_empty()
            && !self.device().is_several()
            && host(self.device().as_str());
        if Capture::is_active() || !stored || self.numel() > MOST || self.dtype().lanes != 1 {
            return None;
        }
        let (bytes, dtype) = (self.to_bytes().ok()?, self.dtype());
        if dtype == DType::F32 {
            return Some(
                bytes.as_chunks().0.iter().map(|raw| f32::from_le_bytes(*raw) as f64).collect(),
            );
        }
        let element = |raw: &[u8]| {
            let mut bits = [0; 8];
            bits[..raw.len()].copy_from_slice(raw);
            crate::dtype::Const::from_bits(u64::from_le_bytes(bits), dtype).as_f64(dtype)
        };
        Some(bytes.chunks_exact(dtype.itemsize()).map(element).collect())
    }

    /// Another name of [`to_bytes`](Self::to_bytes).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([1u8, 2]).data()?, [1, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn data(&self) -> Result<Vec<u8>> {
        self.to_bytes()
    }

    /// The elements of a matrix, as a list of its rows.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).to_rows::<i32>()?, [[1, 2], [3, 4]]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_rows<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let [rows, cols] = self.shape()[..] else {
            return wrong_shape!(
                "to_rows",
                "takes a matrix, and was given {:?}; to_vec gives all elements",
                self.dims()
            );
        };
        let all = self.to_vec::<T>()?;
        // A row of few elements takes more for its vector than for them.
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

    /// The one element of a tensor that has one.
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::new([[7]]).item::<i32>()?, 7);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            return wrong_shape!(
                "item",
                "a tensor of shape {:?} has {} elements, not 1",
                self.shape(),
                self.numel()
            );
        }
        self.to_vec()?
            .first()
            .copied()
            .ok_or_else(|| Error::Device("item: the tensor changed while it was read".into()))
    }
}
