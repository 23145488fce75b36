//! Recurrent layers: cells, which compute one time step, and layers, which run stacked cells over a
//! sequence in one or both directions.

mod core;

use self::core::{Cell, Kind, Recurrent, State};
use super::{Dropout, Layer, Module, Visitor};
use crate::error::Result;
use crate::tensor::{Tensor, or_panic};

/// An example that shows the number of parameters.
macro_rules! parameters_example {
    ($name:ident $new:literal, $count:literal) => {
        concat!(
            "use picograd::nn::{Module, ",
            stringify!($name),
            "};\n",
            "assert_eq!(",
            stringify!($name),
            "::new",
            $new,
            ".parameters().len(), ",
            $count,
            ");",
        )
    };
}

/// An example that binds `$result` to the result of a call, and checks shapes.
macro_rules! state_example {
    ($name:ident $result:literal = $call:literal, $shapes:literal) => {
        concat!(
            "use picograd::{Tensor, nn::",
            stringify!($name),
            "};\n",
            "let ",
            $result,
            " = ",
            stringify!($name),
            "::new(3, 8).",
            $call,
            ";\n",
            $shapes,
        )
    };
}

/// Generates the code that the three kinds share, for the cell and for the layer.
macro_rules! recurrent {
    ($(
        $(#[$cell_doc:meta])*
        $cell:ident,
        $(#[$layer_doc:meta])*
        $layer:ident: $kind:expr;
    )*) => { $(
        $(#[$cell_doc])*
        pub struct $cell(Cell);

        impl $cell {
            /// Creates a cell from `inputs` elements to a state of `hidden` elements, with biases.
            ///
            /// ```
            #[doc = parameters_example!($cell "(3, 8)", "4")]
            /// ```
            pub fn new(inputs: usize, hidden: usize) -> $cell {
                $cell(Cell::new(stringify!($cell), $kind, inputs, hidden))
            }
            /// Enables or disables the biases.
            ///
            /// ```
            #[doc = parameters_example!($cell "(3, 8).bias(false)", "2")]
            /// ```
            pub fn bias(mut self, bias: bool) -> $cell {
                self.0.weights.bias = self.0.weights.bias.filter(|_| bias);
                self
            }
        }
        impl Module for $cell {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.0.weights.visit(visitor, "");
            }
        }

        $(#[$layer_doc])*
        pub struct $layer(Recurrent);

        impl $layer {
            /// Creates one layer from `inputs` elements to a state of `hidden` elements, with
            /// biases, forward in time.
            ///
            /// ```
            #[doc = forward_example!($layer "(3, 8)", "[5, 4, 3]", "shape()" == "[5, 4, 8]")]
            /// ```
            pub fn new(inputs: usize, hidden: usize) -> $layer {
                $layer(Recurrent::new(stringify!($layer), $kind, inputs, hidden))
            }
            /// Sets the number of stacked layers and reinitializes the weights.
            ///
            /// ```
            #[doc = parameters_example!($layer "(3, 8).num_layers(2)", "8")]
            /// ```
            pub fn num_layers(self, count: usize) -> $layer {
                $layer(self.0.num_layers(count))
            }
            /// Adds the backward direction; the outputs of both are concatenated. Reinitializes the
            /// weights.
            ///
            /// ```
            #[doc = forward_example!(
                $layer "(3, 8).bidirectional()", "[5, 4, 3]", "size(-1)" == "16"
            )]
            /// ```
            pub fn bidirectional(self) -> $layer {
                $layer(self.0.bidirectional())
            }
            /// Makes inputs and outputs `[batch, length, …]`. States are unchanged.
            ///
            /// ```
            #[doc = forward_example!(
                $layer "(3, 8).batch_first()", "[4, 5, 3]", "shape()" == "[4, 5, 8]"
            )]
            /// ```
            pub fn batch_first(mut self) -> $layer {
                self.0.batch_first = true;
                self
            }
            /// Enables or disables the biases.
            ///
            /// ```
            #[doc = parameters_example!($layer "(3, 8).bias(false)", "2")]
            /// ```
            pub fn bias(self, bias: bool) -> $layer {
                $layer(self.0.bias(bias))
            }
            /// Sets the probability of dropout between layers in training.
            ///
            /// ```
            #[doc = forward_example!(
                $layer "(3, 8).num_layers(2).dropout(0.1)", "[5, 4, 3]", "size(-1)" == "8"
            )]
            /// ```
            pub fn dropout(mut self, p: f64) -> $layer {
                self.0.dropout = Dropout::new(p);
                self
            }
        }
        impl Module for $layer {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.0.visit(visitor);
            }
        }
        /// The outputs of all steps from a state of zeros.
        impl Layer for $layer {
            fn try_forward(&self, x: &Tensor) -> Result<Tensor> {
                Ok(self.0.forward(x, None)?.0)
            }
        }
    )* };
}

