//! Conversion of text to tokens and back.

use std::{collections::HashMap, path::Path};

use halite_core::{Error, ErrorKind, Result, files};
use halite_fetch::{Cache, Progress};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{BytePairs, Subwords, TextStream};

/// Converts text to tokens and back. Every token is less than [`vocabulary`](Self::vocabulary).
///
/// ```
/// use halite_data::text::Tokenizer;
///
/// let characters = Tokenizer::characters_of(["abc", "cab!"])?;
/// assert_eq!(characters.vocabulary(), 4);
/// assert_eq!(characters.encode("cab")?, [3, 1, 2]);
/// assert_eq!(characters.decode(&[0, 3]), "!c");
/// assert!(characters.encode("dab").unwrap_err().to_string().contains("'d'"));
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Tokenizer {
    /// A token for each byte of UTF-8: 256.
    Bytes,
    /// A token for each character of a text.
    Characters(Characters),
    /// Subwords of a published model: `tokenizer.json` of Hugging Face, or [`BytePairs`].
    Subwords(Subwords),
}

/// The characters of a text, numbered in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characters {
    characters: Vec<char>,
    places: HashMap<char, u32>,
}

/// The content of a saved tokenizer.
#[derive(Deserialize, Serialize)]
#[serde(tag = "tokenizer", rename_all = "lowercase")]
enum Saved {
    Bytes,
    Characters { characters: String },
}

/// Rows that an embedding table may have beyond its tokenizer's vocabulary: tables are padded to
/// multiples of 1,024 at most.
const PADDING: usize = 1024;

