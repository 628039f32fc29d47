//! Operations of several processes: manual computations and collectives.

use std::{collections::BTreeSet, sync::Arc};

use halite_core::{HloSharding, Result};
use halite_stablehlo::{ManualAttributes, OpKind, Operation, RankedType, Region};

use super::{
    super::{collective::Collective, place::Place, plan::Plan},
    Form, Kind, Manual, Numbered, OracleCall, Running,
    build::{Builder, Captures, region_graph, slow, tensor},
};
use crate::oracle::{Shards, members, shard_type};

impl Running {
    /// The partitions, if they run a manual computation.
    pub(super) fn shards(&self) -> Option<Arc<[usize]>> {
        self.is_manual.then(|| self.partitions.clone())
    }
}

impl Builder<'_> {
    /// A manual computation. `None` if the oracle has to run it.
    pub(super) fn manual(
        &mut self,
        function: usize,
        operation: &Operation,
        attributes: &ManualAttributes,
        operands: &[Place],
        depth: usize,
    ) -> Result<Option<Vec<Place>>> {
        let of = &self.module.functions[function];
        let region = &operation.regions[0];
        let types: Vec<_> = operation.results.iter().map(|&id| tensor(of, id)).collect();
        let ranks = [
            operands.iter().map(|place| place.view.dims.len()).collect(),
            types.iter().map(|ty| ty.rank()).collect(),
        ];
        let running = &self.running;
        let partitions = running.counts[1];
        let shards = Shards::new(
            self.module,
            partitions,
            &running.partitions,
            attributes,
            ranks,
        );
        // What is wrong with it is an error of launches, which the oracle returns.
        let Ok(shards) = shards else {
            return Ok(None);
        };
        let all: BTreeSet<usize> = shards.of.values().flatten().copied().collect();
        let is_shard = |(whole, sharding, id): (&RankedType, &HloSharding, _)| {
            shard_type(whole, sharding).is_ok_and(|shard| shard == *tensor(of, id))
        };
        let whole: Vec<_> = operands.iter().map(Place::ty).collect();
        let mut inputs = whole.iter().zip(&shards.inputs).zip(&region.arguments);
        let mut outputs = types.iter().zip(&shards.outputs).zip(&region.results);
        let fits = running.form == Form::Lockstep
            && !shards.has_sums()
            && all.len() == shards.of.values().map(Vec::len).sum::<usize>()
            && region.arguments.len() == operands.len()
            && region.results.len() == types.len()
            && inputs.all(|((whole, sharding), &id)| is_shard((whole, sharding, id)))
            && outputs.all(|((whole, sharding), &id)| is_shard((whole, sharding, id)));
        if !fits {
            return Ok(None);
        }
        let running = Running {
            partitions: all.into_iter().collect(),
            is_manual: true,
            ..running.clone()
        };
        let (module, budget) = (self.module, &mut self.budget);
        let captures = Captures::default();
        let graph = region_graph(
            module,
            running,
            function,
            region,
            &captures,
            depth + 1,
            budget,
        )?;
        let Some(graph) = graph else {
            return Ok(None);
        };
        let plan = Plan::of(graph);
        let manual = Kind::Manual(Box::new(Manual { plan, shards }));
        Ok(Some(self.joint(manual, operands, &types)))
    }

    /// The number of the process, or a collective. `None` if it is neither, or the oracle has to
    /// run it.
    pub(super) fn of_process(
        &mut self,
        function: usize,
        operation: &Operation,
        operands: &[Place],
    ) -> Option<Vec<Place>> {
        let of = &self.module.functions[function];
        let types: Vec<_> = operation.results.iter().map(|&id| tensor(of, id)).collect();
        let is_one = self.running.counts[1] == 1;
        let kind = match operation.kind {
            OpKind::ReplicaId => Kind::Number(Numbered::Replica),
            OpKind::PartitionId if self.running.is_manual || is_one => {
                Kind::Number(Numbered::Partition)
            }
            _ => {
                let groups = self.groups(&operation.kind)?;
                let call = OracleCall {
                    function,
                    operation: operation.clone(),
                    captures: Vec::new(),
                    shards: self.running.shards(),
                    slow: slow(of, operation),
                };
                Kind::Collective(Box::new(Collective { call, groups }))
            }
        };
        Some(self.joint(kind, operands, &types))
    }

    fn joint(&mut self, kind: Kind, operands: &[Place], types: &[&RankedType]) -> Vec<Place> {
        let operands = operands.iter().map(|place| self.whole(place)).collect();
        let results: Vec<_> = types.iter().map(|ty| self.base(ty, None)).collect();
        self.nodes_of(kind, operands, results.clone());
        let whole = |(base, ty): (_, &&RankedType)| Place::whole(base, ty);
        results.into_iter().zip(types).map(whole).collect()
    }

    /// The groups of processes of a collective. `None` if it is another operation, or one with
    /// groups that cannot all run it.
    fn groups(&mut self, kind: &OpKind) -> Option<Vec<Vec<usize>>> {
        if !is_collective(kind) || self.running.form == Form::Threads {
            return None;
        }
        let Running {
            counts: counts @ [replicas, partitions],
            partitions: ref running,
            ..
        } = self.running;
        let runs = |number: &usize| running.contains(&(number % partitions));
        let mut groups = BTreeSet::new();
        for replica in 0..replicas {
            for &partition in &**running {
                let number = replica * partitions + partition;
                let group = match members(kind, counts, [replica, partition]) {
                    Some(group) => group,
                    None if matches!(kind, OpKind::CollectiveBroadcast(_)) => continue,
                    None => return None,
                };
                if !group.contains(&number) || !group.iter().all(runs) {
                    return None;
                }
                groups.insert(group);
            }
        }
        // Processes of two groups would wait for each other forever.
        let all: Vec<usize> = groups.iter().flatten().copied().collect();
        if all.iter().collect::<BTreeSet<_>>().len() != all.len() {
            self.budget.links.needs_threads = true;
            return None;
        }
        let joins = |group: &Vec<usize>| {
            let mut replicas = group.iter().map(|number| number / partitions);
            let first = replicas.next();
            replicas.any(|replica| Some(replica) != first)
        };
        self.budget.links.joins_replicas |= groups.iter().any(joins);
        Some(groups.into_iter().collect())
    }

    /// Returns whether processes wait for each other in an operation that the oracle runs.
    pub(super) fn exchanges(&self, operation: &Operation) -> bool {
        fn any<'m>(
            builder: &Builder<'m>,
            region: &'m Region,
            seen: &mut BTreeSet<&'m str>,
        ) -> bool {
            (region.operations.iter())
                .any(|operation| is_collective(&operation.kind) || inside(builder, operation, seen))
        }
        fn inside<'m>(
            builder: &Builder<'m>,
            operation: &'m Operation,
            seen: &mut BTreeSet<&'m str>,
        ) -> bool {
            let called = match &operation.kind {
                OpKind::ManualComputation(_) => return true,
                OpKind::Call { function }
                | OpKind::Composite {
                    decomposition: function,
                    ..
                } if seen.insert(function) => builder.module.function(function),
                _ => None,
            };
            let regions = operation.regions.iter();
            let mut regions = regions.chain(called.map(|called| &called.body));
            regions.any(|region| any(builder, region, seen))
        }
        inside(self, operation, &mut BTreeSet::new())
    }
}

fn is_collective(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::AllReduce(_)
            | OpKind::ReduceScatter { .. }
            | OpKind::AllGather { .. }
            | OpKind::AllToAll { .. }
            | OpKind::CollectivePermute { .. }
            | OpKind::CollectiveBroadcast(_)
    )
}
