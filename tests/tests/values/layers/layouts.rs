//! The rows of `docs/layouts.md`: weights with PyTorch's and Flax's names and dimensions
//! (`tests/golden/pytorch/layouts.py`) are loaded, give the same results, and are saved as they were.

use std::{collections::BTreeMap, path::Path};

use halite::weights::{HostTensors, NameMap, TensorSource, WeightLoader, WeightSaver, open};
use halite_core::{Array, DType, HostArray, Tree, tree::Of};
use halite_nn::{
    Attention, BatchNorm, Conv, ConvTranspose, Embedding, GroupNorm, Gru, InstanceNorm, LayerNorm,
    Linear, Lstm, Mask, Model, Param, RmsNorm, Tensor, Trace,
};
use halite_tests::{
    eval::{client, eval, host},
    parity::formula,
};
use serde::Deserialize;

/// A layer with inputs of these dimensions.
#[derive(Deserialize)]
struct Row {
    inputs: Vec<Vec<usize>>,
    /// Integers below this, or floats.
    high: Option<u64>,
    torch: Side,
    flax: Option<Side>,
}

/// A layer in PyTorch or Flax.
#[derive(Deserialize)]
struct Side {
    eps: Option<f64>,
    tensors: BTreeMap<String, Vec<usize>>,
    output: Vec<usize>,
    values: Vec<f64>,
}

/// Flax's tensors for halite's parameters: those that are put side by side along the last
/// dimension. An empty name stands for zeros.
type FlaxNames = &'static [(&'static str, &'static [&'static str])];

fn rows() -> BTreeMap<String, Row> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/layouts.json");
    let text = std::fs::read_to_string(golden).unwrap();
    serde_json::from_str(&text).expect("the golden file is as layouts.py writes it")
}

fn f64s(array: &HostArray) -> Vec<f64> {
    array.as_slice::<f64>().unwrap().to_vec()
}

/// Loads `source` strictly, saves it, and compares what the layer computes with `side`.
fn check_side<M: Model>(
    name: &str,
    (row, side): (&Row, &Side),
    net: &M,
    names: &NameMap,
    source: &HostTensors,
    forward: impl for<'t> Fn(&'t Trace, &Of<M, Tensor<'t>>, &[Tensor<'t>]) -> Tensor<'t>
    + Send
    + Sync
    + 'static,
) {
    let loaded = WeightLoader::new(source, names).load(client(), net);
    let loaded = loaded
        .unwrap_or_else(|error| panic!("{name}: {error}"))
        .model;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved.safetensors");
    WeightSaver::new(names).save(net, &loaded, &path).unwrap();
    let saved = open(&path).unwrap();
    assert_eq!(saved.tensors().len(), source.tensors().len(), "{name}");
    for tensor in source.tensors() {
        let [saved, given] = [saved.read(&tensor.name), source.read(&tensor.name)];
        assert_eq!(saved.unwrap(), given.unwrap(), "{name}: `{}`", tensor.name);
    }
    let leaves: Vec<&Array> = loaded.leaves();
    let count = leaves.len();
    let mut inputs: Vec<HostArray> = leaves
        .into_iter()
        .map(|leaf| leaf.read().unwrap())
        .collect();
    for (at, dims) in row.inputs.iter().enumerate() {
        let at = if at == 0 {
            String::new()
        } else {
            at.to_string()
        };
        let input = format!("{name}.x{at}");
        inputs.push(match row.high {
            Some(high) => formula::integers(&input, high, dims).unwrap(),
            None => formula::floats(&input, dims, DType::F64).unwrap(),
        });
    }
    let described = net.described();
    let results = eval(
        move |cx, given| {
            cx.set_mode(false, None);
            let (leaves, inputs) = given.split_at(count);
            let net = described.rebuild(leaves.iter().copied());
            vec![forward(cx, &net, inputs)]
        },
        &inputs,
    );
    assert_eq!(results[0].ty().dims(), side.output, "{name}");
    for (ours, theirs) in f64s(&results[0]).iter().zip(&side.values) {
        assert!(
            (ours - theirs).abs() < 1e-12,
            "{name}: {ours}, not {theirs}"
        );
    }
}

/// Flax's tensors under the paths of halite's parameters.
fn of_flax(net: &impl Model, side: &Side, names: FlaxNames) -> HostTensors {
    let arrays = formula::weights(&side.tensors, DType::F64).unwrap();
    let mut used = 0;
    let tensors = net.named().into_iter().map(|(path, param)| {
        let (_, parts) = (names.iter())
            .find(|(ours, _)| *ours == path)
            .unwrap_or_else(|| panic!("`{path}` has no name in Flax"));
        let dims = param.ty.dims();
        let rows: usize = dims[..dims.len() - 1].iter().product();
        let parts: Vec<Vec<f64>> = (parts.iter())
            .map(|part| match *part {
                "" => vec![0.0; param.ty.elements() / parts.len()],
                part => {
                    used += 1;
                    f64s(&arrays.read(part).unwrap())
                }
            })
            .collect();
        let mut values = Vec::new();
        for row in 0..rows.max(1) {
            for part in &parts {
                let width = part.len() / rows.max(1);
                values.extend_from_slice(&part[row * width..(row + 1) * width]);
            }
        }
        if path == "kernel" {
            // A transposed convolution of Flax does not reverse its window.
            let features: usize = dims[dims.len() - 2..].iter().product();
            let places: Vec<&[f64]> = values.chunks(features).rev().collect();
            values = places.concat();
        }
        (path, host(&values, dims))
    });
    let tensors: BTreeMap<String, HostArray> = tensors.collect();
    assert_eq!(
        used,
        side.tensors.len(),
        "all of Flax's tensors are used: {:?}",
        side.tensors
    );
    tensors.into()
}

