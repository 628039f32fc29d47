//! Embeddings of texts by a sentence encoder.

use std::{
    cmp::Reverse,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use halite_core::{
    Array, Client, DType, Error, ErrorKind, HostArray, Result,
    tree::{Empty, Leaf, Tree},
};
use halite_data::text::Tokenizer;
use halite_nn::Jit;
use serde_json::Value;

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
    /// Tokens of a text that are used, special tokens included.
    pub longest: usize,
    /// Texts in a launch.
    pub batch_size: usize,
}

impl EmbedOptions {
    /// Reads the options of a model directory of the Python package `sentence-transformers`:
    /// `modules.json`, `1_Pooling/config.json` and `sentence_bert_config.json`. Without these files:
    /// length 1, mean pooling, all positions of the model.
    ///
    /// # Errors
    /// If a file cannot be read, or describes another module or another kind of pooling.
    pub fn of(source: &Pretrained, positions: usize) -> Result<Self> {
        let longest = source.json("sentence_bert_config.json")?;
        let longest = longest.and_then(|file| file.get("max_seq_length")?.as_u64());
        let longest = longest.map_or(positions, |longest| longest as usize);
        Ok(EmbedOptions {
            pooling: pooling(source)?,
            normalize: normalizes(source)?,
            longest: longest.min(positions),
            batch_size: 32,
        })
    }
}

/// Whether the modules of a directory give embeddings of length 1: true without `modules.json`.
fn normalizes(source: &Pretrained) -> Result<bool> {
    const FILE: &str = "modules.json";
    const KNOWN: [&str; 3] = ["Transformer", "Pooling", "Normalize"];
    let Some(modules) = source.json_list(FILE)? else {
        return Ok(true);
    };
    let types = modules
        .iter()
        .map(|module| module.get("type")?.as_str()?.rsplit('.').next());
    let types: Vec<&str> = types.map(Option::unwrap_or_default).collect();
    match types.iter().find(|ty| !KNOWN.contains(ty)) {
        Some(other) => Err(unsupported(source, FILE, other, &KNOWN)),
        None => Ok(types.contains(&"Normalize")),
    }
}

/// The pooling of a directory: by default the mean.
fn pooling(source: &Pretrained) -> Result<Pooling> {
    const FILE: &str = "1_Pooling/config.json";
    const PREFIX: &str = "pooling_mode_";
    const KNOWN: [&str; 2] = ["pooling_mode_mean_tokens", "pooling_mode_cls_token"];
    let Some(Value::Object(fields)) = source.json(FILE)? else {
        return Ok(Pooling::Mean);
    };
    let chosen = (fields.iter())
        .filter(|(name, value)| name.starts_with(PREFIX) && value.as_bool() == Some(true));
    let chosen: Vec<&str> = chosen.map(|(name, _)| name.as_str()).collect();
    match chosen[..] {
        [] | ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::Cls),
        _ => Err(unsupported(source, FILE, &chosen.join("`, `"), &KNOWN)),
    }
}

fn unsupported(source: &Pretrained, file: &str, found: &str, known: &[&str]) -> Error {
    let message = format!(
        "{}: `{}` in {file}; supported: {}",
        source.origin(),
        found.escape_debug(),
        known.join(", ")
    );
    Error::new(ErrorKind::Unsupported, "embed", message)
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
                    let features = model.forward(tokens, mask);
                    let pooled = options.pooling.pool(features, mask).convert(DType::F32);
                    if !options.normalize {
                        return Leaf(pooled);
                    }
                    let length = pooled.square().sum_keep([1]).sqrt();
                    Leaf(pooled / length.maximum(SHORTEST))
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
            .map(|text| self.tokenizer.encode_input(text.as_ref(), Some(longest)))
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
