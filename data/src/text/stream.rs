//! Decoding of tokens one after the other.

use super::Tokenizer;

/// Tokens that are held back at most, until their bytes are a whole character.
const HELD: usize = 16;

/// Decodes tokens as they arrive. A token may end in the middle of a character: its text is held
/// back until the character is complete. The texts together are that of all tokens.
///
/// ```
/// use halite_data::text::Tokenizer;
///
/// let mut stream = Tokenizer::Bytes.stream();
/// assert_eq!(stream.push(0xc3), "");
/// assert_eq!(stream.push(0xa9), "\u{e9}");
/// assert_eq!(stream.push(0xc3), "");
/// assert_eq!(stream.finish(), "\u{fffd}");
/// ```
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    /// Tokens whose text was returned, for the spaces between tokens, and those held back.
    tokens: Vec<u32>,
    /// Text that was returned of `tokens`.
    returned: String,
    /// Number of `tokens` that were returned.
    whole: usize,
}

impl TextStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        TextStream {
            tokenizer,
            tokens: Vec::new(),
            returned: String::new(),
            whole: 0,
        }
    }

    /// Returns the text that the next token completes, which may be empty.
    pub fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens);
        let is_held = self.tokens.len() - self.whole < HELD;
        if is_held && (text.ends_with(char::REPLACEMENT_CHARACTER) || text == self.returned) {
            return String::new();
        }
        self.next(&text)
    }

    /// Returns what was held back: characters that no token completed, as U+FFFD.
    pub fn finish(mut self) -> String {
        let text = self.tokenizer.decode(&self.tokens);
        self.next(&text)
    }

    /// What follows the text that was returned. Only the tokens of it are kept.
    fn next(&mut self, text: &str) -> String {
        // Decoders that join words may change the end of what was returned.
        let same = text
            .chars()
            .zip(self.returned.chars())
            .take_while(|(a, b)| a == b);
        let next = text.chars().skip(same.count()).collect();
        self.tokens.drain(..self.whole);
        self.whole = self.tokens.len();
        self.returned = self.tokenizer.decode(&self.tokens);
        next
    }
}
