//! The rows of "Defaults that differ" in `docs/layouts.md`: what layers of halite, PyTorch and Flax
//! do without options (`tests/golden/pytorch/defaults.py`).

use std::{collections::BTreeMap, path::Path};

use halite_core::{DType, HostArray, Tree};
use halite_nn::{
    Activation, BatchNorm, Conv, Conv2d, GroupNorm, Gru, Init, InstanceNorm, LayerNorm, Linear,
    Lstm, Param, RmsNorm,
};
use halite_tests::{
    eval::{eval, host},
    parity::formula,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::layers::golden::with;

fn row<T: DeserializeOwned>(name: &str) -> T {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/defaults.json");
    let text = std::fs::read_to_string(golden).unwrap();
    let mut rows: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(rows[name].take()).expect("the golden file is as defaults.py writes it")
}

#[track_caller]
fn documented(row: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/layouts.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(row), "the page has no row `{row}`");
}

#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
    }
}

/// Running mean and variance.
#[derive(Deserialize)]
struct Statistics {
    torch: [Vec<f64>; 2],
    flax: [Vec<f64>; 2],
}

#[test]
fn batch_norm_updates_statistics_as_pytorch() {
    let golden: Statistics = row("statistics");
    let results = eval(
        |cx, given| {
            let layer = BatchNorm::new(4);
            let mut leaves = Vec::new();
            for (_, param) in layer.named() {
                let ty = param.ty.with_dtype(DType::F64);
                leaves.push(cx.full(f64::from(u8::from(param.init == Init::Ones)), &ty));
            }
            let layer = with(&layer, &leaves);
            cx.set_mode(true, None);
            let _ = layer.forward(given[0]);
            vec![cx.updated(layer.mean), cx.updated(layer.variance)]
        },
        &[formula::floats("batch_norm.x", &[2, 3, 3, 4], DType::F64).unwrap()],
    );
    let [mean, variance] = [0, 1].map(|at| f64s(&results[at]));
    close(&mean, &golden.torch[0]);
    close(&variance, &golden.torch[1]);
    // Flax: a weight of 0.01, and the variance divided by the count.
    let tenth: Vec<f64> = golden.flax[0].iter().map(|mean| mean * 10.0).collect();
    close(&mean, &tenth);
    let count = 18.0;
    // Its running variance starts as an f32, whatever the type of the layer.
    let start = f64::from(0.99f32);
    let biased = golden.flax[1].iter().map(|flax| (flax - start) / 0.01);
    let ours: Vec<f64> = biased
        .map(|b| 0.9 + 0.1 * b * count / (count - 1.0))
        .collect();
    close(&variance, &ours);
    let [torch, flax] = ["torch", "flax"].map(|side| row::<Value>("momentum")[side].clone());
    assert_eq!((torch, flax), (Value::from(0.1), Value::from(0.99)));
    documented(
        "| `BatchNorm`: weight of the new batch | `momentum` 0.1 | `momentum` 0.1 | `1 - momentum`, \
         0.01 |",
    );
    documented(
        "| `BatchNorm`: running variance | divided by `n - 1` | divided by `n - 1` | divided by `n` |",
    );
}

#[test]
fn norms_have_the_documented_eps() {
    let golden: BTreeMap<String, [f64; 2]> = row("eps");
    for (name, ours) in [
        ("BatchNorm", BatchNorm::new(4).eps),
        ("LayerNorm", LayerNorm::new(4).eps),
        ("GroupNorm", GroupNorm::new(2, 4).eps),
        ("InstanceNorm", InstanceNorm::new(4).eps),
    ] {
        assert_eq!(ours, 1e-5, "{name}");
        let flax = if name == "BatchNorm" { 1e-5 } else { 1e-6 };
        assert_eq!(golden[name], [1e-5, flax], "{name}");
    }
    documented("| eps of `LayerNorm`, `GroupNorm`, `InstanceNorm` | 1e-5 | 1e-5 | 1e-6 |");
    let [torch, flax] = golden["RmsNorm"];
    assert_eq!((RmsNorm::new(4).eps, flax), (1e-6, 1e-6));
    assert!(
        (torch / f64::from(f32::EPSILON) - 1.0).abs() < 1e-3,
        "{torch}"
    );
    documented("| eps of `RmsNorm` | 1e-6 | the type's: 1.2e-7 in `f32` | 1e-6 |");
}

#[test]
fn instance_norm_has_the_documented_parameters() {
    let golden: BTreeMap<String, usize> = row("affine");
    let counts = ["torch", "affine", "flax"].map(|side| golden[side]);
    let plain = InstanceNorm::new(4).without_affine();
    assert_eq!((counts, plain.leaves().len()), ([0, 2, 2], 0));
    assert_eq!(InstanceNorm::new(4).leaves().len(), 2);
    documented("| yes; `without_affine()` | no; `affine=True` | yes |");
}

/// Largest magnitude and standard deviation of the weight and the bias, times the root of the number
/// of inputs (for LSTM and GRU of PyTorch, of the hidden features).
#[derive(Deserialize)]
struct Initial {
    torch: [[f64; 2]; 2],
    flax: [[f64; 2]; 2],
    /// Distance of a hidden weight times its transpose from the identity.
    orthogonality: Option<f64>,
}

