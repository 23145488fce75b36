//! Text out: graphs and programs as lines of text IR, which [`parse`](super::parse) reads back to
//! the same nodes, and short forms for messages.
//!
//! One node stands on a line, after its operands; literals stand inside the lines that use them.
//! Numbers and order follow from structure alone, so equal graphs print equal text in every
//! process. Nothing here recurses deeper than a fixed bound.

use super::{Arg, LoadHint, Loop, UOp, toposort_until};
use crate::dtype::{Const, DType, Scalar};
use crate::shape::Movement;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::fmt::{self, Display, Write};

/// The number of each printed node, by its id.
type Numbers = FxHashMap<u64, usize>;

/// The graph under a root as text, one node per line, the root last.
pub fn print(root: &UOp) -> String {
    let order = root.toposort();
    let mut numbers = Numbers::default();
    let mut out = String::new();
    for u in order.iter().filter(|u| !inline(u) || *u == root) {
        let n = numbers.len();
        numbers.insert(u.id(), n);
        full_line(&mut out, u, &numbers);
    }
    out
}

/// The `max_lines` nodes nearest to the root, numbered as in [`print()`](print()), under a line
/// that counts the others. For graphs too large to read.
pub fn print_part(root: &UOp, max_lines: usize) -> String {
    let mut order = root.toposort();
    order.retain(|u| !inline(u) || u == root);
    let numbers: Numbers = order.iter().enumerate().map(|(n, u)| (u.id(), n)).collect();
    let mut out = String::new();
    let hidden = order.len().saturating_sub(max_lines);
    if hidden > 0 {
        let nodes = if hidden == 1 { "node" } else { "nodes" };
        writeln!(out, "… {hidden} more {nodes}").expect(STRING);
    }
    let mut near = FxHashSet::default();
    let mut queue = VecDeque::from([root]);
    while near.len() < max_lines
        && let Some(u) = queue.pop_front()
    {
        // A node may wait in the queue several times; what is taken from it in all is bounded by
        // the operands of the lines shown.
        if near.insert(u.id()) {
            queue.extend(u.src().iter().filter(|s| !inline(s)));
        }
    }
    for u in order.iter().filter(|u| near.contains(&u.id())) {
        full_line(&mut out, u, &numbers);
    }
    out
}

/// A linear program as text: the nodes of the list in its order, two spaces deeper in each open
/// loop or guarded region.
///
/// A list that is no sound program prints too, for the messages that say so. An operand that is not
/// listed before its user is defined by a line that begins with `~`; a node that is listed again,
/// or after such a line, is its number alone.
pub fn print_program(list: &[UOp]) -> String {
    let closed: FxHashSet<u64> =
        list.iter().filter(|u| closes(u)).filter_map(|u| Some(u.src().first()?.id())).collect();
    let mut numbers = Numbers::default();
    let mut out = String::new();
    let mut depth = 0usize;
    for u in list {
        if closes(u) {
            depth = depth.saturating_sub(1);
        }
        if u.src().iter().any(|s| !inline(s) && !numbers.contains_key(&s.id())) {
            let known = |s: &UOp| numbers.contains_key(&s.id());
            let missing = toposort_until(u.src(), known);
            for m in missing.iter().filter(|m| !inline(m)) {
                let n = numbers.len();
                if numbers.contains_key(&m.id()) {
                    continue;
                }
                numbers.insert(m.id(), n);
                indent(&mut out, depth);
                out.push('~');
                full_line(&mut out, m, &numbers);
            }
        }
        indent(&mut out, depth);
        let n = numbers.len();
        match numbers.get(&u.id()) {
            Some(n) => writeln!(out, "%{n}").expect(STRING),
            None => {
                numbers.insert(u.id(), n);
                full_line(&mut out, u, &numbers);
            }
        }
        if closed.contains(&u.id()) {
            depth += 1;
        }
    }
    out
}

const STRING: &str = "a string takes all text";

/// Past this depth lines stay where they are, so that the size of the text is linear in the list.
const DEEPEST: usize = 32;

fn indent(out: &mut String, depth: usize) {
    (0..depth.min(DEEPEST)).for_each(|_| out.push_str("  "));
}

fn closes(u: &UOp) -> bool {
    matches!(u.op(), super::Op::EndRange | super::Op::EndIf)
}

/// True if the node is written inside the lines of its users.
fn inline(u: &UOp) -> bool {
    u.as_const().is_some()
}

