//! Manual computations: the region runs once for each shard, on a thread each.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use halite_core::{Error, ErrorKind, HloSharding, Result};
use halite_kernels::CannotAllocate;
use halite_stablehlo::{
    BinaryOp, ManualAttributes, Module, Operation, RankedType, Region, ShardyAxis, ShardyMesh,
    ShardySharding, Type,
};

use super::{
    binary::binary,
    interpret::{Frame, Process, address},
    operation::tensor_types,
    sharding::{MeshAxis, assemble, mesh, of_shardy, partition_at, place_of, shard},
    tensor::{Tensor, Value, cannot_allocate, collect, unexpected},
    world::Scope,
};
use crate::failure::Failure;

/// Stack of a thread that interprets, in bytes: regions and calls nest up to
/// [`Module::MAX_NESTING`] deep, which needs less than a tenth of it.
pub(crate) const STACK: usize = 64 << 20;

/// Shardings of the inputs and outputs of a program over its partitions.
#[derive(Clone, Debug)]
pub(crate) struct Partitioning {
    pub(crate) inputs: Vec<HloSharding>,
    pub(crate) outputs: Vec<HloSharding>,
}

/// The shards of a manual computation.
#[derive(Debug)]
pub(crate) struct Shards {
    pub(crate) inputs: Vec<HloSharding>,
    pub(crate) outputs: Vec<HloSharding>,
    /// Where an input or an output is a sum over partitions, one of those that make it up, for each
    /// partition.
    sums: [Vec<Option<Vec<usize>>>; 2],
    /// For each partition that starts the region, the partitions that run it, one for each shard.
    pub(crate) of: BTreeMap<usize, Vec<usize>>,
}

impl Shards {
    /// The shards of a region in a program over `partitions`, which `starters` start. `ranks` are
    /// those of the operands and of the results.
    ///
    /// # Errors
    /// If the mesh has more devices than there are partitions, or no such axes.
    pub(crate) fn new(
        module: &Module,
        partitions: usize,
        starters: &[usize],
        attributes: &ManualAttributes,
        ranks: [Vec<usize>; 2],
    ) -> Result<Self> {
        let is_manual = |axis: &ShardyAxis| attributes.axes.contains(axis);
        let read = |shardings: &[ShardySharding], ranks: &[usize]| -> Result<Vec<HloSharding>> {
            let read = |(sharding, &rank): (_, &usize)| {
                of_shardy(module, sharding, rank, partitions, is_manual)
            };
            shardings.iter().zip(ranks).map(read).collect()
        };
        let sums = |shardings: &[ShardySharding]| -> Result<Vec<_>> {
            let sum = |sharding| sum_of(module, sharding, partitions, is_manual);
            shardings.iter().map(sum).collect()
        };
        let sharding = attributes.inputs.iter().chain(&attributes.outputs).next();
        let mesh = sharding
            .map(|sharding| mesh(module, &sharding.mesh))
            .transpose()?;
        let shards_of = |&starter: &usize| {
            let own = match mesh {
                Some(mesh) => neighbors(mesh, &attributes.axes, starter)?,
                None => vec![starter],
            };
            if let Some(outside) = own.iter().find(|&&it| it >= partitions) {
                let message = format!(
                    "a manual computation needs partition {outside}, the program has {partitions}; \
                     compile it for as many partitions as its mesh has devices"
                );
                return Err(Error::invalid("run", message));
            }
            Ok((starter, own))
        };
        Ok(Shards {
            inputs: read(&attributes.inputs, &ranks[0])?,
            outputs: read(&attributes.outputs, &ranks[1])?,
            sums: [sums(&attributes.inputs)?, sums(&attributes.outputs)?],
            of: starters.iter().map(shards_of).collect::<Result<_>>()?,
        })
    }

    /// Whether an input or an output is a sum over partitions.
    pub(crate) fn has_sums(&self) -> bool {
        self.sums.iter().flatten().any(Option::is_some)
    }

    /// What a partition gets of an input. Of one that is a sum, a partition has all and the others
    /// have zeros.
    fn input(&self, number: usize, x: &Tensor, partition: usize) -> Result<Tensor> {
        let mut own = shard(x, &self.inputs[number], partition)?;
        let sum = self.sums[0][number].as_ref();
        if sum.is_some_and(|sum| sum[partition] != partition) {
            let bytes = collect(own.bytes.len(), std::iter::repeat_n(0, own.bytes.len()))?;
            own = Tensor::new(own.ty, bytes);
        }
        Ok(own)
    }

    /// The output of type `ty` with these shards, as `(partition, shard)`.
    fn output(
        &self,
        number: usize,
        shards: Vec<(usize, &Tensor)>,
        ty: &RankedType,
    ) -> Result<Tensor> {
        let sharding = &self.outputs[number];
        let Some(sum) = &self.sums[1][number] else {
            return assemble(shards, sharding, ty);
        };
        let mut sums: BTreeMap<usize, Tensor> = BTreeMap::new();
        for (partition, shard) in shards {
            let all = match sums.get(&sum[partition]) {
                Some(before) => binary(BinaryOp::Add, before, shard, &shard.ty)?,
                None => shard.clone(),
            };
            sums.insert(sum[partition], all);
        }
        let sums = sums.iter().map(|(&partition, sum)| (partition, sum));
        assemble(sums, sharding, ty)
    }
}