#[test]
fn initial_weights_are_those_of_pytorch() {
    let golden: BTreeMap<String, Initial> = row("initial");
    let (linear, conv) = (Linear::new(288, 300), Conv2d::new(32, 300, 3));
    let (lstm, gru) = (Lstm::new(40, 100), Gru::new(40, 100));
    for (name, params, fan_in) in [
        ("Linear", linear.leaves(), 288),
        ("Conv", conv.leaves(), 288),
        ("Lstm", lstm.leaves(), 100),
        ("Gru", gru.leaves(), 100),
    ] {
        for param in params {
            assert_eq!(param.init, Init::torch_default(fan_in), "{name}");
        }
        let row = &golden[name];
        for [largest, deviation] in row.torch {
            assert!((0.98..=1.0).contains(&largest), "{name}: {largest}");
            // Of a uniform distribution; there are 300 biases.
            let uniform = deviation * 3f64.sqrt();
            assert!((0.9..1.1).contains(&uniform), "{name}: {deviation}");
        }
        let [[largest, deviation], bias] = row.flax;
        assert!(largest > 1.5 && (0.98..1.02).contains(&deviation), "{name}");
        assert_eq!(bias, [0.0, 0.0], "{name}");
        assert_eq!(row.orthogonality.is_some(), fan_in == 100);
        assert!(row.orthogonality.is_none_or(|off| off < 1e-5), "{name}");
    }
    documented("LeCun normal; of hidden states orthogonal |");
    documented("| initial bias | as PyTorch |");
}

/// A number of each library.
#[derive(Deserialize)]
struct Sides<T> {
    torch: T,
    flax: T,
}

#[test]
fn convolutions_have_the_documented_padding() {
    let golden: Sides<usize> = row("padding");
    let results = eval(
        |cx, given| {
            let conv = Conv::<Param, 2>::new(2, 2, 3).without_bias();
            [conv.clone(), conv.same()]
                .map(|conv| {
                    let weight = cx.full(1.0, &conv.weight.ty.with_dtype(DType::F64));
                    with(&conv, &[weight]).forward(given[0])
                })
                .into()
        },
        &[host(&[1.0; 50], &[1, 5, 5, 2])],
    );
    let sizes = [0, 1].map(|at| results[at].ty().dims()[1]);
    assert_eq!(sizes, [golden.torch, golden.flax]);
    assert_eq!(sizes, [3, 5]);
    documented("| padding of a convolution | none; `same()` | none | `SAME` |");
}

#[derive(Deserialize)]
struct Gelu {
    x: Vec<f64>,
    torch: Vec<f64>,
    tanh: Vec<f64>,
    flax: Vec<f64>,
}

#[test]
fn gelu_is_exact_as_in_pytorch() {
    let golden: Gelu = row("gelu");
    let results = eval(
        |_, x| {
            vec![
                x[0].gelu(),
                x[0].gelu_tanh(),
                Activation::Gelu.forward(x[0]),
            ]
        },
        &[host(&golden.x, &[golden.x.len()])],
    );
    close(&f64s(&results[0]), &golden.torch);
    close(&f64s(&results[1]), &golden.tanh);
    close(&f64s(&results[2]), &golden.torch);
    close(&golden.flax, &golden.tanh);
    documented(
        "| GELU | `gelu` exact, `gelu_tanh` | exact, `approximate=\"tanh\"` | `gelu` is tanh |",
    );
}

#[test]
fn recurrent_layers_have_the_documented_biases() {
    let golden: Sides<Value> = row("biases");
    let count = |names: Vec<(String, &Param)>| {
        names
            .iter()
            .filter(|(path, _)| path.contains("bias"))
            .count()
    };
    let (lstm, gru) = (Lstm::new(2, 3), Gru::new(2, 3));
    assert_eq!((count(lstm.named()), count(gru.named())), (2, 2));
    assert_eq!(golden.torch, serde_json::json!([2, 2]));
    // One of each gate; GRU's new gate has two.
    assert_eq!(golden.flax, serde_json::json!([[1, 1, 1, 1], [1, 1, 2]]));
    documented("| gates of LSTM and GRU | two biases | two biases | one bias; GRU's `n` has two |");
    let batch_first: Sides<bool> = row("batch_first");
    assert!(!batch_first.torch && batch_first.flax);
    documented(
        "| order of dimensions in LSTM and GRU | batch first | time first, unless `batch_first=True` | \
         batch first |",
    );
}

#[test]
fn recurrent_layers_take_the_batch_first() {
    let dims = |batch, time| {
        let results = eval(
            |cx, given| {
                let lstm = Lstm::new(2, 3);
                let leaves: Vec<_> = (lstm.leaves().into_iter())
                    .map(|param| cx.full(0.5, &param.ty.with_dtype(DType::F64)))
                    .collect();
                let (y, state) = with(&lstm, &leaves).forward(given[0], None);
                vec![y, state.hidden]
            },
            &[host(&vec![1.0; 2 * batch * time], &[batch, time, 2])],
        );
        [0, 1].map(|at| results[at].ty().dims().to_vec())
    };
    assert_eq!(dims(4, 5), [vec![4, 5, 3], vec![1, 4, 3]]);
}

fn f64s(array: &HostArray) -> Vec<f64> {
    array.as_slice::<f64>().unwrap().to_vec()
}