fn full_line(out: &mut String, u: &UOp, numbers: &Numbers) {
    line(out, u, numbers).expect(STRING)
}

fn line(out: &mut impl Write, u: &UOp, numbers: &Numbers) -> fmt::Result {
    write!(out, "%{} = {} {}", numbers[&u.id()], u.op().name(), u.dtype())?;
    if let Some(c) = u.as_const() {
        return writeln!(out, " {}", Literal(c, u.dtype()));
    }
    for (i, s) in u.src().iter().enumerate() {
        out.write_str(if i == 0 { " " } else { ", " })?;
        match s.as_const() {
            Some(c) => write!(out, "{}:{}", Literal(c, s.dtype()), s.dtype())?,
            None => write!(out, "%{}", numbers[&s.id()])?,
        }
    }
    if *u.arg() != Arg::None {
        write!(out, " {:?}", u.arg())?;
    }
    out.write_char('\n')
}

/// A literal's value, in the fewest digits that mean it in its dtype.
struct Literal(Const, DType);

impl Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1.scalar) {
            (Const::Int(i), Scalar::U64) => write!(f, "{}", i as u64),
            // What a float of up to 32 bits holds is an f32, and that needs fewer digits than the
            // same value among f64.
            (Const::Float(x), s) if s != Scalar::F64 && x as f32 as f64 == x => {
                write!(f, "{:?}", x as f32)
            }
            (c, _) => write!(f, "{c}"),
        }
    }
}

/// The payload in braces, as it stands in text IR. The names of the fields tell the variants apart.
impl fmt::Debug for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        match self {
            Arg::None => {}
            Arg::Const(c) => write!(f, "const={c}")?,
            Arg::Storage(s) => write!(
                f,
                "buffer id={} len={} device={}",
                s.storage.id(),
                s.storage.len(),
                Bare(s.storage.device().as_str())
            )?,
            Arg::Param { slot, len, device } => {
                write!(f, "slot={slot} len={len} device={}", Bare(device.as_str()))?
            }
            Arg::Var { name, min, max } => write!(f, "name={} min={min} max={max}", Quoted(name))?,
            Arg::BoundVar { name, min, max, value } => {
                write!(f, "name={} min={min} max={max} value={value}", Quoted(name))?
            }
            Arg::Slice(s) => write!(
                f,
                "axis={} start={} len={}",
                s.axis,
                Quoted(&s.start.text()),
                Quoted(&s.len.text())
            )?,
            Arg::Iota { len } => write!(f, "len={len}")?,
            Arg::Movement(m) => {
                write!(f, "{} ", m.name())?;
                match &**m {
                    Movement::Reshape(d) | Movement::Expand(d) | Movement::Permute(d) => {
                        list(f, d)?
                    }
                    Movement::Pad(p) | Movement::Shrink(p) => {
                        list(f, p.iter().map(|(a, b)| format!("({a},{b})")))?
                    }
                    Movement::Flip(flags) => list(f, flags)?,
                }
            }
            Arg::Reduce { fold, axes } if axes.is_empty() => write!(f, "fold={fold:?}")?,
            Arg::Reduce { fold, axes } => {
                write!(f, "fold={fold:?} axes=")?;
                list(f, axes)?;
            }
            Arg::Gather { axis } | Arg::Cat { axis } => write!(f, "axis={axis}")?,
            Arg::Scatter { combine, axis } => write!(f, "combine={combine:?} axis={axis}")?,
            Arg::Leaf(id) => write!(f, "leaf={id}")?,
            Arg::Gradient(g) => write!(f, "gradient={}", g.id())?,
            Arg::Device(d) => write!(f, "device={}", Bare(d.as_str()))?,
            Arg::Shards { devices, axis } => {
                write!(f, "devices={}", Bare(devices.as_str()))?;
                axis.map_or(Ok(()), |axis| write!(f, " axis={axis}"))?;
            }
            Arg::Kernel(k) => {
                write!(f, "kernel={:016x} outputs=", k.ast.key())?;
                list(
                    f,
                    k.outputs
                        .iter()
                        .map(|(dtype, shape)| format!("{dtype}{shape:?}").replace(", ", "x")),
                )?;
            }
            Arg::Loop(l) => {
                let Loop { body, count, reverse, carries, elements } = &**l;
                write!(
                    f,
                    "body={:016x} count={count} reverse={reverse} carries={carries} \
                     elements={elements}",
                    body.key()
                )?;
            }
            Arg::Output(i) => write!(f, "output={i}")?,
            Arg::Source(s) => write!(
                f,
                "device={} entry={} text={}",
                Bare(s.device.as_str()),
                Bare(&s.entry),
                Quoted(&s.text)
            )?,
            Arg::Global { slot, len } => write!(f, "slot={slot} len={len}")?,
            Arg::Shared { id, len } => write!(f, "id={id} len={len}")?,
            Arg::Acc(id) => write!(f, "acc={id}")?,
            Arg::LoadHint(LoadHint { stage_at, prefetch_in }) => {
                let fields = [("stage_at", stage_at), ("prefetch_in", prefetch_in)];
                let mut given = fields.into_iter().filter_map(|(k, v)| Some((k, (*v)?)));
                if let Some((key, id)) = given.next() {
                    write!(f, "{key}={id}")?;
                }
                given.try_for_each(|(key, id)| write!(f, " {key}={id}"))?
            }
            Arg::Range { id, kind, lanes } => {
                let lanes = if *lanes { " lanes" } else { "" };
                write!(f, "id={id} kind={kind:?}{lanes}")?
            }
            Arg::Special { kind, dim, extent } => {
                write!(f, "kind={kind:?} dim={dim} extent={extent}")?
            }
            Arg::Lanes(lanes) => {
                f.write_str("lanes ")?;
                list(f, lanes)?;
            }
            Arg::Wmma { core, lanes } => {
                write!(f, "core={} lanes=", core.name)?;
                list(f, lanes)?;
            }
            Arg::Shuffle(bits) => write!(f, "xor={bits}")?,
            Arg::ThreadOrder(ids) => {
                f.write_str("threads ")?;
                list(f, ids)?;
            }
        }
        f.write_str("}")
    }
}

