//! Multi-head attention, and the transformer block.

use super::{Dropout, Layer, LayerNorm, Linear, Module, init, unexpected_input};
use crate::error::{Error, Result};
use crate::tensor::{Attention, Tensor, or_panic};

/// Multi-head attention (Vaswani et al., 2017) over `[batch, length, size]`: queries, keys and
/// values are projected, each head attends separately, and the results are projected together.
#[derive(Module)]
pub struct MultiHeadAttention {
    /// Stacked projections of queries, keys and values: `[size + 2·kv_size, size]`. `kv_size` is
    /// `size` unless there are fewer heads of keys and values.
    pub in_proj_weight: Tensor,
    /// The biases of these projections, `[size + 2·kv_size]`.
    pub in_proj_bias: Option<Tensor>,
    /// The output projection.
    pub out_proj: Linear,
    size: usize,
    heads: usize,
    kv_heads: usize,
    causal: bool,
    dropout: Dropout,
}

impl MultiHeadAttention {
    /// Creates attention over vectors of `size` elements in `heads` heads, with biases. Panics if
    /// the size does not divide.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, MultiHeadAttention};
    /// let attention = MultiHeadAttention::new(16, 4).causal();
    /// let x = Tensor::zeros([2, 5, 16]);
    /// assert_eq!(attention.forward(&x).shape(), [2, 5, 16]); // of a sequence to itself
    /// let memory = Tensor::zeros([2, 7, 16]);
    /// let cross = MultiHeadAttention::new(16, 4).attend(&x, &memory, &memory, None);
    /// assert_eq!(cross.shape(), [2, 5, 16]);
    /// ```
    #[track_caller]
    pub fn new(size: usize, heads: usize) -> MultiHeadAttention {
        assert!(
            heads > 0 && size.is_multiple_of(heads),
            "MultiHeadAttention: size {size} is not divisible by {heads} heads"
        );
        let out_proj = Linear::new(size, size);
        MultiHeadAttention {
            in_proj_weight: Tensor::zeros(()),
            in_proj_bias: None,
            out_proj: Linear { bias: Some(Tensor::zeros([size]).as_param()), ..out_proj },
            size,
            heads,
            kv_heads: heads,
            causal: false,
            dropout: Dropout::new(0.0),
        }
        .with_weights(true)
    }
    fn with_weights(self, bias: bool) -> MultiHeadAttention {
        let rows = self.size + 2 * self.kv_size();
        MultiHeadAttention {
            in_proj_weight: init::xavier_uniform([rows, self.size], 1.0).as_param(),
            in_proj_bias: bias.then(|| Tensor::zeros([rows]).as_param()),
            ..self
        }
    }
    /// Total size of all key heads.
    fn kv_size(&self) -> usize {
        self.size / self.heads * self.kv_heads
    }
    /// Uses grouped-query attention (Ainslie et al., 2023): fewer heads of keys and values, each
    /// shared by several query heads. Reinitializes the projection. Panics if the number of heads
    /// is not divisible.
    ///
    /// ```
    /// use picograd::nn::MultiHeadAttention;
    /// assert_eq!(
    ///     MultiHeadAttention::new(16, 4).kv_heads(1).in_proj_weight.shape(),
    ///     [16 + 2 * 4, 16]
    /// );
    /// ```
    #[track_caller]
    pub fn kv_heads(self, heads: usize) -> MultiHeadAttention {
        assert!(
            heads > 0 && self.heads.is_multiple_of(heads),
            "MultiHeadAttention: {} heads are not divisible by {heads} heads of keys",
            self.heads
        );
        let bias = self.in_proj_bias.is_some();
        MultiHeadAttention { kv_heads: heads, ..self }.with_weights(bias)
    }
    /// Enables or disables the biases.
    ///
    /// ```
    /// use picograd::nn::MultiHeadAttention;
    /// assert!(MultiHeadAttention::new(16, 4).bias(false).in_proj_bias.is_none());
    /// ```
    pub fn bias(self, bias: bool) -> MultiHeadAttention {
        MultiHeadAttention {
            in_proj_bias: self.in_proj_bias.filter(|_| bias),
            out_proj: self.out_proj.bias(bias),
            ..self
        }
    }
    /// Makes attention causal: a position attends to itself and to earlier positions.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, MultiHeadAttention};
    /// let attention = MultiHeadAttention::new(4, 2).causal();
    /// let (x, other) = (Tensor::ones([1, 2, 4]), Tensor::new([[[1.0f32; 4], [7.0; 4]]]));
    /// let first = |x: &Tensor| attention.forward(x).to_vec::<f32>().map(|y| y[..4].to_vec());
    /// assert_eq!(first(&x)?, first(&other)?); // the first place does not see the second
    ///     
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn causal(self) -> MultiHeadAttention {
        MultiHeadAttention { causal: true, ..self }
    }
    /// Sets the probability of dropout on the attention weights in training.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, MultiHeadAttention};
    /// let attention = MultiHeadAttention::new(16, 4).dropout(0.1);
    /// assert_eq!(attention.forward(&Tensor::zeros([2, 5, 16])).shape(), [2, 5, 16]);
    /// ```
    pub fn dropout(self, p: f64) -> MultiHeadAttention {
        MultiHeadAttention { dropout: Dropout::new(p), ..self }
    }

