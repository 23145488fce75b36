//! Random expressions of every dtype over leaves with chosen values.

use picograd::dtype::{Const, DType};
use picograd::ir::{Arg, AxisKind, DeviceName, Op, Src, ToSrc, UOp};

/// A splitmix64 generator.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The fixed seeds and a new one per run, which is printed so that a failure can be reproduced.
pub fn seeds(fixed: &[u64]) -> Vec<u64> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a clock past 1970");
    let fresh = Rng(now.as_nanos() as u64).next();
    println!("fresh seed: {fresh}");
    fixed.iter().copied().chain([fresh]).collect()
}

/// A generator of expressions.
pub struct Gen<'a> {
    pub rng: &'a mut Rng,
    /// Dtypes that subexpressions may have; the first is preferred.
    pub dtypes: &'a [DType],
    /// The leaves and all expressions so far.
    pool: Vec<UOp>,
}

/// A leaf that may have any value of its dtype.
pub fn anything(dtype: DType, slot: usize) -> UOp {
    UOp::new(
        Op::Param,
        dtype,
        Src::new(),
        Arg::Param { slot, len: 1, device: DeviceName::new("CPU") },
    )
}

/// A variable with bounds.
pub fn var(name: &str, dtype: DType, min: i64, max: i64) -> UOp {
    UOp::new(Op::Var, dtype, Src::new(), Arg::Var { name: name.into(), min, max })
}

/// A loop axis.
pub fn range(extent: i64, id: u32) -> UOp {
    UOp::range(extent, id, AxisKind::Loop)
}

