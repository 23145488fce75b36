//! Lanes: broadcasts, vectors from scalars and from other vectors, picked lanes.

use super::elementwise::like;
use super::emit::size;
use super::regions::in_vector;
use super::{Place, Registers, Select, Value};
use crate::codegen::x86::inst::{Form, R32, R64, Row};
use crate::codegen::x86::rows_general as g;
use crate::codegen::x86::rows_move as m;
use crate::dtype::{Const, DType, Scalar};
use crate::ir::Op;
use regalloc2::VReg;

impl Select {
    /// Returns a register with some bytes of a vector at its front.
    pub(super) fn part(&mut self, regs: &[VReg], form: Form, offset: usize, bytes: usize) -> VReg {
        let (piece, at) = (offset / form.bytes(), offset % form.bytes());
        let reg = regs[piece];
        if at == 0 {
            return reg;
        }
        if bytes == 32 {
            return self.vi(&m::EXTRACT256, form, &[reg], (at / 32) as i64);
        }
        let quarter = match at / 16 {
            0 => reg,
            n => self.vi(&m::EXTRACT128, form, &[reg], n as i64),
        };
        match at % 16 {
            0 => quarter,
            n => self.vi(&m::PSRLDQ_I, self.form(16), &[quarter], n as i64),
        }
    }

    /// Joins parts of `bytes` bytes each, at the front of a register, to registers of a form.
    pub(super) fn joined(
        &mut self,
        mut parts: Vec<VReg>,
        mut bytes: usize,
        form: Form,
    ) -> Registers {
        while bytes < form.bytes() && parts.len() > 1 {
            let joint: Vec<VReg> = parts
                .chunks(2)
                .map(|pair| match *pair {
                    [low, high] => match bytes {
                        2 => self.v(&m::PUNPCKLWD, self.form(16), &[low, high]),
                        4 => self.v(&m::PUNPCKLDQ, self.form(16), &[low, high]),
                        8 => self.v(&m::PUNPCKLQDQ, self.form(16), &[low, high]),
                        16 => self.vi(&m::INSERT128, self.form(32), &[low, high], 1),
                        _ => self.vi(&m::INSERT256, self.form(64), &[low, high], 1),
                    },
                    _ => pair[0],
                })
                .collect();
            (parts, bytes) = (joint, 2 * bytes);
        }
        parts.into_iter().collect()
    }

    /// Returns a scalar in every lane.
    pub(super) fn broadcast(&mut self, x: &Value, dtype: DType) -> Value {
        if let Some(c) = x.as_const() {
            return Value { place: Place::Const(c), dtype };
        }
        let lanes = dtype.lanes as usize;
        if dtype.is_bool() {
            let bit = self.reg(x);
            let ones = self.r(&g::NEG, R64, &[bit], 0);
            let (_, count) = self.pieces(1, lanes);
            let regs: Registers = if self.isa.masks() {
                let mask = self.k(&m::KMOV_FROM_R, Form::Evex16, &[ones], 0);
                (0..count).map(|_| mask).collect()
            } else {
                let bytes = Value::general(ones, DType::I8);
                let whole = self.broadcast(&bytes, like(dtype, Scalar::I8));
                self.regs(&whole)
            };
            return Value { place: Place::Mask { size: 1, regs }, dtype };
        }
        let (form, count) = self.layout(dtype);
        let reg = if in_vector(x.dtype) {
            let a = self.regs(x)[0];
            self.broadcast_float(a, size(dtype), form)
        } else {
            let a = self.reg(x);
            self.broadcast_general(a, size(dtype), form)
        };
        Value::vector((0..count).map(|_| reg), dtype)
    }

