//! Learning-rate schedules: functions of the step, and the scheduler that applies them.

use super::Optimizer;
use crate::error::Result;
use crate::io::StateDict;
use crate::tensor::Tensor;

/// A learning rate as a function of the initial rate and the step, so that any step can be computed
/// directly. A function of the step alone is a schedule too: its result is the factor.
pub trait Schedule: Send + Sync {
    /// Returns the learning rate after `step` steps.
    fn lr(&self, base: f64, step: usize) -> f64;

    /// This schedule up to a step, then another one, which starts at its own step 0.
    ///
    /// ```
    /// use picograd::nn::optim::{Cosine, Ramp, Schedule};
    /// let warm_up_then_down = Ramp::new(0.1, 1.0, 10).then(10, Cosine::new(90));
    /// assert_eq!(warm_up_then_down.lr(2.0, 0), 0.2);
    /// assert_eq!(warm_up_then_down.lr(2.0, 10), 2.0);
    /// assert!(warm_up_then_down.lr(2.0, 100) < 1e-6);
    /// ```
    fn then<S: Schedule>(self, step: usize, next: S) -> Then<Self, S>
    where
        Self: Sized,
    {
        Then { first: self, step, next }
    }
}

impl<F: Fn(usize) -> f64 + Send + Sync> Schedule for F {
    fn lr(&self, base: f64, step: usize) -> f64 {
        base * self(step)
    }
}

/// Two schedules, one after the other; see [`Schedule::then`].
#[derive(Clone, Debug)]
pub struct Then<A, B> {
    first: A,
    step: usize,
    next: B,
}

impl<A: Schedule, B: Schedule> Schedule for Then<A, B> {
    fn lr(&self, base: f64, step: usize) -> f64 {
        if step < self.step {
            self.first.lr(base, step)
        } else {
            self.next.lr(base, step - self.step)
        }
    }
}

/// A constant factor.
#[derive(Clone, Debug)]
pub struct Constant(/** The factor. */ pub f64);

impl Schedule for Constant {
    fn lr(&self, base: f64, _: usize) -> f64 {
        base * self.0
    }
}

/// Multiplies by a factor at regular intervals.
#[derive(Clone, Debug)]
pub struct Step {
    every: usize,
    gamma: f64,
}

impl Step {
    /// Multiplies by `gamma` after every `every` steps; 0 counts as 1.
    ///
    /// ```
    /// use picograd::nn::optim::{Schedule, Step};
    /// let schedule = Step::new(2, 0.5);
    /// assert!((schedule.lr(1.0, 4) - 0.25).abs() < 1e-9);
    /// ```
    pub fn new(every: usize, gamma: f64) -> Step {
        Step { every: every.max(1), gamma }
    }
}

impl Schedule for Step {
    fn lr(&self, base: f64, step: usize) -> f64 {
        base * self.gamma.powi((step / self.every) as i32)
    }
}

/// Multiplies by a factor at given steps.
#[derive(Clone, Debug)]
pub struct MultiStep {
    at: Vec<usize>,
    gamma: f64,
}

impl MultiStep {
    /// Multiplies by `gamma` at each of these steps.
    ///
    /// ```
    /// use picograd::nn::optim::{MultiStep, Schedule};
    /// let schedule = MultiStep::new([1, 5], 0.5);
    /// assert!((schedule.lr(1.0, 4) - 0.5).abs() < 1e-9);
    /// ```
    pub fn new(at: impl Into<Vec<usize>>, gamma: f64) -> MultiStep {
        MultiStep { at: at.into(), gamma }
    }
}

impl Schedule for MultiStep {
    fn lr(&self, base: f64, step: usize) -> f64 {
        base * self.gamma.powi(self.at.iter().filter(|&&at| at <= step).count() as i32)
    }
}

/// Multiplies by a factor after every step.
#[derive(Clone, Debug)]
pub struct Exponential(/** The factor. */ pub f64);

impl Schedule for Exponential {
    fn lr(&self, base: f64, step: usize) -> f64 {
        base * self.0.powi(step as i32)
    }
}

