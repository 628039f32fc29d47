//! Low-rank adapters alone, in the files of the Python package peft: `adapter_config.json` and
//! `adapter_model.safetensors`.

mod config;
mod fused;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    path::Path,
};

use halite_core::{Array, Client, DType, Error, ErrorKind, HostArray, Result, files, tree::Tree};
use halite_nn::{Adapters, Lora, Param};
use serde_json::json;

pub use self::config::AdapterConfig;
use crate::{
    HostTensors, NameMap, SafetensorsWriter, TensorInfo, TensorSource, WeightLoader, WeightSaver,
    names::ADAPTERS, open, plan::Plan,
};

const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
const OPERATION: &str = "load adapters";

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
    let plan = Plan::new(names, adapters)?;
    fused::check(plan.originals.iter().map(|original| &original.info))?;
    Ok(plan)
}

/// The name of the layer of an adapter, by that of one of its tensors.
fn layer_of(tensor: &str) -> &str {
    let name = tensor.strip_prefix(ADAPTERS).unwrap_or(tensor);
    let ends = [".lora_A.weight", ".lora_B.weight"];
    ends.iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name)
}

/// Saves adapters alone in a directory, as peft does: `PeftModel.from_pretrained(model, directory)`
/// loads them. `names` is the map of the model for files of PyTorch; `base_model` names the model
/// in the configuration.
///
/// Adapters of the parts of a fused layer become one adapter, whose rank is the sum of theirs.
///
/// # Errors
/// If the map has no names for an adapter, a fused layer lacks adapters of some of its parts, a value
/// cannot be read, or a file cannot be written.
pub fn save_adapters(
    names: &NameMap,
    adapters: &Adapters<Param>,
    values: &Adapters<Array>,
    base_model: Option<&str>,
    directory: impl AsRef<Path>,
) -> Result<()> {
    let directory = directory.as_ref();
    let names = names.adapters();
    plan(&names, adapters)?;
    let tensors = fused::joined(WeightSaver::new(&names).tensors(adapters, values)?)?;
    // By whole names: the last segments alone may be those of other layers as well.
    let ranks: BTreeMap<&str, usize> = (tensors.iter())
        .filter(|(name, _)| name.ends_with("lora_A.weight"))
        .map(|(name, a)| (layer_of(name), a.ty().dims()[0]))
        .collect();
    let rank = ranks.values().min().copied().unwrap_or(1);
    let alpha = |rank: usize| adapters.scale() * rank as f64;
    let others = ranks.iter().filter(|(_, other)| **other != rank);
    let rank_pattern: BTreeMap<&str, usize> = others.map(|(name, rank)| (*name, *rank)).collect();
    let alpha_pattern: BTreeMap<&str, f64> = (rank_pattern.iter())
        .map(|(name, rank)| (*name, alpha(*rank)))
        .collect();
    let config = json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": alpha(rank),
        "rank_pattern": rank_pattern,
        "alpha_pattern": alpha_pattern,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "target_modules": ranks.keys().collect::<Vec<_>>(),
    });
    let failed = |error| {
        let message = format!("cannot write in `{}`", directory.display());
        Error::new(ErrorKind::Io, "save adapters", message).caused_by(error)
    };
    fs::create_dir_all(directory).map_err(failed)?;
    let infos: Vec<TensorInfo> = (tensors.iter())
        .map(|(name, tensor)| TensorInfo {
            name: name.clone(),
            ty: tensor.ty().clone(),
        })
        .collect();
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let mut writer = SafetensorsWriter::create(directory.join(WEIGHTS), &infos, &metadata)?;
    tensors
        .values()
        .try_for_each(|tensor| writer.write(tensor))?;
    writer.finish()?;
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
    let config = AdapterConfig::open_ignoring(directory, ignored)?;
    let file = open(directory.join(WEIGHTS))?;
    config.check_layers(file.tensors().iter().map(|info| layer_of(&info.name)))?;
    let names = names.adapters();
    let lora = Lora::new(config.rank).alpha(config.alpha);
    let all = lora.adapt(model)?.adapters;
    let held: BTreeSet<&str> = file.tensors().iter().map(|info| &*info.name).collect();
    let scale = all.scale();
    let adapters = all.only(|adapter| {
        // One adapter at a time: a layer without names is not adapted.
        Plan::new(&names, &adapter.alone(scale)).is_ok_and(|plan| {
            let mut tensors = plan.originals.iter();
            tensors.any(|original| held.contains(&*fused::of_layer(&original.info.name).0))
        })
    });
    let infos = |adapters: &Adapters<Param>| -> Result<Vec<TensorInfo>> {
        let originals = Plan::new(&names, adapters)?.originals;
        Ok(originals
            .into_iter()
            .map(|original| original.info)
            .collect())
    };
    let has_parts =
        |infos: &[TensorInfo]| (infos.iter()).any(|info| fused::of_layer(&info.name).1.is_some());
    if !config.has_exceptions() && !has_parts(&infos(&adapters)?) {
        let loader = WeightLoader::new(&file, &names);
        let values = loader.load(client, &adapters)?.model;
        return Ok((adapters, values));
    }
    let adapters = ranked(adapters, &config, &names)?;
    let wanted = infos(&adapters)?;
    let mut tensors = fused::split(&file, &wanted)?;
    for info in wanted.into_iter().filter(|_| config.is_partial()) {
        // Zeros, which add nothing.
        let zeros = || HostArray::try_zeros(info.ty.clone());
        if let Entry::Vacant(missing) = tensors.entry(info.name) {
            missing.insert(zeros()?);
        }
    }
    scale_tensors(&mut tensors, &config, scale)?;
    let tensors = HostTensors::from(tensors);
    let loaded = WeightLoader::new(&tensors, &names).load(client, &adapters);
    let note = format!("the file is {}", file.origin());
    let values = loaded.map_err(|error| error.with_note(&note))?.model;
    Ok((adapters, values))
}

