//! The metrics of a task, found without running it, and their means over a pass.

use std::sync::Arc;

use halite_core::{
    DType, Error, Result, TensorType,
    tree::{Family, Tree},
};
use halite_data::Loader;
use halite_nn::{ArraySpec, ClassTarget, Mean, Padded, Processes, Tensor, Trace, Traced};

use super::{BatchTypes, LOSS, ModelArrays, batch_types};
use crate::{
    MetricValues, Task,
    cause::{self, Target},
    finite,
    metrics::CollectedMetrics,
    task::losses,
    window::{Window, WindowMetric},
};

/// What is done with the loss of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    pub(crate) is_training: bool,
    /// Why the last batch has rows of padding, if it has some.
    pub(crate) padding: Option<String>,
    /// The processes that exchange what they compute, if there are several.
    pub(crate) processes: Option<Processes>,
}

/// Why the last batch of `loader` has rows of padding, if it has some: the end of a message.
pub(crate) fn padding(which: &str, loader: &Loader) -> Option<String> {
    let (rows, samples) = (loader.padding(), loader.dataset().len());
    let rows_are = match rows {
        0 => return None,
        1 => "1 row of the last batch is".to_owned(),
        rows => format!("{rows} rows of the last batch are"),
    };
    let size = loader.options().batch_size;
    Some(format!(
        "{rows_are} padding, as the {samples} samples of the {which} are not divisible by the batch \
         size {size}"
    ))
}

/// Finds the metrics that a task reports, by tracing it without running it.
///
/// # Errors
/// All mistakes of the task's code at once: a loss or metric that counts padding like samples is
/// one.
pub(crate) fn discover<K: Task>(
    task: &K,
    model: &<K::Model as Family>::Of<TensorType>,
    batch: &BatchTypes<K>,
    pass: &Pass,
) -> Result<Window> {
    let cx = Trace::new();
    let key = (pass.is_training).then(|| cx.input(TensorType::new(DType::U32, [2]), "key"));
    cx.set_mode(pass.is_training, key);
    let mut shared: Vec<Tensor<'_>> = key.into_iter().collect();
    let model: Traced<'_, K::Model> = Tree::leaf_refs(model).map_leaves(|path, ty| {
        let leaf = cx.input(ty.clone(), path.to_string());
        shared.push(leaf);
        leaf
    });
    let mut batch_names = Vec::new();
    let batch = Tree::leaf_refs(batch).map_leaves(|path, spec| {
        let name = format!("batch.{path}");
        let tensor = cx.input(spec.ty.clone(), name.as_str());
        batch_names.push(name);
        tensor
    });
    let leaves: Vec<Tensor<'_>> = batch.leaves().into_iter().copied().collect();
    if let Some(processes) = &pass.processes {
        cx.set_processes(processes, cx.scalar(0.0, DType::U32));
        set_samples(&cx, &leaves);
    }
    let updates = if pass.is_training {
        task.updates()
    } else {
        &[]
    };
    let loss = losses(updates, &cx, &model, &batch);
    let loss = loss.unwrap_or_else(|| task.loss(&cx, &model, &batch));
    if let (Some(reason), Some((&weight, fields))) = (&pass.padding, leaves.split_last()) {
        let batch = Padded {
            fields,
            weight,
            reason,
        };
        cx.require_weight(loss, batch);
    }
    // Reports mistakes before anything is compiled.
    cx.check()?;
    cx.require_separate_samples(loss, &shared, &leaves);
    cx.check()?;
    check_task(&cx, loss)?;
    let names =
        std::iter::once(Arc::from(LOSS)).chain(cx.metrics().into_iter().map(|(name, _)| name));
    let target = |classes: ClassTarget| {
        let field = batch_names
            .iter()
            .position(|name| **name == *classes.input)?;
        Some(Target { field, classes })
    };
    let targets = cx.class_targets().into_iter().filter_map(target);
    let window = Window::new(names, targets).collecting(CollectedMetrics::of(&cx)?);
    check_names(&window)?;
    Ok(window)
}

fn check_task(cx: &Trace, loss: Mean<'_>) -> Result<()> {
    if loss.total.rank() != 0 || loss.weight.rank() != 0 {
        let message = format!(
            "the loss is the mean of a total {} and a weight {}; both must be scalars, as \
             `Mean::of` and `Mean::weighted` make them",
            loss.total.ty(),
            loss.weight.ty()
        );
        return Err(Error::invalid("fit", message));
    }
    if cx.metrics().iter().any(|(name, _)| **name == *LOSS) {
        let message = format!(
            "the task reports a metric `{LOSS}`, which is the name of the value that it returns; \
             give it another name"
        );
        return Err(Error::invalid("fit", message));
    }
    Ok(())
}

fn check_names(window: &Window) -> Result<()> {
    let names = window.result_names();
    let twice = (names.iter().enumerate()).find(|(index, name)| names[..*index].contains(name));
    if let Some((_, name)) = twice {
        let message = format!(
            "the task reports two metrics `{name}`, of which one is a result of what it collects; \
             give one of them another name"
        );
        return Err(Error::invalid("fit", message));
    }
    Ok(())
}

/// Sets the number of samples of a process, from the leaves of its batch.
pub(super) fn set_samples<'t>(cx: &'t Trace, batch: &[Tensor<'t>]) {
    let first = batch.first().map(|leaf| leaf.dims());
    if let Some(&count) = first.as_ref().and_then(|dims| dims.first()) {
        cx.set_samples(count);
    }
}

/// The window of a task's evaluation, for a model on devices.
pub(crate) fn discover_evaluation<K: Task>(
    task: &K,
    model: &ModelArrays<K>,
    batch: &<K::Batch as Family>::Of<ArraySpec>,
    loader: &Loader,
    processes: Option<&Processes>,
) -> Result<Window> {
    let types = Tree::leaf_refs(model).map_leaves(|_, array| array.ty().clone());
    let pass = Pass {
        padding: padding("dataset", loader),
        is_training: false,
        processes: processes.cloned(),
    };
    discover(task, &types, &batch_types::<K>(batch), &pass)
}

/// Mean of each metric over a pass through `loader`, by name.
///
/// # Errors
/// If one is not finite, with the cause if it is in the data.
pub(crate) fn means_of_pass(
    metrics: &Window,
    read: Vec<WindowMetric>,
    loader: &Loader,
) -> Result<MetricValues> {
    finite::check_scores(&read, || cause::of_pass(&loader.whole(), metrics.targets()))?;
    let means = read.into_iter();
    Ok(means
        .map(|metric| (metric.name.clone(), metric.mean()))
        .collect())
}
