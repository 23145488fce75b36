//! A module as text: the tree of submodules with tensor shapes and parameter counts.

use super::{Module, Part, Visitor};
use crate::dtype::DType;
use crate::tensor::Tensor;
use rustc_hash::FxHashSet;
use std::fmt;

/// The tree of a module, from [`Module::summary`]; its `Display` prints it.
///
/// ```
/// use picograd::{Tensor, seq};
/// use picograd::nn::{BatchNorm, Linear, Module};
/// let net = seq![Linear::new(2, 8), Tensor::tanh, Linear::new(8, 1).bias(false)];
/// net.freeze();
/// net.parameters()[0].unfreeze();
/// assert_eq!(
///     net.summary().to_string(),
///     "\
/// Sequential(
///   (0): Linear(weight: [8, 2], bias: [8]) 24 parameters, 8 frozen
///   (1): tanh()
///   (2): Linear(weight: [1, 8]) 8 parameters, frozen
/// ) 32 parameters, 16 frozen"
/// );
/// ```
pub struct Summary(Node);

struct Node {
    /// The field name, and the path of the submodule.
    field: String,
    path: String,
    kind: String,
    tensors: Vec<(String, Tensor)>,
    parts: Vec<Node>,
}

impl Node {
    /// All tensors in it and below it.
    fn each(&self, f: &mut impl FnMut(&Tensor)) {
        self.tensors.iter().for_each(|(_, t)| f(t));
        self.parts.iter().for_each(|p| p.each(f));
    }
    /// Returns the number of elements of all parameters and of the frozen ones, each parameter
    /// once.
    fn counts(&self) -> (usize, usize) {
        let (mut seen, mut all, mut frozen) = (FxHashSet::default(), 0, 0);
        self.each(&mut |t| {
            if t.is_param() && seen.insert(t.id()) {
                all += t.numel();
                frozen += if t.requires_grad() { 0 } else { t.numel() };
            }
        });
        (all, frozen)
    }
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        let tensor = |(name, t): &(String, Tensor)| {
            let dtype =
                if t.dtype() == DType::F32 { String::new() } else { format!("{} ", t.dtype()) };
            format!("{name}: {dtype}{:?}{}", t.shape(), if t.is_param() { "" } else { " buffer" })
        };
        let tensors: Vec<String> = self.tensors.iter().map(tensor).collect();
        write!(f, "{}({}", self.kind, tensors.join(", "))?;
        for part in &self.parts {
            write!(f, "\n{:1$}({2}): ", "", indent + 2, part.field)?;
            part.write(f, indent + 2)?;
        }
        if !self.parts.is_empty() {
            write!(f, "\n{:1$}", "", indent)?;
        }
        write!(f, ")")?;
        match self.counts() {
            (0, _) => Ok(()),
            (all, 0) => write!(f, " {all} parameters"),
            (all, frozen) if all == frozen => write!(f, " {all} parameters, frozen"),
            (all, frozen) => write!(f, " {all} parameters, {frozen} frozen"),
        }
    }
}

impl Summary {
    pub(super) fn of<M: Module + ?Sized>(module: &M) -> Summary {
        let node = |field: &str, path: &str, kind: String| Node {
            field: field.into(),
            path: path.into(),
            kind,
            tensors: Vec::new(),
            parts: Vec::new(),
        };
        let kind = module.module_name();
        let mut open = vec![node("", "", if kind.is_empty() { "Module".into() } else { kind })];
        let mut see = |path: &str, part: Part<'_>| {
            // True for the nodes on the path.
            let inside = |n: &Node| {
                path.strip_prefix(n.path.as_str())
                    .filter(|rest| n.path.is_empty() || rest.starts_with('.'))
                    .is_some()
            };
            while open.len() > 1 && !open.last().is_some_and(inside) {
                close(&mut open);
            }
            let Some(top) = open.last_mut() else { return };
            let name = path.get(top.path.len()..).unwrap_or_default().trim_start_matches('.');
            match part {
                Part::Tensor(t) => top
                    .tensors
                    .push((if name.is_empty() { "value" } else { name }.into(), t.clone())),
                Part::Module(kind) => {
                    let child = node(name, path, kind.into());
                    open.push(child);
                }
                Part::Mode(_) => {}
            }
        };
        module.visit(&mut Visitor::of_modules(&mut see));
        while open.len() > 1 {
            close(&mut open);
        }
        Summary(open.remove(0))
    }
}

/// Moves the last submodule into its parent.
fn close(open: &mut Vec<Node>) {
    if let (Some(done), Some(parent)) = (open.pop(), open.last_mut()) {
        parent.parts.push(done);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, 0)
    }
}

impl fmt::Display for dyn Module + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Summary::of(self).fmt(f)
    }
}

impl fmt::Display for dyn super::Layer + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Summary::of(self).fmt(f)
    }
}

impl fmt::Display for super::Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Summary::of(self).fmt(f)
    }
}

/// Returns the type name without module paths: `a::B<c::D>` is `B<D>`.
pub(super) fn short(name: &str) -> String {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut out = String::new();
    for piece in name.split_inclusive(|c: char| !is_path(c)) {
        let end = piece.find(|c: char| !is_path(c)).unwrap_or(piece.len());
        out += piece[..end].rsplit("::").next().unwrap_or_default();
        out += &piece[end..];
    }
    out
}
