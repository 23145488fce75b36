//! The embedding layer.

use super::Module;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, or_panic};

/// Looks up a row of a table for each index: integers `[…]` become `[…, size]`. Rows are
/// initialized from the standard normal distribution.
#[derive(Module)]
pub struct Embedding {
    /// The table, `[rows, size]`.
    pub weight: Tensor,
    padding: Option<usize>,
}

impl Embedding {
    /// Creates a table of `rows` vectors of `size` elements.
    ///
    /// ```
    /// use picograd::{Tensor, nn::Embedding};
    /// let table = Embedding::new(100, 16);
    /// assert_eq!(table.forward(&Tensor::new([[1, 2, 3], [4, 5, 6]])).shape(), [2, 3, 16]);
    /// ```
    pub fn new(rows: usize, size: usize) -> Embedding {
        Embedding { weight: Tensor::randn([rows, size]).as_param(), padding: None }
    }
    /// Sets a row that is zero initially and never trained, for padding indices. Panics if there is
    /// no such row.
    ///
    /// ```
    /// use picograd::{Tensor, nn::Embedding};
    /// let table = Embedding::new(10, 2).padding_idx(0);
    /// assert_eq!(table.forward(&Tensor::new([0])).to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    #[track_caller]
    pub fn padding_idx(self, row: usize) -> Embedding {
        let rows = self.weight.size(0);
        assert!(row < rows, "Embedding: padding row {row} is outside a table of {rows} rows");
        let is_padding = Tensor::arange(0, rows as i64, 1).eq(row).unsqueeze(-1);
        Embedding { weight: is_padding.where_(0.0, &self.weight).as_param(), padding: Some(row) }
    }

    /// Looks up the rows of integer indices. An index out of range gives zeros.
    ///
    /// ```
    /// use picograd::{Tensor, nn::Embedding};
    /// let table = Embedding::new(10, 2);
    /// assert_eq!(table.try_forward(&Tensor::new([[1, 2, 3]]))?.shape(), [1, 3, 2]);
    /// assert!(table.try_forward(&Tensor::new([1.0f32])).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn try_forward(&self, indices: &Tensor) -> Result<Tensor> {
        if !indices.dtype().is_int() {
            return Err(Error::DType {
                op: "Embedding",
                msg: format!("expected integers, got {}", indices.dtype()),
            });
        }
        let shape: Vec<usize> =
            indices.max_shape().into_iter().chain([self.weight.size(1)]).collect();
        let rows = self
            .weight
            .try_index_select(0, &indices.try_reshape([indices.max_numel()])?)?
            .try_reshape(shape)?;
        match self.padding {
            // The padding row receives no gradient and keeps its value.
            Some(row) => indices.try_eq(row)?.try_unsqueeze(-1)?.try_where_(rows.detach(), rows),
            None => Ok(rows),
        }
    }
    /// Calls [`try_forward`](Self::try_forward) and panics on an error.
    ///
    /// ```
    /// use picograd::{Tensor, nn::Embedding};
    /// assert_eq!(Embedding::new(10, 2).forward(&Tensor::new([1, 2, 3])).shape(), [3, 2]);
    /// ```
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Tensor {
        or_panic(self.try_forward(indices))
    }
}

impl super::Layer for Embedding {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        Embedding::try_forward(self, x)
    }
}
