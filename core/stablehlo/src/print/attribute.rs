//! Attributes as text.

use std::fmt::{Display, Formatter, Result};

use super::{Symbol, dense::DenseText, field, list};
use crate::{Attribute, Attributes, ElementType, ShardyAxis, ShardyDim, ShardySharding};

/// `{name = value, ..}`.
pub(super) struct Dict<'a>(pub(super) &'a Attributes);

impl Display for Dict<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("{")?;
        list(f, &self.0.0, |f, (name, value)| field(f, name, value))?;
        f.write_str("}")
    }
}

/// `name = value`, or `name` alone.
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a Attribute,
}

impl Display for Field<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.');
        let first = self
            .name
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        match first && self.name.chars().all(plain) {
            true => f.write_str(self.name)?,
            false => write!(f, "{}", Text(self.name))?,
        }
        match self.value {
            Attribute::Unit => Ok(()),
            // It is a structure wherever it occurs.
            Attribute::Dict(fields) if self.name == "result_accuracy" => {
                f.write_str(" = #stablehlo.result_accuracy<")?;
                list(f, &fields.0, |f, (name, value)| match value {
                    Attribute::Str(mode) => {
                        write!(f, "{name} = #stablehlo.result_accuracy_mode<{mode}>")
                    }
                    Attribute::Float(value, _) => write!(f, "{name} = {}", Decimal(*value)),
                    Attribute::Int(value, _) => write!(f, "{name} = {value}"),
                    other => field(f, name, other),
                })?;
                f.write_str(">")
            }
            value => write!(f, " = {}", Value(value)),
        }
    }
}

/// The value of an attribute, with its type.
pub(super) struct Value<'a>(pub(super) &'a Attribute);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            Attribute::Unit => f.write_str("unit"),
            Attribute::Bool(value) => write!(f, "{value}"),
            Attribute::Int(value, ElementType::Bool) => write!(f, "{}", *value != 0),
            Attribute::Int(value, ElementType::U64) => write!(f, "{} : ui64", *value as u64),
            Attribute::Int(value, ty) => write!(f, "{value} : {ty}"),
            Attribute::Float(value, ty) => match value.is_finite() {
                true => write!(f, "{} : {ty}", Decimal(*value)),
                false if *ty == ElementType::F32 => {
                    write!(f, "0x{:08X} : {ty}", (*value as f32).to_bits())
                }
                false => write!(f, "0x{:016X} : f64", value.to_bits()),
            },
            Attribute::Str(text) => write!(f, "{}", Text(text)),
            Attribute::Bytes(bytes) => write!(f, "{}", Text(bytes)),
            Attribute::Symbol(name) => write!(f, "{}", Symbol(name)),
            Attribute::Type(ty) => write!(f, "{ty}"),
            Attribute::Array(items) => {
                f.write_str("[")?;
                list(f, items, |f, item| write!(f, "{}", Value(item)))?;
                f.write_str("]")
            }
            Attribute::Dict(attributes) => write!(f, "{}", Dict(attributes)),
            Attribute::Dense(dense) => write!(f, "{}", DenseText(dense)),
            Attribute::Sharding(sharding) => write!(f, "#sdy.sharding{sharding}"),
            Attribute::Shardings(shardings) => {
                f.write_str("#sdy.sharding_per_value<[")?;
                list(f, shardings, |f, sharding| write!(f, "{sharding}"))?;
                f.write_str("]>")
            }
            Attribute::Axes(axes) => {
                f.write_str("#sdy<manual_axes{")?;
                list(f, axes, |f, axis| write!(f, "{axis}"))?;
                f.write_str("}>")
            }
        }
    }
}

/// A finite float with a point, as MLIR requires it.
pub(super) struct Decimal(pub(super) f64);

impl Display for Decimal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let text = format!("{:?}", self.0);
        match text.split_once('e') {
            Some((mantissa, exponent)) if !mantissa.contains('.') => {
                write!(f, "{mantissa}.0e{exponent}")
            }
            _ => f.write_str(&text),
        }
    }
}

/// A quoted string.
pub(super) struct Text<T>(pub(super) T);

impl<T: AsRef<[u8]>> Display for Text<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("\"")?;
        for &byte in self.0.as_ref() {
            match byte {
                b'"' => f.write_str("\\\"")?,
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\{byte:02X}")?,
            }
        }
        f.write_str("\"")
    }
}

impl Display for ShardySharding {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "<{}, [", Symbol(&self.mesh))?;
        list(f, &self.dims, |f, dim| write!(f, "{dim}"))?;
        f.write_str("]")?;
        for (name, axes) in [
            ("replicated", &self.replicated),
            ("unreduced", &self.unreduced),
        ] {
            if !axes.is_empty() {
                write!(f, ", {name}={{")?;
                list(f, axes, |f, axis| write!(f, "{axis}"))?;
                f.write_str("}")?;
            }
        }
        f.write_str(">")
    }
}

impl Display for ShardyDim {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("{")?;
        list(f, &self.axes, |f, axis| write!(f, "{axis}"))?;
        match (self.open, self.axes.is_empty()) {
            (true, true) => f.write_str("?")?,
            (true, false) => f.write_str(", ?")?,
            (false, _) => {}
        }
        f.write_str("}")?;
        match self.priority {
            Some(priority) => write!(f, "p{priority}"),
            None => Ok(()),
        }
    }
}

impl Display for ShardyAxis {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}", Text(&self.name))?;
        match self.part {
            Some((before, size)) => write!(f, ":({before}){size}"),
            None => Ok(()),
        }
    }
}
