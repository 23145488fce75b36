//! Where a graph becomes values. In comes a tensor; out come its elements, or the tensor itself with a buffer in place of its graph.

use super::broadcast::{Operand, has_data, unify};
use super::{Tensor, wrong_dtype, wrong_shape};
use crate::dtype::{DType, Element, from_bytes};
use crate::error::{Error, Result};
use crate::ir::{Arg, DeviceName, Op, Src, Storage, StorageRef, ToSrc, UOp};
use crate::reference;
use crate::shape::Movement;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes in the host's memory.
struct HostStorage {
    id: u64,
    len: usize,
    device: DeviceName,
    bytes: Mutex<Vec<u8>>,
}

impl HostStorage {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Storage for HostStorage {
    fn id(&self) -> u64 {
        self.id
    }
    fn device(&self) -> &DeviceName {
        &self.device
    }
    fn len(&self) -> usize {
        self.len
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

static NEXT_STORAGE: AtomicU64 = AtomicU64::new(0);

/// The device of tensors that name none.
pub(super) fn default_device() -> DeviceName {
    DeviceName::new("CPU")
}

/// A one-dimensional node over new storage with these bytes.
pub(super) fn buffer(bytes: Vec<u8>, dtype: DType, device: &DeviceName) -> UOp {
    let id = NEXT_STORAGE.fetch_add(1, Ordering::Relaxed);
    let len = bytes.len() / dtype.itemsize();
    let storage = HostStorage { id, len, device: device.clone(), bytes: Mutex::new(bytes) };
    UOp::new(Op::Buffer, dtype, Src::new(), Arg::Storage(StorageRef(Arc::new(storage))))
}

fn host(s: &StorageRef) -> &HostStorage {
    s.0.as_any().downcast_ref().expect("every storage is the host's")
}

/// The storage of a node that is a whole buffer under some shape.
fn whole_buffer(u: &UOp) -> Option<&StorageRef> {
    let base = if u.op() == Op::Reshape { &u.src()[0] } else { u };
    match base.arg() {
        Arg::Storage(s) => Some(s),
        _ => None,
    }
}

impl Tensor {
    fn value(&self) -> reference::Value {
        reference::evaluate(&[self.uop()], &|s| host(s).bytes().clone()).pop().expect("one root in, one value out")
    }

    /// Computes the tensor now and keeps the result. Returns another handle on it.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = (Tensor::arange(0, 3, 1) + 1).realize()?;
    /// assert_eq!(format!("{x:?}"), "<Tensor i32 [3] on CPU: Buffer>");
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn realize(&self) -> Result<Tensor> {
        if whole_buffer(&self.uop()).is_none() {
            let value = self.value();
            let flat = self.with(buffer(value.to_bytes(), value.dtype, self.device()));
            self.set_uop(flat.moved(Movement::Reshape(value.shape))?.uop());
        }
        Ok(self.clone())
    }

    /// The elements in row-major order. `T` is the Rust type of the dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let (has, asked) = (self.dtype(), T::DTYPE);
            let name = asked.name().to_uppercase();
            return wrong_dtype("to_vec", format!("a tensor of {has} read as {asked}; cast it first: .cast(DType::{name})"));
        }
        Ok(from_bytes(&self.to_bytes()?))
    }

    /// The bytes of the elements in row-major order, little endian.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok(match whole_buffer(&self.uop()) {
            Some(s) => host(s).bytes().clone(),
            None => self.value().to_bytes(),
        })
    }

    /// The one element of a tensor that has one.
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.numel() != 1 {
            return wrong_shape("item", format!("a tensor of shape {:?} has {} elements, not 1", self.dims(), self.numel()));
        }
        Ok(self.to_vec()?[0])
    }

    /// Puts the value of another tensor in the place of this one, for every handle on it. The value is broadcast and cast to this tensor.
    pub fn assign(&self, value: impl Into<Operand>) -> Result<()> {
        let value: Operand = value.into();
        let unified = unify("assign", &[Operand::from(self), value])?;
        if unified.device != *self.device() {
            return Err(Error::Device(format!("assign: a value on {} to a tensor on {}", unified.device, self.device())));
        }
        let new = self.with(unified.src[1].clone());
        let new = super::broadcast::broadcast_to("assign", &new, &self.dims())?.try_cast(self.dtype())?;
        match whole_buffer(&self.uop()) {
            Some(s) => {
                let bytes = new.to_bytes()?;
                *host(s).bytes() = bytes;
            }
            None => self.set_uop(new.uop()),
        }
        Ok(())
    }

    fallible! {
        /// The tensor on another device. What reads no storage is not copied: it will be computed there.
        pub fn to | try_to(&self, device: &str) -> Tensor {
            let device = DeviceName::new(device);
            if device == *self.device() {
                return Ok(self.clone());
            }
            let uop = self.uop();
            let copied = if has_data(&uop) {
                UOp::new(Op::Copy, uop.dtype(), [uop.clone()].to_src(), Arg::Device(device.clone()))
            } else {
                uop
            };
            Ok(Tensor::from_uop(copied, device))
        }
    }

    /// The tensor stored in row-major order when it is computed: a border that fusion does not cross.
    pub fn contiguous(&self) -> Tensor {
        let uop = self.uop();
        if whole_buffer(&uop).is_some() || uop.op() == Op::Contiguous {
            return self.clone();
        }
        self.with(UOp::new(Op::Contiguous, uop.dtype(), [uop.clone()].to_src(), Arg::None))
    }
}
