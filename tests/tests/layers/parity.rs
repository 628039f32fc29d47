//! Steps of small networks beside PyTorch (`tests/golden/pytorch/parity.py`). Fifty steps of
//! large ones: `cargo run --release -p halite-tests --bin parity -- --python PYTHON`.

use std::{collections::BTreeMap, path::Path};

use halite_tests::{
    eval::client,
    parity::{Network, Reference, Size, compare},
};

#[track_caller]
fn check(network: Network, steps: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/parity.json");
    let text = std::fs::read_to_string(path).unwrap();
    let references: BTreeMap<String, Reference> = serde_json::from_str(&text).unwrap();
    let mut reference = references[network.name()].clone();
    reference.losses.truncate(steps);
    let comparison = compare(client(), network, Size::Small, &reference).unwrap();
    assert_eq!(comparison.ours.len(), steps);
    assert_eq!(
        comparison.first_beyond(),
        None,
        "{}: {comparison}",
        network.name()
    );
}

/// Four steps: the last batch norms are over four elements, and a difference of 1e-15 in the first
/// step is one of 4e-12 in the third and of 4e-7 in the tenth.
#[test]
fn resnet18_follows_pytorch() {
    check(Network::ResNet18, 4);
}

#[test]
fn vit_follows_pytorch() {
    check(Network::Vit, 10);
}

#[test]
fn lstm_classifier_follows_pytorch() {
    check(Network::Lstm, 10);
}

#[test]
fn gpt_follows_pytorch() {
    check(Network::Gpt, 10);
}
