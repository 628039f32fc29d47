//! Kinds of fields that several operations have, each a function of the name of the attribute.

use super::{
    enumeration::Case,
    fields::Field,
    read,
    take::{Short, Take},
};
use crate::{Attribute, Attributes, Dense, ElementType, RankedType, ShardyAxis, ShardySharding};

/// The name of a case.
pub(super) fn case<T: Case>(name: &'static str) -> Field<T> {
    let write = |case: &T| Some(Attribute::Str(case.name().into()));
    Field::new(name, read::case, write).enumeration(T::ENUMERATION)
}

fn write_int(value: i64, ty: ElementType) -> Option<Attribute> {
    Some(Attribute::Int(value, ty))
}

/// `true` or `false`; `false` if it is missing, `true` if it has no value.
pub(crate) fn flag(name: &'static str) -> Field<bool> {
    let read = |take: &Take<'_>, name: &str, value| match value {
        Attribute::Unit => Ok(true),
        Attribute::Bool(value) => Ok(value),
        Attribute::Int(value @ 0..=1, ElementType::Bool) => Ok(value == 1),
        other => Err(take.wrong(name, Short(&other), "a boolean")),
    };
    Field::new(name, read, |flag| Some(Attribute::Bool(*flag))).or_default()
}

/// `1 : i64`, at least 0.
pub(super) fn size(name: &'static str) -> Field<usize> {
    Field::new(name, read::size, |size| {
        write_int(*size as i64, ElementType::S64)
    })
}

/// `1 : i64` in the dimension numbers, 0 if it is missing.
pub(super) fn dim(name: &'static str) -> Field<usize> {
    size(name).or_default().nested()
}

/// `1 : i32`, at least 0.
pub(super) fn index(name: &'static str) -> Field<usize> {
    size(name).write_by(|index| write_int(*index as i64, ElementType::S32))
}

/// `5 : i32`, at least 0.
pub(super) fn bits(name: &'static str) -> Field<u32> {
    let read = |take: &Take<'_>, name: &str, value| {
        let bits = read::size(take, name, value)?;
        u32::try_from(bits).map_err(|_| take.wrong(name, bits, "32 bits"))
    };
    Field::new(name, read, |bits| {
        write_int((*bits).into(), ElementType::S32)
    })
}

/// `1 : i32`; 0 if it is missing.
pub(super) fn version(name: &'static str) -> Field<i64> {
    Field::new(name, read::int, |it| write_int(*it, ElementType::S32)).or_default()
}

/// `1 : i64`; 0 and less mean that there is no channel.
pub(super) fn channel(name: &'static str) -> Field<Option<i64>> {
    let read = |take: &Take<'_>, name: &str, value| {
        let channel = read::int(take, name, value)?;
        Ok((channel > 0).then_some(channel))
    };
    let write = |channel: &Option<i64>| write_int((*channel)?, ElementType::S64);
    Field::new(name, read, write).or_default()
}

/// `1.0 : f32`.
pub(super) fn float(name: &'static str) -> Field<f32> {
    let read = |take: &Take<'_>, name: &str, value| match value {
        Attribute::Float(value, _) => Ok(value as f32),
        other => Err(take.wrong(name, Short(&other), "a float")),
    };
    Field::new(name, read, |value| {
        Some(Attribute::Float(f64::from(*value), ElementType::F32))
    })
}

fn write_ints(values: impl IntoIterator<Item = i64>) -> Option<Attribute> {
    Some(Attribute::Dense(Dense::from_integers(values)))
}

/// `dense<[[1, 2]]> : tensor<1x2xi64>`, from its elements.
fn write_rows(values: impl IntoIterator<Item = i64>, dims: [usize; 2]) -> Option<Attribute> {
    let mut dense = Dense::from_integers(values);
    dense.ty.dims = dims.into();
    Some(Attribute::Dense(dense))
}

/// `array<i64: 1, -2>`.
pub(super) fn ints(name: &'static str) -> Field<Vec<i64>> {
    Field::new(name, read::ints, |values| {
        write_ints(values.iter().copied())
    })
}

