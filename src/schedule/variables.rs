//! The values of variables in one run. Plans and kernels do not depend on them.

use crate::error::{Error, Result};
use crate::shape::SymInt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of each variable, by its name.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct VariableValues(BTreeMap<Arc<str>, ((i64, i64), i64)>);

impl VariableValues {
    /// Adds a variable with its bounds. A name stands for one variable with one value.
    pub fn insert(&mut self, name: &Arc<str>, bounds: (i64, i64), value: i64) -> Result<()> {
        let (known, before) = *self.0.entry(name.clone()).or_insert((bounds, value));
        if (known, before) == (bounds, value) {
            return Ok(());
        }
        let msg = if known != bounds {
            format!(
                "variable {name} has the bounds {}..={} and {}..={}",
                known.0, known.1, bounds.0, bounds.1
            )
        } else {
            format!("variable {name} has the values {before} and {value}")
        };
        Err(Error::Shape {
            op: "realize",
            msg: format!("{msg} in one computation; two variables need two names"),
        })
    }
    /// Adds the values of the variables of a symbolic integer.
    pub fn insert_symint(&mut self, bound: &SymInt) -> Result<()> {
        let valued = bound.terms().iter().filter_map(|t| Some((&t.variable, t.value?)));
        valued
            .into_iter()
            .try_for_each(|(v, value)| self.insert(&v.shared_name(), (v.min(), v.max()), value))
    }
    /// Returns a variable that others have with another value, or within other bounds: its name,
    /// and both values.
    pub fn differing<'a>(&'a self, others: &VariableValues) -> Option<(&'a Arc<str>, i64, i64)> {
        self.0
            .iter()
            .find_map(|(name, v)| others.0.get(name).filter(|o| *o != v).map(|o| (name, v.1, o.1)))
    }
    /// Adds the variables of others that these lack.
    pub fn complete(&mut self, others: &VariableValues) {
        for (name, v) in &others.0 {
            self.0.entry(name.clone()).or_insert(*v);
        }
    }
    /// Returns the variables with their values, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.0.iter().map(|(name, v)| (name, v.1))
    }
    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).map(|v| v.1)
    }
}
