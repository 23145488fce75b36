//! The node and its handle. Nodes are immutable and hash-consed: equal nodes are the same node, so `==` compares pointers.
//! The table of nodes is weak: a graph that nobody holds is freed, without recursion however deep it is.

use super::{Arg, Op};
use crate::dtype::{Const, DType};
use crate::shape::Movement;
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// Operands of a node. Three fit inline, which is the most an ALU op has.
pub type Src = SmallVec<[UOp; 3]>;

/// What a handle points at. The fields are in this order so that what a walk reads stands together.
#[repr(C)]
pub struct Node {
    op: Op,
    dtype: DType,
    /// Unique for the life of the process; creation order.
    id: u64,
    src: Src,
    /// Structural: made from op, dtype, payload and the operands' own, so it is the same in every process.
    key: u64,
    arg: Arg,
    pub(super) facts: super::derive::Facts,
}

/// A handle on an interned node: eight bytes, cheap to clone, equal exactly when the structure is.
#[derive(Clone)]
pub struct UOp(Arc<Node>);

struct Entry {
    key: u64,
    /// For a node that goes: by then it may have moved, so that its address says nothing.
    id: u64,
    node: Weak<Node>,
}

const SHARDS: usize = 64;
static TABLE: LazyLock<Vec<Mutex<HashTable<Entry>>>> = LazyLock::new(|| (0..SHARDS).map(|_| Mutex::default()).collect());
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

fn shard(key: u64) -> std::sync::MutexGuard<'static, HashTable<Entry>> {
    // The lock is held over no user code, so a poisoned one still guards a sound table. The top seven bits are left to the table, which tells
    // the entries of a group apart by them.
    TABLE[(key >> 48) as usize % SHARDS].lock().unwrap_or_else(|e| e.into_inner())
}

fn mix(h: u64, v: u64) -> u64 {
    let x = (h ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (x >> 32)
}

fn structural_key(op: Op, dtype: DType, src: &[UOp], arg: &Arg) -> u64 {
    let mut h = mix(op as u64, (dtype.scalar as u64) << 32 | dtype.lanes as u64);
    if !matches!(arg, Arg::None) {
        let mut hasher = FxHasher::default();
        arg.hash(&mut hasher);
        h = mix(h, hasher.finish());
    }
    for s in src {
        h = mix(h, s.0.key);
    }
    h
}

impl UOp {
    /// The node with these parts: the one that exists, or a new one.
    pub fn new(op: Op, dtype: DType, src: impl Into<Src>, arg: Arg) -> UOp {
        let src = src.into();
        debug_assert!(op.takes(src.len()), "{op:?} does not take {} operands", src.len());
        let key = structural_key(op, dtype, &src, &arg);
        // An upgraded handle that turns out to be another node must not be dropped under the lock: dropping the last one takes it again.
        let mut strangers: SmallVec<[Arc<Node>; 1]> = SmallVec::new();
        let mut found = None;
        // The entry of a node that is being dropped on another thread, which waits for the lock. It is taken over: were it left, threads that
        // make and drop the same node would fill the table with such entries faster than they go.
        let mut dying = None;
        let mut table = shard(key);
        table.find(key, |e| {
            if e.key != key {
                return false;
            }
            let Some(n) = e.node.upgrade() else {
                dying = Some(e.id);
                return false;
            };
            if n.op == op && n.dtype == dtype && n.src == src && n.arg == arg {
                found = Some(n);
                return true;
            }
            strangers.push(n);
            false
        });
        if let Some(n) = found {
            drop(table);
            return UOp(n);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new(Node { op, dtype, src, arg, key, id, facts: Default::default() });
        let entry = Entry { key, id, node: Arc::downgrade(&node) };
        match dying.and_then(|old| table.find_mut(key, |e| e.id == old)) {
            Some(slot) => *slot = entry,
            None => {
                table.insert_unique(key, entry, |e| e.key);
            }
        }
        drop(table);
        UOp(node)
    }

    /// What the node does.
    #[inline]
    pub fn op(&self) -> Op {
        self.0.op
    }
    /// The dtype of its value.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// Its operands.
    #[inline]
    pub fn src(&self) -> &[UOp] {
        &self.0.src
    }
    /// Its payload.
    #[inline]
    pub fn arg(&self) -> &Arg {
        &self.0.arg
    }
    /// A number that is unique while the process lives; smaller for older nodes.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.id
    }
    /// A hash of the structure, the same in every process.
    #[inline]
    pub fn key(&self) -> u64 {
        self.0.key
    }
    pub(super) fn node(&self) -> &Node {
        &self.0
    }

    /// The same node with other operands; itself if they are the same.
    pub fn with_src(&self, src: impl Into<Src>) -> UOp {
        let src = src.into();
        if src == self.0.src { self.clone() } else { UOp::new(self.op(), self.dtype(), src, self.arg().clone()) }
    }
    /// The same node with another payload.
    pub fn with_arg(&self, arg: Arg) -> UOp {
        UOp::new(self.op(), self.dtype(), self.0.src.clone(), arg)
    }

    /// How many nodes are alive in the process.
    pub fn live() -> usize {
        TABLE.iter().map(|t| t.lock().unwrap_or_else(|e| e.into_inner()).len()).sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        {
            let mut table = shard(self.key);
            if let Ok(e) = table.find_entry(self.key, |e| e.id == self.id) {
                e.remove();
            }
        }
        // Operands that only this node held are taken apart here, one after the other, instead of by nested drops.
        let mut stack = std::mem::take(&mut self.src);
        while let Some(u) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(u.0) {
                stack.extend(std::mem::take(&mut node.src));
            }
        }
    }
}

