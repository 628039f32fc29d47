//! How the arguments and results of a program are distributed over its partitions, in the form that
//! callers get.

use std::ffi::c_char;

use halite_core::HloSharding;
use halite_stablehlo::InterfaceTensor;
use prost::Message;

use crate::abi::Shared;

/// Serialized shardings of the arguments or results of a program.
pub(crate) struct Shardings {
    pub(crate) serialized: Box<[Vec<u8>]>,
    /// Pointers at `serialized`.
    starts: Shared<Box<[*const c_char]>>,
    pub(crate) sizes: Box<[usize]>,
}

impl Shardings {
    /// The shardings of these arguments.
    pub(crate) fn of_inputs(tensors: &[InterfaceTensor]) -> Self {
        let sharding = |tensor: &InterfaceTensor| tensor.sharding.as_ref().map(op_sharding);
        let protos = tensors.iter().map(|it| sharding(it).unwrap_or_default());
        Shardings::new(protos.map(|proto| proto.encode_to_vec()).collect())
    }

    /// The shardings of these results. No results are an empty tuple, which has one sharding:
    /// jaxlib refuses a program that reports another number.
    pub(crate) fn of_outputs(tensors: &[InterfaceTensor]) -> Self {
        match tensors {
            [] => Shardings::new(vec![OpSharding::default().encode_to_vec()]),
            _ => Shardings::of_inputs(tensors),
        }
    }

    pub(crate) fn new(serialized: Vec<Vec<u8>>) -> Self {
        let serialized = serialized.into_boxed_slice();
        Shardings {
            starts: Shared(serialized.iter().map(|it| it.as_ptr().cast()).collect()),
            sizes: serialized.iter().map(Vec::len).collect(),
            serialized,
        }
    }

    /// The pointers and the sizes.
    pub(crate) fn raw(&self) -> (*const *const c_char, *const usize) {
        (self.starts.0.as_ptr(), self.sizes.as_ptr())
    }
}

/// The fields of `OpSharding` (xla_data.proto) that are written. The default is replicated.
#[derive(Clone, PartialEq, Message)]
struct OpSharding {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(int64, repeated, tag = "3")]
    tile_assignment_dimensions: Vec<i64>,
    #[prost(int64, repeated, tag = "4")]
    tile_assignment_devices: Vec<i64>,
    #[prost(bool, tag = "6")]
    replicate_on_last_tile_dim: bool,
}

/// The devices of each part, in the order of the parts.
fn op_sharding(sharding: &HloSharding) -> OpSharding {
    const OTHER: i32 = 3;
    let parts: usize = sharding.parts.iter().product();
    if parts <= 1 {
        return OpSharding::default();
    }
    let mut devices: Vec<usize> = (0..sharding.of_device.len()).collect();
    devices.sort_by_key(|&device| sharding.of_device[device]);
    let copies = devices.len() / parts;
    let dims = sharding.parts.iter().copied();
    let dims = dims.chain((copies > 1).then_some(copies));
    OpSharding {
        kind: OTHER,
        tile_assignment_dimensions: dims.map(|dim| dim as i64).collect(),
        tile_assignment_devices: devices.iter().map(|&device| device as i64).collect(),
        replicate_on_last_tile_dim: copies > 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_the_last_dimension() {
        let sharding = HloSharding {
            parts: vec![1, 2],
            of_device: [0, 1, 0, 1].into(),
        };
        let proto = op_sharding(&sharding);
        assert_eq!(proto.tile_assignment_dimensions, [1, 2, 2]);
        assert_eq!(proto.tile_assignment_devices, [0, 2, 1, 3]);
        assert!(proto.replicate_on_last_tile_dim);
    }

    #[test]
    fn no_results_have_one_sharding() {
        let shardings = Shardings::of_outputs(&[]);
        assert_eq!(shardings.sizes[..], [0]);
        assert!(Shardings::of_inputs(&[]).sizes.is_empty());
    }

    #[test]
    fn replicated_sharding_is_empty() {
        let whole = HloSharding {
            parts: vec![1],
            of_device: [0; 4].into(),
        };
        assert!(op_sharding(&whole).encode_to_vec().is_empty());
    }
}
