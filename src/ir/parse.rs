//! Parser of text IR: the lines that [`print`](super::print) writes, or a person wrote.
//!
//! ```text
//! %0 = Param f32 {slot=0 len=6 device=CPU}   ; a comment
//! %1 = Reshape f32 %0 {reshape [2,3]}
//! %2 = Add f32 %1, 1.0:f32
//! ```
//!
//! Any text gives either a graph or an [`Error::Parse`] with the line. Each node of the graph has
//! the operands and the payload that its op needs, and they fit each other. The verifiers check
//! dtypes, and which ops a stage allows.

use super::check::check_payload;
use super::doc::sample;
use super::payload::Field;
use super::print::word_char;
use super::{Arg, Op, Src, UOp};
use crate::dtype::{Const, DType, Scalar};
use crate::error::{Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::str::FromStr;

/// Parses a graph. The last line is the root; every other line must be used by a later one.
pub fn parse(text: &str) -> Result<UOp> {
    let entries = entries(text, false)?;
    let Some(root) = entries.last().map(|e| e.node.clone()) else {
        return Err(Error::Parse { line: 1, msg: "there is no node".into() });
    };
    let used: FxHashSet<u64> =
        entries.iter().flat_map(|e| e.node.src().iter().map(UOp::id)).collect();
    match entries.iter().find(|e| e.node != root && !used.contains(&e.node.id())) {
        Some(e) => Err(Error::Parse {
            line: e.line,
            msg: "no later line uses this node, and the last line is the root".into(),
        }),
        None => Ok(root),
    }
}

/// Parses a linear program: its nodes in the order of the lines. Indentation has no meaning.
pub fn parse_program(text: &str) -> Result<Vec<UOp>> {
    Ok(entries(text, true)?.into_iter().filter(|e| e.listed).map(|e| e.node).collect())
}

struct Entry {
    line: usize,
    node: UOp,
    /// True if the node is in the list of a program; a line with `~` only defines its node.
    listed: bool,
}

fn entries(text: &str, program: bool) -> Result<Vec<Entry>> {
    let mut defined: FxHashMap<u64, UOp> = FxHashMap::default();
    let mut entries = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let mut p = Line { rest: line };
        let entry =
            p.entry(&mut defined, program).map_err(|msg| Error::Parse { line: i + 1, msg })?;
        entries.extend(entry.map(|(node, listed)| Entry { line: i + 1, node, listed }));
    }
    Ok(entries)
}

/// The most axes of a movement: more than any tensor has. Algorithms over axes may be quadratic.
const MAX_RANK: usize = 256;
/// The result of a parser; the caller adds the line number to the message.
pub(super) type Parsed<T> = Result<T, String>;

/// The rest of a line.
pub(super) struct Line<'a> {
    rest: &'a str,
}

impl<'a> Line<'a> {
    /// Returns a definition of a node, or in a program its number alone; none for a blank line.
    fn entry(
        &mut self,
        defined: &mut FxHashMap<u64, UOp>,
        program: bool,
    ) -> Parsed<Option<(UOp, bool)>> {
        if self.at_end() {
            return Ok(None);
        }
        let listed = !(program && self.eat('~'));
        let number = self.reference()?;
        if program && listed && self.at_end() {
            return find(defined, number).map(|u| Some((u, true)));
        }
        self.expect('=')?;
        let node = self.node(defined)?;
        if !self.at_end() {
            return Err(format!("the line should end before {}", show(self.rest)));
        }
        match defined.insert(number, node.clone()) {
            Some(_) => Err(format!("%{number} is defined a second time")),
            None => Ok(Some((node, listed))),
        }
    }

    fn node(&mut self, defined: &FxHashMap<u64, UOp>) -> Parsed<UOp> {
        let name = self.word("an op")?;
        let op = Op::from_name(name).ok_or_else(|| format!("there is no op {}", show(name)))?;
        let dtype = self.word("a dtype")?;
        let dtype = dtype_of(dtype)?;
        if op == Op::Const {
            let value = literal(self.word("a value")?, dtype)?;
            return Ok(UOp::literal(value, dtype));
        }
        let mut src = Src::new();
        if !self.at_end() && !self.sees('{') {
            src.push(self.operand(defined)?);
            while self.eat(',') {
                src.push(self.operand(defined)?);
            }
        }
        if !op.takes(src.len()) {
            let least = if op.variadic() { "at least " } else { "" };
            let names = if op.operands().is_empty() {
                String::new()
            } else {
                format!(" ({})", op.operands().join(", "))
            };
            return Err(format!(
                "{op:?} takes {least}{} operands{names}, not {}",
                op.arity(),
                src.len()
            ));
        }
        let arg = self.payload(op, &src)?;
        Ok(UOp::new(op, dtype, src, arg))
    }

