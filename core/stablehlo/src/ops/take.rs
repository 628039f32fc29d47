//! Reading of fields from attributes, with errors that name the attribute and its value.

use std::{cell::Cell, fmt::Display};

use halite_core::{Error, Result};

use super::enumeration::Case;
use crate::{Attribute, Attributes, Dense, Type};

/// The attributes of one operation, from which its fields are taken.
pub(crate) struct Take<'a> {
    /// Name of the operation, for errors.
    op: &'a str,
    pub(crate) attributes: &'a mut Attributes,
    /// Type of the first operand.
    operand: Option<&'a Type>,
    /// Number of dimensions of the operation's window, once a field determines it.
    pub(super) window: Cell<Option<usize>>,
}

impl<'a> Take<'a> {
    pub(crate) fn new(
        op: &'a str,
        attributes: &'a mut Attributes,
        operand: Option<&'a Type>,
    ) -> Self {
        Take {
            op,
            attributes,
            operand,
            window: Cell::new(None),
        }
    }

    /// An error about this operation.
    pub(crate) fn error(&self, message: &str) -> Error {
        Error::invalid("program", format!("`{}`: {message}", self.op))
    }

    /// An error about an attribute, of which `problem` is what it is or has.
    pub(super) fn bad(&self, name: &str, problem: impl Display) -> Error {
        self.error(&format!("attribute `{name}` {problem}"))
    }

    pub(super) fn wrong(&self, name: &str, found: impl Display, expected: &str) -> Error {
        self.bad(name, format_args!("is {found}; expected {expected}"))
    }

    pub(super) fn wrong_value(&self, name: &str, found: &Attribute, expected: &str) -> Error {
        self.wrong(name, describe(found), expected)
    }

    fn wrong_item(&self, name: &str, found: &Attribute, expected: &str) -> Error {
        self.wrong(
            name,
            format_args!("a list with {}", describe(found)),
            expected,
        )
    }

    pub(super) fn missing(&self, name: &str) -> Error {
        self.bad(name, "is missing")
    }

    /// Number of dimensions of the first operand.
    pub(crate) fn rank(&self) -> Result<usize> {
        match self.operand {
            Some(Type::Tensor(ty)) => Ok(ty.rank()),
            Some(other) => Err(self.error(&format!(
                "the first operand is of type {other}; expected a tensor"
            ))),
            None => Err(self.error("it has no operand; expected a tensor")),
        }
    }

    /// Number of dimensions of the window, by default that of the first operand.
    pub(super) fn window_rank(&self) -> Result<usize> {
        self.window.get().map_or_else(|| self.rank(), Ok)
    }

    pub(super) fn int(&self, name: &str, value: Attribute) -> Result<i64> {
        match value {
            Attribute::Int(value, _) => Ok(value),
            other => Err(self.wrong_value(name, &other, "an integer")),
        }
    }

    pub(super) fn size(&self, name: &str, value: Attribute) -> Result<usize> {
        let value = self.int(name, value)?;
        usize::try_from(value).map_err(|_| self.wrong(name, value, "an integer of at least 0"))
    }

    pub(super) fn ints(&self, name: &str, value: Attribute) -> Result<Vec<i64>> {
        let dense = self.dense(name, value)?;
        self.integers(name, &dense)
    }

    pub(super) fn sizes(&self, name: &str, value: Attribute) -> Result<Vec<usize>> {
        let values = self.ints(name, value)?;
        self.to_sizes(name, &values)
    }

    pub(super) fn to_sizes(&self, name: &str, values: &[i64]) -> Result<Vec<usize>> {
        match values.iter().find(|&&value| value < 0) {
            Some(value) => {
                let found = format_args!("a list with {value}");
                Err(self.wrong(name, found, "integers of at least 0"))
            }
            None => Ok(values.iter().map(|&value| value as usize).collect()),
        }
    }

    /// A constant of integers, in any shape, or a list of integers.
    pub(super) fn dense(&self, name: &str, value: Attribute) -> Result<Dense> {
        let list = match value {
            Attribute::Dense(dense) => return Ok(dense),
            Attribute::Array(list) => list,
            other => return Err(self.wrong_value(name, &other, "a list of integers")),
        };
        let integers = list.iter().map(|item| match item {
            Attribute::Int(value, _) => Ok(*value),
            Attribute::Bool(value) => Ok(i64::from(*value)),
            other => Err(self.wrong_item(name, other, "a list of integers")),
        });
        Ok(Dense::from_integers(integers.collect::<Result<Vec<_>>>()?))
    }

    pub(super) fn integers(&self, name: &str, dense: &Dense) -> Result<Vec<i64>> {
        dense
            .integers()
            .map_err(|problem| self.bad(name, format_args!("is {problem}")))
    }

    /// A string or a symbol.
    pub(super) fn text(&self, name: &str, value: Attribute) -> Result<String> {
        match value {
            Attribute::Str(text) | Attribute::Symbol(text) => Ok(text),
            other => Err(self.wrong_value(name, &other, "a name")),
        }
    }

    /// A list of strings or symbols.
    pub(super) fn texts(&self, name: &str, value: Attribute) -> Result<Vec<String>> {
        let list = match value {
            Attribute::Array(list) => list,
            other => return Err(self.wrong_value(name, &other, "a list of names")),
        };
        let texts = list.into_iter().map(|item| match item {
            Attribute::Str(text) | Attribute::Symbol(text) => Ok(text),
            other => Err(self.wrong_item(name, &other, "a list of names")),
        });
        texts.collect()
    }

    /// The case with a name.
    pub(super) fn case_of<T: Case>(&self, name: &str, value: Attribute) -> Result<T> {
        let index = self.case(name, value, T::ENUMERATION.cases)?;
        Ok(T::ALL[index])
    }

    /// The index of a name among `cases`.
    pub(super) fn case(&self, name: &str, value: Attribute, cases: &[&str]) -> Result<usize> {
        let found = self.text(name, value)?;
        let case = cases.iter().position(|case| *case == found);
        case.ok_or_else(|| {
            let expected = format!("one of {}", cases.join(", "));
            self.wrong(name, format_args!("`{found}`"), &expected)
        })
    }
}

/// A short description of a value, for errors.
fn describe(attribute: &Attribute) -> String {
    match attribute {
        Attribute::Unit => "without a value".into(),
        Attribute::Bool(value) => value.to_string(),
        Attribute::Int(value, ty) => format!("{value} : {ty}"),
        Attribute::Float(value, ty) => format!("{value} : {ty}"),
        Attribute::Str(text) => format!("{text:?}"),
        Attribute::Bytes(bytes) => format!("a string of {} bytes that is not UTF-8", bytes.len()),
        Attribute::Symbol(name) => format!("@{name}"),
        Attribute::Type(ty) => format!("the type {ty}"),
        Attribute::Array(list) => format!("a list of {}", list.len()),
        Attribute::Dict(fields) => format!("a dictionary of {}", fields.0.len()),
        Attribute::Dense(dense) => format!("a constant of type {}", dense.ty),
        Attribute::Sharding(_) => "a sharding".into(),
        Attribute::Shardings(list) => format!("a list of {} shardings", list.len()),
        Attribute::Axes(axes) => format!("a list of {} mesh axes", axes.len()),
    }
}
