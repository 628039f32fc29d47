//! Mistakes in a task are reported all at once, at the user's line, before anything runs.

use halite::{
    data::{Field, Mnist, SampleMut},
    models::{Classify, Mlp},
    nn::{
        ArraySpec, Jit, Optimizer,
        optim::{Gradient, Named},
    },
    prelude::*,
};

use crate::training::support::{client, error_of, in_memory, trainer};

/// A dataset that cannot be read, only described: mistakes are reported before any sample is read.
struct Described(Vec<Field>);

impl Described {
    fn new(fields: impl IntoIterator<Item = (&'static str, DType, &'static [usize])>) -> Self {
        Described(
            fields
                .into_iter()
                .map(|(name, dtype, dims)| Field::new(name, TensorType::new(dtype, dims)))
                .collect(),
        )
    }

    fn digits() -> Self {
        Described::new([
            ("image", DType::U8, [28, 28].as_slice()),
            ("label", DType::U8, &[]),
        ])
    }
}

impl Dataset for Described {
    fn len(&self) -> usize {
        1_000
    }

    fn fields(&self) -> &[Field] {
        &self.0
    }

    fn read(&self, index: usize, _: &mut SampleMut<'_>) -> Result<()> {
        panic!("sample {index} is read")
    }
}

/// Digits, with the loss that `loss` is.
struct With<F>(F);

/// Loss of a batch of digits.
trait Loss:
    for<'t> Fn(&'t Trace, &Mlp<Tensor<'t>>, &Labeled<Tensor<'t>>) -> Mean<'t> + Send + Sync + 'static
{
}
impl<
    F: for<'t> Fn(&'t Trace, &Mlp<Tensor<'t>>, &Labeled<Tensor<'t>>) -> Mean<'t>
        + Send
        + Sync
        + 'static,
> Loss for F
{
}

impl<F: Loss> Task for With<F> {
    type Model = Mlp<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Mlp<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        (self.0)(cx, model, batch)
    }
}

/// The error of a fit with this loss.
fn refused(loss: impl Loss) -> String {
    let trainer = trainer().build().unwrap();
    let model = Mlp::new(&[784, 64, 10]);
    error_of(trainer.fit(
        With(loss),
        model,
        Adam::new(1e-3),
        Described::digits(),
        Described::digits(),
    ))
    .to_string()
}

/// Asserts that `error` contains each of `parts`, in this order.
#[track_caller]
fn assert_says(error: &str, parts: &[&str]) {
    let mut rest = error;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            panic!("`{part}` is not in `{rest}` of: {error}")
        };
        rest = after;
    }
}

/// Three wrong shapes, each on a line of its own.
fn three_mistakes<'t>(model: &Mlp<Tensor<'t>>, batch: &Labeled<Tensor<'t>>) -> (u32, Mean<'t>) {
    let bias = model.hidden[0].bias.expect("a layer has a bias");
    let line = line!();
    let hidden = model.hidden[0].forward(batch.input.convert(DType::F32));
    let shifted = batch.input.flatten_from(1).convert(DType::F32) + bias;
    let logits = model.out.weight.matmul(model.hidden[0].weight);
    (
        line,
        Mean::of(hidden.sum_all() + shifted.sum_all() + logits.sum_all()),
    )
}

#[track_caller]
fn assert_all_three(error: &str, batch: usize) {
    let cx = Trace::new();
    let tensor = |dims: &[usize]| cx.input(TensorType::new(DType::F32, dims), "x");
    let layer = |inputs, outputs| Linear {
        weight: tensor(&[inputs, outputs]),
        bias: Some(tensor(&[outputs])),
    };
    let model = Mlp {
        hidden: vec![layer(784, 64)],
        out: layer(64, 10),
    };
    let batch_of = |dims: &[usize]| Labeled {
        input: tensor(dims),
        target: tensor(&[1]),
        weight: tensor(&[1]),
    };
    let (line, _) = three_mistakes(&model, &batch_of(&[1, 28, 28]));
    let at = |mistake: u32| format!("mistakes.rs:{}:", line + mistake);
    assert_says(
        error,
        &[
            &at(1),
            "dot",
            &format!("f32[{batch}, 28, 28]"),
            "f32[784, 64]",
            "hidden.0.weight`",
        ],
    );
    assert_says(
        error,
        &[
            &at(2),
            "add",
            &format!("f32[{batch}, 784]"),
            "f32[64]",
            "hidden.0.bias`",
        ],
    );
    assert_says(
        error,
        &[
            &at(3),
            "dot",
            "f32[64, 10]",
            "f32[784, 64]",
            "out.weight`",
            "hidden.0.weight`",
        ],
    );
    assert_eq!(error.matches("mistakes.rs:").count(), 3, "{error}");
}

