//! WGSL, the shading language of WebGPU. Input: the list of UOps. Output: a module with one entry
//! point.
//!
//! Every value is a name that is set once, and every lane of a vector has a name of its own:
//! devices make vectors of threads, not of lanes. The language has neither pointers nor types
//! narrower than 32 bits, and its compilers may assume that there is no NaN and no infinity, that
//! sums can be regrouped, and that a product and a sum are one operation. `exact` has forms that
//! stay exact.

mod alu;
mod cast;
mod exact;
mod memory;
mod text;

use self::memory::Argument;
use self::text::{literal, ty};
use super::facts::{self, Writer, closes, unknown_operand};
use super::{Rendered, Renderer};
use crate::dtype::{Const, Scalar};
use crate::error::{Error, Result};
use crate::ir::typed::{Assign, Special};
use crate::ir::{Arg, Op, SpecialKind, UOp};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// The end of a step, or the reason why it failed.
type Done = std::result::Result<(), String>;
/// Text, or the reason why there is none. The caller adds the node and makes an [`Error`] of it.
type Text = std::result::Result<String, String>;
/// The text of each lane.
type Lanes = Vec<String>;

/// Maximum number of workgroups in a dimension of a launch, on every device.
const MAX_GROUPS: usize = 65_535;

/// How a fused multiply-add is computed with one rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fma {
    /// By `fma`, on an adapter whose `fma` rounds once.
    Native,
    /// In `f64`, which the adapter has.
    Doubles,
    /// In integers of 32 bits, which every adapter has.
    Integers,
}

/// Renders WGSL.
///
/// Binding `n` of group 0 is the `n`-th of the pieces of all buffers, in the order of their slots;
/// [`Wgsl::pieces`] says how many a buffer has. The last binding is a uniform of 32-bit integers:
/// where each buffer begins, in elements from the start of its first piece, then zeros up to a
/// multiple of four, at least one. The kernel is launched with [`Wgsl::groups`] workgroups.
#[derive(Clone, Debug)]
pub struct Wgsl {
    target: Target,
    binding: usize,
    fma: Fma,
}

impl Wgsl {
    /// Makes a renderer for a device with the limits that every one has.
    pub const fn new() -> Wgsl {
        Wgsl::with(Target::wgsl(), 128 << 20, Fma::Integers)
    }
    /// Makes a renderer for a device with this limit of bytes per binding, and this way to compute
    /// a fused multiply-add.
    pub const fn with(target: Target, binding: usize, fma: Fma) -> Wgsl {
        Wgsl { target, binding, fma }
    }
    /// Returns the bytes of a piece: those of every binding of a buffer but its last.
    pub const fn piece(&self) -> usize {
        1 << self.binding.ilog2()
    }
    /// Returns the number of bindings of a buffer. It may begin anywhere in its first 256 bytes.
    pub const fn pieces(&self, bytes: usize) -> usize {
        let most = bytes.saturating_add(256);
        if most <= self.binding { 1 } else { most.div_ceil(self.piece()) }
    }
    /// Returns the workgroups of a launch: those of the program, redistributed over the dimensions
    /// if one exceeds the device's limit. The kernel does nothing in excess workgroups.
    pub fn groups(&self, uops: &[UOp]) -> [usize; 3] {
        redistributed(extents(uops, SpecialKind::Group))
    }
}

impl Default for Wgsl {
    fn default() -> Wgsl {
        Wgsl::new()
    }
}

impl Renderer for Wgsl {
    fn target(&self) -> &Target {
        &self.target
    }
    fn render(&self, name: &str, uops: &[UOp]) -> Result<Rendered> {
        let refuse = |msg: String| Error::Compile {
            msg: format!("{} renderer: {msg}", self.target.name),
            source_at: None,
        };
        if let Some(u) = uops.iter().find(|u| self.target.lacks(u.dtype())) {
            return Err(refuse(format!("this adapter has no {}, as in {u:?}", u.dtype().scalar())));
        }
        let writer = WgslWriter::new(self, uops);
        let mut groups = writer.groups.iter().map(|n| u32::try_from(*n).ok());
        if groups.try_fold(1u32, |all, n| all.checked_mul(n?)).is_none() {
            return Err(refuse(format!("a grid of {:?} workgroups is too long", writer.groups)));
        }
        facts::render(&self.target, name, uops, writer)
    }
}

