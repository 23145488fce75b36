//! Compiles a linear program to instructions: each value gets a register, each loop the position of
//! its end.
//!
//! **Invariant:** a value's register is after those of its operands, so that the machine can split
//! the register file between them. Only an `Assign` and the counter of a loop write to a register
//! again.

use super::alu::LaneFn;
use super::{Fault, Global, Interp, alu};
use crate::dtype::{DType, Scalar};
use crate::ir::typed::{Assign, Gep, Index, Load, Shuffle, Store, Wmma};
use crate::ir::{Arg, Op, SpecialKind, TensorCore, UOp};
use crate::verify;
use rustc_hash::FxHashMap;

/// A literal: register, lanes and bits.
pub(super) struct Literal {
    pub at: u32,
    pub lanes: u32,
    pub bits: u64,
}

/// A variable: register, name and bounds.
pub(super) struct Var {
    pub at: u32,
    pub name: String,
    pub min: i64,
    pub max: i64,
    pub dtype: DType,
}

/// The size of an element in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Bool,
    B1,
    B2,
    B4,
    B8,
}

/// An integer operand: its register, and whether its lanes have 64 bits or 32.
#[derive(Clone, Copy)]
pub(super) struct Int {
    pub at: u32,
    pub wide: bool,
}

/// The mask of an access: its register, and whether each lane has one.
#[derive(Clone, Copy)]
pub(super) struct Mask {
    pub at: u32,
    pub of_lanes: bool,
}

/// A memory access: the buffer and the index.
#[derive(Clone, Copy)]
pub(super) struct MemoryAccess {
    pub global: bool,
    pub buf: u32,
    pub len: usize,
    pub size: Size,
    pub lanes: u32,
    pub idx: Int,
}

/// An instruction. Registers are numbered in lanes of one thread; the machine multiplies them by
/// the number of threads.
pub(super) enum Instr {
    Fast {
        f: LaneFn,
        out: u32,
        src: [u32; 3],
        lanes: u32,
    },
    Slow {
        op: Op,
        dtype: DType,
        from: [DType; 3],
        arity: u32,
        out: u32,
        src: [u32; 3],
    },
    Load {
        access: MemoryAccess,
        out: u32,
        /// The mask and the alternative value.
        mask: Option<(Mask, u32)>,
    },
    Store {
        access: MemoryAccess,
        value: u32,
        mask: Option<Mask>,
    },
    /// Writes an accumulator in active threads.
    Set {
        out: u32,
        value: u32,
        lanes: u32,
    },
    Range {
        out: u32,
        extent: Int,
        frame: u32,
        end: u32,
    },
    EndRange {
        out: u32,
        extent: Int,
        frame: u32,
        begin: u32,
    },
    If {
        cond: u32,
        frame: u32,
        end: u32,
    },
    EndIf {
        frame: u32,
    },
    Barrier,
    Special {
        out: u32,
        kind: SpecialKind,
        dim: u8,
    },
    Vectorize {
        out: u32,
        /// Registers and lanes.
        src: Box<[(u32, u32)]>,
    },
    /// A matrix product of each warp: the registers of A, B and C.
    Wmma {
        core: &'static TensorCore,
        out: u32,
        src: [u32; 3],
    },
    /// A warp shuffle: the value of the thread whose number differs in these bits.
    Shuffle {
        out: u32,
        src: u32,
        lanes: u32,
        bits: usize,
    },
    Gep {
        out: u32,
        src: u32,
        lanes: u32,
        picks: Box<[u32]>,
    },
}

struct Compiler {
    out: Interp,
    place: FxHashMap<u64, u32>,
    /// Shared memories by node.
    shared: FxHashMap<u64, u32>,
    /// Open loops and masked regions: the position of the instruction that opened each.
    open: Vec<u32>,
}

impl Compiler {
    fn assign_register(&mut self, u: &UOp) -> u32 {
        let at = self.out.lanes as u32;
        self.out.lanes += u.dtype().lanes as usize;
        self.place.insert(u.id(), at);
        at
    }
    fn at(&self, u: &UOp) -> u32 {
        self.place[&u.id()]
    }
    fn int(&self, u: &UOp) -> Int {
        Int { at: self.at(u), wide: u.dtype() != DType::I32 }
    }
    fn mask(&self, u: &UOp) -> Mask {
        Mask { at: self.at(u), of_lanes: u.dtype().lanes > 1 }
    }
    fn emit(&mut self, u: &UOp, instr: Instr) {
        self.out.code.push(instr);
        self.out.nodes.push(u.clone());
    }

