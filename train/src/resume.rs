//! The state of a run in a checkpoint besides its arrays, and the check that a run can resume from
//! it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use halite_core::{DType, Error, ErrorKind, Mesh, Result, TensorType, tree::Tree};
use halite_nn::{ArraySpec, Optimizer};
use serde::{Deserialize, Serialize};

use crate::{
    Task, TrainerOptions,
    checkpoint::{Exact, Held, RunPosition, Saved, exact_f64},
    identity::Identity,
    measured::Measured,
    programs::Programs,
    state::SKIPPED,
    window::WINDOW,
};

/// Metadata of a run's checkpoint.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Metadata {
    /// Identity of the run that wrote it.
    pub(crate) identity: Identity,
    /// Measurements of the steps so far, for the report.
    pub(crate) measured: Measured,
    /// Seconds of training so far.
    #[serde(with = "exact_f64")]
    pub(crate) seconds: f64,
    /// Step of the last validation: one that is due at the position is not repeated.
    #[serde(default)]
    pub(crate) validated: Option<u64>,
    /// Steps that were skipped, without those in the window.
    #[serde(default)]
    pub(crate) skipped: u64,
    /// Factor of learning rates.
    #[serde(default = "one")]
    pub(crate) rate_factor: Exact,
    /// What the window has besides the metrics, in its order.
    #[serde(default)]
    pub(crate) extras: Vec<String>,
    /// The training metrics, in the order of the sums.
    pub(crate) metrics: Vec<String>,
    /// Sums of the current epoch's metrics: value times weight, and weight.
    pub(crate) sums: Vec<(Exact, Exact)>,
    /// State of the callbacks, by name. Checkpointing adds it when it writes the checkpoint.
    #[serde(default)]
    pub(crate) callbacks: BTreeMap<String, serde_json::Value>,
}

fn one() -> Exact {
    Exact(1.0)
}

impl Metadata {
    /// Reads the metadata of a checkpoint.
    ///
    /// # Errors
    /// If a trainer did not write it.
    pub(crate) fn of(saved: &Saved) -> Result<Self> {
        if saved.path().is_file() {
            let message = format!(
                "{} has weights alone; give the folder of a checkpoint, which has the options of its \
                 run",
                saved.path().display()
            );
            return Err(Error::invalid("resume", message));
        }
        Self::parse(saved.path(), saved.metadata())
    }

    /// Reads the metadata of the checkpoint in the folder `path`.
    ///
    /// # Errors
    /// If a trainer did not write it.
    pub(crate) fn parse(path: &Path, metadata: &serde_json::Value) -> Result<Self> {
        let corrupt = |problem: String| {
            let path = path.display();
            let message = format!("{path} was not written by this trainer: {problem}");
            Error::new(ErrorKind::Corrupt, "resume", message)
        };
        let metadata: Metadata =
            serde_json::from_value(metadata.clone()).map_err(|error| corrupt(error.to_string()))?;
        let (metrics, sums) = (metadata.metrics.len(), metadata.sums.len());
        if metrics != sums {
            return Err(corrupt(format!("{metrics} metrics, {sums} sums")));
        }
        Ok(metadata)
    }
}

/// Type of the window of metrics in a checkpoint, if it is one.
pub(crate) fn window_type(saved: &Saved) -> Option<TensorType> {
    let window = saved.arrays().find(|(name, _)| *name == WINDOW);
    let window = window.map(|(_, ty)| ty.clone());
    window.filter(|ty| ty.dtype() == DType::F32 && ty.rank() == 1)
}

/// Names and types of the arrays of a checkpoint with this `window`, which may have other extras:
/// whole arrays, of which a process may have a part.
pub(crate) fn array_types<K: Task, O: Optimizer>(
    window: Option<&TensorType>,
    programs: &Programs<K, O>,
    mesh: &Arc<Mesh>,
) -> Vec<(String, TensorType)> {
    let least = 3 * programs.train_metrics.names().len();
    let window = window.filter(|ty| ty.dims()[0] >= least);
    let own = programs.train_metrics.spec(mesh).ty;
    let window = window.cloned().unwrap_or(own);
    let state = programs.whole.named().into_iter();
    state
        .filter(|(path, _)| !programs.left_out.contains(path))
        .map(|(path, whole)| (path, whole.ty.clone()))
        .chain([(WINDOW.to_string(), window)])
        .collect()
}

