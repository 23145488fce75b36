//! Radix sort, for devices whose kernels run rows one element after the other. In come rows of words of
//! 32 bits; out come the indices of the words in ascending order, equal ones in the order in which they
//! came.
//!
//! The sort goes from the least significant digit to the most significant one. One kernel counts the
//! values of all digits; then each digit has a kernel that writes every element at the next free index
//! of its digit value:
//!
//! ```text
//! count:    for t in 0..B: counts[t] = 0           move:  for t in 0..B: next[t] = next[t-1] + counts[t-1]
//!           for u in 0..n: counts[digit(u)] += 1          for u in 0..n: out[next[digit(u)]++] = element(u)
//! ```
//!
//! Both loops of a kernel are one `Ordered` range of `B + n` steps, because a kernel has one loop nest:
//! the first `B` steps fill the table. Elements carry the word in the upper half of 64 bits and the
//! index in the lower one.

use super::Tensor;
use super::custom::kernel_outputs;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Arg, AxisKind, Op, Src, ToSrc, UOp};

/// Bits of a digit at most, for rows from [`LONG`] elements on and for shorter ones. A table of 2,048
/// counts stays in the first-level cache, and 32 bits take three passes instead of four; a short row
/// would spend more time on filling it than on its elements.
const DIGIT: [usize; 2] = [11, 8];
const LONG: usize = 1024;

/// Digits of a word: how many, the bits of each, and the values of one.
struct Digits {
    count: usize,
    bits: usize,
}

impl Digits {
    fn new(n: usize, bits: usize) -> Digits {
        let count = bits.div_ceil(DIGIT[(n < LONG) as usize]).max(1);
        Digits { count, bits: bits.div_ceil(count).max(1) }
    }
    fn values(&self) -> i64 {
        1 << self.bits
    }
}

/// The loops of a kernel over rows of `n` elements, and what they stand at.
struct Loops {
    ranges: Vec<UOp>,
    /// The row; zero if there is one.
    row: UOp,
    /// The step: first those that fill the table of a row, then one for each element.
    step: UOp,
    n: i64,
    values: i64,
}

impl Loops {
    fn new(rows: usize, n: usize, values: i64) -> Loops {
        let step = UOp::range(values + n as i64, 1, AxisKind::Ordered);
        let row = UOp::range(rows as i64, 0, AxisKind::Global);
        let (row, ranges) = if rows == 1 { (UOp::int(0), vec![step.clone()]) } else { (row.clone(), vec![row, step.clone()]) };
        Loops { ranges, row, step, n: n as i64, values }
    }
    /// Holds in the steps that fill the table.
    fn filling(&self) -> UOp {
        self.step.lt(self.values)
    }
    /// The number of the element in its row; 0 while the table is filled.
    fn element(&self) -> UOp {
        (&self.step - self.values).binary(Op::Max, 0i64)
    }
    /// The entry that is filled; the last one afterwards.
    fn entry(&self) -> UOp {
        self.step.binary(Op::Min, self.values - 1)
    }
    fn in_row(&self, buffer: &UOp, index: &UOp) -> UOp {
        buffer.at(&self.row * self.n + index)
    }
    fn in_table(&self, table: &UOp, entry: &UOp) -> UOp {
        table.at(&self.row * self.values + entry)
    }
    /// The digit of a word, as an entry of a table.
    fn digit(&self, word: &UOp, shift: usize) -> UOp {
        word.binary(Op::Shr, shift as i64).binary(Op::And, self.values - 1).cast(DType::INDEX)
    }
    fn sink(&self, stores: impl IntoIterator<Item = (UOp, UOp)>) -> UOp {
        UOp::sink(stores.into_iter().map(|(place, value)| place.store(value, &self.ranges)).collect::<Src>())
    }
}

