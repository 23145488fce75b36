//! The table of ops, from which names, arities, groups, dtypes, costs, typed views and
//! documentation of ops are derived.

use super::{DTypes, Group, OpSet};
use crate::dtype::DType;

/// Declares ops. A row is
///
/// ```text
/// Name(x, place: View; ?optional; rest) as_name expect_name
///     with Pattern => { field: Type = expr } [Group …] on=Floats cost=12 reuse=16 ulp=2;
/// ```
///
/// `x` is a required operand, `place: View` one that is itself a node of the op `View`, `?optional`
/// an operand with a value that may be missing, `rest` any number of further operands. The methods
/// `as_name` and `expect_name` of `UOp` return the typed view, and `typed::Name::build` is the
/// constructor. The fields in braces are read from the payload, which the pattern takes apart.
///
/// `on` has the dtypes that the op takes ([`Op::on`]); without it, all.
///
/// The numbers are those of [`Op::cost`], [`Op::reuse_cost`] and [`Op::ulp`]. There are two costs,
/// because the scheduler compares an op with memory traffic and the opt REUSE with shared memory of
/// a kernel. They were tuned separately; one number for both would change kernels.
macro_rules! ops {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident($($arg:ident $(: $view:ident)?),* $(; ?$opt:ident)? $(; $rest:ident)?)
        $as:ident $expect:ident
        $(with $payload:pat => { $($field:ident: $ty:ty = $value:expr),* })?
        $([$($group:ident)*])? $(on=$on:ident)?
        $(cost=$cost:literal)? $(reuse=$reuse:literal)? $(ulp=$ulp:literal)?;
    )*) => {
        /// The operation of a node. The table in `ir/op.rs` is the only place where ops are
        /// declared.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($(#[doc = $doc])* $name),* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$name),*];
            /// Returns the name in text IR.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$name => stringify!($name)),* }
            }
            /// Returns the number of operands; for variadic ops the smallest number.
            pub const fn arity(self) -> usize {
                match self { $(Op::$name => 0 $(+ { let _ = stringify!($arg); 1 })*),* }
            }
            /// Returns true if the op takes operands beyond its arity.
            pub const fn variadic(self) -> bool {
                match self {
                    $(Op::$name => false $(|| { let _ = stringify!($opt); true })?
                        $(|| { let _ = stringify!($rest); true })?),*
                }
            }
            /// Returns the names of the operands, for documents and messages.
            pub const fn operands(self) -> &'static [&'static str] {
                match self {
                    $(Op::$name => &[
                        $(stringify!($arg),)* $(concat!(stringify!($opt), "?"),)?
                        $(concat!(stringify!($rest), " …"))?
                    ]),*
                }
            }
            /// Returns true if `n` operands are valid in a pattern; `usize::MAX` means any number.
            pub const fn takes(self, n: usize) -> bool {
                n == usize::MAX || n == self.arity() || (self.variadic() && n >= self.arity())
            }
            /// Returns the groups that the op is a member of.
            pub const fn groups(self) -> &'static [Group] {
                match self { $(Op::$name => &[$($(Group::$group),*)?]),* }
            }
            /// Returns the dtypes of the operands that the op computes on. Those of a `Where` are
            /// its two values; those of an op without operands are the dtypes of its value.
            #[allow(unreachable_code)]
            pub const fn on(self) -> DTypes {
                match self { $(Op::$name => { $(return DTypes::$on;)? DTypes::Any }),* }
            }
            /// Returns the cost of one evaluation in the scheduler's cost model, in simple
            /// instructions.
            #[allow(unreachable_code)]
            pub const fn cost(self) -> u32 {
                match self { $(Op::$name => { $(return $cost;)? 1 }),* }
            }
            /// Returns the cost of one evaluation where the opt REUSE decides what to compute once,
            /// in simple instructions.
            #[allow(unreachable_code)]
            pub const fn reuse_cost(self) -> u32 {
                match self { $(Op::$name => { $(return $reuse;)? Op::$name.is_alu() as u32 }),* }
            }
            /// Returns the largest error in `f32` that `docs/semantics.md` allows, in ulp; 0 if the
            /// op is exact or correctly rounded.
            #[allow(unreachable_code)]
            pub const fn ulp(self) -> u32 {
                match self { $(Op::$name => { $(return $ulp;)? 0 }),* }
            }
            /// Returns the op's documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Op::$name => concat!($($doc, "\n"),*)),* }
            }
            /// Returns the op of this name.
            pub fn from_name(name: &str) -> Option<Op> {
                match name { $(stringify!($name) => Some(Op::$name),)* _ => None }
            }
        }

        /// Typed views: the operands and the payload of a node by name, borrowed from it.
        ///
        /// ```
        /// use picograd::dtype::DType;
        /// use picograd::compiler::ir::typed::{Index, Load};
        /// use picograd::compiler::ir::UOp;
        ///
        /// let input = UOp::define_global(0, 16, DType::F32);
        /// let load = input.at(3).load();
        /// let Some(Load { place: Index { buffer, index, mask, .. }, alt, .. }) = load.as_load()
        /// else { unreachable!() };
        /// assert_eq!((buffer, index.as_int()), (&input, Some(3)));
        /// assert!(mask.is_none() && alt.is_none());
        /// ```
        pub mod typed {
            use super::Op;
            use crate::ir::{
                self, Arg, AxisKind, Combine, Custom, DeviceName, Fold, Gradient, SpecialKind,
                StorageRef, TensorCore, UOp,
            };
            use crate::{dtype, shape};
            use std::sync::Arc;

            $(
                #[doc = concat!("The operands and the payload of a `", stringify!($name), "`.")]
                #[derive(Clone, Copy)]
                pub struct $name<'a> {
                    /// The node itself.
                    pub node: &'a UOp,
                    $(
                        #[doc = concat!("The operand `", stringify!($arg), "`.")]
                        pub $arg: typed!(@type 'a $($view)?),
                    )*
                    $(
                        #[doc = concat!("The operand `", stringify!($opt), "`, if there is one.")]
                        pub $opt: Option<&'a UOp>,
                    )?
                    $(
                        #[doc = concat!("The operands `", stringify!($rest), "`.")]
                        pub $rest: &'a [UOp],
                    )?
                    $($(
                        #[doc = concat!("`", stringify!($field), "` of the payload.")]
                        pub $field: $ty,
                    )*)?
                }

                impl<'a> $name<'a> {
                    #[doc = concat!("Returns the `", stringify!($name), "` of these operands.")]
                    pub fn build(
                        dtype: dtype::DType,
                        arg: Arg,
                        $($arg: UOp,)*
                        $($opt: Option<UOp>,)?
                        $($rest: impl IntoIterator<Item = UOp>,)?
                    ) -> UOp {
                        #[allow(unused_mut, reason = "ops with a fixed number of operands")]
                        let mut src: ir::Src = smallvec::smallvec![$($arg),*];
                        $(src.extend($opt);)?
                        $(src.extend($rest);)?
                        UOp::new(Op::$name, dtype, src, arg)
                    }
                    /// Returns the view of a node of this op; none of a node of another op, or of
                    /// one whose operands or payload are not those of the op.
                    #[inline]
                    #[allow(clippy::redundant_at_rest_pattern, reason = "ops without operands")]
                    pub fn of(node: &'a UOp) -> Option<$name<'a>> {
                        let (Op::$name, [$($arg,)* others @ ..]) = (node.op(), node.src()) else {
                            return None;
                        };
                        $(let ($opt, others) = super::optional(others);)?
                        $(let $payload = node.arg() else { return None };)?
                        let _ = others;
                        Some($name {
                            node,
                            $($arg: typed!(@read $arg $($view)?),)*
                            $($opt,)?
                            $($rest: others,)?
                            $($($field: $value,)*)?
                        })
                    }
                }
            )*
        }

        /// Typed views of nodes.
        impl super::UOp {
            $(
                #[doc = concat!("The node as a `", stringify!($name), "`; none if it is not one.")]
                #[inline]
                pub fn $as(&self) -> Option<typed::$name<'_>> {
                    typed::$name::of(self)
                }
                #[doc = concat!("The node, which is a `", stringify!($name), "`.")]
                ///
                /// # Panics
                /// The node has another op, or operands or a payload that are not those of the op.
                #[inline]
                #[track_caller]
                pub fn $expect(&self) -> typed::$name<'_> {
                    match typed::$name::of(self) {
                        Some(view) => view,
                        None => super::uop::unexpected(self, Op::$name),
                    }
                }
            )*
        }

        /// Returns the op and the operands that its view shows, for the test of the views.
        #[cfg(test)]
        pub(super) fn viewed(op: Op, u: &super::UOp) -> Option<Vec<super::UOp>> {
            match op {
                $(Op::$name => typed::$name::of(u).map(|view| {
                    #[allow(unused_mut)]
                    let mut operands: Vec<super::UOp> =
                        vec![$(typed!(@node view.$arg, $($view)?).clone()),*];
                    $(operands.extend(view.$opt.cloned());)?
                    $(operands.extend(view.$rest.iter().cloned());)?
                    assert_eq!(view.node, u);
                    operands
                }),)*
            }
        }
    };
}

