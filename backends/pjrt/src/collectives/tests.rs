use super::*;

fn shape(element_type: i32, dims: &[i64]) -> Shape {
    Shape {
        element_type,
        dimensions: dims.to_vec(),
        ..Shape::default()
    }
}

fn gather(dims: &[i64], group: i64) -> Instruction {
    let devices = DeviceList {
        counted: Some(Counted {
            devices_per_group: group,
        }),
        ..DeviceList::default()
    };
    Instruction {
        opcode: "all-gather".into(),
        shape: Some(shape(11, dims)),
        devices: Some(devices),
        ..Instruction::default()
    }
}

fn module(entry: Vec<Instruction>, others: Vec<Computation>) -> Computations {
    let entry = Computation {
        instructions: entry,
        id: 1,
        root_id: 0,
    };
    Computations {
        computations: [vec![entry], others].concat(),
        entry_computation_id: 1,
    }
}

#[test]
fn collectives_in_loops_count_by_trip_count() {
    let body = Computation {
        instructions: vec![gather(&[4, 8], 4)],
        id: 2,
        root_id: 0,
    };
    let looping = |config: &[u8]| Instruction {
        opcode: "while".into(),
        called_computation_ids: vec![2, 3],
        backend_config: config.to_vec(),
        ..Instruction::default()
    };
    let condition = |limit: Option<i32>| {
        let constant = limit.map(|limit| Instruction {
            opcode: "constant".into(),
            id: 7,
            literal: Some(Literal {
                s32s: vec![limit],
                ..Literal::default()
            }),
            ..Instruction::default()
        });
        let root = Instruction {
            opcode: "compare".into(),
            id: 8,
            shape: Some(shape(1, &[])),
            ..Instruction::default()
        };
        Computation {
            instructions: constant.into_iter().chain([root]).collect(),
            id: 3,
            root_id: 8,
        }
    };
    let count = |config: &[u8], limit| {
        let found = Collectives::of(
            &module(vec![looping(config)], vec![body.clone(), condition(limit)]),
            8,
        );
        assert_eq!(found.uses.len(), 1);
        assert_eq!(
            (found.uses[0].kind, found.uses[0].group),
            (CollectiveKind::AllGather, 4)
        );
        assert_eq!(found.uses[0].bytes, found.uses[0].count * 4 * 8 * 4);
        (found.uses[0].count, found.loops_counted_once)
    };
    assert_eq!(count(br#"{"known_trip_count":{"n":"12"}}"#, None), (12, 0));
    assert_eq!(count(b"", Some(5)), (5, 0));
    assert_eq!(count(b"", None), (1, 1));
}

#[test]
fn bytes_sent_depend_on_kind_of_group() {
    let of = |kind| {
        CollectiveUse {
            kind,
            group: 4,
            count: 1,
            bytes: 1000,
        }
        .sent()
    };
    assert_eq!(of(CollectiveKind::AllReduce), 1500.0);
    assert_eq!(of(CollectiveKind::AllGather), 750.0);
    assert_eq!(of(CollectiveKind::CollectivePermute), 1000.0);
    let alone = CollectiveUse {
        kind: CollectiveKind::AllReduce,
        group: 1,
        count: 1,
        bytes: 1000,
    };
    assert_eq!(alone.sent(), 0.0);
}

#[test]
fn bytes_are_those_of_the_full_tensor() {
    let mut scatter = gather(&[2], 4);
    scatter.opcode = "reduce-scatter".into();
    let mut started = gather(&[], 2);
    started.opcode = "all-gather-start".into();
    started.shape = Some(Shape {
        element_type: 13,
        tuple_shapes: vec![shape(11, &[4]), shape(11, &[8])],
        ..Shape::default()
    });
    let found = Collectives::of(&module(vec![scatter, started], vec![]), 8).uses;
    let expected = [
        (CollectiveKind::AllGather, 2, 32),
        (CollectiveKind::ReduceScatter, 4, 32),
    ];
    assert_eq!(
        found
            .iter()
            .map(|one| (one.kind, one.group, one.bytes))
            .collect::<Vec<_>>(),
        expected
    );
}

fn call(callees: &[i64]) -> Instruction {
    Instruction {
        opcode: "call".into(),
        called_computation_ids: callees.to_vec(),
        ..Instruction::default()
    }
}

#[test]
fn recursive_calls_are_left_out() {
    assert_eq!(
        Collectives::of(&module(vec![call(&[1])], vec![]), 1),
        Collectives::default()
    );
    let cycle = [(2, 3), (3, 2)].map(|(id, callee)| Computation {
        instructions: vec![gather(&[4], 4), call(&[callee])],
        id,
        root_id: 0,
    });
    let entry = vec![gather(&[4], 4), call(&[2])];
    let found = Collectives::of(&module(entry, cycle.to_vec()), 4);
    assert_eq!((found.uses.len(), found.uses[0].count), (1, 1));
}

/// 2^62 call paths lead to the last computation: a walk along each of them never ends.
#[test]
fn work_is_linear_in_the_size_of_the_module() {
    let chain = (2..64).map(|id| Computation {
        instructions: vec![call(&[id + 1, id + 1])],
        id,
        root_id: 0,
    });
    let last = Computation {
        instructions: vec![gather(&[4], 4)],
        id: 64,
        root_id: 0,
    };
    let found = Collectives::of(&module(vec![call(&[2])], chain.chain([last]).collect()), 4);
    assert_eq!(found.uses[0].count, 1 << 62);
}

#[test]
fn collective_called_twice_counts_twice() {
    let shared = Computation {
        instructions: vec![gather(&[4], 4)],
        id: 3,
        root_id: 0,
    };
    let looped = Instruction {
        opcode: "while".into(),
        ..call(&[3])
    };
    let between = Computation {
        instructions: vec![call(&[3]), looped],
        id: 2,
        root_id: 0,
    };
    let found = Collectives::of(
        &module(vec![call(&[2]), call(&[2, 3])], vec![between, shared]),
        4,
    );
    assert_eq!(
        (
            found.uses[0].count,
            found.uses[0].bytes,
            found.loops_counted_once
        ),
        (5, 5 * 16, 2)
    );
}
