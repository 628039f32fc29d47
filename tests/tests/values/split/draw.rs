//! Meshes, shardings and inputs of a program.

use halite_core::{DType, MeshShape, PartitionSpec, TensorType};
use halite_tests::random::Random;

/// Meshes of up to eight devices.
const MESHES: [&[(&str, usize)]; 9] = [
    &[("a", 2)],
    &[("a", 3)],
    &[("a", 4)],
    &[("a", 8)],
    &[("a", 2), ("b", 2)],
    &[("a", 2), ("b", 2)],
    &[("a", 3), ("b", 2)],
    &[("a", 2), ("b", 4)],
    &[("a", 2), ("b", 2), ("c", 2)],
];

pub(crate) fn mesh(random: &mut Random) -> MeshShape {
    let axes = MESHES[random.below(MESHES.len())];
    MeshShape::new(axes.iter().copied()).expect("axes of different names")
}

/// Dimensions that many meshes divide.
const INPUTS: [&[usize]; 8] = [
    &[4, 8, 4],
    &[2, 12, 4],
    &[1, 8, 2],
    &[6, 6, 4],
    &[8, 12],
    &[12, 6],
    &[24],
    &[2, 8, 6, 4],
];

pub(crate) fn input(random: &mut Random) -> TensorType {
    TensorType::new(DType::F64, INPUTS[random.below(INPUTS.len())])
}

/// A spec whose axes divide the dimensions; few of them are left out.
pub(crate) fn spec(random: &mut Random, ty: &TensorType, mesh: &MeshShape) -> PartitionSpec {
    let mut dims: Vec<Vec<String>> = vec![Vec::new(); ty.rank()];
    for (axis, _) in mesh.axes() {
        if ty.rank() > 0 && random.percent(75) {
            let dim = random.below(ty.rank());
            let parts: usize = (dims[dim].iter().map(|axis| &**axis).chain([axis]))
                .filter_map(|axis| mesh.axis(axis))
                .product();
            if ty.dims()[dim].is_multiple_of(parts) {
                dims[dim].push(axis.to_owned());
            }
        }
    }
    PartitionSpec::new(dims)
}
