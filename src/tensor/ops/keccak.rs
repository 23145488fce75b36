//! The hash functions of FIPS 202: SHA-3 and SHAKE128. In come bytes along the last axis, out comes
//! a digest; the axes before it are messages of their own.
//!
//! The state of a message is 25 lanes of 64 bits. Each of the 24 rounds is stored, and each is the
//! same kernel: what differs from round to round is data.

use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{Dims, Movement};
use crate::tensor::{Tensor, wrong_dtype, wrong_shape};

/// Which function [`Tensor::keccak`] computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keccak {
    /// SHA3-224, of 28 bytes.
    Sha3_224,
    /// SHA3-256, of 32 bytes.
    Sha3_256,
    /// SHA3-384, of 48 bytes.
    Sha3_384,
    /// SHA3-512, of 64 bytes.
    Sha3_512,
    /// The first 16 bytes of SHAKE128.
    Shake128,
}

impl Keccak {
    /// Bytes of a block, bytes of the digest, and the bits that end a message.
    fn parameters(self) -> (usize, usize, u8) {
        match self {
            Keccak::Sha3_224 => (144, 28, 0x06),
            Keccak::Sha3_256 => (136, 32, 0x06),
            Keccak::Sha3_384 => (104, 48, 0x06),
            Keccak::Sha3_512 => (72, 64, 0x06),
            Keccak::Shake128 => (168, 16, 0x1f),
        }
    }
}

/// By how much each lane is turned, and the lane that goes to each place. Lane x + 5y is at column
/// x and row y.
fn turns_and_sources() -> ([u64; 25], [i32; 25]) {
    let (mut turns, mut sources) = ([0; 25], [0; 25]);
    let (mut x, mut y) = (1, 0);
    for t in 0..24u64 {
        turns[x + 5 * y] = (t + 1) * (t + 2) / 2 % 64;
        (x, y) = (y, (2 * x + 3 * y) % 5);
    }
    for (x, y) in (0..5).flat_map(|x| (0..5).map(move |y| (x, y))) {
        sources[y + 5 * ((2 * x + 3 * y) % 5)] = (x + 5 * y) as i32;
    }
    (turns, sources)
}

/// What the first lane is changed by in each round, from a shift register.
fn constants() -> [u64; 24] {
    let mut register = 1u8;
    std::array::from_fn(|_| {
        (0..7).fold(0, |sum, j| {
            let bit = (register & 1) as u64;
            register = (register << 1) ^ if register & 0x80 != 0 { 0x71 } else { 0 };
            sum | bit << ((1 << j) - 1)
        })
    })
}

/// Bits turned to the left. A shift by 64 gives nothing, so a turn by 0 is right too.
fn turned(x: &Tensor, by: &Tensor) -> Result<Tensor> {
    x.try_lshift(by)?.try_bitwise_or(x.try_rshift(by.literal(64).try_sub(by)?)?)
}

/// The permutation of states of shape `[messages, 5, 5]`, rows before columns.
fn permuted(mut state: Tensor) -> Result<Tensor> {
    let device = state.device().to_string();
    let (turns, sources) = turns_and_sources();
    let (turns, sources) = (
        Tensor::new(turns).try_to(&device)?.try_reshape([5, 5])?,
        Tensor::new(sources).try_to(&device)?,
    );
    let messages = state.dims()[0];
    for constant in constants() {
        let row = |y: usize| state.slice_axis(1, y, y + 1);
        let columns = (1..5).try_fold(row(0)?, |sum, y| sum.try_bitwise_xor(row(y)?))?;
        let beside = columns
            .try_roll(1, 2)?
            .try_bitwise_xor(turned(&columns.try_roll(-1, 2)?, &columns.literal(1))?)?;
        let moved = turned(&state.try_bitwise_xor(beside)?, &turns)?.try_reshape([messages, 25])?;
        let moved =
            moved.try_index_select(1, &sources)?.try_reshape([messages, 5, 5])?.contiguous();
        let mixed = moved.try_bitwise_xor(
            moved.try_roll(-1, 2)?.try_bitwise_not()?.try_bitwise_and(moved.try_roll(-2, 2)?)?,
        )?;
        let first = Tensor::new([[constant]]).try_to(&device)?.try_pad(&[(0, 4), (0, 4)])?;
        state = mixed.try_bitwise_xor(first)?.contiguous();
    }
    Ok(state)
}

/// Blocks of the longest message of [`Tensor::keccak`]: 24 rounds are added to the graph for each.
const MOST_BLOCKS: usize = 1 << 12;

/// Bytes that [`Tensor::hash`] makes one digest of.
const CHUNK: usize = 1 << 20;
/// Bytes of a block of these: so many that the digests of a chunk are again one block.
const BLOCK: usize = 4096;

