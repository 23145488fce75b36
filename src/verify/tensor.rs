//! The lazy graph: shapes, dtypes and payloads of what a user wrote. After it holds, `UOp::shape`
//! of every node is right.

use super::{Verdict, bounds_of_variable, broken, elementwise, literal, rule, storable, variable};
use crate::dtype::DType;
use crate::ir::typed::Slice;
use crate::ir::{Arg, Group, Op, UOp, fit_along, fit_cat};
use crate::shape::{Movement, moved_extents};

/// Checks a tensor graph.
pub fn tensor(root: &UOp) -> Result<(), String> {
    // Operands come first, so the shape of an operand is known to be sound when its user is looked
    // at.
    for u in root.toposort() {
        node(&u, root).map_err(|e| format!("tensor graph: {e}"))?;
    }
    Ok(())
}

fn node(u: &UOp, root: &UOp) -> Verdict {
    rule(u.dtype().lanes == 1, "the tensor graph has no vectors", u)?;
    rule(
        u.op().takes(u.src().len()),
        "an op takes as many operands as its line in the table has",
        u,
    )?;
    match u.op() {
        Op::Const => literal(u),
        // In a graph that is not planned yet it has a value.
        Op::Var => match u.arg() {
            Arg::BoundVar { min, max, value, .. } => {
                let within = bounds_of_variable(*min, *max) && (min..=max).contains(&value);
                rule(
                    u.dtype().is_int() && within,
                    "a bound variable is an integer within its bounds",
                    u,
                )
            }
            _ => variable(u),
        },
        Op::Buffer => rule(
            matches!(u.arg(), Arg::Storage(_)) && storable(u.dtype()),
            "a buffer has storage and the dtype of one element",
            u,
        ),
        Op::Param => rule(
            matches!(u.arg(), Arg::Param { .. }) && storable(u.dtype()),
            "a param has a slot and the dtype of one element",
            u,
        ),
        Op::Iota => {
            let number = u.dtype().is_int() || u.dtype().is_float();
            rule(
                matches!(u.arg(), Arg::Iota { .. }) && number,
                "an iota has a length and is of numbers",
                u,
            )
        }
        op if op.is(Group::Movement) => movement(u),
        Op::Slice => match u.as_slice() {
            Some(Slice { x, part, .. }) => {
                part.check(x.shape(), x.extents())
                    .map_err(|e| broken(&format!("a slice is a part of its operand ({e})"), u))?;
                same_dtype(u)
            }
            None => Err(broken("a slice has an axis, a start and a length", u)),
        },
        Op::Reduce => reduce(u),
        Op::Scan => scan(u),
        Op::Cat => {
            let Arg::Cat { axis } = u.arg() else { return Err(broken("a cat has an axis", u)) };
            rule(
                u.src().iter().all(|s| s.dtype() == u.dtype()),
                "the operands of a cat have its dtype",
                u,
            )?;
            fit_cat(*axis, u.src()).map_err(|e| {
                broken(&format!("operands of a cat differ along its axis alone ({e})"), u)
            })
        }
        Op::Gather | Op::Scatter => indexed(u),
        Op::Contiguous => {
            rule(
                matches!(u.arg(), Arg::None | Arg::Device(_)),
                "a contiguous has at most a device for payload",
                u,
            )?;
            same_dtype(u)
        }
        Op::Copy => {
            rule(matches!(u.arg(), Arg::Device(_)), "a copy names its device", u)?;
            same_dtype(u)
        }
        Op::Shards => shards(u),
        Op::Kernel => {
            rule(
                matches!(u.arg(), Arg::Kernel(_)) && u.dtype() == DType::VOID,
                "a kernel of the user's is its payload and has no value",
                u,
            )?;
            rule(
                u.src().iter().all(|s| storable(s.dtype())),
                "a kernel of the user's reads values",
                u,
            )
        }
        Op::Loop => looped(u),
        Op::Output => match (u.operand().arg(), u.arg()) {
            (Arg::Loop(l), Arg::Output(i)) => rule(
                l.output(*i).is_some_and(|o| o.0 == u.dtype()),
                "an output is one of its loop's",
                u,
            ),
            (Arg::Kernel(k), Arg::Output(i)) => rule(
                k.outputs.get(*i).is_some_and(|o| o.0 == u.dtype()),
                "an output is one of its kernel's",
                u,
            ),
            _ => Err(broken("an output has a kernel and a number", u)),
        },
        Op::Leaf => {
            rule(
                matches!(u.arg(), Arg::Leaf(_)) && u.dtype().is_float(),
                "a leaf has a number and is of floats",
                u,
            )?;
            same_dtype(u)
        }
        Op::ContiguousBackward => same_dtype(u),
        Op::Computed | Op::Relu => {
            let [x, origin] = u.src() else { unreachable!("the arity was checked") };
            rule(
                x.shape() == origin.shape(),
                "a computed value has the shape of where it came from",
                u,
            )?;
            rule(
                x.dtype() == origin.dtype(),
                "a computed value has the dtype of where it came from",
                u,
            )?;
            same_dtype(u)
        }
        Op::Call => {
            rule(
                matches!(u.arg(), Arg::Gradient(_)) && u.dtype().is_float(),
                "a call has a gradient and is of floats",
                u,
            )?;
            same_dtype(u)
        }
        Op::Sink => {
            rule(u == root, "only the root is a sink", u)?;
            rule(u.dtype() == DType::VOID, "a sink has no value", u)?;
            rule(u.src().iter().all(|s| s.dtype() != DType::VOID), "a sink gathers tensors", u)
        }
        // Machine division faults on some operands. Lowering makes it where it has proven that
        // there are none of those.
        Op::CDiv | Op::CMod => Err(broken(
            "the op does not stand in a tensor graph, but only in a kernel after lowering",
            u,
        )),
        op if op.is_alu() => {
            elementwise(u)?;
            let mut shapes = u.src().iter().map(|s| s.shape()).filter(|s| !s.is_empty());
            let first = shapes.next();
            rule(shapes.all(|s| Some(s) == first), "operands have one shape, or none", u)?;
            let mut there = u.src().iter().filter(|s| !s.shape().is_empty()).map(|s| s.extents());
            let first = there.next();
            rule(
                there.all(|e| Some(e) == first),
                "as much of each axis is there in all operands",
                u,
            )
        }
        _ => Err(broken("the op does not stand in a tensor graph", u)),
    }
}

