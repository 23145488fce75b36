//! The machine program between selection and encoding: blocks of instructions on virtual registers
//! in SSA form, with block parameters, and its view as the input of the register allocator.
//!
//! **Invariant:** an edge from a block with several successors to a block with several predecessors
//! is split by a block of its own.

use super::x86::inst::{Cond, Form, Memory, Row};
use super::x86::rows_float as f;
use super::x86::rows_general as g;
use iced_x86::Code;
use regalloc2::{
    Block, Inst as InstIndex, InstRange, Operand, OperandConstraint, OperandKind, PReg, PRegSet,
    RegClass, VReg,
};
use smallvec::SmallVec;

/// The base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// A register, an operand of the instruction.
    Register,
    /// The temporary part of the frame.
    Temporary,
    /// The constant pool.
    Pool,
}

/// A memory operand. Its registers are the last operands of the instruction: the base, if it is
/// one, then the index, if `scale` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem {
    /// Its base.
    pub base: Base,
    /// The factor of the index: 1, 2, 4 or 8; 0 without one.
    pub scale: u8,
    /// The constant part, in bytes.
    pub disp: i32,
    /// True if one element is read for all lanes.
    pub broadcast: bool,
}

/// The use of a mask register, the operand before those of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masking {
    /// Other lanes keep their value.
    Merge,
    /// Other lanes become 0.
    Zero,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    /// Its row.
    pub row: &'static Row,
    /// Its form.
    pub form: Form,
    /// Its encoding.
    pub code: Code,
    /// The registers: those of the encoding in order, then one that the result overwrites, a mask,
    /// and the registers of the address.
    pub ops: SmallVec<[Operand; 4]>,
    /// The memory operand.
    pub mem: Option<Mem>,
    /// The immediate.
    pub imm: i64,
    /// The use of a mask.
    pub masking: Option<Masking>,
    /// The function that it calls.
    pub callee: Option<&'static str>,
    /// The node that it comes from, by its position in the program.
    pub node: u32,
}

impl Inst {
    /// Makes an instruction without memory and immediate.
    pub fn new(row: &'static Row, form: Form, ops: impl IntoIterator<Item = Operand>) -> Inst {
        Inst {
            row,
            form,
            code: row.codes[form as usize],
            ops: ops.into_iter().collect(),
            mem: None,
            imm: 0,
            masking: None,
            callee: None,
            node: 0,
        }
    }
    /// Returns true if this is an instruction of the row.
    pub fn is(&self, row: &Row) -> bool {
        std::ptr::eq(self.row, row)
    }
    /// Returns the registers that it reads.
    pub fn used(&self) -> impl Iterator<Item = VReg> {
        self.ops.iter().filter(|o| o.kind() == OperandKind::Use).map(|o| o.vreg())
    }
    /// Returns the first register that it writes.
    pub fn defined(&self) -> Option<VReg> {
        self.ops.iter().find(|o| o.kind() == OperandKind::Def).map(|o| o.vreg())
    }
    /// Returns true if it writes to memory.
    pub fn is_store(&self) -> bool {
        self.mem.is_some() && self.row.memory == Memory::First
    }
    /// Returns true if it reads memory.
    pub fn is_load(&self) -> bool {
        self.mem.is_some() && self.row.memory == Memory::Last && !self.is(&g::LEA)
    }
    /// Returns true if all it does is to load a register.
    pub fn is_plain_load(&self) -> bool {
        self.is_load()
            && self.masking.is_none()
            && self.callee.is_none()
            && self.ops.len() == 1 + self.address_registers()
    }
    /// Returns true if it defines the arguments of the kernel.
    pub fn is_entry(&self) -> bool {
        self.is(&g::ENTRY)
    }
    /// Returns true for comparisons, whose only result is in the flags.
    pub fn only_sets_flags(&self) -> bool {
        [&g::CMP, &g::CMP_I, &g::TEST, &f::UCOMISS, &f::UCOMISD].iter().any(|row| self.is(row))
    }
    /// Returns true if its result depends on the flags.
    pub fn reads_flags(&self) -> bool {
        self.is(&g::SETCC) || self.is(&g::CMOV)
    }
    /// Returns true if it reads, sets or changes the flags.
    pub fn touches_flags(&self) -> bool {
        self.only_sets_flags() || self.reads_flags() || g::FLAGS.iter().any(|row| self.is(row))
    }
    /// Returns the position of the last register of the encoding, if no operand is in memory.
    pub fn last_register(&self) -> usize {
        self.row.operands.bytes().filter(|l| *l != b'i').count() - 1
    }
    /// Returns the position of the operand that the result overwrites.
    pub fn reused(&self) -> Option<usize> {
        self.ops.iter().find_map(|o| match o.constraint() {
            OperandConstraint::Reuse(at) => Some(at),
            _ => None,
        })
    }
    /// Returns the number of registers of the address.
    pub fn address_registers(&self) -> usize {
        self.mem.map_or(0, |m| usize::from(m.base == Base::Register) + usize::from(m.scale > 0))
    }
}

/// The end of a block.
#[derive(Clone, Debug)]
pub(crate) enum Terminator {
    /// The end of the kernel.
    Return,
    /// A jump with the arguments of the next block.
    Jump(usize, Vec<VReg>),
    /// A jump to the first block if the condition holds, else to the second. They take no
    /// arguments.
    Branch(Cond, usize, usize),
}

