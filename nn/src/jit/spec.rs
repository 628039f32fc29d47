//! Type and layout of an array that a program takes or gives.

use std::{fmt, sync::Arc};

use halite_core::{Array, DType, Sharding, TensorType};

/// Type and layout of an array that a program takes or gives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArraySpec {
    /// Element type and dimensions of the whole.
    pub ty: TensorType,
    /// How it lies over devices.
    pub sharding: Arc<Sharding>,
    /// The element type that devices hold: see [`Array::stored`].
    pub stored: DType,
}

impl ArraySpec {
    /// Of this type, as which devices hold it, by this layout.
    pub fn new(ty: TensorType, sharding: &Arc<Sharding>) -> Self {
        ArraySpec {
            stored: ty.dtype(),
            ty,
            sharding: sharding.clone(),
        }
    }

    /// What `array` is.
    pub fn of(array: &Array) -> Self {
        ArraySpec {
            ty: array.ty().clone(),
            sharding: array.sharding().clone(),
            stored: array.stored(),
        }
    }

    /// The same, of which devices hold elements of this type.
    pub fn stored_as(mut self, stored: DType) -> Self {
        self.stored = stored;
        self
    }

    pub(super) fn is(&self, array: &Array) -> bool {
        (Arc::ptr_eq(&self.sharding, array.sharding()) || self.sharding == *array.sharding())
            && self.ty == *array.ty()
            && self.stored == array.stored()
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty)?;
        if self.stored != self.ty.dtype() {
            write!(f, " kept as {}", self.stored)?;
        }
        if self.sharding.mesh().size() == 1 {
            Ok(())
        } else {
            write!(f, " by {}", self.sharding)
        }
    }
}
