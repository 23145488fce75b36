//! Facts about kernels that the optimizer and lowering share: axes and their extents, accesses and
//! their strides, masked terms of reductions, tiles of staged loads, and the replacement of ranges.
//!
//! A kernel is a `Sink` of stores. Everything here is derived from that graph alone, so that no
//! pass of lowering has to know which `Opt`s made it.

mod access;
mod axes;
mod cost;
mod lanes;
mod mask;
mod multiple;
mod outer_reduce;
mod ranges;
mod scratch;
mod threads;
mod tile;

pub use access::{
    Access, MAX_JOINED_STRIDE, accesses, accesses_in, has_unit_stride_load, index_stride, stride,
};
#[cfg(feature = "testing")]
pub use axes::color;
pub use axes::{axes, colored_name, extent, is_symbolic, name, next_shared, sizes};
pub use cost::expanded_cost;
pub use lanes::{
    can_be_lanes, copied_ranges, have_common_user, lanes_of, max_lanes, split_to_lanes,
};
pub use mask::{lane_mask, lane_multiples, masked_term};
pub use multiple::is_multiple;
pub use outer_reduce::{
    accumulator_bytes, loops_inside, loops_of_accumulator, outer_reduce, reductions_over,
    store_for_accumulator,
};
pub use ranges::{chunk_extent, is_of_chunk, pad_range, replace_range};
pub use scratch::{SCRATCH_ALIGN, ScratchLayout};
pub use threads::{thread_order, warp_last, with_thread_order, without_thread_order};
pub use tile::{Tile, TileAxis, tile_of, tiles};
