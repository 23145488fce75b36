//! Dtype promotion. Input: two dtypes, or a dtype and the kind of a bare literal. Output: the dtype
//! to compute in.
//!
//! The rule is JAX's lattice: bool, then integers, then floats; an integer never widens a float,
//! and a signed with an unsigned integer goes to the signed one that holds both. Where no integer
//! holds both (`u64` with a signed one) the result is `f32`, the default float.

use super::{DType, Kind, Scalar};

/// Returns the dtype that both operands are cast to before an operation on the two.
///
/// Follows JAX: bool, then integers, then floats. `u8 + i8` is `i16` and so on up to `u32 + i32`,
/// which is `i64`; `u64` with any signed integer is `f32`. An integer with a float is that float.
/// `f16 + bf16` is `f32`, `f8e4m3 + f8e5m2` is `f16`, and any other two floats meet in the wider
/// one. In the table `e4m3` and `e5m2` are the 8-bit floats:
///
/// ```text
///      bool i8   i16  i32  i64  u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64
/// bool bool i8   i16  i32  i64  u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64
/// i8   i8   i8   i16  i32  i64  i16  i32  i64  f32  e4m3 e5m2 f16  bf16 f32  f64
/// i16  i16  i16  i16  i32  i64  i16  i32  i64  f32  e4m3 e5m2 f16  bf16 f32  f64
/// i32  i32  i32  i32  i32  i64  i32  i32  i64  f32  e4m3 e5m2 f16  bf16 f32  f64
/// i64  i64  i64  i64  i64  i64  i64  i64  i64  f32  e4m3 e5m2 f16  bf16 f32  f64
/// u8   u8   i16  i16  i32  i64  u8   u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64
/// u16  u16  i32  i32  i32  i64  u16  u16  u32  u64  e4m3 e5m2 f16  bf16 f32  f64
/// u32  u32  i64  i64  i64  i64  u32  u32  u32  u64  e4m3 e5m2 f16  bf16 f32  f64
/// u64  u64  f32  f32  f32  f32  u64  u64  u64  u64  e4m3 e5m2 f16  bf16 f32  f64
/// e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 e4m3 f16  f16  bf16 f32  f64
/// e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 e5m2 f16  e5m2 f16  bf16 f32  f64
/// f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64
/// bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64
/// f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
/// f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
/// ```
///
/// `void` gives way to everything and `index` to every sized integer and float, but not to bool.
///
/// The operation is commutative and idempotent. It is associative and monotone except where three
/// types meet in a way that JAX avoids and we do not:
/// - `u64`, a signed integer and a float under 32 bits. JAX's `u64 + i64` is a weak float that
///   takes the width of the next float; ours is `f32` at once.
/// - `f8e4m3`, `f8e5m2` and `bf16`. JAX refuses to promote 8-bit floats among other floats; ours
///   do, and the two kinds meet in `f16`, which holds every value of both, while `f16` with `bf16`
///   is `f32`.
///
/// A scalar takes the lanes of the other operand. Panics for two vectors of different
/// length.
pub const fn promote(a: DType, b: DType) -> DType {
    let lanes = if a.lanes == 1 {
        b.lanes
    } else {
        assert!(b.lanes == 1 || b.lanes == a.lanes, "promote: vectors of different lengths");
        a.lanes
    };
    DType { scalar: join(a.scalar, b.scalar), lanes }
}

const fn join(a: Scalar, b: Scalar) -> Scalar {
    let (low, high) = if a.kind() as u8 <= b.kind() as u8 { (a, b) } else { (b, a) };
    match (low.kind(), high.kind()) {
        (Kind::Unsigned, Kind::Signed) => join_signs(low, high),
        (Kind::Float, Kind::Float) => join_floats(low, high),
        (Kind::Unsigned, Kind::Unsigned) | (Kind::Signed, Kind::Signed) => wider(low, high),
        _ => high,
    }
}

const fn wider(a: Scalar, b: Scalar) -> Scalar {
    if a.bits() > b.bits() { a } else { b }
}

const fn join_signs(unsigned: Scalar, signed: Scalar) -> Scalar {
    if signed.bits() > unsigned.bits() {
        return signed;
    }
    match unsigned {
        Scalar::U8 => Scalar::I16,
        Scalar::U16 => Scalar::I32,
        Scalar::U32 => Scalar::I64,
        _ => Scalar::F32,
    }
}

const fn join_floats(a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::F16, Scalar::BF16) | (Scalar::BF16, Scalar::F16) => Scalar::F32,
        (Scalar::F8E4M3, Scalar::F8E5M2) | (Scalar::F8E5M2, Scalar::F8E4M3) => Scalar::F16,
        _ => wider(a, b),
    }
}

/// The kind of a bare Rust literal beside a tensor. It has no width of its own.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Weak {
    /// `true` or `false`.
    Bool,
    /// An integer literal.
    Int,
    /// A float literal.
    Float,
}

/// Returns the dtype of a tensor of `t` combined with a bare literal: that of the tensor, unless
/// the literal is of a higher kind. A bool tensor with an integer gives `i32`; a bool or integer
/// tensor with a float gives `f32`. Lanes stay.
pub const fn promote_weak(t: DType, w: Weak) -> DType {
    let scalar = match (w, t.scalar.kind()) {
        (Weak::Bool, Kind::Void) => Scalar::Bool,
        (Weak::Int, Kind::Void | Kind::Bool) => Scalar::I32,
        (Weak::Float, Kind::Void | Kind::Bool | Kind::Index | Kind::Unsigned | Kind::Signed) => {
            Scalar::F32
        }
        _ => t.scalar,
    };
    DType { scalar, lanes: t.lanes }
}

/// Returns the dtype that a sum over `t` accumulates in.
///
/// Narrow integers are widened: bool, `i8`, `i16` and `i32` sum in `i32`, narrow unsigned ones in
/// `u32`, and that is the result's dtype too. PyTorch goes to `i64` here; 32 bits keep the sum fast
/// on devices where 64-bit integers are emulated. Floats accumulate in [`DType::computed_in`], and
/// the caller casts the result back. All other dtypes stay, and so do lanes.
pub const fn sum_acc(t: DType) -> DType {
    match (t.scalar.kind(), t.bits()) {
        (Kind::Bool, _) | (Kind::Signed, ..32) => DType::I32.vec(t.lanes),
        (Kind::Unsigned, ..32) => DType::U32.vec(t.lanes),
        _ => t.computed_in(),
    }
}
