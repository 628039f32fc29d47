//! Identity of a run: the properties that must not change when it resumes, as names and text.
//!
//! A checkpoint has the identity of the run that wrote it. A resume compares it with its own:
//! differences that change the result are rejected, all in one error, unless they are allowed by
//! name; differences that change only the rounding, or the length of the run, are warnings. Another
//! platform is rejected too, because `auto` may open another one than it did for the saved run.
//! Nothing here reads a file.

mod comparison;
mod optimizer;
mod pending;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use halite_core::{Code, Error, Platform, Result};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    comparison::Comparison,
    pending::{Data, PendingIdentity},
};
use self::{
    comparison::{Difference, normalized},
    optimizer::{differing, is_of_earlier_halite, only_lengths_differ},
    pending::Digests,
    text::{digest_of_program, version_of, without_addresses},
};
use crate::Property;

/// Name that allows every difference.
const ALL: &str = "all";
/// Effect of a difference on the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Effect {
    /// Other weights: rejected unless allowed.
    Mathematics,
    /// The same computation, rounded in another order.
    Rounding,
    /// Another platform: rejected unless allowed. Another version of it: rounded in another order.
    Platform,
    /// A longer or shorter run: the usual way to extend one.
    Length,
    /// Another program for the same values: the settings or the code of the model changed.
    Code,
}

/// A property that the trainer knows.
struct Known {
    name: &'static str,
    /// Flags of the command line that set it.
    options: &'static [&'static str],
    effect: Effect,
}

const EPOCHS: &str = "epochs";
const OPTIMIZER: &str = "optimizer";
const SEED: &str = "seed";
const BATCH_SIZE: &str = "batch_size";
const ACCUMULATION: &str = "accumulate_grad_batches";
const SAMPLES: &str = "samples";
const LABEL: &str = "label";
const PRECISION: &str = "precision";
const TRAINING_DATA: &str = "training data";
const VALIDATION_DATA: &str = "validation data";
const STEP: &str = "training step";
/// Properties that are digests of data.
const DATA: [&str; 2] = [TRAINING_DATA, VALIDATION_DATA];

const KNOWN: [Known; 18] = [
    Known {
        name: LABEL,
        options: &[],
        effect: Effect::Mathematics,
    },
    Known {
        name: SEED,
        options: &["--seed"],
        effect: Effect::Mathematics,
    },
    Known {
        name: BATCH_SIZE,
        options: &["--batch-size"],
        effect: Effect::Mathematics,
    },
    Known {
        name: SAMPLES,
        options: &["--limit", "--steps"],
        effect: Effect::Mathematics,
    },
    Known {
        name: TRAINING_DATA,
        options: &["--data"],
        effect: Effect::Mathematics,
    },
    Known {
        name: VALIDATION_DATA,
        options: &["--data"],
        effect: Effect::Mathematics,
    },
    Known {
        name: "clip_norm",
        options: &["--gradient-clip-val", "--gradient-clip-algorithm"],
        effect: Effect::Mathematics,
    },
    Known {
        name: ACCUMULATION,
        options: &["--accumulate-grad-batches"],
        effect: Effect::Mathematics,
    },
    Known {
        name: "last_batch",
        options: &["--last-batch"],
        effect: Effect::Mathematics,
    },
    Known {
        name: "limit_train_batches",
        options: &["--limit-train-batches"],
        effect: Effect::Mathematics,
    },
    Known {
        name: "overfit_batches",
        options: &["--overfit-batches"],
        effect: Effect::Mathematics,
    },
    Known {
        name: OPTIMIZER,
        options: &["--learning-rate"],
        effect: Effect::Mathematics,
    },
    Known {
        name: PRECISION,
        options: &["--precision"],
        effect: Effect::Mathematics,
    },
    Known {
        name: EPOCHS,
        options: &["--max-epochs", "--max-steps"],
        effect: Effect::Length,
    },
    Known {
        name: "mesh",
        options: &["--devices", "--mesh"],
        effect: Effect::Rounding,
    },
    Known {
        name: "strategy",
        options: &["--strategy"],
        effect: Effect::Rounding,
    },
    Known {
        name: "plugin",
        options: &["--accelerator"],
        effect: Effect::Platform,
    },
    Known {
        name: STEP,
        options: &[],
        effect: Effect::Code,
    },
];

