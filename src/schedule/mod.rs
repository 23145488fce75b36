//! The scheduler. Input: a tensor graph. Output: an ordered list of kernels and copies with a
//! memory plan.
//!
//! The graph is first abstracted: buffers become numbered parameters. Two steps of a training loop
//! then have the same graph, so the plan of the first serves all others from a cache.

mod assign_ranges;
mod build;
mod build_kernels;
mod cache;
mod command;
mod cost;
mod fuse;
mod hint_stores;
mod in_place;
mod index;
mod indexed;
mod insert_copies;
mod limit_buffers;
mod lower_cats;
mod narrow;
mod order;
mod passes;
mod plan_loops;
pub mod plan_memory;
mod prepare;
mod read_stored;
mod reduce_simplify;
mod scan;
mod scatter;
mod shard;
mod split_products;
mod text;
mod traits;
mod variables;
mod verify;

#[cfg(feature = "testing")]
pub use build_kernels::MERGE_RANGES;
#[cfg(feature = "testing")]
pub use cache::{cache_len, clear_cache};
pub use command::{Command, SlotRef};
pub use limit_buffers::KernelLimits;
#[cfg(feature = "testing")]
pub use passes::{PassTexts, texts_of};
pub use passes::{PlanRequest, passes, plan};
pub use plan_loops::Repeat;
pub use plan_memory::PlannedMemory;
#[cfg(feature = "testing")]
pub use prepare::PREPARE;
#[cfg(feature = "testing")]
pub use reduce_simplify::REDUCE_SIMPLIFY;
pub use shard::{Layout, even_bounds, layout};
pub use traits::DeviceTraits;
#[cfg(feature = "testing")]
pub use traits::Nontemporal;
pub use variables::VariableValues;

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Arg, DeviceName, Src, StorageRef, UOp, map_symints, unmarked};
use crate::pass::PassTimes;
use crate::shape::SymInt;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// A buffer of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferInfo {
    /// Element dtype; `VOID` for a slot that no command names.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// Device whose memory it is in.
    pub device: DeviceName,
    /// Purpose of the buffer.
    pub role: Role,
}

impl BufferInfo {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.itemsize()
    }

    /// Returns true if a command names it.
    pub fn is_used(&self) -> bool {
        self.dtype != DType::VOID
    }
}

/// Purpose of a buffer of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// The i-th input.
    Input(usize),
    /// An output, in memory of its own.
    Output,
    /// An intermediate.
    Temporary {
        /// Number of its arena.
        arena: usize,
        /// Offset in the arena, in bytes.
        offset: usize,
    },
    /// Values of a kernel's variables. It is allocated for a run and is in no plan.
    Values,
}

/// An intermediate before memory planning.
const UNPLACED: Role = Role::Temporary { arena: 0, offset: 0 };

/// The commands that compute a graph, over numbered slots without memory.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Commands in order.
    pub commands: Vec<Command>,
    /// The buffer of each slot.
    pub buffers: Vec<BufferInfo>,
    /// Memory of each output, or of each shard of a sharded one; `None` without elements.
    pub outputs: Vec<Option<Output>>,
    /// Layout of each request that is sharded.
    pub layouts: Vec<Option<Layout>>,
    /// Bytes and device of each arena of intermediates.
    pub arenas: Vec<(usize, DeviceName)>,
    /// Memory of the intermediates.
    pub memory: PlannedMemory,
    /// Time of each pass that ran.
    pub times: PassTimes,
}

impl Plan {
    /// Returns the kernels with their devices; those of a loop once.
    pub fn kernels(&self) -> Vec<(&UOp, &DeviceName)> {
        self.commands.iter().flat_map(Command::programs).collect()
    }
}

/// Memory of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its slot.
    pub buffer: usize,
    /// The elements of the slot that it consists of; `None` for all.
    pub part: Option<Range<usize>>,
}

/// A requested output: its node, its device, and storage that may be donated to it.
#[derive(Clone)]
pub struct Request {
    /// The value.
    pub node: UOp,
    /// Device of a value without inputs.
    pub device: DeviceName,
    /// Storage whose content is dead after this run, and that the output may be written to: one
    /// entry per shard, or none at all.
    pub reuse: Vec<Option<StorageRef>>,
}

