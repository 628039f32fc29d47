//! Likely errors that are mistakes or warnings at the user's line. Nothing runs.

use halite_core::{
    Array, Client, DType, Null, Sharding, TensorType, Tree,
    tree::{Empty, Leaf},
};
use halite_nn::{
    AdamW, ArraySpec, BatchNorm, Dropout, Init, Jit, Linear, Lstm, Mean, Mistake, Param, Sgd,
    Tensor, Trace, cross_entropy, grad,
    optim::{self, clip_global_norm},
    vjp,
};

const OWN: &str = "nn/tests/silence.rs";

fn input<'t>(cx: &'t Trace, name: &str, dtype: DType, dims: &[usize]) -> Tensor<'t> {
    cx.input(TensorType::new(dtype, dims), name)
}

/// Checks that there is one mistake, in this file on `line`, whose message contains all of `parts`.
#[track_caller]
fn check(mistakes: &[Mistake], line: u32, parts: &[&str]) {
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(
        mistakes[0].location.file().ends_with(OWN),
        "{}",
        mistakes[0]
    );
    assert_eq!(mistakes[0].location.line(), line, "{}", mistakes[0]);
    let text = mistakes[0].to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// A loss of a weight and an input.
type Loss = for<'t> fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t>;

#[test]
fn loss_that_depends_on_no_leaf_is_a_mistake() {
    let cut: [(&str, Loss); 5] = [
        ("stop_gradient", |w, x| {
            (x.matmul(w).stop_gradient()).mean_all()
        }),
        ("argmax", |w, x| {
            x.matmul(w).argmax(1).convert(DType::F32).mean_all()
        }),
        ("integer", |w, x| {
            x.matmul(w)
                .convert(DType::S32)
                .convert(DType::F32)
                .mean_all()
        }),
        ("comparison", |w, x| {
            x.matmul(w).gt(0.0).convert(DType::F32).mean_all()
        }),
        ("unused", |_, x| x.mean_all()),
    ];
    for (why, loss) in cut {
        let cx = Trace::new();
        let w = input(&cx, "layer.weight", DType::F32, &[3, 2]);
        let x = input(&cx, "x", DType::F32, &[4, 3]);
        let loss = loss(w, x);
        let (line, Leaf(slope)) = (line!(), grad(loss, &Leaf(w)));
        check(
            &cx.mistakes(),
            line,
            &[
                "grad: the loss",
                "depends on none of `layer.weight` (f32[3, 2])",
                "stop_gradient",
            ],
        );
        assert!(slope.is_error() && cx.check().is_err(), "{why}");
    }
}

#[test]
fn loss_of_flat_operations_has_a_zero_gradient() {
    let cx = Trace::new();
    let w = input(&cx, "w", DType::F32, &[3]);
    let Leaf(slope) = grad((w.floor() * w.sign()).sum_all(), &Leaf(w));
    assert_eq!(slope.ty(), w.ty());
    assert_eq!((cx.mistakes(), cx.warnings()), (vec![], vec![]));
}

#[test]
fn gradient_by_integers_is_a_mistake() {
    let cx = Trace::new();
    let ids = input(&cx, "ids", DType::S32, &[4]);
    let w = input(&cx, "w", DType::F32, &[4]);
    let loss = (ids.convert(DType::F32) * w).sum_all();
    let (line, _) = (line!(), grad(loss, &(Leaf(w), Leaf(ids))));
    check(
        &cx.mistakes(),
        line,
        &[
            "`ids` (s32[4]): only floats have a gradient",
            "convert it to floats",
            "`vjp`",
        ],
    );

    let cx = Trace::new();
    let ids = input(&cx, "ids", DType::S32, &[4]);
    let loss = ids.convert(DType::F32).sum_all();
    let Leaf(zeros) = vjp(&[loss], &[loss.ones_like()], &Leaf(ids));
    assert_eq!((zeros.ty(), cx.mistakes()), (ids.ty(), vec![]));
}

/// Updates a model of two layers of which the loss uses only the first.
fn train_one_of_two<'t>(cx: &'t Trace, clip: bool) -> (u32, Vec<Tensor<'t>>) {
    let model = vec![Linear::new(3, 2), Linear::new(3, 2)];
    let params = Tree::leaf_refs(&model)
        .map_leaves(|path, param| cx.input(param.ty.clone(), path.to_string()));
    let adam = AdamW::new(1e-2);
    let slots = optim::slots(&adam, &model).map_leaves(|_, slot| cx.input(slot.ty, "slot"));
    let loss = params[0]
        .forward(input(cx, "x", DType::F32, &[4, 3]))
        .square()
        .mean_all();
    let (line, gradients) = (line!(), grad(loss, &params));
    // Typical processing of gradients before the update.
    let gradients = gradients
        .map_leaves(|_, gradient| -(gradient * 0.5).convert(DType::F64).convert(DType::F32) / 2.0);
    let gradients = if clip {
        clip_global_norm(cx, &model, gradients, 1.0).0
    } else {
        gradients
    };
    let step = input(cx, "step", DType::U32, &[]);
    let (next, _) = optim::update(&adam, cx, step, &model, params, gradients, slots);
    (line, next.into_leaves())
}

