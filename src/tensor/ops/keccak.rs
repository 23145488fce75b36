//! Hash functions of FIPS 202, SHA-3 and SHAKE128, of bytes along the last axis; leading axes are
//! separate messages.
//!
//! The state of a message is 25 lanes of 64 bits. Each of the 24 rounds is stored, and all use the
//! same kernel, because their constants are data.

use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Function of [`Tensor::keccak`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keccak {
    /// SHA3-224, 28 bytes.
    Sha3_224,
    /// SHA3-256, 32 bytes.
    Sha3_256,
    /// SHA3-384, 48 bytes.
    Sha3_384,
    /// SHA3-512, 64 bytes.
    Sha3_512,
    /// First 16 bytes of SHAKE128.
    Shake128,
}

impl Keccak {
    /// Block size and digest size in bytes, and the padding bits.
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

/// Rotation of each lane, and source lane of each position. Lane x + 5y is at column x and row y.
fn rotations_and_sources() -> ([u64; 25], [i32; 25]) {
    let (mut rotations, mut sources) = ([0; 25], [0; 25]);
    let (mut x, mut y) = (1, 0);
    for t in 0..24u64 {
        rotations[x + 5 * y] = (t + 1) * (t + 2) / 2 % 64;
        (x, y) = (y, (2 * x + 3 * y) % 5);
    }
    for (x, y) in (0..5).flat_map(|x| (0..5).map(move |y| (x, y))) {
        sources[y + 5 * ((2 * x + 3 * y) % 5)] = (x + 5 * y) as i32;
    }
    (rotations, sources)
}

/// Round constants, from a shift register.
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

/// Rotates bits to the left. A shift by 64 gives 0, so that a rotation by 0 is correct.
fn rotate_left(x: &Tensor, by: &Tensor) -> Result<Tensor> {
    x.try_lshift(by)?.try_bitwise_or(x.try_rshift(by.literal(64).try_sub(by)?)?)
}

/// Permutation of states of shape `[messages, 5, 5]`, rows before columns.
fn permute(mut state: Tensor) -> Result<Tensor> {
    let device = state.device().to_string();
    let (rotations, sources) = rotations_and_sources();
    let (rotations, sources) = (
        Tensor::new(rotations).try_to(&device)?.try_reshape([5, 5])?,
        Tensor::new(sources).try_to(&device)?,
    );
    let messages = state.dims()[0];
    for constant in constants() {
        let row = |y: usize| state.slice_axis(1, y, y + 1);
        let columns = (1..5).try_fold(row(0)?, |sum, y| sum.try_bitwise_xor(row(y)?))?;
        let parity = columns
            .try_roll(1, 2)?
            .try_bitwise_xor(rotate_left(&columns.try_roll(-1, 2)?, &columns.literal(1))?)?;
        let moved = rotate_left(&state.try_bitwise_xor(parity)?, &rotations)?
            .try_reshape([messages, 25])?;
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

/// Maximum blocks per message of [`Tensor::keccak`]: each adds 24 rounds to the graph.
const MAX_BLOCKS: usize = 1 << 12;

/// Bytes per digest of [`Tensor::hash`].
const CHUNK: usize = 1 << 20;
/// Bytes per block, chosen so that the digests of a chunk are one block.
const BLOCK: usize = 4096;

impl Tensor {
    /// Little-endian bytes of all elements, along one axis.
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
        /// 16-byte hash of the stored bytes. They are split into mebibytes, padded with zeros, and
        /// those into blocks of 4096 bytes. The concatenated SHAKE128 digests of the blocks of a
        /// mebibyte are digested to 16 bytes; those of several mebibytes are hashed recursively.
        /// Shape, dtype and trailing zeros do not affect the hash.
        ///
        /// ```
        /// use picograd::Tensor;
        /// assert_eq!(Tensor::new([1u8, 2, 3]).hash().shape(), [16]);
        /// ```
        pub fn hash | try_hash(&self) -> Tensor {
            let mut bytes = self.stored_bytes()?;
            loop {
                let length = bytes.numel();
                let chunks = length.div_ceil(CHUNK).max(1);
                bytes = bytes.padded([(0, chunks * CHUNK - length)])?;
                for blocks in [chunks * CHUNK / BLOCK, chunks] {
                    bytes = bytes.try_reshape([blocks, BLOCK])?.try_keccak(Keccak::Shake128)?;
                }
                bytes = bytes.try_reshape([chunks * 16])?;
                if chunks == 1 {
                    return Ok(bytes);
                }
            }
        }

        /// Digest of the bytes along the last axis, as bytes. Each block is a part of the graph, so
        /// that a message has at most 4096 of them; [`hash`](Self::hash) takes any number of bytes.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Keccak};
        /// let digest = Tensor::new(*b"abc").keccak(Keccak::Sha3_256).to_vec::<u8>()?;
        /// assert_eq!((digest.len(), &digest[..4]), (32, &[0x3a, 0x98, 0x5d, 0xa7][..]));
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn keccak | try_keccak(&self, kind: Keccak) -> Tensor {
            reject_dtype!(self.dtype() != DType::U8, "expected bytes (u8), got {}", self.dtype());
            let dims = self.dims();
            let Some((&length, lead)) = dims.split_last() else {
                return shape_error!("expected one axis or more, got none");
            };
            let (block, digest, end) = kind.parameters();
            let messages: usize = lead.iter().product();
            let blocks = length / block + 1;
            if blocks > MAX_BLOCKS {
                return shape_error!(
                    "a message of {length} bytes has {blocks} blocks; expected at most \
                     {MAX_BLOCKS}, or use hash"
                );
            }
            // Message, domain bits, zeros, and a final one, which may share a byte with the domain
            // bits.
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
            let lanes = lanes.padded([(0, 0), (0, 0), (0, 25 - block / 8)])?.contiguous();
            let mut state = lanes.literal(0).try_expand([messages, 5, 5])?;
            for i in 0..blocks {
                let next = lanes.slice_axis(1, i, i + 1)?.try_reshape([messages, 5, 5])?;
                state = permute(state.try_bitwise_xor(next)?)?;
            }
            let out =
                state.try_reshape([messages, 25, 1])?.try_rshift(&place)?.try_cast(DType::U8)?;
            let out = out.try_reshape([messages, 200])?.slice_axis(1, 0, digest)?;
            out.shaped([lead, &[digest]].concat())
        }
    }
}