fn list<T: Display>(f: &mut fmt::Formatter<'_>, items: impl IntoIterator<Item = T>) -> fmt::Result {
    f.write_str("[")?;
    for (i, x) in items.into_iter().enumerate() {
        write!(f, "{}{x}", if i == 0 { "" } else { "," })?;
    }
    f.write_str("]")
}

/// True if the character may be part of a word of text IR.
pub(super) fn word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.+-:/".contains(c)
}

/// A name in quotes; `parse` undoes the escapes.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A name as it stands where it is one word, else in quotes.
struct Bare<'a>(&'a str);

impl Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(word_char) {
            f.write_str(self.0)
        } else {
            Quoted(self.0).fmt(f)
        }
    }
}

/// The depth, and the number of bytes, to which a message prints a node.
const BRIEF_DEPTH: usize = 3;
const BRIEF_BYTES: usize = 200;

/// The node on one line, its operands to a small depth: `Add f32 (Mul f32 (…), 1.0)`.
impl fmt::Debug for UOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut brief = Brief(String::new());
        // An error is the full text's end, and the ellipsis already says so.
        let _ = write!(brief, "{} {}", self.op().name(), self.dtype())
            .and_then(|()| brief.rest(self, BRIEF_DEPTH));
        f.write_str(&brief.0)
    }
}

/// Text that ends in an ellipsis, and refuses more, where it would be too long.
struct Brief(String);

impl Write for Brief {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let left = BRIEF_BYTES.saturating_sub(self.0.len());
        if s.len() <= left {
            self.0.push_str(s);
            return Ok(());
        }
        self.0.push_str(&s[..s.floor_char_boundary(left)]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

impl Brief {
    /// Writes what follows op and dtype, recursing at most `depth` levels.
    fn rest(&mut self, u: &UOp, depth: usize) -> fmt::Result {
        if let Some(c) = u.as_const() {
            return write!(self, " {}", Literal(c, u.dtype()));
        }
        if !u.src().is_empty() && depth == 0 {
            self.write_str(" (…)")?;
        } else if !u.src().is_empty() {
            self.write_str(" (")?;
            for (i, s) in u.src().iter().enumerate() {
                self.write_str(if i == 0 { "" } else { ", " })?;
                match s.as_const() {
                    Some(c) => write!(self, "{}", Literal(c, s.dtype()))?,
                    None => {
                        write!(self, "{} {}", s.op().name(), s.dtype())?;
                        self.rest(s, depth - 1)?;
                    }
                }
            }
            self.write_str(")")?;
        }
        if *u.arg() != Arg::None { write!(self, " {:?}", u.arg()) } else { Ok(()) }
    }
}
