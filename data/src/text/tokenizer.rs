//! Conversion of text to tokens and back.

use std::{collections::HashMap, fs, io, path::Path};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Progress};
use serde::{Deserialize, Serialize};

use super::BytePairs;

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
    /// GPT-2's byte pairs: 50,257.
    Gpt2(BytePairs),
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
    Gpt2,
}

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
        BytePairs::gpt2(cache, progress).map(Tokenizer::Gpt2)
    }

    /// Vocabulary size.
    pub fn vocabulary(&self) -> usize {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Characters(characters) => characters.characters.len(),
            Tokenizer::Gpt2(pairs) => pairs.vocabulary(),
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
            Tokenizer::Gpt2(pairs) => Ok(pairs.encode(text)),
        }
    }

    /// Decodes tokens. Invalid UTF-8 and unknown tokens become U+FFFD.
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
            Tokenizer::Gpt2(pairs) => pairs.decode(tokens),
        }
    }

    /// Writes it as JSON, beside a model that was trained with it: the kind, and the characters in
    /// order.
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
            Tokenizer::Gpt2(_) => Saved::Gpt2,
        };
        serde_json::to_string_pretty(&saved).expect("names and characters are JSON") + "\n"
    }

    /// Reads a [saved](Self::save) tokenizer. The table of byte pairs is installed if it is not in
    /// the cache.
    ///
    /// # Errors
    /// If the file cannot be read or parsed, or if the package cannot be installed.
    pub fn load(path: &Path, cache: &Cache, progress: &mut dyn Progress) -> Result<Self> {
        // A pipe could be waited for without end.
        let plain = fs::metadata(path).and_then(|found| match found.is_file() {
            true => fs::read_to_string(path),
            false => Err(io::Error::other("it is not a plain file")),
        });
        let text = plain.map_err(|error| super::failed("tokenizer", path, &error))?;
        let corrupt = |error: String| {
            Error::new(
                ErrorKind::Corrupt,
                "tokenizer",
                format!("{}: {error}", path.display()),
            )
        };
        match Self::from_json(&text).map_err(corrupt)? {
            Some(tokenizer) => Ok(tokenizer),
            None => Tokenizer::gpt2(cache, progress),
        }
    }

    /// Parses the content of a saved tokenizer; `None` for GPT-2's, whose table is not in it.
    pub(crate) fn from_json(text: &str) -> Result<Option<Self>, String> {
        Ok(
            match serde_json::from_str(text).map_err(|error| error.to_string())? {
                Saved::Bytes => Some(Tokenizer::Bytes),
                Saved::Characters { characters } => {
                    let characters = Characters::new(characters.chars().collect());
                    Some(Tokenizer::Characters(
                        characters.map_err(|error| error.message().to_owned())?,
                    ))
                }
                Saved::Gpt2 => None,
            },
        )
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
    use halite_fetch::Quiet;

    use super::*;

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let cache = Cache::at(dir.path().join("cache"));
        let text = "Zeile eins\n\"\u{e9}\" \u{1f600}";
        for tokenizer in [Tokenizer::Bytes, Tokenizer::characters_of([text]).unwrap()] {
            tokenizer.save(&path).unwrap();
            let loaded = Tokenizer::load(&path, &cache, &mut Quiet).unwrap();
            let tokens = tokenizer.encode(text).unwrap();
            assert_eq!(
                (loaded.encode(text).unwrap(), loaded.vocabulary()),
                (tokens.clone(), tokenizer.vocabulary())
            );
            assert_eq!(loaded.decode(&tokens), text);
        }
        fs::write(&path, "{}").unwrap();
        assert_eq!(
            Tokenizer::load(&path, &cache, &mut Quiet)
                .unwrap_err()
                .kind(),
            ErrorKind::Corrupt
        );
    }

    /// Encoding would take the second of the tokens, while a model was trained on the first.
    #[test]
    fn a_saved_alphabet_with_a_character_twice_is_refused() {
        let error = Tokenizer::from_json(r#"{"tokenizer": "characters", "characters": "abcb"}"#)
            .unwrap_err();
        assert_eq!(
            error,
            "the character 'b' has two tokens; each must have one"
        );
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