/// A linear ramp between two factors; from a small factor to 1 it is a warm-up.
#[derive(Clone, Debug)]
pub struct Ramp {
    from: f64,
    to: f64,
    steps: usize,
}

impl Ramp {
    /// Creates a ramp from the factor `from` at step 0 to the factor `to` after `steps` steps,
    /// constant afterwards.
    ///
    /// ```
    /// use picograd::nn::optim::{Ramp, Schedule};
    /// let schedule = Ramp::new(0.0, 1.0, 4);
    /// assert!((schedule.lr(1.0, 1) - 0.25).abs() < 1e-9);
    /// ```
    pub fn new(from: f64, to: f64, steps: usize) -> Ramp {
        Ramp { from, to, steps }
    }
}

impl Schedule for Ramp {
    fn lr(&self, base: f64, step: usize) -> f64 {
        if step >= self.steps {
            return base * self.to;
        }
        base * (self.from + (self.to - self.from) * step as f64 / self.steps as f64)
    }
}

/// Cosine annealing from the initial rate to a minimum (Loshchilov and Hutter, 2017). The cosine
/// continues afterwards.
#[derive(Clone, Debug)]
pub struct Cosine {
    steps: usize,
    min: f64,
}

impl Cosine {
    /// Creates a schedule down to zero in `steps` steps.
    ///
    /// ```
    /// use picograd::nn::optim::{Cosine, Schedule};
    /// let schedule = Cosine::new(10);
    /// assert!((schedule.lr(1.0, 5) - 0.5).abs() < 1e-9);
    /// ```
    pub fn new(steps: usize) -> Cosine {
        Cosine { steps: steps.max(1), min: 0.0 }
    }
    /// Sets the minimum learning rate.
    ///
    /// ```
    /// use picograd::nn::optim::{Cosine, Schedule};
    /// let schedule = Cosine::new(10).min_lr(0.1);
    /// assert!((schedule.lr(1.0, 10) - 0.1).abs() < 1e-9);
    /// ```
    pub fn min_lr(self, min: f64) -> Cosine {
        Cosine { min, ..self }
    }
}

impl Schedule for Cosine {
    fn lr(&self, base: f64, step: usize) -> f64 {
        self.min
            + (base - self.min)
                * (1.0 + (std::f64::consts::PI * step as f64 / self.steps as f64).cos())
                / 2.0
    }
}

/// The one-cycle policy (Smith and Topin, 2018): up to the learning rate, then down to nearly zero,
/// over the whole training.
#[derive(Clone, Debug)]
pub struct OneCycle {
    steps: usize,
    rise: f64,
    start: f64,
    end: f64,
    linear: bool,
}

impl OneCycle {
    /// Creates a cycle of `steps` steps: 30 % rise from 1/25 of the learning rate, the others fall
    /// to 1/10,000 of the start, along cosines.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100);
    /// assert!((schedule.lr(1.0, 0) - 0.04).abs() < 1e-9);
    /// ```
    pub fn new(steps: usize) -> OneCycle {
        OneCycle { steps, rise: 0.3, start: 25.0, end: 1e4, linear: false }
    }
    /// Sets the fraction of rising steps.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(101).rise(0.51);
    /// assert!((schedule.lr(1.0, 0) - 0.04).abs() < 1e-9);
    /// ```
    pub fn rise(self, part: f64) -> OneCycle {
        OneCycle { rise: part, ..self }
    }
    /// Sets the quotient of the maximum and the initial learning rate.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100).start_div(10.0);
    /// assert!((schedule.lr(1.0, 0) - 0.1).abs() < 1e-9);
    /// ```
    pub fn start_div(self, start: f64) -> OneCycle {
        OneCycle { start, ..self }
    }
    /// Sets the quotient of the initial and the final learning rate.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100).start_div(10.0).end_div(2.0);
    /// assert!((schedule.lr(1.0, 99) - 0.05).abs() < 1e-9);
    /// ```
    pub fn end_div(self, end: f64) -> OneCycle {
        OneCycle { end, ..self }
    }
    /// Uses linear instead of cosine annealing.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100).linear();
    /// assert!((schedule.lr(1.0, 0) - 0.04).abs() < 1e-9);
    /// ```
    pub fn linear(self) -> OneCycle {
        OneCycle { linear: true, ..self }
    }
}

