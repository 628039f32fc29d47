//! Kinds of fields that several operations have, each a function of the name of the attribute.

use super::{
    enumeration::Case,
    fields::Field,
    read,
    take::{Short, Take},
    value::Value,
};
use crate::{Attribute, Attributes, Dense, ElementType, ShardyAxis, ShardySharding};

/// The name of a case.
pub(super) fn case<T: Case>(name: &'static str) -> Field<T> {
    let field = Field::new(name, read::case, |case: &T| Some(Value::Case(case.name())));
    field.enumeration(T::ENUMERATION)
}

/// `true` or `false`; `false` if it is missing, `true` if it has no value.
pub(crate) fn flag(name: &'static str) -> Field<bool> {
    let read = |take: &Take<'_>, name: &str, value| match value {
        Attribute::Unit => Ok(true),
        Attribute::Bool(value) => Ok(value),
        Attribute::Int(value @ 0..=1, ElementType::Bool) => Ok(value == 1),
        other => Err(take.wrong(name, Short(&other), "a boolean")),
    };
    Field::new(name, read, |flag| Some(Value::Bool(*flag))).or_default()
}

/// `1 : i64`, at least 0.
pub(super) fn size(name: &'static str) -> Field<usize> {
    Field::new(name, read::size, |size| {
        Some(Value::Int(*size as i64, ElementType::S64))
    })
}

/// `1 : i64` in the dimension numbers, 0 if it is missing.
pub(super) fn dim(name: &'static str) -> Field<usize> {
    size(name).or_default().nested()
}

/// `1 : i32`, at least 0.
pub(super) fn index(name: &'static str) -> Field<usize> {
    size(name).write_by(|index| Some(Value::Int(*index as i64, ElementType::S32)))
}

/// `5 : i32`, at least 0.
pub(super) fn bits(name: &'static str) -> Field<u32> {
    let read = |take: &Take<'_>, name: &str, value| {
        let bits = read::size(take, name, value)?;
        u32::try_from(bits).map_err(|_| take.wrong(name, bits, "32 bits"))
    };
    Field::new(name, read, |bits| {
        Some(Value::Int((*bits).into(), ElementType::S32))
    })
}

/// `1 : i32`; 0 if it is missing.
pub(super) fn version(name: &'static str) -> Field<i64> {
    let field = Field::new(name, read::int, |it| {
        Some(Value::Int(*it, ElementType::S32))
    });
    field.or_default()
}

/// `1 : i64`; 0 and less mean that there is no channel.
pub(super) fn channel(name: &'static str) -> Field<Option<i64>> {
    let read = |take: &Take<'_>, name: &str, value| {
        let channel = read::int(take, name, value)?;
        Ok((channel > 0).then_some(channel))
    };
    let field = Field::new(name, read, |channel| {
        channel.map(|channel| Value::Int(channel, ElementType::S64))
    });
    field.or_default()
}

/// `1.0 : f32`.
pub(super) fn float(name: &'static str) -> Field<f32> {
    let read = |take: &Take<'_>, name: &str, value| match value {
        Attribute::Float(value, _) => Ok(value as f32),
        other => Err(take.wrong(name, Short(&other), "a float")),
    };
    Field::new(name, read, |value| Some(Value::Float(*value)))
}

/// `array<i64: 1, -2>`.
pub(super) fn ints(name: &'static str) -> Field<Vec<i64>> {
    Field::new(name, read::ints, |values| Some(Value::Ints(values)))
}

/// `array<i64: 1, 2>`, all at least 0.
pub(crate) fn sizes(name: &'static str) -> Field<Vec<usize>> {
    Field::new(name, read::sizes, |sizes| Some(Value::Sizes(sizes)))
}

/// `array<i64: 1, 2>` in the dimension numbers, empty if it is missing.
pub(super) fn dims(name: &'static str) -> Field<Vec<usize>> {
    sizes(name).or_default().nested()
}

/// `array<i64: 1, 2>`, of each dimension of a window, whose number they determine.
pub(super) fn window(name: &'static str) -> Field<Vec<usize>> {
    sizes(name).read_by(|take, name, value| {
        let sizes = read::sizes(take, name, value)?;
        take.window.set(Some(sizes.len()));
        Ok(sizes)
    })
}

/// `array<i64: 1, 2>`, steps of a window, 1 in each dimension if they are missing.
pub(super) fn steps(name: &'static str) -> Field<Vec<usize>> {
    sizes(name).or(|take, _| Ok(vec![1; take.window_rank()?]))
}

/// `array<i1: true, false>`, of each dimension of a window, `false` if they are missing.
pub(super) fn flags(name: &'static str) -> Field<Vec<bool>> {
    let read = |take: &Take<'_>, name: &str, value| {
        let flags = read::ints(take, name, value)?;
        Ok(flags.into_iter().map(|flag| flag != 0).collect())
    };
    let field = Field::new(name, read, |flags: &Vec<bool>| Some(Value::Flags(flags)));
    field.or(|take, _| Ok(vec![false; take.window_rank()?]))
}

