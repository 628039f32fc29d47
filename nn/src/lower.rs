//! Lowering: from a function of tensors to a program. Nothing here knows a client or a device.
//!
//! [`lower`] is what [`Jit`](crate::Jit) compiles, what a plan is made of, and what is compiled
//! ahead of time. They give it the same function and types, and the capabilities of their target,
//! and so get the same program.

mod function;
mod traced;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use halite_core::{
    Capabilities, DType, DTypePolicy, HostArray, Kernels, MeshShape, Program, Result, Stages,
    tree::{Family, Tree},
};
use halite_ir::{
    Graph, Interface, Op, Port, around_faults, choose_kernels, has_checkpoint, matrix_products,
    narrow_convolutions, narrow_matrices, one_function, optimize, unrolled, with_kernels,
    with_precision, with_signature, without_long_chains,
};

pub(crate) use self::function::Settings;
pub use self::function::{Function, Traced};
use self::traced::{NamedType, TracedFunction, check_stacked, trace};
use crate::{Mistake, Processes, ShardedType, process_group::without_job};

/// A lowered [`Function`]: its program, with the types of inputs and outputs.
#[derive(Debug)]
pub struct Lowered<O> {
    /// The optimized graph of the program. Convolutions are such where the program calls kernels for
    /// them; attention is a custom call there.
    pub graph: Graph,
    /// The program: StableHLO, and the types that one device sees.
    pub program: Program,
    /// Inputs after the state and the inputs: the [hyperparameters](crate::Trace::hyperparameter), one
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
    /// This with another shape; the shape.
    pub(crate) fn with_shape<P>(self, shape: P) -> (Lowered<P>, O) {
        let lowered = Lowered {
            graph: self.graph,
            program: self.program,
            hyperparameters: self.hyperparameters,
            outputs: self.outputs,
            shape,
            processes: self.processes,
            warnings: self.warnings,
            stages: self.stages,
        };
        (lowered, self.shape)
    }

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
    let Settings {
        name, iterations, ..
    } = &function.settings;
    let started = Instant::now();
    let (traced, shape) = {
        let _span = tracing::trace_span!("trace", program = name).entered();
        match *iterations {
            None => trace(function, state, inputs, mesh)?,
            Some(length) => {
                check_stacked(name, length, &inputs.named())?;
                let slices = Tree::leaf_refs(inputs).map_leaves(|_, ty| ty.slice());
                trace(function, state, &slices, mesh)?
            }
        }
    };
    let lowered = lowered(
        traced,
        &function.settings,
        mesh,
        capabilities,
        started.elapsed(),
    )?;
    Ok(lowered.with_shape(shape).0)
}

/// A pass of lowering, which returns the graph that it made of another.
type Pass = (&'static str, fn(Graph, &Context<'_>) -> Graph);

/// What passes know beside the graph.
struct Context<'a> {
    mesh: &'a MeshShape,
    precision: &'a DTypePolicy,
    capabilities: Capabilities,
    /// Element types in which inputs and outputs are stored.
    stored: [Vec<DType>; 2],
}

/// The passes to the graph that [`Lowered::graph`] is, in order.
const OPTIMIZATION: &[Pass] = &[
    ("choose kernels", |graph, cx| {
        choose_kernels(graph, cx.capabilities.kernels, cx.mesh.size())
    }),
    ("stored types", |graph, cx| {
        let [inputs, outputs] = &cx.stored;
        with_signature(graph, inputs, outputs)
    }),
    ("precision", |graph, cx| {
        with_precision(graph, cx.precision, &cx.capabilities.narrowing)
    }),
    ("matrix products", |graph, cx| match cx.mesh.size() {
        1 => matrix_products(graph),
        _ => graph,
    }),
    ("optimize", |graph, _| optimize(graph)),
];

/// The passes to the form that the compiler needs, in order.
const FOR_COMPILER: &[Pass] = &[
    ("unroll", |graph, cx| {
        unrolled(graph, cx.capabilities.unrolled)
    }),
    ("narrow convolutions", |graph, cx| {
        if cx.capabilities.narrow_convolutions {
            narrow_convolutions(graph)
        } else {
            graph
        }
    }),
    ("kernels", |graph, cx| match cx.capabilities.kernels {
        Kernels::Off if cx.capabilities.narrow_matrices && cx.mesh.size() == 1 => {
            narrow_matrices(graph)
        }
        Kernels::Off => graph,
        _ => with_kernels(graph, &cx.capabilities, cx.mesh.size()),
    }),
    // The plugin that compiles functions is XLA's for the CPU.
    ("long chains", |graph, cx| {
        if cx.capabilities.one_function {
            without_long_chains(graph)
        } else {
            graph
        }
    }),
    ("faults", |graph, cx| {
        around_faults(graph, &cx.capabilities.faults, cx.mesh)
    }),
];

/// Applies passes in order.
fn run(passes: &[Pass], graph: Graph, context: &Context<'_>) -> Graph {
    passes.iter().fold(graph, |graph, (name, pass)| {
        let _span = tracing::trace_span!("pass", name).entered();
        pass(graph, context)
    })
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

/// Lowers a traced function, without the tree of its outputs: compiled once, not for each family.
fn lowered(
    mut traced: TracedFunction,
    settings: &Settings,
    mesh: &MeshShape,
    capabilities: &Capabilities,
    trace: Duration,
) -> Result<Lowered<()>> {
    let started = Instant::now();
    let Settings {
        name, precision, ..
    } = settings;
    let _span = tracing::trace_span!("print", program = name).entered();
    let stored =
        |ports: &[NamedType]| -> Vec<_> { ports.iter().map(|(_, ty)| ty.stored).collect() };
    let context = Context {
        mesh,
        precision,
        capabilities: Capabilities {
            unrolled: match settings.runs_once || has_checkpoint(&traced.graph) {
                true => 0,
                false => capabilities.unrolled,
            },
            ..*capabilities
        },
        stored: [stored(&traced.inputs), stored(&traced.outputs)],
    };
    let mut graph = run(OPTIMIZATION, traced.graph, &context);
    note_missing_axes(name, &graph, mesh);
    let (states, scanned) = (traced.states, traced.scanned);
    if let Some(length) = settings.iterations {
        graph = halite_ir::scanned(graph, states, scanned, length)?;
        let inputs = &mut traced.inputs[states..states + scanned];
        for (_, ty) in inputs.iter_mut().chain(&mut traced.outputs[states..]) {
            *ty = ty.stacked(length);
        }
    }
    let outputs = traced.outputs[states..].iter().map(|(_, ty)| ty.clone());
    let outputs = outputs.collect();
    let mut interface = Interface {
        name: name.clone(),
        mesh: Some(mesh.clone()),
        inputs: ports(traced.inputs),
        outputs: ports(traced.outputs),
        aliases: (0..states).map(|index| (index, index)).collect(),
        full_products: capabilities.rounds_products && !precision.fast_products,
        ..Interface::default()
    };
    let for_compiler = run(FOR_COMPILER, graph.clone(), &context);
    let program = match small(&for_compiler, settings.beside_scanned, mesh, &capabilities) {
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
        shape: (),
        processes: traced.processes,
        warnings: traced.warnings,
        stages: Stages {
            trace,
            print: started.elapsed(),
            compile: Duration::ZERO,
        },
    })
}

fn ports(types: Vec<(Option<String>, ShardedType)>) -> Vec<Port> {
    let port = |(name, ty): (_, ShardedType)| Port {
        name,
        spec: Some(ty.spec),
    };
    types.into_iter().map(port).collect()
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
