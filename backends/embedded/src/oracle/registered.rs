//! Custom calls of Rust functions that are registered in this process.

use halite_core::{
    AlignedBytes, Error, ErrorKind, Result, TensorType,
    custom_call::{self, Arguments, Target},
};
use halite_stablehlo::{Attribute, RankedType};

use super::tensor::Tensor;

const OP: &str = "custom call";

/// Runs the function on `operands`; `types` are those of the results.
pub(super) fn call(
    target: &Target,
    config: Option<&Attribute>,
    operands: &[&Tensor],
    types: &[&RankedType],
) -> Result<Vec<Tensor>> {
    let attributes = attributes(target, config)?;
    let copies: Vec<Option<AlignedBytes>> =
        operands.iter().map(|x| aligned(x)).collect::<Result<_>>()?;
    let inputs: Vec<(TensorType, &[u8])> = (operands.iter().zip(&copies))
        .map(|(x, copy)| {
            let bytes = copy.as_ref().map_or(&**x.bytes, AsRef::as_ref);
            Ok((element_type(target, &x.ty)?, bytes))
        })
        .collect::<Result<_>>()?;
    let mut results: Vec<AlignedBytes> = (types.iter())
        .map(|ty| AlignedBytes::try_zeroed(ty.bytes()))
        .collect::<Result<_>>()?;
    let outputs: Vec<(TensorType, &mut [u8])> = (types.iter().zip(&mut results))
        .map(|(ty, bytes)| Ok((element_type(target, ty)?, bytes.as_mut())))
        .collect::<Result<_>>()?;
    target.run(Arguments::new(inputs, outputs, &attributes)?)?;
    let tensor = |(ty, bytes): (&&RankedType, AlignedBytes)| {
        Tensor::new((*ty).clone(), bytes.as_ref().to_vec())
    };
    Ok(types.iter().zip(results).map(tensor).collect())
}

/// A copy of the bytes of a tensor whose memory is not aligned for every element type.
fn aligned(tensor: &Tensor) -> Result<Option<AlignedBytes>> {
    let bytes = &**tensor.bytes;
    if bytes.as_ptr().align_offset(align_of::<u128>()) == 0 {
        return Ok(None);
    }
    AlignedBytes::try_copy_of(bytes).map(Some)
}

fn element_type(target: &Target, ty: &RankedType) -> Result<TensorType> {
    ty.tensor_type().ok_or_else(|| {
        let message = format!(
            "`{}` of {ty}, whose elements have no host type",
            target.name()
        );
        Error::new(ErrorKind::Unsupported, OP, message)
    })
}

/// The attributes of a call: the dictionary `backend_config`.
fn attributes(
    target: &Target,
    config: Option<&Attribute>,
) -> Result<Vec<(String, custom_call::Attribute)>> {
    let unsupported = |what: &str, value: &Attribute| {
        let message = format!(
            "`{}` has {what} {value:?}; a Rust function takes a dictionary of booleans, numbers \
             and strings",
            target.name()
        );
        Error::new(ErrorKind::Unsupported, OP, message)
    };
    let dictionary = match config {
        None => return Ok(Vec::new()),
        Some(Attribute::Str(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Attribute::Dict(dictionary)) => dictionary,
        Some(other) => return Err(unsupported("the configuration", other)),
    };
    let value = |(name, value): &(String, Attribute)| {
        let value = match value {
            Attribute::Bool(value) => custom_call::Attribute::Bool(*value),
            Attribute::Int(value, _) => custom_call::Attribute::Int(*value),
            Attribute::Float(value, _) => custom_call::Attribute::Float(*value),
            Attribute::Str(value) => custom_call::Attribute::Str(value.clone()),
            other => return Err(unsupported(&format!("the attribute `{name}`,"), other)),
        };
        Ok((name.clone(), value))
    };
    dictionary.0.iter().map(value).collect()
}
