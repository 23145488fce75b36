//! Copies the tiles of staged loads to shared memory, or on a CPU to memory of the thread, at the
//! loop that the load names; the load then reads the copy.
//!
//! The threads of a workgroup copy together, adjacent threads adjacent addresses, with barriers
//! before and after the copy. The mask of the load moves to the copy, so the tile holds the
//! alternative value where the mask is false.

use super::launch_dims::thread_order;
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, LoadHint, Op, Src, ToSrc, UOp, next_range};
use crate::kernel::{self, Tile, TileAxis, extent, next_shared, tiles};
use crate::symbolic::{Linear, simplify};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Iterations of a copy that are unrolled, so that their loads overlap.
const TOGETHER: usize = 8;

/// Builds the tiles of a kernel, and returns the ranges of its threads by number, in the order in
/// which they copy.
pub(super) fn stage(ast: &UOp, target: &Target) -> (UOp, Vec<u32>) {
    let tiles = tiles(ast, target).unwrap_or_else(|e| {
        panic!("stage: the optimizer marked a load that cannot be staged: {e}")
    });
    let threads = if target.grid { thread_order(ast) } else { Vec::new() };
    let mut next = next_range(&ast.toposort());
    let mut copies: Vec<(Vec<UOp>, UOp)> = Vec::new();
    let mut locals: Vec<UOp> = Vec::new();
    let first = next_shared(&ast.toposort());
    for (id, tile) in (first..).zip(&tiles) {
        let local = UOp::new(
            Op::DefineShared,
            tile.load.dtype(),
            Src::new(),
            Arg::Shared { id, len: tile.len },
        );
        copies.push((
            tile.loops.clone(),
            Copy { tile, threads: &threads, target, next: &mut next }.build(&local),
        ));
        locals.push(local);
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for (tile, local) in tiles.iter().zip(&locals) {
        // One barrier for all copies in the same loops.
        let stores: Src =
            copies.iter().filter(|c| c.0 == tile.loops).map(|c| c.1.clone()).collect();
        let ready = UOp::new(Op::Barrier, DType::VOID, stores, Arg::None);
        let index = simplify(&sum(tile.axes.iter().map(|a| &a.range * a.local as i64)));
        let load = UOp::new(
            Op::Load,
            tile.load.dtype(),
            [place(local, index, None), ready].to_src(),
            Arg::None,
        );
        map.insert(tile.load.clone(), load);
    }
    // Positions of threads are open to the end of the kernel, also where a reduce that they share
    // is closed.
    let open = |s: &UOp| {
        s.with_src(
            s.src()
                .iter()
                .chain(threads.iter().filter(|r| !s.src()[2..].contains(r)))
                .cloned()
                .collect::<Src>(),
        )
    };
    let ast = ast.substitute(&map);
    (
        ast.with_src(ast.src().iter().map(open).collect::<Src>()),
        threads.iter().map(UOp::range_id).collect(),
    )
}

fn place(buffer: &UOp, index: UOp, valid: Option<UOp>) -> UOp {
    UOp::new(
        Op::Index,
        buffer.dtype(),
        [buffer.clone(), index].into_iter().chain(valid).collect::<Src>(),
        Arg::None,
    )
}

fn sum(terms: impl Iterator<Item = UOp>) -> UOp {
    terms.reduce(|a, b| a + b).unwrap_or_else(|| UOp::int(0))
}

/// The copy of one tile.
struct Copy<'a> {
    tile: &'a Tile,
    threads: &'a [UOp],
    target: &'a Target,
    /// The number of the next range.
    next: &'a mut u32,
}

