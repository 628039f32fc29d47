//! Attributes as a reader finds them, before [`OpKind`](crate::OpKind) gives them their meaning.

use std::sync::Arc;

use crate::{ElementType, RankedType, ShardyAxis, ShardySharding, Type};

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
    /// Returns whether [`bytes`](Self::bytes) is one element that stands for all.
    pub fn is_splat(&self) -> bool {
        self.bytes.len() == self.ty.element.size() && self.ty.elements() != 1
    }
}
