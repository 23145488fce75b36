//! The differences between the languages of the C family: a table of keywords, and hooks for the
//! rest.

use super::prelude::Cx;
use super::value::Operand;
use crate::dtype::{DType, Scalar};
use crate::ir::{Op, SpecialKind, TensorCore};
use crate::target::Target;

pub(super) use crate::render::facts::{is_small, storage};

/// Text, or the reason why there is none. The walker adds the node to the reason and makes an
/// [`Error`](crate::error::Error) of it.
pub(super) type Text = Result<String, String>;

/// The keywords of a language.
pub(super) struct Words {
    /// Types of 8, 16, 32 and 64 bits, signed.
    pub signed: [&'static str; 4],
    /// Types of 8, 16, 32 and 64 bits, unsigned.
    pub unsigned: [&'static str; 4],
    /// The type of a truth value.
    pub boolean: &'static str,
    /// False and true.
    pub truth: [&'static str; 2],
    /// The suffix of a 64-bit literal.
    pub long: &'static str,
    /// Infinity and NaN of `float`.
    pub special32: [&'static str; 2],
    /// Infinity and NaN of `double`; `None` if there is no `double`.
    pub special64: Option<[&'static str; 2]>,
    /// The qualifiers of a helper function.
    pub helper: &'static str,
    /// The address spaces of kernel arguments and of shared memory, as a pointer type starts with
    /// them.
    pub global: &'static str,
    pub shared: &'static str,
    /// The qualifiers of an array in shared memory.
    pub shared_array: &'static str,
    /// The barrier statement of a workgroup; `None` if a workgroup is one thread.
    pub barrier: Option<&'static str>,
    /// True if signed overflow is undefined, so that arithmetic on signed data uses unsigned types.
    pub wrap_by_cast: bool,
}

/// The parts of a kernel.
pub(super) struct KernelText {
    /// The arguments by slot: slot, element dtype, whether it is stored to.
    pub args: Vec<(usize, DType, bool)>,
    /// Extents of the positions in a workgroup, by dimension.
    pub local: [usize; 3],
    /// True if the program reads its thread number.
    pub threaded: bool,
    /// True if it has arrays in scratch memory.
    pub scratch: bool,
    /// True if it uses tensor cores, which take many registers.
    pub tensor_cores: bool,
    /// True if it multiplies floats, so that a compiler could contract a multiplication and an
    /// addition.
    pub multiplies: bool,
    /// True if it has values of 64-bit floats.
    pub doubles: bool,
    pub body: String,
}

/// A kernel's source, before it is named.
pub(super) struct KernelSource {
    /// Lines before the helper items.
    pub prelude: Vec<String>,
    /// The kernel and the wrapper that calls it, split where the kernel's name occurs.
    pub parts: Vec<String>,
}

/// A place in memory: `base+offset`.
pub(super) struct Address<'a> {
    /// The address space of the pointer, as a qualifier before the type.
    pub space: &'static str,
    pub base: &'a str,
    pub offset: &'a str,
    /// True if the offset is proven to be a multiple of the vector's size, given that the buffer is
    /// aligned.
    pub aligned: bool,
}

impl Address<'_> {
    /// Returns the address as an expression.
    pub fn address(&self) -> String {
        format!("({}+{})", self.base, self.offset)
    }
    /// Returns one element, `lane` places further.
    pub fn element(&self, lane: usize) -> String {
        if lane == 0 {
            format!("*({}+{})", self.base, self.offset)
        } else {
            format!("*({}+{}+{lane})", self.base, self.offset)
        }
    }
}

/// An element of a matrix that a tensor core takes.
pub(super) enum Element {
    /// A lane of a vector, which has a name.
    Lane(String, DType, usize),
    /// Any other value.
    Value(String),
}

/// An elementwise op and its operands.
pub(super) struct Alu<'a> {
    pub op: Op,
    pub dtype: DType,
    /// The dtype of the operands; of a `Where`, of those that are chosen from.
    pub from: DType,
    pub args: &'a [Operand],
}

/// One language of the family.
pub(super) trait Dialect: Send + Sync {
    fn target(&self) -> &Target;
    fn words(&self) -> &Words;

    /// Returns the name of the language's vector type; `None` if it has none, and a struct is used.
    fn vector_type(&self, cx: &mut Cx, dtype: DType) -> Option<String>;
    /// Returns a vector of that type from the text of its lanes.
    fn build(&self, cx: &mut Cx, dtype: DType, lanes: &[String]) -> String;
    /// Returns one lane of a named vector of that type.
    fn lane(&self, dtype: DType, vector: &str, lane: usize) -> String;

    /// Returns lanes of two named vectors of one dtype, counted through both; `None` if they are
    /// picked one by one.
    fn shuffle_lanes(&self, _: &mut Cx, _: DType, _: &[String; 2], _: &[u16]) -> Option<String> {
        None
    }

    /// Returns true if buffers start at multiples of 16 bytes, so that an aligned vector is
    /// accessed through a pointer of its own type.
    fn is_aligned(&self) -> bool {
        false
    }
    /// Returns the dialect for buffers that start at any element; `None` if it is the same.
    fn unaligned_variant(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
    /// Reads a whole vector of a native type; `None` if it is read lane by lane.
    fn load(&self, cx: &mut Cx, place: &Address, dtype: DType) -> Option<String> {
        let ty = self.vector_type(cx, dtype).filter(|_| self.is_aligned())?;
        is_vector_access(cx, place, dtype)
            .then(|| format!("*(({}{ty}*)({}))", place.space, place.address()))
    }
    /// Returns the statement that writes a whole vector; `None` if it is written lane by lane.
    fn store(&self, cx: &mut Cx, place: &Address, dtype: DType, value: &str) -> Option<String> {
        let ty = self.vector_type(cx, dtype).filter(|_| self.is_aligned())?;
        is_vector_access(cx, place, dtype)
            .then(|| format!("*(({}{ty}*)({})) = {value};", place.space, place.address()))
    }
    /// Reads the lanes of a vector whose masks are true, and takes the others from a vector; `None`
    /// if the language has no masks of lanes.
    fn load_lanes(
        &self,
        _: &mut Cx,
        _place: &Address,
        _: DType,
        _masks: &str,
        _alt: &str,
    ) -> Option<String> {
        None
    }
    /// Returns the statement that writes the lanes of a vector whose masks are true; `None` if the
    /// language has no masks of lanes.
    fn store_lanes(
        &self,
        _: &mut Cx,
        _place: &Address,
        _: DType,
        _masks: &str,
        _value: &str,
    ) -> Option<String> {
        None
    }
    /// Returns a short form of an op on native vectors; `None` if it is computed lane by lane.
    fn vector_alu(&self, cx: &mut Cx, alu: &Alu) -> Option<Result<Operand, String>>;
    /// Returns true if lane-by-lane ops are put into helper functions; otherwise they are written
    /// in place.
    fn lanes_in_helpers(&self) -> bool {
        false
    }

    /// Reinterprets the bits of a scalar as another type of the same width, one of the two being
    /// `float` or `double`.
    fn reinterpret(&self, cx: &mut Cx, value: &str, from: Scalar, to: Scalar) -> String;
    /// Returns the registers of a thread's part of a tensor-core operand; `None` if the language
    /// has no tensor cores.
    fn fragment(&self, _: &mut Cx, _: Scalar, _: &[Element]) -> Option<Vec<String>> {
        None
    }
    /// Returns the product by a tensor core: the registers of A and of B, and the value of C.
    fn wmma(&self, _: &mut Cx, _: &TensorCore, _: [&[String]; 2], _: &str) -> Option<String> {
        None
    }
    /// Returns the value of the thread of the workgroup whose number differs in these bits; `None`
    /// if the language has no shuffle.
    fn shuffle(&self, _value: &str, _bits: usize, _threads: usize) -> Option<String> {
        None
    }
    /// Returns one of two scalars.
    fn select(&self, _: &mut Cx, _: Scalar, condition: &str, [x, y]: [&str; 2]) -> String {
        format!("({condition}?{x}:{y})")
    }
    /// Returns the bodies of `f16_to_f32(x)` and `f32_to_f16(x)`, if the language has a shorter
    /// form than integer arithmetic.
    fn half(&self) -> [Option<&'static str>; 2] {
        [None, None]
    }
    /// Returns the function for a fma, a square root, a truncation, or an op that the target has
    /// natively.
    fn function(&self, cx: &mut Cx, op: Op, scalar: Scalar) -> Option<String>;
    /// Returns the expression for a position in the launch grid. `extents` are those of all
    /// dimensions of the kind.
    fn position(&self, kind: SpecialKind, dim: usize, extents: &[usize]) -> Option<String>;
    /// Returns the declaration of an array in shared memory. `at` is its offset in bytes where the
    /// arrays are parts of one block.
    fn shared_array(&self, element: &str, name: &str, len: usize, _at: usize) -> String {
        format!("{}{element} {name}[{len}];", self.words().shared_array)
    }
    /// Returns the struct that replaces a vector, from the text of its lanes.
    fn build_struct(&self, name: &str, lanes: &str) -> String {
        format!("({name}){{{{{lanes}}}}}")
    }
    /// Returns the source of a kernel that needs these helper items.
    fn kernel(&self, items: &[String], kernel: &KernelText) -> KernelSource;
}

/// Returns the position of a width in the tables of types.
pub(super) fn width_index(bits: u32) -> usize {
    bits.trailing_zeros() as usize - 3
}

/// The letters of the four lanes that short vectors have names for.
pub(super) const XYZW: [&str; 4] = ["x", "y", "z", "w"];

/// Returns true if the access is made through a pointer to a vector, which the prelude then
/// records. Bools are excluded because any byte other than 0 counts as true; vectors of three
/// because their size in memory differs by language.
fn is_vector_access(cx: &mut Cx, place: &Address, dtype: DType) -> bool {
    let whole = place.aligned
        && !dtype.is_bool()
        && dtype.lanes.is_power_of_two()
        && dtype.itemsize() <= 16;
    cx.aligned |= whole;
    whole
}
