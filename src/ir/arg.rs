//! The types of the fields of payloads: devices, storage, gradients, reductions, axes.

use super::UOp;
use crate::error::{Error, Result};
use crate::shape::SymInt;
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The canonical name of a device in the graph, such as `CPU` or `CUDA:1`, or of the list of
/// devices that hold a sharded or replicated tensor, `CPU+CPU:1`. Equal names are the same devices.
#[derive(Clone)]
pub struct DeviceName(Arc<NamedDevices>);

struct NamedDevices {
    name: Box<str>,
    /// The devices of a list; empty for one device.
    each: Vec<DeviceName>,
}

impl DeviceName {
    /// Returns the device or list of devices of a canonical name. `device::canonical` makes one
    /// from the name that a user gave.
    pub fn new(name: &str) -> DeviceName {
        let each = if name.contains('+') {
            name.split('+').map(DeviceName::new).collect()
        } else {
            vec![]
        };
        DeviceName(Arc::new(NamedDevices { name: name.into(), each }))
    }
    /// Returns the list of several devices; the device itself if there is one.
    pub fn joined(devices: &[DeviceName]) -> DeviceName {
        if let [one] = devices {
            return one.clone();
        }
        let name = devices.iter().map(DeviceName::as_str).collect::<Vec<_>>().join("+").into();
        DeviceName(Arc::new(NamedDevices { name, each: devices.to_vec() }))
    }
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0.name
    }
    /// Returns true for a list of several devices.
    pub fn is_multi_device(&self) -> bool {
        !self.0.each.is_empty()
    }
    /// Returns the devices of a list, in order, or the one device.
    pub fn each(&self) -> &[DeviceName] {
        if self.is_multi_device() { &self.0.each } else { std::slice::from_ref(self) }
    }
}

impl PartialEq for DeviceName {
    fn eq(&self, other: &DeviceName) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
    }
}
impl Eq for DeviceName {}

impl Hash for DeviceName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for DeviceName {
    fn partial_cmp(&self, other: &DeviceName) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DeviceName {
    fn cmp(&self, other: &DeviceName) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl AsRef<str> for DeviceName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(crate) mod sealed {
    /// Restricts [`Storage`](super::Storage) to buffers of `device`, whose lengths can be trusted.
    pub trait Sealed {}
}

/// The storage of a buffer. Only `device` implements the trait. A node keeps its storage alive.
pub trait Storage: sealed::Sealed + Send + Sync + 'static {
    /// Returns the id of the storage, unique for the life of the process.
    fn id(&self) -> u64;
    /// Returns the device that has the memory.
    fn device(&self) -> &DeviceName;
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Returns true if the storage has no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the id of the allocation. Storages of one allocation may overlap.
    fn memory_id(&self) -> u64 {
        self.id()
    }
    /// Returns the number of in-place writes. A node of an older version is stale.
    fn version(&self) -> u64 {
        0
    }
    /// Returns the concrete type, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// One version of a storage. Handles are equal if storage and version are.
#[derive(Clone)]
pub struct StorageRef {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// The version of the content.
    pub version: u64,
}

impl StorageRef {
    /// Returns the storage with its current version.
    pub fn new(storage: Arc<dyn Storage>) -> StorageRef {
        let version = storage.version();
        StorageRef { storage, version }
    }
    /// Returns true if the storage was written in place after this version.
    pub fn is_stale(&self) -> bool {
        self.version != self.storage.version()
    }
}

impl PartialEq for StorageRef {
    fn eq(&self, other: &StorageRef) -> bool {
        self.storage.id() == other.storage.id() && self.version == other.version
    }
}
impl Eq for StorageRef {}
impl Hash for StorageRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.storage.id().hash(state);
        self.version.hash(state)
    }
}

/// The VJP of a [`Gradient`]: from the upstream gradient and the inputs to the gradient of each
/// input.
pub type GradientFn = dyn Fn(&UOp, &[UOp]) -> Result<Vec<UOp>> + Send + Sync;

/// The custom gradient of a `Call`. Two are equal if they are the same function. The node holds the
/// function, so that it is freed with the last graph that has it.
#[derive(Clone)]
pub struct Gradient {
    id: u64,
    function: Option<Arc<GradientFn>>,
}

impl Gradient {
    /// Returns the gradient with this function.
    pub fn new(function: Arc<GradientFn>) -> Gradient {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Gradient { id: NEXT.fetch_add(1, Ordering::Relaxed), function: Some(function) }
    }
    /// Returns a gradient with an id but no function, as in a graph that was parsed from text.
    pub fn unknown(id: u64) -> Gradient {
        Gradient { id, function: None }
    }
    /// Returns the id of the function, unique for the life of the process.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// Returns the gradients of the inputs.
    pub fn apply(&self, gradient: &UOp, inputs: &[UOp]) -> Result<Vec<UOp>> {
        match &self.function {
            Some(function) => function(gradient, inputs),
            None => Err(Error::Gradient(
                "a graph that was parsed from text has no custom gradients; build it with `Tensor`"
                    .into(),
            )),
        }
    }
}

impl PartialEq for Gradient {
    fn eq(&self, other: &Gradient) -> bool {
        (self.id, self.function.is_some()) == (other.id, other.function.is_some())
    }
}
impl Eq for Gradient {}
impl Hash for Gradient {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state)
    }
}

