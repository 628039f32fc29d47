//! The collectives of a compiled program.

use std::collections::{BTreeMap, HashMap, HashSet};

use prost::Message;

use crate::hlo::*;

/// Kind of a collective operation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CollectiveKind {
    /// Every device receives the reduction of all.
    AllReduce,
    /// Every device receives the shards of all.
    AllGather,
    /// Every device receives its shard of the reduction of all.
    ReduceScatter,
    /// Every device sends a shard to every other.
    AllToAll,
    /// Every device sends to at most one other.
    CollectivePermute,
    /// One device sends to all.
    CollectiveBroadcast,
}

impl CollectiveKind {
    /// Its name in HLO: `all-reduce`.
    pub const fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce => "all-reduce",
            CollectiveKind::AllGather => "all-gather",
            CollectiveKind::ReduceScatter => "reduce-scatter",
            CollectiveKind::AllToAll => "all-to-all",
            CollectiveKind::CollectivePermute => "collective-permute",
            CollectiveKind::CollectiveBroadcast => "collective-broadcast",
        }
    }

    /// The kind of an HLO operation code, also of the start of an asynchronous pair.
    fn of(opcode: &str) -> Option<Self> {
        Some(match opcode.strip_suffix("-start").unwrap_or(opcode) {
            "all-reduce" => CollectiveKind::AllReduce,
            "all-gather" => CollectiveKind::AllGather,
            "reduce-scatter" => CollectiveKind::ReduceScatter,
            "all-to-all" | "ragged-all-to-all" => CollectiveKind::AllToAll,
            "collective-permute" => CollectiveKind::CollectivePermute,
            "collective-broadcast" => CollectiveKind::CollectiveBroadcast,
            _ => return None,
        })
    }
}

impl std::fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The collectives of one kind over groups of one size, in one run of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CollectiveUse {
    /// The kind.
    pub kind: CollectiveKind,
    /// Number of devices in a group.
    pub group: usize,
    /// Number of executions, with the trip counts of loops.
    pub count: u64,
    /// Total size of the full tensors in bytes: of an all-gather the result, of a reduce-scatter
    /// the operand.
    pub bytes: u64,
}

impl CollectiveUse {
    /// Bytes that each device sends with ring algorithms, which are bandwidth-optimal: Patarasuk
    /// and Yuan, "Bandwidth optimal all-reduce algorithms" (2009).
    pub fn sent(&self) -> f64 {
        let others = (self.group as f64 - 1.0).max(0.0) / self.group.max(1) as f64;
        let share = match self.kind {
            CollectiveKind::AllReduce => 2.0 * others,
            CollectiveKind::AllGather
            | CollectiveKind::ReduceScatter
            | CollectiveKind::AllToAll => others,
            CollectiveKind::CollectivePermute | CollectiveKind::CollectiveBroadcast => 1.0,
        };
        share * self.bytes as f64
    }
}

/// The collectives of a compiled program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collectives {
    /// By kind and size of the groups.
    pub uses: Vec<CollectiveUse>,
    /// Number of loops with collectives and an unknown trip count; their bodies are counted once.
    pub loops_counted_once: usize,
}

