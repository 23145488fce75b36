//! Sorting along an axis: values in order, and their indices.
//!
//! Elements are mapped to integer keys of the same order, and the indices of the keys are sorted.
//! Values are gathered at those indices, and gradients scattered to them. The method depends on the
//! number of keys per row:
//!
//! | keys per row | method |
//! |---|---|
//! | few | counts the keys before each key: two reductions |
//! | many, few wanted | sorts the first keys of blocks, then the elements of the first blocks |
//! | others, on a CPU | radix sort (`radix.rs`) |
//! | others, on a GPU | bitonic network (`bitonic.rs`) |
//!
//! All methods are stable, so that they give the same indices.

use super::create::iota;
use super::gather::gather_at;
use super::{bitonic, radix};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{Fold, Group, Op, UOp};
use crate::shape::Dims;
use crate::tensor::{Tensor, resolve_axis};

/// Longest row that is sorted by ranks: about where radix sort, with its table of 256 entries per
/// digit, takes as long.
const MAX_RANKED: usize = 256;

/// Rows of ranks are padded to a multiple of the 32-bit lanes of the widest vectors.
const LANES: usize = 16;

/// Keys that blocks have to save, over all rows, to be worth their kernels: against radix sort, at
/// about 10 ns per key, and against a network, whose kernels take a few microseconds up to many
/// keys.
const MIN_SAVED: [usize; 2] = [1 << 12, 1 << 19];

/// Rows of integer keys: smaller keys come first, and equal ones in their order.
struct Keys {
    /// `[rows, n]`: elements, or keys of `i32` or `i64`.
    x: Tensor,
    /// Order of elements; `None` if `x` holds keys.
    descending: Option<bool>,
    limits: Limits,
    /// True if long rows are sorted by radix sort.
    radix: bool,
    op: &'static str,
}

/// Range of the keys.
#[derive(Clone, Copy)]
struct Limits {
    least: i64,
    greatest: i64,
    /// Low bits that do not affect the order.
    unused: usize,
}

impl Limits {
    fn new(dtype: DType, descending: bool) -> Limits {
        let of = |bits: u32| (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
        // A cast to f32 leaves zeros below the mantissa of a narrow dtype.
        let (limits, unused) = match dtype {
            DType::F16 => (of(32), 13),
            DType::BF16 => (of(32), 16),
            DType::F8E4M3 => (of(32), 20),
            DType::F8E5M2 => (of(32), 21),
            _ if dtype.is_bool() => ((0, 1), 0),
            _ if dtype.bits() < 32 && dtype.is_unsigned() => ((0, (1 << dtype.bits()) - 1), 0),
            _ => (of(dtype.bits()), 0),
        };
        let (least, greatest) = if descending { (!limits.1, !limits.0) } else { limits };
        Limits { least, greatest, unused }
    }
    /// Range of indices below `n`.
    fn below(n: usize) -> Limits {
        Limits { least: 0, greatest: n as i64 - 1, unused: 0 }
    }
    /// Significant bits of the difference to the smallest key.
    fn bits(&self) -> usize {
        (64 - (self.greatest.wrapping_sub(self.least) as u64).leading_zeros() as usize)
            - self.unused
    }
}

/// Integer keys in the order of the elements. Equal elements, including -0 and 0, have equal keys.
/// NaN has the largest key, or with `descending` the least.
fn ordered(x: &Tensor, descending: bool) -> Result<Tensor> {
    let wide = x.dtype().bits() > 32;
    let dtype = if wide { DType::I64 } else { DType::I32 };
    let key = if x.is_floating_point() {
        let bits = x.try_cast(if wide { DType::F64 } else { DType::F32 })?.try_bitcast(dtype)?;
        let greatest = bits.literal(dtype.max_value());
        let magnitude = bits.try_bitwise_and(&greatest)?;
        let infinity =
            if wide { f64::INFINITY.to_bits() as i64 } else { f32::INFINITY.to_bits() as i64 };
        let key = bits.try_lt(0)?.try_where_(magnitude.try_neg()?, &bits)?;
        magnitude.try_gt(infinity)?.try_where_(greatest, key)?
    } else if x.dtype().is_unsigned() && x.dtype().bits() == dtype.bits() {
        let bits = x.try_bitcast(dtype)?;
        bits.try_bitwise_xor(bits.literal(dtype.min_value()))?
    } else {
        x.try_cast(dtype)?
    };
    if descending { key.try_bitwise_not() } else { Ok(key) }
}

/// Returns true if a kernel reads the value from memory.
fn in_memory(u: &UOp) -> bool {
    let mut u = u;
    while u.op().is(Group::Movement) || u.op().is(Group::Mark) {
        u = u.operand();
    }
    matches!(u.op(), Op::Buffer | Op::Param | Op::Contiguous | Op::Copy | Op::Output)
}

impl Keys {
    /// Keys of rows of elements.
    fn new(op: &'static str, x: &Tensor, descending: bool) -> Keys {
        // A sequential loop wastes a GPU. The interpreter has workgroups but runs them on the CPU.
        let in_order = |d: &Device| !d.target().grid || d.target().chunks;
        let radix =
            !x.device().is_multi_device() && Device::named(x.device()).is_ok_and(|d| in_order(&d));
        Keys {
            x: x.copy(),
            descending: Some(descending),
            limits: Limits::new(x.dtype(), descending),
            radix,
            op,
        }
    }

