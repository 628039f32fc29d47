//! `shard_map` and sharding constraints.

use halite_core::{Error, MeshShape, PartitionSpec, Result, list_axes};
use halite_stablehlo::{
    ManualAttributes, OpKind, RankedType, ShardyAxis, ShardyDim, ShardyMesh, ShardySharding,
    ValueIds,
};

use super::{Builder, Cx};
use crate::ShardMap;

/// The symbol of the program's mesh.
const MESH: &str = "mesh";

impl<'a> Builder<'a> {
    /// Lowers a `shard_map`; on one device, its body alone.
    pub(super) fn shard_map(&mut self, cx: Cx<'_>, map: &ShardMap) -> Result<ValueIds> {
        if !self.fits_mesh(map) {
            let mesh = self.interface.mesh.as_ref();
            let program = mesh.map_or("one device".to_string(), |mesh| format!("{mesh:#}"));
            let mesh = list_axes(&map.mesh);
            let message = format!("it is over mesh({mesh}), the program is for {program}");
            return Err(Error::invalid("shard_map", message));
        }
        if self.partitioned_mesh().is_none() {
            return self.nodes(&map.body, cx.operands);
        }
        let open = !map.is_fully_manual();
        let inputs = map.inputs.iter().zip(cx.operands);
        let inputs = inputs.map(|(spec, &value)| sharding(spec, self.ty(value).rank(), open));
        let results: Vec<_> = cx.results().collect();
        let outputs = map.outputs.iter().zip(&results);
        let outputs = outputs.map(|(spec, ty)| sharding(spec, ty.rank(), open));
        let manual = OpKind::ManualComputation(ManualAttributes {
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            axes: map.manual.iter().map(|name| axis(name)).collect(),
        });
        let inputs = map.body.inputs().iter();
        let inputs = self.open(inputs.map(|&input| RankedType::from(map.body.ty(input))));
        self.manual = Some(!open);
        let outputs = self.nodes(&map.body, &inputs)?;
        self.manual = None;
        let region = self.close(&outputs);
        Ok(self.add(manual, cx.operands, results, vec![region]))
    }

    /// Whether the program's mesh is that of `map`. On one device, the axes' names do not matter.
    fn fits_mesh(&self, map: &ShardMap) -> bool {
        match self.partitioned_mesh() {
            Some(mesh) => {
                let axes = map.mesh.iter().map(|(axis, size)| (&**axis, *size));
                mesh.axes().eq(axes)
            }
            None => map.devices() == Some(1),
        }
    }

    /// The mesh of a program that the compiler partitions, where an axis is left that is not
    /// manual.
    pub(super) fn constrained_mesh(&self) -> Option<&'a MeshShape> {
        let mesh = self.partitioned_mesh();
        mesh.filter(|_| self.manual != Some(true))
    }

    pub(super) fn sharding_constraint(
        &self,
        cx: Cx<'_>,
        spec: &PartitionSpec,
        mesh: &MeshShape,
    ) -> OpKind {
        // The constraints of a model apply to any mesh: an axis that this one lacks counts as one
        // of size 1.
        let spec = spec.within(mesh);
        // A dimension that does not divide evenly is not sharded.
        let dims = &self.ty(cx.operands[0]).dims;
        let axes_of = |(dim, size): (usize, &usize)| {
            let axes = spec.axes(dim);
            let sizes = axes.iter().filter_map(|axis| mesh.axis(axis));
            match size.is_multiple_of(sizes.product()) {
                true => axes.to_vec(),
                false => Vec::new(),
            }
        };
        let spec = PartitionSpec::new(dims.iter().enumerate().map(axes_of));
        OpKind::ShardingConstraint(sharding(&spec, dims.len(), false))
    }

    pub(super) fn unsharded(&self, cx: Cx<'_>, dims: &[usize]) -> OpKind {
        let rank = self.ty(cx.operands[0]).rank();
        let mut sharding = sharding(&PartitionSpec::replicated(), rank, true);
        for &dim in dims {
            sharding.dims[dim].open = false;
        }
        OpKind::ShardingConstraint(sharding)
    }
}

pub(super) fn mesh(mesh: &MeshShape) -> ShardyMesh {
    let axes = mesh.axes().map(|(axis, size)| (axis.to_owned(), size));
    ShardyMesh {
        name: MESH.to_owned(),
        axes: axes.collect(),
        devices: Vec::new(),
    }
}

/// A sharding over the program's mesh; if `open`, the compiler may split over further axes.
pub(super) fn sharding(spec: &PartitionSpec, rank: usize, open: bool) -> ShardySharding {
    let dim = |dim| ShardyDim {
        axes: spec.axes(dim).iter().map(|name| axis(name)).collect(),
        open,
        priority: None,
    };
    ShardySharding {
        mesh: MESH.to_owned(),
        dims: (0..rank).map(dim).collect(),
        replicated: Vec::new(),
        unreduced: Vec::new(),
    }
}

fn axis(name: &str) -> ShardyAxis {
    ShardyAxis {
        name: name.to_owned(),
        part: None,
    }
}
