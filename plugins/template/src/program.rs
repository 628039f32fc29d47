//! The compiler: a StableHLO program as a list of kernels. Replace it by yours.

use std::{fmt, iter::zip};

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{
    ElementType::{Bool, F32, S32},
    Function, Module, OpKind, Operation, RankedType, Type, ValueId,
};

use crate::kernel::{Kernel, decode, encode};

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Code {
    /// The program, calls expanded.
    main: Function,
    steps: Vec<Step>,
    /// Bytes of all values.
    pub(crate) workspace: u64,
}

/// A kernel, the values that it takes, and the one that it computes.
#[derive(Debug)]
struct Step {
    kernel: Kernel,
    operands: Vec<ValueId>,
    result: ValueId,
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
        let main = module.inlined(MOST_OPERATIONS)?;
        let mut steps = Vec::new();
        let mut workspace = 0u64;
        for &argument in &main.body.arguments {
            let ty = supported(main.ty(argument)).ok_or_else(|| unsupported(main.ty(argument)))?;
            workspace = workspace.saturating_add(ty.bytes() as u64);
        }
        for operation in &main.body.operations {
            for step in compile_operation(&main, operation)? {
                let ty = tensor(&main, step.result);
                workspace = workspace.saturating_add(ty.bytes() as u64);
                steps.push(step);
            }
        }
        if workspace > memory {
            let message = format!("values of {workspace} bytes, a device has {memory}");
            return Err(Error::new(ErrorKind::OutOfMemory, "compile", message));
        }
        Ok(Code {
            main,
            steps,
            workspace,
        })
    }

    /// Runs the program: takes and returns row-major bytes.
    pub(crate) fn run(&self, arguments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut values = vec![Vec::new(); self.main.types.len()];
        for (value, bytes) in zip(&self.main.body.arguments, arguments) {
            values[value.0 as usize] = bytes;
        }
        for step in &self.steps {
            let load = |&value: &ValueId| {
                decode(tensor(&self.main, value).element, &values[value.0 as usize])
            };
            let result = step
                .kernel
                .run(&step.operands.iter().map(load).collect::<Vec<_>>());
            let element = tensor(&self.main, step.result).element;
            values[step.result.0 as usize] = encode(element, &result);
        }
        let results = self.main.body.results.iter();
        results
            .map(|value| values[value.0 as usize].clone())
            .collect()
    }
}

/// The kernels of an operation.
fn compile_operation(main: &Function, operation: &Operation) -> Result<Vec<Step>> {
    for &result in &operation.results {
        let ty = main.ty(result);
        supported(ty).ok_or_else(|| unsupported(format_args!("{operation}: {ty}")))?;
    }
    let step = |kernel, operands, result| Step {
        kernel,
        operands,
        result,
    };
    Ok(match (&operation.kind, &operation.results[..]) {
        (OpKind::OptimizationBarrier, results) => zip(&operation.operands, results)
            .map(|(&operand, &result)| step(Kernel::Convert, vec![operand], result))
            .collect(),
        (_, &[result]) => {
            let kernel = Kernel::new(main, operation).ok_or_else(|| unsupported(operation))?;
            vec![step(kernel, operation.operands.to_vec(), result)]
        }
        _ => return Err(unsupported(operation)),
    })
}

/// The type of a tensor that the accelerator has.
fn supported(ty: &Type) -> Option<&RankedType> {
    ty.as_tensor()
        .filter(|ty| matches!(ty.element, F32 | S32 | Bool))
}

/// The type of a value of a compiled program.
fn tensor(main: &Function, value: ValueId) -> &RankedType {
    supported(main.ty(value)).expect("types are checked by the compiler")
}

fn unsupported(what: impl fmt::Display) -> Error {
    let message = format!("{what}: this accelerator does not have it");
    Error::new(ErrorKind::Unsupported, "compile", message)
}
