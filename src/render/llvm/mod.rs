//! LLVM IR as text. Input: the list of UOps. Output: a module with one kernel.
//!
//! The text is in SSA form. Accumulators are not in memory: a loop or a masked region that changes
//! one has a phi for it, so that the text needs no optimization before code generation. It is for
//! LLVM 15 and later, with opaque pointers.
//!
//! No instruction has a fast-math flag: one rounding per op, as in C with `-ffp-contract=off`.

mod alu;
mod cast;
mod module;
mod regions;
mod text;

use self::text::{lanes, literal, memory_suffix, memory_type, ty};
use super::facts::{
    self, Writer, accumulator, address_integers, changed_accumulators, chunk_dims, unknown_operand,
};
use super::{Rendered, Renderer};
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::typed::{Index, Load, Store};
use crate::ir::{Arg, Op, SpecialKind, UOp};
use crate::kernel::ScratchLayout;
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// Text, or the reason why there is none. The caller adds the node and makes an
/// [`Error`](crate::error::Error) of it.
type Text = std::result::Result<String, String>;
/// The end of a step, or the reason why it failed.
type Done = std::result::Result<(), String>;

/// Renders LLVM IR: a function `NAME`, and an entry `NAME_entry(ptr bufs, i64 chunk, ptr scratch)`
/// that takes the buffers in slot order.
#[derive(Clone, Debug)]
pub struct Llvm {
    target: Target,
    arm64: bool,
}

impl Llvm {
    /// Makes a renderer for a target made by [`Target::llvm`].
    pub const fn new(target: Target) -> Llvm {
        Llvm { target, arm64: false }
    }

    /// Makes a renderer for a target of arm64. There, LLVM 15 takes selections of floats for
    /// maxima, which lose the sign of a zero, and rounds vectors of 64-bit integers twice if they
    /// become f32; the text avoids both.
    pub const fn for_arm64(target: Target) -> Llvm {
        Llvm { target, arm64: true }
    }
}

impl Renderer for Llvm {
    fn target(&self) -> &Target {
        &self.target
    }
    fn render(&self, name: &str, uops: &[UOp]) -> Result<Rendered> {
        let mut writer = LlvmWriter::new(self, uops);
        if uops.iter().any(UOp::is_nontemporal) {
            writer.plain = Some(writer.plain_lines(self, uops));
        }
        facts::render(&self.target, name, uops, writer)
    }
}

/// The values of a region, which end with it.
#[derive(Default)]
struct Scope {
    values: FxHashMap<u64, String>,
    /// Offsets as 64 bits.
    wide: FxHashMap<u64, String>,
    /// Addresses, by buffer and offset.
    places: FxHashMap<(u64, u64), String>,
}

/// An open loop or masked region.
struct Region {
    opened: UOp,
    scope: Scope,
    /// The label of a loop's body, or of the block after a masked region.
    label: String,
    /// The block that the region was entered from, and the accumulators there.
    from: String,
    before: Vec<(u32, String)>,
    /// Of a loop: the lines of its phis, and the accumulator that each is of; none for the
    /// counter.
    phis: Vec<(usize, Option<u32>)>,
    /// True if a masked region is around a loop, because its trip count may be zero.
    masked: bool,
}

struct LlvmWriter<'a> {
    target: &'a Target,
    arm64: bool,
    lines: Vec<String>,
    /// Declarations of functions.
    declared: BTreeSet<String>,
    /// The arrays in scratch memory.
    scratch: ScratchLayout,
    scratch_used: bool,
    args: Vec<usize>,
    /// Extents of the thread number's dimensions.
    threads: Vec<usize>,
    scope: Scope,
    open: Vec<Region>,
    /// The block that is being written.
    block: String,
    /// The current value of each accumulator, by number, and its dtype.
    accs: BTreeMap<u32, (String, DType)>,
    /// The accumulators that each loop changes.
    changed: FxHashMap<u64, Vec<u32>>,
    /// Integers that do not overflow.
    address_integers: FxHashSet<u64>,
    /// Values that are offsets.
    offsets: FxHashSet<u64>,
    /// Offsets of no address: each is at a constant distance from another offset, and nothing else
    /// needs it.
    folded: FxHashSet<u64>,
    /// Pairs of vectors that are used as one vector, and the text of all pairs.
    whole_pairs: FxHashSet<u64>,
    pairs: FxHashMap<u64, [String; 2]>,
    /// Names in use, by prefix.
    taken: FxHashMap<&'static str, usize>,
    /// The buffers with stores past the caches.
    streamed: BTreeSet<usize>,
    /// The same kernel without such stores, if it has some.
    plain: Option<Vec<String>>,
    /// True where buffers with such stores start at a cache line.
    aligned: bool,
}

