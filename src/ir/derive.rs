//! Derived facts: shape, symbolic sizes, integer bounds, open ranges. Each is computed once per
//! node, from the facts of the operands, and cached in it. The walks are iterative.

use super::bounds::{Bounds, EVERYTHING, make_bounds};
use super::intern::Node;
use super::{Arg, Group, Op, RangeSet, UOp};
use crate::dtype::{DType, Scalar};
use crate::error::Error;
use crate::shape::{Dims, Extents, ShapeTracker, SymInt, moved_extents};
use smallvec::SmallVec;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Facts cached on a node.
#[derive(Default)]
pub(super) struct Facts {
    /// Boxed because it is large, and the nodes of a kernel have none.
    tensor: OnceLock<Box<TensorFacts>>,
    /// The low 64 bits of both bounds, which the dtype extends.
    bounds: OnceLock<(u64, u64)>,
    ranges: OnceLock<RangeSet>,
    /// A bit for each rule set of which the graph under the node is a fixpoint.
    fixpoints: AtomicU32,
}

/// Facts cached on a node of the tensor graph.
#[derive(Default)]
struct TensorFacts {
    shape: OnceLock<Dims>,
    extents: OnceLock<Extents>,
    view: OnceLock<(UOp, ShapeTracker)>,
    requires_grad: OnceLock<bool>,
    rounding: OnceLock<super::Rounding>,
}

impl Facts {
    fn tensor(&self) -> &TensorFacts {
        self.tensor.get_or_init(Box::default)
    }
    /// Returns the base of the node's view, if the view was computed.
    pub(super) fn view_of(&self) -> Option<&UOp> {
        self.tensor.get()?.view.get().map(|v| &v.0)
    }
    /// Removes the cached view and returns its base.
    pub(super) fn take_view(&mut self) -> Option<UOp> {
        self.tensor.get_mut()?.view.take().map(|v| v.0)
    }
}

/// Returns the fact of a node, which is computed after those of the operands if it is missing.
#[inline]
fn fill<T>(u: &UOp, slot: impl Fn(&Node) -> &OnceLock<T>, make: impl Fn(&UOp) -> T) -> &T {
    match slot(u.node()).get() {
        Some(v) => v,
        None => fill_under(u, slot, make),
    }
}

/// Computes the missing facts under a node, without recursion.
#[inline(never)]
fn fill_under<'a, T>(
    u: &'a UOp,
    slot: impl Fn(&Node) -> &OnceLock<T>,
    make: impl Fn(&UOp) -> T,
) -> &'a T {
    let lacks = |s: &UOp| slot(s.node()).get().is_none();
    // Usually all operands have the fact, and no walk is needed.
    if u.src().iter().any(lacks) {
        let mut stack: SmallVec<[(&'a UOp, std::slice::Iter<'a, UOp>); 8]> =
            smallvec::smallvec![(u, u.src().iter())];
        while let Some((top, operands)) = stack.last_mut() {
            match operands.find(|s| lacks(s)) {
                Some(s) => stack.push((s, s.src().iter())),
                None => {
                    slot(top.node()).get_or_init(|| make(top));
                    stack.pop();
                }
            }
        }
    }
    slot(u.node()).get_or_init(|| make(u))
}

