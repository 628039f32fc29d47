//! `halite plan`: compiles a training step for devices that the machine does not have.

mod child;
mod search;

use std::{env, path::PathBuf, process::ExitCode, str::FromStr};

use clap::Args;
use halite::{
    DTypePolicy, Error, MeshShape, Param, Result, TensorType,
    backends::{Located, OpenOptions, OpenTarget, Target},
    fetch,
    ir::cost,
    models::{Classify, Cnn, LanguageModel, Mlp, TrainingOptions, TrainingStep},
    nn::{AdamW, Optimizer, TransformerConfig},
    plan::{self, Plan},
    train::{LowerOptions, NumericsOptions, Strategy, Task, flags::positive, lower_step},
    tree::Family,
};
use indicatif::ProgressBar;

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
    mut_arg("strategy", |arg| arg.conflicts_with("search")),
    mut_arg("gradient_clip_val", |arg| default_in_help(arg, "1 for transformers, 0 for image models"))
)]
pub(crate) struct PlanCommand {
    /// `mnist-mlp`, `mnist-cnn`, or a transformer: `tiny`, `small`, `gpt2-124m`, `gpt2-medium`,
    /// `gpt2-large`, `gpt2-xl`, `llama-7b`, `llama-13b`, `llama3-8b`
    #[arg(value_name = "MODEL")]
    model: Model,
    /// Target devices: `tpu:v5e:4x4`, `tpu:v4:4x4x4,megacore`, `cuda:h100:1x8` (hosts x devices per
    /// host), `cpu:8`
    #[arg(long, value_name = "TARGET")]
    target: Target,
    #[command(flatten)]
    sharding: ShardingArgs,
    /// Samples of a batch, over all devices [default: 8 per device, 128 per device for image models]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: Option<usize>,
    #[command(flatten)]
    transformer: TransformerArgs,
    #[command(flatten)]
    numerics: NumericsOptions,
    /// Try several meshes and strategies, and report which fit and which is estimated fastest
    #[arg(long)]
    search: bool,
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
}

const EXAMPLES: &str = "\
Examples:
  halite plan gpt2-124m --target tpu:v5e:4x4                          data parallel over 16 chips
  halite plan llama-7b --target tpu:v5p:8x8x8 --strategy fsdp         does it fit 512 chips, and how fast at best
  halite plan llama-7b --target tpu:v5e:16x16 --mesh fsdp=64,model=4 --strategy fsdp+tp
  halite plan gpt2-xl --target cuda:h100:1x8 --search                 which sharding is best on eight GPUs
The compilers are downloaded on first use: libtpu 205 MB, CUDA's 234 MB.";

/// The model of a plan.
#[derive(Clone, Debug)]
enum Model {
    Mlp,
    Cnn,
    Transformer(TransformerConfig),
}

impl FromStr for Model {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "mnist-mlp" => Ok(Model::Mlp),
            "mnist-cnn" => Ok(Model::Cnn),
            _ => name.parse().map(Model::Transformer).map_err(|_| {
                let names = TransformerConfig::NAMES.join(", ");
                Error::invalid(
                    "model",
                    format!(
                        "unknown model `{name}`; expected one of mnist-mlp, mnist-cnn, {names}"
                    ),
                )
            }),
        }
    }
}

/// Place where programs are compiled.
enum Compiler {
    Here(OpenTarget),
    /// One child process per sharding.
    InChildren(Located),
}