#[test]
fn unused_parameters_stay_and_are_named_once() {
    for clip in [false, true] {
        let cx = Trace::new();
        let (line, after) = train_one_of_two(&cx, clip);
        assert_eq!(cx.mistakes(), []);
        let parts = [
            "optimizer: 2 of 4 parameters have no gradient",
            "`1.weight`, `1.bias`",
            "frozen",
        ];
        check(&cx.warnings(), line, &parts);
        let names: Vec<Option<String>> = after
            .iter()
            .map(|leaf| leaf.name().map(|name| name.to_string()))
            .collect();
        let [weight, bias] = ["1.weight", "1.bias"].map(|name| Some(name.to_string()));
        assert_eq!(
            names,
            [None, None, weight, bias],
            "weight decay leaves the inputs as they are"
        );
    }
}

#[test]
fn update_without_any_gradient_is_a_mistake() {
    let cx = Trace::new();
    // The loss depends only on the frozen layer.
    let frozen = Linear::new(3, 2).map_leaves(|_, param| param.frozen());
    let model = vec![frozen, Linear::new(3, 2)];
    let params = Tree::leaf_refs(&model)
        .map_leaves(|path, param| cx.input(param.ty.clone(), path.to_string()));
    let loss = params[0]
        .forward(input(&cx, "x", DType::F32, &[4, 3]))
        .square()
        .mean_all();
    let (line, gradients) = (line!(), grad(loss, &params));
    let slots =
        optim::slots(&Sgd::new(0.1), &model).map_leaves(|_, slot| cx.input(slot.ty, "slot"));
    let step = input(&cx, "step", DType::U32, &[]);
    optim::update(&Sgd::new(0.1), &cx, step, &model, params, gradients, slots);
    check(
        &cx.mistakes(),
        line,
        &[
            "optimizer: none of the 2 parameters has a gradient",
            "(`1.weight`, `1.bias`)",
        ],
    );
}

#[test]
fn parameters_with_a_zero_gradient_are_updated() {
    let cx = Trace::new();
    let model = Leaf(Param::new([3], Init::Ones));
    let Leaf(w) = Leaf(input(&cx, "w", DType::F32, &[3]));
    let sgd = Sgd::new(0.1).weight_decay(0.1);
    let gradient = grad(w.floor().sum_all(), &Leaf(w));
    let slots = optim::slots(&sgd, &model).map_leaves(|_, slot| cx.input(slot.ty, "slot"));
    let (Leaf(next), _) = optim::update(
        &sgd,
        &cx,
        input(&cx, "step", DType::U32, &[]),
        &model,
        Leaf(w),
        gradient,
        slots,
    );
    assert_eq!(cx.warnings(), []);
    assert!(next.origin().is_some(), "it decays");
}

#[test]
fn dropout_without_a_mode_is_a_mistake() {
    let cx = Trace::new();
    let x = input(&cx, "x", DType::F32, &[4]);
    let dropout = Dropout::new(0.5);
    let (line, y) = (line!(), dropout.forward(x));
    // The second call repeats the mistake.
    let _ = dropout.forward(y);
    check(
        &cx.mistakes(),
        line,
        &[
            "dropout: the mode of this function is not set",
            "`state.set_training_mode(cx)`, if there is a `State`",
            "set_mode(true, Some(key))",
            "evaluation",
        ],
    );

    let cx = Trace::new();
    cx.set_mode(false, None);
    let x = input(&cx, "x", DType::F32, &[4]);
    let _ = dropout.forward(x);
    assert_eq!(cx.mistakes(), []);
}

#[test]
fn batch_norm_without_a_mode_is_a_mistake() {
    let cx = Trace::new();
    let norm = BatchNorm::new(3).map_leaves(|path, param| cx.input(param.ty, path.to_string()));
    let x = input(&cx, "x", DType::F32, &[4, 3]);
    let (line, _) = (line!(), norm.forward(x));
    check(
        &cx.mistakes(),
        line,
        &["batch norm: the mode of this function is not set"],
    );
}

