//! The VJP of each op: from the upstream gradient `g` to the gradients of the operands. The right
//! side is a `Sink` with an operand for each operand of the op; an empty `Sink` among them stands
//! for a derivative that is zero wherever it exists.

use super::product::product;
use super::{broadcast_to, indexed, inverse, scan};
use crate::dtype::sum_acc;
use crate::ir::typed::Reduce;
use crate::ir::{Arg, Combine, DeviceName, Fold, Op, Src, UOp};
use crate::rewrite::rules;
use crate::shape::{Dims, Movement};
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2};

rules! {
    /// Gradients of every op of the tensor graph.
    pub GRADIENTS |u, g: UOp| {
        d_contiguous:  Contiguous(_)                       => gradients([g.clone()]);
        d_contiguous_backward: ContiguousBackward(_)       => gradients([g.unary(Op::Contiguous)]);
        d_computed:    Computed(..)                        => gradients([g.clone()]);
        d_relu:        Relu(y, _)                          => gradients([relu_gradient(y, g)]);
        d_shards:      Shards(..)                          => shards_gradients(u, g);
        d_copy:        Copy(..)                            => gradients([copied(g, u.operand())]);
        d_reshape:     Reshape(x)                          => gradients([reshaped(g, x.shape())]);
        d_expand:      Expand(x)                           => gradients([summed(g, x.shape())]);
        d_permute:     Permute(..)                         => gradients([g.moved(unpermuted(u))]);
        d_pad:         Pad(x)                              => gradients([g.moved(unpadded(u, x))]);
        d_shrink:      Shrink(x)                           => gradients([g.moved(unshrunk(u, x))]);
        d_flip: Flip(..) => gradients([g.moved(movement(u).clone())]);
        d_reduce_add: Reduce(x) if fold(u) == Fold::Add => gradients([broadcast_to(g, x.shape())]);
        d_reduce_mul:  Reduce(x) if fold(u) == Fold::Mul   => gradients([product(u, x, g)]);
        d_reduce_best: Reduce(x) if is_extreme(u) => gradients([reduce_max_gradient(u, x, g)]);
        d_scan_add:    Scan(_) if fold(u) == Fold::Add     => gradients([scan::sums(u, g)]);
        d_scan_mul:    Scan(x) if fold(u) == Fold::Mul     => gradients([scan::products(u, x, g)]);
        d_scan_best:   Scan(x) if is_extreme(u)            => gradients([scan::extremes(u, x, g)]);
        d_cat: Cat(..) => slices_along(u, g, u.expect_cat().axis);
        d_gather: Gather(..) => gradients([indexed::gathered(u, g), zero_gradient()]);
        d_scatter:     Scatter(..)                         => {
            let (base, value) = indexed::scattered(u, g);
            gradients([base, zero_gradient(), value])
        };

        d_cast:        Cast(x) if converts_floats(u)       => gradients([g.cast(x.dtype())]);
        d_cast_int:    Cast(_) if !converts_floats(u)      => gradients([zero_gradient()]);
        d_sqrt:        Sqrt(_)                             => gradients([&*g / (u * 2.0)]);
        d_trunc:       Trunc(_)                            => gradients([zero_gradient()]);
        d_rsqrt:       Rsqrt(_)                            => gradients([&*g * (u * u * u * -0.5)]);
        d_exp:         Exp(_)                              => gradients([&*g * u]);
        d_exp2:        Exp2(_)                             => gradients([&*g * (u * LN_2)]);
        d_log:         Log(x)                              => gradients([&*g / x]);
        d_log2:        Log2(x)                             => gradients([&*g / (x * LN_2)]);
        d_sin:         Sin(x)                              => gradients([&*g * x.unary(Op::Cos)]);
        d_cos:         Cos(x)                              => gradients([&*g * -x.unary(Op::Sin)]);
        d_tan:         Tan(_)                              => gradients([&*g * (u * u + 1.0)]);
        d_tanh:        Tanh(_)                             => gradients([&*g * (-(u * u) + 1.0)]);
        d_sigmoid:     Sigmoid(_)                          => gradients([&*g * (u * (-u + 1.0))]);
        d_erf:         Erf(x)                              => gradients([&*g * erf_derivative(x)]);

        d_add:         Add(_, _)                           => gradients([g.clone(), g.clone()]);
        d_mul:         Mul(x, y)                           => gradients([&*g * y, &*g * x]);
        d_div:         Div(_, y)                           => gradients([&*g / y, -(&*g * u / y)]);
        d_mod:         Mod(x, y) => gradients([g.clone(), mod_divisor_gradient(u, x, y, g)]);
        d_max: Max(x, y) => gradients(max_min_gradients(u.op(), x, y, g));
        d_min: Min(x, y) => gradients(max_min_gradients(u.op(), x, y, g));
        d_pow:         Pow(x, y)                           => gradients(pow_gradients(u, x, y, g));
        d_where:       Where(c, x, y)                      => where_gradients(c, g);
        d_ldexp: Ldexp(_, n) => gradients([g.binary(Op::Ldexp, n), zero_gradient()]);
        d_fma: Fma(x, y, _) => gradients([&*g * y, &*g * x, g.clone()]);
    }
}

