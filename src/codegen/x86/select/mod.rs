//! Instruction selection. Input: a linear program. Output: blocks of machine instructions on
//! virtual registers.
//!
//! | file | contents |
//! |---|---|
//! | `emit` | instructions, constants, temporary memory |
//! | `regions` | loops and conditional regions |
//! | `elementwise` | ops on values of any kind, and the choice between the files below |
//! | `scalar` | integers in general registers |
//! | `divide` | integer division |
//! | `vector` | floats, and vectors |
//! | `extremes` | maxima and minima whose zero is fixed later |
//! | `mask` | vectors of bools |
//! | `cast`, `small_float` | conversions |
//! | `memory` | loads, stores |
//! | `pointers` | the registers of addresses |
//! | `shuffle` | lanes: broadcasts, picks, concatenations |
//! | `lanes` | what has no vector form: lane by lane, through memory |
//!
//! A scalar integer or bool is in a general register: integers of 8 and 16 bits extended to 32 by
//! their sign, bools 0 or 1, small floats as their bits. A scalar float is the lowest lane of a
//! vector register; what the other lanes hold has no effect on results. A vector is a list of
//! registers of one width, the last of which may be filled in part.
//!
//! **Invariant:** every op, dtype and number of lanes has code at every level.

mod cast;
mod divide;
mod elementwise;
mod emit;
mod extremes;
mod lanes;
mod mask;
mod memory;
mod pointers;
mod regions;
mod scalar;
mod shuffle;
mod small_float;
mod vector;

use super::inst::{Cond, Form};
use super::rows_general as g;
use crate::codegen::address::Addresses;
use crate::codegen::isa::Isa;
use crate::codegen::mir::{Inst, Machine, MachineBlock, Terminator};
use crate::dtype::{Const, DType};
use crate::ir::{Arg, Op, SpecialKind, UOp};
use crate::kernel::ScratchLayout;
use crate::render::facts::{self, accumulator};
use regalloc2::{Operand, PReg, RegClass, VReg};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The end of a step, or the reason why there is no code.
pub(super) type Done = Result<(), String>;

/// The registers of a vector.
pub(super) type Registers = SmallVec<[VReg; 4]>;

/// The place of a value.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A constant, in every lane.
    Const(Const),
    /// A general register. `wide` says that all 64 bits are the sign-extended value.
    General { reg: VReg, wide: bool },
    /// Vector registers.
    Vector(Registers),
    /// A vector of bools: masks of the lanes of a vector with elements of `size` bytes. With mask
    /// registers a bit per lane, otherwise lanes of ones and zeros.
    Mask { size: usize, regs: Registers },
}

/// A value: its place and its dtype.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub place: Place,
    pub dtype: DType,
}

impl Value {
    pub fn vector(regs: impl IntoIterator<Item = VReg>, dtype: DType) -> Value {
        Value { place: Place::Vector(regs.into_iter().collect()), dtype }
    }
    pub fn general(reg: VReg, dtype: DType) -> Value {
        Value { place: Place::General { reg, wide: dtype.bits() == 64 }, dtype }
    }
    pub fn constant(value: impl Into<Const>, dtype: DType) -> Value {
        Value { place: Place::Const(value.into().normalize(dtype.scalar())), dtype }
    }
    /// Returns the constant in every lane.
    pub fn as_const(&self) -> Option<Const> {
        if let Place::Const(c) = self.place { Some(c) } else { None }
    }
    /// Returns the integer constant in every lane.
    pub fn as_int(&self) -> Option<i64> {
        match self.place {
            Place::Const(Const::Int(v)) => Some(v),
            _ => None,
        }
    }
    /// Returns the same registers as another dtype of the same width.
    pub fn with(self, dtype: DType) -> Value {
        Value { dtype, ..self }
    }
}

/// Values of a region, which end with it.
#[derive(Default)]
struct Scope {
    values: FxHashMap<u64, Value>,
    /// Terms of indices with all 64 bits, times a number of bytes.
    products: FxHashMap<(u64, i64), VReg>,
    /// Vector constants, by their bits and form.
    constants: FxHashMap<(u64, usize, Form), VReg>,
    /// Mask registers with one bool in all lanes.
    masks: FxHashMap<u64, VReg>,
    /// Pointers, by buffer and terms.
    pointers: FxHashMap<u64, VReg>,
}

