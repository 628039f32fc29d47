//! Every sample counts once, whatever the sizes.

use halite::{
    data::{DatasetExt, Field},
    models::{Classify, Mlp},
    prelude::*,
};

use crate::training::support::{Arms, Net, client, digits, fetched, spirals, trainer};

fn accuracy_of(metrics: &halite::train::MetricValues) -> f64 {
    metrics
        .iter()
        .find(|(name, _)| **name == *"accuracy")
        .expect("the task reports it")
        .1
}

#[test]
fn validation_accuracy_is_exact() {
    let task = Classify::<Mlp<()>>::new;
    // The ten thousand, and seven more.
    let data = || digits(false, (0..10_000).chain(0..7));
    let labels: Vec<i32> = {
        let Leaf(labels) = labels_of(data());
        labels
    };
    let trained = trainer().epochs(1).batch_size(32).build().unwrap();
    let fitted = trained
        .fit(
            task(),
            Mlp::new(&[784, 16, 10]),
            Adam::new(3e-3),
            digits(true, 0..512),
            digits(false, 0..1),
        )
        .unwrap();
    let mut counts = Vec::new();
    for batch_size in [100, 128, 4096, 16_384] {
        let trainer = trainer().batch_size(batch_size).build().unwrap();
        let metrics = trainer.validate(task(), &fitted.model, data()).unwrap();
        let answers = trainer.predict(task(), &fitted.model, data()).unwrap();
        let answers = answers.as_slice::<i32>().unwrap();
        assert_eq!(answers.len(), 10_007);
        let right = answers
            .iter()
            .zip(&labels)
            .filter(|(answer, label)| answer == label)
            .count();
        assert_eq!(
            accuracy_of(&metrics),
            right as f64 / 10_007.0,
            "batches of {batch_size}"
        );
        counts.push(right);
    }
    assert!(
        counts
            .iter()
            .all(|count| *count == counts[0] && (2_000..9_900).contains(count)),
        "{counts:?}"
    );
}

/// The labels, read as a dataset of labels only.
fn labels_of(data: impl Dataset) -> Leaf<Vec<i32>> {
    let field = Field::new("label", data.fields()[1].ty.clone());
    let count = data.len();
    let labels = data.map([field], |sample, into| {
        into.write(0, sample.values::<u8>(1)?)
    });
    let mut rows = halite::data::Rows::zeros(labels.fields(), count).unwrap();
    (0..count).for_each(|index| labels.read(index, &mut rows.sample_mut(index)).unwrap());
    Leaf(
        rows.arrays()[0]
            .as_slice::<u8>()
            .unwrap()
            .iter()
            .map(|&label| label.into())
            .collect(),
    )
}

#[test]
fn padded_batches_are_validated_exactly() {
    let whole = trainer().batch_size(1).build().unwrap();
    let fitted = trainer()
        .batch_size(24)
        .build()
        .unwrap()
        .fit(
            Arms,
            Net::new(),
            Sgd::new(0.1),
            spirals(24 * 3 + 7),
            spirals(1),
        )
        .unwrap();
    assert_eq!(
        fitted.report.steps, 3,
        "what fills no batch is left for another epoch"
    );
    let state: Vec<HostArray> = fitted.model.leaves().into_iter().map(fetched).collect();
    for count in [1, 5, 23, 24, 25, 97] {
        let one_by_one = whole.validate(Arms, &fitted.model, spirals(count)).unwrap();
        for devices in [1, 8] {
            let trainer = trainer()
                .batch_size(24)
                .devices(client().local_devices().into_iter().take(devices))
                .build()
                .unwrap();
            let model = on_all(&fitted.model, &state, devices);
            let metrics = trainer.validate(Arms, &model, spirals(count)).unwrap();
            assert_eq!(
                accuracy_of(&metrics),
                accuracy_of(&one_by_one),
                "{count} samples on {devices} devices"
            );
            let (loss, expected) = (metrics[0].1, one_by_one[0].1);
            assert!(
                (loss - expected).abs() < 1e-5,
                "{loss} for {expected}, {count} samples on {devices} devices"
            );
        }
    }
}

/// The model's arrays, replicated over this many devices.
fn on_all(model: &Net<Array>, state: &[HostArray], devices: usize) -> Net<Array> {
    let mesh = match devices {
        1 => halite::Mesh::single(client().local_devices()[0]),
        count => halite::Mesh::new(
            [("data", count)],
            client().local_devices().into_iter().take(count),
        )
        .unwrap(),
    };
    let sharding = halite::Sharding::replicated(&std::sync::Arc::new(mesh));
    model.rebuild(
        state
            .iter()
            .map(|value| Array::upload(client(), value, &sharding).unwrap()),
    )
}
