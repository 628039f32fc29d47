//! Recurrent layers: LSTM and GRU, with PyTorch's gates.

use std::panic::Location;

use halite_core::{DType, TensorType, Tree, tree::Leaf};

use crate::{Dropout, Init, Param, ParamKind, ScanOptions, Tensor, check::Checked, special::wide};

/// Stack of recurrent layers with `GATES` gates, scanned over time; batch first, as
/// `torch.nn.LSTM(batch_first=True)`. [`Lstm`] and [`Gru`] are its two forms.
///
/// ```
/// use halite_core::{DType, TensorType, Tree};
/// use halite_nn::{Lstm, Trace, summary};
///
/// let lstm = Lstm::new(8, 16).layers(2).bidirectional();
/// assert!(summary(&lstm).contains("layers.1.backward.weight_ih  f32[32, 64]"));
///
/// let cx = Trace::new();
/// let lstm = lstm.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
/// let x = cx.input(TensorType::new(DType::F32, [4, 10, 8]), "x");
/// let (outputs, state) = lstm.forward(x, None);
/// assert_eq!(outputs.dims(), [4, 10, 32]);
/// assert_eq!(state.hidden.dims(), [4, 4, 16]); // layers times directions, batch, hidden
/// assert!(cx.mistakes().is_empty());
/// ```
#[derive(Clone, Debug, Tree)]
pub struct Recurrent<L, const GATES: usize> {
    /// The layers, in order.
    pub layers: Vec<RecurrentLayer<L>>,
    /// Dropout of the outputs of each layer but the last.
    pub dropout: Dropout,
}

/// Long short-term memory (Hochreiter and Schmidhuber 1997): `torch.nn.LSTM`. The gates are input,
/// forget, cell, output, in this order:
/// `c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`, `h' = sigmoid(o) * tanh(c')`.
pub type Lstm<L> = Recurrent<L, 4>;

/// Gated recurrent unit (Cho et al. 2014): `torch.nn.GRU`. The gates are reset, update, new, in
/// this order: `n = tanh(W x + b + sigmoid(r) * (U h + c))`,
/// `h' = (1 - sigmoid(z)) * n + sigmoid(z) * h`.
pub type Gru<L> = Recurrent<L, 3>;

/// One layer of a [`Recurrent`], in one or both directions of time.
#[derive(Clone, Debug, Tree)]
pub struct RecurrentLayer<L> {
    /// From the first position to the last.
    pub forward: Gates<L>,
    /// From the last position to the first, if the layer is bidirectional. Its outputs follow those
    /// of `forward` among the features.
    pub backward: Option<Gates<L>>,
}

/// Weights of the gates of one layer and direction, side by side in PyTorch's order.
#[derive(Clone, Debug, Tree)]
pub struct Gates<L> {
    /// Weight of the inputs, `[in, gates * hidden]`.
    pub weight_ih: L,
    /// Weight of the hidden state, `[hidden, gates * hidden]`.
    pub weight_hh: L,
    /// Bias of the inputs, `[gates * hidden]`.
    pub bias_ih: Option<L>,
    /// Bias of the hidden state, `[gates * hidden]`.
    pub bias_hh: Option<L>,
}

/// State of an [`Lstm`] before the first or after the last position.
#[derive(Clone, Debug, Tree)]
pub struct LstmState<L> {
    /// Hidden state, `[layers * directions, batch, hidden]`: the directions of the first layer, of
    /// the second, and so on.
    pub hidden: L,
    /// Cell state, of the same type.
    pub cell: L,
}

impl<const GATES: usize> Recurrent<Param, GATES> {
    /// Creates one layer from `inputs` to `hidden` features, with biases, from the first position to
    /// the last. Initialized uniformly within `1 / sqrt(hidden)`, as in PyTorch.
    pub fn new(inputs: usize, hidden: usize) -> Self {
        Recurrent {
            layers: vec![RecurrentLayer {
                forward: Gates::new(inputs, hidden, GATES),
                backward: None,
            }],
            dropout: Dropout::new(0.0),
        }
    }

