//! Copies the tiles of staged loads to shared memory, or on a CPU to memory of the thread, at the
//! loop that the load names; the load then reads the copy.
//!
//! The threads of a workgroup copy together, adjacent threads adjacent addresses, with barriers
//! before and after the copy. The mask of the load moves to the copy, so the tile holds the
//! alternative value where the mask is false.

use super::vectorize::has_unit_stride;
use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Arg, AxisKind, LoadHint, Src, UOp, next_range};
use crate::kernel::{self, Tile, TileAxis, extent, next_shared, tiles};
use crate::symbolic::{Linear, simplify};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Builds the tiles of a kernel. `threads` are the ranges of workgroup threads in the order in
/// which they copy.
pub(super) fn stage(ast: &UOp, threads: &[UOp], target: &Target) -> UOp {
    let tiles = tiles(ast, target).unwrap_or_else(|e| {
        panic!("stage: the optimizer marked a load that cannot be staged: {e}")
    });
    let order = ast.toposort();
    let (mut next, first) = (next_range(&order), next_shared(&order));
    let memory: Vec<UOp> = (first..)
        .zip(&tiles)
        .map(|(id, tile)| UOp::define_shared(id, tile.len, tile.load.dtype()))
        .collect();
    let mut copy = |tile, memory| TileCopy::new(tile, threads, target, &mut next).build(memory);
    let copies: Vec<UOp> = tiles.iter().zip(&memory).map(|(t, m)| copy(t, m)).collect();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for (tile, memory) in tiles.iter().zip(&memory) {
        // One barrier for all copies in the same loops.
        let together = tiles.iter().zip(&copies).filter(|(other, _)| other.loops == tile.loops);
        let copied = UOp::barrier(together.map(|(_, store)| store.clone()).collect::<Src>());
        let index = simplify(&sum(tile.axes.iter().map(|a| &a.range * a.tile_stride as i64)));
        map.insert(tile.load.clone(), memory.at(index).load_after(&copied));
    }
    // Thread positions are open to the end of the kernel, also where a reduction that they share is
    // closed.
    let open = |s: &UOp| {
        let closed = s.expect_store().ranges;
        let open = threads.iter().filter(|r| !closed.contains(r));
        s.with_src(s.src().iter().chain(open).cloned().collect::<Src>())
    };
    let ast = ast.substitute(&map);
    ast.with_src(ast.src().iter().map(open).collect::<Src>())
}

/// Returns the side of the squares that a copy transposes in registers, if the tile is contiguous
/// along another axis than the input: at most `lanes`, and a divisor of that axis. 1 if it is none.
fn transposed_side(rest: &[&TileAxis], lanes: usize, target: &Target) -> usize {
    let Some(a) = rest.iter().find(|a| a.tile_stride == 1) else { return 1 };
    let most = lanes.min(kernel::max_lanes(target)).max(1);
    let side = most.min(1 << extent(&a.range).trailing_zeros().min(16));
    if side < MIN_TRANSPOSED { 1 } else { side }
}

/// Minimum side of a square that is transposed in registers. Structural: below it, shuffles are no
/// fewer than single loads.
const MIN_TRANSPOSED: usize = 4;

fn sum(terms: impl Iterator<Item = UOp>) -> UOp {
    terms.reduce(|a, b| a + b).unwrap_or_else(|| UOp::int(0))
}

/// Returns the number of elements along axes.
fn size(axes: &[&TileAxis]) -> usize {
    axes.iter().map(|a| extent(&a.range)).product()
}

/// The copy of one tile, while it is built.
struct TileCopy<'a> {
    tile: &'a Tile,
    threads: &'a [UOp],
    target: &'a Target,
    /// The number of the next range.
    next: &'a mut u32,
    /// The ranges that the store of the copy closes.
    closes: Vec<UOp>,
    /// The copied index along the range of each axis.
    coordinates: FxHashMap<UOp, UOp>,
    /// True for the threads that copy an element, if not all do.
    mask: Option<UOp>,
    /// The elements of a square that is transposed in registers, along its sides; 1 if the copy
    /// transposes nothing.
    across: usize,
}

impl<'a> TileCopy<'a> {
    fn new(tile: &'a Tile, threads: &'a [UOp], target: &'a Target, next: &'a mut u32) -> Self {
        let (closes, coordinates) = (Vec::new(), FxHashMap::default());
        TileCopy { tile, threads, target, next, closes, coordinates, mask: None, across: 1 }
    }

