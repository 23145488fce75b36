//! `STAGE`: marks loads whose tile is copied to shared memory, or on a CPU to scratch memory
//! of the thread, by the pass `stage` of lowering.

use super::apply::{Applied, OptRequest};
use super::is_output;
use crate::ir::{Arg, AxisKind, LoadHint, UOp};
use crate::kernel::tile_of;
use rustc_hash::FxHashMap;

/// Applies `STAGE`: marks the loads of an argument that use a range below the loop.
pub(super) fn stage(q: &OptRequest) -> Applied {
    q.check_unordered()?;
    let at = q.axis_of_constants()?;
    let (ast, slot) = (&q.kernel.ast, q.opt.amount);
    q.check_kind(is_output(at) || at.range_kind() == AxisKind::Reduce, "a loop")?;
    let of_slot = |buffer: &UOp| matches!(buffer.arg(), Arg::Global { slot: s, .. } if *s == slot);
    if ast.src().iter().any(|s| of_slot(s.expect_store().place.buffer)) {
        return Err(format!("the kernel writes argument {slot}"));
    }
    let order = ast.toposort();
    let reads_slot = |u: &&UOp| u.as_load().is_some_and(|l| of_slot(l.place.buffer));
    let loads: Vec<&UOp> = order.iter().filter(reads_slot).collect();
    if loads.is_empty() {
        return Err(format!("nothing is loaded from argument {slot}"));
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut why = String::new();
    for u in loads {
        if *u.arg() != Arg::None {
            why = format!("argument {slot} is staged already");
            continue;
        }
        match tile_of(u, at.range_id(), &q.axes, q.target) {
            Ok(_) => {
                let hint = LoadHint { stage_at: Some(at.range_id()), prefetch_in: None };
                map.insert(u.clone(), u.with_arg(Arg::LoadHint(hint)));
            }
            Err(e) => why = e,
        }
    }
    if map.is_empty() { Err(why) } else { Ok(ast.substitute(&map)) }
}
