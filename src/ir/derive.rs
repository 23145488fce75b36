//! Facts that follow from structure: shape, integer bounds, open ranges. Each is computed once per
//! node and kept on it. The walks that fill them are iterative, and a fact on every operand makes
//! the next one O(1).

use super::intern::Node;
use super::{Arg, Combine, Fold, Group, Op, RangeSet, UOp};
use crate::dtype::{Const, DType, Scalar};
use crate::shape::{Dims, Extents, ShapeTracker, SymInt, moved_extents};
use smallvec::SmallVec;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Inclusive bounds of an integer or bool value. 128 bits hold every 64-bit value and the sums and
/// products of two.
pub type Bounds = (i128, i128);

/// Facts cached on a node.
#[derive(Default)]
pub(super) struct Facts {
    /// In a box because it has many bytes and the nodes of a kernel have none.
    tensor: OnceLock<Box<TensorFacts>>,
    /// The bits of both, read by the dtype.
    bounds: OnceLock<(u64, u64)>,
    ranges: OnceLock<RangeSet>,
    /// A bit for each rule set that is known to change nothing in the graph under the node.
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
    /// The base of the node's view, if the view was computed.
    pub(super) fn view_of(&self) -> Option<&UOp> {
        self.tensor.get()?.view.get().map(|v| &v.0)
    }
    /// Removes the cached view and returns its base.
    pub(super) fn take_view(&mut self) -> Option<UOp> {
        self.tensor.get_mut()?.view.take().map(|v| v.0)
    }
}

/// Fills a fact for a node after its operands, without recursion.
#[inline]
fn fill<T>(u: &UOp, slot: impl Fn(&Node) -> &OnceLock<T>, make: impl Fn(&UOp) -> T) -> &T {
    match slot(u.node()).get() {
        Some(v) => v,
        None => fill_under(u, slot, make),
    }
}

/// The same for a node that lacks the fact.
#[inline(never)]
fn fill_under<'a, T>(
    u: &'a UOp,
    slot: impl Fn(&Node) -> &OnceLock<T>,
    make: impl Fn(&UOp) -> T,
) -> &'a T {
    let lacks = |s: &UOp| slot(s.node()).get().is_none();
    // Nodes are mostly made of others that have it already: then there is nothing to walk.
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
    /// The shape in the tensor graph; `[]` for what has none.
    pub fn shape(&self) -> &Dims {
        fill(self, |n| &n.facts.tensor().shape, make_shape)
    }
    /// The symbolic size of each axis, or `None` for an axis of constant size; empty if no axis is
    /// symbolic. The shape has the upper bound of each.
    pub fn extents(&self) -> &[Option<SymInt>] {
        fill(self, |n| &n.facts.tensor().extents, make_extents)
    }
    /// The symbolic size of an axis, if it has one.
    pub fn extent(&self, axis: usize) -> Option<&SymInt> {
        self.extents().get(axis)?.as_ref()
    }
    /// For a movement op: the node under all movement ops, and how its elements are seen from here.
    pub fn view(&self) -> Option<&(UOp, ShapeTracker)> {
        let mut chain = Vec::new();
        let mut u = self;
        while let Some(m) = u.arg().movement() {
            if u.node().facts.tensor().view.get().is_some() {
                break;
            }
            chain.push((u, m));
            u = &u.src()[0];
        }
        while let Some((v, m)) = chain.pop() {
            let under = &v.src()[0];
            let (base, seen) = match under.node().facts.tensor().view.get() {
                Some(b) => (b.0.clone(), b.1.clone()),
                None => (under.clone(), ShapeTracker::new(under.shape())),
            };
            let seen =
                seen.apply(m).unwrap_or_else(|e| panic!("a movement op was built unchecked: {e}"));
            let _ = v.node().facts.tensor().view.set((base, seen));
        }
        self.node().facts.tensor().view.get()
    }
    /// The number of elements in the tensor graph.
    pub fn numel(&self) -> usize {
        self.shape().iter().product()
    }
    /// Inclusive bounds of an integer or bool value; for floats everything.
    pub fn bounds(&self) -> Bounds {
        let dtype = self.dtype();
        if dtype.is_float() || dtype == DType::VOID {
            return EVERYTHING;
        }
        // Every integer has 64 bits at most.
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
    /// The least value that an integer can have.
    pub fn vmin(&self) -> i128 {
        self.bounds().0
    }
    /// The greatest value that an integer can have.
    pub fn vmax(&self) -> i128 {
        self.bounds().1
    }
    /// The ranges that the value depends on and that are not closed inside it.
    pub fn ranges(&self) -> &RangeSet {
        fill(self, |n| &n.facts.ranges, make_ranges)
    }
    /// True if a gradient of the node reaches a parameter.
    pub fn requires_grad(&self) -> bool {
        *fill(
            self,
            |n| &n.facts.tensor().requires_grad,
            |u| match u.op() {
                Op::Leaf => true,
                Op::Detach => false,
                Op::Computed | Op::Relu => u.src()[1].requires_grad(),
                Op::Call => u.src()[1..].iter().any(|s| s.requires_grad()),
                // Steps: their derivative is zero.
                Op::Cast | Op::Output if !u.dtype().is_float() => false,
                op if op.is(Group::Comparison) => false,
                _ => u.src().iter().any(|s| s.requires_grad()),
            },
        )
    }
    /// Whether two kernels, or two plans, may round the value differently.
    pub fn rounding(&self) -> super::Rounding {
        *fill(self, |n| &n.facts.tensor().rounding, super::materialize::make_rounding)
    }
    /// True if the graph is known to be a fixpoint of the rule set with this bit.
    #[inline]
    pub(crate) fn is_fixpoint(&self, bit: u32) -> bool {
        self.node().facts.fixpoints.load(Ordering::Relaxed) & bit != 0
    }
    /// Records that the graph is a fixpoint of the rule set. Nodes are immutable, so this stays
    /// true.
    pub(crate) fn mark_fixpoint(&self, bit: u32) {
        self.node().facts.fixpoints.fetch_or(bit, Ordering::Relaxed);
    }
    /// True if the value depends on the range of this number.
    pub fn uses_range(&self, id: u32) -> bool {
        self.ranges().has(id)
    }
}

