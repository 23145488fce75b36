//! Buffers: how they are bound, read and written.
//!
//! A buffer begins at any element of its first binding, which `at` contains. Elements of 8 and 16
//! bits are packed in words of 32, the first in the lowest bits. Threads that write different
//! elements of one word must not overwrite each other's, so such words are atomic: a store clears
//! the bits of its element and then sets them, and leaves all others unchanged. No other thread
//! writes those bits, and readers of other elements ignore them, so the order of threads does not
//! matter. A thread that has all elements of a word stores it whole.
//!
//! A buffer of more bytes than fit into a binding is bound in pieces, each of a power of two; the
//! upper bits of an index choose the piece.

use super::text::ty;
use super::{Lanes, Wgsl, WgslWriter};
use crate::dtype::{DType, Scalar};
use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Arg, UOp};
use crate::render::facts::storage;

/// A buffer of the kernel.
pub(super) struct Argument {
    pub slot: usize,
    dtype: DType,
    /// Elements of one word, as a power of two.
    packed: u32,
    pieces: usize,
    /// Elements of a piece, as a power of two.
    each: u32,
    stored: bool,
}

impl Argument {
    pub fn new(wgsl: &Wgsl, slot: usize, dtype: DType, len: usize, stored: bool) -> Argument {
        let size = dtype.itemsize();
        let packed = if size < 4 { 2 - size.ilog2() } else { 0 };
        let pieces = wgsl.pieces(len.saturating_mul(size));
        Argument { slot, dtype, packed, pieces, each: wgsl.piece().ilog2() - size.ilog2(), stored }
    }
    fn is_packed(&self) -> bool {
        self.packed > 0
    }
    fn is_plain(&self) -> bool {
        !self.is_packed() && self.pieces == 1
    }
    /// Returns the name of a piece.
    fn name(&self, piece: usize) -> String {
        if piece == 0 { format!("data{}", self.slot) } else { format!("data{}_{piece}", self.slot) }
    }
    /// Returns the type of a binding.
    fn bound(&self) -> &'static str {
        match (self.is_packed(), self.stored) {
            (true, true) => "atomic<u32>",
            (true, false) => "u32",
            _ => ty(self.dtype.scalar).expect("it was checked before"),
        }
    }
    /// Returns a function body that applies `each` to the piece of the element `i`, by the piece
    /// and the index in it.
    fn by_piece(&self, each: impl Fn(&str, &str) -> String) -> String {
        let place = if self.pieces == 1 {
            "i".to_string()
        } else {
            format!("(i&{})", (1usize << self.each) - 1)
        };
        let place = if self.is_packed() { format!("{place}>>{}u", self.packed) } else { place };
        if self.pieces == 1 {
            return each(&self.name(0), &place);
        }
        let cases: Vec<String> = (1..self.pieces)
            .map(|piece| format!("case {piece}: {{ {} }}", each(&self.name(piece), &place)))
            .collect();
        format!(
            "switch (i>>{}u) {{ {} default: {{ {} }} }}",
            self.each,
            cases.join(" "),
            each(&self.name(0), &place)
        )
    }
    /// Bits of an element, and the shift to its position in a word.
    fn field(&self) -> (u32, String) {
        let bits = 32 >> self.packed;
        (bits, format!("u32(i&{})*{bits}u", (1 << self.packed) - 1))
    }

    /// Returns a function that reads the element `i`.
    fn reader(&self) -> String {
        let result = ty(self.dtype.scalar).expect("it was checked before");
        let (bits, shift) = self.field();
        let body = self.by_piece(|name, place| match (self.is_packed(), self.stored) {
            (false, _) => format!("return {name}[{place}];"),
            (true, false) => format!(
                "return {};",
                unpacked(self.dtype.scalar, &format!("{name}[{place}]"), bits, &shift)
            ),
            (true, true) => format!(
                "return {};",
                unpacked(self.dtype.scalar, &format!("atomicLoad(&{name}[{place}])"), bits, &shift)
            ),
        });
        format!("fn load{}(i: i32) -> {result} {{ {body} }}", self.slot)
    }

    /// Returns a function that writes the element `i`.
    fn writer(&self) -> String {
        let value = ty(self.dtype.scalar).expect("it was checked before");
        let (bits, shift) = self.field();
        let mask = u32::MAX >> (32 - bits);
        let body = self.by_piece(|name, place| {
            if !self.is_packed() {
                return format!("{name}[{place}] = v;");
            }
            let field = field(self.dtype.scalar, "v", mask);
            format!(
                "let s = {shift}; atomicAnd(&{name}[{place}], ~({mask:#x}u<<s)); \
                 atomicOr(&{name}[{place}], {field}<<s);"
            )
        });
        format!("fn store{}(i: i32, v: {value}) {{ {body} }}", self.slot)
    }

    /// Returns a function that writes the elements of a whole word, from the element `i` on.
    fn word_writer(&self) -> String {
        let value = ty(self.dtype.scalar).expect("it was checked before");
        let (bits, _) = self.field();
        let count = 1usize << self.packed;
        let names: Vec<String> = (0..count).map(|k| format!("v{k}")).collect();
        let params: Vec<String> = names.iter().map(|v| format!("{v}: {value}")).collect();
        let fields: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(k, v)| {
                format!(
                    "({}<<{}u)",
                    field(self.dtype.scalar, v, u32::MAX >> (32 - bits)),
                    k as u32 * bits
                )
            })
            .collect();
        let whole = self.by_piece(|name, place| {
            format!("atomicStore(&{name}[{place}], {});", fields.join("|"))
        });
        let slot = self.slot;
        let single: Vec<String> =
            names.iter().enumerate().map(|(k, v)| format!("store{slot}(i+{k}, {v});")).collect();
        let (params, last, single) = (params.join(", "), count - 1, single.join(" "));
        format!(
            "fn store{slot}_word(i: i32, {params}) {{ if ((i&{last}) == 0) {{ {whole} }} else {{ \
             {single} }} }}"
        )
    }
}

