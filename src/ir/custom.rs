//! Custom kernels in the tensor graph. A `Kernel` node carries a [`Custom`], whose body is a kernel
//! of nodes (a `Sink` of stores) or source text for one device (a `Source`).

use super::{DeviceName, UOp};
use crate::dtype::DType;
use crate::shape::Dims;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A kernel that the user wrote.
#[derive(Clone, PartialEq, Eq)]
pub struct Custom {
    /// The kernel: a `Sink` or a `Source`. Its arguments are the outputs, then the inputs.
    pub ast: UOp,
    /// The dtype and the shape of each output.
    pub outputs: Vec<(DType, Dims)>,
}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // By structure, so that it is the same in every process.
        self.ast.key().hash(state);
        self.outputs.hash(state);
    }
}

/// A kernel as text in the language of a device.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The device that takes the language, without a number.
    pub device: DeviceName,
    /// The function to call.
    pub entry: Arc<str>,
    /// The text.
    pub text: Arc<str>,
    /// Workgroups in each dimension; on a CPU the first is the number of parallel tasks.
    pub grid: [usize; 3],
    /// Threads of a workgroup in each dimension.
    pub local: [usize; 3],
    /// The number of outputs, which are the first arguments.
    pub outputs: usize,
}
