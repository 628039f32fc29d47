//! Labels that are probabilities of classes, as those of mixed images.

use halite_core::{HostArray, Tree};
use halite_data::Labeled;
use halite_models::{ClassifyColor, ColorImageModel, Normalization};
use halite_nn::{Linear, Tensor};
use halite_tests::eval::eval;
use halite_train::Task;

/// The head of a classifier of single pixels.
#[derive(Clone, Tree)]
struct Pixels<L> {
    head: Linear<L>,
}

impl ColorImageModel for Pixels<()> {
    fn logits<'t>(model: &Pixels<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.head.forward(images.mean([1, 2]))
    }
}

/// Loss of three pixels with these labels, in training with label smoothing, or in evaluation.
fn loss(labels: HostArray, is_training: bool) -> f64 {
    let pixels = [10u8, 200, 90, 77, 0, 255, 130, 40, 60];
    let weight = [0.3f32, -0.8, 0.5, 1.1, 0.2, -0.4, -0.6, 0.9, 0.7];
    let given = [
        HostArray::from_slice(&pixels, [3, 1, 1, 3]).unwrap(),
        HostArray::from_slice(&weight, [3, 3]).unwrap(),
        HostArray::from_slice(&[1.0f32, 1.0, 0.5], [3]).unwrap(),
        labels,
    ];
    let task = ClassifyColor::<Pixels<()>>::new(Normalization::IMAGENET).label_smoothing(0.1);
    let results = eval(
        move |cx, given| {
            let head = Linear {
                weight: given[1],
                bias: None,
            };
            let batch = Labeled {
                input: given[0],
                target: given[3],
                weight: given[2],
            };
            cx.set_mode(is_training, None);
            vec![task.loss(cx, &Pixels { head }, &batch).value()]
        },
        &given,
    );
    f64::from(results[0].as_slice::<f32>().unwrap()[0])
}

fn probabilities(labels: &[f32]) -> HostArray {
    HostArray::from_slice(labels, [3, 3]).unwrap()
}

#[test]
fn one_hot_labels_have_the_loss_of_their_classes() {
    let one_hot = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let [training, evaluation] = [true, false].map(|mode| {
        let classes = HostArray::from_slice(&[2u32, 0, 1], [3]).unwrap();
        let (hard, soft) = (loss(classes, mode), loss(probabilities(&one_hot), mode));
        assert!((hard - soft).abs() < 1e-6, "{hard}, {soft}");
        hard
    });
    // Labels are smoothed in training alone.
    assert!(
        (training - evaluation).abs() > 1e-3,
        "{training}, {evaluation}"
    );
}

#[test]
fn loss_of_mixed_labels_is_the_mixture_of_losses() {
    let first = [1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    let second = [0.0f32, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let mixed = first.iter().zip(second);
    let mixed: Vec<f32> = mixed.map(|(a, b)| 0.3 * a + 0.7 * b).collect();
    for mode in [true, false] {
        let [first, second, mixed] =
            [&first[..], &second[..], &mixed[..]].map(|labels| loss(probabilities(labels), mode));
        let expected = 0.3 * first + 0.7 * second;
        assert!((mixed - expected).abs() < 1e-6, "{mixed}, not {expected}");
    }
}
