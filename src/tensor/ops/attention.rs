//! Scaled dot-product attention: two matrix products with a softmax between them.

use crate::error::Result;
use crate::tensor::{Tensor, autocast};

/// Options of attention: `Attention::new().causal()`.
#[derive(Clone, Default)]
pub struct Attention {
    mask: Option<Tensor>,
    causal: bool,
    scale: Option<f64>,
    grouped: bool,
    dropout: f64,
}

setters! { Attention;
    /// No mask, scores scaled by 1/√size.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Attention};
    /// let (q, v) = (Tensor::zeros([1, 1]), Tensor::new([[1.0f32], [3.0]]));
    /// let out = q.scaled_dot_product_attention(&Tensor::zeros([2, 1]), &v, Attention::new());
    /// assert_eq!(out.to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    new;
    /// Mask, broadcast to `[…, queries, keys]`: bools are true for visible keys, floats are added
    /// to the scores.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Attention};
    /// let (q, v) = (Tensor::zeros([2, 1]), Tensor::new([[1.0f32], [3.0]]));
    /// let seen = Tensor::new([[true, false], [true, true]]);
    /// let out = q.scaled_dot_product_attention(&q, &v, Attention::new().mask(&seen));
    /// assert_eq!(out.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    mask(mask: &Tensor) mask = Some(mask.clone());
    /// Causal mask: a query sees the keys up to its own position.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Attention};
    /// let (q, v) = (Tensor::zeros([2, 1]), Tensor::new([[1.0f32], [3.0]]));
    /// let out = q.scaled_dot_product_attention(&q, &v, Attention::new().causal());
    /// assert_eq!(out.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    causal() causal = true;
    /// Scale of the scores, in place of 1/√size.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Attention};
    /// let (q, v) = (Tensor::new([[1.0f32], [9.0]]), Tensor::new([[1.0f32], [3.0]]));
    /// let out = q.scaled_dot_product_attention(&q, &v, Attention::new().scale(0.0));
    /// assert_eq!(out.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    scale(scale: f64) scale = Some(scale);
    /// Grouped-query attention: each head of keys and values serves several heads of queries, along
    /// axis -3.
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Attention};
    /// let (q, kv) = (Tensor::zeros([8, 5, 4]), Tensor::zeros([2, 5, 4]));
    /// let y = q.scaled_dot_product_attention(&kv, &kv, Attention::new().grouped());
    /// assert_eq!(y.shape(), [8, 5, 4]);
    /// ```
    grouped() grouped = true;
    /// Dropout probability of the attention weights, as in [`Tensor::dropout`].
    ///
    /// ```
    /// use picograd::{Tensor, tensor::Attention};
    /// let x = Tensor::ones([3, 1]);
    /// let out = x.scaled_dot_product_attention(&x, &x, Attention::new().dropout(1.0));
    /// assert_eq!(out.to_vec::<f32>()?, [0.0; 3]);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    dropout(p: f64) dropout = p;
}

impl Tensor {
    fallible! {
        /// softmax(Q·Kᵀ·scale)·V, where this is Q of `[…, queries, size]`, the key is `[…, keys,
        /// size]` and the value `[…, keys, out]`. Scores and softmax are computed in `f32` for
        /// narrower floats. A query without visible keys gives 0 with gradient 0.
        ///
        /// ```
        /// use picograd::{Tensor, tensor::Attention};
        /// let (q, v) = (Tensor::zeros([2, 1]), Tensor::new([[1.0f32], [3.0]]));
        /// let out = q.scaled_dot_product_attention(&q, &v, Attention::new().causal());
        /// assert_eq!(out.to_vec::<f32>()?, [1.0, 2.0]);
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn scaled_dot_product_attention | try_scaled_dot_product_attention(
            &self, key: &Tensor, value: &Tensor, options: Attention,
        ) -> Tensor {
            if let Some([q, k, v]) = autocast::narrow([self, key, value]) {
                return q.try_scaled_dot_product_attention(&k, &v, options);
            }
            let (q, k, v) = (self.dims(), key.dims(), value.dims());
            let fits = |q: &[usize], k: &[usize], v: &[usize]| match (q, k, v) {
                ([.., _, e], [.., s, f], [.., t, _]) => e == f && s == t,
                _ => false,
            };
            if !fits(&q, &k, &v) {
                return shape_error!(
                    "expected query, key and value of […, L, E], […, S, E] and […, S, V], got \
                     {q:?}, {k:?} and {v:?}"
                );
            }
            self.require_static("scaled_dot_product_attention", [q.len() - 1])?;
            let (key, value) = match options.grouped {
                true => (repeat_heads(&q, key, value)?, repeat_heads(&q, value, key)?),
                false => (key.clone(), value.clone()),
            };
            let scale = options.scale.unwrap_or(1.0 / (q[q.len() - 1] as f64).sqrt());
            let transposed = key.as_wide_float().try_transpose(-1, -2)?;
            let scores = self.as_wide_float().try_matmul(&transposed)? * scale;
            let weights = options.weights(scores)?.try_cast(self.as_float().dtype())?;
            weights.try_dropout(options.dropout)?.try_matmul(&value)
        }
    }
}

/// Repeats the heads of a key or value for grouped queries. The `other` has as many heads.
fn repeat_heads(query: &[usize], x: &Tensor, other: &Tensor) -> Result<Tensor> {
    let (k, v) = (x.dims(), other.dims());
    let heads = |d: &[usize]| if d.len() >= 3 { d[d.len() - 3] } else { 1 };
    let (n, each) = (heads(query), heads(&k));
    if query.len() < 3 || each != heads(&v) || each == 0 || !n.is_multiple_of(each) {
        return shape_error!(
            "the heads of query {query:?} are not a multiple of those of key and value, {k:?} and \
             {v:?}"
        );
    }
    x.try_repeat_interleave(n / each, -3)
}

impl Attention {
    /// Softmax of the masked scores.
    fn weights(&self, mut scores: Tensor) -> Result<Tensor> {
        if self.causal {
            let rank = scores.ndim();
            let seen = scores.iota_along(rank - 1)?.try_le(scores.iota_along(rank - 2)?)?;
            scores = seen.try_where_(scores, f64::NEG_INFINITY)?;
        }
        match &self.mask {
            None => scores.try_softmax(-1),
            // Only a mask can leave a query without visible keys.
            Some(mask) if mask.dtype().is_bool() => {
                mask.try_where_(scores, f64::NEG_INFINITY)?.masked_softmax()
            }
            Some(mask) => scores.try_add(mask)?.masked_softmax(),
        }
    }
}