    /// Sets the number of layers, at least 1; each takes the outputs of the one before.
    pub fn layers(self, count: usize) -> Self {
        let is_bidirectional = self.layers[0].backward.is_some();
        self.described(count.max(1), is_bidirectional)
    }

    /// Runs each layer in both directions.
    pub fn bidirectional(self) -> Self {
        let count = self.layers.len();
        self.described(count, true)
    }

    /// Removes the biases.
    pub fn without_bias(mut self) -> Self {
        for layer in &mut self.layers {
            for gates in [Some(&mut layer.forward), layer.backward.as_mut()]
                .into_iter()
                .flatten()
            {
                (gates.bias_ih, gates.bias_hh) = (None, None);
            }
        }
        self
    }

    /// Sets the dropout rate of the outputs of each layer but the last; a single layer drops nothing,
    /// which is a [warning](crate::Trace::warnings).
    pub fn dropout(mut self, rate: f64) -> Self {
        self.dropout = Dropout::new(rate);
        self
    }

    /// This with other layers, of the same features and biases.
    fn described(self, count: usize, is_bidirectional: bool) -> Self {
        let first = &self.layers[0].forward;
        let [inputs, hidden] =
            [&first.weight_ih, &first.weight_hh].map(|weight| weight.ty.dims()[0]);
        let has_bias = first.bias_ih.is_some();
        let directions = 1 + usize::from(is_bidirectional);
        let layer = |index: usize| {
            let inputs = if index == 0 {
                inputs
            } else {
                directions * hidden
            };
            let gates = || Gates::new(inputs, hidden, GATES);
            RecurrentLayer {
                forward: gates(),
                backward: is_bidirectional.then(gates),
            }
        };
        let all = Recurrent {
            layers: (0..count).map(layer).collect(),
            dropout: self.dropout,
        };
        if has_bias { all } else { all.without_bias() }
    }
}

impl Gates<Param> {
    fn new(inputs: usize, hidden: usize, gates: usize) -> Self {
        let init = Init::torch_default(hidden);
        let bias = || Some(Param::new([gates * hidden], init));
        Gates {
            weight_ih: Param::new([inputs, gates * hidden], init).of_kind(ParamKind::Linear),
            weight_hh: Param::new([hidden, gates * hidden], init).of_kind(ParamKind::Linear),
            bias_ih: bias(),
            bias_hh: bias(),
        }
    }
}

impl<'t> Lstm<Tensor<'t>> {
    /// Maps `x: [batch, time, in]` to outputs `[batch, time, directions * hidden]` and the state
    /// after the last position (of the backward direction: the first). It starts from `state`, or
    /// from zeros. For padded sequences use [`forward_padded`](Self::forward_padded).
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'t>,
        state: Option<LstmState<Tensor<'t>>>,
    ) -> (Tensor<'t>, LstmState<Tensor<'t>>) {
        let _site = x.trace().called_from(Location::caller());
        self.of_sequences(Sequences { x, lengths: None }, state)
    }

    /// Maps sequences of different lengths, of which `x: [batch, time, in]` has `lengths: [batch]`
    /// positions each, integers, and padding after them: PyTorch's `pack_padded_sequence`. The
    /// backward direction begins at the last position of each sequence, the state is that after
    /// it, and outputs of padding are 0. Padding may hold any values.
    #[track_caller]
    pub fn forward_padded(
        &self,
        x: Tensor<'t>,
        lengths: Tensor<'t>,
        state: Option<LstmState<Tensor<'t>>>,
    ) -> (Tensor<'t>, LstmState<Tensor<'t>>) {
        let _site = x.trace().called_from(Location::caller());
        let lengths = Some(lengths);
        self.of_sequences(Sequences { x, lengths }, state)
    }

    #[track_caller]
    fn of_sequences(
        &self,
        sequences: Sequences<'t>,
        state: Option<LstmState<Tensor<'t>>>,
    ) -> (Tensor<'t>, LstmState<Tensor<'t>>) {
        let state = state.map(|state| [state.hidden, state.cell]);
        let step = |gates: &Gates<Tensor<'t>>, projected: Tensor<'t>, [h, c]: [Tensor<'t>; 2]| {
            let sums = gates.of_hidden(h, projected.dtype()) + projected;
            let [i, f, g, o] = split(sums);
            let c = f.sigmoid() * c + i.sigmoid() * g.tanh();
            [o.sigmoid() * c.tanh(), c]
        };
        let (outputs, [hidden, cell]) = self.run("lstm", sequences, state, step);
        (outputs, LstmState { hidden, cell })
    }
}

