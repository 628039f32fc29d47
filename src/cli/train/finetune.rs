//! `halite finetune`: trains published models further.

use std::{ops::ControlFlow, path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, Subcommand};
use halite::{
    Array, Client, Error, Param, Result, TensorType,
    cluster::Job,
    core::DType,
    data::{
        Dataset,
        text::{TokenWindows, Tokenizer, read},
    },
    models::{LanguageModel, Pretrained, PretrainedModel, TrainingStep, open_decoder},
    nn::{AdamW, Adapted, Lora, Model, Transformer, TransformerConfig},
    train::{AdaptedTask, Task, Trainer, flags::positive, signals::StopFlag},
    tree::Family,
    weights::{check_adapters, save_adapters},
};
use halite_core::{DeviceId, ProcessGroup};
use indicatif::HumanCount;

use super::run::{Run, epochs, finish};
use crate::cli::{
    step::{RateArgs, TransformerArgs, default_in_help, training_options},
    waiting,
};

/// Train a published model further, on data of your own
#[derive(Args, Debug)]
pub(crate) struct Finetune {
    #[command(subcommand)]
    task: Tuned,
}

#[derive(Subcommand, Debug)]
enum Tuned {
    /// Language modeling on plain text: decoders such as Llama, SmolLM2, Qwen2 and GPT-2
    #[command(after_help = EXAMPLES)]
    Text(Box<Text>),
}

impl Finetune {
    /// Trains, together with the other processes if a launcher started this one.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let job = Job::from_env()?;
        let Tuned::Text(text) = self.task;
        let result = text.run(job.group());
        job.finish_with(result)
    }
}

const EXAMPLES: &str = "\
Examples:
  halite finetune text --model SmolLM2-135M-Instruct.Q4_1.gguf --data notes.txt --lora 8
  halite finetune text --model SmolLM2-135M --data notes.txt --lora 8 --lora-targets 'blocks.attention.q|v'
  halite finetune text --model SmolLM2-135M --data notes.txt --learning-rate 2e-5    all weights
  halite finetune text --model SmolLM2-135M --data notes.txt --lora 8 --devices 4 --accelerator cpu

In Python, the adapters of a run are loaded by
  peft.PeftModel.from_pretrained(model, 'runs/notes-SmolLM2-135M/adapter')";

#[derive(Args, Debug)]
#[command(
    mut_arg("max_epochs", |arg| epochs(arg, "1")),
    mut_arg("batch_size", |arg| arg.default_value("8")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-4")),
    mut_arg("context", |arg| default_in_help(arg.help("Tokens of a window"), "256")),
    mut_arg("gradient_clip_val", |arg| default_in_help(arg, "1")),
    mut_arg("out", |arg| default_in_help(arg, "runs/DATA-MODEL"))
)]
struct Text {
    /// Directory of the model (config.json, weights, tokenizer.json), or a GGUF file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Key of the model's files that counts as missing; a key that halite does not know is an error
    /// otherwise
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    ignore_key: Vec<String>,
    /// Text file
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Train low-rank adapters of this rank, and keep the weights of the model; without it, all
    /// weights are trained
    #[arg(long, value_name = "RANK", value_parser = positive::<usize>, allow_negative_numbers = true)]
    lora: Option<usize>,
    /// Adapters are multiplied by this over their rank [default: twice the rank]
    #[arg(
        long,
        value_name = "ALPHA",
        requires = "lora",
        allow_negative_numbers = true
    )]
    lora_alpha: Option<f64>,
    /// Layers with adapters, by patterns of their paths [default: all dense layers]
    #[arg(
        long,
        value_name = "PATTERNS",
        value_delimiter = ',',
        requires = "lora"
    )]
    lora_targets: Vec<String>,
    /// Also save the model with the adapters added to its weights, in OUT/model
    #[arg(long, requires = "lora")]
    merge: bool,
    #[command(flatten)]
    rate: RateArgs,
    /// Fraction at the end of the text that is held out for validation
    #[arg(
        long,
        default_value_t = 0.05,
        value_name = "FRACTION",
        allow_negative_numbers = true
    )]
    validation: f64,
    #[command(flatten)]
    transformer: TransformerArgs,
    #[command(flatten)]
    run: Run,
}

/// What is trained, and on which devices.
struct Setting {
    client: Client,
    devices: Vec<DeviceId>,
    out: PathBuf,
    train: Arc<TokenWindows>,
    validation: TokenWindows,
}

