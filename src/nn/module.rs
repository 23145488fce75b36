//! Modules: containers of parameters. A module passes its fields to a visitor; the parameter list,
//! the state dict and the training mode are derived from that one method.

use super::summary::{Summary, short};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::StateDict;
use crate::tensor::{Sides, Spatial, Tensor};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A container of tensors: a layer, a network, a list of networks, or a tensor.
///
/// `#[derive(Module)]` implements it for a struct. Each field is visited under its name. Tensors
/// that are [parameters](Tensor::as_param) are parameters of the module; other tensors are buffers,
/// which are in the state dict but not trained; numbers, bools and text are ignored.
/// `#[module(skip)]` excludes a field.
///
/// ```
/// use picograd::Tensor;
/// use picograd::nn::{Layer, Linear, Module};
///
/// #[derive(Module)]
/// struct Net {
///     hidden: Linear,
///     heads: Vec<Linear>,
///     scale: f32,
/// }
///
/// impl Net {
///     fn forward(&self, x: &Tensor) -> Tensor {
///         let x = self.hidden.forward(x).relu();
///         self.heads.iter().map(|h| h.forward(&x)).reduce(|a, b| a + b).unwrap()
///             * self.scale
///     }
/// }
///
/// let net = Net {
///     hidden: Linear::new(4, 8),
///     heads: vec![Linear::new(8, 2), Linear::new(8, 2)],
///     scale: 0.5,
/// };
/// assert_eq!(net.forward(&Tensor::zeros([3, 4])).shape(), [3, 2]);
/// let names: Vec<String> =
///     net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(
///     names,
///     [
///         "hidden.weight",
///         "hidden.bias",
///         "heads.0.weight",
///         "heads.0.bias",
///         "heads.1.weight",
///         "heads.1.bias"
///     ]
/// );
/// ```
///
/// A field of any other type is a compile error, not a parameter that is silently never trained:
///
/// ```compile_fail
/// struct NotAModule;
/// #[derive(picograd::nn::Module)]
/// struct Net { part: NotAModule }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Module`",
    label = "not a module: its fields cannot be visited",
    note = "if it holds tensors, put `#[derive(Module)]` on `{Self}`; if it is a setting, put \
            `#[module(skip)]` on the field"
)]
pub trait Module {
    /// Passes every tensor, submodule and [`Mode`] to a visitor. The derive generates this method.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// Returns all parameters in field order, each once even if it is shared.
    fn parameters(&self) -> Vec<Tensor> {
        let mut seen = FxHashSet::default();
        self.named_parameters()
            .into_iter()
            .map(|(_, t)| t)
            .filter(|t| seen.insert(t.id()))
            .collect()
    }

