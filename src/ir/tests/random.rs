//! Random graphs over every op and payload that text can hold. Operands have the number and the
//! shapes that an op needs, but not always its dtypes: those are not the text's concern.

use crate::dtype::{Const, DType};
use crate::ir::{
    Arg, AxisKind, DeviceName, Fold, Gradient, LoadHint, Op, SpecialKind, Src, TensorCore, UOp,
};
use crate::shape::Movement;
use smallvec::SmallVec;

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
    /// Mostly small, now and then as large as it gets.
    fn size(&mut self) -> usize {
        if self.below(8) == 0 { self.next() as usize } else { self.below(100) }
    }
}

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
        _ => Const::from_bits(rng.next() >> rng.below(64), t),
    };
    UOp::new(Op::Const, t, Src::new(), Arg::Const(value))
}

fn movement(rng: &mut Rng, op: Op, shape: &[usize]) -> Movement {
    let n = shape.len();
    match op {
        Op::Reshape if rng.coin() => Movement::reshape([shape.iter().product()]),
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
        _ => Movement::flip(shape.iter().map(|_| rng.coin()).collect::<Vec<_>>()),
    }
}

fn arg(rng: &mut Rng, op: Op, src: &[UOp]) -> Option<Arg> {
    let device =
        |rng: &mut Rng| DeviceName::new(&if rng.coin() { "CUDA:1".into() } else { name(rng) });
    Some(match op {
        Op::Param => Arg::Param { slot: rng.size(), len: rng.below(40), device: device(rng) },
        Op::Var => {
            let (a, b) = (rng.next() as i64, rng.size() as i64);
            Arg::Var { name: name(rng).into(), min: a.min(b), max: a.max(b) }
        }
        Op::Slice => {
            let axis = rng.below(src[0].shape().len().max(1));
            let size = *src[0].shape().get(axis)? as i64;
            let most = 1 + rng.below(size.max(1) as usize) as i64;
            let n = crate::shape::Variable::new("n", 1, most)
                .ok()?
                .bind(1 + rng.below(most as usize) as i64)
                .ok()?;
            let len = if rng.coin() { n.unbound() } else { n };
            let slice = crate::ir::Slice {
                axis,
                start: crate::shape::SymInt::number(
                    rng.below((size - most).max(0) as usize + 1) as i64
                ),
                len,
            };
            slice.check(src[0].shape(), src[0].extents()).ok()?;
            Arg::Slice(Box::new(slice))
        }
        Op::Iota => Arg::Iota { len: rng.below(40) },
        _ if op.is(crate::ir::Group::Movement) => {
            let m = movement(rng, op, src[0].shape());
            m.apply_shape(src[0].shape()).ok()?;
            crate::shape::moved_extents(&m, src[0].shape(), src[0].extents()).ok()?;
            Arg::Movement(Box::new(m))
        }
        Op::Reduce => {
            let rank = src[0].shape().len();
            let axes = (0..rank).filter(|_| rng.coin()).collect();
            Arg::Reduce { fold: rng.pick(&[Fold::Add, Fold::Mul, Fold::Max, Fold::Min]), axes }
        }
        Op::Scan => {
            let rank = src[0].shape().len();
            let axes = if rank > 0 && rng.coin() {
                smallvec::smallvec![rng.below(rank)]
            } else {
                Default::default()
            };
            Arg::Reduce { fold: rng.pick(&[Fold::Add, Fold::Mul, Fold::Max, Fold::Min]), axes }
        }
        Op::Cat => {
            let axis = rng.below(src[0].shape().len().max(1));
            crate::ir::fit_cat(axis, src).ok()?;
            Arg::Cat { axis }
        }
        Op::Gather | Op::Scatter => {
            let axis = rng.below(src[0].shape().len().max(1));
            crate::ir::fit_along(axis, src).ok()?;
            let combine = rng.pick(&crate::ir::Combine::ALL);
            if op == Op::Gather { Arg::Gather { axis } } else { Arg::Scatter { combine, axis } }
        }
        Op::Contiguous if rng.coin() => Arg::Device(device(rng)),
        Op::Load if rng.coin() => {
            let ids = [rng.below(200) as u32, rng.below(200) as u32];
            Arg::LoadHint(match rng.below(3) {
                0 => LoadHint { stage_at: Some(ids[0]), prefetch_in: None },
                1 => LoadHint { stage_at: None, prefetch_in: Some(ids[1]) },
                _ => LoadHint { stage_at: Some(ids[0]), prefetch_in: Some(ids[1]) },
            })
        }
        Op::Output => Arg::Output(rng.below(3)),
        Op::Leaf => Arg::Leaf(rng.next()),
        Op::Call => Arg::Gradient(Gradient::unknown(rng.next())),
        Op::Copy => Arg::Device(device(rng)),
        Op::Shards => {
            let rank = src[0].shape().len();
            Arg::Shards {
                devices: device(rng),
                axis: (rank > 0 && rng.coin()).then(|| rng.below(rank)),
            }
        }
        Op::DefineGlobal => Arg::Global { slot: rng.size(), len: rng.size() },
        Op::DefineShared => Arg::Shared { id: rng.next() as u32, len: rng.size() },
        Op::DefineAcc => Arg::Acc(rng.next() as u32),
        Op::Range => {
            let id = rng.below(200) as u32;
            Arg::Range { id, kind: rng.pick(&AxisKind::ALL), lanes: rng.coin() }
        }
        Op::Special => Arg::Special {
            kind: rng.pick(&[SpecialKind::Group, SpecialKind::Local, SpecialKind::Thread]),
            dim: rng.next() as u8,
            extent: rng.size(),
        },
        Op::Gep => {
            let of = src[0].dtype().lanes as usize;
            Arg::Lanes(
                (0..rng.below(5)).map(|_| rng.below(of) as u16).collect::<SmallVec<[u16; 4]>>(),
            )
        }
        Op::Wmma => {
            let cores: Vec<&'static TensorCore> = TensorCore::ALL.iter().collect();
            Arg::Wmma { core: rng.pick(&cores), lanes: [rng.next() as u32, rng.next() as u32] }
        }
        Op::Shuffle => Arg::Shuffle(rng.size()),
        Op::Sink if rng.coin() => {
            Arg::ThreadOrder((0..rng.below(5)).map(|_| rng.below(200) as u32).collect())
        }
        _ => Arg::None,
    })
}

/// Nodes in the order in which they were made, operands first.
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

/// A graph that holds many of them.
pub fn graph(rng: &mut Rng) -> UOp {
    let count = 1 + rng.below(40);
    let pool = nodes(rng, count);
    match rng.below(3) {
        0 => pool.last().expect("at least one").clone(),
        _ => UOp::sink(pool),
    }
}
