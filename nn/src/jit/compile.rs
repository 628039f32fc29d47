//! From argument specs to a loaded program: lowering, compiling, checking of output shardings.

use std::{
    panic::Location,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use halite_core::{
    Array, Capabilities, CompileCause, Error, Loaded, Mesh, PartitionSpec, Reason, Result, Stages,
    tree::{Family, Tree},
};

use super::{
    ArraySpec, Jit, Setup,
    agreement::SharedProgram,
    background::Compile,
    cache::{Argument, Arguments, Compiled, CompiledProgram, Signature},
    report::{changes, largest},
};
use crate::{Lowered, Mistake, ShardedType, lower};

/// A lowered program, and the function that compiles it.
pub(super) struct Uncompiled<O: Family> {
    pub(super) shape: O::Of<()>,
    pub(super) signature: Signature,
    /// Durations of tracing and printing.
    pub(super) stages: Stages,
    pub(super) compile: Compile,
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
        self.lower_for(&self.client().capabilities(), state, inputs)
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
        let arguments = Arguments::new(state, inputs);
        let mesh = self.setup.mesh_of(self.name(), &arguments)?;
        let lowered = lower(
            &self.function,
            &Tree::leaf_refs(state).map_leaves(|_, spec| on_mesh(spec, &mesh)),
            &Tree::leaf_refs(inputs).map_leaves(|_, spec| on_mesh(spec, &mesh)),
            &mesh,
            capabilities,
        )?;
        self.setup.log_warnings(&lowered.warnings);
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
        let arguments = Arguments::new(state, inputs);
        let _compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = self.cache.find(&arguments) {
            return Ok(compiled);
        }
        let Uncompiled {
            shape,
            signature,
            mut stages,
            compile,
        } = match self.background.take(&arguments) {
            Some(in_progress) => in_progress,
            None => self.uncompiled(self.lower(state, inputs)?, arguments)?,
        };
        let (loaded, took) = compile()?;
        stages.compile = took;
        self.cache.count_compile();
        let paths = || shape.paths();
        let program = (self.setup).compiled(self.name(), signature, loaded, stages, &paths)?;
        let compiled = Arc::new(Compiled { shape, program });
        let first_eviction = self.cache.add(compiled.clone());
        if first_eviction {
            halite_core::warning!(
                "`{}` ({}) is compiled for more than {} combinations of input types; from now on the \
                 least recently used program is dropped whenever another one is added, and \
                 compiled again when it is called. Pad inputs to fewer shapes, or raise \
                 `Jit::max_programs`",
                self.name(),
                self.origin(),
                self.cache.limit()
            );
        }
        Ok(compiled)
    }

    /// What compiles the function, which is lowered for these arguments.
    #[track_caller]
    pub(super) fn uncompiled(
        &self,
        lowered: Lowered<O::Of<()>>,
        arguments: Arguments,
    ) -> Result<Uncompiled<O>> {
        let last = self.cache.last();
        let last = last.map(|last| last.program.signature.arguments.clone());
        let reason = self.setup.reason(self.name(), last.as_ref(), &arguments);
        let mesh = self.setup.mesh_of(self.name(), &arguments)?;
        let (lowered, shape) = lowered.with_shape(());
        let called_at = Location::caller();
        let stages = lowered.stages;
        let (signature, compile) =
            (self.setup).signature_and_compile(arguments, lowered, &mesh, reason, called_at)?;
        Ok(Uncompiled {
            shape,
            signature,
            stages,
            compile,
        })
    }
}

/// The parts of compiling that do not depend on the trees: they are compiled once.
impl Setup {
    /// The reason for compiling a function that was last compiled for the arguments `last`; logs
    /// it, if there are any.
    fn reason(&self, name: &str, last: Option<&Arguments>, arguments: &Arguments) -> Reason {
        let Some(last) = last else {
            return Reason::First;
        };
        let reason = changes(last, arguments);
        halite_core::warning!("`{name}` ({}) is compiled again: {reason}", self.origin);
        reason
    }

