//! Payloads of nodes. Each meaning has a variant of its own, with named fields.

use super::{Custom, Loop, Source, TensorCore, UOp};
use crate::dtype::Const;
use crate::error::{Error, Result};
use crate::shape::{Movement, SymInt};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The canonical name of a device in the graph, such as `CPU` or `CUDA:1`: equal names are the same
/// device.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    /// A canonical name as it stands. `runtime::canonical` makes one from what a user wrote.
    pub fn new(name: &str) -> DeviceName {
        DeviceName(name.into())
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The name of several devices, which hold a sharded or replicated tensor: `CPU+CPU:1`.
    pub fn joined(devices: &[DeviceName]) -> DeviceName {
        DeviceName(devices.iter().map(DeviceName::as_str).collect::<Vec<_>>().join("+").into())
    }
    /// True if the name stands for several devices.
    pub fn is_several(&self) -> bool {
        self.0.contains('+')
    }
    /// The devices that the name stands for, in order.
    pub fn each(&self) -> Vec<DeviceName> {
        if !self.is_several() {
            return vec![self.clone()];
        }
        self.0.split('+').map(DeviceName::new).collect()
    }
}

impl AsRef<str> for DeviceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) mod sealed {
    /// Keeps [`Storage`](super::Storage) to memory of the runtime, whose lengths are what it says.
    pub trait Sealed {}
}

/// Storage as the IR sees it. Only `device` implements the trait; the graph keeps the storage
/// alive.
pub trait Storage: sealed::Sealed + Send + Sync + 'static {
    /// Unique for the life of the process.
    fn id(&self) -> u64;
    /// The device that holds it.
    fn device(&self) -> &DeviceName;
    /// Its number of elements.
    fn len(&self) -> usize;
    /// True if it has no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The number of the allocation that it is part of. Storages of one allocation may overlap.
    fn memory_id(&self) -> u64 {
        self.id()
    }
    /// The number of times its content was replaced in place. A node of an older version is stale.
    fn version(&self) -> u64 {
        0
    }
    /// The concrete type, for downcasts.
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
    /// The storage with its current version.
    pub fn new(storage: Arc<dyn Storage>) -> StorageRef {
        let version = storage.version();
        StorageRef { storage, version }
    }
    /// True if the content has been overwritten since.
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

/// The gradient of a `Call`. The node holds the function, so it is freed with the last graph that
/// has it.
#[derive(Clone)]
pub struct Gradient {
    id: u64,
    function: Option<Arc<GradientFn>>,
}

