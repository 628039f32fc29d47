//! Launches: one job for all devices where their processes run in lockstep, else one for each
//! replica.
//!
//! A job runs on the queue of its first device. It waits for the inputs of all its devices,
//! assembles them, runs the program once, and delivers the shards of the results. Jobs wait for
//! results of earlier launches only, so that the oldest one can always go on.

use std::{ops::Range, sync::Arc};

use halite_core::{HloSharding, Result};
use halite_kernels::Threads;
use halite_stablehlo::Module;

use crate::{
    device::Meter,
    failure::Failure,
    fast::{self, Plan, Process},
    oracle::{LAUNCH, Partitioning, Tensor, Value, World, guarded, run_main},
    shards::{assemble, shards},
    slot::{Promise, Slot},
    storage::{Aligned, Storage},
};

/// What the launches of an executable share.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) module: Arc<Module>,
    /// The plan of the fast mode, and the threads that run its kernels.
    pub(crate) fast: Option<(Plan, Arc<Threads>)>,
    pub(crate) partitioning: Partitioning,
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
}

impl Ready {
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.fast.as_ref().map(|(plan, _)| plan)
    }

    /// The replicas of each job of a launch.
    pub(crate) fn jobs(&self) -> Vec<Range<usize>> {
        match self.plan() {
            Some(plan) if plan.links.joins_replicas && !plan.links.needs_threads => {
                vec![0..self.replicas]
            }
            _ => (0..self.replicas)
                .map(|replica| replica..replica + 1)
                .collect(),
        }
    }
}

/// A part of a launch that runs at once.
pub(crate) struct Job {
    pub(crate) program: Arc<Ready>,
    pub(crate) world: Arc<World>,
    pub(crate) replicas: Range<usize>,
    /// Whether it takes less time than to wake another thread.
    pub(crate) is_short: bool,
    /// Of each of its devices.
    pub(crate) inputs: Vec<Vec<Arc<Slot>>>,
    pub(crate) outputs: Vec<Outputs>,
}

/// The results on a device.
pub(crate) struct Outputs {
    pub(crate) promises: Vec<Promise>,
    pub(crate) memory: Arc<Meter>,
}

impl Job {
    /// Runs it, and delivers the results or the error.
    pub(crate) fn run(mut self) {
        let outputs = std::mem::take(&mut self.outputs);
        let (world, first) = (
            self.world.clone(),
            self.replicas.start * self.program.partitions,
        );
        let result = guarded(|| self.evaluate()).map_err(Failure::from);
        let ended = result.as_ref().map(|_| ()).map_err(Clone::clone);
        world.end(&LAUNCH, first, ended);
        match result {
            Ok(all) => {
                for (outputs, tensors) in outputs.into_iter().zip(all) {
                    let Outputs { promises, memory } = outputs;
                    for (promise, tensor) in promises.into_iter().zip(tensors) {
                        promise.fulfill(Ok(tensor), |bytes| memory.charge(bytes));
                    }
                }
            }
            Err(failure) => {
                for Outputs { promises, memory } in outputs {
                    for promise in promises {
                        promise.fulfill(Err(failure.clone()), |bytes| memory.charge(bytes));
                    }
                }
            }
        }
    }

    /// Returns whether all inputs are there.
    pub(crate) fn has_inputs(&self) -> bool {
        self.inputs.iter().flatten().all(|slot| slot.is_delivered())
    }

    /// The results on each device.
    fn evaluate(mut self) -> Result<Vec<Vec<Tensor>>> {
        let program = self.program.clone();
        let mut rows = Vec::with_capacity(self.inputs.len());
        for slots in &self.inputs {
            let tensors = slots.iter().map(|slot| slot.wait());
            rows.push(tensors.collect::<Result<Vec<_>>>()?);
        }
        // The program alone holds what was donated, or dropped since the launch.
        self.inputs.clear();
        let mut rows = rows.into_iter();
        let mut inputs = Vec::with_capacity(self.replicas.len());
        for _ in self.replicas.clone() {
            inputs.push(program.assemble(rows.by_ref().take(program.partitions).collect())?);
        }
        let mut all = Vec::with_capacity(self.outputs.len());
        for results in self.run_replicas(inputs)? {
            all.append(&mut program.shard(results)?);
        }
        Ok(all)
    }

    /// The results of each replica.
    fn run_replicas(&self, inputs: Vec<Vec<Tensor>>) -> Result<Vec<Vec<Tensor>>> {
        let (module, world) = (&*self.program.module, &*self.world);
        let Some((plan, threads)) = &self.program.fast else {
            let run = |(replica, inputs): (_, Vec<Tensor>)| {
                let inputs = inputs.into_iter().map(Value::Tensor).collect();
                let results = run_main(module, world, [replica, 0], inputs)?;
                let results = results.iter().map(|value| value.tensor().cloned());
                results.collect()
            };
            return self.replicas.clone().zip(inputs).map(run).collect();
        };
        let launch = fast::Launch {
            module,
            world,
            threads,
        };
        let processes = self.replicas.clone().map(|replica| Process {
            replica,
            partition: 0,
        });
        let processes: Vec<_> = processes.collect();
        // The kernels' threads are woken once, unless one would wait for another job.
        if plan.links.needs_threads || self.is_short {
            plan.run(&launch, &processes, inputs)
        } else {
            threads.run(|| plan.run(&launch, &processes, inputs))
        }
    }
}

impl Ready {
    /// The inputs of a replica from those of its partitions.
    fn assemble(&self, mut rows: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        if self.partitions == 1 {
            return Ok(rows.pop().unwrap_or_default());
        }
        let main = self.module.main()?;
        let mut columns: Vec<Vec<(usize, Tensor)>> = Vec::new();
        columns.resize_with(main.body.arguments.len(), Vec::new);
        for (partition, row) in rows.into_iter().enumerate() {
            for (column, tensor) in columns.iter_mut().zip(row) {
                column.push((partition, tensor));
            }
        }
        let whole = |((shards, &id), sharding): ((Vec<_>, _), &HloSharding)| {
            let ty = main.ty(id).as_tensor();
            let ty = ty.expect("the signature has tensors");
            let take = || Ok(Storage::Aligned(Aligned::zeros(ty.bytes())));
            assemble(shards, sharding, ty, take)
        };
        let columns = columns.into_iter().zip(&main.body.arguments);
        columns.zip(&self.partitioning.inputs).map(whole).collect()
    }

    /// The results of the partitions of a replica.
    fn shard(&self, results: Vec<Tensor>) -> Result<Vec<Vec<Tensor>>> {
        if self.partitions == 1 {
            return Ok(vec![results]);
        }
        let partitions: Vec<_> = (0..self.partitions).collect();
        let mut rows = vec![Vec::with_capacity(results.len()); self.partitions];
        for (tensor, sharding) in results.iter().zip(&self.partitioning.outputs) {
            for (row, shard) in rows.iter_mut().zip(shards(tensor, sharding, &partitions)?) {
                row.push(shard);
            }
        }
        Ok(rows)
    }
}
