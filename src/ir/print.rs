//! Printer of text IR: graphs and programs as lines, which [`parse`](super::parse) turns into the
//! same nodes, and short forms of nodes for messages.
//!
//! A line has one node and follows the lines of its operands; literals are written inside the lines
//! of their users. Numbers and order depend on structure alone, so equal graphs give equal text in
//! every process. The recursion depth is bounded by a constant.

use super::{Arg, UOp, toposort_until};
use crate::dtype::{Const, DType, Scalar};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::fmt::{self, Display, Write};

/// The number of each printed node, by its id.
type Numbers = FxHashMap<u64, usize>;

/// Prints the graph under a root, one node per line, the root last.
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

/// Prints the `max_lines` nodes nearest to the root, numbered as by [`print()`](print()), under a
/// line that counts the others. For graphs too large to read.
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
        // A node may be in the queue several times, once for each operand of a printed line.
        if near.insert(u.id()) {
            queue.extend(u.src().iter().filter(|s| !inline(s)));
        }
    }
    for u in order.iter().filter(|u| near.contains(&u.id())) {
        full_line(&mut out, u, &numbers);
    }
    out
}

/// Prints a linear program: the nodes in order, indented by two spaces per open loop or
/// conditional region.
///
/// Invalid programs are printed too, for messages about them. An operand that is not listed before
/// its user is defined by a line that begins with `~`; a node that is listed again, or after such a
/// line, is its number alone.
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

/// The deepest indentation, so that the size of the text is linear in the list.
const DEEPEST: usize = 32;

fn indent(out: &mut String, depth: usize) {
    (0..depth.min(DEEPEST)).for_each(|_| out.push_str("  "));
}

fn closes(u: &UOp) -> bool {
    matches!(u.op(), super::Op::EndRange | super::Op::EndIf)
}

/// Returns true if the node is written inside the lines of its users.
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

/// A literal's value, in the fewest digits that identify it in its dtype.
struct Literal(Const, DType);

impl Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1.scalar) {
            (Const::Int(i), Scalar::U64) => write!(f, "{}", i as u64),
            // A float of up to 32 bits is an f32, which needs fewer digits than an f64.
            (Const::Float(x), s) if s != Scalar::F64 && x as f32 as f64 == x => {
                write!(f, "{:?}", x as f32)
            }
            (c, _) => write!(f, "{c}"),
        }
    }
}

/// Returns true if the character may be part of a word of text IR.
pub(super) fn word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.+-:/".contains(c)
}

/// A name in quotes, with escapes.
pub(super) struct Quoted<'a>(pub(super) &'a str);

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

/// A name, in quotes unless it is one word.
pub(super) struct Bare<'a>(pub(super) &'a str);

impl Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(word_char) {
            f.write_str(self.0)
        } else {
            Quoted(self.0).fmt(f)
        }
    }
}

/// The depth to which a message prints a node.
const BRIEF_DEPTH: usize = 3;
/// The number of bytes to which a message prints a node.
const BRIEF_BYTES: usize = 200;

/// The node on one line, with its operands to a small depth: `Add f32 (Mul f32 (…), 1.0)`.
impl fmt::Debug for UOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut brief = Brief(String::new());
        // An error means that the text is full; the ellipsis shows it.
        let _ = write!(brief, "{} {}", self.op().name(), self.dtype())
            .and_then(|()| brief.rest(self, BRIEF_DEPTH));
        f.write_str(&brief.0)
    }
}

/// A text of bounded length. When it is full it ends in an ellipsis and returns an error.
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
    /// Writes operands and payload, recursing at most `depth` levels.
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