impl Gradient {
    /// A function, equal to itself alone.
    pub fn new(function: Arc<GradientFn>) -> Gradient {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Gradient { id: NEXT.fetch_add(1, Ordering::Relaxed), function: Some(function) }
    }
    /// The number of a function that is not at hand, as in a graph that was read from text.
    pub fn unknown(id: u64) -> Gradient {
        Gradient { id, function: None }
    }
    /// Its number, unique for the life of the process.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The gradients of the inputs.
    pub fn apply(&self, gradient: &UOp, inputs: &[UOp]) -> Result<Vec<UOp>> {
        match &self.function {
            Some(function) => function(gradient, inputs),
            None => Err(Error::Gradient(
                "a graph that was read from text does not have the functions of its calls".into(),
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

/// The operation of a reduce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Fold {
    /// Sum (or, for bools).
    Add,
    /// Product (and, for bools).
    Mul,
    /// Maximum; NaN wins.
    Max,
    /// Minimum; NaN wins.
    Min,
}

/// How a `Scatter` combines a value with the element at its index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Combine {
    /// The value replaces what was there; of several at one place the last one stays.
    Set,
    /// The value replaces what was there, and no two values have one place, so that they may be
    /// written in any order. Which of several at one place would stay is not defined.
    SetDistinct,
    /// Sum (or, for bools).
    Add,
    /// Product (and, for bools).
    Mul,
    /// Maximum; NaN wins.
    Max,
    /// Minimum; NaN wins.
    Min,
}

impl Combine {
    /// All of them.
    pub const ALL: [Combine; 6] = [
        Combine::Set,
        Combine::SetDistinct,
        Combine::Add,
        Combine::Mul,
        Combine::Max,
        Combine::Min,
    ];
    /// The fold that it is; none for `Set` and `SetDistinct`.
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

/// The kind of a loop axis, which decides how lowering realizes it. Debug output shows its letter;
/// `docs/debug.md` lists the colours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AxisKind {
    /// Independent work: a launch dimension on a GPU, a loop on a CPU.
    Global,
    /// Split over the threads of the CPU's pool.
    Thread,
    /// Threads of one workgroup.
    Local,
    /// A plain loop over outputs.
    Loop,
    /// A loop whose iterations run one after the other, in order: each may read what an earlier one
    /// wrote. No optimisation splits it, shares it between threads or makes lanes of it.
    Ordered,
    /// Threads of one workgroup that share a reduce.
    Group,
    /// A loop that accumulates.
    Reduce,
    /// Several outputs at a time in one thread: registers or vector lanes.
    Upcast,
    /// Several steps of a reduce at a time.
    Unroll,
}

impl AxisKind {
    /// All kinds, outermost first: the order of axes in a kernel and its name.
    pub const ALL: [AxisKind; 9] = [
        AxisKind::Global,
        AxisKind::Thread,
        AxisKind::Local,
        AxisKind::Loop,
        AxisKind::Ordered,
        AxisKind::Group,
        AxisKind::Reduce,
        AxisKind::Upcast,
        AxisKind::Unroll,
    ];
    /// One letter.
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
    /// True if the axis belongs to a reduction.
    pub const fn is_reduce(self) -> bool {
        matches!(self, AxisKind::Group | AxisKind::Reduce | AxisKind::Unroll)
    }
    /// Returns true for axes whose iterations are copies in one thread, or vector lanes.
    pub const fn is_copied(self) -> bool {
        matches!(self, AxisKind::Upcast | AxisKind::Unroll)
    }
    /// Returns true for axes that are threads of a workgroup.
    pub const fn is_workgroup(self) -> bool {
        matches!(self, AxisKind::Local | AxisKind::Group)
    }
}

/// The grid that a `Special` reads a coordinate of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SpecialKind {
    /// The workgroup's position.
    Group,
    /// The position in the workgroup.
    Local,
    /// The number of the CPU thread's share.
    Thread,
}

impl SpecialKind {
    /// The prefix of the variable that holds it, as in `gidx0`.
    pub const fn prefix(self) -> &'static str {
        match self {
            SpecialKind::Group => "gidx",
            SpecialKind::Local => "lidx",
            SpecialKind::Thread => "tidx",
        }
    }
}

/// A part of an axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// The first place.
    pub start: SymInt,
    /// The number of elements.
    pub len: SymInt,
}

impl Slice {
    /// Checks that the slice is within the axis and not empty for all values of variables, and that
    /// the axis is not a slice already.
    pub fn check(&self, shape: &[usize], extents: &[Option<SymInt>]) -> Result<()> {
        let Slice { axis, start, len } = self;
        let wrong = |msg: String| Err(Error::Shape { op: "slice", msg });
        let Some(&size) = shape.get(*axis) else {
            return wrong(format!("axis {axis} of {shape:?}"));
        };
        if let Some(Some(extent)) = extents.get(*axis) {
            return wrong(format!(
                "axis {axis} of {shape:?} has the size {extent} already, which is not cut again"
            ));
        }
        start.check("slice").and(len.check("slice"))?;
        let within = |b: &SymInt| format!("{b}, which is within {}..={}", b.min(), b.max());
        if start.min() < 0 || len.min() < 1 || start.max() + len.max() > size as i64 {
            let all = format!(
                "axis {axis} of {shape:?} from {} on, and of length {}",
                within(start),
                within(len)
            );
            return wrong(format!(
                "{all}; a part has an element and stays within 0..{size} for all values"
            ));
        }
        Ok(())
    }
}

/// The optimizer's decisions for a `Load`; ranges are given by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct LoadHint {
    /// The loop at which the tile of the load is staged.
    pub stage_at: Option<u32>,
    /// The loop in which the load, or the copy of its tile, is prefetched by one iteration.
    pub prefetch_in: Option<u32>,
}

