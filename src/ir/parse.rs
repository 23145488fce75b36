//! Text in: the lines that [`print`](super::print) writes, or a person wrote, become nodes again.
//!
//! ```text
//! %0 = Param f32 {slot=0 len=6 device=CPU}   ; a comment
//! %1 = Reshape f32 %0 {reshape [2,3]}
//! %2 = Add f32 %1, 1.0:f32
//! ```
//!
//! Whatever the text says, the answer is a graph or an [`Error::Parse`] with the line. What comes
//! out has the operands and the payload that each op needs, and movements and reduces that fit the
//! shapes under them; that dtypes agree and ops stand in their stage is for `verify/`.

use super::doc::sample;
use super::print::word_char;
use super::{
    Arg, AxisKind, Combine, DeviceName, Fold, Gradient, LoadHint, Op, Slice, SpecialKind, Src,
    TensorCore, UOp,
};
use crate::dtype::{Const, DType, Scalar};
use crate::error::{Error, Result};
use crate::shape::{Dims, Movement, SymInt, moved_extents};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::str::FromStr;

/// The graph whose root is the last line. Every other line must be used by a later one.
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

/// The nodes of a linear program in the order of its lines. Indentation means nothing.
pub fn parse_program(text: &str) -> Result<Vec<UOp>> {
    Ok(entries(text, true)?.into_iter().filter(|e| e.listed).map(|e| e.node).collect())
}

struct Entry {
    line: usize,
    node: UOp,
    /// In the list of a program; a line with `~` only defines its node.
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

/// More axes than any tensor has; algorithms over axes may take time in the square of it.
const MAX_RANK: usize = 256;
/// More loops than any kernel has; sets of ranges take a bit for each number up to the greatest.
const MAX_RANGE: u32 = 65_535;

/// A message; the line number is added by the caller.
type Parsed<T> = Result<T, String>;

/// The rest of a line.
struct Line<'a> {
    rest: &'a str,
}

