//! Code for one device of a mesh: a region that every device runs on its own parts, with
//! collectives between them.
//!
//! Elsewhere the compiler partitions tensors and places collectives. Here the user decides what one
//! device holds and what devices exchange.

use std::{panic::Location, sync::Arc};

use halite_core::{
    Mesh, MeshShape, PartitionSpec, TensorType, list_axes,
    tree::{Of, Tree, same_structure},
};
use halite_ir::{Axes, Op, ShardMap, Stuck, Varying, varying};

use crate::{
    Tensor, Trace,
    trace::{Region, STRAY},
};

const OP: &str = "shard_map";

/// Axes of a mesh that a [`shard_map`](Trace::shard_map) is written for. Converts from a `&Mesh`
/// with all its axes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manual {
    mesh: Axes,
    axes: Option<Vec<Arc<str>>>,
    checked: bool,
}

impl Manual {
    /// All axes of `mesh`.
    pub fn over(mesh: &MeshShape) -> Self {
        Manual {
            mesh: mesh
                .axes()
                .map(|(name, size)| (name.into(), size))
                .collect(),
            axes: None,
            checked: true,
        }
    }

    /// Only these axes; the compiler partitions over the others.
    pub fn only<N: Into<Arc<str>>>(mut self, axes: impl IntoIterator<Item = N>) -> Self {
        self.axes = Some(axes.into_iter().map(Into::into).collect());
        self
    }

    /// Disables the check that outputs are the same along axes that their specs leave out, for
    /// values where this cannot be inferred, such as sums passed around a ring.
    pub fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }
}

impl From<&MeshShape> for Manual {
    fn from(mesh: &MeshShape) -> Self {
        Manual::over(mesh)
    }
}

impl From<&Mesh> for Manual {
    fn from(mesh: &Mesh) -> Self {
        Manual::over(mesh)
    }
}

impl From<&Arc<Mesh>> for Manual {
    fn from(mesh: &Arc<Mesh>) -> Self {
        Manual::over(mesh)
    }
}

/// Manual axes inside a `shard_map`.
#[derive(Clone, Debug)]
pub(crate) struct ManualAxes {
    pub(crate) axes: Axes,
    /// Number of devices of the mesh, if all its axes are manual.
    pub(crate) devices: Option<usize>,
}