/// Splits an offset into one that is in the list and a distance in elements from it.
fn split<'a>(idx: &'a UOp, address_integers: &FxHashSet<u64>) -> (&'a UOp, i64) {
    match (idx.op(), idx.src()) {
        (Op::Add, [x, by]) if address_integers.contains(&idx.id()) && x.as_const().is_none() => {
            match by.as_int() {
                Some(by) => (x, by),
                None => (idx, 0),
            }
        }
        _ => (idx, 0),
    }
}

impl<'a> LlvmWriter<'a> {
    fn new(renderer: &'a Llvm, uops: &[UOp]) -> LlvmWriter<'a> {
        let address_integers = address_integers(uops);
        let (mut offsets, mut folded, mut used) =
            (FxHashSet::default(), FxHashSet::default(), FxHashSet::default());
        let mut whole_pairs = FxHashSet::default();
        for u in uops {
            if u.op() != Op::Gep {
                let pairs = u.src().iter().filter(|s| s.as_vector_pair().is_some());
                whole_pairs.extend(pairs.map(UOp::id));
            }
            // An index uses its mask and, below, the base of its offset.
            used.extend(u.src().iter().skip(if u.op() == Op::Index { 2 } else { 0 }).map(UOp::id));
            if let Some(place) = u.as_index() {
                let (idx, base) = (place.index.id(), split(place.index, &address_integers).0.id());
                offsets.insert(base);
                used.insert(base);
                folded.insert(idx);
            }
        }
        folded.retain(|id| !used.contains(id));
        LlvmWriter {
            target: &renderer.target,
            arm64: renderer.arm64,
            lines: Vec::new(),
            declared: BTreeSet::new(),
            scratch: ScratchLayout::default(),
            scratch_used: false,
            args: Vec::new(),
            threads: chunk_dims(uops),
            scope: Scope::default(),
            open: Vec::new(),
            block: "entry".to_string(),
            accs: BTreeMap::new(),
            changed: changed_accumulators(uops),
            address_integers,
            offsets,
            folded,
            whole_pairs,
            pairs: FxHashMap::default(),
            taken: FxHashMap::default(),
            streamed: BTreeSet::new(),
            plain: None,
            aligned: true,
        }
    }

    fn fresh(&mut self, kind: &'static str) -> String {
        let taken = self.taken.entry(kind).or_default();
        *taken += 1;
        format!("{kind}{}", *taken - 1)
    }

    fn line(&mut self, text: String) {
        self.lines.push(format!("  {text}"));
    }

    /// Gives the result of an instruction a name of a kind.
    fn define(&mut self, kind: &'static str, instruction: &str) -> String {
        let name = format!("%{}", self.fresh(kind));
        self.line(format!("{name} = {instruction}"));
        name
    }

    fn begin(&mut self, label: String) {
        self.lines.push(format!("{label}:"));
        self.block = label;
    }

    fn innermost(&mut self) -> &mut Scope {
        self.open.last_mut().map_or(&mut self.scope, |r| &mut r.scope)
    }

    /// Returns a value of some scope, the innermost first.
    fn known(&self, get: impl Fn(&Scope) -> Option<&String>) -> Option<String> {
        self.open.iter().rev().map(|r| &r.scope).chain([&self.scope]).find_map(get).cloned()
    }

    /// Remembers the text of a value, and an offset also as 64 bits.
    fn value(&mut self, u: &UOp, text: String) {
        if self.offsets.contains(&u.id()) && u.dtype().bits() < 64 {
            let extend = if u.dtype().is_unsigned() { "zext" } else { "sext" };
            let wide = self.define("wide", &format!("{extend} {} {text} to i64", ty(u.dtype())));
            self.innermost().wide.insert(u.id(), wide);
        }
        self.innermost().values.insert(u.id(), text);
    }

    fn text(&self, u: &UOp) -> Text {
        if let Some(value) = u.as_const() {
            return if u.dtype() == DType::VOID {
                Err("a void has no value".to_string())
            } else {
                Ok(literal(value, u.dtype()))
            };
        }
        let found = match accumulator(u) {
            Some(acc) => self.accs.get(&acc).map(|(text, _)| text.clone()),
            None => self.known(|s| s.values.get(&u.id())),
        };
        found.ok_or_else(|| unknown_operand(u))
    }

    /// Writes the assignment to an accumulator: it has a new value from here on.
    fn assign(&mut self, u: &UOp) -> Done {
        let assign = u.expect_assign();
        let acc =
            accumulator(u).ok_or_else(|| format!("{:?} is not an accumulator", assign.acc))?;
        let value = self.text(assign.value)?;
        let held = self.accs.get_mut(&acc).ok_or("its accumulator is not defined before it")?;
        held.0 = value;
        Ok(())
    }

    /// Returns the position in a dimension of the threads. One number counts through all
    /// dimensions, the first one fastest.
    fn position(&mut self, u: &UOp, dim: usize) -> String {
        let stride: usize = self.threads[..dim].iter().product();
        let mut text = "%chunk".to_string();
        if stride > 1 {
            text = self.define("alu", &format!("udiv i64 {text}, {stride}"));
        }
        if dim + 1 < self.threads.len() {
            text = self.define("alu", &format!("urem i64 {text}, {}", self.threads[dim]));
        }
        if u.dtype().bits() < 64 {
            let name = format!("%tidx{dim}");
            self.line(format!(
                "{name} = trunc i64 {text} to {} ; {}",
                ty(u.dtype()),
                self.threads[dim]
            ));
            text = name;
        }
        text
    }

    /// Returns the address of an element.
    fn address(&mut self, Index { buffer, index: idx, .. }: Index<'_>) -> Text {
        let (base, element) = (self.text(buffer)?, memory_type(buffer.dtype()));
        if let Some(at) = idx.as_int() {
            return Ok(if at == 0 {
                base
            } else {
                self.define("ptr", &format!("getelementptr {element}, ptr {base}, i64 {at}"))
            });
        }
        let (offset, by) = split(idx, &self.address_integers);
        let key = (buffer.id(), offset.id());
        let start = match self.known(|s| s.places.get(&key)) {
            Some(place) => place,
            None => {
                let narrow = self.text(offset)?;
                let wide = self.known(|s| s.wide.get(&offset.id())).unwrap_or(narrow);
                let place =
                    self.define("ptr", &format!("getelementptr {element}, ptr {base}, i64 {wide}"));
                self.innermost().places.insert(key, place.clone());
                place
            }
        };
        Ok(if by == 0 {
            start
        } else {
            self.define("ptr", &format!("getelementptr {element}, ptr {start}, i64 {by}"))
        })
    }

    /// Writes a load. Where its mask is false, it reads the buffer's first elements and drops them:
    /// there is no branch, and every access is in bounds.
    fn load(&mut self, u: &UOp) -> Text {
        let Load { place: index, alt, .. } = u.expect_load();
        let dtype = u.dtype();
        let mut place = self.address(index)?;
        if let Some((mask, alt)) = index.mask.zip(alt).filter(|(m, _)| m.dtype().lanes > 1) {
            let masks = self.text(mask)?;
            let alt = self.text(alt)?;
            return Ok(self.load_lanes(dtype, &place, &masks, alt));
        }
        let masked = match index.mask.zip(alt) {
            Some((mask, alt)) => Some((self.text(mask)?, self.text(alt)?)),
            None => None,
        };
        if let Some((mask, alt)) = &masked {
            // The mask of a load from a shorter buffer is always false.
            if index.buffer.memory_len().is_some_and(|len| len < dtype.lanes as usize) {
                return Ok(alt.clone());
            }
            let base = self.text(index.buffer)?;
            place = self.define("ptr", &format!("select i1 {mask}, ptr {place}, ptr {base}"));
        }
        let (held, align) = (memory_type(dtype), dtype.scalar().itemsize());
        let mut value = self.define("val", &format!("load {held}, ptr {place}, align {align}"));
        if dtype.is_bool() {
            let zero = literal(0.into(), DType::U8.vec(dtype.lanes));
            value = self.define("val", &format!("icmp ne {held} {value}, {zero}"));
        }
        match masked {
            None => Ok(value),
            Some((mask, alt)) => {
                let every = self.splat(&mask, DType::BOOL.vec(dtype.lanes));
                Ok(self.select("val", dtype, &every, &value, &alt))
            }
        }
    }

    fn store(&mut self, u: &UOp) -> Done {
        let Store { place: index, value, .. } = u.expect_store();
        let dtype = value.dtype();
        let place = self.address(index)?;
        let mut value = self.text(value)?;
        if dtype.is_bool() {
            value = self
                .define("cast", &format!("zext {} {value} to {}", ty(dtype), memory_type(dtype)));
        }
        let (held, align) = (memory_type(dtype), dtype.scalar().itemsize());
        if let Some(mask) = index.mask {
            let (masks, bools) = (self.text(mask)?, ty(mask.dtype()));
            let name = format!("@llvm.masked.store.{}.p0", memory_suffix(dtype));
            self.declared.insert(format!("void {name}({held}, ptr, i32 immarg, {bools})"));
            self.line(format!(
                "call void {name}({held} {value}, ptr {place}, i32 {align}, {bools} {masks})"
            ));
            return Ok(());
        }
        if self.aligned && u.is_nontemporal() {
            self.store_lines(index, held, &value, &place);
        } else {
            self.line(format!("store {held} {value}, ptr {place}, align {align}"));
        }
        Ok(())
    }

    /// Writes a load whose lanes each have a mask; a lane whose mask is false accesses nothing.
    fn load_lanes(&mut self, dtype: DType, place: &str, masks: &str, mut alt: String) -> String {
        let (held, align) = (memory_type(dtype), dtype.scalar().itemsize());
        if dtype.is_bool() {
            alt = self.define("cast", &format!("zext {} {alt} to {held}", ty(dtype)));
        }
        let (name, bools) = (
            format!("@llvm.masked.load.{}.p0", memory_suffix(dtype)),
            ty(DType::BOOL.vec(dtype.lanes)),
        );
        self.declared.insert(format!("{held} {name}(ptr, i32 immarg, {bools}, {held})"));
        let load =
            format!("call {held} {name}(ptr {place}, i32 {align}, {bools} {masks}, {held} {alt})");
        let value = self.define("val", &load);
        if !dtype.is_bool() {
            return value;
        }
        let zero = literal(0.into(), DType::U8.vec(dtype.lanes));
        self.define("val", &format!("icmp ne {held} {value}, {zero}"))
    }

    /// Returns a scalar in every lane.
    fn splat(&mut self, x: &str, dtype: DType) -> String {
        if dtype.lanes == 1 {
            return x.to_string();
        }
        let (whole, one) = (ty(dtype), ty(dtype.scalar()));
        let first = self.define("vec", &format!("insertelement {whole} poison, {one} {x}, i32 0"));
        let picked = ty(DType::I32.vec(dtype.lanes));
        self.define(
            "vec",
            &format!("shufflevector {whole} {first}, {whole} poison, {picked} zeroinitializer"),
        )
    }

    fn vectorize(&mut self, u: &UOp) -> Text {
        let (src, dtype) = (u.src(), u.dtype());
        let texts = src.iter().map(|s| self.text(s)).collect::<std::result::Result<Vec<_>, _>>()?;
        if src.len() > 1 && src.iter().all(|s| s.as_const().is_some()) {
            return Ok(lanes(&texts, dtype));
        }
        if src.iter().all(|s| s == u.operand()) {
            return Ok(self.splat(&texts[0], dtype));
        }
        let (whole, one) = (ty(dtype), ty(dtype.scalar()));
        if let Some([a, b]) = u.as_vector_pair() {
            let pair = [self.text(a)?, self.text(b)?];
            self.pairs.insert(u.id(), pair);
            let all: Vec<u16> = (0..dtype.lanes).collect();
            return match self.whole_pairs.contains(&u.id()) {
                true => self.pick_of_pair(u, a.dtype(), dtype, &all),
                false => Ok(String::new()),
            };
        }
        let mut vector = "poison".to_string();
        if src.iter().any(|s| s.dtype().lanes > 1) {
            let mut at = 0;
            for (s, x) in src.iter().zip(&texts) {
                for l in 0..s.dtype().lanes {
                    let lane = match s.dtype().lanes {
                        1 => x.clone(),
                        _ => self.define(
                            "lane",
                            &format!("extractelement {} {x}, i32 {l}", ty(s.dtype())),
                        ),
                    };
                    vector = self.define(
                        "vec",
                        &format!("insertelement {whole} {vector}, {one} {lane}, i32 {at}"),
                    );
                    at += 1;
                }
            }
            return Ok(vector);
        }
        for (i, x) in texts.iter().enumerate() {
            vector =
                self.define("vec", &format!("insertelement {whole} {vector}, {one} {x}, i32 {i}"));
        }
        Ok(vector)
    }

    /// Returns lanes of a pair of vectors: a two-source shuffle.
    fn pick_of_pair(&mut self, pair: &UOp, half: DType, dtype: DType, picked: &[u16]) -> Text {
        let [a, b] = self.pairs.get(&pair.id()).cloned().ok_or_else(|| unknown_operand(pair))?;
        let half_text = ty(half);
        if let [lane] = picked {
            let (x, lane) = if *lane < half.lanes { (a, *lane) } else { (b, lane - half.lanes) };
            return Ok(self.define("lane", &format!("extractelement {half_text} {x}, i32 {lane}")));
        }
        let places = DType::I32.vec(dtype.lanes);
        let mask = lanes(&picked.iter().map(u16::to_string).collect::<Vec<_>>(), places);
        let mask = format!("{} {mask}", ty(places));
        let shuffle = format!("shufflevector {half_text} {a}, {half_text} {b}, {mask}");
        Ok(self.define("lane", &shuffle))
    }

    fn pick(&mut self, u: &UOp, picked: &[u16]) -> Text {
        let (x, dtype) = (u.operand(), u.dtype());
        if let Some([half, _]) = x.as_vector_pair() {
            return self.pick_of_pair(x, half.dtype(), dtype, picked);
        }
        let (text, whole) = (self.text(x)?, ty(x.dtype()));
        Ok(match (x.dtype().lanes, picked) {
            (1, _) => self.splat(&text, dtype),
            (_, [lane]) => {
                self.define("lane", &format!("extractelement {whole} {text}, i32 {lane}"))
            }
            _ => {
                let places = DType::I32.vec(dtype.lanes);
                let mask = lanes(&picked.iter().map(u16::to_string).collect::<Vec<_>>(), places);
                self.define(
                    "lane",
                    &format!("shufflevector {whole} {text}, {whole} poison, {} {mask}", ty(places)),
                )
            }
        })
    }
}

impl Writer for LlvmWriter<'_> {
    fn item(&mut self, u: &UOp) -> Done {
        let text = match (u.op(), u.arg()) {
            // A workgroup is one thread here, so it need not wait for itself.
            (Op::Const | Op::Index | Op::Sink | Op::Barrier, _) => return Ok(()),
            (Op::DefineGlobal, Arg::Global { slot, .. }) => {
                self.args.push(*slot);
                format!("%data{slot}")
            }
            (Op::DefineShared, Arg::Shared { id, .. }) => {
                let at = self.scratch.place(u);
                self.scratch_used = true;
                self.line(format!("%temp{id} = getelementptr i8, ptr %scratch, i64 {at}"));
                format!("%temp{id}")
            }
            (Op::Special, Arg::Special { kind: SpecialKind::Thread, dim, .. }) => {
                self.position(u, *dim as usize)
            }
            (Op::Special, Arg::Special { kind, dim, .. }) => {
                return Err(format!("there is no {}{dim}", kind.prefix()));
            }
            (Op::Range, _) => return self.open_loop(u),
            (Op::EndRange, _) => return self.close_loop(u.operand()),
            (Op::If, _) => {
                let mask = self.text(u.expect_if().cond)?;
                self.open_masked(u, &mask);
                return Ok(());
            }
            (Op::EndIf, _) => return self.close_masked(u.operand()),
            (Op::DefineAcc, Arg::Acc(number)) => {
                let init = self.text(u.expect_define_acc().init)?;
                self.accs.insert(*number, (init, u.dtype()));
                return Ok(());
            }
            (Op::Assign, _) => return self.assign(u),
            (Op::Load, _) => self.load(u)?,
            (Op::Store, _) => return self.store(u),
            (Op::Vectorize, _) => self.vectorize(u)?,
            (Op::Gep, Arg::Lanes(picked)) => self.pick(u, picked)?,
            (op, _) if op.is_alu() && self.folded.contains(&u.id()) => return Ok(()),
            (op, _) if op.is_alu() => self.alu(u)?,
            _ => return Err("it does not belong in a linear program".to_string()),
        };
        self.value(u, text);
        Ok(())
    }

    fn innermost(&self) -> Option<&UOp> {
        self.open.last().map(|region| &region.opened)
    }

    fn finish(self, name: &str) -> Rendered {
        self.module(name)
    }
}