    /// Keys as integers.
    fn keys(&self) -> Result<Tensor> {
        match self.descending {
            Some(descending) => ordered(&self.x, descending),
            None => Ok(self.x.copy()),
        }
    }

    /// Other keys of the same operation.
    fn with(&self, keys: Tensor, limits: Limits) -> Keys {
        Keys { x: keys, descending: None, limits, ..*self }
    }

    /// Returns the indices of the first `k` keys of each row, in order.
    fn first(&self, k: usize) -> Result<Tensor> {
        let n = self.x.dims()[1];
        // Only the network supports symbolic dimensions.
        if !self.x.uop().extents().is_empty() {
            return bitonic::sort_first(&self.keys()?, k);
        }
        if n <= MAX_RANKED {
            return self.by_ranks(k);
        }
        match self.block(k) {
            Some(size) => self.by_blocks(k, size),
            None if self.radix && i32::try_from(n).is_ok() => self.by_radix()?.slice_axis(1, 0, k),
            None => bitonic::sort_first(&self.keys()?, k),
        }
    }

    /// Gathers the elements at sorted indices. The gradient is a scatter, which runs sequentially
    /// along a row; on a GPU the gradient of a permutation is a gather by its inverse.
    fn values(&self, x: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let (op, n) = (self.op, x.dims()[1]);
        if self.radix
            || n <= MAX_RANKED
            || indices.dims()[1] < n
            || !x.requires_grad()
            || !x.uop().extents().is_empty()
        {
            return gather_at(op, x, indices, 1);
        }
        let inverse = self.with(indices.clone(), Limits::below(n)).first(n)?.contiguous();
        Tensor::call(
            &[x],
            |x| gather_at(op, &x[0], indices, 1),
            move |g, _| Ok(vec![gather_at(op, g, &inverse, 1)?]),
        )
    }

    /// Returns all indices in order, by radix sort.
    fn by_radix(&self) -> Result<Tensor> {
        let Limits { least, unused, .. } = self.limits;
        let keys = self.keys()?;
        let wide = keys.dtype().bits() == 64;
        let unsigned = if wide { DType::U64 } else { DType::U32 };
        // Differences wrap to unsigned integers in the order of the keys.
        let words = keys.try_sub(keys.literal(least))?.try_bitcast(unsigned)?.try_rshift(unused)?;
        if !wide {
            return radix::sort(&words.contiguous(), self.limits.bits(), None);
        }
        let half = |shift: usize| {
            words.try_rshift(shift)?.try_bitwise_and(u32::MAX as u64)?.try_cast(DType::U32)
        };
        let order = radix::sort(&half(0)?.contiguous(), 32, None)?;
        let upper = gather_at(self.op, &half(32)?, &order, 1)?.contiguous();
        radix::sort(&upper, 32, Some(&order))
    }

