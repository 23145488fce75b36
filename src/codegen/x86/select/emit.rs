//! Instructions, constants and temporary memory.

use super::memory::Address;
use super::{Place, Registers, Select, Value};
use crate::codegen::mir::{Base, Inst, Masking, Mem};
use crate::codegen::x86::inst::{Cond, Form, R32, R64, Row};
use crate::codegen::x86::rows_float as f;
use crate::codegen::x86::rows_general as g;
use crate::codegen::x86::rows_move as m;
use crate::dtype::DType;
use crate::render::facts::storage;
use regalloc2::{Operand, RegClass, VReg};
use smallvec::SmallVec;

/// The number of vector constants that the entry block holds in registers, with 32 and with 16
/// registers. Others are loaded where they are used, as are those that a loop has no registers for.
const HOISTED: [usize; 2] = [20, 10];

impl Select {
    fn vreg(&mut self, class: RegClass) -> VReg {
        self.vregs += 1;
        VReg::new(self.vregs - 1, class)
    }
    /// Makes a general register.
    pub fn int(&mut self) -> VReg {
        self.vreg(RegClass::Int)
    }
    /// Makes a vector register.
    pub fn float(&mut self) -> VReg {
        self.vreg(RegClass::Float)
    }
    /// Makes a mask register.
    pub fn mask(&mut self) -> VReg {
        self.vreg(RegClass::Vector)
    }

    /// Appends an instruction to the current block.
    pub fn push(&mut self, inst: Inst) {
        let node = self.node;
        self.blocks[self.current].insts.push(Inst { node, ..inst });
    }

    /// Returns the form of a vector instruction of a width in bytes.
    pub fn form(&self, bytes: usize) -> Form {
        match (self.isa.masks(), self.isa.avx(), bytes) {
            (true, _, 0..=16) => Form::Evex16,
            (true, _, 17..=32) => Form::Evex32,
            (true, ..) => Form::Evex64,
            (_, true, 0..=16) => Form::Vex16,
            (_, true, _) => Form::Vex32,
            _ => Form::Legacy,
        }
    }
    /// Returns the form of registers that hold lanes of a size, and their number.
    pub fn pieces(&self, size: usize, lanes: usize) -> (Form, usize) {
        let bytes = size * lanes;
        let width = bytes.next_power_of_two().clamp(16, self.isa.vector_bytes());
        (self.form(width), bytes.div_ceil(width))
    }
    /// Returns the form and the number of registers of a value that is in vector registers.
    pub fn layout(&self, dtype: DType) -> (Form, usize) {
        self.pieces(size(dtype), dtype.lanes as usize)
    }

    /// Makes an instruction with a result of one class from registers, in the order of operands.
    /// The form that overwrites an operand is chosen by the row.
    fn build(&mut self, row: &'static Row, form: Form, def: VReg, uses: &[VReg]) -> Inst {
        let is_general = matches!(row.operands.as_bytes().first(), Some(b'w' | b'r' | b'R'))
            && def.class() == RegClass::Int;
        let tied = row.tied && (is_general || form == Form::Legacy);
        let mut ops: SmallVec<[Operand; 4]> = SmallVec::new();
        if tied {
            ops.push(Operand::reg_reuse_def(def, 1));
        } else {
            ops.push(Operand::reg_def(def));
        }
        ops.extend(uses.iter().map(|u| Operand::reg_use(*u)));
        Inst::new(row, form, ops)
    }

