//! The collectives of a compiled program.

use std::collections::{BTreeMap, HashMap, HashSet};

use halite_core::Result;

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
    /// The name in HLO: `all-reduce`.
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
    /// The collectives of one run of an optimized program on each of `devices` devices: the format
    /// and the bytes that [`Loaded::optimized`](halite_core::Loaded::optimized) returns.
    ///
    /// # Errors
    /// [`Unsupported`](halite_core::ErrorKind::Unsupported) in an unknown format.
    pub fn read(format: &str, bytes: &[u8], devices: usize) -> Result<Self> {
        let module = Computations::read("collectives", format, bytes)?;
        Ok(Collectives::of(&module, devices))
    }

    /// The collectives of one run of the module on each of `devices` devices.
    ///
    /// Visits each computation once, after all of its callers, so the time is linear in the size of
    /// the module however often its computations call each other. Leaves out computations on a
    /// cycle of calls, and what only those call: HLO has no recursion, so no compiler emits them.
    pub(crate) fn of(module: &Computations, devices: usize) -> Self {
        let order = callers_first(module);
        let trip_limits: HashMap<i64, Option<u64>> = order
            .iter()
            .filter(|computation| computation.gives_bool())
            .map(|computation| (computation.id, computation.trip_limit()))
            .collect();
        let with_collectives = with_collectives(&order);

        let mut found = Found {
            devices,
            uses: BTreeMap::new(),
        };
        let mut loops_counted_once = 0usize;
        let once = Executions {
            runs: 1,
            call_paths: 1,
        };
        let mut executions = HashMap::from([(module.entry_computation_id, once)]);
        for computation in &order {
            let Some(&caller) = executions.get(&computation.id) else {
                continue;
            };
            for instruction in &computation.instructions {
                if let Some(kind) = CollectiveKind::of(&instruction.opcode) {
                    found.add(kind, instruction, caller.runs);
                    continue;
                }
                let called = &instruction.called_computation_ids;
                let trips = if instruction.opcode == "while" {
                    trip_count(instruction, &trip_limits)
                } else {
                    Some(1)
                };
                if trips.is_none() && called.iter().any(|id| with_collectives.contains(id)) {
                    loops_counted_once = loops_counted_once.saturating_add(caller.call_paths);
                }
                for id in called {
                    let callee = executions.entry(*id).or_default();
                    callee.add_calls(caller, trips.unwrap_or(1));
                }
            }
        }
        Collectives {
            uses: found.into_uses(),
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

impl Executions {
    /// Adds the executions of one call in `caller`, repeated `trips` times.
    fn add_calls(&mut self, caller: Executions, trips: u64) {
        let runs = caller.runs.saturating_mul(trips);
        self.runs = self.runs.saturating_add(runs);
        self.call_paths = self.call_paths.saturating_add(caller.call_paths);
    }
}

/// The computations that contain a collective, or call one that does, in an order of
/// [`callers_first`].
fn with_collectives(order: &[&Computation]) -> HashSet<i64> {
    let mut found = HashSet::new();
    for computation in order.iter().rev() {
        let has_some = |call: &Instruction| match CollectiveKind::of(&call.opcode) {
            Some(_) => call.shape.is_some(),
            None => {
                let mut called = call.called_computation_ids.iter();
                called.any(|id| found.contains(id))
            }
        };
        if computation.instructions.iter().any(has_some) {
            found.insert(computation.id);
        }
    }
    found
}

/// The computations that the entry computation reaches, each after all of its callers (Kahn's
/// algorithm), without those on a cycle of calls and what only those call.
fn callers_first(module: &Computations) -> Vec<&Computation> {
    let computations = module.computations.iter();
    let by_id: HashMap<i64, &Computation> = computations.map(|one| (one.id, one)).collect();
    let entry = module.entry_computation_id;
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

/// The computations that a computation calls, other than the reductions of its collectives.
fn callees(computation: &Computation) -> impl Iterator<Item = i64> {
    let calls = computation
        .instructions
        .iter()
        .filter(|call| CollectiveKind::of(&call.opcode).is_none());
    calls.flat_map(|call| call.called_computation_ids.iter().copied())
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
    fn into_uses(self) -> Vec<CollectiveUse> {
        let uses = self.uses.into_iter();
        uses.map(|((kind, group), (count, bytes))| CollectiveUse {
            kind,
            group,
            count,
            bytes,
        })
        .collect()
    }

    fn add(&mut self, kind: CollectiveKind, instruction: &Instruction, times: u64) {
        let group = instruction.group_size().unwrap_or(self.devices);
        let Some(shape) = &instruction.shape else {
            return;
        };
        let asynchronous = instruction.opcode.ends_with("-start");
        let bytes = match kind {
            // Operand, result, and for permutes two numbers that only the compiler uses.
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

/// The trip count in a loop's configuration: `{"known_trip_count":{"n":"12"}, ..}`.
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

#[cfg(test)]
mod tests;