impl Text {
    fn run(mut self, processes: Arc<dyn ProcessGroup>) -> Result<ExitCode> {
        self.run.processes = Some(processes);
        let source = Pretrained::open(&self.model)?.ignore_keys(&self.ignore_key);
        let published = open_decoder(source)?;
        let tokenizer = published.source.open_tokenizer()?;
        let config = self.config(&published.model.config);
        tokenizer.check_vocabulary(config.vocab_size)?;
        let model = Transformer::new(&config)?;
        self.check_outputs(&published, &model)?;
        let [train, validation] = self.windows(&tokenizer, &config)?;
        let (client, devices) = self.run.open()?;
        let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().display().to_string();
        let out = self
            .run
            .out(&format!("{}-{}", stem(&self.data), stem(&self.model)));
        let setting = Setting {
            client,
            devices,
            out,
            train: Arc::new(train),
            validation,
        };
        let spinner = waiting("loading the weights".into());
        let values = published.loader().load(&setting.client, &model);
        spinner.finish_and_clear();
        let values = values?.model;
        match self.lora()? {
            Some(lora) => self.adapt(setting, &lora, &published, &tokenizer, (model, values)),
            None => self.train_all(setting, &published, &tokenizer, (model, values)),
        }
    }

    /// The adapters that the options describe.
    fn lora(&self) -> Result<Option<Lora>> {
        let Some(rank) = self.lora else {
            return Ok(None);
        };
        let lora = match self.lora_alpha {
            Some(alpha) => Lora::new(rank).alpha(alpha),
            None => Lora::new(rank),
        };
        let mut targets = self.lora_targets.iter();
        targets
            .try_fold(lora, |lora, path| lora.target(path))
            .map(Some)
    }

    /// Checks that all that is trained can be saved.
    fn check_outputs(
        &self,
        published: &PretrainedModel<Transformer<Param>>,
        model: &Transformer<Param>,
    ) -> Result<()> {
        let lora = self.lora()?;
        if lora.is_none() || self.merge {
            published.check_save()?;
        }
        let Some(lora) = lora else {
            return Ok(());
        };
        let names = published.adapter_names()?;
        let adapters = lora.adapt(model.clone())?.adapters;
        check_adapters(&names, &adapters).map_err(|error| {
            let layers = adapters.list().iter().map(|adapter| adapter.layer());
            let is_saved = |layer: &String| {
                let alone = adapters.clone().only(|adapter| adapter.layer() == *layer);
                check_adapters(&names, &alone).is_ok()
            };
            let saved: Vec<String> = layers.filter(is_saved).collect();
            if saved.is_empty() {
                error
            } else {
                error.with_note(&format!("--lora-targets {} works", saved.join(",")))
            }
        })
    }

    /// Trains adapters.
    fn adapt(
        &self,
        setting: Setting,
        lora: &Lora,
        published: &PretrainedModel<Transformer<Param>>,
        tokenizer: &Tokenizer,
        start: (Transformer<Param>, Transformer<Array>),
    ) -> Result<ExitCode> {
        let (model, values) = start;
        let adapted = lora.adapt(model)?;
        let adapters = adapted.adapters.clone();
        let initial = adapters.initialize(&setting.client, self.run.options.seed)?;
        let values = Adapted {
            base: values,
            adapters: initial,
        };
        let step = self.step(AdaptedTask(LanguageModel), adapted, &setting)?;
        let (client, out) = (setting.client.clone(), setting.out.clone());
        self.fit(setting, step, values, |model| {
            let names = published.adapter_names()?;
            let base = self.model.display().to_string();
            let directory = out.join("adapter");
            save_adapters(&names, &adapters, &model.adapters, Some(&base), &directory)?;
            say!("adapters: {}", directory.display());
            if self.merge {
                let directory = out.join("model");
                let merged = model.merged(&client)?;
                published.save(&published.saved_names(), &merged, tokenizer, &directory)?;
                say!("merged model: {}", directory.display());
            }
            Ok(())
        })
    }

    /// Trains all weights.
    fn train_all(
        &self,
        setting: Setting,
        published: &PretrainedModel<Transformer<Param>>,
        tokenizer: &Tokenizer,
        start: (Transformer<Param>, Transformer<Array>),
    ) -> Result<ExitCode> {
        let (model, values) = start;
        let step = self.step(LanguageModel, model, &setting)?;
        let out = setting.out.clone();
        self.fit(setting, step, values, |model| {
            let directory = out.join("model");
            published.save(&published.saved_names(), &model, tokenizer, &directory)?;
            say!("model: {}", directory.display());
            Ok(())
        })
    }

