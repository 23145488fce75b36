//! Renderers: linear program to source text of one language.
//!
//! In: the list of UOps of a lowered kernel, or one built by hand. Out: [`Rendered`], the text of
//! one kernel with a separate prelude, so that several kernels can share one module.
//!
//! A renderer knows a language and no device: no driver or compiler is needed to read its text.
//!
//! ```
//! use picograd::{
//!     dtype::DType,
//!     ir::UOp,
//!     render::{Cuda, Renderer},
//! };
//! let one = UOp::constant(1.0, DType::F32);
//! let two = &one + &one;
//! let kernel = Cuda::new("sm_50").render("example", &[one, two]).unwrap();
//! assert_eq!(
//!     kernel.text(),
//!     "extern \"C\" __global__ void __launch_bounds__(1) example() {\n  float alu0 = \
//!      (1.0f+1.0f);\n}\n"
//! );
//! ```
//!
//! **Invariant:** the text depends on the structure of the program alone, so equal programs give
//! equal text in every process.

mod cstyle;
pub(crate) mod facts;
mod llvm;
mod wgsl;

use crate::error::Result;
use crate::ir::UOp;
use crate::target::Target;
use rustc_hash::FxHashSet;

pub use cstyle::{Clang, Cuda, Metal, OpenCl};
pub use llvm::Llvm;
#[cfg(any(feature = "testing", feature = "webgpu"))]
pub use wgsl::Fma;
pub use wgsl::Wgsl;

/// The source text of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Includes, macros, types and helper functions that the kernel needs, in order. Equal names
    /// mean equal items, so that a module of several kernels contains each item once.
    pub prelude: Vec<String>,
    /// The kernel itself, with the wrapper that calls it if the language has one.
    pub body: String,
    /// The name of the kernel in `body`.
    pub entry: String,
    /// True if a vector is read or written through a pointer of its own type, which needs buffers
    /// that start at a multiple of 16 bytes. [`Renderer::render_unaligned`] is for all others.
    pub assumes_alignment: bool,
    /// Byte offsets of `entry` in `body`, ascending.
    entry_at: Vec<usize>,
}

impl Rendered {
    /// Makes a kernel from the parts of its body between the occurrences of its name.
    fn new(prelude: Vec<String>, entry: &str, parts: &[&str]) -> Rendered {
        let (mut body, mut entry_at) = (String::new(), Vec::new());
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                entry_at.push(body.len());
                body.push_str(entry);
            }
            body.push_str(part);
        }
        Rendered { prelude, body, entry: entry.to_string(), assumes_alignment: false, entry_at }
    }

    /// Makes a custom kernel from its source text.
    pub(crate) fn user(text: String, entry: &str) -> Rendered {
        Rendered::new(Vec::new(), entry, &[&text])
    }

    /// Returns the whole source: prelude and body.
    pub fn text(&self) -> String {
        let mut text = lines(&self.prelude);
        text.push_str(&self.body);
        text
    }

    /// Returns the body under another name.
    pub fn body_named(&self, entry: &str) -> String {
        let (mut body, mut from) = (String::with_capacity(self.body.len() + 64), 0);
        for at in &self.entry_at {
            body.push_str(&self.body[from..*at]);
            body.push_str(entry);
            from = at + self.entry.len();
        }
        body.push_str(&self.body[from..]);
        body
    }
}

/// Returns one module of several kernels, and the name of each in it. Two kernels may have the same
/// name, so that each is prefixed by its number.
pub(crate) fn module<'a>(kernels: impl Iterator<Item = &'a Rendered>) -> (String, Vec<String>) {
    let mut seen: FxHashSet<&str> = FxHashSet::default();
    let (mut prelude, mut bodies, mut entries) = (Vec::new(), String::new(), Vec::new());
    for (i, kernel) in kernels.enumerate() {
        let entry = format!("k{i}_{}", kernel.entry);
        prelude.extend(kernel.prelude.iter().filter(|item| seen.insert(item)));
        bodies.push_str(&kernel.body_named(&entry));
        entries.push(entry);
    }
    (lines(&prelude) + &bodies, entries)
}

fn lines<S: AsRef<str>>(items: &[S]) -> String {
    items.iter().flat_map(|item| [item.as_ref(), "\n"]).collect()
}

/// Turns a linear program into the source text of one language.
pub trait Renderer: Send + Sync {
    /// Returns the capabilities of the language and its usual device, which lowering respects so
    /// that the program can be rendered.
    fn target(&self) -> &Target;

    /// Renders a kernel called `name`. Every operand precedes its user in the list; only a `Const`
    /// may be absent from it.
    ///
    /// An op or dtype that the language lacks is an
    /// [`Error::Compile`](crate::error::Error::Compile) that names the node.
    fn render(&self, name: &str, uops: &[UOp]) -> Result<Rendered>;

    /// Renders a kernel for buffers that start at any element: vectors are read and written lane by
    /// lane. The same as [`render`](Self::render) in languages whose vector accesses need no
    /// alignment.
    fn render_unaligned(&self, name: &str, uops: &[UOp]) -> Result<Rendered> {
        self.render(name, uops)
    }
}
