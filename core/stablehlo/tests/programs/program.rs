//! Small programs, and edits of them.

use std::sync::Arc;

use expect_test::Expect;
use halite_stablehlo::{
    Attribute, Attributes, BinaryOp, ComparisonDirection, Dense, ElementType, Function, Module,
    OpKind, Operation, Position, RankedType, Region, SourceLine, Type, ValueId,
};

/// The type `2x3xf32`, `f32`, `token` or `tuple<f32, s32>` with the names of MLIR.
pub(crate) fn ty(text: &str) -> Type {
    if text == "token" {
        return Type::Token;
    }
    if let Some(members) = text.strip_prefix("tuple<") {
        return Type::Tuple(types(&members[..members.len() - 1].replace(',', " ")));
    }
    let (mut dims, mut element) = (Vec::<usize>::new(), text);
    while let Some((size, rest)) = element.split_once('x')
        && let Ok(size) = size.parse()
    {
        dims.push(size);
        element = rest;
    }
    let element = ElementType::from_name(element).expect("a known element type");
    Type::Tensor(RankedType::new(element, dims))
}

/// Types, separated by spaces.
pub(crate) fn types(text: &str) -> Vec<Type> {
    text.split_whitespace().map(ty).collect()
}

/// Builder of `main`.
pub(crate) struct Builder {
    main: Function,
    /// Operations of the regions that are being built, the innermost last.
    blocks: Vec<Vec<Operation>>,
}

impl Builder {
    /// A function that takes these types.
    pub(crate) fn new(name: &str, inputs: &str) -> Self {
        let mut builder = Builder {
            main: Function {
                name: name.into(),
                types: Vec::new(),
                body: Region::default(),
                input_names: Vec::new(),
                input_attributes: Vec::new(),
                output_attributes: Vec::new(),
            },
            blocks: vec![Vec::new()],
        };
        builder.main.body.arguments = builder.values(inputs);
        builder.main.input_names = vec![None; builder.main.body.arguments.len()];
        builder
    }

    pub(crate) fn inputs(&self) -> Vec<ValueId> {
        self.main.body.arguments.clone()
    }

    fn values(&mut self, text: &str) -> Vec<ValueId> {
        types(text)
            .into_iter()
            .map(|ty| self.main.value(ty))
            .collect()
    }

    /// Adds an operation.
    pub(crate) fn op(&mut self, kind: OpKind, operands: &[ValueId], results: &str) -> Vec<ValueId> {
        self.op_with(kind, operands, Vec::new(), results)
    }

    /// Adds an operation with regions.
    pub(crate) fn op_with(
        &mut self,
        kind: OpKind,
        operands: &[ValueId],
        regions: Vec<Region>,
        results: &str,
    ) -> Vec<ValueId> {
        let results = self.values(results);
        let block = self.blocks.last_mut().expect("a region is being built");
        let line = 1 + block.len() as u32;
        block.push(Operation {
            kind,
            operands: operands.into(),
            results: results[..].into(),
            regions,
            attributes: Attributes::default(),
            position: Position::Text(line, 5),
            location: Some(Arc::new(SourceLine {
                file: "model.py".into(),
                line: 7,
                column: 3,
            })),
        });
        results
    }

    /// Builds a region that takes these types.
    pub(crate) fn region(
        &mut self,
        takes: &str,
        body: impl FnOnce(&mut Self, &[ValueId]) -> Vec<ValueId>,
    ) -> Region {
        let arguments = self.values(takes);
        self.blocks.push(Vec::new());
        let results = body(self, &arguments);
        Region {
            arguments,
            operations: self.blocks.pop().expect("pushed above"),
            results,
        }
    }

    /// A region that adds two scalars.
    pub(crate) fn sum(&mut self, element: &str) -> Region {
        self.region(&format!("{element} {element}"), |b, args| {
            b.op(OpKind::Binary(BinaryOp::Add), args, element)
        })
    }

    /// A region that compares two scalars.
    pub(crate) fn less(&mut self, element: &str) -> Region {
        self.region(&format!("{element} {element}"), |b, args| {
            b.op(less_than(), args, "i1")
        })
    }

