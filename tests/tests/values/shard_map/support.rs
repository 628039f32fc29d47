//! Meshes, and functions run on one.

use std::sync::Arc;

use halite_core::{
    Array, HostArray, Mesh, PartitionSpec, Result, Sharding,
    tree::{Leaf, Tree},
};
use halite_nn::{Jit, Tensor};
use halite_tests::eval::{Function, client};

/// Two by four devices.
pub(crate) fn mesh() -> Arc<Mesh> {
    mesh_of(&[("data", 2), ("model", 4)])
}

pub(crate) fn mesh_of(axes: &[(&str, usize)]) -> Arc<Mesh> {
    let size = axes.iter().map(|(_, size)| size).product();
    Arc::new(
        Mesh::new(
            axes.iter().copied(),
            client().local_devices()[..size].iter().copied(),
        )
        .unwrap(),
    )
}

/// A spec from `"data, None, (data model)"`-like lists of axes.
pub(crate) fn spec(dims: &[&[&str]]) -> PartitionSpec {
    PartitionSpec::new(dims.iter().map(|axes| axes.to_vec()))
}

pub(crate) fn whole() -> PartitionSpec {
    PartitionSpec::replicated()
}

/// The results of `function` on a mesh, on inputs that are sharded by their specs.
pub(crate) fn try_run(
    mesh: &Arc<Mesh>,
    function: impl Function,
    inputs: &[(HostArray, PartitionSpec)],
) -> Result<Vec<HostArray>> {
    let jit = Jit::<_, Vec<Leaf<()>>, Vec<Leaf<()>>>::function(client(), move |cx, inputs| {
        let inputs: Vec<Tensor<'_>> = inputs.into_leaves();
        function(cx, &inputs).into_iter().map(Leaf).collect()
    });
    let upload = |(host, spec): &(HostArray, PartitionSpec)| {
        Array::upload(client(), host, &Sharding::new(mesh, spec.clone())?).map(Leaf)
    };
    let arrays = inputs.iter().map(upload).collect::<Result<Vec<_>>>()?;
    jit.on(mesh)
        .run(&arrays)?
        .iter()
        .map(|output| output.read())
        .collect()
}

#[track_caller]
pub(crate) fn run(
    mesh: &Arc<Mesh>,
    function: impl Function,
    inputs: &[(HostArray, PartitionSpec)],
) -> Vec<HostArray> {
    try_run(mesh, function, inputs).unwrap_or_else(|error| panic!("{error}"))
}
