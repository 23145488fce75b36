//! Custom kernels in the tensor graph. The payload of a `Kernel` node is a [`Custom`], whose body
//! is a kernel (a `Sink` of stores) or source text for one device (a `Source`).

use super::{DeviceName, UOp};
use crate::dtype::DType;
use crate::shape::Dims;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A custom kernel.
#[derive(Clone, PartialEq, Eq)]
pub struct Custom {
    /// The kernel: a `Sink` or a `Source`. Its arguments are the outputs, then the inputs.
    pub ast: UOp,
    /// The dtype and the shape of each output.
    pub outputs: Vec<(DType, Dims)>,
}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // By structure, so that the hash is the same in every process.
        self.ast.key().hash(state);
        self.outputs.hash(state);
    }
}

/// A custom kernel as source text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The device whose language it is, without a number.
    pub device: DeviceName,
    /// The name of the function.
    pub entry: Arc<str>,
    /// The source text.
    pub text: Arc<str>,
    /// The number of workgroups in each dimension; on a CPU the first is that of parallel tasks.
    pub grid: [usize; 3],
    /// The number of threads of a workgroup in each dimension.
    pub local: [usize; 3],
    /// The number of outputs, which are the first arguments.
    pub outputs: usize,
}
