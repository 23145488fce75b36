//! Encoding. In: a machine program with its allocation. Out: bytes, with references to constants.
//!
//! A block that only jumps, without a move, is left out. The frame, from the stack pointer on:
//! temporary memory, spill slots.

use super::inst::{Form, Memory};
use super::rows_general as g;
use crate::codegen::allocate::RESTORED;
use crate::codegen::isa::Isa;
use crate::codegen::mir::{Base, Flat, Inst, Machine, Masking, Terminator};
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, OpKind, Register};
use regalloc2::{
    Allocation, AllocationKind, Edit, Inst as InstIndex, InstOrEdit, Output, RegClass,
};

/// Bytes of a page.
const PAGE: usize = 4096;

/// An encoded program.
pub(super) struct Encoded {
    pub code: Vec<u8>,
    /// See [`Assembled`](crate::codegen::Assembled).
    pub references: Vec<(usize, usize, usize)>,
    /// The instructions in order: position, node, block; no node for a move.
    pub origins: Vec<(usize, Option<u32>, usize)>,
    /// Loads and stores of spill slots and moves, by block.
    pub moves: Vec<[usize; 3]>,
}

struct Writer<'a> {
    isa: Isa,
    flat: &'a Flat,
    encoder: Encoder,
    references: Vec<(usize, usize, usize)>,
    /// Positions after jumps, and the blocks that they go to.
    jumps: Vec<(usize, usize)>,
    origins: Vec<(usize, Option<u32>, usize)>,
    moves: Vec<[usize; 3]>,
    /// The offset of the spill slots from the stack pointer.
    spills_at: usize,
    frame: usize,
    has_frame: bool,
    saved: Vec<usize>,
    at: usize,
    node: Option<u32>,
    block: usize,
}

/// Encodes a program.
pub(super) fn encode(
    machine: &Machine,
    flat: &mut Flat,
    output: &Output,
    isa: Isa,
) -> Result<Encoded, String> {
    let spills_at = machine.temporary_bytes.next_multiple_of(64);
    let frame = (spills_at + 8 * output.num_spillslots).next_multiple_of(64);
    let saved: Vec<usize> = RESTORED.into_iter().filter(|r| uses(output, *r)).collect();
    let calls = flat.insts.iter().any(|i| i.callee.is_some());
    let mut writer = Writer {
        isa,
        flat,
        encoder: Encoder::new(64),
        references: Vec::new(),
        jumps: Vec::new(),
        origins: Vec::new(),
        moves: vec![[0; 3]; machine.blocks.len()],
        spills_at,
        frame,
        has_frame: calls || frame > 0 || !saved.is_empty(),
        saved,
        at: 0,
        node: None,
        block: 0,
    };
    let starts = writer.program(machine, output)?;
    let mut code = writer.encoder.take_buffer();
    for (end, block) in &writer.jumps {
        let distance = starts[*block] as i64 - *end as i64;
        let distance = i32::try_from(distance).map_err(|_| "a kernel of more than 2 GiB")?;
        code[end - 4..*end].copy_from_slice(&distance.to_le_bytes());
    }
    let Writer { references, origins, moves, .. } = writer;
    Ok(Encoded { code, references, origins, moves })
}

/// Returns true if the general register is used anywhere.
fn uses(output: &Output, register: usize) -> bool {
    let is_it = |a: &Allocation| {
        a.as_reg().is_some_and(|r| r.class() == RegClass::Int && r.hw_enc() == register)
    };
    let moved = |e: &Edit| {
        let Edit::Move { from, to } = e;
        is_it(from) || is_it(to)
    };
    output.allocs.iter().any(is_it) || output.edits.iter().any(|(_, e)| moved(e))
}

