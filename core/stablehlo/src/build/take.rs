use halite_core::{Error, Result};

use crate::{Attribute, Attributes, Dense, ElementType, Type};

/// The attributes of one operation, of which each method removes one.
pub(super) struct Take<'a> {
    /// Name of the operation, for errors.
    pub(super) op: &'a str,
    pub(super) attributes: &'a mut Attributes,
    /// Type of the first operand.
    pub(super) operand: Option<&'a Type>,
}

impl Take<'_> {
    /// An error about this operation.
    pub(super) fn error(&self, message: &str) -> Error {
        Error::invalid("program", format!("`{}`: {message}", self.op))
    }

    fn wrong(&self, name: &str, found: &str, expected: &str) -> Error {
        self.error(&format!(
            "attribute `{name}` is {found}; expected {expected}"
        ))
    }

    fn missing(&self, name: &str) -> Error {
        self.error(&format!("attribute `{name}` is missing"))
    }

    /// Number of dimensions of the first operand.
    pub(super) fn rank(&self) -> Result<usize> {
        match self.operand {
            Some(Type::Tensor(ty)) => Ok(ty.rank()),
            Some(other) => Err(self.error(&format!(
                "the first operand is of type {other}; expected a tensor"
            ))),
            None => Err(self.error("it has no operand; expected a tensor")),
        }
    }

    pub(super) fn optional(&mut self, name: &str) -> Option<Attribute> {
        self.attributes.take(name)
    }

    pub(super) fn required(&mut self, name: &str) -> Result<Attribute> {
        self.optional(name).ok_or_else(|| self.missing(name))
    }

    pub(super) fn optional_int(&mut self, name: &str) -> Result<Option<i64>> {
        match self.optional(name) {
            None => Ok(None),
            Some(Attribute::Int(value, _)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(name, &describe(&other), "an integer")),
        }
    }

    pub(super) fn int(&mut self, name: &str) -> Result<i64> {
        let value = self.optional_int(name)?;
        value.ok_or_else(|| self.missing(name))
    }

    pub(super) fn size(&mut self, name: &str) -> Result<usize> {
        let value = self.int(name)?;
        self.to_size(name, value)
    }

    fn to_size(&self, name: &str, value: i64) -> Result<usize> {
        usize::try_from(value)
            .map_err(|_| self.wrong(name, &value.to_string(), "an integer of at least 0"))
    }

    fn to_sizes(&self, name: &str, values: Vec<i64>) -> Result<Vec<usize>> {
        match values.iter().find(|&&value| value < 0) {
            Some(value) => {
                let found = format!("a list with {value}");
                Err(self.wrong(name, &found, "integers of at least 0"))
            }
            None => Ok(values.into_iter().map(|value| value as usize).collect()),
        }
    }

    /// A constant of integers, in any shape, or a list of integers.
    fn optional_dense(&mut self, name: &str) -> Result<Option<Dense>> {
        match self.optional(name) {
            None => Ok(None),
            Some(Attribute::Dense(dense)) => Ok(Some(dense)),
            Some(Attribute::Array(list)) => {
                let mut values = Vec::with_capacity(list.len());
                for value in &list {
                    match value {
                        Attribute::Int(value, _) => values.push(*value),
                        Attribute::Bool(value) => values.push(i64::from(*value)),
                        other => {
                            let found = format!("a list with {}", describe(other));
                            return Err(self.wrong(name, &found, "a list of integers"));
                        }
                    }
                }
                Ok(Some(Dense::from_integers(values)))
            }
            Some(other) => Err(self.wrong(name, &describe(&other), "a list of integers")),
        }
    }

    fn integers(&self, name: &str, dense: &Dense) -> Result<Vec<i64>> {
        dense
            .integers()
            .map_err(|problem| self.error(&format!("attribute `{name}` is {problem}")))
    }

    pub(super) fn optional_ints(&mut self, name: &str) -> Result<Option<Vec<i64>>> {
        let dense = self.optional_dense(name)?;
        dense.map(|dense| self.integers(name, &dense)).transpose()
    }

    pub(super) fn ints(&mut self, name: &str) -> Result<Vec<i64>> {
        let values = self.optional_ints(name)?;
        values.ok_or_else(|| self.missing(name))
    }

    pub(super) fn optional_sizes(&mut self, name: &str) -> Result<Option<Vec<usize>>> {
        let values = self.optional_ints(name)?;
        values.map(|values| self.to_sizes(name, values)).transpose()
    }

    pub(super) fn sizes(&mut self, name: &str) -> Result<Vec<usize>> {
        let values = self.ints(name)?;
        self.to_sizes(name, values)
    }

    /// A list of sizes that is empty by default.
    pub(super) fn dims(&mut self, name: &str) -> Result<Vec<usize>> {
        Ok(self.optional_sizes(name)?.unwrap_or_default())
    }

    /// A list of sizes, by default `count` ones.
    pub(super) fn sizes_or_ones(&mut self, name: &str, count: usize) -> Result<Vec<usize>> {
        Ok(self.optional_sizes(name)?.unwrap_or_else(|| vec![1; count]))
    }

    /// The rows of a constant of type `tensor<Nx2xi64>`.
    pub(super) fn pairs(&mut self, name: &str) -> Result<Option<Vec<(i64, i64)>>> {
        let Some(dense) = self.optional_dense(name)? else {
            return Ok(None);
        };
        // An empty list has no rows, whatever its shape.
        if !matches!(dense.ty.dims[..], [_, 2] | [0, ..]) {
            let found = format!("of type {}", dense.ty);
            return Err(self.wrong(name, &found, "pairs, tensor<Nx2xi64>"));
        }
        let values = self.integers(name, &dense)?;
        Ok(Some(
            values
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect(),
        ))
    }

    /// Padding before and after each of `count` dimensions, by default none.
    pub(super) fn padding(&mut self, count: usize) -> Result<Vec<(i64, i64)>> {
        Ok(self
            .pairs("padding")?
            .unwrap_or_else(|| vec![(0, 0); count]))
    }

    /// The rows of `replica_groups`, without the -1 that pad short ones.
    pub(super) fn groups(&mut self) -> Result<Vec<Vec<usize>>> {
        let name = "replica_groups";
        let dense = self
            .optional_dense(name)?
            .ok_or_else(|| self.missing(name))?;
        let [_, width] = dense.ty.dims[..] else {
            let found = format!("of type {}", dense.ty);
            return Err(self.wrong(name, &found, "a constant of 2 dimensions"));
        };
        let values = self.integers(name, &dense)?;
        let rows = values.chunks_exact(width.max(1));
        rows.map(|row| {
            let length = row
                .iter()
                .rposition(|&member| member != -1)
                .map_or(0, |last| last + 1);
            self.to_sizes(name, row[..length].to_vec())
        })
        .collect()
    }

    /// A boolean, `false` by default. A unit attribute is `true`.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool> {
        match self.optional(name) {
            None => Ok(false),
            Some(Attribute::Unit) => Ok(true),
            Some(Attribute::Bool(value)) => Ok(value),
            Some(Attribute::Int(value @ 0..=1, ElementType::Bool)) => Ok(value == 1),
            Some(other) => Err(self.wrong(name, &describe(&other), "a boolean")),
        }
    }

    pub(super) fn float(&mut self, name: &str) -> Result<f64> {
        match self.required(name)? {
            Attribute::Float(value, _) => Ok(value),
            other => Err(self.wrong(name, &describe(&other), "a float")),
        }
    }

    /// A string or a symbol.
    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>> {
        match self.optional(name) {
            None => Ok(None),
            Some(Attribute::Str(text) | Attribute::Symbol(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, &describe(&other), "a name")),
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String> {
        let text = self.optional_text(name)?;
        text.ok_or_else(|| self.missing(name))
    }

    /// A list of strings or symbols, empty by default.
    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>> {
        let list = match self.optional(name) {
            None => return Ok(Vec::new()),
            Some(Attribute::Array(list)) => list,
            Some(other) => return Err(self.wrong(name, &describe(&other), "a list of names")),
        };
        list.into_iter()
            .map(|item| match item {
                Attribute::Str(text) | Attribute::Symbol(text) => Ok(text),
                other => {
                    let found = format!("a list with {}", describe(&other));
                    Err(self.wrong(name, &found, "a list of names"))
                }
            })
            .collect()
    }

    /// A case of an enumeration, found among `all` by its `text`.
    pub(super) fn optional_case<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        text: fn(T) -> &'static str,
    ) -> Result<Option<T>> {
        let Some(found) = self.optional_text(name)? else {
            return Ok(None);
        };
        match all.iter().find(|&&case| text(case) == found) {
            Some(&case) => Ok(Some(case)),
            None => {
                let expected: Vec<_> = all.iter().map(|&case| text(case)).collect();
                let expected = format!("one of {}", expected.join(", "));
                Err(self.wrong(name, &format!("`{found}`"), &expected))
            }
        }
    }

    pub(super) fn case<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        text: fn(T) -> &'static str,
    ) -> Result<T> {
        let case = self.optional_case(name, all, text)?;
        case.ok_or_else(|| self.missing(name))
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