    fn broadcast_float(&mut self, x: VReg, size: usize, form: Form) -> VReg {
        match (size, form) {
            (4, Form::Legacy) => self.vi(&m::SHUFPS, form, &[x, x], 0),
            (4, _) => self.v(&m::BROADCASTSS, form, &[x]),
            (_, Form::Legacy | Form::Vex16 | Form::Evex16) => self.v(&m::UNPCKLPD, form, &[x, x]),
            _ => self.v(&m::BROADCASTSD, form, &[x]),
        }
    }

    fn broadcast_general(&mut self, x: VReg, size: usize, form: Form) -> VReg {
        let log = size.trailing_zeros() as usize;
        if self.isa.masks() {
            let row =
                [&m::PBROADCASTB_R, &m::PBROADCASTW_R, &m::PBROADCASTD_R, &m::PBROADCASTQ_R][log];
            return self.v(row, form, &[x]);
        }
        let narrow = self.form(16);
        let (row, x) = match size {
            8 => (&m::MOVQ, x),
            _ => (&m::MOVD, x),
        };
        if self.isa.avx() {
            let first = self.v(row, narrow, &[x]);
            let row = [&m::PBROADCASTB, &m::PBROADCASTW, &m::PBROADCASTD, &m::PBROADCASTQ][log];
            return self.v(row, form, &[first]);
        }
        // Four bytes of copies come from a product.
        let x = match size {
            1 => {
                let low = self.r(&g::MOVZX8, R32, &[x], 0);
                self.r(&g::IMUL_I, R32, &[low], 0x0101_0101)
            }
            2 => {
                let low = self.r(&g::MOVZX16, R32, &[x], 0);
                self.r(&g::IMUL_I, R32, &[low], 0x0001_0001)
            }
            _ => x,
        };
        let first = self.v(row, narrow, &[x]);
        match size {
            8 => self.v(&m::PUNPCKLQDQ, narrow, &[first, first]),
            _ => self.vi(&m::PSHUFD, narrow, &[first], 0),
        }
    }

    /// Returns a vector of scalars, or of the lanes of vectors one after the other.
    pub(super) fn vectorize(&mut self, x: &[Value], dtype: DType) -> Value {
        let [first, ..] = x else { return Value::constant(0, dtype) };
        if x.iter().any(|x| x.dtype.lanes > 1) {
            return self.concatenated(x, dtype);
        }
        if x.iter().all(|x| x.as_const().is_some()) {
            return self.constants(x, dtype);
        }
        let same = Select::single(first);
        if same.is_some() && x.iter().all(|x| Select::single(x) == same) {
            return self.broadcast(first, dtype);
        }
        let bytes = size(dtype);
        if dtype.is_bool() || bytes < 4 {
            return self.through_memory(x, dtype);
        }
        let (form, _) = self.layout(dtype);
        let narrow = self.form(16);
        let singles: Vec<VReg> = if in_vector(first.dtype) {
            x.iter().map(|x| self.regs(x)[0]).collect()
        } else {
            let row = if bytes == 8 { &m::MOVQ } else { &m::MOVD };
            x.iter()
                .map(|x| {
                    let reg = self.reg(x);
                    self.v(row, narrow, &[reg])
                })
                .collect()
        };
        Value::vector(self.joined(singles, bytes, form), dtype)
    }

    /// Returns a vector of constants.
    fn constants(&mut self, x: &[Value], dtype: DType) -> Value {
        let values: Vec<Const> = x.iter().filter_map(Value::as_const).collect();
        if values.iter().all(|c| c.to_bits(dtype.scalar()) == values[0].to_bits(dtype.scalar())) {
            return Value { place: Place::Const(values[0]), dtype };
        }
        let (bytes, (form, count)) = (size(dtype), self.layout(dtype));
        let mut all = Vec::new();
        for value in values {
            all.extend(&value.to_bits(dtype.scalar()).to_le_bytes()[..bytes]);
        }
        all.resize(form.bytes() * count, 0);
        let regs: Registers =
            all.chunks(form.bytes()).map(|piece| self.bytes_constant(piece, form)).collect();
        if dtype.is_bool() {
            let bytes = Value::vector(regs, like(dtype, Scalar::U8));
            return self.test_constant(Op::Ne, &bytes, 0);
        }
        Value::vector(regs, dtype)
    }

