//! The table of ops. Everything else about an op (arity, groups, names, docs) is derived from its
//! line here.

/// A set of ops, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpSet(pub u128);

impl OpSet {
    /// No op.
    pub const NONE: OpSet = OpSet(0);
    /// Just this op.
    pub const fn of(op: Op) -> OpSet {
        OpSet(1 << op as u32)
    }
    /// The union.
    pub const fn or(self, other: OpSet) -> OpSet {
        OpSet(self.0 | other.0)
    }
    /// Is the op a member?
    pub const fn has(self, op: Op) -> bool {
        self.0 >> (op as u32) & 1 == 1
    }
    /// Is every member of `other` a member here?
    pub const fn superset(self, other: OpSet) -> bool {
        self.0 & other.0 == other.0
    }
}

macro_rules! ops {
    ($($(#[doc = $doc:literal])* $name:ident($($arg:ident),* $(; $rest:ident)?) $([$($group:ident)*])?;)*) => {
        /// What a node does. The table in `ir/op.rs` is the only place where ops are declared.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($(#[doc = $doc])* $name),* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$name),*];
            /// The name in text IR.
            pub const fn name(self) -> &'static str { match self { $(Op::$name => stringify!($name)),* } }
            /// The number of operands; for variadic ops the least number.
            pub const fn arity(self) -> usize {
                match self { $(Op::$name => 0 $(+ { let _ = stringify!($arg); 1 })*),* }
            }
            /// Does the op take any number of operands past its arity?
            pub const fn variadic(self) -> bool {
                match self { $(Op::$name => false $(|| { let _ = stringify!($rest); true })?),* }
            }
            /// Names of the operands, for documents and messages.
            pub const fn operands(self) -> &'static [&'static str] {
                match self { $(Op::$name => &[$(stringify!($arg),)* $(stringify!($rest))?]),* }
            }
            /// Is `n` a right number of operands in a pattern? `usize::MAX` stands for "any".
            pub const fn takes(self, n: usize) -> bool {
                n == usize::MAX || n == self.arity() || (self.variadic() && n >= self.arity())
            }
            /// The groups that the op is a member of.
            pub const fn groups(self) -> &'static [Group] { match self { $(Op::$name => &[$($(Group::$group),*)?]),* } }
            /// The op's documentation.
            pub const fn doc(self) -> &'static str { match self { $(Op::$name => concat!($($doc, "\n"),*)),* } }
            /// The op of this name.
            pub fn from_name(name: &str) -> Option<Op> { match name { $(stringify!($name) => Some(Op::$name),)* _ => None } }
        }
    };
}

/// Families of ops that rules and passes treat alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Group {
    /// One operand, elementwise, result of the operand's dtype.
    Unary,
    /// Two operands, elementwise.
    Binary,
    /// Three operands, elementwise.
    Ternary,
    /// `op(x, y) == op(y, x)`.
    Commutative,
    /// Two operands in, a bool out.
    Comparison,
    /// Rearranges elements without computing; the payload is a
    /// [`Movement`](crate::shape::Movement).
    Movement,
    /// Not correctly rounded by hardware: each has a decomposition into simpler ops.
    Transcendental,
    /// The value of its first operand; the mark is for gradients, and is gone before scheduling.
    Mark,
}

impl Group {
    /// The members.
    #[inline]
    pub const fn set(self) -> OpSet {
        const SETS: [OpSet; 8] = [
            Group::Unary.gather(),
            Group::Binary.gather(),
            Group::Ternary.gather(),
            Group::Commutative.gather(),
            Group::Comparison.gather(),
            Group::Movement.gather(),
            Group::Transcendental.gather(),
            Group::Mark.gather(),
        ];
        SETS[self as usize]
    }

    /// Reads the table of ops. Rules ask for sets all the time, so this runs in the compiler alone.
    const fn gather(self) -> OpSet {
        let (mut set, mut i) = (OpSet::NONE, 0);
        while i < Op::ALL.len() {
            let (groups, mut j) = (Op::ALL[i].groups(), 0);
            while j < groups.len() {
                if groups[j] as u8 == self as u8 {
                    set = set.or(OpSet::of(Op::ALL[i]));
                }
                j += 1;
            }
            i += 1;
        }
        set
    }
}

