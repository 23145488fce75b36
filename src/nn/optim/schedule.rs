//! Learning rates that change: schedules, which are functions of the step, and the plateau, which
//! watches a figure.

use super::Optimizer;
use crate::error::Result;
use crate::io::StateDict;
use crate::tensor::Tensor;

/// A learning rate as a function of the one that an optimizer began with and of the step, so that
/// any step can be reached at once. A function of the step alone is a schedule too: its result is
/// the factor.
pub trait Schedule: Send + Sync {
    /// The learning rate after so many steps.
    fn lr(&self, base: f64, step: usize) -> f64;

    /// This schedule up to a step, and from there another one, which begins with its own step 0.
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

/// The same factor at every step.
#[derive(Clone, Debug)]
pub struct Constant(/** The factor. */ pub f64);

impl Schedule for Constant {
    fn lr(&self, base: f64, _: usize) -> f64 {
        base * self.0
    }
}

/// Times a factor after every so many steps.
#[derive(Clone, Debug)]
pub struct Step {
    every: usize,
    gamma: f64,
}

impl Step {
    /// Times `gamma` after every `every` steps; 0 counts as 1.
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

/// Times a factor at certain steps.
#[derive(Clone, Debug)]
pub struct MultiStep {
    at: Vec<usize>,
    gamma: f64,
}

impl MultiStep {
    /// Times `gamma` at each of these steps.
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

/// Times a factor after every step.
#[derive(Clone, Debug)]
pub struct Exponential(/** The factor. */ pub f64);

impl Schedule for Exponential {
    fn lr(&self, base: f64, step: usize) -> f64 {
        base * self.0.powi(step as i32)
    }
}

/// From one factor to another in even steps: with a small first factor and 1, a warm-up.
#[derive(Clone, Debug)]
pub struct Ramp {
    from: f64,
    to: f64,
    steps: usize,
}

impl Ramp {
    /// From the factor `from` at step 0 to the factor `to` after so many steps, which then stays.
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

/// Half a wave of a cosine, from the learning rate down to a least one (Loshchilov and Hutter,
/// 2017). Afterwards the wave goes on.
#[derive(Clone, Debug)]
pub struct Cosine {
    steps: usize,
    min: f64,
}

impl Cosine {
    /// Down to zero in so many steps.
    ///
    /// ```
    /// use picograd::nn::optim::{Cosine, Schedule};
    /// let schedule = Cosine::new(10);
    /// assert!((schedule.lr(1.0, 5) - 0.5).abs() < 1e-9);
    /// ```
    pub fn new(steps: usize) -> Cosine {
        Cosine { steps: steps.max(1), min: 0.0 }
    }
    /// Down to this learning rate.
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

/// Up to the learning rate, then down to nearly nothing, in one go over the whole training (Smith
/// and Topin, 2018).
#[derive(Clone, Debug)]
pub struct OneCycle {
    steps: usize,
    rise: f64,
    start: f64,
    end: f64,
    linear: bool,
}

impl OneCycle {
    /// So many steps in all, of which 30 % go up from 1/25 of the learning rate, and the others
    /// down to 1/10,000 of where it began, by cosines.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100);
    /// assert!((schedule.lr(1.0, 0) - 0.04).abs() < 1e-9);
    /// ```
    pub fn new(steps: usize) -> OneCycle {
        OneCycle { steps, rise: 0.3, start: 25.0, end: 1e4, linear: false }
    }
    /// The part of the steps that go up.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(101).rise(0.51);
    /// assert!((schedule.lr(1.0, 0) - 0.04).abs() < 1e-9);
    /// ```
    pub fn rise(self, part: f64) -> OneCycle {
        OneCycle { rise: part, ..self }
    }
    /// The first learning rate is the greatest over this.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100).start_div(10.0);
    /// assert!((schedule.lr(1.0, 0) - 0.1).abs() < 1e-9);
    /// ```
    pub fn start_div(self, start: f64) -> OneCycle {
        OneCycle { start, ..self }
    }
    /// The last learning rate is the first over this.
    ///
    /// ```
    /// use picograd::nn::optim::{OneCycle, Schedule};
    /// let schedule = OneCycle::new(100).start_div(10.0).end_div(2.0);
    /// assert!((schedule.lr(1.0, 99) - 0.05).abs() < 1e-9);
    /// ```
    pub fn end_div(self, end: f64) -> OneCycle {
        OneCycle { end, ..self }
    }
    /// By straight lines in place of cosines.
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
        // A cycle of one step, or of none, is at its end.
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

/// Moves the learning rates of an optimizer along a [`Schedule`].
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::optim::{Optimizer, SGD, Scheduler, Step},
/// };
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
pub struct Scheduler {
    schedule: Box<dyn Schedule>,
    base: Vec<f64>,
    step: usize,
}

impl Scheduler {
    /// Begins at step 0, with the learning rates that the groups have now as those that the
    /// schedule is of.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, SGD, Scheduler, Step},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// assert_eq!((scheduler.steps(), optimizer.lr()), (0, 1.0));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(optimizer: &mut Optimizer, schedule: impl Schedule + 'static) -> Result<Scheduler> {
        let mut scheduler =
            Scheduler { schedule: Box::new(schedule), base: optimizer.lrs(), step: 0 };
        scheduler.set_step(optimizer, 0)?;
        Ok(scheduler)
    }
    /// One step on: call it after the optimizer's.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, SGD, Scheduler, Step},
    /// };
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
    /// Goes to a step at once.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, SGD, Scheduler, Step},
    /// };
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
    /// How many steps were taken.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, SGD, Scheduler, Step},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut scheduler = Scheduler::new(&mut optimizer, Step::new(2, 0.5))?;
    /// scheduler.step(&mut optimizer)?;
    /// assert_eq!(scheduler.steps(), 1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn steps(&self) -> usize {
        self.step
    }
    /// The step, and the learning rates at the beginning.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, SGD, Scheduler, Step},
    /// };
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
    /// Takes up a state, and sets the learning rates of an optimizer of as many groups to where it
    /// was.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, SGD, Scheduler, Step},
    /// };
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

/// Lowers the learning rates when a figure has stopped getting better.
///
/// ```
/// use picograd::{
///     Tensor,
///     nn::optim::{Optimizer, Plateau, SGD},
/// };
/// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
/// let mut plateau = Plateau::new().patience(1).factor(0.5);
/// for loss in [3.0, 2.0, 2.0, 2.0] {
///     plateau.step(&mut optimizer, loss)?;
/// }
/// assert_eq!(optimizer.lr(), 0.5);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plateau {
    higher: bool,
    factor: f64,
    patience: usize,
    threshold: f64,
    relative: bool,
    cooldown: usize,
    min: f64,
    best: f64,
    bad: usize,
    cooling: usize,
}

impl Default for Plateau {
    fn default() -> Plateau {
        Plateau::new()
    }
}

impl Plateau {
    /// A tenth of the learning rate, after more than ten steps in a row in which a loss did not get
    /// lower by a ten-thousandth of itself.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new();
    /// for figure in [2.0; 12] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.1);
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
            min: 0.0,
            best: f64::INFINITY,
            bad: 0,
            cooling: 0,
        }
    }
    /// Higher is better, as for an accuracy.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
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
    /// What the learning rates are multiplied by.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(0).factor(0.5);
    /// for figure in [2.0, 2.0] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn factor(self, factor: f64) -> Plateau {
        Plateau { factor, ..self }
    }
    /// How many bad steps in a row are borne.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(1);
    /// for figure in [2.0, 2.0] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 1.0);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn patience(self, patience: usize) -> Plateau {
        Plateau { patience, ..self }
    }
    /// How much better counts as better, as a part of the best figure.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
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
    /// How much better counts as better, as it is.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
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
    /// How many steps after a change are not counted.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(0).factor(0.5).cooldown(2);
    /// for figure in [2.0, 2.0, 2.0, 2.0] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn cooldown(self, cooldown: usize) -> Plateau {
        Plateau { cooldown, ..self }
    }
    /// No learning rate goes below this.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
    /// let mut optimizer = Optimizer::new([Tensor::new([1.0f32]).as_param()], SGD::new(1.0))?;
    /// let mut plateau = Plateau::new().patience(0).min_lr(0.75);
    /// for figure in [2.0, 2.0] {
    ///     plateau.step(&mut optimizer, figure)?;
    /// }
    /// assert_eq!(optimizer.lr(), 0.75);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn min_lr(self, min: f64) -> Plateau {
        Plateau { min, ..self }
    }

    fn is_better(&self, figure: f64) -> bool {
        let margin = if self.relative { self.best.abs() * self.threshold } else { self.threshold };
        // Nothing is known yet: every figure is better, and infinity has no margin.
        if self.best.is_infinite() {
            return figure.is_finite();
        }
        if self.higher { figure > self.best + margin } else { figure < self.best - margin }
    }

    /// Takes a new figure, and lowers the learning rates of an optimizer if it is time. NaN is
    /// never better.
    ///
    /// ```
    /// use picograd::{
    ///     Tensor,
    ///     nn::optim::{Optimizer, Plateau, SGD},
    /// };
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
            optimizer.lrs().iter().map(|lr| (lr * self.factor).max(self.min)).collect();
        optimizer.set_lrs(&lrs)
    }
}
