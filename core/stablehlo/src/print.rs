//! Programs as text.
//!
//! Operations are in the generic form, which is the same for all and changes least between versions
//! of MLIR; functions are in the pretty form. Values are named by their number.

mod attribute;
mod dense;
mod properties;

use std::fmt::{Display, Formatter, Result};

use self::{
    attribute::{Dict, Field, Text},
    properties::Properties,
};
use crate::{
    Attribute, Attributes, Function, Module, OpKind, Operation, Region, ShardyMesh, SourceLine,
    ValueId,
};

/// MLIR text, which [`Module::parse`] and other tools for StableHLO read.
impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("module")?;
        if !self.name.is_empty() {
            write!(f, " {}", Symbol(&self.name))?;
        }
        if !self.attributes.0.is_empty() {
            write!(f, " attributes {}", Dict(&self.attributes))?;
        }
        f.write_str(" {\n")?;
        for mesh in &self.meshes {
            writeln!(f, "  {mesh}")?;
        }
        for function in &self.functions {
            write!(f, "{function}")?;
        }
        f.write_str("}\n")
    }
}

impl Display for ShardyMesh {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "sdy.mesh {} = <[", Symbol(&self.name))?;
        list(f, &self.axes, |f, (name, size)| {
            write!(f, "{}={size}", Text(name))
        })?;
        f.write_str("]")?;
        if !self.devices.is_empty() {
            f.write_str(", device_ids=[")?;
            list(f, &self.devices, |f, device| write!(f, "{device}"))?;
            f.write_str("]")?;
        }
        f.write_str(">")
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let visibility = if self.name == "main" {
            "public"
        } else {
            "private"
        };
        write!(f, "  func.func {visibility} {}(", Symbol(&self.name))?;
        let printer = Printer { function: self };
        let inputs = self.body.arguments.iter().zip(&self.input_attributes);
        list(f, inputs, |f, (&value, attributes)| {
            write!(f, "{}: {}", Value(value), self.ty(value))?;
            optional(f, attributes)
        })?;
        f.write_str(") -> (")?;
        let outputs = self.body.results.iter().zip(&self.output_attributes);
        list(f, outputs, |f, (&value, attributes)| {
            write!(f, "{}", self.ty(value))?;
            optional(f, attributes)
        })?;
        f.write_str(") {\n")?;
        printer.body(f, &self.body, "func.return", 2)?;
        f.write_str("  }\n")
    }
}

/// Prints the operations of a function.
struct Printer<'a> {
    function: &'a Function,
}

impl Printer<'_> {
    /// The operations of a region and its terminator, each on a line.
    fn body(
        &self,
        f: &mut Formatter<'_>,
        region: &Region,
        terminator: &str,
        depth: usize,
    ) -> Result {
        for operation in &region.operations {
            self.operation(f, operation, depth)?;
        }
        write!(f, "{:1$}\"{terminator}\"(", "", 2 * depth)?;
        self.values(f, &region.results)?;
        f.write_str(") : ")?;
        self.signature(f, &region.results, &[])?;
        f.write_str("\n")
    }

    fn operation(&self, f: &mut Formatter<'_>, operation: &Operation, depth: usize) -> Result {
        write!(f, "{:1$}", "", 2 * depth)?;
        if !operation.results.is_empty() {
            self.values(f, &operation.results)?;
            f.write_str(" = ")?;
        }
        let (name, attributes) = operation.kind.to_attributes();
        let dialect = if name.contains('.') { "" } else { "stablehlo." };
        write!(f, "\"{dialect}{name}\"(")?;
        self.values(f, &operation.operands)?;
        f.write_str(")")?;
        let properties = Properties::new(name, attributes);
        if !properties.0.is_empty() {
            write!(f, " <{properties}>")?;
        }
        if !operation.regions.is_empty() {
            let terminator = match operation.kind {
                OpKind::ManualComputation(_) => "sdy.return",
                _ => "stablehlo.return",
            };
            f.write_str(" (")?;
            list(f, &operation.regions, |f, region| {
                self.region(f, region, terminator, depth)
            })?;
            f.write_str(")")?;
        }
        optional(f, &operation.attributes)?;
        f.write_str(" : ")?;
        self.signature(f, &operation.operands, &operation.results)?;
        if let Some(line) = &operation.location {
            let SourceLine { file, line } = &**line;
            write!(f, " loc({}:{line}:0)", Text(file))?;
        }
        f.write_str("\n")
    }

    fn region(
        &self,
        f: &mut Formatter<'_>,
        region: &Region,
        terminator: &str,
        depth: usize,
    ) -> Result {
        f.write_str("{\n")?;
        if !region.arguments.is_empty() {
            write!(f, "{:1$}^bb0(", "", 2 * depth)?;
            list(f, &region.arguments, |f, &value| {
                write!(f, "{}: {}", Value(value), self.function.ty(value))
            })?;
            f.write_str("):\n")?;
        }
        self.body(f, region, terminator, depth + 1)?;
        write!(f, "{:1$}}}", "", 2 * depth)
    }

    fn values(&self, f: &mut Formatter<'_>, values: &[ValueId]) -> Result {
        list(f, values, |f, &value| write!(f, "{}", Value(value)))
    }

    fn signature(
        &self,
        f: &mut Formatter<'_>,
        operands: &[ValueId],
        results: &[ValueId],
    ) -> Result {
        let types = |f: &mut Formatter<'_>, values: &[ValueId]| {
            f.write_str("(")?;
            list(f, values, |f, &value| {
                write!(f, "{}", self.function.ty(value))
            })?;
            f.write_str(")")
        };
        types(f, operands)?;
        f.write_str(" -> ")?;
        types(f, results)
    }
}

/// A value by its number.
struct Value(ValueId);

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "%{}", self.0.0)
    }
}

/// `@name`, quoted where it needs to be.
struct Symbol<'a>(&'a str);

impl Display for Symbol<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.');
        let first = self
            .0
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        match first && self.0.chars().all(plain) {
            true => write!(f, "@{}", self.0),
            false => write!(f, "@{}", Text(self.0)),
        }
    }
}

/// Items separated by commas.
fn list<T>(
    f: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut Formatter<'_>, T) -> Result,
) -> Result {
    for (index, value) in items.into_iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        item(f, value)?;
    }
    Ok(())
}

/// ` {name = value, ..}`, if there are attributes.
fn optional(f: &mut Formatter<'_>, attributes: &Attributes) -> Result {
    match attributes.0.is_empty() {
        true => Ok(()),
        false => write!(f, " {}", Dict(attributes)),
    }
}

/// One attribute of a dictionary.
fn field(f: &mut Formatter<'_>, name: &str, value: &Attribute) -> Result {
    write!(f, "{}", Field { name, value })
}

impl Module {
    /// MLIR text with source lines.
    pub fn to_text(&self) -> String {
        self.to_string()
    }

    /// Calls `each` with the pieces of the text without source lines.
    pub fn write_without_locations(&self, each: &mut dyn FnMut(&[u8])) {
        halite_core::program_text::without_locations(self.to_string().as_bytes(), each);
    }
}
