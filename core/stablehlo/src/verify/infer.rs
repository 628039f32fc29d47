//! Types of results, by operation.

use crate::{OpKind, Type, ops::ops};

use super::{
    collective, contraction, control, elementwise, gather, linalg, reduce, shape, sharding,
    typed::{Check, Typed},
};

/// Whether a row has `[regions]`.
macro_rules! has {
    () => {
        false
    };
    (regions) => {
        true
    };
}

/// Makes [`infer`] of the rules in the rows of [`ops!`], whose grammar is that of
/// [`define`](crate::ops).
macro_rules! rules {
    ($op:ident; $(
        $(#[$doc:meta])*
        $variant:ident
        $(($value:ident: $value_ty:ty = $value_as:expr))?
        $({ $($(#[$field_doc:meta])* $field:ident: $ty:ty = $as:expr),* $(,)? })?
        = $name:literal $([$regions:ident])? $(in $versions:expr)? => $rule:expr;
    )*) => {
        /// Checks operands, attributes and regions, and returns the types that the results must
        /// have.
        #[allow(unused_variables, reason = "a rule needs some of the fields")]
        pub(super) fn infer($op: &Typed<'_>) -> Check<Vec<Type>> {
            if !has_regions($op.kind()) {
                $op.check_region_count(0)?;
            }
            match $op.kind() {
                OpKind::Unary(unary) => elementwise::unary($op, *unary),
                OpKind::Binary(binary) => elementwise::binary($op, *binary),
                $(OpKind::$variant $(($value))? $({ $($field),* })? => $rule,)*
            }
        }

        /// Returns whether operations of this kind have regions, whose number the rules check then.
        fn has_regions(kind: &OpKind) -> bool {
            match kind {
                OpKind::Unary(_) | OpKind::Binary(_) => false,
                $(OpKind::$variant { .. } => has!($($regions)?),)*
            }
        }
    };
}

ops!(rules);