    fn operand(&mut self, defined: &FxHashMap<u64, UOp>) -> Parsed<UOp> {
        if self.sees('%') {
            let number = self.reference()?;
            return find(defined, number);
        }
        let word = self.word("an operand, %n or value:dtype")?;
        let Some((value, dtype)) = word.rsplit_once(':') else {
            return Err(format!("{} should be %n or value:dtype, such as 1.0:f32", show(word)));
        };
        let dtype = dtype_of(dtype)?;
        Ok(UOp::literal(literal(value, dtype)?, dtype))
    }

    /// Returns the payload of an op, which fits the operands.
    fn payload(&mut self, op: Op, src: &[UOp]) -> Parsed<Arg> {
        match op {
            Op::Buffer => {
                return Err("a Buffer is storage of a running process and cannot come from text; \
                            write a Param"
                    .into());
            }
            Op::Kernel | Op::Source | Op::Loop => {
                return Err(format!("the payload of {op:?} cannot come from text"));
            }
            _ => {}
        }
        let sample = sample(op);
        if !self.eat('{') {
            let optional = sample.is_empty() || Arg::is_optional(op);
            return if optional {
                Ok(Arg::None)
            } else {
                Err(format!("{op:?} needs a payload such as {sample}"))
            };
        }
        if sample.is_empty() {
            return Err(format!("{op:?} carries no payload"));
        }
        let arg = self
            .fields(op)
            .and_then(|arg| check_payload(op, src, &arg).map(|()| arg))
            .map_err(|e| format!("{e} in the payload of {op:?}, such as {sample}"))?;
        self.expect('}')?;
        Ok(arg)
    }

    fn fields(&mut self, op: Op) -> Parsed<Arg> {
        match Arg::read(op, self)? {
            Arg::Var { name, min, max } if self.starts("value") => {
                Ok(Arg::BoundVar { name, min, max, value: Field::read(self, "value")? })
            }
            arg => Ok(arg),
        }
    }

    /// Skips blanks; true if nothing or only a comment is left.
    fn at_end(&mut self) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        self.rest.is_empty() || self.rest.starts_with(';')
    }

    fn sees(&mut self, c: char) -> bool {
        !self.at_end() && self.rest.starts_with(c)
    }

    /// Returns true if the next word begins with the text.
    pub(super) fn starts(&mut self, word: &str) -> bool {
        !self.at_end() && self.rest.starts_with(word)
    }

    fn eat(&mut self, c: char) -> bool {
        let sees = self.sees(c);
        if sees {
            self.rest = &self.rest[c.len_utf8()..];
        }
        sees
    }

    fn expect(&mut self, c: char) -> Parsed<()> {
        if self.eat(c) { Ok(()) } else { Err(format!("expected {c:?} before {}", show(self.rest))) }
    }

    pub(super) fn word(&mut self, what: &str) -> Parsed<&'a str> {
        let end = if self.at_end() {
            0
        } else {
            self.rest.find(|c| !word_char(c)).unwrap_or(self.rest.len())
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.is_empty() {
            Err(format!("expected {what} before {}", show(rest)))
        } else {
            Ok(word)
        }
    }

    pub(super) fn keyword(&mut self, keyword: &str) -> Parsed<()> {
        let word = self.word(keyword)?;
        if word == keyword {
            Ok(())
        } else {
            Err(format!("expected {keyword}, not {}", show(word)))
        }
    }

    fn reference(&mut self) -> Parsed<u64> {
        self.expect('%')?;
        // A blank may not stand between the sign and its number.
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            self.number()
        } else {
            Err("expected a number after %".into())
        }
    }

    pub(super) fn number<T: FromStr>(&mut self) -> Parsed<T> {
        let word = self.word("a number")?;
        // `from_str` accepts a plus sign, which is never printed.
        let value = if word.starts_with('+') { None } else { word.parse().ok() };
        value.ok_or_else(|| format!("{} is not a number that fits here", show(word)))
    }

    pub(super) fn pair(&mut self) -> Parsed<(usize, usize)> {
        self.expect('(')?;
        let a = self.number()?;
        self.expect(',')?;
        let b = self.number()?;
        self.expect(')')?;
        Ok((a, b))
    }

    pub(super) fn flag(&mut self) -> Parsed<bool> {
        match self.word("true or false")? {
            "true" => Ok(true),
            "false" => Ok(false),
            word => Err(format!("expected true or false, not {}", show(word))),
        }
    }

    pub(super) fn list<T, L: FromIterator<T>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<L> {
        self.expect('[')?;
        let mut items = Vec::new();
        if !self.eat(']') {
            items.push(item(self)?);
            while self.eat(',') {
                items.push(item(self)?);
            }
            self.expect(']')?;
        }
        Ok(items.into_iter().collect())
    }

    /// Returns a list with an item per axis.
    pub(super) fn axes<T, L: FromIterator<T>>(
        &mut self,
        item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<L> {
        let items: Vec<T> = self.list(item)?;
        if items.len() > MAX_RANK {
            return Err(format!("{} axes are more than {MAX_RANK}", items.len()));
        }
        Ok(items.into_iter().collect())
    }

    pub(super) fn field(&mut self, key: &str) -> Parsed<()> {
        let word = self.word(key)?;
        if word == key && self.eat('=') {
            Ok(())
        } else {
            Err(format!("expected {key}=, not {}", show(word)))
        }
    }

    pub(super) fn one_of<T: Copy + std::fmt::Debug>(&mut self, all: &[T]) -> Parsed<T> {
        let word = self.word("a name")?;
        let found = all.iter().find(|t| format!("{t:?}") == word);
        found.copied().ok_or_else(|| format!("expected one of {all:?}, not {}", show(word)))
    }

    /// Returns a word, or a text in quotes.
    pub(super) fn name(&mut self) -> Parsed<String> {
        if !self.eat('"') {
            return self.word("a name").map(String::from);
        }
        let mut name = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next() {
                Some('"') => break,
                Some('\\') => name.push(match chars.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some(c @ ('"' | '\\')) => c,
                    Some('u') => {
                        let code = chars.as_str().strip_prefix('{').and_then(|s| s.split_once('}'));
                        let (code, rest) =
                            code.ok_or("expected \\u{…} with a hexadecimal number")?;
                        chars = rest.chars();
                        let c = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
                        c.ok_or_else(|| format!("\\u{{{}}} is no character", show(code)))?
                    }
                    _ => return Err("an escape is one of \\\" \\\\ \\n \\t \\u{…}".into()),
                }),
                Some(c) => name.push(c),
                None => return Err("the quotes are not closed".into()),
            }
        }
        self.rest = chars.as_str();
        Ok(name)
    }
}

