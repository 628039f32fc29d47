//! Valid optimized programs for the fuzz target of their parser.

use prost::Message;

use crate::hlo::*;

/// Modules with collectives, each alone and with its configuration.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let modules = [loops(), doubling_calls()].map(|computations| Computations {
        computations,
        entry_computation_id: 1,
    });
    let with_config = |module: &Computations| {
        let module = Some(module.clone());
        ModuleWithConfig { module }.encode_to_vec()
    };
    modules
        .iter()
        .flat_map(|module| [with_config(module), module.encode_to_vec()])
        .collect()
}

/// Loops over collectives, with a trip count in the configuration or in the condition.
fn loops() -> Vec<Computation> {
    let reduce = Instruction {
        replica_groups: vec![Group { ids: vec![0, 1, 2] }],
        ..instruction("all-reduce-start", &[])
    };
    let counted = Instruction {
        backend_config: br#"{"known_trip_count":{"n":"12"}}"#.to_vec(),
        ..instruction("while", &[2])
    };
    let uncounted = instruction("while", &[2, 3]);
    let entry = vec![counted, uncounted, instruction("call", &[2])];
    vec![
        computation(1, entry),
        computation(2, vec![gather(), reduce]),
        computation(3, condition()),
    ]
}

/// The condition of a loop: a comparison with 12.
fn condition() -> Vec<Instruction> {
    let limit = Instruction {
        literal: Some(Literal {
            s32s: vec![12],
            ..Literal::default()
        }),
        id: 7,
        ..instruction("constant", &[])
    };
    let root = Instruction {
        id: 8,
        shape: Some(Shape {
            element_type: 1,
            ..Shape::default()
        }),
        ..instruction("compare", &[])
    };
    vec![limit, root]
}

/// Two calls in each computation of the next: 2^63 chains of calls.
fn doubling_calls() -> Vec<Computation> {
    let calls = |id| computation(id, vec![instruction("call", &[id + 1, id + 1])]);
    let mut chain: Vec<Computation> = (1..64).map(calls).collect();
    chain.push(computation(64, vec![gather()]));
    chain
}

/// An all-gather with every form of a list of devices.
fn gather() -> Instruction {
    let by_axes = ByAxes {
        mesh: Some(MeshAxes {
            axes: vec![MeshAxis { size: 4 }],
        }),
        axes: vec![AxisRef {
            index: 0,
            part: None,
        }],
    };
    Instruction {
        devices: Some(DeviceList {
            groups: vec![Group { ids: vec![0, 1] }],
            counted: Some(Counted {
                devices_per_group: 4,
            }),
            by_axes: Some(by_axes),
        }),
        ..instruction("all-gather", &[])
    }
}

fn instruction(opcode: &str, called: &[i64]) -> Instruction {
    Instruction {
        opcode: opcode.into(),
        called_computation_ids: called.to_vec(),
        shape: Some(Shape {
            element_type: 11,
            dimensions: vec![4, 8],
            ..Shape::default()
        }),
        ..Instruction::default()
    }
}

fn computation(id: i64, instructions: Vec<Instruction>) -> Computation {
    Computation {
        instructions,
        id,
        root_id: 8,
    }
}
