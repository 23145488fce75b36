//! Transcendental ops that a target does not have at the promised accuracy, as the expressions of
//! `math`.

use crate::dtype::{Const, DType};
use crate::ir::{Op, UOp};
use crate::math::{self, Val};
use crate::target::Target;

/// Defines methods on `UOp`: name, operands and the expression.
macro_rules! methods {
    ($($name:ident($x:ident $(, $o:ident)*) = $value:expr;)*) => {
        $(fn $name(&self $(, $o: &UOp)*) -> UOp {
            let $x = self;
            $value
        })*
    };
}

impl Val for UOp {
    fn f32(&self, v: f32) -> UOp {
        UOp::constant(v, DType::F32.vec(self.dtype().lanes))
    }
    fn i32(&self, v: i32) -> UOp {
        UOp::constant(v as i64, DType::I32.vec(self.dtype().lanes))
    }
    fn u32(&self, v: u32) -> UOp {
        UOp::constant(v as i64, DType::U32.vec(self.dtype().lanes))
    }
    methods! {
        add(x, y) = x + y;
        sub(x, y) = x - y;
        mul(x, y) = x * y;
        div(x, y) = x.binary(Op::Div, y);
        fma(x, y, z) = UOp::fma(x, y, z);
        sqrt(x) = x.unary(Op::Sqrt);
        neg(x) = -x;
        trunc(x) = x.unary(Op::Trunc);
        lt(x, y) = UOp::lt(x, y);
        eq(x, y) = x.equals(y);
        ne(x, y) = x.differs(y);
        and(x, y) = UOp::and(x, y);
        or(x, y) = UOp::or(x, y);
        xor(x, y) = x ^ y;
        shl(x, y) = x << y;
        shr(x, y) = x >> y;
        select(c, x, y) = UOp::select(c, x, y);
        bitcast_f32(x) = x.bitcast(DType::F32);
        bitcast_i32(x) = x.bitcast(DType::I32);
        bitcast_u32(x) = x.bitcast(DType::U32);
        to_f32(x) = x.cast(DType::F32);
        to_i32(x) = x.cast(DType::I32);
    }
}

/// A node for a target that has `Ldexp`.
#[derive(Clone)]
struct WithLdexp(UOp);

/// Defines methods on [`WithLdexp`] by those on `UOp`: name and operands.
macro_rules! delegated {
    ($($name:ident($($o:ident),*);)*) => {
        $(fn $name(&self $(, $o: &WithLdexp)*) -> WithLdexp {
            WithLdexp(Val::$name(&self.0 $(, &$o.0)*))
        })*
    };
}

impl Val for WithLdexp {
    fn f32(&self, v: f32) -> WithLdexp {
        WithLdexp(Val::f32(&self.0, v))
    }
    fn i32(&self, v: i32) -> WithLdexp {
        WithLdexp(Val::i32(&self.0, v))
    }
    fn u32(&self, v: u32) -> WithLdexp {
        WithLdexp(Val::u32(&self.0, v))
    }
    fn ldexp(&self, n: &WithLdexp) -> Option<WithLdexp> {
        Some(WithLdexp(self.0.binary(Op::Ldexp, &n.0)))
    }
    delegated! {
        add(y); sub(y); mul(y); div(y); fma(y, z); sqrt(); neg(); trunc();
        lt(y); eq(y); ne(y); and(y); or(y); xor(y); shl(y); shr(y); select(x, y);
        bitcast_f32(); bitcast_i32(); bitcast_u32(); to_f32(); to_i32();
    }
}

/// Expresses a transcendental op in simple ops, and in `Ldexp` if the target has it.
pub fn decompose(u: &UOp, target: &Target) -> Option<UOp> {
    let x = u.operand();
    if u.dtype().scalar() == DType::F32 && target.has(Op::Ldexp, u.dtype()) {
        let x = WithLdexp(x.clone());
        match u.op() {
            Op::Exp => return Some(math::exp(&x).0),
            Op::Exp2 => return Some(math::exp2(&x).0),
            Op::Pow => return Some(math::pow(&x, &WithLdexp(u.expect_pow().y.clone())).0),
            _ => {}
        }
    }
    if u.dtype().scalar() == DType::F64 {
        // No language has these two; the others are native wherever there is f64.
        return match u.op() {
            Op::Rsqrt => Some(x.const_like(1.0).binary(Op::Div, x.unary(Op::Sqrt))),
            Op::Sigmoid => Some(x.const_like(1.0).binary(Op::Div, (-x).unary(Op::Exp) + 1.0)),
            _ => None,
        };
    }
    if u.dtype().scalar() != DType::F32 {
        return None;
    }
    Some(match u.op() {
        Op::Exp => math::exp(x),
        Op::Exp2 => math::exp2(x),
        Op::Log => math::log(x),
        Op::Log2 => math::log2(x),
        Op::Sin => math::sin(x),
        Op::Cos => math::cos(x),
        Op::Tan => math::tan(x),
        Op::Tanh => math::tanh(x),
        Op::Sigmoid => math::sigmoid(x),
        Op::Erf => math::erf(x),
        Op::Rsqrt => math::rsqrt(x),
        Op::Pow => math::pow(x, u.expect_pow().y),
        _ => return None,
    })
}

/// Computes an integer power by squaring, one step per bit of the exponent. A negative exponent
/// gives 1/x rounded toward zero.
pub fn integer_power(u: &UOp) -> UOp {
    let (x, y) = u.expect_binary();
    let bits = u.dtype().bits();
    let (mut base, mut result) = (x.clone(), x.const_like(1i64));
    for bit in 0..bits {
        let set = (y >> y.const_like(bit as i64)).and(1i64).differs(0i64);
        result = set.select(&result * &base, &result);
        base = &base * &base;
    }
    if u.dtype().is_unsigned() {
        return result;
    }
    let odd = y.and(1i64).differs(0i64);
    let minus = UOp::literal(Const::Int(-1), u.dtype());
    let inverse = x.equals(1i64).select(
        1i64,
        &x.equals(-1i64).select(odd.select(&minus, &x.const_like(1i64)), &x.const_like(0i64)),
    );
    y.lt(0i64).select(&inverse, &result)
}