#[test]
fn all_wrong_shapes_are_reported_at_once() {
    let error = refused(|_, model, batch| three_mistakes(model, batch).1);
    assert_all_three(&error, 128);

    let jit = Jit::<Mlp<()>, Labeled<()>, Leaf<()>>::new(client(), |_, model, batch| {
        let loss = three_mistakes(&model, &batch).1.value();
        (model, Leaf(loss))
    });
    let sharding = halite::Sharding::single(client().local_devices()[0]);
    let spec = |ty: &TensorType| ArraySpec::new(ty.clone(), &sharding);
    let model = Mlp::new(&[784, 64, 10]).map_leaves(|_, param| spec(&param.ty));
    let [image, label] = Mnist::batch_types(32);
    let weight = TensorType::new(DType::F32, [32]);
    let batch = Labeled {
        input: spec(&image),
        target: spec(&label),
        weight: spec(&weight),
    };
    let error = jit
        .prepare(&model, &batch)
        .expect_err("the shapes are wrong")
        .to_string();
    assert_all_three(&error, 32);
    assert_eq!(jit.compiles(), 0);
}

#[test]
fn float_label_is_rejected_at_the_users_line() {
    let labels = || {
        Described::new([
            ("image", DType::U8, [28, 28].as_slice()),
            ("label", DType::F32, &[]),
        ])
    };
    let trainer = trainer().build().unwrap();
    let model = Mlp::new(&[784, 64, 10]);
    let error = error_of(trainer.fit(
        Classify::<Mlp<()>>::new(),
        model,
        Adam::new(1e-3),
        labels(),
        labels(),
    ))
    .to_string();
    assert_says(&error, &["classify.rs:", "f32[128]", "integers"]);
}

#[test]
fn wrong_number_of_batch_leaves_is_rejected() {
    let only_images = || Described::new([("image", DType::U8, [28, 28].as_slice())]);
    let trainer = trainer().build().unwrap();
    let fit = |data: fn() -> Described| {
        let model = Mlp::new(&[784, 64, 10]);
        error_of(trainer.fit(
            Classify::<Mlp<()>>::new(),
            model,
            Adam::new(1e-3),
            data(),
            data(),
        ))
        .to_string()
    };
    let error = fit(only_images);
    assert_says(
        &error,
        &[
            "the task's batch has 3 leaves (input, target, weight)",
            "the loader has 1 fields and weights",
        ],
    );
    let error = fit(|| {
        Described::new([
            ("a", DType::U8, [1].as_slice()),
            ("b", DType::U8, &[]),
            ("c", DType::U8, &[]),
            ("d", DType::U8, &[]),
        ])
    });
    assert_says(&error, &["3 leaves", "4 fields and weights"]);
}

#[test]
fn validation_data_of_another_shape_is_told_as_such() {
    let trainer = trainer().build().unwrap();
    let model = Mlp::new(&[784, 64, 10]);
    let small = Described::new([
        ("image", DType::U8, [8, 8].as_slice()),
        ("label", DType::U8, &[]),
    ]);
    let error = error_of(trainer.fit(
        Classify::<Mlp<()>>::new(),
        model,
        Adam::new(1e-3),
        Described::digits(),
        small,
    ))
    .to_string();
    assert_says(
        &error,
        &[
            "`input` is u8[128, 28, 28] in training and u8[128, 8, 8] in the validation data: ",
            "mlp.rs:",
            "f32[128, 64]",
            "f32[784, 64]",
        ],
    );
}

