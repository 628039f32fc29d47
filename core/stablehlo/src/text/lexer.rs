//! Tokens of MLIR text.

use std::fmt;

use crate::Position;

/// A token. Names are without the character that marks them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// `stablehlo.add`, `tensor`, `true`.
    Word(&'a str),
    /// `%name`.
    Value(&'a str),
    /// `@name`; a quoted name is [`Mark`](Self::Mark) `@` and [`Quoted`](Self::Quoted).
    Symbol(&'a str),
    /// `#name`.
    Hash(&'a str),
    /// `!name`.
    Bang(&'a str),
    /// `^name`.
    Caret(&'a str),
    /// An integer or a float, without sign.
    Number(&'a str),
    /// The text between quotes, with its escapes.
    Quoted(&'a str),
    /// `->`.
    Arrow,
    /// Any other character, of which the grammar uses `( ) { } [ ] < > , : = - ? * @`.
    Mark(char),
    /// A string without its end.
    Unterminated,
    /// The end of the text.
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, text) = match *self {
            Token::Word(text) | Token::Number(text) => ("", text),
            Token::Value(text) => ("%", text),
            Token::Symbol(text) => ("@", text),
            Token::Hash(text) => ("#", text),
            Token::Bang(text) => ("!", text),
            Token::Caret(text) => ("^", text),
            Token::Quoted(text) => ("\"", text),
            Token::Arrow => ("", "->"),
            Token::Mark(mark) => return write!(f, "`{}`", mark.escape_debug()),
            Token::Unterminated => return f.write_str("a string without end"),
            Token::End => return f.write_str("the end of the program"),
        };
        let short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
        let rest = if short.len() < text.len() { ".." } else { "" };
        write!(f, "`{mark}{short}{rest}`")
    }
}

/// A place in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cursor {
    /// In bytes.
    pub(super) offset: usize,
    /// From 0.
    pub(super) line: usize,
    /// Offset of the first byte of the line.
    pub(super) line_start: usize,
}

impl Cursor {
    pub(super) fn position(self) -> Position {
        let column = self.offset - self.line_start + 1;
        Position::Text(self.line as u32 + 1, column as u32)
    }

    /// Moves past `bytes`.
    pub(super) fn skip(&mut self, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            if byte == b'\n' {
                self.line += 1;
                self.line_start = self.offset + index + 1;
            }
        }
        self.offset += bytes.len();
    }

    /// Moves past whitespace and comments, to the next token.
    pub(super) fn skip_blank(&mut self, text: &str) {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.offset) {
            match byte {
                b'\n' => {
                    self.offset += 1;
                    self.line += 1;
                    self.line_start = self.offset;
                }
                b' ' | b'\t' | b'\r' => self.offset += 1,
                b'/' if bytes.get(self.offset + 1) == Some(&b'/') => {
                    let rest = &bytes[self.offset..];
                    self.offset += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// Reads the token that begins here, and moves past it.
    pub(super) fn token<'a>(&mut self, text: &'a str) -> Token<'a> {
        let rest = &text[self.offset..];
        let bytes = rest.as_bytes();
        let Some(&first) = bytes.first() else {
            return Token::End;
        };
        let (token, length) = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = length_of(bytes, |b| is_name(b) && b != b'-');
                (Token::Word(&rest[..length]), length)
            }
            b'0'..=b'9' => {
                let length = number_length(bytes);
                (Token::Number(&rest[..length]), length)
            }
            b'%' => prefixed(rest, Token::Value),
            b'@' => prefixed(rest, Token::Symbol),
            b'#' => prefixed(rest, Token::Hash),
            b'!' => prefixed(rest, Token::Bang),
            b'^' => prefixed(rest, Token::Caret),
            b'"' => quoted(rest),
            b'-' if bytes.get(1) == Some(&b'>') => (Token::Arrow, 2),
            _ => {
                let mark = rest.chars().next().unwrap_or_default();
                (Token::Mark(mark), mark.len_utf8())
            }
        };
        self.offset += length;
        token
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'-')
}

fn length_of(bytes: &[u8], accept: impl Fn(u8) -> bool) -> usize {
    bytes
        .iter()
        .position(|&byte| !accept(byte))
        .unwrap_or(bytes.len())
}

/// A name after its mark: digits, or a name that does not begin with a digit.
fn prefixed<'a>(rest: &'a str, token: fn(&'a str) -> Token<'a>) -> (Token<'a>, usize) {
    let bytes = &rest.as_bytes()[1..];
    let length = match bytes.first() {
        Some(b'0'..=b'9') => length_of(bytes, |byte| byte.is_ascii_digit()),
        // `-` is part of a name, unless it begins an arrow.
        _ => {
            let length = length_of(bytes, is_name);
            let arrow = length > 0 && bytes[length - 1] == b'-' && bytes.get(length) == Some(&b'>');
            length - usize::from(arrow)
        }
    };
    match length {
        0 => (Token::Mark(char::from(rest.as_bytes()[0])), 1),
        _ => (token(&rest[1..=length]), 1 + length),
    }
}

fn number_length(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"0x") && bytes.get(2).is_some_and(u8::is_ascii_hexdigit) {
        return 2 + length_of(&bytes[2..], |byte| byte.is_ascii_hexdigit());
    }
    let digits = |from: usize| from + length_of(&bytes[from..], |byte| byte.is_ascii_digit());
    let mut length = digits(0);
    if bytes.get(length) != Some(&b'.') {
        return length;
    }
    length = digits(length + 1);
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let signed = matches!(bytes.get(length + 1), Some(b'+' | b'-'));
        let start = length + 1 + usize::from(signed);
        if bytes.get(start).is_some_and(u8::is_ascii_digit) {
            length = digits(start);
        }
    }
    length
}

/// A string, which ends on its line.
fn quoted(rest: &str) -> (Token<'_>, usize) {
    let bytes = rest.as_bytes();
    let mut end = 1;
    loop {
        match bytes.get(end) {
            Some(b'"') => return (Token::Quoted(&rest[1..end]), end + 1),
            Some(b'\\') => end += 2,
            None | Some(b'\n') => return (Token::Unterminated, bytes.len().min(end)),
            Some(_) => end += 1,
        }
    }
}
