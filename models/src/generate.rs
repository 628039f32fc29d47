//! Text generation.

use halite_core::{
    Array, Client, DType, Error, HostArray, Result, Sharding,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{Jit, Transformer, TransformerConfig, rng};

/// Options of text generation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Number of tokens to generate.
    pub count: usize,
    /// Sampling temperature, by which logits are divided. 1 samples from the model's distribution, 0
    /// always takes the most likely token (greedy decoding).
    pub temperature: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Generates text: returns `prompt` followed by `sampling.count` tokens, each sampled from the
/// model's distribution given up to `context` tokens before it.
///
/// One program generates all tokens. There is no KV cache: each token costs a forward pass over the
/// whole context.
///
/// # Errors
/// If the prompt is empty or has tokens outside of the vocabulary, if the temperature is negative or
/// not finite, or if the compiler fails.
pub fn generate(
    client: &Client,
    model: &Transformer<Array>,
    prompt: &[u32],
    sampling: Sampling,
) -> Result<Vec<u32>> {
    let total = check_sampling(model, prompt, sampling)?;
    let mut tokens = prompt.to_vec();
    tokens.resize(total, 0);
    let sharding = Sharding::replicated(model.tokens.table.sharding().mesh());
    let tokens = HostArray::from_slice(&tokens, [total])?;
    let tokens = Leaf(Array::upload(client, &tokens, &sharding)?);
    let program = generation(client, &model.config, prompt.len(), sampling);
    let Leaf(tokens) = program.run_with((Tree::leaf_refs(model), Tree::leaf_refs(&tokens)))?;
    Ok(tokens.read()?.as_slice::<u32>()?.to_vec())
}

/// Checks the arguments of [`generate`], and returns the number of tokens of the prompt and the
/// sample together.
fn check_sampling(model: &Transformer<Array>, prompt: &[u32], sampling: Sampling) -> Result<usize> {
    let Sampling {
        count, temperature, ..
    } = sampling;
    let invalid = |message: String| Err(Error::invalid("generate", message));
    let vocabulary = model.config.vocab_size;
    let unknown = prompt.iter().find(|&&token| token as usize >= vocabulary);
    if let Some(token) = unknown {
        return invalid(format!(
            "the prompt has token {token}, and the vocabulary size of the model is {vocabulary}"
        ));
    }
    if prompt.is_empty() {
        return invalid("the prompt is empty; expected at least one token".to_string());
    }
    if !(temperature.is_finite() && temperature >= 0.0) {
        return invalid(format!(
            "temperature {temperature}; expected 0 or a positive number"
        ));
    }
    // Positions are `s32` in the program.
    let total = prompt.len().checked_add(count);
    match total.filter(|total| i32::try_from(*total).is_ok()) {
        Some(total) => Ok(total),
        None => invalid(format!(
            "{count} tokens after a prompt of {}; expected at most {} together",
            prompt.len(),
            i32::MAX
        )),
    }
}

/// Program that fills in the tokens after a prompt of `start` tokens.
type Generation = Jit<Empty<()>, (Transformer<()>, Leaf<()>), Leaf<()>>;

fn generation(
    client: &Client,
    config: &TransformerConfig,
    start: usize,
    sampling: Sampling,
) -> Generation {
    let (count, vocabulary) = (sampling.count, config.vocab_size);
    let window = config.context_length.min(start + count);
    Generation::function(client, move |cx, (model, Leaf(tokens))| {
        cx.set_mode(false, None);
        let key = rng::constant_key(cx, rng::key(sampling.seed));
        cx.repeat(count, Leaf(tokens), |iteration, Leaf(tokens)| {
            let position = iteration + start as i32;
            let first = (position - window as i32).maximum(0);
            // Attention is causal: tokens from `position` on are padding and have no effect.
            let logits = model.forward(tokens.dynamic_slice(&[first], [window]).unsqueeze(0));
            let last = [
                cx.scalar(0.0, DType::S32),
                position - first - 1,
                cx.scalar(0.0, DType::S32),
            ];
            let logits = logits
                .dynamic_slice(&last, [1, 1, vocabulary])
                .flatten()
                .convert(DType::F32);
            let next = if sampling.temperature == 0.0 {
                logits.argmax(0)
            } else {
                rng::categorical(rng::fold_in(key, iteration), logits / sampling.temperature)
            };
            let next = next.convert(DType::U32).unsqueeze(0);
            Leaf(tokens.dynamic_update_slice(next, &[position]))
        })
    })
    .named("generate")
}