recurrent! {
    /// One step of an Elman network: tanh of the weighted input plus the weighted state.
    RNNCell,
    /// An Elman network over `[length, batch, inputs]`.
    RNN: Kind::Plain { relu: false };
    /// One step of a gated recurrent unit (Cho et al., 2014).
    GRUCell,
    /// Gated recurrent units (Cho et al., 2014) over `[length, batch, inputs]`.
    GRU: Kind::Gru;
    /// One step of a long short-term memory (Hochreiter and Schmidhuber, 1997).
    LSTMCell,
    /// Long short-term memories (Hochreiter and Schmidhuber, 1997) over `[length, batch, inputs]`.
    ///
    /// ```
    /// use picograd::{Tensor, nn::LSTM};
    /// let lstm = LSTM::new(3, 8).num_layers(2).batch_first();
    /// let (y, (h, c)) = lstm.run(&Tensor::zeros([4, 5, 3]), None);
    /// assert_eq!((y.shape(), h.shape()), (vec![4, 5, 8], vec![2, 4, 8]));
    /// assert_eq!(c.shape(), h.shape());
    /// ```
    LSTM: Kind::Lstm;
}

/// Generates the methods of kinds with one state, and the relu option of the plain cell.
macro_rules! one_state {
    ($($cell:ident $layer:ident;)*) => { $(
        impl $cell {
            /// Computes the state after `[batch, inputs]`, from a state `[batch, hidden]` or from
            /// zeros.
            ///
            /// ```
            #[doc = state_example!($cell "h" = "try_forward(&Tensor::zeros([4, 3]), None)?",
                "assert_eq!(h.shape(), [4, 8]);\n# Ok::<(), picograd::Error>(())")]
            /// ```
            pub fn try_forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
                Ok(self.0.forward(x, state.map(|h| (h.clone(), None)))?.0)
            }
            /// Calls [`try_forward`](Self::try_forward) and panics on an error.
            ///
            /// ```
            #[doc = state_example!($cell "h" = "forward(&Tensor::zeros([4, 3]), None)",
                "assert_eq!(h.shape(), [4, 8]);")]
            /// ```
            #[track_caller]
            pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Tensor {
                or_panic(self.try_forward(x, state))
            }
        }
        impl $layer {
            /// Returns the outputs of all steps and the last state of each layer and direction,
            /// `[layers · directions, batch, hidden]`, from such a state or from zeros.
            ///
            /// ```
            #[doc = state_example!($layer "(y, h)" = "try_run(&Tensor::zeros([5, 4, 3]), None)?",
                "assert_eq!((y.shape(), h.shape()), (vec![5, 4, 8], vec![1, 4, 8]));")]
            /// # Ok::<(), picograd::Error>(())
            /// ```
            pub fn try_run(&self, x: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                let (y, (h, _)) = self.0.forward(x, state.map(|h| (h.clone(), None)))?;
                Ok((y, h))
            }
            /// Calls [`try_run`](Self::try_run) and panics on an error.
            ///
            /// ```
            #[doc = state_example!($layer "(y, h)" = "run(&Tensor::zeros([5, 4, 3]), None)",
                "assert_eq!((y.shape(), h.shape()), (vec![5, 4, 8], vec![1, 4, 8]));")]
            /// ```
            #[track_caller]
            pub fn run(&self, x: &Tensor, state: Option<&Tensor>) -> (Tensor, Tensor) {
                or_panic(self.try_run(x, state))
            }
        }
    )* };
}
one_state! { RNNCell RNN; GRUCell GRU; }

