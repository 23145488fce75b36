//! Addresses, loads and stores.

use super::elementwise::like;
use super::emit::size;
use super::regions::in_vector;
use super::{Done, Place, Registers, Select, Value};
use crate::codegen::mir::Base;
use crate::codegen::x86::inst::{Cond, Form, R32, R64, Row};
use crate::codegen::x86::rows_float as f;
use crate::codegen::x86::rows_general as g;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{DType, Scalar};
use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Op, UOp};
use regalloc2::VReg;

/// The base of an address.
#[derive(Clone, Copy, Debug)]
pub(in crate::codegen::x86) enum AddressBase {
    /// A register.
    Register(VReg),
    /// A part of the frame, or the constant pool.
    Part(Base),
}

/// An address: base + index · scale + disp.
#[derive(Clone, Copy, Debug)]
pub(in crate::codegen::x86) struct Address {
    pub base: AddressBase,
    pub index: Option<(VReg, u8)>,
    pub disp: i32,
}

impl Address {
    /// Returns a place at a distance from a register.
    pub fn at(base: VReg, disp: i64) -> Address {
        Address { base: AddressBase::Register(base), index: None, disp: disp as i32 }
    }
    /// Returns a place in a part of the frame or of the constant pool.
    pub fn part(part: Base, disp: i64) -> Address {
        Address { base: AddressBase::Part(part), index: None, disp: disp as i32 }
    }
    /// Returns the place some bytes further on.
    pub fn plus(self, bytes: usize) -> Address {
        Address { disp: self.disp + bytes as i32, ..self }
    }
}

/// Displacements up to here leave room for the lanes of a vector.
const FAR: i64 = 1 << 30;

impl Select {
    /// Returns the start of a buffer.
    fn start(&mut self, buffer: &UOp) -> Result<Address, String> {
        if let Some(offset) = self.shared.get(&buffer.id()) {
            return Ok(Address::at(self.scratch, *offset as i64));
        }
        let reg = self.value(buffer)?;
        Ok(Address::at(self.reg(&reg), 0))
    }

    /// Returns the address of an element.
    fn address(&mut self, Index { buffer, index, .. }: Index<'_>) -> Result<Address, String> {
        let bytes = size(buffer.dtype().scalar()) as i64;
        let start = self.start(buffer)?;
        let sum = self.addresses.sum(index);
        let place = self.sum_address(buffer, start, &sum.terms, bytes)?;
        let by = sum.constant.wrapping_mul(bytes);
        let disp = i64::from(place.disp).wrapping_add(by);
        if disp.abs() < FAR {
            return Ok(Address { disp: disp as i32, ..place });
        }
        let base = self.pointer(place);
        Ok(Address::at(self.add_constant(base, by), 0))
    }

    /// Returns an address in a register.
    fn pointer(&mut self, place: Address) -> VReg {
        match place {
            Address { base: AddressBase::Register(reg), index: None, disp: 0 } => reg,
            _ => self.load_general(&g::LEA, R64, place),
        }
    }

    /// Selects a load. Where its mask is false, no memory is accessed but the buffer's first
    /// elements.
    pub(super) fn load(&mut self, u: &UOp) -> Result<Value, String> {
        let Some(Load { place: index, alt, .. }) = u.as_load() else {
            return Err("its address is not an index".to_string());
        };
        let dtype = u.dtype();
        let Some(mask) = index.mask else {
            let place = self.address(index)?;
            return Ok(self.load_at(place, dtype));
        };
        let alt = alt.ok_or("its index is masked, but it has no alternative value")?;
        let (condition, alt) = (self.value(mask)?, self.value(alt)?);
        if condition.dtype.lanes > 1 {
            let place = self.address(index)?;
            return Ok(self.masked_load(place, dtype, &condition, &alt));
        }
        if let Some(row) = self.masked_row(dtype).filter(|_| condition.as_const().is_none()) {
            let place = self.address(index)?;
            let lanes = self.every_lane(mask, &condition);
            return Ok(self.load_where(row, place, lanes, dtype, &alt));
        }
        let mask = condition;
        // The mask of a load from a shorter buffer is always false.
        if index.buffer.memory_len().is_some_and(|len| len < dtype.lanes as usize) {
            return Ok(alt);
        }
        let place = self.address(index)?;
        let start = self.start(index.buffer)?;
        let place = self.guarded(&mask, place, start);
        let value = self.load_at(place, dtype);
        Ok(self.select(&mask, &value, &alt))
    }