    /// Stores values one after the other and loads the whole.
    fn through_memory(&mut self, x: &[Value], dtype: DType) -> Value {
        self.with_lanes(&[], dtype, |s, _, out| {
            let mut at = out;
            for x in x {
                s.store_at(at, x);
                at = at.plus(size(dtype) * x.dtype.lanes as usize);
            }
        })
    }

    /// Returns the lanes of vectors one after the other.
    fn concatenated(&mut self, x: &[Value], dtype: DType) -> Value {
        let first = x[0].dtype;
        let bytes = size(first) * first.lanes as usize;
        let alike = x.iter().all(|x| x.dtype == first && matches!(x.place, Place::Vector(_)));
        let (form, _) = self.layout(dtype);
        if alike && bytes.is_power_of_two() && bytes >= 2 {
            let (part_form, _) = self.layout(first);
            let parts: Vec<VReg> = x.iter().flat_map(|x| self.regs(x)).collect();
            return Value::vector(self.joined(parts, bytes.min(part_form.bytes()), form), dtype);
        }
        self.through_memory(x, dtype)
    }

    /// Returns the picked lanes of a value.
    pub(super) fn pick(&mut self, x: &Value, picked: &[u16]) -> Value {
        let dtype = x.dtype.scalar().vec(picked.len() as u16);
        if x.as_const().is_some() {
            return Value { place: x.place.clone(), dtype };
        }
        if x.dtype.lanes == 1 {
            return if picked.len() == 1 { x.clone() } else { self.broadcast(x, dtype) };
        }
        if let [lane] = picked {
            return self.extract(x, *lane as usize);
        }
        if dtype.is_bool() {
            let bytes = self.mask_bytes(x);
            let picks = self.pick(&bytes, picked);
            return self.test_constant(Op::Ne, &picks, 0);
        }
        let bytes = size(dtype);
        let (from, to) = (self.layout(x.dtype).0, self.layout(dtype).0);
        let regs = self.regs(x);
        let consecutive = picked.windows(2).all(|w| w[1] == w[0] + 1);
        let (offset, total) = (picked[0] as usize * bytes, picked.len() * bytes);
        if consecutive && total.is_power_of_two() && offset.is_multiple_of(total) {
            if total <= from.bytes() {
                let part = self.part(&regs, from, offset, total);
                return Value::vector([part], dtype);
            }
            let pieces = &regs[offset / from.bytes()..(offset + total) / from.bytes()];
            return Value::vector(pieces.iter().copied(), dtype);
        }
        match self.permuted(&regs, picked, bytes, from, to) {
            Some(regs) => Value::vector(regs, dtype),
            None => self.picked_through_memory(x, picked, dtype),
        }
    }

