//! The state of a parser, and how it moves over tokens.

use std::{collections::HashMap, sync::Arc};

use halite_core::{Error, ErrorKind, Result, format_count};

use super::{
    lexer::{Cursor, Token},
    scope::Scope,
};
use crate::{Position, SourceLine};

/// Bound on the nesting of regions, attributes and types.
const MOST_DEPTH: usize = 100;

/// Bytes that aliases may add to those of the text.
const ALIAS_BYTES: usize = 1 << 22;

/// A parser of a program's text, with one token of lookahead.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    /// The token that comes next.
    pub(super) token: Token<'a>,
    /// Where it begins.
    pub(super) start: Cursor,
    /// Where it ends.
    pub(super) end: Cursor,
    /// Definitions of aliases, by name with its mark: `#loc1`, `!type`.
    aliases: HashMap<&'a str, Cursor>,
    /// Locations of aliases that were used.
    pub(super) locations: HashMap<&'a str, Option<Arc<SourceLine>>>,
    /// The last location that is a name alone.
    pub(super) location_name: Option<String>,
    /// Values of the function.
    pub(super) scope: Scope<'a>,
    depth: usize,
    /// Bytes that may still be read. An alias is read again where it is used, so aliases of aliases
    /// make a short text long.
    budget: usize,
}

impl<'a> Parser<'a> {
    /// A parser at the first token.
    pub(super) fn new(text: &'a str) -> Result<Self> {
        if u32::try_from(text.len()).is_err() {
            let size = format_count(text.len() as u64);
            let message = format!("the text has {size} bytes; at most 4 GiB are supported");
            return Err(Error::new(ErrorKind::Unsupported, "program", message));
        }
        let mut parser = Parser {
            text,
            token: Token::End,
            start: Cursor::default(),
            end: Cursor::default(),
            aliases: find_aliases(text),
            locations: HashMap::new(),
            location_name: None,
            scope: Scope::default(),
            depth: 0,
            // Constants are skipped before they are read.
            budget: text.len().saturating_mul(2).saturating_add(ALIAS_BYTES),
        };
        parser.advance();
        Ok(parser)
    }

