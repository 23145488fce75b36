//! Identities of elementwise ops, exact for every dtype that matches: integers wrap, floats keep
//! NaN, infinities and the sign of zero.

use crate::dtype::{Const, DType};
use crate::ir::{Group, Op, UOp, bounds, dtype_bounds, eval};
use crate::rewrite::rules;

rules! {
    /// Exact rules on all elementwise nodes.
    pub IDENTITIES |u, _cx: ()| {
        add_zero:         Add[x, 0]                                => x;
        add_neg_zero:     Add[x, %c] if is_float(c, -0.0)          => x;
        mul_one:          Mul[x, 1]                                => x;
        mul_one_float:    Mul[x, %c] if is_float(c, 1.0)           => x;
        mul_zero:         Mul[_, 0]                                => 0;
        div_one_float:    Div(x, %c) if is_float(c, 1.0)           => x;
        idiv_one:         IDiv(x, 1)                               => x;
        idiv_zero:        IDiv(_, 0)                               => 0;
        mod_one:          Mod(_, 1) if u.dtype().is_int()          => 0;
        mod_zero:         Mod(_, 0) if u.dtype().is_int()          => 0;
        add_const_const:  Add(Add(x, #a), #b) if u.dtype().is_int() => x + a.wrapping_add(b);
        mul_const_const:  Mul(Mul(x, #a), #b) if u.dtype().is_int() => x * a.wrapping_mul(b);
        const_to_right:   {Commutative}(%c, x) if x.op() != Op::Const => x.binary(u.op(), c);
        neg_neg_float:    Mul(Mul(x, %a), %b) if is_float(a, -1.0) && is_float(b, -1.0) => x;
        and_self:         And(x, =x)                               => x;
        or_self:          Or(x, =x)                                => x;
        xor_self:         Xor(x, =x)                               => 0;
        and_zero:         And[_, 0]                                => 0;
        and_ones:         And[x, #c] if c == ones(u)               => x;
        or_zero:          Or[x, 0]                                 => x;
        or_ones:          Or[x, #c] if c == ones(u)                => c;
        xor_zero:         Xor[x, 0]                                => x;
        xor_xor:          Xor(Xor(x, #a), #b)                      => x ^ (a ^ b);
        add_bool_self:    Add(x, =x) if u.dtype().is_bool()        => x;
        mul_bool_self:    Mul(x, =x) if u.dtype().is_bool()        => x;
        max_self:         Max(x, =x) if !u.dtype().is_float()      => x;
        min_self:         Min(x, =x) if !u.dtype().is_float()      => x;
        max_bound:        Max[x, y] if !u.dtype().is_float() && x.vmin() >= y.vmax() => x;
        min_bound:        Min[x, y] if !u.dtype().is_float() && x.vmax() <= y.vmin() => x;
        shl_zero:         Shl(x, 0)                                => x;
        shr_zero:         Shr(x, 0)                                => x;
        lt_self:          Lt(x, =x)                                => false;
        eq_self:          Eq(x, =x) if !x.dtype().is_float()       => true;
        ne_self:          Ne(x, =x) if !x.dtype().is_float()       => false;
        ne_int:           Ne(x, y) if !x.dtype().is_float()        => x.equals(y).not();
        eq_true:          Eq(x, #c) if x.dtype().is_bool()         => eq_literal(x, c);
        where_same:       Where(_, v, =v)                          => v;
        where_const:      Where(#c, x, y)                          => if c != 0 { x } else { y };
        where_not:        Where(Xor(c, 1), x, y) if c.dtype().is_bool() => c.select(y, x);
        where_bool:       Where(c, 1, 0) if u.dtype().is_bool()    => c;
        where_bool_not:   Where(c, 0, 1) if u.dtype().is_bool()    => c.not();
        where_inner_then: Where(a, Where(=a, x, _), y)             => a.select(x, y);
        where_inner_else: Where(a, x, Where(=a, _, y))             => a.select(x, y);
        where_mul:        Where(a, Mul[x, Where(=a, y, _)], z)     => a.select(x * y, z);
        where_and:        Where(a, Where(b, x, y), =y)             => a.and(b).select(x, y);
        cast_self:        Cast(x) if x.dtype() == u.dtype()        => x;
        cast_cast:        Cast(y @ Cast(x)) if is_single_cast(x, y, u)     => x.cast(u.dtype());
        bitcast_self:     Bitcast(x) if x.dtype() == u.dtype()     => x;
        bitcast_bitcast:  Bitcast(y @ Bitcast(x)) if !y.dtype().is_bool() => x.bitcast(u.dtype());
        fold_unary:       {Unary}(%a)                              => fold_constants(u, &[a]);
        fold_binary:      {Binary}(%a, %b)                         => fold_constants(u, &[a, b]);
        fold_ternary:     {Ternary}(%a, %b, %c)                    => fold_constants(u, &[a, b, c]);
        fold_cast:        Cast(%a)                                 => fold_constants(u, &[a]);
        fold_bitcast:     Bitcast(%a)                              => fold_constants(u, &[a]);
        gep_vectorize:    Gep(v @ Vectorize(..)) if lanes(u).len() == 1 => lane(v, lanes(u)[0]);
        gep_const:        Gep(%c)                                  => c;
        fold_bounds:      {Binary}(..) if !u.dtype().is_float() && u.vmin() == u.vmax() => bound(u);
        fold_where_bounds: Where(..) if !u.dtype().is_float() && u.vmin() == u.vmax() => bound(u);
        vectorize_consts: Vectorize(..)                            => same_const(u);
    }
}

/// Returns `x == c` for a bool `x`.
fn eq_literal(x: &UOp, c: i64) -> UOp {
    if c != 0 { x.clone() } else { x.not() }
}

fn lane(vector: &UOp, i: u16) -> UOp {
    vector.lane(i)
}

fn is_float(c: Const, v: f64) -> bool {
    matches!(c, Const::Float(f) if f.to_bits() == v.to_bits())
}

/// Returns the value of this dtype with all bits set.
fn ones(u: &UOp) -> i64 {
    let d = u.dtype();
    if d.is_bool() {
        return 1;
    }
    match Const::Int(-1).normalize(d.scalar()) {
        Const::Int(v) => v,
        _ => -1,
    }
}

fn lanes(u: &UOp) -> &[u16] {
    u.as_gep().map_or(&[], |g| g.lanes)
}

/// Evaluates an op of literals.
fn fold_constants(u: &UOp, x: &[Const]) -> Option<UOp> {
    let from = if u.op() == Op::Where { u.dtype() } else { u.operand().dtype() };
    // Transcendental functions differ between devices in the last place, so that a literal would
    // differ from a computed value.
    if u.op().is(Group::Transcendental) {
        return None;
    }
    let value = eval::alu(u.op(), u.dtype(), from, x);
    // Literals keep no NaN payload, so that bitcasts from and to NaN are not folded.
    let is_nan = |c: Const| matches!(c, Const::Float(v) if v.is_nan());
    if u.op() == Op::Bitcast && (is_nan(value) || is_nan(x[0])) {
        return None;
    }
    Some(UOp::literal(value, u.dtype()))
}

fn bound(u: &UOp) -> Option<UOp> {
    let v = u.vmin();
    Some(u.const_like(i64::try_from(v).or_else(|_| u64::try_from(v).map(|v| v as i64)).ok()?))
}

fn same_const(u: &UOp) -> Option<UOp> {
    let first = u.src().first()?;
    let c = first.as_const()?;
    u.src().iter().all(|s| s == first).then(|| UOp::literal(c, u.dtype()))
}

/// Returns true if casting `x` to the dtype of `y` and then to that of `u` equals one cast.
/// Integers wrap where floats saturate, so that an integer cast to a float must fit the final
/// integer too. Floats below 32 bits are converted through f32 on every device: lowering writes
/// both casts, which are merged only if they cancel.
fn is_single_cast(x: &UOp, y: &UOp, u: &UOp) -> bool {
    let (from, through, to) = (x.dtype(), y.dtype(), u.dtype());
    let is_narrow = from.is_narrow_float() || to.is_narrow_float();
    if through.scalar() == DType::F32 && is_narrow && from != to {
        return false;
    }
    let saturates = from.is_int() && through.is_float() && to.is_int();
    lossless(from, through) && (!saturates || lossless(from, to))
}

/// Returns true if `to` can represent every value of `from`.
pub fn lossless(from: DType, to: DType) -> bool {
    use crate::dtype::Scalar::*;
    let (f, t) = (from.scalar, to.scalar);
    if f == t || f == Bool {
        return t != Void;
    }
    let (fi, ti) = (from.is_int(), to.is_int());
    match (fi, ti) {
        (true, true) => bounds::fits(dtype_bounds(from.scalar()), to.scalar()),
        (true, false) if to.is_float() => {
            let digits = from.bits() - from.is_signed_int() as u32;
            digits
                <= match t {
                    F64 => 53,
                    F32 => 24,
                    F16 => 11,
                    BF16 => 8,
                    F8E4M3 => 4,
                    F8E5M2 => 3,
                    _ => 0,
                }
                && !(t == F16 && digits > 15)
        }
        (false, false) if from.is_float() && to.is_float() => {
            matches!(
                (f, t),
                (_, F64)
                    | (F16 | BF16 | F8E4M3 | F8E5M2, F32)
                    | (F8E4M3 | F8E5M2, F16)
                    | (F8E4M3 | F8E5M2, BF16)
            )
        }
        _ => false,
    }
}
