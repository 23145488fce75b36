//! Tensors on several devices: sharded along an axis, or replicated. They are lazy tensors of their
//! full shape; the scheduler gives each device its shard of the work, and copies between them.

use super::{Tensor, resolve_axis};
use crate::device::registry::canonical;
use crate::device::{Buffer, disk};
use crate::error::Result;
use crate::ir::{Arg, DeviceName, Op, Src, StorageRef, UOp};
use crate::schedule::{Layout, even_bounds, layout};

impl Tensor {
    fallible! {
        /// Distributes the tensor over devices: sharded along an axis, or replicated with `None`.
        /// Shards may differ in size, and some are empty if there are more devices than elements.
        ///
        /// Each device computes on its shard, and gradients are distributed likewise. Operands of
        /// one operation are on the same devices; [`to`](Self::to) gathers a tensor on one.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let devices = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"];
        /// let x = Tensor::arange(0, 10, 1).shard(&devices, 0);
        /// let w = Tensor::new([3]).shard(&devices, None);
        /// assert_eq!((&x * &w).sum(0).item::<i32>()?, 135);
        /// assert_eq!(x.device().as_str(), "CPU+CPU:1+CPU:2+CPU:3");
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn shard | try_shard(
            &self, devices: &[impl AsRef<str>], axis: impl Into<Option<isize>>,
        ) -> Tensor {
            let dims = self.dims();
            let axis = axis.into().map(|axis| resolve_axis("shard", axis, &dims)).transpose()?;
            let cuts = |axis: usize| even_bounds(dims[axis], devices.len());
            let names = canonical_names(devices)?;
            self.distribute(&names, axis.map(|axis| (axis, cuts(axis))))
        }

        /// Distributes the tensor like another: over the same devices and along the same axis, with
        /// the same shard sizes if the sizes are equal.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::zeros([6, 4]).shard(&["CPU:0", "CPU:1"], 1);
        /// let y = Tensor::ones([6, 4]).shard_like(&x);
        /// assert_eq!((y.devices(), y.shard_axis()), (x.devices(), Some(1)));
        /// ```
        pub fn shard_like | try_shard_like(&self, other: &Tensor) -> Tensor {
            if !other.device().is_multi_device() {
                return self.try_to(other.device().as_str());
            }
            let like = other.layout();
            if self.device() == other.device()
                && self.raw().unmarked().op() == Op::Shards
                && self.layout() == like
            {
                return Ok(self.copy());
            }
            let dims = self.dims();
            let cut = |axis: usize| -> Result<(usize, Vec<usize>)> {
                let axis = resolve_axis("shard_like", axis as isize, &dims)?;
                let mut cuts = vec![0];
                like.iter()
                    .flat_map(|l| &l.shapes)
                    .for_each(|s| cuts.push(cuts[cuts.len() - 1] + s[axis]));
                let names = other.device().each().len();
                let fits = cuts[names] == dims[axis];
                Ok((axis, if fits { cuts } else { even_bounds(dims[axis], names) }))
            };
            self.distribute(
                other.device().each(),
                like.as_ref().and_then(|l| l.axis).map(cut).transpose()?,
            )
        }
    }

    /// Distributes this tensor in place, as [`shard`](Self::shard), for every handle on it. A
    /// parameter stays a parameter and keeps its gradient. Create optimizers afterwards, so that
    /// their state is distributed likewise.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Linear, Module};
    /// let devices = ["CPU:0", "CPU:1"];
    /// let net = Linear::new(4, 2);
    /// for p in net.parameters() {
    ///     p.shard_(&devices, None)?;
    /// }
    /// let x = Tensor::ones([6, 4]).shard(&devices, 0);
    /// net.forward(&x).square().mean(..).backward();
    /// assert_eq!(net.weight.grad().unwrap().devices().len(), 2);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn shard_(
        &self,
        devices: &[impl AsRef<str>],
        axis: impl Into<Option<isize>>,
    ) -> Result<()> {
        let axis = axis.into();
        self.move_(|t| t.try_shard(devices, axis))
    }

    /// Returns the devices of the tensor: one, unless it is [sharded](Self::shard).
    ///
    /// ```
    /// use picograd::Tensor;
    /// assert_eq!(Tensor::zeros([4]).shard(&["CPU:0", "CPU:1"], 0).devices().len(), 2);
    /// ```
    pub fn devices(&self) -> Vec<DeviceName> {
        self.device().each().to_vec()
    }

    /// Returns the axis that the tensor is sharded along; `None` if it is replicated or on one
    /// device.
    ///
    /// ```
    /// use picograd::Tensor;
    /// let x = Tensor::zeros([4, 6]).shard(&["CPU:0", "CPU:1"], 0);
    /// assert_eq!((x.t().shard_axis(), x.sum(0).shard_axis()), (Some(1), None));
    /// ```
    pub fn shard_axis(&self) -> Option<usize> {
        self.layout()?.axis
    }

    fn layout(&self) -> Option<Layout> {
        if self.device().is_multi_device() { layout(&self.raw(), self.device()) } else { None }
    }

    /// Distributes the tensor over devices, split along an axis at `cuts`.
    fn distribute(
        &self,
        devices: &[DeviceName],
        cuts: Option<(usize, Vec<usize>)>,
    ) -> Result<Tensor> {
        self.require_static("shard", 0..self.ndim())?;
        // Only a contiguous range can be copied from a file.
        if *self.device() == disk::device() {
            return self.try_to(devices[0].as_str())?.distribute(devices, cuts);
        }
        if let [one] = devices {
            return self.try_to(one.as_str());
        }
        let uop = self.uop();
        // A graph without storage is computed on each device, unless it has a gradient.
        let copied = uop.has_data() || uop.requires_grad();
        let part = |(i, device): (usize, &DeviceName)| {
            let part = cuts
                .as_ref()
                .map_or(uop.clone(), |(axis, cuts)| uop.narrowed(*axis, cuts[i]..cuts[i + 1]));
            if copied { part.copied(device) } else { part }
        };
        let name = DeviceName::joined(devices);
        let parts: Src = devices.iter().enumerate().map(part).collect();
        Ok(Tensor::from_uop(UOp::shards(parts, &name, cuts.map(|c| c.0)), name))
    }
}

/// Canonical device names, without duplicates.
fn canonical_names(devices: &[impl AsRef<str>]) -> Result<Vec<DeviceName>> {
    if devices.is_empty() {
        return refuse!(Device, "shard: expected one device or more, got none");
    }
    let names: Vec<DeviceName> =
        devices.iter().map(|d| canonical(d.as_ref())).collect::<Result<_>>()?;
    match names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        Some((i, name)) => refuse!(
            Device,
            "shard: {:?} is the device {name}, which is listed twice",
            devices[i].as_ref()
        ),
        None => Ok(names),
    }
}

/// Concatenates the bytes of shards along an axis.
pub(super) fn read_shards(shards: &UOp, axis: usize, storages: &[&StorageRef]) -> Result<Vec<u8>> {
    debug_assert!(matches!(shards.arg(), Arg::Shards { .. }));
    let rows: usize = shards.shape()[..axis].iter().product();
    let parts: Vec<Vec<u8>> =
        storages.iter().map(|s| Buffer::of(s).read()).collect::<Result<_>>()?;
    let mut out = crate::device::limits::vec(parts.iter().map(Vec::len).sum())?;
    for r in 0..rows {
        parts.iter().for_each(|part| {
            out.extend_from_slice(&part[part.len() / rows * r..part.len() / rows * (r + 1)])
        });
    }
    Ok(out)
}
