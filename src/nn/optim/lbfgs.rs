//! L-BFGS: a quasi-Newton method that evaluates the loss several times in a step.
//!
//! The vectors of the method are on the host in `f64`; each evaluation reads the loss and the
//! gradients. It therefore suits problems of up to a few million parameters, and a
//! [`Jit`](crate::Jit) cannot capture it: the number of evaluations depends on the values.

use super::line_search::{LineSearch, Point};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::StateDict;
use crate::tensor::Tensor;
use std::collections::VecDeque;

/// L-BFGS (Liu and Nocedal, 1989), for smooth losses that are evaluated on all data. `step` takes a
/// function that computes the loss.
///
/// ```
/// use picograd::{Tensor, nn::optim::LBFGS};
/// let x = Tensor::new([-1.5f64, 2.0]).as_param();
/// let mut optimizer = LBFGS::new([x.clone()])?.strong_wolfe();
/// for _ in 0..6 {
///     // Rosenbrock's function, which is least at (1, 1).
///     let loss = optimizer.step(|| {
///         let (a, b) = (x.i(0), x.i(1));
///         Ok((1.0 - &a).square() + (b - a.square()).square() * 100.0)
///     })?;
///     assert!(loss < 1e3);
/// }
/// assert!(x.to_vec::<f64>()?.iter().all(|x| (x - 1.0).abs() < 1e-4));
/// # Ok::<(), picograd::Error>(())
/// ```
pub struct LBFGS {
    params: Vec<Tensor>,
    lr: f64,
    max_iter: usize,
    max_eval: Option<usize>,
    tolerance_grad: f64,
    tolerance_change: f64,
    history_size: usize,
    strong_wolfe: bool,
    maximize: bool,
    state: State,
}

/// State between steps.
#[derive(Clone, Default)]
struct State {
    iterations: u64,
    evaluations: u64,
    direction: Vec<f64>,
    t: f64,
    /// Differences of gradients and of parameters, the oldest first.
    history: VecDeque<Pair>,
    /// Scale of the initial inverse Hessian.
    scale: f64,
    last_grad: Vec<f64>,
    last_loss: f64,
}

#[derive(Clone)]
struct Pair {
    of_grads: Vec<f64>,
    of_params: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
fn max_abs(a: &[f64]) -> f64 {
    a.iter().fold(0.0, |m, x| m.max(x.abs()))
}
/// Computes `a += c·b`.
fn add(a: &mut [f64], c: f64, b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += c * b);
}