impl PartialEq for UOp {
    #[inline]
    fn eq(&self, other: &UOp) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for UOp {}
impl Hash for UOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.id)
    }
}

/// What may stand for an operand beside a node: a node, or a number that takes the node's dtype.
pub trait Like {
    /// As a node of the dtype of `u`.
    fn like(self, u: &UOp) -> UOp;
}
impl Like for UOp {
    fn like(self, _: &UOp) -> UOp {
        self
    }
}
impl Like for &UOp {
    fn like(self, _: &UOp) -> UOp {
        self.clone()
    }
}
macro_rules! like {
    ($($t:ty),*) => { $(impl Like for $t { fn like(self, u: &UOp) -> UOp { u.const_like(self) } })* };
}
like!(i32, i64, usize, f32, f64, bool, Const);

impl UOp {
    /// A literal. Vectors of one repeated value are literals too.
    pub fn constant(value: impl Into<Const>, dtype: DType) -> UOp {
        let value = value.into();
        let from = match value {
            Const::Bool(_) => DType::BOOL,
            Const::Int(_) => DType::I64,
            Const::Float(_) => DType::F64,
        };
        // An integer literal of an unsigned dtype is its bit pattern, so it passes through; everything else converts.
        let value = if from == DType::I64 && dtype.is_int() { value.normalize(dtype.scalar()) } else { value.cast(from, dtype.scalar()) };
        UOp::new(Op::Const, dtype, Src::new(), Arg::Const(value))
    }
    /// An integer of index arithmetic.
    pub fn int(value: i64) -> UOp {
        UOp::constant(value, DType::INDEX)
    }
    /// A bool literal.
    pub fn truth(value: bool) -> UOp {
        UOp::constant(value, DType::BOOL)
    }
    /// A literal of this node's dtype.
    pub fn const_like(&self, value: impl Into<Const>) -> UOp {
        UOp::constant(value, self.dtype())
    }
    /// The literal's value.
    #[inline]
    pub fn as_const(&self) -> Option<Const> {
        match self.arg() {
            Arg::Const(c) if self.op() == Op::Const => Some(*c),
            _ => None,
        }
    }
    /// The value of an integer or bool literal.
    #[inline]
    pub fn as_int(&self) -> Option<i64> {
        match self.arg() {
            Arg::Const(Const::Int(v)) => Some(*v),
            Arg::Const(Const::Bool(b)) => Some(*b as i64),
            _ => None,
        }
    }
    /// Is it this integer (or bool) literal?
    #[inline]
    pub fn is_int(&self, v: i64) -> bool {
        self.as_int() == Some(v)
    }

