//! The cases: the name in the fixture, the tolerance, and the call.

use picograd::Tensor;

/// The allowed error of a result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum How {
    /// Equal bits in every dtype.
    Exact,
    /// As [`How::Exact`], and the result has a fixed dtype.
    Cast,
    /// Within two ulp of the result: rounded once from a wider float, or accurate to the last
    /// place, in the 8-bit floats too.
    Once,
    /// In floats of 32 bits and more as [`How::Steps`]; narrower ones, which are computed in `f32`,
    /// as [`How::Once`].
    Wide(f64),
    /// Within this many ulp of 1, or of the result if that is larger. 8-bit floats are too narrow
    /// for a chain of roundings.
    Steps(f64),
}

pub struct Case {
    pub name: &'static str,
    pub how: How,
    pub call: fn(&[Tensor]) -> Vec<Tensor>,
}

impl Case {
    /// The tested method.
    pub fn op(&self) -> &'static str {
        self.name.split('.').next().expect("a name")
    }
}

/// The result of a call, as a list.
pub trait Outputs {
    fn list(self) -> Vec<Tensor>;
}
impl Outputs for Tensor {
    fn list(self) -> Vec<Tensor> {
        vec![self]
    }
}
impl Outputs for Vec<Tensor> {
    fn list(self) -> Vec<Tensor> {
        self
    }
}
impl Outputs for (Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}
impl Outputs for (Tensor, Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

/// `how "name" |x| call;`
macro_rules! cases {
    ($($how:expr, $name:literal, |$x:pat_param| $call:expr;)*) => {
        &[$($crate::cases::Case {
            name: $name,
            how: $how,
            call: |$x: &[picograd::Tensor]| $crate::cases::Outputs::list($call),
        }),*]
    };
}
pub(crate) use cases;

/// The groups; each has its own test.
pub const GROUPS: &[&[Case]] = &[
    crate::elementwise::CASES,
    crate::folds::CASES,
    crate::movement::CASES,
    crate::products::CASES,
    crate::losses::CASES,
    crate::api::CASES,
    crate::systems::CASES,
    crate::pools::CASES,
];
