//! The parts that all renderers share: the walk over a program with its checks, the layout of small
//! floats, and the integers that cannot overflow.

use super::Rendered;
use crate::dtype::Scalar;
use crate::error::{Error, Result};
use crate::ir::{Arg, Group, Op, SpecialKind, UOp, dtype_bounds};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// Returns the number of the accumulator behind a chain of assignments.
pub(crate) fn accumulator(u: &UOp) -> Option<u32> {
    match (u.op(), u.arg()) {
        (Op::DefineAcc, Arg::Acc(number)) => Some(*number),
        _ => accumulator(u.as_assign()?.acc),
    }
}

/// Returns the accumulators that each loop changes, by the id of its range.
pub(crate) fn changed_accumulators(uops: &[UOp]) -> FxHashMap<u64, Vec<u32>> {
    let (mut changed, mut open): (FxHashMap<u64, Vec<u32>>, Vec<u64>) = Default::default();
    for u in uops {
        match u.op() {
            Op::Range => open.push(u.id()),
            Op::EndRange => drop(open.pop()),
            Op::Assign => {
                for range in &open {
                    let list = changed.entry(*range).or_default();
                    list.extend(accumulator(u).filter(|acc| !list.contains(acc)));
                }
            }
            _ => {}
        }
    }
    changed
}

/// Returns the number of chunks along each dimension of them.
pub(crate) fn chunk_dims(uops: &[UOp]) -> Vec<usize> {
    let mut dims = Vec::new();
    for u in uops {
        if let Arg::Special { kind: SpecialKind::Thread, dim, extent } = u.arg() {
            let dim = *dim as usize;
            dims.resize(dims.len().max(dim + 1), 1);
            dims[dim] = *extent;
        }
    }
    dims
}

/// Returns the error for a load or a store whose first operand is not an `Index`.
fn not_an_index(u: &UOp) -> String {
    format!("its address is not an index but {:?}", u.operand())
}

/// Returns the type that holds a scalar: small floats are held as their bits.
pub(crate) fn storage(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::F16 | Scalar::BF16 => Scalar::U16,
        Scalar::F8E4M3 | Scalar::F8E5M2 => Scalar::U8,
        Scalar::Index => Scalar::I64,
        s => s,
    }
}

/// Returns true for a float that is held as its bits and converted by integer arithmetic.
pub(super) fn is_small(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::F16 | Scalar::BF16 | Scalar::F8E4M3 | Scalar::F8E5M2)
}

/// The layout of a small float.
pub(crate) struct Layout {
    pub mantissa: u32,
    pub bias: u32,
    pub bits: u32,
    /// The code of overflow: infinity, or NaN in a layout without infinity. Larger codes are NaNs.
    pub over: u64,
    pub has_inf: bool,
}

/// Returns true if a value of the program is a 64-bit float.
pub(super) fn uses_doubles(uops: &[UOp]) -> bool {
    // Literals need not be listed.
    let mut values = uops.iter().flat_map(|u| u.src().iter().chain([u]));
    values.any(|u| u.dtype().scalar == Scalar::F64)
}

/// Returns the layout of a small float.
pub(crate) fn layout(scalar: Scalar) -> Layout {
    match scalar {
        Scalar::F16 => Layout { mantissa: 10, bias: 15, bits: 16, over: 0x7c00, has_inf: true },
        Scalar::BF16 => Layout { mantissa: 7, bias: 127, bits: 16, over: 0x7f80, has_inf: true },
        Scalar::F8E4M3 => Layout { mantissa: 3, bias: 7, bits: 8, over: 0x7f, has_inf: false },
        Scalar::F8E5M2 => Layout { mantissa: 2, bias: 15, bits: 8, over: 0x7c, has_inf: true },
        _ => unreachable!("{scalar} is not a small float"),
    }
}

/// Returns the ids of integers that are only used by addresses and loop bounds, and are computed
/// from launch positions and loop counters alone: they cannot overflow.
pub(crate) fn address_integers(uops: &[UOp]) -> FxHashSet<u64> {
    let mut pure: FxHashSet<u64> = FxHashSet::default();
    let is_pure = |pure: &FxHashSet<u64>, u: &UOp| u.op() == Op::Const || pure.contains(&u.id());
    for u in uops {
        let counter = matches!(u.op(), Op::Range | Op::Special);
        if counter || (u.op().is_alu() && !wraps(u) && u.src().iter().all(|s| is_pure(&pure, s))) {
            pure.insert(u.id());
        }
    }
    let mut found: FxHashSet<u64> = FxHashSet::default();
    for u in uops.iter().rev() {
        let used = match (u.op(), u.src()) {
            (Op::Index, [_, offset @ ..]) => offset,
            (Op::If | Op::Range, src) => src,
            (_, src) if found.contains(&u.id()) => src,
            _ => continue,
        };
        found.extend(used.iter().filter(|s| is_pure(&pure, s)).map(UOp::id));
    }
    found
}

