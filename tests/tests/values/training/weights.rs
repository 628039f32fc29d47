//! Losses and metrics that count the padding of a last batch like samples.

use halite::prelude::*;

use crate::training::support::{spirals, trainer};

struct With<F>(F);

trait Loss:
    for<'t> Fn(&'t Trace, &Linear<Tensor<'t>>, &Labeled<Tensor<'t>>) -> Mean<'t> + Send + Sync + 'static
{
}

impl<F> Loss for F where
    F: for<'t> Fn(&'t Trace, &Linear<Tensor<'t>>, &Labeled<Tensor<'t>>) -> Mean<'t>
        + Send
        + Sync
        + 'static
{
}

impl<F: Loss> Task for With<F> {
    type Model = Linear<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Linear<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        (self.0)(cx, model, batch)
    }
}

fn unweighted<'t>(
    _: &'t Trace,
    model: &Linear<Tensor<'t>>,
    batch: &Labeled<Tensor<'t>>,
) -> Mean<'t> {
    Mean::of(cross_entropy(model.forward(batch.input), batch.target))
}

/// Validation loss and accuracy of a run with a training set of 70 samples, which drops what does
/// not fill a batch of 32, and this number of validation samples.
fn fit(validation: usize, loss: impl Loss) -> Result<Vec<f64>> {
    let trainer = trainer().batch_size(32).epochs(1).build()?;
    let adam = Adam::new(1e-2);
    let (train, validation) = (spirals(70), spirals(validation));
    let fitted = trainer.fit(With(loss), Linear::new(2, 3), adam, train, validation)?;
    Ok(fitted.report.metrics.values().copied().collect())
}

fn error(validation: usize, loss: impl Loss) -> String {
    fit(validation, loss).unwrap_err().to_string()
}

#[test]
fn loss_that_counts_padding_is_refused() {
    let line = line!() + 2;
    let text = error(65, |_, model, batch| {
        Mean::of(cross_entropy(model.forward(batch.input), batch.target))
    });
    for part in [
        &format!("weights.rs:{line}:9: mean: the loss does not depend on `batch.weight`"),
        "31 rows of the last batch are padding",
        "the 65 samples of the validation data are not divisible by the batch size 32",
        "With a value for each sample, write `batch.mean(values)` or `Mean::weighted(values, \
         batch.weight)`; or `CrossEntropy::new().weights(batch.weight)`",
    ] {
        assert!(text.contains(part), "`{part}` in {text}");
    }
    // Every value of a sample counts, and the number of samples does, too.
    let text = error(65, |_, model, batch| {
        let loss = CrossEntropy::new().weights(batch.weight);
        Mean {
            weight: batch.weight.ones_like().sum_all(),
            ..loss.loss(model.forward(batch.input), batch.target)
        }
    });
    assert!(text.contains("the loss does not depend"), "{text}");
}

#[test]
fn metric_that_counts_padding_is_refused() {
    let line = line!() + 3;
    let text = error(63, |cx, model, batch| {
        let logits = model.forward(batch.input);
        cx.metric("accuracy", accuracy(logits, batch.target));
        let loss = CrossEntropy::new().weights(batch.weight);
        loss.loss(logits, batch.target)
    });
    let expected = format!("weights.rs:{line}:12: mean: the metric `accuracy` does not depend");
    assert!(text.contains(&expected), "{text}");
    assert!(
        text.contains("1 row of the last batch is padding"),
        "{text}"
    );
    assert!(text.contains("1 mistake in the traced code"), "{text}");
}

#[test]
fn validate_refuses_a_loss_that_counts_padding() {
    let trainer = trainer().batch_size(32).build().unwrap();
    let array = |values: &[f32], dims: &[usize]| {
        Array::from_slice(crate::training::support::client(), values, dims).unwrap()
    };
    let model = Linear {
        weight: array(&[0.5; 6], &[2, 3]),
        bias: Some(array(&[0.0; 3], &[3])),
    };
    let score = |samples| trainer.validate(With(unweighted), &model, spirals(samples));
    let text = score(33).unwrap_err().to_string();
    assert!(text.contains("the 33 samples of the dataset"), "{text}");
    assert!(score(64).is_ok());
}

#[test]
fn loss_without_padding_needs_no_weight() {
    let losses = [
        fit(64, unweighted),
        fit(64, |_, model, batch| {
            let loss = CrossEntropy::new().weights(batch.weight);
            loss.loss(model.forward(batch.input), batch.target)
        }),
    ];
    let [plain, weighted] = losses.map(Result::unwrap);
    assert_eq!(plain, weighted);
}

#[test]
fn weight_may_be_used_in_any_way() {
    let metrics = fit(65, |cx, model, batch| {
        // A mean over no samples needs no weight.
        cx.metric("size", Mean::of(model.weight.square()));
        let error = model.forward(batch.input).square().sum([1]);
        let counts = batch.weight.gt(0.0);
        cx.metric(
            "largest",
            Mean {
                total: counts.select(error, 0.0).max([0]),
                weight: batch.weight.max([0]).stop_gradient(),
            },
        );
        Mean {
            total: counts.select(error, 0.0).sum_all(),
            weight: counts.convert(DType::S32).sum_all().convert(DType::F32),
        }
    });
    assert!(metrics.unwrap().iter().all(|value| value.is_finite()));
}

/// A weight holds for all values of its sample.
#[test]
fn mean_of_a_batch_has_its_weights() {
    fn logits<'t>(model: &Linear<Tensor<'t>>, batch: &Labeled<Tensor<'t>>) -> Tensor<'t> {
        model.forward(batch.input).square()
    }
    let of_batch = fit(65, |cx, model, batch| {
        cx.metric("size", batch.mean(logits(model, batch)));
        batch.mean(logits(model, batch).mean([1]))
    });
    let of_weights = fit(65, |cx, model, batch| {
        let weights = batch.weight.unsqueeze(1).broadcast_to([32, 3]);
        cx.metric("size", Mean::weighted(logits(model, batch), weights));
        Mean::weighted(logits(model, batch).mean([1]), batch.weight)
    });
    assert_eq!(of_batch.unwrap(), of_weights.unwrap());
    let text = error(65, |_, model, batch| {
        batch.mean(logits(model, batch).sum([0]))
    });
    let expected = "values f32[3] and weights f32[32]; expected equal dimensions";
    assert!(text.contains(expected), "{text}");
}
