//! Collectives and the places of devices.

use std::collections::BTreeMap;

use halite_core::{Error, MeshShape, Result};
use halite_stablehlo::{BinaryOp, CollectiveAttributes, ElementType, OpKind, ValueId};

use super::{Builder, Cx, scalar};
use crate::{Axes, Groups};

impl Builder<'_> {
    /// The devices of a collective.
    pub(super) fn collective(
        &mut self,
        cx: Cx<'_>,
        groups: &Groups,
    ) -> Result<CollectiveAttributes> {
        let groups = self.groups(cx.node.op.name(), groups)?;
        let channel = self.channel();
        Ok(CollectiveAttributes {
            groups,
            channel,
            global_ids: channel.is_some(),
        })
    }

    pub(super) fn all_to_all(
        &mut self,
        cx: Cx<'_>,
        split: usize,
        concat: usize,
        groups: &Groups,
    ) -> Result<OpKind> {
        let collective = CollectiveAttributes {
            global_ids: false,
            ..self.collective(cx, groups)?
        };
        Ok(OpKind::AllToAll {
            split,
            concat,
            parts: collective.groups.first().map_or(0, Vec::len),
            collective,
        })
    }

    pub(super) fn collective_permute(
        &mut self,
        cx: Cx<'_>,
        pairs: &[(usize, usize)],
        groups: &Groups,
    ) -> Result<OpKind> {
        let op = cx.node.op.name();
        let mut messages = Vec::new();
        for group in self.groups(op, groups)? {
            let device = |member: usize| {
                let beyond = || format!("device {member} takes part, {} do", group.len());
                let device = group.get(member).copied();
                device.ok_or_else(|| Error::invalid(op, beyond()))
            };
            for &(source, target) in pairs {
                messages.push((device(source)?, device(target)?));
            }
        }
        Ok(OpKind::CollectivePermute {
            pairs: messages,
            channel: self.channel(),
        })
    }

    /// A collective between partitions has a unique channel; one between replicas has none.
    fn channel(&mut self) -> Option<i64> {
        self.manual?;
        self.channels += 1;
        Some(self.channels)
    }

    /// The device groups of replicas, or of positions in the mesh inside a `shard_map`.
    fn groups(&self, op: &'static str, groups: &Groups) -> Result<Vec<Vec<usize>>> {
        let fail = |message: &str| Err(Error::invalid(op, message));
        let mesh = self.interface.mesh.as_ref();
        let devices = match (self.manual, mesh) {
            (Some(_), Some(mesh)) => mesh.size(),
            _ if self.partitioned_mesh().is_some() => {
                return fail(
                    "the program is partitioned over a mesh, where the compiler places collectives; use it in a `shard_map`, \
                     add a sharding constraint, or run replicas",
                );
            }
            _ => self.interface.replicas,
        };
        match (groups, mesh) {
            (Groups::All, _) => Ok(vec![(0..devices).collect()]),
            (Groups::Axes(axes), Some(mesh)) if self.manual.is_some() => {
                Ok(groups_along(mesh, axes))
            }
            // Axes of a mesh of one device: each replica by itself.
            (Groups::Axes(axes), _) => match axes.iter().all(|&(_, size)| size == 1) {
                true => Ok((0..devices).map(|replica| vec![replica]).collect()),
                false => {
                    fail("axes of a mesh are known in a `shard_map` only; name replicas by lists")
                }
            },
            (Groups::Lists(lists), _) => match groups.problem(devices) {
                Some(problem) => fail(&problem),
                None => Ok(lists.clone()),
            },
        }
    }

    /// The index along the axes as `s32`; the last axis varies fastest.
    pub(super) fn axis_index(&mut self, axes: &Axes) -> Result<ValueId> {
        let (Some(_), Some(mesh)) = (self.manual, &self.interface.mesh) else {
            return match axes.iter().all(|&(_, size)| size == 1) {
                true => Ok(self.count(0)),
                false => Err(Error::invalid(
                    "axis_index",
                    "axes of a mesh are known in a `shard_map` only",
                )),
            };
        };
        let id = self.one(OpKind::PartitionId, &[], scalar(ElementType::U32));
        let id = self.convert(id, ElementType::S32);
        let mut index: Option<ValueId> = None;
        for (axis, size) in axes {
            let faster = mesh.axes().rev().take_while(|(name, _)| *name != &**axis);
            let stride = faster.map(|(_, size)| size).product();
            let place = self.with_count(BinaryOp::Divide, id, stride);
            let place = self.with_count(BinaryOp::Remainder, place, *size);
            index = Some(match index {
                None => place,
                Some(slower) => {
                    let slower = self.with_count(BinaryOp::Multiply, slower, *size);
                    self.on_indices(BinaryOp::Add, slower, place)
                }
            });
        }
        Ok(index.expect("infer refuses no axes"))
    }

    fn with_count(&mut self, op: BinaryOp, x: ValueId, count: usize) -> ValueId {
        let count = self.count(count);
        self.on_indices(op, x, count)
    }

    fn on_indices(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
        self.one(OpKind::Binary(op), &[x, y], scalar(ElementType::S32))
    }
}

/// Groups of mesh positions that differ along `axes` alone; the last axis varies fastest.
pub(crate) fn groups_along(mesh: &MeshShape, axes: &Axes) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<Vec<usize>, Vec<(usize, usize)>> = BTreeMap::new();
    for place in 0..mesh.size() {
        let others = mesh
            .axes()
            .filter(|(name, _)| axes.iter().all(|(axis, _)| &**axis != *name));
        let group = others
            .map(|(name, _)| mesh.coordinate(place, name))
            .collect();
        let member = axes.iter().fold(0, |member, (axis, size)| {
            member * size + mesh.coordinate(place, axis)
        });
        groups.entry(group).or_default().push((member, place));
    }
    let ordered = |mut group: Vec<(usize, usize)>| {
        group.sort_unstable();
        group.into_iter().map(|(_, place)| place).collect()
    };
    groups.into_values().map(ordered).collect()
}