/// The parts of a typed view that depend on whether an operand is a typed view itself.
macro_rules! typed {
    (@type $a:lifetime) => { &$a UOp };
    (@type $a:lifetime $view:ident) => { $view<$a> };
    (@read $arg:ident) => { $arg };
    (@read $arg:ident $view:ident) => { $view::of($arg)? };
    (@node $arg:expr,) => { $arg };
    (@node $arg:expr, $view:ident) => { $arg.node };
}

/// Splits an optional operand from the others, which only order and have no value.
#[inline]
fn optional(operands: &[super::UOp]) -> (Option<&super::UOp>, &[super::UOp]) {
    match operands {
        [first, others @ ..] if first.dtype() != DType::VOID => (Some(first), others),
        _ => (None, operands),
    }
}

ops! {
    /// A literal. The payload is its value; in the tensor graph its shape is `[]`.
    Const()                             as_literal expect_literal
        with Arg::Const(value) => { value: dtype::Const = *value } cost=0;
    /// Storage on a device: a realized tensor, one-dimensional.
    Buffer()                            as_buffer expect_buffer
        with Arg::Storage(storage) => { storage: &'a StorageRef = storage };
    /// The i-th input of an abstracted tensor graph; it replaces a buffer in a schedule cache key.
    Param()                             as_param expect_param
        with Arg::Param { slot, len, device } =>
            { slot: usize = *slot, len: usize = *len, device: &'a DeviceName = device };
    /// A named integer with bounds, bound to a value at run time.
    Var()                               as_var expect_var
        with (Arg::Var { name, min, max } | Arg::BoundVar { name, min, max, .. }) =>
            { name: &'a Arc<str> = name, min: i64 = *min, max: i64 = *max } on=Ints cost=0;
    /// `0, 1, … n-1` as a one-dimensional tensor.
    Iota()                              as_iota expect_iota
        with Arg::Iota { len } => { len: usize = *len } on=Numbers cost=0;

    /// The same elements in row-major order, under another shape.
    Reshape(x)                          as_reshape expect_reshape
        with Arg::Movement(m) => { movement: &'a shape::Movement = m } [Movement] cost=0;
    /// Axes of size one, repeated.
    Expand(x)                           as_expand expect_expand
        with Arg::Movement(m) => { movement: &'a shape::Movement = m } [Movement] cost=0;
    /// Axes in another order.
    Permute(x)                          as_permute expect_permute
        with Arg::Movement(m) => { movement: &'a shape::Movement = m } [Movement] cost=0;
    /// Zeros added before and after each axis.
    Pad(x)                              as_pad expect_pad
        with Arg::Movement(m) => { movement: &'a shape::Movement = m } [Movement] cost=0;
    /// An interval of each axis, with constant bounds.
    Shrink(x)                           as_shrink expect_shrink
        with Arg::Movement(m) => { movement: &'a shape::Movement = m } [Movement] cost=0;
    /// Axes reversed.
    Flip(x)                             as_flip expect_flip
        with Arg::Movement(m) => { movement: &'a shape::Movement = m } [Movement] cost=0;

    /// An interval of one axis; its start and length, in the payload, are expressions of variables.
    /// The axis has the upper bound of the length; the runtime size is known when the kernel runs.
    Slice(x)                            as_slice expect_slice
        with Arg::Slice(part) => { part: &'a ir::Slice = part } cost=0;

    /// A reduction by the payload's operation. In the tensor graph it is over axes, which remain
    /// with size one; in a kernel it is over the operands `ranges`, which in an unrolled reduction
    /// are followed by further values to combine.
    Reduce(body; ranges)                as_reduce expect_reduce
        with Arg::Reduce { fold, axes } => { fold: Fold = *fold, axes: &'a [usize] = axes };
    /// An inclusive scan by the payload's operation: each element combines all elements up to it.
    /// In the tensor graph along one axis; in a kernel along a range of the kind `Ordered`, which
    /// the enclosing store closes.
    Scan(body; ranges)                  as_scan expect_scan
        with Arg::Reduce { fold, axes } => { fold: Fold = *fold, axes: &'a [usize] = axes };
    /// Tensors concatenated along the payload's axis. Their shapes agree in all other axes.
    Cat(first; others)                  as_cat expect_cat
        with Arg::Cat { axis } => { axis: usize = *axis };
    /// The elements of `x` at indices along the payload's axis: `x[…, index[…], …]`. The shapes of
    /// the operands agree in all other axes, and the result has the shape of the index. An index
    /// out of range reads 0.
    Gather(x, index)                    as_gather expect_gather
        with Arg::Gather { axis } => { axis: usize = *axis };
    /// `base` with values written or combined at indices along the payload's axis, in ascending
    /// order of their position along it: `base[…, index[…], …] ⊕= value[…]`. An index out of range
    /// writes nothing; of several values set at one index the last remains.
    Scatter(base, index, value)         as_scatter expect_scatter
        with Arg::Scatter { combine, axis } => { combine: Combine = *combine, axis: usize = *axis };
    /// The value stored in row-major order, which ends fusion.
    Contiguous(x)                       as_contiguous expect_contiguous;
    /// The value moved to the device in the payload, after the values in `after` are computed.
    Copy(x; after)                      as_copy expect_copy
        with Arg::Device(device) => { device: &'a DeviceName = device };
    /// One value on several devices: sharded along an axis, or replicated. The payload names the
    /// devices in the order of the operands.
    Shards(first; others)               as_shards expect_shards
        with Arg::Shards { devices, axis } =>
            { devices: &'a DeviceName = devices, axis: Option<usize> = *axis };
    /// A custom kernel, the payload, on the inputs. Its value is read by `Output`.
    Kernel(; inputs)                    as_kernel expect_kernel
        with Arg::Kernel(kernel) => { kernel: &'a Arc<Custom> = kernel };
    /// Iterations of one body, the payload. The operands are the initial carries, the stacked
    /// elements and the captures. Its value is read by `Output`.
    Loop(; inputs)                      as_loop expect_loop
        with Arg::Loop(body) => { body: &'a Arc<ir::Loop> = body };
    /// An output of a `Kernel` or a `Loop`; the payload is its index.
    Output(of)                          as_output expect_output
        with Arg::Output(number) => { number: usize = *number };
    /// The value, without a gradient.
    Detach(x)  as_detach  expect_detach  [Unary Mark];
    /// A parameter: gradients are accumulated here and not propagated further. The payload is its
    /// id.
    Leaf(x)                             as_leaf expect_leaf
        with Arg::Leaf(number) => { number: u64 = *number } [Mark] on=Floats;
    /// The value; its gradient is stored in row-major order.
    ContiguousBackward(x) as_contiguous_backward expect_contiguous_backward [Mark];
    /// A realized value, and the graph that computed it, which gradients follow.
    Computed(x, origin)     as_computed expect_computed      [Mark];
    /// A value computed from the inputs by a function with a custom gradient, the payload.
    Call(x; inputs)                     as_call expect_call
        with Arg::Gradient(gradient) => { gradient: &'a Gradient = gradient } [Mark] on=Floats;

    /// The value converted to the node's dtype, as `docs/semantics.md` defines.
    Cast(x)                             as_cast expect_cast;
    /// The bits reinterpreted as another dtype of the same width.
    Bitcast(x)                          as_bitcast expect_bitcast;
    /// Square root, correctly rounded.
    Sqrt(x)    as_sqrt    expect_sqrt    [Unary] on=Floats cost=4 reuse=4;
    /// Rounding toward zero to an integral value.
    Trunc(x)   as_trunc   expect_trunc   [Unary] on=Floats;
    /// The reciprocal square root 1/√x.
    Rsqrt(x)   as_rsqrt   expect_rsqrt   [Unary Transcendental] on=Floats cost=12 reuse=16 ulp=2;
    /// The exponential eˣ.
    Exp(x)     as_exp     expect_exp     [Unary Transcendental] on=Floats cost=12 reuse=16 ulp=2;
    /// The power 2ˣ.
    Exp2(x)    as_exp2    expect_exp2    [Unary Transcendental] on=Floats cost=12 reuse=16 ulp=2;
    /// Natural logarithm.
    Log(x)     as_log     expect_log     [Unary Transcendental] on=Floats cost=12 reuse=16 ulp=2;
    /// Base-2 logarithm.
    Log2(x)    as_log2    expect_log2    [Unary Transcendental] on=Floats cost=12 reuse=16 ulp=2;
    /// The sine.
    Sin(x)     as_sin     expect_sin     [Unary Transcendental] on=Floats cost=60 reuse=16 ulp=2;
    /// The cosine.
    Cos(x)     as_cos     expect_cos     [Unary Transcendental] on=Floats cost=60 reuse=16 ulp=2;
    /// The tangent.
    Tan(x)     as_tan     expect_tan     [Unary Transcendental] on=Floats cost=60 reuse=16 ulp=4;
    /// Hyperbolic tangent.
    Tanh(x)    as_tanh    expect_tanh    [Unary Transcendental] on=Floats cost=20 reuse=16 ulp=2;
    /// The sigmoid 1/(1+e⁻ˣ).
    Sigmoid(x) as_sigmoid expect_sigmoid [Unary Transcendental] on=Floats cost=20 reuse=16 ulp=2;
    /// Error function.
    Erf(x)     as_erf     expect_erf     [Unary Transcendental] on=Floats cost=20 reuse=16 ulp=4;

    /// Sum; integers wrap; logical or for bools.
    Add(x, y)   as_add     expect_add     [Binary Commutative];
    /// Product; integers wrap; logical and for bools.
    Mul(x, y)   as_mul     expect_mul     [Binary Commutative];
    /// Float division, correctly rounded.
    Div(x, y)   as_div     expect_div     [Binary] on=Floats cost=4 reuse=4;
    /// Integer division rounded toward minus infinity; division by zero gives zero.
    IDiv(x, y)  as_idiv    expect_idiv    [Binary] on=Ints cost=10;
    /// Remainder of floor division, with the divisor's sign; a zero divisor gives zero for integers
    /// and NaN for floats.
    Mod(x, y)   as_mod     expect_mod     [Binary] on=Numbers cost=10 reuse=4;
    /// Machine division toward zero, of operands proven safe. Only after lowering.
    CDiv(x, y)  as_cdiv    expect_cdiv    [Binary] on=Ints;
    /// Machine remainder, of operands proven safe. Only after lowering.
    CMod(x, y)  as_cmod    expect_cmod    [Binary] on=Ints;
    /// Maximum; NaN propagates; a zero result is +0.
    Max(x, y)   as_max     expect_max     [Binary Commutative];
    /// Minimum; NaN propagates; a zero result is +0.
    Min(x, y)   as_min     expect_min     [Binary Commutative];
    /// x to the power y.
    Pow(x, y)   as_pow     expect_pow     [Binary Transcendental] on=Numbers cost=60 reuse=40 ulp=4;
    /// Left shift; a shift by the width or more gives zero.
    Shl(x, y)   as_shl     expect_shl     [Binary] on=Ints;
    /// Right shift, arithmetic for signed integers; a shift by the width or more gives the sign.
    Shr(x, y)   as_shr     expect_shr     [Binary] on=Ints;
    /// Bitwise and; logical for bools.
    And(x, y)   as_and     expect_and     [Binary Commutative] on=Bits;
    /// Bitwise or; logical for bools.
    Or(x, y)    as_or      expect_or      [Binary Commutative] on=Bits;
    /// Bitwise exclusive or; inequality for bools.
    Xor(x, y)   as_xor     expect_xor     [Binary Commutative] on=Bits;
    /// Less than; false with NaN.
    Lt(x, y)    as_lt      expect_lt      [Binary Comparison];
    /// Equal; false with NaN.
    Eq(x, y)    as_eq      expect_eq      [Binary Comparison Commutative];
    /// Not equal; true with NaN.
    Ne(x, y)    as_ne      expect_ne      [Binary Comparison Commutative];
    /// `cond ? x : y`.
    Where(cond, x, y)  as_where   expect_where   [Ternary];
    /// x·y+z with one rounding.
    Fma(x, y, z)       as_fma     expect_fma     [Ternary] on=Floats;

    /// A kernel argument; the payload is its slot and its number of elements.
    DefineGlobal()                      as_define_global expect_define_global
        with Arg::Global { slot, len } => { slot: usize = *slot, len: usize = *len };
    /// Shared memory of a workgroup.
    DefineShared()                      as_define_shared expect_define_shared
        with Arg::Shared { id, len } => { id: u32 = *id, len: usize = *len };
    /// An accumulator. It is set to its initial value each time its definition is executed. As an
    /// operand: its current value.
    DefineAcc(init; ranges)             as_define_acc expect_define_acc
        with Arg::Acc(number) => { number: u32 = *number };
    /// A loop counter from 0 to `extent - 1`, or an axis of another kind.
    Range(extent)                       as_range expect_range
        with Arg::Range { id, kind, .. } => { id: u32 = *id, kind: AxisKind = *kind } on=Ints;
    /// The end of the loop of a range.
    EndRange(range: Range)              as_end_range expect_end_range [Effect];
    /// A coordinate of the launch grid.
    Special()                           as_special expect_special
        with Arg::Special { kind, dim, extent } =>
            { kind: SpecialKind = *kind, dim: u8 = *dim, extent: usize = *extent } on=Ints;
    /// An element of a buffer: `buffer[index]`, accessed only where `mask` is true. The mask of a
    /// vector access may have a bool per lane.
    Index(buffer, index; ?mask)         as_index expect_index;
    /// Reads an element, or one per lane of the node; where the mask is false, the value is `alt`.
    /// The operands `after` are executed first.
    Load(place: Index; ?alt; after)     as_load expect_load;
    /// Writes an element, or one per lane, in each iteration of the ranges, which it closes.
    Store(place: Index, value; ranges)  as_store expect_store [Effect];
    /// Assigns to an accumulator. As an operand: the new value.
    Assign(acc, value)                  as_assign expect_assign;
    /// Opens a conditional region.
    If(cond)                            as_if expect_if [Effect];
    /// Closes a conditional region.
    EndIf(open)                         as_end_if expect_end_if [Effect];
    /// A barrier of the workgroup, after the operands.
    Barrier(; before)                   as_barrier expect_barrier [Effect Convergent];
    /// A vector from scalars, or the concatenation of vectors. `Gep` of the concatenation of two
    /// vectors is a two-source shuffle.
    Vectorize(; lanes)                  as_vectorize expect_vectorize;
    /// Lanes of a vector.
    Gep(x)                              as_gep expect_gep
        with Arg::Lanes(lanes) => { lanes: &'a [u16] = lanes };
    /// A·B + C by the tensor core in the payload. The threads of a warp hold the fragments of the
    /// three matrices in their lanes. Before the pass `write_fragments`, `a` and `b` are single
    /// elements, and `ranges` are the ranges of the registers along the rows of A and along k.
    Wmma(a, b, c; ranges)               as_wmma expect_wmma
        with Arg::Wmma { core, lanes } =>
            { core: &'static TensorCore = core, lanes: [u32; 2] = *lanes } [Convergent];
    /// A warp shuffle: the value of the thread whose lane index differs in the bits of the payload.
    /// All threads of the warp execute it.
    Shuffle(x)                          as_shuffle expect_shuffle
        with Arg::Shuffle(bits) => { bits: usize = *bits } [Convergent];
    /// A kernel as source text for one device, the payload, with its arguments.
    Source(; args)                      as_source expect_source
        with Arg::Source(source) => { source: &'a Arc<ir::Source> = source };
    /// The stores of a kernel, or the outputs of a tensor graph.
    Sink(; effects)                     as_sink expect_sink;

    // New ops come last: the number of an op is part of the keys that order operands, so that an
    // insertion would change the text of most kernels.
    /// The rectified value `x` of `origin`, which gradients follow. The VJP reads `x` only, so that
    /// `origin` need not be stored for the backward pass.
    Relu(x, origin)         as_relu expect_relu              [Mark];
    /// x·2ⁿ with one rounding, for an integral float n; others are rounded toward minus infinity.
    /// An infinite n counts as the largest finite one, and NaN propagates.
    Ldexp(x, n)             as_ldexp expect_ldexp            [Binary] on=Floats cost=2 reuse=2;
}

impl Op {
    /// Returns true if the op is a member of the group.
    #[inline]
    pub const fn is(self, group: Group) -> bool {
        group.set().has(self)
    }
    /// Elementwise ops, casts included.
    pub const ALU: OpSet = Group::Unary
        .set()
        .or(Group::Binary.set())
        .or(Group::Ternary.set())
        .or(OpSet::of(Op::Cast))
        .or(OpSet::of(Op::Bitcast));
    /// Returns true if the op is elementwise.
    #[inline]
    pub const fn is_alu(self) -> bool {
        Op::ALU.has(self)
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