/// Generates the relu option of the plain kind.
macro_rules! relu_option {
    ($($name:ident;)*) => { $(
        impl $name {
            /// Uses relu instead of tanh.
            ///
            /// ```
            #[doc = parameters_example!($name "(3, 8).relu()", "4")]
            /// ```
            pub fn relu(mut self) -> $name {
                self.0.kind = Kind::Plain { relu: true };
                self
            }
        }
    )* };
}
relu_option! { RNNCell; RNN; }

/// Returns the output and cell state of an LSTM.
fn both((h, c): (&Tensor, &Tensor)) -> State {
    (h.clone(), Some(c.clone()))
}
fn unwrap((h, c): State) -> (Tensor, Tensor) {
    (h, c.expect("an LSTM has a cell"))
}

impl LSTMCell {
    /// Computes output and cell state after `[batch, inputs]`, from those before, each `[batch,
    /// hidden]`, or from zeros.
    ///
    /// ```
    /// use picograd::{Tensor, nn::LSTMCell};
    /// let (h, c) = LSTMCell::new(3, 8).try_forward(&Tensor::zeros([4, 3]), None)?;
    /// assert_eq!((h.shape(), c.shape()), (vec![4, 8], vec![4, 8]));
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn try_forward(
        &self,
        x: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, Tensor)> {
        Ok(unwrap(self.0.forward(x, state.map(both))?))
    }
    /// Calls [`try_forward`](Self::try_forward) and panics on an error.
    ///
    /// ```
    /// use picograd::{Tensor, nn::LSTMCell};
    /// let (cell, x) = (LSTMCell::new(3, 8), Tensor::zeros([4, 3]));
    /// let (h, c) = cell.forward(&x, None);
    /// assert_eq!(cell.forward(&x, Some((&h, &c))).0.shape(), [4, 8]);
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> (Tensor, Tensor) {
        or_panic(self.try_forward(x, state))
    }
}

impl LSTM {
    /// Returns the outputs of all steps, and the last output and cell state of each layer and
    /// direction, `[layers · directions, batch, hidden]`, from such a pair or from zeros.
    ///
    /// ```
    /// use picograd::{Tensor, nn::LSTM};
    /// let (y, (h, c)) = LSTM::new(3, 8).try_run(&Tensor::zeros([5, 4, 3]), None)?;
    /// assert_eq!((y.shape(), h.shape()), (vec![5, 4, 8], vec![1, 4, 8]));
    /// assert_eq!(c.shape(), h.shape());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn try_run(
        &self,
        x: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        let (y, state) = self.0.forward(x, state.map(both))?;
        Ok((y, unwrap(state)))
    }
    /// Calls [`try_run`](Self::try_run) and panics on an error.
    ///
    /// ```
    /// use picograd::{Tensor, nn::LSTM};
    /// let (y, (h, _)) = LSTM::new(3, 8).bidirectional().run(&Tensor::zeros([5, 4, 3]), None);
    /// assert_eq!((y.shape(), h.shape()), (vec![5, 4, 16], vec![2, 4, 8]));
    /// ```
    #[track_caller]
    pub fn run(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> (Tensor, (Tensor, Tensor)) {
        or_panic(self.try_run(x, state))
    }
}