impl<'t> Gru<Tensor<'t>> {
    /// Maps `x: [batch, time, in]` to outputs `[batch, time, directions * hidden]` and the hidden
    /// state after the last position (of the backward direction: the first), `[layers *
    /// directions, batch, hidden]`. It starts from `state`, or from zeros. For padded sequences use
    /// [`forward_padded`](Self::forward_padded).
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>, state: Option<Tensor<'t>>) -> (Tensor<'t>, Tensor<'t>) {
        let _site = x.trace().called_from(Location::caller());
        self.of_sequences(Sequences { x, lengths: None }, state)
    }

    /// Maps sequences of different lengths, `lengths: [batch]`, with padding after them, as
    /// [`Lstm::forward_padded`].
    #[track_caller]
    pub fn forward_padded(
        &self,
        x: Tensor<'t>,
        lengths: Tensor<'t>,
        state: Option<Tensor<'t>>,
    ) -> (Tensor<'t>, Tensor<'t>) {
        let _site = x.trace().called_from(Location::caller());
        let lengths = Some(lengths);
        self.of_sequences(Sequences { x, lengths }, state)
    }

    #[track_caller]
    fn of_sequences(
        &self,
        sequences: Sequences<'t>,
        state: Option<Tensor<'t>>,
    ) -> (Tensor<'t>, Tensor<'t>) {
        let step = |gates: &Gates<Tensor<'t>>, projected: Tensor<'t>, [h]: [Tensor<'t>; 1]| {
            let [r, z, n] = split(projected);
            let [hidden_r, hidden_z, hidden_n] = split(gates.of_hidden(h, projected.dtype()));
            let [r, z] = [r + hidden_r, z + hidden_z].map(Tensor::sigmoid);
            let n = (n + r * hidden_n).tanh();
            [n + z * (h - n)]
        };
        let (outputs, [hidden]) = self.run("gru", sequences, state.map(|state| [state]), step);
        (outputs, hidden)
    }
}

/// Inputs of a recurrent layer.
#[derive(Clone, Copy)]
struct Sequences<'t> {
    /// `[batch, time, in]`
    x: Tensor<'t>,
    /// Positions of each sequence, `[batch]`; the others are padding. `None`: all.
    lengths: Option<Tensor<'t>>,
}

impl<'t> Sequences<'t> {
    /// Whether a position is one of its sequence, `bool[batch, time]`.
    #[track_caller]
    fn held(self) -> Option<Tensor<'t>> {
        let (cx, dims) = (self.x.trace(), self.x.dims());
        let dims = &dims[..2];
        self.lengths.map(|lengths| {
            let lengths = lengths.counting();
            let position = cx.iota(&TensorType::new(lengths.dtype(), dims), 1);
            position.lt(lengths.broadcast_in_dim(dims, [0]))
        })
    }
}

/// `x: [first, second, ..]` where `held: [first, second]` or `[first]` is true, else `other`.
#[track_caller]
fn where_held<'t>(held: Tensor<'t>, x: Tensor<'t>, other: Tensor<'t>) -> Tensor<'t> {
    let dims: Vec<usize> = (0..held.rank()).collect();
    held.broadcast_in_dim(x.dims(), dims).select(x, other)
}