/// Returns an element of a word as a value.
fn unpacked(scalar: Scalar, word: &str, bits: u32, shift: &str) -> String {
    let mask = u32::MAX >> (32 - bits);
    match storage(scalar) {
        Scalar::Bool => format!("(({word}>>({shift}))&{mask:#x}u) != 0u"),
        Scalar::I8 | Scalar::I16 => format!("extractBits(bitcast<i32>({word}), {shift}, {bits}u)"),
        _ => format!("({word}>>({shift}))&{mask:#x}u"),
    }
}

/// Returns a value as the bits of an element, with zeros above.
fn field(scalar: Scalar, value: &str, mask: u32) -> String {
    match storage(scalar) {
        Scalar::Bool => format!("select(0u, 1u, {value})"),
        Scalar::I8 | Scalar::I16 => format!("(bitcast<u32>({value})&{mask:#x}u)"),
        _ => value.to_string(),
    }
}

impl WgslWriter<'_> {
    /// Returns the declarations of all buffers, and of their start offsets.
    pub(super) fn bindings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut number = 0;
        for a in &self.args {
            for piece in 0..a.pieces {
                out.push(format!(
                    "@group(0) @binding({number}) var<storage, read_write> {}: array<{}>;",
                    a.name(piece),
                    a.bound()
                ));
                number += 1;
            }
        }
        let last = self.args.last().map_or(0, |a| a.slot + 1) / 4;
        out.push(format!(
            "@group(0) @binding({number}) var<uniform> at: array<vec4<i32>, {}>;",
            last + 1
        ));
        if self.helpers.iter().any(|(_, text)| text.contains("zero()")) {
            // A zero that the compiler cannot know.
            out.push(format!("fn zero() -> u32 {{ return bitcast<u32>(at[{last}].w); }}"));
        }
        out
    }

    /// Returns the buffer of an index: the argument, if it is one, and its name; and the offset.
    fn place(
        &mut self,
        Index { buffer, index: offset, .. }: Index<'_>,
    ) -> Result<(Option<usize>, String, String), String> {
        let at = match offset.as_int() {
            Some(at) => format!("{at}i"),
            None if offset.dtype().bits() == 64 => format!("i32({})", self.scalar(offset)?),
            None => self.scalar(offset)?,
        };
        match buffer.arg() {
            Arg::Shared { id, .. } => Ok((None, format!("temp{id}"), at)),
            Arg::Global { slot, .. } => {
                let argument = self
                    .args
                    .iter()
                    .position(|a| a.slot == *slot)
                    .ok_or("its buffer is not defined before it")?;
                let start = format!("at[{}].{}", slot / 4, ["x", "y", "z", "w"][slot % 4]);
                let at = if offset.as_int() == Some(0) { start } else { format!("{at}+{start}") };
                let at = self.define("idx", &at);
                Ok((Some(argument), format!("data{slot}"), at))
            }
            _ => Err(format!("{buffer:?} is no memory")),
        }
    }

    pub(super) fn load(&mut self, u: &UOp) -> Result<Lanes, String> {
        let Load { place: index, alt, .. } = u.expect_load();
        let dtype = u.dtype();
        let masked = match index.mask.zip(alt) {
            Some((mask, alt)) => Some((self.scalar(mask)?, self.lanes(alt)?)),
            None => None,
        };
        let (argument, name, at) = self.place(index)?;
        let reads: Vec<String> = (0..dtype.lanes as usize)
            .map(|lane| {
                let at = if lane == 0 { at.clone() } else { format!("{at}+{lane}") };
                match argument.map(|a| &self.args[a]) {
                    Some(a) if !a.is_plain() => format!("load{}({at})", a.slot),
                    _ => format!("{name}[{at}]"),
                }
            })
            .collect();
        if let Some(a) = argument.filter(|a| !self.args[*a].is_plain()) {
            let text = self.args[a].reader();
            self.helper(&format!("load{}", self.args[a].slot), || text);
        }
        let Some((mask, alt)) = masked else {
            return Ok(reads.iter().map(|r| self.define("val", r)).collect());
        };
        // Both sides of a `select` are evaluated, and a masked element must not be read.
        let ty = ty(dtype.scalar)?;
        let names: Lanes = reads.iter().map(|_| self.fresh("val")).collect();
        for (name, alt) in names.iter().zip(&alt) {
            self.line(&format!("var {name}: {ty} = {alt};"));
        }
        let sets: Vec<String> =
            names.iter().zip(&reads).map(|(name, read)| format!("{name} = {read};")).collect();
        self.line(&format!("if ({mask}) {{ {} }}", sets.join(" ")));
        Ok(names)
    }

    pub(super) fn store(&mut self, u: &UOp) -> Result<(), String> {
        let Store { place: index, value, .. } = u.expect_store();
        let values = self.lanes(value)?;
        let (argument, name, at) = self.place(index)?;
        let step = |lane: usize| if lane == 0 { at.clone() } else { format!("{at}+{lane}") };
        let Some(a) = argument.filter(|a| !self.args[*a].is_plain()) else {
            for (lane, value) in values.iter().enumerate() {
                self.line(&format!("{name}[{}] = {value};", step(lane)));
            }
            return Ok(());
        };
        let (slot, per_word) = (self.args[a].slot, 1usize << self.args[a].packed);
        let text = self.args[a].writer();
        self.helper(&format!("store{slot}"), || text);
        if per_word > 1 && values.len().is_multiple_of(per_word) {
            let text = self.args[a].word_writer();
            self.helper(&format!("store{slot}_word"), || text);
            for (word, values) in values.chunks(per_word).enumerate() {
                self.line(&format!(
                    "store{slot}_word({}, {});",
                    step(word * per_word),
                    values.join(", ")
                ));
            }
            return Ok(());
        }
        for (lane, value) in values.iter().enumerate() {
            self.line(&format!("store{slot}({}, {value});", step(lane)));
        }
        Ok(())
    }
}
