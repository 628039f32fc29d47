//! Attributes as a reader finds them, before [`OpKind`](crate::OpKind) gives them their meaning.

use std::sync::Arc;

use halite_core::format_count;

use crate::{ElementClass, ElementType, RankedType, ShardyAxis, ShardySharding, Type};

/// Value of an attribute.
///
/// Structured attributes of StableHLO's text (`#stablehlo.gather<..>`) have no variant: readers
/// replace them by one attribute for each field, under the names that portable artifacts use
/// (`offset_dims`, ..). Enumerations are [`Str`](Self::Str): `"EQ"`, `"DEFAULT"`.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// Present, without a value.
    Unit,
    /// `true` or `false`.
    Bool(bool),
    /// An integer and its type, sign-extended (unsigned types: zero-extended).
    Int(i64, ElementType),
    /// A float and its type.
    Float(f64, ElementType),
    /// A string, or the name of a case of an enumeration.
    Str(String),
    /// A string that is not UTF-8: what custom calls carry, a compiled kernel say.
    Bytes(Vec<u8>),
    /// `@name`.
    Symbol(String),
    /// A type.
    Type(Type),
    /// A list.
    Array(Vec<Attribute>),
    /// Attributes by name.
    Dict(Attributes),
    /// A constant tensor; also `array<i64: 1, 2>`, which has one dimension.
    Dense(Dense),
    /// A sharding of Shardy: `#sdy.sharding<@mesh, [{"x"}, {}]>`.
    Sharding(ShardySharding),
    /// A sharding for each value: `#sdy.sharding_per_value<[..]>`.
    Shardings(Vec<ShardySharding>),
    /// Axes of a mesh: `#sdy<manual_axes{"x"}>`.
    Axes(Vec<ShardyAxis>),
}

impl Attribute {
    /// A string of these bytes.
    pub(crate) fn string(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Attribute::Str(text),
            Err(error) => Attribute::Bytes(error.into_bytes()),
        }
    }
}

/// Attributes by name, in the order of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub Vec<(String, Attribute)>);

impl Attributes {
    /// The attribute with this name.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }

    /// Removes and returns the attribute with this name.
    pub fn take(&mut self, name: &str) -> Option<Attribute> {
        let index = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(index).1)
    }

    /// Adds an attribute at the end.
    pub fn push(&mut self, name: impl Into<String>, value: Attribute) {
        self.0.push((name.into(), value));
    }
}

/// A constant tensor.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Dense {
    /// Its type.
    pub ty: RankedType,
    /// The elements, row-major, little-endian, each of [`ElementType::size`] bytes; or one element
    /// if all are equal. Booleans are 0 or 1, integers of 2 and 4 bits are extended to a byte with
    /// their sign, narrow floats are in the low bits.
    pub bytes: Arc<[u8]>,
}

impl Dense {
    /// A constant of these elements, or of one that stands for all. Equal elements become one.
    pub(crate) fn new(ty: RankedType, mut bytes: Vec<u8>) -> Self {
        let size = ty.element.size();
        let equal = bytes.len() > size && bytes[size..] == bytes[..bytes.len() - size];
        if equal {
            bytes.truncate(size);
        }
        Dense {
            ty,
            bytes: bytes.into(),
        }
    }

    /// Returns whether [`bytes`](Self::bytes) is one element that stands for all.
    pub fn is_splat(&self) -> bool {
        self.bytes.len() == self.ty.element.size() && self.ty.elements() != 1
    }

    /// A constant of one dimension, of integers of 64 bits: `array<i64: 1, 2>`.
    pub fn from_integers(values: impl IntoIterator<Item = i64>) -> Self {
        let bytes: Vec<u8> = values.into_iter().flat_map(i64::to_le_bytes).collect();
        Dense {
            ty: RankedType::new(ElementType::S64, [bytes.len() / size_of::<i64>()]),
            bytes: bytes.into(),
        }
    }

    /// The elements of a constant of integers or booleans, row-major; a splat is expanded.
    ///
    /// Errors are the end of "attribute `a` is ..".
    pub(crate) fn integers(&self) -> Result<Vec<i64>, String> {
        let count = self.ty.elements();
        if self.is_splat() && count > MOST_EQUAL {
            let count = format_count(count as u64);
            return Err(format!(
                "a list of {count} equal elements; expected at most {MOST_EQUAL}"
            ));
        }
        let signed = match self.ty.element.class() {
            ElementClass::Signed => true,
            ElementClass::Unsigned | ElementClass::Bool => false,
            ElementClass::Float | ElementClass::Complex => {
                return Err(format!("a constant of type {}; expected integers", self.ty));
            }
        };
        let size = self.ty.element.size();
        let mut values: Vec<i64> = self
            .bytes
            .chunks_exact(size)
            .map(|chunk| {
                let negative = signed && chunk[size - 1] >= 0x80;
                let mut bytes = [if negative { 0xff } else { 0 }; 8];
                bytes[..size].copy_from_slice(chunk);
                i64::from_le_bytes(bytes)
            })
            .collect();
        if let [value] = values[..] {
            values = vec![value; count];
        }
        Ok(values)
    }
}

/// Bound on the length of lists of equal sizes or dimensions, so that a short program does not make
/// long lists.
const MOST_EQUAL: usize = 256;