/// The next state of the sequences that have the position, with their output: padding keeps the
/// state, and its output is 0.
#[track_caller]
fn where_all_held<'t, const STATES: usize>(
    held: Option<Tensor<'t>>,
    next: [Tensor<'t>; STATES],
    state: [Tensor<'t>; STATES],
) -> ([Tensor<'t>; STATES], Tensor<'t>) {
    let Some(held) = held else {
        return (next, next[0]);
    };
    (
        std::array::from_fn(|at| where_held(held, next[at], state[at])),
        where_held(held, next[0], next[0].zeros_like()),
    )
}

impl<'t, const GATES: usize> Recurrent<Tensor<'t>, GATES> {
    /// Runs all layers. `step` maps weights, the projected input of a position and the state to the
    /// next state, of which the first tensor is the output; in the accumulation type.
    #[track_caller]
    fn run<const STATES: usize>(
        &self,
        name: &str,
        sequences: Sequences<'t>,
        state: Option<[Tensor<'t>; STATES]>,
        step: impl Fn(&Gates<Tensor<'t>>, Tensor<'t>, [Tensor<'t>; STATES]) -> [Tensor<'t>; STATES],
    ) -> (Tensor<'t>, [Tensor<'t>; STATES]) {
        let x = sequences.x;
        if let Err(error) = self.check(name, sequences, &state) {
            return (error, [error; STATES]);
        }
        let cx = x.trace();
        let (wide, batch) = (wide(x.dtype()), x.dims()[0]);
        let held = sequences.held();
        // What padding holds, such as NaN, would reach the gradients of the weights.
        let mut y = held.map_or(x, |held| where_held(held, x, x.zeros_like()));
        let held = held.map(|held| Leaf(held.swap_dims(0, 1)));
        let mut last = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let mut outputs = Vec::new();
            let directions = [
                Some((&layer.forward, false)),
                layer.backward.as_ref().map(|gates| (gates, true)),
            ];
            for (gates, reverse) in directions.into_iter().flatten() {
                let hidden = gates.weight_hh.dims()[0];
                let zeros = || cx.full(0.0, &TensorType::new(wide, [batch, hidden]));
                let first: Vec<Leaf<Tensor<'t>>> = (0..STATES)
                    .map(|at| match &state {
                        Some(state) => state[at].index(0, last.len()).convert(wide),
                        None => zeros(),
                    })
                    .map(Leaf)
                    .collect();
                // All positions at once: one product of matrices.
                let projected = gates.of_inputs(y).convert(wide).swap_dims(0, 1);
                let options = ScanOptions {
                    length: None,
                    reverse,
                };
                let inputs = (Leaf(projected), held);
                let (end, Leaf(ys)) =
                    cx.scan_with(options, first, inputs, |state, (Leaf(projected), held)| {
                        let state: Vec<Tensor<'t>> =
                            state.into_iter().map(|Leaf(leaf)| leaf).collect();
                        let state: [Tensor<'t>; STATES] = std::array::from_fn(|at| state[at]);
                        let next = step(gates, projected, state);
                        let held = held.map(|Leaf(held)| held);
                        let (next, output) = where_all_held(held, next, state);
                        (next.map(Leaf).to_vec(), Leaf(output.convert(x.dtype())))
                    });
                outputs.push(ys.swap_dims(0, 1));
                last.push(end);
            }
            y = cx.concat(&outputs, 2);
            if index + 1 < self.layers.len() {
                y = self.dropout.forward(y);
            }
        }
        let stacked = |at: usize| {
            let ends: Vec<Tensor<'t>> = last
                .iter()
                .map(|end| end[at].0.convert(x.dtype()))
                .collect();
            cx.stack(&ends, 0)
        };
        (y, std::array::from_fn(stacked))
    }

    /// Checks the input and the state.
    #[track_caller]
    fn check<const STATES: usize>(
        &self,
        name: &str,
        Sequences { x, lengths }: Sequences<'t>,
        state: &Option<[Tensor<'t>; STATES]>,
    ) -> Checked<'t> {
        let (cx, ty) = (x.trace(), x.ty());
        let given = state.iter().flatten().copied().chain(lengths);
        if let Some(error) = given.chain([x]).find(|tensor| tensor.is_error()) {
            return Err(error);
        }
        let Some(layer) = self.layers.first() else {
            return Err(cx.fail(name, "no layers".to_owned(), Some(ty)));
        };
        self.check_weights(name, x)?;
        let first = &layer.forward;
        let weight = first.weight_ih.ty();
        if ty.rank() != 3 || ty.dims()[2] != weight.dims()[0] || !ty.dtype().is_float() {
            let message = format!(
                "{ty} with a weight of {weight}; expected floats [batch, time, in], with the weight's \
                 first dimension as `in`"
            );
            return Err(cx.fail(name, message, Some(ty)));
        }
        if let Some(lengths) = lengths.map(|lengths| lengths.ty())
            && (lengths.dims() != &ty.dims()[..1] || !lengths.dtype().is_integer())
        {
            let message = format!(
                "lengths of {lengths} for an input of {ty}; expected integers [{}], the positions of \
                 each sequence",
                ty.dims()[0]
            );
            return Err(cx.fail(name, message, Some(ty)));
        }
        if self.layers.len() == 1 && self.dropout.rate > 0.0 {
            let message = format!(
                "the dropout of {} drops nothing: it is between layers, and there is one layer; apply \
                 `Dropout` to the outputs",
                self.dropout.rate
            );
            cx.warn_at(cx.origin(Location::caller()), name, message);
        }
        let directions = 1 + usize::from(layer.backward.is_some());
        let count = directions * self.layers.len();
        let expected = [count, ty.dims()[0], first.weight_hh.dims()[0]];
        for state in state.iter().flatten().map(|state| state.ty()) {
            if state.dims() != expected || !state.dtype().is_float() {
                let message = format!(
                    "a state of {state} for an input of {ty}; expected floats {expected:?}, which is \
                     [layers * directions, batch, hidden]"
                );
                return Err(cx.fail(name, message, Some(ty)));
            }
        }
        Ok(())
    }

    #[track_caller]
    fn check_weights(&self, name: &str, x: Tensor<'t>) -> Checked<'t> {
        let gates =
            (self.layers.iter()).flat_map(|layer| [Some(&layer.forward), layer.backward.as_ref()]);
        for weight in gates
            .flatten()
            .flat_map(|gates| [gates.weight_ih, gates.weight_hh])
        {
            if weight.is_error() {
                return Err(weight);
            }
            if weight.rank() != 2 {
                let message = format!(
                    "a weight of {}; expected [features, {GATES} * hidden]",
                    weight.ty()
                );
                return Err(x.trace().fail(name, message, Some(x.ty())));
            }
        }
        Ok(())
    }
}

impl<'t> Gates<Tensor<'t>> {
    /// Sums of the inputs: `[batch, time, in]` to `[batch, time, gates * hidden]`.
    #[track_caller]
    fn of_inputs(&self, x: Tensor<'t>) -> Tensor<'t> {
        let sums = x.matmul(self.weight_ih);
        self.bias_ih.map_or(sums, |bias| sums + bias)
    }

    /// Sums of the hidden state `h: [batch, hidden]`, `[batch, gates * hidden]` in type `dtype`. The
    /// product has the type of the weight.
    #[track_caller]
    fn of_hidden(&self, h: Tensor<'t>, dtype: DType) -> Tensor<'t> {
        let sums = h.convert(self.weight_hh.dtype()).matmul(self.weight_hh);
        self.bias_hh.map_or(sums, |bias| sums + bias).convert(dtype)
    }
}

/// The gates, which are side by side: `[batch, N * hidden]` to `N` times `[batch, hidden]`.
#[track_caller]
fn split<const N: usize>(x: Tensor<'_>) -> [Tensor<'_>; N] {
    let parts = x.split(-1, N);
    std::array::from_fn(|at| parts[at])
}
