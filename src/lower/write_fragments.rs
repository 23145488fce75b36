//! Writes the operands of a tensor-core product as vectors of the elements that one thread of the
//! warp holds in its registers. Before the pass an operand is one element, indexed by the ranges of
//! the registers, which are the last operands of the `Wmma`; after it these ranges are gone.

use crate::ir::{Arg, Coordinate, Fragment, Src, ToSrc, UOp};
use crate::symbolic::simplify;
use rustc_hash::FxHashMap;

/// Writes the fragments of all tensor-core products of a kernel.
pub(super) fn write_fragments(ast: &UOp) -> UOp {
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in ast.toposort() {
        if let (Arg::Wmma { core, .. }, [a, b, c, rows, steps]) = (u.arg(), u.src()) {
            let a = vector(a, &core.a, [(rows, &core.a.row), (steps, &core.a.column)]);
            let b = vector(b, &core.b, [(rows, &core.b.column), (steps, &core.b.row)]);
            let src = [a, b, c.clone()].to_src();
            map.insert(u.clone(), u.with_src(src));
        }
    }
    ast.substitute(&map)
}

/// Returns the elements of all registers of a fragment as a vector. `along` maps the ranges of the
/// registers to coordinates of the matrix.
fn vector(element: &UOp, f: &Fragment, along: [(&UOp, &Coordinate); 2]) -> UOp {
    let at = |register: usize| {
        let place = |(r, c): &(&UOp, &Coordinate)| {
            ((*r).clone(), UOp::int(c.of_register(register) / c.run().0))
        };
        simplify(&element.substitute(&along.iter().map(place).collect()))
    };
    let elements: Src = (0..f.registers()).map(at).collect();
    UOp::vectorize(elements)
}
