//! Writing of modules, functions and operations.

use halite_core::{Error, ErrorKind, Result};

use super::{
    encode::{Form, MIXED},
    encoder::Encoder,
    file::file,
    interned::{BUILTIN, SHARDY, Tables, VHLO},
    reader::MOST_DEPTH,
    sections::{part, section},
};
use crate::{
    Attribute, Attributes, Function, Module, OpKind, Operation, Region, ShardyMesh, SourceLine,
    Type, ValueId, Version,
};

/// The oldest version that is written.
const OLDEST: Version = Version::new(1, 0, 0);
/// The newest version that is written.
const NEWEST: Version = Version::new(1, 17, 0);

/// Writes a module as an artifact of a version.
pub(super) fn write(module: &Module, version: Version) -> Result<Vec<u8>> {
    if version < OLDEST || version.release() > NEWEST.release() {
        let message = format!(
            "artifacts of StableHLO {version} are not written; expected {OLDEST} to {NEWEST}"
        );
        return Err(Error::new(ErrorKind::Unsupported, "bytecode", message));
    }
    let mut writer = Writer {
        tables: Tables::new(version),
        numbers: Vec::new(),
        depth: 0,
    };
    let mut ir = Encoder::default();
    ir.flagged(1, false);
    writer.module(module, &mut ir)?;
    Ok(file(writer.tables, &ir).0)
}

struct Writer {
    tables: Tables,
    /// Number of each value of the function that is being written, once it is computed.
    numbers: Vec<Option<u64>>,
    /// Number of regions in each other around the operation that is being written.
    depth: usize,
}

/// An operation to write, without its regions.
#[derive(Default)]
struct Encoded<'a> {
    name: usize,
    location: Option<&'a SourceLine>,
    /// Index of the dictionary of discardable attributes.
    attributes: Option<usize>,
    properties: Option<Encoder>,
    results: Vec<usize>,
    operands: Vec<u64>,
    regions: usize,
    isolated: bool,
}

/// The next number of a value in a region, and the first of regions inside.
struct Numbers {
    next: u64,
    end: u64,
}