/// The gradients of the operands.
fn gradients<const N: usize>(parts: [UOp; N]) -> UOp {
    UOp::sink(parts.into_iter().collect::<Src>())
}

/// Returns the marker of a derivative that is zero wherever it exists.
fn zero_gradient() -> UOp {
    UOp::sink(Src::new())
}

fn fold(u: &UOp) -> Fold {
    match u.arg() {
        Arg::Reduce { fold, .. } => *fold,
        _ => panic!("expected a reduction or a scan, found {u:?}"),
    }
}

fn is_extreme(u: &UOp) -> bool {
    matches!(fold(u), Fold::Max | Fold::Min)
}

fn converts_floats(u: &UOp) -> bool {
    u.dtype().is_float() && u.operand().dtype().is_float()
}

/// Returns the operands whose values decide which branch the gradient of the node takes: the
/// operand of a maximum or minimum over axes, the operands of an elementwise `Max` or `Min` and of
/// a `Scatter` with one, the condition of a `Where`, the result of a `Relu`. The rules below read
/// them materialized.
pub(crate) fn decision_operands(u: &UOp) -> &[UOp] {
    let first = u.src().get(..1).unwrap_or_default();
    match u.op() {
        Op::Reduce | Op::Scan if is_extreme(u) => first,
        Op::Max | Op::Min => u.src(),
        Op::Scatter if matches!(u.expect_scatter().combine, Combine::Max | Combine::Min) => u.src(),
        Op::Where | Op::Relu => first,
        _ => &[],
    }
}

/// Returns `g` where the output of a relu is positive, and zero elsewhere.
fn relu_gradient(y: &UOp, g: &UOp) -> UOp {
    y.materialized().differs(0.0).select(g, &g.const_like(0i64))
}

/// Returns the gradients of the operands of a `Where`.
fn where_gradients(c: &UOp, g: &UOp) -> UOp {
    let c = c.materialized();
    gradients([zero_gradient(), c.select(g, &g.const_like(0i64)), c.select(0i64, g)])
}

fn reshaped(g: &UOp, shape: &Dims) -> UOp {
    g.moved(Movement::Reshape(shape.clone()))
}

/// Returns `g` summed over the axes that were expanded from a shape.
fn summed(g: &UOp, shape: &Dims) -> UOp {
    g.reduced(Fold::Add, (0..shape.len()).filter(|&a| shape[a] != g.shape()[a]))
}

fn movement(u: &UOp) -> &Movement {
    u.as_movement().unwrap_or_else(|| panic!("expected a movement op, found {u:?}")).movement
}

/// Returns the inverse of a permute.
fn unpermuted(u: &UOp) -> Movement {
    match movement(u) {
        Movement::Permute(axes) => Movement::Permute(inverse(axes)),
        m => panic!("expected a permute, found {m}"),
    }
}

/// Returns the shrink that undoes a pad.
fn unpadded(u: &UOp, x: &UOp) -> Movement {
    let Movement::Pad(sides) = movement(u) else { panic!("expected a pad, found {u:?}") };
    Movement::shrink(sides.iter().zip(x.shape()).map(|(&(before, _), &n)| (before, before + n)))
}

/// Returns the pad that undoes a shrink.
fn unshrunk(u: &UOp, x: &UOp) -> Movement {
    let Movement::Shrink(ranges) = movement(u) else { panic!("expected a shrink, found {u:?}") };
    Movement::pad(ranges.iter().zip(x.shape()).map(|(&(start, end), &n)| (start, n - end)))
}

/// Returns the gradient on the device of the operand, if the operand has one.
fn copied(g: &UOp, x: &UOp) -> UOp {
    match device_of(x) {
        Some(devices) if devices.is_multi_device() => {
            UOp::shards(devices.each().iter().map(|d| g.copied(d)).collect::<Src>(), &devices, None)
        }
        Some(device) => g.copied(&device),
        None => g.clone(),
    }
}

/// Returns the gradients of the operands of `Shards`. Shards get their slices of `g`; of replicas,
/// the first gets `g` and the others get zero.
fn shards_gradients(u: &UOp, g: &UOp) -> UOp {
    match u.expect_shards().axis {
        Some(axis) => slices_along(u, g, axis),
        None => {
            let share = |i: usize| if i == 0 { g.clone() } else { zero_gradient() };
            UOp::sink((0..u.src().len()).map(share).collect::<Src>())
        }
    }
}