    /// Sorts by the rank of each key, the number of keys before it. Padding ranks after all keys.
    fn by_ranks(&self, k: usize) -> Result<Tensor> {
        let (rows, size) = (self.x.dims()[0], self.x.dims()[1]);
        let (n, wanted) = (size.next_multiple_of(LANES), k.next_multiple_of(LANES));
        let line = |t: &Tensor| t.shaped([rows, 1, n]);
        let column = |t: &Tensor| t.shaped([rows, n, 1]);
        let keys = self.keys()?;
        let keys = keys
            .try_pad_with(&[(0, 0), (0, n - size)], keys.literal(self.limits.greatest))?
            .contiguous();
        let (own, other) = (line(&keys)?, column(&keys)?);
        let earlier = iota(n).try_unsqueeze(1)?.try_lt(iota(n))?;
        let before =
            other.try_lt(&own)?.try_bitwise_or(other.try_eq(&own)?.try_bitwise_and(earlier)?)?;
        let ranks = before.try_cast(DType::I32)?.reduce_axes(Fold::Add, 1)?.contiguous();
        // Ranks are distinct, so that a masked sum selects.
        let here = column(&ranks)?.try_eq(iota(wanted))?;
        let index = iota(n).try_unsqueeze(1)?;
        here.try_where_(&index, index.literal(0))?.reduce_axes(Fold::Add, 1)?.slice_axis(1, 0, k)
    }

    /// Block size that leaves the fewest keys to sort, or `None` if it saves too little.
    fn block(&self, k: usize) -> Option<usize> {
        let (rows, n) = (self.x.dims()[0], self.x.dims()[1]);
        let size = ((n / k.max(1)) as f64).sqrt() as usize;
        let size = size.next_power_of_two().min(64);
        let left = n.div_ceil(size) + k * size;
        let worth = left <= n / 2 && rows * (n - left) >= MIN_SAVED[!self.radix as usize];
        (size >= 4 && worth).then_some(size)
    }