    /// Returns a new range of the copy, which is unrolled or a loop.
    fn range(&mut self, size: usize, unrolled: bool) -> UOp {
        *self.next += 1;
        let kind = if unrolled { AxisKind::Upcast } else { AxisKind::Reduce };
        UOp::range(size as i64, *self.next - 1, kind)
    }

    /// Returns the axes along which the input is contiguous, fastest first, and the others by
    /// increasing stride.
    fn runs(&self) -> (Vec<&'a TileAxis>, Vec<&'a TileAxis>) {
        let mut rest: Vec<&TileAxis> = self.tile.axes.iter().rev().collect();
        rest.sort_by_key(|a| {
            a.input_stride.map(i64::unsigned_abs).filter(|s| *s > 0).unwrap_or(u64::MAX)
        });
        let (mut run, mut len) = (Vec::new(), 1);
        while let Some(i) = rest.iter().position(|a| a.input_stride == Some(len)) {
            len *= extent(&rest[i].range) as i64;
            run.push(rest.remove(i));
        }
        (run, rest)
    }

    /// Builds the store that fills the tile in `memory`.
    fn build(mut self, memory: &UOp) -> UOp {
        let (mut run, mut rest) = self.runs();
        let is_along =
            |run: &[&TileAxis]| run.iter().all(|a| a.input_stride == Some(a.tile_stride as i64));
        // The axis along which only the tile is contiguous is the other side of a transpose.
        if !is_along(&run) && !self.target.grid {
            let other = run.iter().position(|a| a.tile_stride == 1).unwrap_or(run.len());
            rest.extend(run.drain(other.max(1)..));
        }
        // True if the run is contiguous in the tile too.
        let along = is_along(&run);
        let length = size(&run);
        let mut lanes = self.lanes(length);
        if !along && !self.target.grid {
            self.across = transposed_side(&rest, lanes, self.target);
            lanes = self.across;
        }
        let lane = (lanes > 1).then(|| self.range(lanes, true));
        let vector = match self.target.grid {
            true => self.vector_of_thread(length / lanes, &rest),
            false => self.vector_of_loops(length / lanes, &rest),
        };
        let position = match &lane {
            Some(lane) => vector * lanes as i64 + lane,
            None => vector,
        };
        self.closes.extend(lane);
        let mut inner = 1;
        for (i, a) in run.iter().enumerate() {
            let n = extent(&a.range) as i64;
            let past = &position / inner;
            let at = if i + 1 == run.len() { past } else { past % n };
            self.coordinates.insert(a.range.clone(), at);
            inner *= n;
        }
        let offset = |axes: &[&TileAxis]| {
            sum(axes.iter().map(|a| &self.coordinates[&a.range] * a.tile_stride as i64))
        };
        let start = if along { position.clone() } else { offset(&run) };
        let to = start + offset(&rest);
        let value = self.value(&position, &rest);
        // All threads have read the tile of the previous iteration before it is overwritten.
        if self.target.grid && !self.tile.loops.is_empty() {
            self.closes.push(UOp::barrier(self.tile.loops.iter().cloned().collect::<Src>()));
        }
        let place = UOp::masked_index(memory, simplify(&to), self.mask.clone());
        self.with_lanes(place.store(value, &self.closes))
    }

    /// Returns the vector of the run that a thread of the workgroup copies, and sets its
    /// coordinates along the other axes.
    fn vector_of_thread(&mut self, vectors: usize, rest: &[&TileAxis]) -> UOp {
        let count = vectors * size(rest);
        let threads: usize = self.threads.iter().map(extent).product();
        let iterations = count.div_ceil(threads);
        let mut number = self.threads.iter().fold(UOp::int(0), |sum, r| sum * extent(r) as i64 + r);
        if iterations > 1 {
            let r = self.range(iterations, iterations <= self.target.tuning.copy_unroll);
            number = &r * threads as i64 + number;
            self.closes.push(r);
        }
        if !count.is_multiple_of(threads) {
            self.mask = Some(number.lt(count as i64));
        }
        let mut left = &number / vectors as i64;
        for (i, a) in rest.iter().enumerate() {
            let n = extent(&a.range) as i64;
            let is_last = i + 1 == rest.len() && self.mask.is_none();
            self.coordinates
                .insert(a.range.clone(), if is_last { left.clone() } else { &left % n });
            left = left / n;
        }
        if rest.is_empty() && self.mask.is_none() { number } else { number % vectors as i64 }
    }

