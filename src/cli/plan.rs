//! `halite plan`: compile a training step for devices that are not here.

use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use clap::Args;
use halite::{
    DTypePolicy, Error, MeshAxes, Param, Result, TensorType,
    backends::{Located, OpenOptions, OpenTarget, Target, pjrt::printable},
    fetch,
    ir::cost,
    models::{Classify, Cnn, LanguageModel, Mlp, TrainingOptions, TrainingStep},
    nn::{AdamW, Optimizer, TransformerConfig},
    plan::{self, Plan},
    train::{LowerOptions, Strategy, Task, lower_step},
    tree::Family,
};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    positive, process,
    step::{StepArgs, TransformerArgs},
    waiting,
};
use crate::panics;

/// Compile a model's training step for TPUs or GPUs that are not here: does it fit, what does it
/// send, how fast at best
///
/// The vendor's own compiler compiles the whole step, forward, backward, collectives and optimizer,
/// and says what it needs. No device, no data, and nothing of the model's size is needed: a laptop
/// plans for a pod. It compiles in a process of its own: a compiler that aborts, or hangs, is an
/// error that says so.
///
/// The exit code is 0 if the step fits, 3 if it does not, else 1.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanCommand {
    /// `mnist-mlp`, `mnist-cnn`, or a transformer: `tiny`, `small`, `gpt2-124m`, `gpt2-medium`,
    /// `gpt2-large`, `gpt2-xl`, `llama-7b`, `llama-13b`, `llama3-8b`
    #[arg(value_name = "MODEL")]
    model: Model,
    /// The devices: `tpu:v5e:4x4`, `tpu:v4:4x4x4,megacore`, `cuda:h100:1x8` (hosts by devices of
    /// each), `cpu:8`
    #[arg(long, value_name = "TARGET")]
    target: Target,
    /// How they are arranged: axes `data`, `fsdp`, `model` and their sizes [default: `data` over
    /// all]
    #[arg(long, value_name = "AXES", conflicts_with = "search")]
    mesh: Option<MeshAxes>,
    /// What is split over the axes: `dp`, `fsdp`, `tp`, `dp+tp`, `fsdp+tp`
    #[arg(
        long,
        default_value = "dp",
        value_name = "NAME",
        conflicts_with = "search"
    )]
    strategy: Strategy,
    /// Samples of one step, over all devices [default: 8 for each device, 128 for the models of
    /// images]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    batch_size: Option<usize>,
    #[command(flatten)]
    transformer: TransformerArgs,
    #[command(flatten)]
    step: StepArgs,
    /// Try several meshes and strategies, and say which fit and which is estimated fastest
    #[arg(long)]
    search: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// How long the compiler may take for one layout before it is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    deadline: u64,
    /// Print what the compiler's plugin prints, also where nothing fails
    #[arg(short, long)]
    verbose: bool,
    /// Compile in this process, without a deadline, as `--profile` does too: for debuggers. A
    /// compiler that aborts ends it
    #[arg(long)]
    in_process: bool,
    /// Fail where the compiler's plugin is missing, instead of installing it
    #[arg(long)]
    offline: bool,
    /// Where packages are kept [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// This is the process that compiles; which of the layouts.
    #[arg(long, hide = true, value_name = "NUMBER")]
    as_child: Option<usize>,
}

const EXAMPLES: &str = "\
Examples:
  halite plan gpt2-124m --target tpu:v5e:4x4                          data parallel over 16 chips
  halite plan llama-7b --target tpu:v5p:8x8x8 --strategy fsdp         does it fit 512 chips, and how fast at best
  halite plan llama-7b --target tpu:v5e:16x16 --mesh fsdp=64,model=4 --strategy fsdp+tp
  halite plan gpt2-xl --target cuda:h100:1x8 --search                 which layout is best on eight GPUs
The compilers are fetched on first use: libtpu 205 MB, CUDA's 234 MB.";

/// What is planned.
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
                    format!("there is no model `{name}`; there are mnist-mlp, mnist-cnn, {names}"),
                )
            }),
        }
    }
}

/// What the child says, as a line of JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Plan(Box<Plan>),
    Error(String),
}

/// What compiles.
enum Compiler {
    Here(OpenTarget),
    /// One child for each layout.
    InChildren(Located),
}

impl PlanCommand {
    /// `profiled` says that what this process does is recorded.
    pub(crate) fn run(self, profiled: bool) -> Result<ExitCode> {
        let layouts = self.layouts();
        if let Some(layout) = self.as_child.and_then(|number| layouts.get(number)) {
            return Ok(self.answer(layout));
        }
        let (options, mut bar) = (self.open_options(), fetch::Bar::default());
        let compiler = if self.in_process || profiled {
            Compiler::Here(self.target.open(&options, &mut bar)?)
        } else {
            Compiler::InChildren(self.target.locate(&options, &mut bar)?)
        };
        let mut rows = Vec::new();
        for (number, (axes, strategy)) in layouts.iter().enumerate() {
            let progress = if self.search {
                format!(" ({} of {})", number + 1, layouts.len())
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
                Compiler::InChildren(located) => self.ask(number, axes, strategy, located)?,
            };
            spinner.finish_and_clear();
            rows.push((axes, strategy, plan));
        }
        match &rows[..] {
            [(.., Ok(plan))] if !self.search => {
                if self.json {
                    say!("{}", json(plan));
                } else {
                    say!("{plan}");
                }
            }
            [(.., Err(error))] if !self.search => return Ok(super::say_error(error)),
            _ => self.compare(&mut rows),
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
            cache: self.cache_dir.clone(),
            offline: self.offline,
            ..OpenOptions::default()
        }
    }

