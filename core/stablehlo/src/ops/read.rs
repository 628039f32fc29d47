//! Values of attributes, read from their forms in text and bytecode.

use halite_core::Result;

use super::{
    enumeration::Case,
    take::{Short, Take},
};
use crate::{Attribute, Dense};

pub(super) fn int(take: &Take<'_>, name: &str, value: Attribute) -> Result<i64> {
    match value {
        Attribute::Int(value, _) => Ok(value),
        other => Err(take.wrong(name, Short(&other), "an integer")),
    }
}

pub(super) fn size(take: &Take<'_>, name: &str, value: Attribute) -> Result<usize> {
    let value = int(take, name, value)?;
    usize::try_from(value).map_err(|_| take.wrong(name, value, "an integer of at least 0"))
}

/// A constant of integers, in any shape, or a list of integers.
pub(super) fn dense(take: &Take<'_>, name: &str, value: Attribute) -> Result<Dense> {
    let expected = "a list of integers";
    let list = match value {
        Attribute::Dense(dense) => return Ok(dense),
        Attribute::Array(list) => list,
        other => return Err(take.wrong(name, Short(&other), expected)),
    };
    let integers = list.iter().map(|item| match item {
        Attribute::Int(value, _) => Ok(*value),
        Attribute::Bool(value) => Ok(i64::from(*value)),
        other => Err(take.wrong(name, format_args!("a list with {}", Short(other)), expected)),
    });
    Ok(Dense::from_integers(integers.collect::<Result<Vec<_>>>()?))
}

/// The elements of a constant.
pub(super) fn elements(take: &Take<'_>, name: &str, dense: &Dense) -> Result<Vec<i64>> {
    let integers = dense.integers();
    integers.map_err(|problem| take.bad(name, format_args!("is {problem}")))
}

pub(super) fn ints(take: &Take<'_>, name: &str, value: Attribute) -> Result<Vec<i64>> {
    elements(take, name, &dense(take, name, value)?)
}

pub(super) fn sizes(take: &Take<'_>, name: &str, value: Attribute) -> Result<Vec<usize>> {
    to_sizes(take, name, &ints(take, name, value)?)
}

pub(super) fn to_sizes(take: &Take<'_>, name: &str, values: &[i64]) -> Result<Vec<usize>> {
    let sizes = values.iter().map(|&value| {
        let expected = "integers of at least 0";
        usize::try_from(value)
            .map_err(|_| take.wrong(name, format_args!("a list with {value}"), expected))
    });
    sizes.collect()
}

/// The rows of a constant of type `tensor<Nx2xi64>`.
pub(super) fn pairs(take: &Take<'_>, name: &str, value: Attribute) -> Result<Vec<(i64, i64)>> {
    let dense = dense(take, name, value)?;
    // An empty list has no rows, whatever its shape.
    if !matches!(dense.ty.dims[..], [_, 2] | [0, ..]) {
        let found = format_args!("of type {}", dense.ty);
        return Err(take.wrong(name, found, "pairs, tensor<Nx2xi64>"));
    }
    let values = elements(take, name, &dense)?;
    let pairs = values.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    Ok(pairs.collect())
}

/// A string or a symbol.
pub(super) fn text(take: &Take<'_>, name: &str, value: Attribute) -> Result<String> {
    match value {
        Attribute::Str(text) | Attribute::Symbol(text) => Ok(text),
        other => Err(take.wrong(name, Short(&other), "a name")),
    }
}

/// A list of strings or symbols.
pub(super) fn texts(take: &Take<'_>, name: &str, value: Attribute) -> Result<Vec<String>> {
    let expected = "a list of names";
    let Attribute::Array(list) = value else {
        return Err(take.wrong(name, Short(&value), expected));
    };
    let texts = list.into_iter().map(|item| match item {
        Attribute::Str(text) | Attribute::Symbol(text) => Ok(text),
        other => Err(take.wrong(
            name,
            format_args!("a list with {}", Short(&other)),
            expected,
        )),
    });
    texts.collect()
}

/// The case with a name.
pub(super) fn case<T: Case>(take: &Take<'_>, name: &str, value: Attribute) -> Result<T> {
    let index = position(take, name, value, T::ENUMERATION.cases)?;
    Ok(T::ALL[index])
}

/// The position of a name among `cases`.
pub(super) fn position(
    take: &Take<'_>,
    name: &str,
    value: Attribute,
    cases: &[&str],
) -> Result<usize> {
    let found = text(take, name, value)?;
    let case = cases.iter().position(|case| *case == found);
    case.ok_or_else(|| {
        let expected = format!("one of {}", cases.join(", "));
        take.wrong(name, format_args!("`{found}`"), &expected)
    })
}