    /// The access of a load or store of `lanes` lanes through an `Index`.
    fn access(&self, Index { buffer: buf, index, .. }: Index<'_>, lanes: u16) -> MemoryAccess {
        let idx = self.int(index);
        let size = match (buf.dtype().scalar, buf.dtype().bits()) {
            (Scalar::Bool, _) => Size::Bool,
            (_, 8) => Size::B1,
            (_, 16) => Size::B2,
            (_, 32) => Size::B4,
            _ => Size::B8,
        };
        let (global, number, len) = match buf.arg() {
            Arg::Global { slot, len } => (true, *slot as u32, *len),
            Arg::Shared { len, .. } => (false, self.shared[&buf.id()], *len),
            _ => unreachable!("verified: an index is of memory"),
        };
        MemoryAccess { global, buf: number, len, size, lanes: lanes as u32, idx }
    }
}

pub(super) fn compile(uops: &[UOp]) -> Result<Interp, Fault> {
    verify::structure(uops).map_err(Fault::Form)?;
    let slots = uops.iter().filter(|u| u.op() == Op::DefineGlobal).count();
    let out = Interp {
        code: Vec::new(),
        nodes: Vec::new(),
        consts: Vec::new(),
        vars: Vec::new(),
        globals: vec![Global { dtype: DType::U8, len: 0 }; slots],
        shared: Vec::new(),
        specials: Vec::new(),
        lanes: 0,
        depth: 0,
    };
    let mut c = Compiler {
        out,
        place: FxHashMap::default(),
        shared: FxHashMap::default(),
        open: Vec::new(),
    };
    c.place_leaves(uops);
    for u in uops {
        c.instruction(u);
        c.out.depth = c.out.depth.max(c.open.len());
    }
    Ok(c.out)
}

impl Compiler {
    /// Assigns registers to literals and variables, which may be operands without being listed.
    fn place_leaves(&mut self, uops: &[UOp]) {
        for u in uops.iter().flat_map(|u| u.src().iter().chain([u])) {
            match u.arg() {
                _ if self.place.contains_key(&u.id()) => {}
                Arg::Const(value) if u.op() == Op::Const => {
                    let at = self.assign_register(u);
                    self.out.consts.push(Literal {
                        at,
                        lanes: u.dtype().lanes as u32,
                        bits: value.to_bits(u.dtype().scalar()),
                    });
                }
                Arg::Var { name, min, max } => {
                    let at = self.assign_register(u);
                    self.out.vars.push(Var {
                        at,
                        name: name.to_string(),
                        min: *min,
                        max: *max,
                        dtype: u.dtype(),
                    });
                }
                _ => {}
            }
        }
    }

    /// Compiles one node.
    fn instruction(&mut self, u: &UOp) {
        match u.op() {
            Op::Const | Op::Var | Op::Index => {}
            Op::DefineGlobal => {
                let Arg::Global { slot, len } = *u.arg() else { unreachable!("verified") };
                self.out.globals[slot] = Global { dtype: u.dtype(), len };
            }
            Op::DefineShared => {
                let Arg::Shared { len, .. } = *u.arg() else { unreachable!("verified") };
                self.shared.insert(u.id(), self.out.shared.len() as u32);
                self.out.shared.push(len);
            }
            Op::Special => self.special(u),
            Op::Range => self.open_loop(u),
            Op::If => self.open_masked(u),
            Op::EndRange | Op::EndIf => self.close_region(u),
            Op::Load => self.load(u),
            Op::Store => self.store(u),
            Op::Barrier => self.emit(u, Instr::Barrier),
            Op::DefineAcc => self.set(u, u.expect_define_acc().init, None),
            Op::Assign => {
                let Assign { acc, value, .. } = u.expect_assign();
                self.set(u, value, Some(acc));
            }
            Op::Vectorize => {
                let src = u.src().iter().map(|s| (self.at(s), s.dtype().lanes as u32)).collect();
                let out = self.assign_register(u);
                self.emit(u, Instr::Vectorize { out, src });
            }
            Op::Wmma => {
                let Wmma { core, a, b, c, .. } = u.expect_wmma();
                let src = [a, b, c].map(|s| self.at(s));
                let out = self.assign_register(u);
                self.emit(u, Instr::Wmma { core, out, src });
            }
            Op::Shuffle => {
                let Shuffle { x, bits, .. } = u.expect_shuffle();
                let (src, lanes) = (self.at(x), u.dtype().lanes as u32);
                let out = self.assign_register(u);
                self.emit(u, Instr::Shuffle { out, src, lanes, bits });
            }
            Op::Gep => {
                let Gep { x, lanes: picks, .. } = u.expect_gep();
                let (src, picks) = (self.at(x), picks.iter().map(|p| *p as u32).collect());
                let out = self.assign_register(u);
                self.emit(u, Instr::Gep { out, src, lanes: x.dtype().lanes as u32, picks });
            }
            op => self.alu(u, op),
        }
    }

