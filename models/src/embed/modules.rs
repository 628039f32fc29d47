//! The files of the Python package `sentence-transformers` in a model directory.

use std::path::{Component, Path};

use halite_core::{Error, ErrorKind, Result};
use halite_weights::{Config, keys};
use serde_json::Value;

use crate::{Pooling, Pretrained};

const MODULES: &str = "modules.json";
/// The modules that are known, in their order.
const KNOWN: [&str; 3] = ["Transformer", "Pooling", "Normalize"];
const PACKAGE: &str = "sentence_transformers.";

/// Kinds of pooling, by the name in files from version 5.4 on and by that of the flag in older ones.
const POOLINGS: [(&str, &str, Option<Pooling>); 6] = [
    ("mean", "pooling_mode_mean_tokens", Some(Pooling::Mean)),
    ("cls", "pooling_mode_cls_token", Some(Pooling::Cls)),
    ("max", "pooling_mode_max_tokens", Some(Pooling::Max)),
    (
        "lasttoken",
        "pooling_mode_lasttoken",
        Some(Pooling::LastToken),
    ),
    (
        "mean_sqrt_len_tokens",
        "pooling_mode_mean_sqrt_len_tokens",
        None,
    ),
    ("weightedmean", "pooling_mode_weightedmean_tokens", None),
];

/// What the files say of a sentence encoder.
pub(super) struct Modules {
    pub(super) pooling: Pooling,
    pub(super) normalize: bool,
    pub(super) lowercase: bool,
    /// Tokens of a text, if a file says so.
    pub(super) longest: Option<usize>,
}

impl Modules {
    /// Reads the files that are there.
    pub(super) fn of(source: &Pretrained) -> Result<Self> {
        source.read_file(
            "config_sentence_transformers.json",
            &keys::SENTENCE_TRANSFORMERS,
            |_| (),
        )?;
        let (mut longest, mut lowercase) = (None, false);
        source.read_file(
            "sentence_bert_config.json",
            &keys::SENTENCE_BERT,
            |config| {
                longest = (config.has("max_seq_length")).then(|| config.size("max_seq_length"));
                lowercase = config.flag_or("do_lower_case", false);
                // What the transformer is asked for, from version 5.4 on.
                config.expect_text("modality_config.text.method", &["forward"]);
                let output = "modality_config.text.method_output_name";
                config.expect_text(output, &["last_hidden_state"]);
            },
        )?;
        if longest.is_none() {
            longest = source.longest_text()?;
        }
        let (pooling, normalize) = match modules(source)? {
            Some([_, pooling, normalize]) => {
                let pooling = pooling.ok_or_else(|| {
                    let message = format!("{MODULES} of {} has no `Pooling`", source.origin());
                    Error::new(ErrorKind::Unsupported, "embed", message)
                })?;
                if let Some(path) = normalize.as_ref().filter(|path| !path.is_empty()) {
                    source.read_file(&format!("{path}/config.json"), &keys::MODULE, |_| ())?;
                }
                let read = read_pooling(source, &pooling)?.ok_or_else(|| {
                    let (origin, pooling) = (source.origin(), pooling.escape_debug());
                    let message = format!(
                        "{MODULES} of {origin} names `{pooling}`, which has no config.json"
                    );
                    Error::invalid("embed", message)
                })?;
                (read, normalize.is_some())
            }
            None => (read_pooling(source, "1_Pooling")?.unwrap_or_default(), true),
        };
        Ok(Modules {
            pooling,
            normalize,
            lowercase,
            longest,
        })
    }
}

/// The folders of the modules of a directory, in the order of [`KNOWN`]; `None` without the file.
fn modules(source: &Pretrained) -> Result<Option<[Option<String>; 3]>> {
    let Some(modules) = source.json_list(MODULES)? else {
        return Ok(None);
    };
    let origin = source.directory().join(MODULES).display().to_string();
    let mut paths = [const { None }; 3];
    let mut next = 0;
    for module in &modules {
        let mut config = source.config_of(&origin, module, &keys::MODULES);
        let kind = config.text("type").unwrap_or_default();
        let path = config.text("path").unwrap_or_default();
        let name = kind
            .strip_prefix(PACKAGE)
            .and_then(|kind| kind.rsplit('.').next());
        let place = KNOWN.iter().position(|known| Some(*known) == name);
        match place {
            Some(place) if place >= next => {
                (paths[place], next) = (Some(path.to_owned()), place + 1);
            }
            Some(_) => config.problem(format!("`{kind}` after a module that follows it")),
            None => {
                let (kind, known) = (kind.escape_debug(), KNOWN.join(", "));
                config.problem(format!("a module `{kind}`; supported: {known}"));
            }
        }
        let mut segments = Path::new(path).components();
        if !segments.all(|segment| matches!(segment, Component::Normal(_))) {
            config.problem(format!(
                "the folder `{}` is not below it",
                path.escape_debug()
            ));
        }
        if place == Some(0) && !path.is_empty() {
            let path = path.escape_debug();
            config.problem(format!(
                "the transformer is in the folder `{path}`; expected it beside"
            ));
        }
        config.finish()?;
    }
    Ok(Some(paths))
}

/// The pooling that the configuration in a folder describes, if there is one.
fn read_pooling(source: &Pretrained, folder: &str) -> Result<Option<Pooling>> {
    source.read_file(&format!("{folder}/config.json"), &keys::MODULE, chosen)
}

/// By default the mean.
fn chosen(config: &mut Config<'_>) -> Pooling {
    let flags = POOLINGS.map(|(name, flag, _)| (name, config.flag_or(flag, false)));
    let flags = flags.iter().filter(|(_, is_set)| *is_set);
    let mut names: Vec<&str> = flags.map(|(name, _)| *name).collect();
    // One name, or a list of names whose vectors are joined. It counts before flags.
    match config.value("pooling_mode") {
        Some(Value::String(name)) => names = vec![name],
        Some(Value::Array(list)) => {
            names = list
                .iter()
                .map(|name| name.as_str().unwrap_or_default())
                .collect();
        }
        Some(_) => config.problem("`pooling_mode` is neither a text nor a list"),
        None => {}
    }
    let known = |name: &str| POOLINGS.iter().find(|(known, ..)| *known == name)?.2;
    let pooling = match names[..] {
        [] => Some(Pooling::Mean),
        [name] => known(name),
        _ => None,
    };
    pooling.unwrap_or_else(|| {
        let supported = POOLINGS.iter().filter(|(_, _, pooling)| pooling.is_some());
        let supported: Vec<&str> = supported.map(|(name, ..)| *name).collect();
        let (names, supported) = (names.join("`, `"), supported.join(", "));
        config.problem(format!(
            "pooling by `{}`; supported: one of {supported}",
            names.escape_debug()
        ));
        Pooling::Mean
    })
}
