//! Training on both executors, from the same seed on the same data.

use halite::{
    data::InMemory,
    models::{Classify, Mlp},
    prelude::*,
};
use halite_core::Client;
use halite_embedded::Mode;
use halite_tests::eval::client;

use crate::embedded::embedded;

/// Images of noise around a pattern of their class: `x: u8[count, 8, 8]`, `label: u8[count]`.
fn patterns(count: usize) -> InMemory {
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let (mut x, mut label) = (Vec::new(), Vec::new());
    for index in 0..count {
        let class = index % 4;
        x.extend((0..64).map(|at| noise() / 2 + if at % 4 == class { 100 } else { 0 }));
        label.push(class as u8);
    }
    let x = HostArray::from_slice(&x, [count, 8, 8]).unwrap();
    let label = HostArray::from_slice(&label, [count]).unwrap();
    InMemory::new([("x", x), ("label", label)]).unwrap()
}

/// Losses on the validation data after one, two and three epochs.
fn losses(client: &Client, devices: usize) -> Vec<f64> {
    let loss = |epochs| {
        let trainer = Trainer::builder(client)
            .devices(client.local_devices().into_iter().take(devices))
            .quiet(true)
            .epochs(epochs)
            .batch_size(32)
            .build()
            .unwrap();
        let model = Mlp::new(&[64, 32, 4]);
        let task = Classify::<Mlp<()>>::new();
        let fitted = trainer
            .fit(task, model, Adam::new(3e-3), patterns(512), patterns(100))
            .unwrap();
        fitted.report.metrics["loss"]
    };
    (1..=3).map(loss).collect()
}

fn check(devices: usize) {
    let xla = losses(client(), devices);
    let own = losses(&embedded(Mode::Oracle, devices as u32), devices);
    println!("losses on {devices} devices: {own:?}, by XLA {xla:?}");
    assert!(xla[2] < 0.7 * xla[0], "{xla:?}");
    for (own, xla) in own.iter().zip(&xla) {
        assert!((own - xla).abs() < 1e-3 * xla.max(0.1), "{own} and {xla}");
    }
}

#[test]
fn losses_agree_with_xla() {
    check(1);
}

#[test]
fn losses_on_two_devices_agree_with_xla() {
    check(2);
}
