//! Layouts by the kind of a parameter, whatever its name.

use halite_core::Tree;
use halite_nn::{
    Conv1d, ConvTranspose1d, FromHeads, Init, Linear, Lora, Param, ParamKind, ToHeads,
};
use halite_weights::{HostTensors, NameMap, WeightLoader};

use crate::names::{at, check, check_saved, client, tensors};

/// Layers whose fields have the names of other layers' parameters, and parameters without a layer.
#[derive(Tree, Clone, Debug)]
struct Net<L> {
    q: Conv1d<L>,
    o: Conv1d<L>,
    query: ToHeads<L>,
    output: FromHeads<L>,
    up: ConvTranspose1d<L>,
    kernel: L,
    weight: L,
    head: L,
}

fn net() -> Net<Param> {
    let param = |dims: &[usize]| Param::new(dims, Init::Zeros);
    Net {
        q: Conv1d::new(2, 3, 4).without_bias(),
        o: Conv1d::new(3, 2, 5).without_bias(),
        query: ToHeads::new(6, 2, 4),
        output: FromHeads::new(2, 4, 6),
        up: ConvTranspose1d::new(2, 3, 4).without_bias(),
        kernel: param(&[2, 3, 4]),
        weight: param(&[3, 3]),
        head: param(&[3, 3]).of_kind(ParamKind::Linear),
    }
}

/// As PyTorch saves them.
fn file() -> HostTensors {
    tensors(&[
        ("q.weight", &[3, 2, 4]),
        ("o.weight", &[2, 3, 5]),
        ("query.weight", &[8, 6]),
        ("query.bias", &[8]),
        ("output.weight", &[6, 8]),
        ("output.bias", &[6]),
        ("up.weight", &[2, 3, 4]),
        ("kernel", &[2, 3, 4]),
        ("weight", &[3, 3]),
        ("head", &[3, 3]),
    ])
}

#[test]
fn layouts_are_those_of_the_layers() {
    let (model, source, map) = (net(), file(), NameMap::torch());
    let loaded = WeightLoader::new(&source, &map).load(&client(), &model);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}")).model;
    check(&loaded.q.weight, |i| {
        at(&source, "q.weight", &[i[2], i[1], i[0]])
    });
    check(&loaded.o.weight, |i| {
        at(&source, "o.weight", &[i[2], i[1], i[0]])
    });
    check(&loaded.query.weight, |i| {
        at(&source, "query.weight", &[i[1] * 4 + i[2], i[0]])
    });
    check(loaded.query.bias.as_ref().unwrap(), |i| {
        at(&source, "query.bias", &[i[0] * 4 + i[1]])
    });
    check(&loaded.output.weight, |i| {
        at(&source, "output.weight", &[i[2], i[0] * 4 + i[1]])
    });
    check(&loaded.up.kernel, |i| {
        at(&source, "up.weight", &[i[1], i[2], i[0]])
    });
    check(&loaded.head, |i| at(&source, "head", &[i[1], i[0]]));
    check_saved(&model, &loaded, &map, &source);
}

#[test]
fn parameters_without_a_layer_are_as_in_the_file() {
    let (model, source, map) = (net(), file(), NameMap::torch());
    let loaded = WeightLoader::new(&source, &map).load(&client(), &model);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}")).model;
    check(&loaded.kernel, |i| at(&source, "kernel", i));
    check(&loaded.weight, |i| at(&source, "weight", i));
}

#[test]
fn convolutions_named_as_projections_are_not_adapted() {
    let model = (net(), Linear::new(3, 4));
    let adapted = Lora::new(1).adapt(model).unwrap();
    let paths: Vec<String> = (adapted.adapters.named().into_iter())
        .map(|(path, _)| path)
        .collect();
    let of = |layer: &str| paths.iter().filter(|path| path.contains(layer)).count();
    assert_eq!(paths.len(), 6, "{paths:?}");
    assert_eq!((of("query"), of("output")), (2, 2), "{paths:?}");
}