/// The state of selection.
pub(super) struct Select {
    pub isa: Isa,
    blocks: Vec<MachineBlock>,
    current: usize,
    vregs: usize,
    node: u32,
    pool: Vec<u8>,
    pooled: FxHashMap<Vec<u8>, i32>,
    /// Bytes of the temporary part of the frame: in use, and at most.
    temporary: (usize, usize),
    /// The arrays in scratch memory: offsets by node.
    shared: FxHashMap<u64, usize>,
    arrays: ScratchLayout,
    scratch: VReg,
    thread: VReg,
    /// Extents of the dimensions of the thread number.
    threads: Vec<usize>,
    scope: Scope,
    open: Vec<regions::Region>,
    /// The current value of each accumulator, by number.
    accs: BTreeMap<u32, Value>,
    changed: FxHashMap<u64, Vec<u32>>,
    addresses: Addresses,
    extremes: extremes::Extremes,
    /// Constants that the entry block holds in registers.
    hoisted: usize,
    /// True where buffers with stores past the caches start at a cache line.
    aligned: bool,
}

/// Selects the instructions of a linear program.
pub(crate) fn select(uops: &[UOp], isa: Isa) -> Result<Machine, String> {
    let mut s = Select::new(uops, isa);
    s.enter(uops);
    match uops.iter().find(|u| u.is_nontemporal()) {
        Some(store) => s.for_alignments(uops, store)?,
        None => s.items(uops)?,
    }
    if isa.avx() {
        s.push(Inst::new(&g::VZEROUPPER, super::inst::R64, []));
    }
    Ok(Machine {
        blocks: s.blocks,
        vregs: s.vregs,
        temporary_bytes: s.temporary.1,
        pool: s.pool,
        vector_words: isa.vector_bytes() / 8,
    })
}

impl Select {
    fn new(uops: &[UOp], isa: Isa) -> Select {
        let none = VReg::new(0, RegClass::Int);
        Select {
            isa,
            blocks: vec![MachineBlock {
                params: Vec::new(),
                insts: Vec::new(),
                end: Terminator::Return,
                depth: 0,
                of_loop: None,
            }],
            current: 0,
            vregs: 0,
            node: 0,
            pool: Vec::new(),
            pooled: FxHashMap::default(),
            temporary: (0, 0),
            shared: FxHashMap::default(),
            arrays: ScratchLayout::default(),
            scratch: none,
            thread: none,
            threads: facts::chunk_dims(uops),
            scope: Scope::default(),
            open: Vec::new(),
            accs: BTreeMap::new(),
            changed: facts::changed_accumulators(uops),
            addresses: Addresses::new(uops, |b| emit::size(b.dtype().scalar()) as i64),
            extremes: extremes::Extremes::new(uops),
            hoisted: 0,
            aligned: false,
        }
    }

    /// Defines the arguments of the kernel, and loads the addresses of its buffers.
    fn enter(&mut self, uops: &[UOp]) {
        let (buffers, thread, scratch) = (self.int(), self.int(), self.int());
        let fixed = |v, i| Operand::reg_fixed_def(v, PReg::new(i, RegClass::Int));
        let args = [fixed(buffers, 7), fixed(thread, 6), fixed(scratch, 2)];
        self.push(Inst::new(&g::ENTRY, Form::Legacy, args));
        (self.thread, self.scratch) = (thread, scratch);
        for u in uops {
            if let Some(buffer) = u.as_define_global() {
                let place = memory::Address::at(buffers, 8 * buffer.slot as i64);
                let reg = self.load_general(&g::LOAD, super::inst::R64, place);
                self.scope.values.insert(u.id(), Value::general(reg, DType::I64));
            }
        }
    }

    /// Selects the instructions of all nodes.
    fn items(&mut self, uops: &[UOp]) -> Done {
        let outside = self.open.len();
        for (i, u) in uops.iter().enumerate() {
            self.node = i as u32;
            self.item(u).map_err(|why| format!("cannot generate code for {u:?}: {why}"))?;
        }
        match self.open.get(outside) {
            Some(region) => Err(format!("{:?} is never closed", region.opened)),
            None => Ok(()),
        }
    }

