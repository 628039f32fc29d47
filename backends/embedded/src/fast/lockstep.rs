//! Launches of a plan by any number of processes, in lockstep: each unit runs for all of them
//! before the next one, so that a collective is an operation on the values of all.
//!
//! What processes compute from the same buffers is computed once, and they share the result:
//! replicated parameters, whatever follows from them, and the results of collectives.

mod regions;
mod stacked;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};

use halite_core::Result;
use halite_kernels::Threads;
use halite_stablehlo::Module;

use super::{
    arena::Arena,
    place::Base,
    plan::{Plan, Unit},
    values::Values,
};
use crate::{
    oracle::{Tensor, World},
    storage::Storage,
};

/// A launch.
pub(crate) struct Launch<'r> {
    pub(crate) module: &'r Module,
    pub(crate) world: &'r World,
    pub(crate) threads: &'r Threads,
}

/// One replica's run of one partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process {
    pub(crate) replica: usize,
    pub(crate) partition: usize,
}

impl Process {
    /// Its number among all processes.
    pub(super) fn number(self, partitions: usize) -> usize {
        self.replica * partitions + self.partition
    }
}

impl Plan {
    /// Runs the program as each of the processes, on inputs for each.
    ///
    /// # Errors
    /// Those of the operations that the oracle computes, of collectives, and of allocations.
    pub(crate) fn run(
        &self,
        launch: &Launch<'_>,
        processes: &[Process],
        inputs: Vec<Vec<Tensor>>,
    ) -> Result<Vec<Vec<Tensor>>> {
        let values = inputs.into_iter().map(|inputs| {
            let inputs = inputs.into_iter().map(|tensor| tensor.bytes.aligned());
            Values::new(self, inputs)
        });
        let mut run = Run::new(self, launch, processes.to_vec(), values.collect());
        run.steps()?;
        let outputs = run.outputs();
        run.finish();
        outputs
    }

    /// Memory of an earlier launch that no other one uses.
    fn arena(&self) -> Arena {
        let arena = self
            .arenas
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        arena.unwrap_or_default()
    }

    fn keep(&self, arena: Arena) {
        (self.arenas.lock().unwrap_or_else(PoisonError::into_inner)).push(arena);
    }
}

/// A run of a plan.
struct Run<'p> {
    plan: &'p Plan,
    launch: &'p Launch<'p>,
    processes: Vec<Process>,
    /// Values of each process.
    values: Vec<Values<'p>>,
    arena: Arena,
}

impl<'p> Run<'p> {
    fn new(
        plan: &'p Plan,
        launch: &'p Launch<'p>,
        processes: Vec<Process>,
        values: Vec<Values<'p>>,
    ) -> Self {
        let mut arena = plan.arena();
        arena.serve(processes.len());
        Run {
            plan,
            launch,
            processes,
            values,
            arena,
        }
    }

    /// Keeps the memory for later runs of the plan.
    fn finish(self) {
        self.plan.keep(self.arena);
    }

