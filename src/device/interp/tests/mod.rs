//! Tests of the interpreter on hand-written programs.

mod alu;
mod faults;
mod programs;
mod proof;
#[cfg(unix)]
mod speed;

use super::{Fault, Interp, Memory, Options};
use crate::dtype::DType;
use crate::ir::{Arg, AxisKind, Op, SpecialKind, Src, ToSrc, UOp};

/// A list in the making; each method appends an item and gives it back.
#[derive(Default)]
pub(super) struct List(pub Vec<UOp>);

impl List {
    fn push(&mut self, op: Op, dtype: DType, src: impl Into<Src>, arg: Arg) -> UOp {
        let u = UOp::new(op, dtype, src, arg);
        self.add(&u)
    }
    /// Appends a node whose operands are listed or literals.
    fn add(&mut self, u: &UOp) -> UOp {
        if u.op() != Op::Const {
            self.0.push(u.clone());
        }
        u.clone()
    }
    /// Appends an expression with everything under it that is not listed yet.
    fn expr(&mut self, u: &UOp) -> UOp {
        for n in u.toposort() {
            if n.op() != Op::Const && !self.0.contains(&n) {
                self.0.push(n);
            }
        }
        u.clone()
    }
    fn global(&mut self, slot: usize, len: usize, dtype: DType) -> UOp {
        self.push(Op::DefineGlobal, dtype, Src::new(), Arg::Global { slot, len })
    }
    fn shared(&mut self, id: u32, len: usize, dtype: DType) -> UOp {
        self.push(Op::DefineShared, dtype, Src::new(), Arg::Shared { id, len })
    }
    fn special(&mut self, kind: SpecialKind, dim: u8, extent: usize) -> UOp {
        self.push(Op::Special, DType::I32, Src::new(), Arg::Special { kind, dim, extent })
    }
    fn range(&mut self, id: u32, extent: &UOp) -> UOp {
        self.push(
            Op::Range,
            extent.dtype(),
            [extent.clone()].to_src(),
            Arg::Range { id, kind: AxisKind::Loop, lanes: false },
        )
    }
    fn end(&mut self, range: &UOp) {
        self.push(Op::EndRange, DType::VOID, [range.clone()].to_src(), Arg::None);
    }
    fn open_if(&mut self, cond: &UOp) -> UOp {
        let cond = self.expr(cond);
        self.push(Op::If, DType::VOID, [cond].to_src(), Arg::None)
    }
    fn end_if(&mut self, open: &UOp) {
        self.push(Op::EndIf, DType::VOID, [open.clone()].to_src(), Arg::None);
    }
    fn acc(&mut self, id: u32, init: &UOp) -> UOp {
        self.push(Op::DefineAcc, init.dtype(), [init.clone()].to_src(), Arg::Acc(id))
    }
    fn assign(&mut self, acc: &UOp, value: &UOp) -> UOp {
        let value = self.expr(value);
        self.push(Op::Assign, acc.dtype(), [acc.clone(), value].to_src(), Arg::None)
    }
    fn index(&mut self, buf: &UOp, idx: &UOp) -> UOp {
        self.expr(&UOp::new(Op::Index, buf.dtype(), [buf.clone(), idx.clone()].to_src(), Arg::None))
    }
    fn load(&mut self, buf: &UOp, idx: &UOp) -> UOp {
        self.load_lanes(buf, idx, 1)
    }
    fn load_lanes(&mut self, buf: &UOp, idx: &UOp, lanes: u16) -> UOp {
        let index = self.index(buf, idx);
        self.push(Op::Load, buf.dtype().vec(lanes), [index].to_src(), Arg::None)
    }
    /// Returns a load that is ordered after something, so that it is another node than the one
    /// before.
    fn load_after(&mut self, buf: &UOp, idx: &UOp, after: &UOp) -> UOp {
        let index = self.index(buf, idx);
        self.push(Op::Load, buf.dtype(), [index, after.clone()].to_src(), Arg::None)
    }
    fn masked_load(&mut self, buf: &UOp, idx: &UOp, mask: &UOp, alt: &UOp) -> UOp {
        let (idx, mask) = (self.expr(idx), self.expr(mask));
        let index = self.push(Op::Index, buf.dtype(), [buf.clone(), idx, mask].to_src(), Arg::None);
        self.push(Op::Load, alt.dtype(), [index, alt.clone()].to_src(), Arg::None)
    }
    fn store(&mut self, buf: &UOp, idx: &UOp, value: &UOp) -> UOp {
        let value = self.expr(value);
        let index = self.index(buf, idx);
        self.push(Op::Store, DType::VOID, [index, value].to_src(), Arg::None)
    }
    fn barrier(&mut self, after: &UOp) -> UOp {
        self.push(Op::Barrier, DType::VOID, [after.clone()].to_src(), Arg::None)
    }
}

fn i32c(v: i32) -> UOp {
    UOp::constant(v, DType::I32)
}
fn f32c(v: f32) -> UOp {
    UOp::constant(v, DType::F32)
}

/// Runs with race checks; the program must also satisfy the verifier.
fn run(list: &List, bufs: &mut [Vec<u8>]) -> Result<(), Fault> {
    crate::verify::program(&list.0).unwrap();
    run_unverified(list, bufs, &[])
}

fn run_unverified(list: &List, bufs: &mut [Vec<u8>], vars: &[(&str, i64)]) -> Result<(), Fault> {
    let interp = Interp::compile(&list.0)?;
    let memory: Vec<Memory<'_>> = bufs.iter_mut().map(|b| Memory::new(b)).collect();
    interp.run_with(&memory, interp.launch(), &Options { races: true, vars })
}

fn bytes<const N: usize, T>(v: &[T], f: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    v.iter().flat_map(f).collect()
}
fn f32s(v: &[f32]) -> Vec<u8> {
    bytes(v, |x| x.to_le_bytes())
}
fn i32s(v: &[i32]) -> Vec<u8> {
    bytes(v, |x| x.to_le_bytes())
}
fn to_f32(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}
fn to_i32(b: &[u8]) -> Vec<i32> {
    b.chunks_exact(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect()
}
