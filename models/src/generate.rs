//! Text generation with a key-value cache.

mod programs;
mod report;
mod run;
mod sampling;

use std::{collections::HashMap, ops::ControlFlow, sync::Arc, time::Instant};

use halite_core::{
    Array, Client, Error, HostArray, Result, Sharding,
    tree::{Leaf, Tree},
};
use halite_nn::{Transformer, rng};

use self::{
    programs::{Decode, Prefill, Prompts, decode, prefill},
    run::{HostDrawn, Run, Sequence},
    sampling::{Form, Numbers},
};
pub use self::{
    report::{GenerationReport, TokenRate},
    sampling::{Sampling, most_likely},
};

/// Options of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationOptions {
    /// Upper bound of the number of tokens generated for each prompt: 128.
    pub max_tokens: usize,
    /// Tokens that end a sequence; they are not part of it.
    pub stop: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: Sampling,
}

impl Default for GenerationOptions {
    /// At most 128 tokens from the model's distribution, without stop tokens.
    fn default() -> Self {
        GenerationOptions {
            max_tokens: 128,
            stop: Vec::new(),
            sampling: Sampling::default(),
        }
    }
}

/// A token as soon as it is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GeneratedToken {
    /// Index of the prompt that it continues.
    pub sequence: usize,
    /// The token.
    pub token: u32,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FinishReason {
    /// It has [`GenerationOptions::max_tokens`] tokens.
    MaxTokens,
    /// The model gave this stop token.
    Stop(u32),
    /// The callback returned [`ControlFlow::Break`].
    Interrupted,
}

/// What was generated after a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedSequence {
    /// The tokens, without the prompt and the stop token.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: FinishReason,
}

/// Result of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// What was generated, in the order of the prompts.
    pub sequences: Vec<GeneratedSequence>,
    /// What it took.
    pub report: GenerationReport,
}

/// Generates text with a [`Transformer`]: one program processes the prompts and fills the key-value
/// cache, another one generates a few tokens a launch. Both are compiled once for each batch size,
/// rounded prompt length and rounded total length, and the cache stays on the device.
///
/// Prompts of a batch may have different lengths; greedy results are those of each prompt alone, up
/// to rounding.
///
/// A sequence may be longer than the context: when it is full, the last half of it is processed
/// again as a prompt.
///
/// ```
/// use halite_core::Client;
/// use halite_models::{GenerationOptions, Generator, Sampling};
/// use halite_nn::{Model, Transformer, TransformerConfig};
/// use halite_embedded::{Options, Embedded};
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Embedded::new(&Options::default())?);
/// let model = Transformer::new(&TransformerConfig::tiny())?.initialize(&client, 7)?;
///
/// let mut generator = Generator::new(&client, &model);
/// let options = GenerationOptions { max_tokens: 5, sampling: Sampling::greedy(), ..Default::default() };
/// let generation = generator.generate(&[&[1, 2, 3][..], &[4]], &options)?;
/// assert_eq!(generation.sequences[1].tokens.len(), 5);
/// println!("{}", generation.report); // prefill 4 tokens in .. s (.. tokens/s), decode 8 tokens ..
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Generator<'m> {
    client: Client,
    model: &'m Transformer<Array>,
    tokens_per_launch: usize,
    prefills: HashMap<Shape, Prefill>,
    decodes: HashMap<Shape, Decode>,
}

/// What a program is compiled for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Shape {
    form: Form,
    batch: usize,
    /// Tokens of a prompt, or of a launch.
    time: usize,
    /// Positions of the cache.
    length: usize,
    is_ragged: bool,
}

impl<'m> Generator<'m> {
    /// A generator of `model`, on its devices.
    pub fn new(client: &Client, model: &'m Transformer<Array>) -> Self {
        Generator {
            client: client.clone(),
            model,
            tokens_per_launch: 8,
            prefills: HashMap::new(),
            decodes: HashMap::new(),
        }
    }

    /// Sets the number of tokens that one launch generates, at least 1 and at most
    /// [`max_tokens`](GenerationOptions::max_tokens); 8 by default. Stop tokens are looked for
    /// between launches, so that up to one less is computed in vain. More tokens make launches
    /// rarer, fewer let a stream flow evenly.
    pub fn tokens_per_launch(mut self, tokens: usize) -> Self {
        self.tokens_per_launch = tokens.max(1);
        self
    }