    /// Computes attention of queries `[batch, length, size]` to keys and values `[batch, positions,
    /// size]`. A bool mask selects the visible positions, a float mask is added to the scores; it
    /// broadcasts to `[batch, heads, length, positions]`.
    ///
    /// ```
    /// use picograd::{Tensor, nn::MultiHeadAttention};
    /// let (x, memory) = (Tensor::zeros([2, 5, 16]), Tensor::zeros([2, 7, 16]));
    /// let attention = MultiHeadAttention::new(16, 4);
    /// assert_eq!(attention.try_attend(&x, &memory, &memory, None)?.shape(), [2, 5, 16]);
    /// assert!(attention.try_attend(&x, &memory, &x, None).is_err());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn try_attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        for x in [query, key, value] {
            if x.ndim() != 3 || x.size(-1) != self.size {
                return unexpected_input(
                    "MultiHeadAttention",
                    format_args!("[batch, length, {}]", self.size),
                    x,
                );
            }
        }
        let sizes = |x: &Tensor| (x.max_shape()[0], x.max_shape()[1]);
        if sizes(key) != sizes(value) || sizes(query).0 != sizes(key).0 {
            let msg = format!(
                "shapes of queries {:?}, keys {:?} and values {:?} do not match",
                query.shape(),
                key.shape(),
                value.shape()
            );
            return Err(Error::Shape { op: "MultiHeadAttention", msg });
        }
        let (e, kv, d) = (self.size, self.kv_size(), self.size / self.heads);
        let rows = [(0, e), (e, e + kv), (e + kv, e + 2 * kv)];
        let project = |x: &Tensor, part: usize, heads: usize| -> Result<Tensor> {
            let (from, to) = rows[part];
            let weight = self.in_proj_weight.try_shrink(&[(from, to), (0, e)])?;
            let bias =
                self.in_proj_bias.as_ref().map(|b| b.try_shrink(&[(from, to)])).transpose()?;
            x.try_linear(&weight, bias.as_ref())?
                .try_reshape([x.max_shape()[0], x.max_shape()[1], heads, d])?
                .try_transpose(1, 2)
        };
        let (q, k, v) = (
            project(query, 0, self.heads)?,
            project(key, 1, self.kv_heads)?,
            project(value, 2, self.kv_heads)?,
        );
        let mut how = Attention::new().dropout(self.dropout.rate());
        if self.kv_heads != self.heads {
            how = how.grouped();
        }
        if self.causal {
            how = how.causal();
        }
        let out = q.try_scaled_dot_product_attention(
            &k,
            &v,
            mask.into_iter().fold(how, Attention::mask),
        )?;
        self.out_proj.try_forward(&out.try_transpose(1, 2)?.try_reshape(query.max_shape())?)
    }
    /// Calls [`try_attend`](Self::try_attend) and panics on an error.
    ///
    /// ```
    /// use picograd::{Tensor, nn::MultiHeadAttention};
    /// let (x, seen) = (Tensor::zeros([2, 5, 16]), Tensor::full([5, 5], true));
    /// assert_eq!(
    ///     MultiHeadAttention::new(16, 4).attend(&x, &x, &x, Some(&seen)).shape(),
    ///     [2, 5, 16]
    /// );
    /// ```
    #[track_caller]
    pub fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
    ) -> Tensor {
        or_panic(self.try_attend(query, key, value, mask))
    }
}

/// Self-attention over a sequence.
impl Layer for MultiHeadAttention {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.try_attend(x, x, x, None)
    }
}

/// A transformer block: self-attention, then two linear layers at each position, both with a
/// residual and a norm.
#[derive(Module)]
pub struct TransformerBlock {
    /// The self-attention.
    pub self_attn: MultiHeadAttention,
    /// The linear layer from `size` to the hidden size.
    pub linear1: Linear,
    /// The linear layer from the hidden size back to `size`.
    pub linear2: Linear,
    /// The norm of the attention.
    pub norm1: LayerNorm,
    /// The norm of the linear layers.
    pub norm2: LayerNorm,
    drop: Dropout,
    post_norm: bool,
    activation: fn(&Tensor) -> Tensor,
}

