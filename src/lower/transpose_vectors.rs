//! Replaces vectors that are made of single lanes of other vectors by shuffles of whole vectors.
//!
//! Where a vector has the same lane of m vectors, it is a column of the matrix that these are the
//! rows of, and all columns together are its transpose: log₂ m rounds, each of which shuffles pairs
//! of vectors (in-register transpose). A vector of lanes of up to four vectors, such as every
//! second element of two, takes one shuffle less than it has sources.
//!
//! After this pass a `Vectorize` of vectors has two operands of one dtype, and only `Gep` uses it:
//! together they are a two-source shuffle.
//!
//! ```text
//! vectorize(a.lane(0), b.lane(0)), vectorize(a.lane(1), b.lane(1))
//! =>
//! gep(vectorize(a, b), [0, 2]), gep(vectorize(a, b), [1, 3])
//! ```

use crate::ir::{Op, ToSrc, UOp};
use rustc_hash::FxHashMap;

/// Maximum number of vectors whose lanes are merged into one by shuffles. Structural: with more of
/// them, most shuffles would move one lane.
const MAX_SOURCES: usize = 4;

/// The bytes within which a CPU interleaves lanes of two registers.
const BLOCK_BYTES: usize = 16;

/// Replaces the vectors of a kernel.
pub(super) fn transpose_vectors(ast: &UOp) -> UOp {
    let mut transposes: FxHashMap<Vec<u64>, Vec<UOp>> = FxHashMap::default();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in ast.toposort().iter().filter(|u| u.op() == Op::Vectorize) {
        let Some(lanes) = picked_lanes(u) else { continue };
        let mut sources: Vec<&UOp> = Vec::new();
        for (source, _) in &lanes {
            if !sources.contains(source) {
                sources.push(source);
            }
        }
        if sources.iter().any(|s| s.dtype() != sources[0].dtype()) {
            continue;
        }
        let is_column = sources.len() == lanes.len() && lanes.iter().all(|l| l.1 == lanes[0].1);
        let new = match (is_column, sources.as_slice()) {
            (_, [source]) => pick(source, lanes.iter().map(|l| l.1).collect()),
            (true, _) if sources.len().is_power_of_two() => {
                let ids = sources.iter().map(|s| s.id()).collect();
                let columns = transposes.entry(ids).or_insert_with(|| transpose(&sources));
                columns[lanes[0].1 as usize].clone()
            }
            (_, several) if several.len() <= MAX_SOURCES => merge(&lanes),
            _ => continue,
        };
        map.insert(u.clone(), new);
    }
    if map.is_empty() { ast.clone() } else { ast.substitute(&map) }
}

/// Returns the source vector and the lane of each operand, if all are single lanes.
fn picked_lanes(u: &UOp) -> Option<Vec<(&UOp, u16)>> {
    let lane = |s| {
        let gep = UOp::as_gep(s)?;
        let [lane] = gep.lanes else { return None };
        (!gep.x.dtype().is_bool()).then_some((gep.x, *lane))
    };
    u.src().iter().map(lane).collect()
}

/// Returns lanes of a vector, in this order.
fn pick(x: &UOp, lanes: Vec<u16>) -> UOp {
    let all = lanes.iter().copied().eq(0..x.dtype().lanes);
    if all { x.clone() } else { x.gep(lanes) }
}

/// Returns lanes of two vectors, counted through both.
fn shuffle(a: &UOp, b: &UOp, lanes: Vec<u16>) -> UOp {
    UOp::vectorize([a.clone(), b.clone()].to_src()).gep(lanes)
}

/// Returns the concatenation of two vectors.
fn concatenate(a: &UOp, b: &UOp) -> UOp {
    shuffle(a, b, (0..2 * a.dtype().lanes).collect())
}

/// Returns a vector of lanes of a few vectors.
fn merge(lanes: &[(&UOp, u16)]) -> UOp {
    let width = lanes[0].0.dtype().lanes;
    if lanes.len() > width as usize {
        let (a, b) = lanes.split_at(lanes.len() / 2);
        return concatenate(&merge(a), &merge(b));
    }
    let count = lanes.len() as u16;
    // Where each lane of the result is so far: in its source or, once merged, at its place.
    let mut merged: Option<(UOp, Vec<bool>)> = None;
    let mut done: Vec<&UOp> = Vec::new();
    for (source, _) in lanes {
        if done.contains(source) {
            continue;
        }
        done.push(source);
        let own: Vec<bool> = lanes.iter().map(|l| l.0 == *source).collect();
        merged = Some(match merged {
            None => ((*source).clone(), own),
            Some((before, had)) => {
                let first = done.len() == 2;
                let from = |i: usize| match () {
                    _ if i < lanes.len() && own[i] => width + lanes[i].1,
                    _ if i < lanes.len() && had[i] && first => lanes[i].1,
                    // Lanes that are not known yet may have any value.
                    _ => i as u16,
                };
                let picked = (0..width as usize).map(from).collect();
                let had = had.iter().zip(&own).map(|(a, b)| *a || *b).collect();
                (shuffle(&before, source, picked), had)
            }
        });
    }
    let (vector, _) = merged.expect("a vector has lanes");
    match done.len() {
        1 => pick(&vector, lanes.iter().map(|l| l.1).collect()),
        _ => pick(&vector, (0..count).collect()),
    }
}