    /// Generates a continuation of each prompt.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub fn generate<P: AsRef<[u32]>>(
        &mut self,
        prompts: &[P],
        options: &GenerationOptions,
    ) -> Result<Generation> {
        self.stream(prompts, options, |_| ControlFlow::Continue(()))
    }

    /// Generates a continuation of each prompt, and calls `on_token` for each token as soon as it
    /// is known, until it returns [`ControlFlow::Break`].
    ///
    /// # Errors
    /// If there are no prompts, or one is empty or has tokens outside of the vocabulary; if an
    /// option is invalid; if logits are NaN or infinite; if the compiler fails, or a device has too
    /// little memory.
    pub fn stream<P: AsRef<[u32]>>(
        &mut self,
        prompts: &[P],
        options: &GenerationOptions,
        mut on_token: impl FnMut(GeneratedToken) -> ControlFlow<()>,
    ) -> Result<Generation> {
        let prompts: Vec<&[u32]> = prompts.iter().map(AsRef::as_ref).collect();
        self.check(&prompts, options)?;
        let begun = |prompt: &&[u32]| Sequence {
            tokens: prompt.to_vec(),
            prompt: prompt.len(),
            finish: (options.max_tokens == 0).then_some(FinishReason::MaxTokens),
        };
        let mut run = Run {
            sequences: prompts.iter().map(begun).collect(),
            options,
            report: GenerationReport::default(),
            on_token: &mut on_token,
        };
        while run.is_active() {
            self.until_context_is_full(&mut run)?;
        }
        let ended = |sequence: Sequence| GeneratedSequence {
            tokens: sequence.tokens[sequence.prompt..].to_vec(),
            finish: sequence.finish.unwrap_or(FinishReason::Interrupted),
        };
        Ok(Generation {
            sequences: run.sequences.into_iter().map(ended).collect(),
            report: run.report,
        })
    }

    fn check(&self, prompts: &[&[u32]], options: &GenerationOptions) -> Result<()> {
        let config = &self.model.config;
        let invalid = |message: String| Err(Error::invalid("generate", message));
        if prompts.is_empty() {
            return invalid("there are no prompts; expected at least one".to_owned());
        }
        for (index, prompt) in prompts.iter().enumerate() {
            let of = match prompts.len() {
                1 => "the prompt".to_owned(),
                _ => format!("prompt {index}"),
            };
            if prompt.is_empty() {
                return invalid(format!("{of} is empty; expected at least one token"));
            }
            let unknown = prompt
                .iter()
                .find(|&&token| token as usize >= config.vocab_size);
            if let Some(token) = unknown {
                return invalid(format!(
                    "{of} has token {token}, and the vocabulary size of the model is {}",
                    config.vocab_size
                ));
            }
        }
        // Positions and tokens are `s32` in the programs.
        if i32::try_from(config.context_length.max(config.vocab_size)).is_err() {
            return invalid(format!("{config}: more than {} of a kind", i32::MAX));
        }
        options.sampling.check(config.vocab_size)
    }

    /// Processes the ends of the sequences as prompts, and generates until all are finished, or the
    /// context is full.
    fn until_context_is_full(&mut self, run: &mut Run<'_>) -> Result<()> {
        let context = self.model.config.context_length;
        let form = run.options.sampling.form();
        let ends = run.ends(context);
        let longest = ends
            .iter()
            .map(|end| end.len())
            .max()
            .expect("there are prompts");
        let time = rounded(longest).min(context);
        let length = longest.saturating_add(run.remaining()).min(context);
        let length = rounded(length).clamp(time, context);
        let count = ends.iter().map(|end| end.len()).sum();
        let numbers = self.numbers(&run.options.sampling)?;
        let (prompts, first) = self.prompts(&ends, [longest, time], form, run)?;
        // A launch generates all of its tokens, even if none of them is wanted.
        let wanted = run.options.max_tokens.min(context).max(1);
        let (client, steps) = (&self.client, self.tokens_per_launch.min(wanted));
        let mut shape = Shape {
            form,
            batch: ends.len(),
            time,
            length,
            is_ragged: first.is_some(),
        };
        let program = self.prefills.entry(shape);
        let program = program.or_insert_with(|| prefill(client, form, length));
        let compiled = program.stages().total();
        let start = Instant::now();
        let inputs = (
            self.model.leaf_refs(),
            prompts.leaf_refs(),
            numbers.leaf_refs(),
        );
        let (mut state, drawn) = program.run_with(inputs)?;
        let drawn = HostDrawn::read(&drawn)?;
        let compiled = program.stages().total() - compiled;
        run.report.compile += compiled;
        run.report
            .prefill
            .add(count, start.elapsed().saturating_sub(compiled));
        run.take(&drawn, 1)?;

        shape.time = steps;
        let mut position = longest;
        while run.is_active() && position < length {
            let program = self.decodes.entry(shape);
            let program = program.or_insert_with(|| decode(client, form, steps));
            let compiled = program.stages().total();
            let start = Instant::now();
            let first = first.as_ref().map(Leaf);
            let inputs = (self.model.leaf_refs(), numbers.leaf_refs(), first);
            let (next, drawn) = program.call_with(state, inputs)?;
            let drawn = HostDrawn::read(&drawn)?;
            let compiled = program.stages().total() - compiled;
            run.report.compile += compiled;
            let time = start.elapsed().saturating_sub(compiled);
            let taken = run.take(&drawn, steps.min(length - position))?;
            run.report.decode.add(taken, time);
            (state, position) = (next, position + steps);
        }
        Ok(())
    }

    /// The sharding of small arrays: replicated over the devices of the model.
    fn replicated(&self) -> Arc<Sharding> {
        Sharding::replicated(self.model.tokens.table.sharding().mesh())
    }

    fn numbers(&self, sampling: &Sampling) -> Result<Numbers<Array>> {
        let sharding = self.replicated();
        let scalar = |value: f64| {
            let value = HostArray::from_slice(&[value as f32], [])?;
            Array::upload(&self.client, &value, &sharding)
        };
        let key = HostArray::from_slice(&rng::key(sampling.seed), [2])?;
        Ok(Numbers {
            penalty: scalar(sampling.repetition_penalty)?,
            temperature: scalar(sampling.temperature)?,
            top_p: scalar(sampling.top_p.unwrap_or(1.0))?,
            key: Array::upload(&self.client, &key, &sharding)?,
        })
    }

    /// Uploads the ends of sequences so that all end at position `longest - 1` of `time`; the
    /// positions of their first tokens are returned, too, unless all are 0.
    fn prompts(
        &self,
        ends: &[&[u32]],
        times: [usize; 2],
        form: Form,
        run: &Run<'_>,
    ) -> Result<(Prompts<Array>, Option<Array>)> {
        let [longest, time] = times;
        let sharding = self.replicated();
        let upload = |host: &HostArray| Array::upload(&self.client, host, &sharding);
        let batch = ends.len();
        let mut tokens = vec![0u32; batch * time];
        let mut first = Vec::with_capacity(batch);
        for (row, end) in ends.iter().enumerate() {
            let start = longest - end.len();
            first.push(start as i32);
            tokens[row * time + start..][..end.len()].copy_from_slice(end);
        }
        let is_ragged = first.iter().any(|&first| first != 0);
        let first = HostArray::from_slice(&first, [batch])?;
        let first = || is_ragged.then(|| upload(&first)).transpose();
        let scalar = |value: usize| upload(&HostArray::from_slice(&[value as i32], [])?);
        let prompts = Prompts {
            tokens: upload(&HostArray::from_slice(&tokens, [batch, time])?)?,
            last: scalar(longest - 1)?,
            first: first()?,
            drawn: scalar(run.drawn())?,
            seen: if form.has_penalty {
                Some(upload(&run.seen(self.model.config.vocab_size)?)?)
            } else {
                None
            },
        };
        Ok((prompts, first()?))
    }
}

/// The next larger of the sizes for which programs are compiled: quarters of powers of two, from 16
/// on.
fn rounded(size: usize) -> usize {
    let step = (size.next_power_of_two() / 8).max(4);
    size.next_multiple_of(step).max(16)
}
