//! `halite plan`: compiles a training step for devices that the machine does not have.

mod child;
mod model;
mod search;

use std::{env, path::PathBuf, process::ExitCode};

use clap::Args;
use halite::{
    Error, MeshShape, Result, TensorType,
    backends::{Located, OpenOptions, OpenTarget, Target, parse_bytes},
    fetch,
    ir::cost,
    models::{Classify, Cnn, LanguageModel, Mlp, TrainingOptions, TrainingStep},
    nn::{AdamW, Optimizer, TransformerConfig},
    plan::{self, Candidate, Plan},
    train::{LowerOptions, NumericsOptions, Strategy, Task, flags::positive, lower_step},
};
use indicatif::ProgressBar;

use self::model::{Classified, IMAGENET_CLASSES, Model};
use super::{
    step::{ShardingArgs, TransformerArgs, default_in_help, training_options},
    waiting,
};

/// Estimate memory, communication and speed of a training step on TPUs or GPUs, without having them
///
/// The vendor's compiler compiles the whole step: forward, backward, collectives and optimizer. This
/// needs no device, no data, and no memory of the model's size, so that a laptop can plan for a pod.
/// The compiler runs in a child process: if it aborts or hangs, that is an error.
///
/// The exit code is 0 if the step fits, 3 if it does not, else 1.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("mesh", |arg| arg.conflicts_with("search")),
    mut_arg("gradient_clip_val", |arg| default_in_help(arg, "1 for transformers, 0 for image models"))
)]
pub(crate) struct PlanCommand {
    /// `mnist-mlp`, `mnist-cnn`; a classifier of color images: `resnet18`, `resnet34`, `resnet50`,
    /// `efficientnet-lite0` to `-lite4`, `vit-s16`, `vit-b16`, `vit-l16`, `vit-10b`; or a
    /// transformer: `tiny`, `small`, `gpt2-124m`, `gpt2-medium`, `gpt2-large`, `gpt2-xl`,
    /// `llama-7b`, `llama-13b`, `llama3-8b`
    #[arg(value_name = "MODEL")]
    model: Model,
    /// Target devices: `tpu:v5e:4x4`, `tpu:v4:4x4x4,megacore`, `cuda:h100:1x8` (hosts x devices per
    /// host), `cpu:8`
    #[arg(long, value_name = "TARGET")]
    target: Target,
    #[command(flatten)]
    sharding: ShardingArgs,
    /// Samples of a batch, over all devices [default: 8 per device; 32 of color images, 128 of digits]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: Option<usize>,
    #[command(flatten)]
    transformer: TransformerArgs,
    #[command(flatten)]
    numerics: NumericsOptions,
    /// Try several meshes and strategies, or meshes of --strategy, and report which fit and which is
    /// estimated fastest; as --mesh auto
    #[arg(long)]
    search: bool,
    /// Find the largest batch that fits: a power of two for each part of the mesh
    #[arg(long, conflicts_with = "search")]
    largest_batch: bool,
    /// Memory of a device, in place of what the target reports: `16G`, `500M`
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory_limit: Option<u64>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Timeout of the compiler, per sharding
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    deadline: u64,
    /// Print the output of the compiler's plugin, also if nothing fails
    #[arg(short, long)]
    verbose: bool,
    /// Compile in this process, without a timeout, for debugging; implied by --profile. A compiler
    /// that aborts ends the process
    #[arg(long)]
    in_process: bool,
    /// Fail if the compiler's plugin is missing, instead of installing it
    #[arg(long)]
    offline: bool,
    /// Cache directory of packages [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Index of the sharding that this child process compiles.
    #[arg(long, hide = true, value_name = "NUMBER")]
    as_child: Option<usize>,
    /// Batch size of this child process.
    #[arg(long, hide = true, value_name = "N")]
    child_batch_size: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  halite plan gpt2-124m --target tpu:v5e:4x4                          data parallel over 16 chips
  halite plan llama-7b --target tpu:v5p:8x8x8 --strategy fsdp         does it fit 512 chips, and how fast at best
  halite plan llama-7b --target tpu:v5e:16x16 --mesh fsdp=64,model=4 --strategy fsdp+tp
  halite plan resnet50 --target cuda:h100:1x4 --batch-size 1024       color images of 224x224 in 1,000 classes
  halite plan gpt2-xl --target cuda:h100:1x8 --search                 which sharding is best on eight GPUs
  halite plan small --target cpu:1 --largest-batch --memory-limit 8G  how many samples fit 8 GiB
The compilers are downloaded on first use: libtpu 205 MB, CUDA's 234 MB.";

/// Place where programs are compiled.
enum Compiler {
    Here(OpenTarget),
    /// One child process per sharding.
    InChildren(Located),
}

impl PlanCommand {
    /// Runs the command. With `profiled`, it compiles in this process, which is recorded.
    pub(crate) fn run(mut self, profiled: bool) -> Result<ExitCode> {
        let mut candidates = self.candidates()?;
        if let Some(number) = self.as_child.filter(|number| *number < candidates.len()) {
            self.batch_size = self.child_batch_size.or(self.batch_size);
            return Ok(self.run_child(&candidates[number]));
        }
        let (options, mut bar) = (self.open_options(), fetch::Bar::default());
        let compiler = if self.in_process || profiled {
            Compiler::Here(self.open(&options, &mut bar)?)
        } else {
            Compiler::InChildren(self.target.locate(&options, &mut bar)?)
        };
        if self.searches() {
            return self.search(&compiler, candidates);
        }
        let candidate = candidates.remove(0);
        if self.largest_batch {
            return self.largest_batch(&compiler, &candidate);
        }
        let plan = match self.plan_with(&compiler, 0, &candidate, "")? {
            Ok(plan) => plan,
            Err(error) => return Ok(super::say_error(&error)),
        };
        if self.json {
            say!("{}", serde_json::json!(plan))
        } else {
            say!("{plan}")
        }
        Ok(code_of([&plan]))
    }

