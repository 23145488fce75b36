//! Source text from linear programs. In comes the list of UOps that lowering made, or one built by
//! hand; out comes the text of one kernel.
//!
//! A renderer knows a language and nothing of devices: no driver or compiler is needed to look at
//! what it writes.
//!
//! ```
//! use picograd::{
//!     dtype::DType,
//!     ir::UOp,
//!     render::{Cuda, Renderer},
//! };
//! let one = UOp::constant(1.0, DType::F32);
//! let two = &one + &one;
//! let text = Cuda::new("sm_50").render("example", &[one, two]).unwrap();
//! assert_eq!(
//!     text,
//!     "extern \"C\" __global__ void __launch_bounds__(1) example() {\n  float alu0 = \
//!      (1.0f+1.0f);\n}\n"
//! );
//! ```
//!
//! **Invariant:** the text depends on the structure of the program alone, so equal programs give
//! equal text in every process.

mod cstyle;
mod facts;
mod llvm;
mod wgsl;

use crate::error::Result;
use crate::ir::UOp;
use crate::target::Target;

pub use cstyle::{Clang, Cuda, Metal, OpenCl};
pub use llvm::Llvm;
pub use wgsl::{Fma, Wgsl};

/// Turns a linear program into the source text of one language.
pub trait Renderer: Send + Sync {
    /// What the language and its usual device can do: what lowering has to respect for the program
    /// to be renderable.
    fn target(&self) -> &Target;

    /// The source of a kernel called `name`. Every operand stands in the list before its user; only
    /// a `Const` may be left out.
    ///
    /// What the language has no words for is an [`Error::Compile`](crate::error::Error::Compile)
    /// that names the node.
    fn render(&self, name: &str, uops: &[UOp]) -> Result<String>;
}
