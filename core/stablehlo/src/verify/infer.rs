//! Types of results, by operation.

use crate::{
    ElementType, OpKind, RankedType, Type,
    ops::ops,
    rules::{self, Check, check_dim, ensure},
};

use super::{
    collective, control, linalg, reduce, sharding,
    typed::{Typed, tensor},
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
                OpKind::Unary(unary) => one(rules::unary(&$op.tensors()?, *unary)),
                OpKind::Binary(binary) => one(rules::binary(&$op.tensors()?, *binary)),
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

/// One result, a tensor.
fn one(result: Check<RankedType>) -> Check<Vec<Type>> {
    Ok(vec![Type::Tensor(result?)])
}

fn get_dimension_size(op: &Typed<'_>, dim: usize) -> Check<Vec<Type>> {
    let [x] = op.take()?;
    check_dim("dimension", dim, x)?;
    ensure!(
        i32::try_from(x.dims[dim]).is_ok(),
        "dimension {dim} of {x} does not fit the result, an i32"
    );
    Ok(vec![tensor(ElementType::S32, [])])
}
