//! Tokenizers of Hugging Face, by the crate `tokenizers`.

use std::{fmt, sync::Arc};

use halite_core::{Error, ErrorKind, Result, guard};
use serde_json::Value;
use tokenizers::{
    PostProcessor, TruncationDirection,
    tokenizer::{EncodeInput, Encoding},
};

/// A tokenizer described by a `tokenizer.json` of Hugging Face: byte pairs, WordPiece or whole
/// words, with its normalization, splitting and special tokens.
///
/// Padding and truncation of the file are not applied. Cloning is cheap.
#[derive(Clone)]
pub struct Subwords(Arc<Inner>);

struct Inner {
    tokenizer: tokenizers::Tokenizer,
    vocabulary: usize,
}

/// Parts of a `tokenizer.json` by their key, and the accepted types of them: those that
/// handle any text and setting without a panic.
const ACCEPTED: &[(&str, &str)] = &[
    ("model", "BPE, WordPiece, WordLevel"),
    (
        "normalizer",
        "BertNormalizer, Strip, StripAccents, NFC, NFD, NFKC, NFKD, Sequence, Lowercase, Nmt, \
         Replace, Prepend, ByteLevel",
    ),
    (
        "pre_tokenizer",
        "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Metaspace, Whitespace, WhitespaceSplit, \
         Sequence, Split, Punctuation, Digits, UnicodeScripts",
    ),
    (
        "post_processor",
        "BertProcessing, RobertaProcessing, ByteLevel, TemplateProcessing, Sequence",
    ),
    (
        "decoder",
        "BPEDecoder, ByteLevel, WordPiece, Metaspace, Sequence, Replace, Fuse, Strip, ByteFallback",
    ),
];

impl Subwords {
    /// Parses the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// If it is not JSON of this form, or has a part that is not supported: `Unigram` models and
    /// `Precompiled` normalization of SentencePiece are not.
    pub fn from_json(text: &str) -> Result<Self> {
        let value = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
        Subwords::from_value(value)
    }

    pub(super) fn from_value(mut value: Value) -> Result<Self> {
        check(&value)?;
        // Those of the program that trained the model; a batch here is padded by its own rules.
        if let Some(file) = value.as_object_mut() {
            file.remove("padding");
            file.remove("truncation");
        }
        let added = added_tokens(&value)?;
        let tokenizer: tokenizers::Tokenizer = caught(|| serde_json::from_value(value))?
            .map_err(|error| corrupt(error.to_string()))?;
        for (token, id) in added {
            let found = tokenizer.token_to_id(&token);
            if found.map(u64::from) != Some(id) {
                let found = found.map_or("none".to_owned(), |id| id.to_string());
                let message =
                    format!("the added token `{token}` has id {id}, and {found} by its place");
                return Err(corrupt(message));
            }
        }
        let mut tokens: Vec<(u32, String)> = (tokenizer.get_vocab(true).into_iter())
            .map(|(token, id)| (id, token))
            .collect();
        tokens.sort_unstable();
        if let Some([(id, one), (_, other)]) = tokens.windows(2).find(|pair| pair[0].0 == pair[1].0)
        {
            return Err(corrupt(format!("`{one}` and `{other}` both have id {id}")));
        }
        let Some(&(largest, _)) = tokens.last() else {
            return Err(corrupt("the vocabulary is empty".into()));
        };
        let vocabulary = largest as usize + 1;
        // What every input gets around it: post-processors have ids of their own.
        let around = caught(|| tokenizer.post_process(Encoding::default(), None, true))?;
        let around = around.map_err(failed)?;
        if let Some(id) = around.get_ids().iter().find(|&&id| id > largest) {
            return Err(corrupt(format!(
                "inputs get a special token of id {id}, and the largest id of the vocabulary is {largest}"
            )));
        }
        Ok(Subwords(Arc::new(Inner {
            tokenizer,
            vocabulary,
        })))
    }

    /// Vocabulary size: the largest id plus one, special tokens included.
    pub fn vocabulary(&self) -> usize {
        self.0.vocabulary
    }

    /// Id of a token, as the vocabulary writes it.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.0.tokenizer.token_to_id(token)
    }

    /// Normalizer and pre-tokenizer as a `tokenizer.json` describes them; null if there is none.
    pub fn steps(&self) -> [Value; 2] {
        let tokenizer = &self.0.tokenizer;
        let steps = [
            serde_json::to_value(tokenizer.get_normalizer()),
            serde_json::to_value(tokenizer.get_pre_tokenizer()),
        ];
        steps.map(|step| step.expect("a step that was parsed is printed"))
    }

    /// Encodes a text, without the special tokens around an input. Special tokens that are written
    /// in the text are found.
    ///
    /// # Errors
    /// If the text cannot be encoded with this vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.encoding(text)?.get_ids().to_vec())
    }

    /// Encodes a text as an input of the model: with the special tokens around it (`[CLS]` and
    /// `[SEP]`, the beginning of a text), and cut after at most `longest` tokens, these included.
    ///
    /// # Errors
    /// If the text cannot be encoded, or `longest` is below the number of special tokens.
    pub fn encode_input(&self, text: &str, longest: Option<usize>) -> Result<Vec<u32>> {
        let mut encoding = self.encoding(text)?;
        let processor = self.0.tokenizer.get_post_processor();
        let around = processor.map_or(0, |processor| processor.added_tokens(false));
        if let Some(longest) = longest {
            let Some(rest) = longest.checked_sub(around) else {
                let message = format!(
                    "inputs of at most {longest} tokens; the {around} special tokens do not fit"
                );
                return Err(Error::invalid("tokenizer", message));
            };
            encoding.truncate(rest, 0, TruncationDirection::Right);
        }
        let encoding = caught(|| self.0.tokenizer.post_process(encoding, None, true))?;
        Ok(encoding.map_err(failed)?.get_ids().to_vec())
    }

    fn encoding(&self, text: &str) -> Result<Encoding> {
        let input = EncodeInput::from(text);
        caught(|| self.0.tokenizer.encode_fast(input, false))?.map_err(failed)
    }

    /// Decodes tokens. Special and unknown tokens are skipped; invalid UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match caught(|| self.0.tokenizer.decode(tokens, true)) {
            Ok(Ok(text)) => text,
            _ => String::new(),
        }
    }

    /// The content of the `tokenizer.json` that describes it.
    pub(crate) fn to_json(&self) -> String {
        let text = self.0.tokenizer.to_string(false);
        text.expect("a tokenizer that was parsed is printed") + "\n"
    }
}

