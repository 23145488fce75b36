//! The optimizer: groups of parameters, their state, and steps that update all of them together.

use super::{Rule, Update};
use crate::device::{Device, limits};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::io::StateDict;
use crate::ir::DeviceName;
use crate::tensor::{Tensor, no_grad, take_step_list};
use rustc_hash::FxHashSet;

struct Group {
    rule: Box<dyn Rule>,
    params: Vec<Param>,
    lr: f64,
    /// The learning rate in memory: a schedule changes memory, not code.
    lr_now: Tensor,
    /// One entry per number of updates that a parameter of the group has.
    numbers: Vec<Numbers>,
}

struct Param {
    tensor: Tensor,
    state: Vec<Tensor>,
    updates: u64,
}

/// The scalar state of [`Rule::numbers`] for parameters with equally many updates.
#[derive(Clone)]
struct Numbers {
    updates: u64,
    tensors: Vec<Tensor>,
}

impl Group {
    /// Counts an update of each parameter that has a gradient and provides the numbers of the new
    /// counts. If all parameters are updated together, the usual case, these are the tensors of the
    /// previous step, updated. Returns the changed tensors.
    fn advance(&mut self) -> Result<Vec<Tensor>> {
        let mut counts: Vec<u64> =
            self.params.iter().filter(|p| p.tensor.grad().is_some()).map(|p| p.updates).collect();
        counts.sort_unstable();
        counts.dedup();
        let mut changed = Vec::new();
        // In descending order, so that the numbers of `count + 1` are free before their reuse.
        for count in counts.into_iter().rev() {
            let of_count = |p: &&mut Param| p.updates == count;
            let stays = self.params.iter().any(|p| p.updates == count && p.tensor.grad().is_none());
            let at = self
                .numbers
                .iter()
                .position(|n| n.updates == count)
                .expect("numbers for every count");
            if self.numbers.iter().all(|n| n.updates != count + 1) {
                let tensors = if stays {
                    self.numbers[at].copy().tensors
                } else {
                    self.numbers[at].tensors.clone()
                };
                self.rule.advance(&tensors)?;
                changed.extend(tensors.iter().cloned());
                self.numbers.push(Numbers { updates: count + 1, tensors });
            }
            if !stays {
                self.numbers.remove(at);
            }
            self.params
                .iter_mut()
                .filter(of_count)
                .filter(|p| p.tensor.grad().is_some())
                .for_each(|p| p.updates += 1);
        }
        Ok(changed)
    }
    fn numbers_of(&self, p: &Param) -> &[Tensor] {
        &self
            .numbers
            .iter()
            .find(|n| n.updates == p.updates)
            .expect("numbers for every count")
            .tensors
    }
    /// Returns the dtype of the learning rate and the numbers: the widest of the updates.
    fn wide(&self) -> DType {
        self.lr_now.dtype()
    }
}

impl Numbers {
    fn zeros(rule: &dyn Rule, updates: u64, dtype: DType, device: &DeviceName) -> Result<Numbers> {
        Ok(Numbers {
            updates,
            tensors: rule
                .numbers()
                .iter()
                .map(|_| number(0.0, dtype, device))
                .collect::<Result<_>>()?,
        })
    }
    /// Copies the values to new tensors.
    fn copy(&self) -> Numbers {
        Numbers { updates: self.updates, tensors: self.tensors.iter().map(Tensor::copy).collect() }
    }
}

/// Groups of parameters, each with an update rule.
///
/// ```
/// use picograd::nn::{
///     Embedding, Linear, Module,
///     optim::{AdamW, Muon, Optimizer},
/// };
/// let (table, body) = (Embedding::new(10, 4), Linear::new(4, 4));
/// let mut optimizer = Optimizer::new([body.weight.clone()], Muon::new(0.02))?;
/// optimizer.add_group(table.parameters(), AdamW::new(3e-4).weight_decay(0.0))?;
/// optimizer.add_group(body.bias.clone(), AdamW::new(3e-4))?;
/// assert_eq!(optimizer.lrs(), [0.02, 3e-4, 3e-4]);
/// # Ok::<(), picograd::Error>(())
/// ```
pub struct Optimizer {
    groups: Vec<Group>,
}