impl Trace {
    /// Runs `body` on each device of the mesh, on that device's shards of `inputs`, and assembles
    /// the shards that it returns.
    ///
    /// `in_specs` are the shardings of the inputs, `out_specs` those of the outputs. Over an axis
    /// that a spec leaves out, every device gets the same input and must compute the same output,
    /// which is checked: reduce or gather over the axis first. Tensors from outside that `body`
    /// uses are replicated.
    ///
    /// For gradients, an output counts as the mean of its copies on all devices and an input as one
    /// tensor for all of them. Random numbers are the same on every device, unless their key
    /// depends on [`axis_index`](Self::axis_index).
    ///
    /// On a mesh of one device it is the same as `body`.
    ///
    /// ```
    /// use halite_core::{DType, DeviceId, Mesh, PartitionSpec, TensorType};
    /// use halite_ir::Reduction;
    /// use halite_nn::Trace;
    ///
    /// let mesh = Mesh::new([("model", 4)], (0..4).map(DeviceId)).unwrap();
    /// let cx = &Trace::new();
    /// let x = cx.input(TensorType::new(DType::F32, [8, 16]), "x");
    /// let w = cx.input(TensorType::new(DType::F32, [16, 2]), "w");
    /// // Each device multiplies its columns of `x` with its rows of `w`; together that is `x @ w`.
    /// let (columns, rows) = (PartitionSpec::new([vec![], vec!["model"]]), PartitionSpec::first("model"));
    /// let y = cx.shard_map(&mesh, &[x, w], &[columns, rows], &[PartitionSpec::replicated()], |parts| {
    ///     assert_eq!(parts[0].dims(), [8, 4]);
    ///     vec![parts[0].matmul(parts[1]).all_reduce(Reduction::Sum, "model")]
    /// });
    /// assert_eq!(y[0].dims(), [8, 2]);
    /// assert!(cx.mistakes().is_empty());
    /// ```
    #[track_caller]
    pub fn shard_map<'t>(
        &'t self,
        over: impl Into<Manual>,
        inputs: &[Tensor<'t>],
        in_specs: &[PartitionSpec],
        out_specs: &[PartitionSpec],
        body: impl FnOnce(&[Tensor<'t>]) -> Vec<Tensor<'t>>,
    ) -> Vec<Tensor<'t>> {
        let location = self.origin(Location::caller());
        self.map_parts(
            over.into(),
            inputs,
            &|input| format!("input {input}"),
            in_specs,
            out_specs,
            location,
            |parts| Ok(body(parts)),
        )
    }

    /// Like [`shard_map`](Self::shard_map), on trees of tensors with trees of specs, such as a model
    /// and a batch.
    #[track_caller]
    pub fn shard_map_tree<'t, I: Tree<Leaf = Tensor<'t>>, O: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        over: impl Into<Manual>,
        inputs: I,
        in_specs: &Of<I, PartitionSpec>,
        out_specs: &Of<O, PartitionSpec>,
        body: impl FnOnce(I) -> O,
    ) -> O {
        let location = self.origin(Location::caller());
        let cloned = |specs: Vec<&PartitionSpec>| specs.into_iter().cloned().collect::<Vec<_>>();
        let wanted = cloned(out_specs.leaves());
        if let Err(error) = same_structure(&inputs, in_specs) {
            let error = self.fail_at(
                location,
                OP,
                format!("the inputs and their specs differ: {error}"),
                None,
            );
            return O::from_tree(out_specs.rebuild(wanted.iter().map(|_| error)));
        }
        let paths = inputs.paths();
        let name = |input: usize| format!("input `{}`", paths[input]);
        let leaves: Vec<Tensor<'t>> = inputs.leaves().into_iter().copied().collect();
        let results = self.map_parts(
            over.into(),
            &leaves,
            &name,
            &cloned(in_specs.leaves()),
            &wanted,
            location,
            |parts| {
                let outputs = body(inputs.with_leaves(parts.iter().copied()));
                match same_structure(out_specs, &outputs) {
                    Ok(()) => Ok(outputs.into_leaves()),
                    Err(error) => Err(self.fail_at(
                        location,
                        OP,
                        format!("the specs of the outputs and the outputs differ: {error}"),
                        None,
                    )),
                }
            },
        );
        O::from_tree(out_specs.rebuild(results))
    }

