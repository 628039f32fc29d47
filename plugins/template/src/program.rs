//! The compiler: a StableHLO program as a list of kernels. Replace it by yours.

use std::{collections::HashMap, fmt};

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{ElementType, Function, Module, OpKind, Type, ValueId};

use crate::kernel::{Kernel, decode, encode};

/// A compiled program.
///
/// Values are numbered: the arguments of `main`, then one result for each step.
#[derive(Debug)]
pub(crate) struct Code {
    steps: Vec<Step>,
    /// Element type of each value.
    elements: Vec<ElementType>,
    /// The values that are returned.
    results: Vec<usize>,
    /// Bytes of all values.
    pub(crate) workspace: u64,
    /// Bytes of the memory of a device.
    memory: u64,
    /// Operations that were compiled, calls included.
    operations: usize,
}

/// A kernel, and the values that it takes.
#[derive(Debug)]
struct Step {
    kernel: Kernel,
    operands: Vec<usize>,
}

/// Limit of the operations of a program. Calls are expanded, so that a short program may have more.
const MOST_OPERATIONS: usize = 1 << 16;

impl Code {
    /// Compiles a verified program for devices with `memory` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an operation or a type that the accelerator does not have;
    /// [`ErrorKind::OutOfMemory`] if the values do not fit the memory.
    pub(crate) fn compile(module: &Module, memory: u64) -> Result<Self> {
        let main = module.main()?;
        let mut code = Code {
            steps: vec![],
            elements: vec![],
            results: vec![],
            workspace: 0,
            memory,
            operations: 0,
        };
        let arguments = main
            .body
            .arguments
            .iter()
            .map(|&argument| code.add(main.ty(argument)));
        let arguments = arguments.collect::<Result<_>>()?;
        code.results = code.inline(module, main, arguments)?;
        Ok(code)
    }

    /// Appends the operations of a function, and returns its results.
    fn inline(
        &mut self,
        module: &Module,
        function: &Function,
        arguments: Vec<usize>,
    ) -> Result<Vec<usize>> {
        let body = &function.body;
        let mut values: HashMap<_, _> = body.arguments.iter().copied().zip(arguments).collect();
        let find = |values: &HashMap<_, _>, ids: &[ValueId]| -> Vec<usize> {
            ids.iter().map(|id| values[id]).collect()
        };
        for operation in &body.operations {
            self.operations += 1;
            if self.operations > MOST_OPERATIONS {
                let message = format!("more than {MOST_OPERATIONS} operations, calls expanded");
                return Err(Error::new(ErrorKind::Unsupported, "compile", message));
            }
            let operands = find(&values, &operation.operands);
            let results = match (&operation.kind, &operation.results[..]) {
                (OpKind::Call { function }, _) => {
                    let callee = module.function(function).expect("the program is verified");
                    self.inline(module, callee, operands)?
                }
                (OpKind::OptimizationBarrier, _) => operands,
                (_, &[result]) => {
                    let value = self.add(function.ty(result)).map_err(|error| {
                        let message = format!("{operation}: {}", error.message());
                        Error::new(error.kind(), "compile", message)
                    })?;
                    let kernel = Kernel::new(function, operation);
                    let kernel = kernel.ok_or_else(|| unsupported(operation))?;
                    self.steps.push(Step { kernel, operands });
                    vec![value]
                }
                _ => return Err(unsupported(operation)),
            };
            values.extend(operation.results.iter().copied().zip(results));
        }
        Ok(find(&values, &body.results))
    }

    /// Adds a value of this type.
    fn add(&mut self, ty: &Type) -> Result<usize> {
        use ElementType::{Bool, F32, S32};
        let tensor = ty
            .as_tensor()
            .filter(|ty| matches!(ty.element, F32 | S32 | Bool));
        let tensor = tensor.ok_or_else(|| unsupported(ty))?;
        self.workspace = self.workspace.saturating_add(tensor.bytes() as u64);
        if self.workspace > self.memory {
            let (needed, memory) = (self.workspace, self.memory);
            let message = format!("values of {needed} bytes or more, a device has {memory}");
            return Err(Error::new(ErrorKind::OutOfMemory, "compile", message));
        }
        self.elements.push(tensor.element);
        Ok(self.elements.len() - 1)
    }

    /// Runs the program: takes and returns row-major bytes.
    pub(crate) fn run(&self, arguments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut values = arguments;
        for Step { kernel, operands } in &self.steps {
            let load = |&value: &usize| decode(self.elements[value], &values[value]);
            let result = kernel.run(&operands.iter().map(load).collect::<Vec<_>>());
            values.push(encode(self.elements[values.len()], &result));
        }
        self.results
            .iter()
            .map(|&value| values[value].clone())
            .collect()
    }
}

fn unsupported(what: impl fmt::Display) -> Error {
    let message = format!("{what}: this accelerator does not have it");
    Error::new(ErrorKind::Unsupported, "compile", message)
}
