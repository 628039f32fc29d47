//! The attributes that fields are read from, and errors that name them with their values.

use std::{
    cell::Cell,
    fmt::{self, Display, Formatter},
};

use halite_core::{Error, Result};

use crate::{Attribute, Attributes, Type};

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
}

/// A short description of a value, for errors.
pub(super) struct Short<'a>(pub(super) &'a Attribute);

impl Display for Short<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Attribute::Unit => f.write_str("without a value"),
            Attribute::Bool(value) => write!(f, "{value}"),
            Attribute::Int(value, ty) => write!(f, "{value} : {ty}"),
            Attribute::Float(value, ty) => write!(f, "{value} : {ty}"),
            Attribute::Str(text) => write!(f, "{text:?}"),
            Attribute::Bytes(bytes) => {
                write!(f, "a string of {} bytes that is not UTF-8", bytes.len())
            }
            Attribute::Symbol(name) => write!(f, "@{name}"),
            Attribute::Type(ty) => write!(f, "the type {ty}"),
            Attribute::Array(list) => write!(f, "a list of {}", list.len()),
            Attribute::Dict(fields) => write!(f, "a dictionary of {}", fields.0.len()),
            Attribute::Dense(dense) => write!(f, "a constant of type {}", dense.ty),
            Attribute::Sharding(_) => f.write_str("a sharding"),
            Attribute::Shardings(list) => write!(f, "a list of {} shardings", list.len()),
            Attribute::Axes(axes) => write!(f, "a list of {} mesh axes", axes.len()),
        }
    }
}
