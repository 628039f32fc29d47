//! Metadata of a file.

/// A value of a file's metadata.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetadataValue {
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A float of 32 or 64 bits.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    String(String),
    /// A list.
    Array(Vec<MetadataValue>),
}

impl MetadataValue {
    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            MetadataValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is an integer that is not negative.
    pub fn as_usize(&self) -> Option<usize> {
        match *self {
            MetadataValue::Unsigned(number) => usize::try_from(number).ok(),
            MetadataValue::Signed(number) => usize::try_from(number).ok(),
            _ => None,
        }
    }

    /// The number, if it is a float.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            MetadataValue::Float(number) => Some(number),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub fn as_array(&self) -> Option<&[MetadataValue]> {
        match self {
            MetadataValue::Array(elements) => Some(elements),
            _ => None,
        }
    }
}