/// Returns the register of a letter of a row.
fn register(allocation: Allocation, letter: u8, form: Form) -> Result<Register, String> {
    let reg = allocation.as_reg().ok_or("an operand that is not in a register")?;
    let n = reg.hw_enc() as u32;
    let vector = |bytes: usize| match bytes {
        0..=16 => Register::XMM0 + n,
        17..=32 => Register::YMM0 + n,
        _ => Register::ZMM0 + n,
    };
    Ok(match (reg.class(), letter) {
        (RegClass::Int, b'b') => match n {
            0..4 => Register::AL + n,
            4..8 => Register::SPL + (n - 4),
            _ => Register::R8L + (n - 8),
        },
        (RegClass::Int, b'c') => Register::AX + n,
        (RegClass::Int, b'r') => Register::EAX + n,
        (RegClass::Int, b'R') => Register::RAX + n,
        (RegClass::Int, b'w') if form == Form::Legacy => Register::EAX + n,
        (RegClass::Int, b'w') => Register::RAX + n,
        (RegClass::Float, b'w') => vector(form.bytes()),
        (RegClass::Float, b'h') => vector(form.bytes() / 2),
        (RegClass::Float, b'q' | b'e' | b'x' | b's' | b'd') => Register::XMM0 + n,
        (RegClass::Vector, b'k') => Register::K0 + n,
        (class, letter) => {
            return Err(format!("a register of class {class:?} as operand {}", letter as char));
        }
    })
}