fn find(defined: &FxHashMap<u64, UOp>, number: u64) -> Parsed<UOp> {
    defined.get(&number).cloned().ok_or_else(|| format!("%{number} is not defined above this line"))
}

fn dtype_of(text: &str) -> Parsed<DType> {
    // No dtype is longer, and the message quotes the text.
    if text.len() > 16 {
        Err(format!("there is no dtype {}", show(text)))
    } else {
        text.parse().map_err(|e: Error| e.to_string())
    }
}

/// Parses a value of the dtype. Decimals are rounded; integers and floats that do not fit are
/// errors.
fn literal(text: &str, dtype: DType) -> Parsed<Const> {
    let wrong = || format!("{} is not a value of {dtype}", show(text));
    let float = |value: f64| {
        let rounded = Const::Float(value).normalize(dtype);
        let finite = |c: Const| c.as_f64(dtype).is_finite();
        // Rust's parser returns infinity for large numbers, and accepts more names of it.
        let named = matches!(text, "inf" | "-inf" | "nan")
            && (rounded == Const::Float(value) || value.is_nan());
        let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if named || (plain && finite(rounded)) { Ok(rounded) } else { Err(wrong()) }
    };
    match dtype.scalar {
        Scalar::Void => Err("void has no values".into()),
        Scalar::Bool => text.parse().map(Const::Bool).map_err(|_| wrong()),
        // An f32 is not parsed as f64, because rounding twice can give another value.
        Scalar::F32 => text.parse::<f32>().map_err(|_| wrong()).and_then(|x| float(x as f64)),
        _ if dtype.is_float() => text.parse().map_err(|_| wrong()).and_then(float),
        _ if text.starts_with('+') => Err(wrong()),
        Scalar::U64 => text.parse::<u64>().map(|v| Const::Int(v as i64)).map_err(|_| wrong()),
        _ => match text.parse().map(Const::Int) {
            Ok(c) if c.normalize(dtype) == c => Ok(c),
            _ => Err(wrong()),
        },
    }
}

/// Text for a message, quoted and shortened.
pub(super) fn show(text: &str) -> String {
    let short: String = text.chars().take(24).collect();
    match short.as_str() {
        "" => "the end of the line".into(),
        _ if short.len() < text.len() => format!("{:?}", short + "…"),
        _ => format!("{short:?}"),
    }
}
