//! The text of a run: where it comes from, its tokenizer, and its windows of tokens.

use std::{fmt, path::PathBuf, sync::Arc};

use clap::ValueEnum;
use halite::{
    Error, Result,
    core::files,
    data::{
        Dataset, DatasetExt, Subset,
        text::{TokenWindows, Tokenizer, books, fake_text, read},
    },
    fetch,
    nn::TransformerConfig,
};

use super::Text;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum TokenizerKind {
    /// The characters of the text
    Chars,
    /// The bytes of its UTF-8 encoding
    Bytes,
    /// GPT-2's byte-pair encoding
    Gpt2,
}

/// Source of the text.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// 18 books of Project Gutenberg.
    Books,
    /// One text file.
    File(PathBuf),
    /// Generated text.
    Fake,
}

/// Bytes of generated text.
const FAKE_BYTES: usize = 2_000_000;

pub(super) fn source(name: &str) -> Result<Source, String> {
    match name {
        "books" => Ok(Source::Books),
        path => match files::open_input(path.as_ref()) {
            Ok(_) => Ok(Source::File(path.into())),
            Err(error) => Err(format!("{error}; expected `books` or a text file")),
        },
    }
}

/// The name in the directory of the run.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Books => f.write_str("books"),
            Source::Fake => f.write_str("fake"),
            Source::File(path) => {
                f.write_str(&path.file_stem().unwrap_or_default().to_string_lossy())
            }
        }
    }
}

/// The text of a run, as tokens.
pub(super) struct Corpus {
    pub(super) tokenizer: Tokenizer,
    /// Tokens of the prompt of the sample.
    pub(super) prompt: Vec<u32>,
    pub(super) config: TransformerConfig,
    pub(super) train: Arc<Subset<Arc<TokenWindows>>>,
    pub(super) validation: TokenWindows,
    /// Steps of an epoch.
    pub(super) per_epoch: usize,
}

impl Text {
    /// Loads the text and splits it into windows of tokens.
    pub(super) fn corpus(&self) -> Result<Corpus> {
        let (cache, mut progress) = (self.run.cache()?, fetch::Bar::default());
        let texts = self.texts(&cache, &mut progress)?;
        let tokenizer = match self.tokenizer {
            TokenizerKind::Chars => Tokenizer::characters_of(&texts)?,
            TokenizerKind::Bytes => Tokenizer::Bytes,
            TokenizerKind::Gpt2 => Tokenizer::gpt2(&cache, &mut progress)?,
        };
        // A prompt that cannot be encoded is an error before the training, not after it.
        let prompt = self.prompt(&tokenizer, &texts[0])?;
        let config = self.config(tokenizer.vocabulary());
        config.check()?;

        let tokens = texts
            .iter()
            .map(|text| tokenizer.encode(text))
            .collect::<Result<Vec<_>>>()?;
        let [train, validation] =
            TokenWindows::split(&tokens, config.context_length, self.validation)?;
        let options = &self.run.options;
        let (windows, of_step) = (train.len(), options.samples_per_step());
        let per_epoch = (windows / of_step).min(self.steps);
        // The loader rejects fewer windows than a batch.
        let used = if per_epoch == 0 {
            windows
        } else {
            per_epoch * of_step
        };
        let [train, _] = train.split(used, options.seed)?;
        Ok(Corpus {
            tokenizer,
            prompt,
            config,
            train: Arc::new(train),
            validation,
            per_epoch,
        })
    }

    fn texts(&self, cache: &fetch::Cache, progress: &mut fetch::Bar) -> Result<Vec<String>> {
        match &self.data {
            Source::Books => {
                let books = books(cache, progress)?;
                Ok(books.into_iter().map(|book| book.text).collect())
            }
            Source::File(path) => {
                let text = read(path)?;
                if text.is_empty() {
                    let message = format!("{} is empty; expected text", path.display());
                    return Err(Error::invalid("train text", message));
                }
                Ok(vec![text])
            }
            Source::Fake => Ok(vec![fake_text(FAKE_BYTES, self.run.options.seed)]),
        }
    }

    /// Returns the tokens of `--prompt`, or of its default.
    fn prompt(&self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
        match &self.prompt {
            Some(prompt) => tokenizer.encode(prompt).map_err(|error| {
                let message = format!("--prompt {prompt:?}: {}", error.message());
                Error::invalid("train text", message)
            }),
            None => tokenizer
                .encode("The ")
                .or_else(|_| tokenizer.encode(&text.chars().take(4).collect::<String>())),
        }
    }
}

/// Describes the meaning of the tokens: runs with other tokens do not resume each other.
pub(super) fn described(tokenizer: &Tokenizer) -> String {
    match tokenizer {
        Tokenizer::Bytes => "bytes".into(),
        Tokenizer::Subwords(_) => "gpt2".into(),
        Tokenizer::Characters(_) => {
            let tokens: Vec<u32> = (0..tokenizer.vocabulary() as u32).collect();
            format!("chars {:?}", tokenizer.decode(&tokens))
        }
    }
}
