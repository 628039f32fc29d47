//! Lowering: from a function of tensors to a program. Nothing here knows a client or a device.
//!
//! [`lower`] is what [`Jit`](crate::Jit) compiles, what a plan is made of, and what is compiled
//! ahead of time. They give it the same function and types, and the capabilities of their target,
//! and so get the same program.

mod function;
mod sharded_type;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use halite_core::{
    Capabilities, Error, HostArray, Kernels, MeshShape, Program, Result, Stages,
    tree::{Family, Path, Tree},
};
use halite_ir::{
    Graph, Interface, Op, Port, around_faults, choose_kernels, has_checkpoint, narrow_convolutions,
    narrow_matrices, one_function, unrolled, with_kernels, without_long_chains,
};

pub use self::{
    function::{Function, Traced},
    sharded_type::ShardedType,
};
use crate::{Mistake, Processes, Tensor, Trace, process_group::without_job};

/// A lowered [`Function`]: its program, with the types of inputs and outputs.
#[derive(Debug)]
pub struct Lowered<O> {
    /// The optimized graph of the program. Convolutions are such where the program calls kernels for
    /// them; attention is a custom call there.
    pub graph: Graph,
    /// The program: StableHLO, and the types that one device sees.
    pub program: Program,
    /// Inputs after the state and the inputs: the [hyperparameters](Trace::hyperparameter), one
    /// array for each of their element types, with their values in the order in which they were
    /// first requested.
    pub hyperparameters: Vec<(ShardedType, HostArray)>,
    /// Types of the outputs, without the state.
    pub outputs: Vec<ShardedType>,
    /// The tree of the outputs.
    pub shape: O,
    /// The processes that the program exchanges buffers with, if there are several.
    pub processes: Option<Processes>,
    /// Warnings of the traced code.
    pub warnings: Vec<Mistake>,
    /// Duration of tracing and printing.
    pub stages: Stages,
}

impl<O> Lowered<O> {
    /// The text of the program as it is compared between processes, and with that of a resumed run:
    /// without the number of the job, which depends on what else a process did before.
    pub fn comparable_code(&self) -> Cow<'_, [u8]> {
        match self.processes {
            None => Cow::Borrowed(&self.program.code),
            Some(_) => Cow::Owned(without_job(&self.program.code)),
        }
    }
}

