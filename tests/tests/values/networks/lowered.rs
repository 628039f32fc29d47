//! The modules of random networks are those of their texts.

use std::{ops::Range, time::Instant};

use halite_core::{DType, DTypePolicy, MeshShape, Narrowing, PartitionSpec};
use halite_ir::{
    Graph, Interface, Port, matrix_products, narrow_convolutions, one_function, optimize, unrolled,
    with_precision,
};
use halite_tests::{long, lowering::lowered, parallel};

use crate::networks::{
    build::{barriered, build},
    description::Network,
    setting,
};

#[test]
fn modules_of_networks_are_those_of_their_texts() {
    let count = setting("HALITE_NETWORKS", long::count(30, 10_000));
    let first = setting("HALITE_NETWORKS_SEED", 1);
    let seeds: Range<u64> = first..first + count;
    let started = Instant::now();
    let operations = parallel::map(2, seeds, |seed| {
        let network = Network::draw(seed);
        let forms = forms(&network, seed);
        let modules = forms.map(|(graph, interface)| lowered(&graph, &interface));
        let modules = modules.map(|module| module.unwrap_or_else(|e| panic!("seed {seed}: {e}")));
        let main =
            |module: halite_stablehlo::Module| module.main().map(|it| it.body.operations.len());
        modules
            .map(|module| main(module).unwrap())
            .iter()
            .sum::<usize>()
    });
    eprintln!(
        "{count} networks from seed {first}: {} programs, {} operations, {:.0?}",
        2 * count,
        operations.iter().sum::<usize>(),
        started.elapsed()
    );
}

/// Two programs of a network: as it is, and in another element type and form.
fn forms(network: &Network, seed: u64) -> [(Graph, Interface); 2] {
    let built = |dtype| build(network, dtype).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let plain = optimize(built(DType::F32).graph);
    let mixed = |graph| with_precision(graph, &DTypePolicy::BF16_MIXED, &Narrowing::Everywhere);
    let other = match seed % 6 {
        0 => built(DType::F64).graph,
        1 => narrow_convolutions(unrolled(mixed(plain.clone()), usize::MAX)),
        2 => barriered(&unrolled(plain.clone(), usize::MAX)),
        3 => matrix_products(plain.clone()),
        4 => built(DType::F16).graph,
        _ => mixed(plain.clone()),
    };
    let small = one_function(&other, true);
    let interface = Interface {
        locations: seed.is_multiple_of(2),
        full_products: seed.is_multiple_of(3),
        one_function: small.is_some(),
        ..Interface::new(format!("network {seed}"))
    };
    let other = small.unwrap_or(other);
    let interface = match seed % 5 {
        0 if !interface.one_function => partitioned(&other, interface),
        _ => interface,
    };
    [(plain, Interface::new("network")), (other, interface)]
}

/// The interface for a mesh, which divides the first dimensions that it can.
fn partitioned(graph: &Graph, interface: Interface) -> Interface {
    let port = |dims: &[usize]| Port {
        name: None,
        spec: Some(match dims.first() {
            Some(size) if size.is_multiple_of(2) => PartitionSpec::first("data"),
            _ => PartitionSpec::replicated(),
        }),
    };
    let inputs = graph.input_types();
    let outputs = graph.output_types();
    Interface {
        mesh: MeshShape::new([("data", 2), ("model", 2)]).ok(),
        inputs: inputs.iter().map(|ty| port(ty.dims())).collect(),
        outputs: outputs.iter().map(|ty| port(ty.dims())).collect(),
        ..interface
    }
}
