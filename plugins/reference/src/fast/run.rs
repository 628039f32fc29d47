//! Launches of a plan.

use std::sync::{Arc, PoisonError};

use halite_core::{Error, ErrorKind, Result};
use halite_kernels::{Operand, Source, Target, Threads, multiply_all, reduce};
use halite_stablehlo::{ElementType, Module};

use super::{
    contract::Product,
    elementwise::is_word,
    graph::{Loop, OracleCall},
    group::Group,
    place::Base,
    plan::{Plan, Unit},
    rows,
    slice::Slice,
    values::Values,
};
use crate::{
    oracle::{Single, Tensor, World, collect, run_operation},
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

fn operand_count(count: usize) -> Error {
    Error::new(
        ErrorKind::Internal,
        "run",
        format!("an update of a slice has {count} operands"),
    )
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
            Unit::Concatenate { bytes, parts, out } => {
                let mut result = self.take(*out)?;
                self.concatenate(bytes, parts, result.bytes_mut())?;
                self.set(*out, result);
                Ok(())
            }
            Unit::Loop {
                regions,
                operands,
                results,
            } => self.run_loop(regions, operands, results, launch),
            Unit::DynamicSlice {
                operands,
                out,
                is_part,
            } => {
                let (x, starts) = (operands[0], &operands[1..]);
                let slice = self.slice(x, &self.plan.types[*out].dims, starts)?;
                if let Some(range) = slice.range().filter(|_| *is_part) {
                    let part = Storage::Part(self.get(x)?.clone(), range);
                    self.set(*out, part);
                    return Ok(());
                }
                let mut result = self.take(*out)?;
                slice.read(self.get(x)?, result.bytes_mut());
                self.set(*out, result);
                Ok(())
            }
            Unit::DynamicUpdate {
                dims,
                operands,
                out,
            } => {
                let &[x, update, ref starts @ ..] = &operands[..] else {
                    return Err(operand_count(operands.len()));
                };
                let slice = self.slice(x, dims, starts)?;
                let is_shared = operands[1..].contains(&x);
                let mut result = if is_shared {
                    self.copy(x)?
                } else {
                    self.owned(x)?
                };
                slice.write(self.get(update)?, result.bytes_mut());
                self.set(*out, result);
                Ok(())
            }
            &Unit::GatherRows { x, indices, out } => {
                let mut result = self.take(out)?;
                let row = self.row_length(x) * self.plan.types[x].element.size();
                rows::gather(
                    self.get(x)?,
                    row,
                    &self.integers(indices)?,
                    result.bytes_mut(),
                );
                self.set(out, result);
                Ok(())
            }
            &Unit::ScatterRows {
                x,
                indices,
                updates,
                out,
            } => {
                let mut result = if x == updates {
                    self.copy(x)?
                } else {
                    self.owned(x)?
                };
                let floats = bytemuck::cast_slice_mut(result.bytes_mut());
                let row = self.row_length(x);
                let updates = self.elements(updates)?;
                rows::scatter_add(floats, row, &self.integers(indices)?, updates);
                self.set(out, result);
                Ok(())
            }
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

    fn concatenate(&self, bytes: &[usize], parts: &[Base], mut out: &mut [u8]) -> Result<()> {
        let row: usize = bytes.iter().sum();
        let parts: Vec<&Arc<Storage>> = parts
            .iter()
            .map(|&part| self.get(part))
            .collect::<Result<_>>()?;
        for number in 0..out.len().checked_div(row).unwrap_or(0) {
            for (part, &length) in parts.iter().zip(bytes) {
                let (target, rest) = out.split_at_mut(length);
                target.copy_from_slice(&part[number * length..][..length]);
                out = rest;
            }
        }
        Ok(())
    }

    /// A part of `x` with these dimensions, at a start that is moved to be inside.
    fn slice(&self, x: Base, dims: &[usize], starts: &[Base]) -> Result<Slice> {
        let x = &self.plan.types[x];
        let mut first = Vec::with_capacity(starts.len());
        for (dim, &start) in starts.iter().enumerate() {
            let bits = self
                .get(start)?
                .iter()
                .rev()
                .fold(0u64, |all, &byte| all << 8 | u64::from(byte));
            let start = match self.plan.types[start].element {
                ElementType::S8 => i64::from(bits as i8),
                ElementType::S32 => i64::from(bits as i32),
                _ => i64::try_from(bits).unwrap_or(i64::MAX),
            };
            let most = x.dims[dim].saturating_sub(dims[dim]);
            first.push(usize::try_from(start).unwrap_or(0).min(most));
        }
        Ok(Slice::new(&x.dims, dims, &first, x.element.size()))
    }

    /// Number of elements of a row.
    fn row_length(&self, base: Base) -> usize {
        self.plan.types[base].dims.iter().skip(1).product()
    }

    /// The elements of a value, integers of 32 bits.
    fn integers(&self, base: Base) -> Result<Vec<i64>> {
        let is_signed = self.plan.types[base].element == ElementType::S32;
        let integer = |&word: &u32| {
            if is_signed {
                i64::from(word as i32)
            } else {
                word.into()
            }
        };
        let words: &[u32] = self.elements(base)?;
        collect(words.len(), words.iter().map(integer))
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
