//! Modules, functions and operations.

use std::{fmt, sync::Arc};

use halite_core::{Error, Result};
use smallvec::SmallVec;

use crate::{Attribute, Attributes, BinaryOp, ElementType, OpKind, ShardyMesh, Type};

/// A program: functions, of which `main` is the one that runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Its name; empty if it has none.
    pub name: String,
    /// Functions, in the order of the program.
    pub functions: Vec<Function>,
    /// Meshes that shardings name.
    pub meshes: Vec<ShardyMesh>,
    /// Further attributes: `mhlo.num_partitions`, ..
    pub attributes: Attributes,
}

impl Module {
    /// The function that runs.
    ///
    /// # Errors
    /// If there is none.
    pub fn main(&self) -> Result<&Function> {
        self.function("main").ok_or_else(|| {
            Error::invalid(
                "program",
                "it has no function `main`; name the function that runs so",
            )
        })
    }

    /// The function with this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        (self.functions.iter()).find(|function| function.name == name)
    }

    /// The attribute `mhlo.num_partitions`, 1 if it is missing.
    pub fn partitions(&self) -> usize {
        self.count("mhlo.num_partitions")
    }

    /// The attribute `mhlo.num_replicas`, 1 if it is missing.
    pub fn replicas(&self) -> usize {
        self.count("mhlo.num_replicas")
    }

    /// Sets the numbers of replicas and partitions, where the caller of a program knows them.
    pub fn set_devices(&mut self, replicas: usize, partitions: usize) {
        let counts = [
            ("mhlo.num_replicas", replicas),
            ("mhlo.num_partitions", partitions),
        ];
        for (name, count) in counts {
            self.attributes.take(name);
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.attributes
                .push(name, Attribute::Int(count, ElementType::S32));
        }
    }

    /// Bytes that it takes, an estimate: its operations and constants.
    pub fn size(&self) -> u64 {
        let functions = self.functions.iter();
        functions.map(|function| function.body.size()).sum()
    }

    fn count(&self, name: &str) -> usize {
        match self.attributes.get(name) {
            Some(&Attribute::Int(count, _)) => usize::try_from(count).unwrap_or(1).max(1),
            _ => 1,
        }
    }
}

/// A value of a [`Function`]: an argument of one of its regions, or a result of an operation. Its
/// type is `function.types[value.0]`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ValueId(pub u32);

/// A few values, of which up to four need no allocation: most operations have fewer.
pub type ValueIds = SmallVec<[ValueId; 4]>;

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name, without `@`.
    pub name: String,
    /// Types of all values, those of nested regions included, by [`ValueId`].
    pub types: Vec<Type>,
    /// The operations; its arguments are the inputs, its results the outputs.
    pub body: Region,
    /// Name of each input, which compilers report: `model.weight`.
    pub input_names: Vec<Option<String>>,
    /// Attributes of each input: `tf.aliasing_output`, `mhlo.sharding`, `sdy.sharding`, ..
    pub input_attributes: Vec<Attributes>,
    /// Attributes of each output: `mhlo.sharding`, `jax.result_info`, ..
    pub output_attributes: Vec<Attributes>,
}

impl Function {
    /// The type of a value.
    ///
    /// # Panics
    /// If it is not a value of this function.
    pub fn ty(&self, value: ValueId) -> &Type {
        &self.types[value.0 as usize]
    }

    /// Adds a value of this type, for a region argument or a result.
    ///
    /// # Panics
    /// From 2^32 values on.
    pub fn value(&mut self, ty: Type) -> ValueId {
        let value = ValueId(u32::try_from(self.types.len()).expect("fewer than 2^32 values"));
        self.types.push(ty);
        value
    }
}

/// A list of operations with arguments and results: the body of a function, loop or branch. It may
/// use values of the regions around it that are made before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// Values that the operation of the region provides.
    pub arguments: Vec<ValueId>,
    /// Operations, in an order of evaluation.
    pub operations: Vec<Operation>,
    /// Operands of the terminator (`stablehlo.return`, `func.return`, `sdy.return`).
    pub results: Vec<ValueId>,
}

impl Region {
    fn size(&self) -> u64 {
        let of_operation = |operation: &Operation| {
            let constant = match &operation.kind {
                OpKind::Constant(value) => value.bytes.len(),
                _ => 0,
            };
            let regions = operation.regions.iter().map(Region::size).sum::<u64>();
            (size_of::<Operation>() + constant) as u64 + regions
        };
        self.operations.iter().map(of_operation).sum()
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The operation, with the attributes that define it.
    pub kind: OpKind,
    /// Its operands.
    pub operands: ValueIds,
    /// Its results.
    pub results: ValueIds,
    /// Its regions, in the order of the specification: `condition` and `body` of a loop.
    pub regions: Vec<Region>,
    /// Other attributes: `mhlo.sharding`, `sdy.sharding`, `mhlo.frontend_attributes`, ..
    pub attributes: Attributes,
    /// Place in the program that was read.
    pub position: Position,
    /// Line of the user's source, if the program names one.
    pub location: Option<Arc<SourceLine>>,
}

impl Operation {
    /// The binary operation that the region of a reduction applies to its two arguments, if it does
    /// nothing else: `add` of `(a, b) -> add(a, b)`.
    pub fn reduction(&self) -> Option<BinaryOp> {
        let region = self.regions.first()?;
        let [operation] = &region.operations[..] else {
            return None;
        };
        let applies =
            operation.operands[..] == region.arguments && operation.results[..] == region.results;
        match operation.kind {
            OpKind::Binary(op) if applies => Some(op),
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    /// Its name and place, for errors: `stablehlo.add at line 12, column 5 (model.py:7)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name();
        let dialect = if name.contains('.') { "" } else { "stablehlo." };
        write!(f, "{dialect}{name}")?;
        if self.position != Position::Unknown {
            write!(f, " at {}", self.position)?;
        }
        match &self.location {
            Some(source) => write!(f, " ({}:{})", source.file, source.line),
            None => Ok(()),
        }
    }
}

/// Place in the program that was read, for errors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Position {
    /// The program was not read.
    #[default]
    Unknown,
    /// Line and column of a text, from 1.
    Text(u32, u32),
    /// Offset in bytecode.
    Byte(u32),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Unknown => f.write_str("the program"),
            Position::Text(line, column) => write!(f, "line {line}, column {column}"),
            Position::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// A line of a source file.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SourceLine {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1; 0 if it is unknown.
    pub column: u32,
}
