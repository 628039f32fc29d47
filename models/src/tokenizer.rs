//! The tokenizer of a published model.

use std::collections::BTreeMap;

use halite_core::{Error, ErrorKind, Result};
use halite_data::text::{BytePairs, Tokenizer, WordSplit};
use halite_weights::{Config, MetadataValue, keys};
use serde_json::Value;

use crate::{Pretrained, pretrained::json_of};

/// Kinds of tokens in llama.cpp's `tokenizer.ggml.token_type`.
const CONTROL: usize = 3;
const USER_DEFINED: usize = 4;

/// Splits into words by llama.cpp's names of them, and whether a beginning-of-text token is added
/// where `add_bos_token` does not say so.
const SPLITS: &[(&str, WordSplit, bool)] = &[
    ("gpt-2", WordSplit::Gpt2, false),
    ("smollm", WordSplit::SmolLm, false),
    ("llama-bpe", WordSplit::Llama3, true),
    ("llama3", WordSplit::Llama3, true),
    ("llama-v3", WordSplit::Llama3, true),
    ("qwen2", WordSplit::Qwen2, false),
    ("deepseek-r1-qwen", WordSplit::Qwen2, false),
];

/// Settings of a tokenizer beside `tokenizer.json`.
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

impl Pretrained {
    /// Opens the tokenizer: `tokenizer.json`, or GPT-2's two files, or the vocabulary of a GGUF
    /// file. A model compares its size with
    /// [`check_vocabulary`](halite_data::text::Tokenizer::check_vocabulary).
    ///
    /// # Errors
    /// If there is none, it is damaged, or it is of a kind that is not supported; if
    /// `tokenizer_config.json` contradicts it, or has a key that is not known.
    pub fn open_tokenizer(&self) -> Result<Tokenizer> {
        if self.is_gguf() {
            self.check_gguf_tokenizer()?;
            let pairs = byte_pairs(self.weights().metadata());
            let tokenizer = pairs.and_then(|pairs| pairs.tokenizer());
            return tokenizer.map_err(|error| {
                let message = format!("{}: {}", self.origin(), error.message());
                Error::new(error.kind(), "tokenizer", message)
            });
        }
        let tokenizer = Tokenizer::open(self.directory())?;
        let settings = self.json(TOKENIZER_CONFIG)?.unwrap_or_default();
        let is_bert = match settings["tokenizer_class"].as_str() {
            Some(class) => class.starts_with("BertTokenizer"),
            None => self.is_bert(),
        };
        let origin = self
            .directory()
            .join(TOKENIZER_CONFIG)
            .display()
            .to_string();
        let empty = Value::Object(Default::default());
        let fields = if settings.is_object() {
            &settings
        } else {
            &empty
        };
        let mut config = self.config_of(&origin, fields, &keys::TOKENIZER_CONFIG);
        compare(&mut config, &tokenizer, is_bert);
        config.finish()?;
        Ok(tokenizer)
    }

    /// Whether the model is a BERT, whose tokenizer is one where no file names another.
    fn is_bert(&self) -> bool {
        let kind = self
            .config()
            .ok()
            .and_then(|mut config| config.text("model_type"));
        kind == Some("bert")
    }

    /// `model_max_length` of `tokenizer_config.json`, if it is a length.
    pub(crate) fn longest_text(&self) -> Result<Option<usize>> {
        let Some(fields) = self.json(TOKENIZER_CONFIG)? else {
            return Ok(None);
        };
        let mut config = self.config_of(TOKENIZER_CONFIG, &fields, &keys::TOKENIZER_CONFIG);
        // "None" is 10^30.
        let length = config.number_or("model_max_length", f64::INFINITY);
        config.finish_part()?;
        Ok((1.0..1e9).contains(&length).then_some(length as usize))
    }

    /// Checks that the metadata of a GGUF file has nothing of the tokenizer that nobody reads.
    fn check_gguf_tokenizer(&self) -> Result<()> {
        const READ: [&str; 5] = ["model", "pre", "tokens", "merges", "token_type"];
        let is_read = |name: &str| {
            let name = name.strip_prefix("tokenizer.ggml.");
            name.is_none_or(|name| {
                READ.contains(&name) || matches!(name, "scores" | "added_tokens")
            })
        };
        let fields = self.weights().metadata().iter();
        let fields = fields.filter(|(name, _)| name.starts_with("tokenizer.") && !is_read(name));
        let fields = fields.filter_map(|(name, value)| Some((name.clone(), json_of(value)?)));
        let fields = Value::Object(fields.collect());
        let config = self.config_of(self.origin(), &fields, &keys::GGUF_TOKENIZER);
        config.value("tokenizer.ggml.add_bos_token");
        config.operation("tokenizer").finish()
    }
}

