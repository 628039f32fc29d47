//! Inputs of programs as constants.

use halite_core::{Error, HostArray, Result};
use halite_stablehlo::{
    Attributes, Dense, Module, OpKind, Operation, Position, RankedType, ValueIds,
};

/// The constant of these elements.
pub(crate) fn dense(array: &HostArray) -> Dense {
    let bytes = array.bytes();
    let size = array.ty().dtype().size();
    let equal = bytes
        .chunks_exact(size)
        .all(|element| element == &bytes[..size]);
    Dense {
        ty: RankedType::from(array.ty()),
        bytes: if equal && !bytes.is_empty() {
            &bytes[..size]
        } else {
            bytes
        }
        .into(),
    }
}

/// Replaces an input of `main` by a constant.
///
/// # Errors
/// If there is no such input, or the constant is not of its type.
pub(crate) fn fix_input(module: &mut Module, index: usize, value: Dense) -> Result<()> {
    let main = (module.functions.iter_mut()).find(|function| function.name == "main");
    let Some((main, argument)) = main.and_then(|main| {
        let argument = *main.body.arguments.get(index)?;
        Some((main, argument))
    }) else {
        let message = format!("the program has no input {index}");
        return Err(Error::invalid("artifact", message));
    };
    let ty = main.ty(argument);
    if ty.as_tensor() != Some(&value.ty) {
        let message = format!("input {index} is {ty}, the constant for it {}", value.ty);
        return Err(Error::invalid("artifact", message));
    }
    main.body.arguments.remove(index);
    if index < main.input_attributes.len() {
        main.input_attributes.remove(index);
    }
    let constant = Operation {
        kind: OpKind::Constant(value),
        operands: ValueIds::new(),
        results: ValueIds::from_slice(&[argument]),
        regions: Vec::new(),
        attributes: Attributes::default(),
        position: Position::Unknown,
        location: None,
    };
    main.body.operations.insert(0, constant);
    Ok(())
}