    /// Sorts by blocks of `size` keys. Each of the first `k` keys lies in one of the first `k`
    /// blocks, ordered by their first key: every earlier block has a key before it.
    fn by_blocks(&self, k: usize, size: usize) -> Result<Tensor> {
        let (rows, n) = (self.x.dims()[0], self.x.dims()[1]);
        let blocks = n.div_ceil(size);
        let keys = self.keys()?;
        let last = keys.literal(self.limits.greatest);
        let padded = keys.try_pad_with(&[(0, 0), (0, blocks * size - n)], &last)?;
        // Computed elements are stored as keys.
        let computed = !in_memory(&self.x.uop());
        let padded = if computed { padded.contiguous() } else { padded };
        let best = padded.shaped([rows, blocks, size])?.reduce_axes(Fold::Min, 2)?;
        let chosen = self.with(best.contiguous(), self.limits).first(k)?.contiguous();
        // Ascending, so that candidates are in the order of their indices.
        let order = self.with(chosen.clone(), Limits::below(blocks)).first(k)?;
        let chosen = gather_at(self.op, &chosen, &order, 1)?.contiguous();
        let index = chosen.try_unsqueeze(2)?.try_mul(size)?.try_add(iota(size))?;
        let index = index.shaped([rows, k * size])?;
        let candidates = if computed {
            gather_at(self.op, &padded, &index, 1)?
        } else {
            // Keys of gathered elements, which avoids storing all keys.
            let keys = Keys { x: gather_at(self.op, &self.x, &index, 1)?, ..*self }.keys()?;
            index.try_lt(n)?.try_where_(keys, last)?
        };
        let order = self.with(candidates.contiguous(), self.limits).first(k)?.contiguous();
        gather_at(self.op, &index, &order, 1)
    }
}

/// First `k` elements of an axis in order, and their indices.
fn sort_first(
    op: &'static str,
    x: &Tensor,
    k: Option<usize>,
    axis: isize,
    descending: bool,
) -> Result<(Tensor, Tensor)> {
    let dims = x.dims();
    if crate::tensor::is_scalar_axis(axis, &dims) {
        let (values, indices) = sort_first(op, &x.shaped([1])?, k, 0, descending)?;
        let out = |t: &Tensor| {
            if t.max_numel() == 1 { t.shaped(Dims::new()) } else { Ok(t.clone()) }
        };
        return Ok((out(&values)?, out(&indices)?));
    }
    let at = resolve_axis(op, axis, &dims)?;
    x.require_static(op, [at])?;
    let n = dims[at];
    let k = k.unwrap_or(n);
    if k > n {
        return wrong_shape!(op, "k is {k}, but axis {axis} of {dims:?} has size {n}");
    }
    let swapped = x.ranked().try_transpose(at as isize, -1)?;
    let mut shape = swapped.dims();
    let last = shape.len() - 1;
    let rows = shape[..last].iter().product::<usize>();
    let x = swapped.shaped([rows, n])?;
    let (values, indices) = if rows * k == 0 {
        let indices = x.match_extents(x.with_uop(iota(k).uop()).try_expand([rows, k])?);
        (gather_at(op, &x, &indices, 1)?, indices)
    } else {
        let keys = Keys::new(op, &x.detach(), descending);
        let indices = keys.first(k)?.contiguous();
        (keys.values(&x, &indices)?, indices)
    };
    shape[last] = k;
    let back = |t: Tensor| t.shaped(shape.clone())?.try_transpose(at as isize, -1);
    Ok((back(values)?, back(indices)?))
}

impl Tensor {
    fallible! {
        /// Sorts along an axis; returns values and indices. The sort is stable (-0 equals 0), and
        /// NaN is greater than all numbers. It takes O(n) on a CPU, where rows are sorted in
        /// parallel, and O(n·log²n) on a GPU. The gradient of a value goes to the element at its
        /// index.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, indices) = Tensor::new([3, 1, 2, 1]).sort(0, false);
        /// assert_eq!(values.to_vec::<i32>()?, [1, 1, 2, 3]);
        /// assert_eq!(indices.to_vec::<i32>()?, [1, 3, 2, 0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn sort | try_sort(&self, axis: isize, descending: bool) -> (Tensor, Tensor) {
            sort_first("sort", self, None, axis, descending)
        }

        /// Returns the indices that [`sort`](Self::sort) an axis.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let y = Tensor::new([0.5f32, -1.0, 2.0]).argsort(0, true);
        /// assert_eq!(y.to_vec::<i32>()?, [2, 0, 1]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn argsort | try_argsort(&self, axis: isize, descending: bool) -> Tensor {
            Ok(sort_first("argsort", self, None, axis, descending)?.1)
        }

        /// Values and indices of the `k` largest elements along an axis, or of the smallest if
        /// `largest` is false. They are always sorted, whatever `sorted` is.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let (values, indices) = Tensor::new([[1, 9, 4, 7]]).topk(2, -1, true, true);
        /// assert_eq!(values.to_vec::<i32>()?, [9, 7]);
        /// assert_eq!(indices.to_vec::<i32>()?, [1, 3]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn topk | try_topk(
            &self, k: usize, axis: isize, largest: bool, sorted: bool,
        ) -> (Tensor, Tensor) {
            let _ = sorted;
            sort_first("topk", self, Some(k), axis, largest)
        }
    }
}
