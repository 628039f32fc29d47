//! The whole training step as a program, without devices.

use std::sync::Arc;

use halite_core::{
    Capabilities, DType, DTypePolicy, Error, MeshShape, Program, Result, TensorType,
    tree::{Family, Leaf, Tree},
};
use halite_ir::Graph;
use halite_nn::{Lowered, Optimizer, ShardedType, Stages};

use crate::{
    GradientClip, Strategy, Task,
    programs::{BatchTypes, ModelParams, Step, StepOptions, StepParts},
    strategy::check_sizes,
};

/// Target and options of a lowered step.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// Axes that the devices are arranged along.
    pub mesh: MeshShape,
    /// Sharding of parameters, optimizer slots and the batch over the mesh.
    pub strategy: Strategy,
    /// Clipping of the gradients; `None` does not clip them.
    pub clip: Option<GradientClip>,
    /// Batches whose gradients are added before the optimizer's update.
    pub accumulate_grad_batches: usize,
    /// Compute and parameter dtypes.
    pub precision: DTypePolicy,
    /// Capabilities of the devices, which decide where the narrower types of
    /// [`precision`](Self::precision) are used, and whether the program calls halite's kernels.
    pub capabilities: Capabilities,
}

impl LowerOptions {
    /// Options without clipping, in `f32`, for devices that compute as fast in a narrower type
    /// everywhere.
    pub fn new(mesh: &MeshShape, strategy: Strategy) -> Self {
        LowerOptions {
            mesh: mesh.clone(),
            strategy,
            clip: None,
            accumulate_grad_batches: 1,
            precision: DTypePolicy::F32,
            capabilities: Capabilities::PORTABLE,
        }
    }
}

/// The training step that a trainer compiles, as a program: forward pass, backward pass, the
/// optimizer's update, and metrics.
#[derive(Debug)]
pub struct LoweredStep {
    /// The computation of one step over all devices, optimized.
    pub graph: Graph,
    /// The same as a program for a compiler.
    pub program: Program,
    /// Inputs, by path: the state (`model.`, `slots.`, `step`, `key`, `scale.`, `average.`,
    /// `rate_factor`), whose memory the program reuses; then the batch (`batch.`), the metrics (`window`), and the optimizer's
    /// numbers (`hyperparameters`).
    pub inputs: Vec<(String, ShardedType)>,
    /// Outputs, by path: the next state and the metrics.
    pub outputs: Vec<(String, ShardedType)>,
    /// Duration of tracing and printing.
    pub stages: Stages,
}

/// Lowers the training step of `task` for `model` with `optimizer`: with the capabilities of its
/// devices, the program that [`Trainer::fit`](crate::Trainer::fit) compiles. Nothing runs, and
/// nothing of the size of the model is allocated.
///
/// `fields` has the types of the fields of a batch over all devices, the number of samples first;
/// the weights of the samples, `f32[samples]`, may be left out.
///
/// ```
/// use halite_core::{DType, MeshShape, TensorType, tree::Tree};
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
/// let mesh = MeshShape::new([("data", 256)])?;
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
/// All mistakes of the task's code at once; a parameter or a batch that does not divide, or whose
/// size overflows, with the path and the numbers.
pub fn lower_step<K: Task, O: Optimizer>(
    task: K,
    model: ModelParams<K>,
    optimizer: O,
    fields: &[TensorType],
    options: &LowerOptions,
) -> Result<LoweredStep> {
    let LowerOptions {
        mesh,
        strategy,
        clip,
        accumulate_grad_batches,
        precision,
        capabilities,
    } = options;
    precision.check()?;
    if *accumulate_grad_batches == 0 {
        let message = "`accumulate_grad_batches` is 0; it must be at least 1";
        return Err(Error::invalid("lower", message));
    }
    let numbered = fields.iter().enumerate();
    check_sizes("batch", numbered.map(|(index, ty)| (index.to_string(), ty)))?;
    strategy.check(mesh)?;
    let batch = batch_types::<K>(fields, mesh, strategy)?;
    let parts = StepParts {
        task: &Arc::new(task),
        params: &Arc::new(model),
        optimizer: &Arc::new(optimizer),
        options: StepOptions {
            clip: *clip,
            accumulate: *accumulate_grad_batches,
            has_weights: batch.leaf_count() > fields.len(),
            ..StepOptions::new(*precision)
        },
        strategy,
    };
    lower_parts(&parts, mesh, batch, capabilities)
}

