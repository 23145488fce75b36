//! The VJP of each op: from its upstream gradient `g` to the gradients of its operands. The right
//! side is a `Sink` with one entry per operand; an empty `Sink` in it is a derivative that is zero
//! wherever it exists.

use super::product::product;
use super::{indexed, scan, spread};
use crate::ir::{Arg, DeviceName, Fold, Op, Src, ToSrc, UOp};
use crate::rewrite::rules;
use crate::shape::Movement;

rules! {
    /// Gradients of every op of the tensor graph.
    pub GRADIENTS |u, g: UOp| {
        d_contiguous:  Contiguous(_)                       => to([g.clone()]);
        d_contiguous_backward: ContiguousBackward(_)       => to([UOp::new(Op::Contiguous, g.dtype(), [g.clone()].to_src(), Arg::None)]);
        d_computed:    Computed(..)                        => to([g.clone()]);
        d_relu:        Relu(y, _)                          => to([y.materialized().binary(Op::Ne, 0.0).select(&*g, &g.const_like(0i64))]);
        d_shards:      Shards(..)                          => shares(u, g);
        d_copy:        Copy(..)                            => to([copied(g, u.operand())]);
        d_reshape:     Reshape(x)                          => to([g.moved(Movement::Reshape(x.shape().clone()))]);
        d_expand:      Expand(x)                           => to([g.reduced(Fold::Add, (0..x.shape().len()).filter(|&a| x.shape()[a] != u.shape()[a]))]);
        d_permute:     Permute(..)                         => to([g.moved(unpermuted(u))]);
        d_pad:         Pad(x)                              => to([g.moved(unpadded(u, x))]);
        d_shrink:      Shrink(x)                           => to([g.moved(unshrunk(u, x))]);
        d_flip:        Flip(..)                            => to([g.moved(movement(u).clone())]);
        d_reduce_add:  Reduce(x) if fold(u) == Fold::Add   => to([spread(g, x.shape())]);
        d_reduce_mul:  Reduce(x) if fold(u) == Fold::Mul   => to([product(u, x, g)]);
        d_reduce_best: Reduce(x) if matches!(fold(u), Fold::Max | Fold::Min) => to([shared(u, x, g)]);

        d_scan_add:    Scan(_) if fold(u) == Fold::Add     => to([scan::sums(u, g)]);
        d_scan_mul:    Scan(x) if fold(u) == Fold::Mul     => to([scan::products(u, x, g)]);
        d_scan_best:   Scan(x) if matches!(fold(u), Fold::Max | Fold::Min) => to([scan::extremes(u, x, g)]);
        d_cat:         Cat(..)                             => pieces(u, g);
        d_gather:      Gather(..)                          => to([indexed::gathered(u, g), none()]);
        d_scatter:     Scatter(..)                         => {
            let (base, value) = indexed::scattered(u, g);
            to([base, none(), value])
        };

        d_cast:        Cast(x) if x.dtype().is_float() && u.dtype().is_float() => to([g.cast(x.dtype())]);
        d_cast_int:    Cast(x) if !x.dtype().is_float() || !u.dtype().is_float() => to([none()]);
        d_sqrt:        Sqrt(_)                             => to([&*g / (u * 2.0)]);
        d_trunc:       Trunc(_)                            => to([none()]);
        d_rsqrt:       Rsqrt(_)                            => to([&*g * (u * u * u * -0.5)]);
        d_exp:         Exp(_)                              => to([&*g * u]);
        d_exp2:        Exp2(_)                             => to([&*g * (u * std::f64::consts::LN_2)]);
        d_log:         Log(x)                              => to([&*g / x]);
        d_log2:        Log2(x)                             => to([&*g / (x * std::f64::consts::LN_2)]);
        d_sin:         Sin(x)                              => to([&*g * x.unary(Op::Cos)]);
        d_cos:         Cos(x)                              => to([&*g * -x.unary(Op::Sin)]);
        d_tan:         Tan(_)                              => to([&*g * (u * u + 1.0)]);
        d_tanh:        Tanh(_)                             => to([&*g * (-(u * u) + 1.0)]);
        d_sigmoid:     Sigmoid(_)                          => to([&*g * (u * (-u + 1.0))]);
        d_erf:         Erf(x)                              => to([&*g * ((-(x * x)).unary(Op::Exp) * std::f64::consts::FRAC_2_SQRT_PI)]);

        d_add:         Add(_, _)                           => to([g.clone(), g.clone()]);
        d_mul:         Mul(x, y)                           => to([&*g * y, &*g * x]);
        d_div:         Div(_, y)                           => to([&*g / y, -(&*g * u / y)]);
        d_mod:         Mod(x, y)                           => to([g.clone(), -(&*g * quotient(u, x, y))]);
        d_max:         Max(x, y)                           => to([wins(x, y, Op::Max, g), wins(y, x, Op::Max, g)]);
        d_min:         Min(x, y)                           => to([wins(x, y, Op::Min, g), wins(y, x, Op::Min, g)]);
        d_pow:         Pow(x, y)                           => to([by_base(x, y, g), by_exponent(u, x, y, g)]);
        d_where:       Where(c, x, y)                      => { let c = c.materialized(); to([none(), c.select(&*g, &g.const_like(0i64)), c.select(0i64, g)]) };
        d_fma:         Fma(x, y, _)                        => to([&*g * y, &*g * x, g.clone()]);
    }
}