impl Writer<'_> {
    /// Writes an instruction.
    fn put(&mut self, instruction: &Instruction) -> Result<(), String> {
        self.origins.push((self.at, self.node, self.block));
        let start = self.at;
        self.at += self
            .encoder
            .encode(instruction, start as u64)
            .map_err(|e| format!("cannot encode {:?}: {e}", instruction.code()))?;
        if instruction.is_ip_rel_memory_operand() {
            let place = start + self.encoder.get_constant_offsets().displacement_offset();
            let offset = instruction.memory_displacement64() as usize;
            self.references.push((place, self.at, offset));
        }
        Ok(())
    }

    /// Writes an instruction made by a function of the encoder's library.
    fn make(
        &mut self,
        instruction: Result<Instruction, iced_x86::IcedError>,
    ) -> Result<(), String> {
        self.put(&instruction.map_err(|e| e.to_string())?)
    }

    /// Writes all blocks. Returns where each begins.
    fn program(&mut self, machine: &Machine, output: &Output) -> Result<Vec<usize>, String> {
        let n = machine.blocks.len();
        let is_trivial: Vec<bool> = (0..n).map(|b| self.is_trivial(machine, output, b)).collect();
        let resolve = |mut b: usize| {
            while is_trivial[b] {
                let Terminator::Jump(to, _) = &machine.blocks[b].end else { break };
                b = *to;
            }
            b
        };
        let order: Vec<usize> = (0..n).filter(|b| !is_trivial[*b]).collect();
        let mut starts = vec![0; n];
        self.prologue()?;
        for (i, &b) in order.iter().enumerate() {
            starts[b] = self.at;
            self.block = b;
            let next = order.get(i + 1).copied();
            let block = regalloc2::Block::new(b);
            for item in output.block_insts_and_edits(self.flat, block) {
                match item {
                    InstOrEdit::Edit(Edit::Move { from, to }) => self.edit(*from, *to)?,
                    InstOrEdit::Inst(index) => {
                        let inst = &self.flat.insts[index.index()];
                        self.node = Some(inst.node);
                        if inst.is(&g::JUMP) || inst.is(&g::BRANCH) || inst.is(&g::RET) {
                            self.end(&machine.blocks[b].end, &resolve, next)?;
                        } else if !inst.is(&g::ENTRY) {
                            let instruction = self.instruction(inst, output, index)?;
                            self.put(&instruction)?;
                        }
                    }
                }
            }
        }
        Ok(starts)
    }

    /// Returns true if a block only jumps.
    fn is_trivial(&self, machine: &Machine, output: &Output, b: usize) -> bool {
        let block = regalloc2::Block::new(b);
        b > 0
            && matches!(machine.blocks[b].end, Terminator::Jump(..))
            && self.flat.ranges[b].len() == 1
            && output
                .block_insts_and_edits(self.flat, block)
                .all(|item| matches!(item, InstOrEdit::Inst(_)))
    }

    fn jump(&mut self, code: Code, to: usize) -> Result<(), String> {
        self.make(Instruction::with_branch(code, self.at as u64))?;
        self.jumps.push((self.at, to));
        Ok(())
    }

    /// Writes the end of a block, which falls through to the next one where it can.
    fn end(
        &mut self,
        end: &Terminator,
        resolve: &dyn Fn(usize) -> usize,
        next: Option<usize>,
    ) -> Result<(), String> {
        match end {
            Terminator::Return => self.epilogue(),
            Terminator::Jump(to, _) => match resolve(*to) {
                to if Some(to) == next => Ok(()),
                to => self.jump(Code::Jmp_rel32_64, to),
            },
            Terminator::Branch(cond, yes, no) => {
                let (yes, no) = (resolve(*yes), resolve(*no));
                if Some(yes) == next {
                    return self.jump(cond.not().codes()[0], no);
                }
                self.jump(cond.codes()[0], yes)?;
                if Some(no) == next { Ok(()) } else { self.jump(Code::Jmp_rel32_64, no) }
            }
        }
    }

    /// Saves registers and reserves the frame. Each of its pages is touched in order, so that a
    /// stack that is too small faults at its guard page.
    fn prologue(&mut self) -> Result<(), String> {
        use Register::{R11, R11D, RBP, RSP};
        if !self.has_frame {
            return Ok(());
        }
        self.make(Instruction::with1(Code::Push_r64, RBP))?;
        self.make(Instruction::with2(Code::Mov_r64_rm64, RBP, RSP))?;
        for i in self.saved.clone() {
            self.make(Instruction::with1(Code::Push_r64, Register::RAX + i as u32))?;
        }
        let (pages, rest) = (self.frame / PAGE, self.frame % PAGE);
        if pages > 0 {
            self.make(Instruction::with2(Code::Mov_r32_imm32, R11D, pages as i32))?;
            let top = self.at;
            self.make(Instruction::with2(Code::Sub_rm64_imm32, RSP, PAGE as i32))?;
            let place = MemoryOperand::with_base(RSP);
            self.make(Instruction::with2(Code::Mov_rm64_r64, place, R11))?;
            self.make(Instruction::with2(Code::Sub_rm64_imm32, R11, 1))?;
            self.make(Instruction::with_branch(Code::Jne_rel32_64, top as u64))?;
        }
        if rest > 0 {
            self.make(Instruction::with2(Code::Sub_rm64_imm32, RSP, rest as i32))?;
        }
        self.make(Instruction::with2(Code::And_rm64_imm8, RSP, -64))
    }

    fn epilogue(&mut self) -> Result<(), String> {
        use Register::{RBP, RSP};
        if self.has_frame {
            let place = MemoryOperand::with_base_displ(RBP, -8 * self.saved.len() as i64);
            self.make(Instruction::with2(Code::Lea_r64_m, RSP, place))?;
            for i in self.saved.clone().into_iter().rev() {
                self.make(Instruction::with1(Code::Pop_r64, Register::RAX + i as u32))?;
            }
            self.make(Instruction::with1(Code::Pop_r64, RBP))?;
        }
        self.put(&Instruction::with(Code::Retnq))
    }

    /// Writes a move between registers and spill slots.
    fn edit(&mut self, from: Allocation, to: Allocation) -> Result<(), String> {
        self.node = None;
        let class = [from, to].iter().find_map(|a| a.as_reg()).map(|r| r.class());
        let class = class.ok_or("a move between two spill slots")?;
        let (masks, avx) = (self.isa.masks(), self.isa.avx());
        let form = match (masks, avx) {
            (true, _) => Form::Evex64,
            (_, true) => Form::Vex32,
            _ => Form::Legacy,
        };
        let (load, store, letter) = match class {
            RegClass::Int => (Code::Mov_r64_rm64, Code::Mov_rm64_r64, b'R'),
            RegClass::Vector => (Code::VEX_Kmovq_kr_km64, Code::VEX_Kmovq_m64_kr, b'k'),
            RegClass::Float => {
                let (load, store) = (&super::rows_move::MOVUPS, &super::rows_move::STORE_UPS);
                (load.code(form), store.code(form), b'w')
            }
        };
        let slot = |a: Allocation, at: usize| {
            let slot = a.as_stack().map_or(0, |s| s.index());
            MemoryOperand::with_base_displ(Register::RSP, (at + 8 * slot) as i64)
        };
        let at = self.spills_at;
        let counts = &mut self.moves[self.block];
        match (from.kind(), to.kind()) {
            (AllocationKind::Reg, AllocationKind::Reg) => {
                counts[2] += 1;
                let load = if class == RegClass::Float {
                    super::rows_move::MOVAPS.code(form)
                } else {
                    load
                };
                let (from, to) = (register(from, letter, form)?, register(to, letter, form)?);
                self.make(Instruction::with2(load, to, from))
            }
            (AllocationKind::Stack, AllocationKind::Reg) => {
                counts[0] += 1;
                self.make(Instruction::with2(load, register(to, letter, form)?, slot(from, at)))
            }
            _ => {
                counts[1] += 1;
                self.make(Instruction::with2(store, slot(to, at), register(from, letter, form)?))
            }
        }
    }

    /// Returns the memory operand of an instruction.
    fn memory(&self, inst: &Inst, registers: &[Allocation]) -> Result<MemoryOperand, String> {
        let mem = inst.mem.expect("a memory operand");
        let mut registers = registers.iter();
        let mut next = || {
            let allocation = *registers.next().ok_or("an address without its register")?;
            register(allocation, b'R', Form::Vex16)
        };
        let (base, disp) = match mem.base {
            Base::Register => (next()?, i64::from(mem.disp)),
            Base::Temporary => (Register::RSP, i64::from(mem.disp)),
            Base::Pool => (Register::RIP, i64::from(mem.disp)),
        };
        let index = if mem.scale > 0 { next()? } else { Register::None };
        let size = match base {
            Register::RIP => 8,
            _ => u32::from(disp != 0),
        };
        let scale = u32::from(mem.scale.max(1));
        Ok(MemoryOperand::new(base, index, scale, disp, size, false, Register::None))
    }

    /// Makes the instruction of an allocated one.
    fn instruction(
        &self,
        inst: &Inst,
        output: &Output,
        index: InstIndex,
    ) -> Result<Instruction, String> {
        let allocs = output.inst_allocs(index);
        let reused = inst.reused();
        let registers = allocs.len() - inst.address_registers();
        let mask_at = registers - usize::from(inst.masking.is_some());
        let mut plain = (0..mask_at).filter(|i| Some(*i) != reused).map(|i| allocs[i]);
        let mut result = Instruction::default();
        result.set_code(inst.code);
        // In a form that overwrites an operand, the row's second letter is not encoded.
        let drops = inst.row.tied && is_two_operand(inst);
        let letters = inst.row.operands.bytes().enumerate();
        let letters: Vec<u8> =
            letters.filter(|(i, _)| !(drops && *i == 1)).map(|(_, letter)| letter).collect();
        let last = letters.iter().rposition(|l| *l != b'i');
        let memory_at = match inst.row.memory {
            Memory::First => Some(0),
            Memory::Last => last,
            Memory::Never => None,
        };
        let memory_at = memory_at.filter(|_| inst.mem.is_some());
        let mut previous = None;
        for (i, letter) in letters.iter().enumerate() {
            if *letter == b'i' {
                set_immediate(&mut result, i as u32, inst);
            } else if memory_at == Some(i) {
                let mem = self.memory(inst, &allocs[registers..])?;
                result.set_op_kind(i as u32, OpKind::Memory);
                result.set_memory_base(mem.base);
                result.set_memory_index(mem.index);
                result.set_memory_index_scale(mem.scale);
                result.set_memory_displ_size(mem.displ_size);
                result.set_memory_displacement64(mem.displacement as u64);
                result.set_is_broadcast(inst.mem.is_some_and(|m| m.broadcast));
            } else {
                // An instruction on one register only clears it.
                let allocation = plain.next().or(previous).ok_or("too few operands")?;
                previous = Some(allocation);
                result.set_op_kind(i as u32, OpKind::Register);
                result.set_op_register(i as u32, register(allocation, *letter, inst.form)?);
            }
        }
        if inst.is(&g::SHL_CL) || inst.is(&g::SHR_CL) || inst.is(&g::SAR_CL) {
            result.set_op_kind(1, OpKind::Register);
            result.set_op_register(1, Register::CL);
        }
        if let Some(masking) = inst.masking {
            result.set_op_mask(register(allocs[mask_at], b'k', inst.form)?);
            result.set_zeroing_masking(masking == Masking::Zero);
        }
        Ok(result)
    }
}