    /// Emits an instruction with a vector result.
    pub fn v(&mut self, row: &'static Row, form: Form, uses: &[VReg]) -> VReg {
        let def = self.float();
        let inst = self.build(row, form, def, uses);
        self.push(inst);
        def
    }
    /// Emits an instruction with a vector result and an immediate.
    pub fn vi(&mut self, row: &'static Row, form: Form, uses: &[VReg], imm: i64) -> VReg {
        let def = self.float();
        let inst = self.build(row, form, def, uses);
        self.push(Inst { imm, ..inst });
        def
    }
    /// Emits an instruction with a result in a general register. Its form is that of the width, or
    /// of the vector operand.
    pub fn r(&mut self, row: &'static Row, form: Form, uses: &[VReg], imm: i64) -> VReg {
        let def = self.int();
        let inst = self.build(row, form, def, uses);
        self.push(Inst { imm, ..inst });
        def
    }
    /// Emits an instruction with a result in a mask register.
    pub fn k(&mut self, row: &'static Row, form: Form, uses: &[VReg], imm: i64) -> VReg {
        let def = self.mask();
        let inst = self.build(row, form, def, uses);
        self.push(Inst { imm, ..inst });
        def
    }
    /// Emits an instruction that overwrites its first operand in every form.
    pub fn accumulate(&mut self, row: &'static Row, form: Form, into: VReg, uses: &[VReg]) -> VReg {
        let def = self.float();
        let mut ops: SmallVec<[Operand; 4]> = SmallVec::new();
        // The overwritten operand comes after those of the encoding.
        ops.push(Operand::reg_reuse_def(def, 1 + uses.len()));
        ops.extend(uses.iter().chain([&into]).map(|u| Operand::reg_use(*u)));
        self.push(Inst::new(row, form, ops));
        def
    }
    /// Emits an instruction on the lanes of a mask; other lanes keep those of `rest`.
    pub fn merge(
        &mut self,
        row: &'static Row,
        form: Form,
        uses: &[VReg],
        rest: VReg,
        mask: VReg,
        place: Option<Address>,
    ) -> VReg {
        let def = self.float();
        let mut ops: SmallVec<[Operand; 4]> = SmallVec::new();
        ops.push(Operand::reg_reuse_def(def, 1 + uses.len()));
        ops.extend(uses.iter().chain([&rest, &mask]).map(|u| Operand::reg_use(*u)));
        let mut inst = Inst::new(row, form, ops);
        inst.masking = Some(Masking::Merge);
        if let Some(place) = place {
            self.place(&mut inst, place);
        }
        self.push(inst);
        def
    }
    /// Emits a blend: the lanes of `yes` where the mask is set, else those of `no`.
    pub fn blend(&mut self, row: &'static Row, form: Form, k: VReg, yes: VReg, no: VReg) -> VReg {
        let def = self.float();
        let mut inst = self.build(row, form, def, &[no, yes, k]);
        inst.masking = Some(Masking::Merge);
        self.push(inst);
        def
    }
    /// Emits a load of the lanes of a mask; other lanes are 0.
    pub fn load_zeroing(&mut self, row: &'static Row, form: Form, k: VReg, place: Address) -> VReg {
        let def = self.float();
        let mut inst = self.build(row, form, def, &[k]);
        inst.masking = Some(Masking::Zero);
        self.place(&mut inst, place);
        self.push(inst);
        def
    }

    /// Adds a memory operand.
    fn place(&mut self, inst: &mut Inst, place: Address) {
        let Address { base, index, disp } = place;
        let kind = match base {
            super::memory::AddressBase::Register(reg) => {
                inst.ops.push(Operand::reg_use(reg));
                Base::Register
            }
            super::memory::AddressBase::Part(base) => base,
        };
        let scale = index.map_or(0, |(reg, scale)| {
            inst.ops.push(Operand::reg_use(reg));
            scale
        });
        inst.mem = Some(Mem { base: kind, scale, disp, broadcast: false });
    }
    /// Emits an instruction with a vector result whose last operand is in memory.
    pub fn load_vector(
        &mut self,
        row: &'static Row,
        form: Form,
        uses: &[VReg],
        place: Address,
    ) -> VReg {
        let def = self.float();
        let mut inst = self.build(row, form, def, uses);
        self.place(&mut inst, place);
        self.push(inst);
        def
    }
    /// Emits a load into a general register.
    pub fn load_general(&mut self, row: &'static Row, form: Form, place: Address) -> VReg {
        let def = self.int();
        let mut inst = self.build(row, form, def, &[]);
        self.place(&mut inst, place);
        self.push(inst);
        def
    }
    /// Emits a store of a register, or of those of its lanes that the mask has.
    pub fn store_register(
        &mut self,
        row: &'static Row,
        form: Form,
        uses: &[VReg],
        mask: Option<VReg>,
        place: Address,
        imm: i64,
    ) {
        let ops = uses.iter().chain(&mask).map(|u| Operand::reg_use(*u));
        let mut inst = Inst::new(row, form, ops);
        inst.masking = mask.map(|_| Masking::Merge);
        inst.imm = imm;
        self.place(&mut inst, place);
        self.push(inst);
    }

    /// Emits a comparison of general registers or a test, which sets the flags.
    pub fn flags(&mut self, row: &'static Row, form: Form, uses: &[VReg], imm: i64) {
        let inst = Inst::new(row, form, uses.iter().map(|u| Operand::reg_use(*u)));
        self.push(Inst { imm, ..inst });
    }
    /// Returns 1 if the flags meet the condition, else 0.
    pub fn set(&mut self, cond: Cond) -> VReg {
        let low = self.int();
        let inst = Inst::new(&g::SETCC, R32, [Operand::reg_def(low)]);
        self.push(Inst { code: cond.codes()[1], ..inst });
        self.r(&g::MOVZX8, R32, &[low], 0)
    }
    /// Returns `yes` if the flags meet the condition, else `no`.
    pub fn choose(&mut self, cond: Cond, form: Form, yes: VReg, no: VReg) -> VReg {
        let def = self.int();
        let inst = self.build(&g::CMOV, form, def, &[no, yes]);
        let code = cond.codes()[if form == R32 { 2 } else { 3 }];
        self.push(Inst { code, ..inst });
        def
    }

