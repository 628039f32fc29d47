//! Code for one device of a mesh: a region that every device runs on its own parts, with
//! collectives between them.
//!
//! Elsewhere the compiler partitions tensors and places collectives. Here the user decides what one
//! device holds and what devices exchange.

use std::{cell::RefCell, panic::Location, sync::Arc};

use halite_core::{
    Mesh, MeshShape, PartitionSpec, TensorType, list_axes,
    tree::{Of, Tree, same_structure},
};
use halite_ir::{Axes, Op, ShardMap, Stuck, Varying, varying};

use crate::{
    Tensor, Trace,
    trace::{Region, STRAY, capture},
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

/// The manual axes of a trace, while the body of a `shard_map` is traced.
#[derive(Default)]
struct Entered(RefCell<Option<ManualAxes>>);

/// Manual axes of the mesh, in the body of a `shard_map`.
pub(crate) fn manual_axes(cx: &Trace) -> Option<ManualAxes> {
    cx.state::<Entered>().0.borrow().clone()
}

/// Sets the manual axes and returns the previous ones.
pub(crate) fn enter_manual(cx: &Trace, manual: Option<ManualAxes>) -> Option<ManualAxes> {
    cx.state::<Entered>().0.replace(manual)
}

/// Arguments of a `shard_map`, and the checks of them.
struct Call<'a, 't> {
    over: Manual,
    inputs: &'a [Tensor<'t>],
    /// Name of an input in messages.
    name: &'a dyn Fn(usize) -> String,
    in_specs: &'a [PartitionSpec],
    out_specs: &'a [PartitionSpec],
    location: &'static Location<'static>,
}