#[test]
fn duplicate_metric_name_is_rejected() {
    let error = refused(|cx, model, batch| {
        let logits = model.forward(batch.input.flatten_from(1).convert(DType::F32));
        cx.metric("size", Mean::of(logits.abs()));
        cx.metric("size", Mean::of(logits.square()));
        Mean::of(logits)
    });
    assert_says(
        &error,
        &[
            "mistakes.rs:",
            "metric: `size` is reported already",
            "another name",
        ],
    );
    let error = refused(|cx, model, batch| {
        let logits = model.forward(batch.input.flatten_from(1).convert(DType::F32));
        cx.metric("loss", Mean::of(logits.abs()));
        Mean::of(logits)
    });
    assert_says(&error, &["`loss`", "another name"]);
}

#[test]
fn non_scalar_loss_is_rejected() {
    let error = refused(|_, model, batch| {
        let logits = model.forward(batch.input.flatten_from(1).convert(DType::F32));
        Mean {
            total: logits,
            weight: logits.sum_all(),
        }
    });
    assert_says(
        &error,
        &[
            "the loss is the mean of a total f32[128, 10] and a weight f32[]",
            "scalars",
        ],
    );
    let error = refused(|cx, model, batch| {
        let logits = model.forward(batch.input.flatten_from(1).convert(DType::F32));
        cx.metric(
            "size",
            Mean {
                total: logits.sum_all(),
                weight: batch.weight,
            },
        );
        Mean::of(logits)
    });
    assert_says(
        &error,
        &[
            "mistakes.rs:",
            "metric: the weight of `size` is f32[128]",
            "sum_all",
        ],
    );
    let error = refused(|_, model, batch| {
        let answers = model
            .forward(batch.input.flatten_from(1).convert(DType::F32))
            .argmax(1);
        Mean {
            total: (answers * batch.weight.convert(DType::S32)).sum_all(),
            weight: batch.weight.convert(DType::S32).sum_all(),
        }
    });
    assert_says(&error, &["the loss is s32[]", "scalar of floats"]);
}

/// An optimizer whose steps have another type than its parameters.
#[derive(Clone, Debug)]
struct Halves;

impl Optimizer for Halves {
    type Slot = halite::tree::Empty<()>;

    fn slot(&self, _: Named<'_>) -> halite::tree::Empty<Param> {
        halite::tree::Empty::new()
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: halite::tree::Empty<Tensor<'t>>,
    ) -> (Tensor<'t>, halite::tree::Empty<Tensor<'t>>) {
        (gradient.grad.broadcast_to([2]), slot)
    }
}

#[derive(Tree)]
struct Counted<L> {
    slope: L,
    count: L,
}

struct Slope;

impl Task for Slope {
    type Model = Counted<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Counted<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let answer = batch.input * model.slope + model.count.convert(DType::F32);
        Mean::weighted(
            (answer - batch.target.convert(DType::F32)).square(),
            batch.weight,
        )
    }
}

#[test]
fn steps_must_have_the_type_of_their_parameter() {
    let trainer = trainer().batch_size(2).build().unwrap();
    let data = || in_memory(&[1.0, 2.0], [2], &[1, 2]);
    let model = || Counted {
        slope: Param::new([], Init::Ones),
        count: Param::state([], Init::Ones),
    };
    let error = error_of(trainer.fit(Slope, model(), Halves, data(), data())).to_string();
    assert_says(
        &error,
        &["optimizer: the step of `slope` is f32[2], and the parameter f32[]"],
    );
    assert!(!error.contains("model.count"), "{error}");

    // Integers have no slope: to train one is a mistake, to keep one is not.
    let count = |param: Param| Counted {
        count: param.with_dtype(DType::S32),
        ..model()
    };
    let error = error_of(trainer.fit(
        Slope,
        count(Param::new([], Init::Ones)),
        Adam::new(0.1),
        data(),
        data(),
    ))
    .to_string();
    assert_says(
        &error,
        &[
            "`count` is s32[], which has no gradient and cannot be trained",
            "`Param::state`",
        ],
    );
    let fitted = trainer
        .fit(
            Slope,
            count(Param::state([], Init::Ones)),
            Adam::new(0.1),
            data(),
            data(),
        )
        .unwrap();
    assert_eq!(
        crate::training::support::fetched(&fitted.model.count)
            .item::<i32>()
            .unwrap(),
        1
    );
}
