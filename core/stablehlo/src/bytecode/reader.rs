//! Reading of modules, functions and operations.

use halite_core::{Result, format_count};

use super::{
    cursor::{Cursor, corrupt, error, unsupported},
    operation::{Encoded, Signature, skip_use_lists},
    scopes::Scopes,
    sections::{Dialect, OpName, Sections, format, section},
    table::Table,
};
use crate::{
    Attribute, Attributes, Function, Module, OpKind, Operation, Position, Region, ShardyMesh, Type,
    ValueId, ValueIds, build::check_broadcast, vhlo::VhloOp,
};

/// Greatest depth of regions in each other.
pub(super) const MOST_DEPTH: usize = 100;

/// Number of elements for which the expansion of a list of integers is accounted; longer lists of
/// one element are refused.
const MOST_INTEGERS: usize = 1 << 20;

/// Reads an artifact.
pub(super) fn read(file: &[u8]) -> Result<Module> {
    let mut sections = Sections::read(file)?;
    let mut reader = Reader {
        table: Table::new(&mut sections, file.len()),
        format: sections.format,
        operations: sections.operations,
        properties: sections.properties,
        module: Module::default(),
        types: Vec::new(),
        scopes: Scopes::default(),
    };
    reader.module(sections.ir)?;
    Ok(reader.module)
}

pub(super) struct Reader<'a> {
    pub(super) table: Table<'a>,
    /// Version of bytecode.
    pub(super) format: u64,
    pub(super) operations: Vec<OpName<'a>>,
    pub(super) properties: Vec<Cursor<'a>>,
    module: Module,
    /// Types of the values of the function that is being read.
    pub(super) types: Vec<Type>,
    pub(super) scopes: Scopes,
}

impl<'a> Reader<'a> {
    fn module(&mut self, mut ir: Cursor<'a>) -> Result<()> {
        let position = ir.position();
        if ir.flagged()? != (1, false) {
            return Err(corrupt(position, "the program is not one operation"));
        }
        let mut module = self.encoded(&mut ir)?;
        let name = &self.operations[module.name];
        if (name.dialect, name.name) != (Dialect::Builtin, "module") {
            let message = format_args!("the operation `{name}`; expected `builtin.module`");
            return Err(unsupported(module.position, message));
        }
        let mut attributes = std::mem::take(&mut module.attributes);
        attributes.take("sym_visibility");
        self.module.name = match (attributes.take("sym_name"), module.properties) {
            (Some(Attribute::Str(name)), _) => name,
            (_, Some(mut properties)) => self.optional_text(&mut properties)?.unwrap_or_default(),
            _ => String::new(),
        };
        self.module.attributes = attributes;
        self.inside(&module, &mut ir, Self::functions)?;
        ir.finish("the module")
    }

    /// The functions and meshes in the region of the module.
    fn functions(&mut self, cursor: &mut Cursor<'a>, module: &Encoded<'a>) -> Result<()> {
        self.one_region(module)?;
        let operations = self.block(cursor, &mut Region::default())?;
        for _ in 0..operations {
            let operation = self.encoded(cursor)?;
            let name = &self.operations[operation.name];
            match (name.dialect, name.name) {
                (Dialect::Vhlo, "func_v1") => self.function(operation, cursor)?,
                (Dialect::Shardy, "mesh") => self.mesh(&operation)?,
                (Dialect::Other("func" | "stablehlo"), _) => {
                    let message = format_args!(
                        "`{name}` is not an operation of portable artifacts, which have the \
                         dialect VHLO; serialize the program as one (in JAX: `jax.export`), or \
                         pass its text"
                    );
                    return Err(unsupported(operation.position, message));
                }
                _ => {
                    let message = format_args!("`{name}` in a module; expected functions");
                    return Err(unsupported(operation.position, message));
                }
            }
        }
        self.scopes.leave();
        Ok(())
    }

    fn mesh(&mut self, operation: &Encoded<'a>) -> Result<()> {
        let mut properties = self.some_properties(operation)?;
        let mesh = self.table.next_mesh(&mut properties)?;
        self.module.meshes.push(ShardyMesh {
            name: self.table.next_text(&mut properties, 0)?,
            axes: mesh.axes,
            devices: mesh.devices,
        });
        properties.finish("the properties of a mesh")
    }

