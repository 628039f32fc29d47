//! Sharding of logical tensors over devices: a mesh with named axes, and which axes split which
//! dimension.

mod mesh;
mod partition_spec;
#[cfg(test)]
mod tests;
mod tiles;

use std::{fmt, ops::Range, sync::Arc};

use crate::{DeviceId, Result, TensorType};

pub use self::{
    mesh::{Mesh, MeshShape, list_axes},
    partition_spec::PartitionSpec,
};

/// A [`PartitionSpec`] on a [`Mesh`], checked against it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Sharding {
    mesh: Arc<Mesh>,
    spec: PartitionSpec,
}

impl Sharding {
    /// Sharding by `spec` over `mesh`.
    ///
    /// # Errors
    /// As [`PartitionSpec::check`].
    pub fn new(mesh: &Arc<Mesh>, spec: PartitionSpec) -> Result<Arc<Self>> {
        spec.check(mesh)?;
        Ok(Arc::new(Sharding {
            mesh: mesh.clone(),
            spec,
        }))
    }

    /// Whole on every device of the mesh.
    pub fn replicated(mesh: &Arc<Mesh>) -> Arc<Self> {
        Arc::new(Sharding {
            mesh: mesh.clone(),
            spec: PartitionSpec::replicated(),
        })
    }

    /// Whole on one device.
    pub fn single(device: DeviceId) -> Arc<Self> {
        Self::replicated(&Arc::new(Mesh::single(device)))
    }

    /// The devices and the axes they are arranged along.
    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// The axes that split each dimension.
    pub fn spec(&self) -> &PartitionSpec {
        &self.spec
    }

    /// Number of parts that dimension `dim` is split into.
    pub fn parts(&self, dim: usize) -> usize {
        self.spec.parts(&self.mesh, dim)
    }

    /// Type of the shard that one device holds of a tensor of type `ty`.
    ///
    /// # Errors
    /// If `ty` has fewer dimensions than the spec, or a dimension that is not a multiple of its
    /// number of parts.
    pub fn shard_type(&self, ty: &TensorType) -> Result<TensorType> {
        self.spec.checked_shard_type(&self.mesh, ty)
    }

    /// Part of a tensor of type `ty` that the `index`th device of the mesh holds: a range per
    /// dimension.
    ///
    /// # Errors
    /// As [`shard_type`](Self::shard_type).
    pub fn shard_ranges(&self, ty: &TensorType, index: usize) -> Result<Vec<Range<usize>>> {
        let shard = self.shard_type(ty)?;
        let range = |(dim, &size): (usize, &usize)| {
            let part = self.spec.part(&self.mesh, dim, index);
            part * size..(part + 1) * size
        };
        Ok(shard.dims().iter().enumerate().map(range).collect())
    }

    /// This sharding of a tensor of this rank, without axis names.
    pub fn hlo_sharding(&self, rank: usize) -> HloSharding {
        let shard = |index: usize| {
            (0..rank).fold(0, |shard, dim| {
                shard * self.parts(dim) + self.spec.part(&self.mesh, dim, index)
            })
        };
        HloSharding {
            parts: (0..rank).map(|dim| self.parts(dim)).collect(),
            of_device: (0..self.mesh.size()).map(shard).collect(),
        }
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.spec, self.mesh)
    }
}

/// Sharding of a tensor without names of axes, as compilers report it (XLA's `HloSharding`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HloSharding {
    /// Number of parts of each dimension.
    pub parts: Vec<usize>,
    /// Index of each device's shard, row-major over [`parts`](Self::parts), devices in the order of
    /// launches. Shared, since a program has the same sharding at many of its inputs and outputs.
    pub of_device: Arc<[usize]>,
}

impl fmt::Display for HloSharding {
    /// `in [2, 1] parts, by device [0, 0, 1, 1]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "in {:?} parts, by device {:?}",
            self.parts, self.of_device
        )
    }
}
