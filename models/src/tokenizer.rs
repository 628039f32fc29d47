//! The tokenizer of a published model.

use std::collections::BTreeMap;

use halite_core::{Error, ErrorKind, Result};
use halite_data::text::{BytePairs, Tokenizer, WordSplit};
use halite_weights::MetadataValue;

use crate::Pretrained;

/// Kinds of tokens in llama.cpp's `tokenizer.ggml.token_type`.
const CONTROL: usize = 3;
const USER_DEFINED: usize = 4;

/// Splits into words by llama.cpp's names of them.
const SPLITS: &[(&str, WordSplit)] = &[
    ("gpt-2", WordSplit::Gpt2),
    ("smollm", WordSplit::SmolLm),
    ("llama-bpe", WordSplit::Llama3),
    ("qwen2", WordSplit::Qwen2),
];

impl Pretrained {
    /// Opens the tokenizer: `tokenizer.json`, or GPT-2's two files, or the vocabulary of a GGUF
    /// file. A model compares its size with
    /// [`check_vocabulary`](halite_data::text::Tokenizer::check_vocabulary).
    ///
    /// # Errors
    /// If there is none, it is damaged, or it is of a kind that is not supported.
    pub fn open_tokenizer(&self) -> Result<Tokenizer> {
        if self.is_gguf() {
            let pairs = byte_pairs(self.weights().metadata());
            let tokenizer = pairs.and_then(|pairs| pairs.tokenizer());
            return tokenizer.map_err(|error| {
                let message = format!("{}: {}", self.origin(), error.message());
                Error::new(error.kind(), "tokenizer", message)
            });
        }
        Tokenizer::open(self.directory())
    }
}

/// The vocabulary in the metadata of a GGUF file.
fn byte_pairs(metadata: &BTreeMap<String, MetadataValue>) -> Result<BytePairs> {
    let field = |name: &str| metadata.get(&format!("tokenizer.ggml.{name}"));
    let corrupt = |message: String| Error::new(ErrorKind::Corrupt, "tokenizer", message);
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, "tokenizer", message);
    let advice = "; use the model's tokenizer.json";
    match field("model").and_then(MetadataValue::as_str) {
        Some("gpt2") => {}
        Some(other) => {
            let message = format!("`tokenizer.ggml.model` is `{other}`; expected `gpt2`{advice}");
            return Err(unsupported(message));
        }
        None => return Err(corrupt("the file has no `tokenizer.ggml.model`".into())),
    }
    let split = field("pre").and_then(MetadataValue::as_str);
    let words = SPLITS.iter().find(|(name, _)| Some(*name) == split);
    let Some(&(_, words)) = words else {
        let names: Vec<&str> = SPLITS.iter().map(|(name, _)| *name).collect();
        let (split, names) = (split.unwrap_or("missing"), names.join(", "));
        let message = format!("`tokenizer.ggml.pre` is {split}; expected one of {names}{advice}");
        return Err(unsupported(message));
    };
    let texts = |name: &str| -> Result<Vec<String>> {
        let texts = field(name).and_then(MetadataValue::as_array);
        let texts = texts.and_then(|texts| {
            let text = |text: &MetadataValue| text.as_str().map(str::to_owned);
            texts.iter().map(text).collect()
        });
        texts.ok_or_else(|| corrupt(format!("`tokenizer.ggml.{name}` is not a list of texts")))
    };
    let tokens = texts("tokens")?;
    let kinds = field("token_type").and_then(MetadataValue::as_array);
    let of_kind = |kind: usize| -> Vec<u32> {
        let kinds = (0..).zip(kinds.into_iter().flatten());
        let is_kind = kinds.filter(|(_, value)| value.as_usize() == Some(kind));
        is_kind.map(|(id, _)| id).collect()
    };
    let adds_beginning = matches!(field("add_bos_token"), Some(MetadataValue::Bool(true)));
    let beginning = match field("bos_token_id").and_then(MetadataValue::as_usize) {
        Some(id) if adds_beginning => Some(u32::try_from(id).unwrap_or(u32::MAX)),
        _ => None,
    };
    Ok(BytePairs {
        tokens,
        merges: texts("merges")?,
        special: of_kind(CONTROL),
        added: of_kind(USER_DEFINED),
        beginning,
        words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_of_other_kinds_are_named() {
        let text = |text: &str| MetadataValue::String(text.to_owned());
        let mut metadata = BTreeMap::from([("tokenizer.ggml.model".to_owned(), text("llama"))]);
        let error = |metadata: &_| byte_pairs(metadata).unwrap_err().to_string();
        assert!(error(&metadata).contains("is `llama`; expected `gpt2`"));
        metadata.insert("tokenizer.ggml.model".into(), text("gpt2"));
        metadata.insert("tokenizer.ggml.pre".into(), text("viking"));
        assert!(error(&metadata).contains("is viking; expected one of gpt-2, smollm"));
        metadata.insert("tokenizer.ggml.pre".into(), text("smollm"));
        assert!(error(&metadata).contains("`tokenizer.ggml.tokens` is not a list of texts"));
    }
}
