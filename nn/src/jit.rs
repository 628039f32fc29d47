//! Just-in-time compilation: a cache of programs in front of [`lower`](crate::lower) and a client's
//! compiler.

mod agreement;
mod background;
mod cache;
mod compile;
mod report;

use std::{
    collections::HashSet,
    fmt,
    panic::Location,
    sync::{Arc, Mutex},
};

pub use halite_core::Stages;
use halite_core::{
    Arg, Array, Client, CompileOptions, DType, DTypePolicy, Loaded, Mesh, PartitionSpec, Result,
    TensorType,
    tree::{Empty, Family, Tree},
};

use self::{
    background::Background,
    cache::{Cache, Compiled, CompiledProgram},
};
use crate::{ArraySpec, AxisRoles, Function, Trace, Traced};

/// A [`Function`] compiled just in time: a cache of its programs, one for each combination of
/// argument types, compiled at the first call with them.
///
/// It takes a *state*, whose memory it may reuse, and *inputs*, which it only reads; it returns the
/// next state and outputs. The state is moved in, so using an old state does not compile. Each of
/// the three is a [`Tree`](halite_core::tree::Tree): write its [`Family`], such as `Mlp<()>`,
/// [`Leaf<()>`](halite_core::tree::Leaf) for one tensor, or [`Empty<()>`] for none.
///
/// The whole function is one program: one launch, and nothing is read back. A call returns when the
/// work is queued.
///
/// Static fields of the trees, such as a dropout rate, and Rust numbers in the traced code are
/// constants of the program: they are read when it is traced, and later calls whose arguments have
/// the same types reuse that program. A number that changes from call to call is an input,
/// `Array::scalar(..)`; one that changes from run to run, such as a learning rate, is a
/// [hyperparameter](Trace::hyperparameter). Neither is compiled again for another value.
///
/// ```
/// use halite_core::{Array, Client, DType, Null, tree::Leaf};
/// use halite_nn::Jit;
///
/// # fn main() -> halite_core::Result<()> {
/// let client = Client::new(Null::new(1)); // a real one comes from `halite_backends::Accelerator`
/// let count = Jit::<Leaf<()>, Leaf<()>, Leaf<()>>::new(&client, |_cx, Leaf(sum), Leaf(x)| {
///     let sum = sum + x;
///     (Leaf(sum), Leaf(sum / 2.0))
/// });
/// let scalar = |value: f32| Array::scalar(&client, value);
/// let (state, half) = count.call(scalar(0.0)?, &scalar(3.0)?)?;
/// assert_eq!(half.ty().dtype(), DType::F32);
/// # drop(state);
/// # Ok(())
/// # }
/// ```
pub struct Jit<S: Family, I: Family, O: Family> {
    function: Function<S, I, O>,
    setup: Setup,
    cache: Cache<O>,
    background: Background<O>,
    /// Held while compiling, so that a program that several threads need is compiled once. Threads
    /// that need another program of this function wait, too.
    compiling: Mutex<()>,
}

/// What a function is compiled with and for.
struct Setup {
    client: Client,
    mesh: Option<Arc<Mesh>>,
    options: CompileOptions,
    origin: &'static Location<'static>,
    /// True if a library made the function: the lines that call it mean nothing to a user.
    made_by_library: bool,
    /// Warnings of the traced code that have been logged.
    warned: Mutex<HashSet<String>>,
}

impl<S: Family, I: Family, O: Family> Function<S, I, O> {
    /// Compiles it at its first call on `client`, for each combination of input types.
    #[track_caller]
    pub fn jit(self, client: &Client) -> Jit<S, I, O> {
        Jit {
            function: self,
            setup: Setup {
                client: client.clone(),
                mesh: None,
                options: CompileOptions::default(),
                origin: Location::caller(),
                made_by_library: false,
                warned: Mutex::default(),
            },
            cache: Cache::default(),
            background: Background::default(),
            compiling: Mutex::default(),
        }
    }
}