/// Returns the parts of `g` along an axis that belong to the operands, which are concatenated along
/// it.
fn slices_along(u: &UOp, g: &UOp, axis: usize) -> UOp {
    let mut end = 0;
    let piece = |x: &UOp| {
        let start = end;
        end += x.shape()[axis];
        g.narrowed(axis, start..end)
    };
    UOp::sink(u.src().iter().map(piece).collect::<Src>())
}

/// Returns the device of a value; none if it depends on no data.
pub fn device_of(x: &UOp) -> Option<DeviceName> {
    x.toposort().iter().rev().find_map(|u| u.own_device().cloned())
}

/// Returns the gradient of a maximum or minimum over axes: the elements that are equal to it share
/// `g` evenly. If the maximum is NaN, the gradient of all elements is NaN unless `g` is 0.
///
/// The maximum is computed from the value that it is compared with. `u` may have been stored by an
/// earlier plan; if `x` is rematerialized and rounded differently, no element is equal to `u`. The
/// `Detach` makes the reduction another node than `u`, which a stored `u` does not replace.
fn reduce_max_gradient(u: &UOp, x: &UOp, g: &UOp) -> UOp {
    let Reduce { fold, axes, .. } = u.expect_reduce();
    let x = x.materialized();
    let best = x.unary(Op::Detach).reduced(fold, axes.iter().copied());
    let is_best = x.equals(broadcast_to(&best, x.shape()));
    // A narrow float cannot count them: `f16` ends at 65,504 and `f8e4m3` at 448.
    let wide = sum_acc(x.dtype());
    let one = is_best.select(1.0, &UOp::constant(0i64, wide));
    let count = one.reduced(Fold::Add, axes.iter().copied());
    let share = (g.cast(wide) / &count).cast(x.dtype());
    let is_lost = best.differs(&best).and(g.differs(0.0));
    let others = is_lost.select(f64::NAN, &x.const_like(0i64));
    is_best.select(broadcast_to(&share, x.shape()), &broadcast_to(&others, x.shape()))
}

/// Returns the gradients of both operands of a maximum or minimum.
fn max_min_gradients(op: Op, x: &UOp, y: &UOp, g: &UOp) -> [UOp; 2] {
    [max_min_gradient(x, y, op, g), max_min_gradient(y, x, op, g)]
}

/// Returns `g` where `x` is selected, half of it where both operands are equal. The operands are
/// materialized, so that the kernels of both gradients select the same one.
fn max_min_gradient(x: &UOp, y: &UOp, op: Op, g: &UOp) -> UOp {
    let (x, y) = (x.materialized(), y.materialized());
    let loses = if op == Op::Max { x.lt(&y) } else { y.lt(&x) };
    x.equals(&y).select(g * 0.5, &loses.select(0i64, g))
}

/// Returns the integer quotient that belongs to the remainder `u` of `x` by `y`. `x/y` cannot be
/// truncated, because it may be rounded up to the next integer. For an infinite divisor the
/// quotient is 0, or -1 if the divisor was added.
fn quotient(u: &UOp, x: &UOp, y: &UOp) -> UOp {
    let near = (x + -u) / y + 0.5;
    let t = near.unary(Op::Trunc);
    let whole = near.lt(&t).select(&t + -1.0, &t);
    let is_infinite = y.equals(f64::INFINITY).or(y.equals(f64::NEG_INFINITY));
    is_infinite.select(u.equals(x).select(0i64, &x.const_like(-1i64)), &whole)
}

/// Returns the derivative of erf.
fn erf_derivative(x: &UOp) -> UOp {
    (-(x * x)).unary(Op::Exp) * FRAC_2_SQRT_PI
}

/// Returns the gradient of the divisor of a remainder.
fn mod_divisor_gradient(u: &UOp, x: &UOp, y: &UOp, g: &UOp) -> UOp {
    -(g * quotient(u, x, y))
}

/// Returns the gradients of base and exponent of a power.
fn pow_gradients(u: &UOp, x: &UOp, y: &UOp, g: &UOp) -> [UOp; 2] {
    [pow_base_gradient(x, y, g), pow_exponent_gradient(u, x, y, g)]
}

/// Returns the gradient y·x^(y-1)·g of the base. It is 0 for y = 0, also where x^-1 is infinite.
fn pow_base_gradient(x: &UOp, y: &UOp, g: &UOp) -> UOp {
    y.equals(0i64).select(0i64, &(g * (y * x.binary(Op::Pow, y + -1.0))))
}

/// Returns the gradient xʸ·log(x)·g of the exponent. It is 0 for x = 0 and y ≥ 0, where the
/// logarithm is infinite.
fn pow_exponent_gradient(u: &UOp, x: &UOp, y: &UOp, g: &UOp) -> UOp {
    let flat = x.equals(0i64).and(y.lt(0i64).not());
    // The logarithm of 1 instead of 0, so that the gradient of this gradient has no infinity.
    let log = flat.select(1.0, x).unary(Op::Log);
    flat.select(0i64, &(g * (u * log)))
}