impl Optimizer {
    /// Creates an optimizer with one group of parameters, which are realized together.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// assert_eq!(optimizer.parameters().len(), 1);
    /// assert!(Optimizer::new([Tensor::ones([1])], SGD::new(0.25)).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(
        params: impl IntoIterator<Item = Tensor>,
        rule: impl Rule + 'static,
    ) -> Result<Optimizer> {
        let mut optimizer = Optimizer { groups: Vec::new() };
        optimizer.add_group(params, rule)?;
        Ok(optimizer)
    }

    /// Adds a group with its own rule. A tensor that is not a parameter, or is already in a group,
    /// is an error.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// optimizer.add_group([Tensor::new([2.0f32]).as_param()], SGD::new(0.5))?;
    /// assert_eq!(optimizer.lrs(), [0.25, 0.5]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn add_group(
        &mut self,
        params: impl IntoIterator<Item = Tensor>,
        rule: impl Rule + 'static,
    ) -> Result<()> {
        let params: Vec<Tensor> = params.into_iter().collect();
        let mut known: FxHashSet<usize> = self.params().map(|p| p.tensor.id()).collect();
        for (i, p) in params.iter().enumerate() {
            let wrong = |why: &str| {
                Err(Error::State(format!("optimizer: tensor {i} of shape {:?} {why}", p.shape())))
            };
            if !p.is_param() {
                return wrong("is not a parameter; make it one with as_param()");
            }
            if !known.insert(p.id()) {
                return wrong("is already in a group; a parameter belongs to one group");
            }
            if p.device() != params[0].device() {
                return wrong(&format!(
                    "is on {} and the first of its group on {}; give each device a group",
                    p.device(),
                    params[0].device()
                ));
            }
            rule.check(p)?;
        }
        let device = params.first().map_or_else(Device::default_name, |p| p.device().clone());
        let with_state = |tensor: Tensor| {
            let state = (0..rule.state().len())
                .map(|i| filled(&tensor, rule.initial(i)))
                .collect::<Result<_>>()?;
            Ok(Param { state, tensor, updates: 0 })
        };
        let params: Vec<Param> = params.into_iter().map(with_state).collect::<Result<_>>()?;
        let dtype = if params.iter().any(|p| p.tensor.dtype() == DType::F64) {
            DType::F64
        } else {
            DType::F32
        };
        let numbers = vec![Numbers::zeros(&rule, 0, dtype, &device)?];
        let (lr, lr_now) = (rule.lr(), number(rule.lr(), dtype, &device)?);
        let group = Group { rule: Box::new(rule), params, lr, lr_now, numbers };
        let tensors = group.params.iter().flat_map(|p| p.state.iter().chain([&p.tensor]));
        Tensor::realize_many(
            &tensors.chain(&group.numbers[0].tensors).chain([&group.lr_now]).collect::<Vec<_>>(),
        )?;
        self.groups.push(group);
        Ok(())
    }

    /// Updates every parameter that has a gradient, and realizes all updates with the loss. The
    /// gradients are consumed, so that they need no memory of their own; read them before the step.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let mut optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// x.square().sum(..).backward();
    /// optimizer.step()?;
    /// assert_eq!(x.item::<f32>()?, 0.5);
    /// assert!(x.grad().is_none());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn step(&mut self) -> Result<()> {
        self.step_unless(None)
    }

    /// Returns a step without effect if `skip`, a bool of rank 0, is true; the device decides.
    pub(crate) fn step_unless(&mut self, skip: Option<&Tensor>) -> Result<()> {
        // A skipped step changes only the counts of updates, which select the numbers. That is
        // correct if all parameters are updated together; otherwise the host decides.
        let apart = |g: &Group| {
            !g.rule.numbers().is_empty()
                && (g.numbers.len() > 1 || g.params.iter().any(|p| p.tensor.grad().is_none()))
        };
        if let Some(skip) = skip
            && self.groups.iter().any(apart)
        {
            return if skip.item::<bool>()? { self.skip_step() } else { self.step_unless(None) };
        }
        let mut changed: Vec<Tensor> = Vec::new();
        no_grad(|| {
            let before: Vec<(Tensor, Tensor)> = match skip {
                Some(_) => self.all_tensors().into_iter().map(|t| (t.clone(), t.copy())).collect(),
                None => Vec::new(),
            };
            self.update_all(&mut changed)?;
            if let Some(skip) = skip {
                for (now, before) in
                    before.iter().filter(|(now, _)| changed.iter().any(|c| c.id() == now.id()))
                {
                    now.assign(skip.try_to(now.device().as_str())?.try_where_(before, now)?)?;
                }
            }
            Ok::<_, Error>(())
        })?;
        // Without another reader of the old values, the new ones are written in place.
        self.zero_grad();
        changed.extend(take_step_list());
        Tensor::realize_many(&changed.iter().collect::<Vec<_>>())
    }

    /// Consumes the gradients and realizes what belongs to a step, without an update.
    fn skip_step(&mut self) -> Result<()> {
        self.zero_grad();
        Tensor::realize_many(&take_step_list().iter().collect::<Vec<_>>())
    }

    /// Returns all parameters, their state, and the numbers of all groups.
    fn all_tensors(&self) -> Vec<Tensor> {
        let numbers =
            self.groups.iter().flat_map(|g| g.numbers.iter().flat_map(|n| n.tensors.iter()));
        self.params()
            .flat_map(|p| p.state.iter().chain([&p.tensor]))
            .chain(numbers)
            .cloned()
            .collect()
    }

    /// Assigns the new values of a step and lists the changed tensors.
    fn update_all(&mut self, changed: &mut Vec<Tensor>) -> Result<()> {
        for group in &mut self.groups {
            changed.extend(group.advance()?);
            for p in &group.params {
                let Some(grad) = p.tensor.grad() else { continue };
                let grad = if group.rule.maximizes() { -grad } else { grad };
                let wide = compute_dtype(p.tensor.dtype());
                let (param, grad, lr) =
                    (p.tensor.try_cast(wide)?, grad.try_cast(wide)?, group.lr_now.try_cast(wide)?);
                let numbers = group
                    .numbers_of(p)
                    .iter()
                    .map(|n| n.try_cast(wide))
                    .collect::<Result<Vec<_>>>()?;
                let now = Update {
                    param: &param,
                    grad: &grad,
                    lr: &lr,
                    state: &p.state,
                    numbers: &numbers,
                };
                p.tensor.assign(group.rule.update(&now)?)?;
                changed.push(p.tensor.clone());
                changed.extend(p.state.iter().cloned());
            }
        }
        Ok(())
    }

    /// Clears all gradients.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// x.square().sum(..).backward();
    /// optimizer.zero_grad();
    /// assert!(x.grad().is_none());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn zero_grad(&self) {
        self.params().for_each(|p| p.tensor.set_grad(None));
    }

    /// Returns all parameters, group by group.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// assert_eq!(optimizer.parameters()[0].to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn parameters(&self) -> Vec<Tensor> {
        self.params().map(|p| p.tensor.clone()).collect()
    }
    fn params(&self) -> impl Iterator<Item = &Param> {
        self.groups.iter().flat_map(|g| &g.params)
    }

    /// Returns the learning rate of the first group.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::{Optimizer, SGD}};
    /// let optimizer = Optimizer::new([Tensor::ones([1]).as_param()], SGD::new(0.25))?;
    /// assert_eq!(optimizer.lr(), 0.25);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn lr(&self) -> f64 {
        self.groups[0].lr
    }
    /// Returns the learning rate of each group.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::{Optimizer, SGD}};
    /// let optimizer = Optimizer::new([Tensor::ones([1]).as_param()], SGD::new(0.25))?;
    /// assert_eq!(optimizer.lrs(), [0.25]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn lrs(&self) -> Vec<f64> {
        self.groups.iter().map(|g| g.lr).collect()
    }
    /// Sets the learning rate of all groups.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::{Optimizer, SGD}};
    /// let mut optimizer = Optimizer::new([Tensor::ones([1]).as_param()], SGD::new(0.25))?;
    /// optimizer.set_lr(0.125)?;
    /// assert_eq!(optimizer.lr(), 0.125);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        self.set_lrs(&vec![lr; self.groups.len()])
    }
    /// Sets the learning rate of each group.
    ///
    /// ```
    /// use picograd::{Tensor, nn::optim::{Optimizer, SGD}};
    /// let mut optimizer = Optimizer::new([Tensor::ones([1]).as_param()], SGD::new(0.25))?;
    /// optimizer.set_lrs(&[0.125])?;
    /// assert!(optimizer.set_lrs(&[0.1, 0.2]).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        if lrs.len() != self.groups.len() {
            return Err(Error::State(format!(
                "optimizer: {} learning rates for {} groups",
                lrs.len(),
                self.groups.len()
            )));
        }
        for (group, &lr) in self.groups.iter_mut().zip(lrs) {
            group.lr = lr;
            group.lr_now.assign(number(lr, group.wide(), group.lr_now.device())?)?;
        }
        Ok(())
    }

    /// Returns the state of the optimizer besides parameters, gradients and settings. With the
    /// state dict of the module it resumes training bit for bit.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let optimizer = Optimizer::new([x.clone()], SGD::new(0.25).momentum(0.9))?;
    /// let state = optimizer.state_dict();
    /// assert!(
    ///     state.get("groups.0.lr").is_some() && state.get("state.0.momentum_buffer").is_some()
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn state_dict(&self) -> StateDict {
        let mut state = StateDict::new();
        for (i, g) in self.groups.iter().enumerate() {
            state.insert(format!("groups.{i}.lr"), exact(g.lr));
            if g.numbers.len() > 1 && !g.rule.numbers().is_empty() {
                state.insert(
                    updates_of(i),
                    Tensor::new(g.params.iter().map(|p| p.updates).collect::<Vec<_>>()),
                );
            }
        }
        let numbers = self
            .groups
            .iter()
            .enumerate()
            .flat_map(|(i, g)| named_numbers(i, g.rule.as_ref(), &g.numbers));
        numbers
            .chain(self.named_state())
            .for_each(|(name, t)| drop(state.insert(name, t.detach())));
        state
    }

    /// Loads a state of an optimizer with the same groups, parameters and rules. On a mismatch the
    /// error names all of it and nothing changes.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::optim::{Optimizer, SGD};
    /// let x = Tensor::new([1.0f32]).as_param();
    /// let optimizer = Optimizer::new([x.clone()], SGD::new(0.25))?;
    /// let mut other = Optimizer::new([Tensor::new([2.0f32]).as_param()], SGD::new(0.5))?;
    /// other.load_state_dict(&optimizer.state_dict())?;
    /// assert_eq!(other.lr(), 0.25);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let lrs: Vec<Tensor> = self.groups.iter().map(|_| exact(0.0)).collect();
        let mut targets: Vec<(String, Tensor)> =
            lrs.iter().enumerate().map(|(i, t)| (format!("groups.{i}.lr"), t.clone())).collect();
        targets.extend(self.named_state());
        let mut taken: Vec<(Vec<u64>, Vec<Numbers>)> = Vec::new();
        for (i, g) in self.groups.iter().enumerate() {
            let updates = match state.get(&updates_of(i)) {
                Some(t) if t.shape() == [g.params.len()] && t.dtype() == DType::U64 => {
                    targets.push((updates_of(i), t.copy()));
                    t.to_vec::<u64>()?
                }
                // All counts are equal and not stored, or the state does not match, which is found
                // below.
                _ => vec![0; g.params.len()],
            };
            let mut counts = updates.clone();
            counts.sort_unstable();
            counts.dedup();
            let of =
                |&count: &u64| Numbers::zeros(g.rule.as_ref(), count, g.wide(), g.lr_now.device());
            let numbers = if counts.is_empty() {
                vec![of(&0)?]
            } else {
                counts.iter().map(of).collect::<Result<Vec<_>>>()?
            };
            targets.extend(named_numbers(i, g.rule.as_ref(), &numbers));
            taken.push((updates, numbers));
        }
        state.load_into(&targets, true)?;
        for (g, (updates, numbers)) in self.groups.iter_mut().zip(taken) {
            g.params.iter_mut().zip(updates).for_each(|(p, n)| p.updates = n);
            g.numbers = numbers;
        }
        self.set_lrs(&lrs.iter().map(|t| t.item()).collect::<Result<Vec<f64>>>()?)
    }

    fn named_state(&self) -> Vec<(String, Tensor)> {
        let params =
            self.groups.iter().flat_map(|g| g.params.iter().map(move |p| (g.rule.state(), p)));
        let named = params.enumerate().map(|(i, (names, p))| {
            let name = move |(name, t): (&&str, &Tensor)| (format!("state.{i}.{name}"), t.clone());
            names.iter().zip(&p.state).map(name)
        });
        named.flatten().collect()
    }
}