impl fmt::Debug for Subwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subwords({} tokens)", self.vocabulary())
    }
}

/// Checks the types of all parts.
fn check(value: &Value) -> Result<()> {
    if value.get("model").is_none() {
        return Err(corrupt("it has no `model`".into()));
    }
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, "tokenizer", message);
    for (key, accepted) in ACCEPTED {
        // Parts may be sequences of parts.
        let mut parts: Vec<&Value> = value.get(key).into_iter().collect();
        while let Some(part) = parts.pop() {
            if part.is_null() {
                continue;
            }
            // Files before version 0.9 leave out the type of byte pairs.
            let is_old_model = *key == "model" && part.get("merges").is_some();
            let kind = match part.get("type").and_then(Value::as_str) {
                Some(kind) => kind,
                None if is_old_model => "BPE",
                None => return Err(corrupt(format!("`{key}` has no `type`"))),
            };
            if !accepted.split(", ").any(|known| known == kind) {
                let message = format!("`{key}` is {kind}; expected one of {accepted}");
                return Err(unsupported(message));
            }
            let end = part.get("stop").and_then(Value::as_u64);
            if *key == "decoder" && end.is_some_and(|stop| stop > 0) {
                return Err(unsupported(
                    "a decoder strips the end of tokens; expected none".into(),
                ));
            }
            check_template(part)?;
            let inner = ["normalizers", "pretokenizers", "processors", "decoders"];
            let inner = inner.iter().filter_map(|key| part.get(key)?.as_array());
            parts.extend(inner.flatten());
        }
    }
    Ok(())
}

/// Checks that a template names no special token that it does not describe.
fn check_template(part: &Value) -> Result<()> {
    let templates = ["single", "pair"]
        .iter()
        .filter_map(|key| part.get(key)?.as_array());
    for piece in templates.flatten() {
        let name = piece
            .get("SpecialToken")
            .and_then(|token| token.get("id")?.as_str());
        let known = |name: &str| part.get("special_tokens")?.get(name);
        if let Some(name) = name.filter(|name| known(name).is_none()) {
            let message =
                format!("the template has the special token `{name}`, which is not described");
            return Err(corrupt(message));
        }
    }
    Ok(())
}

/// Runs code of the crate on what a file describes. It does not panic on the accepted parts but in
/// rare combinations of settings, which are an error then.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T> {
    guard::call(work).map_err(|panic| {
        let message = "the settings of the tokenizer do not fit together, or not the text";
        corrupt(format!("{message}: {panic}"))
    })
}

/// The added tokens of a file and their ids.
fn added_tokens(value: &Value) -> Result<Vec<(String, u64)>> {
    let tokens = value.get("added_tokens").and_then(Value::as_array);
    let token = |token: &Value| {
        let content = token.get("content").and_then(Value::as_str);
        let id = token.get("id").and_then(Value::as_u64);
        match content.zip(id) {
            Some((content, id)) => Ok((content.to_owned(), id)),
            None => Err(corrupt("an added token has no `content` or no `id`".into())),
        }
    };
    tokens.into_iter().flatten().map(token).collect()
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, "tokenizer", message)
}

fn failed(error: tokenizers::Error) -> Error {
    Error::invalid("tokenizer", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_token_beyond_the_vocabulary_is_an_error() {
        let file = |processor: &str| {
            format!(
                r#"{{"version": "1.0", "added_tokens": [], "post_processor": {processor}, "model":
                {{"type": "WordLevel", "vocab": {{"[UNK]": 0, "a": 1}}, "unk_token": "[UNK]"}}}}"#
            )
        };
        let template = |id: usize| {
            format!(
                r#"{{"type": "TemplateProcessing", "single": [{{"SpecialToken": {{"id": "a",
                "type_id": 0}}}}], "pair": [], "special_tokens": {{"a": {{"id": "a", "ids": [{id}],
                "tokens": ["a"]}}}}}}"#
            )
        };
        let roberta = |id: usize| {
            format!(
                r#"{{"type": "RobertaProcessing", "sep": ["a", 1], "cls": ["b", {id}],
                "trim_offsets": true, "add_prefix_space": true}}"#
            )
        };
        let bert = |id: usize| {
            format!(r#"{{"type": "BertProcessing", "sep": ["b", {id}], "cls": ["a", 1]}}"#)
        };
        for [known, unknown] in [
            [template(1), template(2)],
            [roberta(1), roberta(2)],
            [bert(0), bert(2)],
        ] {
            Subwords::from_json(&file(&known)).unwrap();
            let error = Subwords::from_json(&file(&unknown))
                .unwrap_err()
                .to_string();
            assert!(error.contains("a special token of id 2"), "{error}");
        }
    }
}