/// Lowers `function` of a state and inputs of these types to a program for the devices of a mesh
/// of this shape.
///
/// `capabilities` are those of the devices that will run it: they decide where the narrower types
/// of the function's [precision policy](Function::precision) are used, and whether convolutions and
/// attention are calls of halite's kernels ([`with_kernels`], [`choose_kernels`]).
///
/// ```
/// use halite_core::{
///     Capabilities, DType, MeshShape, PartitionSpec, TensorType,
///     tree::{Empty, Leaf},
/// };
/// use halite_nn::{Function, ShardedType, lower};
///
/// # fn main() -> halite_core::Result<()> {
/// let mesh = MeshShape::new([("data", 8)])?;
/// let double = Function::<_, Leaf<()>, Leaf<()>>::stateless(|_cx, Leaf(x)| Leaf(x * 2.0));
/// let x = ShardedType::new(TensorType::new(DType::F32, [32, 4]), PartitionSpec::first("data"));
/// let lowered = lower(&double, &Empty::new(), &Leaf(x), &mesh, &Capabilities::PORTABLE)?;
/// assert_eq!(lowered.program.partitions, 8);
/// assert_eq!(lowered.program.signature.inputs[0].to_string(), "f32[4, 4]");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// All mistakes of the traced code at once; a partition spec that does not fit its tensor or the
/// mesh.
pub fn lower<S: Family, I: Family, O: Family>(
    function: &Function<S, I, O>,
    state: &S::Of<ShardedType>,
    inputs: &I::Of<ShardedType>,
    mesh: &MeshShape,
    capabilities: &Capabilities,
) -> Result<Lowered<O::Of<()>>> {
    let started = Instant::now();
    let mut traced = {
        let _span = tracing::trace_span!("trace", program = function.name).entered();
        match function.iterations {
            None => trace(function, state, inputs, mesh)?,
            Some(length) => {
                check_stacked(&function.name, length, inputs)?;
                let slices = Tree::leaf_refs(inputs).map_leaves(|_, ty| ty.slice());
                trace(function, state, &slices, mesh)?
            }
        }
    };
    let trace = started.elapsed();

    let started = Instant::now();
    let _span = tracing::trace_span!("print", program = function.name).entered();
    let stored = |ports: &[(Option<String>, ShardedType)]| -> Vec<_> {
        ports.iter().map(|(_, ty)| ty.stored).collect()
    };
    let capabilities = Capabilities {
        unrolled: match function.runs_once || has_checkpoint(&traced.graph) {
            true => 0,
            false => capabilities.unrolled,
        },
        ..*capabilities
    };
    let graph = choose_kernels(traced.graph, capabilities.kernels, mesh.size());
    let graph = halite_ir::with_signature(graph, &stored(&traced.inputs), &stored(&traced.outputs));
    let graph = halite_ir::with_precision(graph, &function.precision, &capabilities.narrowing);
    let graph = match mesh.size() {
        1 => halite_ir::matrix_products(graph),
        _ => graph,
    };
    let mut graph = halite_ir::optimize(graph);
    note_missing_axes(&function.name, &graph, mesh);
    let states = state.leaves().len();
    if let Some(length) = function.iterations {
        let scanned = inputs.leaves().len();
        graph = halite_ir::scanned(graph, states, scanned, length)?;
        let inputs = &mut traced.inputs[states..states + scanned];
        for (_, ty) in inputs.iter_mut().chain(&mut traced.outputs[states..]) {
            *ty = ty.stacked(length);
        }
    }
    let outputs = traced.outputs[states..]
        .iter()
        .map(|(_, ty)| ty.clone())
        .collect();
    let mut interface = Interface {
        name: function.name.clone(),
        mesh: Some(mesh.clone()),
        inputs: ports(traced.inputs),
        outputs: ports(traced.outputs),
        aliases: (0..states).map(|index| (index, index)).collect(),
        full_products: capabilities.rounds_products && !function.precision.fast_products,
        ..Interface::default()
    };
    let for_compiler = for_compiler(graph.clone(), mesh, &capabilities);
    let program = match small(&for_compiler, function.beside_scanned, mesh, &capabilities) {
        None => halite_ir::program(&for_compiler, &interface)?,
        Some(small) => {
            interface.one_function = true;
            halite_ir::program(&small, &interface)?
        }
    };
    Ok(Lowered {
        graph,
        program,
        hyperparameters: traced.hyperparameters,
        outputs,
        shape: traced.shape,
        processes: traced.processes,
        warnings: traced.warnings,
        stages: Stages {
            trace,
            print: started.elapsed(),
            compile: Duration::ZERO,
        },
    })
}

/// The optimized graph with calls of kernels, in the form that the compiler needs.
fn for_compiler(graph: Graph, mesh: &MeshShape, capabilities: &Capabilities) -> Graph {
    let graph = unrolled(graph, capabilities.unrolled);
    let graph = match capabilities.narrow_convolutions {
        true => narrow_convolutions(graph),
        false => graph,
    };
    let graph = match capabilities.kernels {
        Kernels::Off if capabilities.narrow_matrices && mesh.size() == 1 => narrow_matrices(graph),
        Kernels::Off => graph,
        _ => with_kernels(graph, capabilities, mesh.size()),
    };
    // The plugin that compiles functions is XLA's for the CPU.
    let graph = match capabilities.one_function {
        true => without_long_chains(graph),
        false => graph,
    };
    around_faults(graph, &capabilities.faults, mesh)
}

/// The graph prepared to be one function, if it is small and the compiler makes functions.
fn small(
    graph: &Graph,
    without_loop: bool,
    mesh: &MeshShape,
    capabilities: &Capabilities,
) -> Option<Graph> {
    let without_loop = without_loop || capabilities.kernels == Kernels::All;
    let allowed = capabilities.kernels != Kernels::Off && capabilities.one_function;
    (allowed && mesh.size() == 1)
        .then(|| one_function(graph, without_loop))
        .flatten()
}

/// A traced function, before its graph is optimized.
struct TracedFunction<O> {
    graph: Graph,
    /// State, inputs and hyperparameters, by name.
    inputs: Vec<(Option<String>, ShardedType)>,
    /// Next state and outputs.
    outputs: Vec<(Option<String>, ShardedType)>,
    hyperparameters: Vec<(ShardedType, HostArray)>,
    shape: O,
    processes: Option<Processes>,
    warnings: Vec<Mistake>,
}

