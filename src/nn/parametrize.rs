//! Weight norm and spectral norm: weights that are computed from other parameters at each call. A
//! wrapper takes a layer that is [`Weighted`] and has the parameters of PyTorch's
//! `torch.nn.utils.parametrizations`, under the same names.

use super::{Layer, Mode, Module, Part, Visitor};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, keepdim, no_grad, or_panic, realize_with_step};

/// A layer with one weight that can be replaced for a call.
pub trait Weighted: Layer {
    /// The axis of the weight with the outputs.
    const OUTPUT_AXIS: usize = 0;
    /// Returns the weight, which is visited under the name `weight`.
    fn weight(&self) -> &Tensor;
    /// [`Layer::try_forward`] with another weight of the same shape.
    fn forward_with(&self, weight: &Tensor, x: &Tensor) -> Result<Tensor>;
}

/// Visits all items of a layer but its weight.
fn visit_rest(layer: &impl Module, visitor: &mut Visitor<'_>) {
    let mut see = |name: &str, part: Part<'_>| match part {
        Part::Tensor(t) if name != "weight" => visitor.field(name, t),
        Part::Mode(m) => visitor.field(name, m),
        _ => {}
    };
    layer.visit(&mut Visitor::new(&mut see));
}

fn axis_of(op: &'static str, weight: &Tensor, axis: isize) -> Result<usize> {
    let rank = weight.ndim() as isize;
    let at = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&at) {
        return Ok(at as usize);
    }
    Err(Error::Index {
        op,
        msg: format!("axis {axis} is outside a weight of shape {:?}", weight.shape()),
    })
}

/// Returns the L2 norm over all axes but one, kept with size 1. Without an axis it is the norm of
/// the whole tensor, of rank 0.
fn lengths(weight: &Tensor, axis: Option<usize>) -> Result<Tensor> {
    match axis {
        Some(axis) => {
            let others: Vec<usize> = (0..weight.ndim()).filter(|a| *a != axis).collect();
            Ok(if others.is_empty() {
                weight.abs()
            } else {
                weight.square().try_sum(keepdim(others))?.sqrt()
            })
        }
        None => Ok(weight.square().try_sum(..)?.sqrt()),
    }
}

/// Weight normalization (Salimans and Kingma, 2016): the weight is `g·v/‖v‖`, with one norm `g` per
/// output. Its parameters are `parametrizations.weight.original0` (`g`) and
/// `parametrizations.weight.original1` (`v`).
pub struct WeightNorm<L> {
    inner: L,
    axis: Option<usize>,
    length: Tensor,
    direction: Tensor,
}

impl<L: Weighted> WeightNorm<L> {
    /// Creates the wrapper with one norm per index of the weight's first axis, PyTorch's default.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Linear, Module, WeightNorm};
    /// let layer = WeightNorm::new(Linear::new(3, 2));
    /// let names: Vec<String> =
    ///     layer.named_parameters().into_iter().map(|(name, _)| name).collect();
    /// assert_eq!(
    ///     names[1..],
    ///     ["parametrizations.weight.original0", "parametrizations.weight.original1"]
    /// );
    /// assert_eq!(layer.forward(&Tensor::zeros([5, 3])).shape(), [5, 2]);
    /// ```
    #[track_caller]
    pub fn new(layer: L) -> WeightNorm<L> {
        WeightNorm::started(layer, Some(0))
    }
    /// Sets the axis with one norm per index; `None` uses one norm for the whole weight. Panics if
    /// the weight has no such axis.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, WeightNorm};
    /// let layer = WeightNorm::new(Linear::new(3, 2)).dim(1);
    /// assert_eq!(layer.named_parameters()[1].1.shape(), [1, 3]);
    /// let whole = WeightNorm::new(Linear::new(3, 2)).dim(None);
    /// assert!(whole.named_parameters()[1].1.shape().is_empty());
    /// ```
    #[track_caller]
    pub fn dim(self, axis: impl Into<Option<isize>>) -> WeightNorm<L> {
        let axis =
            axis.into().map(|axis| or_panic(axis_of("WeightNorm", self.inner.weight(), axis)));
        WeightNorm::started(self.inner, axis)
    }
    #[track_caller]
    fn started(inner: L, axis: Option<usize>) -> WeightNorm<L> {
        let direction = inner.weight().clone();
        let length = or_panic(lengths(&direction.detach(), axis)).as_param();
        WeightNorm { inner, axis, length, direction }
    }
    /// Returns the normalized weight.
    ///
    /// ```
    /// use picograd::nn::{Linear, WeightNorm};
    /// let linear = Linear::new(3, 2);
    /// let before = linear.weight.to_vec::<f32>()?;
    /// let after = WeightNorm::new(linear).weight()?.to_vec::<f32>()?;
    /// assert!(before.iter().zip(after).all(|(x, y)| (x - y).abs() < 1e-6));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight(&self) -> Result<Tensor> {
        self.direction.try_mul(self.length.try_div(lengths(&self.direction, self.axis)?)?)
    }
    /// Returns the plain layer with the current normalized weight.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, WeightNorm};
    /// assert_eq!(
    ///     WeightNorm::new(Linear::new(3, 2)).remove()?.named_parameters()[0].0,
    ///     "weight"
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn remove(self) -> Result<L> {
        let weight = no_grad(|| self.weight())?;
        self.inner.weight().assign(weight)?;
        Ok(self.inner)
    }
}

