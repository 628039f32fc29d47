//! Shardings of Shardy (<https://openxla.org/shardy/sharding_representation>).

/// A mesh of devices: `sdy.mesh @name = <["x"=4, "y"=2]>`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ShardyMesh {
    /// The symbol by which shardings name it.
    pub name: String,
    /// Axes with their sizes, outermost first.
    pub axes: Vec<(String, usize)>,
    /// Number of the partition at each place, row-major over the axes; empty if ascending.
    pub devices: Vec<usize>,
}

impl ShardyMesh {
    /// Number of devices. Saturates, which that of a valid mesh does not.
    pub(crate) fn size(&self) -> usize {
        (self.axes.iter()).fold(1, |devices: usize, (_, size)| devices.saturating_mul(*size))
    }

    /// Size of the axis with this name.
    pub(crate) fn axis_size(&self, name: &str) -> Option<usize> {
        let found = self.axes.iter().find(|(axis, _)| axis == name);
        found.map(|&(_, size)| size)
    }

    /// Number of parts that an axis, or a part of one, splits a dimension into. 1 if the mesh does
    /// not have it.
    pub(crate) fn parts(&self, axis: &ShardyAxis) -> usize {
        let whole = self.axis_size(&axis.name).unwrap_or(1);
        axis.part.map_or(whole, |(_, size)| size)
    }
}

/// An axis of a mesh, or a part of one: `"x"`, `"x":(2)4`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ShardyAxis {
    /// Name of the axis.
    pub name: String,
    /// `(pre-size, size)` of a part of the axis.
    pub part: Option<(usize, usize)>,
}

/// Sharding of one dimension.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ShardyDim {
    /// Axes over which the dimension is split, outermost first.
    pub axes: Vec<ShardyAxis>,
    /// Whether the partitioner may add axes.
    pub open: bool,
    /// Priority of propagation, 0 first.
    pub priority: Option<u32>,
}

/// Sharding of a tensor.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ShardySharding {
    /// Symbol of the mesh.
    pub mesh: String,
    /// One for each dimension.
    pub dims: Vec<ShardyDim>,
    /// Axes over which the tensor is replicated.
    pub replicated: Vec<ShardyAxis>,
    /// Axes over which partial sums are not yet added.
    pub unreduced: Vec<ShardyAxis>,
}
