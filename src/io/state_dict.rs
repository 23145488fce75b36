//! The state of a model: tensors by dotted name, in order, and loading them into an existing model.

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;

/// Tensors by dotted name (`layers.0.weight`), in insertion order.
///
/// ```
/// use picograd::Tensor;
/// use picograd::io::StateDict;
/// let mut state = StateDict::new();
/// state.insert("weight", Tensor::new([1.0f32, 2.0]));
/// let weight = Tensor::zeros([2]);
/// state.load_into(&[("weight".into(), weight.clone())], true)?;
/// assert_eq!(weight.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), picograd::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct StateDict {
    entries: Vec<(String, Tensor)>,
    places: FxHashMap<String, usize>,
}

impl StateDict {
    /// Creates an empty state.
    ///
    /// ```
    /// use picograd::io::StateDict;
    /// assert!(StateDict::new().is_empty());
    /// ```
    pub fn new() -> StateDict {
        StateDict::default()
    }

    /// Inserts a tensor. A tensor of the same name is replaced, in its position, and returned.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let mut state = StateDict::new();
    /// assert!(state.insert("weight", Tensor::zeros([2])).is_none());
    /// assert_eq!(state.insert("weight", Tensor::zeros([3])).unwrap().shape(), [2]);
    /// ```
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Option<Tensor> {
        let name = name.into();
        if let Some(&place) = self.places.get(&name) {
            return Some(std::mem::replace(&mut self.entries[place].1, tensor));
        }
        self.places.insert(name.clone(), self.entries.len());
        self.entries.push((name, tensor));
        None
    }

