use std::{fmt, sync::Arc};

use halite_core::{DType, Mesh, MeshShape, PartitionSpec, Result, Sharding, TensorType};

use crate::ArraySpec;

/// Type of an array, and how it is sharded over the axes of a mesh, on whichever devices: what
/// [`lower`](crate::lower) takes and returns.
///
/// An [`ArraySpec`] is a `ShardedType` on the devices of a mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShardedType {
    /// Element type and dimensions of the whole array.
    pub ty: TensorType,
    /// Mesh axes that split each dimension.
    pub spec: PartitionSpec,
    /// Element type that devices store: see [`Array::stored`](halite_core::Array::stored).
    pub stored: DType,
}

impl ShardedType {
    /// `ty`, stored as its own element type, sharded by `spec`.
    pub fn new(ty: TensorType, spec: PartitionSpec) -> Self {
        ShardedType {
            stored: ty.dtype(),
            ty,
            spec,
        }
    }

    /// `ty`, whole on every device.
    pub fn replicated(ty: TensorType) -> Self {
        ShardedType::new(ty, PartitionSpec::replicated())
    }

    /// This type with another element type stored on devices.
    pub fn stored_as(mut self, stored: DType) -> Self {
        self.stored = stored;
        self
    }

    /// Type of `length` such arrays stacked along a new first dimension, which is not sharded.
    pub fn stacked(&self, length: usize) -> Self {
        ShardedType {
            ty: self.ty.with_dims([&[length], self.ty.dims()].concat()),
            spec: self.spec.stacked(),
            stored: self.stored,
        }
    }

    /// Type of a slice along the first dimension.
    pub(crate) fn slice(&self) -> Self {
        ShardedType {
            ty: (self.ty).with_dims(self.ty.dims().get(1..).unwrap_or_default()),
            spec: self.spec.slice(),
            stored: self.stored,
        }
    }

    /// Type of the shard that one device of `mesh` holds.
    ///
    /// # Errors
    /// As [`PartitionSpec::shard_type`].
    pub fn shard_type(&self, mesh: &MeshShape) -> Result<TensorType> {
        self.spec.shard_type(mesh, &self.ty)
    }

    /// This type on the devices of `mesh`.
    ///
    /// # Errors
    /// If the spec names an axis that the mesh does not have.
    pub fn on(&self, mesh: &Arc<Mesh>) -> Result<ArraySpec> {
        let sharding = Sharding::new(mesh, self.spec.clone())?;
        Ok(ArraySpec::new(self.ty.clone(), &sharding).stored_as(self.stored))
    }
}

impl fmt::Display for ShardedType {
    /// `f32[8, 4] stored as bf16 by (data)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty)?;
        if self.stored != self.ty.dtype() {
            write!(f, " stored as {}", self.stored)?;
        }
        if !self.spec.is_replicated() {
            write!(f, " by {}", self.spec)?;
        }
        Ok(())
    }
}