impl<'a> Gen<'a> {
    /// A generator over these dtypes, with some leaves of each. An index leaf has small bounds.
    pub fn new(rng: &'a mut Rng, dtypes: &'a [DType]) -> Gen<'a> {
        let mut pool = Vec::new();
        for &d in dtypes {
            if d == DType::INDEX {
                for i in 0..3 {
                    let extent = rng.pick(&[1, 2, 3, 4, 5, 6, 8, 16, 28]);
                    pool.push(range(extent, i));
                }
                let min = rng.below(12) as i64 - 8;
                pool.push(var("v", d, min, min + rng.below(12) as i64));
                // Sums of this leaf can wrap.
                if rng.one_in(4) {
                    pool.push(anything(d, 0));
                }
            } else {
                pool.extend((0..2).map(|i| anything(d, i)));
                if d.is_int() {
                    let limit = d
                        .max_value()
                        .as_i64()
                        .map_or(100, |m| if m < 0 { 100 } else { m.min(100) });
                    let min = if d.is_unsigned() { 0 } else { -(rng.below(20) as i64) };
                    pool.push(var("w", d, min, rng.below(limit as usize) as i64));
                }
            }
        }
        Gen { rng, dtypes, pool }
    }

    /// A literal, often one that rules match.
    pub fn literal(&mut self, d: DType) -> UOp {
        if d.is_bool() {
            return UOp::truth(self.rng.one_in(2));
        }
        if d.is_float() {
            let v = self.rng.pick(&[
                0.0,
                -0.0,
                1.0,
                -1.0,
                0.5,
                2.0,
                3.0,
                -2.5,
                0.1,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                1e-6,
                300.0,
            ]);
            return UOp::constant(v, d);
        }
        if d == DType::INDEX {
            let small = self.rng.below(21) as i64 - 10;
            let v = self.rng.pick(&[
                0,
                1,
                2,
                2,
                3,
                4,
                4,
                6,
                8,
                12,
                16,
                28,
                -1,
                -1,
                small,
                small,
                784,
                1 << 20,
                i64::MAX,
                i64::MIN,
            ]);
            return UOp::int(v);
        }
        let bits = self.rng.next() >> self.rng.below(64);
        let limits = [d.min_value(), d.max_value(), Const::from_bits(bits, d)];
        let v = self.rng.pick(&[
            Const::Int(0),
            Const::Int(1),
            Const::Int(2),
            Const::Int(-1),
            Const::Int(3),
            limits[0],
            limits[1],
            limits[2],
        ]);
        UOp::constant(v.normalize(d), d)
    }

    fn kept(&mut self, d: DType) -> UOp {
        let found: Vec<UOp> = self.pool.iter().filter(|u| u.dtype() == d).cloned().collect();
        if found.is_empty() { self.literal(d) } else { self.rng.pick(&found) }
    }

    fn number(&mut self) -> DType {
        if self.rng.one_in(2) { self.dtypes[0] } else { self.rng.pick(self.dtypes) }
    }

    /// An expression of this dtype.
    pub fn expr(&mut self, d: DType, depth: usize) -> UOp {
        if depth == 0 || self.rng.one_in(8) {
            return if self.rng.one_in(4) { self.literal(d) } else { self.kept(d) };
        }
        let u = match self.rng.below(10) {
            0 => {
                let c = self.expr(DType::BOOL, depth - 1);
                let (x, y) = (self.expr(d, depth - 1), self.expr(d, depth - 1));
                c.select(x, &y)
            }
            1 => {
                let (from, between) = (self.number(), self.number());
                let x = self.expr(from, depth - 1);
                if self.rng.one_in(2) { x.cast(d) } else { x.cast(between).cast(d) }
            }
            _ if d.is_bool() => self.truth(depth - 1),
            _ if d.is_float() => self.float(d, depth - 1),
            _ if d == DType::INDEX => self.index(depth - 1),
            _ => self.integer(d, depth - 1),
        };
        self.pool.push(u.clone());
        u
    }

    fn pair(&mut self, d: DType, depth: usize) -> (UOp, UOp) {
        let x = self.expr(d, depth);
        // Many rules match equal operands.
        let y = if self.rng.one_in(8) { x.clone() } else { self.expr(d, depth) };
        (x, y)
    }

    fn truth(&mut self, depth: usize) -> UOp {
        if self.rng.one_in(2) {
            let d = if self.rng.one_in(6) { DType::BOOL } else { self.number() };
            let (x, y) = self.pair(d, depth);
            let op = self.rng.pick(&[Op::Lt, Op::Lt, Op::Eq, Op::Ne]);
            return x.binary(op, if self.rng.one_in(2) { self.literal(d) } else { y });
        }
        let (x, y) = self.pair(DType::BOOL, depth);
        match self.rng.below(8) {
            0..3 => x.and(&y),
            3 => x.or(&y),
            4 => x.not(),
            _ => x.binary(self.rng.pick(&[Op::Xor, Op::Add, Op::Mul, Op::Max, Op::Min]), &y),
        }
    }

    fn index(&mut self, depth: usize) -> UOp {
        let (x, y) = self.pair(DType::INDEX, depth);
        let c = self.literal(DType::INDEX);
        match self.rng.below(12) {
            0..4 => x + y,
            4..6 => x * c,
            6..8 => x / c,
            8..10 => x % c,
            10 => x.binary(Op::Max, &y),
            _ => x.binary(Op::Min, &y),
        }
    }

    fn integer(&mut self, d: DType, depth: usize) -> UOp {
        let (x, y) = self.pair(d, depth);
        let ops = [
            Op::Add,
            Op::Add,
            Op::Mul,
            Op::IDiv,
            Op::Mod,
            Op::Max,
            Op::Min,
            Op::And,
            Op::Or,
            Op::Xor,
            Op::Shl,
            Op::Shr,
        ];
        match self.rng.below(8) {
            0 => {
                let small = UOp::constant(self.rng.below(d.bits() as usize + 2) as i64, d);
                x.binary(self.rng.pick(&[Op::Shl, Op::Shr]), &small)
            }
            1 => {
                let positive = UOp::constant(1 + self.rng.below(9) as i64, d);
                x.binary(self.rng.pick(&[Op::CDiv, Op::CMod]), &positive)
            }
            2 => {
                let same: Vec<DType> = self
                    .dtypes
                    .iter()
                    .copied()
                    .filter(|e| e.bits() == d.bits() && e.is_int())
                    .collect();
                let from = self.rng.pick(&same);
                self.expr(from, depth).bitcast(d)
            }
            _ => x.binary(self.rng.pick(&ops), &y),
        }
    }

    fn float(&mut self, d: DType, depth: usize) -> UOp {
        let (x, y) = self.pair(d, depth);
        match self.rng.below(10) {
            0 => x.unary(self.rng.pick(&[Op::Sqrt, Op::Trunc, Op::Exp, Op::Detach])),
            1 => {
                let z = self.expr(d, depth);
                UOp::new(Op::Fma, d, [x, y, z].to_src(), Arg::None)
            }
            _ => x.binary(
                self.rng.pick(&[Op::Add, Op::Mul, Op::Mul, Op::Div, Op::Max, Op::Min, Op::Ldexp]),
                &y,
            ),
        }
    }
}