    /// Moves to the next token and returns the one before it.
    pub(super) fn advance(&mut self) -> Token<'a> {
        let token = self.token;
        let before = self.end.offset;
        self.end.skip_blank(self.text);
        self.start = self.end;
        self.token = match self.budget {
            0 => Token::End,
            _ => self.end.token(self.text),
        };
        self.budget = self.budget.saturating_sub(self.end.offset - before);
        token
    }

    /// Moves to the token at `cursor`.
    pub(super) fn move_to(&mut self, cursor: Cursor) {
        self.end = cursor;
        self.advance();
    }

    /// Runs `parse` at `cursor`, and comes back.
    pub(super) fn at<T>(
        &mut self,
        cursor: Cursor,
        parse: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let back = (self.token, self.start, self.end);
        self.move_to(cursor);
        let result = self.nested(parse)?;
        (self.token, self.start, self.end) = back;
        Ok(result)
    }

    /// Runs `parse` one level deeper.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MOST_DEPTH {
            let message = format!("at most {MOST_DEPTH} levels of nesting are supported");
            return Err(self.unsupported(&message));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// The definition of an alias, by its name with its mark.
    pub(super) fn alias(&self, name: &str) -> Option<Cursor> {
        self.aliases.get(name).copied()
    }

    pub(super) fn position(&self) -> Position {
        self.start.position()
    }

    /// An error at the next token, which is not what the grammar has there.
    pub(super) fn expected(&self, what: &str) -> Error {
        if self.budget == 0 {
            return self.unsupported("aliases expand to more than 4 MiB");
        }
        self.invalid(&format!("found {}; expected {what}", self.token))
    }

    /// An error at the next token.
    pub(super) fn invalid(&self, message: &str) -> Error {
        invalid_at(self.position(), message)
    }

    /// An error at the next token, about what is valid but not supported.
    pub(super) fn unsupported(&self, message: &str) -> Error {
        let message = format!("{}: {message}", self.position());
        Error::new(ErrorKind::Unsupported, "program", message)
    }

    /// Skips the next token if it is `mark`.
    pub(super) fn eat(&mut self, mark: char) -> bool {
        let found = self.token == Token::Mark(mark);
        if found {
            self.advance();
        }
        found
    }

    /// Skips the next token if it is `word`.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.token == Token::Word(word);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, mark: char) -> Result<()> {
        match self.eat(mark) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{mark}`"))),
        }
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        match self.eat_word(word) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{word}`"))),
        }
    }

    pub(super) fn expect_arrow(&mut self) -> Result<()> {
        match self.token {
            Token::Arrow => {
                self.advance();
                Ok(())
            }
            _ => Err(self.expected("`->`")),
        }
    }

    /// A word, of which errors say that it is `what`.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.token {
            Token::Word(word) => {
                self.advance();
                Ok(word)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A symbol, without `@`.
    pub(super) fn symbol(&mut self) -> Result<String> {
        match self.token {
            Token::Symbol(name) => {
                self.advance();
                Ok(name.into())
            }
            Token::Mark('@') => {
                self.advance();
                self.string()
            }
            _ => Err(self.expected("a symbol, `@name`")),
        }
    }

    /// A quoted string, without its escapes.
    pub(super) fn string(&mut self) -> Result<String> {
        let position = self.position();
        let text = String::from_utf8(self.bytes()?);
        text.map_err(|_| invalid_at(position, "the string is not UTF-8"))
    }

    /// A string, which may be of any bytes.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        let Token::Quoted(raw) = self.token else {
            return Err(self.expected("a string"));
        };
        let bytes = match raw.contains('\\') {
            true => unescape(raw).map_err(|problem| self.invalid(problem))?,
            false => raw.into(),
        };
        self.advance();
        Ok(bytes)
    }

    /// A decimal integer without sign.
    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        match self.token {
            Token::Number(digits) => match digits.parse() {
                Ok(value) => {
                    self.advance();
                    Ok(value)
                }
                Err(_) => Err(self.expected(what)),
            },
            _ => Err(self.expected(what)),
        }
    }

    /// Items between `open` and `close`, separated by commas.
    pub(super) fn list<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            if !self.eat(',') {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
    }
}

/// An error at a position.
pub(super) fn invalid_at(position: Position, message: &str) -> Error {
    Error::invalid("program", format!("{position}: {message}"))
}

/// Finds the lines that define aliases: `#loc1 = ..`. They come after their uses as well as before.
fn find_aliases(text: &str) -> HashMap<&str, Cursor> {
    let mut aliases = HashMap::new();
    let mut line_start = 0;
    for (line, content) in text.split('\n').enumerate() {
        let trimmed = content.trim_start();
        if trimmed.starts_with(['#', '!'])
            && let Some((name, value)) = trimmed.split_once('=')
        {
            let offset = line_start + content.len() - value.len();
            let cursor = Cursor {
                offset,
                line,
                line_start,
            };
            aliases.insert(name.trim_end(), cursor);
        }
        line_start += content.len() + 1;
    }
    aliases
}

/// Replaces the escapes of a string: `\n`, `\t`, `\\`, `\"`, and bytes as two hexadecimal digits.
fn unescape(raw: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (value, length) = match *rest {
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [same @ (b'\\' | b'"'), ..] => (same, 1),
            [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (16 * hex_digit(high) + hex_digit(low), 2)
            }
            _ => {
                return Err(
                    "the string has an unknown escape; expected \\n, \\t, \\\\, \\\" or \
                            two hexadecimal digits",
                );
            }
        };
        bytes.push(value);
        rest = &rest[length..];
    }
    Ok(bytes)
}

/// The value of a hexadecimal digit.
pub(super) fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
