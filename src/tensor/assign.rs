//! Assignment, and moves of a tensor to another device or dtype.

use super::Tensor;
use super::broadcast::{Operand, broadcast_to, unify};
use super::realize::{is_stored, lock, storages};
use crate::device::registry::canonical;
use crate::dtype::DType;
use crate::error::Result;
use crate::exec::{Capture, Event};
use crate::ir::DeviceName;

impl Tensor {
    /// Replaces this tensor by another, for every handle on it. Unlike [`assign`](Self::assign) it
    /// converts nothing: shape, dtype and device must be equal.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1, 2]);
    /// x.replace(&Tensor::new([3, 4]))?;
    /// assert_eq!(x.to_vec::<i32>()?, [3, 4]);
    /// assert!(x.replace(&Tensor::new([3])).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn replace(&self, other: &Tensor) -> Result<()> {
        let extents = |t: &Tensor| t.uop().extents().to_vec();
        if (self.dims(), self.dtype(), extents(self))
            != (other.dims(), other.dtype(), extents(other))
        {
            let shown =
                |t: &Tensor| format!("{} {}", t.dtype(), super::variable::format_shape(&t.uop()));
            return wrong_shape!(
                "replace",
                "cannot replace {} by {}; assign() converts",
                shown(self),
                shown(other)
            );
        }
        if self.device() != other.device() {
            return refuse!(
                Device,
                "replace: the tensor is on {} and the other on {}; use .to()",
                self.device(),
                other.device()
            );
        }
        self.assign(other)
    }

    /// Assigns the value of another tensor to this one, for every handle on it. The value is
    /// broadcast and cast to this tensor.
    ///
    /// Assignment is lazy: the value is computed when it is realized, in place if nothing else
    /// reads the old value. Tensors that were made from this one before keep the old value.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1.0f32, 2.0]);
    /// let before = &x * 10.0;
    /// x.assign(&x + 1.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(before.to_vec::<f32>()?, [10.0, 20.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn assign(&self, value: impl Into<Operand>) -> Result<()> {
        let value: Operand = value.into();
        let unified = unify("assign", &[Operand::from(self), value])?;
        if unified.device != self.device() {
            return refuse!(
                Device,
                "assign: the value is on {} and the tensor on {}; use .to()",
                unified.device,
                self.device()
            );
        }
        let new = self.with_uop(unified.src[1].clone());
        let new = self
            .match_extents(broadcast_to("assign", &new, &self.dims())?)
            .try_cast(self.dtype())?;
        let new = if self.device().is_multi_device() && self.raw().has_data() {
            new.try_shard_like(self)?
        } else {
            new
        };
        let old = self.raw();
        // A view or a lazy value has no memory of its own to write to, and a stored value has its
        // own.
        let stored = is_stored(&new.raw());
        if let Some(s) = storages(&old) {
            *lock(&self.0.reusable_storage) =
                if stored { vec![] } else { s.into_iter().cloned().collect() };
        }
        let new = new.raw();
        Capture::note(Event::Assign(self.id()));
        self.set_uop(match self.0.param {
            Some(number) => new.leaf(number),
            None => new,
        });
        Ok(())
    }

    fallible! {
        /// Returns the tensor on another device. A value without storage is not copied: it is
        /// computed there. A sharded tensor is gathered.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1, 2]).to("interp") + 1;
        /// assert_eq!(x.to_vec::<i32>()?, [2, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn to | try_to(&self, device: &str) -> Tensor {
            if device == self.device().as_str() {
                return Ok(self.copy());
            }
            let devices = DeviceName::new(device);
            if devices.is_multi_device() {
                return self.try_shard(devices.each(), None);
            }
            let device = canonical(device)?;
            if device == *self.device() {
                return Ok(self.copy());
            }
            let uop = self.uop();
            let copied = if uop.has_data() { uop.copied(&device) } else { uop };
            Ok(Tensor::from_uop(copied, device))
        }
    }

    /// Moves this tensor to another device, as [`to`](Self::to) does, for every handle on it. A
    /// parameter stays the same parameter and its gradient moves along. Optimizer state does not
    /// move, so create optimizers afterwards. Tensors that were made from it before do not move.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::new([1, 2]);
    /// x.to_("interp")?;
    /// assert_eq!((x.device().as_str(), x.to_vec::<i32>()?), ("INTERP", vec![1, 2]));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_(&self, device: &str) -> Result<()> {
        self.move_(|t| t.try_to(device))
    }
    /// Converts this tensor to another dtype, for every handle on it. A parameter stays one, and
    /// its gradient is converted too.
    pub(crate) fn cast_in_place(&self, dtype: DType) -> Result<()> {
        self.move_(|t| t.try_cast(dtype))
    }
    /// Replaces the value, and the gradient of a parameter, by the result of a function.
    pub(super) fn move_(&self, to: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        let grad = self.grad().map(|g| to(&g)).transpose()?;
        let (moved, node) = match self.0.param {
            Some(number) => {
                let moved = to(&self.detach())?;
                let node = moved.raw().leaf(number);
                (moved, node)
            }
            None => {
                let moved = to(self)?;
                let node = moved.raw();
                (moved, node)
            }
        };
        Capture::note(Event::Assign(self.id()));
        *self.0.device.write().unwrap_or_else(|e| e.into_inner()) = moved.device();
        self.set_uop(node);
        lock(&self.0.reusable_storage).clear();
        self.set_grad(grad);
        Ok(())
    }
}
