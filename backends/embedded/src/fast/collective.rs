//! Collectives of processes that run in lockstep: operations on the values of all of them.

mod combine;

use std::{collections::HashMap, sync::Arc};

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{BinaryOp, ElementType, Module, OpKind, Operation, RankedType};

use self::combine::{combine_all, has_kernel};
use super::{
    graph::{OracleCall, operator},
    lockstep::{Launch, Process},
};
use crate::{
    oracle::{Tensor, combined},
    slice::Slice,
    storage::{Aligned, Storage},
};

/// A collective.
#[derive(Debug)]
pub(super) struct Collective {
    pub(super) call: OracleCall,
    /// The processes of each group, by their numbers. No process is in two groups.
    pub(super) groups: Vec<Vec<usize>>,
}

/// Allocates memory for a result, by its number.
type Take<'t> = dyn FnMut(usize) -> Result<Storage> + 't;

/// The operands of the processes of a group.
struct Group<'g> {
    numbers: &'g [usize],
    /// `operands[member][operand]`.
    operands: Vec<&'g [Tensor]>,
    types: &'g [&'g RankedType],
}

impl Group<'_> {
    /// The results of a member in an `all_to_all`: its part of the operands of each.
    fn exchanged(
        &self,
        member: usize,
        split: usize,
        parts: usize,
        concat: usize,
        take: &mut Take<'_>,
    ) -> Result<Vec<Tensor>> {
        let mut own = Vec::with_capacity(self.types.len());
        for (number, ty) in self.types.iter().enumerate() {
            let of = |all: &&[Tensor]| part(&all[number], split, member, parts);
            let of_all: Vec<_> = self.operands.iter().map(of).collect::<Result<_>>()?;
            let of_all: Vec<_> = of_all.iter().collect();
            own.push(join(&of_all, concat, ty, take(number)?)?);
        }
        Ok(own)
    }

    /// The results of the process `own` in a permutation by `(source, target)`: those of its
    /// source, or zeros. `id` is what the pairs have of a process.
    fn received(
        &self,
        pairs: &[(usize, usize)],
        own: usize,
        id: impl Fn(usize) -> usize,
        take: &mut Take<'_>,
    ) -> Result<Vec<Tensor>> {
        let source = pairs.iter().find(|&&(_, to)| to == own);
        let is_source = |&it: &usize| source.is_some_and(|&(from, _)| from == id(it));
        match self.numbers.iter().position(is_source) {
            Some(member) => Ok(self.operands[member].to_vec()),
            None => zeros(self.types, take),
        }
    }
}

impl Collective {
    /// The results of each process, from its operands.
    ///
    /// # Errors
    /// If a process of a group does not run it, and those of the oracle and of allocations.
    pub(super) fn run(
        &self,
        launch: &Launch<'_>,
        processes: &[Process],
        operands: &[Vec<Tensor>],
        types: &[&RankedType],
        take: &mut Take<'_>,
    ) -> Result<Vec<Vec<Tensor>>> {
        let partitions = launch.module.partitions();
        let numbers = processes.iter().map(|it| it.number(partitions));
        let places: HashMap<usize, usize> = numbers.zip(0..).collect();
        let mut results = vec![Vec::new(); processes.len()];
        for numbers in &self.groups {
            let members = numbers.iter().map(|number| places.get(number).copied());
            // Other replicas may run it on their own.
            if members.clone().all(|member| member.is_none()) {
                continue;
            }
            let members = members.collect::<Option<Vec<usize>>>();
            let members = members.ok_or_else(|| self.absent(numbers, &places))?;
            let group = Group {
                numbers,
                operands: members.iter().map(|&at| &operands[at][..]).collect(),
                types,
            };
            let of_members = self.of_group(launch, &group, take)?;
            for (&at, result) in members.iter().zip(of_members) {
                results[at] = result;
            }
        }
        for result in results.iter_mut().filter(|result| result.is_empty()) {
            *result = zeros(types, take)?;
        }
        Ok(results)
    }

    fn absent(&self, numbers: &[usize], places: &HashMap<usize, usize>) -> Error {
        let absent = numbers.iter().find(|number| !places.contains_key(number));
        let (name, absent) = (
            self.call.operation.kind.to_attributes().0,
            absent.unwrap_or(&0),
        );
        let message = format!(
            "process {absent} ended without its `{name}`, for which processes {numbers:?} wait; \
             every process of a group must run the same collectives"
        );
        Error::invalid("run", message)
    }

    /// The results of each member of a group.
    fn of_group(
        &self,
        launch: &Launch<'_>,
        group: &Group<'_>,
        take: &mut Take<'_>,
    ) -> Result<Vec<Vec<Tensor>>> {
        let count = group.numbers.len();
        match &self.call.operation.kind {
            OpKind::AllReduce(_) => {
                let all = self.combined(launch, group, take)?;
                Ok(vec![all; count])
            }
            OpKind::ReduceScatter { dim, .. } => {
                let all = self.combined(launch, group, take)?;
                let part = |member| all.iter().map(|x| part(x, *dim, member, count)).collect();
                (0..count).map(part).collect()
            }
            OpKind::AllGather { dim, .. } => {
                let joined = |number: usize| {
                    let parts: Vec<_> = group.operands.iter().map(|all| &all[number]).collect();
                    join(&parts, *dim, group.types[number], take(number)?)
                };
                let joined: Vec<_> = (0..group.types.len()).map(joined).collect::<Result<_>>()?;
                Ok(vec![joined; count])
            }
            OpKind::AllToAll {
                split,
                concat,
                parts,
                ..
            } => {
                let of = |member| group.exchanged(member, *split, *parts, *concat, take);
                (0..count).map(of).collect()
            }
            OpKind::CollectiveBroadcast(_) => Ok(vec![group.operands[0].to_vec(); count]),
            OpKind::CollectivePermute { pairs, channel } => {
                let partitions = launch.module.partitions();
                let id = |number: usize| match channel {
                    Some(_) => number % partitions,
                    None => number / partitions,
                };
                (group.numbers.iter())
                    .map(|&number| group.received(pairs, id(number), id, take))
                    .collect()
            }
            kind => {
                let message = format!(
                    "`{}` is not a collective; please report this",
                    kind.to_attributes().0
                );
                Err(Error::new(ErrorKind::Internal, "run", message))
            }
        }
    }

