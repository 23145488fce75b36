//! Register allocation by `regalloc2`. In: a machine program. Out: a register or a spill slot for
//! each operand, and the moves between instructions.

use super::mir::Flat;
use regalloc2::{Algorithm, MachineEnv, Output, PReg, PRegSet, RegClass, RegallocOptions};

/// General registers that a called function may change. The stack pointer and the frame pointer are
/// in neither list.
const CHANGED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
/// General registers that a called function restores, as the kernel must.
pub(super) const RESTORED: [usize; 5] = [3, 12, 13, 14, 15];

/// Returns the registers of a CPU with this number of vector registers.
fn environment(vectors: usize) -> MachineEnv {
    let set =
        |class, list: &[usize]| -> PRegSet { list.iter().map(|i| PReg::new(*i, class)).collect() };
    let vectors: Vec<usize> = (0..vectors).collect();
    MachineEnv {
        preferred_regs_by_class: [
            set(RegClass::Int, &CHANGED),
            set(RegClass::Float, &vectors),
            // The first mask register stands for no mask.
            set(RegClass::Vector, &[1, 2, 3, 4, 5, 6, 7]),
        ],
        non_preferred_regs_by_class: [
            set(RegClass::Int, &RESTORED),
            PRegSet::empty(),
            PRegSet::empty(),
        ],
        scratch_by_class: [None, None, None],
        fixed_stack_slots: Vec::new(),
    }
}

/// Allocates registers. `verify` checks the result.
pub(super) fn allocate(flat: &Flat, vectors: usize, verify: bool) -> Result<Output, String> {
    let environment = environment(vectors);
    let options =
        RegallocOptions { verbose_log: false, validate_ssa: verify, algorithm: Algorithm::Ion };
    let output = regalloc2::run(flat, &environment, &options)
        .map_err(|e| format!("cannot allocate registers: {e:?}"))?;
    if verify {
        let mut checker = regalloc2::checker::Checker::new(flat, &environment);
        checker.prepare(&output);
        checker.run().map_err(|e| format!("wrong allocation of registers: {e:?}"))?;
    }
    Ok(output)
}
