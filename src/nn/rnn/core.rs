//! The computation of recurrent layers: the weights and steps of cells, and stacks of cells over a
//! sequence.

use crate::dtype::promote;
use crate::error::{Error, Result};
use crate::nn::{Dropout, Layer, Module, Visitor, init, unexpected_input};
use crate::tensor::{Tensor, autocast};

/// The kind of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// One gate and a hyperbolic tangent, or a relu.
    Plain { relu: bool },
    /// Three gates: reset, update and new.
    Gru,
    /// Four gates: input, forget, cell and output.
    Lstm,
}

impl Kind {
    /// Rows of a weight per state element.
    fn gates(self) -> usize {
        match self {
            Kind::Plain { .. } => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }
}

/// The state between two time steps: the output, and the cell state of an LSTM.
pub(super) type State = (Tensor, Option<Tensor>);

/// The weights of one cell, initialized uniformly over ±1/√hidden.
pub(super) struct Weights {
    ih: Tensor,
    hh: Tensor,
    pub bias: Option<(Tensor, Tensor)>,
}

impl Weights {
    fn new(kind: Kind, inputs: usize, hidden: usize) -> Weights {
        let rows = kind.gates() * hidden;
        let weight = |shape: &[usize]| init::default_weight(shape, hidden).as_param();
        Weights {
            ih: weight(&[rows, inputs]),
            hh: weight(&[rows, hidden]),
            bias: Some((weight(&[rows]), weight(&[rows]))),
        }
    }
    pub(super) fn visit(&self, visitor: &mut Visitor<'_>, suffix: &str) {
        visitor.field(&format!("weight_ih{suffix}"), &self.ih);
        visitor.field(&format!("weight_hh{suffix}"), &self.hh);
        if let Some((ih, hh)) = &self.bias {
            visitor.field(&format!("bias_ih{suffix}"), ih);
            visitor.field(&format!("bias_hh{suffix}"), hh);
        }
    }
    /// Weights and state in autocast's narrow dtype: PyTorch computes whole cells in it.
    fn narrowed(&self, state: State) -> (Weights, State) {
        let narrow = autocast::narrow_layer;
        let bias = self.bias.as_ref().map(|(ih, hh)| (narrow(ih), narrow(hh)));
        (
            Weights { ih: narrow(&self.ih), hh: narrow(&self.hh), bias },
            (narrow(&state.0), state.1.as_ref().map(narrow)),
        )
    }
    /// Returns the contribution of the input to the gates, for one step or for all steps.
    fn of_input(&self, x: &Tensor) -> Result<Tensor> {
        x.try_linear(&self.ih, self.bias.as_ref().map(|b| &b.0))
    }
    /// Runs all steps over a sequence in either direction. Returns the outputs and the last state.
    /// The contribution of the input to the gates is one product for all steps.
    fn run(
        &self,
        layer: &'static str,
        kind: Kind,
        reverse: bool,
        x: &Tensor,
        first: State,
    ) -> Result<(Tensor, State)> {
        let (weights, first) = self.narrowed(first);
        let inputs = weights.of_input(&autocast::narrow_layer(x))?;
        // A step may compute in a wider dtype than that of the initial state.
        let first: Vec<Tensor> = std::iter::once(first.0).chain(first.1).collect();
        let dtype = first
            .iter()
            .chain([&weights.hh])
            .fold(inputs.dtype(), |dtype, t| promote(dtype, t.dtype()));
        let first: Vec<Tensor> = first.iter().map(|t| t.try_cast(dtype)).collect::<Result<_>>()?;
        let (last, mut outputs) = Tensor::scan_in(
            layer,
            reverse,
            &first.iter().collect::<Vec<_>>(),
            &[&inputs],
            |state, input| {
                let (h, c) =
                    weights.step(kind, &input[0], &(state[0].clone(), state.get(1).cloned()))?;
                Ok((std::iter::once(h.clone()).chain(c).collect(), vec![h]))
            },
        )?;
        let mut last = last.into_iter();
        let state = (last.next().expect("a state for each that was given"), last.next());
        Ok((outputs.remove(0), state))
    }
    /// One step, from the input's contribution to the gates and the previous state.
    fn step(&self, kind: Kind, input: &Tensor, state: &State) -> Result<State> {
        let (h, c) = state;
        // Materialized: a kernel that computes all gates of an element together has no register
        // tiles.
        let recurrent = h.try_linear(&self.hh, self.bias.as_ref().map(|b| &b.1))?.contiguous();
        match (kind, c) {
            (Kind::Plain { relu }, _) => {
                let sum = input.try_add(recurrent)?;
                Ok((if relu { sum.relu() } else { sum.tanh() }, None))
            }
            (Kind::Gru, _) => {
                let (i, r) = (input.try_chunk(3, -1)?, recurrent.try_chunk(3, -1)?);
                let (reset, update) =
                    (i[0].try_add(&r[0])?.sigmoid(), i[1].try_add(&r[1])?.sigmoid());
                let new = i[2].try_add(reset.try_mul(&r[2])?)?.tanh();
                Ok((new.try_add(update.try_mul(h.try_sub(&new)?)?)?, None))
            }
            (Kind::Lstm, Some(c)) => {
                let gates = input.try_add(recurrent)?.try_chunk(4, -1)?;
                let kept = gates[1].sigmoid().try_mul(c)?;
                let cell = kept.try_add(gates[0].sigmoid().try_mul(gates[2].tanh())?)?;
                Ok((gates[3].sigmoid().try_mul(cell.tanh())?, Some(cell)))
            }
            (Kind::Lstm, None) => unreachable!("an LSTM has a cell"),
        }
    }
}

/// Returns a state of zeros, if none was given.
fn start(kind: Kind, given: Option<State>, shape: &[usize]) -> State {
    let zeros = || Tensor::zeros(shape);
    given.unwrap_or_else(|| (zeros(), (kind == Kind::Lstm).then(zeros)))
}

/// Checks the shape of a state.
fn check_state(layer: &'static str, state: &Option<State>, shape: &[usize]) -> Result<()> {
    for t in state.iter().flat_map(|(h, c)| std::iter::once(h).chain(c)) {
        if t.shape() != shape {
            return Err(Error::Shape {
                op: layer,
                msg: format!("expected a state of {shape:?}, got {:?}", t.shape()),
            });
        }
    }
    Ok(())
}

/// A cell of any kind.
pub(super) struct Cell {
    name: &'static str,
    pub kind: Kind,
    pub weights: Weights,
}

impl Cell {
    pub(super) fn new(name: &'static str, kind: Kind, inputs: usize, hidden: usize) -> Cell {
        Cell { name, kind, weights: Weights::new(kind, inputs, hidden) }
    }
    pub(super) fn forward(&self, x: &Tensor, state: Option<State>) -> Result<State> {
        let (inputs, hidden) = (self.weights.ih.size(1), self.weights.hh.size(1));
        if x.ndim() != 2 || x.size(1) != inputs {
            return unexpected_input(self.name, format_args!("[batch, {inputs}]"), x);
        }
        let shape = [x.size(0), hidden];
        check_state(self.name, &state, &shape)?;
        let (weights, state) = self.weights.narrowed(start(self.kind, state, &shape));
        weights.step(self.kind, &weights.of_input(&autocast::narrow_layer(x))?, &state)
    }
}

/// A stack of cells of any kind, over a sequence.
pub(super) struct Recurrent {
    name: &'static str,
    pub kind: Kind,
    /// Per layer, one cell for each direction.
    layers: Vec<Vec<Weights>>,
    inputs: usize,
    hidden: usize,
    bidirectional: bool,
    pub batch_first: bool,
    pub dropout: Dropout,
}

impl Recurrent {
    pub(super) fn new(name: &'static str, kind: Kind, inputs: usize, hidden: usize) -> Recurrent {
        let dropout = Dropout::new(0.0);
        Recurrent {
            name,
            kind,
            layers: Vec::new(),
            inputs,
            hidden,
            bidirectional: false,
            batch_first: false,
            dropout,
        }
        .with_layers(1, false, true)
    }
    fn with_layers(self, count: usize, bidirectional: bool, bias: bool) -> Recurrent {
        let directions = 1 + bidirectional as usize;
        let cell = |layer: usize| {
            let inputs = if layer == 0 { self.inputs } else { self.hidden * directions };
            let w = Weights::new(self.kind, inputs, self.hidden);
            Weights { bias: w.bias.filter(|_| bias), ..w }
        };
        let layers =
            (0..count).map(|layer| (0..directions).map(|_| cell(layer)).collect()).collect();
        Recurrent { layers, bidirectional, ..self }
    }
    fn has_bias(&self) -> bool {
        self.layers.iter().flatten().all(|w| w.bias.is_some())
    }
    pub(super) fn num_layers(self, count: usize) -> Recurrent {
        let (both, bias) = (self.bidirectional, self.has_bias());
        self.with_layers(count, both, bias)
    }
    pub(super) fn bidirectional(self) -> Recurrent {
        let (count, bias) = (self.layers.len(), self.has_bias());
        self.with_layers(count, true, bias)
    }
    pub(super) fn bias(mut self, bias: bool) -> Recurrent {
        for w in self.layers.iter_mut().flatten() {
            w.bias = w.bias.take().filter(|_| bias);
        }
        self
    }