    /// The signature of a lowered function, and what compiles it.
    fn signature_and_compile(
        &self,
        arguments: Arguments,
        lowered: Lowered<()>,
        mesh: &Arc<Mesh>,
        reason: Reason,
        called_at: &'static Location<'static>,
    ) -> Result<(Signature, Compile)> {
        let paths = arguments.iter().map(|(path, _)| path.to_string());
        let cause = CompileCause {
            origin: Some(self.origin),
            called_at: (!self.made_by_library).then_some(called_at),
            reason,
            stages: lowered.stages,
            graph: self.client.wants_graph().then(|| lowered.graph.to_string()),
            largest: largest(&lowered.graph, paths.zip(&lowered.program.signature.inputs)),
        };
        let mut options = self.options.clone();
        if options.devices.is_empty() {
            options.devices = mesh.devices().to_vec();
        }
        let launches = match &lowered.processes {
            Some(processes) => Some((processes.launches(), processes.patience())),
            // One program on the devices of all processes.
            None => (self.client.launches_on(&options.devices)).map(|it| (it, Duration::ZERO)),
        };
        let shared = launches.map(|(launches, patience)| {
            SharedProgram::new(launches, patience, &lowered.comparable_code())
        });
        let outputs = lowered.outputs.iter().map(|ty| ty.on(mesh));
        let hyperparameters = lowered
            .hyperparameters
            .into_iter()
            .map(|(ty, values)| Ok((ty.on(mesh)?, values)));
        let signature = Signature {
            arguments,
            outputs: outputs.collect::<Result<_>>()?,
            hyperparameters: hyperparameters.collect::<Result<_>>()?,
            shared,
        };
        let (client, program) = (self.client.clone(), lowered.program);
        let compile = move || {
            let started = Instant::now();
            let loaded = client.compile_because(&program, &options, cause)?;
            Ok((loaded, started.elapsed()))
        };
        Ok((signature, Box::new(compile)))
    }

    /// A loaded program with what its launches need. `paths` gives those of its outputs.
    fn compiled(
        &self,
        name: &str,
        signature: Signature,
        loaded: Loaded,
        stages: Stages,
        paths: &dyn Fn() -> Vec<String>,
    ) -> Result<CompiledProgram> {
        check_outputs(&loaded, &signature, paths)?;
        tracing::debug!(
            name,
            trace = ?stages.trace,
            print = ?stages.print,
            compile = ?stages.compile,
            "compiled"
        );
        let hyperparameters = (signature.hyperparameters.iter())
            .map(|(spec, values)| Array::upload(&self.client, values, &spec.sharding))
            .collect::<Result<_>>()?;
        Ok(CompiledProgram {
            signature,
            hyperparameters,
            loaded,
            stages,
        })
    }

    /// The mesh that the function was given, or else that of its arguments. Meshes of one and the
    /// same device are one mesh, whatever their axes.
    fn mesh_of(&self, name: &str, arguments: &Arguments) -> Result<Arc<Mesh>> {
        let meshes = arguments.iter().map(|(_, spec)| spec.sharding.mesh());
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
                let message = format!(
                    "`{name}` has no inputs, and {:?} has no local device to run it on",
                    self.client
                );
                Error::invalid("jit", message)
            })?;
            return Ok(Arc::new(Mesh::single(device)));
        };
        let argument = |(index, (path, _)): (usize, &Argument)| {
            if path.is_empty() {
                format!("argument {index}")
            } else {
                format!("argument {index}, `{path}`,")
            }
        };
        let mut all = arguments.iter().enumerate();
        let first = all.clone().next();
        let other = all.find(|(_, (_, spec))| {
            let other = spec.sharding.mesh();
            other != mesh && !is_same_device(other, mesh)
        });
        let (Some(first), Some(other)) = (first, other) else {
            return Ok(mesh.clone());
        };
        let runs = match self.mesh {
            Some(_) => "runs".to_string(),
            None => format!("has {}", argument(first)),
        };
        let (_, (_, spec)) = other;
        let message = format!(
            "`{name}` {runs} on {}, but {} is on {}; a call has all arguments on one mesh",
            listed(mesh),
            argument(other),
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

/// The type of an argument on this mesh. Another one has the same single device, and perhaps other
/// axes, which split nothing.
fn on_mesh(spec: &ArraySpec, mesh: &Mesh) -> ShardedType {
    if **spec.sharding.mesh() == *mesh {
        ShardedType::from(spec)
    } else {
        ShardedType {
            spec: PartitionSpec::replicated(),
            ..ShardedType::from(spec)
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

/// Checks that the compiler gave the outputs, the next state first, the shardings that were
/// requested.
fn check_outputs(
    loaded: &Loaded,
    signature: &Signature,
    paths: &dyn Fn() -> Vec<String>,
) -> Result<()> {
    if loaded.devices().len() == 1 {
        return Ok(());
    }
    let state = (signature.arguments.state.iter()).map(|(path, spec)| (path.to_string(), spec));
    let outputs = paths().into_iter().zip(&signature.outputs);
    let results: Vec<_> = state.chain(outputs).collect();
    loaded.check_outputs(
        results
            .iter()
            .map(|(path, spec)| (path.as_str(), &spec.ty, &spec.sharding)),
    )
}