fn make_shape(u: &UOp) -> Dims {
    match (u.op(), u.arg()) {
        (Op::Buffer, Arg::Storage(s)) => smallvec::smallvec![s.storage.len()],
        (Op::Param, Arg::Param { len, .. }) => smallvec::smallvec![*len],
        (Op::Iota, Arg::Iota { len }) => smallvec::smallvec![*len],
        (_, Arg::Movement(m)) => m
            .apply_shape(u.src()[0].shape())
            .unwrap_or_else(|e| panic!("a movement op was built unchecked: {e}")),
        (Op::Slice, Arg::Slice(part)) => {
            let mut s = u.src()[0].shape().clone();
            s[part.axis] = part.len.max() as usize;
            s
        }
        (Op::Reduce, Arg::Reduce { axes, .. }) => {
            let mut s = u.src()[0].shape().clone();
            for &a in axes {
                s[a] = 1;
            }
            s
        }
        (Op::Cat, Arg::Cat { axis }) => {
            let mut s = u.src()[0].shape().clone();
            if let Some(size) = s.get_mut(*axis) {
                *size = u.src().iter().map(|p| p.shape().get(*axis).copied().unwrap_or(0)).sum();
            }
            s
        }
        (Op::Gather, _) => u.src()[1].shape().clone(),
        (Op::Scatter, _) => u.src()[0].shape().clone(),
        (Op::Sink | Op::Kernel | Op::Loop, _) => Dims::new(),
        (Op::Output, Arg::Output(i)) => match u.src()[0].arg() {
            Arg::Kernel(kernel) => kernel.outputs.get(*i).map(|o| o.1.clone()).unwrap_or_default(),
            Arg::Loop(l) => l.output(*i).map(|o| o.1).unwrap_or_default(),
            _ => Dims::new(),
        },
        (Op::Shards, Arg::Shards { axis, .. }) => {
            let mut s = u.src()[0].shape().clone();
            if let Some(size) = axis.and_then(|a| s.get_mut(a)) {
                *size = u
                    .src()
                    .iter()
                    .map(|p| p.shape().get(axis.unwrap_or(0)).copied().unwrap_or(0))
                    .sum();
            }
            s
        }
        // The inputs of a call have shapes of their own.
        (Op::Call, _) => u.src()[0].shape().clone(),
        // Elementwise: operands have one shape, and rank 0 goes with any.
        _ => u.src().iter().map(|s| s.shape()).find(|s| !s.is_empty()).cloned().unwrap_or_default(),
    }
}