/// Multiplies the second factors of terms with a scale of their own, so that all have `scale`.
fn scale_tensors(
    tensors: &mut BTreeMap<String, HostArray>,
    config: &AdapterConfig,
    scale: f64,
) -> Result<()> {
    for (name, tensor) in tensors {
        let (layer, _) = fused::of_layer(name);
        let own = config.of_layer(layer_of(&layer)).1;
        let factor = if own == scale { 1.0 } else { own / scale };
        if !factor.is_finite() {
            let message = format!(
                "`{}` has a factor of {own}, and `lora_alpha` is {}; set it to another number, and \
                 `alpha_pattern` for the layers without adapters",
                layer_of(&layer),
                config.alpha
            );
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, message));
        }
        if layer.ends_with("lora_B.weight") && factor != 1.0 && tensor.ty().dtype().is_float() {
            let wide = tensor.to_float(DType::F64)?;
            let scaled: Vec<f64> = wide
                .as_slice::<f64>()?
                .iter()
                .map(|one| one * factor)
                .collect();
            *tensor = HostArray::from_slice(&scaled, tensor.ty().dims())?;
        }
    }
    Ok(())
}

/// Adapters of the ranks that a configuration has for their layers.
fn ranked(
    adapters: Adapters<Param>,
    config: &AdapterConfig,
    names: &NameMap,
) -> Result<Adapters<Param>> {
    let mut ranks = BTreeMap::new();
    for adapter in adapters.list() {
        let plan = Plan::new(names, &adapter.alone(1.0))?;
        let layers = plan.originals.iter();
        let layers = layers.map(|original| fused::of_layer(&original.info.name).0);
        let found: BTreeSet<usize> = layers
            .map(|name| config.of_layer(layer_of(&name)).0)
            .collect();
        let layer = adapter.layer();
        let [rank] = Vec::from_iter(found)[..] else {
            let message = format!("`{layer}` has adapters of several ranks; expected one");
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, message));
        };
        ranks.insert(layer, rank);
    }
    let ranked = adapters.map_leaves(|path, mut param| {
        let path = path.to_string();
        let (layer, is_a) = match path.strip_suffix(".lora_A.weight") {
            Some(layer) => (layer, true),
            None => (path.trim_end_matches(".lora_B.weight"), false),
        };
        let mut dims = param.ty.dims().to_vec();
        let place = if is_a { dims.len() - 1 } else { param.stacked };
        if let (Some(dim), Some(rank)) = (dims.get_mut(place), ranks.get(layer)) {
            *dim = *rank;
        }
        param.ty = param.ty.with_dims(dims);
        param
    });
    Ok(ranked)
}
