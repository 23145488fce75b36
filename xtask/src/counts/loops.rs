//! Loops of machine code for x86-64 and what one iteration of them executes.
//! In: the bytes of a function. Out: its innermost loops in order of address, with counts of
//! instructions, loads, stores and spills, and the number of iterations where constants decide it.
//!
//! A loop is a backward branch: it spans the instructions from its target to itself. The trip count
//! follows from the comparison before the branch, if the compared register advances by a constant
//! in each iteration and a constant is written to it before the loop.

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

/// An innermost loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopCounts {
    /// Instructions of an iteration, and those of them that load, that store, and that access a
    /// fixed place of the stack.
    pub instructions: u64,
    pub loads: u64,
    pub stores: u64,
    pub spills: u64,
    /// Iterations of this loop each time it is entered; 0 if constants do not decide it.
    pub trips: u64,
    /// Iterations in one call of the function: the product of the trip counts of this loop and
    /// those around it; 0 if one of them is unknown.
    pub iterations: u64,
}

/// The indices of the first and the last instruction of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    first: usize,
    last: usize,
}

impl Span {
    fn contains(self, other: Span) -> bool {
        self != other && self.first <= other.first && other.last <= self.last
    }
    fn has(self, index: usize) -> bool {
        (self.first..=self.last).contains(&index)
    }
}

/// Returns the innermost loops of machine code.
pub fn innermost(code: &[u8]) -> Vec<LoopCounts> {
    let function = Function::decode(code);
    let spans = function.loops();
    let is_innermost = |s: &&Span| !spans.iter().any(|other| s.contains(*other));
    let trips: Vec<u64> = spans.iter().map(|s| function.trips(*s, &spans).unwrap_or(0)).collect();
    spans
        .iter()
        .filter(is_innermost)
        .map(|span| {
            let around = spans.iter().zip(&trips);
            let around = around.filter(|(other, _)| *other == span || other.contains(*span));
            let trips_of = |s: &Span| spans.iter().position(|o| o == s).map_or(0, |i| trips[i]);
            LoopCounts {
                trips: trips_of(span),
                iterations: around.map(|(_, n)| *n).fold(1, u64::saturating_mul),
                ..function.counts(*span)
            }
        })
        .collect()
}

/// The instructions of a function, with what each of them reads and writes.
struct Function {
    instructions: Vec<(Instruction, InstructionInfo)>,
    has_frame_pointer: bool,
}

impl Function {
    fn decode(code: &[u8]) -> Function {
        let mut factory = InstructionInfoFactory::new();
        let decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let with_info = |i: Instruction| (i, factory.info(&i).clone());
        let instructions: Vec<_> = decoder.into_iter().map(with_info).collect();
        let sets_frame =
            |i: &Instruction| i.code() == Code::Mov_r64_rm64 || i.code() == Code::Mov_rm64_r64;
        let has_frame_pointer = instructions.iter().any(|(i, _)| {
            sets_frame(i) && i.op0_register() == Register::RBP && i.op1_register() == Register::RSP
        });
        Function { instructions, has_frame_pointer }
    }

    /// Returns all loops, each head once, in order of address.
    fn loops(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for (last, (branch, _)) in self.instructions.iter().enumerate() {
            let flow = branch.flow_control();
            if !matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
                || branch.near_branch_target() > branch.ip()
            {
                continue;
            }
            let head = branch.near_branch_target();
            let Ok(first) = self.instructions.binary_search_by_key(&head, |(i, _)| i.ip()) else {
                continue;
            };
            match spans.iter_mut().find(|s| s.first == first) {
                Some(span) => span.last = span.last.max(last),
                None => spans.push(Span { first, last }),
            }
        }
        spans.sort_by_key(|s| (s.first, std::cmp::Reverse(s.last)));
        spans
    }

    fn counts(&self, span: Span) -> LoopCounts {
        let mut counts = LoopCounts::default();
        for (instruction, info) in &self.instructions[span.first..=span.last] {
            counts.instructions += 1;
            // Addresses of `lea`, of prefetches and of long `nop`s are not accessed.
            let is_hint = matches!(
                instruction.mnemonic(),
                Mnemonic::Prefetcht0 | Mnemonic::Prefetchnta | Mnemonic::Prefetchw | Mnemonic::Nop
            );
            for memory in info.used_memory().iter().filter(|_| !is_hint) {
                let access = memory.access();
                let reads = matches!(
                    access,
                    OpAccess::Read
                        | OpAccess::CondRead
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                );
                let writes = matches!(
                    access,
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                );
                counts.loads += u64::from(reads);
                counts.stores += u64::from(writes);
                counts.spills += u64::from((reads || writes) && self.is_spill(memory));
            }
        }
        counts
    }

