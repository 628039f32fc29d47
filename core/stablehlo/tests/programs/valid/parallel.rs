//! Collectives and shardings.

use halite_stablehlo::{
    CollectiveAttributes, ManualAttributes, Module, OpKind, PropagationDirection, ShardyAxis,
    ShardyDim, ShardyMesh, ShardySharding,
};

use crate::programs::program::{on, program, program_with};

pub(crate) fn groups(groups: &[&[usize]], channel: Option<i64>) -> CollectiveAttributes {
    CollectiveAttributes {
        groups: groups.iter().map(|group| group.to_vec()).collect(),
        channel,
        global_ids: false,
    }
}

pub(crate) fn all_reduce() -> Module {
    let kind = OpKind::AllReduce(groups(&[&[0, 2], &[1], &[3]], None));
    let all = program_with(kind, "2xf32 3xf32", "2xf32 3xf32", |b| vec![b.sum("f32")]);
    on(all, 1, 4)
}

pub(crate) fn all_gather() -> Module {
    let collective = CollectiveAttributes {
        global_ids: true,
        ..groups(&[&[0, 2], &[1, 3]], Some(1))
    };
    on(
        program(
            OpKind::AllGather { dim: 0, collective },
            "2x3xf32",
            "4x3xf32",
        ),
        4,
        1,
    )
}

pub(crate) fn all_to_all() -> Module {
    let kind = OpKind::AllToAll {
        split: 1,
        concat: 0,
        parts: 2,
        collective: groups(&[&[0, 1], &[2, 3]], Some(1)),
    };
    on(program(kind, "2x6xf32", "4x3xf32"), 4, 1)
}

pub(crate) fn reduce_scatter() -> Module {
    let kind = OpKind::ReduceScatter {
        dim: 0,
        collective: groups(&[], Some(1)),
    };
    on(
        program_with(kind, "8x3xf32", "1x3xf32", |b| vec![b.sum("f32")]),
        4,
        2,
    )
}

pub(crate) fn collective_permute() -> Module {
    let kind = OpKind::CollectivePermute {
        pairs: vec![(0, 1), (1, 2), (3, 3)],
        channel: Some(1),
    };
    on(program(kind, "2xf32", "2xf32"), 4, 1)
}

pub(crate) fn collective_broadcast() -> Module {
    on(
        program(
            OpKind::CollectiveBroadcast(groups(&[&[2, 1]], None)),
            "2xf32",
            "2xf32",
        ),
        1,
        4,
    )
}

pub(crate) fn axis(name: &str) -> ShardyAxis {
    ShardyAxis {
        name: name.into(),
        part: None,
    }
}

/// The sharding of each dimension over one axis, or none for `""`.
pub(crate) fn sharding(dims: &[&str]) -> ShardySharding {
    let dim = |name: &&str| ShardyDim {
        axes: if name.is_empty() {
            Vec::new()
        } else {
            vec![axis(name)]
        },
        ..ShardyDim::default()
    };
    ShardySharding {
        mesh: "mesh".into(),
        dims: dims.iter().map(dim).collect(),
        replicated: Vec::new(),
        unreduced: Vec::new(),
    }
}

pub(crate) fn with_mesh(mut module: Module) -> Module {
    module.meshes.push(ShardyMesh {
        name: "mesh".into(),
        axes: vec![("x".into(), 4), ("y".into(), 2)],
        devices: Vec::new(),
    });
    on(module, 8, 1)
}

pub(crate) fn sharding_constraint() -> Module {
    let kind = OpKind::ShardingConstraint(sharding(&["y", ""]));
    with_mesh(program(kind, "8x3xf32", "8x3xf32"))
}

pub(crate) fn propagation_barrier() -> Module {
    let kind = OpKind::PropagationBarrier(PropagationDirection::Forward);
    with_mesh(program(kind, "8x3xf32", "8x3xf32"))
}

/// A sum over `x` of the shards of an input, by hand.
pub(crate) fn manual_computation() -> Module {
    let kind = OpKind::ManualComputation(ManualAttributes {
        inputs: vec![sharding(&["x", "y"])],
        outputs: vec![sharding(&["", "y"])],
        axes: vec![axis("x"), axis("y")],
    });
    let program = program_with(kind, "8x6xf32", "2x6xf32", |b| {
        let region = b.region("2x3xf32", |b, args| {
            let collective = CollectiveAttributes {
                global_ids: true,
                ..groups(&[&[0, 2, 4, 6], &[1, 3, 5, 7]], Some(1))
            };
            let sum = vec![b.sum("f32")];
            b.op_with(OpKind::AllReduce(collective), args, sum, "2x3xf32")
        });
        vec![region]
    });
    with_mesh(program)
}
