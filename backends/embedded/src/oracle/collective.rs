//! Collectives: exchanges between processes, then plain operations on what was received.

use std::collections::{BTreeMap, BTreeSet};

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{CollectiveAttributes, OpKind, Operation, RankedType, Type};

use super::{
    interpret::{Frame, Process, Single, address, locate},
    operation::tensor_types,
    reduce::Reducer,
    shape::{concatenate, slice},
    tensor::{Tensor, Value, Wide, allocate, unexpected},
};

/// What the numbers in groups of processes mean.
#[derive(Clone, Copy, Debug)]
enum Grouping {
    /// Replicas, of this process's partition.
    Replicas,
    /// Partitions, of this process's replica.
    Partitions,
    /// Replicas, with all of their partitions.
    ReplicasWithPartitions,
    /// Processes: `replica * partitions + partition`.
    Processes,
}

impl Grouping {
    /// The meaning for `all_reduce`, `all_gather` and `reduce_scatter`.
    fn of_reduction(collective: &CollectiveAttributes) -> Self {
        match (collective.channel, collective.global_ids) {
            (_, true) => Grouping::Processes,
            (Some(_), false) => Grouping::ReplicasWithPartitions,
            (None, false) => Grouping::Replicas,
        }
    }

    /// The meaning for the other collectives.
    fn of_channel(channel: Option<i64>) -> Self {
        if channel.is_some() {
            Grouping::Partitions
        } else {
            Grouping::Replicas
        }
    }

    /// The processes of the group that has the process `[replica, partition]` among `counts` of
    /// them; `None` if none has.
    fn members(
        self,
        counts: [usize; 2],
        process: [usize; 2],
        groups: &[Vec<usize>],
    ) -> Option<Vec<usize>> {
        let ([replicas, partitions], [replica, partition]) = (counts, process);
        let number = |replica: usize, partition: usize| replica * partitions + partition;
        let (own, count) = match self {
            Grouping::Replicas | Grouping::ReplicasWithPartitions => (replica, replicas),
            Grouping::Partitions => (partition, partitions),
            Grouping::Processes => (number(replica, partition), replicas * partitions),
        };
        // Without groups, all are in one.
        let all = [(0..count).collect()];
        let groups = if groups.is_empty() { &all } else { groups };
        let group = groups.iter().find(|group| group.contains(&own))?;
        Some(match self {
            Grouping::Replicas => group.iter().map(|&of| number(of, partition)).collect(),
            Grouping::Partitions => group.iter().map(|&of| number(replica, of)).collect(),
            Grouping::Processes => group.clone(),
            Grouping::ReplicasWithPartitions => {
                let of_replica = |&of: &usize| (0..partitions).map(move |p| number(of, p));
                group.iter().flat_map(of_replica).collect()
            }
        })
    }
}

/// Values of the members of a group, in their order.
struct Received {
    values: Vec<Vec<Value>>,
    /// The place of this process in the group.
    own: usize,
}

impl Received {
    /// The part for this process of each value of each member, of `parts` along `dim`.
    fn own_parts(&self, dim: usize, parts: usize) -> Result<Vec<Vec<Value>>> {
        let own = |value: &Value| Ok(Value::Tensor(part(value.tensor()?, dim, self.own, parts)?));
        let own_of = |values: &Vec<Value>| values.iter().map(own).collect();
        self.values.iter().map(own_of).collect()
    }
}

