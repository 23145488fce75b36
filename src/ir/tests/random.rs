//! Random graphs of every op and payload that text can hold. Number and shapes of operands fit the
//! op; dtypes need not, because the parser does not check them.

use crate::dtype::{Const, DType};
use crate::ir::{
    Arg, AxisKind, Combine, Custom, DeviceName, Fold, Gradient, Group, LoadHint, Loop, Op, Slice,
    Source, SpecialKind, Src, StorageRef, TensorCore, UOp, check_payload,
};
use crate::shape::{Movement, SymInt, Variable};
pub use crate::testing::Rng;
use smallvec::SmallVec;
use std::sync::Arc;

/// Mostly small, sometimes any number.
fn size(rng: &mut Rng) -> usize {
    if rng.once_in(8) { rng.bits() as usize } else { rng.below(100) }
}

/// A random field of a payload. Numbers are small where a payload must fit its operands.
pub trait Random: Sized {
    fn random(_: &mut Rng) -> Self {
        unreachable!("text cannot hold the payload")
    }
}

macro_rules! random {
    ($($type:ty: |$rng:ident| $value:expr;)*) => { $(
        impl Random for $type {
            fn random($rng: &mut Rng) -> $type {
                $value
            }
        }
    )* };
}

random! {
    usize: |rng| if rng.once_in(2) { rng.below(4) } else { rng.below(40) };
    u8: |rng| rng.bits() as u8;
    u32: |rng| rng.below(200) as u32;
    u64: |rng| rng.bits();
    i64: |rng| size(rng) as i64;
    bool: |rng| rng.once_in(2);
    Arc<str>: |rng| name(rng).into();
    DeviceName: |rng| DeviceName::new(&if rng.once_in(2) { "CUDA:1".into() } else { name(rng) });
    Fold: |rng| rng.pick(&Fold::ALL);
    Combine: |rng| rng.pick(&Combine::ALL);
    AxisKind: |rng| rng.pick(&AxisKind::ALL);
    SpecialKind: |rng| rng.pick(&SpecialKind::ALL);
    Gradient: |rng| Gradient::unknown(rng.bits());
    &'static TensorCore: |rng| &TensorCore::ALL[rng.below(TensorCore::ALL.len())];
    [u32; 2]: |rng| [rng.bits() as u32, rng.bits() as u32];
    SmallVec<[usize; 2]>: |rng| (0..3).filter(|_| rng.once_in(2)).collect();
    SmallVec<[u16; 4]>: |rng| (0..rng.below(5)).map(|_| rng.below(4) as u16).collect();
    SmallVec<[u32; 4]>: |rng| (0..rng.below(5)).map(|_| rng.below(200) as u32).collect();
    LoadHint: |rng| LoadHint { stage_at: Random::random(rng), prefetch_in: Random::random(rng) };
    Box<Slice>: |rng| {
        let most = 1 + rng.below(4) as i64;
        let value = 1 + rng.below(most as usize) as i64;
        let n = Variable::new("n", 1, most).and_then(|n| n.bind(value)).expect("a bound value");
        let len = if rng.once_in(2) { n.unbound() } else { n };
        let start = SymInt::number(rng.below(3) as i64);
        Box::new(Slice { axis: rng.below(3), start, len })
    };
}

impl<T: Random> Random for Option<T> {
    fn random(rng: &mut Rng) -> Option<T> {
        rng.once_in(2).then(|| T::random(rng))
    }
}

impl Random for Const {}
impl Random for StorageRef {}
impl Random for Box<Movement> {}
impl Random for Arc<Custom> {}
impl Random for Arc<Loop> {}
impl Random for Arc<Source> {}

fn dtype(rng: &mut Rng) -> DType {
    let scalar = match rng.below(8) {
        0 => DType::INDEX,
        1 => DType::VOID,
        _ => rng.pick(DType::ALL),
    };
    scalar.vec(rng.pick(&[1, 1, 1, 2, 4, 7, u16::MAX]))
}

fn name(rng: &mut Rng) -> String {
    let chars: Vec<char> = "abcXYZ_019 :/.-+\"\\;{}=%,\n\r\t\0\u{1b}é√𝄞\u{2028}".chars().collect();
    (0..rng.below(6)).map(|_| rng.pick(&chars)).collect()
}

