//! The payloads of nodes. Each meaning has a variant of [`Arg`] with named fields; the text form,
//! the parser and the payloads of random graphs are derived from the table.
//!
//! In text a payload is `{name=value …}` with the fields in the order of the table.

use super::parse::{Line, Parsed, show};
use super::print::{Bare, Quoted};
use super::{
    AxisKind, Combine, Custom, DeviceName, Fold, Gradient, LoadHint, Loop, Op, Slice, Source,
    SpecialKind, StorageRef, TensorCore,
};
use crate::dtype::Const;
use crate::shape::{Movement, SymInt};
use smallvec::SmallVec;
use std::fmt::{self, Display};
use std::sync::Arc;

/// Declares the payloads. A row is `Variant { field: Type, … } [Op …];` or `Variant(name: Type)
/// [Op …];`, with the ops that carry it. The order of the variants is part of the structural keys
/// of nodes.
macro_rules! payloads {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident
        $({ $($(#[doc = $field_doc:literal])* $field:ident: $type:ty),* })?
        $(($key:ident: $value:ty))?
        [$($op:ident)*];
    )*) => {
        /// The payload of a node.
        #[derive(Clone, PartialEq, Eq, Hash, Default)]
        pub enum Arg {
            /// Nothing besides the operands.
            #[default]
            None,
            $(
                $(#[doc = $doc])*
                $variant $({ $($(#[doc = $field_doc])* $field: $type),* })? $(($value))?,
            )*
        }

        impl Arg {
            /// Returns the ops that carry a payload of this variant; none for [`Arg::None`].
            pub(crate) fn ops(&self) -> &'static [Op] {
                match self {
                    Arg::None => &[],
                    $(Arg::$variant { .. } => &[$(Op::$op),*],)*
                }
            }

            /// Returns the fields as text; absent ones have none.
            fn fields(&self) -> Vec<Option<String>> {
                match self {
                    Arg::None => vec![],
                    $(Arg::$variant $({ $($field),* })? $(($key))? => vec![
                        $($($field.text(stringify!($field)),)*)? $($key.text(stringify!($key)))?
                    ],)*
                }
            }

            /// Parses the payload of an op.
            pub(super) fn read(op: Op, line: &mut Line<'_>) -> Parsed<Arg> {
                $(if [$(Op::$op),*].contains(&op) {
                    return Ok(Arg::$variant
                        $({ $($field: Field::read(line, stringify!($field))?),* })?
                        $((<$value>::read(line, stringify!($key))?))?);
                })*
                Ok(Arg::None)
            }

            /// Returns a random payload of an op, which may not fit its operands.
            #[cfg(test)]
            pub(super) fn random(op: Op, rng: &mut super::tests::random::Rng) -> Arg {
                use super::tests::random::Random;
                $(if [$(Op::$op),*].contains(&op) {
                    return Arg::$variant
                        $({ $($field: Random::random(rng)),* })? $((<$value>::random(rng)))?;
                })*
                Arg::None
            }
        }
    };
}

payloads! {
    /// The value of a literal.
    Const(r#const: Const) [Const];
    /// The storage of a buffer.
    Storage(buffer: StorageRef) [Buffer];
    /// An input of an abstracted graph.
    Param {
        /// The position among the inputs.
        slot: usize,
        /// The number of elements.
        len: usize,
        /// The device of the input.
        device: DeviceName
    } [Param];
    /// A named integer between `min` and `max`, both included.
    Var {
        /// The name.
        name: Arc<str>,
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64
    } [Var];
    /// A [`Var`](Arg::Var) with the value of this run. Graphs that are planned for all values do
    /// not have it.
    BoundVar {
        /// The name.
        name: Arc<str>,
        /// The smallest value.
        min: i64,
        /// The largest value.
        max: i64,
        /// The value.
        value: i64
    } [Var];
    /// The interval of a `Slice`.
    Slice(slice: Box<Slice>) [Slice];
    /// The length of an `Iota`.
    Iota {
        /// The number of elements.
        len: usize
    } [Iota];
    /// The change of indices of a movement op. It is boxed because it is large, and the nodes of a
    /// kernel have none.
    Movement(movement: Box<Movement>) [Reshape Expand Permute Pad Shrink Flip];
    /// A reduction or a scan. In the tensor graph it is over `axes`; in a kernel the ranges are
    /// operands and `axes` is empty.
    Reduce {
        /// The operation that combines two values.
        fold: Fold,
        /// The axes, ascending.
        axes: SmallVec<[usize; 2]>
    } [Reduce Scan];
    /// The axis of a `Cat`.
    Cat {
        /// The axis along which the operands are concatenated.
        axis: usize
    } [Cat];
    /// The axis of a `Gather`.
    Gather {
        /// The axis that is indexed.
        axis: usize
    } [Gather];
    /// The axis and the operation of a `Scatter`.
    Scatter {
        /// The operation that combines an element with a value.
        combine: Combine,
        /// The axis that is indexed.
        axis: usize
    } [Scatter];
    /// The id of a `Leaf`, unique for the life of the process.
    Leaf(leaf: u64) [Leaf];
    /// The gradient of a `Call`.
    Gradient(gradient: Gradient) [Call];
    /// The target of a `Copy`, or the device on which a `Contiguous` is stored.
    Device(device: DeviceName) [Copy Contiguous];
    /// The devices of the operands of a `Shards`.
    Shards {
        /// The devices, one for each operand.
        devices: DeviceName,
        /// The axis that the value is sharded along; without one it is replicated.
        axis: Option<usize>
    } [Shards];
    /// The custom kernel of a `Kernel`.
    Kernel(kernel: Arc<Custom>) [Kernel];
    /// The body of a `Loop`, and how often it runs.
    Loop(body: Arc<Loop>) [Loop];
    /// The index of an `Output` among those of its kernel or loop.
    Output(output: usize) [Output];
    /// The text of a `Source`.
    Source(source: Arc<Source>) [Source];
    /// A kernel argument.
    Global {
        /// The position among the kernel's arguments.
        slot: usize,
        /// The number of elements of the buffer.
        len: usize
    } [DefineGlobal];
    /// Shared memory.
    Shared {
        /// The id, unique in the kernel.
        id: u32,
        /// The number of elements.
        len: usize
    } [DefineShared];
    /// The id of an accumulator.
    Acc(acc: u32) [DefineAcc];
    /// The optimizer's decisions for a `Load`. A linear program has none.
    LoadHint(hint: LoadHint) [Load];
    /// A loop axis.
    Range {
        /// The id, unique in the kernel.
        id: u32,
        /// The kind.
        kind: AxisKind,
        /// True if the axis, of kind Upcast or Unroll, becomes vector lanes.
        lanes: bool
    } [Range];
    /// A coordinate of the launch grid.
    Special {
        /// The grid.
        kind: SpecialKind,
        /// The dimension of the grid.
        dim: u8,
        /// The size of the dimension.
        extent: usize
    } [Special];
    /// The lanes that a `Gep` selects.
    Lanes(lanes: SmallVec<[u16; 4]>) [Gep];
    /// The tensor core of a `Wmma`.
    Wmma {
        /// The tensor core.
        core: &'static TensorCore,
        /// The ids of the two ranges that make up the index of a thread in its warp.
        lanes: [u32; 2]
    } [Wmma];
    /// The XOR mask of a `Shuffle`: the thread reads from the one whose lane index differs in it.
    Shuffle(xor: usize) [Shuffle];
    /// The ids of the ranges of workgroup threads, in the order of the launch. Threads along the
    /// last one are adjacent.
    ThreadOrder(threads: SmallVec<[u32; 4]>) [Sink];
    /// The scheduler's decision for a `Store`.
    StoreHint {
        /// True if the element is not read again soon, so that the store need not keep it in a
        /// cache. In a linear program: the store bypasses the caches, in whole cache lines of a
        /// buffer that starts at one; a kernel whose buffers do not has an ordinary store instead.
        nontemporal: bool
    } [Store];
}

impl Arg {
    /// Returns the movement, for movement ops.
    pub fn movement(&self) -> Option<&Movement> {
        match self {
            Arg::Movement(m) => Some(m),
            _ => None,
        }
    }
    /// Returns the storage, for buffers.
    pub fn storage(&self) -> Option<&StorageRef> {
        match self {
            Arg::Storage(s) => Some(s),
            _ => None,
        }
    }
}

/// The payload in braces, as in text IR.
impl fmt::Debug for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self.fields().into_iter().flatten().collect();
        write!(f, "{{{}}}", fields.join(" "))
    }
}

/// The type of a field of a payload.
pub(super) trait Field: Sized {
    /// Returns the field as text; none if it is absent.
    fn text(&self, name: &str) -> Option<String>;
    /// Parses the field. Fields of a running process cannot be parsed.
    fn read(_: &mut Line<'_>, name: &str) -> Parsed<Self> {
        Err(format!("{name} cannot come from text"))
    }
}

/// Fields of the form `name=value`: the type, the value as text, the parser of the value.
macro_rules! fields {
    ($($type:ty: |$x:ident| $text:expr, $read:expr;)*) => { $(
        impl Field for $type {
            fn text(&self, name: &str) -> Option<String> {
                let $x = self;
                Some(format!("{name}={}", $text))
            }
            fn read(line: &mut Line<'_>, name: &str) -> Parsed<$type> {
                line.field(name)?;
                $read(line).map_err(|e: String| format!("{name}: {e}"))
            }
        }
    )* };
}

fields! {
    usize: |x| x, Line::number;
    u8: |x| x, Line::number;
    u32: |x| x, Line::number;
    u64: |x| x, Line::number;
    i64: |x| x, Line::number;
    Arc<str>: |x| Quoted(x), |line: &mut Line<'_>| Ok(line.name()?.into());
    DeviceName: |x| Bare(x.as_str()), |line: &mut Line<'_>| Ok(DeviceName::new(&line.name()?));
    Fold: |x| format_args!("{x:?}"), |line: &mut Line<'_>| line.one_of(&Fold::ALL);
    Combine: |x| format_args!("{x:?}"), |line: &mut Line<'_>| line.one_of(&Combine::ALL);
    AxisKind: |x| format_args!("{x:?}"), |line: &mut Line<'_>| line.one_of(&AxisKind::ALL);
    SpecialKind: |x| format_args!("{x:?}"), |line: &mut Line<'_>| line.one_of(&SpecialKind::ALL);
    Gradient: |x| x.id(), |line: &mut Line<'_>| line.number().map(Gradient::unknown);
    SymInt: |x| Quoted(&x.text()), |line: &mut Line<'_>| {
        let text = line.name()?;
        let sum = SymInt::from_text(&text);
        sum.ok_or_else(|| format!("{} is no sum such as 2*n[1..64] + 1", show(&text)))
    };
    &'static TensorCore: |x| x.name, |line: &mut Line<'_>| {
        let name = line.name()?;
        let core = TensorCore::from_name(&name);
        core.ok_or_else(|| format!("there is no tensor core {}", show(&name)))
    };
    [u32; 2]: |x| list(x), |line: &mut Line<'_>| {
        let numbers: Vec<u32> = line.list(Line::number)?;
        let count = numbers.len();
        numbers.try_into().map_err(|_| format!("{count} ranges, not two"))
    };
}

/// A flag is its name alone.
impl Field for bool {
    fn text(&self, name: &str) -> Option<String> {
        self.then(|| name.into())
    }
    fn read(line: &mut Line<'_>, name: &str) -> Parsed<bool> {
        let given = line.starts(name);
        if given {
            line.keyword(name)?;
        }
        Ok(given)
    }
}

impl<T: Field> Field for Option<T> {
    fn text(&self, name: &str) -> Option<String> {
        self.as_ref().and_then(|x| x.text(name))
    }
    fn read(line: &mut Line<'_>, name: &str) -> Parsed<Option<T>> {
        line.starts(name).then(|| T::read(line, name)).transpose()
    }
}

impl Field for SmallVec<[usize; 2]> {
    fn text(&self, name: &str) -> Option<String> {
        (!self.is_empty()).then(|| format!("{name}={}", list(self)))
    }
    fn read(line: &mut Line<'_>, name: &str) -> Parsed<Self> {
        if !line.starts(name) {
            return Ok(Self::new());
        }
        line.field(name)?;
        line.axes(Line::number)
    }
}

/// Lane indices or range ids: the name, then the list.
macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl Field for SmallVec<[$number; 4]> {
            fn text(&self, name: &str) -> Option<String> {
                Some(format!("{name} {}", list(self)))
            }
            fn read(line: &mut Line<'_>, name: &str) -> Parsed<Self> {
                line.keyword(name)?;
                line.list(Line::number)
            }
        }
    )* };
}

