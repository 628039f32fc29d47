//! Ten steps of small networks beside PyTorch (`tests/golden/pytorch/parity.py`). Fifty steps of
//! large ones: `cargo run --release -p halite-tests --bin parity -- --python PYTHON`.

use std::{collections::BTreeMap, path::Path};

use halite_tests::{
    eval::client,
    parity::{Network, Reference, Size, compare},
};

#[track_caller]
fn check(network: Network) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/parity.json");
    let text = std::fs::read_to_string(path).unwrap();
    let references: BTreeMap<String, Reference> = serde_json::from_str(&text).unwrap();
    let reference = &references[network.name()];
    let comparison = compare(client(), network, Size::Small, reference).unwrap();
    assert_eq!(comparison.ours.len(), 10);
    assert_eq!(
        comparison.first_beyond(),
        None,
        "{}: {comparison}",
        network.name()
    );
}

#[test]
fn lstm_classifier_follows_pytorch() {
    check(Network::Lstm);
}

#[test]
fn gpt_follows_pytorch() {
    check(Network::Gpt);
}
