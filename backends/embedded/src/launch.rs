//! Launches: one job for all devices where their processes run in lockstep, else one for each
//! replica.
//!
//! A job runs on the queue of its first device. It waits for the inputs of all its devices,
//! assembles them, runs the program once, and delivers the shards of the results. Jobs wait for
//! results of earlier launches only, so that the oldest one can always continue.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::Instant,
};

use halite_core::{HloSharding, Result};

use crate::{
    device::Meter,
    failure::Failure,
    fast::{self, Plan, Process},
    node::Spanning,
    oracle::{LAUNCH, Tensor, Value, World, guarded, run_main},
    ready::Ready,
    shards::{assemble, shards},
    slot::{Promise, Slot},
    storage::{Aligned, Storage},
};

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Running {
    program: Arc<Ready>,
    world: Arc<World>,
    since: Instant,
}

impl fmt::Display for Running {
    /// `` `step` has been running for 61 s, now `sort` of f8E4M3FN in the exact interpreter ``
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.since.elapsed().as_secs();
        write!(
            f,
            "`{}` has been running for {seconds} s",
            self.program.name
        )?;
        match self.world.interpreted() {
            Some(operation) => write!(f, ", now {operation} in the exact interpreter"),
            None if self.program.fast.is_none() => f.write_str(", in the exact interpreter"),
            None => Ok(()),
        }
    }
}

impl Ready {
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.fast.as_ref().map(|(plan, _)| plan)
    }

    /// The replicas of each job of a launch.
    pub(crate) fn jobs(&self) -> Vec<Range<usize>> {
        let joins = |plan: &Plan| plan.links.joins_replicas && !plan.links.needs_threads;
        let of_job = match self.plan() {
            Some(plan) if joins(plan) => self.replicas,
            _ => 1,
        };
        let firsts = (0..self.replicas).step_by(of_job);
        firsts.map(|first| first..first + of_job).collect()
    }
}

/// A part of a launch that runs at once.
pub(crate) struct Job {
    pub(crate) program: Arc<Ready>,
    pub(crate) world: Arc<World>,
    pub(crate) replicas: Range<usize>,
    /// Whether it takes less time than to wake another thread.
    pub(crate) is_short: bool,
    /// What it exchanges with other processes, if it runs on devices of several.
    pub(crate) spanning: Option<Spanning>,
    /// Inputs of each of its devices in this process.
    pub(crate) inputs: Vec<Vec<Arc<Slot>>>,
    pub(crate) outputs: Vec<Outputs>,
    /// All jobs of the client that run.
    pub(crate) running: Arc<Mutex<Vec<Arc<Running>>>>,
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
        let rows = self.inputs.iter().map(|slots| {
            let tensors = slots.iter().map(|slot| slot.wait());
            tensors.collect::<Result<Vec<_>>>()
        });
        let rows = rows.collect::<Result<Vec<_>>>();
        let rows = match &self.spanning {
            Some(spanning) => spanning.exchange(&program, rows)?,
            None => rows?,
        };
        // The program alone holds what was donated, or dropped since the launch.
        self.inputs.clear();
        let running = Arc::new(Running {
            program: program.clone(),
            world: self.world.clone(),
            since: Instant::now(),
        });
        let all_running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all_running().push(running.clone());
        let result = self.run_on(rows);
        all_running().retain(|other| !Arc::ptr_eq(other, &running));
        if !program.interpreted.is_empty()
            && let Some(warning) = program.slow_warning(running.since.elapsed())
        {
            halite_core::warning!("{warning}");
        }
        result
    }

    /// The results on each device, of the inputs on each.
    fn run_on(&self, rows: Vec<Vec<Tensor>>) -> Result<Vec<Vec<Tensor>>> {
        let program = &self.program;
        let mut rows = rows.into_iter();
        let mut inputs = Vec::with_capacity(self.replicas.len());
        for _ in self.replicas.clone() {
            inputs.push(program.assemble(rows.by_ref().take(program.partitions).collect())?);
        }
        let mut all = Vec::new();
        for results in self.run_replicas(inputs)? {
            all.append(&mut program.shard(results)?);
        }
        if let Some(spanning) = &self.spanning {
            let mut partitions = 0..;
            all.retain(|_| {
                partitions
                    .next()
                    .is_some_and(|partition| spanning.is_own(partition))
            });
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
            let started = Instant::now();
            let results = self.replicas.clone().zip(inputs).map(run).collect();
            for whole in &self.program.interpreted {
                let took = started.elapsed().as_nanos() as u64;
                whole.nanoseconds.fetch_add(took, Relaxed);
            }
            return results;
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