    pub(crate) fn finish(mut self, results: Vec<ValueId>) -> Function {
        self.main.input_attributes = vec![Attributes::default(); self.main.body.arguments.len()];
        self.main.output_attributes = vec![Attributes::default(); results.len()];
        self.main.body.results = results;
        self.main.body.operations = self.blocks.pop().expect("the body");
        self.main
    }
}

pub(crate) fn less_than() -> OpKind {
    OpKind::Compare {
        direction: ComparisonDirection::Lt,
        order: None,
    }
}

/// A module of these functions.
pub(crate) fn module(functions: Vec<Function>) -> Module {
    Module {
        name: "test".into(),
        functions,
        ..Module::default()
    }
}

/// A program of one operation, whose operands are the inputs and whose results are the outputs.
pub(crate) fn program(kind: OpKind, operands: &str, results: &str) -> Module {
    program_with(kind, operands, results, |_| Vec::new())
}

/// A program of one operation with regions.
pub(crate) fn program_with(
    kind: OpKind,
    operands: &str,
    results: &str,
    regions: impl FnOnce(&mut Builder) -> Vec<Region>,
) -> Module {
    let mut main = Builder::new("main", operands);
    let regions = regions(&mut main);
    let inputs = main.inputs();
    let outputs = main.op_with(kind, &inputs, regions, results);
    module(vec![main.finish(outputs)])
}

/// The module with these numbers of partitions and replicas.
pub(crate) fn on(mut module: Module, partitions: i64, replicas: i64) -> Module {
    for (name, count) in [
        ("mhlo.num_partitions", partitions),
        ("mhlo.num_replicas", replicas),
    ] {
        let count = Attribute::Int(count, ElementType::S32);
        module.attributes.push(name, count);
    }
    module
}

/// A splat of zeros.
pub(crate) fn zeros(text: &str) -> Dense {
    let Type::Tensor(ty) = ty(text) else {
        panic!("{text} is not a tensor");
    };
    let bytes = vec![0; ty.element.size()];
    Dense {
        ty,
        bytes: bytes.into(),
    }
}

/// Edits of a valid program, for programs that are not.
pub(crate) trait Edit: Sized {
    fn main_mut(&mut self) -> &mut Function;

    /// The last operation of `main`.
    fn op(&mut self) -> &mut Operation {
        self.main_mut()
            .body
            .operations
            .last_mut()
            .expect("an operation")
    }

    /// Edits the last operation.
    fn edit(mut self, edit: impl FnOnce(&mut Operation)) -> Self {
        edit(self.op());
        self
    }

    /// Changes the type of an operand of the last operation.
    fn operand(mut self, index: usize, text: &str) -> Self {
        let value = self.op().operands[index];
        self.main_mut().types[value.0 as usize] = ty(text);
        self
    }

    /// Changes the type of a result of the last operation.
    fn result(mut self, index: usize, text: &str) -> Self {
        let value = self.op().results[index];
        self.main_mut().types[value.0 as usize] = ty(text);
        self
    }
}

impl Edit for Module {
    fn main_mut(&mut self) -> &mut Function {
        let mut functions = self.functions.iter_mut();
        functions
            .find(|function| function.name == "main")
            .expect("a function `main`")
    }
}

/// Checks the error of a program, whose place is checked by a test of its own.
#[track_caller]
pub(crate) fn refused(module: Module, expected: Expect) {
    let error = module.verify().expect_err("the program is not valid");
    assert_eq!(error.kind(), halite_core::ErrorKind::InvalidArgument);
    assert_eq!(error.op(), "program");
    let place = error.message().split_once("(model.py:7): ");
    let message = place.map_or(error.message(), |(_, message)| message);
    expected.assert_eq(&wrapped(message));
}

/// The text in lines of at most 80 columns.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.len() + 1;
        if column + width > 80 {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

/// Edits an attribute of the last operation.
///
/// `attribute!(module, OpKind::Slice { strides, .. } => strides[0] = 2)`
macro_rules! attribute {
    ($module:expr, $kind:pat => $edit:expr) => {
        $crate::programs::program::Edit::edit($module, |op| match &mut op.kind {
            $kind => $edit,
            other => panic!("{other:?} is another operation"),
        })
    };
}
pub(crate) use attribute;