    /// Returns all parameters with their dotted names. A shared parameter has several names.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named(self, Tensor::is_param)
    }

    /// Returns all buffers with their dotted names: tensors of the state that are not trained, such
    /// as running means.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        named(self, |t| !t.is_param())
    }

    /// Returns the number of elements of all parameters.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// Returns a snapshot of all parameters and buffers under dotted names. Later training does not
    /// change it.
    fn state_dict(&self) -> StateDict {
        named(self, |_| true).into_iter().map(|(name, t)| (name, t.detach())).collect()
    }

    /// Loads values into all parameters and buffers. With `strict`, names must match exactly;
    /// otherwise names without a counterpart are ignored. On a mismatch the error names every one
    /// of them and nothing changes.
    fn load_state_dict(&self, state: &StateDict, strict: bool) -> Result<()> {
        state.load_into(&named(self, |_| true), strict)
    }

    /// Sets the training mode: dropout is active, and batch norms use batch statistics. New modules
    /// are in this mode.
    fn train(&self) {
        set_mode(self, true);
    }

    /// Sets the evaluation mode.
    fn eval(&self) {
        set_mode(self, false);
    }

    /// Converts float parameters, buffers and gradients to a dtype in place. Integers are
    /// unchanged. Create optimizers afterwards: their state has the dtype of its creation.
    ///
    /// ```
    /// use picograd::{DType, Tensor};
    /// use picograd::nn::{BatchNorm, Layer, Module};
    /// let norm = BatchNorm::new(3);
    /// norm.cast(DType::F64)?;
    /// assert_eq!(norm.forward(&Tensor::zeros([2, 3]).double()).dtype(), DType::F64);
    /// assert_eq!(norm.num_batches_tracked.as_ref().unwrap().dtype(), DType::I64);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    fn cast(&self, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            let msg = format!("expected a float dtype, got {dtype}");
            return Err(Error::DType { op: "Module::cast", msg });
        }
        let mut seen = FxHashSet::default();
        let all: Vec<Tensor> = named(self, |t| t.is_floating_point() && t.dtype() != dtype)
            .into_iter()
            .map(|(_, t)| t)
            .collect();
        all.iter().filter(|t| seen.insert(t.id())).try_for_each(|t| t.cast_in_place(dtype))?;
        Tensor::realize_many(&all.iter().collect::<Vec<_>>())
    }

    /// Disables gradients of the parameters in later computations, so that optimizers do not update
    /// them. They remain in [`parameters`](Self::parameters) and in state dicts. Functions that a
    /// [`Jit`](crate::Jit) has captured are unchanged.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Linear, Module};
    /// let (body, head) = (Linear::new(2, 3), Linear::new(3, 1));
    /// body.freeze();
    /// head.forward(&body.forward(&Tensor::ones([1, 2]))).sum(..).backward();
    /// assert!(body.weight.grad().is_none() && head.weight.grad().is_some());
    /// ```
    fn freeze(&self) {
        self.named_parameters().iter().for_each(|(_, t)| t.set_frozen(true));
    }

    /// Enables gradients of the parameters again.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module};
    /// let layer = Linear::new(2, 3);
    /// layer.freeze();
    /// assert!(!layer.weight.requires_grad());
    /// layer.unfreeze();
    /// assert!(layer.weight.requires_grad());
    /// ```
    fn unfreeze(&self) {
        self.named_parameters().iter().for_each(|(_, t)| t.set_frozen(false));
    }

    /// Returns the tree of submodules with shapes and parameter counts, for printing.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module};
    /// let text = Linear::new(2, 3).summary().to_string();
    /// assert_eq!(text, "Linear(weight: [3, 2], bias: [3]) 9 parameters");
    /// ```
    fn summary(&self) -> Summary {
        Summary::of(self)
    }

    /// Returns the type name in a [`summary`](Self::summary); empty if the type is not a node of
    /// the tree.
    fn module_name(&self) -> String {
        short(std::any::type_name::<Self>())
    }
}

fn named<M: Module + ?Sized>(
    module: &M,
    wanted: impl Fn(&Tensor) -> bool,
) -> Vec<(String, Tensor)> {
    let mut found = Vec::new();
    let mut see = |path: &str, part: Part<'_>| {
        if let Part::Tensor(t) = part
            && wanted(t)
        {
            found.push((path.to_string(), t.clone()));
        }
    };
    module.visit(&mut Visitor::new(&mut see));
    found
}

fn set_mode<M: Module + ?Sized>(module: &M, training: bool) {
    let mut see = |_: &str, part: Part<'_>| {
        if let Part::Mode(mode) = part {
            mode.set(training);
        }
    };
    module.visit(&mut Visitor::new(&mut see));
}

/// An item that a visitor receives.
#[non_exhaustive]
pub enum Part<'a> {
    /// A parameter or a buffer.
    Tensor(&'a Tensor),
    /// The mode of a layer that differs between training and evaluation.
    Mode(&'a Mode),
    /// A submodule whose items follow, with its type name. A visitor of [`Visitor::new`] does not
    /// receive these.
    Module(&'a str),
}

/// Walks the items of a module and tracks the dotted name of the current one.
pub struct Visitor<'a> {
    path: String,
    modules: bool,
    see: &'a mut dyn FnMut(&str, Part<'_>),
}

impl<'a> Visitor<'a> {
    /// Creates a visitor that calls a function with each name and item.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, Part, Visitor};
    /// let mut names = Vec::new();
    /// Linear::new(2, 3)
    ///     .visit(&mut Visitor::new(&mut |name: &str, _: Part| names.push(name.to_string())));
    /// assert_eq!(names, ["weight", "bias"]);
    /// ```
    pub fn new(see: &'a mut dyn FnMut(&str, Part<'_>)) -> Visitor<'a> {
        Visitor { path: String::new(), modules: false, see }
    }
    /// Creates a visitor that also receives submodules.
    pub(super) fn of_modules(see: &'a mut dyn FnMut(&str, Part<'_>)) -> Visitor<'a> {
        Visitor { path: String::new(), modules: true, see }
    }
    /// Visits a field of this name.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, Part, Visitor};
    /// let mut names = Vec::new();
    /// Visitor::new(&mut |name: &str, _: Part| names.push(name.to_string()))
    ///     .field("head", &Linear::new(2, 3));
    /// assert_eq!(names, ["head.weight", "head.bias"]);
    /// ```
    pub fn field<M: Module + ?Sized>(&mut self, name: &str, part: &M) {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        if self.modules {
            let name = part.module_name();
            if !name.is_empty() {
                self.show(Part::Module(&name));
            }
        }
        part.visit(self);
        self.path.truncate(before);
    }
    /// Passes an item to the function under the current name.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Part, Visitor};
    /// let mut seen = 0;
    /// Visitor::new(&mut |_: &str, _: Part| seen += 1).show(Part::Tensor(&Tensor::zeros([2])));
    /// assert_eq!(seen, 1);
    /// ```
    pub fn show(&mut self, part: Part<'_>) {
        (self.see)(&self.path, part);
    }
}