impl TransformerBlock {
    /// Creates attention over vectors of `size` elements in `heads` heads, and a hidden size of the
    /// linear layers. Norms come before attention and linear layers, and the activation is
    /// gelu.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, TransformerBlock};
    /// let block = TransformerBlock::new(16, 4, 64).causal().dropout(0.1);
    /// assert_eq!(block.forward(&Tensor::zeros([2, 5, 16])).shape(), [2, 5, 16]);
    /// ```
    #[track_caller]
    pub fn new(size: usize, heads: usize, hidden: usize) -> TransformerBlock {
        TransformerBlock {
            self_attn: MultiHeadAttention::new(size, heads),
            linear1: Linear::new(size, hidden),
            linear2: Linear::new(hidden, size),
            norm1: LayerNorm::new(size),
            norm2: LayerNorm::new(size),
            drop: Dropout::new(0.0),
            post_norm: false,
            activation: Tensor::gelu,
        }
    }
    /// Makes attention causal: a position attends to itself and to earlier positions.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, TransformerBlock};
    /// let block = TransformerBlock::new(16, 4, 64).causal();
    /// assert_eq!(block.forward(&Tensor::zeros([2, 5, 16])).shape(), [2, 5, 16]);
    /// ```
    pub fn causal(self) -> TransformerBlock {
        TransformerBlock { self_attn: self.self_attn.causal(), ..self }
    }
    /// Sets the number of key and value heads; see [`MultiHeadAttention::kv_heads`].
    ///
    /// ```
    /// use picograd::nn::TransformerBlock;
    /// assert_eq!(
    ///     TransformerBlock::new(16, 4, 64).kv_heads(1).self_attn.in_proj_weight.shape(),
    ///     [24, 16]
    /// );
    /// ```
    #[track_caller]
    pub fn kv_heads(self, heads: usize) -> TransformerBlock {
        TransformerBlock { self_attn: self.self_attn.kv_heads(heads), ..self }
    }
    /// Sets the probability of dropout in training, on the results of attention and linear layers
    /// and on the attention weights.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, Module, TransformerBlock};
    /// let block = TransformerBlock::new(16, 4, 64).dropout(0.1);
    /// block.eval(); // nothing is dropped
    /// assert_eq!(block.forward(&Tensor::zeros([2, 5, 16])).shape(), [2, 5, 16]);
    /// ```
    pub fn dropout(self, p: f64) -> TransformerBlock {
        TransformerBlock { self_attn: self.self_attn.dropout(p), drop: Dropout::new(p), ..self }
    }
    /// Places the norms after the residuals, as in the original transformer.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, TransformerBlock};
    /// let block = TransformerBlock::new(16, 4, 64).post_norm();
    /// assert_eq!(block.forward(&Tensor::zeros([2, 5, 16])).shape(), [2, 5, 16]);
    /// ```
    pub fn post_norm(self) -> TransformerBlock {
        TransformerBlock { post_norm: true, ..self }
    }
    /// Sets the activation, such as `Tensor::relu`.
    ///
    /// ```
    /// use picograd::Tensor;
    /// use picograd::nn::{Layer, TransformerBlock};
    /// let block = TransformerBlock::new(16, 4, 64).activation(Tensor::relu);
    /// assert_eq!(block.forward(&Tensor::zeros([2, 5, 16])).shape(), [2, 5, 16]);
    /// ```
    pub fn activation(self, activation: fn(&Tensor) -> Tensor) -> TransformerBlock {
        TransformerBlock { activation, ..self }
    }

    /// Computes the output with an attention mask; see [`MultiHeadAttention::try_attend`].
    ///
    /// ```
    /// use picograd::{Tensor, nn::TransformerBlock};
    /// let (x, seen) = (Tensor::zeros([2, 5, 16]), Tensor::full([5, 5], true).tril(0));
    /// assert_eq!(
    ///     TransformerBlock::new(16, 4, 64).try_forward_masked(&x, Some(&seen))?.shape(),
    ///     [2, 5, 16]
    /// );
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn try_forward_masked(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let attend = |x: &Tensor| self.drop.try_forward(&self.self_attn.try_attend(x, x, x, mask)?);
        let feed = |x: &Tensor| {
            let hidden =
                self.drop.try_forward(&(self.activation)(&self.linear1.try_forward(x)?))?;
            self.drop.try_forward(&self.linear2.try_forward(&hidden)?)
        };
        if self.post_norm {
            let x = self.norm1.try_forward(&x.try_add(attend(x)?)?)?;
            return self.norm2.try_forward(&x.try_add(feed(&x)?)?);
        }
        let x = x.try_add(attend(&self.norm1.try_forward(x)?)?)?;
        x.try_add(feed(&self.norm2.try_forward(&x)?)?)
    }
}

impl Layer for TransformerBlock {
    fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
        self.try_forward_masked(x, None)
    }
}
