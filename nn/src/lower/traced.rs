//! Tracing of a function, and its graph. What is generic over the trees is short: it is compiled for
//! each family.

use halite_core::{
    Error, HostArray, MeshShape, Result,
    tree::{Family, Path, Tree, TreeError},
};
use halite_ir::Graph;

use super::{Function, Settings, ShardedType};
use crate::{Mistake, Processes, Tensor, Trace, context, hyperparameter};

/// A traced function, before its graph is optimized.
pub(super) struct TracedFunction {
    pub(super) graph: Graph,
    /// State, inputs and hyperparameters, by name.
    pub(super) inputs: Vec<NamedType>,
    /// Number of leaves of the state, the first of `inputs`.
    pub(super) states: usize,
    /// Number of leaves of the function's inputs, which follow; stacked if it is scanned.
    pub(super) scanned: usize,
    /// Next state and outputs.
    pub(super) outputs: Vec<NamedType>,
    pub(super) hyperparameters: Vec<(ShardedType, HostArray)>,
    pub(super) processes: Option<Processes>,
    pub(super) warnings: Vec<Mistake>,
}

/// Name of an input, if it has one, and its type.
pub(super) type NamedType = (Option<String>, ShardedType);

/// Traces a function. Returns the tree of its outputs, too.
pub(super) fn trace<S: Family, I: Family, O: Family>(
    function: &Function<S, I, O>,
    state: &S::Of<ShardedType>,
    inputs: &I::Of<ShardedType>,
    mesh: &MeshShape,
) -> Result<(TracedFunction, O::Of<()>)> {
    let cx = Trace::new();
    let mut arguments = TracedArguments::new(&cx);
    let traced_state = Tree::leaf_refs(state).map_leaves(|path, ty| arguments.add(path, ty));
    let states = arguments.tensors.len();
    let traced_inputs = Tree::leaf_refs(inputs).map_leaves(|path, ty| arguments.add(path, ty));
    if let Some(roles) = &function.settings.axis_roles {
        cx.bind_axis_roles(roles);
    }
    let (next, outputs) = (function.body)(&cx, traced_state, traced_inputs);
    let structure = halite_core::tree::same_structure(state, &next);
    let shape = Tree::leaf_refs(&outputs).map_leaves(|_, _| ());
    let results = TracedResults {
        structure,
        next: next.into_leaves(),
        paths: outputs.paths(),
        outputs: outputs.into_leaves(),
    };
    let traced = arguments.traced(states, results, &function.settings, mesh)?;
    Ok((traced, shape))
}

/// The arguments of a function in a trace.
struct TracedArguments<'t> {
    cx: &'t Trace,
    tensors: Vec<Tensor<'t>>,
    ports: Vec<NamedType>,
}

/// What a traced function returned.
struct TracedResults<'t> {
    /// Whether the next state has the structure of the state.
    structure: Result<(), TreeError>,
    next: Vec<Tensor<'t>>,
    paths: Vec<String>,
    outputs: Vec<Tensor<'t>>,
}

impl<'t> TracedArguments<'t> {
    fn new(cx: &'t Trace) -> Self {
        TracedArguments {
            cx,
            tensors: Vec::new(),
            ports: Vec::new(),
        }
    }

    fn add(&mut self, path: &Path, ty: &ShardedType) -> Tensor<'t> {
        let name = path.to_string();
        let tensor = self.cx.input(ty.ty.clone(), name.as_str());
        self.ports.push((Some(name), ty.clone()));
        self.tensors.push(tensor);
        tensor
    }

    /// The graph from these arguments, of which the first `states` are the state, to the results.
    fn traced(
        self,
        states: usize,
        results: TracedResults<'t>,
        settings: &Settings,
        mesh: &MeshShape,
    ) -> Result<TracedFunction> {
        let TracedArguments {
            cx,
            mut tensors,
            mut ports,
        } = self;
        let scanned = tensors.len() - states;
        let TracedResults {
            structure,
            mut next,
            paths,
            outputs,
        } = results;
        check_state(cx, &ports[..states], structure, &next);
        context::check_learns(cx, &tensors[..states], &next);
        context::check_taken(cx);
        context::check_scaled(cx, &settings.precision);

        let mut output_types: Vec<_> = ports[..states].iter().map(|(_, ty)| ty.clone()).collect();
        for (path, tensor) in paths.iter().zip(&outputs) {
            let ty = settings.output_type(path, tensor.ty());
            ty.spec.check(mesh)?;
            output_types.push(ty);
        }
        let mut hyperparameters = Vec::new();
        for (tensor, values) in hyperparameter::inputs(cx)? {
            let ty = ShardedType::replicated(tensor.ty());
            ports.push((Some("hyperparameters".to_string()), ty.clone()));
            tensors.push(tensor);
            hyperparameters.push((ty, values));
        }
        next.extend(outputs);
        let graph = cx.graph(&tensors, &next)?;
        Ok(TracedFunction {
            graph,
            inputs: ports,
            states,
            scanned,
            outputs: output_types.into_iter().map(|ty| (None, ty)).collect(),
            hyperparameters,
            processes: context::exchanging_processes(cx),
            warnings: cx.warnings(),
        })
    }
}

/// Checks that each input has `length` slices along a first dimension that is not sharded.
pub(super) fn check_stacked(
    name: &str,
    length: usize,
    inputs: &[(String, &ShardedType)],
) -> Result<()> {
    for (path, input) in inputs {
        if input.ty.dims().first() != Some(&length) || !input.spec.axes(0).is_empty() {
            let message = format!(
                "`{name}` runs {length} iterations: input `{path}` is {input}; its first dimension \
                 must be {length}, and not be sharded"
            );
            return Err(Error::invalid("lower", message));
        }
    }
    Ok(())
}

/// Records a mistake if the next state differs from the state in its structure or types.
fn check_state(
    cx: &Trace,
    state: &[NamedType],
    structure: Result<(), TreeError>,
    next: &[Tensor<'_>],
) {
    if let Err(error) = structure {
        let message = format!("the next state must have the structure of the state: {error}");
        cx.fail("state", message, None);
        return;
    }
    for ((path, old), new) in state.iter().zip(next) {
        if !new.is_error() && new.ty() != old.ty {
            let message = format!(
                "`{}` is {} before the step and {} after it; a state keeps its types",
                path.as_deref().unwrap_or_default(),
                old.ty,
                new.ty()
            );
            cx.fail("state", message, None);
        }
    }
}