impl Copy<'_> {
    fn range(&mut self, size: usize, written_out: bool) -> UOp {
        *self.next += 1;
        UOp::range(
            size as i64,
            *self.next - 1,
            if written_out { AxisKind::Upcast } else { AxisKind::Reduce },
        )
    }

    /// The axes along which the input runs without a gap, fastest first, and the others from near
    /// to far.
    fn runs(&self) -> (Vec<&TileAxis>, Vec<&TileAxis>) {
        let mut rest: Vec<&TileAxis> = self.tile.axes.iter().rev().collect();
        rest.sort_by_key(|a| {
            a.global.map(i64::unsigned_abs).filter(|s| *s > 0).unwrap_or(u64::MAX)
        });
        let (mut run, mut len) = (Vec::new(), 1);
        while let Some(i) = rest.iter().position(|a| a.global == Some(len)) {
            len *= extent(&rest[i].range) as i64;
            run.push(rest.remove(i));
        }
        (run, rest)
    }

    /// The store that fills the tile.
    fn build(&mut self, local: &UOp) -> UOp {
        let (run, rest) = self.runs();
        let size =
            |axes: &[&TileAxis]| -> usize { axes.iter().map(|a| extent(&a.range)).product() };
        let (run, rest): (Vec<TileAxis>, Vec<TileAxis>) =
            (run.into_iter().cloned().collect(), rest.into_iter().cloned().collect());
        let length = size(&run.iter().collect::<Vec<_>>());
        // Does the tile run along with the input?
        let along = run.iter().all(|a| a.global == Some(a.local as i64));
        let lanes = if along || self.target.grid { self.lanes(length) } else { 1 };
        let lane = (lanes > 1).then(|| self.range(lanes, true));
        let mut closes: Vec<UOp> = Vec::new();
        let mut inside: Option<UOp> = None;
        let mut coordinates: FxHashMap<UOp, UOp> = FxHashMap::default();
        let vectors = length / lanes;
        let at = if self.target.grid {
            let count = vectors * size(&rest.iter().collect::<Vec<_>>());
            let threads: usize = self.threads.iter().map(extent).product();
            let steps = count.div_ceil(threads);
            let mut number =
                self.threads.iter().fold(UOp::int(0), |sum, r| sum * extent(r) as i64 + r);
            if steps > 1 {
                let step = self.range(steps, steps <= TOGETHER);
                number = &step * threads as i64 + number;
                closes.push(step);
            }
            if !count.is_multiple_of(threads) {
                inside = Some(number.lt(count as i64));
            }
            let at = if rest.is_empty() && inside.is_none() {
                number.clone()
            } else {
                &number % vectors as i64
            };
            let mut left = &number / vectors as i64;
            for (i, a) in rest.iter().enumerate() {
                let n = extent(&a.range) as i64;
                let whole = i + 1 == rest.len() && inside.is_none();
                coordinates.insert(a.range.clone(), if whole { left.clone() } else { &left % n });
                left = left / n;
            }
            at
        } else {
            // In the order in which the tile lies.
            let mut slow = rest.clone();
            slow.sort_by_key(|a| std::cmp::Reverse(a.local));
            for a in &slow {
                let r = self.range(extent(&a.range), false);
                coordinates.insert(a.range.clone(), r.clone());
                closes.push(r);
            }
            match vectors {
                1 => UOp::int(0),
                n => {
                    let r = self.range(n, n <= TOGETHER);
                    closes.push(r.clone());
                    r
                }
            }
        };
        let position = match &lane {
            Some(v) => at * lanes as i64 + v,
            None => at,
        };
        closes.extend(lane);
        let mut inner = 1;
        for (i, a) in run.iter().enumerate() {
            let n = extent(&a.range) as i64;
            let past = &position / inner;
            coordinates.insert(a.range.clone(), if i + 1 == run.len() { past } else { past % n });
            inner *= n;
        }
        let of =
            |axes: &[TileAxis]| sum(axes.iter().map(|a| &coordinates[&a.range] * a.local as i64));
        let to = if along { &position + of(&rest) } else { of(&run) + of(&rest) };
        let value = self.value(&position, &rest, &coordinates, inside.as_ref());
        let mut src: Src = [place(local, simplify(&to), inside), value].to_src();
        src.extend(closes);
        // Nobody may still be reading what the last turn of the loop has left there.
        if self.target.grid && !self.tile.loops.is_empty() {
            src.push(UOp::new(
                Op::Barrier,
                DType::VOID,
                self.tile.loops.iter().cloned().collect::<Src>(),
                Arg::None,
            ));
        }
        self.with_lanes(UOp::new(Op::Store, DType::VOID, src, Arg::None))
    }

    /// Marks the range of a copy that becomes vector lanes: one along which the tile is stored with
    /// unit stride, or two elements that are loaded so.
    fn with_lanes(&self, store: UOp) -> UOp {
        let unit_stride = |place: &UOp, r: &UOp| {
            kernel::step(&place.src()[1], r) == Some(1)
                && !place.src().get(2).is_some_and(|mask| mask.uses_range(r.range_id()))
        };
        let value = &store.src()[1];
        let is_lanes = |r: &&UOp| {
            let Some(lanes) = kernel::lanes_of(extent(r), self.target) else { return false };
            let loaded = value.op() == Op::Load && unit_stride(&value.src()[0], r);
            unit_stride(&store.src()[0], r) || (loaded && lanes == 2)
        };
        let copied = |r: &&UOp| r.op() == Op::Range && r.range_kind() == AxisKind::Upcast;
        let Some(r) = store.src()[2..].iter().filter(copied).find(is_lanes).cloned() else {
            return store;
        };
        store.substitute(&FxHashMap::from_iter([(r.clone(), r.with_lanes(true))]))
    }

    /// The load at the places of the copy.
    fn value(
        &self,
        position: &UOp,
        rest: &[TileAxis],
        coordinates: &FxHashMap<UOp, UOp>,
        inside: Option<&UOp>,
    ) -> UOp {
        let load = &self.tile.load;
        let from = &load.src()[0];
        let index = if self.tile.axes.iter().all(|a| a.global.is_some()) {
            // Along the run the place is the position itself, whatever axes that is made of.
            let origin = self.tile.axes.iter().map(|a| (a.range.clone(), UOp::int(0))).collect();
            let others = sum(rest.iter().map(|a| &coordinates[&a.range] * a.global.unwrap_or(0)));
            from.src()[1].substitute(&origin) + position + others
        } else {
            from.src()[1].substitute(coordinates)
        };
        let valid = from.src().get(2).map(|v| v.substitute(coordinates));
        let valid = match (valid, inside) {
            (Some(v), Some(i)) => Some(v.and(i)),
            (v, i) => v.or_else(|| i.cloned()),
        };
        let mut src: Src =
            [place(&from.src()[0], simplify(&index), valid.as_ref().map(simplify))].to_src();
        if valid.is_some() {
            src.push(
                load.src().get(1).cloned().unwrap_or_else(|| UOp::constant(0i64, load.dtype())),
            );
        }
        // A turn ahead in the innermost loop in which there is a copy for each turn.
        let arg = match (load.arg(), self.tile.loops.last()) {
            (Arg::LoadHint(LoadHint { prefetch_in: Some(_), .. }), Some(r)) => {
                Arg::LoadHint(LoadHint { prefetch_in: Some(r.range_id()), ..LoadHint::default() })
            }
            _ => Arg::None,
        };
        simplify(&UOp::new(Op::Load, load.dtype(), src, arg))
    }

    /// Elements that are copied at once: they divide the run, and where vectors have to be aligned
    /// they are.
    fn lanes(&self, run: usize) -> usize {
        let item = self.tile.load.dtype().itemsize();
        let most = if self.target.grid {
            self.target.vector_bytes / item
        } else {
            self.target.vector_bytes / 4
        };
        let most = most.min(self.target.max_lanes as usize).max(1);
        let aligned = |n: usize| {
            let Some(linear) = Linear::of(&self.tile.load.src()[0].src()[1]) else { return false };
            let in_run = |t: &UOp| {
                self.tile
                    .axes
                    .iter()
                    .any(|a| a.range == *t && a.global.is_some_and(|g| g > 0 && g < run as i64))
            };
            !self.target.grid
                || linear
                    .terms
                    .iter()
                    .filter(|t| !in_run(&t.0))
                    .map(|t| t.1)
                    .chain([linear.constant])
                    .all(|k| k % n as i64 == 0)
        };
        let mut n = most.next_power_of_two();
        while n > 1 && (n > most || !run.is_multiple_of(n) || !aligned(n)) {
            n /= 2;
        }
        n
    }
}
