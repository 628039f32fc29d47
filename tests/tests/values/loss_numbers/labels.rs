use halite_core::{Element, HostArray};
use halite_nn::{CrossEntropy, accuracy, cross_entropy, top_k_accuracy};
use halite_tests::eval::host;

use super::results;

/// The losses and metrics of one sample of the last of `classes` classes and one of label `bad`.
#[track_caller]
fn check<T: Element>(classes: usize, good: T, bad: T) {
    let mut logits = vec![0.0f32; 2 * classes];
    logits[classes - 1] = 3.0;
    logits[classes] = 3.0;
    let inputs = [
        host(&logits, &[2, classes]),
        HostArray::from_slice(&[good, bad], [2]).unwrap(),
    ];
    let found = results(
        |_, given| {
            let &[logits, target] = given else {
                panic!("two inputs")
            };
            let ignoring = |label| {
                CrossEntropy::new()
                    .ignore(label)
                    .loss(logits, target)
                    .value()
            };
            vec![
                cross_entropy(logits, target).mean_all(),
                ignoring(-100),
                ignoring(-1),
                ignoring(i32::MIN),
                accuracy(logits, target).value(),
                top_k_accuracy(logits, target, 2).value(),
            ]
        },
        &inputs,
    );
    let found = found.concat();
    let ty = inputs[1].ty();
    assert!(
        found[..4].iter().all(|loss| loss.is_nan()),
        "{ty} of {classes}: {found:?}"
    );
    assert_eq!(found[4..], [0.5, 0.5], "{ty} of {classes}");
}

#[test]
fn labels_of_any_type_are_checked_before_they_are_converted() {
    for bad in [
        300,
        1 << 32,
        (1 << 32) + 1,
        -(1 << 32),
        i64::MIN,
        i64::MAX,
        -2,
        (1 << 32) - 100,
    ] {
        check(300, 299i64, bad);
    }
    for bad in [
        300,
        u64::MAX,
        1 << 32,
        u64::MAX - 99,
        1 << 63,
        (1 << 32) - 100,
    ] {
        check(300, 299u64, bad);
    }
    for bad in [300, u32::MAX, u32::MAX - 99, 1 << 31, (1 << 31) + 1] {
        check(300, 299u32, bad);
    }
    for bad in [300, i32::MAX, -2, i32::MIN + 1] {
        check(300, 299i32, bad);
    }
    for bad in [300, u16::MAX, u16::MAX - 99] {
        check(300, 299u16, bad);
    }
    for bad in [300, i16::MAX, i16::MIN] {
        check(300, 299i16, bad);
    }
    for bad in [3, u8::MAX, 156] {
        check(3, 2u8, bad);
    }
    for bad in [3, i8::MAX, i8::MIN] {
        check(3, 2i8, bad);
    }
}

#[test]
fn labels_of_narrow_types_reach_their_last_class() {
    // 300 classes are more than 8 bits have.
    let logits: Vec<f32> = (0..300)
        .map(|class| if class == 255 { 9.0 } else { 0.0 })
        .collect();
    let found = results(
        |_, given| {
            vec![
                accuracy(given[0], given[1]).value(),
                cross_entropy(given[0], given[1]).mean_all(),
            ]
        },
        &[host(&logits, &[1, 300]), host(&[255u8], &[1])],
    );
    assert_eq!(found[0], [1.0]);
    assert!(
        (found[1][0] - (1.0 + 299.0 * (-9f32).exp()).ln()).abs() < 1e-5,
        "{found:?}"
    );
}

#[test]
fn ignored_label_is_ignored_in_wide_types() {
    let logits = host(&[0.0f32, 1.0, 1.0, 0.0], &[2, 2]);
    let found = results(
        |_, given| {
            let loss = |label| {
                CrossEntropy::new()
                    .ignore(label)
                    .loss(given[0], given[1])
                    .value()
            };
            vec![loss(-100), loss(1)]
        },
        &[logits, host(&[1i64, -100], &[2])],
    );
    assert!(
        (found[0][0] - (1.0 + (-1f32).exp()).ln()).abs() < 1e-6,
        "{found:?}"
    );
    assert!(found[1][0].is_nan());
}
