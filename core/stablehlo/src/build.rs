//! Conversion between [`OpKind`] and attributes by name.
//!
//! The names are those of portable artifacts (VHLO), in which every attribute of an operation has
//! a flat name. The text of StableHLO nests some of them; its reader flattens them first:
//!
//! - dimension numbers of `gather`, `scatter`, `dot_general` and `convolution` are one attribute
//!   for each field: `offset_dims`, `lhs_batching_dimensions`, `input_batch_dimension`, ..;
//! - the algorithm of `dot_general` is `lhs_precision_type`, .., whose types are
//!   [`Attribute::Str`](crate::Attribute::Str) (`"tf32"` is not an element type of tensors);
//! - `channel_handle` is `channel_id`, an integer;
//! - `result_accuracy` is an [`Attribute::Dict`](crate::Attribute::Dict) of `atol`, `rtol`, `ulps`
//!   and `mode`;
//! - enumerations are strings too.

mod fields;
mod from;
mod push;
mod take;
mod to;

#[cfg(test)]
mod tests;

pub(crate) use from::{check_broadcast, refusal};

/// Fields of the algorithm of `dot_general`, in the order of the specification.
pub(crate) const ALGORITHM_FIELDS: [&str; 7] = [
    "lhs_precision_type",
    "rhs_precision_type",
    "accumulation_type",
    "lhs_component_count",
    "rhs_component_count",
    "num_primitive_operations",
    "allow_imprecise_accumulation",
];

/// Names of the versions of the interface of `custom_call`, by number.
const API_VERSIONS: [&str; 5] = [
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
];

/// `API_VERSION_ORIGINAL`, the version of a `custom_call` that names none.
const DEFAULT_API_VERSION: i64 = 1;

const API_VERSION_END: i64 = API_VERSIONS.len() as i64;
