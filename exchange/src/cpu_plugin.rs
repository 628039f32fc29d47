//! What artifacts need only because XLA's plugin for the CPU errs (lammps-jax-pjrt-cpu 0.11.2). The
//! test `atan_of_the_cpu_plugin_is_wrong` fails when it no longer does.
//!
//! `atan2(x, 1)` becomes `atan(x)`, whose vectorized call returns the lanes of other elements and
//! zeros; so do composites `chlo.atan`. A barrier hides the constant from the compiler, and the
//! decomposition of the composite is called.

use std::collections::HashSet;

use halite_stablehlo::{BinaryOp, Module, OpKind, Operation, Region, Type, ValueId};

/// Rewrites the program so that the plugin does not make `atan` of it.
pub(crate) fn without_atan(module: &mut Module) {
    for function in &mut module.functions {
        let mut constants = HashSet::new();
        // What a caller gives may be a constant once the call is inlined.
        if function.name != "main" {
            constants.extend(function.body.arguments.iter().copied());
        }
        let (body, types) = (&mut function.body, &mut function.types);
        rewrite(body, types, &mut constants);
    }
}

/// `constants` are values that depend on constants alone, or may.
fn rewrite(region: &mut Region, types: &mut Vec<Type>, constants: &mut HashSet<ValueId>) {
    let mut operations = Vec::with_capacity(region.operations.len());
    for mut operation in std::mem::take(&mut region.operations) {
        for region in &mut operation.regions {
            rewrite(region, types, constants);
        }
        let of_constants = operation.operands.iter().all(|it| constants.contains(it));
        match &operation.kind {
            OpKind::Composite {
                name,
                decomposition,
                ..
            } if name == "chlo.atan" => {
                let function = decomposition.clone();
                operation.kind = OpKind::Call { function };
            }
            OpKind::Binary(BinaryOp::Atan2) if constants.contains(&operation.operands[1]) => {
                let hidden = ValueId(types.len() as u32);
                types.push(types[operation.operands[1].0 as usize].clone());
                operations.push(Operation {
                    kind: OpKind::OptimizationBarrier,
                    operands: vec![operation.operands[1]],
                    results: vec![hidden],
                    regions: Vec::new(),
                    ..operation.clone()
                });
                operation.operands[1] = hidden;
            }
            _ if of_constants => constants.extend(operation.results.iter().copied()),
            _ => {}
        }
        operations.push(operation);
    }
    region.operations = operations;
}