    /// Selects the instructions twice: with stores past the caches for buffers that start at a
    /// cache line, and without them for others. `store` is one of these stores.
    fn for_alignments(&mut self, uops: &[UOp], store: &UOp) -> Done {
        let mut starts: Vec<VReg> = Vec::new();
        for u in uops.iter().filter(|u| u.is_nontemporal()) {
            let start = self.value(u.expect_store().place.buffer)?;
            starts.push(self.reg(&start));
        }
        starts.dedup();
        let mut bits = starts[0];
        for start in &starts[1..] {
            bits = self.r(&g::OR, super::inst::R64, &[bits, *start], 0);
        }
        let low = self.r(&g::AND_I, super::inst::R64, &[bits], 63);
        for (aligned, cond) in [(true, Cond::E), (false, Cond::Ne)] {
            self.flags(&g::TEST, super::inst::R64, &[low, low], 0);
            self.aligned = aligned;
            // Values of accumulators end with their region.
            self.accs.clear();
            self.open_condition(store, cond);
            self.items(uops)?;
            if aligned {
                // Other threads see the elements with the end of the chunk.
                self.push(Inst::new(&g::SFENCE, super::inst::R64, []));
            }
            self.close_masked(store)?;
        }
        Ok(())
    }

    fn innermost(&mut self) -> &mut Scope {
        self.open.last_mut().map_or(&mut self.scope, |r| &mut r.scope)
    }

    /// Returns what some scope knows, the innermost first.
    fn known<T: Clone>(&self, get: impl Fn(&Scope) -> Option<&T>) -> Option<T> {
        self.open.iter().rev().map(|r| &r.scope).chain([&self.scope]).find_map(get).cloned()
    }

    /// Returns the value of an operand.
    fn value(&self, u: &UOp) -> Result<Value, String> {
        if let Some(value) = u.as_const() {
            if u.dtype() == DType::VOID {
                return Err("a void has no value".to_string());
            }
            return Ok(Value::constant(value, u.dtype()));
        }
        let found = match accumulator(u) {
            Some(acc) => self.accs.get(&acc).cloned(),
            None => self.known(|s| s.values.get(&u.id())),
        };
        found.ok_or_else(|| {
            format!("its operand {u:?} is not defined before it, or only in a closed block")
        })
    }

    /// Returns the position in a dimension of the threads. One number counts through all
    /// dimensions, the first one fastest.
    fn position(&mut self, u: &UOp, dim: usize) -> Value {
        let stride: usize = self.threads[..dim].iter().product();
        let wide = DType::I64;
        let mut at = Value::general(self.thread, wide);
        if stride > 1 {
            at = self.divide(Op::CDiv, at, Value::constant(stride as i64, wide), wide, true);
        }
        if dim + 1 < self.threads.len() {
            let extent = Value::constant(self.threads[dim] as i64, wide);
            at = self.divide(Op::CMod, at, extent, wide, true);
        }
        at.with(u.dtype())
    }

