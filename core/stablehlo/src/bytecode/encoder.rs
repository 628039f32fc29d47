//! Writing of integers, lists and sections.

/// Bytes that are being written.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An unsigned integer, as [`Cursor::varint`](super::cursor::Cursor::varint) reads it.
    pub(super) fn varint(&mut self, value: u64) -> &mut Self {
        let bits = 64 - (value | 1).leading_zeros();
        match bits.div_ceil(7) {
            more @ 1..=8 => {
                let value = u128::from(value) << more | 1 << (more - 1);
                self.bytes(&value.to_le_bytes()[..more as usize])
            }
            _ => self.byte(0).bytes(&value.to_le_bytes()),
        }
    }

    /// A length or an index.
    pub(super) fn size(&mut self, value: usize) -> &mut Self {
        self.varint(value as u64)
    }

    /// A signed integer, whose low bit is the sign.
    pub(super) fn signed(&mut self, value: i64) -> &mut Self {
        self.varint((value << 1 ^ value >> 63) as u64)
    }

    /// An index or a count, and a flag in its low bit.
    pub(super) fn flagged(&mut self, value: usize, flag: bool) -> &mut Self {
        self.varint((value as u64) << 1 | u64::from(flag))
    }

    /// A list of indices.
    pub(super) fn indices(&mut self, indices: &[usize]) -> &mut Self {
        self.size(indices.len());
        for index in indices {
            self.size(*index);
        }
        self
    }

    /// A list of signed integers.
    pub(super) fn signed_list(&mut self, values: &[i64]) -> &mut Self {
        self.size(values.len());
        for value in values {
            self.signed(*value);
        }
        self
    }

    pub(super) fn section(&mut self, number: u8, contents: &Encoder) -> &mut Self {
        self.byte(number).size(contents.0.len()).bytes(&contents.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::cursor::Cursor, *};

    proptest! {
        #[test]
        fn integers_are_read_as_written(value in any::<u64>(), shift in 0..64) {
            let value = value >> shift;
            let mut encoder = Encoder::default();
            encoder.varint(value).signed(value as i64).flagged((value >> 1) as usize, true);
            let mut cursor = Cursor::new(&encoder.0);
            prop_assert_eq!(cursor.varint().unwrap(), value);
            prop_assert_eq!(cursor.signed().unwrap(), value as i64);
            prop_assert_eq!(cursor.flagged().unwrap(), ((value as usize >> 1) as u64, true));
            prop_assert!(cursor.is_empty());
        }
    }
}