/// Declares an enum with the list of its variants.
macro_rules! listed {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident { $($(#[doc = $variant_doc:literal])* $variant:ident),* }
    )*) => { $(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum $name { $($(#[doc = $variant_doc])* $variant),* }

        impl $name {
            /// All variants, in order.
            pub const ALL: [$name; [$($name::$variant),*].len()] = [$($name::$variant),*];
        }
    )* };
}

listed! {
    /// The operation of a reduction or a scan.
    Fold {
        /// Sum; logical or for bools.
        Add,
        /// Product; logical and for bools.
        Mul,
        /// Maximum; NaN propagates.
        Max,
        /// Minimum; NaN propagates.
        Min
    }

    /// The operation by which a `Scatter` combines a value with the element at its index.
    Combine {
        /// The value replaces the element; of several values at one index the last remains.
        Set,
        /// The value replaces the element. No two values have the same index, so that they may be
        /// written in any order. If two do, the result is not defined.
        SetDistinct,
        /// Sum; logical or for bools.
        Add,
        /// Product; logical and for bools.
        Mul,
        /// Maximum; NaN propagates.
        Max,
        /// Minimum; NaN propagates.
        Min
    }

    /// The kind of a loop axis, which decides how it is lowered. The order of the variants,
    /// outermost first, is that of the axes of a kernel and of its name. Debug output shows the
    /// letter of a kind; `docs/debug.md` lists the colours.
    AxisKind {
        /// Independent iterations: a launch dimension on a GPU, a loop on a CPU.
        Global,
        /// The chunks of a loop, which the threads of the CPU's pool claim.
        Thread,
        /// Threads of one workgroup.
        Local,
        /// A loop over outputs.
        Loop,
        /// A loop whose iterations run in order, because each may read the results of earlier ones.
        /// No Opt splits, parallelizes or vectorizes it.
        Ordered,
        /// Threads of one workgroup that share a reduction.
        Group,
        /// A loop over a reduction axis.
        Reduce,
        /// Outputs that one thread computes together: a register tile, or vector lanes.
        Upcast,
        /// Iterations of a reduction that are unrolled.
        Unroll
    }

    /// The part of the launch that a `Special` returns an index of.
    SpecialKind {
        /// The position of the workgroup.
        Group,
        /// The position of the thread in its workgroup.
        Local,
        /// The number of the chunk of a CPU kernel.
        Thread
    }
}

impl Combine {
    /// Returns the fold of the same operation; none for `Set` and `SetDistinct`.
    pub const fn fold(self) -> Option<Fold> {
        match self {
            Combine::Set | Combine::SetDistinct => None,
            Combine::Add => Some(Fold::Add),
            Combine::Mul => Some(Fold::Mul),
            Combine::Max => Some(Fold::Max),
            Combine::Min => Some(Fold::Min),
        }
    }
}

impl AxisKind {
    /// Returns the letter of the kind in debug output.
    pub const fn letter(self) -> char {
        match self {
            AxisKind::Global => 'g',
            AxisKind::Thread => 't',
            AxisKind::Local => 'l',
            AxisKind::Loop => 'o',
            AxisKind::Ordered => 's',
            AxisKind::Group => 'G',
            AxisKind::Reduce => 'r',
            AxisKind::Upcast => 'u',
            AxisKind::Unroll => 'R',
        }
    }
    /// Returns true if the axis belongs to a reduction.
    pub const fn is_reduce(self) -> bool {
        matches!(self, AxisKind::Group | AxisKind::Reduce | AxisKind::Unroll)
    }
    /// Returns true if the iterations are copies in one thread, or vector lanes.
    pub const fn is_copied(self) -> bool {
        matches!(self, AxisKind::Upcast | AxisKind::Unroll)
    }
    /// Returns true if the iterations are threads of a workgroup.
    pub const fn is_workgroup(self) -> bool {
        matches!(self, AxisKind::Local | AxisKind::Group)
    }
}

impl SpecialKind {
    /// Returns the prefix of the name in source text, as in `gidx0`.
    pub const fn prefix(self) -> &'static str {
        match self {
            SpecialKind::Group => "gidx",
            SpecialKind::Local => "lidx",
            SpecialKind::Thread => "tidx",
        }
    }
}

/// An interval of an axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// The index of the first element.
    pub start: SymInt,
    /// The number of elements.
    pub len: SymInt,
}

impl Slice {
    /// Checks that the slice is within the axis and not empty for all values of variables, and that
    /// the size of the axis is not symbolic.
    pub fn check(&self, shape: &[usize], extents: &[Option<SymInt>]) -> Result<()> {
        let Slice { axis, start, len } = self;
        let wrong = |msg: String| Err(Error::Shape { op: "slice", msg });
        let Some(&size) = shape.get(*axis) else {
            return wrong(format!("axis {axis} is out of range for shape {shape:?}"));
        };
        if let Some(Some(extent)) = extents.get(*axis) {
            return wrong(format!(
                "axis {axis} of {shape:?} has the symbolic size {extent} and cannot be sliced"
            ));
        }
        start.check("slice").and(len.check("slice"))?;
        if start.min() < 0 || len.min() < 1 || start.max() + len.max() > size as i64 {
            let bounded = |b: &SymInt| format!("{b} (within {}..={})", b.min(), b.max());
            return wrong(format!(
                "axis {axis} of {shape:?}: expected at least one element within 0..{size} for all \
                 values, got start {} and length {}",
                bounded(start),
                bounded(len)
            ));
        }
        Ok(())
    }
}

/// The optimizer's decisions for a `Load`; ranges are given by their ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct LoadHint {
    /// The loop in which the tile of the load is staged.
    pub stage_at: Option<u32>,
    /// The loop in which the load, or the copy of its tile, is prefetched by one iteration.
    pub prefetch_in: Option<u32>,
}
