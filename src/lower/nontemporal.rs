//! The pass `nontemporal`. Input: a kernel whose stores may have the hint `nontemporal`. Output:
//! the hint remains on the stores that a CPU executes past its caches: of vectors of whole cache
//! lines, to a buffer that does not fit in L2 and that the kernel does not read. A part of a line
//! would be read from memory first, and the parts of a line that two vectors of AVX2 write may not
//! be adjacent in time.
//!
//! **Invariant:** a store with the hint writes whole lines if its buffer starts at a line.

use crate::ir::typed::{Index, Store};
use crate::ir::{Arg, Op, UOp};
use crate::kernel::is_multiple;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Removes the hints of all other stores.
pub fn nontemporal(ast: &UOp, target: &Target) -> UOp {
    let order = ast.toposort();
    let keeps = |store: &Store| {
        target.machine.nontemporal_stores
            && !target.grid
            && target.vector_bytes >= target.machine.line_bytes
            && stores_lines(store, target)
            && !order
                .iter()
                .any(|u| u.as_load().is_some_and(|l| l.place.buffer == store.place.buffer))
    };
    let plain = |u: &&UOp| u.is_nontemporal() && !u.as_store().is_some_and(|s| keeps(&s));
    let map: FxHashMap<UOp, UOp> =
        order.iter().filter(plain).map(|u| (u.clone(), u.with_arg(Arg::None))).collect();
    if map.is_empty() { ast.clone() } else { ast.substitute(&map) }
}

/// Returns true if a store writes whole lines of a buffer that does not fit in L2.
fn stores_lines(store: &Store, target: &Target) -> bool {
    let Store { place: Index { buffer, index, mask, .. }, value, .. } = store;
    let dtype = value.dtype();
    let (line, size) = (target.machine.line_bytes, dtype.scalar().itemsize());
    let bytes = buffer.memory_len().unwrap_or(0) * size;
    buffer.op() == Op::DefineGlobal
        && mask.is_none()
        && !dtype.is_bool()
        && bytes > target.machine.cache_bytes[1]
        && line > 0
        && (dtype.lanes as usize * size).is_multiple_of(line)
        && is_multiple(index, (line / size) as i64)
}