    /// Plans one of the candidates, on its number. The inner error is that of the sharding.
    fn plan_with(
        &self,
        compiler: &Compiler,
        number: usize,
        candidate: &Candidate,
        progress: &str,
    ) -> Result<Result<Plan, String>> {
        let Candidate { mesh, strategy } = candidate;
        let target = &self.target;
        let message = format!("compiling for {target}, {strategy} on {mesh}{progress}");
        let spinner = self.spinner(message);
        let plan = match compiler {
            Compiler::Here(target) => {
                let plan = self.plan(target, mesh, strategy);
                plan.map_err(|error| error.to_string())
            }
            Compiler::InChildren(located) => self.plan_in_child(number, candidate, located)?,
        };
        spinner.finish_and_clear();
        Ok(plan)
    }

    fn open(
        &self,
        options: &OpenOptions,
        progress: &mut dyn fetch::Progress,
    ) -> Result<OpenTarget> {
        let target = self.target.open(options, progress)?;
        Ok(match self.memory_limit {
            Some(bytes) => target.memory_limit(bytes),
            None => target,
        })
    }

    fn open_options(&self) -> OpenOptions {
        OpenOptions {
            offline: self.offline,
            ..super::open_options(self.cache_dir.clone())
        }
    }

    /// Whether several shardings are tried.
    fn searches(&self) -> bool {
        self.search || self.sharding.is_auto()
    }

    /// Returns the shardings to plan: one, or those that a search tries.
    fn candidates(&self) -> Result<Vec<Candidate>> {
        let devices = self.target.device_count();
        if self.largest_batch && self.sharding.is_auto() {
            let message = "--largest-batch is of one mesh; give its axes in place of --mesh auto";
            return Err(Error::invalid("plan", message));
        }
        if self.searches() {
            return self.sharding.candidates(devices);
        }
        let of_all = || MeshShape::new([("data", devices)]);
        Ok(vec![Candidate {
            mesh: self.sharding.axes().cloned().map_or_else(of_all, Ok)?,
            strategy: self.sharding.strategy()?,
        }])
    }

    /// Returns true if the stderr of the child, with its log, is printed here too.
    fn echoes(&self) -> bool {
        self.verbose || env::var_os("HALITE_LOG").is_some_and(|filter| !filter.is_empty())
    }

    fn plan(&self, target: &OpenTarget, axes: &MeshShape, strategy: &Strategy) -> Result<Plan> {
        match &self.model {
            Model::Mlp => {
                let model = Mlp::new(&[28 * 28, 512, 512, 10]);
                let step = Classify::<Mlp<()>>::step(28, model, &self.image_options()?);
                self.plan_step(target, axes, strategy, step)
            }
            Model::Cnn => {
                let step = Classify::<Cnn<()>>::step(28, Cnn::new(28, 10), &self.image_options()?);
                self.plan_step(target, axes, strategy, step)
            }
            Model::Classifier(classifier) => {
                let visitor = Classified {
                    command: self,
                    target,
                    axes,
                    strategy,
                    options: self.image_options()?,
                    side: classifier.framing().side,
                };
                classifier.visit(IMAGENET_CLASSES, visitor.side, visitor)
            }
            Model::Transformer(model) => {
                let config = self.transformer.config(model);
                let step = self.training_step(&config)?;
                let plan = self.plan_step(target, axes, strategy, step)?;
                if config.remat.is_none() {
                    let model_flops = plan.work.contractions;
                    return Ok(plan.with_model_flops(model_flops));
                }
                // The model FLOPs do not count what rematerialization recomputes.
                let saved = self.training_step(&TransformerConfig {
                    remat: None,
                    ..config
                })?;
                let (batch, options) = self.batch_and_options(target, axes, strategy, &saved)?;
                let step = lower_step(saved.task, saved.model, saved.optimizer, &batch, &options)?;
                Ok(plan.with_model_flops(cost(&step.graph).contractions()))
            }
        }
    }