numbers!(u16 u32);

impl Field for Box<Movement> {
    fn text(&self, _: &str) -> Option<String> {
        let pair = |(a, b): &(usize, usize)| format!("({a},{b})");
        let list = match &**self {
            Movement::Reshape(d) | Movement::Expand(d) | Movement::Permute(d) => list(d),
            Movement::Pad(p) | Movement::Shrink(p) => list(p.iter().map(pair)),
            Movement::Flip(flags) => list(flags),
        };
        Some(format!("{} {list}", self.name()))
    }
    fn read(line: &mut Line<'_>, _: &str) -> Parsed<Self> {
        Ok(Box::new(match line.word("a movement")? {
            "reshape" => Movement::Reshape(line.axes(Line::number)?),
            "expand" => Movement::Expand(line.axes(Line::number)?),
            "permute" => Movement::Permute(line.axes(Line::number)?),
            "pad" => Movement::Pad(line.axes(Line::pair)?),
            "shrink" => Movement::Shrink(line.axes(Line::pair)?),
            "flip" => Movement::Flip(line.axes(Line::flag)?),
            word => return Err(format!("expected a movement, not {}", show(word))),
        }))
    }
}

impl Field for Box<Slice> {
    fn text(&self, _: &str) -> Option<String> {
        let (start, len) = (Field::text(&self.start, "start"), Field::text(&self.len, "len"));
        joined([self.axis.text("axis"), start, len])
    }
    fn read(line: &mut Line<'_>, _: &str) -> Parsed<Self> {
        let axis = Field::read(line, "axis")?;
        let (start, len) = (Field::read(line, "start")?, Field::read(line, "len")?);
        Ok(Box::new(Slice { axis, start, len }))
    }
}