/// Training or evaluation mode. Layers that differ between the two contain one; [`Module::train`]
/// and [`Module::eval`] set it.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Default for Mode {
    /// Creates the training mode.
    fn default() -> Mode {
        Mode(AtomicBool::new(true))
    }
}

impl Mode {
    /// Returns true in training mode.
    ///
    /// ```
    /// use picograd::nn::Mode;
    /// assert!(Mode::default().is_training());
    /// ```
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    /// Sets the mode: true for training.
    ///
    /// ```
    /// use picograd::nn::Mode;
    /// let mode = Mode::default();
    /// mode.set(false);
    /// assert!(!mode.is_training());
    /// ```
    pub fn set(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Module for Mode {
    fn module_name(&self) -> String {
        String::new()
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.show(Part::Mode(self));
    }
}

impl Module for Tensor {
    fn module_name(&self) -> String {
        String::new()
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.show(Part::Tensor(self));
    }
}

/// Returns the type name of a list; empty if it contains only tensors or settings.
fn list_name<M: Module>(mut parts: impl Iterator<Item = M>) -> String {
    if parts.any(|p| !p.module_name().is_empty()) { "ModuleList".into() } else { String::new() }
}

/// Elements are visited under their indices.
impl<M: Module> Module for [M] {
    fn module_name(&self) -> String {
        list_name(self.iter())
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().enumerate().for_each(|(i, m)| visitor.field(&i.to_string(), m));
    }
}
impl<M: Module> Module for Vec<M> {
    fn module_name(&self) -> String {
        self.as_slice().module_name()
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}
impl<M: Module, const N: usize> Module for [M; N] {
    fn module_name(&self) -> String {
        self.as_slice().module_name()
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}
/// Values are visited under their keys.
impl<K: fmt::Display, M: Module> Module for BTreeMap<K, M> {
    fn module_name(&self) -> String {
        if list_name(self.values()).is_empty() { String::new() } else { "ModuleDict".into() }
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|(key, m)| visitor.field(&key.to_string(), m));
    }
}
impl<M: Module> Module for Option<M> {
    fn module_name(&self) -> String {
        self.as_ref().map(M::module_name).unwrap_or_default()
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|m| m.visit(visitor));
    }
}

/// A pointer visits what it points to.
macro_rules! pointers {
    ($($t:ty)*) => { $(
        impl<M: Module + ?Sized> Module for $t {
            fn module_name(&self) -> String {
                (**self).module_name()
            }
            fn visit(&self, visitor: &mut Visitor<'_>) {
                (**self).visit(visitor);
            }
        }
    )* };
}
pointers! { Box<M> Arc<M> &M }

/// Settings have no items.
macro_rules! settings {
    ($($t:ty)*) => { $(impl Module for $t {
        fn module_name(&self) -> String { String::new() }
        fn visit(&self, _: &mut Visitor<'_>) {}
    })* };
}
settings! {
    () bool char i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 String str
    DType Spatial Sides fn(&Tensor) -> Tensor
}

impl<T: ?Sized> Module for PhantomData<T> {
    fn module_name(&self) -> String {
        String::new()
    }
    fn visit(&self, _: &mut Visitor<'_>) {}
}

macro_rules! tuples {
    ($($($m:ident $i:tt)*;)*) => { $(
        /// Elements are visited under their indices.
        impl<$($m: Module),*> Module for ($($m,)*) {
            fn module_name(&self) -> String {
                list_name([$(&self.$i as &dyn Module),*].into_iter())
            }
            fn visit(&self, visitor: &mut Visitor<'_>) {
                $(visitor.field(stringify!($i), &self.$i);)*
            }
        }
    )* };
}
tuples! { A 0; A 0 B 1; A 0 B 1 C 2; A 0 B 1 C 2 D 3; }
