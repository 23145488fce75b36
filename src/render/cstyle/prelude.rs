//! The prelude of a kernel: types and helper functions, each once and only if used, in the order of
//! their first use.

use super::dialect::{Dialect, Text, storage, width_index};
use crate::dtype::{DType, Scalar};
use rustc_hash::{FxHashMap, FxHashSet};

/// A language, and the prelude of the kernel that is being written.
pub(super) struct Cx<'a> {
    pub dialect: &'a dyn Dialect,
    names: FxHashSet<String>,
    pub items: Vec<String>,
    /// True once a vector is accessed through a pointer of its own type.
    pub aligned: bool,
    /// The type names so far; `None` for a vector without a native type.
    types: FxHashMap<DType, Option<String>>,
}

impl<'a> Cx<'a> {
    pub fn new(dialect: &'a dyn Dialect) -> Cx<'a> {
        Cx {
            dialect,
            names: FxHashSet::default(),
            items: Vec::new(),
            aligned: false,
            types: FxHashMap::default(),
        }
    }

    /// Adds a line to the prelude unless its name exists.
    pub fn need(&mut self, name: &str, line: impl FnOnce() -> String) {
        if !self.names.contains(name) {
            self.names.insert(name.to_string());
            self.items.push(line());
        }
    }

    /// Adds a helper function unless it exists. `make` returns its parameters and body, and may add
    /// other helpers, which precede it.
    pub fn helper(
        &mut self,
        name: &str,
        result: DType,
        make: impl FnOnce(&mut Cx) -> Result<(String, String), String>,
    ) -> Result<(), String> {
        if self.names.contains(name) {
            return Ok(());
        }
        let result = self.ty(result)?;
        let (params, body) = make(self)?;
        self.names.insert(name.to_string());
        self.items.push(format!(
            "{} {result} {name}({params}) {{ {body} }}",
            self.dialect.words().helper
        ));
        Ok(())
    }

    /// Returns the name of the type that holds a value.
    pub fn ty(&mut self, dtype: DType) -> Text {
        if dtype.lanes == 1 {
            return self.scalar_type(dtype.scalar).map(str::to_string);
        }
        match self.vector_type(dtype) {
            Some(name) => Ok(name.clone()),
            None => self.struct_type(dtype),
        }
    }

    /// Returns true if the language has a native vector type for it.
    pub fn has_vector(&mut self, dtype: DType) -> bool {
        self.vector_type(dtype).is_some()
    }

    /// Returns the language's own type for a vector.
    fn vector_type(&mut self, dtype: DType) -> Option<&String> {
        if !self.types.contains_key(&dtype) {
            let name = self.dialect.vector_type(self, dtype);
            self.types.insert(dtype, name);
        }
        self.types[&dtype].as_ref()
    }

    /// Returns the name of the type of a scalar.
    pub fn scalar_type(&self, scalar: Scalar) -> Result<&'static str, String> {
        let words = self.dialect.words();
        let s = storage(scalar);
        Ok(match s {
            Scalar::Void => return Err("a void has no value".to_string()),
            Scalar::Bool => words.boolean,
            Scalar::F32 => "float",
            Scalar::F64 if words.special64.is_some() => "double",
            Scalar::F64 => return Err(format!("{} has no f64", self.dialect.target().name)),
            _ if DType { scalar: s, lanes: 1 }.is_unsigned() => {
                words.unsigned[width_index(s.bits())]
            }
            _ => words.signed[width_index(s.bits())],
        })
    }

    /// Returns the type of an element in memory: a bool is a byte there.
    pub fn element_type(&self, dtype: DType) -> Result<&'static str, String> {
        self.scalar_type(if dtype.is_bool() { Scalar::U8 } else { dtype.scalar })
    }

    /// Returns a struct of lanes, for a vector without a native type.
    fn struct_type(&mut self, dtype: DType) -> Text {
        let held = storage(dtype.scalar);
        let name = format!("{held}x{}", dtype.lanes);
        let element = self.scalar_type(held)?;
        self.need(&name, || format!("typedef struct {{ {element} v[{}]; }} {name};", dtype.lanes));
        Ok(name)
    }

    /// Returns a vector from the text of its lanes.
    pub fn build(&mut self, dtype: DType, lanes: &[String]) -> Text {
        if self.has_vector(dtype) {
            let dialect = self.dialect;
            return Ok(dialect.build(self, dtype, lanes));
        }
        let name = self.struct_type(dtype)?;
        Ok(self.dialect.build_struct(&name, &lanes.join(",")))
    }

    /// Returns one lane of a named vector.
    pub fn lane(&mut self, dtype: DType, vector: &str, lane: usize) -> String {
        if dtype.lanes == 1 {
            vector.to_string()
        } else if self.has_vector(dtype) {
            self.dialect.lane(dtype, vector, lane)
        } else {
            format!("{vector}.v[{lane}]")
        }
    }

    /// Returns the lane at a loop counter, in a dialect that puts lane-by-lane ops into helpers:
    /// brackets select a lane there.
    pub fn lane_at(&mut self, dtype: DType, vector: &str, counter: &str) -> String {
        let place = if self.has_vector(dtype) { "" } else { ".v" };
        if dtype.is_bool() {
            format!("({vector}{place}[{counter}]!=0)")
        } else {
            format!("{vector}{place}[{counter}]")
        }
    }
}
