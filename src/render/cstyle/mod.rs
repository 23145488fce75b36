//! The C family: one walker over the linear program, and a dialect for each language.
//!
//! Input: the list of UOps. Output: source text. A value with one use is written in place if it is
//! short; every other value gets a name by its kind. Loads always get a name, so that no read moves
//! past a write.

mod cast;
mod clang;
mod clang_vector;
mod cuda;
mod dialect;
mod expr;
mod literal;
mod memory;
mod metal;
mod opencl;
mod plan;
mod prelude;
mod small_float;
mod value;
mod vector;

use self::dialect::{Alu, Dialect, Element, KernelSource, KernelText, Text};
use self::literal::literal;
use self::plan::Plan;
use self::prelude::Cx;
use self::value::{Operand, operands};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::typed::{Gep, Wmma};
use crate::ir::{Arg, Op, SpecialKind, UOp};
use crate::kernel::ScratchLayout;
use crate::render::facts::{self, Writer, closes, unknown_operand};
use crate::render::{Rendered, Renderer};
use crate::target::Target;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

pub use clang::Clang;
pub use cuda::Cuda;
pub use metal::Metal;
pub use opencl::OpenCl;

/// The longest text that is written inside another: past it, a line is easier to read when the
/// value has a name.
const MAX_INLINE: usize = 80;

impl<D: Dialect> Renderer for D {
    fn target(&self) -> &Target {
        Dialect::target(self)
    }
    fn render(&self, name: &str, uops: &[UOp]) -> Result<Rendered> {
        render(self, name, uops)
    }
    fn render_unaligned(&self, name: &str, uops: &[UOp]) -> Result<Rendered> {
        match self.unaligned_variant() {
            Some(dialect) => render(&dialect, name, uops),
            None => render(self, name, uops),
        }
    }
}

/// Renders a program in a dialect.
fn render(dialect: &dyn Dialect, name: &str, uops: &[UOp]) -> Result<Rendered> {
    facts::render(dialect.target(), name, uops, Walker::new(dialect, uops))
}

