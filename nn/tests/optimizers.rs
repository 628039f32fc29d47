//! Settings of optimizers that are refused, before anything is computed, and groups of parameters.

use expect_test::{Expect, expect};
use halite_core::{DType, Tree};
use halite_nn::{
    AdamW, Linear, Muon, Optimizer, Param, Schedule, Sgd, Trace, freeze, freeze_except,
    optim::{self, WeightAveraging},
};

type Layers<L> = (Linear<L>, Linear<L>);

fn layers() -> Layers<Param> {
    (Linear::new(3, 4), Linear::new(4, 2))
}

/// The mistakes of an update of two layers.
fn mistakes(optimizer: impl Optimizer) -> String {
    let (cx, model) = (&Trace::new(), layers());
    let input = |name: &str| {
        Tree::leaf_refs(&model)
            .map_leaves(|path, param| cx.input(param.ty.clone(), format!("{name}.{path}")))
    };
    let slots = optim::slots(&optimizer, &model)
        .map_leaves(|path, param| cx.input(param.ty.clone(), format!("slots.{path}")));
    let step = cx.scalar(0.0, DType::U32);
    optim::update(
        &optimizer,
        cx,
        step,
        &model,
        input("model"),
        input("grads"),
        slots,
    );
    let messages = cx.mistakes().into_iter().map(|mistake| mistake.message);
    messages.collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(optimizer: impl Optimizer, expected: Expect) {
    expected.assert_eq(&mistakes(optimizer));
}

#[test]
fn wrong_settings_are_refused() {
    check(AdamW::new(1e-3), expect![[r#""#]]);
    check(
        AdamW::new(1e-3).group("**.bais", |group| group).unwrap(),
        expect![
            "group `**.bais` has no parameter: it matches none of the trained ones, or those before it take them; trained are `0.weight`, `0.bias`, `1.weight`, `1.bias`"
        ],
    );
    // The first takes what the second matches.
    let shadowed = Sgd::new(0.1).group("**", |group| group).unwrap();
    check(
        shadowed.group("0.bias", |group| group).unwrap(),
        expect![
            "group `0.bias` has no parameter: it matches none of the trained ones, or those before it take them; trained are `0.weight`, `0.bias`, `1.weight`, `1.bias`"
        ],
    );
    check(
        Muon::new(0.1),
        expect![[
            r#"Muon updates matrices, and `0.bias` is f32[4]; give it another optimizer, as in `AdamW::new(3e-4).partition("**.weight", Muon::new(0.02))?`"#
        ]],
    );
    check(
        AdamW::new(0.1).partition("1.*", Muon::new(0.1)).unwrap(),
        expect![[
            r#"Muon updates matrices, and `1.bias` is f32[2]; give it another optimizer, as in `AdamW::new(3e-4).partition("**.weight", Muon::new(0.02))?`"#
        ]],
    );
    check(
        Sgd::new(0.1).partition("2.*", Sgd::new(0.2)).unwrap(),
        expect![
            "partition `2.*` has no parameter: it matches none of the trained ones, or those before it take them; trained are `0.weight`, `0.bias`, `1.weight`, `1.bias`"
        ],
    );
    check(
        Sgd::new(f64::NAN),
        expect!["`learning_rate`: NaN: NaN is not finite"],
    );
    check(
        Sgd::new(Schedule::cosine(0.1, 50).with_warmup(100)),
        expect![
            "`learning_rate`: the warmup has 100 steps, and cosine(0.1, 50) ends at step 50; a warmup is shorter than its schedule"
        ],
    );
    check(
        AdamW::new(-1e-3),
        expect!["`learning_rate` is -0.001 at step 0 of -0.001; expected 0 or a positive number"],
    );
    check(
        Sgd::new(Schedule::linear(0.1, -0.1, 10)),
        expect![
            "`learning_rate` is -0.1 at step 10 of linear(0.1, -0.1, 10); expected 0 or a positive number"
        ],
    );
    check(
        Sgd::new(Schedule::polynomial(0.1, 0.0, -1.0, 10)),
        expect![
            "`learning_rate` is inf at step 10 of polynomial(0.1, 0.0, -1.0, 10); expected 0 or a positive number"
        ],
    );
    check(
        Sgd::new(Schedule::exponential(0.1, -0.5, 10)),
        expect![
            "`learning_rate` is NaN at step 1 of exponential(0.1, -0.5, 10); expected 0 or a positive number"
        ],
    );
    check(
        Sgd::new(0.1)
            .group("**.bias", |sgd| sgd.learning_rate(-0.1))
            .unwrap(),
        expect!["`learning_rate` is -0.1 at step 0 of -0.1; expected 0 or a positive number"],
    );
    let error = Sgd::new(0.1).group("a..b", |group| group).unwrap_err();
    expect!["pattern: `a..b`: a segment, or one of its choices, is empty"]
        .assert_eq(&error.to_string());
}

#[test]
fn wrong_averages_are_refused() {
    let refused = |average: WeightAveraging| average.check().unwrap_err().to_string();
    expect!["average: decay is 1; expected a number from 0 to below 1, such as 0.999"]
        .assert_eq(&refused(WeightAveraging::ema(1.0)));
    expect!["average: it starts at step 0 and counts every 0 steps; expected a start up to 4294967295, and 1 to 4294967295 steps"].assert_eq(&refused(WeightAveraging::swa().every(0)));
}

#[test]
fn frozen_parameters_have_no_slots() {
    let paths = |model: Layers<Param>| {
        let trained = model
            .named()
            .into_iter()
            .filter(|(_, param)| param.trainable);
        let trained: Vec<String> = trained.map(|(path, _)| path).collect();
        assert_eq!(
            optim::slots(&Muon::new(0.1), &model).leaf_count(),
            trained.len()
        );
        trained
    };
    assert_eq!(
        paths(freeze(layers(), "0.*").unwrap()),
        ["1.weight", "1.bias"]
    );
    assert_eq!(
        paths(freeze_except(layers(), "**.bias").unwrap()),
        ["0.bias", "1.bias"]
    );
    let refused = freeze(layers(), "2.*").unwrap_err().to_string();
    expect!["freeze: `2.*` matches no trained parameter; did you mean `0.bias`? Trained are `0.weight`, `0.bias`, `1.weight`, `1.bias`"].assert_eq(&refused);
}

#[test]
fn slots_follow_the_groups() {
    let optimizer = Sgd::new(0.1)
        .group("**.weight", |group| group.momentum(0.9))
        .unwrap()
        .partition("1.weight", Muon::new(0.1))
        .unwrap();
    let paths = optim::slots(&optimizer, &layers()).paths();
    assert_eq!(paths, ["0.weight.0.velocity", "1.weight.1.momentum"]);
}

/// In a refused resume the lines that differ are shown.
#[test]
fn debug_text_has_the_words_of_the_code() {
    let rate = Schedule::warmup(0.1, 10).then(Schedule::cosine(0.1, 90));
    let optimizer = AdamW::new(rate)
        .group("**.bias", |group| {
            group.weight_decay(0.0).learning_rate(0.2)
        })
        .unwrap();
    expect![[r#"
        {
            **.bias: AdamW {
                learning_rate: 0.2,
                b1: 0.9,
                b2: 0.999,
                eps: 1e-8,
                weight_decay: 0.0,
                decay: All,
            },
            others: AdamW {
                learning_rate: warmup(0.1, 10).then(cosine(0.1, 90)),
                b1: 0.9,
                b2: 0.999,
                eps: 1e-8,
                weight_decay: 0.01,
                decay: All,
            },
        }"#]]
    .assert_eq(&format!("{optimizer:#?}"));
}

#[test]
fn learning_rates_are_named_by_group() {
    let optimizer = AdamW::new(0.1)
        .group("**.bias", |group| group.learning_rate(0.2))
        .unwrap()
        .partition("0.weight", Muon::new(0.3))
        .unwrap();
    let rates = optimizer.schedules().into_iter();
    let rates: Vec<String> = rates
        .map(|(name, rate)| format!("{name}: {rate:?}"))
        .collect();
    assert_eq!(
        rates,
        [
            "learning_rate: 0.1",
            "learning_rate of **.bias: 0.2",
            "learning_rate of 0.weight: 0.3"
        ]
    );
}