/// Checks a layer from the names of both.
fn check<M: Model>(
    name: &str,
    net: impl Fn(f64) -> M,
    names: &NameMap,
    flax: FlaxNames,
    forward: impl for<'t> Fn(&'t Trace, &Of<M, Tensor<'t>>, &[Tensor<'t>]) -> Tensor<'t>
    + Copy
    + Send
    + Sync
    + 'static,
) {
    let rows = rows();
    let row = &rows[name];
    let exact = |eps: Option<f64>| {
        let net = net(eps.unwrap_or(0.0));
        M::from_tree(net.map_leaves(|_, param| param.with_dtype(DType::F64)))
    };
    let source = formula::weights(&row.torch.tensors, DType::F64).unwrap();
    check_side(
        name,
        (row, &row.torch),
        &exact(row.torch.eps),
        names,
        &source,
        forward,
    );
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/layouts.md");
    let page = std::fs::read_to_string(page).unwrap();
    let layer = name.split(' ').next().unwrap_or_default();
    assert!(
        page.contains(&format!("`{layer}")),
        "the page has no `{layer}`"
    );
    for tensor in row.torch.tensors.keys() {
        let tensor = tensor.replace("_l0", "_l{n}").replace("_l1", "_l{n}");
        let tensor = tensor.trim_end_matches("_reverse");
        assert!(
            page.contains(&format!("`{tensor}`")),
            "the page has no `{tensor}`"
        );
    }
    if let Some(side) = row.flax.as_ref().filter(|_| !flax.is_empty()) {
        let net = exact(side.eps);
        let source = of_flax(&net, side, flax);
        check_side(name, (row, side), &net, &NameMap::paths(), &source, forward);
    }
}

const DENSE: FlaxNames = &[("weight", &["params/kernel"]), ("bias", &["params/bias"])];
const NORM: FlaxNames = &[("scale", &["params/scale"]), ("bias", &["params/bias"])];

#[test]
fn dense_layers_have_the_documented_layout() {
    let names = &NameMap::torch();
    check(
        "Linear",
        |_| Linear::new(3, 4),
        names,
        DENSE,
        |_, net, x| net.forward(x[0]),
    );
    let table: FlaxNames = &[("table", &["params/embedding"])];
    check(
        "Embedding",
        |_| Embedding::new(5, 4),
        names,
        table,
        |_, net, x| net.forward(x[0]),
    );
}

#[test]
fn convolutions_have_the_documented_layout() {
    let names = &NameMap::torch();
    let conv1 = |_| Conv::<Param, 1>::new(3, 4, 3).padding(1);
    check("Conv1d", conv1, names, DENSE, |_, net, x| net.forward(x[0]));
    let conv2 = |_| Conv::<Param, 2>::new(2, 3, [3, 2]);
    check("Conv2d", conv2, names, DENSE, |_, net, x| net.forward(x[0]));
    let conv3 = |_| Conv::<Param, 3>::new(2, 3, 2);
    check("Conv3d", conv3, names, DENSE, |_, net, x| net.forward(x[0]));
    let grouped = |_| Conv::<Param, 2>::new(4, 6, 3).groups(2);
    check("Conv2d grouped", grouped, names, DENSE, |_, net, x| {
        net.forward(x[0])
    });
    let depthwise = |_| Conv::<Param, 2>::depthwise(3, 3);
    check("Conv2d depthwise", depthwise, names, DENSE, |_, net, x| {
        net.forward(x[0])
    });
    let flax: FlaxNames = &[("kernel", &["params/kernel"]), ("bias", &["params/bias"])];
    let transposed = |_| ConvTranspose::<Param, 2>::new(2, 3, [3, 2]).stride(2);
    check("ConvTranspose2d", transposed, names, flax, |_, net, x| {
        net.forward(x[0])
    });
    let grouped = |_| ConvTranspose::<Param, 2>::new(4, 6, 3).stride(2).groups(2);
    check(
        "ConvTranspose2d grouped",
        grouped,
        names,
        &[],
        |_, net, x| net.forward(x[0]),
    );
}

