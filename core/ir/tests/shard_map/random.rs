//! Random meshes, specs and groups.

use halite_core::{MeshShape, PartitionSpec};
use halite_ir::{Graph, Groups, Op, Reduction, ShardMap, infer};
use proptest::prelude::*;

use crate::shard_map::{axes, f32};

/// A spec that puts each of three axes into one of the dimensions, or none.
fn scattered(places: &[usize], rank: usize) -> PartitionSpec {
    let mut dims = vec![vec![]; rank];
    for (place, axis) in places.iter().zip(["a", "b", "c"]) {
        if let Some(dim) = dims.get_mut(*place) {
            dim.push(axis);
        }
    }
    PartitionSpec::new(dims)
}

proptest! {
    #[test]
    fn a_part_is_what_a_device_of_a_mesh_holds(
        sizes in prop::collection::vec(1usize..5, 3), dims in prop::collection::vec(0usize..25, 0..4),
        places in prop::collection::vec(0usize..5, 3),
    ) {
        let mesh_axes = axes(&[("a", sizes[0]), ("b", sizes[1]), ("c", sizes[2])]);
        let mesh = MeshShape::new(mesh_axes.clone()).unwrap();
        let (ty, spec) = (f32(&dims), scattered(&places, dims.len()));
        let held = spec.shard_type(&mesh, &ty).ok();
        let local = held.clone().unwrap_or_else(|| ty.clone());
        let mut body = Graph::new();
        let x = body.input(local);
        body.set_outputs(vec![x]);
        let map = ShardMap {
            mesh: mesh_axes,
            manual: vec!["a".into(), "b".into(), "c".into()],
            inputs: vec![spec.clone()],
            outputs: vec![spec],
            body: Box::new(body),
        };
        // What devices hold, put together, is what it was cut from.
        prop_assert_eq!(infer(&Op::ShardMap(map), &[&ty]).ok(), held.map(|_| vec![ty]));
    }

    #[test]
    fn nothing_panics(
        sizes in prop::collection::vec(prop::sample::select(vec![0, 1, 2, 3, usize::MAX]), 3),
        dims in prop::collection::vec(prop::sample::select(vec![0, 1, 6, usize::MAX]), 0..4),
        places in prop::collection::vec(0usize..5, 3), manual in prop::collection::vec(0usize..4, 0..3),
        pairs in prop::collection::vec((0usize..9, 0usize..9), 0..4), lists in prop::collection::vec(prop::collection::vec(0usize..9, 0..3), 0..3),
    ) {
        let names = ["a", "b", "c", "d"];
        let all = axes(&[("a", sizes[0]), ("b", sizes[1]), ("c", sizes[2])]);
        let ty = f32(&dims);
        let spec = scattered(&places, dims.len());
        for groups in [Groups::All, Groups::from(lists), Groups::Axes(all.clone())] {
            let mut body = Graph::new();
            let x = body.input(ty.clone());
            let pushed = body.push(Op::CollectivePermute { pairs: pairs.clone(), groups: groups.clone() }, &[x], None).map(|results| results[0]);
            body.set_outputs(vec![pushed.unwrap_or(x)]);
            let map = ShardMap {
                mesh: all.clone(),
                manual: manual.iter().map(|&axis| names[axis].into()).collect(),
                inputs: vec![spec.clone()],
                outputs: vec![spec.clone()],
                body: Box::new(body),
            };
            let _ = infer(&Op::ShardMap(map), &[&ty]);
            let _ = infer(&Op::AllGather { dim: places[0], groups: groups.clone() }, &[&ty]);
            let _ = infer(&Op::AllToAll { split: places[0], concat: places[1], groups: groups.clone() }, &[&ty]);
            let _ = infer(&Op::ReduceScatter { kind: Reduction::Sum, dim: places[0], groups }, &[&ty]);
        }
    }
}
