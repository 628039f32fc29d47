//! Operations with regions, and collectives: all partitions arrive before one goes on.

use std::sync::Arc;

use halite_core::Result;

use super::{
    super::{
        collective::Collective,
        graph::{Branch, Counter, Loop, Manual},
        place::Base,
        values::Values,
    },
    Process, Run,
};
use crate::{
    oracle::Tensor,
    shards::{assemble, shards},
    storage::Storage,
};

impl Run<'_> {
    /// What each process decides: the first result.
    fn decisions(&mut self) -> Result<Vec<bool>> {
        self.steps()?;
        let output = self.plan.outputs.first();
        let goes_on = |values: &Values<'_>| {
            output.is_some_and(|&base| {
                let value = values.values[base].as_ref().and_then(|it| it.first());
                value.is_some_and(|&byte| byte != 0)
            })
        };
        let decisions = self.values.iter().map(goes_on).collect();
        // So that others can reuse the memory of the inputs.
        self.values.iter_mut().for_each(Values::clear);
        Ok(decisions)
    }

    /// Runs a loop as long as any process is in it.
    pub(super) fn run_loop(
        &mut self,
        regions: &Loop,
        operands: &[Base],
        results: &[Base],
    ) -> Result<()> {
        let all = self.all_of(operands)?;
        let storages = |tensors: Vec<Tensor>| tensors.into_iter().map(|tensor| tensor.bytes);
        let mut states: Vec<Vec<Arc<Storage>>> =
            all.into_iter().map(|it| storages(it).collect()).collect();
        let captures: Vec<_> = (states.iter_mut())
            .map(|state| state.split_off(results.len()))
            .collect();
        self.give_up(operands);
        let mut active: Vec<usize> = (0..states.len()).collect();
        // The processes of these are those that are in the loop.
        let (launch, processes) = (self.launch, &self.processes);
        let start = |plan, active: &[usize]| {
            let processes: Vec<_> = active.iter().map(|&at| processes[at]).collect();
            let values = processes.iter().map(|_| Values::new(plan, [].into_iter()));
            Run::new(plan, launch, processes.clone(), values.collect())
        };
        let mut condition = start(&regions.condition, &active);
        let mut body = start(&regions.body, &active);
        let trips = |counter: &Counter| -> Vec<u64> {
            let inputs = states.iter().zip(&captures);
            let input = |(state, captured): (&Vec<Arc<Storage>>, &Vec<Arc<Storage>>)| {
                counter.trips(|of| state.get(of).unwrap_or_else(|| &captured[of - state.len()]))
            };
            inputs.map(input).collect()
        };
        let trips = regions.counter.as_ref().map(trips);
        for iteration in 0.. {
            launch.world.check()?;
            let decisions = match &trips {
                Some(trips) => active.iter().map(|&at| iteration < trips[at]).collect(),
                None => {
                    for (values, &at) in condition.values.iter_mut().zip(&active) {
                        values.restart(states[at].iter().chain(&captures[at]).cloned());
                    }
                    condition.decisions()?
                }
            };
            if decisions.contains(&false) {
                let mut decisions = decisions.into_iter();
                active.retain(|_| decisions.next().expect("a decision of each process"));
                condition.finish();
                body.finish();
                if active.is_empty() {
                    break;
                }
                condition = start(&regions.condition, &active);
                body = start(&regions.body, &active);
            }
            for (values, &at) in body.values.iter_mut().zip(&active) {
                values.restart(states[at].drain(..).chain(captures[at].iter().cloned()));
            }
            body.steps()?;
            for (values, &at) in body.values.iter_mut().zip(&active) {
                for &base in &regions.body.outputs {
                    states[at].push(values.get(base)?.clone().whole());
                }
                values.clear();
            }
        }
        for (values, state) in self.values.iter_mut().zip(states) {
            for (&base, storage) in results.iter().zip(state) {
                values.values[base] = Some(storage.aligned());
            }
        }
        Ok(())
    }

    /// Runs for each process the region that it decides for.
    pub(super) fn branch(
        &mut self,
        branch: &Branch,
        operands: &[Base],
        results: &[Base],
    ) -> Result<()> {
        let mut all = self.all_of(operands)?;
        self.give_up(operands);
        let decide = |tensors: &mut Vec<Tensor>| branch.decide(&tensors.remove(0).bytes);
        let decisions: Vec<usize> = all.iter_mut().map(decide).collect();
        let mut outputs: Vec<Vec<Tensor>> = vec![Vec::new(); all.len()];
        for (number, plan) in branch.regions.iter().enumerate() {
            let takes: Vec<usize> = (0..all.len())
                .filter(|&at| decisions[at] == number)
                .collect();
            if takes.is_empty() {
                continue;
            }
            let processes: Vec<_> = takes.iter().map(|&at| self.processes[at]).collect();
            let inputs = takes
                .iter()
                .map(|&at| std::mem::take(&mut all[at]))
                .collect();
            let computed = plan.run(self.launch, &processes, inputs)?;
            for (&at, tensors) in takes.iter().zip(computed) {
                outputs[at] = tensors;
            }
        }
        self.set(results, outputs);
        Ok(())
    }

    /// Runs a manual computation as the partitions of all shards.
    pub(super) fn manual(
        &mut self,
        manual: &Manual,
        operands: &[Base],
        results: &[Base],
    ) -> Result<()> {
        let Manual { plan, shards: of } = manual;
        let (mut processes, mut inputs) = (Vec::new(), Vec::new());
        for (values, process) in self.values.iter().zip(&self.processes) {
            let partitions = &of.of[&process.partition];
            let first = inputs.len();
            processes.extend(partitions.iter().map(|&partition| Process {
                partition,
                ..*process
            }));
            inputs.resize_with(processes.len(), Vec::new);
            for (&base, sharding) in operands.iter().zip(&of.inputs) {
                let shards = shards(&values.tensor(base)?, sharding, partitions)?;
                for (inputs, shard) in inputs[first..].iter_mut().zip(shards) {
                    inputs.push(shard);
                }
            }
        }
        self.give_up(operands);
        // What the program has released of earlier results becomes the memory of the next ones.
        let mut inner = plan.arena();
        inner.serve(processes.len());
        for (&result, &output) in results.iter().zip(&plan.outputs) {
            if let Some(storage) = self.arena.spare(self.plan, result) {
                inner.put(plan, output, storage);
            }
        }
        plan.keep(inner);
        let mut outputs = plan.run(self.launch, &processes, inputs)?.into_iter();
        let mut all = Vec::with_capacity(self.values.len());
        for process in &self.processes {
            let partitions = &of.of[&process.partition];
            let mut columns: Vec<Vec<(usize, Tensor)>> = vec![Vec::new(); results.len()];
            for (&partition, outputs) in partitions.iter().zip(&mut outputs) {
                for (column, tensor) in columns.iter_mut().zip(outputs) {
                    column.push((partition, tensor));
                }
            }
            let whole = |((shards, sharding), &base)| {
                let take = || self.arena.take(self.plan, base);
                assemble(shards, sharding, &self.plan.types[base], take)
            };
            let columns = columns.into_iter().zip(&of.outputs).zip(results);
            all.push(columns.map(whole).collect::<Result<_>>()?);
        }
        self.set(results, all);
        Ok(())
    }

    pub(super) fn collective(
        &mut self,
        collective: &Collective,
        operands: &[Base],
        results: &[Base],
    ) -> Result<()> {
        let tensors = |values: &Values<'_>| -> Result<Vec<Tensor>> {
            operands.iter().map(|&base| values.tensor(base)).collect()
        };
        let all: Vec<_> = self.values.iter().map(tensors).collect::<Result<_>>()?;
        let types: Vec<_> = results.iter().map(|&base| &self.plan.types[base]).collect();
        let arena = &mut self.arena;
        let mut take = |result: usize| arena.take(self.plan, results[result]);
        let all = collective.run(self.launch, &self.processes, &all, &types, &mut take)?;
        self.set(results, all);
        Ok(())
    }
}
