//! The two programs of a generation: one for the prompts, and one for a number of further tokens,
//! whose state, the cache, stays on the device.

use halite_core::{
    Client, DType, Tree,
    tree::{Empty, Leaf},
};
use halite_nn::{Jit, KeyValueCache, Tensor, Trace, Transformer};

use super::sampling::{Form, Numbers};

/// State of the sequences of a batch.
#[derive(Clone, Copy, Debug, Tree)]
pub(super) struct State<L> {
    pub(super) cache: KeyValueCache<L>,
    /// The last token of each sequence, which the cache does not have yet: `s32[batch]`.
    pub(super) tokens: L,
    /// Its position in the cache: `s32[]`.
    pub(super) position: L,
    /// Number of tokens that were drawn: `s32[]`.
    pub(super) drawn: L,
    /// Tokens that occurred: `bool[batch, vocab]`.
    pub(super) seen: Option<L>,
}

/// Prompts of a batch.
#[derive(Clone, Copy, Debug, Tree)]
pub(super) struct Prompts<L> {
    /// `u32[batch, time]`: each ends at position `last`; what is before and behind is padding.
    pub(super) tokens: L,
    /// Position of the last token of each prompt: `s32[]`.
    pub(super) last: L,
    /// Position of the first token of each prompt: `s32[batch]`. `None` if all are 0.
    pub(super) first: Option<L>,
    /// As in [`State`].
    pub(super) drawn: L,
    /// As in [`State`], for the tokens of the prompts.
    pub(super) seen: Option<L>,
}

/// Drawn tokens.
#[derive(Clone, Copy, Debug, Tree)]
pub(super) struct Drawn<L> {
    /// `s32[steps, batch]`
    pub(super) tokens: L,
    /// Whether all logits were finite or -inf: `bool[steps, batch]`.
    pub(super) is_finite: L,
}

/// Program over prompts.
pub(super) type Prefill =
    Jit<Empty<()>, (Transformer<()>, Prompts<()>, Numbers<()>), (State<()>, Drawn<()>)>;

/// Program of several tokens; its last input is the position of the first token of each sequence.
pub(super) type Decode =
    Jit<State<()>, (Transformer<()>, Numbers<()>, Option<Leaf<()>>), Drawn<()>>;

/// The program over prompts, for a cache of `length` positions.
pub(super) fn prefill(client: &Client, form: Form, length: usize) -> Prefill {
    Prefill::function(client, move |cx, (model, prompts, numbers)| {
        cx.set_mode(false, None);
        let Prompts {
            tokens,
            last,
            first,
            drawn,
            seen,
        } = prompts;
        let (x, cache) = model.prefill(tokens, first, length);
        let [batch, hidden] = [tokens.dims()[0], model.config.hidden_size];
        let zero = cx.scalar(0.0, DType::S32);
        let x = x.dynamic_slice(&[zero, last, zero], [batch, 1, hidden]);
        let state = State {
            cache,
            tokens: last,
            position: last + 1,
            drawn,
            seen,
        };
        let (state, tokens, is_finite) = next(cx, form, &model, x, state, &numbers);
        let drawn = Drawn {
            tokens: tokens.unsqueeze(0),
            is_finite: is_finite.unsqueeze(0),
        };
        (state, drawn)
    })
    .named("prefill")
}

/// The program of `steps` further tokens.
pub(super) fn decode(client: &Client, form: Form, steps: usize) -> Decode {
    Decode::new(
        client,
        move |cx, state: State<Tensor<'_>>, (model, numbers, first)| {
            cx.set_mode(false, None);
            let first = first.map(|Leaf(first)| first);
            let steps = Leaf(cx.arange(steps, DType::S32));
            cx.scan(state, steps, |state, _| {
                let tokens = state.tokens.unsqueeze(1);
                let (x, cache) = model.decode(tokens, state.cache, state.position, first);
                let position = state.position + 1;
                let state = State {
                    cache,
                    position,
                    ..state
                };
                let (state, tokens, is_finite) = next(cx, form, &model, x, state, &numbers);
                (state, Drawn { tokens, is_finite })
            })
        },
    )
    .named("decode")
}

/// Draws the next token of each sequence from features `[batch, 1, hidden size]`: the state with
/// it, the token, `s32[batch]`, and whether its logits are finite, `bool[batch]`.
fn next<'t>(
    cx: &'t Trace,
    form: Form,
    model: &Transformer<Tensor<'t>>,
    features: Tensor<'t>,
    state: State<Tensor<'t>>,
    numbers: &Numbers<Tensor<'t>>,
) -> (State<Tensor<'t>>, Tensor<'t>, Tensor<'t>) {
    let logits = model.logits(features.squeeze(1)).convert(DType::F32);
    // The maximum is NaN if one of them is.
    let is_finite = logits.max([1]).abs().lt(f64::INFINITY);
    let tokens = form.draw(logits, state.seen, state.drawn, numbers);
    let seen = state
        .seen
        .map(|seen| seen.or(tokens.one_hot(model.config.vocab_size, DType::Bool)));
    let drawn = state.drawn + cx.scalar(1.0, DType::S32);
    (
        State {
            tokens,
            drawn,
            seen,
            ..state
        },
        tokens,
        is_finite,
    )
}