#[test]
fn norms_have_the_documented_layout() {
    let names = &NameMap::torch();
    let flax: FlaxNames = &[
        ("scale", &["params/scale"]),
        ("bias", &["params/bias"]),
        ("mean", &["batch_stats/mean"]),
        ("variance", &["batch_stats/var"]),
    ];
    let batch = |eps| BatchNorm::new(4).eps(eps);
    check("BatchNorm", batch, names, flax, |_, net, x| {
        net.forward(x[0])
    });
    let layer = |eps| LayerNorm::new(4).eps(eps);
    check("LayerNorm", layer, names, NORM, |_, net, x| {
        net.forward(x[0])
    });
    let group = |eps| GroupNorm::new(2, 4).eps(eps);
    check("GroupNorm", group, names, NORM, |_, net, x| {
        net.forward(x[0])
    });
    let instance = |eps| InstanceNorm::new(4).eps(eps);
    check("InstanceNorm", instance, names, NORM, |_, net, x| {
        net.forward(x[0])
    });
    let rms = |eps| RmsNorm::new(4).eps(eps);
    let scale: FlaxNames = &[("scale", &["params/scale"])];
    check("RmsNorm", rms, names, scale, |_, net, x| net.forward(x[0]));
}

#[test]
fn recurrent_layers_have_the_documented_layout() {
    let names = &NameMap::torch();
    let lstm = |_| Lstm::new(2, 3).layers(2).bidirectional();
    check("Lstm", lstm, names, &[], |_, net, x| {
        net.forward(x[0], None).0
    });
    let gru = |_| Gru::new(2, 3).layers(2).bidirectional();
    check("Gru", gru, names, &[], |_, net, x| {
        net.forward(x[0], None).0
    });
}

#[test]
fn gates_of_flax_side_by_side_are_those_of_recurrent_layers() {
    let rows = rows();
    macro_rules! cell {
        ($($gate:literal)*, $kind:literal) => { &[$(concat!("params/cell/", $gate, "/", $kind)),*] };
    }
    let lstm: FlaxNames = &[
        (
            "layers.0.forward.weight_ih",
            cell!("ii" "if" "ig" "io", "kernel"),
        ),
        (
            "layers.0.forward.weight_hh",
            cell!("hi" "hf" "hg" "ho", "kernel"),
        ),
        ("layers.0.forward.bias_ih", &[""]),
        (
            "layers.0.forward.bias_hh",
            cell!("hi" "hf" "hg" "ho", "bias"),
        ),
    ];
    let gru: FlaxNames = &[
        (
            "layers.0.forward.weight_ih",
            cell!("ir" "iz" "in", "kernel"),
        ),
        (
            "layers.0.forward.weight_hh",
            cell!("hr" "hz" "hn", "kernel"),
        ),
        ("layers.0.forward.bias_ih", cell!("ir" "iz" "in", "bias")),
        ("layers.0.forward.bias_hh", &["", "", "params/cell/hn/bias"]),
    ];
    fn exact<M: Model>(net: M) -> M {
        M::from_tree(net.map_leaves(|_, param| param.with_dtype(DType::F64)))
    }
    let (net, names) = (exact(Lstm::new(2, 3)), &NameMap::paths());
    let side = rows["Lstm"].flax.as_ref().unwrap();
    let source = of_flax(&net, side, lstm);
    check_side(
        "Lstm",
        (&rows["Lstm"], side),
        &net,
        names,
        &source,
        |_, net, x| net.forward(x[0], None).0,
    );
    let net = exact(Gru::new(2, 3));
    let side = rows["Gru"].flax.as_ref().unwrap();
    let source = of_flax(&net, side, gru);
    check_side(
        "Gru",
        (&rows["Gru"], side),
        &net,
        names,
        &source,
        |_, net, x| net.forward(x[0], None).0,
    );
}

#[test]
fn attention_has_the_documented_layout() {
    let flax: FlaxNames = &[
        ("q.weight", &["params/query/kernel"]),
        ("q.bias", &["params/query/bias"]),
        ("k.weight", &["params/key/kernel"]),
        ("k.bias", &["params/key/bias"]),
        ("v.weight", &["params/value/kernel"]),
        ("v.bias", &["params/value/bias"]),
        ("o.weight", &["params/out/kernel"]),
        ("o.bias", &["params/out/bias"]),
    ];
    let fused = |names: NameMap| {
        names
            .fuse(["q.bias", "k.bias", "v.bias"], "in_proj_bias", 0)
            .rename("o", "out_proj")
    };
    let names = NameMap::torch().fuse(["q.weight", "k.weight", "v.weight"], "in_proj_weight", 0);
    let attention = |_| Attention::new(4, 2, 2);
    check("Attention", attention, &fused(names), flax, |_, net, x| {
        net.forward(x[0], Mask::None, None)
    });
    let names = NameMap::torch()
        .rename("q.weight", "q_proj_weight")
        .rename("k.weight", "k_proj_weight")
        .rename("v.weight", "v_proj_weight");
    let cross = |_| Attention::new(4, 2, 2).source_features(6);
    check(
        "Attention of a source",
        cross,
        &fused(names),
        flax,
        |_, net, x| net.cross(x[0], x[1], Mask::None),
    );
}
