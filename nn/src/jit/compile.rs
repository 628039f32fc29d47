//! From argument specs to a loaded program: lowering, compiling, checking of output shardings.

use std::{
    panic::Location,
    sync::{Arc, PoisonError},
    time::Instant,
};

use halite_core::{
    Array, Capabilities, CompileCause, Error, Loaded, Mesh, PartitionSpec, Reason, Result, Stages,
    tree::{Family, Tree},
};

use super::{
    ArraySpec, Jit,
    agreement::SharedProgram,
    background::{InProgress, Timed},
    cache::{CallSignature, Compiled, arguments},
    report::{changes, largest},
};
use crate::{Lowered, Mistake, ShardedType, lower};

/// A lowered program, and the function that compiles it.
pub(super) struct Uncompiled<O: Family, C> {
    pub(super) signature: CallSignature<O>,
    /// Durations of tracing and printing.
    pub(super) stages: Stages,
    pub(super) compile: C,
}

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// Lowers the function for arrays of these specs, with the capabilities of the client's
    /// devices.
    ///
    /// # Errors
    /// As [`lower`]; arguments on several meshes.
    pub fn lower(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Lowered<O::Of<()>>> {
        self.lower_for(&self.client.capabilities(), state, inputs)
    }

    /// Lowers the function for arrays of these specs and devices of these capabilities.
    ///
    /// # Errors
    /// As [`lower`]; arguments on several meshes.
    pub fn lower_for(
        &self,
        capabilities: &Capabilities,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Lowered<O::Of<()>>> {
        let mesh = self.mesh_of(state, inputs)?;
        self.lower_on(&mesh, capabilities, state, inputs)
    }

    fn lower_on(
        &self,
        mesh: &Mesh,
        capabilities: &Capabilities,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Lowered<O::Of<()>>> {
        // Another mesh has the same single device, and perhaps other axes, which split nothing.
        let on_mesh = |spec: &ArraySpec| match **spec.sharding.mesh() == *mesh {
            true => ShardedType::from(spec),
            false => ShardedType {
                spec: PartitionSpec::replicated(),
                ..ShardedType::from(spec)
            },
        };
        let lowered = lower(
            &self.function,
            &Tree::leaf_refs(state).map_leaves(|_, spec| on_mesh(spec)),
            &Tree::leaf_refs(inputs).map_leaves(|_, spec| on_mesh(spec)),
            mesh,
            capabilities,
        )?;
        self.log_warnings(&lowered.warnings);
        Ok(lowered)
    }

    #[track_caller]
    pub(super) fn compile_for(
        &self,
        state: &S::Of<Array>,
        inputs: &I::Of<&Array>,
    ) -> Result<Arc<Compiled<O>>> {
        let state = Tree::leaf_refs(state).map_leaves(|_, array| ArraySpec::of(array));
        let inputs = Tree::leaf_refs(inputs).map_leaves(|_, array| ArraySpec::of(array));
        self.compile(&state, &inputs)
    }

    #[track_caller]
    pub(super) fn compile(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Arc<Compiled<O>>> {
        let _compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = self.cache.find(state, inputs) {
            return Ok(compiled);
        }
        let (signature, mut stages, timed) = match self.background.take::<S, I>(state, inputs) {
            Some(in_progress) => InProgress::join(in_progress),
            None => {
                let uncompiled = self.uncompiled(state, inputs)?;
                let timed = (uncompiled.compile)();
                (uncompiled.signature, uncompiled.stages, timed)
            }
        };
        let (loaded, took) = timed?;
        stages.compile = took;
        self.cache.count_compile();
        check_outputs(&loaded, state, &signature)?;
        tracing::debug!(
            name = %self.function.name,
            trace = ?stages.trace,
            print = ?stages.print,
            compile = ?stages.compile,
            "compiled"
        );
        let hyperparameters = (signature.hyperparameters.iter())
            .map(|(spec, values)| Array::upload(&self.client, values, &spec.sharding))
            .collect::<Result<_>>()?;
        let compiled = Arc::new(Compiled {
            signature,
            hyperparameters,
            loaded,
            stages,
        });
        let first_eviction = self.cache.add(compiled.clone());
        if first_eviction {
            halite_core::warning!(
                "`{}` ({}) is compiled for more than {} combinations of input types; from now on the \
                 least recently used program is dropped whenever another one is added, and \
                 compiled again when it is called. Pad inputs to fewer shapes, or raise \
                 `Jit::max_programs`",
                self.function.name,
                self.origin,
                self.cache.limit()
            );
        }
        Ok(compiled)
    }

    /// Lowers the function, and returns what compiles it.
    #[track_caller]
    pub(super) fn uncompiled(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Uncompiled<O, impl FnOnce() -> Result<Timed> + Send + use<S, I, O>>> {
        let reason = match self.cache.last() {
            None => Reason::First,
            Some(last) => {
                let reason = changes(&last.signature, state, inputs);
                halite_core::warning!(
                    "`{}` ({}) is compiled again: {reason}",
                    self.function.name,
                    self.origin
                );
                reason
            }
        };
        let mesh = self.mesh_of(state, inputs)?;
        let lowered = self.lower_on(&mesh, &self.client.capabilities(), state, inputs)?;
        let paths = state.paths().into_iter().chain(inputs.paths());
        let cause = CompileCause {
            origin: Some(self.origin),
            called_at: if self.made_by_library {
                None
            } else {
                Some(Location::caller())
            },
            reason,
            stages: lowered.stages,
            graph: self.client.wants_graph().then(|| lowered.graph.to_string()),
            largest: largest(&lowered.graph, paths.zip(&lowered.program.signature.inputs)),
        };
        let mut options = self.options.clone();
        if options.devices.is_empty() {
            options.devices = mesh.devices().to_vec();
        }
        let shared = (lowered.processes.as_ref())
            .map(|processes| SharedProgram::new(processes, &lowered.comparable_code()));
        let outputs = lowered.outputs.iter().map(|ty| ty.on(&mesh));
        let hyperparameters = lowered
            .hyperparameters
            .into_iter()
            .map(|(ty, values)| Ok((ty.on(&mesh)?, values)));
        let signature = CallSignature {
            state: arguments(state),
            inputs: arguments(inputs),
            outputs: outputs.collect::<Result<_>>()?,
            shape: lowered.shape,
            hyperparameters: hyperparameters.collect::<Result<_>>()?,
            shared,
        };
        let (client, program) = (self.client.clone(), lowered.program);
        let compile = move || {
            let started = Instant::now();
            let loaded = client.compile_because(&program, &options, cause)?;
            Ok((loaded, started.elapsed()))
        };
        Ok(Uncompiled {
            signature,
            stages: lowered.stages,
            compile,
        })
    }

    /// The mesh that the function was given, or else that of its arguments. Meshes of one and the
    /// same device are one mesh, whatever their axes.
    fn mesh_of(&self, state: &S::Of<ArraySpec>, inputs: &I::Of<ArraySpec>) -> Result<Arc<Mesh>> {
        let named: Vec<(String, &ArraySpec)> =
            state.named().into_iter().chain(inputs.named()).collect();
        let meshes = named.iter().map(|(_, spec)| spec.sharding.mesh());
        // If several meshes have one device: the one whose axes constraints in the function can name.
        let known = match &self.mesh {
            Some(mesh) => Some(mesh),
            None => meshes.clone().next().map(|first| {
                let same = meshes.filter(|mesh| is_same_device(first, mesh));
                same.max_by_key(|mesh| mesh.axes().len()).unwrap_or(first)
            }),
        };
        let Some(mesh) = known else {
            let device = *self.client.local_devices().first().ok_or_else(|| {
                Error::invalid(
                    "jit",
                    format!(
                        "`{}` has no inputs, and {:?} has no local device to run it on",
                        self.function.name, self.client
                    ),
                )
            })?;
            return Ok(Arc::new(Mesh::single(device)));
        };
        let other = named.iter().enumerate().find(|(_, (_, spec))| {
            let other = spec.sharding.mesh();
            other != mesh && !is_same_device(other, mesh)
        });
        let Some((index, (path, spec))) = other else {
            return Ok(mesh.clone());
        };
        let argument = |index: usize, path: &str| match path {
            "" => format!("argument {index}"),
            path => format!("argument {index}, `{path}`,"),
        };
        let runs = match self.mesh {
            Some(_) => "runs".to_string(),
            None => format!("has {}", argument(0, &named[0].0)),
        };
        let message = format!(
            "`{}` {runs} on {}, but {} is on {}; a call has all arguments on one mesh",
            self.function.name,
            listed(mesh),
            argument(index, path),
            listed(spec.sharding.mesh()),
        );
        Err(Error::invalid("jit", message))
    }

    /// Logs the warnings of a trace that have not been logged before.
    fn log_warnings(&self, warnings: &[Mistake]) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            let text = warning.to_string();
            if !warned.contains(&text) {
                halite_core::warning!("{text}");
                warned.insert(text);
            }
        }
    }
}

/// True if both have one device, the same.
fn is_same_device(one: &Mesh, other: &Mesh) -> bool {
    one.size() == 1 && one.devices() == other.devices()
}

/// A mesh with the ids of its devices: `mesh(data=2) of devices 0, 1`.
fn listed(mesh: &Mesh) -> String {
    let ids: Vec<String> = mesh.devices().iter().map(|id| id.0.to_string()).collect();
    let noun = if ids.len() == 1 { "device" } else { "devices" };
    format!("{mesh} of {noun} {}", ids.join(", "))
}

/// Checks that the compiler gave the outputs the shardings that were requested.
fn check_outputs<S: Tree<Leaf = ArraySpec>, O: Family>(
    loaded: &Loaded,
    state: &S,
    signature: &CallSignature<O>,
) -> Result<()> {
    if loaded.devices().len() == 1 {
        return Ok(());
    }
    let outputs = signature.shape.paths().into_iter().zip(&signature.outputs);
    let results: Vec<_> = state.named().into_iter().chain(outputs).collect();
    loaded.check_outputs(
        results
            .iter()
            .map(|(path, spec)| (path.as_str(), &spec.ty, &spec.sharding)),
    )
}
