//! Low-rank adapters alone, in the files of the Python package peft: `adapter_config.json` and
//! `adapter_model.safetensors`.

use std::{collections::BTreeSet, fs, path::Path};

use halite_core::{Array, Client, Error, ErrorKind, Result, files, tree::Tree};
use halite_nn::{Adapters, Lora, Param};
use serde_json::{Value, json};

use crate::{Config, NameMap, TensorSource, WeightLoader, WeightSaver, keys, open, plan::Plan};

const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
const OPERATION: &str = "load adapters";

/// What an `adapter_config.json` says of the adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Rank of all adapters.
    pub rank: usize,
    /// They are multiplied by this over the rank.
    pub alpha: f64,
    /// Name or path of the model that they are for, if the file has one.
    pub base_model: Option<String>,
}

impl AdapterConfig {
    /// Reads the `adapter_config.json` of a directory.
    ///
    /// # Errors
    /// If it cannot be read, or describes other adapters than LoRA of one rank, without biases and
    /// further layers, on the base as it was: all in one error. A key that is not known is an error.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_ignoring(directory, &[])
    }

    /// Reads the `adapter_config.json` of a directory without the keys `ignored`, which count as
    /// missing.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_ignoring(directory: impl AsRef<Path>, ignored: &[String]) -> Result<Self> {
        let path = directory.as_ref().join(CONFIG);
        let origin = path.display().to_string();
        let bytes = files::read_input(&path).map_err(|error| {
            let message = format!("cannot read `{origin}`");
            Error::new(ErrorKind::Io, OPERATION, message).caused_by(error)
        })?;
        let corrupt = |what: &str| {
            let message = format!("`{origin}` {what}");
            Error::new(ErrorKind::Corrupt, OPERATION, message)
        };
        let fields: Value = serde_json::from_slice(&bytes)
            .map_err(|error| corrupt("is not valid JSON").caused_by(error))?;
        if !fields.is_object() {
            return Err(corrupt("is not a JSON object"));
        }
        let mut config = Config::new(&origin, &fields)
            .known(&keys::ADAPTER, ignored)
            .operation(OPERATION);
        config.require_text("peft_type", &["LORA"]);
        let rank = config.size("r");
        let alpha = config.number("lora_alpha");
        let is_stabilized = config.flag_or("use_rslora", false);
        let base_model = config.text("base_model_name_or_path").map(str::to_owned);
        config.finish()?;
        Ok(AdapterConfig {
            rank,
            // Rank-stabilized adapters are divided by the root of the rank.
            alpha: match is_stabilized {
                true => alpha * (rank as f64).sqrt(),
                false => alpha,
            },
            base_model,
        })
    }
}

/// Checks that [`save_adapters`] has names for all adapters, before there are values of them.
///
/// # Errors
/// If there are no adapters, or the map has no names for one.
pub fn check_adapters(names: &NameMap, adapters: &Adapters<Param>) -> Result<()> {
    plan(&names.adapters(), adapters).map(drop)
}

fn plan(names: &NameMap, adapters: &Adapters<Param>) -> Result<Plan> {
    if adapters.list().is_empty() {
        return Err(Error::invalid("save adapters", "there are no adapters"));
    }
    Plan::new(names, adapters)
}

/// Saves adapters alone in a directory, as peft does: `PeftModel.from_pretrained(model, directory)`
/// loads them. `names` is the map of the model for files of PyTorch; `base_model` names the model
/// in the configuration.
///
/// # Errors
/// If the map has no names for an adapter, a value cannot be read, or a file cannot be written.
pub fn save_adapters(
    names: &NameMap,
    adapters: &Adapters<Param>,
    values: &Adapters<Array>,
    base_model: Option<&str>,
    directory: impl AsRef<Path>,
) -> Result<()> {
    let directory = directory.as_ref();
    let names = names.adapters();
    let plan = plan(&names, adapters)?;
    let first = &adapters.list()[0];
    let rank = first.a.ty.dims().last().copied().unwrap_or(1);
    // Whole names: the last segments alone may be those of other layers as well.
    let modules: BTreeSet<&str> = (plan.originals.iter())
        .filter_map(|original| {
            let name = original.info.name.strip_prefix("base_model.model.")?;
            name.strip_suffix(".lora_A.weight")
        })
        .collect();
    let config = json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": adapters.scale() * rank as f64,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "target_modules": modules,
    });
    let failed = |error| {
        let message = format!("cannot write in `{}`", directory.display());
        Error::new(ErrorKind::Io, "save adapters", message).caused_by(error)
    };
    fs::create_dir_all(directory).map_err(failed)?;
    WeightSaver::new(&names).save(adapters, values, directory.join(WEIGHTS))?;
    let text = serde_json::to_vec_pretty(&config).expect("a configuration has texts and numbers");
    files::replace(&directory.join(CONFIG), &text).map_err(failed)
}

/// Loads the adapters of a directory that [`save_adapters`] or peft wrote, for a model of this
/// description and map: their description, and their values on the client's first device. Layers
/// are adapted for which the file has tensors.
///
/// # Errors
/// Those of [`AdapterConfig::open`]; if a file cannot be read, or has tensors that fit no layer of
/// the model: all in one error.
pub fn load_adapters<M: Tree<Leaf = Param>>(
    client: &Client,
    names: &NameMap,
    model: M,
    directory: impl AsRef<Path>,
) -> Result<(Adapters<Param>, Adapters<Array>)> {
    load_adapters_ignoring(client, names, model, directory, &[])
}

/// Loads adapters as [`load_adapters`] does, without the keys `ignored` of their configuration.
///
/// # Errors
/// As [`load_adapters`].
pub fn load_adapters_ignoring<M: Tree<Leaf = Param>>(
    client: &Client,
    names: &NameMap,
    model: M,
    directory: impl AsRef<Path>,
    ignored: &[String],
) -> Result<(Adapters<Param>, Adapters<Array>)> {
    let directory = directory.as_ref();
    let AdapterConfig { rank, alpha, .. } = AdapterConfig::open_ignoring(directory, ignored)?;
    let file = open(directory.join(WEIGHTS))?;
    let names = names.adapters();
    let all = Lora::new(rank).alpha(alpha).adapt(model)?.adapters;
    let held: BTreeSet<&str> = file.tensors().iter().map(|info| &*info.name).collect();
    let adapters = all.only(|adapter| {
        // One adapter at a time: a layer without names is not adapted.
        let one = adapter.alone(alpha / rank as f64);
        Plan::new(&names, &one).is_ok_and(|plan| {
            (plan.originals.iter()).any(|original| held.contains(&*original.info.name))
        })
    });
    let values = WeightLoader::new(&file, &names)
        .load(client, &adapters)?
        .model;
    Ok((adapters, values))
}