    /// Returns the tensor of a name.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
    /// assert!(state.get("weight").is_some() && state.get("bias").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.places.get(name).map(|&place| &self.entries[place].1)
    }

    /// Returns the tensor of a name, or an error that lists the names.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
    /// assert_eq!(
    ///     state.require("bias").unwrap_err().to_string(),
    ///     "state: no tensor \"bias\"; the 1 tensors are weight"
    /// );
    /// ```
    pub fn require(&self, name: &str) -> Result<&Tensor> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().take(8).map(|(n, _)| n.as_str()).collect();
            let more = if self.len() > names.len() { ", …" } else { "" };
            Error::State(format!(
                "no tensor {name:?}; the {} tensors are {}{more}",
                self.len(),
                names.join(", ")
            ))
        })
    }

    /// Iterates over names and tensors, in order.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
    /// assert_eq!(state.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["weight"]);
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, (String, Tensor)> {
        self.entries.iter()
    }

    /// Returns the number of tensors.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
    /// assert_eq!(state.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no tensors.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let state = StateDict::from_iter([("weight", Tensor::new([1.0f32, 2.0]))]);
    /// assert!(!state.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Inserts all tensors of another state as `prefix.name`, or as `name` if the prefix is empty.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let mut state = StateDict::new();
    /// state.insert("weight", Tensor::new([1.0f32, 2.0]));
    /// let mut all = StateDict::new();
    /// all.extend_prefixed("body", &state);
    /// assert!(all.get("body.weight").is_some());
    /// ```
    pub fn extend_prefixed(&mut self, prefix: &str, other: &StateDict) {
        for (name, tensor) in other {
            self.insert(
                if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") },
                tensor.clone(),
            );
        }
    }

    /// Returns the tensors whose names begin with `prefix.`, with the prefix removed.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let mut state = StateDict::new();
    /// state.insert("body.weight", Tensor::zeros([2]));
    /// state.insert("head.weight", Tensor::zeros([3]));
    /// assert_eq!(state.under("head").require("weight")?.shape(), [3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn under(&self, prefix: &str) -> StateDict {
        let inside = |name: &str| name.strip_prefix(prefix)?.strip_prefix('.').map(str::to_string);
        self.iter().filter_map(|(name, t)| Some((inside(name)?, t.clone()))).collect()
    }

    /// Returns the current values, which later assignments do not change. The state of a model
    /// holds the model's own tensors, so training changes it; a snapshot keeps the best values so
    /// far. Values are copied only when an assignment makes it necessary.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let mut state = StateDict::new();
    /// state.insert("weight", Tensor::new([1.0f32, 2.0]));
    /// let best = state.snapshot();
    /// state.require("weight")?.assign(0.0)?;
    /// assert_eq!(best.require("weight")?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn snapshot(&self) -> StateDict {
        self.iter().map(|(name, t)| (name.clone(), t.detach())).collect()
    }

    /// Assigns the values of this state to existing tensors, on their devices. All values are
    /// checked and read before the first assignment; the error names every mismatch.
    ///
    /// Shapes must be equal. With `strict`, both sides must have the same names and dtypes. Without
    /// it, targets without a value keep theirs, values without a target are ignored, and dtypes are
    /// cast.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::io::StateDict;
    /// let mut state = StateDict::new();
    /// state.insert("weight", Tensor::new([1.0f32, 2.0]));
    /// let target = Tensor::zeros([2]);
    /// state.load_into(&[("weight".into(), target.clone())], true)?;
    /// assert_eq!(target.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert!(state.load_into(&[("bias".into(), target)], true).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn load_into(&self, targets: &[(String, Tensor)], strict: bool) -> Result<()> {
        let mut wrong = Mismatch::default();
        let mut pairs: Vec<(&Tensor, &Tensor)> = Vec::new();
        for (name, target) in targets {
            match self.get(name) {
                None if strict => wrong.missing.push(name.clone()),
                None => {}
                Some(value) if value.shape() != target.shape() => {
                    wrong.shapes.push(format!(
                        "{name} is {:?}, expected {:?}",
                        value.shape(),
                        target.shape()
                    ));
                }
                Some(value) if strict && value.dtype() != target.dtype() => {
                    wrong.dtypes.push(format!(
                        "{name} is {}, expected {}",
                        value.dtype(),
                        target.dtype()
                    ));
                }
                Some(value) => pairs.push((target, value)),
            }
        }
        if strict {
            let known: FxHashSet<&str> = targets.iter().map(|(n, _)| n.as_str()).collect();
            wrong.extra.extend(
                self.iter().map(|(n, _)| n.clone()).filter(|n| !known.contains(n.as_str())),
            );
        }
        wrong.into_result()?;
        // Loaded values carry no gradient to their source.
        let bring = |(target, value): &(&Tensor, &Tensor)| {
            value.detach().try_to(target.device().as_str())?.try_cast(target.dtype())
        };
        let values: Vec<Tensor> = pairs.iter().map(bring).collect::<Result<_>>()?;
        // An unreadable file is an error here, before any target has changed.
        Tensor::realize_many(&values.iter().collect::<Vec<_>>())?;
        pairs.iter().zip(&values).try_for_each(|((target, _), value)| target.assign(value))
    }
}

/// Mismatches between values and targets, by name.
#[derive(Default)]
struct Mismatch {
    missing: Vec<String>,
    extra: Vec<String>,
    shapes: Vec<String>,
    dtypes: Vec<String>,
}

impl Mismatch {
    fn into_result(self) -> Result<()> {
        let parts = [
            ("missing", self.missing),
            ("extra", self.extra),
            ("with another shape", self.shapes),
            ("with another dtype", self.dtypes),
        ];
        let lines: Vec<String> = parts
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{} {what}: {}", names.len(), names.join(", ")))
            .collect();
        if lines.is_empty() { Ok(()) } else { Err(Error::State(lines.join("; "))) }
    }
}

impl<'a> IntoIterator for &'a StateDict {
    type Item = &'a (String, Tensor);
    type IntoIter = std::slice::Iter<'a, (String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for StateDict {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<N: Into<String>> FromIterator<(N, Tensor)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (N, Tensor)>>(entries: I) -> StateDict {
        let mut state = StateDict::new();
        entries.into_iter().for_each(|(name, tensor)| drop(state.insert(name, tensor)));
        state
    }
}

/// One line per tensor: name, dtype, shape and device. Nothing is computed.
impl fmt::Debug for StateDict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(name, t)| {
            writeln!(f, "{name}: {} {:?} on {}", t.dtype(), t.shape(), t.device())
        })
    }
}
