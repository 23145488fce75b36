//! Arrays in host memory: samples before they become tensors.

use crate::device::limits;
use crate::dtype::{DType, Element, as_bytes};
use crate::error::{Error, Result};
use crate::io::elements;
use crate::tensor::Tensor;

/// An array in host memory, in row-major order.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    /// Creates an array from elements.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.row(1)?.to_vec::<u8>()?, [3, 4]);
    /// assert_eq!(a.tensor()?.shape(), [2, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new<T: Element>(data: &[T], shape: &[usize]) -> Result<Array> {
        Array::from_bytes(limits::copied(as_bytes(data))?, T::DTYPE, shape)
    }

    /// Creates an array from the bytes of its elements, little-endian.
    ///
    /// ```
    /// use picograd::DType;
    /// use picograd::nn::data::Array;
    /// assert_eq!(
    ///     Array::from_bytes(vec![1, 0, 2, 0], DType::U16, &[2])?.to_vec::<u16>()?,
    ///     [1, 2]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn from_bytes(bytes: Vec<u8>, dtype: DType, shape: &[usize]) -> Result<Array> {
        elements(dtype, shape, bytes.len()).map_err(|msg| Error::Shape { op: "Array", msg })?;
        Ok(Array { dtype, shape: shape.to_vec(), bytes })
    }

    /// Returns the dtype of the elements.
    ///
    /// ```
    /// use picograd::DType;
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.dtype(), DType::U8);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the sizes of the axes.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.shape(), [2, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Returns the bytes of the elements.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.bytes(), [1, 2, 3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the elements. `T` must be the Rust type of the dtype.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.to_vec::<u8>()?, [1, 2, 3, 4]);
    /// assert!(a.to_vec::<f32>().is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype {
            return Err(Error::DType {
                op: "to_vec",
                msg: format!("an array of {} cannot be read as {}", self.dtype, T::DTYPE),
            });
        }
        limits::elements(&self.bytes)
    }

    /// Copies the array to a tensor on the default device.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.tensor()?.to_vec::<u8>()?, [1, 2, 3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn tensor(&self) -> Result<Tensor> {
        Tensor::try_from_bytes(&self.bytes, self.dtype, &self.shape)
    }

    /// Returns the size of the first axis; 0 for an array of rank 0.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.rows(), 2);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Returns one index of the first axis.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.row(1)?.to_vec::<u8>()?, [3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn row(&self, i: usize) -> Result<Array> {
        self.check(i)?;
        Ok(Array {
            dtype: self.dtype,
            shape: self.shape[1..].to_vec(),
            bytes: limits::copied(self.row_bytes(i))?,
        })
    }

    /// Returns the given indices of the first axis, in this order.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(a.gather(&[1, 0, 1])?.to_vec::<u8>()?, [3, 4, 1, 2, 3, 4]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn gather(&self, rows: &[usize]) -> Result<Array> {
        rows.iter().try_for_each(|i| self.check(*i))?;
        let bytes = concat(rows.iter().map(|i| self.row_bytes(*i)))?;
        let mut shape = self.shape.clone();
        *shape.first_mut().ok_or_else(|| no_row(0, &[]))? = rows.len();
        Ok(Array { dtype: self.dtype, shape, bytes })
    }

    /// Stacks arrays of equal shape and dtype along a new first axis.
    ///
    /// ```
    /// use picograd::nn::data::Array;
    /// let a = Array::new(&[1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(Array::stack(&[a.row(1)?, a.row(0)?])?.to_vec::<u8>()?, [3, 4, 1, 2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn stack(arrays: &[Array]) -> Result<Array> {
        let Some(first) = arrays.first() else {
            return Err(Error::Data("stack: no arrays given".into()));
        };
        if let Some(other) =
            arrays.iter().find(|a| (a.dtype, &a.shape) != (first.dtype, &first.shape))
        {
            return Err(Error::Data(format!(
                "stack: {other:?} differs from {first:?}; samples of a batch must have the same \
                 shape and dtype"
            )));
        }
        let shape = [&[arrays.len()], first.shape.as_slice()].concat();
        let bytes = concat(arrays.iter().map(|a| a.bytes.as_slice()))?;
        Array::from_bytes(bytes, first.dtype, &shape)
    }

    fn check(&self, i: usize) -> Result<()> {
        if i < self.rows() { Ok(()) } else { Err(no_row(i, &self.shape)) }
    }

    fn row_bytes(&self, i: usize) -> &[u8] {
        let size = self.bytes.len() / self.rows();
        &self.bytes[i * size..(i + 1) * size]
    }
}

/// Concatenates slices of equal length.
fn concat<'a>(mut parts: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<Vec<u8>> {
    let count = parts.len();
    let Some(first) = parts.next() else { return Ok(Vec::new()) };
    let mut out = limits::vec(first.len().saturating_mul(count))?;
    out.extend_from_slice(first);
    parts.for_each(|part| out.extend_from_slice(part));
    Ok(out)
}

fn no_row(i: usize, shape: &[usize]) -> Error {
    Error::Index {
        op: "row",
        msg: format!("index {i} is outside the first axis of shape {shape:?}"),
    }
}

/// Shows dtype and shape without the elements.
impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<Array {} {:?}>", self.dtype, self.shape)
    }
}