    /// What is planned: one, or with `--search` all that are worth it.
    fn layouts(&self) -> Vec<(MeshAxes, Strategy)> {
        let devices = self.target.device_count();
        if self.search {
            return candidates(devices);
        }
        vec![(
            self.mesh
                .clone()
                .unwrap_or_else(|| axes(&[("data", devices)])),
            self.strategy.clone(),
        )]
    }

    /// The child's part: the parent has seen to it that the plugin is there.
    fn answer(&self, (axes, strategy): &(MeshAxes, Strategy)) -> ExitCode {
        let options = OpenOptions {
            offline: true,
            ..self.open_options()
        };
        let opened =
            process::end_with_parent().and_then(|()| self.target.open(&options, &mut fetch::Quiet));
        let answer = match opened.and_then(|target| self.plan(&target, axes, strategy)) {
            Ok(plan) => Answer::Plan(Box::new(plan)),
            Err(error) => Answer::Error(error.to_string()),
        };
        say!(
            "{}",
            serde_json::to_string(&answer).expect("a plan has names and numbers only")
        );
        ExitCode::SUCCESS
    }

    /// The parent's part. The inner error is one of this layout, in words.
    fn ask(
        &self,
        number: usize,
        axes: &MeshAxes,
        strategy: &Strategy,
        located: &Located,
    ) -> Result<Result<Plan, String>> {
        // What is before `plan` on a command line makes a profile, and no child.
        let first = [
            "plan".into(),
            "--as-child".into(),
            number.to_string().into(),
        ];
        let arguments = first.into_iter().chain(env::args_os().skip(2));
        let mut child = process::Child::start("plan", arguments, self.echoes())?;
        let end = Instant::now() + Duration::from_secs(self.deadline);
        let (how, advice) = loop {
            match child.line(end.saturating_duration_since(Instant::now())) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(Answer::Plan(plan)) => return Ok(Ok(*plan)),
                    Ok(Answer::Error(words)) => return Ok(Err(words)),
                    Err(_) if self.echoes() => remark!("{}", printable(&line)),
                    Err(_) => {}
                },
                Err(RecvTimeoutError::Timeout) => {
                    let how = format!("was not done after {} s, and was ended", self.deadline);
                    break (
                        how,
                        "give it longer with --deadline, or take another layout or a smaller model",
                    );
                }
                Err(RecvTimeoutError::Disconnected) if child.panicked() => {
                    let words = child.last_words().unwrap_or_default();
                    let (target, bug) = (&self.target, panics::BUG);
                    return Ok(Err(format!(
                        "plan for {target}: {strategy} on {axes}: halite panicked: {words}; {bug}, not in the compiler: {}",
                        panics::REPORT
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = child.status();
                    let advice = match status.contains("SIGKILL") {
                        true => {
                            "the system ends processes so when memory runs out: see how much is free"
                        }
                        false => {
                            "another layout, batch size or precision may not meet this; --verbose shows all that it printed"
                        }
                    };
                    break (format!("ended its process ({status})"), advice);
                }
            }
        };
        let compiler = located.plugin.map_or_else(
            || located.path.display().to_string(),
            |plugin| plugin.package.to_string(),
        );
        let said = child
            .last_words()
            .map_or_else(String::new, |words| format!("; its last words: {words}"));
        let target = &self.target;
        Ok(Err(format!(
            "plan for {target}: {strategy} on {axes}: the compiler, {compiler}, {how}{said}; {advice}"
        )))
    }

    /// Whether what the child prints on stderr is printed here too: its log is there as well.
    fn echoes(&self) -> bool {
        self.verbose || env::var_os("HALITE_LOG").is_some_and(|filter| !filter.is_empty())
    }

    fn plan(&self, target: &OpenTarget, axes: &MeshAxes, strategy: &Strategy) -> Result<Plan> {
        match &self.model {
            Model::Mlp => {
                let model = Mlp::new(&[28 * 28, 512, 512, 10]);
                let step = Classify::<Mlp<()>>::step(model, &self.image_options()?);
                self.plan_step(target, axes, strategy, step, 128)
            }
            Model::Cnn => {
                let step = Classify::<Cnn<()>>::step(Cnn::new(10), &self.image_options()?);
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
        axes: &MeshAxes,
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
        axes: &MeshAxes,
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
            clip_norm: step.clip_norm,
            precision: self.step.precision().unwrap_or_else(auto),
            ..LowerOptions::new(&mesh, strategy.clone())
        };
        Ok((step.batch(samples), options))
    }

    /// Returns the training step of a transformer.
    fn training_step(
        &self,
        config: &TransformerConfig,
    ) -> Result<TrainingStep<LanguageModel, AdamW>> {
        let clip_norm = Some(LanguageModel::CLIP_NORM);
        LanguageModel::step(config, &self.options(clip_norm))
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
    fn options(&self, clip_norm: Option<f64>) -> TrainingOptions {
        const STEPS: u64 = 1000;
        self.step
            .options(TrainingOptions::LEARNING_RATE, STEPS, clip_norm)
    }

    /// Prints a table of them, and the best. Sorts them: what fits first, the fastest first of
    /// those; then what is least too large; then what failed.
    fn compare(&self, rows: &mut [(&MeshAxes, &Strategy, Result<Plan, String>)]) {
        let order = |plan: &Result<Plan, String>| match plan {
            Ok(plan) if plan.fits() => {
                let estimate = plan.estimate.as_ref();
                // Where there are no numbers to estimate time from, it is memory that they differ
                // in.
                (
                    0,
                    estimate.map_or(plan.required() as f64, |estimate| {
                        estimate.step_seconds_without_overlap
                    }),
                )
            }
            Ok(plan) => (1, plan.required() as f64),
            Err(_) => (2, 0.0),
        };
        rows.sort_by(|(.., a), (.., b)| {
            let ((group, number), (other, than)) = (order(a), order(b));
            group.cmp(&other).then(number.total_cmp(&than))
        });
        if self.json {
            let value = |(axes, strategy, plan): &(&MeshAxes, &Strategy, Result<Plan, String>)| {
                match plan {
                    Ok(plan) => json(plan),
                    Err(error) => {
                        json!({"mesh": axes.to_string(), "strategy": strategy.to_string(), "error": error})
                    }
                }
            };
            say!("{}", rows.iter().map(value).collect::<serde_json::Value>());
            return;
        }
        say!(
            "{:<10} {:<22} {:>10}  {:<5} {:>12} {:>12}  {:>9}",
            "strategy",
            "mesh",
            "peak",
            "fits",
            "step, best",
            "no overlap",
            "MFU"
        );
        for (axes, strategy, plan) in rows.iter() {
            let row = plan
                .as_ref()
                .map_or_else(|_| format!("{:>10}  failed, see below", "-"), Plan::row);
            say!(
                "{:<10} {:<22} {row}",
                strategy.to_string(),
                axes.to_string()
            );
        }
        for (.., plan) in rows.iter() {
            if let Err(error) = plan {
                say!("\nfailed: {error}");
            }
        }
        match &rows[..] {
            [(.., Ok(best)), ..] if best.fits() && best.estimate.is_some() => {
                say!("\nestimated fastest of what fits:\n\n{best}")
            }
            [(.., Ok(least)), ..] if least.fits() => {
                say!(
                    "\nno numbers are known of this target to estimate time from; the least memory:\n\n{least}"
                );
            }
            [(.., Ok(least)), ..] => say!("\nnothing fits; nearest to it:\n\n{least}"),
            _ => {}
        }
    }

    /// Compiling for a pod takes a minute or two, in which something is to move.
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

/// As from text.
fn axes(axes: &[(&str, usize)]) -> MeshAxes {
    let text: Vec<String> = axes
        .iter()
        .map(|(name, size)| format!("{name}={size}"))
        .collect();
    text.join(",").parse().expect("names and sizes of our own")
}

/// Layouts worth trying on so many devices: each strategy alone, and with tensor parallelism over
/// 2, 4 and 8.
fn candidates(devices: usize) -> Vec<(MeshAxes, Strategy)> {
    let (dp, fsdp, tp) = (
        Strategy::data_parallel(),
        Strategy::fsdp(),
        Strategy::tensor_parallel(),
    );
    let mut all = vec![(axes(&[("data", devices)]), dp.clone())];
    if devices > 1 {
        all.push((axes(&[("fsdp", devices)]), fsdp.clone()));
    }
    for model in [2, 4, 8]
        .into_iter()
        .filter(|model| devices.is_multiple_of(*model) && devices > *model)
    {
        all.push((
            axes(&[("data", devices / model), ("model", model)]),
            dp.clone().and(tp.clone()),
        ));
        all.push((
            axes(&[("fsdp", devices / model), ("model", model)]),
            fsdp.clone().and(tp.clone()),
        ));
    }
    all
}

fn json(plan: &Plan) -> serde_json::Value {
    serde_json::to_value(plan).expect("a plan has names and numbers only")
}

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
            clip_norm: step.clip_norm,
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

    #[test]
    fn layouts_to_try_use_all_devices() {
        for devices in [1, 4, 12, 256] {
            for (axes, strategy) in candidates(devices) {
                assert_eq!(axes.size(), Some(devices), "{strategy}");
            }
        }
        assert_eq!(candidates(1).len(), 1);
    }
}
