//! Launches of a plan.

use std::sync::PoisonError;

use halite_core::Result;
use halite_kernels::{Operand, Source, Target, Threads, multiply_all, reduce};
use halite_stablehlo::{ElementType, Module};

use super::{
    contract::Product,
    direct::Call,
    elementwise::is_word,
    graph::{Loop, OracleCall},
    group::Group,
    place::Base,
    plan::{Plan, Unit},
    values::Values,
};
use crate::{
    oracle::{Single, Tensor, World, run_operation},
    storage::Storage,
};

/// A launch on one device.
pub(crate) struct Launch<'r> {
    pub(crate) module: &'r Module,
    pub(crate) world: &'r World,
    /// The replica.
    pub(crate) replica: usize,
    pub(crate) threads: &'r Threads,
}

impl Plan {
    /// Runs the program.
    ///
    /// # Errors
    /// Those of the operations that the oracle computes, and of allocations.
    pub(crate) fn run(&self, launch: &Launch<'_>, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let arenas = || self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let mut values = Values {
            plan: self,
            values: vec![None; self.types.len()],
            is_needed: vec![true; self.types.len()],
            arena: arenas().pop().unwrap_or_default(),
        };
        for (base, storage) in &self.constants {
            values.values[*base] = Some(storage.clone());
        }
        for (&base, tensor) in self.inputs.iter().zip(inputs) {
            values.values[base] = Some(tensor.bytes.aligned());
        }
        for (unit, unused) in self.units.iter().zip(&self.last_uses) {
            launch.world.check()?;
            unused
                .iter()
                .for_each(|&base| values.is_needed[base] = false);
            values.step(unit, launch)?;
            unused.iter().for_each(|&base| values.release(base));
        }
        let outputs = self.outputs.iter().map(|&base| values.whole(base));
        let outputs = outputs.collect();
        arenas().push(values.arena);
        outputs
    }
}

impl Values<'_> {
    fn step(&mut self, unit: &Unit, launch: &Launch<'_>) -> Result<()> {
        let threads = launch.threads;
        match unit {
            Unit::Group(group) => self.group(group, threads),
            Unit::Product {
                product,
                left,
                right,
                out,
            } => {
                let mut result = self.take(*out)?;
                self.product(product, *left, *right, &mut result, threads)?;
                self.set(*out, result);
                Ok(())
            }
            Unit::Reduce {
                sizes,
                initial,
                x,
                out,
            } => {
                let mut result = self.take(*out)?;
                let words = bytemuck::cast_slice_mut(result.bytes_mut());
                reduce(threads, *sizes, *initial, self.elements(*x)?, words);
                self.set(*out, result);
                Ok(())
            }
            Unit::Loop {
                regions,
                operands,
                results,
            } => self.run_loop(regions, operands, results, launch),
            Unit::Direct {
                kernel,
                operands,
                results,
                can_share,
            } => kernel.run(&mut Call {
                values: self,
                operands,
                results,
                can_share: *can_share,
                threads,
            }),
            Unit::Oracle {
                call,
                operands,
                results,
            } => self.oracle(call, operands, results, launch),
        }
    }

    fn group(&mut self, group: &Group, threads: &Threads) -> Result<()> {
        if group.is_zero {
            for &target in &group.targets {
                let mut result = self.take(target)?;
                result.bytes_mut().fill(0);
                self.set(target, result);
            }
            return Ok(());
        }
        // A target has the memory of a source that nothing else reads, if there is one.
        let mut in_place: Vec<Option<usize>> = vec![None; group.sources.len()];
        let mut targets = Vec::with_capacity(group.targets.len());
        for (number, &target) in group.targets.iter().enumerate() {
            let memory = group.in_place[number].iter().find_map(|&source| {
                let memory = self.take_memory(group.sources[source])?;
                in_place[source] = Some(number);
                Some(memory)
            });
            targets.push(match memory {
                Some(memory) => memory,
                None => self.take(target)?,
            });
        }
        let source = |(&base, in_place): (&Base, &Option<usize>)| {
            if let Some(target) = *in_place {
                return Ok(Source::InPlace(target));
            }
            Ok(match self.plan.types[base].element {
                ElementType::S8 => Source::SignedBytes(self.get(base)?),
                element if is_word(element) => Source::Words(self.elements(base)?),
                _ => Source::Bytes(self.get(base)?),
            })
        };
        let sources = group.sources.iter().zip(&in_place).map(source);
        let sources: Vec<_> = sources.collect::<Result<_>>()?;
        let slices = targets
            .iter_mut()
            .zip(&group.targets)
            .map(|(storage, &base)| {
                let bytes = storage.bytes_mut();
                if is_word(self.plan.types[base].element) {
                    Target::Words(bytemuck::cast_slice_mut(bytes))
                } else {
                    Target::Bytes(bytes)
                }
            });
        group.program.run(threads, &sources, slices.collect());
        for (&base, storage) in group.targets.iter().zip(targets) {
            self.set(base, storage);
        }
        Ok(())
    }

    fn product(
        &self,
        product: &Product,
        left: Base,
        right: Base,
        result: &mut Storage,
        threads: &Threads,
    ) -> Result<()> {
        let operands = [
            Operand {
                data: self.elements(left)?,
                offset: 0,
                rows: &product.rows,
                columns: &product.left_terms,
            },
            Operand {
                data: self.elements(right)?,
                offset: 0,
                rows: &product.right_terms,
                columns: &product.columns,
            },
        ];
        let out = bytemuck::cast_slice_mut(result.bytes_mut());
        multiply_all(threads, operands, &product.batches, out);
        Ok(())
    }

    fn run_loop(
        &mut self,
        regions: &Loop,
        operands: &[Base],
        results: &[Base],
        launch: &Launch<'_>,
    ) -> Result<()> {
        let mut state = Vec::with_capacity(operands.len());
        for &base in operands {
            state.push(self.whole(base)?);
        }
        let captures = state.split_off(results.len());
        // Nothing else holds what only the loop reads, so that its body can reuse the memory.
        for &base in operands {
            if !self.is_needed[base] {
                self.values[base] = None;
            }
        }
        loop {
            launch.world.check()?;
            let with_captures = |state: Vec<Tensor>| {
                let mut all = state;
                all.extend(captures.iter().cloned());
                all
            };
            let decision = regions
                .condition
                .run(launch, with_captures(state.clone()))?;
            if decision
                .first()
                .is_none_or(|it| it.bytes.first() == Some(&0))
            {
                break;
            }
            state = regions.body.run(launch, with_captures(state))?;
        }
        for (&base, tensor) in results.iter().zip(state) {
            self.values[base] = Some(tensor.bytes);
        }
        Ok(())
    }

    fn oracle(
        &mut self,
        call: &OracleCall,
        operands: &[Base],
        results: &[Base],
        launch: &Launch<'_>,
    ) -> Result<()> {
        let operands = operands.iter().map(|&base| self.tensor(base));
        let operands: Vec<Tensor> = operands.collect::<Result<_>>()?;
        let single = Single {
            module: launch.module,
            world: launch.world,
            replica: launch.replica,
            function: &launch.module.functions[call.function],
            operation: &call.operation,
            captures: &call.captures,
        };
        let tensors = run_operation(&single, operands)?;
        for (&base, tensor) in results.iter().zip(tensors) {
            self.values[base] = Some(tensor.bytes.aligned());
        }
        Ok(())
    }
}