/// For each partition, the first of those whose shards are summed; `None` without unreduced axes.
fn sum_of(
    module: &Module,
    sharding: &ShardySharding,
    partitions: usize,
    is_manual: impl Fn(&ShardyAxis) -> bool,
) -> Result<Option<Vec<usize>>> {
    let mesh = mesh(module, &sharding.mesh)?;
    let axes = sharding.unreduced.iter().filter(|axis| is_manual(axis));
    let axes: Vec<_> = axes
        .map(|axis| MeshAxis::find(mesh, axis))
        .collect::<Result<_>>()?;
    let first = |partition| {
        let place = place_of(mesh, partition);
        let behind = axes.iter().map(|axis| axis.coordinate(place) * axis.stride);
        partition_at(mesh, place - behind.sum::<usize>())
    };
    Ok((!axes.is_empty()).then(|| (0..partitions).map(first).collect()))
}

/// The partitions that differ from `partition` in their places along these axes only, and itself.
fn neighbors(mesh: &ShardyMesh, axes: &[ShardyAxis], partition: usize) -> Result<Vec<usize>> {
    let mut partitions = vec![partition];
    for axis in axes {
        let axis = MeshAxis::find(mesh, axis)?;
        let along = |&partition: &usize| {
            let place = place_of(mesh, partition);
            let start = place - axis.coordinate(place) * axis.stride;
            let at = move |number| partition_at(mesh, start + number * axis.stride);
            (0..axis.size).map(at).collect::<Vec<_>>()
        };
        partitions = partitions.iter().flat_map(along).collect();
    }
    Ok(partitions)
}

impl<'r> Frame<'r> {
    /// Runs the region for each shard and assembles the results.
    pub(super) fn manual_computation(
        &self,
        op: &'r Operation,
        attributes: &ManualAttributes,
        operands: Vec<Value>,
        types: &[&Type],
    ) -> Result<Vec<Value>> {
        let types = tensor_types(types)?;
        let rank = |value: &Value| Ok(value.tensor()?.ty.rank());
        let ranks = [
            operands.iter().map(rank).collect::<Result<_>>()?,
            types.iter().map(|ty| ty.rank()).collect(),
        ];
        let Process { module, world, .. } = self.process;
        let running = self.process.scope.partitions();
        let shards = Shards::new(module, world.partitions, &running, attributes, ranks)?;
        let partitions = &shards.of[&self.process.partition];
        let mut inputs = Vec::with_capacity(partitions.len());
        for &partition in partitions {
            let own = |(number, value): (usize, &Value)| {
                Ok(Value::Tensor(shards.input(
                    number,
                    value.tensor()?,
                    partition,
                )?))
            };
            let own: Result<Vec<_>> = operands.iter().enumerate().map(own).collect();
            inputs.push((partition, own?));
        }
        let starters = (shards.of.iter())
            .flat_map(|(&starter, own)| own.iter().map(move |&partition| (partition, starter)));
        let (starters, number) = (starters.collect(), self.process.number());
        let scope = world.enter(self.process.scope, address(op), number, starters);
        let results = self.run_shards(&op.regions[0], &scope, inputs)?;
        let whole = |(number, ty): (usize, &RankedType)| {
            let parts: Vec<_> = (partitions.iter().zip(&results))
                .map(|(&partition, values)| Ok((partition, values[number].tensor()?)))
                .collect::<Result<_>>()?;
            Ok(Value::Tensor(shards.output(number, parts, ty)?))
        };
        types.into_iter().enumerate().map(whole).collect()
    }

    /// Runs a region as each of these partitions, on a thread each.
    fn run_shards(
        &self,
        region: &Region,
        scope: &Scope<'_>,
        inputs: Vec<(usize, Vec<Value>)>,
    ) -> Result<Vec<Vec<Value>>> {
        let world = self.process.world;
        thread::scope(|threads| {
            let mut shards = Vec::with_capacity(inputs.len());
            for (partition, inputs) in inputs {
                let process = Process {
                    partition,
                    scope,
                    ..self.process
                };
                let number = process.number();
                let frame = Frame::new(process, self.function);
                let run = move || {
                    let ran = guarded(|| frame.outermost(region, inputs));
                    let ran = ran.map_err(Failure::from);
                    world.end(
                        scope,
                        number,
                        ran.as_ref().map(|_| ()).map_err(Clone::clone),
                    );
                    ran.map_err(|failure| failure.error())
                };
                let name = format!("halite-shard-{number}");
                let thread = thread::Builder::new().name(name).stack_size(STACK);
                let spawned = thread.spawn_scoped(threads, run).map_err(|error| {
                    let failure = Failure::from(no_thread(error));
                    world.end(scope, number, Err(failure.clone()));
                    failure.error()
                });
                shards.push(spawned);
            }
            let join = |thread: Result<thread::ScopedJoinHandle<'_, _>>| {
                thread?.join().expect("panics are caught on the thread")
            };
            let results: Vec<_> = shards.into_iter().map(join).collect();
            results.into_iter().collect()
        })
    }
}

/// The error of a thread that the system did not create.
pub(crate) fn no_thread(error: std::io::Error) -> Error {
    let message = "the system cannot create a thread to interpret a program";
    Error::new(ErrorKind::Unavailable, "run", message).caused_by(error)
}

/// The result of `run`, or the error of its panic.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        if let Some(failed) = panic.downcast_ref::<CannotAllocate>() {
            return Err(cannot_allocate(failed.bytes));
        }
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(unexpected(
            "no panic",
            text.unwrap_or("one without a message"),
        ))
    })
}
