//! Tokens of MLIR text, and the text without its source locations.
//!
//! A program has names that users choose, of files, functions and fields: in strings (locations
//! above all), in symbols and in comments. Whoever searches the text for an operation reads
//! [tokens], in order not to find these.

use std::ops::Range;

/// Kind of a piece of MLIR text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Token {
    /// Letters, digits, `_`, `.` and `$`: an operation, a type, a keyword, or a symbol after its
    /// sigil.
    Name,
    /// A string with its quotes; to the end of the text if it is never closed.
    String,
    /// A comment, without the end of its line.
    Comment,
    /// Any other byte, also a blank.
    Byte,
}

/// The tokens of a text with their places, which cover it without gaps.
pub fn tokens(text: &[u8]) -> Tokens<'_> {
    Tokens { text, at: 0 }
}

/// Iterator of [`tokens`].
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Tokens<'_> {
    type Item = (Token, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.text[self.at..];
        let length_while = |belongs: fn(&u8) -> bool| {
            let end = rest.iter().position(|byte| !belongs(byte));
            end.unwrap_or(rest.len())
        };
        let (token, length) = match rest.first()? {
            b'"' => (Token::String, string_length(rest)),
            b'/' if rest.starts_with(b"//") => {
                (Token::Comment, length_while(|byte| *byte != b'\n'))
            }
            byte if is_name_byte(*byte) => (Token::Name, length_while(|byte| is_name_byte(*byte))),
            _ => (Token::Byte, 1),
        };
        let start = self.at;
        self.at += length;
        Some((token, start..self.at))
    }
}

impl Tokens<'_> {
    /// Skips the parenthesis that opens here, with everything up to the one that closes it.
    fn skip_parentheses(&mut self) {
        let (text, mut open) = (self.text, 0);
        for (token, place) in self {
            match (token, text[place.start]) {
                (Token::Byte, b'(') => open += 1,
                (Token::Byte, b')') => open -= 1,
                _ => {}
            }
            if open == 0 {
                return;
            }
        }
    }
}

/// Calls `each` with the pieces of a text between its locations: `loc(..)` after an operation or an
/// argument, and lines `#loc3 = loc(..)`. Bytecode is one piece.
pub fn without_locations(code: &[u8], mut each: impl FnMut(&[u8])) {
    if is_bytecode(code) {
        return each(code);
    }
    let mut tokens = tokens(code);
    let mut start_of_piece = 0;
    while let Some((token, place)) = tokens.next() {
        // `@loc(` is a function's name, `#loc(` an attribute's.
        let sigil = code[..place.start].last();
        let is_keyword = !sigil.is_some_and(|byte| b"@%^#!".contains(byte));
        if token == Token::Name
            && &code[place.clone()] == b"loc"
            && is_keyword
            && code[place.end..].starts_with(b"(")
        {
            each(before_location(&code[start_of_piece..place.start]));
            tokens.skip_parentheses();
            start_of_piece = tokens.at;
        }
    }
    each(&code[start_of_piece..]);
}

/// The piece before a `loc`, without blanks at its end and without the start of a line that defines
/// a location.
fn before_location(piece: &[u8]) -> &[u8] {
    let end = piece.iter().rposition(|byte| *byte != b' ');
    let piece = &piece[..end.map_or(0, |last| last + 1)];
    let line = piece.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let defines = piece.ends_with(b"=") && piece[line..].trim_ascii_start().starts_with(b"#loc");
    if defines { &piece[..line] } else { piece }
}

/// Returns whether a program is MLIR bytecode instead of text.
pub fn is_bytecode(code: &[u8]) -> bool {
    code.starts_with(b"ML\xefR")
}

/// Returns whether names contain this byte.
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

/// The length of the string at the start of a text, with its quotes.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(code: &str) -> String {
        let mut text = Vec::new();
        without_locations(code.as_bytes(), |piece| text.extend_from_slice(piece));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn stripping_locations_restores_the_plain_text() {
        let plain = "module @\"train step\" {\n  func.func public @main(%arg0: tensor<f32>, \
         %arg1: tensor<f32>) -> (tensor<f32>) {\n    \
                     %0 = stablehlo.add %arg0, %arg1 : tensor<f32>\n    return %0 : \
                     tensor<f32>\n  }\n}\n";
        let located = "module @\"train step\" {\n  func.func public @main(%arg0: tensor<f32> \
         loc(\"w (\\\"a\\\")\"), %arg1: tensor<f32>) \
                       -> (tensor<f32>) {\n    %0 = stablehlo.add %arg0, %arg1 : tensor<f32> \
                       loc(#loc1)\n    return %0 : tensor<f32>\n  \
                       }\n}\n#loc1 = loc(\"a.rs\":3:4)\n";
        assert_eq!(stripped(plain), plain);
        assert_eq!(stripped(located), plain);
        let elsewhere = located.replace("a.rs\":3:4", "b (c).rs\":30:40");
        assert_eq!(stripped(&elsewhere), stripped(located));
        let nested = located.replace(
            "loc(#loc1)",
            "loc(callsite(fused[\"x\"(#loc1), \"y)\":1:2] at unknown))",
        );
        assert_eq!(stripped(&nested), stripped(located));
    }

    #[test]
    fn every_form_of_location_is_stripped() {
        let text = "f(%a: i32 loc(\"x (y)\"), %b: i32 loc(#loc2)) {\n  return loc(#loc)\n} \
                    loc(#loc1)\n#loc1 = loc(\"a\":1:2)\n";
        assert_eq!(stripped(text), "f(%a: i32, %b: i32) {\n  return\n}\n");
    }

    #[test]
    fn tokens_cover_the_text() {
        let text = b"%0 = \"a.b\"() // loc(\n  !x<3xf32> \"open";
        let found: Vec<_> = tokens(text)
            .map(|(kind, place)| (kind, &text[place]))
            .collect();
        let words = found.iter().filter(|(kind, _)| *kind != Token::Byte);
        let expected: [(Token, &[u8]); 6] = [
            (Token::Name, b"0"),
            (Token::String, b"\"a.b\""),
            (Token::Comment, b"// loc("),
            (Token::Name, b"x"),
            (Token::Name, b"3xf32"),
            (Token::String, b"\"open"),
        ];
        assert!(words.eq(&expected));
        assert_eq!(found.iter().flat_map(|(_, text)| *text).count(), text.len());
    }

    #[test]
    fn lookalikes_of_locations_stay() {
        for code in [
            "func.func @loc(%x: i32)",
            "call @loc(%0) : (i32) -> i32",
            "\"loc(#loc1)\"",
            "// loc(here)\n",
            "{loc = 1}",
            "a.loc(b)",
            "loc",
            "#loc(b)",
            "%loc(b)",
        ] {
            assert_eq!(stripped(code), code);
        }
    }

    #[test]
    fn truncated_text_does_not_panic() {
        for code in [
            "loc(",
            "loc(\"",
            "loc((",
            "x loc(\"\\",
            "\"",
            "#loc = loc(",
            "#loc =",
        ] {
            stripped(code);
        }
    }

    #[test]
    fn bytecode_has_no_locations_to_strip() {
        let mut pieces = Vec::new();
        without_locations(b"ML\xefR loc(a)", |piece| pieces.extend_from_slice(piece));
        assert_eq!(pieces, b"ML\xefR loc(a)");
    }
}
