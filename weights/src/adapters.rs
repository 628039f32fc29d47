//! Low-rank adapters alone, in the files of the Python package peft: `adapter_config.json` and
//! `adapter_model.safetensors`.

use std::{collections::BTreeSet, fs, path::Path};

use halite_core::{Array, Client, Error, ErrorKind, Result, files, tree::Tree};
use halite_nn::{Adapters, Lora, Param};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{NameMap, TensorSource, WeightLoader, WeightSaver, open, plan::Plan};

const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";

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

/// Fields of the file. Those that are left out have no influence on a forward pass.
#[derive(Deserialize)]
struct Fields {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    base_model_name_or_path: Option<String>,
    use_rslora: Option<bool>,
    use_dora: Option<bool>,
    rank_pattern: Option<Map<String, Value>>,
    alpha_pattern: Option<Map<String, Value>>,
    bias: Option<String>,
    modules_to_save: Option<Vec<String>>,
    layer_replication: Option<Value>,
    alora_invocation_tokens: Option<Value>,
}

impl AdapterConfig {
    /// Reads the `adapter_config.json` of a directory.
    ///
    /// # Errors
    /// If it cannot be read, or describes other adapters than LoRA of one rank, without biases and
    /// further layers: all in one error.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        let path = directory.as_ref().join(CONFIG);
        let origin = path.display();
        let bytes = files::read_input(&path).map_err(|error| {
            let message = format!("cannot read `{origin}`");
            Error::new(ErrorKind::Io, "load adapters", message).caused_by(error)
        })?;
        let fields: Fields = serde_json::from_slice(&bytes).map_err(|error| {
            let message = format!("`{origin}` is not a configuration of peft");
            Error::new(ErrorKind::Corrupt, "load adapters", message).caused_by(error)
        })?;
        let mut problems = Vec::new();
        let mut check = |is_supported: bool, problem: String| {
            if !is_supported {
                problems.push(problem);
            }
        };
        let Fields { r, lora_alpha, .. } = fields;
        check(
            fields.peft_type == "LORA",
            format!("`peft_type` is `{}`", fields.peft_type),
        );
        check(r > 0, "`r` is 0".into());
        check(
            lora_alpha.is_finite(),
            format!("`lora_alpha` is {lora_alpha}"),
        );
        check(fields.use_dora != Some(true), "`use_dora` is true".into());
        let is_empty = |map: &Option<Map<String, Value>>| map.as_ref().is_none_or(Map::is_empty);
        check(
            is_empty(&fields.rank_pattern),
            "`rank_pattern` has other ranks".into(),
        );
        check(
            is_empty(&fields.alpha_pattern),
            "`alpha_pattern` has other factors".into(),
        );
        let bias = fields.bias.as_deref().unwrap_or("none");
        check(bias == "none", format!("`bias` is `{bias}`"));
        let saved = fields.modules_to_save.unwrap_or_default();
        check(saved.is_empty(), format!("`modules_to_save` is {saved:?}"));
        check(
            fields.layer_replication.is_none(),
            "`layer_replication` repeats layers".into(),
        );
        check(
            fields.alora_invocation_tokens.is_none(),
            "`alora_invocation_tokens` limits it to some tokens".into(),
        );
        if !problems.is_empty() {
            let message = format!(
                "`{origin}`: {}; expected LoRA of one rank, without biases and other layers",
                problems.join(", ")
            );
            return Err(Error::new(ErrorKind::Unsupported, "load adapters", message));
        }
        Ok(AdapterConfig {
            rank: r,
            // Rank-stabilized adapters are divided by the root of the rank.
            alpha: if fields.use_rslora == Some(true) {
                lora_alpha * (r as f64).sqrt()
            } else {
                lora_alpha
            },
            base_model: fields.base_model_name_or_path,
        })
    }
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
    let plan = Plan::new(&names, adapters)?;
    let Some(first) = adapters.list().first() else {
        return Err(Error::invalid("save adapters", "there are no adapters"));
    };
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
/// If a file cannot be read, or has tensors that fit no layer of the model: all in one error.
pub fn load_adapters<M: Tree<Leaf = Param>>(
    client: &Client,
    names: &NameMap,
    model: M,
    directory: impl AsRef<Path>,
) -> Result<(Adapters<Param>, Adapters<Array>)> {
    let directory = directory.as_ref();
    let AdapterConfig { rank, alpha, .. } = AdapterConfig::open(directory)?;
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
