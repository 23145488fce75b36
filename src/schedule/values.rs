//! The values of variables in one run. Plans and kernels are the same for all of them.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of each variable, by its name.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Values(BTreeMap<Arc<str>, ((i64, i64), i64)>);

impl Values {
    /// Adds a variable with its bounds. A name stands for one variable with one value.
    pub fn insert(&mut self, name: &Arc<str>, bounds: (i64, i64), value: i64) -> Result<()> {
        let (known, before) = *self.0.entry(name.clone()).or_insert((bounds, value));
        if (known, before) == (bounds, value) {
            return Ok(());
        }
        let msg = if known != bounds {
            format!("{name} is within {}..={} and within {}..={}", known.0, known.1, bounds.0, bounds.1)
        } else {
            format!("{name} is {before} and {value}")
        };
        Err(Error::Shape { op: "realize", msg: format!("{msg} in what is computed together; two variables need two names") })
    }
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).map(|v| v.1)
    }
}
