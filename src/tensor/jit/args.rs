//! Arguments and results of a captured function: tensors, alone or in tuples, arrays, lists and
//! options; arguments also numbers.

use crate::shape::SymInt;
use crate::tensor::Tensor;

/// An argument, or a part of one.
pub enum Leaf {
    /// A tensor, which may differ between calls.
    Tensor(Tensor),
    /// A variable, or a sum of some, whose value may differ between calls.
    Variable(SymInt),
    /// A host value, printed: the same at each call.
    Host(String),
    /// Length of a list or an option.
    Length(usize),
}

/// Arguments of the function of a [`Jit`](super::Jit). Tensors and bound
/// [`Variable`](crate::Variable)s may change from call to call, numbers and `bool`s may not: they
/// are part of what was captured.
///
/// ```
/// use picograd::{Jit, Tensor};
/// let mut scaled = Jit::new(|(x, by): (Vec<Tensor>, f64)| Ok(&x[0] * by + &x[1]));
/// for _ in 0..3 {
///     let x = vec![Tensor::new([1.0f32, 2.0]), Tensor::new([10.0f32, 20.0])];
///     assert_eq!(scaled.call((x, 3.0))?.to_vec::<f32>()?, [13.0, 26.0]);
/// }
/// let x = vec![Tensor::new([1.0f32, 2.0]), Tensor::new([10.0f32, 20.0])];
/// assert_eq!(
///     scaled.call((x, 4.0)).unwrap_err().to_string(),
///     "jit: argument 2 was 3.0 when the function was captured and is 4.0 now; make it a \
///      tensor, or have a Jit for each value"
/// );
/// # Ok::<(), picograd::Error>(())
/// ```
pub trait JitArg {
    /// Calls `f` on each part, in order.
    fn visit(&self, f: &mut dyn FnMut(Leaf));
    /// The same with other tensors, in the same order.
    fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> Self;
}

/// Results of a captured function: new tensors at each call.
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
    /// The same with other tensors, in the same order.
    fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> Self;
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

impl<T: JitArg> JitArg for Vec<T> {
    fn visit(&self, f: &mut dyn FnMut(Leaf)) {
        f(Leaf::Length(self.len()));
        self.iter().for_each(|x| x.visit(f));
    }
    fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> Vec<T> {
        self.iter().map(|x| x.with_tensors(next)).collect()
    }
}

impl<T: JitOut> JitOut for Vec<T> {
    fn each(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|x| x.each(f));
    }
    fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> Vec<T> {
        self.iter().map(|x| x.renewed(next)).collect()
    }
}

impl<T: JitArg, const N: usize> JitArg for [T; N] {
    fn visit(&self, f: &mut dyn FnMut(Leaf)) {
        self.iter().for_each(|x| x.visit(f));
    }
    fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> [T; N] {
        self.each_ref().map(|x| x.with_tensors(next))
    }
}

impl<T: JitOut, const N: usize> JitOut for [T; N] {
    fn each(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|x| x.each(f));
    }
    fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> [T; N] {
        self.each_ref().map(|x| x.renewed(next))
    }
}

impl<T: JitArg> JitArg for Option<T> {
    fn visit(&self, f: &mut dyn FnMut(Leaf)) {
        f(Leaf::Length(self.is_some() as usize));
        self.iter().for_each(|x| x.visit(f));
    }
    fn with_tensors(&self, next: &mut dyn FnMut() -> Tensor) -> Option<T> {
        self.as_ref().map(|x| x.with_tensors(next))
    }
}

impl<T: JitOut> JitOut for Option<T> {
    fn each(&self, f: &mut dyn FnMut(&Tensor)) {
        self.iter().for_each(|x| x.each(f));
    }
    fn renewed(&self, next: &mut dyn FnMut() -> Tensor) -> Option<T> {
        self.as_ref().map(|x| x.renewed(next))
    }
}