impl<'t> Call<'_, 't> {
    fn fail<T>(&self, cx: &'t Trace, message: String) -> Result<T, Tensor<'t>> {
        Err(cx.fail_at(self.location, OP, message, None))
    }

    /// The operation with an empty body.
    fn without_body(&self, cx: &'t Trace) -> Result<ShardMap, Tensor<'t>> {
        let mesh = self.over.mesh.iter().map(|(axis, _)| axis.clone());
        let manual: Vec<Arc<str>> = match &self.over.axes {
            // In the order of the mesh.
            Some(axes) => mesh.filter(|axis| axes.contains(axis)).collect(),
            None => mesh.collect(),
        };
        let mut requested = self.over.axes.iter().flatten();
        if let Some(axis) = requested.find(|axis| !manual.contains(axis)) {
            let axes = list_axes(&self.over.mesh);
            return self.fail(cx, format!("no axis `{axis}`; the mesh has {axes}"));
        }
        if manual_axes(cx).is_some() {
            let message = "a shard_map within a shard_map; use the collectives of the outer one";
            return self.fail(cx, message.to_string());
        }
        Ok(ShardMap {
            mesh: self.over.mesh.clone(),
            manual,
            inputs: self.in_specs.to_vec(),
            outputs: self.out_specs.to_vec(),
            body: Box::default(),
        })
    }

    /// Types of one device's shards of the inputs.
    fn input_parts(&self, cx: &'t Trace, map: &ShardMap) -> Result<Vec<TensorType>, Tensor<'t>> {
        if self.inputs.len() != self.in_specs.len() {
            let (inputs, specs) = (self.inputs.len(), self.in_specs.len());
            let message =
                format!("{inputs} inputs and {specs} specs of inputs; there must be one for each");
            return self.fail(cx, message);
        }
        if let Some(error) = self.inputs.iter().find(|input| input.is_error()) {
            return Err(*error);
        }
        let mut parts = Vec::with_capacity(self.inputs.len());
        for (i, (input, spec)) in self.inputs.iter().zip(self.in_specs).enumerate() {
            match map.part(&input.ty(), spec) {
                Ok(part) => parts.push(part),
                Err(problem) => {
                    let named = input
                        .name()
                        .map_or(String::new(), |name| format!(" (`{name}`)"));
                    return self.fail(cx, format!("{}{named}: {problem}", (self.name)(i)));
                }
            }
        }
        Ok(parts)
    }

    /// Checks that the body's outputs match their specs in number, and belong to the body.
    fn check_outputs(
        &self,
        cx: &'t Trace,
        outputs: Vec<Tensor<'t>>,
    ) -> Result<Vec<Tensor<'t>>, Tensor<'t>> {
        if outputs.len() != self.out_specs.len() {
            let message = format!(
                "{} outputs and {} specs of outputs; there must be one for each",
                outputs.len(),
                self.out_specs.len()
            );
            return self.fail(cx, message);
        }
        if outputs.iter().all(|output| cx.can_use(*output)) {
            Ok(outputs)
        } else {
            self.fail(cx, format!("an output {STRAY}"))
        }
    }

    /// Checks that outputs are the same along axes that their specs leave out, and that all members
    /// of each collective reach it.
    fn check_variance(&self, cx: &'t Trace, map: &ShardMap) -> Result<(), Tensor<'t>> {
        let Varying { outputs, stuck } = varying(map);
        if let Some(Stuck {
            collective,
            origin,
            inside,
            axis,
        }) = stuck
        {
            let message = format!(
                "devices along `{axis}` may not all reach this collective: the condition of the \
                 `{inside}` around it may differ between them, and the others would wait forever. \
                 Use a condition that is the same along `{axis}`, such as a reduction over it"
            );
            return Err(cx.fail_at(origin.unwrap_or(self.location), collective, message, None));
        }
        for (i, (varying, spec)) in outputs.into_iter().zip(self.out_specs).enumerate() {
            let same = map.axes_not_in(spec);
            if let Some((axis, _)) = same.iter().find(|(axis, _)| varying.contains(axis)) {
                let message = format!(
                    "output {i} must be the same along `{axis}`, which {spec} leaves out, but \
                     devices compute different values there: reduce or gather over `{axis}`, or \
                     name it in the spec (`Manual::unchecked` if they are the same)"
                );
                return self.fail(cx, message);
            }
        }
        Ok(())
    }
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
        let call = Call {
            over: over.into(),
            inputs,
            name: &|input| format!("input {input}"),
            in_specs,
            out_specs,
            location,
        };
        map_parts(self, call, |parts| Ok(body(parts)))
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
        let leaves: Vec<Tensor<'t>> = inputs.leaves().into_iter().copied().collect();
        let call = Call {
            over: over.into(),
            inputs: &leaves,
            name: &|input| format!("input `{}`", paths[input]),
            in_specs: &cloned(in_specs.leaves()),
            out_specs: &wanted,
            location,
        };
        let results = map_parts(self, call, |parts| {
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
        });
        O::from_tree(out_specs.rebuild(results))
    }
}

/// Records the operation; returns as many results as `out_specs`.
fn map_parts<'t>(
    cx: &'t Trace,
    call: Call<'_, 't>,
    body: impl FnOnce(&[Tensor<'t>]) -> Result<Vec<Tensor<'t>>, Tensor<'t>>,
) -> Vec<Tensor<'t>> {
    match try_map_parts(cx, &call, body) {
        Ok(results) => results,
        Err(_) => (call.out_specs.iter())
            .map(|_| cx.error_like(None))
            .collect(),
    }
}

fn try_map_parts<'t>(
    cx: &'t Trace,
    call: &Call<'_, 't>,
    body: impl FnOnce(&[Tensor<'t>]) -> Result<Vec<Tensor<'t>>, Tensor<'t>>,
) -> Result<Vec<Tensor<'t>>, Tensor<'t>> {
    let mut map = call.without_body(cx)?;
    let parts = call.input_parts(cx, &map)?;
    let (region, outputs) = manual_region(cx, &map, &parts, |parts| {
        call.check_outputs(cx, body(parts)?)
    });
    let outputs = outputs?;
    if let Some(error) = outputs.iter().find(|output| output.is_error()) {
        return Err(*error);
    }
    let region = region.giving(&outputs);
    let results = push_shard_map(cx, &mut map, call.inputs, region, call.location);
    if call.over.checked && results.iter().all(|result| !result.is_error()) {
        call.check_variance(cx, &map)?;
    }
    Ok(results)
}

/// Like [`region`](Trace::region), for code of one device.
pub(crate) fn manual_region<'t, R>(
    cx: &'t Trace,
    map: &ShardMap,
    types: &[TensorType],
    body: impl FnOnce(&[Tensor<'t>]) -> R,
) -> (Region, R) {
    let devices = map.devices().filter(|_| map.is_fully_manual());
    let outer = enter_manual(
        cx,
        Some(ManualAxes {
            axes: map.manual_axes(),
            devices,
        }),
    );
    let result = cx.region(types, body);
    enter_manual(cx, outer);
    result
}

/// Records `map` with the region as its body. Captured values are replicated.
pub(crate) fn push_shard_map<'t>(
    cx: &'t Trace,
    map: &mut ShardMap,
    inputs: &[Tensor<'t>],
    mut region: Region,
    location: &'static Location<'static>,
) -> Vec<Tensor<'t>> {
    let captured = capture(cx, std::slice::from_mut(&mut region));
    map.inputs
        .extend(captured.iter().map(|_| PartitionSpec::replicated()));
    *map.body = region.graph(cx);
    let operands: Vec<Tensor<'t>> = inputs
        .iter()
        .copied()
        .chain(captured.iter().map(|&id| cx.tensor(id)))
        .collect();
    if map.outputs.is_empty() {
        return vec![];
    }
    let _site = cx.called_from(location);
    cx.push(Op::ShardMap(map.clone()), &operands)
}