macro_rules! settings {
    ($($(#[$meta:meta])* $name:ident: $ty:ty, $example:literal;)*) => { $(
        $(#[$meta])*
        ///
        /// ```
        /// use picograd::{Tensor, nn::optim::LBFGS};
        /// let x = Tensor::new([3.0f32]).as_param();
        /// let optimizer = LBFGS::new([x.clone()])?;
        #[doc = concat!("let mut optimizer = optimizer.", stringify!($name), "(", $example, ");")]
        /// optimizer.step(|| Ok(x.square().sum(..)))?;
        /// assert!(x.item::<f32>()? < 3.0);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn $name(mut self, $name: $ty) -> LBFGS {
            self.$name = $name.into();
            self
        }
    )* };
}

impl LBFGS {
    /// Creates the optimizer with learning rate 1, 20 iterations in a step, tolerances 1e-7 for
    /// gradients and 1e-9 for changes, 100 pairs of history and no line search. A tensor that is
    /// not a parameter is an error.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::LBFGS};
    /// assert!(LBFGS::new([Tensor::ones([2])]).is_err());
    /// ```
    pub fn new(params: impl IntoIterator<Item = Tensor>) -> Result<LBFGS> {
        let params: Vec<Tensor> = params.into_iter().collect();
        if let Some(i) = params.iter().position(|p| !p.is_param()) {
            let msg = format!(
                "LBFGS: tensor {i} of shape {:?} is not a parameter; make it one with as_param()",
                params[i].shape()
            );
            return Err(Error::State(msg));
        }
        Ok(LBFGS {
            params,
            lr: 1.0,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            strong_wolfe: false,
            maximize: false,
            state: State { scale: 1.0, ..State::default() },
        })
    }
    settings! {
        /// Sets the step length along the direction, or the first one of a line search.
        lr: f64, "0.5";
        /// Sets the iterations per step.
        max_iter: usize, "4";
        /// Sets the evaluations of the loss per step; 1.25 times the iterations by default.
        max_eval: usize, "10";
        /// Sets the largest gradient at which a step ends.
        tolerance_grad: f64, "1e-5";
        /// Sets the change of parameters and loss below which a step ends.
        tolerance_change: f64, "1e-6";
        /// Sets the number of difference pairs that estimate the curvature.
        history_size: usize, "10";
    }
    /// Uses a line search for the strong Wolfe conditions: sufficient decrease of the loss and of
    /// the slope.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::LBFGS};
    /// let x = Tensor::new([3.0f32]).as_param();
    /// let mut optimizer = LBFGS::new([x.clone()])?.strong_wolfe();
    /// optimizer.step(|| Ok((&x - 1.0).square().sum(..)))?;
    /// assert!((x.item::<f32>()? - 1.0).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn strong_wolfe(self) -> LBFGS {
        LBFGS { strong_wolfe: true, ..self }
    }
    /// Maximizes the objective: steps ascend the gradient.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::LBFGS};
    /// let x = Tensor::new([3.0f32]).as_param();
    /// let mut optimizer = LBFGS::new([x.clone()])?.strong_wolfe().maximize();
    /// optimizer.step(|| Ok(-(&x - 1.0).square().sum(..)))?;
    /// assert!((x.item::<f32>()? - 1.0).abs() < 1e-5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn maximize(self) -> LBFGS {
        LBFGS { maximize: true, ..self }
    }

    /// Makes a step and returns the loss before it. `closure` computes the loss, one number, from
    /// the parameters as they are; it is called several times, and `backward` is called here, so
    /// that a closure that calls it is an error. Gradients from before are dropped, and none are
    /// left.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::LBFGS};
    /// let x = Tensor::new([3.0f32]).as_param();
    /// let mut optimizer = LBFGS::new([x.clone()])?.max_iter(1).lr(0.1);
    /// assert_eq!(optimizer.step(|| Ok(x.square().sum(..)))?, 9.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn step(&mut self, mut closure: impl FnMut() -> Result<Tensor>) -> Result<f64> {
        let first = self.evaluate(&mut closure)?;
        let reported = if self.maximize { -first.0 } else { first.0 };
        let (mut loss, mut grad) = first;
        let (mut evaluations, most) = (1, self.max_eval.unwrap_or(self.max_iter * 5 / 4));
        if max_abs(&grad) <= self.tolerance_grad {
            return Ok(reported);
        }
        for iteration in 1..=self.max_iter {
            self.state.iterations += 1;
            self.turn(&grad);
            self.state.last_grad.clone_from(&grad);
            self.state.last_loss = loss;
            let start = if self.state.iterations == 1 {
                (1.0 / grad.iter().map(|g| g.abs()).sum::<f64>()).min(1.0)
            } else {
                1.0
            };
            self.state.t = start * self.lr;
            let direction = self.state.direction.clone();
            let slope = dot(&grad, &direction);
            if slope > -self.tolerance_change {
                break;
            }
            let from = self.read()?;
            let mut settled = false;
            if self.strong_wolfe {
                let start = Point { t: 0.0, loss, grad, slope };
                let most = most.saturating_sub(evaluations);
                let (first, tolerance) = (self.state.t, self.tolerance_change);
                let size = max_abs(&direction);
                let evaluate = |t: f64| {
                    evaluations += 1;
                    self.write(&from, t, &direction)?;
                    let (loss, grad) = self.evaluate(&mut closure)?;
                    Ok(Point { t, loss, slope: dot(&grad, &direction), grad })
                };
                let best = LineSearch { start, most, size, tolerance, evaluate }.run(first)?;
                self.write(&from, best.t, &direction)?;
                self.state.t = best.t;
                (loss, grad) = (best.loss, best.grad);
                settled = max_abs(&grad) <= self.tolerance_grad;
            } else {
                self.write(&from, self.state.t, &direction)?;
                if iteration != self.max_iter {
                    (loss, grad) = self.evaluate(&mut closure)?;
                    settled = max_abs(&grad) <= self.tolerance_grad;
                    evaluations += 1;
                }
            }
            let moved = max_abs(&direction) * self.state.t.abs();
            if evaluations >= most || settled || moved <= self.tolerance_change {
                break;
            }
            if (loss - self.state.last_loss).abs() < self.tolerance_change {
                break;
            }
        }
        Ok(reported)
    }

    /// Returns the current loss and its gradient.
    fn evaluate(
        &mut self,
        closure: &mut impl FnMut() -> Result<Tensor>,
    ) -> Result<(f64, Vec<f64>)> {
        self.params.iter().for_each(|p| p.set_grad(None));
        let loss = closure()?;
        if self.params.iter().any(|p| p.grad().is_some()) {
            let msg = "LBFGS::step: the closure called backward; it returns the loss, and step \
                       computes the gradients";
            return Err(Error::Gradient(msg.into()));
        }
        loss.try_backward()?;
        let grads: Vec<Option<Tensor>> = self.params.iter().map(Tensor::grad).collect();
        self.params.iter().for_each(|p| p.set_grad(None));
        let all: Vec<&Tensor> = grads.iter().flatten().chain([&loss]).collect();
        Tensor::realize_many(&all)?;
        let sign = if self.maximize { -1.0 } else { 1.0 };
        let mut flat = Vec::new();
        for (p, g) in self.params.iter().zip(&grads) {
            match g {
                Some(g) => flat
                    .extend(g.try_cast(DType::F64)?.to_vec::<f64>()?.into_iter().map(|x| sign * x)),
                None => flat.extend(std::iter::repeat_n(0.0, p.numel())),
            }
        }
        self.state.evaluations += 1;
        Ok((sign * loss.try_cast(DType::F64)?.item::<f64>()?, flat))
    }
    /// Returns all parameters as one vector.
    fn read(&self) -> Result<Vec<f64>> {
        let parts = self.params.iter().map(|p| p.detach().try_cast(DType::F64)?.to_vec::<f64>());
        Ok(parts.collect::<Result<Vec<_>>>()?.concat())
    }
    /// Moves the parameters to a distance along a direction.
    fn write(&self, from: &[f64], t: f64, direction: &[f64]) -> Result<()> {
        let mut at = 0;
        for p in &self.params {
            let range = at..at + p.numel();
            at = range.end;
            let values: Vec<f64> =
                from[range.clone()].iter().zip(&direction[range]).map(|(x, d)| x + t * d).collect();
            p.assign(
                Tensor::try_from_vec(values, p.shape())?.try_cast(p.dtype())?.try_shard_like(p)?,
            )?;
        }
        Tensor::realize_many(&self.params.iter().collect::<Vec<_>>())
    }

    /// The next direction: the estimated inverse Hessian times the gradient.
    fn turn(&mut self, grad: &[f64]) {
        let s = &mut self.state;
        let mut d: Vec<f64> = grad.iter().map(|g| -g).collect();
        if s.iterations == 1 {
            s.history.clear();
            s.scale = 1.0;
            s.direction = d;
            return;
        }
        let of_grads: Vec<f64> = grad.iter().zip(&s.last_grad).map(|(a, b)| a - b).collect();
        let of_params: Vec<f64> = s.direction.iter().map(|d| d * s.t).collect();
        let curvature = dot(&of_grads, &of_params);
        // Without positive curvature the pair carries no information about the minimum.
        if curvature > 1e-10 {
            if s.history.len() >= self.history_size {
                s.history.pop_front();
            }
            s.scale = curvature / dot(&of_grads, &of_grads);
            if self.history_size > 0 {
                s.history.push_back(Pair { of_grads, of_params });
            }
        }
        let mut shares = vec![0.0; s.history.len()];
        for (pair, share) in s.history.iter().zip(&mut shares).rev() {
            *share = dot(&pair.of_params, &d) / dot(&pair.of_grads, &pair.of_params);
            add(&mut d, -*share, &pair.of_grads);
        }
        d.iter_mut().for_each(|d| *d *= s.scale);
        for (pair, share) in s.history.iter().zip(&shares) {
            let back = dot(&pair.of_grads, &d) / dot(&pair.of_grads, &pair.of_params);
            add(&mut d, share - back, &pair.of_params);
        }
        s.direction = d;
    }

    /// Returns the state of the optimizer besides parameters and settings.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::LBFGS};
    /// let x = Tensor::new([3.0f32]).as_param();
    /// let mut optimizer = LBFGS::new([x.clone()])?;
    /// optimizer.step(|| Ok(x.square().sum(..)))?;
    /// let mut other = LBFGS::new([x.clone()])?;
    /// other.load_state_dict(&optimizer.state_dict())?;
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn state_dict(&self) -> StateDict {
        let s = &self.state;
        let rows = |of: fn(&Pair) -> &Vec<f64>| -> Tensor {
            let flat: Vec<f64> = s.history.iter().flat_map(|p| of(p).clone()).collect();
            Tensor::from_vec(
                flat,
                [s.history.len(), if s.history.is_empty() { 0 } else { self.numel() }],
            )
        };
        let vector = |v: &Vec<f64>| Tensor::from_vec(v.clone(), [v.len()]);
        StateDict::from_iter([
            ("counts", Tensor::new([s.iterations, s.evaluations])),
            ("numbers", Tensor::new([s.t, s.scale, s.last_loss])),
            ("direction", vector(&s.direction)),
            ("prev_flat_grad", vector(&s.last_grad)),
            ("old_dirs", rows(|p| &p.of_grads)),
            ("old_stps", rows(|p| &p.of_params)),
        ])
    }
    fn numel(&self) -> usize {
        self.params.iter().map(Tensor::numel).sum()
    }

    /// Loads the state of an optimizer with as many parameters. On a mismatch nothing changes.
    ///
    /// ```
    /// use picograd::{Tensor, io::StateDict, nn::optim::LBFGS};
    /// let mut optimizer = LBFGS::new([Tensor::new([3.0f32]).as_param()])?;
    /// assert!(optimizer.load_state_dict(&StateDict::new()).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let n = self.numel();
        let wrong = |name: &str, t: &Tensor| {
            Error::State(format!("LBFGS: {name} is {} {:?} for {n} numbers", t.dtype(), t.shape()))
        };
        let read =
            |name: &str, fits: &dyn Fn(&[usize]) -> bool| -> Result<(Vec<f64>, Vec<usize>)> {
                let t = state.require(name)?;
                if t.dtype() != DType::F64 || !fits(&t.shape()) {
                    return Err(wrong(name, t));
                }
                Ok((t.to_vec::<f64>()?, t.shape()))
            };
        let vector = |s: &[usize]| s == [n] || s == [0];
        let counts = state.require("counts")?;
        if counts.dtype() != DType::U64 || counts.shape() != [2] {
            return Err(wrong("counts", counts));
        }
        let counts = counts.to_vec::<u64>()?;
        let numbers = read("numbers", &|s| s == [3])?.0;
        let (direction, last_grad) =
            (read("direction", &vector)?.0, read("prev_flat_grad", &vector)?.0);
        if counts[0] > 0 && n > 0 && (direction.is_empty() || last_grad.is_empty()) {
            return Err(Error::State(
                "LBFGS: the state lacks the direction or the gradient of the last iteration".into(),
            ));
        }
        let (grads, rows) = read("old_dirs", &|s| s.len() == 2 && (s[0] == 0 || s[1] == n))?;
        let (steps, _) = read("old_stps", &|s| s == rows)?;
        let row = |v: &[f64], i: usize| v[i * n..(i + 1) * n].to_vec();
        let history = (0..rows[0])
            .map(|i| Pair { of_grads: row(&grads, i), of_params: row(&steps, i) })
            .collect();
        self.state = State {
            iterations: counts[0],
            evaluations: counts[1],
            direction,
            t: numbers[0],
            history,
            scale: numbers[1],
            last_grad,
            last_loss: numbers[2],
        };
        Ok(())
    }
}
