//! Radix sort for devices whose kernels run rows sequentially: the indices of rows of 32-bit words
//! in ascending order. The sort is stable.
//!
//! The sort proceeds from the least significant digit. One kernel counts the values of all digits;
//! then each digit has a kernel that writes every element at the next free index of its digit
//! value:
//!
//! ```text
//! count:  for t in 0..B: counts[t] = 0
//!         for u in 0..n: counts[digit(u)] += 1
//! move:   for t in 0..B: next[t] = next[t-1] + counts[t-1]
//!         for u in 0..n: out[next[digit(u)]++] = element(u)
//! ```
//!
//! Both loops of a kernel are one `Ordered` range of `B + n` iterations, because a kernel has one
//! loop nest: the first `B` fill the table. Elements hold the word in the upper half of 64 bits and
//! the index in the lower one.

use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{AxisKind, Custom, Op, Src, UOp};
use crate::tensor::Tensor;
use crate::tensor::custom::{apply_library_kernel, library_kernel};
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Maximum bits of a digit, for rows from [`LONG`] elements on and for shorter ones. A table of
/// 2,048 counts stays in the L1 cache, and 32 bits take three passes instead of four; a short row
/// would spend more time on filling it than on its elements.
const DIGIT: [usize; 2] = [11, 8];
const LONG: usize = 1024;

/// Number of digits of a word, and bits of each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Digits {
    count: usize,
    bits: usize,
}

impl Digits {
    fn new(n: usize, bits: usize) -> Digits {
        let count = bits.div_ceil(DIGIT[(n < LONG) as usize]).max(1);
        Digits { count, bits: bits.div_ceil(count).max(1) }
    }
    /// Returns the number of values of a digit.
    fn values(&self) -> usize {
        1 << self.bits
    }
}

/// Task of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Task {
    /// Counts the values of each digit in a row: a table per digit.
    Count,
    /// Moves elements into the order of this digit. The last pass writes indices only.
    Move(Elements, usize),
}

/// Elements that a pass moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Elements {
    /// Words with their own indices.
    Words,
    /// Words with indices from another tensor.
    WordsAndIndices,
    /// Words and indices of the previous pass.
    Packed,
}

/// Key of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RadixKernel {
    rows: usize,
    n: usize,
    digits: Digits,
    task: Task,
}

/// Built kernels, because building one takes longer than running it on a short row.
static BUILT: LazyLock<Mutex<FxHashMap<RadixKernel, Arc<Custom>>>> = LazyLock::new(Mutex::default);

/// Maximum number of cached kernels.
const MAX_BUILT: usize = 512;

/// Loops of a kernel over rows of `n` elements.
struct Loops {
    ranges: Vec<UOp>,
    /// Row; zero if there is one.
    row: UOp,
    /// Iteration: first those that fill the table of a row, then one per element.
    step: UOp,
    n: i64,
    values: i64,
}

impl Loops {
    fn new(rows: usize, n: usize, values: usize) -> Loops {
        let values = values as i64;
        let step = UOp::range(values + n as i64, 1, AxisKind::Ordered);
        let row = UOp::range(rows as i64, 0, AxisKind::Global);
        let (row, ranges) = if rows == 1 {
            (UOp::int(0), vec![step.clone()])
        } else {
            (row.clone(), vec![row, step.clone()])
        };
        Loops { ranges, row, step, n: n as i64, values }
    }
    /// Returns true in the iterations that fill the table.
    fn filling(&self) -> UOp {
        self.step.lt(self.values)
    }
    /// Returns the index of the element in its row; 0 while the table is filled.
    fn element(&self) -> UOp {
        (&self.step - self.values).binary(Op::Max, 0i64)
    }
    /// Entry that is filled; the last one afterwards.
    fn entry(&self) -> UOp {
        self.step.binary(Op::Min, self.values - 1)
    }
    fn in_row(&self, buffer: &UOp, index: &UOp) -> UOp {
        buffer.at(&self.row * self.n + index)
    }
    fn in_table(&self, table: &UOp, entry: &UOp) -> UOp {
        table.at(&self.row * self.values + entry)
    }
    /// Digit of a word, as an entry of a table.
    fn digit(&self, word: &UOp, shift: usize) -> UOp {
        word.binary(Op::Shr, shift as i64).binary(Op::And, self.values - 1).cast(DType::INDEX)
    }
    fn sink(&self, stores: impl IntoIterator<Item = (UOp, UOp)>) -> UOp {
        let stores = stores.into_iter().map(|(place, value)| place.store(value, &self.ranges));
        UOp::sink(stores.collect::<Src>())
    }
}

impl RadixKernel {
    /// Cached or newly built kernel.
    fn get(self) -> Arc<Custom> {
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = built.get(&self) {
            return kernel.clone();
        }
        let kernel = match self.task {
            Task::Count => self.count(),
            Task::Move(elements, digit) => self.move_elements(elements, digit),
        };
        if built.len() >= MAX_BUILT {
            built.clear();
        }
        built.insert(self, kernel.clone());
        kernel
    }