/// The gradients of the operands.
fn to<const N: usize>(parts: [UOp; N]) -> UOp {
    UOp::sink(parts.into_iter().collect::<Src>())
}

/// The derivative is zero wherever there is one.
fn none() -> UOp {
    UOp::sink(Src::new())
}

fn fold(u: &UOp) -> Fold {
    match u.arg() {
        Arg::Reduce { fold, .. } => *fold,
        _ => panic!("not a reduce: {u:?}"),
    }
}

fn movement(u: &UOp) -> &Movement {
    u.arg().movement().unwrap_or_else(|| panic!("not a movement op: {u:?}"))
}

fn unpermuted(u: &UOp) -> Movement {
    let Movement::Permute(axes) = movement(u) else { panic!("not a permute: {u:?}") };
    Movement::permute(
        (0..axes.len())
            .map(|a| axes.iter().position(|&p| p == a).expect("a permutation has every axis")),
    )
}

fn unpadded(u: &UOp, x: &UOp) -> Movement {
    let Movement::Pad(sides) = movement(u) else { panic!("not a pad: {u:?}") };
    Movement::shrink(sides.iter().zip(x.shape()).map(|(&(before, _), &n)| (before, before + n)))
}

fn unshrunk(u: &UOp, x: &UOp) -> Movement {
    let Movement::Shrink(ranges) = movement(u) else { panic!("not a shrink: {u:?}") };
    Movement::pad(ranges.iter().zip(x.shape()).map(|(&(start, end), &n)| (start, n - end)))
}

/// The gradient on the device of the operand. One without storage is wherever it is needed.
fn copied(g: &UOp, x: &UOp) -> UOp {
    match device_of(x) {
        Some(devices) if devices.is_several() => {
            UOp::shards(devices.each().iter().map(|d| g.copied(d)).collect::<Src>(), &devices, None)
        }
        Some(device) => g.copied(&device),
        None => g.clone(),
    }
}

/// Each part along an axis gets its part of the gradient; of copies the first is the value.
fn shares(u: &UOp, g: &UOp) -> UOp {
    let Arg::Shards { axis, .. } = u.arg() else { panic!("not shards: {u:?}") };
    let mut end = 0;
    let share = |(i, part): (usize, &UOp)| match axis {
        Some(axis) => {
            let start = end;
            end += part.shape()[*axis];
            g.narrowed(*axis, start..end)
        }
        None if i == 0 => g.clone(),
        None => none(),
    };
    UOp::sink(u.src().iter().enumerate().map(share).collect::<Src>())
}

