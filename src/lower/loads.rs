//! Loads that lie side by side become one of a vector, where a target has no use for each on its own: the copies that a thread makes of a load when a range is written
//! out. A CPU broadcasts from memory for nothing; a GPU pays for every load.

use crate::dtype::DType;
use crate::ir::{Arg, Op, Src, ToSrc, UOp};
use crate::symbolic::{Linear, simplify};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Loads of one buffer whose places differ by literals: the place of one of them, what they share, and each with its literal.
struct Group {
    place: UOp,
    shared: Linear,
    loads: Vec<(i64, UOp)>,
}

/// Joins the loads of a kernel whose ranges are written out.
pub fn join_loads(ast: &UOp, target: &Target) -> UOp {
    let (ast, staged) = join(ast, Op::DefineGlobal, target);
    // Loads of a copy depend on those that fill it, so they come after them.
    if staged { join(&ast, Op::DefineLocal, target).0 } else { ast }
}

/// Joins the loads from one sort of memory, and says whether there are any from local memory.
fn join(ast: &UOp, memory: Op, target: &Target) -> (UOp, bool) {
    let mut staged = false;
    // By buffer and by all of the place but the literal.
    let mut groups: Vec<Group> = Vec::new();
    let mut known: FxHashMap<(UOp, Option<UOp>, UOp), usize> = FxHashMap::default();
    for u in ast.toposort() {
        let plain = u.op() == Op::Load && u.dtype().lanes == 1 && u.src()[1..].iter().all(|s| s.dtype() == DType::VOID);
        let Some(place) = u.src().first().filter(|p| plain && p.src().len() == 2) else { continue };
        staged |= place.src()[0].op() == Op::DefineLocal;
        if place.src()[0].op() != memory {
            continue;
        }
        let Some(mut linear) = Linear::of(&place.src()[1]) else { continue };
        let at = std::mem::take(&mut linear.constant);
        let group = *known.entry((place.src()[0].clone(), u.src().get(1).cloned(), linear.build())).or_insert_with(|| {
            groups.push(Group { place: place.clone(), shared: linear, loads: Vec::new() });
            groups.len() - 1
        });
        groups[group].loads.push((at, u));
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for Group { place, shared, mut loads } in groups {
        loads.sort_by_key(|l| l.0);
        let dtype = loads[0].1.dtype();
        let most = (target.vector_bytes / dtype.itemsize()).min(target.max_lanes as usize).min(4);
        let mut rest = loads.as_slice();
        while let Some((at, _)) = rest.first() {
            // A vector lies at a multiple of its length, or it would be read in parts.
            let fits = |n: &usize| {
                let side_by_side = rest.len() >= *n && rest[..*n].iter().enumerate().all(|(i, l)| l.0 == at + i as i64);
                side_by_side && shared.terms.iter().map(|t| t.1).chain([*at]).all(|k| k % *n as i64 == 0)
            };
            let n = [4, 2].into_iter().find(|n| *n <= most && fits(n)).unwrap_or(1);
            if n > 1 {
                let index = simplify(&Linear { terms: shared.terms.clone(), constant: *at }.build());
                let mut src: Src = rest[0].1.src().iter().cloned().collect();
                src[0] = place.with_src([place.src()[0].clone(), index].to_src());
                let vector = UOp::new(Op::Load, dtype.vec(n as u16), src, Arg::None);
                map.extend(rest[..n].iter().enumerate().map(|(i, l)| (l.1.clone(), vector.lane(i as u16))));
            }
            rest = &rest[n..];
        }
    }
    (if map.is_empty() { ast.clone() } else { ast.substitute(&map) }, staged)
}
