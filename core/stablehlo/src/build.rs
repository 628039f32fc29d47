//! Operations made of their names and attributes.
//!
//! The rows of [`ops`](crate::ops) say which attributes an operation has. What programs write in
//! another way is here: other names of operations, operations that [`OpKind`] expresses by others,
//! and those that are refused.
//!
//! The names of attributes are those of portable artifacts (VHLO), in which every attribute of an
//! operation has a flat name. The text of StableHLO nests some of them; its reader flattens them
//! first:
//!
//! - dimension numbers of `gather`, `scatter`, `dot_general` and `convolution` are one attribute
//!   for each field: `offset_dims`, `lhs_batching_dimensions`, `input_batch_dimension`, ..;
//! - the algorithm of `dot_general` is `lhs_precision_type`, .., whose types are
//!   [`Attribute::Str`] (`"tf32"` is not an element type of tensors);
//! - `channel_handle` is `channel_id`, an integer;
//! - `result_accuracy` is an [`Attribute::Dict`] of `atol`, `rtol`, `ulps` and `mode`;
//! - enumerations are strings too.

#[cfg(test)]
mod tests;

use halite_core::{Error, ErrorKind, Result};

use crate::{
    Attribute, Attributes, CustomCallAttributes, DotAttributes, OpKind, Type, UnaryOp, chlo,
    ops::{ACCURACY, DYNAMIC_ROOT, ERF, Fields, PRECISION, Take, flag, precision, sizes},
};

impl OpKind {
    /// The operation with this name, which is without dialect for StableHLO (`dot_general`), and
    /// with it for others (`func.call`, `sdy.manual_computation`, `check.expect_eq`).
    ///
    /// Removes the attributes that define the operation and leaves the others. Missing ones have
    /// the defaults of the specification. `operand` is the type of the first operand, on whose rank
    /// `broadcast`, `dot`, `sort` and `select_and_scatter` depend.
    ///
    /// # Errors
    /// If the operation is unknown or not supported, an attribute without default is missing, or
    /// one has the wrong type, a negative size, or an unknown case of an enumeration.
    pub fn from_attributes(
        name: &str,
        attributes: &mut Attributes,
        operand: Option<&Type>,
    ) -> Result<OpKind> {
        let mut take = Take::new(name, attributes, operand);
        let known = match name {
            "broadcast" => return broadcast(&mut take),
            "dot" => return dot(&mut take),
            "chlo.erf" => return Ok(OpKind::Unary(UnaryOp::Erf)),
            _ if name.starts_with("check.") => return Ok(check(name)),
            "call" => OpKind::take("func.call", &mut take)?,
            "create_token" => OpKind::take("after_all", &mut take)?,
            "collective_broadcast" if flag(DYNAMIC_ROOT).take(&mut take)? => {
                let message = "`collective_broadcast` with a dynamic root is not supported";
                return Err(Error::new(ErrorKind::Unsupported, "program", message));
            }
            _ => OpKind::take(name, &mut take)?,
        };
        match known {
            Some(mut kind) => {
                finish(&mut kind, attributes);
                Ok(kind)
            }
            None => chlo::composite(name, attributes).ok_or_else(|| refused(name)),
        }
    }
}

/// Attribute of `broadcast`.
pub(crate) const BROADCAST_SIZES: &str = "broadcast_sizes";

/// `broadcast` adds dimensions before those of its operand.
fn broadcast(take: &mut Take<'_>) -> Result<OpKind> {
    let added = sizes(BROADCAST_SIZES).take(take)?.len();
    let mapping = (added..added + take.rank()?).collect();
    Ok(OpKind::BroadcastInDim { mapping })
}

/// Checks that the result of `broadcast` has the added dimensions and then those of the operand, as
/// [`OpKind::BroadcastInDim`] does not have `broadcast_sizes`. Other operations are right.
pub(crate) fn check_broadcast(
    name: &str,
    attributes: &Attributes,
    operand: Option<&Type>,
    results: &[Type],
) -> Result<()> {
    let (Some(Type::Tensor(x)), [Type::Tensor(y)]) = (operand, results) else {
        return Ok(());
    };
    if name != "broadcast" {
        return Ok(());
    }
    let mut attributes = attributes.clone();
    let mut take = Take::new(name, &mut attributes, operand);
    let sizes = sizes(BROADCAST_SIZES).take(&mut take)?;
    if sizes.iter().chain(&x.dims).eq(&y.dims) {
        return Ok(());
    }
    let message = format!(
        "`broadcast` of {x} by `broadcast_sizes` {sizes:?} is {y}; its dimensions must be the \
         sizes and then those of the operand"
    );
    Err(Error::invalid("program", message))
}

/// `dot` contracts the last dimension of the first operand with the first of the second.
fn dot(take: &mut Take<'_>) -> Result<OpKind> {
    let Some(last) = take.rank()?.checked_sub(1) else {
        return Err(take.error("the first operand is a scalar; expected a vector or matrix"));
    };
    Ok(OpKind::DotGeneral(Box::new(DotAttributes {
        lhs_contracting: vec![last],
        rhs_contracting: vec![0],
        precision: precision(PRECISION).take(take)?,
        ..DotAttributes::default()
    })))
}

/// The call that stands for an operation of the dialect `check`, by which tests state results.
fn check(name: &str) -> OpKind {
    let mut call = CustomCallAttributes::new(name);
    call.side_effect = true;
    OpKind::CustomCall(Box::new(call))
}

/// Applies the rules of attributes that are no fields, or several.
fn finish(kind: &mut OpKind, attributes: &mut Attributes) {
    match kind {
        OpKind::Unary(_) => {
            if let Some(Attribute::Dict(accuracy)) = attributes.get(ACCURACY)
                && matches!(accuracy.get("mode"), Some(Attribute::Str(mode)) if mode == "DEFAULT")
            {
                attributes.take(ACCURACY);
            }
        }
        OpKind::CustomCall(call) if call.target == ERF => *kind = OpKind::Unary(UnaryOp::Erf),
        OpKind::CustomCall(call) => call.drop_empty_layouts(),
        _ => {}
    }
}

/// The error of an operation that has no [`OpKind`]; `None` for those that have one.
pub(crate) fn refusal(name: &str) -> Option<Error> {
    let made = OpKind::from_attributes(name, &mut Attributes::default(), None);
    made.err()
        .filter(|error| error.kind() == ErrorKind::Unsupported)
}

fn refused(name: &str) -> Error {
    let dynamic = ["real_dynamic_slice", "set_dimension_size"].contains(&name);
    let reason = if dynamic || name.starts_with("dynamic_") {
        "; shapes must be static"
    } else if name.starts_with("uniform_") {
        "; quantized types are not supported"
    } else if name.starts_with("chlo.") {
        "; lower the dialect chlo to StableHLO first"
    } else {
        ""
    };
    let message = format!("the operation `{name}` is not supported{reason}");
    Error::new(ErrorKind::Unsupported, "program", message)
}