impl Collectives {
    /// The collectives of one run of the module on each of `devices` devices.
    ///
    /// Visits each computation once, after all of its callers, so the time is linear in the size of
    /// the module however often its computations call each other. Leaves out computations on a
    /// cycle of calls, and what only those call: HLO has no recursion, so no compiler emits them.
    pub(crate) fn of(module: &Computations, devices: usize) -> Self {
        let by_id: HashMap<i64, &Computation> = module
            .computations
            .iter()
            .map(|computation| (computation.id, computation))
            .collect();
        let order = callers_first(&by_id, module.entry_computation_id);
        let trip_limits: HashMap<i64, Option<u64>> = order
            .iter()
            .filter(|computation| computation.gives_bool())
            .map(|computation| (computation.id, computation.trip_limit()))
            .collect();
        let mut with_collectives = HashSet::new();
        for computation in order.iter().rev() {
            let has_some = |instruction: &Instruction| match CollectiveKind::of(&instruction.opcode)
            {
                Some(_) => instruction.shape.is_some(),
                None => instruction
                    .called_computation_ids
                    .iter()
                    .any(|id| with_collectives.contains(id)),
            };
            if computation.instructions.iter().any(has_some) {
                with_collectives.insert(computation.id);
            }
        }

        let mut found = Found {
            devices,
            uses: BTreeMap::new(),
        };
        let mut loops_counted_once = 0usize;
        let mut executions = HashMap::from([(
            module.entry_computation_id,
            Executions {
                runs: 1,
                call_paths: 1,
            },
        )]);
        for computation in &order {
            let Some(&Executions { runs, call_paths }) = executions.get(&computation.id) else {
                continue;
            };
            for instruction in &computation.instructions {
                if let Some(kind) = CollectiveKind::of(&instruction.opcode) {
                    found.add(kind, instruction, runs);
                    continue;
                }
                let called = &instruction.called_computation_ids;
                let trips = match instruction.opcode == "while" {
                    true => trip_count(instruction, &trip_limits),
                    false => Some(1),
                };
                if trips.is_none() && called.iter().any(|id| with_collectives.contains(id)) {
                    loops_counted_once = loops_counted_once.saturating_add(call_paths);
                }
                for id in called {
                    let callee = executions.entry(*id).or_default();
                    callee.runs = callee
                        .runs
                        .saturating_add(runs.saturating_mul(trips.unwrap_or(1)));
                    callee.call_paths = callee.call_paths.saturating_add(call_paths);
                }
            }
        }
        let uses = found
            .uses
            .into_iter()
            .map(|((kind, group), (count, bytes))| CollectiveUse {
                kind,
                group,
                count,
                bytes,
            });
        Collectives {
            uses: uses.collect(),
            loops_counted_once,
        }
    }
}

/// Number of executions of a computation in one run of the program.
#[derive(Clone, Copy, Default)]
struct Executions {
    /// Loop trip counts included.
    runs: u64,
    /// Chains of calls that lead to it from the entry computation.
    call_paths: usize,
}

/// The computations that the entry computation reaches, each after all of its callers (Kahn's
/// algorithm), without those on a cycle of calls and what only those call.
fn callers_first<'a>(by_id: &HashMap<i64, &'a Computation>, entry: i64) -> Vec<&'a Computation> {
    let callees = |computation: &'a Computation| {
        let calls = computation
            .instructions
            .iter()
            .filter(|call| CollectiveKind::of(&call.opcode).is_none());
        calls.flat_map(|call| call.called_computation_ids.iter().copied())
    };
    let mut calls: HashMap<i64, usize> = HashMap::from([(entry, 0)]);
    let mut unvisited: Vec<i64> = vec![entry];
    while let Some(id) = unvisited.pop() {
        for callee in by_id
            .get(&id)
            .into_iter()
            .flat_map(|computation| callees(computation))
        {
            *calls.entry(callee).or_insert_with(|| {
                unvisited.push(callee);
                0
            }) += 1;
        }
    }
    let mut ready: Vec<i64> = calls
        .iter()
        .filter(|(_, calls)| **calls == 0)
        .map(|(id, _)| *id)
        .collect();
    let mut order = Vec::new();
    while let Some(id) = ready.pop() {
        let Some(&computation) = by_id.get(&id) else {
            continue;
        };
        order.push(computation);
        for callee in callees(computation) {
            let left = calls.get_mut(&callee).expect("every callee was counted");
            *left -= 1;
            if *left == 0 {
                ready.push(callee);
            }
        }
    }
    order
}

/// The trip count of a loop, if the compiler wrote it down, or if the loop's condition is that a
/// counter is below a constant.
fn trip_count(instruction: &Instruction, trip_limits: &HashMap<i64, Option<u64>>) -> Option<u64> {
    let from_condition = || {
        instruction
            .called_computation_ids
            .iter()
            .find_map(|id| trip_limits.get(id))
            .copied()
            .flatten()
    };
    known_trip_count(&instruction.backend_config).or_else(from_condition)
}