/// Lowers the step of these parts for batches of this type.
pub(crate) fn lower_parts<K: Task, O: Optimizer>(
    parts: &StepParts<'_, K, O>,
    mesh: &MeshShape,
    batch: BatchTypes<K>,
    capabilities: &Capabilities,
) -> Result<LoweredStep> {
    let step = Step::new(parts, mesh, &batch)?;
    let batch = batch.map_leaves(|_, ty| parts.options.input(&ty));
    let lowered = step.lower(mesh, &batch, capabilities)?;
    for warning in &lowered.warnings {
        halite_core::warning!("{warning}");
    }
    Ok(with_paths(&step, &batch, lowered))
}

/// Names the inputs and outputs of a lowered step by their paths.
fn with_paths<K: Task, O: Optimizer>(
    step: &Step<K, O>,
    batch: &BatchTypes<K>,
    lowered: Lowered<Leaf<()>>,
) -> LoweredStep {
    let Lowered {
        graph,
        program,
        hyperparameters,
        outputs,
        stages,
        ..
    } = lowered;
    let named = |path: String, ty: &ShardedType| (path, ty.clone());
    let state = step.state.named().into_iter();
    let state: Vec<_> = state.map(|(path, ty)| named(path, ty)).collect();
    let batch = batch.named().into_iter();
    let batch = batch.map(|(path, ty)| named(format!("batch.{path}"), ty));
    let window = outputs.into_iter().map(|ty| ("window".to_string(), ty));
    let window: Vec<_> = window.collect();
    let hyperparameters = hyperparameters.into_iter();
    let hyperparameters = hyperparameters.map(|(ty, _)| ("hyperparameters".to_string(), ty));
    LoweredStep {
        graph,
        program,
        inputs: (state.iter().cloned())
            .chain(batch)
            .chain(window.iter().cloned())
            .chain(hyperparameters)
            .collect(),
        outputs: [state.as_slice(), &window].concat(),
        stages,
    }
}

/// The batch of these fields, each split by samples over the batch axes.
fn batch_types<K: Task>(
    fields: &[TensorType],
    mesh: &MeshShape,
    strategy: &Strategy,
) -> Result<BatchTypes<K>> {
    let template = <K::Batch as Family>::Of::<()>::default();
    let paths = template.paths();
    let (Some(first), true) = (
        fields.first(),
        [fields.len(), fields.len() + 1].contains(&paths.len()),
    ) else {
        let message = format!(
            "the task's batch has {} leaves ({}), but {} types were given",
            paths.len(),
            paths.join(", "),
            fields.len()
        );
        return Err(Error::invalid("lower", message));
    };
    let samples = first.dims().first().copied().unwrap_or(0);
    let weights = TensorType::new(DType::F32, [samples]);
    let spec = strategy.batch_spec(mesh);
    let mut types = Vec::with_capacity(paths.len());
    for (path, ty) in paths.iter().zip(fields.iter().chain([&weights])) {
        let of_field = |why: String| Error::invalid("lower", format!("`batch.{path}`: {why}"));
        if samples == 0 || ty.dims().first() != Some(&samples) {
            return Err(of_field(format!(
                "{ty}: the first dimension of every field must be the number of samples, as in \
                 {first}"
            )));
        }
        let ty = ShardedType::new(ty.clone(), spec.clone());
        ty.shard_type(mesh)
            .map_err(|error| of_field(error.message().to_string()))?;
        types.push(ty);
    }
    Ok(template.rebuild(types))
}
