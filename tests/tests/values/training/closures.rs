//! Tasks and predictions from closures.

use halite::prelude::*;

use crate::training::support::{Arms, Net, spirals, trainer};

fn weights<T: Tree<Leaf = Array>>(model: &T) -> Vec<HostArray> {
    let leaves = model.leaves().into_iter();
    leaves.map(|leaf| leaf.read().unwrap()).collect()
}

#[test]
fn closure_trains_as_a_task_does() {
    let trainer = trainer().epochs(2).batch_size(32).build().unwrap();
    let (data, net) = (|| spirals(70), Net::new());
    let adam = || Adam::new(1e-2);
    let expected = trainer.fit(Arms, net.clone(), adam(), data(), data());
    let expected = expected.unwrap();

    let task = task(&net, |cx, net, batch| Arms.loss(cx, net, batch));
    let fitted = trainer.fit(task, net, adam(), data(), data()).unwrap();
    assert_eq!(weights(&fitted.model), weights(&expected.model));
    assert_eq!(fitted.report.metrics, expected.report.metrics);
    // The same task scores a model.
    let scores = trainer.validate(task, &fitted.model, data()).unwrap();
    assert_eq!(
        scores,
        trainer.validate(Arms, &fitted.model, data()).unwrap()
    );
    assert_eq!(scores[0].1, fitted.report.metrics["loss"]);
}

/// A custom batch, with three fields.
#[derive(Tree, Default)]
struct Pair<L> {
    left: L,
    right: L,
    sum: L,
    weight: L,
}

impl<'t> Weighted<'t> for Pair<Tensor<'t>> {
    fn weight(&self) -> Tensor<'t> {
        self.weight
    }
}

#[test]
fn closure_takes_a_batch_of_another_type() {
    let column = |name: &str, scale: f32| {
        let values: Vec<f32> = (0..50).map(|i| scale * (i as f32).sin()).collect();
        (
            name.to_string(),
            HostArray::from_slice(&values, [50, 1]).unwrap(),
        )
    };
    let columns = [
        column("left", 1.0),
        column("right", 2.0),
        column("sum", 3.0),
    ];
    let data = InMemory::new(columns).unwrap();
    let model = Linear::new(1, 1);
    let task = task_on(&model, Pair::default(), |_cx, model, batch| {
        let sum = model.forward(batch.left) + batch.right;
        batch.mean(mse(sum, batch.sum))
    });
    let trainer = trainer().epochs(40).batch_size(16).build().unwrap();
    let sgd = Sgd::new(0.5);
    let fitted = trainer.fit(task, model, sgd, data.clone(), data).unwrap();
    let weight: f32 = fitted.model.weight.read().unwrap().item().unwrap();
    assert!((weight - 1.0).abs() < 1e-3, "{weight}");
}

#[test]
fn closure_predicts_every_sample() {
    let client = crate::training::support::client();
    let array = |values: &[f32], dims: &[usize]| Array::from_slice(client, values, dims).unwrap();
    let model = Linear {
        weight: array(&[2.0, -1.0], &[2, 1]),
        bias: Some(array(&[0.5], &[1])),
    };
    let trainer = trainer().batch_size(8).build().unwrap();
    // Two fields: the closure has the first.
    let data = spirals(19);
    let answers = trainer.predict_with(&model, |model, x| model.forward(x), data.clone());
    let answers = answers.unwrap();
    assert_eq!(answers.ty().to_string(), "f32[19, 1]");
    let mut rows = halite::data::Rows::zeros(data.fields(), 19).unwrap();
    for index in 0..19 {
        data.read(index, &mut rows.sample_mut(index)).unwrap();
        let x = rows.sample(index).values::<f32>(0).unwrap().to_vec();
        let expected = 2.0 * x[0] - x[1] + 0.5;
        let answer = answers.as_slice::<f32>().unwrap()[index];
        assert!(
            (answer - expected).abs() < 1e-6,
            "{index}: {answer} {expected}"
        );
    }
}

#[test]
fn prediction_without_samples_is_refused() {
    let client = crate::training::support::client();
    let model = Array::from_slice(client, &[1.0f32, 2.0], [2]).unwrap();
    let trainer = trainer().batch_size(8).build().unwrap();
    let error = trainer
        .predict_with(
            &model,
            |weight, x| (x * weight.broadcast_to(x.dims())).sum([0]),
            spirals(8),
        )
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("an output is f32[2]; its first dimension must be the batch of 8"),
        "{error}"
    );
}