impl Tokenizer {
    /// Creates a tokenizer with a token for each character of these texts.
    ///
    /// # Errors
    /// If they have no character.
    pub fn characters_of<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut seen = std::collections::BTreeSet::new();
        for text in texts {
            seen.extend(text.as_ref().chars());
        }
        Characters::new(seen.into_iter().collect()).map(Tokenizer::Characters)
    }

    /// Loads GPT-2's byte pairs, whose table is installed if it is not in the cache.
    ///
    /// # Errors
    /// If the package cannot be installed.
    pub fn gpt2(cache: &Cache, progress: &mut dyn Progress) -> Result<Self> {
        BytePairs::gpt2(cache, progress)?.tokenizer()
    }

    /// Reads a [saved](Self::save) tokenizer, a `tokenizer.json` of Hugging Face, or a directory
    /// with a `tokenizer.json`, or else with GPT-2's two files: `vocab.json` and `merges.txt`, or
    /// `encoder.json` and `vocab.bpe`.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be read or parsed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Self::open_file(path);
        }
        let file = path.join("tokenizer.json");
        if file.exists() {
            return Self::open_file(&file);
        }
        match BytePairs::in_directory(path)? {
            Some(pairs) => pairs.tokenizer(),
            None => {
                let message = format!(
                    "`{}` has no tokenizer.json, and no vocab.json with merges.txt",
                    path.display()
                );
                Err(Error::invalid("tokenizer", message))
            }
        }
    }

    fn open_file(path: &Path) -> Result<Self> {
        let text = files::read_input_text(path);
        let text = text.map_err(|error| super::failed("tokenizer", path, &error))?;
        Self::from_json(&text).map_err(|error| {
            let message = format!("{}: {}", path.display(), error.message());
            Error::new(error.kind(), "tokenizer", message)
        })
    }

    /// Vocabulary size: every token is less.
    pub fn vocabulary(&self) -> usize {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Characters(characters) => characters.characters.len(),
            Tokenizer::Subwords(subwords) => subwords.vocabulary(),
        }
    }

    /// Compares the vocabulary with that of a model, the number of rows of its embedding table.
    ///
    /// # Errors
    /// If tokens would be beyond the table, or the table has over 1,024 rows more than the
    /// tokenizer has tokens: it belongs to another tokenizer.
    pub fn check_vocabulary(&self, rows: usize) -> Result<()> {
        let tokens = self.vocabulary();
        if tokens <= rows && rows - tokens <= PADDING {
            return Ok(());
        }
        let message = format!(
            "it has {tokens} tokens, the model {rows}; expected the tokenizer that the model was trained with"
        );
        Err(Error::invalid("tokenizer", message))
    }

    /// Id of a token of [`Subwords`], such as `<|im_end|>`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match self {
            Tokenizer::Subwords(subwords) => subwords.token_id(token),
            _ => None,
        }
    }

    /// Encodes a text.
    ///
    /// # Errors
    /// If a character has no token; bytes and byte pairs encode all.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Tokenizer::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Tokenizer::Characters(characters) => characters.encode(text),
            Tokenizer::Subwords(subwords) => subwords.encode(text),
        }
    }

    /// Encodes a text as the input of a published model: see [`Subwords::encode_input`]. Other
    /// tokenizers have no special tokens.
    ///
    /// # Errors
    /// As [`encode`](Self::encode), and if `longest` is below the number of special tokens.
    pub fn encode_input(&self, text: &str, longest: Option<usize>) -> Result<Vec<u32>> {
        if let Tokenizer::Subwords(subwords) = self {
            return subwords.encode_input(text, longest);
        }
        let mut tokens = self.encode(text)?;
        tokens.truncate(longest.unwrap_or(usize::MAX));
        Ok(tokens)
    }

    /// Starts to decode tokens that arrive one after the other.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone())
    }

    /// Decodes tokens. Invalid UTF-8 becomes U+FFFD, as do tokens beyond the vocabulary of bytes or
    /// characters; [`Subwords`] skip these and special tokens.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match self {
            Tokenizer::Bytes => {
                let bytes: Vec<u8> = tokens
                    .iter()
                    .map(|&token| u8::try_from(token).unwrap_or(0xff))
                    .collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Tokenizer::Characters(characters) => {
                let character = |token: &u32| characters.characters.get(*token as usize).copied();
                tokens
                    .iter()
                    .map(|token| character(token).unwrap_or(char::REPLACEMENT_CHARACTER))
                    .collect()
            }
            Tokenizer::Subwords(subwords) => subwords.decode(tokens),
        }
    }

    /// Writes it as JSON, beside a model that was trained with it: the kind and the characters in
    /// order, or a `tokenizer.json` that Hugging Face's `tokenizers` reads.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        super::replace(path, self.to_json().as_bytes())
            .map_err(|error| super::failed("tokenizer", path, &error))
    }

    pub(crate) fn to_json(&self) -> String {
        let saved = match self {
            Tokenizer::Bytes => Saved::Bytes,
            Tokenizer::Characters(characters) => Saved::Characters {
                characters: characters.characters.iter().collect(),
            },
            Tokenizer::Subwords(subwords) => return subwords.to_json(),
        };
        serde_json::to_string_pretty(&saved).expect("names and characters are JSON") + "\n"
    }

    /// Parses the content of a saved tokenizer.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let corrupt = |error: String| Error::new(ErrorKind::Corrupt, "tokenizer", error);
        let value: Value =
            serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
        if value.get("tokenizer").is_none() {
            return Subwords::from_value(value).map(Tokenizer::Subwords);
        }
        match serde_json::from_value(value).map_err(|error| corrupt(error.to_string()))? {
            Saved::Bytes => Ok(Tokenizer::Bytes),
            Saved::Characters { characters } => {
                let characters = Characters::new(characters.chars().collect());
                characters
                    .map(Tokenizer::Characters)
                    .map_err(|error| corrupt(error.message().to_owned()))
            }
        }
    }
}