/// Returns the extents of the launch in each dimension of a kind.
fn extents(uops: &[UOp], wanted: SpecialKind) -> [usize; 3] {
    let mut sizes = [1; 3];
    for u in uops {
        if let Arg::Special { kind, dim, extent } = u.arg()
            && *kind == wanted
            && let Some(size) = sizes.get_mut(*dim as usize)
        {
            *size = *extent;
        }
    }
    sizes
}

/// Returns at least as many workgroups, with each dimension within the limit.
fn redistributed(groups: [usize; 3]) -> [usize; 3] {
    if groups.iter().all(|n| *n <= MAX_GROUPS) {
        return groups;
    }
    let all: usize = groups.iter().product();
    let planes = all.div_ceil(MAX_GROUPS * MAX_GROUPS);
    let rows = all.div_ceil(planes).div_ceil(MAX_GROUPS);
    [all.div_ceil(planes * rows), rows, planes]
}

struct WgslWriter<'a> {
    wgsl: &'a Wgsl,
    /// Helper functions, each once, in the order in which they were first needed.
    helpers: Vec<(String, String)>,
    /// Declarations of shared memory.
    shared: String,
    args: Vec<Argument>,
    /// Buffers that are stored to.
    stored: FxHashSet<u64>,
    groups: [usize; 3],
    /// True once the number of the workgroup is declared, which a folded grid needs.
    numbered: bool,
    threads: [usize; 3],
    body: String,
    /// Loops and conditions that are open.
    open: Vec<UOp>,
    /// The values of each scope, and of the kernel before them.
    scopes: Vec<FxHashMap<u64, Lanes>>,
    /// Names in use, by prefix.
    taken: FxHashMap<&'static str, usize>,
}