    fn item(&mut self, u: &UOp) -> Done {
        let value = match (u.op(), u.arg()) {
            // A workgroup is one thread here, so it need not wait for itself.
            (Op::Const | Op::Index | Op::Sink | Op::Barrier | Op::DefineGlobal, _) => return Ok(()),
            (Op::DefineShared, _) => {
                if !self.shared.contains_key(&u.id()) {
                    let at = self.arrays.place(u);
                    self.shared.insert(u.id(), at);
                }
                return Ok(());
            }
            (Op::Special, Arg::Special { kind: SpecialKind::Thread, dim, .. }) => {
                self.position(u, *dim as usize)
            }
            (Op::Special, Arg::Special { kind, dim, .. }) => {
                return Err(format!("there is no {}{dim}", kind.prefix()));
            }
            (Op::Range, _) => return self.open_loop(u),
            (Op::EndRange, _) => return self.close_loop(u.operand()),
            (Op::If, _) => {
                let condition = self.value(u.expect_if().cond)?;
                self.open_masked(u, condition);
                return Ok(());
            }
            (Op::EndIf, _) => return self.close_masked(u.operand()),
            (Op::DefineAcc, Arg::Acc(number)) => {
                let init = self.value(u.expect_define_acc().init)?;
                self.accs.insert(*number, init);
                return Ok(());
            }
            (Op::Assign, _) => {
                let acc = accumulator(u).ok_or("its place is not an accumulator")?;
                let value = self.value(u.expect_assign().value)?;
                self.accs.insert(acc, value);
                return Ok(());
            }
            (Op::Load, _) => self.load(u)?,
            (Op::Store, _) => return self.store(u),
            (Op::Vectorize, _) => {
                let src = u.src().iter().map(|s| self.value(s)).collect::<Result<Vec<_>, _>>()?;
                self.vectorize(&src, u.dtype())
            }
            (Op::Gep, Arg::Lanes(picked)) => {
                let x = self.value(u.operand())?;
                self.pick(&x, picked)
            }
            (op, _) if op.is_alu() && self.addresses.is_unused(u) => return Ok(()),
            (op, _) if op.is_alu() => self.alu(u)?,
            _ => return Err("it does not belong in a linear program".to_string()),
        };
        self.innermost().values.insert(u.id(), value);
        Ok(())
    }

    /// Selects an elementwise op.
    fn alu(&mut self, u: &UOp) -> Result<Value, String> {
        let x = u.src().iter().map(|s| self.value(s)).collect::<Result<SmallVec<[_; 3]>, _>>()?;
        if self.addresses.is_exact(u)
            && let Some(value) = self.address_arithmetic(u, &x)
        {
            return Ok(value);
        }
        if matches!(u.op(), Op::CDiv | Op::CMod) && u.dtype().lanes == 1 {
            let is_positive = u.operand().vmin() >= 0;
            let [a, b] = [x[0].clone(), x[1].clone()];
            return Ok(self.divide(u.op(), a, b, u.dtype(), is_positive));
        }
        let is_float = u.dtype().is_float() && !u.dtype().is_narrow_float();
        if matches!(u.op(), Op::Max | Op::Min) && is_float {
            return Ok(self.extreme_of(u, &x));
        }
        if let Some(value) = self.chosen_extreme(u, &x)? {
            return Ok(value);
        }
        Ok(self.op(u.op(), u.dtype(), &x))
    }

    /// Emits a maximum or minimum of floats. What is a maximum itself comes second.
    fn extreme_of(&mut self, u: &UOp, x: &[Value]) -> Value {
        let is_chain = |u: &UOp| accumulator(u).is_some() || matches!(u.op(), Op::Max | Op::Min);
        let src = u.src();
        let (first, second) =
            if is_chain(&src[0]) && !is_chain(&src[1]) { (&x[1], &x[0]) } else { (&x[0], &x[1]) };
        if let (Some(_), Some(_)) = (first.as_const(), second.as_const()) {
            return self.op(u.op(), u.dtype(), x);
        }
        self.float_extreme(u.op(), u.dtype(), first, second, self.extremes.is_deferred(u))
    }

    /// Emits `a < b ? a : b` or `a < b ? b : a` of floats as one instruction, which returns its
    /// second operand if one is NaN or both are zeros.
    fn chosen_extreme(&mut self, u: &UOp, x: &[Value]) -> Result<Option<Value>, String> {
        let (Op::Where, [condition, yes, no]) = (u.op(), u.src()) else { return Ok(None) };
        let is_float = u.dtype().is_float() && !u.dtype().is_narrow_float();
        let (Op::Lt, [a, b], true) = (condition.op(), condition.src(), is_float) else {
            return Ok(None);
        };
        let is_same = |x: &UOp, y: &UOp| x == y && accumulator(x).is_none();
        let op = match () {
            () if is_same(a, yes) && is_same(b, no) => Op::Min,
            () if is_same(a, no) && is_same(b, yes) => Op::Max,
            () => return Ok(None),
        };
        // Below -v4 a condition on one lane for all of them is not a comparison of vectors.
        if condition.dtype().lanes != u.dtype().lanes {
            return Ok(None);
        }
        Ok(Some(self.plain_extreme(op, u.dtype(), &x[1], &x[2])))
    }
}
