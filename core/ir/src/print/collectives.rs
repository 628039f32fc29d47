//! Collectives, `shard_map` and sharding constraints.

use halite_core::{DType, Error, PartitionSpec, Result, TensorType, list_axes};

use super::{
    Printer,
    ops::{Cx, Printed},
    writer::Name,
};
use crate::{Axes, Groups, Reduction, ShardMap, legalize::groups_along};

impl Printer<'_> {
    pub(super) fn all_reduce(
        &mut self,
        cx: Cx<'_>,
        kind: Reduction,
        groups: &Groups,
    ) -> Result<u32> {
        let (number, _) = self.collective(cx, "all_reduce", "", groups, true)?;
        self.w.text("}> ({");
        self.combine(Some(kind), &TensorType::scalar(cx.types[0].dtype()));
        self.w.text("}) : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    pub(super) fn all_gather(&mut self, cx: Cx<'_>, dim: usize, groups: &Groups) -> Result<u32> {
        let (number, _) = self.collective(
            cx,
            "all_gather",
            &format!("all_gather_dim = {dim} : i64, "),
            groups,
            true,
        )?;
        self.w.text("}> : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    pub(super) fn reduce_scatter(
        &mut self,
        cx: Cx<'_>,
        kind: Reduction,
        dim: usize,
        groups: &Groups,
    ) -> Result<u32> {
        let (number, _) = self.collective(cx, "reduce_scatter", "", groups, true)?;
        self.w
            .text(", scatter_dimension = ")
            .number(dim)
            .text(" : i64}> ({");
        self.combine(Some(kind), &TensorType::scalar(cx.types[0].dtype()));
        self.w.text("}) : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    pub(super) fn all_to_all(
        &mut self,
        cx: Cx<'_>,
        split: usize,
        concat: usize,
        groups: &Groups,
    ) -> Result<u32> {
        let (number, members) = self.collective(
            cx,
            "all_to_all",
            &format!("concat_dimension = {concat} : i64, "),
            groups,
            false,
        )?;
        self.w.text(", split_count = ").number(members);
        self.w
            .text(" : i64, split_dimension = ")
            .number(split)
            .text(" : i64}> : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    pub(super) fn collective_permute(
        &mut self,
        cx: Cx<'_>,
        pairs: &[(usize, usize)],
        groups: &Groups,
    ) -> Result<u32> {
        let op = cx.node.op.name();
        let mut rows: Vec<[usize; 2]> = Vec::new();
        for group in self.groups(op, groups)? {
            for &(source, target) in pairs {
                let device = |member: usize| {
                    let beyond = || format!("device {member} takes part, {} do", group.len());
                    group
                        .get(member)
                        .copied()
                        .ok_or_else(|| Error::invalid(op, beyond()))
                };
                rows.push([device(source)?, device(target)?]);
            }
        }
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.collective_permute\"(")
            .names(cx.operands)
            .text(") <{");
        self.channel();
        self.w
            .text("source_target_pairs = ")
            .matrix(rows.iter().map(|row| &row[..]), 2)
            .text("}> : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    /// `"stablehlo.op"(%0) <{first, channel_handle = .., replica_groups = ..`. Returns the number,
    /// and how many members a group has.
    fn collective(
        &mut self,
        cx: Cx<'_>,
        op: &str,
        first: &str,
        groups: &Groups,
        global_ids: bool,
    ) -> Result<(u32, usize)> {
        let groups = self.groups(cx.node.op.name(), groups)?;
        let number = self.begin(cx);
        self.w
            .text("\"stablehlo.")
            .text(op)
            .text("\"(")
            .names(cx.operands)
            .text(") <{")
            .text(first);
        let across_partitions = self.channel();
        let members = groups.first().map_or(0, Vec::len);
        self.w
            .text("replica_groups = ")
            .matrix(groups.iter().map(Vec::as_slice), members);
        if across_partitions && global_ids {
            self.w.text(", use_global_device_ids");
        }
        Ok((number, members))
    }

    /// A collective between partitions has a unique channel; one between replicas has none.
    fn channel(&mut self) -> bool {
        if self.manual.is_some() {
            self.channels += 1;
            self.w
                .text("channel_handle = #stablehlo.channel_handle<handle = ")
                .number(self.channels)
                .text(", type = 1>, ");
        }
        self.manual.is_some()
    }

    /// The device groups of replicas, or of positions in the mesh inside a `shard_map`.
    fn groups(&self, op: &'static str, groups: &Groups) -> Result<Vec<Vec<usize>>> {
        let fail = |message: String| Err(Error::invalid(op, message));
        let devices = match (&self.manual, self.mesh) {
            (Some(_), Some(mesh)) => mesh.size(),
            _ if self.partitioned() => {
                return fail(
                    "the program is partitioned over a mesh, where the compiler places collectives; use it in a `shard_map`, \
                     add a sharding constraint, or run replicas"
                        .to_string(),
                );
            }
            _ => self.replicas,
        };
        match (groups, self.mesh) {
            (Groups::All, _) => Ok(vec![(0..devices).collect()]),
            (Groups::Axes(axes), Some(mesh)) if self.manual.is_some() => {
                Ok(groups_along(mesh, axes))
            }
            // Axes of a mesh of one device: each replica by itself.
            (Groups::Axes(axes), _) => match axes.iter().all(|&(_, size)| size == 1) {
                true => Ok((0..devices).map(|replica| vec![replica]).collect()),
                false => fail(
                    "axes of a mesh are known in a `shard_map` only; name replicas by lists"
                        .to_string(),
                ),
            },
            (Groups::Lists(lists), _) => match groups.problem(devices) {
                Some(problem) => fail(problem),
                None => Ok(lists.clone()),
            },
        }
    }

    /// Prints the index along the axes as `s32`; the last axis varies fastest.
    pub(super) fn axis_index(&mut self, cx: Cx<'_>, axes: &Axes) -> Result<Name> {
        let (Some(_), Some(mesh)) = (&self.manual, self.mesh) else {
            return match axes.iter().all(|&(_, size)| size == 1) {
                true => Ok(self.scalar(DType::S32, &[0; 4], cx.node.origin)),
                false => Err(Error::invalid(
                    "axis_index",
                    "axes of a mesh are known in a `shard_map` only",
                )),
            };
        };
        let stride = |axis: &str| {
            mesh.axes()
                .skip_while(|(name, _)| *name != axis)
                .skip(1)
                .map(|(_, size)| size)
                .product::<usize>()
        };
        let strides: Vec<(usize, usize)> = axes
            .iter()
            .map(|(axis, size)| (stride(axis), *size))
            .collect();
        let ty = TensorType::scalar(DType::S32);
        let unsigned = TensorType::scalar(DType::U32);
        let id = self.begin_single();
        self.w.text("stablehlo.partition_id : ").ty(&unsigned);
        self.end(cx);
        let signed = self.begin_single();
        self.w.text("stablehlo.convert ").name(id);
        self.w.text(" : (").ty(&unsigned).text(") -> ").ty(&ty);
        self.end(cx);
        let mut index: Option<Name> = None;
        for (stride, size) in strides {
            let place = self.with_scalar(cx, "divide", signed, stride);
            let place = self.with_scalar(cx, "remainder", place, size);
            index = Some(match index {
                None => place,
                Some(slower) => {
                    let slower = self.with_scalar(cx, "multiply", slower, size);
                    self.binary(cx, "add", slower, place)
                }
            });
        }
        Ok(index.expect("infer refuses no axes"))
    }

    fn with_scalar(&mut self, cx: Cx<'_>, op: &str, x: Name, value: usize) -> Name {
        let value = self.scalar(DType::S32, &(value as i32).to_ne_bytes(), cx.node.origin);
        self.binary(cx, op, x, value)
    }

    fn binary(&mut self, cx: Cx<'_>, op: &str, x: Name, y: Name) -> Name {
        let result = self.elementwise(op, x, y, "i32");
        self.end(cx);
        result
    }

    /// Prints a `shard_map`; on one device, its body alone.
    pub(super) fn shard_map(&mut self, cx: Cx<'_>, map: &ShardMap) -> Result<Printed> {
        if !self.fits_mesh(map) {
            let program = self
                .mesh
                .map_or("one device".to_string(), |mesh| format!("{mesh:#}"));
            let mesh = list_axes(&map.mesh);
            let message = format!("it is over mesh({mesh}), the program is for {program}");
            return Err(Error::invalid("shard_map", message));
        }
        if self.partitioned() {
            self.manual_computation(cx, map).map(Printed::Group)
        } else {
            let outputs = self.nodes(&map.body, cx.operands);
            outputs.map(Printed::Each)
        }
    }

    /// Whether the program's mesh is that of `map`. On one device, the axes' names do not matter.
    fn fits_mesh(&self, map: &ShardMap) -> bool {
        match self.partitioned_mesh() {
            Some(mesh) => {
                let axes = map.mesh.iter().map(|(axis, size)| (&**axis, *size));
                mesh.axes().eq(axes)
            }
            None => map.devices() == Some(1),
        }
    }

    fn manual_computation(&mut self, cx: Cx<'_>, map: &ShardMap) -> Result<u32> {
        let open = !map.is_fully_manual();
        let locals: Vec<Name> = cx
            .operands
            .iter()
            .map(|_| Name::Region(self.w.fresh()))
            .collect();
        let parameters: Vec<(Name, &TensorType)> = locals
            .iter()
            .zip(map.body.inputs())
            .map(|(&local, &input)| (local, map.body.ty(input)))
            .collect();
        let number = self.begin(cx);
        self.w.text("sdy.manual_computation(").names(cx.operands);
        self.w.text(") in_shardings=[");
        for (i, (spec, ty)) in map.inputs.iter().zip(cx.types).enumerate() {
            self.w.comma(i).partial_sharding(spec, ty.rank(), open);
        }
        self.w.text("] out_shardings=[");
        for (i, spec) in map.outputs.iter().enumerate() {
            let rank = cx.result(i).rank();
            self.w.comma(i).partial_sharding(spec, rank, open);
        }
        self.w.text("] manual_axes={");
        for (i, axis) in map.manual.iter().enumerate() {
            self.w.comma(i).string(axis);
        }
        self.w.text("} (").parameters(&parameters).text(") {");
        self.w.indent();
        self.manual = Some((map.manual.clone(), !open));
        let outputs = self.nodes(&map.body, &locals);
        self.manual = None;
        self.terminator("sdy.return", &map.body, map.body.outputs(), &outputs?);
        self.w.outdent();
        self.w.line().text("} : ");
        self.function_type(cx);
        self.end(cx);
        Ok(number)
    }

    pub(super) fn sharding_constraint(&mut self, cx: Cx<'_>, spec: &PartitionSpec) -> Printed {
        let Some(mesh) = self.constrained_mesh() else {
            return Printed::Same(cx.operands[0]);
        };
        // The constraints of a model apply to any mesh: an axis that this one lacks counts as one
        // of size 1.
        let spec = spec.within(mesh);
        // A dimension that does not divide evenly is not sharded.
        let ty = cx.types[0];
        let axes_of = |dim: usize| {
            let parts: usize = spec
                .axes(dim)
                .iter()
                .filter_map(|axis| mesh.axis(axis))
                .product();
            if ty.dims()[dim].is_multiple_of(parts) {
                spec.axes(dim).to_vec()
            } else {
                Vec::new()
            }
        };
        let spec = PartitionSpec::new((0..ty.rank().min(spec.rank())).map(axes_of));
        let number = self.begin(cx);
        self.w
            .text("sdy.sharding_constraint ")
            .names(cx.operands)
            .text(" ")
            .sharding(&spec, cx.types[0].rank());
        self.w.text(" : ").ty(cx.types[0]);
        self.end(cx);
        Printed::Group(number)
    }

    pub(super) fn unsharded(&mut self, cx: Cx<'_>, dims: &[usize]) -> Printed {
        if self.constrained_mesh().is_none() {
            return Printed::Same(cx.operands[0]);
        }
        let number = self.begin(cx);
        self.w
            .text("sdy.sharding_constraint ")
            .names(cx.operands)
            .text(" <@mesh, [");
        for dim in 0..cx.types[0].rank() {
            let axes = if dims.contains(&dim) { "{}" } else { "{?}" };
            self.w.comma(dim).text(axes);
        }
        self.w.text("]> : ").ty(cx.types[0]);
        self.end(cx);
        Printed::Group(number)
    }

    pub(super) fn propagation_barrier(&mut self, cx: Cx<'_>) -> Printed {
        if self.constrained_mesh().is_none() {
            return Printed::Same(cx.operands[0]);
        }
        let number = self.begin(cx);
        self.w
            .text("sdy.propagation_barrier ")
            .names(cx.operands)
            .text(" allowed_direction=FORWARD : ")
            .ty(cx.types[0]);
        self.end(cx);
        Printed::Group(number)
    }
}