/// Notes the settings of a `tokenizer_config.json` that are not those of the `tokenizer.json` beside
/// it. transformers changes the tokenizer by them.
fn compare(config: &mut Config<'_>, tokenizer: &Tokenizer, is_bert: bool) {
    let [normalizer, words] = match tokenizer {
        Tokenizer::Subwords(subwords) => subwords.steps(),
        _ => [Value::Null, Value::Null],
    };
    let normalizers = nested(&normalizer, "normalizers");
    let bert = normalizers
        .iter()
        .find(|part| part["type"] == "BertNormalizer");
    let flag_of = |name: &str| bert.and_then(|bert| bert[name].as_bool());
    let lowercase = flag_of("lowercase");
    let words = nested(&words, "pretokenizers");
    let bytes = words.iter().find(|part| part["type"] == "ByteLevel");
    let around = tokenizer.encode_input("", None).unwrap_or_default();
    let has = |flag: &str, token: &str, place: Option<&u32>| {
        let token = config
            .value(token)
            .map(|token| token.get("content").unwrap_or(token));
        let id = token.and_then(|token| tokenizer.token_id(token.as_str()?));
        (flag.to_owned(), id.map(|id| place == Some(&id)))
    };
    let compared = [
        ("do_lower_case".to_owned(), lowercase),
        (
            "strip_accents".to_owned(),
            flag_of("strip_accents").or(lowercase),
        ),
        (
            "tokenize_chinese_chars".to_owned(),
            flag_of("handle_chinese_chars"),
        ),
        (
            "add_prefix_space".to_owned(),
            bytes.and_then(|bytes| bytes["add_prefix_space"].as_bool()),
        ),
        has("add_bos_token", "bos_token", around.first()),
        has("add_eos_token", "eos_token", around.last()),
    ];
    for (name, own) in compared {
        // What the tokenizer of BERT does where the field is left out.
        let is_given = ["do_lower_case", "tokenize_chinese_chars"].contains(&&*name) && is_bert;
        let default = is_given || own.unwrap_or_default();
        let given = config.flag_or(&name, default);
        if let Some(own) = own.filter(|own| *own != given) {
            config.problem(format!("`{name}` is {given}, and {own} by tokenizer.json"));
        }
    }
    compare_added(config, tokenizer);
}

/// Notes the first added token that has another id in the `tokenizer.json`.
fn compare_added(config: &mut Config<'_>, tokenizer: &Tokenizer) {
    let added = config
        .value("added_tokens_decoder")
        .and_then(Value::as_object);
    for (id, token) in added.into_iter().flatten() {
        let Some(text) = token["content"].as_str() else {
            continue;
        };
        if tokenizer.token_id(text).map(|id| id.to_string()).as_ref() != Some(id) {
            let text = text.escape_debug();
            config.problem(format!(
                "the added token `{text}` has not the id {id} in tokenizer.json"
            ));
            break;
        }
    }
}

/// A part of a `tokenizer.json`, or the parts that it is a sequence of.
fn nested<'v>(part: &'v Value, sequence: &str) -> Vec<&'v Value> {
    match part[sequence].as_array() {
        Some(parts) => parts
            .iter()
            .flat_map(|part| nested(part, sequence))
            .collect(),
        None => vec![part],
    }
}

/// The end of messages about vocabularies that are not known.
const ADVICE: &str = "; use the model's tokenizer.json";

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, "tokenizer", message)
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, "tokenizer", message)
}

fn check_model(model: Option<&str>) -> Result<()> {
    match model {
        Some("gpt2") => Ok(()),
        Some(other) => {
            let message = format!("`tokenizer.ggml.model` is `{other}`; expected `gpt2`{ADVICE}");
            Err(unsupported(message))
        }
        None => Err(corrupt("the file has no `tokenizer.ggml.model`".into())),
    }
}

/// The vocabulary in the metadata of a GGUF file.
fn byte_pairs(metadata: &BTreeMap<String, MetadataValue>) -> Result<BytePairs> {
    let field = |name: &str| metadata.get(&format!("tokenizer.ggml.{name}"));
    check_model(field("model").and_then(MetadataValue::as_str))?;
    let split = field("pre").and_then(MetadataValue::as_str);
    let words = SPLITS.iter().find(|(name, ..)| Some(*name) == split);
    let Some(&(_, words, adds_beginning)) = words else {
        let names: Vec<&str> = SPLITS.iter().map(|(name, ..)| *name).collect();
        let (split, names) = (split.unwrap_or("missing"), names.join(", "));
        let message = format!("`tokenizer.ggml.pre` is {split}; expected one of {names}{ADVICE}");
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
    let adds_beginning = match field("add_bos_token") {
        None => adds_beginning,
        Some(MetadataValue::Bool(adds)) => *adds,
        Some(_) => {
            return Err(corrupt(
                "`tokenizer.ggml.add_bos_token` is not true or false".into(),
            ));
        }
    };
    let beginning = match field("bos_token_id").and_then(MetadataValue::as_usize) {
        _ if !adds_beginning => None,
        Some(id) => Some(u32::try_from(id).unwrap_or(u32::MAX)),
        None => {
            let message = "texts begin with a token (`tokenizer.ggml.add_bos_token`), and there is no \
                           `tokenizer.ggml.bos_token_id`";
            return Err(corrupt(message.into()));
        }
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