    /// Returns an integer constant in a general register.
    pub fn general_constant(&mut self, value: i64) -> VReg {
        if u32::try_from(value).is_ok() {
            self.r(&g::MOV_I, R32, &[], value)
        } else if i32::try_from(value).is_ok() {
            self.r(&g::MOV_SI, R64, &[], value)
        } else {
            self.r(&g::MOV_I, R64, &[], value)
        }
    }

    /// Returns the address of bytes in the constant pool.
    pub fn pooled(&mut self, bytes: &[u8]) -> Address {
        let at = match self.pooled.get(bytes) {
            Some(at) => *at,
            None => {
                let align = bytes.len().next_power_of_two().min(64);
                let at = self.pool.len().next_multiple_of(align);
                self.pool.resize(at, 0);
                self.pool.extend(bytes);
                self.pooled.insert(bytes.to_vec(), at as i32);
                at as i32
            }
        };
        Address::part(Base::Pool, at as i64)
    }

    /// Returns a vector register that holds bytes.
    pub fn bytes_constant(&mut self, bytes: &[u8], form: Form) -> VReg {
        let place = self.pooled(bytes);
        self.load_vector(&m::MOVUPS, form, &[], place)
    }

    /// Returns a register with an element in every lane.
    pub fn splat_constant(&mut self, bits: u64, size: usize, form: Form) -> VReg {
        let key = (bits, if bits == 0 { 1 } else { size }, form);
        if let Some(reg) = self.known(|s| s.constants.get(&key)) {
            return reg;
        }
        let budget = HOISTED[usize::from(!self.isa.masks())];
        let hoists = !self.open.is_empty() && self.hoisted < budget;
        let current = self.current;
        if hoists {
            self.hoisted += 1;
            self.current = 0;
        }
        let reg = if bits == 0 {
            let def = self.float();
            self.push(Inst::new(&f::XORPS, form, [Operand::reg_def(def)]));
            def
        } else {
            let element = &bits.to_le_bytes()[..size];
            let row = if size == 8 { &m::LOAD_BROADCASTSD } else { &m::LOAD_BROADCASTSS };
            if size >= 4 && row.has(form) {
                let place = self.pooled(element);
                let reg = self.load_vector(row, form, &[], place);
                return self.constant_in(reg, key, hoists, current);
            }
            let bytes: Vec<u8> = element.iter().copied().cycle().take(form.bytes()).collect();
            self.bytes_constant(&bytes, form)
        };
        self.constant_in(reg, key, hoists, current)
    }

    /// Records the register of a constant, and returns to a block.
    fn constant_in(
        &mut self,
        reg: VReg,
        key: (u64, usize, Form),
        hoists: bool,
        current: usize,
    ) -> VReg {
        self.current = current;
        let scope = if hoists { &mut self.scope } else { self.innermost() };
        scope.constants.insert(key, reg);
        reg
    }

    /// Returns the registers of a value that is in vector registers: a scalar float, or a vector
    /// that is not of bools.
    pub fn regs(&mut self, x: &Value) -> Registers {
        match &x.place {
            Place::Vector(regs) => regs.clone(),
            Place::Const(c) => {
                let (form, count) = self.layout(x.dtype);
                let (bits, size) = (c.to_bits(x.dtype.scalar()), size(x.dtype));
                let reg = self.splat_constant(bits, size, form);
                (0..count).map(|_| reg).collect()
            }
            place => unreachable!("{place:?} of {} is not in vector registers", x.dtype),
        }
    }
    /// Returns the general register of a scalar integer, bool or small float.
    pub fn reg(&mut self, x: &Value) -> VReg {
        match &x.place {
            Place::General { reg, .. } => *reg,
            Place::Const(c) => {
                let scalar = x.dtype.scalar();
                let bits = match c {
                    crate::dtype::Const::Int(v) => *v,
                    c => c.to_bits(scalar) as i64,
                };
                self.general_constant(bits)
            }
            place => unreachable!("{place:?} of {} is not in a general register", x.dtype),
        }
    }

    /// Reserves bytes of the temporary part of the frame for the time of `f`.
    pub fn with_temporary<T>(
        &mut self,
        bytes: usize,
        f: impl FnOnce(&mut Self, Address) -> T,
    ) -> T {
        let before = self.temporary.0;
        let at = before.next_multiple_of(64);
        self.temporary.0 = at + bytes;
        self.temporary.1 = self.temporary.1.max(self.temporary.0);
        let result = f(self, Address::part(Base::Temporary, at as i64));
        self.temporary.0 = before;
        result
    }
}

/// Returns the bytes of an element in a register or in memory.
pub(super) fn size(dtype: DType) -> usize {
    if dtype.is_bool() { 1 } else { (storage(dtype.scalar).bits() / 8) as usize }
}