/// `dense<[[1, -1]]> : tensor<1x2xi64>`: padding before and after each dimension of a window, none
/// if it is missing.
pub(super) fn padding(name: &'static str) -> Field<Vec<(i64, i64)>> {
    let field = Field::new(name, read::pairs, |pairs| Some(Value::Pairs(pairs)));
    field.or(|take, _| Ok(vec![(0, 0); take.window_rank()?]))
}

/// `dense<[[0, 1]]> : tensor<1x2xi64>`: pairs of devices, none if they are missing.
pub(super) fn devices(name: &'static str) -> Field<Vec<(usize, usize)>> {
    let read = |take: &Take<'_>, name: &str, value| {
        let pairs = read::pairs(take, name, value)?.into_iter();
        let pairs: Option<_> = pairs
            .map(|(from, to)| Some((usize::try_from(from).ok()?, usize::try_from(to).ok()?)))
            .collect();
        pairs.ok_or_else(|| take.bad(name, "has a negative device"))
    };
    let field = Field::new(name, read, |pairs: &Vec<_>| Some(Value::Devices(pairs)));
    field.or_default()
}

/// `dense<[[0, 2, 1], [3, -1, -1]]> : tensor<2x3xi64>`: groups, short ones padded with -1.
pub(super) fn groups(name: &'static str) -> Field<Vec<Vec<usize>>> {
    let read = |take: &Take<'_>, name: &str, value| {
        let dense = read::dense(take, name, value)?;
        let [_, width] = dense.ty.dims[..] else {
            let found = format_args!("of type {}", dense.ty);
            return Err(take.wrong(name, found, "a constant of 2 dimensions"));
        };
        let values = read::elements(take, name, &dense)?;
        let rows = values.chunks_exact(width.max(1)).map(|row| {
            let last = row.iter().rposition(|&member| member != -1);
            read::to_sizes(take, name, &row[..last.map_or(0, |last| last + 1)])
        });
        rows.collect()
    };
    Field::new(name, read, |groups: &Vec<Vec<usize>>| {
        Some(Value::Groups(groups))
    })
}

/// `"text"`.
pub(super) fn text(name: &'static str) -> Field<String> {
    Field::new(name, read::text, |text| Some(Value::Text(text)))
}

/// `@name`, a function of the module.
pub(super) fn symbol(name: &'static str) -> Field<String> {
    text(name).write_by(|symbol| Some(Value::Symbol(symbol)))
}

/// `["text"]`, empty if it is missing.
pub(super) fn texts(name: &'static str) -> Field<Vec<String>> {
    Field::new(name, read::texts, |texts| Some(Value::Texts(texts))).or_default()
}

/// `[@f, @g]`, functions of the module, none if they are missing.
pub(super) fn symbols(name: &'static str) -> Field<Vec<String>> {
    texts(name).write_by(|symbols| Some(Value::Symbols(symbols)))
}

/// An attribute as it is read.
pub(super) fn any(name: &'static str) -> Field<Option<Attribute>> {
    let read = |_: &Take<'_>, _: &str, value| Ok(Some(value));
    Field::new(name, read, |value| value.as_ref().map(Value::Any)).or_default()
}

/// Makes kinds of which each is a case of [`Attribute`].
macro_rules! attribute_cases {
    ($($(#[$doc:meta])* $kind:ident: $ty:ty = $case:ident, $value:ident, $expected:literal;)*) => {$(
        $(#[$doc])*
        pub(super) fn $kind(name: &'static str) -> Field<$ty> {
            let read = |take: &Take<'_>, name: &str, value| match value {
                Attribute::$case(value) => Ok(value),
                _ => Err(take.bad(name, concat!("is not ", $expected))),
            };
            Field::new(name, read, |value| Some(Value::$value(value)))
        }
    )*};
}

attribute_cases! {
    /// `dense<[1, 2]> : tensor<2xi32>`.
    constant: Dense = Dense, Constant, "a constant `dense<..>`";
    /// `{name = value, ..}`.
    dictionary: Attributes = Dict, Dictionary, "a dictionary";
    /// `#sdy.sharding<..>`.
    sharding: ShardySharding = Sharding, Sharding, "a sharding `#sdy.sharding<..>`";
    /// `#sdy.sharding_per_value<[..]>`.
    shardings: Vec<ShardySharding> = Shardings, Shardings, "a list of shardings";
    /// `#sdy<manual_axes{"x"}>`.
    axes: Vec<ShardyAxis> = Axes, Axes, "a list of mesh axes";
}