fn make_extents(u: &UOp) -> Extents {
    let under = || u.src()[0].extents();
    // Whole axes are said in one way.
    let tidy = |e: Extents| if e.iter().all(Option::is_none) { Extents::default() } else { e };
    match (u.op(), u.arg()) {
        (Op::Slice, Arg::Slice(part)) => {
            let mut e: Vec<Option<SymInt>> = match under() {
                [] => vec![None; u.src()[0].shape().len()],
                some => some.to_vec(),
            };
            e[part.axis] = part.len.as_number().is_none().then(|| part.len.clone());
            tidy(e.into())
        }
        (_, Arg::Movement(m)) => tidy(
            moved_extents(m, u.src()[0].shape(), under())
                .unwrap_or_else(|e| panic!("a movement op was built unchecked: {e}")),
        ),
        (Op::Reduce, Arg::Reduce { axes, .. }) => {
            let mut e: Extents = under().into();
            axes.iter().for_each(|&a| {
                if let Some(e) = e.get_mut(a) {
                    *e = None
                }
            });
            tidy(e)
        }
        (Op::Sink | Op::Kernel | Op::Loop | Op::Output | Op::Shards | Op::Cat, _) => {
            Extents::default()
        }
        (Op::Gather, _) => u.src()[1].extents().into(),
        (Op::Call | Op::Scatter, _) => under().into(),
        // Elementwise: what one operand lacks is not there.
        _ => u.src().iter().map(|s| s.extents()).find(|e| !e.is_empty()).map_or(
            Extents::default(),
            |first| {
                let lacks = |a: usize| u.src().iter().find_map(|s| s.extent(a).cloned());
                (0..first.len()).map(lacks).collect()
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
        // A reduce, a store and the end of a loop close ranges.
        Op::Reduce => u.src()[1..].iter().for_each(|r| close(&mut set, r)),
        Op::Store => u.src()[2..].iter().for_each(|r| close(&mut set, r)),
        Op::Wmma => u.src()[3..].iter().for_each(|r| close(&mut set, r)),
        Op::EndRange => close(&mut set, &u.src()[0]),
        _ => {}
    }
    set
}

fn close(set: &mut RangeSet, r: &UOp) {
    if r.op() == Op::Range {
        set.remove(r.range_id());
    }
}

const EVERYTHING: Bounds = (i128::MIN, i128::MAX);

/// All values of a dtype.
pub fn dtype_bounds(dtype: DType) -> Bounds {
    match dtype.scalar {
        Scalar::Bool => (0, 1),
        Scalar::Index => (i64::MIN as i128, i64::MAX as i128),
        Scalar::U64 => (0, u64::MAX as i128),
        _ if dtype.is_int() => {
            let v = |c: Const| c.as_i64().expect("integer limits") as i128;
            (v(dtype.min_value()), v(dtype.max_value()))
        }
        _ => EVERYTHING,
    }
}

fn make_bounds(u: &UOp) -> Bounds {
    let dtype = u.dtype();
    if dtype.is_float() || dtype == DType::VOID {
        return EVERYTHING;
    }
    let all = dtype_bounds(dtype);
    // What could wrap can be anything.
    let fit = |b: Bounds| if b.0 >= all.0 && b.1 <= all.1 { b } else { all };
    let src = u.src();
    let of = |i: usize| -> Bounds { src[i].bounds() };
    match u.op() {
        Op::Const => match u.arg() {
            Arg::Const(c) => {
                let v = c.as_i64().expect("an integer dtype has an integer literal");
                let v = if dtype.scalar == Scalar::U64 { v as u64 as i128 } else { v as i128 };
                (v, v)
            }
            _ => all,
        },
        Op::Var => match u.arg() {
            Arg::Var { min, max, .. } | Arg::BoundVar { min, max, .. } => {
                (*min as i128, *max as i128)
            }
            _ => all,
        },
        Op::Special => match u.arg() {
            Arg::Special { extent, .. } => (0, (*extent as i128 - 1).max(0)),
            _ => all,
        },
        Op::Range => (0, (of(0).1 - 1).max(0)),
        Op::Iota => fit((0, (u.numel() as i128 - 1).max(0))),
        Op::Reshape
        | Op::Expand
        | Op::Permute
        | Op::Shrink
        | Op::Flip
        | Op::Slice
        | Op::Contiguous
        | Op::Copy
        | Op::Gep
        | Op::Shuffle => of(0),
        op if op.is(Group::Mark) => of(0),
        // What is outside reads 0.
        Op::Pad | Op::Gather => (of(0).0.min(0), of(0).1.max(0)),
        Op::Cast if src[0].dtype().is_float() => all,
        Op::Cast if dtype.is_bool() => {
            let (lo, hi) = of(0);
            if lo > 0 || hi < 0 {
                (1, 1)
            } else if lo == 0 && hi == 0 {
                (0, 0)
            } else {
                (0, 1)
            }
        }
        Op::Cast => fit(of(0)),
        Op::Add if dtype.is_bool() => (of(0).0.max(of(1).0), of(0).1.max(of(1).1)),
        Op::Add => fit((of(0).0.saturating_add(of(1).0), of(0).1.saturating_add(of(1).1))),
        Op::Mul => {
            let ((a, b), (c, d)) = (of(0), of(1));
            let p = [
                a.saturating_mul(c),
                a.saturating_mul(d),
                b.saturating_mul(c),
                b.saturating_mul(d),
            ];
            fit((p.into_iter().min().unwrap(), p.into_iter().max().unwrap()))
        }
        Op::IDiv | Op::CDiv => div_bounds(u.op() == Op::CDiv, of(0), of(1)).map_or(all, fit),
        Op::Mod => mod_bounds(of(0), of(1)).map_or(all, fit),
        // Of what is not negative both remainders are the same.
        Op::CMod if of(0).0 >= 0 && of(1).0 > 0 => mod_bounds(of(0), of(1)).map_or(all, fit),
        Op::CMod if of(1).0 > 0 => {
            // The sign is that of the dividend.
            let ((a, b), most) = (of(0), of(1).1 - 1);
            (a.max(-most), if b <= 0 { 0 } else { b.min(most) })
        }
        Op::Max => (of(0).0.max(of(1).0), of(0).1.max(of(1).1)),
        Op::Min => (of(0).0.min(of(1).0), of(0).1.min(of(1).1)),
        Op::Lt => lattice(of(0).1 < of(1).0, of(0).0 >= of(1).1, src),
        Op::Eq => lattice(
            of(0).0 == of(0).1 && of(0) == of(1),
            of(0).1 < of(1).0 || of(1).1 < of(0).0,
            src,
        ),
        Op::Ne => lattice(
            of(0).1 < of(1).0 || of(1).1 < of(0).0,
            of(0).0 == of(0).1 && of(0) == of(1),
            src,
        ),
        Op::And if dtype.is_bool() => (of(0).0.min(of(1).0), of(0).1.min(of(1).1)),
        Op::Or if dtype.is_bool() => (of(0).0.max(of(1).0), of(0).1.max(of(1).1)),
        Op::Xor if dtype.is_bool() => {
            if of(0).0 == of(0).1 && of(1).0 == of(1).1 {
                ((of(0).0 ^ of(1).0), (of(0).0 ^ of(1).0))
            } else {
                (0, 1)
            }
        }
        Op::And if of(0).0 >= 0 && of(1).0 >= 0 => (0, of(0).1.min(of(1).1)),
        Op::And if of(1).0 >= 0 => (0, of(1).1),
        Op::And if of(0).0 >= 0 => (0, of(0).1),
        Op::Or | Op::Xor if of(0).0 >= 0 && of(1).0 >= 0 => {
            let top = of(0).1.max(of(1).1) as u128;
            let mask = if top == 0 { 0 } else { u128::MAX >> top.leading_zeros() };
            fit((0, mask as i128))
        }
        Op::Shl if of(1).0 == of(1).1 && (0..63).contains(&of(1).0) => {
            let by = 1i128 << of(1).0;
            fit((of(0).0.saturating_mul(by), of(0).1.saturating_mul(by)))
        }
        Op::Shr if of(1).0 == of(1).1 && (0..dtype.bits() as i128).contains(&of(1).0) => {
            (of(0).0 >> of(1).0, of(0).1 >> of(1).0)
        }
        Op::Where => (of(1).0.min(of(2).0), of(1).1.max(of(2).1)),
        Op::Vectorize | Op::Shards | Op::Cat => src
            .iter()
            .map(|s| s.bounds())
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .unwrap_or(all),
        Op::Scatter
            if matches!(
                u.arg(),
                Arg::Scatter {
                    combine: Combine::Set | Combine::SetDistinct | Combine::Max | Combine::Min,
                    ..
                }
            ) =>
        {
            (of(0).0.min(of(2).0), of(0).1.max(of(2).1))
        }
        Op::Reduce => reduce_bounds(u, of(0), all),
        Op::Scan => scan_bounds(u, of(0), all),
        _ => all,
    }
}

fn lattice(always: bool, never: bool, src: &[UOp]) -> Bounds {
    if src[0].dtype().is_float() {
        (0, 1)
    } else if always {
        (1, 1)
    } else if never {
        (0, 0)
    } else {
        (0, 1)
    }
}

fn reduce_bounds(u: &UOp, body: Bounds, all: Bounds) -> Bounds {
    let Arg::Reduce { fold, axes } = u.arg() else { return all };
    let product = |n: Bounds, by: Bounds| (n.0.saturating_mul(by.0), n.1.saturating_mul(by.1));
    // How many values are folded. The extent of a range may depend on variables.
    let (least, most) = if axes.is_empty() {
        let extent = |r: &UOp| if r.op() == Op::Range { r.src()[0].bounds() } else { EVERYTHING };
        u.src()[1..]
            .iter()
            .map(extent)
            .fold((1, 1), |n, (lo, hi)| product(n, (lo.max(0), hi.max(0))))
    } else {
        let sizes = |&a: &usize| {
            (u.src()[0].extent(a).map(|e| e.min() as i128), u.src()[0].shape()[a] as i128)
        };
        axes.iter()
            .map(sizes)
            .fold((1, 1), |n, (least, size)| product(n, (least.unwrap_or(size), size)))
    };
    match fold {
        Fold::Max | Fold::Min if least > 0 => body,
        Fold::Add if !u.dtype().is_bool() => {
            let sum = (
                body.0.saturating_mul(if body.0 < 0 { most } else { least }),
                body.1.saturating_mul(if body.1 < 0 { least } else { most }),
            );
            if sum.0 >= all.0 && sum.1 <= all.1 { sum } else { all }
        }
        _ => all,
    }
}

/// One element is folded at least, and all along the axis at most.
fn scan_bounds(u: &UOp, body: Bounds, all: Bounds) -> Bounds {
    let Arg::Reduce { fold, axes } = u.arg() else { return all };
    let most = match axes.first() {
        Some(&a) => u.src()[0].shape()[a] as i128,
        None => u
            .src()
            .get(1)
            .map_or(i128::MAX, |r| r.src().first().map_or(i128::MAX, |n| n.bounds().1)),
    };
    match fold {
        Fold::Max | Fold::Min => body,
        Fold::Add if !u.dtype().is_bool() => {
            let sum =
                (body.0.min(body.0.saturating_mul(most)), body.1.max(body.1.saturating_mul(most)));
            if sum.0 >= all.0 && sum.1 <= all.1 { sum } else { all }
        }
        _ => all,
    }
}

/// Floor (or truncating) division; `None` where the divisor can be zero and so the result anything
/// the table says.
fn div_bounds(trunc: bool, (a, b): Bounds, (c, d): Bounds) -> Option<Bounds> {
    if c <= 0 && d >= 0 {
        return None;
    }
    let div = |x: i128, y: i128| {
        if trunc { x / y } else { x.div_euclid(y) - ((y < 0 && x.rem_euclid(y) != 0) as i128) }
    };
    let q = [div(a, c), div(a, d), div(b, c), div(b, d)];
    Some((q.into_iter().min().unwrap(), q.into_iter().max().unwrap()))
}

fn mod_bounds((a, b): Bounds, (c, d): Bounds) -> Option<Bounds> {
    if c > 0 {
        if c == d && a.div_euclid(c) == b.div_euclid(c) {
            return Some((a.rem_euclid(c), b.rem_euclid(c)));
        }
        return Some((0, if a >= 0 { b.min(d - 1) } else { d - 1 }));
    }
    if d < 0 { Some((c + 1, 0)) } else { None }
}