    /// Returns true for a fixed place of the stack. Arrays on the stack have an index.
    fn is_spill(&self, memory: &UsedMemory) -> bool {
        let of_frame = memory.base() == Register::RBP && self.has_frame_pointer;
        (memory.base() == Register::RSP || of_frame) && memory.index() == Register::None
    }

    /// Returns the iterations of a loop, if constants decide them.
    fn trips(&self, span: Span, all: &[Span]) -> Option<u64> {
        let (branch, _) = &self.instructions[span.last];
        let condition = branch.condition_code();
        if branch.flow_control() != FlowControl::ConditionalBranch {
            return None;
        }
        let at = (span.first..span.last)
            .rev()
            .find(|i| self.instructions[*i].0.rflags_modified() != 0)?;
        let (compare, _) = &self.instructions[at];
        let compared = compare.op0_register().full_register();
        let limit = match compare.mnemonic() {
            Mnemonic::Cmp if is_immediate(compare) => compare.immediate(1) as i64,
            Mnemonic::Test if compared == compare.op1_register().full_register() => 0,
            Mnemonic::Add | Mnemonic::Sub if is_immediate(compare) => 0,
            Mnemonic::Inc | Mnemonic::Dec => 0,
            _ => return None,
        };
        // The register that carries the value from one iteration to the next may be another one.
        let candidates = self.written_registers(span);
        [compared].into_iter().chain(candidates).find_map(|register| {
            let (offset, step) = self.advance(span, all, register, at, compared)?;
            let start = self.start(span, register)?;
            iterations(start.wrapping_add(offset), step, limit, condition)
        })
    }

    fn written_registers(&self, span: Span) -> Vec<Register> {
        let mut found = Vec::new();
        for (_, info) in &self.instructions[span.first..=span.last] {
            for used in info.used_registers() {
                let register = used.register().full_register();
                if is_write(used.access()) && register.is_gpr64() && !found.contains(&register) {
                    found.push(register);
                }
            }
        }
        found
    }

    /// Follows a register through an iteration. Returns what is added to its first value up to the
    /// comparison, and in the whole iteration.
    fn advance(
        &self,
        span: Span,
        all: &[Span],
        register: Register,
        at: usize,
        compared: Register,
    ) -> Option<(i64, i64)> {
        let inner: Vec<Span> = all.iter().copied().filter(|s| span.contains(*s)).collect();
        let mut known: Vec<(Register, i64)> = vec![(register, 0)];
        let mut at_compare = None;
        for index in span.first..=span.last {
            let (instruction, info) = &self.instructions[index];
            let in_inner = inner.iter().any(|s| s.has(index));
            let value = if in_inner { None } else { advanced(instruction, &known) };
            for used in info.used_registers().iter().filter(|u| is_write(u.access())) {
                let written = used.register().full_register();
                known.retain(|(r, _)| *r != written);
            }
            known.extend(value);
            if index == at {
                at_compare = known.iter().find(|(r, _)| *r == compared).map(|(_, v)| *v);
            }
        }
        let step = known.iter().find(|(r, _)| *r == register)?.1;
        Some((at_compare?, step))
    }

    /// Returns the constant that is written to a register before a loop.
    fn start(&self, span: Span, register: Register) -> Option<i64> {
        let writes = |(_, info): &&(Instruction, InstructionInfo)| {
            info.used_registers()
                .iter()
                .any(|u| is_write(u.access()) && u.register().full_register() == register)
        };
        let (write, _) = self.instructions[..span.first].iter().rev().find(writes)?;
        match write.mnemonic() {
            Mnemonic::Mov if is_immediate(write) => Some(write.immediate(1) as i64),
            Mnemonic::Xor if write.op0_register() == write.op1_register() => Some(0),
            _ => None,
        }
    }
}

fn is_write(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}

/// Returns true if the second operand is a constant.
fn is_immediate(instruction: &Instruction) -> bool {
    instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.try_immediate(1).is_ok()
}

/// Returns the register that an instruction writes and its value, if that is a known register plus
/// a constant.
fn advanced(instruction: &Instruction, known: &[(Register, i64)]) -> Option<(Register, i64)> {
    let of = |r: Register| known.iter().find(|(k, _)| *k == r.full_register()).map(|(_, v)| *v);
    let to = instruction.op0_register().full_register();
    if !to.is_gpr64() {
        return None;
    }
    let value = match instruction.mnemonic() {
        Mnemonic::Add if is_immediate(instruction) => {
            of(to)?.wrapping_add(instruction.immediate(1) as i64)
        }
        Mnemonic::Sub if is_immediate(instruction) => {
            of(to)?.wrapping_sub(instruction.immediate(1) as i64)
        }
        Mnemonic::Inc => of(to)? + 1,
        Mnemonic::Dec => of(to)? - 1,
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
            of(instruction.op1_register())?
        }
        Mnemonic::Lea if instruction.memory_index() == Register::None => {
            of(instruction.memory_base())?.wrapping_add(instruction.memory_displacement64() as i64)
        }
        _ => return None,
    };
    Some((to, value))
}

