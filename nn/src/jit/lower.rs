//! From a traced function to a program.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use halite_core::{
    HostArray, Mesh, Narrowing, Program, Result, Sharding, Stages,
    tree::{Family, Path, Tree},
};
use halite_ir::{Graph, Interface, Op, Port};

use super::{ArraySpec, Jit, Traced};
use crate::{Tensor, Trace};

/// A traced function as a program, with the layout of what it takes and gives.
#[derive(Debug)]
pub struct Lowered<O> {
    /// What is computed, simplified: what the program's text was made from.
    pub graph: Graph,
    /// The program: StableHLO and the types on its border.
    pub program: Program,
    /// What it takes after the state and the inputs: the [hyperparameters](Trace::hyperparameter),
    /// one array for each of their element types, with their values in the order in which they were
    /// first asked for.
    pub hyperparameters: Vec<(ArraySpec, HostArray)>,
    /// Its outputs, state excluded.
    pub outputs: Vec<ArraySpec>,
    /// The shape of the outputs.
    pub shape: O,
    /// How long tracing and printing took.
    pub stages: Stages,
}

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// The program for arrays like these.
    ///
    /// # Errors
    /// All mistakes of the traced code at once; layouts on several meshes.
    pub fn lower(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Lowered<O::Of<()>>> {
        let started = Instant::now();
        let _span = tracing::trace_span!("trace", program = self.name).entered();
        let cx = Trace::new();
        let specs: Vec<&ArraySpec> = state.leaves().into_iter().chain(inputs.leaves()).collect();
        let mesh = self.mesh_of(&specs)?;
        let mut all_inputs = Vec::with_capacity(specs.len());
        let mut names = Vec::with_capacity(specs.len());
        let mut input = |path: &Path, spec: &ArraySpec| {
            let name = path.to_string();
            let tensor = cx.input(spec.ty.clone(), name.as_str());
            names.push(name);
            all_inputs.push(tensor);
            tensor
        };
        let traced_state = Tree::as_ref(state).map(&mut input);
        let traced_inputs = Tree::as_ref(inputs).map(&mut input);
        let (next, outputs) = (self.function)(&cx, traced_state, traced_inputs);
        self.check_state(&cx, state, &next);
        cx.check_taken();

        let next: Vec<Tensor<'_>> = next.into_leaves();
        let shape = Tree::as_ref(&outputs).map(|_, _| ());
        let mut output_specs = Vec::new();
        for (path, tensor) in outputs.named() {
            let sharding = Sharding::new(&mesh, (self.output_spec)(&path, &tensor.ty()))?;
            let stored = (self.output_stored)(&path, &tensor.ty());
            output_specs.push(ArraySpec {
                ty: tensor.ty(),
                sharding,
                stored,
            });
        }
        let hyperparameters = cx.hyperparameter_inputs()?;
        all_inputs.extend(hyperparameters.iter().map(|(input, _)| *input));
        names.extend(
            hyperparameters
                .iter()
                .map(|_| "hyperparameters".to_string()),
        );
        let replicated = Sharding::replicated(&mesh);
        let hyperparameters: Vec<_> = (hyperparameters.into_iter())
            .map(|(input, values)| (ArraySpec::new(input.ty(), &replicated), values))
            .collect();
        let all_outputs: Vec<Tensor<'_>> =
            next.iter().copied().chain(outputs.into_leaves()).collect();
        let graph = cx.graph(&all_inputs, &all_outputs)?;
        self.log_warnings(&cx);
        let trace = started.elapsed();
        drop(_span);

        let started = Instant::now();
        let _span = tracing::trace_span!("print", program = self.name).entered();
        let state_specs = state.leaves();
        let specs: Vec<&ArraySpec> = specs
            .into_iter()
            .chain(hyperparameters.iter().map(|(spec, _)| spec))
            .collect();
        let [taken, given] = [
            &specs,
            &state_specs.iter().copied().chain(&output_specs).collect(),
        ]
        .map(|specs: &Vec<&ArraySpec>| specs.iter().map(|spec| spec.stored).collect::<Vec<_>>());
        let narrowing = Narrowing::on(&self.client.platform().name);
        let graph = halite_ir::with_precision(
            halite_ir::with_signature(graph, &taken, &given),
            &self.precision,
            &narrowing,
        );
        let graph = halite_ir::optimize(&graph);
        self.note_missing_axes(&graph, &mesh);
        let port = |name: Option<String>, spec: &ArraySpec| Port {
            name,
            spec: Some(spec.sharding.spec().clone()),
        };
        let interface = Interface {
            name: self.name.clone(),
            mesh: Some(mesh),
            inputs: names
                .into_iter()
                .zip(&specs)
                .map(|(name, spec)| port(Some(name), spec))
                .collect(),
            outputs: state_specs
                .iter()
                .copied()
                .chain(&output_specs)
                .map(|spec| port(None, spec))
                .collect(),
            aliases: (0..state_specs.len()).map(|index| (index, index)).collect(),
            ..Interface::default()
        };
        let program = halite_ir::program(&graph, &interface)?;
        let stages = Stages {
            trace,
            print: started.elapsed(),
            compile: Duration::ZERO,
        };
        Ok(Lowered {
            program,
            hyperparameters,
            outputs: output_specs,
            shape,
            stages,
            graph,
        })
    }

    /// Says which axes of sharding constraints the mesh does not have: they may be misspelt.
    fn note_missing_axes(&self, graph: &Graph, mesh: &Mesh) {
        fn missing<'g>(graph: &'g Graph, mesh: &Mesh, found: &mut BTreeSet<&'g str>) {
            for node in graph.nodes() {
                if let Op::ShardingConstraint(spec) = &node.op {
                    found.extend(
                        spec.all_axes()
                            .map(|axis| &**axis)
                            .filter(|axis| mesh.axis(axis).is_none()),
                    );
                }
                node.op
                    .regions()
                    .into_iter()
                    .for_each(|region| missing(region, mesh, found));
            }
        }
        let mut axes = BTreeSet::new();
        missing(graph, mesh, &mut axes);
        if !axes.is_empty() && mesh.size() > 1 {
            tracing::info!(
                "`{}`: sharding constraints name the axes {axes:?}, which {mesh} does not have",
                self.name
            );
        }
    }

    fn check_state(&self, cx: &Trace, state: &S::Of<ArraySpec>, next: &Traced<'_, S>) {
        if let Err(error) = halite_core::tree::same_structure(state, next) {
            cx.fail(
                "state",
                format!("the next state is no longer shaped like the state: {error}"),
                None,
            );
            return;
        }
        for ((path, old), new) in state.named().into_iter().zip(next.leaves()) {
            if !new.is_error() && new.ty() != old.ty {
                cx.fail(
                    "state",
                    format!(
                        "`{path}` is {}, and after the step {}; a state keeps its types",
                        old.ty,
                        new.ty()
                    ),
                    None,
                );
            }
        }
    }
}
