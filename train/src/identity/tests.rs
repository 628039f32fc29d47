//! Tests of identities and their comparison.

use std::sync::Arc;

use halite_data::Dataset;

use super::{comparison::shortened, pending::Digesting, *};
use crate::{signals::StopFlag, validation_set::NamedSet, waits::Limits};

/// Returns the identity of a run on data with digests.
fn identity(properties: &[(&str, &str)], change: impl FnOnce(&mut Values<'_>)) -> Identity {
    let mut identity = without_data(properties, change);
    identity.add_data(["sha256 1", "sha256 2"].map(|digest| Some(digest.into())));
    identity
}

fn without_data(properties: &[(&str, &str)], change: impl FnOnce(&mut Values<'_>)) -> Identity {
    let properties: Vec<Property> = properties
        .iter()
        .map(|(name, value)| Property {
            name: name.to_string(),
            value: value.to_string(),
        })
        .collect();
    let mut values = Values {
        label: None,
        seed: 0,
        batch_size: 32,
        samples: 640,
        clip: None,
        accumulate_grad_batches: 1,
        last_batch: "drop".into(),
        limit_train_batches: "all".into(),
        overfit_batches: "none".into(),
        optimizer: "Adam(\n    rate: 0.002,\n    steps: 18,\n)".into(),
        precision: "f32".into(),
        epochs: "1".into(),
        mesh: "mesh(data=1)".into(),
        strategy: "dp".into(),
        plugin: "cpu 1".into(),
        step: code("add %0 loc(#loc1)\n#loc1 = loc(\"a.rs\":1:1)\n"),
        properties: &properties,
    };
    change(&mut values);
    Identity::new(values)
}

/// A program of this text.
fn code(text: &str) -> &'static Code {
    Box::leak(Box::new(Code::from(text)))
}

fn with_data(digest: Option<&str>) -> Identity {
    let mut identity = without_data(&[], |_| ());
    identity.add_data([digest.map(String::from), None]);
    identity
}

fn lines(differences: &[Difference]) -> Vec<String> {
    differences.iter().map(Difference::line).collect()
}

#[test]
fn equal_identities_have_no_differences() {
    let saved = identity(&[("--dropout", "0")], |_| ());
    let comparison = saved.compare(&saved.clone(), &[]);
    comparison.check("step-1", &[]).unwrap();
    assert!(comparison.warnings().is_empty() && comparison.accepted.is_empty());
    let text = serde_json::to_string(&saved).unwrap();
    assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), saved);
}

#[test]
fn unknown_values_are_not_compared() {
    let (known, unknown) = (with_data(Some("sha256 ab")), with_data(None));
    assert!(lines(&known.compare(&unknown, &[]).refused).is_empty());
    assert!(lines(&unknown.compare(&known, &[]).refused).is_empty());
    let other = with_data(Some("sha256 cd")).compare(&known, &[]);
    assert_eq!(
        lines(&other.refused),
        [
            "training data (--data): saved sha256 ab, given sha256 cd (other samples, another \
             order, or another function in a `map`)"
        ]
    );
}

#[test]
fn unknown_data_is_a_warning() {
    let known = |training, validation| {
        let mut identity = without_data(&[], |_| ());
        identity
            .add_data([training, validation].map(|digest: Option<&str>| digest.map(Into::into)));
        identity
    };
    let whole = known(Some("a"), Some("b"));
    assert!(whole.compare(&whole.clone(), &[]).warnings().is_empty());
    let warnings = |saved: &Identity| whole.compare(saved, &[]).warnings().join("\n");
    assert!(warnings(&known(Some("a"), None)).starts_with("validation data: without a digest"));
    assert!(warnings(&known(None, None)).starts_with("training data, validation data: without"));
}

#[test]
fn properties_of_one_side_are_differences() {
    let (with, without) = (
        identity(&[("--dropout", "0.5")], |_| ()),
        identity(&[], |_| ()),
    );
    assert_eq!(
        lines(&with.compare(&without, &[]).refused),
        ["--dropout: saved nothing, given 0.5"]
    );
    assert_eq!(
        lines(&without.compare(&with, &[]).refused),
        ["--dropout: saved 0.5, given nothing"]
    );
}