/// Returns the iterations of a loop that goes on while `first + i·step` compares to `limit` as the
/// condition says.
fn iterations(first: i64, step: i64, limit: i64, condition: ConditionCode) -> Option<u64> {
    if step == 0 {
        return None;
    }
    // The distance in the direction of the steps.
    let distance = limit.saturating_sub(first).saturating_mul(step.signum());
    let stride = step.saturating_abs();
    let up = step > 0;
    // The iterations before the last one.
    let passed = match condition {
        ConditionCode::ne if distance % stride == 0 && distance >= 0 => distance / stride,
        ConditionCode::b | ConditionCode::l if up => {
            distance.saturating_add(stride - 1).max(0) / stride
        }
        ConditionCode::be | ConditionCode::le if up => {
            distance.saturating_add(stride).max(0) / stride
        }
        ConditionCode::a | ConditionCode::g if !up => {
            distance.saturating_add(stride - 1).max(0) / stride
        }
        ConditionCode::ae | ConditionCode::ge if !up => {
            distance.saturating_add(stride).max(0) / stride
        }
        _ => return None,
    };
    Some(passed as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six loops:
    ///
    /// ```text
    /// 02:   mov ecx, 0                   16 times, up to `cmp rax, 16; jne`
    /// 0b:     vmovups ymm1, [rdi+rcx*4]  1024 in steps of 8
    ///         vaddps ymm0, ymm0, [rsp+0x20]
    ///         vmovups [rsi+rcx*4], ymm0
    ///         vmovups [rsp+0x40], ymm0
    ///         add rcx, 8; cmp rcx, 1024; jb
    /// 3d:   dec rdx; jne                 from 100
    /// 49:   add r8, 4; jne               from -512
    /// 52:   lea r10, [r9+16]; cmp r9, 48; mov r9, r10; jb
    /// 62:   cmp rbx, r11; jne            unknown
    /// ```
    const CODE: [u8; 104] = [
        0x31, 0xc0, 0xb9, 0x00, 0x00, 0x00, 0x00, 0xc5, 0xf8, 0x57, 0xc0, 0xc5, 0xfc, 0x10, 0x0c,
        0x8f, 0xc5, 0xfc, 0x58, 0x44, 0x24, 0x20, 0xc5, 0xfc, 0x11, 0x04, 0x8e, 0xc5, 0xfc, 0x11,
        0x44, 0x24, 0x40, 0x48, 0x83, 0xc1, 0x08, 0x48, 0x81, 0xf9, 0x00, 0x04, 0x00, 0x00, 0x72,
        0xdd, 0x48, 0x83, 0xc0, 0x01, 0x48, 0x83, 0xf8, 0x10, 0x75, 0xca, 0xba, 0x64, 0x00, 0x00,
        0x00, 0x48, 0xff, 0xca, 0x75, 0xfb, 0x49, 0xc7, 0xc0, 0x00, 0xfe, 0xff, 0xff, 0x49, 0x83,
        0xc0, 0x04, 0x75, 0xfa, 0x45, 0x31, 0xc9, 0x4d, 0x8d, 0x51, 0x10, 0x49, 0x83, 0xf9, 0x30,
        0x4d, 0x89, 0xd1, 0x72, 0xf3, 0x48, 0x85, 0xdb, 0x4c, 0x39, 0xdb, 0x75, 0xfb, 0xc3,
    ];

    #[test]
    fn innermost_loops_are_counted() {
        let loops = innermost(&CODE);
        let first = LoopCounts {
            instructions: 7,
            loads: 2,
            stores: 2,
            spills: 2,
            trips: 128,
            iterations: 2048,
        };
        assert_eq!(loops[0], first);
        assert_eq!(loops.iter().map(|l| l.trips).collect::<Vec<_>>(), [128, 100, 128, 4, 0]);
        assert_eq!(loops.iter().map(|l| l.instructions).collect::<Vec<_>>(), [7, 2, 2, 4, 2]);
    }

    #[test]
    fn conditions_decide_the_last_iteration() {
        assert_eq!(iterations(8, 8, 64, ConditionCode::b), Some(8));
        assert_eq!(iterations(8, 8, 60, ConditionCode::l), Some(8));
        assert_eq!(iterations(8, 8, 64, ConditionCode::le), Some(9));
        assert_eq!(iterations(99, 8, 64, ConditionCode::b), Some(1));
        assert_eq!(iterations(9, -1, 0, ConditionCode::g), Some(10));
        assert_eq!(iterations(8, 8, 60, ConditionCode::ne), None);
        assert_eq!(iterations(8, -8, 64, ConditionCode::b), None);
    }

    #[test]
    fn code_without_loops_has_none() {
        assert!(innermost(&[0x31, 0xc0, 0xc3]).is_empty());
    }
}
