//! What holds parameters. A module shows its parts to a visitor, and from that one method come its list of parameters, its state dict, and the
//! switch between training and evaluation.

use super::state::StateDict;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{Sides, Spatial, Tensor};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whatever holds tensors: a layer, a network, a list of networks, a tensor itself.
///
/// `#[derive(Module)]` is all that a struct needs. Each field is shown under its name; tensors that are [parameters](Tensor::as_param) are
/// parameters of the module, other tensors are buffers, which are in the state dict but are not trained; numbers, bools and text are settings and are
/// not shown. `#[module(skip)]` leaves a field out.
///
/// ```
/// use picograd::{Tensor, nn::{Layer, Linear, Module}};
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
///         self.heads.iter().map(|h| h.forward(&x)).reduce(|a, b| a + b).unwrap() * self.scale
///     }
/// }
///
/// let net = Net { hidden: Linear::new(4, 8), heads: vec![Linear::new(8, 2), Linear::new(8, 2)], scale: 0.5 };
/// assert_eq!(net.forward(&Tensor::zeros([3, 4])).shape(), [3, 2]);
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["hidden.weight", "hidden.bias", "heads.0.weight", "heads.0.bias", "heads.1.weight", "heads.1.bias"]);
/// ```
///
/// A field that cannot be shown is a compile error, not a parameter that is silently never trained:
///
/// ```compile_fail
/// struct NotAModule;
/// #[derive(picograd::nn::Module)]
/// struct Net { part: NotAModule }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Module`",
    label = "this has no parts to show",
    note = "if it holds tensors, put `#[derive(Module)]` on `{Self}`; if it is a setting, put `#[module(skip)]` on the field"
)]
pub trait Module {
    /// Shows every tensor, every part and every [`Mode`] to a visitor. The derive writes this.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// All parameters, each once even if it is in several places, in the order of the fields.
    fn parameters(&self) -> Vec<Tensor> {
        let mut seen = FxHashSet::default();
        self.named_parameters().into_iter().map(|(_, t)| t).filter(|t| seen.insert(t.id())).collect()
    }

    /// All parameters with their dotted names. One that is in several places has several names.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named(self, Tensor::is_param)
    }

    /// All tensors that belong to the state but are not trained, such as running means, with their dotted names.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        named(self, |t| !t.is_param())
    }

    /// The number of elements of all parameters.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// The values of all parameters and buffers as they are now, under dotted names. What is trained afterwards does not change them.
    fn state_dict(&self) -> StateDict {
        named(self, |_| true).into_iter().map(|(name, t)| (name, t.detach())).collect()
    }

    /// Puts values into all parameters and buffers. With `strict` every one of them needs a value and every value a place; without, what has no
    /// counterpart is left alone. If anything does not fit, an error names all of it and nothing has changed.
    fn load_state_dict(&self, state: &StateDict, strict: bool) -> Result<()> {
        state.load_into(&named(self, |_| true), strict)
    }

    /// Turns on what is for training alone: dropout, and statistics of the batch in batch norms. New modules are in this mode.
    fn train(&self) {
        set_mode(self, true);
    }

    /// Turns off what is for training alone.
    fn eval(&self) {
        set_mode(self, false);
    }
}

fn named<M: Module + ?Sized>(module: &M, wanted: impl Fn(&Tensor) -> bool) -> Vec<(String, Tensor)> {
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

/// What a visitor is shown.
#[non_exhaustive]
pub enum Part<'a> {
    /// A parameter or a buffer.
    Tensor(&'a Tensor),
    /// The switch of a layer that does something else in training.
    Mode(&'a Mode),
}

/// Goes through the parts of a module and knows the dotted name of the place where it is.
pub struct Visitor<'a> {
    path: String,
    see: &'a mut dyn FnMut(&str, Part<'_>),
}

impl<'a> Visitor<'a> {
    /// A visitor that calls a function with the name and the part.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, Part, Visitor};
    /// let mut names = Vec::new();
    /// Linear::new(2, 3).visit(&mut Visitor::new(&mut |name: &str, _: Part| names.push(name.to_string())));
    /// assert_eq!(names, ["weight", "bias"]);
    /// ```
    pub fn new(see: &'a mut dyn FnMut(&str, Part<'_>)) -> Visitor<'a> {
        Visitor { path: String::new(), see }
    }
    /// Goes into a part of this name and comes back.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, Part, Visitor};
    /// let mut names = Vec::new();
    /// Visitor::new(&mut |name: &str, _: Part| names.push(name.to_string())).field("head", &Linear::new(2, 3));
    /// assert_eq!(names, ["head.weight", "head.bias"]);
    /// ```
    pub fn field<M: Module + ?Sized>(&mut self, name: &str, part: &M) {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        part.visit(self);
        self.path.truncate(before);
    }
    /// Shows a part in the place where the visitor is.
    ///
    /// ```
    /// use picograd::{Tensor, nn::{Part, Visitor}};
    /// let mut seen = 0;
    /// Visitor::new(&mut |_: &str, _: Part| seen += 1).show(Part::Tensor(&Tensor::zeros([2])));
    /// assert_eq!(seen, 1);
    /// ```
    pub fn show(&mut self, part: Part<'_>) {
        (self.see)(&self.path, part);
    }
}

/// Whether a layer is trained or used. Layers that do something else in training hold one; [`Module::train`] and [`Module::eval`] set it.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Default for Mode {
    /// Training.
    fn default() -> Mode {
        Mode(AtomicBool::new(true))
    }
}

impl Mode {
    /// Is the layer in training?
    ///
    /// ```
    /// use picograd::nn::Mode;
    /// assert!(Mode::default().is_training());
    /// ```
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    /// Switches.
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
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.show(Part::Mode(self));
    }
}

impl Module for Tensor {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.show(Part::Tensor(self));
    }
}

/// Parts under their numbers.
impl<M: Module> Module for [M] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().enumerate().for_each(|(i, m)| visitor.field(&i.to_string(), m));
    }
}
impl<M: Module> Module for Vec<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}
impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}
/// Parts under their keys.
impl<K: fmt::Display, M: Module> Module for BTreeMap<K, M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|(key, m)| visitor.field(&key.to_string(), m));
    }
}
impl<M: Module> Module for Option<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|m| m.visit(visitor));
    }
}
impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}
impl<M: Module + ?Sized> Module for Arc<M> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}
impl<M: Module + ?Sized> Module for &M {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

/// Settings, which have nothing to show.
macro_rules! settings {
    ($($t:ty)*) => { $(impl Module for $t { fn visit(&self, _: &mut Visitor<'_>) {} })* };
}
settings! { () bool char i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 String str DType Spatial Sides fn(&Tensor) -> Tensor }

impl<T: ?Sized> Module for PhantomData<T> {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

macro_rules! tuples {
    ($($($m:ident $i:tt)*;)*) => { $(
        /// Parts under their numbers.
        impl<$($m: Module),*> Module for ($($m,)*) {
            fn visit(&self, visitor: &mut Visitor<'_>) { $(visitor.field(stringify!($i), &self.$i);)* }
        }
    )* };
}
tuples! { A 0; A 0 B 1; A 0 B 1 C 2; A 0 B 1 C 2 D 3; }
