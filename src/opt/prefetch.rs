//! `PREFETCH`: loads of a reduction loop are marked, so that lowering loads the data of the next
//! iteration while this one computes.

use super::apply::{Applied, OptRequest};
use crate::ir::{Arg, AxisKind, LoadHint, Op, UOp};
use rustc_hash::FxHashMap;

/// Applies `PREFETCH`.
pub(super) fn prefetch(q: &OptRequest) -> Applied {
    q.check_unordered()?;
    let r = q.constant_axis()?;
    if !q.target.grid {
        return Err("the target has no workgroups".into());
    }
    q.check_kind(r.range_kind() == AxisKind::Reduce, "a reduction axis")?;
    let id = r.range_id();
    let marked = |u: &UOp| {
        let prefetch_in = Some(id);
        let stage_at = match u.arg() {
            Arg::None => None,
            // The copy of a tile is prefetched in the loop that it is staged at.
            Arg::LoadHint(LoadHint { stage_at, prefetch_in: None }) if *stage_at == Some(id) => {
                *stage_at
            }
            _ => return None,
        };
        let hint = Arg::LoadHint(LoadHint { stage_at, prefetch_in });
        Some((u.clone(), u.with_arg(hint)))
    };
    let order = q.kernel.ast.toposort();
    let loads = order.iter().filter(|u| u.op() == Op::Load && u.uses_range(id));
    let map: FxHashMap<UOp, UOp> = loads.filter_map(marked).collect();
    if map.is_empty() {
        return Err("the loop loads nothing that is not prefetched already".into());
    }
    Ok(q.kernel.ast.substitute(&map))
}
