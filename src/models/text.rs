//! Telling which token comes next, and writing by it.

use crate::{
    Array, DType, Error, HostArray, Result, Sharding,
    nn::{CrossEntropy, Decay, Jit, Mean, Tensor, Trace, Transformer, correct, rng},
    train::Task,
    tree::{Empty, Leaf, Tree},
};
use halite_core::Client;

/// Telling the next token at every position of windows of text: cross entropy in nats, and accuracy
/// as a metric. e to the loss is the perplexity.
///
/// A batch has windows `[batch, length + 1]` of token ids, as of
/// [`TokenWindows`](crate::data::text::TokenWindows).
#[derive(Clone, Copy, Debug, Default)]
pub struct LanguageModel;

/// A batch of windows of text.
#[derive(Tree, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBatch<L> {
    /// Token ids, `[batch, length + 1]`: each but the last is to tell the next.
    pub tokens: L,
    /// 1 for a window that counts, 0 for one that only fills the last batch.
    pub weight: L,
}

impl LanguageModel {
    /// Weights and tables decay, biases and scales do not. (The default of optimizers goes by
    /// dimensions, and biases of heads have two.)
    pub fn decay() -> Decay {
        Decay::rule(|path, _| path.ends_with(".weight") || path.ends_with(".table"))
    }
}

impl Task for LanguageModel {
    type Model = Transformer<()>;
    type Batch = TokenBatch<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Transformer<Tensor<'t>>,
        batch: &TokenBatch<Tensor<'t>>,
    ) -> Mean<'t> {
        let tokens = batch.tokens.convert(DType::S32);
        let last = tokens.dims()[1] - 1;
        let (inputs, targets) = (tokens.slice_dim(1, ..last), tokens.slice_dim(1, 1..));
        let weights = batch.weight.unsqueeze(1).broadcast_to(targets.dims());
        let logits = model.forward(inputs);
        cx.metric(
            "accuracy",
            Mean::weighted(correct(logits, targets, 1), weights),
        );
        CrossEntropy::new().weights(weights).loss(logits, targets)
    }
}

/// How a text is gone on with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// How many tokens to add.
    pub count: usize,
    /// What logits are divided by: 1 draws as the model says, less is more careful, 0 always takes
    /// the most likely token.
    pub temperature: f64,
    /// What is drawn is a function of it.
    pub seed: u64,
}

/// Goes on with a text: `prompt`, and so many tokens that the model draws one after the other, each
/// from what it says of the last `context` tokens before it.
///
/// One program does all of it. Nothing is kept of a token between steps: a step costs as much as
/// the whole context.
///
/// # Errors
/// If the prompt is empty or has tokens that the model has not; if the temperature is negative or
/// not finite; what the compiler says.
pub fn generate(
    client: &Client,
    model: &Transformer<Array>,
    prompt: &[u16],
    sampling: Sampling,
) -> Result<Vec<u16>> {
    let Sampling {
        count,
        temperature,
        seed,
    } = sampling;
    let config = model.config;
    let invalid = |message: String| Err(Error::invalid("generate", message));
    if let Some(token) = prompt
        .iter()
        .find(|&&token| usize::from(token) >= config.vocabulary)
    {
        return invalid(format!(
            "token {token} in the prompt; the model has {}",
            config.vocabulary
        ));
    }
    if prompt.is_empty() {
        return invalid("the prompt is empty; it needs at least one token".to_string());
    }
    if !(temperature.is_finite() && temperature >= 0.0) {
        return invalid(format!("temperature {temperature}; it must be 0 or more"));
    }
    // Places are `s32` in the program.
    let total = prompt
        .len()
        .checked_add(count)
        .filter(|total| i32::try_from(*total).is_ok());
    let (start, Some(total)) = (prompt.len(), total) else {
        let (length, most) = (prompt.len(), i32::MAX);
        return invalid(format!(
            "{count} tokens after a prompt of {length}; there can be {most} in all"
        ));
    };
    let window = config.context.min(total);
    let program = Jit::<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>::function(
        client,
        move |cx, (model, Leaf(tokens))| {
            cx.set_mode(false, None);
            let key = rng::constant_key(cx, rng::key(seed));
            cx.repeat(count, Leaf(tokens), |turn, Leaf(tokens)| {
                let place = turn + start as i32;
                let first = (place - window as i32).maximum(0);
                // Beyond `place` there is nothing yet, and nothing looks at it.
                let logits = model.forward(tokens.dynamic_slice(&[first], [window]).unsqueeze(0));
                let last = [
                    cx.scalar(0.0, DType::S32),
                    place - first - 1,
                    cx.scalar(0.0, DType::S32),
                ];
                let logits = logits
                    .dynamic_slice(&last, [1, 1, config.vocabulary])
                    .flatten()
                    .convert(DType::F32);
                let next = if temperature == 0.0 {
                    logits.argmax(0)
                } else {
                    rng::categorical(rng::fold_in(key, turn), logits / temperature)
                };
                Leaf(tokens.dynamic_update_slice(next.unsqueeze(0), &[place]))
            })
        },
    )
    .named("generate");

    let mut tokens: Vec<i32> = prompt.iter().map(|&token| i32::from(token)).collect();
    tokens.resize(total, 0);
    let sharding = Sharding::replicated(model.tokens.table.sharding().mesh());
    let tokens = Leaf(Array::upload(
        client,
        &HostArray::from_slice(&tokens, [total])?,
        &sharding,
    )?);
    let Leaf(tokens) = program.run_with((Tree::as_ref(model), Tree::as_ref(&tokens)))?;
    let tokens = tokens.read()?;
    Ok(tokens
        .as_slice::<i32>()?
        .iter()
        .map(|&token| token as u16)
        .collect())
}
