use std::{fmt, sync::Arc};

use halite_core::{Array, DType, Sharding, TensorType};

use crate::ShardedType;

/// Type and sharding of an array on the devices of a mesh: an argument or result of a program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArraySpec {
    /// Element type and dimensions of the whole array.
    pub ty: TensorType,
    /// Sharding over devices.
    pub sharding: Arc<Sharding>,
    /// Element type that devices store: see [`Array::stored`].
    pub stored: DType,
}

impl ArraySpec {
    /// `ty`, stored as its own element type, with this sharding.
    pub fn new(ty: TensorType, sharding: &Arc<Sharding>) -> Self {
        ArraySpec {
            stored: ty.dtype(),
            ty,
            sharding: sharding.clone(),
        }
    }

    /// The spec of `array`.
    pub fn of(array: &Array) -> Self {
        ArraySpec {
            ty: array.ty().clone(),
            sharding: array.sharding().clone(),
            stored: array.stored(),
        }
    }

    /// This spec with another element type stored on devices.
    pub fn stored_as(mut self, stored: DType) -> Self {
        self.stored = stored;
        self
    }

    /// True if this is the spec of `array`.
    pub(crate) fn is(&self, array: &Array) -> bool {
        (Arc::ptr_eq(&self.sharding, array.sharding()) || self.sharding == *array.sharding())
            && self.ty == *array.ty()
            && self.stored == array.stored()
    }
}

impl From<&ArraySpec> for ShardedType {
    /// The spec without the devices.
    fn from(spec: &ArraySpec) -> Self {
        ShardedType {
            ty: spec.ty.clone(),
            spec: spec.sharding.spec().clone(),
            stored: spec.stored,
        }
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty)?;
        if self.stored != self.ty.dtype() {
            write!(f, " stored as {}", self.stored)?;
        }
        if self.sharding.mesh().size() == 1 {
            Ok(())
        } else {
            write!(f, " by {}", self.sharding)
        }
    }
}