fn same_dtype(u: &UOp) -> Verdict {
    rule(u.dtype() == u.operand().dtype() && u.dtype() != DType::VOID, "the op keeps the dtype", u)
}

fn movement(u: &UOp) -> Verdict {
    let m = u
        .arg()
        .movement()
        .ok_or_else(|| broken("a movement op has its movement for payload", u))?;
    let right = matches!(
        (u.op(), m),
        (Op::Reshape, Movement::Reshape(_))
            | (Op::Expand, Movement::Expand(_))
            | (Op::Permute, Movement::Permute(_))
            | (Op::Pad, Movement::Pad(_))
            | (Op::Shrink, Movement::Shrink(_))
            | (Op::Flip, Movement::Flip(_))
    );
    rule(right, "a movement op has its movement for payload", u)?;
    same_dtype(u)?;
    let under = u.operand();
    m.apply_shape(under.shape())
        .map_err(|e| broken(&format!("a movement applies to its operand's shape ({e})"), u))?;
    moved_extents(m, under.shape(), under.extents())
        .map(|_| ())
        .map_err(|e| broken(&format!("a movement keeps axes of variables ({e})"), u))
}

fn looped(u: &UOp) -> Verdict {
    let Arg::Loop(l) = u.arg() else { return Err(broken("a loop has its body for payload", u)) };
    rule(
        u.dtype() == DType::VOID && u.src().iter().all(|s| storable(s.dtype())),
        "a loop reads values and has none",
        u,
    )?;
    rule(
        l.count > 0 && l.carries + l.elements <= u.src().len() && l.carries <= l.body.src().len(),
        "a loop has runs, and its carries",
        u,
    )?;
    let same = |(a, b): (&UOp, &UOp)| (a.dtype(), a.shape()) == (b.dtype(), b.shape());
    let mut carries = l.body.src().iter().zip(u.src()).take(l.carries);
    rule(carries.all(same), "a carry keeps its dtype and shape", u)?;
    for p in l.body.toposort().iter().filter(|p| p.op() == Op::Param) {
        let Arg::Param { slot, len, .. } = p.arg() else {
            return Err(broken("a param has a slot", p));
        };
        let of_one = |s: &UOp| if l.is_element(*slot) { s.numel() / l.count } else { s.numel() };
        let fits = u.src().get(*slot).is_some_and(|s| s.dtype() == p.dtype() && of_one(s) == *len);
        rule(fits, "an argument of a body is one of its loop's operands", p)?;
    }
    tensor(&l.body)
}