/// The values that [`Identity::new`] is made of.
pub(crate) struct Values<'a> {
    pub(crate) label: Option<&'a str>,
    pub(crate) seed: u64,
    pub(crate) batch_size: u64,
    pub(crate) samples: u64,
    pub(crate) clip: Option<String>,
    pub(crate) accumulate_grad_batches: u64,
    pub(crate) last_batch: String,
    pub(crate) limit_train_batches: String,
    pub(crate) overfit_batches: String,
    /// Its pretty `Debug` text.
    pub(crate) optimizer: String,
    pub(crate) precision: String,
    /// Epochs, or steps, or the one of both that ends first.
    pub(crate) epochs: String,
    pub(crate) mesh: String,
    pub(crate) strategy: String,
    /// Name and version of the platform.
    pub(crate) plugin: String,
    /// The program of the training step, as MLIR text.
    pub(crate) step: &'a Code,
    /// Properties that the caller adds.
    pub(crate) properties: &'a [Property],
}

/// Properties that must not change when a run resumes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Identity {
    /// Properties that the trainer knows; one that is missing is unknown, and not compared.
    trainer: BTreeMap<String, String>,
    /// Properties that the caller gave; one that is missing was not given.
    #[serde(default)]
    properties: BTreeMap<String, String>,
}

impl Identity {
    pub(crate) fn new(values: Values<'_>) -> Self {
        let none = || "none".to_string();
        let known = [
            (LABEL, values.label.map_or_else(none, String::from)),
            (SEED, values.seed.to_string()),
            (BATCH_SIZE, values.batch_size.to_string()),
            (SAMPLES, values.samples.to_string()),
            ("clip_norm", values.clip.unwrap_or_else(none)),
            (ACCUMULATION, values.accumulate_grad_batches.to_string()),
            ("last_batch", values.last_batch),
            ("limit_train_batches", values.limit_train_batches),
            ("overfit_batches", values.overfit_batches),
            (OPTIMIZER, without_addresses(&values.optimizer)),
            (PRECISION, values.precision),
            (EPOCHS, values.epochs),
            ("mesh", values.mesh),
            ("strategy", values.strategy),
            ("plugin", values.plugin),
            (STEP, digest_of_program(values.step)),
        ];
        Identity {
            trainer: known
                .map(|(name, value)| (name.to_string(), value))
                .into_iter()
                .collect(),
            properties: (values.properties.iter())
                .map(|property| (property.name.clone(), property.value.clone()))
                .collect(),
        }
    }

    /// Properties that the caller gave, by name.
    pub(crate) fn into_properties(self) -> BTreeMap<String, String> {
        self.properties
    }

    /// Adds the digests of the training data and the validation data, where they are known.
    fn add_data(&mut self, digests: Digests) {
        for (name, digest) in DATA.into_iter().zip(digests) {
            self.trainer
                .extend(digest.map(|digest| (name.to_string(), digest)));
        }
    }