impl Schedule for OneCycle {
    fn lr(&self, base: f64, step: usize) -> f64 {
        let first = base / self.start;
        let last = first / self.end;
        // A cycle of at most one step is at its end.
        if self.steps < 2 {
            return last;
        }
        let (top, end) = (self.rise * self.steps as f64 - 1.0, self.steps as f64 - 1.0);
        let step = (step as f64).min(end);
        let (from, to, part) = if step <= top && top > 0.0 {
            (first, base, step / top)
        } else {
            (base, last, (step - top) / (end - top))
        };
        if self.linear {
            return from + (to - from) * part;
        }
        to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * part).cos())
    }
}

/// Applies a [`Schedule`] to the learning rates of an optimizer.
pub struct Scheduler {
    schedule: Box<dyn Schedule>,
    base: Vec<f64>,
    step: usize,
}

impl Scheduler {
    /// Creates a scheduler at step 0, with the current rates of the groups as initial rates.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD, Scheduler, Step};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// let mut seen = Vec::new();
    /// for _ in 0..4 {
    ///     seen.push(optimizer.lr());
    ///     scheduler.step(&mut optimizer)?;
    /// }
    /// assert_eq!(seen, [1.0, 1.0, 0.5, 0.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(optimizer: &mut Optimizer, schedule: impl Schedule + 'static) -> Result<Scheduler> {
        let mut scheduler =
            Scheduler { schedule: Box::new(schedule), base: optimizer.lrs(), step: 0 };
        scheduler.set_step(optimizer, 0)?;
        Ok(scheduler)
    }
    /// Advances by one step; call it after the optimizer's step.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD, Scheduler, Step};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// scheduler.step(&mut optimizer)?;
    /// scheduler.step(&mut optimizer)?;
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn step(&mut self, optimizer: &mut Optimizer) -> Result<()> {
        self.set_step(optimizer, self.step.saturating_add(1))
    }
    /// Jumps to a step.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD, Scheduler, Step};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// scheduler.set_step(&mut optimizer, 4)?;
    /// assert_eq!(optimizer.lr(), 0.25);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn set_step(&mut self, optimizer: &mut Optimizer, step: usize) -> Result<()> {
        self.step = step;
        let lrs: Vec<f64> = self.base.iter().map(|&base| self.schedule.lr(base, step)).collect();
        optimizer.set_lrs(&lrs)
    }
    /// Returns the number of steps taken.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD, Scheduler, Step};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// scheduler.step(&mut optimizer)?;
    /// assert_eq!(scheduler.steps(), 1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn steps(&self) -> usize {
        self.step
    }
    /// Returns the step and the initial learning rates.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD, Scheduler, Step};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// assert!(!scheduler.state_dict().is_empty());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn state_dict(&self) -> StateDict {
        [("step", Tensor::new([self.step as i64])), ("base_lrs", Tensor::new(self.base.clone()))]
            .into_iter()
            .collect()
    }
    /// Loads a state, and sets the learning rates of an optimizer with as many groups.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD, Scheduler, Step};
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// let start = scheduler.state_dict();
    /// scheduler.set_step(&mut optimizer, 4)?;
    /// scheduler.load_state_dict(&mut optimizer, &start)?;
    /// assert_eq!((scheduler.steps(), optimizer.lr()), (0, 1.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn load_state_dict(&mut self, optimizer: &mut Optimizer, state: &StateDict) -> Result<()> {
        let (step, base) = (Tensor::new([0i64]), Tensor::new(self.base.clone()));
        state
            .load_into(&[("step".into(), step.clone()), ("base_lrs".into(), base.clone())], true)?;
        self.base = base.to_vec()?;
        self.set_step(optimizer, step.item::<i64>()?.max(0) as usize)
    }
}