/// How often each value of each digit occurs in a row: a table for each digit.
fn counts(words: &Tensor, digits: &Digits) -> Result<Vec<Tensor>> {
    let (rows, n) = (words.dims()[0], words.dims()[1]);
    let loops = Loops::new(rows, n, digits.values());
    let shape = [rows, digits.values() as usize];
    kernel_outputs(&[words], &vec![(&shape[..], DType::I32); digits.count], |tables, words| {
        let word = loops.in_row(&words[0], &loops.element()).load();
        let count = |(i, table): (usize, &UOp)| {
            let digit = loops.digit(&word, i * digits.bits);
            let place = loops.in_table(table, &loops.filling().select(loops.entry(), &digit));
            let next = place.load() + 1;
            (place, loops.filling().select(0i64, &next))
        };
        loops.sink(tables.iter().enumerate().map(count))
    })
}

/// What a pass moves.
enum Elements<'a> {
    /// Words, with their own indices or with given ones.
    Words(&'a Tensor, Option<&'a Tensor>),
    /// Words with indices, as the pass before has left them.
    Packed(&'a Tensor),
}

/// Moves elements into the order of a digit. The last pass leaves the indices alone.
fn moved(elements: &Elements, counts: &Tensor, shift: usize, last: bool) -> Result<Tensor> {
    let inputs: Vec<&Tensor> = match elements {
        Elements::Words(words, index) => std::iter::once(*words).chain(*index).chain([counts]).collect(),
        Elements::Packed(packed) => vec![packed, counts],
    };
    let (rows, n) = (inputs[0].dims()[0], inputs[0].dims()[1]);
    let loops = Loops::new(rows, n, counts.dims()[1] as i64);
    let (shape, table) = ([rows, n], [rows, loops.values as usize]);
    let dtype = if last { DType::I32 } else { DType::U64 };
    let outputs = kernel_outputs(&inputs, &[(&shape, dtype), (&table, DType::I32)], |outputs, inputs| {
        let at = loops.element();
        let first = loops.in_row(&inputs[0], &at).load();
        let (word, index) = match elements {
            Elements::Words(_, None) => (first.clone(), at.cast(DType::I32)),
            Elements::Words(..) => (first.clone(), loops.in_row(&inputs[1], &at).load()),
            Elements::Packed(_) => (first.binary(Op::Shr, 32i64).cast(DType::U32), first.cast(DType::U32).bitcast(DType::I32)),
        };
        let digit = loops.digit(&word, shift);
        let filling = loops.filling();
        // The entry before the one that is filled. What the first step reads is not used.
        let before = (loops.entry() - 1).binary(Op::Max, 0i64);
        let next = loops.in_table(&outputs[1], &filling.select(&before, &digit)).load();
        let counted = loops.in_table(&inputs[inputs.len() - 1], &before).load();
        let start = loops.step.equals(0i64).select(0i64, &(&next + counted));
        let entry = loops.in_table(&outputs[1], &filling.select(loops.entry(), &digit));
        // An index outside the row would mean wrong counts; the mask proves that nothing is written there.
        let inside = filling.not().and(next.ge(0i64)).and(next.lt(loops.n));
        let place = next.cast(DType::INDEX).binary(Op::Max, 0i64).binary(Op::Min, loops.n - 1);
        let place = loops.in_row(&outputs[0], &place);
        let place = UOp::new(Op::Index, place.dtype(), [place.src()[0].clone(), place.src()[1].clone(), inside].to_src(), Arg::None);
        let element = match (last, elements) {
            (true, _) => index,
            (false, Elements::Packed(_)) => first,
            (false, _) => word.cast(DType::U64).binary(Op::Shl, 32i64).binary(Op::Or, &index.bitcast(DType::U32).cast(DType::U64)),
        };
        loops.sink([(place, element), (entry, filling.select(&start, &(&next + 1)))])
    })?;
    Ok(outputs[0].clone())
}

/// The indices of rows of words (`u32`) in ascending order. Of a word, `bits` are not zero. With an
/// `order` the words are those of the elements at these indices.
pub(super) fn sorted(words: &Tensor, bits: usize, order: Option<&Tensor>) -> Result<Tensor> {
    let digits = Digits::new(words.dims()[1], bits);
    let counts = counts(words, &digits)?;
    let mut elements = moved(&Elements::Words(words, order), &counts[0], 0, digits.count == 1)?;
    for (i, counts) in counts.iter().enumerate().skip(1) {
        elements = moved(&Elements::Packed(&elements), counts, i * digits.bits, i + 1 == digits.count)?;
    }
    Ok(elements)
}