#[test]
fn unset_mode_is_a_mistake() {
    let cx = Trace::new();
    let (line, training) = (line!(), cx.is_training());
    assert!(!training);
    check(&cx.mistakes(), line, &["is_training: the mode"]);
}

fn spec(client: &Client, dims: &[usize]) -> ArraySpec {
    ArraySpec::new(
        TensorType::new(DType::F32, dims),
        &Sharding::single(client.local_devices()[0]),
    )
}

/// Traces a step with batch norm in this mode, returning `next` of each leaf; returns the mistakes.
fn step_of_norm(
    training: bool,
    next: for<'t> fn(&'t Trace, Tensor<'t>) -> Tensor<'t>,
) -> Result<(), String> {
    let client = Client::new(Null::new(1));
    let step = Jit::<BatchNorm<()>, Leaf<()>, Leaf<()>>::new(&client, move |cx, norm, Leaf(x)| {
        cx.set_mode(training, None);
        let y = norm.forward(x);
        (norm.map_leaves(|_, leaf| next(cx, leaf)), Leaf(y))
    });
    let norm = BatchNorm::new(3).map_leaves(|_, param| spec(&client, param.ty.dims()));
    step.lower(&norm, &Leaf(spec(&client, &[4, 3])))
        .map(drop)
        .map_err(|error| error.to_string())
}

#[test]
fn dropped_running_statistics_are_a_mistake() {
    let error = step_of_norm(true, |_, leaf| leaf).unwrap_err();
    assert!(
        error.contains("2 mistakes") && error.contains(OWN),
        "{error}"
    );
    for state in ["mean", "variance"] {
        assert!(
            error.contains(&format!(
                "update: `{state}` has a new value after this step"
            )),
            "{error}"
        );
    }
    assert!(error.contains("cx.updated(leaf)"), "{error}");
    assert_eq!(step_of_norm(true, |cx, leaf| cx.updated(leaf)), Ok(()));
    assert_eq!(step_of_norm(false, |_, leaf| leaf), Ok(()));
    assert!(error.contains("cx.discard_updates()"), "{error}");
    let discarded = step_of_norm(true, |cx, leaf| {
        cx.discard_updates();
        leaf
    });
    assert_eq!(discarded, Ok(()));
}

#[test]
fn dropout_of_a_single_recurrent_layer_is_a_warning() {
    let warnings = |lstm: Lstm<Param>| {
        let cx = Trace::new();
        cx.set_mode(false, None);
        let x = input(&cx, "x", DType::F32, &[2, 5, 3]);
        let lstm = lstm.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
        lstm.forward(x, None);
        cx.warnings()
    };
    let of_one = warnings(Lstm::new(3, 4).dropout(0.5));
    assert_eq!(of_one.len(), 1, "{of_one:?}");
    let text = of_one[0].to_string();
    assert!(
        text.contains(OWN) && text.contains("the dropout of 0.5 drops nothing"),
        "{text}"
    );
    for silent in [Lstm::new(3, 4), Lstm::new(3, 4).layers(2).dropout(0.5)] {
        assert_eq!(warnings(silent), []);
    }
}

/// A loss that reports a metric.
fn reporting<'t>(cx: &'t Trace, x: Tensor<'t>) -> Tensor<'t> {
    cx.metric("size", Mean::of(x.abs()));
    cx.metric("largest", Mean::of(x.sum_all()));
    x.square().mean_all()
}

#[test]
fn unused_metrics_are_a_warning() {
    for (taken, written) in [(false, 1), (true, 0)] {
        let client = Client::new(Null::new(1));
        let step = Jit::<_, Leaf<()>, Vec<Leaf<()>>>::function(&client, move |cx, Leaf(x)| {
            let mut outputs = vec![Leaf(reporting(cx, x))];
            if taken {
                outputs.extend(cx.metrics().into_iter().map(|(_, mean)| Leaf(mean.value())));
            }
            outputs
        });
        let (warnings, said) = logged(|| {
            // Traced twice, logged once.
            for _ in 0..2 {
                step.lower(&Empty::new(), &Leaf(spec(&client, &[4])))
                    .unwrap();
            }
        });
        assert_eq!(warnings, written, "{said}");
        assert!(
            taken || said.contains("metric: `size`, `largest` are reported and not used"),
            "{said}"
        );
        assert!(taken || said.contains(OWN), "{said}");
    }
}