impl<L: Weighted> Module for WeightNorm<L> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visit_rest(&self.inner, visitor);
        visitor.field("parametrizations.weight.original0", &self.length);
        visitor.field("parametrizations.weight.original1", &self.direction);
    }
}

impl<L: Weighted> Layer for WeightNorm<L> {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.inner.forward_with(&self.weight()?, x)
    }
}

/// Spectral normalization (Miyato et al., 2018): the weight, as a matrix, is divided by its largest
/// singular value. In training each call runs a power iteration, which estimates that value; its
/// vectors are the buffers `parametrizations.weight.0._u` and `._v`, and the parameter is
/// `parametrizations.weight.original`.
///
/// ```
/// use picograd::Tensor;
/// use picograd::nn::{Layer, Linear, SpectralNorm};
/// let linear = Linear::new(2, 2).bias(false);
/// linear.weight.assign(Tensor::new([[3.0f32, 0.0], [0.0, 1.0]]))?;
/// let layer = SpectralNorm::new(linear);
/// let y = layer.forward(&Tensor::new([[1.0f32, 1.0]])).to_vec::<f32>()?;
/// assert!((y[0] - 1.0).abs() < 1e-4 && (y[1] - 1.0 / 3.0).abs() < 1e-4);
/// # Ok::<(), picograd::Error>(())
/// ```
pub struct SpectralNorm<L> {
    inner: L,
    axis: usize,
    steps: usize,
    eps: f64,
    /// The vectors of the power iteration; `None` for a weight of one axis, which is divided by its
    /// norm.
    vectors: Option<(Tensor, Tensor)>,
    mode: Mode,
}

/// Power iterations when a layer is wrapped.
const FIRST_STEPS: usize = 15;

/// Normalizes a vector; norms below `eps` count as `eps`.
fn normalized(x: &Tensor, eps: f64) -> Result<Tensor> {
    x.try_div(x.square().try_sum(..)?.sqrt().try_maximum(eps)?)
}

impl<L: Weighted> SpectralNorm<L> {
    /// Creates the wrapper with one power iteration per call and an eps of 1e-12. The rows of the
    /// matrix are the outputs: axis 1 for transposed convolutions, axis 0 otherwise.
    ///
    /// ```
    /// use picograd::nn::{ConvTranspose2d, Module, SpectralNorm};
    /// let layer = SpectralNorm::new(ConvTranspose2d::new(3, 8, 5));
    /// assert_eq!(layer.named_buffers()[0].1.shape(), [8]);
    /// ```
    #[track_caller]
    pub fn new(layer: L) -> SpectralNorm<L> {
        let eps = 1e-12;
        let norm = SpectralNorm {
            inner: layer,
            axis: L::OUTPUT_AXIS,
            steps: 1,
            eps,
            vectors: None,
            mode: Mode::default(),
        };
        or_panic(norm.started())
    }
    /// Sets the axis with the rows of the matrix. Panics if the weight has no such axis.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(3, 2)).dim(1);
    /// assert_eq!(layer.named_buffers()[0].1.shape(), [3]);
    /// ```
    #[track_caller]
    pub fn dim(self, axis: isize) -> SpectralNorm<L> {
        let axis = or_panic(axis_of("SpectralNorm", self.inner.weight(), axis));
        or_panic(SpectralNorm { axis, ..self }.started())
    }
    /// Sets the power iterations per call in training. Panics for 0.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, SpectralNorm};
    /// let layer = SpectralNorm::new(Linear::new(3, 2)).n_power_iterations(3);
    /// assert_eq!(layer.named_buffers().len(), 2);
    /// ```
    #[track_caller]
    pub fn n_power_iterations(self, steps: usize) -> SpectralNorm<L> {
        assert!(steps > 0, "SpectralNorm: expected one step of the power method or more, got 0");
        SpectralNorm { steps, ..self }
    }
    /// Sets the smallest norm that a vector is divided by.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, SpectralNorm};
    /// assert_eq!(SpectralNorm::new(Linear::new(3, 2)).eps(1e-6).named_parameters().len(), 2);
    /// ```
    pub fn eps(self, eps: f64) -> SpectralNorm<L> {
        SpectralNorm { eps, ..self }
    }