/// Names and specs of what this process has of the arrays of a checkpoint: the state, and the window
/// of metrics.
pub(crate) fn array_specs<K: Task, O: Optimizer>(
    programs: &Programs<K, O>,
    mesh: &Arc<Mesh>,
) -> Vec<(String, ArraySpec)> {
    let state = programs.state.named().into_iter();
    state
        .filter(|(path, _)| !programs.left_out.contains(path))
        .map(|(path, spec)| (path, spec.clone()))
        .chain([(WINDOW.to_string(), programs.train_metrics.spec(mesh))])
        .collect()
}

/// The arrays of a checkpoint: their types, and which of their elements this process has.
pub(crate) fn held_arrays<K: Task, O: Optimizer>(
    programs: &Programs<K, O>,
    mesh: &Arc<Mesh>,
) -> Vec<(String, TensorType, Held)> {
    let held = |(path, ty): (String, TensorType)| {
        let divided = programs.divided.as_ref();
        let rows = divided.and_then(|divided| divided.range(&path, ty.elements()));
        (path, ty, rows.map_or(Held::All, Held::Rows))
    };
    let whole = array_types(None, programs, mesh).into_iter();
    whole.map(held).collect()
}

/// Checks that the run is not shorter than the saved one.
fn check_length(saved: &Saved, options: &TrainerOptions) -> Result<()> {
    let RunPosition { step, epoch, batch } = saved.position();
    let path = saved.path().display();
    if let Some(most) = options.max_steps.filter(|most| *most < step) {
        let message = format!(
            "{path} has {step} steps of training, and `max_steps` is {most}: nothing would be \
             trained. Give more than {step} to continue, or {step} to validate it again \
             (`max_steps`, --max-steps)"
        );
        return Err(Error::invalid("resume", message));
    }
    let (epochs, least) = (options.epochs(), epoch + u64::from(batch > 0));
    if epochs >= least {
        return Ok(());
    }
    let (trained, to_end) = match batch {
        0 => (format!("{epoch} epochs"), "validate it again"),
        _ => (format!("{epoch} epochs and {batch} steps"), "end the epoch"),
    };
    let message = format!(
        "{path} has {trained} of training, and `max_epochs` is {epochs}: nothing would be trained. \
         Give more than {least} to continue, or {least} to {to_end} (`max_epochs`, --max-epochs)"
    );
    Err(Error::invalid("resume", message))
}

/// Checks that a run of this identity can resume from `saved`.
///
/// # Errors
/// If the run is longer than `options` say; else one error with every difference of the identity,
/// the metrics and the arrays.
pub(crate) fn check<K: Task, O: Optimizer>(
    saved: &mut Saved,
    identity: &Identity,
    options: &TrainerOptions,
    programs: &Programs<K, O>,
    mesh: &Arc<Mesh>,
) -> Result<()> {
    check_length(saved, options)?;
    let metadata = Metadata::of(saved)?;
    let names = programs.train_metrics.names();
    let mut others = Vec::new();
    if !names.iter().map(|name| &**name).eq(&metadata.metrics) {
        others.push(format!(
            "metrics: saved {}, given {}",
            metadata.metrics.join(", "),
            names.join(", ")
        ));
    }
    let types = array_types(window_type(saved).as_ref(), programs, mesh);
    saved.continue_with(&types, SKIPPED);
    others.extend(saved.differences(&types));
    identity.check_allowed(&metadata.identity, &options.allow_changes)?;
    identity
        .compare(&metadata.identity, &options.allow_changes)
        .check(&saved.path().display().to_string(), &others)
}
