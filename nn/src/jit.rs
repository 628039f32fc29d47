//! Compiling traced functions, once per combination of input types, and running them on arrays.

mod background;
mod cache;
mod lower;
mod report;
mod spec;

use std::{
    collections::HashSet,
    fmt,
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

pub use halite_core::Stages;
use halite_core::{
    Arg, Array, Client, CompileCause, CompileOptions, DType, DTypePolicy, Error, Launch, Loaded,
    Mesh, PartitionSpec, Reason, Result, TensorType,
    tree::{Empty, Family, Path, Tree},
};

use self::{
    background::{Begun, Timed},
    cache::{Border, Compiled, known, what_changed},
    report::largest,
};
pub use self::{lower::Lowered, spec::ArraySpec};
use crate::{Tensor, Trace};

/// The leaves of a family, as tensors of a trace.
pub type Traced<'t, F> = <F as Family>::Of<Tensor<'t>>;

type Function<S, I, O> = dyn for<'t> Fn(&'t Trace, Traced<'t, S>, Traced<'t, I>) -> (Traced<'t, S>, Traced<'t, O>)
    + Send
    + Sync;

/// How an output, by path and type, lies over the devices.
type OutputSpec = dyn Fn(&str, &TensorType) -> PartitionSpec + Send + Sync;

/// Which element type devices hold of an output, by path and type.
type OutputStored = dyn Fn(&str, &TensorType) -> DType + Send + Sync;

/// A function of tensors, compiled when it is first called with arrays of new types, and kept.
///
/// It takes a *state*, whose memory it may reuse, and *inputs*, which it only reads; it gives the
/// next state and outputs. The state is moved in, so using an old state does not compile. Each of
/// the three is a [`Tree`](halite_core::tree::Tree): write its [`Family`], such as `Mlp<()>`,
/// [`Leaf<()>`](halite_core::tree::Leaf) for one tensor, or [`Empty<()>`] for none.
///
/// The whole function is one program: one launch, nothing read back. A call returns when the work
/// is queued.
///
/// Static fields of the trees, such as a dropout rate, are part of the program: they are read when
/// it is traced, and a call whose trees differ in nothing else uses the program there is. So are
/// Rust numbers in the traced code. A number that changes from call to call is an input,
/// `Leaf(Array::scalar(..))`; one that changes from run to run, as a learning rate, is a
/// [hyperparameter](Trace::hyperparameter). Neither is compiled again for another value.
///
/// ```
/// use halite_core::{Array, Client, DType, Null, Sharding, tree::Leaf};
/// use halite_nn::Jit;
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Null::new(1)); // a real one comes from `halite_backends::Accelerator`
/// let count = Jit::<Leaf<()>, Leaf<()>, Leaf<()>>::new(&client, |_cx, Leaf(sum), Leaf(x)| {
///     let sum = sum + x;
///     (Leaf(sum), Leaf(sum / 2.0))
/// });
/// let device = Sharding::single(client.local_devices()[0]);
/// let scalar = |value: f32| Array::scalar(&client, value, &device);
/// let (state, half) = count.call(Leaf(scalar(0.0)?), &Leaf(scalar(3.0)?))?;
/// assert_eq!(half.0.ty().dtype(), DType::F32);
/// # drop(state);
/// # Ok(())
/// # }
/// ```
pub struct Jit<S: Family, I: Family, O: Family> {
    client: Client,
    name: String,
    mesh: Option<Arc<Mesh>>,
    options: CompileOptions,
    precision: DTypePolicy,
    function: Box<Function<S, I, O>>,
    output_spec: Box<OutputSpec>,
    output_stored: Box<OutputStored>,
    origin: &'static Location<'static>,
    /// Whether the lines that call it are of a library, and tell a user nothing.
    made_by_library: bool,
    /// Least recently used first, at most `limit`. Held only to look and to add.
    programs: Mutex<Vec<Arc<Compiled<O>>>>,
    limit: usize,
    /// Held while compiling, so that threads that want the same program wait for it instead of
    /// compiling it twice.
    compiling: Mutex<()>,
    /// Programs that threads of their own compile.
    begun: Mutex<Vec<Begun<O>>>,
    compiles: AtomicU64,
    /// What all compiles took, also those of programs that are no longer kept.
    spent: Mutex<Stages>,
    /// Programs that made room for others.
    evictions: AtomicU64,
    /// Warnings of the traced code that are logged already.
    warned: Mutex<HashSet<String>>,
}