impl UOp {
    /// Returns the shape in the tensor graph; `[]` for nodes without one.
    pub fn shape(&self) -> &Dims {
        fill(self, |n| &n.facts.tensor().shape, make_shape)
    }
    /// Returns the symbolic size of each axis, or `None` for an axis of constant size; empty if no
    /// axis is symbolic. The shape has the upper bound of each.
    pub fn extents(&self) -> &[Option<SymInt>] {
        fill(self, |n| &n.facts.tensor().extents, make_extents)
    }
    /// Returns the symbolic size of an axis, if it has one.
    pub fn extent(&self, axis: usize) -> Option<&SymInt> {
        self.extents().get(axis)?.as_ref()
    }
    /// Returns the base of a view, which is the node under all movement ops, and the map to its
    /// elements; none for other nodes.
    pub fn view(&self) -> Option<&(UOp, ShapeTracker)> {
        let mut chain = Vec::new();
        let mut u = self;
        while let Some(m) = u.arg().movement() {
            if u.node().facts.tensor().view.get().is_some() {
                break;
            }
            chain.push((u, m));
            u = u.operand();
        }
        while let Some((v, m)) = chain.pop() {
            let under = v.operand();
            let (base, seen) = match under.node().facts.tensor().view.get() {
                Some(b) => (b.0.clone(), b.1.clone()),
                None => (under.clone(), ShapeTracker::new(under.shape())),
            };
            let seen = seen.apply(m).unwrap_or_else(|e| unchecked(&e));
            let _ = v.node().facts.tensor().view.set((base, seen));
        }
        self.node().facts.tensor().view.get()
    }
    /// Returns the number of elements in the tensor graph.
    pub fn numel(&self) -> usize {
        self.shape().iter().product()
    }
    /// Inclusive bounds of an integer or bool value; unlimited for floats.
    pub fn bounds(&self) -> Bounds {
        let dtype = self.dtype();
        if dtype.is_float() || dtype == DType::VOID {
            return EVERYTHING;
        }
        // Integers have at most 64 bits.
        let bits = |u: &UOp| {
            let (lo, hi) = make_bounds(u);
            (lo as u64, hi as u64)
        };
        let (lo, hi) = *fill(self, |n| &n.facts.bounds, bits);
        if dtype.scalar == Scalar::U64 {
            (lo.into(), hi.into())
        } else {
            ((lo as i64).into(), (hi as i64).into())
        }
    }
    /// Returns the lower bound of an integer.
    pub fn vmin(&self) -> i128 {
        self.bounds().0
    }
    /// Returns the upper bound of an integer.
    pub fn vmax(&self) -> i128 {
        self.bounds().1
    }
    /// Returns the open ranges: those that the value depends on and that no node under it closes.
    pub fn ranges(&self) -> &RangeSet {
        fill(self, |n| &n.facts.ranges, make_ranges)
    }
    /// Returns true if a gradient of the node reaches a parameter.
    pub fn requires_grad(&self) -> bool {
        *fill(
            self,
            |n| &n.facts.tensor().requires_grad,
            |u| match u.op() {
                Op::Leaf => true,
                Op::Detach => false,
                Op::Computed | Op::Relu => u.src()[1].requires_grad(),
                Op::Call => u.src()[1..].iter().any(|s| s.requires_grad()),
                // The derivative is zero.
                Op::Cast | Op::Output if !u.dtype().is_float() => false,
                op if op.is(Group::Comparison) => false,
                _ => u.src().iter().any(|s| s.requires_grad()),
            },
        )
    }
    /// Returns the reproducibility of the value's bits between kernels and between plans.
    pub fn rounding(&self) -> super::Rounding {
        *fill(self, |n| &n.facts.tensor().rounding, super::materialize::make_rounding)
    }
    /// Returns true if the graph is known to be a fixpoint of the rule set with this bit.
    #[inline]
    pub(crate) fn is_fixpoint(&self, bit: u32) -> bool {
        self.node().facts.fixpoints.load(Ordering::Relaxed) & bit != 0
    }
    /// Records that the graph is a fixpoint of the rule set with this bit.
    pub(crate) fn mark_fixpoint(&self, bit: u32) {
        self.node().facts.fixpoints.fetch_or(bit, Ordering::Relaxed);
    }
    /// Returns true if the value depends on the range of this id.
    pub fn uses_range(&self, id: u32) -> bool {
        self.ranges().has(id)
    }
}

/// Panics because of a movement op that was built without a check.
fn unchecked<T>(e: &Error) -> T {
    panic!("a movement op does not fit its operand: {e}")
}