#[test]
fn unused_parameters_are_logged_once_by_a_jit() {
    let client = Client::new(Null::new(1));
    let described = vec![Linear::new(3, 2), Linear::new(3, 2)];
    let specs = Tree::leaf_refs(&described).map_leaves(|_, param| spec(&client, param.ty.dims()));
    let step =
        Jit::<Vec<Linear<()>>, Leaf<()>, Leaf<()>>::new(&client, move |cx, layers, Leaf(x)| {
            let loss = layers[0].forward(x).square().mean_all();
            let (sgd, gradients) = (Sgd::new(0.1), grad(loss, &layers));
            let slots = optim::slots(&sgd, &described).map_leaves(|_, slot| cx.full(0.0, &slot.ty));
            let step = cx.scalar(0.0, DType::U32);
            let (layers, _) = optim::update(&sgd, cx, step, &described, layers, gradients, slots);
            (layers, Leaf(loss))
        });
    let (warnings, said) = logged(|| {
        for rows in [4, 4, 8] {
            step.lower(&specs, &Leaf(spec(&client, &[rows, 3])))
                .unwrap();
        }
    });
    assert_eq!(warnings, 1, "{said}");
    assert!(
        said.contains("2 of 4 parameters have no gradient")
            && said.contains("`1.weight`, `1.bias`"),
        "{said}"
    );
}

#[test]
fn class_targets_are_found_through_reshapes() {
    let cx = Trace::new();
    let logits = input(&cx, "logits", DType::F32, &[8, 10]);
    let target = input(&cx, "batch.target", DType::U8, &[2, 5]);
    let part = target.slice_dim(1, 1..).reshape([8]).convert(DType::S64);
    let line = line!() + 1;
    let _ = cross_entropy(logits, part);
    let _ = cross_entropy(logits, part + 1);
    let targets = cx.class_targets();
    assert_eq!(targets.len(), 1, "{targets:?}");
    assert_eq!(
        (&*targets[0].input, targets[0].classes, targets[0].ignored),
        ("batch.target", 10, None)
    );
    assert_eq!(targets[0].location.line(), line);
}

/// Doubles its input; called with arrays of this many elements.
fn call(jit: &Jit<Empty<()>, Leaf<()>, Leaf<()>>, client: &Client, elements: usize) {
    let host = halite_core::HostArray::zeros(TensorType::new(DType::F32, [elements]));
    let device = Sharding::single(client.local_devices()[0]);
    jit.run(&Leaf(Array::upload(client, &host, &device).unwrap()))
        .unwrap();
}

#[test]
fn least_recently_used_program_is_evicted() {
    let client = Client::new(Null::new(1));
    let jit = Jit::function(&client, |_, Leaf(x): Leaf<Tensor<'_>>| Leaf(x * 2.0))
        .named("double")
        .max_programs(3);
    let (_, said) = logged(|| [1, 2, 3, 1, 4, 5].map(|elements| call(&jit, &client, elements)));
    // 2 and 3 were evicted for 4 and 5; 1 was used in between.
    assert_eq!((jit.compiles(), jit.evictions()), (5, 2));
    assert_eq!(
        said.matches("is compiled for more than 3 combinations")
            .count(),
        1,
        "{said}"
    );
    assert!(
        said.contains("`double`") && said.contains(OWN) && said.contains("max_programs"),
        "{said}"
    );
    for elements in [1, 4, 5] {
        call(&jit, &client, elements);
    }
    assert_eq!(jit.compiles(), 5);
    let before = jit.stages().total();
    call(&jit, &client, 2);
    assert_eq!((jit.compiles(), jit.evictions()), (6, 3));
    assert!(
        jit.stages().total() > before,
        "what dropped programs took counts on"
    );
}

/// Warnings that `run` logs through `tracing` on this thread: their number and text.
fn logged<R>(run: impl FnOnce() -> R) -> (usize, String) {
    use std::sync::{Arc, Mutex};

    use tracing::{
        Event, Level, Metadata, Subscriber,
        field::{Field, Visit},
        span,
    };

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Text<'a>(&'a mut String);

    impl Visit for Text<'_> {
        fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
            self.0.push_str(&format!("{value:?}"));
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut text = String::new();
            event.record(&mut Text(&mut text));
            self.0.lock().unwrap().push(text);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), run);
    let lines = lines.0.lock().unwrap();
    (lines.len(), lines.join("\n"))
}