    /// Initializes the vectors.
    fn started(self) -> Result<SpectralNorm<L>> {
        let weight = self.inner.weight();
        let norm = if weight.ndim() < 2 {
            SpectralNorm { vectors: None, ..self }
        } else {
            let matrix = self.matrix(&weight.detach())?;
            // In memory, so that the second call runs the same kernels.
            let start = |n: usize| {
                normalized(&Tensor::randn([n]), self.eps)?
                    .try_cast(matrix.dtype())?
                    .try_to(matrix.device().as_str())
            };
            let vectors = (start(matrix.size(0))?, start(matrix.size(1))?);
            let norm = SpectralNorm { vectors: Some(vectors), ..self };
            norm.power(&matrix, FIRST_STEPS)?;
            norm
        };
        if let Some((u, v)) = &norm.vectors {
            Tensor::realize_many(&[u, v])?;
        }
        Ok(norm)
    }
    /// Returns the weight as a matrix with the rows on one axis.
    fn matrix(&self, weight: &Tensor) -> Result<Tensor> {
        let order: Vec<usize> = std::iter::once(self.axis)
            .chain((0..weight.ndim()).filter(|a| *a != self.axis))
            .collect();
        let rows = weight.size(self.axis as isize);
        let columns: usize = weight
            .shape()
            .iter()
            .enumerate()
            .filter(|(a, _)| *a != self.axis)
            .map(|(_, n)| n)
            .product();
        weight.try_permute(order)?.try_reshape([rows, columns])
    }
    /// Runs power iterations.
    fn power(&self, matrix: &Tensor, steps: usize) -> Result<()> {
        let Some((u, v)) = &self.vectors else { return Ok(()) };
        no_grad(|| {
            for _ in 0..steps {
                u.assign(normalized(&matrix.try_matmul(v)?, self.eps)?.contiguous())?;
                v.assign(normalized(&matrix.try_t()?.try_matmul(u)?, self.eps)?.contiguous())?;
            }
            Ok(())
        })
    }
    /// Returns the normalized weight, without a power iteration.
    ///
    /// ```
    /// use picograd::nn::{Linear, SpectralNorm};
    /// let weight = SpectralNorm::new(Linear::new(3, 3)).weight()?;
    /// let (_, values, _) = weight.svd();
    /// assert!((values.to_vec::<f32>()?[0] - 1.0).abs() < 0.1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn weight(&self) -> Result<Tensor> {
        let weight = self.inner.weight();
        let Some((u, v)) = &self.vectors else { return normalized(weight, self.eps) };
        let (u, v) = (u.detach(), v.detach());
        let sigma = u.try_mul(self.matrix(weight)?.try_matmul(&v)?)?.try_sum(..)?;
        weight.try_div(sigma)
    }
    /// Returns the plain layer with the current normalized weight.
    ///
    /// ```
    /// use picograd::nn::{Linear, Module, SpectralNorm};
    /// assert_eq!(
    ///     SpectralNorm::new(Linear::new(3, 2)).remove()?.named_parameters()[0].0,
    ///     "weight"
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn remove(self) -> Result<L> {
        let weight = no_grad(|| self.weight())?;
        self.inner.weight().assign(weight)?;
        Ok(self.inner)
    }
}

impl<L: Weighted> Module for SpectralNorm<L> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visit_rest(&self.inner, visitor);
        visitor.field("parametrizations.weight.original", self.inner.weight());
        if let Some((u, v)) = &self.vectors {
            visitor.field("parametrizations.weight.0._u", u);
            visitor.field("parametrizations.weight.0._v", v);
        }
        visitor.field("mode", &self.mode);
    }
}

impl<L: Weighted> Layer for SpectralNorm<L> {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        if let (true, Some((u, v))) = (self.mode.is_training(), &self.vectors) {
            // Without an optimizer step in between, earlier vectors are realized now; otherwise
            // every past weight would stay alive.
            Tensor::realize_many(&[u, v])?;
            self.power(&self.matrix(&self.inner.weight().detach())?, self.steps)?;
            realize_with_step(u);
            realize_with_step(v);
        }
        self.inner.forward_with(&self.weight()?, x)
    }
}
