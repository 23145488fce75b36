//! Sets and groups of ops. The table of ops has the groups of each op; the members of a group are
//! collected from it at compile time.

use super::Op;

/// A set of ops, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpSet(pub u128);

impl OpSet {
    /// The empty set.
    pub const NONE: OpSet = OpSet(0);
    /// Returns the set of one op.
    pub const fn of(op: Op) -> OpSet {
        OpSet(1 << op as u32)
    }
    /// Returns the union of two sets.
    pub const fn or(self, other: OpSet) -> OpSet {
        OpSet(self.0 | other.0)
    }
    /// Returns true if the op is a member.
    pub const fn has(self, op: Op) -> bool {
        self.0 >> (op as u32) & 1 == 1
    }
    /// Returns true if every member of `other` is a member.
    pub const fn superset(self, other: OpSet) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Groups of ops that rules and passes treat in the same way.
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
    /// Two operands, elementwise, result of dtype bool.
    Comparison,
    /// Changes indices, not elements; the payload is a
    /// [`Movement`](crate::shape::Movement).
    Movement,
    /// Not correctly rounded by hardware: each has a decomposition into simpler ops.
    Transcendental,
    /// The value of its first operand, annotated for gradients; removed before scheduling.
    Mark,
    /// Has no value, and is executed for its effect.
    Effect,
    /// Executed by all threads of a warp or a workgroup, so that no condition that differs between
    /// them may enclose it.
    Convergent,
}

impl Group {
    /// Returns the members of the group.
    #[inline]
    pub const fn set(self) -> OpSet {
        const SETS: [OpSet; 10] = [
            Group::Unary.gather(),
            Group::Binary.gather(),
            Group::Ternary.gather(),
            Group::Commutative.gather(),
            Group::Comparison.gather(),
            Group::Movement.gather(),
            Group::Transcendental.gather(),
            Group::Mark.gather(),
            Group::Effect.gather(),
            Group::Convergent.gather(),
        ];
        SETS[self as usize]
    }

    /// Collects the members from the table at compile time, because rules test membership often.
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
