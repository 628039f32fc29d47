//! Shape inference: the types of results from an operation and the types of its operands.

use halite_core::{Error, Result, TensorType};

use crate::Op;

/// Types of the results of `op` on operands of these types.
///
/// # Errors
/// If they do not fit: with the operation, the types, and what would fit.
pub fn infer(op: &Op, operands: &[&TensorType]) -> Result<Vec<TensorType>> {
    let _ = (op, operands);
    Err(Error::invalid("infer", "not written yet"))
}