/// A vector in the middle of a transpose: its value, and the row and column of each lane.
type Register = (UOp, Vec<(usize, u16)>);

/// Returns the columns of the matrix with these rows. Their number is a power of two.
fn transpose(rows: &[&UOp]) -> Vec<UOp> {
    let width = rows[0].dtype().lanes;
    if rows.len() > width as usize {
        let (a, b) = rows.split_at(rows.len() / 2);
        let halves = transpose(a).into_iter().zip(transpose(b));
        return halves.map(|(a, b)| concatenate(&a, &b)).collect();
    }
    let block = (BLOCK_BYTES / rows[0].dtype().scalar().itemsize()).max(1).min(width as usize);
    let start = |(r, row): (usize, &&UOp)| ((*row).clone(), (0..width).map(|c| (r, c)).collect());
    let mut registers: Vec<Register> = rows.iter().enumerate().map(start).collect();
    let mut step = 1;
    while step < rows.len() {
        for i in (0..rows.len()).filter(|i| i & step == 0) {
            let [low, high] = halves(width as usize, step, block);
            let (a, b) = (registers[i].clone(), registers[i | step].clone());
            registers[i] = shuffled(&a, &b, low);
            registers[i | step] = shuffled(&a, &b, high);
        }
        step *= 2;
    }
    let column = |c: u16| {
        let of_row = |(_, places): &&Register, r: usize| places.iter().position(|p| *p == (r, c));
        let register = registers.iter().find(|x| of_row(x, 0).is_some());
        let register = register.expect("a shuffle drops no lane");
        let lanes = (0..rows.len()).map(|r| of_row(&register, r).expect("a column is together"));
        pick(&register.0, lanes.map(|l| l as u16).collect())
    };
    (0..width).map(column).collect()
}

/// Returns the lanes that a round takes from a pair of vectors: runs of `step` lanes of both in
/// turn, within blocks; of runs that are longer than a block, every second block of the first and
/// then of the second.
fn halves(width: usize, step: usize, block: usize) -> [Vec<u16>; 2] {
    [0, 1].map(|half| {
        let mut lanes = Vec::with_capacity(width);
        if step < block {
            for start in (0..width).step_by(block) {
                for run in (0..block / 2).step_by(step) {
                    let from = start + half * block / 2 + run;
                    lanes.extend(from..from + step);
                    lanes.extend(width + from..width + from + step);
                }
            }
        } else {
            for source in [0, width] {
                for start in (half * block..width).step_by(2 * block) {
                    lanes.extend(source + start..source + start + block);
                }
            }
        }
        lanes.into_iter().map(|l| l as u16).collect()
    })
}

fn shuffled(a: &Register, b: &Register, lanes: Vec<u16>) -> Register {
    let both: Vec<(usize, u16)> = a.1.iter().chain(&b.1).copied().collect();
    let places = lanes.iter().map(|l| both[*l as usize]).collect();
    (shuffle(&a.0, &b.0, lanes), places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn columns_of_every_shape_are_complete() {
        for dtype in [DType::F32, DType::F64, DType::U8] {
            for (rows, width) in [(2, 2), (4, 4), (8, 8), (16, 16), (4, 16), (8, 16), (16, 8)] {
                let named = |r: usize| UOp::variable(format!("v{r}").into(), 0, 1, dtype);
                let vectors: Vec<UOp> = (0..rows)
                    .map(|r| {
                        UOp::vectorize(
                            vec![named(r); width].into_iter().collect::<crate::ir::Src>(),
                        )
                    })
                    .collect();
                let columns = transpose(&vectors.iter().collect::<Vec<_>>());
                assert_eq!(columns.len(), width, "{dtype} {rows}x{width}");
                for column in columns {
                    assert_eq!(column.dtype(), dtype.vec(rows as u16), "{dtype} {rows}x{width}");
                }
            }
        }
    }
}
