//! x86-64: instructions, selection, encoding, listings.

mod encode;
mod fold;
pub(super) mod inst;
pub(super) mod rows_float;
pub(super) mod rows_general;
pub(super) mod rows_int;
pub(super) mod rows_move;
mod select;
mod text;
mod tie;

#[cfg(test)]
mod tests;

pub(super) use text::disassemble;

use super::allocate::allocate;
use super::dead_code::remove_dead_code;
use super::mir::{Flat, Machine};
use super::schedule_instructions::schedule_instructions;
use super::{Assembled, Isa};
use crate::ir::UOp;
use crate::target::CoreRates;

/// Improves a selected program.
fn optimize(machine: &mut Machine, isa: Isa) {
    remove_dead_code(machine);
    fold::fold_loads(machine);
    if schedule_instructions(machine, isa.vector_registers() - 1) {
        fold::fold_loads(machine);
    }
    tie::tie_operands(machine);
}

/// Assembles a kernel. `verify` checks the program and its allocation.
pub(super) fn assemble(
    uops: &[UOp],
    isa: Isa,
    verify: bool,
    list: Option<&CoreRates>,
) -> Result<Assembled, String> {
    let check = |machine: &Machine, after: &str| match verify {
        true => super::verify::verify(machine, isa).map_err(|why| format!("after {after}: {why}")),
        false => Ok(()),
    };
    let mut machine = select::select(uops, isa)?;
    check(&machine, "selection")?;
    optimize(&mut machine, isa);
    check(&machine, "scheduling")?;
    let mut flat = Flat::new(&mut machine);
    let output = allocate(&flat, isa.vector_registers(), verify)?;
    let encoded = encode::encode(&machine, &mut flat, &output, isa)?;
    let listing = list.map(|rates| text::listing(&encoded, &machine, uops, rates));
    let (code, references) = (encoded.code, encoded.references);
    Ok(Assembled { code, constants: machine.pool, references, listing })
}

/// Returns the listing of a kernel.
#[cfg(feature = "testing")]
pub fn listing(uops: &[UOp], isa: Isa) -> Result<String, String> {
    let rates = CoreRates::of_vectors(isa.vector_bytes());
    Ok(assemble(uops, isa, true, Some(&rates))?.listing.unwrap_or_default())
}