/// Returns the state-dict name of the update counts of a group, if they differ.
fn updates_of(group: usize) -> String {
    format!("groups.{group}.updates")
}

/// Returns the numbers of a group with their names, which include the update count if there are
/// several.
fn named_numbers(group: usize, rule: &dyn Rule, numbers: &[Numbers]) -> Vec<(String, Tensor)> {
    let named = |n: &Numbers| {
        let end = if numbers.len() > 1 { format!(".{}", n.updates) } else { String::new() };
        rule.numbers()
            .iter()
            .zip(&n.tensors)
            .map(|(name, t)| (format!("groups.{group}.{name}{end}"), t.clone()))
            .collect::<Vec<_>>()
    };
    numbers.iter().flat_map(named).collect()
}

/// Returns the dtype that the update of a parameter is computed in.
pub(super) fn compute_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Returns a tensor like the parameter with one value, in memory, so that the first step runs the
/// kernels of all others.
fn filled(param: &Tensor, value: f64) -> Result<Tensor> {
    let dtype = compute_dtype(param.dtype());
    let mut bytes = limits::zeroed(param.numel() * dtype.itemsize())?;
    if value != 0.0 {
        let narrow = (value as f32).to_le_bytes();
        let wide = value.to_le_bytes();
        let element = if dtype == DType::F64 { &wide[..] } else { &narrow };
        bytes.chunks_exact_mut(element.len()).for_each(|b| b.copy_from_slice(element));
    }
    Tensor::try_from_bytes(&bytes, dtype, param.shape())?.try_shard_like(param)
}

/// Returns a number of rank 0 in memory, not a literal of a kernel.
pub(super) fn number(value: f64, dtype: DType, device: &DeviceName) -> Result<Tensor> {
    let number =
        if dtype == DType::F64 { Tensor::new([value]) } else { Tensor::new([value as f32]) };
    number.reshape(()).try_to(device.as_str())
}

/// Returns a number in full precision, for a state dict.
pub(super) fn exact(value: f64) -> Tensor {
    Tensor::new([value]).reshape(())
}
