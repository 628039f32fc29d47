//! `adapter_config.json`.

use std::{collections::BTreeMap, path::Path};

use halite_core::{Error, ErrorKind, Result, files};
use serde_json::Value;

use super::{CONFIG, OPERATION};
use crate::{Config, keys};

const TARGETS: &str = "target_modules";
const NUMBERS: &str = "layers_to_transform";
const EXCLUDED: &str = "exclude_modules";

/// What an `adapter_config.json` says of the adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Rank of all adapters but for those that a pattern is for.
    pub rank: usize,
    /// They are multiplied by this over the rank.
    pub alpha: f64,
    /// Name or path of the model that they are for, if the file has one.
    pub base_model: Option<String>,
    /// Alpha as the file has it.
    lora_alpha: f64,
    /// Adapters are divided by the root of the rank, not by the rank.
    is_stabilized: bool,
    /// Numbers of the layers of a stack that have adapters; `None`: all.
    numbers: Option<Vec<u64>>,
    /// Names before these numbers; none: any.
    stacks: Vec<String>,
    /// Names of layers without adapters, or the ends of these.
    excluded: Vec<String>,
    ranks: BTreeMap<String, usize>,
    alphas: BTreeMap<String, f64>,
    targets: Targets,
}

/// The layers that have adapters.
#[derive(Clone, Debug, PartialEq)]
enum Targets {
    /// Names of layers, or the ends of these.
    Names(Vec<String>),
    /// A regular expression, or `all-linear`.
    Text,
    /// peft has others for each architecture.
    Missing,
}

impl AdapterConfig {
    /// Reads the `adapter_config.json` of a directory.
    ///
    /// # Errors
    /// If it cannot be read, or describes other adapters than LoRA without biases and further layers
    /// on the base as it was: all in one error. A key that is not known is an error.
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
        let fields = fields(&path, &origin)?;
        let mut config = Config::new(&origin, &fields)
            .known(&keys::ADAPTER, ignored)
            .operation(OPERATION);
        config.require_text("peft_type", &["LORA"]);
        let rank = config.size("r");
        let lora_alpha = config.number("lora_alpha");
        let is_stabilized = config.flag_or("use_rslora", false);
        let base_model = config.text("base_model_name_or_path").map(str::to_owned);
        let numbers = numbers(&mut config);
        let stacks = names(&mut config, "layers_pattern");
        // A text is a regular expression, as for the targets.
        let excluded = match config.value(EXCLUDED) {
            Some(Value::String(_)) => Vec::new(),
            _ => names(&mut config, EXCLUDED),
        };
        let rank_of = |value: &Value| {
            usize::try_from(value.as_u64()?)
                .ok()
                .filter(|&rank| rank > 0)
        };
        let targets = targets(&mut config, ignored);
        let ranks = patterns(&mut config, "rank_pattern", rank_of);
        let alphas = patterns(&mut config, "alpha_pattern", Value::as_f64);
        config.finish()?;
        let mut read = AdapterConfig {
            rank,
            alpha: 0.0,
            base_model,
            lora_alpha,
            is_stabilized,
            numbers,
            stacks,
            excluded,
            ranks,
            alphas,
            targets,
        };
        read.alpha = read.scale(rank, lora_alpha) * rank as f64;
        Ok(read)
    }

    fn scale(&self, rank: usize, alpha: f64) -> f64 {
        if self.is_stabilized {
            alpha / (rank as f64).sqrt()
        } else {
            alpha / rank as f64
        }
    }

    /// Whether layers of one kind may differ: in their ranks and factors, or in having adapters.
    pub(super) fn has_exceptions(&self) -> bool {
        self.is_partial() || !(self.ranks.is_empty() && self.alphas.is_empty())
    }

    /// Whether only some layers of a stack have adapters.
    pub(super) fn is_partial(&self) -> bool {
        self.numbers.is_some() || !self.excluded.is_empty()
    }

    /// Checks that the layers of a file's tensors are those that have adapters: peft passes over
    /// the tensors of others.
    ///
    /// # Errors
    /// If one is not.
    pub(super) fn check_layers<'n>(&self, layers: impl Iterator<Item = &'n str>) -> Result<()> {
        let is_of = |names: &[String], layer: &str| names.iter().any(|name| is_end(layer, name));
        let mut problems = layers.filter_map(|layer| {
            let without = |why: &str| Some(format!("{why} `{layer}`, which has tensors"));
            match (&self.targets, &self.numbers) {
                (Targets::Missing, _) => {
                    Some(format!("`{TARGETS}` is missing; expected names of layers"))
                }
                (Targets::Names(names), _) if !is_of(names, layer) => {
                    without(&format!("`{TARGETS}` does not name"))
                }
                _ if is_of(&self.excluded, layer) => without(&format!("`{EXCLUDED}` names")),
                (_, Some(numbers))
                    if !number_of(layer, &self.stacks)
                        .is_some_and(|number| numbers.contains(&number)) =>
                {
                    without(&format!("`{NUMBERS}` does not have the number of"))
                }
                _ => None,
            }
        });
        match problems.next() {
            Some(problem) => Err(Error::invalid(OPERATION, format!("`{CONFIG}`: {problem}"))),
            None => Ok(()),
        }
    }

    /// The rank and the factor of the adapter of a layer.
    pub(super) fn of_layer(&self, name: &str) -> (usize, f64) {
        let rank = found(&self.ranks, name).unwrap_or(self.rank);
        let alpha = found(&self.alphas, name).unwrap_or(self.lora_alpha);
        (rank, self.scale(rank, alpha))
    }
}