pub fn literal(rng: &mut Rng) -> UOp {
    let mut t = dtype(rng);
    if t.scalar == DType::VOID.scalar {
        t = DType::F32;
    }
    let value = match (rng.below(4), t.is_float()) {
        (0, true) => Const::Float(rng.pick(&[0.0, -0.0, 1.0, 0.1, -2.5, f64::NAN, 1e-30, 65504.0]))
            .normalize(t),
        (0, false) => Const::Int(rng.below(5) as i64 - 2).normalize(t),
        _ => Const::from_bits(rng.bits() >> rng.below(64), t),
    };
    UOp::literal(value, t)
}

fn movement(rng: &mut Rng, op: Op, shape: &[usize]) -> Movement {
    let n = shape.len();
    match op {
        Op::Reshape if rng.once_in(2) => Movement::reshape([shape.iter().product()]),
        Op::Reshape => Movement::reshape(
            shape.iter().flat_map(|&s| [1, s].into_iter().skip(rng.below(2))).collect::<Vec<_>>(),
        ),
        Op::Expand => Movement::expand(
            shape.iter().map(|&s| if s == 1 { rng.below(4) } else { s }).collect::<Vec<_>>(),
        ),
        Op::Permute => {
            let mut axes: Vec<usize> = (0..n).collect();
            (1..n).for_each(|i| axes.swap(i, rng.below(i + 1)));
            Movement::permute(axes)
        }
        Op::Pad => {
            Movement::pad(shape.iter().map(|_| (rng.below(3), rng.below(3))).collect::<Vec<_>>())
        }
        Op::Shrink => Movement::shrink(
            shape
                .iter()
                .map(|&s| {
                    let end = rng.below(s.saturating_add(1).max(1));
                    (rng.below(end + 1), end)
                })
                .collect::<Vec<_>>(),
        ),
        _ => Movement::flip(shape.iter().map(|_| rng.once_in(2)).collect::<Vec<_>>()),
    }
}

/// Returns a random payload that fits the operands, if one is found.
fn arg(rng: &mut Rng, op: Op, src: &[UOp]) -> Option<Arg> {
    if matches!(op, Op::Contiguous | Op::Load | Op::Store | Op::Sink) && rng.once_in(2) {
        return Some(Arg::None);
    }
    (0..10).find_map(|_| {
        let arg = match op {
            _ if op.is(Group::Movement) => {
                Arg::Movement(Box::new(movement(rng, op, src[0].shape())))
            }
            _ => match Arg::random(op, rng) {
                Arg::Var { name, min, max } if rng.once_in(2) => {
                    let value = rng.pick(&[min, max]);
                    Arg::BoundVar { name, min, max, value }
                }
                // Numbers that no operand depends on may be large.
                Arg::Param { len, device, .. } => Arg::Param { slot: size(rng), len, device },
                Arg::Global { .. } => Arg::Global { slot: size(rng), len: size(rng) },
                Arg::Shared { .. } => Arg::Shared { id: rng.bits() as u32, len: size(rng) },
                Arg::Special { kind, dim, .. } => Arg::Special { kind, dim, extent: size(rng) },
                Arg::Acc(_) => Arg::Acc(rng.bits() as u32),
                Arg::Shuffle(_) => Arg::Shuffle(size(rng)),
                arg => arg,
            },
        };
        check_payload(op, src, &arg).ok().map(|()| arg)
    })
}

/// Random nodes, operands first.
pub fn nodes(rng: &mut Rng, count: usize) -> Vec<UOp> {
    let mut pool = vec![literal(rng)];
    while pool.len() < count {
        let op = rng.pick(Op::ALL);
        if op == Op::Const {
            pool.push(literal(rng));
        } else if !matches!(op, Op::Buffer | Op::Kernel | Op::Loop | Op::Source) {
            let extra = if op.variadic() { rng.below(4) } else { 0 };
            let src: Src = (0..op.arity() + extra).map(|_| rng.pick(&pool)).collect();
            let Some(arg) = arg(rng, op, &src) else { continue };
            pool.push(UOp::new(op, dtype(rng), src, arg));
        }
    }
    pool
}

/// Returns a random graph.
pub fn graph(rng: &mut Rng) -> UOp {
    let count = 1 + rng.below(40);
    let pool = nodes(rng, count);
    match rng.below(3) {
        0 => pool.last().expect("at least one").clone(),
        _ => UOp::sink(pool),
    }
}
