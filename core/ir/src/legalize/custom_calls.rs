//! Calls of functions of the backend.

use std::collections::HashSet;

use halite_core::{Error, Result};
use halite_stablehlo::{
    Attribute, Attributes, CustomCallAttributes, Dense, ElementType, OpKind, RankedType,
};

use crate::CustomCall;

/// A call of a function of the backend on values of these types.
pub(super) fn custom_call(
    call: &CustomCall,
    operands: &[&RankedType],
    results: &[RankedType],
) -> Result<OpKind> {
    let mut seen = HashSet::new();
    let mut names = call.attributes.iter().map(|(name, _)| name);
    if let Some(name) = names.find(|name| name.is_empty() || !seen.insert(*name)) {
        let message = format!(
            "`{}` has an attribute `{name}` that is empty or appears twice",
            call.target
        );
        return Err(Error::invalid("custom_call", message));
    }
    if call.target.is_empty() {
        return Err(Error::invalid("custom_call", "the target's name is empty"));
    }
    let config = call.attributes.iter().map(|(name, value)| {
        let value = match value {
            crate::Attribute::Bool(value) => Attribute::Bool(*value),
            crate::Attribute::Int(value) => Attribute::Int(*value, ElementType::S64),
            crate::Attribute::Float(value) => Attribute::Float(*value, ElementType::F64),
            crate::Attribute::Str(value) => Attribute::Str(value.clone()),
        };
        (name.clone(), value)
    });
    let config = Attributes(config.collect());
    let ranks = |types: &mut dyn Iterator<Item = &RankedType>| -> Vec<usize> {
        types.map(RankedType::rank).collect()
    };
    let operands = ranks(&mut operands.iter().copied());
    let results = ranks(&mut results.iter());
    // Without them, XLA's compiler may lay a value out in another order than that of rows.
    let laid_out = operands.iter().chain(&results).any(|&rank| rank > 1);
    Ok(OpKind::CustomCall(Box::new(CustomCallAttributes {
        target: call.target.clone(),
        side_effect: call.side_effect,
        config: (!config.0.is_empty()).then_some(Attribute::Dict(config)),
        api_version: 4,
        functions: Vec::new(),
        aliases: None,
        operand_layouts: laid_out.then(|| layouts(&operands)),
        result_layouts: laid_out.then(|| layouts(&results)),
    })))
}

/// The layouts of row-major values of these ranks: their dimensions, the fastest first.
fn layouts(ranks: &[usize]) -> Attribute {
    let layout = |&rank: &usize| {
        let dims = (0..rank as i64).rev();
        Attribute::Dense(Dense::from_integers(dims))
    };
    Attribute::Array(ranks.iter().map(layout).collect())
}
