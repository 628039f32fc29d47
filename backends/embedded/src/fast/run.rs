//! The units that a process runs by itself.

use bytemuck::{Pod, cast_slice_mut};
use half::bf16;
use halite_core::{Error, ErrorKind, Result};
use halite_kernels::{
    Number, Operand, Source, Target, Threads, multiply_all, multiply_plain, reduce,
};
use halite_stablehlo::ElementType;

use super::{
    contract::Product,
    direct::Call,
    elementwise::format,
    graph::{Numbered, OracleCall},
    group::Group,
    lockstep::{Launch, Process},
    place::Base,
    plan::Unit,
    values::Values,
};
use crate::{
    oracle::{Tensor, run_operation},
    storage::Storage,
};

impl Values<'_> {
    pub(super) fn step(
        &mut self,
        unit: &Unit,
        launch: &Launch<'_>,
        process: Process,
    ) -> Result<()> {
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
                let memory = result.bytes_mut();
                if self.plan.types[*x].element.size() == size_of::<u64>() {
                    let x: &[u64] = self.elements(*x)?;
                    reduce(threads, *sizes, *initial, x, cast_slice_mut(memory));
                } else {
                    let x: &[u32] = self.elements(*x)?;
                    reduce(threads, *sizes, *initial as u32, x, cast_slice_mut(memory));
                }
                self.set(*out, result);
                Ok(())
            }
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
            } => self.oracle(call, operands, results, launch, process),
            &Unit::Number { of, out } => {
                let number = match of {
                    Numbered::Replica => process.replica,
                    Numbered::Partition => process.partition,
                };
                let mut result = self.take(out)?;
                (result.bytes_mut()).copy_from_slice(&(number as u32).to_le_bytes());
                self.set(out, result);
                Ok(())
            }
            Unit::Loop { .. }
            | Unit::Branch { .. }
            | Unit::Manual { .. }
            | Unit::Collective { .. } => {
                let message = "a unit of all processes runs for one of them; please report this";
                Err(Error::new(ErrorKind::Internal, "run", message))
            }
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
        let format_of = |base: Base| {
            format(self.plan.types[base].element).expect("values of groups have registers")
        };
        let source = |(&base, in_place): (&Base, &Option<usize>)| {
            let format = format_of(base);
            Ok(match *in_place {
                Some(target) => Source::InPlace(format, target),
                None => Source::Memory(format, self.get(base)?),
            })
        };
        let sources = group.sources.iter().zip(&in_place).map(source);
        let sources: Vec<_> = sources.collect::<Result<_>>()?;
        let slices = targets.iter_mut().zip(&group.targets);
        let slices = slices.map(|(storage, &base)| Target {
            format: format_of(base),
            bytes: storage.bytes_mut(),
        });
        group.program.run(threads, &sources, slices.collect());
        for (&base, storage) in group.targets.iter().zip(targets) {
            self.set(base, storage);
        }
        Ok(())
    }

    pub(super) fn product(
        &self,
        product: &Product,
        left: Base,
        right: Base,
        result: &mut Storage,
        threads: &Threads,
    ) -> Result<()> {
        let out = result.bytes_mut();
        match self.plan.types[left].element {
            ElementType::F32 => {
                let (a, out) = (self.left(product, left)?, cast_slice_mut(out));
                let batches = &product.batches;
                match self.plan.types[right].element {
                    ElementType::Bf16 => {
                        let b = self.right::<bf16>(product, right)?;
                        multiply_all(threads, a, b, batches, out);
                    }
                    _ => {
                        let b = self.right::<f32>(product, right)?;
                        multiply_all(threads, a, b, batches, out);
                    }
                }
            }
            ElementType::F64 => self.plain_product::<f64>(product, left, right, out, threads)?,
            element if element.size() == size_of::<u64>() => {
                self.plain_product::<u64>(product, left, right, out, threads)?;
            }
            _ => self.plain_product::<u32>(product, left, right, out, threads)?,
        }
        Ok(())
    }

    fn plain_product<T: Number>(
        &self,
        product: &Product,
        left: Base,
        right: Base,
        out: &mut [u8],
        threads: &Threads,
    ) -> Result<()> {
        let operands = [self.left::<T>(product, left)?, self.right(product, right)?];
        multiply_plain(threads, operands, &product.batches, cast_slice_mut(out));
        Ok(())
    }

    fn left<'a, T: Pod>(&'a self, product: &'a Product, base: Base) -> Result<Operand<'a, T>> {
        Ok(Operand {
            data: self.elements(base)?,
            offset: 0,
            rows: &product.rows,
            columns: &product.left_terms,
        })
    }

    fn right<'a, T: Pod>(&'a self, product: &'a Product, base: Base) -> Result<Operand<'a, T>> {
        Ok(Operand {
            data: self.elements(base)?,
            offset: 0,
            rows: &product.right_terms,
            columns: &product.columns,
        })
    }

    fn oracle(
        &mut self,
        call: &OracleCall,
        operands: &[Base],
        results: &[Base],
        launch: &Launch<'_>,
        process: Process,
    ) -> Result<()> {
        let operands = operands.iter().map(|&base| self.tensor(base));
        let operands: Vec<Tensor> = operands.collect::<Result<_>>()?;
        let single = call.single(launch, process);
        let tensors = call.timed(launch, || run_operation(&single, operands))?;
        for (&base, tensor) in results.iter().zip(tensors) {
            self.values[base] = Some(tensor.bytes.aligned());
        }
        Ok(())
    }
}
