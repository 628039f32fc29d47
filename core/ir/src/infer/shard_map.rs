//! A function that each device runs on its own parts.

use std::collections::HashSet;

use halite_core::{PartitionSpec, TensorType};
use halite_stablehlo::rules::Check;

use super::{Infer, collective::named, fail};
use crate::{Axes, Graph, Groups, Op, ShardMap};

impl Infer<'_> {
    pub(super) fn shard_map(self, map: &ShardMap) -> Check<Vec<TensorType>> {
        self.axes(&map.mesh)?;
        self.manual_axes(map)?;
        self.one_spec_each("operand", map.inputs.len(), self.operands.len())?;
        self.one_spec_each("result", map.outputs.len(), map.body.outputs().len())?;
        let mut locals = Vec::with_capacity(self.operands.len());
        for (i, (&ty, spec)) in self.operands.iter().zip(&map.inputs).enumerate() {
            locals.push(located(&format!("operand {i}"), map.part(ty, spec))?);
        }
        self.takes("the body", &map.body, &locals.iter().collect::<Vec<_>>())?;
        self.collectives_inside(map, &map.body)?;
        let outputs = map.body.output_types();
        let whole = |(i, (ty, spec)): (usize, (&TensorType, _))| {
            located(&format!("result {i}"), map.whole(ty, spec))
        };
        outputs
            .iter()
            .zip(&map.outputs)
            .enumerate()
            .map(whole)
            .collect()
    }

    fn manual_axes(self, map: &ShardMap) -> Check {
        let known: Vec<_> = map.mesh.iter().map(|(axis, _)| axis).collect();
        if map.manual.is_empty() {
            return fail(format!(
                "no axis of {} is manual; name one or more",
                named(&map.mesh)
            ));
        }
        let mut rest = known.iter();
        for axis in &map.manual {
            if !rest.any(|known| *known == axis) {
                let message = format!(
                    "manual axes {:?} are not axes of {}, in its order",
                    map.manual,
                    named(&map.mesh)
                );
                return fail(message);
            }
        }
        Ok(())
    }

    fn one_spec_each(self, what: &str, specs: usize, values: usize) -> Check {
        match specs == values {
            true => Ok(()),
            false => fail(format!(
                "{specs} specs for {values} {what}s; there must be one for each"
            )),
        }
    }

    /// Checks that collectives and shardings in the body fit the mesh.
    fn collectives_inside(self, map: &ShardMap, body: &Graph) -> Check {
        for (i, node) in body.nodes().iter().enumerate() {
            let wrong = |message: String| {
                fail(format!(
                    "node {i} of the body, {}: {message}",
                    node.op.name()
                ))
            };
            let problem = match &node.op {
                Op::AllReduce { groups, .. }
                | Op::AllGather { groups, .. }
                | Op::ReduceScatter { groups, .. }
                | Op::AllToAll { groups, .. }
                | Op::CollectivePermute { groups, .. } => groups_problem(map, groups),
                Op::AxisIndex(axes) => axes_problem(map, axes),
                Op::ShardMap(_) => Some(
                    "a shard_map within a shard_map; use the collectives of the outer one"
                        .to_string(),
                ),
                Op::ShardingConstraint(spec) => {
                    let manual = spec.all_axes().find(|axis| map.manual.contains(axis));
                    manual.map(|axis| {
                        format!("{spec} names axis `{axis}`, which is manual here; the shard of one device is not split further")
                    })
                }
                _ => None,
            };
            if let Some(problem) = problem {
                return wrong(problem);
            }
            for region in node.op.regions() {
                self.collectives_inside(map, region)?;
            }
        }
        Ok(())
    }
}

fn located<T>(of: &str, outcome: Check<T>) -> Check<T> {
    outcome.map_err(|problem| format!("{of}: {problem}"))
}

impl ShardMap {
    /// Type of a shard of a tensor of type `ty`.
    ///
    /// # Errors
    /// The problem with the spec, or the dimension that does not divide.
    pub fn part(&self, ty: &TensorType, spec: &PartitionSpec) -> Check<TensorType> {
        let mut dims = ty.dims().to_vec();
        for (dim, (size, parts)) in dims.iter_mut().zip(self.parts(ty, spec)?).enumerate() {
            if parts == 0 || !size.is_multiple_of(parts) {
                let mesh = named(&self.mesh);
                return Err(format!(
                    "dimension {dim} of {ty} is split {parts} ways by {spec} over mesh{mesh}, and {size} is not a multiple of {parts}"
                ));
            }
            *size /= parts;
        }
        Ok(ty.with_dims(dims))
    }

    /// Type of the tensor with shards of type `ty`.
    ///
    /// # Errors
    /// The problem with the spec, or the dimension that becomes too large.
    pub fn whole(&self, ty: &TensorType, spec: &PartitionSpec) -> Check<TensorType> {
        let mut dims = ty.dims().to_vec();
        for (dim, (size, parts)) in dims.iter_mut().zip(self.parts(ty, spec)?).enumerate() {
            *size = size.checked_mul(parts).ok_or_else(|| {
                format!(
                    "dimension {dim} of {parts} parts of {size} is larger than any address space"
                )
            })?;
        }
        Ok(ty.with_dims(dims))
    }

    /// In how many parts `spec` splits each dimension of a tensor of this rank.
    fn parts(&self, ty: &TensorType, spec: &PartitionSpec) -> Check<Vec<usize>> {
        if spec.rank() > ty.rank() {
            return Err(format!(
                "{spec} has {} dimensions, {ty} has {}",
                spec.rank(),
                ty.rank()
            ));
        }
        let mut seen = HashSet::new();
        let mut parts = vec![1usize; ty.rank()];
        for (dim, parts) in parts.iter_mut().enumerate() {
            for axis in spec.axes(dim) {
                let Some(size) = self.axis(axis) else {
                    let manual = named(&self.manual_axes());
                    return Err(format!(
                        "{spec} names axis `{axis}`, which is none of the manual axes {manual}"
                    ));
                };
                if !seen.insert(axis) {
                    return Err(format!(
                        "{spec} uses axis `{axis}` twice; an axis can split one dimension"
                    ));
                }
                *parts = parts.checked_mul(size).ok_or_else(|| {
                    format!("{} has more devices than can be counted", named(&self.mesh))
                })?;
            }
        }
        Ok(parts)
    }
}

fn groups_problem(map: &ShardMap, groups: &Groups) -> Option<String> {
    match groups {
        Groups::Axes(axes) => axes_problem(map, axes),
        _ if !map.is_fully_manual() => {
            let manual = named(&map.manual_axes());
            Some(format!(
                "the groups must be axes because only {manual} of {} are manual",
                named(&map.mesh)
            ))
        }
        Groups::Lists(_) | Groups::All => {
            groups.problem(map.devices().expect("counted before the body is looked at"))
        }
    }
}

fn axes_problem(map: &ShardMap, axes: &Axes) -> Option<String> {
    let (axis, size) = axes
        .iter()
        .find(|(axis, size)| map.axis(axis) != Some(*size))?;
    let manual = named(&map.manual_axes());
    Some(match map.axis(axis) {
        Some(other) => {
            format!("axis `{axis}` is declared with {size} devices; the mesh has {other}")
        }
        None => format!("no manual axis `{axis}`; the manual axes are {manual}"),
    })
}