#[test]
fn every_field_that_changes_weights_is_refused() {
    let saved = identity(&[], |_| ());
    type Change = fn(&mut Values<'_>);
    let changes: [(Change, &str); 10] = [
        (|v| v.label = Some("x"), "label: saved none, given x"),
        (|v| v.seed = 3, "seed (--seed): saved 0, given 3"),
        (
            |v| v.batch_size = 64,
            "batch_size (--batch-size): saved 32, given 64",
        ),
        (
            |v| v.samples = 9,
            "samples (--limit, --steps): saved 640, given 9",
        ),
        (
            |v| v.clip = Some("0.5".into()),
            "clip_norm (--gradient-clip-val, --gradient-clip-algorithm): saved none, given 0.5",
        ),
        (
            |v| v.accumulate_grad_batches = 4,
            "accumulate_grad_batches (--accumulate-grad-batches): saved 1, given 4",
        ),
        (
            |v| v.limit_train_batches = "10".into(),
            "limit_train_batches (--limit-train-batches): saved all, given 10",
        ),
        (
            |v| v.optimizer = v.optimizer.replace("0.002", "0.1"),
            "optimizer (--learning-rate): saved rate: 0.002, given rate: 0.1",
        ),
        // The epochs are the same, so another length is no consequence of them.
        (
            |v| v.optimizer = v.optimizer.replace("18", "36"),
            "optimizer (--learning-rate): saved steps: 18, given steps: 36",
        ),
        (
            |v| v.precision = "bf16".into(),
            "precision (--precision): saved f32, given bf16",
        ),
    ];
    for (change, want) in changes {
        let comparison = identity(&[], change).compare(&saved, &[]);
        assert_eq!(lines(&comparison.refused), [want]);
        let error = comparison.check("step-1", &[]).unwrap_err().to_string();
        assert!(
            error.contains(want) && error.contains("--allow-changes "),
            "{error}"
        );
    }
}

#[test]
fn more_epochs_explain_only_a_longer_schedule() {
    let saved = identity(&[], |_| ());
    let longer = |rate: &str| {
        let optimizer = format!("Adam(\n    rate: {rate},\n    steps: 36,\n)");
        identity(&[], |values| {
            (values.epochs, values.optimizer) = ("2".into(), optimizer)
        })
        .compare(&saved, &[])
    };
    longer("0.002").check("step-1", &[]).unwrap();
    let warning = &longer("0.002").warnings()[0];
    assert!(
        warning.contains("saved 1, given 2")
            && warning.contains("saved steps: 18, given steps: 36"),
        "{warning}"
    );
    assert_eq!(longer("0.1").refused.len(), 1);
    // A schedule that does not depend on the epochs is as it was.
    let constant = identity(&[], |values| values.epochs = "2".into()).compare(&saved, &[]);
    assert!(constant.warnings().is_empty() && constant.check("step-1", &[]).is_ok());
}

#[test]
fn sharding_changes_the_rounding_only() {
    let saved = identity(&[], |_| ());
    let other = identity(&[], |values| {
        (values.mesh, values.strategy, values.plugin) =
            ("mesh(data=8)".into(), "fsdp".into(), "cpu 2".into());
    });
    let comparison = other.compare(&saved, &[]);
    comparison.check("step-1", &[]).unwrap();
    assert_eq!(comparison.rounding.len(), 3);
    assert_eq!(comparison.warnings().len(), 1);
}

#[test]
fn other_platform_is_refused_unless_allowed() {
    let saved = identity(&[], |_| ());
    let other = identity(&[], |values| values.plugin = "embedded 1".into());
    assert_eq!(
        lines(&other.compare(&saved, &[]).refused),
        ["plugin (--accelerator): saved cpu 1, given embedded 1"]
    );
    let allowed = ["plugin".to_owned()];
    other.check_allowed(&saved, &allowed).unwrap();
    let comparison = other.compare(&saved, &allowed);
    comparison.check("step-1", &[]).unwrap();
    assert_eq!(lines(&comparison.accepted).len(), 1);
}

#[test]
fn former_name_of_a_platform_is_the_same() {
    let saved = identity(&[], |values| values.plugin = "halite 1".into());
    let named = |plugin: &str| identity(&[], |values| values.plugin = plugin.into());
    let comparison = named("embedded 1").compare(&saved, &[]);
    comparison.check("step-1", &[]).unwrap();
    assert!(comparison.rounding.is_empty() && comparison.warnings().is_empty());
    let newer = named("embedded 2").compare(&saved, &[]);
    assert_eq!(
        lines(&newer.rounding),
        ["plugin (--accelerator): saved embedded 1, given embedded 2"]
    );
    assert_eq!(named("cpu 1").compare(&saved, &[]).refused.len(), 1);
}

#[test]
fn data_are_digested_in_the_background() {
    let data = |value: u8| -> Arc<dyn Dataset> {
        let array = halite_core::HostArray::from_slice(&[value], [1]).unwrap();
        Arc::new(halite_data::InMemory::new([("x", array)]).unwrap())
    };
    let known = || identity(&[], |_| ());
    let expected = {
        let mut identity = known();
        identity.add_data([data(1).digest(), data(2).digest()]);
        identity
    };
    let data = Data {
        train: data(1),
        validation: vec![Arc::new(NamedSet {
            name: None,
            data: data(2),
        })],
    };
    let mut begun = PendingIdentity::new(known(), Some(data.clone()));
    begun.begin();
    assert!(matches!(begun.digesting, Some(Digesting::Thread(_))));
    let inline = PendingIdentity {
        identity: known(),
        digesting: Some(Digesting::Inline(data.clone())),
    };
    for (pending, expected) in [
        (PendingIdentity::new(known(), Some(data)), &expected),
        (begun, &expected),
        (inline, &expected),
        (PendingIdentity::new(known(), None), &known()),
    ] {
        let mut pending = pending;
        pending.wait_or_give_up(&Limits::new(None), &StopFlag::new());
        assert_eq!(pending.identity(), expected);
    }
}

#[test]
fn another_program_of_the_same_values_is_a_warning() {
    let saved = identity(&[], |_| ());
    let moved = identity(&[], |values| {
        values.step = code("add %0 loc(#loc7)\n#loc7 = loc(\"b.rs\":9:9)\n")
    });
    assert_eq!(moved, saved);
    let other = |change: fn(&mut Values<'_>)| {
        let change = |values: &mut Values<'_>| {
            values.step = code("multiply %0 loc(#loc1)\n");
            change(values);
        };
        identity(&[], change).compare(&saved, &["seed".into()])
    };
    other(|_| ()).check("step-1", &[]).unwrap();
    assert!(other(|_| ()).warnings()[0].contains("the training step is another program"));
    // What explains it is said instead.
    for change in [
        (|values| values.seed = 1) as fn(&mut Values<'_>),
        |values| values.mesh = "mesh(data=2)".into(),
    ] {
        let warnings = other(change).warnings();
        assert!(
            warnings.len() == 1 && !warnings[0].contains("another program"),
            "{warnings:?}"
        );
    }
}

#[test]
fn allowed_names_may_be_written_as_flags() {
    let saved = identity(&[("--dropout", "0")], |_| ());
    let other = identity(&[("--dropout", "0.5")], |values| values.batch_size = 64);
    for names in [
        &["dropout", "batch_size"][..],
        &["--dropout", "--batch-size"],
        &["all"],
    ] {
        let allowed: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        other.check_allowed(&saved, &allowed).unwrap();
        let comparison = other.compare(&saved, &allowed);
        comparison.check("step-1", &[]).unwrap();
        assert!(!comparison.accepted.is_empty());
        assert_eq!(comparison.warnings().len(), 1);
    }
    let comparison = other.compare(&saved, &["dropout".into()]);
    assert_eq!(
        lines(&comparison.refused),
        ["batch_size (--batch-size): saved 32, given 64"]
    );
    let error = other
        .check_allowed(&saved, &["droput".into()])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`droput`") && error.contains(" dropout,"),
        "{error}"
    );
    // One that only the saved run has can be allowed to be gone.
    identity(&[], |_| ())
        .check_allowed(&saved, &["dropout".into()])
        .unwrap();
}

#[test]
fn another_model_cannot_be_allowed() {
    let saved = identity(&[], |_| ());
    let other = identity(&[], |values| values.seed = 1);
    let error = other
        .compare(&saved, &[])
        .check("step-1", &["`w` is f32[2]".into()])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("2 differences:") && error.contains("\n  `w` is f32[2]\n"),
        "{error}"
    );
    assert!(!error.contains("--allow-changes"), "{error}");
}

#[test]
fn addresses_are_ignored_in_values() {
    assert_eq!(
        without_addresses("Custom { f: 0x00007f12ab, n: 3 } 0xff"),
        "Custom { f: 0x_, n: 3 } 0x_"
    );
}

#[test]
fn long_values_are_cut_in_messages() {
    assert_eq!(
        shortened(&"é".repeat(121)),
        format!("{}..", "é".repeat(120))
    );
    assert_eq!(shortened("short"), "short");
}
