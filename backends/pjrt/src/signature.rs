//! The types of a compiled program's parameters and results, as its optimized HLO has them.

use halite_core::{Signature, TensorType};
use prost::Message;

use crate::hlo::{HloModule, HloModuleWithConfig, Shape};

/// What a compiled program takes and gives. None is a type that halite has no name for.
#[derive(Debug)]
pub(crate) struct Border {
    pub(crate) inputs: Vec<Option<TensorType>>,
    pub(crate) outputs: Vec<Option<TensorType>>,
    pub(crate) donated: Vec<usize>,
}

impl Border {
    /// Reads it from an optimized program in `format`; `None` for an unknown format or other bytes.
    pub(crate) fn decode(format: &str, bytes: &[u8]) -> Option<Self> {
        let module = match format {
            "hlo_with_config" => HloModuleWithConfig::decode(bytes).ok()?.hlo_module?,
            "hlo" => HloModule::decode(bytes).ok()?,
            _ => return None,
        };
        let shape = module.host_program_shape?;
        let aliased = module
            .input_output_alias
            .map_or(Vec::new(), |alias| alias.entries);
        let donors = module
            .buffer_donor
            .map_or(Vec::new(), |donor| donor.entries);
        let donated = aliased
            .iter()
            .map(|entry| entry.parameter_number)
            .chain(donors.iter().map(|entry| entry.parameter_number));
        Some(Border {
            inputs: shape.parameters.iter().map(Shape::tensor_type).collect(),
            outputs: match shape.result {
                Some(result) if result.element_type == Shape::TUPLE => {
                    result.tuple_shapes.iter().map(Shape::tensor_type).collect()
                }
                Some(result) => vec![result.tensor_type()],
                None => Vec::new(),
            },
            donated: donated
                .filter_map(|number| usize::try_from(number).ok())
                .collect(),
        })
    }

    /// Plugins read whatever bytes they are given as what the program wants, so that a signature
    /// that differs from the program would give wrong numbers without a word.
    pub(crate) fn check(&self, signature: &Signature) -> Result<(), String> {
        check_types("argument", &self.inputs, &signature.inputs)?;
        check_types("result", &self.outputs, &signature.outputs)
    }
}

/// Whether a program's types are those of its signature.
pub(crate) fn check_types(
    what: &str,
    real: &[Option<TensorType>],
    said: &[TensorType],
) -> Result<(), String> {
    if real.len() != said.len() {
        return Err(format!(
            "the program has {} {what}s, its signature says {}",
            real.len(),
            said.len()
        ));
    }
    for (index, (real, said)) in real.iter().zip(said).enumerate() {
        if real.as_ref() != Some(said) {
            let real = real.as_ref().map_or(
                "of a type that halite does not have".to_owned(),
                TensorType::to_string,
            );
            return Err(format!(
                "{what} {index} of the program is {real} on each device, its signature says {said}"
            ));
        }
    }
    Ok(())
}