impl Numbers {
    fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Writer {
    fn module(&mut self, module: &Module, ir: &mut Encoder) -> Result<()> {
        let mut properties = Encoder::default();
        if module.name.is_empty() {
            properties.varint(0);
        } else {
            let name = Attribute::Str(module.name.clone());
            properties.flagged(self.tables.attribute(&name, Form::Builtin)?, true);
        }
        properties.varint(0); // No visibility.
        let head = Encoded {
            name: self.tables.name(BUILTIN, "module"),
            attributes: self.discardable(&module.attributes, Form::Builtin)?,
            properties: Some(properties),
            regions: 1,
            isolated: true,
            ..Encoded::default()
        };
        self.operation_head(head, ir);
        let mut body = Encoder::default();
        let operations = module.meshes.len() + module.functions.len();
        body.size(1).size(0).flagged(operations, false);
        for mesh in &module.meshes {
            self.mesh(mesh, &mut body)?;
        }
        for function in &module.functions {
            self.function(function, &mut body)?;
        }
        ir.section(section::IR, &body);
        Ok(())
    }

    fn mesh(&mut self, mesh: &ShardyMesh, out: &mut Encoder) -> Result<()> {
        self.tables.require("a mesh of Shardy", MIXED)?;
        let name = Attribute::Str(mesh.name.clone());
        let mut properties = Encoder::default();
        properties.size(self.tables.mesh(mesh));
        properties.size(self.tables.attribute(&name, Form::Builtin)?);
        let head = Encoded {
            name: self.tables.name(SHARDY, "mesh"),
            properties: Some(properties),
            ..Encoded::default()
        };
        self.operation_head(head, out);
        Ok(())
    }

    fn function(&mut self, function: &Function, out: &mut Encoder) -> Result<()> {
        self.numbers.clear();
        self.numbers.resize(function.types.len(), None);
        let attributes = |lists: &[Attributes]| {
            let lists = match lists.iter().all(|list| list.0.is_empty()) {
                true => Vec::new(),
                false => lists.iter().cloned().map(Attribute::Dict).collect(),
            };
            Attribute::Array(lists)
        };
        let visibility = match function.name.as_str() {
            "main" => "public",
            _ => "private",
        };
        let inputs = self.types_of(function, &function.body.arguments, Form::Vhlo)?;
        let outputs = self.types_of(function, &function.body.results, Form::Vhlo)?;
        let mut properties = Encoder::default();
        let inputs_attributes = attributes(&function.input_attributes);
        properties.size(self.tables.attribute(&inputs_attributes, Form::Vhlo)?);
        properties.size(self.tables.function_type(&inputs, &outputs));
        for attribute in [
            attributes(&function.output_attributes),
            Attribute::Str(function.name.clone()),
            Attribute::Str(visibility.into()),
        ] {
            properties.size(self.tables.attribute(&attribute, Form::Vhlo)?);
        }
        let head = Encoded {
            name: self.tables.name(VHLO, "func_v1"),
            properties: Some(properties),
            regions: 1,
            isolated: true,
            ..Encoded::default()
        };
        self.operation_head(head, out);
        let mut body = Encoder::default();
        self.region(function, &function.body, 0, Form::Vhlo, &mut body)?;
        out.section(section::IR, &body);
        Ok(())
    }

    /// Writes a region, whose values have numbers from `first` on. The arguments and the return are
    /// of the dialect `form`.
    fn region(
        &mut self,
        function: &Function,
        region: &Region,
        first: u64,
        form: Form,
        out: &mut Encoder,
    ) -> Result<()> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            let message = format!("regions nest deeper than {MOST_DEPTH}");
            return Err(Error::new(ErrorKind::Unsupported, "bytecode", message));
        }
        let casts = casts_inside(region, form);
        let results = region
            .operations
            .iter()
            .map(|operation| operation.results.len());
        let values = region.arguments.len() + results.sum::<usize>() + casts;
        let mut numbers = Numbers {
            next: first,
            end: first + values as u64,
        };
        // The return is one more operation.
        let operations = region.operations.len() + casts + 1;
        out.size(1)
            .size(values)
            .flagged(operations, !region.arguments.is_empty());
        if !region.arguments.is_empty() {
            out.size(region.arguments.len());
            for ty in self.types_of(function, &region.arguments, form)? {
                out.flagged(ty, false); // The location is unknown.
            }
            out.byte(0); // No order of uses.
        }
        for argument in &region.arguments {
            let number = numbers.take();
            self.define(*argument, number)?;
        }
        if form == Form::Builtin {
            self.cast_values(function, &region.arguments, Form::Vhlo, &mut numbers, out)?;
        }
        for operation in &region.operations {
            self.operation(function, operation, &mut numbers, out)?;
        }
        let (name, operands) = match form {
            Form::Vhlo => ((VHLO, "return_v1"), self.numbers_of(&region.results)?),
            Form::Builtin => {
                let results = &region.results;
                (
                    (SHARDY, "return"),
                    self.cast(function, results, form, &mut numbers, out)?,
                )
            }
        };
        let head = Encoded {
            name: self.tables.name(name.0, name.1),
            operands,
            ..Encoded::default()
        };
        self.operation_head(head, out);
        self.depth -= 1;
        Ok(())
    }

    fn operation(
        &mut self,
        function: &Function,
        operation: &Operation,
        numbers: &mut Numbers,
        out: &mut Encoder,
    ) -> Result<()> {
        let (name, inherent) = operation.kind.to_attributes();
        let mut discardable = operation.attributes.clone();
        let (form, name, properties) = match name.strip_prefix("sdy.") {
            Some(name) => {
                self.tables.require(format_args!("`sdy.{name}`"), MIXED)?;
                let mut properties = Encoder::default();
                let mut attributes: Vec<_> = inherent.0.iter().collect();
                attributes.sort_by(|left, right| left.0.cmp(&right.0));
                for (_, value) in attributes {
                    properties.size(self.tables.attribute(value, Form::Builtin)?);
                }
                (Form::Builtin, self.tables.name(SHARDY, name), properties)
            }
            None => {
                let name = name.strip_prefix("func.").unwrap_or(name);
                let (op, properties) =
                    self.tables
                        .properties(name, operation, inherent, &mut discardable)?;
                let name = format!("{}_v{}", op.name, op.number);
                (Form::Vhlo, self.tables.name(VHLO, name), properties)
            }
        };
        let operands = match form {
            Form::Vhlo => self.numbers_of(&operation.operands)?,
            Form::Builtin => self.cast(function, &operation.operands, form, numbers, out)?,
        };
        let head = Encoded {
            name,
            location: operation.location.as_deref(),
            attributes: self.discardable(&discardable, form)?,
            // MLIR refuses empty ones.
            properties: (!properties.0.is_empty()).then_some(properties),
            results: self.types_of(function, &operation.results, form)?,
            operands,
            regions: operation.regions.len(),
            isolated: false,
        };
        self.operation_head(head, out);
        for region in &operation.regions {
            self.region(function, region, numbers.end, form, out)?;
        }
        for result in &operation.results {
            let number = numbers.take();
            self.define(*result, number)?;
        }
        if form == Form::Builtin {
            self.cast_values(function, &operation.results, Form::Vhlo, numbers, out)?;
        }
        Ok(())
    }

    /// Casts values to a dialect; their numbers become those of the results.
    fn cast_values(
        &mut self,
        function: &Function,
        values: &[ValueId],
        to: Form,
        numbers: &mut Numbers,
        out: &mut Encoder,
    ) -> Result<()> {
        let casts = self.cast(function, values, to, numbers, out)?;
        for (value, number) in values.iter().zip(casts) {
            self.define(*value, number)?;
        }
        Ok(())
    }

    /// Casts values to a dialect; returns the numbers of the results.
    fn cast(
        &mut self,
        function: &Function,
        values: &[ValueId],
        to: Form,
        numbers: &mut Numbers,
        out: &mut Encoder,
    ) -> Result<Vec<u64>> {
        let mut results = Vec::with_capacity(values.len());
        for value in values {
            let head = Encoded {
                name: self.tables.name(BUILTIN, "unrealized_conversion_cast"),
                results: self.types_of(function, &[*value], to)?,
                operands: self.numbers_of(&[*value])?,
                ..Encoded::default()
            };
            self.operation_head(head, out);
            results.push(numbers.take());
        }
        Ok(results)
    }

    fn operation_head(&mut self, head: Encoded<'_>, out: &mut Encoder) {
        let parts = [
            (part::ATTRIBUTES, head.attributes.is_some()),
            (part::PROPERTIES, head.properties.is_some()),
            (part::RESULTS, !head.results.is_empty()),
            (part::OPERANDS, !head.operands.is_empty()),
            (part::REGIONS, head.regions > 0),
        ];
        let present = parts.iter().filter(|(_, present)| *present);
        let mask = present.fold(0, |mask, (part, _)| mask | part);
        out.size(head.name)
            .byte(mask)
            .size(self.tables.location(head.location));
        if let Some(attributes) = head.attributes {
            out.size(attributes);
        }
        if let Some(properties) = head.properties {
            out.size(self.tables.properties.index(properties));
        }
        if !head.results.is_empty() {
            out.indices(&head.results);
        }
        if !head.operands.is_empty() {
            out.size(head.operands.len());
            for operand in head.operands {
                out.varint(operand);
            }
        }
        if head.regions > 0 {
            out.flagged(head.regions, head.isolated);
        }
    }

    fn discardable(&mut self, attributes: &Attributes, form: Form) -> Result<Option<usize>> {
        match attributes.0.is_empty() {
            true => Ok(None),
            false => self.tables.discardable(attributes, form).map(Some),
        }
    }

    fn types_of(
        &mut self,
        function: &Function,
        values: &[ValueId],
        form: Form,
    ) -> Result<Vec<usize>> {
        let types: Result<Vec<&Type>> = values.iter().map(|value| ty(function, *value)).collect();
        self.tables.types(types?, form)
    }

    fn define(&mut self, value: ValueId, number: u64) -> Result<()> {
        match self.numbers.get_mut(value.0 as usize) {
            Some(place) => {
                *place = Some(number);
                Ok(())
            }
            None => Err(unknown_value(value)),
        }
    }

    fn numbers_of(&self, values: &[ValueId]) -> Result<Vec<u64>> {
        let numbers = values.iter().map(|value| {
            let number = self.numbers.get(value.0 as usize).copied().flatten();
            number.ok_or_else(|| {
                let message = format!("value {} is used before it is computed", value.0);
                Error::invalid("bytecode", message)
            })
        });
        numbers.collect()
    }
}

/// Number of casts in a region, each an operation with one result, but not in regions inside.
fn casts_inside(region: &Region, form: Form) -> usize {
    let ends = match form {
        Form::Vhlo => 0,
        Form::Builtin => region.arguments.len() + region.results.len(),
    };
    ends + region.operations.iter().map(casts_around).sum::<usize>()
}

/// Number of casts of the operands and results of an operation.
fn casts_around(operation: &Operation) -> usize {
    match operation.kind {
        OpKind::ShardingConstraint(_)
        | OpKind::PropagationBarrier(_)
        | OpKind::ManualComputation(_) => operation.operands.len() + operation.results.len(),
        _ => 0,
    }
}

fn ty(function: &Function, value: ValueId) -> Result<&Type> {
    function
        .types
        .get(value.0 as usize)
        .ok_or_else(|| unknown_value(value))
}

fn unknown_value(value: ValueId) -> Error {
    let message = format!("value {} is not a value of its function", value.0);
    Error::new(ErrorKind::InvalidArgument, "bytecode", message)
}
