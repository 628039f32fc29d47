//! Values of options and attributes.

use std::fmt;

/// The value of an option or attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// An integer.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A 32-bit float.
    Float(f32),
    /// A boolean.
    Bool(bool),
}

macro_rules! from {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Value {
            fn from(value: $rust) -> Self {
                Value::$variant(value.into())
            }
        })*
    };
}

from! { &str => Text, String => Text, i64 => Int, Vec<i64> => Ints, f32 => Float, bool => Bool }

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Int(number) => number.fmt(f),
            Value::Ints(numbers) => write!(f, "{numbers:?}"),
            Value::Float(number) => number.fmt(f),
            Value::Bool(yes) => yes.fmt(f),
        }
    }
}