/// The numbers of layers, by their names or the ends of these; empty if the field is missing. peft
/// takes the names for regular expressions.
fn patterns<T>(
    config: &mut Config<'_>,
    field: &str,
    number: impl Fn(&Value) -> Option<T>,
) -> BTreeMap<String, T> {
    let is_name = |name: &str| {
        let name = name.strip_prefix('^').unwrap_or(name);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        !name.is_empty() && name.chars().all(is_plain)
    };
    let Some(value) = config.value(field) else {
        return BTreeMap::new();
    };
    let mut numbers = BTreeMap::new();
    let fields = value.as_object();
    if fields.is_none() {
        config.problem(format!("`{field}` is not an object of names and numbers"));
    }
    for (name, value) in fields.into_iter().flatten() {
        match number(value).filter(|_| is_name(name)) {
            Some(number) => drop(numbers.insert(name.clone(), number)),
            None => config.problem(format!(
                "`{field}` has `{}`: {value}; supported: names of layers with positive numbers",
                name.escape_debug()
            )),
        }
    }
    numbers
}

/// The object in a file.
fn fields(path: &Path, origin: &str) -> Result<Value> {
    let bytes = files::read_input(path).map_err(|error| {
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
    Ok(fields)
}

/// The numbers of the layers that are adapted; `None` for all.
fn numbers(config: &mut Config<'_>) -> Option<Vec<u64>> {
    let numbers = config.value(NUMBERS).map(|value| match value {
        Value::Array(numbers) => numbers.iter().map(Value::as_u64).collect(),
        number => number.as_u64().map(|number| vec![number]),
    });
    let numbers = numbers.map(|numbers: Option<Vec<u64>>| {
        numbers.unwrap_or_else(|| {
            config.problem(format!("`{NUMBERS}` is not a number or a list of numbers"));
            Vec::new()
        })
    });
    numbers.filter(|numbers| !numbers.is_empty())
}

/// The layers that are adapted.
fn targets(config: &mut Config<'_>, ignored: &[String]) -> Targets {
    match config.value(TARGETS) {
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            Targets::Names(names.map(str::to_owned).collect())
        }
        Some(Value::String(_)) => Targets::Text,
        Some(other) => {
            config.problem(format!("`{TARGETS}` is {other}; expected names of layers"));
            Targets::Text
        }
        None if ignored.iter().any(|key| key == TARGETS) => Targets::Text,
        None => Targets::Missing,
    }
}

/// A list of names, or one name; empty if the field is missing.
fn names(config: &mut Config<'_>, field: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let names = match config.value(field) {
        None => return Vec::new(),
        Some(Value::Array(names)) => names.iter().map(text).collect(),
        Some(name) => text(name).map(|name| vec![name]),
    };
    let names: Option<Vec<String>> = names;
    let names = names.unwrap_or_else(|| {
        config.problem(format!("`{field}` is not a list of names"));
        Vec::new()
    });
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

/// The number of a layer in its stack, as peft finds it: the last one between two names, of which the
/// first is one of `stacks`, if there are some. `None` without one, or if the stack has no name
/// before it.
fn number_of(layer: &str, stacks: &[String]) -> Option<u64> {
    let parts: Vec<&str> = layer.split('.').collect();
    let inner = 2..parts.len().saturating_sub(1);
    inner.rev().find_map(|at| {
        let is_stack = stacks.is_empty() || stacks.iter().any(|stack| stack == parts[at - 1]);
        parts[at].parse().ok().filter(|_| is_stack)
    })
}

/// Whether a name is that of a layer, or its last segments.
fn is_end(layer: &str, name: &str) -> bool {
    let before = layer.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The number of the first name that is that of a layer, or its end.
fn found<T: Copy>(numbers: &BTreeMap<String, T>, layer: &str) -> Option<T> {
    let matches = |name: &str| match name.strip_prefix('^') {
        Some(name) => name == layer,
        None => is_end(layer, name),
    };
    let found = numbers.iter().find(|(name, _)| matches(name));
    found.map(|(_, number)| *number)
}