fn trace<S: Family, I: Family, O: Family>(
    function: &Function<S, I, O>,
    state: &S::Of<ShardedType>,
    inputs: &I::Of<ShardedType>,
    mesh: &MeshShape,
) -> Result<TracedFunction<O::Of<()>>> {
    let cx = Trace::new();
    if let Some(roles) = &function.axis_roles {
        cx.bind_axis_roles(roles);
    }
    let (mut ports, mut tensors) = (Vec::new(), Vec::new());
    let mut input = |path: &Path, ty: &ShardedType| {
        let name = path.to_string();
        let tensor = cx.input(ty.ty.clone(), name.as_str());
        ports.push((Some(name), ty.clone()));
        tensors.push(tensor);
        tensor
    };
    let traced_state = Tree::leaf_refs(state).map_leaves(&mut input);
    let traced_inputs = Tree::leaf_refs(inputs).map_leaves(&mut input);
    let (next, outputs) = (function.body)(&cx, traced_state, traced_inputs);
    check_state::<S>(&cx, state, &next);
    cx.check_taken();
    cx.check_scaled(&function.precision);

    let shape = Tree::leaf_refs(&outputs).map_leaves(|_, _| ());
    let mut output_types: Vec<_> = state.leaves().into_iter().cloned().collect();
    for (path, tensor) in outputs.named() {
        let ty = function.output_type(&path, tensor.ty());
        ty.spec.check(mesh)?;
        output_types.push(ty);
    }
    let mut hyperparameters = Vec::new();
    for (tensor, values) in cx.hyperparameter_inputs()? {
        let ty = ShardedType::replicated(tensor.ty());
        ports.push((Some("hyperparameters".to_string()), ty.clone()));
        tensors.push(tensor);
        hyperparameters.push((ty, values));
    }
    let results: Vec<Tensor<'_>> = next
        .into_leaves()
        .into_iter()
        .chain(outputs.into_leaves())
        .collect();
    let graph = cx.graph(&tensors, &results)?;
    Ok(TracedFunction {
        graph,
        inputs: ports,
        outputs: output_types.into_iter().map(|ty| (None, ty)).collect(),
        hyperparameters,
        shape,
        processes: cx.exchanging_processes(),
        warnings: cx.warnings(),
    })
}

fn ports(types: Vec<(Option<String>, ShardedType)>) -> Vec<Port> {
    let port = |(name, ty): (_, ShardedType)| Port {
        name,
        spec: Some(ty.spec),
    };
    types.into_iter().map(port).collect()
}

/// Checks that each input has `length` slices along a first dimension that is not sharded.
fn check_stacked<I: Tree<Leaf = ShardedType>>(name: &str, length: usize, inputs: &I) -> Result<()> {
    for (path, input) in inputs.named() {
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

/// Records a mistake if the next state differs from the state in its tree or types.
fn check_state<S: Family>(cx: &Trace, state: &S::Of<ShardedType>, next: &Traced<'_, S>) {
    if let Err(error) = halite_core::tree::same_structure(state, next) {
        let message = format!("the next state must have the structure of the state: {error}");
        cx.fail("state", message, None);
        return;
    }
    for ((path, old), new) in state.named().into_iter().zip(next.leaves()) {
        if !new.is_error() && new.ty() != old.ty {
            let message = format!(
                "`{path}` is {} before the step and {} after it; a state keeps its types",
                old.ty,
                new.ty()
            );
            cx.fail("state", message, None);
        }
    }
}

/// Logs the axes of sharding constraints that the mesh does not have: they may be misspelled.
fn note_missing_axes(name: &str, graph: &Graph, mesh: &MeshShape) {
    fn collect<'g>(graph: &'g Graph, mesh: &MeshShape, missing: &mut BTreeSet<&'g str>) {
        for node in graph.nodes() {
            if let Op::ShardingConstraint(spec) = &node.op {
                missing.extend(
                    spec.all_axes()
                        .map(|axis| &**axis)
                        .filter(|axis| mesh.axis(axis).is_none()),
                );
            }
            for region in node.op.regions() {
                collect(region, mesh, missing);
            }
        }
    }
    let mut missing = BTreeSet::new();
    collect(graph, mesh, &mut missing);
    if !missing.is_empty() && mesh.size() > 1 {
        tracing::info!(
            "`{name}`: sharding constraints name the axes {missing:?}, which {mesh:#} does not have"
        );
    }
}
