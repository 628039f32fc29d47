//! Embeddings of texts by a sentence encoder.

mod modules;

use std::{
    cmp::Reverse,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use halite_core::{
    Array, Client, DType, HostArray, Result,
    tree::{Empty, Leaf, Tree},
};
use halite_data::text::Tokenizer;
use halite_nn::{Jit, Tensor};

use self::modules::Modules;
use crate::{Bert, Pooling, Pretrained};

/// Lengths that inputs are padded to: each is a program, and padding costs a third at most.
const LENGTHS: &[usize] = &[8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// Length of a vector below which it is not divided by it.
const SHORTEST: f64 = 1e-12;

/// Options of a [`SentenceEncoder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbedOptions {
    /// How the vectors of the tokens become one.
    pub pooling: Pooling,
    /// Whether embeddings have length 1.
    pub normalize: bool,
    /// Whether texts become lower case before they are encoded.
    pub lowercase: bool,
    /// Tokens of a text that are used, special tokens included.
    pub longest: usize,
    /// Texts in a launch.
    pub batch_size: usize,
}

impl EmbedOptions {
    /// Reads the options of a model directory of the Python package `sentence-transformers`:
    /// `modules.json`, the configurations of its modules, `sentence_bert_config.json` and
    /// `config_sentence_transformers.json`. Without these files: length 1, mean pooling, all
    /// positions of the model.
    ///
    /// # Errors
    /// If a file cannot be read, describes another module or another kind of pooling, or has a key
    /// that is not known.
    pub fn of(source: &Pretrained, positions: usize) -> Result<Self> {
        let modules = Modules::of(source)?;
        Ok(EmbedOptions {
            pooling: modules.pooling,
            normalize: modules.normalize,
            lowercase: modules.lowercase,
            longest: modules.longest.unwrap_or(positions).min(positions),
            batch_size: 32,
        })
    }

    /// Maps `features: [batch, time, hidden size]` to embeddings `f32[batch, hidden size]`. `mask:
    /// bool[batch, time]` is false at padding.
    pub fn pooled<'t>(&self, features: Tensor<'t>, mask: Tensor<'t>) -> Tensor<'t> {
        let pooled = self.pooling.pool(features, mask).convert(DType::F32);
        if !self.normalize {
            return pooled;
        }
        let length = pooled.square().sum_keep([1]).sqrt();
        pooled / length.maximum(SHORTEST)
    }
}

/// Program of one batch: tokens and mask, both `[batch, time]`, to embeddings.
type Program = Jit<Empty<()>, (Bert<()>, Leaf<()>, Leaf<()>), Leaf<()>>;

/// A [`Bert`] with its tokenizer: from texts to embeddings.
///
/// Texts are sorted by length and padded within a batch; results do not depend on the other texts.
#[derive(Debug)]
pub struct SentenceEncoder {
    client: Client,
    model: Bert<Array>,
    tokenizer: Tokenizer,
    options: EmbedOptions,
    /// By the shape of a batch: how many of them there are is expected.
    programs: Mutex<HashMap<[usize; 2], Arc<Program>>>,
}

impl SentenceEncoder {
    /// Loads a model directory, and its tokenizer, onto the client's first device.
    ///
    /// # Errors
    /// If it cannot be opened or loaded, or the tokenizer has another vocabulary than the model.
    pub fn from_pretrained(client: &Client, path: impl AsRef<Path>) -> Result<Self> {
        let opened = Bert::from_pretrained(path)?;
        let tokenizer = opened.source.open_tokenizer()?;
        let options = EmbedOptions::of(&opened.source, opened.model.config.context_length)?;
        Self::new(client, opened.load(client)?, tokenizer, options)
    }

    /// Combines a model and its tokenizer.
    ///
    /// # Errors
    /// If the tokenizer has another vocabulary than the model, or an option is 0 or more than the
    /// model's positions.
    pub fn new(
        client: &Client,
        model: Bert<Array>,
        tokenizer: Tokenizer,
        options: EmbedOptions,
    ) -> Result<Self> {
        tokenizer.check_vocabulary(model.config.vocab_size)?;
        let positions = model.config.context_length;
        let EmbedOptions {
            longest,
            batch_size,
            ..
        } = options;
        if longest == 0 || longest > positions || batch_size == 0 {
            let message = format!(
                "texts of at most {longest} tokens in batches of {batch_size}; expected 1 to \
                 {positions} tokens, and at least one text"
            );
            return Err(halite_core::Error::invalid("embed", message));
        }
        Ok(SentenceEncoder {
            client: client.clone(),
            model,
            tokenizer,
            options,
            programs: Mutex::default(),
        })
    }

    /// The program of batches of this shape, which is compiled at its first launch.
    fn program(&self, shape: [usize; 2]) -> Arc<Program> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let options = self.options;
        let program = programs.entry(shape).or_insert_with(|| {
            let program = Program::function(
                &self.client,
                move |cx, (model, Leaf(tokens), Leaf(mask))| {
                    cx.set_mode(false, None);
                    Leaf(options.pooled(model.forward(tokens, mask), mask))
                },
            );
            Arc::new(program.named("embed"))
        });
        program.clone()
    }

    /// Number of features of an embedding.
    pub fn features(&self) -> usize {
        self.model.config.hidden_size
    }

    /// Embeds texts: `f32[texts, features]`, in their order. A text beyond the longest input is cut.
    ///
    /// # Errors
    /// If a text cannot be encoded, or a program fails.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<HostArray> {
        let longest = self.options.longest;
        let inputs = texts
            .iter()
            .map(|text| {
                let text = text.as_ref();
                if self.options.lowercase {
                    self.tokenizer
                        .encode_input(&text.to_lowercase(), Some(longest))
                } else {
                    self.tokenizer.encode_input(text, Some(longest))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        // Longest first: the batch that takes the most memory is the first.
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        order.sort_by_key(|&text| Reverse(inputs[text].len()));
        let features = self.features();
        let mut embeddings = vec![0.0f32; texts.len() * features];
        let batches: Vec<&[usize]> = order.chunks(self.options.batch_size).collect();
        // All are queued before the first is read.
        let launch = |batch: &&[usize]| {
            let rows: Vec<&[u32]> = batch.iter().map(|&text| &*inputs[text]).collect();
            self.launch(&rows)
        };
        let launched = batches.iter().map(launch).collect::<Result<Vec<_>>>()?;
        for (batch, results) in batches.into_iter().zip(launched) {
            let results = results.read()?;
            for (&text, row) in batch
                .iter()
                .zip(results.as_slice::<f32>()?.chunks(features))
            {
                embeddings[text * features..][..features].copy_from_slice(row);
            }
        }
        HostArray::from_slice(&embeddings, [texts.len(), features])
    }

    /// Runs one batch, padded to one of few shapes.
    fn launch(&self, rows: &[&[u32]]) -> Result<Array> {
        let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let length = LENGTHS.iter().copied().find(|&length| length >= longest);
        let positions = self.model.config.context_length;
        let length = length.unwrap_or(positions).clamp(longest.max(1), positions);
        let count = rows.len().next_power_of_two().min(self.options.batch_size);
        let mut tokens = vec![0u32; count * length];
        let mut mask = vec![false; count * length];
        for (index, row) in rows.iter().enumerate() {
            tokens[index * length..][..row.len()].copy_from_slice(row);
            mask[index * length..][..row.len()].fill(true);
        }
        let upload = |array: HostArray| -> Result<Array> {
            let sharding =
                halite_core::Sharding::replicated(self.model.words.table.sharding().mesh());
            Array::upload(&self.client, &array, &sharding)
        };
        let tokens = Leaf(upload(HostArray::from_slice(&tokens, [count, length])?)?);
        let mask = Leaf(upload(HostArray::from_slice(&mask, [count, length])?)?);
        let inputs = (
            Tree::leaf_refs(&self.model),
            Tree::leaf_refs(&tokens),
            Tree::leaf_refs(&mask),
        );
        let Leaf(results) = self.program([count, length]).run_with(inputs)?;
        Ok(results)
    }
}