impl<'a> Line<'a> {
    /// A definition (or in a program the mention) of a node; `None` for a blank line.
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
            return Ok(UOp::new(op, dtype, Src::new(), Arg::Const(value)));
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
        Ok(UOp::new(Op::Const, dtype, Src::new(), Arg::Const(literal(value, dtype)?)))
    }

    /// The payload that the op carries: the one place that says which op has which.
    fn payload(&mut self, op: Op, src: &[UOp]) -> Parsed<Arg> {
        if op == Op::Buffer {
            return Err("a Buffer is storage of a running process and cannot come from text; \
                        write a Param"
                .into());
        }
        if matches!(op, Op::Kernel | Op::Source) {
            return Err(format!("a {op:?} is code of the user's and cannot come from text"));
        }
        if op == Op::Loop {
            return Err("a Loop has a graph for its payload and cannot come from text".into());
        }
        let sample = sample(op);
        if !self.eat('{') {
            let optional = sample.is_empty() || matches!(op, Op::Contiguous | Op::Load | Op::Sink);
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
            .fields(op, src)
            .map_err(|e| format!("{e} in the payload of {op:?}, such as {sample}"))?;
        self.expect('}')?;
        Ok(arg)
    }

    fn fields(&mut self, op: Op, src: &[UOp]) -> Parsed<Arg> {
        Ok(match op {
            Op::Param => Arg::Param {
                slot: self.number_of("slot")?,
                len: self.number_of("len")?,
                device: DeviceName::new(&self.name_of("device")?),
            },
            Op::Var => {
                let name = self.name_of("name")?.into();
                let (min, max) = (self.number_of("min")?, self.number_of("max")?);
                if min > max {
                    return Err(format!("min={min} is above max={max}"));
                }
                if self.sees('}') {
                    return Ok(Arg::Var { name, min, max });
                }
                let value = self.number_of("value")?;
                if !(min..=max).contains(&value) {
                    return Err(format!("value={value} is outside {min}..={max}"));
                }
                Arg::BoundVar { name, min, max, value }
            }
            Op::Slice => {
                let axis = self.number_of("axis")?;
                let mut sum = |field: &str| {
                    let text = self.name_of(field)?;
                    SymInt::from_text(&text)
                        .ok_or_else(|| format!("{} is no sum such as 2*n[1..64] + 1", show(&text)))
                };
                let slice = Slice { axis, start: sum("start")?, len: sum("len")? };
                slice.check(src[0].shape(), src[0].extents()).map_err(|e| e.to_string())?;
                Arg::Slice(Box::new(slice))
            }
            Op::Iota => Arg::Iota { len: self.number_of("len")? },
            Op::Reshape | Op::Expand | Op::Permute | Op::Pad | Op::Shrink | Op::Flip => {
                let m = self.movement(op)?;
                m.apply_shape(src[0].shape()).map_err(|e| e.to_string())?;
                moved_extents(&m, src[0].shape(), src[0].extents()).map_err(|e| e.to_string())?;
                Arg::Movement(Box::new(m))
            }
            Op::Reduce | Op::Scan => {
                let fold = self.one_of("fold", &[Fold::Add, Fold::Mul, Fold::Max, Fold::Min])?;
                let axes: Dims = if self.sees('}') {
                    Dims::new()
                } else {
                    self.field("axes").and_then(|()| self.list(Line::number))?
                };
                let rank = src[0].shape().len();
                if axes.iter().any(|a| *a >= rank) || axes.windows(2).any(|w| w[0] >= w[1]) {
                    return Err(format!(
                        "axes {axes:?} are not ascending axes of a tensor of rank {rank}"
                    ));
                }
                if op == Op::Scan && axes.len() > 1 {
                    return Err(format!("a scan is along one axis, not along {axes:?}"));
                }
                Arg::Reduce { fold, axes: axes.into_iter().collect() }
            }
            Op::Cat => {
                let axis = self.number_of("axis")?;
                super::uop::fit_cat(axis, src)?;
                Arg::Cat { axis }
            }
            Op::Gather | Op::Scatter => {
                let combine = if op == Op::Scatter {
                    Some(self.one_of("combine", &Combine::ALL)?)
                } else {
                    None
                };
                let axis = self.number_of("axis")?;
                super::uop::fit_along(axis, src)?;
                combine.map_or(Arg::Gather { axis }, |combine| Arg::Scatter { combine, axis })
            }
            Op::Leaf => Arg::Leaf(self.number_of("leaf")?),
            Op::Call => Arg::Gradient(Gradient::unknown(self.number_of("gradient")?)),
            Op::Copy | Op::Contiguous => Arg::Device(DeviceName::new(&self.name_of("device")?)),
            Op::Shards => {
                let devices = DeviceName::new(&self.name_of("devices")?);
                let axis: Option<usize> =
                    if self.sees('}') { None } else { Some(self.number_of("axis")?) };
                if let Some(axis) = axis.filter(|a| *a >= src[0].shape().len()) {
                    return Err(format!(
                        "axis {axis} of a tensor of rank {}",
                        src[0].shape().len()
                    ));
                }
                Arg::Shards { devices, axis }
            }
            Op::DefineGlobal => {
                Arg::Global { slot: self.number_of("slot")?, len: self.number_of("len")? }
            }
            Op::DefineShared => {
                Arg::Shared { id: self.number_of("id")?, len: self.number_of("len")? }
            }
            Op::DefineAcc => Arg::Acc(self.number_of("acc")?),
            Op::Range => {
                let id = self.number_of("id")?;
                if id > MAX_RANGE {
                    return Err(format!("range number {id} is above {MAX_RANGE}"));
                }
                let kind = self.one_of("kind", &AxisKind::ALL)?;
                let lanes = self.starts("lanes");
                if lanes {
                    self.keyword("lanes")?;
                }
                Arg::Range { id, kind, lanes }
            }
            Op::Special => {
                let kind = self.one_of(
                    "kind",
                    &[SpecialKind::Group, SpecialKind::Local, SpecialKind::Thread],
                )?;
                Arg::Special {
                    kind,
                    dim: self.number_of("dim")?,
                    extent: self.number_of("extent")?,
                }
            }
            Op::Gep => {
                self.keyword("lanes")?;
                let lanes: SmallVec<[u16; 4]> = self.list(Line::number)?;
                let of = src[0].dtype().lanes;
                if let Some(lane) = lanes.iter().find(|l| **l >= of) {
                    return Err(format!("lane {lane} of {of}"));
                }
                Arg::Lanes(lanes)
            }
            Op::Load => {
                let staged = self.starts("stage_at");
                let stage_at = if staged { Some(self.number_of("stage_at")?) } else { None };
                let more = !staged || !self.sees('}');
                let prefetch_in = if more { Some(self.number_of("prefetch_in")?) } else { None };
                Arg::LoadHint(LoadHint { stage_at, prefetch_in })
            }
            Op::Wmma => {
                let name = self.name_of("core")?;
                let core = TensorCore::from_name(&name)
                    .ok_or_else(|| format!("there is no tensor core {}", show(&name)))?;
                self.field("lanes")?;
                let lanes: SmallVec<[u32; 2]> = self.list(Line::number)?;
                let lanes = lanes
                    .as_slice()
                    .try_into()
                    .map_err(|_| format!("{} ranges, not two", lanes.len()))?;
                Arg::Wmma { core, lanes }
            }
            Op::Shuffle => Arg::Shuffle(self.number_of("xor")?),
            Op::Sink => {
                self.keyword("threads")?;
                Arg::ThreadOrder(self.list(Line::number)?)
            }
            Op::Output => Arg::Output(self.number_of("output")?),
            // `sample` is empty for every other op, and then `payload` does not come here.
            _ => Arg::None,
        })
    }

    fn movement(&mut self, op: Op) -> Parsed<Movement> {
        match op {
            Op::Reshape => self
                .keyword("reshape")
                .and_then(|()| Ok(Movement::Reshape(self.axes(Line::number)?))),
            Op::Expand => {
                self.keyword("expand").and_then(|()| Ok(Movement::Expand(self.axes(Line::number)?)))
            }
            Op::Permute => self
                .keyword("permute")
                .and_then(|()| Ok(Movement::Permute(self.axes(Line::number)?))),
            Op::Pad => self.keyword("pad").and_then(|()| Ok(Movement::Pad(self.axes(Line::pair)?))),
            Op::Shrink => {
                self.keyword("shrink").and_then(|()| Ok(Movement::Shrink(self.axes(Line::pair)?)))
            }
            _ => self.keyword("flip").and_then(|()| Ok(Movement::Flip(self.axes(Line::flag)?))),
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

    /// True if the next word begins with the text.
    fn starts(&mut self, word: &str) -> bool {
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

    fn word(&mut self, what: &str) -> Parsed<&'a str> {
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

    fn keyword(&mut self, keyword: &str) -> Parsed<()> {
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

    fn number<T: FromStr>(&mut self) -> Parsed<T> {
        let word = self.word("a number")?;
        // `from_str` would take a plus sign, which is never printed.
        let value = if word.starts_with('+') { None } else { word.parse().ok() };
        value.ok_or_else(|| format!("{} is not a number that fits here", show(word)))
    }

    fn pair(&mut self) -> Parsed<(usize, usize)> {
        self.expect('(')?;
        let a = self.number()?;
        self.expect(',')?;
        let b = self.number()?;
        self.expect(')')?;
        Ok((a, b))
    }

    fn flag(&mut self) -> Parsed<bool> {
        match self.word("true or false")? {
            "true" => Ok(true),
            "false" => Ok(false),
            word => Err(format!("expected true or false, not {}", show(word))),
        }
    }

    fn list<T, L: FromIterator<T>>(
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

    /// A list with an item per axis.
    fn axes<T, L: FromIterator<T>>(
        &mut self,
        item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<L> {
        let items: Vec<T> = self.list(item)?;
        if items.len() > MAX_RANK {
            return Err(format!("{} axes are more than {MAX_RANK}", items.len()));
        }
        Ok(items.into_iter().collect())
    }

    fn field(&mut self, key: &str) -> Parsed<()> {
        let word = self.word(key)?;
        if word == key && self.eat('=') {
            Ok(())
        } else {
            Err(format!("expected {key}=, not {}", show(word)))
        }
    }

    fn number_of<T: FromStr>(&mut self, key: &str) -> Parsed<T> {
        self.field(key)?;
        self.number()
    }

    fn one_of<T: Copy + std::fmt::Debug>(&mut self, key: &str, all: &[T]) -> Parsed<T> {
        self.field(key)?;
        let word = self.word(key)?;
        let found = all.iter().find(|t| format!("{t:?}") == word);
        found.copied().ok_or_else(|| format!("{key} is one of {all:?}, not {}", show(word)))
    }

    /// A word, or text in quotes.
    fn name_of(&mut self, key: &str) -> Parsed<String> {
        self.field(key)?;
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
    // The length is looked at first so that a message about a wrong one stays short.
    if text.len() > 16 {
        Err(format!("there is no dtype {}", show(text)))
    } else {
        text.parse().map_err(|e: Error| e.to_string())
    }
}

/// The value that the text has in the dtype. Decimals are rounded to it; integers, and what is too
/// large, are not.
fn literal(text: &str, dtype: DType) -> Parsed<Const> {
    let wrong = || format!("{} is not a value of {dtype}", show(text));
    let float = |value: f64| {
        let rounded = Const::Float(value).normalize(dtype);
        let finite = |c: Const| c.as_f64(dtype).is_finite();
        // Rust's parser gives infinity for what is too large, and takes more names for it than are
        // printed.
        let named = matches!(text, "inf" | "-inf" | "nan")
            && (rounded == Const::Float(value) || value.is_nan());
        let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        if named || (plain && finite(rounded)) { Ok(rounded) } else { Err(wrong()) }
    };
    match dtype.scalar {
        Scalar::Void => Err("void has no values".into()),
        Scalar::Bool => text.parse().map(Const::Bool).map_err(|_| wrong()),
        // An f32 is not read by way of f64: rounding twice can miss.
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

/// Text for a message, quoted and cut.
fn show(text: &str) -> String {
    let short: String = text.chars().take(24).collect();
    match short.as_str() {
        "" => "the end of the line".into(),
        _ if short.len() < text.len() => format!("{:?}", short + "…"),
        _ => format!("{short:?}"),
    }
}
