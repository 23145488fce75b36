//! The C family: one walker over the linear program, and a dialect for each language.
//!
//! In: the list of UOps. Out: source text. A value with one use is written in place if it stays
//! short; every other value gets a name by its kind. Loads always get a name, so that no read moves
//! past a write.

mod cast;
mod clang;
mod clang_vector;
mod cuda;
mod dialect;
mod expr;
mod literal;
mod metal;
mod opencl;
mod plan;
mod prelude;
mod small_float;
mod value;
mod vector;

use self::dialect::{Address, Alu, Dialect, Element, KernelSource, KernelText, Text};
use self::literal::literal;
use self::plan::Plan;
use self::prelude::Cx;
use self::value::Operand;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::typed::{Gep, Index, Load, Store};
use crate::ir::{Arg, Op, SpecialKind, UOp};
use crate::render::Rendered;
use crate::render::facts::{begin, not_an_index};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::fmt::Write;

pub use clang::Clang;
pub use cuda::Cuda;
pub use metal::Metal;
pub use opencl::OpenCl;

/// The longest text that is written inside another: past it, a line is easier to read when the
/// value has a name.
const MAX_INLINE: usize = 80;

/// Renders a program in a dialect.
fn render(dialect: &dyn Dialect, name: &str, uops: &[UOp]) -> Result<Rendered> {
    let refuse = begin(dialect.target(), name)?;
    let mut walker = Walker::new(dialect, uops);
    for u in uops {
        walker.item(u).map_err(|why| refuse(format!("cannot render {u:?}: {why}")))?;
    }
    if let Some((open, _)) = walker.open.last() {
        return Err(refuse(format!("{open:?} is never closed")));
    }
    Ok(walker.finish(name))
}

/// A value that has been met.
struct Value {
    operand: Operand,
    /// True if it is a name or as short as one, so that it may be repeated.
    named: bool,
}

struct Walker<'a> {
    cx: Cx<'a>,
    plan: Plan,
    values: FxHashMap<u64, Value>,
    /// Names in use, by prefix.
    taken: FxHashMap<&'static str, usize>,
    /// Extents of launch dimensions, by kind.
    extents: FxHashMap<SpecialKind, Vec<usize>>,
    args: Vec<(usize, DType, bool)>,
    multiplies: bool,
    tensor_cores: bool,
    /// Loops and conditions that are open, each with the values that were named inside and end
    /// with it.
    open: Vec<(UOp, Vec<u64>)>,
    /// Declarations of local memory, which belong at the top of a kernel.
    locals: String,
    body: String,
}