/// A block.
#[derive(Clone, Debug)]
pub(crate) struct MachineBlock {
    /// Its parameters.
    pub params: Vec<VReg>,
    /// Its instructions.
    pub insts: Vec<Inst>,
    /// Its end.
    pub end: Terminator,
    /// The number of loops around it.
    pub depth: u32,
    /// The loop whose innermost body this is, by its range number.
    pub of_loop: Option<u32>,
}

/// A machine program with its blocks in order.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The blocks; the first one is the entry.
    pub blocks: Vec<MachineBlock>,
    /// The number of virtual registers.
    pub vregs: usize,
    /// Bytes of the frame for values that go through memory.
    pub temporary_bytes: usize,
    /// The constant pool.
    pub pool: Vec<u8>,
    /// Words of a spill slot of a vector register.
    pub vector_words: usize,
}

/// The program as the allocator reads it: instructions in one list, an end for each block.
pub(crate) struct Flat {
    /// All instructions.
    pub insts: Vec<Inst>,
    /// The instructions of each block.
    pub ranges: Vec<InstRange>,
    succs: Vec<SmallVec<[Block; 2]>>,
    preds: Vec<Vec<Block>>,
    params: Vec<Vec<VReg>>,
    args: Vec<Vec<VReg>>,
    clobbers: PRegSet,
    vregs: usize,
    vector_words: usize,
}

impl Flat {
    /// Takes the blocks of a program. Their ends become instructions.
    pub fn new(machine: &mut Machine) -> Flat {
        use super::x86::rows_general::{BRANCH, JUMP, RET};
        let n = machine.blocks.len();
        let mut flat = Flat {
            insts: Vec::new(),
            ranges: Vec::with_capacity(n),
            succs: Vec::with_capacity(n),
            preds: vec![Vec::new(); n],
            params: Vec::with_capacity(n),
            args: Vec::with_capacity(n),
            clobbers: clobbers(),
            vregs: machine.vregs,
            vector_words: machine.vector_words,
        };
        for (i, block) in machine.blocks.iter_mut().enumerate() {
            let start = InstIndex::new(flat.insts.len());
            flat.insts.append(&mut block.insts);
            let form = Form::Legacy;
            let (inst, succs, args) = match &block.end {
                Terminator::Return => (Inst::new(&RET, form, []), SmallVec::new(), Vec::new()),
                Terminator::Jump(to, args) => {
                    let to = smallvec::smallvec![Block::new(*to)];
                    (Inst::new(&JUMP, form, []), to, args.clone())
                }
                Terminator::Branch(_, yes, no) => {
                    let to = smallvec::smallvec![Block::new(*yes), Block::new(*no)];
                    (Inst::new(&BRANCH, form, []), to, Vec::new())
                }
            };
            for to in &succs as &SmallVec<[Block; 2]> {
                flat.preds[to.index()].push(Block::new(i));
            }
            let node = flat.insts.last().map_or(0, |last| last.node);
            flat.insts.push(Inst { node, ..inst });
            flat.ranges.push(InstRange::new(start, InstIndex::new(flat.insts.len())));
            flat.succs.push(succs);
            flat.params.push(block.params.clone());
            flat.args.push(args);
        }
        flat
    }
}

/// Returns the registers that a call changes: all vectors and masks, and the general registers of
/// the calling convention but the result.
fn clobbers() -> PRegSet {
    let general = [0, 1, 2, 6, 7, 8, 9, 10, 11].map(|i| PReg::new(i, RegClass::Int));
    let vectors = (1..32).map(|i| PReg::new(i, RegClass::Float));
    let masks = (0..8).map(|i| PReg::new(i, RegClass::Vector));
    general.into_iter().chain(vectors).chain(masks).collect()
}

impl regalloc2::Function for Flat {
    fn num_insts(&self) -> usize {
        self.insts.len()
    }
    fn num_blocks(&self) -> usize {
        self.ranges.len()
    }
    fn entry_block(&self) -> Block {
        Block::new(0)
    }
    fn block_insns(&self, block: Block) -> InstRange {
        self.ranges[block.index()]
    }
    fn block_succs(&self, block: Block) -> &[Block] {
        &self.succs[block.index()]
    }
    fn block_preds(&self, block: Block) -> &[Block] {
        &self.preds[block.index()]
    }
    fn block_params(&self, block: Block) -> &[VReg] {
        &self.params[block.index()]
    }
    fn is_ret(&self, inst: InstIndex) -> bool {
        self.insts[inst.index()].is(&super::x86::rows_general::RET)
    }
    fn is_branch(&self, inst: InstIndex) -> bool {
        let inst = &self.insts[inst.index()];
        inst.is(&super::x86::rows_general::JUMP) || inst.is(&super::x86::rows_general::BRANCH)
    }
    fn branch_blockparams(&self, block: Block, _: InstIndex, _: usize) -> &[VReg] {
        &self.args[block.index()]
    }
    fn inst_operands(&self, inst: InstIndex) -> &[Operand] {
        &self.insts[inst.index()].ops
    }
    fn inst_clobbers(&self, inst: InstIndex) -> PRegSet {
        if self.insts[inst.index()].callee.is_some() { self.clobbers } else { PRegSet::empty() }
    }
    fn num_vregs(&self) -> usize {
        self.vregs
    }
    fn spillslot_size(&self, class: RegClass) -> usize {
        if class == RegClass::Float { self.vector_words } else { 1 }
    }
}
