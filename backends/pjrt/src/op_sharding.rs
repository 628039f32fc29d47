//! Shardings that plugins report (`OpSharding`), as [`HloSharding`]s.

use halite_core::HloSharding;
use prost::Message;

/// The fields of `OpSharding` (xla_data.proto) that assign parts to devices.
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
    #[prost(int32, repeated, tag = "8")]
    last_tile_dims: Vec<i32>,
    #[prost(int64, repeated, tag = "9")]
    iota_reshape_dims: Vec<i64>,
    #[prost(int32, repeated, tag = "10")]
    iota_transpose_perm: Vec<i32>,
}

const REPLICATED: i32 = 0;
const OTHER: i32 = 3;

/// The sharding of a tensor of rank `rank` over `devices` devices; `None` for one that is not valid
/// or has a form that is not supported.
pub(crate) fn hlo_sharding_of(sharding: &[u8], rank: usize, devices: usize) -> Option<HloSharding> {
    let whole = HloSharding {
        parts: vec![1; rank],
        of_device: vec![0; devices].into(),
    };
    if sharding.is_empty() {
        return Some(whole);
    }
    let sharding = OpSharding::decode(sharding).ok()?;
    match sharding.kind {
        REPLICATED => return (sharding == OpSharding::default()).then_some(whole),
        OTHER => {}
        _ => return None,
    }
    let dims = sizes(&sharding.tile_assignment_dimensions)?;
    // Devices that differ only in the dimensions after the tensor's have the same part.
    let copies = if sharding.replicate_on_last_tile_dim {
        1
    } else {
        sharding.last_tile_dims.len()
    };
    if dims.len() != rank + copies {
        return None;
    }
    let assigned = if sharding.iota_reshape_dims.is_empty() {
        sizes(&sharding.tile_assignment_devices)?
    } else {
        let permutation: Vec<i64> = (sharding.iota_transpose_perm.iter().copied())
            .map(i64::from)
            .collect();
        let reshape = sizes(&sharding.iota_reshape_dims)?;
        HloSharding::iota_devices(devices, &reshape, &sizes(&permutation)?)?
    };
    if assigned.len() != devices {
        return None;
    }
    HloSharding::from_tiles(rank, &dims, &assigned)
}

fn sizes(numbers: &[i64]) -> Option<Vec<usize>> {
    numbers
        .iter()
        .map(|&number| usize::try_from(number).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sharding: OpSharding, rank: usize) -> Option<(Vec<usize>, Vec<usize>)> {
        hlo_sharding_of(&sharding.encode_to_vec(), rank, 8)
            .map(|sharding| (sharding.parts, sharding.of_device.to_vec()))
    }

    fn tiled(dims: &[i64]) -> OpSharding {
        OpSharding {
            kind: OTHER,
            tile_assignment_dimensions: dims.to_vec(),
            ..OpSharding::default()
        }
    }

    #[test]
    fn tile_assignments_are_lists_or_iotas() {
        let split = OpSharding {
            tile_assignment_devices: vec![0, 1, 2, 3, 4, 5, 6, 7],
            ..tiled(&[2, 4])
        };
        assert_eq!(
            parsed(split, 2),
            Some((vec![2, 4], vec![0, 1, 2, 3, 4, 5, 6, 7]))
        );
        let counted = OpSharding {
            iota_reshape_dims: vec![8],
            iota_transpose_perm: vec![0],
            ..tiled(&[2, 4])
        };
        assert_eq!(
            parsed(counted, 2),
            Some((vec![2, 4], vec![0, 1, 2, 3, 4, 5, 6, 7]))
        );
        // [4, 2]<=[2, 4]T(1, 0): the second axis of the mesh splits, the first holds copies.
        let transposed = OpSharding {
            iota_reshape_dims: vec![2, 4],
            iota_transpose_perm: vec![1, 0],
            replicate_on_last_tile_dim: true,
            ..tiled(&[4, 2])
        };
        assert_eq!(
            parsed(transposed.clone(), 1),
            Some((vec![4], vec![0, 1, 2, 3, 0, 1, 2, 3]))
        );
        let subgroups = OpSharding {
            replicate_on_last_tile_dim: false,
            last_tile_dims: vec![REPLICATED],
            ..transposed
        };
        assert_eq!(
            parsed(subgroups, 1),
            Some((vec![4], vec![0, 1, 2, 3, 0, 1, 2, 3]))
        );
    }

    #[test]
    fn replicated_is_empty_or_explicit() {
        assert_eq!(
            hlo_sharding_of(&[], 2, 4),
            Some(HloSharding {
                parts: vec![1, 1],
                of_device: vec![0; 4].into()
            })
        );
        assert_eq!(
            parsed(OpSharding::default(), 1),
            Some((vec![1], vec![0; 8]))
        );
    }

    #[test]
    fn unknown_shardings_are_none() {
        let listed = |dims: &[i64], devices: Vec<i64>| OpSharding {
            tile_assignment_devices: devices,
            ..tiled(dims)
        };
        let manual = OpSharding {
            kind: 4,
            ..OpSharding::default()
        };
        let transposed_by_an_absent_dimension = OpSharding {
            iota_reshape_dims: vec![2, 4],
            iota_transpose_perm: vec![0, 9],
            ..tiled(&[8])
        };
        for (reason, sharding, rank) in [
            ("manual", manual, 1),
            ("a device twice", listed(&[8], vec![0; 8]), 1),
            ("an unknown device", listed(&[8], vec![9; 8]), 1),
            ("a negative device", listed(&[8], vec![-1; 8]), 1),
            ("too few devices", listed(&[2], vec![0, 1]), 1),
            ("sizes that overflow", tiled(&[i64::MAX, i64::MAX]), 2),
            ("an absent dimension", transposed_by_an_absent_dimension, 1),
        ] {
            assert_eq!(parsed(sharding, rank), None, "{reason}");
        }
        assert_eq!(hlo_sharding_of(b"\xff\xff", 1, 8), None, "not a message");
    }
}