/// A value in the text.
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
    /// True if a value is a 64-bit float.
    doubles: bool,
    tensor_cores: bool,
    /// Loops and conditions that are open, each with the values that were named inside and end
    /// with it.
    open: Vec<(UOp, Vec<u64>)>,
    /// Declarations of shared memory, at the top of the kernel.
    shared: String,
    scratch: ScratchLayout,
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
            doubles: facts::uses_doubles(uops),
            multiplies: uops.iter().any(|u| u.op() == Op::Mul && u.dtype().is_float()),
            tensor_cores: uops.iter().any(|u| u.op() == Op::Wmma),
            open: Vec::new(),
            shared: String::new(),
            scratch: ScratchLayout::default(),
            body: String::new(),
        }
    }

    fn line(&mut self, text: &str) {
        self.line_of(&[text]);
    }

    /// Writes a line of several parts.
    fn line_of(&mut self, parts: &[&str]) {
        (0..=self.open.len()).for_each(|_| self.body.push_str("  "));
        parts.iter().for_each(|part| self.body.push_str(part));
        self.body.push('\n');
    }

    /// Declares an argument, shared memory or a position in the launch.
    fn define(&mut self, u: &UOp) -> Result<(), String> {
        let name = match u.arg() {
            Arg::Global { slot, .. } => {
                self.cx.element_type(u.dtype())?;
                self.args.push((*slot, u.dtype(), self.plan.stored.contains(&u.id())));
                format!("data{slot}")
            }
            Arg::Shared { id, len } => {
                let (name, element) = (format!("temp{id}"), self.cx.element_type(u.dtype())?);
                let at = self.scratch.place(u);
                let declared = self.cx.dialect.shared_array(element, &name, *len, at);
                self.shared += &format!("  {declared}\n");
                name
            }
            Arg::Special { kind, dim, extent } => {
                let name = format!("{}{dim}", kind.prefix());
                let position = self.cx.dialect.position(*kind, *dim as usize, &self.extents[kind]);
                let position = position.ok_or_else(|| format!("there is no {name}"))?;
                let ty = self.cx.ty(u.dtype())?;
                self.line(&format!("{ty} {name} = {position}; /* {extent} */"));
                name
            }
            _ => return Err("it has no payload".to_string()),
        };
        self.name(u, name);
        Ok(())
    }

    /// Opens or closes a loop or a condition.
    fn block(&mut self, u: &UOp) -> Result<(), String> {
        let block = u.operand();
        match (u.op(), u.arg()) {
            (Op::Range, Arg::Range { id, .. }) => {
                let (ty, extent) = (self.cx.ty(u.dtype())?, self.named(block)?);
                let name = format!("ridx{id}");
                self.line(&format!("for ({ty} {name} = 0; {name} < {extent}; {name}++) {{"));
                self.open.push((u.clone(), Vec::new()));
                self.name(u, name);
            }
            (Op::If, _) => {
                let mask = self.text(block)?;
                self.line(&format!("if ({}) {{", without_parentheses(&mask)));
                self.open.push((u.clone(), Vec::new()));
            }
            _ => {
                let closed = self.open.pop_if(|(opened, _)| opened == block);
                closes(closed.is_some(), block)?;
                for id in closed.into_iter().flat_map(|(_, inside)| inside) {
                    self.values.remove(&id);
                }
                self.line("}");
            }
        }
        Ok(())
    }

    /// Writes the matrix product of a tensor core.
    fn wmma(&mut self, u: &UOp) -> Result<(), String> {
        let Wmma { a, b, c, core, .. } = u.as_wmma().ok_or("it has no tensor core")?;
        let (a, b, c) = (self.fragment(a)?, self.fragment(b)?, self.text(c)?);
        let dialect = self.cx.dialect;
        let text = dialect
            .wmma(&mut self.cx, core, [&a, &b], &c)
            .ok_or("the language has no tensor cores")?;
        self.declare(u, "wmma", Operand::plain(text))
    }

    /// Writes a warp shuffle as a statement of its own, so that all threads execute it.
    fn shuffle(&mut self, u: &UOp, bits: usize) -> Result<(), String> {
        let threads = self.extents.get(&SpecialKind::Local).map_or(1, |e| e.iter().product());
        let dialect = self.cx.dialect;
        let lane =
            |x: String| dialect.shuffle(&x, bits, threads).ok_or("the language has no shuffles");
        let x = u.operand();
        let operand = match u.dtype().lanes {
            1 => Operand::plain(lane(self.text(x)?)?),
            n => {
                let lanes = (0..n as usize).map(|l| Ok(lane(self.lane(x, l)?)?));
                Operand::from_lanes(lanes.collect::<Result<Vec<_>, String>>()?)
            }
        };
        self.declare(u, "shfl", operand)
    }

    /// Writes a vector of scalars.
    fn vectorize(&mut self, u: &UOp) -> Result<(), String> {
        let src = u.src();
        if self.plan.fragments.contains(&u.id()) {
            let elements = src.iter().map(|s| self.element(s)).collect::<Result<Vec<_>, _>>()?;
            let mut names = Vec::new();
            for word in self.registers(u.dtype(), &elements)? {
                let name = self.fresh("frag");
                self.line(&format!("unsigned int {name} = {word};"));
                names.push(name);
            }
            self.remember(u, Operand::from_lanes(names));
            return Ok(());
        }
        let first = u.operand();
        if src.iter().any(|s| s.dtype().lanes > 1) {
            return self.concatenate(u);
        }
        let lanes = match src.iter().all(|s| s == first) {
            true => vec![self.text(first)?; src.len()],
            false => src.iter().map(|s| self.text(s)).collect::<Result<Vec<_>, _>>()?,
        };
        self.value(u, "vec", Operand::of_lanes(lanes))
    }

    /// Writes the concatenation of vectors, which has no text of its own where only lanes of it are
    /// used.
    fn concatenate(&mut self, u: &UOp) -> Result<(), String> {
        let mut lanes = Vec::new();
        for s in u.src() {
            self.named(s)?;
            for l in 0..s.dtype().lanes as usize {
                lanes.push(self.lane(s, l)?);
            }
        }
        if self.plan.reads_acc.contains(&u.id()) {
            return self.declare(u, "vec", Operand::from_lanes(lanes));
        }
        self.remember(u, Operand::from_lanes(lanes));
        Ok(())
    }

    /// Returns lanes of a vector: a two-source shuffle where the language has one.
    fn pick(&mut self, u: &UOp, picked: &[u16]) -> Result<Operand, String> {
        let x = u.operand();
        if let Some([a, b]) = x.as_vector_pair()
            && !self.plan.reads_acc.contains(&x.id())
            && picked.len() > 1
        {
            let (pair, dialect) = ([self.named(a)?, self.named(b)?], self.cx.dialect);
            if let Some(text) = dialect.shuffle_lanes(&mut self.cx, a.dtype(), &pair, picked) {
                return Ok(Operand::plain(text));
            }
        }
        let lanes = picked.iter().map(|l| self.lane(x, *l as usize));
        Ok(Operand::of_lanes(lanes.collect::<Result<Vec<_>, _>>()?))
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

    /// Returns a name of a kind that no other value has.
    fn fresh(&mut self, kind: &'static str) -> String {
        let taken = self.taken.entry(kind).or_default();
        *taken += 1;
        kind.to_string() + &(*taken - 1).to_string()
    }

    /// Returns a thread's part of a tensor-core operand, as registers.
    fn registers(&mut self, dtype: DType, elements: &[Element]) -> Result<Vec<String>, String> {
        let dialect = self.cx.dialect;
        dialect
            .fragment(&mut self.cx, dtype.scalar, elements)
            .ok_or_else(|| "the language has no tensor cores".to_string())
    }

    /// Returns the registers of a matrix that a tensor core takes.
    fn fragment(&mut self, u: &UOp) -> Result<Vec<String>, String> {
        let lanes = self.operand(u)?.lanes.ok_or("its matrices are not in registers")?;
        if u.as_const().is_none() {
            return Ok(lanes.to_vec());
        }
        self.registers(u.dtype(), &lanes.iter().cloned().map(Element::Value).collect::<Vec<_>>())
    }

    /// Returns a value as an element of a matrix for a tensor core.
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
            (self.cx.ty(u.dtype())?, vector::into_vector(&mut self.cx, operand, u.dtype())?);
        let name = self.fresh(kind);
        self.line_of(&[&ty, " ", &name, " = ", &text, ";"]);
        self.name(u, name);
        Ok(())
    }

    fn operand(&self, u: &UOp) -> Result<Operand, String> {
        match (self.values.get(&u.id()), u.as_const()) {
            (_, Some(value)) => literal(&self.cx, value, u.dtype()),
            (Some(value), None) => Ok(value.operand.clone()),
            (None, None) => Err(unknown_operand(u)),
        }
    }

    fn text(&mut self, u: &UOp) -> Text {
        if u.as_const().is_none()
            && let Some(value) = self.values.get(&u.id())
        {
            return vector::as_vector(&mut self.cx, &value.operand, u.dtype());
        }
        let operand = self.operand(u)?;
        vector::into_vector(&mut self.cx, operand, u.dtype())
    }

    /// Returns the value as text that may be written more than once.
    fn named(&mut self, u: &UOp) -> Text {
        if let Some(value) = self.values.get(&u.id()).filter(|v| !v.named) {
            let operand = value.operand.clone();
            self.declare(u, kind_of(u), operand)?;
        }
        self.text(u)
    }

    /// Returns one lane of a value.
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
        let from = u.operand_dtype();
        let args =
            src.iter().map(|s| self.operand(s)).collect::<Result<SmallVec<[Operand; 3]>, _>>()?;
        let index = self.plan.index.contains(&u.id());
        let alu = Alu { op: u.op(), dtype: u.dtype(), from, args: &args };
        if u.dtype().lanes == 1 {
            return expr::scalar(&mut self.cx, &alu, index);
        }
        if u.op() == Op::Detach {
            let [x] = operands(&args);
            return Ok(x.clone());
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
}