impl Field for LoadHint {
    fn text(&self, _: &str) -> Option<String> {
        joined([self.stage_at.text("stage_at"), self.prefetch_in.text("prefetch_in")])
    }
    fn read(line: &mut Line<'_>, _: &str) -> Parsed<Self> {
        let stage_at = Field::read(line, "stage_at")?;
        Ok(LoadHint { stage_at, prefetch_in: Field::read(line, "prefetch_in")? })
    }
}

/// Fields of a running process, which are printed for messages.
macro_rules! printed {
    ($($type:ty: |$x:ident| $text:expr;)*) => { $(
        impl Field for $type {
            fn text(&self, _: &str) -> Option<String> {
                let $x = self;
                Some($text)
            }
        }
    )* };
}

printed! {
    Const: |c| format!("const={c}");
    StorageRef: |s| {
        let (storage, device) = (&s.storage, Bare(s.storage.device().as_str()));
        format!("buffer id={} len={} device={device}", storage.id(), storage.len())
    };
    Arc<Custom>: |k| {
        let output = |o: &(crate::dtype::DType, crate::shape::Dims)| {
            format!("{}{:?}", o.0, o.1).replace(", ", "x")
        };
        format!("kernel={:016x} outputs={}", k.ast.key(), list(k.outputs.iter().map(output)))
    };
    Arc<Loop>: |l| {
        let Loop { body, count, reverse, carries, elements } = &**l;
        let body = body.key();
        format!(
            "body={body:016x} count={count} reverse={reverse} carries={carries} elements={elements}"
        )
    };
    Arc<Source>: |s| {
        let (device, entry) = (Bare(s.device.as_str()), Bare(&s.entry));
        format!("device={device} entry={entry} text={}", Quoted(&s.text))
    };
}

/// The fields that are present, separated by spaces; none if all are absent.
fn joined<const N: usize>(fields: [Option<String>; N]) -> Option<String> {
    let given: Vec<String> = fields.into_iter().flatten().collect();
    (!given.is_empty()).then(|| given.join(" "))
}

/// Items in brackets, separated by commas.
fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|x| x.to_string()).collect();
    format!("[{}]", items.join(","))
}