    /// Compiles a special index.
    fn special(&mut self, u: &UOp) {
        let Arg::Special { kind, dim, extent } = *u.arg() else { unreachable!("verified") };
        let out = self.assign_register(u);
        self.out.specials.push((kind, dim, extent));
        self.emit(u, Instr::Special { out, kind, dim });
    }

    /// Compiles the start of a loop.
    fn open_loop(&mut self, u: &UOp) {
        let (pc, frame) = (self.out.code.len() as u32, self.open.len() as u32);
        let extent = self.int(u.expect_range().extent);
        let out = self.assign_register(u);
        self.emit(u, Instr::Range { out, extent, frame, end: 0 });
        self.open.push(pc);
    }

    /// Compiles the start of a masked region.
    fn open_masked(&mut self, u: &UOp) {
        let (pc, frame) = (self.out.code.len() as u32, self.open.len() as u32);
        let cond = self.at(u.expect_if().cond);
        self.emit(u, Instr::If { cond, frame, end: 0 });
        self.open.push(pc);
    }

    /// Compiles the end of a loop or a masked region.
    fn close_region(&mut self, u: &UOp) {
        let pc = self.out.code.len() as u32;
        let begin = self.open.pop().expect("verified: regions match");
        let frame = self.open.len() as u32;
        let last = match &mut self.out.code[begin as usize] {
            Instr::Range { out, extent, end, .. } => {
                *end = pc;
                Instr::EndRange { out: *out, extent: *extent, frame, begin }
            }
            Instr::If { end, .. } => {
                *end = pc;
                Instr::EndIf { frame }
            }
            _ => unreachable!("only these open regions"),
        };
        self.emit(u, last);
    }

    /// Compiles a definition of an accumulator, or an assignment to one.
    fn set(&mut self, u: &UOp, value: &UOp, acc: Option<&UOp>) {
        let value = self.at(value);
        let out = match acc {
            Some(acc) => self.at(acc),
            None => self.assign_register(u),
        };
        self.place.insert(u.id(), out);
        self.emit(u, Instr::Set { out, value, lanes: u.dtype().lanes as u32 });
    }

    fn load(&mut self, u: &UOp) {
        let Load { place, alt, .. } = u.expect_load();
        let access = self.access(place, u.dtype().lanes);
        let mask = place.mask.map(|mask| (self.mask(mask), self.at(alt.expect("verified"))));
        let out = self.assign_register(u);
        self.emit(u, Instr::Load { access, out, mask });
    }

    fn store(&mut self, u: &UOp) {
        let Store { place, value, .. } = u.expect_store();
        let access = self.access(place, value.dtype().lanes);
        let (value, mask) = (self.at(value), place.mask.map(|mask| self.mask(mask)));
        self.emit(u, Instr::Store { access, value, mask });
    }

    /// Compiles an elementwise op.
    fn alu(&mut self, u: &UOp, op: Op) {
        let (operands, arity) = (u.src(), u.src().len());
        let pick = |i: usize| &operands[i.min(arity - 1)];
        let src = [0, 1, 2].map(|i| self.at(pick(i)));
        let from = [0, 1, 2].map(|i| pick(i).dtype().scalar());
        let (dtype, lanes) = (u.dtype(), u.dtype().lanes as u32);
        let out = self.assign_register(u);
        let instr = match alu::fast(op, dtype, from[0]) {
            Some(f) => Instr::Fast { f, out, src, lanes },
            None => Instr::Slow { op, dtype, from, arity: arity as u32, out, src },
        };
        self.emit(u, instr);
    }
}