    fn function(&mut self, mut operation: Encoded<'a>, cursor: &mut Cursor<'a>) -> Result<()> {
        let signature = self.take_properties(&mut operation)?;
        let mut attributes = std::mem::take(&mut operation.attributes);
        let Some(Attribute::Str(name)) = attributes.take("sym_name") else {
            return Err(corrupt(operation.position, "a function without a name"));
        };
        self.types.clear();
        let body = self.inside(&operation, cursor, |reader, cursor, operation| {
            reader.one_region(operation)?;
            reader.region(cursor)
        })?;
        let mut values = |name, values: &[ValueId]| {
            let lists = attributes.take(name);
            attributes_of_values(lists, values.len()).ok_or_else(|| {
                let count = values.len();
                let message = format_args!("`{name}` is not a list of {count} dictionaries");
                corrupt(operation.position, message)
            })
        };
        let function = Function {
            name,
            input_names: vec![None; body.arguments.len()],
            input_attributes: values("arg_attrs", &body.arguments)?,
            output_attributes: values("res_attrs", &body.results)?,
            types: std::mem::take(&mut self.types),
            body,
        };
        if let Some(signature) = signature {
            check_signature(&function, &signature)
                .map_err(|problem| corrupt(operation.position, problem))?;
        }
        self.module.functions.push(function);
        Ok(())
    }

    /// Reads the regions of an operation, which `read` knows, from their section or `cursor`.
    fn inside<T>(
        &mut self,
        operation: &Encoded<'a>,
        cursor: &mut Cursor<'a>,
        read: impl FnOnce(&mut Self, &mut Cursor<'a>, &Encoded<'a>) -> Result<T>,
    ) -> Result<T> {
        if !operation.isolated {
            return read(self, cursor, operation);
        }
        let outer = self.scopes.isolate();
        let result = if self.format >= format::LAZY_REGIONS {
            let position = cursor.position();
            let (number, mut contents) = cursor.section()?;
            if number != section::IR {
                let message = format_args!("section {number} in place of regions");
                return Err(corrupt(position, message));
            }
            let result = read(self, &mut contents, operation)?;
            contents.finish("the regions of an operation")?;
            result
        } else {
            read(self, cursor, operation)?
        };
        self.scopes.unhide(outer);
        Ok(result)
    }

    fn one_region(&self, operation: &Encoded<'a>) -> Result<()> {
        match operation.regions {
            1 => Ok(()),
            count => {
                let name = &self.operations[operation.name];
                let message = format_args!("`{name}` with {count} regions; expected 1");
                Err(corrupt(operation.position, message))
            }
        }
    }

    /// A region of one block that ends with a return.
    fn region(&mut self, cursor: &mut Cursor<'a>) -> Result<Region> {
        let position = cursor.position();
        if self.scopes.depth() > MOST_DEPTH {
            let message = format_args!("regions nest deeper than {MOST_DEPTH}");
            return Err(unsupported(position, message));
        }
        let mut region = Region::default();
        let Some(before_return) = self.block(cursor, &mut region)?.checked_sub(1) else {
            return Err(corrupt(position, "a region without operations"));
        };
        for _ in 0..before_return {
            self.operation(cursor, &mut region)?;
        }
        let last = self.encoded(cursor)?;
        let name = &self.operations[last.name];
        if !name.is_return() || !last.results.is_empty() || last.regions > 0 {
            let message = format_args!("`{name}` at the end of a region; expected a return");
            return Err(corrupt(last.position, message));
        }
        region.results = last.operands;
        self.scopes.leave();
        Ok(region)
    }

    /// Enters the block of a region and reads its arguments; returns the number of operations.
    fn block(&mut self, cursor: &mut Cursor<'a>, region: &mut Region) -> Result<usize> {
        let position = cursor.position();
        let blocks = cursor.varint()?;
        if blocks != 1 {
            let blocks = format_count(blocks);
            let message = format_args!("a region of {blocks} blocks; only 1 is supported");
            return Err(unsupported(position, message));
        }
        let declared = cursor.varint()?;
        self.scopes.enter(declared);
        let position = cursor.position();
        let (operations, has_arguments) = cursor.flagged()?;
        if has_arguments {
            let count = cursor.count("arguments")?;
            let place = self.scopes.reserve(count, position)?;
            for index in 0..count {
                let value = self.argument(cursor)?;
                self.scopes.set(place + index, value);
                region.arguments.push(value);
            }
            if self.format >= format::USE_LISTS && cursor.byte()? != 0 {
                skip_use_lists(cursor, count)?;
            }
        }
        cursor.check_count(operations, position, "operations")
    }

    /// An argument of a block: its type, and a location.
    fn argument(&mut self, cursor: &mut Cursor<'a>) -> Result<ValueId> {
        let position = cursor.position();
        let located = if self.format >= format::OPTIONAL_ARGUMENT_LOCATIONS {
            let (index, located) = cursor.flagged()?;
            let ty = self.table.value_type_at(index, position, 0)?;
            self.types.push(ty);
            located
        } else {
            let ty = self.table.value_type(cursor, 0)?;
            self.types.push(ty);
            true
        };
        if located {
            cursor.varint()?;
        }
        value_id(self.types.len() - 1, position)
    }