    /// Returns the vector of the run that an iteration of the copy loops copies, and sets its
    /// coordinates along the other axes. The loops are in the order of the tile's layout.
    fn vector_of_loops(&mut self, vectors: usize, rest: &[&TileAxis]) -> UOp {
        let mut slow = rest.to_vec();
        slow.sort_by_key(|a| std::cmp::Reverse(a.tile_stride));
        for a in slow {
            let n = extent(&a.range);
            let across = if a.tile_stride == 1 { self.across } else { 1 };
            let r = self.range(n / across, false);
            self.closes.push(r.clone());
            let mut coordinate = r;
            if across > 1 {
                let inner = self.range(across, true);
                coordinate = coordinate * across as i64 + &inner;
                self.closes.push(inner);
            }
            self.coordinates.insert(a.range.clone(), coordinate);
        }
        if vectors == 1 {
            return UOp::int(0);
        }
        let unrolled = self.across == 1 && vectors <= self.target.tuning.copy_unroll;
        let r = self.range(vectors, unrolled);
        self.closes.push(r.clone());
        r
    }

    /// Marks the range of a copy that becomes vector lanes: one along which the tile is stored with
    /// unit stride, or two elements that are loaded so.
    fn with_lanes(&self, copy: UOp) -> UOp {
        let Store { place, value, ranges, .. } = copy.expect_store();
        let is_lanes = |r: &&UOp| {
            let Some(lanes) = kernel::lanes_of(extent(r), self.target) else { return false };
            let loaded = value.as_load().is_some_and(|load| has_unit_stride(load.place, r));
            has_unit_stride(place, r) || (loaded && lanes == 2)
        };
        let unrolled = |r: &&UOp| r.as_range().is_some_and(|r| r.kind == AxisKind::Upcast);
        let Some(r) = ranges.iter().filter(unrolled).find(is_lanes).cloned() else {
            return copy;
        };
        copy.substitute(&FxHashMap::from_iter([(r.clone(), r.with_lanes(true))]))
    }

    /// Builds the load at the coordinates of the copy.
    fn value(&self, position: &UOp, rest: &[&TileAxis]) -> UOp {
        let (tile, coordinates) = (self.tile, &self.coordinates);
        let Load { node: load, place: Index { buffer, index, mask, .. }, alt, .. } =
            tile.load.expect_load();
        let index = if tile.axes.iter().all(|a| a.input_stride.is_some()) {
            // Along the run the index is the position, which may consist of several axes.
            let origin = tile.axes.iter().map(|a| (a.range.clone(), UOp::int(0))).collect();
            let others =
                sum(rest.iter().map(|a| &coordinates[&a.range] * a.input_stride.unwrap_or(0)));
            index.substitute(&origin) + position + others
        } else {
            index.substitute(coordinates)
        };
        let mask = match (mask.map(|mask| mask.substitute(coordinates)), &self.mask) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or_else(|| b.clone()),
        };
        let alt = mask
            .as_ref()
            .map(|_| alt.cloned().unwrap_or_else(|| UOp::constant(0i64, load.dtype())));
        let place = UOp::masked_index(buffer, simplify(&index), mask.as_ref().map(simplify));
        // A prefetch moves to the innermost loop in each of whose iterations the tile is copied.
        let arg = match (load.arg(), tile.loops.last()) {
            (Arg::LoadHint(LoadHint { prefetch_in: Some(_), .. }), Some(r)) => {
                Arg::LoadHint(LoadHint { prefetch_in: Some(r.range_id()), ..LoadHint::default() })
            }
            _ => Arg::None,
        };
        simplify(&Load::build(load.dtype(), arg, place, alt, []))
    }

    /// Returns the elements per vector of the copy: a divisor of the run, and aligned where the
    /// target requires it.
    fn lanes(&self, run: usize) -> usize {
        let item = if self.target.grid { self.tile.load.dtype().itemsize() } else { 4 };
        let most = self.target.vector_bytes / item;
        let most = most.min(self.target.max_lanes as usize).max(1);
        let in_run = |t: &UOp| {
            let stride = |a: &TileAxis| a.input_stride.is_some_and(|g| g > 0 && g < run as i64);
            self.tile.axes.iter().any(|a| a.range == *t && stride(a))
        };
        let linear = Linear::of(self.tile.load.expect_load().place.index);
        let aligned = |n: usize| {
            let Some(linear) = &linear else { return false };
            let others = linear.terms.iter().filter(|t| !in_run(&t.0)).map(|t| t.1);
            !self.target.grid || others.chain([linear.constant]).all(|k| k % n as i64 == 0)
        };
        let mut n = most.next_power_of_two();
        while n > 1 && (n > most || !run.is_multiple_of(n) || !aligned(n)) {
            n /= 2;
        }
        n
    }
}