    /// An elementwise node of one operand.
    pub fn unary(&self, op: Op) -> UOp {
        UOp::new(op, self.dtype(), [self.clone()].to_src(), Arg::None)
    }
    /// An elementwise node of two operands; comparisons give bools.
    pub fn binary(&self, op: Op, other: impl Like) -> UOp {
        let other = other.like(self);
        let dtype = if op.is(super::Group::Comparison) { DType::BOOL.vec(self.dtype().lanes) } else { self.dtype() };
        UOp::new(op, dtype, [self.clone(), other].to_src(), Arg::None)
    }
    /// `self ? x : y`.
    pub fn select(&self, x: impl Like, y: &UOp) -> UOp {
        let x = x.like(y);
        UOp::new(Op::Where, y.dtype(), [self.clone(), x, y.clone()].to_src(), Arg::None)
    }
    /// self·y+z with one rounding.
    pub fn fma(&self, y: &UOp, z: &UOp) -> UOp {
        UOp::new(Op::Fma, self.dtype(), [self.clone(), y.clone(), z.clone()].to_src(), Arg::None)
    }
    /// Converted to a dtype; itself if it has it. The number of lanes stays.
    pub fn cast(&self, dtype: DType) -> UOp {
        let dtype = dtype.scalar().vec(self.dtype().lanes);
        if dtype == self.dtype() { self.clone() } else { UOp::new(Op::Cast, dtype, [self.clone()].to_src(), Arg::None) }
    }
    /// The same bits as another dtype.
    pub fn bitcast(&self, dtype: DType) -> UOp {
        let dtype = dtype.scalar().vec(self.dtype().lanes);
        if dtype == self.dtype() { self.clone() } else { UOp::new(Op::Bitcast, dtype, [self.clone()].to_src(), Arg::None) }
    }
    /// `self < other`.
    pub fn lt(&self, other: impl Like) -> UOp {
        self.binary(Op::Lt, other)
    }
    /// `self >= other` for integers: `other < self + 1` cannot overflow when written as a negation.
    pub fn ge(&self, other: impl Like) -> UOp {
        self.lt(other).not()
    }
    /// `self == other`.
    pub fn equals(&self, other: impl Like) -> UOp {
        self.binary(Op::Eq, other)
    }
    /// `self != other`.
    pub fn differs(&self, other: impl Like) -> UOp {
        self.binary(Op::Ne, other)
    }
    /// Bitwise, or for bools logical, negation.
    pub fn not(&self) -> UOp {
        if self.dtype().is_bool() { self.binary(Op::Xor, true) } else { self.binary(Op::Xor, -1i64) }
    }
    /// Bitwise or logical and.
    pub fn and(&self, other: impl Like) -> UOp {
        self.binary(Op::And, other)
    }
    /// Bitwise or logical or.
    pub fn or(&self, other: impl Like) -> UOp {
        self.binary(Op::Or, other)
    }
    /// A movement op, whose payload is known to fit.
    pub fn moved(&self, m: Movement) -> UOp {
        let op = match m {
            Movement::Reshape(_) => Op::Reshape,
            Movement::Expand(_) => Op::Expand,
            Movement::Permute(_) => Op::Permute,
            Movement::Pad(_) => Op::Pad,
            Movement::Shrink(_) => Op::Shrink,
            Movement::Flip(_) => Op::Flip,
        };
        UOp::new(op, self.dtype(), [self.clone()].to_src(), Arg::Movement(m))
    }
    /// A fold over axes of the tensor graph, ascending; they stay with size one.
    pub fn reduced(&self, fold: super::Fold, axes: impl IntoIterator<Item = usize>) -> UOp {
        let axes: SmallVec<[usize; 4]> = axes.into_iter().collect();
        if axes.is_empty() {
            return self.clone();
        }
        UOp::new(Op::Reduce, self.dtype(), [self.clone()].to_src(), Arg::Reduce { fold, axes })
    }
    /// A loop axis of `extent` steps.
    pub fn range(extent: impl Like, id: u32, kind: super::AxisKind) -> UOp {
        let extent = extent.like(&UOp::int(0));
        UOp::new(Op::Range, extent.dtype(), [extent].to_src(), Arg::Range { id, kind })
    }
    /// Effects gathered.
    pub fn sink(effects: impl Into<Src>) -> UOp {
        UOp::new(Op::Sink, DType::VOID, effects, Arg::None)
    }
    /// One value in every lane.
    pub fn splat(&self, lanes: u16) -> UOp {
        if lanes == 1 {
            return self.clone();
        }
        match self.as_const() {
            Some(c) => UOp::new(Op::Const, self.dtype().vec(lanes), Src::new(), Arg::Const(c)),
            None => UOp::new(Op::Vectorize, self.dtype().vec(lanes), smallvec::smallvec![self.clone(); lanes as usize], Arg::None),
        }
    }
    /// One lane of a vector; a scalar is its own lane.
    pub fn lane(&self, i: u16) -> UOp {
        if self.dtype().lanes == 1 {
            return self.clone();
        }
        match self.op() {
            Op::Const => UOp::new(Op::Const, self.dtype().scalar(), Src::new(), self.arg().clone()),
            Op::Vectorize => self.src()[i as usize].clone(),
            _ => UOp::new(Op::Gep, self.dtype().scalar(), [self.clone()].to_src(), Arg::Lanes(smallvec::smallvec![i])),
        }
    }
    /// The range's number.
    pub fn range_id(&self) -> u32 {
        match self.arg() {
            Arg::Range { id, .. } => *id,
            _ => panic!("not a range: {self:?}"),
        }
    }
    /// The range's kind.
    pub fn range_kind(&self) -> super::AxisKind {
        match self.arg() {
            Arg::Range { kind, .. } => *kind,
            _ => panic!("not a range: {self:?}"),
        }
    }
}

