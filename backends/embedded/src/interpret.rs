//! Programs run without a client.

use std::{sync::Arc, thread};

use halite_core::{Error, Result};
use halite_stablehlo::{Dense, Module};

use crate::oracle::{
    STACK, Tensor, Value, World, check_custom_calls, guarded, no_thread, run_main,
};

/// Runs `main` of a program of one device, with inputs and outputs of any element type, and blocks
/// until it ends. An [`Embedded`](crate::Embedded) runs programs asynchronously and on several
/// devices.
///
/// # Errors
/// If the program is not [valid](Module::verify), the inputs do not have its types, or an operation
/// fails or is not supported.
pub fn interpret(module: &Module, inputs: &[Dense]) -> Result<Vec<Dense>> {
    const OP: &str = "interpret";
    module.verify()?;
    check_custom_calls(module)?;
    let (replicas, partitions) = (module.replicas(), module.partitions());
    if replicas * partitions != 1 {
        let message = format!(
            "the program runs on {replicas} replicas of {partitions} partitions; programs over \
             several devices need an `Embedded` with as many"
        );
        return Err(Error::invalid(OP, message));
    }
    let arguments = &module.main()?.body.arguments;
    if inputs.len() != arguments.len() {
        let (given, wanted) = (inputs.len(), arguments.len());
        return Err(Error::invalid(
            OP,
            format!("{given} inputs given, `main` has {wanted}"),
        ));
    }
    for (number, (input, &id)) in inputs.iter().zip(arguments).enumerate() {
        let wanted = module.main()?.ty(id);
        if wanted.as_tensor() != Some(&input.ty) {
            let message = format!("input {number} is {}, `main` has {wanted}", input.ty);
            return Err(Error::invalid(OP, message));
        }
        if !input.is_splat() && input.bytes.len() != input.ty.bytes() {
            let (length, needed) = (input.bytes.len(), input.ty.bytes());
            let message = format!(
                "input {number} has {length} bytes, {} needs {needed}",
                input.ty
            );
            return Err(Error::invalid(OP, message));
        }
    }
    let run = || {
        let inputs = inputs
            .iter()
            .map(|input| Ok(Value::Tensor(Tensor::constant(input)?)));
        let world = World::new(1, 1, 0, Arc::default());
        run_main(module, &world, [0, 0], inputs.collect::<Result<_>>()?)
    };
    // Regions and calls nest deeper than the stack of any thread allows.
    let results = thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("halite-interpret".to_owned())
            .stack_size(STACK);
        let spawned = thread
            .spawn_scoped(scope, || guarded(run))
            .map_err(no_thread)?;
        spawned.join().expect("panics are caught on the thread")
    })?;
    let dense = |value: &Value| {
        let Tensor { ty, bytes } = value.tensor()?;
        Ok(Dense {
            ty: ty.clone(),
            bytes: bytes[..].into(),
        })
    };
    results.iter().map(dense).collect()
}