    /// Runs all units.
    fn steps(&mut self) -> Result<()> {
        for (unit, unused) in self.plan.units.iter().zip(&self.plan.last_uses) {
            self.launch.world.check()?;
            let types = &self.plan.types;
            let _span = tracing::trace_span!(
                "unit",
                kind = unit.kind(),
                sizes = unit.sizes(types),
                bytes = unit.bytes(types),
            )
            .entered();
            self.step(unit, unused)?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Runs a unit, after which nothing reads the values `unused`.
    fn step(&mut self, unit: &Unit, unused: &[Base]) -> Result<()> {
        for values in &mut self.values {
            (unused.iter()).for_each(|&base| values.is_needed[base] = false);
        }
        match unit {
            Unit::Loop {
                regions,
                operands,
                results,
            } => self.run_loop(regions, operands, results)?,
            Unit::Branch {
                branch,
                operands,
                results,
            } => self.branch(branch, operands, results)?,
            Unit::Manual {
                manual,
                operands,
                results,
            } => self.manual(manual, operands, results)?,
            Unit::Collective {
                collective,
                operands,
                results,
            } => self.collective(collective, operands, results)?,
            _ => return self.step_each(unit, unused),
        }
        for at in 0..self.values.len() {
            self.release(at, unused);
        }
        Ok(())
    }

    /// Runs a unit that one process alone can run.
    fn step_each(&mut self, unit: &Unit, unused: &[Base]) -> Result<()> {
        let same = self.same(unit);
        if same.is_empty() && !self.stacked(unit)? {
            for at in 0..self.values.len() {
                self.step_one(unit, at)?;
                self.release(at, unused);
            }
            return Ok(());
        }
        if !same.is_empty() {
            self.step_shared(unit, &same)?;
        }
        for at in 0..self.values.len() {
            self.release(at, unused);
        }
        Ok(())
    }

    fn step_one(&mut self, unit: &Unit, at: usize) -> Result<()> {
        let values = &mut self.values[at];
        std::mem::swap(&mut values.arena, &mut self.arena);
        let stepped = values.step(unit, self.launch, self.processes[at]);
        std::mem::swap(&mut values.arena, &mut self.arena);
        stepped
    }

    /// Runs a unit once for all processes that are the same, each of which has its first in `same`.
    fn step_shared(&mut self, unit: &Unit, same: &[usize]) -> Result<()> {
        let (reads, writes) = (unit.reads(), unit.writes());
        // What others only share is free to be overwritten by the process that computes.
        for (at, values) in self.values.iter_mut().enumerate() {
            if same[at] != at {
                let shared = reads.iter().filter(|&&base| !values.is_needed[base]);
                shared.for_each(|&base| values.values[base] = None);
            }
        }
        for (at, &first) in same.iter().enumerate() {
            if first == at {
                self.step_one(unit, at)?;
                continue;
            }
            for &base in &writes {
                self.values[at].values[base] = self.values[first].values[base].clone();
            }
        }
        Ok(())
    }

    /// For each process the first one that reads the same buffers; empty if each computes by itself.
    fn same(&self, unit: &Unit) -> Vec<usize> {
        if self.values.len() == 1 || !unit.is_pure() {
            return Vec::new();
        }
        let reads = unit.reads();
        let address = |values: &Values<'_>, &base: &Base| {
            (values.values[base].as_ref()).map_or(std::ptr::null(), Arc::as_ptr)
        };
        let key = |values| -> Vec<*const Storage> {
            reads.iter().map(|base| address(values, base)).collect()
        };
        let mut firsts = HashMap::new();
        let first = |(at, values)| *firsts.entry(key(values)).or_insert(at);
        let same: Vec<_> = self.values.iter().enumerate().map(first).collect();
        if firsts.len() == same.len() {
            return Vec::new();
        }
        same
    }

    /// Frees values of a process for later ones, where it alone has them.
    fn release(&mut self, at: usize, unused: &[Base]) {
        for &base in unused {
            if let Some(Ok(storage)) = self.values[at].values[base].take().map(Arc::try_unwrap) {
                self.arena.put(self.plan, base, storage);
            }
        }
    }

    fn outputs(&self) -> Result<Vec<Vec<Tensor>>> {
        self.all_of(&self.plan.outputs)
    }

    /// These values of all processes, none of which shares the memory of a larger one.
    fn all_of(&self, bases: &[Base]) -> Result<Vec<Vec<Tensor>>> {
        // Copies of parts, so that processes that share one share the copy.
        let mut copies: HashMap<*const Storage, Arc<Storage>> = HashMap::new();
        let mut tensor = |values: &Values<'_>, base| {
            let Tensor { ty, bytes } = values.tensor(base)?;
            let bytes = match *bytes {
                Storage::Part(..) => copies
                    .entry(Arc::as_ptr(&bytes))
                    .or_insert_with(|| bytes.clone().whole())
                    .clone(),
                _ => bytes,
            };
            Ok(Tensor { ty, bytes })
        };
        let of = |values| bases.iter().map(|&base| tensor(values, base)).collect();
        self.values.iter().map(of).collect()
    }

    /// Drops what nothing reads later, so that what runs next can reuse the memory.
    fn give_up(&mut self, operands: &[Base]) {
        for values in &mut self.values {
            for &base in operands {
                if !values.is_needed[base] {
                    values.values[base] = None;
                }
            }
        }
    }

    fn set(&mut self, results: &[Base], all: Vec<Vec<Tensor>>) {
        for (values, tensors) in self.values.iter_mut().zip(all) {
            for (&base, tensor) in results.iter().zip(tensors) {
                values.values[base] = Some(tensor.bytes.aligned());
            }
        }
    }
}