impl<'a> Walker<'a> {
    fn new(dialect: &'a dyn Dialect, uops: &[UOp]) -> Walker<'a> {
        let mut extents: FxHashMap<SpecialKind, Vec<usize>> = FxHashMap::default();
        for u in uops {
            if let Arg::Special { kind, dim, extent } = u.arg() {
                let extents = extents.entry(*kind).or_default();
                let dim = *dim as usize;
                extents.resize(extents.len().max(dim + 1), 1);
                extents[dim] = *extent;
            }
        }
        Walker {
            cx: Cx::new(dialect),
            plan: Plan::new(uops),
            values: FxHashMap::default(),
            taken: FxHashMap::default(),
            extents,
            args: Vec::new(),
            multiplies: uops.iter().any(|u| u.op() == Op::Mul && u.dtype().is_float()),
            tensor_cores: uops.iter().any(|u| u.op() == Op::Wmma),
            open: Vec::new(),
            locals: String::new(),
            body: String::new(),
        }
    }

    fn finish(mut self, name: &str) -> Rendered {
        self.args.sort_by_key(|(slot, ..)| *slot);
        let mut local = [1; 3];
        for (size, extent) in
            local.iter_mut().zip(self.extents.get(&SpecialKind::Local).into_iter().flatten())
        {
            *size = *extent;
        }
        let threaded = self.extents.contains_key(&SpecialKind::Thread);
        let body = self.locals + &self.body;
        let kernel = KernelText {
            args: self.args,
            local,
            threaded,
            tensor_cores: self.tensor_cores,
            multiplies: self.multiplies,
            body,
        };
        let KernelSource { mut prelude, parts } = self.cx.dialect.kernel(&self.cx.items, &kernel);
        prelude.extend(self.cx.items);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Rendered { assumes_alignment: self.cx.aligned, ..Rendered::new(prelude, name, &parts) }
    }

    fn line(&mut self, text: &str) {
        self.line_of(&[text]);
    }

    /// A line of several parts.
    fn line_of(&mut self, parts: &[&str]) {
        (0..=self.open.len()).for_each(|_| self.body.push_str("  "));
        parts.iter().for_each(|part| self.body.push_str(part));
        self.body.push('\n');
    }

    /// One item of the program.
    fn item(&mut self, u: &UOp) -> Result<(), String> {
        let src = u.src();
        match (u.op(), u.arg()) {
            (Op::Const | Op::Index | Op::Sink, _) => {}
            (Op::DefineGlobal, Arg::Global { slot, .. }) => {
                self.cx.element_type(u.dtype())?;
                self.args.push((*slot, u.dtype(), self.plan.stored.contains(&u.id())));
                self.name(u, format!("data{slot}"));
            }
            (Op::DefineShared, Arg::Shared { id, len }) => {
                let (start, element) =
                    (self.cx.dialect.words().local_array, self.cx.element_type(u.dtype())?);
                writeln!(self.locals, "  {start}{element} temp{id}[{len}];")
                    .expect("a string takes any text");
                self.name(u, format!("temp{id}"));
            }
            (Op::Special, Arg::Special { kind, dim, extent }) => {
                let position = self.cx.dialect.position(*kind, *dim as usize, &self.extents[kind]);
                let position =
                    position.ok_or_else(|| format!("there is no {}{dim}", kind.prefix()))?;
                let name = format!("{}{dim}", kind.prefix());
                let ty = self.cx.ty(u.dtype())?;
                self.line(&format!("{ty} {name} = {position}; /* {extent} */"));
                self.name(u, name);
            }
            (Op::Range, Arg::Range { id, .. }) => {
                let (ty, extent) = (self.cx.ty(u.dtype())?, self.named(&src[0])?);
                let name = format!("ridx{id}");
                self.line(&format!("for ({ty} {name} = 0; {name} < {extent}; {name}++) {{"));
                self.open.push((u.clone(), Vec::new()));
                self.name(u, name);
            }
            (Op::If, _) => {
                let condition = self.text(&src[0])?;
                self.line(&format!("if ({}) {{", without_parentheses(&condition)));
                self.open.push((u.clone(), Vec::new()));
            }
            (Op::EndRange | Op::EndIf, _) => {
                let Some((_, inside)) = self.open.pop_if(|(opened, _)| *opened == src[0]) else {
                    return Err(format!("{:?} is not what was opened last", src[0]));
                };
                for id in inside {
                    self.values.remove(&id);
                }
                self.line("}");
            }
            (Op::DefineAcc, Arg::Acc(id)) => {
                let (ty, init) = (self.cx.ty(u.dtype())?, self.text(&src[0])?);
                self.line(&format!("{ty} acc{id} = {init};"));
                self.name(u, format!("acc{id}"));
            }
            (Op::Assign, _) if !matches!(src[0].op(), Op::DefineAcc | Op::Assign) => {
                return Err(format!("{:?} is not an accumulator", src[0]));
            }
            (Op::Assign, _) => {
                let (acc, value) = (self.text(&src[0])?, self.text(&src[1])?);
                self.line_of(&[&acc, " = ", &value, ";"]);
                // It lives as long as the accumulator, not only to the end of the block.
                self.values.insert(u.id(), Value { operand: Operand::plain(acc), named: true });
            }
            (Op::Barrier, _) => {
                if let Some(barrier) = self.cx.dialect.words().barrier {
                    self.line(barrier);
                }
            }
            (Op::Load, _) => {
                let text = self.load(u)?;
                self.declare(u, "val", Operand::plain(text))?;
            }
            (Op::Store, _) => self.store(u)?,
            (Op::Vectorize, _) if self.plan.fragments.contains(&u.id()) => {
                let elements =
                    src.iter().map(|s| self.element(s)).collect::<Result<Vec<_>, _>>()?;
                let mut names = Vec::new();
                for word in self.registers(u.dtype(), &elements)? {
                    let name = self.fresh("frag");
                    self.line(&format!("unsigned int {name} = {word};"));
                    names.push(name);
                }
                self.remember(u, Operand::from_lanes(names));
            }
            (Op::Wmma, Arg::Wmma { core, .. }) => {
                let (a, b, c) =
                    (self.fragment(&src[0])?, self.fragment(&src[1])?, self.text(&src[2])?);
                let dialect = self.cx.dialect;
                let text = dialect
                    .wmma(&mut self.cx, core, [&a, &b], &c)
                    .ok_or("the language has no tensor cores")?;
                self.declare(u, "wmma", Operand::plain(text))?;
            }
            // A statement of its own, so that all threads execute it.
            (Op::Shuffle, Arg::Shuffle(bits)) => {
                let threads =
                    self.extents.get(&SpecialKind::Local).map_or(1, |e| e.iter().product());
                let dialect = self.cx.dialect;
                let lane = |x: String| {
                    dialect.shuffle(&x, *bits, threads).ok_or("the language has no shuffles")
                };
                let operand = match u.dtype().lanes {
                    1 => Operand::plain(lane(self.text(&src[0])?)?),
                    n => {
                        let lanes = (0..n as usize).map(|l| Ok(lane(self.lane(&src[0], l)?)?));
                        Operand::from_lanes(lanes.collect::<Result<Vec<_>, String>>()?)
                    }
                };
                self.declare(u, "shfl", operand)?;
            }
            (Op::Vectorize, _) => {
                if src.len() != u.dtype().lanes as usize {
                    return Err(format!("{} lanes from {} scalars", u.dtype().lanes, src.len()));
                }
                let lanes = match src.iter().all(|s| *s == src[0]) {
                    true => vec![self.text(&src[0])?; src.len()],
                    false => src.iter().map(|s| self.text(s)).collect::<Result<Vec<_>, _>>()?,
                };
                self.value(
                    u,
                    "vec",
                    if src.len() == 1 {
                        Operand::plain(lanes[0].clone())
                    } else {
                        Operand::from_lanes(lanes)
                    },
                )?;
            }
            (Op::Gep, Arg::Lanes(picked)) => {
                if picked.len() != u.dtype().lanes as usize {
                    return Err(format!("{} lanes are picked", picked.len()));
                }
                if let Some(past) = picked.iter().find(|l| **l >= src[0].dtype().lanes) {
                    return Err(format!("there is no lane {past} in {:?}", src[0]));
                }
                let lanes = picked
                    .iter()
                    .map(|l| self.lane(&src[0], *l as usize))
                    .collect::<Result<Vec<_>, _>>()?;
                self.value(
                    u,
                    "lane",
                    if lanes.len() == 1 {
                        Operand::plain(lanes[0].clone())
                    } else {
                        Operand::from_lanes(lanes)
                    },
                )?;
            }
            (op, _) if op.is_alu() => {
                let operand = self.alu(u)?;
                self.value(
                    u,
                    if matches!(op, Op::Cast | Op::Bitcast) { "cast" } else { "alu" },
                    operand,
                )?;
            }
            _ => return Err("it does not belong in a linear program".to_string()),
        }
        Ok(())
    }

    /// Records a value under a name that is already in the text.
    fn name(&mut self, u: &UOp, name: String) {
        self.remember(u, Operand::plain(name));
    }

    /// Records a value under names that are already in the text.
    fn remember(&mut self, u: &UOp, operand: Operand) {
        if let Some((_, inside)) = self.open.last_mut() {
            inside.push(u.id());
        }
        self.values.insert(u.id(), Value { operand, named: true });
    }

    /// A name of a kind that no other value has.
    fn fresh(&mut self, kind: &'static str) -> String {
        let taken = self.taken.entry(kind).or_default();
        *taken += 1;
        kind.to_string() + &(*taken - 1).to_string()
    }

    /// A thread's part of a tensor-core operand, as registers.
    fn registers(&mut self, dtype: DType, elements: &[Element]) -> Result<Vec<String>, String> {
        let dialect = self.cx.dialect;
        dialect
            .fragment(&mut self.cx, dtype.scalar, elements)
            .ok_or_else(|| "the language has no tensor cores".to_string())
    }

    /// The registers of a matrix that a tensor core takes.
    fn fragment(&mut self, u: &UOp) -> Result<Vec<String>, String> {
        let lanes = self.operand(u)?.lanes.ok_or("its matrices are not in registers")?;
        if u.as_const().is_none() {
            return Ok(lanes.to_vec());
        }
        self.registers(u.dtype(), &lanes.iter().cloned().map(Element::Value).collect::<Vec<_>>())
    }

    /// A value as an element of a matrix for a tensor core.
    fn element(&mut self, s: &UOp) -> Result<Element, String> {
        match s.as_gep() {
            Some(Gep { x, lanes: [lane], .. }) => {
                Ok(Element::Lane(self.named(x)?, x.dtype(), *lane as usize))
            }
            _ => Ok(Element::Value(self.text(s)?)),
        }
    }

    /// Remembers a value: as text for its one user, or under a new name.
    fn value(&mut self, u: &UOp, kind: &'static str, operand: Operand) -> Result<(), String> {
        let short = self.plan.short.contains(&u.id())
            && self.values.get(&u.operand().id()).is_some_and(|v| v.named);
        if short || (self.plan.inline.contains(&u.id()) && operand.len() <= MAX_INLINE) {
            self.values.insert(u.id(), Value { operand, named: short });
            return Ok(());
        }
        self.declare(u, kind, operand)
    }

    /// Gives a value a name of its kind.
    fn declare(&mut self, u: &UOp, kind: &'static str, operand: Operand) -> Result<(), String> {
        let (ty, text) =
            (self.cx.ty(u.dtype())?, vector::into_whole(&mut self.cx, operand, u.dtype())?);
        let name = self.fresh(kind);
        self.line_of(&[&ty, " ", &name, " = ", &text, ";"]);
        self.name(u, name);
        Ok(())
    }

    fn operand(&self, u: &UOp) -> Result<Operand, String> {
        match (self.values.get(&u.id()), u.as_const()) {
            (_, Some(value)) => literal(&self.cx, value, u.dtype()),
            (Some(value), None) => Ok(value.operand.clone()),
            (None, None) => Err(format!(
                "its operand {u:?} does not stand before it, or stands in a block that is closed"
            )),
        }
    }

    fn text(&mut self, u: &UOp) -> Text {
        if u.as_const().is_none()
            && let Some(value) = self.values.get(&u.id())
        {
            return vector::whole(&mut self.cx, &value.operand, u.dtype());
        }
        let operand = self.operand(u)?;
        vector::into_whole(&mut self.cx, operand, u.dtype())
    }

    /// The value as text that may be written more than once.
    fn named(&mut self, u: &UOp) -> Text {
        if let Some(value) = self.values.get(&u.id()).filter(|v| !v.named) {
            let operand = value.operand.clone();
            let kind = if matches!(u.op(), Op::Cast | Op::Bitcast) { "cast" } else { "alu" };
            self.declare(u, kind, operand)?;
        }
        self.text(u)
    }

    /// One lane of a value.
    fn lane(&mut self, u: &UOp, lane: usize) -> Text {
        if u.as_const().is_some() || !self.values.contains_key(&u.id()) {
            if let Some(lanes) = self.operand(u)?.lanes {
                return Ok(lanes[lane].clone());
            }
        } else if let Some(lanes) = &self.values[&u.id()].operand.lanes {
            return Ok(lanes[lane].clone());
        }
        let name = self.named(u)?;
        Ok(self.cx.lane(u.dtype(), &name, lane))
    }

    fn alu(&mut self, u: &UOp) -> Result<Operand, String> {
        let src = u.src();
        let from = if u.op() == Op::Where { u.dtype() } else { src[0].dtype() };
        if src.iter().any(|s| s.dtype().lanes != u.dtype().lanes) {
            return Err("the operands differ in lanes".to_string());
        }
        let args =
            src.iter().map(|s| self.operand(s)).collect::<Result<SmallVec<[Operand; 3]>, _>>()?;
        let index = self.plan.index.contains(&u.id());
        let alu = Alu { op: u.op(), dtype: u.dtype(), from, args: &args };
        if u.dtype().lanes == 1 {
            return expr::scalar(&mut self.cx, &alu, index);
        }
        if u.op() == Op::Detach {
            return Ok(args[0].clone());
        }
        let dialect = self.cx.dialect;
        if self.cx.has_vector(u.dtype())
            && self.cx.has_vector(from)
            && let Some(operand) = dialect.vector_alu(&mut self.cx, &alu)
        {
            return operand;
        }
        if dialect.lanes_in_helpers() {
            return vector::lanes_in_helper(&mut self.cx, &alu).map(Operand::plain);
        }
        let lanes = src.iter().map(|s| (0..from.lanes as usize).map(|l| self.lane(s, l)).collect());
        let lanes = lanes.collect::<Result<Vec<Vec<String>>, String>>()?;
        vector::lanes(&mut self.cx, &alu, index, |_, i, l| lanes[i][l].clone())
            .map(Operand::from_lanes)
    }

    /// The buffer and the offset of an index. The offset must be a name if it is written more than
    /// once.
    fn place(
        &mut self,
        Index { buffer, index: offset, .. }: Index<'_>,
        dtype: DType,
        repeated: bool,
    ) -> Result<(&'static str, String, String, bool), String> {
        let words = self.cx.dialect.words();
        let space = if buffer.op() == Op::DefineShared { words.local } else { words.global };
        let aligned = plan::is_multiple(offset, dtype.lanes as i64);
        Ok((
            space,
            self.text(buffer)?,
            if repeated { self.named(offset)? } else { self.text(offset)? },
            aligned,
        ))
    }

    fn load(&mut self, u: &UOp) -> Text {
        let Load { place: index, alt, .. } = u.as_load().ok_or_else(|| not_an_index(u))?;
        let dtype = u.dtype();
        let dialect = self.cx.dialect;
        let is_true = if dtype.is_bool() { "!=0" } else { "" };
        let (space, base, offset, aligned) = self.place(index, dtype, false)?;
        let place = Address { space, base: &base, offset: &offset, aligned };
        let value = if dtype.lanes == 1 {
            if dtype.is_bool() {
                format!("({}{is_true})", place.element(0))
            } else {
                place.element(0)
            }
        } else if self.cx.has_vector(dtype)
            && let Some(text) = dialect.load(&mut self.cx, &place, dtype)
        {
            text
        } else {
            let (space, base, offset, aligned) = self.place(index, dtype, true)?;
            let place = Address { space, base: &base, offset: &offset, aligned };
            let lanes: Vec<String> = (0..dtype.lanes as usize)
                .map(|l| format!("{}{is_true}", place.element(l)))
                .collect();
            let lanes: Vec<String> = if dtype.is_bool() {
                lanes.iter().map(|l| format!("({l})")).collect()
            } else {
                lanes
            };
            self.cx.build(dtype, &lanes)?
        };
        match (index.mask, alt) {
            (None, _) => Ok(value),
            (Some(_), None) => {
                Err("its index is masked, but it has no alternative value".to_string())
            }
            (Some(mask), Some(alt)) => {
                Ok(format!("({}?{value}:{})", self.text(mask)?, self.text(alt)?))
            }
        }
    }

    fn store(&mut self, u: &UOp) -> Result<(), String> {
        let Store { place: index, value, .. } = u.as_store().ok_or_else(|| not_an_index(u))?;
        let dtype = value.dtype();
        let dialect = self.cx.dialect;
        let (space, base, offset, aligned) = self.place(index, dtype, false)?;
        let place = Address { space, base: &base, offset: &offset, aligned };
        if dtype.lanes == 1 {
            let text = self.text(value)?;
            let element = place.element(0);
            self.line_of(&[&element, " = ", &text, ";"]);
            return Ok(());
        }
        if self.cx.has_vector(dtype) {
            let text = self.text(value)?;
            if let Some(statement) = dialect.store(&mut self.cx, &place, dtype, &text) {
                self.line(&statement);
                return Ok(());
            }
        }
        let (space, base, offset, aligned) = self.place(index, dtype, true)?;
        let place = Address { space, base: &base, offset: &offset, aligned };
        for l in 0..dtype.lanes as usize {
            let text = self.lane(value, l)?;
            let element = place.element(l);
            self.line_of(&[&element, " = ", &text, ";"]);
        }
        Ok(())
    }
}

/// The text without a pair of parentheses around the whole of it.
fn without_parentheses(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else { return text };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += (c == '(') as i32 - (c == ')') as i32;
        if depth < 0 {
            return text;
        }
    }
    inner
}
