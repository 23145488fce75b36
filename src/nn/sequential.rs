//! Layers, which map one tensor to another, and chains of layers.

use super::module::{Module, Visitor};
use crate::error::Result;
use crate::tensor::{Tensor, or_panic};

/// A module that maps one tensor to another. A [`Sequential`] can contain it.
///
/// ```
/// use picograd::{Result, Tensor};
/// use picograd::nn::{Layer, Linear, Module};
///
/// #[derive(Module)]
/// struct Residual {
///     inner: Linear,
/// }
///
/// impl Layer for Residual {
///     fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
///         self.inner.try_forward(x)?.relu().try_add(x)
///     }
/// }
/// let net = picograd::seq![Residual { inner: Linear::new(4, 4) }, Linear::new(4, 1)];
/// assert_eq!(net.forward(&Tensor::ones([2, 4])).shape(), [2, 1]);
/// assert!(net.try_forward(&Tensor::ones([2, 5])).is_err());
/// ```
pub trait Layer: Module + Send + Sync {
    /// Computes the output. An invalid input is an error that names the layer, the expected and the
    /// given shape.
    fn try_forward(&self, x: &Tensor) -> Result<Tensor>;

    /// Calls [`try_forward`](Self::try_forward) and panics on an error.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        or_panic(self.try_forward(x))
    }
}

impl<L: Layer + ?Sized> Layer for Box<L> {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).try_forward(x)
    }
}

/// A function as a layer without parameters, created by [`seq!`](crate::seq).
pub struct Func<F>(pub F);

impl<F> Module for Func<F> {
    /// Returns the last part of the function's path.
    fn module_name(&self) -> String {
        let name = std::any::type_name::<F>();
        name.rsplit("::").next().unwrap_or(name).trim_matches(['{', '}']).into()
    }
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl<F: Fn(&Tensor) -> Tensor + Send + Sync> Layer for Func<F> {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok((self.0)(x))
    }
}

/// An element of a chain: a layer, or a function of a tensor. `Kind` distinguishes the two and is
/// always inferred.
pub trait ToLayer<Kind> {
    /// Converts it to a layer.
    fn to_layer(self) -> Box<dyn Layer>;
}

/// Marker of layers.
pub struct IsLayer;
/// Marker of functions.
pub struct IsFunction;

impl<L: Layer + 'static> ToLayer<IsLayer> for L {
    fn to_layer(self) -> Box<dyn Layer> {
        Box::new(self)
    }
}
impl<F: Fn(&Tensor) -> Tensor + Send + Sync + 'static> ToLayer<IsFunction> for F {
    fn to_layer(self) -> Box<dyn Layer> {
        Box::new(Func(self))
    }
}

/// A chain of layers; each takes the output of the previous one. [`seq!`](crate::seq) creates one.
/// Parameters are named by the index of their layer; functions count.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// Creates an empty chain, the identity.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Sequential};
    /// assert_eq!(Sequential::new().forward(&Tensor::new([1, 2])).to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> Sequential {
        Sequential::default()
    }
    /// Appends a layer, or a function of a tensor.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Linear, Sequential};
    /// let net = Sequential::new().then(Linear::new(3, 2)).then(Tensor::relu);
    /// assert_eq!(net.forward(&Tensor::zeros([4, 3])).shape(), [4, 2]);
    /// ```
    pub fn then<Kind>(mut self, layer: impl ToLayer<Kind>) -> Sequential {
        self.layers.push(layer.to_layer());
        self
    }
    /// Returns the number of layers.
    ///
    /// ```
    /// use picograd::{Tensor, nn::Linear, seq};
    /// assert_eq!(seq![Linear::new(3, 2), Tensor::relu].len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.layers.len()
    }
    /// Returns true if there are no layers.
    ///
    /// ```
    /// use picograd::nn::Sequential;
    /// assert!(Sequential::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

/// A chain of equal layers: `(0..6).map(|_| TransformerBlock::new(64, 4, 256)).collect()`.
impl<L: Layer + 'static> FromIterator<L> for Sequential {
    fn from_iter<I: IntoIterator<Item = L>>(layers: I) -> Sequential {
        layers.into_iter().fold(Sequential::new(), Sequential::then)
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.layers.visit(visitor);
    }
}

impl Layer for Sequential {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.try_forward(&x))
    }
}

/// Creates a [`Sequential`](crate::nn::Sequential) of layers and functions, such as `Tensor::relu`
/// or a closure.
///
/// ```
/// use picograd::{Tensor, seq};
/// use picograd::nn::{Conv2d, Layer, Linear, MaxPool2d, Module};
/// let net = seq![
///     Conv2d::new(1, 8, 3),
///     Tensor::relu,
///     MaxPool2d::new(2),
///     |x: &Tensor| x.flatten(1, -1),
///     Linear::new(8 * 13 * 13, 10),
/// ];
/// assert_eq!(net.forward(&Tensor::zeros([4, 1, 28, 28])).shape(), [4, 10]);
/// assert_eq!(net.named_parameters()[2].0, "4.weight");
/// ```
#[macro_export]
macro_rules! seq {
    ($($layer:expr),* $(,)?) => { $crate::nn::Sequential::new()$(.then($layer))* };
}