impl Writer for Walker<'_> {
    fn item(&mut self, u: &UOp) -> Result<(), String> {
        match (u.op(), u.arg()) {
            (Op::Const | Op::Index | Op::Sink, _) => Ok(()),
            (Op::DefineGlobal | Op::DefineShared | Op::Special, _) => self.define(u),
            (Op::Range | Op::If | Op::EndRange | Op::EndIf, _) => self.block(u),
            (Op::DefineAcc, Arg::Acc(id)) => {
                let (ty, init) = (self.cx.ty(u.dtype())?, self.text(u.operand())?);
                self.line(&format!("{ty} acc{id} = {init};"));
                self.name(u, format!("acc{id}"));
                Ok(())
            }
            (Op::Assign, _) => {
                let assign = u.expect_assign();
                let (acc, value) = (self.text(assign.acc)?, self.text(assign.value)?);
                self.line_of(&[&acc, " = ", &value, ";"]);
                // It lives as long as the accumulator, not only to the end of the block.
                self.values.insert(u.id(), Value { operand: Operand::plain(acc), named: true });
                Ok(())
            }
            (Op::Barrier, _) => {
                self.cx.dialect.words().barrier.iter().for_each(|barrier| self.line(barrier));
                Ok(())
            }
            (Op::Load, _) => {
                let text = self.load(u)?;
                self.declare(u, "val", Operand::plain(text))
            }
            (Op::Store, _) => self.store(u),
            (Op::Vectorize, _) => self.vectorize(u),
            (Op::Wmma, _) => self.wmma(u),
            (Op::Shuffle, Arg::Shuffle(bits)) => self.shuffle(u, *bits),
            (Op::Gep, Arg::Lanes(picked)) => {
                let operand = self.pick(u, picked)?;
                self.value(u, "lane", operand)
            }
            (op, _) if op.is_alu() => {
                let operand = self.alu(u)?;
                self.value(u, kind_of(u), operand)
            }
            _ => Err("it does not belong in a linear program".to_string()),
        }
    }

    fn innermost(&self) -> Option<&UOp> {
        self.open.last().map(|(open, _)| open)
    }

    fn finish(mut self, name: &str) -> Rendered {
        self.args.sort_by_key(|(slot, ..)| *slot);
        let mut local = [1; 3];
        for (size, extent) in
            local.iter_mut().zip(self.extents.get(&SpecialKind::Local).into_iter().flatten())
        {
            *size = *extent;
        }
        let kernel = KernelText {
            args: self.args,
            local,
            threaded: self.extents.contains_key(&SpecialKind::Thread),
            scratch: !self.shared.is_empty(),
            tensor_cores: self.tensor_cores,
            multiplies: self.multiplies,
            doubles: self.doubles,
            body: self.shared + &self.body,
        };
        let KernelSource { mut prelude, parts } = self.cx.dialect.kernel(&self.cx.items, &kernel);
        prelude.extend(self.cx.items);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Rendered { assumes_alignment: self.cx.aligned, ..Rendered::new(prelude, name, &parts) }
    }
}

/// Returns the prefix of the names of an elementwise op.
fn kind_of(u: &UOp) -> &'static str {
    if matches!(u.op(), Op::Cast | Op::Bitcast) { "cast" } else { "alu" }
}

/// Returns the text without a pair of parentheses around the whole of it.
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
