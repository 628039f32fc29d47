//! Reading of bytes, integers and lists, with offsets in errors.

use std::fmt::Display;

use halite_core::{Error, ErrorKind, Result};

/// An error about malformed bytes at this offset.
pub(super) fn corrupt(offset: usize, message: impl Display) -> Error {
    error(ErrorKind::Corrupt, offset, message)
}

/// An error about a feature that is not supported, at this offset.
pub(super) fn unsupported(offset: usize, message: impl Display) -> Error {
    error(ErrorKind::Unsupported, offset, message)
}

/// An error at this offset.
pub(super) fn error(kind: ErrorKind, offset: usize, message: impl Display) -> Error {
    Error::new(kind, "bytecode", format!("byte {offset}: {message}"))
}

/// A part of the bytecode and a position in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    /// The whole bytecode, so that positions are offsets in it.
    file: &'a [u8],
    position: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a [u8]) -> Self {
        Cursor {
            file,
            position: 0,
            end: file.len(),
        }
    }

    /// Offset of the next byte in the bytecode.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Number of bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.end - self.position
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// An error about malformed bytes here.
    pub(super) fn corrupt(&self, message: impl Display) -> Error {
        corrupt(self.position, message)
    }

    /// The next `count` bytes, as a cursor.
    pub(super) fn part(&mut self, count: u64) -> Result<Cursor<'a>> {
        let left = self.remaining();
        let Some(count) = usize::try_from(count).ok().filter(|count| *count <= left) else {
            return Err(self.corrupt(format_args!("{count} bytes expected, {left} are left")));
        };
        let part = Cursor {
            end: self.position + count,
            ..*self
        };
        self.position += count;
        Ok(part)
    }

    /// The bytes that are left.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.file[self.position..self.end]
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        match self.rest().first() {
            Some(&byte) => {
                self.position += 1;
                Ok(byte)
            }
            None => Err(self.corrupt("1 byte expected, 0 are left")),
        }
    }

    /// An unsigned integer of one to nine bytes: the number of zeros in the low bits of the first
    /// byte is the number of further bytes.
    pub(super) fn varint(&mut self) -> Result<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros();
        if more == 0 {
            return Ok(u64::from(first >> 1));
        }
        let bytes = self.part(more.into())?.rest();
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        let value = u64::from_le_bytes(value);
        // With 8 further bytes, the first has no bits of the value.
        Ok(if more == 8 {
            value
        } else {
            (value << (7 - more)) | u64::from(first) >> (more + 1)
        })
    }

    /// A signed integer, whose low bit is the sign.
    pub(super) fn signed(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// An unsigned integer whose low bit is a flag.
    pub(super) fn flagged(&mut self) -> Result<(u64, bool)> {
        let value = self.varint()?;
        Ok((value >> 1, value & 1 != 0))
    }

    /// A number of items that need at least one byte each.
    pub(super) fn count(&mut self, items: &str) -> Result<usize> {
        let position = self.position;
        let count = self.varint()?;
        self.check_count(count, position, items)
    }

    /// Checks a number of items that need at least one byte each.
    pub(super) fn check_count(&self, count: u64, position: usize, items: &str) -> Result<usize> {
        let left = self.remaining();
        match usize::try_from(count) {
            Ok(count) if count <= left => Ok(count),
            _ => {
                let message = format_args!("{count} {items}, but only {left} bytes are left");
                Err(corrupt(position, message))
            }
        }
    }

    /// An index into a table with `length` entries.
    pub(super) fn index(&mut self, length: usize, table: &str) -> Result<usize> {
        let position = self.position;
        let index = self.varint()?;
        check_index(index, length, position, table)
    }

    /// A list of signed integers.
    pub(super) fn signed_list(&mut self) -> Result<Vec<i64>> {
        let count = self.count("integers")?;
        (0..count).map(|_| self.signed()).collect()
    }

    /// The bytes before the next byte 0, which is skipped.
    pub(super) fn nul_terminated(&mut self) -> Result<&'a [u8]> {
        match self.rest().iter().position(|byte| *byte == 0) {
            Some(length) => {
                let bytes = &self.rest()[..length];
                self.position += length + 1;
                Ok(bytes)
            }
            None => Err(self.corrupt("text without a final byte 0")),
        }
    }

    /// A section: its number and contents.
    pub(super) fn section(&mut self) -> Result<(u8, Cursor<'a>)> {
        let head = self.byte()?;
        let length = self.varint()?;
        if head & 0x80 != 0 {
            let alignment = self.varint()?;
            self.align(alignment)?;
        }
        Ok((head & 0x7f, self.part(length)?))
    }

    /// Skips padding, up to a multiple of `alignment`.
    fn align(&mut self, alignment: u64) -> Result<()> {
        if !alignment.is_power_of_two() {
            return Err(self.corrupt(format_args!(
                "alignment {alignment}; expected a power of two"
            )));
        }
        let padding = (self.position as u64).wrapping_neg() & (alignment - 1);
        let position = self.position;
        if self.part(padding)?.rest().iter().any(|byte| *byte != 0xcb) {
            return Err(corrupt(position, "padding that is not 0xCB"));
        }
        Ok(())
    }

    /// Checks that nothing is left of `what`.
    pub(super) fn finish(&self, what: &str) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(self.corrupt(format_args!("{left} unexpected bytes after {what}"))),
        }
    }
}

/// Checks an index into a table with `length` entries.
pub(super) fn check_index(
    index: u64,
    length: usize,
    position: usize,
    table: &str,
) -> Result<usize> {
    match usize::try_from(index) {
        Ok(index) if index < length => Ok(index),
        _ => Err(corrupt(
            position,
            format_args!("{table} {index}, but there are only {length}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_to_nine_bytes() {
        let cases: [(&[u8], u64); 6] = [
            (&[0x01], 0),
            (&[0xff], 127),
            (&[0x02, 0x02], 128),
            (&[0xfe, 0xff], (1 << 14) - 1),
            (&[0x80, 1, 0, 0, 0, 0, 0, 0], 1),
            (
                &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
                u64::MAX,
            ),
        ];
        for (bytes, value) in cases {
            assert_eq!(Cursor::new(bytes).varint().unwrap(), value, "{bytes:x?}");
        }
    }

    #[test]
    fn low_bit_of_signed_integers_is_the_sign() {
        for (byte, value) in [(0x01, 0), (0x03, -1), (0x05, 1), (0x07, -2)] {
            assert_eq!(Cursor::new(&[byte]).signed().unwrap(), value);
        }
    }

    #[test]
    fn truncated_integer_names_the_offset() {
        let error = Cursor::new(&[0x04, 0x00]).varint().unwrap_err();
        let expected = "bytecode: byte 1: 2 bytes expected, 1 are left";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn section_is_aligned_by_its_padding() {
        let bytes = [0x84, 0x03, 0x09, 0xcb, 0x2a];
        let (number, contents) = Cursor::new(&bytes).section().unwrap();
        assert_eq!((number, contents.rest()), (4, &[0x2a][..]));
    }
}
