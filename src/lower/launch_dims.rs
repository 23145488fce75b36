//! Replaces the ranges of workgroups and of their threads by launch dimensions (`Special`). After
//! this pass the remaining ranges are loops, and the chunks of a CPU.

use crate::dtype::DType;
use crate::ir::{AxisKind, Op, SpecialKind, Src, UOp};
use crate::kernel::{self, extent, is_of_chunk, is_symbolic};
use crate::symbolic::simplify;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Workgroups in each dimension.
    pub grid: [usize; 3],
    /// Threads of a workgroup in each dimension.
    pub local: [usize; 3],
    /// Chunks, each of which is a task of the CPU thread pool.
    pub chunks: usize,
    /// Bytes of scratch memory that each thread of a CPU needs.
    pub scratch: usize,
}

impl Default for Launch {
    fn default() -> Launch {
        Launch { grid: [1; 3], local: [1; 3], chunks: 1, scratch: 0 }
    }
}

/// Replaces ranges by launch dimensions, and returns the shape of the launch and the grid
/// dimensions of symbolic size. `threads` are the ranges of workgroup threads in order.
pub(super) fn launch_dims(
    ast: &UOp,
    threads: &[UOp],
    target: &Target,
) -> (UOp, Launch, Vec<(usize, UOp)>) {
    let mut launch = Launch::default();
    if !target.grid {
        // The stores of a kernel close the range of chunks.
        let is_chunk = |r: &&UOp| r.op() == Op::Range && r.range_kind() == AxisKind::Thread;
        launch.chunks =
            ast.src().iter().flat_map(|s| s.expect_store().ranges).find(is_chunk).map_or(1, extent);
        return (ast.clone(), launch, Vec::new());
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    // No node closes the ranges of shared reductions, so the whole graph is searched.
    let mut all: Vec<UOp> = kernel::axes(ast);
    let mut rest = ast.toposort();
    rest.retain(|u| u.op() == Op::Range && !all.contains(u));
    rest.sort_by_key(|r| r.range_id());
    all.extend(rest);
    let globals: Vec<&UOp> = all
        .iter()
        .filter(|r| matches!(r.range_kind(), AxisKind::Global | AxisKind::Loop))
        // A loop whose length depends on the chunk stays a loop.
        .filter(|r| !is_of_chunk(r))
        .collect();
    launch.grid = dims(&globals, SpecialKind::Group, target.grid_max, &mut map);
    let symbolic = globals.iter().rev().enumerate().filter(|(_, r)| is_symbolic(r));
    let grid: Vec<(usize, UOp)> =
        symbolic.map(|(dim, r)| (dim, r.expect_range().extent.clone())).collect();
    assert!(
        grid.is_empty() || globals.len() <= 3,
        "an axis of a variable has a dimension of its own"
    );
    let mut locals: Vec<&UOp> = all.iter().filter(|r| r.range_kind().is_workgroup()).collect();
    locals.sort_by_key(|r| threads.iter().position(|t| t == *r));
    launch.local = dims(&locals, SpecialKind::Local, target.local_dims, &mut map);
    launch.chunks = all.iter().find(|r| r.range_kind() == AxisKind::Thread).map_or(1, extent);
    if map.is_empty() {
        return (ast.clone(), launch, grid);
    }
    // Stores do not close launch dimensions.
    let ends = |s: &UOp| {
        s.with_src(s.src().iter().filter(|r| !map.contains_key(r)).cloned().collect::<Src>())
    };
    let ast = ast.with_src(ast.src().iter().map(ends).collect::<Src>());
    (simplify(&ast.substitute(&map)), launch, grid)
}

/// Assigns a dimension to each range, the first to the last range, whose neighbours are adjacent in
/// memory. From the third on, ranges share a dimension.
fn dims(
    ranges: &[&UOp],
    kind: SpecialKind,
    most: [usize; 3],
    map: &mut FxHashMap<UOp, UOp>,
) -> [usize; 3] {
    let mut sizes = [1usize; 3];
    let mut place: Vec<Vec<&UOp>> = vec![Vec::new(); 3];
    let mut dim = 0;
    for r in ranges.iter().rev() {
        // The last dimension takes all remaining ranges.
        if dim < 2 && !place[dim].is_empty() {
            dim += 1;
        }
        place[dim].push(r);
        sizes[dim] *= extent(r);
    }
    // If a dimension is too long for the device, all ranges share the first, whose limit is the
    // largest on all devices.
    if sizes.iter().zip(&most).any(|(n, m)| n > m) {
        place = vec![ranges.iter().rev().copied().collect(), Vec::new(), Vec::new()];
        sizes = [sizes.iter().product(), 1, 1];
    }
    for (d, list) in place.iter().enumerate() {
        let whole = UOp::special(kind, d as u8, sizes[d], DType::INDEX);
        let mut stride = 1usize;
        for r in list {
            // The first range of the list varies fastest.
            let mut value = whole.clone();
            if stride > 1 {
                value = &value / stride as i64;
            }
            if stride * extent(r) < sizes[d] {
                value = &value % extent(r) as i64;
            }
            map.insert((*r).clone(), value);
            stride *= extent(r);
        }
    }
    sizes
}
