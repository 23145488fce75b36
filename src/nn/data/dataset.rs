//! The trait of datasets, a dataset of arrays in memory, and adapters.

use super::Array;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::sync::Arc;

/// Samples by index. A sample is a list of arrays, such as an image and its label; all samples have
/// the same number of arrays.
///
/// A loader reads from several threads at once. Random augmentations should be seeded with
/// `(seed, i)`, so that runs are reproducible.
pub trait Dataset: Send + Sync {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Returns a sample.
    fn get(&self, i: usize) -> Result<Vec<Array>>;

    /// Returns true if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns samples stacked along a new first axis. A dataset whose samples are contiguous can
    /// override it to avoid an array per sample.
    fn batch(&self, indices: &[usize]) -> Result<Vec<Array>> {
        let samples: Vec<Vec<Array>> =
            indices.iter().map(|i| self.get(*i)).collect::<Result<_>>()?;
        let parts = samples.first().map_or(0, Vec::len);
        if let Some(other) = samples.iter().find(|s| s.len() != parts) {
            return Err(Error::Data(format!(
                "a sample has {} arrays, another {parts}",
                other.len()
            )));
        }
        (0..parts)
            .map(|part| Array::stack(&samples.iter().map(|s| s[part].clone()).collect::<Vec<_>>()))
            .collect()
    }

    /// Applies a function to every sample.
    fn map<F: Fn(Vec<Array>) -> Result<Vec<Array>> + Send + Sync>(self, f: F) -> Mapped<Self, F>
    where
        Self: Sized,
    {
        Mapped { inner: self, f }
    }

    /// Selects samples by index, in this order.
    fn subset(self, indices: Vec<usize>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        let len = self.len();
        match indices.iter().find(|i| **i >= len) {
            Some(i) => Err(Error::Index {
                op: "subset",
                msg: format!("{i} is outside a dataset of {len} samples"),
            }),
            None => Ok(Subset { inner: self, indices }),
        }
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }
    fn get(&self, i: usize) -> Result<Vec<Array>> {
        (**self).get(i)
    }
    fn batch(&self, indices: &[usize]) -> Result<Vec<Array>> {
        (**self).batch(indices)
    }
}

/// A dataset of arrays in memory: sample `i` is row `i` of each array.
#[derive(Clone, Debug)]
pub struct ArrayDataset(Vec<Array>);

impl ArrayDataset {
    /// Creates a dataset from arrays with the same number of rows.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset, Dataset};
    /// let images = Array::new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let labels = Array::new(&[7u8, 9], &[2])?;
    /// let data = ArrayDataset::new(vec![images, labels])?;
    /// assert_eq!(data.len(), 2);
    /// assert_eq!(data.get(1)?[1].to_vec::<u8>()?, [9]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(arrays: Vec<Array>) -> Result<ArrayDataset> {
        let Some(first) = arrays.first() else {
            return Err(Error::Data("a dataset needs at least one array".into()));
        };
        if let Some(bad) = arrays.iter().find(|a| a.shape().is_empty() || a.rows() != first.rows())
        {
            return Err(Error::Data(format!(
                "a dataset of {first:?} and {bad:?}; all arrays must have the same number of rows"
            )));
        }
        Ok(ArrayDataset(arrays))
    }

    /// Creates a dataset from the current values of tensors.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::data::{ArrayDataset, Dataset};
    /// let data = ArrayDataset::of_tensors(&[Tensor::zeros([3, 2]), Tensor::new([1, 2, 3])])?;
    /// assert_eq!(data.len(), 3);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn of_tensors(tensors: &[Tensor]) -> Result<ArrayDataset> {
        Tensor::realize_many(&tensors.iter().collect::<Vec<_>>())?;
        let array = |t: &Tensor| Array::from_bytes(t.to_bytes()?, t.dtype(), &t.shape());
        ArrayDataset::new(tensors.iter().map(array).collect::<Result<_>>()?)
    }

    /// Returns the arrays.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset};
    /// let data = ArrayDataset::new(vec![Array::new(&[1.0f32, 2.0], &[2])?])?;
    /// assert_eq!(data.arrays()[0].shape(), [2]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn arrays(&self) -> &[Array] {
        &self.0
    }

    /// Copies all samples to tensors, one per array.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset};
    /// let data = ArrayDataset::new(vec![Array::new(&[1.0f32, 2.0], &[2])?])?;
    /// assert_eq!(data.tensors()?[0].to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        self.0.iter().map(Array::tensor).collect()
    }
}

impl Dataset for ArrayDataset {
    fn len(&self) -> usize {
        self.0[0].rows()
    }
    fn get(&self, i: usize) -> Result<Vec<Array>> {
        self.0.iter().map(|a| a.row(i)).collect()
    }
    fn batch(&self, indices: &[usize]) -> Result<Vec<Array>> {
        self.0.iter().map(|a| a.gather(indices)).collect()
    }
}

/// The dataset of [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Mapped<D, F> {
    inner: D,
    f: F,
}

impl<D: Dataset, F: Fn(Vec<Array>) -> Result<Vec<Array>> + Send + Sync> Dataset for Mapped<D, F> {
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn get(&self, i: usize) -> Result<Vec<Array>> {
        (self.f)(self.inner.get(i)?)
    }
}

/// The dataset of [`Dataset::subset`].
#[derive(Clone, Debug)]
pub struct Subset<D> {
    inner: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Dataset for Subset<D> {
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn get(&self, i: usize) -> Result<Vec<Array>> {
        let outside = || Error::Index {
            op: "get",
            msg: format!("{i} is outside a dataset of {} samples", self.len()),
        };
        self.inner.get(*self.indices.get(i).ok_or_else(outside)?)
    }
    fn batch(&self, indices: &[usize]) -> Result<Vec<Array>> {
        match indices.iter().map(|i| self.indices.get(*i).copied()).collect::<Option<Vec<_>>>() {
            Some(inner) => self.inner.batch(&inner),
            None => Err(Error::Index {
                op: "batch",
                msg: format!("{indices:?} are outside a dataset of {} samples", self.len()),
            }),
        }
    }
}
