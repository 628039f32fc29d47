//! The check that means over samples depend on the weights of the samples.

use std::panic::Location;

use crate::{Mean, Tensor, Trace, trace::Id};

/// A batch of which some rows are padding of weight 0.
#[derive(Clone, Copy, Debug)]
pub struct Padded<'a, 't> {
    /// The fields of the samples.
    pub fields: &'a [Tensor<'t>],
    /// The weight of each sample.
    pub weight: Tensor<'t>,
    /// Why rows are padding, and what to do besides using the weight: the end of a message.
    pub reason: &'a str,
}

impl Trace {
    /// Records a mistake for the loss and for each metric that depends on the fields of the batch
    /// and not on its weight: padding would count like samples. The mistake is at the user's line.
    pub fn require_weight(&self, loss: Mean<'_>, batch: Padded<'_, '_>) {
        let metrics = super::context(self).metrics.borrow();
        let metrics = metrics.iter().map(|metric| {
            let name = format!("the metric `{}`", metric.name);
            (name, [metric.total, metric.weight], Some(metric.location))
        });
        let sums = [loss.total.id, loss.weight.id];
        let line = loss.total.origin().or(loss.weight.origin());
        let means: Vec<_> = [("the loss".to_owned(), sums, line)]
            .into_iter()
            .chain(metrics)
            .collect();
        for (name, sums, line) in means {
            require_weight_of(self, &name, sums, line, &batch);
        }
        require_weight_of_rows(self, &batch);
    }
}

/// Records a mistake for rows of samples that are collected with another weight.
fn require_weight_of_rows(cx: &Trace, batch: &Padded<'_, '_>) {
    let uses = |of: Id, tensor: Tensor<'_>| cx.recording.borrow().is_computed_from(of, tensor.id);
    let of_samples = |of: Id| batch.fields.iter().any(|&field| uses(of, field));
    let mistakes: Vec<_> = (super::context(cx).collected.borrow().iter())
        .filter(|rows| !uses(rows.weight, batch.weight))
        .filter(|rows| of_samples(rows.scores) || of_samples(rows.targets))
        .map(|rows| (rows.name.clone(), rows.location))
        .collect();
    let weight = batch.weight.name().unwrap_or_else(|| "the weight".into());
    for (name, location) in mistakes {
        let message = format!(
            "the weight of `{name}` does not depend on `{weight}`, so padding would count like \
             samples: {}. Give `{weight}` as the weight",
            batch.reason
        );
        cx.fail_at(location, "collect", message, None);
    }
}

fn require_weight_of(
    cx: &Trace,
    name: &str,
    sums: [Id; 2],
    line: Option<&'static Location<'static>>,
    batch: &Padded<'_, '_>,
) {
    let uses = |of: Id, tensor: Tensor<'_>| cx.recording.borrow().is_computed_from(of, tensor.id);
    let of_samples = |of: Id| batch.fields.iter().any(|&field| uses(of, field));
    let is_weighted = sums.iter().all(|&of| uses(of, batch.weight));
    if is_weighted || !sums.iter().any(|&of| of_samples(of)) {
        return;
    }
    let weight = batch.weight.name().unwrap_or_else(|| "the weight".into());
    let message = format!(
        "{name} does not depend on `{weight}`, so padding would count like samples: {}. With a value \
         for each sample, write `batch.mean(values)` or `Mean::weighted(values, {weight})`; or \
         `CrossEntropy::new().weights({weight})`",
        batch.reason
    );
    let _site = line.map(|line| cx.located_at(line));
    cx.fail("mean", message, None);
}