/// Short arrays as operand lists.
pub trait ToSrc {
    /// As operands.
    fn to_src(self) -> Src;
}
impl<const N: usize> ToSrc for [UOp; N] {
    fn to_src(self) -> Src {
        let mut src = Src::new();
        self.into_iter().for_each(|u| src.push(u));
        src
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl<R: Like> std::ops::$trait<R> for &UOp {
            type Output = UOp;
            fn $method(self, other: R) -> UOp { self.binary(Op::$op, other) }
        }
        impl<R: Like> std::ops::$trait<R> for UOp {
            type Output = UOp;
            fn $method(self, other: R) -> UOp { self.binary(Op::$op, other) }
        }
    )* };
}
operators!(Add add Add, Mul mul Mul, Rem rem Mod, Shl shl Shl, Shr shr Shr, BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor);

impl<R: Like> std::ops::Div<R> for &UOp {
    type Output = UOp;
    /// Float division for floats, floor division for integers.
    fn div(self, other: R) -> UOp {
        self.binary(if self.dtype().is_float() { Op::Div } else { Op::IDiv }, other)
    }
}
impl<R: Like> std::ops::Div<R> for UOp {
    type Output = UOp;
    fn div(self, other: R) -> UOp {
        &self / other
    }
}
impl<R: Like> std::ops::Sub<R> for &UOp {
    type Output = UOp;
    /// There is no subtraction in the IR: `x - y` is `x + y * -1`, which rounds and wraps the same.
    fn sub(self, other: R) -> UOp {
        let other = other.like(self);
        self.binary(Op::Add, -&other)
    }
}
impl<R: Like> std::ops::Sub<R> for UOp {
    type Output = UOp;
    fn sub(self, other: R) -> UOp {
        &self - other
    }
}
impl std::ops::Neg for &UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        if self.dtype().is_float() { self.binary(Op::Mul, -1.0) } else { self.binary(Op::Mul, -1i64) }
    }
}
impl std::ops::Neg for UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        -&self
    }
}