/// Returns true if the encoding has the overwritten operand once.
fn is_two_operand(inst: &Inst) -> bool {
    let is_general = inst.row.codes[5] == Code::INVALID
        && inst.row.codes[3] == Code::INVALID
        && inst.row.codes[2] == Code::INVALID;
    is_general || inst.form == Form::Legacy
}

/// Sets an immediate in the size of the encoding.
fn set_immediate(result: &mut Instruction, at: u32, inst: &Inst) {
    use Code::*;
    let small = i8::try_from(inst.imm).is_ok();
    let (code, kind) = match inst.code {
        Mov_r64_imm64 => (Mov_r64_imm64, OpKind::Immediate64),
        Mov_r32_imm32 => (Mov_r32_imm32, OpKind::Immediate32),
        Mov_rm64_imm32 => (Mov_rm64_imm32, OpKind::Immediate32to64),
        Add_rm32_imm32 if small => (Add_rm32_imm8, OpKind::Immediate8to32),
        Add_rm64_imm32 if small => (Add_rm64_imm8, OpKind::Immediate8to64),
        And_rm32_imm32 if small => (And_rm32_imm8, OpKind::Immediate8to32),
        And_rm64_imm32 if small => (And_rm64_imm8, OpKind::Immediate8to64),
        Or_rm32_imm32 if small => (Or_rm32_imm8, OpKind::Immediate8to32),
        Or_rm64_imm32 if small => (Or_rm64_imm8, OpKind::Immediate8to64),
        Xor_rm32_imm32 if small => (Xor_rm32_imm8, OpKind::Immediate8to32),
        Xor_rm64_imm32 if small => (Xor_rm64_imm8, OpKind::Immediate8to64),
        Cmp_rm32_imm32 if small => (Cmp_rm32_imm8, OpKind::Immediate8to32),
        Cmp_rm64_imm32 if small => (Cmp_rm64_imm8, OpKind::Immediate8to64),
        Imul_r32_rm32_imm32 if small => (Imul_r32_rm32_imm8, OpKind::Immediate8to32),
        Imul_r64_rm64_imm32 if small => (Imul_r64_rm64_imm8, OpKind::Immediate8to64),
        Imul_r32_rm32_imm32 | Add_rm32_imm32 | And_rm32_imm32 | Or_rm32_imm32 | Xor_rm32_imm32
        | Cmp_rm32_imm32 => (inst.code, OpKind::Immediate32),
        Imul_r64_rm64_imm32 | Add_rm64_imm32 | And_rm64_imm32 | Or_rm64_imm32 | Xor_rm64_imm32
        | Cmp_rm64_imm32 => (inst.code, OpKind::Immediate32to64),
        code => (code, OpKind::Immediate8),
    };
    result.set_code(code);
    result.set_op_kind(at, kind);
    match kind {
        OpKind::Immediate64 => result.set_immediate64(inst.imm as u64),
        OpKind::Immediate32 => result.set_immediate32(inst.imm as u32),
        OpKind::Immediate32to64 => result.set_immediate32to64(inst.imm),
        OpKind::Immediate8to32 => result.set_immediate8to32(inst.imm as i32),
        OpKind::Immediate8to64 => result.set_immediate8to64(inst.imm),
        _ => result.set_immediate8(inst.imm as u8),
    }
}
