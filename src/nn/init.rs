//! Weight initialization. Each function returns a new tensor of a shape, to be made a parameter or
//! assigned to one:
//!
//! ```
//! use picograd::Tensor;
//! use picograd::nn::{Linear, init};
//! let layer = Linear::new(64, 32);
//! layer.weight.assign(init::xavier_uniform([32, 64], 1.0))?;
//! layer.bias.as_ref().unwrap().assign(0.0)?;
//! # Ok::<(), picograd::Error>(())
//! ```
//!
//! Simple distributions are tensor methods: [`Tensor::zeros`], [`Tensor::ones`], [`Tensor::full`]
//! (a constant), [`Tensor::uniform`], [`Tensor::normal`], [`Tensor::eye`].
//!
//! The fan-in of a weight `[outputs, inputs, …]` is the number of products that are summed into one
//! output, the fan-out the number of outputs that one input contributes to; both include the
//! window. A weight has at least two axes; the functions panic otherwise.

use crate::tensor::{Sizes, Tensor, fans, or_panic};

/// The fan that preserves the variance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fan {
    /// The fan-in: preserves the variance of activations in the forward pass.
    #[default]
    In,
    /// The fan-out: preserves the variance of gradients in the backward pass.
    Out,
}

/// The nonlinearity after a weight, which determines the gain.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Gain {
    /// None, or a sigmoid: 1.
    Linear,
    /// A hyperbolic tangent: 5/3.
    Tanh,
    /// A relu: √2.
    Relu,
    /// A leaky relu of a slope: √(2/(1 + slope²)).
    LeakyRelu(f64),
    /// A selu: 3/4.
    Selu,
}

impl From<Gain> for f64 {
    fn from(gain: Gain) -> f64 {
        match gain {
            Gain::Linear => 1.0,
            Gain::Tanh => 5.0 / 3.0,
            Gain::Relu => 2f64.sqrt(),
            Gain::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Gain::Selu => 0.75,
        }
    }
}

/// Draws uniformly from ±1/√fan-in, the default of most layers.
pub(super) fn default_weight(shape: impl Into<Sizes>, inputs: usize) -> Tensor {
    let bound = if inputs == 0 { 0.0 } else { 1.0 / (inputs as f64).sqrt() };
    Tensor::uniform(shape.into(), -bound, bound)
}

/// Uniform over ±gain·√(6/(fan-in + fan-out)) (Glorot and Bengio, 2010).
///
/// ```
/// use picograd::nn::init;
/// assert_eq!(init::xavier_uniform([8, 4], 1.0).shape(), [8, 4]);
/// ```
#[track_caller]
pub fn xavier_uniform(shape: impl Into<Sizes>, gain: impl Into<f64>) -> Tensor {
    let shape = shape.into();
    let (inputs, outputs) = or_panic(fans("xavier_uniform", &shape));
    let bound = gain.into() * (6.0 / (inputs + outputs)).sqrt();
    Tensor::uniform(shape, -bound, bound)
}

/// Normal with the variance of [`xavier_uniform`].
///
/// ```
/// use picograd::nn::init;
/// assert_eq!(init::xavier_normal([8, 4], 1.0).shape(), [8, 4]);
/// ```
#[track_caller]
pub fn xavier_normal(shape: impl Into<Sizes>, gain: impl Into<f64>) -> Tensor {
    let shape = shape.into();
    let (inputs, outputs) = or_panic(fans("xavier_normal", &shape));
    Tensor::normal(shape, 0.0, gain.into() * (2.0 / (inputs + outputs)).sqrt())
}

/// Uniform over ±gain·√(3/fan) (He et al., 2015).
///
/// ```
/// use picograd::nn::init::{self, Fan, Gain};
/// assert_eq!(init::kaiming_uniform([8, 4], Fan::In, Gain::Relu).shape(), [8, 4]);
/// ```
#[track_caller]
pub fn kaiming_uniform(shape: impl Into<Sizes>, fan: Fan, gain: impl Into<f64>) -> Tensor {
    let shape = shape.into();
    let bound = 3f64.sqrt() * kaiming_std("kaiming_uniform", &shape, fan, gain.into());
    Tensor::uniform(shape, -bound, bound)
}

