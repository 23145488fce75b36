//! The verifier of tensor graphs: shapes, dtypes and payloads. In a graph that passes, `UOp::shape`
//! of every node is right.

use super::{Verdict, bounds_of_variable, broken, declared, elementwise, literal, rule, storable};
use crate::dtype::DType;
use crate::ir::{Arg, Group, Op, UOp, check_payload};

/// Checks a tensor graph.
pub fn tensor(root: &UOp) -> Result<(), String> {
    // Operands come first, so that the shapes of operands are known to be right.
    for u in root.toposort() {
        node(&u, root).map_err(|e| format!("tensor graph: {e}"))?;
    }
    Ok(())
}

/// Ops of the tensor graph besides the elementwise ones.
fn is_structural(op: Op) -> bool {
    op.is(Group::Movement)
        || matches!(op, Op::Slice | Op::Reduce | Op::Scan | Op::Cat | Op::Gather | Op::Scatter)
        || matches!(op, Op::Contiguous | Op::Copy | Op::Shards)
}

fn node(u: &UOp, root: &UOp) -> Verdict {
    rule(u.dtype().lanes == 1, "the tensor graph has no vectors", u)?;
    declared(u)?;
    check_payload(u.op(), u.src(), u.arg())
        .map_err(|e| broken(&format!("the payload fits the operands ({e})"), u))?;
    match u.op() {
        Op::Const | Op::Var | Op::Buffer | Op::Param | Op::Iota => leaf(u),
        op if op.is(Group::Mark) => mark(u),
        op if is_structural(op) => structural(u),
        Op::Kernel | Op::Loop | Op::Output => block(u),
        Op::Sink => {
            rule(u == root, "only the root is a sink", u)?;
            rule(u.dtype() == DType::VOID, "a sink has no value", u)?;
            rule(u.src().iter().all(|s| s.dtype() != DType::VOID), "a sink gathers tensors", u)
        }
        // Machine division faults on some operands. Lowering proves that they do not occur.
        Op::CDiv | Op::CMod => {
            Err(broken("machine division is allowed only in kernels after lowering", u))
        }
        op if op.is_alu() => {
            elementwise(u)?;
            one_shape(u)
        }
        _ => Err(broken("the op is not allowed in a tensor graph", u)),
    }
}

fn one_shape(u: &UOp) -> Verdict {
    let mut operands = u.src().iter().filter(|s| !s.shape().is_empty());
    let Some(first) = operands.next() else { return Ok(()) };
    let alike = |s: &UOp| s.shape() == first.shape();
    rule(operands.clone().all(alike), "operands have one shape, or rank 0", u)?;
    let alike = |s: &UOp| s.extents() == first.extents();
    rule(operands.all(alike), "operands have the same symbolic sizes", u)
}

fn leaf(u: &UOp) -> Verdict {
    match u.arg() {
        Arg::Const(_) => literal(u),
        Arg::BoundVar { min, max, .. } | Arg::Var { min, max, .. } => {
            let fits = u.dtype().is_int() && bounds_of_variable(*min, *max);
            rule(fits, "a variable is an integer with bounds", u)
        }
        Arg::Iota { .. } => rule(u.op().on().has(u.dtype()), "an iota is of numbers", u),
        _ => rule(storable(u.dtype()), "a buffer or param has the dtype of one element", u),
    }
}

fn mark(u: &UOp) -> Verdict {
    match u.op() {
        Op::Leaf | Op::Call => rule(u.op().on().has(u.dtype()), "a leaf or call is of floats", u)?,
        Op::Computed | Op::Relu => {
            let [x, origin] = u.src() else { unreachable!("the arity was checked") };
            let alike = x.shape() == origin.shape() && x.dtype() == origin.dtype();
            rule(alike, "a computed value has the shape and the dtype of its origin", u)?;
        }
        _ => {}
    }
    same_dtype(u)
}

fn structural(u: &UOp) -> Verdict {
    match (u.op(), u.arg()) {
        (Op::Reduce, _) => rule(u.src().len() == 1, "a reduction of tensors has no ranges", u)?,
        (Op::Scan, Arg::Reduce { axes, .. }) => {
            let one = u.src().len() == 1 && axes.len() == 1;
            rule(one, "a scan of tensors is along one axis and has no range", u)?;
            let constant = u.operand().extent(axes[0]).is_none();
            rule(constant, "the size of the axis of a scan is not symbolic", u)?;
        }
        (Op::Cat, _) => {
            let alike = u.src().iter().all(|s| s.dtype() == u.dtype());
            rule(alike, "the operands of a cat have its dtype", u)?;
        }
        (Op::Gather | Op::Scatter, _) => {
            let [_, index, values @ ..] = u.src() else { unreachable!("the arity was checked") };
            rule(index.dtype().is_int(), "an index is of integers", u)?;
            let alike = values.iter().all(|v| v.dtype() == u.dtype());
            rule(alike, "scattered values have the dtype of the base", u)?;
        }
        (_, Arg::Shards { devices, axis }) => {
            let counts = devices.each().len() == u.src().len();
            rule(counts, "shards have a device for each part", u)?;
            let alike = u.src().iter().all(|s| s.dtype() == u.dtype());
            rule(alike, "shards have one dtype", u)?;
            let first = u.operand().shape();
            let alike = u.src().iter().all(|s| s.matches_except(first, *axis));
            rule(alike, "the shapes of shards differ in their axis alone", u)?;
        }
        _ => {}
    }
    same_dtype(u)
}

/// Checks a custom kernel, a loop, or an output of one.
fn block(u: &UOp) -> Verdict {
    if let Arg::Output(i) = u.arg() {
        let dtype = match u.operand().arg() {
            Arg::Loop(l) => l.output(*i).map(|o| o.0),
            Arg::Kernel(k) => k.outputs.get(*i).map(|o| o.0),
            _ => return Err(broken("an output is of a kernel or a loop", u)),
        };
        return rule(dtype == Some(u.dtype()), "an output is one of its kernel or loop", u);
    }
    let reads = u.src().iter().all(|s| storable(s.dtype()));
    rule(u.dtype() == DType::VOID && reads, "a kernel or loop reads values and has none", u)?;
    if u.op() == Op::Loop { looped(u) } else { Ok(()) }
}

fn same_dtype(u: &UOp) -> Verdict {
    rule(u.dtype() == u.operand().dtype() && u.dtype() != DType::VOID, "the op keeps the dtype", u)
}

fn looped(u: &UOp) -> Verdict {
    let l = u.expect_loop().body;
    rule(
        l.count > 0 && l.carries + l.elements <= u.src().len() && l.carries <= l.body.src().len(),
        "a loop has iterations, and its carries and elements are operands",
        u,
    )?;
    let same = |(a, b): (&UOp, &UOp)| (a.dtype(), a.shape()) == (b.dtype(), b.shape());
    let mut carries = l.body.src().iter().zip(u.src()).take(l.carries);
    rule(carries.all(same), "a carry keeps its dtype and shape", u)?;
    for p in l.body.toposort().iter().filter_map(UOp::as_param) {
        let of_one = |s: &UOp| if l.is_element(p.slot) { s.numel() / l.count } else { s.numel() };
        let fits = |s: &UOp| s.dtype() == p.node.dtype() && of_one(s) == p.len;
        let is_operand = u.src().get(p.slot).is_some_and(fits);
        rule(is_operand, "an argument of a body is an operand of its loop", p.node)?;
    }
    tensor(&l.body)
}