    /// Records the operation; returns as many results as `out_specs`.
    #[expect(
        clippy::too_many_arguments,
        reason = "both forms of shard_map, taken apart"
    )]
    fn map_parts<'t>(
        &'t self,
        over: Manual,
        inputs: &[Tensor<'t>],
        name: &dyn Fn(usize) -> String,
        in_specs: &[PartitionSpec],
        out_specs: &[PartitionSpec],
        location: &'static Location<'static>,
        body: impl FnOnce(&[Tensor<'t>]) -> Result<Vec<Tensor<'t>>, Tensor<'t>>,
    ) -> Vec<Tensor<'t>> {
        let errors = || out_specs.iter().map(|_| self.error_like(None)).collect();
        let fail = |message: String| {
            self.fail_at(location, OP, message, None);
            errors()
        };
        let Manual {
            mesh,
            axes,
            checked,
        } = over;
        let manual: Vec<Arc<str>> = match &axes {
            // In the order of the mesh.
            Some(axes) => mesh
                .iter()
                .map(|(axis, _)| axis.clone())
                .filter(|axis| axes.contains(axis))
                .collect(),
            None => mesh.iter().map(|(axis, _)| axis.clone()).collect(),
        };
        let mut map = ShardMap {
            mesh,
            manual,
            inputs: in_specs.to_vec(),
            outputs: out_specs.to_vec(),
            body: Box::default(),
        };
        if let Some(axis) = axes
            .into_iter()
            .flatten()
            .find(|axis| !map.manual.contains(axis))
        {
            return fail(format!(
                "no axis `{axis}`; the mesh has {}",
                list_axes(&map.mesh)
            ));
        }
        if self.manual().is_some() {
            return fail(
                "a shard_map within a shard_map; use the collectives of the outer one".to_string(),
            );
        }
        if inputs.len() != in_specs.len() {
            return fail(format!(
                "{} inputs and {} specs of inputs; there must be one for each",
                inputs.len(),
                in_specs.len()
            ));
        }
        if inputs.iter().any(|input| input.is_error()) {
            return errors();
        }
        let mut parts = Vec::with_capacity(inputs.len());
        for (i, (input, spec)) in inputs.iter().zip(in_specs).enumerate() {
            match map.part(&input.ty(), spec) {
                Ok(part) => parts.push(part),
                Err(problem) => {
                    let named = input
                        .name()
                        .map_or(String::new(), |name| format!(" (`{name}`)"));
                    return fail(format!("{}{named}: {problem}", name(i)));
                }
            }
        }

        let (region, outputs) = self.manual_region(&map, &parts, |parts| {
            let outputs = body(parts)?;
            if outputs.len() != out_specs.len() {
                let message = format!(
                    "{} outputs and {} specs of outputs; there must be one for each",
                    outputs.len(),
                    out_specs.len()
                );
                return Err(self.fail_at(location, OP, message, None));
            }
            match outputs.iter().find(|output| !self.can_use(**output)) {
                Some(_) => Err(self.fail_at(location, OP, format!("an output {STRAY}"), None)),
                None => Ok(outputs),
            }
        });
        let Ok(outputs) = outputs else {
            return errors();
        };
        if outputs.iter().any(|output| output.is_error()) {
            return errors();
        }
        let region = region.giving(&outputs);
        let results = self.push_shard_map(&mut map, inputs, region, location);
        if checked && results.iter().all(|result| !result.is_error()) {
            let Varying { outputs, stuck } = varying(&map);
            if let Some(Stuck {
                collective,
                origin,
                inside,
                axis,
            }) = stuck
            {
                let message = format!(
                    "devices along `{axis}` may not all reach this collective: the condition of the `{inside}` around it may differ between \
                     them, and the others would wait forever. Use a condition that is the same along `{axis}`, such as a reduction over it"
                );
                self.fail_at(origin.unwrap_or(location), collective, message, None);
                return errors();
            }
            for (i, (varying, spec)) in outputs.into_iter().zip(out_specs).enumerate() {
                let same = map.axes_not_in(spec);
                if let Some((axis, _)) = same.iter().find(|(axis, _)| varying.contains(axis)) {
                    return fail(format!(
                        "output {i} must be the same along `{axis}`, which {spec} leaves out, but devices compute different \
                         values there: reduce or gather over `{axis}`, or name it in the spec (`Manual::unchecked` if they are the same)"
                    ));
                }
            }
        }
        results
    }

    /// Like [`region`](Self::region), for code of one device.
    pub(crate) fn manual_region<'t, R>(
        &'t self,
        map: &ShardMap,
        types: &[TensorType],
        body: impl FnOnce(&[Tensor<'t>]) -> R,
    ) -> (Region, R) {
        let devices = map.devices().filter(|_| map.is_fully_manual());
        let outer = self.enter_manual(Some(ManualAxes {
            axes: map.manual_axes(),
            devices,
        }));
        let result = self.region(types, body);
        self.enter_manual(outer);
        result
    }

    /// Records `map` with the region as its body. Captured values are replicated.
    pub(crate) fn push_shard_map<'t>(
        &'t self,
        map: &mut ShardMap,
        inputs: &[Tensor<'t>],
        mut region: Region,
        location: &'static Location<'static>,
    ) -> Vec<Tensor<'t>> {
        let captured = self.capture(std::slice::from_mut(&mut region));
        map.inputs
            .extend(captured.iter().map(|_| PartitionSpec::replicated()));
        *map.body = self.region_graph(&region);
        let operands: Vec<Tensor<'t>> = inputs
            .iter()
            .copied()
            .chain(captured.iter().map(|&id| self.tensor(id)))
            .collect();
        if map.outputs.is_empty() {
            return vec![];
        }
        self.push_at(location, Op::ShardMap(map.clone()), &operands)
    }
}