impl<'r> Frame<'r> {
    /// Runs an operation in which processes communicate, or ask for their number.
    pub(super) fn collective(
        &mut self,
        op: &'r Operation,
        operands: Vec<Value>,
        types: &[&Type],
    ) -> Result<Vec<Value>> {
        let Process { world, scope, .. } = self.process;
        let results = match &op.kind {
            OpKind::ShardingConstraint(_) | OpKind::PropagationBarrier(_) => return Ok(operands),
            OpKind::ManualComputation(attributes) => {
                return self.manual_computation(op, attributes, operands, types);
            }
            OpKind::PartitionId if !scope.is_manual() && world.partitions > 1 => {
                let message = "`partition_id` outside of `sdy.manual_computation`: the program \
                               runs once for all partitions there";
                return Err(Error::new(ErrorKind::Unsupported, "run", message));
            }
            OpKind::PartitionId => vec![self.number(self.process.partition, types)?],
            OpKind::ReplicaId => vec![self.number(self.process.replica, types)?],
            OpKind::AllReduce(collective) => {
                let grouping = Grouping::of_reduction(collective);
                let received = self.receive(op, "all_reduce", grouping, collective, operands)?;
                self.reducer(&op.regions[0], |reducer| sums(reducer, &received.values))?
            }
            OpKind::ReduceScatter { dim, collective } => {
                let grouping = Grouping::of_reduction(collective);
                let received =
                    self.receive(op, "reduce_scatter", grouping, collective, operands)?;
                let sums =
                    self.reducer(&op.regions[0], |reducer| sums(reducer, &received.values))?;
                vec![part(&sums[0], *dim, received.own, received.values.len())?]
            }
            OpKind::AllGather { dim, collective } => {
                let grouping = Grouping::of_reduction(collective);
                let received = self.receive(op, "all_gather", grouping, collective, operands)?;
                joined(&received.values, *dim, types)?
            }
            OpKind::AllToAll {
                split,
                concat,
                parts,
                collective,
            } => {
                let grouping = Grouping::of_channel(collective.channel);
                let received = self.receive(op, "all_to_all", grouping, collective, operands)?;
                let own_parts = received.own_parts(*split, *parts)?;
                joined(&own_parts, *concat, types)?
            }
            OpKind::CollectiveBroadcast(collective) => {
                let grouping = Grouping::of_channel(collective.channel);
                match self.members(grouping, &collective.groups) {
                    None => zeros(types)?,
                    Some(members) => {
                        let all = self.exchange(op, "collective_broadcast", &members, operands)?;
                        return Ok(all[0].clone());
                    }
                }
            }
            OpKind::CollectivePermute { pairs, channel } => {
                return self.permute(op, pairs, Grouping::of_channel(*channel), operands, types);
            }
            _ => {
                let message = format!("the interpreter has no operation {:?}", op.kind);
                return Err(Error::new(ErrorKind::Unsupported, "run", message));
            }
        };
        Ok(results.into_iter().map(Value::Tensor).collect())
    }

    fn number(&self, number: usize, types: &[&Type]) -> Result<Tensor> {
        Tensor::encode(tensor_types(types)?[0], Wide::Int(vec![number as i128]))
    }

    fn members(&self, grouping: Grouping, groups: &[Vec<usize>]) -> Option<Vec<usize>> {
        let Process {
            world,
            replica,
            partition,
            ..
        } = self.process;
        let counts = [world.replicas, world.partitions];
        grouping.members(counts, [replica, partition], groups)
    }

    fn exchange(
        &self,
        op: &Operation,
        name: &str,
        members: &[usize],
        values: Vec<Value>,
    ) -> Result<Vec<Vec<Value>>> {
        let Process { world, scope, .. } = self.process;
        let partitions = scope.partitions();
        let absent = |&&number: &&usize| !partitions.contains(&(number % world.partitions));
        if let Some(absent) = members.iter().find(absent) {
            let message = format!(
                "`{name}` of processes {members:?} waits for process {absent}, which does not run \
                 it; only partitions {partitions:?} do: collectives between partitions must be in \
                 an `sdy.manual_computation` over the axes that they differ in"
            );
            return Err(Error::new(ErrorKind::Unsupported, "run", message));
        }
        // All processes run one module, so that the address identifies the operation.
        let (operation, number) = (address(op), self.process.number());
        world.exchange(name, operation, members, scope, number, values)
    }

    fn receive(
        &self,
        op: &Operation,
        name: &str,
        grouping: Grouping,
        collective: &CollectiveAttributes,
        values: Vec<Value>,
    ) -> Result<Received> {
        let number = self.process.number();
        let members = self.members(grouping, &collective.groups);
        let own = members
            .as_ref()
            .and_then(|members| members.iter().position(|&it| it == number));
        let (Some(members), Some(own)) = (members, own) else {
            let message = format!(
                "process {number} runs `{name}`, but none of its groups {:?} has it ({grouping:?})",
                collective.groups
            );
            return Err(Error::invalid("run", message));
        };
        Ok(Received {
            values: self.exchange(op, name, &members, values)?,
            own,
        })
    }

    fn permute(
        &self,
        op: &Operation,
        pairs: &[(usize, usize)],
        grouping: Grouping,
        operands: Vec<Value>,
        types: &[&Type],
    ) -> Result<Vec<Value>> {
        let own = match grouping {
            Grouping::Partitions => self.process.partition,
            _ => self.process.replica,
        };
        let involved = connected(pairs, own);
        let source = pairs
            .iter()
            .find(|&&(_, to)| to == own)
            .map(|&(from, _)| from);
        let zeros = || Ok(zeros(types)?.into_iter().map(Value::Tensor).collect());
        if involved.len() == 1 && source.is_none() {
            return zeros();
        }
        let groups = [involved.clone()];
        let Some(members) = self.members(grouping, &groups) else {
            return zeros();
        };
        let all = self.exchange(op, "collective_permute", &members, operands)?;
        match source.and_then(|source| involved.iter().position(|&it| it == source)) {
            Some(place) => Ok(all[place].clone()),
            None => zeros(),
        }
    }
}

