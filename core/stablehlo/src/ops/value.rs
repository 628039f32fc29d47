//! Values of fields, borrowed from an operation. Text writes them as they are; they become
//! [`Attribute`]s where a list of attributes is needed.

use crate::{Attribute, Attributes, Dense, ElementType, RankedType, ShardyAxis, ShardySharding};

/// Value of the attribute of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Bool(bool),
    Int(i64, ElementType),
    Float(f32),
    /// Name of a case of an enumeration.
    Case(&'static str),
    Text(&'a str),
    Texts(&'a [String]),
    Symbol(&'a str),
    Symbols(&'a [String]),
    Ints(&'a [i64]),
    Sizes(&'a [usize]),
    Flags(&'a [bool]),
    /// Rows of two integers.
    Pairs(&'a [(i64, i64)]),
    /// Rows of two devices.
    Devices(&'a [(usize, usize)]),
    /// Rows of devices, short ones padded with -1.
    Groups(&'a [Vec<usize>]),
    Constant(&'a Dense),
    Dictionary(&'a Attributes),
    Sharding(&'a ShardySharding),
    Shardings(&'a [ShardySharding]),
    Axes(&'a [ShardyAxis]),
    /// An attribute as it was read.
    Any(&'a Attribute),
}

/// Length of the longest group.
pub(crate) fn width(groups: &[Vec<usize>]) -> usize {
    groups.iter().map(Vec::len).max().unwrap_or(0)
}

impl From<Value<'_>> for Attribute {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Bool(value) => Attribute::Bool(value),
            Value::Int(value, ty) => Attribute::Int(value, ty),
            Value::Float(value) => Attribute::Float(f64::from(value), ElementType::F32),
            Value::Case(name) => Attribute::Str(name.into()),
            Value::Text(text) => Attribute::Str(text.into()),
            Value::Texts(texts) => list(texts, Attribute::Str),
            Value::Symbol(name) => Attribute::Symbol(name.into()),
            Value::Symbols(names) => list(names, Attribute::Symbol),
            Value::Ints(values) => Attribute::Dense(Dense::from_integers(values.iter().copied())),
            Value::Sizes(sizes) => {
                let sizes = sizes.iter().map(|&size| size as i64);
                Attribute::Dense(Dense::from_integers(sizes))
            }
            Value::Flags(flags) => {
                let ty = RankedType::new(ElementType::Bool, [flags.len()]);
                let bytes = flags.iter().copied().map(u8::from).collect();
                Attribute::Dense(Dense { ty, bytes })
            }
            Value::Pairs(pairs) => {
                let values = pairs.iter().flat_map(|&(low, high)| [low, high]);
                rows(values, [pairs.len(), 2])
            }
            Value::Devices(pairs) => {
                let values = pairs.iter().flat_map(|&(a, b)| [a as i64, b as i64]);
                rows(values, [pairs.len(), 2])
            }
            Value::Groups(groups) => {
                let width = width(groups);
                let values = groups.iter().flat_map(|group| {
                    let members = group.iter().map(|&member| member as i64);
                    members.chain(std::iter::repeat(-1)).take(width)
                });
                rows(values, [groups.len(), width])
            }
            Value::Constant(dense) => Attribute::Dense(dense.clone()),
            Value::Dictionary(attributes) => Attribute::Dict(attributes.clone()),
            Value::Sharding(sharding) => Attribute::Sharding(sharding.clone()),
            Value::Shardings(shardings) => Attribute::Shardings(shardings.into()),
            Value::Axes(axes) => Attribute::Axes(axes.into()),
            Value::Any(value) => value.clone(),
        }
    }
}

fn list(texts: &[String], item: fn(String) -> Attribute) -> Attribute {
    Attribute::Array(texts.iter().cloned().map(item).collect())
}

/// `dense<[[1, 2]]> : tensor<1x2xi64>`, from its elements.
fn rows(values: impl IntoIterator<Item = i64>, dims: [usize; 2]) -> Attribute {
    let mut dense = Dense::from_integers(values);
    dense.ty.dims = dims.into();
    Attribute::Dense(dense)
}