    fn count(&self) -> Arc<Custom> {
        let RadixKernel { rows, n, digits, .. } = *self;
        let loops = Loops::new(rows, n, digits.values());
        let shape = [rows, digits.values()];
        library_kernel(
            &[(DType::U32, rows * n)],
            &vec![(&shape[..], DType::I32); digits.count],
            |tables, words| {
                let word = loops.in_row(&words[0], &loops.element()).load();
                let count = |(i, table): (usize, &UOp)| {
                    let digit = loops.digit(&word, i * digits.bits);
                    let place =
                        loops.in_table(table, &loops.filling().select(loops.entry(), &digit));
                    let next = place.load() + 1;
                    (place, loops.filling().select(0i64, &next))
                };
                loops.sink(tables.iter().enumerate().map(count))
            },
        )
    }

    fn move_elements(&self, elements: Elements, number: usize) -> Arc<Custom> {
        let RadixKernel { rows, n, digits, .. } = *self;
        let last = number + 1 == digits.count;
        let loops = Loops::new(rows, n, digits.values());
        let (len, table) = (rows * n, (DType::I32, rows * digits.values()));
        let inputs = match elements {
            Elements::Words => vec![(DType::U32, len), table],
            Elements::WordsAndIndices => vec![(DType::U32, len), (DType::I32, len), table],
            Elements::Packed => vec![(DType::U64, len), table],
        };
        let outputs = [
            (&[rows, n][..], if last { DType::I32 } else { DType::U64 }),
            (&[rows, digits.values()][..], DType::I32),
        ];
        library_kernel(&inputs, &outputs, |outputs, inputs| {
            let at = loops.element();
            let first = loops.in_row(&inputs[0], &at).load();
            let (word, index) = match elements {
                Elements::Words => (first.clone(), at.cast(DType::I32)),
                Elements::WordsAndIndices => (first.clone(), loops.in_row(&inputs[1], &at).load()),
                Elements::Packed => (
                    first.binary(Op::Shr, 32i64).cast(DType::U32),
                    first.cast(DType::U32).bitcast(DType::I32),
                ),
            };
            let element = match elements {
                _ if last => index,
                Elements::Packed => first,
                _ => word
                    .cast(DType::U64)
                    .binary(Op::Shl, 32i64)
                    .binary(Op::Or, index.bitcast(DType::U32).cast(DType::U64)),
            };
            let digit = loops.digit(&word, number * digits.bits);
            loops.move_element(outputs, &inputs[inputs.len() - 1], &element, &digit)
        })
    }
}

impl Loops {
    /// Stores an element at the next free index of its digit, and the index after that.
    fn move_element(&self, outputs: &[UOp], counts: &UOp, element: &UOp, digit: &UOp) -> UOp {
        let filling = self.filling();
        // Entry before the one that is filled; the first iteration discards it.
        let before = (self.entry() - 1).binary(Op::Max, 0i64);
        let next = self.in_table(&outputs[1], &filling.select(&before, digit)).load();
        let counted = self.in_table(counts, &before).load();
        let start = self.step.equals(0i64).select(0i64, &(&next + counted));
        let entry = self.in_table(&outputs[1], &filling.select(self.entry(), digit));
        // An index outside the row would mean wrong counts; the mask proves that nothing is written
        // there.
        let inside = filling.not().and(next.ge(0i64)).and(next.lt(self.n));
        let place = next.cast(DType::INDEX).binary(Op::Max, 0i64).binary(Op::Min, self.n - 1);
        let place = &self.row * self.n + place;
        let place = UOp::masked_index(&outputs[0], place, Some(inside));
        self.sink([(place, element.clone()), (entry, filling.select(&start, &(&next + 1)))])
    }
}

/// Returns the indices of rows of words (`u32`) in ascending order. The upper bits beyond `bits`
/// are zero. With an `order` the words are those of the elements at these indices.
pub(in crate::tensor) fn sort(
    words: &Tensor,
    bits: usize,
    order: Option<&Tensor>,
) -> Result<Tensor> {
    let (rows, n) = (words.dims()[0], words.dims()[1]);
    let digits = Digits::new(n, bits);
    let kernel = |task: Task| RadixKernel { rows, n, digits, task }.get();
    let counts = apply_library_kernel(&kernel(Task::Count), &[words])?;
    let (kind, mut inputs) = match order {
        None => (Elements::Words, vec![words]),
        Some(order) => (Elements::WordsAndIndices, vec![words, order]),
    };
    inputs.push(&counts[0]);
    let apply = |task: Task, inputs: &[&Tensor]| -> Result<Tensor> {
        Ok(apply_library_kernel(&kernel(task), inputs)?.swap_remove(0))
    };
    let mut elements = apply(Task::Move(kind, 0), &inputs)?;
    for (i, counts) in counts.iter().enumerate().skip(1) {
        elements = apply(Task::Move(Elements::Packed, i), &[&elements, counts])?;
    }
    Ok(elements)
}