    /// Picks lanes by shuffles of one or two registers; none where that is not possible.
    fn permuted(
        &mut self,
        regs: &[VReg],
        picked: &[u16],
        bytes: usize,
        from: Form,
        to: Form,
    ) -> Option<Registers> {
        let form = from.max(to);
        let per = from.bytes() / bytes;
        let mut result = Registers::new();
        for lanes in picked.chunks(to.bytes() / bytes) {
            let mut sources: Vec<usize> = lanes.iter().map(|l| *l as usize / per).collect();
            sources.sort_unstable();
            sources.dedup();
            let in_register = |l: u16| (*l.checked_rem(per as u16).as_ref().unwrap_or(&0)) as usize;
            let one = sources.len() == 1;
            if self.isa.masks() && sources.len() <= 2 && (bytes > 1 || self.isa.vbmi) {
                let row: &'static Row = [&m::PERMI2B, &m::PERMI2W, &m::PERMI2PS, &m::PERMI2PD]
                    [bytes.trailing_zeros() as usize];
                let width = form.bytes() / bytes;
                let index = |l: u16| {
                    let second = !one && l as usize / per == sources[1];
                    in_register(l) + if second { width } else { 0 }
                };
                let mut order: Vec<u8> = Vec::with_capacity(form.bytes());
                for lane in lanes {
                    order.extend(&(index(*lane) as u64).to_le_bytes()[..bytes]);
                }
                order.resize(form.bytes(), 0);
                let order = self.bytes_constant(&order, form);
                let (low, high) = (regs[sources[0]], regs[*sources.last()?]);
                result.push(self.accumulate(row, form, order, &[low, high]));
            } else if one && form == Form::Vex32 && bytes == 4 {
                let mut order: Vec<u8> = Vec::with_capacity(32);
                for lane in lanes {
                    order.extend((in_register(*lane) as u32).to_le_bytes());
                }
                order.resize(32, 0);
                let order = self.bytes_constant(&order, form);
                result.push(self.v(&m::PERMPS, form, &[order, regs[sources[0]]]));
            } else if one && form.bytes() == 16 && self.isa.sse4() {
                let mut order = [0x80u8; 16];
                for (i, lane) in lanes.iter().enumerate() {
                    for j in 0..bytes {
                        order[i * bytes + j] = (in_register(*lane) * bytes + j) as u8;
                    }
                }
                let order = self.bytes_constant(&order, form);
                result.push(self.v(&m::PSHUFB, form, &[regs[sources[0]], order]));
            } else {
                return None;
            }
        }
        Some(result)
    }

    fn picked_through_memory(&mut self, x: &Value, picked: &[u16], dtype: DType) -> Value {
        let bytes = size(dtype);
        self.with_lanes(std::slice::from_ref(x), dtype, |s, spilled, out| {
            for (i, lane) in picked.iter().enumerate() {
                let value = spilled[0].lane(s, *lane as usize);
                s.store_at(out.plus(i * bytes), &value);
            }
        })
    }

    /// Returns one lane.
    fn extract(&mut self, x: &Value, lane: usize) -> Value {
        let dtype = x.dtype.scalar();
        let narrow = self.form(16);
        if let Place::Mask { size, regs } = &x.place {
            let (size, regs) = (*size, regs.clone());
            let (form, _) = self.pieces(size, x.dtype.lanes as usize);
            let bit = if self.isa.masks() {
                let per = form.bytes() / size;
                let bits = self.r(&m::KMOV_TO_R, Form::Evex16, &[regs[lane / per]], 0);
                match lane % per {
                    0 => bits,
                    n => self.r(&g::SHR_I, R64, &[bits], n as i64),
                }
            } else {
                let part = self.part(&regs, form, lane * size, size);
                self.r(&m::MOVD_R, narrow, &[part], 0)
            };
            let bit = self.r(&g::AND_I, R32, &[bit], 1);
            return Value::general(bit, dtype);
        }
        let (bytes, (form, _)) = (size(dtype), self.layout(x.dtype));
        let regs = self.regs(x);
        if in_vector(dtype) {
            let part = self.part(&regs, form, lane * bytes, bytes);
            return Value::vector([part], dtype);
        }
        let at = lane * bytes;
        let reg = match bytes {
            4 | 8 => {
                let part = self.part(&regs, form, at, bytes);
                let row = if bytes == 8 { &m::MOVQ_R } else { &m::MOVD_R };
                self.r(row, narrow, &[part], 0)
            }
            _ => {
                // The word that holds the lane.
                let part = self.part(&regs, form, at & !15, 16);
                let word = self.r(&m::PEXTRW, narrow, &[part], (at % 16 / 2) as i64);
                if bytes == 1 && at % 2 == 1 { self.r(&g::SHR_I, R32, &[word], 8) } else { word }
            }
        };
        self.extended(reg, dtype)
    }
}