ops! {
    /// A literal. The payload is its value; in the tensor graph its shape is `[]`.
    Const();
    /// Storage on a device: a realized tensor, one-dimensional.
    Buffer();
    /// The i-th input of an abstracted tensor graph: what a buffer becomes in a schedule cache key.
    Param();
    /// A named integer with bounds, bound to a value at run time.
    Var();
    /// `0, 1, … n-1` as a one-dimensional tensor.
    Iota();

    /// The same elements in the same row-major order under another shape.
    Reshape(x)                  [Movement];
    /// Axes of size one repeated.
    Expand(x)                   [Movement];
    /// Axes in another order.
    Permute(x)                  [Movement];
    /// Zeros around.
    Pad(x)                      [Movement];
    /// A box cut out.
    Shrink(x)                   [Movement];
    /// Axes reversed.
    Flip(x)                     [Movement];

    /// The part of an axis from a place on, with a length: both are numbers or sums of variables, and are the payload. The axis has the greatest length; how much of
    /// it there is, is known at run time.
    Slice(x);

    /// Folds with the payload's operation. In the tensor graph over axes, which stay with size one; in a kernel over its `ranges`.
    Reduce(x; ranges);
    /// Running folds with the payload's operation: each element is the fold of all elements up to it, itself included. In the tensor graph along one axis; in a
    /// kernel along a `range` of the kind `Ordered`, which the store around it closes.
    Scan(x; range);
    /// Tensors one after the other along the payload's axis. They have one shape but for that axis.
    Cat(x; rest);
    /// The elements of `x` at places along the payload's axis: `x[…, index[…], …]`. Operands have one shape but for that axis, and the result has that of
    /// the index. A place outside the axis reads 0.
    Gather(x, index);
    /// `base` with values written or combined at places along the payload's axis, in ascending order of their position along it:
    /// `base[…, index[…], …] ⊕= value[…]`. A place outside the axis writes nothing; of several values that are set at one place the last stays.
    Scatter(base, index, value);
    /// The value stored in row-major order: a border that fusion does not cross.
    Contiguous(x);
    /// The value moved to the device in the payload, once the values in `after` are computed, if there are any.
    Copy(x; after);
    /// One value over several devices: its parts along an axis, or a copy of it on each. The payload names the devices, in the order of the operands.
    Shards(x; rest);
    /// A kernel of the user's, which is the payload, on the inputs. It has no value; its outputs have.
    Kernel(; inputs);
    /// Runs of one body, which is the payload, one after the other: the operands are the first carries, the stacked elements and the captures. It has no value;
    /// its outputs have.
    Loop(; inputs);
    /// What a `Kernel` or a `Loop` has written: the payload is the number of the output.
    Output(of);
    /// The value with no gradient behind it.
    Detach(x)                   [Unary Mark];
    /// A parameter: gradients are kept for it and go no further. The payload is its number.
    Leaf(x)                     [Mark];
    /// The value, whose gradient is stored in row-major order.
    ContiguousBackward(x)       [Mark];
    /// A value that has been computed, beside the graph that it came from, which gradients follow.
    Computed(x, origin)         [Mark];
    /// A value that a function made of the inputs, whose gradient is a function of the user's: the payload.
    Call(x; inputs)             [Mark];

    /// The value converted to the node's dtype; `docs/semantics.md` says how.
    Cast(x);
    /// The bits read as another dtype of the same width.
    Bitcast(x);
    /// Square root, correctly rounded.
    Sqrt(x)                     [Unary];
    /// Toward zero to an integral value.
    Trunc(x)                    [Unary];
    /// 1/√x.
    Rsqrt(x)                    [Unary Transcendental];
    /// eˣ.
    Exp(x)                      [Unary Transcendental];
    /// 2ˣ.
    Exp2(x)                     [Unary Transcendental];
    /// Natural logarithm.
    Log(x)                      [Unary Transcendental];
    /// Base-2 logarithm.
    Log2(x)                     [Unary Transcendental];
    /// Sine.
    Sin(x)                      [Unary Transcendental];
    /// Cosine.
    Cos(x)                      [Unary Transcendental];
    /// Tangent.
    Tan(x)                      [Unary Transcendental];
    /// Hyperbolic tangent.
    Tanh(x)                     [Unary Transcendental];
    /// 1/(1+e⁻ˣ).
    Sigmoid(x)                  [Unary Transcendental];
    /// Error function.
    Erf(x)                      [Unary Transcendental];

    /// Sum; integers wrap; or, for bools.
    Add(x, y)                   [Binary Commutative];
    /// Product; integers wrap; and, for bools.
    Mul(x, y)                   [Binary Commutative];
    /// Float division, correctly rounded.
    Div(x, y)                   [Binary];
    /// Integer division rounded toward minus infinity; by zero it is zero.
    IDiv(x, y)                  [Binary];
    /// Remainder of the quotient rounded down, with the divisor's sign; of integers by zero it is zero, of floats NaN.
    Mod(x, y)                   [Binary];
    /// Machine division toward zero, of operands proven safe. Only after lowering.
    CDiv(x, y)                  [Binary];
    /// Machine remainder, of operands proven safe. Only after lowering.
    CMod(x, y)                  [Binary];
    /// The greater; NaN wins; a zero result is +0.
    Max(x, y)                   [Binary Commutative];
    /// The lesser; NaN wins; a zero result is +0.
    Min(x, y)                   [Binary Commutative];
    /// x to the power y.
    Pow(x, y)                   [Binary Transcendental];
    /// Shift left; past the width it is zero.
    Shl(x, y)                   [Binary];
    /// Shift right, arithmetic for signed; past the width it is the sign.
    Shr(x, y)                   [Binary];
    /// Bitwise and; logical for bools.
    And(x, y)                   [Binary Commutative];
    /// Bitwise or; logical for bools.
    Or(x, y)                    [Binary Commutative];
    /// Bitwise exclusive or; "differs" for bools.
    Xor(x, y)                   [Binary Commutative];
    /// Less than; false with NaN.
    Lt(x, y)                    [Binary Comparison];
    /// Equal; false with NaN.
    Eq(x, y)                    [Binary Comparison Commutative];
    /// Not equal; true with NaN.
    Ne(x, y)                    [Binary Comparison Commutative];
    /// `c ? x : y`.
    Where(c, x, y)              [Ternary];
    /// x·y+z with one rounding.
    Fma(x, y, z)                [Ternary];

    /// An argument of the kernel: the payload names its slot and size.
    DefineGlobal();
    /// Memory shared by a workgroup.
    DefineLocal();
    /// An accumulator with its initial value; it is reset at the place where it is defined. As a value: what it holds now.
    DefineAcc(init; ranges);
    /// A loop counter from 0 to `extent - 1`, or an axis that an optimisation gave another kind.
    Range(extent);
    /// Closes the loop of a range.
    EndRange(range);
    /// The position in the launch grid.
    Special();
    /// An element of a buffer: `buf[idx]`, touched only where `valid` holds.
    Index(buf, idx; valid);
    /// Reads an element, or as many as the node has lanes. Where the index is not valid, `alt`. Further operands only order.
    Load(index; rest);
    /// Writes an element, or lanes. The ranges after the value are those that it closes.
    Store(index, value; ranges);
    /// Gives an accumulator a new value. As a value: what it then holds.
    Assign(acc, value);
    /// Opens a guarded region.
    If(cond);
    /// Closes it.
    EndIf(open);
    /// All threads of the workgroup arrive before any leaves; orders what is listed before it.
    Barrier(; before);
    /// A vector from scalars.
    Vectorize(; x);
    /// Lanes picked from a vector.
    Gep(x);
    /// A·B + C by the threads of a warp, which hold the three matrices together: each has elements of them in its lanes, as the payload's tensor core says. Until they
    /// are written out, `a` and `b` are single elements, and `ranges` are those of the registers along the rows of A and along the sum.
    Wmma(a, b, c; ranges);
    /// What another thread of the warp holds: the one whose number in the workgroup differs in the bits of the payload. All threads have to come to it.
    Shuffle(x);
    /// A kernel as text for one device, which is the payload, with its arguments.
    Source(; args);
    /// The effects of a kernel, or the outputs of a tensor graph.
    Sink(; x);
}

impl Op {
    /// Is the op a member of the group?
    #[inline]
    pub const fn is(self, group: Group) -> bool {
        group.set().has(self)
    }
    /// Ops that compute one element from the matching elements of their operands.
    pub const ALU: OpSet = Group::Unary
        .set()
        .or(Group::Binary.set())
        .or(Group::Ternary.set())
        .or(OpSet::of(Op::Cast))
        .or(OpSet::of(Op::Bitcast));
    /// Is it elementwise?
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
