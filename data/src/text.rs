//! Text: books, tokenizers, and windows of tokens.

use std::{io, path::Path};

use halite_core::{Error, ErrorKind, Result, files::replace};

use crate::input;

mod books;
mod byte_pairs;
mod fake;
mod stream;
mod subwords;
mod token_file;
mod tokenizer;
mod windows;

pub use self::{
    books::{BOOKS, Book, books},
    byte_pairs::{BytePairs, GPT2_VOCABULARY, WordSplit},
    fake::fake_text,
    stream::TextStream,
    subwords::Subwords,
    token_file::TokenFile,
    tokenizer::{Characters, Tokenizer},
    windows::TokenWindows,
};

/// Reads a text file as UTF-8, or else, with a warning, as Latin-1, in which every byte is a
/// character. Line ends become `\n`; a file of gzip is decompressed.
///
/// # Errors
/// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::Corrupt`] if it is compressed with
/// another program.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let bytes = bytes_of(path)?;
    if let Err(error) = std::str::from_utf8(&bytes) {
        let at = error.valid_up_to();
        halite_core::warning!(
            "{} is not UTF-8 at byte {at}; it is read as Latin-1, one character per byte",
            path.display()
        );
    }
    Ok(text_of(bytes))
}

/// Writes a text file in place of what is at `path`: at any moment there is the old file or the
/// new one. A pipe or a link there is replaced too, not written to.
///
/// # Errors
/// [`ErrorKind::Io`] if the file cannot be written.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    replace(path, text.as_bytes()).map_err(|error| failed("write text", path, &error))
}

fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    input::read(path).map_err(|(kind, reason)| {
        let message = format!("{}: {reason}", path.display());
        Error::new(kind, "read text", message)
    })
}

fn text_of(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        error
            .as_bytes()
            .iter()
            .map(|&byte| char::from(byte))
            .collect()
    });
    if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text
    }
}

fn failed(doing: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, doing, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn write_replaces_pipes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sample.txt");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        // Opening the pipe to write to it would block for ever.
        write(&path, "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        write(&path, "other").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn text_is_utf_8_or_else_latin_1_with_one_kind_of_line_end() {
        for (bytes, text) in [
            (&b"plain\n"[..], "plain\n"),
            ("Br\u{fc}cke\r\nx\ry".as_bytes(), "Br\u{fc}cke\nx\ny"),
            (b"C\xe6sar \xff", "C\u{e6}sar \u{ff}"),
        ] {
            assert_eq!(text_of(bytes.to_vec()), text);
        }
        let error = read("no/such/file").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }
}