    /// Returns the instruction that loads a value where a mask register is set; none if there is no
    /// such instruction, or if it would load more than the value.
    fn masked_row(&self, dtype: DType) -> Option<&'static Row> {
        let bytes = size(dtype) * dtype.lanes as usize;
        let is_single = dtype.lanes == 1 && in_vector(dtype);
        match size(dtype) {
            _ if !self.isa.masks() || dtype.is_bool() => None,
            4 if is_single => Some(&m::LOAD_SS),
            8 if is_single => Some(&m::LOAD_SD),
            4.. if dtype.lanes > 1 && bytes.is_multiple_of(self.layout(dtype).0.bytes()) => {
                Some(if size(dtype) == 8 { &m::MOVUPD } else { &m::MOVUPS })
            }
            _ => None,
        }
    }

    /// Returns a mask register with the bits of all lanes for a scalar bool.
    fn every_lane(&mut self, mask: &UOp, condition: &Value) -> VReg {
        let is_kept = super::accumulator(mask).is_none();
        let known = self.known(|s| s.masks.get(&mask.id())).filter(|_| is_kept);
        if let Some(lanes) = known {
            return lanes;
        }
        let bit = self.reg(condition);
        let bits = self.r(&g::NEG, R64, &[bit], 0);
        let lanes = self.k(&m::KMOV_FROM_R, Form::Evex16, &[bits], 0);
        if is_kept {
            self.innermost().masks.insert(mask.id(), lanes);
        }
        lanes
    }

    /// Loads a value where a mask is set. Elsewhere no memory is accessed.
    fn load_where(
        &mut self,
        row: &'static Row,
        place: Address,
        lanes: VReg,
        dtype: DType,
        alt: &Value,
    ) -> Value {
        let (form, count) = self.layout(dtype);
        let is_zero = alt.as_const().is_some_and(|c| c.to_bits(dtype.scalar()) == 0);
        let rest = if is_zero { Registers::new() } else { self.regs(alt) };
        let regs: Registers = (0..count)
            .map(|i| {
                let place = place.plus(i * form.bytes());
                match rest.get(i) {
                    None => self.load_zeroing(row, form, lanes, place),
                    Some(rest) => self.merge(row, form, &[], *rest, lanes, Some(place)),
                }
            })
            .collect();
        Value::vector(regs, dtype)
    }

    /// Returns the first address if the mask is true, else the second.
    fn guarded(&mut self, mask: &Value, place: Address, other: Address) -> Address {
        let (reg, yes, no) = (self.reg(mask), self.pointer(place), self.pointer(other));
        self.flags(&g::TEST, R32, &[reg, reg], 0);
        Address::at(self.choose(Cond::Ne, R64, yes, no), 0)
    }

    /// Loads a value.
    pub(super) fn load_at(&mut self, place: Address, dtype: DType) -> Value {
        if dtype.is_bool() {
            let bytes = self.load_at(place, like(dtype, Scalar::U8));
            return self.test_constant(Op::Ne, &bytes, 0);
        }
        if dtype.lanes > 1 {
            let regs = self.load_registers(place, size(dtype), dtype.lanes as usize);
            return Value::vector(regs, dtype);
        }
        if in_vector(dtype) {
            let row = if dtype.bits() == 64 { &m::LOAD_SD } else { &m::LOAD_SS };
            let reg = self.load_vector(row, self.form(16), &[], place);
            return Value::vector([reg], dtype);
        }
        let (row, form): (&'static Row, Form) = match (size(dtype), dtype.is_signed_int()) {
            (1, true) => (&g::MOVSX8, R32),
            (1, false) => (&g::MOVZX8, R32),
            (2, true) => (&g::MOVSX16, R32),
            (2, false) => (&g::MOVZX16, R32),
            (4, _) => (&g::LOAD, R32),
            _ => (&g::LOAD, R64),
        };
        Value::general(self.load_general(row, form, place), dtype)
    }

    /// Loads lanes of a size, and no byte more.
    fn load_registers(&mut self, place: Address, size: usize, lanes: usize) -> Registers {
        let (form, count) = self.pieces(size, lanes);
        let width = form.bytes();
        (0..count)
            .map(|i| {
                let bytes = (size * lanes - i * width).min(width);
                self.load_bytes(place.plus(i * width), bytes, form)
            })
            .collect()
    }

    /// Loads some bytes into the front of a register.
    fn load_bytes(&mut self, place: Address, bytes: usize, form: Form) -> VReg {
        match bytes {
            _ if bytes == form.bytes() => self.load_vector(&m::MOVUPS, form, &[], place),
            4 => self.load_vector(&m::LOAD_SS, self.form(16), &[], place),
            8 => self.load_vector(&m::LOAD_SD, self.form(16), &[], place),
            16 | 32 => self.load_vector(&m::MOVUPS, self.form(bytes), &[], place),
            _ if self.isa.masks() => {
                let mask = self.low_bits(bytes);
                self.load_zeroing(&m::MOVDQU8, form, mask, place)
            }
            _ => self.with_temporary(form.bytes(), |s, temporary| {
                s.copy(place, temporary, bytes);
                s.load_vector(&m::MOVUPS, form, &[], temporary)
            }),
        }
    }

    /// Returns a mask register with this many low bits.
    fn low_bits(&mut self, bits: usize) -> VReg {
        let bits = if bits >= 64 { -1 } else { (1i64 << bits) - 1 };
        let bits = self.general_constant(bits);
        self.k(&m::KMOV_FROM_R, Form::Evex16, &[bits], 0)
    }

    /// Copies bytes through general registers.
    fn copy(&mut self, from: Address, to: Address, bytes: usize) {
        let mut at = 0;
        while at < bytes {
            let width = match bytes - at {
                8.. => 8,
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
            let (row, form, store): (&'static Row, Form, &'static Row) = match width {
                8 => (&g::LOAD, R64, &g::STORE),
                4 => (&g::LOAD, R32, &g::STORE),
                2 => (&g::MOVZX16, R32, &g::STORE16),
                _ => (&g::MOVZX8, R32, &g::STORE8),
            };
            let reg = self.load_general(row, form, from.plus(at));
            self.store_register(store, form, &[reg], None, to.plus(at), 0);
            at += width;
        }
    }

    /// Selects a store.
    pub(super) fn store(&mut self, u: &UOp) -> Done {
        let Some(Store { place: index, value, .. }) = u.as_store() else {
            return Err("its address is not an index".to_string());
        };
        let value = self.value(value)?;
        let place = self.address(index)?;
        let Some(mask) = index.mask else {
            if self.aligned && u.is_nontemporal() {
                self.store_lines(place, &value);
            } else {
                self.store_at(place, &value);
            }
            return Ok(());
        };
        let mask = self.value(mask)?;
        if mask.dtype.lanes > 1 {
            self.masked_store(place, &value, &mask);
            return Ok(());
        }
        // Where the mask is false, the store goes to the frame.
        self.with_temporary(512, |s, temporary| {
            let place = s.guarded(&mask, place, temporary);
            s.store_at(place, &value);
        });
        Ok(())
    }

    /// Stores a vector of whole cache lines past the caches.
    fn store_lines(&mut self, place: Address, value: &Value) {
        let (regs, (form, _)) = (self.regs(value), self.layout(value.dtype));
        for (i, reg) in regs.iter().enumerate() {
            let place = place.plus(i * form.bytes());
            self.store_register(&m::STORE_STREAM, form, &[*reg], None, place, 0);
        }
    }

    /// Stores a value.
    pub(super) fn store_at(&mut self, place: Address, value: &Value) {
        let dtype = value.dtype;
        if dtype.lanes > 1 {
            let value = if dtype.is_bool() { self.mask_bytes(value) } else { value.clone() };
            let regs = self.regs(&value);
            let (bytes, (form, _)) = (size(dtype), self.layout(value.dtype));
            let (total, width) = (bytes * dtype.lanes as usize, form.bytes());
            for (i, reg) in regs.iter().enumerate() {
                let bytes = (total - i * width).min(width);
                self.store_bytes(place.plus(i * width), *reg, bytes, form);
            }
            return;
        }
        if in_vector(dtype) {
            let row = if dtype.bits() == 64 { &m::STORE_SD } else { &m::STORE_SS };
            let (form, reg) = (self.form(16), self.regs(value)[0]);
            return self.store_register(row, form, &[reg], None, place, 0);
        }
        let (row, form): (&'static Row, Form) = match size(dtype) {
            1 => (&g::STORE8, R32),
            2 => (&g::STORE16, R32),
            4 => (&g::STORE, R32),
            _ => (&g::STORE, R64),
        };
        let reg = self.reg(value);
        self.store_register(row, form, &[reg], None, place, 0);
    }

    /// Stores the first bytes of a register.
    fn store_bytes(&mut self, place: Address, reg: VReg, bytes: usize, form: Form) {
        let (row, form): (&'static Row, Form) = match bytes {
            _ if bytes == form.bytes() => (&m::STORE_UPS, form),
            4 => (&m::STORE_SS, self.form(16)),
            8 => (&m::STORE_SD, self.form(16)),
            16 | 32 => (&m::STORE_UPS, self.form(bytes)),
            _ if self.isa.masks() => {
                let mask = self.low_bits(bytes);
                return self.store_register(&m::STORE_DQU8, form, &[reg], Some(mask), place, 0);
            }
            _ => {
                return self.with_temporary(form.bytes(), |s, temporary| {
                    s.store_register(&m::STORE_UPS, form, &[reg], None, temporary, 0);
                    s.copy(temporary, place, bytes);
                });
            }
        };
        self.store_register(row, form, &[reg], None, place, 0);
    }

    /// Returns the masks of a vector without those of lanes that it does not have.
    fn exact_masks(&mut self, mask: &Value, size: usize) -> Registers {
        let lanes = mask.dtype.lanes as usize;
        let (form, count) = self.pieces(size, lanes);
        let mut masks = self.mask_of(mask, size);
        let rest = lanes - (count - 1) * (form.bytes() / size);
        if rest < form.bytes() / size {
            let last = masks[count - 1];
            masks[count - 1] = if self.isa.masks() {
                let low = self.low_bits(rest);
                self.k(&m::KAND, Form::Evex16, &[last, low], 0)
            } else {
                let mut bytes = vec![0u8; form.bytes()];
                bytes[..rest * size].fill(0xff);
                let low = self.bytes_constant(&bytes, form);
                self.v(&f::ANDPS, form, &[last, low])
            };
        }
        masks
    }

    /// Loads the lanes of a mask; the others are those of `alt`.
    fn masked_load(&mut self, place: Address, dtype: DType, mask: &Value, alt: &Value) -> Value {
        if dtype.is_bool() {
            let bytes = self.mask_bytes(alt);
            let loaded = self.masked_load(place, like(dtype, Scalar::U8), mask, &bytes);
            return self.test_constant(Op::Ne, &loaded, 0);
        }
        let (bytes, (form, _)) = (size(dtype), self.layout(dtype));
        let log = bytes.trailing_zeros() as usize;
        if self.isa.masks() {
            let row = [&m::MOVDQU8, &m::MOVDQU16, &m::MOVUPS, &m::MOVUPD][log];
            let (masks, rest) = (self.exact_masks(mask, bytes), self.regs(alt));
            let regs: Registers = (0..masks.len())
                .map(|i| {
                    let place = place.plus(i * form.bytes());
                    self.merge(row, form, &[], rest[i], masks[i], Some(place))
                })
                .collect();
            return Value::vector(regs, dtype);
        }
        if self.isa.avx() && bytes >= 4 {
            let row = [&m::MASK_LOADPS, &m::MASK_LOADPD][log - 2];
            let masks = self.exact_masks(mask, bytes);
            let regs: Registers = (0..masks.len())
                .map(|i| {
                    let place = place.plus(i * form.bytes());
                    self.load_vector(row, form, &[masks[i]], place)
                })
                .collect();
            let loaded = Value::vector(regs, dtype);
            return self.choose_by_mask(&masks, &loaded, alt);
        }
        self.masked_load_lanes(place, dtype, mask, alt)
    }

    /// Stores the lanes of a mask.
    fn masked_store(&mut self, place: Address, value: &Value, mask: &Value) {
        let value = if value.dtype.is_bool() { self.mask_bytes(value) } else { value.clone() };
        let (bytes, (form, _)) = (size(value.dtype), self.layout(value.dtype));
        let log = bytes.trailing_zeros() as usize;
        if !(self.isa.masks() || (self.isa.avx() && bytes >= 4)) {
            return self.masked_store_lanes(place, &value, mask);
        }
        let (masks, regs) = (self.exact_masks(mask, bytes), self.regs(&value));
        for (i, (reg, mask)) in regs.iter().zip(&masks).enumerate() {
            let place = place.plus(i * form.bytes());
            if self.isa.masks() {
                let row = [&m::STORE_DQU8, &m::STORE_DQU16, &m::STORE_UPS, &m::STORE_UPD][log];
                self.store_register(row, form, &[*reg], Some(*mask), place, 0);
            } else {
                let row = [&m::MASK_STOREPS, &m::MASK_STOREPD][log - 2];
                self.store_register(row, form, &[*mask, *reg], None, place, 0);
            }
        }
    }

    /// Loads lane by lane. A lane whose mask is false reads the frame.
    fn masked_load_lanes(
        &mut self,
        place: Address,
        dtype: DType,
        mask: &Value,
        alt: &Value,
    ) -> Value {
        let lanes = dtype.lanes as usize;
        self.with_lanes(&[mask.clone(), alt.clone()], dtype, |s, spilled, out| {
            for lane in 0..lanes {
                let flag = spilled[0].lane(s, lane);
                let alt = spilled[1].lane(s, lane);
                let from = s.guarded(&flag, place.plus(lane * size(dtype)), out);
                let value = s.load_at(from, dtype.scalar());
                let value = s.select(&flag, &value, &alt);
                s.store_at(out.plus(lane * size(dtype)), &value);
            }
        })
    }

    /// Stores lane by lane. A lane whose mask is false goes to the frame.
    fn masked_store_lanes(&mut self, place: Address, value: &Value, mask: &Value) {
        let (dtype, lanes) = (value.dtype, value.dtype.lanes as usize);
        self.with_lanes(&[mask.clone(), value.clone()], dtype, |s, spilled, out| {
            for lane in 0..lanes {
                let flag = spilled[0].lane(s, lane);
                let value = spilled[1].lane(s, lane);
                let to = s.guarded(&flag, place.plus(lane * size(dtype)), out);
                s.store_at(to, &value);
            }
        });
    }

    /// Returns the place of a value that is not a constant, for tests of equality.
    pub(super) fn single(x: &Value) -> Option<VReg> {
        match &x.place {
            Place::General { reg, .. } => Some(*reg),
            Place::Vector(regs) => regs.first().copied(),
            _ => None,
        }
    }
}