    /// The training step of a task.
    fn step<K: Task>(
        &self,
        task: K,
        model: <K::Model as Family>::Of<Param>,
        setting: &Setting,
    ) -> Result<TrainingStep<K, AdamW>> {
        let schedule = self.run.schedule(&self.rate, setting.train.len())?;
        let numerics = &self.run.options.numerics;
        let options = training_options(numerics, schedule, Some(LanguageModel::CLIP_NORM));
        let window = setting.train.length() + 1;
        Ok(TrainingStep {
            task,
            model,
            optimizer: AdamW::new(options.schedule).weight_decay(0.0),
            clip: options.clip,
            sample: vec![TensorType::new(DType::U32, [window])],
        })
    }

    /// Trains from these values, and saves what the last validation was of; with `--range-test` finds
    /// a learning rate.
    fn fit<K: Task + Clone>(
        &self,
        setting: Setting,
        step: TrainingStep<K, AdamW>,
        values: <K::Model as Family>::Of<Array>,
        save: impl FnOnce(<K::Model as Family>::Of<Array>) -> Result<()>,
    ) -> Result<ExitCode> {
        let Setting {
            client,
            devices,
            out,
            train,
            validation,
        } = setting;
        let (stop, count) = (StopFlag::new(), devices.len());
        let trainer = self
            .run
            .trainer(&client, devices, &out, &stop, &step)
            .property("--model", self.model.display())
            .property("--data", self.data.display())
            .property("--validation", self.validation)
            .property("--lora", format!("{:?}", self.lora))
            .property("--lora-alpha", format!("{:?}", self.lora_alpha))
            .property("--lora-targets", self.lora_targets.join(","));
        // As before it was one: runs of those versions resume.
        let trainer = match self.transformer.dropout() {
            Some(dropout) => trainer.property("--dropout", dropout),
            None => trainer,
        };
        let trainer = if self.ignore_key.is_empty() {
            trainer
        } else {
            trainer.property("--ignore-key", self.ignore_key.join(","))
        };
        let trainer = match self.lora {
            Some(_) => trainer.frozen_from(self.model.display().to_string()),
            None => trainer,
        };
        let trainer = self.rate.of_run(trainer);
        let trainer: Trainer = self.run.sharded(trainer, count, &step, &train)?.build()?;
        if self.run.is_coordinator() {
            let trained = trained_elements::<K>(&step.model);
            remark!(
                "{} parameters are trained; {} training windows, {} validation windows",
                HumanCount(trained as u64),
                train.len(),
                validation.len()
            );
        }
        let data = (train, validation);
        let fitted = match self
            .run
            .fit(&trainer, step, data, Some(values), &out, &stop)?
        {
            ControlFlow::Continue(fitted) => fitted,
            ControlFlow::Break(code) => return Ok(code),
        };
        let code = finish(&self.run, &fitted, &trainer);
        // Process 0 writes for all, and a development run nothing.
        if trainer.options().out.is_some() {
            save(fitted.into_validated())?;
        }
        Ok(code)
    }

    /// The model's configuration with the options that are given. `--context` is of the windows.
    fn config(&self, published: &TransformerConfig) -> TransformerConfig {
        TransformerConfig {
            context_length: published.context_length,
            ..self.transformer.config(published)
        }
    }

    /// The text, as windows of tokens.
    fn windows(
        &self,
        tokenizer: &Tokenizer,
        config: &TransformerConfig,
    ) -> Result<[TokenWindows; 2]> {
        let text = read(&self.data)?;
        let tokens = tokenizer.encode(&text)?;
        let longest = config.context_length;
        let context = self.transformer.context().unwrap_or(longest.min(256));
        if context > longest {
            let message = format!("--context {context}; the model has a context of {longest}");
            return Err(Error::invalid("finetune", message));
        }
        TokenWindows::split(&[tokens], context, self.validation)
    }
}

/// Elements of the trained parameters.
fn trained_elements<K: Task>(model: &<K::Model as Family>::Of<Param>) -> usize {
    let mut count = 0;
    halite::Tree::for_each(model, |_, param: &Param| {
        count += if param.trainable {
            param.ty.elements()
        } else {
            0
        };
    });
    count
}