    pub(super) fn forward(&self, x: &Tensor, state: Option<State>) -> Result<(Tensor, State)> {
        if x.ndim() != 3 || x.size(2) != self.inputs {
            let axes = if self.batch_first { "batch, length" } else { "length, batch" };
            return unexpected_input(self.name, format_args!("[{axes}, {}]", self.inputs), x);
        }
        // The computation has time as its first axis.
        let mut x = if self.batch_first { x.try_transpose(0, 1)? } else { x.clone() };
        let (length, batch) = (x.size(0), x.size(1));
        if length == 0 {
            return Err(Error::Shape {
                op: self.name,
                msg: format!("a sequence of no steps, {:?}, has no last state", x.shape()),
            });
        }
        let directions = 1 + self.bidirectional as usize;
        let cells = self.layers.len() * directions;
        check_state(self.name, &state, &[cells, batch, self.hidden])?;
        let (h0, c0) = start(self.kind, state, &[cells, batch, self.hidden]);
        let pick = |t: &Tensor, i: usize| {
            t.try_shrink(&[(i, i + 1), (0, batch), (0, self.hidden)])?.try_squeeze(0)
        };
        let (mut last_h, mut last_c) = (Vec::new(), Vec::new());
        for (layer, cells) in self.layers.iter().enumerate() {
            if layer > 0 {
                x = self.dropout.try_forward(&x)?;
            }
            let mut outputs = Vec::new();
            for (direction, weights) in cells.iter().enumerate() {
                let i = layer * directions + direction;
                let state = (pick(&h0, i)?, c0.as_ref().map(|c| pick(c, i)).transpose()?);
                let (output, last) =
                    weights.run(self.name, self.kind, direction == 1, &x, state)?;
                outputs.push(output);
                last_h.push(last.0);
                last_c.extend(last.1);
            }
            x = Tensor::try_cat(&outputs, -1)?;
        }
        let x = if self.batch_first { x.try_transpose(0, 1)? } else { x };
        let cell = (self.kind == Kind::Lstm).then(|| Tensor::try_stack(&last_c, 0)).transpose()?;
        Ok((x, (Tensor::try_stack(&last_h, 0)?, cell)))
    }
}

impl Module for Recurrent {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (layer, cells) in self.layers.iter().enumerate() {
            for (direction, w) in cells.iter().enumerate() {
                w.visit(visitor, &format!("_l{layer}{}", ["", "_reverse"][direction]));
            }
        }
        self.dropout.visit(visitor);
    }
}