/// A graph with its plan.
pub struct PlannedGraph {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The planned graph: that of the requests with numbers in place of storages.
    pub graph: UOp,
    /// Input storages, by number.
    pub inputs: Vec<StorageRef>,
    /// Values of its variables.
    pub values: VariableValues,
    /// True on a hit of the schedule cache.
    pub hit: bool,
}

/// Plans the requests, or takes the plan from the schedule cache. `traits_of` returns the traits of
/// a device, which are constant.
pub fn schedule(
    requests: &[Request],
    traits_of: &dyn Fn(&DeviceName) -> DeviceTraits,
) -> Result<PlannedGraph> {
    let (nodes, inputs, values) = abstracted(requests)?;
    let number =
        |s: &Option<StorageRef>| s.as_ref().and_then(|s| inputs.iter().position(|i| i == s));
    // One entry per shard, so that positions identify outputs.
    let parts = |r: &Request| {
        (0..r.device.each().len()).map(|i| r.reuse.get(i).and_then(number)).collect::<Vec<_>>()
    };
    let donated: Vec<Option<usize>> = requests.iter().flat_map(parts).collect();
    let devices: Vec<DeviceName> = requests.iter().map(|r| r.device.clone()).collect();
    let graph = UOp::sink(nodes.iter().cloned().collect::<Src>());
    let key = cache::Key { sink: graph.clone(), devices, donated };
    let (plan, hit) = cache::get_or_insert(key, |key| {
        plan(&PlanRequest {
            outputs: &nodes,
            devices: &key.devices,
            donated: &key.donated,
            inputs: inputs.len(),
            traits_of,
        })
    });
    Ok(PlannedGraph { plan, graph, inputs, values, hit })
}

/// Removes gradient marks, replaces buffers by parameters in order of first use, and unbinds
/// variables. Returns the nodes, the storage of each parameter and the values of the variables.
fn abstracted(requests: &[Request]) -> Result<(Vec<UOp>, Vec<StorageRef>, VariableValues)> {
    let mut inputs = Vec::new();
    let mut values = VariableValues::default();
    let mut wrong = None;
    let nodes: Vec<UOp> = requests.iter().map(|r| r.node.clone()).collect();
    let nodes = unmarked(&nodes, |u| {
        match u.arg() {
            Arg::BoundVar { name, min, max, value: v } => {
                wrong = wrong.take().or(values.insert(name, (*min, *max), *v).err());
                return Some(u.with_arg(Arg::Var { name: name.clone(), min: *min, max: *max }));
            }
            Arg::Slice(part) => {
                wrong = wrong.take().or(values
                    .insert_symint(&part.start)
                    .and(values.insert_symint(&part.len))
                    .err());
                return None;
            }
            _ => {}
        }
        let Arg::Storage(s) = u.arg() else { return None };
        inputs.push(s.clone());
        Some(parameter(inputs.len() - 1, u.dtype(), s.storage.len(), s.storage.device()))
    });
    match wrong {
        Some(e) => Err(e),
        None if values == VariableValues::default() => Ok((nodes, inputs, values)),
        None => Ok((map_symints(&nodes, &SymInt::unbound), inputs, values)),
    }
}

/// Slots whose parameter nodes are cached: enough for the largest models in use.
const REMEMBERED: usize = 1024;

thread_local! {
    /// The parameter that each slot had last. Most plans have the same parameters as the one
    /// before, and a comparison is five times cheaper than interning.
    static PARAMETERS: RefCell<Vec<UOp>> = const { RefCell::new(Vec::new()) };
}

/// Returns the parameter of a slot.
fn parameter(slot: usize, dtype: DType, len: usize, device: &DeviceName) -> UOp {
    let is_same = |u: &UOp| {
        u.dtype() == dtype
            && matches!(u.arg(), Arg::Param { len: l, device: d, .. } if *l == len && d == device)
    };
    let make = || UOp::param(slot, len, dtype, device);
    PARAMETERS.with_borrow_mut(|known| match known.get_mut(slot) {
        Some(u) if is_same(u) => u.clone(),
        Some(u) => {
            *u = make();
            u.clone()
        }
        None => {
            let u = make();
            if slot == known.len() && slot < REMEMBERED {
                known.push(u.clone());
            }
            u
        }
    })
}