/// `array<i64: 1, 2>`, all at least 0.
pub(crate) fn sizes(name: &'static str) -> Field<Vec<usize>> {
    let write = |sizes: &Vec<usize>| write_ints(sizes.iter().map(|&size| size as i64));
    Field::new(name, read::sizes, write)
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
    let write = |flags: &Vec<bool>| {
        let ty = RankedType::new(ElementType::Bool, [flags.len()]);
        let bytes = flags.iter().copied().map(u8::from).collect();
        Some(Attribute::Dense(Dense { ty, bytes }))
    };
    Field::new(name, read, write).or(|take, _| Ok(vec![false; take.window_rank()?]))
}

/// `dense<[[1, -1]]> : tensor<1x2xi64>`: padding before and after each dimension of a window, none
/// if it is missing.
pub(super) fn padding(name: &'static str) -> Field<Vec<(i64, i64)>> {
    let write = |pairs: &Vec<(i64, i64)>| {
        let rows = pairs.iter().flat_map(|&(low, high)| [low, high]);
        write_rows(rows, [pairs.len(), 2])
    };
    Field::new(name, read::pairs, write).or(|take, _| Ok(vec![(0, 0); take.window_rank()?]))
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
    let write = |pairs: &Vec<(usize, usize)>| {
        let rows = pairs
            .iter()
            .flat_map(|&(from, to)| [from as i64, to as i64]);
        write_rows(rows, [pairs.len(), 2])
    };
    Field::new(name, read, write).or_default()
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
    let write = |groups: &Vec<Vec<usize>>| {
        let width = groups.iter().map(Vec::len).max().unwrap_or(0);
        let rows = groups.iter().flat_map(|group| {
            let members = group.iter().map(|&member| member as i64);
            members.chain(std::iter::repeat(-1)).take(width)
        });
        write_rows(rows, [groups.len(), width])
    };
    Field::new(name, read, write)
}

/// `"text"`.
pub(super) fn text(name: &'static str) -> Field<String> {
    Field::new(name, read::text, |text| Some(Attribute::Str(text.clone())))
}

/// `@name`, a function of the module.
pub(super) fn symbol(name: &'static str) -> Field<String> {
    text(name).write_by(|symbol| Some(Attribute::Symbol(symbol.clone())))
}

/// `["text"]`, empty if it is missing.
pub(super) fn texts(name: &'static str) -> Field<Vec<String>> {
    let write = |texts: &Vec<String>| {
        let texts = texts.iter().cloned().map(Attribute::Str);
        Some(Attribute::Array(texts.collect()))
    };
    Field::new(name, read::texts, write).or_default()
}

/// `[@f, @g]`, functions of the module, none if they are missing.
pub(super) fn symbols(name: &'static str) -> Field<Vec<String>> {
    texts(name).write_by(|symbols| {
        let symbols = symbols.iter().cloned().map(Attribute::Symbol);
        Some(Attribute::Array(symbols.collect()))
    })
}

/// An attribute as it is read.
pub(super) fn any(name: &'static str) -> Field<Option<Attribute>> {
    Field::new(name, |_, _, value| Ok(Some(value)), Option::clone).or_default()
}

/// Makes kinds of which each is a case of [`Attribute`].
macro_rules! attribute_cases {
    ($($(#[$doc:meta])* $kind:ident: $ty:ty = $case:ident, $expected:literal;)*) => {$(
        $(#[$doc])*
        pub(super) fn $kind(name: &'static str) -> Field<$ty> {
            let read = |take: &Take<'_>, name: &str, value| match value {
                Attribute::$case(value) => Ok(value),
                _ => Err(take.bad(name, concat!("is not ", $expected))),
            };
            Field::new(name, read, |value| Some(Attribute::$case(value.clone())))
        }
    )*};
}

attribute_cases! {
    /// `dense<[1, 2]> : tensor<2xi32>`.
    constant: Dense = Dense, "a constant `dense<..>`";
    /// `{name = value, ..}`.
    dictionary: Attributes = Dict, "a dictionary";
    /// `#sdy.sharding<..>`.
    sharding: ShardySharding = Sharding, "a sharding `#sdy.sharding<..>`";
    /// `#sdy.sharding_per_value<[..]>`.
    shardings: Vec<ShardySharding> = Shardings, "a list of shardings";
    /// `#sdy<manual_axes{"x"}>`.
    axes: Vec<ShardyAxis> = Axes, "a list of mesh axes";
}
