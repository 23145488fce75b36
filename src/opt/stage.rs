//! The `STAGE` Opt: marks loads whose tile is copied to shared memory, or on a CPU to memory of the
//! thread, by the pass `stage` of lowering.

use super::Kernel;
use crate::ir::{Arg, AxisKind, LoadHint, Op, UOp};
use crate::kernel::tile_of;
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Marks the loads of an argument that use something below a loop.
pub(super) fn mark(kernel: &Kernel, at: &UOp, slot: usize, target: &Target) -> Result<UOp, String> {
    if !matches!(at.range_kind(), AxisKind::Global | AxisKind::Loop | AxisKind::Reduce) {
        return Err(format!("the axis is of kind {:?}, which is no loop", at.range_kind()));
    }
    let of_slot = |buffer: &UOp| matches!(buffer.arg(), Arg::Global { slot: s, .. } if *s == slot);
    if kernel.ast.src().iter().any(|s| of_slot(&s.src()[0].src()[0])) {
        return Err(format!("the kernel writes argument {slot}"));
    }
    let order = kernel.ast.toposort();
    let loads: Vec<&UOp> =
        order.iter().filter(|u| u.op() == Op::Load && of_slot(&u.src()[0].src()[0])).collect();
    if loads.is_empty() {
        return Err(format!("nothing is loaded from argument {slot}"));
    }
    let axes = kernel.axes();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut why = String::new();
    for u in loads {
        if *u.arg() != Arg::None {
            why = format!("argument {slot} is staged already");
            continue;
        }
        match tile_of(u, at.range_id(), &axes, target) {
            Ok(_) => drop(map.insert(
                u.clone(),
                UOp::new(
                    Op::Load,
                    u.dtype(),
                    u.src().iter().cloned().collect::<crate::ir::Src>(),
                    Arg::LoadHint(LoadHint { stage_at: Some(at.range_id()), prefetch_in: None }),
                ),
            )),
            Err(e) => why = e,
        }
    }
    if map.is_empty() { Err(why) } else { Ok(kernel.ast.substitute(&map)) }
}