    /// The combinations of the operands of all members.
    fn combined(
        &self,
        launch: &Launch<'_>,
        group: &Group<'_>,
        take: &mut Take<'_>,
    ) -> Result<Vec<Tensor>> {
        if let [only] = group.operands[..] {
            return Ok(only.to_vec());
        }
        let mut results = Vec::with_capacity(group.operands[0].len());
        for (number, first) in group.operands[0].iter().enumerate() {
            let sources = group.operands.iter();
            let sources: Vec<_> =
                (sources.map(|all| all[number].bytes.clone().aligned())).collect();
            let mut out = match &self.call.operation.kind {
                OpKind::AllReduce(_) => take(number)?,
                _ => Storage::Aligned(Aligned::zeros(first.ty.bytes())),
            };
            let element = first.ty.element;
            let is_combined = (self.operator(launch.module, element))
                .is_some_and(|op| combine_all(launch.threads, op, element, &sources, &mut out));
            if !is_combined {
                return self.by_oracle(launch, group);
            }
            let bytes = Arc::new(out);
            results.push(Tensor {
                ty: first.ty.clone(),
                bytes,
            });
        }
        Ok(results)
    }

    fn by_oracle(&self, launch: &Launch<'_>, group: &Group<'_>) -> Result<Vec<Tensor>> {
        let process = Process {
            replica: 0,
            partition: 0,
        };
        let operands = group.operands.iter().map(|all| all.to_vec()).collect();
        let single = self.call.single(launch, process);
        self.call.timed(launch, || combined(&single, operands))
    }

    /// Returns whether it never needs the oracle.
    pub(super) fn has_kernel(&self, module: &Module) -> bool {
        let Operation { kind, operands, .. } = &self.call.operation;
        if !matches!(kind, OpKind::AllReduce(_) | OpKind::ReduceScatter { .. }) {
            return true;
        }
        let function = &module.functions[self.call.function];
        operands.iter().all(|&id| {
            let element = function.ty(id).as_tensor().map(|ty| ty.element);
            element.is_some_and(|element| {
                (self.operator(module, element)).is_some_and(|op| has_kernel(op, element))
            })
        })
    }

    /// The operation by which operands of this element type are combined, if it is one.
    fn operator(&self, module: &Module, element: ElementType) -> Option<BinaryOp> {
        let function = &module.functions[self.call.function];
        let regions = &self.call.operation.regions;
        let argument = regions.first()?.arguments.first()?;
        let is_same = (function.ty(*argument).as_tensor())
            .is_some_and(|argument| argument.element == element);
        operator(function, regions).filter(|_| is_same)
    }
}

fn zeros(types: &[&RankedType], take: &mut Take<'_>) -> Result<Vec<Tensor>> {
    let zero = |(number, ty): (usize, &&RankedType)| {
        let mut bytes = take(number)?;
        bytes.bytes_mut().fill(0);
        Ok(Tensor {
            ty: (*ty).clone(),
            bytes: Arc::new(bytes),
        })
    };
    types.iter().enumerate().map(zero).collect()
}

/// Part `number` of `parts` along `dim`.
fn part(x: &Tensor, dim: usize, number: usize, parts: usize) -> Result<Tensor> {
    let mut ty = x.ty.clone();
    if parts == 0 || !ty.dims[dim].is_multiple_of(parts) {
        let message = format!("dimension {dim} of {ty} has no {parts} equal parts");
        return Err(Error::invalid("run", message));
    }
    ty.dims[dim] /= parts;
    let mut start = vec![0; ty.rank()];
    start[dim] = number * ty.dims[dim];
    let slice = Slice::new(&x.ty.dims, &ty.dims, &start, ty.element.size());
    let bytes = Arc::new(match slice.range() {
        Some(range) => Storage::Part(x.bytes.clone(), range),
        None => {
            let mut copy = Storage::Aligned(Aligned::zeros(ty.bytes()));
            slice.read(&x.bytes, copy.bytes_mut());
            copy
        }
    });
    Ok(Tensor { ty, bytes })
}

/// The tensors, one after another along `dim`.
fn join(parts: &[&Tensor], dim: usize, ty: &RankedType, mut out: Storage) -> Result<Tensor> {
    let mut start = vec![0; ty.rank()];
    for part in parts {
        let slice = Slice::new(&ty.dims, &part.ty.dims, &start, ty.element.size());
        slice.write(&part.bytes, out.bytes_mut());
        start[dim] += part.ty.dims[dim];
    }
    Ok(Tensor {
        ty: ty.clone(),
        bytes: Arc::new(out),
    })
}