impl PlanCommand {
    /// Runs the command. With `profiled`, it compiles in this process, which is recorded.
    pub(crate) fn run(self, profiled: bool) -> Result<ExitCode> {
        let shardings = self.shardings();
        if let Some(sharding) = self.as_child.and_then(|number| shardings.get(number)) {
            return Ok(self.run_child(sharding));
        }
        let (options, mut bar) = (self.open_options(), fetch::Bar::default());
        let compiler = if self.in_process || profiled {
            Compiler::Here(self.target.open(&options, &mut bar)?)
        } else {
            Compiler::InChildren(self.target.locate(&options, &mut bar)?)
        };
        let mut rows = Vec::new();
        for (number, (axes, strategy)) in shardings.iter().enumerate() {
            let progress = if self.search {
                format!(" ({} of {})", number + 1, shardings.len())
            } else {
                String::new()
            };
            let spinner = self.spinner(format!(
                "compiling for {}, {strategy} on {axes}{progress}",
                self.target
            ));
            let plan = match &compiler {
                Compiler::Here(target) => self
                    .plan(target, axes, strategy)
                    .map_err(|error| error.to_string()),
                Compiler::InChildren(located) => {
                    self.plan_in_child(number, axes, strategy, located)?
                }
            };
            spinner.finish_and_clear();
            rows.push((axes, strategy, plan));
        }
        match &rows[..] {
            [(.., Ok(plan))] if !self.search => {
                if self.json {
                    say!("{}", search::value(plan));
                } else {
                    say!("{plan}");
                }
            }
            [(.., Err(error))] if !self.search => return Ok(super::say_error(error)),
            _ => search::compare(&mut rows, self.json),
        }
        let mut plans = rows.iter().filter_map(|(.., plan)| plan.as_ref().ok());
        Ok(match plans.next() {
            Some(plan) if plan.fits() || plans.any(Plan::fits) => ExitCode::SUCCESS,
            Some(_) => ExitCode::from(DOES_NOT_FIT),
            None => ExitCode::FAILURE,
        })
    }

    fn open_options(&self) -> OpenOptions {
        OpenOptions {
            offline: self.offline,
            ..super::open_options(self.cache_dir.clone())
        }
    }

    /// Returns the shardings to plan: one, or with `--search` all candidates.
    fn shardings(&self) -> Vec<(MeshShape, Strategy)> {
        let devices = self.target.device_count();
        if self.search {
            return search::candidates(devices);
        }
        vec![(
            self.sharding
                .mesh
                .clone()
                .unwrap_or_else(|| search::axes(&[("data", devices)])),
            self.sharding.strategy.clone(),
        )]
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
                self.plan_step(target, axes, strategy, step, 128)
            }
            Model::Cnn => {
                let step = Classify::<Cnn<()>>::step(28, Cnn::new(28, 10), &self.image_options()?);
                self.plan_step(target, axes, strategy, step, 128)
            }
            Model::Transformer(model) => {
                let config = self.transformer.config(model);
                let plan = self.plan_step(
                    target,
                    axes,
                    strategy,
                    self.training_step(&config)?,
                    TRANSFORMER_SAMPLES,
                )?;
                if config.remat.is_none() {
                    let model_flops = plan.work.contractions;
                    return Ok(plan.with_model_flops(model_flops));
                }
                // The model FLOPs do not count what rematerialization recomputes.
                let saved = self.training_step(&TransformerConfig {
                    remat: None,
                    ..config
                })?;
                let (batch, options) =
                    self.batch_and_options(target, axes, strategy, &saved, TRANSFORMER_SAMPLES)?;
                let step = lower_step(saved.task, saved.model, saved.optimizer, &batch, &options)?;
                Ok(plan.with_model_flops(cost(&step.graph).contractions()))
            }
        }
    }

    /// Plans one step; `samples` is the default batch size of a device.
    fn plan_step<K: Task, O: Optimizer>(
        &self,
        target: &OpenTarget,
        axes: &MeshShape,
        strategy: &Strategy,
        step: TrainingStep<K, O>,
        samples: usize,
    ) -> Result<Plan>
    where
        <K::Model as Family>::Of<Param>: Send + Sync,
    {
        let (batch, options) = self.batch_and_options(target, axes, strategy, &step, samples)?;
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
        samples: usize,
    ) -> Result<(Vec<TensorType>, LowerOptions)> {
        let mesh = target.mesh(axes.clone())?;
        let samples = self
            .batch_size
            .unwrap_or_else(|| samples.saturating_mul(mesh.size()));
        let auto = || DTypePolicy::auto(self.target.platform(), &self.target.device_attributes());
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

/// Default batch size of a transformer on one device.
const TRANSFORMER_SAMPLES: usize = 8;

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
        step.unwrap().program.code.to_vec()
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