impl<S: Family, I: Family, O: Family> Jit<S, I, O> {
    /// A function from `(state, inputs)` to `(next state, outputs)`. It is traced at the first
    /// call, not now. The next state must have the types of the state.
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
        Function::new(function).jit(client)
    }

    /// Sets the line to name in reports, for functions that a library makes for its caller: reports
    /// then leave out the lines that call it. The default is the line that called
    /// [`new`](Self::new).
    pub fn of_line(mut self, origin: &'static Location<'static>) -> Self {
        self.setup.origin = origin;
        self.setup.made_by_library = true;
        self
    }

    /// The client that compiles it.
    pub fn client(&self) -> &Client {
        &self.setup.client
    }

    /// The function's name. With [`origin`](Self::origin) it identifies the function in telemetry.
    pub fn name(&self) -> &str {
        &self.function.settings.name
    }

    /// The line that created this function.
    pub fn origin(&self) -> &'static Location<'static> {
        self.setup.origin
    }

    /// Sets the name for dumps, reports and messages.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.function = self.function.named(name);
        self
    }

    /// Sets the devices to run on. Without this, they are those of the inputs; a function without
    /// inputs runs on the first local device.
    pub fn on(mut self, mesh: &Arc<Mesh>) -> Self {
        self.setup.mesh = Some(mesh.clone());
        self
    }

    /// Sets the maximum number of cached programs, one for each combination of input types: 64 by
    /// default, at least 1. Beyond it the least recently used program is dropped, with a warning,
    /// and compiled again when it is needed.
    pub fn max_programs(mut self, most: usize) -> Self {
        self.cache.set_limit(most);
        self
    }

    /// Sets options of the plugin's compiler.
    pub fn options(mut self, options: CompileOptions) -> Self {
        self.setup.options = options;
        self
    }

    /// Sets the element types to compute in. Arrays keep theirs: parameters that are stored in a
    /// narrower type come from a function with [`output_stored`](Self::output_stored), or from
    /// [`Array::upload_as`].
    pub fn precision(mut self, policy: DTypePolicy) -> Self {
        self.function = self.function.precision(policy);
        self
    }

    /// Binds the [`AxisRole`](crate::AxisRole)s that layers name to axes of the mesh. Without this,
    /// constraints by role do nothing.
    pub fn axis_roles(mut self, roles: AxisRoles) -> Self {
        self.function = self.function.axis_roles(roles);
        self
    }

    /// Makes it a function of `length` iterations of the body, in one launch: see
    /// [`Function::scanned`].
    pub fn scanned(mut self, length: usize) -> Self {
        self.function = self.function.scanned(length);
        self
    }

    /// Says that its program runs once: see [`Function::runs_once`].
    pub fn runs_once(mut self) -> Self {
        self.function = self.function.runs_once();
        self
    }

    /// Sets the partition spec of each output, by path and type. Without this, outputs are
    /// replicated. The next state always has the sharding of the state.
    pub fn output_specs(
        mut self,
        spec: impl Fn(&str, &TensorType) -> PartitionSpec + Send + Sync + 'static,
    ) -> Self {
        self.function = self.function.output_specs(spec);
        self
    }

    /// Sets the element type that devices store of each output, by path and type. Without this, it
    /// is the output's own. The next state is always stored as the state is.
    pub fn output_stored(
        mut self,
        stored: impl Fn(&str, &TensorType) -> DType + Send + Sync + 'static,
    ) -> Self {
        self.function = self.function.output_stored(stored);
        self
    }

    /// Like [`call`](Self::call), for code that is generic over the families: trees of arrays, and
    /// of references to arrays.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn call_with(
        &self,
        state: S::Of<Array>,
        inputs: I::Of<&Array>,
    ) -> Result<(S::Of<Array>, O::Of<Array>)> {
        let compiled = match self.cache.find_arrays::<S, I>(&state, &inputs) {
            Some(compiled) => compiled,
            None => self.compile_for(&state, &inputs)?,
        };
        let Compiled { shape, program } = &*compiled;
        let CompiledProgram {
            signature,
            loaded,
            hyperparameters,
            ..
        } = program;
        if let Some(shared) = &signature.shared {
            let called_at = Location::caller();
            shared.before_launch(|| self.described(called_at))?;
        }
        let count = signature.arguments.iter().count() + hyperparameters.len();
        let mut args = Vec::with_capacity(count);
        let state_shape = state.map_leaves(|_, array| args.push(Arg::Donate(array.into_shards())));
        let borrowed = inputs.leaves().into_iter().copied().chain(hyperparameters);
        args.extend(borrowed.map(|array| Arg::Borrow(array.shards())));
        let specs = signature.arguments.state.iter().map(|(_, spec)| spec);
        let specs = specs.chain(&signature.outputs);
        let mut results = specs.zip(loaded.launch(args)?);
        let mut next = || {
            let (spec, shards) = results
                .next()
                .expect("a launch returns the outputs of its signature");
            Array::from_shards_as(spec.ty.clone(), &spec.sharding, shards, spec.stored)
        };
        let state = state_shape.try_map_leaves(|_, ()| next())?;
        let outputs = Tree::leaf_refs(shape).try_map_leaves(|_, _| next())?;
        Ok((state, outputs))
    }

    /// Name and lines for messages: `step` of src/main.rs:7:3, called at src/main.rs:20:9.
    fn described(&self, called_at: &Location<'_>) -> String {
        let (name, origin) = (self.name(), self.setup.origin);
        if self.setup.made_by_library {
            format!("`{name}` of {origin}")
        } else {
            format!("`{name}` of {origin}, called at {called_at},")
        }
    }

    /// Compiles for arrays of these specs, unless that is done already, without running.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    #[track_caller]
    pub fn prepare(&self, state: &S::Of<ArraySpec>, inputs: &I::Of<ArraySpec>) -> Result<Stages> {
        Ok(self.compile(state, inputs)?.program.stages)
    }

    /// Number of times this function was compiled, or taken out of the client's program cache.
    pub fn compiles(&self) -> u64 {
        self.cache.compiles()
    }

    /// Number of programs dropped because there were more than
    /// [`max_programs`](Self::max_programs).
    pub fn evictions(&self) -> u64 {
        self.cache.evictions()
    }

    /// Total duration of all compiles of this function.
    pub fn stages(&self) -> Stages {
        self.cache.total()
    }

    /// Calls `look` with the most recently used or prepared program, for its sizes and estimates;
    /// returns `None` if there is none.
    pub fn with_loaded<R>(&self, look: impl FnOnce(&Loaded) -> R) -> Option<R> {
        self.cache
            .last()
            .map(|compiled| look(&compiled.program.loaded))
    }
}

impl<I: Family, O: Family> Jit<Empty<()>, I, O> {
    /// A function from inputs to outputs, without a state.
    #[track_caller]
    pub fn function(
        client: &Client,
        function: impl for<'t> Fn(&'t Trace, Traced<'t, I>) -> Traced<'t, O> + Send + Sync + 'static,
    ) -> Self {
        Function::stateless(function).jit(client)
    }

    /// Like [`run`](Self::run), for code that is generic over the families.
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
            self.name(),
            self.origin(),
            self.compiles()
        )
    }
}
