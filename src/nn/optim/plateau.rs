//! A learning-rate schedule that reacts to a metric.

use super::Optimizer;
use crate::error::Result;

/// Lowers the learning rates when a metric stops improving.
#[derive(Clone, Debug)]
pub struct Plateau {
    higher: bool,
    factor: f64,
    patience: usize,
    threshold: f64,
    relative: bool,
    cooldown: usize,
    min_lr: f64,
    best: f64,
    bad: usize,
    cooling: usize,
}

/// Generates builder methods; the literals of a row are settings, losses and the resulting learning
/// rate of its example.
macro_rules! settings {
    ($(
        $(#[$doc:meta])* $name:ident: $ty:ty, $set:literal, $losses:literal => $lr:literal;
    )*) => { $(
        $(#[$doc])*
        ///
        /// ```
        /// use picograd::{Tensor, nn::optim::{Optimizer, Plateau, SGD}};
        /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
        #[doc = concat!("let mut plateau = Plateau::new()", $set, ";")]
        #[doc = concat!("for loss in ", $losses, " {")]
        ///     plateau.step(&mut optimizer, loss)?;
        /// }
        #[doc = concat!("assert_eq!(optimizer.lr(), ", $lr, ");")]
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn $name(self, $name: $ty) -> Plateau {
            Plateau { $name, ..self }
        }
    )* };
}

impl Default for Plateau {
    fn default() -> Plateau {
        Plateau::new()
    }
}

impl Plateau {
    /// Creates a schedule that multiplies the rates by 0.1 after more than ten steps in a row
    /// without an improvement of the loss by a relative 1e-4.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, Plateau, SGD};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(1).factor(0.5);
    /// for loss in [3.0, 2.0, 2.0, 2.0] {
    ///     plateau.step(&mut optimizer, loss)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new() -> Plateau {
        Plateau {
            higher: false,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            relative: true,
            cooldown: 0,
            min_lr: 0.0,
            best: f64::INFINITY,
            bad: 0,
            cooling: 0,
        }
    }
    /// Treats higher values as better, as for an accuracy.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, Plateau, SGD};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().higher_is_better().patience(0);
    /// for figure in [0.1, 0.2, 0.3] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn higher_is_better(self) -> Plateau {
        Plateau { higher: true, best: f64::NEG_INFINITY, ..self }
    }
    /// Sets the relative improvement that counts.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, Plateau, SGD};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(0).factor(0.5).threshold(0.5);
    /// for figure in [2.0, 1.5] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn threshold(self, threshold: f64) -> Plateau {
        Plateau { threshold, relative: true, ..self }
    }
    /// Sets the absolute improvement that counts.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, Plateau, SGD};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(0).factor(0.5).absolute_threshold(1.0);
    /// for figure in [2.0, 1.5] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn absolute_threshold(self, threshold: f64) -> Plateau {
        Plateau { threshold, relative: false, ..self }
    }
    settings! {
        /// Sets the factor of the learning rates.
        factor: f64, ".patience(0).factor(0.5)", "[2.0, 2.0]" => "0.5";
        /// Sets the tolerated number of steps without improvement.
        patience: usize, ".patience(1)", "[2.0, 2.0]" => "1.0";
        /// Sets the number of steps after a change that are not counted.
        cooldown: usize, ".patience(0).cooldown(2)", "[2.0, 2.0, 2.0, 2.0]" => "0.1";
        /// Sets the minimum learning rate.
        min_lr: f64, ".patience(0).min_lr(0.75)", "[2.0, 2.0]" => "0.75";
    }

    fn is_better(&self, figure: f64) -> bool {
        let margin = if self.relative { self.best.abs() * self.threshold } else { self.threshold };
        // The first value always counts as an improvement; infinity has no margin.
        if self.best.is_infinite() {
            return figure.is_finite();
        }
        if self.higher { figure > self.best + margin } else { figure < self.best - margin }
    }

    /// Records a metric, and lowers the learning rates of an optimizer if due. NaN is never an
    /// improvement.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, Plateau, SGD};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(0).factor(0.5);
    /// for figure in [2.0, f64::NAN] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn step(&mut self, optimizer: &mut Optimizer, figure: f64) -> Result<()> {
        if self.is_better(figure) {
            self.best = figure;
            self.bad = 0;
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad <= self.patience {
            return Ok(());
        }
        self.cooling = self.cooldown;
        self.bad = 0;
        let lrs: Vec<f64> =
            optimizer.lrs().iter().map(|lr| (lr * self.factor).max(self.min_lr)).collect();
        optimizer.set_lrs(&lrs)
    }
}