/// How many programs a function keeps, if nobody says otherwise.
const DEFAULT_LIMIT: usize = 64;

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// `function` from `(state, inputs)` to `(next state, outputs)`. It is traced at the first
    /// call, not now.
    ///
    /// The next state has the types of the state.
    #[track_caller]
    pub fn new(
        client: &Client,
        function: impl for<'t> Fn(
            &'t Trace,
            Traced<'t, S>,
            Traced<'t, I>,
        ) -> (Traced<'t, S>, Traced<'t, O>)
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Jit {
            client: client.clone(),
            name: "main".to_string(),
            mesh: None,
            options: CompileOptions::default(),
            precision: DTypePolicy::F32,
            function: Box::new(function),
            output_spec: Box::new(|_, _| PartitionSpec::replicated()),
            output_stored: Box::new(|_, ty| ty.dtype()),
            origin: Location::caller(),
            made_by_library: false,
            programs: Mutex::default(),
            compiling: Mutex::default(),
            begun: Mutex::default(),
            compiles: AtomicU64::new(0),
            limit: DEFAULT_LIMIT,
            spent: Mutex::default(),
            evictions: AtomicU64::new(0),
            warned: Mutex::default(),
        }
    }

    /// The line to name in reports, for functions that a library makes for its caller. Without
    /// this, it is the line that called [`new`](Self::new).
    pub fn of_line(mut self, origin: &'static Location<'static>) -> Self {
        self.origin = origin;
        self.made_by_library = true;
        self
    }

    /// The function's name. With [`origin`](Self::origin) it identifies the function in telemetry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line that created this function.
    pub fn origin(&self) -> &'static Location<'static> {
        self.origin
    }

    /// A name for dumps, reports and messages.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The devices to run on, for a function whose inputs do not say.
    pub fn on(mut self, mesh: &Arc<Mesh>) -> Self {
        self.mesh = Some(mesh.clone());
        self
    }

    /// The most programs to keep, one for each combination of input types: 64 by default, at least 1.
    /// Beyond that the least recently used one is dropped, with a warning, and compiled again when
    /// it is called for.
    pub fn max_programs(mut self, most: usize) -> Self {
        self.limit = most.max(1);
        self
    }

    /// Options of the plugin's compiler.
    pub fn options(mut self, options: CompileOptions) -> Self {
        self.options = options;
        self
    }

    /// Which element types it computes in. Arrays keep theirs: parameters that are kept in a narrow
    /// type come from a function with [`output_stored`](Self::output_stored), or from
    /// [`Array::upload_as`].
    pub fn precision(mut self, policy: DTypePolicy) -> Self {
        self.precision = policy;
        self
    }

    /// How each output, by path and type, lies over the devices. Without this, outputs are whole on
    /// every device. The next state always lies as the state does.
    pub fn output_specs(
        mut self,
        spec: impl Fn(&str, &TensorType) -> PartitionSpec + Send + Sync + 'static,
    ) -> Self {
        self.output_spec = Box::new(spec);
        self
    }

    /// Which element type devices hold of each output, by path and type. Without this, its own. The
    /// next state is always kept as the state is.
    pub fn output_stored(
        mut self,
        stored: impl Fn(&str, &TensorType) -> DType + Send + Sync + 'static,
    ) -> Self {
        self.output_stored = Box::new(stored);
        self
    }

    /// Queues one run, after compiling if the types or layouts are new.
    ///
    /// # Errors
    /// All mistakes of the traced code at once; what the compiler says; a state or input on another
    /// mesh than the rest. The state is lost then; [`prepare`](Self::prepare) finds all of these
    /// before there is anything to lose.
    #[track_caller]
    pub fn call(
        &self,
        state: S::Of<Array>,
        inputs: &I::Of<Array>,
    ) -> Result<(S::Of<Array>, O::Of<Array>)> {
        self.call_with(state, Tree::as_ref(inputs))
    }

    /// As [`call`](Self::call), for inputs that are in several places: a tree of references.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn call_with(
        &self,
        state: S::Of<Array>,
        inputs: I::Of<&Array>,
    ) -> Result<(S::Of<Array>, O::Of<Array>)> {
        let compiled = match self.find(&state, &inputs) {
            Some(compiled) => compiled,
            None => self.compile_for(&state, &inputs)?,
        };
        let Compiled {
            border,
            loaded,
            hyperparameters,
            ..
        } = &*compiled;
        let count = border.state.len() + border.inputs.len() + hyperparameters.len();
        let mut args: Vec<_> = loaded
            .devices()
            .iter()
            .map(|_| Vec::with_capacity(count))
            .collect();
        let state_shape = state.map(|_, array| {
            for (row, shard) in args.iter_mut().zip(array.into_shards()) {
                row.push(Arg::Donate(shard));
            }
        });
        for array in inputs.leaves().into_iter().copied().chain(hyperparameters) {
            for (row, shard) in args.iter_mut().zip(array.shards()) {
                row.push(Arg::Borrow(shard));
            }
        }
        let launched = loaded.launch(Launch { args })?;
        let mut rows: Vec<_> = launched.outputs.into_iter().map(Vec::into_iter).collect();
        let mut specs = border
            .state
            .iter()
            .map(|(_, spec)| spec)
            .chain(&border.outputs);
        let mut next = |_: &Path, ()| {
            let spec = specs.next().expect("a program knows what it gives");
            let shards = rows
                .iter_mut()
                .map(|row| {
                    row.next()
                        .expect("a launch gives the results of its signature")
                })
                .collect();
            Array::from_shards_as(spec.ty.clone(), &spec.sharding, shards, spec.stored)
        };
        let state = state_shape.try_map(&mut Path::new(), &mut next)?;
        let outputs =
            Tree::as_ref(&border.shape).try_map(&mut Path::new(), &mut |path, _| next(path, ()))?;
        Ok((state, outputs))
    }

    /// Compiles for arrays like these, if that is not done yet, without running.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn prepare(&self, state: &S::Of<ArraySpec>, inputs: &I::Of<ArraySpec>) -> Result<Stages> {
        Ok(self.compile(state, inputs)?.stages)
    }

    /// As [`prepare`](Self::prepare), but only traces now. A thread compiles, and who wants the
    /// program first waits for it.
    ///
    /// # Errors
    /// All mistakes of the traced code at once. What the compiler says comes with the first call,
    /// or with `prepare`.
    #[track_caller]
    pub fn prepare_in_background(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<()> {
        let _compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let begun = || self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = self
            .programs()
            .iter()
            .any(|compiled| compiled.border.is(state, inputs));
        if compiled || begun().iter().any(|begun| begun.border.is(state, inputs)) {
            return Ok(());
        }
        let (border, stages, compile) = self.uncompiled(state, inputs)?;
        // Beyond the limit, or if no thread can be started, it is compiled at its first use.
        if begun().len() >= self.limit {
            return Ok(());
        }
        if let Ok(thread) = thread::Builder::new().name("compile".into()).spawn(compile) {
            begun().push(Begun {
                border,
                stages,
                thread: Joined(Some(thread)),
            });
        }
        Ok(())
    }

    /// Whether a thread of [`prepare_in_background`](Self::prepare_in_background) is still
    /// compiling.
    pub fn is_compiling(&self) -> bool {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.iter().any(|begun| !begun.thread.is_finished())
    }

    /// Leaves the threads of [`prepare_in_background`](Self::prepare_in_background) to themselves:
    /// nobody waits for them any more, also when this is dropped. A process that ends while one of
    /// them is in a compiler may end badly, unless it ends without running destructors (`_exit`).
    pub fn abandon_background(&self) {
        let abandoned =
            std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        for mut begun in abandoned {
            drop(begun.thread.0.take());
        }
    }

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

    /// How often this function was compiled, or taken out of the client's cache of programs.
    pub fn compiles(&self) -> u64 {
        self.compiles.load(Relaxed)
    }

    /// How many programs were dropped because there were more than
    /// [`max_programs`](Self::max_programs).
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// How long all compiles of this function took together.
    pub fn stages(&self) -> Stages {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program that was last used or prepared, if there is one: its sizes, its estimates.
    pub fn with_loaded<R>(&self, look: impl FnOnce(&Loaded) -> R) -> Option<R> {
        let last = self.programs().last().cloned();
        last.map(|compiled| look(&compiled.loaded))
    }

    fn programs(&self) -> MutexGuard<'_, Vec<Arc<Compiled<O>>>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn compile_for(
        &self,
        state: &S::Of<Array>,
        inputs: &I::Of<&Array>,
    ) -> Result<Arc<Compiled<O>>> {
        let state = Tree::as_ref(state).map(|_, array| ArraySpec::of(array));
        let inputs = Tree::as_ref(inputs).map(|_, array| ArraySpec::of(array));
        self.compile(&state, &inputs)
    }

    #[track_caller]
    fn compile(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<Arc<Compiled<O>>> {
        let _compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = self
            .programs()
            .iter()
            .find(|compiled| compiled.border.is(state, inputs))
            .cloned();
        if let Some(compiled) = known {
            return Ok(compiled);
        }
        let (border, mut stages, timed) = match self.take_begun(state, inputs) {
            Some(begun) => begun,
            None => {
                let (border, stages, compile) = self.uncompiled(state, inputs)?;
                (border, stages, compile())
            }
        };
        let (loaded, took) = timed?;
        stages.compile = took;
        self.compiles.fetch_add(1, Relaxed);
        if loaded.devices().len() > 1 {
            let outputs = border.shape.paths().into_iter().zip(&border.outputs);
            let results: Vec<_> = state.named().into_iter().chain(outputs).collect();
            loaded.check_outputs(
                results
                    .iter()
                    .map(|(path, spec)| (path.as_str(), &spec.ty, &spec.sharding)),
            )?;
        }
        tracing::debug!(name = %self.name, trace = ?stages.trace, print = ?stages.print, compile = ?stages.compile, "compiled");
        let hyperparameters = (border.hyperparameters.iter())
            .map(|(spec, values)| Array::upload(&self.client, values, &spec.sharding))
            .collect::<Result<_>>()?;
        let compiled = Arc::new(Compiled {
            border,
            hyperparameters,
            loaded,
            stages,
        });
        self.keep(compiled.clone());
        Ok(compiled)
    }

    /// Logs the warnings of a trace that were not logged before.
    fn log_warnings(&self, cx: &Trace) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in cx.warnings() {
            let text = warning.to_string();
            if !warned.contains(&text) {
                halite_core::warning!("{text}");
                warned.insert(text);
            }
        }
    }

    /// A program that is traced and printed, and what compiles it.
    #[track_caller]
    fn uncompiled(
        &self,
        state: &S::Of<ArraySpec>,
        inputs: &I::Of<ArraySpec>,
    ) -> Result<(
        Border<O>,
        Stages,
        impl FnOnce() -> Result<Timed> + Send + use<S, I, O>,
    )> {
        let last = self.programs().last().cloned();
        let reason = match last {
            None => Reason::First,
            Some(last) => {
                let new = state.named().into_iter().chain(inputs.named()).collect();
                let known = last
                    .border
                    .state
                    .iter()
                    .chain(&last.border.inputs)
                    .map(|(_, spec)| spec)
                    .collect();
                let reason = what_changed(known, new);
                halite_core::warning!(
                    "`{}` ({}) is compiled again: {reason}",
                    self.name,
                    self.origin
                );
                reason
            }
        };
        let Lowered {
            program,
            hyperparameters,
            outputs,
            shape,
            stages,
            graph,
        } = self.lower(state, inputs)?;
        let paths = state.paths().into_iter().chain(inputs.paths());
        let cause = CompileCause {
            origin: Some(self.origin),
            called_at: if self.made_by_library {
                None
            } else {
                Some(Location::caller())
            },
            reason,
            stages,
            graph: self.client.wants_graph().then(|| graph.to_string()),
            largest: largest(&graph, paths.zip(&program.signature.inputs)),
        };
        let mut options = self.options.clone();
        if options.devices.is_empty() {
            let specs: Vec<_> = state.leaves().into_iter().chain(inputs.leaves()).collect();
            options.devices = self.mesh_of(&specs)?.devices().to_vec();
        }
        let client = self.client.clone();
        let compile = move || {
            let started = Instant::now();
            let loaded = client.compile_because(&program, &options, cause)?;
            Ok((loaded, started.elapsed()))
        };
        Ok((
            Border {
                state: known(state),
                inputs: known(inputs),
                outputs,
                shape,
                hyperparameters,
            },
            stages,
            compile,
        ))
    }

    fn mesh_of(&self, specs: &[&ArraySpec]) -> Result<Arc<Mesh>> {
        let known = self
            .mesh
            .as_ref()
            .or(specs.first().map(|spec| spec.sharding.mesh()));
        let Some(mesh) = known else {
            let device = *self.client.local_devices().first().ok_or_else(|| {
                Error::invalid(
                    "jit",
                    format!(
                        "`{}` has no inputs, and {:?} has no local device to run it on",
                        self.name, self.client
                    ),
                )
            })?;
            return Ok(Arc::new(Mesh::single(device)));
        };
        for spec in specs {
            if spec.sharding.mesh() != mesh {
                let other = spec.sharding.mesh();
                let message = format!(
                    "`{}` has inputs on {mesh} {:?} and on {other} {:?}",
                    self.name,
                    mesh.devices(),
                    other.devices()
                );
                return Err(Error::invalid("jit", message));
            }
        }
        Ok(mesh.clone())
    }
}

impl<I: Family, O: Family> Jit<Empty<()>, I, O> {
    /// `function` from inputs to outputs, without a state.
    #[track_caller]
    pub fn function(
        client: &Client,
        function: impl for<'t> Fn(&'t Trace, Traced<'t, I>) -> Traced<'t, O> + Send + Sync + 'static,
    ) -> Self {
        Jit::new(client, move |cx, _, inputs| {
            (Empty::new(), function(cx, inputs))
        })
    }

    /// Queues one run, after compiling if the types or layouts are new.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn run(&self, inputs: &I::Of<Array>) -> Result<O::Of<Array>> {
        self.run_with(Tree::as_ref(inputs))
    }

    /// As [`run`](Self::run), for inputs that are in several places: a tree of references.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn run_with(&self, inputs: I::Of<&Array>) -> Result<O::Of<Array>> {
        Ok(self.call_with(Empty::new(), inputs)?.1)
    }
}

impl<S: Family, I: Family, O: Family> fmt::Debug for Jit<S, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Jit(`{}` of {}, compiled {} times)",
            self.name,
            self.origin,
            self.compiles()
        )
    }
}