/// The processes with which one exchanges values in a collective, in the order of their group, by
/// their numbers; `None` if it has none. `process` is `[replica, partition]`, among `counts`.
pub(crate) fn members(
    kind: &OpKind,
    counts: [usize; 2],
    process: [usize; 2],
) -> Option<Vec<usize>> {
    let (grouping, groups) = match kind {
        OpKind::AllReduce(collective)
        | OpKind::ReduceScatter { collective, .. }
        | OpKind::AllGather { collective, .. } => {
            (Grouping::of_reduction(collective), &collective.groups)
        }
        OpKind::AllToAll { collective, .. } | OpKind::CollectiveBroadcast(collective) => {
            (Grouping::of_channel(collective.channel), &collective.groups)
        }
        OpKind::CollectivePermute { pairs, channel } => {
            let grouping = Grouping::of_channel(*channel);
            let own = process[usize::from(channel.is_some())];
            return grouping.members(counts, process, &[connected(pairs, own)]);
        }
        _ => return None,
    };
    grouping.members(counts, process, groups)
}

/// The combinations of the operands of all members of an `all_reduce` or a `reduce_scatter`.
pub(crate) fn combined(single: &Single<'_>, operands: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    let of_member = |tensors: Vec<Tensor>| tensors.into_iter().map(Value::Tensor).collect();
    let values: Vec<Vec<Value>> = operands.into_iter().map(of_member).collect();
    let scope = single.scope();
    let mut frame = single.frame(scope.as_ref());
    frame
        .reducer(&single.operation.regions[0], |reducer| {
            sums(reducer, &values)
        })
        .map_err(|error| locate(error, single.operation))
}

/// Those that a process exchanges values with, over others or not, and itself, ascending. The other
/// processes need not run the operation: regions that are manual over some axes run for one group.
fn connected(pairs: &[(usize, usize)], own: usize) -> Vec<usize> {
    let mut neighbors = BTreeMap::<usize, Vec<usize>>::new();
    for &(from, to) in pairs {
        neighbors.entry(from).or_default().push(to);
        neighbors.entry(to).or_default().push(from);
    }
    let (mut found, mut open) = (BTreeSet::from([own]), vec![own]);
    while let Some(process) = open.pop() {
        let all = neighbors.get(&process).into_iter().flatten();
        open.extend(all.filter(|other| found.insert(**other)));
    }
    found.into_iter().collect()
}

/// The combinations of the values of all members, in their order, each rounded once.
fn sums(reducer: &mut Reducer<'_>, values: &[Vec<Value>]) -> Result<Vec<Tensor>> {
    let mut sums = Vec::new();
    for number in 0..values[0].len() {
        let first = values[0][number].tensor()?;
        let rest: Vec<_> = values[1..]
            .iter()
            .map(|values| values[number].tensor())
            .collect::<Result<_>>()?;
        let rows = RankedType::new(first.ty.element, [&[rest.len()], &*first.ty.dims].concat());
        let mut bytes = allocate(rows.bytes())?;
        rest.iter().for_each(|x| bytes.extend_from_slice(&x.bytes));
        let (rows, elements) = (Tensor::new(rows, bytes), first.ty.elements());
        sums.append(
            &mut reducer.accumulate(vec![first.clone()], &[&rows], |visit| {
                (0..rest.len() * elements).try_for_each(|from| visit(from % elements, from))
            })?,
        );
    }
    Ok(sums)
}

/// Values of all members, concatenated along `dim`.
fn joined(values: &[Vec<Value>], dim: usize, types: &[&Type]) -> Result<Vec<Tensor>> {
    let join = |(number, ty): (usize, &RankedType)| {
        let parts: Vec<_> = values
            .iter()
            .map(|values| values[number].tensor())
            .collect::<Result<_>>()?;
        concatenate(&parts, dim, ty)
    };
    tensor_types(types)?
        .into_iter()
        .enumerate()
        .map(join)
        .collect()
}

/// Part `number` of `parts` along `dim`.
fn part(x: &Tensor, dim: usize, number: usize, parts: usize) -> Result<Tensor> {
    let mut ty = x.ty.clone();
    if parts == 0 || !ty.dims[dim].is_multiple_of(parts) {
        return Err(unexpected(
            &format!("{parts} equal parts"),
            &x.ty.to_string(),
        ));
    }
    ty.dims[dim] /= parts;
    let mut starts = vec![0; ty.rank()];
    starts[dim] = number * ty.dims[dim];
    slice(x, &starts, &vec![1; ty.rank()], &ty)
}

fn zeros(types: &[&Type]) -> Result<Vec<Tensor>> {
    let zero = |ty: &RankedType| {
        let mut bytes = allocate(ty.bytes())?;
        bytes.resize(ty.bytes(), 0);
        Ok(Tensor::new(ty.clone(), bytes))
    };
    tensor_types(types)?.into_iter().map(zero).collect()
}
