//! Loads that lie side by side become one of a vector, where a target has no use for each on its own: the copies that a thread makes of a load when a range is written
//! out. A CPU broadcasts from memory for nothing; a GPU pays for every load.

use crate::ir::{Arg, Op, ToSrc, UOp};
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
    // By buffer and by all of the place but the literal.
    let mut groups: Vec<Group> = Vec::new();
    let mut known: FxHashMap<(UOp, UOp), usize> = FxHashMap::default();
    for u in ast.toposort() {
        let plain = u.op() == Op::Load && u.dtype().lanes == 1 && u.src().len() == 1;
        let Some(place) = u.src().first().filter(|p| plain && p.src().len() == 2 && p.src()[0].op() == Op::DefineGlobal) else { continue };
        let Some(mut linear) = Linear::of(&place.src()[1]) else { continue };
        let at = std::mem::take(&mut linear.constant);
        let group = *known.entry((place.src()[0].clone(), linear.build())).or_insert_with(|| {
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
                let vector =
                    UOp::new(Op::Load, dtype.vec(n as u16), [place.with_src([place.src()[0].clone(), index].to_src())].to_src(), Arg::None);
                map.extend(rest[..n].iter().enumerate().map(|(i, l)| (l.1.clone(), vector.lane(i as u16))));
            }
            rest = &rest[n..];
        }
    }
    if map.is_empty() { ast.clone() } else { ast.substitute(&map) }
}