impl Tensor {
    /// All elements as the bytes that they are stored in, little endian, along one axis.
    fn stored_bytes(&self) -> Result<Tensor> {
        self.require_static("hash", 0..self.ndim())?;
        let flat = self.try_reshape([self.numel()])?;
        let bits = match self.element_size() {
            1 if self.dtype().is_bool() => return flat.try_cast(DType::U8),
            1 => return flat.try_bitcast(DType::U8),
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        let places = Tensor::try_arange(0u64, 8 * self.element_size() as u64, 8)?.try_cast(bits)?;
        let bytes =
            flat.try_bitcast(bits)?.try_unsqueeze(1)?.try_rshift(&places)?.try_cast(DType::U8)?;
        bytes.try_reshape([self.nbytes()])
    }

    fallible! {
        /// A hash of 16 bytes of the bytes that the elements are stored in. They are cut into
        /// mebibytes, the last filled up with zeros, and those into blocks of 4096. The SHAKE128
        /// digests of the blocks of a mebibyte, one after the other, are digested to 16 bytes of
        /// its own; those of several mebibytes are hashed the same way again. Shape and dtype do
        /// not count, nor do zeros at the end.
        ///
        /// ```
        /// use picograd::Tensor;
        /// let x = Tensor::new([1u8, 2, 3]);
        /// assert_eq!(x.hash().shape(), [16]);
        /// ```
        pub fn hash | try_hash(&self) -> Tensor {
            let mut bytes = self.stored_bytes()?;
            loop {
                let length = bytes.numel();
                let chunks = length.div_ceil(CHUNK).max(1);
                let full = bytes.movement(Movement::pad([(0, chunks * CHUNK - length)]))?;
                let blocks = full
                    .try_reshape([chunks * CHUNK / BLOCK, BLOCK])?
                    .try_keccak(Keccak::Shake128)?;
                bytes = blocks
                    .try_reshape([chunks, BLOCK])?
                    .try_keccak(Keccak::Shake128)?
                    .try_reshape([chunks * 16])?;
                if chunks == 1 {
                    return Ok(bytes);
                }
            }
        }

        /// The digest of the bytes along the last axis, as bytes. Each block of a message is a part
        /// of the graph, so a message has at most 4096 of them; [`hash`](Self::hash) takes any
        /// number of bytes.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Keccak};
        /// let digest = Tensor::new(*b"abc").keccak(Keccak::Sha3_256).to_vec::<u8>()?;
        /// assert_eq!((digest.len(), &digest[..4]), (32, &[0x3a, 0x98, 0x5d, 0xa7][..]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn keccak | try_keccak(&self, kind: Keccak) -> Tensor {
            const OP: &str = "keccak";
            if self.dtype() != DType::U8 {
                return wrong_dtype(OP, format!("expected bytes (u8), got {}", self.dtype()));
            }
            let dims = self.dims();
            let Some((&length, lead)) = dims.split_last() else {
                return wrong_shape(OP, "expected one axis or more, got none");
            };
            let (block, digest, end) = kind.parameters();
            let messages: usize = lead.iter().product();
            let blocks = length / block + 1;
            if blocks > MOST_BLOCKS {
                let msg = format!(
                    "a message of {length} bytes has {blocks} blocks, and at most {MOST_BLOCKS} \
                     are planned"
                );
                return wrong_shape(OP, format!("{msg}; hash takes any number of bytes"));
            }
            // The message, the bits that end it, zeros, and a one at the very end, which may share
            // a byte with the first.
            let rest = blocks * block - length;
            let mut tail = vec![0u8; rest];
            tail[0] |= end;
            tail[rest - 1] |= 0x80;
            let tail =
                Tensor::new(tail).try_to(self.device().as_str())?.try_expand([messages, rest])?;
            let bytes = Tensor::try_cat(&[self.try_reshape([messages, length])?, tail], 1)?;
            let place = Tensor::try_arange(0u64, 64, 8)?;
            let lanes = bytes
                .try_reshape([messages, blocks, block / 8, 8])?
                .try_cast(DType::U64)?
                .try_lshift(&place)?
                .try_sum(-1)?;
            let lanes =
                lanes.movement(Movement::pad([(0, 0), (0, 0), (0, 25 - block / 8)]))?.contiguous();
            let mut state = lanes.literal(0).try_expand([messages, 5, 5])?;
            for i in 0..blocks {
                let next = lanes.slice_axis(1, i, i + 1)?.try_reshape([messages, 5, 5])?;
                state = permuted(state.try_bitwise_xor(next)?)?;
            }
            let out =
                state.try_reshape([messages, 25, 1])?.try_rshift(&place)?.try_cast(DType::U8)?;
            let shape: Dims = lead.iter().copied().chain([digest]).collect();
            out.try_reshape([messages, 200])?
                .slice_axis(1, 0, digest)?
                .movement(Movement::Reshape(shape))
        }
    }
}