fn shards(u: &UOp) -> Verdict {
    let Arg::Shards { devices, axis } = u.arg() else {
        return Err(broken("shards have devices and perhaps an axis", u));
    };
    rule(devices.each().len() == u.src().len(), "shards have a device for each part", u)?;
    rule(u.src().iter().all(|s| s.dtype() == u.dtype()), "shards have one dtype", u)?;
    let first = u.operand().shape();
    rule(axis.is_none_or(|a| a < first.len()), "the axis of shards is one of theirs", u)?;
    let alike = |s: &UOp| {
        s.shape().len() == first.len()
            && (0..first.len()).all(|a| Some(a) == *axis || s.shape()[a] == first[a])
    };
    rule(u.src().iter().all(alike), "shards differ along their axis alone", u)
}

fn indexed(u: &UOp) -> Verdict {
    let (Arg::Gather { axis } | Arg::Scatter { axis, .. }) = u.arg() else {
        return Err(broken("a gather or scatter has an axis", u));
    };
    rule(
        matches!(u.arg(), Arg::Scatter { .. }) == (u.op() == Op::Scatter),
        "a scatter says how it combines, a gather does not",
        u,
    )?;
    let [_, index, values @ ..] = u.src() else { unreachable!("the number of operands is right") };
    rule(index.dtype().is_int(), "an index is of integers", u)?;
    rule(
        values.iter().all(|v| v.dtype() == u.dtype()),
        "scattered values have the dtype of what they are written to",
        u,
    )?;
    fit_along(*axis, u.src())
        .map_err(|e| broken(&format!("operands fit along the axis ({e})"), u))?;
    same_dtype(u)
}

fn scan(u: &UOp) -> Verdict {
    let Arg::Reduce { axes, .. } = u.arg() else {
        return Err(broken("a scan has a fold and an axis", u));
    };
    rule(
        u.src().len() == 1 && axes.len() == 1,
        "a scan of the tensor graph is along one axis and has no range",
        u,
    )?;
    rule(axes[0] < u.operand().shape().len(), "the axis of a scan is one of its operand", u)?;
    rule(
        u.operand().extent(axes[0]).is_none(),
        "the axis of a scan does not end at a variable",
        u,
    )?;
    same_dtype(u)
}

fn reduce(u: &UOp) -> Verdict {
    let Arg::Reduce { axes, .. } = u.arg() else {
        return Err(broken("a reduce has a fold and axes", u));
    };
    rule(u.src().len() == 1, "a reduce of the tensor graph has no ranges", u)?;
    rule(axes.windows(2).all(|w| w[0] < w[1]), "the axes of a reduce ascend, each once", u)?;
    let rank = u.operand().shape().len();
    rule(axes.iter().all(|a| *a < rank), "the axes of a reduce are axes of its operand", u)?;
    same_dtype(u)
}