fn make_shape(u: &UOp) -> Dims {
    let resized = |axes: &[usize], size: usize| {
        let mut shape = u.operand().shape().clone();
        for &axis in axes {
            if let Some(s) = shape.get_mut(axis) {
                *s = size;
            }
        }
        shape
    };
    let total = |axis: usize| u.src().iter().filter_map(|p| p.shape().get(axis)).sum();
    match (u.op(), u.arg()) {
        (Op::Buffer, Arg::Storage(s)) => smallvec::smallvec![s.storage.len()],
        (Op::Param, Arg::Param { len, .. }) => smallvec::smallvec![*len],
        (Op::Iota, Arg::Iota { len }) => smallvec::smallvec![*len],
        (_, Arg::Movement(m)) => {
            m.apply_shape(u.operand().shape()).unwrap_or_else(|e| unchecked(&e))
        }
        (Op::Slice, Arg::Slice(part)) => resized(&[part.axis], part.len.max() as usize),
        (Op::Reduce, Arg::Reduce { axes, .. }) => resized(axes, 1),
        (Op::Cat, Arg::Cat { axis }) => resized(&[*axis], total(*axis)),
        (Op::Shards, Arg::Shards { axis: Some(axis), .. }) => resized(&[*axis], total(*axis)),
        (Op::Gather, _) => u.src()[1].shape().clone(),
        // The inputs of a call have shapes of their own.
        (Op::Scatter | Op::Shards | Op::Call, _) => u.operand().shape().clone(),
        (Op::Sink | Op::Kernel | Op::Loop, _) => Dims::new(),
        (Op::Output, Arg::Output(i)) => match u.operand().arg() {
            Arg::Kernel(kernel) => kernel.outputs.get(*i).map(|o| o.1.clone()).unwrap_or_default(),
            Arg::Loop(l) => l.output(*i).map(|o| o.1).unwrap_or_default(),
            _ => Dims::new(),
        },
        // Elementwise: operands have the same shape or rank 0.
        _ => u.src().iter().map(|s| s.shape()).find(|s| !s.is_empty()).cloned().unwrap_or_default(),
    }
}

fn make_extents(u: &UOp) -> Extents {
    let under = || u.operand().extents();
    // No symbolic axis has one representation.
    let tidy = |e: Extents| if e.iter().all(Option::is_none) { Extents::default() } else { e };
    match (u.op(), u.arg()) {
        (Op::Slice, Arg::Slice(part)) => {
            let mut e: Vec<Option<SymInt>> = match under() {
                [] => vec![None; u.operand().shape().len()],
                some => some.to_vec(),
            };
            e[part.axis] = part.len.as_number().is_none().then(|| part.len.clone());
            tidy(e.into())
        }
        (_, Arg::Movement(m)) => {
            tidy(moved_extents(m, u.operand().shape(), under()).unwrap_or_else(|e| unchecked(&e)))
        }
        (Op::Reduce, Arg::Reduce { axes, .. }) => {
            let mut e: Extents = under().into();
            for &axis in axes {
                if let Some(e) = e.get_mut(axis) {
                    *e = None;
                }
            }
            tidy(e)
        }
        (Op::Sink | Op::Kernel | Op::Loop | Op::Output | Op::Shards | Op::Cat, _) => {
            Extents::default()
        }
        (Op::Gather, _) => u.src()[1].extents().into(),
        (Op::Call | Op::Scatter, _) => under().into(),
        // Elementwise: an axis is symbolic if it is in an operand.
        _ => u.src().iter().map(|s| s.extents()).find(|e| !e.is_empty()).map_or(
            Extents::default(),
            |first| {
                let size = |a: usize| u.src().iter().find_map(|s| s.extent(a).cloned());
                (0..first.len()).map(size).collect()
            },
        ),
    }
}

fn make_ranges(u: &UOp) -> RangeSet {
    let mut set = RangeSet::default();
    for s in u.src() {
        set.union(s.ranges());
    }
    match u.op() {
        Op::Range => set.insert(u.range_id()),
        Op::Reduce | Op::Store => u.closed_ranges().iter().for_each(|r| close(&mut set, r)),
        Op::Wmma => u.src()[3..].iter().for_each(|r| close(&mut set, r)),
        Op::EndRange => close(&mut set, u.operand()),
        _ => {}
    }
    set
}

fn close(set: &mut RangeSet, r: &UOp) {
    if r.op() == Op::Range {
        set.remove(r.range_id());
    }
}