    /// All names and values.
    pub(crate) fn facts(&self) -> BTreeMap<String, String> {
        let all = self.trainer.iter().chain(&self.properties);
        all.map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Names and values for loggers: everything but the digest of the program.
    pub(crate) fn hyperparameters(&self) -> Vec<(String, String)> {
        let known = self.trainer.iter().filter(|(name, _)| *name != STEP);
        known
            .chain(&self.properties)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// The number of samples of a step.
    pub(crate) fn samples_per_step(&self) -> Option<u64> {
        let number = |name: &str| self.trainer.get(name)?.parse::<u64>().ok();
        // Checkpoints of before have steps of one batch.
        number(BATCH_SIZE)?.checked_mul(number(ACCUMULATION).unwrap_or(1))
    }

    /// Checks that each of `allowed` names a property of this run or of the `saved` one.
    ///
    /// # Errors
    /// The unknown names, with the known ones.
    pub(crate) fn check_allowed(&self, saved: &Identity, allowed: &[String]) -> Result<()> {
        let properties = self.properties.keys().chain(saved.properties.keys());
        let mut names: BTreeSet<String> = properties.map(|name| normalized(name)).collect();
        for known in KNOWN
            .iter()
            .filter(|known| matches!(known.effect, Effect::Mathematics | Effect::Platform))
        {
            names.insert(normalized(known.name));
            names.extend(known.options.iter().map(|option| normalized(option)));
        }
        let unknown: Vec<String> = (allowed.iter().map(|name| normalized(name)))
            .filter(|name| name != ALL && !names.contains(name))
            .map(|name| format!("`{name}`"))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let known = names.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!(
            "unknown property {}; expected all, {known}",
            unknown.join(", ")
        );
        Err(Error::invalid("allow_changes", message))
    }

    /// Compares the `saved` identity with this one, which is that of the run that resumes.
    pub(crate) fn compare(&self, saved: &Identity, allowed: &[String]) -> Comparison {
        let allowed: BTreeSet<String> = allowed.iter().map(|name| normalized(name)).collect();
        let allows = |difference: &Difference| {
            let mut names =
                std::iter::once(&*difference.name).chain(difference.options.iter().copied());
            allowed.contains(ALL) || names.any(|name| allowed.contains(&normalized(name)))
        };
        let (mut comparison, mut mathematics) = self.known_differences(saved);
        // More epochs make a longer schedule, of the same rates.
        let lengths = |difference: &Difference| {
            let text = |identity: &Identity| identity.trainer.get(OPTIMIZER).cloned();
            difference.name == OPTIMIZER
                && (text(saved).zip(text(self)))
                    .is_some_and(|(then, now)| only_lengths_differ(&then, &now))
        };
        comparison.length = comparison.length.take().and_then(|(epochs, _)| {
            let optimizer = mathematics.iter().position(lengths)?;
            Some((epochs, mathematics.remove(optimizer)))
        });
        mathematics.extend(self.property_differences(saved));
        let is_unknown = |name: &&str| {
            [saved, self]
                .iter()
                .any(|side| !side.trainer.contains_key(*name))
        };
        comparison.unknown = DATA.into_iter().filter(is_unknown).collect();
        comparison.other_program &= mathematics.is_empty() && comparison.rounding.is_empty();
        (comparison.accepted, comparison.refused) = mathematics.into_iter().partition(allows);
        comparison
    }

    /// The differences in the settings of the trainer. Those of the mathematics are apart: whether
    /// they are allowed is decided later.
    fn known_differences(&self, saved: &Identity) -> (Comparison, Vec<Difference>) {
        let (mut comparison, mut mathematics) = (Comparison::default(), Vec::new());
        for known in &KNOWN {
            let (Some(then), Some(now)) =
                (saved.trainer.get(known.name), self.trainer.get(known.name))
            else {
                continue;
            };
            let then = &match known.effect {
                Effect::Platform => renamed(then),
                _ => then.clone(),
            };
            if then == now {
                continue;
            }
            if known.name == OPTIMIZER && is_of_earlier_halite(then, now) {
                comparison.earlier_optimizer = true;
                continue;
            }
            let (saved, given) = match known.name {
                OPTIMIZER => differing(then, now),
                _ => (then.clone(), now.clone()),
            };
            let difference = Difference {
                name: known.name.to_string(),
                options: known.options,
                saved,
                given,
            };
            match known.effect {
                Effect::Mathematics => mathematics.push(difference),
                Effect::Platform if platform_of(then) != platform_of(now) => {
                    mathematics.push(difference);
                }
                Effect::Rounding | Effect::Platform => comparison.rounding.push(difference),
                Effect::Length => comparison.length = Some((difference.clone(), difference)),
                // Another version of halite prints another program.
                Effect::Code => {
                    comparison.other_program = version_of(then) == version_of(now);
                }
            }
        }
        (comparison, mathematics)
    }

    /// The properties of the caller that differ, or that only one side has.
    fn property_differences(&self, saved: &Identity) -> Vec<Difference> {
        let names = saved.properties.keys().chain(self.properties.keys());
        let names: BTreeSet<&String> = names.collect();
        let value = |value: Option<&String>| value.map_or("nothing", String::as_str).to_string();
        let difference = |name: &String| {
            let (then, now) = (saved.properties.get(name), self.properties.get(name));
            (then != now).then(|| Difference {
                name: name.clone(),
                options: &[],
                saved: value(then),
                given: value(now),
            })
        };
        names.into_iter().filter_map(difference).collect()
    }
}

/// Returns the name of the platform at the start of the property `plugin`.
fn platform_of(plugin: &str) -> &str {
    plugin.split(' ').next().unwrap_or(plugin)
}

/// The property `plugin`, with the current name of its platform.
fn renamed(plugin: &str) -> String {
    let name = platform_of(plugin);
    format!("{}{}", Platform::current_name(name), &plugin[name.len()..])
}

#[cfg(test)]
mod tests;
