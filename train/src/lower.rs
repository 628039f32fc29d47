//! The whole training step as a program, without a device.

use std::sync::Arc;

use halite_core::{
    Client, DType, DTypePolicy, Error, Mesh, Null, Program, Result, Sharding, TensorType,
    tree::{Family, Leaf, Tree},
};
use halite_ir::Graph;
use halite_nn::{ArraySpec, Optimizer, Stages};

use crate::{
    Strategy, Task,
    programs::{ModelParams, StepOptions, discover, state_specs, step_program},
};

/// For which devices, and how, a step is lowered.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// The devices. They need not be there: only their number and the axes are looked at.
    pub mesh: Arc<Mesh>,
    /// How parameters, what the optimizer keeps of them, and the batch lie over the mesh.
    pub strategy: Strategy,
    /// As [`TrainerOptions::clip_norm`](crate::TrainerOptions).
    pub clip_norm: Option<f64>,
    /// As [`TrainerBuilder::precision`](crate::TrainerBuilder::precision).
    pub precision: DTypePolicy,
}

impl LowerOptions {
    /// Without clipping, in `f32`.
    pub fn new(mesh: &Arc<Mesh>, strategy: Strategy) -> Self {
        LowerOptions {
            mesh: mesh.clone(),
            strategy,
            clip_norm: None,
            precision: DTypePolicy::F32,
        }
    }
}

/// The step that a trainer would run, as a program: forward, backward, the optimizer's update, the
/// metrics.
#[derive(Debug)]
pub struct LoweredStep {
    /// What one step computes over all devices, simplified.
    pub graph: Graph,
    /// The same for a compiler.
    pub program: Program,
    /// What it takes, by path: the state (`model.`, `slots.`, `step`, `key`, `scale.`), whose
    /// memory it reuses; then the batch (`batch.`), the metrics (`window`), and the numbers of the
    /// optimizer (`hyperparameters`).
    pub inputs: Vec<(String, ArraySpec)>,
    /// What it gives, by path: the next state and the metrics.
    pub outputs: Vec<(String, ArraySpec)>,
    /// How long tracing and printing took.
    pub stages: Stages,
}