impl Characters {
    fn new(characters: Vec<char>) -> Result<Self> {
        if characters.is_empty() {
            let message = "the text is empty; it must have at least one character";
            return Err(Error::invalid("tokenizer", message));
        }
        let places: HashMap<char, u32> = characters.iter().copied().zip(0..).collect();
        if places.len() != characters.len() {
            let twice = (1..)
                .zip(&characters)
                .find_map(|(next, one)| characters[next..].contains(one).then_some(*one));
            let message = format!(
                "the character {:?} has two tokens; each must have one",
                twice.unwrap_or_default()
            );
            return Err(Error::invalid("tokenizer", message));
        }
        Ok(Characters { characters, places })
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let place = |character: char| {
            self.places.get(&character).copied().ok_or_else(|| {
                let message = format!(
                    "{character:?} is not among the {} characters of the tokenizer",
                    self.places.len()
                );
                Error::invalid("tokenizer", message)
            })
        };
        text.chars().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let text = "Zeile eins\n\"\u{e9}\" \u{1f600}";
        let pairs = BytePairs::from_merges("Z e\n\u{120} \"\n").unwrap();
        for tokenizer in [
            Tokenizer::Bytes,
            Tokenizer::characters_of([text]).unwrap(),
            pairs.tokenizer().unwrap(),
        ] {
            tokenizer.save(&path).unwrap();
            let loaded = Tokenizer::open(&path).unwrap();
            let tokens = tokenizer.encode(text).unwrap();
            assert_eq!(
                (loaded.encode(text).unwrap(), loaded.vocabulary()),
                (tokens.clone(), tokenizer.vocabulary())
            );
            assert_eq!(loaded.decode(&tokens), text);
        }
        fs::write(&path, "{}").unwrap();
        assert_eq!(
            Tokenizer::open(&path).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }

    /// Encoding would take the second of the tokens, while a model was trained on the first.
    #[test]
    fn a_saved_alphabet_with_a_character_twice_is_refused() {
        let error = Tokenizer::from_json(r#"{"tokenizer": "characters", "characters": "abcb"}"#)
            .unwrap_err();
        assert_eq!(
            error.message(),
            "the character 'b' has two tokens; each must have one"
        );
    }

    #[test]
    fn vocabulary_of_another_model_is_refused() {
        let pairs = BytePairs::from_merges("a b\n")
            .unwrap()
            .tokenizer()
            .unwrap();
        assert_eq!(pairs.vocabulary(), 258);
        pairs.check_vocabulary(258 + 1024).unwrap();
        for rows in [257, 258 + 1025] {
            let error = pairs.check_vocabulary(rows).unwrap_err();
            assert!(
                error
                    .message()
                    .starts_with(&format!("it has 258 tokens, the model {rows}"))
            );
        }
    }

    #[test]
    fn texts_of_a_stream_are_those_of_all_tokens() {
        let pairs = BytePairs::from_merges("\u{120} a\n\u{c3} \u{a9}\n").unwrap();
        let text = "na\u{ef}ve \u{e9} a\u{1f600}! a";
        for tokenizer in [Tokenizer::Bytes, pairs.tokenizer().unwrap()] {
            let mut stream = tokenizer.stream();
            let tokens = tokenizer.encode(text).unwrap();
            let parts: Vec<String> = tokens.iter().map(|&token| stream.push(token)).collect();
            assert!(
                parts.iter().all(|part| !part.contains('\u{fffd}')),
                "{parts:?}"
            );
            assert_eq!(parts.concat() + &stream.finish(), text);
        }
    }

    #[test]
    fn stream_without_whole_characters_does_not_wait() {
        let mut stream = Tokenizer::Bytes.stream();
        let text: String = (0..100).map(|_| stream.push(0xff)).collect();
        assert!(text.chars().count() >= 80, "{}", text.len());
        assert_eq!(text.chars().count() + stream.finish().chars().count(), 100);
    }

    #[test]
    fn characters_beyond_16_bits_have_tokens() {
        let text: String = ('\0'..='\u{20000}').collect();
        let tokenizer = Tokenizer::characters_of([&text]).unwrap();
        // Surrogates are not characters.
        assert_eq!(tokenizer.vocabulary(), 0x20001 - 0x800);
        let tokens = tokenizer.encode("a\u{1f600}").unwrap();
        assert_eq!(tokens, [97, 0x1f600 - 0x800]);
        assert_eq!(tokenizer.decode(&tokens), "a\u{1f600}");
    }

    #[test]
    fn tokens_that_there_are_not_are_replaced() {
        assert_eq!(Tokenizer::Bytes.decode(&[72, 105, 300]), "Hi\u{fffd}");
        assert_eq!(
            Tokenizer::characters_of(["ab"]).unwrap().decode(&[0, 2, 1]),
            "a\u{fffd}b"
        );
        assert!(Tokenizer::characters_of([""]).is_err());
    }
}
