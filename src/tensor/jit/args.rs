//! Arguments and results of a captured function: tensors, alone or in tuples, arrays, lists and
//! options. Arguments may also be variables and numbers.

use crate::shape::SymInt;
use crate::tensor::Tensor;

/// Part of an argument.
pub enum Leaf {
    /// Tensor, which may differ between calls.
    Tensor(Tensor),
    /// Variable or expression of variables, whose value may differ between calls.
    Variable(SymInt),
    /// Printed host value, equal at each call.
    Host(String),
    /// Length of a list or an option.
    Length(usize),
}

/// Tensors among the parts of arguments.
pub(super) fn tensors_of(leaves: &[Leaf]) -> Vec<&Tensor> {
    leaves.iter().filter_map(|l| if let Leaf::Tensor(t) = l { Some(t) } else { None }).collect()
}

/// Arguments of the function of a [`Jit`](super::Jit). Tensors and bound
/// [`Variable`](crate::Variable)s may change from call to call. Numbers and `bool`s may not,
/// because they are constants of the capture.
///
/// ```
/// use picograd::{Jit, Tensor};
/// let mut scaled = Jit::new(|(x, by): (Vec<Tensor>, f64)| Ok(&x[0] * by + &x[1]));
/// for _ in 0..3 {
///     let x = vec![Tensor::new([1.0f32, 2.0]), Tensor::new([10.0f32, 20.0])];
///     assert_eq!(scaled.call((x, 3.0))?.to_vec::<f32>()?, [13.0, 26.0]);
/// }
/// assert!(scaled.call((vec![Tensor::zeros([2]), Tensor::zeros([2])], 4.0)).is_err()); // not 3.0
/// # Ok::<(), picograd::Error>(())
/// ```
pub trait JitArg {
    /// Calls `f` on each part, in order.
    fn visit(&self, f: &mut dyn FnMut(Leaf));
    /// Copy with other tensors, in the same order.
    fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> Self;
}

/// Results of a captured function, which are new tensors at each call.
///
/// ```
/// use picograd::{Jit, Tensor};
/// let mut both = Jit::new(|x: Tensor| Ok((x.sum(0), Some(x.max(0)))));
/// for _ in 0..3 {
///     let (sum, max) = both.call(Tensor::new([1.0f32, 2.0]))?;
///     assert_eq!((sum.item::<f32>()?, max.unwrap().item::<f32>()?), (3.0, 2.0));
/// }
/// # Ok::<(), picograd::Error>(())
/// ```
pub trait JitOut {
    /// Calls `f` on each tensor, in order.
    fn each(&self, f: &mut dyn FnMut(&Tensor));
    /// Copy with other tensors, in the same order.
    fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> Self;
}

/// Implements both traits for a container: its generics, its type, the leaf of its length if the
/// length is part of the signature, and an expression that maps its elements.
macro_rules! container {
    ($([$($generics:tt)*] $t:ty, $length:expr, |$this:ident, $f:ident| $map:expr;)*) => { $(
        impl<T: JitArg $($generics)*> JitArg for $t {
            fn visit(&self, f: &mut dyn FnMut(Leaf)) {
                let length: fn(&$t) -> Option<usize> = $length;
                length(self).map(Leaf::Length).into_iter().for_each(&mut *f);
                self.iter().for_each(|x| x.visit(f));
            }
            fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> $t {
                let ($this, mut $f) = (self, |x: &T| x.with_tensors(next));
                $map
            }
        }
        impl<T: JitOut $($generics)*> JitOut for $t {
            fn each(&self, f: &mut dyn FnMut(&Tensor)) {
                self.iter().for_each(|x| x.each(f));
            }
            fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> $t {
                let ($this, mut $f) = (self, |x: &T| x.renewed(next));
                $map
            }
        }
    )* };
}
container! {
    [] Vec<T>, |list| Some(list.len()), |list, f| list.iter().map(&mut f).collect();
    [, const N: usize] [T; N], |_| None, |list, f| list.each_ref().map(&mut f);
    [] Option<T>, |option| Some(option.is_some() as usize), |option, f| option.as_ref().map(&mut f);
}

impl JitArg for Tensor {
    fn visit(&self, f: &mut dyn FnMut(Leaf)) {
        f(Leaf::Tensor(self.clone()));
    }
    fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> Tensor {
        next()
    }
}

impl JitArg for SymInt {
    fn visit(&self, f: &mut dyn FnMut(Leaf)) {
        f(Leaf::Variable(self.clone()));
    }
    fn with_tensors(&self, _: &mut dyn FnMut() -> Tensor) -> SymInt {
        self.clone()
    }
}

impl JitOut for Tensor {
    fn each(&self, f: &mut dyn FnMut(&Tensor)) {
        f(self);
    }
    fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> Tensor {
        next()
    }
}

macro_rules! host {
    ($($t:ty),*) => { $(
        impl JitArg for $t {
            fn visit(&self, f: &mut dyn FnMut(Leaf)) {
                f(Leaf::Host(format!("{self:?}")));
            }
            fn with_tensors(&self, _: &mut dyn FnMut() -> Tensor) -> $t {
                *self
            }
        }
    )* };
}
host!(bool, i8, i16, i32, i64, u8, u16, u32, u64, isize, usize, f32, f64);

macro_rules! tuple {
    ($($t:ident $i:tt),*) => {
        impl<$($t: JitArg),*> JitArg for ($($t,)*) {
            #[allow(unused_variables)]
            fn visit(&self, f: &mut dyn FnMut(Leaf)) {
                $(self.$i.visit(f);)*
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
                ($(self.$i.with_tensors(next),)*)
            }
        }
        impl<$($t: JitOut),*> JitOut for ($($t,)*) {
            #[allow(unused_variables)]
            fn each(&self, f: &mut dyn FnMut(&Tensor)) {
                $(self.$i.each(f);)*
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> Self {
                ($(self.$i.renewed(next),)*)
            }
        }
    };
}
tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