/// Lowers the training step of `task` for `model` with `optimizer`, as
/// [`Trainer::fit`](crate::Trainer::fit) would compile it. Nothing runs, and nothing of the size of
/// the model is made: `model` is only described.
///
/// `batch` are the types of the fields of a batch over all devices, the number of samples first;
/// the weights of the samples, `f32[samples]`, may be left out.
///
/// ```
/// use std::sync::Arc;
/// use halite_core::{DType, DeviceId, Mesh, TensorType, tree::Tree};
/// use halite_data::Labeled;
/// use halite_nn::{Adam, Linear, Mean, Tensor, Trace};
/// use halite_train::{LowerOptions, Strategy, Task, lower_step};
///
/// struct Fit;
/// impl Task for Fit {
///     type Model = Linear<()>;
///     type Batch = Labeled<()>;
///
///     fn loss<'t>(&self, _cx: &'t Trace, model: &Linear<Tensor<'t>>, batch: &Labeled<Tensor<'t>>) -> Mean<'t> {
///         Mean::weighted((model.forward(batch.input) - batch.target).square().sum([1]), batch.weight)
///     }
/// }
///
/// # fn main() -> halite_core::Result<()> {
/// let mesh = Arc::new(Mesh::new([("data", 256)], (0..256).map(DeviceId))?);
/// let batch = [[4096, 8192], [4096, 8192]].map(|dims| TensorType::new(DType::F32, dims));
/// let options = LowerOptions::new(&mesh, Strategy::fsdp());
/// let step = lower_step(Fit, Linear::new(8192, 8192), Adam::new(1e-3), &batch, &options)?;
/// assert_eq!(step.program.partitions, 256);
/// assert_eq!(step.inputs[0].0, "model.weight");
/// assert_eq!(step.program.signature.inputs[0].to_string(), "f32[32, 8192]");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// All mistakes of the task's code at once; a parameter or a batch that does not divide, or that no
/// machine can hold, with the path and the numbers.
pub fn lower_step<K: Task, O: Optimizer>(
    task: K,
    model: ModelParams<K>,
    optimizer: O,
    batch: &[TensorType],
    options: &LowerOptions,
) -> Result<LoweredStep>
where
    ModelParams<K>: Send + Sync,
{
    let LowerOptions {
        mesh,
        strategy,
        clip_norm,
        precision,
    } = options;
    precision.check()?;
    check_sizes(
        "batch",
        batch
            .iter()
            .enumerate()
            .map(|(index, ty)| (index.to_string(), ty)),
    )?;
    let (task, model, optimizer) = (Arc::new(task), Arc::new(model), Arc::new(optimizer));
    let state = state_specs::<K::Model, O>(mesh, strategy, &model, &*optimizer, precision)?;
    let batch = batch_specs::<K>(batch, mesh, strategy)?;
    let types = Tree::as_ref(&*model).map(|_, param| param.ty.clone());
    let metrics = discover(&*task, &types, &batch, true)?.of_step(precision);
    // It is asked for devices only by what compiles or runs.
    let nowhere = Client::new(Null::new(0));
    let program = step_program::<K, O>(
        &nowhere,
        mesh,
        &task,
        &model,
        &optimizer,
        StepOptions {
            clip_norm: *clip_norm,
            precision: *precision,
        },
        &metrics,
    );
    let window = metrics.spec(mesh);
    let named = |path: String, spec: &ArraySpec| (path, spec.clone());
    let state_named: Vec<_> = state
        .named()
        .into_iter()
        .map(|(path, spec)| named(path, spec))
        .collect();
    let batch_named: Vec<_> = batch
        .named()
        .into_iter()
        .map(|(path, spec)| named(format!("batch.{path}"), spec))
        .collect();
    let window_named = [("window".to_string(), window.clone())];
    let lowered = program.lower(&state, &(batch, Leaf(window)))?;
    let given = lowered
        .hyperparameters
        .iter()
        .map(|(spec, _)| named("hyperparameters".to_string(), spec))
        .collect::<Vec<_>>();
    Ok(LoweredStep {
        graph: lowered.graph,
        program: lowered.program,
        inputs: [&state_named[..], &batch_named, &window_named, &given].concat(),
        outputs: [&state_named[..], &window_named].concat(),
        stages: lowered.stages,
    })
}

/// Checks that each of these types has a size that can be counted.
///
/// # Errors
/// The first that has not, by its path below `what`.
pub(crate) fn check_sizes<'a>(
    what: &str,
    types: impl IntoIterator<Item = (String, &'a TensorType)>,
) -> Result<()> {
    for (path, ty) in types {
        ty.checked_bytes().map_err(|error| {
            Error::invalid("lower", format!("`{what}.{path}`: {}", error.message()))
        })?;
    }
    Ok(())
}

/// The batch of these fields, each by samples over the axes of the batch.
fn batch_specs<K: Task>(
    fields: &[TensorType],
    mesh: &Arc<Mesh>,
    strategy: &Strategy,
) -> Result<<K::Batch as Family>::Of<ArraySpec>> {
    let template = <K::Batch as Family>::Of::<()>::default();
    let paths = template.paths();
    let (Some(first), true) = (
        fields.first(),
        [fields.len(), fields.len() + 1].contains(&paths.len()),
    ) else {
        let message = format!(
            "the task's batch has {} leaves ({}), {} types are given",
            paths.len(),
            paths.join(", "),
            fields.len()
        );
        return Err(Error::invalid("lower", message));
    };
    let samples = first.dims().first().copied().unwrap_or(0);
    let weights = TensorType::new(DType::F32, [samples]);
    let sharding = Sharding::new(mesh, strategy.batch_spec(mesh))?;
    let mut specs = Vec::with_capacity(paths.len());
    for (path, ty) in paths.iter().zip(fields.iter().chain([&weights])) {
        let of_field = |why: String| Error::invalid("lower", format!("`batch.{path}`: {why}"));
        if samples == 0 || ty.dims().first() != Some(&samples) {
            return Err(of_field(format!(
                "{ty}: the first dimension of every field counts the samples, as in {first}"
            )));
        }
        sharding
            .shard_type(ty)
            .map_err(|error| of_field(error.message().to_string()))?;
        specs.push(ArraySpec::new(ty.clone(), &sharding));
    }
    Ok(template.rebuild(specs))
}
