//! The types of a compiled program's parameters and results, as its optimized HLO has them.

use halite_core::{Signature, TensorType};
use prost::Message;

use crate::hlo::{HloModule, HloModuleWithConfig, Shape};

/// Parameters and results of a compiled program. `None` is a type that halite does not have.
#[derive(Debug)]
pub(crate) struct CompiledSignature {
    pub(crate) inputs: Vec<Option<TensorType>>,
    pub(crate) outputs: Vec<Option<TensorType>>,
    pub(crate) donated: Vec<usize>,
}

impl CompiledSignature {
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
        Some(CompiledSignature {
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

    /// Checks that `signature` is that of the program. Plugins reinterpret arguments of another
    /// type silently, which would give wrong numbers.
    pub(crate) fn check(&self, signature: &Signature) -> Result<(), String> {
        check_types("argument", &self.inputs, &signature.inputs)?;
        check_types("result", &self.outputs, &signature.outputs)
    }
}

/// Checks that the types of a compiled program are those of its signature.
pub(crate) fn check_types(
    what: &str,
    real: &[Option<TensorType>],
    declared: &[TensorType],
) -> Result<(), String> {
    if real.len() != declared.len() {
        return Err(format!(
            "the program has {} {what}s, its signature has {}",
            real.len(),
            declared.len()
        ));
    }
    for (index, (real, declared)) in real.iter().zip(declared).enumerate() {
        if real.as_ref() != Some(declared) {
            let real = real.as_ref().map_or(
                "of a type that halite does not have".to_owned(),
                TensorType::to_string,
            );
            return Err(format!(
                "{what} {index} of the program is {real} on each device, its signature has \
                 {declared}"
            ));
        }
    }
    Ok(())
}