struct Found {
    devices: usize,
    /// Count and bytes.
    uses: BTreeMap<(CollectiveKind, usize), (u64, u64)>,
}

impl Found {
    fn add(&mut self, kind: CollectiveKind, instruction: &Instruction, times: u64) {
        let group = instruction.group_size().unwrap_or(self.devices);
        let Some(shape) = &instruction.shape else {
            return;
        };
        let asynchronous = instruction.opcode.ends_with("-start");
        let bytes = match kind {
            // Operand, result, and for permutes two numbers that the compiler keeps to itself.
            CollectiveKind::AllGather | CollectiveKind::CollectivePermute if asynchronous => {
                shape.tuple_shapes.get(1).map_or(0, Shape::bytes)
            }
            CollectiveKind::ReduceScatter => shape.bytes().saturating_mul(group as u64),
            _ => shape.bytes(),
        };
        let (count, total) = self.uses.entry((kind, group)).or_default();
        *count = count.saturating_add(times);
        *total = total.saturating_add(bytes.saturating_mul(times));
    }
}

/// From `{"known_trip_count":{"n":"12"}, ..}`.
fn known_trip_count(config: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(config).ok()?;
    let (_, rest) = text.split_once("\"known_trip_count\"")?;
    let (_, rest) = rest.split_once("\"n\"")?;
    let digits = rest.trim_start_matches([':', ' ', '"']);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// See [`fuzz::hlo_seeds`](crate::fuzz::hlo_seeds).
pub(crate) fn fuzz_seeds() -> Vec<Vec<u8>> {
    let shape = Shape {
        element_type: 11,
        dimensions: vec![4, 8],
        ..Shape::default()
    };
    let instruction = |opcode: &str, called: &[i64]| Instruction {
        opcode: opcode.into(),
        called_computation_ids: called.to_vec(),
        shape: Some(shape.clone()),
        ..Instruction::default()
    };
    let gather = Instruction {
        devices: Some(DeviceList {
            groups: vec![Group { ids: vec![0, 1] }],
            counted: Some(Counted {
                devices_per_group: 4,
            }),
            by_axes: Some(ByAxes {
                mesh: Some(MeshAxes {
                    axes: vec![MeshAxis { size: 4 }],
                }),
                axes: vec![AxisRef {
                    index: 0,
                    part: None,
                }],
            }),
        }),
        ..instruction("all-gather", &[])
    };
    let reduce = Instruction {
        replica_groups: vec![Group { ids: vec![0, 1, 2] }],
        ..instruction("all-reduce-start", &[])
    };
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
    let known = br#"{"known_trip_count":{"n":"12"}}"#.to_vec();
    let looped = Instruction {
        backend_config: known,
        ..instruction("while", &[2])
    };
    let computation = |id, instructions| Computation {
        instructions,
        id,
        root_id: 8,
    };
    let loops = vec![
        computation(
            1,
            vec![
                looped,
                instruction("while", &[2, 3]),
                instruction("call", &[2]),
            ],
        ),
        computation(2, vec![gather.clone(), reduce]),
        computation(3, vec![limit, root]),
    ];
    // Two calls in each computation of the next: 2^63 chains of calls.
    let mut chain: Vec<Computation> = (1..64)
        .map(|id| computation(id, vec![instruction("call", &[id + 1, id + 1])]))
        .collect();
    chain.push(computation(64, vec![gather]));
    let modules = [loops, chain].map(|computations| Computations {
        computations,
        entry_computation_id: 1,
    });
    let with_config = |module: &Computations| {
        ModuleWithConfig {
            module: Some(module.clone()),
        }
        .encode_to_vec()
    };
    modules
        .iter()
        .flat_map(|module| [with_config(module), module.encode_to_vec()])
        .collect()
}

#[cfg(test)]
mod tests {
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
    fn a_collective_called_twice_counts_twice() {
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
}