/// Each operand of a cat gets its part of the gradient.
fn pieces(u: &UOp, g: &UOp) -> UOp {
    let Arg::Cat { axis } = u.arg() else { panic!("not a cat: {u:?}") };
    let mut end = 0;
    let piece = |x: &UOp| {
        let start = end;
        end += x.shape()[*axis];
        g.narrowed(*axis, start..end)
    };
    UOp::sink(u.src().iter().map(piece).collect::<Src>())
}

/// The device of a value; none if it depends on no data.
pub fn device_of(x: &UOp) -> Option<DeviceName> {
    x.toposort().iter().rev().find_map(|u| match u.arg() {
        Arg::Storage(s) => Some(s.storage.device().clone()),
        Arg::Device(device) | Arg::Param { device, .. } | Arg::Shards { devices: device, .. } => {
            Some(device.clone())
        }
        _ => None,
    })
}

/// Elements that are the greatest (or least) share the gradient evenly. Where a NaN won, the
/// gradient is NaN unless the upstream one is 0.
///
/// The maximum is taken of the very value that it is compared with. `u` itself may be stored from
/// an earlier plan, and `x` computed again, rounded differently: then no element would equal `u`.
/// The `Detach` makes the reduce another node than `u`, which a stored `u` does not replace.
fn shared(u: &UOp, x: &UOp, g: &UOp) -> UOp {
    let Arg::Reduce { fold, axes } = u.arg() else { panic!("not a reduce: {u:?}") };
    let x = x.materialized();
    let best = x.unary(Op::Detach).reduced(*fold, axes.iter().copied());
    let is_best = x.equals(spread(&best, x.shape()));
    let one = is_best.select(1.0, &x.const_like(0i64));
    let count = one.reduced(Fold::Add, axes.iter().copied());
    let is_lost = best.binary(Op::Ne, &best).binary(Op::And, g.binary(Op::Ne, 0.0));
    let others = is_lost.select(f64::NAN, &x.const_like(0i64));
    is_best.select(spread(&(g / &count), x.shape()), &spread(&others, x.shape()))
}

/// The gradient if `x` is taken, half of it if both are equal. The operands are materialized, so
/// that the kernels of both gradients take the same side.
fn wins(x: &UOp, y: &UOp, op: Op, g: &UOp) -> UOp {
    let (x, y) = (x.materialized(), y.materialized());
    let loses = if op == Op::Max { x.lt(&y) } else { y.lt(&x) };
    x.equals(&y).select(g * 0.5, &loses.select(0i64, g))
}

/// The quotient that belongs to the remainder `u`, a whole number: x/y itself can be rounded up to
/// the next. By an infinity it is 0, or -1 where that was added.
fn quotient(u: &UOp, x: &UOp, y: &UOp) -> UOp {
    let near = (x + -u) / y + 0.5;
    let t = near.unary(Op::Trunc);
    let whole = near.lt(&t).select(&t + -1.0, &t);
    let is_infinite = y.equals(f64::INFINITY).or(y.equals(f64::NEG_INFINITY));
    is_infinite.select(u.equals(x).select(0i64, &x.const_like(-1i64)), &whole)
}

/// y·x^(y-1), which is 0 for y = 0 even where x^-1 is infinite.
fn by_base(x: &UOp, y: &UOp, g: &UOp) -> UOp {
    y.equals(0i64).select(0i64, &(g * (y * x.binary(Op::Pow, y + -1.0))))
}

/// xʸ·log(x), which is 0 for x = 0 and y ≥ 0 even though the logarithm is infinite there.
fn by_exponent(u: &UOp, x: &UOp, y: &UOp, g: &UOp) -> UOp {
    let flat = x.equals(0i64).and(y.lt(0i64).not());
    // The logarithm of 1 in place of that of 0, so that no infinity comes near the gradient of this
    // gradient.
    let log = flat.select(1.0, x).unary(Op::Log);
    flat.select(0i64, &(g * (u * log)))
}