    /// An operation that is not the last one of a region.
    fn operation(&mut self, cursor: &mut Cursor<'a>, region: &mut Region) -> Result<()> {
        let mut operation = self.encoded(cursor)?;
        let position = operation.position;
        let place = self.scopes.reserve(operation.results.len(), position)?;
        let name = &self.operations[operation.name];
        if (name.dialect, name.name) == (Dialect::Builtin, "unrealized_conversion_cast") {
            return self.cast(&operation, place);
        }
        if name.is_return() {
            let message = format_args!("`{name}` before the end of a region");
            return Err(corrupt(position, message));
        }
        self.take_properties(&mut operation)?;
        let regions = match operation.regions {
            0 => Vec::new(),
            count => self.inside(&operation, cursor, |reader, cursor, _| {
                let regions = (0..count).map(|_| reader.region(cursor));
                regions.collect()
            })?,
        };
        let kind = self.kind(&mut operation, &regions)?;
        let mut results = ValueIds::with_capacity(operation.results.len());
        for ty in operation.results {
            self.types.push(ty);
            let value = value_id(self.types.len() - 1, position)?;
            self.scopes.set(place + results.len(), value);
            results.push(value);
        }
        region.operations.push(Operation {
            kind,
            operands: operation.operands.into(),
            results,
            regions,
            attributes: operation.attributes,
            position: Position::Byte(u32::try_from(position).unwrap_or(u32::MAX)),
            location: operation.location,
        });
        Ok(())
    }

    /// A cast between types of VHLO and builtin ones, which are the same types here.
    fn cast(&mut self, cast: &Encoded<'a>, place: usize) -> Result<()> {
        let types = cast
            .operands
            .iter()
            .map(|operand| &self.types[operand.0 as usize]);
        if !types.eq(&cast.results) || cast.regions > 0 {
            return Err(unsupported(cast.position, "a cast between different types"));
        }
        for (index, operand) in cast.operands.iter().enumerate() {
            self.scopes.set(place + index, *operand);
        }
        Ok(())
    }

    /// Makes the operation of its name and attributes.
    fn kind(&mut self, operation: &mut Encoded<'a>, regions: &[Region]) -> Result<OpKind> {
        let name = &self.operations[operation.name];
        let (stablehlo, position) = (name.stablehlo(), operation.position);
        if name.vhlo.is_none() && VhloOp::versions(&stablehlo).next().is_some() {
            let message = format_args!("`{name}` is not a known version of the operation");
            return Err(unsupported(position, message));
        }
        // Lists of sizes are expanded, also those that repeat one element.
        for (name, value) in &operation.attributes.0 {
            if let Attribute::Dense(dense) = value
                && name != "value"
            {
                let elements = dense.ty.elements().min(MOST_INTEGERS);
                self.table.spend(elements * size_of::<i64>(), position)?;
            }
        }
        let operand = operation
            .operands
            .first()
            .map(|operand| &self.types[operand.0 as usize]);
        let (attributes, results) = (&mut operation.attributes, &operation.results);
        let kind = check_broadcast(&stablehlo, attributes, operand, results)
            .and_then(|()| OpKind::from_attributes(&stablehlo, attributes, operand))
            .map_err(|problem| error(problem.kind(), position, problem.message()))?;
        if matches!(kind, OpKind::Composite { .. }) && !regions.is_empty() {
            return Err(unsupported(position, "a composite with regions"));
        }
        Ok(kind)
    }
}

fn value_id(index: usize, position: usize) -> Result<ValueId> {
    let id = u32::try_from(index).map(ValueId);
    id.map_err(|_| unsupported(position, "a function of more than 2^32 values"))
}

/// The attributes of each of `count` values, from a list that is empty if none has any.
fn attributes_of_values(lists: Option<Attribute>, count: usize) -> Option<Vec<Attributes>> {
    let lists = match lists {
        None => Vec::new(),
        Some(Attribute::Array(lists)) => lists,
        Some(_) => return None,
    };
    if lists.is_empty() {
        return Some(vec![Attributes::default(); count]);
    }
    let dictionaries = lists.into_iter().map(|list| match list {
        Attribute::Dict(attributes) => Some(attributes),
        _ => None,
    });
    let dictionaries = dictionaries.collect::<Option<Vec<_>>>()?;
    (dictionaries.len() == count).then_some(dictionaries)
}

/// Checks that the type of a function is that of its body.
fn check_signature(function: &Function, signature: &Signature) -> Result<(), String> {
    let Signature { inputs, outputs } = signature;
    let sides = [
        ("argument", &function.body.arguments, inputs),
        ("result", &function.body.results, outputs),
    ];
    for (what, values, types) in sides {
        let name = &function.name;
        if values.len() != types.len() {
            let (found, declared) = (values.len(), types.len());
            return Err(format!(
                "function `{name}` has {found} {what}s, its type {declared}"
            ));
        }
        for (index, (&value, declared)) in values.iter().zip(types).enumerate() {
            let found = function.ty(value);
            if found != declared {
                return Err(format!(
                    "{what} {index} of function `{name}` is {found}, in its type {declared}"
                ));
            }
        }
    }
    Ok(())
}