/// Returns true if a sum or product of integers can overflow its dtype. The arithmetic of a custom
/// kernel on counters may, and then wraps.
fn wraps(u: &UOp) -> bool {
    let [x, y] = u.src() else { return false };
    if !u.dtype().is_int() {
        return false;
    }
    let ((a, b), (c, d)) = (x.bounds(), y.bounds());
    let all = dtype_bounds(u.dtype());
    let leaves = |v: i128| v < all.0 || v > all.1;
    match u.op() {
        Op::Add => leaves(a.saturating_add(c)) || leaves(b.saturating_add(d)),
        Op::Mul => {
            [a.saturating_mul(c), a.saturating_mul(d), b.saturating_mul(c), b.saturating_mul(d)]
                .into_iter()
                .any(leaves)
        }
        _ => false,
    }
}

/// Writes a program item by item.
pub(super) trait Writer {
    /// Writes one item, which has passed the checks.
    fn item(&mut self, u: &UOp) -> std::result::Result<(), String>;
    /// Returns the innermost open loop or condition.
    fn innermost(&self) -> Option<&UOp>;
    /// Returns the kernel under a name.
    fn finish(self, name: &str) -> Rendered;
}

/// Renders a program with a writer for its language. Errors name the node.
pub(super) fn render(
    target: &Target,
    name: &str,
    uops: &[UOp],
    mut writer: impl Writer,
) -> Result<Rendered> {
    let refuse = |msg: String| Error::Compile {
        msg: format!("{} renderer: {msg}", target.name),
        source_at: None,
    };
    if !is_identifier(name) {
        return Err(refuse(format!("{name:?} is not a name for a function")));
    }
    for u in uops {
        check(u, target)
            .and_then(|()| writer.item(u))
            .map_err(|why| refuse(format!("cannot render {u:?}: {why}")))?;
    }
    match writer.innermost() {
        Some(open) => Err(refuse(format!("{open:?} is never closed"))),
        None => Ok(writer.finish(name)),
    }
}

/// Returns the error for an operand that has no text.
pub(super) fn unknown_operand(u: &UOp) -> String {
    format!("its operand {u:?} is not defined before it, or only in a closed block")
}

/// Checks that the end of a block closes the innermost one.
pub(super) fn closes(open: bool, block: &UOp) -> std::result::Result<(), String> {
    if open { Ok(()) } else { Err(format!("{block:?} is not the innermost open block")) }
}

/// Checks the parts of an item that are alike in all languages.
fn check(u: &UOp, target: &Target) -> std::result::Result<(), String> {
    let (lanes, src) = (u.dtype().lanes as usize, u.src());
    match (u.op(), u.arg()) {
        (Op::Vectorize, _)
            if src.iter().map(|s| s.dtype().lanes as usize).sum::<usize>() != lanes =>
        {
            Err(format!("{lanes} lanes from {} operands", src.len()))
        }
        (Op::Gep, Arg::Lanes(picked)) => {
            let of = u.operand();
            match picked.iter().find(|l| **l >= of.dtype().lanes) {
                _ if picked.len() != lanes => {
                    Err(format!("{} lanes are selected, expected {lanes}", picked.len()))
                }
                Some(past) => Err(format!("there is no lane {past} in {of:?}")),
                None => Ok(()),
            }
        }
        (Op::Load, _) => match u.as_load() {
            None => Err(not_an_index(u)),
            Some(load) if load.place.mask.is_some() && load.alt.is_none() => {
                Err("its index is masked, but it has no alternative value".to_string())
            }
            Some(_) => Ok(()),
        },
        (Op::Store, _) if u.as_store().is_none() => Err(not_an_index(u)),
        (Op::Assign, _) if !matches!(u.operand().op(), Op::DefineAcc | Op::Assign) => {
            Err(format!("{:?} is not an accumulator", u.operand()))
        }
        (op, _) if op.is_alu() => check_alu(u, target),
        _ => Ok(()),
    }
}

/// Checks the dtypes of an elementwise op.
fn check_alu(u: &UOp, target: &Target) -> std::result::Result<(), String> {
    let (op, dtype) = (u.op(), u.dtype());
    if u.src().iter().any(|s| s.dtype().lanes != dtype.lanes) {
        return Err("the operands differ in lanes".to_string());
    }
    if matches!(op, Op::Detach | Op::Cast | Op::Bitcast | Op::Where) {
        return Ok(());
    }
    let on = u.operand().dtype();
    if is_small(on.scalar) || is_small(dtype.scalar) {
        return Err(format!("{op:?} on {on}: arithmetic on it has to be lowered to f32"));
    }
    if !op.on().has(on) {
        return Err(format!("{op:?} is for {}, not for {on}", op.on().name()));
    }
    let is_decomposed =
        matches!(op, Op::IDiv | Op::Mod | Op::Ldexp) || op.is(Group::Transcendental);
    if is_decomposed && !target.has(op, on.scalar()) {
        let (language, on) = (target.name, on.scalar());
        return Err(format!("{language} has no {op:?} on {on}; it has to be decomposed"));
    }
    Ok(())
}

/// Returns true for a valid function name.
fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
