//! Steps of small networks beside PyTorch (`tests/golden/pytorch/parity.py`). Fifty steps of
//! large ones: `cargo run --release -p halite-tests --bin parity -- --python PYTHON`
//! (`docs/models.md`).

use std::{collections::BTreeMap, path::Path};

use halite_tests::{
    eval::client,
    parity::{Network, Reference, Size, compare},
};

/// Ten steps in `f64`.
#[track_caller]
fn check(network: Network) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/parity.json");
    let text = std::fs::read_to_string(path).unwrap();
    let references: BTreeMap<String, Reference> = serde_json::from_str(&text).unwrap();
    let reference = &references[network.name()];
    let comparison = compare(client(), network, Size::Small, reference).unwrap();
    assert_eq!(comparison.ours.len(), 10);
    let first = comparison.first_beyond();
    assert_eq!(first, None, "{}: {comparison}", network.name());
}

#[test]
fn resnet18_follows_pytorch() {
    check(Network::ResNet18);
}

#[test]
fn vit_follows_pytorch() {
    check(Network::Vit);
}

#[test]
fn lstm_classifier_follows_pytorch() {
    check(Network::Lstm);
}

#[test]
fn gpt_follows_pytorch() {
    check(Network::Gpt);
}

#[test]
fn ct_follows_pytorch() {
    check(Network::Ct);
}