    /// Default batch size of a device.
    fn samples_of_device(&self) -> usize {
        match self.model {
            Model::Mlp | Model::Cnn => 128,
            Model::Classifier(_) => 32,
            Model::Transformer(_) => 8,
        }
    }

    /// Plans one step.
    fn plan_step<K: Task, O: Optimizer>(
        &self,
        target: &OpenTarget,
        axes: &MeshShape,
        strategy: &Strategy,
        step: TrainingStep<K, O>,
    ) -> Result<Plan> {
        let (batch, options) = self.batch_and_options(target, axes, strategy, &step)?;
        plan::plan(
            target,
            step.task,
            step.model,
            step.optimizer,
            &batch,
            &options,
        )
    }

    fn batch_and_options<K: Task, O>(
        &self,
        target: &OpenTarget,
        axes: &MeshShape,
        strategy: &Strategy,
        step: &TrainingStep<K, O>,
    ) -> Result<(Vec<TensorType>, LowerOptions)> {
        let mesh = target.mesh(axes.clone())?;
        let samples = self
            .batch_size
            .unwrap_or_else(|| self.samples_of_device().saturating_mul(mesh.size()));
        let auto = || self.target.default_policy();
        let options = LowerOptions {
            clip: step.clip,
            accumulate_grad_batches: self.numerics.accumulate_grad_batches,
            precision: self.numerics.precision.unwrap_or_else(auto),
            ..LowerOptions::new(&mesh, strategy.clone())
        };
        Ok((step.batch(samples), options))
    }

    /// Returns the training step of a transformer.
    fn training_step(
        &self,
        config: &TransformerConfig,
    ) -> Result<TrainingStep<LanguageModel, AdamW>> {
        let clip = Some(LanguageModel::CLIP_NORM);
        LanguageModel::step(config, &self.options(clip))
    }

    /// Returns the options of the training step of an image model, which has no blocks.
    fn image_options(&self) -> Result<TrainingOptions> {
        match &self.transformer.given()[..] {
            [] => Ok(self.options(None)),
            flags => {
                let message = format!("{} applies to transformers only", flags.join(", "));
                Err(Error::invalid("plan", message))
            }
        }
    }

    /// The program does not depend on the learning rate and the number of steps, which are
    /// arguments of it.
    fn options(&self, clip: Option<f64>) -> TrainingOptions {
        const STEPS: u64 = 1000;
        let peak = TrainingOptions::LEARNING_RATE;
        let schedule = TrainingOptions::warmup_and_cosine(peak, STEPS);
        training_options(&self.numerics, schedule, clip)
    }

    /// Returns a spinner: compiling for a pod takes a minute or two.
    fn spinner(&self, message: String) -> ProgressBar {
        if self.echoes() {
            ProgressBar::hidden()
        } else {
            waiting(message)
        }
    }
}

/// The exit code of these plans: that of the one that fits, if any does.
fn code_of<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> ExitCode {
    let mut plans = plans.into_iter();
    match plans.next() {
        Some(plan) if plan.fits() || plans.any(Plan::fits) => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(DOES_NOT_FIT),
        None => ExitCode::FAILURE,
    }
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "expected a number of bytes, such as 16G or 500M".into())
}

/// Exit status of a plan that does not fit.
const DOES_NOT_FIT: u8 = 3;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use halite::{DeviceId, Mesh};

    use super::*;
    use crate::cli::train::text::tests;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        plan: PlanCommand,
    }

    /// Returns the program of a training step on four devices.
    fn program(step: TrainingStep<LanguageModel, AdamW>) -> Vec<u8> {
        let mesh = Arc::new(Mesh::new([("data", 4)], (0..4).map(DeviceId)).unwrap());
        let options = LowerOptions {
            clip: step.clip,
            ..LowerOptions::new(&mesh, Strategy::data_parallel())
        };
        let batch = step.batch(8);
        let step = lower_step(step.task, step.model, step.optimizer, &batch, &options);
        step.unwrap().program.code.bytes().to_vec()
    }

    #[test]
    fn plan_compiles_the_step_that_train_runs() {
        let mut programs = Vec::new();
        for options in [
            "",
            "--remat full",
            "--remat save-dots --dropout 0.1",
            "--clip-norm 0",
            "--context 8",
        ] {
            let arguments = format!("plan tiny --target cpu:4 {options}");
            let Command { plan } = Command::try_parse_from(arguments.split_whitespace()).unwrap();
            let Model::Transformer(model) = &plan.model else {
                panic!("tiny is a transformer")
            };
            let planned = plan.training_step(&plan.transformer.config(model));
            let planned = program(planned.unwrap());
            let trained = program(tests::training_step(&format!("--model tiny {options}")));
            assert!(planned == trained, "{options}");
            assert!(!programs.contains(&planned), "{options} has no effect");
            programs.push(planned);
        }
    }
}