impl<'a> WgslWriter<'a> {
    fn new(wgsl: &'a Wgsl, uops: &[UOp]) -> WgslWriter<'a> {
        let stores = uops.iter().filter_map(UOp::as_store);
        WgslWriter {
            wgsl,
            helpers: Vec::new(),
            shared: String::new(),
            args: Vec::new(),
            stored: stores.map(|s| s.place.buffer.id()).collect(),
            groups: extents(uops, SpecialKind::Group),
            numbered: false,
            threads: extents(uops, SpecialKind::Local),
            body: String::new(),
            open: Vec::new(),
            scopes: vec![FxHashMap::default()],
            taken: FxHashMap::default(),
        }
    }

    fn line(&mut self, text: &str) {
        let indent = 2 * (self.open.len() + 1);
        self.body += &format!("{:indent$}{text}\n", "");
    }

    /// Adds a helper function unless it exists.
    fn helper(&mut self, name: &str, text: impl FnOnce() -> String) {
        if !self.helpers.iter().any(|(n, _)| n == name) {
            self.helpers.push((name.to_string(), text()));
        }
    }

    fn fresh(&mut self, kind: &'static str) -> String {
        let taken = self.taken.entry(kind).or_default();
        *taken += 1;
        format!("{kind}{}", *taken - 1)
    }

    /// Gives the value of an expression a name of a kind.
    fn define(&mut self, kind: &'static str, expression: &str) -> String {
        let name = self.fresh(kind);
        self.line(&format!("let {name} = {expression};"));
        name
    }

    fn remember(&mut self, u: &UOp, lanes: Lanes) {
        self.scopes.last_mut().expect("the kernel's own scope").insert(u.id(), lanes);
    }

    /// Returns a literal. Those of f32 are hidden from compilers.
    fn literal(&mut self, value: Const, scalar: Scalar) -> Text {
        let text = literal(value, scalar)?;
        match scalar {
            Scalar::F32 if text.starts_with("number") => self.exact("number"),
            Scalar::F32 => return Ok(self.exact_call("hidden", &[&text])),
            _ => {}
        }
        Ok(text)
    }

    /// Returns the text of each lane of a value.
    fn lanes(&mut self, u: &UOp) -> std::result::Result<Lanes, String> {
        if let Some(value) = u.as_const() {
            return Ok(vec![self.literal(value, u.dtype().scalar)?; u.dtype().lanes as usize]);
        }
        let known = self.scopes.iter().rev().find_map(|s| s.get(&u.id())).cloned();
        known.ok_or_else(|| unknown_operand(u))
    }

    fn scalar(&mut self, u: &UOp) -> Text {
        match self.lanes(u)?.as_slice() {
            [one] => Ok(one.clone()),
            more => Err(format!("its operand {u:?} has {} lanes", more.len())),
        }
    }

    /// Writes the declaration of a position in the launch.
    fn special(&mut self, u: &UOp) -> std::result::Result<Lanes, String> {
        let Special { kind, dim, extent, .. } = u.as_special().ok_or("it has no position")?;
        let name = format!("{}{dim}", kind.prefix());
        let position = self.position(kind, dim as usize);
        let mut position = position.ok_or_else(|| format!("there is no {name}"))?;
        if u.dtype().bits() == 64 {
            position = self.exact_call("to_u64", &[&position]);
        }
        self.line(&format!("let {name} = {}({position}); // {extent}", ty(u.dtype().scalar)?));
        Ok(vec![name])
    }

    /// Opens or closes a loop or a condition.
    fn block(&mut self, u: &UOp) -> Done {
        let block = u.operand();
        match (u.op(), u.arg()) {
            (Op::Range, Arg::Range { id, .. }) => {
                let (ty, extent) = (ty(u.dtype().scalar)?, self.scalar(block)?);
                let name = format!("ridx{id}");
                self.line(&format!("for (var {name} = {ty}(0); {name} < {extent}; {name}++) {{"));
                self.enter(u);
                self.remember(u, vec![name]);
            }
            (Op::If, _) => {
                let mask = self.scalar(block)?;
                self.line(&format!("if ({mask}) {{"));
                self.enter(u);
            }
            _ => {
                closes(self.open.pop_if(|opened| opened == block).is_some(), block)?;
                self.scopes.pop();
                self.line("}");
            }
        }
        Ok(())
    }

    /// Declares an accumulator, with a variable for each lane.
    fn accumulator(&mut self, u: &UOp, id: u32) -> std::result::Result<Lanes, String> {
        let (ty, init) = (ty(u.dtype().scalar)?, self.lanes(u.operand())?);
        let many = init.len() > 1;
        let name = |lane: usize| if many { format!("acc{id}_{lane}") } else { format!("acc{id}") };
        for (lane, init) in init.iter().enumerate() {
            self.line(&format!("var {}: {ty} = {init};", name(lane)));
        }
        Ok((0..init.len()).map(name).collect())
    }

    fn enter(&mut self, u: &UOp) {
        self.open.push(u.clone());
        self.scopes.push(FxHashMap::default());
    }

    /// Returns the current lanes: those of an accumulator get names of their own, because
    /// it may change.
    fn held(&mut self, u: &UOp) -> std::result::Result<Lanes, String> {
        let lanes = self.lanes(u)?;
        if !matches!(u.op(), Op::DefineAcc | Op::Assign) {
            return Ok(lanes);
        }
        Ok(lanes.iter().map(|l| self.define("alu", l)).collect())
    }

    fn assign(&mut self, u: &UOp) -> Done {
        let Assign { acc, value, .. } = u.expect_assign();
        let (names, values) = (self.lanes(acc)?, self.lanes(value)?);
        for (name, value) in names.iter().zip(values) {
            self.line(&format!("{name} = {value};"));
        }
        // It lives as long as the accumulator, not only to the end of the block.
        let scope = self
            .scopes
            .iter_mut()
            .find(|s| s.contains_key(&acc.id()))
            .expect("its lanes are known");
        scope.insert(u.id(), names);
        Ok(())
    }

    /// Returns a position in the launch, as an unsigned integer.
    fn position(&mut self, kind: SpecialKind, dim: usize) -> Option<String> {
        let axis = ["x", "y", "z"].get(dim)?;
        match kind {
            SpecialKind::Thread => None,
            SpecialKind::Local => Some(format!("lid.{axis}")),
            SpecialKind::Group if redistributed(self.groups) == self.groups => {
                Some(format!("gid.{axis}"))
            }
            SpecialKind::Group => {
                // If a dimension exceeds the limit, one flat index counts the workgroups, the first
                // dimension fastest.
                let [columns, rows, _] = redistributed(self.groups);
                if !std::mem::replace(&mut self.numbered, true) {
                    self.line(&format!("let group = gid.x+{columns}u*(gid.y+{rows}u*gid.z);"));
                    self.line(&format!(
                        "if (group >= {}u) {{ return; }}",
                        self.groups.iter().product::<usize>()
                    ));
                }
                let stride: usize = self.groups[..dim].iter().product();
                let outer =
                    if stride == 1 { "group".to_string() } else { format!("(group/{stride}u)") };
                let last = self.groups[dim + 1..].iter().all(|n| *n == 1);
                Some(if last { outer } else { format!("{outer}%{}u", self.groups[dim]) })
            }
        }
    }
}

impl Writer for WgslWriter<'_> {
    fn item(&mut self, u: &UOp) -> Done {
        let src = u.src();
        let lanes = match (u.op(), u.arg()) {
            (Op::Const | Op::Index | Op::Sink, _) => return Ok(()),
            (Op::DefineGlobal, Arg::Global { slot, len }) => {
                ty(u.dtype().scalar)?;
                let stored = self.stored.contains(&u.id());
                self.args.push(Argument::new(self.wgsl, *slot, u.dtype(), *len, stored));
                return Ok(());
            }
            (Op::DefineShared, Arg::Shared { id, len }) => {
                let ty = ty(u.dtype().scalar)?;
                self.shared += &format!("var<workgroup> temp{id}: array<{ty}, {len}>;\n");
                return Ok(());
            }
            (Op::Special, _) => self.special(u)?,
            (Op::Range | Op::If | Op::EndRange | Op::EndIf, _) => return self.block(u),
            (Op::DefineAcc, Arg::Acc(id)) => self.accumulator(u, *id)?,
            (Op::Assign, _) => return self.assign(u),
            (Op::Barrier, _) => {
                self.line("workgroupBarrier();");
                return Ok(());
            }
            (Op::Load, _) => self.load(u)?,
            (Op::Store, _) => return self.store(u),
            (Op::Vectorize, _) => {
                let lanes = src.iter().map(|s| self.held(s));
                lanes.collect::<std::result::Result<Vec<_>, _>>()?.concat()
            }
            (Op::Gep, Arg::Lanes(picked)) => {
                let all = self.held(u.operand())?;
                picked.iter().filter_map(|l| all.get(*l as usize)).cloned().collect()
            }
            (op, _) if op.is_alu() => self.alu(u)?,
            _ => return Err("it does not belong in a linear program".to_string()),
        };
        self.remember(u, lanes);
        Ok(())
    }

    fn innermost(&self) -> Option<&UOp> {
        self.open.last()
    }

    fn finish(mut self, name: &str) -> Rendered {
        self.args.sort_by_key(|a| a.slot);
        let mut prelude = self.bindings();
        prelude.extend(self.helpers.into_iter().map(|(_, text)| text));
        let [x, y, z] = self.threads;
        let params =
            "@builtin(workgroup_id) gid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>";
        let parts = [
            &format!("{}@compute @workgroup_size({x}, {y}, {z}) fn ", self.shared),
            &*format!("({params}) {{\n{}}}\n", self.body),
        ];
        Rendered::new(prelude, name, &parts)
    }
}