/// Normal with the standard deviation gain/√fan (He et al., 2015).
///
/// ```
/// use picograd::nn::init::{self, Fan, Gain};
/// assert_eq!(init::kaiming_normal([8, 4], Fan::Out, Gain::Relu).shape(), [8, 4]);
/// ```
#[track_caller]
pub fn kaiming_normal(shape: impl Into<Sizes>, fan: Fan, gain: impl Into<f64>) -> Tensor {
    let shape = shape.into();
    let std = kaiming_std("kaiming_normal", &shape, fan, gain.into());
    Tensor::normal(shape, 0.0, std)
}

#[track_caller]
fn kaiming_std(op: &'static str, shape: &Sizes, fan: Fan, gain: f64) -> f64 {
    let (inputs, outputs) = or_panic(fans(op, shape));
    gain / if fan == Fan::In { inputs } else { outputs }.sqrt()
}

/// Returns a matrix with orthonormal rows, or columns if there are fewer columns, times a gain
/// (Saxe et al., 2013). Axes after the first are flattened.
///
/// ```
/// use picograd::{Tensor, nn::init};
/// let w = init::orthogonal([2, 3], 1.0);
/// let product = w.matmul(&w.t());
/// assert!((product - Tensor::eye(2, 2)).abs().max(..).item::<f32>()? < 1e-5);
/// # Ok::<(), picograd::Error>(())
/// ```
#[track_caller]
pub fn orthogonal(shape: impl Into<Sizes>, gain: impl Into<f64>) -> Tensor {
    let sizes = shape.into();
    or_panic(fans("orthogonal", &sizes));
    let shape = or_panic(sizes.shape("orthogonal"));
    let (rows, cols) = (shape[0], shape[1..].iter().product::<usize>());
    let (q, r) = Tensor::randn([rows.max(cols), rows.min(cols)]).qr();
    // Multiplying by the signs of the diagonal makes the distribution uniform over orthogonal
    // matrices (Mezzadri, 2007).
    let q = q * r.diagonal(0, -2, -1).lt(0.0).where_(-1.0, 1.0);
    let q = if rows < cols { q.t() } else { q };
    q.reshape(&shape) * gain.into()
}

/// Returns a normal distribution truncated to `low..high`.
///
/// ```
/// use picograd::nn::init;
/// let x = init::trunc_normal([1000], 0.0, 1.0, -0.5, 2.0).to_vec::<f32>()?;
/// assert!(x.iter().all(|&x| (-0.5..=2.0).contains(&x)));
/// # Ok::<(), picograd::Error>(())
/// ```
#[track_caller]
pub fn trunc_normal(shape: impl Into<Sizes>, mean: f64, std: f64, low: f64, high: f64) -> Tensor {
    assert!(
        std > 0.0 && low < high,
        "trunc_normal: expected low < high and std > 0, got {low}, {high} and {std}"
    );
    // Uniform between the error function of the bounds, then its inverse.
    let scale = std * std::f64::consts::SQRT_2;
    let border = |x: f64| Tensor::new(((x - mean) / scale) as f32).erf();
    let even = border(low).lerp(&border(high), Tensor::rand(shape.into()));
    (inverse_erf(&even) * scale + mean).clamp(low, high)
}

/// Returns the inverse of the error function, to about 1e-6, by the polynomials of Giles,
/// "Approximating the erfinv function" (2011).
fn inverse_erf(x: &Tensor) -> Tensor {
    const NEAR: [f64; 9] = [
        2.81022636e-8,
        3.43273939e-7,
        -3.5233877e-6,
        -4.39150654e-6,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    ];
    const FAR: [f64; 9] = [
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    ];
    let horner =
        |w: &Tensor, c: &[f64; 9]| c[1..].iter().fold(w.full_like(c[0]), |p, &c| p * w + c);
    // One ulp away from ±1, where the inverse is infinite.
    let x = x.clamp(-1.0 + 6e-8, 1.0 - 6e-8);
    let w = -((1.0 - &x) * (1.0 + &x)).log();
    let p = w.lt(5.0).where_(horner(&(&w - 2.5), &NEAR), horner(&(w.sqrt() - 3.0), &FAR));
    p * x
}