/// The payload of a node.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub enum Arg {
    /// Nothing besides the operands.
    #[default]
    None,
    /// The value of a `Const`.
    Const(Const),
    /// The storage of a `Buffer`.
    Storage(StorageRef),
    /// An input slot of an abstracted graph: its number, its length and its device.
    Param {
        /// Position among the inputs.
        slot: usize,
        /// Elements.
        len: usize,
        /// The device of the input.
        device: DeviceName,
    },
    /// A named integer between `min` and `max`, both included.
    Var {
        /// Its name.
        name: Arc<str>,
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// The same with the value of this run. What is planned for all values does not have it.
    BoundVar {
        /// Its name.
        name: Arc<str>,
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// The value.
        value: i64,
    },
    /// The interval of a `Slice`.
    Slice(Box<Slice>),
    /// Length and device of an `Iota`.
    Iota {
        /// Elements.
        len: usize,
    },
    /// The change of shape of a movement op. It has many bytes, and the nodes of a kernel have
    /// none.
    Movement(Box<Movement>),
    /// A reduce: over `axes` in the tensor graph; in a kernel the ranges are operands and `axes` is
    /// empty.
    Reduce {
        /// The operation that combines two values.
        fold: Fold,
        /// Axes, ascending.
        axes: SmallVec<[usize; 2]>,
    },
    /// The axis of a `Cat`.
    Cat {
        /// The axis that the operands follow each other along.
        axis: usize,
    },
    /// The axis of a `Gather`.
    Gather {
        /// The axis that indices are places along.
        axis: usize,
    },
    /// A `Scatter`: how values meet what is at their places, and the axis.
    Scatter {
        /// How an element and a value are combined.
        combine: Combine,
        /// The axis that indices are places along.
        axis: usize,
    },
    /// The number of a `Leaf`, unique for the life of the process.
    Leaf(u64),
    /// The gradient of a `Call`.
    Gradient(Gradient),
    /// The target of a `Copy`, or where a `Contiguous` is stored.
    Device(DeviceName),
    /// The devices of the operands of a `Shards`, and the axis that they are sharded along; without
    /// an axis the value is replicated.
    Shards {
        /// The devices, one for each operand.
        devices: DeviceName,
        /// The axis.
        axis: Option<usize>,
    },
    /// The kernel of a `Kernel`.
    Kernel(Arc<Custom>),
    /// The body of a `Loop`, and how often it runs.
    Loop(Arc<Loop>),
    /// The number of an `Output` among those of its kernel or loop.
    Output(usize),
    /// The text of a `Source`.
    Source(Arc<Source>),
    /// A kernel argument: its position and its number of elements.
    Global {
        /// Position among the kernel's arguments.
        slot: usize,
        /// Elements in the buffer.
        len: usize,
    },
    /// Shared memory: its number and its number of elements.
    Shared {
        /// Number in the kernel.
        id: u32,
        /// Elements.
        len: usize,
    },
    /// The number of an accumulator.
    Acc(u32),
    /// The optimizer's decisions for a `Load`. A linear program has none.
    LoadHint(LoadHint),
    /// A loop axis: its number in the kernel and what it becomes.
    Range {
        /// Number, unique in the kernel.
        id: u32,
        /// Kind.
        kind: AxisKind,
        /// Whether the axis, of kind Upcast or Unroll, becomes vector lanes.
        lanes: bool,
    },
    /// A launch dimension.
    Special {
        /// The grid.
        kind: SpecialKind,
        /// The dimension of the grid.
        dim: u8,
        /// The size of the dimension.
        extent: usize,
    },
    /// Picked lanes.
    Lanes(SmallVec<[u16; 4]>),
    /// The tensor core of a `Wmma`.
    Wmma {
        /// Which.
        core: &'static TensorCore,
        /// The numbers of the ranges that were made for the two parts of a thread's number in its
        /// warp.
        lanes: [u32; 2],
    },
    /// The bits in which the number of the thread that a `Shuffle` reads from differs.
    Shuffle(usize),
    /// On the `Sink` of a kernel: its ranges of workgroup threads by number, in the order of the
    /// launch. The threads along the last one are adjacent.
    ThreadOrder(SmallVec<[u32; 4]>),
}

impl Arg {
    /// The movement, for movement ops.
    pub fn movement(&self) -> Option<&Movement> {
        match self {
            Arg::Movement(m) => Some(m),
            _ => None,
        }
    }
    /// The storage, for buffers.
    pub fn storage(&self) -> Option<&StorageRef> {
        match self {
            Arg::Storage(s) => Some(s),
            _ => None,
        }
    }
}
