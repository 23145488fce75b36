//! Listings. In: encoded bytes, decoded again. Out: a line per instruction with the node that it
//! comes from, and a line of counts per innermost loop.

use super::encode::Encoded;
use crate::codegen::mir::Machine;
use crate::ir::UOp;
use crate::target::CoreRates;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use std::fmt::Write;

/// Returns the instructions of machine code, a line each.
pub(in crate::codegen) fn disassemble(code: &[u8]) -> String {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let (mut formatter, mut text) = (formatter(), String::new());
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let _ = write!(text, "{:6x}  ", instruction.ip());
        formatter.format(&instruction, &mut text);
        text.push('\n');
    }
    text
}

fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_rip_relative_addresses(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_small_hex_numbers_in_decimal(true);
    options.set_branch_leading_zeros(false);
    formatter
}

/// Returns the listing of a program. Cycles are those of a core with these rates.
pub(super) fn listing(
    encoded: &Encoded,
    machine: &Machine,
    uops: &[UOp],
    rates: &CoreRates,
) -> String {
    let mut decoder = Decoder::with_ip(64, &encoded.code, 0, DecoderOptions::NONE);
    let (mut formatter, mut text) = (formatter(), String::new());
    let (mut block, mut node) = (usize::MAX, None);
    let mut counts = Counts::default();
    for (at, from, of) in &encoded.origins {
        if *of != block {
            counts.end(&mut text, encoded, machine, block, rates);
            block = *of;
            let _ = writeln!(text, "block {block}: depth {}", machine.blocks[block].depth);
        }
        let instruction = decoder.decode();
        debug_assert_eq!(instruction.ip(), *at as u64);
        counts.add(&instruction);
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        if instruction.is_ip_rel_memory_operand() {
            let reference = encoded.references.iter().find(|r| r.1 as u64 == instruction.next_ip());
            let offset = reference.map_or(0, |r| r.2);
            let end = line.rfind('[').unwrap_or(line.len());
            line.replace_range(end.., &format!("[constants+{offset}]"));
        }
        let _ = write!(text, "{:6x}  {line}", at);
        if let Some(from) = from.filter(|from| node != Some(*from)) {
            node = Some(from);
            let op = uops
                .get(from as usize)
                .map_or(String::new(), |u| format!("{} {}", u.op().name(), u.dtype()));
            let pad = 60usize.saturating_sub(line.len());
            let _ = write!(text, "{:pad$}; {from}: {op}", "");
        }
        text.push('\n');
    }
    counts.end(&mut text, encoded, machine, block, rates);
    text
}

/// The instructions of a block by kind.
#[derive(Default)]
struct Counts {
    all: usize,
    fma: usize,
    /// Float arithmetic, with fused multiply-adds.
    arithmetic: usize,
    shuffles: usize,
    loads: usize,
    stores: usize,
}

/// Parts of the names of float arithmetic, and of shuffles between registers.
const ARITHMETIC: [&str; 8] = ["fmadd", "Vadd", "Vmul", "Vmax", "Vmin", "Addp", "Mulp", "Vcmp"];
const SHUFFLES: [&str; 6] = ["perm", "shuf", "unpck", "insert", "extract", "psrldq"];

impl Counts {
    fn add(&mut self, instruction: &Instruction) {
        use iced_x86::OpKind;
        self.all += 1;
        let name = format!("{:?}", instruction.code());
        self.fma += usize::from(name.contains("fmadd"));
        self.arithmetic += usize::from(ARITHMETIC.iter().any(|part| name.contains(part)));
        self.shuffles += usize::from(SHUFFLES.iter().any(|part| name.contains(part)));
        let memory = |i: u32| instruction.op_kind(i) == OpKind::Memory;
        if instruction.op_count() > 0 && !name.contains("Lea") {
            if memory(0) && !name.contains("Call") {
                self.stores += 1;
            }
            self.loads += usize::from((1..instruction.op_count()).any(memory));
        }
    }

    /// Returns the cycles of the busiest units, and their name.
    fn cycles(&self, rates: &CoreRates) -> (f64, &'static str) {
        let by = if self.fma == self.arithmetic { "fma" } else { "arithmetic" };
        let units = [
            (self.arithmetic, rates.fmas, by),
            (self.loads, rates.loads, "loads"),
            (self.stores, rates.stores, "stores"),
            (self.shuffles, rates.shuffles, "shuffles"),
        ];
        let cycles = units.map(|(count, rate, name)| (count as f64 / rate, name));
        cycles.into_iter().fold((0.0, by), |most, unit| if unit.0 > most.0 { unit } else { most })
    }

    /// Writes the counts of an innermost loop, and starts again.
    fn end(
        &mut self,
        text: &mut String,
        encoded: &Encoded,
        machine: &Machine,
        block: usize,
        rates: &CoreRates,
    ) {
        if let Some(id) = machine.blocks.get(block).and_then(|b| b.of_loop) {
            let [reloads, spills, moves] = encoded.moves[block];
            let (cycles, by) = self.cycles(rates);
            let _ = writeln!(
                text,
                "loop r{id}: {} instructions, {} fma, {} loads, {} stores, {} spills, {} moves, \
                 {cycles:.1} cycles by {by}",
                self.all,
                self.fma,
                self.loads,
                self.stores,
                spills + reloads,
                moves
            );
        }
        *self = Counts::default();
    }
}
